"""Stand-ins for time and for failure, so that a test decides when either happens."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar

from streamnb.errors import InputError

Returned = TypeVar("Returned")


class ManualClock:
    """A clock that moves only when it is told to, or when somebody waits.

    Everything in streamnb that looks at a clock takes it as an argument: give it this one.

    Parameters
    ----------
    now_s : float
        What it shows at first, in seconds.

    Attributes
    ----------
    now_s : float
        What it shows.
    waits_s : list of float
        How long each call of `wait` was.

    Examples
    --------
    >>> from streamnb.testing import ManualClock
    >>> clock = ManualClock(100.0)
    >>> clock.advance(2.5)
    >>> clock.wait(1.0)
    >>> clock(), clock.waits_s
    (103.5, [1.0])
    """

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s
        self.waits_s: list[float] = []

    def __call__(self) -> float:
        """Return what it shows, in seconds."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass.

        Parameters
        ----------
        seconds : float
            How much; below 0 it goes back, as the clock of a machine may.
        """
        self.now_s += seconds

    def wait(self, seconds: float) -> None:
        """Let time pass at once, in the place of `time.sleep`.

        Parameters
        ----------
        seconds : float
            How long the caller wanted to wait.
        """
        self.waits_s.append(seconds)
        self.now_s += seconds


class FaultSchedule:
    """Which calls fail, and with what: the first one is call 1.

    Parameters
    ----------
    faults : mapping of int to exception
        What each of these calls raises; the others go through.

    Attributes
    ----------
    n_calls : int
        How many calls there were.
    met : list of int
        The calls that failed.

    Examples
    --------
    >>> from streamnb.testing import FaultSchedule
    >>> faults = FaultSchedule({2: OSError("no space left")})
    >>> write = faults.wrap(len)
    >>> write("abc")
    3
    >>> write("abc")
    Traceback (most recent call last):
    OSError: no space left
    >>> write("abc"), faults.met
    (3, [2])
    """

    def __init__(self, faults: Mapping[int, Exception]) -> None:
        if any(call < 1 for call in faults):
            raise InputError(f"faults: calls are counted from 1, found {min(faults)}")
        self._faults = dict(faults)
        self.n_calls = 0
        self.met: list[int] = []

    @classmethod
    def drawn(cls, seed: int, n_calls: int, rate: float, errors: Sequence[Exception]) -> Self:
        """Draw a schedule; the same seed gives the same one.

        Parameters
        ----------
        seed : int
            What replays it.
        n_calls : int
            How many calls it covers; those behind them go through.
        rate : float
            The share of calls that fail, from 0 to 1.
        errors : sequence of exception
            What they raise, drawn among these.

        Returns
        -------
        FaultSchedule
        """
        if not 0 <= rate <= 1 or not errors:
            raise InputError(f"rate must be 0 to 1, found {rate}, and errors must name some")
        chance = random.Random(seed)  # noqa: S311 -- a test's faults, not a secret
        failing = [call for call in range(1, n_calls + 1) if chance.random() < rate]
        return cls({call: chance.choice(errors) for call in failing})

    def check(self) -> None:
        """Count a call, and raise what is due at it."""
        self.n_calls += 1
        error = self._faults.get(self.n_calls)
        if error is not None:
            self.met.append(self.n_calls)
            raise error

    def wrap(self, function: Callable[..., Returned]) -> Callable[..., Returned]:
        """Return the function with the faults before it.

        Parameters
        ----------
        function : callable
            What is called if no fault is due.

        Returns
        -------
        callable
        """

        def faulty(*args: Any, **kwargs: Any) -> Returned:
            self.check()
            return function(*args, **kwargs)

        return faulty
