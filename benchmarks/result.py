"""What a case found: named figures with their units, and the demands that they are held to."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers import versions


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes
    ----------
    name : str
        What was measured.
    value : float
        The number, in `unit`.
    unit : str
        "tweets/s", "times", "MB", ...
    at_least, at_most : float or None
        The demand on it, in the same unit.
    at : float or None
        Where it stands on a curve: how many words, classes, ... there were.
    curve : str
        Which curve of its case that is.
    """

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    at: float | None = None
    curve: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the demand is met; None where there is none."""
        if self.at_least is None and self.at_most is None:
            return None
        above = self.at_least is None or self.value >= self.at_least
        return above and (self.at_most is None or self.value <= self.at_most)

    @property
    def demand(self) -> str:
        """The demand, in words."""
        if self.at_least is not None:
            return f"≥ {self.at_least:g}"
        return "" if self.at_most is None else f"≤ {self.at_most:g}"


@dataclass(slots=True)
class Result:
    """All figures of one case.

    Attributes
    ----------
    case : str
        Its name.
    texts : str
        Which texts it ran on.
    figures : list of Figure
    seconds : float
        What running the case took.
    left_out : str or None
        Why it did not run, in a sentence.
    """

    case: str
    texts: str
    figures: list[Figure] = field(default_factory=list)
    seconds: float = 0.0
    left_out: str | None = None

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        at: float | None = None,
        curve: str = "",
    ) -> None:
        """Add a figure; see `Figure`."""
        self.figures.append(Figure(name, float(value), unit, at_least, at_most, at, curve))

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON; a figure lacks what does not concern it."""
        figures = [
            {
                key: value
                for key, value in {**asdict(figure), "met": figure.met}.items()
                if value is not None and value != ""
            }
            for figure in self.figures
        ]
        return asdict(self) | {"figures": figures}


def commit() -> str:
    """Return the commit that is measured, and whether something is changed beside it."""
    words = ["git", "describe", "--always", "--abbrev=7", "--dirty= with changes", "--exclude=*"]
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def machine() -> dict[str, Any]:
    """Return what the figures depend on beside the code: processor, system, versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", "numba")},
        **versions(),
    }


def _processor() -> str:
    """Return the processor's name where Linux tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 -- no file of ours
            names = [
                line.partition(":")[2].strip() for line in file if line.startswith("model name")
            ]
    except OSError:
        names = []
    return names[0] if names else platform.machine()
