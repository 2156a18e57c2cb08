"""Multinomial likelihood of words: Σ_j x_j·log θ_jc with θ_jc = (N_jc + α) / (N_·c + α·V).

The factors N_jc + α are multiplied and their logarithm taken once, which is faster than a logarithm
for each and loses less. The coefficient m!/∏x_j!, the same for all classes, is left out. Cost: one
multiplication a word and class.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels.counting import (
    ADDED,
    FULL,
    count_new,
    has_no_room,
    is_unknown,
    learn_row,
    prefetch_row,
    vocabulary_size,
)
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import (
    DECLARED,
    F64,
    Counts,
    F64Grid,
    Flags,
    Rows,
    RowUpdates,
    RunOptions,
)
from streamnb.kernels.posterior import log_product, multiply_power, start_products


@inner
def add_log_likelihood(
    counts: Counts,
    alphas: F64Grid,
    alpha_sums: F64,
    scale: float,
    rows: Rows,
    i: int,
    products: F64Grid,
    out: F64Grid,
) -> int:
    """Add Σ_j x_j·log θ_jc over the known words of row `i` to `out[i]`.

    Returns how many words are unknown.
    """
    n_classes = counts.by_word.shape[1]
    one_each = alphas.shape[0] > 1  # a prior for each word
    n_tokens, n_unknown = 0.0, 0
    start_products(products)
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if is_unknown(counts, column):
            n_unknown += 1
            continue
        times = rows.counts[at]
        n_tokens += times
        own = column if one_each else np.int32(0)
        for c in range(n_classes):
            factor = counts.by_word[column, c] + alphas[own, c] * scale
            multiply_power(products, c, factor, times)
    if n_tokens == 0.0:
        return n_unknown
    v = vocabulary_size(counts)
    for c in range(n_classes):
        alpha_sum = alpha_sums[c] if one_each else alphas[0, c] * v
        denominator = counts.tokens[c] + alpha_sum * scale
        if denominator == 0.0:
            out[i, c] = -np.inf
        else:
            out[i, c] += log_product(products, c) - n_tokens * np.log(denominator)
    return n_unknown


@kernel
def multinomial(
    counts: Counts,
    alphas: F64Grid,
    alpha_sums: F64,
    rows: Rows,
    present: Flags,
    updates: RowUpdates,
    options: RunOptions,
    products: F64Grid,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Add each row's log-likelihood to `out`, then learn the row where it has a label.

    `alphas` has one row for all words, or one for each declared word, then with its sum by class in
    `alpha_sums`; `products` has a row of two for each class.
    Returns where it stopped, why, and how many new words that row has, which has been predicted and
    not learned.
    """
    labels, weights, scales, _, _, decays = updates
    for i in range(options.row, len(labels)):
        prefetch_row(counts, rows, i + 1)
        if not present[i]:
            continue
        is_taken = weights[i] < 0.0  # back, so that nobody asks what it is
        n_new = 0 if is_taken else -1
        if i >= options.n_predicted and not is_taken:
            n_new = add_log_likelihood(
                counts, alphas, alpha_sums, scales[i], rows, i, products, out
            )
        if options.learn and labels[i] >= 0:
            # Declared words at zero are known.
            if n_new < 0 or (counts.state[DECLARED] > 0 and not is_taken):
                n_new = count_new(counts.by_word, rows, i)
            if has_no_room(counts, n_new, options.n_max):
                return i, FULL, n_new
            learn_row(counts, rows, i, labels[i], weights[i], n_new, decays)
    return len(labels), ADDED, 0
