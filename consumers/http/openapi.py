"""Routes and their OpenAPI description: `/openapi.json` for programs, `/docs` for people.

A route is a function that takes the request and returns the response, with an `ApiOperation` that
describes it by the types of `consumers.http.schemas`; `examples.json` has a call of each route and
its answer, as the guide shows them. Nothing else stands between the socket and the function: a
framework that checks parameters and answers by itself costs more than predicting a text does, and a
quarter of a second at the start. The page `/docs` is made from the description alone: it needs no
script, and nothing from elsewhere.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

import msgspec
from msgspec import field
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from consumers.http.files import FORMS, pieces_in
from consumers.http.requests import PROBLEM_MEDIA_TYPE
from consumers.http.schemas import ApiProblem
from streamnb import __version__

_EXAMPLES = Path(__file__).parent / "examples.json"
_JSON = "application/json"
_HTML = "text/html"
Handler = Callable[[Request], Awaitable[Response]]
AnswerForms: TypeAlias = type | str | tuple[type | str, ...]
DESCRIPTION = "Naive Bayes that learns one message at a time, and answers while it learns."
_SCHEMAS = "#/components/schemas/{name}"
_STYLE = """\
:root { color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }
html { background: Canvas; color: CanvasText; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
pre { overflow-x: auto; }
code, pre { font-family: ui-monospace, monospace; font-size: .9rem; }
section { border-top: 1px solid color-mix(in srgb, currentColor 25%, transparent); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
td { overflow-wrap: anywhere; }
td:first-child { white-space: nowrap; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
.doc { white-space: pre-line; }
ul { list-style: none; padding: 0; }
"""


# What any route may answer with, whatever else its operation says of the same status.
_ANYWHERE = {
    400: "The address is not UTF-8, the request is not HTTP, or it has not exactly one Host.",
    403: "The Host of the request is a name that is not answered.",
    405: "The path takes another method; Allow names those that it takes.",
    408: "The request was not whole within http.request_timeout_s.",
    429: "More than 128 requests wait on the connection.",
    431: "The head is longer than 65,536 bytes.",
    500: "A mistake of the program; the log has it.",
    503: "There are http.connections_max connections, or the daemon is stopping.",
}


class RouteExample(msgspec.Struct, forbid_unknown_fields=True):
    """A call of a route and its answers by media type, as they stand in `examples.json`."""

    asked: dict[str, Any] = {}  # parameters by name
    body: Any = None
    answers: dict[str, Any] = {}


class ApiOperation(msgspec.Struct, frozen=True):
    """What OpenAPI says of a route."""

    summary: str
    answer: AnswerForms  # its type, its media types if it is not JSON, or all of them
    body: type | None = None
    parameters: tuple[dict[str, Any], ...] = ()
    problems: Mapping[int, str] = field(default_factory=dict)  # when it answers with which problem
    status: int = 200  # of the answer
    # Other answers that are no problems: what each says, and an example, or None without a body;
    # a text is HTML, and bytes are a file.
    also: Mapping[int, tuple[str, msgspec.Struct | str | bytes | None]] = field(
        default_factory=dict
    )
    headers: Mapping[str, str] = field(default_factory=dict)  # numbers, of each of these answers


def parameter(
    name: str, schema: dict[str, Any], description: str, place: str = "query"
) -> dict[str, Any]:
    """Return the description of a parameter."""
    required = place == "path"
    return {"name": name, "in": place, "required": required, "description": description} | {
        "schema": schema
    }


FORMAT = parameter(
    "format",
    {"type": "string", "enum": ["json", *FORMS], "default": "json"},
    "As a file: a row for the answer, and one for each object in a list of it.",
)


def in_forms(answer: type) -> AnswerForms:
    """Return a type that the parameter `FORMAT` turns into a file."""
    return answer, *FORMS.values()


class ApiRoute(Route):
    """A route of one method; without an operation it is not part of the described API.

    The endpoint's name is the operation's, after which generated clients call their methods.
    """

    def __init__(
        self, path: str, endpoint: Handler, operation: ApiOperation | None, method: str = "GET"
    ) -> None:
        super().__init__(path, endpoint, include_in_schema=operation is not None)
        self.methods = {method}  # and no HEAD, which Starlette adds to a GET
        self.operation = operation

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = app


def description_routes(routes: Sequence[ApiRoute]) -> list[ApiRoute]:
    """Return the routes that describe `routes`."""
    described = functools.cache(functools.partial(openapi, routes))  # made when first asked for

    async def schema(_request: Request) -> Response:
        return Response(msgspec.json.encode(described()), media_type="application/json")

    async def docs(_request: Request) -> Response:
        return HTMLResponse(page_of(described()))

    async def style(_request: Request) -> Response:
        return Response(_STYLE, media_type="text/css")

    return [
        ApiRoute("/openapi.json", schema, None),
        ApiRoute("/docs", docs, None),
        ApiRoute("/docs/style.css", style, None),
    ]


def openapi(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """Return the description of routes, by OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    examples = msgspec.json.decode(_EXAMPLES.read_bytes(), type=dict[str, RouteExample])
    types: list[type] = [ApiProblem]
    for route in routes:
        operation = route.operation
        if operation is None:
            continue
        for method in map(str.lower, route.methods or ()):
            names = {"summary": operation.summary, "operationId": route.name}
            example = examples.get(f"{method.upper()} {route.path_format}", RouteExample())
            described = names | _described(operation, example)
            paths.setdefault(route.path_format, {})[method] = described
        forms = _forms(operation.answer)
        types += [each for each in (*forms, operation.body) if isinstance(each, type)]
    return {
        "openapi": "3.1.0",
        "info": {"title": "streamnb", "description": DESCRIPTION, "version": __version__},
        "paths": paths,
        "components": {"schemas": _schemas(types)},
    }


def _schemas(types: Sequence[type]) -> dict[str, Any]:
    """Return the schemas of types by name, without the prefix that tells their classes apart."""
    _, components = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    encoded = msgspec.json.encode(components).replace(b'"Api', b'"').replace(b"/Api", b"/")
    return msgspec.json.decode(encoded, type=dict[str, Any])


def _reference(a_type: type) -> dict[str, str]:
    return {"$ref": _SCHEMAS.format(name=a_type.__name__.removeprefix("Api"))}


def _forms(answer: AnswerForms) -> tuple[type | str, ...]:
    return answer if isinstance(answer, tuple) else (answer,)


def _media(answer: AnswerForms, shown: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a body, with what is shown of it by media type."""
    content: dict[str, Any] = {}
    for form in _forms(answer):
        if isinstance(form, type):
            content[_JSON] = {"schema": _reference(form)}
        else:
            content[form] = {"schema": {"type": "string"}}
    for name in content.keys() & shown.keys():
        content[name]["example"] = shown[name]
    return content


def _with_files(shown: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what is shown of an answer, and the beginnings of the files that it is as well."""
    files = {} if _JSON not in shown else FORMS
    return {
        media: "\n".join(b"".join(pieces_in(form, shown[_JSON])).decode().splitlines()[:2])
        for form, media in files.items()
    } | dict(shown)


def _shown(told: msgspec.Struct | str | bytes) -> dict[str, Any]:
    """Return the content of an answer by what it shows."""
    if isinstance(told, bytes):
        return _media("application/octet-stream", {})
    if isinstance(told, str):
        return _media(_HTML, {_HTML: told})
    return _media(type(told), {_JSON: msgspec.to_builtins(told)})


def _problem(status: int, why: str) -> dict[str, Any]:
    shown = ApiProblem("about:blank", HTTPStatus(status).phrase, status, why)
    media = {"schema": _reference(ApiProblem), "example": msgspec.to_builtins(shown)}
    return {"description": why, "content": {PROBLEM_MEDIA_TYPE: media}}


def _described(operation: ApiOperation, example: RouteExample) -> dict[str, Any]:
    problems = dict(operation.problems)
    for status, why in _ANYWHERE.items():
        problems[status] = " ".join(filter(None, (problems.get(status), why)))
    answers: dict[str, Any] = {
        str(status): _problem(status, why) for status, why in problems.items()
    }
    for status, (why, told) in operation.also.items():
        problem = answers.get(str(status), {"description": ""})
        content = {} if told is None else _shown(told)
        content |= problem.get("content", {})
        answers[str(status)] = {"description": f"{why} {problem['description']}".strip()}
        if content:
            answers[str(status)]["content"] = content
    content = _media(operation.answer, _with_files(example.answers))
    answers[str(operation.status)] = {"description": "The answer.", "content": content}
    for name, text in operation.headers.items():
        for status in (operation.status, *operation.also):
            headers = answers[str(status)].setdefault("headers", {})
            headers[name] = {"description": text, "schema": {"type": "number"}}
    parameters = [
        each | ({"example": example.asked[each["name"]]} if each["name"] in example.asked else {})
        for each in operation.parameters
    ]
    found: dict[str, Any] = {"responses": answers, "parameters": parameters}
    if operation.body is not None:
        shown = {} if example.body is None else {_JSON: example.body}
        found["requestBody"] = {"required": True, "content": _media(operation.body, shown)}
    return found


def page_of(schema: dict[str, Any]) -> str:
    """Return a page that shows an OpenAPI 3.1 description."""
    info = schema["info"]
    operations = [
        _operation(path, method, operation)
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    ]
    contents = "".join(
        f'<li><a href="#{operation["operationId"]}"><span class=method>{method.upper()}</span> '
        f"<code>{escape(path)}</code></a> {escape(operation.get('summary', ''))}</li>"
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
    )
    types = [_type(name, each) for name, each in sorted(schema["components"]["schemas"].items())]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}: the HTTP API</title>"
        '<link rel="icon" href="/page/icon.svg" type="image/svg+xml">'
        '<link rel="stylesheet" href="/docs/style.css"></head><body><main>'
        f"<h1>{escape(info['title'])} {escape(info['version'])}: the HTTP API</h1>"
        f"<p>{escape(info['description'])}</p>"
        '<p>For programs: <a href="/openapi.json">openapi.json</a>. '
        '<a href="/">Back to the page</a>.</p>'
        f"<h2>Routes</h2><nav><ul>{contents}</ul></nav>{''.join(operations)}<h2>Types</h2>{''.join(types)}"
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
        f'<section id="{operation["operationId"]}"><h3><span class=method>{method.upper()}</span> '
        f"<code>{escape(path)}</code></h3>"
        f"<p>{escape(operation.get('summary', ''))}</p>{_table(name, rows)}"
        f"{_example(path, method, operation)}</section>"
    )


def _example(path: str, method: str, operation: dict[str, Any]) -> str:
    """Return a call and its answers, folded; empty if none is known."""
    call, asked = path, list[tuple[str, Any]]()
    for each in operation.get("parameters", []):
        value = each.get("example")
        if each["in"] == "path":
            call = call.replace(f"{{{each['name']}}}", str(value))
        elif value is not None:
            asked += [
                (each["name"], one) for one in (value if isinstance(value, list) else [value])
            ]
    good = [answer for status, answer in operation["responses"].items() if int(status) < 400]
    bodies = [body.get("content", {}) for body in (operation.get("requestBody", {}), *good)]
    shown = [_text(one["example"]) for body in bodies for one in body.values() if "example" in one]
    if not shown:
        return ""
    head = f"{method.upper()} {call}{'?' if asked else ''}{urlencode(asked, safe=':')}"
    text = escape("\n\n".join([head, *shown]))
    return f"<details><summary>Example</summary><pre>{text}</pre></details>"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


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
        f"<tr><td><code>{escape(first)}</code></td><td>{second}</td><td>{_code(third)}</td></tr>"
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
