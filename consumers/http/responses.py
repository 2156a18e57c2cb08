"""Answers: a schema as JSON, and problem details (RFC 9457).

A problem says what was found and the way out, and nothing of the machine: no path, no traceback.
"""

from __future__ import annotations

import http
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from consumers.config.settings import Settings
from consumers.http.schemas import ApiProblem

PROBLEM_MEDIA_TYPE = "application/problem+json"
NO_STORE = {"Cache-Control": "no-store"}
RETRY_SOON = {"Retry-After": "1"}
_TYPE = "about:blank"  # the status says what kind of problem it is; RFC 9457, 4.2.1


def json_response(answer: msgspec.Struct | bytes, status: int = 200) -> Response:
    """Return a schema, or its JSON, as an answer; numbers that are not finite become null."""
    body = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    return Response(body, status, NO_STORE, "application/json")


class ProblemError(Exception):
    """A request that is answered by a problem.

    `detail` says what was found and the way out; `instance` names this occurrence in the log;
    `title` is the status's own phrase if it is left out.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        instance: str | None = None,
        title: str | None = None,
    ) -> None:
        super().__init__(detail)
        title = title or http.HTTPStatus(status).phrase
        self.problem = ApiProblem(_TYPE, title, status, detail, instance)
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the answer."""
        body, headers = msgspec.json.encode(self.problem), NO_STORE | self.headers
        return Response(body, self.problem.status, headers, PROBLEM_MEDIA_TYPE)


def component_is_off(what: str, setting: str, status: int = 404) -> ProblemError:
    """Return the problem of asking a component that the settings turn off."""
    return ProblemError(status, f"{what}; set {setting}, and start the daemon again")


def corrections_setting(settings: Settings) -> str:
    """Return the setting without which no corrections are taken."""
    if settings.corrections.to == "none":
        return "corrections.to: journal"
    return "checkpoint.folder, where their journal is kept"
