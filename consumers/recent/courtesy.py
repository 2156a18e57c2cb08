"""Long work in Python that lets other threads go first.

A thread that works in Python holds the interpreter's lock until another has asked for it in vain
for a while (`daemon.SWITCH_INTERVAL_S`). The learning thread asks for it after each kernel: behind
long loops it would wait that while again and again, and lose far more time than the loops take.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
_STEP = 8  # rows: about 100 µs


def courteous(items: Iterable[T]) -> Iterator[T]:
    """Yield items, and offer the interpreter's lock to whoever waits for it after every few.

    Examples
    --------
    >>> sum(courteous(range(100)))
    4950
    """
    for i, item in enumerate(items):
        if i % _STEP == _STEP - 1:
            time.sleep(0)
        yield item
