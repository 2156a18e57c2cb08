"""Rows: messages made to columns of the table, rows of it as objects, and all that is handed out.

Python that runs for each message holds the interpreter's lock. A thread of its own for it would
take the lock from the learning at the worst of moments, and cost many times what it does. So if a
stream is so fast that a sample is taken of it, the thread that has just judged a message makes
its row, while the batch is still in the processor's cache; the store's thread is left with what
SQLite does, which needs no lock. What a slower stream brings the store's thread makes as well: then
nobody waits for the lock.

Behind that stands how many messages of the stream each row stands for, and at the end what is
counted of rows, by class and as series in time.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.messages import NO_LABEL, NO_TIME, Messages, Partition, pairs, part_name
from consumers.search.chunks import NOTED_MAX, OF_FIELD, SCANNED_MAX, Chunk, Keys, Parts, Stratum
from consumers.search.database import partition_at
from consumers.search.query_syntax import lang_sign, signs_of, without_marks
from streamnb import TextColumn

TEXT_MAX = 4_000  # characters that are shown and searched
TIMES_MS = -62_135_596_800_000, 253_402_300_799_999  # years 1 to 9999: browsers know them
_probabilities = msgspec.json.Decoder(tuple[float, ...]).decode
_json = msgspec.json.Encoder().encode

Columns: TypeAlias = dict[str, list[Any]]


class MessageRow(msgspec.Struct, frozen=True):
    """One message; where many are read `example`, which has the whole text, is left empty."""

    key: int  # later ones have larger keys, and none is given twice
    id: str  # the message's own, or one made of its place in the stream
    partition: Partition  # the log it came from
    offset: int
    time_ms: int  # the message's own, else its source's, in Unix milliseconds; -1: neither is known
    arrived_ms: int  # when it came, by this computer's clock, in Unix milliseconds
    user: str | None
    lang: str | None
    text: str  # what is shown and searched: its text, or without one its fields; cut off
    example: dict[str, Any]  # the model's fields as it read them; what is missing is absent
    label: str  # what it was judged to be when it came
    probability: float  # how likely that was
    probabilities: tuple[float, ...]  # of all classes, in their order
    truth: str | None  # the stream's label, if it came with the message
    taught: str | None  # the label by which it teaches the model now; None: it teaches nothing
    taught_part: str | None  # the model's part that holds what it taught
    corrected: str | None  # the label that a person gave

    @property
    def values(self) -> dict[str, Any]:
        """What a query's conditions may name."""
        # As the store's memory has them, so that a live query finds what a search does.
        confidence = np.float32(self.probability)
        own = {"lang": self.lang or "", "label": self.label, "confidence": confidence}
        return self.example | own


class FoundRow(msgspec.Struct, frozen=True):
    """A row that matches a query; every second piece of its text is of the query's words."""

    row: MessageRow
    marked: tuple[str, ...]


class Found(msgspec.Struct, frozen=True):
    """A page of what a search found, newest first."""

    rows: Sequence[FoundRow]
    more: bool  # whether older ones match as well
    before: int | None  # what to ask for to get these: the key of the last


class WeighedCounts(msgspec.Struct, frozen=True):
    """Counts of rows by what they weigh, in the size of an even sample that would say as much.

    That is n_eff = (Σw)²/Σw² for weights w (Kish 1965), of all and of those with each label.
    """

    counts: tuple[float, ...]
    confusion: tuple[tuple[float, ...], ...]


class Counted(msgspec.Struct, frozen=True):
    """Counts over the newest messages that match, by class in the classes' order."""

    n: int
    n_max: int  # messages counted at most
    newest_only: bool  # whether there are older ones, which were left out
    counts: tuple[int, ...]  # by predicted class
    # Of those with a label: row the label, column what was predicted before it was learned.
    confusion: tuple[tuple[int, ...], ...]
    n_unsure: int  # messages whose most likely class is less likely than `page.unsure_below`
    step_s: int
    times_ms: tuple[int, ...]  # where each step begins, ascending; empty steps are left out
    # By step. Messages whose time is far from all others' (beyond the middle 98 %, if these are
    # close together) are left out here. Where weights differ in a step, as of `WeighedCounts`.
    series: tuple[tuple[int, ...], ...]
    n_came: tuple[int, ...] = ()  # for how many messages these stand; (): for themselves alone
    weighed: WeighedCounts | None = None  # None: all weigh the same

    @property
    def for_shares(self) -> tuple[Sequence[float], Sequence[Sequence[float]]]:
        """Counts and confusion that shares are made of, weighed if weights differ."""
        own = self.weighed or self
        return own.counts, own.confusion


class RecentState(msgspec.Struct, frozen=True):
    """What the store holds, and how it fares."""

    is_open: bool  # whether its file is; without it nothing is known of what is held
    n_messages: int
    messages_max: int
    age_max_s: float
    share: float  # 0 to 1: what was taken of all that came while the held ones did
    stored_per_s: float  # over the last minute at most
    offered_per_s: float
    n_offered: int  # since the start
    n_stored: int
    n_overflowed: int  # those that would have been taken, had the queue not been full
    n_failed: int  # those that were taken and could not be written
    n_restarts: int  # how often the file was opened again after an unforeseen error
    n_bytes: int  # of the file
    trouble: str | None  # what keeps it from writing now, as a sentence


class Change(msgspec.Struct, frozen=True):
    """Something happened to a message that is held."""

    id: str
    corrected: str | None  # the label that a person gave it
    removed: bool


def crc_of(id: str) -> int:  # noqa: A002 -- it is one
    """Return the checksum by which ids are looked up."""
    return zlib.crc32(id.encode("utf-8", "replace"))


def crcs_of(ids: Collection[str]) -> NDArray[np.uint32]:
    """Return the checksum of each of some ids."""
    encoded = [each.encode("utf-8", "replace") for each in ids]
    return np.fromiter(map(zlib.crc32, encoded), np.uint32, len(encoded))


class RowBuilder(msgspec.Struct, frozen=True):
    """Makes columns of messages; any thread may use it."""

    classes: Sequence[str]  # the model's, by their number
    fields: tuple[str, ...]  # the model's
    times_made_up: bool = False  # what messages say of their own time means nothing

    def columns(
        self,
        messages: Messages,
        rows: NDArray[np.int64],
        log_posteriors: NDArray[np.float64],
        arrived_ms: int,
    ) -> Columns:
        """Return some messages, by ascending positions, as columns of the table.

        The log-posteriors have shape (n, n_classes), in nats. Of `database.COLUMNS` those are
        missing that only the file can give; see `placed`. Behind them stand values of fields, for
        memory alone.
        """
        n = len(rows)
        about = messages.metadata(messages.raw, messages.at[rows])
        texts = messages.shown_texts(rows)
        shown = [
            without_marks((pairs(own) if text is None else text)[:TEXT_MAX])
            for text, own in zip(texts, about.fields, strict=True)
        ]
        shares = np.exp(log_posteriors)
        likeliest = shares.argmax(axis=1)
        names = [name for name in self.fields if name != "text"]
        others = {name: _values(messages, rows, name) for name in names}
        places = {name: c for c, name in enumerate(self.classes)}
        codes = [places.get(name) for name in messages.classes]
        labels = messages.labels[rows].tolist()
        truths = [None if k == NO_LABEL else codes[k] for k in labels]
        part = part_name(messages.partition)
        times_ms = np.clip(about.times_ms, *TIMES_MS).tolist()
        return {
            "id": about.ids,
            "id_crc": [zlib.crc32(name.encode("utf-8", "replace")) for name in about.ids],
            "offset": messages.offsets[rows].tolist(),
            "time_ms": [NO_TIME] * n if self.times_made_up else times_ms,
            "arrived_ms": [arrived_ms] * n,
            "user": about.users,
            "lang": about.langs,
            "text": shown,
            "signs": list(map(signs_of, shown)),
            "example": self._examples(others, texts, shown),
            "label": likeliest.tolist(),
            "probability": shares[np.arange(n), likeliest].tolist(),
            "probabilities": _as_json(shares),
            "truth": truths,
            "taught": list(truths),
            "taught_part": [None if truth is None else part for truth in truths],
            "corrected": [None] * n,
        } | {f"{OF_FIELD}{name}": others[name] for name in names[:NOTED_MAX]}

    def _examples(
        self, columns: Columns, texts: Sequence[str | None], shown: Sequence[str]
    ) -> list[str | None]:
        """Return as JSON the fields that the model reads; None: just the text that is shown."""
        has_text = len(columns) < len(self.fields)
        others: list[dict[str, Any]] = [{}] * len(texts)
        if columns:
            others = [
                {name: v for name, v in zip(columns, values, strict=True) if v is not None}
                for values in zip(*columns.values(), strict=True)
            ]
        return [
            None
            if has_text and not other and text == kept
            else _json({"text": text} | other if has_text else other).decode()
            for text, kept, other in zip(texts, shown, others, strict=True)
        ]


def _as_json(shares: NDArray[np.float64]) -> list[str]:
    """Return each row as JSON; all at once, as a call for each takes twice as long."""
    rows = _json(shares.tolist()).decode()[2:-2].split("],[") if len(shares) else []
    return [f"[{row}]" for row in rows]


def _values(messages: Messages, rows: NDArray[np.int64], name: str) -> list[Any]:
    """Return one field of some messages, None if it is missing."""
    column = messages.fields.get(name)
    if column is None:
        return [None] * len(rows)
    if not isinstance(column, TextColumn):
        is_known = np.isfinite(column[rows]).tolist()  # JSON knows no other numbers
        own = zip(column[rows].tolist(), is_known, strict=True)
        return [value if known else None for value, known in own]
    data, starts, ends = column.texts
    lies = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
    return [None if e < 0 else data[s:e].tobytes().decode("utf-8", "replace") for s, e in lies]


def placed(
    columns: Columns, first_key: int, place: int, lang_code: Callable[[str | None], int]
) -> Columns:
    """Return rows with what the file knows of them: all of `database.COLUMNS`, too.

    Keys count up from the first; `place` is the number of their partition.
    """
    n = len(columns["id"])
    codes = {lang: lang_code(lang) for lang in dict.fromkeys(columns["lang"])}
    heads = {lang: lang_sign(code) for lang, code in codes.items()}
    said = zip(columns["lang"], columns["signs"], strict=True)
    return columns | {
        "key": list(range(first_key, first_key + n)),
        "place": [place] * n,
        "lang_code": [codes[lang] for lang in columns["lang"]],
        "signs": [f"{heads[lang]} {signs}" if signs else heads[lang] for lang, signs in said],
    }


class RowMapper(msgspec.Struct, frozen=True):
    """What the numbers of a table stand for: classes, and the file's names of partitions."""

    classes: Sequence[str]
    places: list[str]
    listed: Sequence[str] = ()  # the file's classes; after a kill, one may be still to join again

    def row(self, values: Sequence[Any]) -> MessageRow:
        """Return the row whose columns `database.SHOWN` these are."""
        (
            key, id_, place, offset, time_ms, arrived_ms, user, lang, text, example, label,
            probability, probabilities, truth, taught, taught_part, corrected,
        ) = values  # fmt: skip
        return MessageRow(
            key=key,
            id=id_,
            partition=partition_at(self.places[place]),
            offset=offset,
            time_ms=time_ms,
            arrived_ms=arrived_ms,
            user=user,
            lang=lang,
            text=text,
            example={"text": text} if example is None else msgspec.json.decode(example),
            label=self._class(label),
            probability=probability,
            probabilities=_probabilities(probabilities),
            truth=self._name(truth),
            taught=self._name(taught),
            taught_part=taught_part,
            corrected=self._name(corrected),
        )

    def _name(self, code: int | None) -> str | None:
        return None if code is None else self._class(code)

    def _class(self, code: int) -> str:
        return self.listed[code] if code < len(self.listed) else self.classes[code]


class ExportForm(msgspec.Struct, frozen=True):
    """How rows are written as a file."""

    media_type: str
    header: bytes
    # Of each part of a line: named SQL expressions over a row of a chunk's table, and one of these.
    selects: tuple[tuple[tuple[str, ...], str], ...]
    piece_rows: int  # so many lines are made at once; if they have several parts, one


# ---- chunks: what rows weigh, and where they lie -------------------------------------------------

_STRATUM_MS = 2_000  # some samples: of one alone nobody knows how much of the stream it stands for


def note_offered(chunk: Chunk, n: int, n_left_out: int, at_ms: int, share: float = 0.0) -> None:
    """Note that messages came: `n`, which were just added as rows, and more that were left out.

    Sampled rows make strata of two seconds, which begin with what is left out before a sample. All
    of a time when nothing is, and what has another `share`, make one.
    """
    *others, last = chunk.strata or (Stratum(0, 0, chunk.n_offered),)
    n_own, age_ms = chunk.n - n - last.first, abs(at_ms - last.began_ms)
    # To end before what was left out leaves samples whole; if there is none, sampling may be over.
    age_max_ms = (2 - (n_left_out > 0)) * _STRATUM_MS
    is_over = n_left_out > 0 if last.n_offered == n_own else age_ms >= age_max_ms
    low, high = sorted((abs(share), abs(chunk.share if n and n_own else share)))
    is_rough = min(share, chunk.share) < 0.0  # samples: their own share varies by as much
    chunk.share = share if n else chunk.share
    if is_over or high > (3.0 if is_rough else 1.5) * low:
        # One without rows is of messages that none stands for: the stream paused behind them.
        others, last = [*others, last][: None if n_own else -1], Stratum(chunk.n - n, at_ms, 0)
    chunk.n_offered += n + n_left_out
    chunk.strata = (*others, last._replace(n_offered=last.n_offered + n + n_left_out))


def weights_of(chunk: Chunk) -> NDArray[np.float64] | None:
    """Return for how many messages each row of a chunk stands; None: each for itself alone.

    That is 1/rate of its stratum, at which the rows that were removed since were sampled too.
    """
    strata, n = chunk.strata or (Stratum(0, 0, chunk.n_offered),), chunk.n
    if (known := chunk.weighed)[0] is not strata or known[1] != n:  # another thread may set it too
        # While rows are added the last stratum may be behind, or ahead.
        sizes = np.maximum(np.diff([*(each.first for each in strata), n]), 0)
        n_offered = np.array([each.n_offered for each in strata], np.float64)
        weights = np.maximum(n_offered / np.maximum(sizes, 1), 1.0)
        is_whole = bool((weights[sizes > 0] == 1.0).all())
        known = strata, n, None if is_whole else np.repeat(weights, sizes)
        chunk.weighed = known
    return known[2]


def forget_old_fields(chunks: Sequence[Chunk]) -> None:
    """Let go of what was noted of fields, but in the newest rows, as many as a search looks at."""
    n_newer = 0
    for chunk in reversed(chunks):
        if n_newer > SCANNED_MAX:
            chunk.noted = {}
        n_newer += chunk.n


def located(chunks: Sequence[Chunk], cutoff_ms: int, keys: Keys | None) -> Parts:
    """Return where the rows of some keys, ascending, lie, of those held since `cutoff_ms`.

    None: the rows of all keys.
    """
    parts = []
    for chunk in chunks:
        lowest, behind = chunk.first_since(cutoff_ms), chunk.first_key + chunk.n_committed
        if keys is None:
            at = np.arange(lowest, behind) - chunk.first_key
        else:
            begin, end = np.searchsorted(keys, (lowest, behind))
            at = keys[begin:end] - chunk.first_key
        if len(at):
            parts.append((chunk, at[chunk.alive[at]]))
    return parts


# ---- counts by class, and their series in time ---------------------------------------------------

POINTS_MAX = 60
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_STEPS_S = (
    1, 2, 5, 10, 15, 30,
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 30, 90, 365)),
)  # fmt: skip
_LOOKED_AT = 10_000  # times, to see where most of them lie
_FAR = 4  # times the span of the middle 98 %

SeriesCounts = tuple[int, tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]
Span = tuple[int, int]  # Unix milliseconds; the end is not in it


class _Frame(NamedTuple):
    step_ms: int
    begin: int  # of the first step, in steps
    n_steps: int


class Picked(msgspec.Struct, frozen=True):
    """What is counted of some rows of a chunk, as arrays of one length."""

    labels: NDArray[np.int16]
    truths: NDArray[np.int16]
    probabilities: NDArray[np.float32]
    times_ms: NDArray[np.int64]
    weights: NDArray[np.float64] | None = None  # None: each is 1

    def some(self, at: NDArray[np.bool_] | slice) -> Picked:
        """Return those of a mask, or of a slice."""
        weights = None if self.weights is None else self.weights[at]
        return Picked(
            self.labels[at], self.truths[at], self.probabilities[at], self.times_ms[at], weights
        )


def picked(chunk: Chunk, at: NDArray[np.int64] | slice) -> Picked:
    """Return what is counted of rows, given by their positions in a chunk."""
    own, weights = chunk.columns, weights_of(chunk)
    return Picked(
        own["label"][at], np.maximum(own["truth"][at], own["late"][at]), own["probability"][at],
        chunk.times_ms(at), None if weights is None else weights[at],
    )  # fmt: skip


def whole_steps(span_ms: Span) -> Span:
    """Return the time of the steps that a span touches."""
    step_ms, begin, n_steps = _frame(span_ms)
    return begin * step_ms, (begin + n_steps) * step_ms


def counted(
    parts: Sequence[Picked],
    n_classes: int,
    unsure_below: float,
    *,
    n_max: int,
    newest_only: bool,
    span_ms: Span | None = None,
) -> Counted:
    """Return the counts of some rows; one whose probability is below a bound counts as unsure.

    Rows of a class that is still to join again, after a kill, are left out; so are those outside
    of the steps that a span touches.
    """
    frame = None if span_ms is None else _frame(span_ms)
    if frame is not None:
        parts = [_within(part, frame) for part in parts]
    parts = [_of_classes(part, n_classes) for part in parts]
    parts = [part for part in parts if len(part.labels)]
    counts = np.zeros(n_classes, np.int64)
    for part in parts:
        counts += np.bincount(part.labels, minlength=n_classes)
    step_s, times_ms, series, n_came = _series(parts, n_classes, frame)
    return Counted(
        n=int(counts.sum()), n_max=n_max, newest_only=newest_only, counts=tuple(counts.tolist()),
        confusion=_confusion(parts, n_classes),
        n_unsure=sum(int(np.count_nonzero(p.probabilities < unsure_below)) for p in parts),
        step_s=step_s, times_ms=times_ms, series=series, n_came=n_came,
        weighed=_weighed(parts, n_classes),
    )  # fmt: skip


def _weighed(parts: Sequence[Picked], n_classes: int) -> WeighedCounts | None:
    """Return weighed counts; None if all rows weigh the same."""
    ends = {1.0} if any(part.weights is None for part in parts) else set[float]()
    for weights in [part.weights for part in parts if part.weights is not None]:
        ends |= {float(weights.min()), float(weights.max())}
    if len(ends) < 2:
        return None
    n = n_classes
    table = np.zeros((2, (n + 1) * n))  # its first row is of those without a label
    for part in parts:
        at = part.truths.astype(np.int64)
        at += 1
        at *= n
        at += part.labels
        table += _sums(at, part.weights, len(table[0]))
    sums, squares = table.reshape(2, n + 1, n)
    confusion = _even(sums, squares.sum(axis=1, keepdims=True))[1:]
    counts = _even(sums.sum(axis=0, keepdims=True), squares.sum(keepdims=True))
    return WeighedCounts(tuple(counts[0].tolist()), tuple(map(tuple, confusion.tolist())))


def _sums(at: NDArray[Any], weights: NDArray[np.float64] | None, n: int) -> NDArray[np.float64]:
    """Return the sums of the weights of the rows in each of `n` cells, and of their squares."""
    if weights is None:
        return np.tile(np.bincount(at, minlength=n).astype(np.float64), (2, 1))
    return np.stack([np.bincount(at, own, n) for own in (weights, weights * weights)])


def _even(sums: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale sums of weights, row by row, to the size of an even sample that says as much.

    >>> _even(np.array([[9.0, 1.0]]), np.array([[10.0]])).tolist()
    [[9.0, 1.0]]
    """
    total = sums.sum(axis=1, keepdims=True)
    even: NDArray[np.float64] = sums * np.divide(
        total, squares, out=np.ones_like(total), where=squares > 0.0
    )
    return even


def _of_classes(part: Picked, n_classes: int) -> Picked:
    """Return the rows whose classes are all among the first `n_classes`."""
    if max(part.labels.max(initial=0), part.truths.max(initial=0)) < n_classes:
        return part
    return part.some((part.labels < n_classes) & (part.truths < n_classes))


def _confusion(parts: Sequence[Picked], n_classes: int) -> tuple[tuple[int, ...], ...]:
    """Return how rows with a label were judged: row the label, column the prediction."""
    table = np.zeros(n_classes * n_classes, np.int64)
    for part in parts:
        known = part.truths >= 0
        at = part.truths[known].astype(np.int64) * n_classes + part.labels[known]
        table += np.bincount(at, minlength=len(table))
    return tuple(map(tuple, table.reshape(n_classes, n_classes).tolist()))


def _frame(span_ms: Span) -> _Frame:
    """Return the steps of a span: the length of one, the number of the first, and how many."""
    first, end = span_ms
    step_ms = _step_s((end - 1 - first) / 1000) * 1000
    begin = first // step_ms
    return _Frame(step_ms, begin, (end - 1) // step_ms - begin + 1)


def _within(part: Picked, frame: _Frame) -> Picked:
    """Return the rows whose times lie in some steps."""
    first, end = ((frame.begin + n) * frame.step_ms for n in (0, frame.n_steps))
    near = (part.times_ms >= first) & (part.times_ms < end)
    return part if near.all() else part.some(near)


def _series(parts: Sequence[Picked], n_classes: int, frame: _Frame | None) -> SeriesCounts:
    """Return the length of a step, when each begins, counts by class of each, and `n_came`."""
    if not parts and frame is None:
        return _STEPS_S[0], (), (), ()
    if frame is None:
        first, last = _span(parts)
        frame = _frame((first, last + 1))
        parts = [_within(part, frame) for part in parts]
    step_ms, begin, n_steps = frame
    table = np.zeros((2, n_steps * n_classes))
    for part in parts:
        steps = part.times_ms // step_ms - begin
        table += _sums(steps * n_classes + part.labels, part.weights, n_steps * n_classes)
    sums, squares = table.reshape(2, n_steps, n_classes)
    there = np.flatnonzero(sums.any(axis=1))
    counts = np.rint(_even(sums, squares.sum(axis=1, keepdims=True))[there]).astype(np.int64)
    n_came = np.rint(sums[there].sum(axis=1)).astype(np.int64)
    is_whole = all(part.weights is None for part in parts)
    return (
        step_ms // 1000,
        tuple(((begin + there) * step_ms).tolist()),
        tuple(map(tuple, counts.tolist())),
        () if is_whole else tuple(n_came.tolist()),
    )


def _span(parts: Sequence[Picked]) -> tuple[int, int]:
    """Return the first and last time to show: a single wrong clock must not make a line a dot."""
    every = 1 + sum(len(part.labels) for part in parts) // _LOOKED_AT
    some = [part.some(slice(None, None, every)) for part in parts]
    times_ms = np.concatenate([part.times_ms for part in some])
    own = [np.ones(len(part.labels)) if part.weights is None else part.weights for part in some]
    weights = np.concatenate(own)
    ends = np.quantile(times_ms, (0.01, 0.99), weights=weights, method="inverted_cdf")
    low, high = map(int, ends)
    room = _FAR * (high - low) + 1000 * POINTS_MAX
    near = [p.times_ms[(p.times_ms >= low - room) & (p.times_ms <= high + room)] for p in parts]
    lows, highs = (int(t.min(initial=low)) for t in near), (int(t.max(initial=high)) for t in near)
    return min(lows), max(highs)


def _step_s(span_s: float) -> int:
    """Return the smallest round number of seconds that makes few enough steps of a span."""
    for step_s in _STEPS_S:
        if span_s / step_s < POINTS_MAX - 1:
            return step_s
    years = int(span_s / (_STEPS_S[-1] * (POINTS_MAX - 1))) + 1
    return _STEPS_S[-1] * years
