"""How likely data is: joint and conditional, from data and from the statistics alone."""

from __future__ import annotations

import math
from statistics import NormalDist, fmean, pvariance
from typing import Any

import pytest
from hypothesis import given

from streamnb import (
    Bernoulli,
    Beta,
    Dirichlet,
    Gaussian,
    Multinomial,
    NaiveBayes,
    NormalInverseGamma,
    Numbers,
    VarianceFloor,
    Words,
)
from streamnb.errors import InputError
from streamnb.features.numeric import NumbersState
from streamnb.features.protocol import Group
from tests.library.inspection.mixed_models import (
    Stream,
    columns_of,
    groups,
    learned,
    scale_of,
    streams,
)
from tests.library.test_worked_examples import DOCUMENTS, ten_documents


def test_the_ten_documents_have_their_known_log_likelihood() -> None:
    """Under maximum likelihood −16.094379, from the counts alone and from the documents."""
    model = ten_documents(0.0, Beta(0, 0))
    assert model.training_log_likelihood() == pytest.approx(-16.094379, abs=5e-7)
    columns, labels = {"text": [text for text, _ in DOCUMENTS]}, [c for _, c in DOCUMENTS]
    assert model.nll(columns, labels) == pytest.approx(16.094379, abs=5e-7)


@given(streams(min_size=1), groups(0.0, 0.3, 1.0))
def test_the_counts_alone_tell_the_log_likelihood_of_what_was_learned(
    stream: Stream, mixed: dict[str, Group]
) -> None:
    """Σ log p(x, y) over the training data, under the final estimates, needs no data."""
    model = learned(stream, mixed)
    columns, labels = columns_of(stream), [y for _, y in stream]
    joint = model.log_likelihood(columns, labels)
    told = model.training_log_likelihood()
    assert abs(told - joint) <= 1e-12 * scale_of([joint]) * len(stream)


@given(streams(min_size=1), groups(0.3, 1.0))
def test_joint_and_conditional_are_two_rows(stream: Stream, mixed: dict[str, Group]) -> None:
    """Each is what its formula says, and the value shows both."""
    model = learned(stream, mixed)
    columns, labels = columns_of(stream), [y for _, y in stream]
    places = [model.classes.index(y) for y in labels]
    joint = model.joint_log_likelihood_many(columns)
    posteriors = model.predict_log_proba_many(columns)
    both = model.likelihood_of(columns, labels)
    assert both.log_likelihood == pytest.approx(sum(joint[i, c] for i, c in enumerate(places)))
    losses = [-posteriors[i, c] for i, c in enumerate(places)]
    assert both.log_loss == pytest.approx(sum(losses) / len(losses))
    assert both.log_loss == model.log_loss(columns, labels)
    assert [line.partition(",")[0] for line in str(both).splitlines()] == ["joint NLL", "log-loss"]


def test_the_multinomial_coefficient_is_in_where_it_is_asked_for() -> None:
    """'good good sun' has three orders: log 3 more, in the joint alone; the value says which."""
    model = learned([({"text": "good good sun"}, "ham")], {"text": Words(Multinomial())})
    columns, labels = {"text": ["good good sun", None]}, ["ham", "ham"]
    without = model.likelihood_of(columns, labels)
    with_it = model.likelihood_of(columns, labels, with_coefficient=True)
    assert with_it.log_likelihood - without.log_likelihood == pytest.approx(math.log(3))
    assert (without.with_coefficient, with_it.with_coefficient) == (False, True)
    assert with_it.log_loss == without.log_loss
    assert "without multinomial" in str(without)
    assert "with multinomial" in str(with_it)


def test_presence_has_no_coefficient() -> None:
    """Words under a Bernoulli are probabilities as they stand."""
    model = learned([({"text": "good sun"}, "ham")], {"text": Words(Bernoulli())})
    columns = {"text": ["good sun"]}
    assert model.nll(columns, ["ham"]) == model.nll(columns, ["ham"], with_coefficient=True)


def test_an_impossible_example_is_minus_infinity_and_never_nan() -> None:
    """Under maximum likelihood a word that a class never had makes the whole impossible."""
    model = NaiveBayes([1, 2], Dirichlet(0.0), {"text": Words(Multinomial(Dirichlet(0.0)))})
    model.learn_many({"text": ["a", "b"]}, [1, 2])
    assert model.log_likelihood({"text": ["b"]}, [1]) == -math.inf
    assert model.log_loss({"text": ["b"]}, [1]) == math.inf


def test_a_model_that_has_learned_nothing_has_likelihood_one() -> None:
    """The empty product."""
    assert learned([], {"text": Words(Bernoulli())}).training_log_likelihood() == 0.0


def test_a_label_that_the_model_does_not_know_is_refused_by_row() -> None:
    """It names the row, the label and the classes there are."""
    model = learned([], {"text": Words(Bernoulli())})
    with pytest.raises(InputError, match=r"labels\[1\].*'eel'.*'ham'"):
        model.nll({"text": ["a", "b"]}, ["ham", "eel"])


def test_a_mean_of_nothing_is_refused() -> None:
    """Without examples there is no log-loss."""
    model = learned([], {"text": Words(Bernoulli())})
    with pytest.raises(InputError, match="at least one"):
        model.log_loss({"text": []}, [])


@pytest.mark.parametrize("variance", ["own", "shared"])
@pytest.mark.parametrize("share", [0.0, 1e-9, 0.1])
def test_numbers_have_the_log_likelihood_of_their_data(variance: Any, share: float) -> None:
    """From n, mean and M2 alone comes Σ log N(x; μ_c, σ²_c) over the data, as from the data."""
    values, labels = [1.0, 2.5, 2.0, -3.0, -1.0, 0.25], ["a", "a", "a", "b", "b", "b"]
    model = NaiveBayes(features={"x": Numbers(Gaussian(VarianceFloor(share), variance))})
    model.learn_many({"x": values}, labels)
    own = {c: [v for v, y in zip(values, labels, strict=True) if y == c] for c in "ab"}
    spreads = {c: pvariance(mine) for c, mine in own.items()}
    if variance == "shared":
        spreads = dict.fromkeys(own, fmean(spreads.values()))
    floor = share * pvariance(values)
    naive = sum(
        math.log(3 + 1)
        - math.log(6 + 2)
        + math.log(NormalDist(fmean(own[c]), math.sqrt(spreads[c] + floor)).pdf(v))
        for c in own
        for v in own[c]
    )
    assert model.training_log_likelihood() == pytest.approx(naive, rel=1e-12)
    assert model.log_likelihood({"x": values}, labels) == pytest.approx(naive, rel=1e-12)


def test_under_a_prior_moments_do_not_tell_the_log_likelihood() -> None:
    """Two sets of numbers of equal n, mean and M2 differ under Student's t: it is refused."""
    root = math.sqrt(3.0)
    said = []
    for values in ([-root, 0.0, 0.0, root, 0.0, 0.0], [-1.0, 1.0, -1.0, 1.0, -1.0, 1.0]):
        prior = NormalInverseGamma(mean=0.0, kappa=1.0, alpha=2.0, beta=3.0)
        model = NaiveBayes(features={"x": Numbers(Gaussian(prior))})
        model.learn_many({"x": values}, ["a"] * 6)
        group = model.state.groups["x"]
        assert isinstance(group, NumbersState)
        held = group.moments()
        assert [held[name].item() for name in ("n", "mean")] == [6.0, pytest.approx(0.0)]
        assert held["M2"].item() == pytest.approx(6.0)
        with pytest.raises(InputError, match=r"'x'.*Student's t.* to log_likelihood"):
            model.training_log_likelihood()
        # The naive twin: a = 2 + 6/2, b = 3 + 6/2, κ' = 7, m = 0.
        a, spread = 5.0, 6.0 * 8.0 / (5.0 * 7.0)
        each = math.lgamma(a + 0.5) - math.lgamma(a) - 0.5 * math.log(2.0 * math.pi * a * spread)
        naive = sum(each - (a + 0.5) * math.log1p(v * v / (2.0 * a * spread)) for v in values)
        said.append(model.log_likelihood({"x": values}, ["a"] * 6))
        assert said[-1] == pytest.approx(naive, rel=1e-12)
    assert abs(said[0] - said[1]) > 0.1
