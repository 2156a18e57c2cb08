"""What SQLite writes itself, noted for a power cut: its calls pass through its default VFS."""

from __future__ import annotations

import _sqlite3
import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.power_cut import Change, PowerCut

_OK = 0
_CREATE, _MAIN_JOURNAL, _WAL = 0x4, 0x800, 0x80000  # flags of an open
_int, _long, _ptr, _text = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
# A name is a pointer here: SQLite keeps it, and reads on behind its end.
_OPEN = ctypes.CFUNCTYPE(_int, _ptr, _ptr, _ptr, _int, _ptr)
_DELETE = ctypes.CFUNCTYPE(_int, _ptr, _ptr, _int)
_WRITE = ctypes.CFUNCTYPE(_int, _ptr, _ptr, _int, _long)
_TRUNCATE = ctypes.CFUNCTYPE(_int, _ptr, _long)
_SYNC = ctypes.CFUNCTYPE(_int, _ptr, _int)


class _Vfs(ctypes.Structure):
    """The beginning of `sqlite3_vfs`."""

    _fields_ = (
        ("iVersion", _int), ("szOsFile", _int), ("mxPathname", _int), ("pNext", _ptr),
        ("zName", _text), ("pAppData", _ptr), ("xOpen", _ptr), ("xDelete", _ptr),
    )  # fmt: skip


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, of which four are replaced."""

    _fields_ = (
        ("iVersion", _int), ("xClose", _ptr), ("xRead", _ptr), ("xWrite", _ptr),
        ("xTruncate", _ptr), ("xSync", _ptr), ("others", _ptr * 13),
    )  # fmt: skip


class _File(ctypes.Structure):
    """`sqlite3_file`."""

    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class SqliteCalls:
    """Notes what SQLite does to the files of a folder in a `PowerCut` of it."""

    def __init__(self, folder: Path, cut: PowerCut) -> None:
        library = ctypes.CDLL(_sqlite3.__file__)  # finds what it is linked with, too
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        self._vfs = library.sqlite3_vfs_find(None).contents
        self._folder, self._cut = folder, cut
        self._open, self._delete = _OPEN(self._vfs.xOpen), _DELETE(self._vfs.xDelete)
        self._numbers: dict[int, int] = {}  # of files, by their address
        self._fresh: set[int] = set()  # addresses of logs whose names are not synced yet
        self._methods: dict[int, _Methods] = {}  # by the address of what they replace
        self._kept: list[Any] = []  # what C calls must not be collected

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note calls; all connections of files in the folder begin and end inside."""
        before = self._vfs.xOpen, self._vfs.xDelete
        new = _OPEN(self._on_open), _DELETE(self._on_delete)
        self._kept += new
        self._vfs.xOpen, self._vfs.xDelete = (ctypes.cast(each, _ptr).value for each in new)
        try:
            yield
        finally:
            self._vfs.xOpen, self._vfs.xDelete = before

    def _on_open(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        path = None if name is None else Path(ctypes.string_at(name).decode())
        is_ours = path is not None and path.is_relative_to(self._folder)
        is_new = is_ours and path is not None and not path.exists()
        done = self._open(vfs, name, file, flags, out)
        if path is None or not is_ours or done != _OK:
            return int(done)
        self._numbers[file] = number = self._cut.file(path.stat().st_ino, is_new=is_new)
        if is_new:
            self._cut.add(Change("enter", number, name=str(path.relative_to(self._folder))))
        if flags & _CREATE and flags & (_MAIN_JOURNAL | _WAL):
            self._fresh.add(file)  # SQLite syncs the folder with the first sync of these
        header = _File.from_address(file)
        address = ctypes.addressof(header.methods.contents)
        if address not in self._methods:
            self._methods[address] = self._replaced(header.methods.contents)
        header.methods = ctypes.pointer(self._methods[address])
        return _OK

    def _on_delete(self, vfs: int, name: int, sync: int) -> int:
        done = int(self._delete(vfs, name, sync))
        path = Path(ctypes.string_at(name).decode())
        if done == _OK and path.is_relative_to(self._folder):
            self._cut.add(Change("leave", name=str(path.relative_to(self._folder))))
            if sync:
                self._cut.add(Change("sync_names"))
        return done

    def _replaced(self, real: _Methods) -> _Methods:
        """Return the methods of a file with those replaced that change it."""
        write, truncate, sync = _WRITE(real.xWrite), _TRUNCATE(real.xTruncate), _SYNC(real.xSync)

        def on_write(file: int, data: int, n: int, at: int) -> int:
            change = Change("write", self._numbers[file], at=at, data=ctypes.string_at(data, n))
            self._cut.add(change)
            return int(write(file, data, n, at))

        def on_truncate(file: int, size: int) -> int:
            self._cut.add(Change("resize", self._numbers[file], at=size))
            return int(truncate(file, size))

        def on_sync(file: int, flags: int) -> int:
            done = int(sync(file, flags))
            self._cut.add(Change("sync", self._numbers[file]))
            if file in self._fresh:
                self._fresh.discard(file)
                self._cut.add(Change("sync_names"))
            return done

        made = _Methods.from_buffer_copy(real)
        new = _WRITE(on_write), _TRUNCATE(on_truncate), _SYNC(on_sync)
        self._kept += new
        made.xWrite, made.xTruncate, made.xSync = (ctypes.cast(each, _ptr).value for each in new)
        return made
