"""uvicorn's connections, with bounds for clients that are slow, broken or hostile.

uvicorn waits for ever for a request's head and body, and for a client to take its answer; it also
reads on while earlier requests wait for their turn. Here a request has `http.request_timeout_s` to
come whole, a client must take `TAKEN_MIN` bytes of its answer in the same time, a head has a
largest size, and the numbers of connections (`http.connections_max`), of waiting requests and of
bytes that all clients together have not taken are limited. A sweep twice a second checks all
connections: a timer for each request would cost more than the request.

uvicorn's own settings do not give this. `limit_concurrency` refuses requests and lets idle
connections pile up, and it answers in another form; `timeout_keep_alive` counts between two
requests alone; `h11_max_incomplete_event_size` is for the other, slower parser. So a subclass
of uvicorn's connection has the bounds. What it overrides and reads is private to uvicorn:
`check_uvicorn` tests at the start whether all of it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import struct
from collections.abc import Collection, Iterator
from importlib.metadata import version
from operator import itemgetter
from typing import Any, Final

import httptools
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from consumers.errors import ConfigError
from consumers.http.app import HEADERS, RequestMiddleware
from consumers.http.requests import ProblemError
from consumers.monitoring.metrics import OTHER, HttpMetrics

HEAD_BYTES_MAX = 65_536
PIPELINED_MAX = 128  # requests of one connection that wait for the answer to the one before
SWEEP_INTERVAL_S = 0.5
# Of an answer, in each `http.request_timeout_s`: 1.6 KB/s by default. An answer of any length ends
# so in time, and a client that takes a byte now and then holds no connection for ever.
TAKEN_MIN = 16 << 10
# Of the answers of all connections together; one answer may be tens of megabytes.
UNTAKEN_BYTES_MAX = 256 << 20
_LOW_WATER = 4 << 10  # bytes that wait when an answer goes on; it rests `TAKEN_MIN` above
_CLOSE = {"Connection": "close"}
_RESET = struct.pack("ii", 1, 0)  # to linger, for no time

UVICORN: Final = "uvicorn>=0.54,<0.55"  # as in pyproject.toml; a test holds the two together

# What `BoundedConnection` overrides or calls, with the parameters, and what it reads.
_METHODS: Final = {
    "__init__": ("config", "server_state", "app_state", "_loop"),
    "connection_made": ("transport",), "connection_lost": ("exc",), "data_received": ("data",),
    "eof_received": (), "resume_writing": (), "on_message_begin": (), "on_headers_complete": (),
    "on_body": ("body",), "on_message_complete": (), "on_response_complete": (),
    "_unset_keepalive_if_required": (),
}  # fmt: skip
_OF_A_CONNECTION: Final = (
    "config", "connections", "cycle", "flow", "headers", "loop", "parser", "pipeline", "transport",
    "url",
)  # fmt: skip
_OF_A_REQUEST: Final = (
    "disconnected", "keep_alive", "message_event", "more_body", "response_complete",
    "response_started",
)  # fmt: skip


class BoundedConfig(uvicorn.Config):
    """uvicorn's configuration, with the bounds of connections.

    `metrics` counts the requests that the application never sees.
    """

    def __init__(
        self, app: Any, metrics: HttpMetrics, timeout_s: float, connections_max: int
    ) -> None:
        super().__init__(
            app,
            http=BoundedConnection,
            loop="uvloop",
            ws="none",
            lifespan="off",
            log_config=None,  # our own logging stays as it is
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self.metrics = metrics
        self.timeout_s = timeout_s
        self.connections_max = connections_max
        self._sweeping = False

    def keep_sweeping(
        self, loop: asyncio.AbstractEventLoop, connections: Collection[BoundedConnection]
    ) -> None:
        """Sweep the connections at intervals, as long as there are any."""
        if not self._sweeping:
            self._sweeping = True
            loop.call_later(SWEEP_INTERVAL_S, self._sweep, loop, connections)

    def _sweep(
        self, loop: asyncio.AbstractEventLoop, connections: Collection[BoundedConnection]
    ) -> None:
        self._sweeping = False
        if connections:
            self.keep_sweeping(loop, connections)
        for connection in list(connections):
            connection.sweep(loop.time())
        free_memory(connections)


def free_memory(connections: Collection[BoundedConnection]) -> None:
    """Reset the connections for which most waits, until the rest is within UNTAKEN_BYTES_MAX."""
    untaken = [(each.untaken, each) for each in connections if each.is_waited_for]
    n_bytes = sum(n for n, _ in untaken)
    if n_bytes > UNTAKEN_BYTES_MAX:
        untaken.sort(key=itemgetter(0))
    while n_bytes > UNTAKEN_BYTES_MAX:
        n, connection = untaken.pop()
        connection.reset()
        n_bytes -= n


class BoundedConnection(HttpToolsProtocol):
    """One connection; see uvicorn for its life."""

    config: BoundedConfig
    connections: set[BoundedConnection]  # type: ignore[assignment]  # all of them are made here
    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # before the first request

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waits_since_s: float | None = None  # for the rest of a request
        self._owed: tuple[float, int] | None = None  # when the client last took, and what is left
        self._n_read = 0  # bytes that came last, all at once
        self._is_reset = False
        self._head_bytes = 0  # chunk headers and trailers of a body included
        self._is_turned_away = False
        self._is_deaf = False  # reads nothing behind the last request that is answered
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or turn it away."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(_LOW_WATER + TAKEN_MIN, _LOW_WATER)
        self._waits_since_s = self.loop.time()
        self.config.keep_sweeping(self.loop, self.connections)
        n, n_max = len(self.connections), self.config.connections_max
        if n <= n_max:
            return
        self._is_turned_away = True
        self.config.metrics.count_rejected()
        self._write(
            ProblemError(
                503,
                f"there are {n_max} connections already (http.connections_max); try again later",
                headers={"Retry-After": "1"},
            )
        )
        if n > 2 * n_max:
            transport.close()
        else:
            # Read on until the client closes: closing with unread data would discard the answer.
            transport.write_eof()

    def data_received(self, data: bytes) -> None:
        """Parse what was received."""
        if self._is_turned_away or self._is_deaf:
            return
        self._n_read = len(data)
        self._head_bytes += self._n_read
        self._unset_keepalive_if_required()
        try:
            while data:
                data = self._read(data)
        except httptools.HttpParserError:
            if not (self.transport.is_closing() or self._is_deaf):
                self._refuse(400, "this is not HTTP/1.1 (RFC 9112)")
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self._refuse_head()

    def _read(self, data: bytes) -> bytes:
        """Parse data; return what is still to be parsed.

        An offer to upgrade the protocol is ignored, as RFC 9110 (7.8) allows. The parser would
        stop before the request's body, so it parses that request again without the offer.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if not self._is_offer():
                return b""  # data for the other end of a tunnel
            version = self.parser.get_http_version().encode()
            head = [
                b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version),
                *(b"%s: %s" % pair for pair in self.headers if pair[0] != b"upgrade"),
            ]
            if not self.parser.should_keep_alive():  # it is at its end, and would read nothing
                self.parser = httptools.HttpRequestParser(self)
                with contextlib.suppress(AttributeError):  # httptools < 0.6.3, as in uvicorn
                    self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            return b"\r\n".join([*head, b"", data[offer.args[0] :]])
        return b""

    def _is_offer(self) -> bool:
        """Return whether a request offers another protocol; CONNECT asks for a tunnel instead."""
        return self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT"

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open until the last request is answered."""
        cycle = self.cycle
        if self._waits_since_s is not None or cycle is None or cycle.response_complete:
            return False
        cycle.keep_alive = False
        return True

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._waits_since_s = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin to answer, or queue the request behind those before it."""
        if self._is_offer():
            return
        # A long one may have come at once. Only then is it worth adding up.
        if self._head_bytes + self._n_read > HEAD_BYTES_MAX and self._n_in_head() > HEAD_BYTES_MAX:
            self._refuse_head()
            raise ConnectionError("enough")  # the parser stops: nothing behind this is read
        super().on_headers_complete()
        if not self.pipeline:
            self._answering = self.cycle
        self._head_bytes = 0
        if len(self.pipeline) > PIPELINED_MAX:
            self._refuse_newest(
                ProblemError(
                    429,
                    f"more than {PIPELINED_MAX} requests wait on this connection; read the "
                    "answers first",
                    headers=_CLOSE,
                )
            )
            raise ConnectionError("enough")

    def _n_in_head(self) -> int:
        """Return how many bytes the head has: its lines, with what separates and ends them."""
        first = len(self.parser.get_method()) + len(self.url) + len("  HTTP/1.1\r\n")
        return first + sum(len(name) + len(value) + len(": \r\n") for name, value in self.headers)

    def on_body(self, body: bytes) -> None:
        """Receive a part of a body, which has a bound of its own."""
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note that the request is whole."""
        if self._is_offer():
            return
        self._waits_since_s = None
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Answer the next request, if one waits."""
        self._answering = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request that is being answered that its client has gone."""
        super().connection_lost(exc)
        self.pipeline.clear()
        # uvicorn tells only the newest request, which may wait behind this one.
        if self._answering is not None:
            self._answering.disconnected = True
            self._answering.message_event.set()

    @property
    def is_waited_for(self) -> bool:
        """Whether the client has yet to take what was written, before there is more or the end."""
        return self.transport.is_closing() or self.flow.write_paused

    @property
    def untaken(self) -> int:
        """How many bytes wait for the client; none once they are dropped, whatever uvloop says."""
        return 0 if self._is_reset else self.transport.get_write_buffer_size()

    def reset(self) -> None:
        """End the connection, and drop what the client has not taken."""
        self._is_reset = True
        # Without the reset the system would keep the unsent data for long.
        socket_ = self.transport.get_extra_info("socket")
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def sweep(self, now_s: float) -> None:
        """Close the connection of a client that has kept us waiting for too long."""
        timeout_s = self.config.timeout_s
        if self.is_waited_for:
            self._check_taken(now_s)
            return
        self._owed = None
        if self._waits_since_s is None:
            return
        if self.pipeline and self.flow.read_paused:
            self._waits_since_s = now_s  # the rest may have come, and be read when its turn is
        waits_since_s = self._waits_since_s
        if self._is_turned_away and now_s - waits_since_s > SWEEP_INTERVAL_S:
            self.transport.close()
        elif now_s - waits_since_s > timeout_s:
            self._refuse(
                408,
                f"the request was not whole within {timeout_s:g} s (http.request_timeout_s); "
                "send it faster, or in parts",
            )

    def resume_writing(self) -> None:
        """Note that the client has taken what waited, whether or not a sweep comes before more."""
        self._owed = None
        super().resume_writing()

    def _check_taken(self, now_s: float) -> None:
        """Reset the connection if its client takes nothing of what waits for it, or too little."""
        left = self.untaken
        if self._owed is None or left <= self._owed[1] - TAKEN_MIN:
            self._owed = (now_s, left)
        elif now_s - self._owed[0] > self.config.timeout_s:
            self.reset()

    def _refuse_head(self) -> None:
        self._refuse(431, f"the head has more than {HEAD_BYTES_MAX} bytes; shorten it")

    def _refuse(self, status: int, detail: str) -> None:
        """Answer a request that the application has not answered, and close."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            self.config.metrics.count_request(OTHER, OTHER, status, None)
            self._write(ProblemError(status, detail))
        elif not cycle.more_body:
            # The error came behind a whole request: that one is answered first, then the end.
            cycle.keep_alive = False
            self._is_deaf, self._waits_since_s = True, None
            return
        elif self.pipeline:
            self._refuse_newest(ProblemError(status, detail, headers=_CLOSE))
            return
        elif not cycle.response_started:
            # The application counts this one, as it sees the client disconnect.
            self._write(ProblemError(status, detail))
        self.transport.close()

    def _refuse_newest(self, problem: ProblemError) -> None:
        """Answer the newest request by a problem once those before it are answered, and close."""
        self._is_deaf, self._waits_since_s = True, None

        async def refuse(_scope: Scope, _receive: Receive, _send: Send) -> None:
            raise problem

        refusing: Any = RequestMiddleware(refuse, self.config.metrics)
        self.pipeline[0] = (self.pipeline[0][0], refusing)

    def _write(self, problem: ProblemError) -> None:
        """Write a problem as a whole answer, without the application."""
        answer = problem.response()
        head = [
            b"HTTP/1.1 %d %s" % (answer.status_code, problem.problem.title.encode()),
            *(b"%s: %s" % pair for pair in (*answer.raw_headers, *HEADERS)),
            b"connection: close",
        ]
        self.transport.write(b"\r\n".join([*head, b"", bytes(answer.body)]))


def check_uvicorn(config: uvicorn.Config) -> None:
    """Raise ConfigError unless uvicorn has all that `BoundedConnection` overrides and reads.

    A hook that uvicorn no longer calls, or calls otherwise, would drop a bound in silence.
    """
    missing: list[str] = []
    try:
        missing.extend(_missing(config))  # keeps what was found before an error
    except Exception as error:  # noqa: BLE001 -- a private class may have become anything
        missing.append(f"a connection cannot be made: {error!r}")
    if missing:
        raise ConfigError(
            f"http.enabled: uvicorn {version('uvicorn')} does not fit the bounds of connections: "
            f"{'; '.join(missing)}. Install {UVICORN}, or set http.enabled: false"
        )


def _missing(config: uvicorn.Config) -> Iterator[str]:
    for name, parameters in _METHODS.items():
        method = vars(HttpToolsProtocol).get(name)
        if method is None:
            yield f"HttpToolsProtocol.{name} is not there"
        elif tuple(inspect.signature(method).parameters)[1:] != parameters:
            yield f"HttpToolsProtocol.{name} takes {inspect.signature(method)}"
    nothing: Any = object()
    connection = HttpToolsProtocol(config, ServerState(), {}, nothing)
    connection.on_message_begin()
    request_takes = list(inspect.signature(RequestResponseCycle).parameters)
    made: list[tuple[Any, tuple[str, ...]]] = [
        (connection, _OF_A_CONNECTION),
        (RequestResponseCycle(**dict.fromkeys(request_takes, nothing)), _OF_A_REQUEST),
        (FlowControl(nothing), ("read_paused", "write_paused")),
    ]
    for each, names in made:
        for name in names:
            if not hasattr(each, name):
                yield f"{type(each).__name__}.{name} is not there"
