"""Which of the stored rows match a query, chunk by chunk: words, what memory knows, then fields.

Words are looked up in a chunk's index. What is kept in memory of each row (language, class,
confidence, time) is compared there. Fields of the model stand in the rows alone; so for a condition
on one the rows that are left are looked at, newest first, and no more than `SCANNED_MAX` of them
for one question: the answer says where it ended, and the next question can go on from there. What
comes is noted in memory (`chunks.FieldValues`) for as many rows; what is read of older ones, or
after a start, stays there for a few fields, so the next question reads no more than what came
since. If time runs out amid the reading, the answer ends there as well.
"""

# ruff: noqa: S608 -- what is put into statements here are numbers and names of our own tables

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from consumers.search import database
from consumers.search.chunks import SCANNED_MAX, Chunk, Keys, RowFilter, read_fields
from consumers.search.database import CHOSEN, Contents
from consumers.search.query_syntax import FieldCondition, Query, SlowQueryError, expression

_AT_ONCE = 5_000
_COLUMN_OF = {"lang": "lang_code", "label": "label", "confidence": "probability"}


class Scan(msgspec.Struct):
    """How far messages are looked through for conditions, newest first; it goes on downwards."""

    n_missing: int  # messages that are still to be found
    below: int = database.KEY_LAST  # the keys that are still to be looked at
    n_left: int = SCANNED_MAX  # rows that may still be read

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
        self, db: sqlite3.Connection, newest_first: Iterator[tuple[Chunk, int]], scan: Scan
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
                    yield chunk, some
                if scan.is_over:
                    return
        except SlowQueryError:
            if not self.of_fields or scan.below == database.KEY_LAST:
                raise
            scan.n_left = 0  # what was read stays in memory: the next question gets farther

    def _before_fields(self, db: sqlite3.Connection, chunk: Chunk, lowest: int) -> Keys:
        if self.query.terms:
            match = expression(self.query, self.rows.lang_code)
            found = matching_keys(db, chunk.number, match, lowest, chunk.capacity)
            keys = np.sort(found)
        else:
            keys = np.arange(lowest, chunk.first_key + chunk.n_committed)
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


def keys_where(db: sqlite3.Connection, number: int, condition: str, keys: Sequence[int]) -> Keys:
    """Return those of some keys whose rows meet a condition, given as SQL; ascending."""
    (found,) = db.execute(
        f"SELECT group_concat(key, ' ') FROM rows{number} WHERE {CHOSEN} AND {condition}",
        (msgspec.json.encode(keys).decode(),),
    ).fetchone()
    return np.sort(np.fromstring(found or "", dtype=np.int64, sep=" "))
