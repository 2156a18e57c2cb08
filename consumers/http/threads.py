"""Work that the event loop hands to other threads, and awaits without being blocked.

`WorkerPool` runs searches, counts and what waits for a disk. `Batcher` asks the predictor; single
texts that arrive together are predicted in one batch. What a request costs beyond its prediction is
the way to the predictor's thread and back. Texts that arrive while a batch is under way form the
next one, so they share that cost. A batch gives, bit for bit, what single examples give. `Shared`
makes what is dear, and the same for all, once for those who ask within a second, and
`SnapshotEncoder` what is handed out of a snapshot.
What nobody waits for any more is neither kept nor worked off.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.http.requests import HELD_BYTES_MAX, RETRY_SOON, ProblemError
from consumers.http.schemas import ApiPrediction, ByClass, PredictAnswer
from consumers.process import cached, watch_cache
from consumers.sinks.records import decided_by
from streamnb import EveryInterval, Predictor, Snapshot, serialization
from streamnb.errors import InputError, PredictorError, PredictorStopped, QueueFullError
from streamnb.reader import ModelReader

_FULL = "as many requests wait for an answer as may; ask again in a moment"
T = TypeVar("T")
_Waiter = asyncio.Future[Any]

THREADS = 4
WAITING_MAX = 64
SHARED_S = 1.0  # for which what was made for one is given to others
TOGETHER_MAX = 1_000  # single texts in one batch; a longer one would keep the first waiting
# A version is made for whoever asks, all together: so often at most, and within this share of one
# processor's time, so that a learner of many words keeps its own.
_MADE_EACH_S, _MADE_SHARE_MAX = 0.1, 0.25
# Several replicas ask in turns, each by the version that it has: those asked for last are kept for
# deltas, four whatever their size, and more while they take no more than this together.
VERSIONS_MIN, VERSIONS_MAX, VERSIONS_BYTES_MAX = 4, 32, 256 << 20
_DELTA_SHARE_MAX = 0.5


class TaskTimeoutError(ProblemError):
    """A task has not ended in time, and still runs."""


class WorkerPool:
    """A small pool of threads with a bounded number of tasks.

    A task may take `timeout_s` (`http.request_timeout_s`), its waiting included. If `nice`, the
    threads give way to all others of the machine.
    """

    def __init__(
        self, timeout_s: float, name: str = "serve-worker", n_threads: int = THREADS, nice: int = 0
    ) -> None:
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(n_threads, name, partial(_give_way, nice))
        self._n_tasks = 0

    async def run(self, task: Callable[[], T], timeout_s: float | None = None) -> T:
        """Return what a task returns, or raise what it raises; it runs on one of the threads.

        TaskTimeoutError says that it has begun and takes too long: it may still be done. With any
        other problem (503) it never begins.
        """
        if self._n_tasks >= THREADS + WAITING_MAX:
            detail = "too much is being asked at once; ask again in a moment"
            raise ProblemError(503, detail, headers=RETRY_SOON)
        future = self._pool.submit(task)
        self._n_tasks += 1
        waiting = asyncio.wrap_future(future)
        # A task counts until it is done, also if nobody waits for it any more.
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: call_soon(loop, self._done))
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            problem = ProblemError if future.cancel() else TaskTimeoutError
            detail = f"there was no answer within {timeout_s:g} s; ask again in a moment"
            raise problem(503, detail, headers=RETRY_SOON) from None

    def close(self) -> None:
        """Let the threads end after the tasks that they run; the others never begin."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self) -> None:
        self._n_tasks -= 1


def _give_way(nice: int) -> None:
    if nice:
        # A process may give way further already, and nobody but root may take that back.
        own = os.PRIO_PROCESS, threading.get_native_id()
        os.setpriority(*own, max(nice, os.getpriority(*own)))


def call_soon(loop: asyncio.AbstractEventLoop, run: Callable[..., object], *args: Any) -> None:
    """Have the event loop call a function, unless it has ended; from any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(run, *args)


def predict_columns(
    snapshot: Snapshot, columns: Any, reader: ModelReader | None = None
) -> PredictAnswer:
    """Return predictions for columns of the model's fields, from a snapshot without its prior.

    `reader` answers in the snapshot's place, if it is given.
    """
    reader = snapshot.without_prior() if reader is None else reader
    logs = reader.predict_log_proba_many(columns)
    classes = [str(label) for label in snapshot.classes]
    by_class = _by_class(tuple(classes))
    labels = map(classes.__getitem__, logs.argmax(axis=1).tolist())
    shares, own = (map(by_class, *values.T.tolist()) for values in (np.exp(logs), logs))
    predictions = list(map(ApiPrediction, labels, shares, own))
    if snapshot.rule.threshold is not None or snapshot.rule.costs is not None:
        decided = decided_by(snapshot.rule, classes, logs)
        for prediction, each in zip(predictions, decided, strict=True):
            prediction.prediction_set = each.get("prediction_set")
            prediction.decision = each.get("decision")
    answered_by = snapshot.answered_by(columns)
    for prediction, by in zip(predictions, answered_by or (), strict=answered_by is not None):
        prediction.model = by.model
        who = "the shared model" if by.model is None else f"the model of {by.model}"
        prediction.answered_by = f"answered by {who}: {by.reason}"
    return PredictAnswer(classes, snapshot.version, snapshot.n_examples, predictions)


@cached("answer_types", 4)
def _by_class(classes: tuple[str, ...]) -> Callable[..., ByClass]:
    """Return what makes a mapping by class of one value for each.

    It makes a struct with the classes as its fields, whose JSON is that of a dict: of a thousand
    predictions that takes a quarter of the time.
    """
    fields = [f"f{i}" for i in range(len(classes))]
    try:
        made = msgspec.defstruct(
            "ByClass",
            [(field, float) for field in fields],
            rename=dict(zip(fields, classes, strict=True)),
            gc=False,
        )
    except ValueError:  # a field's name may hold no quote, backslash or control character
        return lambda *values: dict(zip(classes, values, strict=True))
    return cast("Callable[..., ByClass]", made)


class Shared(Generic[T]):
    """Makes something for all that ask within a second; any thread may ask, and waits for it.

    `clock` returns monotonic seconds.
    """

    def __init__(self, make: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._clock = clock
        self._lock = threading.Lock()
        self._made: tuple[T, float] | None = None  # the newest, and until when; None before it

    def __call__(self) -> T:
        """Return it, made a second ago at most. What could not be made is tried again."""
        with self._lock:
            if self._made is None or self._clock() >= self._made[1]:
                self._made = self._make(), self._clock() + SHARED_S
            return self._made[0]


class Batcher:
    """Asks the predictor from the event loop without blocking it.

    A text alone is put into `text_field`, None if the model reads none, or several. `starting`
    returns what the start is doing, None once it is over; a request without a snapshot hears it.
    """

    def __init__(
        self,
        predictor: Predictor,
        text_field: str | None,
        timeout_s: float,
        starting: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._predictor = predictor
        self.text_field = text_field
        self._timeout_s = timeout_s
        self._starting = starting
        self._waiting: dict[_Waiter, str] = {}
        self._held = 0  # bytes of the texts that somebody waits for
        self._is_under_way = False

    async def predict_text(self, text: str) -> PredictAnswer:
        """Return the current snapshot's prediction for a text; raises what `ask` raises.

        All texts that wait may have HELD_BYTES_MAX together, unless there is only one; beyond that
        the problem is 503.
        """
        n_bytes = sys.getsizeof(text)
        if self._held and self._held + n_bytes > HELD_BYTES_MAX:
            raise ProblemError(503, _FULL, headers=RETRY_SOON)
        loop = asyncio.get_running_loop()
        waiter: _Waiter = loop.create_future()
        self._waiting[waiter] = text
        self._held += n_bytes
        if not self._is_under_way:
            self._is_under_way = True
            # At the end of this turn of the loop, so that all texts that came in it go together.
            loop.call_soon(self._send)
        try:
            found: PredictAnswer = await self._answer(waiter)
        finally:
            self._held -= n_bytes
            self._waiting.pop(waiter, None)
        return found

    async def ask(self, question: Callable[[Snapshot], T]) -> T:
        """Return what a function of the current snapshot returns.

        The problem is 422 for a value that the model cannot use; 503 if the predictor's queue is
        full, it has no snapshot yet or is being stopped. A question that is given up before its
        turn is never answered.
        """
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        answer: Future[T] | None = None
        try:
            answer = self._submit(
                question, lambda future: _settle([waiter], future, lambda found, _: found)
            )
        except PredictorError as error:
            waiter.set_exception(error)
        try:
            found: T = await self._answer(waiter)
        finally:
            if answer is not None:
                answer.cancel()  # of one that is there it changes nothing
        return found

    async def _answer(self, waiter: _Waiter) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await waiter
        except InputError as error:
            raise ProblemError(422, str(error)) from None
        except TimeoutError:
            detail = f"there was no answer within {self._timeout_s:g} s"
        except QueueFullError:
            detail = _FULL
        except PredictorStopped:
            detail = "the daemon is stopping; ask again once it is back"
        except PredictorError:  # what it says is advice to who wrote the program
            starting = self._starting()
            detail = "there is no model to answer from yet; ask again in a moment"
            if starting is not None:
                detail = f"the daemon is starting, and answers once it is done: {starting}"
        raise ProblemError(503, detail, headers=RETRY_SOON)

    def _send(self) -> None:
        """Submit the texts that wait as one batch."""
        batch = dict(islice(self._waiting.items(), TOGETHER_MAX))
        for waiter in batch:
            del self._waiting[waiter]
        waiters, columns = list(batch), {self.text_field: list(batch.values())}
        try:
            self._submit(
                partial(_predict_for, waiters, columns),
                lambda future: self._arrive(waiters, future),
            )
        except PredictorError as error:
            self._is_under_way = False
            waiters += self._waiting  # no later batch would answer them
            self._waiting.clear()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)

    def _arrive(self, waiters: list[_Waiter], future: Future[PredictAnswer]) -> None:
        """Give each waiter its own prediction, and submit the next batch."""
        _settle(waiters, future, _own)
        if self._waiting:
            self._send()
        else:
            self._is_under_way = False

    def _submit(
        self, question: Callable[[Snapshot], T], then: Callable[[Future[T]], None]
    ) -> Future[T]:
        """Ask the predictor; the event loop calls `then` with the answer, which is returned too."""
        loop = asyncio.get_running_loop()
        answer = self._predictor.ask(question)
        answer.add_done_callback(lambda future: call_soon(loop, then, future))
        return answer


def _predict_for(
    waiters: Sequence[_Waiter], columns: dict[str | None, list[str]], snapshot: Snapshot
) -> PredictAnswer:
    """Return predictions for a batch, unless all its waiters have given up (TimeoutError)."""
    if all(waiter.done() for waiter in waiters):
        raise TimeoutError
    return predict_columns(snapshot, columns)


def _settle(waiters: list[_Waiter], future: Future[T], own: Callable[[T, int], Any]) -> None:
    """Give each waiter its own part of an answer, or the error."""
    if future.cancelled():
        return  # as all had given up
    error = future.exception()
    for i, waiter in enumerate(waiters):
        if waiter.done():
            continue  # it has been given up
        if error is None:
            waiter.set_result(own(future.result(), i))
        else:
            waiter.set_exception(error)


def _own(answer: PredictAnswer, i: int) -> PredictAnswer:
    own = [answer.predictions[i]]
    return PredictAnswer(answer.classes, answer.snapshot_version, answer.n_examples, own)


_Blocks = list[bytes | memoryview]


class HandedOut(NamedTuple):
    """What is handed out of a version, whose age is for how long there may be a newer one."""

    etag: str
    age_s: float
    blocks: _Blocks  # of the model file, or of a delta; none for who has the version
    is_delta: bool
    since_s: float | None  # when the interval began at which it came; None without intervals


class SnapshotEncoder:
    """Makes the bytes of a model file of snapshots, or of deltas, one for all that ask.

    Within an interval of wall-clock time, [k `interval_s`, (k + 1) `interval_s`), all are given the
    version of who asks first.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        interval_s: float = 0.0,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock, self._interval_s, self._wall_clock = clock, interval_s, wall_clock
        self._began_s = self._since_s = cast("float | None", None)
        self._policy = EveryInterval(_MADE_EACH_S, _MADE_SHARE_MAX, clock)
        self._lock = threading.Lock()
        self._made_at_s = self._took_s = 0.0
        self._snapshot: Snapshot | None = None
        self._etag = ""  # of the newest version
        # By ETag, those asked for last at the end.
        self._versions: dict[str, serialization.Version] = {}
        self._blocks: dict[str, _Blocks] = {}  # of the newest, by which version they are a delta of
        watch_cache("model_versions", self._fill)

    def _fill(self) -> tuple[int, int]:
        return len(self._versions), VERSIONS_MAX

    def newest(self, snapshot: Snapshot, known: str = "", *, by_delta: bool = False) -> HandedOut:
        """Return a snapshot, or an older one within bounds, for who has the version `known`."""
        with self._lock:
            if by_delta and known in self._versions:
                self._versions[known] = self._versions.pop(known)
            held, each_s = self._snapshot, self._interval_s
            began_s = self._wall_clock() // each_s * each_s if each_s else None
            may_change, self._began_s = began_s is None or began_s != self._began_s, began_s
            if held is None or (held is not snapshot and may_change and self._policy.is_due(0)):
                self._made_at_s, self._took_s, self._since_s = self._clock(), 0.0, began_s
                with self._charged():
                    self._keep(snapshot)
            blocks: _Blocks = []
            is_delta = False
            if known != self._etag:
                is_delta = by_delta and known in self._versions and bool(self._made(known))
                blocks = self._made(known if is_delta else "")
            age_s = 0.0 if self._snapshot is snapshot else self._clock() - self._made_at_s
            return HandedOut(self._etag, age_s, blocks, is_delta, self._since_s)

    @contextmanager
    def _charged(self) -> Iterator[None]:
        """Count what is made towards the version's cost, which says when the next may be made."""
        began_s = time.thread_time()  # on a machine with much to do, time of the clock would grow
        yield
        self._took_s += time.thread_time() - began_s
        self._policy.published(0, self._took_s)

    def _keep(self, snapshot: Snapshot) -> None:
        said = {"version": snapshot.version, "rule": snapshot.rule.to_dict()}
        version = serialization.version_of(snapshot.state, {"snapshot": said})
        # By its content: its number comes again when the daemon that learns is restarted.
        self._etag = f'"{serialization.name_of(version.header, version.arrays)}"'
        self._snapshot, self._blocks = snapshot, {}
        self._versions.pop(self._etag, None)
        self._versions[self._etag] = version
        sizes = [_n_bytes(each.arrays) for each in self._versions.values()]
        while (n := len(sizes)) > VERSIONS_MAX or (
            n > VERSIONS_MIN and sum(sizes) > VERSIONS_BYTES_MAX
        ):
            del self._versions[next(iter(self._versions))], sizes[0]

    def _made(self, base: str) -> _Blocks:
        """Return a delta of the newest version from another, empty if it is too large; or all."""
        if base not in self._blocks:
            with self._charged():
                self._blocks[base] = self._encoded(base)
        return self._blocks[base]

    def _encoded(self, base: str) -> _Blocks:
        new, name = self._versions[self._etag], self._etag.strip('"')
        found = serialization.delta(self._versions[base], new, name) if base else new[:2]
        if found and base and _n_bytes(found[1]) > _DELTA_SHARE_MAX * _n_bytes(new.arrays):
            return []
        return serialization.to_blocks(*found) if found else []


def _n_bytes(arrays: Mapping[str, NDArray[Any]]) -> int:
    """Return what a version's arrays hold; those of another version are others."""
    return sum(array.nbytes for array in arrays.values())
