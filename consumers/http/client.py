"""A client of the daemon's HTTP API, on the standard library alone.

::

    client = Client("http://127.0.0.1:8100")
    client.predict("what a lovely day")["label"]
    for event in client.events("coffee"):
        print(event.name, event.data)

Answers are the API's own JSON, as dicts, whose types stand here; `docs/api.md` says what each key
means. A test holds the types against the API's description.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPException, IncompleteRead
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

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


class FeatureDict(TypedDict):
    """What one word, value, flag or number says, in nats."""

    group: str
    feature: str
    kind: Literal["word", "absent_words", "category", "flag", "number"]
    unseen: bool
    score: float | None
    counts: dict[str, float]
    likelihoods: dict[str, float]
    means: dict[str, float]
    deviations: dict[str, float]


class ExplanationDict(TypedDict):
    """Why a label was chosen before another."""

    label: str
    other: str
    known: bool
    by_prior: bool
    intercept: float | None
    rest: float | None
    features: list[FeatureDict]


class IntervalDict(TypedDict):
    """A credible interval of the label's probability."""

    level: float
    low: float
    high: float


class PredictionDict(TypedDict):
    """What the model says of one example."""

    label: str
    probabilities: dict[str, float]
    log_posteriors: dict[str, float | None]
    raw: NotRequired[dict[str, float] | None]
    explanation: NotRequired[ExplanationDict | None]
    interval: NotRequired[IntervalDict | None]
    prediction_set: NotRequired[list[str] | None]
    decision: NotRequired[str | None]
    model: NotRequired[str | None]
    answered_by: NotRequired[str | None]


class SampleDict(TypedDict):
    """Which part of the stream the store holds."""

    share: float | None
    stored_per_s: float
    offered_per_s: float
    messages: int | None
    messages_max: int
    age_max_s: float


class MessageDict(TypedDict):
    """A message of the store."""

    key: int
    id: str
    time_ms: int
    user: str | None
    lang: str | None
    text: str
    marked: list[str]
    label: str
    probability: float
    probabilities: dict[str, float]
    unsure: bool
    truth: str | None
    corrected: str | None


class NowDict(TypedDict):
    """What the current snapshot says of a message."""

    label: str
    probabilities: dict[str, float]
    prediction_set: list[str] | None


class MessageAnswerDict(MessageDict):
    """A message, and what the current snapshot says of it and why."""

    explanation: ExplanationDict | None
    interval: IntervalDict | None
    snapshot_version: int
    now: NowDict


class SearchDict(TypedDict):
    """The newest messages that match."""

    query: str
    lang: str | None
    messages: list[MessageDict]
    more: bool
    before: int | None
    sample: SampleDict


class StepDict(TypedDict):
    """How many messages of each class are known of the step that begins at `time_ms`."""

    time_ms: int
    counts: dict[str, int]
    n: NotRequired[int]


class SeriesDict(TypedDict):
    """Counts over time."""

    step_s: float
    points: list[StepDict]


class ShareDict(TypedDict):
    """A corrected share with the ends of its error bar."""

    share: float
    low: float
    high: float


class SummaryDict(TypedDict):
    """What is said of the messages that match."""

    query: str
    lang: str | None
    is_everything: bool
    n: int
    n_max: int
    newest_only: bool
    n_unsure: int
    enough: bool
    messages_min: int
    classes: list[str]
    counts: dict[str, int]
    raw: dict[str, float | None]
    corrected: dict[str, ShareDict] | None
    corrected_reason: str | None
    series: SeriesDict
    sample: SampleDict
    n_even: NotRequired[float]


class ComparedWordDict(TypedDict):
    """A word, or condition on a field, that is more frequent on this side than on all others."""

    word: str
    log_odds: float | None
    standard_errors: float
    counts: dict[str, int]
    effects: dict[str, float]


class ComparedDict(SummaryDict):
    """One side of a comparison, and the words that set it apart."""

    from_ms: int | None
    to_ms: int | None
    n_read: int
    words: list[ComparedWordDict]


class MovingWordDict(TypedDict):
    """A word, or condition, that moved a share, and by how much of it: 0.04 are four points."""

    word: str
    effect: float


class ShareMoveDict(TypedDict):
    """The class whose share rose most from one time to the other, and the words that moved it."""

    label: str
    before: float
    after: float
    n_before: int
    n_after: int
    standard_errors: float
    words: NotRequired[list[MovingWordDict]]
    corrected: NotRequired[bool]


class ComparisonDict(TypedDict):
    """What was compared, in the order in which it was asked for.

    Of one query at two times `moved` says which share rose most, and the words that moved it.
    """

    compared: list[ComparedDict]
    moved: ShareMoveDict | None


class MatchedStepDict(TypedDict):
    """A step of a query: how many messages were looked through, of how many."""

    n: int
    n_stored: int
    at_most: int | None


class MatchesDict(TypedDict):
    """What is known of a query's counts over time."""

    query: str
    lang: str | None
    is_word: bool
    stored_from_ms: int | None
    steps: list[MatchedStepDict]


class HistoryDict(TypedDict):
    """How many messages of each class came over time."""

    from_ms: int
    to_ms: int
    now_ms: int
    kept_from_ms: int | None
    n: int
    classes: list[str]
    series: SeriesDict
    note: str
    matches: MatchesDict | None


class LabelReceiptDict(TypedDict):
    """The label is in the log, safe."""

    id: str
    label: str | None
    was: str | None
    position: str


class DeleteReceiptDict(TypedDict):
    """The deletion is in the log, safe."""

    id: str
    was: str | None
    position: str


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
        self,
        queries: Sequence[str],
        lang: str | None,
        times: Sequence[tuple[int | str, int | str]],
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

    def model(self) -> dict[str, Any]:
        """Return how well the model does."""
        found: dict[str, Any] = self._ask("GET", "/v1/model")
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
