"""What the case of a restart takes as right, as loading, and as a failure."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from urllib.error import HTTPError

import pytest

from benchmarks.restart import Figures, until_right

ANSWERS: dict[str, Figures] = {"/figures": [40, [25, 15]], "/list": ["9", "8"]}
Answer = tuple[HTTPStatus, dict[str, str], object]

LOADING: Answer = (
    HTTPStatus.SERVICE_UNAVAILABLE,
    {"Retry-After": "1"},
    {"detail": "still loading"},
)
FIGURES: Answer = (HTTPStatus.OK, {}, {"n": 40, "counts": {"a": 25, "b": 15}})
LIST: Answer = (HTTPStatus.OK, {}, {"messages": [{"id": "9"}, {"id": "8"}]})


@contextmanager
def answering(*answers: Answer) -> Iterator[str]:
    """Yield the address of a server that gives one answer after the other."""
    left = list(answers)

    class Handler(http.server.BaseHTTPRequestHandler):
        """Gives the next answer."""

        def do_GET(self) -> None:
            status, headers, answer = left.pop(0)
            body = json.dumps(answer).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_daemon_may_be_loading() -> None:
    """Each address may say so until it has the right figures, and has them in each later round."""
    with answering(LOADING, LOADING, FIGURES, LOADING, FIGURES, LIST) as address:
        until_right(address, ANSWERS)


@pytest.mark.parametrize(
    "wrong",
    [
        (HTTPStatus.OK, {}, {"n": 0, "counts": {"a": 0, "b": 0}}),
        (HTTPStatus.OK, {}, {"n": 40, "counts": {"a": 15, "b": 25}}),
    ],
    ids=["none of them", "of other classes"],
)
@pytest.mark.parametrize("before", [[], [LOADING, LOADING], [FIGURES, LOADING]])
def test_a_wrong_figure_fails(before: Sequence[Answer], wrong: Answer) -> None:
    """No figure but the right one may be shown, neither while it loads nor later."""
    with (
        answering(*before, wrong) as address,
        pytest.raises(RuntimeError, match=r"is shown, and \[40, \[25, 15\]\] is right"),
    ):
        until_right(address, ANSWERS)


def test_an_error_is_not_loading() -> None:
    """Only a 503 that says when to ask again is."""
    for status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR):
        with (
            answering((status, {}, {})) as address,
            pytest.raises(HTTPError, match=str(status.value)),
        ):
            until_right(address, ANSWERS)


def test_a_daemon_that_has_ended_is_not_waited_for() -> None:
    """What it did not answer is named."""
    with (
        answering() as address,
        pytest.raises(RuntimeError, match=r"does not answer for /figures, /list"),
    ):
        until_right(address, ANSWERS, lambda: False)
