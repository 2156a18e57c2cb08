"""The daemon: builds the rooms, starts and stops them in their order, and heeds signals.

Start: view · sinks · recent store and corrections · erasure · predictor · HTTP · reporter · kernels
· model (restored from its checkpoint) · learner's first snapshot · reader · loop. The page is there
before what takes long, and says what that is.
Stop, on SIGTERM, SIGINT or a limit: loop · last snapshot and checkpoint · reader, which lets the
source go · reporter · HTTP · predictor · erasure · corrections and recent store · sinks · view.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import structlog
from prometheus_client import CollectorRegistry

from consumers import browser
from consumers.config.settings import Settings
from consumers.errors import ConsumerError
from consumers.factories import (
    Components,
    build_decoder,
    build_erasure,
    build_sink,
    build_source,
    open_components,
    serve,
    stream_identity,
)
from consumers.features import build_model
from consumers.http.server import raise_priority
from consumers.monitoring.health import Health
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Summary
from consumers.monitoring.tracing import traced
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.checkpoint_writer import CheckpointWriter
from consumers.pipeline.erasure import Erasure
from consumers.pipeline.loop import Pipeline
from consumers.pipeline.reader import Limits, Reader
from consumers.reporter import Reporter
from consumers.shutdown_signals import stop_on_signals
from consumers.sinks.base import NoSink, PatientSink, Sink
from consumers.terminal import View
from consumers.warm_up import WarmUp, needed
from streamnb import EveryInterval, Learner, Predictor, SnapshotBoard
from streamnb.errors import PredictorError
from streamnb.inspection.summary import values_dropped

# How long a thread may hold the interpreter's lock while others wait for it. A single prediction
# takes the lock about ten times (on its way to the predictor's thread and back, and after each
# kernel, which works without it); by Python's own 5 ms, one busy thread could cost it 50 ms. At
# 0.5 ms that is 5 ms at the worst, and the more frequent handing over was not to be seen in the
# throughput; below 0.5 ms nothing was won.
SWITCH_INTERVAL_S = 0.0005
_NOTE_INTERVAL_S = 0.2
log = structlog.get_logger(__name__)


def run(
    settings: Settings,
    view: View,
    *,
    until_end: bool = False,
    max_messages: int | None = None,
    open_page: bool = False,
) -> Summary:
    """Learn and judge until told to stop.

    Parameters
    ----------
    settings : Settings
    view : View
        Where the run is watched.
    until_end : bool
        End where the source ended at the start.
    max_messages : int, optional
        End after that many messages.
    open_page : bool
        Open the page in a browser once it answers.

    Returns
    -------
    Summary

    Raises
    ------
    ConsumerError
        Where the run cannot begin or go on; see its subclasses.
    """
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        stack.enter_context(stop_on_signals(stop))
        view.start()
        stack.callback(view.stop)
        stack.enter_context(traced())
        served = _serve(settings, view, stop, stack, until_end=until_end)
        reporter = served.reporter
        if open_page:
            browser.open_page(reporter.http_address)
        reporter.update(force=True)
        reporter.start()
        stack.callback(reporter.stop)
        if not _compiled(settings, served, stop):
            reporter.stop()
            served.reader.close()
            return reporter.summary("told to stop", {})
        pipeline = _build(settings, served, stop)
        reporter.update(force=True)
        stack.enter_context(_attentive())
        try:
            reason = pipeline.run(Limits(until_end, max_messages))
        except Exception:
            try:
                pipeline.finish()
            except ConsumerError as error:
                # What ended the run is what its reader has to know; this comes beside it.
                log.error("checkpoint_failed", detail=str(error))  # noqa: TRY400
            raise
        pipeline.finish()
        reporter.stop()
        reporter.update(force=True)
        return reporter.summary(reason, pipeline.positions)


@contextlib.contextmanager
def _attentive() -> Iterator[None]:
    """Let no thread hold the others up for long."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # What was imported stays, and is left out of garbage collections: with the compiler among it, a
    # full one takes 100 ms, during which nobody answers.
    gc.freeze()
    gc.enable()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before_s)


@dataclass(frozen=True, slots=True)
class _Served:
    """What stands once the page is served; the model and all that teaches it come after."""

    checkpoint: Checkpoint
    metrics: Metrics
    health: Health
    statistics: RunStatistics
    predictions: Sink
    rejects: Sink
    board: SnapshotBoard
    components: Components
    predictor: Predictor
    reader: Reader
    reporter: Reporter
    erasure: Erasure
    watch: Callable[[], None]
    clock: Callable[[], float]


def _serve(
    settings: Settings,
    view: View,
    stop: threading.Event,
    stack: contextlib.ExitStack,
    *,
    until_end: bool,
) -> _Served:
    """Build all that needs no kernel, and serve the page."""
    clock = time.monotonic
    registry = CollectorRegistry()
    checkpoint = Checkpoint(settings.checkpoint, stream_identity(settings), clock)
    stack.enter_context(checkpoint.locked())
    metrics = Metrics(registry, settings.model.classes, clock)
    health = Health(clock, settings.http.stuck_after_s)
    fields = settings.model.fields
    statistics = RunStatistics(settings.model.classes, fields, settings.learning.window, clock)
    source = build_source(settings, until_end=until_end)
    predictions = _waited_for(build_sink(settings.predictions, settings), stop)
    stack.callback(predictions.close)
    rejects = _waited_for(build_sink(settings.rejects, settings), stop)
    stack.callback(rejects.close)
    board = SnapshotBoard()
    components = open_components(settings, statistics, metrics, stack, clock)
    erasure = build_erasure(settings, checkpoint, components, clock)
    stack.callback(erasure.close)
    predictor = Predictor(board, settings.predictor.queue_size_max)
    predictor.start()
    stack.callback(predictor.stop)
    metrics.watch_queue(lambda: predictor.n_waiting, settings.predictor.queue_size_max)
    reader = Reader(source, build_decoder(settings, source), health, stop)
    reporter = Reporter(
        source.name, reader.source_status, board, statistics, health, components.quality, view,
        checkpoint, clock=clock,
    )  # fmt: skip
    metrics.watch(reporter.status)
    reporter.http_address, watch_http = serve(
        settings, components, registry=registry, metrics=metrics, health=health,
        predictor=predictor, status=lambda: reporter.latest, stack=stack,
    )  # fmt: skip

    def watch() -> None:
        reporter.watch()
        watch_http()

    return _Served(
        checkpoint, metrics, health, statistics, predictions, rejects, board, components, predictor,
        reader, reporter, erasure, watch, clock,
    )  # fmt: skip


def _compiled(settings: Settings, served: _Served, stop: threading.Event) -> bool:
    """Compile the kernels that the run needs, or load them; False where it was told to stop."""
    warm_up = WarmUp(needed(settings), served.clock)
    if warm_up.n:
        gc.enable()  # a compiler leaves much behind
        log.warning("compiling", kernels=warm_up.n, detail=warm_up.note)
    warm_up.start()
    while not warm_up.wait(_NOTE_INTERVAL_S):
        served.reporter.note = note = warm_up.note
        if note is not None:
            served.health.set_starting(note)
        if stop.is_set():
            warm_up.cancel()
            return False
    served.reporter.note = None
    return True


def _build(settings: Settings, served: _Served, stop: threading.Event) -> Pipeline:
    """Restore the model, publish its first snapshot, and build the loop around it."""
    components, clock = served.components, served.clock
    model, positions = served.checkpoint.restore(build_model(settings.model))
    served.reporter.resume_from(model.words_dropped, values_dropped(model.state))
    learning = settings.learning
    policy = EveryInterval(learning.publish_interval_s, learning.publish_share_max, clock)
    learner = Learner(model, served.board, policy, clock)
    if settings.http.enabled:
        with contextlib.suppress(PredictorError):  # it is being stopped already
            served.predictor.ask(lambda _snapshot: raise_priority())
    return Pipeline(
        reader=served.reader,
        learner=learner,
        predictor=served.predictor,
        predictions=served.predictions,
        rejects=served.rejects,
        checkpoint=served.checkpoint,
        checkpoint_writer=CheckpointWriter(
            served.checkpoint,
            served.predictor,
            (served.predictions, served.rejects, served.erasure),
            stop,
            after=served.erasure.begin,
        ),
        metrics=served.metrics,
        health=served.health,
        statistics=served.statistics,
        stop=stop,
        watch=served.watch,
        recent=components.recent,
        corrections=None if components.corrections is None else components.corrections.applier,
        erasure=served.erasure,
        positions=positions,
    )


def _waited_for(sink: Sink, stop: threading.Event) -> Sink:
    """Return a sink that the stream waits for; nowhere needs no patience."""
    return sink if isinstance(sink, NoSink) else PatientSink(sink, stop)
