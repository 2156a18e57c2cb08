"""Odd requests and slow components: each answer is one that the API describes."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from consumers.config.sections import HistorySettings, LabellingSettings
from consumers.corrections.model import LogPosition
from consumers.corrections.service import CorrectionService, ExampleReader
from consumers.features import kinds_of
from consumers.http.client import ApiError, Client
from consumers.http.state import AppState
from consumers.http.threads import THREADS
from consumers.messages import Partition
from consumers.search.label_queue import LabelQueue
from consumers.search.store import RecentStore
from tests.consumers.http.loopback_server import PATIENCE_S, app_state, served, settings
from tests.consumers.search.stores import running, tell

TIMEOUT_S = PATIENCE_S / 2  # long for a busy machine, and less than who asks waits


class SilentLog:
    """A log that takes what it is given, and says so only when it is told to."""

    name, is_own = "silent", True

    def __init__(self) -> None:
        self.taken = threading.Semaphore(0)
        self.speaks = threading.Event()

    def append(self, key: bytes, line: bytes) -> SilentLog:
        """Take a line."""
        del key, line
        self.taken.release()
        return self

    def outcome(self, timeout_s: float) -> LogPosition | None:
        """Say where it stands, once it is told to."""
        del timeout_s
        return LogPosition(Partition("silent", 0), 7) if self.speaks.wait(PATIENCE_S) else None

    def is_given_up(self) -> bool:
        """Return that it may still be said."""
        return False

    def close(self) -> None:
        """Hold nothing, so let go of nothing."""


@pytest.fixture(scope="module")
def log() -> SilentLog:
    """Return a log that does not answer yet."""
    return SilentLog()


@pytest.fixture(scope="module")
def open_state(log: SilentLog) -> Iterator[AppState]:
    """Yield application state with a correction service; one word rules a class out."""
    words = {"kind": "words", "alpha": 0.0, "hybrid": False}
    of = settings(http={"request_timeout_s": TIMEOUT_S}, model={"features": {"text": words}})
    examples = ExampleReader(kinds_of(of.model), of.message)
    correction_service = CorrectionService(log, None, of.model.classes, examples, lambda: None)
    store = RecentStore(of.recent, None, of.model.classes, of.model.fields, of.page.unsure_below)
    store.start()
    store.correct("nobody", None, None)  # it is open once that is done
    with app_state(of) as made:
        yield AppState(
            **{n: getattr(made, n) for n in made.__struct_fields__}
            | {"correction_service": correction_service, "recent": store}
        )
    store.stop()


@pytest.fixture(scope="module")
def http(open_state: AppState) -> Iterator[httpx.Client]:
    """Yield a client of a server of this state."""
    with (
        served(open_state) as port,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S
        ) as client,
    ):
        yield client


@pytest.mark.parametrize("version", ["abc", "1..0", "1e9", "9" * 5000, "1.0.0a"])
@pytest.mark.parametrize("kind", ["application/openmetrics-text", "text/plain"])
def test_metrics_are_shown_whatever_version_is_wanted(
    http: httpx.Client, kind: str, version: str
) -> None:
    """A version that there is none of is answered by the plain text that everybody reads."""
    answer = http.get("/metrics", headers={"Accept": f"{kind};version={version}"})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_what_to_label_is_worked_out_on_the_workers_alone() -> None:
    """It reads the store's file: neither the event loop nor the predictor waits for that."""
    names: list[str] = []

    def thread_time() -> float:
        names.append(threading.current_thread().name)
        return 0.0  # so it is worked out each time

    of = settings()
    with running(None) as store, app_state(of) as made:
        queue = LabelQueue(LabellingSettings(enabled=True), store, thread_time=thread_time)
        made.metrics.watch_labelling(queue.state)
        with (
            served(made, recent=store, label_queue=queue) as port,
            httpx.Client(
                base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60
            ) as client,
        ):
            for path in ("/v1/model", "/metrics", "/v1/labels/wanted"):
                assert client.get(path, timeout=PATIENCE_S).status_code == 200
                assert names, path
                assert {name.rstrip("0123456789") for name in names} == {"serve-worker_"}, path
                names.clear()


@pytest.mark.parametrize("wanted", ["lines=1-2", "bytes=5-2", "bytes=99999999-", "bytes=0-0,2-2"])
@pytest.mark.parametrize("path", ["/", "/page/style.css"])
def test_the_pages_files_come_whole(http: httpx.Client, path: str, wanted: str) -> None:
    """A Range, also one that makes no sense, is passed over; a file is 200 or 304."""
    whole = http.get(path)
    assert http.get(path, headers={"Range": wanted}).content == whole.content
    same = {"Range": wanted, "If-None-Match": whole.headers["ETag"]}
    assert http.get(path, headers=same).status_code == 304


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/model?window=5"),
        ("GET", "/v1/page?x"),
        ("GET", "/v1/messages/t7?dry_run=true"),
        ("DELETE", "/v1/messages/t7?dry_run=true"),
        ("DELETE", "/v1/messages/what?why"),
        ("POST", "/v1/predict?explain=true"),
        ("POST", "/v1/labels?dry_run=true"),
    ],
)
def test_no_parameter_is_passed_over(http: httpx.Client, method: str, path: str) -> None:
    """One that is not known is refused everywhere, for something was meant by it."""
    body = {"text": "a good day"} | ({"label": "positive"} if "labels" in path else {})
    json_body: dict[str, Any] = {"json": body} if method == "POST" else {}
    answer = http.request(method, path, **json_body)
    assert answer.status_code == 422
    assert "parameter" in answer.json()["detail"]


def test_what_is_infinite_is_described_as_null(http: httpx.Client) -> None:
    """Where a class is ruled out the answer holds null, and its description says that it may."""
    asked = {"text": "lovely", "explain": True}
    (found,) = http.post("/v1/predict", json=asked).json()["predictions"]
    assert found["log_posteriors"]["negative"] is None
    assert found["explanation"]["features"][0]["score"] is None
    types = http.get("/openapi.json").json()["components"]["schemas"]
    for described in (
        types["Prediction"]["properties"]["log_posteriors"]["additionalProperties"],
        types["Feature"]["properties"]["score"],
        types["Explanation"]["properties"]["intercept"],
    ):
        assert {"type": "null"} in described["anyOf"]


def test_every_refusal_of_a_deletion_is_described(http: httpx.Client) -> None:
    """What an id can be refused for stands in the description."""
    described = http.get("/openapi.json").json()["paths"]["/v1/messages/{id}"]["delete"]
    for name, status in (("%ff", 400), ("t7?why", 422), ("t7", 404), ("a%00b", 404)):
        assert http.delete(f"/v1/messages/{name}").status_code == status
        assert str(status) in described["responses"]


@contextmanager
def asked_store() -> Iterator[tuple[RecentStore, httpx.Client]]:
    """Serve an empty store, and return it with a client."""
    with (
        running(None) as store,
        app_state(settings()) as made,
        served(made, recent=store) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as client,
    ):
        yield store, client


def test_an_id_may_be_as_long_as_a_head() -> None:
    """What a message may be called it can be asked for by, also by a key of Kafka with NULs."""
    with asked_store() as (store, client):
        names = ["i" * 1_001, "é" * 10_000, "i" * 65_000, "a\0b", "\0\0\7"]
        for i, name in enumerate(names):
            tell(store, [{"id": name, "text": "good"}], i)
            answer = client.get(f"/v1/messages/{quote(name)}")
            assert (answer.status_code, answer.json().get("id")) == (200, name)
        found = client.get("/v1/search", params={"q": "good"}).json()["messages"]
        assert [message["id"] for message in found] == names[::-1]
        for form in ("jsonl", "csv"):
            file = client.get("/v1/export", params={"format": form}).text
            rows = (
                map(json.loads, file.splitlines())
                if form == "jsonl"
                else csv.DictReader(io.StringIO(file))
            )
            assert [row["id"] for row in rows] == names[::-1]


def test_a_message_may_be_older_than_1970() -> None:
    """Its time is what it says, wherever it is shown, counted, compared, exported or asked for."""
    with asked_store() as (store, client):
        rows: list[dict[str, Any] | str] = [
            {"text": "good", "created_at": "1965-01-01T00:00:00.250Z"},
            {"text": "good", "created_at": -157_766_398},
            {"text": "good", "created_at": "-157766397000"},
            {"text": "good", "created_at": "2023-11-14T10:00:00Z"},
        ]
        tell(store, rows)
        old = [-157_766_397_000, -157_766_398_000, -157_766_399_750]
        found = client.get("/v1/search").json()["messages"]
        assert [each["time_ms"] for each in found] == [1_699_956_000_000, *old]
        assert client.get("/v1/messages/m0").json()["time_ms"] == old[2]
        for to in ("1970-01-01", "-157766396000"):
            times = {"from": "1964-12-31", "to": to}
            summary = client.get("/v1/summary", params=times).json()
            assert summary["n"] == 3
            step_ms, points = 1000 * summary["series"]["step_s"], summary["series"]["points"]
            begins = sorted({time_ms // step_ms * step_ms for time_ms in old})
            assert [point["time_ms"] for point in points] == begins
            assert sum(sum(point["counts"].values()) for point in points) == 3
            lines = client.get("/v1/export", params=times | {"format": "jsonl"}).text.splitlines()
            exported = [(line["time_ms"], line["time"]) for line in map(json.loads, lines)]
            assert [time_ms for time_ms, _ in exported] == old
            assert exported[-1][1] == "1965-01-01T00:00:00.250Z"
        before = {"from": "-157766398000", "to": "-157766397000"}
        assert client.get("/v1/summary", params=before).json()["n"] == 1
        alone = client.get("/v1/summary", params={"to": "1965-01-01T00:00:01Z"}).json()
        assert alone["n"] == 3  # in whole steps
        spans = {"from": ["1965-01-01", "2023-01-01"], "to": ["1965-01-02", "2024-01-01"]}
        sides = client.get("/v1/compare", params=spans).json()["compared"]
        assert [(side["from_ms"], side["n"]) for side in sides] == [
            (-157_766_400_000, 3), (1_672_531_200_000, 1)
        ]  # fmt: skip


def test_a_long_id_is_taken_where_messages_are_corrected(http: httpx.Client) -> None:
    """It is none of a message here, which is all that is wrong with it."""
    name = "i" * 10_000
    assert http.delete(f"/v1/messages/{name}").status_code == 404
    label = {"id": name, "label": "positive"}
    assert http.post("/v1/labels", json=label).status_code == 404


def test_a_silent_log_keeps_nobody_else_waiting(http: httpx.Client, log: SilentLog) -> None:
    """While all who correct wait for the log, searches are answered as ever."""
    label = {"text": "a good day", "label": "positive"}
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            waiting = [pool.submit(http.post, "/v1/labels", json=label) for _ in range(THREADS)]
            for _ in range(THREADS):
                assert log.taken.acquire(timeout=PATIENCE_S)
            assert http.get("/v1/search?q=good").status_code == 200
        finally:
            log.speaks.set()
        assert [answer.result().status_code for answer in waiting] == [202] * THREADS


def test_a_store_that_is_not_open_yet_is_not_empty() -> None:
    """Until the stored messages are opened, as after a start, nobody is told that none are held."""
    of = settings()
    store = RecentStore(
        of.recent, None, of.model.classes, of.model.fields, of.page.unsure_below,
        history=HistorySettings(),
    )  # fmt: skip
    queue = LabelQueue(LabellingSettings(enabled=True), store)
    with (
        app_state(of) as made,
        served(made, recent=store, label_queue=queue) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as http,
    ):
        of_texts = "search?q=good", "export?q=good", "compare?q=good&q=bad"
        over_time = "history", "history?q=good"
        for path in (*of_texts, *over_time, "summary", "messages/t7", "labels/wanted"):
            answer = http.get(f"/v1/{path}")
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
            assert "still loading" in answer.json()["detail"]
        sample = http.get("/v1/page").json()["sample"]
        assert (sample["share"], sample["messages"]) == (None, None)
        assert http.get("/v1/model").json()["labelling"] is None
    store.stop()


def test_what_is_none_is_not_asked_for(http: httpx.Client) -> None:
    """The client leaves out what is None, so that a loop may begin with `before=None`."""
    client = Client(str(http.base_url))
    found = client.search("good", lang=None, before=None, limit=5)
    assert found["lang"] is None
    assert client.search("good", before=found["before"]) == found
    assert client.summary("good", lang=None)["lang"] is None


def test_another_server_is_no_streamnb(http: httpx.Client) -> None:
    """Where something else answers, or nothing does, the client's own error says so."""
    with pytest.raises(ApiError, match="doctype html") as caught:
        Client(f"{http.base_url}/docs#").model()
    assert caught.value.status == 200
    with pytest.raises(ApiError, match="No answer: http://no host") as caught:
        Client("http://no host").model()
    assert caught.value.status is None


def test_problems_are_json(http: httpx.Client) -> None:
    """Each problem is one JSON object of its own media type, with its own status in it."""
    for path in ("/page/", "/page/%2e%2e/app.py", "/page/a%00b", "/v1/messages/%ff", "/v1/nothing"):
        answer = http.get(path)
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.content)["status"] == answer.status_code


def test_history_answers_over_a_time() -> None:
    """Its steps are those that have messages; what is wrong in the address is a 422."""
    minute_ms = 1_700_000_000_000 // 60_000 * 60_000
    with (
        running(None, history=HistorySettings()) as store,
        app_state(settings()) as made,
        served(made, recent=store) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        tell(store, ["good day"] * 5)
        span = {"from": "2023-11-14T22:13Z", "to": "2023-11-14T23:00"}
        answer = client.get("/v1/history", params=span).json()
        assert (answer["n"], answer["series"]["step_s"], answer["kept_from_ms"]) == (5, 60, None)
        assert answer["classes"] == ["negative", "positive"]
        counts = {"negative": 3, "positive": 2}
        assert answer["series"]["points"] == [{"time_ms": minute_ms, "counts": counts}]
        assert (answer["from_ms"], answer["to_ms"]) == (minute_ms, 1_700_002_800_000)
        months = client.get("/v1/history?from=1690000000000&step=day&to=1710000000000").json()
        assert [point["counts"] for point in months["series"]["points"]] == [counts]
        now = client.get("/v1/history").json()
        assert (now["n"], now["to_ms"] - now["from_ms"]) == (0, 86_400_000)
        for query, expected in (
            ("from=yesterday", "from is 'yesterday'; Unix milliseconds or an ISO time"),
            ("to=offset:7", "to is 'offset:7'"),
            ("from=5&to=5", r"from (5) is not before to (5)"),
            ("step=week", "step is 'week'; one of minute, hour, day"),
            ("from=0&step=minute", "more than 3,000 steps"),
            ("since=0", "there is no parameter 'since'"),
        ):
            refused = client.get(f"/v1/history?{query}")
            assert refused.status_code == 422, query
            assert expected in refused.json()["detail"]


def test_a_words_history_reaches_behind_the_stored_messages() -> None:
    """A word is counted in what is stored and in what has left; of anything else the note says."""
    kept = {"history": HistorySettings(), "messages_max": 16 * 8}
    with (
        running(None, **kept) as store,
        app_state(settings()) as made,
        served(made, recent=store) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S) as client,
    ):
        tell(store, ["good day"] * 200)
        span = {"from": "2023-11-14T22:00Z", "to": "2023-11-14T23:00Z", "step": "hour"}

        def asked(**query: str) -> dict[str, Any]:
            answer: dict[str, Any] = client.get("/v1/history", params=span | query).json()
            return answer

        found = asked(q="Good")
        hour_ms = found["from_ms"]
        counts = {"negative": 100, "positive": 100}
        assert found["series"]["points"] == [{"time_ms": hour_ms, "counts": counts}]
        assert (found["n"], found["kept_from_ms"]) == (200, None)
        stored_from_ms = 1_700_000_000_000
        assert found["matches"] == {
            "query": "Good", "lang": None, "is_word": True, "stored_from_ms": stored_from_ms,
            "steps": [{"n": 200, "n_stored": 200, "at_most": None}],
        }  # fmt: skip
        assert found["note"] == (
            "Stored tweets, and counts of those no longer stored, by when they came."
        )
        never = asked(q="never")
        (step,) = never["matches"]["steps"]
        assert (never["n"], 0 < step["at_most"] < 200) == (0, True)
        assert (
            f"In 1 of 1 steps it was none of the most frequent words: in {step['at_most']}"
            in (never["note"])
        )
        for query in ({"q": "good day"}, {"q": "good", "lang": "en"}, {"q": "goo*"}):
            found = asked(**query)
            assert not found["matches"]["is_word"]
            assert found["kept_from_ms"] == stored_from_ms
            assert found["n"] <= 128
            assert "Only a single word is counted for longer than tweets" in found["note"]
        everything = asked(q="")
        assert (everything["n"], everything["matches"]) == (200, None)
        assert client.get("/v1/history?q=...").status_code == 422


def test_history_that_is_off_says_so(http: httpx.Client) -> None:
    """The answer names the setting that turns it on."""
    answer = http.get("/v1/history")
    assert answer.status_code == 404
    assert "history.enabled: true" in answer.json()["detail"]


def test_a_language_that_is_offered_can_be_asked_for() -> None:
    """Messages may call their language by any name; those that no search takes are not offered."""
    langs = ["en", "y" * 35, "y" * 36, "with\0NUL"]
    with running(None) as store, app_state(settings()) as made, served(made, recent=store) as port:
        tell(store, [{"text": "good day", "lang": lang} for lang in langs])
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)
        with client:
            offered = client.get("/v1/page").json()["languages"]
            assert offered == ["en", "y" * 35]
            for lang in offered:
                found = client.get("/v1/search", params={"lang": lang})
                assert len(found.json()["messages"]) == 1
