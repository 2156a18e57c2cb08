"""How much the store holds: messages, age, bytes, and from these the size of a chunk."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.config.sections import RecentSettings
from consumers.search.chunk import Chunk
from consumers.search.fts import CLOSE, OPEN
from consumers.search.index_tokens import SEPARATORS

BYTES_MAX = 4 << 30
_CHUNKS = 16
_CHUNK_ROWS_MAX = 1 << 16  # so that searching one takes some milliseconds, and no longer
_CHUNKS_BY_AGE = 24


@dataclass(frozen=True, slots=True)
class Retention:
    """The bounds.

    Attributes
    ----------
    messages_max : int
    age_max_s : float
    bytes_max : int
        A bound of the file beside those that can be set: messages may be long.
    """

    messages_max: int
    age_max_s: float
    bytes_max: int = BYTES_MAX

    @classmethod
    def of(cls, settings: RecentSettings) -> Retention:
        """Return the bounds that are set."""
        return cls(settings.messages_max, settings.age_max_s)

    @property
    def chunk_rows(self) -> int:
        """Rows a chunk."""
        return max(1, min(self.messages_max // _CHUNKS, _CHUNK_ROWS_MAX))

    def cutoff_ms(self, now_ms: int) -> int:
        """Return since when messages must have come to be shown, in Unix milliseconds."""
        return now_ms - int(self.age_max_s * 1000)

    def is_full(self, chunk: Chunk, now_ms: int) -> bool:
        """Tell whether a chunk takes no more: by rows, bytes, or as its first row is old."""
        if not chunk.n:
            return False
        age_ms = now_ms - chunk.oldest_ms
        return (
            chunk.n >= chunk.capacity
            or chunk.n_bytes > self.bytes_max / (2 * _CHUNKS)
            or age_ms > self.age_max_s * 1000 / _CHUNKS_BY_AGE
        )

    def is_beyond(self, chunks: Sequence[Chunk], n_bytes: int) -> bool:
        """Tell whether the oldest chunk must go before another begins."""
        n_rows = sum(chunk.n for chunk in chunks)
        return n_rows + self.chunk_rows > self.messages_max or (
            n_bytes > self.bytes_max * (1 - 1 / _CHUNKS)
        )


# ruff: noqa: S608 -- what is put into statements here are numbers and names of our own tables


COLUMNS = (
    "key", "id", "id_crc", "place", "offset", "time_ms", "arrived_ms", "user", "lang", "lang_code",
    "text", "signs", "example", "label", "probability", "probabilities", "truth", "taught",
    "taught_part", "corrected",
)  # fmt: skip
KEY_LAST = (1 << 63) - 1
TOKENIZER = f"\"unicode61 remove_diacritics 2 separators '{SEPARATORS}'\""
Values = tuple[Any, ...]

SHOWN = (
    "key", "id", "place", "offset", "time_ms", "arrived_ms", "user", "lang", "text", "example",
    "label", "probability", "probabilities", "truth", "taught", "taught_part", "corrected",
)  # fmt: skip
_ROWS_A_STATEMENT = 250
_OF_RINGS = {
    name: (name, np.int64)
    for name in ("key", "id_crc", "place", "offset", "time_ms", "arrived_ms", "lang_code", "label")
} | {"truth": ("ifnull(truth, -1)", np.int64), "probability": ("probability", np.float64)}


def create(db: sqlite3.Connection, number: int) -> None:
    """Make the tables of a chunk."""
    columns = ", ".join(["key INTEGER PRIMARY KEY", *COLUMNS[1:]])
    db.execute(f"CREATE TABLE rows{number} ({columns})")
    db.execute(
        f"CREATE VIRTUAL TABLE words{number} USING fts5(text, signs, content = 'rows{number}',"
        " content_rowid = 'key', columnsize = 0, prefix = '2',"
        f" tokenize = {TOKENIZER})"
    )
    # Merge late: a chunk is made one piece when it is full.
    db.execute(f"INSERT INTO words{number} (words{number}, rank) VALUES ('automerge', 16)")


def drop(db: sqlite3.Connection, number: int) -> None:
    """Drop a chunk."""
    db.execute(f"DROP TABLE IF EXISTS words{number}")
    db.execute(f"DROP TABLE IF EXISTS rows{number}")


def insert(db: sqlite3.Connection, number: int, rows: Sequence[Values]) -> None:
    """Put rows, with keys above all there are, into a chunk.

    Parameters
    ----------
    db : sqlite3.Connection
    number : int
        The chunk.
    rows : sequence of tuple
        Values in the order of `COLUMNS`, keys ascending.
    """
    one = f"({','.join('?' * len(COLUMNS))})"
    for begin in range(0, len(rows), _ROWS_A_STATEMENT):
        some = rows[begin : begin + _ROWS_A_STATEMENT]
        values = list(itertools.chain.from_iterable(some))
        db.execute(f"INSERT INTO rows{number} VALUES {','.join([one] * len(some))}", values)
    if rows:
        db.execute(
            f"INSERT INTO words{number} (rowid, text, signs)"
            f" SELECT key, text, signs FROM rows{number} WHERE key >= ?",
            (rows[0][0],),
        )


def delete(db: sqlite3.Connection, number: int, keys: Sequence[int]) -> None:
    """Delete rows of a chunk; until `make_one` their words still stand in the file."""
    chosen = "SELECT value FROM json_each(?)"
    listed = (msgspec.json.encode(keys).decode(),)
    db.execute(
        f"INSERT INTO words{number} (words{number}, rowid, text, signs)"
        f" SELECT 'delete', key, text, signs FROM rows{number} WHERE key IN ({chosen})",
        listed,
    )
    db.execute(f"DELETE FROM rows{number} WHERE key IN ({chosen})", listed)


def make_one(db: sqlite3.Connection, number: int) -> None:
    """Make a chunk's index one piece: quicker to search, and without the words of deleted rows."""
    db.execute(f"INSERT INTO words{number} (words{number}) VALUES ('optimize')")


def teach(
    db: sqlite3.Connection, number: int, key: int, label: int | None, part: str | None
) -> None:
    """Note what a row now teaches, by a person's word."""
    db.execute(
        f"UPDATE rows{number} SET taught = ?, taught_part = ?, corrected = ? WHERE key = ?",
        (label, part, label, key),
    )


def ids_of(db: sqlite3.Connection, number: int, keys: Sequence[int]) -> list[tuple[int, str]]:
    """Return key and id of those of some rows that there are, keys ascending."""
    (found,) = db.execute(
        f"SELECT json_group_array(json_array(key, id)) FROM rows{number}"
        " WHERE key IN (SELECT value FROM json_each(?))",
        (msgspec.json.encode(keys).decode(),),
    ).fetchone()
    return sorted(msgspec.json.decode(found, type=list[tuple[int, str]]))


def rows_with_keys(db: sqlite3.Connection, number: int, keys: Sequence[int]) -> list[list[Any]]:
    """Return some rows, newest first, as `found_rows` does."""
    return _collected(
        db,
        f"SELECT key AS at, text AS marked FROM rows{number}"
        " WHERE key IN (SELECT value FROM json_each(?))",
        f"rows{number}",
        (msgspec.json.encode(keys).decode(),),
    )


def numbers(db: sqlite3.Connection) -> set[int]:
    """Return the chunks whose tables are there."""
    (found,) = db.execute(
        "SELECT group_concat(substr(name, 5), ' ') FROM sqlite_schema"
        " WHERE type = 'table' AND name GLOB 'rows[0-9]*'"
    ).fetchone()
    return set(map(int, (found or "").split()))


def matching_keys(
    db: sqlite3.Connection, number: int, match: str, lowest: int, n_max: int
) -> NDArray[np.int64]:
    """Return the keys from `lowest` on of the newest rows that match, descending, int64."""
    (found,) = db.execute(
        f"SELECT group_concat(rowid, ' ') FROM (SELECT rowid FROM words{number}"
        f" WHERE words{number} MATCH ? AND rowid >= ? ORDER BY rowid DESC LIMIT ?)",
        (match, lowest, n_max),
    ).fetchone()
    return np.fromstring(found or "", dtype=np.int64, sep=" ")


def found_rows(
    db: sqlite3.Connection, number: int, match: str, bounds: tuple[int, int], n_max: int
) -> list[list[Any]]:
    """Return the newest rows that match with keys in [bounds[0], bounds[1]).

    Returns
    -------
    list of list
        Newest first: the columns of `SHOWN`, then the text with marks around what was found.
    """
    return _collected(
        db,
        f"SELECT rowid AS at, highlight(words{number}, 0, ?, ?) AS marked FROM words{number}"
        f" WHERE words{number} MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC LIMIT ?",
        f"rows{number}",
        (OPEN, CLOSE, match, *bounds, n_max),
    )


def newest_rows(
    db: sqlite3.Connection, number: int, bounds: tuple[int, int], n_max: int
) -> list[list[Any]]:
    """Return the newest rows with keys in [bounds[0], bounds[1]), as `found_rows` does."""
    return _collected(
        db,
        f"SELECT key AS at, text AS marked FROM rows{number} WHERE key >= ? AND key < ?"
        " ORDER BY key DESC LIMIT ?",
        f"rows{number}",
        (*bounds, n_max),
    )


def _collected(
    db: sqlite3.Connection, chosen: str, table: str, values: Sequence[Any]
) -> list[list[Any]]:
    columns = ", ".join([f"r.{name}" for name in SHOWN])
    (found,) = db.execute(
        f"SELECT json_group_array(json_array({columns}, c.marked)) FROM ({chosen}) AS c"
        f" JOIN {table} AS r ON r.key = c.at",
        values,
    ).fetchone()
    rows: list[list[Any]] = msgspec.json.decode(found)
    return sorted(rows, key=lambda row: row[0], reverse=True)


def rings_of(db: sqlite3.Connection, number: int) -> dict[str, NDArray[Any]]:
    """Return the columns of a chunk that are kept in memory, by name, in the order of keys."""
    listed = ", ".join([f"group_concat({value}, ' ')" for value, _ in _OF_RINGS.values()])
    found = db.execute(f"SELECT {listed} FROM (SELECT * FROM rows{number} ORDER BY key)").fetchone()
    return {
        name: np.fromstring(text or "", dtype=dtype, sep=" ")
        for (name, (_, dtype)), text in zip(_OF_RINGS.items(), found, strict=True)
    }
