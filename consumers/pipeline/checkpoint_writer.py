"""Carries out a checkpoint's steps 1 to 4 while learning continues; `checkpoint` numbers them.

The consuming thread freezes the model and its positions, which takes as long as copying the counts
of its parts, and queues a marker behind the messages that wait for the predictor. When the
predictor's thread reaches the marker, it flushes the sinks, which it owns. A third thread waits for
that, makes what follows from the parts' counts, and writes the file. At most one checkpoint is
under way at a time.

Other components' entries are taken at the same two moments: those of the consuming thread with the
model, those of the predictor's thread at the marker. So all of them know the same messages.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeAlias

import msgspec
import structlog

from consumers.config.sections import LearningSettings
from consumers.errors import CheckpointError, SinkError, SourceError
from consumers.messages import Checkpointed, CheckpointEntry, Partition, part_name, partition_of
from consumers.monitoring.logs import span
from consumers.pipeline.challengers import ChallengedLearner, Challengers, below
from consumers.pipeline.checkpoint import Checkpoint, SavedCheckpoint
from consumers.pipeline.own_models import (
    OwnLearner,
    OwnModels,
    OwnSnapshot,
    pack_states,
    unpack_states,
)
from consumers.pipeline.reader import Limits, Reader
from consumers.process import return_freed_memory
from consumers.sinks.records import Flushable
from consumers.sources.base import LogFacts
from streamnb import (
    AnswerRule,
    Confidence,
    EveryExamples,
    EveryInterval,
    Learner,
    NaiveBayes,
    Predictor,
    Snapshot,
    SnapshotBoard,
    serialization,
)
from streamnb.errors import PredictorError, QueueFullError
from streamnb.state import FrozenParts, ModelState

# How long a checkpoint may wait for the predictor and the sinks together.
_SAFE_TIMEOUT_S = 30.0
_SLICE_S = 1.0  # how often a wait checks for a stop
log = structlog.get_logger(__name__)

Entries: TypeAlias = dict[str, CheckpointEntry]


class _Deadline:
    """The time until which a checkpoint may wait; it moves closer once the daemon must stop."""

    def __init__(self, stop: threading.Event, stop_timeout_s: float) -> None:
        self._stop, self._stop_timeout_s = stop, stop_timeout_s
        self._since_s = time.monotonic()
        self._until_s = self._since_s + _SAFE_TIMEOUT_S
        self._stop_seen = False

    @property
    def waited_s(self) -> float:
        """Seconds since the wait began."""
        return time.monotonic() - self._since_s

    def slice_s(self) -> float:
        """Return how long to wait before checking again; 0 once the deadline has passed."""
        now_s = time.monotonic()
        if self._stop.is_set() and not self._stop_seen:
            self._stop_seen = True
            self._until_s = min(self._until_s, now_s + self._stop_timeout_s)
        return max(0.0, min(_SLICE_S, self._until_s - now_s))


class CheckpointWriter:
    """Writes checkpoints, one at a time.

    The predictor's answers to the stream must be safe first; its thread alone uses the sinks.
    `before` is called on the checkpoint thread before each checkpoint, and may raise a
    `SourceError` to have none; behind it `share` is called with what was saved, and then `after`.
    `consumed` and `predicted` are the components that have entries, by the thread that they belong
    to. Once `stop` is set, predictor and sinks may take `stop_timeout_s` more.
    """

    def __init__(  # noqa: PLR0913 -- all that a checkpoint waits for
        self,
        checkpoint: Checkpoint,
        predictor: Predictor,
        sinks: Sequence[Flushable],
        stop: threading.Event,
        share: Callable[[ModelState, Mapping[Partition, int]], None] = lambda _state, _at: None,
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
        consumed: Sequence[Checkpointed] = (),
        predicted: Sequence[Checkpointed] = (),
        stop_timeout_s: float = 5.0,
    ) -> None:
        self._checkpoint = checkpoint
        self._predictor = predictor
        self._sinks = tuple(sinks)
        self._stop, self._stop_timeout_s = stop, stop_timeout_s
        self._before, self._share, self._after = before, share, after
        self._consumed, self._predicted = tuple(consumed), tuple(predicted)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[SavedCheckpoint | None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is under way, or done and not yet returned by `outcome`."""
        return self._pending is not None

    def begin(
        self, model: NaiveBayes, positions: Mapping[Partition, int], waiting: Callable[[], None]
    ) -> None:
        """Freeze the model and the next offset of each partition (step 1), and have them written.

        `waiting` is called now and then while the predictor's queue is full. If that stays full, or
        the predictor has ended, it is a `CheckpointError`.
        """
        deadline = _Deadline(self._stop, self._stop_timeout_s)
        safe: Future[Entries] = Future()
        while True:
            try:
                self._predictor.call(lambda: self._make_safe(safe, deadline), timeout_s=_SLICE_S)
                break
            except QueueFullError as error:
                waiting()
                if not deadline.slice_s():
                    raise CheckpointError(f"no checkpoint was written: {error}") from error
            except PredictorError as error:
                raise CheckpointError(f"no checkpoint was written: {error}") from error
        frozen, at = model.state.frozen_parts(), dict(positions)
        entries = _packed(self._consumed)
        self._pending = self._thread.submit(self._write, frozen, at, entries, safe, deadline)

    def hand_on(self, model: NaiveBayes, positions: Mapping[Partition, int]) -> None:
        """Share again what the last checkpoint holds: its file stays current, and none is new."""
        frozen, at = model.state.frozen_parts(), dict(positions)
        self._pending = self._thread.submit(lambda: self._share(frozen.state(), at))

    def outcome(self, timeout_s: float = 0.0) -> SavedCheckpoint | None:
        """Return the checkpoint under way once it is written; None if there is none, or not yet.

        What is handed on without one is none either.
        If it was not written, it is a `CheckpointError`; the one before stays.
        """
        pending = self._pending
        if pending is None or not wait([pending], timeout_s).done:
            return None
        self._pending = None
        self._thread.submit(return_freed_memory)  # the copy of the model is free by now
        return pending.result()

    def close(self) -> None:
        """End the checkpoint thread once it has written what is under way."""
        self._thread.shutdown()

    def _make_safe(self, safe: Future[Entries], deadline: _Deadline) -> None:
        """Flush the sinks with all predictions before the marker: step 2, on the predictor."""
        lost = self._predictor.failure
        if lost is not None:
            safe.set_exception(SinkError(f"what was judged could not be handed on: {lost}"))
            return
        try:
            for sink in self._sinks:
                _flush(sink, deadline)
            entries = _packed(self._predicted)
        except SinkError as error:
            safe.set_exception(error)
        except Exception as error:  # it ends the run; the checkpoint must not keep waiting
            safe.set_exception(SinkError(f"a sink failed: {error!r}"))
            raise
        else:
            safe.set_result(entries)

    def _write(
        self,
        frozen: FrozenParts,
        positions: Mapping[Partition, int],
        entries: Entries,
        safe: Future[Entries],
        deadline: _Deadline,
    ) -> SavedCheckpoint:
        """Wait until the marker has passed, then write: steps 3 and 4, on the checkpoint thread."""
        try:
            with span("checkpoint"):
                entries |= _wait_for(safe, deadline)
                self._before()
                state = frozen.state()
                saved = self._checkpoint.write(state, positions, entries)
            self._share(state, positions)
            self._after()
            return saved  # noqa: TRY300 -- nothing here raises what is caught below
        except (SinkError, SourceError, CheckpointError) as error:
            raise CheckpointError(f"no checkpoint was written: {error}") from error


@contextlib.contextmanager
def errors_logged(limits: Limits | None = None) -> Iterator[None]:
    """Log a checkpoint that was not written instead of raising: the one before it stands.

    A run with `limits` learns nothing before it. So it is raised if the run would end by itself, or
    if no waiting mends it, as the log is another one by now.
    """
    try:
        yield
    except CheckpointError as error:
        if limits is not None:
            is_finite = limits.until_end or limits.messages_max is not None
            if is_finite or isinstance(error.__cause__, SourceError):
                raise
        log.error("checkpoint_failed", detail=str(error))  # noqa: TRY400 -- the detail says it all


def _flush(sink: Flushable, deadline: _Deadline) -> None:
    """Flush in slices, so that a stop is noticed meanwhile."""
    while True:
        slice_s = deadline.slice_s()
        began_s = time.monotonic()
        try:
            sink.flush(slice_s)
        except SinkError:
            # A refusal before the slice is over has another reason than time.
            if time.monotonic() < began_s + slice_s or not deadline.slice_s():
                raise
        else:
            return


def _packed(components: Sequence[Checkpointed]) -> Entries:
    return {each.name: each.pack() for each in components}


def _wait_for(safe: Future[Entries], deadline: _Deadline) -> Entries:
    while True:
        slice_s = deadline.slice_s()
        try:
            return safe.result(slice_s)
        except TimeoutError:
            if not slice_s:
                raise SinkError(
                    f"messages still wait to be judged after {deadline.waited_s:.0f} s; a sink may "
                    "be slow, or the stream faster than the predictor"
                ) from None


class Publishing:
    """Makes the learner that publishes as the settings say, and saves its last snapshot.

    By time, a run that begins publishes what it restored. By examples, what leaves is to be a
    function of the log: messages behind a checkpoint are judged by the snapshot before it, whose
    version goes on too. If the model has learned since, the checkpoint holds that snapshot beside
    the model.
    """

    name = "snapshot"

    def __init__(self, settings: LearningSettings) -> None:
        self._settings = settings
        self._by_examples = settings.publish == "examples"
        self._learner: Learner | None = None
        self._version = 0  # of the restored snapshot; 0 if there is none
        self._known: NaiveBayes | None = None  # what it knew, if the model knows more
        self._own: Mapping[str, ModelState] = {}  # what it knew by value then, with `per.field`
        self._rule: Mapping[str, Any] | None = None  # what it answered by

    @property
    def entries(self) -> Sequence[Checkpointed]:
        """The component itself if checkpoints are to hold the snapshot, else none."""
        return (self,) if self._by_examples else ()

    def learner(
        self,
        model: NaiveBayes,
        board: SnapshotBoard,
        clock: Callable[[], float],
        confidence: Confidence | None = None,
        others: Challengers | OwnModels | None = None,
    ) -> Learner:
        """Return the learner of a model, with its first snapshot published."""
        settings = self._settings
        make: Callable[..., Learner] = Learner
        if isinstance(others, Challengers):
            make = partial(ChallengedLearner, others)
        elif others is not None:
            make = partial(OwnLearner, others)
        if not self._by_examples:
            by_time = EveryInterval(settings.publish_interval_s, settings.publish_share_max, clock)
            return make(model, board, by_time, clock, confidence=confidence)
        known, self._known = self._known, None
        n_classes = len((known or model).classes)
        rule = None if confidence is None else self._rule_of(confidence, n_classes)
        snapshot = Snapshot(known or model, self._version, rule) if self._version else None
        if snapshot is not None and isinstance(others, OwnModels):
            own = others.frozen() if known is None else self._own
            snapshot = OwnSnapshot(known or model, self._version, rule, own, others.per)
        policy = EveryExamples(settings.publish_examples)
        self._learner = make(
            model, board, policy, clock, snapshot, is_current=known is None, confidence=confidence
        )
        return self._learner

    def _rule_of(self, confidence: Confidence, n_classes: int) -> AnswerRule:
        """Return the rule of the restored snapshot, but what is off or begins again as now."""
        now = confidence.rule(n_classes)
        if self._rule is None:
            return now
        before = AnswerRule.from_dict(self._rule)
        calibrator, sets = confidence.calibrator, confidence.conformal
        return AnswerRule(
            before.curve if calibrator is not None and calibrator.n else now.curve,
            before.threshold if sets is not None and sets.n else now.threshold,
            now.costs,
        )

    def pack(self) -> CheckpointEntry:
        """Return the snapshot's version, and what it knows if the model knows more by now."""
        assert self._learner is not None
        snapshot = self._learner.snapshot
        values: dict[str, Any] = {"version": snapshot.version}
        if self._learner.confidence is not None:
            values["rule"] = snapshot.rule.to_dict()
        if self._learner.is_current:
            return CheckpointEntry(values)
        header, arrays = serialization.pack(snapshot.state, {})
        values |= {"model": header}
        if isinstance(snapshot, OwnSnapshot):
            own = pack_states(snapshot.own)
            values |= {"own": own.values}
            arrays = {**arrays, **{f"own/{name}": each for name, each in own.arrays.items()}}
        return CheckpointEntry(values, arrays)

    def unpack(self, entry: CheckpointEntry) -> None:
        """Keep the snapshot for `learner`."""
        self._version = entry.values["version"]
        self._rule = entry.values.get("rule")
        if "model" in entry.values:
            theirs = {k: each for k, each in entry.arrays.items() if not k.startswith("own/")}
            state, _ = serialization.unpack(entry.values["model"], theirs)
            self._known = NaiveBayes.of(state)
            own = CheckpointEntry(entry.values.get("own", {}), below(entry.arrays, "own/"))
            self._own = unpack_states(own)


class KnownLogs:
    """What is known of each log beside its position: an entry of the checkpoint.

    `positions` are those of the stream, moved on by the consuming thread; `others` returns what is
    known of further logs at these, `others_begun` of each where reading has begun: as
    `Reader.beginnings`, these are replaced, never changed.
    """

    name = "logs"

    def __init__(
        self,
        reader: Reader,
        positions: Mapping[Partition, int],
        others: Callable[
            [Mapping[Partition, int]], Mapping[Partition, LogFacts]
        ] = lambda _positions: {},
        others_begun: Callable[[], Sequence[Mapping[Partition, LogFacts]]] = tuple,
    ) -> None:
        self._others, self._others_begun = others, others_begun
        self.facts: Mapping[Partition, LogFacts] = {}
        self._reader = reader
        self._positions = positions
        self._is_new = False
        self._begun: tuple[Mapping[Partition, LogFacts], ...] = ()  # of the stream first
        self._packed: object = self._begun  # what had begun at the last checkpoint
        self._saved: Mapping[Partition, LogFacts] = {}  # the facts of the last that was saved

    def has_new(self) -> bool:
        """Return whether reading has begun in partitions that no saved checkpoint knows."""
        begun = self._reader.beginnings, *self._others_begun()
        if [*map(id, begun)] != [*map(id, self._begun)]:
            self._begun = begun
            self._is_new |= any(not each.items() <= self._saved.items() for each in begun)
        return self._is_new

    def saved(self) -> None:
        """Know that the checkpoint stands which has what was packed last."""
        self._saved = self.facts
        self._is_new &= self._packed is not self._begun

    @property
    def begun(self) -> Mapping[Partition, LogFacts]:
        """Where reading of the stream has begun in this run."""
        return self._begun[0] if self._begun else {}

    def pack(self) -> CheckpointEntry:
        """Return what is known where the stream stands now."""
        self._packed = self._begun
        self.facts = {
            **self.facts,
            **self._others(self._positions),
            **self._reader.logs(self._positions),
        }
        return CheckpointEntry(
            {part_name(each): msgspec.to_builtins(facts) for each, facts in self.facts.items()}
        )

    def unpack(self, entry: CheckpointEntry) -> None:
        """Go on with what a checkpoint knew."""
        facts = msgspec.convert(entry.values, dict[str, LogFacts])
        self._saved = self.facts = {partition_of(name): own for name, own in facts.items()}
