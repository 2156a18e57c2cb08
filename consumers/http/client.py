"""A client of the daemon's HTTP API, on the standard library alone.

::

    client = Client("http://127.0.0.1:8100")
    client.predict("what a lovely day")["label"]
    for event in client.events("coffee"):
        print(event.name, event.data)

Answers are the API's own JSON, as dicts with types; `docs/api.md` says what each key means.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from consumers.http import (
    BinDict,
    CategoryFieldDict,
    ChallengersDict,
    CheckpointAgeDict,
    ClassDisplayDict,
    ClassRowDict,
    ComparedDict,
    ComparedWordDict,
    ComparisonDict,
    ConfusionDict,
    CorrectionsDict,
    CountedValueDict,
    DeleteReceiptDict,
    DriftDict,
    ExplanationDict,
    FeatureDict,
    FeatureScoreDict,
    FieldsDict,
    FlagFieldDict,
    HistoryDict,
    IntervalDict,
    JudgedBlockDict,
    LabellingDict,
    LabelReceiptDict,
    MatchedStepDict,
    MatchesDict,
    MessageAnswerDict,
    MessageDict,
    ModelDict,
    ModelFiguresDict,
    MovedWordDict,
    MovingWordDict,
    NowDict,
    NumberFieldDict,
    OwnModelFiguresDict,
    OwnModelsDict,
    PageDict,
    PageNamesDict,
    PointDict,
    PredictionDict,
    PrequentialDict,
    ReliabilityBinDict,
    SampleDict,
    SearchDict,
    SeriesDict,
    ShareDict,
    ShareMoveDict,
    SnapshotAgeDict,
    StepDict,
    SummaryDict,
    TrendDict,
    WantedDict,
    WantedMessageDict,
    WindowDict,
)

__all__ = [
    "ApiError", "BinDict", "CategoryFieldDict", "ChallengersDict", "CheckpointAgeDict",
    "ClassDisplayDict", "ClassRowDict", "Client", "ComparedDict", "ComparedWordDict",
    "ComparisonDict", "ConfusionDict", "CorrectionsDict", "CountedValueDict",
    "DeleteReceiptDict", "DriftDict", "ExplanationDict", "FeatureDict", "FeatureScoreDict",
    "FieldsDict", "FlagFieldDict", "HistoryDict", "IntervalDict", "JudgedBlockDict",
    "LabelReceiptDict", "LabellingDict", "MatchedStepDict", "MatchesDict", "MessageAnswerDict",
    "MessageDict", "ModelDict", "ModelFiguresDict", "MovedWordDict", "MovingWordDict",
    "NoRedirects", "NowDict", "NumberFieldDict", "OwnModelFiguresDict", "OwnModelsDict",
    "PageDict", "PageNamesDict", "PointDict", "PredictionDict", "PrequentialDict",
    "ReceivedEvent", "ReliabilityBinDict", "SampleDict", "SearchDict", "SeriesDict",
    "ShareDict", "ShareMoveDict", "SnapshotAgeDict", "StepDict", "SummaryDict", "TrendDict",
    "WantedDict", "WantedMessageDict", "WindowDict",
]  # fmt: skip

PAUSE_S = 0.25  # before a request is sent again, twice as long each time
PAUSE_MAX_S = 10.0
SILENCE_MAX_S = 30.0  # of events; a comment comes every ten seconds
_PIECE_BYTES = 1 << 16  # of a file
_PROBLEM = "application/problem+json"  # what the daemon itself answers, and hardly a proxy


class ApiError(Exception):
    """The daemon did not answer as it was asked; the message says why, in its own words.

    Attributes
    ----------
    status : int or None
        The HTTP status; None where nobody answered.
    problem : dict
        The problem details of the answer (RFC 9457): `title`, `detail` and more.
    """

    def __init__(self, status: int | None, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{problem.get('title', status)}: {problem.get('detail', '')}")
        self.status = status
        self.problem = dict(problem)


class NoRedirects(HTTPRedirectHandler):
    """Takes a redirect for an answer: followed, it would hand the token to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Ask nobody else."""


class ReceivedEvent(NamedTuple):
    """What changed: its `name` says what `data` is, as the guide of the API lists them."""

    name: str
    data: dict[str, Any]


class Client:
    """Asks one daemon.

    Parameters
    ----------
    url : str
        Where its page is.
    token : str, optional
        The value of `http.token`, to label and delete where the daemon asks for it.
    timeout_s : float
        How long to wait for an answer.
    retries : int
        How often a request is sent again at most: if the daemon is busy or still starts (429, 503),
        after the pause that it asks for, ten seconds at most; and if nobody answers. A label or a
        deletion is sent again only if the daemon itself says that it did not begin: what nobody
        answered, or a proxy in its place, may have arrived.

    Examples
    --------
    >>> Client("http://127.0.0.1:1").predict("hello")
    Traceback (most recent call last):
    consumers.http.client.ApiError: No answer: http://127.0.0.1:1: [Errno 111] Connection refused
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8100",
        token: str | None = None,
        timeout_s: float = 10.0,
        retries: int = 2,
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_s = timeout_s
        self._retries = max(0, retries)
        # The daemon is near: no proxy is between.
        self._open = build_opener(ProxyHandler({}), NoRedirects()).open

    def predict(self, example: str | Mapping[str, Any], **more: Any) -> PredictionDict:
        """Return the prediction for a text or a message; `explain=True`, `prior="model"`."""
        what = "text" if isinstance(example, str) else "message"
        found: list[PredictionDict]
        found = self._ask("POST", "/v1/predict", {what: example, **more})["predictions"]
        return found[0]

    def predict_many(
        self, examples: Sequence[str] | Sequence[Mapping[str, Any]], **more: Any
    ) -> list[PredictionDict]:
        """Return the predictions for texts or messages, from one snapshot."""
        what = "texts" if all(isinstance(each, str) for each in examples) else "messages"
        found: list[PredictionDict]
        found = self._ask("POST", "/v1/predict", {what: list(examples), **more})["predictions"]
        return found

    def search(
        self,
        query: str = "",
        between: tuple[int | str | None, int | str | None] | None = None,
        **more: Any,
    ) -> SearchDict:
        """Return the newest messages that match; `lang`, `limit`, `before`, or None for each.

        With `between` only those from one time to before another; None leaves an end open.
        """
        given = {} if between is None else dict(zip(("from", "to"), between, strict=True))
        found: SearchDict = self._ask("GET", _address("/v1/search", query, given | more))
        return found

    def search_all(
        self,
        query: str = "",
        between: tuple[int | str | None, int | str | None] | None = None,
        **more: Any,
    ) -> Generator[MessageDict, None, None]:
        """Yield all messages that match, newest first, asking for a page whenever one ends.

        Takes what `search` takes; `limit` is that of a page, and `before` where to begin.
        """
        while True:
            found = self.search(query, between, **more)
            yield from found["messages"]
            if not found["more"]:
                return
            more["before"] = found["before"]

    def message(self, name: str) -> MessageAnswerDict:
        """Return the stored message of an id, with what the model says of it now and why."""
        found: MessageAnswerDict = self._ask("GET", f"/v1/messages/{quote(name, safe='')}")
        return found

    def export(self, query: str = "", **more: Any) -> Generator[bytes, None, None]:
        """Yield the file of all messages that match, piece by piece; `format`, `label`, `limit`.

        An `ApiError` says that it was refused, or that it broke off before its end.
        """
        with self._sent("GET", _address("/v1/export", query, more), self._timeout_s) as answer:
            if answer.status != HTTPStatus.OK:
                raise _error(answer.status, self._body(answer))
            try:
                while piece := answer.read(_PIECE_BYTES):
                    yield piece
                if answer.length:  # of a file of a known length, as from a proxy, no cut is told
                    raise IncompleteRead(b"", answer.length)
            except (OSError, HTTPException) as error:
                raise self._silence(error) from None

    def summary(self, query: str = "", **more: Any) -> SummaryDict:
        """Return shares and counts over the newest messages that match; `lang`."""
        found: SummaryDict = self._ask("GET", _address("/v1/summary", query, more))
        return found

    def compare(
        self,
        *queries: str,
        lang: str | None = None,
        times: Sequence[tuple[int | str, int | str]] = (),
    ) -> list[ComparedDict]:
        """Return queries side by side, or one at two `times`, each from one to before another.

        `compare_times` also says what moved from one time to the other.
        """
        return self._comparison(queries, lang, times)["compared"]

    def compare_times(
        self,
        query: str,
        first: tuple[int | str, int | str],
        second: tuple[int | str, int | str],
        lang: str | None = None,
    ) -> ComparisonDict:
        """Return a query at two times, each from one to before another, and what moved."""
        return self._comparison((query,), lang, (first, second))

    def _comparison(
        self, queries: Sequence[str], lang: str | None, times: Sequence[tuple[int | str, int | str]]
    ) -> ComparisonDict:
        begins, ends = zip(*times, strict=True) if times else ((), ())
        more = {"q": queries, "lang": [] if lang is None else lang, "from": begins, "to": ends}
        found: ComparisonDict = self._ask("GET", f"/v1/compare?{urlencode(more, doseq=True)}")
        return found

    def history(
        self, query: str = "", between: tuple[int | str, int | str] | None = None, **more: Any
    ) -> HistoryDict:
        """Return counts over time, from one time to before another; `lang`, `step`."""
        given = {} if between is None else dict(zip(("from", "to"), between, strict=True))
        found: HistoryDict = self._ask("GET", _address("/v1/history", query, given | more))
        return found

    def events(
        self, *queries: str, lang: str | None = None
    ) -> Generator[ReceivedEvent, None, None]:
        """Yield what changes for some queries, or for everything, as it changes.

        A connection begins with how things stand. If it is cut another one is made, unless
        `retries` is 0. An `ApiError` says that it was refused, or that nobody answers any more:
        with `retries=7` a daemon that is restarted is waited for 25 seconds.
        """
        asked = queries or ("",)
        more = {} if lang is None else {"lang": [lang] * len(asked)}
        path = f"/v1/events?{urlencode({'q': asked, **more}, doseq=True)}"
        while True:
            with self._sent("GET", path, max(self._timeout_s, SILENCE_MAX_S)) as answer:
                if answer.status != HTTPStatus.OK:
                    raise _error(answer.status, self._body(answer))
                yield from _events_of(answer)
            if not self._retries:
                return
            time.sleep(PAUSE_S)

    def label(self, name: str, label: str | None) -> LabelReceiptDict:
        """Say what label the message of an id should have, or none; it is safe in the log then."""
        found: LabelReceiptDict
        found = self._ask("POST", "/v1/labels", {"id": name, "label": label})
        return found

    def delete(self, name: str) -> DeleteReceiptDict:
        """Unlearn the message of an id, and remove it."""
        found: DeleteReceiptDict
        found = self._ask("DELETE", f"/v1/messages/{quote(name, safe='')}")
        return found

    def wanted(self, limit: int | None = None) -> WantedDict:
        """Return the messages that a person should label next, the most useful first.

        `label` answers one of them, and a label of None takes the answer back.
        """
        more = {} if limit is None else {"limit": limit}
        found: WantedDict = self._ask("GET", f"/v1/labels/wanted?{urlencode(more)}")
        return found

    def model(self) -> ModelDict:
        """Return how well the model does."""
        found: ModelDict = self._ask("GET", "/v1/model")
        return found

    def fields(self) -> FieldsDict:
        """Return what was counted of each field by class; words are in `model`."""
        found: FieldsDict = self._ask("GET", "/v1/fields")
        return found

    def page(self) -> PageDict:
        """Return what the daemon says of itself: its classes, fields, names, and what is on."""
        found: PageDict = self._ask("GET", "/v1/page")
        return found

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        with self._sent(method, path, self._timeout_s, body) as answer:
            status, said = answer.status, self._body(answer)
        found = _json(said)
        if found is None or status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _error(status, said)
        return found

    def _sent(self, method: str, path: str, timeout_s: float, body: Any = None) -> Any:
        """Return the open answer, whatever its status, once sending it again would not help."""
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
        request = Request(self._url + path, data, headers, method=method)  # noqa: S310 -- the caller's own daemon
        is_reading = method == "GET" or path == "/v1/predict"
        for n in range(self._retries + 1):
            pause_s, is_last = PAUSE_S * 2**n, n == self._retries
            try:
                answer = self._answer(request, timeout_s)
            except (OSError, HTTPException) as error:
                if is_last or not is_reading:
                    raise self._silence(error) from None
            else:
                if is_last or not _may_ask_again(answer, is_reading=is_reading):
                    return answer
                with answer:
                    after = answer.headers.get("Retry-After", "")
                pause_s = float(after) if after.isdecimal() else pause_s
            time.sleep(min(pause_s, PAUSE_MAX_S))
        raise AssertionError("the last one returns or raises")

    def _body(self, answer: Any) -> bytes:
        """Return all bytes of an open answer; if it breaks off, nobody answered."""
        try:
            said: bytes = answer.read()
        except (OSError, HTTPException) as error:
            raise self._silence(error) from None
        return said

    def _silence(self, error: Exception) -> ApiError:
        detail = f"{self._url}: {getattr(error, 'reason', error)}"
        return ApiError(None, {"title": "No answer", "detail": detail})

    def _answer(self, request: Request, timeout_s: float) -> Any:
        """Return the open answer, whatever its status."""
        try:
            return self._open(request, timeout=timeout_s)
        except HTTPError as error:
            return error


def _may_ask_again(answer: Any, *, is_reading: bool) -> bool:
    """Return whether a request was refused for now, without anything having been done.

    A proxy's 503 also says that the daemon went away amid the request, which it may have done.
    """
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    is_ours = answer.headers.get_content_type() == _PROBLEM
    return answer.status == HTTPStatus.SERVICE_UNAVAILABLE and (is_reading or is_ours)


def _error(status: int, body: bytes) -> ApiError:
    """Return what says that an answer is a problem.

    What is no JSON, from a proxy or another server perhaps, stands as its own detail.
    """
    return ApiError(status, _json(body) or {"detail": body[:200].decode("utf-8", "replace")})


def _events_of(answer: Any) -> Generator[ReceivedEvent, None, None]:
    """Yield the events of an open answer until it ends, or is cut."""
    name, data = "message", ""
    while True:
        try:
            read = answer.readline()
        except (OSError, HTTPException):
            return
        if not read.endswith(b"\n"):  # the end, or a cut, amid a character perhaps
            return
        line = read.decode("utf-8")
        field, _, value = line.rstrip("\r\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data = value  # one line: it is JSON
        elif not line.strip() and data:
            yield ReceivedEvent(name, json.loads(data))
            name, data = "message", ""


def _address(path: str, query: str, more: Mapping[str, Any]) -> str:
    """Return an address with its parameters; None is one that is not given."""
    given = {name: value for name, value in more.items() if value is not None}
    return f"{path}?{urlencode({'q': query, **given})}"


def _json(body: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None where it is something else."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
