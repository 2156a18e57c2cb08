"""The HTTP application: its routes, and what holds for every request.

Each theme of routes has a file of its own; `make_app` puts them together. `docs/api.md` shows every
route with its answer, and `/docs` shows the same from the types. Every request has an allowed Host,
gets safe headers and is counted. An unforeseen error is written to the log with an id; the client
gets that id and nothing of the error itself.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumers.http.openapi import ApiRoute, description_routes
from consumers.http.requests import (
    RETRY_SOON,
    AllowedHosts,
    BodyReader,
    ExampleDecoder,
    ProblemError,
)
from consumers.http.routes_corrections import correction_routes, wanted_routes
from consumers.http.routes_model import (
    FOLLOW_HEADER,
    fields_routes,
    model_routes,
    page_routes,
    prediction_routes,
    probe_routes,
    snapshot_routes,
)
from consumers.http.routes_page import embed_routes, field_routes, file_routes
from consumers.http.routes_search import (
    EXPORT_NICE,
    EXPORT_TIMEOUT_S,
    event_routes,
    export_routes,
    search_routes,
)
from consumers.http.state import AppState
from consumers.http.threads import Batcher, WorkerPool
from consumers.monitoring.metrics import OTHER, HttpMetrics
from consumers.search import QueryError, StoreNotOpenError

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
HEADERS = (
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
NOTHING_THERE = "there is nothing at this path; / is the page, and /docs lists what else there is"
GONE = 499  # the client went before it was answered; such a status is counted, never sent

_STOPPING = ProblemError(
    503,
    "the daemon is stopping, and may have done what was asked or not; look when it is back",
    headers={"Connection": "close", "Retry-After": "5"},
)
log = structlog.get_logger(__name__)


class RequestMiddleware:
    """An ASGI application around another one; without `hosts`, any Host is allowed."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: HttpMetrics,
        hosts: AllowedHosts | None = None,
        follow_age_s: Callable[[], float | None] | None = None,
    ) -> None:
        self._follow_age_s = follow_age_s
        self._app = app
        self._metrics = metrics
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = time.perf_counter()
        method = scope["method"]
        # A HEAD is answered as a GET is; the server leaves the body off.
        inner = {**scope, "method": "GET"} if method == "HEAD" else scope
        status, took_s = 0, 0.0

        async def send_with_headers(message: Message) -> None:
            nonlocal status, took_s
            if message["type"] == "http.response.start":
                status, took_s = message["status"], time.perf_counter() - began_s
                message["headers"] = [*_with_safe(message.get("headers", ())), *self._of_replica()]
            await send(message)
            if method == "HEAD" and message.get("more_body", False):
                # A stream would go on for ever, and nobody sees it.
                await send({"type": "http.response.body"})
                raise ClientDisconnect

        try:
            await self._pass_on(inner, receive, send_with_headers)
        except ProblemError as error:
            await error.response()(scope, receive, send_with_headers)
        except (ClientDisconnect, OSError):
            status = status or GONE
        except asyncio.CancelledError:  # the server stops, and has waited for as long as it may
            if status == 0:
                await _STOPPING.response()(scope, receive, send_with_headers)
            raise
        except Exception:
            if status:
                log.exception("answer_broken_off", route=_route(inner))
                raise
            name = f"urn:uuid:{uuid.uuid4()}"
            log.exception("request_failed", instance=name, route=_route(inner))
            await _unforeseen(name).response()(scope, receive, send_with_headers)
        finally:
            self._metrics.count_request(
                _route(inner), method, status or GONE, took_s if status else None
            )

    def _of_replica(self) -> Iterator[tuple[bytes, bytes]]:
        age_s = None if self._follow_age_s is None else self._follow_age_s()
        if age_s is not None:
            yield FOLLOW_HEADER, f"{age_s:.3f}".encode()

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the Host before any route is looked up, so that no route can forget it."""
        if self._hosts is not None:
            self._hosts.check(scope)
        await self._app(scope, receive, send)


def _with_safe(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return an answer's headers and the safe ones, but those that it has of its own."""
    own = list(headers)
    names = {name for name, _ in own}
    return own + [pair for pair in HEADERS if pair[0] not in names]


def _unforeseen(name: str) -> ProblemError:
    return ProblemError(
        500,
        "this is our mistake, and the log says more under the name of this instance",
        instance=name,
        headers={"Connection": "close"},
    )


def _route(scope: Scope) -> str:
    """Return the template of the route that was taken, never a path."""
    path = getattr(scope.get("route"), "path", None)
    if path is None:  # no route of ours, or a file of the page's folder
        return scope.get("root_path") or OTHER
    return str(path).replace(":path}", "}")


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
    exporter = WorkerPool(EXPORT_TIMEOUT_S, "serve-export", n_threads=1, nice=EXPORT_NICE)
    # Starlette tries them in this order: the most frequent one comes first.
    routes = prediction_routes(batcher, bodies, example_decoder)
    files: list[BaseRoute] = []
    if app_state.follow_age_s is None:  # a replica has no stream, and no page of one
        routes += [
            *search_routes(app_state, batcher, workers),
            *correction_routes(app_state, correction_workers, bodies, example_decoder),
            *wanted_routes(app_state, batcher, workers),
            *page_routes(app_state, workers),
            *event_routes(app_state),
            *export_routes(app_state, exporter),
            *embed_routes(app_state, workers),
            *field_routes(app_state, batcher, workers),
        ]
        files = file_routes(app_state.settings)
    routes += model_routes(app_state, batcher, workers)
    routes += [*fields_routes(batcher, workers), *snapshot_routes(app_state, batcher, workers)]
    routes += probe_routes(app_state, workers)
    app = Starlette(
        routes=[*routes, *description_routes(routes), *files],
        middleware=[
            *_origins(http.allowed_origins),
            Middleware(
                RequestMiddleware,
                metrics=app_state.metrics.http,
                hosts=AllowedHosts(http),
                follow_age_s=app_state.follow_age_s,
            ),
        ],
        exception_handlers={HTTPException: _as_problem, QueryError: _as_bad_query},
    )
    app.router.redirect_slashes = False
    app.state.workers = workers, correction_workers, exporter
    return app


def _origins(allowed: Sequence[str]) -> list[Middleware]:
    """Return what lets pages of other sites read answers.

    It stands outside, so that they read problems too. What a browser asks beforehand (OPTIONS) ends
    there; the answer says which origins may ask, and nothing else.
    """
    if not allowed:
        return []
    cors = Middleware(
        CORSMiddleware,
        allow_origins=list(map(_as_sent, allowed)),
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After", "Streamnb-Follow-Age", "Streamnb-Snapshot-Version"],
    )
    return [cors]


def _as_sent(origin: str) -> str:
    """Return an origin as browsers send it: in small letters, without the port of its scheme."""
    origin = origin.lower()
    return origin.removesuffix(":443" if origin.startswith("https:") else ":80")


async def _as_bad_query(_request: Request, error: Exception) -> Response:
    if isinstance(error, StoreNotOpenError):
        return ProblemError(503, str(error), headers=RETRY_SOON).response()
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
