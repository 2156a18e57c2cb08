"""A store of recent messages with a stream before it and pages behind it, driven step by step.

The store is the daemon's own, with clocks that are set by hand. Its thread is waited for, never
slept for.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry

from consumers.config.sections import RecentSettings
from consumers.monitoring.metrics import Metrics
from consumers.search.live_query import EventEncoder, Subscription, WatchRequest
from consumers.search.live_updater import LiveUpdater
from consumers.search.query_syntax import Query
from consumers.search.rows import Change, Counted, FoundRow, RecentState
from consumers.search.store import RecentStore
from tests.consumers.raw_batches import CLASSES, messages

UNSURE_BELOW = 0.65
PATIENCE_S = 30.0


class Said(NamedTuple):
    """A message of the stream, and what was thought of it."""

    id: str
    text: str
    lang: str | None = "en"
    positive: float = 0.9


class Stream:
    """A store, and the stream that it is offered.

    Parameters
    ----------
    settings : RecentSettings
    """

    def __init__(self, settings: RecentSettings | None = None, path: Path | None = None) -> None:
        self.now_s = 1_000_000.0
        self._offset = 0
        if settings is None:
            settings = RecentSettings(rate_max_per_s=1e6)
        self.recent = RecentStore(
            settings, path, CLASSES, ("text",), UNSURE_BELOW, lambda: self.now_s, lambda: self.now_s
        )

    def say(self, said: Sequence[Said]) -> None:
        """Offer messages in one batch."""
        values = [
            {"id": each.id, "text": each.text, "lang": each.lang, "user": "ann"} for each in said
        ]
        batch = messages(values, first=self._offset, fields=("text",))
        self._offset += len(said)
        shares = np.array([[1 - each.positive, each.positive] for each in said])
        self.recent.offer(batch, np.arange(len(said)), np.log(shares))

    def settle(self) -> None:
        """Wait until the store has dealt with all, and told everybody who listens."""
        for _ in range(2):  # listeners of one turn are told before the next turn begins
            self.recent.correct("of no message", None, None)


class Plain:
    """Words for what pages are told: the plain values as JSON."""

    def summary(
        self, query: Query, lang: str | None, counted: Counted, state: RecentState
    ) -> bytes:
        """Return the counts."""
        del query, lang, state
        return msgspec.json.encode(counted)

    def messages(self, found: Sequence[FoundRow]) -> bytes:
        """Return the rows."""
        return msgspec.json.encode({"rows": found})

    def status(self) -> bytes:
        """Return nothing in particular."""
        return b'{"well":true}'

    def change(self, change: Change) -> bytes:
        """Return the change."""
        return msgspec.json.encode(change)

    def problem(self, detail: str) -> bytes:
        """Return the sentence."""
        return msgspec.json.encode({"detail": detail})


class Page:
    """An open page: it remembers the newest it was told of each of its queries.

    Parameters
    ----------
    live_updater : LiveUpdater
    asked : sequence of WatchRequest
    client : str
    """

    def __init__(
        self, live_updater: LiveUpdater, asked: Sequence[WatchRequest], client: str = "here"
    ) -> None:
        self.asked = asked
        self._woken = threading.Event()
        self.told: dict[tuple[str, int | None], Any] = {}
        self.changes: list[dict[str, Any]] = []
        self._stack = ExitStack()
        self.mail: Subscription = self._stack.enter_context(
            live_updater.subscribed(asked, client, self._woken.set)
        )

    def wait(self) -> None:
        """Wait until something has come."""
        assert self._woken.wait(PATIENCE_S)
        self._woken.clear()

    def look(self) -> None:
        """Take what has come."""
        for name, data in events(self.mail.take()):
            if name == "change":
                self.changes.append(data)
            else:
                self.told[name, data.pop("index", None)] = data

    def close(self) -> None:
        """Close the page."""
        self._stack.close()


def events(stream: bytes) -> list[tuple[str, Any]]:
    """Return server-sent events, by their names, with their data; comments are left out."""
    found = []
    for block in stream.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "event" in lines:
            found.append((lines["event"], msgspec.json.decode(lines["data"])))
    return found


def make_hub(stream: Stream, serializer: EventEncoder | None = None) -> LiveUpdater:
    """Return a hub whose thread is not started: its ticks are the test's."""
    metrics = Metrics(CollectorRegistry())
    return LiveUpdater(stream.recent, serializer or Plain(), metrics, lambda: stream.now_s)
