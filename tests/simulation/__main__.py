"""`python -m tests.simulation`: runs the real daemon on a simulated log, clock, disk and scheduler.

The primitives of threads and time are replaced before anything of the daemon is imported, and texts
are hashed as in every other run; else the same seed would not take the same steps.
"""

from __future__ import annotations

import concurrent.futures.thread
import importlib
import logging
import os
import sys

from tests.simulation import scheduler

# These make locks of their own while they are imported, and no simulated thread waits in them.
_BEFORE = ("numba", "prometheus_client", "pydantic", "structlog")


def main() -> int:
    """Run what the command line says."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        again = [sys.executable, "-m", "tests.simulation", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})
    for name in _BEFORE:
        importlib.import_module(name)
    scheduler.install()
    setattr(concurrent.futures.thread, "_global_shutdown_lock", scheduler.Lock())  # noqa: B010 -- it is private
    logging.getLogger("concurrent.futures").setLevel(
        logging.CRITICAL + 1
    )  # threads that are killed
    command = importlib.import_module("tests.simulation.command")
    status: int = command.main(sys.argv[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
