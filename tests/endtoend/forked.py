"""Processes of `streamnb` by fork: one process has imported it, and each is forked from that.

Of a daemon that lives for a test, most processor time went into importing what it consists of, and
the tests start hundreds. Each is still a process of its own, with its own folder, environment,
streams and exit status, that comes to life with `python -m consumers`'s own first line; it is only
spared the imports, and the loading of the default model's kernels. What must have an interpreter of
its own is started as ever.

`python -m tests.endtoend.forked FD` is the process that is forked. It ends, and with it all forks,
when the other end of the socket FD is closed: no test run leaves a daemon behind.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None
_ROOT: Final = Path(__file__).parents[2]
_REQUEST_BYTES: Final = 1 << 17
_NUMBER: Final = struct.Struct("q")
# How the names of variables begin that are read at the start or while importing.
_READ_AT_START: Final = (
    "PYTHON",
    "NUMBA_",
    "STREAMNB_CACHE",
    "LD_",
    "MALLOC_",
    "OPENBLAS_",
    "OMP_",
)
# What `run` and its page import by and by.
_IMPORTED: Final = (
    "consumers.cli.commands",
    "consumers.cli.output",
    "consumers.daemon",
    "consumers.http.app",
    "consumers.http.connection",
    "consumers.kafka.kafka_python",
    "numpy.ma",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.server",
    "uvloop",
)


class ForkedProcess:
    """A process that was forked for its arguments; used as a `subprocess.Popen` is.

    Parameters
    ----------
    arguments : sequence of str
        Of `streamnb`.
    stdin : file or int
        What it reads from standard input.
    cwd : Path
        The folder in which it runs.
    env : mapping of str to str
        Its environment, whole.
    umask : int
        Its umask; -1: ours.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        stdin: IO[bytes] | int,
        cwd: Path,
        env: Mapping[str, str],
        umask: int = -1,
    ) -> None:
        self.returncode: int | None = None
        out, its_out = os.pipe()
        err, its_err = os.pipe()
        self._status, its_status = os.pipe()  # its process id; once it has ended, its exit code
        request = {"arguments": arguments, "cwd": str(cwd), "env": dict(env), "umask": umask}
        with contextlib.ExitStack() as opened:
            for fd in (its_out, its_err, its_status):
                opened.callback(os.close, fd)
            if stdin == subprocess.DEVNULL:
                stdin = opened.enter_context(Path(os.devnull).open("rb"))
            source = stdin if isinstance(stdin, int) else stdin.fileno()
            fds = [source, its_out, its_err, its_status]
            socket.send_fds(_template(), [json.dumps(request).encode()], fds)
        self.pid = self._said()
        self.stdout: IO[bytes] | None = open(out, "rb", buffering=0)  # noqa: SIM115, PTH123 -- as `Popen`
        self.stderr: IO[bytes] | None = open(err, "rb", buffering=0)  # noqa: SIM115, PTH123 -- as `Popen`

    def poll(self) -> int | None:
        """Return its exit code as `Popen` does, None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float) -> int:
        """Wait until it has ended; return its exit code."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("streamnb", timeout)
        return code

    def communicate(self, timeout: float) -> tuple[bytes, bytes]:
        """Read both streams to their ends; return them."""
        read: dict[IO[bytes] | None, bytes] = {self.stdout: b"", self.stderr: b""}
        open_now = [stream for stream in read if stream is not None]
        until_s = time.monotonic() + timeout
        while open_now:
            ready = select.select(open_now, [], [], max(0.0, until_s - time.monotonic()))[0]
            if not ready:
                self.kill()
                raise subprocess.TimeoutExpired("streamnb", timeout)
            for stream in ready:
                data = stream.read(1 << 16)
                read[stream] += data
                if not data:
                    open_now.remove(stream)
                    stream.close()
        return read[self.stdout], read[self.stderr]

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout_s: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout_s)[0]:
            self.returncode = self._said()
            os.close(self._status)
        return self.returncode

    def _said(self) -> int:
        data = os.read(self._status, _NUMBER.size)
        assert data, "the process that is forked has ended"
        number: int = _NUMBER.unpack(data)[0]
        return number


def can_fork(env: Mapping[str, str]) -> bool:
    """Return whether imports in an environment would be those of the process that is forked."""
    return _read_at_start(env) == _read_at_start({**os.environ, "PYTHONPATH": str(_ROOT)})


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_READ_AT_START)}


@cache
def _template() -> socket.socket:
    """Start the process that is forked; return the socket that asks it to."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(its.fileno())],
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )
    atexit.register(_end, ours, process)
    return ours


def _end(ours: socket.socket, process: subprocess.Popen[bytes]) -> None:
    ours.close()
    process.wait()


def _serve(asked: socket.socket, interrupt: _Handler) -> list[str] | None:
    """Fork as often as asked; return in each fork its arguments, and None in the end.

    Each fork is interrupted as `interrupt` says.
    """
    told, tell = os.pipe()
    os.set_blocking(told, False)
    os.set_blocking(tell, False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    running: dict[int, int] = {}  # where the status of each goes
    while True:
        if asked.fileno() in select.select([asked.fileno(), told], [], [])[0]:
            data, fds, _, _ = socket.recv_fds(asked, _REQUEST_BYTES, 4)
            if not data:
                for pid in running:
                    os.kill(pid, signal.SIGKILL)
                return None
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, interrupt)
                for fd in (told, tell, asked.detach(), *running.values()):
                    os.close(fd)
                return _become(json.loads(data), fds)
            running[pid] = fds.pop()
            os.write(running[pid], _NUMBER.pack(pid))
            for fd in fds:
                os.close(fd)
        with contextlib.suppress(BlockingIOError):
            os.read(told, 4096)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with contextlib.suppress(BrokenPipeError):  # nobody asks any more
                    os.write(running[pid], _NUMBER.pack(os.waitstatus_to_exitcode(status)))
                os.close(running.pop(pid))


def _become(request: Mapping[str, Any], fds: Sequence[int]) -> list[str]:
    """Let the process, a fork, be what was asked for; return its arguments."""
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        os.close(fd)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["umask"] >= 0:
        os.umask(request["umask"])
    arguments: list[str] = request["arguments"]
    return arguments


def _load_kernels() -> None:
    """Load the machine code of the default model, if it was kept: a quarter of a second a fork.

    What is not kept is left to the fork whose test is about compiling.
    """
    from consumers.config.settings import Settings  # noqa: PLC0415 -- after `_main`'s first line
    from consumers.process import left_out  # noqa: PLC0415
    from consumers.warm_up import needed  # noqa: PLC0415

    with left_out("scipy.linalg"):  # as where the daemon loads them
        for kernel in needed(Settings()):
            if kernel.is_kept:
                kernel.compile()


def _main() -> None:
    # A terminal sends Ctrl-C to all that came of what it runs. Whoever asks us for processes needs
    # us to end them.
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.modules.setdefault("coverage", None)  # type: ignore[arg-type]  # as `consumers.__main__` does
    for name in _IMPORTED:
        importlib.import_module(name)
    _load_kernels()
    gc.freeze()  # a collection in a fork need not write to, and so copy, what all share
    arguments = _serve(socket.socket(fileno=int(sys.argv[1])), interrupt)
    if arguments is not None:
        sys.argv[1:] = arguments
        runpy.run_module("consumers", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
