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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.endtoend.busy_core import confine
from tests.endtoend.forked import ForkedProcess, can_fork
from tests.stopped import stop

PATIENCE_S = 120.0
_COMMAND_S = 5 * PATIENCE_S  # compiling all kernels on a busy machine takes longest
_POLL_S = 0.1  # an answer takes a daemon some milliseconds, which slow down what is waited for
ROOT = Path(__file__).parents[2]
STREAMNB = (sys.executable, "-m", "consumers")


class Daemon:
    """`streamnb run` with a configuration, or `serve`; its log lines are read as they come.

    Parameters
    ----------
    config : Path
        Its configuration, in whose folder it is started; `http.port` should be 0. If this is a
        folder, it is started there by its arguments alone.
    arguments : str
        More arguments of `streamnb run`.
    stdin : file, optional
        What it reads from standard input.
    umask : int
        The umask that it is started with; -1: ours.
    env : mapping of str to str, optional
        More variables of its environment.
    under : sequence of str
        The command that runs it, such as `nohup`, which must become it.
    name : str
        What it is told to do.

    """

    def __init__(
        self,
        config: Path,
        *arguments: str,
        stdin: IO[bytes] | None = None,
        umask: int = -1,
        env: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
        name: str = "run",
    ) -> None:
        self._lines: list[dict[str, Any]] = []
        json_ = ["--json"] if name == "run" else []
        configured = [] if config.is_dir() else ["--config", str(config)]
        self._process = _start(
            [name, *configured, *json_, *map(str, arguments)],
            stdin=stdin or subprocess.DEVNULL,
            cwd=config if config.is_dir() else config.parent,
            env=environment(**(env or {})),
            umask=umask,
            under=under,
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

    def listen(self, timeout_s: float) -> bool:
        """Read what came; return False once both streams have ended."""
        for key, _ in self._selector.select(timeout_s):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._process.stdout:
                self._output += data
            else:
                *lines, self._pending = (self._pending + data).split(b"\n")
                self._lines += [_parsed(line) for line in lines if line.strip()]
        return bool(self._selector.get_map())

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log so far, one entry a line."""
        self._read_what_came()
        return self._lines

    def _read_what_came(self) -> None:
        """Read all that it has written: a line comes before what it tells of shows elsewhere."""
        while self._selector.get_map() and self._selector.select(0):
            self.listen(0)

    def until_line(self, event: str) -> dict[str, Any]:
        """Wait for a log line of this event; return it."""
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            for line in self.lines:
                if line.get("event") == event:
                    return line
            assert self.listen(0.1), f"it ended without {event!r}: {self.lines[-5:]}"
            assert time.monotonic() < deadline_s, (
                f"no {event!r} within {PATIENCE_S} s: {self.lines[-5:]}"
            )

    def count(self, event: str) -> int:
        """Return how many log lines of this event came so far."""
        return sum(line.get("event") == event for line in self.lines)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fail where the daemon ends or patience does."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.listen(_POLL_S), f"it ended before {what}: {self.lines[-5:]}"
            assert time.monotonic() < deadline_s, (
                f"not within {PATIENCE_S} s: {what}: {self.lines[-5:]}"
            )

    def until_page(self, path: str, status: int, said: str = "") -> dict[str, Any]:
        """Wait until a page answers with this status and these words; return its JSON."""
        page: list[str] = []

        def answers() -> bool:
            found, body = self.get(path)
            page[:] = [body]
            return found == status and said in body

        self.until(answers, f"{path} is {status} {said!r}")
        body: dict[str, Any] = json.loads(page[0])
        return body

    def until_it_takes_corrections(self) -> None:
        """Wait until the log of corrections is read: who asks before is told to ask again."""

        def takes() -> bool:
            status, body = self.get("/v1/page")
            return status == 200 and json.loads(body)["corrections"]["reason"] is None

        self.until(takes, "corrections are taken")

    @property
    def address(self) -> str:
        """Where it serves, once it does."""
        return str(self.until_line("serving")["address"])

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body of one of its pages."""
        address = self.address
        try:
            with urllib.request.urlopen(f"{address}{path}", timeout=PATIENCE_S / 2) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except urllib.error.URLError as error:
            deadline_s = time.monotonic() + 10.0  # it says why it ends, if it does
            while self.listen(_POLL_S) and time.monotonic() < deadline_s:
                pass
            raise AssertionError(f"{path}: {error.reason}; it said: {self.lines[-5:]}") from error

    def metric(self, name: str) -> float:
        """Return the sum of a metric's samples."""
        lines = self.get("/metrics")[1].splitlines()
        samples = [line for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def until_metric(self, name: str, at_least: float) -> None:
        """Wait until a metric has come so far."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.metric(name) < at_least:
            assert self.listen(_POLL_S), f"it ended: {self.lines[-5:]}"
            assert time.monotonic() < deadline_s, (
                f"{name} stays below {at_least}: {self.lines[-5:]}"
            )

    def peak_bytes(self) -> int:
        """Return its highest resident memory since this was asked before."""
        process = Path(f"/proc/{self._process.pid}")
        status = (process / "status").read_text(encoding="utf-8")
        (process / "clear_refs").write_text("5", encoding="utf-8")  # begin again
        return 1024 * int(status.partition("VmHWM:")[2].split()[0])

    def processor_s(self) -> float:
        """Return the processor time that it has taken so far."""
        stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="utf-8")
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def confine(self, core: int) -> None:
        """Let it run on one core alone, from here on."""
        confine(self._process.pid, core)

    def stand_still(self) -> None:
        """Stop it by SIGSTOP until it is sent SIGCONT."""
        stop(self._process.pid)

    def close(self, stream: str) -> None:
        """Leave off reading its "stdout" or "stderr": who reads it has gone."""
        file = getattr(self._process, stream)
        self._selector.unregister(file)
        file.close()

    def kill(self) -> None:
        """End it as a crash would, with no chance to say a word."""
        self._process.kill()
        self._end()

    def stop(self, by: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to end, wait, and return its exit code."""
        self.send(by)
        return self.wait()

    def wait(self) -> int:
        """Wait until it ends by itself; return its exit code."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.listen(0.5):
            assert time.monotonic() < deadline_s, f"it does not end: {self.lines[-5:]}"
        return self._end()

    def _end(self) -> int:
        code = self._process.wait(PATIENCE_S)
        self._read_what_came()
        self._selector.close()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        return code

    @property
    def output(self) -> bytes:
        """All that it wrote to standard output."""
        return self._output

    @property
    def summary(self) -> dict[str, Any]:
        """The object that `--json` printed at the end."""
        summary: dict[str, Any] = json.loads(self._output)
        return summary


def environment(**more: str) -> dict[str, str]:
    """Return the environment in which our commands run."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


def command(
    *arguments: str | Path,
    folder: Path,
    stdin: bytes | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run `streamnb` as a user would type it, in a folder, to its end."""
    words, whole = [str(argument) for argument in arguments], environment(**(env or {}))
    if stdin is None and can_fork(whole):
        forked = ForkedProcess(words, stdin=subprocess.DEVNULL, cwd=folder, env=whole)
        out, err = forked.communicate(_COMMAND_S)
        return subprocess.CompletedProcess(words, forked.wait(_COMMAND_S), out, err)
    return subprocess.run(
        [*STREAMNB, *words],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        cwd=folder,
        env=whole,
        timeout=_COMMAND_S,
        check=False,
    )


def _start(
    arguments: Sequence[str],
    *,
    stdin: IO[bytes] | int,
    cwd: Path,
    env: Mapping[str, str],
    umask: int,
    under: Sequence[str],
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start `streamnb`, as a fork where nothing asks for an interpreter of its own."""
    if not under and can_fork(env):
        return ForkedProcess(arguments, stdin=stdin, cwd=cwd, env=env, umask=umask)
    return subprocess.Popen(
        [*under, *STREAMNB, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
        umask=umask,
    )


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
