"""The board: the one place where the learning thread and the reading threads meet.

Publishing is one reference store of a sealed value, and reading is one reference load; neither
waits for the other.
"""

from __future__ import annotations

import threading

from streamnb.errors import check_kind
from streamnb.snapshot import Snapshot


class SnapshotBoard:
    """Holds the newest snapshot.

    Examples
    --------
    >>> SnapshotBoard().current() is None
    True
    """

    def __init__(self) -> None:
        self._current: Snapshot | None = None
        self._posted = threading.Event()

    def publish(self, snapshot: Snapshot) -> None:
        """Put up a snapshot in place of the one before. Called by the learning thread alone."""
        check_kind("snapshot", snapshot, Snapshot)
        self._current = snapshot
        self._posted.set()

    def current(self) -> Snapshot | None:
        """Return the newest snapshot, None before the first."""
        return self._current

    def wait(self, timeout_s: float) -> Snapshot | None:
        """Wait for the first snapshot; return the newest, or None when none came in time."""
        self._posted.wait(timeout_s)
        return self._current
