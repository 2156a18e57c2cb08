"""Class prior, log-sum-exp and the posterior: written once, for every family.

The class prior reads the examples of each class, or with a half-life the recent ones: R_c, which an
example first multiplies by a decay and then adds to. They are kept as multiples of `QUANTUM`, so
that those of several logs add up exactly, in any order.

With joint log-likelihoods s_c, the winner's log-posterior is −log1p(Σ_{k≠best} exp(s_k − s_best)),
which keeps its digits where 1 − p would not; the others stand below it by their distance. `-inf` (a
zero of maximum likelihood) is legal. Where every class has it, the class prior answers.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels.jit import inner, kernel, short_kernel
from streamnb.kernels.layout import F64, I32, F64Grid, Flags, Int, RowUpdates

# Of the weight taken away: a smaller rest is what rounding left of fractional weights. Multiples of
# 1/1024 leave none, below where they are exact by far.
DUST = 1e-9
EXACT_PARTS, EXACT_BELOW, WHOLE_BELOW = 1024.0, 2.0**33, 2.0**53
QUANTUM = 2.0**-24
TINY = 1e-200
HUGE = 1e200


@inner
def log_prior(
    examples: F64, pseudo: F64, fixed: bool, scale: float, c: int, n: float, pseudo_sum: float
) -> float:
    """Return log (N_c + α_c) / (n + Σα), uniform where there is neither data nor α.

    With `fixed`, `pseudo` are the probabilities themselves.
    """
    if fixed:
        return float(np.log(pseudo[c]))
    total = n + pseudo_sum * scale
    if total == 0.0:
        return float(-np.log(np.float64(len(examples))))
    return float(np.log((examples[c] + pseudo[c] * scale) / total))


@short_kernel
def class_prior(
    examples: F64,
    pseudo: F64,
    fixed: bool,
    updates: RowUpdates,
    learn: bool,
    now: F64,
    out: F64Grid,
) -> None:
    """Write the log class prior as it stood before each example, and count the labelled ones.

    `pseudo` are the pseudo-counts α_c, or with `fixed` the probabilities. `now` has a place for
    each class; it holds the last row's prior in the end.
    """
    labels, weights, scales, _, _, decays = updates
    n_classes = len(examples)
    n = 0.0
    pseudo_sum = 0.0
    for c in range(n_classes):
        n += examples[c]
        pseudo_sum += pseudo[c]
    scale = -1.0
    for i in range(len(labels)):
        if scales[i] != scale:
            scale = scales[i]
            for c in range(n_classes):
                now[c] = log_prior(examples, pseudo, fixed, scale, c, n, pseudo_sum)
        for c in range(n_classes):
            out[i, c] = now[c]
        y = labels[i]
        if learn and y >= 0:
            examples[y] = add_weight(examples[y], weights[i], decays)
            n = 0.0
            for c in range(n_classes):
                n += examples[c]
            scale = -1.0  # what stands in `now` is of the past


@inner
def rounded(value: float) -> float:
    """Return the nearest multiple of `QUANTUM`: sums of such are exact."""
    return float(np.floor(value * (1.0 / QUANTUM) + 0.5) * QUANTUM)


@inner
def count_recent(
    own: F64, whole: F64, is_shared: bool, y: int, decay: float, weight: float
) -> None:
    """Count an example among the recent ones of its log, and of the sum of all logs if shared."""
    for c in range(len(own)):
        before = own[c]
        own[c] = rounded(before * decay) + (rounded(weight) if c == y else 0.0)
        if is_shared:
            whole[c] += own[c] - before


@inner
def change_recent(
    examples: F64,
    own: F64,
    whole: F64,
    is_shared: bool,
    decay: float,
    y: int,
    weight: float,
    counted: float,
    decays: bool,
) -> None:
    """Learn an example among the recent ones, or take one back.

    How much of it is left among them is not known any more: R_c shrinks by as much as N_c does,
    which is the mean over all examples of the class. `examples` are the log's N_c, which count
    along by its weight; among the recent ones it counts as `counted` says.
    """
    held = examples[y]
    examples[y] = add_weight(held, weight, decays)
    if weight > 0.0:
        count_recent(own, whole, is_shared, y, decay, counted)
    elif held > 0.0:
        before = own[y]
        own[y] = rounded(before * (examples[y] / held))
        if is_shared:
            whole[y] += own[y] - before


@short_kernel
def recent_class_prior(
    examples: F64,
    own: F64,
    whole: F64,
    is_shared: bool,
    pseudo: F64,
    decay: float,
    most: float,
    updates: RowUpdates,
    learn: bool,
    now: F64,
    out: F64Grid,
) -> None:
    """Write the log class prior of recent examples, as `class_prior` does that of all.

    `own` are the recent examples of the log that learns, `whole` those of all logs; `examples` is
    a copy of the log's N_c. An example counts as `most` at most: a model that decays weighs those
    that are newer than all before above 1.
    """
    labels, weights, _, own_scales, _, decays = updates
    n_classes = len(whole)
    is_due = True
    for i in range(len(labels)):
        if is_due:
            n = 0.0
            pseudo_sum = 0.0
            for c in range(n_classes):
                n += whole[c]
                pseudo_sum += pseudo[c]
            for c in range(n_classes):
                now[c] = log_prior(whole, pseudo, False, 1.0, c, n, pseudo_sum)
            is_due = False
        for c in range(n_classes):
            out[i, c] = now[c]
        if learn and labels[i] >= 0:
            counted = min(weights[i] / own_scales[i], most)
            y, weight = labels[i], weights[i]
            change_recent(examples, own, whole, is_shared, decay, y, weight, counted, decays)
            is_due = True


@kernel
def count_recent_classes(examples: F64, own: F64, decay: float, updates: RowUpdates) -> None:
    """Count the labelled examples among the recent ones, as `recent_class_prior` does."""
    labels, weights, _, _, _, decays = updates
    for i in range(len(labels)):
        if labels[i] >= 0:
            y, weight = labels[i], weights[i]
            change_recent(examples, own, own, False, decay, y, weight, weight, decays)


@kernel
def count_classes(examples: F64, updates: RowUpdates) -> None:
    """Count the labelled examples by class, as `class_prior` does while it predicts."""
    labels, weights, _, _, _, decays = updates
    for i in range(len(labels)):
        y = labels[i]
        if y >= 0:
            examples[y] = add_weight(examples[y], weights[i], decays)


@short_kernel
def normalise(joint: F64Grid, prior: F64Grid) -> int:
    """Turn joint log-likelihoods into log-posteriors, in place, row by row.

    Where every class has likelihood zero, the class prior answers; returned is how many such rows
    there are.
    """
    n_classes = joint.shape[1]
    n_by_prior = 0
    for i in range(joint.shape[0]):
        best = 0
        for c in range(1, n_classes):
            if joint[i, c] > joint[i, best]:
                best = c
        if n_classes > 0 and joint[i, best] == -np.inf:
            n_by_prior += 1
            for c in range(n_classes):
                joint[i, c] = prior[i, c]
            for c in range(1, n_classes):
                if joint[i, c] > joint[i, best]:
                    best = c
        rest = 0.0
        for c in range(n_classes):
            if c != best:
                rest += np.exp(joint[i, c] - joint[i, best])
        top = joint[i, best] if n_classes > 0 else 0.0
        for c in range(n_classes):
            joint[i, c] = joint[i, c] - top - np.log1p(rest)
    return n_by_prior


@inner
def _is_exact(count: float, taken: float, decays: bool) -> bool:
    """Return whether what is left of a count is no rest of rounding.

    Multiples of 1/1024 leave none, nor do larger whole numbers. Weights that decay are neither but
    by accident: far from the landmark float64 has few bits for their fractions, or none.
    """
    if decays:
        return False
    if taken < EXACT_BELOW:
        parts = (count - taken) * EXACT_PARTS
        return bool(parts == np.floor(parts))
    return bool(taken < WHOLE_BELOW and taken == np.floor(taken) and count == np.floor(count))


@inner
def add_weight(count: float, change: float, decays: bool) -> float:
    """Return a count after a change; what is left of it by rounding alone is nothing."""
    left = count + change
    if change < 0.0 and left < -DUST * change:
        return left if left > 0.0 and _is_exact(count, -change, decays) else 0.0
    return left


@inner
def is_short(held: float, wanted: float, decays: bool) -> bool:
    """Return whether less is held than is wanted back."""
    return bool(held < wanted * (1.0 - DUST) or (held < wanted and _is_exact(held, wanted, decays)))


@kernel
def find_short(
    held: F64Grid, columns: I32, labels: I32, wanted: F64, decays: bool, before: F64, short: Flags
) -> None:
    """Find the entries of which less is held than is wanted back, entry after entry.

    `held` is written to meanwhile, and comes back bit for bit. `before` gets what each entry finds.
    A column that is none holds nothing; an entry without a label wants nothing.
    """
    for at in range(len(columns)):
        column, y = columns[at], labels[at]
        known = 0 <= column < len(held)
        before[at] = held[column, y] if known and y >= 0 else 0.0
        short[at] = y >= 0 and (not known or is_short(before[at], wanted[at], decays))
        if y >= 0 and not short[at]:
            held[column, y] = add_weight(before[at], -wanted[at], decays)
    for at in range(len(columns) - 1, -1, -1):
        if labels[at] >= 0 and not short[at]:
            held[columns[at], labels[at]] = before[at]


@inner
def multiply_scaled(product: float, factor: float, log_scale: float) -> tuple[float, float]:
    """Return product and log-scale after a factor of any size: one logarithm for dozens of them."""
    larger = product * factor
    if larger > HUGE or larger < TINY:
        return 1.0, log_scale + (np.log(product) + np.log(factor))
    return larger, log_scale


# A product a class: `products` has a row for each class, the product and its log-scale.

_SMALL = 1e-100  # a smaller factor could take a product below what a float64 holds
REPEATS_MAX = 8  # beyond, a logarithm is cheaper than repeated multiplication


@inner
def start_products(products: F64Grid) -> None:
    """Set each class's product to 1."""
    for c in range(len(products)):
        products[c, 0] = 1.0
        products[c, 1] = 0.0


@inner
def multiply_probability(products: F64Grid, c: Int, factor: float) -> None:
    """Multiply a class's product by a probability; zero makes its logarithm -inf for good."""
    if factor < _SMALL:
        products[c, 1] += np.log(factor)
    else:
        products[c, 0], products[c, 1] = multiply_scaled(products[c, 0], factor, products[c, 1])


@inner
def multiply_power(products: F64Grid, c: Int, factor: float, times: float) -> None:
    """Multiply a class's product by a factor as often as a word occurs."""
    if times == 1.0:  # as nearly always
        products[c, 0], products[c, 1] = multiply_scaled(products[c, 0], factor, products[c, 1])
    elif times <= REPEATS_MAX and times == np.floor(times):
        for _ in range(np.int64(times)):
            products[c, 0], products[c, 1] = multiply_scaled(products[c, 0], factor, products[c, 1])
    else:
        products[c, 1] += times * np.log(factor)


@inner
def log_product(products: F64Grid, c: Int) -> float:
    """Return the logarithm of a class's product."""
    return float(products[c, 1] + np.log(products[c, 0]))


@inner
def add_log_products(products: F64Grid, out: F64Grid, i: Int) -> None:
    """Add each class's log-product to row `i`."""
    for c in range(len(products)):
        out[i, c] += log_product(products, c)
