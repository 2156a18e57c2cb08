"""How what is known is put into words: the hub leaves the JSON to whoever serves pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from consumers.recent import Change, Counted, FoundRow, Query, RecentState


class Teller(Protocol):
    """Makes JSON objects; called on the hub's thread, once for all pages that are told the same."""

    def summary(
        self, query: Query, lang: str | None, counted: Counted, state: RecentState
    ) -> bytes:
        """Return the figures of a query."""
        ...

    def messages(self, found: Sequence[FoundRow]) -> bytes:
        """Return messages, newest first, as they are given."""
        ...

    def status(self) -> bytes:
        """Return how the daemon fares."""
        ...

    def change(self, change: Change) -> bytes:
        """Return what happened to one message."""
        ...

    def problem(self, detail: str) -> bytes:
        """Return why a query cannot be answered."""
        ...
