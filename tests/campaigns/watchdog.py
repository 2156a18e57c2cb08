"""What ends a campaign that hangs, whatever holds the interpreter's lock, or that grows."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from consumers.process import return_freed_memory
from tests.campaigns.campaign import Run

HANG_S = 300.0  # a step takes a second; a machine with a hundred others on it, a minute or two
GROWTH_MB_MAX = 64  # of resident memory after the first tenth
# It ends the process that started it, unless a line or the end of its input comes in time.
_WATCHDOG = """
import os, select, signal, sys
last, parent = "nothing", os.getppid()
while select.select([0], [], [], float(sys.argv[1]))[0]:
    said = os.read(0, 1 << 16)
    if not said:
        sys.exit()
    last = said.decode().splitlines()[-1]
os.write(2, f"it hangs, for more than {sys.argv[1]} s; replay: {last}\\n".encode())
os.kill(parent, signal.SIGABRT)
"""


@contextlib.contextmanager
def watchdog(hang_s: float = HANG_S) -> Iterator[Callable[[str], None]]:
    """End this process with its tracebacks if no line comes for so long; yield what takes lines.

    It is a process of its own: compiled code may hang with the interpreter's lock or without it.
    """
    was_enabled = faulthandler.is_enabled()
    command = [sys.executable, "-c", _WATCHDOG, str(hang_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as watching:
        assert watching.stdin is not None
        fd = watching.stdin.fileno()
        faulthandler.enable()
        try:
            yield lambda line: _write(fd, line)
        finally:
            watching.stdin.close()
            if not was_enabled:
                faulthandler.disable()


def _write(fd: int, line: str) -> None:
    os.write(fd, f"{line}\n".encode())


def resident_mb() -> float:
    """Return the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def watched_steps(run: Run) -> Iterator[tuple[random.Random, Path]]:
    """Yield a run's steps; end the process if one hangs, and fail if it holds ever more memory.

    What it holds after the first tenth is compared with what it holds in the end.
    """
    first_mb = _held_mb()
    with watchdog() as say:
        for i, step in enumerate(run.steps()):
            say(run.replay)
            yield step
            if i == run.n // 10:
                first_mb = _held_mb()
    growth_mb = max(0, round(_held_mb() - first_mb))
    run.figures["MB of growth"] = growth_mb
    assert growth_mb <= GROWTH_MB_MAX, (
        f"it holds {growth_mb} MB more than after its first tenth; one step alone "
        f"does not show it, all of them do: --first {run.first} --n {run.n}"
    )


def _held_mb() -> float:
    """Return the resident memory of this process without garbage, and without what was freed."""
    gc.collect()
    return_freed_memory()
    return resident_mb()
