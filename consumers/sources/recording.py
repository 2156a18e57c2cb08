"""A recording, a stream as a file of compressed JSON lines: its format, reader and writer.

The first line is the head: the format's version, which stream it was, how its values are written.
Then a line for each message, with topic, partition, offset, time, key, value and headers, byte for
byte: a value that is no UTF-8 stands in base64. A line has a bound, so that a hostile file takes no
more memory than that: no longer one is written or read. `docs/recording.md` describes every key.

The file consists of frames (members of gzip, frames of Zstandard) of about a megabyte, each whole
in itself and ending with a line of positions: the next offset of each partition. A writer that was
killed, or lost its power, leaves a torn frame at most. The next one cuts it off and goes on at the
positions of the last whole one, so nothing stands twice and nothing is left out.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, assert_never

import msgspec
import structlog
import zstandard

from consumers.config.addresses import FileSettings
from consumers.config.settings import Settings
from consumers.decode.rows import RECORD_BYTES_MAX, RecordFormat
from consumers.errors import ReplacedError, SinkError, SourceError
from consumers.messages import Partition, RawColumns, part_name
from consumers.private_files import (
    lock_file,
    make_private_folder,
    open_private,
    sync_folder,
    write_at,
)
from consumers.sources.base import LogFacts, Source
from consumers.sources.file import CUT_OFF, DAMAGE, STEP_BYTES, FileBytes
from consumers.sources.records import (
    RECORDING_LINES,
    RecordedRow,
    RecordingLine,
    as_short,
    from_parts,
    lines_of,
    positions_in,
    recorded_row,
)

VERSION: Final = 1
LINE_BYTES_MAX: Final = 8 * RECORD_BYTES_MAX  # JSON writes a control character in six bytes
FRAME_BYTES: Final = 1 << 20
FRAME_S: Final = 1.0  # how long a message may wait for its frame to be full

_FRAME_BYTES_MAX: Final = LINE_BYTES_MAX + (FRAME_BYTES << 4)
_MAGICS: Final = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
SUFFIXES: Final = tuple(_MAGICS)
_HEAD_BYTES: Final = 1 << 16
_PLACED: Final = {"kafka", "file", "generator"}  # what is read again has the same offsets
_READS_MAX: Final = 64  # reads a poll: how much is skipped before the caller has its turn

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class _Version(msgspec.Struct):
    streamnb_recording: int


class RecordingHead(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: what identifies the stream, and how its messages' values are written."""

    streamnb_recording: int = VERSION
    stream: dict[str, Any]
    format: RecordFormat


def _least_behind(row: RecordedRow, *, is_of_file: bool) -> int:
    """Return the least offset behind a message."""
    return row[2] + (max(1, len(row[1] or b"")) if is_of_file else 1)


def read_head(path: Path) -> RecordingHead:
    """Return the first line of a recording; any other file is a `SourceError`."""
    try:
        return _head_of(path)
    except OSError as error:
        raise SourceError(
            f"{path}: cannot be opened ({error.strerror}); check the path of the recording"
        ) from error
    except (ValueError, RecursionError) as error:
        raise SourceError(
            f"{path}: is no recording ({error}); `streamnb record` writes them. JSON lines and CSV "
            "are read by `source: file:PATH`"
        ) from error


def is_recording(path: Path) -> bool:
    """Return whether a file begins as a recording does; False if it cannot be read."""
    try:
        _head_of(path)
    except (OSError, ValueError, RecursionError):
        return False
    return True


def _head_of(path: Path) -> RecordingHead:
    if not path.is_file():
        path.stat()
        raise ValueError("it is not a regular file")
    file = FileBytes(path)
    try:
        line, newline, _ = file.read(_HEAD_BYTES).partition(b"\n")
    finally:
        file.close()
    if not newline:
        raise ValueError("its first line is not whole")
    version = msgspec.json.decode(line, type=_Version).streamnb_recording
    if version != VERSION:
        raise ValueError(f"it is written in version {version}, and this is read: {VERSION}")
    return msgspec.json.decode(line, type=RecordingHead)


def stream_identity(settings: Settings) -> dict[str, Any]:
    """Return what identifies a stream: positions of one mean nothing in another."""
    address = settings.source_address
    own: dict[str, Any]  # beside its kind
    match address.kind:
        case "kafka":
            own = {"topic": address.topic}
        case "file":
            own = {"name": (address.path or Path()).name}
        case "recording":
            return read_head(address.path or Path()).stream  # the one that it is a recording of
        case "stdin" | "jetstream":
            own = {}
        case "generator":
            made = settings.generator
            shape = "turn_after" if made.stream == "tweets" else "stream"
            own = made.model_dump(include={"seed", "labelled_share"})
            own[shape] = getattr(made, shape)
        case "sse" | "lines" | "websocket":
            own = {"address": address.urls[0].partition("?")[0]}
        case kind:
            assert_never(kind)
    return {"source": address.kind} | own


class RecordingSource(Source):
    """Reads a recording once, with the partitions, offsets, times and keys that it was made of.

    Messages between a position and the recording's first one of its partition count as lost, as
    they would in a topic. A position behind its last one is a `SourceError`, and so is a damaged
    place, once all before it was handed over. A frame that was torn by a kill is the end, and
    logged; its messages count only if a recorder that goes on gives them the same offsets. Headers
    are left out unless asked for. `wait` is given seconds.
    """

    def __init__(
        self,
        path: Path,
        settings: FileSettings,
        *,
        with_headers: bool = False,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._path = Path(path)
        self.name = f"recording:{self._path.name}"
        self.head = read_head(self._path)
        self.record_format = self.head.format
        self._is_of_file = self.head.stream.get("source") == "file"
        self._is_placed = self.head.stream.get("source") in _PLACED
        self.lost_messages = 0
        self._batch_bytes = settings.batch_bytes
        self._with_headers = with_headers
        self._wait = wait
        self._position_of: Callable[[Partition], int | None] = lambda _: None
        self._known: Mapping[Partition, LogFacts] = {}
        self._bytes: FileBytes | None = None
        self._failure: SourceError | None = None
        self._finished = False
        self._pending = b""
        self._n_lines = 0
        self._next: dict[Partition, int] = {}  # what is handed over next
        self._recorded: dict[Partition, int] = {}  # behind the last line read
        self._held: dict[Partition, list[RecordedRow]] = {}  # what to hand over with the next line

    def resume(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Take what the checkpoint knows of the topic's partitions."""
        self._known = logs

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin; each partition is read from its position, or from its first recorded message."""
        self.close()
        self._position_of = position_of
        self._bytes = FileBytes(self._path)
        self._failure, self._finished, self._pending, self._n_lines = None, False, b"", 0
        self._next, self._recorded, self._held = {}, {}, {}

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next batches; at the end, wait up to `timeout_s` and return none."""
        for _ in range(_READS_MAX):
            if self._failure is not None:
                raise self._failure
            if self._finished:
                break
            batches = self._batches(self._lines())
            if batches:
                return batches
        else:
            return []
        self._wait(timeout_s)
        return []

    def at_end(self) -> bool:
        """Return whether all of it has been returned."""
        return self._finished

    def close(self) -> None:
        """Close the file."""
        if self._bytes is not None:
            self._bytes.close()

    def _lines(self) -> list[bytes]:
        """Return the whole lines of the next piece, none at the end."""
        assert self._bytes is not None
        try:
            data = self._bytes.read(self._batch_bytes)
        except OSError as error:
            self._failure = self._error(f"cannot be read on ({error.strerror})")
            return []
        text = self._pending + data
        n_held = 0 if self._is_placed else self._bytes.n_open()
        whole, newline, _ = text[: len(text) - n_held].rpartition(b"\n")
        if not data and not newline:
            self._end(self._bytes)
        self._pending = text[len(whole) + len(newline) :]
        most, what = (LINE_BYTES_MAX, "line") if self._is_placed else (_FRAME_BYTES_MAX, "frame")
        if len(self._pending) > most:
            self._failure = self._error(f"has a {what} of more than {most} bytes")
        return whole.split(b"\n") if newline else []

    def _batches(self, lines: list[bytes]) -> list[RawColumns]:
        """Return the messages that were not read before, as one batch a partition."""
        by_partition, self._held = self._held, {}
        try:
            for line in lines:
                self._n_lines += 1
                if self._n_lines > 1:  # behind the head
                    self._take(line, by_partition)
        except SourceError as error:
            self._failure = error  # raised once all before it was handed over
        batches = []
        for partition, rows in by_partition.items():
            self._next[partition] = behind = self._behind(partition, rows)
            if not rows:
                continue
            keys, values, offsets, times_ms, headers = zip(*rows, strict=True)
            own = headers if self._with_headers else None
            batches.append(from_parts(partition, keys, values, offsets, times_ms, behind, own))
        return batches

    def _take(self, line: bytes, by_partition: dict[Partition, list[RecordedRow]]) -> None:
        """Take in one line."""
        try:
            found = RECORDING_LINES.decode(line)
            if found.positions is not None and found.offset < 0:
                self._note_positions(*positions_in(line))
                return
            row = recorded_row(found)
        except (ValueError, RecursionError) as error:
            raise self._error(f"is not as it was written: {error}") from error
        partition = Partition(found.topic, found.partition)
        if found.offset < self._recorded.get(partition, 0):
            raise self._error(f"holds offset {found.offset} of {partition} behind a later one")
        begin = self._begin(partition, found.offset)
        self._recorded[partition] = _least_behind(row, is_of_file=self._is_of_file)
        rows = by_partition.setdefault(partition, [])  # in its turn, if some of it was read before
        if found.offset >= begin:
            rows.append(row)

    def _behind(self, partition: Partition, rows: list[RecordedRow]) -> int:
        """Return the offset behind some messages; hold the last back if it is not known yet.

        In a file the next message is not one further: offsets are bytes. The next line tells.
        """
        if not rows:
            return self._next[partition]
        if not self._is_of_file:
            return rows[-1][2] + 1
        recorded = self._recorded[partition]
        is_last = self._finished or self._failure is not None
        if is_last or recorded > _least_behind(rows[-1], is_of_file=True):
            return recorded
        self._held[partition] = [rows.pop()]
        return self._held[partition][0][2]

    def _begin(self, partition: Partition, first: int) -> int:
        """Return the next offset to hand over; `first` is where the recording of it begins."""
        if partition not in self._next:
            position = self._position_of(partition)
            self._next[partition] = first if position is None else position
            lost = first - self._next[partition]
            if lost > 0:
                self.lost_messages += lost
                log.error(
                    "messages_lost",
                    partition=str(partition),
                    lost=lost,
                    went_on_at=first,
                    why=f"{self._path} begins behind them; read a recording that holds them",
                )
        return self._next[partition]

    def _note_positions(
        self, positions: Mapping[Partition, int], logs: Mapping[Partition, LogFacts]
    ) -> None:
        if logs != self.beginnings and not self._is_of_file:  # a file's facts differ by frame
            self.beginnings = MappingProxyType(dict(logs))
        for partition, facts in logs.items():
            known = self._known.get(partition, facts).topic_id
            if None not in {known, facts.topic_id} and known != facts.topic_id:
                raise ReplacedError(
                    f"{self._path}: is of another topic {partition.topic!r} than was read before: "
                    f"its id is {facts.topic_id}, and that one's was {known}. Begin with an empty "
                    "checkpoint.folder"
                )
        for partition, position in positions.items():
            self._begin(partition, position)
            self._recorded[partition] = max(self._recorded.get(partition, 0), position)

    def _end(self, file: FileBytes) -> None:
        """Handle the end: a torn frame, damage, or positions behind it."""
        if file.damage is not None and file.damage != CUT_OFF:
            self._failure = self._error(file.damage)
            return
        self._finished = True
        if file.damage is not None or self._pending:
            log.warning(
                "recording_torn",
                path=str(self._path),
                whole_lines=self._n_lines,
                detail="its last frame was cut off, by a kill or in a copy; all whole "
                f"{'lines' if self._is_placed else 'frames'} count",
            )
        for partition, position in self._next.items():
            if position > self._recorded[partition]:
                raise SourceError(
                    f"{self._path}: {partition} was read up to offset {position} before, and the "
                    f"recording ends at {self._recorded[partition]}; is it an older copy? Name "
                    "the newer one, let `streamnb record` go on, or empty checkpoint.folder"
                )

    def _error(self, what: str) -> SourceError:
        return SourceError(
            f"{self._path}: {what} (line {self._n_lines}); all before it was handed over. Get an "
            "undamaged copy, let `streamnb record` go on with it if a power cut damaged its end, "
            "or record the stream once more"
        )


class _FrameBytes(FileBytes):
    """Reads a recording that is to be continued, to find its last whole frame."""

    def last_line(self, member_bytes_max: int) -> bytes:
        """Read a packed file to its end; return the last line of its last whole member.

        `ValueError`: a member holds more bytes than it may.
        """
        last, whole, begin, size = b"", 0, 0, 0
        pieces: list[bytes] = []
        is_more = True
        while is_more:
            # A member may be found to be whole where nothing more comes: its checksum is its end.
            is_more = bool(data := self.read(1))
            pieces.append(data)
            size += len(data)
            if self.whole[1] > whole:
                whole = self.whole[1]
                text = b"".join(pieces)
                last = text[: whole - begin].rstrip(b"\n").rpartition(b"\n")[2]
                rest = text[whole - begin :]
                pieces, begin, size = [rest], whole, len(rest)
            elif size > member_bytes_max:
                raise ValueError("a frame is larger than any that is written")
        return last

    def is_torn(self, member_bytes_max: int) -> bool:
        """Return whether what stands behind the last whole member may be one write that was torn.

        A power cut may leave any sectors of it. Whole members behind it were written later: then
        what stands between was whole as well, and is damaged.
        """
        begin, end = self.whole[0], self.size()
        if end - begin > member_bytes_max:
            return False
        rest = self.peek(begin, end)
        at = 0
        while (at := rest.find(self._magic, at + 1)) > 0:
            if self._is_whole(rest, at):
                return False
        return True

    def _is_whole(self, data: bytes, begin: int) -> bool:
        """Return whether a whole member begins at a place of some bytes."""
        assert self._new_member is not None
        member = self._new_member()
        with suppress(*DAMAGE):
            for at in range(begin, len(data), STEP_BYTES):
                member.decompress(data[at : at + STEP_BYTES])
                if member.eof:
                    return True
        return False


class RecordingWriter:
    """Writes a recording, or goes on with one of the same stream; its owner alone may read it.

    `path` ends with one of `SUFFIXES`, which says how it is compressed. `positions` has the next
    offset of each partition, `logs` where its recording began, `n_bytes` the size of the file. A
    message whose line would be longer than is read is left out and counted (`n_refused`). `clock`
    returns monotonic seconds, `logs_at` what else is to be known of the logs at positions.

    A file that is no recording, is damaged before its last frame, belongs to another stream or is
    being written by another process is a `SinkError`, and is left as it is; so is one that cannot
    be written.
    """

    def __init__(
        self,
        path: Path,
        head: RecordingHead,
        clock: Callable[[], float] = time.monotonic,
        logs_at: Callable[[Mapping[Partition, int]], Mapping[Partition, LogFacts]] = lambda _: {},
    ) -> None:
        self._path = path
        self._clock = clock
        self._logs_at = logs_at
        self.positions: dict[Partition, int] = {}
        self.logs: dict[Partition, LogFacts] = {}
        self.n_bytes = self.n_refused = 0
        self._lines = bytearray()
        self._began_s: float | None = None  # when the oldest news came that is not written
        try:
            make_private_folder(path.absolute().parent)
            self._fd = open_private(path, os.O_RDWR)
        except OSError as error:
            raise self._error("cannot be opened", error) from error
        with ExitStack() as on_error:
            on_error.callback(os.close, self._fd)
            if not lock_file(self._fd, path):
                raise SinkError(f"{path}: another `streamnb record` writes it; name another file")
            try:
                self._resume(head)
            except OSError as error:  # a device, a pipe, or a disk that fails
                raise self._error("cannot be read or begun", error) from error
            on_error.pop_all()

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
        behind = [*raw.offsets.tolist(), raw.next_offset][1:]
        for line, position in zip(lines_of(raw), behind, strict=True):
            self._add_line(line)
            if len(self._lines) >= FRAME_BYTES:
                self._move(raw.partition, position)
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
        self.logs |= self._logs_at(self.positions)
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

    def _add_line(self, line: RecordingLine) -> None:
        """Take a message that a reader takes; its text is kept as text if the line may be so long.

        What is read of it later is the same, but text is easier to look at.
        """
        encoded = msgspec.json.encode(line)
        if len(encoded) > LINE_BYTES_MAX:
            encoded = msgspec.json.encode(as_short(line))
        if len(encoded) <= LINE_BYTES_MAX:
            self._lines += encoded
            self._lines += b"\n"
            return
        self.n_refused += 1
        log.warning(
            "record_refused",
            path=str(self._path),
            partition=str(Partition(line.topic, line.partition)),
            offset=line.offset,
            detail=f"its line would have {len(encoded)} bytes, and {LINE_BYTES_MAX} are read",
        )

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

    def _resume(self, head: RecordingHead) -> None:
        """Cut off a torn frame and go on behind the last whole one, or begin."""
        size = os.fstat(self._fd).st_size
        begin = msgspec.json.encode(head) + b"\n"
        if self._is_part_of(self._compressed(begin + self._positions_line())):
            os.ftruncate(self._fd, 0)
            self._lines += begin
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

    def _is_part_of(self, first: bytes) -> bool:
        """Return whether the file is empty, or the torn rest of a first frame.

        A kill leaves the beginning of a write, a power cut any sectors of it, and zeros between.
        """
        there = os.pread(self._fd, len(first) + 1, 0)
        torn = all(own in {0, byte} for own, byte in zip(there, first, strict=False))
        return len(there) <= len(first) and there != first and torn

    def _read_whole(self) -> int:
        """Take the positions at the end of the last whole frame; return where that ends."""
        file = _FrameBytes(self._path)
        try:
            self.positions, self.logs = positions_in(file.last_line(_FRAME_BYTES_MAX))
            is_torn = file.damage is None or file.is_torn(_FRAME_BYTES_MAX)
            wrong = None if is_torn else file.damage
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

    def _error(self, what: str, error: OSError) -> SinkError:
        return SinkError(f"{self._path}: {what} ({error.strerror})")
