"""Files and folders that hold people's texts: their owner alone may read them.

Modes are set on the open file, so no umask widens or narrows them, and before anything is written.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

import structlog

FILE_MODE = 0o600
FOLDER_MODE = 0o700
_SHARED = 0o077  # what others than the owner may do
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


def open_private(path: Path, flags: int) -> int:
    """Open a file, made if it is missing, that its owner alone may read; return its descriptor.

    Parameters
    ----------
    path : Path
    flags : int
        As `os.open` takes them.

    Raises
    ------
    OSError
        If it cannot be opened. A file of another owner is opened with the mode that it has.
    """
    fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    with contextlib.suppress(PermissionError):
        if stat.S_IMODE(os.fstat(fd).st_mode) != FILE_MODE:
            os.fchmod(fd, FILE_MODE)
    return fd


def make_private_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner alone.

    A folder that is there keeps its mode: whoever made it decides who may enter.

    Raises
    ------
    OSError
        If one cannot be made.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        try:
            each.mkdir(FOLDER_MODE)
        except FileExistsError:  # somebody else made it meanwhile; a file fails below
            continue
        each.chmod(FOLDER_MODE)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))


def tighten(paths: Iterable[Path]) -> None:
    """Take away from others what an older version let them do with files; say so in the log once.

    Parameters
    ----------
    paths : iterable of Path
        Links and what is no file are left alone.
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
