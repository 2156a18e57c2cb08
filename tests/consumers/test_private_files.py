"""Files and folders for their owner alone, whatever the umask."""

from __future__ import annotations

import errno
import mmap
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumers.private_files import (
    MappedFiles,
    make_private_folder,
    open_private,
    overwrite_lines,
    tighten,
)
from tests.system_calls import Call, hooked


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Let this process have a umask for a while."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    """Return a path's permissions, of a link its own."""
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_is_no_regular_file_keeps_its_mode(tmp_path: Path) -> None:
    """A device such as /dev/null is everybody's: to write to it does not close it to others."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    path.chmod(0o666)
    os.close(open_private(path, os.O_RDWR | os.O_TRUNC))
    assert mode(path) == 0o666


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_files_and_folders_have_the_same_modes_under_any_umask(tmp_path: Path, mask: int) -> None:
    """No umask widens or narrows what is made; folders that were there stay as they were."""
    tmp_path.chmod(0o755)
    path = tmp_path / "a" / "b" / "file"
    with umask(mask):
        make_private_folder(path.parent)
        os.close(open_private(path, os.O_RDWR))
    assert [mode(path), mode(path.parent), mode(tmp_path / "a")] == [0o600, 0o700, 0o700]
    make_private_folder(tmp_path)
    assert mode(tmp_path) == 0o755


def test_a_file_in_the_place_of_a_folder_is_said(tmp_path: Path) -> None:
    """A folder that cannot be made is an error, as a file stands there."""
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        make_private_folder(tmp_path / "file")


def test_links_are_not_followed_when_files_are_closed(tmp_path: Path) -> None:
    """What a link leads to is somebody else's; what is missing or closed already is not told."""
    (tmp_path / "theirs").touch(0o644)
    (tmp_path / "ours").touch(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with capture_logs() as logs:
        tighten(tmp_path / name for name in ("link", "ours", "absent"))
    assert (mode(tmp_path / "theirs"), logs) == (0o644, [])


class Cache:
    """A file as the system holds it, and the disk below: a sync that fails drops what was written.

    As with Linux: the pages count as written then, and no later sync tries them again.
    """

    def __init__(self, path: Path, failing_sync: int) -> None:
        self.disk = bytearray(path.read_bytes())
        self._unsynced: list[tuple[int, bytes]] = []
        self._left = failing_sync

    def note(self, call: Call, act: Callable[..., Any]) -> Any:
        """Carry out a call on the file, and on the disk what it does there."""
        done = act()
        if call.name == "pwrite":
            self._unsynced.append((call.args[2], bytes(call.args[1])))
        elif call.name == "fdatasync":
            unsynced, self._unsynced = self._unsynced, []
            self._left -= 1
            if self._left == 0:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            for at, data in unsynced:
                self.disk[at : at + len(data)] = data
        return done


def without_text(line: bytes, _: int) -> bytes | None:
    """Return a line that begins with an id without its text, also if that is half overwritten."""
    new = b'{"id":1}'
    return None if line.rstrip() == new or not line.startswith(new[:-1]) else new


def emptied(line: bytes, _: int) -> bytes | None:
    """Return an empty object for a line of that id: no more than its brace stays."""
    return b"{}" if line.startswith(b'{"id":1') else None


@pytest.mark.parametrize("failing_sync", [1, 2])
@pytest.mark.parametrize(("replaced", "left"), [(without_text, b'{"id":1}'), (emptied, b"{}")])
def test_lines_whose_sync_failed_are_overwritten_again(
    tmp_path: Path, replaced: Callable[[bytes, int], bytes | None], left: bytes, failing_sync: int
) -> None:
    """The system takes the file for safe after a sync that failed; the disk has the old line."""
    path = tmp_path / "lines"
    path.write_bytes(b'{"id":1,"text":"secret"}\n{"id":2,"text":"kept"}\n')
    cache = Cache(path, failing_sync)
    with hooked(tmp_path, cache.note), path.open("r+b") as file:
        with pytest.raises(OSError, match="Input/output"):
            overwrite_lines(file.fileno(), 48, replaced)
        assert overwrite_lines(file.fileno(), 48, replaced)
    assert cache.disk == left.ljust(24) + b'\n{"id":2,"text":"kept"}\n'
    assert path.read_bytes() == cache.disk


def test_the_file_that_was_read_longest_ago_is_closed(tmp_path: Path) -> None:
    """A few are held open; each can be read again."""
    files, paths = MappedFiles(2), [tmp_path / f"file{k}" for k in range(4)]
    for k, path in enumerate(paths):
        path.write_bytes(b"%d" % k * 5000)
    for k in (0, 1, 0, 2, 3, 0, 0, 1):
        assert files.data(paths[k], 5000).tobytes() == b"%d" % k * 5000
        maps = Path("/proc/self/maps").read_text()
        assert str(paths[k]) in maps
        assert sum(str(path) in maps for path in paths) <= 2
    assert [str(path) in maps for path in paths] == [True, True, False, False]
    files.close(paths[1])
    assert str(paths[1]) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_files_are_closed_where_the_system_has_no_more_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It is tried once more without them; if that is of no use, it is an error."""
    files, (first, second, third) = MappedFiles(9), (tmp_path / name for name in "abc")
    for path in (first, second, third):
        path.write_bytes(b"text")
    files.data(first, 4)
    mapped = mmap.mmap

    def failing(*arguments: Any, **more: Any) -> mmap.mmap:
        if str(first) in Path("/proc/self/maps").read_text():
            raise OSError(number, os.strerror(number))
        return mapped(*arguments, **more)

    monkeypatch.setattr(mmap, "mmap", failing)
    assert files.data(second, 4).tobytes() == b"text"
    held = files.data(first, 4)  # by somebody else, so nothing that is closed helps
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):
        files.data(third, 4)
    assert held.tobytes() == b"text"
