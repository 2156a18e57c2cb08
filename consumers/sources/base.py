"""The source protocol: what the pipeline asks of Kafka, a file, standard input or the generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from consumers.messages import Partition, RawColumns


class Source(Protocol):
    """A set of ordered logs that can be read on from any position.

    All methods are called by the consuming thread alone.
    """

    name: str

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin.

        `position_of` gives the next offset to read of a partition, or None where nothing is known
        of it. It is asked again at each assignment of partitions, so its answers win over the
        broker's committed positions.
        """

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages, at most one batch a partition.

        It waits up to `timeout_s` for the first; an empty list means that nothing came. Faults that
        pass (a broker that is away) are reported through `trouble`, retried inside with growing
        pauses of at most 1 s, and never raised.
        """

    def lag(self) -> Mapping[Partition, int]:
        """Return how many messages of each assigned partition are unread; empty where unknown."""

    def at_end(self) -> bool:
        """Tell whether all that was there when the source was opened has been handed over."""

    def trouble(self) -> str | None:
        """Return one sentence on what keeps the source from reading now, None when all is well."""

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Tell the outside how far a checkpoint has got.

        It is for lag tools only; failures are logged, never raised.
        """

    def close(self) -> None:
        """Let go of everything, within a second or two."""
