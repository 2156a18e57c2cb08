"""What browsers get: the page's files, its preview elsewhere, and a card to embed.

The page itself is made by its scripts. Its head says who it is before any has run, so that a link
to it has a preview where it is shared (OpenGraph). `GET /embed` is a card with the figures of one
query for the frames of other sites: HTML that the daemon makes, with a script of a few lines that
asks for it again. Only the sites of `http.embed_sites` may frame it, and nobody any other page.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
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
from consumers.http.routes_model import fields_of
from consumers.http.state import AppState, Serializer
from consumers.http.threads import Batcher, WorkerPool
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


def _looks(settings: Settings, classes: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return the classes in the page's order, each with its name as HTML and its colour."""
    listed = [label for label in settings.page.classes if label in classes]
    found = []
    for label in [*listed, *(label for label in classes if label not in listed)]:
        shown = settings.page.classes.get(label)
        colour = COLOURS.get((shown and shown.colour) or "") or _colour(classes, label)
        found.append((label, escape((shown and shown.name) or label), colour))
    return found


def _figures(settings: Settings, summary: schemas.ApiSummary) -> str:
    """Return the shares by class, or, of too few messages, the counts alone, and the note below."""
    most = max(1, *summary.counts.values())
    rows = []
    for label, name, colour in _looks(settings, summary.classes):
        n, share = summary.counts[label], _share(summary, label)
        words = share_in_words(share) if summary.enough else ""
        bar = share if summary.enough else Share(n / most, n / most, n / most)
        rows.append(
            f"<tr><th scope=row>{name}</th>"
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


# ---- fields by class, on the page's view of the model --------------------------------------------

_CURVE_POINTS = 60
_DEVIATIONS = 3.0  # to either side of a mean
_DASHES = ("none", "8 3", "2 3", "10 3 2 3")


def field_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the route of the page's own drawing of `/v1/fields`."""
    settings = app_state.settings

    async def fields(request: Request) -> Response:
        QueryParameters(request)
        snapshot = await batcher.ask(lambda current: current)

        def drawn() -> str:
            return drawn_fields(settings, fields_of(snapshot))

        return HTMLResponse(await workers.run(drawn), headers=NO_STORE)

    return [ApiRoute("/page/fields", fields, None)]


def drawn_fields(settings: Settings, answer: schemas.FieldsAnswer) -> str:
    """Return a figure for each field; empty if the model reads nothing but words."""
    looks = _looks(settings, answer.classes)
    heads = "".join(f"<th scope=col>{name}</th>" for _, name, _ in looks)
    figures = []
    for category in answer.categories:
        rows = [(one.value, one.counts) for one in category.values]
        note = f"{category.n_values:,} values" if category.n_values > len(rows) else ""
        shares = [(value, _shares_of(counts, category.counts)) for value, counts in rows]
        figures.append(_field(category, _share_table(category, shares, looks, heads), note))
    figures += [
        _field(flag, _share_table(flag, [("true", flag.shares)], looks, heads), "")
        for flag in answer.flags
    ]
    figures += [_field(number, _curves(number, looks), "") for number in answer.numbers]
    return "".join(figures)


def _shares_of(counts: Mapping[str, float], totals: Mapping[str, float]) -> dict[str, float | None]:
    return {label: counts[label] / n if (n := totals[label]) > 0 else None for label in totals}


def _field(
    field: schemas.CategoryField | schemas.FlagField | schemas.NumberField, body: str, note: str
) -> str:
    """Return the figure of one field."""
    name = f"<bdi>{escape(field.field)}</bdi> <small>{escape(field.group)}</small>"
    below = f"<p class=note>{note}; the most frequent are shown.</p>" if note else ""
    return f'<div data-testid="field"><h3>{name}</h3>{body}{below}</div>'


def _share_table(
    field: schemas.CategoryField | schemas.FlagField,
    rows: Sequence[tuple[str, Mapping[str, float | None]]],
    looks: Sequence[tuple[str, str, str]],
    heads: str,
) -> str:
    """Return a row for each value, and in it for each class a bar and its share."""
    lines = []
    for value, shares in rows:
        cells = []
        for label, _, colour in looks:
            share = shares[label]
            bar = "" if share is None else f"{share:.1%}{_bar(Share(share, share, share), colour)}"
            cells.append(f"<td class=number>{bar or '–'}</td>")
        lines.append(f"<tr><th scope=row><bdi>{escape(value)}</bdi></th>{''.join(cells)}</tr>")
    table = (
        f"<table><thead><tr><td></td>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )
    title = escape(f"{field.field} of {field.group} by class")
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{title}">{table}</div>'


def _number(value: float, n_digits: int = 4) -> str:
    """Return a number with so many digits that count, without an exponent if it reads well.

    >>> _number(14083.4, 3), _number(0.0123), _number(-2.5e-7), _number(0.0), _number(3e12)
    ('14,083', '0.0123', '-2.5e-07', '0', '3e+12')
    """
    size = abs(value)
    if value and not 1e-4 <= size < 1e9:
        return f"{value:.{n_digits}g}"
    places = 0 if not value else max(0, n_digits - 1 - math.floor(math.log10(size)))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _curves(field: schemas.NumberField, looks: Sequence[tuple[str, str, str]]) -> str:
    """Return a normal curve for each class over one axis, and a table of what they are drawn by."""
    known = [
        (label, name, colour, mean, deviation)
        for label, name, colour in looks
        if (mean := field.means[label]) is not None
        and (deviation := field.deviations[label]) is not None
        and math.isfinite(mean)
        and math.isfinite(deviation)
    ]
    if not known:
        return "<p class=note>No value was learned yet.</p>"
    low = min(mean - _DEVIATIONS * deviation for *_, mean, deviation in known)
    high = max(mean + _DEVIATIONS * deviation for *_, mean, deviation in known)
    width = high - low
    if width == 0:
        low, width = low - 0.5, 1.0  # one value, always the same
    if not math.isfinite(width):
        return "<p class=note>The numbers are too large to be drawn.</p>"
    sharpest = min((deviation for *_, deviation in known if deviation > 0), default=0.0)
    # A dash beside the colour, so that colour is never the only sign.
    strokes = {
        label: f'stroke="var(--{colour})" stroke-dasharray="{_DASHES[i % len(_DASHES)]}"'
        for i, (label, _, colour, *_) in enumerate(known)
    }
    paths = []
    for label, _, _, mean, deviation in known:
        if deviation > 0:
            steps = (2 * i / _CURVE_POINTS - 1 for i in range(_CURVE_POINTS + 1))
            points = [
                (mean + _DEVIATIONS * t * deviation, math.exp(-0.5 * (_DEVIATIONS * t) ** 2))
                for t in steps
            ]
            line = "L".join(
                f"{100 * (x - low) / width:.2f} {40 - 38 * y * sharpest / deviation:.2f}"
                for x, y in points
            )
        else:
            at = 100 * (mean - low) / width
            line = f"{at:.2f} 40L{at:.2f} 2"
        paths.append(f'<path d="M{line}" {strokes[label]}/>')
    rows = "".join(
        f'<tr><th scope=row><i><svg viewBox="0 0 22 8" aria-hidden="true">'
        f'<path d="M0 4H22" {strokes[label]}/></svg></i>{name}</th>'
        f"<td class=number>{_number(mean)} ± {_number(deviation, 3)}</td>"
        f"<td class=number>{field.counts[label]:,.0f}</td></tr>"
        for label, name, _, mean, deviation in known
    )
    return (
        '<svg class="curves" viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden="true">'
        f"{''.join(paths)}</svg>"
        f"<p class=ends><span>{_number(low, 3)}</span><span>{_number(low + width, 3)}</span></p>"
        "<table><thead><tr><td></td><th scope=col class=number>mean ± deviation</th>"
        f"<th scope=col class=number>examples</th></tr></thead><tbody>{rows}</tbody></table>"
    )
