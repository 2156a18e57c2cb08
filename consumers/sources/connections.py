"""Connections to live streams: WebSockets, and HTTP with server-sent events or lines.

`websockets` and `h11` speak the protocols, but read no socket: one loop does, and hands the bytes
to them. What nobody asks for stays in the socket, so a slow reader makes the server wait, and
nothing is dropped.
"""

from __future__ import annotations

import re
import select
import socket
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, TypeAlias
from urllib.parse import urlsplit

import h11
from websockets.client import ClientProtocol
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode
from websockets.protocol import CONNECTING
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from consumers.config.addresses import LiveSettings
from consumers.sources.base import Known, Past

MESSAGE_BYTES_MAX = 64 << 20  # far above message.max_bytes: the decoder rejects those
_READ_BYTES = 1 << 16
_DATA = {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}
_READS_MAX = 16  # a call
_REASON_BYTES_MAX = 2000
_SECRET_CHARACTERS_MIN = 4
_ALIKE_MAX = 1 << 16  # different events since the last id
_SECONDS = re.compile(r"\s*[0-9]{1,18}(\.[0-9]*)?\s*", re.ASCII)
_ID = re.compile(rb"[^\0\v\f]{0,4096}")  # what a header can hold


Framing: TypeAlias = Literal["websocket", "events", "lines"]


class Endpoint(NamedTuple):
    """What to connect to, and how its messages are framed."""

    url: str  # ws, wss, http or https
    framing: Framing
    headers: Mapping[str, str] = MappingProxyType({})
    subprotocol: str | None = None

    @property
    def place(self) -> str:
        """The address without its query."""
        return self.url.partition("?")[0]


class Received(NamedTuple):
    """A message as it came; `event` and `id` are those of a server-sent event.

    If the id is that of an event before it, `n` counts those alike since then, itself too.
    """

    data: bytes
    event: str = "message"
    id: str = ""
    n: int = 0


class RefusedError(ConnectionError):
    """A server answered with another status than it should have.

    `reset` is X's word where `Retry-After` is missing: when requests count again, in Unix seconds.
    """

    def __init__(
        self, status: int, reason: str, retry_after: str | None, reset: str | None = None
    ) -> None:
        super().__init__(f"refused with HTTP {status}: {reason.strip() or 'no reason given'}")
        self.status = status
        self.reason = reason
        self.retry_after_s = _retry_after_s(retry_after or "")
        if status == 429 and retry_after is None and _SECONDS.fullmatch(reset or ""):
            self.retry_after_s = max(0.0, float(reset or "") - time.time())
        self.is_too_old = status == 400 and "CursorTooOld" in reason  # Jetstream's word for it


def _retry_after_s(text: str) -> float:
    """Return the seconds that a `Retry-After` asks for, be it a number or a date."""
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        when = parsedate_to_datetime(text)
        when = when.replace(tzinfo=when.tzinfo or UTC)  # asctime's form names no zone
        return max(0.0, when.timestamp() - time.time())
    except (ValueError, OverflowError):
        return 0.0


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return what a server said without what it repeats of the secrets that it was sent.

    One that is cut off at the end counts too. A short one, as a header's `1` may be, counts where
    it stands by itself alone: else nobody could read what is left.

    >>> without_secrets("you sent hunter22, not hunt", ["hunter22"])
    'you sent ***, not ***'
    """
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        is_short = len(secret) < _SECRET_CHARACTERS_MIN
        pattern = rf"(?<!\w){re.escape(secret)}(?!\w)" if is_short else re.escape(secret)
        text = re.sub(pattern, "***", text)
        for n in range(len(secret) - 1, _SECRET_CHARACTERS_MIN - 1, -1):
            if text.endswith(secret[:n]):
                text = f"{text[:-n]}***"
    return text


class _Protocol(Protocol):
    """Turns bytes into messages; `ended` says why no more will come."""

    ready: bool
    ended: str | None

    @property
    def retry_s(self) -> float:
        """How long the server wants to be left alone once it has ended."""

    def feed(self, data: bytes) -> list[Received]:
        """Take bytes, none at the end of the stream; return the messages that are whole."""

    def to_send(self) -> bytes:
        """Return and forget what is to be sent."""

    def ping(self) -> None:
        """Ask for a sign of life, if the protocol can."""


class Connection:
    """An open connection; it takes `timeout_s` at most to connect, for TLS, and for the head."""

    is_history = False
    n_read = 0

    def __init__(self, endpoint: Endpoint, timeout_s: float, ca_file: Path | None = None) -> None:
        self._framing: _Protocol = (
            _WebSocket(endpoint) if endpoint.framing == "websocket" else _Http(endpoint)
        )
        self.n_bytes = 0
        self._ahead: list[Received] = []  # what came along with the answer to the request
        self._socket = _connected(endpoint.url, timeout_s, ca_file)
        try:
            self._socket.sendall(self._framing.to_send())
            self._await_answer(timeout_s)
            self._socket.settimeout(0)
            self._send()  # pings may have come along
            self._readable = select.poll()
            self._readable.register(self._socket, select.POLLIN)
        except BaseException:
            self._socket.close()
            raise

    @property
    def retry_s(self) -> float:
        """How long the server wants to be left alone once this connection has ended."""
        return self._framing.retry_s

    def receive(self, timeout_s: float) -> list[Received]:
        """Return what came, waiting up to `timeout_s` for the first bytes.

        An end is a `ConnectionError`, once everything before it was returned.
        """
        found, self._ahead = self._ahead, []
        timeout_s = 0.0 if found else timeout_s
        for _ in range(_READS_MAX):
            if self._framing.ended is not None:
                break
            try:
                data = self._read(timeout_s)
                if data is None:
                    break
                self.n_bytes += len(data)
                found += self._framing.feed(data)
                self._send()
            except OSError as error:  # what came before it is returned first
                self._framing.ended = f"the connection broke: {error}"
            timeout_s = 0.0
        if not found and self._framing.ended is not None:
            raise ConnectionError(self._framing.ended)
        return found

    def ping(self) -> None:
        """Ask for a sign of life, if it is open."""
        if self._framing.ended is not None:
            return
        self._framing.ping()
        self._send()

    def close(self) -> None:
        """Close it, without waiting for the server."""
        self._socket.close()

    def _await_answer(self, timeout_s: float) -> None:
        """Read up to the end of the head; an end before it is a `ConnectionError`."""
        until_s = time.monotonic() + timeout_s
        while not self._framing.ready and self._framing.ended is None:
            self._socket.settimeout(max(until_s - time.monotonic(), 1e-3))
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                self._framing.feed(b"")  # which tells a refusal that came without its end
                raise
            self._ahead += self._framing.feed(data)
        if not self._framing.ready:
            raise ConnectionError(self._framing.ended)

    def _read(self, timeout_s: float) -> bytes | None:
        """Return the next bytes, none at the end; None if there are none yet."""
        buffered = isinstance(self._socket, ssl.SSLSocket) and self._socket.pending()
        if not buffered and not self._readable.poll(timeout_s * 1000):
            return None
        try:
            return self._socket.recv(_READ_BYTES)
        except (ssl.SSLWantReadError, BlockingIOError):
            return None

    def _send(self) -> None:
        data = self._framing.to_send()
        if data:
            self._socket.sendall(data)


class Readable(Protocol):
    """What a `Connection` is to its reader."""

    @property
    def is_history(self) -> bool:
        """Whether what comes is what an archive has of the past."""

    @property
    def n_bytes(self) -> int:
        """How much has come."""

    @property
    def n_read(self) -> int:
        """How many blocks of an archive were read, its end included."""

    @property
    def retry_s(self) -> float:
        """How long the server wants to be left alone, once it has ended."""

    def receive(self, timeout_s: float) -> list[Received]:
        """Return what came; an end is a `ConnectionError`."""

    def ping(self) -> None:
        """Ask for a sign of life."""

    def close(self) -> None:
        """Close it, without waiting for the server."""


def _connected(url: str, timeout_s: float, ca_file: Path | None) -> socket.socket:
    """Return a connected socket, encrypted if the address says so."""
    parts = urlsplit(url)
    secure = parts.scheme in {"wss", "https"}
    port = parts.port or (443 if secure else 80)
    plain = socket.create_connection((parts.hostname or "", port), timeout_s)
    try:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if not secure:
            return plain
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except OSError as error:  # it went after the start
            why = error.strerror or error
            raise ConnectionError(f"live.ssl_cafile: {ca_file} cannot be used: {why}") from error
        try:
            return context.wrap_socket(plain, server_hostname=parts.hostname)
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message.rstrip(".")
            raise ConnectionError(
                f"the certificate of {parts.hostname} is refused: {why}; live.ssl_cafile names "
                "whom to trust"
            ) from error
    except BaseException:
        plain.close()
        raise


class _WebSocket:
    """Messages in WebSocket frames; nothing but control frames is ever sent."""

    retry_s = 0.0

    def __init__(self, endpoint: Endpoint) -> None:
        self._protocol = ClientProtocol(
            parse_uri(endpoint.url),
            subprotocols=[Subprotocol(endpoint.subprotocol)] if endpoint.subprotocol else None,
            max_size=MESSAGE_BYTES_MAX,
        )
        request = self._protocol.connect()
        for name, value in endpoint.headers.items():
            request.headers[name] = value
        self._protocol.send_request(request)
        self._fragments = bytearray()
        self.ready = False
        self.ended: str | None = None

    def feed(self, data: bytes) -> list[Received]:
        """Take bytes; a refused handshake is a `RefusedError`."""
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        found = []
        for event in self._protocol.events_received():
            if not isinstance(event, Frame) or event.opcode not in _DATA:
                continue
            self._fragments += event.data
            if event.fin:
                found.append(Received(bytes(self._fragments)))
                self._fragments.clear()
        self._note_state(ended=not data)
        return found

    def _note_state(self, *, ended: bool) -> None:
        protocol = self._protocol
        failure = protocol.handshake_exc
        if isinstance(failure, InvalidStatus):
            answer = failure.response
            body = bytes(answer.body or b"")[:_REASON_BYTES_MAX].decode("utf-8", "replace")
            raise RefusedError(
                answer.status_code, body, next(iter(answer.headers.get_all("Retry-After")), None)
            )
        if failure is not None:
            raise ConnectionError(f"this is no WebSocket server: {failure}")
        self.ready = protocol.state is not CONNECTING  # it may be closed by now
        why = protocol.parser_exc or protocol.close_rcvd
        if ended or why is not None:
            self.ended = f"the server closed the connection: {why or 'without a word'}"

    def to_send(self) -> bytes:
        """Return the request, and answers to pings."""
        return b"".join(self._protocol.data_to_send())

    def ping(self) -> None:
        """Send a ping."""
        self._protocol.send_ping(b"")


class _Http:
    """The endless body of an answer: server-sent events, or lines."""

    def __init__(self, endpoint: Endpoint) -> None:
        parts = urlsplit(endpoint.url)
        self._http = h11.Connection(h11.CLIENT)
        accept = "text/event-stream" if endpoint.framing == "events" else "*/*"
        headers = {"Host": parts.netloc, "Accept": accept, "Cache-Control": "no-cache"}
        headers |= {"Accept-Encoding": "identity"}
        headers |= {name.title(): value for name, value in endpoint.headers.items()}
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        request = h11.Request(
            method="GET",
            target=target,
            headers=[(name.encode(), value.strip().encode()) for name, value in headers.items()],
        )
        self._out = (self._http.send(request) or b"") + (self._http.send(h11.EndOfMessage()) or b"")
        last_id = endpoint.headers.get("Last-Event-ID", "")
        self._events = _EventStream(last_id) if endpoint.framing == "events" else None
        self._rest = bytearray()
        self._ends_in_cr = False
        self._refused: tuple[int, str | None, str | None] | None = None
        self.ready = False
        self.ended: str | None = None

    @property
    def retry_s(self) -> float:
        """What the server's `retry` said."""
        return 0.0 if self._events is None else self._events.retry_s

    def feed(self, data: bytes) -> list[Received]:
        """Take bytes; another answer than 200 is a `RefusedError`."""
        found: list[Received] = []
        try:
            self._http.receive_data(data)
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Response):
                    self._note_answer(event)
                elif isinstance(event, h11.Data):
                    found += self._body(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                    self.ended = "the server ended the stream"
                    if self._events is None:  # the last line may have no line break
                        found += self._body(b"\n")
                    break
                elif not isinstance(event, h11.InformationalResponse):
                    break
        except h11.RemoteProtocolError as error:
            # Of an end before any answer h11 says what nobody understands.
            why = f": {error}" if data or self.ready else " without an answer"
            self.ended = f"the server closed the connection{why}"
        if self._refused is not None and (self.ended or len(self._rest) > _REASON_BYTES_MAX):
            status, retry_after, reset = self._refused
            reason = self._rest[:_REASON_BYTES_MAX].decode("utf-8", "replace")
            raise RefusedError(status, reason, retry_after, reset)
        return found

    def _note_answer(self, answer: h11.Response) -> None:
        said = {name: value.decode("latin-1") for name, value in answer.headers}
        if answer.status_code != 200:
            pause = said.get(b"retry-after"), said.get(b"x-rate-limit-reset")
            self._refused = (answer.status_code, *pause)
            return
        coding = said.get(b"content-encoding", "identity")
        kind = said.get(b"content-type", "text/event-stream").partition(";")[0].strip()
        if coding.lower() != "identity":
            raise ConnectionError(f"the server packs its answer ({coding}), unasked")
        if self._events is not None and kind.lower() != "text/event-stream":
            raise ConnectionError(f"the server sends no text/event-stream, but {kind}")
        self.ready = True

    def _body(self, data: bytes) -> list[Received]:
        """Cut a piece of the body into messages; what is not whole waits."""
        if self._events is not None and self._refused is None:  # each end of a line becomes LF
            skip, self._ends_in_cr = self._ends_in_cr and data[:1] == b"\n", data[-1:] == b"\r"
            data = data[skip:].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        n_before = len(self._rest)
        self._rest += data
        if self._refused is not None:
            return []
        found: list[Received] = []
        end = self._rest.rfind(b"\n", n_before)
        if end >= 0:
            lines = bytes(self._rest[:end]).split(b"\n")
            del self._rest[: end + 1]
            if self._events is None:
                found = [Received(line) for line in map(bytes.strip, lines) if line]
            else:
                found = [event for each in lines if (event := self._events.line(each)) is not None]
        waiting = len(self._rest) + (0 if self._events is None else len(self._events.data))
        if waiting > MESSAGE_BYTES_MAX:
            self.ended = f"a message is longer than {MESSAGE_BYTES_MAX} bytes"
        return found

    def to_send(self) -> bytes:
        """Return the request, once."""
        out, self._out = self._out, b""
        return out

    def ping(self) -> None:
        """Do nothing: only the server can send."""


class _EventStream:
    """Server-sent events, line by line, as the HTML standard has them."""

    def __init__(self, last_id: str) -> None:
        self.retry_s = 0.0
        self.data = bytearray()  # each line of it ends in LF
        self._id = last_id
        self._has_id = False  # the event has an id of its own
        self._n_alike: dict[int, int] = {}  # events without one since the last, by their hash
        self._event = ""

    def line(self, line: bytes) -> Received | None:
        """Take a line; return the event that it ends, if it is the empty line of one with data."""
        if not line:
            data, event, is_empty = bytes(self.data[:-1]), self._event or "message", not self.data
            n = 0 if is_empty or self._has_id or not self._id else self._number(event, data)
            self._event, self._has_id = "", False
            self.data.clear()
            return None if is_empty else Received(data, event, self._id, n)
        name, _, value = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self.data += value + b"\n"
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and _ID.fullmatch(value):
            self._id, self._has_id = value.decode("utf-8", "replace"), True
            self._n_alike.clear()
        elif name == b"retry" and re.fullmatch(rb"[0-9]{1,9}", value):
            self.retry_s = int(value) / 1000
        return None

    def _number(self, event: str, data: bytes) -> int:
        """Count an event among those alike: a server that sends all again numbers them alike."""
        if len(self._n_alike) >= _ALIKE_MAX:
            self._n_alike.clear()
        alike = hash((event, data))
        self._n_alike[alike] = n = self._n_alike.get(alike, 0) + 1
        return n


# ---- what each kind of stream says on the wire ---------------------------------------------------


class LiveMessage(NamedTuple):
    """A message as a feed reads it; without a key it is always new."""

    value: bytes
    key: int | None = None
    time_us: int = 0
    number: int = 0
    id: str = ""
    collection: str = ""


def key_of(*parts: str) -> int:
    """Return 64 bits that stand for a message, in every process."""
    text = "\0".join(parts).encode("utf-8", "replace")
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


class FeedError(Exception):
    """A server said that it cannot go on; `too_old` if that is for the cursor."""

    def __init__(self, text: str, *, too_old: bool = False) -> None:
        super().__init__(text)
        self.too_old = too_old


class Feed(ABC):
    """What one kind of live stream says on the wire.

    Attributes
    ----------
    name : str
        The name of its one partition.
    hosts : sequence of str
        The servers that have the same stream.
    collections : sequence of str
        What must not fall silent, each by itself, for longer than `collection_idle_timeout_s`. One
        such as `app.bsky.graph.*` is a group of them.
    must_speak : bool
        Whether a connection without messages is dead, whatever else comes.
    start_us : int
        From which time on a first start asks, in Unix microseconds; 0: what comes.
    """

    name: str
    hosts: Sequence[str]
    collections: Sequence[str] = ()
    collection_idle_timeout_s = 0.0
    must_speak = False
    start_us = 0
    has_numbers = False  # whether a host numbers its messages
    secrets: Sequence[str] = ()  # what a server may repeat, and nobody else may see

    def redacted(self, text: str) -> str:
        """Return what a server said without secrets."""
        return without_secrets(text, self.secrets)

    def time_us_of(self, message: Known | LiveMessage) -> int:
        """Return when a message came into the stream; 0 if that is not known."""
        return message.time_us

    @abstractmethod
    def endpoint(self, host: str, past: Past) -> Endpoint:
        """Return where to connect to, to go on behind what is known."""

    def connection(self, endpoint: Endpoint, past: Past, live: LiveSettings) -> Readable:  # noqa: ARG002 -- for others
        """Return an open connection to an endpoint; called on a thread of its own."""
        return Connection(endpoint, live.connect_timeout_s, live.ssl_cafile)

    @abstractmethod
    def read(self, received: Received) -> LiveMessage | None:
        """Return a message, None if it is for us alone; one that ends the stream is a FeedError."""
