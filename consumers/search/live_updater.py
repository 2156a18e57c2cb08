"""What is told of the stored messages as they come: to open pages, and of shares that rise.

`LiveUpdater` keeps the live queries of all open pages up to date, on a thread of its own.

Each second it takes what the store has stored since, finds for each query which of it match, and
leaves the news with the pages that watch it. Pages that ask the same share one live query and
one piece of JSON. As long as no page is open nothing is kept and nothing is matched.

`ShareAlerts` compares the newest time of each query in the settings with the time before it, and
tells of a share that rose.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from statistics import NormalDist
from typing import Self

import msgspec
import structlog
from msgspec.structs import replace

from consumers.config.sections import AlertSettings
from consumers.errors import ConfigError
from consumers.messages import KnownClasses
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.quality import LEVEL, Share, Shares
from consumers.process import watch_cache
from consumers.search.comparison import (
    ComparedSide,
    ShareMove,
    compare,
    counted_side,
    moves,
    share_move,
)
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
from consumers.search.query_syntax import Query, QueryError, UnknownClassError
from consumers.search.rows import Change, Counted
from consumers.search.store import RecentStore
from consumers.search.writer import NewRows
from consumers.web_request import RequestError, WebService

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


# ---- alerts --------------------------------------------------------------------------------------

LOOKS_A_WINDOW = 5
LOOK_INTERVAL_MAX_S = 60.0
# By chance one look in 30,000 is as far; looks overlap, and messages in bursts go further.
ALERT_ERRORS_MIN = 4.0
ALERTS_KEPT = 10
UNDELIVERED_MAX = 100
_Z = NormalDist().inv_cdf((1.0 + LEVEL) / 2.0)
_ANSWER_BYTES_MAX = 1 << 16
_STOP_S = 2.0
_LATER_STATUSES = {408, 425, 429}  # of 4xx, those that ask to try again


def shown_moves(
    counted: Sequence[Counted],
    corrected: Sequence[Mapping[str, Share] | None],
    classes: Sequence[str],
) -> list[ShareMove]:
    """Return how the share of each class moved between two times, as the page shows shares.

    They are the corrected ones where both times have these, else those as predicted; without words.
    """
    found = moves(counted[0].for_shares[0], counted[1].for_shares[0], classes)
    was, now = corrected
    if was is None or now is None:
        return found
    return [
        replace(
            each, before=was[each.label].share, after=now[each.label].share, corrected=True,
            standard_errors=_errors_above(was[each.label], now[each.label]),
        )
        for each in found
    ]  # fmt: skip


def _errors_above(was: Share, now: Share) -> float:
    """Return by how many standard errors a share rose, by the ends of both intervals.

    Those that lie between the shares count, as in the interval of a difference by Newcombe (1998).
    """
    rise = now.share - was.share
    ends = was.high - was.share, now.share - now.low
    if rise < 0.0:
        ends = was.share - was.low, now.high - now.share
    error = math.hypot(*ends) / _Z
    return rise / error if error > 0.0 else 0.0


def risen(moved: Sequence[ShareMove], *, messages_min: int, rise_min: float) -> ShareMove | None:
    """Return the share that rose most of those that rose far enough to be told."""
    far = [
        each
        for each in moved
        if min(each.n_before, each.n_after) >= messages_min
        and each.rise >= rise_min
        and each.standard_errors >= ALERT_ERRORS_MIN
    ]
    return max(far, key=lambda each: each.rise, default=None)


def check_queries(
    texts: Sequence[str], parse: Callable[[str], Query], classes: Sequence[str]
) -> None:
    """Raise a `ConfigError` if queries of alerts cannot be read; classes may be still to join."""
    wrong = []
    for text in texts:
        try:
            parse(f"{text} ")
        except QueryError as error:
            name = error.label if isinstance(error, UnknownClassError) else ""
            if not KnownClasses.of(classes).takes(name):
                wrong.append(f"alerts.queries: {text!r}: {error}")
    if wrong:
        raise ConfigError("\n".join(wrong))


class ShareAlert(msgspec.Struct, frozen=True):
    """A share that rose: of the messages of `query`, from before `split_ms` to the time behind it.

    Both times are compared as `/v1/compare` does: from `from_ms`, and up to `to_ms`.
    """

    query: str
    from_ms: int
    split_ms: int
    to_ms: int
    moved: ShareMove


class ShareAlerts:
    """Watches shares, on a thread of its own; the newest alerts may be asked for on any thread.

    The last `window_s` are compared with the `before_s` before them, by the messages' own times. An
    alert is a share that rose by `rise_min`, and further than chance does, where both times have
    `messages_min` messages. Afterwards the time before begins where this window ended: of a rise
    that the window does not wholly have yet, its beginning would be too low, and each look tell the
    rise again. After a restart it may be told again. What cannot be delivered to the `webhook` is
    tried again at the next look.
    """

    def __init__(
        self,
        store: RecentStore,
        settings: AlertSettings,
        shares: Callable[[], Shares],
        left_out: frozenset[str] = frozenset(),
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._settings = settings
        self._shares = shares
        self._left_out = left_out
        self._wall_clock = wall_clock
        self._begins_ms = dict.fromkeys(settings.queries, 0)  # where the time before may begin
        check_queries(settings.queries, store.parse, store.classes)
        self._newest: tuple[ShareAlert, ...] = ()
        self._undelivered: deque[ShareAlert] = deque(maxlen=UNDELIVERED_MAX)
        self._service = WebService(
            {}, settings.timeout_s, _ANSWER_BYTES_MAX, None, setting="alerts"
        )
        self._trouble: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
        watch_cache("undelivered_alerts", self._fill)

    @classmethod
    def of(
        cls,
        store: RecentStore | None,
        settings: AlertSettings,
        shares: Callable[[], Shares],
        left_out: frozenset[str],
    ) -> Self | None:
        """Return what watches the settings' shares; None if there are none, or nothing is stored.

        A query that cannot be read is a `ConfigError`.
        """
        if store is None or not settings.queries:
            return None
        return cls(store, settings, shares, left_out)

    def _fill(self) -> tuple[int, int]:
        return len(self._undelivered), UNDELIVERED_MAX

    def start(self) -> None:
        """Look at the shares from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and a delivery that is under way.

        One whose connection is still being made cannot be cut: it is not waited for.
        """
        self._ended.set()
        self._service.cancel()
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def newest(self) -> tuple[ShareAlert, ...]:
        """Return the newest alerts, the oldest first."""
        return self._newest

    def trouble(self) -> str | None:
        """Return what keeps alerts from being found or delivered, as a sentence."""
        return self._trouble

    def look(self) -> list[ShareAlert]:
        """Compare each query's times as they are now; log and keep what is found.

        Raises
        ------
        QueryError
            If a search takes too long, or the store is not open; once all others are done.
        """
        to_ms = int(self._wall_clock() * 1000)
        alerts, failed = list[ShareAlert](), None
        for text in self._begins_ms:
            try:
                alert = self._alert(text, to_ms)
            except UnknownClassError:
                continue  # it is still to join
            except QueryError as error:
                failed = failed or QueryError(f"{text!r}: {error}")
                continue
            if alert is not None:
                self._tell(alert)
                alerts.append(alert)
        if failed is not None:
            raise failed
        return alerts

    def _tell(self, alert: ShareAlert) -> None:
        moved = alert.moved
        log.warning(
            "share_moved",
            query=alert.query,
            label=moved.label,
            before=round(moved.before, 4),
            after=round(moved.after, 4),
            corrected=moved.corrected,
            messages=moved.n_after,
            words=[f"{each.word} ({100 * each.effect:+.1f} points)" for each in moved.words],
            change=f"{alert.from_ms}-{alert.split_ms}-{alert.to_ms}",
        )
        self._newest = (*self._newest, alert)[-ALERTS_KEPT:]
        if self._settings.webhook is not None:
            self._undelivered.append(alert)

    def deliver(self) -> None:
        """Post what is to be delivered, the oldest first; a `RequestError` leaves the rest.

        An alert that the receiver refuses for good (a status of 4xx) is logged and left out.
        """
        webhook = self._settings.webhook
        while webhook is not None and self._undelivered and not self._ended.is_set():
            body = {"event": "share_moved"} | msgspec.to_builtins(self._undelivered[0])
            answer = self._service.ask(webhook.get_secret_value(), msgspec.json.encode(body))
            is_refused = 400 <= answer.status < 500 and answer.status not in _LATER_STATUSES
            if not 200 <= answer.status < 300 and not is_refused:
                raise RequestError(f"it answered with status {answer.status}")
            if is_refused:
                log.warning("alert_refused", status=answer.status, query=body["query"])
            self._undelivered.popleft()

    def _alert(self, text: str, to_ms: int) -> ShareAlert | None:
        query = self._store.parse(f"{text} ")  # as the page reads it: the last word is a whole one
        settings, least = self._settings, self._shares().messages_min
        split_ms = to_ms - int(settings.window_s * 1000)
        begin_ms = self._begins_ms[text]
        begin_ms = 0 if begin_ms > to_ms else begin_ms  # the clock was put back
        from_ms = max(split_ms - int(settings.before_s * 1000), begin_ms)
        if from_ms >= split_ms:
            return None
        spans = (from_ms, split_ms), (split_ms, to_ms)
        sides = [ComparedSide(query, None, span_ms) for span_ms in spans]
        # Words are read only where there is something to tell.
        found = self._moves(query, [counted_side(self._store, side)[1] for side in sides])
        most = risen(found, messages_min=least, rise_min=settings.rise_min)
        if most is None:
            return None
        before, after = compare(self._store, sides, self._left_out)
        self._begins_ms[text] = to_ms
        again, classes = self._moves(query, [before.counted, after.counted]), self._store.classes
        moved = share_move(before, after, tuple(classes), most.label, again) or most
        return ShareAlert(text, from_ms, split_ms, to_ms, moved)

    def _moves(self, query: Query, counted: Sequence[Counted]) -> list[ShareMove]:
        shares = self._shares()
        corrected = [
            shares.of_matches(
                self._store.classes[: len(each.counts)], each.counts, *each.for_shares,
                list(map(sum, each.confusion)),
                is_everything=query.is_everything,
            ).corrected
            for each in counted
        ]  # fmt: skip
        return shown_moves(counted, corrected, self._store.classes)

    def _run(self) -> None:
        interval_s = min(self._settings.window_s / LOOKS_A_WINDOW, LOOK_INTERVAL_MAX_S)
        steps = ((self.look, "found"), (self.deliver, "delivered to alerts.webhook"))
        while not self._ended.wait(interval_s):
            troubles = []
            for step, kind in steps:
                try:
                    step()
                except (QueryError, RequestError) as error:
                    troubles.append(f"alerts cannot be {kind}: {error}")
                except Exception as error:
                    # Whatever is wrong with an alert, the stream goes on.
                    troubles.append(f"alerts cannot be {kind}: {error!r}")
                    log.exception("alerts_failed")
            if troubles and self._trouble is None and not self._ended.is_set():
                log.warning("alerts_held_up", detail="; ".join(troubles))
            self._trouble = "; ".join(troubles) or None
