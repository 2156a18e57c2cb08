"""The hybrid's answer and its learning: log-odds of the counts, weighted by online regression.

The score of class c for an example with n known words is

    z_c = x·Σ_j (3·w_g·r_jc + v_jc),   x = (n + 1)^(−3/4)
    r_jc = log (N_jc + m) − log (N_j·T_c/T + m)

where word j's group g is a kind (`KINDS`) and a band of its count (`band`). r_jc compares how often
the word came in the class with how often it would have, did it come in all of them alike: where
little can be expected, as in a class of few words, that it did not come says nothing. Of k classes
m is 2/k of the smoothing of two, as a word's count is spread over k.
For two classes z_1 − z_0 is the log-odds. w_g and v_jc are learned by the gradient of the log-loss,
before the counts take the example in. Each is kept as a sum of gradients and a precision (the sum
of curvatures; of v_jc the mean of all classes', twice): the weight is their quotient, with a
prior's precision in it. So what several logs
have learned adds up as counts do. The gradients of all classes add up to zero, so that of the first
is not kept. The prior of v_jc then counts as often as the cube root of the number of logs
(`word_prior`), that of w_g once. The sums are multiples of 2⁻²⁴ (`rounded`), so that adding them is
exact in any order. Under decay those of v_jc fade as counts do: examples enter with growing
weights, and the prior's precision is scaled (`decay`); w_g follows by steps of a least size.

What other groups of the model say, numbers, flags and categories, is weighted beside it: the score
gains Σ_o u_o·s_oc, where s_oc is group o's log-likelihood in class c less that of its best class,
and no less than −`SAID_MAX`. u_o begins at 1 and takes the steps of a w_g, in the gradient of the
whole score.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamnb.kernels.counting import (
    ADDED,
    ALIGNED_BYTES,
    FULL,
    NEAR_WORDS,
    count_new,
    has_no_room,
    is_new,
    learn_row,
    prefetch_row,
    write_shares,
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
    prefetch,
)
from streamnb.kernels.posterior import count_recent, rounded

# A word, a negated word, an n-gram of two words, a longer one or one of characters.
KINDS = 4
BANDS = (2, 4, 10, 30, 100, 1000, 10_000)  # where a band of counts begins; see `band`
N_BANDS = len(BANDS) + 1
N_WORD_GROUPS = KINDS * N_BANDS
WEIGHT_START = 0.6  # w_g before anything is learned
WEIGHT_PRECISION = 100.0
_PRECISION_MAX = 500.0  # of w_g: its step gets no smaller, so that it follows the stream
_SCALE = 3.0
_FACTORS = 8  # so many ratios multiply before their logarithm is taken
_LARGE = 1e30  # a word with a larger count begins a new product, so that none overflows
OTHER_START = 1.0  # u_o before anything is learned
SAID_MAX = 10.0  # nats: so far apart a group may put two classes, so that no example moves u_o far
WHOLE, ONE_PART, PARTS = range(3)  # see `hybrid`
SMOOTHING, SHRINKAGE, DECAY = range(3)  # places in the options


class Weights(NamedTuple):
    """What the hybrid has learned beside the counts: sums of gradients, and of curvatures."""

    recent: F64  # (n_classes,): examples by class, with a half-life
    groups: F64Grid  # (N_WORD_GROUPS, 2): precision and gradients of w_g
    # (capacity, n_classes): precision of v_jc, and its gradients of all classes but the first
    words: F64Grid
    others: F64Grid  # (n_others, 2): precision and gradients of u_o


class Said(NamedTuple):
    """Log-likelihoods by the other groups, (n_others·n, n_classes): row i of group o is o·n + i."""

    whole: F64Grid  # by the statistics that answer
    own: F64Grid  # by those of the part that learns


class HybridScratch(NamedTuple):
    """Room for one example's sums, and the options and logarithms that a run needs."""

    sums: F64Grid  # (N_WORD_GROUPS, n_classes): Σ_j r_jc of the groups that occur
    ratios: F64Grid  # of the same shape: what a part of the sum is the logarithm of
    weights: F64  # (N_WORD_GROUPS,): 3·w_g of what answers
    own_weights: F64  # (N_WORD_GROUPS,): those of the part that learns
    occurs: I64  # (N_WORD_GROUPS,): how many words of the group occur
    scores: F64  # (n_classes,): z_c, then p_c, then the gradient
    shares: F64  # (n_classes,): T_c / T
    bands: I64  # `band` of small whole counts
    options: F64  # SMOOTHING, SHRINKAGE, DECAY
    others: F64Grid  # (n_others, n_classes): s_oc, to learn by


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
def mean_weight(rows: F64Grid, at: int, start: float) -> float:
    """Return a weight of precision and gradients: w_g or u_o."""
    return float(start + rows[at, 1] / (WEIGHT_PRECISION + rows[at, 0]))


@inner
def group_weight(weights: Weights, g: int) -> float:
    """Return w_g."""
    return mean_weight(weights.groups, g, WEIGHT_START)


@inner
def best_said(said: F64Grid, row: int) -> float:
    """Return a group's best log-likelihood of a row."""
    best = -np.inf
    for c in range(said.shape[1]):
        best = max(best, said[row, c])
    return best


@inner
def answer_others(weights: Weights, said: F64Grid, i: int, out: F64Grid) -> None:
    """Add Σ_o u_o·s_oc of row `i` to `out`; a class that a group finds impossible stays so."""
    for o in range(len(weights.others)):
        row = o * (len(said) // len(weights.others)) + i
        best, weight = best_said(said, row), mean_weight(weights.others, o, OTHER_START)
        for c in range(out.shape[1]):
            value = said[row, c]
            out[i, c] += weight * max(value - best, -SAID_MAX) if value > -np.inf else -np.inf


@inner
def score_others(weights: Weights, said: F64Grid, i: int, scratch: HybridScratch) -> None:
    """Add Σ_o u_o·s_oc of row `i` to the scores, and note s_oc.

    An impossible class lies `SAID_MAX` below the best here, so that there is a gradient.
    """
    for o in range(len(weights.others)):
        row = o * (len(said) // len(weights.others)) + i
        best, weight = best_said(said, row), mean_weight(weights.others, o, OTHER_START)
        for c in range(len(scratch.scores)):
            value = said[row, c]
            s = max(value - best, -SAID_MAX) if value > -np.inf else -SAID_MAX
            scratch.others[o, c] = s
            scratch.scores[c] += weight * s


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
    column: int,
    kind: int,
    times: float,
    total: float,
    per_count: float,
    prior: float,
    n_classes: int,
    scratch: HybridScratch,
) -> None:
    """Add a known word's v_jc, but for x, to the scores, and its r_jc to its group.

    `total` is the word's count over all classes. The ratios whose logarithms r_jc are multiply up,
    as a logarithm takes far longer than a product.
    """
    m = scratch.options[SMOOTHING]
    # No processor foresees which band comes next: a table asks for no branch.
    small = total < len(scratch.bands)
    g = kind * N_BANDS + (scratch.bands[np.int64(total)] if small else band(total))
    n_before = scratch.occurs[g]
    scratch.occurs[g] = n_before + 1
    if (n_before >= _FACTORS and n_before % _FACTORS == 0) or total > _LARGE:
        for c in range(n_classes):
            scratch.sums[g, c] += np.log(scratch.ratios[g, c])
            scratch.ratios[g, c] = 1.0
    factor = times / (prior + weights.words[column, 0])
    gradient = 0.0
    for c in range(1, n_classes):
        gradient -= weights.words[column, c]
        scratch.scores[c] += factor * weights.words[column, c]
    scratch.scores[0] += factor * gradient
    if times == 1.0:
        for c in range(n_classes):
            ratio = (counts.by_word[column, c] * per_count + m) / (total * scratch.shares[c] + m)
            scratch.ratios[g, c] *= ratio
    else:
        for c in range(n_classes):
            ratio = (counts.by_word[column, c] * per_count + m) / (total * scratch.shares[c] + m)
            scratch.sums[g, c] += times * np.log(ratio)


@inner
def start_groups(scratch: HybridScratch) -> None:
    """Begin the sums of an example: of all groups, as no processor foresees which come first."""
    scratch.occurs[:] = 0
    scratch.sums[:] = 0.0
    scratch.ratios[:] = 1.0


@inner
def add_groups(group_weights: F64, n_classes: int, scratch: HybridScratch) -> None:
    """Write Σ_j r_jc of the groups that occur, and add them to the scores by their weights."""
    for g in range(N_WORD_GROUPS):
        if scratch.occurs[g] > 0:
            for c in range(n_classes):
                scratch.sums[g, c] += np.log(scratch.ratios[g, c])
                scratch.scores[c] += group_weights[g] * scratch.sums[g, c]


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
    scratch: HybridScratch,
) -> float:
    """Write z_c of row `i` into the scratch; return x, or 0 if no word of it is known."""
    scratch.scores[:] = 0.0
    write_shares(counts, n_classes, scratch.shares)
    start_groups(scratch)
    per_count = 1.0 / scale
    prior = scale * word_prior(weights, scratch.options)
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
            counts, weights, column, int(kinds[column]), times, total * per_count, per_count, prior,
            n_classes, scratch,
        )  # fmt: skip
    if n_tokens == 0.0:
        return 0.0
    add_groups(group_weights, n_classes, scratch)
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
    counts: Counts, weights: Weights, group_weights: F64, kinds: U8, rows: Rows, i: int,
    scale: float, scratch: HybridScratch,
) -> float:  # fmt: skip
    """Write z_c of row `i` into the scratch; return x, or 0 if no word of it is known.

    For two classes the compiler writes out the loops over classes.
    """
    n_classes = len(counts.tokens)
    if n_classes == 2:
        return add_words(counts, weights, group_weights, kinds, rows, i, scale, 2, scratch)
    return add_words(counts, weights, group_weights, kinds, rows, i, scale, n_classes, scratch)


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
def put(row: F64Grid, at: int, place: int, value: float, total: F64Grid, is_shared: bool) -> None:
    """Set a sum of a part, and move that of the whole by as much."""
    before = row[at, place]
    row[at, place] = value
    if is_shared:  # of equal numbers equal ones are made: under decay the difference rounds
        held = total[at, place]
        total[at, place] = value if held == before else held + (value - before)


@inner
def move_weight(
    own: F64Grid,
    whole: F64Grid,
    is_shared: bool,
    at: int,
    start: float,
    sums: F64Grid,
    scale: float,
    y: int,
    weight: float,
    gradients: F64,
) -> None:
    """Take a step of one weight of a group, which multiplies `scale` times its sums by class."""
    gradient, mean, square = 0.0, 0.0, 0.0
    for c in range(len(gradients)):
        p = (1.0 if c == y else 0.0) - gradients[c]
        s = scale * sums[at, c]
        gradient += gradients[c] * s
        mean += p * s
        square += p * s * s
    before = own[at, 0]
    more = weight * max(square - mean * mean, 0.0)
    after = min(rounded(before + more), _PRECISION_MAX)
    # The weight stays where it was while its precision grows; then comes the step.
    held = (mean_weight(own, at, start) - start) * (after - before)
    put(own, at, 0, after, whole, is_shared)
    put(own, at, 1, rounded(own[at, 1] + (held + weight * gradient)), whole, is_shared)


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
    unit: float,
    scratch: HybridScratch,
) -> None:
    """Take a step for row `i`, which the part has just scored; decay has scaled it by `unit`."""
    scores, sums = scratch.scores, scratch.sums
    n_classes = len(scores)
    curvature = to_gradient(own.recent, y, scores)
    for g in range(N_WORD_GROUPS):
        if scratch.occurs[g] > 0:
            move_weight(
                own.groups, whole.groups, is_shared, g, WEIGHT_START, sums, _SCALE * x, y, weight,
                scores,
            )  # fmt: skip
            scratch.weights[g] = _SCALE * group_weight(whole, g)
            scratch.own_weights[g] = _SCALE * group_weight(own, g)
    learn_others(own, whole, is_shared, y, weight, scratch)
    prior, per_unit = 2.0 * scratch.options[SHRINKAGE] * unit, 1.0 / unit
    curvature *= 2.0 / n_classes
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if is_new(known, column):
            continue
        there = x * rows.counts[at]
        before = own.words[column, 0]
        more = unit * rounded(weight * there * there * curvature)
        grown, step = more / (prior + before), unit * (weight * there)
        put(own.words, column, 0, before + more, whole.words, is_shared)
        for c in range(1, n_classes):
            held = own.words[column, c]
            after = held + (held * grown + step * scores[c])
            put(own.words, column, c, unit * rounded(per_unit * after), whole.words, is_shared)


@inner
def learn_others(
    own: Weights, whole: Weights, is_shared: bool, y: int, weight: float, scratch: HybridScratch
) -> None:
    """Take a step of each u_o; the scores are the gradient by now."""
    for o in range(len(own.others)):
        move_weight(
            own.others, whole.others, is_shared, o, OTHER_START, scratch.others, 1.0, y, weight,
            scratch.scores,
        )  # fmt: skip


@inner
def forget_words(
    own: Weights, whole: Weights, is_shared: bool, by_word: F64Grid, rows: Rows, i: int
) -> None:
    """Set the weights of row `i`'s words to zero if nothing is left of their counts."""
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if column >= 0 and is_new(by_word, column):
            for place in range(own.words.shape[1]):
                put(own.words, column, place, 0.0, whole.words, is_shared)


@inner
def take_back(
    counts: Counts,
    weights: Weights,
    part: Counts,
    part_weights: Weights,
    is_shared: bool,
    rows: Rows,
    i: int,
    updates: RowUpdates,
) -> None:
    """Take row `i` out of the counts; weights stay but for those of words that are gone."""
    y, amount = updates.labels[i], updates.weights[i]
    learn_row(part, rows, i, y, amount, 0, updates.decays)
    if is_shared:
        learn_row(counts, rows, i, y, amount, 0, updates.decays)
    forget_words(part_weights, weights, is_shared, part.by_word, rows, i)


@inner
def prefetch_weights(counts: Counts, weights: Weights, kinds: U8, rows: Rows, i: int) -> None:
    """Have counts, weights and kinds of row `i`, if there is one, brought near."""
    prefetch_row(counts, rows, i)
    if i + 1 < len(rows.indptr) and counts.state[LIVE] > NEAR_WORDS:
        n_bytes = 8 * weights.words.shape[1]
        for at in range(rows.indptr[i], rows.indptr[i + 1]):
            column = np.int64(rows.columns[at])
            prefetch(weights.words, column, 0)
            if n_bytes > ALIGNED_BYTES:  # a word's weights may lie on two lines
                prefetch(weights.words, column, n_bytes - 1)
            prefetch(kinds, column, 0)


@kernel
def hybrid(
    counts: Counts,
    weights: Weights,
    part: Counts,
    part_weights: Weights,
    mode: int,
    kinds: U8,
    rows: Rows,
    present: Flags,
    updates: RowUpdates,
    options: RunOptions,
    said: Said,
    scratch: HybridScratch,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Add each row's scores to `out`, then learn the row where it has a label.

    `kinds` has those of all words of the rows. `said` is what the groups say that
    `weights.others` are of: with them a row without a text is one of no words, but not counted.
    `counts` and `weights` answer; the part's own learn, and the sums follow. `mode` is WHOLE if the
    part is the same arrays, ONE_PART if it has the same numbers, else PARTS.
    Returns where it stopped, why, and how many new words that row has, as `multinomial` does.
    """
    labels, amounts, scales, own_scales, own_after, decays = updates
    is_shared, has_others = mode != WHOLE, len(weights.others) > 0
    weigh_groups(weights, scratch.weights)
    weigh_groups(part_weights, scratch.own_weights)
    for i in range(options.row, len(labels)):
        prefetch_weights(counts, weights, kinds, rows, i + 1)
        if not (present[i] or has_others):
            continue
        x, y = -1.0, labels[i]
        to_learn = options.learn and y >= 0
        is_taken = amounts[i] < 0.0
        if i >= options.n_predicted and not is_taken:
            x = score(counts, weights, scratch.weights, kinds, rows, i, scales[i], scratch)
            for c in range(out.shape[1]):
                out[i, c] += scratch.scores[c]
            answer_others(weights, said.whole, i, out)
        if not to_learn:
            continue
        if is_taken:
            if present[i]:
                take_back(counts, weights, part, part_weights, is_shared, rows, i, updates)
            continue
        n_new = count_new(part.by_word, rows, i)
        if has_no_room(part, n_new, options.n_max):
            return i, FULL, n_new
        if mode == PARTS or x < 0.0 or own_scales[i] != scales[i]:
            own = scratch.own_weights
            x = score(part, part_weights, own, kinds, rows, i, own_scales[i], scratch)
        weight = min(amounts[i] / own_after[i], 1.0)
        if x > 0.0 or has_others:
            score_others(part_weights, said.own, i, scratch)
            learn_weights(
                part_weights, weights, is_shared, part.by_word, rows, i, y, x, weight,
                own_after[i], scratch,
            )  # fmt: skip
        decay = scratch.options[DECAY]
        count_recent(part_weights.recent, weights.recent, is_shared, y, decay, 1.0)
        if not present[i]:
            continue
        if is_shared:
            learn_row(counts, rows, i, y, amounts[i], count_new(counts.by_word, rows, i), decays)
        learn_row(part, rows, i, y, amounts[i], n_new, decays)
    return len(labels), ADDED, 0


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
    prior = scale * word_prior(weights, scratch.options)
    weigh_groups(weights, scratch.weights)
    write_shares(counts, len(counts.tokens), scratch.shares)
    for k in range(len(columns)):
        total = 0.0
        for c in range(len(counts.tokens)):
            total += counts.by_word[columns[k], c]
            scratch.scores[c] = 0.0
        if total == 0.0:
            continue
        start_groups(scratch)
        add_word(
            counts, weights, columns[k], int(kinds[columns[k]]), times[k], total * per_count,
            per_count, prior, len(counts.tokens), scratch,
        )  # fmt: skip
        add_groups(scratch.weights, len(counts.tokens), scratch)
        for c in range(len(counts.tokens)):
            out[k, c] = x * scratch.scores[c]
