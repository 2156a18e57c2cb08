"""Slow, plain twins of the moments and the Gaussian family: fractions, and fifty digits.

A value learned is a row of (value, weight, class) in a list; nothing is updated. Moments are sums
over the list in exact fractions, and likelihoods are the textbook's formulas in mpmath.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import mpmath

DIGITS = 50


class Seen(NamedTuple):
    """One number that was learned."""

    value: float
    weight: float
    label: int


class Exact(NamedTuple):
    """Exact moments."""

    n: Fraction
    mean: Fraction
    m2: Fraction


def moments(seen: Sequence[Seen]) -> Exact:
    """Return n, mean and M2 of values with weights; zeros of none."""
    n = sum((Fraction(each.weight) for each in seen), Fraction(0))
    if not n:
        return Exact(Fraction(0), Fraction(0), Fraction(0))
    mean = sum((Fraction(e.weight) * Fraction(e.value) for e in seen), Fraction(0)) / n
    m2 = sum((Fraction(e.weight) * (Fraction(e.value) - mean) ** 2 for e in seen), Fraction(0))
    return Exact(n, mean, m2)


def of_class(seen: Sequence[Seen], c: int) -> Exact:
    """Return one class's moments."""
    return moments([each for each in seen if each.label == c])


def to_mp(value: Fraction | float) -> Any:
    """Return a number with fifty digits."""
    exact = Fraction(value)
    return mpmath.mpf(exact.numerator) / mpmath.mpf(exact.denominator)


def plain(
    fields: Sequence[Sequence[Seen]],
    row: Sequence[float],
    n_classes: int,
    share: float,
    *,
    shared: bool = False,
) -> list[float]:
    """Return a row's log-likelihood by class, by maximum likelihood with a variance floor."""
    with mpmath.workdps(DIGITS):
        pooled = [moments(seen) for seen in fields]
        floor = Fraction(share) * max((p.m2 / p.n for p in pooled if p.n), default=Fraction(0))
        found = []
        for c in range(n_classes):
            total = mpmath.mpf(0)
            for seen, p, x in zip(fields, pooled, row, strict=True):
                if not math.isnan(x) and p.n and p.m2 + floor:
                    total += _plain_one(seen, x, c, n_classes, floor, shared=shared)
            found.append(float(total))
    return found


def _plain_one(
    seen: Sequence[Seen], x: float, c: int, n_classes: int, floor: Fraction, *, shared: bool
) -> Any:
    own = of_class(seen, c)
    if not own.n:
        own = moments(seen)
    all_classes = [of_class(seen, k) for k in range(n_classes)]
    n, m2 = own.n, own.m2
    if shared:
        n, m2 = sum(each.n for each in all_classes), sum(each.m2 for each in all_classes)  # type: ignore[assignment]
    v = m2 / n + floor
    d = Fraction(x) - own.mean
    if not v:
        return mpmath.mpf(0) if not d else mpmath.mpf("-inf")
    return -(to_mp(d * d / v) + mpmath.log(2 * mpmath.pi * to_mp(v))) / 2


class Nig(NamedTuple):
    """Normal–inverse-gamma prior on one field; None: from the data of all classes."""

    mean: float | None
    kappa: float
    alpha: float
    beta: float | None


def bayes(
    fields: Sequence[Sequence[Seen]],
    row: Sequence[float],
    n_classes: int,
    prior: Nig,
    *,
    shared: bool = False,
    scale: float = 1.0,
) -> list[float]:
    """Return a row's log-likelihood by class under Student's t; fields come as they please."""
    with mpmath.workdps(DIGITS):
        found = []
        for c in range(n_classes):
            total = mpmath.mpf(0)
            for seen, x in zip(fields, row, strict=True):
                p = moments(seen)
                has_scale = prior.beta is not None or p.m2
                if not math.isnan(x) and p.n and has_scale:
                    total += _student(seen, x, c, n_classes, prior, p, scale, shared=shared)
            found.append(float(total))
    return found


def _student(
    seen: Sequence[Seen],
    x: float,
    c: int,
    n_classes: int,
    prior: Nig,
    pooled: Exact,
    scale: float,
    *,
    shared: bool,
) -> Any:
    m0 = pooled.mean if prior.mean is None else Fraction(prior.mean)
    kappa, a = Fraction(prior.kappa), Fraction(prior.alpha)
    b = a * pooled.m2 / pooled.n if prior.beta is None else Fraction(prior.beta)
    own = of_class(seen, c)
    for k in range(n_classes) if shared else [c]:
        each = of_class(seen, k)
        n = each.n / Fraction(scale)
        a += n / 2
        b += each.m2 / Fraction(scale) / 2
        b += kappa * n * (each.mean - m0) ** 2 / (2 * (kappa + n))
    n = own.n / Fraction(scale)
    location = (kappa * m0 + n * own.mean) / (kappa + n)
    s2 = b * (kappa + n + 1) / (a * (kappa + n))
    half, nu = mpmath.mpf(1) / 2, to_mp(2 * a)
    d = to_mp(Fraction(x) - location)
    return (
        mpmath.loggamma(nu / 2 + half)
        - mpmath.loggamma(nu / 2)
        - mpmath.log(nu * mpmath.pi * to_mp(s2)) / 2
        - (nu + 1) / 2 * mpmath.log1p(d * d / (nu * to_mp(s2)))
    )
