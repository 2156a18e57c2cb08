"""The HTTP application: the page, the API, metrics and health.

Each theme has a file of its own; `make_app` puts them together. `docs/api.md` shows every route
with its answer, and `/docs` shows the same from the types.
"""

from __future__ import annotations

from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from consumers.http.authorization import AllowedHosts
from consumers.http.batcher import Batcher
from consumers.http.middleware import RequestMiddleware
from consumers.http.openapi import ApiRoute, description_routes
from consumers.http.request_examples import ExampleDecoder
from consumers.http.requests import BodyReader
from consumers.http.responses import ProblemError
from consumers.http.routes_corrections import correction_routes
from consumers.http.routes_predict import prediction_routes
from consumers.http.routes_search import search_routes
from consumers.http.routes_status import model_routes, probe_routes
from consumers.http.sse import event_routes
from consumers.http.state import AppState
from consumers.http.workers import WorkerPool
from consumers.search import QueryError

PAGE = Path(__file__).parent / "static"
NOTHING_THERE = "there is nothing at this path; / is the page, and /docs lists what else there is"


def make_app(app_state: AppState) -> Starlette:
    """Return the application."""
    http = app_state.settings.http
    example_decoder, bodies = ExampleDecoder(app_state.settings), BodyReader(http.body_bytes_max)
    batcher = Batcher(
        app_state.predictor,
        example_decoder.text_field,
        http.request_timeout_s,
        lambda: app_state.status().health.starting,
    )
    # A log that does not answer holds up corrections, and nothing else.
    workers, correction_workers = (WorkerPool(http.request_timeout_s) for _ in range(2))
    routes = [
        # Starlette tries them in this order: the most frequent one comes first.
        *prediction_routes(batcher, bodies, example_decoder),
        *search_routes(app_state, batcher, workers),
        *correction_routes(app_state, correction_workers, bodies, example_decoder),
        *model_routes(app_state, batcher, workers),
        *event_routes(app_state),
        *probe_routes(app_state),
    ]
    app = Starlette(
        routes=[*routes, *description_routes(routes), *_page_routes()],
        middleware=[
            Middleware(RequestMiddleware, metrics=app_state.metrics.http, hosts=AllowedHosts(http))
        ],
        exception_handlers={HTTPException: _as_problem, QueryError: _as_bad_query},
    )
    app.router.redirect_slashes = False
    app.state.workers = workers, correction_workers
    return app


class PageFiles(StaticFiles):
    """The page's files; a browser asks each time whether it still has the newest."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a whole file, or 304 if the browser has it."""
        # No part of so small a file is needed, and a wrong Range would be answered as text.
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"range"]
        response = await super().get_response(path, scope)
        response.headers["Accept-Ranges"] = "none"
        response.headers["Cache-Control"] = "no-cache"
        return response


def _page_routes() -> list[BaseRoute]:
    files = PageFiles(directory=PAGE)

    async def index(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    return [ApiRoute("/", index, None), Mount("/page", files)]


async def _as_bad_query(_request: Request, error: Exception) -> Response:
    return ProblemError(422, str(error)).response()


async def _as_problem(request: Request, error: Exception) -> Response:
    """Return an error of the framework as a problem."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return ProblemError(404, NOTHING_THERE).response()
    if error.status_code != 405:
        return ProblemError(error.status_code, error.detail, headers=error.headers).response()
    # The framework names the methods of the first route at this path; there may be others.
    routes = [
        route
        for route in request.app.router.routes
        if isinstance(route, ApiRoute) and route.matches(request.scope)[0] != Match.NONE
    ]
    methods = {method for route in routes for method in route.methods or ()} or {"GET"}
    allowed = ", ".join(sorted(methods))
    return ProblemError(
        405,
        f"{request.method} is not for this path; it takes {allowed}",
        headers={"Allow": allowed},
    ).response()
