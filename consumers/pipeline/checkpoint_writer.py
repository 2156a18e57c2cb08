"""Carries a checkpoint's steps out beside the learning; `checkpoint` numbers them.

The consuming thread freezes model and positions, which takes as long as copying the counts, and
sends a mark after the batches that wait to be judged. When the mark comes out on the predictor's
thread, everything before it has been judged and handed on, and the sinks are flushed there, by the
thread that they belong to. A third thread waits for that and writes the file. Meanwhile the
learning goes on. There is at most one checkpoint in the making.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from consumers.errors import CheckpointError, SinkError
from consumers.messages import Partition
from consumers.monitoring.tracing import span
from consumers.pipeline.checkpoint import Checkpoint, Written
from consumers.sinks.base import Flushable
from streamnb import NaiveBayes, Predictor
from streamnb.errors import PredictorError, QueueFullError
from streamnb.serialization import FrozenModel, freeze

# How long a checkpoint may wait for the predictor and the sinks, all together; and how long once
# the daemon is told to stop, for whoever told it will kill it after half a minute.
_SAFE_TIMEOUT_S = 30.0
_SAFE_TIMEOUT_AT_STOP_S = 5.0
_SLICE_S = 1.0  # how often a wait looks whether the daemon is told to stop


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that stands.

    Attributes
    ----------
    positions : mapping of Partition to int
        The next offsets in it.
    written : Written
        What writing it took.
    """

    positions: Mapping[Partition, int]
    written: Written


class _Patience:
    """How long may still be waited, which shrinks once the daemon is told to stop."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._since_s = time.monotonic()
        self._until_s = self._since_s + _SAFE_TIMEOUT_S
        self._stop_seen = False

    @property
    def waited_s(self) -> float:
        """How long it has been waited."""
        return time.monotonic() - self._since_s

    def slice_s(self) -> float:
        """Return how long to wait before asking again; 0 where patience is over."""
        now_s = time.monotonic()
        if self._stop.is_set() and not self._stop_seen:
            self._stop_seen = True
            self._until_s = min(self._until_s, now_s + _SAFE_TIMEOUT_AT_STOP_S)
        return max(0.0, min(_SLICE_S, self._until_s - now_s))


class Saving:
    """Makes checkpoints, one at a time.

    Parameters
    ----------
    checkpoint : Checkpoint
    predictor : Predictor
        Whose answers to the stream have to be safe first.
    sinks : sequence of Flushable
        Written to by the predictor's thread alone.
    stop : threading.Event
        Set when the daemon is to end.
    after : callable
        Called on the writing thread once a checkpoint stands; it must be quick.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        predictor: Predictor,
        sinks: Sequence[Flushable],
        stop: threading.Event,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._checkpoint = checkpoint
        self._predictor = predictor
        self._sinks = tuple(sinks)
        self._stop = stop
        self._after = after
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._making: Future[Saved] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether one is in the making, or made and not yet asked for by `outcome`."""
        return self._making is not None

    def begin(
        self,
        model: NaiveBayes,
        positions: Mapping[Partition, int],
        waiting: Callable[[], None],
    ) -> None:
        """Freeze model and positions; the rest goes on by itself.

        Parameters
        ----------
        model : NaiveBayes
        positions : mapping of Partition to int
            The next offset of each partition that was read.
        waiting : callable
            Called now and then while the predictor's queue has no place.

        Raises
        ------
        CheckpointError
            Where there was no place in time, or the predictor has ended.
        """
        patience = _Patience(self._stop)
        safe: Future[None] = Future()
        while True:
            try:
                self._predictor.call(lambda: self._make_safe(safe, patience), timeout_s=_SLICE_S)
                break
            except QueueFullError as error:
                waiting()
                if not patience.slice_s():
                    raise CheckpointError(f"no checkpoint was written: {error}") from error
            except PredictorError as error:
                raise CheckpointError(f"no checkpoint was written: {error}") from error
        frozen, at = freeze(model), dict(positions)
        self._making = self._writer.submit(self._write, frozen, at, safe, patience)

    def outcome(self, timeout_s: float = 0.0) -> Saved | None:
        """Return what came of the one in the making; None where there is none, or not yet.

        Raises
        ------
        CheckpointError
            Where it was not written; the one before stands.
        """
        making = self._making
        if making is None or not wait([making], timeout_s).done:
            return None
        self._making = None
        return making.result()

    def close(self) -> None:
        """End the writing thread, once it has nothing more to write."""
        self._writer.shutdown()

    def _make_safe(self, safe: Future[None], patience: _Patience) -> None:
        """Flush the sinks, which hold all judgements before the mark; on the predictor's thread."""
        lost = self._predictor.failure
        if lost is not None:
            safe.set_exception(SinkError(f"what was judged could not be handed on: {lost}"))
            return
        try:
            for sink in self._sinks:
                _flush(sink, patience)
        except SinkError as error:
            safe.set_exception(error)
        except Exception as error:
            # It is the predictor's failure, which ends the run; the checkpoint must not wait on.
            safe.set_exception(SinkError(f"a sink failed: {error!r}"))
            raise
        else:
            safe.set_result(None)

    def _write(
        self,
        frozen: FrozenModel,
        positions: Mapping[Partition, int],
        safe: Future[None],
        patience: _Patience,
    ) -> Saved:
        """Wait until the mark has passed, then write; on the writing thread."""
        try:
            with span("checkpoint"):
                _wait_for(safe, patience)
                saved = Saved(positions, self._checkpoint.write(frozen, positions))
            self._after()
            return saved  # noqa: TRY300 -- nothing here raises what is caught below
        except (SinkError, CheckpointError) as error:
            raise CheckpointError(f"no checkpoint was written: {error}") from error


def _flush(sink: Flushable, patience: _Patience) -> None:
    """Flush in slices, so that a stop is seen meanwhile."""
    while True:
        slice_s = patience.slice_s()
        began_s = time.monotonic()
        try:
            sink.flush(slice_s)
        except SinkError:
            # What is refused before its slice is over has another reason than time.
            if time.monotonic() < began_s + slice_s or not patience.slice_s():
                raise
        else:
            return


def _wait_for(safe: Future[None], patience: _Patience) -> None:
    while True:
        slice_s = patience.slice_s()
        try:
            return safe.result(slice_s)
        except TimeoutError:
            if not slice_s:
                raise SinkError(
                    f"messages still wait to be judged after {patience.waited_s:.0f} s; a sink may "
                    "be slow, or the stream faster than the predictor"
                ) from None
