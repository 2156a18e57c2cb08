"""Flags: true ones and false ones speak, against `math.fsum`, scikit-learn and mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import BernoulliNB

from streamnb.kernels.categorical import Betas, FlagCounts, flags
from tests.kernels.likelihood_runs import RELATIVE, deviation
from tests.kernels.rows import teaching_of
from tests.naive_categorical import NaiveFlags

N_FIELDS, N_CLASSES = 3, 3
NAMES = ("0", "1", "2")
Rows = list[tuple[list[bool | None], int]]


def nothing(n_fields: int = N_FIELDS, k: int = N_CLASSES) -> FlagCounts:
    """Return counts of nothing."""
    return FlagCounts(np.zeros((n_fields, k)), np.zeros((n_fields, k)), np.zeros(k))


def betas(
    present: float, absent: float, k: int = N_CLASSES, *, is_open: bool, absent_is_false: bool
) -> Betas:
    """Return one prior for all flags."""
    return Betas(
        np.full((1, k), present),
        np.full((1, k), absent),
        np.array([is_open]),
        np.array([absent_is_false]),
    )


def run(
    counts: FlagCounts, prior: Betas, values: np.ndarray, labels: list[int], weight: float = 1.0
) -> np.ndarray:
    """Predict, then learn; return log-likelihoods."""
    n, k = len(labels), len(counts.examples)
    out = np.zeros((n, k))
    flags(
        counts,
        prior,
        np.array(values, dtype=np.float64).reshape(n, len(counts.true)),
        np.arange(len(counts.true)),
        teaching_of(labels, [weight] * n),
        True,
        np.empty((k, 2)),
        out,
    )
    return out


rows = st.lists(
    st.tuples(
        st.lists(st.sampled_from([True, False, None]), min_size=N_FIELDS, max_size=N_FIELDS),
        st.integers(0, N_CLASSES - 1),
    ),
    max_size=30,
)
pseudo = st.sampled_from([0.0, 1e-9, 0.3, 1.0])


def grid_of(drawn: Rows) -> np.ndarray:
    """Return flags as the kernel reads them."""
    flat = [[np.nan if v is None else float(v) for v in x] for x, _ in drawn]
    return np.array(flat).reshape(-1, N_FIELDS)


@given(rows, pseudo, pseudo, st.booleans(), st.booleans())
def test_answers_are_the_twins(
    drawn: Rows, present: float, absent: float, is_open: bool, absent_is_false: bool
) -> None:
    """Before each row is learned, its log-likelihood is the sum over its flags by then."""
    named = None if is_open else NAMES
    twin = NaiveFlags(N_CLASSES, present, absent, absent_is_false, named)
    expected = []
    for x, y in drawn:
        example = dict(zip(NAMES, x, strict=True))
        expected.append(twin.joint(example))
        twin.learn(example, y)
    prior = betas(present, absent, is_open=is_open, absent_is_false=absent_is_false)
    found = run(nothing(), prior, grid_of(drawn), [y for _, y in drawn])
    assert deviation(found, expected) < RELATIVE


@given(rows, rows, st.booleans())
def test_what_is_taken_back_leaves_nothing(drawn: Rows, more: Rows, absent_is_false: bool) -> None:
    """Rows with a weight below zero bring back every count."""
    prior = betas(1.0, 1.0, is_open=True, absent_is_false=absent_is_false)
    counts, alone = nothing(), nothing()
    run(alone, prior, grid_of(drawn), [y for _, y in drawn])
    run(counts, prior, grid_of(drawn), [y for _, y in drawn])
    run(counts, prior, grid_of(more), [y for _, y in more])
    run(counts, prior, grid_of(more), [y for _, y in more], weight=-1.0)
    assert all(np.array_equal(a, b) for a, b in zip(counts, alone, strict=True))


@pytest.mark.parametrize("alpha", [1.0, 0.1])
@pytest.mark.parametrize("absent_is_false", [False, True])
def test_it_is_scikit_learns(alpha: float, absent_is_false: bool) -> None:
    """With the same prior, log-likelihoods are those of `BernoulliNB`.

    It takes log(1 − exp(log θ)), which loses digits where θ is near 1: a prior as small as 1e-9 is
    for fifty digits to settle, below.
    """
    rng = np.random.default_rng(5)
    n, n_fields, k = 400, 60, 4
    X = (rng.random((n, n_fields)) < rng.random(n_fields)).astype(float)
    y = rng.integers(0, k, n)
    oracle = BernoulliNB(alpha=alpha, fit_prior=False).fit(X, y)
    given_ = np.where(X == 0.0, np.nan, X) if absent_is_false else X
    counts = nothing(n_fields, k)
    prior = betas(alpha, alpha, k, is_open=False, absent_is_false=absent_is_false)
    run(counts, prior, given_, y.tolist())
    found = run(counts, prior, given_, [-1] * n)
    expected = oracle.predict_joint_log_proba(X) + np.log(k)
    assert np.abs(found - expected).max() <= 1e-12 * max(1.0, np.abs(expected).max())


def test_it_is_exact_in_the_tails() -> None:
    """Hundreds of flags with counts of every size: the answer is that of fifty digits."""
    rng = np.random.default_rng(7)
    n_fields, k, beta = 800, 2, 1e-7
    counts = nothing(n_fields, k)
    for array in (counts.true, counts.false):
        array[:] = rng.integers(0, 3, array.shape) * 10.0 ** rng.integers(0, 12, array.shape)
    x = rng.integers(0, 2, n_fields).astype(float)
    prior = betas(beta, beta, k, is_open=False, absent_is_false=False)
    found = run(counts, prior, x[None, :], [-1])
    with mpmath.workdps(50):
        expected = [
            float(
                mpmath.fsum(
                    mpmath.log(
                        (mpmath.mpf((true if v else false)[c]) + mpmath.mpf(beta))
                        / (mpmath.mpf(true[c]) + mpmath.mpf(false[c]) + 2 * mpmath.mpf(beta))
                    )
                    for v, true, false in zip(x, counts.true, counts.false, strict=True)
                )
            )
            for c in range(k)
        ]
    assert deviation(found, [expected]) < RELATIVE
