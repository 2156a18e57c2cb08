"""The model's quality over time: figures, confusion, calibration, history, features and trends.

`Quality` gathers them within a bounded share of the reporter thread's time and hands out a frozen
`QualityReport`. A figure that does not exist yet is None.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from consumers.monitoring.prequential import Bin, Prequential, calibration_error
from consumers.monitoring.shares import ShareReport, Shares
from consumers.monitoring.status import Status
from consumers.monitoring.trends import Trend, Trends
from streamnb import Snapshot


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
class QualityReport:
    """What is known of the model's quality at one moment; fields are named as in the API.

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


PAUSE_MAX = 20  # intervals


class Budget:
    """Spaces out a task so that it takes a bounded share of one thread's time.

    Parameters
    ----------
    interval_s : float
        The least time from one turn's beginning to the next.
    share_max : float
        Of the time, from 0 to 1: after a turn that cost t, the next is t/share_max later, but
        never later than `PAUSE_MAX` intervals.
    """

    def __init__(self, interval_s: float, share_max: float) -> None:
        self._interval_s = interval_s
        self._share_max = share_max
        self._due_at_s: float | None = None
        self._took_s = 0.0  # the turn before

    def is_due(self, now_s: float) -> bool:
        """Return whether the next turn may begin."""
        return self._due_at_s is None or now_s >= self._due_at_s

    def spent(self, began_s: float, ended_s: float) -> None:
        """Take note of a turn, by the same clock that `is_due` is asked with.

        A turn costs what the quicker of the last two took: the other may have paid what is paid
        once, such as imports, or have waited for the interpreter.
        """
        took_s = ended_s - began_s
        costs_s, self._took_s = min(took_s, self._took_s), took_s
        pause_s = min(costs_s / self._share_max, PAUSE_MAX * self._interval_s)
        self._due_at_s = began_s + max(self._interval_s, pause_s)


STEP_S = 10.0
POINTS_MAX = 360  # an hour of steps; then ever longer steps, and never fewer than half as many


class History:
    """Points at equal steps from the beginning of the run until now.

    Parameters
    ----------
    step_s : float
        Seconds between two points at first; it doubles each time the points become too many.
    points_max : int
        Even, and at least 2: of an even number every second one can go and the steps stay even.
    """

    def __init__(self, step_s: float = STEP_S, points_max: int = POINTS_MAX) -> None:
        self._step_s = step_s
        self._points_max = points_max
        self._due_at_s: float | None = None
        self._points: list[Point] = []

    @property
    def step_s(self) -> float:
        """Seconds between two points now."""
        return self._step_s

    def is_due(self, now_s: float) -> bool:
        """Return whether a step has passed since the last point."""
        return self._due_at_s is None or now_s >= self._due_at_s

    def note(self, now_s: float, point: Point) -> None:
        """Add a point.

        Parameters
        ----------
        now_s : float
            Monotonic seconds.
        point : Point
        """
        if len(self._points) == self._points_max:
            self._points = self._points[::2]
            self._step_s *= 2.0
        self._points.append(point)
        self._due_at_s = now_s + self._step_s

    def points(self) -> tuple[Point, ...]:
        """Return the points, the oldest first."""
        return tuple(self._points)


WINDOW_INTERVAL_S = 1.0
TRENDS_INTERVAL_S = 10.0
SHARE_MAX = 0.01  # of the time, for the window and for the words each


class Quality:
    """Measures how good the model is, for people who must decide whether to trust it.

    Parameters
    ----------
    classes : sequence of str
        The configured classes.
    prequential : Prequential
        Written by the consuming thread; only read here.
    messages_min : int
        Below so many messages no share is said (`page.share_messages_min`).
    clock : callable
        Monotonic seconds.
    time_ms : callable
        Unix milliseconds, for the history's points.
    """

    def __init__(
        self,
        classes: Sequence[str],
        prequential: Prequential,
        messages_min: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        time_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._classes = tuple(classes)
        self._prequential = prequential
        self._messages_min = messages_min
        self._clock = clock
        self._time_ms = time_ms
        self._window_budget = Budget(WINDOW_INTERVAL_S, SHARE_MAX)
        self._words_budget = Budget(TRENDS_INTERVAL_S, SHARE_MAX)
        self._history = History()
        self._trends = Trends()
        self._telling: dict[str, tuple[Telling, ...]] = {}
        self._confusion = Confusion()
        self._calibration: tuple[Bin, ...] = ()
        self._calibration_error: float | None = None
        self._shares = Shares.unknown(self._classes, messages_min)
        self._stream_shares: ShareReport | None = None
        self._report = QualityReport()

    def report(self) -> QualityReport:
        """Return the newest report; any thread may ask."""
        return self._report

    def shares(self) -> Shares:
        """Return the shares' corrector with the newest error rates; any thread may ask."""
        return self._shares

    def stream_shares(self) -> ShareReport | None:
        """Return the shares of the stream's newest messages; any thread may ask."""
        return self._stream_shares

    def set_top_features(self, top: Mapping[Any, Sequence[tuple[str, float]]]) -> None:
        """Take in the most telling features, as `inspection.summary.top_features` gives them."""
        self._telling = {
            str(label): tuple(Telling(*each) for each in features)
            for label, features in top.items()
        }

    def update(
        self,
        status: Status,
        snapshot: Snapshot | None,
        now_s: float,
        predicted: Sequence[int] = (),
    ) -> None:
        """Gather again what is due.

        Parameters
        ----------
        status : Status
            For the rate and the lag.
        snapshot : Snapshot or None
            The published one, for the words.
        now_s : float
            Monotonic seconds, by the clock that was passed in.
        predicted : sequence of int, of length n_classes or empty
            How many of the newest messages were predicted to be of each class.
        """
        if self._window_budget.is_due(now_s):
            began_s = self._clock()
            self._measure_window(predicted)
            self._window_budget.spent(now_s, now_s + self._clock() - began_s)
        if snapshot is not None and self._words_budget.is_due(now_s):
            began_s = self._clock()
            self._trends.update(snapshot, now_s)
            self._words_budget.spent(now_s, now_s + self._clock() - began_s)
        figures = self._figures()
        if self._history.is_due(now_s):
            window = figures.window
            self._history.note(
                now_s,
                Point(
                    self._time_ms(), window.accuracy, window.log_loss, window.calibration_error,
                    status.rate_per_s, status.lag_total,
                ),
            )  # fmt: skip
        self._report = QualityReport(
            prequential=figures,
            confusion=self._confusion,
            calibration=self._calibration,
            history=self._history.points(),
            telling=self._telling,
            rising=self._trends.rising,
            falling=self._trends.falling,
            trend_s=self._trends.span_s,
        )

    def _measure_window(self, predicted: Sequence[int]) -> None:
        """Compute confusion, calibration and error rates from the prequential window."""
        judged = self._prequential.judged()
        if len(judged.truth):
            counts = judged.confusion()
            self._confusion = Confusion(self._classes, tuple(map(tuple, counts.tolist())))
            self._calibration = judged.calibration()
            self._calibration_error = calibration_error(self._calibration)
            self._shares = Shares(self._classes, counts, self._messages_min)
        self._stream_shares = self._shares.of_stream(predicted or [0] * len(self._classes))

    def _figures(self) -> PrequentialFigures:
        known = self._prequential
        return PrequentialFigures(
            n=known.n,
            accuracy=known.accuracy,
            log_loss=known.log_loss,
            window=WindowFigures(
                n=known.n_held,
                accuracy=known.window_accuracy,
                log_loss=known.window_log_loss,
                calibration_error=self._calibration_error,
            ),
        )
