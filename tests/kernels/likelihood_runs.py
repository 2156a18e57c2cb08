"""Both families' kernels run over rows made by hand, and how far an answer may be from its twin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamnb.kernels import counting
from streamnb.kernels.layout import Counts, RunOptions
from streamnb.likelihoods.base import Estimator
from tests.kernels.rows import Row, batch_of, teaching_of

RELATIVE = 1e-12


def run(
    estimator: Estimator, counts: Counts, rows: Sequence[Row | None], labels: Sequence[int] = ()
) -> NDArray[np.float64]:
    """Predict rows, and learn those with a label as they come; return their log-likelihoods.

    Without labels nothing is learned.
    """
    out = np.zeros((len(rows), len(counts.examples)))
    ended = estimator.run(
        counts,
        batch_of(rows),
        teaching_of(labels or [-1] * len(rows)),
        RunOptions(0, 0, bool(labels), 1 << 62),
        len(counts.by_word),
        out,
    )
    assert ended == (len(rows), counting.ADDED, 0)
    return out


def same(one: Estimator, other: Estimator) -> bool:
    """Return whether two estimators hold the same cache, bit for bit; spare room does not count."""
    return vars(one).keys() == vars(other).keys() and _cache(one) == _cache(other)


def _cache(estimator: Estimator) -> list[list[object]]:
    absence = vars(estimator).get("_absence")
    if absence is None:
        return []
    used = range(len(absence.n_heavy))
    heavy = [absence.heavy[c, : absence.n_heavy[c]].tolist() for c in used]
    return [*(a.tolist() for a in absence if a is not absence.heavy), heavy]


def deviation(found: NDArray[np.float64], expected: Sequence[Sequence[float]]) -> float:
    """Return the largest |found − expected| / max(1, |expected|); infinities must agree."""
    wanted = np.array(expected, dtype=np.float64).reshape(found.shape)
    assert not np.isnan(found).any()
    assert np.array_equal(np.isneginf(found), np.isneginf(wanted))
    finite = np.isfinite(wanted)
    apart = np.abs(found[finite] - wanted[finite]) / np.maximum(1.0, np.abs(wanted[finite]))
    return float(apart.max(initial=0.0))
