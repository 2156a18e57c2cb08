"""`GET /v1/search`, `/v1/summary`, `/v1/messages/{id}` and `/v1/events`: the recent messages.

`GET /v1/compare` sets queries, or two times of one, side by side. `GET /v1/history` has counts of
all messages, the recent and those long gone. Events tell open pages what changes, as server-sent
events. `GET /v1/export` hands out what matches as a file, piece by piece.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import overload

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from consumers.config.addresses import Bound
from consumers.errors import ConsumerError
from consumers.http import schemas
from consumers.http.files import csv_form, form_of, jsonl_form, response_in
from consumers.http.openapi import FORMAT, ApiOperation, ApiRoute, in_forms, parameter
from consumers.http.requests import (
    NO_STORE,
    ProblemError,
    QueryParameters,
    component_is_off,
    json_response,
    message_id,
)
from consumers.http.routes_model import credible_interval, explain
from consumers.http.state import AppState, Serializer
from consumers.http.threads import Batcher, WorkerPool, call_soon
from consumers.monitoring.quality import function_words
from consumers.search.chunks import RowFilter
from consumers.search.comparison import SIDES_MAX, ComparedSide, compare
from consumers.search.history import POINTS_MAX, STEPS_S
from consumers.search.live_query import NotWatchedError, Subscription, WatchRequest
from consumers.search.matching import CountsOverTime
from consumers.search.query_syntax import Query, QueryError
from consumers.search.rows import TIMES_MS, MessageRow, Span
from consumers.search.store import RecentStore
from consumers.sinks.records import decided_by
from streamnb import Snapshot
from streamnb.errors import InputError

LIMIT = 50
LEVEL = 0.95
MESSAGES = "/v1/messages/"
HEARTBEAT_S = 10.0
RETRY_MS = 2_000  # how long a page waits before it connects again
_HEARTBEAT = b": still here\n\n"
_EVENT_HEADERS = NO_STORE | {"X-Accel-Buffering": "no"}  # the latter for nginx

_Q = parameter("q", {"type": "string"}, 'Words, "phrases", -not, #tags; empty for everything.')
_LANG = parameter("lang", {"type": "string"}, "Messages in this language alone.")
_WHOLE = {"type": "integer", "minimum": 1}
_TIME = {"type": "string"}
_FROM = parameter("from", _TIME, "Unix milliseconds or an ISO time of the oldest message.")
_TO = parameter("to", _TIME, "The time before which all messages are.")
_PROBLEMS = {
    404: "recent.enabled is false.",
    422: "The query cannot be searched for, or a parameter is wrong.",
    503: "Too much is being asked at once, or the stored messages are still loading.",
}
SEARCH = ApiOperation(
    "The newest messages that match",
    schemas.SearchAnswer,
    parameters=(
        _Q,
        _LANG,
        parameter(
            "limit", _WHOLE | {"maximum": schemas.SEARCH_LIMIT_MAX, "default": LIMIT}, "How many."
        ),
        parameter("before", _WHOLE, "Only messages with keys below this one."),
        _FROM,
        _TO,
    ),
    problems=_PROBLEMS,
)
SUMMARY = ApiOperation(
    "Shares and counts over the newest messages that match",
    in_forms(schemas.ApiSummary),
    parameters=(
        _Q,
        _LANG,
        parameter("from", _TIME, "As for /v1/history; of messages of this time or later alone."),
        parameter("to", _TIME, "As for /v1/history; of messages before this time alone."),
        FORMAT,
    ),
    problems=_PROBLEMS,
)
_LISTED = {"type": "array", "items": {"type": "string"}}
COMPARE = ApiOperation(
    f"Two to {SIDES_MAX} queries side by side, or one query at two times",
    in_forms(schemas.CompareAnswer),
    parameters=(
        parameter(
            "q",
            _LISTED | {"maxItems": SIDES_MAX, "examples": [["coffee", "tea lang:en"]]},
            f"2 to {SIDES_MAX} queries; one with `from` and `to` given twice.",
        ),
        _LANG,
        parameter(
            "from",
            _LISTED | {"maxItems": 2, "examples": [["2026-11-02T14:00Z", "2026-11-02T14:32Z"]]},
            "As for /v1/history; of all queries, or the two times of one.",
        ),
        parameter(
            "to",
            _LISTED | {"maxItems": 2, "examples": [["2026-11-02T14:32Z", "2026-11-02T15:00Z"]]},
            "The time before which all messages are, as often as `from`.",
        ),
        FORMAT,
    ),
    problems=_PROBLEMS,
)
MESSAGE = ApiOperation(
    "One message, and why it is judged so",
    schemas.MessageAnswer,
    parameters=(parameter("id", {"type": "string"}, "The message's id.", "path"),),
    problems=_PROBLEMS | {404: "The store does not hold it, or recent.enabled is false."},
)
HISTORY_S = 86_400
HISTORY = ApiOperation(
    "Counts over time of all messages, or of those that match",
    in_forms(schemas.HistoryAnswer),
    parameters=(
        parameter(
            "q",
            {"type": "string"},
            "As for /v1/search, its last word being whole; a single word for as long as messages"
            " have come, anything else in stored messages. Empty for everything.",
        ),
        _LANG,
        parameter("from", _TIME, "Unix milliseconds or an ISO time; 24 hours before `to`."),
        parameter("to", _TIME, "Unix milliseconds or an ISO time; by default now."),
        parameter(
            "step",
            {"type": "string", "enum": list(STEPS_S)},
            "By default the finest that is known since `from` and gives 1,500 steps at most.",
        ),
        FORMAT,
    ),
    problems=_PROBLEMS
    | {
        404: "recent.enabled or history.enabled is false.",
        422: "A parameter or the query is wrong, or there would be too many steps.",
    },
)
_WATCHED = _LISTED | {"maxItems": schemas.QUERIES_MAX}
EVENTS = ApiOperation(
    "What changes, as it changes",
    "text/event-stream",
    parameters=(
        parameter("q", _WATCHED, f"Queries to watch; up to {schemas.QUERIES_MAX}."),
        parameter("lang", _WATCHED, "The language of the query at the same place."),
    ),
    problems=_PROBLEMS
    | {
        422: "There are too many queries, or one is too long.",
        503: "Too many pages are open, or the daemon is stopping.",
    },
)


_FORMS = {"csv": csv_form, "jsonl": jsonl_form}
EXPORTS_MAX = 2  # at once
EXPORT_MAX_S = 3_600.0  # however slowly its client takes it
EXPORT_TIMEOUT_S = 60.0  # of one piece, on a thread that gives way to all others
EXPORT_NICE = 15
# Of the time, while messages wait to be learned. A piece needs the interpreter's lock, and a thread
# that gives way to others may hold it while it waits for a core.
EXPORT_SHARE_MAX = 0.2
EXPORT_PAUSE_MAX_S = 0.05
EXPORT = ApiOperation(
    "The newest messages that match, as a file",
    ("text/csv", "application/jsonl"),
    parameters=(
        _Q,
        _LANG,
        parameter("format", {"type": "string", "enum": list(_FORMS), "default": "csv"}, "Form."),
        parameter("label", {"type": "string"}, "Messages of this likeliest class alone."),
        _FROM,
        _TO,
        parameter(
            "limit",
            _WHOLE | {"maximum": schemas.EXPORT_LIMIT_MAX, "default": schemas.EXPORT_LIMIT_MAX},
            "How many.",
        ),
    ),
    problems=_PROBLEMS | {503: f"{EXPORTS_MAX} exports are under way, or the store is not open."},
)


def search_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the routes that search the store of recent messages."""
    serializer = Serializer(app_state)
    left_out = function_words(app_state.settings.page.function_words)
    reply = partial(response_in, workers)

    async def search(request: Request) -> Response:
        recent = _store(app_state)
        given = QueryParameters(request, ("q", "lang", "limit", "before", "from", "to"))
        query, lang = _asked(recent, given)
        limit = given.whole("limit", 1, schemas.SEARCH_LIMIT_MAX) or LIMIT
        before, bounds = given.whole("before", 0, 2**63 - 1), _bounds_ms(given)
        rows = RowFilter(from_ms=bounds[0], to_ms=bounds[1]) if bounds != (None, None) else None
        found = await workers.run(partial(recent.search, query, lang, limit, before, rows))
        return json_response(serializer.search_answer(query, lang, found, recent.state()))

    async def summary(request: Request) -> Response:
        recent = _store(app_state)
        given = QueryParameters(request, ("q", "lang", "from", "to", "format"))
        form, (query, lang) = form_of(given), _asked(recent, given)
        span_ms = _span_ms(given)[:2] if given.text("from") or given.text("to") else None
        counted = await workers.run(partial(recent.counted, query, lang, span_ms))
        return await reply(form, serializer.summary(query, lang, counted, recent.state()), "shares")

    async def compare_queries(request: Request) -> Response:
        recent = _store(app_state)
        given = QueryParameters(request, ("q", "lang", "from", "to", "format"))
        form, sides = form_of(given), _sides(recent, given)
        found = await workers.run(partial(compare, recent, sides, left_out))
        return await reply(form, serializer.comparison(found, recent.state()), "comparison")

    async def get_message(request: Request) -> Response:
        recent = _store(app_state)
        name = message_id(request, MESSAGES)
        row = await workers.run(partial(recent.get, name))
        if row is None:
            raise ProblemError(
                404, f"no message {name[:80]!r} is stored; it never was, or has left"
            )
        shown = serializer.message(row, (row.text,))
        return json_response(await batcher.ask(partial(_message_answer, row, shown)))

    async def history(request: Request) -> Response:
        recent = _store(app_state)
        if not recent.has_history:
            raise component_is_off("messages are not counted over time", "history.enabled: true")
        given = QueryParameters(request, ("q", "lang", "from", "to", "step", "format"))
        # Nobody is typing: without the blank the last word would be a beginning.
        query, lang = recent.parse(f"{given.text('q')} "), _lang(given)
        form, step = form_of(given), given.text("step") or None
        if step is not None and step not in STEPS_S:
            raise ProblemError(
                422, f"step is {step[:80]!r}; one of {', '.join(STEPS_S)} is wanted, or none"
            )
        from_ms, to_ms, _ = times_ms = _span_ms(given)
        if step is not None and (to_ms - from_ms) / (1000 * STEPS_S[step]) > POINTS_MAX:
            raise ProblemError(
                422, f"more than {POINTS_MAX:,} steps; ask for a shorter time or a longer step"
            )
        span_s = (from_ms // 1000, -(-to_ms // 1000))
        found = await workers.run(partial(_over_time, recent, query, lang, span_s, step))
        return await reply(form, serializer.history(times_ms, found, query, lang), "history")

    return [
        ApiRoute("/v1/compare", compare_queries, COMPARE),
        ApiRoute("/v1/history", history, HISTORY),
        ApiRoute("/v1/search", search, SEARCH),
        ApiRoute("/v1/summary", summary, SUMMARY),
        ApiRoute("/v1/messages/{id:path}", get_message, MESSAGE),
    ]


def _asked(recent: RecentStore, given: QueryParameters) -> tuple[Query, str | None]:
    """Return what is searched for, and in which language; None: in all."""
    return recent.parse(given.text("q")), _lang(given)


def _over_time(
    recent: RecentStore, query: Query, lang: str | None, span_s: tuple[int, int], step: str | None
) -> CountsOverTime:
    if query.is_everything and lang is None:
        return recent.history(*span_s, step)
    return recent.matches_over_time(query, lang, span_s, step)


def _lang(given: QueryParameters) -> str | None:
    return given.text("lang", schemas.LANG_CHARS_MAX) or None


def _sides(recent: RecentStore, given: QueryParameters) -> list[ComparedSide]:
    """Return what is compared; 422 unless it is two to four queries, or one at two times."""
    queries = given.texts("q", schemas.QUERY_CHARS_MAX)
    begins, ends = (given.texts(name, schemas.QUERY_CHARS_MAX) for name in ("from", "to"))
    is_one_at_two_times = len(queries) <= 1 and len(begins) == len(ends) == 2
    if not is_one_at_two_times and (
        not 2 <= len(queries) <= SIDES_MAX or max(len(begins), len(ends)) > 1
    ):
        raise ProblemError(
            422,
            f"there are {len(queries)} of q, {len(begins)} of from and {len(ends)} of to; give 2 "
            f"to {SIDES_MAX} of q with one time at most, or one q with two of from and of to",
        )
    lang = _lang(given)
    if is_one_at_two_times:
        query = recent.parse("".join(queries))
        spans = [_span_of(*bounds) for bounds in zip(begins, ends, strict=True)]
        return [ComparedSide(query, lang, span_ms) for span_ms in spans]
    span_ms = _span_ms(given)[:2] if any(begins + ends) else None
    return [ComparedSide(recent.parse(text), lang, span_ms) for text in queries]


def _span_ms(given: QueryParameters) -> tuple[int, int, int]:
    """Return `from` and `to`, 422 if they are in the wrong order, and the time now."""
    now_ms = int(time.time() * 1000)
    to_ms = _time_ms(given, "to", now_ms)
    from_ms = _time_ms(given, "from", max(TIMES_MS[0], to_ms - 1000 * HISTORY_S))
    _check_order(from_ms, to_ms)
    return from_ms, to_ms, now_ms


def _span_of(begin: str, end: str) -> Span:
    """Return a time, given by its two ends."""
    from_ms, to_ms = _parsed_ms("from", begin), _parsed_ms("to", end)
    _check_order(from_ms, to_ms)
    return from_ms, to_ms


def _bounds_ms(given: QueryParameters) -> tuple[int | None, int | None]:
    """Return `from` and `to` as far as they are given; 422 if they are in the wrong order."""
    from_ms, to_ms = _time_ms(given, "from", None), _time_ms(given, "to", None)
    if from_ms is not None and to_ms is not None:
        _check_order(from_ms, to_ms)
    return from_ms, to_ms


def _check_order(from_ms: int, to_ms: int) -> None:
    if from_ms >= to_ms:
        raise ProblemError(422, f"from ({from_ms}) is not before to ({to_ms}); give a later to")


@overload
def _time_ms(given: QueryParameters, name: str, default: int) -> int: ...


@overload
def _time_ms(given: QueryParameters, name: str, default: None) -> int | None: ...


def _time_ms(given: QueryParameters, name: str, default: int | None) -> int | None:
    """Return a time in Unix milliseconds; 422 if it is none."""
    text = given.text(name)
    return _parsed_ms(name, text) if text else default


def _parsed_ms(name: str, text: str) -> int:
    try:
        bound = Bound.parse(text, TIMES_MS[0])
    except ValueError:
        bound = None
    if bound is None or bound.kind != "time":
        raise ProblemError(
            422, f"{name} is {text[:80]!r}; Unix milliseconds or an ISO time are wanted"
        )
    return bound.at


def _store(app_state: AppState) -> RecentStore:
    """Return the store; 404 with the setting that turns it on, if it is off."""
    if app_state.recent is None:
        raise _search_is_off()
    return app_state.recent


def _search_is_off() -> ProblemError:
    return component_is_off("recent messages are not kept", "recent.enabled: true")


def _message_answer(
    row: MessageRow, shown: schemas.Message, snapshot: Snapshot
) -> schemas.MessageAnswer:
    """Return a message with what a snapshot predicts for it now, and why."""
    logs = np.array(list(snapshot.predict_log_proba_one(row.example).values()))
    classes = [str(label) for label in snapshot.classes]
    (decided,) = decided_by(snapshot.rule, classes, logs[np.newaxis])
    try:
        why = explain(snapshot, row.example)
    except InputError:
        why = None  # there is only one class
    try:
        how_sure = credible_interval(snapshot, row.example, LEVEL)
    except InputError:
        how_sure = None  # the model's parameters have no posterior
    return schemas.MessageAnswer(
        **msgspec.structs.asdict(shown),
        explanation=why,
        interval=how_sure,
        snapshot_version=snapshot.version,
        now=schemas.Now(
            classes[int(np.argmax(logs))],
            dict(zip(classes, np.exp(logs).tolist(), strict=True)),
            decided.get("prediction_set"),
        ),
    )


# ---- events --------------------------------------------------------------------------------------


def event_routes(app_state: AppState) -> list[ApiRoute]:
    """Return the route of events."""

    async def events(request: Request) -> Response:
        if app_state.live_updater is None:
            raise _search_is_off()
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
        super().__init__(iter(()), headers=_EVENT_HEADERS)
        self._subscribed = subscribed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- Starlette's signature
        """Answer; the subscription ends with the connection."""
        loop = asyncio.get_running_loop()
        has_events = asyncio.Event()
        try:
            with self._subscribed(partial(call_soon, loop, has_events.set)) as subscription:
                self.body_iterator = _event_chunks(subscription, has_events)
                watching = asyncio.create_task(_watch(receive, subscription))
                try:
                    await self.stream_response(send)
                finally:
                    watching.cancel()
        except NotWatchedError as error:
            raise ProblemError(503, str(error), headers={"Retry-After": "5"}) from None


async def _event_chunks(
    subscription: Subscription, has_events: asyncio.Event
) -> AsyncIterator[bytes]:
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
        yield b""  # returns when the client has room: what a slow one gets is not old already
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
    queries, langs = (
        given.texts("q", schemas.QUERY_CHARS_MAX) or [""],
        given.texts("lang", schemas.LANG_CHARS_MAX),
    )
    if len(queries) > schemas.QUERIES_MAX or len(langs) > len(queries):
        raise ProblemError(
            422,
            f"there are {len(queries)} queries and {len(langs)} languages; one connection watches "
            f"{schemas.QUERIES_MAX} queries at most, each with one language at most",
        )
    return [
        WatchRequest(text, lang or None) for text, lang in itertools.zip_longest(queries, langs)
    ]


# ---- files ---------------------------------------------------------------------------------------


class ExportError(ConsumerError):
    """A file could not be written to its end; the connection is cut, so that its reader knows."""


def export_routes(app_state: AppState, exporter: WorkerPool) -> list[ApiRoute]:
    """Return the route of files; the one thread of `exporter` reads them by turns."""
    under_way: set[ExportStream] = set()

    async def export(request: Request) -> Response:
        recent = _store(app_state)
        given = QueryParameters(request, ("q", "lang", "format", "label", "from", "to", "limit"))
        query, lang = _asked(recent, given)
        kind = given.text("format") or "csv"
        if kind not in _FORMS:
            raise ProblemError(
                422, f"format is {kind[:80]!r}; one of {', '.join(_FORMS)} is wanted"
            )
        classes = list(app_state.classes)
        label = given.text("label") or None
        if label is not None and label not in classes:
            raise ProblemError(422, f"label is {label[:80]!r}; there are {', '.join(classes)}")
        from_ms, to_ms = _bounds_ms(given)
        number = None if label is None else classes.index(label)
        rows = RowFilter(label=number, from_ms=from_ms, to_ms=to_ms)
        limit = given.whole("limit", 1, schemas.EXPORT_LIMIT_MAX) or schemas.EXPORT_LIMIT_MAX
        form = _FORMS[kind](classes, recent.fields)
        pieces = recent.exported(query, lang, rows, form, limit)
        read = partial(exporter.run, partial(next, pieces, b""))
        return ExportStream(
            read,
            under_way,
            f"messages.{kind}",
            form.media_type,
            is_behind=lambda: app_state.metrics.n_read_ahead() > 0,
        )

    return [ApiRoute("/v1/export", export, EXPORT)]


class ExportStream(StreamingResponse):
    """Sends a file as it is read: a piece is read when the client has taken the one before.

    `read` returns the next piece, empty at the end; `under_way` are the files that are being sent.
    While `is_behind`, as messages wait to be learned, it rests after each piece.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        under_way: set[ExportStream],
        name: str,
        media_type: str,
        is_behind: Callable[[], bool] = lambda: False,
    ) -> None:
        headers = NO_STORE | {"Content-Disposition": f'attachment; filename="{name}"'}
        super().__init__(iter(()), headers=headers, media_type=media_type)
        self._read = read
        self._under_way = under_way
        self._is_behind = is_behind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; reading ends with the connection."""
        if len(self._under_way) >= EXPORTS_MAX:
            raise ProblemError(
                503,
                f"{EXPORTS_MAX} exports are under way, which is all this daemon does at once; ask "
                "again when one has ended",
                headers={"Retry-After": "5"},
            )
        self._under_way.add(self)
        try:
            first = await self._read()  # if it fails, that can still be answered
            self.body_iterator = self._pieces(first)
            await super().__call__(scope, receive, send)
        finally:
            self._under_way.discard(self)

    async def _pieces(self, first: bytes) -> AsyncIterator[bytes]:
        piece, until_s = first, time.monotonic() + EXPORT_MAX_S
        try:
            while piece:
                yield piece
                if time.monotonic() > until_s:
                    raise ExportError(f"an export has taken longer than {EXPORT_MAX_S:g} s")
                began_s = time.monotonic()
                piece = await self._read()
                if piece and self._is_behind():
                    await asyncio.sleep(export_pause_s(time.monotonic() - began_s))
        except (QueryError, ProblemError) as error:
            raise ExportError(f"an export cannot be written to its end: {error}") from error


def export_pause_s(took_s: float) -> float:
    """Return how long an export rests after a piece: for its share of the time, or shortly.

    >>> round(export_pause_s(0.005), 3), export_pause_s(1.0)
    (0.02, 0.05)
    """
    return min(took_s / EXPORT_SHARE_MAX - took_s, EXPORT_PAUSE_MAX_S)
