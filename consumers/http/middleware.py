"""What holds for every request: an allowed Host, safe headers, a count, and a problem if it breaks.

An unforeseen error is written to the log with an id; the client gets that id and nothing of the
error itself.
"""

from __future__ import annotations

import asyncio
import time
import uuid

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from consumers.http.authorization import AllowedHosts
from consumers.http.responses import ProblemError
from consumers.monitoring.metrics import OTHER, HttpMetrics

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
GONE = 499  # the client went before it was answered; such a status is counted, never sent

log = structlog.get_logger(__name__)


class RequestMiddleware:
    """An ASGI application around another one; without `hosts`, any Host is allowed."""

    def __init__(
        self, app: ASGIApp, metrics: HttpMetrics, hosts: AllowedHosts | None = None
    ) -> None:
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
                message["headers"] = [*message.get("headers", ()), *HEADERS]
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
                await _stopping().response()(scope, receive, send_with_headers)
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

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the Host before any route is looked up, so that no route can forget it."""
        if self._hosts is not None:
            self._hosts.check(scope)
        await self._app(scope, receive, send)


def _stopping() -> ProblemError:
    return ProblemError(
        503,
        "the daemon is stopping, and may have done what was asked or not; look when it is back",
        headers={"Connection": "close", "Retry-After": "5"},
    )


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
