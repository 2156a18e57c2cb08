"""The loop, whole on one screen: poll, decode, learn, hand on, publish, checkpoint.

It runs on the consuming thread, which owns the source, the learner and the checkpoint. Labelled
messages are judged by the learner just before it learns them; unlabelled ones go to the predictor's
thread, which writes its judgements to their sink.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import structlog

from consumers.checkpoint import Checkpoint, part_name
from consumers.decode import Decoder
from consumers.errors import CheckpointError, SinkError
from consumers.features import columns_of
from consumers.health import Health
from consumers.messages import Messages, Operation, Partition, RawColumns
from consumers.metrics import Metrics
from consumers.sinks.base import Sink
from consumers.sinks.none import NoSink
from consumers.sinks.records import prediction_record, reject_record
from consumers.sources.base import Source
from consumers.tally import Tally
from streamnb import Answer, Learner, Predictor
from streamnb.errors import PredictorError, QueueFullError

POLL_TIMEOUT_S = 0.1
# How long a checkpoint may wait for the predictor and the sinks, all together; and how long once
# the daemon is told to stop, for whoever told it will kill it after half a minute.
_SAFE_TIMEOUT_S = 30.0
_SAFE_TIMEOUT_AT_STOP_S = 5.0
_SLICE_S = 1.0  # how often a wait says that it is not stuck
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Limits:
    """When a run ends by itself."""

    until_end: bool = False
    messages_max: int | None = None


@dataclass(slots=True)
class Pipeline:
    """The rooms that the loop walks through, and the stream's positions.

    Attributes
    ----------
    positions : dict of Partition to int
        The next offset of each partition that has been read.
    """

    source: Source
    decoder: Decoder
    learner: Learner
    predictor: Predictor
    predictions: Sink
    rejects: Sink
    checkpoint: Checkpoint
    metrics: Metrics
    health: Health
    tally: Tally
    show: Callable[[], None]
    positions: dict[Partition, int] = field(default_factory=dict)
    stop: threading.Event = field(default_factory=threading.Event)
    _amid_batch: bool = False
    _safe_positions: dict[Partition, int] | None = None
    _stop_seen_s: float | None = None

    def run(self, limits: Limits) -> str:
        """Read until told to stop.

        Returns
        -------
        str
            Why it ended: "told to stop", "end of source" or "max messages".
        """
        self.source.open(self.positions.get)
        while not self.stop.is_set():
            batches = self.source.poll(POLL_TIMEOUT_S)
            for raw in batches:
                self._take(raw, limits)
            self._look_around(sum(map(len, batches)))
            if limits.messages_max is not None and self.tally.n_messages >= limits.messages_max:
                return "max messages"
            if limits.until_end and not batches and self.source.at_end():
                return "end of source"
        return "told to stop"

    def finish(self) -> None:
        """Publish, write the last checkpoint and let go of the source.

        Raises
        ------
        CheckpointError
            Where the last checkpoint could not be written.
        """
        try:
            self.learner.publish()
            if self._amid_batch:
                raise CheckpointError(
                    "no last checkpoint was written: the run ended amid a batch, whose counts are "
                    "ahead of its position. The one before stands; start again to go on from it."
                )
            self._make_checkpoint()
        finally:
            self.source.close()

    def _take(self, raw: RawColumns, limits: Limits) -> None:
        if limits.messages_max is not None:
            raw = raw.head(limits.messages_max - self.tally.n_messages)
            if not len(raw):
                return
        messages = self.decoder.decode(raw)
        self._amid_batch = True  # whatever fails from here on, no checkpoint may hold half a batch
        self._learn(messages)
        self._judge(messages)
        if messages.rejects:
            self.rejects.add([reject_record(reject) for reject in messages.rejects])
        self.positions[raw.partition] = raw.next_offset
        self._amid_batch = False
        self.tally.count(len(raw), messages)

    def _learn(self, messages: Messages) -> None:
        model = self.learner.model
        rows = [
            i
            for i, label in enumerate(messages.labels)
            if label is not None and messages.operations[i] is not Operation.DELETE
        ]
        labels = [str(messages.labels[i]) for i in rows]
        columns = columns_of(messages, rows, self.tally.fields)
        # A partition without labels gets its part too: its position is saved with it.
        posteriors = self.learner.learn(part_name(messages.partition), columns, labels)
        if rows:
            index = {label: c for c, label in enumerate(model.classes)}
            truth = np.fromiter((index[label] for label in labels), np.int64, len(labels))
            self.tally.learned(messages, rows, posteriors, truth)

    def _judge(self, messages: Messages) -> None:
        rows = [
            i
            for i, label in enumerate(messages.labels)
            if label is None and messages.operations[i] is not Operation.DELETE
        ]
        if not rows:
            return
        columns = columns_of(messages, rows, self.tally.fields)
        then = partial(self._judged, messages, rows, time.perf_counter())
        while True:
            try:
                self.predictor.submit(columns, then=then, timeout_s=1.0)
            except QueueFullError:
                self.health.beat()  # waiting for the predictor is work, not a stuck consumer
            else:
                return

    def _judged(self, messages: Messages, rows: list[int], asked_at: float, answer: Answer) -> None:
        """Hand judgements on; runs on the predictor's thread."""
        self.tally.judged(messages, rows, answer)
        self.metrics.observe_predict(time.perf_counter() - asked_at, len(rows))
        if isinstance(self.predictions, NoSink):
            return
        classes = [str(label) for label in answer.classes]
        records = [
            prediction_record(messages.envelope(i), classes, row, answer.version)
            for i, row in zip(rows, answer.log_posteriors.tolist(), strict=True)
        ]
        self.predictions.add(records)

    def _look_around(self, n_messages: int) -> None:
        """Do what is due between two polls."""
        self.health.beat(n_messages)
        self.health.set_trouble(self.source.trouble())
        self.learner.publish_if_due()
        self.show()
        if self.predictor.failure is not None:
            raise SinkError(
                f"a judgement could not be handed on: {self.predictor.failure}. Start again: the"
                " stream goes on from the last checkpoint, and it comes again."
            ) from self.predictor.failure
        if self.checkpoint.is_due() and self.positions == self._safe_positions:
            # Nothing was read since: the file is current, and older ones must not be pushed out.
            self.checkpoint.postpone()
            self.metrics.checkpoint_is_current()
        elif self.checkpoint.is_due():
            try:
                self._make_checkpoint()
            except CheckpointError as error:
                log.error("checkpoint_failed", detail=str(error))  # noqa: TRY400 -- all is said

    def _make_checkpoint(self) -> None:
        """Carry out the steps of a checkpoint, in their order; see `checkpoint`."""
        began_s = time.monotonic()
        try:
            for wait in (self.predictor.drain, self.predictions.flush, self.rejects.flush):
                self._wait_for(wait, began_s)
            written = self.checkpoint.write(self.learner.model, self.positions)
        except (PredictorError, SinkError, CheckpointError) as error:
            self.metrics.checkpoint_failed()
            raise CheckpointError(f"no checkpoint was written: {error}") from error
        finally:
            self.checkpoint.postpone()
        self._safe_positions = dict(self.positions)
        self.metrics.checkpoint_written(written.seconds, written.n_bytes)
        self.source.commit(self.positions)

    def _wait_for(self, wait: Callable[[float], None], began_s: float) -> None:
        """Wait in slices: the daemon is not stuck meanwhile, and may be told to stop."""
        while True:
            self.health.beat()
            now_s = time.monotonic()
            if self.stop.is_set() and self._stop_seen_s is None:
                self._stop_seen_s = now_s
            until_s = began_s + _SAFE_TIMEOUT_S
            if self._stop_seen_s is not None:
                until_s = min(until_s, self._stop_seen_s + _SAFE_TIMEOUT_AT_STOP_S)
            try:
                wait(max(0.0, min(_SLICE_S, until_s - now_s)))
            except (PredictorError, SinkError):
                # What is refused before its slice is over has another reason than time.
                if time.monotonic() < now_s + _SLICE_S or time.monotonic() >= until_s:
                    raise
            else:
                return
