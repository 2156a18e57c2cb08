"""What a run changes of its process: signals, pauses of the interpreter, unused imports.

A signal handler runs between any two steps of the main thread, perhaps while that thread holds the
event's lock; setting the event there could deadlock. So the handler only puts the signal's number
into a reentrant queue, and a thread sets the event.
"""

from __future__ import annotations

import contextlib
import gc
import queue
import signal
import sys
import threading
from collections.abc import Iterator

import structlog

# How long a thread may hold the interpreter's lock while others wait for it. A single prediction
# takes the lock about ten times (on its way to the predictor's thread and back, and after each
# kernel); with Python's default of 5 ms, one busy thread could delay it by 50 ms. With 0.5 ms that
# is 5 ms at worst, at no measurable cost in throughput; less than 0.5 ms gained nothing.
SWITCH_INTERVAL_S = 0.0005
log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at SIGTERM or SIGINT; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def handle() -> None:
        for number in iter(numbers.get, None):
            stop.set()  # first: it must not depend on a writable log
            log.info("stopping", signal=signal.Signals(number).name)

    thread = threading.Thread(target=handle, name="signals", daemon=True)
    thread.start()
    before = {
        number: signal.signal(number, lambda number, _frame: numbers.put(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        numbers.put(None)
        thread.join()


@contextlib.contextmanager
def short_pauses() -> Iterator[None]:
    """Let no thread, and no garbage collection, hold the others up for long."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Imported modules stay, so garbage collections skip them: with the compiler among them, a full
    # collection takes 100 ms, during which no request is answered.
    gc.freeze()
    gc.enable()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before_s)


@contextlib.contextmanager
def left_out(*modules: str) -> Iterator[None]:
    """Let imports in this block not find modules by full name, unless they are imported already."""
    hidden = [name for name in modules if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
