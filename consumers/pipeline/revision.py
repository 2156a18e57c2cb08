"""What the deletes and updates of a batch take back, by the memory of what was learned.

The rules, in the order of the partition's log:

- Messages of the same id are each an example. A delete takes back all of them that are living.
- An update takes them back too, and is learned in their place.
- A delete or an update that finds nothing came early: the first later message of its id is not
  learned, whatever else is said of the id before. A second delete finds nothing to take back.
- A label that a person gave holds: an update is learned with it. So is one without a label of its
  own with the label that came later than the message: see `late_labels`.
- What is older than the memory is as good as never seen.
- A person deletes a message, or its update if that was read before, and the earlier ones of its id.
- The deletion of an account is, in its place, a delete of each living message whose id begins with
  the account's part. It says nothing of messages behind it: the account may be active again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.config.model import holds_floats
from consumers.corrections.applier import CorrectedMessage
from consumers.corrections.model import Correction
from consumers.decode.fields import learned_values
from consumers.decode.labels import keep_classes
from consumers.features import columns_of
from consumers.kernels import learned_records as kernels
from consumers.kernels.learned_records import CREATED, DELETED, EARLY_DELETE, TAKEN_BACK, WITHDRAWN
from consumers.messages import (
    ACCOUNT_MARK,
    NO_LABEL,
    OPERATIONS,
    WEIGHT,
    Column,
    Messages,
    Operation,
    Partition,
    account_of,
    account_prefixes,
    id_named,
    part_name,
    rows_of,
    take_texts,
    weighed,
)
from consumers.pipeline import learned_memory
from consumers.pipeline.late_labels import LateLabels
from consumers.pipeline.learned_memory import LearnedMemory, LogMemory
from consumers.pipeline.learned_records import (
    FoundRecords,
    Hashes,
    IdRun,
    LearnedRecord,
    Longs,
    listed,
)
from consumers.pipeline.waiting_messages import (
    APART,
    Arrivals,
    Floats,
    LearnedRows,
    Taking,
    is_said_already,
    known_from,
    living,
    records_at,
    repeated,
    still_waiting,
    take_back,
    take_back_with,
    texts_of,
    unlearn,
    waiting_times,
    with_records,
)
from streamnb import Codes, Learner, TextColumn
from streamnb.errors import InputError
from streamnb.kernels.layout import Texts
from streamnb.labels import Label, to_indices
from streamnb.learn import EARLIER, LEARNED, OWN

_CREATE, _DELETE = OPERATIONS.index(Operation.CREATE), OPERATIONS.index(Operation.DELETE)
_NOTHING = kernels.NOTHING  # of this message nothing is remembered
_NO_ROWS = np.empty(0, np.int64)
ACCOUNT_END = f"/{ACCOUNT_MARK}".encode()
_COUNTS = (
    "update_matched", "update_unmatched", "delete_matched", "delete_unmatched", "delete_repeated",
)  # fmt: skip


class Revision(msgspec.Struct, frozen=True):
    """What a batch changes: the messages to go on with, what to remember and to take back.

    `kinds` has what is remembered of each message of `whole`: the batch as it came, and before the
    deletion of an account the deletes that it stands for, which are the rows `added`.
    """

    messages: Messages
    whole: Messages
    kinds: NDArray[np.uint8]
    hashes: Hashes | None = None  # of the ids of `whole`, if they were asked for
    done: Fold | None = None  # of the messages whose ids were looked up
    found: FoundRecords | None = None  # of these ids
    arrivals: Arrivals | None = None  # where labels come late
    added: Longs = msgspec.field(default_factory=_NO_ROWS.copy)

    @property
    def superseded(self) -> list[int]:
        """The rows of the batch as it came that are left out."""
        rows = np.array([] if self.done is None else self.done.superseded, np.int64)
        return (rows - np.searchsorted(self.added, rows)).tolist()  # type: ignore[no-any-return]  # numpy's lists have no type

    @property
    def left_out(self) -> Longs:
        """The rows of `whole` that are not among the messages, ascending."""
        rows = np.array([] if self.done is None else self.done.superseded, np.int64)
        return np.union1d(rows, self.added)


_VERSIONS = (
    kernels.UPDATED,
    kernels.RELABELLED,
    kernels.EARLY_UPDATE,
    kernels.WAITING_UPDATE,
    kernels.LATE_UPDATE,
)


class Reviser:
    """Revises batches on the consuming thread; `counts` says what came of deletes and updates."""

    def __init__(self, memory: LearnedMemory, late: LateLabels | None = None) -> None:
        self.memory = memory
        self.late = late
        self.counts: Counter[str] = Counter() if late is None else late.revised
        self._fields = memory.fields

    def revise(self, messages: Messages, classes: Sequence[Label]) -> Revision:
        """Return what a batch changes; `classes` are the model's."""
        memory = self.memory.log(messages.partition)
        is_plain = self.late is None and not memory.has_pending
        if is_plain and not messages.operations.any():  # all create
            kinds = np.where(messages.labels != NO_LABEL, np.uint8(CREATED), np.uint8(_NOTHING))
            return Revision(messages, messages, kinds)
        arrivals = None if self.late is None else self.late.arrive(messages)
        origins = accounts = added = _NO_ROWS
        if self.memory.accounts and len(accounts := _accounts(messages)):
            # From here on rows are those of `whole`; `origins` has the row of the batch as it came.
            messages, origins, added = self._with_deletes(memory, messages, accounts)
            accounts = np.searchsorted(origins, accounts, "right") - 1
            if arrivals is not None:
                arrivals = Arrivals(
                    arrivals.times_ms[origins], arrivals.waits[origins], arrivals.window_ms
                )
        is_taught = (messages.labels != NO_LABEL) & (messages.operations != _DELETE)
        kinds = np.where(is_taught, np.uint8(CREATED), np.uint8(_NOTHING))
        kinds[accounts] = DELETED  # so that what is said later of its messages is known to be late
        asked = messages.operations != _CREATE
        hashes = self.memory.hashed(messages.ids.texts)
        has_id = messages.ids.texts.ends >= 0
        has_id[accounts] = False
        if arrivals is not None:
            kinds[arrivals.waits] = kernels.WAITING
            asked |= arrivals.waits & (memory.knows(hashes) | repeated(hashes))
        pending = memory.is_pending(hashes)
        if pending is not None:
            asked |= pending
        asked &= has_id
        if not asked.any():
            self._count_accounts(accounts, _NO_ROWS)
            return Revision(messages, messages, kinds, hashes, arrivals=arrivals)
        wanted, asking = np.unique(hashes[asked]), IdRun(0)
        asking.add(wanted)
        rows = np.flatnonzero(asking.knows(hashes) & has_id)
        found = memory.find(wanted)
        done = fold(memory, messages, kinds, rows, hashes[rows], found, classes, arrivals)
        kinds[rows] = done.kinds
        if arrivals is not None:
            arrivals.times_ms[rows] = done.times_ms
        self.counts.update(done.counts)
        self._count_accounts(origins[accounts], origins[added[kinds[added] == DELETED]])
        whole = replace(messages, labels=done.labels, classes=done.classes)
        revision = Revision(whole, whole, kinds, hashes, done, found, arrivals, added)
        if not len(revision.left_out):
            return revision
        kept = replace(whole.without(revision.left_out), n_added=0)
        return replace(revision, messages=kept)

    def _count_accounts(self, accounts: Longs, took: Longs) -> None:
        """Count the deletions of accounts; `took` has the row of one for each id taken back."""
        if not len(accounts):
            return
        is_matched = np.isin(accounts, took)
        for outcome, n in (("matched", is_matched.sum()), ("unmatched", (~is_matched).sum())):
            if n:
                self.counts[f"delete_account_{outcome}"] += int(n)

    def _with_deletes(
        self, memory: LogMemory, messages: Messages, accounts: Longs
    ) -> tuple[Messages, Longs, Longs]:
        """Return a batch with a delete of each id of some accounts, before those of the accounts.

        With it, of each row the one of the batch that it is or stands before, and the rows added.
        A delete whose message does not live comes to nothing; by the order of the ids the rest are
        the same however the log is cut into batches.
        """
        hashes = self.memory.hashed(account_prefixes(messages.ids.texts))
        wanted = np.unique(hashes[accounts])
        known, came = defaultdict[bytes, set[bytes]](set), defaultdict[bytes, list[Any]](list)
        for name in listed(memory.of_accounts(wanted).texts(kernels.ID)):
            if name and not name.endswith(ACCOUNT_END):
                known[name.partition(b"/")[0]].add(name)
        own = np.flatnonzero(np.isin(hashes, wanted) & (messages.operations != _DELETE))
        for row, name in zip(own.tolist(), _names(messages, own), strict=True):
            came[name.partition(b"/")[0]].append((row, name))
        sizes, names = list[int](), list[bytes]()
        for row, account in zip(accounts.tolist(), _names(messages, accounts), strict=True):
            first = account.removesuffix(ACCOUNT_END)
            ids = known[first] | {name for at, name in came[first] if at < row}
            sizes.append(len(ids))
            names += sorted(ids)
        places = np.repeat(accounts, sizes)
        origins = np.insert(np.arange(len(messages)), places, places)
        added = places + np.arange(len(places))
        return _with_rows(messages, origins, added, names), origins, added

    def place(
        self, revision: Revision, learner: Learner, *, in_place: bool
    ) -> tuple[Messages, Taking | None]:
        """Return a batch's messages, among them as rows the records that they take back.

        `in_place`: each stands right behind the message that says so; else all behind the last one.
        """
        done, messages = revision.done, revision.messages
        if done is None or not len(done.taken):
            return messages, None
        ends = np.full(len(done.taken), len(messages))
        if in_place:
            ends = done.takers + 1 - np.searchsorted(revision.left_out, done.takers)
        rows = ends + np.arange(len(ends))
        origins = np.insert(np.arange(len(messages)), ends, np.maximum(ends - 1, 0))
        names = [str(label) for label in learner.model.classes]
        names += [name for name in messages.classes if name not in names]
        found = self._records(revision, done.taken, names)
        codes, numbers = np.zeros(len(origins), np.int8), np.full(len(origins), -1)
        is_own = done.taken >= self.memory.log(messages.partition).n
        codes[rows], numbers[rows] = np.where(is_own, OWN, EARLIER), done.taken
        own = part_name(messages.partition)
        given = found.parts(len(self._fields))
        if any(given):
            codes[rows[[part not in {None, own} for part in given]]] = APART
        placed = with_records(messages, origins, rows, found, names, self._fields)
        effects = np.where(codes == LEARNED, 1, -1).astype(np.int8)
        if WEIGHT in placed.fields:
            effects[np.asarray(placed.fields[WEIGHT]) == 0.0] = 0
        return placed, Taking(
            codes, numbers, effects, partial(self.take_back, revision), not learner.takes_in_place
        )

    def count_taken(self, found: LearnedRows) -> None:
        """Count the records that were taken back among rows that were learned."""
        if n := found.n_done - len(found.rows):
            self.counts["unlearned"] += n

    def take_back(self, revision: Revision, numbers: Longs, learner: Learner) -> None:
        """Unlearn what some records taught: earlier ones, or those of the batch under way.

        In the order in which the log takes them back: sums of numbers round by it.
        """
        found = self._records(revision, numbers, [str(c) for c in learner.model.classes])
        part = part_name(revision.whole.partition)
        self.counts.update(take_back(found, part, self._fields, learner))

    def _records(self, revision: Revision, numbers: Longs, classes: Sequence[str]) -> FoundRecords:
        """Return records of some numbers, in their order, those of the batch under way among them.

        Labels are places among `classes`, which begin as the model's.
        """
        assert revision.found is not None
        order, whole = np.argsort(numbers), revision.whole
        ordered, first = numbers[order], self.memory.log(whole.partition).n
        n = int(np.searchsorted(ordered, first))
        # Whatever is taken back was found, and both are ascending.
        found = revision.found.some(np.searchsorted(revision.found.numbers, ordered[:n]))
        if n < len(numbers):
            rows = np.flatnonzero(revision.kinds != _NOTHING)[ordered[n:] - first]
            labels = to_indices(Codes(whole.labels[rows], whole.classes), classes)
            columns = columns_of(whole, rows, list(self._fields)).values()
            values = [each.texts if isinstance(each, TextColumn) else each for each in columns]
            head = np.array([revision.kinds[rows], whole.offsets[rows], labels], np.int64).T
            ids = take_texts(whole.ids.texts, rows).texts
            found = found.followed_by(ordered[n:], head, [ids, *values])
        return found.some(np.argsort(order))

    def remember(self, revision: Revision, learner: Learner) -> None:
        """Remember what a batch taught, now that it is learned and what it deletes taken back."""
        rows = np.flatnonzero(revision.kinds != _NOTHING)
        if len(rows):
            self._remember(revision, rows, learner)
        if self.late is not None:
            self.late.settle(revision.whole.partition, learner)

    def _remember(self, revision: Revision, rows: NDArray[np.int64], learner: Learner) -> None:
        whole, hashes = revision.whole, revision.hashes
        at = slice(None) if len(rows) == len(revision.kinds) else rows
        kinds, hashes = revision.kinds[at], None if hashes is None else hashes[at]
        labels, teaches = _labels_of(whole, learner.model.classes)[at], kernels.TEACHING[kinds]
        memory = self.memory.log(whole.partition)
        fields = columns_of(whole, rows, list(self._fields))
        if self.late is not None and revision.arrivals is not None and hashes is not None:
            times_ms = revision.arrivals.times_ms[rows]
            fields |= self.late.fields(whole.offsets[rows], kinds, times_ms)
            self.late.remembered(whole.partition, memory.n, kinds, times_ms, hashes)
        sealed = memory.append(
            whole.offsets[at],
            labels if teaches.all() else np.where(teaches, labels, np.int32(NO_LABEL)),
            kinds,
            whole.ids if at is not rows else take_texts(whole.ids.texts, rows),
            fields,
            hashes,
        )
        self.memory.wrote(memory, sealed)

    # ---- corrections by people -----------------------------------------------------------------

    def corrected_message(self, said: Correction) -> CorrectedMessage | None:
        """Return what the message of a correction teaches now; None if that is not known."""
        assert said.place is not None
        memory = self.memory.logs.get(said.place)
        if memory is None:
            return None
        records = self._of_message(memory, said)
        alive = living(records)
        own = [each for each in alive if each.offset == said.offset]
        versions = {each.offset for each in records if each.kind in _VERSIONS}
        own = own or [e for e in alive if e.offset > said.offset and e.offset in versions]
        is_delete = said.kind == "delete"  # of the earlier messages of the id too
        own = own or [e for e in alive if e.offset < said.offset and is_delete]
        if own:
            return CorrectedMessage("teaches", own[-1])
        if waiting := still_waiting(records, said.offset, is_delete=is_delete):
            return CorrectedMessage("waits", waiting[-1] if is_delete else None)
        # An update without a label is a delete here: it, and what was withdrawn, may be given one.
        here = [each.kind for each in records if each.offset == said.offset]
        is_withdrawn = here[-1:] == [WITHDRAWN]
        if any(
            each.kind in (DELETED, EARLY_DELETE, TAKEN_BACK)
            if each.offset > said.offset
            else each.offset == said.offset
            and each.kind not in (DELETED, EARLY_DELETE)
            and not is_withdrawn
            for each in (*records, *self._of_account(memory, said))
        ):
            return CorrectedMessage("gone")
        if said.offset < known_from(memory):
            return None
        first = memory.first_offset
        return CorrectedMessage("before" if first is None or said.offset < first else "never")

    def give_up_lost(self, partition: Partition) -> None:
        """Take up no lost file of a partition again; see `MessageMemory`."""
        if (memory := self.memory.logs.get(partition)) is not None:
            memory.give_up_lost()

    def _of_message(self, memory: LogMemory, said: Correction) -> list[LearnedRecord]:
        """Return the records of the id of a corrected message, or of its place."""
        assert said.place is not None
        named = id_named(said.place, said.offset, said.id)
        if named is None:
            return records_at(memory, said.offset)
        found = memory.find(np.array([self.memory.hash(named.encode())]))
        return [each for each in found.records(len(self._fields)) if each.id == named.encode()]

    def _of_account(self, memory: LogMemory, said: Correction) -> list[LearnedRecord]:
        """Return the deletions of the account of a corrected message."""
        name = account_of(said.id) if self.memory.accounts else None
        if name is None:
            return []
        found = memory.find(np.array([self.memory.hash(name.encode())]))
        return [each for each in found.records() if each.id == name.encode()]

    def correct(
        self, said: Correction, message: CorrectedMessage, part: str, learner: Learner
    ) -> None:
        """Take back what a message taught and teach its new label; see `MessageMemory`."""
        record: LearnedRecord | None = message.record
        assert said.place is not None
        if said.kind == "delete":
            if record is not None:  # else none of them teaches anything
                self._delete(said, record, learner)
            return
        if record is None and said.label is None and message.state != "waits":
            return  # it taught nothing, and teaches nothing
        offset = said.offset if record is None else record.offset
        fields = self._columns(said.example) if offset == said.offset else {}  # or it is refused
        if record is not None:
            memory = self.memory.log(said.place)
            found = memory.read(np.array([record.number]))
            taught_part = found.parts(len(self._fields))[0] or part_name(said.place)
            fields = fields or found.columns(self._fields)
            if is_said_already(memory, found, part, fields, said.label, learner.model.classes):
                return
            unlearn(found, taught_part, self._fields, learner, part_name(said.place))
        if said.label is not None:
            try:
                own, weights = weighed(fields)
                learner.learn(part, own, [said.label], weights=weights, judged=False)
            except InputError:
                if record is not None:
                    codes = Codes(found.labels, tuple(learner.model.classes))
                    own, weights = weighed(found.columns(self._fields))
                    learner.learn(taught_part, own, codes, weights=weights, judged=False)
                raise
            keep_classes(learner.model)
        self._note(said, np.array([offset], np.int64), fields, part, learner)

    def _delete(self, said: Correction, record: LearnedRecord, learner: Learner) -> None:
        """Take back what a message and the earlier ones of its id teach; none of them waits on."""
        assert said.place is not None
        memory, part = self.memory.log(said.place), part_name(said.place)
        last = max(said.offset, record.offset)
        alive = [e for e in living(self._of_message(memory, said)) if e.offset <= last]
        found = memory.read(np.array([each.number for each in alive], np.int64))
        self.counts.update(take_back_with(found, record.number, part, self._fields, learner))
        offsets = np.unique(np.array([last, *(each.offset for each in alive)], np.int64))
        self._note(said, offsets, self._columns({}, len(offsets)), part, learner)

    def _columns(self, example: Mapping[str, Any], n: int = 1) -> dict[str, Column]:
        """Return an example as columns of equal rows; see `learned_values`."""
        values = learned_values(example, self._fields)
        return {
            name: np.full(n, values.get(name, np.nan))
            if holds_floats(kind)
            else texts_of([values[name].encode() if name in values else None] * n)
            for name, kind in self._fields.items()
        }

    def _note(
        self, said: Correction, offsets: Longs, fields: dict[str, Column], part: str,
        learner: Learner,
    ) -> None:  # fmt: skip
        """Remember a correction of an id's messages, in the memory of their partition."""
        assert said.place is not None
        memory, n = self.memory.log(said.place), len(offsets)
        named = id_named(said.place, said.offset, said.id)
        ids = texts_of([None if named is None else named.encode()] * n)
        kind, label = TAKEN_BACK if said.kind == "delete" else WITHDRAWN, NO_LABEL
        if said.label is not None:
            kind, label = kernels.CORRECTED, list(learner.model.classes).index(said.label)
            fields = fields | {"": texts_of([part.encode()])}  # behind those of the model
        labels, kinds = np.full(n, label, np.int32), np.full(n, kind, np.uint8)
        self.memory.wrote(memory, memory.append(offsets, labels, kinds, ids, fields))


def _names(messages: Messages, rows: Longs) -> list[bytes]:
    """Return the ids of some messages, which all have one."""
    return [name or b"" for name in listed(take_texts(messages.ids.texts, rows).texts)]


def _accounts(messages: Messages) -> Longs:
    """Return the rows that delete an account."""
    data, starts, ends = messages.ids.texts
    rows, n = messages.deleted, len(ACCOUNT_END)
    rows = rows[ends[rows] - starts[rows] >= n]
    last = data[ends[rows, np.newaxis] - np.arange(n, 0, -1)]
    is_account: NDArray[np.bool_] = (last == np.frombuffer(ACCOUNT_END, np.uint8)).all(axis=1)
    return rows[is_account]


def _with_rows(
    messages: Messages, origins: Longs, added: Longs, names: Sequence[bytes]
) -> Messages:
    """Return a batch with deletes of some ids as further rows; each stands at `origins` in it."""
    if not len(added):
        return messages
    ids, own = take_texts(messages.ids.texts, origins).texts, texts_of(names).texts
    ids.starts[added], ids.ends[added] = own.starts + len(ids.data), own.ends + len(ids.data)
    operations = messages.operations[origins]
    operations[added] = kernels.DELETE_OF_ACCOUNT
    return replace(
        messages,
        at=messages.at[origins],
        labels=messages.labels[origins],
        operations=operations,
        texts=take_texts(messages.texts.texts, origins),
        ids=TextColumn(Texts(np.concatenate((ids.data, own.data)), ids.starts, ids.ends)),
        fields={name: rows_of(column, origins) for name, column in messages.fields.items()},
        n_added=len(added),
    )


def _labels_of(messages: Messages, classes: Sequence[Label]) -> NDArray[np.int32]:
    """Return each label's place among the model's classes; anything where there is none."""
    names = [str(label) for label in classes]
    if list(messages.classes) == names[: len(messages.classes)]:
        return messages.labels
    return to_indices(Codes(np.maximum(messages.labels, 0), messages.classes), names)


class Fold(msgspec.Struct, frozen=True):
    """What the messages of some ids come to, by the records of these ids."""

    kinds: NDArray[np.uint8]  # of the rows; `_NOTHING` for those that are not remembered
    labels: NDArray[np.int32]  # of the whole batch, with those that updates keep
    classes: tuple[str, ...]  # of these labels
    times_ms: Floats  # of the rows
    taken: Longs  # numbers of records, in the order of their takers
    takers: Longs  # the rows that take them back
    superseded: list[int]  # rows
    counts: dict[str, int]


def fold(
    memory: LogMemory,
    messages: Messages,
    kinds: NDArray[np.uint8],
    rows: NDArray[np.int64],
    hashes: Hashes,
    found: FoundRecords,
    classes: Sequence[Label],
    arrivals: Arrivals | None,
) -> Fold:
    """Go through some rows in the order of their log, by what is remembered of their ids.

    `kinds` has what was to be remembered of each message of the batch before; `hashes` are of the
    ids of the rows. A record's label is a code of the model's `classes`, a message's one of the
    batch's: to tell them apart the first stands as -2 - code.
    """
    spans = found.spans
    is_known = (spans[:, kernels.ID + 1] >= 0) & (spans[:, kernels.KIND] != kernels.EARLY_LABEL)
    known_ids = found.some(is_known).texts(kernels.ID)
    own_ids = take_texts(messages.ids.texts, rows).texts
    ids, n_ids = kernels.numbered(
        known_ids, own_ids, np.concatenate((memory.hashed(known_ids), hashes))
    )
    n_known, numbers = len(known_ids.ends), np.zeros(len(rows), np.int64)
    times_ms = np.full(len(ids), np.nan)
    if arrivals is not None:
        times_ms[:n_known] = waiting_times(found, memory.n_fields)[is_known]
        times_ms[n_known:] = arrivals.times_ms[rows]
    known_kinds, known_offsets, known_labels = spans[is_known, : kernels.ID].T
    events = kernels.Events(
        ids,
        np.concatenate((found.numbers[is_known], numbers)),
        np.concatenate((known_kinds, kinds[rows])),
        np.concatenate((known_offsets, messages.offsets[rows])),
        np.concatenate((-2 - known_labels, messages.labels[rows])),
        times_ms,
    )
    was_remembered = kinds != _NOTHING
    before = (np.cumsum(was_remembered) - was_remembered)[rows]
    takers = np.full(len(ids), kernels.NOBODY)
    counts = np.zeros(len(_COUNTS), np.int64)
    window_ms = -1.0 if arrivals is None else arrivals.window_ms
    kernels.fold(
        events, kernels.no_chains(n_ids, len(ids)),
        messages.operations[rows].astype(np.int64), before, memory.n,
        learned_memory.SEGMENT_RECORDS, memory.records_max, window_ms, takers, counts,
    )  # fmt: skip
    done = events.kinds[n_known:]
    taken = np.flatnonzero(takers != kernels.NOBODY)
    taken = taken[np.argsort(takers[taken], kind="stable")]
    labels, label_names = _kept_labels(messages, rows, events.labels[n_known:], classes)
    return Fold(
        done.astype(np.uint8),
        labels,
        label_names,
        times_ms[n_known:],
        events.numbers[taken],
        rows[takers[taken] - n_known],
        rows[done == kernels.CONSUMED].tolist(),
        {name: n for name, n in zip(_COUNTS, counts.tolist(), strict=True) if n},
    )


def _kept_labels(
    messages: Messages, rows: NDArray[np.int64], codes: NDArray[np.int64], classes: Sequence[Label]
) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Return the labels of a batch and their classes, with the codes of rows from `Events`."""
    names = messages.classes
    for code in np.unique(codes[codes < NO_LABEL]).tolist():
        name = str(classes[-2 - code])
        if name not in names:
            names = (*names, name)
        codes = np.where(codes == code, names.index(name), codes)
    labels = messages.labels.copy()
    labels[rows] = codes
    return labels, names
