"""Bernoulli likelihood of words, at a cost that does not grow with the vocabulary.

Σ_j x_j·log θ_jc + (1−x_j)·log(1−θ_jc) with θ_jc = (N_jc + β₁)/(N_c + β₁ + β₂) speaks of every word
there is. With M = N_c + β₂ it is

    Σ_{x_j=1} log[(N_jc + β₁)/(M − N_jc)]  +  A_c,      A_c = Σ_j log1p(−N_jc/M) − V·log1p(β₁/M)

and `absence` keeps what A_c is had from at once, though it sums over every word and each example of
class c moves it. A word is **light** where N_jc ≤ 2ᵏ/128, 2ᵏ the power of two at or above M, and
**heavy** above that (about a hundred words in English tweets).

* Light words enter by eight power sums S_p = Σ (N_jc/2ᵏ)ᵖ: Σ log1p(−N/M) = −Σ_p S_p·(2ᵏ/M)ᵖ/p.
  What is cut off is below 64⁻⁸/9 = 4e-16 of the mean number of words in an example.
* Heavy words enter one by one, as a product of 1 − N/M over their counts in ascending order, four
  at a time. A word that comes once more keeps its place in that order, so nothing is moved.

Both are **pure functions of the counts**: the power sums are integers (each word adds the whole
number nearest to (N/2ᵏ)ᵖ·2^s_p), so their order of addition is nothing, and the heavy counts are
sorted. A model that was merged, restored or unlearned therefore answers bit for bit as one that was
always so. When k moves, a class is rebuilt in one pass over the table, which happens once each
time N_c doubles.

s_p = 46, 53, 60, 62, … leaves room for just under 2¹⁷ words an example on average, and keeps the
rounding of p = 1 exact up to N_c = 2⁴⁶ and of p = 2 up to 2²⁶. The form V·log M never appears: its
last digit alone would be 2e-9 at V = 10⁶.
"""

from __future__ import annotations

import math

import numpy as np

from streamnb.kernels.counting import (
    ADDED,
    FULL,
    count_gone,
    count_new,
    has_no_room,
    is_unknown,
    leave_out_short,
    prefetch_row,
    vocabulary_size,
)
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import (
    F64,
    I64,
    LIVE,
    Absence,
    Counts,
    F64Grid,
    Flags,
    Int,
    Rows,
    RowUpdates,
    RunOptions,
)
from streamnb.kernels.posterior import (
    add_weight,
    log_product,
    multiply_power,
    multiply_scaled,
    start_products,
)

CROWDED, STALE = 2, 3
N_TERMS = 8
LIGHT_SHIFT = 7  # light: N ≤ 2ᵏ / 2⁷
_SAFE = 1e-80  # four factors above that lose nothing, times a product that was folded in time
_SCALES = np.array([2.0 ** min(46 + 7 * p, 62) for p in range(N_TERMS)])


# ---- the words that are missing ------------------------------------------------------------------


@inner
def exponent_of(mass: float) -> Int:
    """Return k with 2ᵏ the power of two at or above `mass`; 0 for none."""
    if mass <= 0.0:
        return 0
    fraction, exponent = math.frexp(mass)
    return np.int64(exponent) - (fraction == 0.5)


@inner
def nearest(x: float) -> Int:
    """Return the whole number nearest to x ≥ 0, the upper one of two: by what costs least."""
    whole = np.int64(x)
    return whole + (x - whole >= 0.5)


@inner
def add_light(sums: I64, x: float, sign: int) -> None:
    """Add one light word's powers of x = N/2ᵏ to the sums, or take them away."""
    x2 = x * x
    x3 = x2 * x
    x4 = x2 * x2
    # Written out, so that no term waits for another.
    sums[0] += sign * nearest(x * _SCALES[0])
    sums[1] += sign * nearest(x2 * _SCALES[1])
    sums[2] += sign * nearest(x3 * _SCALES[2])
    sums[3] += sign * nearest(x4 * _SCALES[3])
    sums[4] += sign * nearest(x4 * x * _SCALES[4])
    sums[5] += sign * nearest(x4 * x2 * _SCALES[5])
    sums[6] += sign * nearest(x4 * x3 * _SCALES[6])
    sums[7] += sign * nearest(x4 * x4 * _SCALES[7])


@inner
def place_after(absence: Absence, c: int, count: float) -> Int:
    """Return how many heavy counts are at most `count`: they stand in ascending order."""
    # Without a branch on what is compared: half of such branches are guessed wrong.
    low = np.int64(0)
    n = absence.n_heavy[c]
    while n > 0:
        half = (n + 1) >> 1
        low += half * (absence.heavy[c, low + half - 1] <= count)
        n -= half
    return low


@inner
def add_heavy(absence: Absence, c: int, count: float) -> None:
    """Enter one heavy word's count; the caller has made sure of room."""
    at = place_after(absence, c, count)
    for move in range(absence.n_heavy[c], at, -1):
        absence.heavy[c, move] = absence.heavy[c, move - 1]
    absence.heavy[c, at] = count
    absence.n_heavy[c] += 1


@inner
def drop_heavy(absence: Absence, c: int, count: float) -> None:
    """Take one heavy word's count out."""
    at = place_after(absence, c, count) - 1
    absence.n_heavy[c] -= 1
    for move in range(at, absence.n_heavy[c]):
        absence.heavy[c, move] = absence.heavy[c, move + 1]


@inner
def move_heavy(absence: Absence, c: int, old: float, new: float) -> None:
    """Follow a word that was heavy and is; one step up it keeps its place among the others."""
    at = place_after(absence, c, old) - 1
    last = absence.n_heavy[c] - 1
    while at < last and absence.heavy[c, at + 1] < new:
        absence.heavy[c, at] = absence.heavy[c, at + 1]
        at += 1
    while at > 0 and absence.heavy[c, at - 1] > new:
        absence.heavy[c, at] = absence.heavy[c, at - 1]
        at -= 1
    absence.heavy[c, at] = new


@inner
def sort_heavy(absence: Absence, c: int) -> None:
    """Put a class's heavy counts in order (Shell's sort: in place, and never slow)."""
    n = absence.n_heavy[c]
    gap = np.int64(1)
    while gap < n:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            count = absence.heavy[c, i]
            at: Int = i
            while at >= gap and absence.heavy[c, at - gap] > count:
                absence.heavy[c, at] = absence.heavy[c, at - gap]
                at -= gap
            absence.heavy[c, at] = count
        gap //= 3


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
    """Rebuild one class from the counts; False where the heavy list has too little room."""
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
            absence.heavy[c, absence.n_heavy[c]] = count
            absence.n_heavy[c] += 1
        elif count > 0.0:
            add_light(absence.sums[c], count * absence.inverses[c], 1)
    sort_heavy(absence, c)
    return True


@kernel
def rebuild(counts: Counts, beta2: F64, scale: float, absence: Absence, n_words: int) -> bool:
    """Rebuild every class from the counts; False where the heavy lists have too little room."""
    for c in range(len(counts.examples)):
        if not rebuild_class(counts, beta2[c] * scale, absence, n_words, c):
            return False
    return True


@inner
def missing_share(examples: float, count: float, beta2: float, inverse: float) -> float:
    """Return 1 − N_jc/M; in this order a tiny β₂ is not lost beside N_c."""
    return ((examples - count) + beta2) * inverse


@inner
def four_factors(
    heavy: F64Grid, c: int, at: int, examples: float, beta2: float, inverse: float
) -> float:
    """Return the product of 1 − N_jc/M over four words, from `at` on."""
    left = missing_share(examples, heavy[c, at], beta2, inverse)
    left *= missing_share(examples, heavy[c, at + 1], beta2, inverse)
    right = missing_share(examples, heavy[c, at + 2], beta2, inverse)
    right *= missing_share(examples, heavy[c, at + 3], beta2, inverse)
    return left * right


@inner
def log_none(absence: Absence, c: int, examples: float, beta2: float) -> tuple[float, Int]:
    """Return Σ_j log1p(−N_jc/M) over the words with N_jc < M, and how many have N_jc = M."""
    mass = examples + beta2
    n = absence.n_heavy[c]
    while n > 0 and (examples - absence.heavy[c, n - 1]) + beta2 <= 0.0:
        n -= 1
    certain = absence.n_heavy[c] - n
    total, product = 0.0, 1.0
    inverse = 1.0 / mass
    at = 0
    while at < n:
        factor = missing_share(examples, absence.heavy[c, at], beta2, inverse)
        if at + 4 <= n:
            four = four_factors(absence.heavy, c, at, examples, beta2, inverse)
            if four > _SAFE:
                factor = four
                at += 3
        product, total = multiply_scaled(product, factor, total)
        at += 1
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


# ---- a row's words, and the missing ones ---------------------------------------------------------


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
    decays: bool,
) -> bool:
    """Add row `i` to class `y`, and follow every count that moves.

    False where the heavy words found no room, which happens only to counts that fall: the caller
    has the cache rebuilt.
    """
    counts.examples[y] = add_weight(counts.examples[y], weight, decays)
    n_tokens = 0.0
    if weight < 0.0:
        leave_out_short(counts.by_word, rows, i, y, weight, decays)
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if column < 0:
            continue
        old = counts.by_word[column, y]
        counts.by_word[column, y] = add_weight(old, weight * rows.counts[at], decays)
        n_tokens += rows.counts[at]
        move_count(absence, y, old, counts.by_word[column, y])
    counts.tokens[y] = add_weight(counts.tokens[y], weight * n_tokens, decays)
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
    """Write what all classes' answers stand on; False where the cache must be rebuilt."""
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
    rebuilt, going on at the row that is returned.
    """
    scale = -1.0
    labels, weights, scales, _, _, decays = updates
    for i in range(options.row, len(labels)):
        prefetch_row(counts, rows, i + 1)
        if scales[i] != scale:
            scale = scales[i]
            if not refresh_all(counts, beta1, beta2, scale, absence, n_words, base):
                return i, STALE, 0
        if not present[i]:
            continue
        is_taken = weights[i] < 0.0
        if i >= options.n_predicted and not is_taken:
            add_log_likelihood(counts, beta1, beta2, scale, rows, i, base, scratch, out)
        if options.learn and labels[i] >= 0:
            y = labels[i]
            n_new = 0 if is_taken else count_new(counts.by_word, rows, i)
            if has_no_room(counts, n_new, options.n_max):
                return i, FULL, n_new
            n_grams = rows.indptr[i + 1] - rows.indptr[i]
            if absence.n_heavy[y] + n_grams > absence.heavy.shape[1]:
                return i, CROWDED, n_grams
            counts.state[LIVE] += n_new
            mass = beta2[y] * scale
            is_followed = learn_row(counts, mass, absence, rows, i, y, weights[i], n_words, decays)
            if is_taken:
                counts.state[LIVE] -= count_gone(counts.by_word, rows, i)
            if not is_followed:
                return i + 1, STALE, 0
            refresh(counts, beta1[y] * scale, mass, absence, y, base)
    return len(labels), ADDED, 0
