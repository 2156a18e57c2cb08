"""Processes that are told to stand still, and do before anything else happens."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_STOP_TIMEOUT_S = 60.0
_STOPPED = "T"


def stop(pid: int) -> None:
    """Stop a process by SIGSTOP; return once all of its threads stand.

    The kernel stops a thread when it comes to it, not when it is told to: on a busy machine a
    process may answer once more.
    """
    os.kill(pid, signal.SIGSTOP)
    until_s = time.monotonic() + _STOP_TIMEOUT_S
    while not _stands(pid):
        assert time.monotonic() < until_s, f"process {pid} does not stop"
        os.sched_yield()


def _stands(pid: int) -> bool:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    try:
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
    except (FileNotFoundError, ProcessLookupError):  # a thread has ended meanwhile
        return False
    return set(states) == {_STOPPED}
