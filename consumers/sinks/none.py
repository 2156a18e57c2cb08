"""The sink that keeps nothing, for what nobody wants to have."""

from __future__ import annotations

from collections.abc import Sequence

from consumers.sinks.base import Record


class NoSink:
    """Takes records and forgets them, so that nobody has to ask whether there is a sink."""

    def add(self, records: Sequence[Record]) -> None:
        """Forget the records."""

    def flush(self, timeout_s: float) -> None:
        """Do nothing: what was to be kept is kept."""

    def close(self) -> None:
        """Do nothing."""
