"""Routes that answer from the model or tell of it: predictions, its figures, metrics and probes.

`POST /v1/predict` judges texts or messages, with explanations and intervals. `GET /v1/model`,
`/v1/fields` and `/v1/page` tell of the model, `/metrics`, `/healthz` and `/readyz` of the daemon.
`GET /v1/snapshot` hands the model out to replicas: whole, or what changed in it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from consumers.config.settings import Settings, message_names, placeholder, question, user_prefix
from consumers.features import judged_kinds
from consumers.http import schemas
from consumers.http.files import form_of, response_in
from consumers.http.openapi import FORMAT, ApiOperation, ApiRoute, in_forms
from consumers.http.requests import (
    NO_STORE,
    NOT_OPEN,
    BodyReader,
    ExampleDecoder,
    ProblemError,
    QueryParameters,
    RequestExamples,
    check_change,
    component_is_off,
    corrections_off,
    given_in,
    is_open,
    json_response,
    needs_token,
)
from consumers.http.state import AppState, sample_of
from consumers.http.threads import Batcher, Shared, SnapshotEncoder, WorkerPool, predict_columns
from consumers.monitoring.prequential import wilson
from consumers.monitoring.quality import QualityReport, Share
from consumers.monitoring.status import HealthReport
from consumers.search.comparison import StoredBins, number_bins
from consumers.search.label_queue import LabellingState
from consumers.search.query_syntax import BUILT_IN, QueryError, written_name
from consumers.search.store import RecentStore
from streamnb import Snapshot, __version__
from streamnb.errors import InputError
from streamnb.inspection import summary
from streamnb.inspection.explain import Contribution
from streamnb.labels import Label
from streamnb.reader import ModelReader

VERSION_HEADER = "Streamnb-Snapshot-Version"
AGE_HEADER = "Streamnb-Snapshot-Age"  # seconds for which there may be a newer one
SINCE_HEADER = "Streamnb-Snapshot-Since"  # when the interval began at which it came, Unix seconds
FOLLOW_HEADER = b"streamnb-follow-age"  # of a replica: seconds for which its model may be outdated
VALUES_MAX = 20  # of one field, the most frequent
FEATURES_MAX = 200  # the weightiest of a long text; of the others there is the sum


def explain(reader: ModelReader, example: Mapping[str, Any]) -> schemas.ApiExplanation:
    """Return why a model predicts an example's class; InputError if it has only one class."""
    whole = reader.explain_one(example)
    prior = next(each for each in whole.contributions if each.group is None)
    features = [each for each in whole.contributions if each.group is not None]
    features.sort(key=lambda each: (-abs(each.weight), each.value))
    return schemas.ApiExplanation(
        str(whole.label),
        str(whole.runner_up),
        not all(each.unseen for each in features),
        whole.by_prior,
        prior.weight,
        math.fsum(each.weight for each in features[FEATURES_MAX:]),
        [_feature(each) for each in features[:FEATURES_MAX]],
    )


def _feature(said: Contribution) -> schemas.Feature:
    assert said.group is not None
    assert said.kind is not None
    by_class = said.counts, said.likelihoods, said.means, said.deviations
    own = said.group, said.value, said.kind, said.unseen, said.weight
    return schemas.Feature(*own, *map(_by_text, by_class))


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
    batcher: Batcher, explainers: WorkerPool, bodies: BodyReader, example_decoder: ExampleDecoder
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
            answer = await batcher.predict_text(value)
            return _of_version(answer.snapshot_version, answer)
        examples = example_decoder.examples(name, value)
        if explains:
            _check_explained(name, value, examples.n)
            # Not on the predictor's thread: a word costs as much as judging a whole text.
            snapshot = await batcher.ask(lambda current: current)
            over = threading.Event()
            try:
                found = await explainers.run(
                    partial(_predict_examples, examples, asked, snapshot, over)
                )
            except InputError as error:
                raise ProblemError(422, str(error)) from None
            finally:
                over.set()
            return _of_version(*found)
        # The answer is encoded on the predictor's thread: thousands of predictions take
        # milliseconds, for which the event loop cannot stop.
        return _of_version(*await batcher.ask(partial(_predict_examples, examples, asked)))

    return [ApiRoute("/v1/predict", predict, PREDICT, "POST")]


def _check_explained(name: str, value: Any, n: int) -> None:
    """Raise 422 if these are too many examples to be explained, or too long ones together."""
    if n > schemas.EXPLAINED_MAX:
        raise ProblemError(
            422,
            f"{n} examples are to be explained, and {schemas.EXPLAINED_MAX} may be at "
            f"once; without explain and interval {schemas.TEXTS_MAX}",
        )
    values = value if name in {"texts", "messages"} else [value]
    n_chars = sum(len(each if isinstance(each, str) else bytes(each)) for each in values)
    if n_chars > schemas.EXPLAINED_CHARS_MAX:
        raise ProblemError(
            422,
            f"{n_chars} characters are to be explained, and {schemas.EXPLAINED_CHARS_MAX} may be "
            "at once (of a message, bytes); send them in parts, or without explain and interval",
        )


def _of_version(version: int, answer: schemas.PredictAnswer | bytes) -> Response:
    """Return an answer with the version of the snapshot behind it."""
    response = json_response(answer)
    response.headers[VERSION_HEADER] = str(version)
    return response


def _predict_examples(
    examples: RequestExamples,
    asked: schemas.PredictRequest,
    snapshot: Snapshot,
    over: threading.Event | None = None,
) -> tuple[int, bytes]:
    """Return the snapshot's version and the JSON of predictions, with what else is asked for.

    InputError says that they are too many, TimeoutError that it was `over` amid explanations:
    nobody waits for them any more.
    """
    n_found = examples.n * len(snapshot.classes)
    if n_found > schemas.PROBABILITIES_MAX:
        raise InputError(
            f"{examples.n} examples of {len(snapshot.classes)} classes are {n_found} "
            f"probabilities, and {schemas.PROBABILITIES_MAX} may be asked for at once; "
            "send them in parts"
        )
    has_prior = asked.prior == "model"
    reader = snapshot if has_prior else snapshot.without_prior()
    answer = predict_columns(snapshot, examples.columns, reader)
    if asked.raw:
        by_counts = snapshot.raw() if has_prior else snapshot.raw().without_prior()
        raw = predict_columns(snapshot, examples.columns, by_counts)
        for prediction, beside in zip(answer.predictions, raw.predictions, strict=True):
            prediction.raw = beside.probabilities
    if asked.explain or asked.interval is not None:
        for i, prediction in enumerate(answer.predictions):
            if over is not None and over.is_set():
                raise TimeoutError
            example = examples.example(i)
            if asked.explain:
                prediction.explanation = explain(reader, example)
            if asked.interval is not None:
                prediction.interval = credible_interval(reader, example, asked.interval)
    return snapshot.version, msgspec.json.encode(answer)


# ---- the model, the page and probes --------------------------------------------------------------

_PROBLEMS = {422: "A parameter is wrong.", 503: "Too much is asked at once; ask again."}
MODEL = ApiOperation(
    "The model, and how well it does",
    in_forms(schemas.ModelAnswer),
    parameters=(FORMAT,),
    problems=_PROBLEMS,
)
FIELDS = ApiOperation(
    "What was counted of each field",
    in_forms(schemas.FieldsAnswer),
    parameters=(FORMAT,),
    problems=_PROBLEMS,
)
PAGE = ApiOperation("What the page must know at its start", schemas.PageAnswer, problems=_PROBLEMS)


def _askable(languages: list[str]) -> list[str]:
    """Return the languages that a search takes; messages may call theirs by any name."""
    return [name for name in languages if len(name) <= schemas.LANG_CHARS_MAX and "\0" not in name]


def model_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the route `/v1/model`."""

    async def model(request: Request) -> Response:
        form = form_of(QueryParameters(request, ("format",)))
        queue, recent = app_state.label_queue, app_state.recent
        labelling: LabellingState | None = None
        # Until the stored messages are opened nobody knows what waits.
        if queue is not None and recent is not None and recent.state().is_open:
            labelling = await workers.run(queue.state)
        answer = await batcher.ask(partial(_model, app_state, labelling))
        return await response_in(workers, form, answer, "model")

    return [ApiRoute("/v1/model", model, MODEL)]


def counted_share(share: float, n: float) -> Share:
    """Return a share of n as it was counted, with its interval by Wilson's formula."""
    return Share(share, *wilson(share * n, n))


def stored_bins(recent: RecentStore | None) -> Callable[[], StoredBins]:
    """Return what tells how stored numbers lie, read once for all that ask within a second."""
    shared = Shared(lambda: {} if recent is None else number_bins(recent))

    def stored() -> StoredBins:
        with suppress(QueryError):  # the store is busy, or not open yet: the next one asks again
            return shared()
        return {}

    return stored


def fields_of(snapshot: Snapshot, stored: Callable[[], StoredBins]) -> schemas.FieldsAnswer:
    """Return what a snapshot has counted of its fields, and how stored numbers lie."""
    state, bins = snapshot.state, stored()
    classes = [str(label) for label in snapshot.classes]

    def by_class(values: NDArray[np.float64]) -> dict[str, Any]:
        return dict(zip(classes, values.tolist(), strict=True))

    with np.errstate(divide="ignore", invalid="ignore"):
        return schemas.FieldsAnswer(
            snapshot_version=snapshot.version,
            classes=classes,
            categories=[
                schemas.CategoryField(
                    row.group,
                    row.field,
                    by_class(row.seen),
                    row.n_values,
                    [schemas.CountedValue(one.value, by_class(one.counts)) for one in row.values],
                )
                for row in summary.category_rows(state, VALUES_MAX)
            ],
            flags=[
                schemas.FlagField(
                    row.group,
                    row.field,
                    by_class(row.true + row.false),
                    by_class(row.true / (row.true + row.false)),
                )
                for row in summary.flag_rows(state)
            ],
            numbers=[
                schemas.NumberField(
                    row.group,
                    row.field,
                    by_class(row.n),
                    by_class(np.where(row.n > 0, row.mean, np.nan)),
                    by_class(row.deviation),
                    *bins.get(row.field, ()),
                )
                for row in summary.number_rows(state)
            ],
        )


def fields_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the route `/v1/fields`."""
    stored = stored_bins(app_state.recent)

    async def fields(request: Request) -> Response:
        form = form_of(QueryParameters(request, ("format",)))
        # Not on the predictor's thread: a model may have thousands of fields.
        snapshot = await batcher.ask(lambda current: current)
        found = await workers.run(partial(fields_of, snapshot, stored))
        return await response_in(workers, form, found, "fields")

    return [ApiRoute("/v1/fields", fields, FIELDS)]


def page_routes(app_state: AppState, workers: WorkerPool) -> list[ApiRoute]:
    """Return the route `/v1/page`."""

    async def page(request: Request) -> Response:
        QueryParameters(request)
        return json_response(await workers.run(partial(_page, app_state)))

    return [ApiRoute("/v1/page", page, PAGE)]


def _page(app_state: AppState) -> schemas.PageAnswer:
    settings, recent = app_state.settings, app_state.recent
    return schemas.PageAnswer(
        version=__version__,
        names=_names(settings),
        source=app_state.status().source,
        classes=list(app_state.classes),
        languages=_askable([] if recent is None else recent.languages()),
        unsure_below=settings.page.unsure_below,
        messages_min=settings.page.share_messages_min,
        corrections=corrections_of(app_state),
        sample=None if recent is None else sample_of(recent.state()),
        has_history=recent is not None and recent.has_history,
        fields=dict(judged_kinds(settings)),
        conditions=[] if recent is None else _conditions(recent.fields),
    )


def _conditions(fields: Sequence[str]) -> list[str]:
    """Return what a query's conditions may be on, once each; a text is searched by its words."""
    names = [written_name(name) for name in (*BUILT_IN, *fields) if name != "text"]
    return list(dict.fromkeys(names))  # fields may be called `lang` too


def _names(settings: Settings) -> schemas.PageNames:
    """Return what things are called on the page."""
    one, several = message_names(settings)
    return schemas.PageNames(
        title=settings.page.title,
        message=one,
        messages=several,
        question=question(settings),
        placeholder=placeholder(settings, dict(judged_kinds(settings)).values()),
        user_prefix=user_prefix(settings),
        classes=[
            schemas.ClassDisplay(label, shown.name, shown.colour)
            for label, shown in settings.page.classes.items()
        ],
    )


def corrections_of(app_state: AppState) -> schemas.Corrections:
    """Return whether corrections are taken now, and why not."""
    http, correction_service = app_state.settings.http, app_state.correction_service
    if correction_service is None:
        reason: str | None = f"corrections are off: {corrections_off(app_state.settings)}"
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
        stated=status.stated,
        coverage=status.coverage,
        per=status.per,
        **{name: getattr(status.quality, name) for name in QualityReport.__struct_fields__},
    )


# ---- snapshots for replicas ----------------------------------------------------------------------

SNAPSHOT_ROUTE = "/v1/snapshot"
SNAPSHOT = ApiOperation(
    "The model as a file, for replicas",
    "application/octet-stream",
    problems={
        401: "The token is missing or wrong.",
        403: "No token is set, and the request is not from this machine.",
        404: "http.snapshots is false.",
        422: "There is a parameter.",
        503: "There is no snapshot yet, or too much is asked at once.",
    },
    also={
        226: ("What changed since the version of If-None-Match: A-IM is streamnb-delta.", b""),
        304: ("If-None-Match names the newest version.", None),
    },
    headers={
        AGE_HEADER: "For how many seconds there may be a newer version.",
        SINCE_HEADER: "Unix seconds: when the interval of http.snapshot_interval_s began from which"
        " on this version is handed out. It is left out if that is 0.",
    },
)
_CHUNK = 256 << 10  # other requests are answered between two of them
DELTAS = "streamnb-delta"  # in the headers A-IM and IM of RFC 3229


def snapshot_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the route `/v1/snapshot`."""
    http = app_state.settings.http
    encoder = SnapshotEncoder(interval_s=http.snapshot_interval_s)

    async def snapshot(request: Request) -> Response:
        QueryParameters(request)
        if not http.snapshots:
            raise component_is_off("snapshots are not handed out", "http.snapshots: true")
        # It holds all words, and the key of their fingerprints.
        check_change(request, http, "snapshots are handed out")
        current = await batcher.ask(lambda snapshot: snapshot)
        known, by_delta = (request.headers.get(name, "") for name in ("if-none-match", "a-im"))
        make = partial(encoder.newest, current, known, by_delta=by_delta == DELTAS)
        etag, age_s, blocks, is_delta, since_s = await workers.run(make)
        if app_state.follow_age_s is not None:
            age_s += app_state.follow_age_s() or 0.0
        headers = NO_STORE | {"ETag": etag, AGE_HEADER: f"{age_s:.3f}"}
        headers |= {} if since_s is None else {SINCE_HEADER: f"{since_s:.6f}"}
        if known == etag:
            return Response(status_code=304, headers=headers)
        headers["Content-Length"] = str(sum(map(len, blocks)))
        if is_delta:
            headers |= {"IM": DELTAS, "Delta-Base": known}
        status = 226 if is_delta else 200
        return StreamingResponse(_chunks(blocks), status, headers, "application/octet-stream")

    return [ApiRoute(SNAPSHOT_ROUTE, snapshot, SNAPSHOT)]


async def _chunks(blocks: list[bytes | memoryview]) -> AsyncIterator[bytes]:
    for block in blocks:
        for begin in range(0, len(block), _CHUNK):
            yield bytes(block[begin : begin + _CHUNK])


# What the description shows of probes that say no.
_STUCK = schemas.HealthAnswer(
    "stuck",
    "the consuming loop has not turned for 131.0 s, and may be silent for 120 s "
    "(http.stuck_after_s); after a restart the daemon goes on from its last checkpoint",
    131.2,
    3,
    None,
)
_WAITING = schemas.HealthAnswer(
    "waiting for source", "kafka://127.0.0.1:9092/tweets: no broker answers", 12.5, 3, None
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
        ApiRoute(
            "/metrics",
            metrics,
            ApiOperation(
                "Every metric, for Prometheus",
                "text/plain",
                problems={503: "Too much is being asked at once."},
            ),
        ),
        ApiRoute(
            "/healthz",
            healthz,
            ApiOperation(
                "Is the daemon alive?",
                schemas.HealthAnswer,
                also={503: ("Not alive; a restart would help.", _STUCK)},
            ),
        ),
        ApiRoute(
            "/readyz",
            readyz,
            ApiOperation(
                "Can it answer from what it learns?",
                schemas.HealthAnswer,
                also={503: ("Not yet, or no longer; `reason` says why.", _WAITING)},
            ),
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
