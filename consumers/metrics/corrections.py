"""The metrics of corrections: what became of those that were read from their log."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

KINDS = ("label", "delete", "refused", "skipped")


class CorrectionMetrics:
    """Counts corrections.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._corrections = Counter(
            "corrections",
            "Corrections read from their log, by what became of them.",
            ["kind"],
            namespace="streamnb",
            registry=registry,
        )
        self._waiting = Gauge(
            "corrections_waiting",
            "Corrections read and not applied yet.",
            namespace="streamnb",
            registry=registry,
        )
        for kind in KINDS:
            self._corrections.labels(kind)

    def count(self, kind: str) -> None:
        """Count a correction by what became of it, one of `KINDS`."""
        self._corrections.labels(kind).inc()

    def watch(self, n_waiting: Callable[[], int]) -> None:
        """Ask `n_waiting` how many wait whenever it is scraped."""
        self._waiting.set_function(n_waiting)
