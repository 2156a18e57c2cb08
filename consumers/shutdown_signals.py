"""SIGTERM and SIGINT as an event that ends the loop in its order.

A handler runs between any two steps of the main thread, maybe while that thread holds the event's
own lock; setting the event there could wait for ever. So the handler only puts the signal's number
into a queue that is made for handlers, and a small thread does the rest.
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
    """Set `stop` at SIGTERM or SIGINT; only the main thread can be told, others change nothing.

    Parameters
    ----------
    stop : threading.Event
        What the loop looks at.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers: queue.SimpleQueue[int | None] = queue.SimpleQueue()

    def heed() -> None:
        for number in iter(numbers.get, None):
            stop.set()  # first: it must not depend on a log that can be written
            log.info("stopping", signal=signal.Signals(number).name)

    thread = threading.Thread(target=heed, name="signals", daemon=True)
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
