"""A few messages made searchable in memory, so that new ones are matched with live queries."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from consumers.search import tables
from consumers.search.file import Register, connect_memory
from consumers.search.fts import CLOSE, OPEN, expression, pieces
from consumers.search.index_tokens import signs_of, with_lang
from consumers.search.query import Query
from consumers.search.rows import MessageRow

_ROWS_A_STATEMENT = 1_000


class BatchIndex:
    """Some rows, searchable as the store's are: the same words, the same expressions.

    It may be used by one thread at a time; close it.

    Parameters
    ----------
    rows : sequence of MessageRow
    """

    def __init__(self, rows: Sequence[MessageRow]) -> None:
        self._n_rows = len(rows)
        self._langs = Register(["unknown"])
        self._db = connect_memory()
        # Lists of beginnings, which the store keeps, are not worth their making for so few rows.
        self._db.execute(
            "CREATE VIRTUAL TABLE words0"
            f" USING fts5(text, signs, columnsize = 0, tokenize = {tables.TOKENIZER})"
        )
        self._db.execute("BEGIN")  # and never ended: one piece of index, made at its first use
        values = [
            (i, row.text, with_lang(signs_of(row.text), self._code(row)))
            for i, row in enumerate(rows)
        ]
        for begin in range(0, len(values), _ROWS_A_STATEMENT):
            some = values[begin : begin + _ROWS_A_STATEMENT]
            places = ",".join(["(?,?,?)"] * len(some))
            self._db.execute(
                f"INSERT INTO words0 (rowid, text, signs) VALUES {places}",  # noqa: S608 -- question marks
                list(itertools.chain.from_iterable(some)),
            )

    def matches(self, query: Query, lang: str | None = None) -> list[int]:
        """Return which rows match, as positions in `rows`, ascending."""
        match = self._expression(query, lang)
        if match is None:
            return []
        found = tables.matching_keys(self._db, 0, match, 0, self._n_rows)
        return sorted(found.tolist())

    def newest(
        self, query: Query, lang: str | None, n_max: int
    ) -> list[tuple[int, tuple[str, ...]]]:
        """Return the last rows that match, and their texts in pieces.

        All are found by one statement: under load each costs a wait for the interpreter's lock.

        Returns
        -------
        list of (int, tuple of str)
            Positions in `rows`, ascending. Every second piece of a text is of the query's words.
        """
        match = self._expression(query, lang)
        if match is None:
            return []
        (found,) = self._db.execute(
            "SELECT json_group_array(json_array(at, marked)) FROM"
            " (SELECT rowid AS at, highlight(words0, 0, ?, ?) AS marked FROM words0"
            " WHERE words0 MATCH ? ORDER BY rowid DESC LIMIT ?)",
            (OPEN, CLOSE, match, n_max),
        ).fetchone()
        marked: list[tuple[int, str]] = msgspec.json.decode(found)
        return [(at, pieces(text, query)) for at, text in sorted(marked)]

    def close(self) -> None:
        """Let go of the memory."""
        self._db.close()

    def _code(self, row: MessageRow) -> int:
        return self._langs.code(row.lang) if row.lang else 0

    def _expression(self, query: Query, lang: str | None) -> str | None:
        """Return what FTS5 is asked; None where no row is of the language."""
        code = self._langs.codes.get(lang, -1) if lang else None
        return None if code == -1 else expression(query, code)
