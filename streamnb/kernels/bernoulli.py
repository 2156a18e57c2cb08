"""Bernoulli likelihood of words, at a cost that does not grow with the vocabulary.

Σ_j x_j·log θ_jc + (1−x_j)·log(1−θ_jc) with θ_jc = (N_jc + β₁)/(N_c + β₁ + β₂) speaks of every word
there is. With M = N_c + β₂ it is

    Σ_{x_j=1} log[(N_jc + β₁)/(M − N_jc)]  +  A_c,      A_c = Σ_j log1p(−N_jc/M) − V·log1p(β₁/M)

and A_c, which every example of class c moves, is kept so that it can be had at once. A word is
**light** where N_jc ≤ 2ᵏ/128, 2ᵏ the power of two at or above M, and **heavy** above that (about a
hundred words in English tweets).

* Light words enter by eight power sums S_p = Σ (N_jc/2ᵏ)ᵖ: Σ log1p(−N/M) = −Σ_p S_p·(2ᵏ/M)ᵖ/p.
  What is cut off is below 64⁻⁸/9 = 4e-16 of the mean number of words in an example.
* Heavy words enter one by one, as a product of 1 − N/M over their counts in ascending order.

Both are **pure functions of the counts**: the power sums are integers (each word adds
rint((N/2ᵏ)ᵖ·2^s_p)), so their order of addition is nothing, and heavy words are held as a sorted
list of counts with how often each occurs. A model that was merged, restored or unlearned therefore
answers bit for bit as one that was always so. When k moves, a class is built anew in one pass over
the table, which happens once each time N_c doubles.

s_p = 46, 53, 60, 62, … leaves room for just under 2¹⁷ words an example on average, and keeps the
rounding of p = 1 exact up to N_c = 2⁴⁶ and of p = 2 up to 2²⁶. The form V·log M never appears: its
last digit alone would be 2e-9 at V = 10⁶.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types

from streamnb.kernels._jit import inner, kernel
from streamnb.kernels.counting import ADDED, FULL, count_new, has_no_room, hurry, is_new
from streamnb.kernels.layout import (
    I32,
    I64,
    Absence,
    Counts,
    F64Grid,
    Flags,
    Int,
    Rows,
    compiled_type,
)
from streamnb.kernels.posterior import fold

N_TERMS = 8
LIGHT_SHIFT = 7  # light: N ≤ 2ᵏ / 2⁷
CROWDED = 2
_SCALES = np.array([2.0 ** min(46 + 7 * p, 62) for p in range(N_TERMS)])


@inner
def exponent_of(mass: float) -> Int:
    """Return k with 2ᵏ the power of two at or above `mass`; 0 for none."""
    if mass <= 0.0:
        return 0
    fraction, exponent = math.frexp(mass)
    return np.int64(exponent) - (fraction == 0.5)


@inner
def add_light(sums: I64, x: float, sign: int) -> None:
    """Add one light word's powers of x = N/2ᵏ to the sums, or take them away."""
    power = x
    for p in range(N_TERMS):
        sums[p] += sign * np.int64(np.rint(power * _SCALES[p]))
        power *= x


@inner
def place_of(absence: Absence, c: int, count: float) -> Int:
    """Return where `count` stands, or would stand, in the sorted list of heavy counts."""
    low = np.int64(0)
    high = absence.n_heavy[c]
    while low < high:
        middle = (low + high) >> 1
        if absence.heavy[c, middle] < count:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def add_heavy(absence: Absence, c: int, count: float) -> None:
    """Enter one heavy word's count; the caller has made sure of room."""
    n = absence.n_heavy[c]
    at = place_of(absence, c, count)
    if at < n and absence.heavy[c, at] == count:
        absence.repeats[c, at] += 1
        return
    for move in range(n, at, -1):
        absence.heavy[c, move] = absence.heavy[c, move - 1]
        absence.repeats[c, move] = absence.repeats[c, move - 1]
    absence.heavy[c, at] = count
    absence.repeats[c, at] = 1
    absence.n_heavy[c] = n + 1


@inner
def drop_heavy(absence: Absence, c: int, count: float) -> None:
    """Take one heavy word's count out."""
    at = place_of(absence, c, count)
    absence.repeats[c, at] -= 1
    if absence.repeats[c, at] > 0:
        return
    n = absence.n_heavy[c] - 1
    for move in range(at, n):
        absence.heavy[c, move] = absence.heavy[c, move + 1]
        absence.repeats[c, move] = absence.repeats[c, move + 1]
    absence.n_heavy[c] = n


@inner
def move_heavy(absence: Absence, c: int, old: float, new: float) -> None:
    """Follow a word that was heavy and is: mostly it keeps its place in the list."""
    at = place_of(absence, c, old)
    alone = absence.repeats[c, at] == 1
    last = at + 1 == absence.n_heavy[c]
    if alone and new > old and (last or absence.heavy[c, at + 1] > new):
        absence.heavy[c, at] = new
        return
    drop_heavy(absence, c, old)
    add_heavy(absence, c, new)


@inner
def move_count(absence: Absence, c: int, old: float, new: float) -> None:
    """Follow one word's count from `old` to `new`; a count of zero is in neither part."""
    limit = absence.limits[c]
    inverse = absence.inverses[c]
    if old > limit and new > limit:
        move_heavy(absence, c, old, new)
        return
    if old > limit:
        drop_heavy(absence, c, old)
    elif old > 0.0:
        add_light(absence.sums[c], old * inverse, -1)
    if new > limit:
        add_heavy(absence, c, new)
    elif new > 0.0:
        add_light(absence.sums[c], new * inverse, 1)


@inner
def rebuild_class(counts: Counts, beta2: float, absence: Absence, n_words: int, c: int) -> bool:
    """Build one class anew from the counts; False where the heavy list has too little room."""
    k = int(exponent_of(counts.examples[c] + beta2))
    limit = math.ldexp(1.0, k - LIGHT_SHIFT)
    absence.exponents[c] = k
    absence.limits[c] = limit
    absence.inverses[c] = math.ldexp(1.0, -k)
    absence.n_heavy[c] = 0
    absence.sums[c, :] = 0
    for column in range(n_words):
        count = counts.by_word[column, c]
        if count > limit:
            if absence.n_heavy[c] == absence.heavy.shape[1]:
                return False
            add_heavy(absence, c, count)
        elif count > 0.0:
            add_light(absence.sums[c], count * absence.inverses[c], 1)
    return True


@kernel(types.boolean, compiled_type(Counts), types.float64, compiled_type(Absence), types.int64)
def rebuild(counts: Counts, beta2: float, absence: Absence, n_words: int) -> bool:
    """Build every class anew from the counts; False where the heavy lists have too little room."""
    for c in range(len(counts.examples)):
        if not rebuild_class(counts, beta2, absence, n_words, c):
            return False
    return True


@inner
def raised(base: float, times: int) -> float:
    """Return base to the power `times`, by squaring: the same on every machine."""
    result = 1.0
    while times > 0:
        if times & 1:
            result *= base
        base *= base
        times >>= 1
    return result


@inner
def log_none(absence: Absence, c: int, examples: float, beta2: float) -> tuple[float, Int]:
    """Return Σ_j log1p(−N_jc/M) over the words with N_jc < M, and how many have N_jc = M."""
    mass = examples + beta2
    n = absence.n_heavy[c]
    certain = np.int64(0)
    if n > 0 and (examples - absence.heavy[c, n - 1]) + beta2 <= 0.0:
        n -= 1
        certain = absence.repeats[c, n]
    total, product = 0.0, 1.0
    inverse = 1.0 / mass
    for at in range(n):
        # In this order a tiny β₂ is not lost beside N_c.
        factor = ((examples - absence.heavy[c, at]) + beta2) * inverse
        times = absence.repeats[c, at]
        if times == 1:
            product *= factor
        elif times * -np.log2(factor) < 600.0:
            product *= raised(factor, times)
        else:
            total += times * np.log(factor)
        product, total = fold(product, total)
    total += np.log(product)
    ratio = math.ldexp(inverse, int(absence.exponents[c]))
    power = ratio
    light = 0.0
    for p in range(N_TERMS):
        light += absence.sums[c, p] / _SCALES[p] * power / (p + 1)
        power *= ratio
    return total - light, certain


@inner
def refresh(
    counts: Counts, beta1: float, beta2: float, absence: Absence, c: int, base: F64Grid
) -> None:
    """Write what a class's answers stand on: Σ log1p(−N/M), words with N = M, and log1p(β₁/M)."""
    mass = counts.examples[c] + beta2
    base[c, :] = 0.0
    if mass > 0.0:
        base[c, 0], base[c, 1] = log_none(absence, c, counts.examples[c], beta2)
        base[c, 2] = np.log1p(beta1 / mass)


@inner
def add_log_likelihood(
    counts: Counts,
    beta1: float,
    beta2: float,
    rows: Rows,
    i: int,
    base: F64Grid,
    scratch: F64Grid,
    out: F64Grid,
) -> None:
    """Add Σ_j log p(x_j | c) over all words to `out[i]`; words not known say nothing."""
    n_classes = counts.by_word.shape[1]
    for c in range(n_classes):
        scratch[c, 0] = 1.0  # the product of the odds of the words that are there
        scratch[c, 1] = 0.0  # the sum of the logs of those that were folded
        scratch[c, 2] = base[c, 1]  # certain words (N = M) that are missing
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if is_new(counts.by_word, column):
            continue
        for c in range(n_classes):
            count = counts.by_word[column, c]
            rest = (counts.examples[c] - count) + beta2
            if rest == 0.0:
                # θ = (N + β₁)/(N + β₁) = 1; A_c left it out but for its share of V·log1p(β₁/M).
                scratch[c, 2] -= 1.0
                scratch[c, 1] += np.log(count + beta1) - np.log(count)
            else:
                scratch[c, 0], scratch[c, 1] = fold(
                    scratch[c, 0] * ((count + beta1) / rest), scratch[c, 1]
                )
    for c in range(n_classes):
        if scratch[c, 2] > 0.0 or counts.examples[c] + beta2 == 0.0:
            out[i, c] = -np.inf
        else:
            present = np.log(scratch[c, 0]) + scratch[c, 1]
            out[i, c] += present + (base[c, 0] - counts.state[0] * base[c, 2])


@inner
def learn_row(
    counts: Counts, beta2: float, absence: Absence, rows: Rows, i: int, y: int, n_words: int
) -> None:
    """Add row `i` to class `y`, and follow every count that moves."""
    counts.examples[y] += 1.0
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        old = counts.by_word[column, y]
        counts.by_word[column, y] = old + rows.counts[at]
        counts.tokens[y] += rows.counts[at]
        move_count(absence, y, old, counts.by_word[column, y])
    if exponent_of(counts.examples[y] + beta2) != absence.exponents[y]:
        rebuild_class(counts, beta2, absence, n_words, y)


@kernel(
    types.UniTuple(types.int64, 3),
    compiled_type(Counts),
    types.float64,
    types.float64,
    compiled_type(Absence),
    compiled_type(Rows),
    types.int32[::1],
    types.boolean[::1],
    types.int64,
    types.int64,
    types.boolean,
    types.int64,
    types.int64,
    types.float64[:, ::1],
    types.float64[:, ::1],
    types.float64[:, ::1],
)
def bernoulli(
    counts: Counts,
    beta1: float,
    beta2: float,
    absence: Absence,
    rows: Rows,
    labels: I32,
    there: Flags,
    row: int,
    n_judged: int,
    learn: bool,
    n_words_max: int,
    n_words: int,
    base: F64Grid,
    scratch: F64Grid,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Add each row's log-likelihood to `out`, then learn the row where it has a label.

    `base` and `scratch` have a row of three a class. Rows before `n_judged` are judged already, as
    is the row it stops at. Returns where, why, and how many words that row speaks of: FULL asks for
    words to leave, CROWDED for longer heavy lists.
    """
    n_classes = counts.by_word.shape[1]
    for c in range(n_classes):
        refresh(counts, beta1, beta2, absence, c, base)
    for i in range(row, len(labels)):
        hurry(counts, rows, i + 1)
        if not there[i]:
            continue
        if i >= n_judged:
            add_log_likelihood(counts, beta1, beta2, rows, i, base, scratch, out)
        if learn and labels[i] >= 0:
            y = labels[i]
            n_new = count_new(counts.by_word, rows, i)
            if has_no_room(counts, n_new, n_words_max):
                return i, FULL, n_new
            n_grams = rows.indptr[i + 1] - rows.indptr[i]
            if absence.n_heavy[y] + n_grams > absence.heavy.shape[1]:
                return i, CROWDED, n_grams
            counts.state[0] += n_new
            learn_row(counts, beta2, absence, rows, i, y, n_words)
            refresh(counts, beta1, beta2, absence, y, base)
    return len(labels), ADDED, 0
