"""Count the functions of the library that warm calls enter; prints them as JSON.

It runs in a process of its own, as tests check what kernels are handed, which enters more.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import streamnb as nb
from consumers.config.model import ModelSettings
from consumers.features import build_model

LIBRARY = str(Path(nb.__file__).parent)
CLASSES = ("negative", "positive")
TEXTS = [f"what a day number{i % 50}, not good coffee :)" for i in range(1_000)]
LABELS = [CLASSES[i % 2] for i in range(1_000)]
PART = "tweets/0"


def entries(call: Callable[[], Any]) -> list[str]:
    """Return each entry into a function of the library during a call, once it is warm."""
    found: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(LIBRARY):
            found.append(frame.f_code.co_name)

    for _ in range(2):
        call()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def plain_model() -> nb.NaiveBayes:
    """Return an untrained model of words and pairs, without the hybrid and what the daemon adds."""
    words = nb.Words(
        nb.Multinomial(), counts="presence", ngrams=(1, 2), negation=True, max_words=2_000_000
    )
    return nb.NaiveBayes(CLASSES, nb.Dirichlet(1.0), {"text": words})


def default_model() -> nb.NaiveBayes:
    """Return the model that the daemon has by default, untrained: it rewrites, with a hybrid."""
    return build_model(ModelSettings())


def found(make: Callable[[], nb.NaiveBayes]) -> dict[str, list[str]]:
    """Return the functions that a warm model and one in parts enter, by call."""
    model, parts = make(), make()
    model.learn_many({"text": TEXTS}, LABELS)
    parts.learn_many({"text": TEXTS}, LABELS, part=PART)
    x = {"text": "a good day"}
    return {
        "prequential_many": entries(lambda: model.prequential_many({"text": TEXTS}, LABELS)),
        "prequential_many of a part": entries(
            lambda: parts.prequential_many({"text": TEXTS}, LABELS, part=PART)
        ),
        "learn_one": entries(lambda: model.learn_one(x, "positive")),
        "learn_one of a part": entries(lambda: parts.learn_one(x, "positive", part=PART)),
        "predict_one": entries(lambda: model.predict_one(x)),
    }


if __name__ == "__main__":
    by_model = {"plain": found(plain_model), "default": found(default_model)}
    print(json.dumps(by_model))  # noqa: T201 -- what it is for
