"""Bernoulli likelihood of words, at a cost that does not grow with the vocabulary.

Σ_j x_j·log θ_jc + (1−x_j)·log(1−θ_jc) with θ_jc = (N_jc + β₁)/(N_c + β₁ + β₂) speaks of every word
there is. With M = N_c + β₂ it is

    Σ_{x_j=1} log[(N_jc + β₁)/(M − N_jc)]  +  A_c,      A_c = Σ_j log1p(−N_jc/M) − V·log1p(β₁/M)

and `absence` keeps what A_c is had from at once.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels.bernoulli_absent import exponent_of, move_count, rebuild_class, refresh
from streamnb.kernels.counting import (
    ADDED,
    FULL,
    count_new,
    has_no_room,
    is_unknown,
    prefetch_row,
    vocabulary_size,
)
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import (
    F64,
    LIVE,
    Absence,
    Counts,
    F64Grid,
    Flags,
    Rows,
    RowUpdates,
    RunOptions,
)
from streamnb.kernels.posterior import add_weight, log_product, multiply_power, start_products

CROWDED, STALE = 2, 3


@inner
def add_log_likelihood(
    counts: Counts,
    beta1: F64,
    beta2: F64,
    scale: float,
    rows: Rows,
    i: int,
    base: F64Grid,
    scratch: F64Grid,
    out: F64Grid,
) -> None:
    """Add Σ_j log p(x_j | c) over all words to `out[i]`; words not known say nothing."""
    n_classes = counts.by_word.shape[1]
    start_products(scratch)  # of the odds of the words that are there
    for c in range(n_classes):
        scratch[c, 2] = base[c, 1]  # certain words (N = M) that are missing
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if is_unknown(counts, column):
            continue
        for c in range(n_classes):
            count = counts.by_word[column, c]
            b1 = beta1[c] * scale
            rest = (counts.examples[c] - count) + beta2[c] * scale
            if rest <= 0.0:  # below nothing by what rounding left of fractional weights
                # θ = (N + β₁)/(N + β₁) = 1; A_c left it out but for its share of V·log1p(β₁/M).
                scratch[c, 2] -= 1.0
                scratch[c, 1] += np.log(count + b1) - np.log(count)
            else:
                multiply_power(scratch, c, (count + b1) / rest, 1.0)
    v = vocabulary_size(counts)
    for c in range(n_classes):
        if scratch[c, 2] > 0.0 or counts.examples[c] + beta2[c] == 0.0:
            out[i, c] = -np.inf
        else:
            out[i, c] += log_product(scratch, c) + (base[c, 0] - v * base[c, 2])


@inner
def learn_row(
    counts: Counts,
    beta2: float,
    absence: Absence,
    rows: Rows,
    i: int,
    y: int,
    weight: float,
    n_words: int,
) -> bool:
    """Add row `i` to class `y`, and follow every count that moves.

    False where the heavy words found no room, which happens only to counts that fall: the caller
    has the cache built anew.
    """
    counts.examples[y] = add_weight(counts.examples[y], weight)
    n_tokens = 0.0
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        old = counts.by_word[column, y]
        counts.by_word[column, y] = add_weight(old, weight * rows.counts[at])
        n_tokens += rows.counts[at]
        move_count(absence, y, old, counts.by_word[column, y])
    counts.tokens[y] = add_weight(counts.tokens[y], weight * n_tokens)
    if exponent_of(counts.examples[y] + beta2) != absence.exponents[y]:
        return rebuild_class(counts, beta2, absence, n_words, y)
    return True


@inner
def refresh_all(
    counts: Counts,
    beta1: F64,
    beta2: F64,
    scale: float,
    absence: Absence,
    n_words: int,
    base: F64Grid,
) -> bool:
    """Write what all classes' answers stand on; False where the cache must be built anew."""
    for c in range(counts.by_word.shape[1]):
        mass = beta2[c] * scale
        if exponent_of(counts.examples[c] + mass) != absence.exponents[c] and not rebuild_class(
            counts, mass, absence, n_words, c
        ):
            return False
        refresh(counts, beta1[c] * scale, mass, absence, c, base)
    return True


@kernel
def bernoulli(
    counts: Counts,
    beta1: F64,
    beta2: F64,
    absence: Absence,
    rows: Rows,
    present: Flags,
    updates: RowUpdates,
    options: RunOptions,
    n_words: int,
    base: F64Grid,
    scratch: F64Grid,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Add each row's log-likelihood to `out`, then learn the row where it has a label.

    `base` and `scratch` have a row of three a class. Rows before `n_predicted` have their
    log-likelihood already, as has the row it stops at. Returns where, why, and how many words that
    row speaks of: FULL asks for words to leave, CROWDED for longer heavy lists, STALE for a cache
    built anew, going on at the row that is returned.
    """
    scale = -1.0
    labels, weights, scales = updates
    for i in range(options.row, len(labels)):
        prefetch_row(counts, rows, i + 1)
        if scales[i] != scale:
            scale = scales[i]
            if not refresh_all(counts, beta1, beta2, scale, absence, n_words, base):
                return i, STALE, 0
        if not present[i]:
            continue
        if i >= options.n_predicted:
            add_log_likelihood(counts, beta1, beta2, scale, rows, i, base, scratch, out)
        if options.learn and labels[i] >= 0:
            y = labels[i]
            n_new = count_new(counts.by_word, rows, i)
            if has_no_room(counts, n_new, options.n_max):
                return i, FULL, n_new
            n_grams = rows.indptr[i + 1] - rows.indptr[i]
            if absence.n_heavy[y] + n_grams > absence.heavy.shape[1]:
                return i, CROWDED, n_grams
            counts.state[LIVE] += n_new
            mass = beta2[y] * scale
            is_followed = learn_row(counts, mass, absence, rows, i, y, weights[i], n_words)
            if weights[i] < 0.0:
                counts.state[LIVE] -= count_new(counts.by_word, rows, i)
            if not is_followed:
                return i + 1, STALE, 0
            refresh(counts, beta1[y] * scale, mass, absence, y, base)
    return len(labels), ADDED, 0
