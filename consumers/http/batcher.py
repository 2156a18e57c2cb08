"""Judges examples for those who wait: single texts that come together are predicted together.

What a request costs beyond its judgement is the way to the predictor's thread and back. Texts that
arrive while a batch is on its way make up the next one, so the way is gone once for all of them. A
batch gives, bit for bit, what single examples give; nobody can tell who travelled with whom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from consumers.http.problems import ProblemError
from consumers.http.schemas import ApiPrediction, ByClass, PredictAnswer
from streamnb import Predictor, Snapshot
from streamnb.errors import InputError, PredictorError

T = TypeVar("T")
_Waiter = asyncio.Future[Any]

TOGETHER_MAX = 1_000  # single texts in one batch; a longer one would keep the first waiting


def predict_columns(snapshot: Snapshot, columns: Any) -> PredictAnswer:
    """Return what a snapshot says of examples.

    Parameters
    ----------
    snapshot : Snapshot
    columns : mapping of str to sequence
        The model's fields, each of length n.
    """
    logs = snapshot.predict_log_proba_many(columns)
    classes = [str(label) for label in snapshot.classes]
    made = _maker(tuple(classes))
    labels = map(classes.__getitem__, logs.argmax(axis=1).tolist())
    shares, own = (map(made, *values.T.tolist()) for values in (np.exp(logs), logs))
    return PredictAnswer(
        classes,
        snapshot.version,
        snapshot.n_examples,
        list(map(ApiPrediction, labels, shares, own)),
    )


@lru_cache(maxsize=4)
def _maker(classes: tuple[str, ...]) -> Callable[..., ByClass]:
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


class Batcher:
    """Asks the predictor from the event loop, without holding it up.

    Parameters
    ----------
    predictor : Predictor
    text_field : str or None
        Where the model reads the text of a request that brings nothing else; None where it reads
        none, or several.
    timeout_s : float
        How long an answer may take (`http.request_timeout_s`).
    """

    def __init__(self, predictor: Predictor, text_field: str | None, timeout_s: float) -> None:
        self._predictor = predictor
        self.text_field = text_field
        self._timeout_s = timeout_s
        self._waiting: list[tuple[str, _Waiter]] = []
        self._is_under_way = False

    async def predict_text(self, text: str) -> PredictAnswer:
        """Return what the current snapshot says of a text; see `ask` for what it raises."""
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        self._waiting.append((text, waiter))
        if not self._is_under_way:
            self._is_under_way = True
            # At the end of this turn, so that all who came in it go together.
            asyncio.get_running_loop().call_soon(self._send)
        found: PredictAnswer = await self._within_time(waiter)
        return found

    async def ask(self, question: Callable[[Snapshot], T]) -> T:
        """Return what a question to the current snapshot finds.

        Raises
        ------
        ProblemError
            422 for a value that the model cannot use, 503 where the predictor is overrun, has no
            snapshot yet or is being stopped.
        """
        waiter: _Waiter = asyncio.get_running_loop().create_future()
        try:
            self._hand_over(question, lambda future: _settle(waiter, future))
        except PredictorError as error:
            raise _busy(str(error)) from None
        found: T = await self._within_time(waiter)
        return found

    async def _within_time(self, waiter: _Waiter) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await waiter
        except TimeoutError:
            raise _busy(f"there was no answer within {self._timeout_s:g} s") from None
        except InputError as error:
            raise ProblemError(422, str(error)) from None
        except PredictorError as error:
            raise _busy(str(error)) from None

    def _send(self) -> None:
        """Send those who wait on their way together."""
        travelling = self._waiting[:TOGETHER_MAX]
        del self._waiting[:TOGETHER_MAX]
        columns = {self.text_field: [text for text, _ in travelling]}
        waiters = [waiter for _, waiter in travelling]
        try:
            self._hand_over(
                lambda snapshot: predict_columns(snapshot, columns),
                lambda future: self._arrive(waiters, future),
            )
        except PredictorError as error:
            self._is_under_way = False
            waiters += [waiter for _, waiter in self._waiting]  # nobody would come for them
            self._waiting.clear()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)

    def _arrive(self, waiters: list[_Waiter], future: Future[PredictAnswer]) -> None:
        """Give each his own part of the answer, and send the next on their way."""
        error = future.exception()
        answer = None if error is not None else future.result()
        for i, waiter in enumerate(waiters):
            if waiter.done():
                continue  # he has given up
            if answer is None:
                waiter.set_exception(error or PredictorError("there was no answer"))
            else:
                own = [answer.predictions[i]]
                waiter.set_result(
                    PredictAnswer(answer.classes, answer.snapshot_version, answer.n_examples, own)
                )
        if self._waiting:
            self._send()
        else:
            self._is_under_way = False

    def _hand_over(
        self, question: Callable[[Snapshot], T], then: Callable[[Future[T]], None]
    ) -> None:
        """Ask the predictor, and have the loop do something with the answer."""
        loop = asyncio.get_running_loop()

        def tell(future: Future[T]) -> None:
            # A loop that has ended in the meantime has nobody who waits.
            if not loop.is_closed():
                loop.call_soon_threadsafe(then, future)

        self._predictor.ask(question).add_done_callback(tell)


def _settle(waiter: _Waiter, future: Future[Any]) -> None:
    if waiter.done():
        return
    error = future.exception()
    if error is None:
        waiter.set_result(future.result())
    else:
        waiter.set_exception(error)


def _busy(why: str) -> ProblemError:
    return ProblemError(503, why, headers={"Retry-After": "1"})


def by_class(classes: tuple[Any, ...], values: Any) -> ByClass:
    """Return an array with one value a class as a mapping."""
    return dict(zip(map(str, classes), values.tolist(), strict=True))
