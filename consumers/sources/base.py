"""The source: what Kafka, a file, standard input, the generator and a journal implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping

from consumers.decode.record_format import RecordFormat
from consumers.messages import Partition, RawColumns


class Source(ABC):
    """A set of ordered logs that can be read from any position.

    The reading thread alone calls its methods. A source must have a name, and `open`, `poll` and
    `at_end`; everything else suits a single log that is always there and keeps no positions.

    Attributes
    ----------
    name : str
        What logs and the screen call it.
    record_format : RecordFormat
        How its records are written; JSON unless it is set.
    lost_messages : int
        How many messages were removed before they could be read.
    """

    name: str
    record_format = RecordFormat()
    lost_messages = 0

    @property
    def decoder(self) -> str | None:
        """How Kafka's responses are decoded; None if not known yet, or for other sources."""
        return None

    @abstractmethod
    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin to read.

        `position_of` returns the next offset to read of a partition, or None if it is unknown. It
        is called at each assignment of partitions, and wins over the broker's committed offsets.
        """

    @abstractmethod
    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages, at most one batch a partition.

        It waits up to `timeout_s` for the first, at the end of the logs too, as it is called again
        at once; an empty list means that nothing came. Temporary
        failures (a broker that is away) are reported by `trouble` and retried inside, with growing
        pauses of at most 1 s; they are never raised.
        """

    @abstractmethod
    def at_end(self) -> bool:
        """Return whether everything up to the end at opening has been returned.

        It is asked with `--until-end` alone: without, a source is polled for ever.
        """

    def assignment(self) -> Collection[Partition]:
        """Return the partitions that are read here, none if that is not known.

        If some are known, corrections of messages in any other partition are left to others.
        """
        return ()

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread messages of every assigned partition; empty if they are not known."""
        return {}

    def trouble(self) -> str | None:
        """Return what keeps the source from reading, in a sentence; None if nothing does."""
        return None

    def commit(self, positions: Mapping[Partition, int]) -> None:  # noqa: B027 -- most keep none
        """Report a checkpoint's positions to the outside, for lag tools only.

        Failures are logged, never raised.
        """

    def close(self) -> None:  # noqa: B027 -- some hold nothing
        """Release everything, within a second or two."""
