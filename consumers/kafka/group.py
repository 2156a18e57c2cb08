"""What the consumer group decides, noted on the client's thread and heeded on ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import structlog
from kafka import ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from consumers.messages import Partition


class Note(NamedTuple):
    """Partitions that were assigned to us, or taken away."""

    assigned: bool
    partitions: tuple[Partition, ...]


class RebalanceNotes(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types
    """Pauses what is assigned and notes all changes; it decides nothing.

    The client calls it on its own thread while ours is blocked in `poll`, so it takes no lock and
    asks the broker nothing.

    Attributes
    ----------
    consumer : kafka.KafkaConsumer
        Set once it is connected, before it subscribes.
    notes : collections.deque of Note
        The changes that were not heeded yet, oldest first.
    """

    def __init__(self) -> None:
        self.consumer: Any = None
        self.notes: deque[Note] = deque()

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        """Stop the new partitions from being read before it is settled where."""
        self.consumer.pause(*assigned)
        for each in assigned:
            # Any position will do while they are paused. With none, the client would look up the
            # committed offsets within the same poll, and fail where there are none.
            self.consumer.seek(each, 0)
        self._note(True, assigned)

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        """Note that partitions go to someone else."""
        self._note(False, revoked)

    def on_partitions_lost(self, lost: Iterable[Any]) -> None:
        """Note that partitions went to someone else while we were busy."""
        self._note(False, lost)

    def _note(self, assigned: bool, partitions: Iterable[Any]) -> None:
        self.notes.append(Note(assigned, tuple(Partition(*each) for each in partitions)))


class Committer:
    """Commits without waiting, and makes up for it when closing.

    Nothing ever depends on these offsets, so a failure is a line in the log and no more.

    Parameters
    ----------
    log : structlog.stdlib.BoundLogger
        Where failures are told.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger) -> None:
        self._log = log
        self._unconfirmed: dict[Any, Any] = {}
        self._failing = False

    def commit(self, consumer: Any, positions: Mapping[Partition, int]) -> None:
        """Send positions on their way."""
        offsets = {
            TopicPartition(*partition): OffsetAndMetadata(position, "", -1)
            for partition, position in positions.items()
        }
        if not offsets:
            return
        self._unconfirmed = offsets
        try:
            consumer.commit_async(offsets, callback=self._answered)
        except KafkaError as error:
            self._tell(error)

    def finish(self, consumer: Any, timeout_s: float) -> None:
        """Wait for the last positions, which are often still on their way when closing begins."""
        if not self._unconfirmed:
            return
        try:
            consumer.commit(self._unconfirmed, timeout_ms=round(timeout_s * 1000))
        except KafkaError as error:
            self._tell(error)

    def _answered(self, offsets: Mapping[Any, Any], answer: object) -> None:
        if isinstance(answer, Exception):
            self._tell(answer)
            return
        self._failing = False
        if offsets == self._unconfirmed:
            self._unconfirmed = {}

    def _tell(self, error: Exception) -> None:
        """Say it once while it lasts; a broker that is away would fill the log."""
        if not self._failing:
            self._failing = True
            self._log.info("kafka_commit_failed", error=repr(error))
