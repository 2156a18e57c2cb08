"""The predictor: threads that answer from the newest snapshot.

There are two classes of work, each with a bounded queue and a thread of its own. *Urgent* requests
are those that somebody waits for (`predict_one`, `predict_many`); they overtake the batches of a
stream, however many of these wait and however long handing on their answers takes. Snapshots are
sealed values that any number of threads may read, so neither worker waits for the other, for the
learner, or the learner for them. Each request is answered, whole, from one snapshot, and the answer
says which; within its class, requests are answered in their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from streamnb.errors import InputError, PredictorError, check_has, check_whole
from streamnb.features.protocol import Floats
from streamnb.labels import Label
from streamnb.serving.snapshot import Snapshot, SnapshotBoard
from streamnb.serving.worker import QueuedCall, Request, Worker, stopped

T = TypeVar("T")


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


class Predictor:
    """Two reading threads with a bounded queue each.

    Parameters
    ----------
    board : SnapshotBoard
        Where snapshots are put up; there must be one before the first request.
    queue_size_max : int
        How many requests of each class may wait; at least 1.

    Examples
    --------
    >>> predictor = Predictor(SnapshotBoard())
    >>> predictor.start()
    >>> predictor.stop()
    """

    def __init__(self, board: SnapshotBoard, queue_size_max: int = 64) -> None:
        check_has("board", board, "current")
        check_whole("queue_size_max", queue_size_max, 1)  # a queue of 0 or less has no bound
        self._stream = Worker(board, queue_size_max, "predict")
        self._urgent = Worker(board, queue_size_max, "predict-urgent")
        self._stopped = False

    @property
    def failure(self) -> BaseException | None:
        """What kept an answer from being handed on; such an answer is lost, and `drain` refuses."""
        return self._stream.failure or self._urgent.failure

    @property
    def n_waiting(self) -> int:
        """Requests that wait, of both classes."""
        return self._stream.n_waiting + self._urgent.n_waiting

    def start(self) -> None:
        """Start the threads; once stopped, that is refused as all asking is."""
        if self._stopped:
            raise stopped()
        self._stream.thread.start()
        self._urgent.thread.start()

    def submit(
        self,
        columns: Any,
        *,
        then: Callable[[Answer], None] | None = None,
        timeout_s: float = 0.0,
        urgent: bool = False,
    ) -> Future[Answer]:
        """Ask for the posteriors of a batch.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            As for `NaiveBayes.predict_log_proba_many`.
        then : callable, optional
            Called with the answer, on the thread that answered. What it raises comes out of
            `drain`, and so does what kept the answer from it.
        timeout_s : float
            How long to wait for a place in the queue.
        urgent : bool
            Whether somebody waits for the answer: it then overtakes everything that is not urgent.

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
        request = Request(lambda snapshot: _judge(snapshot, columns), then)
        self._put(self._urgent if urgent else self._stream, request, timeout_s)
        return cast("Future[Answer]", request.future)

    def ask(self, question: Callable[[Snapshot], T], *, timeout_s: float = 0.0) -> Future[T]:
        """Ask the current snapshot anything; it is urgent.

        Parameters
        ----------
        question : callable
            Called with the snapshot, on the thread that answers. It should be quick: whoever asks
            next waits for it. What it raises comes out of the future.
        timeout_s : float
            How long to wait for a place in the queue.

        Returns
        -------
        Future
            What `question` returns. It may be cancelled while it waits.

        Raises
        ------
        QueueFullError
            Where the queue stayed full.
        PredictorStopped
            Where the predictor has been stopped.
        """
        request = Request(question, None)
        self._put(self._urgent, request, timeout_s)
        return cast("Future[T]", request.future)

    def call(self, run: Callable[[], None], *, timeout_s: float = 0.0) -> None:
        """Have something done behind all stream batches asked so far, on the thread they are on.

        Parameters
        ----------
        run : callable
            What it raises comes out of `drain`, as for `submit`'s `then`.
        timeout_s : float
            How long to wait for a place in the queue.

        Raises
        ------
        QueueFullError
            Where the queue stayed full.
        PredictorStopped
            Where the predictor has been stopped.
        """
        self._put(self._stream, QueuedCall(run), timeout_s)

    def predict_one(self, x: Mapping[str, Any], timeout_s: float = 10.0) -> Answer:
        """Return the answer for one example, with one row; see `predict_many`."""
        if not isinstance(x, Mapping):
            raise InputError(
                f"x must be a mapping of field names to values. Got {type(x).__name__} instead."
            )
        return self.predict_many({name: [value] for name, value in x.items()}, timeout_s)

    def predict_many(self, columns: Any, timeout_s: float = 10.0) -> Answer:
        """Return the answer for a batch, waiting for it; it is urgent.

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
        future = self.submit(columns, timeout_s=timeout_s, urgent=True)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            future.cancel()
            raise PredictorError(
                f"no answer within {timeout_s} s, with {self._urgent.n_waiting} requests waiting;"
                " ask again later, or allow more time."
            ) from None

    def drain(self, timeout_s: float) -> None:
        """Wait until everything asked so far is answered and its `then` has run.

        Raises
        ------
        PredictorError
            Where that took longer than `timeout_s`, or a `then` failed or got no answer.
        """
        deadline = time.monotonic() + timeout_s
        for worker in (self._stream, self._urgent):
            n_left = worker.drain(deadline)
            if n_left:
                raise PredictorError(
                    f"{n_left} requests were not answered within {timeout_s} s; allow more time, or"
                    " start again from the last checkpoint."
                )
        if self.failure is not None:
            # It stays: an answer was lost, and no later checkpoint may pass over it.
            raise PredictorError(
                f"handing on an answer failed: {self.failure}."
                " Start again from the last checkpoint."
            ) from self.failure

    def stop(self, timeout_s: float = 5.0) -> None:
        """Answer what waits, then end the threads. May be called again.

        Parameters
        ----------
        timeout_s : float
            How long to wait for that; a thread is left to itself then, and asked no more.
        """
        deadline = time.monotonic() + timeout_s
        self._stopped = True
        for worker in (self._urgent, self._stream):
            worker.stop(deadline)

    def _put(self, worker: Worker, work: Request | QueuedCall, timeout_s: float) -> None:
        if self._stopped:
            raise stopped()
        worker.put(work, timeout_s)


def _judge(snapshot: Snapshot, columns: Any) -> Answer:
    posteriors = snapshot.predict_log_proba_many(columns)
    return Answer(posteriors, snapshot.classes, snapshot.version, snapshot.n_examples)
