"""What browsers get: the page's files, its preview elsewhere, and a card to embed.

The page itself is made by its scripts. Its head says who it is before any has run, so that a link
to it has a preview where it is shared (OpenGraph). `GET /embed` is a card with the figures of one
query for the frames of other sites: HTML that the daemon makes, with a script of a few lines that
asks for it again. Only the sites of `http.embed_sites` may frame it, and nobody any other page.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from functools import partial
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from consumers.config.settings import Settings, message_names, question
from consumers.http import schemas
from consumers.http.openapi import ApiOperation, ApiRoute, parameter
from consumers.http.requests import NO_STORE, QueryParameters, component_is_off
from consumers.http.state import AppState, Serializer
from consumers.http.threads import WorkerPool
from consumers.monitoring.quality import Share
from consumers.search import QueryError, RecentStore, StoreNotOpenError

PAGE = Path(__file__).parent / "static"
_NO_CACHE = {"Cache-Control": "no-cache"}
_HEAD = "<title>streamnb</title>"  # of the page's file: what is put in its place says more
_KNOWN = ("negative", "neutral", "positive")  # classes that have colours of their own
_N_COLOURS = 8
# As the settings call them; the page's script has the same.
COLOURS = {
    "blue": "positive", "red": "negative", "grey": "neutral", "orange": "k0", "purple": "k1",
    "green": "k2", "pink": "k3", "gold": "k4", "indigo": "k5", "brown": "k6", "olive": "k7",
}  # fmt: skip
EMBED = ApiOperation(
    "A card with the figures of a query, for a frame of another site",
    "text/html",
    parameters=(
        parameter("q", {"type": "string"}, "As for /v1/search."),
        parameter("lang", {"type": "string"}, "Messages in this language alone."),
    ),
    problems={
        400: "The address is not UTF-8.",
        404: "http.embed_sites is empty, or recent.enabled is false.",
        422: "A parameter is wrong; of the query the card itself says so.",
    },
)


class PageFiles(StaticFiles):
    """The page's files; a browser asks each time whether it still has the newest."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a whole file, or 304 if the browser has it."""
        # No part of so small a file is needed, and a wrong Range would be answered as text.
        scope["headers"] = [pair for pair in scope["headers"] if pair[0] != b"range"]
        response = await super().get_response(path, scope)
        response.headers["Accept-Ranges"] = "none"
        response.headers.update(_NO_CACHE)
        return response


def file_routes(settings: Settings) -> list[BaseRoute]:
    """Return the routes of the page and its files."""
    before, _, after = (PAGE / "index.html").read_text(encoding="utf-8").partition(_HEAD)

    async def index(request: Request) -> Response:
        body = f"{before}{_preview(settings, request)}{after}".encode()
        etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
        headers = _NO_CACHE | {"ETag": etag}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(body, headers=headers)

    return [ApiRoute("/", index, None), Mount("/page", PageFiles(directory=PAGE))]


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
    root = f"{scheme}://{request.headers['host']}"
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
        except StoreNotOpenError as error:
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
        status, body = await workers.run(partial(figures, app_state.recent, text, lang))
        page = card(settings, text, lang, body)
        return HTMLResponse(page, status, headers)

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
        '<link rel="stylesheet" href="/page/style.css"><script defer src="/page/embed.js"></script>'
        '</head><body class="embed"><main>'
        f'<h1><a href="{href}" target="_blank" rel="noopener">{escape(question(settings))} '
        f'<bdi class="query">{name}</bdi></a></h1>{body}</main></body></html>'
    )


def _problem(error: QueryError) -> str:
    return f'<p class="problem">{escape(str(error))}</p>'


def _figures(settings: Settings, summary: schemas.ApiSummary) -> str:
    """Return the shares by class, or, of too few messages, the counts alone, and the note below."""
    listed = [label for label in settings.page.classes if label in summary.classes]
    order = [*listed, *(label for label in summary.classes if label not in listed)]
    most = max(1, *summary.counts.values())
    rows = []
    for label in order:
        n, shown = summary.counts[label], settings.page.classes.get(label)
        share = _share(summary, label)
        words = share_in_words(share) if summary.enough else ""
        bar = share if summary.enough else Share(n / most, n / most, n / most)
        colour = COLOURS.get((shown and shown.colour) or "") or _colour(summary.classes, label)
        rows.append(
            f"<tr><th scope=row>{escape((shown and shown.name) or label)}</th>"
            f"<td>{_bar(bar, colour)}</td><td class=number><b>{words}</b></td>"
            f"<td class=number>{n:,}</td></tr>"
        )
    one, several = message_names(settings)
    note = f"{summary.n:,} {one if summary.n == 1 else several}"
    if summary.newest_only:
        note = f"The latest {note}"
    if not summary.enough:
        note += f"; a share needs {summary.messages_min:,}"
    elif summary.corrected is not None:
        note += ", with 95% intervals"
    else:
        note += ", not corrected for errors"
    now = time.strftime("%H:%M", time.gmtime())
    return f"<table><tbody>{''.join(rows)}</tbody></table><p class=note>{note}. {now} UTC.</p>"


def _share(summary: schemas.ApiSummary, label: str) -> Share:
    """Return the corrected share, or the predicted one, without an interval."""
    if summary.corrected is not None:
        return summary.corrected[label]
    raw = summary.raw[label] or 0.0
    return Share(raw, raw, raw)


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


def _colour(classes: Sequence[str], label: str) -> str:
    """Return the colour of a class that the settings give none, as the page's script does."""
    name = label.lower()
    return name if name in _KNOWN else f"k{list(classes).index(label) % _N_COLOURS}"


def _bar(share: Share, colour: str) -> str:
    """Return a bar with its interval; the words beside it say the same."""
    low, high = (f"{100 * end:.1f}" for end in (share.low, share.high))
    whisker = f'<path d="M{low} 2V8M{low} 5H{high}M{high} 2V8"/>' if share.high > share.low else ""
    return (
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class=track width=100 height=10 /><rect width="{100 * share.share:.1f}" height=10 '
        f'fill="var(--{colour})"/>{whisker}</svg>'
    )
