"""Which open page watches which standing query, within bounds.

Pages come and go on the threads that serve them, the hub's own thread tells them news; each method
holds the lock for a moment.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from consumers.errors import ConsumerError
from consumers.live.standing import Standing
from consumers.live.subscription import Event, Subscription
from consumers.recent import Query, QueryError, parse

PAGES_MAX = 512
PAGES_A_CLIENT_MAX = 128  # by its address, which pages behind one proxy share
QUERIES_MAX = 256  # different ones

_FULL = (
    f"{QUERIES_MAX} different queries are watched already, which is all this daemon takes; "
    "ask again when some pages are closed, or search without watching"
)
Key = tuple[Query, str | None]


class NotWatchedError(ConsumerError):
    """No further page can be told what changes; the message says why."""


class Asked(NamedTuple):
    """A query as a page asks it.

    Attributes
    ----------
    text : str
        As it was typed.
    lang : str or None
    """

    text: str
    lang: str | None


@dataclass(slots=True)
class Watched:
    """A standing query, the pages that watch it, and what they were told last.

    Attributes
    ----------
    standing : Standing
    pages : dict of Subscription to list of int
        For each page, as which of its queries.
    told : mapping of str to bytes
        The newest body of each event, by the event's name.
    """

    standing: Standing
    pages: dict[Subscription, list[int]] = field(default_factory=dict)
    told: Mapping[str, bytes] = field(default_factory=dict)


class Pages:
    """All pages that are open, and what they watch.

    Parameters
    ----------
    make : callable
        Makes the standing query of a query and a language.
    problem : callable
        Makes the body of an event that says what is wrong with a query.
    """

    def __init__(
        self,
        make: Callable[[Query, str | None], Standing],
        problem: Callable[[str], bytes],
    ) -> None:
        self._make = make
        self._problem = problem
        self._lock = threading.Lock()
        self._closed = False
        self._watched: dict[Key, Watched] = {}
        self._keys: dict[Subscription, set[Key]] = {}
        self._clients: dict[Subscription, str] = {}
        self._n_pages_of: Counter[str] = Counter()
        self._status: Event | None = None  # what the pages that are open were told last

    @property
    def n_pages(self) -> int:
        """How many are open."""
        return len(self._keys)

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

    def open(self, page: Subscription, asked: Sequence[Asked], client: str) -> None:
        """Let a page watch queries; it is told at once what is known of them.

        Raises
        ------
        NotWatchedError
            Where too many pages are open, or all have been closed for good.
        """
        with self._lock:
            self._check_room(client)
            self._clients[page] = client
            self._n_pages_of[client] += 1
            self._keys[page] = set()
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
                self._keys[page].add((query, lang))
                watched.pages.setdefault(page, []).append(index)
                events += [Event(name, index, body) for name, body in watched.told.items()]
            page.put(events)

    def close(self, page: Subscription) -> None:
        """Forget a page; a query that nobody watches any more goes with it."""
        with self._lock:
            for key in self._keys.pop(page, ()):
                watched = self._watched[key]
                watched.pages.pop(page, None)
                if not watched.pages:
                    self._watched.pop(key, None)
            if not self._keys:
                self._status = None  # it would be an old one when the next page comes
            client = self._clients.pop(page, None)
            if client is not None:
                self._n_pages_of[client] -= 1
                self._n_pages_of += Counter()  # drops those who have none

    def close_all(self) -> None:
        """End all, and let no other come."""
        with self._lock:
            self._closed = True
            pages = list(self._keys)
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

    def begin_anew(self) -> None:
        """Have every query ask the store."""
        for watched in self.all():
            watched.standing.is_stale = True

    def tell_all(self, events: Sequence[Event], status: Event) -> None:
        """Tell every page the same; those that come later are told the status."""
        with self._lock:
            if self._keys:
                self._status = status
            for page in self._keys:
                page.put([*events, status])

    def _check_room(self, client: str) -> None:
        if self._closed:
            raise NotWatchedError("the daemon is stopping")
        if len(self._keys) >= PAGES_MAX:
            raise NotWatchedError(
                f"{PAGES_MAX} pages are open, which is all this daemon takes; try again later"
            )
        if self._n_pages_of[client] >= PAGES_A_CLIENT_MAX:
            raise NotWatchedError(
                f"{PAGES_A_CLIENT_MAX} pages are open from your address, which is all that one "
                "may have; close some"
            )

    def _watch(self, key: Key) -> Watched | None:
        """Return what is watched under a key, made if need be; None where there is no room."""
        watched = self._watched.get(key)
        if watched is None and len(self._watched) < QUERIES_MAX:
            watched = self._watched[key] = Watched(self._make(*key))
        return watched
