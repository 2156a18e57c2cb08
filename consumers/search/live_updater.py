"""Keeps the live queries of all open pages up to date, on a thread of its own.

Each second it takes what the store has stored since, finds for each query which of it match, and
leaves the news with the pages that watch it. Pages that ask the same share one live query and
one piece of JSON. As long as no page is open nothing is kept and nothing is matched.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter

import structlog

from consumers.monitoring.metrics import Metrics
from consumers.search.database import COLUMNS
from consumers.search.live_query import (
    ArrivedRows,
    Event,
    EventEncoder,
    LiveQuery,
    Subscription,
    Subscriptions,
    Watched,
    WatchRequest,
)
from consumers.search.query_syntax import QueryError
from consumers.search.rows import Change, NewRows
from consumers.search.store import RecentStore

ROWS_MAX = 50_000
ROW_BYTES_MAX = 64 << 20  # of their texts, as they are shown and as the model reads them
BUFFERED_CHANGES_MAX = 10_000
TICK_S = 1.0
# Of a core's time: where a tick takes more, the next one comes later, for learning needs the core.
BUSY_SHARE_MAX = 0.25
# Of a tick. Queries for which there is no time to take in what came ask the store; those that have
# to ask it take turns over several ticks.
TAKING_MAX_S = 0.5
ASKING_MAX_S = 0.25
_TEXTS = itemgetter(COLUMNS.index("text"), COLUMNS.index("example"))
log = structlog.get_logger(__name__)


class EventBuffer:
    """Rows that were stored, and what happened to others; kept only if they are `wanted`.

    The store's thread puts in, the updater's takes. It is bounded: what exceeds the limit is
    dropped and marked as missing, so that the store is asked instead.
    """

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()
        self._rows: list[NewRows] = []
        self._n_rows = self._n_bytes = 0
        self._changes: dict[str, Change] = {}
        self._last_key = -1
        self._has_gap = False

    def stored(self, rows: NewRows) -> None:
        """Note rows, ascending by key."""
        with self._lock:
            # Keys only grow, unless the store had to begin with a new file.
            self._has_gap |= rows[0].key <= self._last_key
            self._last_key = rows[-1].key
            if not self._wanted():
                return
            self._n_rows += len(rows)
            texts = itertools.chain.from_iterable(map(_TEXTS, rows.values))
            self._n_bytes += sum(map(len, filter(None, texts)))
            is_full = self._n_rows > ROWS_MAX or self._n_bytes > ROW_BYTES_MAX
            if self._has_gap or is_full:
                self._rows, self._n_rows, self._n_bytes, self._has_gap = [], 0, 0, True
            else:
                self._rows.append(rows)

    def changed(self, changes: Sequence[Change]) -> None:
        """Note changes; the last one of a message is the one that counts."""
        with self._lock:
            if not self._wanted():
                return
            self._changes |= {change.id: change for change in changes}
            if len(self._changes) > BUFFERED_CHANGES_MAX:
                self._changes, self._has_gap = {}, True

    def take(self) -> tuple[ArrivedRows, bool]:
        """Return all of it, and whether something is missing."""
        with self._lock:
            rows, changes, has_gap = self._rows, self._changes, self._has_gap
            self._rows, self._changes, self._has_gap = [], {}, False
            self._n_rows = self._n_bytes = 0
        return ArrivedRows(list(itertools.chain.from_iterable(rows)), changes), has_gap


class LiveUpdater:
    """The live queries of a store, which it listens to from its first message.

    `serializer` makes the JSON; `metrics` count pages and queries.
    """

    def __init__(
        self,
        recent: RecentStore,
        serializer: EventEncoder,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recent = recent
        self._serializer = serializer
        self._clock = clock
        self._pages = Subscriptions(
            partial(LiveQuery, recent=recent), serializer.problem, recent.parse
        )
        self._pending = EventBuffer(lambda: self._pages.n_pages > 0)
        recent.listeners.append(self._pending.stored)
        recent.change_listeners.append(self._pending.changed)
        metrics.watch_pages(lambda: self._pages.n_pages, lambda: self._pages.n_queries)
        self._poked = threading.Event()
        self._stopping = False
        self._trouble: str | None = None
        self._first: Watched | None = None  # the query whose turn it is, if there was no time
        self._thread = threading.Thread(target=self._run, name="live", daemon=True)

    @property
    def n_pages(self) -> int:
        """How many pages are open."""
        return self._pages.n_pages

    @property
    def n_queries(self) -> int:
        """How many different queries they watch."""
        return self._pages.n_queries

    def start(self) -> None:
        """Keep them up to date from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End all subscriptions, and the thread."""
        self._stopping = True
        self._pages.close_all()
        self._poked.set()
        if self._thread.ident is not None:
            self._thread.join()

    @contextmanager
    def subscribed(
        self, asked: Sequence[WatchRequest], client: str, wake: Callable[[], None]
    ) -> Iterator[Subscription]:
        """Watch queries for as long as a `with` lasts; see `Subscription` for `wake`.

        A query that cannot be read is answered by a problem. A client may not have all the room
        there is. `NotWatchedError`: too many pages are open, or the daemon is stopping.
        """
        page = Subscription(wake)
        self._pages.open(page, asked, client)
        self._poked.set()
        try:
            yield page
        finally:
            is_more_watched = self._pages.close(page)
            if is_more_watched or not self._pages.n_pages:  # then what is kept for pages can go
                self._poked.set()

    def tick(self) -> None:
        """Take in what has come, and tell the pages what is new."""
        arrived, has_gap = self._pending.take()
        watched = self._in_turn(self._pages.all())
        if not watched and not self._pages.n_pages:
            return
        try:
            fresh = [each.live_query for each in watched if not each.live_query.is_stale]
            if arrived.rows and not has_gap and any(each.query.terms for each in fresh):
                arrived.index()  # of all queries: its time is no query's
            take_until_s = self._clock() + TAKING_MAX_S
            for each in watched:
                each.live_query.is_stale |= has_gap or self._clock() > take_until_s
                if not each.live_query.is_stale:
                    each.live_query.take(arrived)
        finally:
            arrived.close()
        events = [
            Event("change", None, self._serializer.change(change))
            for change in arrived.changes.values()
        ]
        # Before the lists of messages, which show the changes already.
        self._pages.tell_all(events, self._status())
        self._first = self._tell(watched)

    def welcome(self) -> None:
        """Tell new pages how things stand, without waiting for the next tick.

        What is known of them already they were told when they came; the others hear nothing.
        """
        if not self._pages.know_status:
            self._pages.tell_all([], self._status())
        self._tell([each for each in self._pages.all() if not each.told])

    def _in_turn(self, watched: Sequence[Watched]) -> Sequence[Watched]:
        """Return queries with the one first that the last tick had no time for."""
        begin = next((i for i, each in enumerate(watched) if each is self._first), 0)
        return [*watched[begin:], *watched[:begin]]

    def _status(self) -> Event:
        return Event("status", None, self._serializer.status())

    def _tell(self, watched: Sequence[Watched]) -> Watched | None:
        """Count for some queries, and tell their pages; return the first that has to wait."""
        state = self._recent.state()
        ask_until_s = self._clock() + ASKING_MAX_S
        first_left = None
        for each in watched:
            live_query = each.live_query
            if live_query.is_stale and self._clock() > ask_until_s:
                first_left = first_left or each
                self._poked.set()  # it goes on with the others at once, but for a tick that is due
                continue
            try:
                counted = live_query.settled()
            except QueryError as error:
                told = {"problem": self._serializer.problem(str(error))}
            else:
                query, lang = live_query.query, live_query.lang
                told = {
                    "summary": self._serializer.summary(query, lang, counted, state),
                    "messages": self._serializer.messages(live_query.newest()),
                }
            self._pages.tell(each, told)
        return first_left

    def trouble(self) -> str | None:
        """Return what kept the last tick from telling the pages, as a sentence."""
        return self._trouble

    def _run(self) -> None:
        due_s = self._clock()
        while not self._stopping:
            wait_s = max(0.0, due_s - self._clock()) if self._pages.n_pages else None
            self._poked.wait(wait_s)
            self._poked.clear()
            began_s, began_busy_s = self._clock(), time.thread_time()
            try:
                if began_s >= due_s or not self._pages.n_pages:
                    self.tick()
                    busy_s = time.thread_time() - began_busy_s
                    due_s = began_s + max(TICK_S, busy_s / BUSY_SHARE_MAX)
                else:
                    self.welcome()
                self._trouble = None
            except BaseException as error:
                # Whatever is wrong with a page or the store, learning goes on; and so do the pages,
                # whose queries ask the store again.
                self._trouble = f"open pages are not kept up to date: {error!r}"
                log.exception("live_tick_failed")
                for each in self._pages.all():
                    each.live_query.is_stale = True
                due_s = began_s + TICK_S
