"""Metrics and health over a real socket, as Prometheus and an orchestrator ask for them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client import CollectorRegistry

from consumers.config import HttpSettings
from consumers.errors import ConfigError
from consumers.health import Health
from consumers.metrics import Metrics
from consumers.web.server import HttpServer


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    """Return the health of a daemon that has just begun."""
    return Health(clock, stuck_after_s=30.0)


@pytest.fixture
def client(health: Health) -> Iterator[httpx.Client]:
    """Yield a client of a running server with fresh metrics."""
    registry = CollectorRegistry()
    Metrics(registry, ["negative", "positive"])
    server = HttpServer(HttpSettings(port=0), registry, health)
    port = server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
        yield http
    server.stop()


def test_the_index_lists_what_there_is(client: httpx.Client) -> None:
    """The root names every path, as plain text."""
    answer = client.get("/")
    assert answer.headers["content-type"].startswith("text/plain")
    for path in ("/metrics", "/healthz", "/readyz"):
        assert path in answer.text


def test_metrics_are_in_the_form_that_is_asked_for(client: httpx.Client) -> None:
    """Prometheus' text by default, OpenMetrics where it is asked for; never kept in a cache."""
    plain = client.get("/metrics")
    assert 'streamnb_messages_total{outcome="learned"} 0.0' in plain.text
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert plain.headers["cache-control"] == "no-store"
    assert "_created" not in plain.text
    asked = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert asked.text.endswith("# EOF\n")


def test_health_is_told_in_json(client: httpx.Client, health: Health, clock: Clock) -> None:
    """The status code is for machines, the body says why; both paths differ where they should."""
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    health.beat(n_messages=1)
    health.set_ready(7)
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {
        "state": "reading", "reason": None, "last_message_age_s": 0.0, "snapshot_version": 7,
    }  # fmt: skip
    health.set_trouble("no broker answers")
    assert client.get("/healthz").json()["reason"] is None
    assert client.get("/readyz").json()["reason"] == "no broker answers"
    clock.now_s += 31
    stuck = client.get("/healthz")
    assert stuck.status_code == 503
    assert stuck.json()["state"] == "stuck"
    assert json.loads(stuck.text)["last_message_age_s"] == 31.0


def test_there_is_nothing_else(client: httpx.Client) -> None:
    """Other paths are not found, and nothing can be changed."""
    assert client.get("/admin").status_code == 404
    assert client.post("/healthz").status_code == 405


def test_a_port_in_use_is_told_with_the_way_out(health: Health) -> None:
    """The caller of start learns of it, by the setting's name."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = HttpServer(HttpSettings(port=port), CollectorRegistry(), health)
        with pytest.raises(ConfigError, match=rf"http\.port: {port} .* or 0 for any free one"):
            server.start()
        server.stop()


def test_a_host_that_is_not_ours_is_told(health: Health) -> None:
    """An address of another machine cannot be listened on; the message names http.host."""
    server = HttpServer(HttpSettings(host="192.0.2.1", port=0), CollectorRegistry(), health)
    with pytest.raises(ConfigError, match=r"http\.host: '192\.0\.2\.1' is not an address"):
        server.start()


def test_it_can_be_stopped_at_any_time(health: Health) -> None:
    """Stopping ends the thread and frees the port: right after the start, twice, or without one."""
    server = HttpServer(HttpSettings(port=0), CollectorRegistry(), health)
    server.stop()
    server = HttpServer(HttpSettings(port=0), CollectorRegistry(), health)
    port = server.start()
    server.stop()
    server.stop()
    assert "serve" not in {thread.name for thread in threading.enumerate()}
    with socket.create_server(("127.0.0.1", port)):
        pass
