"""Bluesky's Jetstream: what its two wires ask and say."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias
from urllib.parse import urlencode, urlsplit

import msgspec
import structlog
import zstandard

from consumers.config.sections import JetstreamSettings, LiveSettings
from consumers.sources.connections import (
    Endpoint,
    Feed,
    FeedError,
    LiveMessage,
    Past,
    Readable,
    Received,
    RefusedError,
    key_of,
)

# A record has at most 1 MiB. A frame that unpacks to more than this is rejected as it came.
_UNPACKED_BYTES_MAX = 4 << 20
_DICTIONARY_BYTES_MAX = 4 << 20
_REASON_BYTES_MAX = 2000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class _Commit(msgspec.Struct):
    """What of a commit makes it this one."""

    rev: str = ""
    operation: str = ""
    collection: str = ""
    rkey: str = ""


_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class _Origin(msgspec.Struct):
    """What the network itself says of an event that is no commit."""

    seq: int = 0
    time: str = ""


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
    time: Annotated[datetime, msgspec.Meta(tz=True)] = _EPOCH
    error: str = ""
    name: str = ""
    message: str = ""


class _Frame2(msgspec.Struct):
    kind: str = msgspec.field(name="$type", default="")
    payload: _Payload | None = None
    error: str = ""
    message: str = ""


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
        self.collections = settings.collections
        self.collection_idle_timeout_s = settings.collection_idle_timeout_s
        self._settings = settings
        self._dictionaries: dict[str, zstandard.ZstdCompressionDict] = {}  # by host
        self._unpack: zstandard.ZstdDecompressor | None = None  # what the last connection sends
        self._read1 = msgspec.json.Decoder(_Frame1).decode
        self._read2 = msgspec.json.Decoder(_Frame2).decode

    def endpoint(self, host: str, past: Past) -> Endpoint:
        """Return the address of a subscription that begins a while before the last message."""
        settings = self._settings
        cursor = None if past.is_left else settings.start_at
        if past.known:
            cursor = past.since_number or past.since_us
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

    def connection(self, endpoint: Endpoint, past: Past, live: LiveSettings) -> Readable:
        """Connect, with the dictionary of the host if it is to compress."""
        if not self._settings.compress:
            return super().connection(endpoint, past, live)
        dictionary = self._dictionaries.get(endpoint.place)
        if dictionary is None:
            body = _Site(endpoint, live).get("getZstdDictionary", {}, _DICTIONARY_BYTES_MAX)
            dictionary = zstandard.ZstdCompressionDict(body, zstandard.DICT_TYPE_FULLDICT)
        try:
            self._unpack = zstandard.ZstdDecompressor(dict_data=dictionary)
        except zstandard.ZstdError as error:
            raise ConnectionError(f"getZstdDictionary: no dictionary: {error}") from error
        mark = "&" if "?" in endpoint.url else "?"
        url = f"{endpoint.url}{mark}zstdDictionary={dictionary.dict_id()}"
        try:
            found = super().connection(endpoint._replace(url=url), past, live)
        except RefusedError as error:
            if "UnknownZstdDictionary" in error.reason:
                self._dictionaries.pop(endpoint.place, None)
            raise
        self._dictionaries[endpoint.place] = dictionary
        return found

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
        time_us = (payload.time - _EPOCH) // timedelta(microseconds=1)
        key = _key_of_event(payload, payload if kind == "commit" else None, kind, time_us)
        return LiveMessage(data, key, time_us, payload.seq, collection=payload.collection)


def _key_of_event(event: _Event, commit: _Commit | None, kind: str, time_us: int) -> int | None:
    """Return what an event is known by, on every host and wire; None if it names nobody."""
    if not event.did:
        return None
    if commit is not None:
        return key_of(event.did, commit.rev, commit.operation, commit.collection, commit.rkey)
    origin = event.account or event.identity or event.sync or _Origin(time_us)
    return key_of(event.did, kind, origin.seq, origin.time)


def _of_frame1(data: bytes, frame: _Frame1) -> LiveMessage:
    commit = frame.commit
    key = _key_of_event(frame, commit, frame.kind, frame.time_us)
    collection = "" if commit is None else commit.collection
    return LiveMessage(data, key, frame.time_us, collection=collection)


def _unpacked(zstd: zstandard.ZstdDecompressor, data: bytes) -> bytes:
    """Return what a zstd frame holds, other data as it is; one that holds too much is an error."""
    if data[:4] != zstandard.FRAME_HEADER:
        return data
    if zstandard.frame_content_size(data) > _UNPACKED_BYTES_MAX:
        raise zstandard.ZstdError(f"it unpacks to more than {_UNPACKED_BYTES_MAX} bytes")
    # The size that a frame states is the room it gets; one that states none gets this much.
    return zstd.decompress(data, max_output_size=_UNPACKED_BYTES_MAX, allow_extra_data=False)


# ---- what a host answers -------------------------------------------------------------------------


class _Site:
    """The host of an endpoint, as it answers single requests."""

    def __init__(
        self, endpoint: Endpoint, live: LiveSettings, headers: Mapping[str, str] | None = None
    ) -> None:
        parts = urlsplit(endpoint.url)
        self._host, self._port = parts.hostname or "", parts.port
        self._is_secure = parts.scheme in {"wss", "https"}
        self._live = live
        self._headers = {**endpoint.headers, **(headers or {})}

    def get(self, name: str, query: Mapping[str, object], bytes_max: int) -> bytes:
        """Return the answer to a question; another status than 200 is a `RefusedError`."""
        connection = self._connection()
        try:
            connection.request("GET", _path(name, query), headers=self._headers)
            answer = connection.getresponse()
            body = answer.read(bytes_max + 1)
        except http.client.HTTPException as error:
            raise ConnectionError(f"{name}: no HTTP answer: {error!r}") from error
        finally:
            connection.close()
        if answer.status != 200:
            reason = body[:_REASON_BYTES_MAX].decode("utf-8", "replace")
            raise RefusedError(answer.status, f"{name}: {reason}", answer.headers["Retry-After"])
        if len(body) > bytes_max:
            raise ConnectionError(f"{name}: the answer is longer than {bytes_max} bytes")
        return body

    def _connection(self) -> http.client.HTTPConnection:
        timeout_s = self._live.connect_timeout_s
        if not self._is_secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        context = ssl.create_default_context(cafile=self._live.ssl_cafile)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=timeout_s, context=context
        )


def _path(name: str, query: Mapping[str, object]) -> str:
    asked = f"?{urlencode(query)}" if query else ""
    return f"/xrpc/network.bsky.jetstream.{name}{asked}"
