"""A route: a function that takes the request and returns the response, and how OpenAPI shows it.

Requests and answers are described by the types of `consumers.http.schemas`. Nothing else stands
between the socket and the function: a framework that checks parameters and answers by itself costs
more than judging a text does, and a quarter of a second at the start.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from consumers.http.problems import MEDIA_TYPE
from consumers.http.schemas import Problem

Endpoint = Callable[[Request], Awaitable[Response]]
SCHEMAS = "#/components/schemas/{name}"
FRESH = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Told:
    """How a route is described.

    Attributes
    ----------
    summary : str
        One line.
    answer : type or str
        The type of the answer; or, of one that is no JSON, its media type.
    body : type or None
        The type of the request's body.
    parameters : tuple of dict
        As OpenAPI has them.
    problems : mapping of int to str
        When it answers with which problem.
    status : int
        Of the answer.
    """

    summary: str
    answer: type | str
    body: type | None = None
    parameters: tuple[dict[str, Any], ...] = ()
    problems: Mapping[int, str] = field(default_factory=dict)
    status: int = 200

    @property
    def types(self) -> list[type]:
        """The types that its description refers to."""
        return [each for each in (self.answer, self.body) if isinstance(each, type)]


class PlainRoute(Route):
    """A route of a function that takes the request and returns the response.

    Parameters
    ----------
    path : str
    endpoint : callable
    told : Told or None
        None for one that is not part of the API.
    method : str
    """

    def __init__(
        self, path: str, endpoint: Endpoint, told: Told | None, method: str = "GET"
    ) -> None:
        super().__init__(path, endpoint, include_in_schema=told is not None)
        self.methods = {method}  # and no HEAD, which Starlette adds to a GET
        self.told = told
        self.types = [] if told is None else told.types

        async def plain(scope: Scope, receive: Receive, send: Send) -> None:
            response = await endpoint(Request(scope, receive, send))
            await response(scope, receive, send)

        self.app = plain


def parameter(
    name: str, schema: dict[str, Any], description: str, place: str = "query"
) -> dict[str, Any]:
    """Return the description of a parameter."""
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": description,
        "schema": schema,
    }


def json_response(answer: msgspec.Struct, status: int = 200) -> Response:
    """Return a type of `wire` as an answer; numbers that are not finite become null."""
    return Response(msgspec.json.encode(answer), status, FRESH, "application/json")


def schemas(types: list[type]) -> dict[str, Any]:
    """Return the schemas of types by name, for OpenAPI's components."""
    return msgspec.json.schema_components([*types, Problem], ref_template=SCHEMAS)[1]


def _content(what: type | str) -> dict[str, Any]:
    if isinstance(what, str):
        return {what: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": {"$ref": SCHEMAS.format(name=what.__name__)}}}


def openapi(
    routes: Iterable[PlainRoute], title: str, version: str, description: str
) -> dict[str, Any]:
    """Return the description of routes, by OpenAPI 3.1."""
    told = [(route, route.told) for route in routes if route.told is not None]
    paths: dict[str, Any] = {}
    for route, each in told:
        for method in map(str.lower, route.methods or ()):
            name = re.sub(r"\W", "_", f"{route.name}{route.path_format}")
            names = {"summary": each.summary, "operationId": f"{name}_{method}"}
            paths.setdefault(route.path_format, {})[method] = names | _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "description": description, "version": version},
        "paths": paths,
        "components": {"schemas": schemas([a_type for _, each in told for a_type in each.types])},
    }


def _operation(told: Told) -> dict[str, Any]:
    problem = {MEDIA_TYPE: {"schema": {"$ref": SCHEMAS.format(name=Problem.__name__)}}}
    answers: dict[str, Any] = {
        str(status): {"description": why, "content": problem}
        for status, why in told.problems.items()
    }
    answers[str(told.status)] = {"description": "The answer.", "content": _content(told.answer)}
    operation: dict[str, Any] = {"responses": answers, "parameters": list(told.parameters)}
    if told.body is not None:
        operation["requestBody"] = {"required": True, "content": _content(told.body)}
    return operation
