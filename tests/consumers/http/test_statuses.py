"""The statuses that OpenAPI names: each route is brought to answer with each, and with no other."""

from __future__ import annotations

import contextlib
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from consumers.config.sections import HistorySettings, LabellingSettings
from consumers.corrections.model import InDoubt, UnknownMessage
from consumers.corrections.service import CorrectionService, Receipt
from consumers.http import connection, threads
from consumers.http.connection import HEAD_BYTES_MAX
from consumers.http.requests import AllowedHosts
from consumers.http.routes_model import DELTAS
from consumers.http.state import ApiEventSerializer
from consumers.monitoring.status import Health
from consumers.search.label_queue import LabelQueue
from consumers.search.live_updater import LiveUpdater
from streamnb import EveryExamples, Learner, SnapshotBoard
from tests.consumers.http.loopback_server import (
    PATIENCE_S,
    app_state,
    connected,
    said,
    served,
    settings,
    status_of,
    taught,
    until_end,
)
from tests.consumers.search.stores import running, tell

Asked = tuple[str, dict[str, str], str]  # what stands behind the method, headers, the body
JSON = {"Content-Type": "application/json"}
TOKEN = "correct horse battery"
RIGHT = {"Authorization": f"Bearer {TOKEN}"}
LABEL = "POST /v1/labels"
DELETE = "DELETE /v1/messages/{id}"
PREDICT = "POST /v1/predict"
SNAPSHOT = "GET /v1/snapshot"
BODY_BYTES_MAX = 2_000
PIPELINED_MAX = 3


class Corrections:
    """A service that knows one message, and is in doubt about another."""

    ready, reason = True, None

    def label(self, name: str, label: str | None) -> Receipt:
        """Take a label."""
        if name == "doubted":
            raise InDoubt("it may have been taken")
        if name != "m0":
            raise UnknownMessage(f"no message {name!r} is kept")
        return Receipt(name, label, None, "journal@0")

    def delete(self, name: str) -> Receipt:
        """Take a deletion."""
        return self.label(name, None)


# ---- how each status is brought about ------------------------------------------------------------

# Of a daemon that has everything.
PLAIN = {
    "GET /v1/search": "?q=day",
    "GET /v1/summary": "?q=day",
    "GET /v1/compare": "?q=day&q=night",
    "GET /v1/history": "",
    "GET /v1/messages/{id}": "",
    "GET /v1/events": "",
    "GET /v1/export": "",
    "GET /v1/labels/wanted": "",
    "GET /v1/model": "",
    "GET /v1/fields": "",
    "GET /v1/page": "",
    SNAPSHOT: "",
    "GET /embed": "?q=day",
    "GET /metrics": "",
    "GET /healthz": "",
    "GET /readyz": "",
}
PROBES = {"GET /metrics", "GET /healthz", "GET /readyz"}  # they read no parameters


def asked_of_all(route: str) -> Iterator[Asked]:
    """Yield what is asked of a daemon that has everything, and no token."""
    for query in (PLAIN.get(route, ""), "" if route in PROBES else "?nothing=1"):
        yield query, {}, ""
    if route in {PREDICT, LABEL}:
        yield "", JSON, "{"
        yield "", JSON, "{}"
        yield "", JSON, " " * (BODY_BYTES_MAX + 1)
        yield "", {"Content-Type": "text/plain"}, "{}"
        yield "", JSON, '{"text": "a good day"}'
        for name in ("m0", "m9", "doubted"):
            yield "", JSON, f'{{"id": "{name}", "label": "positive"}}'


def asked_of_none(route: str) -> Iterator[Asked]:
    """Yield what is asked of a daemon that has a token, and nothing that can be turned off."""
    yield PLAIN.get(route, ""), {}, ""
    if route == LABEL:
        yield "", RIGHT | JSON, '{"id": "m0", "label": "positive"}'
    elif route == DELETE:
        yield "", RIGHT, ""


def bytes_of(route: str, asked: Asked, name: str = "m0") -> bytes:
    """Return a request, the last of its connection."""
    query, headers, body = asked
    method, _, path = route.partition(" ")
    # A stream would go on for ever.
    method = "HEAD" if path == "/v1/events" else method
    lines = [f"{method} {path.replace('{id}', name)}{query} HTTP/1.1"]
    given = {"Host": "localhost", "Connection": "close", "Content-Length": f"{len(body)}"} | headers
    return "\r\n".join([*lines, *(f"{k}: {v}" for k, v in given.items()), "", body]).encode()


def begun(route: str) -> bytes:
    """Return a request that lacks its last line."""
    return bytes_of(route, ("", {}, "")).removesuffix(b"\r\n")


@contextlib.contextmanager
def with_everything() -> Iterator[tuple[int, str]]:
    """Serve all components; yield the port and the ETag of the snapshot before the newest."""
    of = settings(
        http={
            "embed_sites": ["https://board.example.org"],
            "snapshots": True,
            "body_bytes_max": BODY_BYTES_MAX,
        }
    )
    health = Health(lambda: 0.0, of.http.stuck_after_s)
    health.beat(n_messages=1)
    health.set_ready()
    board, model = SnapshotBoard(), taught(of)
    with (
        running(None, history=HistorySettings()) as store,
        app_state(of, model, health=health, board=board) as made,
    ):
        tell(store, ["a good day", "a bad night"])
        watched = LiveUpdater(store, ApiEventSerializer(made), made.metrics)
        watched.start()
        components = {
            "recent": store,
            "live_updater": watched,
            "label_queue": LabelQueue(LabellingSettings(enabled=True), store),
            "correction_service": cast("CorrectionService", Corrections()),
        }
        try:
            with served(made, **components) as port:
                answer = httpx.get(f"http://127.0.0.1:{port}/v1/snapshot", trust_env=False)
                model.learn_one({"text": "a new word"}, "positive")
                Learner(model, board, EveryExamples(1), time.monotonic).publish()
                yield port, answer.headers["ETag"]
        finally:
            watched.stop()


def general(port: int, route: str) -> Iterator[int]:
    """Yield the statuses that any route may answer with, those of slow clients left out."""
    plain = bytes_of(route, (PLAIN.get(route, ""), {}, ""))
    host = b"Host: localhost"
    yield status_of(said(port, plain.replace(host, host + b"\r\n" + host)))
    yield status_of(said(port, plain.replace(host, b"Host: elsewhere.example")))
    yield status_of(said(port, plain.replace(plain.partition(b" ")[0], b"PATCH", 1)))
    yield status_of(said(port, begun(route) + b"X: " + b"x" * HEAD_BYTES_MAX))
    first = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answers = said(port, first * (PIPELINED_MAX + 1) + plain)
    yield int(re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)[-1])

    def fails(*_: Any) -> None:
        raise RuntimeError("a mistake")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AllowedHosts, "check", fails)
        yield status_of(said(port, plain))


def too_slow(routes: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the status of each route for a request that is never whole."""
    with (
        app_state(settings(http={"request_timeout_s": 0.2})) as made,
        served(made) as port,
        contextlib.ExitStack() as stack,
    ):
        held = [stack.enter_context(connected(port)) for _ in routes]
        for route, each in zip(routes, held, strict=True):
            each.sendall(begun(route))
        for route, each in zip(routes, held, strict=True):
            yield route, status_of(until_end(each))


def too_many(routes: list[str]) -> Iterator[tuple[str, int]]:
    """Yield the status of each route if there are as many connections as there may be."""
    with (
        app_state(settings(http={"connections_max": 1})) as made,
        served(made) as port,
        connected(port) as first,
    ):
        first.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        first.recv(1 << 16)
        for route in routes:
            yield route, status_of(said(port, bytes_of(route, ("", {}, ""))))


# ---- the tests -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def described() -> dict[str, set[int]]:
    """Return the statuses of each route by its description."""
    with app_state(settings()) as made, served(made) as port:
        found = httpx.get(
            f"http://127.0.0.1:{port}/openapi.json", trust_env=False, timeout=PATIENCE_S
        )
    return {
        f"{method.upper()} {path}": set(map(int, operation["responses"]))
        for path, methods in found.json()["paths"].items()
        for method, operation in methods.items()
    }


@pytest.fixture(scope="module")
def came(described: dict[str, set[int]]) -> dict[str, set[int]]:
    """Return the statuses that came of each route."""
    routes, found = list(described), defaultdict[str, set[int]](set)

    def note(port: int, route: str, asked: Asked, name: str = "m0") -> None:
        found[route].add(status_of(said(port, bytes_of(route, asked, name))))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "PIPELINED_MAX", PIPELINED_MAX)
        patch.setattr(threads, "_MADE_EACH_S", 1e-9)
        patch.setattr(threads, "_MADE_SHARE_MAX", 1.0)
        patch.setattr(threads, "_DELTA_SHARE_MAX", 1_000.0)
        with with_everything() as (port, etag):
            note(port, SNAPSHOT, ("", {"If-None-Match": etag, "A-IM": DELTAS}, ""))
            newest = httpx.get(f"http://127.0.0.1:{port}/v1/snapshot", trust_env=False)
            note(port, SNAPSHOT, ("", {"If-None-Match": newest.headers["ETag"]}, ""))
            for route in routes:
                for asked in asked_of_all(route):
                    note(port, route, asked)
                if route.endswith("{id}"):
                    for name in ("m9", "doubted"):
                        note(port, route, ("", {}, ""), name)
                found[route].update(general(port, route))
    bare = settings(http={"token": TOKEN})
    with app_state(bare) as made, served(made) as port:
        for route in routes:
            for asked in asked_of_none(route):
                note(port, route, asked)
    shared = settings(http={"token": TOKEN, "snapshots": True})
    with app_state(shared) as made, served(made) as port:
        note(port, SNAPSHOT, ("", {}, ""))
    for each in (too_slow, too_many):
        for route, status in each(routes):
            found[route].add(status)
    return found


def test_every_status_is_described_and_can_come(
    described: dict[str, set[int]], came: dict[str, set[int]]
) -> None:
    """No route answers with a status that its description lacks, and none is made up."""
    assert {route for route in described if route in PLAIN} == set(PLAIN)
    found = {
        route: (sorted(came[route] - told), sorted(told - came[route]))
        for route, told in described.items()
        if came[route] != told
    }
    assert not found, "route: (not described, never came)"
