"""A query that open pages watch: what has come is matched in memory, without asking the store.

New messages are made searchable as the store's are (`BatchIndex`). Of the matches a live query
keeps the keys to count (`MatchWindow`) and the newest messages to show. `Subscriptions` knows who
watches which query, and keeps the events that wait for each page.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import replace

from consumers.errors import ConsumerError
from consumers.search import database
from consumers.search.chunks import Keys
from consumers.search.matching import matching_keys, pieces
from consumers.search.query_syntax import (
    CLOSE,
    OPEN,
    Query,
    QueryError,
    expression,
    parse,
    signs_of,
    with_lang,
)
from consumers.search.rows import Change, Counted, FoundRow, MessageRow, RecentState
from consumers.search.store import COUNTED_MAX, RecentStore

SPARE = 2_000  # matches kept beyond those that are counted
NEWEST_MAX = 50  # messages that a page is shown
_NEWEST_KEPT = 2 * NEWEST_MAX  # so that some may be removed before the store is asked again
_TURNS_MAX = 64  # at most, until a store that ran out of time is asked again
_ROWS_A_STATEMENT = 1_000


class BatchIndex:
    """Some rows, searchable as the store's are: the same words, the same expressions.

    It may be used by one thread at a time; close it.
    """

    def __init__(self, rows: Sequence[MessageRow]) -> None:
        self._n_rows = len(rows)
        self._langs = database.Register(["unknown"])
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        # Lists of beginnings, which the store keeps, are not worth their making for so few rows.
        self._db.execute(
            "CREATE VIRTUAL TABLE words0"
            f" USING fts5(text, signs, columnsize = 0, tokenize = {database.TOKENIZER})"
        )
        self._db.execute("BEGIN")  # and never ended: one piece of index, made at its first use
        values = [
            (i, row.text, with_lang(signs_of(row.text), self._code(row)))
            for i, row in enumerate(rows)
        ]
        for begin in range(0, len(values), _ROWS_A_STATEMENT):
            some = values[begin : begin + _ROWS_A_STATEMENT]
            places = ",".join(["(?,?,?)"] * len(some))
            self._db.execute(
                f"INSERT INTO words0 (rowid, text, signs) VALUES {places}",  # noqa: S608 -- question marks
                list(itertools.chain.from_iterable(some)),
            )

    def matches(self, query: Query, lang: str | None = None) -> list[int]:
        """Return which rows match, as positions in `rows`, ascending."""
        match = self._expression(query, lang)
        if match is None:
            return []
        found = matching_keys(self._db, 0, match, 0, self._n_rows)
        return sorted(found.tolist())

    def newest(
        self, query: Query, lang: str | None, n_max: int
    ) -> list[tuple[int, tuple[str, ...]]]:
        """Return the last rows that match, as ascending positions, and their texts in pieces.

        All are found by one statement: under load each costs a wait for the interpreter's lock.
        """
        match = self._expression(query, lang)
        if match is None:
            return []
        (found,) = self._db.execute(
            "SELECT json_group_array(json_array(at, marked)) FROM"
            " (SELECT rowid AS at, highlight(words0, 0, ?, ?) AS marked FROM words0"
            " WHERE words0 MATCH ? ORDER BY rowid DESC LIMIT ?)",
            (OPEN, CLOSE, match, n_max),
        ).fetchone()
        marked: list[tuple[int, str]] = msgspec.json.decode(found)
        return [(at, pieces(text, query)) for at, text in sorted(marked)]

    def close(self) -> None:
        """Let go of the memory."""
        self._db.close()

    def _code(self, row: MessageRow) -> int:
        return self._langs.code(row.lang) if row.lang else 0

    def _expression(self, query: Query, lang: str | None) -> str | None:
        """Return what FTS5 is asked; None if no row is of the language."""
        code = self._langs.codes.get(lang, -1) if lang else None
        return None if code == -1 else expression(query, code)


class MatchWindow:
    """The keys of the newest matches of a query, ascending: what its figures are counted from.

    Of the matches that the store has it takes all, or `n_max` + `SPARE`, and it holds at most
    `n_max` + 2 `SPARE`. It keeps somewhat more than the `n_max` that are counted. So some of them
    may be removed before the ones behind them are missed, and the store has to be asked again.
    """

    def __init__(self, keys: Keys, n_max: int) -> None:
        self.keys = keys
        self._n_max = n_max
        # No match above this key has been let go of but those that the store let go of as well.
        self._left_key = int(keys[0]) - 1 if len(keys) >= n_max + SPARE else -1
        self._last_key = int(keys[-1]) if len(keys) else -1

    @property
    def counted(self) -> Keys:
        """Those that are counted."""
        return self.keys[-self._n_max :]

    @property
    def newest_only(self) -> bool:
        """Whether there are older ones, which are not counted."""
        return len(self.keys) > self._n_max

    def add(self, keys: Keys) -> None:
        """Take in new matches, ascending; those that the store has told of already are known."""
        keys = keys[keys > self._last_key]
        if not len(keys):
            return
        self._last_key = int(keys[-1])
        held = np.concatenate((self.keys, keys))
        if len(held) > self._n_max + 2 * SPARE:
            n_left = len(held) - self._n_max - SPARE
            self._left_key = int(held[n_left - 1])
            held = held[n_left:]
        self.keys = held

    def lacks_some(self, oldest_key: int) -> bool:
        """Return whether the store, with keys from `oldest_key` on, may hold matches missed."""
        return len(self.keys) <= self._n_max and self._left_key >= oldest_key


class ArrivedRows:
    """Messages stored since the last tick, ascending by key, and what happened to others, by id."""

    def __init__(self, rows: Sequence[MessageRow], changes: Mapping[str, Change]) -> None:
        self.rows = rows
        self.changes = changes
        self.corrected = {change.id for change in changes.values() if not change.removed}
        self._index: BatchIndex | None = None
        self._by_row: Sequence[Mapping[str, Any]] = ()
        self._by_name: dict[str, Sequence[Any]] = {}

    def matches(self, query: Query, lang: str | None) -> Sequence[int]:
        """Return which of the rows match, as positions, ascending."""
        if not self.rows:
            return ()
        if query.terms:
            found = self.index().matches(query, lang)
        else:
            found = [i for i, row in enumerate(self.rows) if not lang or row.lang == lang]
        for each in query.conditions:
            values, is_met = self._values(each.name), each.is_met_by
            found = [i for i in found if is_met(values[i])]
        return found

    def newest(
        self, query: Query, lang: str | None, matches: Sequence[int], n_max: int
    ) -> list[FoundRow]:
        """Return the last of the rows that match, ascending, with the query's words marked.

        As what the store finds they are without their examples: whole texts are not to be kept.
        """
        if not query.terms:
            rows = [self._shown(i) for i in matches[-n_max:]]
            return [FoundRow(row, (row.text,)) for row in rows]
        # Of those that have the words some may not meet the conditions.
        shown = set(matches[-n_max:])
        n_looked_at = len(self.rows) if query.conditions else n_max
        found = self.index().newest(query, lang, n_looked_at)
        return [FoundRow(self._shown(i), marked) for i, marked in found if i in shown]

    def _values(self, name: str) -> Sequence[Any]:
        """Return what each row has by a name; it is picked out once, for all queries."""
        if name not in self._by_name:
            self._by_row = self._by_row or [row.values for row in self.rows]
            self._by_name[name] = [values.get(name) for values in self._by_row]
        return self._by_name[name]

    def _shown(self, i: int) -> MessageRow:
        return replace(self.rows[i], example={})

    def close(self) -> None:
        """Let go of the index."""
        if self._index is not None:
            self._index.close()

    def index(self) -> BatchIndex:
        """Return the index; it is made when the first query needs it."""
        if self._index is None:
            self._index = BatchIndex(self.rows)
        return self._index


class LiveQuery:
    """One query that pages watch.

    It is stale if the store has to be asked: nothing is known yet, or something is missed. Where
    the store ran out of time, it is asked again in later turns, ever fewer of them: what it has
    read for a condition it knows then.
    """

    def __init__(self, query: Query, lang: str | None, recent: RecentStore) -> None:
        self.query = query
        self.lang = lang
        self.is_stale = True
        self._recent = recent
        self._newest: list[FoundRow] = []  # ascending
        self._has_older = False  # than these, in the store
        self._window: MatchWindow | None = None  # everything needs none
        self._cut_below = 0  # the store has not looked at older messages than the one of this key
        self._wait = self._n_turns_left = 0  # turns until it is asked again; 0: it need not be

    def take(self, arrived: ArrivedRows) -> None:
        """Take in what has come."""
        matches = arrived.matches(self.query, self.lang)
        if matches:
            self._show(arrived, matches)
            if self._window is not None:
                keys = [arrived.rows[i].key for i in matches]
                self._window.add(np.array(keys, np.int64))
        # An id does not say which message of that id a person corrected; the store knows. Removals
        # need nothing: what is no longer held is let go of anyhow.
        shown = arrived.corrected and {found.row.id for found in self._newest}
        self.is_stale |= bool(shown and shown & arrived.corrected)

    def settled(self) -> Counted:
        """Return the figures now, without what the store no longer holds.

        `QueryError`: the store has to be asked and cannot answer.
        """
        if self.is_stale:
            self._begin()
        counted = self._count()
        if self.is_stale:  # it misses some: too many were removed
            self._begin()
            counted = self._count()
        if self._wait:
            self._n_turns_left -= 1
            self.is_stale |= self._n_turns_left <= 0
        return counted

    def newest(self) -> list[FoundRow]:
        """Return the messages that a page is shown, newest first."""
        return self._newest[: -NEWEST_MAX - 1 : -1]

    def _begin(self) -> None:
        """Ask the store."""
        found = self._recent.search(self.query, self.lang, _NEWEST_KEPT)
        self._newest = list(reversed(found.rows))
        self._has_older = found.more
        if not self.query.is_everything:
            keys, scan = self._recent.scanned_keys(self.query, self.lang, COUNTED_MAX + SPARE)
            self._window = MatchWindow(keys, COUNTED_MAX)
            self._cut_below = scan.below if scan.is_cut else 0
            shown_below = found.before if found.more and len(found.rows) < _NEWEST_KEPT else None
            is_behind = shown_below is not None and shown_below > self._cut_below
            goes_on = scan.is_slow or is_behind  # else as many rows were read as may be
            self._wait = min(2 * self._wait or 1, _TURNS_MAX) if goes_on else 0
            self._n_turns_left = self._wait
        self.is_stale = False

    def _count(self) -> Counted:
        self._forget_messages()
        window = self._window
        if window is None:
            return self._recent.counted(self.query, self.lang)
        window.keys = self._recent.held(window.keys)
        oldest_key = self._recent.oldest_key
        self.is_stale |= window.lacks_some(oldest_key)
        newest_only = window.newest_only or self._cut_below > oldest_key
        return self._recent.counted_keys(window.counted, newest_only=newest_only)

    def _show(self, arrived: ArrivedRows, matches: Sequence[int]) -> None:
        last_key = self._newest[-1].row.key if self._newest else -1
        n_new = sum(arrived.rows[i].key > last_key for i in matches)
        if n_new > NEWEST_MAX:
            # Those before would have a gap behind them.
            self._newest, self._has_older = [], True
        found = arrived.newest(self.query, self.lang, matches, NEWEST_MAX)
        self._newest += [each for each in found if each.row.key > last_key]
        if len(self._newest) > _NEWEST_KEPT:
            self._newest, self._has_older = self._newest[-_NEWEST_KEPT:], True

    def _forget_messages(self) -> None:
        keys = np.array([found.row.key for found in self._newest], np.int64)
        held = set(self._recent.held(keys).tolist())
        if len(held) < len(keys):
            self._newest = [found for found in self._newest if found.row.key in held]
            self.is_stale |= len(held) < NEWEST_MAX and self._has_older


# ---- open pages --------------------------------------------------------------------------------

CHANGES_MAX = 256  # kept for a page that does not take; the lists of messages say the same
PAGES_MAX = 512
PAGES_A_CLIENT_MAX = 128  # by its address, which pages behind one proxy share
QUERIES_MAX = 256  # different ones
QUERIES_A_CLIENT_MAX = 128
_FULL = (
    f"{QUERIES_MAX} different queries are watched already, which is all this daemon takes; "
    "this one follows when some pages are closed; search without watching until then"
)
_FULL_OF_A_CLIENT = (
    f"{QUERIES_A_CLIENT_MAX} different queries are watched from your address, which is all that "
    "one may have; this one follows when you close some"
)
QueryKey: TypeAlias = tuple[Query, str | None]


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


class Event(msgspec.Struct, frozen=True):
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
                    self._latest.pop((event.name, event.index), None)  # the newest stands last
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


class Watched(msgspec.Struct):
    """A live query, the pages that watch it, and what they were told last."""

    live_query: LiveQuery
    pages: dict[Subscription, list[int]] = field(default_factory=dict)  # as which of its queries
    told: Mapping[str, bytes] = field(default_factory=dict)  # the newest body by event name


class Subscriptions:
    """All pages that are open, and what they watch.

    `make` makes a live query, `problem` the body of an event that says what is wrong with one,
    `read` reads what was typed.
    """

    def __init__(
        self,
        make: Callable[[Query, str | None], LiveQuery],
        problem: Callable[[str], bytes],
        read: Callable[[str], Query] = parse,
    ) -> None:
        self._make = make
        self._read = read
        self._problem = problem
        self._lock = threading.Lock()
        self._closed = False
        self._watched: dict[QueryKey, Watched] = {}
        self._pages: dict[Subscription, str] = {}  # with the client of each
        # What there was no room for, oldest first: which of a page's queries it is.
        self._refused: dict[tuple[Subscription, int], QueryKey] = {}
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

        One for which there is no room is watched as soon as there is, until the page is closed.

        `NotWatchedError`: too many pages are open, or all have been closed for good.
        """
        with self._lock:
            self._check_room(client)
            self._pages[page] = client
            events = [] if self._status is None else [self._status]
            n_watched = self._n_watched()
            for index, (text, lang) in enumerate(asked):
                try:
                    query = self._read(text)
                except QueryError as error:
                    events.append(Event("problem", index, self._problem(str(error))))
                    continue
                full = self._why_full(client, (query, lang), n_watched)
                if full is None:
                    events += self._watch(page, index, (query, lang), n_watched)
                else:
                    self._refused[page, index] = query, lang
                    events.append(Event("problem", index, self._problem(full)))
            page.put(events)
            self._take_up()  # what another page was refused may be watched by this one

    def close(self, page: Subscription) -> bool:
        """Forget a page; a query that nobody watches any more goes with it.

        Return whether there is room now for a query that had none.
        """
        with self._lock:
            self._pages.pop(page, None)
            for watched in self._watched.values():
                watched.pages.pop(page, None)
            self._watched = {key: each for key, each in self._watched.items() if each.pages}
            if not self._pages:
                self._status = None  # it would be an old one when the next page comes
            if not self._refused:
                return False
            self._refused = {at: key for at, key in self._refused.items() if at[0] is not page}
            return self._take_up()

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

    def _n_watched(self) -> Counter[str]:
        """Return how many different queries each client watches."""
        clients = ({self._pages[page] for page in each.pages} for each in self._watched.values())
        return Counter(itertools.chain.from_iterable(clients))

    def _why_full(self, client: str, key: QueryKey, n_watched: Counter[str]) -> str | None:
        """Return why there is no room for a query; None if there is, or it needs none."""
        if key in self._watched:
            return None
        if n_watched[client] >= QUERIES_A_CLIENT_MAX:
            return _FULL_OF_A_CLIENT
        return _FULL if len(self._watched) >= QUERIES_MAX else None

    def _watch(
        self, page: Subscription, index: int, key: QueryKey, n_watched: Counter[str]
    ) -> list[Event]:
        """Let a page watch a query, which is made if need be; return what is known of it."""
        client = self._pages[page]
        watched = self._watched.get(key)
        if watched is None:
            watched = self._watched[key] = Watched(self._make(*key))
        n_watched[client] += all(self._pages[other] != client for other in watched.pages)
        watched.pages.setdefault(page, []).append(index)
        return [Event(name, index, body) for name, body in watched.told.items()]

    def _take_up(self) -> bool:
        """Watch what was refused and has room now; return whether there was any."""
        n_watched, n_refused = self._n_watched(), len(self._refused)
        for (page, index), key in list(self._refused.items()):
            if self._why_full(self._pages[page], key, n_watched) is None:
                del self._refused[page, index]
                page.put(self._watch(page, index, key, n_watched))
        return len(self._refused) < n_refused
