"""The loop: take a batch, learn, predict, apply corrections, publish, checkpoint.

It runs on the consuming thread, which owns the learner and the stream's positions. The reader polls
and decodes ahead of it on a thread of its own. The learner predicts each labelled message just
before it learns it; messages without a label go to the predictor's thread, and so do rejects and
deletions: that thread alone writes to the sinks. Checkpoints are written while learning continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import repeat
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.config.model import MODEL
from consumers.corrections.applier import CorrectionApplier
from consumers.decode.labels import keep_classes, within_limit
from consumers.errors import CheckpointError, GroupError, SinkError
from consumers.features import DecayTimes, ExampleTimes, columns_of, times_and_weights
from consumers.messages import Messages, Partition, Reject, names_of
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Health
from consumers.pipeline.challengers import Challengers
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.checkpoint_writer import CheckpointWriter, KnownLogs, errors_logged
from consumers.pipeline.erasure import Erasure
from consumers.pipeline.group_parts import GroupParts, take_over_records
from consumers.pipeline.part_files import LoadedPart
from consumers.pipeline.reader import LabelReader, Limits, Reader, Reassignment
from consumers.pipeline.revision import Reviser
from consumers.pipeline.waiting_messages import LearnedRows, Taking, joined, learn_rows, rows_until
from consumers.search.store import RecentStore
from consumers.sinks.records import (
    SHORT_FROM_BYTES,
    NoSink,
    Record,
    Sink,
    prediction_records,
    reject_record,
)
from streamnb import Answer, Learner, Predictor, Snapshot
from streamnb.errors import QueueFullError

TURN_S = 0.1  # how long a turn of the loop waits for a batch
_SLICE_S = 1.0  # how often a longer wait reports that the loop is alive
_Rows: TypeAlias = NDArray[np.int64]
_Held: TypeAlias = list[tuple[int, Record]]  # by offset


class _Piece(NamedTuple):
    """Messages of a batch between two of its cuts: those learned, those that a snapshot judges."""

    learned: LearnedRows
    to_predict: _Rows
    snapshot: Snapshot


class Pipeline(msgspec.Struct):
    """The components that the loop connects, and the stream's positions.

    `watch` is called each turn, and raises the error that ended another thread. `positions` has the
    next offset of each partition. What the settings turn off is None.
    """

    reader: Reader
    learner: Learner
    predictor: Predictor
    predictions: Sink
    rejects: Sink
    checkpoint: Checkpoint
    checkpoint_writer: CheckpointWriter
    metrics: Metrics
    health: Health
    statistics: RunStatistics
    stop: threading.Event
    watch: Callable[[], None]
    recent: RecentStore | None = None
    corrections: CorrectionApplier | None = None
    erasure: Erasure | None = None
    logs: KnownLogs | None = None
    group: GroupParts | None = None
    reviser: Reviser | None = None
    labels: LabelReader | None = None
    decay: DecayTimes | None = None
    challengers: Challengers | None = None
    # Told, on the predictor's thread, before which offset all records were added: it commits that.
    handled: Callable[[Partition, int], None] | None = None
    positions: dict[Partition, int] = field(default_factory=dict)
    writes_labelled: bool = False  # predictions of what is learned, too
    short_from_bytes: int = SHORT_FROM_BYTES  # records of this size have a short form
    has_outputs: bool = False  # files whose length no checkpoint has yet
    _is_mid_batch: bool = False  # then no checkpoint may be written: it would hold half a batch
    _saved_positions: Mapping[Partition, int] | None = None
    _is_snapshot_unsaved: bool = False  # one was published after the last positions were saved
    _checkpoint_trouble: str | None = None
    _own: set[Partition] = field(default_factory=set)  # of a group's, read here
    _held: Messages | None = None  # a batch to be tried again

    def __post_init__(self) -> None:
        """Have the health show a failed checkpoint until one is written, and what was lost."""
        self.health.watch_part(lambda: self._checkpoint_trouble)
        if (reviser := self.reviser) is not None:
            self.health.watch_part(lambda: reviser.memory.trouble)
        if (corrections := self.corrections) is not None:
            self.health.watch_part(lambda: corrections.trouble)
        if self.labels is not None and self.recent is not None:
            self.labels.join.show(self.recent.note_labels, self._after_predictions)
        if self.statistics.drift is not None:
            drift = self.statistics.drift
            drift.model, drift.relearn = lambda: self.learner.model, self.learner.forget_weights
            if (others := self.challengers) is not None:  # of one, whichever serves
                drift.model, drift.compare = lambda: others.models[MODEL].model, others.compare_soon

    def run(self, limits: Limits) -> str:
        """Learn until it ends; return why: "told to stop", "end of source" or "max messages"."""
        known = {} if self.logs is None else self.logs.facts
        self.reader.start(self.positions, limits, known)
        if self.corrections is not None:
            self.corrections.start(self.positions, known, self.reviser, self.group)
        if self.labels is not None:
            self.labels.start(self.positions, limits, known, self.group)
        if self.group is not None:
            self.group.start()
        while not self.stop.is_set():
            taken: Messages | Reassignment | None
            taken, self._held = self._held, None
            if taken is None:
                taken = self.reader.take(0.0 if self._is_behind() else TURN_S)
            n_messages = self._process_or_hold(taken, may_learn=self._save_beginnings(limits))
            has_backlog = not self._are_beginnings_saved() or (
                self._apply_corrections() | self._take_labels(is_idle=taken is None)
            )
            self._do_due(n_messages)
            end = self.reader.end_reason
            if end is not None and not has_backlog and self._held is None:
                if end == "end of source":
                    self._publish_the_end()
                return end
            if end is not None and not self._is_behind():
                self.stop.wait(TURN_S)
        return "told to stop"

    def _is_behind(self) -> bool:
        """Return whether corrections or labels wait that may be taken at once."""
        is_behind = self.corrections is not None and self.corrections.is_behind()
        return is_behind or (self.labels is not None and self.labels.is_behind)

    def _publish_the_end(self) -> None:
        """Publish all that was learned by examples too: nothing follows in the log."""
        if self.learner.n_until_due() is not None and not self.learner.is_current:
            self.learner.publish()
            self._is_snapshot_unsaved = True

    def _process_or_hold(self, taken: Messages | Reassignment | None, *, may_learn: bool) -> int:
        """Process what was taken, or keep a batch that may not be learned yet; return its size."""
        if isinstance(taken, Reassignment):
            self._apply_reassignment(taken)
            return 0
        try:
            if taken is not None and may_learn:
                self._process(taken)
        except GroupError:  # it cannot say which classes join; its status says why
            may_learn = False
        if not may_learn:
            self._held = taken
            self.stop.wait(TURN_S)
        return len(taken.raw) if taken is not None and may_learn else 0

    def _process(self, messages: Messages) -> None:
        """Learn and predict a batch, pass on its rejects and deletions, advance its position."""
        self.statistics.begin()
        takes_class = None if self.group is None else self.group.takes_class
        messages = within_limit(messages, self.learner.model, takes_class)
        self._is_mid_batch = True
        began_s = time.thread_time()  # pieces stay as large if other processes take the core away
        if self.reviser is None:
            self._pass_on(messages, self._judge_and_learn(messages))
        else:
            messages = self._learn_and_take_back(self.reviser, messages)
        self.reader.learned(len(messages), time.thread_time() - began_s)
        if messages.rejects:
            self._after_predictions(partial(self._write_rejects, messages.rejects))
        if self.erasure is not None and len(messages.deleted):
            self._after_predictions(partial(self._erase, self.erasure, messages))
        if self.recent is not None and len(messages.updated):
            self._after_predictions(partial(self._forget_versions, self.recent, messages))
        if self.handled is not None:
            handled = partial(self.handled, messages.partition, messages.next_offset)
            self._after_predictions(handled)
        self._pass_on_label_rejects()  # of another log: a transaction may end before they come
        self.positions[messages.partition] = messages.next_offset
        self._is_mid_batch = False
        self.statistics.count(len(messages.raw), messages)
        if self.decay is not None:
            self.statistics.n_untaught = self.decay.n_untaught

    def _do_due(self, n_messages: int) -> None:
        """Do what is due between two batches: publish, check other threads, checkpoint."""
        self.health.beat(n_messages)
        if self.group is not None:
            news = self.group.take_news(self._own, self.positions)
            for partition, (part, is_as_far) in news.items():
                self._set_part(partition, part, is_as_far=is_as_far)
            self.group.answer(self.learner)
        self.learner.publish_if_due()
        self.watch()
        if (lost := self.predictor.failure) is not None:
            raise SinkError(
                f"a judgement or a reject could not be handed on: {lost}. Start again: the stream"
                " goes on from the last checkpoint, and it comes again."
            ) from lost
        with errors_logged():
            if self.checkpoint_writer.is_busy:
                self._collect_checkpoint(0.0)
            elif self.checkpoint.is_due() and self.positions == self._saved_positions:
                self.checkpoint.note_current()  # another one would push out older ones
                self.metrics.checkpoint_is_current()
                self._hand_on()
            elif self.checkpoint.is_due():
                self._begin_checkpoint()

    def finish(self) -> None:
        """Publish, write the last checkpoint if positions moved, and close the source."""
        try:
            if self.learner.n_until_due() is None:
                self.learner.publish()
            with errors_logged():
                self._await_checkpoint()
            if self._is_mid_batch or (self.labels is not None and self.labels.is_mid_batch):
                raise CheckpointError(
                    "no last checkpoint was written: the run ended amid a batch, whose counts are "
                    "ahead of its position. The one before stands; start again to go on from it."
                )
            if self._is_snapshot_unsaved or self.positions != self._saved_positions:
                self._begin_checkpoint()
            else:
                self._hand_on()
            self._await_checkpoint()
        finally:
            labels = None if self.labels is None else self.labels.reader
            parts = (self.checkpoint_writer, self.group, labels, self.corrections, self.reader)
            with ExitStack() as closing:  # the last one that is noted is closed first
                for each in (part for part in parts if part is not None):
                    closing.callback(each.close)

    # ---- learning and predicting ---------------------------------------------------------------

    def _learn_and_take_back(self, reviser: Reviser, messages: Messages) -> Messages:
        """Learn a batch and take back what it deletes; return what was not superseded.

        With `publish: examples`, challengers or drift, each delete and update has its effect in its
        place, so that all that is answered follows from the log; else all do behind the batch:
        counts come out the same.
        """
        in_place = self.learner.n_until_due() is not None or self.challengers is not None
        in_place |= self.statistics.drift is not None
        revision = reviser.revise(messages, self.learner.model.classes)
        placed, taking = reviser.place(revision, self.learner, in_place=in_place)
        self._pass_on(placed, self._judge_and_learn(placed, taking))
        reviser.remember(revision, self.learner)
        self.statistics.revised(reviser.counts, reviser.memory.sizes())
        if not (superseded := revision.superseded):
            return messages
        return replace(messages.without(np.array(superseded)), n_superseded=len(superseded))

    def _judge_and_learn(self, messages: Messages, taking: Taking | None = None) -> list[_Piece]:
        """Learn a batch, cut where a snapshot is due or a class joins; take back what it says.

        A message without a label is judged by the snapshot of its cut, which knows none of the
        labels that stand behind it in its log.
        """
        to_learn, to_predict = messages.to_learn, messages.to_predict
        own_times = times_and_weights(messages, self.decay)
        pieces = list[_Piece]()
        while True:
            n, is_last = self._n_until_cut(messages, to_learn, taking)
            if taking is not None and not n and not is_last:
                n = taking.n_apart(to_learn)
                taking.take_back(taking.numbers[to_learn[:n]], self.learner)
                to_learn = to_learn[n:]
                continue
            snapshot = self.learner.snapshot
            found = self._learn(messages, to_learn[:n], own_times, taking)
            if taking is not None and found.n_done < n:
                taking.is_apart, n, is_last = True, found.n_done, False
            behind_learned = int(to_learn[n - 1]) + 1 if n else 0
            end = len(messages) if is_last else behind_learned
            n_before = int(np.searchsorted(to_predict, end))
            if self.statistics.drift is not None:
                self.statistics.drift.learned(found.posteriors, found.truth, found.weights)
            pieces.append(_Piece(found, to_predict[:n_before], snapshot))
            to_learn, to_predict = to_learn[n:], to_predict[n_before:]
            if not len(to_learn) and not len(to_predict):
                return pieces

    def _n_until_cut(
        self, messages: Messages, rows: _Rows, taking: Taking | None
    ) -> tuple[int, bool]:
        """Return how many rows one call takes, and whether the batch ends with it: no cut is due.

        With `publish: examples`, a class that joins begins a call too: those before it are judged
        without it, and so are their losses and what calibrates answers, wherever the log is cut
        into batches. With challengers too, of which another may answer where a block ends, and with
        drift.
        """
        n = len(rows) + 1 if taking is None else taking.n_together(rows)
        due, look = self.learner.n_until_due(), self.statistics.n_until_look()
        rivals = self.challengers
        if due is not None or rivals is not None or look is not None:
            n = min(n, rows_until(rows, taking, due, look))
            n = n if rivals is None else min(n, rivals.n_until_judged)
            known = self.learner.model.state.class_index
            new = [code for code, label in enumerate(messages.classes) if label not in known]
            if new and len(rows):
                codes = messages.labels[rows]
                joins = np.isin(codes, new) & (codes != codes[0])
                n = min(n, int(joins.argmax())) if joins.any() else n
        return min(n, len(rows)), n > len(rows)

    def _learn(
        self, messages: Messages, rows: _Rows, own_times: ExampleTimes, taking: Taking | None
    ) -> LearnedRows:
        # A partition without labels gets its part too: its position is saved with it.
        own = own_times.of(rows, messages)
        columns = columns_of(messages, rows, self.statistics.fields)
        model = self.learner.model  # a challenger may take its place
        n_before = model.n_examples
        found = learn_rows(self.learner, messages, rows, columns, own, taking)
        if self.decay is not None and own.weights is not None:
            n_given = int(np.count_nonzero(own.weights[: len(found.rows)]))
            n = model.n_examples - n_before
            self.decay.count_out_of_reach(messages.partition, n_given - n)
        if self.reviser is not None:
            self.reviser.count_taken(found)
        return found

    def _pass_on(self, messages: Messages, pieces: Sequence[_Piece]) -> None:
        """Count and store what was learned of a batch, and have the rest of it predicted.

        All at once, as a batch with many deletes has many pieces. First what was learned, so that
        recent messages are always stored in the same order.
        """
        rows, posteriors, truth = joined([each.learned for each in pieces])
        if len(rows):
            self.statistics.classes.grow(self.learner.model.classes)
            self.statistics.learned(messages, rows, posteriors, truth)
            if self.recent is not None:
                self.recent.offer(messages, rows, posteriors)
        for each in pieces:
            if not self.writes_labelled or not len(each.learned.rows):
                self._predict(messages, each.to_predict, each.snapshot)
                continue
            held: _Held = []
            self._predict(messages, each.to_predict, each.snapshot, held)
            columns = columns_of(messages, each.learned.rows, self.statistics.fields)
            then = partial(self._add_predictions, messages, each.learned.rows, held)
            self._submit(partial(self.predictor.submit, columns, then=then, snapshot=each.snapshot))
            self._after_predictions(partial(self._add_in_order, held))

    def _add_in_order(self, held: _Held) -> None:
        """Add records in the order of their log, wherever it was cut."""
        self.predictions.add([record for _, record in sorted(held, key=itemgetter(0))])

    def _apply_reassignment(self, change: Reassignment) -> None:
        """Take a partition over, with what its last owner learned, or leave it to its next one."""
        others = [each for each in (self.corrections, self.labels) if each is not None]
        if not change.is_ours:
            self._own.discard(change.partition)
            for each in others:
                each.give_up(change.partition)
            return
        self._own.add(change.partition)
        if change.part is not None:
            self._set_part(change.partition, change.part)
        elif self.reviser is not None and self.reviser.memory.is_elsewhere(change.partition):
            take_over_records(self.reviser.memory, change.partition, None)
        for each in others:
            each.take_over(change.partition, self.positions)

    def _set_part(self, partition: Partition, part: LoadedPart, *, is_as_far: bool = False) -> None:
        """Know what another member of the group has learned of a partition.

        What its messages taught is needed by who reads it alone, and known if it `is_as_far`.
        """
        if self.group is not None:
            self.group.put(self.learner, partition, part)
        self._saved_positions = None  # the checkpoint has another part, maybe of the same place
        if is_as_far:
            return
        self.positions[partition] = part.position
        if self.decay is not None:
            self.decay.know(partition, part.times)
        if self.corrections is not None:
            self.corrections.know(partition, part.labels, self.positions, self.learner)
        if self.reviser is not None:
            memory = self.reviser.memory
            if partition in self._own:
                classes = part.model.classes, self.learner.model.classes
                take_over_records(memory, partition, part.records, *classes, self.health.beat)
                if self.erasure is not None and part.records is not None:
                    self._after_predictions(partial(self.erasure.go_on, part.records.deletions))
            else:
                memory.restart(partition)
        if self.labels is not None:
            is_ours = partition in self._own
            self.labels.know(partition, part, self.positions, self.learner, is_ours=is_ours)
        self.statistics.classes.grow(keep_classes(self.learner.model))

    def _predict(
        self, messages: Messages, rows: _Rows, snapshot: Snapshot, held: _Held | None = None
    ) -> None:
        if len(rows):
            columns = columns_of(messages, rows, self.statistics.fields)
            n_before, now_s = self.statistics.n_messages, time.perf_counter()
            then = partial(self._write_predictions, messages, rows, n_before, now_s, held)
            if self.labels is None:
                self._submit(partial(self.predictor.submit, columns, then=then, snapshot=snapshot))
                return
            # Here, as what is first predicted is remembered with the message.
            stated, rule = snapshot.stated(columns), snapshot.rule
            self.labels.join.judged(messages.offsets[rows], stated)
            answer = Answer(
                rule.calibrated(stated), snapshot.classes, snapshot.version, snapshot.n_examples,
                rule, snapshot.answered_by(columns),
            )  # fmt: skip
            self._after_predictions(partial(then, answer))

    def _apply_corrections(self) -> bool:
        """Apply corrections that are due; return whether earlier ones are still being read."""
        if self.corrections is None:
            return False
        is_due = self.corrections.is_due()  # or it raises what ended the reading
        if self.corrections.are_partitions_known(self.reader.n_partitions) and is_due:
            self._is_mid_batch = True
            # In a group a partition is ours from its place in the queue of batches on.
            assigned = self._own if self.group else self.reader.source_status().assigned
            rejects = self.corrections.apply(self.learner, self.positions, assigned)
            self.statistics.classes.grow(self.learner.model.classes)
            if rejects:
                self._after_predictions(partial(self._write_rejects, rejects))
            deleted = self.corrections.take_deleted()
            if self.erasure is not None and deleted:
                self._after_predictions(partial(self.erasure.add_said, deleted))
            self._is_mid_batch = False
        return self.corrections.has_backlog()

    def _take_labels(self, *, is_idle: bool) -> bool:
        """Learn by labels that came later; return whether those of before the end still come."""
        if self.labels is None:
            return False
        timeout_s = 0.0 if self.reader.end_reason is None else TURN_S
        then = self._pass_on_label_rejects
        self.labels.take(self.learner, self.positions, timeout_s, is_idle=is_idle, then=then)
        self.statistics.labels = self.labels.join.counts_now(self.reader.n_partitions)
        return self.labels.has_backlog()

    def _pass_on_label_rejects(self) -> None:
        if self.labels is not None and (rejects := self.labels.join.take_rejects()):
            self._after_predictions(partial(self._write_rejects, rejects))

    def _after_predictions(self, run: Callable[[], None]) -> None:
        """Run a callback on the predictor's thread after every batch submitted so far."""
        self._submit(partial(self.predictor.call, run))

    def _submit(self, submit: Callable[..., object]) -> None:
        """Submit to the predictor, waiting while its queue is full."""
        while True:
            try:
                submit(timeout_s=_SLICE_S)
            except QueueFullError:
                self.health.beat()  # waiting for the predictor is not a stuck consumer
            else:
                return

    # ---- on the predictor's thread -------------------------------------------------------------

    def _write_predictions(
        self, messages: Messages, rows: _Rows, n_before: int, submitted_at_s: float,
        held: _Held | None, answer: Answer,
    ) -> None:  # fmt: skip
        self.statistics.judged(messages, rows, answer, n_before)
        if self.recent is not None:
            self.recent.offer(messages, rows, answer.log_posteriors)
        self.metrics.observe_predict(time.perf_counter() - submitted_at_s, len(rows))
        self._add_predictions(messages, rows, held, answer)

    def _add_predictions(
        self, messages: Messages, rows: _Rows, held: _Held | None, answer: Answer
    ) -> None:
        if isinstance(self.predictions, NoSink):
            return
        records = prediction_records(messages, rows, answer, self.short_from_bytes)
        if held is None:
            self.predictions.add(records)
        else:
            held += zip(messages.offsets[rows].tolist(), records, strict=True)

    def _write_rejects(self, rejects: Sequence[Reject]) -> None:
        self.rejects.add([reject_record(each, self.short_from_bytes) for each in rejects])

    def _erase(self, erasure: Erasure, messages: Messages) -> None:
        """Erase what the stream deleted, behind the predictions of the messages before it."""
        rows = messages.deleted
        names, offsets = names_of(messages, rows), messages.offsets[rows].tolist()
        erasure.add(zip(names, repeat(messages.partition), offsets), from_stream=True)

    def _forget_versions(self, recent: RecentStore, messages: Messages) -> None:
        """Let the page forget what stood in the place of updates, and keep the updates."""
        rows = messages.updated
        ids = names_of(messages, rows)
        recent.forget_ids(ids, (messages.partition, (messages.offsets[rows] - 1).tolist()))

    # ---- checkpoints ---------------------------------------------------------------------------

    def _save_beginnings(self, limits: Limits) -> bool:
        """Return whether a checkpoint knows where reading began; if not, write one and wait for it.

        Nothing of these partitions is learned before: after a kill nobody would know where they
        began, nor how long the outputs were. If it fails, messages wait until the next one is due.
        """
        is_saved = self._are_beginnings_saved()
        self._tell_group_beginnings()
        if not is_saved and (self._checkpoint_trouble is None or self.checkpoint.is_due()):
            self._saved_positions = None
            with errors_logged(limits):
                self._await_checkpoint()
                if not self._are_beginnings_saved():
                    self._begin_checkpoint()
                    self._await_checkpoint()
            is_saved = self._are_beginnings_saved()
            self._tell_group_beginnings()
        return is_saved

    def _are_beginnings_saved(self) -> bool:
        if (path := self.checkpoint.path) is None:
            return True
        self.has_outputs = self.has_outputs and not path.exists()
        return not self.has_outputs and not (self.logs is not None and self.logs.has_new())

    def _tell_group_beginnings(self) -> None:
        if self.group is not None and self.logs is not None:
            self.group.begin(self.logs.begun)  # a checkpoint may know it already, the group not

    def _hand_on(self) -> None:
        """Have the parts written that the group lacks, though the checkpoint holds them."""
        if self.group is not None and self.group.is_behind(self.positions):
            self.group.freeze()
            self.checkpoint_writer.hand_on(self.learner.model, self.positions)

    def _begin_checkpoint(self) -> None:
        if self.group is not None:
            self.group.freeze()
        try:
            self.checkpoint_writer.begin(self.learner.model, self.positions, self.health.beat)
        except CheckpointError as error:
            self._note_failed_checkpoint(error)
            raise

    def _await_checkpoint(self) -> None:
        while self.checkpoint_writer.is_busy:
            self.health.beat()
            self._collect_checkpoint(_SLICE_S)

    def _collect_checkpoint(self, timeout_s: float) -> None:
        """Record the checkpoint under way once it is written, and report its positions."""
        try:
            saved = self.checkpoint_writer.outcome(timeout_s)
        except CheckpointError as error:
            self._note_failed_checkpoint(error)
            raise
        if saved is not None:
            self._checkpoint_trouble = None
            self.checkpoint.postpone()
            erasing = self.erasure is not None and self.erasure.waits_for_newer(saved.positions)
            self._saved_positions = None if erasing else saved.positions
            self.metrics.checkpoint_written(saved.seconds, saved.n_bytes)
            if self.handled is None:
                self.reader.report_positions(saved.positions)
            if self.reviser is not None:
                self.reviser.memory.saved()
            if self.logs is not None:
                self.logs.saved()

    def _note_failed_checkpoint(self, error: CheckpointError) -> None:
        self._checkpoint_trouble = str(error)
        self.checkpoint.postpone()
        self.metrics.checkpoint_failed()
