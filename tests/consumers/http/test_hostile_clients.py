"""Clients that are slow, broken or hostile: each gets a problem where one can be sent, and no more.

The server is real and so are the sockets; what a client may take is set low, so that nobody waits
long for it.
"""

from __future__ import annotations

import contextlib
import json
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.http.connection import HEAD_BYTES_MAX, PIPELINED_MAX
from consumers.http.state import AppState
from consumers.search.store import RecentStore
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

TIMEOUT_S = 1.0  # where a client is let go of; where one is answered, a busy machine has its time
CONNECTIONS_MAX = 20
N_SLOW = 200
BODY_BYTES_MAX = 100_000
HTTP: dict[str, Any] = {"connections_max": CONNECTIONS_MAX, "body_bytes_max": BODY_BYTES_MAX}
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def open_state() -> Iterator[AppState]:
    """Yield application state with low bounds."""
    with app_state(settings(http=HTTP)) as made:
        yield made


@pytest.fixture(scope="module")
def port(open_state: AppState) -> Iterator[int]:
    """Yield the port of a server with low bounds; it must be as well at the end as it was."""
    of = open_state.settings
    store = RecentStore(of.recent, None, of.model.classes, of.model.fields, of.page.unsure_below)
    with served(open_state, recent=store) as found:
        yield found
        is_well(found)
    store.stop()


@pytest.fixture(scope="module")
def hasty_port() -> Iterator[int]:
    """Yield the port of a server that waits for nobody for long."""
    with (
        app_state(settings(http=HTTP | {"request_timeout_s": TIMEOUT_S})) as made,
        served(made) as found,
    ):
        yield found
        is_well(found)


def is_well(port: int) -> None:
    """Fail unless the server answers as it should, once it has the time."""
    url, deadline_s = f"http://127.0.0.1:{port}/v1/predict", time.monotonic() + PATIENCE_S
    answer = None
    while answer is None or answer.status_code in {408, 503}:
        assert time.monotonic() < deadline_s
        answer = httpx.post(url, json={"text": "a good day"}, trust_env=False, timeout=PATIENCE_S)
    assert answer.json()["predictions"][0]["label"] == "positive"


def problem_in(answer: bytes) -> dict[str, Any]:
    """Return the problem details of an answer as it came."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\ncontent-type: application/problem+json" in head
    assert b"\r\nx-content-type-options: nosniff" in head
    found: dict[str, Any] = json.loads(body)
    assert found["status"] == status_of(answer)
    assert "Traceback" not in found["detail"]
    assert ".py" not in found["detail"]
    return found


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\x03\r\n\r\n",
        b"GET / SPDY/9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nContent-Length: many\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # a client that begins with TLS
    ],
)
def test_what_is_no_http_is_told_so(port: int, request_bytes: bytes) -> None:
    """The answer is a problem, and the connection is closed."""
    answer = said(port, request_bytes, then_end=False)
    assert problem_in(answer)["status"] == 400


def test_a_head_without_end_is_cut_off(port: int) -> None:
    """A head may have so many bytes, in one header or in many; nobody can fill our memory."""
    for filling in (b"X: " + b"a" * HEAD_BYTES_MAX * 2, b"X: a\r\n" * HEAD_BYTES_MAX):
        answer = said(port, b"GET / HTTP/1.1\r\n" + filling, then_end=False)
        assert problem_in(answer)["status"] == 431


@pytest.mark.parametrize("before", [b"", GET])
@pytest.mark.parametrize("n", [HEAD_BYTES_MAX, 200_000])
@pytest.mark.parametrize("head", [b"GET /?%s HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nX: %s\r\n"])
def test_a_head_has_a_size_however_it_comes(port: int, head: bytes, n: int, before: bytes) -> None:
    """A whole head that comes at once is refused too, by its address or by a header."""
    request = head % (b"a" * n) + b"Host: localhost\r\nConnection: close\r\n\r\n"
    first, *rest = said(port, before + request, then_end=False).split(b"HTTP/1.1 ")[1:]
    if before:  # it is answered; behind it the connection may just end
        assert first.startswith(b"200")
    else:
        rest = [first]
    assert all(problem_in(b"HTTP/1.1 " + each)["status"] == 431 for each in rest)


def test_a_body_may_be_so_large(port: int) -> None:
    """It is refused by its length, or while it comes: long before its end."""
    told = POST + b"Content-Length: 999999999\r\n\r\n" + b"x" * 1000
    found = problem_in(said(port, told, then_end=False))
    assert found["status"] == 413
    assert found["detail"].startswith(
        f"the body has 999999999 bytes, and may have {BODY_BYTES_MAX} (http.body_bytes_max)"
    )
    chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
    untold = POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 1000
    assert problem_in(said(port, untold, then_end=False))["status"] == 413


@pytest.mark.deep
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /heal",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        POST + b"Content-Length: 1000\r\n\r\n{",
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{",
        GET + b"GET /heal",
    ],
)
def test_who_does_not_go_on_is_let_go(hasty_port: int, sent: bytes) -> None:
    """A request that is not whole in time ends with 408, wherever it stopped."""
    answer, _, rest = said(hasty_port, sent, then_end=False).partition(b"HTTP/1.1 408")
    if sent.startswith(GET) and answer:  # else a busy machine sent that too late as well
        assert answer.startswith(b"HTTP/1.1 200")
    answer = b"HTTP/1.1 408" + rest
    assert "http.request_timeout_s" in problem_in(answer)["detail"]


def test_a_drop_now_and_then_gains_no_time(hasty_port: int) -> None:
    """The time is that of the whole request: bytes that trickle in do not begin it anew."""
    with connected(hasty_port) as connection:
        connection.setblocking(False)
        sent, answer = 0, b""
        connection.send(b"GET / HTTP/1.1\r\nX: ")
        while not answer and sent < 10_000_000:
            with contextlib.suppress(BlockingIOError):
                answer = connection.recv(1 << 16)
            if not answer:
                connection.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    answer = connection.recv(1 << 16)
                connection.setblocking(False)
            with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                sent += connection.send(b"a")
    assert problem_in(answer)["status"] == 408


def test_two_hundred_who_trickle_keep_nobody_waiting() -> None:
    """While each sends a byte now and then, others are answered; all are let go of in time."""
    of = settings(http={"request_timeout_s": 2 * TIMEOUT_S})
    with app_state(of) as made, served(made) as port, contextlib.ExitStack() as stack:
        client = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S)
        )
        slow = {stack.enter_context(connected(port)) for _ in range(N_SLOW)}
        for each in slow:
            each.sendall(b"GET / HTTP/1.1\r\nX: ")
            each.setblocking(False)
        assert client.get("/metrics").text.count(f"streamnb_http_connections {N_SLOW + 1}.0") == 1
        answers, deadline_s = [], time.monotonic() + PATIENCE_S
        while slow:
            assert time.monotonic() < deadline_s
            for each in list(slow):
                if (answer := trickled(each)) is not None:
                    answers.append(answer)
                    slow.remove(each)
            assert client.post("/v1/predict", json={"text": "a good day"}).status_code == 200
        # What a client has sent meanwhile may cost it the answer, and no other.
        assert {status_of(answer) for answer in answers if answer} == {408}


def trickled(connection: socket.socket) -> bytes | None:
    """Send a byte more; return the answer if one came, and nothing in it if it was let go."""
    try:
        with contextlib.suppress(BlockingIOError):
            return connection.recv(1 << 16)
        connection.send(b"a")
    except ConnectionError:
        return b""
    return None


def test_who_takes_no_answer_is_let_go(hasty_port: int) -> None:
    """Answers that are not taken do not pile up: the connection ends, and the others go on."""
    body = json.dumps({"texts": ["a"] * 5_000}).encode()
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with connected(hasty_port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request * 20)  # about 15 MB of answers, more than any buffer holds
        is_let_go(connection)
    is_well(hasty_port)


def is_let_go(connection: socket.socket) -> None:
    """Wait until the server has ended a connection from which nothing is read."""
    ended = select.poll()
    ended.register(connection, select.POLLHUP | select.POLLERR)
    assert ended.poll(PATIENCE_S * 1000)


def test_requests_that_wait_have_a_number(port: int) -> None:
    """Who asks on and on without reading gets the answers up to there, and then a problem."""
    answer = said(port, GET * 10_000, then_end=False)
    found = [status_of(b"HTTP/1.1 " + each) for each in answer.split(b"HTTP/1.1 ")[1:]]
    assert len(found) <= 2 * PIPELINED_MAX
    assert set(found[:-1]) == {200}
    assert found[-1] == 429
    assert b"\r\nconnection: close\r\n" in answer.rpartition(b"HTTP/1.1 ")[2].lower()


def test_requests_may_come_all_at_once(port: int) -> None:
    """Pipelined requests are answered one after the other, in their order."""
    paths = ["healthz", "nowhere", "v1/page", "healthz"]
    several = b"".join(
        b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode() for path in paths
    )
    last = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = said(port, several + last, then_end=False)
    found = [status_of(b"HTTP/1.1 " + each) for each in answer.split(b"HTTP/1.1 ")[1:]]
    assert found == [200, 404, 200, 200, 404]


def test_who_has_nothing_more_to_say_is_answered(port: int) -> None:
    """A client that closes its half after the request gets the answer, and then the end."""
    body = b'{"text":"a good day"}'
    request = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    assert status_of(said(port, request)) == 200
    assert said(port, b"GET /healthz HTTP/1.1\r\nHost:") == b""


def test_there_are_so_many_connections(port: int, open_state: AppState) -> None:
    """One more gets a problem and the end, and takes nobody's place; later there is room again."""
    many = CONNECTIONS_MAX + 5
    until_alone(open_state)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connected(port)) for _ in range(many)]
        for connection in held:
            connection.sendall(GET)
        answers = [connection.recv(1 << 16) for connection in held]
        statuses = [status_of(answer) for answer in answers]
        assert statuses.count(200) == CONNECTIONS_MAX
        refused = answers[statuses.index(503)]
        assert "http.connections_max" in problem_in(refused)["detail"]
        for connection, status in zip(held, statuses, strict=True):
            if status == 503:
                assert until_end(connection) == b""
    found = open_state.registry.get_sample_value("streamnb_http_connections_rejected_total")
    assert found is not None
    assert found >= 5
    until_alone(open_state)
    with connected(port) as connection:
        connection.sendall(GET)
        assert status_of(connection.recv(1 << 16)) == 200


def until_alone(open_state: AppState) -> None:
    """Wait until the server has noticed that all clients have gone."""
    deadline_s = time.monotonic() + PATIENCE_S
    while open_state.registry.get_sample_value("streamnb_http_connections"):
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.01)


def test_without_a_file_to_spare_the_others_are_answered(port: int) -> None:
    """Where the process may open no more files, who is connected is served, and new ones later."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with httpx.Client(
        base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S
    ) as client:
        client.get("/nowhere")
        used = socket.socket()
        waiting = [socket.socket() for _ in range(5)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (used.fileno() + 6, hard))
            for each in waiting:
                each.settimeout(PATIENCE_S)
                each.connect(("127.0.0.1", port))
            for _ in range(20):
                assert client.get("/nowhere").status_code == 404
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for each in (used, *waiting):
                each.close()
    is_well(port)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v1/search?q=%ff%fe", 400, "not UTF-8"),
        ("/v1/messages/%ff", 400, "not UTF-8"),
        ("/v1/search?q=a%00b", 422, "holds a NUL"),
        ("/v1/messages/a?b", 422, "no parameters behind an id"),
        ("/v1/messages/", 404, "an id is missing"),
        ("/v1/messages/" + "a" * HEAD_BYTES_MAX, 431, "more than 65536 bytes"),
        ("/v1/search?limit=0", 422, "limit is '0'; a whole number from 1 to 200"),
        ("/v1/search?limit=1e3", 422, "a whole number"),
        ("/v1/search?limit=" + "9" * 400, 422, "a whole number"),
        ("/v1/search?before=-1", 422, "a whole number"),
        ("/v1/search?limt=5", 422, "no parameter 'limt'; there are q, lang, limit, before"),
        ("/v1/search?q=a&q=b", 422, "q is given 2 times"),
        ("/v1/search?q=" + "a" * 501, 422, "501 characters, and may have 500"),
        ("/v1/search?lang=" + "a" * 36, 422, "36 characters, and may have 35"),
        ("/v1/search?" + "q=a&" * 100, 422, "more than 64 parameters"),
        ("/v1/search?" + "a" * 60_000, 422, "there is no parameter"),
    ],
)
def test_addresses_are_read_strictly(port: int, path: str, status: int, words: str) -> None:
    """What cannot be meant is told, instead of answered as something else."""
    answer = said(port, b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    found = problem_in(answer)
    assert found["status"] == status
    assert words in found["detail"]


@given(st.binary(max_size=400))
def test_no_bytes_bring_it_down(port: int, sent: bytes) -> None:
    """Whatever is said, what comes back is HTTP or nothing, and never our own mistake."""
    answer = said(port, sent)
    assert not answer or status_of(answer) in {400, 404, 405, 431}
