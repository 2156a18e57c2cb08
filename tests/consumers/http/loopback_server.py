"""A real server on loopback around real components, and a client that may say anything at all."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from consumers.config.settings import Settings
from consumers.features import build_model
from consumers.http.server import HttpServer
from consumers.http.state import AppState
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.quality import Quality
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Health, Status
from consumers.reporter import build_status
from streamnb import EveryExamples, Learner, NaiveBayes, Predictor, SnapshotBoard

PATIENCE_S = 30.0
TEXTS = ["a good day", "what a bad day", "lovely weather", "awful weather"]
LABELS = ["positive", "negative", "positive", "negative"]


def settings(**sections: Any) -> Settings:
    """Return settings with nothing on disk and any free port."""
    http = {"port": 0} | sections.pop("http", {})
    return Settings.model_validate({"checkpoint": {"folder": None}, "http": http, **sections})


def taught(of: Settings) -> NaiveBayes:
    """Return the settings' model, which has learned a few texts."""
    model = build_model(of.model)
    model.learn_many({"text": TEXTS * 3}, LABELS * 3)
    return model


@contextlib.contextmanager
def app_state(
    of: Settings,
    model: NaiveBayes | None = None,
    clock: Callable[[], float] = time.monotonic,
    health: Health | None = None,
    board: SnapshotBoard | None = None,
) -> Iterator[AppState]:
    """Yield application state around a model whose predictor runs, without a store."""
    registry = CollectorRegistry()
    metrics = Metrics(registry, of.model.classes, clock)
    board = board or SnapshotBoard()
    Learner(model or taught(of), board, EveryExamples(1_000_000), clock).publish()
    predictor = Predictor(board)
    predictor.start()
    statistics = RunStatistics(of.model.classes, of.model.fields, 100, clock)
    page = of.page
    quality = Quality(
        of.model.classes, statistics.prequential, page.share_messages_min, names=page.class_names
    )
    watched = health or Health(lambda: 0.0, of.http.stuck_after_s)  # as nobody beats here

    def status() -> Status:
        made = build_status("test", statistics, quality, board.current())
        return replace(made, health=watched.report())

    try:
        yield AppState(
            settings=of,
            registry=registry,
            metrics=metrics,
            predictor=predictor,
            status=status,
            shares=quality.shares,
            judged=quality.judged,
        )
    finally:
        predictor.stop()


@contextlib.contextmanager
def served(of: AppState, **changed: Any) -> Iterator[int]:
    """Serve the application; yield the port."""
    server = HttpServer(of.settings.http, replace(of, **changed))
    port = server.start()
    try:
        yield port
    finally:
        ended(server)


def ended(server: HttpServer) -> None:
    """Stop a server, and wait for its thread, which may outlive the wait of `stop`."""
    server.stop()
    if server._thread is not None:
        server._thread.join(PATIENCE_S)
        assert not server._thread.is_alive()


def connected(port: int) -> socket.socket:
    """Return a connection."""
    return socket.create_connection(("127.0.0.1", port), PATIENCE_S)


def until_end(connection: socket.socket) -> bytes:
    """Return all that comes until the server has no more to say; a reset is an end as well."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            found += part
    return found


def said(port: int, request: bytes, *, then_end: bool = True) -> bytes:
    """Return what comes back for these bytes, until the server closes the connection."""
    with connected(port) as connection:
        # A server that has answered and closed before all was sent refuses the rest; what it said
        # can be read. Its reset ends the connection, and then there is none to shut down.
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
            if then_end:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_WR)
        return until_end(connection)


def status_of(answer: bytes) -> int:
    """Return the status of an answer as it came."""
    assert answer.startswith(b"HTTP/1.1 "), answer[:200]
    return int(answer.split(b" ", 2)[1])
