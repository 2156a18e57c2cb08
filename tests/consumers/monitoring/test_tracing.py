"""Traces: off unless asked for; then of requests and checkpoints, sent by OpenTelemetry's own."""

from __future__ import annotations

import asyncio
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from starlette.types import Message, Receive, Scope, Send

from consumers.monitoring import logs
from tests.endtoend.daemon_process import Daemon

CALLER = "4bf92f3577b34da6a3ce929d0e0e4736"


async def quiet(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer nothing: an application that only stands for one."""


class Collector(http.server.ThreadingHTTPServer):
    """What receives spans, as a collector would; on loopback."""

    def __init__(self) -> None:
        self.received: list[ExportTraceServiceRequest] = []
        super().__init__(("127.0.0.1", 0), _Receive)

    def names(self) -> dict[str, str]:
        """Return the trace of each span that came, by the span's name."""
        return {
            span.name: span.trace_id.hex()
            for request in self.received
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        }


class _Receive(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        """Take in a batch of spans."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep still."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Return a collector that listens."""
    with Collector() as served:
        thread = threading.Thread(target=served.serve_forever, args=(0.05,))
        thread.start()
        yield served
        served.shutdown()
        thread.join()


@pytest.mark.deep
@pytest.mark.slow
def test_a_daemon_sends_its_requests_and_checkpoints(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans reach the collector by the time the daemon has ended, within the caller's own trace."""
    address = f"http://127.0.0.1:{collector.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    config = tmp_path / "config.yaml"
    config.write_text("checkpoint: {folder: state}\nhttp: {port: 0}\nview: log\n", "utf-8")
    with Daemon(config) as daemon:
        daemon.until_page("/readyz", 200)
        page = daemon.until_line("serving")["address"]
        asked = {"traceparent": f"00-{CALLER}-00f067aa0ba902b7-01"}
        answer = httpx.post(
            f"{page}/v1/predict", json={"text": "so good"}, headers=asked, timeout=60.0
        )
        answer.raise_for_status()
        assert daemon.stop() == 0
    found = collector.names()
    assert found["POST /v1/predict"] == CALLER
    assert {"checkpoint", "GET /readyz"} <= found.keys()


def test_nobody_asks_and_nothing_is_traced() -> None:
    """Without OpenTelemetry's variables the application is the very same one."""
    with logs.traced({}), logs.span("checkpoint"):
        assert logs.traced_app(quiet) is quiet


def test_what_is_not_installed_is_said_and_nothing_is_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the extra is missing the daemon runs on as without traces."""
    monkeypatch.setattr(logs, "EXPORTER", "opentelemetry.absent.exporter")
    with logs.traced({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}):
        assert logs.traced_app(quiet) is quiet


def test_a_checkpoint_that_fails_is_an_error_in_its_trace() -> None:
    """The span ends with what was raised, and the error goes on."""
    spans = InMemorySpanExporter()
    with (
        logs.traced_by(SimpleSpanProcessor(spans)),
        pytest.raises(OSError, match="disk full"),
        logs.span("checkpoint"),
    ):
        raise OSError("disk full")
    (ended,) = spans.get_finished_spans()
    assert (ended.name, ended.status.status_code) == ("checkpoint", StatusCode.ERROR)
    assert ended.resource.attributes["service.name"] == "streamnb"


@pytest.mark.parametrize("path", ["/v1/messages/what a person wrote"])
def test_no_span_names_what_a_person_wrote(path: str) -> None:
    """A request that met no route of ours is named by its method alone."""
    spans = InMemorySpanExporter()

    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})

    async def ask() -> None:
        async def send(_: Message) -> None:
            """Take the answer."""

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        scope: Scope = {"type": "http", "method": "GET", "path": path, "headers": []}
        await logs.traced_app(answer)(scope, receive, send)

    with logs.traced_by(SimpleSpanProcessor(spans)):
        asyncio.run(ask())
    (ended,) = spans.get_finished_spans()
    assert ended.name == "GET"
    assert ended.attributes is not None
    assert dict(ended.attributes) == {
        "http.request.method": "GET",
        "http.response.status_code": 404,
    }
