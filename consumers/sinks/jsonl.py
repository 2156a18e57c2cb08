"""A file of JSON lines as a sink: one record's value a line, added at the end.

A program killed in the middle of a line leaves a torn one. It was never flushed, so the checkpoint
will have it made again; the next run cuts it off before it writes its own first line.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from consumers.errors import SinkError
from consumers.private_files import make_private_folder, open_private, tighten
from consumers.sinks.base import Record

_WRITE_BYTES = 1 << 20
_TAIL_BYTES = 1 << 16

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class JsonLinesSink:
    """Appends to a file, which is made where it is absent, its folder too, for its owner alone.

    A file that was there before, and that its owner's group may read but nobody else, stays so:
    that is how another program is let in.

    What could not be written stays with the sink, to the byte: once the disk has room again, the
    next flush goes on in the middle of the line.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    SinkError
        When it cannot be opened or mended.
    """

    def __init__(self, path: Path) -> None:
        self._path = Path(path)
        self._pending = bytearray()
        try:
            make_private_folder(self._path.parent)
            # A named pipe whose reader has stopped then refuses, as a full disk does, and does not
            # hold its writer for ever. To a file it means nothing.
            self._fd = _opened(self._path, os.O_RDWR | os.O_APPEND | os.O_NONBLOCK)
        except OSError as error:
            raise self._error("cannot be opened", error) from error
        try:
            self._mend()
        except OSError as error:
            os.close(self._fd)
            raise self._error("has a torn last line that cannot be mended", error) from error

    def add(self, records: Sequence[Record]) -> None:
        """Take records; now and then, when a megabyte has gathered, write.

        Raises
        ------
        SinkError
            When writing fails. The records are taken nevertheless.
        """
        for record in records:
            self._pending += record.value
            self._pending += b"\n"
        if len(self._pending) >= _WRITE_BYTES:
            self._write()

    def flush(self, timeout_s: float) -> None:  # noqa: ARG002 - a disk cannot be told to hurry
        """Write everything and wait until the disk has it.

        Raises
        ------
        SinkError
            When the disk does not take it.
        """
        self._write()
        try:
            if stat.S_ISREG(os.fstat(self._fd).st_mode):  # a pipe or a terminal has no disk
                os.fsync(self._fd)
        except OSError as error:
            raise self._error("could not be made safe", error) from error

    def close(self) -> None:
        """Flush what can be flushed and close the file."""
        try:
            self.flush(0.0)
        except SinkError as error:
            log.warning("closed without being flushed", reason=str(error))
        os.close(self._fd)

    def _write(self) -> None:
        """Hand all that is pending to the operating system."""
        try:
            while self._pending:
                n = os.write(self._fd, self._pending)
                del self._pending[:n]
        except OSError as error:
            raise self._error("could not be written to", error) from error

    def _mend(self) -> None:
        """Make the file end with a whole line."""
        size = os.fstat(self._fd).st_size
        length, tail = _TAIL_BYTES, b""
        while len(tail) < size and b"\n" not in tail:
            begin = max(0, size - length)
            tail = os.pread(self._fd, size - begin, begin)
            length *= 4
        torn = tail[tail.rfind(b"\n") + 1 :]
        if not torn:
            return
        try:
            msgspec.json.decode(torn)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            os.ftruncate(self._fd, size - len(torn))
        else:  # whole but for its end, such as an editor may leave it
            os.write(self._fd, b"\n")

    def _error(self, what: str, error: OSError) -> SinkError:
        """Return the error for the world: the file, the reason, the way out."""
        return SinkError(
            f"{self._path}: {what} ({error.strerror}), {len(self._pending)} bytes wait; "
            "make room, set the permissions, or name another place in predictions.to or rejects.to"
        )


def _opened(path: Path, flags: int) -> int:
    """Open the file, a new one for its owner alone; an old one is closed to the world."""
    try:
        return open_private(path, flags | os.O_EXCL)
    except FileExistsError:
        fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    is_device = path.absolute().parts[1:2] in {("dev",), ("proc",)}  # such as the shell's own file
    if not is_device and os.fstat(fd).st_mode & 0o007:
        tighten([path.resolve()])
    return fd
