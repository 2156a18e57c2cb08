"""`make stack`: broker, replayer, daemon and Prometheus from one terminal, and their end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.metric_names import rules
from tests.deploy.prometheus_server import ROOT, require_prometheus
from tests.kafka_fixtures import require_parts

RUNS = "all of them run"


class Stack:
    """The command in a terminal of its own, started until all of its programs run.

    Attributes
    ----------
    addresses : dict of str to str
        The `http://` addresses that it names, by what they are.
    programs : dict of int to str
        The processes that it started, by their number, and their command lines.
    """

    def __init__(self, folder: Path) -> None:
        require_prometheus()
        require_parts()
        free = ["--http-port", "0", "--prometheus-port", "0", "--folder", str(folder)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "scripts.stack", *free],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.said = ""
        for line in self._process.stdout:
            self.said += line
            if RUNS in line:
                break
        assert RUNS in self.said, self.said
        self.addresses = dict(
            re.findall(r"^stack: (.+?) +(http://[\d.:]+)", self.said, re.MULTILINE)
        )
        self.programs = children(self._process.pid)

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its Prometheus."""
        address = f"{self.addresses['Prometheus']}/api/v1/{path}"
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{address}?{query}", timeout=60) as answer:
            return json.load(answer)["data"]

    def until_data(self, expression: str) -> None:
        """Wait until an expression has a value; the test's own timeout is the patience."""
        while not self.ask("query", query=expression)["result"]:
            assert self._process.poll() is None
            lives_on(self._process)

    def ctrl_c(self) -> None:
        """Send what a terminal sends: SIGINT to all processes of its foreground group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> int:
        """Read what it says to its end; return its exit code."""
        assert self._process.stdout is not None
        with self._process.stdout:
            self.said += self._process.stdout.read()
        return self._process.wait()

    def kill(self) -> None:
        """End it by force, if it has not ended."""
        self._process.kill()
        self._process.wait()


def lives_on(process: subprocess.Popen[str]) -> None:
    """Give a process a quarter of a second in which it should not end."""
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.25)


def children(parent: int) -> dict[int, str]:
    """Return the processes that a process has started, and their command lines."""
    found = {}
    for task in Path(f"/proc/{parent}/task").iterdir():
        for number in (task / "children").read_text(encoding="utf-8").split():
            line = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            found[int(number)] = line
    return found


def left_of(programs: dict[int, str]) -> list[str]:
    """Return the command lines of those that are still there."""
    return [line for number, line in programs.items() if Path(f"/proc/{number}").exists()]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """Return the command with all of its programs running."""
    started = Stack(tmp_path / "stack")
    yield started
    started.kill()


@pytest.mark.integration
@pytest.mark.deep
def test_all_run_until_ctrl_c_ends_all(stack: Stack, tmp_path: Path) -> None:
    """Prometheus sees the daemon learn from the broker, by our rules; then nothing is left."""
    assert len(stack.programs) == 4
    for part in ("kafka.Kafka", "replay generator", "consumers run", "prometheus"):
        assert sum(part in line for line in stack.programs.values()) >= 1, part
    stack.until_data('up{job="streamnb"} == 1')
    stack.until_data("streamnb_messages_total > 0")
    groups = stack.ask("rules")["groups"]
    assert sum(len(group["rules"]) for group in groups) == len(rules())
    with urllib.request.urlopen(f"{stack.addresses['the page']}/v1/page", timeout=60) as answer:
        assert json.load(answer)
    runbook = f"{stack.addresses['Prometheus']}/user/runbook.md"
    with urllib.request.urlopen(runbook, timeout=60) as answer:
        assert b"\n## StreamnbDown\n" in answer.read()
    stack.ctrl_c()
    assert stack.end() == 0, stack.said
    assert left_of(stack.programs) == []
    assert (tmp_path / "stack" / "state" / "model.nb").is_file()


@pytest.mark.integration
@pytest.mark.deep
def test_one_that_ends_by_itself_ends_all_and_is_named(stack: Stack) -> None:
    """Exit code 1, the name of the one, and nothing is left of the others."""
    (number,) = [each for each, line in stack.programs.items() if "/prometheus.yml" in line]
    os.kill(number, signal.SIGKILL)
    assert stack.end() == 1
    assert "prometheus ended by itself" in stack.said
    assert left_of(stack.programs) == []


@pytest.mark.integration
@pytest.mark.deep
def test_nothing_outlives_it(stack: Stack) -> None:
    """Killed, it has no chance to end its programs; they end all the same."""
    stack.kill()
    stack.end()  # the last of those that hold its output
    while left_of(stack.programs):
        os.sched_yield()
