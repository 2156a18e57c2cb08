"""`GET /v1/events`: what open pages are told, as server-sent events.

The framing is our own few lines. The libraries for it (FastAPI's own, sse-starlette) make each
event anew for each reader; here the JSON of a query is made once, by the hub, and shared by all
pages that watch it. Nor do they end a stream when a server without signals of its own stops, as
ours does. Sending, and hearing that a reader has gone, are Starlette's and uvicorn's.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from functools import partial

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from consumers.live import Asked, NotWatchedError, Subscription
from consumers.web.parameters import Parameters
from consumers.web.problems import ProblemError, room_is_off
from consumers.web.rooms import Rooms
from consumers.web.route import PlainRoute, Told, parameter
from consumers.web.wire import LANG_CHARS_MAX, QUERIES_MAX, QUERY_CHARS_MAX

HEARTBEAT_S = 10.0
RETRY_MS = 2_000  # how long a page waits before it connects anew
_HEARTBEAT = b": still here\n\n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the latter for nginx

EVENTS = Told(
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


def event_routes(rooms: Rooms) -> list[PlainRoute]:
    """Return the route of events."""

    async def events(request: Request) -> Response:
        if rooms.hub is None:
            raise room_is_off("recent messages are not kept", "recent.enabled: true")
        asked = _asked(Parameters(request, ("q", "lang")))
        client = request.client.host if request.client else ""
        return EventStream(partial(rooms.hub.subscribed, asked, client))

    return [PlainRoute("/v1/events", events, EVENTS)]


class EventStream(StreamingResponse):
    """Sends what a subscription is owed until either side ends it.

    Parameters
    ----------
    subscribed : callable
        Takes what is to be called when there is mail, and returns the subscription as a context.
    """

    media_type = "text/event-stream"

    def __init__(
        self, subscribed: Callable[[Callable[[], None]], AbstractContextManager[Subscription]]
    ) -> None:
        super().__init__(iter(()), headers=_HEADERS)
        self._subscribed = subscribed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- Starlette's signature
        """Answer; the subscription ends with the connection, whoever ends it."""
        loop = asyncio.get_running_loop()
        mail = asyncio.Event()
        try:
            with self._subscribed(partial(_call_soon, loop, mail.set)) as subscription:
                self.body_iterator = _pieces(subscription, mail)
                watching = asyncio.create_task(_watch(receive, subscription))
                try:
                    await self.stream_response(send)
                finally:
                    watching.cancel()
        except NotWatchedError as error:
            raise ProblemError(503, str(error), headers={"Retry-After": "5"}) from None


async def _pieces(subscription: Subscription, mail: asyncio.Event) -> AsyncIterator[bytes]:
    """Yield what there is to send, each time all of it at once."""
    yield b"retry: %d\n\n" % RETRY_MS
    loop = asyncio.get_running_loop()
    beat_at_s = loop.time() + HEARTBEAT_S
    while not subscription.ended:
        beat = b""
        try:
            async with asyncio.timeout_at(beat_at_s):
                await mail.wait()
        except TimeoutError:
            beat, beat_at_s = _HEARTBEAT, loop.time() + HEARTBEAT_S
        mail.clear()
        piece = beat + subscription.take()
        if piece:
            yield piece


async def _watch(receive: Receive, subscription: Subscription) -> None:
    """Hear that the reader has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    subscription.end()


def _call_soon(loop: asyncio.AbstractEventLoop, run: Callable[[], None]) -> None:
    """Have something done by the event loop, unless that has ended."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(run)


def _asked(given: Parameters) -> list[Asked]:
    """Return the queries with their languages; without any, everything."""
    queries, langs = given.texts("q") or [""], given.texts("lang")
    if len(queries) > QUERIES_MAX or len(langs) > len(queries):
        raise ProblemError(
            422,
            f"there are {len(queries)} queries and {len(langs)} languages; one connection watches "
            f"{QUERIES_MAX} queries at most, each with one language at most",
        )
    for name, values, chars_max in (
        ("q", queries, QUERY_CHARS_MAX), ("lang", langs, LANG_CHARS_MAX)
    ):  # fmt: skip
        longest = max((len(value) for value in values), default=0)
        if longest > chars_max:
            raise ProblemError(
                422, f"{name} has {longest} characters, and may have {chars_max}; shorten it"
            )
    return [Asked(text, lang or None) for text, lang in itertools.zip_longest(queries, langs)]
