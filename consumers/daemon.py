"""The daemon: builds its components, starts and stops them in order.

Start; the page answers before the slow steps (5 and 6) and shows what they are doing:

1. view, so that whatever follows is seen
2. lock of the state folder; sinks; store of recent messages; corrections; erasure
3. predictor, HTTP server
4. reporter
5. kernels: compiled, or loaded from their cache
6. model: restored from its checkpoint, and published as the first snapshot
7. reader of the source, and the loop

Stop, on a signal or a limit: the loop ends and writes a last snapshot and checkpoint, the
reader closes the source, and then 4 to 1 stop in the reverse order.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Mapping, Sequence

import structlog
from prometheus_client import CollectorRegistry

from consumers.config.addresses import OutputSettings, StreamRange
from consumers.config.model import MODEL
from consumers.config.settings import Settings
from consumers.errors import CheckpointError, ConsumerError, MismatchError
from consumers.factories import (
    build_decoder,
    build_erasure,
    build_group,
    build_late_labels,
    build_memory,
    build_sink,
    build_source,
    build_transactions,
    check_end,
    known_classes,
    open_components,
    serve,
)
from consumers.features import (
    DecayTimes,
    SavedConfidence,
    build_confidence,
    build_model,
    hash_key_of,
    judged_kinds,
)
from consumers.http import server
from consumers.http.server import raise_priority
from consumers.messages import Checkpointed, Partition, part_name
from consumers.monitoring import logs
from consumers.monitoring.logs import traced
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.prequential import DriftWatch
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Health, Summary
from consumers.pipeline.challengers import Challengers
from consumers.pipeline.checkpoint import Checkpoint, warn_of_left_topics
from consumers.pipeline.checkpoint_writer import CheckpointWriter, KnownLogs, Publishing
from consumers.pipeline.loop import Pipeline
from consumers.pipeline.own_models import OwnModels
from consumers.pipeline.part_files import as_stored
from consumers.pipeline.reader import LabelReader, Limits, Reader
from consumers.pipeline.revision import Reviser
from consumers.process import keep_freed_memory, short_pauses
from consumers.reporter import Reporter
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import SHORT_FROM_BYTES, NoSink, PatientSink, Sink
from consumers.sources.base import LogFacts
from consumers.sources.recording import stream_identity
from consumers.terminal import View
from consumers.warm_up import WarmUp, needed
from streamnb import Confidence, NaiveBayes, Predictor, SnapshotBoard
from streamnb.errors import PredictorError
from streamnb.inspection.summary import values_dropped
from streamnb.state import ModelState

_NOTE_INTERVAL_S = 0.2
_RECENT_TIMEOUT_S = 5.0  # for which a checkpoint waits for the store of recent messages
log = structlog.get_logger(__name__)


def run(
    settings: Settings,
    view: View,
    stop: threading.Event | None = None,
    *,
    until_end: bool = False,
    max_messages: int | None = None,
    open_page: bool = False,
    part: StreamRange | None = None,
) -> Summary:
    """Learn and predict until the source ends, a limit is reached, or `stop` is set.

    With `until_end` it stops where the source ended at the start; with a `part` that has an end, at
    that. `open_page` opens the page in a browser once it answers. A `ConsumerError` says why the
    run cannot begin or go on.
    """
    stop = stop or threading.Event()
    if until_end and max_messages is None and (part is None or part.end is None):
        check_end(settings)
    keep_freed_memory()
    with contextlib.ExitStack() as stack:
        view.start()
        stack.callback(view.stop)
        stack.enter_context(traced())
        until_end = until_end or (part is not None and part.end is not None)
        daemon = Daemon(settings, view, stop, stack, until_end=until_end, part=part)
        reporter = daemon.reporter
        if open_page:
            server.open_page(reporter.http_address)
        reporter.update(force=True)
        reporter.start()
        stack.callback(reporter.stop)
        if not daemon.compile_kernels(stack):
            reporter.stop()
            daemon.reader.close()
            return reporter.summary("told to stop", {})
        pipeline = daemon.build_pipeline()
        reporter.update(force=True)
        stack.enter_context(short_pauses())
        try:
            reason = pipeline.run(Limits(until_end, max_messages))
        except Exception:
            try:
                pipeline.finish()
            except ConsumerError as error:
                # The error that ended the run is raised; this one is logged beside it.
                log.error("checkpoint_failed", detail=str(error))  # noqa: TRY400
            raise
        try:
            pipeline.finish()
        except CheckpointError:
            daemon.watch()  # what ended another thread says more
            raise
        daemon.watch()
        reporter.stop()
        reporter.update(force=True)
        return reporter.summary(reason, pipeline.positions)


class Daemon:
    """The components of a run: built up to the served page, then the loop around the model.

    `stack` stops what this starts, in the reverse order; `stop` ends the run once it is set. With
    `until_end` the source is read only up to where it ended at the start.
    """

    _is_lack_told = False  # of a folder that the group does not share

    def __init__(
        self,
        settings: Settings,
        view: View,
        stop: threading.Event,
        stack: contextlib.ExitStack,
        *,
        until_end: bool,
        part: StreamRange | None = None,
    ) -> None:
        self._stop, self._clock, self._is_page_late = stop, time.monotonic, False
        registry = CollectorRegistry()
        self._checkpoint = Checkpoint(settings.checkpoint, stream_identity(settings), self._clock)
        stack.enter_context(self._checkpoint.locked())
        settings = self._settings = as_stored(settings)
        # Where classes may join, the store of recent messages has to know those of the model, which
        # an older file than the newest may be the last to hold whole. It is read now, not later.
        self._restored = self._restore() if settings.model.new_classes else None
        classes = self._classes = known_classes(settings, self._restored and self._restored[0])
        self._metrics = Metrics(registry, classes, self._clock)
        self._health = Health(self._clock, settings.http.stuck_after_s)
        self._health.watch_part(logs.trouble)
        self._statistics = RunStatistics(
            classes, tuple(judged_kinds(settings)), settings.learning.window, self._clock
        )
        source = build_source(settings, until_end=until_end, part=part)
        self._files: list[JsonLinesSink] = []
        self._transactions = build_transactions(settings, self._metrics)
        if self._transactions is not None:
            self._health.watch_part(self._transactions.trouble)
            stack.callback(self._transactions.close)
        self._predictions = self._open_sink(settings.predictions, "predictions", stack)
        self._rejects = self._open_sink(settings.rejects, "rejects", stack)
        if self._transactions is not None:
            self._transactions.start()
        self._components = open_components(
            settings, classes, self._statistics, self._metrics, stack, self._clock,
            self._checkpoint.is_moved,
        )  # fmt: skip
        self._learned = build_memory(settings, self._checkpoint, stack, self._health.progress)
        self._erasure = build_erasure(
            settings, self._checkpoint, self._components, stack, self._clock, self._learned,
            self._files,
        )  # fmt: skip
        self._board = SnapshotBoard()
        self._predictor = predictor = Predictor(self._board, settings.predictor.queue_size_max)
        predictor.start()
        stack.callback(predictor.stop)
        self._metrics.watch_queue(lambda: predictor.n_waiting, settings.predictor.queue_size_max)
        half_life_s = settings.model.half_life_s
        self._decay = None if half_life_s is None else DecayTimes(half_life_s)
        group = self._group = build_group(settings, self._learned, source)
        if group is not None:
            group.times = self._decay
        self._health.watch_part(self._group_trouble)
        decoder = build_decoder(settings, source, classes)
        self.reader = reader = Reader(source, decoder, self._health, stop, group=group)
        self._metrics.watch_backlog(lambda: reader.n_ahead, lambda: self._erasure.n_pending)
        self._labels = self._build_labels(until_end=until_end)
        self.reporter = Reporter(
            source.name, self.reader.source_status, self._board, self._statistics, self._health,
            self._components.quality, view, self._checkpoint, group=group, clock=self._clock,
            stop_timeout_s=settings.shutdown_timeout_s / 4,
        )  # fmt: skip
        self._metrics.watch(self.reporter.status)
        self.reporter.http_address, self._watch_http = serve(
            settings, self._components, registry=registry, metrics=self._metrics, stack=stack,
            health=self._health, predictor=predictor, status=self.reporter.status,
        )  # fmt: skip

    def _restore(self) -> tuple[NaiveBayes, dict[Partition, int]]:
        """Return the saved model, or an untrained one, and the positions of its stream."""
        fresh = {name: build_model(each) for name, each in self._settings.models.items()}
        model, positions = self._checkpoint.restore(fresh.pop(MODEL), fresh)
        key = hash_key_of(self._settings.model)
        if key not in {None, model.state.hash_key}:
            raise MismatchError(
                f"{self._checkpoint.path} has another key than model.hash_key. Put that key back, "
                "leave it out to go on with the checkpoint's, or name another checkpoint.folder to "
                "start from nothing."
            )
        warn_of_left_topics(self._settings, positions)
        return model, positions

    def _open_sink(self, output: OutputSettings, name: str, stack: contextlib.ExitStack) -> Sink:
        """Return a sink that the stream waits for, or the one that writes nothing."""
        sink = build_sink(output, self._settings, name, self._transactions)
        if isinstance(sink, JsonLinesSink) and sink.is_file:
            self._files.append(sink)
        if not isinstance(sink, NoSink):
            sink = PatientSink(sink, self._stop)
        self._metrics.watch_output(name, lambda: sink.n_pending_bytes, lambda: sink.n_refused)
        stack.callback(sink.close)
        return sink

    def _build_labels(self, *, until_end: bool) -> LabelReader | None:
        """Return what reads labels that come later than their messages, if the settings ask."""
        if self._learned is None:
            return None
        found = build_late_labels(
            self._settings, self.reader, self._learned, self._statistics, self._health, self._stop,
            self._classes, until_end=until_end,
        )  # fmt: skip
        if self._group is not None and found is not None:
            self._group.times = found.join
        return found

    def watch(self) -> None:
        """Raise what ended the reporter's or the server's thread, or what no waiting mends."""
        self._checkpoint.check_place()
        if self._transactions is not None:
            self._transactions.watch()
        if self._group is not None:
            self._group.watch()
        elif not self._is_lack_told and (lack := self._group_trouble()) is not None:
            self._is_lack_told = True
            log.warning("group_without_folder", detail=lack)
        self.reporter.watch()
        self._watch_http()

    def _group_trouble(self) -> str | None:
        """Return what keeps a member from sharing parts: their files, or that it has no folder."""
        if self._group is not None:
            return self._group.status().trouble
        n, n_all = self.reader.source_status().n_elsewhere, self.reader.n_partitions
        if not n:
            return None
        return (
            f"{n} of {n_all} partitions are read by other members of the group "
            f"{self._settings.kafka.group_id!r} (kafka.group_id): what they learn is not known "
            "here, and who is given a partition learns again what another member has learned of "
            "it. Set group.folder to a folder that all members reach; or, to read all partitions "
            "here, kafka.group_id to a name of this daemon's own"
        )

    def compile_kernels(self, stack: contextlib.ExitStack) -> bool:
        """Compile the kernels that the run needs; return False if stopped before.

        What is on disk is loaded while the stream runs, until `stack` ends that.
        """
        warm_up = WarmUp(needed(self._settings), self._clock)
        if warm_up.n:
            gc.enable()  # a compiler leaves much garbage
            log.warning("compiling", kernels=warm_up.n, detail=warm_up.note)
        warm_up.start()
        stack.callback(warm_up.cancel)
        while not warm_up.wait(_NOTE_INTERVAL_S):
            self.reporter.note = note = warm_up.note
            if note is not None:
                self._health.set_starting(note)
            if self._stop.is_set():
                return False
        self.reporter.note = None
        self._health.set_starting("reading the checkpoint")
        return True

    def _before_checkpoint(self) -> None:
        """Have the source confirmed, and written what a start from the checkpoint passes over."""
        self.reader.confirm()
        if self._learned is not None:
            self._learned.sync()
        recent = self._components.recent
        is_late = recent is not None and not recent.wait_written(_RECENT_TIMEOUT_S)
        if is_late and not self._is_page_late:  # said once, until a wait was not in vain
            log.warning(
                "recent_store_late",
                waited_s=_RECENT_TIMEOUT_S,
                detail="the checkpoint does not wait longer for the page's messages; a kill now"
                " would leave out some of them there, and change no count",
            )
        self._is_page_late = is_late

    def _share(self, state: ModelState, positions: Mapping[Partition, int]) -> None:
        """Hand on to the group what was saved."""
        if self._group is not None:
            self._group.write(state, positions, self._erasure.pending())

    def _other_logs(self, positions: Mapping[Partition, int]) -> Mapping[Partition, LogFacts]:
        """Return what is known of the logs of corrections and of labels."""
        corrections = self._components.corrections
        known = {} if corrections is None else dict(corrections.applier.beginnings())
        if self._labels is not None:
            known |= {**self._labels.reader.logs(positions), **self._labels.beginnings()}
        if self._group is not None:
            self._group.know_labels(known)
        return known

    def _others_begun(self) -> Sequence[Mapping[Partition, LogFacts]]:
        """Return where reading of the logs of corrections and of labels has begun."""
        corrections, labels = self._components.corrections, self._labels
        found = [] if corrections is None else [corrections.applier.beginnings()]
        return found if labels is None else [*found, labels.beginnings()]

    def _begin_memory(self, positions: Mapping[Partition, int]) -> None:
        if self._learned is None:
            return
        try:
            self._learned.begin(positions)
        except OSError as error:
            raise CheckpointError(
                f"checkpoint.folder {self._settings.checkpoint.folder}: its learned/, with what "
                f"messages taught, cannot be read ({error.strerror}). See to its mode and owner."
            ) from error

    def _build_models(self) -> tuple[SavedConfidence | None, Challengers | OwnModels | None]:
        """Return what knows the worth of answers, and the other models; None for what is off."""
        settings, serving = self._settings, self._checkpoint.serving
        window = settings.learning.window
        if not settings.challengers:
            per, others = settings.per, None
            if per.field is not None:
                others = OwnModels(settings.model, per, window)
            return build_confidence(settings.model), others
        challengers = Challengers(settings.models, settings.promotion, window, serving)
        return SavedConfidence(settings.models[serving]), challengers

    def _begin_others(
        self,
        others: Challengers | OwnModels | None,
        model: NaiveBayes,
        saved: SavedConfidence | None,
    ) -> None:
        """Let other models of the settings go on beside the restored one, or begin."""
        logs = {} if self._learned is None else self._learned.logs
        records = {part_name(at): each.n for at, each in logs.items()}
        if isinstance(others, OwnModels):
            others.begin(model, records)
            self.reporter.own_models = others
        if not isinstance(others, Challengers) or saved is None:
            return
        challengers = others
        challengers.begin(model, saved, records)
        statistics = self._statistics

        def promoted(confidence: Confidence) -> None:
            statistics.confidence = confidence
            self.reporter.follow(challengers.models[challengers.serving].model)

        challengers.promoted = promoted
        self.reporter.challengers = challengers

    def build_pipeline(self) -> Pipeline:
        """Restore the model, publish its first snapshot, and return the loop around it."""
        settings, corrections = self._settings, self._components.corrections
        model, positions = self._restored or self._restore()
        self._restored = None
        logs = KnownLogs(self.reader, positions, self._other_logs, self._others_begun)
        publishing = Publishing(settings.learning)
        by_examples = settings.learning.publish == "examples"
        statistics = self._statistics
        consumed: list[Checkpointed] = [logs, statistics.learned_entry(sums=by_examples)]
        consumed += publishing.entries
        predicted: list[Checkpointed] = [*self._files]
        predicted += [statistics.judged_entry()] if by_examples else []
        memory, labels = self._learned, self._labels
        join = None if labels is None else labels.join
        if memory is not None:
            memory.n_classes, memory.tell = len(model.classes), self._health.set_starting
            consumed.append(memory)
        consumed += [] if join is None else [join]
        saved, others = self._build_models()
        drift = statistics.drift = DriftWatch.of(settings.drift)
        consumed += [each for each in (self._decay, saved, drift, others) if each is not None]
        self._checkpoint.restore_entries((*consumed, *predicted))
        self._begin_memory(positions)
        if labels is not None:
            labels.join.begin()
        self._begin_others(others, model, saved)
        self._classes.grow(model.classes)
        if not by_examples:  # else all figures are those of the log
            self.reporter.resume_from(model.words_dropped, values_dropped(model.state))
        confidence = statistics.confidence = None if saved is None else saved.learned
        self._health.set_starting("publishing the first snapshot")
        learner = publishing.learner(model, self._board, self._clock, confidence, others)
        if settings.http.enabled:
            with contextlib.suppress(PredictorError):  # it is being stopped already
                self._predictor.ask(lambda _snapshot: raise_priority())
        writer = CheckpointWriter(
            self._checkpoint, self._predictor, (self._predictions, self._rejects, self._erasure),
            self._stop, self._share, before=self._before_checkpoint, after=self._erasure.begin,
            stop_timeout_s=settings.shutdown_timeout_s / 2, consumed=consumed, predicted=predicted,
        )  # fmt: skip
        return Pipeline(
            reader=self.reader,
            learner=learner,
            predictor=self._predictor,
            predictions=self._predictions,
            writes_labelled=settings.predictions.labelled,
            # Key, id and headers come on top of the value that is compared.
            short_from_bytes=min(SHORT_FROM_BYTES, settings.kafka.message_max_bytes // 2),
            rejects=self._rejects,
            checkpoint=self._checkpoint,
            checkpoint_writer=writer,
            metrics=self._metrics,
            health=self._health,
            statistics=statistics,
            stop=self._stop,
            watch=self.watch,
            recent=self._components.recent,
            corrections=None if corrections is None else corrections.applier,
            erasure=self._erasure,
            logs=logs,
            group=self._group,
            reviser=None if memory is None else Reviser(memory, join),
            labels=labels,
            decay=self._decay,
            challengers=others if isinstance(others, Challengers) else None,
            positions=positions,
            has_outputs=bool(self._files),
            handled=None if self._transactions is None else self._transactions.done,
        )
