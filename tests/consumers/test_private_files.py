"""Files and folders for their owner alone, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from consumers.private_files import make_private_folder, open_private, tighten


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
