"""Class prior, log-sum-exp and the posterior: written once, for every family.

With joint log-likelihoods s_c, the winner's log-posterior is −log1p(Σ_{k≠best} exp(s_k − s_best)),
which keeps its digits where 1 − p would not; the others stand below it by their distance. `-inf` (a
zero of maximum likelihood) is legal. Where every class has it, the class prior answers.
"""

from __future__ import annotations

import numpy as np
from numba import types

from streamnb.kernels._jit import inner, kernel
from streamnb.kernels.layout import F64, I32, F64Grid

_TINY = 1e-200
_HUGE = 1e200


@inner
def log_prior(examples: F64, concentration: float, c: int, n: float) -> float:
    """Return log (N_c + α) / (n + k·α), uniform where there is neither data nor α."""
    k = len(examples)
    total = n + k * concentration
    if total == 0.0:
        return float(-np.log(np.float64(k)))
    return float(np.log((examples[c] + concentration) / total))


@kernel(
    types.void,
    types.float64[::1],
    types.float64,
    types.int32[::1],
    types.boolean,
    types.float64[::1],
    types.float64[:, ::1],
    releases_gil=False,
)
def class_prior(
    examples: F64, concentration: float, labels: I32, learn: bool, now: F64, out: F64Grid
) -> None:
    """Write the log class prior as it stood before each example, and count the labelled ones.

    `now` has a place for each class.
    """
    n_classes = len(examples)
    n = 0.0
    for c in range(n_classes):
        n += examples[c]
    for c in range(n_classes):
        now[c] = log_prior(examples, concentration, c, n)
    for i in range(len(labels)):
        for c in range(n_classes):
            out[i, c] = now[c]
        y = labels[i]
        if learn and y >= 0:
            examples[y] += 1.0
            n += 1.0
            for c in range(n_classes):
                now[c] = log_prior(examples, concentration, c, n)


@kernel(types.void, types.float64[:, ::1], types.float64[:, ::1], releases_gil=False)
def normalise(joint: F64Grid, prior: F64Grid) -> None:
    """Turn joint log-likelihoods into log-posteriors, in place, row by row."""
    n_classes = joint.shape[1]
    for i in range(joint.shape[0]):
        best = 0
        for c in range(1, n_classes):
            if joint[i, c] > joint[i, best]:
                best = c
        if n_classes > 0 and joint[i, best] == -np.inf:
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


@inner
def fold(product: float, total: float) -> tuple[float, float]:
    """Move a product that leaves the range into a sum of logs: one logarithm, dozens of factors."""
    if product > _HUGE or product < _TINY:
        return 1.0, total + np.log(product)
    return product, total
