"""Answers that break off or trickle: a replica says so, and goes on answering by its last model."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from consumers.http.routes_model import SNAPSHOT_ROUTE
from consumers.replica import Replica, feed_of
from streamnb import save
from tests.consumers.http.loopback_server import PATIENCE_S, settings, taught


@contextlib.contextmanager
def saying(talk: Callable[[socket.socket], None]) -> Iterator[str]:
    """Take one connection, and answer its request by a function of the socket; yield where."""

    def serve() -> None:
        with listener.accept()[0] as connection:
            connection.recv(1 << 16)
            with contextlib.suppress(OSError):  # the replica may leave first
                talk(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


BROKEN_HEAD = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 99\r\n\r\n"


def reset(connection: socket.socket) -> None:
    """Break off an error's body as a killed proxy does."""
    connection.sendall(BROKEN_HEAD)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def cut(connection: socket.socket) -> None:
    """End an error's body within one of its chunks."""
    connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nTransfer-Encoding: chunked\r\n\r\n63\r\nup")


def stall(connection: socket.socket) -> None:
    """Begin an error's body, and say no more until the replica has left."""
    connection.sendall(BROKEN_HEAD + b"up")
    connection.recv(1)


@pytest.mark.parametrize("talk", [reset, cut, stall])
def test_an_error_that_breaks_off_ends_no_replica(
    talk: Callable[[socket.socket], None], tmp_path: Path
) -> None:
    """What a proxy before the daemon begins to say may break: the last model goes on answering."""
    of = settings()
    save(taught(of), tmp_path / "model.nb")
    replica = Replica(of, feed_of(str(tmp_path), of))
    replica.turn()
    hasty = settings(follow={"timeout_s": 0.5} if talk is stall else {})
    with saying(talk) as address:
        replica.feed = feed_of(address, hasty)
        replica.turn()
    report = replica.health.report()
    assert (report.ready, replica.figures.n_versions, replica.figures.n_failures) == (True, 1, 1)
    assert f"{address}{SNAPSHOT_ROUTE}: " in str(report.degraded)
    if talk is not stall:  # under load its head itself may be late
        assert "502: Bad Gateway, and what it says did not come whole" in str(report.degraded)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX-Slow: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\nETag: x\r\nStreamnb-Snapshot-Age: 0\r\n\r\n",
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 999\r\n\r\n",
    ],
    ids=["head", "body", "error"],
)
def test_an_answer_that_trickles_is_left(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is that of the whole answer, with however many receives it comes.

    Each look at the clock is a second later than the last, and lets one byte more come.
    """
    seconds, more = iter(range(1_000)), threading.Semaphore(0)
    of = settings(follow={"timeout_s": 100})

    def clock() -> float:
        more.release()
        return float(next(seconds))

    def trickle(connection: socket.socket) -> None:
        connection.sendall(head)
        for _ in range(900):
            more.acquire(timeout=PATIENCE_S)
            connection.sendall(b"x")

    monkeypatch.setattr("consumers.web_request.time", SimpleNamespace(monotonic=clock))
    with saying(trickle) as address:
        replica = Replica(of, feed_of(address, of))
        replica.turn()
        trouble = str(replica.status().trouble)
        for _ in range(900):  # the server sends on until it sees that nobody listens
            more.release()
    assert next(seconds) in range(100, 110)
    assert ("502" if b"502" in head else "not whole within follow.timeout_s: 100 s") in trouble
