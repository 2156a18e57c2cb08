"""The HTTP application: its routes, what holds for every request, the page's files, and a card.

Each theme of routes has a file of its own; `make_app` puts them together. `docs/api.md` shows every
route with its answer, and `/docs` shows the same from the types. Every request has an allowed Host,
gets safe headers and is counted. An unforeseen error is written to the log with an id; the client
gets that id and nothing of the error itself.

The page is made by its scripts. Its head says who it is before any has run, so that a link to it
has a preview where it is shared (OpenGraph). `GET /embed` is a card with the figures of one query
for the frames of other sites: HTML that the daemon makes, with a script of a few lines that asks
for it again. Only the sites of `http.embed_sites` may frame it, and nobody any other page.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import urlencode

import structlog
from msgspec import UnsetType
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumers.config.settings import Settings, message_names, question
from consumers.http import schemas
from consumers.http.openapi import ApiOperation, ApiRoute, description_routes, parameter
from consumers.http.requests import (
    NO_STORE,
    RETRY_SOON,
    AllowedHosts,
    BodyReader,
    ExampleDecoder,
    ProblemError,
    QueryParameters,
    component_is_off,
)
from consumers.http.routes_corrections import correction_routes, wanted_routes
from consumers.http.routes_model import (
    FOLLOW_HEADER,
    counted_share,
    fields_routes,
    model_routes,
    page_routes,
    prediction_routes,
    probe_routes,
    snapshot_routes,
)
from consumers.http.routes_page import part_routes
from consumers.http.routes_search import (
    EXPORT_NICE,
    EXPORT_TIMEOUT_S,
    event_routes,
    export_routes,
    search_routes,
)
from consumers.http.state import AppState, Serializer, bar_of, looks_of
from consumers.http.threads import Batcher, WorkerPool
from consumers.monitoring.metrics import OTHER, HttpMetrics
from consumers.monitoring.quality import Share
from consumers.search.query_syntax import QueryError, StoreBusyError
from consumers.search.store import RecentStore

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "img-src 'self' data:; object-src 'none'"  # a picture of a chart is drawn from an SVG
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
    "the daemon is stopping; ask again once it is back",  # of a correction the route says more
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
        "this is a mistake of the program; the log has more, under the name of this instance",
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
    # A hundred explanations may take seconds, for which no search is to wait.
    explainers = WorkerPool(http.request_timeout_s, "serve-explain", n_threads=1)
    # Starlette tries them in this order: the most frequent one comes first.
    routes = prediction_routes(batcher, explainers, bodies, example_decoder)
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
            *part_routes(app_state, batcher, workers),
        ]
        files = file_routes(app_state.settings)
    routes += model_routes(app_state, batcher, workers)
    routes += [
        *fields_routes(app_state, batcher, workers),
        *snapshot_routes(app_state, batcher, workers),
    ]
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
    app.state.workers = workers, correction_workers, exporter, explainers
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
    if isinstance(error, StoreBusyError):
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


# ---- the page's files ---------------------------------------------------------------------------

PAGE = Path(__file__).parent / "static"
_HEAD = "<title>streamnb</title>"  # of the page's file: what is put in its place says more


class PageFiles(StaticFiles):
    """The page's files; a browser asks each time whether it still has the newest.

    They are read once, when the daemon starts. Each answer from the disk would be handed between
    threads four times, which wait for one another while messages rush in; a page has 13 files.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory)
        self._files = {
            str(path.relative_to(directory)): (path.read_bytes(), mimetypes.guess_type(path)[0])
            for path in directory.rglob("*")
            if path.is_file()
        }

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a whole file, or 304 if the browser has it."""
        found = self._files.get(path)
        if found is None or scope["method"] not in {"GET", "HEAD"}:
            return await super().get_response(path, scope)  # which refuses it
        return _newest(Request(scope), *found)


def file_routes(settings: Settings) -> list[BaseRoute]:
    """Return the routes of the page and its files."""
    before, _, after = (PAGE / "index.html").read_text(encoding="utf-8").partition(_HEAD)

    async def index(request: Request) -> Response:
        body = f"{before}{_preview(settings, request)}{after}".encode()
        return _newest(request, body, "text/html")

    return [ApiRoute("/", index, None), Mount("/page", PageFiles(directory=PAGE))]


def _newest(request: Request, body: bytes, media_type: str | None) -> Response:
    """Return a whole body, or 304 if the browser has it; never a part of so small a one."""
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"Cache-Control": "no-cache", "ETag": etag, "Accept-Ranges": "none"}
    known = request.headers.get("if-none-match", "").split(",")
    if etag in {each.strip().removeprefix("W/") for each in known}:  # a proxy that packs weakens it
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def _preview(settings: Settings, request: Request) -> str:
    """Return the title and what other sites show of a link to the page."""
    query = request.query_params.get("q", "").strip()[: schemas.QUERY_CHARS_MAX]
    title = f"{query} · {settings.page.title}" if query else settings.page.title
    several = message_names(settings)[1]
    description = (
        f"{question(settings)} {query or 'everything'}: shares with intervals, counts and "
        f"{several}, as they come."
    )
    # A proxy that speaks TLS says so; without one the daemon is asked as it is.
    scheme = "https" if request.headers.get("x-forwarded-proto") == "https" else "http"
    # HTTP/1.0 may name no host: it is then the address that was asked.
    root = f"{scheme}://{request.headers.get('host') or request.url.netloc}"
    said = {
        "og:type": "website",
        "og:site_name": settings.page.title,
        "og:title": title,
        "og:description": description,
        "og:image": f"{root}/page/preview.png",
        "og:image:width": "1200",
        "og:image:height": "630",
        "og:image:alt": "A ring in two colours: shares of classes.",
    }
    lines = [
        f"<title>{escape(title)}</title>",
        f'<meta name="description" content="{escape(description)}">',
        *[f'<meta property="{name}" content="{escape(value)}">' for name, value in said.items()],
        '<meta name="twitter:card" content="summary_large_image">',
    ]
    return "\n  ".join(lines)


# ---- the card ------------------------------------------------------------------------------------

EMBED = ApiOperation(
    "A card with the figures of a query, for a frame of another site",
    "text/html",
    parameters=(
        parameter("q", {"type": "string"}, "As for /v1/search."),
        parameter("lang", {"type": "string"}, "Messages in this language alone."),
    ),
    problems={
        404: "http.embed_sites is empty, or recent.enabled is false.",
        422: "A parameter is wrong.",
    },
    also={
        422: ("A card that says what is wrong with the query.", '<p class="problem">…</p>'),
        503: (
            "A card that says that the store cannot be read just now, or too much is asked.",
            '<p class="problem">…</p>',
        ),
    },
)


def embed_routes(app_state: AppState, workers: WorkerPool) -> list[ApiRoute]:
    """Return the route of the card."""
    settings, serializer = app_state.settings, Serializer(app_state)
    sites = " ".join(settings.http.embed_sites)
    headers = NO_STORE | {
        "Content-Security-Policy": (
            "default-src 'self'; base-uri 'none'; form-action 'none'; object-src 'none'; "
            f"frame-ancestors {sites}"
        ),
        "Cross-Origin-Resource-Policy": "cross-origin",
    }

    def figures(recent: RecentStore, text: str, lang: str | None) -> tuple[int, str]:
        """Return the status and what the card says."""
        try:
            query = recent.parse(text)
            counted = recent.counted(query, lang)
        except StoreBusyError as error:
            return 503, _problem(error)
        except QueryError as error:
            return 422, _problem(error)
        summary = serializer.summary(query, lang, counted, recent.state())
        return 200, _figures(settings, summary)

    async def embed(request: Request) -> Response:
        if not sites:
            raise component_is_off(
                "no site may frame a card", "http.embed_sites: [https://board.example.org]"
            )
        if app_state.recent is None:
            raise component_is_off("recent messages are not kept", "recent.enabled: true")
        given = QueryParameters(request, ("q", "lang"))
        text = given.text("q")
        lang = given.text("lang", schemas.LANG_CHARS_MAX) or None
        try:
            status, body = await workers.run(partial(figures, app_state.recent, text, lang))
        except ProblemError as error:  # a frame that is refused would never ask again
            status, body = error.problem.status, _problem(error)
        page = card(settings, text, lang, body)
        return HTMLResponse(page, status, headers | (RETRY_SOON if status == 503 else {}))

    return [ApiRoute("/embed", embed, EMBED)]


def card(settings: Settings, text: str, lang: str | None, body: str) -> str:
    """Return the card of a query around what it says."""
    asked = {name: value for name, value in (("q", text), ("lang", lang)) if value}
    href = escape(f"/?{urlencode(asked)}" if asked else "/")
    name = escape(text or "everything") + (f" ({escape(lang)})" if lang else "")
    title = escape(settings.page.title)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<title>{name} · {title}</title><link rel="icon" href="/page/icon.svg">'
        '<link rel="stylesheet" href="/page/style.css">'
        '<script type="module" src="/page/embed.js"></script></head><body class="embed"><main>'
        f'<h1><a href="{href}" target="_blank" rel="noopener">{escape(question(settings))} '
        f'<bdi class="query">{name}</bdi></a></h1>{body}</main></body></html>'
    )


def _problem(error: QueryError | ProblemError) -> str:
    return f'<p class="problem">{escape(str(error))}</p>'


def _figures(settings: Settings, summary: schemas.ApiSummary) -> str:
    """Return the shares by class, or, of too few messages, the counts alone, and the note below."""
    most = max(1, *summary.counts.values())
    rows = []
    for label, name, colour, _ in looks_of(settings, summary.classes):
        n, words = summary.counts[label], ""
        bar = Share(n / most, n / most, n / most)
        if summary.enough:
            bar = _share(summary, label)
            words = share_in_words(bar)
        rows.append(
            f"<tr><th scope=row>{name}</th>"
            f"<td>{bar_of(bar, colour)}</td><td class=number><b>{words}</b></td>"
            f"<td class=number>{n:,}</td></tr>"
        )
    one, several = message_names(settings)
    note = f"{summary.n:,} {one if summary.n == 1 else several}"
    if summary.newest_only:
        note = f"The latest {note}"
    if not summary.enough:
        note += f"; a share needs {summary.messages_min:,}"
    else:
        note += ", with 95% intervals"
        note += ", not corrected for errors" * (summary.corrected is None)
    now = time.strftime("%H:%M", time.gmtime())
    return f"<table><tbody>{''.join(rows)}</tbody></table><p class=note>{note}. {now} UTC.</p>"


def _share(summary: schemas.ApiSummary, label: str) -> Share:
    """Return the corrected share, or the predicted one with its own interval."""
    if summary.corrected is not None:
        return summary.corrected[label]
    size = summary.n if isinstance(summary.n_even, UnsetType) else summary.n_even
    return counted_share(summary.raw[label] or 0.0, size)


def share_in_words(share: Share) -> str:
    """Return a share with its interval, as the page writes it.

    >>> share_in_words(Share(0.62, 0.58, 0.66)), share_in_words(Share(0.99, 0.9, 1.0))
    ('62% ± 4', '99% (90–100)')
    >>> share_in_words(Share(0.5, 0.5, 0.5))
    '50%'
    """
    low, high = 100 * share.low, 100 * share.high
    if not high > low:
        return f"{share.share:.0%}"
    half = (high - low) / 2
    if abs((high + low) / 2 - 100 * share.share) > 0.6:
        return f"{share.share:.0%} ({low:.0f}–{high:.0f})"
    return f"{share.share:.0%} ± {half:.{int(half < 0.95)}f}"
