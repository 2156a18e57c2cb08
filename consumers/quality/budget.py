"""How often something costly is done: not before an interval, and within a share of the time."""

from __future__ import annotations

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
        """Tell whether the next turn may begin."""
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
