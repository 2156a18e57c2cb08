"""Complement naive Bayes of words: each class is known by the words of all the others.

θ̃_cj = (N_j − N_jc + α)/(N_· − N_·c + α·V), and a text adds −Σ_j x_j·log θ̃_cj to class c (Rennie,
Shih, Teevan and Karger 2003). Cost: one multiplication a word and class, as for multinomial.

With normalised weights a class's sum is divided by Σ_j |log θ̃_cj|, which runs over the whole
vocabulary. With D_c for the denominator it is V·log D_c − Σ_j log(N_j − N_jc + α), and the last sum
is kept while the counts move: each word adds the whole number nearest to log(…)·2⁵², held in two
integers. So it is a **pure function of the counts**, whatever order they came in, and a model that
was restored, merged or unlearned answers bit for bit as one that was always so.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels.counting import (
    ADDED,
    FULL,
    count_new,
    has_no_room,
    is_new,
    is_unknown,
    learn_row,
    leave_out_short,
    prefetch_row,
    vocabulary_size,
)
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import (
    DECLARED,
    F64,
    LIVE,
    Counts,
    F64Grid,
    Flags,
    I64Grid,
    Int,
    Rows,
    RowUpdates,
    RunOptions,
)
from streamnb.kernels.posterior import add_weight, log_product, multiply_power, start_products

_UNIT = 2.0**52  # |log| < 746 for every float64, so a term stays below 2⁶²
_LOW_BITS = 32  # of a term, summed apart: neither sum overflows below 2³¹ words
_LOW_MASK = (1 << _LOW_BITS) - 1
UNITS = np.array([2.0**_LOW_BITS / _UNIT, 1.0 / _UNIT])  # of the two integers of a sum
OTHERS = 2  # its place in a class's row of scratch memory, behind product and log-scale


@inner
def sum_others(values: F64, scratch: F64Grid) -> None:
    """Write each class's sum over the other classes; nothing is subtracted, so nothing is lost."""
    n_classes = len(values)
    before = 0.0
    for c in range(n_classes):
        scratch[c, OTHERS] = before
        before += values[c]
    after = 0.0
    for c in range(n_classes - 1, -1, -1):
        scratch[c, OTHERS] += after
        after += values[c]


@inner
def enter_word(
    counts: Counts, alphas: F64Grid, column: Int, sign: int, skipped: int, scratch: F64Grid,
    sums: I64Grid,
) -> None:  # fmt: skip
    """Add a word's log(N_j − N_jc + α) to every class but `skipped`, or take it away."""
    own = column if alphas.shape[0] > 1 else np.int64(0)
    sum_others(counts.by_word[column], scratch)
    for c in range(counts.by_word.shape[1]):
        if c != skipped:
            term = np.int64(np.rint(np.log(scratch[c, OTHERS] + alphas[own, c]) * _UNIT))
            sums[c, 0] += sign * (term >> _LOW_BITS)
            sums[c, 1] += sign * (term & _LOW_MASK)


@inner
def sum_of_logs(sums: I64Grid, c: int) -> float:
    """Return Σ_j log(N_j − N_jc + α) over the vocabulary."""
    return float(sums[c, 0] * UNITS[0] + sums[c, 1] * UNITS[1])


@kernel
def rebuild(counts: Counts, alphas: F64Grid, n_words: int, scratch: F64Grid, sums: I64Grid) -> None:
    """Rebuild the sums from the counts."""
    sums[:, :] = 0
    declared = counts.state[DECLARED]
    for column in range(declared if declared > 0 else n_words):
        if not is_unknown(counts, column):
            enter_word(counts, alphas, column, 1, -1, scratch, sums)


@inner
def follow_row(
    counts: Counts,
    alphas: F64Grid,
    rows: Rows,
    i: int,
    y: int,
    weight: float,
    decays: bool,
    scratch: F64Grid,
    sums: I64Grid,
) -> None:
    """Add row `i` to the counts of class `y` as `learn_row` does; the sums follow word by word."""
    counts.examples[y] = add_weight(counts.examples[y], weight, decays)
    n_tokens = 0.0
    if weight < 0.0:
        leave_out_short(counts.by_word, rows, i, y, weight, decays)
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if column < 0:
            continue
        was_known = not is_unknown(counts, column)
        was_new = is_new(counts.by_word, column)
        old = counts.by_word[column, y]
        new = add_weight(old, weight * rows.counts[at], decays)
        counts.by_word[column, y] = new
        is_known = not is_unknown(counts, column)
        counts.state[LIVE] += np.int64(was_new) - np.int64(is_new(counts.by_word, column))
        # Its own class's sum speaks of the others alone: it stays unless the word comes or goes.
        skipped = y if was_known and is_known else -1
        if was_known:
            counts.by_word[column, y] = old
            enter_word(counts, alphas, np.int64(column), -1, skipped, scratch, sums)
            counts.by_word[column, y] = new
        if is_known:
            enter_word(counts, alphas, np.int64(column), 1, skipped, scratch, sums)
        n_tokens += rows.counts[at]
    counts.tokens[y] = add_weight(counts.tokens[y], weight * n_tokens, decays)


@inner
def add_log_likelihood(
    counts: Counts,
    alphas: F64Grid,
    alpha_sums: F64,
    normalise: bool,
    sums: I64Grid,
    scale: float,
    rows: Rows,
    i: int,
    scratch: F64Grid,
    out: F64Grid,
) -> None:
    """Add −Σ_j x_j·log θ̃_cj over the known words of row `i` to `out[i]`."""
    n_classes = counts.by_word.shape[1]
    v = vocabulary_size(counts)
    if n_classes == 1 or (normalise and v < 2):
        return  # no other class to learn from; or one word, whose weight is zero in every class
    one_each = alphas.shape[0] > 1  # a prior for each word
    n_tokens = 0.0
    start_products(scratch)
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if is_unknown(counts, column):
            continue
        times = rows.counts[at]
        n_tokens += times
        own = column if one_each else np.int32(0)
        sum_others(counts.by_word[column], scratch)
        for c in range(n_classes):
            factor = scratch[c, OTHERS] + alphas[own, c] * scale
            multiply_power(scratch, c, factor, times)
    if n_tokens == 0.0:
        return
    sum_others(counts.tokens, scratch)
    for c in range(n_classes):
        alpha_sum = alpha_sums[c] if one_each else alphas[0, c] * v
        log_denominator = np.log(scratch[c, OTHERS] + alpha_sum * scale)
        score = n_tokens * log_denominator - log_product(scratch, c)
        if normalise:
            score /= v * log_denominator - sum_of_logs(sums, c)
        out[i, c] += score


@kernel
def complement(
    counts: Counts,
    alphas: F64Grid,
    alpha_sums: F64,
    normalise: bool,
    sums: I64Grid,
    rows: Rows,
    present: Flags,
    updates: RowUpdates,
    options: RunOptions,
    scratch: F64Grid,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Add each row's score to `out`, then learn the row if it has a label.

    `alphas` and `alpha_sums` are as for multinomial; `sums` has two integers a class and follows
    the counts if `normalise`; `scratch` has a row of three a class.
    Returns where it stopped, why, and how many new words that row has.
    """
    labels, weights, scales, _, _, decays = updates
    for i in range(options.row, len(labels)):
        prefetch_row(counts, rows, i + 1)
        if not present[i]:
            continue
        is_taken = weights[i] < 0.0
        if i >= options.n_predicted and not is_taken:
            add_log_likelihood(
                counts, alphas, alpha_sums, normalise, sums, scales[i], rows, i, scratch, out
            )
        if options.learn and labels[i] >= 0:
            n_new = 0 if is_taken else count_new(counts.by_word, rows, i)
            if has_no_room(counts, n_new, options.n_max):
                return i, FULL, n_new
            if normalise:
                y, weight = labels[i], weights[i]
                follow_row(counts, alphas, rows, i, y, weight, decays, scratch, sums)
            else:
                learn_row(counts, rows, i, labels[i], weights[i], n_new, decays)
    return len(labels), ADDED, 0
