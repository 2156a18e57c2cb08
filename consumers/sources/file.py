"""A file as a source, decompressed if its first bytes are those of gzip, bzip2, xz or Zstandard.

A compressed file is decompressed in small steps. The step bounds the memory that a hostile file can
ask for (512 bytes of Zstandard can stand for 22 MB), and everything before a damaged place is
returned before the damage is reported.
"""

from __future__ import annotations

import bz2
import lzma
import os
import stat
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import zstandard

from consumers.config.settings import FileSettings
from consumers.decode.record_format import recognise
from consumers.errors import SourceError
from consumers.messages import Partition, RawColumns
from consumers.sources.base import Source
from consumers.sources.records import raw_columns, split_csv, split_lines

CUT_OFF = "it ends in the middle, as if it had been cut off"
_STEP_BYTES = 512
_MEMORY_BYTES_MAX = 512 << 20


class _Member(Protocol):
    """One compressed member of a file; several may follow each other."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes) -> bytes: ...


_MEMBER_BY_MAGIC: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(memlimit=_MEMORY_BYTES_MAX),
    b"\x28\xb5\x2f\xfd": lambda: zstandard.ZstdDecompressor().decompressobj(),
    b"BZh": bz2.BZ2Decompressor,
}


class FileBytes:
    """Reads a file from front to back.

    A plain file can be read from anywhere and may grow; one that is `packed` cannot. `damage` says
    what ended a compressed file before its end. `whole` has where the last whole member ends, in
    the file and in what was decompressed.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        magic = self._file.read(max(map(len, _MEMBER_BY_MAGIC)))
        self._file.seek(0)
        kinds = [new for start, new in _MEMBER_BY_MAGIC.items() if magic.startswith(start)]
        self.packed = bool(kinds)
        self.damage: str | None = None
        self.whole = (0, 0)
        self._n_unpacked = 0
        self._new_member = kinds[0] if kinds else None
        self._member: _Member | None = None
        self._input = b""

    def seek(self, position: int) -> None:
        """Continue at this byte; for plain files only."""
        self._file.seek(position)

    def size(self) -> int:
        """Return the size of the file on the disk now, in bytes."""
        return os.fstat(self._file.fileno()).st_size

    def read(self, size: int) -> bytes:
        """Return about `size` bytes; none at the end or at a damaged place."""
        if self._new_member is None:
            return self._file.read(size)
        parts: list[bytes] = []
        length = 0
        while length < size and self.damage is None and self._fill():
            parts.append(self._unpack())
            length += len(parts[-1])
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _fill(self) -> bool:
        """Read compressed bytes and open their member; return False at the end of the file."""
        self._input = self._input or self._file.read(_STEP_BYTES)
        if self._member is None:
            # Zeros may pad a file between and behind its members.
            while self._input and not (rest := self._input.lstrip(b"\0")):
                self._input = self._file.read(_STEP_BYTES)
            if not self._input:
                return False
            self._input = rest
            assert self._new_member is not None
            self._member = self._new_member()
        if not self._input:
            self.damage = CUT_OFF
        return bool(self._input)

    def _unpack(self) -> bytes:
        """Decompress the bytes read."""
        assert self._member is not None
        try:
            data = self._member.decompress(self._input)
        except (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError) as error:
            self.damage = f"it is damaged there: {error}"
            return b""
        self._n_unpacked += len(data)
        if self._member.eof:
            self._input = self._member.unused_data
            self.whole = (self._file.tell() - len(self._input), self._n_unpacked)
            self._member = None
        else:
            self._input = b""
        return data


_HEAD_BYTES = 1 << 18
_IDLE_WAIT_S_MAX = 0.2  # how soon a line that was appended is noticed
_READS_MAX = 64  # reads a poll: how much is skipped or gathered before the caller has its turn


class FileSource(Source):
    """Reads a file once, or follows it as it grows.

    With `follow` it waits for what is appended to a plain file, and for its last line to be whole;
    a file put in its place under the same name is not noticed. Otherwise the end of the file is the
    end, and its last line needs no line end.

    The format of the records is recognised by the first 256 KiB. `wait` is given seconds. A file
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
        head = self._read(_HEAD_BYTES)
        self._bytes.close()
        self.record_format, self._first = recognise(head, settings)
        self._split = split_csv if self.record_format.kind == "csv" else split_lines
        self._position = self._skip_to = self._size = 0

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin at the partition's position, or at the first record.

        A file that is too short to be the one that the position is from is a `SourceError`.
        """
        self._bytes = self._opened()
        self._size = self._bytes.size()
        self._skip_to = max(position_of(self.partition) or 0, self._first)
        self._position = 0
        self._pending = b""
        self._finished = False
        if self._bytes.packed:
            return
        try:
            self._refuse_shorter(self._skip_to, self._size)
        except SourceError:
            self._bytes.close()
            raise
        self._bytes.seek(self._skip_to)
        self._position = self._skip_to

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next batch; at the end, wait up to `timeout_s` and return none.

        A damaged place of a packed file is a `SourceError`, once all before it was handed over; so
        is a file that cannot be read or has become shorter.
        """
        for _ in range(_READS_MAX):
            if self._finished:
                break
            data = self._read(self._settings.batch_bytes)
            batch = self._batch(self._behind_skipped(data)) if data else self._end()
            if batch is not None:
                return [batch]
            if not data:
                break
        else:
            return []
        self._wait(min(timeout_s, _IDLE_WAIT_S_MAX))
        return []

    def at_end(self) -> bool:
        """Return whether everything up to the end at opening has been returned."""
        return self._finished or (self._follow and self._position >= self._size)

    def trouble(self) -> str | None:
        """Return the progress while a compressed file is decompressed up to its position."""
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
                f"{self._path}: cannot be opened ({error.strerror}); check the path in `source`"
            ) from error
        if opened is None:
            raise SourceError(
                f"{self._path}: is not a regular file; name a file, or set `source: stdin` and "
                "redirect it there"
            )
        return opened

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
        records = self._split(buffer, last=last)
        begin = self._position
        self._position += records.consumed
        self._pending = buffer[records.consumed :]
        if not len(records.starts):
            return None
        offsets = records.starts + begin
        return raw_columns(self.partition, buffer, records, offsets, self._position)

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
            return None
        batch = self._batch(b"", last=True)
        self._finished = not self._pending
        return batch

    def _refuse_shorter(self, needed: int, size: int) -> None:
        """Raise `SourceError` if the file is too short to be the one that was read before."""
        needed = max(needed, self._skip_to)
        if size < needed:
            raise SourceError(
                f"{self._path}: has {size} bytes, but was read up to byte {needed} before; "
                "if it is another file now, begin with an empty checkpoint.folder"
            )
