"""How sure a posterior is: credible intervals from the posteriors of the model's own parameters.

A model answers with its estimates as if they were known. They are not: each has a posterior (a
Dirichlet, Beta or normal–inverse-gamma), and with it p(c | x) has one. Few examples make it wide.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from streamnb.errors import InputError
from streamnb.features.protocol import Floats
from streamnb.inspection.posterior_moments import digamma, log_gammas, trigamma


def check_level(level: Any) -> float:
    """Return a level between 0 and 1, or say what is wrong with it.

    Raises
    ------
    InputError
    """
    if isinstance(level, bool) or not isinstance(level, float | np.floating) or not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95. Got {level!r} instead.")
    return float(level)


def prior_draws(shapes: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Return `n` draws of log π from Dirichlet(shapes), (n, n_classes); without any, uniform."""
    if not shapes.any():
        return np.full((n, len(shapes)), -np.log(len(shapes)))
    logs = log_gammas(shapes, n, rng)
    out: Floats = logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)
    return out


def prior_moments(shapes: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of log π_c, up to what all classes share, each (n_classes,)."""
    if not shapes.any():
        return np.zeros(len(shapes)), np.zeros(len(shapes))
    possible = shapes > 0.0
    return digamma(shapes), np.where(possible, trigamma(np.where(possible, shapes, 1.0)), 0.0)


def sampled_interval(joint: Floats, prior: Floats, level: float) -> Floats:
    """Return quantiles of p(c | x) under draws, ndarray of shape (2, n_classes).

    Parameters
    ----------
    joint, prior : ndarray of shape (n, n_classes)
        log p(x, c), and log π_c alone: it answers where every class is impossible.
    level : float
    """
    joint = np.where((joint == -np.inf).all(axis=1, keepdims=True), prior, joint)
    posteriors = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    found: Floats = np.quantile(posteriors, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return found


def delta_interval(
    prior: tuple[Floats, Floats], groups: list[tuple[Floats, Floats]], level: float
) -> Floats:
    """Return an interval of p(c | x) by the delta method, ndarray of shape (2, n_classes).

    The log-odds of a class against all others, s_c − log Σ_o exp(s_o), is taken to be normal, with
    the moments of its first-order expansion around the means. Of two classes both are exact.

    Parameters
    ----------
    prior, groups : tuple of two ndarrays of shape (n_classes,), and a list of such
        Means and variances of log π_c and of each group's log-likelihood, independent of each other
        and of other classes'.
    level : float
    """
    mean = sum((each for each, _ in groups), prior[0])
    variance = sum((each for _, each in groups), prior[1])
    if (mean == -np.inf).all():  # every class is impossible: the class prior answers
        mean, variance = prior
    z = -NormalDist().inv_cdf((1 - level) / 2)  # (1 + level) / 2 may round to 1
    out = np.empty((2, len(mean)))
    for c in range(len(mean)):
        others = np.delete(mean, c)
        rest = np.logaddexp.reduce(others, initial=-np.inf)
        if mean[c] == -np.inf or rest == -np.inf:
            out[:, c] = 0.0 if mean[c] == -np.inf else 1.0
            continue
        shares = np.exp(others - rest)
        spread = z * np.sqrt(variance[c] + shares**2 @ np.delete(variance, c))
        ends = mean[c] - rest + np.array([-spread, spread])
        out[:, c] = np.exp(-np.logaddexp(0.0, -ends))
    return out
