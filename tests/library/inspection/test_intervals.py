"""Credible intervals: against closed forms, and the two methods against each other."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from scipy import stats

from streamnb import Bernoulli, Beta, Dirichlet, Fixed, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from streamnb.features.flags import Flags
from streamnb.features.protocol import Group
from streamnb.inspection.parameters import digamma, log_beta_moments, normalised, trigamma
from tests.library.inspection.mixed_models import (
    CLASSES,
    Stream,
    examples,
    groups,
    learned,
    mixed_model,
    streams,
)

DRAWS = 100_000


def two_classes(n_plus: int, n_minus: int, likelihood: Any = None) -> NaiveBayes:
    """Return a model that has learned so many examples of two classes, each with two words."""
    model = NaiveBayes([0, 1], features={"text": Words(likelihood or Multinomial())})
    model.learn_many({"text": ["good sun"] * n_plus}, [1] * n_plus)
    model.learn_many({"text": ["bad sun"] * n_minus}, [0] * n_minus)
    return model


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_class_prior_alone_is_a_beta_distribution(level: float) -> None:
    """Of an example that says nothing, the quantiles are those of Beta(N₁ + α, N₀ + α)."""
    model = two_classes(7, 3)
    wanted = stats.beta(8, 4).ppf([(1 - level) / 2, (1 + level) / 2])
    found = model.credible_interval_one({}, level, n=DRAWS, seed=1)
    np.testing.assert_allclose(found[1], wanted, atol=0.005)
    np.testing.assert_allclose(found[0], 1 - wanted[::-1], atol=0.005)


def test_a_level_next_to_one_is_nearly_everything() -> None:
    """The largest level below 1 has an interval too, by either method."""
    level = math.nextafter(1.0, 0.0)
    low, high = two_classes(7, 3).credible_interval_one({"text": "sun"}, level, method="delta")[1]
    assert 0 < low < 0.05
    assert 0.95 < high < 1


def test_one_flag_is_a_product_of_betas() -> None:
    """With fixed class priors the odds are a ratio of two Betas: quantiles by quadrature."""
    model = NaiveBayes([0, 1], Fixed({0: 0.5, 1: 0.5}), {"flags": Flags(fields=["reply"])})
    model.learn_many({"reply": [True] * 5 + [False] * 4}, [1, 1, 1, 1, 0, 0, 0, 0, 1])
    low, high = model.credible_interval_one({"reply": True}, 0.9, n=DRAWS, seed=2)[1]
    plus, minus = stats.beta(5, 2), stats.beta(2, 4)
    theta = (np.arange(20_000) + 0.5) / 20_000  # P(+) ≤ q where θ⁻ ≥ θ⁺·(1 − q)/q
    for q, share in ((low, 0.05), (high, 0.95)):
        at_most = (plus.pdf(theta) * minus.sf(theta * (1 - q) / q)).mean()
        assert at_most == pytest.approx(share, abs=0.005)


@pytest.mark.parametrize("likelihood", [Multinomial(), Bernoulli()])
def test_the_delta_method_meets_the_draws_where_there_is_much_data(likelihood: Any) -> None:
    """With hundreds of examples the log-odds are all but normal: both ends agree to 0.01."""
    model = two_classes(300, 260, likelihood)
    for x in ({"text": "sun"}, {"text": "good sun sun bad"}, {}):
        drawn = model.credible_interval_one(x, n=DRAWS, seed=3)
        delta = model.credible_interval_one(x, method="delta")
        for label in (0, 1):
            np.testing.assert_allclose(drawn[label], delta[label], atol=0.01)


def test_the_delta_method_meets_the_draws_for_flags_and_categories() -> None:
    """They know their variances too, with several classes."""
    model = mixed_model(1_500)
    kinds: dict[str, Group] = {
        name: model.state.groups[name].spec for name in ("text", "bag", "flags", "kinds")
    }
    drawn = model.sample(3_000, seed=9)
    model = learned(drawn, kinds)
    x = {"text": "good", "reply": True, "link": False, "income": "mid", "job": "no"}
    sampled = model.credible_interval_one(x, n=40_000, seed=4)
    delta = model.credible_interval_one(x, method="delta")
    for label in CLASSES:
        np.testing.assert_allclose(sampled[label], delta[label], atol=0.01)


@given(streams(), examples(), groups(0.0, 0.3, 1.0))
def test_an_interval_is_ordered_and_within_zero_and_one(
    stream: Stream, x: dict[str, Any], mixed: dict[str, Group]
) -> None:
    """Whatever was learned: 0 ≤ low ≤ high ≤ 1, never nan, and a higher level is wider."""
    mixed = {name: group for name, group in mixed.items() if name != "numbers"}
    model = learned(stream, mixed or {"text": Words(Bernoulli())})
    methods: list[Any] = ["sampled", "delta"]
    for method in methods:
        narrow = model.credible_interval_one(x, 0.5, method, n=200, seed=1)
        wide = model.credible_interval_one(x, 0.9, method, n=200, seed=1)
        for label in CLASSES:
            assert 0.0 <= wide[label][0] <= narrow[label][0] <= narrow[label][1] + 1e-15
            assert narrow[label][1] <= wide[label][1] <= 1.0


def test_more_examples_make_it_narrower() -> None:
    """A hundred times the data, about a tenth of the width."""
    widths = []
    for n in (20, 2_000):
        low, high = two_classes(n, n).credible_interval_one({"text": "sun"}, n=20_000, seed=5)[1]
        widths.append(high - low)
    assert widths[1] == pytest.approx(widths[0] / 10, rel=0.15)


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Models whose truth is drawn from their own prior cover it in 90 % of cases, to 4 sigma."""
    rng = np.random.default_rng(6)
    n_cases, covered = 400, 0
    for _ in range(n_cases):
        pi, theta = rng.beta(1, 1), rng.beta(1, 1, 2)
        labels = (rng.random(12) < pi).astype(int)
        flags = rng.random(12) < theta[labels]
        model = NaiveBayes([0, 1], features={"flags": Flags(fields=["f"])})
        model.learn_many({"f": flags.tolist()}, labels.tolist())
        truth = pi * theta[1] / (pi * theta[1] + (1 - pi) * theta[0])
        low, high = model.credible_interval_one({"f": True}, 0.9, n=400, seed=rng)[1]
        covered += low <= truth <= high
    assert abs(covered / n_cases - 0.9) <= 4 * math.sqrt(0.9 * 0.1 / n_cases)


def test_numbers_are_drawn_and_say_that_they_have_no_delta_method() -> None:
    """The error names the group and the other method."""
    model = mixed_model()
    x = {"age": 33.0}
    low, high = model.credible_interval_one(x, seed=1)["ham"]
    assert low < model.predict_proba_one(x)["ham"] < high
    with pytest.raises(InputError, match=r"'numbers'.*method='sampled'"):
        model.credible_interval_one(x, method="delta")


def test_class_probabilities_that_are_fixed_are_not_drawn() -> None:
    """Without a feature that speaks, the interval is the number itself."""
    model = NaiveBayes([0, 1], Fixed({0: 0.25, 1: 0.75}), {"text": Words(Multinomial())})
    methods: list[Any] = ["sampled", "delta"]
    for method in methods:
        assert model.credible_interval_one({}, method=method)[1] == pytest.approx((0.75, 0.75))


def test_zeros_of_maximum_likelihood_are_certain() -> None:
    """A word that a class never had excludes it; where all are excluded, the prior answers."""
    model = two_classes(4, 4, Multinomial(Dirichlet(0.0)))
    methods: list[Any] = ["sampled", "delta"]
    for method in methods:
        assert model.credible_interval_one({"text": "good"}, method=method, seed=1)[1] == (1.0, 1.0)
        both = model.credible_interval_one({"text": "good bad"}, method=method, seed=1)[1]
        alone = model.credible_interval_one({}, method=method, seed=1)[1]
        assert both == pytest.approx(alone, abs=0.03)


@pytest.mark.parametrize("options", [{"level": 1.0}, {"level": True}, {"method": "x"}, {"n": 0}])
def test_bad_arguments_are_refused(options: dict[str, Any]) -> None:
    """Each is named."""
    with pytest.raises(InputError, match=f"{next(iter(options))} must"):
        two_classes(1, 1).credible_interval_one({}, **options)


def test_a_model_without_classes_has_no_interval() -> None:
    """It says so."""
    with pytest.raises(InputError, match="no class yet"):
        NaiveBayes(features={"text": Words(Multinomial())}).credible_interval_one({"text": "a"})


def test_the_moments_are_those_of_the_formulas() -> None:
    """E log θ = ψ(a) − ψ(a+b) and Var log θ = ψ'(a) − ψ'(a+b), to 1e-12 of mpmath's."""
    for a, b in [(0.3, 2.0), (1.0, 1.0), (40.0, 0.5), (1e6, 3e6)]:
        mean, variance = log_beta_moments(np.array([a]), np.array([b]))
        assert mean[0] == pytest.approx(float(mpmath.digamma(a) - mpmath.digamma(a + b)), rel=1e-9)
        exact = float(mpmath.polygamma(1, a) - mpmath.polygamma(1, a + b))
        assert variance[0] == pytest.approx(exact, rel=1e-9)
    assert float(digamma(0.0)) == -math.inf
    assert float(trigamma(0.0)) == math.inf


def test_a_beta_without_data_or_prior_is_a_point() -> None:
    """Shape 0 is probability 0; the other alone 0 is probability 1."""
    mean, variance = log_beta_moments(np.array([0.0, 3.0]), np.array([2.0, 0.0]))
    assert mean.tolist() == [-math.inf, 0.0]
    assert variance.tolist() == [0.0, 0.0]
    model = learned([({"text": "good"}, "ham")], {"text": Words(Bernoulli(Beta(1, 0)))})
    assert model.credible_interval_one({"text": "good"}, seed=1)["ham"][1] <= 1.0


def test_normalised_draws_add_up_to_one() -> None:
    """Whatever their size, and with impossible classes among them, which stay impossible."""
    logs = np.random.default_rng(3).normal(-900.0, 300.0, (50, 4))
    logs[::5, 1] = -np.inf
    found = normalised(logs)
    assert np.allclose(np.exp(found).sum(axis=1), 1.0, rtol=0.0, atol=1e-12)
    assert (found[::5, 1] == -np.inf).all()
    for row, own in zip(logs, found, strict=True):
        total = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(each)) for each in row))
        for one, said in zip(row, own, strict=True):
            assert one == -np.inf or said == pytest.approx(float(one - total), abs=1e-11)
