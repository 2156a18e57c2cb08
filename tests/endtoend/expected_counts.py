"""What a checkpoint has learned, and what an undisturbed process learns of the same examples."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from consumers.config.model import ModelSettings
from consumers.features import build_model
from streamnb import NaiveBayes
from streamnb.serialization import pack
from streamnb.storage import read

Counts = tuple[list[float], dict[str, tuple[float, ...]]]
Example = tuple[str, str]  # text, label

WORDS = ("sun", "rain", "monday", "coffee", "love", "hate", "very", "not", "good", "bad")


def examples(n: int, first: int = 0) -> list[Example]:
    """Return examples number `first` onward: texts of a few words, some seen once, and labels."""
    return [
        (
            f"{WORDS[i % 10]} {WORDS[i * i % 7]} {WORDS[i // 10 % 10]} number{i}",
            "positive" if i * 7 % 5 < 3 else "negative",
        )
        for i in range(first, first + n)
    ]


def message(example: Example, number: int, *, labelled: bool = True) -> bytes:
    """Return an example as a message of a stream."""
    text, label = example
    fields = {"id": f"m{number}", "text": text} | ({"label": label} if labelled else {})
    return json.dumps(fields).encode()


def messages(found: Iterable[Example]) -> list[bytes]:
    """Return examples as messages, numbered from 0."""
    return [message(example, number) for number, example in enumerate(found)]


def counts(model: NaiveBayes) -> Counts:
    """Return N_c, and N_jc of every word that the model knows."""
    words = model.words()
    rows = model.word_counts(words).tolist() if words else []
    return model.class_counts.tolist(), dict(zip(words, map(tuple, rows), strict=True))


def counts_at(folder: Path) -> Counts:
    """Return the counts of the newest checkpoint in a folder."""
    return counts(read(folder / "model.nb").model)


def counts_of(found: Iterable[Example], settings: ModelSettings | None = None) -> Counts:
    """Return the counts of a process that was never disturbed and knows no stream."""
    texts, labels = zip(*found, strict=True)
    model = build_model(settings or ModelSettings())
    model.learn_many({"text": list(texts)}, list(labels))
    return counts(model)


def state_at(folder: Path) -> dict[str, Any]:
    """Return all that the newest checkpoint in a folder knows, bit for bit, in an order of its own.

    Words and values stand by their texts: their columns and fingerprints differ between runs.
    """
    stored = read(folder / "model.nb")
    header, arrays = pack(stored.model.state, stored.positions)
    sections = {}
    for i, section in enumerate(header["sections"]):
        state: dict[str, Any] = {"class_counts": arrays[f"sections/{i}/class_counts"].tobytes()}
        for name in header["groups"]:
            prefix = f"sections/{i}/{name}/"
            own = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
            columns = own.pop("columns", None)
            texts = _texts(arrays, f"groups/{name}")
            for key, array in own.items():
                if columns is not None and key in {"by_word", "by_value", "hybrid_words"}:
                    rows = zip(columns.tolist(), array, strict=True)
                    state[f"{name}/{key}"] = {texts[at]: row.tobytes() for at, row in rows}
                else:
                    state[f"{name}/{key}"] = array.tobytes()
        sections[section["part"]] = state | {"header": section}
    return {"groups": header["groups"], "sections": sections}


def _texts(arrays: Mapping[str, NDArray[Any]], prefix: str) -> list[bytes]:
    """Return the words or values of a packed group, by column; none where it has neither."""
    for kind in ("word", "value"):
        if f"{prefix}/{kind}_ends" in arrays:
            data = arrays[f"{prefix}/{kind}s"].tobytes()
            ends = [0, *arrays[f"{prefix}/{kind}_ends"].tolist()]
            return [data[begin:end] for begin, end in pairwise(ends)]
    return []
