"""The loop, whole on one screen: take what was read, learn, hand on, publish, checkpoint.

It runs on the consuming thread, which owns the learner and the stream's positions. The `reader`
polls and decodes ahead of it, on a thread of its own. Labelled messages are judged by the learner
just before it learns them; unlabelled ones go to the predictor's thread, and so do rejects: that
thread alone writes to the sinks. Checkpoints are written beside the learning, see `saving`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import structlog
from numpy.typing import NDArray

from consumers.corrections import Applying
from consumers.erasure import Erasure
from consumers.errors import CheckpointError, SinkError
from consumers.features import columns_of
from consumers.messages import Messages, Partition, Reject, part_name
from consumers.monitoring.health import Health
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.stats import Tally
from consumers.pipeline.batch_queue import Batch
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.checkpoint_writer import Saving
from consumers.pipeline.reader import Limits, Reader
from consumers.search.store import Recent
from consumers.sinks.base import NoSink, Sink
from consumers.sinks.records import prediction_record, reject_record
from streamnb import Answer, Codes, Learner, Predictor
from streamnb.errors import QueueFullError
from streamnb.labels import to_indices

TURN_S = 0.1  # how long a turn of the loop waits for a batch
_SLICE_S = 1.0  # how often a longer wait says that it is not stuck
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Pipeline:
    """The rooms that the loop walks through, and the stream's positions.

    Attributes
    ----------
    watch : callable
        Called each turn; raises what ended a thread that runs beside.
    corrections : Applying or None
        What people said of messages, to be learned between two batches.
    recent : Recent or None
        Where the newest messages are kept to be searched, if they are.
    erasure : Erasure or None
        What takes the texts of deleted messages out of the files; None where there are none.
    positions : dict of Partition to int
        The next offset of each partition of which something was learned.
    """

    reader: Reader
    learner: Learner
    predictor: Predictor
    predictions: Sink
    rejects: Sink
    checkpoint: Checkpoint
    saving: Saving
    metrics: Metrics
    health: Health
    tally: Tally
    stop: threading.Event
    watch: Callable[[], None]
    recent: Recent | None = None
    corrections: Applying | None = None
    erasure: Erasure | None = None
    positions: dict[Partition, int] = field(default_factory=dict)
    _amid_batch: bool = False
    _safe_positions: Mapping[Partition, int] | None = None

    def run(self, limits: Limits) -> str:
        """Learn until told to stop.

        Returns
        -------
        str
            Why it ended: "told to stop", "end of source" or "max messages".
        """
        self.reader.start(self.positions, limits)
        if self.corrections is not None:
            self.corrections.start(self.positions)
        while not self.stop.is_set():
            is_behind = self.corrections is not None and self.corrections.is_behind()
            batch = self.reader.take(0.0 if is_behind else TURN_S)
            if batch is not None:
                self._take(batch)
            owes = self._correct()
            self._look_around(0 if batch is None else batch.n_raw)
            end = self.reader.end
            if end is not None and not owes:
                return end
        return "told to stop"

    def finish(self) -> None:
        """Publish, write the last checkpoint, unless it stands already, and let the source go.

        Raises
        ------
        CheckpointError
            Where the last checkpoint could not be written.
        """
        try:
            self.learner.publish()
            with _telling_failures():
                self._await_checkpoint()
            if self._amid_batch:
                raise CheckpointError(
                    "no last checkpoint was written: the run ended amid a batch, whose counts are "
                    "ahead of its position. The one before stands; start again to go on from it."
                )
            if self.positions != self._safe_positions:
                self._begin_checkpoint()
                self._await_checkpoint()
        finally:
            self.reader.close()
            if self.corrections is not None:
                self.corrections.close()
            self.saving.close()

    def _take(self, batch: Batch) -> None:
        messages = batch.messages
        self.tally.begin()
        self._amid_batch = True  # whatever fails from here on, no checkpoint may hold half a batch
        began_s = time.perf_counter()
        self._learn(messages)
        self.reader.learned(len(messages), time.perf_counter() - began_s)
        self._judge(messages)
        if messages.rejects:
            self._hand_on(partial(self._reject, messages.rejects))
        if self.erasure is not None and len(messages.deleted):
            self._hand_on(partial(self._forget, self.erasure, messages))
        self.positions[batch.partition] = batch.next_offset
        self._amid_batch = False
        self.tally.count(batch.n_raw, messages)

    def _correct(self) -> bool:
        """Apply corrections; return whether some of those of before are still to come."""
        if self.corrections is None:
            return False
        if self.corrections.is_due():
            self._amid_batch = True  # no checkpoint may hold half a correction
            assigned = self.reader.seen().lag
            rejects = self.corrections.apply(self.learner, self.positions, assigned)
            if rejects:
                self._hand_on(partial(self._reject, rejects))
            deleted = self.corrections.take_deleted()
            if self.erasure is not None and deleted:
                self._hand_on(partial(self.erasure.add, deleted, from_stream=False))
            self._amid_batch = False
        return self.corrections.owes()

    def _learn(self, messages: Messages) -> None:
        rows = messages.to_learn
        labels = Codes(messages.labels[rows], messages.classes)
        columns = columns_of(messages, rows, self.tally.fields)
        # A partition without labels gets its part too: its position is saved with it.
        posteriors = self.learner.learn(part_name(messages.partition), columns, labels)
        if len(rows):
            truth = to_indices(labels, self.learner.model.classes)
            self.tally.learned(messages, rows, posteriors, truth)
            if self.recent is not None:
                self.recent.offer(messages, rows, posteriors)

    def _judge(self, messages: Messages) -> None:
        rows = messages.to_judge
        if not len(rows):
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

    def _judged(
        self, messages: Messages, rows: NDArray[np.int64], asked_at: float, answer: Answer
    ) -> None:
        """Hand judgements on; runs on the predictor's thread."""
        self.tally.judged(messages, rows, answer)
        if self.recent is not None:
            self.recent.offer(messages, rows, answer.log_posteriors)
        self.metrics.observe_predict(time.perf_counter() - asked_at, len(rows))
        if isinstance(self.predictions, NoSink):
            return
        classes = [str(label) for label in answer.classes]
        records = [
            prediction_record(envelope, classes, row, answer.version)
            for envelope, row in zip(
                messages.envelopes(rows), answer.log_posteriors.tolist(), strict=True
            )
        ]
        self.predictions.add(records)

    def _reject(self, rejects: Sequence[Reject]) -> None:
        """Hand rejects on; runs on the predictor's thread."""
        self.rejects.add([reject_record(reject) for reject in rejects])

    def _forget(self, erasure: Erasure, messages: Messages) -> None:
        """Forget what the stream deleted; runs on the predictor's thread, behind what it judged."""
        ids = messages.about(messages.raw, messages.at[messages.deleted]).ids
        offsets = messages.offsets[messages.deleted].tolist()
        places = [(ids[k], messages.partition, offset) for k, offset in enumerate(offsets)]
        erasure.add(places, from_stream=True)

    def _hand_on(self, run: Callable[[], None]) -> None:
        """Have something done on the predictor's thread, behind all that it was asked so far."""
        while True:
            try:
                self.predictor.call(run, timeout_s=_SLICE_S)
            except QueueFullError:
                self.health.beat()  # as in `_judge`
            else:
                return

    def _look_around(self, n_messages: int) -> None:
        """Do what is due between two batches."""
        self.health.beat(n_messages)
        self.learner.publish_if_due()
        self.watch()
        if self.predictor.failure is not None:
            raise SinkError(
                "a judgement or a reject could not be handed on: "
                f"{self.predictor.failure}. Start again: the stream goes on from the last"
                " checkpoint, and it comes again."
            ) from self.predictor.failure
        with _telling_failures():
            if self.saving.is_busy:
                self._note_checkpoint(0.0)
            elif self.checkpoint.is_due() and self.positions == self._safe_positions:
                # Nothing was read since: the file is current, and older ones must not be pushed
                # out.
                self.checkpoint.postpone()
                self.metrics.checkpoint_is_current()
            elif self.checkpoint.is_due():
                self._begin_checkpoint()

    def _begin_checkpoint(self) -> None:
        """Freeze what there is; it is written beside the learning."""
        try:
            self.saving.begin(self.learner.model, self.positions, self.health.beat)
        except CheckpointError:
            self._note_failure()
            raise

    def _await_checkpoint(self) -> None:
        """Wait until none is in the making."""
        while self.saving.is_busy:
            self.health.beat()
            self._note_checkpoint(_SLICE_S)

    def _note_checkpoint(self, timeout_s: float) -> None:
        """Take in what came of the one in the making, once that is known."""
        try:
            saved = self.saving.outcome(timeout_s)
        except CheckpointError:
            self._note_failure()
            raise
        if saved is not None:
            self.checkpoint.postpone()
            self._safe_positions = saved.positions
            self.metrics.checkpoint_written(saved.written.seconds, saved.written.n_bytes)
            self.reader.commit(saved.positions)

    def _note_failure(self) -> None:
        self.checkpoint.postpone()
        self.metrics.checkpoint_failed()


@contextlib.contextmanager
def _telling_failures() -> Iterator[None]:
    """Let a checkpoint that was not written be a line in the log: the one before it stands."""
    try:
        yield
    except CheckpointError as error:
        log.error("checkpoint_failed", detail=str(error))  # noqa: TRY400 -- all is said
