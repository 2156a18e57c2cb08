"""What a campaign is, and how it runs: step by step, each step by a seed of its own.

A campaign repeats a test with chance in it far more often than a test suite can. Steps know nothing
of each other, so the one that failed is run again alone.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_SAY_S = 10.0  # how often progress is said
_LONG = 10  # from this part of the full size on, what a campaign must meet is met


@dataclass(slots=True)
class Run:
    """One run of a campaign.

    Attributes
    ----------
    name : str
        The campaign's.
    seed, first, n : int
        Steps `first` to `first + n - 1` of this seed.
    say : callable
        Takes a line on how far it is.
    figures : Counter
        What was done or found, added up over the steps, by name.
    step : int
        The step under way.
    """

    name: str
    seed: int
    first: int
    n: int
    say: Callable[[str], None]
    figures: Counter[str] = field(default_factory=Counter)
    step: int = 0
    is_chain: bool = False

    def steps(self) -> Iterator[tuple[random.Random, Path]]:
        """Yield a source of chance and an empty folder for each step."""
        said_s = time.monotonic()
        for step in range(self.first, self.first + self.n):
            self.step = step
            with tempfile.TemporaryDirectory(prefix=f"{self.name}-") as folder:
                yield random.Random(f"{self.name}/{self.seed}/{self.step}"), Path(folder)
            if time.monotonic() > said_s + _SAY_S:
                said_s = time.monotonic()
                self.say(f"{self.step + 1 - self.first:,} of {self.n:,}: {dict(self.figures)}")

    @property
    def replay(self) -> str:
        """The command that runs the step under way, and no other that it does not need."""
        steps = f"--n {self.n}" if self.is_chain else f"--first {self.step} --n 1"
        return f"python -m tests.campaigns {self.name} --seed {self.seed} {steps}"


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign; the first line of its function's docstring says what it shows.

    Attributes
    ----------
    run : callable
        Runs it; whatever it raises is a failure of the step under way.
    n_full, n_small : int
        How many steps it has, and how many the test suite runs.
    step : str
        What a step is, in the plural.
    needs : tuple of str
        Marks of pytest that its small number gets: `integration`, `deep`, …
    is_chain : bool
        Whether each step goes on where the one before has ended.
    must_meet : tuple of str
        Figures that chance leaves at zero in a short run alone. A run that is longer than the test
        suite's, and a tenth of the full size or more, fails if one of them is zero: it did not try
        what the campaign is for.
    """

    run: Callable[[Run], None]
    n_full: int
    n_small: int
    step: str
    needs: tuple[str, ...] = ()
    is_chain: bool = False
    must_meet: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        return self.run.__name__

    @property
    def what(self) -> str:
        """What it shows, in a sentence."""
        return (self.run.__doc__ or self.name).partition("\n")[0]


class FailedError(Exception):
    """A step failed; the message ends with the command that repeats it."""


def carry_out(
    campaign: Campaign, seed: int, first: int, n: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Run steps of a campaign and return its summary; `FailedError` names what repeats a failure.

    Raises
    ------
    FailedError
    """
    run = Run(campaign.name, seed, first, n, say, is_chain=campaign.is_chain)
    began_s = time.monotonic()
    try:
        campaign.run(run)
    except Exception as error:
        trace = "".join(traceback.format_exception(error))
        raise FailedError(f"{trace}step {run.step} failed; replay: {run.replay}") from error
    missed = [name for name in campaign.must_meet if not run.figures[name]]
    if missed and n > campaign.n_small and _LONG * n >= campaign.n_full:
        raise FailedError(f"{n:,} {campaign.step}, and never: {', '.join(missed)}")
    return {
        "campaign": campaign.name,
        "seed": seed,
        "first": first,
        "n": n,
        "figures": dict(sorted(run.figures.items())),
        "seconds": round(time.monotonic() - began_s, 1),
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _commit(),
    }


def _commit() -> str:
    """Return the commit that is tested, and whether something is changed beside it."""
    words = ["git", "describe", "--always", "--abbrev=7", "--dirty= with changes", "--exclude=*"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
