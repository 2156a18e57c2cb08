"""Requests that come in an odd way, or behind which something odd comes: who asks is answered."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from consumers.http.connection import HEAD_BYTES_MAX
from tests.consumers.http.loopback_server import (
    PATIENCE_S,
    app_state,
    connected,
    said,
    served,
    settings,
    status_of,
    until_end,
)

BODY = b'{"text":"a good day"}'
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
LAST = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Yield the port of a server."""
    with app_state(settings()) as made, served(made) as found:
        yield found


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of answers that came one behind the other."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def test_an_offer_of_another_protocol_is_passed_over(port: int) -> None:
    """A request that offers HTTP/2, as some clients always do, is answered with its body read."""
    request = HEAD + OFFER + LENGTH + b"\r\n" + BODY
    answer = said(port, request + GET + OFFER + b"\r\n" + LAST, then_end=False)
    assert statuses(answer) == [200, 200, 404]
    assert b'"label":"positive"' in answer
    with connected(port) as connection:
        connection.sendall(HEAD + OFFER + LENGTH + b"Expect: 100-continue\r\n\r\n")
        assert status_of(connection.recv(1 << 16)) == 100
        connection.sendall(BODY + LAST)
        assert statuses(until_end(connection)) == [200, 404]


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize(
    ("version", "connection"),
    [
        (b"1.1", b"Connection: close, Upgrade\r\n"),
        (b"1.1", b"Connection: Upgrade, close\r\n"),
        (b"1.1", b"Connection: Upgrade\r\nConnection: close\r\n"),
        (b"1.0", b"Connection: upgrade\r\n"),
        (b"1.0", b"Connection: upgrade, keep-alive\r\n"),
    ],
)
def test_an_offer_on_a_connection_that_ends_is_passed_over(
    port: int, version: bytes, connection: bytes, protocol: bytes
) -> None:
    """It is answered with its body read, as the last of its connection (HTTP/1.0 keeps none)."""
    offer = connection + b"Upgrade: %s\r\n\r\n" % protocol
    for first, body in ((GET, b""), (HEAD + LENGTH, BODY)):
        head = first.replace(b"HTTP/1.1", b"HTTP/" + version) + offer
        answer = said(port, head + body + LAST, then_end=False)
        assert statuses(answer) == [200]
        assert (b'"label":"positive"' in answer) == bool(body)
        before = GET + b"\r\n"
        assert statuses(said(port, before + head + body, then_end=False)) == [200, 200]
    with connected(port) as pieces:
        for piece in (head[:30], head[30:-2], head[-2:], body[:5], body[5:]):
            pieces.sendall(piece)
        assert statuses(until_end(pieces)) == [200]


@pytest.mark.parametrize("path", ["/", "/?q=day", "/healthz", "/openapi.json", "/page/main.js"])
def test_a_health_check_of_http_1_0_gets_each_page(port: int, path: str) -> None:
    """It names no host, and is answered all the same."""
    answer = said(port, f"GET {path} HTTP/1.0\r\n\r\n".encode())
    assert statuses(answer) == [200]
    is_page = b"http://127.0.0.1:%d/page/preview.png" % port in answer
    assert is_page == (path in {"/", "/?q=day"})


def test_a_tunnel_is_not_dug(port: int) -> None:
    """CONNECT is for proxies: it is answered once, and what would go through is not read."""
    for target, status in ((b"example.org:80", 400), (b"/healthz", 405)):
        request = b"CONNECT %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (target, OFFER)
        assert statuses(said(port, request * 3)) == [status]


@pytest.mark.parametrize(
    ("begin", "on"), [(b"0\r\nX: ", b"aaa"), (b"0\r\n", b"X: a\r\n"), (b"5;", b"aaa")]
)
def test_what_stands_around_a_body_has_a_bound(port: int, begin: bytes, on: bytes) -> None:
    """Nobody fills our memory with what comes behind a body, or beside its chunks."""
    chunk = b"%x\r\n%s\r\n" % (len(BODY), BODY)
    endless = on * (8 * HEAD_BYTES_MAX // len(on))
    assert statuses(said(port, CHUNKED + chunk + begin + endless, then_end=False)) == [431]


def test_a_body_in_many_small_chunks_is_none_of_that(port: int) -> None:
    """Chunks of a byte each are many more bytes on the wire than the body has; it is read."""
    body = b'{"text":"%s"}' % (b"good " * 20_000)
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    last = b"0\r\nX-Sum: 7\r\n\r\n"
    assert statuses(said(port, CHUNKED + chunks + last)) == [200]


@pytest.mark.parametrize("behind", [b"\x00\x01 no HTTP", b"X: a\r\n" * HEAD_BYTES_MAX])
def test_what_comes_behind_a_request_is_not_held_against_it(port: int, behind: bytes) -> None:
    """Requests that were whole are answered as they are; then the connection ends."""
    whole = HEAD + LENGTH + b"\r\n" + BODY
    assert statuses(said(port, whole + GET + b"\r\n" + behind, then_end=False)) == [200, 200]


def test_who_is_still_sending_hears_that_the_daemon_stops() -> None:
    """A request that is not whole when the server stops is answered by a problem, and counted."""
    with app_state(settings()) as made:
        with served(made) as port:
            connection = connected(port)
            connection.sendall(HEAD + LENGTH + b"Expect: 100-continue\r\n\r\n")
            assert status_of(connection.recv(1 << 16)) == 100
        with connection:
            answer = until_end(connection)
        found = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert found["status"] == status_of(answer) == 503
        assert found["detail"].startswith("the daemon is stopping")
        labels = {"route": "/v1/predict", "method": "POST", "status": "503"}
        assert made.registry.get_sample_value("streamnb_http_requests_total", labels) == 1


def test_who_corrects_as_the_daemon_stops_hears_that_it_may_be_done() -> None:
    """The correction is on its way into the log: nobody is told to send it again."""
    begun, go_on = threading.Event(), threading.Event()

    def delete(_name: str) -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    with app_state(settings()) as made:
        with served(made, correction_service=SimpleNamespace(delete=delete)) as port:
            connection = connected(port)
            connection.sendall(b"DELETE /v1/messages/a HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert begun.wait(PATIENCE_S)
        with connection:
            answer = until_end(connection)
        go_on.set()
    found = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert found["status"] == status_of(answer) == 504
    assert found["detail"].startswith("the daemon is stopping, and the correction may still come")
    assert b"retry-after" not in answer.lower()
