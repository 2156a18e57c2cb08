"""What goes wrong between a client and us, as problem details (RFC 9457).

A problem says what was found and the way out, and nothing of the machine: no path, no traceback.
"""

from __future__ import annotations

import http
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from consumers.config.settings import Settings
from consumers.http.schemas import ApiProblem

MEDIA_TYPE = "application/problem+json"
_TYPE = "about:blank"  # the status says what kind of problem it is; RFC 9457, 4.2.1


class ProblemError(Exception):
    """A request that is answered by a problem.

    Parameters
    ----------
    status : int
    detail : str
        What was found, and the way out.
    headers : mapping of str to str, optional
    instance : str, optional
        What this occurrence is called in the log.
    title : str, optional
        The status's own phrase when left out.
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
        self.problem = ApiProblem(
            _TYPE, title or http.HTTPStatus(status).phrase, status, detail, instance
        )
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the answer."""
        return Response(
            msgspec.json.encode(self.problem),
            self.problem.status,
            {"Cache-Control": "no-store"} | self.headers,
            MEDIA_TYPE,
        )


def component_is_off(what: str, setting: str, status: int = 404) -> ProblemError:
    """Return the problem of asking a room that the settings turn off."""
    return ProblemError(status, f"{what}; set {setting}, and start the daemon again")


def corrections_setting(settings: Settings) -> str:
    """Return the setting without which no corrections are taken."""
    if settings.corrections.to == "none":
        return "corrections.to: journal"
    return "checkpoint.folder, where their journal is kept"
