"""A real Prometheus for the tests: Debian's package, in its own folder, on a free loopback port."""

from __future__ import annotations

import json
import math
import os
import re
import selectors
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy" / "prometheus"
PATIENCE_S = 60.0
# Two lines of its log: it listens some time before it can answer.
_READY = re.compile(rb"Listening on. address=(127\.0\.0\.1:\d+).*Server is ready", re.DOTALL)


def require_prometheus() -> None:
    """Skip where Prometheus or promtool is missing; in CI a skip is a failure."""
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} found (Debian and Ubuntu: apt install prometheus)")


def promtool(*arguments: str | Path, stdin: str | None = None) -> str:
    """Run promtool; return what it says, and fail where it finds fault."""
    require_prometheus()
    done = subprocess.run(
        ["promtool", *arguments],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said


class Prometheus:
    """Prometheus with the configuration of `deploy/`, but scraping and evaluating every second.

    Parameters
    ----------
    folder : Path
        Where it keeps its configuration and data.
    targets : sequence of str
        The daemons' `host:port`.
    options : sequence of str
        More options of the command.
    port : int
        Where it listens; 0: a free port.
    """

    def __init__(
        self, folder: Path, targets: Sequence[str], options: Sequence[str] = (), *, port: int = 0
    ) -> None:
        require_prometheus()
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        shutil.copytree(DEPLOY / "rules", folder / "rules")
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        (folder / "targets.yml").write_text(
            yaml.safe_dump([{"targets": list(targets)}]), encoding="utf-8"
        )
        dies_with_us = ROOT / "tests" / "broker" / "die_with_parent.py"
        self._process = subprocess.Popen(
            [
                sys.executable, str(dies_with_us), str(os.getpid()),
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stderr is not None
        self._said = b""
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stderr, selectors.EVENT_READ)
        self._address = self._until_it_is_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)
        self._selector.close()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def _listen(self, timeout_s: float) -> None:
        """Take in what it logs, or let that time pass."""
        for key, _ in self._selector.select(timeout_s):
            self._said += os.read(key.fd, 1 << 16)

    def _until_it_is_ready(self) -> str:
        deadline_s = time.monotonic() + PATIENCE_S
        while (found := _READY.search(self._said)) is None:
            self._listen(0.5)
            assert self._process.poll() is None, self._said.decode()
            assert time.monotonic() < deadline_s, self._said.decode()
        return found[1].decode()

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API."""
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(
            f"http://{self._address}/api/v1/{path}?{query}", timeout=60
        ) as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def query(self, expression: str) -> list[float]:
        """Return the values that an expression has now, those that are no number left out."""
        data = self.ask("query", query=expression)
        assert data["resultType"] == "vector", expression
        values = [float(each["value"][1]) for each in data["result"]]
        return [value for value in values if math.isfinite(value)]

    def until_data(self, expression: str) -> None:
        """Wait until an expression has a value; fail where it has none in time."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not self.query(expression):
            assert time.monotonic() < deadline_s, f"no data: {expression}"
            self._listen(0.2)
