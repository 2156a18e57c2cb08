"""Labels that come after their messages, in a log of their own, and the messages that wait.

A message without a label is judged, and waits in the memory of its partition. A label of its id
whose time lies within the window of the message's own teaches it. The rules, whichever of the two
logs was read further:

- Of messages of one id within a window the first waits; the others are judged only, and so is one
  that comes a window behind the newest time of its partition.
- A label belongs to the first message of its id, in the order of their log, within its window. If
  none is there yet it waits too, until the partition's time is two windows beyond it: no message
  that comes then waits.
- The first label of a message is learned, in the order of the label log; others are repetitions.
- A message without a time has that of its partition.
- A message that is a horizon older than its partition's time is learned as the default. A label
  within the window takes the default's place.

So the counts are a function of the two logs. A partition's time is the newest that two messages in
a row have reached: a single wrong one moves nothing.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from consumers.config.message import LateLabelsSettings
from consumers.config.model import holds_floats
from consumers.decode.labels import is_over_limit, keep_classes, over_limit
from consumers.features import times_of
from consumers.kernels import learned_records as kernels
from consumers.kernels.learned_records import (
    DEFAULTED,
    EARLY_LABEL,
    LATE_LABELLED,
    WAITING,
    WAITING_UPDATE,
)
from consumers.messages import (
    NO_LABEL,
    OPERATIONS,
    CheckpointEntry,
    Column,
    Messages,
    Operation,
    Partition,
    Reason,
    Reject,
    part_name,
    partition_of,
    rows_of,
    take_texts,
    weighed,
)
from consumers.pipeline import learned_memory
from consumers.pipeline.challengers import ChallengedLearner
from consumers.pipeline.learned_memory import LearnedMemory, LogMemory
from consumers.pipeline.learned_records import AWAITED, Hashes, LearnedRecord
from consumers.pipeline.waiting_messages import (
    MESSAGES_AND_LABELS,
    Arrivals,
    Floats,
    WaitingLog,
    WaitingMessage,
    early_label,
    first_posteriors,
    leaving,
    near,
    pack_label,
    pack_time,
    take_back,
    texts_of,
    time_of,
    waiting_messages,
    waiting_records,
    waiting_times,
)
from streamnb import Codes, Confidence, Learner
from streamnb.labels import Label, to_indices

_CREATE = OPERATIONS.index(Operation.CREATE)
_MORE = " more"  # the field behind the model's
_LOOKED_AT = 256  # newest records that leave with a segment
_WHY = {
    "no_message": "no message of this id is known within late_labels.window_s of its time: none"
    " came, or it has left the memory (learned.messages_max)",
    "outside_window": "its message's time is further away than late_labels.window_s",
    "before_beginning": "its time is before the first message that was read of the partition",
    "forgotten": "too much came since for it to be remembered (learned.messages_max)",
    "message_gone": "its message was deleted, updated with a label of its own, or a person said"
    " that it teaches nothing",
}
log = structlog.get_logger(__name__)
Learned = Callable[[Floats, NDArray[np.integer[Any]], Confidence | None, Sequence[Label]], None]
Note = Callable[[Partition, Sequence[int], Sequence[str]], None]


class LateLabels:
    """Joins labels with the messages of one stream, on the consuming thread.

    `stream` is the topic of the messages' partitions. `learned` is told of the examples that were
    learned, by the log-posteriors that were first predicted, of what calibrated answers before, and
    of the classes; `n_until_look` after how many examples it wants to be told at the latest.
    """

    name = "late_labels"

    def __init__(
        self,
        settings: LateLabelsSettings,
        memory: LearnedMemory,
        stream: str,
        learned: Learned = lambda _posteriors, _truth, _confidence, _classes: None,
        n_until_look: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.revised: Counter[str] = Counter()  # the reviser's counts
        self._settings = settings
        self._memory = memory
        self._stream = stream
        self._learned = learned
        self._n_until_look = n_until_look
        self._window_ms = 1000 * settings.window_s
        self._horizon_ms = math.inf if settings.default is None else 1000 * settings.horizon_s
        self._fields = list(memory.fields)
        self._logs: defaultdict[Partition, WaitingLog] = defaultdict(WaitingLog)
        self._packed: Mapping[str, list[float | None]] = {}
        self._judged: dict[int, bytes] = {}
        self._rejects: list[Reject] = []
        self._is_short = False  # the log has said that the memory is
        # Told of labels, by the offsets of their messages.
        self._note: Note = lambda _partition, _offsets, _labels: None

    def show(self, note: Note, later: Callable[[Callable[[], None]], None]) -> None:
        """Have `note` told of each label that teaches, by `later`: once its message is shown."""
        self._note = lambda *said: later(partial(note, *said))

    # ---- messages ------------------------------------------------------------------------------

    def arrive(self, messages: Messages) -> Arrivals:
        """Move the time of a partition on by a batch, and return which of its messages may wait."""
        known = self._logs[messages.partition]
        times_ms = times_of(messages)
        newest = known.advance(times_ms)
        waits = (messages.labels == NO_LABEL) & (messages.operations == _CREATE)
        waits &= messages.ids.texts.ends >= 0
        before = np.where(np.isfinite(newest[:-1]), newest[:-1], np.nan)
        times_ms = np.where(np.isnan(times_ms), before, times_ms)
        in_time = ~(times_ms < before - self._window_ms)
        n_late = int((waits & ~in_time).sum())
        self.counts["messages_too_late"] += n_late
        known.tell_late(messages.partition, n_late)
        self._judged.clear()
        has_time = np.flatnonzero(~np.isnan(times_ms))
        if math.isnan(known.first_ms) and len(has_time):
            known.first_ms = float(times_ms[has_time[0]])
        return Arrivals(times_ms, waits & in_time, self._window_ms)

    def judged(self, offsets: NDArray[np.int64], log_posteriors: Floats) -> None:
        """Take what was predicted of messages without a label, before it comes."""
        rows = [row.tobytes() for row in log_posteriors]
        self._judged.update(zip(offsets.tolist(), rows, strict=True))

    def fields(
        self, offsets: NDArray[np.int64], kinds: NDArray[np.uint8], times_ms: Floats
    ) -> dict[str, Column]:
        """Return what is remembered of messages beside the model's fields."""
        waits, judged = np.isin(kinds, AWAITED).tolist(), self._judged
        found = [
            pack_time(time_ms) + judged.get(offset, b"") if is_own else None
            for is_own, offset, time_ms in zip(
                waits, offsets.tolist(), times_ms.tolist(), strict=True
            )
        ]
        return {_MORE: texts_of(found)}

    def remembered(
        self,
        partition: Partition,
        first: int,
        kinds: NDArray[np.uint8],
        times_ms: Floats,
        hashes: Hashes,
    ) -> None:
        """Note what waits of the records of a batch, of which the `first` has that number."""
        rows = np.flatnonzero((kinds == WAITING) | (kinds == WAITING_UPDATE))
        known = self._logs[partition]
        known.arrived.append((first, hashes[rows[kinds[rows] == WAITING]]))
        if math.isfinite(self._horizon_ms):
            known.messages.add(times_ms[rows], rows + first, hashes[rows])

    def settle(self, partition: Partition, learner: Learner) -> None:
        """Learn what the last batch of a partition has labels for, and what has become the default.

        Labels for which no message can come any more are given up.
        """
        known, memory = self._logs[partition], self._memory.log(partition)
        for first, hashes in known.arrived:
            asked = [each for each in hashes.tolist() if each in known.early] if known.early else []
            if asked:
                self._join_early(partition, np.unique(np.array(asked, np.uint64)), first, learner)
        known.arrived.clear()
        floor = leaving(memory)  # before defaults are remembered, which move it and have no time
        if floor > known.floor:
            self._warn_if_short(partition, memory, known)
        due, hashes = known.messages.take(known.newest_ms - self._horizon_ms, floor)
        if len(due):
            self._learn_default(partition, due, hashes, learner)
        known.floor = floor
        self._give_up_late(partition)

    def _give_up_late(self, partition: Partition) -> None:
        """Give up the labels for which no message can come any more."""
        known = self._logs[partition]
        due, hashes = known.labels_before(known.newest_ms - 2 * self._window_ms, known.floor)
        if len(due):
            self._give_up(partition, due, hashes)

    def _warn_if_short(self, partition: Partition, memory: LogMemory, known: WaitingLog) -> None:
        """Log it once if messages leave the memory whose label may still come."""
        floor = leaving(memory)
        first = max(memory.floor(memory.n), known.floor, floor - _LOOKED_AT)
        times_ms = waiting_times(memory.read(np.arange(first, floor)), len(self._fields))
        is_bounded = math.isfinite(self._horizon_ms)
        wanted_ms = max(self._window_ms, self._horizon_ms if is_bounded else 0.0)
        if self._is_short or not (known.newest_ms - times_ms < wanted_ms).any():
            return
        self._is_short = True
        held_s = float(known.newest_ms - np.nanmax(times_ms)) / 1000.0
        wanted = "late_labels.window_s" + (" or late_labels.horizon_s" if is_bounded else "")
        log.warning(
            "memory_too_short_for_late_labels",
            partition=part_name(partition),
            detail=f"messages leave the memory after {held_s:g} s, before {wanted} is over: labels"
            " that come later teach nothing. Raise learned.messages_max from"
            f" {memory.records_max}, or lower {wanted}",
        )

    def _join_early(
        self, partition: Partition, hashes: Hashes, first: int, learner: Learner
    ) -> None:
        """Join new messages, numbered from `first` on, with labels that came before them."""
        matches, joining = list[tuple[WaitingMessage, str]](), set[str]()
        known = self._by_id(self._memory.log(partition), hashes).values()
        for records, own in zip(known, waiting_messages(known), strict=True):
            for each in records:
                message = self._owner(own, each) if each.kind == EARLY_LABEL else None
                if message is None or not message.first.number >= first > each.number:
                    continue
                self._logs[partition].joined.add(each.number)
                label = early_label(each)[1]
                outcome = self._outcome(message, label, joining, learner)
                if outcome == "learned":
                    matches.append((message, label))
                else:
                    self._refuse(partition, each, outcome)
        self._teach(partition, matches, LATE_LABELLED, learner)

    def _outcome(
        self, message: WaitingMessage, label: str, joining: set[str], learner: Learner
    ) -> str:
        """Return what becomes of a label of a message; one that is learned is the message's now.

        Each label is asked for in its turn, as the order of the log decides which class joins:
        those of earlier labels, which are learned together with it, are `joining`.
        """
        if message.state in {"gone", "withdrawn"}:
            return "message_gone"
        if message.state == "labelled":
            return "repeated"
        if label not in joining and is_over_limit(label, len(joining), learner.model):
            return "unusable"
        if label not in learner.model.classes:
            joining.add(label)
        message.state = "labelled"
        return "learned"

    def _learn_default(
        self, partition: Partition, numbers: NDArray[np.int64], hashes: Hashes, learner: Learner
    ) -> None:
        name, due = self._settings.default, set(numbers.tolist())
        assert name is not None
        known = self._by_id(self._memory.log(partition), np.unique(hashes))
        matches = [
            (message, name)
            for own in waiting_messages(known.values())
            for message in own
            if message.state == "waits" and message.now.number in due
        ]
        self._teach(partition, matches, DEFAULTED, learner)

    def _give_up(self, partition: Partition, numbers: NDArray[np.int64], hashes: Hashes) -> None:
        """Reject labels that no message wants; of those that were forgotten only the count is."""
        memory, due = self._memory.log(partition), set(numbers.tolist())
        known, by_id = self._logs[partition], self._by_id(memory, np.unique(hashes)).values()
        for records, own in zip(by_id, waiting_messages(by_id), strict=True):
            for each in records:
                if each.kind != EARLY_LABEL or each.number not in due:
                    continue
                due.discard(each.number)
                if self._owner(own, each) is not None:
                    continue  # it was joined
                time_ms, outcome = time_of(each), "no_message"
                if not time_ms < known.newest_ms - 2 * self._window_ms:
                    outcome = "forgotten"
                elif own:
                    outcome = "outside_window"
                elif time_ms < known.first_ms:
                    outcome = "before_beginning"
                self._refuse(partition, each, outcome)
        self.counts["forgotten"] += len(due)

    def _refuse(self, partition: Partition, record: LearnedRecord, outcome: str) -> None:
        offset, label, value = early_label(record)
        time_ms = time_of(record)
        at = -1 if math.isnan(time_ms) else int(time_ms)
        log = Partition(self.log_name, partition.partition)
        self._reject(outcome, label, log, offset, at, record.id, value)

    @property
    def log_name(self) -> str:
        """The name of the label log."""
        address = self._settings.address
        return address.topic or f"file:{'' if address.path is None else address.path.name}"

    def _reject(
        self, outcome: str, label: str, at: Partition, offset: int, time_ms: int,
        name: bytes | None, raw: bytes,
    ) -> None:  # fmt: skip
        self.counts[outcome] += 1
        if outcome == "repeated":
            return
        reason, why = Reason.UNKNOWN_LABEL, over_limit(label)
        if outcome != "unusable":
            reason, why = Reason.UNMATCHED_LABEL, _WHY[outcome]
        shown = (name or b"").decode(errors="replace")
        self._rejects.append(Reject(reason, why, at, offset, time_ms, name, raw, shown))

    # ---- labels --------------------------------------------------------------------------------

    def take(self, messages: Messages, learner: Learner) -> bool:
        """Learn the messages that a batch of labels is of; keep labels of messages to come.

        Return whether the messages' time has reached all of them.
        """
        self.counts["unusable"] += len(messages.rejects)
        self._rejects += messages.rejects
        partition = Partition(self._stream, messages.partition.partition)
        memory, own = self._memory.log(partition), self._logs[partition]
        data, starts, ends = messages.ids.texts
        plain = data.tobytes()
        names = [plain[at:end] for at, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        times_ms, n_together = times_of(messages), max(1, learned_memory.SEGMENT_RECORDS // 4)
        for begin in range(0, len(names), n_together):
            rows = np.arange(begin, min(len(names), begin + n_together))
            while memory.floor(memory.n + len(rows)) > own.floor:  # they push messages out
                self.settle(partition, learner)
            self._take_rows(partition, messages, rows, names, times_ms, learner)
        self._give_up_late(partition)  # behind the last message nothing else would
        return not (times_ms > own.newest_ms).any()

    def _take_rows(
        self, partition: Partition, messages: Messages, rows: NDArray[np.int64],
        names: Sequence[bytes], times_ms: Floats, learner: Learner,
    ) -> None:  # fmt: skip
        """Take some labels of a batch."""
        hashes = self._memory.hashed(take_texts(messages.ids.texts, rows).texts)
        known = self._by_id(self._memory.log(partition), np.unique(hashes))
        waiting = dict(zip(known, waiting_messages(known.values()), strict=True))
        matches, early, joining = list[tuple[WaitingMessage, str]](), list[int](), set[str]()
        for row in rows.tolist():
            message = self._first_near(waiting.get(names[row], ()), float(times_ms[row]))
            if message is None:
                early.append(row)
                continue
            label = messages.label(row) or ""
            outcome = self._outcome(message, label, joining, learner)
            if outcome == "learned":
                matches.append((message, label))
            else:
                at, raw = int(messages.at[row]), messages.raw
                offset, time_ms, value = int(raw.offsets[at]), int(raw.times_ms[at]), raw.value(at)
                self._reject(
                    outcome, label, raw.partition, offset, time_ms, names[row], value or b""
                )
        self._teach(partition, matches, LATE_LABELLED, learner)
        if early:
            waits = np.array(early)
            self._let_wait(partition, messages, waits, times_ms, hashes[waits - rows[0]])

    def _let_wait(
        self, partition: Partition, messages: Messages, rows: NDArray[np.int64],
        times_ms: Floats, hashes: Hashes,
    ) -> None:  # fmt: skip
        """Remember labels whose message has not come, with the hashes of their ids."""
        memory, n, raw = self._memory.log(partition), len(rows), messages.raw
        first = memory.n
        contents = [
            pack_label(
                float(times_ms[row]),
                int(raw.offsets[at]),
                messages.label(row) or "",
                raw.value(at) or b"",
            )
            for row, at in zip(rows.tolist(), messages.at[rows].tolist(), strict=True)
        ]
        sealed = memory.append(
            np.full(n, -1, np.int64),
            np.full(n, NO_LABEL, np.int32),
            np.full(n, EARLY_LABEL, np.uint8),
            rows_of(messages.ids, rows),  # type: ignore[arg-type]  # texts
            {**self._no_fields(n), _MORE: texts_of(contents)},
            hashes,
        )
        known = self._logs[partition]
        known.labels.add(times_ms[rows], np.arange(first, first + n), hashes)
        known.early.update(hashes.tolist())
        self._memory.wrote(memory, sealed)

    def _no_fields(self, n: int) -> dict[str, Column]:
        """Return the model's fields without values."""
        return {
            name: np.full(n, np.nan) if holds_floats(kind) else texts_of([None] * n)
            for name, kind in self._memory.fields.items()
        }

    # ---- both ----------------------------------------------------------------------------------

    def _by_id(self, memory: LogMemory, hashes: Hashes) -> dict[bytes, list[LearnedRecord]]:
        floor = memory.floor(memory.n)
        found: dict[bytes, list[LearnedRecord]] = {}
        for each in memory.find(hashes).records(len(self._fields)):
            if each.number >= floor and each.id is not None:
                found.setdefault(each.id, []).append(each)
        return found

    def _owner(self, own: Sequence[WaitingMessage], label: LearnedRecord) -> WaitingMessage | None:
        """Return the message that a label which waited is of."""
        return self._first_near(own, time_of(label))

    def _first_near(self, own: Sequence[WaitingMessage], time_ms: float) -> WaitingMessage | None:
        found = (each for each in own if near(each.time_ms, time_ms, self._window_ms))
        return next(found, None)

    def _teach(
        self,
        partition: Partition,
        matches: Sequence[tuple[WaitingMessage, str]],
        kind: int,
        learner: Learner,
    ) -> None:
        """Learn messages with their labels, take their defaults back, and remember both."""
        if not matches:
            return
        memory, part = self._memory.log(partition), part_name(partition)
        matches = sorted(matches, key=lambda each: each[0].now.number)
        found = memory.read(np.array([each.now.number for each, _ in matches]))
        known = set(found.numbers.tolist())
        matches = [each for each in matches if each[0].now.number in known]
        back = sorted(each.default.number for each, _ in matches if each.default is not None)
        if back:
            done = take_back(memory.read(np.array(back)), part, self._memory.fields, learner)
            self.counts["default_replaced"] += done["unlearned"]
            self.revised["refused"] += done["refused"]
        values = found.columns(self._memory.fields)
        names = tuple(dict.fromkeys(name for _, name in matches))
        codes = Codes(np.array([names.index(name) for _, name in matches], np.int32), names)
        self._learn(part, values, codes, [each.first for each, _ in matches], learner)
        truth = to_indices(codes, keep_classes(learner.model))
        self.counts["defaulted" if kind == DEFAULTED else "learned"] += len(matches)
        sealed = memory.append(
            np.array([each.now.offset for each, _ in matches], np.int64),
            truth,
            np.full(len(matches), kind, np.uint8),
            texts_of([each.now.id for each, _ in matches]),
            values,
        )
        self._memory.wrote(memory, sealed)
        if kind == LATE_LABELLED:
            offsets = [each.now.offset for each, _ in matches]
            self._note(partition, offsets, [name for _, name in matches])

    def _learn(
        self,
        part: str,
        values: Mapping[str, Column],
        labels: Codes,
        first: Sequence[LearnedRecord],
        learner: Learner,
    ) -> None:
        """Learn examples, and tell of them by their `first` records, in calls of `_n_in_call`."""
        (columns, weights), begin, n = weighed(values), 0, len(labels.codes)
        while begin < n:
            end = min(n, begin + self._n_in_call(learner, n))
            rows = np.arange(begin, end)
            own = {name: rows_of(column, rows) for name, column in columns.items()}
            codes = Codes(labels.codes[begin:end], labels.classes)
            some = None if weights is None else weights[begin:end]
            confidence = learner.confidence  # a challenger may take its place in the call
            learner.learn(part, own, codes, weights=some, judged=False)
            classes = keep_classes(learner.model)
            stated = first_posteriors(first[begin:end], len(classes))
            self._learned(stated, to_indices(codes, classes), confidence, classes)
            begin = end

    def _n_in_call(self, learner: Learner, n: int) -> int:
        """Return how many of `n` examples one call learns.

        It ends where a snapshot is due, challengers are compared, or words are looked at.
        """
        due = [learner.n_until_due(), self._n_until_look()]
        if isinstance(learner, ChallengedLearner):
            due.append(learner.challengers.n_until_judged)
        return min([n, *(each for each in due if each)])

    def take_rejects(self) -> list[Reject]:
        """Return the labels that could not be used since it was asked last."""
        rejects, self._rejects = self._rejects, []
        return rejects

    def counts_now(self, n_partitions: int | None = None) -> Mapping[str, int]:
        """Return what became of labels, and how many wait for their message.

        Of these, `without_partition` are of partitions beyond the stream's `n_partitions`.
        """
        waiting = {each: own.n_labels for each, own in self._logs.items()}
        found = {**self.counts, "waiting": sum(waiting.values())}
        if n_partitions is not None:
            beyond = (each for each in waiting if each.partition >= n_partitions)
            found["without_partition"] = sum(waiting[each] for each in beyond)
        return found

    # ---- the checkpoint ------------------------------------------------------------------------

    def pack(self) -> CheckpointEntry:
        """Return where the times of each partition stand, and before which record none waits.

        A time is None if there is none yet.
        """
        self._packed = {part_name(each): own.packed() for each, own in self._logs.items()}
        return CheckpointEntry(self._packed)

    def of_part(self, partition: Partition) -> list[float | None] | None:
        """Return what was packed last of a partition; on the checkpoint thread."""
        return self._packed.get(part_name(partition))

    def unpack(self, entry: CheckpointEntry) -> None:
        """Go on with the times of a checkpoint; `begin` is still to be called."""
        for name, values in entry.values.items():
            self._logs[partition_of(name)].restore(values)

    def take_over(
        self, partition: Partition, values: Sequence[float | None] | None, *, is_ours: bool
    ) -> None:
        """Go on with what another member of a group packed, behind the memory.

        What waits is found only if the partition is read here.
        """
        self._logs[partition] = WaitingLog()
        if values is not None:
            self._logs[partition].restore(values)
        if is_ours:
            self._find_waiting(partition, self._memory.log(partition))

    def begin(self) -> None:
        """Find what waits in the memory, once that has gone on from the checkpoint too."""
        logs = self._memory.logs
        for at, (partition, memory) in enumerate(logs.items(), 1):
            self._memory.tell(f"finding messages that wait for labels, {at} of {len(logs)}")
            self._find_waiting(partition, memory)

    def _find_waiting(self, partition: Partition, memory: LogMemory) -> None:
        known, waits_yet = self._logs[partition], set[int]()
        for found, is_labelled in waiting_records(memory):
            hashes = self._memory.hashed(found.texts(kernels.ID))
            times_ms = waiting_times(found, len(self._fields), MESSAGES_AND_LABELS)
            is_label = found.spans[:, kernels.KIND] == EARLY_LABEL
            waits = ~is_label & ~is_labelled  # beyond the horizon too: it may be shorter
            if math.isfinite(self._horizon_ms):
                known.messages.add(times_ms[waits], found.numbers[waits], hashes[waits])
            is_over = times_ms < known.newest_ms - 2 * self._window_ms
            is_label &= ~(is_over | (found.numbers < known.floor))
            known.labels.add(times_ms[is_label], found.numbers[is_label], hashes[is_label])
            known.early.update(hashes[is_label].tolist())
            waits_yet.update(found.numbers[is_label].tolist())
        by_id = self._by_id(memory, np.array(sorted(known.early), np.uint64)).values()
        for own, messages in zip(by_id, waiting_messages(by_id), strict=True):
            known.joined.update(
                label.number
                for label in own
                if label.number in waits_yet and self._owner(messages, label) is not None
            )
