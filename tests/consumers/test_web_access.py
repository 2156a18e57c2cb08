"""Who may change something: this machine's own on loopback, whoever has the token elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from starlette.requests import Request

from consumers.config import HttpSettings
from consumers.web.access import check_change, is_loopback, is_open, needs_token
from consumers.web.problems import ProblemError, way_to_corrections
from tests.consumers.serving import rooms, served, settings

TOKEN = "correct horse battery"
LABEL = {"id": "7", "label": "positive"}


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


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """Yield a client of a server that asks for a token, without a desk behind it."""
    with (
        rooms(settings(http={"token": TOKEN})) as made,
        served(made) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http,
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


def test_the_way_to_corrections_is_the_setting_that_lacks() -> None:
    """Where there is no journal the reason names the log, or the folder that it would be in."""
    assert way_to_corrections(settings(corrections={"to": "none"})) == "corrections.to: journal"
    assert way_to_corrections(settings()).startswith("checkpoint.folder")


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
