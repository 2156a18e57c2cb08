"""Files and folders that hold people's texts: only their owner may read them.

Modes are set on the open file before anything is written, so no umask changes them. Texts to erase
are overwritten in place.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_BLOCK_BYTES = 1 << 20
_POPULATE_READ = 22  # of Linux from 5.14 on: pages are there, or it is an error and no signal
# So long pages are taken to stay: to ask looks at each of a file, 0.2 ms for one of 4 MB.
_PRESENT_S = 2.0
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOMEM}
_SHARED = 0o077  # what others than the owner may do
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def open_private(path: Path, flags: int) -> int:
    """Open a file that only its owner may read, create it if missing; return its descriptor.

    `flags` are those of `os.open`. A file of another owner keeps its mode, and so does what is no
    regular file, such as /dev/null.
    """
    fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    with contextlib.suppress(PermissionError):
        found = os.fstat(fd).st_mode
        if stat.S_ISREG(found) and stat.S_IMODE(found) != FILE_MODE:
            os.fchmod(fd, FILE_MODE)
    return fd


def lock_file(fd: int, path: Path) -> bool:
    """Lock an open file for this process; return False if another one has locked it.

    A file system that knows no locks is logged, and counts as locked.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        log.warning("file_without_lock", path=str(path), detail=str(error))
    return True


def write_private(path: Path, data: bytes) -> None:
    """Write a file, and sync what is in it; its name is synced by who gives it the last one."""
    fd = open_private(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW)
    with open(fd, "wb") as file:  # noqa: PTH123 -- of a descriptor
        file.write(data)
        file.flush()
        os.fsync(fd)


def replace_private(path: Path, data: bytes) -> None:
    """Replace a file so that after a kill or a power cut the old or the new one is there, whole."""
    fresh = path.with_name(f"{path.name}.new")
    write_private(fresh, data)
    fresh.replace(path)
    sync_folder(path.absolute().parent)


def keep_aside(path: Path, data: bytes) -> Path:
    """Keep a damaged file's bytes beside it, behind those of earlier times; return where.

    The file stays, so that a kill loses nothing; bytes that are kept already are not added again.
    """
    aside = path.with_name(f"{path.name}.damaged")
    before = aside.read_bytes() if aside.exists() else b""
    if data not in before:
        replace_private(aside, before + data)
    return aside


def read_regular(path: Path, bytes_max: int) -> bytes:
    """Return what a file holds; one that is none or has more bytes than it may is a `ValueError`.

    Nothing is waited for, as it would be for the other end of a named pipe.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:  # noqa: PTH123 -- of a descriptor
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise ValueError(f"it has more than {bytes_max} bytes")
    return data


class MappedFile:
    """The first bytes of a file, held open to be read at will; a shorter one is a `ValueError`."""

    def __init__(self, path: Path, n_bytes: int) -> None:
        with path.open("rb") as file:
            self._mapped = mmap.mmap(file.fileno(), n_bytes, access=mmap.ACCESS_READ)
        self._n_bytes, self._present_until_s = n_bytes, 0.0

    def data(self) -> NDArray[np.uint8]:
        """Return the bytes, once they are there.

        To touch what was cut off since, or what the disk does not read, would end the process.
        """
        self._check_size()
        if (now_s := time.monotonic()) >= self._present_until_s:
            try:
                self._mapped.madvise(_POPULATE_READ)
            except OSError as error:
                self._check_size()  # it may have been cut in between
                if error.errno == errno.EFAULT:
                    raise OSError(errno.EIO, "the disk does not read it") from error
                if error.errno != errno.EINVAL:
                    raise
            self._present_until_s = now_s + _PRESENT_S
        return np.frombuffer(self._mapped, np.uint8)

    def _check_size(self) -> None:
        if self._mapped.size() < self._n_bytes:
            raise ValueError("it was cut from outside")


class MappedFiles:
    """Files that are mapped when they are read: each is held open, so only a few are at a time.

    The one that was read longest ago leaves first, and all do if the system has no more to give.
    """

    def __init__(self, n_max: int) -> None:
        self._n_max = n_max
        self._files: dict[Path, MappedFile] = {}  # in the order in which they were read last

    def data(self, path: Path, n_bytes: int) -> NDArray[np.uint8]:
        """Return the first bytes of a file, as `MappedFile.data` does; let go of them soon."""
        file = self._files.pop(path, None)
        while len(self._files) >= self._n_max:
            del self._files[next(iter(self._files))]
        if file is None:
            try:
                file = MappedFile(path, n_bytes)
            except OSError as error:
                if error.errno not in _EXHAUSTED or not self._files:
                    raise
                self._files.clear()
                file = MappedFile(path, n_bytes)
        self._files[path] = file
        return file.data()

    def close(self, path: Path) -> None:
        """Close a file, if it is held open."""
        self._files.pop(path, None)


def make_private_folder(folder: Path) -> None:
    """Make a folder and its missing parents for their owner alone, safe from a power cut.

    A folder that exists keeps its mode: whoever made it decides who may enter.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        try:
            each.mkdir(FOLDER_MODE)
        except FileExistsError:  # somebody else made it meanwhile; a file fails below
            continue
        each.chmod(FOLDER_MODE)
        sync_names(each.parent)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))


def tighten(paths: Iterable[Path]) -> None:
    """Restrict files that others may access, and log it: an older version let them.

    Links and anything but regular files are left alone.
    """
    found: list[str] = []
    refused: list[str] = []
    for path in paths:
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode) or not status.st_mode & _SHARED:
                continue
            path.chmod(FILE_MODE)
            found.append(str(path))
        except FileNotFoundError:
            continue
        except OSError as error:
            refused.append(f"{path} ({error.strerror})")
    if found:
        log.warning(
            "files_tightened",
            paths=found,
            detail="they hold people's texts, and others could read them; now their owner alone",
        )
    if refused:
        log.error("files_not_tightened", paths=refused, detail="others may read people's texts")


class Overwrites:
    """What was overwritten of a file that another thread may be about to write again.

    Whoever does holds the `lock` from reading to writing, or it would bring back what was erased.
    No line was overwritten that ends behind `end`.
    """

    def __init__(self) -> None:
        self.lock: AbstractContextManager[Any] = threading.Lock()
        self.end = 0


def overwrite_lines(
    fd: int,
    end: int,
    replaced: Callable[[bytes, int], bytes | None],
    goes_on: Callable[[], bool] = lambda: True,
    *,
    torn: bool = False,
    overwrites: Overwrites | None = None,
) -> bool:
    """Overwrite lines of a file in place; a shorter line is padded with blanks.

    No line moves, so other readers are not disturbed. A line is first blanked from where the two
    differ, and then written: a power cut leaves the old line with blanks in it, or the new one, but
    never a mixture of both. `replaced` must recognise a torn line by its beginning, which stays.

    `fd` is open for reading and writing, and not for appending; the last line to check ends at
    `end`, and lines may be appended behind it meanwhile. `replaced` is called with a line without
    its end, and its offset, and returns the new line, or None to keep it; a longer one becomes an
    empty JSON object. Returns whether the end was reached before `goes_on` returned False; what was
    overwritten is synced in any case. With `torn`, a last line without an end is one too. If
    reading, writing or syncing fails, calling it again overwrites the lines again: the system may
    call a file safe whose sync failed before. In `overwrites` is noted what changes.
    """
    begin, held, overwrites = 0, b"", overwrites or Overwrites()
    while begin + len(held) < end:
        if not goes_on():
            return False
        read = begin + len(held)
        data = os.pread(fd, min(_BLOCK_BYTES, end - read), read)
        if not data:  # the file is shorter by now
            break
        *lines, held = (held + data).split(b"\n")
        if torn and held and read + len(data) >= end:
            lines, held = [*lines, held], b""
        blanks, texts = [], []
        for line in lines:
            # A line that is `{` and blanks was blanked for `{}`, and the sync failed.
            new = b"{}" if line.rstrip(b" ") == b"{" else replaced(line, begin)
            if new is not None:
                new = (new if len(new) <= len(line) else b"{}").ljust(len(line))
                n_same = next(i for i in range(len(line) + 1) if line[: i + 1] != new[: i + 1])
                blanks.append((begin + n_same, b" " * (len(line) - n_same)))
                texts.append((begin, new))
            begin += len(line) + 1
        if texts:
            with overwrites.lock:
                last, new = texts[-1]
                overwrites.end = max(overwrites.end, last + len(new))
                _write_safely(fd, blanks)
                try:
                    _write_safely(fd, texts)
                except OSError:
                    _write(fd, blanks)  # else the next call would find the lines as they should be
                    raise
    return True


def overwrite_file(
    path: Path,
    replaced: Callable[[bytes, int], bytes | None],
    goes_on: Callable[[], bool],
    *,
    torn: bool,
    overwrites: Overwrites,
) -> bool:
    """Overwrite lines of a file as `overwrite_lines` does; of one that is none, or left, none."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:  # it was moved away
        return True
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return True
        return overwrite_lines(
            fd, status.st_size, replaced, goes_on, torn=torn, overwrites=overwrites
        )
    finally:
        os.close(fd)


def _write_safely(fd: int, changes: Iterable[tuple[int, bytes]]) -> None:
    _write(fd, changes)
    os.fdatasync(fd)


def _write(fd: int, changes: Iterable[tuple[int, bytes]]) -> None:
    for at, data in changes:
        write_at(fd, data, at)


def write_at(fd: int, data: bytes | memoryview, at: int) -> None:
    """Write all of `data` from an offset on."""
    left = memoryview(data)
    while left:
        n = os.pwrite(fd, left, at)
        left, at = left[n:], at + n


def sync_names(folder: Path) -> None:
    """Sync a folder as `sync_folder` does, unless it may not be read, as a drop box may not."""
    with contextlib.suppress(PermissionError):
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Have the disk know which files a folder has."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- what several processes agree on -------------------------------------------------------------

_LEFT = re.compile(r"\.[0-9]{2}-[0-9a-f]{16}\.(new|folder)")  # by a kill amid giving a name
_LEFT_S = 3600.0  # longer than anybody writes
_INNER = "label"  # the file in a folder that stands for one, on a file system without hard links


def first_written(path: Path, data: bytes, writer: str) -> bytes:
    """Return what a numbered file has: this data, or what another process wrote there before.

    One alone can make it, and it is whole from the first moment on. `writer` names this process.
    """
    make_private_folder(path.parent)
    if not path.exists():
        fresh = path.parent / f".{path.name}-{writer}.new"
        write_private(fresh, data)
        _remove_left(path.parent, fresh.stat().st_mtime - _LEFT_S)
        with contextlib.suppress(FileExistsError):  # another process was faster
            _give_name(fresh, path)
        fresh.unlink(missing_ok=True)
    sync_folder(path.parent)  # before anybody relies on it: who made it may not have come so far
    own = path / _INNER if path.is_dir() else path
    return own.read_bytes()


def _give_name(fresh: Path, path: Path) -> None:
    """Give a whole file a name that nobody has; one that is taken is a `FileExistsError`.

    Without hard links a folder is made around the file: none replaces another that is not empty.
    """
    from streamnb.storage import NO_LINKS  # noqa: PLC0415 -- loading the library takes long

    try:
        os.link(fresh, path)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        around = fresh.with_suffix(".folder")
        make_private_folder(around)
        fresh.rename(around / _INNER)
        sync_folder(around)
        try:
            around.rename(path)
        except OSError as taken:
            shutil.rmtree(around)
            if taken.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
            raise FileExistsError(errno.EEXIST, "File exists", str(path)) from taken


def _remove_left(folder: Path, old_s: float) -> None:
    """Remove what kills amid giving names left, if it is older than a time."""
    with contextlib.suppress(OSError):  # another process may be at it too
        for path in folder.iterdir():
            if _LEFT.fullmatch(path.name) and path.stat().st_mtime < old_s:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
