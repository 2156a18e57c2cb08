"""Two or more things timed in turns, there and back: A B B A ….

A busy machine slows neighbours in time alike. So each ratio is taken within one turn, and of all
turns the median is reported: a turn that was disturbed does not move it. Every second turn goes the
other way round, as a machine that slows down or speeds up would favour the first or the last.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from benchmarks.show import Show


@dataclass(slots=True)
class Turns:
    """Seconds by name, one entry a turn.

    Attributes
    ----------
    seconds : dict of str to list of float
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median_s(self, name: str) -> float:
        """Return the median of one's times."""
        return statistics.median(self.seconds[name])

    def ratio(self, slow: str, fast: str) -> float:
        """Return the median over the turns of how many times longer `slow` took."""
        pairs = zip(self.seconds[slow], self.seconds[fast], strict=True)
        return statistics.median(a / b for a, b in pairs)


def alternate(
    timed: Mapping[str, Callable[[], float]], turns: int, show: Show, *, warm_up: str | None = None
) -> Turns:
    """Run each in turn, `turns` times over.

    Parameters
    ----------
    timed : mapping of str to callable
        Each prepares, does its work once, and returns the seconds that the work alone took.
    turns : int
        How many times each runs.
    show : Show
        Where progress is told.
    warm_up : str, optional
        The one that runs once before, untimed.
    """
    if warm_up is not None:
        timed[warm_up]()
    found = Turns({name: [] for name in timed})
    for turn in show.track(range(turns)):
        for name in list(timed)[:: -1 if turn % 2 else 1]:
            found.seconds[name].append(timed[name]())
    return found
