"""A source that does what a test wrote down for it, and remembers who called it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from consumers.messages import Partition, RawColumns
from consumers.sources.base import Source

PositionOf = Callable[[Partition], int | None]
Step = Sequence[RawColumns] | Exception | Callable[[PositionOf], Sequence[RawColumns]]


class ScriptedSource(Source):
    """Each poll takes the next step: batches to return, an error to raise, or a function to ask.

    Parameters
    ----------
    steps : Step
        When they are over, its end is reached and polls bring nothing.

    Attributes
    ----------
    threads : set of int
        The threads that called any of its methods.
    calls : list of str
        Their names in order, those of polls that brought nothing left out.
    reported : list of mapping
        What `report_positions` was given.
    """

    name = "scripted"

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self._position_of: PositionOf = lambda _: None
        self.threads: set[int] = set()
        self.calls: list[str] = []
        self.reported: list[Mapping[Partition, int]] = []
        self.lags: dict[Partition, int] = {}
        self.sentence: str | None = None
        self.lost_messages = 0
        self.idle = threading.Event()

    def _note(self, call: str) -> None:
        self.threads.add(threading.get_ident())
        self.calls.append(call)

    def open(self, position_of: PositionOf) -> None:
        """Begin."""
        self._note("open")
        self._position_of = position_of

    def poll(self, timeout_s: float) -> list[RawColumns]:  # noqa: ARG002 -- as the protocol has it
        """Take the next step."""
        self.threads.add(threading.get_ident())
        if not self._steps:
            self.idle.set()
            return []
        self.calls.append("poll")
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return list(step(self._position_of) if callable(step) else step)

    def assignment(self) -> Collection[Partition]:
        """Return the partitions of the lag that was set."""
        return self.lags

    def lag(self) -> Mapping[Partition, int]:
        """Return the lag that was set."""
        self.threads.add(threading.get_ident())
        return self.lags

    def at_end(self) -> bool:
        """Return whether all steps were taken."""
        self.threads.add(threading.get_ident())
        return not self._steps

    def trouble(self) -> str | None:
        """Return the trouble that was set."""
        self.threads.add(threading.get_ident())
        return self.sentence

    def report_positions(self, positions: Mapping[Partition, int]) -> None:
        """Keep the positions."""
        self._note("report_positions")
        self.reported.append(positions)

    def close(self) -> None:
        """End."""
        self._note("close")
