"""Which of the stored rows match a query, chunk by chunk: words, what memory knows, then fields.

Words are looked up in a chunk's index. What is kept in memory of each row (language, class,
confidence, time) is compared there. Fields of the model stand in the rows alone; so for a condition
on one the rows that are left are looked at, newest first, and no more than `SCANNED_MAX` of them
for one question: the answer says where it ended, and the next question can go on from there. What
comes is noted in memory (`chunks.FieldValues`) for as many rows; what is read of older ones, or
after a start, stays there for a few fields, so the next question reads no more than what came
since. If time runs out amid the reading, the answer ends there as well.

Matches are also counted over time, by when they came. For a single word what is stored is joined
with what `history` counted as the store let go of it: what is in the one is not in the other.
`pieces` cuts a text at what a query marks in it.
"""

# ruff: noqa: S608 -- what is put into statements here are numbers and names of our own tables

from __future__ import annotations

import contextlib
import itertools
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.search import database
from consumers.search.chunks import SCANNED_MAX, Chunk, Keys, RowFilter, read_fields
from consumers.search.database import CHOSEN, TOKENIZER, Contents
from consumers.search.history import (
    POINTS_MAX,
    STEPS_S,
    WORD_CHARS_MAX,
    came_again,
    steps_of,
    word_steps_max,
)
from consumers.search.query_syntax import (
    MARKS,
    SIGN,
    Atom,
    FieldCondition,
    Query,
    SlowQueryError,
    TimeLimit,
    TokenKind,
    expression,
    folded,
    plain_emoji,
    single_word,
)
from consumers.search.rows import TEXT_MAX

NewestFirst: TypeAlias = Iterator[tuple[Chunk, int]]  # chunks, each with its lowest key to show
_AT_ONCE = 5_000
_FINE_POINTS_MAX = 1_500  # as many as a step that nobody chose may have
_COLUMN_OF = {"lang": "lang_code", "label": "label", "confidence": "probability"}


def newest_first(chunks: Sequence[Chunk], limit: TimeLimit, cutoff_ms: int) -> NewestFirst:
    """Yield chunks, each with the lowest key to show, for as long as there is time."""
    for chunk in chunks:
        limit.check()
        if chunk.newest_ms >= cutoff_ms:
            yield chunk, chunk.first_since(cutoff_ms)


def _key_behind(db: sqlite3.Connection, chunk: Chunk) -> int:
    """Return the key behind a chunk's rows as `db` sees it; what comes meanwhile is not there."""
    (last,) = db.execute(f"SELECT max(key) FROM rows{chunk.number}").fetchone()
    return chunk.first_key if last is None else int(last) + 1


class Scan(msgspec.Struct):
    """How far messages are looked through for conditions, newest first; it goes on downwards."""

    n_missing: int  # messages that are still to be found
    below: int = database.KEY_LAST  # the keys that are still to be looked at
    n_left: int = SCANNED_MAX  # rows that may still be read
    is_slow: bool = False  # whether no time was left: the same question gets farther next time
    found_from: int = database.KEY_LAST  # the lowest key of those found

    @property
    def is_cut(self) -> bool:
        """Whether it ended because enough rows were read, or no time was left."""
        return self.n_left <= 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be looked at."""
        return self.n_missing <= 0 or self.is_cut


class Matcher(msgspec.Struct, frozen=True):
    """Finds the keys of the rows that match `query`.

    `rows` are the conditions that memory answers, `of_fields` those on fields of the model.
    """

    query: Query
    rows: RowFilter
    of_fields: tuple[FieldCondition, ...]

    @classmethod
    def of(
        cls,
        query: Query,
        contents: Contents,
        classes: Sequence[str],
        lang: str | None = None,
        rows: RowFilter | None = None,
    ) -> Matcher:
        """Return the one for a query, in a language, of rows that meet further conditions."""
        in_memory = []
        for each in query.conditions:
            if each.is_built_in:
                value: float = each.number or 0.0
                if each.name == "lang":
                    value = contents.langs.codes.get(each.value, -1)
                elif each.name == "label":
                    value = classes.index(each.value)
                in_memory.append((_COLUMN_OF[each.name], each.compare, value, each.negated))
        of_fields = tuple(each for each in query.conditions if not each.is_built_in)
        code = contents.known_lang(lang)
        rows = replace(rows or RowFilter(), lang_code=code, compared=tuple(in_memory))
        return cls(query, rows, of_fields)

    def keys(self, db: sqlite3.Connection, chunk: Chunk, lowest: int) -> Keys:
        """Return all keys of a chunk that match, from the lowest one on, ascending."""
        keys = self._before_fields(db, chunk, lowest)
        return self._with_fields(db, chunk, keys)

    def newest(
        self, db: sqlite3.Connection, newest_first: NewestFirst, scan: Scan
    ) -> Iterator[tuple[Chunk, Keys]]:
        """Yield keys that match, ascending, of chunk after chunk, as far as a scan goes."""
        try:
            for chunk, lowest in newest_first:
                if chunk.first_key >= scan.below:
                    continue
                keys = self._before_fields(db, chunk, lowest)
                keys = keys[keys < scan.below]
                while len(keys) and not scan.is_over:
                    n = min(_AT_ONCE, scan.n_left) if self.of_fields else len(keys)
                    keys, some = keys[:-n], keys[-n:]
                    scan.below = int(some[0])
                    scan.n_left -= len(some) if self.of_fields else 0
                    some = self._with_fields(db, chunk, some)[-scan.n_missing :]
                    scan.n_missing -= len(some)
                    scan.found_from = int(some[0]) if len(some) else scan.found_from
                    yield chunk, some
                if scan.is_over:
                    return
        except SlowQueryError:
            if not self.of_fields or scan.below == database.KEY_LAST:
                raise
            scan.n_left, scan.is_slow = 0, True  # what was read stays in memory

    def _before_fields(self, db: sqlite3.Connection, chunk: Chunk, lowest: int) -> Keys:
        if self.query.terms:
            match = expression(self.query, self.rows.lang_code)
            found = matching_keys(db, chunk.number, match, lowest, chunk.capacity)
            keys = np.sort(found)
        else:
            keys = np.arange(lowest, _key_behind(db, chunk))
        at = keys - chunk.first_key
        return self.rows.passed(chunk, at[chunk.alive[at]]) + chunk.first_key

    def _with_fields(self, db: sqlite3.Connection, chunk: Chunk, keys: Keys) -> Keys:
        if not self.of_fields:
            return keys
        found = [
            self._meeting(db, chunk, keys[begin : begin + _AT_ONCE])
            for begin in range(0, len(keys), _AT_ONCE)
        ]
        return np.concatenate([keys[:0], *found])

    def _meeting(self, db: sqlite3.Connection, chunk: Chunk, keys: Keys) -> Keys:
        """Return those of some keys that meet the conditions on fields, ascending."""
        at = keys - chunk.first_key
        columns = {each.name: chunk.field_values(each.name) for each in self.of_fields}
        is_unread = np.any([own.unread(at) for own in columns.values()], axis=0)
        if is_unread.any():
            read_fields(db, chunk, columns, keys[is_unread])
        is_met = np.all([columns[each.name].met_by(each, at) for each in self.of_fields], axis=0)
        # Rows that are gone from the file were not read.
        is_gone = np.any([own.unread(at) for own in columns.values()], axis=0)
        is_unclear = np.any([own.unclear(at) for own in columns.values()], axis=0)
        met: Keys = keys[is_met & ~is_gone & ~is_unclear]
        if not is_unclear.any():
            return met
        condition = " AND ".join([f"({each.sql()})" for each in self.of_fields])
        asked = keys[is_unclear].tolist()
        answered = keys_where(db, chunk.number, condition, asked)
        return np.sort(np.concatenate([met, answered]))


def matching_keys(db: sqlite3.Connection, number: int, match: str, lowest: int, n_max: int) -> Keys:
    """Return the keys from `lowest` on of the newest rows that match, descending."""
    (found,) = db.execute(
        f"SELECT group_concat(rowid, ' ') FROM (SELECT rowid FROM words{number}"
        f" WHERE words{number} MATCH ? AND rowid >= ? ORDER BY rowid DESC LIMIT ?)",
        (match, lowest, n_max),
    ).fetchone()
    return np.fromstring(found or "", dtype=np.int64, sep=" ")


def newest_keys(
    db: sqlite3.Connection, newest_first: NewestFirst, match: str, n_max: int
) -> Iterator[Keys]:
    """Yield the keys of the newest rows that match, `n_max` at most; ascending in each chunk."""
    for chunk, lowest in newest_first:
        if n_max <= 0:
            return
        keys = matching_keys(db, chunk.number, match, lowest, n_max)
        alive = chunk.alive[keys - chunk.first_key]
        if len(keys) == n_max and not alive.all():  # the file still has rows that are to go
            keys = matching_keys(db, chunk.number, match, lowest, chunk.capacity)
            alive = chunk.alive[keys - chunk.first_key]
        keys = np.sort(keys[alive][:n_max])
        n_max -= len(keys)
        yield keys


def keys_where(db: sqlite3.Connection, number: int, condition: str, keys: Sequence[int]) -> Keys:
    """Return those of some keys whose rows meet a condition, given as SQL; ascending."""
    (found,) = db.execute(
        f"SELECT group_concat(key, ' ') FROM rows{number} WHERE {CHOSEN} AND {condition}",
        (msgspec.json.encode(keys).decode(),),
    ).fetchone()
    return np.sort(np.fromstring(found or "", dtype=np.int64, sep=" "))


class StoredText(NamedTuple):
    """What a message says, as it is searched, and the number of the class it was judged to be.

    `fields` are those that the model reads; None if they were not read, or there is a text alone.
    """

    key: int
    label: int
    text: str
    fields: dict[str, Any] | None = None


def texts_of(
    db: sqlite3.Connection, number: int, keys: Sequence[int], more: str = ""
) -> list[StoredText]:
    """Return the texts of some rows, whose other columns may be far longer; `more` is SQL."""
    (found,) = db.execute(
        f"SELECT json_group_array(json_array(key, label, text{more}))"
        f" FROM rows{number} WHERE {CHOSEN}",
        (msgspec.json.encode(keys).decode(),),
    ).fetchone()
    return msgspec.json.decode(found, type=list[StoredText])


_CUT = f"iif(type = 'text', substr(value, 1, {TEXT_MAX}), value)"
_LONG = f"(SELECT json_group_object(key, {_CUT}) FROM json_each(example))"
_FIELDS = f", json(iif(length(example) <= {TEXT_MAX}, example, {_LONG}))"
texts_with_fields = partial(texts_of, more=_FIELDS)  # no text of a field is longer than `TEXT_MAX`


# ---- what is marked ------------------------------------------------------------------------------


def pieces(highlighted: str, query: Query) -> tuple[str, ...]:
    """Return a text in pieces, of which every second one is of the query's words.

    In it the words that FTS5 found stand between `OPEN` and `CLOSE`. Tags, names, emoji and CJK
    characters it finds in another column, so these are looked up here.
    """
    spans: list[tuple[int, int]] = []
    plain: list[str] = []
    at = 0
    for k, piece in enumerate(MARKS.split(highlighted)):
        if k % 2:
            spans.append((at, at + len(piece)))
        plain.append(piece)
        at += len(piece)
    text = "".join(plain)
    signs = [
        atom
        for term in query.terms
        if not term.negated
        for atom in term.atoms
        if atom.kind is not TokenKind.WORDS
    ]
    if signs:
        spans = _joined(spans + [span for atom in signs for span in _spans(text, atom)])
    cut = [0, *(bound for span in spans for bound in span), len(text)]
    return tuple(text[begin:end] for begin, end in itertools.pairwise(cut))


def _spans(text: str, atom: Atom) -> list[tuple[int, int]]:
    """Return where a sign stands in a text."""
    if atom.kind is TokenKind.CJK:
        return [match.span() for match in re.finditer(re.escape(atom.value), text)]
    if atom.kind is TokenKind.EMOJI:
        between = "[\ufe0f\u200d\U0001f3fb-\U0001f3ff]*"
        pattern = between.join(map(re.escape, plain_emoji(atom.value))) + between
        return [match.span() for match in re.finditer(pattern, text)]
    wanted = folded(atom.value)
    found = []
    for match in SIGN.finditer(text):
        if match.lastgroup == atom.kind.name:
            name = folded(match[atom.kind.name])
            if name == wanted or (atom.prefix and name.startswith(wanted)):
                found.append(match.span())
    return found


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in order, those that overlap made one."""
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


# ---- over time -----------------------------------------------------------------------------------


class CountsOverTime(msgspec.Struct, frozen=True):
    """Counts over time: `counts[i, k]` messages of class k came in the step from `begins_s[i]`."""

    step_s: int
    kept_from_s: int | None  # before it steps of this length are no longer known; None: all are
    begins_s: Sequence[int]  # ascending, of the steps that have messages
    counts: Sequence[Sequence[int]]


def read(
    db: sqlite3.Connection,
    span_s: tuple[int, int],
    step: str | None,
    n_classes: int,
    steps_max: Mapping[int, int],
) -> CountsOverTime:
    """Return the steps that begin in [span_s[0], span_s[1]), the first of them rounded down."""
    begin_s, end_s = span_s
    step_s, kept_from_s = chosen_step(
        span_s, step, partial(bounded_from_s, db, "history", steps_max)
    )
    rows = db.execute(
        "SELECT begins_s, counts FROM history WHERE step_s = ? AND begins_s >= ? AND begins_s < ?"
        " ORDER BY begins_s DESC LIMIT ?",
        (step_s, begin_s // step_s * step_s, end_s, POINTS_MAX),
    ).fetchall()
    counts = np.zeros((len(rows), n_classes), np.int64)
    for k, (_, value) in enumerate(reversed(rows)):
        own = np.frombuffer(value, "<i8")[:n_classes]  # further classes are still to join again
        counts[k, : len(own)] = own
    begins_s = [int(begins_s) for begins_s, _ in reversed(rows)]
    return CountsOverTime(step_s, kept_from_s, begins_s, counts.tolist())


def chosen_step(
    span_s: tuple[int, int], step: str | None, kept_from_s: Callable[[int], int | None]
) -> tuple[int, int | None]:
    """Return the length of a step in seconds, and since when such steps are known; None: all are.

    Without a `step` it is the finest that is known since the span began, and makes few enough.
    """
    begin_s, end_s = span_s
    for step_s in STEPS_S.values() if step is None else (STEPS_S[step],):
        since_s = kept_from_s(step_s)
        is_known = since_s is None or since_s <= begin_s
        if is_known and (end_s - begin_s) / step_s <= _FINE_POINTS_MAX:
            break
    return step_s, since_s


def bounded_from_s(
    db: sqlite3.Connection, table: str, steps_max: Mapping[int, int], step_s: int
) -> int | None:
    """Return when the oldest step of a length begins, unless there was room for all; else None.

    There was none, under whatever bound, if earlier steps have gone.
    """
    n, oldest_s, has_gone = db.execute(
        "SELECT count(*), min(begins_s),"
        " EXISTS (SELECT 1 FROM forgotten WHERE name = ?1 AND step_s = ?2)"
        f" FROM {table} WHERE step_s = ?2",
        (table, step_s),
    ).fetchone()
    return oldest_s if has_gone or n >= steps_max[step_s] else None


class MatchesOverTime(CountsOverTime, frozen=True):
    """Counts of the messages that match, by when they came, as far as they are known.

    Of step i `n_of[i]` messages were looked through, of `n_all[i]` that came; so many are stored,
    or were. `at_most[i]` messages match, whatever class; None: those that `counts` says.
    """

    is_word: bool  # whether it reaches back beyond what is stored, as a single word does
    stored_from_s: int | None  # since when messages are stored; None: since the first
    n_of: Sequence[int]
    n_all: Sequence[int]
    at_most: Sequence[int | None]


def indexed_word(text: str) -> str | None:
    """Return a word as it stands in the index; None if it is not one word there.

    >>> indexed_word("Óbama"), indexed_word("don't")
    ('obama', None)
    """
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute(f"CREATE VIRTUAL TABLE w USING fts5(text, content='', tokenize={TOKENIZER})")
        db.execute("CREATE VIRTUAL TABLE found USING fts5vocab(w, instance)")
        db.execute("INSERT INTO w (rowid, text) VALUES (1, ?)", (text,))
        words = db.execute("SELECT term FROM found").fetchall()
    is_one = len(words) == 1 and len(words[0][0]) <= WORD_CHARS_MAX
    return str(words[0][0]) if is_one else None


class StepCount(msgspec.Struct):
    """How many messages of a step match."""

    counts: NDArray[np.int64]  # by class
    n_of: int  # messages that were looked through
    missed_max: int = 0  # messages that match and `counts` may lack

    def add(self, other: StepCount) -> None:
        """Add the counts of other messages."""
        self.counts = self.counts + other.counts
        self.n_of += other.n_of
        self.missed_max += other.missed_max


def read_word(
    db: sqlite3.Connection,
    word: str,
    span_s: tuple[int, int],
    step_s: int,
    n_classes: int,
    limit: TimeLimit,
) -> dict[int, StepCount]:
    """Return counts of a word of messages that are no longer stored, of a span's newest steps."""
    rows = db.execute(
        "SELECT begins_s, of, unlisted_max, words, counts FROM word_history WHERE step_s = ?"
        " AND begins_s >= ? AND begins_s < ? ORDER BY begins_s DESC LIMIT ?",
        (step_s, *span_s, POINTS_MAX),
    )
    found = {}
    for begins_s, of, unlisted_max, words, table in rows:
        limit.check()  # a step may have half a megabyte
        own_classes, n_of = len(of) // 8, int(np.frombuffer(of, "<i8").sum())
        counts, missed_max = np.zeros(n_classes, np.int64), unlisted_max
        at = words.find(f"\n{word}\n")
        if at >= 0:
            n = own_classes + 1
            own = np.frombuffer(table, "<u4", n, 4 * n * words.count("\n", 0, at))
            n = min(n_classes, own_classes)
            counts[:n], missed_max = own[:n], int(own[-1])
        found[begins_s] = StepCount(counts, n_of, min(missed_max, n_of - int(counts.sum())))
    return found


class _Stored:
    """Counts of stored messages by the steps of a time, in Unix milliseconds."""

    def __init__(
        self, db: sqlite3.Connection, span_ms: tuple[int, int], step_s: int, n_classes: int
    ) -> None:
        self._db, self._span_ms, self._step_s, self._n_classes = db, span_ms, step_s, n_classes
        self._seen: list[Chunk] = []
        self.counts: dict[int, StepCount] = {}

    def of_span(self, newest_first: NewestFirst) -> NewestFirst:
        """Yield the chunks that have messages of the time."""
        for chunk, lowest in newest_first:
            self._seen.append(chunk)
            if chunk.newest_ms >= self._span_ms[0] and chunk.oldest_ms < self._span_ms[1]:
                yield chunk, lowest

    def from_ms(self, scan: Scan) -> int | None:
        """Return since when messages were looked through; None: all that ever came."""
        if scan.is_cut:
            chunk = next(chunk for chunk in self._seen if chunk.first_key <= scan.below)
            return int(chunk.columns["arrived_ms"][scan.below - chunk.first_key])
        if not self._seen:
            return self._span_ms[1]
        # The oldest may be of the future, if the clock was put back; of one whose rows are all gone
        # it is not known after a restart.
        known = [each.oldest_ms for each in self._seen if each.oldest_ms]
        return None if self._seen[-1].number == 1 else min(known, default=self._span_ms[1])

    def count(
        self,
        found: Sequence[tuple[Chunk, Keys]],
        scan: Scan,
        is_left_out: Callable[[Chunk, int], NDArray[np.bool_]] | None,
    ) -> None:
        """Count what matches, by its keys, and what was looked through for it.

        `is_left_out` says which of the first rows of a chunk do not count.
        """
        for chunk in self._seen:
            n_rows = _key_behind(self._db, chunk) - chunk.first_key
            arrived_ms = chunk.columns["arrived_ms"][:n_rows]
            begin, end = np.searchsorted(arrived_ms, self._span_ms).tolist()
            if scan.is_cut:
                begin = max(begin, scan.below - chunk.first_key)
            if begin >= end:
                continue
            alive = chunk.alive
            if is_left_out is not None:
                alive = alive[:n_rows] & ~is_left_out(chunk, n_rows)
            begins_s, step = steps_of(arrived_ms[begin:end], self._step_s)
            own = [keys for other, keys in found if other is chunk]
            at = np.concatenate([np.zeros(0, np.int64), *own]) - chunk.first_key
            at = at[(at >= begin) & (at < end)]
            at = at[alive[at]]
            labels = chunk.columns["label"][at].astype(np.int64)
            at, labels = at[labels < self._n_classes], labels[labels < self._n_classes]
            cells = step[at - begin] * self._n_classes + labels
            counts = np.bincount(cells, minlength=len(begins_s) * self._n_classes)
            counts = counts.reshape(-1, self._n_classes)
            n_of = np.bincount(step[alive[begin:end]], minlength=len(begins_s))
            for at_s, each, n in zip(begins_s.tolist(), counts, n_of.tolist(), strict=True):
                none = StepCount(np.zeros(self._n_classes, np.int64), 0)
                self.counts.setdefault(at_s, none).add(StepCount(each, n))


def over_time(
    db: sqlite3.Connection,
    newest_first: NewestFirst,
    matcher: Matcher,
    span_s: tuple[int, int],
    step: str | None,
    classes: Sequence[str],
    steps_max: Mapping[int, int],
    limit: TimeLimit,
) -> MatchesOverTime:
    """Return counts of what matches by the steps that begin in a span, as `read` does.

    `newest_first` are all chunks, with what is too old to be shown.
    """
    classes = tuple(classes)  # as they are now: one may join meanwhile
    since = db.execute("SELECT arrived_ms FROM words_since").fetchone()
    is_one = since is not None and matcher.rows.lang_code is None
    asked = single_word(matcher.query) if is_one else None
    word = None if asked is None else indexed_word(asked)
    kept = partial(bounded_from_s, db, "word_history", word_steps_max(steps_max))
    step_s, kept_from_s = chosen_step(span_s, step, kept if word else lambda _: None)
    first_s, end_s = span_s[0] // step_s * step_s, -(-span_s[1] // step_s) * step_s
    stored = _Stored(db, (1000 * first_s, 1000 * end_s), step_s, len(classes))
    scan = Scan(database.KEY_LAST)
    matching = list(matcher.newest(db, stored.of_span(newest_first), scan))
    stored.count(matching, scan, partial(came_again, db) if word else None)
    stored_from_s = _whole_s(stored.from_ms(scan))
    found = stored.counts
    if word is None:
        kept_from_s = stored_from_s
    else:
        is_asked = np.array([matcher.query.admits({"label": name}) for name in classes], np.int64)
        lost = read_word(db, word, (first_s, end_s), step_s, len(classes), limit)
        for at_s, own in lost.items():
            own.counts *= is_asked
            own.add(found.get(at_s, StepCount(0 * is_asked, 0)))
            found[at_s] = own
        kept_from_s = max(kept_from_s or 0, _whole_s(since[0]) or 0) or None
    name = next(name for name, each in STEPS_S.items() if each == step_s)
    everything = read(db, (first_s, end_s), name, len(classes), steps_max)
    n_all = dict(zip(everything.begins_s, map(sum, everything.counts), strict=True))
    begins_s = [at_s for at_s in sorted(found) if found[at_s].n_of][-POINTS_MAX:]
    steps = [found[at_s] for at_s in begins_s]
    totals = [int(each.counts.sum()) for each in steps]
    return MatchesOverTime(
        step_s,
        kept_from_s,
        begins_s,
        [each.counts.tolist() for each in steps],
        is_word=word is not None,
        stored_from_s=stored_from_s,
        n_of=[each.n_of for each in steps],
        # Nothing was counted while the history was off.
        n_all=[max(found[at_s].n_of, n_all.get(at_s, 0)) for at_s in begins_s],
        at_most=[
            n + each.missed_max if each.missed_max else None
            for n, each in zip(totals, steps, strict=True)
        ],
    )


def _whole_s(time_ms: int | None) -> int | None:
    return None if time_ms is None else -(-time_ms // 1000)
