"""Everything the HTTP side answers from, in one frozen value that the daemon fills.

A room that the settings turn off is None, and its routes say which setting turns it on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from consumers.config.settings import Settings
from consumers.monitoring.health import Health
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.status import Status
from streamnb import Predictor

if TYPE_CHECKING:
    from consumers.corrections import CorrectionService
    from consumers.monitoring.quality import Quality
    from consumers.search import RecentStore
    from consumers.search.live_updater import LiveUpdater


@dataclass(frozen=True, slots=True)
class AppState:
    """What the application answers from; every method of theirs may be called from any thread.

    Attributes
    ----------
    settings : Settings
    registry : CollectorRegistry
        The metrics to show.
    metrics : Metrics
        Where requests are counted.
    health : Health
        The watch over the consuming thread.
    predictor : Predictor
        Answers from the current snapshot.
    status : callable
        The run as it was reported last.
    quality : Quality
        How well the model does, over time.
    recent : RecentStore or None
        The store of recent messages.
    correction_service : CorrectionService or None
        Where labels and deletions are handed in.
    live_updater : LiveUpdater or None
        The live queries of open pages.
    """

    settings: Settings
    registry: CollectorRegistry
    metrics: Metrics
    health: Health
    predictor: Predictor
    status: Callable[[], Status]
    quality: Quality
    recent: RecentStore | None = None
    correction_service: CorrectionService | None = None
    live_updater: LiveUpdater | None = None
