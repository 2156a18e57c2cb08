"""SIGTERM and SIGINT as an event that ends the loop in order.

A signal handler runs between any two steps of the main thread, perhaps while that thread holds the
event's lock; setting the event there could deadlock. So the handler only puts the signal's number
into a reentrant queue, and a thread sets the event.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Iterator

import structlog

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at SIGTERM or SIGINT; does nothing outside the main thread.

    Parameters
    ----------
    stop : threading.Event
        Ends the loop.
    """
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
