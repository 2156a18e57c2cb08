"""The daemon as a process of its own, started and killed by tests as an operator would."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

PATIENCE_S = 120.0


class Daemon:
    """`streamnb run` with a configuration; its log lines are read as they come.

    Parameters
    ----------
    config : Path
        Its configuration; `http.port` should be 0.
    arguments : str
        More arguments of `streamnb run`.
    stdin : file, optional
        What it reads from standard input.
    """

    def __init__(self, config: Path, *arguments: str, stdin: IO[bytes] | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "consumers", "run", "--config", config, "--json", *arguments],
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=config.parent,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
        assert self._process.stderr is not None
        assert self._process.stdout is not None
        os.set_blocking(self._process.stderr.fileno(), False)
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stderr, selectors.EVENT_READ)
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._pending = b""
        self._output = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def _listen(self, timeout_s: float) -> bool:
        """Read what came; return False once both streams have ended."""
        for key, _ in self._selector.select(timeout_s):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._process.stdout:
                self._output += data
            else:
                *lines, self._pending = (self._pending + data).split(b"\n")
                self.lines += [_parsed(line) for line in lines if line.strip()]
        return bool(self._selector.get_map())

    def until_line(self, event: str) -> dict[str, Any]:
        """Wait for a log line of this event; return it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            for line in self.lines:
                if line.get("event") == event:
                    return line
            assert self._listen(0.1), f"it ended without {event!r}: {self.lines[-5:]}"
            assert time.monotonic() < deadline_s, f"no {event!r} within {PATIENCE_S} s: {self.lines[-5:]}"

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of one of its pages."""
        address = self.until_line("serving")["address"]
        try:
            with urllib.request.urlopen(f"{address}{path}", timeout=10) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        """Return the sum of a metric's samples."""
        lines = self.get("/metrics")[1].splitlines()
        samples = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def until_metric(self, name: str, at_least: float) -> None:
        """Wait until a metric has come so far."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.metric(name) < at_least:
            assert self._listen(0.01), f"it ended: {self.lines[-5:]}"
            assert time.monotonic() < deadline_s, f"{name} stays below {at_least}: {self.lines[-5:]}"

    def kill(self) -> None:
        """End it as a crash would, with no chance to say a word."""
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """Ask it to end, wait, and return its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self._listen(0.5):
            assert time.monotonic() < deadline_s, f"it does not end: {self.lines[-5:]}"
        return self._end()

    def _end(self) -> int:
        code = self._process.wait(PATIENCE_S)
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return code

    @property
    def summary(self) -> dict[str, Any]:
        """The object that `--json` printed at the end."""
        summary: dict[str, Any] = json.loads(self._output)
        return summary


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(line)
    except ValueError:
        parsed = {"event": None, "text": line.decode(errors="replace")}
    return parsed if isinstance(parsed, dict) else {"event": None, "text": parsed}


def write_config(path: Path, **sections: object) -> Path:
    """Write a configuration of the given sections; JSON is YAML."""
    everything = {"http": {"port": 0}, "view": "log", **sections}
    path.write_text(json.dumps(everything), encoding="utf-8")
    return path
