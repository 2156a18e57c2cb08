"""Multinomial: the product of factors, against `math.fsum` over logarithms."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Dirichlet, Multinomial
from streamnb.features import statistics
from streamnb.kernels.layout import Counts
from tests import naive
from tests.kernels.likelihood_runs import RELATIVE, deviation, run
from tests.kernels.rows import Row, batch_of, counted_rows, counts_of, learn_rows, teaching_of

N_WORDS = 12


def twin(counts: Counts, row: Row | None, alpha: float) -> list[float]:
    """Return one row's log-likelihoods, word by word."""
    live = statistics.live_columns(counts, len(counts.by_word)).tolist()
    v = len(live)
    known = {j: times for j, times in (row or {}).items() if j in live}
    return [
        naive.fsum(
            times
            * (naive.log(counts.by_word[j, c] + alpha) - naive.log(counts.tokens[c] + alpha * v))
            if counts.tokens[c] + alpha * v
            else -np.inf
            for j, times in known.items()
        )
        for c in range(len(counts.examples))
    ]


@given(counted_rows(), st.sampled_from([0.0, 1e-9, 0.3, 1.0, 2.5]))
def test_answers_are_the_twins(rows: list[tuple[Row | None, int]], alpha: float) -> None:
    """Before each row is learned, its log-likelihood is the sum over its known words by then."""
    learned, plain = (
        statistics.empty(Counts, classes=3, columns=N_WORDS),
        statistics.empty(Counts, classes=3, columns=N_WORDS),
    )
    expected = []
    for row, y in rows:
        expected.append(twin(plain, row, alpha))
        learn_rows(plain, batch_of([row]), teaching_of([y]), 0, 1 << 62)
    estimator = Multinomial(Dirichlet(alpha)).estimator(None, 3)
    found = run(estimator, learned, [row for row, _ in rows], [y for _, y in rows])
    assert deviation(found, expected) < RELATIVE
    assert all(np.array_equal(a, b) for a, b in zip(learned, plain, strict=True))


def test_long_texts_do_not_overflow() -> None:
    """Thousands of words with huge or tiny factors stay in range, as their logarithms do."""
    generator = np.random.default_rng(3)
    n = 2000
    large = generator.integers(1, 1 << 40, (n, 2)).astype(float)
    row = dict(enumerate(generator.integers(1, 12, n).tolist()))
    for by_word, alpha in ((large, 1.0), (np.minimum(large, 1.0) * [1, 0], 1e-12)):
        counts = counts_of(by_word.tolist(), [1e9, 1e9])
        found = run(Multinomial(Dirichlet(alpha)).estimator(None, 2), counts, [row])
        assert deviation(found, [twin(counts, row, alpha)]) < RELATIVE


def test_counts_speak_where_presence_does_not() -> None:
    """A telling word said twenty times says twenty times as much as said once."""
    counts = counts_of([[30, 10], [10, 30]], [10, 10])
    once, often = run(Multinomial().estimator(None, 2), counts, [{0: 1}, {0: 20}])
    assert np.isclose(often[0] - often[1], 20 * (once[0] - once[1]), rtol=1e-12)


def test_maximum_likelihood_gives_zeros_and_no_nan() -> None:
    """Without a prior, what was never seen is impossible, and so is all in an empty class."""
    counts = counts_of([[2, 1, 0], [1, 0, 0], [0, 0, 0]], [2, 1, 0])
    found = run(Multinomial(Dirichlet(0)).estimator(None, 3), counts, [{0: 1}, {1: 3}, {}, {2: 1}])
    expected = [
        [np.log(2 / 3), 0, -np.inf],
        [3 * np.log(1 / 3), -np.inf, -np.inf],
        [0] * 3,
        [0] * 3,
    ]
    assert deviation(found, expected) < RELATIVE
