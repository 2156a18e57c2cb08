"""A client of the daemon's HTTP API, on the standard library alone.

::

    client = Client("http://127.0.0.1:8100")
    client.predict("what a lovely day")["label"]

Answers are the API's own JSON, as dicts: `docs/api.md` shows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

from streamnb.errors import StreamnbError


class ApiError(StreamnbError):
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

    Examples
    --------
    >>> Client("http://127.0.0.1:1").predict("hello")
    Traceback (most recent call last):
    consumers.http.client.ApiError: No answer: http://127.0.0.1:1: [Errno 111] Connection refused
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8100", token: str | None = None, timeout_s: float = 10.0
    ) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_s = timeout_s
        self._open = build_opener(ProxyHandler({})).open  # the daemon is near; no proxy is between

    def predict(self, example: str | Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """Return the prediction for a text or a message; `explain=True`, `prior="model"`."""
        what = "text" if isinstance(example, str) else "message"
        (found,) = self._ask("POST", "/v1/predict", {what: example, **more})["predictions"]
        return dict(found)

    def predict_many(
        self, examples: Sequence[str] | Sequence[Mapping[str, Any]], **more: Any
    ) -> list[dict[str, Any]]:
        """Return the predictions for texts or messages, from one snapshot."""
        what = "texts" if all(isinstance(each, str) for each in examples) else "messages"
        return list(self._ask("POST", "/v1/predict", {what: list(examples), **more})["predictions"])

    def search(self, query: str = "", **more: Any) -> dict[str, Any]:
        """Return the newest messages that match; `lang`, `limit`, `before`, or None for each."""
        return self._ask("GET", _address("/v1/search", query, more))

    def summary(self, query: str = "", **more: Any) -> dict[str, Any]:
        """Return shares and counts over the newest messages that match; `lang`."""
        return self._ask("GET", _address("/v1/summary", query, more))

    def compare(
        self,
        *queries: str,
        lang: str | None = None,
        times: Sequence[tuple[int | str, int | str]] = (),
    ) -> list[dict[str, Any]]:
        """Return queries side by side, or one at two `times`, each from one to before another."""
        begins, ends = zip(*times, strict=True) if times else ((), ())
        more = {"q": queries, "lang": [] if lang is None else lang, "from": begins, "to": ends}
        return list(self._ask("GET", f"/v1/compare?{urlencode(more, doseq=True)}")["compared"])

    def label(self, name: str, label: str | None) -> dict[str, Any]:
        """Say what label the message of an id should have, or none; it is safe in the log then."""
        return self._ask("POST", "/v1/labels", {"id": name, "label": label})

    def delete(self, name: str) -> dict[str, Any]:
        """Unlearn the message of an id, and remove it."""
        return self._ask("DELETE", f"/v1/messages/{quote(name, safe='')}")

    def model(self) -> dict[str, Any]:
        """Return how well the model does."""
        return self._ask("GET", "/v1/model")

    def _ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
        request = Request(self._url + path, data, headers, method=method)  # noqa: S310 -- the caller's own daemon
        try:
            with self._answer(request) as answer:
                status, body = answer.status, answer.read()
        except (OSError, HTTPException) as error:
            detail = f"{self._url}: {getattr(error, 'reason', error)}"
            raise ApiError(None, {"title": "No answer", "detail": detail}) from None
        found = _json(body)
        if found is None or status >= 400:
            # What is no JSON, from a proxy or another server perhaps, stands as its own detail.
            raise ApiError(status, found or {"detail": body[:200].decode("utf-8", "replace")})
        return found

    def _answer(self, request: Request) -> Any:
        """Return the open answer, whatever its status."""
        try:
            return self._open(request, timeout=self._timeout_s)
        except HTTPError as error:
            return error


def _address(path: str, query: str, more: Mapping[str, Any]) -> str:
    """Return an address with its parameters; None is one that is not given."""
    given = {name: value for name, value in more.items() if value is not None}
    return f"{path}?{urlencode({'q': query, **given})}"


def _json(body: bytes) -> dict[str, Any] | None:
    """Return a JSON object; None where it is something else."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
