"""Chunks: what is known of stored rows without asking SQLite, and how much is kept.

The store is a row of chunks, oldest first; the oldest goes as a whole. Beside its table a chunk is
arrays, one entry a row, filled before each commit: who finds a key in the file finds its row here.

A chunk's columns are read from its rows, or, of a full one, packed. To gather them from the rows
takes two microseconds a row, and a start waits for that. So a full chunk has them in the file as
one value too, a copy, read in a few milliseconds. What changed since is listed in `changed` and
read from the rows; if the value is missing or its checksum is wrong, all is. It holds no text, and
what stands there of a removed row goes when its words do.
"""

# ruff: noqa: S608 -- what is put into statements here are numbers and names of our own tables

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.messages import NO_TIME
from consumers.process import cached, watch_cache
from consumers.search.query_syntax import FieldCondition, ascii_lower, is_plain_name

_BYTES_MAX = 4 << 30
_CHUNKS = 16
_CHUNK_ROWS_MAX = 1 << 16  # so that searching one takes some milliseconds, and no longer
_CHUNKS_BY_AGE = 24
_UNSORTED_MAX = 4_096
SCANNED_MAX = 100_000  # rows of one search that are looked at for a condition on a field
_FIELDS_MAX = 4  # of a chunk whose values are kept once read: 9 bytes a row and field
NOTED_MAX = 16  # fields whose values are kept of the newest rows before anybody asks
OF_FIELD = ":"  # what the names of the columns with these begin with
_GAP_MAX = 4  # rows that lie between two which are read, at most, so that all between are
_EXAMPLE_MAX = 2_000  # bytes of the fields of a row that are read to find a value in memory
TYPES: dict[str, Any] = {
    "id_crc": np.uint32,
    "place": np.int32,
    "offset": np.int64,
    "time_ms": np.int64,
    "arrived_ms": np.int64,
    "lang_code": np.int16,
    "label": np.int16,
    "truth": np.int16,
    "corrected": np.int16,
    "late": np.int16,  # the label that came later than the message; that in `truth` came with it
    "probability": np.float32,
}


class Stratum(NamedTuple):
    """Rows side by side that were sampled alike: each stands for as many messages."""

    first: int  # position of the first; the last is the one before the next stratum's
    began_ms: int  # when that arrived, in Unix milliseconds
    n_offered: int  # messages that came with these rows, those not taken included


class Figures(NamedTuple):
    """What is told of a chunk, as it was at some time."""

    n_offered: int
    n_bytes: int
    dirty_since_s: float | None
    n_deleted: int
    is_packed: bool
    n_changed: int
    strata: tuple[Stratum, ...]


# What is known of a field's value in a row. It is `_UNCLEAR` if only the row itself can say.
_UNREAD, _MISSING, _NUMBER, _TEXT, _UNCLEAR = range(5)


class FieldValues:
    """The values of one field of the model in the rows of a chunk, as far as they were asked for.

    A number stands there as it is, a text as the 64 bits by which Python's dictionaries find it,
    whose key is drawn when a process starts; that is enough to compare, at 8 bytes a row. Threads
    may read rows into it side by side: what they write is the same, and the kind comes last.
    """

    __slots__ = ("_kinds", "_values")

    def __init__(self, capacity: int) -> None:
        self._kinds = np.zeros(capacity, np.uint8)
        self._values = np.zeros(capacity, np.float64)

    def unread(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some positions were not read yet."""
        return self._are(_UNREAD, at)

    def unclear(self, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return at which of some positions the row itself has to be asked."""
        return self._are(_UNCLEAR, at)

    def _are(self, kind: int, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._kinds[at] == kind
        return found

    def note(self, at: NDArray[np.int64], values: Sequence[Any]) -> None:
        """Keep what was read of the rows at some positions; those of no kind are unclear."""
        kind_of = {type_: _KINDS.get(type_, _UNCLEAR) for type_ in set(map(type, values))}
        kinds = np.array([kind_of[type(value)] for value in values], np.uint8)
        if _TEXT not in kind_of.values() and _UNCLEAR not in kind_of.values():
            self._values[at] = np.array(values, np.float64)  # one that is missing is a NaN there
        else:
            marks = {v: _mark(v) for v in set(filter(_is_text, values))}  # some few, for categories
            texts = [marks[value] for value in values if _is_text(value)]
            self._values.view(np.int64)[at[kinds == _TEXT]] = texts
            numbers = [float(v) for v in values if kind_of[type(v)] == _NUMBER]
            self._values[at[kinds == _NUMBER]] = numbers
        self._kinds[at] = kinds

    def met_by(self, condition: FieldCondition, at: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some positions meet a condition: what its `is_met_by` says of each."""
        kinds = self._kinds[at]
        met = np.zeros(len(at), np.bool_)
        if condition.number is not None:
            is_number = kinds == _NUMBER
            values = self._values[at[is_number]]
            met[is_number] = condition.compare(values, condition.number)
        if condition.op == "=":
            is_text = kinds == _TEXT
            met[is_text] = self._values.view(np.int64)[at[is_text]] == _mark(condition.value)
        return ~met if condition.negated else met


_KINDS: dict[type, int] = {
    type(None): _MISSING, bool: _NUMBER, int: _NUMBER, float: _NUMBER, str: _TEXT,
}  # fmt: skip


def _is_text(value: object) -> bool:
    return type(value) is str


def _mark(text: str) -> int:
    """Return the number by which a text is compared, whatever the case of its ASCII letters."""
    return hash(ascii_lower(text))


@dataclass(slots=True, weakref_slot=True)
class Chunk:
    """One chunk; its number names its tables. The row of key k is at index k − `first_key`."""

    number: int
    first_key: int
    capacity: int
    n: int = 0  # rows filled in, those since removed included
    n_committed: int = 0  # of these, the ones that are safe in the file
    n_gone: int = 0  # rows that were removed
    n_deleted: int = 0  # of these, the ones that the file has let go of as well
    is_packed: bool = False  # whether the file holds the columns as one value too
    n_changed: int = 0  # rows that changed after that, at most
    n_offered: int = 0  # messages that came while it was filled, those not taken included
    strata: tuple[Stratum, ...] = ()  # parts of its rows, and of these messages: `rows.weights_of`
    share: float = 1.0  # by which its last rows were drawn; see `sampler.Offer`
    n_bytes: int = 0  # of its texts, as they are shown and as the model reads them
    n_relabelled: int = 0  # how often labels of people came or went; raised behind what it counts
    dirty_since_s: float | None = None  # since when words of removed rows stand in its index
    columns: dict[str, NDArray[Any]] = field(init=False)  # -1: no label
    alive: NDArray[np.bool_] = field(init=False)  # False if there is no row, or no longer
    # Positions of the first rows by checksum, and these, as one value that any thread may replace.
    _index: list[tuple[NDArray[np.int64], NDArray[np.uint32]]] = field(init=False)
    _accounts: NDArray[np.uint32] = field(init=False)  # of the first rows; filled when asked for
    _fields: dict[str, FieldValues] = field(init=False, default_factory=dict)  # last asked for last
    # What rows weigh as of some strata and number of rows, as one value.
    weighed: tuple[tuple[Stratum, ...], int, NDArray[np.float64] | None] = ((), 0, None)
    noted: dict[str, FieldValues] = field(init=False, default_factory=dict)  # as rows came

    def __post_init__(self) -> None:
        watch_cache("searched_fields", self._fill)
        self.columns = {name: np.zeros(self.capacity, t) for name, t in TYPES.items()}
        self.columns["late"][:] = -1
        self.alive = np.zeros(self.capacity, np.bool_)
        self._index = [(np.zeros(0, np.int64), np.zeros(0, np.uint32))]
        self._accounts = np.zeros(0, np.uint32)

    def _fill(self) -> tuple[int, int]:
        return len(self._fields), _FIELDS_MAX

    @property
    def n_alive(self) -> int:
        """How many rows there are."""
        return self.n_committed - self.n_gone

    @property
    def next_key(self) -> int:
        """The key of the next row."""
        return self.first_key + self.n

    @property
    def oldest_ms(self) -> int:
        """When the first row arrived, in Unix milliseconds; 0 without any, or if nobody knows."""
        return int(self.columns["arrived_ms"][0])

    @property
    def newest_ms(self) -> int:
        """When the last row arrived, in Unix milliseconds; 0 without any."""
        return int(self.columns["arrived_ms"][max(0, self.n - 1)])

    def add(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Fill in rows, given by columns as `RowBuilder` makes them; `n` is raised last."""
        texts = chain(values["text"], filter(None, values["example"]))
        n_bytes, count = sum(map(len, map(str.encode, texts))), len(values["offset"])
        part = slice(self.n, self.n + count)
        for name in TYPES:
            given: Any = values.get(name, -1)  # no label has come late yet
            if name in {"truth", "corrected"}:
                given = [-1 if label is None else label for label in given]
            self.columns[name][part] = given
        for name, given in values.items():
            if name.startswith(OF_FIELD):
                own = self.noted.setdefault(name.removeprefix(OF_FIELD), FieldValues(self.capacity))
                own.note(np.arange(part.start, part.stop), given)
        # A clock that was put back must not break the order.
        arrived = self.columns["arrived_ms"][max(0, self.n - 1) : part.stop]
        np.maximum.accumulate(arrived, out=arrived)
        self.alive[part] = True
        self.n_bytes, self.n = self.n_bytes + n_bytes, self.n + count
        self.n_relabelled += any(label is not None for label in values["corrected"])

    def figures(self) -> Figures:
        """Return what `go_back` needs to come back to now."""
        return Figures(*[getattr(self, name) for name in Figures._fields])

    def go_back(self, figures: Figures) -> None:
        """Take back what could not be written: rows, and what was told of them."""
        self.alive[self.n_committed : self.n] = False
        self.n = self.n_committed
        self.n_gone = self.n - int(self.alive[: self.n].sum())  # some were added and removed
        # A new list: who sorts just now puts the index of these rows into the old one.
        self._index = [(np.zeros(0, np.int64), np.zeros(0, np.uint32))]
        self._accounts, self.n_relabelled = self._accounts[: self.n], self.n_relabelled + 1
        self.n_offered, self.n_bytes, self.dirty_since_s = figures[:3]
        self.n_deleted, self.is_packed, self.n_changed, self.strata = figures[3:]

    def is_alive(self, key: int) -> bool:
        """Return whether a row is there."""
        return bool(self.alive[key - self.first_key])

    def kill(self, keys: Sequence[int]) -> None:
        """Note that rows are gone."""
        at = np.asarray(keys, np.int64) - self.first_key
        at = at[self.alive[at]]
        self.alive[at] = False
        self.n_gone += len(at)

    def correct(self, key: int, label: int | None) -> None:
        """Note the number of the label that a person gave to a row; None: none."""
        self.columns["corrected"][key - self.first_key] = -1 if label is None else label
        self.columns["late"][key - self.first_key] = -1  # as the file has it
        self.n_relabelled += 1

    def times_ms(self, at: NDArray[np.int64] | slice) -> NDArray[np.int64]:
        """Return the times of rows by their positions: the message's own or its source's.

        If neither is known it is when the message came.
        """
        times_ms: NDArray[np.int64] = self.columns["time_ms"][at]
        if (unknown := times_ms == NO_TIME).any():
            times_ms = np.where(unknown, self.columns["arrived_ms"][at], times_ms)
        return times_ms

    def field_values(self, name: str) -> FieldValues:
        """Return the values of a field; of a few fields they stay, those asked for last."""
        if name in self.noted:
            return self.noted[name]
        found = self._fields.pop(name, None) or FieldValues(self.capacity)
        self._fields[name] = found
        for least in list(self._fields)[:-_FIELDS_MAX]:
            self._fields.pop(least, None)  # another thread may have been quicker
        return found

    def first_since(self, cutoff_ms: int) -> int:
        """Return the key of the oldest row that arrived at `cutoff_ms` or later."""
        arrived = self.columns["arrived_ms"][: self.n]
        return self.first_key + int(np.searchsorted(arrived, cutoff_ms))

    def with_crcs(self, crcs: NDArray[np.uint32]) -> list[int]:
        """Return the keys of rows, gone ones too, whose ids may have one of these checksums.

        Rows are sorted by their checksums for it, but for the last thousands, which are looked
        through: else each question to a growing chunk would sort it again. Any thread may ask.
        """
        index, n = self._index, self.n  # in this order: rows taken back belong to an old index
        order, crcs_sorted = index[0]
        own = self.columns["id_crc"][:n]
        if n - len(order) > _UNSORTED_MAX:
            # What is sorted already is one run of the sort, which merges runs.
            order = np.concatenate((order, np.arange(len(order), n)))
            order = order[np.argsort(own[order], kind="stable")]
            crcs_sorted = own[order]
            index[0] = order, crcs_sorted
        begins = np.searchsorted(crcs_sorted, crcs, side="left")
        ends = np.searchsorted(crcs_sorted, crcs, side="right")
        at = [order[begins[k] : ends[k]] for k in np.flatnonzero(ends > begins).tolist()]
        at.append(np.flatnonzero(np.isin(own[len(order) :], crcs)) + len(order))
        keys: list[int] = (np.sort(np.concatenate(at)) + self.first_key).tolist()
        return keys

    def with_accounts(
        self, crcs: NDArray[np.uint32], crcs_since: Callable[[int], Iterable[tuple[int, int]]]
    ) -> list[int]:
        """Return the keys of rows, gone ones too, whose accounts may have one of these checksums.

        `crcs_since` returns keys and checksums of the rows in the file from a key on.
        """
        n = len(self._accounts)
        if n < self.n:
            self._accounts = np.concatenate((self._accounts, np.zeros(self.n - n, np.uint32)))
            for key, crc in crcs_since(self.first_key + n):
                self._accounts[key - self.first_key] = crc
        return (np.flatnonzero(np.isin(self._accounts, crcs)) + self.first_key).tolist()

    def kinds(self, n: int) -> NDArray[np.int64]:
        """Return of each of `n` rows its place, twice, and one more if labelled; 0 if unknown."""
        place = np.maximum(self.columns["place"][:n], 0).astype(np.int64)
        kinds: NDArray[np.int64] = 2 * place + (self.columns["truth"][:n] >= 0)
        return kinds

    def highest_offsets(self) -> dict[tuple[int, bool], int]:
        """Return the highest offset by place and whether labelled, of rows that are gone, too."""
        at = np.flatnonzero(self.columns["place"][: self.n] >= 0)
        kinds = self.kinds(self.n)[at]
        highest = np.full(int(kinds.max(initial=-1)) + 1, -1, np.int64)
        np.maximum.at(highest, kinds, self.columns["offset"][at])
        return {(k // 2, bool(k % 2)): end for k, end in enumerate(highest.tolist()) if end >= 0}

    def at_offsets(self, place: int, offsets: NDArray[np.int64]) -> dict[int, int]:
        """Return the keys of rows, gone ones too, that came from some places: offset → key."""
        own = self.columns["offset"][: self.n]  # any thread may ask, while the writer adds rows
        near = (own >= offsets.min()) & (own <= offsets.max())
        at = np.flatnonzero(near & (self.columns["place"][: len(own)] == place))
        at = at[np.isin(own[at], offsets)]
        return dict(zip(own[at].tolist(), (at + self.first_key).tolist(), strict=True))


def restored(
    db: sqlite3.Connection,
    number: int,
    keys: tuple[int, int],
    capacity: int,
    columns: dict[str, NDArray[Any]],
) -> Chunk:
    """Return the chunk whose columns were read from the file by `database.columns_of`.

    `keys` are the first row's key, and the one that the next row will have.
    """
    first_key, n = keys[0], keys[1] - keys[0]
    at = columns["key"] - first_key
    n = max(n, int(at.max(initial=-1)) + 1)  # 0.1.0 noted too few where one write filled a chunk
    chunk = Chunk(number, first_key, max(capacity, n), n=n, n_committed=n)
    chunk.n_gone = chunk.n_deleted = n - len(at)
    chunk.columns["place"][:] = -1  # rows that are gone came from nowhere
    for name in TYPES:
        chunk.columns[name][at] = columns[name]
    chunk.alive[at] = True
    of = "SELECT first, began_ms, n_offered FROM stratum WHERE number = ? ORDER BY first"
    chunk.strata, chunk.share = tuple(map(Stratum._make, db.execute(of, (number,)))), 0.0
    # When rows came that are gone is not known; it must not break the order, nor seem long ago.
    arrived = chunk.columns["arrived_ms"][:n]
    if len(at):
        arrived[: at[0]] = arrived[at[0]]
    np.maximum.accumulate(arrived, out=arrived)
    return chunk


Keys: TypeAlias = NDArray[np.int64]
Parts: TypeAlias = Sequence[tuple[Chunk, NDArray[np.int64]]]  # positions in each, oldest first


class RowFilter(msgspec.Struct, frozen=True):
    """Conditions on what is known of rows in memory; None is no condition.

    `label` is the number of the likeliest class, `lang_code` that of the language; times are the
    messages', in Unix milliseconds: from `from_ms` on, before `to_ms`. `compared` are comparisons
    of columns with values: name, a function of both, value, and whether it must not hold.
    """

    lang_code: int | None = None
    label: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    compared: tuple[tuple[str, Callable[[Any, Any], Any], float, bool], ...] = ()

    def passed(self, chunk: Chunk, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of some positions in a chunk whose rows meet all conditions."""
        for name, wanted in (("lang_code", self.lang_code), ("label", self.label)):
            if wanted is not None:
                at = at[chunk.columns[name][at] == wanted]
        for name, compare, value, negated in self.compared:
            at = at[compare(chunk.columns[name][at], value) != negated]
        if self.from_ms is not None:
            at = at[chunk.times_ms(at) >= self.from_ms]
        if self.to_ms is not None:
            at = at[chunk.times_ms(at) < self.to_ms]
        return at


class Retention(msgspec.Struct, frozen=True):
    """How much the store holds, and from this the size of a chunk."""

    messages_max: int
    age_max_s: float

    @property
    def chunk_rows(self) -> int:
        """Rows a chunk."""
        return max(1, min(self.messages_max // _CHUNKS, _CHUNK_ROWS_MAX))

    def cutoff_ms(self, now_ms: int) -> int:
        """Return since when messages must have come to be shown, in Unix milliseconds."""
        return now_ms - int(self.age_max_s * 1000)

    def is_full(self, chunk: Chunk, now_ms: int) -> bool:
        """Return whether a chunk takes no more: by rows, bytes, or as its first row is old.

        One of the future, as the clock was put back, would never age: it takes no more either.
        """
        age_ms = abs(now_ms - chunk.oldest_ms) if chunk.n else 0
        return (
            chunk.n >= chunk.capacity
            or chunk.n_bytes > _BYTES_MAX / (2 * _CHUNKS)
            or age_ms > self.age_max_s * 1000 / _CHUNKS_BY_AGE
        )

    def is_beyond(self, chunks: Sequence[Chunk], n_bytes: int) -> bool:
        """Return whether the oldest chunk must go before another begins.

        `n_bytes` of the file are in use: they are bounded too, as messages may be long.
        """
        return sum(chunk.n for chunk in chunks) + self.chunk_rows > self.messages_max or (
            n_bytes > _BYTES_MAX * (1 - 1 / _CHUNKS)
        )


# ---- in the file ---------------------------------------------------------------------------------

_IN_MEMORY = {
    name: (name, np.int64)
    for name in ("key", "id_crc", "place", "offset", "time_ms", "arrived_ms", "lang_code", "label")
} | {
    "truth": ("ifnull(truth, -1)", np.int64),
    "corrected": ("ifnull(corrected, -1)", np.int64),
    "late": ("ifnull(iif(ifnull(truth, corrected) IS NULL, taught, NULL), -1)", np.int64),
    "probability": ("probability", np.float64),
}
_HEADER = struct.Struct("<IHqI")  # checksum of what follows, format, first key, number of rows
_FORMAT = 2  # the first had no late labels: its rows are read
_IN_FILE: dict[str, np.dtype[Any]] = {k: np.dtype(t).newbyteorder("<") for k, t in TYPES.items()}


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables that are there once, those that a file of an older version lacks."""
    for columns in (
        "packed (number INTEGER PRIMARY KEY, columns BLOB)",
        "changed (number INTEGER, key INTEGER, PRIMARY KEY (number, key)) WITHOUT ROWID",
        "stratum (number, first, began_ms, n_offered, PRIMARY KEY (number, first)) WITHOUT ROWID",
    ):
        db.execute(f"CREATE TABLE IF NOT EXISTS {columns}")


def save_strata(db: sqlite3.Connection, chunk: Chunk) -> None:
    """Write the strata that are new or may have changed since the last commit."""
    same = [each for each in chunk.strata[1:] if each.first < chunk.n_committed]
    own = [(chunk.number, *each) for each in chunk.strata[len(same) :]]
    db.executemany("INSERT OR REPLACE INTO stratum VALUES (?, ?, ?, ?)", own)


def pack(db: sqlite3.Connection, chunk: Chunk) -> None:
    """Keep the columns of a full chunk as one value, so that the next start reads it at once.

    If a removal could not be written, the rows know better than memory: then it is not done.
    """
    if chunk.n_gone != chunk.n_deleted:
        return
    db.execute("DELETE FROM changed WHERE number = ?", (chunk.number,))
    db.execute("INSERT OR REPLACE INTO packed VALUES (?, ?)", (chunk.number, packed(chunk)))
    chunk.is_packed, chunk.n_changed = True, 0


def note_changed(db: sqlite3.Connection, chunk: Chunk, keys: Sequence[int]) -> None:
    """Note which rows of a chunk its packed columns are no longer right about."""
    if chunk.is_packed:
        values = [(chunk.number, key) for key in keys]
        db.executemany("INSERT OR IGNORE INTO changed VALUES (?, ?)", values)
        chunk.n_changed += len(values)


def packed_columns(db: sqlite3.Connection, number: int) -> dict[str, NDArray[Any]] | None:
    """Return what `columns_of` does, quickly; None if the chunk is not packed, or not rightly."""
    found = db.execute("SELECT columns FROM packed WHERE number = ?", (number,)).fetchone()
    columns = None if found is None else unpacked(found[0])
    if columns is None:
        return None
    listed = db.execute("SELECT key FROM changed WHERE number = ?", (number,)).fetchall()
    if not listed:
        return columns
    keys = np.array([key for (key,) in listed], np.int64)
    which = f"WHERE key IN (SELECT key FROM changed WHERE number = {number})"
    newer = columns_of(db, number, which)
    same = ~np.isin(columns["key"], keys)
    order = np.argsort(np.concatenate([columns["key"][same], newer["key"]]))
    return {
        name: np.concatenate([column[same], newer[name].astype(column.dtype)])[order]
        for name, column in columns.items()
    }


def columns_of(db: sqlite3.Connection, number: int, which: str = "") -> dict[str, NDArray[Any]]:
    """Return the columns of a chunk that are kept in memory, by name, in the order of keys."""
    listed = ", ".join([f"group_concat({value}, ' ')" for value, _ in _IN_MEMORY.values()])
    found = db.execute(
        f"SELECT {listed} FROM (SELECT * FROM rows{number} {which} ORDER BY key)"
    ).fetchone()
    return {
        name: np.fromstring(text or "", dtype=dtype, sep=" ")
        for (name, (_, dtype)), text in zip(_IN_MEMORY.items(), found, strict=True)
    }


def read_fields(
    db: sqlite3.Connection, chunk: Chunk, columns: Mapping[str, FieldValues], keys: Keys
) -> None:
    """Note the values of fields in rows of a chunk, by ascending keys, of those that there are.

    Of keys that lie close together those between them are read too: one row after the other is
    quicker than a look-up for each.
    """
    first, last = int(keys[0]), int(keys[-1])
    values: tuple[Any, ...]
    chosen, values = "key BETWEEN ? AND ?", (first, last)
    if last - first > _GAP_MAX * len(keys):
        chosen = "key IN (SELECT value FROM json_each(?))"
        values = (msgspec.json.encode(keys.tolist()).decode(),)
    rows_there = f"FROM rows{chunk.number} WHERE {chosen}"
    # The length in bytes: to count the characters of each takes as long as all else here.
    long = f"length(CAST(example AS BLOB)) > {_EXAMPLE_MAX}"
    n, examples = db.execute(
        f"SELECT count(*), CAST(group_concat(iif({long}, 'null', ifnull(example, '{{}}'))) AS BLOB)"
        f" {rows_there}",
        values,
    ).fetchone()
    at = np.arange(first, last + 1) - chunk.first_key
    if n < len(at):  # else none of them is missing, and to list them would be as slow again
        (there,) = db.execute(f"SELECT group_concat(key, ' ') {rows_there}", values).fetchone()
        at = np.fromstring(there or "", dtype=np.int64, sep=" ") - chunk.first_key
    decoder, attributes = _example_decoder(tuple(filter(is_plain_name, columns)))
    rows = decoder.decode(b"[" + (examples or b"") + b"]")
    for name, own in columns.items():
        attribute = attributes.get(name, "")
        own.note(at, [getattr(row, attribute, ...) for row in rows])


@cached("example_decoders", 64)
def _example_decoder(names: tuple[str, ...]) -> tuple[msgspec.json.Decoder[Any], dict[str, str]]:
    """Return what reads some fields of rows' examples, and by which attribute each is got then."""
    attributes = {name: f"f{i}" for i, name in enumerate(names)}
    fields = [(attribute, Any, None) for attribute in attributes.values()]
    renamed = {attribute: name for name, attribute in attributes.items()}
    example = msgspec.defstruct("Example", fields, rename=renamed, gc=False)
    return msgspec.json.Decoder(list[example | None]), attributes  # type: ignore[valid-type]


def packed(chunk: Chunk) -> bytes:
    """Return the columns of the rows that a chunk holds as one value, without any text.

    Of rows that are gone it holds nothing.
    """
    at = np.flatnonzero(chunk.alive[: chunk.n])
    arrays = (chunk.columns[name][at].astype(_IN_FILE[name]) for name in TYPES)
    body = b"".join(array.tobytes() for array in (at.astype("<u4"), *arrays))
    header = _HEADER.pack(0, _FORMAT, chunk.first_key, len(at))[4:]
    return struct.pack("<I", zlib.crc32(body, zlib.crc32(header))) + header + body


def unpacked(value: Any) -> dict[str, NDArray[Any]] | None:
    """Return the columns that `packed` made one, by name; None if it is not whole."""
    if not isinstance(value, bytes) or len(value) < _HEADER.size:
        return None
    crc, format_, first_key, n = _HEADER.unpack_from(value)
    types = {"at": np.dtype("<u4")} | _IN_FILE
    n_bytes = _HEADER.size + n * sum(each.itemsize for each in types.values())
    if (format_, n_bytes) != (_FORMAT, len(value)) or zlib.crc32(memoryview(value)[4:]) != crc:
        return None
    columns, start = {}, _HEADER.size
    for name, dtype in types.items():
        columns[name] = np.frombuffer(value, dtype, n, start)
        start += n * dtype.itemsize
    return {"key": columns.pop("at").astype(np.int64) + first_key} | columns
