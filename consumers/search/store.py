"""The front of the recent store, for any thread: messages in, searches and counts out.

A search looks at one consistent state of the file while the writer goes on: newest chunk first,
until there is enough. One that takes too long ends between two chunks, each of which takes some
milliseconds. Counts come from memory alone (`chunks`), once the keys of what is counted are known.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from consumers.config.model import FieldKind
from consumers.config.sections import HistorySettings, RecentSettings
from consumers.errors import ConsumerError
from consumers.messages import Messages, Partition
from consumers.monitoring.stats import ProcessorBudget
from consumers.search import database, matching
from consumers.search.chunks import Chunk, Keys, Parts, Retention, RowFilter
from consumers.search.history import STEPS_S
from consumers.search.matching import CountsOverTime, Matcher, NewestFirst, Scan, StoredText, pieces
from consumers.search.query_syntax import (
    Query,
    QueryError,
    StoreBusyError,
    TimeLimit,
    expression,
    parse_with_classes,
)
from consumers.search.rows import (
    Change,
    Counted,
    ExportForm,
    Found,
    FoundRow,
    MessageRow,
    Picked,
    RecentState,
    RowBuilder,
    Span,
    counted,
    crc_of,
    located,
    picked,
    whole_steps,
)
from consumers.search.sampler import Correct, Forget, Labelled, Remove, Sampler
from consumers.search.transactions import Transactions
from consumers.search.writer import MessageCounter, NewRows, OfferedBefore, Writer

FILE_NAME = "recent.db"
COUNTED_MAX = 10_000
LIMIT_S = 1.0
LIMIT_MAX = 1_000  # rows of one search
LANGUAGES_MAX = 50
_ROWS_AGAIN = 200  # that are read at once where many are to go
_WAIT_S = 10.0
_Read = TypeVar("_Read")


class RecentStoreError(ConsumerError):
    """The store could not be changed."""


class RecentStore:
    """The newest messages, searchable, in a file; without a path in a temporary one.

    `classes` are the model's, in the order of the posteriors' columns, `fields` those of a message
    that it reads, mapped to their kinds if conditions' values are to be checked; `compared` are
    kinds too, with `text` if there is one; None: texts alone. A message whose likeliest class is
    less likely than `unsure_below` is unsure. If `times_made_up`, messages are of when they came.

    Each of `listeners` is called on the store's thread with every batch of rows that was stored,
    oldest first; each of `change_listeners` with what a person or the stream changed. Both are to
    be filled before `start`, and must be quick. Once `is_moved` says that the folder of the file
    has left its path, nothing is stored any more. `history` says how much is counted over time;
    None: nothing.
    """

    def __init__(  # noqa: PLR0913 -- two clocks and a flag are for tests and the daemon alone
        self,
        settings: RecentSettings,
        path: Path | None,
        classes: Sequence[str],
        fields: Collection[str],
        unsure_below: float,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        is_moved: Callable[[], bool] = lambda: False,
        *,
        times_made_up: bool = False,
        history: HistorySettings | None = None,
        class_names: Mapping[str, str] | None = None,
        compared: Mapping[str, FieldKind] | None = None,
    ) -> None:
        self.classes, self._class_names = classes, class_names or {}
        self.fields, self.compared = tuple(fields), compared or {"text": "words"}
        self._kinds = fields if isinstance(fields, Mapping) else dict.fromkeys(fields, "")
        self._unsure_below = unsure_below
        self._wall_clock, self._clock = wall_clock, clock
        self._bounds = Retention(settings.messages_max, settings.age_max_s)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if path is None:
            self._folder = tempfile.TemporaryDirectory(prefix="streamnb-")
            path = Path(self._folder.name) / FILE_NAME
        self._path = path
        row_builder = RowBuilder(classes, self.fields, times_made_up=times_made_up)
        self._history_steps: dict[int, int] = {}
        counter = None
        if history is not None and history.enabled:
            kept = (history.minutes_max, history.hours_max, history.days_max)
            self._history_steps = dict(zip(STEPS_S.values(), kept, strict=True))
            counter = MessageCounter(self._history_steps, history.words_max)
        before = OfferedBefore(counter)
        pace = settings.rate_max_per_s, ProcessorBudget(settings.processor_share_max)
        self._sampler = Sampler(*pace, row_builder, wall_clock, clock, count=before.note)
        self._writer = Writer(
            path, self._sampler, self._bounds, classes, wall_clock, clock, is_moved, before
        )
        self.listeners: list[Callable[[NewRows], None]] = self._writer.listeners
        self.change_listeners: list[Callable[[list[Change]], None]] = self._writer.change_listeners

    def start(self) -> None:
        """Start the thread that opens the file and writes it; messages are taken from here on."""
        self._sampler.open()
        self._writer.thread.start()

    def stop(self) -> None:
        """Write what waits, end the thread and close the file."""
        self._sampler.close()
        if self._writer.thread.ident is not None:
            self._writer.thread.join()
        if self._folder is not None:
            self._folder.cleanup()

    def offer(
        self, messages: Messages, rows: NDArray[np.int64], log_posteriors: NDArray[np.float64]
    ) -> None:
        """Take in messages that were judged: a few microseconds for each that is kept, no wait.

        `rows` are their ascending positions among the messages; the log-posteriors have shape
        (n, n_classes), in nats.
        """
        self._sampler.offer(messages, rows, log_posteriors)

    def forget_ids(
        self, ids: Sequence[str], at: tuple[Partition, Sequence[int]], *, of_accounts: bool = False
    ) -> threading.Event:
        """Forget messages that the stream deleted, behind all that was offered before; no wait.

        All of an id go, but those that stand behind the deletion `at` an offset of its partition;
        `of_accounts`: all whose id begins with that of an account.
        The event is set once the file no longer has them in its tables.
        """
        forget = Forget(tuple(ids), at, of_accounts)
        if not ids:
            forget.done.set()
        else:
            self._sampler.put(forget)
        return forget.done

    def wait_written(self, timeout_s: float) -> bool:
        """Wait until the file has all that was offered before; return False if that is late.

        What cannot be written is not waited for.
        """
        return self._writer.trouble is not None or self._sampler.wait_done(timeout_s)

    def note_labels(
        self, partition: Partition, offsets: Sequence[int], labels: Sequence[str]
    ) -> None:
        """Show the labels that taught messages after they had come; no wait.

        Behind all that was offered before; what is not held, or has a person's label, is left.
        """
        self._sampler.put(Labelled(partition, offsets, labels))

    def correct(
        self,
        id: str,  # noqa: A002 -- it is one
        label: str | None,
        part: str | None,
        at: tuple[Partition, int] | None = None,
        *,
        wait: bool = True,
    ) -> None:
        """Note that a message now teaches `label`, in the model's part `part`; idempotent.

        It is the message that stands `at` a place in the stream; None: the newest of its id. One
        that is not held is left alone, or, if its place is known, corrected when it comes. Searches
        see it when this returns, or, without `wait` (for threads that must not), a moment later.

        `ValueError`: there is no such class. `RecentStoreError`: it could not be written for ten
        seconds; it is tried on.
        """
        if label is not None and label not in self.classes:
            raise ValueError(f"no class {label!r}; there are {', '.join(self.classes)}")
        self._put(Correct(id, label, part, at), wait=wait)

    def remove(
        self,
        id: str,  # noqa: A002 -- it is one
        at: tuple[Partition, int] | None = None,
        *,
        wait: bool = True,
    ) -> None:
        """Remove a message for good, also if the stream brings it again; `wait` as above.

        All of its id go, but those that stand behind the place `at` in their partition. No search
        shows them any more. Their words leave the file itself within about ten seconds.

        `RecentStoreError`: it could not be written for ten seconds; it is tried on, and hidden.
        """
        self._put(Remove(id, at), wait=wait)

    def _put(self, item: Correct | Remove, *, wait: bool) -> None:
        if self._sampler.put(item) and wait and not item.done.wait(_WAIT_S):
            raise RecentStoreError(
                f"{item.id!r} could not be changed for {_WAIT_S:g} s"
                f" ({self._writer.trouble or 'the store is busy'}); it is tried on"
            )

    # What follows raises `QueryError` if it takes too long, and `StoreBusyError` until the file is
    # open, or if there is a fault of it.

    def _file(self) -> Transactions:
        file = self._writer.file
        if file is None:
            detail = self._writer.trouble or "The stored messages are still loading"
            raise StoreBusyError(f"{detail}; ask again in a moment.")
        return file

    def search(
        self, query: Query, lang: str | None = None, limit: int = 50, before: int | None = None,
        rows: RowFilter | None = None,
    ) -> Found:  # fmt: skip
        """Return the newest messages that match, 1,000 at most, with keys below `before`.

        `rows` are further conditions.
        """
        file = self._file()
        if (code := file.contents.known_lang(lang)) == -1:
            return Found((), more=False, before=None)
        limit = max(1, min(limit, LIMIT_MAX))
        below = database.KEY_LAST if before is None else min(before, database.KEY_LAST)
        if query.conditions or rows is not None:
            return self._found_where(file, self._matcher(file, query, lang, rows), limit, below)
        find: Callable[..., list[list[Any]]] = database.newest_rows
        if not query.is_everything or code is not None:
            find = partial(database.found_rows, match=expression(query, code))
        listed: list[FoundRow] = []
        with self._view(file) as (db, newest_first):
            for chunk, lowest in newest_first:
                top, n = below, limit + 1 - len(listed)
                while top > chunk.first_key:
                    found = find(db, chunk.number, (lowest, top), n)
                    listed += self._rows(file, chunk, query, found)
                    if len(listed) > limit:
                        return Found(listed[:limit], more=True, before=listed[limit - 1].row.key)
                    # Rows that are to go, and still stand in the file, may have been all it found.
                    top = found[-1][0] if len(found) == n else 0
                    n = max(n, _ROWS_AGAIN)
        return Found(listed, more=False, before=None)

    def _found_where(self, file: Transactions, matcher: Matcher, limit: int, below: int) -> Found:
        """Search with conditions; a page may end early, where as many rows as may be were read."""
        scan, query, rows = Scan(limit + 1, below), matcher.query, list[FoundRow]()
        with self._view(file) as (db, newest_first):
            for chunk, keys in matcher.newest(db, newest_first, scan):
                own = keys.tolist()
                if query.terms:
                    match = expression(query)
                    found = database.marked_rows(db, chunk.number, match, own)
                else:
                    found = database.rows_with_keys(db, chunk.number, own)
                rows += self._rows(file, chunk, query, found)
        if scan.n_missing <= 0:  # of those found some may have gone meanwhile
            before = rows[limit - 1].row.key if len(rows) > limit else scan.found_from
            return Found(rows[:limit], more=True, before=before)
        return Found(rows, more=scan.is_cut, before=scan.below if scan.is_cut else None)

    def _rows(
        self, file: Transactions, chunk: Chunk, query: Query, found: Sequence[Sequence[Any]]
    ) -> list[FoundRow]:
        """Return rows of a chunk that a statement found, but those that are gone."""
        return [
            FoundRow(file.mapper.row(values[:-1]), pieces(values[-1], query))
            for values in found
            if chunk.is_alive(values[0])
        ]

    def _matcher(
        self, file: Transactions, query: Query, lang: str | None, rows: RowFilter | None = None
    ) -> Matcher:
        return Matcher.of(query, file.contents, self.classes, lang, rows)

    def parse(self, text: str) -> Query:
        """Read a query, whose conditions may name the model's fields and classes."""
        return parse_with_classes(text, self._kinds, self.classes, self._class_names)

    def keys(self, query: Query, lang: str | None, n_max: int) -> Keys:
        """Return the keys of the newest messages that match, ascending, `n_max` at most."""
        return self.scanned_keys(query, lang, n_max)[0]

    def scanned_keys(
        self, query: Query, lang: str | None, n_max: int, rows: RowFilter | None = None
    ) -> tuple[Keys, Scan]:
        """Return what `keys` does, and how far it was looked; `rows` are further conditions.

        If the scan is cut, older ones may match that were not looked at.
        """
        found = [np.zeros(0, np.int64)]
        file = self._file()
        scan = Scan(n_max)
        if (code := file.contents.known_lang(lang)) == -1:
            return found[0], scan
        with self._view(file) as (db, newest_first):
            if query.conditions or rows is not None:
                matcher = self._matcher(file, query, lang, rows)
                found += [keys for _, keys in matcher.newest(db, newest_first, scan)]
                return np.concatenate(found[::-1]), scan
            match = expression(query, code)
            found += matching.newest_keys(db, newest_first, match, n_max)
        return np.concatenate(found[::-1]), scan

    def exported(
        self, query: Query, lang: str | None, rows: RowFilter, form: ExportForm, n_max: int
    ) -> Iterator[bytes]:
        """Yield the newest messages that match as pieces of a file, newest first, `n_max` at most.

        Each piece is read by itself: nothing is held up by a reader that takes its time, and what
        is removed meanwhile is left out. Messages that came later than the first are not in it.
        """
        file = self._file()
        matcher = self._matcher(file, query, lang, rows)
        head, below = form.header, database.KEY_LAST
        while n_max > 0:
            chunk, keys = self._next_keys(file, matcher, below)
            if chunk is None:
                break
            below = chunk.first_key
            while len(keys) and n_max > 0:
                n = min(form.piece_rows, n_max)
                keys, some = keys[:-n], keys[-n:]
                n_rows, piece = self._lines(file, chunk, some, form)
                n_max -= n_rows
                if piece:
                    yield head + piece
                    head = b""
        if head:
            yield head

    def _next_keys(
        self, file: Transactions, matcher: Matcher, below: int
    ) -> tuple[Chunk | None, Keys]:
        """Return the newest chunk with keys below one, and the keys there that match, ascending."""
        with self._view(file, file.export_readers) as (db, newest_first):
            for chunk, lowest in newest_first:
                if chunk.first_key < below:
                    return chunk, matcher.keys(db, chunk, lowest)
        return None, np.zeros(0, np.int64)

    def _lines(
        self, file: Transactions, chunk: Chunk, keys: Keys, form: ExportForm
    ) -> tuple[int, bytes]:
        """Return how many of some rows of a chunk are still held, and their lines."""
        with self._view(file, file.export_readers) as (db, newest_first):
            lowest = [lowest for other, lowest in newest_first if other is chunk]
            keys = keys[chunk.alive[keys - chunk.first_key]]
            some = [key for key in keys.tolist() if lowest and key >= lowest[0]]
            if not some:  # the chunk may have left the store, and its tables with it
                return 0, b""
            return database.lines_of(db, chunk.number, form.selects, some)

    def get(self, id: str) -> MessageRow | None:  # noqa: A002 -- it is one
        """Return the newest message of an id, with its example, or None if it is not held."""
        file = self._file()
        crcs = np.array([crc_of(id)], np.uint32)
        with self._view(file) as (db, newest_first):
            for chunk, lowest in newest_first:
                keys = [key for key in chunk.with_crcs(crcs) if key >= lowest]
                keys = [key for key in keys if chunk.is_alive(key)]
                if not keys:
                    continue
                for values in database.rows_with_keys(db, chunk.number, keys, whole=True):
                    if values[1] == id:
                        return file.mapper.row(values[:-1])
        return None

    def rows(self, keys: Keys) -> list[MessageRow]:
        """Return those of some messages, by their keys, that are still held."""
        mapper = self._file().mapper
        return [mapper.row(values[:-1]) for values in self._read(keys, database.rows_with_keys)]

    def texts(self, keys: Keys, *, with_fields: bool = False) -> list[StoredText]:
        """Return of those messages what they say alone: all that is to be read of many."""
        return self._read(keys, matching.texts_with_fields if with_fields else matching.texts_of)

    def _read(
        self, keys: Keys, read: Callable[[sqlite3.Connection, int, Sequence[int]], list[_Read]]
    ) -> list[_Read]:
        file = self._file()
        found: list[_Read] = []
        if not len(keys):
            return found
        parts = located(self.chunks(), self._cutoff_ms(), np.sort(keys))
        with self._view(file) as (db, newest_first):
            there = {chunk.number for chunk, _ in newest_first}
            for chunk, at in parts:
                if chunk.number in there:
                    found += read(db, chunk.number, (at + chunk.first_key).tolist())
        return found

    def counted(
        self, query: Query, lang: str | None = None, span_ms: Span | None = None
    ) -> Counted:
        """Count the newest 10,000 messages that match, or all of them if all are asked for.

        With a span, from one time to before another, they are those of its steps.
        """
        if query.is_everything:
            n_max = self._bounds.messages_max
            own = self._everything(lang)
            return self._counted(own, n_max, newest_only=False, span_ms=span_ms)
        rows = None
        if span_ms is not None:
            rows = RowFilter(None, None, *whole_steps(span_ms))
        keys, scan = self.scanned_keys(query, lang, COUNTED_MAX + 1, rows)
        newest_only = scan.is_cut or len(keys) > COUNTED_MAX
        return self.counted_keys(keys[-COUNTED_MAX:], newest_only=newest_only, span_ms=span_ms)

    def counted_keys(
        self, keys: Keys, *, newest_only: bool, span_ms: Span | None = None
    ) -> Counted:
        """Count messages as `counted` does, by their keys, ascending, of those still held."""
        parts = [picked(*part) for part in located(self.chunks(), self._cutoff_ms(), keys)]
        return self._counted(parts, COUNTED_MAX, newest_only=newest_only, span_ms=span_ms)

    def _counted(
        self, parts: Sequence[Picked], n_max: int, *, newest_only: bool, span_ms: Span | None
    ) -> Counted:
        own = (len(self.classes), self._unsure_below)
        return counted(parts, *own, n_max=n_max, newest_only=newest_only, span_ms=span_ms)

    def _everything(self, lang: str | None) -> list[Picked]:
        """Return all rows, those of a language if one is asked for, the file untouched."""
        code = self._file().contents.known_lang(lang)
        cutoff_ms = self._cutoff_ms()
        parts = []
        for chunk in self.chunks():
            part = slice(chunk.first_since(cutoff_ms) - chunk.first_key, chunk.n_committed)
            shown = chunk.alive[part]
            if code is not None:
                shown = shown & (chunk.columns["lang_code"][part] == code)
            whole = bool(shown.all())  # as nearly always: then nothing has to be copied
            parts.append(picked(chunk, part if whole else np.flatnonzero(shown) + part.start))
        return parts

    @property
    def oldest_key(self) -> int:
        """A key below which no message is held; larger than all keys if none is."""
        cutoff_ms = self._cutoff_ms()
        shown = [c for c in self.chunks() if c.n_committed and c.newest_ms >= cutoff_ms]
        return shown[0].first_since(cutoff_ms) if shown else database.KEY_LAST

    def held(self, keys: Keys) -> Keys:
        """Return those of some keys, ascending, whose messages are still held."""
        parts = located(self.chunks(), self._cutoff_ms(), keys)
        return np.concatenate([keys[:0], *(at + chunk.first_key for chunk, at in parts)])

    def unanswered(self, keys: Keys) -> Keys:
        """Return those of some keys whose messages are still held, and no person has labelled."""
        parts = located(self.chunks(), self._cutoff_ms(), np.sort(keys))
        some = [at[c.columns["corrected"][at] < 0] + c.first_key for c, at in parts]
        return np.concatenate([keys[:0], *some])

    def held_rows(self) -> Parts:
        """Return all chunks, oldest first, with the positions of the rows that are held."""
        return located(self.chunks(), self._cutoff_ms(), None)

    def languages(self) -> list[str]:
        """Return the languages of the held messages, most frequent first, 50 at most."""
        file = self._writer.file
        names = [] if file is None else list(file.contents.langs.names)
        counts = np.zeros(len(names), np.int64)
        for chunk in self.chunks() if names else ():
            codes = chunk.columns["lang_code"][: chunk.n_committed]
            codes = codes[chunk.alive[: len(codes)]]
            counts += np.bincount(codes, minlength=len(names))[: len(names)]
        counts[:1] = 0  # unknown
        order = np.argsort(-counts, kind="stable")[:LANGUAGES_MAX]
        return [names[code] for code in order.tolist() if counts[code]]

    @property
    def has_history(self) -> bool:
        """Whether messages are counted over time."""
        return bool(self._history_steps)

    def history(self, begin_s: int, end_s: int, step: str | None) -> CountsOverTime:
        """Return counts of all messages that came in a span of Unix seconds: `matching.read`."""
        with self._view(self._file()) as (db, _):
            return matching.read(db, (begin_s, end_s), step, len(self.classes), self._history_steps)

    def matches_over_time(
        self, query: Query, lang: str | None, span_s: tuple[int, int], step: str | None
    ) -> matching.MatchesOverTime:
        """Return counts of what matches, as `history` does; see `matching.over_time`."""
        file = self._file()
        matcher = self._matcher(file, query, lang)
        with self._view(file, whole=True) as (db, newest_first):
            limit = self._time_limit()
            asked = (span_s, step, self.classes, self._history_steps, limit)
            return matching.over_time(db, newest_first, matcher, *asked)

    def trouble(self) -> str | None:
        """Return what keeps the store from writing now, as a sentence."""
        return self._writer.trouble

    def state(self) -> RecentState:
        """Return what is held, and how the store fares."""
        chunks = self.chunks()
        n_taken = sum(chunk.n_committed for chunk in chunks)
        # Rows that are just being written are counted on both sides.
        n_offered = n_taken + max(0, sum(chunk.n_offered - chunk.n for chunk in chunks))
        offered_per_s, taken_per_s = self._sampler.rates()
        return RecentState(
            is_open=self._writer.file is not None,
            n_messages=sum(chunk.n_alive for chunk in chunks),
            messages_max=self._bounds.messages_max,
            age_max_s=self._bounds.age_max_s,
            share=n_taken / n_offered if n_offered else 1.0,
            stored_per_s=taken_per_s,
            offered_per_s=offered_per_s,
            n_offered=self._sampler.n_offered,
            n_stored=self._writer.n_stored,
            n_overflowed=self._sampler.n_overflowed,
            n_failed=self._writer.n_failed,
            n_restarts=self._writer.n_restarts,
            n_bytes=sum(map(_size, (self._path, self._path.with_name(self._path.name + "-wal")))),
            trouble=self._writer.trouble,
        )

    def chunks(self) -> Sequence[Chunk]:
        """Return the chunks that are safe in the file, oldest first; none if there is no file."""
        file = self._writer.file
        return () if file is None else file.published

    def _cutoff_ms(self) -> int:
        return self._bounds.cutoff_ms(int(self._wall_clock() * 1000))

    def _time_limit(self) -> TimeLimit:
        return TimeLimit(self._clock, LIMIT_S)

    @contextlib.contextmanager
    def _view(
        self, file: Transactions, readers: database.Readers | None = None, *, whole: bool = False
    ) -> Iterator[tuple[sqlite3.Connection, NewestFirst]]:
        """Look at one state of the file: a connection to it, and its chunks by `newest_first`.

        `whole` means with the rows that are too old to be shown.
        """
        limit = self._time_limit()
        cutoff_ms = 0 if whole else self._cutoff_ms()
        # Taken before the snapshot: a chunk dropped in between is found in the word counts.
        published = file.published
        with (readers or file.readers).borrowed(LIMIT_S) as db:
            try:
                db.execute("BEGIN")
                there = database.numbers(db)
                chunks = [chunk for chunk in reversed(published) if chunk.number in there]
                yield db, matching.newest_first(chunks, limit, cutoff_ms)
            except sqlite3.OperationalError:
                raise  # the lender says so
            except sqlite3.DatabaseError as error:
                if not database.is_damage(error):
                    raise QueryError(f"The store cannot answer this: {error}.") from error
                self._writer.damaged(str(error))
                raise QueryError(
                    "The store turned out to be damaged and begins again; search again in a moment."
                ) from error
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
