"""Erases the texts of deleted messages from the files of the state folder.

Whoever deletes a message, a person or the stream, means it to be gone. Its row leaves the store of
recent messages, and its words leave the model's vocabulary as it is unlearned, so later checkpoints
do not hold them. The rest is done here, after each checkpoint: outputs in the folder and the
journal of corrections are overwritten in place.

Pending deletions stand in a file of their own, synced before the checkpoint that passes over them.
So after a kill at any instant they are erased again, by that file or by reading the deletion again.
Erasing twice does no harm.

Files that an earlier configuration left in the folder are treated alike: its outputs, its journal,
and its store of recent messages, which is deleted as a whole where nobody uses it.

What left the folder, through a Kafka topic or an output elsewhere, cannot be erased; the log says
so once a run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import numpy as np
import structlog
from msgspec import Meta

from consumers.corrections.journal import Journal
from consumers.corrections.model import OFFSET_MAX
from consumers.errors import SinkError
from consumers.kernels import learned_records as kernels
from consumers.kernels.learned_records import EARLY_DELETE, EARLY_LABEL, EARLY_UPDATE, ERASED
from consumers.messages import ACCOUNT_MARK, Partition, account_prefixes, names_account
from consumers.pipeline.learned_records import (
    AWAITED,
    LABEL_HEAD,
    MAGIC,
    UNCHECKED,
    DamagedError,
    Hashed,
    IdRun,
    Longs,
    RecordChunk,
    holding,
    parse,
)
from consumers.private_files import (
    Overwrites,
    keep_aside,
    overwrite_file,
    replace_private,
    sync_folder,
    write_at,
)
from consumers.sinks.records import Deleted, is_output, without_message
from streamnb.kernels.layout import Texts

FILE_NAME = "erasures.jsonl"
# A pass reads whole files, so it may take this share of the time.
_SHARE_MAX = 0.02
_CLOSE_TIMEOUT_S = 5.0
# What the daemon keeps in a state folder beside its outputs.
_OWN = re.compile(
    r"model\.nb(\.[0-9]+)?|\.model\.nb(\.[0-9]+)?\.new|recent\.db(-wal|-shm|-journal|\.aside|\.unpurged)?"
    r"|corrections\.jsonl|erasures\.jsonl(\.new|\.damaged(\.new)?)?"
)
# Whoever may not open a file by its mode or kind may not at the next checkpoint either.
_REFUSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ETXTBSY}
_GUESSED_BYTES = 1 << 22  # from whose lines a file is known to be an output
_GAP_BYTES = 1 << 14  # so few between two that are overwritten are written too: a call costs more
_OUT_OF_REACH = "messages were deleted; texts written there stay: only checkpoint.folder is erased"
_UNUSED = "it held messages, of which some were deleted, and the settings do not use it"
_UNREAD = "what such a line names stays in the files, but for what the journal says was deleted"
_ANY_TEXTS = "if it holds texts of deleted messages, they stay there"
_NOT_APPLIED = (
    "the journal holds corrections that are not applied in every kept checkpoint; their texts "
    "stay. Set corrections.to: journal once, and they are applied and erased"
)
# By kind, what a record is once its contents are erased: an update still ends what it replaced.
_ERASED_KINDS = np.full(256, ERASED, np.uint8)
_ERASED_KINDS[[kernels.UPDATED, kernels.RELABELLED, kernels.LATE_UPDATE]] = kernels.DELETED
_ERASED_KINDS[EARLY_UPDATE] = EARLY_DELETE
_ERASED_KINDS[[*AWAITED, EARLY_LABEL]] = *AWAITED, EARLY_LABEL  # still awaited
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

NamedPlace = tuple[str, Partition, int]  # id, log, offset
Eraser = Callable[[bytes, Deleted], bytes | None]
OffsetsByLog = Mapping[Partition, Mapping[str, int]]  # of each id the one up to which it is erased
_OffsetsById = Mapping[str, Mapping[Partition, int]]


class Deletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A deleted message: its id, the offset up to which it is erased, and who deleted it.

    `said` is where a person's deletion stands in a topic of corrections: topic, partition, offset.
    """

    id: str
    topic: str
    partition: int
    offset: Annotated[int, Meta(ge=-1, le=OFFSET_MAX)]
    from_stream: bool
    said: tuple[str, int, int] | None = None


class MessageStore(Protocol):
    """What erasure calls of the store of recent messages."""

    def forget_ids(
        self, ids: Sequence[str], at: tuple[Partition, Sequence[int]], *, of_accounts: bool = False
    ) -> threading.Event:
        """Forget messages, or accounts; the event is set once they are forgotten."""


class TextMemory(Protocol):
    """What erasure calls of the memory of what was learned."""

    def erase(self, deleted: OffsetsByLog) -> None:
        """Overwrite the texts of deleted messages, of each id up to an offset of each log."""


class Output(msgspec.Struct, frozen=True):
    """A file of JSON lines, and the function that removes a message's text from a line."""

    path: Path
    taken: Eraser
    overwrites: Overwrites = msgspec.field(default_factory=Overwrites)  # its sink's, if it has one


class OtherPlaces(msgspec.Struct, frozen=True):
    """Where else texts may stand.

    Files that nobody uses are deleted, foreign ones are left alone wherever they lie; `elsewhere`
    names for people what cannot be reached. With `journal_unread` the settings do not use the
    journal: lines that no checkpoint has applied keep their texts, and the log says so.
    """

    unused: Sequence[Path] = ()
    foreign: Sequence[Path] = ()
    elsewhere: Sequence[str] = ()
    journal_unread: bool = False


class Erasure:
    """Erases the texts of deleted messages on a thread of its own.

    Without a state `folder`, only `recent` holds texts; it forgets what the stream deletes, and
    knows already what people delete. `applied` returns of each log the offset that every kept
    checkpoint is past; see `Checkpoint.oldest_positions`. Outputs outside the folder are left
    alone.
    With `accounts` the deletion of an account erases all texts of ids that begin with its own.
    A file of pending deletions that cannot be read is a `SinkError`; damaged lines are kept aside.
    """

    def __init__(  # noqa: PLR0913 -- each place where texts may stand
        self, folder: Path | None, applied: Callable[[], Mapping[Partition, int]],
        journal: Journal | None, outputs: Sequence[Output], recent: MessageStore | None,
        clock: Callable[[], float] = time.monotonic, others: OtherPlaces | None = None,
        is_moved: Callable[[], bool] = lambda: False,
        *, learned: TextMemory | None = None, accounts: bool = False,
    ) -> None:  # fmt: skip
        self._folder, self._journal, self._recent = folder, journal, recent
        self._path = None if folder is None else folder / FILE_NAME
        self._applied, self._is_moved = applied, is_moved
        self._outputs = [each for each in outputs if folder is not None and _lies_in(each, folder)]
        others = others or OtherPlaces()
        out = [str(each.path) for each in outputs if each not in self._outputs]
        self._elsewhere, self._unused = [*out, *others.elsewhere], others.unused
        self._journal_unread = others.journal_unread
        # Of these is not guessed what they are.
        self._known = {
            os.path.realpath(each) for each in (*others.foreign, *(o.path for o in self._outputs))
        }
        self._refused: set[Path] = set()  # folders with files that may not be opened
        self._learned, self._accounts = learned, accounts
        self._clock, self._lock = clock, threading.Lock()
        self._pending: dict[Deletion, threading.Event] = {}
        self._is_saved, self._not_before_s = True, clock()
        self._closing = self._is_due = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="erase")
        self._pass: Future[None] | None = None
        self._resume()

    @property
    def n_pending(self) -> int:
        """How many deletions are not erased yet."""
        return len(self._pending)

    def add_said(self, deleted: Iterable[tuple[NamedPlace, tuple[str, int, int] | None]]) -> None:
        """Add messages that people deleted, each with where that was said; see `add`."""
        for place, said in deleted:
            self.add([place], from_stream=False, said=said)

    def add(
        self,
        places: Iterable[NamedPlace],
        *,
        from_stream: bool,
        said: tuple[str, int, int] | None = None,
    ) -> None:
        """Add messages to erase; called on the predictor's thread, after their predictions.

        Of each id, messages behind the offset in that log stay. `said`: see `Deletion`.
        """
        by_log: dict[tuple[Partition, bool], tuple[list[str], list[int]]] = {}
        for name, partition, offset in places:
            place = partition, self._accounts and names_account(name)
            ids, offsets = by_log.setdefault(place, ([], []))
            ids.append(name)
            offsets.append(offset)
        if by_log and self._elsewhere:
            log.warning("texts_out_of_reach", places=self._elsewhere, detail=_OUT_OF_REACH)
            self._elsewhere = []  # once a run
        for (partition, of_accounts), (ids, offsets) in by_log.items():
            done = threading.Event()
            if from_stream and self._recent is not None:
                done = self._recent.forget_ids(ids, (partition, offsets), of_accounts=of_accounts)
            else:
                done.set()
            if self._path is None:
                continue
            topic, number = partition
            rows = zip(ids, offsets, strict=True)
            added = [Deletion(name, topic, number, at, from_stream, said) for name, at in rows]
            with self._lock:
                self._is_saved = False
                self._pending |= dict.fromkeys(added, done)

    def go_on(self, deletions: Iterable[Deletion]) -> None:
        """Add what an earlier run, or the last reader of a partition, had still to erase."""
        for each in deletions:
            place = each.id, Partition(each.topic, each.partition), each.offset
            self.add([place], from_stream=each.from_stream, said=each.said)

    def pending(self) -> Sequence[Deletion]:
        """Return the deletions that are not erased yet; any thread may ask."""
        with self._lock:
            return list(self._pending)

    def waits_for_newer(self, positions: Mapping[Partition, int]) -> bool:
        """Return whether older kept checkpoints than that of `positions` keep texts from erasure.

        Where nothing is read any more, none would replace them. See `Checkpoint.oldest_positions`.
        """
        oldest = self._applied() if self._pending else {}
        return bool(oldest) and any(oldest.get(each, 0) < at for each, at in positions.items())

    def flush(self, timeout_s: float) -> None:  # noqa: ARG002 -- a disk knows no time-out
        """Sync the pending deletions, before a checkpoint passes over them."""
        with self._lock:
            if self._is_saved or self._path is None:
                return
            if self._is_moved():
                raise SinkError(f"{self._path}: its folder was moved; nothing is written there")
            lines = msgspec.json.Encoder().encode_lines(list(self._pending))
            self._is_saved = True
        try:
            if lines:
                replace_private(self._path, lines)
            else:
                self._path.unlink(missing_ok=True)
                sync_folder(self._path.parent)
        except OSError as error:
            self._is_saved = False
            raise SinkError(
                f"{self._path}: what is to be erased cannot be noted ({error.strerror}); make room "
                "or set the permissions"
            ) from error

    def begin(self) -> None:
        """Start a pass on the erasing thread; called after each checkpoint."""
        if self._closing or not self._pending:
            return
        is_busy = self._pass is not None and not self._pass.done()
        self._is_due = is_busy or self._clock() < self._not_before_s
        if not self._is_due:
            self._start_pass()

    def close(self) -> None:
        """Finish a pass that is due, within a time limit; the rest follows after the next start."""
        self._wait()
        if self._is_due and self._pending:
            self._start_pass()
            self._wait()
        self._closing = True
        self._thread.shutdown()
        with contextlib.suppress(SinkError):  # then they are erased twice
            self.flush(0.0)

    def _start_pass(self) -> None:
        self._pass = self._thread.submit(self._erase, self._applied())

    def _wait(self) -> None:
        if self._pass is not None:
            wait([self._pass], _CLOSE_TIMEOUT_S)

    def _resume(self) -> None:
        """Load what an earlier run left, and what an earlier version never erased."""
        if self._path is None:
            return
        found, faults = list[Deletion](), list[str]()
        try:
            data = self._path.read_bytes() if self._path.exists() else b""
            for line in data.splitlines():
                try:
                    found.append(msgspec.json.decode(line, type=Deletion))
                except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                    faults.append(str(error))
            if faults:
                kept, self._is_saved = keep_aside(self._path, data), False
                log.error("erasures_damaged", kept=str(kept), faults=faults[:3], detail=_UNREAD)
        except OSError as error:
            raise SinkError(f"{self._path}: cannot be read or kept ({error.strerror})") from error
        self.go_on(found)
        self.add(() if self._journal is None else self._journal.deletions(), from_stream=False)

    def _erase(self, applied: Mapping[Partition, int]) -> None:
        """Do one pass; a failure is logged, and tried again after the next checkpoint."""
        began_s = self._clock()
        with self._lock:
            pending = dict(self._pending)
        # A kept checkpoint that does not know the others would have to take back what they taught.
        at_most = {tuple[str, int](place): offset for place, offset in applied.items()}
        known = {each for each in pending if not _is_ahead(each, at_most)}
        try:
            at = 0 if self._journal is None else applied.get(self._journal.partition, 0)
            left = None if self._is_moved() else self._pass_over(_offsets_by_log(pending), at)
            if left is not None and self._learned is not None:
                # One that an earlier run noted may be still to apply in this one.
                self._learned.erase(_offsets_by_log(one for one in known if one.id not in left))
        except OSError as error:
            log.error("texts_not_erased", n_deletions=len(pending), detail=str(error))  # noqa: TRY400
            return
        except Exception:  # the deletions stay pending; the next checkpoint tries them again
            log.exception("erasure_broke", n_deletions=len(pending))
            return
        finally:
            now_s = self._clock()
            self._not_before_s = now_s + (now_s - began_s) / _SHARE_MAX
        if left is None:
            return
        done = [each for each in known if pending[each].is_set() and each.id not in left]
        with self._lock:
            for each in done:
                if self._pending.get(each) is pending[each]:  # not handed on again meanwhile
                    del self._pending[each]
            self._is_saved = self._is_saved and not done
        log.debug("texts_erased", n_deletions=len(done), n_left=len(self._pending))

    def _pass_over(self, by_log: OffsetsByLog, applied: int) -> set[str] | None:
        """Overwrite; return the ids whose texts are left in the journal, None if interrupted.

        A file that fails is logged, and the others and the journal are erased all the same.
        """
        offsets_by_id = _by_id(by_log)
        deleted = cache(lambda: {self._begins(name): at for name, at in offsets_by_id.items()})
        failed = self._delete_unused()
        refused = dict[Path, list[OSError]]()
        for path, output in [*((each.path, each) for each in self._outputs), *self._left_files()]:
            try:
                if not self._erase_file(path, output, deleted):
                    return None
            except OSError as error:
                error.filename = str(path)
                if output is not None or error.errno not in _REFUSED:
                    failed.append(error)
                else:
                    refused.setdefault(path.parent, []).append(error)
        for folder in refused.keys() - self._refused:
            self._refused.add(folder)  # once a run
            places = [str(each.filename) for each in refused[folder]]
            detail = f"{refused[folder][0].strerror}; {_ANY_TEXTS}"
            log.warning("texts_out_of_reach", places=places, detail=detail)
        left = self._erase_journal(offsets_by_id, applied)
        for trouble in failed[1:]:
            log.error("texts_not_erased", n_deletions=len(offsets_by_id), detail=str(trouble))
        if failed:  # all of them stay pending
            raise failed[0]
        return left

    def _begins(self, name: str) -> bytes:
        """Return an id as JSON, or of an account what the JSON of its ids begins with."""
        written = msgspec.json.encode(name)
        is_account = self._accounts and names_account(name)
        return written.removesuffix(f'{ACCOUNT_MARK}"'.encode()) if is_account else written

    def _delete_unused(self) -> list[OSError]:
        """Delete the files that held messages and that nobody uses; return what failed."""
        failed = []
        for path in self._unused:
            try:
                path.unlink()
                log.warning("unused_file_deleted", path=str(path), detail=_UNUSED)
            except FileNotFoundError:
                continue
            except OSError as error:
                failed.append(error)
        return failed

    def _erase_journal(self, offsets_by_id: _OffsetsById, applied: int) -> set[str] | None:
        if self._journal is None:
            return set()
        left = self._journal.erase(offsets_by_id, applied, self._goes_on, accounts=self._accounts)
        if left and self._journal_unread:
            log.warning("journal_not_applied", n_ids=len(left), detail=_NOT_APPLIED)
            self._journal_unread = False  # once a run
        return left

    def _left_files(self) -> Iterator[tuple[Path, None]]:
        """Yield the files in the folder that earlier settings may have written.

        A folder in it that is another daemon's is left alone, with all in it.
        """
        for where, folders, names in [] if self._folder is None else os.walk(self._folder):
            is_state = any(_OWN.fullmatch(name) for name in names)
            if is_state and Path(where) != self._folder:
                folders.clear()
                continue
            folders.sort()
            for path in [Path(where, name) for name in sorted(names)]:
                is_ours = is_state and _OWN.fullmatch(path.name)
                if not is_ours and os.path.realpath(path) not in self._known:
                    yield path, None

    def _erase_file(
        self, path: Path, output: Output | None, deleted: Callable[[], Deleted]
    ) -> bool:
        """Remove texts from a file, if it is an output; return whether its end was reached.

        If it is none that the settings name, it is guessed whether it is one.
        """
        if output is None:
            if path.is_symlink() or not path.is_file():
                return True
            with path.open("rb") as file:
                begin = file.read(len(MAGIC))
                # The memory's files are erased by themselves, and to guess at each takes a while.
                if begin == MAGIC or not is_output(begin + file.read(_GUESSED_BYTES)):
                    return True
        own, names = output or Output(path, without_message), deleted()
        # The last line of one that no sink will mend may be torn by a kill.
        return overwrite_file(
            path, lambda line, _: own.taken(line, names), self._goes_on, torn=output is None,
            overwrites=own.overwrites,
        )  # fmt: skip

    def _goes_on(self) -> bool:
        return not self._closing and not self._is_moved()


def _is_ahead(each: Deletion, applied: Mapping[tuple[str, int], int]) -> bool:
    """Return whether a kept checkpoint is still to read the deletion, wherever it stands.

    An earlier run may have noted it, and been killed before a checkpoint passed over it. One that
    stands in the journal is known by its line there.
    """
    if each.said is not None:
        topic, partition, offset = each.said
        return applied.get((topic, partition), 0) <= offset
    return each.from_stream and applied.get((each.topic, each.partition), 0) <= each.offset


def _by_id(by_log: OffsetsByLog) -> _OffsetsById:
    """Return the same by id, and of each by log."""
    found: dict[str, dict[Partition, int]] = {}
    for partition, own in by_log.items():
        for name, offset in own.items():
            found.setdefault(name, {})[partition] = offset
    return found


def _offsets_by_log(pending: Iterable[Deletion]) -> OffsetsByLog:
    """Return of each log and id the offset up to which it is erased."""
    found: dict[tuple[str, int], dict[str, int]] = {}
    for each in pending:
        own = found.setdefault((each.topic, each.partition), {})
        own[each.id] = max(each.offset, own.get(each.id, each.offset))
    return {Partition(*place): own for place, own in found.items()}


def _lies_in(output: Output, folder: Path) -> bool:
    # Unlike `Path.resolve`, this takes a link to itself.
    return Path(os.path.realpath(output.path)).is_relative_to(folder.resolve())


class ErasedIds:
    """Up to which offset of a log the records of each id are erased, asked for every chunk.

    With `accounts` there may be deletions of accounts among the ids. Of a message without an id the
    name is its place, one of the offsets `places`.
    """

    def __init__(
        self, ids: Mapping[bytes, int], places: Sequence[int], hashed: Hashed, *, accounts: bool
    ) -> None:
        self._places, self._hashed = np.array(places, np.int64), hashed
        self._own = self._entered({name: at for name, at in ids.items() if name})
        ended = b"/" + ACCOUNT_MARK.encode()
        own = {name[:-1]: at for name, at in ids.items() if accounts and name.endswith(ended)}
        self._accounts = self._entered(own) if own else None

    def rows(self, chunk: RecordChunk) -> Longs:
        """Return the rows of a chunk that are erased."""
        texts = chunk.ids()
        last = np.full(len(chunk), np.iinfo(np.int64).min)
        self._raise(last, texts, *self._own)
        if self._accounts is not None:
            self._raise(last, account_prefixes(texts), *self._accounts)
        is_erased = chunk.offsets <= last
        is_erased |= (chunk.id_ends < 0) & np.isin(chunk.offsets, self._places)
        return np.flatnonzero(is_erased & holding(chunk.kinds()))

    def _entered(self, ids: Mapping[bytes, int]) -> tuple[Texts, Longs, IdRun]:
        sizes = np.fromiter(map(len, ids), np.int64, len(ids))
        ends, run = np.cumsum(sizes), IdRun(0)
        texts = Texts(np.frombuffer(bytearray(b"".join(ids)), np.uint8), ends - sizes, ends)
        run.add(self._hashed(texts))
        return texts, np.fromiter(ids.values(), np.int64, len(ids)), run

    def _raise(self, last: Longs, texts: Texts, ids: Texts, offsets: Longs, run: IdRun) -> None:
        kernels.raise_to_last(
            texts, self._hashed(texts), ids, run.hashes, run.heads, run.after, offsets, last
        )


def erase_records(path: Path, erased: ErasedIds) -> None:
    """Overwrite the contents of the records of a file that are erased.

    A power cut leaves a record as it was, or without a checksum. That it was there stays known, and
    that the message of an update is still to come. Its kind changes last: after a sync that failed
    the system may call a file safe that is not, so the record must be found, and cleared, again.
    """
    to_erase: list[tuple[RecordChunk, Longs]] = []
    data, place = bytearray(path.read_bytes()), 0
    while place < len(data):
        try:
            chunk = parse(memoryview(data), place)
        except DamagedError:  # the last one may be half written yet
            break
        to_erase.append((chunk, erased.rows(chunk)))
        place = chunk.end
    to_erase = [each for each in to_erase if len(each[1])]
    if not to_erase:
        return
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        for chunk, _ in to_erase:
            write_at(fd, UNCHECKED.to_bytes(4, "little"), chunk.content_check_at)
        os.fdatasync(fd)  # before anything differs from its checksum
        for changed in (_clear_contents, _change_kinds):
            for begin, end in chain.from_iterable(changed(data, *each) for each in to_erase):
                write_at(fd, memoryview(data)[begin:end], begin)
            os.fdatasync(fd)
    finally:
        os.close(fd)


def _clear_contents(data: bytearray, chunk: RecordChunk, rows: Longs) -> list[tuple[int, int]]:
    """Clear the contents of records; return the bytes to write, of which most may be as before."""
    kinds = chunk.kinds()[rows]
    is_awaited, is_label = np.isin(kinds, AWAITED), kinds == EARLY_LABEL
    spans = chunk.contents(rows)
    spans[:-1, is_label, 1] = spans[:-1, is_label, 0]
    spans[-1, is_awaited, 1] = spans[-1, is_awaited, 0]  # labels of the id are still this message's
    for row in np.flatnonzero(is_label).tolist():  # it may be of a message that is still to come
        spans[-1, row, 0] = data.index(b"\0", int(spans[-1, row, 0]) + LABEL_HEAD.size) + 1
    begins, ends = spans.reshape(-1, 2).T.copy()
    kernels.clear(np.frombuffer(data, np.uint8), begins, ends)
    return _joined(begins, ends)


def _change_kinds(data: bytearray, chunk: RecordChunk, rows: Longs) -> list[tuple[int, int]]:
    """Note that records are erased; return the bytes to write."""
    places = chunk.kinds_at + rows
    np.frombuffer(data, np.uint8)[places] = _ERASED_KINDS[chunk.kinds()[rows]]
    return _joined(places, places + 1)


def _joined(begins: Longs, ends: Longs) -> list[tuple[int, int]]:
    """Return spans in order, joined where what lies between two is short."""
    begins, ends = begins[order := np.argsort(begins)], np.maximum.accumulate(ends[order])
    gaps = np.flatnonzero(begins[1:] > ends[:-1] + _GAP_BYTES)
    return list(zip([begins[0], *begins[gaps + 1]], [*ends[gaps], ends[-1]], strict=True))
