"""Searches the file and counts what is found: newest chunk first, until there is enough.

Any thread may search. A few connections are shared, each used by one thread at a time, and each
search reads one consistent state of the file while the writer goes on. A search that takes too long
ends between two chunks, each of which takes some milliseconds.
"""

from __future__ import annotations

import contextlib
import queue
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from consumers.search import tables
from consumers.search.chunk import Chunk
from consumers.search.counting import Picked, counted, picked
from consumers.search.file import Contents, connect
from consumers.search.fts import expression, pieces
from consumers.search.query import Query, QueryError
from consumers.search.row_builder import crc_of
from consumers.search.row_mapper import Keys, Parts, RowMapper, located
from consumers.search.rows import Counted, Found, FoundRow, MessageRow
from consumers.search.tables import Retention

COUNTED_MAX = 10_000
LIMIT_S = 1.0
LIMIT_MAX = 1_000  # rows of one search
LANGUAGES_MAX = 50
_READERS = 4
_NO_LANG = -1


@dataclass(frozen=True, slots=True)
class StoreView:
    """What a search looks at: a state of the file, and which chunks of it."""

    db: sqlite3.Connection
    chunks: Sequence[Chunk]  # newest first
    cutoff_ms: int
    until_s: float


@dataclass(slots=True)
class Searcher:
    """Answers from one file, until it is closed.

    Attributes
    ----------
    path : Path
    contents : Contents
        For names of places and languages.
    published : callable
        Returns the chunks that are safe in the file, oldest first.
    bounds : Retention
    reading : RowMapper
        What the file's numbers stand for.
    wall_clock, clock : callable
        Seconds since 1970; monotonic seconds.
    damaged : callable
        Called where the file turns out to be damaged, with what SQLite says.
    """

    path: Path
    contents: Contents
    published: Callable[[], tuple[Chunk, ...]]
    bounds: Retention
    reading: RowMapper
    wall_clock: Callable[[], float]
    clock: Callable[[], float]
    damaged: Callable[[str], None]
    _readers: queue.LifoQueue[sqlite3.Connection | None] = field(init=False)
    _is_closed: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._readers = queue.LifoQueue()
        for _ in range(_READERS):
            self._readers.put(None)  # a place, of which the first who needs it makes a connection

    def search(self, query: Query, lang: str | None, limit: int, before: int | None) -> Found:
        """Return the newest rows that match; see `RecentStore.search`."""
        limit = max(1, min(limit, LIMIT_MAX))
        code = self._lang_code(lang)
        if code == _NO_LANG:
            return Found((), more=False, before=None)
        plain = query.is_everything and code is None
        match = "" if plain else expression(query, code)
        below = tables.KEY_LAST if before is None else min(before, tables.KEY_LAST)
        rows: list[FoundRow] = []
        with self._view() as view:
            for chunk, lowest in self._newest_first(view):
                if chunk.first_key >= below:
                    continue
                bounds, missing = (lowest, below), limit + 1 - len(rows)
                found = (
                    tables.newest_rows(view.db, chunk.number, bounds, missing)
                    if plain
                    else tables.found_rows(view.db, chunk.number, match, bounds, missing)
                )
                rows += [
                    FoundRow(self.reading.row(values[:-1]), pieces(values[-1], query))
                    for values in found
                    if chunk.alive[values[0] - chunk.first_key]
                ]
                if len(rows) > limit:
                    return Found(rows[:limit], more=True, before=rows[limit - 1].row.key)
        return Found(rows, more=False, before=None)

    def counted(self, query: Query, lang: str | None, unsure_below: float) -> Counted:
        """Count the newest rows that match; see `RecentStore.counted`."""
        if query.is_everything:
            rows = self._everything(self._lang_code(lang))
            return counted(
                rows,
                len(self.reading.classes),
                unsure_below,
                n_max=self.bounds.messages_max,
                newest_only=False,
            )
        keys = self.keys(query, lang, COUNTED_MAX + 1)
        return counted(
            [picked(*part) for part in self.located(keys[-COUNTED_MAX:])],
            len(self.reading.classes),
            unsure_below,
            n_max=COUNTED_MAX,
            newest_only=len(keys) > COUNTED_MAX,
        )

    def keys(self, query: Query, lang: str | None, n_max: int) -> Keys:
        """Return the keys of the newest rows that match, ascending, `n_max` at most."""
        code = self._lang_code(lang)
        match = expression(query, code)
        found: list[Keys] = []
        missing = 0 if code == _NO_LANG else n_max
        with self._view() as view:
            for chunk, lowest in self._newest_first(view):
                if missing <= 0:
                    break
                keys = tables.matching_keys(view.db, chunk.number, match, lowest, missing)
                keys = np.sort(keys[chunk.alive[keys - chunk.first_key]])
                found.append(keys)
                missing -= len(keys)
        return np.concatenate(found[::-1]) if found else np.zeros(0, np.int64)

    def located(self, keys: Keys) -> Parts:
        """Return where the rows of some keys, ascending, lie, of those that are held."""
        return located(self.published(), self._cutoff_ms(), keys)

    @property
    def oldest_key(self) -> int:
        """A key below which no row is held; larger than all keys where none is."""
        cutoff_ms = self._cutoff_ms()
        shown = [c for c in self.published() if c.n_committed and c.newest_ms >= cutoff_ms]
        return shown[0].first_since(cutoff_ms) if shown else tables.KEY_LAST

    def get(self, id: str) -> MessageRow | None:  # noqa: A002 -- it is one
        """Return the newest row of an id."""
        crcs = np.array([crc_of(id)], np.uint32)
        with self._view() as view:
            for chunk, lowest in self._newest_first(view):
                keys = [
                    key
                    for key in chunk.with_crcs(crcs)
                    if key >= lowest and chunk.alive[key - chunk.first_key]
                ]
                if not keys:
                    continue
                for values in tables.rows_with_keys(view.db, chunk.number, keys):
                    if values[1] == id:
                        return self.reading.row(values[:-1])
        return None

    def languages(self) -> list[str]:
        """Return the languages held, most frequent first."""
        names = list(self.contents.langs.names)
        counts = np.zeros(len(names), np.int64)
        for chunk in self.published():
            codes = chunk.columns["lang_code"][: chunk.n_committed]
            codes = codes[chunk.alive[: len(codes)]]
            counts += np.bincount(codes, minlength=len(names))[: len(names)]
        counts[0] = 0  # unknown
        order = np.argsort(-counts, kind="stable")[:LANGUAGES_MAX]
        return [names[code] for code in order.tolist() if counts[code]]

    def close(self) -> None:
        """Close the connections, once those who use them are done."""
        self._is_closed = True
        for _ in range(_READERS):
            with contextlib.suppress(queue.Empty):
                db = self._readers.get(timeout=2 * LIMIT_S)
                if db is not None:
                    db.close()

    def _everything(self, code: int | None) -> list[Picked]:
        """Return all rows, those of a language where one is asked for, the file untouched."""
        cutoff_ms = self._cutoff_ms()
        parts = []
        for chunk in self.published():
            part = slice(chunk.first_since(cutoff_ms) - chunk.first_key, chunk.n_committed)
            shown = chunk.alive[part]
            if code is not None:
                shown = shown & (chunk.columns["lang_code"][part] == code)
            whole = bool(shown.all())  # as nearly always: then nothing has to be copied
            parts.append(picked(chunk, part if whole else np.flatnonzero(shown) + part.start))
        return parts

    def _newest_first(self, view: StoreView) -> Iterator[tuple[Chunk, int]]:
        """Yield chunks, each with the lowest key to show, for as long as there is time."""
        for chunk in view.chunks:
            if self.clock() >= view.until_s:
                raise QueryError(
                    f"The search took longer than {LIMIT_S:g} s; ask for something rarer, or leave"
                    " out beginnings of words."
                )
            if chunk.newest_ms >= view.cutoff_ms:
                yield chunk, chunk.first_since(view.cutoff_ms)

    @contextlib.contextmanager
    def _view(self) -> Iterator[StoreView]:
        """Look at one state of the file."""
        until_s = self.clock() + LIMIT_S
        with self._reader() as db:
            try:
                db.execute("BEGIN")
                there = tables.numbers(db)
                chunks = [chunk for chunk in reversed(self.published()) if chunk.number in there]
                yield StoreView(db, chunks, self._cutoff_ms(), until_s)
            except sqlite3.OperationalError as error:
                raise QueryError(f"The store cannot be searched just now: {error}.") from error
            except sqlite3.DatabaseError as error:
                self.damaged(str(error))
                raise QueryError(
                    "The store turned out to be damaged and begins anew; search again in a moment."
                ) from error
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

    @contextlib.contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        """Borrow a connection."""
        try:
            db = self._readers.get(timeout=LIMIT_S)
        except queue.Empty:
            raise QueryError("Too many searches run at once; search again in a moment.") from None
        try:
            if self._is_closed:
                raise QueryError("The store is closed.")
            if db is None:
                db = connect(self.path, is_reader=True)
            yield db
        except sqlite3.OperationalError as error:  # it could not be opened
            raise QueryError(f"The store cannot be searched just now: {error}.") from error
        finally:
            self._readers.put(db)

    def _cutoff_ms(self) -> int:
        return self.bounds.cutoff_ms(int(self.wall_clock() * 1000))

    def _lang_code(self, lang: str | None) -> int | None:
        """Return a language's number; `_NO_LANG` where no message is of it, None for any."""
        return self.contents.langs.codes.get(lang, _NO_LANG) if lang else None
