"""Send a daemon requests that nobody means, and look how it fares."""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from starlette.routing import Mount

from consumers.http.app import make_app
from consumers.http.openapi import ApiRoute
from tests.campaigns.campaign import Run
from tests.consumers.http.api_daemon import reading_daemon
from tests.consumers.http.loopback_server import app_state, settings
from tests.endtoend.daemon_process import Daemon

_A_STEP = 100
_PATIENCE_S = 30.0
_GROWTH_MB_MAX = 64  # of resident memory after the first tenth; words that are taught take some
_STATUSES = {200, 202, 304, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 429, 431, 501, 503}
_ODD_PATHS = (
    "/v1/messages/", "/static/../config.yaml", "/%2e%2e/%2e%2e/etc/passwd", "/v1/messages/%ff",
    "/v1/messages/%00", "//", "*", "http://[::1]/", "/" + "a" * 2_000,
)  # fmt: skip
_METHODS = (*["GET"] * 3, *["POST"] * 3, "DELETE", "HEAD", "PUT", "OPTIONS", "TRACE", "get")
_OFTEN = (
    *[("GET", "/v1/search")] * 5, *[("GET", "/v1/summary")] * 3, *[("POST", "/v1/predict")] * 8,
    *[("POST", "/v1/labels")] * 4, ("DELETE", "/v1/messages/none"),
)  # fmt: skip
_MESSAGES, _FILE = {"GET": "t1", "DELETE": "t2"}, "main.js"
_QUERIES = (
    "", "", "", "q=obama", "q=%22", "q=a+-a+OR+NEAR%28", "q=" + "a*+" * 150, "limit=200",
    "limit=99999999999999999999", "limit=-1", "before=9223372036854775807", "before=%00", "q=%ff",
    "q=a&q=b", "q=a&from=1&to=5&from=5&to=9", "lang=en", "lang=" + "x" * 40, "x=1",
    "&".join(["q=a"] * 70), "%", "q=" + "(" * 400,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1 << 70, 1e308, "", "a good day", "a\0b", "\ud800", "a " * 5_000, [], {},
    ["a"] * 500, [[]], [{}], {"text": "a"}, [{"text": "a"}] * 20, {"a": {"b": None}}, "positive",
    "t5",
)  # fmt: skip
_KEYS = ("text", "texts", "message", "messages", "explain", "interval", "id", "label", "x")
_HEADERS = (
    "Host: localhost", "Host: localhost", "Host: evil.example", "Host: ", "Host: [::1]:99999999",
    "Content-Type: application/json", "Content-Type: application/json", "Content-Type: text/plain",
    "Content-Encoding: gzip", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked",
    "Content-Length: 5", "Content-Length: -1", "Content-Length: 99999999999",
    "Expect: 100-continue",
    "Upgrade: websocket", "Connection: Upgrade", "Connection: close", "Range: bytes=5-1",
    "If-None-Match: *", "Authorization: Bearer x", "Origin: null", "X-Forwarded-For: 10.0.0.1",
    "Accept: " + "a/b," * 200, "Cookie: " + "c" * 9_000, "X: " + "\x7f\t\x0b",
)  # fmt: skip


def odd_requests(run: Run) -> None:
    """Any request is answered as the API describes, or let go, and the daemon is well after it."""
    with (
        TemporaryDirectory(prefix="odd-requests-") as home,
        reading_daemon(Path(home), snapshots=True) as daemon,
    ):
        port = urlsplit(daemon.address).port or 0
        first_mb = 0.0
        known = routes()
        for method, path in known:
            status = _checked(_said(port, _plain(method, path)), path.encode())
            assert status not in {0, 404, 405}, (method, path, status)
        for i, (chance, _) in enumerate(run.steps()):
            for _ in range(_A_STEP):
                sent = _odd(chance, known)
                answer = _said(port, sent)
                run.figures["requests"] += 1
                status = _checked(answer, sent)
                run.figures[f"answered {status // 100}xx" if status else "let go"] += 1
            assert daemon.listen(0), daemon.lines[-5:]
            assert daemon.get("/readyz")[0] == 200
            if i == run.n // 10:
                first_mb = _resident_mb(daemon)
        growth_mb = round(_resident_mb(daemon) - first_mb)
        run.figures["MB of growth"] = growth_mb
        assert growth_mb <= _GROWTH_MB_MAX
        assert unasked(daemon.get("/metrics")[1]) == set()
        run.figures["routes"] = len(known)
        worst = {line["level"] for line in daemon.lines if "level" in line}
        assert worst <= {"info", "warning"}, [x for x in daemon.lines if x.get("level") == "error"]


def _served() -> list[tuple[str, str]]:
    """Return method and path, with its parameters, of each route that the application has."""
    with app_state(settings()) as state:
        found = make_app(state).routes
    listed = []
    for route in found:
        assert isinstance(route, ApiRoute | Mount), route
        methods = {"GET"} if isinstance(route, Mount) else route.methods or set()
        listed += [(method, route.path.replace(":path}", "}")) for method in sorted(methods)]
    return listed


def routes() -> list[tuple[str, str]]:
    """Return method and path of a question to each route that the application has."""
    found = []
    for method, path in _served():
        asked = re.sub(r"\{[^}]+\}", _MESSAGES.get(method, ""), path)
        found.append((method, f"{path}/{_FILE}" if path == "/page" else asked))
    return found


def unasked(metrics: str) -> set[tuple[str, str]]:
    """Return which routes the metrics of a daemon do not count."""
    counted = re.findall(r"^streamnb_http_requests_total\{(.*)\} ", metrics, re.MULTILINE)
    found = [dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in counted]
    return set(_served()) - {(each["method"], each["route"]) for each in found}


def _plain(method: str, path: str) -> bytes:
    body = b'{"id":"t2","label":"positive"}' if path == "/v1/labels" else b'{"text":"a good day"}'
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
    if method != "POST":
        return f"{head}\r\n".encode()
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _odd(chance: random.Random, known: list[tuple[str, str]]) -> bytes:
    """Return one or several requests, whole or damaged."""
    data = b"".join(request(chance, known) for _ in range(chance.choice((1, 1, 1, 1, 2, 5))))
    if chance.random() < 0.7:
        return data
    changed = bytearray(data)
    for _ in range(chance.choice((1, 2, 10))):
        begin = chance.randrange(len(changed) or 1)
        end = begin + chance.choice((1, 1, 4, 50))
        piece = changed[begin:end]
        changed[begin:end] = chance.choice((b"", piece * 3, chance.randbytes(len(piece)), b"\r\n"))
    return bytes(changed)


def request(chance: random.Random, known: list[tuple[str, str]]) -> bytes:
    """Return a request: half of them nearly right, the parts of the others need not fit."""
    nearly = chance.random() < 0.5
    method, path = chance.choice(_OFTEN if chance.random() < 0.5 else known)
    if not nearly:
        method = chance.choice(_METHODS)
        path = chance.choice(_ODD_PATHS if chance.random() < 0.5 else [each for _, each in known])
    body = _body(chance) if method == "POST" or not nearly else b""
    has_query = not nearly or path in {"/v1/search", "/v1/summary"} or chance.random() < 0.3
    query = chance.choice(_QUERIES) if has_query else ""
    headers = ["Host: localhost", "Content-Type: application/json"]
    if not nearly or chance.random() < 0.1:
        headers += chance.choices(_HEADERS, k=chance.choice((1, 2, 5, 30)))
        del headers[: chance.choice((0, 1, 2))]
    if body and (nearly or chance.random() < 0.9):
        headers.append(f"Content-Length: {len(body)}")
    target = f"{path}?{query}" if query else path
    head = "\r\n".join([f"{method} {target} HTTP/1.1", *headers, "", ""])
    return head.encode("latin-1", "replace") + body


def _body(chance: random.Random) -> bytes:
    """Return JSON of the fields that the API knows, with any values; or what is no JSON."""
    keys = chance.sample(_KEYS, chance.choice((0, 1, 1, 1, 2, 3)))
    fields = {key: chance.choice(_VALUES) for key in keys}
    if chance.random() < 0.3:
        fields = {"id": f"t{chance.randrange(60)}", "label": chance.choice(("negative", "x", 7))}
    body = json.dumps(fields).encode()
    if chance.random() < 0.8:
        return body
    deep = b"[" * 100_000, b'{"text":' * 5_000, b'{"message":' + b"[" * 9_000
    return chance.choice((body[:-1], b"\xff", b"", *deep))


def _said(port: int, sent: bytes) -> bytes:
    """Return what comes back until the end; of a stream of events its beginning."""
    found = b""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(("127.0.0.1", port), _PATIENCE_S) as connection,
    ):
        with contextlib.suppress(OSError):  # it was let go; a time-out comes again below
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        while b"text/event-stream" not in found and (part := connection.recv(1 << 16)):
            found += part
    return found


def _checked(answer: bytes, sent: bytes) -> int:
    """Return the status of an answer, which is none of our own mistakes; 0 if there is none."""
    answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    if not answer:
        return 0
    assert answer.startswith(b"HTTP/1.1 "), (sent[:2_000], answer[:200])
    status = int(answer[9:12])
    assert status in _STATUSES, (sent[:2_000], answer[:500])
    assert b"Traceback" not in answer
    return status


def _resident_mb(daemon: Daemon) -> float:
    return daemon.metric("process_resident_memory_bytes") / 1e6
