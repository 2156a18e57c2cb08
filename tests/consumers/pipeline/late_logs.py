"""Logs of messages and of labels, as the daemon's components and a page of Python read them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from consumers.config.message import LateLabelsSettings
from consumers.config.sections import CheckpointSettings
from consumers.config.settings import Settings
from consumers.corrections.model import Correction
from consumers.decode.decoder import LabelDecoder
from consumers.features import ExampleTimes, build_model, columns_of
from consumers.messages import Partition, part_name
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.late_labels import LateLabels
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.revision import Reviser
from consumers.pipeline.waiting_messages import learn_rows
from streamnb import EveryExamples, Learner, NaiveBayes, SnapshotBoard
from tests.consumers.decoded_messages import decoder, raw
from tests.consumers.pipeline.revised_log import FIELDS, KEEP, LOG
from tests.endtoend.expected_counts import Counts, counts

LABEL_LOG = Partition("labels", 0)


class Said(NamedTuple):
    """One entry of the messages' log."""

    operation: str
    id: str | None
    time_s: int | None
    text: str = ""
    label: str | None = None


class Label(NamedTuple):
    """One entry of the labels' log."""

    id: str
    time_s: int | None
    label: str


def line(entry: Said | Label) -> bytes:
    """Return an entry as JSON."""
    time_s, rest = entry.time_s, entry._asdict()
    rest["created_at"] = None if time_s is None else 1_000_000_000 + time_s
    del rest["time_s"]
    return json.dumps({key: value for key, value in rest.items() if value is not None}).encode()


class LateRun:
    """The components that join both logs, over a state folder or without one."""

    def __init__(
        self, folder: Path | None, settings: LateLabelsSettings, records_max: int = 1_000_000
    ) -> None:
        self.checkpoint = Checkpoint(CheckpointSettings(folder=folder, keep=KEEP), {})
        self.memory = LearnedMemory(folder, FIELDS, records_max, KEEP)
        self.judgements: list[tuple[list[list[float]], list[int]]] = []
        self.late = LateLabels(
            settings,
            self.memory,
            LOG.topic,
            lambda said, truth, *_: self.judgements.append((said.tolist(), truth.tolist())),
        )
        model, positions = self.checkpoint.restore(build_model(Settings().model))
        self.checkpoint.restore_entries([self.memory, self.late])
        self.memory.begin(positions)
        self.late.begin()
        self.at, self.labels_at = positions.get(LOG, 0), positions.get(LABEL_LOG, 0)
        self.learner = Learner(model, SnapshotBoard(), EveryExamples(1 << 40), lambda: 0.0)
        self.reviser = Reviser(self.memory, self.late)
        self.decoder = decoder()
        self.label_decoder = LabelDecoder(settings, {}, ("negative", "positive"))

    def read(self, log: Sequence[Said], n: int) -> None:
        """Read the next messages as one batch."""
        lines = [line(each) for each in log[self.at : self.at + n]]
        if not lines:
            return
        messages = self.decoder.decode(raw(LOG, lines, self.at))
        assert not messages.rejects
        revision = self.reviser.revise(messages, self.learner.model.classes)
        own, taking = self.reviser.place(revision, self.learner, in_place=False)
        columns = columns_of(own, own.to_learn, ["text"])
        found = learn_rows(self.learner, own, own.to_learn, columns, ExampleTimes(), taking)
        self.reviser.count_taken(found)
        if len(own.to_predict):
            said = self.learner.snapshot.stated(columns_of(own, own.to_predict, ["text"]))
            self.late.judged(own.offsets[own.to_predict], said)
        self.reviser.remember(revision, self.learner)
        self.at += len(lines)

    def read_labels(self, log: Sequence[Label], n: int) -> None:
        """Read the next labels as one batch."""
        lines = [line(each) for each in log[self.labels_at : self.labels_at + n]]
        if lines:
            messages = self.label_decoder.decode(raw(LABEL_LOG, lines, self.labels_at))
            assert not messages.rejects
            self.late.take(messages, self.learner)
            self.labels_at += len(lines)

    def correct(self, said: Correction) -> None:
        """Apply a correction as the applier does."""
        message = self.reviser.corrected_message(said)
        assert message is not None
        self.reviser.correct(said, message, part_name(LOG), self.learner)

    def save(self) -> None:
        """Write a checkpoint in the order of its steps."""
        entries: dict[str, Any] = {"memory": self.memory.pack(), "late_labels": self.late.pack()}
        self.memory.sync()
        self.learner.learn(part_name(LABEL_LOG), {"text": []}, [])
        self.learner.learn(part_name(LOG), {"text": []}, [])
        positions = {LOG: self.at, LABEL_LOG: self.labels_at}
        self.checkpoint.write(self.learner.model, positions, entries)
        self.memory.saved()

    @property
    def counts(self) -> Counts:
        """What the model counts."""
        return counts(self.learner.model)


class _Waiting:
    """A message that waits for its label."""

    def __init__(self, time_s: float | None, text: str) -> None:
        self.time_s, self.text = time_s, text
        self.is_open = True
        self.label: str | None = None


class Page:
    """The rules alone, over dicts: what the two logs teach."""

    def __init__(self, settings: LateLabelsSettings) -> None:
        self.settings = settings
        self.newest = self.last = -math.inf
        self.waiting: dict[str, list[_Waiting]] = defaultdict(list)
        self.alive: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self.seen: set[str] = set()
        self.early: set[str] = set()
        self.nameless: list[tuple[str, str]] = []

    def near(self, one: float | None, other: float | None) -> bool:
        """Return whether two times lie within the window."""
        return one is None or other is None or abs(one - other) <= self.settings.window_s

    def message(self, each: Said) -> None:
        """Read one message."""
        before = self.newest
        reached = -math.inf if each.time_s is None else float(each.time_s)
        self.newest, self.last = max(before, min(self.last, reached)), reached
        time_s: float | None = each.time_s
        if time_s is None and math.isfinite(before):
            time_s = before
        example = [] if each.label is None else [(each.text, each.label)]
        if each.id is None:
            self.nameless += example if each.operation != "delete" else []
        elif each.operation != "create":
            self.revise(each, example)
        elif each.id in self.early:
            self.early.remove(each.id)
            self.seen.add(each.id)
        elif example:
            self.alive[each.id] += example
            self.seen.add(each.id)
        else:
            self.wait(each, time_s, before)

    def wait(self, each: Said, time_s: float | None, before: float) -> None:
        """Let a message without a label wait, if it is in time and the first of its id."""
        assert each.id is not None
        own = self.waiting[each.id]
        if time_s is not None and time_s < before - self.settings.window_s:
            return
        if not any(self.near(other.time_s, time_s) for other in own):
            own.append(_Waiting(time_s, each.text))
            self.seen.add(each.id)

    def revise(self, each: Said, example: list[tuple[str, str]]) -> None:
        """Read a delete or an update."""
        assert each.id is not None
        own = self.waiting[each.id]
        if each.id not in self.seen:
            self.early.add(each.id)
        self.seen.add(each.id)
        self.alive[each.id] = example if each.operation == "update" else []
        goes_on = each.operation == "update" and not example and bool(own) and own[-1].is_open
        for other in own:
            other.is_open = goes_on and other is own[-1]
        if goes_on:
            own[-1].text = each.text

    def label(self, label: Label) -> None:
        """Read one label; all messages have been read."""
        for other in self.waiting[label.id]:
            if self.near(other.time_s, label.time_s):
                other.label = other.label or label.label
                return

    def learned(self) -> list[tuple[str, str]]:
        """Return what is learned in the end."""
        found = [*self.nameless, *(pair for own in self.alive.values() for pair in own)]
        for other in (each for own in self.waiting.values() for each in own if each.is_open):
            label = other.label
            if label is None and other.time_s is not None:
                is_over = other.time_s < self.newest - self.settings.horizon_s
                label = self.settings.default if is_over else None
            if label is not None:
                found.append((other.text, label))
        return found


def expected(log: Sequence[Said], labels: Sequence[Label], settings: LateLabelsSettings) -> Counts:
    """Return the counts that both logs leave, by the rules alone."""
    page = Page(settings)
    for each in log:
        page.message(each)
    for label in labels:
        page.label(label)
    model: NaiveBayes = build_model(Settings().model)
    for text, name in page.learned():
        model.learn_one({"text": text}, name, part=part_name(LOG))
    return counts(model)
