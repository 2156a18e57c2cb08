"""The Gaussian kernel, row by row, against fifty digits; and its edges."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import Gaussian, NormalInverseGamma, VarianceFloor
from streamnb.features import statistics
from streamnb.kernels.gaussian import Moments, log_gamma_step
from streamnb.kernels.layout import RowUpdates
from tests import naive_gaussian
from tests.kernels.likelihood_runs import RELATIVE, deviation
from tests.naive_gaussian import Nig, Seen

N_CLASSES = 3
N_FIELDS = 3
Row = tuple[list[float], int]
numbers = st.one_of(
    st.integers(-3, 3).map(float),
    st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6),
    st.floats(1e8, 1e8 + 1),
    st.just(math.nan),
)
rows = st.lists(
    st.tuples(
        st.lists(numbers, min_size=N_FIELDS, max_size=N_FIELDS), st.integers(-1, N_CLASSES - 1)
    ),
    max_size=10,
)


def run(
    likelihood: Gaussian, given_rows: Sequence[Row], *, scale: float = 1.0, is_open: bool = True
) -> NDArray[np.float64]:
    """Predict rows, and learn those with a label as they come; return their log-likelihoods."""
    n = len(given_rows)
    held = statistics.empty(Moments, classes=N_CLASSES, fields=N_FIELDS)
    out = np.zeros((n, N_CLASSES))
    labels = np.array([y for _, y in given_rows], dtype=np.int32)
    likelihood.estimator(N_FIELDS, N_CLASSES, is_open=is_open).run(
        held,
        np.array([x for x, _ in given_rows]).reshape(n, N_FIELDS),
        np.arange(N_FIELDS),
        RowUpdates(labels, np.ones(n), *(np.full(n, scale),) * 3),
        out,
        learn=True,
    )
    return out


def fields_before(given_rows: Sequence[Row], i: int) -> list[list[Seen]]:
    """Return what each field has seen before row `i`."""
    return [
        [Seen(x[j], 1.0, y) for x, y in given_rows[:i] if y >= 0 and not math.isnan(x[j])]
        for j in range(N_FIELDS)
    ]


@given(rows, st.sampled_from([1e-9, 1e-3, 0.5]), st.booleans())
def test_maximum_likelihood_is_the_twins(given_rows: list[Row], share: float, shared: bool) -> None:
    """Before each row is learned, its log-likelihood is that of the exact means and variances."""
    found = run(Gaussian(VarianceFloor(share), "shared" if shared else "own"), given_rows)
    expected = [
        naive_gaussian.plain(fields_before(given_rows, i), x, N_CLASSES, share, shared=shared)
        for i, (x, _) in enumerate(given_rows)
    ]
    assert deviation(found, expected) < RELATIVE


@given(
    rows,
    st.builds(
        Nig,
        st.sampled_from([None, 0.0, -2.5]),
        st.sampled_from([0.01, 1.0, 7.0]),
        st.sampled_from([0.5, 1.0, 40.0]),
        st.sampled_from([None, 1.0, 1e4]),
    ),
    st.booleans(),
    st.sampled_from([1.0, 0.25, 1e6]),
)
@example(  # a class that has nothing stands at m₀, which has two floats
    [([1e8 + 0.84485297, 0.0, 0.0], 0), ([1e8, 0.0, 1.0], 0), ([1e8, 0.0, 0.0], 0)],
    Nig(None, 0.01, 0.5, None),
    False,
    1.0,
)
def test_students_t_is_the_twins(
    given_rows: list[Row], prior: Nig, shared: bool, scale: float
) -> None:
    """With a prior it is Student's t, at any scale that decay has brought the weights to."""
    likelihood = Gaussian(NormalInverseGamma(*prior), "shared" if shared else "own")
    found = run(likelihood, given_rows, scale=scale)
    expected = [
        naive_gaussian.bayes(
            fields_before(given_rows, i), x, N_CLASSES, prior, shared=shared, scale=scale
        )
        for i, (x, _) in enumerate(given_rows)
    ]
    assert deviation(found, expected) < RELATIVE


@pytest.mark.parametrize("sigmas", [1e3, 1e5, 1e8, 1e30])
@pytest.mark.parametrize("prior", [None, Nig(None, 1.0, 1.0, None)])
def test_far_tails_keep_their_digits(prior: Nig | None, sigmas: float) -> None:
    """A thousand to 10³⁰ standard deviations away, twelve digits of the logarithm are right."""
    generator = np.random.default_rng(5)
    taught: list[Row] = [
        (generator.normal([1e6, 0.0, -3.0], [1e-2, 1.0, 50.0]).tolist(), i % N_CLASSES)
        for i in range(30)
    ]
    asked = [1e6 + 1e-2 * sigmas, -sigmas, 50.0 * sigmas]
    fields = fields_before(taught, len(taught))
    given_rows = [*taught, (asked, -1)]
    if prior is None:
        found = run(Gaussian(), given_rows)[-1:]
        wanted = naive_gaussian.plain(fields, asked, N_CLASSES, 1e-9)
    else:
        found = run(Gaussian(NormalInverseGamma(*prior)), given_rows)[-1:]
        wanted = naive_gaussian.bayes(fields, asked, N_CLASSES, prior)
    assert deviation(found, [wanted]) < RELATIVE


def test_step_of_log_gamma_has_all_digits() -> None:
    """The difference log Γ(a+½) − log Γ(a) is right to 10⁻¹⁵ from the smallest a to the largest."""
    for a in np.concatenate((10.0 ** np.linspace(-30, 15, 400), np.arange(0.5, 40.0, 0.5))):
        found = log_gamma_step_of(float(a)) + 0.5 * math.log(a)
        with mpmath.workdps(60):
            exact = mpmath.loggamma(mpmath.mpf(a) + 0.5) - mpmath.loggamma(mpmath.mpf(a))
            apart = abs(mpmath.mpf(found) - exact) / max(1, abs(exact))
        assert apart < 1e-15


def log_gamma_step_of(a: float) -> float:
    """Call what only kernels call."""
    plain = getattr(log_gamma_step, "py_func", log_gamma_step)
    return float(plain(a))


def test_large_classes_keep_small_differences() -> None:
    """After 10⁹ examples a class, Student's t is the Gaussian, to the last digits."""
    held = statistics.empty(Moments, classes=2, fields=1)
    for c, mean in enumerate((0.0, 1e-4)):
        for r in (0, 1 + c):
            held.n[r], held.mean[r], held.m2[r] = 1e9, mean, 1e9
    x = np.array([[3.0]])
    found = np.zeros((2, 2))
    plain, student = Gaussian(VarianceFloor(0)), Gaussian(NormalInverseGamma(0.0, 1e-9, 1e-9, 1e-9))
    for i, likelihood in enumerate((plain, student)):
        likelihood.estimator(1, 2, is_open=True).run(
            held,
            x,
            np.zeros(1, dtype=np.int64),
            RowUpdates(np.full(1, -1, dtype=np.int32), *(np.ones(1),) * 4),
            found[i : i + 1],
            learn=False,
        )
    # What is left is Student's own tail: some d⁴/n.
    assert np.allclose(found[0], found[1], rtol=0.0, atol=1e-7)
    assert abs((found[0, 1] - found[0, 0]) - 3e-4) < 1e-8


def test_a_class_without_variance_is_a_point() -> None:
    """Without a floor, a value seen alone says nothing at itself and forbids all others.

    The third class has no value, and so is all of them together: mean 11/3, variance 32/9.
    """
    likelihood = Gaussian(VarianceFloor(0))
    nan = math.nan
    taught: list[Row] = [([5.0, nan, nan], 0), ([5.0, nan, nan], 0), ([1.0, nan, nan], 1)]
    asked: list[Row] = [([5.0, nan, nan], -1), ([5.0000001, nan, nan], -1), ([1.0, 9.0, nan], -1)]
    found = run(likelihood, [*taught, *asked])[3:]
    infinite = math.inf
    assert found[:, :2].tolist() == [
        [0.0, -infinite],
        [-infinite, -infinite],
        [-infinite, 0.0],  # the second field was never seen: it says nothing
    ]
    together = [math.log(2.0 * math.pi * 32 / 9) + (x - 11 / 3) ** 2 / (32 / 9) for x in (5.0, 1.0)]
    assert found[::2, 2] == pytest.approx([-each / 2 for each in together])


def test_an_empirical_prior_waits_for_a_scale() -> None:
    """Until a field has varied nothing can be predicted; from then on every class answers."""
    nan = math.nan
    stream: list[Row] = [
        ([2.0, nan, nan], 0),
        ([2.0, nan, nan], 1),
        ([3.0, nan, nan], 1),
        ([2.9, nan, nan], -1),
    ]
    found = run(Gaussian(NormalInverseGamma()), stream)
    assert not found[:3].any()
    assert np.isfinite(found[3]).all()
    assert found[3].argmax() == 1


def test_a_declared_field_has_its_prior_from_the_start() -> None:
    """Where fields are named and the prior given, it speaks before anything was learned."""
    prior = NormalInverseGamma(
        mean=[[0.0, 5.0, 9.0]] * N_FIELDS, kappa=1.0, alpha=2.0, beta=[1.0, 2.0, 3.0]
    )
    row: Row = ([5.0, math.nan, math.nan], -1)
    named = run(Gaussian(prior), [row], is_open=False)
    assert named[0].argmax() == 1
    assert np.isfinite(named).all()


def test_scale_and_place_of_the_data_do_not_matter() -> None:
    """Moved and stretched by powers of two, data are predicted alike but for the Jacobian."""
    generator = np.random.default_rng(9)
    x = np.round(generator.normal(size=(40, N_FIELDS)) * 1024) / 1024
    labels = [i % N_CLASSES for i in range(40)]
    for likelihood in (Gaussian(), Gaussian(NormalInverseGamma()), Gaussian(variance="shared")):
        base = run(likelihood, list(zip(x.tolist(), labels, strict=True)))[10:]
        for power in (-150, 20, 150):
            other = run(likelihood, list(zip((x * 2.0**power).tolist(), labels, strict=True)))[10:]
            jacobian = -N_FIELDS * power * math.log(2)
            largest = np.maximum(1.0, np.abs(base)).max()
            assert np.abs(other - base - jacobian).max() < 1e-12 * max(largest, abs(jacobian))
