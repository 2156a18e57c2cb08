"""When snapshots are published, and how the last one is kept from one run to the next.

By time, a run that begins publishes what it restored. By examples, what leaves is to be a function
of the log: messages behind a checkpoint are judged by the snapshot before it, whose version goes on
too. If the model has learned since, the checkpoint holds that snapshot beside the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from consumers.checkpoint_entry import Checkpointed, CheckpointEntry
from consumers.config.sections import LearningSettings
from streamnb import (
    EveryExamples,
    EveryInterval,
    Learner,
    NaiveBayes,
    Snapshot,
    SnapshotBoard,
    serialization,
)


class Publishing:
    """Makes the learner that publishes as the settings say, and saves its last snapshot."""

    name = "snapshot"

    def __init__(self, settings: LearningSettings) -> None:
        self._settings = settings
        self._by_examples = settings.publish == "examples"
        self._learner: Learner | None = None
        self._version = 0  # of the restored snapshot; 0 if there is none
        self._known: NaiveBayes | None = None  # what it knew, if the model knows more

    @property
    def entries(self) -> Sequence[Checkpointed]:
        """The component itself if checkpoints are to hold the snapshot, else none."""
        return (self,) if self._by_examples else ()

    def learner(
        self, model: NaiveBayes, board: SnapshotBoard, clock: Callable[[], float]
    ) -> Learner:
        """Return the learner of a model, with its first snapshot published."""
        settings = self._settings
        if not self._by_examples:
            by_time = EveryInterval(settings.publish_interval_s, settings.publish_share_max, clock)
            return Learner(model, board, by_time, clock)
        known, self._known = self._known, None
        snapshot = Snapshot(known or model, self._version) if self._version else None
        policy = EveryExamples(settings.publish_examples)
        self._learner = Learner(model, board, policy, clock, snapshot, is_current=known is None)
        return self._learner

    def pack(self) -> CheckpointEntry:
        """Return the snapshot's version, and what it knows if the model knows more by now."""
        assert self._learner is not None
        snapshot = self._learner.snapshot
        if self._learner.is_current:
            return CheckpointEntry({"version": snapshot.version})
        header, arrays = serialization.pack(snapshot.state, {})
        return CheckpointEntry({"version": snapshot.version, "model": header}, arrays)

    def unpack(self, entry: CheckpointEntry) -> None:
        """Keep the snapshot for `learner`."""
        self._version = entry.values["version"]
        if "model" in entry.values:
            state, _ = serialization.unpack(entry.values["model"], dict(entry.arrays))
            self._known = NaiveBayes.of(state)
