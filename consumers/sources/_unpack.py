"""The bytes of a file, unpacked where its first bytes tell of gzip, bzip2, xz or Zstandard.

A packed file is fed to its unpacker in small steps. The step bounds the memory that a hostile file
can ask for (512 bytes of Zstandard can stand for 22 MB), and all that can be read before a damaged
place is handed over before the damage is told.
"""

from __future__ import annotations

import bz2
import lzma
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import zstandard

_STEP_BYTES = 512
_MEMORY_BYTES_MAX = 512 << 20


class _Member(Protocol):
    """One packed member of a file; several may follow each other."""

    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes) -> bytes: ...


def _gzip() -> _Member:
    return cast("_Member", zlib.decompressobj(wbits=31))


def _xz() -> _Member:
    return cast("_Member", lzma.LZMADecompressor(memlimit=_MEMORY_BYTES_MAX))


def _zstandard() -> _Member:
    return cast("_Member", zstandard.ZstdDecompressor().decompressobj())


def _bzip2() -> _Member:
    return cast("_Member", bz2.BZ2Decompressor())


_MEMBER_BY_MAGIC: dict[bytes, Callable[[], _Member]] = {
    b"\x1f\x8b": _gzip,
    b"\xfd7zXZ\x00": _xz,
    b"\x28\xb5\x2f\xfd": _zstandard,
    b"BZh": _bzip2,
}


class FileBytes:
    """Reads a file from front to back.

    Parameters
    ----------
    path : Path
        An existing file.

    Attributes
    ----------
    packed : bool
        Whether it is compressed. A plain file can be entered anywhere and may grow.
    damage : str or None
        What ended the reading of a packed file before its end.

    Raises
    ------
    OSError
        When the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        magic = self._file.read(max(map(len, _MEMBER_BY_MAGIC)))
        self._file.seek(0)
        kinds = [new for start, new in _MEMBER_BY_MAGIC.items() if magic.startswith(start)]
        self.packed = bool(kinds)
        self.damage: str | None = None
        self._new_member = kinds[0] if kinds else None
        self._member: _Member | None = None
        self._input = b""

    def seek(self, position: int) -> None:
        """Go on at this byte; for plain files only."""
        self._file.seek(position)

    def size(self) -> int:
        """Return how many bytes the file has now, as it lies on the disk."""
        return os.fstat(self._file.fileno()).st_size

    def read(self, size: int) -> bytes:
        """Return about `size` bytes, and none at the end or at a damaged place."""
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
        """Have packed bytes and a member to unpack them; False at the end of the file."""
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
            self.damage = "it ends in the middle, as if it had been cut off"
        return bool(self._input)

    def _unpack(self) -> bytes:
        """Unpack the bytes at hand."""
        assert self._member is not None
        try:
            data = self._member.decompress(self._input)
        except (zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError) as error:
            self.damage = f"it is damaged there: {error}"
            return b""
        if self._member.eof:
            self._input = self._member.unused_data
            self._member = None
        else:
            self._input = b""
        return data
