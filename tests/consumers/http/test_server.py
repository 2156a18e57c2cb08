"""Every answer over a real socket: metrics, health, the page, the description, and the rest."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from consumers.config.sections import HttpSettings
from consumers.errors import ConfigError
from consumers.http.app import HEADERS, PageFiles
from consumers.http.server import HttpServer
from consumers.http.state import AppState
from consumers.monitoring.status import Health, Status
from streamnb.testing import ManualClock
from tests.consumers.http.loopback_server import PATIENCE_S, app_state, ended, served, settings


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    """Return a clock."""
    return ManualClock()


@pytest.fixture(scope="module")
def health(clock: ManualClock) -> Health:
    """Return the health of a daemon that has just begun."""
    return Health(clock, settings().http.stuck_after_s)


@pytest.fixture(scope="module")
def open_state(clock: ManualClock, health: Health) -> Iterator[AppState]:
    """Yield the state of a daemon that has just begun."""
    with app_state(settings(), clock=clock, health=health) as made:
        yield made


@pytest.fixture(scope="module")
def client(open_state: AppState) -> Iterator[httpx.Client]:
    """Yield a client of a running server."""
    with served(open_state) as port, asking(port) as http:
        yield http


def asking(port: int) -> httpx.Client:
    """Return a client."""
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S)


def test_metrics_are_in_the_form_that_is_asked_for(client: httpx.Client) -> None:
    """Prometheus' text by default, OpenMetrics where it is asked for; never kept in a cache."""
    plain = client.get("/metrics")
    assert 'streamnb_messages_total{outcome="learned"} 0.0' in plain.text
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert plain.headers["cache-control"] == "no-store"
    assert "_created" not in plain.text
    asked = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})
    assert asked.text.endswith("# EOF\n")


def test_health_is_told_in_json(client: httpx.Client, health: Health, clock: ManualClock) -> None:
    """The status code is for machines, the body says why; both paths differ where they should."""
    assert client.get("/healthz").status_code == 200
    assert client.get("/readyz").status_code == 503
    health.beat(n_messages=1)
    health.set_ready(7)
    ready = client.get("/readyz")
    assert ready.status_code == 200
    assert ready.json() == {
        "state": "reading", "reason": None, "last_message_age_s": 0.0, "snapshot_version": 7,
        "degraded": None,
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
    """Another path or method is a problem that says where there is more."""
    missing = client.get("/admin")
    assert missing.status_code == 404
    assert missing.headers["content-type"] == "application/problem+json"
    assert missing.json() == {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "there is nothing at this path; / is the page, and /docs lists what else there "
        "is",
    }
    wrong = client.put("/v1/messages/7")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "DELETE, GET"
    assert wrong.json()["detail"] == "PUT is not for this path; it takes DELETE, GET"
    assert client.post("/page/index.html").status_code == 405


@pytest.mark.parametrize("path", ["/page/../rooms.py", "/page/%2e%2e/rooms.py", "/page//etc"])
def test_the_page_is_all_that_its_folder_gives(client: httpx.Client, path: str) -> None:
    """No path leads out of it."""
    request = client.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    assert client.send(request).status_code == 404


def test_the_page_is_a_file_that_browsers_may_keep(client: httpx.Client) -> None:
    """It has a tag by which a browser asks whether it is still the same."""
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    tag = page.headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", W/{tag}'):  # a proxy that packs it weakens it
        same = client.get("/", headers={"If-None-Match": known})
        assert (same.status_code, same.content) == (304, b"")
    assert page.headers["cache-control"] == "no-cache"
    for name in re.findall(r'"(/page/[^"]+)"', page.text):
        answer = client.get(name)
        assert answer.status_code == 200, name
        kinds = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
        kind = kinds[name.rpartition(".")[2]]
        assert answer.headers["content-type"].startswith(kind), name


def test_the_files_of_the_page_are_those_of_the_start(tmp_path: Path) -> None:
    """A daemon whose program is upgraded under it mixes no new script with its old page."""
    script = tmp_path / "main.js"
    script.write_text("old")
    files = httpx.ASGITransport(PageFiles(directory=tmp_path))
    script.write_text("new")

    async def asked() -> str:
        async with httpx.AsyncClient(transport=files, base_url="http://127.0.0.1") as http:
            return (await http.get("/main.js")).text

    assert asyncio.run(asked()) == "old"


@pytest.mark.parametrize("path", ["/", "/v1/page", "/v1/search", "/nowhere", "/docs", "/healthz"])
def test_every_answer_has_the_safe_headers(client: httpx.Client, path: str) -> None:
    """Scripts, frames and guesses of a file's type are ruled out, also with a problem."""
    answer = client.get(path)
    for name, value in HEADERS:
        assert answer.headers.get_list(name.decode()) == [value.decode()]
    assert "unsafe" not in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/v1/page", "/nowhere", "/metrics", "/v1/events"])
def test_a_head_is_the_head_of_a_get(client: httpx.Client, path: str) -> None:
    """Its status is that of a GET and it has no body, also where a GET would go on for ever."""
    head = client.head(path)
    assert head.content == b""
    with client.stream("GET", path) as answer:
        assert head.status_code == answer.status_code
        assert head.headers["content-type"] == answer.headers["content-type"]


def test_the_description_is_whole(client: httpx.Client) -> None:
    """Every reference in it leads somewhere, and no operation is called as another is."""
    schema = client.get("/openapi.json").json()
    assert schema["openapi"].startswith("3.1")
    text = json.dumps(schema)
    for name in set(re.findall(r'"#/components/schemas/([^"]+)"', text)):
        assert name in schema["components"]["schemas"]
    operations = [each for path in schema["paths"].values() for each in path.values()]
    names = [each["operationId"] for each in operations]
    assert len(set(names)) == len(names)
    assert {"predict", "search", "get_message", "delete_message", "label_message"} <= set(names)
    assert not [
        name for name in names if not re.fullmatch("[a-z]+(_[a-z]+)*", name) or "v1" in name
    ]
    for operation in operations:
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                *own, problem = answer["content"]  # a probe and the card say it in their own form
                assert problem == "application/problem+json"
                assert own in ([], ["application/json"], ["text/html"])


def test_the_docs_fetch_nothing_from_elsewhere(client: httpx.Client) -> None:
    """The page for people stands by itself: no script, and a style sheet of our own."""
    page = client.get("/docs").text
    assert "<script" not in page
    links = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(link.startswith(("/", "#")) and not link.startswith("//") for link in links)
    anchors = {link[1:] for link in links if link.startswith("#")}
    assert anchors <= set(re.findall(r'id="([^"]+)"', page))
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        assert f"<code>{path}</code>" in page
        assert all(f'href="#{each["operationId"]}"' in page for each in methods.values())
    routes = page[: page.index("<h2>Types")]
    assert "`" not in re.sub("<pre>.*?</pre>", "", routes, flags=re.DOTALL)
    assert client.get("/docs/style.css").headers["content-type"].startswith("text/css")


def test_requests_are_counted_by_route(client: httpx.Client) -> None:
    """The label is the route's template, never a path that a client made up."""
    made_up = ("/v1/messages/made-up-by-a-client", "/nowhere/made-up", "/page/made-up.js")
    for path in (*made_up, "/metrics"):
        client.get(path)
    found = client.get("/metrics").text
    assert "made-up" not in found
    for route in ("/v1/messages/{id}", "other", "/page"):
        assert f'streamnb_http_requests_total{{method="GET",route="{route}",status="404"}}' in found
    assert 'streamnb_http_request_seconds_count{route="/metrics"}' in found
    assert re.search(r"^streamnb_http_connections [1-9]", found, re.MULTILINE)


def test_what_nobody_foresaw_is_told_by_its_name_alone() -> None:
    """The client gets an id, the log that id and the error, and the server goes on."""
    times = itertools.count()

    def broken() -> Status:
        if next(times) == 0:
            raise RuntimeError("the secret of the house")
        return made.status()

    with (
        capture_logs() as logs,
        app_state(settings()) as made,
        served(made, status=broken) as port,
        asking(port) as http,
    ):
        answer = http.get("/v1/page")
        assert answer.status_code == 500
        problem: dict[str, Any] = answer.json()
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        assert http.get("/healthz").status_code in {200, 503}
    (line,) = [each for each in logs if each["event"] == "request_failed"]
    assert line["instance"] == problem["instance"]
    assert line["exc_info"]


def test_a_port_in_use_is_told_with_the_way_out(open_state: AppState) -> None:
    """The caller of start learns of it, by the setting's name."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = HttpServer(HttpSettings(port=port), open_state)
        with pytest.raises(ConfigError, match=rf"http\.port: {port} .* or 0 for any free one"):
            server.start()
        server.stop()


def test_a_host_that_is_not_ours_is_told(open_state: AppState) -> None:
    """An address of another machine cannot be listened on; the message names http.host."""
    server = HttpServer(HttpSettings(host="192.0.2.1", port=0), open_state)
    with pytest.raises(ConfigError, match=r"http\.host: '192\.0\.2\.1' is not an address"):
        server.start()


def test_it_can_be_stopped_at_any_time() -> None:
    """Stopping ends the thread and frees the port: right after the start, twice, or without one."""
    before = {thread.ident for thread in threading.enumerate()}
    with app_state(settings()) as made:
        server = HttpServer(HttpSettings(port=0), made)
        server.stop()
        server = HttpServer(HttpSettings(port=0), made)
        port = server.start()
        ended(server)
        server.stop()
    left = [each.name for each in threading.enumerate() if each.ident not in before]
    assert "serve" not in left
    with socket.create_server(("127.0.0.1", port)):
        pass
