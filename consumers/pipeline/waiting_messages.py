"""Messages that wait for a label of another log, as the memory of their partition tells of them.

The rules are those of `late_labels`, which joins the two. Both logs take back by `take_back`; what
a batch takes back itself stands as rows among those that it learns (`Taking`).
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import msgspec
import numpy as np
import structlog
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.config.model import FieldKind
from consumers.decode.labels import keep_classes
from consumers.features import ExampleTimes, PartitionTime, are_equal, columns_of
from consumers.kernels import learned_records as kernels
from consumers.kernels.learned_records import DEFAULTED, EARLY_LABEL, LATE_LABELLED
from consumers.messages import (
    OPERATIONS,
    Column,
    Messages,
    Operation,
    Partition,
    part_name,
    rows_of,
    take_texts,
    weighed,
)
from consumers.pipeline import learned_memory
from consumers.pipeline.challengers import ChallengedLearner
from consumers.pipeline.learned_memory import LogMemory
from consumers.pipeline.learned_records import (
    AWAITED,
    LABEL_HEAD,
    OF_STREAM,
    FoundRecords,
    Hashes,
    LearnedRecord,
    Longs,
)
from consumers.pipeline.own_models import OwnLearner
from streamnb import Codes, Learner, TextColumn
from streamnb.errors import InputError
from streamnb.kernels.layout import Texts
from streamnb.labels import Label, to_indices
from streamnb.learn import LEARNED

Floats = NDArray[np.float64]
_TIME = struct.Struct("<d")
MESSAGES_AND_LABELS = (*AWAITED, EARLY_LABEL)  # the kinds of records that wait or waited
_DUE_MAX = 1 << 15  # how many records of small batches are looked at together
log = structlog.get_logger(__name__)


WaitingState = Literal["waits", "default", "labelled", "gone", "withdrawn"]
# In the kernel's order.
_STATES: tuple[WaitingState, ...] = ("waits", "default", "labelled", "gone", "withdrawn")


class WaitingMessage(msgspec.Struct):
    """A message that waits or waited: as it `first` came, and its contents as they are `now`.

    `default` is the record by which it was learned as the default.
    """

    time_ms: float
    first: LearnedRecord
    now: LearnedRecord
    state: WaitingState
    default: LearnedRecord | None


def _folded(
    records: Sequence[LearnedRecord], sizes: NDArray[np.int64]
) -> tuple[kernels.Chains, NDArray[np.int64]]:
    """Go through the records of some ids; return the chains, and where the slots of each id end."""
    numbers, kinds, offsets, labels = (
        np.array(column, np.int64) for column in list(zip(*records, strict=True))[:4]
    )
    times_ms = [time_of(each) if each.kind in AWAITED else math.nan for each in records]
    ids = np.repeat(np.arange(len(sizes)), sizes)
    events = kernels.Events(ids, numbers, kinds, offsets, labels, np.array(times_ms))
    chains, ends = kernels.no_chains(len(sizes), len(records)), np.empty_like(sizes)
    kernels.fold_records(events, chains, ends)
    return chains, ends


def living(records: Sequence[LearnedRecord]) -> list[LearnedRecord]:
    """Return which records of an id, given in their order, teach now.

    Records may leave at the front: what they did stands in the later ones.
    """
    if not records:
        return []
    chains, _ = _folded(records, np.array([len(records)]))
    found, at = [], int(chains.living[0])
    while at != kernels.NOBODY:
        found.append(records[at])
        at = int(chains.after[at])
    return found


def waiting_messages(
    records_by_id: Collection[Sequence[LearnedRecord]],
) -> list[list[WaitingMessage]]:
    """Return the messages of each id that wait or waited, by its records in their order."""
    records = list(chain.from_iterable(records_by_id))
    if not records:
        return [[] for _ in records_by_id]
    chains, ends = _folded(records, np.array([len(own) for own in records_by_id]))
    slots = zip(*(each[: ends[-1]].tolist() for each in chains[-5:]), strict=True)
    found = [
        WaitingMessage(
            time_ms, records[first], records[now], _STATES[state],
            None if default == kernels.NOBODY else records[default],
        )
        for first, now, default, state, time_ms in slots
    ]  # fmt: skip
    bounds = [0, *ends.tolist()]
    return [found[begin:end] for begin, end in pairwise(bounds)]


def still_waiting(
    records: Sequence[LearnedRecord], offset: int, *, is_delete: bool
) -> list[LearnedRecord]:
    """Return the message of an id that waits with its contents of an offset.

    A delete means each message that came up to there, with the contents that it has now.
    """
    (found,) = waiting_messages([records])
    found = [each for each in found if each.state == "waits"]
    if is_delete:
        return [each.now for each in found if each.first.offset <= offset]
    return [each.now for each in found if each.now.offset == offset]


class Arrivals(msgspec.Struct):
    """The times of a batch, and which of its messages wait unless an earlier one of the id does."""

    times_ms: Floats
    waits: NDArray[np.bool_]
    window_ms: float


def repeated(hashes: Hashes) -> NDArray[np.bool_]:
    """Return which hashes stand there more than once."""
    _, inverse, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    found: NDArray[np.bool_] = counts[inverse] > 1
    return found


def pack_time(time_ms: float) -> bytes:
    """Return a time as the bytes that stand behind the model's fields."""
    return _TIME.pack(time_ms)


def time_of(record: LearnedRecord) -> float:
    """Return the time of a message or label that waits; nan if it has none."""
    return math.nan if record.more is None else float(_TIME.unpack_from(record.more)[0])


def waiting_times(found: FoundRecords, n_fields: int, kinds: Sequence[int] = AWAITED) -> Floats:
    """Return the time of each record; nan if it has none, or is not of what waits."""
    column, times_ms = kernels.FIELDS + 2 * n_fields, np.full(len(found), np.nan)
    is_given = found.spans[:, column + 1] >= 0
    at = np.flatnonzero(np.isin(found.spans[:, kernels.KIND], kinds) & is_given)
    times_ms[at] = found.bytes_of(column, _TIME.size, at).view("<f8").ravel()
    return times_ms


def rest_of(record: LearnedRecord) -> bytes:
    """Return what stands behind the time of a message or label that waits."""
    return b"" if record.more is None else record.more[_TIME.size :]


def pack_label(time_ms: float, offset: int, label: str, value: bytes) -> bytes:
    """Return a label that waits as the bytes that stand behind the model's fields."""
    return b"".join((LABEL_HEAD.pack(time_ms, offset), label.encode(), b"\0", value))


def early_label(record: LearnedRecord) -> tuple[int, str, bytes]:
    """Return the offset, the label and the value of a label that waited; of an erased one b""."""
    data = record.more or b""
    name, _, value = data[LABEL_HEAD.size :].partition(b"\0")
    return int(LABEL_HEAD.unpack_from(data)[1]), name.decode(), value.rstrip(b"\0")


def first_posteriors(records: Sequence[LearnedRecord], n_classes: int) -> Floats:
    """Return what was first predicted of messages; nan for classes that joined since."""
    found = np.full((len(records), n_classes), np.nan)
    for row, each in zip(found, records, strict=True):
        judged = np.frombuffer(rest_of(each), np.float64)
        row[: len(judged)] = judged
    return found


def near(one_ms: float, other_ms: float, window_ms: float) -> bool:
    """Return whether two times lie within the window; one that is unknown lies in each."""
    return not abs(one_ms - other_ms) > window_ms


class _Due(NamedTuple):
    times_ms: Floats
    numbers: NDArray[np.int64]  # ascending
    hashes: Hashes
    first_ms: float


class DueTimes:
    """Numbers of records with a time and the hash of their id, to be taken once that is over.

    What small batches bring is joined, so that a look at what is due costs little however many
    wait.
    """

    def __init__(self) -> None:
        self._chunks: list[_Due] = []

    def __len__(self) -> int:
        return sum(len(each.numbers) for each in self._chunks)

    def add(self, times_ms: Floats, numbers: NDArray[np.int64], hashes: Hashes) -> None:
        """Add records, behind all others; one without a time is never due."""
        chunks = self._chunks
        if len(numbers):
            chunks.append(_due(times_ms, numbers, hashes))
        while len(chunks) > 1:
            n, n_before = len(chunks[-1].numbers), len(chunks[-2].numbers)
            if n_before > 2 * n or n_before + n > _DUE_MAX:
                return
            last, before = chunks.pop(), chunks.pop()
            pairs = zip(before[:3], last[:3], strict=True)
            chunks.append(_due(*(np.concatenate(pair) for pair in pairs)))

    def take(self, until_ms: float, floor: int = 0) -> tuple[NDArray[np.int64], Hashes]:
        """Remove and return what lies before a time, and all records before the number `floor`."""
        found, kept = [], list[_Due]()
        for chunk in self._chunks:
            times_ms, numbers, hashes, first_ms = chunk
            if not (first_ms < until_ms or numbers[0] < floor):
                kept.append(chunk)
                continue
            due = (times_ms < until_ms) | (numbers < floor)
            found.append((numbers[due], hashes[due]))
            if not due.all():
                kept.append(_due(times_ms[~due], numbers[~due], hashes[~due]))
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.uint64)
        self._chunks = kept
        return np.concatenate([each for each, _ in found]), np.concatenate([h for _, h in found])


def _due(times_ms: Floats, numbers: NDArray[np.int64], hashes: Hashes) -> _Due:
    return _Due(times_ms, numbers, hashes, float(np.fmin.reduce(times_ms)))


class WaitingLog(PartitionTime):
    """Where the times of a partition stand, and what waits there."""

    first_ms: float = math.nan
    floor: int = 0  # labels before this record were given up
    messages: DueTimes = field(default_factory=DueTimes)
    labels: DueTimes = field(default_factory=DueTimes)
    early: Counter[int] = field(default_factory=Counter)  # hashes of the ids of labels that wait
    joined: set[int] = field(default_factory=set)  # numbers of those whose message has come
    arrived: list[tuple[int, Hashes]] = field(default_factory=list)  # first number, and hashes
    is_told: bool = False  # whether the log knows of messages that came too late to wait

    def tell_late(self, partition: Partition, n_late: int) -> None:
        """Log once that messages of a batch came too late: a wrong clock may have moved the time.

        A single one is none to tell of.
        """
        if n_late > 1 and not self.is_told:
            self.is_told = True
            log.warning(
                "messages_too_late",
                partition=part_name(partition),
                newest_ms=int(self.newest_ms),
                detail="messages came more than late_labels.window_s behind the newest time of"
                " their partition: they wait for no label. If that time is wrong, none will until"
                " it is reached: start from an empty state folder, without what said it",
            )

    def packed(self) -> list[float | None]:
        """Return its times as JSON has them, None for none yet, and the floor."""
        first = None if math.isnan(self.first_ms) else self.first_ms
        return [*PartitionTime.packed(self), first, self.floor]

    def restore(self, values: Sequence[float | None]) -> None:
        """Go on from what was packed."""
        newest_ms, last_ms, first_ms, *floor = values
        PartitionTime.restore(self, (newest_ms, last_ms))
        self.first_ms = math.nan if first_ms is None else first_ms
        self.floor = int(floor[0] or 0) if floor else 0  # an older version did not say it

    @property
    def n_labels(self) -> int:
        """How many labels wait for their message."""
        return len(self.labels) - len(self.joined)

    def labels_before(self, until_ms: float, floor: int) -> tuple[NDArray[np.int64], Hashes]:
        """Let labels go as `DueTimes.take` does; return those whose message has not come."""
        numbers, hashes = self.labels.take(until_ms, floor)
        for each in hashes.tolist():
            if self.early[each] > 1:
                self.early[each] -= 1
            else:
                self.early.pop(each, None)
        is_open = np.array([each not in self.joined for each in numbers.tolist()], np.bool_)
        self.joined.difference_update(numbers.tolist())
        return numbers[is_open], hashes[is_open]


def leaving(memory: LogMemory) -> int:
    """Return the first record that stays once the next segment begins."""
    return memory.floor(memory.n + learned_memory.SEGMENT_RECORDS)


def waiting_records(memory: LogMemory) -> Iterator[tuple[FoundRecords, NDArray[np.bool_]]]:
    """Yield what waits or waited in the memory of a log, messages and labels, by segment.

    And which of them are messages that have been learned, by a late label or as the default.
    """
    numbers, offsets = list[NDArray[np.int64]](), [np.empty(0, np.int64)]
    for found in memory.heads(0, memory.n):
        kinds = found.spans[:, kernels.KIND]
        numbers.append(found.numbers[np.isin(kinds, MESSAGES_AND_LABELS)])
        offsets.append(found.spans[np.isin(kinds, (LATE_LABELLED, DEFAULTED)), kernels.OFFSET])
    learned = np.unique(np.concatenate(offsets))
    for each in numbers:
        memory.beat()
        found = memory.read(each)
        own_offsets = found.spans[:, kernels.OFFSET]  # a waiting label has that of no message
        places = np.searchsorted(learned, own_offsets)
        yield found, places < np.searchsorted(learned, own_offsets, side="right")


def records_at(memory: LogMemory, offset: int) -> list[LearnedRecord]:
    """Return the records of a message without an id, which is known by its place alone."""
    every = memory.heads(0, memory.n)
    numbers = [each.numbers[each.spans[:, kernels.OFFSET] == offset] for each in every]
    found = memory.read(np.concatenate([np.empty(0, np.int64), *numbers]))
    return [each for each in found.records() if each.id is None]


def known_from(memory: LogMemory) -> int:
    """Return the offset from which on it is known whether a message taught something."""
    first = learned_memory.next_segment(memory.n) // learned_memory.SEGMENT_RECORDS
    while first - 1 in memory.segments:  # before one that is lost, nothing is known
        first -= 1
    if memory.is_whole and not first:
        return 0
    if first not in memory.segments:
        return 1 << 62
    begin = first * learned_memory.SEGMENT_RECORDS
    for found in memory.heads(begin, begin + learned_memory.SEGMENT_RECORDS):
        of_stream = np.isin(found.spans[:, kernels.KIND], OF_STREAM)
        offsets = found.spans[of_stream, kernels.OFFSET].tolist()
        return offsets[0] if offsets else 1 << 62
    return known_from(memory)  # that one is lost too


def is_said_already(
    memory: LogMemory, found: FoundRecords, part: str, columns: Mapping[str, Column],
    label: str | None, classes: Sequence[Label],
) -> bool:  # fmt: skip
    """Return whether a record is of a person's label equal to one given now.

    In a later segment a new record would be remembered for longer: there it is not said yet.
    """
    size, held = learned_memory.SEGMENT_RECORDS, found.columns(memory.fields)
    return (
        found.parts(memory.n_fields) == [part]  # no other record has a part
        and classes[found.labels[0]] == label
        and found.numbers[0] // size == memory.n // size
        and all(are_equal(held[name], column) for name, column in columns.items())
    )


def texts_of(values: Sequence[bytes | None]) -> TextColumn:
    """Return texts, or None for missing ones, as a column."""
    sizes = np.array([-1 if value is None else len(value) for value in values], np.int64)
    ends = np.cumsum(np.maximum(sizes, 0))
    data = np.frombuffer(bytearray(b"".join([value or b"" for value in values])), np.uint8)
    return TextColumn(Texts(data, ends - np.maximum(sizes, 0), np.where(sizes < 0, -1, ends)))


def take_back(
    found: FoundRecords, part: str, fields: Mapping[str, FieldKind], learner: Learner
) -> Counter[str]:
    """Unlearn what some records taught, and count it; `part` is the one of their log."""
    counts = Counter[str]()
    for name, own in _by_part(found, part, len(fields)).items():
        try:
            unlearn(own, name, fields, learner, part)
            counts["unlearned"] += len(own)
        except InputError:
            for number in own.numbers.tolist():  # the others are taken back all the same
                one = own.some(own.numbers == number)
                try:
                    unlearn(one, name, fields, learner, part)
                    counts["unlearned"] += len(one)
                except InputError as error:
                    counts["refused"] += 1
                    offset, detail = one.records()[0].offset, str(error)
                    log.error("not_taken_back", offset=offset, detail=detail)  # noqa: TRY400
    return counts


def take_back_with(
    found: FoundRecords, own: int, part: str, fields: Mapping[str, FieldKind], learner: Learner
) -> Counter[str]:
    """Take back a record and others; if that one is among them and cannot be, none is."""
    is_own = found.numbers == own
    for taught in found.some(is_own).parts(len(fields)):
        unlearn(found.some(is_own), taught or part, fields, learner, part)
    return take_back(found.some(~is_own), part, fields, learner)


def _by_part(found: FoundRecords, part: str, n_fields: int) -> dict[str, FoundRecords]:
    """Return records by the part that they have taught; `part` is the one of their log."""
    given = found.parts(n_fields)
    if not any(given):
        return {part: found} if given else {}
    parts = np.array([each or part for each in given])
    return {name: found.some(parts == name) for name in dict.fromkeys(parts.tolist())}


def unlearn(
    records: FoundRecords,
    part: str,
    fields: Mapping[str, FieldKind],
    learner: Learner,
    log_name: str,
) -> None:
    """Unlearn what some records of a log taught a part; if one cannot be, none is."""
    if isinstance(learner, ChallengedLearner | OwnLearner):  # one may have begun behind some
        learner.take_back(records, log_name, part, fields)
        return
    labels = Codes(records.labels, tuple(learner.model.classes))
    columns, weights = weighed(records.columns(fields))
    learner.unlearn_many(part, columns, labels, weights=weights)


# ---- taking back among what is learned -----------------------------------------------------------

APART = 3  # beside `learn.LEARNED`, `EARLIER` and `OWN`: it taught another part


class Taking(msgspec.Struct):
    """Which rows of a batch's messages are records to be taken back, and in which way.

    `codes` says so of each row, as `Learner.learn` reads it; `numbers` are the records', `effects`
    what each row adds to the examples that were learned. If `is_apart`, calls of `take_back` take
    all back, as the model cannot do so among what it learns.
    """

    codes: NDArray[np.int8]
    numbers: Longs
    effects: NDArray[np.int8]
    take_back: Callable[[Longs, Learner], None]
    is_apart: bool = False

    def n_together(self, rows: Longs) -> int:
        """Return how many rows come before the first that a call of its own takes back.

        If there is none it is one more than all.
        """
        codes = self.codes[rows]
        apart = codes == APART if not self.is_apart else codes != LEARNED
        return int(apart.argmax()) if apart.any() else len(rows) + 1

    def n_apart(self, rows: Longs) -> int:
        """Return how many rows, of which the first is taken back, come before one to learn."""
        learned = self.codes[rows] == LEARNED
        return int(learned.argmax()) if learned.any() else len(rows)


def rows_until(rows: Longs, taking: Taking | None, due: int | None, look: int | None) -> int:
    """Return behind how many rows the model has `due` examples more, or `look` were learned.

    If neither comes it is one more than all; without a number nothing does.
    """
    n = len(rows) + 1
    if taking is None:
        return min(n, due or n, look or n)
    for wanted, effects in ((due, taking.effects[rows]), (look, taking.codes[rows] == LEARNED)):
        reached = np.cumsum(effects) >= wanted if wanted else np.zeros(0, np.bool_)
        n = min(n, int(reached.argmax()) + 1) if reached.any() else n
    return n


class LearnedRows(NamedTuple):
    """Messages that were learned: with log-posteriors from before, and their classes by place.

    `n_done` counts the rows that were taken back too.
    """

    rows: Longs
    posteriors: Floats
    truth: NDArray[np.int32]
    n_done: int
    weights: Floats | None = None  # if any is not 1


def learn_rows(
    learner: Learner,
    messages: Messages,
    rows: Longs,
    columns: Mapping[str, Column],
    own: ExampleTimes,
    taking: Taking | None,
) -> LearnedRows:
    """Learn rows of a batch, taking back those that are records, up to one that cannot be now."""
    labels = Codes(messages.labels[rows], messages.classes)
    codes = None if taking is None else taking.codes[rows]
    if codes is not None and (codes == LEARNED).all():
        codes = None  # nothing to ask a model for that not every model can do
    posteriors = learner.learn(
        part_name(messages.partition), columns, labels, weights=own.weights, times_s=own.times_s,
        taken=codes,
    )  # fmt: skip
    n, truth = len(posteriors), to_indices(labels, keep_classes(learner.model))
    if codes is None:
        return LearnedRows(rows, posteriors, truth, n, own.weights)
    at = np.flatnonzero(codes[:n] == LEARNED)
    weights = None if own.weights is None else own.weights[at]
    return LearnedRows(rows[at], posteriors[at], truth[at], n, weights)


def joined(pieces: Sequence[LearnedRows]) -> tuple[Longs, Floats, NDArray[np.int32]]:
    """Return rows, log-posteriors and classes of pieces; −∞ for classes that joined later."""
    rows = np.concatenate([each.rows for each in pieces])
    n_classes = max(each.posteriors.shape[1] for each in pieces)
    posteriors, end = np.full((len(rows), n_classes), -np.inf), 0
    for each in pieces:
        begin, end = end, end + len(each.rows)
        posteriors[begin:end, : each.posteriors.shape[1]] = each.posteriors
    return rows, posteriors, np.concatenate([each.truth for each in pieces])


def with_records(
    messages: Messages,
    origins: Longs,
    rows: Longs,
    found: FoundRecords,
    classes: Sequence[str],
    fields: Mapping[str, FieldKind],
) -> Messages:
    """Return a batch with records as further rows; each stands behind its own of `origins`."""
    names = (*messages.classes, *(name for name in classes if name not in messages.classes))
    labels, operations = messages.labels[origins], messages.operations[origins]
    labels[rows] = np.array([names.index(name) for name in classes], np.int32)[found.labels]
    operations[rows] = OPERATIONS.index(Operation.CREATE)
    columns = columns_of(messages, np.arange(len(messages)), list(fields))
    for name, own in found.columns(fields).items():
        columns[name] = _with_values(columns[name], origins, rows, own)
    texts = columns.pop("text", take_texts(messages.texts.texts, origins))
    assert isinstance(texts, TextColumn)
    return replace(
        messages,
        at=messages.at[origins],
        classes=names,
        labels=labels,
        operations=operations,
        texts=texts,
        ids=take_texts(messages.ids.texts, origins),
        fields={
            name: columns[name] if name in columns else rows_of(column, origins)
            for name, column in (messages.fields | columns).items()
        },
        n_added=len(rows),
    )


def _with_values(column: Column, origins: Longs, rows: Longs, own: Column) -> Column:
    """Return a column with other values at some rows; see `with_records`."""
    if not isinstance(column, TextColumn) or not isinstance(own, TextColumn):
        values = np.asarray(column)[origins]
        values[rows] = np.asarray(own)
        return values
    before, texts = column.texts, own.texts
    n, starts, ends = len(before.data), before.starts[origins], before.ends[origins]
    starts[rows], ends[rows] = texts.starts + n, np.where(texts.ends < 0, -1, texts.ends + n)
    return TextColumn(Texts(np.concatenate((before.data, texts.data)), starts, ends))
