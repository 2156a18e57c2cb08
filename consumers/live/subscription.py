"""What one open page is owed: the latest of each thing, never a queue.

The hub's thread puts, the page's connection takes. A page that takes slowly finds the newest state
of each of its queries, and nothing of what came in between.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

CHANGES_MAX = 256  # kept for a page that does not take; the lists of messages say the same


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event, with its JSON ready.

    Attributes
    ----------
    name : str
        "summary", "messages", "status", "change" or "problem".
    index : int or None
        Which of the page's queries it is about.
    body : bytes
        A JSON object, shared by all pages that are told the same.
    """

    name: str
    index: int | None
    body: bytes

    def frame(self, number: int) -> bytes:
        r"""Return the event as the stream has it.

        Parameters
        ----------
        number : int
            Its `id`. A reader that comes back with it is told everything anew all the same.

        Examples
        --------
        >>> Event("summary", 2, b'{"n":5}').frame(7)
        b'event: summary\nid: 7\ndata: {"index":2,"n":5}\n\n'
        """
        body = self.body if self.index is None else b'{"index":%d,' % self.index + self.body[1:]
        return b"event: %s\nid: %d\ndata: %s\n\n" % (self.name.encode(), number, body)


class Subscription:
    """The mail of one page.

    Parameters
    ----------
    wake : callable
        Called, from any thread, when there is mail or the end; once until it is taken.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._woken = False
        self._ended = False
        self._n_taken = 0
        self._latest: dict[tuple[str, int | None], Event] = {}
        self._changes: deque[Event] = deque(maxlen=CHANGES_MAX)

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more."""
        return self._ended

    def put(self, events: Sequence[Event]) -> None:
        """Leave events; one of the same name and index that was not taken yet is forgotten."""
        with self._lock:
            for event in events:
                if event.name == "change":
                    self._changes.append(event)
                else:
                    self._latest[event.name, event.index] = event
        self._ring()

    def end(self) -> None:
        """Say that nothing will come any more."""
        self._ended = True
        self._ring()

    def take(self) -> bytes:
        """Return all that has been left, as the stream has it; empty where there is nothing."""
        with self._lock:
            self._woken = False
            # Changes first: the lists behind them show them already.
            events = [*self._changes, *self._latest.values()]
            self._changes.clear()
            self._latest.clear()
        self._n_taken += 1
        return b"".join(event.frame(self._n_taken) for event in events)

    def _ring(self) -> None:
        with self._lock:
            if self._woken:
                return
            self._woken = True
        self._wake()
