"""`/openapi.json` and `/docs`: what the API is, for programs and for people.

The page is made here, from the description alone: it needs no script, and nothing from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from consumers.http.route import ApiRoute

STYLE = """\
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
section { border-top: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
td:first-child { white-space: nowrap; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
.doc { white-space: pre-line; }
"""


def description_routes(openapi: Callable[[], dict[str, Any]]) -> list[ApiRoute]:
    """Return the routes of the description.

    Parameters
    ----------
    openapi : callable
        Returns the description.
    """

    async def schema(_request: Request) -> Response:
        return Response(msgspec.json.encode(openapi()), media_type="application/json")

    async def docs(_request: Request) -> Response:
        return HTMLResponse(page_of(openapi()))

    async def style(_request: Request) -> Response:
        return Response(STYLE, media_type="text/css")

    return [
        ApiRoute("/openapi.json", schema, None),
        ApiRoute("/docs", docs, None),
        ApiRoute("/docs/style.css", style, None),
    ]


def page_of(schema: dict[str, Any]) -> str:
    """Return a page that shows an OpenAPI description.

    Parameters
    ----------
    schema : dict
        As OpenAPI 3.1 has it.
    """
    info = schema["info"]
    operations = [
        _operation(path, method, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    types = [_type(name, each) for name, each in sorted(schema["components"]["schemas"].items())]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}: the HTTP API</title>"
        '<link rel="stylesheet" href="/docs/style.css"></head><body><main>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}: the HTTP API</h1>"
        f"<p>{escape(info['description'])}</p>"
        '<p>For programs: <a href="/openapi.json">openapi.json</a>. '
        '<a href="/">Back to the page</a>.</p>'
        f"<h2>Routes</h2>{''.join(operations)}<h2>Types</h2>{''.join(types)}"
        "</main></body></html>"
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    rows = [
        (each["name"], f"{each['in']}, {_kind(each['schema'])}", each.get("description", ""))
        for each in operation.get("parameters", [])
    ]
    if "requestBody" in operation:
        rows.append(("body", _content(operation["requestBody"]), ""))
    rows += [
        (status, _content(answer), answer["description"])
        for status, answer in sorted(operation["responses"].items())
    ]
    name = f"{method.upper()} {path}"
    return (
        f"<section><h3><span class=method>{method.upper()}</span> <code>{escape(path)}</code></h3>"
        f"<p>{escape(operation.get('summary', ''))}</p>{_table(name, rows)}</section>"
    )


def _type(name: str, schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        (field, _kind(each) + ("" if field in required else ", may be left out"),
         each.get("description", ""))
        for field, each in schema.get("properties", {}).items()
    ]  # fmt: skip
    about = f"<p class=doc>{_code(schema.get('description', ''))}</p>"
    return (
        f'<section id="{escape(name)}"><h3>{escape(name)}</h3>{about}{_table(name, rows)}</section>'
    )


def _table(name: str, rows: list[tuple[str, str, str]]) -> str:
    body = "".join(
        f"<tr><td><code>{escape(first)}</code></td><td>{second}</td><td>{escape(third)}</td></tr>"
        for first, second, third in rows
    )
    return f'<table aria-label="{escape(name)}"><tbody>{body}</tbody></table>' if rows else ""


def _content(what: dict[str, Any]) -> str:
    return ", ".join(
        f"{escape(media)}: {_kind(each.get('schema', {}))}"
        for media, each in what.get("content", {}).items()
    )


def _kind(schema: dict[str, Any]) -> str:
    """Return a schema in a few words, as HTML."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "items" in schema:
        return f"list of {_kind(schema['items'])}"
    kind = str(schema.get("type", "anything"))
    more = schema.get("additionalProperties")
    return f"{escape(kind)} of {_kind(more)}" if isinstance(more, dict) else escape(kind)


def _code(text: str) -> str:
    """Return a docstring as HTML, names in backquotes as code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))
