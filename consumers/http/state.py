"""Everything the HTTP side answers from, in one frozen value that the daemon fills.

A component that the settings turn off is None, and its routes say which setting turns it on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from consumers.config.settings import Settings
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.quality import Shares
from consumers.monitoring.status import Status
from streamnb import Predictor

if TYPE_CHECKING:
    from consumers.corrections import CorrectionService
    from consumers.search import RecentStore
    from consumers.search.live_updater import LiveUpdater


@dataclass(frozen=True, slots=True)
class AppState:
    """What the application answers from; all of it may be called from any thread."""

    settings: Settings
    registry: CollectorRegistry  # of `/metrics`
    metrics: Metrics  # where requests are counted
    predictor: Predictor
    status: Callable[[], Status]  # the daemon as it is now
    shares: Callable[[], Shares]  # with the newest error rates
    recent: RecentStore | None = None
    correction_service: CorrectionService | None = None
    live_updater: LiveUpdater | None = None
