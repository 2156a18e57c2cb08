"""The words of the hub: what open pages are told, as the JSON that the other routes answer with."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from consumers.http.parameters import QueryParameters
from consumers.http.problems import ProblemError, component_is_off
from consumers.http.route import ApiRoute, Operation, parameter
from consumers.http.schemas import LANG_CHARS_MAX, QUERIES_MAX, QUERY_CHARS_MAX, Label, Message
from consumers.http.serializers import Serializer
from consumers.http.state import AppState
from consumers.search import Change, Counted, FoundRow, Query, RecentState
from consumers.search.subscriptions import Asked, NotWatchedError, Subscription
from streamnb.errors import StreamnbError

ANSWER_TIMEOUT_S = 0.5


class MessagesEvent(msgspec.Struct):
    """The newest messages that match, newest first."""

    messages: list[Message]


class StatusEvent(msgspec.Struct):
    """How the daemon fares; `accuracy` is prequential, over the window of the newest examples.

    `note` is what the start is at, such as compiling; null once it is over.
    """

    state: str
    rate_per_s: float
    lag: int | None
    n_examples: int | None
    snapshot_version: int
    snapshot_age_s: float | None
    accuracy: float | None
    n_messages: int
    note: str | None


class ChangeEvent(msgspec.Struct):
    """What happened to a message: it has a label by a person now, or none, or it is gone."""

    id: str
    corrected: Label | None
    removed: bool


class ProblemEvent(msgspec.Struct):
    """Why a query cannot be answered."""

    detail: str


class EventSerializer:
    """Makes what pages are told; see `consumers.live.Teller`.

    Parameters
    ----------
    app_state : AppState
        What it tells of.
    """

    def __init__(self, app_state: AppState) -> None:
        settings = app_state.settings
        self._rooms = app_state
        self._shower = Serializer(
            settings.model.classes, settings.page.unsure_below, app_state.quality.shares
        )

    def summary(
        self, query: Query, lang: str | None, counted: Counted, state: RecentState
    ) -> bytes:
        """Return what `/v1/summary` says."""
        return msgspec.json.encode(self._shower.summary(query, lang, counted, state))

    def messages(self, found: Sequence[FoundRow]) -> bytes:
        """Return messages as `/v1/search` shows them."""
        shown = [self._shower.message(each.row, each.marked) for each in found]
        return msgspec.json.encode(MessagesEvent(shown))

    def status(self) -> bytes:
        """Return how the daemon fares."""
        status = self._rooms.status()
        return msgspec.json.encode(
            StatusEvent(
                state=self._rooms.health.report().state,
                rate_per_s=status.rate_per_s,
                lag=status.lag_total,
                n_examples=self._n_examples(),
                snapshot_version=status.snapshot_version,
                snapshot_age_s=status.snapshot_age_s,
                accuracy=status.window_accuracy,
                n_messages=status.n_messages,
                note=status.note,
            )
        )

    def change(self, change: Change) -> bytes:
        """Return what happened to one message."""
        return msgspec.json.encode(ChangeEvent(change.id, change.corrected, change.removed))

    def problem(self, detail: str) -> bytes:
        """Return why a query cannot be answered."""
        return msgspec.json.encode(ProblemEvent(detail))

    def _n_examples(self) -> int | None:
        """Return what the current snapshot has seen; None while it cannot say."""
        try:
            asked = self._rooms.predictor.ask(lambda snapshot: snapshot.n_examples)
            return asked.result(ANSWER_TIMEOUT_S)
        except (StreamnbError, TimeoutError):
            return None


HEARTBEAT_S = 10.0
RETRY_MS = 2_000  # how long a page waits before it connects anew
_HEARTBEAT = b": still here\n\n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # the latter for nginx

EVENTS = Operation(
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
        if app_state.hub is None:
            raise component_is_off("recent messages are not kept", "recent.enabled: true")
        asked = _asked(QueryParameters(request, ("q", "lang")))
        client = request.client.host if request.client else ""
        return EventStream(partial(app_state.hub.subscribed, asked, client))

    return [ApiRoute("/v1/events", events, EVENTS)]


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


def _asked(given: QueryParameters) -> list[Asked]:
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
