"""Numbers against scikit-learn's GaussianNB: random data, weights, floors, and far tails."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.naive_bayes import GaussianNB

from streamnb import Dirichlet, Gaussian, NaiveBayes, Numbers, VarianceFloor

RELATIVE = 1e-12
Floats = NDArray[np.float64]


def data(seed: int, n: int = 300, n_fields: int = 5) -> tuple[Floats, NDArray[np.int64]]:
    """Return numbers of very different sizes and labels of three classes."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, n)
    x = generator.normal(size=(n, n_fields)) * (1.0 + labels[:, None])
    # Not far from zero for their size: scikit-learn's mean has one float.
    x = x + labels[:, None] + generator.normal(size=n_fields) * 5.0
    return x * 10.0 ** generator.integers(-3, 4, n_fields), labels


def columns(x: Floats) -> dict[str, Floats]:
    """Return a matrix's columns by name."""
    return {f"f{j}": x[:, j] for j in range(x.shape[1])}


def learned(
    x: Floats, labels: NDArray[np.int64], share: float, weights: Floats | None = None
) -> NaiveBayes:
    """Return a model that learned without a class prior, as scikit-learn does."""
    model = NaiveBayes(
        classes=[0, 1, 2],
        class_prior=Dirichlet(0.0),
        features={"x": Numbers(Gaussian(VarianceFloor(share)))},
    )
    model.learn_many(columns(x), labels.tolist(), weights=weights)
    return model


def deviation(model: NaiveBayes, oracle: GaussianNB, x: Floats) -> float:
    """Return how far joints and log-posteriors are from the oracle's, by max(1, largest joint)."""
    joint = oracle._joint_log_likelihood(x)
    scale = np.maximum(1.0, np.abs(joint).max(axis=1, keepdims=True))
    joints = np.abs(model.joint_log_likelihood_many(columns(x)) - joint) / scale
    posteriors = np.abs(model.predict_log_proba_many(columns(x)) - oracle.predict_log_proba(x))
    return float(max(joints.max(), (posteriors / scale).max()))


@pytest.mark.parametrize("share", [1e-9, 1e-6, 0.1])
@pytest.mark.parametrize("seed", range(3))
def test_random_data_with_a_floor(seed: int, share: float) -> None:
    """Near the data and up to 10⁸ times as far, both say the same at any var_smoothing."""
    x, labels = data(seed)
    oracle = GaussianNB(var_smoothing=share).fit(x, labels)
    probes = np.concatenate((x, x * 1e3, x * -1e8))
    assert deviation(learned(x, labels, share), oracle, probes) < RELATIVE


@pytest.mark.parametrize("seed", range(3))
def test_sample_weights(seed: int) -> None:
    """Weighted examples give what scikit-learn's sample_weight does (whose floor ignores them)."""
    x, labels = data(seed)
    weights = np.random.default_rng(seed).uniform(0.1, 5.0, len(x))
    oracle = GaussianNB(var_smoothing=0.0).fit(x, labels, sample_weight=weights)
    assert (
        deviation(learned(x, labels, 0.0, weights), oracle, np.concatenate((x, 50 * x))) < RELATIVE
    )


def test_partial_fits_are_one_stream() -> None:
    """Learned in pieces it is scikit-learn's fit of the whole, floor included."""
    x, labels = data(7)
    oracle = GaussianNB().fit(x, labels)
    model = learned(x[:1], labels[:1], 1e-9)
    for begin in range(1, len(x), 37):
        piece = slice(begin, begin + 37)
        model.learn_many(columns(x[piece]), labels[piece].tolist())
    assert deviation(model, oracle, x) < RELATIVE
