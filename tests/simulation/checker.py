"""What the counts must be: the rules in plain Python, written without a look at how they are kept.

A delete takes back what its id teaches. An update does too, and teaches in its place. One that
finds nothing came early: the first message of its id that is created later teaches nothing. A label
that a person gave stands for the message, whatever its later versions say; what a person deleted
teaches nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Message = Mapping[str, Any]  # id, text, label, operation; the last two may be missing
Counts = tuple[dict[str, int], dict[str, dict[str, int]]]  # by class; by word and class


def taught(
    logs: Iterable[Iterable[Message]], corrections: Iterable[tuple[str, str | None]]
) -> dict[str, tuple[str, str]]:
    """Return text and label that each id teaches, after these logs and then these corrections."""
    living: dict[str, tuple[str, str]] = {}
    for log in logs:
        known: set[str] = set()  # ids of which something was said
        early: set[str] = set()  # ids that were revised before they came
        for message in log:
            name, label = message["id"], message.get("label")
            operation = message.get("operation", "create")
            if operation == "create":
                if name in early:
                    early.remove(name)
                elif label is not None:
                    living[name] = message["text"], label
                    known.add(name)
                continue
            living.pop(name, None)
            if operation == "update" and label is not None:
                living[name] = message["text"], label
            if name not in known:
                early.add(name)
                known.add(name)
    texts = {message["id"]: message.get("text") for log in logs for message in log}
    for name, given in corrections:
        text, _ = living.pop(name, (texts[name], ""))
        if given is not None and text is not None:
            living[name] = text, given
    return living


def counts(living: Mapping[str, tuple[str, str]]) -> Counts:
    """Return how many examples each class has, and how many of them have each word."""
    classes: Counter[str] = Counter()
    words: dict[str, Counter[str]] = {}
    for text, label in living.values():
        classes[label] += 1
        for word in set(text.split()):
            words.setdefault(word, Counter())[label] += 1
    return dict(classes), {word: dict(own) for word, own in words.items()}
