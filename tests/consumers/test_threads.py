"""Threads beside the learning: what breaks in one is seen, and ends the run or heals."""

from __future__ import annotations

import ast
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from consumers import reporter
from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.errors import ConfigError, ConsumerError
from consumers.monitoring.status import Health, Status, Summary
from consumers.process import watch_signals
from tests.consumers.search.live_stream import PATIENCE_S, Stream, make_hub
from tests.consumers.test_reporter import Run

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "architecture.md"
THREADS = GUIDE.read_text(encoding="utf-8").partition("## Threads")[2].partition("\n## ")[0]
# The first column of each row: a row may be of several threads. The main one has no name of ours.
TOLD = {
    name
    for names in re.findall(r"^\| ([a-z][a-z0-9, -]*) \|.*\|.*\|.*\|$", THREADS, re.MULTILINE)
    for name in names.split(", ")
} - {"thread", "the main one of a replica"}
# Where a call has the name of what it starts, if it has no keyword.
PLACES = {"ThreadPoolExecutor": 1, "WorkerPool": 1, "Worker": 2}
RESTARTS = "streamnb_recent_restarts_total"


class Watcher:
    """A view that asks the daemon over HTTP until it is degraded, and then ends it as people do."""

    def __init__(self) -> None:
        self.ready: dict[str, Any] = {}
        self.status = 0
        self.metrics = ""
        self.trouble: str | None = None
        self.threads: set[str] = set()
        self.unknown: set[int] = set()
        # Those of other tests in this process, such as the one that reads the broker's log.
        self._foreign = set(threading.enumerate()) - {threading.main_thread()}
        self._foreign_tasks = tasks()

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
        own = set(threading.enumerate()) - self._foreign
        self.threads = {thread.name.rsplit("_")[0] for thread in own}
        # What runs for the operating system, but Python knows nothing of. Python forgets a thread a
        # moment before it ends, so only what stays is meant.
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            seen = {thread.native_id for thread in threading.enumerate()} | self._foreign_tasks
            self.unknown = tasks() - seen
            if not self.unknown:
                break
        os.kill(os.getpid(), signal.SIGTERM)


def tasks() -> set[int]:
    """Return the ids of all threads of this process, those of libraries included."""
    return {int(each.name) for each in Path("/proc/self/task").iterdir()}


def started() -> set[str]:
    """Return the names of all threads that the packages start, as their code gives them."""
    found: set[str] = set()
    for package in ("streamnb", "consumers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                found |= {name for value in names_given(node) for name in names_in(value)}
    return found


def names_given(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the expressions by which a node names threads: of a call, or of a parameter."""
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        given = {each.arg: each.value for each in node.keywords}
        place = PLACES.get(called)
        if place is not None and len(node.args) > place:
            yield node.args[place]
        if called in {"Thread", *PLACES} and "name" in given:
            yield given["name"]
        for word in ("thread_name", "thread_name_prefix"):
            if word in given:
                yield given[word]
    elif isinstance(node, ast.ClassDef) and node.name == "WorkerPool":
        yield from default_of(node, "name")
    elif isinstance(node, ast.FunctionDef):
        yield from default_of(node, "thread_name")


def default_of(node: ast.AST, parameter: str) -> Iterator[ast.expr]:
    """Yield the default of a parameter, of all functions in a node."""
    for each in ast.walk(node):
        if isinstance(each, ast.arguments):
            with_default = each.args[len(each.args) - len(each.defaults) :]
            pairs = [*zip(with_default, each.defaults, strict=True)]
            pairs += [(a, d) for a, d in zip(each.kwonlyargs, each.kw_defaults, strict=True) if d]
            yield from (default for argument, default in pairs if argument.arg == parameter)


def names_in(value: ast.expr) -> set[str]:
    """Return the names that an expression stands for; of a numbered one, those of the table."""
    if isinstance(value, ast.Constant):
        return {str(value.value)}
    if isinstance(value, ast.JoinedStr):
        pattern = "".join(
            re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[0-9]+"
            for part in value.values
        )
        return {name for name in TOLD if re.fullmatch(pattern, name)} or {pattern}
    return set()  # a parameter: its callers give the name


def ran(watcher: Watcher, **sections: Any) -> Summary:
    """Run a daemon over the made-up stream until it is told to stop."""
    settings = Settings.model_validate(
        {"source": "generator", "checkpoint": {"folder": None}, "http": {"port": 0}, **sections}
    )
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in signals]
    try:
        return run(settings, watcher, watch_signals())
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in zip(signals, handlers, strict=True):
            signal.signal(number, handler)


def test_a_store_that_breaks_is_seen_and_learning_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Health, metrics, the page's model and the log say that the store's thread broke.

    Each thread that runs meanwhile stands in the table of threads, with what happens if it breaks.
    """

    def unforeseen(*_: object) -> None:
        raise ZeroDivisionError("nobody foresaw this")

    monkeypatch.setattr("consumers.search.transactions.Transactions.apply", unforeseen)
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
    assert watcher.threads - {"MainThread", *TOLD} == set()
    assert len(watcher.threads) >= 9
    assert watcher.unknown == set()  # beside what libraries started before, as OpenBLAS


def test_each_thread_of_the_packages_stands_in_the_table() -> None:
    """What the code starts and what the document tells are the same names."""
    found = started()
    assert len(found) >= 25
    assert found == TOLD


@pytest.mark.parametrize(
    ("error", "seen", "said"),
    [
        (ZeroDivisionError("nobody foresaw this"), ConsumerError, "HTTP could not be served"),
        (SystemExit(1), ConsumerError, "HTTP could not be served"),
        (ConfigError("another uvicorn"), ConfigError, "another uvicorn"),
    ],
)
def test_a_server_that_breaks_ends_the_run(
    error: BaseException, seen: type[Exception], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody is answered any more, probes included, the run ends and says why."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("consumers.http.app.make_app", fail)
    watcher = Watcher()
    watcher.ready = {"asks": "nobody"}  # its own error, of a server that has gone, may come first
    with capture_logs() as logs, pytest.raises(seen, match=said):
        ran(watcher)
    assert "http_failed" in [line["event"] for line in logs]


def test_pages_that_cannot_be_told_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick that fails is told by health, and the next one that does not takes it back."""
    stream = Stream()
    live_updater = make_hub(stream)
    health = Health(lambda: 0.0, 30.0)
    health.watch_part(live_updater.trouble)
    stream.recent.start()
    failed, went_on = threading.Event(), threading.Event()

    def fail() -> None:
        failed.set()
        raise SystemExit("nobody foresaw this")

    def go_on() -> None:
        went_on.set()

    monkeypatch.setattr(live_updater, "tick", fail)
    try:
        with capture_logs() as logs:
            live_updater.start()
            live_updater._poked.set()
            assert failed.wait(PATIENCE_S)
            until(lambda: health.report().degraded is not None)
            assert "nobody foresaw this" in (health.report().degraded or "")
            monkeypatch.setattr(live_updater, "tick", go_on)
            live_updater._poked.set()
            assert went_on.wait(PATIENCE_S)
            until(lambda: health.report().degraded is None)
    finally:
        live_updater.stop()
        stream.recent.stop()
    assert [line["event"] for line in logs] == ["live_tick_failed"]


def test_a_long_ranking_does_not_hold_up_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever stops the reporter waits no longer than it may; what comes then shows nothing."""
    reported = Run(tmp_path, stop_timeout_s=0.1)
    learner = reported.learner()
    learner.learn("t/0", {"text": ["good day"]}, ["positive"])
    learner.publish()
    begun, goes_on = threading.Event(), threading.Event()

    def rank(*_: object) -> dict[str, list[tuple[str, float]]]:
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        return {}

    monkeypatch.setattr(reporter, "top_features", rank)
    one, thread = reported.reporter, reported.reporter._thread
    try:
        one.start()
        assert begun.wait(PATIENCE_S)
        one.update(force=True)
        assert len(reported.view.shown) == 1  # no report of another thread waits for a ranking
        for _ in range(2):  # the second time it does not wait again
            threading.Thread(target=one.stop, name="stop", daemon=True).start()
        until(lambda: not any(each.name == "stop" for each in threading.enumerate()))
        assert thread.is_alive()
        one.update(force=True)
        assert len(reported.view.shown) == 2
    finally:
        goes_on.set()
        thread.join(PATIENCE_S)
    assert len(reported.view.shown) == 2
    one.watch()


def test_the_end_of_a_short_run_ranks_what_it_learned(tmp_path: Path) -> None:
    """On the reporter's thread, for which the run waits."""
    reported = Run(tmp_path)
    reported.reporter.start()
    learner = reported.learner()
    learner.learn("t/0", {"text": ["good day", "bad day"]}, ["positive", "negative"])
    learner.publish()
    reported.reporter.stop()
    reported.reporter.update(force=True)
    assert reported.view.shown[-1].telling == {"negative": ("bad",), "positive": ("good",)}


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    told = threading.Event()
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        told.wait(0.005)
