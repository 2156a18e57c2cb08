"""Where reading stands in each partition of a topic, relative to what its log holds.

Bookkeeping without a client or a clock: the source brings what the broker says, and this decides
where to read on, what is lost, what lies ahead and whether the end is reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from consumers.errors import SourceError
from consumers.messages import Partition


@dataclass(slots=True)
class PartitionOffsets:
    """The offsets of one assigned partition.

    Attributes
    ----------
    position : int
        The next offset to read.
    log_start, log_end : int
        The first offset that the log still holds, and the one after its last, as last heard of.
    """

    position: int
    log_start: int
    log_end: int


class Positions:
    """The assigned partitions of one topic.

    Parameters
    ----------
    start_from : 'earliest' or 'latest'
        Where to begin in a partition that was never read.
    """

    def __init__(self, start_from: Literal["earliest", "latest"]) -> None:
        self._start_from = start_from
        self._offsets: dict[Partition, PartitionOffsets] = {}
        # Both are kept when a partition leaves. The end of the stream "as it was at the start" does
        # not move because the group rebalanced; nor is what arrives meanwhile to be skipped.
        self._first_ends: dict[Partition, int] = {}
        self._beginnings: dict[Partition, int] = {}  # of partitions that were never read

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._offsets))

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def position(self, partition: Partition) -> int:
        """Return the next offset to read."""
        return self._offsets[partition].position

    def start(
        self, partition: Partition, position: int | None, log_start: int, log_end: int
    ) -> int:
        """Decide where to read on in a partition; return how many messages are lost for good.

        Parameters
        ----------
        partition : Partition
            The partition, newly assigned or in doubt.
        position : int or None
            The next offset to read; None if nothing of it was ever read. Then reading begins where
            it began with this partition before, or else where `start_from` says.
        log_start, log_end : int
            What the broker's log holds now.

        Returns
        -------
        int
            How many offsets between the position and the log's start were removed; mostly 0.

        Raises
        ------
        SourceError
            When the position lies behind the log's end: it is from another log of that name.
        """
        if position is None:
            begin = log_start if self._start_from == "earliest" else log_end
            position = self._beginnings.setdefault(partition, begin)
        if position > log_end:
            raise SourceError(
                f"{partition}: the next message to read is {position}, but the log ends at "
                f"{log_end}; was the topic deleted and made anew? To learn the new one from its "
                "start, give the daemon another checkpoint.folder, or move the old one away; to "
                "keep what was learned, give it another topic"
            )
        kept = max(position, log_start)
        self._offsets[partition] = PartitionOffsets(kept, log_start, log_end)
        self._first_ends.setdefault(partition, log_end)
        return kept - position

    def advance(self, partition: Partition, position: int, log_end: int | None = None) -> None:
        """Note that reading has got to `position`, and where the log ends if that is known."""
        offsets = self._offsets[partition]
        offsets.position = max(offsets.position, position)
        offsets.log_end = max(offsets.log_end if log_end is None else log_end, offsets.position)

    def forget(self, partition: Partition) -> None:
        """Drop a partition that was taken away."""
        self._offsets.pop(partition, None)

    def lag(self) -> dict[Partition, int]:
        """Return how many offsets lie between position, or the log's start, and the log's end."""
        return {
            partition: max(0, offsets.log_end - max(offsets.position, offsets.log_start))
            for partition, offsets in self._offsets.items()
        }

    def at_end(self) -> bool:
        """Return whether every assigned partition is read up to its end as it was first seen."""
        return all(
            offsets.position >= self._first_ends[partition]
            for partition, offsets in self._offsets.items()
        )
