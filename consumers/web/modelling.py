"""`GET /v1/model`: how well the model does; `GET /v1/page`: what the page must know to begin."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from consumers.web.access import NOT_OPEN, is_open, needs_token
from consumers.web.judging import Judge
from consumers.web.parameters import Parameters
from consumers.web.problems import way_to_corrections
from consumers.web.rooms import Rooms
from consumers.web.route import PlainRoute, Told, json_response
from consumers.web.showing import sample_of
from consumers.web.wire import (
    LANG_CHARS_MAX,
    CheckpointAge,
    ClassRow,
    Corrections,
    ModelAnswer,
    PageAnswer,
    SnapshotAge,
)
from consumers.web.workers import Workers
from streamnb import Snapshot, __version__
from streamnb.overview import n_features

_PROBLEMS = {422: "There is a parameter.", 503: "Too much is asked at once; ask again."}
MODEL = Told("The model, and how well it does", ModelAnswer, problems=_PROBLEMS)
PAGE = Told("What the page must know at its start", PageAnswer, problems=_PROBLEMS)


def _askable(languages: list[str]) -> list[str]:
    """Return the languages that a search takes; messages may call theirs by any name."""
    return [name for name in languages if len(name) <= LANG_CHARS_MAX and "\0" not in name]


def modelling_routes(rooms: Rooms, judge: Judge, workers: Workers) -> list[PlainRoute]:
    """Return the routes `/v1/model` and `/v1/page`."""

    async def model(request: Request) -> Response:
        Parameters(request, ())
        return json_response(await judge.ask(partial(_model, rooms)))

    async def page(request: Request) -> Response:
        Parameters(request, ())
        return json_response(await workers.run(partial(_page, rooms)))

    return [PlainRoute("/v1/model", model, MODEL), PlainRoute("/v1/page", page, PAGE)]


def _page(rooms: Rooms) -> PageAnswer:
    settings, recent = rooms.settings, rooms.recent
    return PageAnswer(
        version=__version__,
        source=rooms.status().source,
        classes=list(settings.model.classes),
        languages=_askable([] if recent is None else recent.languages()),
        unsure_below=settings.page.unsure_below,
        messages_min=settings.page.share_messages_min,
        corrections=_corrections(rooms),
        sample=None if recent is None else sample_of(recent.state()),
    )


def _corrections(rooms: Rooms) -> Corrections:
    """Return whether corrections are taken now, and why not."""
    http, desk = rooms.settings.http, rooms.desk
    if desk is None:
        reason: str | None = f"corrections are off: set {way_to_corrections(rooms.settings)}"
    elif not is_open(http):
        reason = NOT_OPEN
    else:
        reason = None if desk.ready else desk.reason
    return Corrections(reason is None, needs_token(http), reason)


def _model(rooms: Rooms, snapshot: Snapshot) -> ModelAnswer:
    status, known, health = rooms.status(), rooms.quality.report(), rooms.health.report()
    return ModelAnswer(
        state=health.state,
        source=status.source,
        trouble=status.trouble or health.degraded,
        n_messages=status.n_messages,
        n_examples=snapshot.n_examples,
        rate_per_s=status.rate_per_s,
        lag=status.lag_total,
        vocabulary_size=snapshot.vocabulary_size,
        n_features=n_features(snapshot),
        classes=[
            ClassRow(str(label), count, prior)
            for label, count, prior in zip(
                snapshot.classes,
                snapshot.class_counts.tolist(),
                snapshot.class_priors().tolist(),
                strict=True,
            )
        ],
        snapshot=SnapshotAge(snapshot.version, status.snapshot_age_s),
        checkpoint=CheckpointAge(status.checkpoint_age_s),
        prequential=known.prequential,
        confusion=known.confusion,
        calibration=known.calibration,
        history=known.history,
        telling=known.telling,
        rising=known.rising,
        falling=known.falling,
        trend_s=known.trend_s,
    )
