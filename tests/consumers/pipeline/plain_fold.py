"""What the messages of some ids come to, in plain Python: the slow twin of `revision.fold`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from consumers.decode.kernels.learned_records import NOTHING as _NOTHING
from consumers.messages import NO_LABEL, OPERATIONS, Messages, Operation
from consumers.pipeline.learned_memory import LogMemory
from consumers.pipeline.learned_records import (
    CONSUMED,
    CORRECTED,
    CREATED,
    DELETED,
    EARLY_DELETE,
    EARLY_LABEL,
    EARLY_UPDATE,
    LATE_LABELLED,
    LATE_UPDATE,
    RELABELLED,
    UPDATED,
    WAITING,
    WAITING_UPDATE,
    LearnedRecord,
)
from consumers.pipeline.revision import IdHistory
from consumers.pipeline.waiting_messages import Arrivals, Sight, near, pack_time, sights
from streamnb.labels import Label

_DELETE, _UPDATE = OPERATIONS.index(Operation.DELETE), OPERATIONS.index(Operation.UPDATE)


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
        self.records: defaultdict[bytes, list[LearnedRecord]] = defaultdict(list)  # if late
        self.labels, self.label_names = messages.labels, messages.classes
        self.taken: list[int] = []
        self.superseded: list[int] = []

    def run(self, rows: NDArray[np.int64], records: Iterable[LearnedRecord]) -> None:
        """Set the kinds of some rows, by what is remembered of their ids."""
        known: defaultdict[bytes, IdHistory] = defaultdict(IdHistory)
        for each in records:
            if each.id is not None and each.kind != EARLY_LABEL:
                known[each.id].add(each)
                if self.arrivals is not None:
                    self.records[each.id].append(each)
        data, starts, ends = self.messages.ids.texts
        plain = data.data
        bounds = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
        offsets = self.messages.offsets[rows].tolist()
        # The number of a record is that of the log's records before it.
        was_remembered = self.kinds != _NOTHING
        before = (np.cumsum(was_remembered) - was_remembered)[rows].tolist()
        n_more, memory = self.memory.n, self.memory
        for row, offset, n_before, (start, end) in zip(
            rows.tolist(), offsets, before, bounds, strict=True
        ):
            number, name = n_before + n_more, bytes(plain[start:end])
            own, was = known[name], self.kinds[row]
            kind = self._kind(row, own, memory.floor(number), name)
            if kind != was:
                self.kinds[row] = kind
                n_more += (kind != _NOTHING) - int(was != _NOTHING)
            if kind != _NOTHING:
                own.add(LearnedRecord(number, kind, offset, NO_LABEL, name, row))
                if self.arrivals is not None:
                    more = pack_time(self.arrivals.times_ms[row])
                    record = LearnedRecord(number, kind, offset, NO_LABEL, name, row, more)
                    self.records[name].append(record)

    def _sights(self, name: bytes, floor: int) -> list[Sight]:
        """Return the messages of an id that wait or waited, if labels come late."""
        if self.arrivals is None:
            return []
        return sights(each for each in self.records[name] if each.number >= floor)

    def _kind(self, row: int, own: IdHistory, floor: int, name: bytes) -> int:
        """Return what is to be remembered of a message, by its id's records from `floor` on."""
        operation = self.messages.operations[row]
        if operation in (_UPDATE, _DELETE):
            alive = [each for each in own.living if each.number >= floor]
            self.taken += [each.number for each in alive]
            seen = self._sights(name, floor)
            return self._revising_kind(row, own.last >= floor, alive, seen)
        if own.early >= floor:
            self.superseded.append(row)
            return CONSUMED
        if self.labels[row] != NO_LABEL:
            return CREATED
        if self.kinds[row] != WAITING or self.arrivals is None:
            return _NOTHING
        time_ms, window_ms = float(self.arrivals.times_ms[row]), self.arrivals.window_ms
        seen = self._sights(name, floor)
        is_repeated = any(near(each.time_ms, time_ms, window_ms) for each in seen)
        return _NOTHING if is_repeated else WAITING

    def _revising_kind(
        self, row: int, is_known: bool, alive: list[LearnedRecord], seen: Sequence[Sight]
    ) -> int:
        """Return the kind of a delete or an update, and count it."""
        is_update = self.messages.operations[row] == _UPDATE
        what = "update" if is_update else "delete"
        none = "repeated" if is_known and not is_update else "unmatched"
        is_open = any(each.state != "gone" for each in seen)
        found = "matched" if alive or is_open else none
        self.counts[f"{what}_{found}"] += 1
        if is_update and self._keep_label(row, alive, (CORRECTED, RELABELLED)):
            return RELABELLED
        if is_update and seen and seen[-1].state != "gone" and self.labels[row] == NO_LABEL:
            return self._late_kind(row, seen[-1], alive)
        if is_update and self.labels[row] != NO_LABEL:
            return UPDATED if is_known else EARLY_UPDATE
        if alive or is_open:
            return DELETED
        return _NOTHING if is_known else EARLY_DELETE

    def _late_kind(self, row: int, sight: Sight, alive: Sequence[LearnedRecord]) -> int:
        """Return the kind of an update of a message that waits, or has the label of another log."""
        assert self.arrivals is not None
        self.arrivals.times_ms[row] = sight.time_ms
        late = (LATE_LABELLED, LATE_UPDATE)
        if sight.state == "labelled" and self._keep_label(row, alive, late):
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
