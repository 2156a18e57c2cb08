"""A daemon's components around corrections, driven step by step, through as many lives as it takes.

The stream is a list of messages in two partitions, fed batch by batch. Logs, checkpoints, model and
service are the daemon's own. A kill forgets everything that is not in a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from consumers.config.settings import Settings
from consumers.corrections.applier import CorrectionApplier
from consumers.corrections.journal import Journal
from consumers.factories import CorrectionParts, build_corrections
from consumers.features import build_model
from consumers.messages import KnownClasses, Partition, Reject, part_name
from consumers.monitoring.metrics import Metrics
from consumers.pipeline.checkpoint import Checkpoint
from streamnb import EveryExamples, Learner, NaiveBayes, SnapshotBoard
from streamnb.features import statistics
from streamnb.features.protocol import GroupPart
from streamnb.inspection.words import word_group
from tests.endtoend.expected_counts import Counts, Example

STREAM = (Partition("t", 0), Partition("t", 1))
JOURNAL_PART = "journal:corrections.jsonl/0"


@dataclass(frozen=True)
class Kept:
    """A message as the store of recent ones would hand it out."""

    example: Mapping[str, Any]
    taught: str | None
    taught_part: str | None
    partition: Partition
    offset: int


class Store:
    """What is remembered of messages; it outlives kills, as a file does."""

    def __init__(self) -> None:
        self.rows: dict[str, Kept] = {}
        self.removed: set[str] = set()

    def get(self, id: str, /) -> Kept | None:  # noqa: A002
        """Return a message that was not removed."""
        return None if id in self.removed else self.rows.get(id)

    def correct(
        self,
        id: str,  # noqa: A002
        label: str | None,
        part: str | None,
        at: tuple[Partition, int],
        /,
    ) -> None:
        """Note what it teaches now."""
        if id in self.rows:
            assert at == (self.rows[id].partition, self.rows[id].offset)
            self.rows[id] = replace(self.rows[id], taught=label, taught_part=part)

    def remove(self, id: str, at: tuple[Partition, int], /) -> None:  # noqa: A002
        """Forget it for good."""
        assert id not in self.rows or at == (self.rows[id].partition, self.rows[id].offset)
        self.removed.add(id)

    def offer(self, id: str, row: Kept) -> None:  # noqa: A002
        """Take in a message that was learned; one that is known stays as it is."""
        self.rows.setdefault(id, row)


@dataclass
class Life:
    """One life of the daemon's components, from a checkpoint to a kill."""

    folder: Path
    store: Store
    found: list[Example]
    rejects: list[Reject] = field(default_factory=list)
    assigned: dict[Partition, int] = field(default_factory=dict)
    new_classes: bool = False

    def __post_init__(self) -> None:
        self.settings = Settings.model_validate(
            {"checkpoint": {"folder": self.folder}, "model": {"new_classes": self.new_classes}}
        )
        self.classes = KnownClasses(self.settings.model.classes, open=self.new_classes)
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, self.settings.model.classes)
        self.checkpoint = Checkpoint(self.settings.checkpoint, {})
        model, self.positions = self.checkpoint.restore(build_model(self.settings.model))
        self.learner = Learner(model, SnapshotBoard(), EveryExamples(1 << 30), lambda: 0.0)
        # Time stands still, so that a turn is never over before all is applied that can be.
        built = build_corrections(self.settings, self.store, metrics, lambda: 0.0, self.classes)
        assert built is not None
        self.corrections: CorrectionParts = built
        self.reading = built.applier._reading
        self.reading._source.open(self.positions.get)
        self.read_back()

    @property
    def applier(self) -> CorrectionApplier:
        """What applies corrections."""
        return self.corrections.applier

    def take(self, partition: Partition, n: int) -> None:
        """Learn the next messages of a partition, and let the store have them."""
        begin = self.positions.get(partition, 0)
        own = list(enumerate(self.found))[partition.partition :: len(STREAM)]
        part = part_name(partition)
        chosen = own[begin : begin + n]
        columns = {"text": [text for _, (text, _) in chosen]}
        self.learner.learn(part, columns, [label for _, (_, label) in chosen])
        for offset, (number, (text, label)) in enumerate(chosen, start=begin):
            self.store.offer(f"m{number}", Kept({"text": text}, label, part, partition, offset))
        self.positions[partition] = begin + len(chosen)

    def read_back(self) -> None:
        """Read what is in the log, as the reading thread would."""
        while batches := self.reading._source.poll(0.0):
            for raw in batches:
                self.reading._take(raw)
        if self.reading._source.at_end():
            self.reading.caught_up.set()

    def correct(self) -> None:
        """Read the log back and apply what can be applied."""
        self.read_back()
        self.rejects += self.applier.apply(self.learner, self.positions, self.assigned)
        self.classes.grow(self.learner.model.classes)

    def save(self) -> None:
        """Write a checkpoint, and take texts out of the log that are not needed any more."""
        self.checkpoint.write(self.learner.model, self.positions)
        journal = self.corrections.log
        assert isinstance(journal, Journal)
        wanted = {name: {partition: offset} for name, partition, offset in journal.deletions()}
        oldest = self.checkpoint.oldest_positions().get(journal.partition, 0)
        journal.erase(wanted, oldest, lambda: True)

    def kill(self) -> Life:
        """Forget all that is in no file, and begin anew."""
        self.end()
        return Life(self.folder, self.store, self.found)

    def end(self) -> None:
        """Let the log go."""
        self.corrections.log.close()

    def finish(self) -> None:
        """Learn the rest of the stream, apply all corrections and write the last checkpoint."""
        for partition in STREAM:
            self.take(partition, len(self.found))
        self.correct()
        self.save()

    def value(self, kind: str) -> float | None:
        """Return how many corrections met this end."""
        return self.registry.get_sample_value("streamnb_corrections_total", {"kind": kind})


def taught_anew(taught: Mapping[str, list[Example]]) -> NaiveBayes:
    """Return the model that learns, from scratch, what each part is to teach."""
    model = build_model(Settings().model)
    for part, own in taught.items():
        texts, labels = [text for text, _ in own], [label for _, label in own]
        model.learn_many({"text": texts}, labels, part=part)
    return model


def by_part(model: NaiveBayes) -> dict[str, Counts]:
    """Return N_c and N_jc of every word, for each part that holds something."""
    found = {}
    vocabulary = word_group(model.state, "text").vocabulary
    for name, part in model.parts.items():
        held = part.groups["text"]
        assert isinstance(held, GroupPart)
        columns = statistics.live_columns(held.counts, vocabulary.n_words)
        rows = map(tuple, held.counts.by_word[columns].tolist())
        words = dict(zip(vocabulary.words(columns), rows, strict=True))
        if part.class_counts.any() or words:
            found[name] = (part.class_counts.tolist(), words)
    return found
