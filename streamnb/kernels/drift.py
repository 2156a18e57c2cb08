"""For a stream that changes: a test martingale, and a multinomial under several half-lives at once.

**The martingale** is capital that grows if losses are larger than those before them. Losses are
counted in bins, four an octave, so that memory stays bounded. The bins are losses too, only
coarser, so every statement holds for them exactly.

**Half-lives**: a place of `Counts.by_word` is half-life · k + class, so that all counts of a word
lie side by side. Weights grow as 2^age; an age that reaches `SPAN` has its counts brought back by
that power of two, which is exact, before the example is learned that it reaches it by.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streamnb.kernels.counting import (
    ADDED,
    FULL,
    count_new,
    has_no_room,
    is_new,
    is_unknown,
    prefetch_row,
    vocabulary_size,
)
from streamnb.kernels.hashing import mix
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import (
    F64,
    I64,
    LIVE,
    U64,
    Counts,
    F64Grid,
    Int,
    Rows,
    RowUpdates,
    RunOptions,
)
from streamnb.kernels.posterior import HUGE, REPEATS_MAX, TINY

PER_OCTAVE = 4
FIRST_OCTAVE = -24  # a loss below 2⁻²⁵ is as good as none
BINS = PER_OCTAVE * 31  # up to 64 nats
SINCE_RESTART, EVER, ALARMS = range(3)  # places in `numbers`
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@inner
def bin_of(loss: float) -> Int:
    """Return the bin of a loss, in nats."""
    if loss > 1e9:
        return np.int64(BINS - 1)
    mantissa, octave = math.frexp(loss)
    if mantissa == 0.0 or octave < FIRST_OCTAVE:
        return np.int64(0)
    quarter = np.int64((mantissa - 0.5) * (2 * PER_OCTAVE))
    place = np.int64(octave - FIRST_OCTAVE) * PER_OCTAVE + quarter
    return min(place, np.int64(BINS - 1))


@inner
def reserve(n: Int) -> float:
    """Return the share of the capital that is not at stake after `n` losses: (n + 1)^(−1/4)."""
    return float(1.0 / np.sqrt(np.sqrt(n + 1.0)))


@kernel
def bet(
    losses: F64,
    seed: U64,
    stakes: F64,
    limits: F64,
    counts: I64,
    capital: F64,
    numbers: I64,
    alarms: I64,
) -> int:
    """Bet on losses in order; write the positions at which the capital reached its limit.

    `limits` are the capital that raises an alarm, and the tolerance τ. The p-value of a loss is its
    place among those since the restart, the largest first; ties are broken by a hash of its number.
    A stake ε pays 1 + ε·(1 − 2p), divided by 1 + 2ετ. Returns the number of alarms.
    """
    n_alarms = 0
    reserved = reserve(numbers[SINCE_RESTART])
    for i in range(len(losses)):
        place = bin_of(losses[i])
        above = np.int64(0)
        for b in range(place + 1, BINS):
            above += counts[b]
        counts[place] += 1
        numbers[SINCE_RESTART] += 1
        numbers[EVER] += 1
        n = numbers[SINCE_RESTART]
        bits = mix(seed[0] + np.uint64(numbers[EVER]) * _GOLDEN) >> np.uint64(11)
        p = (above + float(bits) * 2.0**-53 * counts[place]) / n
        left = reserve(n)
        fresh = (reserved - left) / len(stakes)
        reserved = left
        total = left
        for k in range(len(stakes)):
            paid = (1.0 + stakes[k] * (1.0 - 2.0 * p)) / (1.0 + 2.0 * stakes[k] * limits[1])
            capital[k] = (capital[k] + fresh) * paid
            total += capital[k]
        if total >= limits[0]:
            alarms[n_alarms] = i
            n_alarms += 1
            numbers[ALARMS] += 1
            numbers[SINCE_RESTART] = 0
            reserved = 1.0
            for b in range(BINS):
                counts[b] = 0
            for k in range(len(stakes)):
                capital[k] = 0.0
    return n_alarms


# ---- half-lives side by side ---------------------------------------------------------------------

SPAN = 128.0  # half-lives
_PRECISION_MAX = 500.0  # of a temper: it follows a stream that changes
TEMPER_START = 2.0


class Lives(NamedTuple):
    """What half-lives side by side know beside the counts, and room for one row; H of them."""

    steps: F64  # (H,): half-lives that an example takes; 0 never forgets
    ages: F64  # (H,): half-lives since counts were brought back
    log_weights: F64  # (H,): decayed sums of log p(true class), from the best one
    tempers: F64Grid  # (H, 2): gradients and precisions of how much log-odds count
    products: F64  # (H·k,): of a row's factors, class by class
    log_scales: F64  # (H·k,): what was taken out of the products
    priors: F64  # (H·k,): of a word, grown
    growths: F64  # (H,): 2^age
    scores: F64Grid  # (H, k): joint log-likelihoods, from their best
    probabilities: F64Grid  # (H, k)
    shares: F64  # (H,): of the mixture


@inner
def multiply_lives(counts: Counts, lives: Lives, column: int, times: float) -> None:
    """Multiply each product by a word's count and its prior, as often as the word occurs.

    All products are multiplied before any is looked at, so that the processor takes several at
    once. A factor is from 1e-60, the least prior, to about 2^`SPAN` times the largest, 1e60: so
    none takes a product that is between `TINY` and `HUGE` out of float64.
    """
    n = len(lives.products)
    if times > REPEATS_MAX or times != np.floor(times):
        for c in range(n):
            factor = counts.by_word[column, c] + lives.priors[c]
            lives.log_scales[c] += times * np.log(factor)
        return
    for _ in range(np.int64(times)):
        n_far = 0
        for c in range(n):
            product = lives.products[c] * (counts.by_word[column, c] + lives.priors[c])
            lives.products[c] = product
            n_far += (product > HUGE) | (product < TINY)
        if n_far > 0:
            for c in range(n):
                lives.log_scales[c] += np.log(lives.products[c])
                lives.products[c] = 1.0


@inner
def score_lives(counts: Counts, alpha: float, rows: Rows, i: int, lives: Lives) -> float:
    """Write the joint log-likelihoods of row `i` under each half-life; return its known tokens.

    They are differences from the best class, so the logarithm of two classes' token totals is
    taken once, of their ratio.
    """
    n_lives, n_classes = lives.scores.shape
    n_tokens = 0.0
    for h in range(n_lives):
        for c in range(h * n_classes, (h + 1) * n_classes):
            lives.products[c] = counts.examples[c] + lives.growths[h]
            lives.log_scales[c] = 0.0
            lives.priors[c] = alpha * lives.growths[h]
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if is_unknown(counts, column):
            continue
        n_tokens += rows.counts[at]
        multiply_lives(counts, lives, column, rows.counts[at])
    v = float(vocabulary_size(counts))
    for h in range(n_lives):
        first = h * n_classes
        first_log = lives.log_scales[first] + np.log(lives.products[first])
        first_total = counts.tokens[first] + alpha * v * lives.growths[h]
        lives.scores[h, 0] = 0.0
        best = 0.0
        for c in range(1, n_classes):
            found = lives.log_scales[first + c] + np.log(lives.products[first + c]) - first_log
            if n_tokens > 0.0:
                total = counts.tokens[first + c] + alpha * v * lives.growths[h]
                found -= n_tokens * np.log(total / first_total)
            lives.scores[h, c] = found
            best = max(best, found)
        for c in range(n_classes):
            lives.scores[h, c] -= best
    return n_tokens


@inner
def mix_lives(lives: Lives, x: float, out: F64Grid, i: int) -> None:
    """Write the log-posteriors of the half-lives' mixture."""
    n_lives, n_classes = lives.scores.shape
    best = -np.inf
    for h in range(n_lives):
        best = max(best, lives.log_weights[h])
    weights = 0.0
    for c in range(n_classes):
        out[i, c] = 0.0
    for h in range(n_lives):
        total = 0.0
        factor = x * lives.tempers[h, 0] / lives.tempers[h, 1]
        for c in range(n_classes):
            lives.probabilities[h, c] = np.exp(factor * lives.scores[h, c])
            total += lives.probabilities[h, c]
        lives.shares[h] = np.exp(lives.log_weights[h] - best)
        weights += lives.shares[h]
        for c in range(n_classes):
            lives.probabilities[h, c] /= total
            out[i, c] += lives.shares[h] * lives.probabilities[h, c]
    for c in range(n_classes):
        out[i, c] = np.log(out[i, c] / weights)


@inner
def judge_lives(lives: Lives, y: int, x: float, kept: float) -> None:
    """Weigh the half-lives by what each said of the true class, and temper them."""
    n_lives, n_classes = lives.scores.shape
    best = -np.inf
    for h in range(n_lives):
        p = max(lives.probabilities[h, y], 1e-15)
        lives.log_weights[h] = kept * lives.log_weights[h] + np.log(p)
        best = max(best, lives.log_weights[h])
        mean, square = 0.0, 0.0
        for c in range(n_classes):
            mean += lives.probabilities[h, c] * lives.scores[h, c]
            square += lives.probabilities[h, c] * lives.scores[h, c] ** 2
        gained = x * x * (square - mean * mean)
        temper = lives.tempers[h, 0] / lives.tempers[h, 1]
        # Newton's step: by the gradient over all curvature so far, this row's too.
        moved = lives.tempers[h, 0] + x * (lives.scores[h, y] - mean) + gained * temper
        lives.tempers[h, 0] = max(moved, 0.0)  # below, it would say the reverse of its counts
        lives.tempers[h, 1] += gained
        if lives.tempers[h, 1] > _PRECISION_MAX:
            lives.tempers[h, 0] *= _PRECISION_MAX / lives.tempers[h, 1]
            lives.tempers[h, 1] = _PRECISION_MAX
    for h in range(n_lives):
        lives.log_weights[h] -= best


@inner
def grow_older(counts: Counts, lives: Lives) -> bool:
    """Let one example's time pass for each half-life; bring counts back that have grown far.

    Returns whether some were: a word may then stand at zero that did not.
    """
    n_lives, n_classes = lives.scores.shape
    brought_back = False
    for h in range(n_lives):
        lives.ages[h] += lives.steps[h]
        if lives.ages[h] >= SPAN:
            brought_back = True
            lives.ages[h] -= SPAN
            for c in range(h * n_classes, (h + 1) * n_classes):
                counts.examples[c] *= 2.0**-SPAN
                counts.tokens[c] *= 2.0**-SPAN
                for column in range(len(counts.by_word)):
                    counts.by_word[column, c] *= 2.0**-SPAN
        lives.growths[h] = np.exp2(lives.ages[h])
    return brought_back


@kernel
def half_lives(
    counts: Counts,
    lives: Lives,
    alpha: float,
    kept: float,
    rows: Rows,
    updates: RowUpdates,
    options: RunOptions,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Write each row's log-posteriors, then learn the row where it has a label.

    `kept` is the share of the weights of half-lives that an example leaves. Returns as
    `multinomial` does.
    """
    labels, weights, _, _, _, _ = updates
    n_lives, n_classes = lives.scores.shape
    for h in range(n_lives):
        lives.growths[h] = np.exp2(lives.ages[h])
    for i in range(options.row, len(labels)):
        prefetch_row(counts, rows, i + 1)
        y = labels[i]
        learn = options.learn and y >= 0
        if i >= options.n_predicted:
            n_tokens = score_lives(counts, alpha, rows, i, lives)
            x = 1.0 / np.sqrt(n_tokens + 1.0)
            mix_lives(lives, x, out, i)
            if learn:
                judge_lives(lives, y, x, kept)
        if not learn:
            continue
        n_new = count_new(counts.by_word, rows, i)
        if has_no_room(counts, n_new, options.n_max):
            return i, FULL, n_new
        counts.state[LIVE] += n_new
        brought_back = grow_older(counts, lives)
        n_all = 0.0
        for at in range(rows.indptr[i], rows.indptr[i + 1]):
            n_all += rows.counts[at]
            for h in range(n_lives):
                weight = weights[i] * lives.growths[h]
                counts.by_word[rows.columns[at], h * n_classes + y] += weight * rows.counts[at]
        for h in range(n_lives):
            place = h * n_classes + y
            weight = weights[i] * lives.growths[h]
            counts.examples[place] += weight
            counts.tokens[place] += weight * n_all
        if brought_back:
            n_live = 0
            for column in range(len(counts.by_word)):
                n_live += not is_new(counts.by_word, column)
            counts.state[LIVE] = n_live
    return len(labels), ADDED, 0
