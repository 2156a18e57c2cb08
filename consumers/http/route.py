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
from consumers.http.schemas import ApiProblem

Endpoint = Callable[[Request], Awaitable[Response]]
SCHEMAS = "#/components/schemas/{name}"
FRESH = {"Cache-Control": "no-store"}


@dataclass(frozen=True, slots=True)
class Operation:
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


class ApiRoute(Route):
    """A route of a function that takes the request and returns the response.

    Parameters
    ----------
    path : str
    endpoint : callable
    operation : Operation or None
        None for one that is not part of the API.
    method : str
    """

    def __init__(
        self, path: str, endpoint: Endpoint, operation: Operation | None, method: str = "GET"
    ) -> None:
        super().__init__(path, endpoint, include_in_schema=operation is not None)
        self.methods = {method}  # and no HEAD, which Starlette adds to a GET
        self.operation = operation
        self.types = [] if operation is None else operation.types

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
    _, components = msgspec.json.schema_components([*types, ApiProblem], ref_template=SCHEMAS)
    # The prefix tells a class from others of the project; clients know the type without it.
    encoded = msgspec.json.encode(components)
    found: dict[str, Any] = msgspec.json.decode(
        encoded.replace(b'"Api', b'"').replace(b"/Api", b"/")
    )
    return found


def _reference(a_type: type) -> dict[str, str]:
    return {"$ref": SCHEMAS.format(name=a_type.__name__.removeprefix("Api"))}


def _content(what: type | str) -> dict[str, Any]:
    if isinstance(what, str):
        return {what: {"schema": {"type": "string"}}}
    return {"application/json": {"schema": _reference(what)}}


def openapi(
    routes: Iterable[ApiRoute], title: str, version: str, description: str
) -> dict[str, Any]:
    """Return the description of routes, by OpenAPI 3.1."""
    described = [(route, route.operation) for route in routes if route.operation is not None]
    paths: dict[str, Any] = {}
    for route, operation in described:
        for method in map(str.lower, route.methods or ()):
            name = re.sub(r"\W", "_", f"{route.name}{route.path_format}")
            names = {"summary": operation.summary, "operationId": f"{name}_{method}"}
            paths.setdefault(route.path_format, {})[method] = names | _described(operation)
    types = [a_type for _, operation in described for a_type in operation.types]
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "description": description, "version": version},
        "paths": paths,
        "components": {"schemas": schemas(types)},
    }


def _described(operation: Operation) -> dict[str, Any]:
    problem = {MEDIA_TYPE: {"schema": _reference(ApiProblem)}}
    answers: dict[str, Any] = {
        str(status): {"description": why, "content": problem}
        for status, why in operation.problems.items()
    }
    answers[str(operation.status)] = {
        "description": "The answer.",
        "content": _content(operation.answer),
    }
    found: dict[str, Any] = {"responses": answers, "parameters": list(operation.parameters)}
    if operation.body is not None:
        found["requestBody"] = {"required": True, "content": _content(operation.body)}
    return found
