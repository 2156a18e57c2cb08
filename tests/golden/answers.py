"""All that a model can be asked, as plain values whose floats survive JSON bit for bit."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

import streamnb as nb
from tests.golden.models import Golden, columns_of, label, record, text

REFUSED = "refused"
RELATIVE_MAX = 1e-9  # on a machine of another kind, where log and exp may round differently


def plain(value: Any) -> Any:
    """Return a value as JSON holds it; tuples, arrays and dataclasses by their values."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        if all(type(key) is str for key in value):
            return {key: plain(each) for key, each in value.items()}
        return [[plain(key), plain(each)] for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value


def _told(ask: Callable[[], Any]) -> Any:
    """Return an answer, or that the model refuses one; how it says so may change."""
    try:
        return plain(ask())
    except (nb.StreamnbError, ValueError):
        return REFUSED


def digest(model: nb.NaiveBayes) -> str:
    """Return a digest of a model's bytes, which a fixed hash key makes the same in each process."""
    return hashlib.sha256(model.to_bytes()).hexdigest()


def ask(golden: Golden) -> dict[str, Any]:
    """Return everything that a model says."""
    model, rows, labels = golden.model, golden.rows, golden.labels
    columns = columns_of(rows)
    groups = model.describe()["groups"]
    of_words = [name for name, group in groups.items() if group["kind"] in {"words", "bag"}]
    found = {
        "classes": _told(lambda: model.classes),
        "class_counts": _told(lambda: model.class_counts),
        "class_priors": _told(model.class_priors),
        "n_examples": _told(lambda: model.n_examples),
        "vocabulary_size": _told(lambda: model.vocabulary_size),
        "words_dropped": _told(lambda: model.words_dropped),
        "n_skipped": _told(lambda: model.n_skipped),
        "parts": _told(lambda: list(model.parts)),
        "describe": _told(model.describe),
        "words": {name: _ask_words(model, name) for name in of_words},
        "most_informative": _told(lambda: model.most_informative(4)),
        "weights": _told(model.weights),
        "parameters": _told(model.parameters),
        "sample": _told(lambda: model.sample_many(4, seed=7)),
        "predict_many": _told(lambda: model.predict_many(columns)),
        "predict_log_proba_many": _told(lambda: model.predict_log_proba_many(columns)),
        "joint_log_likelihood_many": _told(lambda: model.joint_log_likelihood_many(columns)),
        "answered_by_prior": _told(lambda: model.answered_by_prior(columns)),
        "log_loss": _told(lambda: model.log_loss(columns, labels)),
        "log_likelihood": _told(lambda: model.log_likelihood(columns, labels)),
        "with_coefficient": _told(
            lambda: model.log_likelihood(columns, labels, with_coefficient=True)
        ),
        "rows": [_ask_one(model, row) for row in rows],
        "export": _told(lambda: nb.export_dict(model)),
    }
    if golden.has_training_likelihood:
        found["training_log_likelihood"] = _told(model.training_log_likelihood)
    return found


def _ask_words(model: nb.NaiveBayes, group: str) -> dict[str, Any]:
    words = model.words(group)
    shown = words[:12]
    return {
        "words": words,
        "top_counts": _told(
            lambda: model.word_counts(model.top_words(5, group), group).sum(axis=1)
        ),
        "telling_words": _told(lambda: _in_order(model.telling_words(10**6, group))),
        "counts": _told(lambda: model.word_counts(shown, group)),
        "likelihoods": _told(lambda: model.word_likelihoods(shown, group)),
        "most_informative": _told(lambda: model.most_informative(4, group)),
    }


def _in_order(told: Mapping[Any, list[tuple[str, float]]]) -> dict[Any, Any]:
    """Return ranked words with ties in the order of the alphabet, as no order was promised."""
    return {
        label: sorted(words, key=lambda each: (-each[1], each[0])) for label, words in told.items()
    }


def _ask_one(model: nb.NaiveBayes, x: dict[str, Any]) -> dict[str, Any]:
    return {
        "predict": _told(lambda: model.predict_one(x)),
        "predict_proba": _told(lambda: model.predict_proba_one(x)),
        "judge": _told(lambda: model.judge_one(x)),
        "joint_log_likelihood": _told(lambda: model.joint_log_likelihood_one(x)),
        "explain": _told(lambda: _explained(model, x)),
        "interval_delta": _told(lambda: model.credible_interval_one(x, 0.9, "delta")),
        "interval_sampled": _told(lambda: model.credible_interval_one(x, n=100, seed=3)),
    }


def _explained(model: nb.NaiveBayes, x: dict[str, Any]) -> dict[str, Any]:
    """Return an explanation with what it held in 0.1.0: it did not say yet what is unseen."""
    found = model.explain_one(x).to_dict()
    for each in found["contributions"]:
        each.pop("unseen", None)
    return found


def go_on(golden: Golden) -> str:
    """Learn a few examples more, and return the digest of what came of it."""
    model = golden.model
    some = range(60, 66)
    rows: list[dict[str, Any]] = [record(i) | {"text": text(i)} for i in some]
    known = {name for row in golden.rows for name in row}
    rows = [{name: row[name] for name in sorted(known & set(row))} for row in rows]
    if model.classes and isinstance(model.classes[0], str):
        labels: list[Any] = [label(i) for i in some]
    else:
        labels = [model.classes[i % 2] for i in some]
    decay = model.describe().get("decay")
    in_seconds = isinstance(decay, dict) and decay.get("seconds") is not None
    part = next(iter(model.parts), None)
    for i, (x, y) in enumerate(zip(rows, labels, strict=True)):
        model.learn_one(x, y, time_s=2e8 + i if in_seconds else None, part=part)
    return digest(model)


def differences(recorded: Any, found: Any, *, exact: bool, at: str = "") -> Iterator[str]:
    """Yield each place where an answer is another one.

    Parameters
    ----------
    recorded, found : plain values
    exact : bool
        Hold floats bit for bit; else to rounding.
    at : str
        Where in the answers they stand.
    """
    if isinstance(recorded, dict) and isinstance(found, dict):
        for name in dict.fromkeys([*recorded, *found]):
            if name in recorded and name in found:
                where = f"{at}.{name}"
                yield from differences(recorded[name], found[name], exact=exact, at=where)
            else:
                yield f"{at}.{name}: {'gone' if name in recorded else 'new'}"
    elif isinstance(recorded, list) and isinstance(found, list) and len(recorded) == len(found):
        for i, (one, other) in enumerate(zip(recorded, found, strict=True)):
            yield from differences(one, other, exact=exact, at=f"{at}[{i}]")
    elif not _same(recorded, found, exact=exact):
        yield f"{at}: recorded {_shown(recorded)}, found {_shown(found)}"


def _same(recorded: Any, found: Any, *, exact: bool) -> bool:
    if type(recorded) is not type(found):
        return False
    if isinstance(recorded, float):
        if math.isnan(recorded) and math.isnan(found):
            return True
        if not exact:
            return math.isclose(recorded, found, rel_tol=RELATIVE_MAX, abs_tol=RELATIVE_MAX)
        return bool(recorded.hex() == found.hex())
    return bool(recorded == found)


def _shown(value: Any) -> str:
    return f"{json.dumps(value, ensure_ascii=False)[:120]}"
