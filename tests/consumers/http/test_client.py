"""The client of the API: what it sends again, and the events that it hears."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from consumers.http import client
from consumers.http.client import ApiError, Client, ReceivedEvent
from consumers.http.requests import PROBLEM_MEDIA_TYPE
from tests.consumers.http.loopback_server import app_state, settings
from tests.consumers.http.test_sse import say, serving
from tests.endtoend.daemon_process import Daemon as RealDaemon
from tests.endtoend.daemon_process import write_config

LOCATION = "/elsewhere"
CUT = 0  # in the place of a status: the connection ends without an answer


class Daemon(BaseHTTPRequestHandler):
    """Answers each request with the next of some statuses, and bodies; it counts them.

    `n_missing` bytes more are announced than come.
    """

    n_missing: ClassVar[int] = 0
    answers: ClassVar[list[tuple[int, str]]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Answer."""
        self.asked.append(f"{self.command} {self.path}")
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, body = self.answers.pop(0)
        if status == CUT:
            return
        self.send_response(status)
        self.send_header("Retry-After", "0")
        is_page = body.startswith("<")  # of a proxy
        self.send_header("Content-Type", "text/html" if is_page else PROBLEM_MEDIA_TYPE)
        if 300 <= status < 400:
            self.send_header("Location", LOCATION)
        data = body.encode(errors="surrogateescape")
        if self.n_missing:
            self.send_header("Content-Length", str(len(data) + self.n_missing))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_DELETE = do_GET  # noqa: N815 -- the names that the server looks for

    def log_message(self, *_args: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return where the server is; the client does not rest between two requests."""
    monkeypatch.setattr(client, "PAUSE_S", 0.0)
    Daemon.n_missing, Daemon.answers, Daemon.asked = 0, [], []
    with ThreadingHTTPServer(("127.0.0.1", 0), Daemon) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_importing_it_imports_the_standard_library_alone() -> None:
    """A program that only asks a daemon waits neither for NumPy nor for a compiler."""
    code = (
        "import sys; before = set(sys.modules); import consumers.http.client; "
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert said.stdout.split() == ["consumers"]


@pytest.mark.parametrize("first", [503, 429, CUT])
def test_a_question_is_asked_again(address: str, first: int) -> None:
    """If the daemon is busy, still starts, or does not answer: as often as was said, not more."""
    busy = json.dumps({"title": "Later", "detail": "too much"})
    Daemon.answers = [(first, busy), (first, busy), (200, '{"n": 7}')]
    assert dict(Client(address).model()) == {"n": 7}
    assert Daemon.asked == ["GET /v1/model"] * 3
    Daemon.answers = [(first, busy)] * 2
    with pytest.raises(ApiError) as caught:
        Client(address, retries=1).predict("good")
    assert caught.value.status == (first or None)
    assert Daemon.asked[3:] == ["POST /v1/predict"] * 2


def test_what_may_have_arrived_is_not_sent_again(address: str) -> None:
    """A label that nobody answered stays sent once; one that was refused for now is sent again."""
    Daemon.answers = [(CUT, "")]
    with pytest.raises(ApiError, match="No answer"):
        Client(address).label("a", "positive")
    for refused in (503, 429):
        Daemon.answers = [(refused, "{}"), (202, '{"id": "a"}')]
        assert Client(address).label("a", "positive") == {"id": "a"}
    assert Daemon.asked == ["POST /v1/labels"] * 5


@pytest.mark.parametrize(
    ("status", "body"),
    [(503, "<p>upstream connect error or disconnect/reset before headers</p>"), (504, "{}")],
)
def test_what_may_have_been_done_is_not_sent_again(address: str, status: int, body: str) -> None:
    """Neither is what a proxy answers when the daemon went away, nor what is in doubt there."""
    Daemon.answers = [(status, body), (404, "{}")]
    with pytest.raises(ApiError) as caught:
        Client(address).delete("a")
    assert (caught.value.status, Daemon.asked) == (status, ["DELETE /v1/messages/a"])


def test_a_question_that_a_proxy_refuses_is_asked_again(address: str) -> None:
    """Who only reads may ask as often as he likes."""
    Daemon.answers = [(503, "<p>no healthy upstream</p>"), (200, '{"n": 7}')]
    assert dict(Client(address).model()) == {"n": 7}


def test_what_is_wrong_is_not_asked_again(address: str) -> None:
    """A refusal for good is told at once."""
    Daemon.answers = [(422, "")]
    with pytest.raises(ApiError):
        Client(address).history("x*", (1, "2026-11-02"), step="hour")
    assert Daemon.asked == ["GET /v1/history?q=x%2A&from=1&to=2026-11-02&step=hour"]


def test_a_query_at_two_times_says_what_moved(address: str) -> None:
    """`compare_times` returns the whole answer, `compare` of the same question its sides alone."""
    moved = {"label": "positive", "before": 0.4, "after": 0.6, "words": []}
    Daemon.answers = [(200, json.dumps({"compared": [{"n": 1}, {"n": 2}], "moved": moved}))] * 2
    found = Client(address).compare_times("tea", (1, 2), (2, 3), lang="en")
    assert (found["moved"], len(found["compared"])) == (moved, 2)
    compared = Client(address).compare("tea", lang="en", times=[(1, 2), (2, 3)])
    assert compared == found["compared"]
    assert Daemon.asked == ["GET /v1/compare?q=tea&lang=en&from=1&from=2&to=2&to=3"] * 2


def test_events_go_on_behind_a_cut(address: str) -> None:
    """Comments are passed over; the end of one connection is the beginning of another.

    The first ends amid a line, the second amid a character.
    """
    one = ': hello\nretry: 2000\n\nevent: status\nid: 1\n: here\ndata: {"a": 1}\n\n'
    second = one.replace("1", "2") + 'event: lost\ndata: {"a": "caf\udcc3'
    Daemon.answers = [(200, one + "event: lost\ndata: {"), (200, second), (404, "")]
    events = Client(address).events("a", "b c", lang="en")
    assert [next(events) for _ in range(2)] == [
        ReceivedEvent("status", {"a": 1}),
        ReceivedEvent("status", {"a": 2}),
    ]
    with pytest.raises(ApiError) as caught:
        next(events)
    assert caught.value.status == 404
    assert Daemon.asked == ["GET /v1/events?q=a&q=b+c&lang=en&lang=en"] * 3
    Daemon.answers = [(200, one)]
    assert len(list(Client(address, retries=0).events())) == 1


@pytest.mark.parametrize("ask", [Client.model, lambda asked: next(asked.events())])
def test_a_refusal_that_breaks_off_is_told(address: str, ask: Callable[[Client], Any]) -> None:
    """Whatever is asked, no other error comes than the client's own."""
    Daemon.n_missing, Daemon.answers = 9, [(401, "{}")]
    with pytest.raises(ApiError, match=r"No answer: .*9 more expected"):
        ask(Client(address))


def test_events_of_a_daemon() -> None:
    """What comes into the store is heard of, as the routes answer it."""
    with app_state(settings()) as made, serving(made) as served:
        say(served, "coffee first")
        asked = Client(f"http://127.0.0.1:{served.port}", retries=0)
        events = asked.events("coffee")
        first = next(each for each in events if each.name == "messages")
        assert [each["id"] for each in first.data["messages"]] == ["coffee first"]
        say(served, "coffee second", "tea")
        second = next(each for each in events if each.name == "messages")
        assert second.data["messages"][0]["id"] == "coffee second"
        assert asked.summary("coffee")["n"] == 2
        events.close()


def test_a_daemon_is_asked_for_its_fields_its_pages_and_whom_to_label(tmp_path: Path) -> None:
    """A program works through the queue of labels, and reads all matches page by page."""
    loans = [
        {"id": f"l-{i}", "text": f"loan {i}", "grade": "AB"[i % 2]}
        | ({"label": "paid" if i % 3 else "unpaid"} if i < 60 else {})
        for i in range(70)
    ]
    lines = "".join(json.dumps(each) + "\n" for each in loans)
    (tmp_path / "in.jsonl").write_text(lines, encoding="utf-8")
    features = {"text": {"fields": ["text"]}, "grades": {"kind": "categories", "fields": ["grade"]}}
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.jsonl",
        labels={"field": "label"},
        model={"classes": ["paid", "unpaid"], "features": features},
        labelling={"enabled": True},
    )
    with RealDaemon(config) as daemon:
        asked = Client(daemon.address)
        daemon.until(lambda: asked.page()["sample"] is not None, "the store is open")
        daemon.until(lambda: asked.summary()["n"] == len(loans), "all are stored")
        daemon.until_it_takes_corrections()
        page = asked.page()
        assert (page["classes"], page["fields"]["grade"]) == (["paid", "unpaid"], "categories")
        (grade,) = asked.fields()["categories"]
        assert {each["value"]: sum(each["counts"].values()) for each in grade["values"]} == {
            "A": 30.0, "B": 30.0,
        }  # fmt: skip
        found = [each["id"] for each in asked.search_all("loan", limit=9)]
        assert found == [each["id"] for each in reversed(loans)]
        assert [each["id"] for each in asked.search_all("loan", limit=9, before=None)] == found
        daemon.until(lambda: len(asked.wanted()["messages"]) > 1, "messages to label")
        first, second = asked.wanted(2)["messages"]
        assert first["picked"] in {"random", "uncertain"}
        asked.label(first["id"], "paid")
        daemon.until(
            lambda: first["id"] not in {each["id"] for each in asked.wanted()["messages"]},
            "it is labelled",
        )
        assert asked.wanted()["labelling"].get("n_answered") == 1
        assert second["id"] in {each["id"] for each in asked.wanted()["messages"]}
        assert daemon.stop() == 0


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(address: str, status: int) -> None:
    """It would hand the token to whoever the answer names, and make a question of a label."""
    asked = Client(address, token="secret", retries=0)
    for call in (asked.model, lambda: asked.predict("a")):
        Daemon.answers = [(status, "moved")]
        with pytest.raises(ApiError, match="moved") as caught:
            call()
        assert caught.value.status == status
    assert [each.split()[1] for each in Daemon.asked] == ["/v1/model", "/v1/predict"]


def test_a_file_that_breaks_off_is_none(address: str) -> None:
    """What came is handed out, and then the client says that there should be more."""
    Daemon.n_missing, Daemon.answers = 9, [(200, "half of it")]
    pieces = Client(address, retries=0).export("coffee")
    assert next(pieces) == b"half of it"
    with pytest.raises(ApiError, match="No answer") as caught:
        next(pieces)
    assert caught.value.status is None


PROSE = {"title", "description", "minimum", "maximum", "default"}
ANSWERS = {
    client.PredictionDict: "Prediction",
    client.MessageAnswerDict: "MessageAnswer",
    client.SearchDict: "SearchAnswer",
    client.SummaryDict: "Summary",
    client.ComparedDict: "ComparedSummary",
    client.ComparisonDict: "CompareAnswer",
    client.HistoryDict: "HistoryAnswer",
    client.LabelReceiptDict: "LabelReceipt",
    client.DeleteReceiptDict: "DeleteReceipt",
    client.WantedDict: "WantedAnswer",
    client.FieldsDict: "FieldsAnswer",
    client.PageDict: "PageAnswer",
    client.ModelDict: "ModelAnswer",
}


def plain(schema: Any, types: Mapping[str, Any]) -> Any:
    """Return a schema with its references resolved, without prose, bounds and defaults."""
    if isinstance(schema, list):
        return sorted((plain(each, types) for each in schema), key=json.dumps)
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return plain(types[schema["$ref"].rpartition("/")[2]], types)
    if set(schema) - PROSE == {"anyOf"} and len(schema["anyOf"]) == 1:
        return plain(schema["anyOf"][0], types)
    return {name: plain(each, types) for name, each in schema.items() if name not in PROSE}


def test_the_types_are_those_of_the_api() -> None:
    """Keys, types, and which are always there: what a type checker believes is what comes."""
    with app_state(settings()) as made, serving(made) as served:
        address = f"http://127.0.0.1:{served.port}/openapi.json"
        with urllib.request.urlopen(address) as said:
            described = json.load(said)["components"]["schemas"]
    (_, own) = msgspec.json.schema_components(list(ANSWERS))
    for answer, name in ANSWERS.items():
        assert plain(own[answer.__name__], own) == plain(described[name], described), name
