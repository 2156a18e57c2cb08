"""Draws of probabilities from Beta posteriors, as logarithms, for any counts however small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def log_gammas(shape: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Draw log X with X ~ Gamma(shape), shape (n, *shape.shape); -inf where the shape is 0.

    A small shape's X may be below the smallest float64, but not its logarithm: X is drawn as that
    of shape + 1, times U^(1/shape).
    """
    larger = rng.standard_gamma(shape + 1.0, (n, *shape.shape))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(larger) - rng.standard_exponential(larger.shape) / shape)


def log_betas(
    present: Floats, absent: Floats, n: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw log θ and log(1 − θ) with θ ~ Beta(present, absent).

    Parameters
    ----------
    present, absent : ndarray of shape (k,)
        At least 0; where both are, nothing is known and both logarithms are -inf.
    n : int
    rng : Generator

    Returns
    -------
    tuple of two ndarrays of shape (n, k), in nats
    """
    one, other = log_gammas(present, n, rng), log_gammas(absent, n, rng)
    total = np.logaddexp(one, other)
    total[np.isneginf(total)] = 0.0
    return one - total, other - total
