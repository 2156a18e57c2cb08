"""Logs and traces: of each log line one JSON object for machines, or colours for a person.

Our own lines come by structlog, those of libraries (kafka-python, uvicorn) by the standard
library's logging; both leave by the same door and look alike. Everything goes to one stream, by
default standard error: standard output belongs to what a command was asked for.

OpenTelemetry traces, where they are asked for, are of requests and checkpoints, never of messages.
They are off, and cost nothing, unless the environment names a place to send them to, by
OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, or that of traces alone), and the extra
`streamnb[tracing]` is installed. All other settings are theirs too: OTEL_SERVICE_NAME,
OTEL_TRACES_SAMPLER, OTEL_SDK_DISABLED. Spans are sent by a thread of the exporter; one that cannot
be sent is dropped, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TextIO

import structlog

from consumers.process import logs_are_set_up, watch_cache

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.trace import Tracer
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

# While a broker is away kafka-python tells every attempt at ERROR, two lines a second; we tell it
# once, as the source's trouble.
_LIBRARIES = {"kafka": logging.CRITICAL, "uvicorn": logging.WARNING, "numba": logging.WARNING}

HELD_LINES_MAX = 200


class LogStream(Protocol):
    """What logs are written to: a text file, or `HeldLines`."""

    def write(self, text: str, /) -> int:
        """Take text."""

    def flush(self) -> None:
        """Pass it on."""

    def isatty(self) -> bool:
        """Return whether a person reads it."""


class LogHandler(logging.StreamHandler[LogStream]):
    """Writes log lines, and notes what keeps them from being written: nothing may end by that."""

    trouble: str | None = None
    _failed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self._failed = False
        super().emit(record)
        if not self._failed:
            self.trouble = None

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- logging's name
        """Note why a line was not written."""
        error = sys.exc_info()[1]
        if getattr(self.stream, "closed", False):
            why = "what they go to is closed"
        elif isinstance(error, OSError):
            why = error.strerror or str(error)
        else:
            super().handleError(record)
            return
        self._failed = True
        self.trouble = f"log lines are lost: they cannot be written ({why})"


def trouble() -> str | None:
    """Return why log lines are lost, if the newest one was."""
    handlers = logging.getLogger().handlers
    return next((each.trouble for each in handlers if isinstance(each, LogHandler)), None)


def configure(stream: LogStream | None = None, *, json: bool | None = None) -> None:
    """Send all logs to `stream`, by default standard error.

    They are JSON lines or coloured ones; without `json`, JSON unless the stream is a terminal.
    """
    out: LogStream = sys.stderr if stream is None else stream
    as_json = not out.isatty() if json is None else json
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    ending: list[structlog.typing.Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta
    ]
    if as_json:
        ending += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(ensure_ascii=False, default=str),
        ]
    else:
        # Its own choice would show local variables, so passwords, wherever `rich` is installed.
        plain = structlog.dev.plain_traceback
        ending.append(structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=plain))
    handler = LogHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=ending)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    for name, level in _LIBRARIES.items():
        logging.getLogger(name).setLevel(level)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    logs_are_set_up()


class HeldLines:
    """A stream that keeps log lines back while the live view owns the screen.

    It keeps the newest `HELD_LINES_MAX`; older ones are counted, and told of at the release.
    """

    def __init__(self, terminal: TextIO) -> None:
        self._terminal = terminal
        self._lines: deque[str] = deque(maxlen=HELD_LINES_MAX)
        watch_cache("log_lines", self._fill)
        self._n_dropped = 0

    def write(self, text: str) -> int:
        """Keep `text` back."""
        self._n_dropped += len(self._lines) == self._lines.maxlen
        self._lines.append(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing: lines leave by `release`."""

    def _fill(self) -> tuple[int, int]:
        return len(self._lines), HELD_LINES_MAX

    def isatty(self) -> bool:
        """Return whether the lines will be read at a terminal."""
        return self._terminal.isatty()

    def release(self) -> None:
        """Write out what was kept back; a terminal that hung up gets nothing."""
        with contextlib.suppress(OSError):
            if self._n_dropped:
                self._terminal.write(f"({self._n_dropped} older log lines were dropped)\n")
            while self._lines:
                self._terminal.write(self._lines.popleft())
            self._n_dropped = 0
            self._terminal.flush()


# ---- traces --------------------------------------------------------------------------------------

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
