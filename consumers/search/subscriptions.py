"""Open pages: who watches which query, and the events that wait for each page."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from consumers.errors import ConsumerError
from consumers.search.live_query import LiveQuery
from consumers.search.query_syntax import Query, QueryError, parse
from consumers.search.rows import Change, Counted, FoundRow, RecentState

CHANGES_MAX = 256  # kept for a page that does not take; the lists of messages say the same
PAGES_MAX = 512
PAGES_A_CLIENT_MAX = 128  # by its address, which pages behind one proxy share
QUERIES_MAX = 256  # different ones
_FULL = (
    f"{QUERIES_MAX} different queries are watched already, which is all this daemon takes; "
    "ask again when some pages are closed, or search without watching"
)
Key: TypeAlias = tuple[Query, str | None]


class NotWatchedError(ConsumerError):
    """No further page can be told what changes; the message says why."""


class EventEncoder(Protocol):
    """Makes JSON objects, on the live updater's thread, once for all pages that get the same."""

    def summary(
        self, query: Query, lang: str | None, counted: Counted, state: RecentState
    ) -> bytes:
        """Return the figures of a query."""

    def messages(self, found: Sequence[FoundRow]) -> bytes:
        """Return messages, newest first, as they are given."""

    def status(self) -> bytes:
        """Return how the daemon fares."""

    def change(self, change: Change) -> bytes:
        """Return what happened to one message."""

    def problem(self, detail: str) -> bytes:
        """Return why a query cannot be answered."""


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event, with its JSON ready."""

    name: str  # "summary", "messages", "status", "change" or "problem"
    index: int | None  # which of the page's queries it is about
    body: bytes  # a JSON object, shared by all pages that are told the same

    def frame(self, number: int) -> bytes:
        r"""Return the event as the stream has it, with a number as its `id`.

        A reader that comes back with it is told everything again all the same.

        >>> Event("summary", 2, b'{"n":5}').frame(7)
        b'event: summary\nid: 7\ndata: {"index":2,"n":5}\n\n'
        """
        body = self.body if self.index is None else b'{"index":%d,' % self.index + self.body[1:]
        return b"event: %s\nid: %d\ndata: %s\n\n" % (self.name.encode(), number, body)


class Subscription:
    """The mail of one page; `wake` is called, from any thread, once until mail is taken."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._woken = False
        self.ended = False  # nothing will come any more
        self._n_taken = 0
        self._latest: dict[tuple[str, int | None], Event] = {}
        self._changes: deque[Event] = deque(maxlen=CHANGES_MAX)

    def put(self, events: Sequence[Event]) -> None:
        """Leave events; one of the same name and index that was not taken yet is forgotten."""
        with self._lock:
            for event in events:
                if event.name == "change":
                    self._changes.append(event)
                else:
                    self._latest[event.name, event.index] = event
        self._ring()

    def end(self) -> None:
        """Say that nothing will come any more."""
        self.ended = True
        self._ring()

    def take(self) -> bytes:
        """Return all that has been left, as the stream has it; empty if there is nothing."""
        with self._lock:
            self._woken = False
            # Changes first: the lists behind them show them already.
            events = [*self._changes, *self._latest.values()]
            self._changes.clear()
            self._latest.clear()
        self._n_taken += 1
        return b"".join(event.frame(self._n_taken) for event in events)

    def _ring(self) -> None:
        with self._lock:
            if self._woken:
                return
            self._woken = True
        self._wake()


class WatchRequest(NamedTuple):
    """A query as a page asks it."""

    text: str  # as it was typed
    lang: str | None


@dataclass(slots=True)
class Watched:
    """A live query, the pages that watch it, and what they were told last."""

    live_query: LiveQuery
    pages: dict[Subscription, list[int]] = field(default_factory=dict)  # as which of its queries
    told: Mapping[str, bytes] = field(default_factory=dict)  # the newest body by event name


class Subscriptions:
    """All pages that are open, and what they watch.

    `make` makes a live query, `problem` the body of an event that says what is wrong with one.
    """

    def __init__(
        self,
        make: Callable[[Query, str | None], LiveQuery],
        problem: Callable[[str], bytes],
    ) -> None:
        self._make = make
        self._problem = problem
        self._lock = threading.Lock()
        self._closed = False
        self._watched: dict[Key, Watched] = {}
        self._pages: dict[Subscription, str] = {}  # with the client of each
        self._status: Event | None = None  # what the pages that are open were told last

    @property
    def n_pages(self) -> int:
        """How many are open."""
        return len(self._pages)

    @property
    def n_queries(self) -> int:
        """How many different queries they watch."""
        return len(self._watched)

    @property
    def know_status(self) -> bool:
        """Whether a page that comes is told the status at once."""
        return self._status is not None

    def all(self) -> list[Watched]:
        """Return all that is watched."""
        with self._lock:
            return list(self._watched.values())

    def open(self, page: Subscription, asked: Sequence[WatchRequest], client: str) -> None:
        """Let a page watch queries; it is told at once what is known of them.

        `NotWatchedError`: too many pages are open, or all have been closed for good.
        """
        with self._lock:
            self._check_room(client)
            self._pages[page] = client
            events = [] if self._status is None else [self._status]
            for index, (text, lang) in enumerate(asked):
                try:
                    query = parse(text)
                except QueryError as error:
                    events.append(Event("problem", index, self._problem(str(error))))
                    continue
                watched = self._watch((query, lang))
                if watched is None:
                    events.append(Event("problem", index, self._problem(_FULL)))
                    continue
                watched.pages.setdefault(page, []).append(index)
                events += [Event(name, index, body) for name, body in watched.told.items()]
            page.put(events)

    def close(self, page: Subscription) -> None:
        """Forget a page; a query that nobody watches any more goes with it."""
        with self._lock:
            self._pages.pop(page, None)
            for watched in self._watched.values():
                watched.pages.pop(page, None)
            self._watched = {key: each for key, each in self._watched.items() if each.pages}
            if not self._pages:
                self._status = None  # it would be an old one when the next page comes

    def close_all(self) -> None:
        """End all, and let no other come."""
        with self._lock:
            self._closed = True
            pages = list(self._pages)
        for page in pages:
            page.end()

    def tell(self, watched: Watched, told: Mapping[str, bytes]) -> None:
        """Tell the pages that watch a query what is new to them in `told`."""
        with self._lock:
            news = [(name, body) for name, body in told.items() if watched.told.get(name) != body]
            watched.told = told
            if news:
                for page, indices in watched.pages.items():
                    page.put([Event(name, i, body) for i in indices for name, body in news])

    def tell_all(self, events: Sequence[Event], status: Event) -> None:
        """Tell every page the same; those that come later are told the status."""
        with self._lock:
            if self._pages:
                self._status = status
            for page in self._pages:
                page.put([*events, status])

    def _check_room(self, client: str) -> None:
        if self._closed:
            raise NotWatchedError("the daemon is stopping")
        if len(self._pages) >= PAGES_MAX:
            raise NotWatchedError(
                f"{PAGES_MAX} pages are open, which is all this daemon takes; try again later"
            )
        if list(self._pages.values()).count(client) >= PAGES_A_CLIENT_MAX:
            raise NotWatchedError(
                f"{PAGES_A_CLIENT_MAX} pages are open from your address, which is all that one "
                "may have; close some"
            )

    def _watch(self, key: Key) -> Watched | None:
        """Return what is watched under a key, made if need be; None if there is no room."""
        watched = self._watched.get(key)
        if watched is None and len(self._watched) < QUERIES_MAX:
            watched = self._watched[key] = Watched(self._make(*key))
        return watched
