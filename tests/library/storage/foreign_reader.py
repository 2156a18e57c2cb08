"""A program that knows nothing of this library but `docs/format.md`: it judges from the JSON alone.

It uses `json` and `math` and follows the guide's formulas. Text is taken to be plain words with a
space between, since how text becomes words is not part of the export.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

INFINITY = float("inf")


def judge(text: str, x: dict[str, Any]) -> list[float]:
    """Return log p(x, c) of one example, in the order of the export's classes."""
    export = json.loads(text)
    assert (export["format"], export["version"]) == ("streamnb export", 1)
    total = [log(value) for value in export["class_prior"]["log_prior"]]
    for group in export["groups"]:
        for values in group_terms(group, x):
            total = [one + log(other) for one, other in zip(total, values, strict=True)]
    return total


def log(value: float | None) -> float:
    """Return a logarithm as the export holds it: null is the logarithm of zero."""
    return -INFINITY if value is None else value


def group_terms(group: dict[str, Any], x: dict[str, Any]) -> list[list[float | None]]:
    """Return what one group adds to each class, term by term."""
    kind = group["kind"]
    if kind in ("words", "bag"):
        return word_terms(group, x)
    return {"flags": flag_terms, "categories": category_terms, "numbers": number_terms}[kind](
        group, x
    )


def word_terms(group: dict[str, Any], x: dict[str, Any]) -> list[list[float | None]]:
    """Words: by how often they are there, or by being there or missing."""
    spec, table = group["specification"], group["table"]
    if group["kind"] == "bag" and spec["field"] is None:
        value: Any = {field: x.get(field) or 0 for field in spec["fields"] or x}
    else:
        value = x.get(spec["field"] or group["name"])
    if value is None:
        return []
    counts = Counter(value.split()) if isinstance(value, str) else Counter(value)
    terms = []
    for i, word in enumerate(table["word"]):
        if spec["likelihood"]["name"] == "bernoulli":
            terms.append(table["log_theta" if counts[word] else "log_absent"][i])
        elif counts[word]:
            column = "score" if spec["likelihood"]["name"] == "complement" else "log_theta"
            times = 1 if spec.get("counts") == "presence" else counts[word]
            terms.append([None if v is None else v * times for v in table[column][i]])
    if "is_void" in group:
        terms.append([None if void else 0.0 for void in group["is_void"]])
    return terms


def flag_terms(group: dict[str, Any], x: dict[str, Any]) -> list[list[float | None]]:
    """Flags: true, or false; a missing one is silent, unless absence means false."""
    table = group["table"]
    terms = []
    for i, field in enumerate(table["field"]):
        value = x.get(field)
        if value is None and group["specification"]["absent_is_false"]:
            value = False
        if value is not None:
            terms.append(table["log_true" if value else "log_false"][i])
    return terms


def category_terms(group: dict[str, Any], x: dict[str, Any]) -> list[list[float | None]]:
    """Categories: the value's row, or the field's own for a value never seen."""
    table = group["table"]
    rows = {pair: i for i, pair in enumerate(zip(table["field"], table["value"], strict=True))}
    terms = []
    for field in dict.fromkeys(table["field"]):
        value = x.get(field)
        if value is None:
            continue
        if (field, value) in rows:
            terms.append(table["log_theta"][rows[field, value]])
        elif field in group["log_unseen"]:
            terms.append(group["log_unseen"][field])
    return terms


def number_terms(group: dict[str, Any], x: dict[str, Any]) -> list[list[float | None]]:
    """Numbers: a normal density, or Student's t."""
    table = group["table"]
    terms: list[list[float | None]] = []
    for i, field in enumerate(table["field"]):
        value = x.get(field)
        if value is None:
            continue
        term: list[float | None] = []
        for c in range(len(table["n"][i])):
            d = value - (table["location"][i][c] or 0.0)
            if group["density"] == "student_t":
                df, s2 = table["df"][i][c], table["scale_squared"][i][c]
                gammas = math.lgamma((df + 1) / 2) - math.lgamma(df / 2)
                tail = (df + 1) / 2 * math.log1p(d * d / (df * s2))
                term.append(gammas - 0.5 * math.log(math.pi * df * s2) - tail)
            elif not table["n"][i][c]:
                term.append(None)
            elif table["variance"][i][c]:
                v = table["variance"][i][c]
                term.append(-0.5 * (math.log(2 * math.pi * v) + d * d / v))
            else:
                term.append(0.0 if d == 0 else None)
        terms.append(term)
    return terms
