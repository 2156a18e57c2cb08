"""Gaussian likelihood of numbers, row by row: judged by the moments as they stand, then learned.

Maximum likelihood takes each class's own mean and variance M2/n (or one variance for all classes,
Σ_c M2_jc / Σ_c n_jc), and adds a floor to every variance: a share of the largest variance that any
field has over all classes together. Two values are then judged by d²/v and log v; variances are
multiplied and the logarithm taken once. A variance of zero is a point mass: it says nothing at the
mean, and that the class is impossible elsewhere. So does a class that never saw a field others saw.

A normal–inverse-gamma prior (μ | σ² ~ N(m₀, σ²/κ), σ² ~ IG(α, β)) makes the predictive Student's t
with 2a degrees of freedom, location m and scale s:

    κ' = κ + n,  m = x̄ + (m₀ − x̄)·κ/κ',  a = α + n/2,
    b = β + M2/2 + (m₀ − x̄)²·κ·n/(2κ'),  s² = b·(κ' + 1)/(a·κ')
    log p = g(a) − ½·log(2π·s²) − (a + ½)·log1p(d²/(2a·s²)),  d = x − m,

g(a) = log Γ(a+½) − log Γ(a) − ½·log a, which vanishes as a grows and leaves the Gaussian. With one
variance for all classes a and b take up n and M2 of all of them. Where m₀ is not given it is the
mean of all classes together, and where β is not given α times their variance; where that is zero,
or nothing was seen, there is no scale to judge by and the field says nothing.

Decay has scaled n and M2 up by `scale`: they are divided by it where a prior stands beside them.

Cost a row: one division and a few multiplications a class and field, one logarithm a class, two
with Student's t; for each field of a learned row two updates of moments and its estimates anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from streamnb.kernels._jit import inner, kernel
from streamnb.kernels.layout import F64, I32, I64, F64Grid, compiled_type
from streamnb.kernels.moments import Moments, learn_row
from streamnb.kernels.posterior import fold

_LOG_2PI = float(np.log(2.0 * np.pi))
_MODEST = 1e100  # factors up to this (and down to its inverse) are multiplied, others go by logs
_SERIES_MIN = 16.0  # from here on g's series has all digits
# Its coefficients, of 1/a, 1/a³, …: they follow from Stirling's series at a + ½ and at a.
_G1, _G3, _G5 = -1.0 / 8.0, 1.0 / 192.0, -1.0 / 640.0
_G7, _G9, _G11 = 17.0 / 14336.0, -31.0 / 18432.0, 691.0 / 180224.0


class Prior(NamedTuple):
    """Normal–inverse-gamma prior by class and field; nan where it is taken from the data."""

    mean: F64Grid  # (n_classes, n_fields)
    kappa: F64Grid
    alpha: F64Grid
    beta: F64Grid


class Estimates(NamedTuple):
    """What a value is judged by, by class and field: a pure function of moments and prior."""

    base: F64Grid  # (n_classes, n_fields): m, in two floats
    shift: F64Grid
    spread: F64Grid  # variance without the floor, or s²
    shape: F64Grid  # Student's a; 0 where the field says nothing. Not used by maximum likelihood


@inner
def log_gamma_step(a: float) -> float:
    """Return g(a) = log Γ(a + ½) − log Γ(a) − ½·log a, to 1e-15.

    Below 16, a is moved up by Γ(a+1) = a·Γ(a); differences of log Γ itself would cancel.
    """
    ratio = 1.0
    root = a
    while a < _SERIES_MIN:
        ratio *= a / (a + 0.5)
        a += 1.0
    y = 1.0 / a
    y2 = y * y
    series = y * (_G1 + y2 * (_G3 + y2 * (_G5 + y2 * (_G7 + y2 * (_G9 + y2 * _G11)))))
    return float(series if ratio == 1.0 else series + np.log(ratio * np.sqrt(a / root)))


@inner
def floor_of(moments: Moments, share: float) -> float:
    """Return the variance floor: a share of the largest variance over all classes together."""
    largest = 0.0
    for j in range(moments.n.shape[1]):
        if moments.n[0, j] > 0.0:
            largest = max(largest, moments.m2[0, j] / moments.n[0, j])
    return share * largest


@inner
def estimate_plain(moments: Moments, estimates: Estimates, shared: bool, j: int) -> None:
    """Set one field's maximum-likelihood estimates."""
    n_classes = len(estimates.spread)
    n, m2 = 0.0, 0.0
    for c in range(n_classes):
        n += moments.n[1 + c, j]
        m2 += moments.m2[1 + c, j]
    for c in range(n_classes):
        estimates.base[c, j] = moments.mean[1 + c, j]
        estimates.shift[c, j] = moments.mean_low[1 + c, j]
        if not shared:
            n = moments.n[1 + c, j]
            m2 = moments.m2[1 + c, j]
        estimates.spread[c, j] = m2 / n if n > 0.0 else 0.0


@inner
def estimate_bayes(
    moments: Moments,
    estimates: Estimates,
    prior: Prior,
    shared: bool,
    is_open: bool,
    scale: float,
    j: int,
) -> None:
    """Set one field's posterior predictive under a normal–inverse-gamma prior."""
    n_classes = len(estimates.spread)
    n_all = moments.n[0, j]
    variance = moments.m2[0, j] / n_all if n_all > 0.0 else 0.0
    n_sum, b_sum = 0.0, 0.0
    for c in range(n_classes):
        m0, beta = prior.mean[c, j], prior.beta[c, j]
        if (np.isnan(beta) and variance == 0.0) or (n_all == 0.0 and (is_open or np.isnan(m0))):
            estimates.shape[c, j] = 0.0
            continue
        m0_low = 0.0
        if np.isnan(m0):
            m0, m0_low = moments.mean[0, j], moments.mean_low[0, j]
        alpha, kappa = prior.alpha[c, j], prior.kappa[c, j]
        if np.isnan(beta):
            beta = alpha * variance
        n = moments.n[1 + c, j] / scale
        inverse = 1.0 / (kappa + n)
        apart = (m0 - moments.mean[1 + c, j]) + (m0_low - moments.mean_low[1 + c, j])
        grown = 0.5 * (moments.m2[1 + c, j] / scale + kappa * n * inverse * apart * apart)
        # m lies between the mean and m₀: told from the nearer one it keeps its digits.
        if n >= kappa:
            estimates.base[c, j] = moments.mean[1 + c, j]
            estimates.shift[c, j] = moments.mean_low[1 + c, j] + kappa * inverse * apart
        else:
            estimates.base[c, j] = m0
            estimates.shift[c, j] = m0_low - n * inverse * apart
        estimates.shape[c, j] = alpha + 0.5 * n
        estimates.spread[c, j] = (beta + grown) * (kappa + n + 1.0) * inverse / (alpha + 0.5 * n)
        n_sum += n
        b_sum += grown
    if not shared:
        return
    for c in range(n_classes):
        if estimates.shape[c, j] > 0.0:
            alpha, kappa = prior.alpha[c, j], prior.kappa[c, j]
            beta = prior.beta[c, j]
            if np.isnan(beta):
                beta = alpha * variance
            n = moments.n[1 + c, j] / scale
            a = alpha + 0.5 * n_sum
            estimates.shape[c, j] = a
            estimates.spread[c, j] = (beta + b_sum) * (kappa + n + 1.0) / ((kappa + n) * a)


@inner
def estimate(
    moments: Moments,
    estimates: Estimates,
    prior: Prior,
    bayes: bool,
    shared: bool,
    is_open: bool,
    scale: float,
    places: I64,
) -> None:
    """Set the estimates of the fields at `places`."""
    for t in range(len(places)):
        if places[t] >= 0:
            if bayes:
                estimate_bayes(moments, estimates, prior, shared, is_open, scale, places[t])
            else:
                estimate_plain(moments, estimates, shared, places[t])


@inner
def judge_plain(
    moments: Moments, estimates: Estimates, floor: float, x: F64Grid, places: I64, i: int, c: int
) -> float:
    """Return row `i`'s log-likelihood in class `c` by maximum likelihood."""
    squares, product, logs = 0.0, 1.0, 0.0
    n_fields = 0
    for t in range(len(places)):
        j = places[t]
        if j < 0 or np.isnan(x[i, t]) or moments.n[0, j] == 0.0:
            continue
        if moments.n[1 + c, j] == 0.0:
            return -np.inf
        d = (x[i, t] - estimates.base[c, j]) - estimates.shift[c, j]
        v = estimates.spread[c, j] + floor
        if v > 0.0:
            squares += d * d / v
            product, logs = fold(product, v, logs)
            n_fields += 1
        elif d != 0.0:
            return -np.inf
    return float(-0.5 * (squares + (logs + np.log(product)) + n_fields * _LOG_2PI))


@inner
def judge_bayes(estimates: Estimates, x: F64Grid, places: I64, i: int, c: int) -> float:
    """Return row `i`'s log-likelihood in class `c` under Student's t.

    With Π(1 + z_j) − 1 as running product the logarithm of all of them together keeps the digits
    that 1 + z would round off where z is small and a large.
    """
    product, logs, total = 1.0, 0.0, 0.0
    a, grown, step = 0.0, 0.0, 0.0
    n_fields = 0
    for t in range(len(places)):
        j = places[t]
        if j < 0 or np.isnan(x[i, t]) or estimates.shape[c, j] == 0.0:
            continue
        if estimates.shape[c, j] != a:  # as good as never but where values are missing
            total -= (a + 0.5) * np.log1p(grown)
            grown = 0.0
            a = estimates.shape[c, j]
            step = log_gamma_step(a)
        d = (x[i, t] - estimates.base[c, j]) - estimates.shift[c, j]
        s2 = estimates.spread[c, j]
        z = d * d / (2.0 * a * s2)
        if z > _MODEST:  # then log1p(z) is log z, which is in range where z itself may not be
            total -= (a + 0.5) * (2.0 * np.log(np.abs(d)) - np.log(2.0 * a * s2))
        else:
            grown += z + grown * z
            if grown > _MODEST:
                total -= (a + 0.5) * np.log1p(grown)
                grown = 0.0
        total += step
        product, logs = fold(product, s2, logs)
        n_fields += 1
    total -= (a + 0.5) * np.log1p(grown)
    return float(total - 0.5 * ((logs + np.log(product)) + n_fields * _LOG_2PI))


@kernel(
    types.void,
    compiled_type(Moments),
    compiled_type(Prior),
    types.boolean,
    types.boolean,
    types.boolean,
    types.float64,
    types.float64[:, ::1],
    types.int64[::1],
    types.int32[::1],
    types.float64[::1],
    types.float64[::1],
    types.boolean,
    compiled_type(Estimates),
    types.float64[:, ::1],
)
def gaussian(
    moments: Moments,
    prior: Prior,
    bayes: bool,
    shared: bool,
    is_open: bool,
    floor_share: float,
    x: F64Grid,
    places: I64,
    labels: I32,
    weights: F64,
    scales: F64,
    learn: bool,
    estimates: Estimates,
    out: F64Grid,
) -> None:
    """Add each row's log-likelihood to `out`, then learn the row where it has a label.

    Column t of `x` is the field at `places[t]`; where that is -1 it is ignored. In an open group a
    field that no class has seen says nothing, whatever the prior. `estimates` is room.
    """
    scale = scales[0] if len(scales) else 1.0
    estimate(moments, estimates, prior, bayes, shared, is_open, scale, places)
    floor = 0.0 if bayes else floor_of(moments, floor_share)
    for i in range(len(labels)):
        if bayes and scales[i] != scale:
            scale = scales[i]
            estimate(moments, estimates, prior, bayes, shared, is_open, scale, places)
        for c in range(out.shape[1]):
            if bayes:
                out[i, c] += judge_bayes(estimates, x, places, i, c)
            else:
                out[i, c] += judge_plain(moments, estimates, floor, x, places, i, c)
        if learn and labels[i] >= 0:
            learn_row(moments, x, places, i, labels[i], weights[i])
            estimate(moments, estimates, prior, bayes, shared, is_open, scale, places)
            if not bayes:
                floor = floor_of(moments, floor_share)


@kernel(
    types.float64,
    compiled_type(Moments),
    compiled_type(Prior),
    types.boolean,
    types.boolean,
    types.boolean,
    types.float64,
    types.float64,
    compiled_type(Estimates),
)
def read_estimates(
    moments: Moments,
    prior: Prior,
    bayes: bool,
    shared: bool,
    is_open: bool,
    floor_share: float,
    scale: float,
    estimates: Estimates,
) -> float:
    """Set all fields' estimates as `gaussian` has them; return the variance floor."""
    for j in range(moments.n.shape[1]):
        if bayes:
            estimate_bayes(moments, estimates, prior, shared, is_open, scale, j)
        else:
            estimate_plain(moments, estimates, shared, j)
    return 0.0 if bayes else floor_of(moments, floor_share)
