"""Bernoulli: the sum over all words at once, against `math.fsum` over each of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import Bernoulli, Beta
from streamnb.features import statistics
from streamnb.kernels import bernoulli as kernel
from streamnb.kernels.layout import Counts
from streamnb.likelihoods.bernoulli import BernoulliEstimator
from tests import naive
from tests.kernels.inner import from_python
from tests.kernels.likelihood_runs import RELATIVE, deviation, run, same
from tests.kernels.rows import Row, batch_of, counts_of, learn_rows, presence_rows, teaching_of

N_WORDS = 12
MOVE_COUNT = from_python(kernel.move_count)
priors = st.sampled_from([0.0, 1e-9, 0.3, 1.0, 2.5])


def twin(counts: Counts, row: Row | None, beta1: float, beta2: float) -> list[float]:
    """Return one row's log-likelihoods, each by a sum over all words."""
    live = np.flatnonzero(counts.by_word.any(axis=1))
    out = []
    for c, n_c in enumerate(counts.examples.tolist()):
        words = [(float(counts.by_word[j, c]), j in (row or {})) for j in live]
        empty = n_c + beta2 == 0.0
        out.append(-np.inf if empty else naive.bernoulli(words, n_c, beta1, beta2))
    return [0.0] * len(out) if row is None else out


def rebuilt(counts: Counts, prior: Beta) -> BernoulliEstimator:
    """Return an estimator that knows nothing but the counts."""
    estimator = Bernoulli(prior).estimator(None, len(counts.examples))
    estimator.rebuild(counts, len(counts.by_word))
    return estimator


@given(presence_rows(), priors, priors)
def test_answers_are_the_twins(
    rows: list[tuple[Row | None, int]], beta1: float, beta2: float
) -> None:
    """Before each row is learned, its log-likelihood is the sum over all words known by then."""
    learned = statistics.empty(Counts, classes=3, columns=N_WORDS)
    estimator = rebuilt(learned, Beta(beta1, beta2))
    expected = []
    plain = statistics.empty(Counts, classes=3, columns=N_WORDS)
    for row, y in rows:
        expected.append(twin(plain, row, beta1, beta2))
        batch = batch_of([row])
        learn_rows(plain, batch, teaching_of([y]), 0, 1 << 62)
    found = run(estimator, learned, [row for row, _ in rows], [y for _, y in rows])
    assert deviation(found, expected) < RELATIVE
    assert all(np.array_equal(a, b) for a, b in zip(learned, plain, strict=True))


@given(presence_rows(), priors, st.lists(st.integers(0, N_WORDS - 1), max_size=4))
def test_cache_is_a_pure_function_of_the_counts(
    rows: list[tuple[Row | None, int]], beta2: float, dropped: list[int]
) -> None:
    """However the counts came to be, the cache is, bit for bit, the one built from them alone."""
    counts = statistics.empty(Counts, classes=3, columns=N_WORDS)
    estimator = rebuilt(counts, Beta(1.0, beta2))
    half = len(rows) // 2
    run(estimator, counts, [row for row, _ in rows[:half]], [y for _, y in rows[:half]])
    statistics.drop(counts, np.unique(np.array(dropped, dtype=np.int64)), decays=False)
    estimator.rebuild(counts, N_WORDS)
    run(estimator, counts, [row for row, _ in rows[half:]], [y for _, y in rows[half:]])
    assert same(estimator, rebuilt(counts, Beta(1.0, beta2)))


def test_learning_a_long_stream_leaves_the_pure_cache() -> None:
    """After heavy words, repeated counts and doublings of N_c, the cache is pure."""
    generator = np.random.default_rng(1)
    n_words, n = 400, 1500
    chances = 0.7 / np.arange(1, n_words + 1) ** 0.8
    there = generator.random((n, n_words)) < chances
    rows = [dict.fromkeys(np.flatnonzero(row).tolist(), 1) for row in there]
    labels = generator.integers(0, 2, n).tolist()
    counts = statistics.empty(Counts, classes=2, columns=n_words)
    estimator = rebuilt(counts, Beta())
    run(estimator, counts, rows, labels)
    fresh = rebuilt(counts, Beta())
    assert same(estimator, fresh)
    found = run(estimator, counts, rows[:20])
    assert np.array_equal(found, run(fresh, counts, rows[:20]))
    assert deviation(found, [twin(counts, row, 1.0, 1.0) for row in rows[:20]]) < RELATIVE


def test_a_row_with_more_heavy_words_than_there_is_room_for() -> None:
    """Heavy lists grow in mid-batch: a row of a thousand words is predicted once, and learned."""
    rows = [dict.fromkeys(range(start, start + 1000), 1) for start in (0, 300, 0)]
    counts = statistics.empty(Counts, classes=2, columns=1300)
    estimator = rebuilt(counts, Beta())
    found = run(estimator, counts, rows, [0, 1, 0])
    assert same(estimator, rebuilt(counts, Beta()))
    one = statistics.empty(Counts, classes=2, columns=1300)
    steps = rebuilt(one, Beta())
    for row, y, whole in zip(rows, [0, 1, 0], found, strict=True):
        assert np.array_equal(run(steps, one, [row], [y])[0], whole)


def test_more_heavy_counts_than_there_is_room_for() -> None:
    """Built from counts alone, heavy lists get the room that a thousand different counts need."""
    counts = counts_of([[20_000.0 + 7 * j, 3.0] for j in range(1000)], [2e6, 5.0])
    rows: list[Row] = [{}, {3: 1, 999: 1}]
    found = run(rebuilt(counts, Beta()), counts, rows)
    assert deviation(found, [twin(counts, row, 1.0, 1.0) for row in rows]) < RELATIVE


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=80))
def test_counts_may_move_up_and_down(moves: list[tuple[int, int]]) -> None:
    """Whatever way a count goes, light to heavy and back, the cache follows and stays pure."""
    counts = counts_of([[0.0]] * 10, [1000.0])  # above 8 of 1,024 a word is heavy
    estimator = rebuilt(counts, Beta())
    for column, new in moves:
        old = float(counts.by_word[column, 0])
        MOVE_COUNT(estimator._absence, 0, old, float(new))
        counts.by_word[column, 0] = new
    assert same(estimator, rebuilt(counts, Beta()))


def test_maximum_likelihood_gives_zeros_and_no_nan() -> None:
    """Without a prior, what was never seen is impossible, and what was always seen is certain."""
    counts = counts_of([[2, 1], [1, 0], [2, 0]], [2, 1])
    estimator = rebuilt(counts, Beta(0, 0))
    found = run(estimator, counts, [{0: 1, 2: 1}, {0: 1}, {1: 1}, {}])
    expected = [[np.log(0.5), -np.inf], [-np.inf, 0.0], [-np.inf, -np.inf], [-np.inf, -np.inf]]
    assert deviation(found, expected) < RELATIVE


@pytest.mark.parametrize("beta", [1e-12, 1e-60])
def test_a_tiny_prior_is_not_lost(beta: float) -> None:
    """A pseudo-count far below the counts' last digit still keeps a zero from being one."""
    counts = counts_of([[1e7, 0], [1, 1e7]], [1e7, 1e7])
    found = run(rebuilt(counts, Beta(beta, beta)), counts, [{0: 1}, {1: 1}, {}])
    expected = [twin(counts, row, beta, beta) for row in ({0: 1}, {1: 1}, {})]
    assert np.isfinite(found).all()
    assert deviation(found, expected) < RELATIVE


def zipf(n_words: int, examples: list[int], seed: int) -> tuple[Counts, NDArray[np.int64]]:
    """Return counts as a large stream leaves them, and some words of each frequency."""
    generator = np.random.default_rng(seed)
    counts = statistics.empty(Counts, classes=len(examples), columns=n_words)
    chances = np.minimum(0.6, 1.2 / np.arange(1, n_words + 1) ** 0.9)
    for c, n_c in enumerate(examples):
        counts.examples[c] = n_c
        counts.by_word[:, c] = np.minimum(generator.poisson(chances * n_c), n_c)
    counts.tokens[:] = counts.by_word.sum(axis=0)
    counts.state[0] = int(counts.by_word.any(axis=1).sum())
    ranks = np.unique(np.geomspace(1, n_words, 30).astype(np.int64) - 1)
    return counts, ranks


def largest_deviation(counts: Counts, ranks: NDArray[np.int64], prior: Beta) -> float:
    """Return the largest distance from `math.fsum` over all words, in nats, for a few texts."""
    rows = [{}, dict.fromkeys(ranks[::3].tolist(), 1), dict.fromkeys(ranks.tolist(), 1)]
    found = run(rebuilt(counts, prior), counts, rows)
    worst = 0.0
    live = statistics.column_totals(counts, len(counts.by_word)) > 0
    for i, row in enumerate(rows):
        for c, n_c in enumerate(counts.examples.tolist()):
            theta = counts.by_word[:, c].copy()
            missing = live.copy()
            missing[list(row)] = False
            bottom = n_c + prior.present + prior.absent
            terms = np.log1p(-(theta[missing] + prior.present) / bottom).tolist()
            terms += [naive.log((theta[j] + prior.present) / bottom) for j in row if live[j]]
            worst = max(worst, abs(naive.fsum(terms) - float(found[i, c])))
    return worst


@pytest.mark.parametrize("prior", [Beta(), Beta(0.3, 7.0)])
@pytest.mark.parametrize("examples", [[700, 3], [5_000_000, 4_999_999], [1 << 33, 1 << 20]])
def test_large_vocabularies_agree_with_fsum(examples: list[int], prior: Beta) -> None:
    """At 20,000 words, and after billions of examples, the answer is fsum's to 1e-9 nats."""
    counts, ranks = zipf(20_000, examples, seed=2)
    assert largest_deviation(counts, ranks, prior) < 1e-9


def test_odds_of_any_size_stay_numbers() -> None:
    """Two words whose odds alone fill the range of float64 give a sum of logs, and no nan."""
    counts = counts_of([[1e-180], [1e-180]], [2e-180])
    found = run(rebuilt(counts, Beta(1e-9, 0)), counts, [{0: 1, 1: 1}])
    odds = naive.log(1e-180 + 1e-9) - naive.log(1e-180)
    missing = 2 * np.log1p(-0.5) - 2 * np.log1p(1e-9 / 2e-180)
    assert deviation(found, [[2 * odds + missing]]) < RELATIVE
