"""A worker of the predictor: a bounded queue, and one thread that works it off in its order.

What wants an answer is a `Request`, a question to the snapshot that is current when its turn comes;
an `QueuedCall` is something to do in its turn.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from streamnb.errors import PredictorError, PredictorStopped, QueueFullError
from streamnb.serving.snapshot import Snapshot, SnapshotBoard


@dataclass(frozen=True, slots=True)
class Request:
    """A question to a snapshot, and what to do with the answer."""

    question: Callable[[Snapshot], Any]
    then: Callable[[Any], None] | None
    future: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """Something to do in its turn, without an answer."""

    run: Callable[[], None]


class Worker:
    """One class of work: a bounded queue, and the thread that works it off in its order.

    Parameters
    ----------
    board : SnapshotBoard
        Where the snapshots are that answer.
    queue_size_max : int
        How much may wait.
    name : str
        Of the thread.
    """

    def __init__(self, board: SnapshotBoard, queue_size_max: int, name: str) -> None:
        self._board = board
        self._queue: queue.Queue[Request | QueuedCall | None] = queue.Queue(queue_size_max)
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._ended = False
        self.failure: BaseException | None = None

    @property
    def n_waiting(self) -> int:
        """How much waits."""
        return self._queue.qsize()

    def put(self, work: Request | QueuedCall, timeout_s: float) -> None:
        """Put work in, or raise `QueueFullError` where there was no place in time."""
        try:
            self._queue.put(work, block=timeout_s > 0, timeout=timeout_s or None)
        except queue.Full:
            raise QueueFullError(
                f"{self._queue.maxsize} requests are waiting already; ask again later, or raise"
                " queue_size_max."
            ) from None
        if self._ended:
            self._refuse_rest()  # the thread ended just before this one came

    def drain(self, deadline: float) -> int:
        """Wait until nothing is left; return how much was, at the deadline or the thread's end."""
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                rest = deadline - time.monotonic()
                if rest <= 0 or not self.thread.is_alive():
                    break
                self._queue.all_tasks_done.wait(rest)
            return self._queue.unfinished_tasks

    def stop(self, deadline: float) -> None:
        """Answer what waits, then end the thread, within the deadline."""
        if not self.thread.is_alive():
            self._end()
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=max(0.0, deadline - time.monotonic()))
        self.thread.join(max(0.0, deadline - time.monotonic()))
        if self._ended:
            self._refuse_rest()  # the thread ended before it came to our word that it should

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                if isinstance(work, QueuedCall):
                    work.run()
                # Who asked may have given up; cancelled or not, it is settled from here on.
                elif work.future.set_running_or_notify_cancel():
                    self._serve_one(work)
            except BaseException as error:  # noqa: BLE001 -- it comes out of `drain`, on the thread that can act on it
                # Even `SystemExit`: a thread that ended here would leave all who ask later waiting.
                self.failure = error
            finally:
                self._queue.task_done()
        self._queue.task_done()
        self._end()

    def _serve_one(self, request: Request) -> None:
        try:
            answer = request.question(self._snapshot())
        except BaseException as error:  # noqa: BLE001 -- whatever went wrong belongs to who asked; the thread lives on
            self._fail(request, error)
        else:
            request.future.set_result(answer)
            if request.then is not None:
                request.then(answer)

    def _snapshot(self) -> Snapshot:
        snapshot = self._board.current()
        if snapshot is None:
            raise PredictorError("there is no snapshot yet; publish one before asking.")
        return snapshot

    def _fail(self, request: Request, error: BaseException) -> None:
        if request.then is not None:
            self.failure = error  # the answer was to be handed on, and is lost
        request.future.set_exception(error)

    def _end(self) -> None:
        # In this order: a request is either here when the rest is refused, or sees that it is late.
        self._ended = True
        self._refuse_rest()

    def _refuse_rest(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                work = self._queue.get_nowait()
                if isinstance(work, QueuedCall):
                    self.failure = stopped()
                elif work is not None and work.future.set_running_or_notify_cancel():
                    self._fail(work, stopped())
                self._queue.task_done()


def stopped() -> PredictorStopped:
    """Return the error of whoever asks too late."""
    return PredictorStopped("the predictor has been stopped; start another one.")
