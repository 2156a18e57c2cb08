"""The posterior, to the last digits, against fifty of them; zeros, ties and the class prior."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb.kernels import posterior
from tests import naive
from tests.kernels.rows import teaching_of

scores = st.one_of(st.floats(-1000, 0), st.just(-math.inf), st.floats(-1e6, 10), st.floats(-1, 0))


def normalised(joint: list[float], prior: list[float] | None = None) -> list[float]:
    """Return the kernel's log-posteriors."""
    out = np.array([joint])
    priors = np.array([prior or [-math.log(len(joint))] * len(joint)])
    n_by_prior = posterior.normalise(out, priors)
    assert n_by_prior == (all(s == -math.inf for s in joint) and len(joint) > 0)
    said: list[float] = out[0].tolist()
    return said


def priors(
    examples: list[float], alpha: float, labels: list[int], *, learn: bool
) -> NDArray[np.float64]:
    """Return the kernel's log class priors."""
    out = np.empty((len(labels), len(examples)))
    counts = np.array(examples)
    alphas, now = np.full(len(examples), alpha), np.empty(len(examples))
    posterior.class_prior(counts, alphas, False, teaching_of(labels), learn, now, out)
    return out


@given(st.lists(scores, min_size=1, max_size=6))
def test_posteriors_are_exact(joint: list[float]) -> None:
    """Each log-posterior is that of fifty-digit arithmetic, a winner's near zero too."""
    uniform = [-math.log(len(joint))] * len(joint)
    found, expected = normalised(joint), naive.posterior(joint, uniform)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs or math.isclose(ours, theirs, rel_tol=1e-13, abs_tol=1e-15)


def test_log_sum_exp_of_small_numbers() -> None:
    """log(e⁻¹²⁰ + e⁻¹²¹) is log(1 + e⁻¹) − 120 = −119.686738, and no underflow."""
    first, second = normalised([-120.0, -121.0])
    assert first == pytest.approx(-math.log1p(math.exp(-1)), rel=1e-15)
    assert -120.0 - first == pytest.approx(-119.686738, abs=5e-7)
    assert math.exp(first) + math.exp(second) == pytest.approx(1.0, rel=1e-15)


def test_a_sure_answer_keeps_its_doubt() -> None:
    """Where p is 1 to all digits, its logarithm still tells how far from 1 it is."""
    assert normalised([0.0, -80.0])[0] == pytest.approx(-math.exp(-80.0), rel=1e-14)


def test_where_all_is_impossible_the_class_prior_answers() -> None:
    """With −inf everywhere the answer is the class prior, and never nan."""
    prior = [math.log(0.75), math.log(0.25)]
    assert normalised([-math.inf, -math.inf], prior) == pytest.approx(prior, rel=1e-15)
    assert normalised([-math.inf, -5.0], prior) == [-math.inf, 0.0]
    assert normalised([-math.inf] * 2, [-math.inf, 0.0]) == [-math.inf, 0.0]


def test_equal_scores_give_equal_posteriors() -> None:
    """Classes that tie have the same posterior to the bit, so the first declared can win."""
    found = normalised([-3.25, -7.0, -3.25])
    assert found[0] == found[2] > found[1]


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_class_prior_is_read_before_each_example(alpha: float) -> None:
    """Row by row the prior is (N_c + α)/(n + kα), uniform where there is neither data nor α."""
    labels = [0, -1, 1, 1, 2]
    found = priors([0.0, 0.0, 0.0], alpha, labels, learn=True)
    counts = [0, 0, 0]
    for row, y in zip(found, labels, strict=True):
        total = sum(counts) + 3 * alpha
        expected = [naive.log((n + alpha) / total) if total else -math.log(3) for n in counts]
        assert row.tolist() == expected
        if y >= 0:
            counts[y] += 1


def test_predicting_leaves_the_class_counts() -> None:
    """Without learning, labels change nothing."""
    found = priors([3.0, 1.0], 0.0, [0, 1, 1], learn=False)
    assert np.exp(found).tolist() == [[0.75, 0.25]] * 3


def test_no_classes_no_answer() -> None:
    """A model without classes answers rows of no width."""
    assert priors([], 1.0, [-1], learn=False).shape == (1, 0)
    nothing = np.empty((1, 0))
    posterior.normalise(nothing, nothing.copy())
    assert nothing.shape == (1, 0)
