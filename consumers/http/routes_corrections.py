"""`POST /v1/labels` and `DELETE /v1/messages/{id}`: corrections by people, and whom to ask.

`GET /v1/labels/wanted` says which messages to label. Nothing is learned here: a correction goes
into a log, and 202 means that it is safe there; the consuming thread reads the log like any other
source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from html import escape

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from consumers.config.settings import Settings
from consumers.corrections.model import (
    CorrectionError,
    InDoubt,
    NotReady,
    NotWritten,
    UnknownMessage,
)
from consumers.corrections.service import OUTCOME_TIMEOUT_S, CorrectionService, Receipt
from consumers.http.openapi import ApiOperation, ApiRoute, parameter
from consumers.http.requests import (
    NO_STORE,
    RETRY_SOON,
    BodyReader,
    ExampleDecoder,
    ProblemError,
    QueryParameters,
    check_change,
    component_is_off,
    corrections_off,
    given_in,
    json_response,
    message_id,
)
from consumers.http.routes_model import corrections_of
from consumers.http.routes_search import LIMIT, MESSAGES
from consumers.http.schemas import (
    SEARCH_LIMIT_MAX,
    DeleteReceipt,
    LabelReceipt,
    LabelRequest,
    WantedAnswer,
    WantedMessage,
)
from consumers.http.state import AppState, Serializer, looks_of
from consumers.http.threads import Batcher, TaskTimeoutError, WorkerPool
from streamnb import AnswerRule, Snapshot

_PROBLEMS = {
    401: "The token is missing or another one.",
    403: "The request comes from another site, or no token is set and the listener is not local.",
    404: "No such message is held.",
    409: "corrections.to is none.",
    503: "The log did not take it; ask again.",
    504: "The log has not answered: it may have taken it, or not. Look again later.",
}
LABEL = ApiOperation(
    "Say which label a message, or an example, should have",
    LabelReceipt,
    LabelRequest,
    problems=_PROBLEMS
    | {
        400: "The body is not JSON.",
        413: "The body is larger than http.body_bytes_max.",
        415: "The body is not said to be JSON.",
        422: "The body is another JSON than is wanted, or there is no such label.",
    },
    status=202,
)
DELETE = ApiOperation(
    "Unlearn a message, and remove it at once",
    DeleteReceipt,
    parameters=(parameter("id", {"type": "string"}, "The message's id.", "path"),),
    problems=_PROBLEMS | {400: "The id is not UTF-8.", 422: "More stands behind the id."},
    status=202,
)
WANTED = ApiOperation(
    "The messages that a person should label next",
    WantedAnswer,
    parameters=(
        parameter(
            "limit",
            {"type": "integer", "minimum": 1, "maximum": SEARCH_LIMIT_MAX, "default": LIMIT},
            "How many.",
        ),
    ),
    problems={
        404: "labelling.enabled is false.",
        422: "A parameter is wrong.",
        503: "Too much is being asked at once, the store cannot be read just now, or there is "
        "nothing to answer from yet.",
    },
)
_STATUS: dict[type[CorrectionError], int] = {
    UnknownMessage: 404,
    NotReady: 503,
    NotWritten: 503,
    InDoubt: 504,  # it may have been taken: who asks again at once may only wait
}


def correction_routes(
    app_state: AppState, workers: WorkerPool, bodies: BodyReader, example_decoder: ExampleDecoder
) -> list[ApiRoute]:
    """Return the routes that take corrections."""
    http = app_state.settings.http
    decoder = msgspec.json.Decoder(LabelRequest)

    async def label_message(request: Request) -> Response:
        check_change(request, http)
        QueryParameters(request)
        asked = await bodies.read(request, decoder)
        correction_service = _correction_service(app_state)
        receipt = await _submit(workers, _correction(correction_service, asked, example_decoder))
        return json_response(
            LabelReceipt(receipt.id, asked.label, receipt.was, receipt.position), 202
        )

    async def delete_message(request: Request) -> Response:
        check_change(request, http)
        name = message_id(request, MESSAGES)
        receipt = await _submit(workers, partial(_correction_service(app_state).delete, name))
        return json_response(DeleteReceipt(receipt.id, receipt.was, receipt.position), 202)

    return [
        ApiRoute("/v1/labels", label_message, LABEL, "POST"),
        ApiRoute("/v1/messages/{id:path}", delete_message, DELETE, "DELETE"),
    ]


def wanted_routes(app_state: AppState, batcher: Batcher, workers: WorkerPool) -> list[ApiRoute]:
    """Return the routes that say which messages to label, and draw them for the page."""
    serializer, label_queue = Serializer(app_state), app_state.label_queue

    async def messages_to_label(request: Request) -> Response:
        if label_queue is None:
            raise component_is_off("nobody is asked for labels", "labelling.enabled: true")
        limit = QueryParameters(request, ("limit",)).whole("limit", 1, SEARCH_LIMIT_MAX) or LIMIT
        picked = await workers.run(partial(label_queue.wanted, limit))
        state = await workers.run(label_queue.state)
        rule = await batcher.ask(_rule)
        return json_response(
            WantedAnswer([serializer.wanted(each, rule) for each in picked], state)
        )

    def drawn(snapshot: Snapshot) -> str:
        if label_queue is None:
            return ""
        rule, picked = snapshot.rule, label_queue.wanted(_QUEUED_MAX)
        found = [serializer.wanted(each, rule) for each in picked]
        why_not = corrections_of(app_state).reason
        return drawn_queue(app_state.settings, app_state.classes, found, why_not)

    async def queue(request: Request) -> Response:
        QueryParameters(request)
        snapshot = await batcher.ask(lambda current: current)
        return HTMLResponse(await workers.run(partial(drawn, snapshot)), headers=NO_STORE)

    return [
        ApiRoute("/v1/labels/wanted", messages_to_label, WANTED),
        ApiRoute("/page/queue", queue, None),
    ]


def _rule(snapshot: Snapshot) -> AnswerRule:
    return snapshot.rule


def _correction_service(app_state: AppState) -> CorrectionService:
    if app_state.correction_service is None:
        raise ProblemError(409, f"corrections are off: {corrections_off(app_state.settings)}")
    return app_state.correction_service


def _correction(
    correction_service: CorrectionService, asked: LabelRequest, example_decoder: ExampleDecoder
) -> Callable[[], Receipt]:
    """Return what submits a label."""
    name, value = given_in(asked, "id", "text", "message")
    if name == "id":
        return partial(correction_service.label, value, asked.label)
    if asked.label is None:
        raise ProblemError(422, "label is null, which is for a message of the store: give its id")
    example = example_decoder.examples(name, value).example(0)
    return partial(correction_service.teach, example, asked.label)


async def _submit(workers: WorkerPool, correct: Callable[[], Receipt]) -> Receipt:
    try:
        # The log's own limit comes first: it knows whether the correction is in doubt.
        return await workers.run(correct, 2 * OUTCOME_TIMEOUT_S)
    except TaskTimeoutError:
        raise ProblemError(
            504,
            "the correction is still on its way into the log, and may come into it later; look "
            "again before sending it again",
        ) from None
    except asyncio.CancelledError:  # the server stops, and has waited for as long as it may
        raise ProblemError(
            504,
            "the daemon is stopping, and the correction may still come into the log; look again, "
            "once it is back, before sending it again",
            headers={"Connection": "close"},
        ) from None
    except CorrectionError as error:
        status = _STATUS.get(type(error), 422)
        headers = RETRY_SOON if status == 503 else {}
        raise ProblemError(status, str(error), headers=headers) from None


# ---- what to label next, as the page shows it ----------------------------------------------------

_QUEUED_MAX = 20  # that a page holds at a time


def drawn_queue(
    settings: Settings, classes: Sequence[str], wanted: Sequence[WantedMessage], why_not: str | None
) -> str:
    """Return the messages to label, of which the page shows the first, and what can be done."""
    looks = looks_of(settings, list(classes))
    names = {label: name for label, name, *_ in looks}
    items = []
    for each in wanted:
        by_share = sorted(each.probabilities.items(), key=lambda pair: -pair[1])
        likeliest = ", ".join(f"{names[label]} {share:.0%}" for label, share in by_share[:2])
        # At random they show how right the model is: who labels is not to be told what it says.
        unsure = f"Among the least sure of its day: {likeliest}"
        why = "Drawn at random" if each.picked == "random" else unsure
        items.append(
            f'<li data-id="{escape(each.id)}" data-testid="queue-message">'
            f'<p class="text" dir="auto">{escape(each.text)}</p> <p class=note>{why}</p></li>'
        )
    if why_not is not None:
        buttons = f"<p class=note>{escape(why_not)}</p>"
    else:
        chosen = "".join(
            _key(str(i) if i < 10 else "", name, f'data-label="{escape(label)}" class="strong"')
            for i, (label, name, *_) in enumerate(looks, start=1)
        )
        others = _key("S", "Skip", 'data-act="skip" class="quiet"')
        others += _key("U Backspace", "Undo", 'data-act="undo" class="quiet"')
        buttons = f'<p class="actions">{chosen}</p><p class="actions">{others}</p>'
    none = "<p class=note>Nothing is to be labelled now.</p>"
    return f"<ol>{''.join(items)}</ol>{none}{buttons}"


def _key(keys: str, name: str, own: str) -> str:
    """Return a button that keys press too."""
    shown = f"<kbd aria-hidden=true>{keys.split(' ', maxsplit=1)[0]}</kbd> " if keys else ""
    return (
        f'<button type="button" {own} aria-keyshortcuts="{keys}" data-keys="{keys.lower()}" '
        'data-testid="queue-button">'
        f"{shown}{name}</button>"
    )
