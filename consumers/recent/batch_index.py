"""A few messages made searchable in memory, so that new ones are matched with standing queries."""

from __future__ import annotations

from collections.abc import Sequence

from consumers.recent import tables
from consumers.recent.file import Register, connect_memory
from consumers.recent.making import values_of
from consumers.recent.matching import expression, pieces
from consumers.recent.query import Query
from consumers.recent.rows import Row


class BatchIndex:
    """Some rows, searchable as the store's are: the same tables, the same expressions.

    It may be used by one thread at a time; close it.

    Parameters
    ----------
    rows : sequence of Row
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._langs = Register(["unknown"])
        self._db = connect_memory()
        tables.create(self._db, 0)
        values = []
        for i, row in enumerate(rows):
            code = self._langs.code(row.lang) if row.lang else 0
            values.append((i, *values_of(row, 0, code, {})[1:]))
        tables.insert(self._db, 0, values)

    def matches(self, query: Query, lang: str | None = None) -> list[int]:
        """Return which rows match, as positions in `rows`, ascending."""
        code = self._langs.codes.get(lang, -1) if lang else None
        if code is not None and code < 0:
            return []
        if query.is_everything and code is None:
            return list(range(len(self._rows)))
        found = tables.matching_keys(self._db, 0, expression(query, code), 0, len(self._rows))
        return sorted(found.tolist())

    def marked(self, i: int, query: Query) -> tuple[str, ...]:
        """Return the text of row `i` in pieces; every second one is of the query's words."""
        if query.is_everything:
            return (self._rows[i].text,)
        found = tables.found_rows(self._db, 0, expression(query), (i, i + 1), 1)
        return pieces(found[0][-1], query) if found else (self._rows[i].text,)

    def newest(
        self, query: Query, lang: str | None, n_max: int
    ) -> list[tuple[int, tuple[str, ...]]]:
        """Return the last rows that match: the position of each, and its text as `marked` does.

        They are found by one statement: under load each costs a wait for the interpreter's lock.
        """
        code = self._langs.codes.get(lang, -1) if lang else None
        bounds = (0, len(self._rows))
        found = tables.found_rows(self._db, 0, expression(query, code), bounds, n_max)
        return [(int(values[0]), pieces(values[-1], query)) for values in reversed(found)]

    def close(self) -> None:
        """Let go of the memory."""
        self._db.close()
