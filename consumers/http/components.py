"""The rooms behind the page and the API: what people look at, and what they hand in.

Built beside the stream's own rooms, and opened and closed in this order: the store of recent
messages · corrections · the watch over quality · standing queries · HTTP. What the settings turn
off is None.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog
from prometheus_client import CollectorRegistry

from consumers.config.settings import Settings
from consumers.corrections import Corrections, build_corrections
from consumers.corrections.journal import Journal
from consumers.erasure import Erasure, Output
from consumers.http.server import HttpServer
from consumers.http.sse import EventTeller
from consumers.http.state import Rooms
from consumers.monitoring.health import Health
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.quality import Quality
from consumers.monitoring.stats import Tally
from consumers.monitoring.status import Status
from consumers.pipeline.checkpoint import Checkpoint
from consumers.search.live_updater import Hub
from consumers.search.store import Recent
from consumers.sinks.records import prediction_without_text, reject_without_bytes
from streamnb import Predictor

RECENT_FILE = "recent.db"
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Shown:
    """What is looked at.

    Attributes
    ----------
    recent : Recent or None
        The newest messages.
    corrections : Corrections or None
        What people say of them, on its way to the learner.
    quality : Quality
        How good the model is, over time.
    """

    recent: Recent | None
    corrections: Corrections | None
    quality: Quality


def open_rooms(
    settings: Settings,
    tally: Tally,
    metrics: Metrics,
    stack: contextlib.ExitStack,
    clock: Callable[[], float] = time.monotonic,
) -> Shown:
    """Open the rooms that the settings ask for; the stack closes them.

    Raises
    ------
    CheckpointError
        Where the journal of corrections cannot be opened.
    """
    page, classes = settings.page, settings.model.classes
    quality = Quality(classes, tally.prequential, metrics, page.share_messages_min, clock=clock)
    recent = _recent(settings, clock)
    if recent is not None:
        recent.start()
        metrics.recent.watch(recent.state)
        stack.callback(recent.stop)
    corrections = build_corrections(settings, recent, metrics, clock)
    if corrections is not None:
        stack.callback(corrections.log.close)
    return Shown(recent, corrections, quality)


def build_erasure(
    settings: Settings,
    checkpoint: Checkpoint,
    shown: Shown,
    clock: Callable[[], float] = time.monotonic,
) -> Erasure:
    """Return what takes the texts of deleted messages out of the state folder's files.

    Raises
    ------
    SinkError
        If what a run before has left to do cannot be read.
    """
    outputs = [
        Output(address.path, taken)
        for address, taken in (
            (settings.predictions.address, prediction_without_text),
            (settings.rejects.address, reject_without_bytes),
        )
        if address.path is not None
    ]
    journal = None if shown.corrections is None else shown.corrections.log
    return Erasure(
        settings.checkpoint.folder,
        checkpoint.applied,
        journal if isinstance(journal, Journal) else None,
        outputs,
        shown.recent,
        clock,
    )


def _recent(settings: Settings, clock: Callable[[], float]) -> Recent | None:
    """Return the store of recent messages, where it is wanted and somebody can ask it."""
    if not (settings.recent.enabled and settings.http.enabled):
        return None
    folder = settings.checkpoint.folder
    return Recent(
        settings.recent,
        None if folder is None else folder / RECENT_FILE,
        settings.model.classes,
        settings.model.fields,
        settings.page.unsure_below,
        clock=clock,
        times_made_up=settings.source_address.kind == "generator",
    )


def serve(
    settings: Settings,
    shown: Shown,
    *,
    registry: CollectorRegistry,
    metrics: Metrics,
    health: Health,
    predictor: Predictor,
    status: Callable[[], Status],
    stack: contextlib.ExitStack,
) -> tuple[str | None, Callable[[], None]]:
    """Serve page, API and metrics, where they are wanted; the stack ends it.

    Returns
    -------
    address : str or None
        The page's.
    watch : callable
        Raises what ended the serving thread, where something did.

    Raises
    ------
    ConfigError
        Where the address cannot be had.
    """
    if not settings.http.enabled:
        return None, lambda: None
    if shown.recent is not None:
        health.watch_part(shown.recent.trouble)
    rooms = Rooms(
        settings=settings,
        registry=registry,
        metrics=metrics,
        health=health,
        predictor=predictor,
        status=status,
        recent=shown.recent,
        desk=None if shown.corrections is None else shown.corrections.desk,
        quality=shown.quality,
    )
    hub = None
    if shown.recent is not None:
        hub = Hub(shown.recent, EventTeller(rooms), metrics)
        health.watch_part(hub.trouble)
        hub.start()
        rooms = replace(rooms, hub=hub)
    server = HttpServer(settings.http, rooms)
    port = server.start()
    stack.callback(server.stop)
    if hub is not None:
        stack.callback(hub.stop)  # first: streams that go on would hold the server up
    host = settings.http.host
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    log.info("serving", address=address)
    return address, server.watch
