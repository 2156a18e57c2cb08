"""What the messages of some ids come to, in plain Python: the slow twin of `revision.fold`.

Each question about a record is answered from all records of its id, by the rules of `revision` and
`late_labels` alone; nothing is carried from one record to the next.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from consumers.kernels.learned_records import (
    CONSUMED,
    CORRECTED,
    CREATED,
    DEFAULTED,
    DELETE_OF_ACCOUNT,
    DELETED,
    EARLY_DELETE,
    EARLY_LABEL,
    EARLY_UPDATE,
    LATE_LABELLED,
    LATE_UPDATE,
    RELABELLED,
    TAKEN_BACK,
    UPDATED,
    WAITING,
    WAITING_UPDATE,
    WITHDRAWN,
)
from consumers.kernels.learned_records import NOTHING as _NOTHING
from consumers.messages import NO_LABEL, OPERATIONS, Messages, Operation
from consumers.pipeline.learned_memory import LogMemory
from consumers.pipeline.learned_records import LearnedRecord
from consumers.pipeline.waiting_messages import Arrivals, time_of
from streamnb.labels import Label

_DELETE, _UPDATE = OPERATIONS.index(Operation.DELETE), OPERATIONS.index(Operation.UPDATE)
_TEACHING = {
    CREATED, UPDATED, RELABELLED, EARLY_UPDATE, CORRECTED, LATE_LABELLED, DEFAULTED, LATE_UPDATE
}  # fmt: skip
_REPLACING = {UPDATED, RELABELLED, DELETED, EARLY_UPDATE, WAITING_UPDATE, LATE_UPDATE}
# They name a message by its offset.
_OF_OTHER = {CORRECTED, TAKEN_BACK, WITHDRAWN, LATE_LABELLED, DEFAULTED}
_SAID = {DEFAULTED: "default", TAKEN_BACK: "gone", WITHDRAWN: "withdrawn"}  # else it is labelled
_OF_WAITING = {WAITING_UPDATE, LATE_UPDATE}  # updates that keep what waits alive


def plain_living(records: Sequence[LearnedRecord]) -> list[LearnedRecord]:
    """Return the records of an id that teach and that no later one has ended."""
    return [
        each
        for at, each in enumerate(records)
        if each.kind in _TEACHING
        and not any(
            later.kind in _REPLACING or (later.kind in _OF_OTHER and later.offset == each.offset)
            for later in records[at + 1 :]
        )
    ]


def early(records: Sequence[LearnedRecord]) -> int:
    """Return the number of the record that says that the message is to come; -1 for none."""
    said = [each for each in records if each.kind in {EARLY_UPDATE, EARLY_DELETE, CONSUMED}]
    return said[-1].number if said and said[-1].kind != CONSUMED else -1


class PlainWaiting(NamedTuple):
    """A message that waits or waited."""

    time_ms: float
    first: LearnedRecord
    now: LearnedRecord
    state: str
    default: LearnedRecord | None


def plain_waiting(records: Sequence[LearnedRecord]) -> list[PlainWaiting]:
    """Return the messages of an id that wait or waited."""
    starts = [at for at, each in enumerate(records) if each.kind == WAITING]
    orphans = [at for at, each in enumerate(records) if each.kind == WAITING_UPDATE]
    if orphans and not any(at < orphans[0] for at in starts):
        starts = sorted([*starts, orphans[0]])
    found = []
    for start, following in pairwise([*starts, len(records)]):
        now, default, states = records[start], None, ["waits"]
        for at, each in enumerate(records[start + 1 :], start + 1):
            if each.kind in _OF_WAITING and at < following:
                now, default = each, None
                states.append("waits" if each.kind == WAITING_UPDATE else "labelled")
            elif each.kind in _REPLACING or (
                each.kind == TAKEN_BACK and each.offset > now.offset  # a later one of the id
            ):
                states.append("gone")
            elif each.kind in _OF_OTHER and each.offset == now.offset:
                default = each if each.kind == DEFAULTED else default
                states.append(_SAID.get(each.kind, "labelled"))
        state = "gone" if "gone" in states else states[-1]
        found.append(PlainWaiting(time_of(records[start]), records[start], now, state, default))
    return found


class PlainFold:
    """Goes through the messages of some ids in the order of their log, one object a record."""

    def __init__(
        self,
        memory: LogMemory,
        messages: Messages,
        kinds: NDArray[np.uint8],
        classes: Sequence[Label],
        counts: Counter[str],
        arrivals: Arrivals | None,
    ) -> None:
        self.memory, self.messages, self.kinds = memory, messages, kinds
        self.classes, self.counts, self.arrivals = classes, counts, arrivals
        self.records: defaultdict[bytes, list[LearnedRecord]] = defaultdict(list)
        self.labels, self.label_names = messages.labels, messages.classes
        self.taken: list[tuple[int, int]] = []  # a record, and the row that takes it back
        self.superseded: list[int] = []
        self.is_withdrawn = False

    def run(self, rows: NDArray[np.int64], records: Iterable[LearnedRecord]) -> None:
        """Set the kinds of some rows, by what is remembered of their ids."""
        for each in records:
            if each.id is not None and each.kind != EARLY_LABEL:
                self.records[each.id].append(each)
        data, starts, ends = self.messages.ids.texts
        plain = data.data
        bounds = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
        offsets = self.messages.offsets[rows].tolist()
        # The number of a record is that of the log's records before it.
        was_remembered = self.kinds != _NOTHING
        before = (np.cumsum(was_remembered) - was_remembered)[rows].tolist()
        n_more, memory, last, floor = self.memory.n, self.memory, -1, 0
        for row, offset, n_before, (start, end) in zip(
            rows.tolist(), offsets, before, bounds, strict=True
        ):
            number, name = n_before + n_more, bytes(plain[start:end])
            was = self.kinds[row]
            is_of_account = self.messages.operations[row] == DELETE_OF_ACCOUNT
            if not is_of_account or offset != last:  # those of an account are one in the log
                floor = memory.floor(number)
            last = offset
            kind = self._kind(row, self.records[name], floor)
            if kind != was:
                self.kinds[row] = kind
                n_more += (kind != _NOTHING) - int(was != _NOTHING)
            if kind != _NOTHING:
                time_ms = np.nan if self.arrivals is None else self.arrivals.times_ms[row]
                more = struct.pack("<d", time_ms)
                record = LearnedRecord(number, kind, offset, NO_LABEL, name, row, more)
                self.records[name].append(record)

    def _kind(self, row: int, own: list[LearnedRecord], floor: int) -> int:
        """Return what is to be remembered of a message, by its id's records from `floor` on."""
        operation, seen = self.messages.operations[row], list[PlainWaiting]()
        if self.arrivals is not None:
            seen = plain_waiting([each for each in own if each.number >= floor])
        if operation in (_UPDATE, _DELETE, DELETE_OF_ACCOUNT):
            alive = [each for each in plain_living(own) if each.number >= floor]
            self.taken += [(each.number, row) for each in alive]
            is_known = bool(own) and own[-1].number >= floor
            self.is_withdrawn = is_known and own[-1].kind == WITHDRAWN
            return self._revising_kind(row, is_known, alive, seen)
        if early(own) >= floor:
            self.superseded.append(row)
            return CONSUMED
        if self.labels[row] != NO_LABEL:
            return CREATED
        if self.kinds[row] != WAITING or self.arrivals is None:
            return _NOTHING
        time_ms, window_ms = float(self.arrivals.times_ms[row]), self.arrivals.window_ms
        apart = [abs(each.time_ms - time_ms) > window_ms for each in seen]  # nan: in each window
        return WAITING if all(apart) else _NOTHING

    def _revising_kind(
        self, row: int, is_known: bool, alive: list[LearnedRecord], seen: Sequence[PlainWaiting]
    ) -> int:
        """Return the kind of a delete or an update, and count it."""
        is_update = self.messages.operations[row] == _UPDATE
        what = "update" if is_update else "delete"
        none = "repeated" if is_known and not is_update else "unmatched"
        is_open = self.is_withdrawn or any(each.state != "gone" for each in seen)
        found = "matched" if alive or is_open else none
        is_of_account = self.messages.operations[row] == DELETE_OF_ACCOUNT
        if is_of_account and found != "matched":
            return _NOTHING
        if not is_of_account:
            self.counts[f"{what}_{found}"] += 1
        if is_update and self._keep_label(row, alive, (CORRECTED, RELABELLED)):
            return RELABELLED
        if is_update and seen and seen[-1].state != "gone" and self.labels[row] == NO_LABEL:
            return self._late_kind(row, seen[-1], alive)
        if is_update and self.labels[row] != NO_LABEL:
            return UPDATED if is_known else EARLY_UPDATE
        if alive or is_open or (is_known and not is_update):
            return DELETED
        return _NOTHING if is_known else EARLY_DELETE

    def _late_kind(self, row: int, message: PlainWaiting, alive: Sequence[LearnedRecord]) -> int:
        """Return the kind of an update of a message that waits, or has the label of another log."""
        assert self.arrivals is not None
        self.arrivals.times_ms[row] = message.time_ms
        late = (LATE_LABELLED, LATE_UPDATE)
        if message.state in {"labelled", "withdrawn"} and self._keep_label(row, alive, late):
            return LATE_UPDATE
        return WAITING_UPDATE

    def _keep_label(self, row: int, alive: Sequence[LearnedRecord], kinds: Collection[int]) -> bool:
        """Give an update the label that a record of some kinds gave; return whether one did."""
        given = [each for each in alive if each.kind in kinds]
        if not given:
            return False
        last = given[-1]
        if last.row >= 0:  # of this batch
            code = int(self.labels[last.row])
        else:
            name = str(self.classes[last.label])
            if name not in self.label_names:
                self.label_names = (*self.label_names, name)
            code = self.label_names.index(name)
        self.labels = self.labels.copy()
        self.labels[row] = code
        return True
