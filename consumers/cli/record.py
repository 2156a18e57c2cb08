"""A live stream copied: into a recording, or into a Kafka topic, so that it has a log.

`copy` reads any source into a `StreamWriter`, on behind what that has. A recorder or a bridge may
be stopped, killed and started again: nothing is left out that the source still has.

A recording goes on behind the last whole message of each partition, so nothing is doubled.
`consumers.sources.recording` has the format, reads and writes it.

Into a topic each message goes with its value byte for byte, unless it is a row of CSV, which
becomes JSON; its key, if the source knows none, is the message's id, or its author where the id
begins with that. Headers say where it comes from. A record is sent by an idempotent producer; once
the brokers have acknowledged all up to a place, the cursor file says so. A bridge that was killed
goes on there, and what is behind the cursor comes twice.
"""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec
import structlog
from msgspec import field
from rich.progress import TimeElapsedColumn

from consumers.cli.conventions import progress_bar
from consumers.cli.replay import RecordReader, reading, recorded
from consumers.config.addresses import StreamRange
from consumers.config.settings import Settings
from consumers.errors import ConfigError, SinkError
from consumers.factories import build_source, check_end
from consumers.features import learned_kinds
from consumers.kafka.producers import KafkaSink, TopicIds
from consumers.messages import Headers, Partition, RawColumns, part_name, partition_of
from consumers.private_files import lock_file, make_private_folder, open_private, replace_private
from consumers.sources.base import Backoff, LogFacts, Source
from consumers.sources.recording import RecordingHead, RecordingWriter, stream_identity

_POLL_TIMEOUT_S: Final = 0.2
_DURATION: Final = re.compile(r"(?P<n>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|d)")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

BRIDGE_VERSION: Final = 1
SOURCE_HEADER: Final = "streamnb-source"
CURSOR_HEADER: Final = "streamnb-cursor"
SAVE_S: Final = 1.0  # how long a message may be sent before the cursor lies behind it

_TRY_S: Final = 0.5  # how long one attempt waits for the brokers, and a stop for it
_LAST_S: Final = 5.0  # how long a bridge that is told to stop waits for what it has sent
_TOPIC: Final = "topic"
_OWN_TOPIC: Final = "--to: must not be the source's own topic: it would read what it writes"
_HEADERS: Final = {SOURCE_HEADER, CURSOR_HEADER}

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class StreamWriter(Protocol):
    """Where messages of a stream are kept, in order, and how far that has got.

    `positions` has the next offset of each partition, `logs` where its copy began, `n_bytes` how
    much was written.
    """

    positions: dict[Partition, int]
    logs: dict[Partition, LogFacts]
    n_bytes: int

    def begin(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Note where partitions begin, before anything of them is added."""

    def add(self, raw: RawColumns) -> None:
        """Take a batch."""

    def flush_if_due(self) -> None:
        """Make safe what has waited for long enough."""

    def flush(self) -> None:
        """Make everything safe that was added."""

    def close(self) -> None:
        """Release everything."""


class Recorded(msgspec.Struct):
    """What a run recorded, and why it ended; `file_bytes` is the size of the whole file."""

    messages: int = 0
    value_bytes: int = 0
    file_bytes: int = 0
    positions: dict[str, int] | None = None
    reason: Literal["told to stop", "end of source", "max messages", "time is up"] = "told to stop"
    refused: int = 0  # of the messages: longer than a line of a recording may be, so not in it


class RecordLimits(msgspec.Struct, frozen=True):
    """When a recording ends by itself."""

    until_end: bool = False
    messages_max: int | None = None
    seconds_max: float | None = None
    part: StreamRange | None = None

    def until_s(self, now_s: float) -> float | None:
        """Return when time is up, on the clock that shows `now_s` at the start; None: never."""
        return None if self.seconds_max is None else now_s + self.seconds_max


def duration_s(text: str) -> float:
    """Return the seconds of a duration such as `90s`, `5m`, `2h` or `1d`, or raise `ValueError`."""
    match = _DURATION.fullmatch(text)
    if match is None or float(match["n"]) <= 0:
        raise ValueError(f"must be a number with ms, s, m, h or d, such as 90s or 2h, not {text!r}")
    return float(match["n"]) * _UNITS_S[match["unit"]]


def source_to_record(settings: Settings, limits: RecordLimits) -> Source:
    """Return the source that `source` names, unopened.

    A topic is read record by record, as only records have headers, and in a group of its own: the
    reader takes no partition away from the daemon that learns from the topic.
    """
    address, part = settings.source_address, limits.part
    if limits == RecordLimits(until_end=True, part=part) and (part is None or part.end is None):
        check_end(settings)
    if address.kind != "kafka":
        return build_source(settings, until_end=limits.until_end, part=part, with_headers=True)
    own = {
        "client": "kafka-python",
        "decode": "records",
        "group_id": f"{settings.kafka.group_id}-record-{uuid.uuid4().hex[:8]}",
    }
    kafka = settings.kafka.model_copy(update=own)
    settings = settings.model_copy(update={"kafka": kafka})
    return build_source(settings, until_end=limits.until_end, part=limits.part)


def record(
    settings: Settings,
    path: Path,
    limits: RecordLimits,
    stop: threading.Event,
    *,
    show: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Recorded:
    """Record the source of the settings until it ends, a limit is reached or `stop` is set.

    A source that cannot be read on is a `SourceError`, a file that cannot be written a `SinkError`;
    what was recorded until then is whole.
    """
    source = source_to_record(settings, limits)
    try:
        head = RecordingHead(stream=stream_identity(settings), format=source.record_format)
        # By its name alone another file would be taken for the one that was recorded.
        of_file = {"logs_at": source.logs} if settings.source_address.kind == "file" else {}
        writer = RecordingWriter(path, head, clock, **of_file)
        try:
            done = copy(
                source, writer, limits, stop, path.name, limits.until_s(clock()),
                show=show, clock=clock,
            )  # fmt: skip
        finally:
            writer.close()
    finally:
        source.close()
    done.file_bytes, done.refused = writer.n_bytes, writer.n_refused
    return done


def copy(
    source: Source,
    writer: StreamWriter,
    limits: RecordLimits,
    stop: threading.Event,
    name: str,
    until_s: float | None,
    *,
    show: bool,
    clock: Callable[[], float] = time.monotonic,
) -> Recorded:
    """Read a source into a writer, on behind what that has, until a limit or `stop`.

    It ends at `until_s` on the clock, if there is such a time. `name` is what the progress calls
    the writer; both stay open.
    """
    with progress_bar(TimeElapsedColumn(), show=show) as progress:
        name = f"{source.name} → {name}"
        task = progress.add_task(name, total=None)

        def tell(done: Recorded) -> None:
            if show:
                progress.update(task, description=name + _text_of(source, done, writer))

        return _copy(source, writer, limits, stop, tell, until_s, clock)


def _copy(
    source: Source,
    writer: StreamWriter,
    limits: RecordLimits,
    stop: threading.Event,
    tell: Callable[[Recorded], None],
    until_s: float | None,
    clock: Callable[[], float],
) -> Recorded:
    done = Recorded()
    until_end = limits.until_end or (limits.part is not None and limits.part.end is not None)
    source.resume(writer.logs)
    source.open(writer.positions.get)
    try:
        while not stop.is_set():
            batches = source.poll(_POLL_TIMEOUT_S)
            writer.begin(source.beginnings)
            for raw in batches:
                _take(raw, writer, limits, done)
            writer.flush_if_due()
            tell(done)
            if done.messages == limits.messages_max:
                done.reason = "max messages"
                break
            if until_s is not None and clock() >= until_s:
                done.reason = "time is up"
                break
            if until_end and not batches and source.at_end():
                done.reason = "end of source"
                break
    finally:
        writer.flush()
    done.positions = {str(each): at for each, at in sorted(writer.positions.items())}
    return done


def _take(raw: RawColumns, writer: StreamWriter, limits: RecordLimits, done: Recorded) -> None:
    """Write a batch, or as much of it as is still asked for."""
    if limits.messages_max is not None:
        if done.messages == limits.messages_max:
            return
        raw = raw.head(limits.messages_max - done.messages)
    writer.add(raw)
    done.messages += len(raw)
    done.value_bytes += _value_bytes(raw)


def _value_bytes(raw: RawColumns) -> int:
    return int((raw.value_ends - raw.value_starts)[raw.value_ends >= 0].sum())


def _text_of(source: Source, done: Recorded, writer: StreamWriter) -> str:
    """Return how many messages and bytes there are by now, and what is in the way."""
    lag, trouble = sum(source.lag().values()), source.trouble()
    text = f": {done.messages:,} messages, {writer.n_bytes / 1e6:,.1f} MB"
    text += f", {lag:,} behind" if lag else ""
    return f"{text} ({trouble})" if trouble else text


# ---- into a topic --------------------------------------------------------------------------------


class BridgeCursor(msgspec.Struct, kw_only=True):
    """The cursor file: how far a stream stands in a topic.

    Topics of one name differ by their ids; a file of an earlier version has none.
    """

    streamnb_bridge: int = BRIDGE_VERSION
    stream: dict[str, Any]
    topic: str
    topic_id: str | None = None
    cluster_id: str | None = None
    positions: dict[str, int] = {}
    logs: dict[str, LogFacts] = {}


class Bridged(msgspec.Struct):
    """What a run took from the source and the brokers acknowledged, and why it ended.

    `unsafe`: some were read and not acknowledged; they come again.
    """

    messages: int = 0
    value_bytes: int = 0
    refused: int = 0  # of them: too large for the topic, and so not in it
    unsafe: bool = False
    cursor: str = ""
    positions: dict[str, int] = field(default_factory=dict)
    reason: str = "told to stop"


class CursorFile:
    """How far a stream stands in a topic: read at the start, replaced whole, and its owner's alone.

    A file that cannot be read or written, is another stream's or topic's, or is used by another
    bridge is a `SinkError`, and is left as it is.
    """

    def __init__(self, path: Path, stream: dict[str, Any], topic: str) -> None:
        self.path = path
        try:
            make_private_folder(path.absolute().parent)
            # The cursor itself is replaced, and a lock with it.
            self._locked = open_private(path.with_name(f".{path.name}.lock"), os.O_RDWR)
        except OSError as error:
            raise self._error("cannot be opened", error) from error
        with ExitStack() as on_error:
            on_error.callback(os.close, self._locked)
            if not lock_file(self._locked, path):
                raise SinkError(f"{path}: another `streamnb bridge` uses it; name another --cursor")
            self.cursor = self._read(stream, topic)
            on_error.pop_all()

    def know_topic(self, found: TopicIds) -> None:
        """Note the ids of the topic that is written to; those of another are a `SinkError`."""
        own = TopicIds(self.cursor.topic_id, self.cursor.cluster_id)
        if any(None not in pair and pair[0] != pair[1] for pair in zip(own, found, strict=True)):
            raise SinkError(
                f"{self.path}: is the cursor of the topic {self.cursor.topic!r} with the id "
                f"{own.topic_id} in cluster {own.cluster_id}, and here is another of that name, "
                f"with the id {found.topic_id} in cluster {found.cluster_id}, which lacks what was "
                "written to the first; name another --cursor"
            )
        self.cursor.topic_id = found.topic_id or own.topic_id
        self.cursor.cluster_id = found.cluster_id or own.cluster_id

    def save(self, positions: Mapping[Partition, int], logs: Mapping[Partition, LogFacts]) -> None:
        """Replace the file, safe from a power cut."""
        self.cursor.positions = {part_name(each): at for each, at in positions.items()}
        self.cursor.logs = {part_name(each): facts for each, facts in logs.items()}
        try:
            replace_private(self.path, msgspec.json.encode(self.cursor) + b"\n")
        except OSError as error:
            raise self._error("cannot be written; start again once it can be", error) from error

    def close(self) -> None:
        """Let others use the file."""
        os.close(self._locked)

    def _read(self, stream: dict[str, Any], topic: str) -> BridgeCursor:
        own = BridgeCursor(stream=stream, topic=topic)
        try:
            found = msgspec.json.decode(self.path.read_bytes(), type=BridgeCursor)
        except FileNotFoundError:
            return own
        except OSError as error:
            raise self._error("cannot be read", error) from error
        except (ValueError, RecursionError) as error:
            raise SinkError(
                f"{self.path}: is no cursor of a bridge ({error}); name another --cursor"
            ) from error
        if (found.streamnb_bridge, found.stream, found.topic) != (BRIDGE_VERSION, stream, topic):
            raise SinkError(
                f"{self.path}: is the cursor of {found.stream} in topic {found.topic!r}, not of "
                f"{stream} in {topic!r}; name another --cursor"
            )
        return found

    def _error(self, what: str, error: OSError) -> SinkError:
        return SinkError(f"{self.path}: {what} ({error.strerror})")


class TopicWriter:
    """Writes a stream into a topic, and notes how far the brokers have acknowledged it.

    `read` makes records of a batch. Brokers that are away are waited for, until `stop` is set
    or it is `until_s` on the clock: then for `_LAST_S` at most. `is_unsafe` says whether that was
    not enough; `n_unsafe` messages with `unsafe_bytes` are not known to be acknowledged. Of those
    before them `n_refused` were too large.
    """

    def __init__(
        self,
        source: Source,
        sink: KafkaSink,
        cursor: CursorFile,
        read: RecordReader,
        stop: threading.Event,
        until_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._sink = sink
        self._cursor = cursor
        self._read = read
        self._stop = stop
        self._until_s = until_s
        self._clock = clock
        self._troubles = Backoff(log, clock, _TRY_S)
        self._began_s: float | None = None  # when the oldest news came that the cursor has not
        self._n_partitions: int | None = None
        self.n_bytes = self.n_unsafe = self.unsafe_bytes = self.n_refused = 0
        self.is_unsafe = False
        there = cursor.cursor
        self._goes_on = bool(there.positions)
        self.positions = {partition_of(name): at for name, at in there.positions.items()}
        self.logs = {partition_of(name): facts for name, facts in there.logs.items()}

    def begin(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Save where partitions begin, before anything of them is written.

        If the cursor has positions, the topic must be theirs, even if nothing new is to come.
        """
        if self._goes_on and not self._knows_topic():
            self.is_unsafe = True
            return
        if logs.items() <= self.logs.items():
            return
        self.logs |= logs
        for partition, facts in logs.items():
            self.positions.setdefault(partition, facts.begin)
        self._cursor.save(self.positions, self.logs)

    def add(self, raw: RawColumns) -> None:
        """Send a batch; a topic that is away is waited for."""
        if self._began_s is None:
            self._began_s = self._clock()
        self.n_unsafe += len(raw)
        self.unsafe_bytes += _value_bytes(raw)
        if self.is_unsafe or not self._knows_topic():
            self.is_unsafe = True
            return
        now_ms = int(time.time() * 1000)
        source, number = raw.partition.topic.encode(), raw.partition.partition
        partition = number % (self._n_partitions or 1)
        times_ms = raw.times_ms.tolist()
        for item, own_ms in zip(self._read(raw), times_ms, strict=True):
            said_ms = own_ms if own_ms >= 0 else item.time_ms
            # Brokers refuse a time that is ahead of theirs, and know none before 1970.
            time_ms = None if said_ms is None or said_ms < 0 else min(said_ms, now_ms)
            own: Headers = [each for each in item.headers if each[0] not in _HEADERS]
            cursor = f"{number}:{item.offset}".encode()
            headers = [*own, (SOURCE_HEADER, source), (CURSOR_HEADER, cursor)]
            with suppress(SinkError):  # taken all the same; `_until_safe` says why
                self._sink.write(
                    item.key, item.value, None if item.key else partition, headers, time_ms
                )
                continue
            if not self._until_safe():
                return
        self.positions[raw.partition] = raw.next_offset

    def flush_if_due(self) -> None:
        """Have the cursor lie behind what has waited for `SAVE_S`."""
        if self._began_s is not None and self._clock() - self._began_s >= SAVE_S:
            self.flush()

    def flush(self) -> None:
        """Wait until all is acknowledged, and save how far that is."""
        if self._began_s is None or self.is_unsafe or not self._until_safe():
            return
        self.n_unsafe = self.unsafe_bytes = 0
        self.n_refused = self._sink.n_refused
        self.logs |= self._source.logs(self.positions)
        self._cursor.save(self.positions, self.logs)
        self._began_s = None

    def close(self) -> None:
        """Give up what is not acknowledged, and release everything."""
        self._sink.close()
        self._cursor.close()

    def _knows_topic(self) -> bool:
        """Wait for the topic; return whether it is known. Another than before is an error.

        So is the topic that is read, by whatever name of its brokers.
        """
        if self._n_partitions is None and self._wait_for(self._find_partitions):
            found = self._sink.topic_ids()
            if found.topic_id is not None and found.topic_id == self._source.topic_id:
                raise ConfigError(_OWN_TOPIC)
            self._cursor.know_topic(found)
            if self._goes_on:
                self._cursor.save(self.positions, self.logs)
        return self._n_partitions is not None

    def _find_partitions(self) -> None:
        self._n_partitions = self._sink.partitions(_TRY_S)

    def _until_safe(self) -> bool:
        """Wait until the brokers have acknowledged all; return whether they have."""
        self.is_unsafe = not self._wait_for(lambda: self._sink.flush(_TRY_S))
        return not self.is_unsafe

    def _wait_for(self, attempt: Callable[[], None]) -> bool:
        """Try until it works, or for `_LAST_S` once all is to end; return whether it worked."""
        left_s = _LAST_S
        while True:
            began_s = self._clock()
            try:
                attempt()
            except SinkError as error:
                self._troubles.say(_TOPIC, str(error))
            else:
                self._troubles.clear(_TOPIC)
                return True
            is_stopped = self._stop.wait(self._troubles.pause_s(_TOPIC))
            if not is_stopped and (self._until_s is None or self._clock() < self._until_s):
                continue
            left_s -= max(self._clock() - began_s, _TRY_S / 4)
            if left_s <= 0:
                log.warning("bridge_not_acknowledged", cursor=str(self._cursor.path))
                return False


def bridge_stream(
    settings: Settings,
    servers: tuple[str, ...],
    topic: str,
    cursor: Path,
    limits: RecordLimits,
    stop: threading.Event,
    *,
    show: bool = True,
) -> Bridged:
    """Write the source of the settings into a topic until it ends, a limit or `stop`.

    A source that cannot be read on is a `SourceError`, a cursor file that cannot be used a
    `SinkError`, a topic that is the source itself a `ConfigError`.
    """
    address = settings.source_address
    if address.kind == "recording":
        raise ConfigError(
            "SOURCE: a recording has keys and partitions, which a bridge would make anew; write it "
            "with `streamnb replay FILE --to kafka://HOST:PORT/TOPIC`"
        )
    if address.topic == topic and set(address.servers) & set(servers):
        raise ConfigError(_OWN_TOPIC)
    source = source_to_record(settings, limits)
    try:
        is_keyed = address.kind == "kafka"
        form, kinds = source.record_format, learned_kinds(settings)
        read = recorded if is_keyed else reading(
            form, settings.message, kinds=kinds, labels=settings.labels, by_author=True
        )  # fmt: skip
        file = CursorFile(cursor, stream_identity(settings), topic)
        sink = KafkaSink(servers, topic, settings.kafka, is_idempotent=True)
        until_s = limits.until_s(time.monotonic())
        writer = TopicWriter(source, sink, file, read, stop, until_s)
        try:
            done = copy(source, writer, limits, stop, topic, until_s, show=show)
        finally:
            writer.close()
    finally:
        source.close()
    saved = {str(partition_of(name)): at for name, at in sorted(file.cursor.positions.items())}
    return Bridged(
        done.messages - writer.n_unsafe, done.value_bytes - writer.unsafe_bytes, writer.n_refused,
        writer.n_unsafe > 0, str(cursor), saved, done.reason,
    )  # fmt: skip
