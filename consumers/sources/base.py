"""The source: what Kafka, a file, standard input, the generator and a journal implement.

`RangedSource` reads a part of one, from an offset or a time up to another (`--from` and `--to`).
The range begins at the first message of each partition that has the offset or the time, or a later
one, and ends before the first that has the end's. Reading ends with it, or with what was there at
the start. A checkpoint's positions win: a run that was stopped goes on where it was. A beginning
that lies behind a position would leave messages out between the two, and is an error.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
import numpy as np
import structlog
from msgspec import structs
from numpy.typing import NDArray

from consumers.config.addresses import Bound, SourceAddress, StreamRange
from consumers.decode.rows import RecordFormat
from consumers.errors import ConfigError, SourceError
from consumers.messages import Partition, RawColumns


class Fingerprint(msgspec.Struct, frozen=True):
    """A range of a file's bytes, as they lie on the disk, and their BLAKE2b digest."""

    begin: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    end: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
    digest: str

    @classmethod
    def of(cls, begin: int, data: bytes) -> Fingerprint:
        """Return that of the bytes that begin at a place of a file."""
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        return cls(begin, begin + len(data), digest)


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
    cursor : str or None
        How a live stream is resumed behind the position, in words of its own.
    since_ms : int or None
        The time from which `--from` had it read: everything from the first message of that time, or
        a later one, up to the position was read.
    agrees : bool
        Whether a topic of labels was found with as many partitions as that of their messages.
    open_end : int or None
        The position at which a file ended amid a line, which was taken for a whole one.
    """

    begin: int = 0
    topic_id: str | None = None
    head: Fingerprint | None = None
    tail: Fingerprint | None = None
    cursor: str | None = None
    since_ms: int | None = None
    agrees: bool = False
    open_end: int | None = None


BeginsOf: TypeAlias = Callable[[str | None, Mapping[Partition, int]], Mapping[Partition, int]]


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
    gaps : int
        At how many places messages may be missing, none knows how many.
    n_partitions : int or None
        How many partitions the stream has; None as long as that is not known.
    n_elsewhere : int
        How many of them other members of a group read; 0 as long as that is not known.
    beginnings : mapping of Partition to LogFacts
        Where reading began, if that cannot be found out again: it must be in a checkpoint before
        any message of these partitions is learned. It is replaced, never changed.
    begins_of : callable
        Returns where reading begins in a topic that is seen for the first time, by its id, if that
        is not where its partitions end: others may have seen it before. It is set before `open`.
    """

    name: str
    record_format = RecordFormat()
    lost_messages = 0
    gaps = 0
    n_partitions: int | None = 1
    n_elsewhere = 0
    beginnings: Mapping[Partition, LogFacts] = MappingProxyType({})
    begins_of: BeginsOf = staticmethod(lambda _topic_id, ends: ends)

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
        at once; an empty list means that nothing came. A batch without messages moves the position
        alone, as where the messages before it are lost. Temporary failures (a broker that is away)
        are reported by `trouble` and retried inside, with growing pauses of at most 1 s; they are
        never raised.
        """

    def logs(
        self,
        positions: Mapping[Partition, int],  # noqa: ARG002 -- most know no more than that
    ) -> Mapping[Partition, LogFacts]:
        """Return what a checkpoint at these positions should know of the logs.

        The consuming thread calls it, while the reading thread goes on.
        """
        return self.beginnings

    def confirm(self) -> None:  # noqa: B027 -- most logs cannot be created again unnoticed
        """Raise `SourceError` if what was read so far may be of another log.

        The checkpoint thread calls it before it writes.
        """

    @abstractmethod
    def at_end(self) -> bool:
        """Return whether everything up to the end at opening has been returned.

        It is called only with `--until-end`; otherwise a source is polled for ever.
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

    def report_positions(  # noqa: B027 -- most keep none
        self, positions: Mapping[Partition, int]
    ) -> None:
        """Report a checkpoint's positions to the outside, for lag tools only.

        Failures are logged, never raised.
        """

    def close(self) -> None:  # noqa: B027 -- some hold nothing
        """Release everything, within a second or two."""


# ---- attempts -----------------------------------------------------------------------------------

_FIRST_PAUSE_S = 0.05


class Backoff:
    """The failures of one source, each under a key, with ever longer pauses between attempts.

    Each failure is logged once when it begins and once when it is over. Pauses double from 0.05 s
    up to `pause_max_s`.
    """

    def __init__(
        self, log: structlog.stdlib.BoundLogger, clock: Callable[[], float], pause_max_s: float
    ) -> None:
        self._log = log
        self._clock = clock
        self._pause_max_s = pause_max_s
        self._sentences: dict[str, str] = {}
        self._pauses_s: dict[str, float] = {}
        self._retry_at_s: dict[str, float] = {}

    def say(self, key: str, sentence: str, pause_min_s: float = 0.0) -> None:
        """Record a failure, new or continued; the next attempt waits longer."""
        if key not in self._sentences:
            self._log.warning("source_trouble", trouble=sentence)
        self._sentences[key] = sentence
        pause_s = min(self._pauses_s.get(key, _FIRST_PAUSE_S / 2) * 2, self._pause_max_s)
        self._pauses_s[key] = pause_s
        self._retry_at_s[key] = self._clock() + max(pause_s, pause_min_s)

    def quiet(self, key: str) -> None:
        """Record the end of a failure that may come back at once: pauses go on growing then."""
        sentence = self._sentences.pop(key, None)
        if sentence is not None:
            self._log.info("source_trouble_over", trouble=sentence)

    def clear(self, key: str) -> None:
        """Record the end of a failure, if there was one."""
        self.quiet(key)
        self._pauses_s.pop(key, None)
        self._retry_at_s.pop(key, None)

    def first(self) -> str | None:
        """Return the sentence of the oldest failure, or None if there is none."""
        return next(iter(self._sentences.values()), None)

    def pause_s(self, key: str) -> float:
        """Return the seconds to wait before the next attempt; 0 if nothing failed."""
        return max(0.0, self._retry_at_s.get(key, 0.0) - self._clock())


# ---- what is known of a live stream's past ------------------------------------------------------


class Known(NamedTuple):
    """A message that was read: its offset, what it is known by, and where it stands."""

    offset: int
    key: int
    time_us: int = 0
    number: int = 0  # its host's own
    id: str = ""  # of a server-sent event


class Past(NamedTuple):
    """What is known when a connection is made, oldest first.

    Every message from `since_us` on that was read is known; where the newest ones are from the host
    that is asked, and it has numbers, every one from `since_number` on. `is_left`: it goes on with
    what comes, wherever it was told to begin. `is_elsewhere`: the times are another host's. What
    was read and is not known is not later than `forgotten_us`.
    """

    known: Sequence[Known] = ()
    since_us: int = 0
    since_number: int = 0  # 0: by time
    is_left: bool = False
    is_elsewhere: bool = False
    forgotten_us: int = 0

    def is_before(self, time_us: int, number: int, *, is_reached: bool) -> bool:
        """Return whether a message stands before what was asked for.

        A time says so only until what was asked for is reached: behind it one may be of any time.
        """
        if self.since_number and number:
            return number < self.since_number
        return not is_reached and 0 < time_us < self.since_us

    def is_numbered_anew(self, time_us: int, number: int, known_us: int | None) -> bool:
        """Return whether a message shows that its host does not number as it did.

        `known_us` is the time that it had last, None if it is not known. A host that was asked for
        a number sends no smaller ones, unless it has not come so far, and goes on with what comes.
        If it has, what comes first has another time than what it was asked for.
        """
        if not (self.since_number and number):
            return False
        if number >= self.since_number:
            return known_us is None and 0 < time_us < self.since_us
        latest_us = max(self.since_us - 1, self.forgotten_us) if known_us is None else known_us
        return time_us > latest_us


class Cursor(msgspec.Struct):
    """What is known at a position, as the checkpoint has it.

    The last `n_numbered` messages came from `host`, and have its numbers. `last_id` is that of the
    last server-sent event. What is not known any more is not later than `forgotten_us`.
    """

    keys: bytes = b""
    times: bytes = b""
    numbers: bytes = b""
    host: str = ""
    n_numbered: int = 0
    last_id: Annotated[str, msgspec.Meta(pattern=r"^[^\0\r\n\v\f]*\Z")] = ""
    forgotten_us: int = 0


def packed(known: Sequence[Known], host: str, n_numbered: int, forgotten_us: int) -> str:
    """Return what is known as the text of a checkpoint."""
    keys = np.array([each.key for each in known], "<u8").tobytes()
    times = np.array([each.time_us for each in known], "<i8").tobytes()
    numbers = np.array([each.number for each in known], "<i8").tobytes()
    cursor = Cursor(keys, times, numbers, host, n_numbered, known[-1].id, forgotten_us)
    return msgspec.json.encode(cursor).decode()


def unpacked(cursor: Cursor, position: int) -> Iterator[Known]:
    """Yield what a checkpoint at a position knew."""
    columns = [
        np.frombuffer(data, kind).tolist()
        for data, kind in ((cursor.keys, "<u8"), (cursor.times, "<i8"), (cursor.numbers, "<i8"))
    ]
    first = position - len(columns[0])
    if first < 0:
        raise ValueError("it knows more messages than were read")
    for i, (key, time_us, number) in enumerate(zip(*columns, strict=True), first):
        yield Known(i, key, time_us, number, cursor.last_id)


# ---- a part of a source --------------------------------------------------------------------------


def behind_position(partition: Partition, begin: Bound, position: int) -> SourceError:
    """Return the error for a range that begins behind what was read before."""
    return SourceError(
        f"{partition}: --from {begin} lies behind offset {position}, up to which the checkpoint "
        "has read: the messages between would be left out. Leave --from out to go on there, or "
        "begin with an empty checkpoint.folder"
    )


def live_beginning(address: SourceAddress, preset: str | None, part: StreamRange) -> Bound:
    """Return the time from which a live stream is asked for; a `ConfigError` if it cannot be."""
    kind, begin = address.kind, part.begin
    if part.end is not None or begin is None:
        raise ConfigError(
            f"--to and --until: source {kind} is live and has no end; --max-messages N stops a run"
        )
    is_wikimedia = preset == "wikimedia" or ".wikimedia.org/" in address.urls[0]
    if kind != "jetstream" and not (kind == "sse" and is_wikimedia):
        raise ConfigError(
            f"--from: source {kind} cannot be asked for its past; jetstream can, and sse of "
            "Wikimedia (message.preset: wikimedia)"
        )
    if begin.kind == "offset":
        raise ConfigError(f"--from {begin}: source {kind} has no offsets; give a time")
    if begin.at > time.time() * 1000:
        raise ConfigError(
            f"--from {begin} lies ahead of now; leave it out to begin with what comes"
        )
    return begin


def offsets_of(
    bound: Bound | None,
    starts: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    offsets_at: Callable[[int], Mapping[Partition, int | None]],
) -> Mapping[Partition, int]:
    """Return the offset of a bound in each log, its end if the bound lies behind it."""
    if bound is None:
        return {}
    if bound.kind == "offset":
        return {each: min(max(bound.at, starts[each]), ends[each]) for each in starts}
    return {each: ends[each] if at is None else at for each, at in offsets_at(bound.at).items()}


class RangedSource(Source):
    """Reads a part of a source.

    `times_of` returns the time of each message of a batch, -1 if it has none: such a message counts
    as one of the time before it. If the source itself `begins` at the range, as Kafka's does, it
    has checked the positions too.
    """

    def __init__(
        self,
        source: Source,
        part: StreamRange,
        times_of: Callable[[RawColumns], NDArray[np.int64]],
        *,
        begins: bool,
    ) -> None:
        self.name = source.name
        self.record_format = source.record_format
        self._source = source
        self._part = part
        self._times_of = times_of
        self._begins = begins
        self._position_of: Callable[[Partition], int | None] = lambda _: None
        self._begun: set[Partition] = set()
        self._known: Mapping[Partition, LogFacts] = {}
        self._since_ms: dict[Partition, int] = {}
        self._done: set[Partition] = set()

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin; see `Source.open`."""
        self._position_of = position_of
        self._source.open(position_of)

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next messages of the range; a beginning behind a position is an error."""
        cut = (self._cut(raw) for raw in self._source.poll(timeout_s))
        return [raw for raw in cut if raw is not None]

    def rewind(self, partition: Partition) -> None:
        """Read a partition again; see `Source.rewind`."""
        self._begun.discard(partition)
        self._done.discard(partition)
        self._source.rewind(partition)

    def at_end(self) -> bool:
        """Return whether the range, or what was there of it at opening, has been returned."""
        lag = self._source.lag()
        done = [each in self._done or lag.get(each) == 0 for each in self._source.assignment()]
        return self._source.at_end() or (any(done) and all(done) and bool(self._done))

    def _cut(self, raw: RawColumns) -> RawColumns | None:
        """Return the part of a batch that lies in the range, None if nothing does."""
        if raw.partition in self._done:
            return None
        begin, end = self._part.begin, self._part.end
        is_new = raw.partition not in self._begun
        if begin is not None and is_new and not (self._begins and begin.kind == "time"):
            position = self._position_of(raw.partition)
            is_read_on = position is not None and self._is_reached(raw.partition, begin)
            first = 0 if is_read_on else self._first(raw, begin)
            whole = self._source.beginnings.get(raw.partition, LogFacts())
            # A position that is where the log begins has nothing behind it.
            if position is not None and position > whole.begin and first > 0 and not self._begins:
                raise behind_position(raw.partition, begin, position)
            if first == len(raw):
                return None
            raw = raw.tail(first)
            if begin.kind == "time" and not is_read_on:
                self._since_ms[raw.partition] = begin.at
        self._begun.add(raw.partition)
        last = len(raw) if end is None else self._first(raw, end)
        if last < len(raw):
            self._done.add(raw.partition)
        return raw.head(last) if last else None

    def _is_reached(self, partition: Partition, begin: Bound) -> bool:
        """Return whether what was read before began at this time or a later one.

        Then the next message may be of any time: a file's need not be in the order of theirs.
        """
        since_ms = self._since_ms.get(partition)
        return begin.kind == "time" and since_ms is not None and since_ms >= begin.at

    def _first(self, raw: RawColumns, bound: Bound) -> int:
        """Return the place of the first message at a bound or behind it; `len(raw)` if none is."""
        found = raw.offsets if bound.kind == "offset" else self._times_of(raw)
        places = np.flatnonzero(found >= bound.at)
        return int(places[0]) if places.size else len(raw)

    # What follows is the source's own.

    @property
    def topic_id(self) -> str | None:
        """The id that Kafka gave the topic."""
        return self._source.topic_id

    @property
    def decoder(self) -> str | None:
        """How Kafka's responses are decoded."""
        return self._source.decoder

    @property
    def lost_messages(self) -> int:  # type: ignore[override]  # read only
        """How many messages were removed before they could be read."""
        return self._source.lost_messages

    @property
    def gaps(self) -> int:  # type: ignore[override]  # read only
        """At how many places messages may be missing."""
        return self._source.gaps

    @property
    def n_partitions(self) -> int | None:  # type: ignore[override]  # read only
        """How many partitions the stream has."""
        return self._source.n_partitions

    @property
    def n_elsewhere(self) -> int:  # type: ignore[override]  # read only
        """How many partitions other members of a group read."""
        return self._source.n_elsewhere

    @property
    def beginnings(self) -> Mapping[Partition, LogFacts]:  # type: ignore[override]  # read only
        """Where reading began."""
        return self._source.beginnings

    @property
    def begins_of(self) -> BeginsOf:
        """Who says where reading begins in a topic that is seen for the first time."""
        return self._source.begins_of

    @begins_of.setter
    def begins_of(self, begins_of: BeginsOf) -> None:
        self._source.begins_of = begins_of

    def resume(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Take what the checkpoint knows of the logs."""
        self._known = dict(logs)
        known = ((each, facts.since_ms) for each, facts in logs.items())
        self._since_ms = {each: since_ms for each, since_ms in known if since_ms is not None}
        self._source.resume(logs)

    def logs(self, positions: Mapping[Partition, int]) -> Mapping[Partition, LogFacts]:
        """Return what a checkpoint at these positions should know of the logs."""
        found = dict(self._source.logs(positions))
        for each, since_ms in self._since_ms.copy().items():
            if each in positions:
                # A recording's source knows a log once it has come to it.
                facts = found.get(each) or self._known.get(each, LogFacts())
                found[each] = structs.replace(facts, since_ms=since_ms)
        return found

    def confirm(self) -> None:
        """Raise `SourceError` if what was read so far may be of another log."""
        self._source.confirm()

    def assignment(self) -> Collection[Partition]:
        """Return the partitions that are read here."""
        return self._source.assignment()

    def lag(self) -> Mapping[Partition, int]:
        """Return the unread messages, those behind the range too."""
        return self._source.lag()

    def trouble(self) -> str | None:
        """Return what keeps the source from reading."""
        return self._source.trouble()

    def report_positions(self, positions: Mapping[Partition, int]) -> None:
        """Report a checkpoint's positions."""
        self._source.report_positions(positions)

    def close(self) -> None:
        """Release everything."""
        self._source.close()
