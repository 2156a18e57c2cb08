"""Takes the texts of deleted messages out of the files of the state folder.

Whoever deletes a message, a person or the stream, means it to be gone. Its row leaves the store of
recent messages, and its words leave the model's vocabulary as it is unlearned, so that they are in
no checkpoint written from then on. The rest is done here, after a checkpoint stands: outputs that
lie in the folder, and the journal of corrections, are overwritten in place.

What is still to be done is kept in a file of its own, made safe before the checkpoint that passes
over the deletion. So a kill at any instant leaves it to be done again: by that file, or by the
deletion, which is then read again. All of it may be done twice.

What left the folder, by a Kafka topic or an output elsewhere, is out of reach.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from consumers.errors import SinkError
from consumers.messages import Partition
from consumers.private_files import open_private, overwrite_lines

FILE_NAME = "erasures.jsonl"
# A pass reads outputs and journal from their beginnings. If they are long, it comes seldom.
_SHARE_MAX = 0.02
_CLOSE_TIMEOUT_S = 5.0
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

Place = tuple[str, Partition, int]  # id, log, offset
Taken = Callable[[bytes, AbstractSet[bytes]], bytes | None]


class Deletion(msgspec.Struct, frozen=True):
    """A message that was deleted: its id, and up to where in its log.

    `from_stream` says who deleted it: the stream, or a person.
    """

    id: str
    topic: str
    partition: int
    offset: int
    from_stream: bool


class Journal(Protocol):
    """What is asked of the journal of corrections; see there."""

    partition: Partition

    def deletions(self) -> Iterable[Place]:
        """Return the deletions that still hold texts."""

    def erase(
        self,
        wanted: Mapping[str, tuple[Partition, int]],
        applied: int,
        goes_on: Callable[[], bool],
    ) -> set[str] | None:
        """Take the texts of messages out; return the ids that it still holds texts of."""


class Recent(Protocol):
    """What is asked of the store of recent messages."""

    def forget_ids(
        self, ids: Sequence[str], at: tuple[Partition, Sequence[int]]
    ) -> threading.Event:
        """Forget messages; the event is set once that is done."""


@dataclass(frozen=True, slots=True)
class Output:
    """A file of JSON lines, and how a message's text is taken out of a line of it."""

    path: Path
    taken: Taken


class Erasure:
    """Erases the texts of deleted messages, on a thread of its own.

    Parameters
    ----------
    folder : Path or None
        The state folder; None: nothing is kept, and so nothing erased but in `recent`.
    applied : callable
        Returns up to where every kept checkpoint knows a log; see `Checkpoint.applied`.
    journal : Journal or None
    outputs : sequence of Output
        Those that lie outside the folder are left alone.
    recent : Recent or None
        It forgets what the stream deletes; what people delete, it was told already.
    clock : callable
        Monotonic seconds.

    Raises
    ------
    SinkError
        If the file of what is still to be done cannot be read.
    """

    def __init__(
        self,
        folder: Path | None,
        applied: Callable[[Partition], int],
        journal: Journal | None,
        outputs: Sequence[Output],
        recent: Recent | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = None if folder is None else folder / FILE_NAME
        self._applied = applied
        self._journal = journal
        self._outputs = [each for each in outputs if folder is not None and _lies_in(each, folder)]
        self._recent = recent
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[Deletion, threading.Event] = {}
        self._is_saved = True
        self._not_before_s = clock()
        self._closing = self._is_due = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="erase")
        self._pass: Future[None] | None = None
        self._resume()

    @property
    def n_pending(self) -> int:
        """How many deletions are still to be dealt with."""
        return len(self._pending)

    def add(self, places: Iterable[Place], *, from_stream: bool) -> None:
        """Have the texts of messages erased; on the thread that flushes, behind their judgements.

        Parameters
        ----------
        places : iterable of (str, Partition, int)
            Id, log and offset; messages of the id that stand behind it in that log stay.
        from_stream : bool
            Whether the stream deleted them, and not a person.
        """
        by_log: dict[Partition, tuple[list[str], list[int]]] = {}
        for name, partition, offset in places:
            ids, offsets = by_log.setdefault(partition, ([], []))
            ids.append(name)
            offsets.append(offset)
        for partition, (ids, offsets) in by_log.items():
            done = threading.Event()
            if from_stream and self._recent is not None:
                done = self._recent.forget_ids(ids, (partition, offsets))
            else:
                done.set()
            if self._path is None:
                continue
            with self._lock:
                self._is_saved = False
                for name, offset in zip(ids, offsets, strict=True):
                    self._pending[Deletion(name, *partition, offset, from_stream)] = done

    def flush(self, timeout_s: float) -> None:  # noqa: ARG002 -- a disk cannot be told to hurry
        """Make safe what is to be done, before a checkpoint passes over the deletions.

        Raises
        ------
        SinkError
            If the disk does not take it.
        """
        with self._lock:
            if self._is_saved or self._path is None:
                return
            lines = [msgspec.json.encode(each) + b"\n" for each in self._pending]
            self._is_saved = True
        try:
            _replace(self._path, b"".join(lines))
        except OSError as error:
            self._is_saved = False
            raise SinkError(
                f"{self._path}: what is to be erased cannot be noted ({error.strerror}); make room "
                "or set the permissions"
            ) from error

    def begin(self) -> None:
        """Erase what can be, on the thread for it; called where checkpoints are written."""
        if self._closing or not self._pending:
            return
        is_busy = self._pass is not None and not self._pass.done()
        self._is_due = is_busy or self._clock() < self._not_before_s
        if not self._is_due:
            self._start_pass()

    def close(self) -> None:
        """Do a pass that is due, but not for long; what is left is done after the next start."""
        self._wait()
        if self._is_due and self._pending:
            self._start_pass()
            self._wait()
        self._closing = True
        self._thread.shutdown()
        with contextlib.suppress(SinkError):  # then it is done twice
            self.flush(0.0)

    def _start_pass(self) -> None:
        applied = 0 if self._journal is None else self._applied(self._journal.partition)
        self._pass = self._thread.submit(self._erase, applied)

    def _wait(self) -> None:
        if self._pass is not None:
            wait([self._pass], _CLOSE_TIMEOUT_S)

    def _resume(self) -> None:
        """Take up what a run before has left, and what a version before has never done."""
        if self._path is None:
            return
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            data = b""
        except OSError as error:
            raise SinkError(f"{self._path}: cannot be read ({error.strerror})") from error
        try:
            found = [msgspec.json.decode(line, type=Deletion) for line in data.splitlines()]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise SinkError(
                f"{self._path}: is damaged ({error}). Delete it: what it names stays in the files, "
                "but for what the journal says was deleted"
            ) from error
        for each in found:
            place = each.id, Partition(each.topic, each.partition), each.offset
            self.add([place], from_stream=each.from_stream)
        if self._journal is not None:
            self.add(self._journal.deletions(), from_stream=False)

    def _erase(self, applied: int) -> None:
        """Do one pass; whatever fails is said, and tried again after the next checkpoint."""
        began_s = self._clock()
        with self._lock:
            pending = dict(self._pending)
        try:
            left = self._pass_over(pending, applied)
        except OSError as error:
            log.error("texts_not_erased", n_deletions=len(pending), detail=str(error))  # noqa: TRY400
            return
        except Exception:
            # The deletions stay noted, and the next checkpoint tries them again.
            log.exception("erasure_broke", n_deletions=len(pending))
            return
        finally:
            now_s = self._clock()
            self._not_before_s = now_s + (now_s - began_s) / _SHARE_MAX
        if left is None:
            return
        done = [each for each, stored in pending.items() if stored.is_set() and each.id not in left]
        with self._lock:
            for each in done:
                self._pending.pop(each, None)
            self._is_saved = self._is_saved and not done
        log.debug("texts_erased", n_deletions=len(done), n_left=len(self._pending))

    def _pass_over(self, pending: Iterable[Deletion], applied: int) -> set[str] | None:
        """Overwrite; return the ids of which texts are left in the journal, None if told to end."""
        wanted: dict[str, tuple[Partition, int]] = {}
        for each in pending:
            partition, offset = Partition(each.topic, each.partition), each.offset
            before = wanted.get(each.id)
            if before is not None and before[0] == partition:
                offset = max(offset, before[1])
            wanted[each.id] = partition, offset
        ids = {msgspec.json.encode(name) for name in wanted}
        for output in self._outputs:
            if not _overwrite(output, ids, self._goes_on):
                return None
        if self._journal is None:
            return set()
        return self._journal.erase(wanted, applied, self._goes_on)

    def _goes_on(self) -> bool:
        return not self._closing


def _overwrite(output: Output, ids: AbstractSet[bytes], goes_on: Callable[[], bool]) -> bool:
    """Take messages' texts out of an output; tell whether it came to the end."""
    try:
        fd = os.open(output.path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:  # somebody moved it away
        return True
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return True
        taken = output.taken
        return overwrite_lines(fd, status.st_size, lambda line, _: taken(line, ids), goes_on)
    finally:
        os.close(fd)


def _lies_in(output: Output, folder: Path) -> bool:
    return output.path.resolve().is_relative_to(folder.resolve())


def _replace(path: Path, data: bytes) -> None:
    """Put a file in the place of another, so that after a kill one of them is there, whole."""
    if data:
        fresh = path.with_name(f"{path.name}.new")
        fd = open_private(fresh, os.O_WRONLY | os.O_TRUNC)
        with open(fd, "wb") as file:  # noqa: PTH123 -- of a descriptor
            file.write(data)
            file.flush()
            os.fsync(fd)
        fresh.replace(path)
    else:
        path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
