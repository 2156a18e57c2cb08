"""The metrics of open pages: how many there are, and how many different queries they watch."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge


class LiveMetrics:
    """Shows what the hub of standing queries says; 0 as long as there is none.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pages = Gauge(
            "pages_open",
            "Pages that are told what changes.",
            namespace="streamnb",
            registry=registry,
        )
        self._queries = Gauge(
            "standing_queries",
            "Different queries that open pages watch.",
            namespace="streamnb",
            registry=registry,
        )

    def watch(self, n_pages: Callable[[], int], n_queries: Callable[[], int]) -> None:
        """Ask these whenever it is scraped."""
        self._pages.set_function(n_pages)
        self._queries.set_function(n_queries)
