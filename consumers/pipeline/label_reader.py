"""The reading of labels that come later than their messages, in a log of their own."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from consumers.messages import Messages, Partition, part_name
from consumers.pipeline.late_labels import LateLabels
from consumers.pipeline.reader import Limits, Reader
from consumers.sources.base import LogFacts, have_same_partitions
from streamnb import Learner

_TURN_BATCHES = 8  # of labels, between two batches of messages


class LabelReader:
    """Hands the labels that `reader` reads to `join`; `messages` reads what they are of.

    `fields` are those that the model reads.
    """

    def __init__(
        self, reader: Reader, join: LateLabels, messages: Reader, fields: tuple[str, ...]
    ) -> None:
        self.reader, self.join = reader, join
        self.is_behind = False  # labels may wait that the messages' time has reached
        self._messages = messages
        self._nothing: dict[str, list[str]] = {field: [] for field in fields}
        self._until_end = False
        self._is_checked = False

    def start(
        self,
        positions: Mapping[Partition, int],
        limits: Limits,
        logs: Mapping[Partition, LogFacts],
    ) -> None:
        """Begin to read, at the checkpoint's positions."""
        self._until_end = limits.until_end
        self.reader.start(positions, Limits(until_end=limits.until_end), logs)

    def take(
        self,
        learner: Learner,
        positions: MutableMapping[Partition, int],
        timeout_s: float,
        *,
        is_idle: bool,
    ) -> None:
        """Take what was read, and move its positions on; wait for the first up to `timeout_s`.

        Labels that wait for their message cost more than messages that wait for their label: so
        unless the stream `is_idle`, one batch may lie beyond the messages' time, and no more.
        """
        self.is_behind = False
        if not self._partitions_agree():
            return
        for _ in range(_TURN_BATCHES):
            taken = self.reader.take(0.0 if self.is_behind else timeout_s)
            if not isinstance(taken, Messages):
                return
            # A position is saved with a part, though nothing is ever taught by it.
            learner.learn(part_name(taken.partition), self._nothing, [])
            self.is_behind = self.join.take(taken, learner) or is_idle
            positions[taken.partition] = taken.next_offset
            if not self.is_behind:
                return

    def has_backlog(self) -> bool:
        """Return whether labels of before the end are still to come, if the run has one."""
        return self._until_end and self.reader.end_reason is None

    def _partitions_agree(self) -> bool:
        """Return whether both topics are known to have the same partitions.

        Others are a `ConfigError`: a label would never find its message.
        """
        if not self._is_checked:
            ours, theirs = self.reader.n_partitions, self._messages.n_partitions
            self._is_checked = have_same_partitions(ours, theirs, "late_labels.source")
        return self._is_checked
