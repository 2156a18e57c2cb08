"""What the counts must be: the rules in plain Python, written without a look at how they are kept.

A delete takes back what its id teaches. An update does too, and teaches in its place. One that
finds nothing came early: the first message of its id that is created later teaches nothing. A label
that a person gave stands for the message, whatever its later versions say; what a person deleted
teaches nothing.

With late labels a message without one waits, if it is no window older than its partition's time:
the newest that two messages in a row have reached. The first label within its window is its own;
without one it is the default once its partition's time is a horizon beyond it. What takes a message
back takes that back too, and no label comes to it any more.

Whatever is judged is shown, until a delete or an update behind it in its log takes it back. What
came behind its own delete or update is not judged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

Message = Mapping[str, Any]  # id, text, label, operation; the last two may be missing
Counts = tuple[dict[str, int], dict[str, dict[str, int]]]  # by class; by word and class


def taught(
    logs: Iterable[Iterable[Message]],
    corrections: Iterable[tuple[str, str | None]],
    label_logs: Iterable[Iterable[Message]] = (),
    late: Mapping[str, Any] | None = None,
) -> dict[str, tuple[str, str]]:
    """Return text and label that each id teaches, after these logs and then these corrections.

    `late` has the window, the horizon and the default of the logs of late labels.
    """
    logs = [list(log) for log in logs]
    living: dict[str, tuple[str, str]] = {}
    for log, labels in zip_longest(logs, label_logs, fillvalue=()):
        waiting, now_s = _read(log, living, late)
        living |= _labelled(waiting, labels, now_s, late or {})
    texts = {message["id"]: message.get("text") for log in logs for message in log}
    deleted = set[str]()
    for name, given in corrections:
        text, _ = living.pop(name, (texts[name], ""))
        if given is None:
            deleted.add(name)  # a member that has not heard of it may still take a label
        elif text is not None and name not in deleted:
            living[name] = text, given
    return living


def _read(
    log: Iterable[Message], living: dict[str, tuple[str, str]], late: Mapping[str, Any] | None
) -> tuple[dict[str, Message], float]:
    """Note what a log teaches; return what waits for a label at its end, and its time."""
    known: set[str] = set()  # ids of which something was said
    early: set[str] = set()  # ids that were revised before they came
    waiting, now_s, last_s = dict[str, Message](), -math.inf, -math.inf
    for message in log:
        name, label = message["id"], message.get("label")
        before_s, own_s = now_s, message.get("created_at", -math.inf)
        now_s, last_s = max(now_s, min(own_s, last_s)), own_s
        if message.get("operation", "create") == "create":
            if name in early:
                early.remove(name)
            elif label is not None:
                living[name] = message["text"], label
                known.add(name)
            elif late is not None and own_s >= before_s - late["window_s"]:
                waiting[name] = message
                known.add(name)
            continue
        living.pop(name, None)
        waiting.pop(name, None)
        if message["operation"] == "update" and label is not None:
            living[name] = message["text"], label
        if name not in known:
            early.add(name)
            known.add(name)
    return waiting, now_s


def _labelled(
    waiting: Mapping[str, Message], labels: Iterable[Message], now_s: float, late: Mapping[str, Any]
) -> dict[str, tuple[str, str]]:
    """Return what the messages that wait teach by their labels, or by default."""
    found: dict[str, tuple[str, str]] = {}
    for said in labels:
        message = waiting.get(said["id"])
        if message is None or said["id"] in found:
            continue
        if abs(message["created_at"] - said["created_at"]) <= late["window_s"]:
            found[said["id"]] = message["text"], said["label"]
    for name, message in waiting.items():
        is_over = message["created_at"] < now_s - late.get("horizon_s", math.inf)
        if is_over and name not in found:
            found[name] = message["text"], late["default"]
    return found


def counts(living: Mapping[str, tuple[str, str]]) -> Counts:
    """Return how many examples each class has, and how many of them have each word."""
    classes: Counter[str] = Counter()
    words: dict[str, Counter[str]] = {}
    for text, label in living.values():
        classes[label] += 1
        for word in set(text.split()):
            words.setdefault(word, Counter())[label] += 1
    return dict(classes), {word: dict(own) for word, own in words.items()}


@dataclass
class Judged:
    """What a log says of what is shown: messages that may be, and which revisions were read."""

    messages: dict[int, Message] = field(default_factory=dict)  # by offset
    revisions: dict[str, list[int]] = field(default_factory=dict)  # by id, ascending
    unread: set[int] = field(default_factory=set)  # messages that the last life did not read

    def taken_back(self, name: str, offset: int) -> list[int]:
        """Return where the revisions stand that take a message back."""
        return [at for at in self.revisions.get(name, ()) if at > offset]

    def left(self) -> dict[int, Message]:
        """Return the messages that were read, and that nothing has taken back."""
        return {
            at: message
            for at, message in self.messages.items()
            if at not in self.unread and not self.taken_back(message["id"], at)
        }


def judged(said: Mapping[int, Message], read: Mapping[int, Message]) -> Judged:
    """Return what a log says of what is shown, by offset; not all of it may have been `read`.

    What was not read at last may have been before, and what it had revised is as it was.
    """
    found, came, early = Judged(), set[str](), set[str]()
    for at, message in said.items():
        name, operation = message["id"], message.get("operation", "create")
        if at not in read:
            if operation != "delete":
                found.messages[at] = message
                found.unread.add(at)
            continue
        if operation == "create" and name in early:
            early.remove(name)
            continue
        if operation == "create":
            came.add(name)
        else:
            found.revisions.setdefault(name, []).append(at)
            early |= {name} - came
        if operation != "delete":
            found.messages[at] = message
    return found
