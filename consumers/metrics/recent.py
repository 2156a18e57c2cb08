"""The metrics of the store of recent messages, taken from its state whenever somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

# What a metric is called, the field of `consumers.recent.rows.RecentState` that it shows, and what
# it means. The room lies above this one, so its state is known by its fields alone; a test holds
# the two together.
GAUGES = (
    ("messages", "n_messages", "Messages held to be searched."),
    ("limit_messages", "messages_max", "How many may be held (recent.messages_max)."),
    ("share_ratio", "share", "Share of the messages that came which is held."),
    ("bytes", "n_bytes", "Size of the file of recent messages."),
)
COUNTERS = (
    ("offered", "n_offered", "Messages that came."),
    ("stored", "n_stored", "Messages that were stored, so that they can be searched."),
    ("overflowed", "n_overflowed", "Messages left out because too many waited to be stored."),
    ("failed", "n_failed", "Messages that could not be written."),
    ("restarts", "n_restarts", "Times the store began again after an unforeseen error."),
)


class RecentMetrics(Collector):
    """Shows the store, once there is one to watch; until then nothing is held and nothing fails.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._state: Callable[[], Any] | None = None
        registry.register(self)

    def watch(self, state: Callable[[], Any]) -> None:
        """Ask `state`, which returns a `RecentState`, whenever it is scraped."""
        self._state = state

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield what the store holds, and what became of the messages that it was offered."""
        state = None if self._state is None else self._state()
        for name, field, text in GAUGES:
            value = 0 if state is None else getattr(state, field)
            yield GaugeMetricFamily(f"streamnb_recent_{name}", text, value=value)
        yield GaugeMetricFamily(
            "streamnb_recent_up",
            "0 while the store cannot write; health says why.",
            value=state is None or state.trouble is None,
        )
        for name, field, text in COUNTERS:
            value = 0 if state is None else getattr(state, field)
            yield CounterMetricFamily(f"streamnb_recent_{name}", text, value=value)
