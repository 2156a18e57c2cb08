"""The reading of labels that come later: their log, or in a group what it has of our partitions.

In a group every member reads all of the label topic, and takes what is of the partitions that it
reads itself. How far a partition's labels were taken moves with its part; so who takes it over has
them read again from there, and leaves out what was read before the reading thread has done so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, MutableMapping

from consumers.messages import Partition, part_name
from consumers.pipeline.late_labels import LateLabels
from consumers.pipeline.part_files import LoadedPart
from consumers.pipeline.reader import Handover, Limits, Reader
from consumers.sources.base import LogFacts, have_same_partitions
from streamnb import Learner

_TURN_BATCHES = 8  # of labels, between two batches of messages


class LabelReader:
    """Hands the labels that `reader` reads to `join`; `messages` reads what they are of.

    `fields` are those that the model reads. In a group, `shared` is the name of the label topic.
    """

    def __init__(
        self,
        reader: Reader,
        join: LateLabels,
        messages: Reader,
        fields: tuple[str, ...],
        shared: str | None = None,
    ) -> None:
        self.reader, self.join = reader, join
        self.is_behind = False  # labels may wait that the messages' time has reached
        self._messages = messages
        self._nothing: dict[str, list[str]] = {field: [] for field in fields}
        self._shared = shared
        self._own: set[Partition] = set()  # of the label topic, in a group
        self._awaited: Counter[Partition] = Counter()  # how often each is still to be read again
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
        self.reader.may_end = self._shared is None
        self.reader.start(positions, Limits(until_end=limits.until_end), logs)

    # ---- the group -----------------------------------------------------------------------------

    def know(
        self,
        partition: Partition,
        part: LoadedPart,
        positions: MutableMapping[Partition, int],
        learner: Learner,
        *,
        is_ours: bool,
    ) -> None:
        """Go on where another member got to with a partition, behind the memory."""
        self.join.take_over(partition, part.times, is_ours=is_ours)
        own = self._labels_of(partition)
        positions.pop(own, None)
        if part.labels:
            learner.learn(part_name(own), self._nothing, [])  # a position is saved with a part
            positions[own] = part.labels

    def take_over(self, partition: Partition, positions: Mapping[Partition, int]) -> None:
        """Take the labels of a partition from here on."""
        own = self._labels_of(partition)
        self._own.add(own)
        self._awaited[own] += 1
        self.reader.read_again(own, positions.get(own))

    def give_up(self, partition: Partition) -> None:
        """Leave the labels of a partition to who reads it next."""
        self._own.discard(self._labels_of(partition))

    def _labels_of(self, partition: Partition) -> Partition:
        return Partition(self._shared or "", partition.partition)

    def _is_wanted(self, partition: Partition) -> bool:
        return self._shared is None or (partition in self._own and not self._awaited[partition])

    # ---- the consuming thread ------------------------------------------------------------------

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
            if taken is None:
                break
            if isinstance(taken, Handover):
                self._awaited[taken.partition] -= 1
            elif self._is_wanted(taken.partition):
                # A position is saved with a part, though nothing is ever taught by it.
                learner.learn(part_name(taken.partition), self._nothing, [])
                self.is_behind = self.join.take(taken, learner) or is_idle
                positions[taken.partition] = taken.next_offset
                if not self.is_behind:
                    break
        if self._messages.end_reason is not None and not self._awaited.total():
            self.reader.may_end = True  # no partition will be taken over any more

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
