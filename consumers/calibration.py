"""What a classifier predicted and what was true, side by side: confusion, and calibration.

A classifier is calibrated if, of the examples it gives a probability of 0.8, four in five are of
the class that it predicts. The curve takes the examples by the probability of the predicted class,
which is never below 1/K of K classes, in ten bins of equal width from there to 1. The expected
calibration error (Naeini, Cooper and Hauskrecht 2015, "Obtaining well calibrated probabilities
using Bayesian binning") is the bins' mean distance between accuracy and mean probability, weighted
by the examples in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BINS = 10

# One judgement in 8 bytes: a place of the window is written, and read, in one piece.
JUDGEMENT = np.dtype(
    [("truth", np.uint16), ("predicted", np.uint16), ("log_confidence", np.float32)]
)
CLASSES_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Bin:
    """The examples whose predicted class had a probability from `low` to `high`.

    Attributes
    ----------
    low, high : float
        A probability equal to `low` belongs here, one equal to `high` to the next bin, but for 1.
    n : int
        How many examples.
    mean_probability, accuracy : float or None
        Their mean probability, and the share predicted right; None where there are none.
    """

    low: float
    high: float
    n: int
    mean_probability: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """The judgements of some examples, as a value of its own.

    Attributes
    ----------
    truth, predicted : ndarray of shape (n,), integer
        Index of the true and of the predicted class.
    log_confidence : ndarray of shape (n,), float32
        Log-posterior of the predicted class, in nats.
    n_classes : int
        Columns of the log-posteriors; 0 before the first example.
    """

    truth: NDArray[np.integer]
    predicted: NDArray[np.integer]
    log_confidence: NDArray[np.float32]
    n_classes: int

    def confusion(self) -> NDArray[np.int64]:
        """Return how often each true class (row) was predicted as each class (column)."""
        k = self.n_classes
        cells = self.truth.astype(np.int64) * k + self.predicted
        found: NDArray[np.int64] = np.bincount(cells, minlength=k * k).reshape(k, k)
        return found

    def calibration(self) -> tuple[Bin, ...]:
        """Return the calibration curve, the lowest bin first; empty without two classes."""
        if self.n_classes < 2:
            return ()
        least = 1.0 / self.n_classes
        edges = np.linspace(least, 1.0, BINS + 1)
        # Rounding can leave a posterior a hair beyond either end.
        probability = np.clip(np.exp(self.log_confidence.astype(np.float64)), least, 1.0)
        places = np.minimum(np.searchsorted(edges, probability, side="right") - 1, BINS - 1)
        counts = np.bincount(places, minlength=BINS)
        sums = np.bincount(places, probability, minlength=BINS)
        right = np.bincount(places, self.truth == self.predicted, minlength=BINS)
        return tuple(
            Bin(low, high, n, s / n if n else None, r / n if n else None)
            for low, high, n, s, r in zip(
                edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), sums.tolist(),
                right.tolist(), strict=True,
            )
        )  # fmt: skip


def calibration_error(bins: Sequence[Bin]) -> float | None:
    """Return the expected calibration error of a curve, from 0 to 1; None without an example.

    Examples
    --------
    >>> found = calibration_error([Bin(0.5, 0.75, 3, 0.6, 0.7), Bin(0.75, 1.0, 1, 0.9, 0.8)])
    >>> round(found, 6)
    0.1
    """
    n = sum(each.n for each in bins)
    if not n:
        return None
    off = (
        each.n * abs(each.accuracy - each.mean_probability)
        for each in bins
        if each.accuracy is not None and each.mean_probability is not None
    )
    return sum(off) / n
