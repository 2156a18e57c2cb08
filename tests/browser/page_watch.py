"""What a page complains of while a test uses it, and what it takes of thread and memory."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Page, Request, Response, WebError

# What `Browser.start_tracing` is to record for `task_times_ms`.
TASKS: Final = ("toplevel",)

_STILL = {"log", "info", "debug", "timeEnd", "startGroup", "endGroup"}


class Watch:
    """Collects errors, failed requests, and requests that should not have been made.

    Parameters
    ----------
    context : BrowserContext
        All of whose pages are watched.

    Attributes
    ----------
    complaints : list of str
        What was complained of, with its place.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.complaints: list[str] = []
        self._expected: list[re.Pattern[str]] = []
        context.on("console", self._console)
        context.on("weberror", self._error)
        context.on("request", self._asked)
        context.on("requestfailed", self._failed)
        context.on("response", self._answered)

    def expect(self, pattern: str) -> None:
        """Take complaints that this pattern is found in as what the test is about."""
        self._expected.append(re.compile(pattern))

    def unexpected(self) -> list[str]:
        """Return the complaints that nobody expected."""
        return [
            complaint
            for complaint in self.complaints
            if not any(pattern.search(complaint) for pattern in self._expected)
        ]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type not in _STILL:
            place = message.location
            self.complaints.append(
                f"console {message.type}: {message.text} "
                f"({place.get('url')}:{place.get('lineNumber')})"
            )

    def _error(self, error: WebError) -> None:
        self.complaints.append(f"error: {error.error}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in {"data", "blob", "about"} and parts.hostname != "127.0.0.1":
            self.complaints.append(f"leaves the machine: {request.url}")

    def _failed(self, request: Request) -> None:
        # An answer that the page no longer wants is given up by it: that is no failure.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"answered {response.status}: {response.url}")


def task_times_ms(trace: bytes) -> list[float]:
    """Return how long the page's thread worked on each of its tasks, of all pages together.

    That is its own processor time: what else the machine does is not in it.
    """
    events = json.loads(trace)["traceEvents"]
    pages = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    return [
        event["tdur"] / 1000
        for event in events
        if event["name"] == "ThreadControllerImpl::RunTask"
        and (event["pid"], event["tid"]) in pages
        and "tdur" in event
    ]


def heap_bytes(page: Page) -> int:
    """Return the bytes of the page's objects once those that nobody holds are gone."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("HeapProfiler.collectGarbage")
    found = int(devtools.send("Runtime.getHeapUsage")["usedSize"])
    devtools.detach()
    return found


def growth(sizes: Sequence[float]) -> float:
    """Return by which share of itself something grew, by a straight line through its sizes.

    >>> round(growth([100.0, 101.0, 102.0, 103.0, 104.0]), 3), growth([7.0, 9.0, 7.0])
    (0.04, 0.0)
    """
    line = statistics.linear_regression(range(len(sizes)), sizes)
    return line.slope * (len(sizes) - 1) / line.intercept
