"""The columns of a chunk that are kept in memory: read from its rows, or, of a full one, packed.

To gather them from the rows takes two microseconds a row, and a start waits for that. So a chunk
that is full has them in the file as one value too, which is read in a few milliseconds. The value
is a copy and no more. What changed since is listed in `changed` and read from the rows; if
the value is missing or its checksum is wrong, all is. It holds no text, and what stands there of a
removed row goes when the words of that row do.
"""

# ruff: noqa: S608 -- what is put into statements here are numbers and names of our own tables

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consumers.search.chunks import TYPES, Chunk

_IN_MEMORY = {
    name: (name, np.int64)
    for name in ("key", "id_crc", "place", "offset", "time_ms", "arrived_ms", "lang_code", "label")
} | {
    "truth": ("ifnull(truth, -1)", np.int64),
    "corrected": ("ifnull(corrected, -1)", np.int64),
    "probability": ("probability", np.float64),
}
_HEADER = struct.Struct("<IHqI")  # checksum of what follows, format, first key, number of rows
_FORMAT = 1


def create_tables(db: sqlite3.Connection) -> None:
    """Make the tables that are there once."""
    db.execute("CREATE TABLE packed (number INTEGER PRIMARY KEY, columns BLOB)")
    db.execute(
        "CREATE TABLE changed (number INTEGER, key INTEGER, PRIMARY KEY (number, key))"
        " WITHOUT ROWID"
    )


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


def packed(chunk: Chunk) -> bytes:
    """Return the columns of the rows that a chunk holds as one value, without any text.

    Of rows that are gone it holds nothing.
    """
    at = np.flatnonzero(chunk.alive[: chunk.n])
    arrays = [at.astype("<u4")]
    arrays += [chunk.columns[name][at].astype(_little(name)) for name in TYPES]
    body = b"".join(array.tobytes() for array in arrays)
    header = _HEADER.pack(0, _FORMAT, chunk.first_key, len(at))[4:]
    return struct.pack("<I", zlib.crc32(body, zlib.crc32(header))) + header + body


def unpacked(value: Any) -> dict[str, NDArray[Any]] | None:
    """Return the columns that `packed` made one, by name; None if it is not whole."""
    if not isinstance(value, bytes) or len(value) < _HEADER.size:
        return None
    crc, format_, first_key, n = _HEADER.unpack_from(value)
    types = {"at": np.dtype("<u4")} | {name: _little(name) for name in TYPES}
    n_bytes = _HEADER.size + n * sum(each.itemsize for each in types.values())
    if (format_, n_bytes) != (_FORMAT, len(value)) or zlib.crc32(memoryview(value)[4:]) != crc:
        return None
    columns, start = {}, _HEADER.size
    for name, dtype in types.items():
        columns[name] = np.frombuffer(value, dtype, n, start)
        start += n * dtype.itemsize
    return {"key": columns.pop("at").astype(np.int64) + first_key} | columns


def _little(name: str) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(TYPES[name]).newbyteorder("<")
    return dtype
