"""`POST /v1/predict`: what the model says of texts and messages, from the current snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgspec
from msgspec import UNSET, Raw
from starlette.requests import Request
from starlette.responses import Response

from consumers.web.asked import Asked, Asker
from consumers.web.bodies import Bodies, decoded
from consumers.web.explaining import explained, interval
from consumers.web.judging import Judge, judged
from consumers.web.parameters import Parameters
from consumers.web.problems import ProblemError
from consumers.web.rooms import Rooms
from consumers.web.route import FRESH, PlainRoute, Told, json_response
from consumers.web.wire import EXPLAINED_MAX, TEXTS_MAX, PredictAnswer, PredictRequest
from streamnb import Snapshot

TOLD = Told(
    "Judge texts or messages",
    PredictAnswer,
    PredictRequest,
    problems={
        400: "The body is not JSON.",
        413: "The body is larger than http.body_bytes_max.",
        415: "The body is not said to be JSON.",
        422: "The body is another JSON than is wanted, or the stream would refuse the message.",
        503: "The predictor is overrun, or has nothing to answer from yet.",
    },
)
_WANTED = "give one of text, texts, message and messages"


def predicting_routes(rooms: Rooms, judge: Judge, asker: Asker) -> list[PlainRoute]:
    """Return the route `/v1/predict`."""
    bodies = Bodies(rooms.settings.http.body_bytes_max)
    decoder = msgspec.json.Decoder(PredictRequest)

    async def predict(request: Request) -> Response:
        Parameters(request, ())
        asked = decoded(await bodies.read(request), decoder)
        if asked.text is not None and judge.text_field is not None and _is_text_alone(asked):
            return json_response(await judge.judge_text(asked.text))
        question = _Question(_examples(asked, asker), asked.explain, asked.interval)
        # The answer's JSON is made on the predictor's thread: of thousands it takes milliseconds,
        # which the loop has not got.
        body = await judge.ask(question)
        return Response(body, 200, FRESH, "application/json")

    return [PlainRoute("/v1/predict", predict, TOLD, "POST")]


def _is_text_alone(asked: PredictRequest) -> bool:
    return _n_given(asked) == 1 and not asked.explain and asked.interval is None


def _n_given(asked: PredictRequest) -> int:
    """Return how many of the four ways to ask a request takes."""
    given = (asked.text, asked.texts, asked.message, asked.messages)
    return sum(each is not None and each is not UNSET for each in given)


def _examples(asked: PredictRequest, asker: Asker) -> Asked:
    """Return what is asked about as columns."""
    if _n_given(asked) != 1:
        raise ProblemError(422, f"the body has {_n_given(asked)} of them: {_WANTED}")
    if asked.text is not None:
        found = asker.texts([asked.text])
    elif asked.texts is not None:
        found = asker.texts(asked.texts)
    elif asked.messages is not None:
        found = asker.messages([bytes(each) for each in asked.messages], "messages")
    else:
        found = asker.messages([bytes(cast("Raw", asked.message))], "message")
    if (asked.explain or asked.interval is not None) and found.n > EXPLAINED_MAX:
        raise ProblemError(
            422,
            f"{found.n} examples are to be explained, and {EXPLAINED_MAX} may be at once; "
            f"without explain and interval {TEXTS_MAX}",
        )
    return found


@dataclass(frozen=True, slots=True)
class _Question:
    """What is asked of a snapshot; its answer is the body of the response."""

    asked: Asked
    explain: bool
    level: float | None

    def __call__(self, snapshot: Snapshot) -> bytes:
        answer = judged(snapshot, self.asked.columns)
        if self.explain or self.level is not None:
            for i, prediction in enumerate(answer.predictions):
                example = self.asked.example(i)
                if self.explain:
                    prediction.explanation = explained(snapshot, example)
                if self.level is not None:
                    prediction.interval = interval(snapshot, example, self.level)
        return msgspec.json.encode(answer)
