"""What numbers say beyond posteriors: likelihood, samples, linear form, shares, draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from streamnb import Gaussian, NaiveBayes, NormalInverseGamma, Numbers, VarianceFloor
from streamnb.errors import InputError
from streamnb.inspection.numeric import GaussianView

LIKELIHOODS = {
    "own": Gaussian(),
    "shared": Gaussian(variance="shared"),
    "student": Gaussian(NormalInverseGamma()),
    "student, shared": Gaussian(NormalInverseGamma(), "shared"),
}
N_CLASSES = 3


def learned(likelihood: Gaussian, n: int = 90, fields: Any = None) -> NaiveBayes:
    """Return a model of two fields, one far from zero."""
    generator = np.random.default_rng(3)
    labels = np.arange(n) % N_CLASSES
    model = NaiveBayes(
        classes=range(N_CLASSES), features={"x": Numbers(likelihood, fields)}, hash_key=1
    )
    columns = {
        "b": generator.normal(size=n) + labels,
        "a": 1e3 + generator.normal(size=n) * (1.0 + labels),
    }
    model.learn_many(columns, labels.tolist())
    return model


def view_of(model: NaiveBayes) -> GaussianView:
    """Return the view of the only group."""
    return GaussianView(model.state.groups["x"], model.state.clock.scale)


def likelihoods(model: NaiveBayes, x: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return one example's log-likelihood by class, without the class prior."""
    joint = np.array(list(model.joint_log_likelihood_one(x).values()))
    found: np.ndarray[Any, np.dtype[np.float64]] = joint - np.log(model.class_priors())
    return found


def test_parameters_are_counted() -> None:
    """Two numbers a class and field; with a shared variance, one variance a field."""
    assert view_of(learned(LIKELIHOODS["own"])).parameters() == (12, 12)
    assert view_of(learned(LIKELIHOODS["shared"])).parameters() == (8, 8)


@pytest.mark.parametrize("name", ["own", "shared"])
def test_log_likelihood_is_the_sum_over_the_data(name: str) -> None:
    """From moments alone it is what all learned examples have in their own classes."""
    model = learned(LIKELIHOODS[name])
    generator = np.random.default_rng(3)
    labels = np.arange(90) % N_CLASSES
    b, a = generator.normal(size=90) + labels, 1e3 + generator.normal(size=90) * (1.0 + labels)
    joint = model.joint_log_likelihood_many({"a": a, "b": b}) - np.log(model.class_priors())
    total = joint[np.arange(90), labels].sum()
    assert math.isclose(view_of(model).log_likelihood(), total, rel_tol=1e-11)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_samples_have_the_models_density(name: str) -> None:
    """Drawn values pass a Kolmogorov–Smirnov test against the density that judges them."""
    model = learned(LIKELIHOODS[name])
    labels = np.full(4000, 2, dtype=np.int32)
    drawn = view_of(model).sample(labels, np.random.default_rng(1))
    assert set(drawn) == {"a", "b"}
    grid = np.linspace(1e3 - 60, 1e3 + 60, 20001)
    joint = model.joint_log_likelihood_many({"a": grid})[:, 2] - math.log(model.class_priors()[2])
    cumulated = np.cumsum(np.exp(joint)) * (grid[1] - grid[0])
    assert abs(cumulated[-1] - 1.0) < 0.01
    found = stats.kstest(drawn["a"], lambda x: np.interp(x, grid, cumulated))
    assert found.pvalue > 1e-3


def test_what_a_class_knows_nothing_of_is_not_drawn() -> None:
    """A field that a class has not seen comes as None."""
    model = NaiveBayes(classes=["p", "q"], features={"x": Numbers()})
    model.learn_many({"a": [1.0, 2.0, 3.0], "b": [None, None, 4.0]}, ["p", "p", "q"])
    drawn = view_of(model).sample(np.array([0, 1], dtype=np.int32), np.random.default_rng(0))
    assert drawn["b"][0] is None
    assert drawn["b"][1] is not None


def test_linear_form_is_the_log_odds() -> None:
    """With a shared variance, w·x + b differs from the log-likelihood by nothing but a constant."""
    model = learned(LIKELIHOODS["shared"])
    form = view_of(model).linear()
    x = {"a": 998.5, "b": 2.25}
    scores = np.array([x[name] for name in form.names]) @ form.weights + form.constants
    wanted = likelihoods(model, x)
    assert np.allclose(scores - scores[0], wanted - wanted[0], rtol=1e-9, atol=1e-7)


def test_a_class_without_values_has_a_linear_form_too() -> None:
    """It has the shared variance, about the mean of all classes together."""
    numbers = Numbers(Gaussian(variance="shared"))
    model = NaiveBayes(classes=["p", "q", "r"], features={"x": numbers}, hash_key=1)
    model.learn_many({"a": [1.0, 2.0, 3.0, 5.0]}, ["p", "p", "q", "q"])
    form = view_of(model).linear()
    scores = 4.5 * form.weights[0] + form.constants
    wanted = likelihoods(model, {"a": 4.5})
    assert np.allclose(scores - scores[0], wanted - wanted[0], rtol=1e-9, atol=1e-9)
    variance = (0.5 + 2.0) / 4.0  # within p and q; the floor is a billionth
    assert wanted[2] - wanted[0] == pytest.approx((3.0**2 - 1.75**2) / (2.0 * variance))


@pytest.mark.parametrize("variance", ["own", "shared"])
def test_draws_of_a_class_without_values_are_all_classes_density(variance: Any) -> None:
    """They do not scatter."""
    model = NaiveBayes(
        classes=["p", "q", "r"], features={"x": Numbers(Gaussian(variance=variance))}
    )
    model.learn_many(
        {"a": [1.0, 2.0, 4.0, 3.0], "b": [None, None, None, 1.0]}, ["p", "p", "p", "q"]
    )
    model.learn_many({"a": [5.0, 6.0, 7.0], "b": [None] * 3}, ["q"] * 3)
    state = model.state
    view = GaussianView(state.groups["x"], 1.0)
    fields = state.groups["x"].read({"a": [4.5]}, 1)
    drawn = view.draws(fields, 0, 50, np.random.default_rng(0))
    assert np.ptp(drawn[:, :2], axis=0).all()
    wanted = model.joint_log_likelihood_one({"a": 4.5})["r"] - np.log(model.class_priors()[2])
    assert drawn[:, 2] == pytest.approx(np.full(50, wanted))


@pytest.mark.parametrize(
    ("name", "why"), [("own", "quadratic"), ("student, shared", "Student's t")]
)
def test_where_there_is_no_linear_form_it_says_why(name: str, why: str) -> None:
    """Own variances are quadratic, and Student's t is not linear either."""
    with pytest.raises(InputError, match=why):
        view_of(learned(LIKELIHOODS[name])).linear()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_contributions_add_up(name: str) -> None:
    """Each number's own share; what is missing or unknown has none."""
    model = learned(LIKELIHOODS[name])
    view = view_of(model)
    x = {"b": 1.5, "a": 1004.0}
    fields = model.state.groups["x"].read({k: [None, v] for k, v in (x | {"new": 3.0}).items()}, 2)
    shares = {each.feature: each.by_class for each in view.contributions(fields, 1)}
    assert set(shares) == {"a", "b"}
    assert np.allclose(shares["a"] + shares["b"], likelihoods(model, x), rtol=1e-12)
    assert np.allclose(shares["a"], likelihoods(model, {"a": 1004.0}), rtol=1e-12)
    assert view.contributions(fields, 0) == []


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_log_odds_tell_which_field_separates(name: str) -> None:
    """A field whose classes lie far apart has larger ratios than one where they overlap."""
    model = NaiveBayes(classes=[0, 1], features={"x": Numbers(LIKELIHOODS[name])})
    generator = np.random.default_rng(8)
    labels = np.arange(200) % 2
    noise = generator.normal(size=(200, 2))
    model.learn_many({"same": noise[:, 0], "apart": noise[:, 1] + 6.0 * labels}, labels.tolist())
    logs = view_of(model).log_odds()
    ratios = logs.values
    by_name = dict(zip(logs.names(np.arange(len(ratios))), ratios, strict=True))
    assert (by_name["apart"] > 10.0).all()
    assert np.abs(by_name["same"]).max() < 0.5


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_draws_scatter_around_the_answer(name: str) -> None:
    """Many draws of the parameters average, as densities, to about what the model answers."""
    model = learned(LIKELIHOODS[name], n=3000)
    fields = model.state.groups["x"].read({"a": [1001.0], "b": [0.5], "new": [1.0]}, 1)
    drawn = view_of(model).draws(fields, 0, 4000, np.random.default_rng(2))
    assert drawn.shape == (4000, N_CLASSES)
    wanted = likelihoods(model, {"a": 1001.0, "b": 0.5})
    assert np.allclose(np.log(np.exp(drawn).mean(axis=0)), wanted, atol=0.01)
    assert (drawn.std(axis=0) > 0.005).all()


def test_draws_of_a_prior_average_to_its_predictive() -> None:
    """Under a prior the mean density over draws is Student's t itself, with little data too."""
    model = learned(LIKELIHOODS["student"], n=12)
    fields = model.state.groups["x"].read({"a": [1001.0]}, 1)
    drawn = view_of(model).draws(fields, 0, 200_000, np.random.default_rng(2))
    wanted = likelihoods(model, {"a": 1001.0})
    assert np.allclose(np.log(np.exp(drawn).mean(axis=0)), wanted, atol=0.02)


def test_draws_without_a_prior_need_two_examples() -> None:
    """One example a class says nothing of its variance: that is told, not made up."""
    model = NaiveBayes(classes=["p", "q"], features={"x": Numbers(Gaussian(VarianceFloor(0.01)))})
    model.learn_many({"a": [1.0, 2.0, 9.0]}, ["p", "p", "q"])
    fields = model.state.groups["x"].read({"a": [1.5]}, 1)
    with pytest.raises(InputError, match="two examples"):
        view_of(model).draws(fields, 0, 10, np.random.default_rng(0))
