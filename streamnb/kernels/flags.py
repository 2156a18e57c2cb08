"""Bernoulli likelihood of flags: Σ_j x_j·log θ_jc + (1−x_j)·log(1−θ_jc).

θ_jc = (N_jc + β₁) / (n_jc + β₁ + β₂), N_jc being the weight of class c's examples in which flag j
was true, and n_jc of those in which it was there. A missing flag says nothing; or, if the group
says so, it counts as false, and n_jc is N_c. A flag says nothing where no class has learned any of
it and nothing is known of it beforehand; otherwise a class that has learned nothing of it, and has
no prior, is impossible. Cost: one division a flag and class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import F64, I64, F64Grid, Flags, Int, RowUpdates
from streamnb.kernels.posterior import (
    add_log_products,
    add_weight,
    multiply_probability,
    start_products,
)


class FlagCounts(NamedTuple):
    """Sufficient statistics of a group of flags."""

    true: F64Grid  # (n_fields, n_classes): N_jc
    false: F64Grid  # (n_fields, n_classes): n_jc − N_jc; zero where absence means false
    examples: F64  # (n_classes,): N_c


class Betas(NamedTuple):
    """The prior, and what is known of the fields."""

    present: F64Grid  # β₁: (1, n_classes), or a row a field
    absent: F64Grid  # β₂
    is_open: Flags  # (1,): fields come as they please
    absent_is_false: Flags  # (1,)


@inner
def false_of(counts: FlagCounts, betas: Betas, j: Int, c: Int) -> float:
    """Return n_jc − N_jc."""
    if betas.absent_is_false[0]:
        return float(max(counts.examples[c] - counts.true[j, c], 0.0))
    return float(counts.false[j, c])


@inner
def is_silent(counts: FlagCounts, betas: Betas, j: Int) -> bool:
    """Tell whether nothing is known of a flag, by counts or prior.

    An open group that takes absence for false knows a flag by the examples where it was true.
    """
    row = j if len(betas.present) > 1 else 0
    has_empty = betas.is_open[0]
    for c in range(counts.true.shape[1]):
        if counts.true[j, c] != 0.0:
            return False
        if not (betas.is_open[0] and betas.absent_is_false[0]):
            if false_of(counts, betas, j, c) != 0.0:
                return False
            has_empty |= betas.present[row, c] + betas.absent[row, c] == 0.0
    return bool(has_empty)


@inner
def add_log_likelihood(
    counts: FlagCounts,
    betas: Betas,
    x: F64Grid,
    places: I64,
    i: Int,
    scale: float,
    products: F64Grid,
    out: F64Grid,
) -> None:
    """Add the log-likelihood of row `i` to `out[i]`, flag after flag."""
    start_products(products)
    for t in range(len(places)):
        j, value = places[t], x[i, t]
        if j < 0 or (np.isnan(value) and not betas.absent_is_false[0]):
            continue
        if is_silent(counts, betas, j):
            continue
        row = j if len(betas.present) > 1 else 0
        for c in range(len(products)):
            true = counts.true[j, c] + betas.present[row, c] * scale
            false = false_of(counts, betas, j, c) + betas.absent[row, c] * scale
            bottom = true + false
            top = true if value == 1.0 else false
            multiply_probability(products, c, top / bottom if bottom > 0.0 else 0.0)
    add_log_products(products, out, i)


@inner
def learn_row(
    counts: FlagCounts, betas: Betas, x: F64Grid, places: I64, i: Int, y: Int, weight: float
) -> None:
    """Add row `i` to the counts of class `y`, or take it away if the weight is below zero."""
    counts.examples[y] = add_weight(counts.examples[y], weight)
    for t in range(len(places)):
        j = places[t]
        if j >= 0 and x[i, t] == 1.0:
            counts.true[j, y] = add_weight(counts.true[j, y], weight)
        elif j >= 0 and x[i, t] == 0.0 and not betas.absent_is_false[0]:
            counts.false[j, y] = add_weight(counts.false[j, y], weight)


@kernel
def learn(counts: FlagCounts, betas: Betas, x: F64Grid, places: I64, updates: RowUpdates) -> None:
    """Learn the rows that have a label."""
    labels, weights, _ = updates
    for i in range(len(labels)):
        if labels[i] >= 0:
            learn_row(counts, betas, x, places, i, labels[i], weights[i])


@kernel
def flags(
    counts: FlagCounts,
    betas: Betas,
    x: F64Grid,
    places: I64,
    updates: RowUpdates,
    learn: bool,
    products: F64Grid,
    out: F64Grid,
) -> None:
    """Add each row's log-likelihood to `out`, then learn the row if it has a label.

    `x` (n, n_columns) has 1, 0, or nan where a flag is missing; column t is the flag at
    `places[t]`, and is ignored where that is -1. `products` has a row of two for each class.
    """
    labels, weights, scales = updates
    for i in range(len(labels)):
        add_log_likelihood(counts, betas, x, places, i, scales[i], products, out)
        if learn and labels[i] >= 0:
            learn_row(counts, betas, x, places, i, labels[i], weights[i])
