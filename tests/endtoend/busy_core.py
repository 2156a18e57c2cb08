"""A core that something else keeps busy, and daemons that must share it: a slower machine."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_SPIN = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@contextlib.contextmanager
def busy_core(spinners: int = 1) -> Iterator[int]:
    """Keep one core busy with endless loops; yield its number."""
    core = max(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        for _ in range(spinners):
            spinning = subprocess.Popen([sys.executable, "-c", _SPIN, str(core)])
            stack.callback(spinning.wait)
            stack.callback(spinning.kill)
        yield core


def confine(pid: int, core: int) -> None:
    """Let all threads of a process, and those that they start, run on one core alone."""
    tasks = Path(f"/proc/{pid}/task")
    confined: set[str] = set()
    while fresh := {task.name for task in tasks.iterdir()} - confined:
        for task in fresh:
            with contextlib.suppress(ProcessLookupError):  # a thread that has ended meanwhile
                os.sched_setaffinity(int(task), {core})
        confined |= fresh
