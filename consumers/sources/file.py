"""Files and standard input as sources; a packed file is told by its first bytes.

They may be those of gzip, bzip2, xz or Zstandard.

A compressed file is decompressed in small steps, bzip2 and xz by no more than is asked for. That
bounds the memory that a hostile file can ask for (512 bytes of Zstandard can stand for 22 MB), and
everything before a damaged place is returned before the damage is reported.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import os
import selectors
import stat
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import structlog
import zstandard

from consumers.config.addresses import FileSettings
from consumers.decode.rows import BOM, RecordFormat, recognise
from consumers.errors import ConfigError, ReplacedError, SourceError
from consumers.messages import Partition, RawColumns
from consumers.sources.base import Fingerprint, LogFacts, Source
from consumers.sources.records import (
    HEAD_BYTES,
    has_line,
    raw_columns,
    split_csv,
    split_lines,
    why_not_read,
)

CUT_OFF = "it ends in the middle, as if it had been cut off"
STEP_BYTES = 512
_MEMORY_BYTES_MAX = 512 << 20
_IDLE_WAIT_MAX_S = 0.2  # how soon a line that was appended is noticed
# What identifies a file: so much of its beginning, and so much before a position.
_HEAD_PRINT_BYTES = 1 << 16
_TAIL_PRINT_BYTES = 1 << 10
_READS_MAX = 64  # reads a poll: how much is skipped or gathered before the caller has its turn
_OTHER = (
    "if it is another file now, begin with an empty checkpoint.folder (`record`: with another "
    "FILE, `bridge`: with another --cursor), or give it another name to keep what was learned"
)
_OPEN = "--until-end took the beginning of this line for a line, as the file ended within it"
log = structlog.get_logger(__name__)


class _Member(Protocol):
    """One compressed member of a file; several may follow each other."""

    eof: bool
    unused_data: bytes
    needs_input: bool  # of bzip2 and xz alone

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


_ZSTANDARD = b"\x28\xb5\x2f\xfd"
_MEMBER_BY_MAGIC: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=_MEMORY_BYTES_MAX),
    _ZSTANDARD: lambda: zstandard.ZstdDecompressor().decompressobj(),
    b"BZh": bz2.BZ2Decompressor,
}
DAMAGE = (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError)


class FileBytes:
    """Reads a file from front to back.

    A plain file can be read from anywhere and may grow; one that is `packed` cannot. `damage` says
    what ended a compressed file before its end. `whole` has where the last whole member ends, in
    the file and in what was decompressed.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        start = self._file.read(max(map(len, _MEMBER_BY_MAGIC)))
        self._file.seek(0)
        self._magic = _magic_of(start)
        self.packed = bool(self._magic)
        self.damage: str | None = None
        self.whole = (0, 0)
        self._n_unpacked = 0
        self._new_member = _MEMBER_BY_MAGIC.get(self._magic)
        self._member: _Member | None = None
        self._input = b""
        self._has_more = False  # the member can go on without further input

    def seek(self, position: int) -> None:
        """Continue at this byte; for plain files only."""
        self._file.seek(position)

    def stat(self) -> os.stat_result:
        """Return the state of the file on the disk now, whatever its name is."""
        return os.fstat(self._file.fileno())

    def size(self) -> int:
        """Return the size of the file on the disk now, in bytes."""
        return self.stat().st_size

    def peek(self, begin: int, end: int) -> bytes:
        """Return what stands at a place on the disk, and stay where reading is."""
        return os.pread(self._file.fileno(), max(0, end - begin), begin)

    def read(self, size: int) -> bytes:
        """Return about `size` bytes; none at the end or at a damaged place."""
        if self._new_member is None:
            return self._file.read(size)
        parts, length = list[bytes](), 0
        while length < size and self.damage is None and self._fill():
            parts.append(self._unpack(size - length))
            length += len(parts[-1])
        return b"".join(parts)

    def n_open(self) -> int:
        """Return how many of the bytes read are of a member that is not whole yet."""
        return self._n_unpacked - self.whole[1]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _fill(self) -> bool:
        """Read compressed bytes and open their member; return False at the end of the file."""
        if not (self._input or self._has_more):
            self._input = self._file.read(STEP_BYTES)
        if self._member is None:
            # Zeros may pad a file between and behind its members.
            while self._input and not (rest := self._input.lstrip(b"\0")):
                self._input = self._file.read(STEP_BYTES)
            if not self._input:
                return False
            self._input = rest
            self._member = _MEMBER_BY_MAGIC[self._magic]()
        if not (self._input or self._has_more):
            self.damage = CUT_OFF
        return self.damage is None

    def _unpack(self, size: int) -> bytes:
        """Decompress the bytes read; of those that bound it, up to a size."""
        assert self._member is not None
        most = (size,) if hasattr(self._member, "needs_input") else ()
        try:
            data = self._member.decompress(self._input, *most)
        except DAMAGE as error:
            self.damage = f"it is damaged there: {error}"
            return b""
        self._n_unpacked += len(data)
        self._has_more = bool(most) and not (self._member.eof or self._member.needs_input)
        if self._member.eof:
            self._input = self._member.unused_data
            self.whole = (self._file.tell() - len(self._input), self._n_unpacked)
            self._member = None
        else:
            self._input = b""
        return data


class FileSource(Source):
    """Reads a file once, or follows it as it grows.

    With `follow` it waits for what is appended to a plain file, and for its last line to be whole.
    Otherwise the end of the file is the end, and its last line needs no line end.

    A checkpoint knows a file by its first bytes and the last ones before the position; a packed
    one, which does not grow, by its last ones. A file that has others is a `ReplacedError`, also
    one that takes the name, or is written over, while it is followed. A copy with the same bytes is
    the same file, and is read on.

    The format of the records is recognised by the first 256 KiB. A followed file that has no whole
    line yet is taken for what it looks like; a first line that says otherwise is a `SourceError`,
    as the decoder stands by then, and the next start recognises it. `wait` is given seconds. A file
    that cannot be read is a `SourceError`.
    """

    def __init__(
        self,
        path: Path,
        settings: FileSettings,
        *,
        follow: bool = False,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._path = Path(path)
        self.name = f"file:{self._path.name}"
        self.partition = Partition(self.name, 0)
        self._settings = settings
        self._wait = wait
        self._finished = False
        self._pending = b""
        self._bytes = self._opened()
        self._follow = follow and not self._bytes.packed
        head = self._read(HEAD_BYTES)
        self._bytes.close()
        self._head = self._tail = b""  # the first bytes on the disk; the last before `_position`
        self._facts = LogFacts()
        self._is_gone = self._is_replaced = False
        self.record_format, self._first = self._recognised(head)
        self._is_guessed = self._follow and settings.format != "jsonl" and not has_line(head)
        self._split = split_csv if self.record_format.kind == "csv" else split_lines
        self._position = self._skip_to = self._size = 0
        self._open_end: int | None = None  # where it ended amid a line that was handed over

    def resume(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Take what identifies the file that was read before."""
        self._facts = logs.get(self.partition, self._facts)

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin at the partition's position, or at the first record.

        A file that is not the one that the position is from is a `ReplacedError`.
        """
        self._bytes = self._opened()
        self._size = self._bytes.size()
        self._skip_to = max(position_of(self.partition) or 0, self._first)
        self._open_end = self._facts.open_end
        self._is_amid = self._open_end == self._skip_to  # the rest of that line is passed over
        try:
            if not self._bytes.packed:
                self._refuse_shorter(self._skip_to, self._size)
            self._refuse_other(self._facts.head, _HEAD_PRINT_BYTES)
            self._refuse_other(self._facts.tail, _TAIL_PRINT_BYTES)
        except SourceError:
            self._bytes.close()
            raise
        self._begin()

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next batch; at the end, wait up to `timeout_s` and return none.

        A damaged place of a packed file is a `SourceError`, once all before it was handed over; so
        is a file that cannot be read or has become shorter.
        """
        for _ in range(_READS_MAX):
            if self._finished:
                break
            data = self._unchanged(self._read(self._settings.batch_bytes))
            if self._is_guessed:
                data = self._settled(data)
            batch = self._batch(self._behind_skipped(data)) if data else self._end()
            if batch is not None:
                return [batch]
            if not data:
                break
        else:
            return []
        self._wait(min(timeout_s, _IDLE_WAIT_MAX_S))
        return []

    def at_end(self) -> bool:
        """Return whether everything up to the end at opening has been returned."""
        return self._finished or (self._follow and self._position >= self._size)

    def logs(self, positions: Mapping[Partition, int]) -> Mapping[Partition, LogFacts]:
        """Return what identifies the file up to where it has been learned."""
        if self._bytes.damage is not None:  # an undamaged copy has other bytes, and is welcome
            return {self.partition: LogFacts(self._first)}
        at = self._size if self._bytes.packed else positions.get(self.partition)
        if at is not None and self._head and not self._is_replaced:
            begin = max(0, at - _TAIL_PRINT_BYTES)
            with contextlib.suppress(OSError, ValueError):  # closed: the checkpoint knew it before
                self._facts = LogFacts(
                    self._first,
                    head=Fingerprint.of(0, self._head[:at]),
                    tail=Fingerprint.of(begin, self._bytes.peek(begin, at)),
                    open_end=self._open_end,
                )
        return {} if self._facts.head is None else {self.partition: self._facts}

    def trouble(self) -> str | None:
        """Return the progress of decompressing up to the position, or that the file is gone."""
        if self._is_gone:
            return f"{self._path}: was renamed or deleted; what is appended to it is still read"
        if self._position < self._skip_to:
            return f"{self._path}: unpacking to byte {self._skip_to}, now at {self._position}"
        return None

    def close(self) -> None:
        """Close the file."""
        self._bytes.close()

    def _opened(self) -> FileBytes:
        """Open the file, or raise `SourceError`."""
        try:
            # Opening a named pipe could block for ever.
            regular = stat.S_ISREG(self._path.stat().st_mode)
            opened = FileBytes(self._path) if regular else None
        except OSError as error:
            raise SourceError(
                f"{self._path}: cannot be opened ({error.strerror}); check the path"
            ) from error
        if opened is None:
            raise SourceError(
                f"{self._path}: is not a regular file; name a file, or redirect it to standard "
                "input and name `stdin` as the source"
            )
        return opened

    def _begin(self) -> None:
        """Take the first bytes, and be at the position to begin at; a packed file is read to it."""
        n_head = _HEAD_PRINT_BYTES if self._bytes.packed else min(_HEAD_PRINT_BYTES, self._skip_to)
        self._head = self._bytes.peek(0, n_head)
        if self._bytes.packed:
            return
        self._bytes.seek(self._skip_to)
        self._position = self._skip_to
        self._tail = self._bytes.peek(max(0, self._skip_to - _TAIL_PRINT_BYTES), self._skip_to)

    def _recognised(self, head: bytes) -> tuple[RecordFormat, int]:
        """Return the format, and where the first record begins; one not read: `SourceError`."""
        found, first = recognise(head, self._settings)
        if (why := why_not_read(head, found, self._settings)) is not None:
            raise SourceError(f"{self._path}: {why}")
        return found, first

    def _settled(self, data: bytes) -> bytes:
        """Recognise the format once a first line is whole, and read again from where it begins.

        Until then no record has been handed over. Another format than was taken for it is a
        `SourceError`.
        """
        head = self._bytes.peek(0, HEAD_BYTES)
        packed = bool(_magic_of(head))
        if not packed and not has_line(head):
            return data
        found, first = (None, 0) if packed else self._recognised(head)
        if found != self.record_format:
            columns = ", ".join(found.columns) if found else ""
            what = f"CSV with the columns {columns}" if columns else "packed or JSON lines"
            raise SourceError(
                f"{self._path}: is {what}, which its first bytes did not show yet when it was "
                "opened; nothing of it has been read: start again, and all of it is"
            )
        self._is_guessed = False
        self._first = first
        self._skip_to = max(self._skip_to, first)
        self._pending = b""
        self._begin()
        return self._read(self._settings.batch_bytes)

    def _read(self, size: int) -> bytes:
        """Read on, or raise `SourceError`."""
        try:
            return self._bytes.read(size)
        except OSError as error:
            raise SourceError(
                f"{self._path}: reading failed after byte {self._position} ({error.strerror}); "
                "once the disk is well, start again, and it goes on at the checkpoint"
            ) from error

    def _behind_skipped(self, data: bytes) -> bytes:
        """Return the part of the data behind the position to begin at."""
        skipped = min(max(self._skip_to - self._position, 0), len(data))
        self._position += skipped
        return data[skipped:]

    def _batch(self, data: bytes, *, last: bool = False) -> RawColumns | None:
        """Return the whole records read and not returned yet, None if there is none."""
        buffer = self._pending + data
        if self._is_amid:
            buffer = self._behind_line(buffer)
        records = self._split(buffer, last=last)
        begin = self._position
        self._pass(buffer[: records.consumed])
        self._pending = buffer[records.consumed :]
        if not len(records.starts):
            return None
        offsets = records.starts + begin
        return raw_columns(self.partition, buffer, records, offsets, self._position)

    def _pass(self, data: bytes) -> None:
        """Move the position behind some bytes."""
        self._position += len(data)
        if not self._bytes.packed and len(self._head) < _HEAD_PRINT_BYTES:  # it may have grown
            self._head = (self._head + data)[:_HEAD_PRINT_BYTES]
        self._tail = (self._tail + data[-_TAIL_PRINT_BYTES:])[-_TAIL_PRINT_BYTES:]

    def _behind_line(self, data: bytes) -> bytes:
        """Return what stands behind the rest of a line whose beginning was handed over as one."""
        rest, line_break, behind = data.partition(b"\n")
        if rest.strip() and not self.lost_messages:
            self.lost_messages = 1
            log.error("rest_of_line_passed_over", file=self.name, byte=self._open_end, why=_OPEN)
        self._is_amid = not line_break
        self._pass(rest + line_break)
        return behind

    def _end(self) -> RawColumns | None:
        """Handle the end: take the last line, or raise for damage or a replaced file."""
        at = self._position + len(self._pending)
        if self._bytes.damage is not None:
            raise SourceError(
                f"{self._path}: cannot be unpacked behind byte {at}: {self._bytes.damage}; all "
                f"whole records before it are handed over. Get an undamaged copy and start again "
                f"(it goes on at byte {self._position}), or unpack what can be and read that"
            )
        if self._follow or at < self._skip_to:
            self._refuse_shorter(at, self._bytes.size() if self._follow else at)
            if self._follow:
                self._check_name(at)
            return None
        batch = self._batch(b"", last=True)
        self._finished = not self._pending
        if self._finished and batch is not None:
            self._open_end = self._position
        return batch

    def _refuse_shorter(self, needed: int, size: int) -> None:
        """Raise `SourceError` if the file is too short to be the one that was read before."""
        if size < (needed := max(needed, self._skip_to)):
            self._is_replaced = True
            raise ReplacedError(
                f"{self._path}: has {size} bytes, but was read up to byte {needed} before; {_OTHER}"
            )

    def _refuse_other(self, known: Fingerprint | None, n_max: int) -> None:
        """Raise `ReplacedError` if the file does not have the bytes that the checkpoint knows."""
        if known is None:
            return
        found = self._bytes.peek(known.begin, min(known.end, known.begin + n_max))
        if known != Fingerprint.of(known.begin, found):
            self._is_replaced = True
            raise ReplacedError(
                f"{self._path}: its bytes {known.begin} to {known.end} are not those that were "
                f"read before; {_OTHER}"
            )

    def _unchanged(self, data: bytes) -> bytes:
        """Return what was read, anew behind the last whole line if that is not what it was."""
        begin, known = self._position - len(self._tail), self._tail + self._pending
        found = self._bytes.peek(begin, begin + len(known)) if self._follow else known
        if not found.startswith(self._tail):
            self._is_replaced = True
            raise ReplacedError(
                f"{self._path}: was written over while it was followed; all whole lines up to byte "
                f"{self._position} of what it was are learned, and none of what it is; {_OTHER}"
            )
        if found == known:
            return data
        self._pending = b""
        self._bytes.seek(self._position)
        return self._read(self._settings.batch_bytes)

    def _check_name(self, at: int) -> None:
        """Go on in a copy that took the followed file's name; any other is a `ReplacedError`."""
        try:
            named = self._path.stat()
        except FileNotFoundError:
            self._is_gone = True
            return
        self._is_gone = False
        if os.path.samestat(named, self._bytes.stat()):
            return
        other = self._opened()
        begin = self._position - len(self._tail)
        ours = self._head, self._tail + self._pending
        if other.packed or ours != (other.peek(0, len(self._head)), other.peek(begin, at)):
            other.close()
            raise ReplacedError(
                f"{self._path}: another file has taken its name; all whole lines of the old one up "
                f"to byte {self._position} are learned, and none of the new one; {_OTHER}"
            )
        other.seek(at)
        self._bytes.close()
        self._bytes = other
        log.info("file_replaced_by_copy", path=str(self._path), position=self._position)


def _magic_of(start: bytes) -> bytes:
    """Return the magic bytes of what packed a file that begins so; none if nothing did."""
    if start[1:4] == b"\x2a\x4d\x18" and start[0] >> 4 == 5:  # a skippable frame
        return _ZSTANDARD
    return next(filter(start.startswith, _MEMBER_BY_MAGIC), b"")


# ---- standard input ------------------------------------------------------------------------------


class StdinSource(Source):
    """Reads JSON lines from standard input, which cannot be read twice.

    Its one partition is `stdin[0]`, an offset is a record's number. A pipe has no memory: a daemon
    that starts again counts from its checkpoint's position, so numbers stay unique, but what the
    pipe held when it ended is lost. If that matters, read a file or Kafka.

    A `stream` needs a file descriptor. `clock` and `wait` count in seconds. Settings that ask for
    CSV are a `ConfigError`, a missing standard input is a `SourceError`.
    """

    def __init__(
        self,
        settings: FileSettings,
        stream: BinaryIO | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        if settings.format == "csv":
            raise ConfigError(
                "file.format: found csv, but standard input takes JSON lines; write the CSV to a "
                "file and set `source: file:PATH`"
            )
        self.name = "stdin"
        self.partition = Partition(self.name, 0)
        encoding = "utf-8" if settings.encoding == "auto" else settings.encoding
        self.record_format = RecordFormat("jsonl", (), encoding)
        self._settings = settings
        self._stream = stream
        self._clock = clock
        self._wait = wait
        self._fd = self._descriptor()
        self._selector: selectors.BaseSelector | None = None
        self._pending = b""
        self._position = 0
        self._ended = False
        self._is_start = True  # a byte order mark may stand there

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin; the first record gets the checkpoint's position as its number, or 0."""
        self._position = position_of(self.partition) or 0
        # Not epoll, which refuses the regular file of `streamnb run < tweets.jsonl`.
        self._selector = selectors.PollSelector()
        self._selector.register(self._fd, selectors.EVENT_READ)

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the whole lines that came, waiting up to `timeout_s` for the first.

        An input that cannot be read is a `SourceError`.
        """
        assert self._selector is not None
        if self.at_end():
            self._wait(timeout_s)
            return []
        until = self._clock() + timeout_s
        while not self.at_end():
            if not self._ended and not self._selector.select(max(0.0, until - self._clock())):
                break
            batch = self._batch()
            if batch is not None:
                return [batch]
            if self._clock() >= until:
                break
        return []

    def at_end(self) -> bool:
        """Return whether the input has ended and all of it has been returned."""
        return self._ended and not self._pending

    def close(self) -> None:
        """Stop polling the input; whoever opened it closes it."""
        if self._selector is not None:
            self._selector.close()

    def _descriptor(self) -> int:
        """Return the file descriptor to read from."""
        try:
            return (self._stream or sys.stdin).fileno()
        except (AttributeError, OSError, ValueError) as error:  # None, without one, closed
            raise SourceError(
                f"stdin: there is no standard input to read ({error}); pipe JSON lines into the "
                "command, or name another `source`"
            ) from error

    def _batch(self) -> RawColumns | None:
        """Read once and return the whole lines, None if there is none."""
        if not self._ended:
            try:
                data = os.read(self._fd, self._settings.batch_bytes)
            except BlockingIOError:  # another reader of a non-blocking pipe was faster
                return None
            except OSError as error:
                raise SourceError(
                    f"stdin: reading failed after record {self._position} ({error.strerror}); "
                    "start the pipe again"
                ) from error
            self._ended = not data
            self._pending += data
            if self._is_start and (self._ended or not BOM[:-1].startswith(self._pending)):
                self._pending = self._pending.removeprefix(BOM)
                self._is_start = False
        buffer = self._pending
        records = split_lines(buffer, last=self._ended)
        self._pending = buffer[records.consumed :]
        if not (n := len(records.starts)):
            return None
        offsets = np.arange(self._position, self._position + n, dtype=np.int64)
        self._position += n
        return raw_columns(self.partition, buffer, records, offsets, self._position)
