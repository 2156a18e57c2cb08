"""Live streams as sources: Jetstream, server-sent events, WebSockets, and lines over HTTP.

Such a stream keeps little or nothing of its past. Where it can be resumed, it is by a cursor of its
own, which stands in the checkpoint beside the position; a position is the number of messages that
were read. Where a stream was cut, what was read before comes once more and is left out by its key;
if it does not come, there is a gap, and it is counted.

One loop serves all: it connects (on a thread of its own), reads, notices silence, and tries the
next host after a pause. What the pipeline does not take is not read from the socket.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent import futures
from typing import Annotated

import msgspec
import structlog

from consumers.config.addresses import Bound, LiveSettings
from consumers.errors import SourceError
from consumers.messages import Partition, RawColumns
from consumers.sources.base import (
    Backoff,
    Cursor,
    Known,
    LogFacts,
    Past,
    Source,
    behind_position,
    packed,
    unpacked,
)
from consumers.sources.connections import (
    Endpoint,
    Feed,
    FeedError,
    Framing,
    LiveMessage,
    Readable,
    Received,
    RefusedError,
    key_of,
)
from consumers.sources.records import from_parts

# What is known of the past: so many messages are left out by their keys if they come again.
_KEYS = 8192
_KEYS_WAITING = 1 << 17  # further ones, which may not be learned yet
_PROOF = 50  # so many new ones, and none that is known, prove a gap; a server may change the order
_REWIND_US = 60_000_000  # a cursor goes back so far, for what a server lost or another has not
_BEGINNING_US = 60_000_000  # what begins so much later than asked for may lack something
_AHEAD_US = 3_600_000_000  # what is further in the future than this is a server's mistake
RETRY_AFTER_MAX_S = 900.0  # no server's word keeps us away for longer
_VALUES_BYTES_MAX = 16 << 20  # of a poll, and a message: what comes packed may be far larger then
_CONNECTION = "connection"
_LAST_ID = "Last-Event-ID"
_NO_ID = {400, 410, 416}  # how servers refuse an id that they do not know, or not any more
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class LiveSource(Source):
    """Reads a feed for ever.

    `connect` opens a connection, `clock` and `wait` count in seconds, `wall_time` since 1970.
    `gaps` counts the places at which messages may be missing. A checkpoint must have read up to
    `begin`, or know nothing.
    """

    def __init__(
        self,
        feed: Feed,
        settings: LiveSettings,
        *,
        connect: Callable[[Endpoint], Readable] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
        wall_time: Callable[[], float] = time.time,
        begin: Bound | None = None,
    ) -> None:
        self.name = feed.name
        self.partition = Partition(feed.name, 0)
        self.gaps = 0
        self._feed = feed
        feed.secrets = [*feed.secrets, *settings.secrets]
        self._settings = settings
        self._connect = connect or (lambda each: feed.connection(each, self._past, settings))
        self._clock = clock
        self._wait = wait
        self._wall_time = wall_time
        self._begin = begin
        self._troubles = Backoff(log, clock, settings.retry_pause_max_s)
        self._lock = threading.Lock()  # of what follows, which the consuming thread reads
        self._known: deque[Known] = deque()
        self._keys: set[int] = set()
        self._again: dict[int, tuple[int, int]] = {}  # time and number of what came once more
        self._facts = LogFacts()
        self._position = 0
        self._host = 0
        self._numbered = ("", 0)  # the last host, and the first offset that came from it
        self._is_left = False  # the cursor, until a message comes
        # Since one refused the cursor: of a host 2, or more, if it sends nothing to who asks by it.
        self._tried = Counter[str]()
        self._left_position = -1  # where it last went on with what comes
        self._asks_by_id = False  # at the last connection
        self._has_begun = False  # something was read, in this run or before it
        self._forgotten_us = 0  # the latest time of what is not known any more
        self._past = Past()  # as the last connection was asked to go on
        self._is_reached = False  # by it; some hosts begin earlier than they are asked to
        self._past_times: dict[int, int] = {}  # of it, by key; a checkpoint forgets none of them
        self._must_overlap = False  # something that is known is to come again
        self._n_unproven = 0  # newer messages that came before it
        self._opening: futures.Future[Readable] | None = None
        self._connection: Readable | None = None
        self._waiting: list[Received] = []  # what came, and is for the next polls
        self._left_at = self._heard_at = self._spoke_at = clock()
        self._away_s = 0.0  # in which the pipeline did not ask
        self._has_pinged = False
        self._n_bytes = 0
        self._seen_at: dict[str, float] = {}
        self._groups = [each for each in feed.collections if each.endswith(".*")]
        self._patience_s: dict[str, float] = {}

    def resume(self, logs: Mapping[Partition, LogFacts]) -> None:
        """Take the cursor of the checkpoint."""
        self._facts = logs.get(self.partition, self._facts)

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin behind the checkpoint's cursor, or with what comes."""
        position = position_of(self.partition)
        self._has_begun = position is not None
        self._position = position or 0
        if self._facts.cursor is None:
            return
        try:
            cursor = msgspec.json.decode(self._facts.cursor, type=Cursor)
            known = list(unpacked(cursor, self._position))
        except (ValueError, RecursionError) as error:  # MsgspecError is a ValueError
            raise SourceError(
                f"{self.name}: the checkpoint's cursor cannot be read: {error}; restore the state "
                "folder, or begin with an empty one"
            ) from error
        newest_us = self._feed.time_us_of(known[-1]) if known else 0
        if self._begin is not None and 0 < newest_us < self._begin.at * 1000:
            raise behind_position(self.partition, self._begin, self._position)
        with self._lock:  # a checkpoint that is taken meanwhile has all of it, or what was resumed
            self._known, self._keys = deque(known), {each.key for each in known}
            self._forgotten_us = cursor.forgotten_us
            self._numbered = (cursor.host, self._position - cursor.n_numbered)
        if cursor.host in self._feed.hosts:
            self._host = list(self._feed.hosts).index(cursor.host)

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return what came, at most what some reads of the socket bring."""
        self._away_s += self._clock() - self._left_at
        try:
            return self._poll(timeout_s)
        finally:
            self._left_at = self._clock()

    def _poll(self, timeout_s: float) -> list[RawColumns]:
        if self._connection is None:
            self._go_on_connecting(timeout_s)
            return []
        messages: list[LiveMessage] = []
        try:
            connection, n_read = self._connection, self._connection.n_read
            received = self._waiting or self._connection.receive(timeout_s)
            messages = self._read(received)
            # Of few accounts an archive may have nothing: that it is read shows that it goes on.
            has_signs = self._watch() or connection.n_read > n_read
            # A server may send what is known, and end: only what is new begins pauses again.
            if (received or has_signs) and self._connection is not None:
                self._troubles.quiet(_CONNECTION)
        except OSError as error:  # what was read before is known now, and comes no more
            if isinstance(error.__cause__, RefusedError) and error.__cause__.is_too_old:
                self._refuse_cursor(str(error))
            self._lose(str(error))
        if not messages:
            return []
        if not self._has_begun:
            self._check_beginning(messages[0])
        first, self._position = self._position, self._position + len(messages)
        self._has_begun = True
        if self._connection is not None:
            self._troubles.clear(_CONNECTION)
        return [
            from_parts(
                self.partition,
                [None] * len(messages),
                [each.value for each in messages],
                range(first, self._position),
                (each.time_us // 1000 or -1 for each in messages),
                self._position,
            )
        ]

    def logs(self, positions: Mapping[Partition, int]) -> Mapping[Partition, LogFacts]:
        """Return the cursor of the last message that was learned."""
        at = positions.get(self.partition, 0)
        with self._lock:
            while len(self._known) > _KEYS and self._known[_KEYS].offset < at:
                self._forget_oldest()
            learned = [self._as_last_seen(each) for each in self._known if each.offset < at]
            host, since = self._numbered
            forgotten_us = self._forgotten_us
        if learned:
            n_numbered = sum(each.offset >= since for each in learned)
            self._facts = LogFacts(cursor=packed(learned, host, n_numbered, forgotten_us))
        return {} if self._facts.cursor is None else {self.partition: self._facts}

    def at_end(self) -> bool:
        """Return False: it has none."""
        return False

    def trouble(self) -> str | None:
        """Return why nothing can be read."""
        return self._troubles.first()

    def close(self) -> None:
        """Close the connection, also one that is still being made."""
        if self._connection is not None:
            self._connection.close()
        if self._opening is not None:
            self._opening.add_done_callback(_close_if_open)

    def _now(self) -> float:
        """Return the time that was spent reading: what nobody asked for was not silence."""
        return self._clock() - self._away_s

    def _go_on_connecting(self, timeout_s: float) -> None:
        """Begin to connect once the pause is over; take the connection when it is there."""
        if self._opening is None:
            pause_s = self._troubles.pause_s(_CONNECTION)
            if pause_s > 0:
                self._wait(min(pause_s, timeout_s))
                return
            self._past = Past(is_left=True) if self._is_left else self._known_now()
            self._past_times = {each.key: each.time_us for each in self._past.known}
            endpoint = self._feed.endpoint(self._feed.hosts[self._host], self._past)
            self._asks_by_id = _LAST_ID in endpoint.headers
            headers = self._settings.all_headers | dict(endpoint.headers)
            endpoint = endpoint._replace(headers=headers)
            opening: futures.Future[Readable] = futures.Future()
            self._opening = opening

            def connect() -> None:
                try:
                    opening.set_result(self._connect(endpoint))
                except BaseException as error:  # noqa: BLE001 -- `result` raises it
                    opening.set_exception(error)

            threading.Thread(target=connect, name="live-connecting", daemon=True).start()
        if not futures.wait([self._opening], timeout_s).done:
            return
        opening, self._opening = self._opening, None
        try:
            self._connection = opening.result()
        except RefusedError as error:
            self._leave_if_refused(error)
            self._lose(str(error), error.retry_after_s)
            return
        except Exception as error:  # noqa: BLE001 -- whatever a server's answer leads a library to
            self._lose(str(error) or type(error).__name__)
            return
        host, resumes = self._feed.hosts[self._host], bool(self._past.known)
        log.info("live_connected", source=self.name, host=host, resumed=resumes)
        self._end_proof()
        self._must_overlap, self._is_reached = resumes, False
        # Of a time that was asked for, `_check_beginning` tells whether anything is missing.
        may_lack = self._has_begun or (self._is_left and not self._feed.start_us)
        if may_lack and not resumes and self._left_position != self._position:
            self._left_position = self._position  # as long as no message comes, it is one place
            self._note_gap("it goes on with what comes")
        self._has_pinged, self._n_bytes = False, 0
        self._heard_at = self._spoke_at = self._now()
        self._seen_at = dict.fromkeys(self._feed.collections, self._now())

    def _lose(self, why: str, pause_s: float = 0.0) -> None:
        """Close the connection, if there is one; go on with the next host after a pause."""
        # Whose number was refused is asked by time, and who took the cursor and was cut once more.
        goes_by_time = self._past.since_number and not self._known_now().since_number
        if self._tried and not goes_by_time:
            self._tried[self._feed.hosts[self._host]] += 2 if self._connection is None else 1
        if self._connection is not None:
            pause_s = max(pause_s, self._connection.retry_s)
            self._connection.close()
        self._connection, self._waiting = None, []
        pause_s = max(pause_s, self._settings.retry_pause_s)
        pause_s = min(pause_s, max(RETRY_AFTER_MAX_S, self._settings.retry_pause_s))
        self._troubles.say(_CONNECTION, f"{self.name}: {self._feed.redacted(why)}", pause_s)
        self._leave_cursor_if_tried(why)
        self._host = (self._host + 1) % len(self._feed.hosts)

    def _read(self, received: Iterable[Received]) -> list[LiveMessage]:
        """Return the messages that are new; an end that the server announced comes behind them."""
        found: list[LiveMessage] = []
        position, n_bytes, now = self._position, 0, self._now()
        waiting = iter(received)
        for each in waiting:
            try:
                message = self._feed.read(each)
                is_new = message is not None and self._is_new(message, position)
            except FeedError as error:
                if error.too_old:
                    self._refuse_cursor(str(error))
                self._lose(str(error))
                break
            if message is None:
                continue
            self._tried.clear()
            for name in self._watched(message.collection):
                self._seen_at[name] = now
                self._patience_s.pop(name, None)
            self._spoke_at = now
            if not is_new:
                continue
            found.append(message)
            self._is_left = False
            position += 1
            n_bytes += len(message.value)
            if n_bytes >= _VALUES_BYTES_MAX:
                break
        self._waiting = [] if self._connection is None else list(waiting)
        return found

    def _watched(self, collection: str) -> list[str]:
        """Return the feed's collections that a message is of: its own, and groups that have it."""
        names = [each for each in self._groups if collection.startswith(each[:-1])]
        return [*names, collection] if collection in self._seen_at else names

    def _is_new(self, message: LiveMessage, position: int) -> bool:
        """Note a message; return False for one that is known, or stands before what was asked.

        One that shows that its host numbers anew is a `FeedError`.
        """
        key = message.key
        if key is None:
            return True
        is_known = key in self._keys or key in self._past_times
        if self._must_overlap or message.number < self._past.since_number:
            self._check_numbers(message, self._past_times.get(key), is_known=is_known)
        # What is known and older reaches nothing: others of that time may be forgotten.
        self._is_reached |= self._past.since_us <= message.time_us <= self._latest_us()
        if is_known:
            self._must_overlap = False
            with self._lock:  # a server that lost it at a crash has it later, by another number
                if key in self._keys and message.time_us > self._again.get(key, (0, 0))[0]:
                    self._again[key] = message.time_us, message.number
            return False
        if self._past.is_before(message.time_us, message.number, is_reached=self._is_reached):
            return False
        self._check_overlap(message)
        time_us = self._feed.time_us_of(message)
        self._note(Known(position, key, time_us, message.number, message.id))
        if self._numbered[0] != self._feed.hosts[self._host]:
            self._numbered = (self._feed.hosts[self._host], position)
        return True

    def _check_numbers(self, message: LiveMessage, known_us: int | None, *, is_known: bool) -> None:
        """Forget the numbers of a host that begins anew with them; it is asked by time then."""
        if is_known and known_us is None:
            return  # it came on this connection
        if self._past.is_numbered_anew(message.time_us, message.number, known_us):
            why = f"the host numbers anew: {message.number} came behind {self._past.since_number}"
            self._forget_numbers(why)
            raise FeedError(why)

    def _known_now(self) -> Past:
        """Return what the next connection can go on from.

        What is far ahead of our clock is left out, or all that follows it would look old; unless
        all is, which is our clock's mistake.
        """
        latest = self._latest_us()
        with self._lock:
            known = tuple(map(self._as_last_seen, self._known))
        known = tuple(each for each in known if each.time_us <= latest) or known
        if not known:
            since_us = 0 if self._has_begun else self._feed.start_us
            return Past(since_us=since_us, is_left=self._has_begun)
        host, first = self._numbered
        oldest, newest = known[0].time_us, max(each.time_us for each in known)
        # Of the oldest time others may be forgotten, and later ones that came before it.
        since = next((each.time_us for each in known if each.time_us > oldest), oldest)
        since = min(max(since, self._forgotten_us + 1, newest - _REWIND_US), newest)
        if host != self._feed.hosts[self._host] or known[-1].offset < first:
            return Past(known, (since + newest) // 2, is_elsewhere=True)  # maybe by another clock
        own = (each.number for each in known if each.offset >= first and each.time_us >= since)
        # Numbers of the second wire are no cursors of the first.
        number = min(own, default=0) if self._feed.has_numbers else 0
        return Past(known, since, number, forgotten_us=self._forgotten_us)

    def _as_last_seen(self, known: Known) -> Known:
        """Return a message with the time and the number that it had last."""
        time_us, number = self._again.get(known.key, (0, 0))
        return known._replace(time_us=time_us, number=number) if time_us > known.time_us else known

    def _note(self, known: Known) -> None:
        with self._lock:
            self._known.append(known)
            self._keys.add(known.key)
            if len(self._known) > _KEYS + _KEYS_WAITING:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forget the oldest message; a time far ahead of our clock is a server's mistake."""
        oldest = self._as_last_seen(self._known.popleft())
        self._keys.discard(oldest.key)
        self._again.pop(oldest.key, None)
        if self._forgotten_us < oldest.time_us <= self._latest_us():
            self._forgotten_us = oldest.time_us

    def _latest_us(self) -> float:
        """Return the latest time that a message can rightly have."""
        return self._wall_time() * 1e6 + _AHEAD_US

    def _check_beginning(self, first: LiveMessage) -> None:
        """Count a gap if the stream has less of its past than was asked for."""
        asked_us, found_us = self._feed.start_us, self._feed.time_us_of(first)
        # A time far ahead of our clock is a mistake, and may be none that a date can hold.
        if asked_us and asked_us + _BEGINNING_US < found_us <= self._latest_us():
            asked, found = (Bound("time", each // 1000) for each in (asked_us, found_us))
            self._note_gap(
                f"asked for what came from {asked} on, the stream begins at {found}: what lies "
                "between is out of its reach, or there is nothing"
            )

    def _check_overlap(self, message: LiveMessage) -> None:
        """Count a gap if what is newer comes, and nothing that is known came again.

        Of another host all counts: by a clock that is slow, what is newer looks older.
        """
        if self._must_overlap and (
            self._past.is_elsewhere or message.time_us > self._past.known[-1].time_us
        ):
            self._n_unproven += 1
            if self._n_unproven >= _PROOF:
                self._end_proof()

    def _end_proof(self) -> None:
        """Count a gap unless something that is known has come again."""
        if self._must_overlap and self._n_unproven:
            self._note_gap("nothing that was read before came again")
        self._must_overlap, self._n_unproven = False, 0

    def _note_gap(self, why: str) -> None:
        self.gaps += 1
        log.warning("stream_gap", source=self.name, position=self._position, detail=why)

    def _refuse_cursor(self, why: str) -> None:
        """Ask by time next time if only a number was refused, else each other host once."""
        if self._past.since_number:
            self._forget_numbers(why)
            return
        self._tried[host := self._feed.hosts[self._host]] += 2
        log.warning("cursor_refused", source=self.name, host=host, detail=self._feed.redacted(why))

    def _leave_cursor_if_tried(self, why: str) -> None:
        """Go on with what comes next time, over a gap, if no host has what the cursor asks for.

        One that cannot be reached counts too: the others would not be read until it is back.
        """
        if min(self._tried[host] for host in self._feed.hosts) < 2:
            return
        self._tried.clear()
        self._is_left = True
        self._numbered = ("", self._position)  # the host may number again
        log.warning("cursor_left_behind", source=self.name, detail=self._feed.redacted(why))

    def _forget_numbers(self, why: str) -> None:
        """Go on by time next time: no host has what is known by these numbers."""
        self._numbered = ("", self._position)
        log.warning("numbers_left_behind", source=self.name, detail=self._feed.redacted(why))

    def _leave_if_refused(self, error: RefusedError) -> None:
        """Take note of a cursor that this host would refuse for ever."""
        if error.is_too_old:
            self._refuse_cursor("the cursor is too old")
        elif self._asks_by_id and error.status in _NO_ID:
            self._refuse_cursor(f"the last event's id was {error}")

    def _watch(self) -> bool:
        """Lose a connection that is silent, or silent on one of its collections.

        Return whether bytes came, if they are signs of life by themselves.
        """
        if self._connection is None:
            return False
        has_signs = self._connection.n_bytes != self._n_bytes and not self._feed.must_speak
        now, limit_s = self._now(), self._settings.idle_timeout_s
        if self._connection.n_bytes != self._n_bytes:
            self._n_bytes = self._connection.n_bytes
            self._heard_at, self._has_pinged = now, False
            if self._connection.is_history:  # most of it may be of other collections
                self._spoke_at = now
                self._seen_at = dict.fromkeys(self._seen_at, now)
        silent_s = now - (self._spoke_at if self._feed.must_speak else self._heard_at)
        if silent_s >= limit_s:
            raise ConnectionError(f"silent for {limit_s:g} s")
        if silent_s >= limit_s / 2 and not self._has_pinged:
            self._has_pinged = True
            self._connection.ping()
        for name, seen_at in self._seen_at.items():
            patience_s = self._patience_s.get(name, self._feed.collection_idle_timeout_s)
            if now - seen_at >= patience_s:
                self._patience_s[name] = 2 * patience_s  # it may be quiet everywhere
                raise ConnectionError(f"nothing of {name} for {patience_s:g} s")
        return has_signs


def _close_if_open(opening: futures.Future[Readable]) -> None:
    if opening.exception() is None:
        opening.result().close()


# ---- any other -----------------------------------------------------------------------------------


class _EventPlace(msgspec.Struct, omit_defaults=True):
    """Where a partition of Wikimedia's servers goes on: at a number, or at a time."""

    topic: str
    partition: int
    offset: int | msgspec.UnsetType = msgspec.UNSET
    timestamp: Annotated[int, msgspec.Meta(ge=0, lt=1 << 50)] = 0  # Unix milliseconds


def _places_in(event_id: str) -> list[_EventPlace]:
    """Return the places that are the id of one of Wikimedia's events; none of another one."""
    if not event_id.startswith("[{"):
        return []
    try:
        return msgspec.json.decode(event_id, type=list[_EventPlace])
    except (msgspec.MsgspecError, RecursionError):
        return []


def _newest_us(event_id: str) -> int:
    return 1000 * max((each.timestamp for each in _places_in(event_id)), default=0)


def _id_from(last_id: str, since_us: int) -> str:
    """Return an id for all from a time on, so for what has the id of that time too."""
    since_ms = -(-since_us // 1000) - 1  # servers add one to the time of the event itself
    if since_ms <= 0 or not _newest_us(last_id):
        return last_id
    places = _places_in(last_id)
    for each in places:
        each.timestamp = min(each.timestamp, since_ms)
    return msgspec.json.encode(places).decode()


class StreamFeed(Feed):
    """Server-sent events, messages of a WebSocket, or lines over HTTP, as they come.

    Events with an id are resumed behind the last one; everything else begins again. An event with a
    name of its own becomes `{"event": NAME, "payload": DATA}`. `since` is for servers that begin at
    a time, as Wikimedia's do, whose ids have times: they are asked for the last minute again, as a
    time says nothing of what else came in its millisecond, and an event is known by its data.
    """

    def __init__(self, url: str, framing: Framing, since: Bound | None = None) -> None:
        self._endpoint = Endpoint(url, framing)
        self._since = since
        self.start_us = 0 if since is None else since.at * 1000
        self.name = url.partition("?")[0]
        self.hosts = (self.name,)

    def endpoint(self, host: str, past: Past) -> Endpoint:  # noqa: ARG002 -- there is one
        """Return the address, with the id of the last event."""
        if past.known:
            last_id = _id_from(past.known[-1].id, past.since_us)
            return self._endpoint._replace(headers={_LAST_ID: last_id})
        if self._since is None or past.is_left:
            return self._endpoint
        place, _, query = self._endpoint.url.partition("?")
        asked = [each for each in query.split("&") if each and not each.startswith("since=")]
        return self._endpoint._replace(url=f"{place}?{'&'.join([*asked, f'since={self._since}'])}")

    def time_us_of(self, message: Known | LiveMessage) -> int:
        """Return the newest time in the id of one of Wikimedia's events; 0 if it has none."""
        return _newest_us(message.id)

    def read(self, received: Received) -> LiveMessage | None:
        """Return a message."""
        data, event, event_id, n = received
        number = [str(n)] if n else []  # checkpoints have keys without one
        # Of several partitions each is in an id, in whatever order they came; data say their own.
        own = event_id if n or not _newest_us(event_id) else ""
        key = key_of(own, event, str(data), *number) if event_id else None
        if event != "message":
            is_json = data[:1] in {b"{", b"["}
            payload = msgspec.Raw(data) if is_json else data.decode("utf-8", "replace")
            data = msgspec.json.encode({"event": event, "payload": payload})
        return LiveMessage(data, key, id=event_id)
