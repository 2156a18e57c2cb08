"""OpenTelemetry traces, where they are asked for: of requests and checkpoints, never of messages.

They are off, and cost nothing, unless the environment names a place to send them to, by
OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, or that of traces alone), and the extra
`streamnb[tracing]` is installed. All other settings are theirs too: OTEL_SERVICE_NAME,
OTEL_TRACES_SAMPLER, OTEL_SDK_DISABLED. Spans are sent by a thread of the exporter; one that cannot
be sent is dropped, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Tracer
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER = "opentelemetry.exporter.otlp.proto.http"
_tracer: Tracer | None = None
log = structlog.get_logger(__name__)


@contextlib.contextmanager
def traced(environ: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Trace while this lasts, if the environment asks for it; then send what waits."""
    endpoint = next((environ[name] for name in ENDPOINTS if environ.get(name)), None)
    if endpoint is not None and not _is_installed():
        endpoint = None
        log.warning(
            "no_tracing",
            detail="traces are asked for by OTEL_*, and their packages are not installed: "
            "pip install 'streamnb[tracing]'",
        )
    if endpoint is None:
        yield
        return
    from opentelemetry.exporter.otlp.proto.http import trace_exporter  # noqa: PLC0415 -- the extra's
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 -- as above

    with traced_by(BatchSpanProcessor(trace_exporter.OTLPSpanExporter())):
        log.info("tracing", to=endpoint)
        yield


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec(EXPORTER) is not None
    except ModuleNotFoundError:  # not even the packages around it
        return False


@contextlib.contextmanager
def traced_by(processor: SpanProcessor) -> Iterator[None]:
    """Hand every span to a processor while this lasts."""
    global _tracer  # noqa: PLW0603 -- one process has one place to send spans to
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 -- the extra's
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 -- as above

    name = os.environ.get("OTEL_SERVICE_NAME") or "streamnb"
    resource = Resource.create({"service.name": name})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    _tracer = provider.get_tracer("streamnb")
    try:
        yield
    finally:
        _tracer = None
        provider.shutdown()


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Trace what is done within; without a place to send traces to, do nothing."""
    if _tracer is None:
        yield
        return
    with _tracer.start_as_current_span(name):
        yield


def traced_app(app: ASGIApp) -> ASGIApp:
    """Return an application whose requests are traced; without tracing, the same one."""
    return app if _tracer is None else _TracedApp(app, _tracer)


class _TracedApp:
    """Makes a span of each request, below the caller's own if its headers name one."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, and note method, route and status."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        from opentelemetry.propagate import extract  # noqa: PLC0415 -- the extra's
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 -- as above

        headers = {
            each.decode("latin-1"): text.decode("latin-1") for each, text in scope["headers"]
        }
        method = scope["method"]
        with self._tracer.start_as_current_span(
            method, extract(headers), SpanKind.SERVER, {"http.request.method": method}
        ) as current:

            async def note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    current.set_attribute("http.response.status_code", message["status"])
                await send(message)

            await self._app(scope, receive, note)
            # The template, never the path: a path may hold what a person wrote.
            route = getattr(scope.get("route"), "path", None)
            if route is not None:
                current.set_attribute("http.route", route)
                current.update_name(f"{method} {route}")
