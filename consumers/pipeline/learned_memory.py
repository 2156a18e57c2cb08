"""The memory of what was learned: for each partition, the records of its newest messages.

A log's records are numbered from 0 and stand in segments of `SEGMENT_RECORDS`, one file each, which
only ever grow; so what is remembered is a function of the partition's log, however it was cut into
batches. The consuming thread owns the memory. A thread of its own writes sealed segments, and all
that a checkpoint names before that appears; it may lie `WAITING_MAX` segments behind, then the
consuming thread waits for it; if the disk refuses, memory holds what it has not. The checkpoint
names each file and how many records the log had, but no bytes, as these depend on the batches: at
the start files are cut to that, and what it does not name is removed.

Records are found by a keyed 64-bit hash of their id, in tables that are made when first asked for,
with the hashes: a stream without deletes and updates needs none, and the tables of accounts wait
for the first deletion of one. The id itself is compared afterwards, so a collision changes nothing.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import numpy as np
import structlog
from numpy.typing import NDArray

from consumers.config.model import FieldKind, holds_floats
from consumers.errors import CheckpointError
from consumers.kernels import learned_records as kernels
from consumers.kernels.learned_records import EARLY_DELETE, EARLY_UPDATE
from consumers.messages import (
    CheckpointEntry,
    Column,
    Partition,
    account_prefixes,
    id_named,
    part_name,
    partition_of,
)
from consumers.pipeline.checkpoint import cut_file, unreadable
from consumers.pipeline.erasure import ErasedIds, OffsetsByLog, erase_records
from consumers.pipeline.learned_records import (
    DamagedError,
    FoundRecords,
    Hashed,
    Hashes,
    IdIndex,
    Lost,
    PendingIds,
    Segment,
    Values,
    checked,
    no_spans,
    pack,
    runs_of,
    store,
)
from consumers.private_files import MappedFiles
from streamnb import TextColumn
from streamnb.kernels.layout import Texts
from streamnb.tokenizer import fingerprints_of, hash_key_words

SEGMENT_RECORDS = 1 << 15
WAITING_MAX = 4  # sealed segments that are not written yet
MAPPED_MAX = 32  # files that are held open at a time
FOLDER_NAME = "learned"
_Targets: TypeAlias = Sequence[tuple[Segment, int]]
_FILE = re.compile(r"([0-9]+)(-[0-9a-f]+)?\.records")
log = structlog.get_logger(__name__)


class LogMemory:
    """The newest records of one partition, of messages that are learned by some fields."""

    def __init__(
        self, folder: Path | None, fields: Mapping[str, FieldKind], per: str | None,
        records_max: int, hashed: Hashed, files: MappedFiles, *, accounts: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.fields, self.n_fields, self.per = folder, dict(fields), len(fields), per
        self.names = list(fields)  # in the order of the files; records are read in that of `fields`
        self.hashed, self._files, self.records_max = hashed, files, records_max
        self.tag = ""  # in the names of its files, as kept checkpoints may name those of before
        self.n = 0  # records so far, those forgotten included
        self.is_whole = True  # the log was remembered from its beginning
        self.is_elsewhere = False  # another member of the group has got further, and remembers
        self.first_offset: int | None = None  # from where on what was learned is known
        self.segments: dict[int, Segment] = {}
        self.lost: dict[int, Lost] = {}
        self.short: dict[int, int] = {}  # the records of segments that others followed amid
        self.beat: Callable[[], object] = lambda: None
        self._pending = PendingIds()
        self._ids, self._accounts = IdIndex(), IdIndex()
        self._indexes = [self._ids, self._accounts][: 1 + accounts]

    def floor(self, number: int) -> int:
        """Return the first record that is still known when a record of this number comes."""
        return max(0, number // SEGMENT_RECORDS * SEGMENT_RECORDS - self.records_max)

    def path(self, number: int) -> Path | None:
        """Return the file of a segment; None if the memory is kept without files."""
        return None if self.folder is None else self.folder / f"{number}{self.tag}.records"

    def paths(self) -> set[Path | None]:
        """Return its files, also those that could not be read."""
        return {self.path(each) for each in (*self.segments, *self.lost)}

    def give_up_lost(self) -> None:
        """Try no lost segment again: it lacks a correction that was applied."""
        self.lost = {n: each.given_up for n, each in self.lost.items()}

    @property
    def n_damaged(self) -> int:
        """How many files of these settings are damaged or gone; any thread may ask."""
        lost = [each for each in list(self.lost.values()) if each.is_damaged]
        return sum(each.is_of(self.fields, self.per) for each in lost)

    def missing(self) -> dict[str, Any]:
        """Return what a checkpoint says of segments that are lost or short, if there are any."""
        said = {
            "lost": [[n, each.names, each.per] for n, each in self.lost.items()],
            "of_others": [n for n, each in self.lost.items() if not each.is_damaged],
            "short": list(map(list, self.short.items())),
        }
        return {name: values for name, values in said.items() if values}

    @property
    def n_kept(self) -> int:
        """How many records are kept."""
        return sum(each.n for each in self.segments.values())

    def append(
        self, offsets: NDArray[np.int64], labels: NDArray[np.int32], kinds: NDArray[np.uint8],
        ids: TextColumn, fields: Mapping[str, Column], hashes: Hashes | None = None,
    ) -> list[Segment]:  # fmt: skip
        """Remember records; return the segments that they have sealed.

        Without hashes of the ids, which are made when asked for, none of them may be early.
        """
        if self.first_offset is None and (offsets >= 0).any():
            self.first_offset = int(offsets[offsets >= 0][0])
        columns = [fields[name] for name in dict.fromkeys((*self.names, *fields))]
        sealed, begin = [], 0
        while begin < len(offsets):
            number = self.n // SEGMENT_RECORDS
            end = min(len(offsets), begin + (number + 1) * SEGMENT_RECORDS - self.n)
            segment = self.segments.get(number)
            if segment is None:
                segment = self.segments[number] = Segment(number, self.path(number), self._files)
            rows = slice(begin, end)
            if hashes is not None:
                self._note_early(number, kinds[rows], hashes[rows])
            own = [
                each.piece(begin, end) if isinstance(each, TextColumn) else each[rows]
                for each in columns
            ]
            data = pack(offsets[rows], labels[rows], kinds[rows], ids.piece(begin, end), own)
            segment.append(data, end - begin)
            for index in self._indexes:
                made = hashes if index is self._ids else None
                index.add(self.n, end - begin, None if made is None else made[rows])
            self.n += end - begin
            if self.n % SEGMENT_RECORDS == 0:
                segment.is_sealed = True
                sealed.append(segment)
            begin = end
        return sealed

    def _note_early(self, number: int, kinds: NDArray[np.uint8], hashes: Hashes) -> None:
        self._pending.add(number, hashes[(kinds == EARLY_DELETE) | (kinds == EARLY_UPDATE)])

    def forget(self) -> list[Path | None]:
        """Drop the segments beyond the bound, and return their files."""
        floor = self.floor(self.n)
        gone = [n for n in (*self.segments, *self.lost) if n < floor // SEGMENT_RECORDS]
        for number in gone:
            for each in (self.segments, self.lost, self.short):
                each.pop(number, None)
        if gone:
            for index in self._indexes:
                index.forget(floor)
            self._pending.forget(floor // SEGMENT_RECORDS)
        return [self.path(number) for number in gone]

    @property
    def has_pending(self) -> bool:
        """Whether there may be ids whose message is still to come."""
        return bool(self._pending)

    def is_pending(self, hashes: Hashes) -> NDArray[np.bool_] | None:
        """Return which hashes are of ids whose message is still to come, or None if no id is.

        One may be among them that is not any more: only its records tell.
        """
        return self._pending.among(hashes)

    def knows(self, hashes: Hashes) -> NDArray[np.bool_]:
        """Return which hashes are of an id that has records."""
        return self._ids.knows(hashes, self._hashes)

    def find(self, hashes: Hashes) -> FoundRecords:
        """Return the records with one of some hashes."""
        return self.read(self._ids.find(hashes, self._hashes))

    def heads(self, begin: int, end: int) -> Iterator[FoundRecords]:
        """Yield the records from one number to another by segment, with their ids alone."""
        for number in range(begin // SEGMENT_RECORDS, next_segment(end) // SEGMENT_RECORDS):
            if number in self.segments:
                first = number * SEGMENT_RECORDS
                at = np.arange(max(0, begin - first), min(end - first, self.segments[number].n))
                spans, values = np.full((len(at), kernels.FIELDS), -1), Values()
                self.beat()
                try:
                    values.add(self.segments[number].locate(at, spans), spans)
                except (OSError, ValueError, DamagedError) as error:
                    self.lose(number, error)
                else:
                    yield FoundRecords(at + first, spans, values.data)

    def _hashes(
        self, begin: int, end: int, part: Callable[[Texts], Texts] = lambda ids: ids
    ) -> Iterator[tuple[int, Hashes]]:
        """Yield the hashes of the ids, or of a part of each; see `IdIndex.find`."""
        for found in self.heads(begin, end):
            if len(found):
                yield int(found.numbers[0]), self.hashed(part(found.texts(kernels.ID)))

    def lose(self, number: int, error: Exception, *, is_damaged: bool = True) -> None:
        """Go on without a segment: damaged, gone or of other settings. Other errors end the run."""
        said = getattr(error, "strerror", None) or error
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise unreadable(self.path(number), error) from error
        self.segments.pop(number, None)
        self.lost[number] = Lost(list(self.names), self.per, is_damaged)
        self.is_whole = False
        way_out = ", unless you stop and put the file back from a copy of the folder" * is_damaged
        log.error(
            "learned_damaged",
            file=None if self.folder is None else f"{unquote(self.folder.name)}/{number}",
            detail=f"{said}; deletes and updates of its messages take nothing back{way_out}",
        )

    def of_accounts(self, hashes: Hashes) -> FoundRecords:
        """Return the records with one of some hashes of what their ids begin with."""
        return self.read(self._accounts.find(hashes, partial(self._hashes, part=account_prefixes)))

    def read(self, numbers: NDArray[np.int64]) -> FoundRecords:
        """Return the records of some numbers, ascending, that are known yet."""
        segments = numbers // SEGMENT_RECORDS
        runs = list(runs_of(segments))
        known = [run for run in runs if int(segments[run[0]]) in self.segments]
        if len(known) < len(runs):
            return self.read(np.concatenate([numbers[:0], *(numbers[a:b] for a, b in known)]))
        spans, values = no_spans(len(numbers), self.n_fields), Values()
        for first, last in runs:
            number, at = int(segments[first]), numbers[first:last] % SEGMENT_RECORDS
            try:  # no name for its bytes: they would hold the file open
                values.add(self.segments[number].locate(at, spans[first:last]), spans[first:last])
            except (OSError, ValueError, DamagedError) as error:  # it has gone, or is too short
                self.lose(number, error)
                return self.read(numbers)
        own = spans[:, kernels.FIELDS : kernels.FIELDS + 2 * self.n_fields]
        own[:] = own[:, [2 * i + k for i in map(self.names.index, self.fields) for k in (0, 1)]]
        return FoundRecords(numbers, spans, values.data)

    def load(self, number: int, data: bytes, n_classes: int, *, is_stored: bool) -> Segment:
        """Take up a segment, cut to the log's records so far; return it.

        `data` are the bytes of its file, or (if not `is_stored`) are to be written there.
        """
        segment = Segment(number, self.path(number), self._files)
        n = min(SEGMENT_RECORDS, self.short.get(number, self.n - number * SEGMENT_RECORDS))
        columns = tuple(holds_floats(kind) for kind in map(self.fields.get, self.names) if kind)
        while segment.n < n:
            at = segment.n_bytes
            n_own, end = checked(memoryview(data), at, n_classes, columns)
            segment.note(n_own, end - at)
        if segment.n > n:
            raise DamagedError(f"it has {segment.n} records, not {n}")
        n_bytes = segment.n_bytes
        if is_stored:
            segment.n_written = segment.n_synced = n_bytes
            if len(data) > n_bytes and segment.path is not None:
                cut_file(segment.path, n_bytes)
        segment.is_sealed = number < self.n // SEGMENT_RECORDS
        # It grows on in memory, or is to be written, or its file has all.
        is_held = not (segment.is_sealed and is_stored)
        segment.held = np.frombuffer(data, np.uint8, n_bytes)
        self.segments[number] = segment
        for index in self._indexes:
            index.add(number * SEGMENT_RECORDS, n, None)
        for found in self.heads(number * SEGMENT_RECORDS, number * SEGMENT_RECORDS + n):
            kinds = found.spans[:, kernels.KIND].astype(np.uint8)
            if np.isin(kinds, (EARLY_DELETE, EARLY_UPDATE)).any():
                self._note_early(number, kinds, self.hashed(found.texts(kernels.ID)))
        segment.held = segment.held.copy() if is_held else None
        return segment


class LearnedMemory:
    """The memory of all partitions; without a folder it is kept in memory alone.

    `fields` are those that messages are learned by, with what is made of them; `records_max` bounds
    the records of a partition, and `keep` checkpoints are kept. With `accounts` all records of an
    account can be found, by the first part of their ids. `per` is the field among them that the
    model does not read, if there is one: records of another one are given up.
    """

    name = "memory"

    def __init__(
        self, folder: Path | None, fields: Mapping[str, FieldKind], records_max: int, keep: int,
        *, accounts: bool = False, per: str | None = None,
    ) -> None:  # fmt: skip
        self.accounts, self.per = accounts, per
        self.folder = None if folder is None else folder / FOLDER_NAME
        self.fields = dict(fields)
        self.records_max = records_max
        self.keep = keep
        self.n_classes = kernels.ANY_CLASS  # those of the restored model, before `unpack`
        self.logs: dict[Partition, LogMemory] = {}
        self.tell: Callable[[str], object] = lambda _step: None  # of each step of a start
        self.beat: Callable[[], object] = lambda: None  # amid what may take long
        self._files = MappedFiles(MAPPED_MAX)
        self._key = hash_key_words(secrets.randbits(128))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="learned")
        self._waiting: deque[Future[None]] = deque()
        self._synced: Future[None] | None = None
        # What the kept checkpoints may name: the files that each one had no use for any more.
        self._leaving: deque[list[Path | None]] = deque([[]], maxlen=keep + 1)
        # What the last checkpoint says of each partition, and the bytes of its segments by then.
        self.packed: dict[Partition, tuple[Mapping[str, Any], list[tuple[Segment, int]]]] = {}
        self.erasing = threading.Lock()  # held while bytes of files change

    def log(self, partition: Partition) -> LogMemory:
        """Return the memory of a partition, which may be empty."""
        if partition not in self.logs:
            self.logs[partition] = self._empty_log(self._path(partition))
        return self.logs[partition]

    def _empty_log(self, folder: Path | None) -> LogMemory:
        made = LogMemory(
            folder, self.fields, self.per, self.records_max, self.hashed, self._files,
            accounts=self.accounts,
        )  # fmt: skip
        made.beat = self.beat
        return made

    # ---- the group -----------------------------------------------------------------------------

    def restart(self, partition: Partition) -> LogMemory:
        """Forget a partition of which another member of the group has learned more.

        Its files have other names from here on, as kept checkpoints name those of before.
        """
        old = self.log(partition)
        self._leaving[-1] += old.paths()
        new = self.logs[partition] = self._empty_log(old.folder)
        new.tag = f"-{secrets.token_hex(4)}"
        new.is_whole, new.is_elsewhere = False, True
        return new

    def is_elsewhere(self, partition: Partition) -> bool:
        """Return whether another member remembers more of a partition; any thread may ask."""
        return (memory := self.logs.get(partition)) is not None and memory.is_elsewhere

    def _path(self, partition: Partition) -> Path | None:
        name = quote(part_name(partition), safe="")
        return None if self.folder is None else self.folder / name

    @property
    def trouble(self) -> str | None:
        """What was lost, or cannot be written, in a sentence; None if nothing."""
        logs = list(self.logs.values())
        if n := sum(each.n_damaged for each in logs):
            return (
                f"{n} files of what was learned could not be read: what deletes and updates say of "
                "their messages takes nothing back; the log names them (learned_damaged)"
            )
        segments = [each for own in logs for each in list(own.segments.values()) if each.is_sealed]
        held = sum(each.n_written < each.n_bytes for each in segments)
        if self.folder is None or held <= WAITING_MAX + 1:
            return None
        return f"{held} files of what was learned are held in memory until the disk takes them"

    def sizes(self) -> tuple[int, int]:
        """Return how many records are kept, and their bytes."""
        every = self._segments()
        return sum(each.n for each in every), sum(each.n_bytes for each in every)

    def _segments(self) -> list[Segment]:
        return [each for memory in self.logs.values() for each in memory.segments.values()]

    def hashed(self, texts: Texts) -> Hashes:
        """Return the hash of each id; a missing one is as good as empty."""
        starts = np.minimum(texts.starts, np.maximum(texts.ends, 0))
        ends = np.maximum(texts.ends, starts)
        return fingerprints_of(Texts(texts.data, starts, ends), self._key)

    def wrote(self, memory: LogMemory, sealed: Iterable[Segment]) -> None:
        """Have sealed segments written; wait if too many do not stand in their files yet."""
        for segment in sealed:
            if self.folder is not None:
                self._submit([(segment, segment.n_bytes)])
        self._leaving[-1] += memory.forget()
        while len(self._waiting) > WAITING_MAX or (self._waiting and self._waiting[0].done()):
            with contextlib.suppress(OSError):  # the next checkpoint tries again, and says why
                self._waiting.popleft().result()
        for segment in memory.segments.values():
            segment.release()

    def hash(self, name: bytes) -> np.uint64:
        """Return the hash of one id."""
        data, ends = np.frombuffer(bytearray(name), np.uint8), np.array([len(name)], np.int64)
        return np.uint64(self.hashed(Texts(data, np.zeros(1, np.int64), ends))[0])

    def _submit(self, targets: _Targets, folder: Path | None = None) -> Future[None]:
        self._waiting.append(self._thread.submit(store, targets, folder))
        return self._waiting[-1]

    # ---- the checkpoint ------------------------------------------------------------------------

    def pack(self) -> CheckpointEntry:
        """Return what the files hold up to now, and have it synced."""
        every = self._segments()
        targets = [(each, each.n_bytes) for each in every if each.n_synced < each.n_bytes]
        if self.folder is not None:
            self._synced = self._submit(targets, self.folder)
        self.packed = {
            partition: (
                {
                    "records": memory.n,
                    "is_whole": memory.is_whole,
                    "first_offset": memory.first_offset,
                    "files": list(memory.segments),
                    "tag": memory.tag,
                    "is_elsewhere": memory.is_elsewhere,
                    "fields": memory.names,
                }
                | ({} if self.per is None else {"per": self.per})
                | memory.missing(),
                [(segment, segment.n_bytes) for segment in memory.segments.values()],
            )
            for partition, memory in self.logs.items()
        }
        return CheckpointEntry({part_name(each): said for each, (said, _) in self.packed.items()})

    def sync(self) -> None:
        """Wait until the files have all that `pack` named; on the checkpoint thread."""
        synced = self._synced
        if synced is None:
            return
        try:
            synced.result()
        except OSError as error:
            raise CheckpointError(
                f"checkpoint.folder: {FOLDER_NAME}/, with what messages taught, cannot be written"
                f" ({error.strerror or error}). See to the folder and the disk's room."
            ) from error

    def saved(self) -> None:
        """Remove the files that no kept checkpoint names any more; after each checkpoint."""
        if len(self._leaving) == self._leaving.maxlen:
            for path in set(self._leaving[0]) - self._paths():
                if path is not None:
                    self._files.close(path)
                    with contextlib.suppress(OSError):  # the next start removes it
                        path.unlink(missing_ok=True)
        self._leaving.append([])

    def unpack(self, entry: CheckpointEntry) -> None:
        """Take up the files that a checkpoint names; without a damaged one the rest goes on."""
        for at, (name, values) in enumerate(entry.values.items(), 1):
            self.tell(f"reading what messages taught, {at} of {len(entry.values)}")
            memory = self.log(partition_of(name))
            memory.tag = values.get("tag", "")
            memory.is_elsewhere, memory.per = values.get("is_elsewhere", False), values.get("per")

            def read(number: int, memory: LogMemory = memory) -> bytes:
                return b"" if (path := memory.path(number)) is None else path.read_bytes()

            lost, others = values.get("lost", ()), values.get("of_others", ())
            memory.lost = {n: Lost(names, per, n not in others) for n, names, per in lost}
            self.take_up(memory, values, read, self.n_classes, is_stored=True)

    def take_up(
        self, memory: LogMemory, values: Mapping[str, Any], read: Callable[[int], bytes],
        n_classes: int, *, is_stored: bool,
    ) -> None:  # fmt: skip
        """Go on with the records that a checkpoint or another member says there are."""
        memory.n = int(values["records"])
        memory.is_whole = bool(values["is_whole"])
        memory.first_offset = values["first_offset"]
        memory.names = list(values.get("fields") or self.fields)  # an older version did not say
        memory.short = dict(values.get("short", ()))
        # What was lost may be whole again; its columns may be others.
        files = self._of_these_settings(memory, sorted(map(int, values["files"])))
        again = [n for n, by in memory.lost.items() if by[:2] == (memory.names, memory.per)]
        for number in sorted((*files, *again)):
            before = memory.lost.pop(number, None)
            try:
                segment = memory.load(number, read(number), n_classes, is_stored=is_stored)
            except (OSError, DamagedError) as error:
                memory.lose(number, error, is_damaged=before is None or before.is_damaged)
                if before is not None and not before.is_damaged:  # told once, as that is no trouble
                    memory.lost[number] = before.given_up
            else:
                if segment.is_sealed and not is_stored:
                    self.wrote(memory, [segment])
        memory.names = memory.names if memory.segments else list(self.fields)
        last, n = divmod(memory.n, SEGMENT_RECORDS)
        if n and last not in memory.segments:  # what follows its open one begins another
            memory.short[last], memory.n = n, next_segment(memory.n)

    def _of_these_settings(self, memory: LogMemory, files: list[int]) -> list[int]:
        """Return the files to take up: those of other settings are lost, and the names ours."""
        cause = "it was written with message.weight, or is to be read with it"
        if memory.per != self.per:
            cause = f"it was written with per.field {memory.per or 'null'}"
        elif sorted(memory.names) == sorted(self.fields):
            return files
        for number in files:
            memory.lose(number, DamagedError(cause), is_damaged=False)
        ours = [by.names for by in memory.lost.values() if by.is_of(self.fields, self.per)]
        memory.names, memory.per = list(filter(None, next(iter(ours), self.fields))), self.per
        return []

    def begin(self, positions: Iterable[Partition]) -> None:
        """Go on from a checkpoint: of its other partitions what they taught is not known.

        Called after `unpack`, or without it where the checkpoint has no entry.
        """
        for partition in [each for each in positions if each not in self.logs]:
            self.log(partition).is_whole = False
        if self.folder is None or not self.folder.is_dir():
            return
        named = self._paths()
        # Older kept checkpoints may name what this one does not; those files leave by and by.
        for folder in self.folder.iterdir():
            try:
                paths = list(folder.iterdir()) if folder.is_dir() else []
            except OSError as error:
                path = f"{FOLDER_NAME}/{folder.name}"
                log.warning("learned_not_removed", path=path, detail=error.strerror)
                continue
            self._leaving[-1] += [p for p in paths if _FILE.fullmatch(p.name) and p not in named]

    def _paths(self) -> set[Path | None]:
        """Return the files in use."""
        return {each for memory in list(self.logs.values()) for each in memory.paths()}

    def close(self) -> None:
        """End the writing thread."""
        self._thread.shutdown()

    # ---- erasure -------------------------------------------------------------------------------

    def erase(self, deleted: OffsetsByLog) -> None:
        """Overwrite the texts of deleted messages in all files; on the erasing thread.

        Of each log and id, records up to an offset go. A log that fails holds up no other. A file
        that could not be read goes as a whole: what it holds nobody knows.
        """
        if self.folder is None or not self.folder.is_dir():
            return
        # A log that was never read here may have a name that no folder can have.
        known, failed = {each for each in self.folder.iterdir() if each.is_dir()}, list[OSError]()
        lost = {each.path(n): n for each in list(self.logs.values()) for n in list(each.lost)}
        for partition, own in deleted.items():
            named = {name: id_named(partition, at, name) for name, at in own.items()}
            ids = {each.encode(): own[name] for name, each in named.items() if each is not None}
            places = [own[name] for name, each in named.items() if each is None]
            folder = path = self.folder / quote(part := part_name(partition), safe="")
            erased = ErasedIds(ids, places, self.hashed, accounts=self.accounts)
            try:
                for path in sorted(folder.iterdir()) if folder in known else ():
                    if _FILE.fullmatch(path.name):
                        with self.erasing, contextlib.suppress(FileNotFoundError):  # it has left
                            if path in lost:
                                path.unlink()
                                log.warning("learned_damaged_deleted", file=f"{part}/{lost[path]}")
                            else:
                                erase_records(path, erased)
            except OSError as error:  # a path by a descriptor tells people nothing
                where = path.relative_to(self.folder.parent)
                failed.append(OSError(error.errno, error.strerror, str(where)))
        if failed:
            raise failed[0]


def next_segment(n: int) -> int:
    """Return the first number from `n` on with which a segment begins."""
    return -(-n // SEGMENT_RECORDS) * SEGMENT_RECORDS
