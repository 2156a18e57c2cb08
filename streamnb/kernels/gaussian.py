"""Running moments: how many, their mean and their squared distance from it, learned and unlearned.

Welford's rule takes up one value x at a time. With δ = x − mean, the mean moves by δ/n and M2, the
sum of squared distances from the mean, grows by δ·(x − new mean); no sum of squares is ever formed
that could cancel. Chan, Golub and LeVeque's rule takes up another set of values at once, known by
its own n, mean and M2: δ is then the distance between the means, the mean moves by δ·n_b/n, and M2
grows by M2_b + δ²·n_a·n_b/n. One value of weight w is such a set (n_b = w, M2_b = 0), and as
δ·n_a/n is what is left of δ after the move, both rules are one: M2 += M2_b + n_b·δ·(δ − move).
Taking values away again is the same rule with n_b and M2_b below zero.

Mean and M2 are kept in two floats each, the second holding what the first had to round off: 106
bits. One float each loses four of NIST's certified digits where the mean is large beside the
deviation, and unlearning would leave its rounding behind. Sums and products come with their exact
rounding errors (Dekker 1971, Knuth), by plain operations, as a fused multiply-add is not to be had
everywhere. Numbers up to 1e60 and sums of weights up to 1e170 stay in range.

Cost: about a hundred additions and multiplications and two divisions a value, once for its class
and once for all classes together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import I64, F64Grid, RowUpdates
from streamnb.kernels.posterior import DUST, add_weight, multiply_scaled

_SPLIT = 134217729.0  # 2²⁷ + 1: cuts a float into halves of 26 bits
# Shares that are rounding alone once values are taken away. Two floats have 106 bits, of which sums
# of a few hundred values lose some. A larger share of M2 would take the spread of what is left for
# rounding where a far larger value was taken back.
_M2_REST = 2.0**-95
_MEAN_REST = 2.0**-80
_LAST_DIGIT = 2.0**-52


class Moments(NamedTuple):
    """Sufficient statistics of numbers, by class and field.

    Row 0 is of all classes together, row 1 + c of class c. Where n is 0, all others are.
    """

    n: F64Grid  # (1 + n_classes, n_fields): the sum of weights
    mean: F64Grid
    mean_low: F64Grid  # what `mean` rounds off
    m2: F64Grid
    m2_low: F64Grid


@inner
def quick_sum(a: float, b: float) -> tuple[float, float]:
    """Return a + b and its rounding error, where |a| ≥ |b|."""
    s = a + b
    return s, b - (s - a)


@inner
def two_sum(a: float, b: float) -> tuple[float, float]:
    """Return a + b and its rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@inner
def two_product(a: float, b: float) -> tuple[float, float]:
    """Return a·b and its rounding error."""
    p = a * b
    t = _SPLIT * a
    a_high = t - (t - a)
    a_low = a - a_high
    t = _SPLIT * b
    b_high = t - (t - b)
    b_low = b - b_high
    return p, ((a_high * b_high - p) + a_high * b_low + a_low * b_high) + a_low * b_low


@inner
def add(a: float, a_low: float, b: float, b_low: float) -> tuple[float, float]:
    """Return the sum of two numbers of two floats each."""
    s, e = two_sum(a, b)
    return quick_sum(s, e + (a_low + b_low))


@inner
def times(a: float, a_low: float, n: float) -> tuple[float, float]:
    """Return a number of two floats n times."""
    p, p_low = two_product(a, n)
    return p, p_low + a_low * n


@inner
def divided(p: float, p_low: float, total: float) -> tuple[float, float]:
    """Return a number of two floats by a float, in two steps."""
    q = p / total
    t, t_low = two_product(q, total)
    return quick_sum(q, (((p - t) - t_low) + p_low) / total)


@inner
def put(
    held: Moments, r: int, j: int, n: float, mean: float, mean_low: float, m2: float, m2_low: float
) -> None:
    """Set one entry."""
    held.n[r, j] = n
    held.mean[r, j] = mean
    held.mean_low[r, j] = mean_low
    held.m2[r, j] = m2
    held.m2_low[r, j] = m2_low


@inner
def rounding_of(m2: float, n: float, mean: float) -> float:
    """Return what rounding alone may leave of M2 where values are taken away.

    It is a share of what M2 was, or what n values would have that differ from their mean by no more
    than a last digit. Left standing, it would be a variance: that of equal values, where there is
    none, and all predictions would hang on it.
    """
    return max(m2 * _M2_REST, n * (mean * _LAST_DIGIT) * (mean * _LAST_DIGIT))


@inner
def mean_of_equals(mean: float, left: float, held: float, taken: float) -> float:
    """Return the mean of values that are all the same, once others have been taken away.

    It is the value itself: one float, without what rounding adds in the second, and 0 if it is no
    more than rounding alone may leave. `left` is their weight, `held` and `taken` are n·mean of all
    and of the others. Left standing, the rest would make the only value known an impossible one.
    """
    return 0.0 if np.abs(mean) * left <= (np.abs(held) + np.abs(taken)) * _MEAN_REST else mean


@inner
def absorb(
    held: Moments,
    r: int,
    j: int,
    n: float,
    mean: float,
    mean_low: float,
    m2: float,
    m2_low: float,
    decays: bool,
) -> bool:
    """Take up a set of values, or take it away where `n` and `m2` are below zero.

    Returns whether it could be: False where more weight is taken away than was there. What is left
    at no weight is nothing, bit for bit.
    """
    n_held = held.n[r, j]
    total = add_weight(n_held, n, decays)
    if n_held == 0.0 and n > 0.0:
        put(held, r, j, n, mean, mean_low, m2, m2_low)
        return True
    fits = bool(n >= 0.0 or n_held + n >= DUST * n)
    if total == 0.0:
        put(held, r, j, 0.0, 0.0, 0.0, 0.0, 0.0)
        return fits
    # δ, how far the held mean moves (δ·n/total), and how far it stays from the other (what is left)
    d, d_low = add(mean, mean_low, -held.mean[r, j], -held.mean_low[r, j])
    p, p_low = times(d, d_low, n)
    if 0.0 < n_held < n:
        # The lighter set's share is worked out: of the heavier one's it would be a last digit.
        rest, rest_low = divided(*times(d, d_low, n_held), total)
        new_mean, new_low = add(mean, mean_low, -rest, -rest_low)
    else:
        q, q_low = divided(p, p_low, total)
        rest, rest_low = add(d, d_low, -q, -q_low)
        new_mean, new_low = add(held.mean[r, j], held.mean_low[r, j], q, q_low)
    # M2 grows by M2_b + n·δ·rest
    g, g_low = two_product(p, rest)
    g_low += p * rest_low + p_low * rest
    g, g_low = add(g, g_low, m2, m2_low)
    grown, grown_low = add(held.m2[r, j], held.m2_low[r, j], g, g_low)
    if n < 0.0 and grown <= rounding_of(held.m2[r, j], total, new_mean):
        grown, grown_low = 0.0, 0.0  # or below zero: all that was apart has been taken away
        new_mean = mean_of_equals(new_mean, total, n_held * held.mean[r, j], n * mean)
        new_low = 0.0
    put(held, r, j, total, new_mean, new_low, grown, grown_low)
    return fits


@inner
def learn_row(
    held: Moments, x: F64Grid, places: I64, i: int, y: int, weight: float, decays: bool
) -> int:
    """Learn row `i` of class `y`; return the column that could not be taken away, or -1."""
    misfit = -1
    for t in range(len(places)):
        value = x[i, t]
        j = places[t]
        if j >= 0 and not np.isnan(value):
            fits = absorb(held, 1 + y, j, weight, value, 0.0, 0.0, 0.0, decays)
            absorb(held, 0, j, weight, value, 0.0, 0.0, 0.0, decays)
            if not fits and misfit < 0:
                misfit = t
    return misfit


@kernel
def learn(held: Moments, x: F64Grid, places: I64, updates: RowUpdates) -> int:
    """Learn rows that have a label; column t of `x` is the field at `places[t]`, -1: ignored.

    Returns the first column from which more was taken away than was there, or -1.
    """
    labels, weights, _, _, _, decays = updates
    misfit = -1
    for i in range(len(labels)):
        if labels[i] >= 0:
            found = learn_row(held, x, places, i, labels[i], weights[i], decays)
            if misfit < 0:
                misfit = found
    return misfit


@kernel
def add_moments(
    held: Moments, other: Moments, rows: I64, columns: I64, factor: float, decays: bool
) -> int:
    """Add other moments, weighed by `factor`: a power of two, below zero to take them away.

    Row r of `other` goes to `rows[r]`, its column j to `columns[j]`. Returns the first of its
    columns from which more was taken away than was there, or -1.
    """
    misfit = -1
    for j in range(len(columns)):
        for r in range(len(rows)):
            if other.n[r, j] > 0.0:
                fits = absorb(
                    held,
                    rows[r],
                    columns[j],
                    factor * other.n[r, j],
                    other.mean[r, j],
                    other.mean_low[r, j],
                    factor * other.m2[r, j],
                    factor * other.m2_low[r, j],
                    decays,
                )
                if not fits and misfit < 0:
                    misfit = j
    return misfit


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


class GaussianOptions(NamedTuple):
    """The prior, and how estimates are made."""

    prior: Prior  # of no fields if there is none
    is_bayes: bool
    is_shared: bool  # whether all classes have one variance a field
    is_open: bool  # whether a field that no class has seen says nothing, whatever the prior
    floor_share: float  # of the largest variance, added to each; 0 with a prior


class Estimates(NamedTuple):
    """What predictions need, by class and field: a pure function of moments and prior."""

    base: F64Grid  # (n_classes, n_fields): m, in two floats
    shift: F64Grid
    spread: F64Grid  # variance without the floor, or s²
    # Student's a; 0 where the field says nothing. By maximum likelihood 1; 0 where nothing varies,
    # so that without a floor the field says nothing.
    shape: F64Grid


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
    """Set one field's maximum-likelihood estimates.

    A class without a value has those of all classes together (a shared variance is its own too):
    the likelihood of no data is undefined and not zero, and one value of a field that came late
    would else prove another class.
    """
    n_classes = len(estimates.spread)
    n, m2 = 0.0, 0.0
    for c in range(n_classes):
        n += moments.n[1 + c, j]
        m2 += moments.m2[1 + c, j]
    varies = 1.0 if m2 > 0.0 or moments.m2[0, j] > 0.0 else 0.0
    for c in range(n_classes):
        own = 1 + c if moments.n[1 + c, j] > 0.0 else 0  # row 0 has all classes
        estimates.shape[c, j] = varies
        estimates.base[c, j] = moments.mean[own, j]
        estimates.shift[c, j] = moments.mean_low[own, j]
        if not shared:
            n = moments.n[own, j]
            m2 = moments.m2[own, j]
        estimates.spread[c, j] = m2 / n if n > 0.0 else 0.0


@inner
def estimate_bayes(
    moments: Moments, estimates: Estimates, options: GaussianOptions, scale: float, j: int
) -> None:
    """Set one field's posterior predictive under a normal–inverse-gamma prior."""
    prior = options.prior
    n_classes = len(estimates.spread)
    n_all = moments.n[0, j]
    variance = moments.m2[0, j] / n_all if n_all > 0.0 else 0.0
    n_sum, b_sum = 0.0, 0.0
    for c in range(n_classes):
        m0, beta = prior.mean[c, j], prior.beta[c, j]
        is_unseen = n_all == 0.0 and (options.is_open or np.isnan(m0))
        if is_unseen or (np.isnan(beta) and variance == 0.0):
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
        # m lies between the mean and m₀: computed from the nearer one it keeps its digits.
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
    if not options.is_shared:
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
    moments: Moments, estimates: Estimates, options: GaussianOptions, scale: float, j: int
) -> None:
    """Set one field's estimates."""
    if options.is_bayes:
        estimate_bayes(moments, estimates, options, scale, j)
    else:
        estimate_plain(moments, estimates, options.is_shared, j)


@inner
def estimate_places(
    moments: Moments, estimates: Estimates, options: GaussianOptions, scale: float, places: I64
) -> float:
    """Set the estimates of the fields at `places`; return the variance floor."""
    for t in range(len(places)):
        if places[t] >= 0:
            estimate(moments, estimates, options, scale, places[t])
    return 0.0 if options.is_bayes else floor_of(moments, options.floor_share)


@inner
def log_normal(
    moments: Moments, estimates: Estimates, floor: float, x: F64Grid, places: I64, i: int, c: int
) -> float:
    """Return row `i`'s log-likelihood in class `c` by maximum likelihood."""
    squares, product, logs = 0.0, 1.0, 0.0
    n_fields = 0
    for t in range(len(places)):
        j = places[t]
        if j < 0 or np.isnan(x[i, t]) or moments.n[0, j] == 0.0:
            continue
        if floor == 0.0 and estimates.shape[c, j] == 0.0:
            continue  # always one value: another would be impossible in all classes alike
        d = (x[i, t] - estimates.base[c, j]) - estimates.shift[c, j]
        v = estimates.spread[c, j] + floor
        if v > 0.0:
            squares += d * d / v
            product, logs = multiply_scaled(product, v, logs)
            n_fields += 1
        elif d != 0.0:
            return -np.inf
    return float(-0.5 * (squares + (logs + np.log(product)) + n_fields * _LOG_2PI))


@inner
def log_student(estimates: Estimates, x: F64Grid, places: I64, i: int, c: int) -> float:
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
        product, logs = multiply_scaled(product, s2, logs)
        n_fields += 1
    total -= (a + 0.5) * np.log1p(grown)
    return float(total - 0.5 * ((logs + np.log(product)) + n_fields * _LOG_2PI))


@kernel
def gaussian(
    moments: Moments,
    options: GaussianOptions,
    x: F64Grid,
    places: I64,
    updates: RowUpdates,
    learn: bool,
    estimates: Estimates,
    out: F64Grid,
) -> None:
    """Add each row's log-likelihood to `out`, then learn the row if it has a label.

    Column t of `x` is the field at `places[t]`, and is ignored where that is -1. `estimates` is
    room.
    """
    labels, weights, scales, _, _, decays = updates
    scale = scales[0] if len(scales) else 1.0
    floor = estimate_places(moments, estimates, options, scale, places)
    for i in range(len(labels)):
        if options.is_bayes and scales[i] != scale:
            scale = scales[i]
            estimate_places(moments, estimates, options, scale, places)
        for c in range(out.shape[1]):
            if options.is_bayes:
                out[i, c] += log_student(estimates, x, places, i, c)
            else:
                out[i, c] += log_normal(moments, estimates, floor, x, places, i, c)
        if learn and labels[i] >= 0:
            learn_row(moments, x, places, i, labels[i], weights[i], decays)
            floor = estimate_places(moments, estimates, options, scale, places)


@kernel
def read_estimates(
    moments: Moments, options: GaussianOptions, scale: float, estimates: Estimates
) -> float:
    """Set all fields' estimates as `gaussian` has them; return the variance floor."""
    for j in range(moments.n.shape[1]):
        estimate(moments, estimates, options, scale, j)
    return 0.0 if options.is_bayes else floor_of(moments, options.floor_share)
