"""Categorical: the product of quotients, against `math.fsum` over logarithms and mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import CategoricalNB

from streamnb.kernels import counting
from streamnb.kernels.categorical import MISSING, UNSEEN, Alphas, ValueCounts, categorical
from streamnb.kernels.layout import RunOptions
from tests.kernels.likelihood_runs import RELATIVE, deviation
from tests.kernels.rows import teaching_of
from tests.naive_categorical import NaiveCategories

N_VALUES, N_FIELDS, N_CLASSES = 4, 3, 3  # column j·N_VALUES + v is value v of field j
Rows = list[tuple[list[int], int]]
NO_BOUND = 1 << 62


def nothing(n_fields: int = N_FIELDS, n_values: int = N_VALUES, k: int = N_CLASSES) -> ValueCounts:
    """Return counts of nothing."""
    return ValueCounts(
        np.zeros((n_fields * n_values, k)),
        np.zeros((n_fields, k)),
        np.zeros(n_fields, dtype=np.int64),
        np.zeros(1, dtype=np.int64),
    )


def scalar(alpha: float, n_fields: int = N_FIELDS, k: int = N_CLASSES) -> Alphas:
    """Return one prior for all values."""
    grid = np.full((1, k), alpha)
    return Alphas(grid, grid.sum(axis=0), np.zeros(n_fields, dtype=np.int64))


def run(
    counts: ValueCounts,
    alphas: Alphas,
    columns: np.ndarray,
    labels: list[int],
    bound: int = NO_BOUND,
    weight: float = 1.0,
) -> tuple[np.ndarray, tuple[int, int, int]]:
    """Predict, then learn; return log-likelihoods and where it stopped."""
    n, k = len(labels), counts.seen.shape[1]
    out = np.zeros((n, k))
    ended = categorical(
        counts,
        alphas,
        np.arange(counts.seen.shape[0]),
        np.array(columns, dtype=np.int32).reshape(n, len(counts.seen)),
        teaching_of(labels, [weight] * n),
        RunOptions(0, 0, True, bound),
        np.empty((k, 2)),
        out,
    )
    return out, ended


rows = st.lists(
    st.tuples(
        st.lists(st.integers(-1, N_VALUES - 1), min_size=N_FIELDS, max_size=N_FIELDS),
        st.integers(0, N_CLASSES - 1),
    ),
    max_size=30,
)


def grid_of(drawn: Rows) -> np.ndarray:
    """Return columns; a drawn -1 is a value that is missing."""
    return np.array(
        [[v + j * N_VALUES if v >= 0 else MISSING for j, v in enumerate(x)] for x, _ in drawn],
        dtype=np.int32,
    ).reshape(-1, N_FIELDS)


@given(rows, st.sampled_from([0.0, 1e-9, 0.3, 1.0, 2.5]))
def test_answers_are_the_twins(drawn: Rows, alpha: float) -> None:
    """Before each row is learned, its log-likelihood is the sum over its fields by then."""
    twin = NaiveCategories(N_CLASSES, alpha)
    expected = []
    for x, y in drawn:
        example = {str(j): str(v) if v >= 0 else None for j, v in enumerate(x)}
        expected.append(twin.joint(example))
        twin.learn(example, y)
    counts = nothing()
    found, ended = run(counts, scalar(alpha), grid_of(drawn), [y for _, y in drawn])
    assert ended == (len(drawn), counting.ADDED, 0)
    assert deviation(found, expected) < RELATIVE
    by_field = counts.by_value.reshape(N_FIELDS, N_VALUES, N_CLASSES)
    assert np.array_equal(counts.seen, by_field.sum(axis=1))
    assert np.array_equal(counts.n_values, by_field.any(axis=2).sum(axis=1))
    assert counts.state[0] == counts.n_values.sum()


@given(rows, rows)
def test_what_is_taken_back_leaves_nothing(drawn: Rows, more: Rows) -> None:
    """Rows with a weight below zero bring back every count and number of values."""
    counts, alone = nothing(), nothing()
    run(alone, scalar(1.0), grid_of(drawn), [y for _, y in drawn])
    run(counts, scalar(1.0), grid_of(drawn), [y for _, y in drawn])
    run(counts, scalar(1.0), grid_of(more), [y for _, y in more])
    run(counts, scalar(1.0), grid_of(more), [y for _, y in more], weight=-1.0)
    assert all(np.array_equal(a, b) for a, b in zip(counts, alone, strict=True))


def test_a_full_table_stops_before_the_row() -> None:
    """A row whose new values do not fit is predicted, left unlearned, and says how many it has."""
    counts = nothing()
    columns = np.array([[0, 4, 8], [1, 4, 9], [0, 4, 8]])
    _, ended = run(counts, scalar(1.0), columns, [0, 1, 2], bound=4)
    assert ended == (1, counting.FULL, 2)
    assert counts.by_value.sum() == 3
    _, ended = run(nothing(), scalar(1.0), columns, [0, 1, 2], bound=1)
    assert ended[0] == 1  # with nothing there, a row is taken whole


@pytest.mark.parametrize("alpha", [1.0, 0.1, 1e-9])
def test_it_is_scikit_learns(alpha: float) -> None:
    """With the same prior and the same values, log-likelihoods are those of `CategoricalNB`."""
    rng = np.random.default_rng(5)
    n, n_fields, n_values, k = 400, 30, 5, 4
    X = rng.integers(0, n_values, (n, n_fields))
    X[:n_values] = np.arange(n_values)[:, None]  # so that every field has all its values
    y = rng.integers(0, k, n)
    y[:k] = np.arange(k)
    oracle = CategoricalNB(alpha=alpha, fit_prior=False).fit(X, y)
    counts = nothing(n_fields, n_values, k)
    columns = X + np.arange(n_fields) * n_values
    run(counts, scalar(alpha, n_fields, k), columns, y.tolist())
    found, _ = run(counts, scalar(alpha, n_fields, k), columns, [-1] * n)
    expected = oracle.predict_joint_log_proba(X) + np.log(k)
    assert np.abs(found - expected).max() <= 1e-12 * max(1.0, np.abs(expected).max())


def test_it_is_exact_in_the_tails() -> None:
    """Hundreds of rare values: the answer is that of fifty digits."""
    rng = np.random.default_rng(7)
    n_fields, k, alpha = 600, 2, 1e-7
    counts = nothing(n_fields, 2, k)
    counts.by_value[:] = rng.integers(0, 3, counts.by_value.shape) * 10.0 ** rng.integers(
        0, 12, counts.by_value.shape
    )
    counts.by_value[::2, 0] = 0.0
    by_field = counts.by_value.reshape(n_fields, 2, k)
    counts.seen[:] = by_field.sum(axis=1)
    counts.n_values[:] = by_field.any(axis=2).sum(axis=1)
    found, _ = run(counts, scalar(alpha, n_fields, k), np.arange(n_fields) * 2, [-1])
    expected = []
    with mpmath.workdps(50):
        for c in range(k):
            total = mpmath.mpf(0)
            for j in range(n_fields):
                bottom = mpmath.mpf(counts.seen[j, c]) + mpmath.mpf(alpha) * int(counts.n_values[j])
                if counts.n_values[j]:
                    total += mpmath.log(
                        (mpmath.mpf(by_field[j, 0, c]) + mpmath.mpf(alpha)) / bottom
                    )
            expected.append(float(total))
    assert deviation(found, [expected]) < RELATIVE


def test_an_unseen_value_and_an_empty_class() -> None:
    """Maximum likelihood makes them impossible; a prior above zero does not."""
    counts = nothing()
    run(counts, scalar(1.0), np.array([[0, MISSING, MISSING]] * 2), [0, 1])
    asked = np.array([[0, MISSING, MISSING], [UNSEEN, MISSING, MISSING], [MISSING, 4, UNSEEN]])
    plain, _ = run(counts, scalar(0.0), asked, [-1] * 3)
    assert plain.tolist() == [[0.0, 0.0, -np.inf], [-np.inf] * 3, [0.0] * 3]
    smooth, _ = run(counts, scalar(0.5), asked, [-1] * 3)
    expected = [[0.0, 0.0, 0.0], [np.log(0.5 / 1.5), np.log(0.5 / 1.5), 0.0], [0.0] * 3]
    assert deviation(smooth, expected) < RELATIVE
