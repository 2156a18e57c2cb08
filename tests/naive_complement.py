"""Slow, plain twin of complement naive Bayes, after the paper's own steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def weights(
    by_word: NDArray[np.float64], alpha: NDArray[np.float64] | float, *, normalise: bool
) -> list[list[float]]:
    """Return −log θ̃_cj of each word and class, divided by the class's sum with `normalise`.

    `by_word` has a row for each word of the vocabulary, and no other.
    """
    v, n_classes = by_word.shape
    alphas = np.broadcast_to(alpha, (v, n_classes))
    if n_classes == 1:
        return [[0.0] for _ in range(v)]
    by_class = []
    for c in range(n_classes):
        tops = [
            math.fsum([*(by_word[j, k] for k in range(n_classes) if k != c), alphas[j, c]])
            for j in range(v)
        ]
        bottom = math.log(math.fsum(tops))
        told = [bottom - math.log(top) for top in tops]
        total = math.fsum(told)
        if normalise:
            told = [each / total if v > 1 else 0.0 for each in told]
        by_class.append(told)
    return [list(row) for row in zip(*by_class, strict=True)]


def log_likelihood(
    row: Mapping[int, float],
    live: Sequence[int],
    by_word: NDArray[np.float64],
    alpha: NDArray[np.float64] | float,
    *,
    normalise: bool,
) -> list[float]:
    """Return what a row tells of each class; `live` are the columns of the vocabulary."""
    chosen = list(live)
    of_each = np.asarray(alpha)
    if of_each.ndim == 2 and len(of_each) > 1:
        of_each = of_each[chosen]
    table = dict(
        zip(chosen, weights(by_word[chosen], of_each, normalise=normalise), strict=True)
        if chosen
        else ()
    )
    known = [(times, table[j]) for j, times in row.items() if j in table]
    return [math.fsum(times * told[c] for times, told in known) for c in range(by_word.shape[1])]
