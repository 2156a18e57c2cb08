"""What the consumer group decides, noted on the client's thread and heeded on ours."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from kafka import ConsumerRebalanceListener

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
