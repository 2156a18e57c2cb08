"""Routes that answer from the model or tell of it: predictions, its figures, metrics and probes.

`POST /v1/predict` judges texts or messages, with explanations and intervals. `GET /v1/model` and
`/v1/page` tell of the model, `/metrics`, `/healthz` and `/readyz` of the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from consumers.http import schemas
from consumers.http.authorization import NOT_OPEN, is_open, needs_token
from consumers.http.openapi import ApiOperation, ApiRoute
from consumers.http.requests import (
    NO_STORE,
    BodyReader,
    ExampleDecoder,
    ProblemError,
    QueryParameters,
    RequestExamples,
    corrections_setting,
    given_in,
    json_response,
)
from consumers.http.state import AppState, sample_of
from consumers.http.threads import Batcher, WorkerPool, predict_columns
from consumers.monitoring.quality import QualityReport
from consumers.monitoring.status import HealthReport
from consumers.search.label_queue import LabellingState
from streamnb import Snapshot, __version__
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


# ---- the model, the page and probes --------------------------------------------------------------

_PROBLEMS = {422: "There is a parameter.", 503: "Too much is asked at once; ask again."}
MODEL = ApiOperation("The model, and how well it does", schemas.ModelAnswer, problems=_PROBLEMS)
PAGE = ApiOperation("What the page must know at its start", schemas.PageAnswer, problems=_PROBLEMS)


def _askable(languages: list[str]) -> list[str]:
    """Return the languages that a search takes; messages may call theirs by any name."""
    return [name for name in languages if len(name) <= schemas.LANG_CHARS_MAX and "\0" not in name]


def model_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the routes `/v1/model` and `/v1/page`."""

    async def model(request: Request) -> Response:
        QueryParameters(request)
        queue = app_state.label_queue
        labelling = None if queue is None else await workers.run(queue.state)
        return json_response(await batcher.ask(partial(_model, app_state, labelling)))

    async def page(request: Request) -> Response:
        QueryParameters(request)
        return json_response(await workers.run(partial(_page, app_state)))

    return [ApiRoute("/v1/model", model, MODEL), ApiRoute("/v1/page", page, PAGE)]


def _page(app_state: AppState) -> schemas.PageAnswer:
    settings, recent = app_state.settings, app_state.recent
    return schemas.PageAnswer(
        version=__version__,
        source=app_state.status().source,
        classes=list(app_state.classes),
        languages=_askable([] if recent is None else recent.languages()),
        unsure_below=settings.page.unsure_below,
        messages_min=settings.page.share_messages_min,
        corrections=_corrections(app_state),
        sample=None if recent is None else sample_of(recent.state()),
    )


def _corrections(app_state: AppState) -> schemas.Corrections:
    """Return whether corrections are taken now, and why not."""
    http, correction_service = app_state.settings.http, app_state.correction_service
    if correction_service is None:
        reason: str | None = f"corrections are off: set {corrections_setting(app_state.settings)}"
    elif not is_open(http):
        reason = NOT_OPEN
    else:
        reason = None if correction_service.ready else correction_service.reason
    return schemas.Corrections(reason is None, needs_token(http), reason)


def _model(
    app_state: AppState, labelling: LabellingState | None, _snapshot: Snapshot
) -> schemas.ModelAnswer:
    """Return the status in the form of the API; with no snapshot, asking fails before."""
    status = app_state.status()
    return schemas.ModelAnswer(
        state=status.health.state,
        source=status.source,
        trouble=status.trouble or status.health.degraded,
        n_messages=status.n_messages,
        ignored=status.ignored,
        n_examples=status.n_examples or 0,
        rate_per_s=status.rate_per_s,
        lag=status.lag_total,
        vocabulary_size=status.vocabulary_size,
        n_features=status.n_features,
        classes=status.class_rows,
        snapshot=schemas.SnapshotAge(status.snapshot_version, status.snapshot_age_s),
        checkpoint=schemas.CheckpointAge(status.checkpoint_age_s),
        drift=status.drift,
        labelling=labelling,
        challengers=status.challengers,
        **{name: getattr(status.quality, name) for name in QualityReport.__slots__},
    )


def probe_routes(app_state: AppState, workers: WorkerPool) -> list[ApiRoute]:
    """Return the routes `/metrics`, `/healthz` and `/readyz`."""

    # Plain coroutines: each answer takes a millisecond or two, less than handing it to a thread.
    # What is to be labelled may take longer.
    async def metrics(request: Request) -> Response:
        encode, content_type = _encoder(request.headers.get("accept", ""))
        headers = {"Content-Type": content_type, **NO_STORE}
        shown = partial(encode, app_state.registry)
        text = shown() if app_state.label_queue is None else await workers.run(shown)
        return Response(text, headers=headers)

    async def healthz(_request: Request) -> Response:
        report = app_state.status().health
        return _answer(report, good=report.alive)

    async def readyz(_request: Request) -> Response:
        report = app_state.status().health
        return _answer(report, good=report.ready)

    return [
        ApiRoute("/metrics", metrics, ApiOperation("Every metric, for Prometheus", "text/plain")),
        ApiRoute(
            "/healthz",
            healthz,
            ApiOperation("Is the daemon alive? (503: stuck)", schemas.HealthAnswer),
        ),
        ApiRoute(
            "/readyz",
            readyz,
            ApiOperation("Can it answer from what it learns?", schemas.HealthAnswer),
        ),
    ]


def _encoder(accept: str) -> tuple[Callable[[Collector], bytes], str]:
    """Return the encoder of the accepted format and its type; plain text if none fits."""
    try:
        return choose_encoder(accept)
    except TypeError:  # the version is not a number
        return choose_encoder("")


def _answer(report: HealthReport, *, good: bool) -> Response:
    age_s = report.last_message_age_s
    answer = schemas.HealthAnswer(
        state=report.state,
        reason=None if good else report.reason,
        last_message_age_s=None if age_s is None else round(age_s, 3),
        snapshot_version=report.snapshot_version,
        degraded=report.degraded,
    )
    return json_response(answer, 200 if good else 503)
