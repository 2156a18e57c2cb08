"""Bluesky's Jetstream: what its two wires ask and say."""

from __future__ import annotations

import http.client
import queue
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Annotated, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import structlog
import zstandard

from consumers.config.addresses import Bound, JetstreamSettings, LiveSettings
from consumers.sources.base import Past
from consumers.sources.connections import (
    Connection,
    Endpoint,
    Feed,
    FeedError,
    LiveMessage,
    Readable,
    Received,
    RefusedError,
    key_of,
)
from consumers.sources.records import EPOCH, BlockRow, block_rows, frame_of
from consumers.web_request import TimedConnection, TimedTlsConnection

# A record has at most 1 MiB. A frame that unpacks to more than this is rejected as it came.
_UNPACKED_BYTES_MAX = 4 << 20
_DICTIONARY_BYTES_MAX = 4 << 20
_BLOCK_BYTES_MAX = 64 << 20  # of the archive; a block has some 4,096 events
_ANSWER_BYTES_MAX = 64 << 20
_REASON_BYTES_MAX = 2000
_BLOCKS_AHEAD = 2  # are fetched while the one before them is read
_MICROSECOND = timedelta(microseconds=1)
_TIMES_FROM = 10**15  # a smaller cursor is a number
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class _Commit(msgspec.Struct):
    """What of a commit makes it this one."""

    rev: str = ""
    operation: str = ""
    collection: str = ""
    rkey: str = ""


_Answer = TypeVar("_Answer")
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Origin(msgspec.Struct):
    """What the network itself says of an event that is no commit."""

    seq: int = 0
    time: str = ""
    rev: str = ""  # of a sync


class _Event(_Commit):
    did: str = ""
    account: _Origin | None = None
    identity: _Origin | None = None
    sync: _Origin | None = None


class _Frame1(_Event):
    time_us: _Number = 0
    kind: str = ""
    commit: _Commit | None = None


class _Payload(_Event):
    kind: str = msgspec.field(name="$type", default="")
    seq: _Number = 0
    time: Annotated[datetime, msgspec.Meta(tz=True)] = EPOCH
    error: str = ""
    name: str = ""
    message: str = ""


class _Frame2(msgspec.Struct):
    kind: str = msgspec.field(name="$type", default="")
    payload: _Payload | None = None
    error: str = ""
    message: str = ""


def from_time(settings: JetstreamSettings, begin: Bound) -> JetstreamSettings:
    """Return settings that begin at a time; one before 2001 would be taken for a number."""
    return settings.model_copy(update={"start_at": max(begin.at * 1000, _TIMES_FROM)})


_NO_CURSOR = {"CursorTooOld", "FutureCursor", "OutdatedCursor"}


class JetstreamFeed(Feed):
    """Bluesky's Jetstream, by either of its wires.

    A commit is known by its repository and revision, on every host. A host numbers its messages by
    itself, so another one is asked by time.
    """

    name = "jetstream"
    must_speak = True

    def __init__(self, hosts: Sequence[str], settings: JetstreamSettings) -> None:
        self.hosts = hosts
        has_commits = settings.version == 1 or not settings.kinds or "commit" in settings.kinds
        # A few accounts may have nothing to say for days: a ping shows that the connection stands.
        self.must_speak = not settings.dids
        self.collections = settings.collections if has_commits and self.must_speak else ()
        self.collection_idle_timeout_s = settings.collection_idle_timeout_s
        self._settings = settings
        self.start_us = settings.start_at or 0
        if self.start_us < _TIMES_FROM:
            self.start_us = 0
        self.has_numbers = settings.version == 2
        self.secrets = () if settings.key is None else (settings.key,)
        self._dictionaries: dict[str, zstandard.ZstdCompressionDict] = {}  # by host
        self._unpack: zstandard.ZstdDecompressor | None = None  # what the last connection sends
        self._read1 = msgspec.json.Decoder(_Frame1).decode
        self._read2 = msgspec.json.Decoder(_Frame2).decode

    def endpoint(self, host: str, past: Past) -> Endpoint:
        """Return the address of a subscription that begins a while before the last message."""
        settings, cursor = self._settings, self._cursor(past)
        names = ("wantedCollections", "wantedDids")
        path, subprotocol = "/subscribe", None
        query: list[tuple[str, object]] = []
        if settings.version == 2:
            names, subprotocol = ("collections", "dids"), "xrpc.v1.json"
            path = "/xrpc/network.bsky.jetstream.subscribeEvents"
            query += [("kinds", kind) for kind in settings.kinds]
        query += [(names[0], name) for name in settings.collections]
        query += [(names[1], did) for did in settings.dids]
        if cursor is not None:
            query.append(("cursor", cursor))
        asked = f"?{urlencode(query)}" if query else ""
        return Endpoint(f"{host}{path}{asked}", "websocket", subprotocol=subprotocol)

    def _cursor(self, past: Past) -> int | None:
        """Return the number or the time to begin with; None is what comes."""
        if past.known:
            return past.since_number or past.since_us
        if past.is_left:
            return None
        return (
            1 if self._settings.history and not self._settings.start_at else self._settings.start_at
        )

    def connection(self, endpoint: Endpoint, past: Past, live: LiveSettings) -> Readable:
        """Connect; by the archive first, if the host has what is asked for only there."""
        if self._settings.compress:
            endpoint = self._packing(endpoint, live)
        cursor = self._cursor(past)
        if not self._settings.history or cursor is None:
            return self._subscribed(endpoint, live)

        def go_live(after: int) -> Readable:
            return self._subscribed(_from(endpoint, after + 1), live)

        key = self._settings.key
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        archive = Archive(_Site(endpoint, live, headers), self._settings)
        if cursor >= _TIMES_FROM:
            after = archive.last_before(cursor)
            if after is None:  # it is younger than all of the archive
                return self._subscribed(endpoint, live)
            return ArchiveConnection(archive, after, cursor, go_live)
        try:
            return self._subscribed(endpoint, live)
        except RefusedError as error:
            if not error.is_too_old:
                raise
        return ArchiveConnection(archive, cursor - 1, 0, go_live)

    def _subscribed(self, endpoint: Endpoint, live: LiveSettings) -> Connection:
        try:
            return Connection(endpoint, live.connect_timeout_s, live.ssl_cafile)
        except RefusedError as error:
            if "UnknownZstdDictionary" in error.reason:
                self._dictionaries.pop(endpoint.place, None)
            raise

    def _packing(self, endpoint: Endpoint, live: LiveSettings) -> Endpoint:
        """Return an endpoint that sends zstd, by the dictionary of its host."""
        dictionary = self._dictionaries.get(endpoint.place)
        if dictionary is None:
            site, bytes_max = _Site(endpoint, live), _DICTIONARY_BYTES_MAX
            body = site.ask("getZstdDictionary", {}, bytes_max, is_bounded=True)
            dictionary = zstandard.ZstdCompressionDict(body, zstandard.DICT_TYPE_FULLDICT)
        try:
            self._unpack = zstandard.ZstdDecompressor(dict_data=dictionary)
        except zstandard.ZstdError as error:
            raise ConnectionError(f"getZstdDictionary: no dictionary: {error}") from error
        self._dictionaries[endpoint.place] = dictionary
        mark = "&" if "?" in endpoint.url else "?"
        return endpoint._replace(url=f"{endpoint.url}{mark}zstdDictionary={dictionary.dict_id()}")

    def read(self, received: Received) -> LiveMessage | None:
        """Read a frame; one that is no JSON is a message all the same, and the decoder's case."""
        data = received.data
        try:
            if self._unpack is not None:
                data = _unpacked(self._unpack, data)
            if self._settings.version == 1:
                return _of_frame1(data, self._read1(data))
            frame = self._read2(data)
        except (ValueError, RecursionError, zstandard.ZstdError):  # MsgspecError is a ValueError
            return LiveMessage(data)
        payload = frame.payload or _Payload()
        if frame.kind != "message":
            name = frame.error or payload.error or payload.name
            said = f"the server ended the stream: {name} {frame.message or payload.message}"
            raise FeedError(said, too_old=name in _NO_CURSOR)
        kind = payload.kind.rpartition("#")[2]
        if kind == "info":
            log.warning(
                "jetstream_info", detail=self.redacted(data.decode("utf-8", "replace"))[:500]
            )
            return None
        time_us = (payload.time - EPOCH) // _MICROSECOND
        key = _key_of_event(payload, payload if kind == "commit" else None, kind, time_us)
        return LiveMessage(data, key, time_us, payload.seq, collection=payload.collection)


def _key_of_event(event: _Event, commit: _Commit | None, kind: str, time_us: int) -> int | None:
    """Return what an event is known by, on every host and wire; None if it names nobody."""
    if not event.did:
        return None
    if commit is not None:
        return key_of(event.did, commit.rev, commit.operation, commit.collection, commit.rkey)
    origin = event.account or event.identity or event.sync or _Origin()
    if event.sync is not None and origin.rev:  # as that of the records behind it
        return key_of(event.did, kind, origin.rev)
    return key_of(event.did, kind, str(origin.seq or (0 if origin.time else time_us)), origin.time)


def _of_frame1(data: bytes, frame: _Frame1) -> LiveMessage:
    commit = frame.commit
    key = _key_of_event(frame, commit, frame.kind, frame.time_us)
    collection = "" if commit is None else commit.collection
    return LiveMessage(data, key, frame.time_us, collection=collection)


def _unpacked(
    zstd: zstandard.ZstdDecompressor, data: bytes, bytes_max: int = _UNPACKED_BYTES_MAX
) -> bytes:
    """Return what a zstd frame holds, other data as it is; one that holds too much is an error."""
    if data[:4] != zstandard.FRAME_HEADER:
        return data
    if zstandard.frame_content_size(data) > bytes_max:
        raise zstandard.ZstdError(f"it unpacks to more than {bytes_max} bytes")
    # The size that a frame states is the room it gets; one that states none gets this much.
    return zstd.decompress(data, max_output_size=bytes_max, allow_extra_data=False)


# ---- the archive ---------------------------------------------------------------------------------


class _BlockRange(msgspec.Struct):
    first: _Number
    last: _Number


class _PlannedSegment(msgspec.Struct):
    name: str
    mode: Literal["segment", "blocks"]
    blocks: list[_BlockRange] = []


class _Plan(msgspec.Struct, rename="camel"):
    planned_through_seq: _Number
    sealed_tip_seq: _Number
    segments: list[_PlannedSegment]


class _ListedSegment(msgspec.Struct, rename="camel"):
    min_seq: _Number
    max_witnessed_at: int


class _Listed(msgspec.Struct):
    segments: list[_ListedSegment]
    cursor: str = ""


class Archive:
    """What a host keeps beyond the events that a subscription can begin with."""

    def __init__(self, site: _Site, settings: JetstreamSettings) -> None:
        self._site = site
        self._settings = settings
        self._zstd = zstandard.ZstdDecompressor()
        exact = frozenset(name for name in settings.collections if not name.endswith(".*"))
        self._collections = exact
        self._prefixes = tuple(each[:-1] for each in settings.collections if each not in exact)
        self._dids = frozenset(settings.dids)

    @property
    def n_bytes(self) -> int:
        """How much has come."""
        return self._site.n_bytes

    def last_before(self, time_us: int) -> int | None:
        """Return the number before the first segment that reaches a time; None if none does."""
        cursor, asked = "", set[str]()
        while cursor not in asked:
            asked.add(cursor)
            query = {"limit": 1000} | ({"cursor": cursor} if cursor else {})
            found = self._site.ask("listSegments", query, is_bounded=True)
            page = _decoded("listSegments", found, _Listed)
            for segment in page.segments:
                if segment.max_witnessed_at >= time_us:
                    return max(0, segment.min_seq - 1)
            if not page.cursor or not page.segments:
                return None
            cursor = page.cursor
        raise ConnectionError("listSegments: the pages do not go on")

    def blocks(self, after: int, since_us: int) -> Generator[list[Received], None, int]:
        """Yield the events behind a number and not older than a time, as a subscription has them.

        Returns
        -------
        int
            The number of the archive's last event: a subscription goes on behind it.
        """
        settings, read = self._settings, after
        asked = {"kinds": settings.kinds, "collections": settings.collections}
        asked |= {"dids": settings.dids}
        while True:
            body = {name: value for name, value in asked.items() if value} | {"afterSeq": after}
            answer = self._site.ask("planSnapshot", {}, body=msgspec.json.encode(body))
            plan = _decoded("planSnapshot", answer, _Plan)
            for segment in plan.segments:
                for packed in self._packed_blocks(segment):
                    rows = block_rows(_unpacked(self._zstd, packed, _BLOCK_BYTES_MAX))
                    new = [row for row in rows if row.seq > read]  # a plan may name some again
                    read = max([read, *(row.seq for row in new)])
                    yield [
                        Received(frame_of(row))
                        for row in new
                        if row.witnessed_us >= since_us and self._wants(row)
                    ]
            if plan.planned_through_seq >= plan.sealed_tip_seq:
                return max(after, plan.sealed_tip_seq)
            if plan.planned_through_seq <= after:
                raise ConnectionError("planSnapshot: the plan does not go on")
            after = plan.planned_through_seq

    def _wants(self, row: BlockRow) -> bool:
        """Return whether a subscription would send an event: a plan names whole blocks."""
        settings = self._settings
        if settings.kinds and row.event not in settings.kinds:
            return False
        if self._dids and row.did not in self._dids:
            return False
        if row.event != "commit" or not row.collection or not settings.collections:
            return True
        return row.collection in self._collections or row.collection.startswith(self._prefixes)

    def _packed_blocks(self, segment: _PlannedSegment) -> Iterator[bytes]:
        if segment.mode == "blocks":
            for each in segment.blocks:
                for i in range(each.first, each.last + 1):
                    query = {"segment": segment.name, "blockIndex": i}
                    yield self._site.ask("getBlock", query, _BLOCK_BYTES_MAX)
            return
        with self._site.open("getSegment", {"name": segment.name}) as read:
            header = read(256)
            footer_at = int.from_bytes(header[58:66], "little")
            if header[:4] != b"jss0" or header[12:14] != b"\1\0":
                raise ConnectionError("getSegment: a segment of another version")
            at = len(header)
            if footer_at < at:
                raise ConnectionError("getSegment: a segment without an end of its blocks")
            while at < footer_at:
                n = int.from_bytes(read(8), "little")
                if n > _BLOCK_BYTES_MAX:
                    raise ConnectionError(f"getSegment: a block of {n} bytes")
                yield read(n)
                at += 8 + n


class ArchiveConnection:
    """A connection that brings an archive, and then what is live.

    A thread of its own fetches a little ahead of what is asked for.
    """

    def __init__(
        self, archive: Archive, after: int, since_us: int, go_live: Callable[[int], Readable]
    ) -> None:
        self.retry_s = 0.0
        self.n_read = 0
        self._archive = archive
        self._go_live = go_live
        self._live: Readable | None = None
        self._found: queue.SimpleQueue[list[Received] | Readable | Exception] = queue.SimpleQueue()
        self._room = threading.Semaphore(_BLOCKS_AHEAD)
        self._lock = threading.Lock()
        self._is_closed = False
        fetch = threading.Thread(
            target=self._fetch, args=(after, since_us), name="live-history", daemon=True
        )
        fetch.start()

    @property
    def is_history(self) -> bool:
        """Whether what comes is the archive's."""
        return self._live is None

    @property
    def n_bytes(self) -> int:
        """How much has come."""
        return self._archive.n_bytes + (0 if self._live is None else self._live.n_bytes)

    def receive(self, timeout_s: float) -> list[Received]:
        """Return the events of a block, or what is live; an end is a `ConnectionError`."""
        if self._live is not None:
            return self._live.receive(timeout_s)
        try:
            found = self._found.get(timeout=timeout_s)
        except queue.Empty:
            return []
        self.n_read += not isinstance(found, Exception)
        if isinstance(found, list):
            self._room.release()
            return found
        if isinstance(found, Exception):
            self.retry_s = found.retry_after_s if isinstance(found, RefusedError) else 0.0
            raise ConnectionError(f"history: {found}") from found
        self._live = found
        return []

    def ping(self) -> None:
        """Ask for a sign of life, where somebody can be asked."""
        if self._live is not None:
            self._live.ping()

    def close(self) -> None:
        """Close it; what is being fetched is left."""
        with self._lock:
            self._is_closed = True
        self._room.release()
        if self._live is not None:
            self._live.close()
        while not self._found.empty():
            _close(self._found.get())

    def _fetch(self, after: int, since_us: int) -> None:
        try:
            for step in self._steps(after, since_us):
                self._room.acquire()
                if not self._give(step):
                    return
        except Exception as error:  # noqa: BLE001 -- `receive` raises it
            self._give(error)

    def _give(self, step: list[Received] | Readable | Exception) -> bool:
        with self._lock:
            if not self._is_closed:
                self._found.put(step)
                return True
        _close(step)
        return False

    def _steps(self, after: int, since_us: int) -> Iterator[list[Received] | Readable]:
        while True:
            before, after = after, (yield from self._archive.blocks(after, since_us))
            try:
                live = self._go_live(after)
            except RefusedError as error:  # the archive may have grown past it
                if not error.is_too_old or after == before:
                    raise
            else:
                yield live
                return


def _close(step: list[Received] | Readable | Exception) -> None:
    if not isinstance(step, list | Exception):
        step.close()


def _from(endpoint: Endpoint, cursor: int) -> Endpoint:
    """Return the endpoint with another cursor."""
    asked = [each for each in parse_qsl(urlsplit(endpoint.url).query) if each[0] != "cursor"]
    return endpoint._replace(url=f"{endpoint.place}?{urlencode([*asked, ('cursor', cursor)])}")


# ---- what a host answers -------------------------------------------------------------------------


class _Site:
    """The host of an endpoint, as it answers single requests."""

    def __init__(
        self, endpoint: Endpoint, live: LiveSettings, headers: Mapping[str, str] | None = None
    ) -> None:
        parts = urlsplit(endpoint.url)
        self._host, self._is_secure = parts.hostname or "", parts.scheme in {"wss", "https"}
        # Without a port `http.client` would take the last group of an IPv6 address for one.
        self._port = parts.port or (443 if self._is_secure else 80)
        self._live = live
        self._headers = {**endpoint.headers, **(headers or {})}
        self.n_bytes = 0

    def ask(
        self,
        name: str,
        query: Mapping[str, object],
        bytes_max: int = _ANSWER_BYTES_MAX,
        body: bytes | None = None,
        *,
        is_bounded: bool = False,
    ) -> bytes:
        """Return a whole answer; another status than 200 is a `RefusedError`.

        One that `is_bounded` must have come within `live.connect_timeout_s`: nobody watches what is
        asked for before there is a connection.
        """
        with self._answer(name, query, body, is_bounded=is_bounded) as answer:
            found, left = answer.read(bytes_max + 1), answer.length
        if len(found) > bytes_max:
            raise ConnectionError(f"{name}: the answer is longer than {bytes_max} bytes")
        if left:  # `read` of so many bytes returns fewer if the host closes before
            raise ConnectionError(f"{name}: the answer was cut off")
        self.n_bytes += len(found)
        return found

    @contextmanager
    def open(self, name: str, query: Mapping[str, object]) -> Iterator[Callable[[int], bytes]]:
        """Open an answer that is read piece by piece, each of a given size."""
        with self._answer(name, query, None) as answer:

            def read(n: int) -> bytes:
                found = answer.read(n)
                if len(found) != n:
                    raise ConnectionError(f"{name}: the answer was cut off")
                self.n_bytes += n
                return found

            yield read

    @contextmanager
    def _answer(
        self,
        name: str,
        query: Mapping[str, object],
        body: bytes | None,
        *,
        is_bounded: bool = False,
    ) -> Iterator[http.client.HTTPResponse]:
        connection = self._connection(is_bounded=is_bounded)
        headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
        method = "GET" if body is None else "POST"
        asked = f"?{urlencode(query)}" if query else ""
        try:
            path = f"/xrpc/network.bsky.jetstream.{name}{asked}"
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            if answer.status != 200:
                reason = answer.read(_REASON_BYTES_MAX).decode("utf-8", "replace")
                after = answer.headers["Retry-After"]
                raise RefusedError(answer.status, f"{name}: {reason}", after)
            yield answer
        except http.client.HTTPException as error:
            raise ConnectionError(f"{name}: no HTTP answer: {error!r}") from error
        except TimeoutError as error:
            limit = f"live.connect_timeout_s: {self._live.connect_timeout_s:g}"
            raise ConnectionError(f"{name}: the answer did not come in time ({limit})") from error
        finally:
            connection.close()

    def _connection(self, *, is_bounded: bool) -> http.client.HTTPConnection:
        timeout_s = self._live.connect_timeout_s
        if not self._is_secure:
            plain = TimedConnection if is_bounded else http.client.HTTPConnection
            return plain(self._host, self._port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._live.ssl_cafile)
        tls = TimedTlsConnection if is_bounded else http.client.HTTPSConnection
        return tls(self._host, self._port, timeout=timeout_s, context=context)


def _decoded(name: str, body: bytes, kind: type[_Answer]) -> _Answer:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ConnectionError(f"{name}: another answer than expected: {error}") from error
