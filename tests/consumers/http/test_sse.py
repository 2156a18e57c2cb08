"""Open pages over real sockets: the whole way from a new message to what a page is told."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from consumers.http import routes_search as events
from consumers.http.server import HttpServer
from consumers.http.state import ApiEventSerializer, AppState
from consumers.search import live_query as pages
from consumers.search import live_updater
from consumers.search.live_updater import LiveUpdater
from consumers.search.query_syntax import parse
from consumers.search.rows import Counted, WeighedCounts
from tests.consumers.http.loopback_server import (
    PATIENCE_S,
    app_state,
    connected,
    ended,
    settings,
    status_of,
)
from tests.consumers.search.live_stream import Said, Stream

TICK_S = 0.02


@dataclass
class Served:
    """A server with a store, a hub and a stream before them."""

    stream: Stream
    live_updater: LiveUpdater
    server: HttpServer
    port: int

    @contextlib.contextmanager
    def page(self, query: str) -> Iterator[Operation]:
        """Open a page."""
        url = f"http://127.0.0.1:{self.port}/v1/events?{query}"
        with httpx.stream("GET", url, timeout=PATIENCE_S, trust_env=False) as answer:
            yield Operation(answer)

    def get(self, path: str) -> httpx.Response:
        """Return an answer."""
        url = f"http://127.0.0.1:{self.port}{path}"
        return httpx.get(url, timeout=PATIENCE_S, trust_env=False)

    def until_no_page(self) -> None:
        """Wait until nobody is subscribed; each look takes a request's time."""
        while self.live_updater.n_pages:
            self.get("/healthz")


class Operation:
    """What an open page is told, event by event."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.lines = answer.iter_lines()

    def until(
        self, name: str, wanted: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> dict[str, Any]:
        """Return the data of the next event of a name that is as wanted."""
        event = ""
        for line in self.lines:
            field, _, value = line.partition(": ")
            if field == "event":
                event = value
            elif field == "data" and event == name:
                data: dict[str, Any] = msgspec.json.decode(value)
                if wanted(data):
                    return data
        raise AssertionError(f"the stream ended before such a {name!r} came")


@contextlib.contextmanager
def serving(made: AppState) -> Iterator[Served]:
    """Serve a store and a hub beside other components, with quick ticks."""
    stream = Stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_updater, "TICK_S", TICK_S)
        patch.setattr(live_updater, "BUSY_SHARE_MAX", 1.0)
        watched = LiveUpdater(stream.recent, ApiEventSerializer(made), made.metrics)
        stream.recent.start()
        watched.start()
        server = HttpServer(
            made.settings.http, replace(made, recent=stream.recent, live_updater=watched)
        )
        try:
            yield Served(stream, watched, server, server.start())
        finally:
            watched.stop()
            ended(server)
            stream.recent.stop()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """Yield what most tests here need."""
    with app_state(settings()) as made, serving(made) as found:
        yield found


def say(served: Served, *texts: str) -> None:
    """Bring messages into the store; their ids are their texts."""
    served.stream.say([Said(text, text) for text in texts])
    served.stream.settle()


def test_a_page_is_told_how_things_stand_and_then_what_is_new(served: Served) -> None:
    """Figures, messages and the daemon's state come at once; then each message that matches."""
    say(served, "apples are good", "pears are good")
    with served.page("q=apples%20") as page:
        assert page.answer.headers["content-type"].startswith("text/event-stream")
        assert page.answer.headers["cache-control"] == "no-store"
        assert next(page.lines) == "retry: 2000"
        assert page.until("summary")["n"] == 1
        assert page.until("messages")["messages"][0]["marked"] == ["", "apples", " are good"]
        assert page.until("status")["n_examples"] == 12
        say(served, "more apples", "more pears")
        summary = page.until("summary", lambda data: data["n"] == 2)
        assert summary["index"] == 0
        shown = [each["text"] for each in page.until("messages")["messages"]]
        assert shown == ["more apples", "apples are good"]


def test_a_page_is_told_what_the_other_routes_answer(served: Served) -> None:
    """Its figures and messages are those of `/v1/summary` and `/v1/search`, key by key."""
    say(served, *(f"plum {n}" for n in range(60)))
    with served.page("q=plum%20&lang=en") as page:
        summary, shown = page.until("summary"), page.until("messages")
    asked = served.get("/v1/summary?q=plum%20&lang=en").json()
    found = served.get("/v1/search?q=plum%20&lang=en&limit=50").json()
    del summary["index"]
    assert summary == asked
    assert shown == {"index": 0, "messages": found["messages"]}


def test_a_correction_and_a_removal_are_shown(served: Served) -> None:
    """A person's label stands beside its message at once; what was removed counts no more."""
    say(served, "quince one", "quince two")
    with served.page("q=quince%20") as page:
        page.until("messages")
        served.stream.recent.correct("quince one", "negative", None)
        assert page.until("change") == {
            "id": "quince one", "corrected": "negative", "removed": False,
        }  # fmt: skip
        page.until("messages", lambda data: data["messages"][-1]["corrected"] == "negative")
        served.stream.recent.remove("quince one")
        # Summaries come before messages, whichever of a tick's news is looked at first.
        page.until("summary", lambda data: data["n"] == 1)
        shown = page.until("messages")["messages"]
        assert [each["id"] for each in shown] == ["quince two"]


def test_queries_of_a_page_are_told_apart(served: Served) -> None:
    """Each event says by an index which query it is about; a bad one is a problem, and no more."""
    say(served, "cherry", "grape")
    with served.page("q=cherry%20&lang=&q=%22&lang=&q=grape%20&lang=de") as page:
        assert page.until("problem")["index"] == 1
        assert page.until("summary", lambda data: data["index"] == 0)["n"] == 1
        german = page.until("summary", lambda data: data["index"] == 2)
        assert (german["n"], german["lang"]) == (0, "de")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("q=a&" * 13, "13 queries"),
        ("q=a&lang=en&lang=de", "1 queries and 2 languages"),
        ("q=" + "a" * 501, "501 characters"),
        ("lang=" + "a" * 36, "36 characters"),
        ("query=a", "no parameter"),
    ],
)
def test_a_page_that_asks_wrongly_is_told_so(served: Served, query: str, said: str) -> None:
    """What cannot be watched is refused as a whole, by a problem."""
    answer = served.get(f"/v1/events?{query}")
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_a_page_that_goes_is_forgotten(served: Served) -> None:
    """A connection that ends takes its subscription along, and the query that nobody else had."""
    served.until_no_page()  # of another test, which may be on its way out
    with served.page("q=melon%20") as page:
        page.until("status")
        assert (served.live_updater.n_pages, served.live_updater.n_queries) == (1, 1)
        assert "streamnb_pages_open 1.0" in served.get("/metrics").text
    served.until_no_page()
    with served.live_updater._pages._lock:  # a page's queries go behind it, under this lock
        assert served.live_updater.n_queries == 0
    assert "streamnb_standing_queries 0.0" in served.get("/metrics").text


def test_pages_of_one_client_are_held_to_the_bound(served: Served) -> None:
    """Of 300 connections so many are served as one address may have; others may come later."""
    served.until_no_page()
    with contextlib.ExitStack() as stack:
        many = []
        for _ in range(300):  # each asks at once: who does not is let go of
            many.append(stack.enter_context(connected(served.port)))
            many[-1].sendall(b"GET /v1/events?q=fig HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answers = [each.recv(1 << 12) for each in many]
        statuses = [status_of(answer) for answer in answers]
        assert statuses.count(200) == pages.PAGES_A_CLIENT_MAX
        assert statuses.count(503) == 300 - pages.PAGES_A_CLIENT_MAX
        refused = answers[statuses.index(503)]
        assert b"from your address" in refused
        assert b"Retry-After: 5" in refused or b"retry-after: 5" in refused
    served.until_no_page()
    with served.page("q=fig") as page:
        page.until("status")


def test_a_page_that_takes_nothing_is_let_go_of() -> None:
    """A reader that is gone without a word, or stands still, does not stay subscribed."""
    with (
        app_state(settings(http={"request_timeout_s": 1.0})) as made,
        serving(made) as served,
        contextlib.ExitStack() as stack,
    ):
        status = 408  # of a request that did not come whole in time, on a busy machine
        while status == 408:
            page = stack.enter_context(socket.socket())
            page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            page.settimeout(PATIENCE_S)
            page.connect(("127.0.0.1", served.port))
            page.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            status = status_of(page.recv(64))
        assert status == 200
        n = 0
        while served.live_updater.n_pages:
            say(served, *(f"{n} {i} {'long ' * 700}" for i in range(50)))
            n += 1


def shows(name: str, data: dict[str, Any]) -> bool:
    """Return whether messages have the one of an id among them."""
    return name in [each["id"] for each in data["messages"]]


def test_a_slow_page_is_told_the_newest() -> None:
    """What a page has not taken waits where newer takes its place, not in the system's buffers."""
    n_rounds, found = 20, b""
    with (
        app_state(settings(http={"request_timeout_s": PATIENCE_S})) as made,
        serving(made) as served,
        served.page("") as quick,
        socket.socket() as slow,
    ):
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(PATIENCE_S)
        slow.connect(("127.0.0.1", served.port))
        slow.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert status_of(slow.recv(64)) == 200
        for n in range(n_rounds):
            say(served, *(f"{n} {i} {'long ' * 700}" for i in range(50)), f"the last of {n}")
            quick.until("messages", partial(shows, f"the last of {n}"))
        while b"the last of %d" % (n_rounds - 1) not in found:
            found += slow.recv(1 << 16)
    assert found.count(b"event: messages") < n_rounds / 4


def test_a_comment_comes_now_and_then(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that says nothing keeps proxies from taking the connection for dead."""
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.01)
    with served.page("q=lemon%20") as page:
        assert next(line for line in page.lines if line.startswith(":")) == ": still here"


def test_streams_end_with_the_daemon() -> None:
    """When the live updater stops, each stream ends in good order; newcomers are told to wait."""
    with app_state(settings()) as made, serving(made) as found, found.page("q=last%20") as page:
        page.until("status")
        found.live_updater.stop()
        assert list(page.lines)[-1:] in ([], [""])  # whole, to its last chunk
        refused = found.get("/v1/events")
        assert refused.status_code == 503
        assert refused.json()["detail"] == "the daemon is stopping"


def test_without_a_store_there_is_nothing_to_watch() -> None:
    """The problem says which setting turns it on."""
    with app_state(settings()) as made:
        server = HttpServer(made.settings.http, made)
        port = server.start()
        try:
            answer = httpx.get(
                f"http://127.0.0.1:{port}/v1/events", trust_env=False, timeout=PATIENCE_S
            )
        finally:
            ended(server)
    assert answer.status_code == 404
    assert "recent.enabled" in answer.json()["detail"]


def test_an_uneven_sample_is_told_by_what_came() -> None:
    """Shares are those of weighed counts, steps say what came; counts are those that are stored."""
    stored = Counted(
        n=640,
        n_max=10_000,
        newest_only=False,
        counts=(600, 40),
        confusion=((471, 0), (0, 206)),
        n_unsure=0,
        step_s=1,
        times_ms=(1_000, 2_000),
        series=((540, 60), (20, 20)),
    )
    few = ((60.0, 0.0), (0.0, 14.0))
    weighed = replace(stored, n_came=(600, 1_200), weighed=WeighedCounts((60.0, 40.0), few))
    recent = Stream().recent
    state = recent.state()
    recent.stop()
    with app_state(settings()) as made:
        serializer = ApiEventSerializer(made)
        told = msgspec.json.decode(serializer.summary(parse(""), None, weighed, state))
        even = msgspec.json.decode(serializer.summary(parse(""), None, stored, state))
        found = msgspec.json.decode(serializer.summary(parse("good"), None, weighed, state))
    # Of a search error rates are those of what was found, with the number of stored examples.
    assert found["corrected_reason"] == (
        "Error rates need 50 labelled examples of each class; 'positive' has 206 of unequal weight,"
        " which say as much as 14."
    )
    assert (told["raw"], told["n_even"]) == ({"negative": 0.6, "positive": 0.4}, 100.0)
    assert told["counts"] == even["counts"] == {"negative": 600, "positive": 40}
    assert [point["n"] for point in told["series"]["points"]] == [600, 1_200]
    assert even["raw"] == {"negative": 0.9375, "positive": 0.0625}
    assert "n_even" not in even
    assert ["n" in point for point in even["series"]["points"]] == [False, False]
