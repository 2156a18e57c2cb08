"""What the store tells between two ticks, until the hub takes it.

The store's thread puts, the hub's takes. It is bounded: what would be too much is dropped, and said
to have been, so that the store is asked instead.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

from consumers.live.standing import Arrived
from consumers.recent import Change, Row

ROWS_MAX = 50_000
CHANGES_MAX = 10_000


class Pending:
    """Rows that were stored, and what happened to others.

    Parameters
    ----------
    wanted : callable
        Whether anybody will take it; else nothing is kept.
    """

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self._wanted = wanted
        self._lock = threading.Lock()
        self._rows: list[Sequence[Row]] = []
        self._n_rows = 0
        self._changes: dict[str, Change] = {}
        self._last_key = -1
        self._has_gap = False

    def stored(self, rows: Sequence[Row]) -> None:
        """Note rows, ascending by key."""
        with self._lock:
            # Keys only grow, but where the store had to begin anew.
            self._has_gap |= rows[0].key <= self._last_key
            self._last_key = rows[-1].key
            if not self._wanted():
                return
            self._n_rows += len(rows)
            if self._has_gap or self._n_rows > ROWS_MAX:
                self._rows, self._n_rows, self._has_gap = [], 0, True
            else:
                self._rows.append(rows)

    def changed(self, changes: Sequence[Change]) -> None:
        """Note changes; the last one of a message is the one that counts."""
        with self._lock:
            if not self._wanted():
                return
            self._changes |= {change.id: change for change in changes}
            if len(self._changes) > CHANGES_MAX:
                self._changes, self._has_gap = {}, True

    def take(self) -> tuple[Arrived, bool]:
        """Return all of it, and whether something is missing."""
        with self._lock:
            rows, changes, has_gap = self._rows, self._changes, self._has_gap
            self._rows, self._n_rows, self._changes, self._has_gap = [], 0, {}, False
        return Arrived(list(itertools.chain.from_iterable(rows)), changes), has_gap
