"""Moments of the logarithms of probabilities under their Dirichlet and Beta posteriors.

A shape of 0 (maximum likelihood, and nothing counted) is a probability of 0 for certain.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def digamma(x: Any) -> Floats:
    """Return ψ(x), -inf at 0."""
    from scipy import special  # noqa: PLC0415 -- a tenth of a second that most programs never need

    x = np.asarray(x, dtype=np.float64)
    with np.errstate(all="ignore"):
        found: Floats = np.where(x > 0.0, special.psi(np.where(x > 0.0, x, 1.0)), -np.inf)
    return found


def trigamma(x: Any) -> Floats:
    """Return ψ'(x), inf at 0."""
    from scipy import special  # noqa: PLC0415 -- as above

    x = np.asarray(x, dtype=np.float64)
    found: Floats = np.where(x > 0.0, special.zeta(2.0, np.where(x > 0.0, x, 1.0)), np.inf)
    return found


def log_beta_moments(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of log θ with θ from Beta(a, b); (-inf, 0) where a is 0.

    Where b alone is 0, θ is 1 for certain: mean and variance are 0.
    """
    whole = a + b
    is_open = (a > 0.0) & (b > 0.0)
    safe_a, safe_whole = np.where(is_open, a, 1.0), np.where(is_open, whole, 1.0)
    mean = np.where(is_open, digamma(safe_a) - digamma(safe_whole), 0.0)
    variance = np.where(is_open, trigamma(safe_a) - trigamma(safe_whole), 0.0)
    return np.where(a > 0.0, mean, -np.inf), variance


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
