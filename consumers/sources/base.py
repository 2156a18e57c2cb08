"""The source: what Kafka, a file, standard input, the generator and a journal implement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec

from consumers.decode.rows import RecordFormat
from consumers.errors import ConfigError
from consumers.messages import Partition, RawColumns


class Fingerprint(msgspec.Struct, frozen=True):
    """A range of a file's bytes, as they lie on the disk, and their BLAKE2b digest."""

    begin: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    end: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    digest: str


class LogFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a checkpoint knows of a log beside its position.

    Attributes
    ----------
    begin : int
        The first offset that was to be read.
    topic_id : str or None
        The id that Kafka gave the topic: another topic of that name has another one.
    head, tail : Fingerprint or None
        A file's first bytes, and the last ones before its position, or the last ones of a packed
        file: another file of that name has others. A copy has the same, whatever its inode.
    """

    begin: int = 0
    topic_id: str | None = None
    head: Fingerprint | None = None
    tail: Fingerprint | None = None


def have_same_partitions(n_labels: int | None, n_messages: int | None, setting: str) -> bool:
    """Return whether a topic of labels is known to have as many partitions as its messages' one.

    Others are a `ConfigError` that names the `setting`: a label would never find its message.
    """
    if None not in (n_labels, n_messages) and n_labels != n_messages:
        raise ConfigError(
            f"{setting}: its topic has {n_labels} partitions, and that of source has {n_messages}. "
            "A label stands in the partition that has its message's number: make both topics with "
            "as many partitions, and write both with the same partitioner"
        )
    return None not in (n_labels, n_messages)


class Source(ABC):
    """A set of ordered logs that can be read from any position.

    The reading thread alone calls its methods, but for `logs` and `confirm`. A source must have a
    name, and `open`, `poll` and `at_end`; everything else suits a single log that is always there
    and keeps no positions.

    Attributes
    ----------
    name : str
        What logs and the screen call it.
    record_format : RecordFormat
        How its records are written; JSON unless it is set.
    lost_messages : int
        How many messages were removed before they could be read.
    n_partitions : int or None
        How many partitions the stream has; None as long as that is not known.
    beginnings : mapping of Partition to LogFacts
        Where reading began, if that cannot be found out again: it must be in a checkpoint before
        any message of these partitions is learned. It is replaced, never changed.
    """

    name: str
    record_format = RecordFormat()
    lost_messages = 0
    n_partitions: int | None = 1
    beginnings: Mapping[Partition, LogFacts] = MappingProxyType({})

    @property
    def topic_id(self) -> str | None:
        """The id that Kafka gave the topic; None if it is not known, or for other sources."""
        return None

    @property
    def decoder(self) -> str | None:
        """How Kafka's responses are decoded; None if not known yet, or for other sources."""
        return None

    def resume(self, logs: Mapping[Partition, LogFacts]) -> None:  # noqa: B027 -- most know none
        """Take what the checkpoint knows of the logs; called before `open`."""

    @abstractmethod
    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin to read.

        `position_of` returns the next offset to read of a partition, or None if it is unknown. It
        is called at each assignment of partitions, and wins over the broker's committed offsets.
        """

    def rewind(self, partition: Partition) -> None:  # noqa: B027 -- for logs that are shared
        """Read a partition again, from where `position_of` says by now."""

    @abstractmethod
    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages, at most one batch a partition.

        It waits up to `timeout_s` for the first, at the end of the logs too, as it is called again
        at once; an empty list means that nothing came. Temporary
        failures (a broker that is away) are reported by `trouble` and retried inside, with growing
        pauses of at most 1 s; they are never raised.
        """

    def logs(
        self,
        positions: Mapping[Partition, int],  # noqa: ARG002 -- most know no more than that
    ) -> Mapping[Partition, LogFacts]:
        """Return what a checkpoint at these positions should know of the logs.

        The consuming thread calls it, while the reading thread goes on.
        """
        return self.beginnings

    def confirm(self) -> None:  # noqa: B027 -- most logs cannot be made anew unnoticed
        """Raise `SourceError` if what was read so far may be of another log.

        The checkpoint thread calls it before it writes.
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
