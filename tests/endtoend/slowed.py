"""`streamnb` with a learner that takes ten times as long: `python -m tests.endtoend.slowed`.

How many times is a variable, SLOWED_TIMES.

Behind it stands the command that it runs in its own process: `python -m consumers …`. Its memory
for deletes seals a segment after a thousand messages, so it is full within seconds.
"""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time
from typing import Any

from consumers.pipeline import learned_memory
from streamnb import Learner

TIMES = float(os.environ.get("SLOWED_TIMES", "10"))
SEGMENT_RECORDS = 1_000


def main() -> None:
    """Slow the learner down, and become the command that is given."""
    learned_memory.SEGMENT_RECORDS = SEGMENT_RECORDS
    learn, never = Learner.learn, threading.Event()

    def slowed(self: Learner, *given: Any, **more: Any) -> Any:
        begun_s = time.thread_time()
        found = learn(self, *given, **more)
        never.wait((TIMES - 1) * (time.thread_time() - begun_s))  # other threads run meanwhile
        return found

    Learner.learn = slowed  # type: ignore[method-assign]
    _, _, module, *sys.argv[1:] = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
