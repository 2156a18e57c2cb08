"""Keeps rows: puts them in, corrects and removes them, and lets go of the oldest.

The writer's thread alone comes in here. What waits is done in one transaction, in its order; other
threads see it once it is committed, and `published` is then what they need to know beside the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from consumers.messages import Partition
from consumers.search import tables
from consumers.search.chunk import Chunk
from consumers.search.deduplication import At, Deduplicator, Held, not_behind
from consumers.search.file import (
    Contents,
    is_unpurged,
    mark_unpurged,
    open_file,
    place_name,
    unmark_unpurged,
)
from consumers.search.row_builder import crc_of, placed, some, values_of
from consumers.search.row_mapper import RowMapper
from consumers.search.rows import Change
from consumers.search.sampler import Correct, Item, Offer, Remove
from consumers.search.tables import Retention, Values

PURGE_AFTER_S = 10.0  # how long words of removed rows may stay in the file


@dataclass(slots=True)
class Applied:
    """What a transaction has changed.

    Attributes
    ----------
    values : list of tuple
        The rows that are new, in the order of `tables.COLUMNS`.
    changes : list of Change
        What people and the stream changed.
    n_known : int
        Messages that came again.
    """

    values: list[Values] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    n_known: int = 0


class Transactions:
    """The store's only writer.

    Parameters
    ----------
    path : Path
    bounds : Retention
    classes : sequence of str
        The model's.
    clock : callable
        Monotonic seconds.
    first_key : int
        Of the first row, where the file holds none.

    Attributes
    ----------
    contents : Contents
        Also for readers, who look up names there.
    reading : RowMapper
        What its numbers stand for.
    published : tuple of Chunk
        Those that are safe in the file, oldest first.
    next_key : int
        Above all keys of rows that were let go.

    Raises
    ------
    sqlite3.OperationalError
        Where the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        bounds: Retention,
        classes: Sequence[str],
        clock: Callable[[], float],
        first_key: int = 1,
    ) -> None:
        self._path = path
        self._bounds = bounds
        self._clock = clock
        self._codes: dict[str | None, int | None] = {name: c for c, name in enumerate(classes)}
        self._codes[None] = None
        self.contents: Contents = open_file(path, classes, bounds.chunk_rows)
        self.reading = RowMapper(tuple(classes), self.contents.places.names)
        self._db = self.contents.db
        self._chunks = list(self.contents.chunks)
        self.published = tuple(self._chunks)
        self._waiting: list[Values] = []  # rows that are in their chunk's columns, not in a table
        self._known = Deduplicator(
            self.contents.gone, self._chunks, len(self.contents.places.names)
        )
        # A kill may have come between a removal and the purge. Of an index that is one piece
        # already, purging costs nothing.
        self._purged_s = clock()
        for chunk in self._chunks:
            chunk.dirty_since_s = self._purged_s if chunk.n_gone else None
        self._log_holds_words = True  # of rows that were removed
        self._is_marked = is_unpurged(path)
        self.next_key, self._next_number = first_key, 1

    def apply(self, items: Sequence[Item], n_offered: int) -> Applied:
        """Do what waits, all of it or nothing.

        Parameters
        ----------
        items : sequence of Item
        n_offered : int
            How many messages came since the last time.

        Raises
        ------
        sqlite3.Error
            Where it cannot be written: then nothing was.
        """
        done = Applied()
        with self._transaction():
            for item in items:
                self._apply(item, done)
            self._write()
            if self._chunks:
                # What came again has been counted before.
                self._chunks[-1].n_offered += max(0, n_offered - done.n_known)
            self._save()
        return done

    def let_go(self, now_ms: int) -> None:
        """Drop chunks whose every row is too old."""
        old = [chunk for chunk in self._chunks if chunk.newest_ms < self._bounds.cutoff_ms(now_ms)]
        if old:
            with self._transaction():
                for chunk in old:
                    self._drop(chunk)

    def purge(self, *, at_once: bool = False) -> None:
        """Take the words of removed rows out of the file: a chunk at a time, at most one a second.

        At once: all of them.
        """
        now_s = self._clock()
        if not at_once and now_s - self._purged_s < 1.0:
            return
        wait_s = 0.0 if at_once else PURGE_AFTER_S
        due = [
            chunk
            for chunk in self._chunks
            if chunk.dirty_since_s is not None and now_s - chunk.dirty_since_s >= wait_s
        ]
        for chunk in due if at_once else due[:1]:
            tables.make_one(self._db, chunk.number)
            chunk.dirty_since_s = None
            self._purged_s = now_s
            self._log_holds_words = True
        if self._log_holds_words:
            # What was overwritten in the file still stands in the log beside it. As long as
            # somebody reads there, it cannot be emptied.
            (busy, _, _) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._log_holds_words = bool(busy)
        if any(chunk.dirty_since_s is not None for chunk in self._chunks):
            self._mark()
        elif self._is_marked and not self._log_holds_words:
            unmark_unpurged(self._path)
            self._is_marked = False

    def _mark(self) -> None:
        if not self._is_marked:
            mark_unpurged(self._path)
            self._is_marked = True

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing, and publish it once it is safe."""
        before = self._known.state()
        figures = [(chunk, chunk.figures()) for chunk in self._chunks]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._take_back()
            self._known.restore(before)
            for chunk, were in figures:
                chunk.go_back(were)
            raise
        self._publish()

    def _apply(self, item: Item, done: Applied) -> None:
        if isinstance(item, Offer):
            self._store(item, done)
            return
        self._write()
        if isinstance(item, Correct):
            self._correct(item, done)
            return
        if isinstance(item, Remove):
            held = self._bury(item)
        else:
            place = self.contents.places.code(place_name(item.at[0]))
            last = dict(zip(item.ids, item.at[1], strict=True))
            held = not_behind(self._held(item.ids), place, last)
        self._remove(held)
        removed = dict.fromkeys(one.id for one in held)
        done.changes += [Change(name, None, removed=True) for name in removed]

    def _correct(self, item: Correct, done: Applied) -> None:
        alive = [one for one in self._held([item.id]) if one.chunk.is_alive(one.key)]
        newest = alive[-1:]
        if item.at is not None:
            at = self._at(item.at)
            alive = [one for one in alive if one.at == at]
            if not alive:
                self._known.expect(item, at)
        for one in alive[-1:]:
            label = self._codes[item.label]
            tables.teach(self._db, one.chunk.number, one.key, label, item.part)
            if [one] == newest:  # which is the one that people see by this id
                done.changes.append(Change(item.id, item.label, removed=False))

    def _bury(self, item: Remove) -> list[Held]:
        """Remember what is removed for good, and return which rows that are."""
        held, places = self._held([item.id]), []
        if item.at is not None:
            places = [self._at(item.at)]
            held = not_behind(held, places[0][0], {item.id: places[0][1]})
        places += [one.at for one in held]
        self._known.bury(self._db, dict.fromkeys(places, crc_of(item.id)))
        return held

    def _at(self, place: tuple[Partition, int]) -> At:
        return self.contents.places.code(place_name(place[0])), place[1]

    def _store(self, offer: Offer, done: Applied) -> None:
        """Take in an offer; it is written with others."""
        place = self.contents.places.code(place_name(offer.partition))
        chosen, replaced = self._known.unknown(offer, place, self._chunks)
        if replaced:
            self._write()
            self._remove(replaced)
        done.n_known += len(offer) - len(chosen)
        while len(chosen):
            chunk = self._chunk_with_room(offer.columns["arrived_ms"][0])
            n = min(len(chosen), chunk.capacity - chunk.n)
            columns = placed(
                some(offer.columns, chosen[:n].tolist()),
                chunk.next_key,
                place,
                self.contents.lang_code,
            )
            said = self._known.said_of(columns["id"], place, columns["offset"])
            for k, correct in said.items():
                columns["taught"][k] = columns["corrected"][k] = self._codes[correct.label]
                columns["taught_part"][k] = correct.part
            values = values_of(columns)
            chunk.add(columns)
            self._waiting += values
            done.values += values
            chosen = chosen[n:]

    def _chunk_with_room(self, now_ms: int) -> Chunk:
        """Return the newest chunk; where it is full, a new one, for which old ones may go."""
        newest = self._chunks[-1] if self._chunks else None
        if newest is not None and not self._bounds.is_full(newest, now_ms):
            return newest
        self._write()
        if newest is not None:
            tables.make_one(self._db, newest.number)
            self._log_holds_words |= newest.dirty_since_s is not None
            newest.dirty_since_s = None
        while self._chunks and self._bounds.is_beyond(self._chunks, self._n_bytes()):
            self._drop(self._chunks[0])
        first_key = self.next_key if newest is None else newest.next_key
        number = self._next_number if newest is None else newest.number + 1
        chunk = Chunk(number, first_key, self._bounds.chunk_rows)
        tables.create(self._db, number)
        self._db.execute("INSERT INTO chunk VALUES (?, ?, ?, 0, 0)", (number, first_key, first_key))
        self._chunks.append(chunk)
        return chunk

    def _drop(self, chunk: Chunk) -> None:
        self.next_key = max(self.next_key, chunk.next_key)
        self._next_number = max(self._next_number, chunk.number + 1)
        self._log_holds_words |= chunk.dirty_since_s is not None
        tables.drop(self._db, chunk.number)
        self._db.execute("DELETE FROM chunk WHERE number = ?", (chunk.number,))
        self._chunks.remove(chunk)

    def _n_bytes(self) -> int:
        """Return how many bytes of the file are in use."""
        counts = [
            int(self._db.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        ]
        return (counts[0] - counts[1]) * counts[2]

    def _write(self) -> None:
        """Write rows that are made; they all belong to the newest chunk."""
        if self._waiting:
            tables.insert(self._db, self._chunks[-1].number, self._waiting)
            self._waiting = []

    def _held(self, ids: Sequence[str]) -> list[Held]:
        """Return the rows of some ids, oldest first."""
        crcs = np.array([crc_of(name) for name in ids], np.uint32)
        wanted = set(ids)
        held: list[Held] = []
        for chunk in self._chunks:
            keys = chunk.with_crcs(crcs)
            if keys:
                found = tables.ids_of(self._db, chunk.number, keys)
                held += [Held(chunk, key, name) for key, name in found if name in wanted]
        return held

    def _remove(self, held: Sequence[Held]) -> None:
        """Delete rows; they are not shown any more from here on, even if the disk is full."""
        by_chunk: dict[int, tuple[Chunk, list[int]]] = {}
        for one in held:
            by_chunk.setdefault(one.chunk.number, (one.chunk, []))[1].append(one.key)
        for chunk, keys in by_chunk.values():
            chunk.kill(keys)
        if by_chunk:
            self._mark()  # before their words may stand in the file alone
        for chunk, keys in by_chunk.values():
            tables.delete(self._db, chunk.number, keys)
            if chunk.dirty_since_s is None:
                chunk.dirty_since_s = self._clock()

    def _save(self) -> None:
        """Write what is told of chunks, places and languages."""
        if self._chunks:
            newest = self._chunks[-1]
            self._db.execute(
                "UPDATE chunk SET next_key = ?, n_offered = ?, n_bytes = ? WHERE number = ?",
                (newest.next_key, newest.n_offered, newest.n_bytes, newest.number),
            )
        for table, register in (("place", self.contents.places), ("lang", self.contents.langs)):
            for code in range(register.n_saved, len(register.names)):
                self._db.execute(
                    f"INSERT INTO {table} VALUES (?, ?)",  # noqa: S608 -- one of two names of ours
                    (code, register.names[code]),
                )

    def _publish(self) -> None:
        for register in (self.contents.places, self.contents.langs):
            register.n_saved = len(register.names)
        for chunk in self._chunks:
            chunk.n_committed = chunk.n
        self.published = tuple(self._chunks)

    def _take_back(self) -> None:
        """Go back to what the file holds."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._waiting = []
        self._chunks = list(self.published)
