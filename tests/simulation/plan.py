"""What happens in a run, drawn by its seed before it begins: so it can be read, cut and kept."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

SPAN_S = 4.0  # of a run's events
WORDS = ("sun", "rain", "monday", "coffee", "love", "hate", "very", "good", "bad", "tea")
BEGIN_TIME_S = 1_700_000_000  # of messages that say theirs
_TIMES_S = 1000  # that these times span
LABELS = ("negative", "positive")


@dataclass(frozen=True)
class Event:
    """What happens at a time, and to whom.

    `say` a message of a partition, `label` one later; `retain` its log's newest; `correct` one by
    its id; `late`: when a daemon starts first; `kill`, `cut` (the power), `stop` or `pause` one;
    `blackout`: as `cut`, for all daemons and what they share; `away`: the broker; `rebalance`: the
    group; `grow`: a topic gets partitions; `fail`: a call of a daemon fails.
    """

    at_s: float
    kind: str
    who: int = 0
    what: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return a line for people."""
        what = " ".join(f"{name}={value!r}" for name, value in self.what.items())
        return f"{self.at_s:7.3f} s  {self.kind} {self.who}  {what}"


@dataclass(frozen=True)
class Plan:
    """A run: the world that it has, and its events."""

    seed: int
    n_daemons: int
    n_partitions: int
    has_page: bool  # with corrections: in a journal, or in a topic of the group
    settings: dict[str, Any]
    events: tuple[Event, ...]

    def without(self, begin: int, end: int) -> Plan:
        """Return the plan without some events."""
        return replace(self, events=self.events[:begin] + self.events[end:])


def draw(seed: int) -> Plan:
    """Return the plan of a seed."""
    chance = random.Random(seed)
    n_daemons = chance.choice((1, 1, 1, 2, 3))
    n_partitions = chance.randint(1, 4)
    is_alone = n_daemons == 1
    has_page = is_alone and chance.random() < 0.5
    settings: dict[str, Any] = {
        "checkpoint": {
            "interval_s": chance.choice((0.2, 0.5, 1.5)), "keep": chance.randint(1, 3)
        },
        "group": {"interval_s": chance.choice((0.3, 1.0)), "keep": chance.randint(1, 3)},
        "learned": {"messages_max": 1_000},
        "learning": {"publish_interval_s": chance.choice((0.1, 0.5))},
    }  # fmt: skip
    events = [*_messages(chance, n_partitions)]
    if has_page:
        events += _corrections(chance, events)
    events += _faults(chance, n_daemons)
    if not has_page:
        with_more = _with_more_alone if is_alone else _with_rebalances
        more = random.Random(f"more {seed}")
        events = [*_with_late_labels(more, settings, [*with_more(more, settings, events)])]
    if not is_alone:
        _let_publish_by_examples(random.Random(f"publishing {seed}"), settings)
    # What was added last has chances of its own: whatever it adds to, the rest of a plan stays.
    last = random.Random(f"last {seed}")
    if last.random() < 0.3:
        events += _growth(last, settings, n_partitions)
    if not is_alone and "late_labels" not in settings and last.random() < 0.5:
        has_page = True
        events += _corrections(last, [event for event in events if event.kind == "say"], n_daemons)
    if last.random() < 0.3:
        settings["kafka"] = settings.get("kafka", {}) | {"start_from": "latest"}
        events += _late_starts(last, n_daemons)
    if not is_alone and last.random() < 0.3:
        events += _blackouts(last, n_daemons)
    page = random.Random(f"page {seed}")  # what it searches may be a sample, and labels come late
    has_page = has_page or ("late_labels" in settings and page.random() < 0.5)
    if has_page and page.random() < 0.2:
        settings["recent"] = {"rate_max_per_s": page.choice((0.4, 1.0, 3.0))}
    events.sort(key=lambda event: event.at_s)
    return Plan(seed, n_daemons, n_partitions, has_page, settings, tuple(events))


def _growth(chance: random.Random, settings: dict[str, Any], n_partitions: int) -> Iterator[Event]:
    """Yield how the topics get partitions, each at a time of its own, and what comes in these."""
    settings["kafka"] = {"metadata_interval_s": chance.choice((0.1, 0.5, 1.0))}
    n, at_s = n_partitions + chance.randint(1, 2), chance.uniform(0.2, SPAN_S / 2)
    labels_s = max(0.1, at_s + chance.uniform(-0.5, 0.7))
    yield Event(at_s, "grow", 0, {"topic": "messages", "partitions": n})
    yield Event(labels_s, "grow", 0, {"topic": "labels", "partitions": n})
    for event in _messages(chance, n - n_partitions, "g", chance.randint(3, 12)):
        event = replace(event, who=n_partitions + event.who, at_s=at_s + event.at_s / 2)  # noqa: PLW2901
        if "late_labels" not in settings:
            yield event
            continue
        for each in _labelled_later(chance, event):
            yield replace(each, at_s=max(each.at_s, labels_s)) if each.kind == "label" else each


def _late_starts(chance: random.Random, n_daemons: int) -> Iterator[Event]:
    """Yield when daemons start first: with `latest` this is what they begin behind."""
    for number in range(n_daemons):
        if chance.random() < 0.7:
            yield Event(0.0, "late", number, {"seconds": round(chance.uniform(0.1, 2.5), 3)})


def _blackouts(chance: random.Random, n_daemons: int) -> Iterator[Event]:
    for _ in range(chance.randint(1, 2)):
        after = chance.choice((1, 20, 200)) * chance.randint(1, 5)
        down_s = [
            round(chance.choice((0.05, 1.0, 6.0)) * chance.random(), 3) for _ in range(n_daemons)
        ]
        at_s, who = chance.uniform(0, SPAN_S), chance.randrange(n_daemons)
        yield Event(at_s, "blackout", who, {"after": after, "down_s": down_s})


def _with_more_alone(
    chance: random.Random, settings: dict[str, Any], events: list[Event]
) -> Iterator[Event]:
    """Yield the events with retention and more snapshots, if so drawn."""
    if chance.random() < 0.3:
        publishing = {"publish": "examples", "publish_examples": chance.randint(1, 8)}
        settings["learning"] = settings["learning"] | publishing
    if chance.random() < 0.3:
        for _ in range(chance.randint(1, 3)):
            at_s, n = chance.uniform(0, SPAN_S), chance.choice((0, 1, 3))
            yield Event(at_s, "retain", chance.randrange(4), {"keep": n})
    yield from events


def _let_publish_by_examples(chance: random.Random, settings: dict[str, Any]) -> None:
    """Let members of a group publish by examples, if so drawn: some never again after the start."""
    if chance.random() < 0.4:
        publishing = {"publish": "examples", "publish_examples": chance.choice((1, 7, 10_000))}
        settings["learning"] = settings["learning"] | publishing


def _with_rebalances(
    chance: random.Random, _settings: dict[str, Any], events: list[Event]
) -> Iterator[Event]:
    """Yield the events with rebalances for which nobody came or went, if so drawn."""
    for _ in range(chance.choice((0, 0, 2, 6))):
        yield Event(chance.uniform(0, SPAN_S), "rebalance")
    yield from events


def _with_late_labels(
    chance: random.Random, settings: dict[str, Any], events: list[Event]
) -> Iterator[Event]:
    """Yield the events with labels that come later, if so drawn."""
    if chance.random() < 0.7:
        yield from events
        return
    settings["learned"] = {"messages_max": 100_000}  # within less than a segment none waits
    settings["late_labels"] = {
        "source": "kafka:labels", "id": "id", "window_s": chance.choice((100, 400, 10_000)),
    }  # fmt: skip
    if chance.random() < 0.6:
        own = {"default": chance.choice(LABELS), "horizon_s": chance.choice((50, 300, 600))}
        settings["late_labels"] |= own
    for event in events:
        if event.kind == "say":
            yield from _labelled_later(chance, event)
        else:
            yield event


def _labelled_later(chance: random.Random, event: Event) -> Iterator[Event]:
    """Yield a message with its time, and its labels if they come later."""
    time_s = BEGIN_TIME_S + int(event.at_s / SPAN_S * _TIMES_S) + chance.choice((0, 0, -60, 30))
    time_s += chance.choice((0,) * 9 + (10**9,))  # of a wrong clock
    what = event.what | {"created_at": time_s}
    if "operation" not in what and chance.random() < 0.7:
        what.pop("label", None)
        for _ in range(chance.choice((0, 1, 1, 1, 2))):
            said = {
                "id": what["id"], "label": chance.choice(LABELS),
                "created_at": time_s + chance.choice((0, 20, 90, 90, 350, 2_000)),
            }  # fmt: skip
            at_s = max(0.0, event.at_s + chance.uniform(-1.0, 2.0))
            yield Event(at_s, "label", event.who, said)
    yield replace(event, what=what)


def _text(chance: random.Random) -> str:
    return " ".join(chance.choices(WORDS, k=chance.randint(1, 4)))


def _messages(
    chance: random.Random, n_partitions: int, prefix: str = "m", n: int | None = None
) -> Iterator[Event]:
    """Yield messages, with what revises them: mostly behind them, now and then before."""
    share = chance.choice((0.0, 0.15, 0.4))
    for number in range(chance.randint(8, 50) if n is None else n):
        partition, at_s = chance.randrange(n_partitions), chance.uniform(0, SPAN_S)
        message = {"id": f"{prefix}{number}", "text": _text(chance)}
        if chance.random() < 0.8:
            message["label"] = chance.choice(LABELS)
        yield Event(at_s, "say", partition, message)
        if chance.random() >= share:
            continue
        for _ in range(chance.randint(1, 3)):
            then_s = max(0.0, at_s + chance.uniform(-0.3, 1.5))
            if chance.random() < 0.5:
                what = {"id": message["id"], "operation": "delete"}
            else:
                label = chance.choice(LABELS)
                what = {
                    "id": message["id"], "operation": "update", "text": _text(chance),
                    "label": label,
                }  # fmt: skip
            yield Event(then_s, "say", partition, what)


def _corrections(chance: random.Random, events: list[Event], n_daemons: int = 1) -> Iterator[Event]:
    """Yield corrections of messages that the stream does not revise."""
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event.what["id"], []).append(event.at_s)
    alone = [(name, own[0]) for name, own in times.items() if len(own) == 1]
    for name, at_s in chance.sample(alone, min(len(alone), chance.randint(0, 8))):
        for _ in range(chance.randint(1, 2)):
            label = chance.choice((*LABELS, None))
            said_s = at_s + chance.uniform(0.2, 2.0)
            who = chance.randrange(n_daemons) if n_daemons > 1 else 0
            yield Event(said_s, "correct", who, {"id": name, "label": label})
            if label is None:
                break


def _faults(chance: random.Random, n_daemons: int) -> Iterator[Event]:
    for _ in range(chance.randint(0, 5)):
        at_s, who = chance.uniform(0, SPAN_S), chance.randrange(n_daemons)
        kind = chance.choice(("kill", "kill", "cut", "cut", "stop", "pause", "away", "fail"))
        what: dict[str, Any] = {}
        if kind in {"kill", "cut"}:
            what = {"after": chance.choice((1, 20, 200, 1000)) * chance.randint(1, 5)}
        if kind in {"kill", "cut", "stop"}:
            what["down_s"] = round(chance.choice((0.05, 1.0, 6.0)) * chance.random(), 3)
        elif kind == "pause":
            what = {"seconds": round(chance.uniform(0.1, 8.0), 3)}
        elif kind == "away":
            what = {"seconds": round(chance.uniform(0.1, 3.0), 3)}
        elif kind == "fail":
            what = {
                "call": chance.choice(("open", "write", "pwrite", "fsync", "replace", "link")),
                "times": chance.randint(1, 3),
                "error": chance.choice(("ENOSPC", "EIO")),
            }
        yield Event(at_s, kind, who, what)
