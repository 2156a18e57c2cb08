"""Clients that take an answer steadily, but slower than it is written, and those that do not.

And those that send a request behind another one, whose rest nobody reads before its turn.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from consumers.http.connection import TAKEN_MIN, BoundedConfig, BoundedConnection
from consumers.monitoring.metrics import HttpMetrics
from consumers.search.rows import TEXT_MAX
from tests.consumers.http.loopback_server import PATIENCE_S, app_state, served, settings
from tests.consumers.search.stores import running, tell

TIMEOUT_S = 10.0
ASK = b"GET /v1/export HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
N_LONG = 4_000  # messages, far more than the buffers of two sockets hold


class Wire(asyncio.Transport):
    """A transport that sends nothing by itself; `left` are the bytes that wait in it."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left, self.is_aborted, self.is_ending = left, False, False

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait."""
        return self.left

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Take limits; the tests say when writing pauses."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a socket if one is asked for."""
        return socket.socket() if name == "socket" else default

    def is_closing(self) -> bool:
        """Return whether all was written, and the end follows."""
        return self.is_ending

    def abort(self) -> None:
        """Note that the client was let go of."""
        self.is_aborted = True


class Line(Wire):
    """A transport of which all is taken at once; `written` has it."""

    def __init__(self) -> None:
        super().__init__(0)
        self.written, self.wrote = b"", asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take what is written."""
        self.written += bytes(data)
        self.wrote.set()

    async def statuses(self, n: int) -> list[int]:
        """Return the statuses of all answers, once there are `n`."""
        while len(found := re.findall(rb"HTTP/1\.1 (\d{3}) ", self.written)) < n:
            self.wrote.clear()
            async with asyncio.timeout(PATIENCE_S):
                await self.wrote.wait()
        return list(map(int, found))

    def pause_reading(self) -> None:
        """Read nothing for a while; the tests hand over what is read."""

    def resume_reading(self) -> None:
        """Read again."""

    def close(self) -> None:
        """Note that the end follows."""
        self.is_ending = True


class WaitingApp:
    """An application whose answer at `/long` waits for `go_on`; all others read their body."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["path"] == "/long":
            await self.go_on.wait()
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body"})


def on_line(app: WaitingApp, line: Line) -> BoundedConnection:
    """Return a connection of the loop that runs."""
    config = BoundedConfig(app, HttpMetrics(CollectorRegistry()), TIMEOUT_S, 10)
    config.load()
    made = BoundedConnection(config, ServerState(), {}, asyncio.get_running_loop())
    made.connection_made(line)
    return made


LONG = b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n"


def test_what_is_not_read_yet_has_time() -> None:
    """A request behind a long answer may be whole at the client's: its time begins with reading."""

    async def ask() -> list[int]:
        app, line = WaitingApp(), Line()
        connection = on_line(app, line)
        connection.data_received(LONG + POST)
        now_s = connection.loop.time()
        for step in range(1, 5):
            connection.sweep(now_s + step * 2 * TIMEOUT_S)
        assert not line.is_ending
        app.go_on.set()
        assert await line.statuses(1) == [200]
        connection.data_received(b"abcde")
        return await line.statuses(2)

    assert asyncio.run(ask()) == [200, 200]


@pytest.mark.parametrize("late", [b"", b"zz no chunk"])
def test_who_does_not_go_on_gets_the_answers_before(late: bytes) -> None:
    """A request that is never whole ends no answer to one before it; it is told behind them."""
    chunked = POST.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked")

    async def ask() -> list[int]:
        app, line = WaitingApp(), Line()
        connection = on_line(app, line)
        connection.data_received(POST + b"abcde" + LONG + chunked)
        assert await line.statuses(1) == [200]  # and what follows the third head is read
        if late:
            connection.data_received(late)
        else:
            connection.sweep(connection.loop.time() + 2 * TIMEOUT_S)
        assert not line.is_ending
        app.go_on.set()
        found = await line.statuses(3)
        assert line.is_ending
        return found

    assert asyncio.run(ask()) == [200, 200, 400 if late else 408]


@pytest.fixture
def wire() -> Wire:
    """Return a transport with an answer of 1 MB in it."""
    return Wire(1_000_000)


@pytest.fixture
def connection(wire: Wire) -> Iterator[BoundedConnection]:
    """Yield a connection whose answer waits for its client."""
    config = BoundedConfig(lambda: None, HttpMetrics(CollectorRegistry()), TIMEOUT_S, 10)
    loop = asyncio.new_event_loop()
    made = BoundedConnection(config, ServerState(), {}, loop)
    made.connection_made(wire)
    made.pause_writing()
    yield made
    loop.close()


def test_who_takes_steadily_is_waited_for(wire: Wire, connection: BoundedConnection) -> None:
    """One answer may wait for longer than the time, as long as it becomes shorter."""
    for step in range(1, 50):
        connection.sweep(step * TIMEOUT_S)
        wire.left -= TAKEN_MIN
    assert not wire.is_aborted


def test_who_takes_steadily_at_the_end_is_waited_for(
    wire: Wire, connection: BoundedConnection
) -> None:
    """Neither does an answer end that is written as a whole, behind which the connection closes."""
    wire.is_ending = True
    test_who_takes_steadily_is_waited_for(wire, connection)


def test_who_has_taken_what_waited_is_given_more(wire: Wire, connection: BoundedConnection) -> None:
    """A sweep that always comes amid a piece sees that the pieces before it were taken."""
    for step in range(1, 50):
        connection.sweep(step * TIMEOUT_S)
        connection.resume_writing()
        connection.pause_writing()
    assert not wire.is_aborted


@pytest.mark.parametrize("taken", [0, 1, TAKEN_MIN // 3])
def test_who_takes_too_little_is_let_go(
    wire: Wire, connection: BoundedConnection, taken: int
) -> None:
    """Bytes now and then gain no time: it is that of a whole `TAKEN_MIN`."""
    for step_s in (1.0, 1.4, 1.8):
        connection.sweep(step_s * TIMEOUT_S)
        wire.left -= taken
    assert not wire.is_aborted
    connection.sweep(2.1 * TIMEOUT_S)
    assert wire.is_aborted


def test_all_clients_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too much waits, those for whom most waits are let go of, and nobody else."""
    monkeypatch.setattr("consumers.http.connection.UNTAKEN_BYTES_MAX", 1_000_000)
    monkeypatch.setattr("consumers.http.connection.SWEEP_INTERVAL_S", 0)
    config = BoundedConfig(lambda: None, HttpMetrics(CollectorRegistry()), TIMEOUT_S, 10)
    loop, state = asyncio.new_event_loop(), ServerState()
    wires = [Wire(left) for left in (300_000, 400_000, 500_000, 350_000, 2_000_000)]
    for wire in wires:
        made = BoundedConnection(config, state, {}, loop)
        made.connection_made(wire)
        if wire is not wires[-1]:  # its client takes all at once
            made.pause_writing()
    wires[3].is_ending = True
    for _ in range(3):  # the sweeps of these turns
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()
    assert [wire.is_aborted for wire in wires] == [False, True, True, False, False]


def test_a_file_is_whole_for_a_slow_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over sockets an export reaches its end, though each sweep finds it waiting for the client."""
    now_s, sweep, is_waiting = [TIMEOUT_S], BoundedConnection.sweep, threading.Event()

    def sweep_amid_a_piece(each: BoundedConnection, _now_s: float) -> None:
        if each.flow.write_paused:
            sweep(each, now_s[0])
            is_waiting.set()

    monkeypatch.setattr(BoundedConnection, "sweep", sweep_amid_a_piece)
    monkeypatch.setattr("consumers.http.connection.SWEEP_INTERVAL_S", 0.001)
    with (
        running(None) as store,
        app_state(settings(http={"request_timeout_s": TIMEOUT_S})) as of,
        served(of, recent=store) as port,
        socket.socket() as client,
    ):
        tell(store, ["x" * TEXT_MAX] * N_LONG)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
        client.settimeout(PATIENCE_S)
        client.connect(("127.0.0.1", port))
        client.sendall(ASK)
        answer = client.makefile("rb")
        for _ in range(10):
            is_waiting.clear()
            assert is_waiting.wait(PATIENCE_S)
            # More than the buffers of both systems hold, in less than the time.
            assert len(answer.read(1_000_000)) == 1_000_000
            now_s[0] += 0.6 * TIMEOUT_S
        assert answer.read().endswith(b"\r\n0\r\n\r\n")
