"""The predictor: threads that answer from the newest snapshot.

There are two classes of work, each with a bounded queue and a thread of its own. *Urgent* requests
are those that somebody waits for (`predict_one`, `predict_many`); they overtake the batches of a
stream, however many of these wait and however long handing on their answers takes. Snapshots are
sealed values that any number of threads may read, so neither worker waits for the other, for the
learner, or the learner for them. Each request is answered, whole, from one snapshot, and the answer
says which; within its class, requests are answered in their order.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from streamnb.decisions import AnswerRule
from streamnb.errors import (
    InputError,
    PredictorError,
    PredictorStopped,
    QueueFullError,
    check_has,
    check_kind,
    check_timeout,
    check_whole,
)
from streamnb.features.protocol import Floats
from streamnb.labels import Label
from streamnb.predict import to_columns
from streamnb.serving.publisher import AnsweredBy, Snapshot, SnapshotBoard

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
    rule : AnswerRule
        The snapshot's: by it the posteriors are calibrated, and sets and labels follow from them.
    answered_by : sequence of AnsweredBy, optional
        Which of several models answered each example; see `Snapshot.answered_by`.
    """

    log_posteriors: Floats
    classes: tuple[Label, ...]
    version: int
    n_examples: int
    rule: AnswerRule = field(default_factory=AnswerRule)
    answered_by: Sequence[AnsweredBy] | None = None


class Predictor:
    """Two reading threads with a bounded queue each.

    Parameters
    ----------
    board : SnapshotBoard
        Holds the newest snapshot; there must be one before the first request.
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
        """Why an answer did not reach its `then`; that answer is lost, and `drain` raises."""
        return self._stream.failure or self._urgent.failure

    @property
    def n_waiting(self) -> int:
        """Number of requests that wait, of both classes."""
        return self._stream.n_waiting + self._urgent.n_waiting

    def start(self) -> None:
        """Start the threads; a stopped predictor refuses, as it refuses all questions.

        Raises
        ------
        PredictorError
            If it runs already.
        PredictorStopped
            If it has been stopped.
        """
        if self._stopped:
            raise stopped()
        if self._stream.thread.ident is not None:
            raise PredictorError("the predictor runs already; start it once.")
        self._stream.thread.start()
        self._urgent.thread.start()

    def submit(
        self,
        columns: Any,
        *,
        then: Callable[[Answer], None] | None = None,
        timeout_s: float = 0.0,
        urgent: bool = False,
        snapshot: Snapshot | None = None,
    ) -> Future[Answer]:
        """Ask for the posteriors of a batch.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            As for `NaiveBayes.predict_log_proba_many`.
        then : callable, optional
            Called with the answer, on the thread that answered. `drain` raises what it raises, and
            also the error that kept the answer from it.
        timeout_s : float
            How long to wait for a place in the queue.
        urgent : bool
            Whether somebody waits for the answer: it then overtakes all that is not urgent.
        snapshot : Snapshot, optional
            Answers this request, whatever is published before its turn; None for the one that is
            newest in its turn.

        Returns
        -------
        Future of Answer
            It may be cancelled while it waits; `then` is not called in that case.

        Raises
        ------
        QueueFullError
            If the queue stayed full.
        PredictorStopped
            If the predictor has been stopped.
        """
        if then is not None:
            check_has("then", then, "__call__")
        if snapshot is not None:
            check_kind("snapshot", snapshot, Snapshot)
        request = Request(lambda newest: _judge(snapshot or newest, columns), then)
        self._put(self._urgent if urgent else self._stream, request, timeout_s)
        return cast("Future[Answer]", request.future)

    def ask(self, question: Callable[[Snapshot], T], *, timeout_s: float = 0.0) -> Future[T]:
        """Ask the current snapshot anything; it is urgent.

        Parameters
        ----------
        question : callable
            Called with the snapshot, on the thread that answers. It should be quick: whoever asks
            next waits for it. The future raises what it raises.
        timeout_s : float
            How long to wait for a place in the queue.

        Returns
        -------
        Future
            What `question` returns. It may be cancelled while it waits.

        Raises
        ------
        QueueFullError
            If the queue stayed full.
        PredictorStopped
            If the predictor has been stopped.
        """
        check_has("question", question, "__call__")
        request = Request(question, None)
        self._put(self._urgent, request, timeout_s)
        return cast("Future[T]", request.future)

    def call(self, run: Callable[[], None], *, timeout_s: float = 0.0) -> None:
        """Run a callback on the predictor thread after every stream batch submitted so far.

        Parameters
        ----------
        run : callable
            `drain` raises what it raises, as for `submit`'s `then`.
        timeout_s : float
            How long to wait for a place in the queue.

        Raises
        ------
        QueueFullError
            If the queue stayed full.
        PredictorStopped
            If the predictor has been stopped.
        """
        check_has("run", run, "__call__")
        self._put(self._stream, QueuedCall(run), timeout_s)

    def predict_one(self, x: Mapping[str, Any], timeout_s: float = 10.0) -> Answer:
        """Return the answer for one example, with one row; see `predict_many`."""
        if not isinstance(x, Mapping):
            raise InputError(
                f"x must be a mapping of field names to values. Got {type(x).__name__} instead."
            )
        return self._answer(lambda newest: _judge(newest, to_columns(newest.state, x)), timeout_s)

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
            If there was no place (`QueueFullError`) or no answer in time, or no snapshot yet.
        InputError
            For a value that cannot be used.
        """
        return self._answer(lambda newest: _judge(newest, columns), timeout_s)

    def _answer(self, question: Callable[[Snapshot], Answer], timeout_s: float) -> Answer:
        """Ask the current snapshot, and wait for the answer."""
        limit_s = check_timeout(timeout_s)
        future = self.ask(question, timeout_s=limit_s)
        try:
            return future.result(limit_s)
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
            If that took longer than `timeout_s`, or a `then` failed or got no answer.
        """
        deadline = time.monotonic() + check_timeout(timeout_s)
        for worker in (self._stream, self._urgent):
            n_left = worker.drain(deadline)
            if n_left:
                raise PredictorError(
                    f"{n_left} requests were not answered within {timeout_s} s; allow more time, or"
                    " start again from the last checkpoint."
                )
        if self.failure is not None:
            # It is never cleared: an answer was lost, and no later checkpoint may pass over it.
            raise PredictorError(
                f"handing on an answer failed: {self.failure}."
                " Start again from the last checkpoint."
            ) from self.failure

    def stop(self, timeout_s: float = 5.0) -> None:
        """Answer what waits, then end the threads. May be called again.

        Parameters
        ----------
        timeout_s : float
            How long to wait for that; after it a thread is left alone.
        """
        deadline = time.monotonic() + check_timeout(timeout_s)
        self._stopped = True
        for worker in (self._urgent, self._stream):
            worker.stop(deadline)

    def _put(self, worker: Worker, work: Request | QueuedCall, timeout_s: float) -> None:
        if self._stopped:
            raise stopped()
        worker.put(work, check_timeout(timeout_s))


def _judge(snapshot: Snapshot, columns: Any) -> Answer:
    posteriors = snapshot.predict_log_proba_many(columns)
    return Answer(
        posteriors, snapshot.classes, snapshot.version, snapshot.n_examples, snapshot.rule,
        snapshot.answered_by(columns),
    )  # fmt: skip


# ---- one class of work ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """A question to the snapshot that is current in its turn, and what to do with the answer."""

    question: Callable[[Snapshot], Any]
    then: Callable[[Any], None] | None
    future: Future[Any] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class QueuedCall:
    """Something to do in its turn, without an answer."""

    run: Callable[[], None]


class Worker:
    """A bounded queue, and the thread of a given name that works it off in order."""

    def __init__(self, board: SnapshotBoard, queue_size_max: int, name: str) -> None:
        self._board = board
        self._queue: queue.Queue[Request | QueuedCall | None] = queue.Queue(queue_size_max)
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._ended = False
        self.failure: BaseException | None = None

    @property
    def n_waiting(self) -> int:
        """Number of requests and calls that wait."""
        return self._queue.qsize()

    def put(self, work: Request | QueuedCall, timeout_s: float) -> None:
        """Put work in, or raise `QueueFullError` if there was no place in time."""
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
        """Wait until nothing is left, the deadline or the thread's end; return how much is left."""
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
        with contextlib.suppress(queue.Full):  # the thread has not got there in time
            self._queue.put(None, timeout=max(0.0, deadline - time.monotonic()))
        self.thread.join(max(0.0, deadline - time.monotonic()))
        if self._ended:
            self._refuse_rest()  # the thread ended before it read our word that it should

    def _serve(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                if isinstance(work, QueuedCall):
                    work.run()
                # The caller may have cancelled it; from here on nobody can.
                elif work.future.set_running_or_notify_cancel():
                    self._serve_one(work)
            except BaseException as error:  # noqa: BLE001 -- `drain` raises it, on the thread that can act on it
                # Even `SystemExit`: if the thread ended here, later callers would wait for ever.
                self.failure = error
            finally:
                self._queue.task_done()
        self._queue.task_done()
        self._end()

    def _serve_one(self, request: Request) -> None:
        try:
            answer = request.question(self._snapshot())
        except BaseException as error:  # noqa: BLE001 -- the caller gets it; the thread lives on
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
            self.failure = error  # `then` will never get its answer
        request.future.set_exception(error)

    def _end(self) -> None:
        # In this order: a request is either refused with the rest, or sees that it is too late.
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
    """Return the error for whoever asks too late."""
    return PredictorStopped("the predictor has been stopped; start another one.")
