"""`GET /v1/search`, `/v1/summary` and `/v1/messages/{id}`: searches in the recent messages."""

from __future__ import annotations

from functools import partial

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from consumers.http import schemas
from consumers.http.openapi import ApiOperation, ApiRoute, parameter
from consumers.http.requests import (
    ProblemError,
    QueryParameters,
    component_is_off,
    json_response,
    message_id,
)
from consumers.http.routes_predict import credible_interval, explain
from consumers.http.state import AppState, Serializer
from consumers.http.threads import Batcher, WorkerPool
from consumers.search.query_syntax import parse
from consumers.search.rows import MessageRow
from consumers.search.store import RecentStore
from streamnb import Snapshot
from streamnb.errors import InputError

LIMIT = 50
LEVEL = 0.95
MESSAGES = "/v1/messages/"

_Q = parameter("q", {"type": "string"}, 'Words, "phrases", -not, #tags; empty for everything.')
_LANG = parameter("lang", {"type": "string"}, "Messages in this language alone.")
_WHOLE = {"type": "integer", "minimum": 1}
_PROBLEMS = {
    400: "The address is not UTF-8.",
    404: "recent.enabled is false.",
    422: "The query cannot be searched for, or a parameter is wrong.",
    503: "Too much is being asked at once.",
}
SEARCH = ApiOperation(
    "The newest messages that match",
    schemas.SearchAnswer,
    parameters=(
        _Q,
        _LANG,
        parameter(
            "limit", _WHOLE | {"maximum": schemas.SEARCH_LIMIT_MAX, "default": LIMIT}, "How many."
        ),
        parameter("before", _WHOLE, "Only messages with keys below this one."),
    ),
    problems=_PROBLEMS,
)
SUMMARY = ApiOperation(
    "Shares and counts over the newest messages that match",
    schemas.ApiSummary,
    parameters=(_Q, _LANG),
    problems=_PROBLEMS,
)
MESSAGE = ApiOperation(
    "One message, and why it is judged so",
    schemas.MessageAnswer,
    parameters=(parameter("id", {"type": "string"}, "The message's id.", "path"),),
    problems=_PROBLEMS | {404: "The store does not hold it, or recent.enabled is false."},
)


def search_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the routes that search the store of recent messages."""
    serializer = Serializer(app_state)

    async def search(request: Request) -> Response:
        recent = _store(app_state)
        given = QueryParameters(request, ("q", "lang", "limit", "before"))
        query, lang = parse(given.text("q")), given.text("lang", schemas.LANG_CHARS_MAX) or None
        limit = given.whole("limit", 1, schemas.SEARCH_LIMIT_MAX) or LIMIT
        before = given.whole("before", 0, 2**63 - 1)
        found = await workers.run(partial(recent.search, query, lang, limit, before))
        return json_response(serializer.search_answer(query, lang, found, recent.state()))

    async def summary(request: Request) -> Response:
        recent = _store(app_state)
        given = QueryParameters(request, ("q", "lang"))
        query, lang = parse(given.text("q")), given.text("lang", schemas.LANG_CHARS_MAX) or None
        counted = await workers.run(partial(recent.counted, query, lang))
        return json_response(serializer.summary(query, lang, counted, recent.state()))

    async def message(request: Request) -> Response:
        recent = _store(app_state)
        name = message_id(request, MESSAGES)
        row = await workers.run(partial(recent.get, name))
        if row is None:
            raise ProblemError(404, f"no message {name[:80]!r} is held; it was never, or has left")
        shown = serializer.message(row, (row.text,))
        return json_response(await batcher.ask(partial(_message_answer, row, shown)))

    return [
        ApiRoute("/v1/search", search, SEARCH),
        ApiRoute("/v1/summary", summary, SUMMARY),
        ApiRoute("/v1/messages/{id:path}", message, MESSAGE),
    ]


def _store(app_state: AppState) -> RecentStore:
    """Return the store; 404 with the setting that turns it on, if it is off."""
    if app_state.recent is None:
        raise component_is_off("recent messages are not kept", "recent.enabled: true")
    return app_state.recent


def _message_answer(
    row: MessageRow, shown: schemas.Message, snapshot: Snapshot
) -> schemas.MessageAnswer:
    """Return a message with what a snapshot predicts for it now, and why."""
    shares = snapshot.predict_proba_one(row.example)
    classes = [str(label) for label in snapshot.classes]
    try:
        why = explain(snapshot, row.example)
    except InputError:
        why = None  # there is only one class
    try:
        how_sure = credible_interval(snapshot, row.example, LEVEL)
    except InputError:
        how_sure = None  # the model's parameters have no posterior
    return schemas.MessageAnswer(
        **msgspec.structs.asdict(shown),
        explanation=why,
        interval=how_sure,
        snapshot_version=snapshot.version,
        now=schemas.Now(
            classes[int(np.argmax(list(shares.values())))],
            dict(zip(classes, shares.values(), strict=True)),
        ),
    )
