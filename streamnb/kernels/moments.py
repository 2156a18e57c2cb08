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
from numba import types

from streamnb.kernels._jit import inner, kernel
from streamnb.kernels.layout import F64, I32, I64, F64Grid, compiled_type
from streamnb.kernels.posterior import DUST, moved

_SPLIT = 134217729.0  # 2²⁷ + 1: cuts a float into halves of 26 bits
_REST = 2.0**-95  # two floats have 106 bits; sums of a few hundred values lose some of them
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
    none, and all judging by them would hang on it.
    """
    return max(m2 * _REST, n * (mean * _LAST_DIGIT) * (mean * _LAST_DIGIT))


@inner
def absorb(
    held: Moments, r: int, j: int, n: float, mean: float, mean_low: float, m2: float, m2_low: float
) -> bool:
    """Take up a set of values, or take it away where `n` and `m2` are below zero.

    Returns whether it could be: False where more weight is taken away than was there. What is left
    at no weight is nothing, bit for bit.
    """
    n_held = held.n[r, j]
    total = moved(n_held, n)
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
        moved_mean, moved_low = add(mean, mean_low, -rest, -rest_low)
    else:
        q, q_low = divided(p, p_low, total)
        rest, rest_low = add(d, d_low, -q, -q_low)
        moved_mean, moved_low = add(held.mean[r, j], held.mean_low[r, j], q, q_low)
    # M2 grows by M2_b + n·δ·rest
    g, g_low = two_product(p, rest)
    g_low += p * rest_low + p_low * rest
    g, g_low = add(g, g_low, m2, m2_low)
    grown, grown_low = add(held.m2[r, j], held.m2_low[r, j], g, g_low)
    if n < 0.0 and grown <= rounding_of(held.m2[r, j], total, moved_mean):
        grown, grown_low = 0.0, 0.0  # or below zero: all that was apart has been taken away
    put(held, r, j, total, moved_mean, moved_low, grown, grown_low)
    return fits


@inner
def learn_row(held: Moments, x: F64Grid, places: I64, i: int, y: int, weight: float) -> int:
    """Learn row `i` of class `y`; return the column that could not be taken away, or -1."""
    misfit = -1
    for t in range(len(places)):
        value = x[i, t]
        j = places[t]
        if j >= 0 and not np.isnan(value):
            fits = absorb(held, 1 + y, j, weight, value, 0.0, 0.0, 0.0)
            absorb(held, 0, j, weight, value, 0.0, 0.0, 0.0)
            if not fits and misfit < 0:
                misfit = t
    return misfit


@kernel(
    types.int64,
    compiled_type(Moments),
    types.float64[:, ::1],
    types.int64[::1],
    types.int32[::1],
    types.float64[::1],
)
def learn(held: Moments, x: F64Grid, places: I64, labels: I32, weights: F64) -> int:
    """Learn rows that have a label; column t of `x` is the field at `places[t]`, -1: ignored.

    Returns the first column from which more was taken away than was there, or -1.
    """
    misfit = -1
    for i in range(len(labels)):
        if labels[i] >= 0:
            found = learn_row(held, x, places, i, labels[i], weights[i])
            if misfit < 0:
                misfit = found
    return misfit


@kernel(
    types.int64,
    compiled_type(Moments),
    compiled_type(Moments),
    types.int64[::1],
    types.int64[::1],
    types.float64,
)
def add_moments(held: Moments, other: Moments, rows: I64, columns: I64, factor: float) -> int:
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
                )
                if not fits and misfit < 0:
                    misfit = j
    return misfit
