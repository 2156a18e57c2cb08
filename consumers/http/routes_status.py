"""`GET /v1/model`, `/v1/page`, `/metrics`, `/healthz` and `/readyz`: model, page and probes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from consumers.http import schemas
from consumers.http.authorization import NOT_OPEN, is_open, needs_token
from consumers.http.openapi import ApiOperation, ApiRoute
from consumers.http.requests import NO_STORE, QueryParameters, corrections_setting, json_response
from consumers.http.state import AppState, sample_of
from consumers.http.threads import Batcher, WorkerPool
from consumers.monitoring.quality import QualityReport
from consumers.monitoring.status import HealthReport
from streamnb import Snapshot, __version__

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
        return json_response(await batcher.ask(partial(_model, app_state)))

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


def _model(app_state: AppState, _snapshot: Snapshot) -> schemas.ModelAnswer:
    """Return the status in the form of the API; with no snapshot, asking fails before."""
    status = app_state.status()
    return schemas.ModelAnswer(
        state=status.health.state,
        source=status.source,
        trouble=status.trouble or status.health.degraded,
        n_messages=status.n_messages,
        n_examples=status.n_examples or 0,
        rate_per_s=status.rate_per_s,
        lag=status.lag_total,
        vocabulary_size=status.vocabulary_size,
        n_features=status.n_features,
        classes=status.class_rows,
        snapshot=schemas.SnapshotAge(status.snapshot_version, status.snapshot_age_s),
        checkpoint=schemas.CheckpointAge(status.checkpoint_age_s),
        drift=status.drift,
        **{name: getattr(status.quality, name) for name in QualityReport.__slots__},
    )


def probe_routes(app_state: AppState) -> list[ApiRoute]:
    """Return the routes `/metrics`, `/healthz` and `/readyz`."""

    # Plain coroutines: each answer takes a millisecond or two, less than handing it to a thread.
    async def metrics(request: Request) -> Response:
        encode, content_type = _encoder(request.headers.get("accept", ""))
        headers = {"Content-Type": content_type, **NO_STORE}
        return Response(encode(app_state.registry), headers=headers)

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
