"""The protocol of views."""

from __future__ import annotations

from typing import Protocol

from consumers.status import Status


class View(Protocol):
    """Shows how the daemon fares. All methods are called by one thread."""

    def start(self) -> None:
        """Begin to show."""

    def update(self, status: Status) -> None:
        """Take the newest status. Cheap: it may be called many times a second."""

    def stop(self) -> None:
        """Give the screen back. May be called without a start, and twice."""
