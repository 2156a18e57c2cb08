"""NIST's Statistical Reference Datasets: means and standard deviations to their certified digits.

A certified value is of the decimal numbers that are printed; what is learned is the nearest float64
to each, and exact arithmetic on those is not always the certified value any more. Digits are told
against both: log₁₀ of the relative error, negated, at most 15.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np
import pytest

from streamnb import NaiveBayes, Numbers, merge
from tests import naive_gaussian
from tests.naive_gaussian import Seen

DIGITS_MAX = 15.0
# How many digits of the standard deviation are asked for; of the mean it is 14 everywhere.
SETS = {
    "Lew": 13.0,
    "Lottery": 13.0,
    "Mavro": 13.0,
    "Michelso": 13.0,
    "NumAcc1": 13.0,
    "NumAcc2": 13.0,
    "NumAcc3": 9.0,
    "NumAcc4": 7.9,
    "PiDigits": 13.0,
}


class Certified(NamedTuple):
    """A data set with its certified values, as decimal text."""

    mean: str
    deviation: str
    values: list[float]


def certified(folder: Path, name: str) -> Certified:
    """Read one file."""
    text = (folder / "nist" / f"{name}.dat").read_text(encoding="ascii")
    mean = re.search(r"Sample Mean(?:\s+ybar)?:\s*([-\d.]+)", text)
    deviation = re.search(r"Deviation \(denom. = n-1\)(?:\s+s)?:\s*([-\d.]+)", text)
    assert mean
    assert deviation
    numbers = text[re.search(r"^-{5,}\s*$", text, re.MULTILINE).end() :].split()  # type: ignore[union-attr]
    n = int(re.search(r"Number of Observations:\s*(\d+)", text)[1])  # type: ignore[index]
    assert len(numbers) == n
    return Certified(mean[1], deviation[1], [float(number) for number in numbers])


def learned(values: Sequence[float]) -> NaiveBayes:
    """Return a model that has learned the values, in one class."""
    model = NaiveBayes(classes=["all"], features={"x": Numbers(fields=["y"])}, hash_key=1)
    model.learn_many({"y": np.array(values)}, ["all"] * len(values))
    return model


def figures(model: NaiveBayes) -> tuple[float, float]:
    """Return mean and standard deviation (n − 1) of what was learned."""
    state: Any = model.state.groups["x"]
    n, mean, m2 = (float(array[0, 0]) for array in state.moments().values())
    return mean, math.sqrt(m2 / (n - 1))


def digits(found: float, wanted: Any) -> float:
    """Return how many digits agree."""
    with mpmath.workdps(60):
        apart = abs((mpmath.mpf(found) - mpmath.mpf(wanted)) / mpmath.mpf(wanted))
        return DIGITS_MAX if not apart else min(DIGITS_MAX, float(-mpmath.log10(apart)))


def exactly(values: Sequence[float]) -> tuple[Any, Any]:
    """Return mean and standard deviation of the float64 values themselves, with sixty digits."""
    n, mean, m2 = naive_gaussian.moments([Seen(value, 1.0, 0) for value in values])
    with mpmath.workdps(60):
        variance: Fraction = m2 / (n - 1)
        return naive_gaussian.to_mp(mean), mpmath.sqrt(naive_gaussian.to_mp(variance))


def split(values: Sequence[float], seed: int) -> NaiveBayes:
    """Return the sum of models of pieces that were cut at random and merged in random order."""
    generator = np.random.default_rng(seed)
    shuffled = generator.permutation(values)
    cuts = np.sort(generator.integers(0, len(values) + 1, generator.integers(1, 12)))
    pieces = [learned(piece.tolist()) for piece in np.split(shuffled, cuts) if len(piece)]
    merged: NaiveBayes = merge(*(pieces[i] for i in generator.permutation(len(pieces))))
    return merged


@pytest.mark.data
@pytest.mark.parametrize("name", SETS)
def test_certified_digits(name: str, data_folder: Path) -> None:
    """Learned one by one, or merged from random pieces, they have the certified digits.

    Against exact arithmetic on the same float64 numbers all fifteen are there.
    """
    mean, deviation, values = certified(data_folder, name)
    exact_mean, exact_deviation = exactly(values)
    models = [learned(values), *(split(values, seed) for seed in range(5))]
    for model in models:
        found_mean, found_deviation = figures(model)
        assert digits(found_mean, exact_mean) == DIGITS_MAX
        assert digits(found_deviation, exact_deviation) == DIGITS_MAX
        assert digits(found_mean, mean) >= 14.0
        assert digits(found_deviation, deviation) >= SETS[name]
    # `pytest -rP` shows it.
    with mpmath.workdps(60):
        best = digits(float(exact_deviation), deviation)
    found_mean, found_deviation = digits(figures(models[0])[0], mean), figures(models[0])[1]
    sys.stdout.write(
        f"{name}: mean {found_mean:.1f} digits, s {digits(found_deviation, deviation):.1f}"
        f" (exact arithmetic on float64: {best:.1f})\n"
    )
