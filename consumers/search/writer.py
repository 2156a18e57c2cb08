"""The store's thread: makes rows of what waits, writes them, and tells those who listen.

Whatever happens to the file, the daemon goes on: what cannot be written is counted and said in the
log, once a minute at most. A full disk is tried again and again; a damaged file is moved aside.
What is to go waits meanwhile, no more than the file has rows of it: the deletion of a message that
is not there is done. Before the file was opened nobody knows what is there, nor what rows are of an
account: if more than `DELETIONS_MAX` such wait, the file goes with all its rows as soon as it can.
After an error that nobody foresaw the file is closed and opened again, a second later: the thread
lives on, and its `trouble` is shown until a turn succeeds.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeAlias, overload
from weakref import WeakSet

import msgspec
import numpy as np
import structlog
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.decode.labels import predicted_classes
from consumers.messages import NO_LABEL, Messages, Partition
from consumers.process import watch_cache
from consumers.search.chunks import Chunk, Retention
from consumers.search.database import COLUMNS, SHOWN, RowValues, drop_aside, is_damage, move_aside
from consumers.search.history import Longs, Noted, Stretch, Uncounted
from consumers.search.rows import Change, MessageRow, RowMapper, crc_of, crcs_of
from consumers.search.sampler import (
    Correct,
    Forget,
    Labelled,
    Offer,
    QueuedItem,
    RawBatch,
    Remove,
    Sampler,
    WriteMark,
)
from consumers.search.transactions import Applied, Transactions

_IDLE_S = 1.0  # how often it looks for what has become too old
_SAY_AGAIN_S = 60.0
DELETIONS_MAX = 200_000  # of the stream, that wait and of whose rows nobody knows
OPENINGS_MIN = 10  # in vain, before the file goes for such
_EARLY_MAX = 2_000_000  # messages to be counted that wait until the file is opened
_LOOKED_AT = 8  # messages of a batch that came again: if their ids are others, so is the stream
_WITHOUT_MEMORY = "stdin"  # the log of which what comes has old offsets, and is new
_shown = itemgetter(*(COLUMNS.index(name) for name in SHOWN))
_TRUTH, _TEXT, _EXAMPLE = map(COLUMNS.index, ("truth", "text", "example"))
_Waiting: TypeAlias = Forget | Correct | Remove
log = structlog.get_logger(__name__)


_LEFT_OPEN: list[Transactions] = []  # of folders that were moved; see `Writer._close`


@dataclass(frozen=True, slots=True)
class NewRows(Sequence[MessageRow]):
    """Rows as they went into the table; each becomes an object when it is asked for."""

    values: list[RowValues]  # in the order of `database.COLUMNS`
    mapper: RowMapper

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, i: int) -> MessageRow: ...

    @overload
    def __getitem__(self, i: slice) -> NewRows: ...

    def __getitem__(self, i: int | slice) -> MessageRow | NewRows:
        if isinstance(i, slice):
            return NewRows(self.values[i], self.mapper)
        return self.mapper.row(_shown(self.values[i]))

    def unlabelled(self, n_max: int, *, by_text: bool) -> tuple[list[MessageRow], int]:
        """Return the newest rows without a label that have a text, or fields; and how many have."""
        own = [row for row in self.values if row[_TRUTH] is None]
        own = [row for row in own if row[_TEXT] or not (by_text or row[_EXAMPLE] is None)]
        return [self.mapper.row(_shown(each)) for each in own[-n_max:]], len(own)


class _EarlyBatch(msgspec.Struct, frozen=True):
    partition: Partition
    offsets: NDArray[np.int64]  # increasing
    is_labelled: NDArray[np.bool_]
    judged: NDArray[np.int64]
    minute_s: int


class MessageCounter:
    """Counts messages as they are judged, on any thread, until the store's thread writes them.

    `steps_max` says how many steps the file keeps, by their length in seconds, `words_max` how
    many words of each. Until `begin` says how far a file was counted they wait, for they may come
    again.
    """

    def __init__(self, steps_max: Mapping[int, int], words_max: int = 0) -> None:
        self.steps_max = steps_max
        self.words_max = words_max
        self._lock = threading.Lock()
        self._new = Uncounted()
        self._highest: dict[Stretch, int] = {}
        self._early: list[_EarlyBatch] | None = []
        self._n_early = 0
        self._n_uncounted = 0
        watch_cache("early_messages", self._fill)

    def add(
        self,
        messages: Messages,
        rows: NDArray[np.int64],
        log_posteriors: NDArray[np.float64],
        arrived_ms: int,
    ) -> None:
        """Count messages, given as `RecentStore.offer` takes them."""
        offsets, labels = messages.offsets, messages.labels
        if len(rows) < len(messages):
            offsets, labels = offsets[rows], labels[rows]
        batch = _EarlyBatch(
            messages.partition,
            offsets,
            labels != NO_LABEL,
            predicted_classes(log_posteriors),
            arrived_ms // 60_000 * 60,
        )
        with self._lock:
            if self._early is None:
                self._count(batch)
            elif self._n_early < _EARLY_MAX:
                self._early.append(batch)
                self._n_early += len(rows)
            else:
                self._n_uncounted += len(rows)

    def _fill(self) -> tuple[int, int]:
        return self._n_early, _EARLY_MAX

    def begin(self, counted: Mapping[Stretch, int]) -> None:
        """Count behind what a file has counted; the file is told how far others went as well."""
        with self._lock:
            for stretch, offset in counted.items():
                self._highest[stretch] = max(offset, self._highest.get(stretch, -1))
            early, self._early, self._n_early = self._early or (), None, 0
            for batch in early:
                self._count(batch)
            if self._n_uncounted:
                log.warning(
                    "history_incomplete",
                    detail=f"{self._n_uncounted} messages came before recent.db was open, beyond "
                    f"the {_EARLY_MAX} that may wait; the page's history lacks them",
                )
                self._n_uncounted = 0
            self._new.highest = dict(self._highest)

    def take(self) -> Uncounted:
        """Return what is to be written."""
        with self._lock:
            taken, self._new = self._new, Uncounted()
        return taken

    def put_back(self, taken: Uncounted) -> None:
        """Keep what could not be written for the next time."""
        with self._lock:
            for minute_s, counts in taken.by_minute.items():
                self._add(minute_s, counts)
            self._new.highest = taken.highest | self._new.highest
            self._new.now_s = self._new.now_s or taken.now_s

    def _add(self, minute_s: int, counts: Longs) -> None:
        """Count messages of a minute; a class may have joined meanwhile."""
        known = self._new.by_minute.get(minute_s)
        if known is not None:
            fewer, counts = sorted((known, counts), key=len)
            counts = counts.copy()
            counts[: len(fewer)] += fewer
        self._new.by_minute[minute_s] = counts

    def _count(self, batch: _EarlyBatch) -> None:
        has_both = bool(batch.is_labelled.any()) and not batch.is_labelled.all()
        for is_labelled in (False, True) if has_both else (bool(batch.is_labelled.any()),):
            stretch = (batch.partition, is_labelled)
            highest = self._highest.get(stretch, -1)
            # Offsets increase: what is new is the rest of the batch, mostly all of it.
            begin = int(np.searchsorted(batch.offsets, highest, side="right"))
            offsets, judged = batch.offsets[begin:], batch.judged[begin:]
            if has_both:
                own = batch.is_labelled[begin:] == is_labelled
                offsets, judged = offsets[own], judged[own]
            if not len(offsets):
                continue
            self._add(batch.minute_s, np.bincount(judged).astype(np.int64, copy=False))
            self._highest[stretch] = self._new.highest[stretch] = int(offsets[-1])
            self._new.now_s = batch.minute_s


class OfferedBefore:
    """Knows what was offered in a run before; what comes again is no new message.

    It is stored, or was left out, and the rows around it stand for it already. All is new until the
    file is open, and of a partition that is read from before what the file still has.
    """

    def __init__(self, counter: MessageCounter | None) -> None:
        self.counter = counter
        self._file: Transactions | None = None
        self._highest: dict[Stretch, int] = {}
        self._left: dict[Partition, int] = {}
        self._starts: dict[Partition, int] = {}  # where this run's first batches began

    def begin(self, file: Transactions) -> None:
        """Take over how far a file's stretches were offered, and how far they have left it."""
        offered = file.counted("offered").items()
        self._highest = {own: at for own, at in offered if own[0].topic != _WITHOUT_MEMORY}
        for (partition, _), at in file.counted("left_offsets").items():
            self._left[partition] = max(at, self._left.get(partition, -1))
        self._file = file

    def note(
        self, messages: Messages, rows: Longs, log_posteriors: NDArray[np.float64], arrived_ms: int
    ) -> Noted:
        """Count messages, and return which are new; any thread may ask."""
        if self.counter is not None:
            self.counter.add(messages, rows, log_posteriors, arrived_ms)
        file, partition = self._file, messages.partition
        start = self._starts.setdefault(partition, int(messages.offsets[0]))
        if file is None:
            return slice(None), {}
        offsets, is_labelled = messages.offsets[rows], messages.labels[rows] != NO_LABEL
        stretches = [(partition, kind) for kind in (False, True)]
        ends = np.array([self._highest.get(each, -1) for each in stretches])
        is_again = offsets <= ends[is_labelled.astype(np.int64)]
        is_again &= start > self._left.get(partition, -1)
        if is_again.any() and _is_another(file, messages, rows[is_again]):
            is_again[:] = False
            for each in stretches:
                self._highest.pop(each, None)
        last = {kind: offsets[~is_again & (is_labelled == kind)][-1:] for kind in (False, True)}
        return ~is_again, {(partition, k): int(at[0]) for k, at in last.items() if len(at)}


def _is_another(file: Transactions, messages: Messages, rows: Longs) -> bool:
    """Return whether the stream was begun anew: at places that are held, no id is as it was."""
    place, offsets = file.contents.place_code(messages.partition), messages.offsets[rows]
    held: dict[int, int] = {}
    for chunk in file.published:
        at = chunk.at_offsets(place, offsets)
        held |= {o: int(chunk.columns["id_crc"][key - chunk.first_key]) for o, key in at.items()}
    some = [k for k, offset in enumerate(offsets.tolist()) if offset in held][:_LOOKED_AT]
    about = messages.metadata(messages.raw, messages.at[rows[some]])
    crcs = [held[offset] for offset in offsets[some].tolist()]
    agree = [crc_of(own) == crc for own, crc in zip(about.ids, crcs, strict=True)]
    return bool(agree) and not any(agree)


class Writer:
    """The thread, and the file it writes; the end of the sampler's queue ends the thread.

    `file` is None while there is none; `n_restarts` counts how often it was opened again after an
    error that nobody foresaw. The listeners are those of `RecentStore`.
    """

    def __init__(
        self,
        path: Path,
        sampler: Sampler,
        bounds: Retention,
        classes: Sequence[str],
        wall_clock: Callable[[], float],
        clock: Callable[[], float],
        is_moved: Callable[[], bool],
        before: OfferedBefore,
    ) -> None:
        self._path = path
        self._is_moved = is_moved
        self._sampler = sampler
        self._bounds = bounds
        self._classes = classes
        self._wall_clock = wall_clock
        self._clock = clock
        self._damage: str | None = None
        self._first_key = 1
        self._said_s: float | None = None
        self._n_labels_lost = 0
        self._n_left_out = 0  # messages that were not taken, and are not yet counted in the file
        self._n_lost = 0  # those that could not be written, and all that were not taken meanwhile
        self._taken: Sequence[QueuedItem | RawBatch] = ()  # out of the sampler, and not yet written
        # Deletions that did not wait: the file goes for them, and then they are done.
        self._owed: WeakSet[threading.Event] | None = None
        self._n_not_opened = 0  # times in a row that the file could not be opened
        self._before, self._counter = before, before.counter
        self._counts = Uncounted()  # out of the counter, and not yet written
        self.file: Transactions | None = None
        self.n_stored = 0
        self.n_failed = 0
        self.n_restarts = 0
        self.trouble: str | None = None
        self.listeners: list[Callable[[NewRows], None]] = []
        self.change_listeners: list[Callable[[list[Change]], None]] = []
        self.thread = threading.Thread(target=self._run, name="recent", daemon=True)

    def _run(self) -> None:
        self._survive(self._open)
        goes_on = True
        while goes_on:
            # With nothing to do it looks around once a second, for rows that are too old.
            if self._sampler.something.wait(_IDLE_S):
                self._sampler.urgent.wait(self._sampler.gather_s)
            goes_on = self._sampler.is_open
            self._survive(self._turn)
        self._survive(self._end)

    def _survive(self, step: Callable[[], None]) -> None:
        """Take a step of the thread; after any error at all the next step begins again."""
        try:
            step()
        except BaseException as error:  # noqa: BLE001 -- a thread that ended here would end unseen
            self._restart(error)

    def _restart(self, error: BaseException) -> None:
        """Say what broke, and let go of the file, so that the next turn opens it again."""
        self.n_restarts += 1
        self._lose_taken()
        self._say(error, "recent_store_broke", exc_info=error)
        try:
            self._note_next_key()
            self._close()
        except BaseException as second:  # noqa: BLE001 -- as above
            self._say(second, "recent_store_broke", exc_info=second)
        self._sampler.closed.wait(_IDLE_S)  # what breaks each turn must not take the processor

    def _end(self) -> None:
        """Let no removed word stay in the file, and close it."""
        if self.file is not None and not self._is_moved():
            with contextlib.suppress(sqlite3.Error):  # the next start purges: a note stands beside
                self.file.purge(at_once=True)
        self._close()

    def _turn(self) -> None:
        """Write what waits, and let go of what is too old."""
        began_s = time.thread_time()
        self._taken = self._sampler.take()
        n_left_out, marks = self._sampler.take_left_out()
        self._n_left_out += n_left_out
        self._taken = [*self._taken, *marks]
        if self._counter is not None and self.file is not None:
            self._counts = self._counter.take()  # all that was taken has been counted
        if self._is_moved():
            self._lose_taken()
            self._close()
            return
        if self._damage is not None or self._owed is not None:
            self._begin_anew(self._damage or "more deletions came than could wait for it")
        if self.file is None:
            self._open()
        if self.file is None:
            self._lose_taken()
            return
        try:
            # Not before `_taken` is set: if it fails, messages are counted and deletions wait.
            self._taken = taken = self._sampler.made(self._taken)
            if taken or self._counts or self._n_left_out:
                if any(isinstance(item, Forget | Remove) for item in taken):
                    # Whether the file that was moved aside holds it nobody knows, and none can take
                    # it out. A kill must find the removal undone, or no such file.
                    drop_aside(self._path)
                done = self.file.apply(taken, self._n_left_out, self._counts, self._n_lost)
                self._n_left_out, self._n_lost, self._taken, self._counts = 0, 0, (), Uncounted()
                # Before anybody is told: who then asks must not take this for a fault that stays.
                self.trouble = None
                self._tell(taken, done)
            self.file.let_go(int(self._wall_clock() * 1000))
            self.file.purge()
            self.file.pack()
            self._sampler.written(taken, time.thread_time() - began_s)
            self.trouble = None
        # What SQLite does not take (no message should bring such a value here) comes as the others.
        except (sqlite3.Error, ValueError, OverflowError) as error:
            self._taken = _to_do(self._taken, self.file.published)
            self._lose_taken()
            self._say(error)
            if isinstance(error, sqlite3.DatabaseError) and is_damage(error):
                self._damage = str(error)

    def _tell(self, items: Sequence[QueuedItem], done: Applied) -> None:
        self.n_stored += len(done.values)
        for item in items:
            if isinstance(item, Forget | Correct | Remove):
                _set_done(item)
            elif not isinstance(item, Offer):
                item.done.set()
        if done.values and self.file is not None:
            rows = NewRows(done.values, self.file.mapper)
            for listener in self.listeners:
                listener(rows)
        if done.changes:
            for change_listener in self.change_listeners:
                change_listener(done.changes)

    def _lose_taken(self) -> None:
        """Count messages and late labels that are lost; keep what is to be changed or to go."""
        items, self._taken = self._taken, ()
        counts, self._counts = self._counts, Uncounted()
        if self._counter is not None:
            self._counter.put_back(counts)
        offers = [item for item in items if isinstance(item, Offer | RawBatch)]
        n_lost = sum(map(len, offers))
        self.n_failed += n_lost
        self._n_lost += self._n_left_out + n_lost + sum(offer.n_left_out for offer in offers)
        self._n_left_out = 0
        # A stream brings as many labels as messages; the page alone goes without them.
        labels = [item for item in items if isinstance(item, Labelled)]
        self._n_labels_lost += sum(len(item.offsets) for item in labels)
        kept = [item for item in items if isinstance(item, Forget | Correct | Remove)]
        self._sampler.put_back(self._without_forgets(_newest(kept)))
        for item in items:
            if isinstance(item, Labelled | WriteMark):
                item.done.set()

    def _without_forgets(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """Leave out deletions of the stream if too many wait: the file is to go for them.

        Which rows they are of nobody knows while it is not open, nor of accounts at any time. A
        file that cannot be opened at first may be a moment later.
        """
        forgets = [item for item in waiting if isinstance(item, Forget)]
        unknown = [item for item in forgets if self.file is None or item.of_accounts]
        n = sum(len(item.ids) for item in unknown)
        is_new = self.file is None and self._n_not_opened < OPENINGS_MIN
        if self._owed is None and (is_new or n <= DELETIONS_MAX):
            return waiting
        self._owed = WeakSet() if self._owed is None else self._owed
        for item in forgets:
            self._owed.update([item.done, *item.also])
        return [item for item in waiting if not isinstance(item, Forget)]

    def _say(
        self, error: BaseException, event: str = "recent_store_failed", **details: Any
    ) -> None:
        """Show what is wrong, and log it, once a minute at most."""
        self.trouble = f"the recent messages cannot be written to {self._path}: {error}"
        now_s = self._clock()
        if self._said_s is None or now_s - self._said_s >= _SAY_AGAIN_S:
            self._said_s = now_s
            lost = {"n_lost": self.n_failed, "n_labels_lost": self._n_labels_lost}
            log.error(event, trouble=self.trouble, **lost, **details)

    def _open(self) -> None:
        try:
            self.file = Transactions(
                self._path,
                self._bounds,
                self._classes,
                self._clock,
                self._first_key,
                None if self._counter is None else self._counter.steps_max,
                0 if self._counter is None else self._counter.words_max,
            )
            if self._counter is not None:
                self._counter.begin(self.file.counted())
            self._before.begin(self.file)
            self._n_not_opened = 0
        except (sqlite3.Error, OSError) as error:
            self._n_not_opened += 1
            self._say(error)

    def damaged(self, what: str) -> None:
        """Begin a new file, for a search found damage; any thread may say so."""
        self._damage = what
        self._sampler.something.set()

    def _begin_anew(self, reason: str) -> None:
        self._note_next_key()
        self._close()
        self._damage = None  # by now: searches that were under way may have found the same
        try:
            move_aside(self._path, reason)
        except OSError as error:
            self._say(error)
            return
        if self._owed is not None and drop_aside(self._path):
            for event in self._owed:
                event.set()
            self._owed = None

    def _note_next_key(self) -> None:
        """See to it that no key is given twice, in this file or in the next."""
        if self.file is not None:
            newest = self.file.published[-1:]
            self._first_key = max([self.file.next_key, *(chunk.next_key for chunk in newest)])

    def _close(self) -> None:
        file, self.file = self.file, None
        if file is None:
            return
        if self._is_moved():
            for readers in (file.readers, file.export_readers):
                readers.close()  # or searches would open the file that has the name now
            # SQLite would remove its log by name, and that may be another daemon's by now.
            _LEFT_OPEN.append(file)
        else:
            file.close()


def _set_done(item: _Waiting) -> None:
    for event in (item.done, *item.also):
        event.set()


def _to_do(
    items: Sequence[QueuedItem | RawBatch], chunks: Sequence[Chunk]
) -> list[QueuedItem | RawBatch]:
    """Leave out of deletions of the stream the ids of which no row is held.

    The messages that came before them are lost by now, and those behind them stay. A deletion is
    done once nothing that is kept stands for a part of it.
    """
    asked = [item for item in items if isinstance(item, Forget) and not item.of_accounts]
    crcs = crcs_of([name for item in asked for name in item.ids])
    is_held = np.zeros(len(crcs), np.bool_)
    for chunk in chunks:
        keys = np.array(chunk.with_crcs(crcs), np.int64)
        is_held |= np.isin(crcs, chunk.columns["id_crc"][keys - chunk.first_key])
    kept: list[QueuedItem | RawBatch] = []
    dropped: list[Forget] = []
    end = 0
    for item in items:
        if not isinstance(item, Forget) or item.of_accounts:
            kept.append(item)
            continue
        begin, end = end, end + len(item.ids)
        rows = np.flatnonzero(is_held[begin:end]).tolist()
        if rows:
            kept.append(_some(item, rows))
        else:
            dropped.append(item)
    waiting = [item for item in kept if isinstance(item, Forget | Correct | Remove)]
    awaited = {event for item in waiting for event in (item.done, *item.also)}
    for item in dropped:
        for event in {item.done, *item.also} - awaited:
            event.set()
    return kept


def _newest(items: Sequence[_Waiting]) -> list[_Waiting]:
    """Leave out what later changes say as well, which then stand for it: they have its event.

    All that waits is taken at once, so an event is set when all are done that have it.
    """
    kept: list[_Waiting] = []  # the newest first
    said: dict[object, tuple[int, int]] = {}  # → offset; place among those kept
    for item in reversed(items):
        if isinstance(item, Forget):
            partition, offsets = item.at
            keys: list[object] = [(name, partition, item.of_accounts) for name in item.ids]
        else:
            keys, offsets = [(type(item), item.id, item.at)], [0]
        new, covered = list[int](), list[int]()
        for k, key in enumerate(keys):
            offset, place = said.get(key, (-1, -1))
            if offset >= offsets[k]:
                covered.append(place)
            else:
                new.append(k)
        for k in new:
            said[keys[k]] = max(offsets[k], said.get(keys[k], (-1, -1))[0]), len(kept)
        for place in set(covered):
            kept[place].also.update([item.done, *item.also])
        if new:
            kept.append(_some(item, new) if isinstance(item, Forget) else item)
    return kept[::-1]


def _some(item: Forget, rows: list[int]) -> Forget:
    """Return the deletion of some of its ids."""
    if len(rows) == len(item.ids):
        return item
    partition, offsets = item.at
    some = partition, [offsets[k] for k in rows]
    return replace(item, ids=tuple(item.ids[k] for k in rows), at=some)
