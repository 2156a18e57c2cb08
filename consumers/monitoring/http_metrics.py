"""The metrics of the HTTP side. Their labels are its own routes, methods and statuses, no more."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

# From a health check to a client that is hardly willing to wait.
REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
OTHER = "other"  # stands for every path and method that is none of ours


class HttpMetrics:
    """Counts requests and connections.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "http_requests",
            "Requests answered.",
            ["route", "method", "status"],
            namespace="streamnb",
            registry=registry,
        )
        self._seconds = Histogram(
            "http_request_seconds",
            "Time from a request's head to the head of its answer.",
            ["route"],
            namespace="streamnb",
            registry=registry,
            buckets=REQUEST_BUCKETS_S,
        )
        self._connections = Gauge(
            "http_connections", "Open connections.", namespace="streamnb", registry=registry
        )
        self._rejected = Counter(
            "http_connections_rejected",
            "Connections turned away because there were http.connections_max.",
            namespace="streamnb",
            registry=registry,
        )
        # Asking for a child by its labels takes longer than counting does.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def count_request(self, route: str, method: str, status: int, seconds: float | None) -> None:
        """Count a request that was answered, or given up.

        Parameters
        ----------
        route : str
            A template of ours, such as ``/v1/messages/{id}``, or `OTHER`; never a path.
        method : str
        status : int
        seconds : float or None
            Until the answer began; None where nobody measured.
        """
        key = (route, method if method in METHODS else OTHER, status)
        found = self._children.get(key)
        if found is None:
            found = self._children[key] = (
                self._requests.labels(key[0], key[1], str(status)),
                self._seconds.labels(route),
            )
        found[0].inc()
        if seconds is not None:
            found[1].observe(seconds)

    def count_rejected(self) -> None:
        """Count a connection that was turned away."""
        self._rejected.inc()

    def watch_connections(self, size: Callable[[], int]) -> None:
        """Ask `size` for the number of open connections whenever it is scraped."""
        self._connections.set_function(size)
