"""The hybrid's answer and its learning: log-odds of the counts, weighted by online regression.

The score of class c for an example with n known words is

    z_c = x·Σ_j (3·w_g·r_jc + v_jc),   x = (n + 1)^(−3/4)
    r_jc = log (N_jc + m) − N_j/(N_j + k·m)·log (T_c + 1)

over the k classes, where word j's group g is a kind (`KINDS`) and a band of its count (`band`).
For two classes z_1 − z_0 is the log-odds. w_g and v_jc are learned by the gradient of the log-loss,
before the counts take the example in. Each is kept as a sum of gradients and a precision (the sum
of curvatures): the weight is their quotient, with a prior's precision in it. So what several logs
have learned adds up as counts do. The gradients of all classes add up to zero, so that of the first
is not kept. The prior of v_jc then counts as often as the cube root of the
number of logs (`word_prior`), that of w_g once. The sums are multiples of 2⁻²⁴ (`rounded`), so
that adding them is exact in any order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamnb.kernels.counting import (
    ADDED,
    FULL,
    NEAR_WORDS,
    count_new,
    has_no_room,
    is_new,
    learn_row,
    prefetch_row,
)
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import (
    F64,
    I64,
    LIVE,
    U8,
    Counts,
    F64Grid,
    Flags,
    Rows,
    RowUpdates,
    RunOptions,
    Table,
    prefetch,
)
from streamnb.kernels.posterior import count_recent, rounded
from streamnb.kernels.word_table import kind_of

# A word, a negated word, an n-gram of two words, a longer one or one of characters.
KINDS = 4
BANDS = (2, 4, 10, 30, 100, 1000, 10_000)  # where a band of counts begins; see `band`
N_BANDS = len(BANDS) + 1
N_WORD_GROUPS = KINDS * N_BANDS
WEIGHT_START = 0.6  # w_g before anything is learned
WEIGHT_PRECISION = 100.0
_PRECISION_MAX = 500.0  # of w_g: its step gets no smaller, so that it follows the stream
_SCALE = 3.0
WHOLE, ONE_PART, PARTS = range(3)  # see `hybrid`
SMOOTHING, SHRINKAGE, DECAY = range(3)  # places in the options


class Weights(NamedTuple):
    """What the hybrid has learned beside the counts: sums of gradients, and of curvatures."""

    recent: F64  # (n_classes,): examples by class, with a half-life
    groups: F64Grid  # (N_WORD_GROUPS, 2): precision and gradients of w_g
    # (capacity, n_classes): precision of v_jc, and its gradients of all classes but the first
    words: F64Grid


class HybridScratch(NamedTuple):
    """Room for one example's sums, and the options and logarithms that a run needs."""

    sums: F64Grid  # (N_WORD_GROUPS, n_classes): Σ_j r_jc of the group's words, to learn by
    weights: F64  # (N_WORD_GROUPS,): 3·w_g of what answers
    own_weights: F64  # (N_WORD_GROUPS,): those of the part that learns
    occurs: I64  # (N_WORD_GROUPS,): how many words of the group occur
    scores: F64  # (n_classes,): z_c, then p_c, then the gradient
    log_totals: F64  # (n_classes,): log (T_c + 1)
    logs: F64  # log (i + m) of small whole counts
    bands: I64  # `band` of the same
    options: F64  # SMOOTHING, SHRINKAGE, DECAY


@inner
def band(count: float) -> int:
    """Return the band of a word's count over all classes."""
    if count < 30.0:
        if count < 4.0:
            return 0 if count < 2.0 else 1
        return 2 if count < 10.0 else 3
    if count < 1000.0:
        return 4 if count < 100.0 else 5
    return 6 if count < 10_000.0 else 7


@inner
def group_weight(weights: Weights, g: int) -> float:
    """Return w_g."""
    precision = WEIGHT_PRECISION + weights.groups[g, 0]
    return float(WEIGHT_START + weights.groups[g, 1] / precision)


@inner
def weigh_groups(weights: Weights, out: F64) -> None:
    """Write 3·w_g of all groups."""
    for g in range(N_WORD_GROUPS):
        out[g] = _SCALE * group_weight(weights, g)


@inner
def word_prior(weights: Weights, options: F64) -> float:
    """Return the prior's precision of v_jc, for what one log has learned or the sum of several.

    Each log corrects its own answers, not the sum's: summed as they are, rare words' corrections
    are too large. Each log's recent examples add up to 1/(1 − decay), so they tell how many.
    """
    n_recent = 0.0
    for c in range(len(weights.recent)):
        n_recent += weights.recent[c]
    n_logs = n_recent * (1.0 - options[DECAY])
    prior = 2.0 * options[SHRINKAGE]
    return float(prior * np.cbrt(n_logs)) if n_logs > 1.0 else float(prior)


@inner
def add_word(
    counts: Counts,
    weights: Weights,
    group_weights: F64,
    column: int,
    kind: int,
    times: float,
    total: float,
    per_count: float,
    prior: float,
    n_classes: int,
    to_learn: bool,
    scratch: HybridScratch,
) -> None:
    """Add what a known word says, but for x, to the scores; if `to_learn`, note r_jc of its group.

    `total` is the word's count over all classes.
    """
    m = scratch.options[SMOOTHING]
    # No processor foresees which band comes next: a table asks for no branch.
    small = total < len(scratch.bands)
    g = kind * N_BANDS + (scratch.bands[np.int64(total)] if small else band(total))
    weight = times * group_weights[g]
    share = total / (total + n_classes * m)
    factor = times / (prior + weights.words[column, 0])
    if to_learn:
        scratch.occurs[g] += 1
    gradient = 0.0
    for c in range(1, n_classes):
        gradient -= weights.words[column, c]
    for c in range(n_classes):
        if c > 0:
            gradient = weights.words[column, c]
        count = counts.by_word[column, c] * per_count
        place = np.int64(count) if count < len(scratch.logs) else np.int64(0)
        log = scratch.logs[place] if place == count else np.log(count + m)
        r = log - share * scratch.log_totals[c]
        scratch.scores[c] += weight * r + factor * gradient
        if to_learn:
            scratch.sums[g, c] += times * r


@inner
def add_words(
    counts: Counts,
    weights: Weights,
    group_weights: F64,
    kinds: U8,
    rows: Rows,
    i: int,
    scale: float,
    n_classes: int,
    to_learn: bool,
    scratch: HybridScratch,
) -> float:
    """Write z_c of row `i` into the scratch; return x, or 0 if no word of it is known."""
    for c in range(n_classes):
        scratch.scores[c] = 0.0
        scratch.log_totals[c] = np.log(counts.tokens[c] / scale + 1.0)
    if to_learn:
        scratch.occurs[:] = 0
        scratch.sums[:] = 0.0
    per_count = 1.0 / scale
    prior = word_prior(weights, scratch.options)
    n_tokens = 0.0
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        total = 0.0
        for c in range(n_classes):
            total += counts.by_word[column, c]
        if total == 0.0:
            continue
        times = rows.counts[at]
        n_tokens += times
        add_word(
            counts, weights, group_weights, column, int(kinds[column]), times, total * per_count,
            per_count, prior, n_classes, to_learn, scratch,
        )  # fmt: skip
    if n_tokens == 0.0:
        return 0.0
    x = of_length(n_tokens)
    for c in range(n_classes):
        scratch.scores[c] *= x
    return x


@inner
def of_length(n_tokens: float) -> float:
    """Return x = (n + 1)^(−3/4)."""
    root = np.sqrt(n_tokens + 1.0)
    return float(1.0 / (root * np.sqrt(root)))


@inner
def score(
    counts: Counts,
    weights: Weights,
    group_weights: F64,
    kinds: U8,
    rows: Rows,
    i: int,
    scale: float,
    to_learn: bool,
    scratch: HybridScratch,
) -> float:
    """Write z_c of row `i` into the scratch; return x, or 0 if no word of it is known.

    For two classes the compiler writes out the loops over classes.
    """
    n_classes = len(counts.tokens)
    if n_classes == 2:
        return add_words(
            counts, weights, group_weights, kinds, rows, i, scale, 2, to_learn, scratch
        )
    return add_words(
        counts, weights, group_weights, kinds, rows, i, scale, n_classes, to_learn, scratch
    )


@inner
def to_gradient(recent: F64, y: int, scores: F64) -> float:
    """Turn scores into the log-loss's negative gradient; return Σ_c p_c·(1 − p_c).

    The class prior comes from the recent examples, so that no weight has to learn a long run of one
    class.
    """
    best = -np.inf
    for c in range(len(scores)):
        scores[c] += np.log(recent[c] + 1.0)
        best = max(best, scores[c])
    total = 0.0
    for c in range(len(scores)):
        scores[c] = np.exp(scores[c] - best)
        total += scores[c]
    curvature = 0.0
    for c in range(len(scores)):
        p = scores[c] / total
        curvature += p * (1.0 - p)
        scores[c] = (1.0 if c == y else 0.0) - p
    return float(curvature)


@inner
def move(row: F64Grid, at: int, place: int, change: float, total: F64Grid, is_shared: bool) -> None:
    """Add to a sum of a part, rounded, and to that of the whole."""
    before = row[at, place]
    after = rounded(before + change)
    row[at, place] = after
    if is_shared:
        total[at, place] += after - before


@inner
def learn_weights(
    own: Weights,
    whole: Weights,
    is_shared: bool,
    known: F64Grid,
    rows: Rows,
    i: int,
    y: int,
    x: float,
    weight: float,
    scratch: HybridScratch,
) -> None:
    """Take a step of the regression for row `i`; the score of the part has just been computed."""
    scores, sums = scratch.scores, scratch.sums
    n_classes = len(scores)
    curvature = to_gradient(own.recent, y, scores)
    for g in range(N_WORD_GROUPS):
        if scratch.occurs[g] > 0:
            gradient, mean, square = 0.0, 0.0, 0.0
            for c in range(n_classes):
                p = (1.0 if c == y else 0.0) - scores[c]
                s = _SCALE * x * sums[g, c]
                gradient += scores[c] * s
                mean += p * s
                square += p * s * s
            before = own.groups[g, 0]
            more = weight * max(square - mean * mean, 0.0)
            after = min(rounded(before + more), _PRECISION_MAX)
            # The weight stays where it was while its precision grows; then comes the step.
            held = (group_weight(own, g) - WEIGHT_START) * (after - before)
            move(own.groups, g, 0, after - before, whole.groups, is_shared)
            move(own.groups, g, 1, held + weight * gradient, whole.groups, is_shared)
            scratch.weights[g] = _SCALE * group_weight(whole, g)
            scratch.own_weights[g] = _SCALE * group_weight(own, g)
    prior = 2.0 * scratch.options[SHRINKAGE]
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if is_new(known, column):
            continue
        there = x * rows.counts[at]
        before = own.words[column, 0]
        more = rounded(weight * there * there * curvature)
        grown = more / (prior + before)
        move(own.words, column, 0, more, whole.words, is_shared)
        for c in range(1, n_classes):
            held = own.words[column, c] * grown
            change = held + weight * there * scores[c]
            move(own.words, column, c, change, whole.words, is_shared)


@inner
def forget_words(
    own: Weights, whole: Weights, is_shared: bool, by_word: F64Grid, rows: Rows, i: int
) -> None:
    """Set the weights of row `i`'s words to zero if nothing is left of their counts."""
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if column >= 0 and is_new(by_word, column):
            for place in range(own.words.shape[1]):
                move(own.words, column, place, -own.words[column, place], whole.words, is_shared)


@inner
def name_kinds(counts: Counts, kinds: U8, table: Table, rows: Rows, i: int) -> None:
    """Write the kinds of row `i`'s new words."""
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if is_new(counts.by_word, column):
            kinds[column] = kind_of(table.words, table.word_ends, column)


@inner
def prefetch_weights(counts: Counts, weights: Weights, kinds: U8, rows: Rows, i: int) -> None:
    """Have counts, weights and kinds of row `i`, if there is one, brought near."""
    prefetch_row(counts, rows, i)
    if i + 1 < len(rows.indptr) and counts.state[LIVE] > NEAR_WORDS:
        for at in range(rows.indptr[i], rows.indptr[i + 1]):
            column = np.int64(rows.columns[at])
            prefetch(weights.words, column, 0)
            prefetch(weights.words, column + 1, 0)  # a word's weights may lie on two lines
            prefetch(kinds, column, 0)


@kernel
def hybrid(
    counts: Counts,
    weights: Weights,
    part: Counts,
    part_weights: Weights,
    mode: int,
    kinds: U8,
    table: Table,
    rows: Rows,
    present: Flags,
    updates: RowUpdates,
    options: RunOptions,
    scratch: HybridScratch,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Add each row's scores to `out`, then learn the row where it has a label.

    The kinds of new words are read off their texts in the table.
    `counts` and `weights` answer; the part's own learn, and the sums follow. `mode` is WHOLE if the
    part is the same arrays, ONE_PART if it has the same numbers, else PARTS.
    Returns where it stopped, why, and how many new words that row has, as `multinomial` does.
    """
    labels, amounts, scales = updates
    is_shared = mode != WHOLE
    weigh_groups(weights, scratch.weights)
    weigh_groups(part_weights, scratch.own_weights)
    for i in range(options.row, len(labels)):
        prefetch_weights(counts, weights, kinds, rows, i + 1)
        if not present[i]:
            continue
        x = -1.0
        y = labels[i]
        to_learn = options.learn and y >= 0
        is_taken = amounts[i] < 0.0
        if i >= options.n_predicted and not is_taken:
            x = score(
                counts, weights, scratch.weights, kinds, rows, i, scales[i], to_learn, scratch
            )
            for c in range(out.shape[1]):
                out[i, c] += scratch.scores[c]
        if not to_learn:
            continue
        if is_taken:
            learn_row(part, rows, i, y, amounts[i], 0)
            if is_shared:
                learn_row(counts, rows, i, y, amounts[i], 0)
            forget_words(part_weights, weights, is_shared, part.by_word, rows, i)
            continue
        n_new = count_new(part.by_word, rows, i)
        if has_no_room(part, n_new, options.n_max):
            return i, FULL, n_new
        if mode == PARTS or x < 0.0:
            own = scratch.own_weights
            x = score(part, part_weights, own, kinds, rows, i, scales[i], to_learn, scratch)
        weight = min(amounts[i] / scales[i], 1.0)
        if x > 0.0:
            learn_weights(
                part_weights, weights, is_shared, part.by_word, rows, i, y, x, weight, scratch
            )
        decay = scratch.options[DECAY]
        count_recent(part_weights.recent, weights.recent, is_shared, y, decay, 1.0)
        if n_new > 0:
            name_kinds(part, kinds, table, rows, i)
        if is_shared:
            learn_row(counts, rows, i, y, amounts[i], count_new(counts.by_word, rows, i))
        learn_row(part, rows, i, y, amounts[i], n_new)
    return len(labels), ADDED, 0


@kernel
def word_kinds(table: Table, n: int, kinds: U8) -> None:
    """Write the kinds of the first `n` columns."""
    for column in range(n):
        kinds[column] = kind_of(table.words, table.word_ends, column)


@kernel
def explain(
    counts: Counts,
    weights: Weights,
    kinds: U8,
    columns: I64,
    times: F64,
    n_tokens: float,
    scale: float,
    scratch: HybridScratch,
    out: F64Grid,
) -> None:
    """Write what each word of an example adds to its scores."""
    x = of_length(n_tokens)
    per_count = 1.0 / scale
    prior = word_prior(weights, scratch.options)
    weigh_groups(weights, scratch.weights)
    for c in range(len(counts.tokens)):
        scratch.log_totals[c] = np.log(counts.tokens[c] / scale + 1.0)
    for k in range(len(columns)):
        total = 0.0
        for c in range(len(counts.tokens)):
            total += counts.by_word[columns[k], c]
            scratch.scores[c] = 0.0
        if total == 0.0:
            continue
        add_word(
            counts, weights, scratch.weights, columns[k], int(kinds[columns[k]]), times[k],
            total * per_count, per_count, prior, len(counts.tokens), False, scratch,
        )  # fmt: skip
        for c in range(len(counts.tokens)):
            out[k, c] = x * scratch.scores[c]
