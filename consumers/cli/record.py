"""A live stream into a recording: messages as they come, with all that is needed to replay them.

A second run on the same file goes on behind the last whole message of each partition, so a
recorder may be stopped, killed and started again: nothing is doubled, and nothing is left out that
the source still has. `consumers.sources.recording` has the format, and reads it.
"""

from __future__ import annotations

import fcntl
import gzip
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self

import msgspec
import structlog
import zstandard
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from consumers.config.addresses import StreamRange
from consumers.config.settings import Settings
from consumers.decode.rows import RecordFormat
from consumers.errors import SinkError
from consumers.factories import build_source, stream_identity
from consumers.messages import Partition, RawColumns, part_name
from consumers.private_files import make_private_folder, open_private, sync_folder, write_at
from consumers.sources.base import LogFacts, Source
from consumers.sources.file import CUT_OFF, FileBytes
from consumers.sources.recording import (
    LINE_BYTES_MAX,
    RecordingHead,
    RecordingLine,
    lines_of,
    positions_in,
    read_head,
)

FRAME_BYTES: Final = 1 << 20
FRAME_S: Final = 1.0  # how long a message may wait for its frame to be full

_FRAME_BYTES_MAX: Final = LINE_BYTES_MAX + (FRAME_BYTES << 4)
_MAGICS: Final = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
SUFFIXES: Final = tuple(_MAGICS)
_POLL_TIMEOUT_S: Final = 0.2
_DURATION: Final = re.compile(r"(?P<n>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|d)")
_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class RecordingWriter:
    """Writes a recording, or goes on with one of the same stream; its owner alone may read it.

    `path` ends with one of `SUFFIXES`, which says how it is compressed. `positions` has the next
    offset of each partition, `logs` where its recording began, `n_bytes` the size of the file.
    `clock` returns monotonic seconds.

    A file that is no recording, is damaged, belongs to another stream or is being written by
    another process is a `SinkError`, and is left as it is; so is one that cannot be written.
    """

    def __init__(
        self, path: Path, head: RecordingHead, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._clock = clock
        self.positions: dict[Partition, int] = {}
        self.logs: dict[Partition, LogFacts] = {}
        self.n_bytes = 0
        self._lines = bytearray()
        self._began_s: float | None = None  # when the oldest news came that is not written
        try:
            make_private_folder(path.absolute().parent)
            self._fd = open_private(path, os.O_RDWR)
        except OSError as error:
            raise self._error("cannot be opened", error) from error
        try:
            self._lock()
            self._resume(head)
        except BaseException:
            os.close(self._fd)
            raise

    def begin(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Note where partitions begin, before anything of them is added.

        If nothing comes of one until a kill, the next run begins there all the same.
        """
        if logs.items() <= self.logs.items():
            return
        self.logs |= logs
        for partition, facts in logs.items():
            self._move(partition, self.positions.get(partition, facts.begin))
        self._began_s = self._clock()
        self._lines += self._positions_line()

    def add(self, raw: RawColumns) -> None:
        """Take a batch; write the frames that are full."""
        for line in lines_of(raw):
            self._lines += msgspec.json.encode(line)
            self._lines += b"\n"
            if len(self._lines) >= FRAME_BYTES:
                self._move(raw.partition, line.offset + 1)
                self.flush()
        self._move(raw.partition, raw.next_offset)

    def flush_if_due(self) -> None:
        """Write what has waited for `FRAME_S`."""
        if self._began_s is not None and self._clock() - self._began_s >= FRAME_S:
            self.flush()

    def flush(self) -> None:
        """Write everything that was added as one frame, and sync it; or raise `SinkError`."""
        if self._began_s is None:
            return
        frame = self._compressed(bytes(self._lines) + self._positions_line())
        try:
            write_at(self._fd, frame, self.n_bytes)
            os.fdatasync(self._fd)
        except OSError as error:
            with suppress(OSError):  # the next run would cut it off as well
                os.ftruncate(self._fd, self.n_bytes)
            raise self._error("cannot be written on; start again once it can be", error) from error
        self.n_bytes += len(frame)
        self._lines.clear()
        self._began_s = None

    def close(self) -> None:
        """Close the file; what was not flushed is recorded again by the next run."""
        os.close(self._fd)

    def _move(self, partition: Partition, position: int) -> None:
        if self.positions.get(partition) != position:
            self.positions[partition] = position
            if self._began_s is None:
                self._began_s = self._clock()

    def _positions_line(self) -> bytes:
        positions = {part_name(each): at for each, at in self.positions.items()}
        logs = {part_name(each): facts for each, facts in self.logs.items()}
        return msgspec.json.encode(RecordingLine(positions=positions, logs=logs)) + b"\n"

    def _compressed(self, data: bytes) -> bytes:
        if self._path.suffix == ".gz":
            return gzip.compress(data, 6, mtime=0)
        return zstandard.ZstdCompressor(write_checksum=True).compress(data)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SinkError(
                f"{self._path}: another `streamnb record` writes it; name another file"
            ) from None
        except OSError as error:
            log.warning("recording_without_lock", detail=str(error))

    def _resume(self, head: RecordingHead) -> None:
        """Cut off a torn frame and go on behind the last whole one, or begin."""
        size = os.fstat(self._fd).st_size
        if size == 0:
            self._lines += msgspec.json.encode(head) + b"\n"
            self._began_s = self._clock()
            self.flush()
            sync_folder(self._path.absolute().parent)
            return
        if os.pread(self._fd, 2, 0) != _MAGICS[self._path.suffix][:2]:
            raise SinkError(f"{self._path}: is not compressed as its name says; name another file")
        there = read_head(self._path)
        if there != head:
            raise SinkError(
                f"{self._path}: holds another stream, {there.stream} as {there.format.kind}, than "
                f"{head.stream} as {head.format.kind}; name another file"
            )
        self.n_bytes = self._read_whole()
        if self.n_bytes < size:
            log.warning("recording_mended", path=str(self._path), cut_bytes=size - self.n_bytes)
            os.ftruncate(self._fd, self.n_bytes)

    def _read_whole(self) -> int:
        """Take the positions at the end of the last whole frame; return where that ends."""
        file = FileBytes(self._path)
        try:
            self.positions, self.logs = positions_in(self._last_line(file))
            wrong = None if file.damage == CUT_OFF else file.damage
        except ValueError as error:
            wrong = str(error)
        finally:
            file.close()
        if wrong is not None:
            raise SinkError(
                f"{self._path}: cannot be continued behind byte {file.whole[0]} ({wrong}); keep it "
                "as it is, and name another file"
            )
        return file.whole[0]

    def _last_line(self, file: FileBytes) -> bytes:
        """Return the last line of the last whole frame; the file is read to its end."""
        last, whole, begin, size = b"", 0, 0, 0
        pieces: list[bytes] = []
        while data := file.read(1):
            pieces.append(data)
            size += len(data)
            if file.whole[1] > whole:
                whole = file.whole[1]
                text = b"".join(pieces)
                last = text[: whole - begin].rstrip(b"\n").rpartition(b"\n")[2]
                rest = text[whole - begin :]
                pieces, begin, size = [rest], whole, len(rest)
            elif size > _FRAME_BYTES_MAX:
                raise ValueError("a frame is larger than any that is written")
        return last

    def _error(self, what: str, error: OSError) -> SinkError:
        return SinkError(f"{self._path}: {what} ({error.strerror})")


@dataclass(slots=True)
class Recorded:
    """What a run recorded, and why it ended; `file_bytes` is the size of the whole file."""

    messages: int = 0
    value_bytes: int = 0
    file_bytes: int = 0
    positions: dict[str, int] | None = None
    reason: Literal["told to stop", "end of source", "max messages", "time is up"] = "told to stop"


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """When a recording ends by itself."""

    until_end: bool = False
    messages_max: int | None = None
    seconds_max: float | None = None
    part: StreamRange | None = None


def duration_s(text: str) -> float:
    """Return the seconds of a duration such as `90s`, `5m`, `2h` or `1d`, or raise `ValueError`."""
    match = _DURATION.fullmatch(text)
    if match is None or float(match["n"]) <= 0:
        raise ValueError(f"must be a number with ms, s, m, h or d, such as 90s or 2h, not {text!r}")
    return float(match["n"]) * _UNITS_S[match["unit"]]


def source_to_record(settings: Settings, limits: RecordLimits) -> Source:
    """Return the source that `source` names, unopened.

    A topic is read record by record, as only records have headers, and in a group of its own: the
    recorder takes no partition away from the daemon that learns from the topic.
    """
    address = settings.source_address
    if address.kind != "kafka":
        return build_source(settings, until_end=limits.until_end, part=limits.part)
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
        writer = RecordingWriter(path, _head(settings, source.record_format), clock)
        try:
            with _Shown(source, path, show) as shown:
                done = _record(source, writer, limits, stop, shown, clock)
        finally:
            writer.close()
    finally:
        source.close()
    return done


def _head(settings: Settings, form: RecordFormat) -> RecordingHead:
    return RecordingHead(stream=stream_identity(settings), format=form)


def _record(
    source: Source,
    writer: RecordingWriter,
    limits: RecordLimits,
    stop: threading.Event,
    shown: _Shown,
    clock: Callable[[], float],
) -> Recorded:
    done = Recorded()
    until_end = limits.until_end or (limits.part is not None and limits.part.end is not None)
    until_s = None if limits.seconds_max is None else clock() + limits.seconds_max
    source.resume(writer.logs)
    source.open(writer.positions.get)
    try:
        while not stop.is_set():
            batches = source.poll(_POLL_TIMEOUT_S)
            writer.begin(source.beginnings)
            for raw in batches:
                _take(raw, writer, limits, done)
            writer.flush_if_due()
            shown.update(done, writer)
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
    done.file_bytes = writer.n_bytes
    done.positions = {str(each): at for each, at in sorted(writer.positions.items())}
    return done


def _take(raw: RawColumns, writer: RecordingWriter, limits: RecordLimits, done: Recorded) -> None:
    """Write a batch, or as much of it as is still asked for."""
    if limits.messages_max is not None:
        if done.messages == limits.messages_max:
            return
        raw = raw.head(limits.messages_max - done.messages)
    writer.add(raw)
    done.messages += len(raw)
    lengths = raw.value_ends - raw.value_starts
    done.value_bytes += int(lengths[raw.value_ends >= 0].sum())


class _Shown:
    """The progress at a terminal: how many messages, how many bytes, and what is in the way."""

    def __init__(self, source: Source, path: Path, show: bool) -> None:
        self._source = source
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
            disable=not show,
        )  # fmt: skip
        self._name = f"{source.name} → {path.name}"
        self._task = self._progress.add_task(self._name, total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, done: Recorded, writer: RecordingWriter) -> None:
        """Show how far it is."""
        if self._progress.disable:
            return
        lag = sum(self._source.lag().values())
        trouble = self._source.trouble()
        text = f"{self._name}: {done.messages:,} messages, {writer.n_bytes / 1e6:,.1f} MB"
        text += f", {lag:,} behind" if lag else ""
        text += f" ({trouble})" if trouble else ""
        self._progress.update(self._task, description=text)
