"""What a member of a group knows of the others' parts, and what it hands on of its own.

Three threads meet here. The reading thread takes partitions over, the thread ``group`` looks for
further files of those that others read, and the checkpoint thread writes our own. The model belongs
to the consuming thread alone: what the first two bring reaches it in the order of the stream, or
between two batches.

In the end all members have the same file of each partition, to the bit: those that do not read it
take the furthest, and so does its reader once it has got as far. Its own part has the same counts
then, but not the same weights: these depend on where its batches ended.
"""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import structlog
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.errors import GroupError, GroupMismatchError
from consumers.kernels import learned_records as kernels
from consumers.messages import CLASSES_MAX, Partition, part_name
from consumers.pipeline import learned_memory
from consumers.pipeline.erasure import Deletion
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.learned_records import HEAD, STRUCTURE_CHECK_AT, parse
from consumers.pipeline.part_files import LoadedPart, PartFile, PartFiles, SharedRecords
from consumers.sources.base import LogFacts
from streamnb import Learner
from streamnb.errors import InputError
from streamnb.labels import Label
from streamnb.state import ModelState

_CLOSE_TIMEOUT_S = 10.0
_NOWHERE = (-1, 0)
log = structlog.get_logger(__name__)


class GroupStatus(msgspec.Struct, frozen=True):
    """The parts of a member's model: how many it reads itself, and how old the others' are.

    The age is that of the oldest file among the others' newest, in seconds; None without any.
    """

    n_own: int = 0
    n_others: int = 0
    oldest_s: float | None = None
    n_damaged: int = 0  # files of parts that were met damaged
    trouble: str | None = None  # what keeps files from being read or written


class PackedTimes(Protocol):
    """Whoever knows where the times of partitions stand, and needs them with the parts."""

    def of_part(self, partition: Partition, /) -> Sequence[float | None] | None:
        """Return the times of a partition as of the last checkpoint."""


class _Known(msgspec.Struct):
    """What is known of a partition: of its furthest file, and what is to be done with it."""

    place: tuple[int, int] = _NOWHERE  # its positions in the log, and in that of corrections
    written_s: float = 0.0
    seen: PartFile | None = None  # the furthest that was looked at
    held: PartFile | None = None  # what the part in the model is, as long as it is at that place
    given: int = -1  # how far files brought the model
    news: LoadedPart | None = None  # what others brought, for the consuming thread
    is_taken_over: bool = False  # by the reading thread
    begin: int | None = None  # where it begins, to be written

    def at(self, place: tuple[int, int]) -> tuple[int | str, ...]:
        """Return the file that the model's part is, at its place; of no file, the place alone."""
        return place if self.held is None or self.held[:2] != place else self.held


class GroupParts(msgspec.Struct):
    """The parts of `topic` that the group shares by `files`; looked for every `interval_s`.

    `memory` remembers what the messages of our partitions taught, `times` knows where their times
    stand if that decays or their labels come late, `labels` is the topic of these or of what people
    say of them. `clock` returns Unix seconds: ages are those of files.
    """

    files: PartFiles
    topic: str
    interval_s: float
    clock: Callable[[], float] = time.time
    is_late: bool = False  # who sees the topic first begins at its end, who comes later at a later
    memory: LearnedMemory | None = None
    times: PackedTimes | None = None
    labels: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _begins: threading.Lock = field(default_factory=threading.Lock)  # who writes beginnings has it
    _known: defaultdict[Partition, _Known] = field(default_factory=lambda: defaultdict(_Known))
    _own: frozenset[Partition] = frozenset()
    _positions: Mapping[Partition, int] = field(default_factory=dict)  # the loop's, as they are now
    _is_full: bool = False  # no class may join
    _is_answered: bool = False  # questions are answered by what was put, and what is handed on
    _frozen: Mapping[Partition, PartFile | None] = field(default_factory=dict)  # see `freeze`
    _troubles: dict[str, str] = field(default_factory=dict)
    _closing: threading.Event = field(default_factory=threading.Event)
    _begun: Mapping[Partition, LogFacts] | None = None  # as the group was told last
    _is_topic_known: bool = False
    _mismatch: GroupMismatchError | None = None
    _may_look: threading.Event = field(default_factory=threading.Event)  # or is to end
    _thread: threading.Thread | None = None

    # ---- the reading thread ---------------------------------------------------------------------

    def take_over(self, partition: Partition, position: int | None) -> LoadedPart | None:
        """Return the part of a partition that is ours now, if a file has got beyond `position`.

        One that has got as far is returned too if only that says what its messages taught, or how
        far corrections were applied; not so if it is our own, which we may be ahead of. From here
        on no news of the partition are given, until `keep_only` says that it is not ours. If the
        files cannot be reached, or that of the model's part is gone, it is a `GroupError`: what
        others learned must not be learned again.
        """
        begin = -1 if position is None else position
        with self._lock:
            known = self._known[partition]
            if known.news is not None:  # if it is no further, it is looked at again
                known.seen = known.news = None
            known.is_taken_over = True
        is_elsewhere = self.memory is not None and self.memory.is_elsewhere(partition)
        is_here = known.given <= begin and not is_elsewhere
        if is_here and self._is_as_we_wrote(partition, begin):
            return None
        as_far = is_elsewhere or self.labels is not None
        loaded = self.files.load(partition, (begin,) if as_far else (begin + 1,))
        if loaded is not None:
            with self._lock:
                known.given, known.seen = loaded.position, loaded.file
            self._note(partition, loaded.file[:2], loaded.written_s)
        elif known.given > begin:
            raise GroupError(
                f"group.folder: the file of {partition} up to {known.given}, which was loaded "
                "before, is gone. All members of the group must reach the folder: see to it, then "
                "start again."
            )
        return loaded

    def _is_as_we_wrote(self, partition: Partition, begin: int) -> bool:
        """Return whether the furthest file is our own, and no further than the model is.

        Nobody has learned anything of the partition since, and we may have applied corrections: a
        rebalance that leaves a partition to us must not take them back until they are read again.
        """
        furthest = self.files.furthest(partition)
        return (
            furthest is not None
            and furthest.writer == self.files.writer
            and furthest.position <= begin
        )

    def know_topic(self, topic_id: str | None) -> None:
        """Let the parts of a topic be looked for; None if the broker gives topics no ids.

        Those of a topic that had its name before would enter the model, as long as its own id is
        not known.
        """
        self.files.topic_id = topic_id
        self._is_topic_known = True
        self._may_look.set()

    def know_labels(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Let parts be held to the id of the labels' topic, if the broker gives topics ids.

        Their positions in a topic that had its name before are a `GroupMismatchError`, so that no
        checkpoint is written; `watch` raises it too.
        """
        own = [facts.topic_id for log, facts in logs.items() if log.topic == self.labels]
        for labels_id in {each for each in own if each is not None}:
            try:
                self.files.know_labels(labels_id)
            except GroupMismatchError as error:
                self._mismatch = error
                raise

    def watch(self) -> None:
        """Raise what `know_labels` found wrong: no later checkpoint would be written either."""
        if self._mismatch is not None:
            raise self._mismatch

    def keep_only(self, own: Collection[Partition]) -> None:
        """Know again what others bring of the partitions that were taken over and are not ours."""
        with self._lock:
            for partition, known in self._known.items():
                if known.is_taken_over and partition not in own:
                    known.is_taken_over = False
                    known.seen = None  # what was loaded may not have come into the model

    # ---- the consuming thread -------------------------------------------------------------------

    def start(self) -> None:
        """Begin to look for the others' files, once it is known which topic they are to be of."""
        self._thread = threading.Thread(target=self._run, name="group", daemon=True)
        self._thread.start()

    def begin(self, beginnings: Mapping[Partition, LogFacts]) -> None:
        """Let the group know where partitions begin that may not be read from their start.

        Another member, which saw the topic later, would begin later. The same beginnings are told
        once. What cannot be written is told as trouble, and tried again by `write`.
        """
        if beginnings is self._begun:
            return
        self._begun = beginnings
        with self._lock:
            for partition, facts in beginnings.items():
                if facts.begin or self.is_late:
                    self._known[partition].begin = facts.begin
        if troubles := self._write_beginnings():
            self._say("write", next(iter(troubles.values())))

    def take_news(
        self, own: Collection[Partition], positions: Mapping[Partition, int]
    ) -> dict[Partition, tuple[LoadedPart, bool]]:
        """Return parts that others brought further than the model has them, or, if true, as far.

        Those that are read here are in `own` up to the last of their batches: then only what is as
        far as the model has them, and the furthest file. It counts the same. Any other part than
        these may be put into the model as it is.
        """
        self._own, self._positions = frozenset(own), positions
        found = {}
        with self._lock:
            for partition, known in self._known.items():
                news, known.news = known.news, None
                if news is None:
                    continue
                place = self._place(partition, positions)
                is_as_far, is_here = news.file[:2] == place, partition in self._own
                if news.file <= known.at(place):
                    continue
                if is_as_far if is_here else not known.is_taken_over:
                    found[partition] = news, is_as_far
                    known.given = news.position
                else:
                    known.seen = None  # its turn comes behind what is on its way here
        return found

    def put(self, learner: Learner, partition: Partition, part: LoadedPart) -> None:
        """Put a file's part into the model; one that does not enter it is a `GroupError`."""
        try:
            learner.set_part(part_name(partition), part.model)
        except InputError as error:
            raise self.files.refuse(partition, part.file, error) from error
        self._is_answered = False
        with self._lock:
            known = self._known[partition]
            known.held = part.file
            if known.seen is not None and known.seen > part.file:
                known.seen = None

    def freeze(self) -> None:
        """Note which file each part of the model is, as the model is frozen for `write`."""
        self._is_answered = False
        with self._lock:
            self._frozen = {each: known.held for each, known in self._known.items()}

    def answer(self, learner: Learner) -> None:
        """Let questions be answered by parts that came in, and by our own once others have them.

        So members answer alike as soon as they know the same, but for stated probabilities and
        prediction sets: each has a calibrator of its own partitions. Snapshots by examples stand at
        places of the log, which differ; what judges the stream stays at these.
        """
        if not self._is_answered and learner.n_until_due() is not None:
            learner.refresh()
        self._is_answered = True

    def takes_class(self, label: Label) -> bool:
        """Return whether a class may join; a class that may not is told once.

        While the files cannot be reached it is a `GroupError` that may pass; the status says so.
        """
        try:
            is_taken = self.files.take_class(self.topic, str(label))
        except GroupError as error:
            self._say("classes", str(error))
            raise
        self._say("classes", None)
        if not is_taken and not self._is_full:
            self._is_full = True
            log.warning("group_classes_full", label=str(label)[:60], classes_max=CLASSES_MAX)
        return is_taken

    def has_labels(self) -> bool:
        """Return whether a member has taken labels, or applied corrections, of their topic.

        Files that cannot be reached are a `GroupError`.
        """
        own = [each for each in self.files.partitions() if each.topic == self.topic]
        furthest = [self.files.furthest(each) for each in own]
        return any(each is not None and each.labels > 0 for each in furthest)

    def is_behind(self, positions: Mapping[Partition, int]) -> bool:
        """Return whether a part of the model stands in no file yet, at its position or beyond."""
        with self._lock:
            return any(known.begin is not None for known in self._known.values()) or any(
                self._known[each].place < self._place(each, positions)
                for each in self._ours(positions)
            )

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._may_look.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT_S)

    # ---- the checkpoint thread ------------------------------------------------------------------

    def write(
        self,
        state: ModelState,
        positions: Mapping[Partition, int],
        deletions: Sequence[Deletion] = (),
    ) -> None:
        """Write the parts that have got beyond their files; a failure is logged, and told.

        The checkpoint holds them all the same, and the next one tries again. Who takes a part over
        takes its `deletions` over, those that were not erased before the records are read here.
        """
        troubles = self._write_beginnings()
        pending = defaultdict[Partition, list[Deletion]](list)
        for each in deletions:
            pending[Partition(each.topic, each.partition)].append(each)
        for partition in self._ours(positions):
            place = position, labels = self._place(partition, positions)
            with self._lock:
                furthest, now_held = self._known[partition].place, self._known[partition].held
            held = self._frozen.get(partition, now_held)  # another part may have come in since
            is_known = part_name(partition) in state.parts and partition not in troubles
            if not is_known or furthest >= place:
                continue
            try:
                records = None if self.memory is None else shared_records(self.memory, partition)
                if records is not None:
                    records = replace(records, deletions=pending[partition])
                times = None if self.times is None else self.times.of_part(partition)
                n = self.files.write(state, partition, position, records, labels, times)
            except (GroupError, OSError) as error:
                troubles[partition] = str(error)  # those behind it are written all the same
                continue
            self._note(partition, place, self.clock())
            if n:
                self._wrote(partition, PartFile(*place, self.files.writer), held)
        self._say("write", next(iter(troubles.values()), None))

    def _wrote(self, partition: Partition, file: PartFile, held: PartFile | None) -> None:
        """Know of our own file, which the model's part is if it was `held` and is at its place."""
        with self._lock:
            known = self._known[partition]
            if known.held is held:
                known.held = file
                known.seen = file if known.seen is None else max(known.seen, file)
            else:
                known.seen = None

    def _write_beginnings(self) -> dict[Partition, str]:
        """Write where partitions begin; return what keeps those from it that are left."""
        troubles = {}
        with self._begins:  # a checkpoint may write them just now
            with self._lock:
                wanted = [(each, known) for each, known in self._known.items()]
            for partition, known in wanted:
                if known.begin is None:
                    continue
                try:
                    self.files.begin(partition, known.begin)
                except GroupError as error:
                    troubles[partition] = str(error)
                else:
                    known.begin = None
        return troubles

    # ---- any thread -----------------------------------------------------------------------------

    def status(self) -> GroupStatus:
        """Return the status, for metrics and probes."""
        own = self._own
        with self._lock:
            known = self._known.items()
            others = [said for each, said in known if each not in own and said.place != _NOWHERE]
            trouble = next(iter(self._troubles.values()), None)
        oldest = min((each.written_s for each in others), default=None)
        age_s = None if oldest is None else max(0.0, self.clock() - oldest)
        return GroupStatus(len(own), len(others), age_s, len(self.files.damaged), trouble)

    # ---- the thread ``group`` -------------------------------------------------------------------

    def _run(self) -> None:
        self._may_look.wait()
        while self._is_topic_known:
            try:
                self.look()
            except GroupError as error:
                self._say("read", str(error))
            except Exception as error:  # learning goes on without the others; health says so
                log.exception("group_broke")
                self._say("read", f"looking for the others' parts failed: {error!r}")
            else:
                self._say("read", None)
            if self._closing.wait(self.interval_s):
                return

    def look(self) -> None:
        """Load what others brought further than is known, or as far as we are ourselves.

        A partition whose files fail keeps no other one from being looked at: what is wrong with the
        first of them is raised behind the last.
        """
        troubles = list[GroupError]()
        for partition in self.files.partitions():
            try:
                if partition.topic == self.topic:
                    self._look_at(partition)
            except GroupError as error:
                troubles.append(error)
        if troubles:  # one that passes hides none that lasts
            raise min(troubles, key=lambda each: not isinstance(each, GroupMismatchError))

    def _look_at(self, partition: Partition) -> None:
        with self._lock:
            known = self._known[partition]
            seen, held = known.seen, known.held
        furthest = self.files.furthest(partition)
        if furthest is None or furthest == seen:
            return
        if seen is not None and furthest < seen:  # that one is gone: it is to be written again
            with self._lock:
                known.place = min(known.place, furthest[:2])
        is_here = partition in self._own
        if is_here and furthest[:2] != self._place(partition, self._positions):
            return
        is_further = seen is not None and furthest > seen
        loaded = self.files.load(partition, seen if seen is not None and is_further else ())
        if loaded is None:
            return
        self._note(partition, loaded.file[:2], loaded.written_s)
        with self._lock:
            if known.seen is not seen or (known.is_taken_over and not is_here):
                return
            known.seen, known.news = loaded.file, loaded
            if known.held is held is not None and held > loaded.file:
                known.held = None

    def _ours(self, positions: Mapping[Partition, int]) -> list[Partition]:
        """Return the partitions of the stream, without those of other logs."""
        return [each for each in positions if each.topic == self.topic]

    def _place(self, partition: Partition, positions: Mapping[Partition, int]) -> tuple[int, int]:
        """Return the next offsets of a partition, and of what is said of its messages."""
        labels = Partition(self.labels or "", partition.partition)
        return positions.get(partition, -1), positions.get(labels, 0)

    def _note(self, partition: Partition, place: tuple[int, int], written_s: float) -> None:
        with self._lock:
            known = self._known[partition]
            if known.place < place:
                known.place, known.written_s = place, written_s

    def _say(self, what: str, trouble: str | None) -> None:
        """Log what keeps the files from being used, once while it lasts."""
        with self._lock:
            was = self._troubles.pop(what, None)
            if trouble is not None:
                self._troubles[what] = trouble
        if trouble is not None and was is None:
            log.error("group_files_fail", detail=trouble)
        elif trouble is None and was is not None:
            log.info("group_files_work_again")


def shared_records(memory: LearnedMemory, partition: Partition) -> SharedRecords | None:
    """Return what the memory's files hold of a partition as the checkpoint names it.

    Behind `LearnedMemory.sync`; None if another member remembers more.
    """
    values, segments = memory.packed.get(partition, ({"is_elsewhere": True}, []))
    if values["is_elsewhere"] or memory.folder is None:
        return None
    last = values["records"] // learned_memory.SEGMENT_RECORDS
    sealed, tail = dict[int, Path](), b""
    for segment, n_bytes in segments:
        assert segment.path is not None
        if segment.number < last:
            sealed[segment.number] = segment.path
        else:
            with memory.erasing, segment.path.open("rb") as file:
                tail = file.read(n_bytes)
    return SharedRecords(values, sealed, tail, memory.erasing)


def take_over_records(
    memory: LearnedMemory,
    partition: Partition,
    shared: SharedRecords | None,
    theirs: Sequence[Label] = (),
    ours: Sequence[Label] = (),
    beat: Callable[[], object] = lambda: None,
) -> None:
    """Go on with what the last reader of a partition remembers of it.

    The classes are those of the models: members may have found them in another order. Without the
    other's records, what it learned is not known; nor is that of a file whose checksums are right,
    and whose labels or places are not. `beat` is called before each file.
    """
    own = memory.restart(partition)
    if shared is None:
        own.is_elsewhere = False
        log.warning(
            "learned_not_handed_on",
            partition=part_name(partition),
            detail="deletes and updates of earlier messages take nothing back",
        )
        return
    codes = np.array([ours.index(label) for label in theirs], np.int32)
    is_same = tuple(ours[: len(theirs)]) == tuple(theirs)

    def read(number: int) -> bytes:
        beat()
        data = shared.read(number)
        return data if is_same else relabelled(data, codes)

    n_classes = len(theirs) if is_same else len(ours)
    memory.take_up(own, shared.values, read, n_classes, is_stored=False)
    own.is_elsewhere = False  # if it broke off, a restart asks the other's files again


def relabelled(data: bytes, codes: NDArray[np.int32]) -> bytes:
    """Return chunks with `codes[label]` for each label: those of another order of the classes."""
    done, at = bytearray(data), 0
    while at < len(data):
        chunk = parse(memoryview(data), at, check=True, n_classes=len(codes))
        _, place, _, _ = kernels.array_places(at, len(chunk), len(chunk.fields))
        labels = np.where(chunk.labels < 0, chunk.labels, codes[chunk.labels]).astype(np.int32)
        done[place : place + 4 * len(chunk)] = labels.tobytes()
        check = zlib.crc32(memoryview(done)[at + HEAD.size : chunk.kinds_at])
        struct.pack_into("<I", done, at + STRUCTURE_CHECK_AT, check)
        at = chunk.end
    return bytes(done)
