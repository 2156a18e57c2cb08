"""The source protocol: what Kafka, a file, standard input and the generator implement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from consumers.messages import Partition, RawColumns


class Source(Protocol):
    """A set of ordered logs that can be read from any position.

    The reading thread alone calls its methods.
    """

    name: str

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin to read.

        `position_of` returns the next offset to read of a partition, or None if it is unknown. It
        is called at each assignment of partitions, and wins over the broker's committed offsets.
        """

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages, at most one batch a partition.

        It waits up to `timeout_s` for the first; an empty list means that nothing came. Temporary
        failures (a broker that is away) are reported by `trouble` and retried inside, with growing
        pauses of at most 1 s; they are never raised.
        """

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread messages of every assigned partition, those with none included.

        The keys are the assignment: corrections of other partitions are not applied here. Empty if
        the assignment is unknown.
        """

    def at_end(self) -> bool:
        """Return whether everything up to the end at opening has been returned."""

    def trouble(self) -> str | None:
        """Return what keeps the source from reading, in a sentence; None if nothing does."""

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Report a checkpoint's positions to the outside, for lag tools only.

        Failures are logged, never raised.
        """

    def close(self) -> None:
        """Release everything, within a second or two."""
