"""What the quality room hands out: plain values, whole, that nobody changes any more.

Their fields are named as the API shows them. A figure that does not exist yet is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from consumers.monitoring.prequential import Bin


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """Of the newest examples: how many, and how well they were predicted before they were learned.

    `log_loss` is in nats; `calibration_error` is that of `monitoring.prequential`, from 0 to 1.
    """

    n: int = 0
    accuracy: float | None = None
    log_loss: float | None = None
    calibration_error: float | None = None


@dataclass(frozen=True, slots=True)
class PrequentialFigures:
    """The same since the beginning, and within the window."""

    n: int = 0
    accuracy: float | None = None
    log_loss: float | None = None
    window: WindowFigures = field(default_factory=WindowFigures)


@dataclass(frozen=True, slots=True)
class Confusion:
    """The window's confusion matrix: row the true class, column the predicted one."""

    classes: tuple[str, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """How things stood at one time.

    Attributes
    ----------
    time_ms : int
        Unix milliseconds.
    accuracy, log_loss, calibration_error : float or None
        Of the prequential window.
    rate_per_s : float
        Messages a second.
    lag : int or None
        Messages unread; None where nobody can know.
    """

    time_ms: int
    accuracy: float | None
    log_loss: float | None
    calibration_error: float | None
    rate_per_s: float
    lag: int | None


@dataclass(frozen=True, slots=True)
class Telling:
    """A feature that speaks for a class; `score` is what it adds to the log-odds, in nats."""

    feature: str
    score: float


@dataclass(frozen=True, slots=True)
class Trend:
    """A word whose use has changed.

    Attributes
    ----------
    word : str
    before, now : float
        How often it stood in an example on average, before the stretch looked at and in it.
    ratio : float
        The second to the first, smoothed: never 0 or infinite.
    """

    word: str
    before: float
    now: float
    ratio: float


@dataclass(frozen=True, slots=True)
class QualityReport:
    """All that the room knows at one moment.

    Attributes
    ----------
    prequential : PrequentialFigures
    confusion : Confusion
    calibration : tuple of Bin
        The calibration curve of the window, the lowest probabilities first.
    history : tuple of Point
        The oldest first.
    telling : mapping of str to tuple of Telling
        For each class the features that speak for it most, the strongest first.
    rising, falling : tuple of Trend
        Words used more and less than before, those that changed most surely first.
    trend_s : float or None
        How many seconds back the words are compared; None before there is anything to compare.
    """

    prequential: PrequentialFigures = field(default_factory=PrequentialFigures)
    confusion: Confusion = field(default_factory=Confusion)
    calibration: tuple[Bin, ...] = ()
    history: tuple[Point, ...] = ()
    telling: Mapping[str, tuple[Telling, ...]] = field(default_factory=dict)
    rising: tuple[Trend, ...] = ()
    falling: tuple[Trend, ...] = ()
    trend_s: float | None = None
