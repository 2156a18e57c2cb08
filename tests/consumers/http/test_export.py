"""`GET /v1/export`: its answers, what it refuses, how many run at once, and when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from functools import partial
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from consumers.config.sections import HistorySettings
from consumers.features import build_model
from consumers.http import files
from consumers.http.files import pieces_in
from consumers.http.requests import ProblemError
from consumers.http.routes_search import EXPORTS_MAX, ExportError, ExportStream
from consumers.monitoring.metrics import Metrics
from consumers.search.query_syntax import QueryError
from consumers.search.rows import TEXT_MAX
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
from tests.consumers.search.stores import running, tell

ASK = b"GET /v1/export%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
N_LONG = 4_000  # messages, far more than the buffers of two sockets hold


@pytest.fixture(scope="module")
def store() -> Iterator[RecentStore]:
    """Yield a store of long messages, the newest of which is short."""
    with running(None) as made:
        tell(made, ["x" * TEXT_MAX] * (N_LONG - 1) + [{"text": "=good day", "user": "ann"}])
        yield made


@pytest.fixture(scope="module")
def port(store: RecentStore) -> Iterator[int]:
    """Yield the port of a server with this store."""
    with app_state(settings()) as of, served(of, recent=store) as bound:
        yield bound


@pytest.fixture(scope="module")
def http(port: int) -> Iterator[httpx.Client]:
    """Yield a client."""
    address = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=address, trust_env=False, timeout=PATIENCE_S) as made:
        yield made


def test_a_file_is_a_download(http: httpx.Client) -> None:
    """CSV is the default; both forms say what they are and under which name to keep them."""
    table = http.get("/v1/export?q=good&limit=3")
    assert table.status_code == 200
    assert table.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert table.headers["Content-Disposition"] == 'attachment; filename="messages.csv"'
    assert table.headers["Cache-Control"] == "no-store"
    assert table.text.splitlines()[1].count('"\'=good day"') == 1
    lines = http.get("/v1/export?q=good&format=jsonl")
    assert lines.headers["Content-Type"] == "application/jsonl"
    assert lines.headers["Content-Disposition"] == 'attachment; filename="messages.jsonl"'
    assert lines.json()["text"] == "=good day"


def test_a_file_is_whole(http: httpx.Client) -> None:
    """All messages are there, however many pieces they take."""
    assert http.get("/v1/export?format=jsonl").text.count("\n") == N_LONG
    assert http.get("/v1/export?format=jsonl&limit=1234").text.count("\n") == 1_234


@pytest.mark.parametrize(
    ("asked", "said_of_it"),
    [
        ("format=xlsx", "one of csv, jsonl"),
        ("label=neutral", "there are negative, positive"),
        ("limit=1000001", "1000000"),
        ("from=yesterday", "from"),
        ("to=offset:3", "to"),
        ("from=2026-11-03&to=2026-11-02", "is not before to"),
        ("q=!", "no word"),
        ("before=3", "there is no parameter 'before'"),
    ],
)
def test_what_is_asked_wrongly_is_a_problem(
    http: httpx.Client, asked: str, said_of_it: str
) -> None:
    """A wrong parameter is 422 and says what is wanted, before anything is sent."""
    answer = http.get(f"/v1/export?{asked}")
    assert answer.status_code == 422
    assert said_of_it in answer.json()["detail"]


def test_a_file_is_for_allowed_hosts_alone(http: httpx.Client) -> None:
    """A page elsewhere that lets its name point here gets nothing, as on every route."""
    assert http.get("/v1/export", headers={"Host": "example.org"}).status_code == 403
    assert http.get("/v1/export").headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_without_a_store_there_is_no_file() -> None:
    """The answer is 404 and names the setting, as for a search."""
    with app_state(settings()) as of, served(of) as bound:
        answer = said(bound, ASK % b"")
    assert status_of(answer) == 404
    assert b"recent.enabled: true" in answer


def test_a_head_sends_no_file_and_leaves_its_place(http: httpx.Client) -> None:
    """It is answered as a GET is, without a body, however often."""
    for _ in range(2 * EXPORTS_MAX):
        answer = http.head("/v1/export")
        assert (answer.status_code, answer.content) == (200, b"")


def begun(port: int) -> socket.socket:
    """Return a connection whose client reads the head of an endless answer, and no more."""
    connection = connected(port)
    connection.sendall(ASK % b"")
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def test_few_exports_run_at_once_and_end_with_their_clients(port: int) -> None:
    """One more is 503 with Retry-After; once a client has gone, the next has its place."""
    with contextlib.ExitStack() as open_ones:
        held = [open_ones.enter_context(begun(port)) for _ in range(EXPORTS_MAX)]
        answer = said(port, ASK % b"")
        assert status_of(answer) == 503
        assert b"retry-after: 5" in answer.lower()
        held[0].close()
        until_s = time.monotonic() + PATIENCE_S
        while status_of(answer) != 200:
            assert time.monotonic() < until_s
            answer = said(port, ASK % b"?limit=1")
        assert status_of(said(port, ASK % b"?limit=1")) == 200


# ---- one answer, step by step --------------------------------------------------------------------

Message = MutableMapping[str, Any]
SCOPE = {"type": "http", "asgi": {"spec_version": "2.3"}}


async def never() -> Message:
    """Wait for a client that stays."""
    await asyncio.Event().wait()
    raise AssertionError


def sent(
    read: Callable[[], Awaitable[bytes]],
    send: Callable[[Message], Awaitable[None]],
    receive: Callable[[], Awaitable[Message]] = never,
    is_behind: Callable[[], bool] = lambda: False,
) -> set[ExportStream]:
    """Send a file; return what is still under way."""
    under_way: set[ExportStream] = set()

    async def run() -> None:
        stream = ExportStream(read, under_way, "messages.csv", "text/csv", is_behind)
        await stream(SCOPE, receive, send)

    asyncio.run(run())
    return under_way


def test_nothing_is_read_ahead_of_the_client() -> None:
    """A piece is read when the one before is taken: so no more than one is held."""
    n_read = 0
    n_ahead: list[int] = []

    async def read() -> bytes:
        nonlocal n_read
        n_read += 1
        return b"piece" if n_read <= 100 else b""

    async def send(message: Message) -> None:
        if message.get("body"):
            n_ahead.append(n_read - len(n_ahead))

    assert not sent(read, send)
    assert n_ahead == [1] * 100


def test_a_file_rests_only_while_messages_wait() -> None:
    """It asks behind each piece whether the learner is behind, and its bytes are the same."""
    bodies: list[list[bytes]] = []
    for waiting in ([], [True, False, True]):
        left, wait = [b"one", b"two", b"three", b"four", b""], iter(waiting)
        got: list[bytes] = []

        async def read(left: list[bytes] = left) -> bytes:
            return left.pop(0)

        async def send(message: Message, got: list[bytes] = got) -> None:
            got.append(message.get("body", b""))

        assert not sent(read, send, is_behind=partial(next, wait, False))
        assert list(wait) == []
        bodies.append(got)
    assert bodies[0] == bodies[1]
    assert b"".join(bodies[0]) == b"onetwothreefour"


def test_an_export_knows_of_the_messages_that_wait() -> None:
    """They are those that the gauge of messages read ahead counts."""
    metrics = Metrics(CollectorRegistry(), ("negative", "positive"))
    assert metrics.n_read_ahead() == 0
    metrics.watch_backlog(lambda: 5, lambda: 0)
    assert metrics.n_read_ahead() == 5


def test_reading_stops_with_the_client() -> None:
    """Once the client has gone no further piece is read, and its place is free."""
    n_read, gone = 0, asyncio.Event()

    async def read() -> bytes:
        nonlocal n_read
        n_read += 1
        return b"piece"

    async def send(message: Message) -> None:
        if n_read == 3 and message.get("body"):
            gone.set()
            await asyncio.Event().wait()  # it takes nothing any more

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    assert not sent(read, send, receive)
    assert n_read == 3


@pytest.mark.parametrize("error", [QueryError("damaged"), ProblemError(503, "too slow")])
def test_a_file_that_cannot_be_ended_is_cut(error: Exception) -> None:
    """It ends by an error, behind which the server closes the connection: no file looks whole."""
    messages: list[Message] = []
    pieces = iter([b"first", b"second"])

    async def read() -> bytes:
        try:
            return next(pieces)
        except StopIteration:
            raise error from None

    async def send(message: Message) -> None:
        messages.append(message)

    with pytest.raises(ExportError, match=str(error)):
        sent(read, send)
    assert [message.get("more_body") for message in messages] == [None, True, True]


def test_a_file_that_cannot_be_begun_is_a_problem() -> None:
    """What fails before the first piece is raised as it is, and answered as of any route."""

    async def read() -> bytes:
        raise QueryError("not now")

    async def send(message: Message) -> None:
        raise AssertionError(message)

    with pytest.raises(QueryError, match="not now"):
        sent(read, send)


def test_a_client_that_takes_all_gets_the_end(port: int) -> None:
    """Over a socket the last chunk says that the file is whole."""
    with connected(port) as connection:
        connection.sendall(ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") % b"?limit=9")
        assert until_end(connection).endswith(b"\r\n0\r\n\r\n")


# ---- the other views -----------------------------------------------------------------------------

VIEWS = {
    "/v1/summary?q=day": "shares",
    "/v1/compare?q=day&q=night": "comparison",
    "/v1/history?from=2023-11-13&to=2023-11-16&step=day": "history",
    "/v1/model?": "model",
    "/v1/fields?": "fields",
}


@pytest.fixture(scope="module")
def every_view() -> Iterator[httpx.Client]:
    """Yield a client of a server that has all views, also with what a spreadsheet would compute."""
    of = settings(
        model={
            "features": {
                "kinds": {"kind": "categories", "fields": ["colour"]},
                "sizes": {"kind": "numbers", "fields": ["height"]},
            }
        }
    )
    model = build_model(of.model)
    columns = {"colour": ['=red "1"', "blue"] * 4, "height": [float(i) for i in range(8)]}
    model.learn_many(columns, ["positive", "negative"] * 4)
    with (
        running(None, history=HistorySettings()) as made,
        app_state(of, model) as state,
        served(state, recent=made) as bound,
        httpx.Client(
            base_url=f"http://127.0.0.1:{bound}", trust_env=False, timeout=PATIENCE_S
        ) as client,
    ):
        tell(made, ["a good day", "a bad day", "a long night"] * 50)
        yield client


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each plain value of an answer with its place."""
    if isinstance(value, dict | list):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(each, f"{at}.{key}")
    else:
        yield at, value


@pytest.mark.parametrize(("path", "name"), VIEWS.items())
def test_every_view_is_a_file_too(every_view: httpx.Client, path: str, name: str) -> None:
    """Each value of an answer stands in the files once, as it is; both forms have the same rows."""
    answer = every_view.get(path)
    assert answer.status_code == 200
    told = answer.json()
    rows = [json.loads(line) for line in b"".join(pieces_in("jsonl", told)).splitlines()]
    cells = [(key, value) for row in rows for key, value in row.items() if key not in {"of", "at"}]
    expected = sorted(leaves(told), key=lambda leaf: repr(leaf[1]))
    cells.sort(key=lambda cell: repr(cell[1]))
    assert [value for _, value in cells] == [value for _, value in expected]
    assert {key for key, _ in cells} == {
        max((key for key, _ in cells if place.endswith(f".{key}")), key=len)
        for place, _ in expected
    }
    lines = every_view.get(f"{path}&format=jsonl")
    assert lines.headers["Content-Type"] == "application/jsonl"
    assert lines.headers["Content-Disposition"] == f'attachment; filename="{name}.jsonl"'
    assert lines.headers["Transfer-Encoding"] == "chunked"
    sent_rows = [json.loads(line) for line in lines.text.splitlines()]
    assert [list(row) for row in sent_rows] == [list(row) for row in rows]
    table = every_view.get(f"{path}&format=csv")
    assert table.headers["Content-Type"].startswith("text/csv")
    head, *body = csv.reader(io.StringIO(table.text))
    assert head[:2] == ["of", "at"]
    assert [line[:2] for line in body] == [[row["of"], row["at"]] for row in rows]
    assert {len(line) for line in body} == {len(head)}
    assert len({*head}) == len(head)


def test_a_view_as_a_table_computes_nothing(every_view: httpx.Client) -> None:
    """A text that a spreadsheet would compute gets a sign in front in CSV alone."""
    assert '"\'=red ""1"""' in every_view.get("/v1/fields?format=csv").text
    lines = map(json.loads, every_view.get("/v1/fields?format=jsonl").text.splitlines())
    assert '=red "1"' in [line.get("value") for line in lines]


def test_a_file_is_made_by_a_worker(
    every_view: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other requests are answered meanwhile, and no more than some wait for one."""
    found = list[str]()

    def noted(form: str, answer: Any) -> Iterator[bytes]:
        found.append(threading.current_thread().name)
        return pieces_in(form, answer)

    monkeypatch.setattr(files, "pieces_in", noted)
    for path in VIEWS:
        assert every_view.get(f"{path}&format=csv").status_code == 200
    assert len(found) == len(VIEWS)
    assert all(name.startswith("serve-worker") for name in found)


@pytest.mark.parametrize("path", VIEWS)
def test_another_form_of_a_view_is_refused(every_view: httpx.Client, path: str) -> None:
    """The answer names the forms that there are."""
    answer = every_view.get(f"{path}&format=xlsx")
    assert answer.status_code == 422
    assert answer.json()["detail"] == "format is 'xlsx'; one of json, csv, jsonl is wanted"


def test_a_long_table_comes_in_pieces() -> None:
    """No piece has more than some hundred rows, and together they have all of them."""
    answer = {"points": [{"n": i, "counts": {"a": i}} for i in range(1_000)]}
    for form, n_heads in (("csv", 1), ("jsonl", 0)):
        pieces = list(pieces_in(form, answer))
        assert max(piece.count(b"\n") for piece in pieces) == 200
        assert b"".join(pieces).count(b"\n") == 1_001 + n_heads
