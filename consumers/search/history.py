"""History: how many messages of each class came by minute, hour and day, all of them counted.

- What: every message that was judged, by its likeliest class, whether the store samples it or not.
- When: the minute in which it came, by this computer's clock; hours and days are those of UTC.
- Where: beside the newest messages in their file, one row a step, of one number a class.
- How much: the newest steps that have messages, so many of each length; no text, no id. If the
  clock ran far ahead, steps that are still to come leave before the oldest do.
- Exactly once: the highest offset counted of each partition is written in the same transaction,
  and what comes again after a restart lies below it. Labelled messages and others are judged on
  different threads, and have an offset each. A checkpoint waits for the counts; only if that takes
  too long may a kill lose some. A recreated topic counts once its offsets pass the old ones, and
  what came of it before, though stored, is not taken out of the counts either.
- A deletion takes a message out of its counts if it is held, and once, however often it comes:
  the places of the newest of these are remembered. Messages not held stay counted, as a number. So
  do those that had been counted before the file was opened, and were stored after it: what is
  stored says when they came again, and nothing says when, and as what, they were counted.

Words are counted when the store lets go of a chunk of messages, in the same transaction, and the
highest offset that left is noted for each partition. A message at or below that offset may come
again. It is stored and shown, for its topic may be a recreated one, but it does not count again,
and its deletion takes nothing out of the counts. So each message counts once, whatever kill comes.
For each step of the chunk's messages the file keeps

- how many messages were looked through, by class: those that the store held, which may be a sample;
- the most frequent words, each with its messages by class. A word that fewer than five messages of
  a chunk and step hold is left out, as rare words may name people;
- how many messages can hold a word that is not listed, at most. Chunks cut steps: a word that is
  listed for one chunk and not for another has a bound of its own.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import pairwise, product
from typing import Any, TypeAlias

import msgspec
import numpy as np
import structlog
from msgspec import field
from numpy.typing import NDArray

from consumers.messages import Partition
from consumers.search.chunks import Chunk

log = structlog.get_logger(__name__)

STEPS_S = {"minute": 60, "hour": 3_600, "day": 86_400}
_STEP_TABLES = ("history", "word_history")
POINTS_MAX = 3_000  # of one answer
_TAKEN_OUT_MAX = 50_000  # removed messages that are remembered, as they may come again
_COUNTED_BEFORE_MAX = 50_000  # starts, times partitions, that are remembered while rows are held
WORD_MINUTES_MAX = 1_440  # steps of a minute that have words
WORD_MESSAGES_MIN = 5  # of a chunk and step; a word of fewer is not kept
WORD_CHARS_MAX = 40  # of what is longer nothing is kept
# The newest step, which may go on with the next chunk, has so many times as many words.
_OPEN_TIMES = 4
_STEP_CELLS_MAX = 100_000  # words of a step times classes: with more classes fewer words are kept
_CHUNK_CELLS_MAX = 20_000_000  # words of a chunk times classes and steps: its drop stays short
# Words are counted in blocks, so that the interpreter's lock is never held for long.
_BLOCK_CHARS = 100_000
_BLOCK_CELLS = 200_000
Stretch: TypeAlias = tuple[Partition, bool]  # a partition's messages with a label, or those without
Longs: TypeAlias = NDArray[np.int64]  # by class
# Which of some rows were not offered in a run before, and how far stretches are with these.
Noted: TypeAlias = tuple[NDArray[np.bool_] | slice, dict[Stretch, int]]


class Uncounted(msgspec.Struct):
    """Counts that are not yet in the file, and how far each partition was counted for them."""

    by_minute: dict[int, Longs] = field(default_factory=dict)  # its beginning in Unix seconds
    highest: dict[Stretch, int] = field(default_factory=dict)
    now_s: int = 0  # the minute of what was counted last

    def __bool__(self) -> bool:
        return bool(self.by_minute or self.highest)


# ---- in the file ---------------------------------------------------------------------------------


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables that are there once, unless they are."""
    db.executescript(
        """
        CREATE TABLE IF NOT EXISTS history (step_s INTEGER, begins_s INTEGER, counts BLOB,
          PRIMARY KEY (step_s, begins_s)) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS counted_since (key INTEGER);
        CREATE TABLE IF NOT EXISTS taken_out (place INTEGER, offset INTEGER, UNIQUE(place, offset));
        CREATE TABLE IF NOT EXISTS word_history (step_s INTEGER, begins_s INTEGER, of BLOB,
          unlisted_max INTEGER, words TEXT, counts BLOB, PRIMARY KEY (step_s, begins_s));
        CREATE TABLE IF NOT EXISTS words_since (arrived_ms INTEGER);
        CREATE TABLE IF NOT EXISTS counted (place INTEGER, labelled INTEGER, offset INTEGER,
          PRIMARY KEY (place, labelled)) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS offered (place INTEGER, labelled INTEGER, offset INTEGER,
          PRIMARY KEY (place, labelled)) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS left_offsets (place INTEGER, labelled INTEGER, offset INTEGER,
          PRIMARY KEY (place, labelled)) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS left_chunks (one INTEGER PRIMARY KEY, next_key INTEGER,
          next_number INTEGER, word_bytes INTEGER);
        CREATE TABLE IF NOT EXISTS begun_again (place INTEGER, labelled INTEGER, key INTEGER,
          offset INTEGER, PRIMARY KEY (place, labelled, key)) WITHOUT ROWID;
        CREATE TABLE IF NOT EXISTS counted_before (place INTEGER, labelled INTEGER, key INTEGER,
          offset INTEGER, PRIMARY KEY (place, labelled, key));
        CREATE TABLE IF NOT EXISTS forgotten (name TEXT, step_s INTEGER, UNIQUE (name, step_s));
        """
    )
    # From a file that had no such table all messages may have left.
    db.execute(
        "INSERT OR IGNORE INTO left_chunks"
        " SELECT 1, ifnull((SELECT max(key) FROM counted_since), 1),"
        " 1 + EXISTS (SELECT 1 FROM history),"
        " ifnull(sum(length(of) + length(CAST(words AS BLOB)) + length(counts)), 0)"
        " FROM word_history WHERE NOT EXISTS (SELECT 1 FROM left_chunks)"
    )
    # Nor did it note which steps have gone; the longer ones tell.
    for name, (step_s, longer_s) in product(_STEP_TABLES, pairwise(STEPS_S.values())):
        oldest_s = f"(SELECT min(begins_s) FROM {name} WHERE step_s = ?)"  # noqa: S608 -- of ours
        db.execute(
            f"INSERT OR IGNORE INTO forgotten SELECT ?, ? WHERE {oldest_s} / ? * ? > {oldest_s}",
            (name, step_s, step_s, longer_s, longer_s, longer_s),
        )


def counted_since(db: sqlite3.Connection, next_key: int, *, is_on: bool) -> int:
    """Return the key from which on rows of the file have been counted, without a gap.

    Note as well how far each stretch was counted before the rows from `next_key` on: what comes
    again of it does not count again.
    """
    db.execute(
        "INSERT OR REPLACE INTO counted_before SELECT place, labelled, ?, offset FROM counted own"
        " WHERE NOT EXISTS (SELECT 1 FROM counted_before AS noted WHERE noted.place = own.place"
        " AND noted.labelled = own.labelled AND noted.offset >= own.offset)",
        (next_key,),
    )
    db.execute(
        "DELETE FROM counted_before WHERE EXISTS (SELECT 1 FROM left_offsets AS gone"
        " WHERE gone.place = counted_before.place AND gone.labelled = counted_before.labelled"
        " AND gone.offset >= counted_before.offset)"
        " OR rowid <= (SELECT max(rowid) FROM counted_before) - ?",
        (_COUNTED_BEFORE_MAX,),
    )
    if not is_on:
        db.execute("DELETE FROM counted_since")
        return next_key
    found = db.execute("SELECT key FROM counted_since").fetchone()
    if found is None:
        db.execute("INSERT INTO counted_since VALUES (?)", (next_key,))
    return next_key if found is None else int(found[0])


def counted(
    db: sqlite3.Connection, partitions: Sequence[Partition], table: str = "counted"
) -> dict[Stretch, int]:
    """Return how far each of the file's partitions was counted, or has come in another table."""
    rows = db.execute(f"SELECT place, labelled, offset FROM {table}").fetchall()  # noqa: S608 -- of ours
    return {(partitions[place], bool(labelled)): offset for place, labelled, offset in rows}


def write(
    db: sqlite3.Connection,
    new: Uncounted,
    place_code: Callable[[Partition], int],
    steps_max: Mapping[int, int],
) -> None:
    """Count messages in the file; of each length of a step, by seconds, so many are kept."""
    for minute_s, counts in new.by_minute.items():
        for step_s, n_max in steps_max.items():
            if _change(db, step_s, minute_s // step_s * step_s, counts):
                _forget_oldest(db, "history", step_s, n_max, new.now_s)
    db.executemany(
        "INSERT OR REPLACE INTO counted VALUES (?, ?, ?)",
        [(place_code(part), labelled, at) for (part, labelled), at in new.highest.items()],
    )


def note_offered(
    db: sqlite3.Connection, offered: Mapping[Stretch, int], place_code: Callable[[Partition], int]
) -> None:
    """Note how far stretches were offered: the stored rows stand for the messages up to there."""
    own = [(place_code(part), labelled, at) for (part, labelled), at in offered.items()]
    db.executemany("INSERT OR REPLACE INTO offered VALUES (?, ?, ?)", own)


def next_chunk(db: sqlite3.Connection) -> tuple[int, int]:
    """Return the lowest key and number of a chunk above those of all that have left the store."""
    key, number = db.execute("SELECT next_key, next_number FROM left_chunks").fetchone()
    return int(key), int(number)


def came_again(db: sqlite3.Connection, chunk: Chunk, n: int) -> NDArray[np.bool_]:
    """Return which of the first `n` rows have an offset that had left the store before."""
    kinds = chunk.kinds(n)
    highest = np.full(int(kinds.max(initial=0)) + 1, -1, np.int64)
    rows = db.execute("SELECT place, labelled, offset FROM left_offsets")
    for place, is_labelled, offset in rows:
        if 2 * place + is_labelled < len(highest):
            highest[2 * place + is_labelled] = offset
    found: NDArray[np.bool_] = chunk.columns["offset"][:n] <= highest[kinds]
    return found


def begin_again(
    db: sqlite3.Connection,
    chunks: Sequence[Chunk],
    place: int,
    coming: Mapping[str, Sequence[Any]],
    replaced: Collection[int],
) -> None:
    """Note since which row a place has the messages of a recreated topic, unless it is noted.

    They are known by rows (`replaced`, their keys) that had the same offsets and other ids.
    `coming` are columns of messages that are to be stored next. What is stored up to the highest
    offset before was not counted.
    """
    offsets = np.array(coming["offset"], np.int64)
    labelled = np.array([truth is not None for truth in coming["truth"]], np.bool_)
    for kind in (False, True):
        own, stretch = offsets[labelled == kind], (place, kind)
        (noted,) = db.execute(
            "SELECT ifnull(max(key), 0) FROM begun_again WHERE place = ? AND labelled = ?", stretch
        ).fetchone()
        if not len(own) or max(replaced) < noted:
            continue
        keys, held = _held_of(chunks, place, is_labelled=kind)
        n_old = len(held)
        if n_old and held[-1] < own.min():  # the newest are of the recreated topic already
            n_old = 1 + int(np.flatnonzero(held[1:] < held[:-1]).max(initial=-1))
        key = int(keys[n_old]) if n_old < len(keys) else chunks[-1].next_key
        highest = int(held[:n_old].max(initial=-1))
        db.execute(
            "INSERT OR IGNORE INTO begun_again VALUES (?, ?, ?, ?)", (*stretch, key, highest)
        )
    db.execute(
        "DELETE FROM begun_again WHERE EXISTS (SELECT 1 FROM left_offsets AS gone WHERE gone.place"
        " = begun_again.place AND gone.labelled = begun_again.labelled"
        " AND gone.offset >= begun_again.offset)"
    )


def _held_of(chunks: Sequence[Chunk], place: int, *, is_labelled: bool) -> tuple[Longs, Longs]:
    """Return the keys and offsets of a stretch's rows, in the order in which they came."""
    at = [
        np.flatnonzero(
            (chunk.columns["place"][: chunk.n] == place)
            & (chunk.kinds(chunk.n) == 2 * place + is_labelled)
        )
        for chunk in chunks
    ]
    keys = [own + chunk.first_key for own, chunk in zip(at, chunks, strict=True)]
    offsets = [chunk.columns["offset"][own] for own, chunk in zip(at, chunks, strict=True)]
    return np.concatenate(keys), np.concatenate(offsets)


def take_out(
    db: sqlite3.Connection, removed: Iterable[tuple[int, tuple[int, int], bool, int, int]]
) -> None:
    """Take messages out of the counts: key, place, if labelled, when it came, class.

    A place is the number of the partition and the offset, the time in ms. Left alone is what was
    not counted as it is stored: messages that came again after they had left, or after a start,
    and those of a recreated topic.
    """
    less: dict[tuple[int, int], Counter[int]] = {}
    for key, at, is_labelled, arrived_ms, label in removed:
        found = db.execute(
            "INSERT OR IGNORE INTO taken_out SELECT ?1, ?2 WHERE NOT EXISTS"
            " (SELECT 1 FROM left_offsets WHERE place = ?1 AND labelled = ?3 AND offset >= ?2)"
            " AND NOT EXISTS (SELECT 1 FROM begun_again"
            " WHERE place = ?1 AND labelled = ?3 AND offset >= ?2 AND key <= ?4)"
            " AND NOT EXISTS (SELECT 1 FROM counted_before"
            " WHERE place = ?1 AND labelled = ?3 AND offset >= ?2 AND key <= ?4)",
            (*at, is_labelled, key),
        )
        if not found.rowcount:
            continue
        for step_s in STEPS_S.values():
            begins_s = arrived_ms // (1000 * step_s) * step_s
            less.setdefault((step_s, begins_s), Counter())[label] += 1
    for (step_s, begins_s), labels in less.items():
        by = np.zeros(max(labels) + 1, np.int64)
        by[list(labels)] = [-n for n in labels.values()]
        _change(db, step_s, begins_s, by, only_known=True)
    db.execute(
        "DELETE FROM taken_out WHERE rowid <= (SELECT max(rowid) FROM taken_out) - ?",
        (_TAKEN_OUT_MAX,),
    )


def _change(
    db: sqlite3.Connection, step_s: int, begins_s: int, by: Longs, *, only_known: bool = False
) -> bool:
    """Add to the counts of a step; return whether it is a new one."""
    at = (step_s, begins_s)
    found = db.execute(
        "SELECT counts FROM history WHERE step_s = ? AND begins_s = ?", at
    ).fetchone()
    if found is None and only_known:
        return False
    # A row that came again in a run of an older version may be of another minute than its count.
    new = by if found is None else np.maximum(_sum(np.frombuffer(found[0], "<i8"), by), 0)
    db.execute(
        "INSERT OR REPLACE INTO history VALUES (?, ?, ?)", (*at, new.astype("<i8").tobytes())
    )
    return found is None


def _forget_oldest(
    db: sqlite3.Connection,
    table: str,
    step_s: int,
    n_max: int,
    now_s: int,
    *,
    has_lost: bool = False,
) -> None:
    """Keep the newest steps of a length, and note if this, or what was written, lost any.

    If the clock ran ahead by more than half of what is kept, those steps go first, the latest of
    them before the others: until their time comes no new step would stay beside so many of them.
    """
    found = db.execute(
        f"DELETE FROM {table} WHERE step_s = ?1 AND begins_s IN (SELECT begins_s FROM {table}"  # noqa: S608 -- of ours
        " WHERE step_s = ?1 ORDER BY CASE WHEN begins_s > ?3 THEN -begins_s ELSE begins_s END"
        f" LIMIT max(0, (SELECT count(*) FROM {table} WHERE step_s = ?1) - ?2))",
        (step_s, n_max, now_s + n_max * step_s // 2),
    )
    if found.rowcount or has_lost:
        db.execute("INSERT OR IGNORE INTO forgotten VALUES (?, ?)", (table, step_s))


def _sum(one: Longs, other: Longs) -> Longs:
    """Return the sum of counts, one of which may be from before a class joined."""
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total


# ---- words ---------------------------------------------------------------------------------------


class StepWords(msgspec.Struct, frozen=True):
    """The words of one step, those of most messages first.

    `counts[i, k]` messages of class k hold word i, and up to `missed_max[i]` more of any class.
    """

    of: Longs  # messages that were looked through, by class
    unlisted_max: int  # messages that a word which is not listed is in, at most
    words: list[str]
    counts: NDArray[np.int64]
    missed_max: Longs

    def cut(self, n_max: int) -> StepWords:
        """Return the `n_max` words of most messages; what the others came to bounds the rest."""
        totals = self.counts.sum(axis=1)
        order = np.argsort(-totals, kind="stable")
        kept, rest = order[:n_max], order[n_max:]
        most = int((totals + self.missed_max)[rest].max(initial=self.unlisted_max))
        words = [self.words[i] for i in kept.tolist()]
        return StepWords(self.of, most, words, self.counts[kept], self.missed_max[kept])

    def merged(self, other: StepWords) -> StepWords:
        """Return the words of a step of which both are a part."""
        at = {word: i for i, word in enumerate(self.words)}
        n_own = len(at)
        others = np.array([at.setdefault(word, len(at)) for word in other.words], np.int64)
        counts = np.zeros((len(at), max(len(self.of), len(other.of))), np.int64)
        counts[:n_own, : len(self.of)] = self.counts
        counts[others, : len(other.of)] += other.counts
        missed_max = np.full(len(at), self.unlisted_max, np.int64)  # of those that only it lists
        missed_max[:n_own] = self.missed_max + other.unlisted_max
        missed_max[others[others < n_own]] -= other.unlisted_max
        missed_max[others] += other.missed_max
        most = self.unlisted_max + other.unlisted_max
        return StepWords(_sum(self.of, other.of), most, list(at), counts, missed_max)


def words_since(db: sqlite3.Connection, chunks: Sequence[Chunk], *, is_on: bool) -> None:
    """Note since when words have been counted of all that the store has let go of, unless it is.

    If they are not to be counted, those that were are deleted: with a gap their bounds are wrong.
    """
    is_noted = db.execute("SELECT 1 FROM words_since").fetchone() is not None
    if is_noted and not is_on:
        db.execute("DELETE FROM word_history")
        db.execute("DELETE FROM forgotten WHERE name = 'word_history'")
        db.execute("DELETE FROM words_since")
        db.execute("UPDATE left_chunks SET word_bytes = 0")
    if is_noted or not is_on:
        return
    (newest_s,) = db.execute("SELECT max(begins_s) FROM history WHERE step_s = 60").fetchone()
    since_ms = 0 if newest_s is None else 1000 * (newest_s + 60)
    if chunks:
        known = [chunk.oldest_ms for chunk in chunks if chunk.oldest_ms]
        since_ms = next(iter(known), since_ms) if chunks[0].number > 1 else 0
    db.execute("INSERT INTO words_since VALUES (?)", (since_ms,))


def word_steps_max(steps_max: Mapping[int, int]) -> dict[int, int]:
    """Return how many steps have words, by their length in seconds."""
    bounds = {60: WORD_MINUTES_MAX}
    return {step_s: min(n, bounds.get(step_s, n)) for step_s, n in steps_max.items()}


def steps_of(arrived_ms: Longs, step_s: int) -> tuple[Longs, Longs]:
    """Return the beginnings of the steps of ascending times, in seconds, and the step of each."""
    steps = arrived_ms // (1000 * step_s)
    is_new = np.ones(len(steps), np.bool_)
    is_new[1:] = steps[1:] != steps[:-1]
    return steps[is_new] * step_s, np.cumsum(is_new) - 1


class _Grid:
    """Counts the words of a chunk by class and steps of one length, the newest `n_max` of them."""

    def __init__(
        self, chunk: Chunk, is_left: NDArray[np.bool_], n_classes: int, step_s: int, n_max: int
    ) -> None:
        begins_s, step = steps_of(chunk.columns["arrived_ms"][: chunk.n], step_s)
        self.has_lost = len(begins_s) > n_max
        step -= max(0, len(begins_s) - n_max)
        self._begins_s = begins_s[-n_max:]
        self._shape = n_classes, len(self._begins_s)
        self.width = n_classes * len(self._begins_s)
        labels = chunk.columns["label"][: chunk.n].astype(np.int64)
        is_counted = is_left & (step >= 0)
        self._cells = np.where(is_counted, labels * len(self._begins_s) + step, -1)
        of = np.bincount(self._cells[is_counted], minlength=self.width)
        self._of = of.reshape(self._shape)
        none = np.zeros((0, n_classes), np.int64)
        self._found = [(none[:, 0], none[:, 0], none)]  # numbers of words, steps, counts

    def add(self, first: int, word: Longs, at: Longs, n_words: int) -> None:
        """Count words from number `first` on: `word[k]` stands in the row at `at[k]`."""
        cells = self._cells[at]
        is_counted = cells >= 0
        cells = (cells + word * self.width)[is_counted]
        counts = np.bincount(cells, minlength=n_words * self.width).reshape(n_words, *self._shape)
        own, step = np.nonzero(counts.sum(axis=1) >= WORD_MESSAGES_MIN)
        self._found.append((own + first, step, counts[own, :, step]))

    def steps(self, words: Sequence[str], unlisted_max: int) -> Iterator[tuple[int, StepWords]]:
        """Yield what was counted, by when each step begins; `words` are those of all numbers."""
        own, step, counts = (np.concatenate(each) for each in zip(*self._found, strict=True))
        order = np.argsort(step, kind="stable")
        bounds = np.searchsorted(step[order], np.arange(len(self._begins_s) + 1))
        for k, begins_s in enumerate(self._begins_s.tolist()):
            at = order[bounds[k] : bounds[k + 1]]
            names = [words[i] for i in own[at].tolist()]
            n_of = int(self._of[:, k].sum())
            no_more = np.zeros(len(at), np.int64)
            most = min(unlisted_max, n_of)
            yield begins_s, StepWords(self._of[:, k], most, names, counts[at], no_more)


def count_left(
    db: sqlite3.Connection, chunk: Chunk, steps_max: Mapping[int, int], words_max: int, now_ms: int
) -> None:
    """Note that a chunk leaves the store, and count its words, `words_max` a step; 0: none."""
    if words_max:
        n_bytes = _bytes_in_use(db)
        count_words(db, chunk, steps_max, words_max, now_ms // 1000)
        more = (_bytes_in_use(db) - n_bytes,)
        db.execute("UPDATE left_chunks SET word_bytes = max(0, word_bytes + ?)", more)
    db.execute(
        "UPDATE left_chunks SET next_key = max(next_key, ?), next_number = max(next_number, ?)",
        (chunk.next_key, chunk.number + 1),
    )
    db.executemany(
        "INSERT INTO left_offsets VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET offset = max(offset, excluded.offset)",
        [(*kind, offset) for kind, offset in chunk.highest_offsets().items()],
    )


def message_bytes(db: sqlite3.Connection) -> int:
    """Return how many bytes of the file are in use, but those of words that were counted."""
    (word_bytes,) = db.execute("SELECT word_bytes FROM left_chunks").fetchone()
    return _bytes_in_use(db) - int(word_bytes)


def _bytes_in_use(db: sqlite3.Connection) -> int:
    (n_bytes,) = db.execute(
        "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count,"
        " pragma_freelist_count, pragma_page_size"
    ).fetchone()
    return int(n_bytes)


def count_words(
    db: sqlite3.Connection, chunk: Chunk, steps_max: Mapping[int, int], words_max: int, now_s: int
) -> None:
    """Count the words of a chunk that the store lets go of, beside those of others before it."""
    is_left = chunk.alive[: chunk.n] & ~came_again(db, chunk, chunk.n)
    if not is_left.any():
        return
    n_classes = int(chunk.columns["label"][: chunk.n].max()) + 1
    words_max = min(words_max, max(1, _STEP_CELLS_MAX // n_classes))
    n_max = word_steps_max(steps_max)
    grids = {step_s: _Grid(chunk, is_left, n_classes, step_s, n) for step_s, n in n_max.items()}
    width = max(grid.width for grid in grids.values())
    n_words_max = min(_OPEN_TIMES * words_max, max(1, _CHUNK_CELLS_MAX // width))
    words, unlisted_max = _frequent_words(db, chunk.number, n_words_max)
    first = 0
    for lengths, at in _occurrences(db, chunk, words, max(1, _BLOCK_CELLS // width)):
        word = np.repeat(np.arange(len(lengths)), lengths)
        for grid in grids.values():
            grid.add(first, word, at, len(lengths))
        first += len(lengths)
    for step_s, grid in grids.items():
        _write_words(db, step_s, dict(grid.steps(words, unlisted_max)), words_max)
        has_lost = grid.has_lost
        _forget_oldest(db, "word_history", step_s, n_max[step_s], now_s, has_lost=has_lost)


def _frequent_words(db: sqlite3.Connection, number: int, n_max: int) -> tuple[list[str], int]:
    """Return words of a chunk that most rows have, and how many rows have any other, at most."""
    db.execute("DROP TABLE IF EXISTS temp.vocabulary")
    db.execute(
        f"CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab('main', 'words{number}', 'row')"
    )
    rows = db.execute(
        "SELECT term, doc FROM temp.vocabulary WHERE doc >= ? AND length(term) <= ?"
        " ORDER BY doc DESC, term LIMIT ?",
        (WORD_MESSAGES_MIN, WORD_CHARS_MAX, n_max + 1),
    ).fetchall()
    db.execute("DROP TABLE temp.vocabulary")
    (_, most), *_ = rows[n_max:] or [("", WORD_MESSAGES_MIN - 1)]
    return [word for word, _ in rows[:n_max]], most


def _occurrences(
    db: sqlite3.Connection, chunk: Chunk, words: Sequence[str], n_words_max: int
) -> Iterator[tuple[list[int], Longs]]:
    """Yield how many rows have each of some words, and their positions; in blocks of words."""
    rows = db.execute(
        f"SELECT (SELECT group_concat(rowid - ?, ' ') FROM words{chunk.number}"  # noqa: S608 -- a number
        f" WHERE words{chunk.number} MATCH 'text : \"' || word.value || '\"')"
        " FROM json_each(?) AS word",
        (chunk.first_key, msgspec.json.encode(words).decode()),
    )
    block: list[str] = []
    n_chars = 0
    for (found,) in rows:
        text = found or ""  # one that stands in no text is a sign
        if block and (n_chars + len(text) > _BLOCK_CHARS or len(block) >= n_words_max):
            yield _parsed(block)
            block, n_chars = [], 0
        block.append(text)
        n_chars += len(text)
    if block:
        yield _parsed(block)


def _parsed(block: Sequence[str]) -> tuple[list[int], Longs]:
    lengths = [text.count(" ") + 1 if text else 0 for text in block]
    return lengths, np.fromstring(" ".join(filter(None, block)), dtype=np.int64, sep=" ")


def _write_words(
    db: sqlite3.Connection, step_s: int, steps: Mapping[int, StepWords], words_max: int
) -> None:
    """Write the words of steps; of all but the newest, which may go on, `words_max` are kept."""
    (known_s,) = db.execute(
        "SELECT max(begins_s) FROM word_history WHERE step_s = ?", (step_s,)
    ).fetchone()
    newest_s = max([*steps, known_s or 0])
    over = () if known_s in {None, newest_s} else (known_s,)
    for begins_s in dict.fromkeys([*over, *steps]):
        at = (step_s, begins_s)
        row = db.execute(
            "SELECT of, unlisted_max, words, counts FROM word_history"
            " WHERE step_s = ? AND begins_s = ?",
            at,
        ).fetchone()
        parts = [] if row is None else [_words_of(*row)]
        parts += [steps[begins_s]] if begins_s in steps else []
        whole = reduce(StepWords.merged, parts)
        whole = whole.cut(_OPEN_TIMES * words_max if begins_s == newest_s else words_max)
        table = np.column_stack((whole.counts, whole.missed_max)).astype("<u4")
        db.execute(
            "INSERT OR REPLACE INTO word_history VALUES (?, ?, ?, ?, ?, ?)",
            (*at, whole.of.astype("<i8").tobytes(), whole.unlisted_max,
             "\n".join(["", *whole.words, ""]), table.tobytes()),
        )  # fmt: skip


def _words_of(of: bytes, unlisted_max: int, words: str, counts: bytes) -> StepWords:
    by_class = np.frombuffer(of, "<i8")
    table = np.frombuffer(counts, "<u4").reshape(-1, len(by_class) + 1).astype(np.int64)
    return StepWords(by_class, unlisted_max, words.split("\n")[1:-1], table[:, :-1], table[:, -1])
