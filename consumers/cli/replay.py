"""A recorded stream into a Kafka topic: at its own pace, n times as fast, or as fast as it goes.

The made-up stream can be played into a topic too, at the generator's own rate and without end.

JSON lines go as they are. Rows of CSV become JSON objects of all their columns, where a dot in a
column's name leads into an object, as in the daemon's paths; those of Sentiment140 have the fields
that the default configuration reads, `{id, created_at, user, lang, text, label}`, and others that
the settings read. What cannot be read goes as it is too, so that the daemon on the other side
counts and keeps it: nothing vanishes on the way.

What `streamnb record` wrote goes with its keys, headers and partitions; partition p goes to p
modulo the topic's number of partitions, so what was in order stays so.

The record's own time is that of the writing, and the message's time stands in its value, or in the
recording, only: a broker removes records by their time, and would remove those of an old recording
at once.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np
import structlog
from numpy.typing import NDArray
from rich.progress import BarColumn, DownloadColumn, TimeElapsedColumn

from consumers.cli.conventions import progress_bar
from consumers.config.addresses import FileSettings, GeneratorSettings, KafkaSettings, StreamRange
from consumers.config.message import (
    EmoticonLabels,
    FieldLabels,
    MessageSettings,
    effective,
    paths_of,
)
from consumers.config.model import FieldKind
from consumers.decode.fields import ValueType, converter, field_specs, id_of, to_unix_ms
from consumers.decode.json import JsonReader, read_paths
from consumers.decode.rows import SENTIMENT140_COLUMNS, CsvReader, RecordFormat
from consumers.errors import ConfigError
from consumers.kafka.producers import KafkaSink
from consumers.messages import Headers, RawColumns
from consumers.sources.base import RangedSource, Source
from consumers.sources.file import FileSource
from consumers.sources.generator import GeneratorSource
from consumers.sources.recording import RecordingSource, is_recording

Speed = Literal["recorded", "max"] | float

_TYPED = {ValueType.NUMBER, ValueType.FLAG, ValueType.WEIGHT}
_FIELDS = ("id", "created_at", "user", "lang", "text", "label")
_PACKED = {".gz", ".xz", ".zst", ".bz2"}
_CONNECT_TIMEOUT_S = 10.0
_FLUSH_TIMEOUT_S = 60.0
_WAIT_MAX_S = 86_400.0
_POLL_TIMEOUT_S = 1.0  # a file has something or is at its end; the generator is seldom so slow

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class Item(NamedTuple):
    """One record of the recording; one that is not readable has no key and no time."""

    key: bytes | None
    value: bytes | None
    time_ms: int | None
    readable: bool
    offset: int
    partition: int | None = None  # None: its key decides, or it goes to the next one in turn
    headers: Headers = ()
    altered: bool = False


class Replayed(msgspec.Struct):
    """What a replay did, as it goes on."""

    sent: int = 0  # all acknowledged once the replay is over, but for the refused ones
    unreadable: int = 0  # of them; they went as they were
    without_time: int = 0  # of them; they went with the one before
    n_bytes: int = 0  # of their values
    altered: int = 0  # of them; an empty value stands for none, which the client cannot write
    refused: int = 0  # of them; too large for the topic, and left out

    def count(self, item: Item) -> None:
        """Count one record."""
        self.sent += 1
        self.unreadable += not item.readable
        self.without_time += item.time_ms is None
        self.n_bytes += len(item.value or b"")
        self.altered += item.altered


# Turns one batch of the recording into records, in order.
RecordReader: TypeAlias = Callable[[RawColumns], Iterator[Item]]


class Pace:
    """When each record is due, by the time it carries.

    At a speed of 1 or "recorded" it is the recording's own pace, at 10 ten times as fast. `wait`
    passes seconds of `clock`. Without a limit nothing ever waits. A speed that is no positive
    number is a `ConfigError`.

    A record whose time would be more than a day of waiting away goes at once: a wrong time, or a
    long silence. If the next one is near it the pace goes on from there, else from where it was.
    """

    def __init__(
        self, speed: Speed, clock: Callable[[], float], wait: Callable[[float], object]
    ) -> None:
        if isinstance(speed, str):
            self._speed = {"recorded": 1.0, "max": float("inf")}.get(speed, 0.0)
        else:
            self._speed = float(speed)
        self.is_unlimited = self._speed == float("inf")
        if not self._speed > 0:
            raise ConfigError(f"speed must be recorded, max or a number above 0, not {speed!r}")
        self._clock = clock
        self._wait = wait
        self._began_s = 0.0
        self._first_ms: int | None = None
        self._latest_ms = 0
        self._leapt: tuple[int, float] | None = None  # the last record's time, and when it went
        self._is_told = False

    def keep(self, time_ms: int | None) -> None:
        """Wait until a record of that time is due; one that is late or has no time is due now."""
        if time_ms is None or self.is_unlimited:
            return
        if self._first_ms is None:
            self._go_on_from(time_ms, self._clock())
        elif self._is_far(time_ms, self._latest_ms):
            if self._leapt is None or self._is_far(time_ms, self._leapt[0]):
                self._leap(time_ms)
                return
            self._go_on_from(*self._leapt)
        assert self._first_ms is not None
        self._leapt = None
        self._latest_ms = max(self._latest_ms, time_ms)
        due_s = self._began_s + (time_ms - self._first_ms) / 1000 / self._speed
        left_s = due_s - self._clock()
        if left_s > 0:
            self._wait(left_s)

    def _go_on_from(self, time_ms: int, now_s: float) -> None:
        self._first_ms = self._latest_ms = time_ms
        self._began_s = now_s

    def _is_far(self, time_ms: int, other_ms: int) -> bool:
        return abs(time_ms - other_ms) / 1000 / self._speed > _WAIT_MAX_S

    def _leap(self, time_ms: int) -> None:
        self._leapt = time_ms, self._clock()
        if not self._is_told:
            self._is_told = True
            log.warning("replay_leap", from_ms=self._latest_ms, to_ms=time_ms)


def replay(  # noqa: PLR0913 - each is one choice of whoever replays
    recording: Path | GeneratorSettings,
    servers: tuple[str, ...],
    topic: str,
    speed: Speed = "recorded",
    *,
    keyed: bool = True,
    max_messages: int | None = None,
    kafka: KafkaSettings | None = None,
    file: FileSettings | None = None,
    message: MessageSettings | None = None,
    kinds: Mapping[str, FieldKind] | None = None,
    labels: FieldLabels | EmoticonLabels | None = None,
    part: StreamRange | None = None,
    show: bool = True,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> Replayed:
    """Write a recorded stream into a topic, and return the counts.

    The recording is what `streamnb record` wrote, or JSON lines or CSV, plain or packed; or the
    made-up stream, which has a rate of its own and is not paced again. The topic must exist unless
    the broker makes topics by itself.

    If `keyed`, each record's key is its message's id, and its partition follows from the key.
    Otherwise, and for messages without an id, records go to the partitions in turn. `message` says
    where id and time are; for `kinds` and `labels` see `reading`.

    A record that the topic refuses as too large is left out and counted. A file that cannot be read
    is a `SourceError`; what was not acknowledged, a `SinkError`.
    """
    generated = isinstance(recording, GeneratorSettings)
    pace = Pace("max" if generated else speed, clock, wait)
    source = _source(recording, file or FileSettings())
    is_exact = isinstance(source, RecordingSource)
    form = source.record_format
    message = message or MessageSettings()
    read = recorded if is_exact else reading(form, message, kinds=kinds, labels=labels)
    if part is not None and part != StreamRange():
        source = _ranged(source, part, read)
    sink = KafkaSink(servers, topic, kafka or KafkaSettings(), leaves_out=True)
    done = Replayed()
    try:
        n_partitions = sink.partitions(_CONNECT_TIMEOUT_S)
        source.open(lambda _: None)
        with _shown(recording, topic, show=show) as tell:
            for raws in _polls(source, lambda: done.sent == max_messages):
                left = None if max_messages is None else max_messages - done.sent
                # Batches of several partitions are put together by time, each in its own order.
                items = heapq.merge(*map(read, raws), key=lambda item: item.time_ms or 0)
                for item in _paced(itertools.islice(items, left), pace, tell):
                    _write(sink, item if keyed else item._replace(key=None), done, n_partitions)
                sink.flush(_FLUSH_TIMEOUT_S)
                done.refused = sink.n_refused
                tell(done.n_bytes if generated or is_exact else raws[-1].next_offset)
    finally:
        source.close()
        sink.close()
    return done


def _paced(items: Iterable[Item], pace: Pace, tell: Callable[[int], None]) -> Iterator[Item]:
    """Yield each record when it is due, and show how far that is."""
    for item in items:
        pace.keep(item.time_ms)
        yield item
        if not pace.is_unlimited:
            tell(item.offset)


def _polls(source: Source, enough: Callable[[], bool]) -> Iterator[list[RawColumns]]:
    """Yield what a source has until its end or until it is enough, as it comes."""
    while not (source.at_end() or enough()):
        batches = source.poll(_POLL_TIMEOUT_S)
        if batches:
            yield batches


def _source(recording: Path | GeneratorSettings, file: FileSettings) -> Source:
    if isinstance(recording, GeneratorSettings):
        return GeneratorSource(recording)
    if is_recording(recording):
        return RecordingSource(recording, file, with_headers=True)
    return FileSource(recording, file)


def _ranged(source: Source, part: StreamRange, read: RecordReader) -> Source:
    """Return a part of the source."""
    if isinstance(source, GeneratorSource):
        raise ConfigError("--from and --until: the made-up stream has no past to begin in")

    def times_of(raw: RawColumns) -> NDArray[np.int64]:
        times_ms = (item.time_ms for item in read(raw))
        return np.array([-1 if each is None else each for each in times_ms], np.int64)

    return RangedSource(source, part, times_of, begins=False)


def _write(sink: KafkaSink, item: Item, done: Replayed, n_partitions: int) -> None:
    """Write one record: to its partition, where its key says, or to the next one in turn."""
    partition = None if item.key else done.sent % n_partitions
    if item.partition is not None:
        partition = item.partition % n_partitions
    sink.write(item.key, item.value, partition, item.headers)
    done.count(item)


def recorded(raw: RawColumns) -> Iterator[Item]:
    """Yield the messages of a recording as they were, as far as the client can write them."""
    times_ms, offsets = raw.times_ms.tolist(), raw.offsets.tolist()
    for i, (time_ms, offset) in enumerate(zip(times_ms, offsets, strict=True)):
        key, value = raw.key(i), raw.value(i)
        headers = [] if raw.headers is None else raw.headers[i]
        written = [(name, b"" if each is None else each) for name, each in headers]
        altered = (key is None and value is None) or written != list(headers)
        yield Item(
            key,
            b"" if key is None and value is None else value,
            time_ms if time_ms >= 0 else None,
            True,
            offset,
            raw.partition.partition,
            written,
            altered,
        )


def reading(
    form: RecordFormat,
    message: MessageSettings,
    *,
    kinds: Mapping[str, FieldKind] | None = None,
    labels: FieldLabels | EmoticonLabels | None = None,
    by_author: bool = False,
) -> RecordReader:
    """Return the function that reads records written in a format.

    `kinds` are those of the fields that a model reads: its numbers and flags are such in JSON too.
    Where columns of CSV cannot both go into JSON, and `message`, `kinds` or `labels` read the one
    that would be lost, that is a `ConfigError`.

    The key of a message is its id; or the first part of that, if `by_author` and this is its
    author: then what an account does, its own deletion among it, stays in one partition.
    """
    reader: CsvReader | JsonReader
    message = effective(message)
    if form.kind == "csv":
        reader, convert = _csv_reading(form, message, kinds or {}, labels or FieldLabels())
    else:
        key_paths = message.id_paths
        if by_author and key_paths[0] == message.user:
            key_paths = key_paths[:1]
        reader, convert = _json_reading(form, message, key_paths)

    def read(raw: RawColumns) -> Iterator[Item]:
        values = [raw.value(i) or b"" for i in range(len(raw))]
        known = reader.unwrapped(values) if isinstance(reader, JsonReader) else values
        rows, faults = reader.rows(known)
        offsets: list[int] = raw.offsets.tolist()
        for i, (row, value, offset) in enumerate(zip(rows, values, offsets, strict=True)):
            if i in faults:
                yield Item(None, value, None, False, offset)
            else:
                key, made, time_of = convert(row, value)
                yield Item(key or None, made, to_unix_ms(time_of), True, offset)

    return read


# Turns a row and its bytes into key, value and time of a record.
_Convert: TypeAlias = Callable[[Any, bytes], tuple[bytes, bytes, Any]]


def _csv_reading(
    form: RecordFormat,
    message: MessageSettings,
    kinds: Mapping[str, FieldKind],
    labels: FieldLabels | EmoticonLabels,
) -> tuple[CsvReader, _Convert]:
    reader = CsvReader(form)
    specs = field_specs(kinds, message).values()
    label = labels.field if isinstance(labels, FieldLabels) else None
    paths = read_paths(message, specs, label)
    read = set(itertools.chain.from_iterable(map(paths_of, paths)))
    is_whole = form.columns != SENTIMENT140_COLUMNS
    own = [name for name in form.columns if is_whole or name in read]
    found = {name: reader.column(name) for name in (*_FIELDS, *own)}
    columns = {name: column for name, column in found.items() if column is not None}
    getters = {name: reader.getter(name) for name in columns}
    get_parts = [reader.getter(path) for path in message.id_paths]
    get_time = reader.getter(message.time)
    # A cell is text. Where the daemon wants a number or a flag, JSON must have one.
    typed = {
        spec.path: (converter(spec, is_csv=True), bool if spec.type is ValueType.FLAG else float)
        for spec in specs
        if spec.type in _TYPED
    }
    nested = _nested(columns, read)

    def convert(row: Any, _: bytes) -> tuple[bytes, bytes, Any]:
        made = {name: found for name, get in getters.items() if (found := get(row))}
        for name, (entry, kind) in typed.items():
            if name in made and isinstance(value := entry(made[name]), float):
                made[name] = kind(value)
        for name in nested:
            if name in made:
                _nest(made, name)
        key = (id_of([get(row) for get in get_parts]) or "").encode()
        return key, msgspec.json.encode(made), get_time(row)

    return reader, convert


def _nested(columns: Mapping[str, str], read: Collection[str]) -> list[str]:
    """Return the fields that go into objects; `columns` are those of the file, by field.

    A field whose name begins with another one's, as `x.1` beside `x`, stays where it is: `x` is no
    object. If its name is among those that are `read`, that is a `ConfigError`.
    """
    nested = []
    for name in columns:
        heads = name.split(".")[:-1]
        is_path = all(name.split(".")) or name in read  # a heading such as `No.` is none by itself
        if not heads or not is_path:
            continue
        taken = [head for head in itertools.accumulate(heads, "{}.{}".format) if head in columns]
        if not taken:
            nested.append(name)
        elif name in read:
            other = columns[taken[0]]
            renamed = "" if other == taken[0] else f", as {taken[0]!r},"
            raise ConfigError(
                f"the columns {other!r}{renamed} and {name!r} cannot both go into JSON, where a "
                "dot leads into an object; rename one of them, and the setting that names it"
            )
    return nested


def _nest(fields: dict[str, Any], name: str) -> None:
    """Move a field into the objects that the dots in its name lead to."""
    *heads, last = name.split(".")
    place, value = fields, fields.pop(name)
    for head in heads:
        place = place.setdefault(head, {})
    place[last] = value


def _json_reading(
    form: RecordFormat, message: MessageSettings, key_paths: tuple[str, ...]
) -> tuple[JsonReader, _Convert]:
    reader = JsonReader([*key_paths, message.time], form.encoding, message.unwrap)
    getters = [reader.getter(path) for path in key_paths]
    get_time = reader.getter(message.time)

    def convert(row: Any, value: bytes) -> tuple[bytes, bytes, Any]:
        parts = [get(row) for get in getters]
        is_id = all(isinstance(part, str | int) for part in parts)
        key = (id_of(parts) or "").encode() if is_id else b""
        # In a topic JSON is UTF-8, whatever it was in the file.
        text = value if form.encoding == "utf-8" else value.decode(form.encoding).encode()
        return key, text, get_time(row)

    return reader, convert


@contextmanager
def _shown(
    recording: Path | GeneratorSettings, topic: str, *, show: bool
) -> Iterator[Callable[[int], None]]:
    """Show a bar of progress over bytes; what it gives is told which bytes are done.

    How long a packed file or the made-up stream is, nobody knows.
    """
    if isinstance(recording, GeneratorSettings):
        name, total = "generator", None
    else:
        name = recording.name
        total = None if recording.suffix in _PACKED else recording.stat().st_size
    columns = BarColumn(), DownloadColumn(), TimeElapsedColumn()
    with progress_bar(*columns, show=show) as progress:
        task = progress.add_task(f"{name} → {topic}", total=total)
        yield lambda offset: progress.update(task, completed=offset)
