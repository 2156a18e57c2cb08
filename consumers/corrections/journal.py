"""The journal: corrections as lines of a file beside the checkpoint.

A line is safe, and then answered for, once it was written and synced. Requests that come at the
same time share one sync: whoever comes first writes all that wait. Where writing or syncing fails,
the file is cut back to what is safe before anything else is written, so nothing of a refused line
stays. Nobody reads beyond what is safe: what the model has learned of the journal can never be
missing from it after a power cut, which leaves at most a torn last line, cut off at the next start.

The texts of deleted messages leave the journal again: each is overwritten in place, once no kept
checkpoint would have its line applied any more. So no line moves, positions and receipts stay true,
and nobody needs what is overwritten: a kill or a power cut amid it harms nothing, and it is done
again. What stays is who was corrected when, and to what.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import structlog

from consumers.corrections.model import (
    Correction,
    LogPosition,
    NotWritten,
    decoded,
    without_example,
)
from consumers.errors import CheckpointError, SourceError
from consumers.messages import Partition, RawColumns, account_of
from consumers.private_files import open_private, overwrite_lines, sync_folder, write_at
from consumers.sinks.records import is_json
from consumers.sources.base import Source
from consumers.sources.records import raw_columns, split_lines

FILE_NAME = "corrections.jsonl"
_BLOCK_BYTES = 1 << 16
log = structlog.get_logger(__name__)


class _Line(msgspec.Struct):
    """A line that waits to be written, and what came of it."""

    data: bytes
    is_done: bool = False
    offset: int = -1
    error: OSError | None = None


class Journal:
    """An append-only file of lines; every method may be called from any thread.

    It is made where it is missing, in a folder that is there. What it holds was written by people,
    so nobody but its owner may read it. One that cannot be opened is a `CheckpointError`.
    """

    is_own = True

    def __init__(self, path: Path) -> None:
        self.name = path.name
        # A topic of Kafka has no colon in its name: no other log can be taken for this one.
        self.partition = Partition(f"journal:{path.name}", 0)
        self._path = path
        self._changed = threading.Condition()
        self._waiting: list[_Line] = []
        self._writing = False
        self._failed = False
        try:
            self._fd, self._end = _opened(path)
        except OSError as error:
            raise CheckpointError(
                f"{path}: the journal of corrections cannot be opened ({error.strerror}). Mend it, "
                "or set corrections.to: none"
            ) from error

    @property
    def end(self) -> int:
        """How many bytes are safe."""
        return self._end

    def append(self, key: bytes, line: bytes) -> LogPosition:  # noqa: ARG002 -- one order holds for all
        """Return once a line, given without its end, is safe; the key is of no use here."""
        ours = _Line(line + b"\n")
        with self._changed:
            self._waiting.append(ours)
            self._changed.wait_for(lambda: ours.is_done or not self._writing)
            taken: list[_Line] = []
            if not ours.is_done:
                self._writing = True
                taken, self._waiting = self._waiting, []
        if taken:
            self._write(taken)
        if ours.error is not None:
            with contextlib.suppress(OSError):  # the log may be on the same full disk
                log.error("journal_not_written", path=str(self._path), detail=str(ours.error))
            raise NotWritten(
                f"the journal did not take the correction ({ours.error.strerror}); "
                "nothing was changed. Make room or mend the disk, and send it again"
            ) from ours.error
        return LogPosition(self.partition, ours.offset)

    def wait_beyond(self, at: int, timeout_s: float) -> bool:
        """Wait until more than `at` bytes are safe, or a timeout; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self._end > at, timeout_s)

    def read(self, at: int, n_bytes: int) -> bytes:
        """Return up to `n_bytes` of what is safe, from a place on."""
        return os.pread(self._fd, max(0, min(n_bytes, self._end - at)), at)

    def deletions(self) -> Iterator[tuple[str, Partition, int]]:
        """Yield id and place of each message whose deletion still holds its text."""
        found: list[tuple[str, Partition, int]] = []

        def note(line: bytes, at: int) -> None:  # noqa: ARG001 -- as `overwrite_lines` calls it
            said = decoded(line) if line.startswith(b'{"kind":"delete"') else None
            if said is not None and said.example and said.place is not None:
                found.append((said.id, said.place, said.offset))

        overwrite_lines(self._fd, self._end, note)
        yield from found

    def erase(
        self,
        wanted: Mapping[str, Mapping[Partition, int]],
        applied: int,
        goes_on: Callable[[], bool],
        *,
        accounts: bool = False,
    ) -> set[str] | None:
        """Take the examples of deleted messages out of the lines that nobody will apply again.

        `wanted` has by id and log the offset up to which messages of that id are deleted. Lines
        before `applied` are applied in every kept checkpoint. `goes_on` is asked now and then.
        With `accounts` it has deleted accounts too. Returns the ids, and those of their accounts,
        that lines behind `applied` still hold texts of; None if it did not go on.
        If the disk fails, it may be called again.
        """
        left: set[str] = set()

        def replaced(line: bytes, at: int) -> bytes | None:
            said = decoded(line)
            if said is None:
                # Reading has rejected it; or a power cut tore what was being overwritten here.
                is_torn = at < applied and line.startswith(b'{"kind":"') and not is_json(line)
                return b"{}" if is_torn else None
            account = account_of(said.id) if accounts else None
            names = [said.id] if account is None else [said.id, account]
            if not any(_is_meant(said, wanted.get(name)) for name in names):
                return None
            if at >= applied:
                left.update(names if said.example else ())
                return None
            new = without_example(said)
            return None if line.rstrip(b" ") == new else new

        return left if overwrite_lines(self._fd, self._end, replaced, goes_on) else None

    def close(self) -> None:
        """Close the file; nothing can be appended or read any more."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing)
            fd, self._fd = self._fd, -1  # its number may soon be another file's
        os.close(fd)

    def _write(self, lines: list[_Line]) -> None:
        """Write lines, sync, and say what came of it; by one thread at a time."""
        error: OSError | None = OSError(errno.EIO, "writing was cut short")
        try:
            self._mend()
            self._failed = True  # until it is known to be well
            write_at(self._fd, b"".join(line.data for line in lines), self._end)
            os.fdatasync(self._fd)
            self._failed = False
            error = None
        except OSError as caught:
            error = caught
            with contextlib.suppress(OSError):  # else the next who writes tries again
                self._mend()
        finally:  # whatever happened, nobody waits for ever
            with self._changed:
                end = self._end
                for line in lines:
                    line.offset, line.error, line.is_done = end, error, True
                    end += len(line.data)
                self._end = end if error is None else self._end
                self._writing = False
                self._changed.notify_all()

    def _mend(self) -> None:
        """Cut off what a failed attempt may have left, before anything else is written."""
        if self._failed:
            os.ftruncate(self._fd, self._end)
            os.fdatasync(self._fd)
            self._failed = False


def _is_meant(said: Correction, deleted: Mapping[Partition, int] | None) -> bool:
    """Return whether a correction is of a message that was deleted, and not of a newer one."""
    if deleted is None or said.place is None:
        return False
    return said.offset <= deleted.get(said.place, said.offset)


def _opened(path: Path) -> tuple[int, int]:
    """Open the file, cut off a torn line and sync the folder; return descriptor and end."""
    fd = open_private(path, os.O_RDWR)
    try:
        size = os.fstat(fd).st_size
        end = _end_of_last_line(fd, size)
        if end < size:
            _cut(fd, end, path)
            log.warning("journal_cut", path=str(path), torn_bytes=size - end)
        # What a killed process wrote may not be synced yet, and it is read from now on.
        os.fsync(fd)
        sync_folder(path.parent)
    except (OSError, CheckpointError):
        os.close(fd)
        raise
    return fd, end


def _cut(fd: int, end: int, path: Path) -> None:
    try:
        os.ftruncate(fd, end)
    except OSError as error:
        raise CheckpointError(
            f"{path}: the torn last line of the journal of corrections cannot be cut off "
            f"({error.strerror}, errno {error.errno}). See to the disk's room, and to whether it "
            "may be written, and start again; or set corrections.to: none"
        ) from error


def _end_of_last_line(fd: int, size: int) -> int:
    """Return where the last whole line ends."""
    end = size
    while end > 0:
        begin = max(0, end - _BLOCK_BYTES)
        found = os.pread(fd, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return 0


_BATCH_BYTES = 1 << 20


class JournalSource(Source):
    """Follows a journal as it grows; see `Source`. An offset is a line's first byte.

    The journal stays open when the source is closed.
    """

    def __init__(self, journal: Journal) -> None:
        self.name = journal.name
        self._journal = journal
        self._position = self._target = 0
        self._pending = b""

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin at the checkpoint's position; a shorter journal is not the one that it knows."""
        self._position = position_of(self._journal.partition) or 0
        self._target = self._journal.end
        if self._position > self._target:
            raise SourceError(
                f"{self._journal.name}: has {self._target} bytes, but was read up to byte "
                f"{self._position} before. Put the journal back that belongs to this "
                "checkpoint.folder, or begin with an empty folder"
            )

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the next lines; wait up to `timeout_s` where there is none."""
        begin = self._position
        read = begin + len(self._pending)
        if not self._journal.wait_beyond(read, timeout_s):
            return []
        try:
            data = self._journal.read(read, _BATCH_BYTES)
        except OSError as error:
            raise SourceError(
                f"{self._journal.name}: reading failed after byte {read} ({error.strerror}); once "
                "the disk is well, start again, and it goes on at the checkpoint"
            ) from error
        buffer = self._pending + data
        records = split_lines(buffer, last=False)
        self._position += records.consumed
        self._pending = buffer[records.consumed :]
        if not len(records.starts):
            return []
        offsets = records.starts + begin
        return [raw_columns(self._journal.partition, buffer, records, offsets, self._position)]

    def at_end(self) -> bool:
        """Return whether all that stood in the journal at the start has been handed over."""
        return self._position >= self._target
