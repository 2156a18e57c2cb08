"""Categorical likelihood: Σ_j log θ_jvc with θ_jvc = (N_jvc + α) / (N_jc + α·e_j).

v is the row's value of field j, N_jc the weight of class c's examples with that field, and e_j the
number of its values: those with a count above zero, or those declared. A value never seen has
N_jvc = 0. A field says nothing where no class has learned any of it and nothing is known of it
beforehand; otherwise a class that has learned nothing of it, and has no prior, is impossible.
Cost: one division a field and class.
"""

from __future__ import annotations

from typing import NamedTuple

from numba import types

from streamnb.kernels._jit import inner, kernel
from streamnb.kernels.counting import ADDED, FULL, is_new
from streamnb.kernels.layout import F64, I32, I64, F64Grid, I32Grid, Int, compiled_type
from streamnb.kernels.posterior import moved
from streamnb.kernels.products import add_logs, begin, multiply
from streamnb.kernels.values import MISSING


class ValueCounts(NamedTuple):
    """Sufficient statistics of a group of categories."""

    by_value: F64Grid  # (capacity, n_classes): N_jvc by the value's column
    seen: F64Grid  # (n_fields, n_classes): N_jc
    n_values: I64  # (n_fields,): values of a field with a count above zero
    state: I64  # how many there are in all open fields


class Alphas(NamedTuple):
    """The prior, and the sizes it is spread over."""

    by_value: F64Grid  # (1, n_classes), or a row for each declared value, by column
    sums: F64  # (n_classes,): over the declared values, where they have a row each
    declared: I64  # (n_fields,): e_j where it is declared, else 0


@inner
def bottom_of(counts: ValueCounts, alphas: Alphas, j: Int, c: Int, scale: float) -> float:
    """Return N_jc + α·e_j."""
    if len(alphas.by_value) > 1:
        total = alphas.sums[c]
    else:
        e = alphas.declared[j] if alphas.declared[j] > 0 else counts.n_values[j]
        total = alphas.by_value[0, c] * e
    return float(counts.seen[j, c] + total * scale)


@inner
def is_silent(counts: ValueCounts, alphas: Alphas, j: Int) -> bool:
    """Tell whether nothing is known of a field, by counts or prior."""
    has_empty = alphas.declared[j] == 0
    for c in range(counts.seen.shape[1]):
        if counts.seen[j, c] != 0.0:
            return False
        has_empty |= bottom_of(counts, alphas, j, c, 1.0) == 0.0
    return bool(has_empty)


@inner
def add_log_likelihood(
    counts: ValueCounts,
    alphas: Alphas,
    order: I64,
    columns: I32Grid,
    i: Int,
    scale: float,
    products: F64Grid,
    out: F64Grid,
) -> None:
    """Add Σ_j log θ_jvc of row `i` to `out[i]`, field after field in `order`."""
    begin(products)
    has_rows = len(alphas.by_value) > 1
    for o in range(len(order)):
        j = order[o]
        column = columns[i, j]
        if column == MISSING or is_silent(counts, alphas, j):
            continue
        for c in range(len(products)):
            top = alphas.by_value[column if has_rows else 0, c] * scale
            if column >= 0:
                top += counts.by_value[column, c]
            bottom = bottom_of(counts, alphas, j, c, scale)
            multiply(products, c, top / bottom if bottom > 0.0 else 0.0)
    add_logs(products, out, i)


@inner
def count_new(counts: ValueCounts, alphas: Alphas, columns: I32Grid, i: Int) -> int:
    """Return how many values of row `i`, those of declared fields aside, stand at zero."""
    n_new = 0
    for j in range(columns.shape[1]):
        if columns[i, j] >= 0 and alphas.declared[j] == 0:
            n_new += is_new(counts.by_value, columns[i, j])
    return n_new


@inner
def learn_row(
    counts: ValueCounts, alphas: Alphas, columns: I32Grid, i: Int, y: Int, weight: float
) -> None:
    """Add row `i` to the counts of class `y`, or take it away where the weight is below zero."""
    for j in range(columns.shape[1]):
        column = columns[i, j]
        if column < 0:
            continue
        was_new = is_new(counts.by_value, column)
        counts.by_value[column, y] = moved(counts.by_value[column, y], weight)
        counts.seen[j, y] = moved(counts.seen[j, y], weight)
        change = int(was_new) - int(is_new(counts.by_value, column))
        counts.n_values[j] += change
        if alphas.declared[j] == 0:
            counts.state[0] += change


@kernel(
    types.UniTuple(types.int64, 3),
    compiled_type(ValueCounts),
    compiled_type(Alphas),
    types.int64[::1],
    types.int32[:, ::1],
    types.int32[::1],
    types.float64[::1],
    types.float64[::1],
    types.int64,
    types.int64,
    types.boolean,
    types.int64,
    types.float64[:, ::1],
    types.float64[:, ::1],
)
def categorical(
    counts: ValueCounts,
    alphas: Alphas,
    order: I64,
    columns: I32Grid,
    labels: I32,
    weights: F64,
    scales: F64,
    row: int,
    n_judged: int,
    learn: bool,
    n_values_max: int,
    products: F64Grid,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Add each row's log-likelihood to `out`, then learn the row where it has a label.

    `columns` (n, n_fields) has each value's column, -1 where it was never seen and -2 where it is
    missing. `products` has a row of two for each class. Rows before `n_judged` have their
    log-likelihood already. Returns where it stopped, why (`counting.ADDED` or `FULL`), and how many
    new values that row has; the row it stops at has been judged and not learned.
    """
    for i in range(row, len(labels)):
        if i >= n_judged:
            add_log_likelihood(counts, alphas, order, columns, i, scales[i], products, out)
        if learn and labels[i] >= 0:
            if weights[i] > 0.0:
                n_new = count_new(counts, alphas, columns, i)
                v = counts.state[0]
                if n_new > 0 and v > 0 and v + n_new > n_values_max:
                    return i, FULL, n_new
            learn_row(counts, alphas, columns, i, labels[i], weights[i])
    return len(labels), ADDED, 0
