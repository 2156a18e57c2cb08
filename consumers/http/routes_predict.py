"""Why the model says what it says of one example, in the form of the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import UNSET, Raw
from starlette.requests import Request
from starlette.responses import Response

from consumers.http.batcher import Batcher, predict_columns
from consumers.http.openapi import ApiOperation, ApiRoute
from consumers.http.request_examples import ExampleDecoder, RequestExamples
from consumers.http.requests import BodyReader, QueryParameters
from consumers.http.responses import ProblemError, json_response
from consumers.http.schemas import (
    EXPLAINED_MAX,
    TEXTS_MAX,
    ApiExplanation,
    Feature,
    Interval,
    PredictAnswer,
    PredictRequest,
)
from streamnb import Snapshot
from streamnb.errors import InputError
from streamnb.labels import Label

FEATURES_MAX = 200  # of a page of text the weightiest; the others hardly push


def explain(snapshot: Snapshot, example: Mapping[str, Any]) -> ApiExplanation:
    """Return why a snapshot judges an example as it does.

    Raises
    ------
    InputError
        With fewer than two classes.
    """
    whole = snapshot.explain_one(example)
    prior = next(each for each in whole.contributions if each.group is None)
    features = [each for each in whole.contributions if each.group is not None]
    features.sort(key=lambda each: (-abs(each.weight), each.value))
    return ApiExplanation(
        str(whole.label),
        str(whole.runner_up),
        prior.weight,
        [
            Feature(
                each.group or "",
                each.value,
                each.weight,
                _by_text(each.counts),
                _by_text(each.likelihoods),
            )
            for each in features[:FEATURES_MAX]
        ],
    )


def _by_text(values: Mapping[Label, float] | None) -> dict[str, float]:
    """Return values with their classes as text; none if there are none."""
    return {str(label): value for label, value in (values or {}).items()}


def interval(snapshot: Snapshot, example: Mapping[str, Any], level: float) -> Interval:
    """Return the credible interval of an example's most probable class.

    By the delta method where it is known, which draws nothing; else by draws that are always the
    same.

    Raises
    ------
    InputError
        Where the model's parameters have no posterior.
    """
    label = snapshot.classes[int(np.argmax(list(snapshot.predict_proba_one(example).values())))]
    try:
        found = snapshot.credible_interval_one(example, level, "delta")
    except InputError:
        found = snapshot.credible_interval_one(example, level, seed=0)
    low, high = found[label]
    return Interval(level, low, high)


PREDICT = ApiOperation(
    "Judge texts or messages",
    PredictAnswer,
    PredictRequest,
    problems={
        400: "The body is not JSON.",
        413: "The body is larger than http.body_bytes_max.",
        415: "The body is not said to be JSON.",
        422: "The body is another JSON than is wanted, or the stream would refuse the message.",
        503: "The predictor is overrun, or has nothing to answer from yet.",
    },
)


def prediction_routes(
    batcher: Batcher, bodies: BodyReader, example_decoder: ExampleDecoder
) -> list[ApiRoute]:
    """Return the route `/v1/predict`."""
    decoder = msgspec.json.Decoder(PredictRequest)

    async def predict(request: Request) -> Response:
        QueryParameters(request)
        asked = await bodies.read(request, decoder)
        if asked.text is not None and batcher.text_field is not None and _is_text_alone(asked):
            return json_response(await batcher.predict_text(asked.text))
        question = _Question(_examples(asked, example_decoder), asked.explain, asked.interval)
        # The answer is encoded on the predictor's thread: thousands of predictions take
        # milliseconds, for which the event loop cannot stop.
        return json_response(await batcher.ask(question))

    return [ApiRoute("/v1/predict", predict, PREDICT, "POST")]


def _is_text_alone(asked: PredictRequest) -> bool:
    return _n_given(asked) == 1 and not asked.explain and asked.interval is None


def _n_given(asked: PredictRequest) -> int:
    """Return how many of the four ways to ask a request takes."""
    given = (asked.text, asked.texts, asked.message, asked.messages)
    return sum(each is not None and each is not UNSET for each in given)


def _examples(asked: PredictRequest, example_decoder: ExampleDecoder) -> RequestExamples:
    """Return what is asked about as columns."""
    if _n_given(asked) != 1:
        raise ProblemError(
            422,
            f"the body has {_n_given(asked)} of them: "
            "give one of text, texts, message and messages",
        )
    if asked.text is not None:
        found = example_decoder.texts([asked.text])
    elif asked.texts is not None:
        found = example_decoder.texts(asked.texts)
    elif asked.messages is not None:
        found = example_decoder.messages([bytes(each) for each in asked.messages], "messages")
    else:
        found = example_decoder.messages([bytes(cast("Raw", asked.message))], "message")
    if (asked.explain or asked.interval is not None) and found.n > EXPLAINED_MAX:
        raise ProblemError(
            422,
            f"{found.n} examples are to be explained, and {EXPLAINED_MAX} may be at once; "
            f"without explain and interval {TEXTS_MAX}",
        )
    return found


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of a snapshot; its answer is the body of the response."""

    asked: RequestExamples
    explain: bool
    level: float | None

    def __call__(self, snapshot: Snapshot) -> bytes:
        answer = predict_columns(snapshot, self.asked.columns)
        if self.explain or self.level is not None:
            for i, prediction in enumerate(answer.predictions):
                example = self.asked.example(i)
                if self.explain:
                    prediction.explanation = explain(snapshot, example)
                if self.level is not None:
                    prediction.interval = interval(snapshot, example, self.level)
        return msgspec.json.encode(answer)
