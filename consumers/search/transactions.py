"""Keeps rows: puts them in, corrects and removes them, and lets go of the oldest.

The writer's thread alone comes in here. What waits is done in one transaction, in its order; other
threads see it once it is committed, and `published` is then what they need to know beside the file.

No message is kept twice after a restart: it is known by its place in the stream. One that comes
again is not stored: the row that is there wins, with what a person corrected, and one that was
removed for good stays away. What a person said of a message that is not there yet waits for it:
if the file was lost, the log of corrections is read back before the stream brings the messages
again. Only if a place held a message of another id was the stream itself begun again: then the new
one is stored. One that was left out stays so: `writer.OfferedBefore`. One that has left the store
is not known any more: it is stored and shown again, and `history` counts it once. To ask costs next
to nothing as long as the stream goes forward: each message lies behind all that were held.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby, product
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray

from consumers.messages import Partition, account_of, part_name
from consumers.search import database, history, rows
from consumers.search.chunks import Chunk, Retention, note_changed, pack, save_strata
from consumers.search.rows import Change, RowMapper, crc_of, crcs_of, placed
from consumers.search.sampler import Correct, Forget, Labelled, Offer, QueuedItem, Remove, WriteMark

GONE_MAX = 50_000  # messages of which it is remembered that they were removed for good
EXPECTED_MAX = 50_000  # corrections of messages that are not held
PURGE_AFTER_S = 10.0  # how long words of removed rows may stay in the file
CHANGED_MAX = 1_000  # rows of a packed chunk that changed since, about; or an eighth of its rows
At: TypeAlias = tuple[int, int]  # place and offset
Gone: TypeAlias = dict[At, int]  # → checksum of the id


class Held(NamedTuple):
    """A row that the file holds."""

    chunk: Chunk
    key: int
    id: str
    arrived_ms: int = 0  # as the clock had it then; memory has one that never goes back

    @property
    def at(self) -> At:
        """Its place in the stream."""
        own, i = self.chunk.columns, self.key - self.chunk.first_key
        return int(own["place"][i]), int(own["offset"][i])

    @property
    def judged(self) -> tuple[bool, int, int]:
        """If it is labelled, when it came, and the number of its class."""
        own, i = self.chunk.columns, self.key - self.chunk.first_key
        return bool(own["truth"][i] >= 0), self.arrived_ms, int(own["label"][i])


def is_behind(one: Held, last: Mapping[int, int]) -> bool:
    """Return whether a row stands behind all deletions of its id, by the last of each partition.

    A deletion of another partition names all rows of the id.
    """
    return all(one.at[0] == place and one.at[1] > offset for place, offset in last.items())


class Deduplicator:
    """What is known of places in the stream; of messages not held no more than `expected_max`."""

    def __init__(self, gone: Gone, chunks: Sequence[Chunk]) -> None:
        self._gone = gone
        self.expected_max = EXPECTED_MAX
        self._expected: dict[At, Correct] = {}  # what was said of messages that are not held
        # Messages with a label and those without come in order each, but not together: they are
        # judged on different threads.
        self._highest: dict[tuple[int, bool], int] = {}
        for chunk in chunks:
            for (place, kind), offset in chunk.highest_offsets().items():
                self._raise(place, kind, np.array([offset]))
        for (place, offset), kind in product(gone, (False, True)):
            self._raise(place, kind, np.array([offset]))

    def state(self) -> tuple[Gone, dict[tuple[int, bool], int]]:
        """Return what `restore` needs to come back to now."""
        return dict(self._gone), dict(self._highest)

    def restore(self, state: tuple[Gone, dict[tuple[int, bool], int]]) -> None:
        """Come back to what was known before a transaction that failed."""
        self._gone, self._highest = state

    def unknown(
        self, offer: Offer, place: int, chunks: Sequence[Chunk]
    ) -> tuple[NDArray[np.int64], list[Held]]:
        """Return which rows of an offer are to be stored, and held rows that must go for them."""
        offsets = np.array(offer.columns["offset"], np.int64)
        labelled = np.array([truth is not None for truth in offer.columns["truth"]], np.bool_)
        is_new = np.ones(len(offsets), np.bool_)
        replaced: list[Held] = []
        for kind in (False, True):
            own = labelled == kind
            again = np.flatnonzero(own & (offsets <= self._highest.get((place, kind), -1)))
            if len(again):
                is_new[again] = self._look(offer, place, again, chunks, replaced)
            self._raise(place, kind, offsets[own])
        return np.flatnonzero(is_new), replaced

    def expect(self, said: Correct, at: At) -> None:
        """Remember what was said of a message that is not held, in case it is still to come."""
        self._expected.pop(at, None)
        if at not in self._gone:
            self._expected[at] = said
        while len(self._expected) > self.expected_max:
            del self._expected[next(iter(self._expected))]

    def said_of(self, ids: Sequence[str], place: int, offsets: Sequence[int]) -> dict[int, Correct]:
        """Return what was said of some messages before they came, by their position."""
        if not self._expected:
            return {}
        found = {k: self._expected.get((place, offset)) for k, offset in enumerate(offsets)}
        return {k: said for k, said in found.items() if said is not None and said.id == ids[k]}

    def bury(self, db: sqlite3.Connection, crcs: Gone) -> None:
        """Remember that messages were removed, in case the stream brings them again."""
        for (place, offset), crc in crcs.items():
            self._gone[place, offset] = crc
            self._expected.pop((place, offset), None)
            for kind in (False, True):  # one that is still to come must not pass unseen
                self._raise(place, kind, np.array([offset]))
            db.execute("INSERT INTO gone VALUES (?, ?, ?)", (place, offset, crc))
        while len(self._gone) > GONE_MAX:
            del self._gone[next(iter(self._gone))]
        db.execute("DELETE FROM gone WHERE rowid <= (SELECT max(rowid) FROM gone) - ?", (GONE_MAX,))

    def _look(
        self,
        offer: Offer,
        place: int,
        again: NDArray[np.int64],
        chunks: Sequence[Chunk],
        replaced: list[Held],
    ) -> list[bool]:
        """Return which of the rows `again`, of places that lie behind, were not stored before."""
        offsets = np.array(offer.columns["offset"], np.int64)[again]
        held: dict[int, tuple[Chunk, int]] = {}
        for chunk in chunks:
            at = chunk.at_offsets(place, offsets)
            held |= {offset: (chunk, key) for offset, key in at.items()}
        is_new = []
        crcs = [offer.columns["id_crc"][k] for k in again.tolist()]
        for crc, offset in zip(crcs, offsets.tolist(), strict=True):
            if offset not in held:
                is_new.append(self._gone.get((place, offset)) != crc)
                continue
            chunk, key = held[offset]
            same = int(chunk.columns["id_crc"][key - chunk.first_key]) == crc
            if not same and chunk.is_alive(key):
                replaced.append(Held(chunk, key, ""))
            is_new.append(not same)
        return is_new

    def _raise(self, place: int, kind: bool, offsets: NDArray[np.int64]) -> None:
        highest = self._highest.get((place, kind), -1)
        self._highest[place, kind] = int(offsets.max(initial=highest))


class Applied(msgspec.Struct):
    """What a transaction has changed."""

    values: list[database.RowValues] = field(default_factory=list)  # of the rows that are new
    changes: list[Change] = field(default_factory=list)  # what people and the stream changed


class Transactions:
    """The store's only writer.

    `contents`, `mapper` and the readers are for searches too; `published` are the chunks that are
    safe in the file, oldest first. A file without rows begins with `first_key`. `history_steps`
    are how many steps of history are kept, by their length in seconds, and `words_max` words of
    each; None: nothing is counted.
    `sqlite3.OperationalError`: the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        bounds: Retention,
        classes: Sequence[str],
        clock: Callable[[], float],
        first_key: int = 1,
        history_steps: Mapping[int, int] | None = None,
        words_max: int = 0,
    ) -> None:
        self._path = path
        self._bounds = bounds
        self._clock = clock
        self._classes, self._n_classes_listed = classes, 0
        self.contents = database.open_file(path, classes, bounds.chunk_rows)
        self.mapper = RowMapper(classes, self.contents.places.names, self.contents.classes)
        self.readers = database.Readers(path)
        self.export_readers = database.Readers(path, 1, database.EXPORT_CACHE_KIB)
        self._db = self.contents.db
        self._chunks = list(self.contents.chunks)
        self.published = tuple(self._chunks)
        # Rows that are in their chunk's columns, and not yet in a table.
        self._waiting: list[database.RowValues] = []
        self._known = Deduplicator(self.contents.gone, self._chunks)
        # A kill may have come between a removal and the purge. Of an index that is one piece
        # already, purging costs nothing.
        self._purged_s = self._packed_s = clock()
        for chunk in self._chunks:
            chunk.dirty_since_s = self._purged_s if chunk.n_gone else None
        self._log_holds_words = True  # of rows that were removed
        self._is_marked = database.is_unpurged(path)
        # Above those of all rows that were let go.
        next_key, self._next_number = history.next_chunk(self._db)
        self.next_key = max(first_key, next_key)
        self._history_steps, self._words_max = history_steps, words_max if history_steps else 0
        next_key = max([self.next_key, *(chunk.next_key for chunk in self._chunks)])
        is_on = history_steps is not None
        self._counted_since = history.counted_since(self._db, next_key, is_on=is_on)
        history.words_since(self._db, self._chunks, is_on=self._words_max > 0)

    def counted(self, table: str = "counted") -> dict[history.Stretch, int]:
        """Return how far each partition was counted for the history, or is by another table."""
        partitions = [database.partition_at(name) for name in self.contents.places.names]
        return history.counted(self._db, partitions, table)

    def apply(
        self, items: Sequence[QueuedItem], n_left_out: int,
        counts: history.Uncounted | None = None, n_lost: int = 0,
    ) -> Applied:  # fmt: skip
        """Do what waits, all of it or nothing; behind it `n_left_out` messages were not taken.

        `n_lost` are those that a fault lost before: no row stands for them. `counts` are new in
        the history. `sqlite3.Error`: it cannot be written, and nothing was.
        """
        done = Applied()
        with self._transaction():
            if counts is not None and self._history_steps is not None:
                history.write(self._db, counts, self.contents.place_code, self._history_steps)
            for is_forget, own in groupby(items, lambda item: isinstance(item, Forget)):
                if is_forget:
                    self._forget([item for item in own if isinstance(item, Forget)], done)
                    continue
                for item in own:
                    self._apply(item, done)
            self._write()
            if self._chunks:
                self._chunks[-1].n_offered += n_lost
                rows.note_offered(self._chunks[-1], 0, n_left_out, self._chunks[-1].newest_ms)
        return done

    def let_go(self, now_ms: int) -> None:
        """Drop chunks whose every row is too old, or one of them if its words are counted first."""
        ends_ms = [*(chunk.oldest_ms for chunk in self._chunks[1:]), now_ms]
        old = [
            chunk
            for chunk, end_ms in zip(self._chunks, ends_ms, strict=False)
            # If the clock was put back, a chunk may be of the future: it came before the next one.
            if (chunk.newest_ms if chunk.newest_ms <= now_ms else end_ms)
            < self._bounds.cutoff_ms(now_ms)
        ]
        if old:
            with self._transaction():
                for chunk in old[:1] if self._words_max else old:
                    self._drop(chunk, now_ms)

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
            database.make_one(self._db, chunk.number)
            if chunk.is_packed and chunk.n_changed:
                with self._transaction():  # no figure of a removed row stays either
                    pack(self._db, chunk)
            chunk.dirty_since_s = None
            self._purged_s = now_s
            self._log_holds_words = True
        if self._log_holds_words:
            # What was overwritten in the file still stands in the log beside it. As long as
            # somebody reads there, it cannot be emptied.
            emptied = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._log_holds_words = bool(emptied.fetchone()[0])
        if any(chunk.dirty_since_s is not None for chunk in self._chunks):
            self._mark()
        elif self._is_marked and not self._log_holds_words:
            database.unmark_unpurged(self._path)
            self._is_marked = False

    def pack(self) -> None:
        """Pack a full chunk that is not packed, or no longer so: at most one a second.

        A chunk is packed when it is full; this is for files that 0.1.0 wrote, and after changes.
        """
        now_s = self._clock()
        if now_s - self._packed_s < 1.0:
            return
        for chunk in self._chunks[:-1]:
            if not chunk.is_packed or chunk.n_changed > max(CHANGED_MAX, chunk.n // 8):
                self._packed_s = now_s
                with self._transaction():
                    pack(self._db, chunk)
                if chunk.is_packed:
                    return

    def _mark(self) -> None:
        if not self._is_marked:
            database.mark_unpurged(self._path)
            self._is_marked = True

    def close(self) -> None:
        """Close the file, once those who search it are done."""
        for each in (self.readers, self.export_readers, self._db):
            each.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing, and publish it once it is safe."""
        before, figures = self._known.state(), [(own, own.figures()) for own in self._chunks]
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._save()  # each time: names may be left from a transaction that failed
            self._db.execute("COMMIT")
        except BaseException:
            self._take_back()
            self._known.restore(before)
            for chunk, were in figures:
                chunk.go_back(were)
            raise
        self._publish()

    def _apply(self, item: QueuedItem, done: Applied) -> None:
        if isinstance(item, Offer):
            self._store(item, done)
        elif isinstance(item, WriteMark):
            history.note_offered(self._db, item.offered, self.contents.place_code)
        else:
            self._write()
        if isinstance(item, Correct):
            self._correct(item, done)
        elif isinstance(item, Remove):
            self._let_go_of(self._bury(item), done)
        elif isinstance(item, Labelled):
            self._label(item)

    def _forget(self, items: Sequence[Forget], done: Applied) -> None:
        """Remove what deletions of the stream name, in one go: no message came between them."""
        ids, accounts = (
            set(chain.from_iterable(item.ids for item in items if item.of_accounts is of_accounts))
            for of_accounts in (False, True)
        )
        # Of a fast stream hardly any of them are held.
        held = self._held(list(ids))
        if accounts:
            self._write()
            more = self._held_of(accounts)
            held += [one for one in more if one.id not in ids]
        # Of an id, or of an account: a row stands behind all deletions of either.
        last: dict[tuple[str | None, bool], dict[int, int]] = {}
        for one in held:
            last[one.id, False], last[account_of(one.id), True] = {}, {}
        for item in items if held else ():
            place = self.contents.place_code(item.at[0])
            for name, offset in zip(item.ids, item.at[1], strict=True):
                own = last.get((name, item.of_accounts))
                if own is not None:
                    own[place] = max(offset, own.get(place, offset))
        self._let_go_of(
            [
                one
                for one in held
                if not is_behind(one, last[one.id, False])
                or not is_behind(one, last[account_of(one.id), True])
            ],
            done,
        )

    def _let_go_of(self, held: Sequence[Held], done: Applied) -> None:
        self._remove(held)
        if self._history_steps is not None:
            counted = [one for one in held if one.key >= self._counted_since]
            history.take_out(self._db, [(one.key, one.at, *one.judged) for one in counted])
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
            label = self._code_of(item.label)
            database.teach(self._db, one.chunk.number, one.key, label, item.part)
            note_changed(self._db, one.chunk, [one.key])
            one.chunk.correct(one.key, label)
            if [one] == newest:  # which is the one that people see by this id
                done.changes.append(Change(item.id, item.label, removed=False))

    def _label(self, item: Labelled) -> None:
        """Note what rows teach by labels that came later, unless a person has said it."""
        place, part = self.contents.place_code(item.partition), part_name(item.partition)
        said = zip(item.offsets, item.labels, strict=True)
        labels = {at: self._classes.index(label) for at, label in said if label in self._classes}
        offsets = np.array(list(labels), np.int64)
        for chunk in self._chunks:
            own = {name: column[: chunk.n] for name, column in chunk.columns.items()}
            is_wanted = (own["place"] == place) & (own["corrected"] < 0) & chunk.alive[: chunk.n]
            at = np.flatnonzero(is_wanted & np.isin(own["offset"], offsets)).tolist()
            taught = [(chunk.first_key + i, labels[int(own["offset"][i])]) for i in at]
            note_changed(self._db, chunk, [key for key, _ in taught])
            for key, label in taught:
                database.teach(self._db, chunk.number, key, label, part, by_person=False)
            own["late"][at] = np.where(own["truth"][at] < 0, [label for _, label in taught], -1)

    def _bury(self, item: Remove) -> list[Held]:
        """Remember what is removed for good, and return which rows that are."""
        held, places = self._held([item.id]), []
        if item.at is not None:
            places = [self._at(item.at)]
            last = {places[0][0]: places[0][1]}
            held = [one for one in held if not is_behind(one, last)]
        places += [one.at for one in held]
        self._known.bury(self._db, dict.fromkeys(places, crc_of(item.id)))
        return held

    def _code_of(self, label: str | None) -> int | None:
        return None if label is None else self._classes.index(label)

    def _at(self, place: tuple[Partition, int]) -> At:
        return self.contents.place_code(place[0]), place[1]

    def _store(self, offer: Offer, done: Applied) -> None:
        """Take in an offer; it is written with others."""
        place = self.contents.place_code(offer.partition)
        chosen, replaced = self._known.unknown(offer, place, self._chunks)
        if replaced:
            self._write()
            keys = [one.key for one in replaced]
            history.begin_again(self._db, self._chunks, place, offer.columns, keys)
            self._remove(replaced)
        n_stored = 0
        if not len(offer) and self._chunks:  # all of it was left out while it waited
            rows.note_offered(self._chunks[-1], 0, offer.n_left_out, self._chunks[-1].newest_ms)
        while len(chosen):
            chunk = self._chunk_with_room(offer.columns["arrived_ms"][0])
            n = min(len(chosen), chunk.capacity - chunk.n)
            own = offer.some(chosen[:n]).columns
            columns = placed(own, chunk.next_key, place, self.contents.lang_code)
            said = self._known.said_of(columns["id"], place, columns["offset"])
            for k, correct in said.items():
                columns["taught"][k] = columns["corrected"][k] = self._code_of(correct.label)
                columns["taught_part"][k] = correct.part
            values = list(zip(*[columns[name] for name in database.COLUMNS], strict=True))
            chunk.add(columns)
            # Each stands for as many that were left out; so do those that are not stored again.
            n_before, n_stored = n_stored, n_stored + n
            ends = [offer.n_left_out * k // len(offer) for k in (n_before, n_stored)]
            rows.note_offered(chunk, n, ends[1] - ends[0], columns["arrived_ms"][0], offer.share)
            self._waiting += values
            done.values += values
            chosen = chosen[n:]

    def _chunk_with_room(self, now_ms: int) -> Chunk:
        """Return the newest chunk; if it is full, a new one, for which old ones may go."""
        newest = self._chunks[-1] if self._chunks else None
        if newest is not None and not self._bounds.is_full(newest, now_ms):
            return newest
        self._write()
        if newest is not None:
            self._save_figures(newest)
            database.make_one(self._db, newest.number)
            pack(self._db, newest)
            self._log_holds_words |= newest.dirty_since_s is not None
            newest.dirty_since_s = None
        n_bytes = partial(history.message_bytes, self._db)
        while self._chunks and self._bounds.is_beyond(self._chunks, n_bytes()):
            self._drop(self._chunks[0], now_ms)
        first_key = self.next_key if newest is None else newest.next_key
        number = self._next_number if newest is None else newest.number + 1
        chunk = Chunk(number, first_key, self._bounds.chunk_rows)
        database.create(self._db, number)
        self._db.execute("INSERT INTO chunk VALUES (?, ?, ?, 0, 0)", (number, first_key, first_key))
        self._chunks.append(chunk)
        rows.forget_old_fields(self._chunks)
        return chunk

    def _drop(self, chunk: Chunk, now_ms: int) -> None:
        history.count_left(self._db, chunk, self._history_steps or {}, self._words_max, now_ms)
        self.next_key = max(self.next_key, chunk.next_key)
        self._next_number = max(self._next_number, chunk.number + 1)
        self._log_holds_words |= chunk.dirty_since_s is not None
        database.drop(self._db, chunk.number)
        self._db.execute("DELETE FROM chunk WHERE number = ?", (chunk.number,))
        self._chunks.remove(chunk)

    def _write(self) -> None:
        """Write rows that are made; they all belong to the newest chunk."""
        if self._waiting:
            database.insert(self._db, self._chunks[-1].number, self._waiting)
            self._waiting = []

    def _held(self, ids: Sequence[str]) -> list[Held]:
        """Return the rows of some ids, oldest first."""
        crcs, wanted = crcs_of(ids), set(ids)
        held: list[Held] = []
        for chunk in self._chunks:
            keys = chunk.with_crcs(crcs)
            if keys:
                self._write()
                found = database.ids_of(self._db, chunk.number, keys)
                held += [Held(chunk, *one) for one in found if one[1] in wanted]
        return held

    def _held_of(self, accounts: Collection[str]) -> list[Held]:
        """Return the rows of some accounts, oldest first."""
        crcs = crcs_of(accounts)
        held: list[Held] = []
        for chunk in self._chunks:
            keys = chunk.with_accounts(crcs, partial(self._account_crcs, chunk.number))
            if keys:
                found = database.ids_of(self._db, chunk.number, keys)
                held += [Held(chunk, *one) for one in found if account_of(one[1]) in accounts]
        return held

    def _account_crcs(self, number: int, since: int) -> Iterator[tuple[int, int]]:
        for key, name in database.ids_since(self._db, number, since):
            account = account_of(name)
            if account is not None:
                yield key, crc_of(account)

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
            chunk.n_deleted += database.delete(self._db, chunk.number, keys)
            note_changed(self._db, chunk, keys)
            if chunk.dirty_since_s is None:
                chunk.dirty_since_s = self._clock()

    def _save(self) -> None:
        """Write what is told of chunks, places and languages."""
        if self._chunks:
            self._save_figures(self._chunks[-1])
        if len(self._classes) > self._n_classes_listed:
            self._n_classes_listed = len(self._classes)
            database.save_classes(self._db, self._classes)
        for table, register in (("place", self.contents.places), ("lang", self.contents.langs)):
            for code in range(register.n_saved, len(register.names)):
                self._db.execute(
                    f"INSERT INTO {table} VALUES (?, ?)",  # noqa: S608 -- one of two names of ours
                    (code, register.names[code]),
                )

    def _save_figures(self, chunk: Chunk) -> None:
        self._db.execute(
            "UPDATE chunk SET next_key = ?, n_offered = ?, n_bytes = ? WHERE number = ?",
            (chunk.next_key, chunk.n_offered, chunk.n_bytes, chunk.number),
        )
        save_strata(self._db, chunk)

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
        self._waiting, self._n_classes_listed, self._chunks = [], 0, list(self.published)
