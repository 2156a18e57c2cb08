"""`POST /v1/predict`: predictions for texts or messages, with explanations and intervals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from consumers.http import schemas
from consumers.http.openapi import ApiOperation, ApiRoute
from consumers.http.requests import (
    BodyReader,
    ExampleDecoder,
    ProblemError,
    QueryParameters,
    RequestExamples,
    given_in,
    json_response,
)
from consumers.http.threads import Batcher, predict_columns
from streamnb import Snapshot
from streamnb.errors import InputError
from streamnb.labels import Label
from streamnb.reader import ModelReader

FEATURES_MAX = 200  # the weightiest of a long text; the others hardly matter


def explain(reader: ModelReader, example: Mapping[str, Any]) -> schemas.ApiExplanation:
    """Return why a model predicts an example's class; InputError if it has only one class."""
    whole = reader.explain_one(example)
    prior = next(each for each in whole.contributions if each.group is None)
    features = [each for each in whole.contributions if each.group is not None]
    features.sort(key=lambda each: (-abs(each.weight), each.value))
    return schemas.ApiExplanation(
        str(whole.label),
        str(whole.runner_up),
        prior.weight,
        [
            schemas.Feature(
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


def credible_interval(
    reader: ModelReader, example: Mapping[str, Any], level: float
) -> schemas.Interval | None:
    """Return the credible interval of an example's most probable class, None if there is none.

    A hybrid's weights have no posterior, and a calibrated probability may lie outside. It comes
    from the delta method if the model has one, else from draws with a fixed seed. An InputError
    says that the model's parameters have no posterior.
    """
    if reader.state.is_hybrid or reader.state.calibration is not None:
        return None
    label = reader.classes[int(np.argmax(list(reader.predict_proba_one(example).values())))]
    try:
        found = reader.credible_interval_one(example, level, "delta")
    except InputError:
        found = reader.credible_interval_one(example, level, seed=0)
    low, high = found[label]
    return schemas.Interval(level, low, high)


PREDICT = ApiOperation(
    "Judge texts or messages",
    schemas.PredictAnswer,
    schemas.PredictRequest,
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
    decoder = msgspec.json.Decoder(schemas.PredictRequest)

    async def predict(request: Request) -> Response:
        QueryParameters(request)
        asked = await bodies.read(request, decoder)
        name, value = given_in(asked, "text", "texts", "message", "messages")
        explains = asked.explain or asked.interval is not None
        is_plain = asked.prior == "none" and not (explains or asked.raw)
        if name == "text" and batcher.text_field is not None and is_plain:
            return json_response(await batcher.predict_text(value))
        examples = example_decoder.examples(name, value)
        if explains and examples.n > schemas.EXPLAINED_MAX:
            raise ProblemError(
                422,
                f"{examples.n} examples are to be explained, and {schemas.EXPLAINED_MAX} may be at "
                f"once; without explain and interval {schemas.TEXTS_MAX}",
            )
        # The answer is encoded on the predictor's thread: thousands of predictions take
        # milliseconds, for which the event loop cannot stop.
        return json_response(await batcher.ask(partial(_predict_examples, examples, asked)))

    return [ApiRoute("/v1/predict", predict, PREDICT, "POST")]


def _predict_examples(
    examples: RequestExamples, asked: schemas.PredictRequest, snapshot: Snapshot
) -> bytes:
    """Return the JSON of the predictions, with what else is asked for."""
    reader = snapshot if asked.prior == "model" else snapshot.without_prior()
    answer = predict_columns(snapshot, examples.columns, reader)
    if asked.raw:
        raw = predict_columns(snapshot, examples.columns, reader.raw())
        for prediction, by_counts in zip(answer.predictions, raw.predictions, strict=True):
            prediction.raw = by_counts.probabilities
    if asked.explain or asked.interval is not None:
        for i, prediction in enumerate(answer.predictions):
            example = examples.example(i)
            if asked.explain:
                prediction.explanation = explain(reader, example)
            if asked.interval is not None:
                prediction.interval = credible_interval(reader, example, asked.interval)
    return msgspec.json.encode(answer)
