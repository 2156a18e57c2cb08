"""The predictor: a thread that answers from the newest snapshot.

Requests wait in a bounded queue; each is answered, whole, from one snapshot, and the answer says
which. The thread never waits for the learner, and the learner never for it.
"""

from __future__ import annotations

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
        self._failure: BaseException | None = None

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
            Called with the answer, on the predictor's thread. What it raises comes out of `drain`.
        timeout_s : float
            How long to wait for a place in the queue.

        Raises
        ------
        QueueFullError
            Where the queue stayed full.
        PredictorStopped
        """
        if self._stopped:
            raise PredictorStopped("the predictor has been stopped; start another one.")
        future: Future[Answer] = Future()
        try:
            self._queue.put((columns, future, then), block=timeout_s > 0, timeout=timeout_s or None)
        except queue.Full:
            raise QueueFullError(
                f"{self._queue.maxsize} requests are waiting already;"
                " ask again later, or raise queue_size_max."
            ) from None
        return future

    def predict_one(self, x: Mapping[str, Any], timeout_s: float = 10.0) -> Answer:
        """Return the answer for one example, with one row."""
        return self.predict_many({name: [value] for name, value in x.items()}, timeout_s)

    def predict_many(self, columns: Any, timeout_s: float = 10.0) -> Answer:
        """Return the answer for a batch, waiting for it."""
        return self.submit(columns, timeout_s=timeout_s).result(timeout_s)

    def drain(self, timeout_s: float) -> None:
        """Wait until everything asked so far is answered and its `then` has run.

        Raises
        ------
        PredictorError
            Where that took longer than `timeout_s`, or a `then` failed.
        """
        deadline = time.monotonic() + timeout_s
        with self._queue.all_tasks_done:
            while self._queue.unfinished_tasks:
                rest = deadline - time.monotonic()
                if rest <= 0 or not self._thread.is_alive():
                    raise PredictorError(
                        f"{self._queue.unfinished_tasks} requests were not answered"
                        f" within {timeout_s} s."
                    )
                self._queue.all_tasks_done.wait(rest)
        if self._failure is not None:
            # It stays: an answer was lost, and no later checkpoint may pass over it.
            raise PredictorError(
                f"handing on an answer failed: {self._failure}."
                " Start again from the last checkpoint."
            ) from self._failure

    def stop(self, timeout_s: float = 5.0) -> None:
        """Answer what waits, then end the thread."""
        if not self._stopped:
            self._stopped = True
            self._queue.put(None)
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            columns, future, then = work
            try:
                answer = self._answer(columns)
            except Exception as error:  # noqa: BLE001 -- whatever went wrong belongs to who asked; the thread lives on
                future.set_exception(error)
            else:
                future.set_result(answer)
                if then is not None:
                    self._hand_on(then, answer)
            finally:
                self._queue.task_done()
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
