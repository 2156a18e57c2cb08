"""The predictor: a thread that answers from the newest snapshot.

Requests wait in a bounded queue; each is answered, whole, from one snapshot, and the answer says
which. The thread never waits for the learner, and the learner never for it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from streamnb.board import SnapshotBoard
from streamnb.errors import PredictorError, PredictorStopped, QueueFullError
from streamnb.labels import Label
from streamnb.reading import Floats


@dataclass(frozen=True, slots=True)
class Answer:
    """What the predictor says of a request.

    Attributes
    ----------
    log_posteriors : ndarray of shape (n, n_classes), in nats
    classes : tuple
        In the order of the columns.
    version : int
        The snapshot that answered.
    n_examples : int
        How many examples that snapshot had seen.
    """

    log_posteriors: Floats
    classes: tuple[Label, ...]
    version: int
    n_examples: int


Work = tuple[Any, "Future[Answer]", Callable[[Answer], None] | None]


class Predictor:
    """A reading thread with a bounded queue.

    Parameters
    ----------
    board : SnapshotBoard
        Where snapshots are put up; there must be one before the first request.
    queue_size_max : int
        How many requests may wait.

    Examples
    --------
    >>> predictor = Predictor(SnapshotBoard())
    >>> predictor.start()
    >>> predictor.stop()
    """

    def __init__(self, board: SnapshotBoard, queue_size_max: int = 64) -> None:
        self._board = board
        self._queue: queue.Queue[Work | None] = queue.Queue(queue_size_max)
        self._thread = threading.Thread(target=self._serve, name="predict", daemon=True)
        self._stopped = False
        self._ended = False
        self._failure: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """What kept an answer from being handed on; such an answer is lost, and `drain` refuses."""
        return self._failure

    @property
    def n_waiting(self) -> int:
        """Requests that wait."""
        return self._queue.qsize()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(
        self,
        columns: Any,
        *,
        then: Callable[[Answer], None] | None = None,
        timeout_s: float = 0.0,
    ) -> Future[Answer]:
        """Ask for the posteriors of a batch.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            As for `NaiveBayes.predict_log_proba_many`.
        then : callable, optional
            Called with the answer, on the predictor's thread. What it raises comes out of `drain`,
            and so does what kept the answer from it.
        timeout_s : float
            How long to wait for a place in the queue.

        Returns
        -------
        Future of Answer
            It may be cancelled while it waits; `then` is not called in that case.

        Raises
        ------
        QueueFullError
            Where the queue stayed full.
        PredictorStopped
            Where the predictor has been stopped.
        """
        if self._stopped:
            raise _stopped()
        future: Future[Answer] = Future()
        try:
            self._queue.put((columns, future, then), block=timeout_s > 0, timeout=timeout_s or None)
        except queue.Full:
            raise QueueFullError(
                f"{self._queue.maxsize} requests are waiting already; ask again later, or raise"
                " queue_size_max."
            ) from None
        if self._ended:
            self._refuse_rest()  # the thread ended just before this one came
        return future

    def predict_one(self, x: Mapping[str, Any], timeout_s: float = 10.0) -> Answer:
        """Return the answer for one example, with one row."""
        return self.predict_many({name: [value] for name, value in x.items()}, timeout_s)

    def predict_many(self, columns: Any, timeout_s: float = 10.0) -> Answer:
        """Return the answer for a batch, waiting for it.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            As for `NaiveBayes.predict_log_proba_many`.
        timeout_s : float
            How long to wait for a place in the queue, and then for the answer.

        Raises
        ------
        PredictorError
            Where there was no place (`QueueFullError`) or no answer in time, or no snapshot yet.
        InputError
            For a value that cannot be used.
        """
        future = self.submit(columns, timeout_s=timeout_s)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise PredictorError(
                f"no answer within {timeout_s} s, with {self.n_waiting} requests waiting; ask again"
                " later, or allow more time."
            ) from None

    def drain(self, timeout_s: float) -> None:
        """Wait until everything asked so far is answered and its `then` has run.

        Raises
        ------
        PredictorError
            Where that took longer than `timeout_s`, or a `then` failed or got no answer.
        """
        deadline = time.monotonic() + timeout_s
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                rest = deadline - time.monotonic()
                if rest <= 0 or not self._thread.is_alive():
                    raise PredictorError(
                        f"{self._queue.unfinished_tasks} requests were not answered within"
                        f" {timeout_s} s; allow more time, or start again from the last checkpoint."
                    )
                self._queue.all_tasks_done.wait(rest)
        if self._failure is not None:
            # It stays: an answer was lost, and no later checkpoint may pass over it.
            raise PredictorError(
                f"handing on an answer failed: {self._failure}."
                " Start again from the last checkpoint."
            ) from self._failure

    def stop(self, timeout_s: float = 5.0) -> None:
        """Answer what waits, then end the thread. May be called again.

        Parameters
        ----------
        timeout_s : float
            How long to wait for that; the thread is left to itself then, and asked no more.
        """
        deadline = time.monotonic() + timeout_s
        self._stopped = True
        if not self._thread.is_alive():
            self._end()
            return
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._ended:
            self._refuse_rest()  # the thread ended before it came to our word that it should

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            columns, future, then = work
            try:
                # Who asked may have given up; cancelled or not, it is settled from here on.
                if future.set_running_or_notify_cancel():
                    self._serve_one(columns, future, then)
            finally:
                self._queue.task_done()
        self._queue.task_done()
        self._end()

    def _serve_one(
        self, columns: Any, future: Future[Answer], then: Callable[[Answer], None] | None
    ) -> None:
        try:
            answer = self._answer(columns)
        except Exception as error:  # noqa: BLE001 -- whatever went wrong belongs to who asked; the thread lives on
            self._fail(future, then, error)
        else:
            future.set_result(answer)
            if then is not None:
                self._hand_on(then, answer)

    def _fail(
        self,
        future: Future[Answer],
        then: Callable[[Answer], None] | None,
        error: Exception,
    ) -> None:
        if then is not None:
            self._failure = error  # the answer was to be handed on, and is lost
        future.set_exception(error)

    def _end(self) -> None:
        # In this order: a request is either here when the rest is refused, or sees that it is late.
        self._ended = True
        self._refuse_rest()

    def _refuse_rest(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                work = self._queue.get_nowait()
                if work is not None and work[1].set_running_or_notify_cancel():
                    self._fail(work[1], work[2], _stopped())
                self._queue.task_done()

    def _answer(self, columns: Any) -> Answer:
        snapshot = self._board.current()
        if snapshot is None:
            raise PredictorError("there is no snapshot yet; publish one before asking.")
        posteriors = snapshot.predict_log_proba_many(columns)
        return Answer(posteriors, snapshot.classes, snapshot.version, snapshot.n_examples)

    def _hand_on(self, then: Callable[[Answer], None], answer: Answer) -> None:
        try:
            then(answer)
        except Exception as error:  # noqa: BLE001 -- it comes out of `drain`, on the thread that can act on it
            self._failure = error


def _stopped() -> PredictorStopped:
    return PredictorStopped("the predictor has been stopped; start another one.")
