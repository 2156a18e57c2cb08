"""Threads beside the learning: what breaks in one is seen, and ends the run or heals."""

from __future__ import annotations

import os
import signal
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from consumers.config import Settings
from consumers.daemon import run
from consumers.status import Status, Summary

RESTARTS = "streamnb_recent_restarts_total"


class Watcher:
    """A view that asks the daemon over HTTP until it is degraded, and then ends it as people do."""

    def __init__(self) -> None:
        self.ready: dict[str, Any] = {}
        self.status = 0
        self.metrics = ""
        self.trouble: str | None = None

    def start(self) -> None:
        """Have nothing to begin."""

    def stop(self) -> None:
        """Have nothing to end."""

    def update(self, status: Status) -> None:
        """Ask for health and metrics, while the run learns."""
        if status.http_address is None or not status.n_learned or self.ready:
            return
        with httpx.Client(base_url=status.http_address, trust_env=False, timeout=30) as http:
            answer = http.get("/readyz")
            if answer.json()["degraded"] is None:
                return
            self.status, self.ready = answer.status_code, answer.json()
            self.metrics = http.get("/metrics").text
            self.trouble = http.get("/v1/model").json()["trouble"]
        os.kill(os.getpid(), signal.SIGTERM)


def ran(watcher: Watcher, **sections: Any) -> Summary:
    """Run a daemon over the made-up stream until it is told to stop."""
    settings = Settings.model_validate(
        {"source": "generator", "checkpoint": {"folder": None}, "http": {"port": 0}, **sections}
    )
    return run(settings, watcher)


def test_a_store_that_breaks_is_seen_and_learning_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health, metrics, the page's model and the log say that the store's thread broke."""

    def unforeseen(*_: object) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr("consumers.recent.keeper.Keeper.apply", unforeseen)
    watcher = Watcher()
    with capture_logs() as logs:
        summary = ran(watcher)
    assert summary.exit_reason == "told to stop"
    assert summary.learned > 0
    assert (watcher.status, watcher.ready["reason"]) == (200, None)
    assert "nobody foresaw this" in watcher.ready["degraded"]
    assert watcher.trouble == watcher.ready["degraded"]
    values = dict(line.rsplit(" ", 1) for line in watcher.metrics.splitlines() if line[0] != "#")
    assert float(values["streamnb_recent_up"]) == 0
    assert float(values[RESTARTS]) >= 1
    assert "recent_store_broke" in [line["event"] for line in logs]
