"""Complement's kernel against its plain twin, and its sums against counts alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import Complement, Dirichlet
from streamnb.features import statistics
from streamnb.kernels import counting
from streamnb.kernels.layout import DECLARED, Counts, RowUpdates, RunOptions
from streamnb.likelihoods.multinomial import ComplementEstimator
from tests import naive_complement
from tests.kernels.rows import Row, batch_of, counted_rows

N_WORDS = 12
ALPHAS = st.sampled_from([1e-9, 0.3, 1.0, 2.5])


def teaching(labels: list[int], weights: list[float]) -> RowUpdates:
    """Return rows' teaching without decay."""
    ones = np.ones(len(labels))
    return RowUpdates(np.array(labels, np.int32), np.array(weights), ones, ones, ones)


def run(
    estimator: ComplementEstimator,
    counts: Counts,
    rows: list[Row | None],
    labels: list[int],
    weights: list[float] | None = None,
) -> NDArray[np.float64]:
    """Predict rows, then learn those with a label; return their scores."""
    out = np.zeros((len(rows), len(counts.examples)))
    ended = estimator.run(
        counts,
        batch_of(rows),
        teaching(labels, weights or [1.0] * len(rows)),
        RunOptions(0, 0, True, 1 << 62),
        N_WORDS,
        out,
    )
    assert ended == (len(rows), counting.ADDED, 0)
    return out


def expected(counts: Counts, row: Row | None, alpha: float, *, normalise: bool) -> list[float]:
    """Return the twin's answer."""
    if counts.state[DECLARED]:
        live = list(range(int(counts.state[DECLARED])))
    else:
        live = statistics.live_columns(counts, len(counts.by_word)).tolist()
    return naive_complement.log_likelihood(
        row or {}, live, counts.by_word, alpha, normalise=normalise
    )


@pytest.mark.parametrize("n_classes", [1, 2, 3, 7])
@pytest.mark.parametrize("n_declared", [0, N_WORDS])
@given(rows=counted_rows(), alpha=ALPHAS, normalise=st.booleans())
def test_answers_are_the_twins(
    n_classes: int,
    n_declared: int,
    rows: list[tuple[Row | None, int]],
    alpha: float,
    normalise: bool,
) -> None:
    """Before each row is learned it tells what the paper's formula gives, by the counts of then."""
    counts = statistics.empty(Counts, classes=n_classes, columns=N_WORDS)
    counts.state[DECLARED] = n_declared
    kind = Complement(Dirichlet(alpha), normalise=normalise)
    estimator = kind.estimator(n_declared or None, n_classes)
    estimator.rebuild(counts, N_WORDS)
    for row, y in rows:
        wanted = expected(counts, row, alpha, normalise=normalise)
        found = run(estimator, counts, [row], [min(y, n_classes - 1)])
        largest = max(1.0, *(abs(each) for each in wanted), sum((row or {}).values()) * 30)
        assert found[0] == pytest.approx(wanted, rel=0, abs=1e-12 * largest)


@given(counted_rows(), ALPHAS, st.data())
def test_the_sums_are_a_function_of_the_counts(
    rows: list[tuple[Row | None, int]], alpha: float, data: st.DataObject
) -> None:
    """Learned, unlearned in part and built anew: the sums are the same integers."""
    counts = statistics.empty(Counts, classes=3, columns=N_WORDS)
    kind = Complement(Dirichlet(alpha), normalise=True)
    estimator = kind.estimator(None, 3)
    labelled = [(row, y) for row, y in rows if y >= 0]
    run(estimator, counts, [row for row, _ in labelled], [y for _, y in labelled])
    for at in data.draw(st.sets(st.integers(0, 39))):
        if at < len(labelled):
            row, y = labelled[at]
            run(estimator, counts, [row], [y], [-1.0])
    anew = kind.estimator(None, 3)
    anew.rebuild(counts, N_WORDS)
    assert estimator._sums.tolist() == anew._sums.tolist()
    live = statistics.live_columns(counts, N_WORDS)
    assert counts.state[0] == len(live)
    if not len(live):
        assert not estimator._sums.any()


def test_long_texts_do_not_overflow() -> None:
    """Thousands of words with huge or tiny factors stay in range, as their logarithms do."""
    rng = np.random.default_rng(3)
    n = 2000
    row: Row = dict(enumerate(rng.integers(1, 12, n).tolist()))
    for top, alpha in ((1 << 40, 1.0), (1, 1e-60)):
        counts = statistics.empty(Counts, classes=2, columns=n)
        counts.by_word[:] = rng.integers(0, top + 1, (n, 2)) + np.array([1.0, 0.0])
        counts.tokens[:] = counts.by_word.sum(axis=0)
        counts.state[0] = n
        for normalise in (False, True):
            estimator = Complement(Dirichlet(alpha), normalise=normalise).estimator(None, 2)
            estimator.rebuild(counts, n)
            found = run(estimator, counts, [row], [-1])[0]
            wanted = expected(counts, row, alpha, normalise=normalise)
            assert found == pytest.approx(wanted, rel=1e-12)


def test_a_snapshot_keeps_its_sums() -> None:
    """A copy's sums stay when the estimator goes on."""
    counts = statistics.empty(Counts, classes=2, columns=N_WORDS)
    estimator = Complement(normalise=True).estimator(None, 2)
    run(estimator, counts, [{0: 1}], [0])
    copy = estimator.copy()
    before = copy._sums.tolist()
    run(estimator, counts, [{1: 1, 2: 3}], [1])
    assert copy._sums.tolist() == before != estimator._sums.tolist()
