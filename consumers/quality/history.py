"""Figures over time, in bounded memory: when the points become too many, every second one goes."""

from __future__ import annotations

from consumers.quality.report import Point

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
        """Tell whether a step has passed since the last point."""
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
