"""`GET /v1/events`: what changes, sent to open pages as server-sent events."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from consumers.http.openapi import ApiOperation, ApiRoute, parameter
from consumers.http.requests import NO_STORE, ProblemError, QueryParameters, component_is_off
from consumers.http.schemas import LANG_CHARS_MAX, QUERIES_MAX, QUERY_CHARS_MAX
from consumers.http.state import AppState
from consumers.http.threads import call_soon
from consumers.search.subscriptions import NotWatchedError, Subscription, WatchRequest

HEARTBEAT_S = 10.0
RETRY_MS = 2_000  # how long a page waits before it connects again
_HEARTBEAT = b": still here\n\n"
_HEADERS = NO_STORE | {"X-Accel-Buffering": "no"}  # the latter for nginx

EVENTS = ApiOperation(
    "What changes, as it changes",
    "text/event-stream",
    parameters=(
        parameter("q", {"type": "string"}, f"A query to watch; up to {QUERIES_MAX} of them."),
        parameter("lang", {"type": "string"}, "The language of the query at the same place."),
    ),
    problems={
        400: "The address is not UTF-8.",
        404: "recent.enabled is false.",
        422: "There are too many queries, or one is too long.",
        503: "Too many pages are open, or the daemon is stopping.",
    },
)


def event_routes(app_state: AppState) -> list[ApiRoute]:
    """Return the route of events."""

    async def events(request: Request) -> Response:
        if app_state.live_updater is None:
            raise component_is_off("recent messages are not kept", "recent.enabled: true")
        asked = _watch_requests(QueryParameters(request, ("q", "lang")))
        client = request.client.host if request.client else ""
        return EventStream(partial(app_state.live_updater.subscribed, asked, client))

    return [ApiRoute("/v1/events", events, EVENTS)]


class EventStream(StreamingResponse):
    """Sends the events of a subscription until either side ends it.

    `subscribed` takes a callback for new events, and returns the subscription as a context.
    """

    media_type = "text/event-stream"

    def __init__(
        self, subscribed: Callable[[Callable[[], None]], AbstractContextManager[Subscription]]
    ) -> None:
        super().__init__(iter(()), headers=_HEADERS)
        self._subscribed = subscribed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- Starlette's signature
        """Answer; the subscription ends with the connection."""
        loop = asyncio.get_running_loop()
        has_events = asyncio.Event()
        try:
            with self._subscribed(partial(call_soon, loop, has_events.set)) as subscription:
                self.body_iterator = _chunks(subscription, has_events)
                watching = asyncio.create_task(_watch(receive, subscription))
                try:
                    await self.stream_response(send)
                finally:
                    watching.cancel()
        except NotWatchedError as error:
            raise ProblemError(503, str(error), headers={"Retry-After": "5"}) from None


async def _chunks(subscription: Subscription, has_events: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield all events that are ready, and a comment now and then."""
    yield b"retry: %d\n\n" % RETRY_MS
    loop = asyncio.get_running_loop()
    beat_at_s = loop.time() + HEARTBEAT_S
    while not subscription.ended:
        beat = b""
        try:
            async with asyncio.timeout_at(beat_at_s):
                await has_events.wait()
        except TimeoutError:
            beat, beat_at_s = _HEARTBEAT, loop.time() + HEARTBEAT_S
        has_events.clear()
        chunk = beat + subscription.take()
        if chunk:
            yield chunk


async def _watch(receive: Receive, subscription: Subscription) -> None:
    """End the subscription when the client disconnects."""
    while (await receive())["type"] != "http.disconnect":
        pass
    subscription.end()


def _watch_requests(given: QueryParameters) -> list[WatchRequest]:
    """Return the queries with their languages; without any, everything."""
    queries, langs = given.texts("q", QUERY_CHARS_MAX) or [""], given.texts("lang", LANG_CHARS_MAX)
    if len(queries) > QUERIES_MAX or len(langs) > len(queries):
        raise ProblemError(
            422,
            f"there are {len(queries)} queries and {len(langs)} languages; one connection watches "
            f"{QUERIES_MAX} queries at most, each with one language at most",
        )
    return [
        WatchRequest(text, lang or None) for text, lang in itertools.zip_longest(queries, langs)
    ]
