"""Where reading stands in each partition of a topic, and how that relates to what the log holds.

Pure bookkeeping that the sources for both Kafka clients share: they bring what the broker says, and
this decides where to go on, what is lost, what lies ahead and when the end is reached. It knows
neither a client nor a clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from consumers.errors import SourceError
from consumers.messages import Partition


@dataclass(slots=True)
class Place:
    """One assigned partition.

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


class Places:
    """The assigned partitions of one topic.

    Parameters
    ----------
    start_from : 'earliest' or 'latest'
        Where to begin in a partition of which nothing is known.
    """

    def __init__(self, start_from: Literal["earliest", "latest"]) -> None:
        self._start_from = start_from
        self._places: dict[Partition, Place] = {}
        # The end of each partition when it was first seen. Kept when a partition leaves: the end
        # of the stream "as it was at the start" does not move because the group rebalanced.
        self._targets: dict[Partition, int] = {}
        # Where we began in partitions of which nothing was known. Kept likewise: what comes while
        # the group rebalances is not to be skipped, though nothing before it was ever read.
        self._beginnings: dict[Partition, int] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._places))

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._places

    def __len__(self) -> int:
        return len(self._places)

    def position(self, partition: Partition) -> int:
        """Return the next offset to read."""
        return self._places[partition].position

    def settle(self, partition: Partition, wanted: int | None, log_start: int, log_end: int) -> int:
        """Decide where to read on in a partition, and return how many messages are gone for ever.

        Parameters
        ----------
        partition : Partition
            The partition, newly assigned or in doubt.
        wanted : int or None
            Where to go on; None where nothing of it was ever read, which is where we began with it,
            if we did.
        log_start, log_end : int
            What the broker's log holds now.

        Returns
        -------
        int
            How many offsets between the wanted one and the log's start were removed; mostly 0.

        Raises
        ------
        SourceError
            When the wanted offset lies behind the log's end: it is from another log of that name.
        """
        if wanted is None:
            begin = log_start if self._start_from == "earliest" else log_end
            wanted = self._beginnings.setdefault(partition, begin)
        if wanted > log_end:
            raise SourceError(
                f"{partition}: the next message to read is {wanted}, but the log ends at "
                f"{log_end}; was the topic deleted and made anew? To learn the new one from its "
                "start, give the daemon another checkpoint.folder, or move the old one away; to "
                "keep what was learned, give it another topic"
            )
        position = max(wanted, log_start)
        self._places[partition] = Place(position, log_start, log_end)
        self._targets.setdefault(partition, log_end)
        return position - wanted

    def advance(self, partition: Partition, position: int, log_end: int | None = None) -> None:
        """Note that reading has got to `position`, and where the log ends if that was heard."""
        place = self._places[partition]
        place.position = max(place.position, position)
        place.log_end = max(place.log_end if log_end is None else log_end, place.position)

    def forget(self, partition: Partition) -> None:
        """Let go of a partition that was taken away."""
        self._places.pop(partition, None)

    def clear(self) -> None:
        """Let go of all partitions."""
        self._places.clear()

    def lag(self) -> dict[Partition, int]:
        """Return how many offsets lie between position, or the log's start, and the log's end."""
        return {
            partition: max(0, place.log_end - max(place.position, place.log_start))
            for partition, place in self._places.items()
        }

    def at_end(self) -> bool:
        """Tell whether every assigned partition is read up to where it ended when first seen."""
        return all(
            place.position >= self._targets[partition] for partition, place in self._places.items()
        )
