"""Who may change something: this machine's own on loopback, whoever has the token elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.routing import Mount

from consumers.config.sections import HttpSettings
from consumers.http.app import make_app
from consumers.http.openapi import ApiRoute
from consumers.http.requests import (
    AllowedHosts,
    ProblemError,
    check_change,
    corrections_off,
    is_loopback,
    is_open,
    needs_token,
)
from consumers.http.state import AppState
from tests.consumers.http.loopback_server import (
    PATIENCE_S,
    app_state,
    said,
    served,
    settings,
    status_of,
)

TOKEN = "correct horse battery"
LABEL = {"id": "7", "label": "positive"}
# Requests that are no GET and yet change nothing.
READING = {("POST", "/v1/predict")}
PROXY_HEADERS = [
    "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-anything",
    "forwarded", "via", "x-real-ip", "x-forwarded", "forwarded-for",
    "x-original-forwarded-for", "x-client-ip", "x-cluster-client-ip", "true-client-ip",
    "x-original-host", "x-original-proto", "x-original-url",
    "cf-connecting-ip", "cdn-loop", "x-envoy-external-address",
]  # fmt: skip


def asked(**headers: str) -> Request:
    """Return a request with headers."""
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "method": "POST", "path": "/", "headers": raw})


def refused(of: HttpSettings, **headers: str) -> int:
    """Return the status of the problem that a request is, 0 where it may pass."""
    try:
        check_change(asked(**headers), of)
    except ProblemError as error:
        return error.problem.status
    return 0


@pytest.mark.parametrize("host", ["127.0.0.1:8100", "localhost:8100", "[::1]:8100", "LOCALHOST"])
def test_this_machine_may_change(host: str) -> None:
    """A request under one of its own names passes, with its own Origin or without any."""
    of = HttpSettings()
    assert refused(of, host=host) == 0
    assert refused(of, host=host, origin=f"http://{host.lower()}") == 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": ""},
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:8100"},
        {"host": "evil.example", "origin": "http://evil.example"},
        {"host": "127.0.0.1:8100", "origin": "http://evil.example"},
        {"host": "127.0.0.1:8100", "origin": "http://127.0.0.1:3000"},
        {"host": "127.0.0.1:8100", "origin": "null"},
        {"host": "127.0.0.1:8100", "origin": "http://[::1"},
        {"host": "[::1", "origin": "http://[::1"},
        {"host": "user@127.0.0.1:8100", "origin": "http://127.0.0.1:8100"},
    ],
)
def test_no_other_site_may_change(headers: dict[str, str]) -> None:
    """Another Origin, or another name for our address, is a page of somebody else's."""
    assert refused(HttpSettings(), **headers) == 403


def test_two_names_at_once_are_none() -> None:
    """A request that names two hosts might mean either."""
    host = (b"host", b"127.0.0.1")
    request = Request({"type": "http", "method": "POST", "headers": [host, host]})
    with pytest.raises(ProblemError, match="own names alone"):
        check_change(request, HttpSettings())


@pytest.mark.parametrize("name", PROXY_HEADERS)
def test_behind_a_proxy_nobody_may_without_a_token(name: str) -> None:
    """A proxy on this machine that writes our own address into Host lets nobody in unasked."""
    headers = {"host": "127.0.0.1:8100", name: "203.0.113.9"}
    with pytest.raises(ProblemError, match=rf"proxy \(it has the header {name}\).*set http\.token"):
        check_change(asked(**headers), HttpSettings())
    of = HttpSettings.model_validate({"token": TOKEN})
    assert refused(of, **headers) == 401
    assert refused(of, **headers, authorization=f"Bearer {TOKEN}") == 0


def test_elsewhere_nobody_may_without_a_token() -> None:
    """On other listeners the way out is told: a token, or loopback."""
    of = HttpSettings(host="0.0.0.0")
    assert refused(of, host="127.0.0.1", authorization=f"Bearer {TOKEN}") == 403
    with pytest.raises(ProblemError, match=r"set http\.token .* or http\.host: 127\.0\.0\.1"):
        check_change(asked(host="127.0.0.1"), of)
    assert not is_open(of)
    assert needs_token(of)
    assert not needs_token(HttpSettings())


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
@pytest.mark.parametrize(
    "authorization",
    [None, "", TOKEN, f"Basic {TOKEN}", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}",
     "Bearer ünïcode"],
)  # fmt: skip
def test_a_token_is_asked_for_where_one_is_set(host: str, authorization: str | None) -> None:
    """Anything but the token itself is refused, on every listener: a proxy may stand before it."""
    of = HttpSettings.model_validate({"host": host, "token": TOKEN})
    headers = {"host": "127.0.0.1"} | ({"authorization": authorization} if authorization else {})
    assert refused(of, **headers) == 401
    assert refused(of, **headers | {"authorization": f"bearer {TOKEN}"}) == 0
    assert is_open(of)


def test_loopback_is_known_by_its_addresses() -> None:
    """All of 127.0.0.0/8 is this machine; a name that merely looks like it is not."""
    assert is_loopback("127.8.9.1")
    assert not is_loopback("127.0.0.1.example.org")
    assert not is_loopback("")


def answered(of: HttpSettings, *hosts: str, version: str = "1.1") -> int:
    """Return the status of the problem that these Host headers are, 0 where there is none."""
    headers = [(b"host", host.encode("latin-1")) for host in hosts]
    try:
        AllowedHosts(of).check({"type": "http", "http_version": version, "headers": headers})
    except ProblemError as error:
        return error.problem.status
    return 0


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:8100", "127.0.0.1:8100", "[::1]:8100", "[2001:db8::7]", "10.1.2.3:80",
     "host.example:8100", "named.example", "a.below.example", "a.b.below.example:1"],
)  # fmt: skip
def test_a_name_that_is_ours_is_answered(host: str) -> None:
    """Answered are localhost, any IP address, the bound name and the names of the settings."""
    names = ("Named.example", "*.below.example")
    assert answered(HttpSettings(host="Host.example", allowed_hosts=names), host) == 0


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.localhost",
     "below.example", "xbelow.example", "named.example.evil", "127.1", "2130706433",
     "user@localhost", "localhost:x", "localhost/", "localhost?", "[::1", "loc\xe4lhost", "*",
     "[::1]evil.example", "[fe80::1%evil]", "[::1]:80evil"],
)  # fmt: skip
def test_a_rebound_name_is_refused(host: str) -> None:
    """A name that only looks like one of ours may belong to anybody."""
    names = ("named.example", "*.below.example")
    assert answered(HttpSettings(allowed_hosts=names), host) == 403


def test_each_request_names_one_host() -> None:
    """None or several are refused; only HTTP/1.0, which health checks may speak, has none."""
    of = HttpSettings()
    assert answered(of) == 400
    assert answered(of, "localhost", "localhost") == 400
    assert answered(of, "localhost", "localhost", version="1.0") == 400
    assert answered(of, version="1.0") == 0
    assert answered(of, "evil.example", version="1.0") == 403


def test_every_name_can_be_allowed_for_reading_alone() -> None:
    """With `*` anybody's name is answered, but under it nothing is changed without a token."""
    of = HttpSettings(allowed_hosts=("*",))
    assert answered(of, "evil.example") == 0
    assert answered(of, "user@evil.example") == 403
    assert refused(of, host="evil.example") == 403


@pytest.fixture(scope="module")
def open_state() -> Iterator[AppState]:
    """Yield application state that ask for no token."""
    with app_state(settings()) as made:
        yield made


def every_route(of: AppState) -> list[tuple[str, str]]:
    """Return method and path of all that the application answers, as its own table has it."""
    found = []
    for route in make_app(of).routes:
        assert isinstance(route, ApiRoute | Mount), route
        if isinstance(route, Mount):
            found.append(("GET", f"{route.path}/index.html"))
        else:
            path = re.sub(r"\{[^}]+\}", "7", route.path)
            found += [(method, path) for method in sorted(route.methods or ())]
    assert {path for _, path in found} >= {"/", "/page/index.html", "/metrics", "/v1/messages/7"}
    return found


def test_no_route_answers_under_a_rebound_name(open_state: AppState) -> None:
    """Page, files, probes, streams and API refuse a foreign Host, and so does what is not there."""
    request = b"%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
    with served(open_state) as port:
        for method, path in [*every_route(open_state), ("GET", "/nowhere"), ("HEAD", "/")]:
            for host, is_refused in ((b"evil.example", True), (b"127.0.0.1", False)):
                answer = said(port, request % (method.encode(), path.encode(), host))
                seen = b"Host is 'evil.example'" in answer or status_of(answer) == 403
                assert seen == is_refused, (method, path, host, answer[:300])


def test_whatever_changes_something_needs_the_token(client: httpx.Client) -> None:
    """Each route that is no plain reading asks for the token where one is set."""
    with app_state(settings(http={"token": TOKEN})) as of:
        found = [each for each in every_route(of) if each[0] != "GET" and each not in READING]
    assert len(found) >= 2
    for method, path in found:
        answer = client.request(method, path, json={})
        assert answer.status_code == 401, (method, path)


def test_a_proxy_lets_nobody_teach_or_delete(open_state: AppState) -> None:
    """What comes through a proxy without a token is refused before anything is looked at."""
    with (
        served(open_state) as port,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S
        ) as http,
    ):
        for name in PROXY_HEADERS:
            headers = {name: "203.0.113.9"}
            for answer in (
                http.post("/v1/labels", json=LABEL, headers=headers),
                http.delete("/v1/messages/7", headers=headers),
            ):
                assert answer.status_code == 403
                assert "set http.token" in answer.json()["detail"]
        assert http.post("/v1/labels", json=LABEL).status_code == 409
        assert http.get("/v1/model", headers={"Via": "1.1 proxy"}).status_code == 200


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """Yield a client of a server that asks for a token, without a service behind it."""
    with (
        app_state(settings(http={"token": TOKEN})) as made,
        served(made) as port,
        httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=PATIENCE_S
        ) as http,
    ):
        yield http


def test_both_ways_to_change_are_guarded(client: httpx.Client) -> None:
    """Without the token a label and a deletion get 401 with its header, before anything else."""
    for answer in (client.post("/v1/labels", json=LABEL), client.delete("/v1/messages/7")):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="streamnb"'
        assert "http.token" in answer.json()["detail"]
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for answer in (
        client.post("/v1/labels", json=LABEL, headers=bearer),
        client.delete("/v1/messages/7", headers=bearer),
    ):
        assert answer.status_code == 409
        assert "set checkpoint.folder" in answer.json()["detail"]


def test_the_way_to_corrections_is_the_setting_that_lacks(tmp_path: Path) -> None:
    """The reason names the log, or the folder of its journal: only what a daemon would take."""
    none: dict[str, Any] = {"corrections": {"to": "none"}}
    assert "set corrections.to: journal" in corrections_off(settings(**none))
    assert "set checkpoint.folder" in corrections_off(settings())
    none["learned"] = {"messages_max": 0}
    forgetting = corrections_off(settings(model={"half_life_s": 86_400}, **none))
    assert forgetting == "a model with model.half_life_s takes none"
    topic = {"source": "kafka://localhost:9092/tweets", "group": {"folder": str(tmp_path)}}
    topic["checkpoint"] = {"folder": str(tmp_path / "own")}
    assert "set corrections.to: kafka:TOPIC" in corrections_off(settings(**topic, **none))


def test_no_form_can_teach(client: httpx.Client) -> None:
    """A body that a plain form could send is refused by its type, and no other site may ask first.

    A page elsewhere must ask before it may send JSON, and that question is not answered.
    """
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        headers = bearer | {"Content-Type": kind}
        answer = client.post("/v1/labels", content=b'{"id":"7","label":"a"}', headers=headers)
        assert answer.status_code == 415
    asked_first = client.options("/v1/labels", headers={"Origin": "http://evil.example"})
    assert asked_first.status_code == 405
    assert not [name for name in asked_first.headers if name.startswith("access-control")]


OURS, OTHER = "https://board.example.org", "https://elsewhere.example.org"
PREFLIGHT = (
    b"OPTIONS /v1/predict HTTP/1.1\r\nHost: localhost\r\nOrigin: %s\r\n"
    b"Access-Control-Request-Method: POST\r\n"
    b"Access-Control-Request-Headers: content-type\r\nConnection: close\r\n\r\n"
)
GET = b"GET %s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: close\r\n\r\n"


def allows(answer: bytes) -> bool:
    """Return whether a browser would let a page read an answer."""
    return f"access-control-allow-origin: {OURS}\r\n".encode() in answer.lower()


def test_pages_of_allowed_origins_may_ask() -> None:
    """They read answers and problems, and may send JSON; other sites may not."""
    with app_state(settings(http={"allowed_origins": [OURS]})) as of, served(of) as port:
        for path in (b"/v1/model", b"/nothing"):
            assert allows(said(port, GET % (path, b"localhost", OURS.encode())))
            assert not allows(said(port, GET % (path, b"localhost", OTHER.encode())))
        asked = said(port, PREFLIGHT % OURS.encode())
        assert status_of(asked) == 200
        assert allows(asked)
        refused = said(port, PREFLIGHT % OTHER.encode())
        assert status_of(refused) == 400
        assert not allows(refused)
        assert status_of(said(port, GET % (b"/v1/model", b"example.org", OURS.encode()))) == 403
        assert b"allow-credentials" not in asked.lower()


@pytest.mark.parametrize("written", [OURS.upper().replace("HTTPS", "https"), f"{OURS}:443"])
def test_an_origin_is_compared_as_browsers_send_it(written: str) -> None:
    """Capital letters and the scheme's own port are left out; all headers of ours can be read."""
    with app_state(settings(http={"allowed_origins": [written]})) as of, served(of) as port:
        answer = said(port, GET % (b"/v1/model", b"localhost", OURS.encode()))
    assert allows(answer)
    for name in (b"retry-after", b"streamnb-follow-age", b"streamnb-snapshot-version"):
        assert name in answer.lower().partition(b"access-control-expose-headers:")[2]


def test_no_page_of_another_site_may_ask_by_default() -> None:
    """Without the setting no answer says that it may be read elsewhere."""
    with app_state(settings()) as of, served(of) as port:
        answer = said(port, GET % (b"/v1/model", b"localhost", OURS.encode()))
        assert status_of(answer) == 200
        assert b"access-control" not in answer.lower()
        assert status_of(said(port, PREFLIGHT % OURS.encode())) == 405


@pytest.mark.parametrize("origin", ["*", "board.example.org", f"{OURS}/", "https://*.example.org"])
def test_an_origin_is_written_out(origin: str) -> None:
    """What no browser sends as an origin is refused when the settings are read."""
    with pytest.raises(ValueError, match="allowed_origins"):
        HttpSettings.model_validate({"allowed_origins": [origin]})
