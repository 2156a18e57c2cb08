"""The linear form: it gives the posterior, and where there is none it says so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.likelihoods.gaussian import Gaussian
from tests.library.inspection.mixed_models import (
    CLASSES,
    WORDS,
    Stream,
    learned,
    streams,
    word_likelihoods,
)


@given(streams(), word_likelihoods(0.3, 1.0), st.lists(st.sampled_from(WORDS), unique=True))
def test_weights_and_constants_give_the_joint_log_likelihood(
    stream: Stream, likelihood: Any, words: list[str]
) -> None:
    """Σ_j w_jc·x_j + b_c is log p(x, c), for every class."""
    model = learned(stream, {"text": Words(likelihood)})
    form = model.weights()
    there = np.array([float(name in words) for _, name in form.names])
    found = there @ form.weights + form.constants
    joint = list(model.joint_log_likelihood_one({"text": " ".join(words)}).values())
    np.testing.assert_allclose(found, joint, rtol=1e-12, atol=1e-12)


def test_two_classes_are_logistic_regression_s_form() -> None:
    """P(y|x) = 1/(1 + exp(−(w·x + b))), words, flags and numbers of one variance together."""
    model = NaiveBayes(
        [0, 1],
        features={
            "text": Words(Multinomial()),
            "flags": Flags(fields=["reply"]),
            "numbers": Numbers(Gaussian(variance="shared"), fields=["age"]),
        },
    )
    rng = np.random.default_rng(2)
    for i in range(60):
        words = rng.choice(WORDS, 4)
        model.learn_one(
            {"text": " ".join(words), "reply": bool(rng.random() < 0.6), "age": rng.normal(i % 2)},
            i % 2,
        )
    form = model.weights()
    values = {("text", "good"): 2.0, ("text", "sun"): 1.0, ("flags", "reply"): 1.0,
              ("numbers", "age"): 0.4}  # fmt: skip
    x = np.array([values.get(name, 0.0) for name in form.names])
    p = 1.0 / (1.0 + math.exp(-(form.w @ x + form.b)))
    asked = {"text": "good sun good", "reply": True, "age": 0.4}
    assert p == pytest.approx(model.predict_proba_one(asked)[1], abs=1e-12)


def test_bernoulli_s_weights_are_those_of_the_formula() -> None:
    """W = log θ⁺(1−θ⁻)/(θ⁻(1−θ⁺)) and b = log π⁺/π⁻ + Σ log (1−θ⁺)/(1−θ⁻)."""
    model = NaiveBayes([0, 1], features={"text": Words(Bernoulli())})
    model.learn_many({"text": ["a b", "a", "b"]}, [1, 1, 0])
    minus, plus = {"a": 1 / 3, "b": 2 / 3}, {"a": 3 / 4, "b": 2 / 4}
    form = model.weights()
    wanted = [
        math.log(plus[w] * (1 - minus[w]) / (minus[w] * (1 - plus[w]))) for _, w in form.names
    ]
    assert form.w.tolist() == pytest.approx(wanted)
    absent = sum(math.log((1 - plus[w]) / (1 - minus[w])) for w in "ab")
    assert form.b == pytest.approx(math.log(3 / 2) + absent)


def test_zeros_of_maximum_likelihood_are_infinite_weights_and_never_nan() -> None:
    """A word of one class alone has an infinite weight; one of neither tells nothing."""
    words = Words(Multinomial(Dirichlet(0.0)), dictionary=("a", "b", "c"))
    model = NaiveBayes([0, 1], features={"text": words})
    model.learn_many({"text": ["a", "b"]}, [1, 0])
    form = model.weights()
    assert dict(zip(form.names, form.w.tolist(), strict=True)) == {
        ("text", "a"): math.inf, ("text", "b"): -math.inf, ("text", "c"): 0.0,
    }  # fmt: skip


def test_own_variances_have_no_linear_form_and_the_error_says_so() -> None:
    """They are quadratic."""
    model = NaiveBayes([0, 1], features={"numbers": Numbers(fields=["age"])})
    model.learn_many({"age": [1.0, 2.0, 3.0, 5.0]}, [0, 0, 1, 1])
    with pytest.raises(InputError, match="quadratic"):
        model.weights()


def test_a_certain_word_has_no_finite_weight_and_the_error_says_so() -> None:
    """With θ = 1 both log θ/(1−θ) and Σ log(1−θ) are infinite."""
    model = NaiveBayes([0, 1], features={"text": Words(Bernoulli(Beta(0, 0)))})
    model.learn_many({"text": ["a", "b"]}, [1, 0])
    with pytest.raises(InputError, match="probability 1"):
        model.weights()


def test_w_and_b_are_of_two_classes() -> None:
    """Of three there are weights and constants for each, and w says so."""
    form = learned([({"text": "good"}, "ham")], {"text": Words(Multinomial())}).weights()
    assert form.weights.shape == (1, len(CLASSES))
    with pytest.raises(InputError, match="two classes"):
        _ = form.w
