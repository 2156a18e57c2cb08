"""What groups of words tell: contributions, log-likelihood, linear form, posteriors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Dirichlet,
    HalfLife,
    Multinomial,
    NaiveBayes,
    Snapshot,
    Words,
    predict,
)
from streamnb.errors import InputError
from streamnb.inspection.group_view import WordsView, view_of
from streamnb.inspection.words import BernoulliView, MultinomialView, column_sums
from streamnb.likelihoods.multinomial import Complement
from tests.library.inspection.mixed_models import (
    CLASSES,
    WORDS,
    Stream,
    learned,
    streams,
    word_likelihoods,
)

TOLERANCE = 1e-12


def view(model: NaiveBayes, name: str = "text") -> WordsView:
    """Return the view of a model's group of words."""
    found = view_of(model.state.groups[name], model.state.clock.scale)
    assert isinstance(found, WordsView)
    return found


def read(model: NaiveBayes, x: dict[str, Any], name: str = "text") -> Any:
    """Return what a group reads of one example."""
    return predict.read(model.state, predict.to_columns(model.state, x))[0][name]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"max_words": 3},
    {"dictionary": ("good", "sun", "never")},
    {"counts": "presence"},
]


@given(
    streams(),
    word_likelihoods(0.0, 1e-9, 0.3, 1.0),
    st.lists(st.sampled_from(WORDS)),
    st.sampled_from(OPTIONS),
)
def test_contributions_add_up_to_what_the_kernel_adds(
    stream: Stream, likelihood: Any, words: list[str], options: dict[str, Any]
) -> None:
    """Words that are there and the one sum of those missing make the joint log-likelihood."""
    model = learned(stream, {"text": Words(likelihood, **options)})
    x = {"text": " ".join([*words, "unheard"])}
    joint = model.joint_log_likelihood_many({"text": [x["text"]]})[0]
    told = [each.by_class for each in view(model).contributions(read(model, x), 0)]
    total = sum(told, np.log(model.class_priors()))
    assert not np.isnan(np.concatenate([total, *told])).any()
    for found, wanted in zip(total.tolist(), joint.tolist(), strict=True):
        assert found == wanted or abs(found - wanted) <= TOLERANCE * max(1.0, abs(wanted))


def test_missing_words_keep_their_digits_in_a_large_vocabulary() -> None:
    """Of 50,000 words, nearly all missing, the sum is the kernel's to 1e-12."""
    rng = np.random.default_rng(1)
    texts = [" ".join(f"w{j}" for j in rng.zipf(1.3, 40) % 50_000) for _ in range(3_000)]
    model = NaiveBayes(["a", "b"], features={"text": Words(Bernoulli(Beta(0.5, 2)))})
    model.learn_many({"text": texts}, ["ab"[i % 2] for i in range(len(texts))])
    x = {"text": "w1 w2 w40000"}
    told = view(model).contributions(read(model, x), 0)
    total = sum((each.by_class for each in told), np.log(model.class_priors()))
    joint = model.joint_log_likelihood_many({"text": [x["text"]]})[0]
    np.testing.assert_allclose(total, joint, rtol=TOLERANCE)


def test_sums_over_a_million_words_keep_their_digits() -> None:
    """They are added by pairs: to 1e-14 of the exact sum."""
    values = np.random.default_rng(3).random((1_000_000, 2)) * np.array([1e-5, 1.0])
    exact = [math.fsum(values[:, c].tolist()) for c in range(2)]
    np.testing.assert_allclose(column_sums(values), exact, rtol=1e-14)


def test_a_missing_text_says_nothing_and_an_empty_one_speaks_of_missing_words() -> None:
    """None adds no contribution; '' has the sum of the missing words alone."""
    model = learned([({"text": "good"}, "ham")], {"text": Words(Bernoulli())})
    assert view(model).contributions(read(model, {"text": None}), 0) == []
    told = view(model).contributions(read(model, {"text": ""}), 0)
    assert [each.feature for each in told] == ["(words that are missing)"]


def test_words_are_shown_as_text_with_how_often_they_came() -> None:
    """Each contribution names its word, and how many times it counts."""
    model = learned([({"text": "good sun"}, "ham")], {"text": Words(Multinomial())})
    told = view(model).contributions(read(model, {"text": "good good sun"}), 0)
    assert sorted(each.feature for each in told) == ["word 'good' ×2", "word 'sun'"]


@given(streams(), word_likelihoods(0.0, 0.3, 1.0))
def test_draws_have_the_moments_that_the_delta_method_takes(
    stream: Stream, likelihood: Any
) -> None:
    """Mean and variance of the drawn log-likelihoods are those in closed form."""
    # Shapes of at least 1, so that no logarithm has a tail that 3,000 draws would miss.
    often = [(x, y) for x, y in stream for _ in range(3)]
    model = learned(often, {"text": Words(likelihood)})
    own = view(model)
    fields = read(model, {"text": "good bad good"})
    drawn = own.draws(fields, 0, 3_000, np.random.default_rng(5))
    mean, variance = own.moments(fields, 0)
    assert not np.isnan(drawn).any()
    for c in range(len(CLASSES)):
        if not math.isfinite(mean[c]):
            assert (drawn[:, c] == -np.inf).all()
            continue
        error = math.sqrt(variance[c] / len(drawn))
        assert abs(drawn[:, c].mean() - mean[c]) <= 6 * error + 1e-9
        assert drawn[:, c].var() == pytest.approx(variance[c], rel=0.5, abs=1e-9)


@pytest.mark.deep
def test_the_sum_of_rare_missing_words_is_drawn_as_if_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The quantiles of the draws do not depend on which words are drawn one by one."""
    texts = [" ".join(f"w{(7 * i + j * j) % 400}" for j in range(12)) for i in range(120)]
    model = NaiveBayes(["a", "b"], features={"text": Words(Bernoulli())})
    model.learn_many({"text": texts}, ["ab"[i % 2] for i in range(120)])
    own = view(model)
    fields = read(model, {"text": "w1 w2"})
    drawn = {}
    for heavy in (20, 1_000):
        monkeypatch.setattr("streamnb.inspection.words._HEAVY", heavy)
        draws = own.draws(fields, 0, 20_000, np.random.default_rng(3))
        drawn[heavy] = np.quantile(draws, [0.025, 0.25, 0.5, 0.75, 0.975], axis=0)
    spread = drawn[1_000][-1] - drawn[1_000][0]
    assert (np.abs(drawn[20] - drawn[1_000]) <= 0.03 * spread).all()


def test_complement_scores_and_generates_nothing() -> None:
    """It has contributions and a linear form, and refuses whatever needs a probability of text."""
    stream: Stream = [({"text": "good sun"}, "ham"), ({"text": "bad rain"}, "spam")]
    model = learned(stream, {"text": Words(Complement())})
    x = {"text": "good rain"}
    form = model.weights()
    at = [form.names.index(("text", word)) for word in ("good", "rain")]
    joint = list(model.joint_log_likelihood_one(x).values())
    np.testing.assert_allclose(form.weights[at].sum(axis=0) + form.constants, joint, rtol=TOLERANCE)
    assert model.explain_one(x).contributions
    assert model.parameters().table == 3 * 4 + 3
    for ask in (
        lambda: model.sample(1),
        model.training_log_likelihood,
        lambda: model.credible_interval_one(x),
        lambda: model.credible_interval_one(x, method="delta"),
    ):
        with pytest.raises(InputError, match=r"'text'.*Complement"):
            ask()


@pytest.mark.parametrize("likelihood", [Multinomial(Dirichlet(0.5)), Bernoulli(Beta(0.5, 0.5))])
def test_under_decay_everything_is_told_of_the_counts_as_they_are_now(likelihood: Any) -> None:
    """A model that has just halved its counts tells what one with half the weights tells."""
    stream: Stream = [({"text": "good sun"}, "ham"), ({"text": "bad rain sun"}, "spam")]
    decayed = NaiveBayes(CLASSES, features={"text": Words(likelihood)}, decay=HalfLife(seconds=10))
    plain = NaiveBayes(CLASSES, features={"text": Words(likelihood)})
    for x, y in stream:
        decayed.learn_one(x, y, time_s=0.0)
        plain.learn_one(x, y, weight=0.5)
    decayed.learn_one({"text": "win"}, "ham", time_s=10.0)
    plain.learn_one({"text": "win"}, "ham")
    x = {"text": "sun good"}
    assert decayed.training_log_likelihood() == pytest.approx(plain.training_log_likelihood())
    both = [model.explain_one(x).contributions for model in (decayed, plain)]
    for one, other in zip(*both, strict=True):
        assert one.weight == pytest.approx(other.weight)
    intervals = [model.credible_interval_one(x, seed=1) for model in (decayed, plain)]
    for label in CLASSES:
        assert intervals[0][label] == pytest.approx(intervals[1][label])


def test_the_coefficient_counts_the_orders_of_the_words() -> None:
    """Of 'good good sun' there are three orders; what is not known is no word."""
    model = learned([({"text": "good sun"}, "ham")], {"text": Words(Multinomial())})
    own = view(model)
    assert isinstance(own, MultinomialView)
    fields = read(model, {"text": "good good sun unheard"})
    assert own.log_coefficients(fields, 1).tolist() == pytest.approx([math.log(3)])


def test_each_kind_has_its_view() -> None:
    """Bernoulli words are viewed as such, whoever counted them."""
    model = NaiveBayes(CLASSES, features={"bag": Bag(Bernoulli(), field="bag")})
    assert isinstance(view(model, "bag"), BernoulliView)


def test_a_snapshot_of_nothing_can_be_asked() -> None:
    """The first snapshot of a run has no word at all, and says so without fail."""
    for likelihood in (Bernoulli(), Multinomial()):
        snapshot = Snapshot(NaiveBayes(["a", "b"], features={"text": Words(likelihood)}), 1)
        assert np.array_equal(snapshot.word_counts(["x", "y"]), np.zeros((2, 2)))
        assert np.array_equal(snapshot.word_likelihoods(["x"]), np.zeros((1, 2)))
        assert snapshot.top_words(3) == snapshot.words() == []
        assert snapshot.telling_words(3) == {"a": [], "b": []}
        assert snapshot.predict_proba_one({"text": "x"}) == {"a": 0.5, "b": 0.5}


def test_known_and_unknown_words_stand_in_the_order_asked() -> None:
    """N_jc comes row by row as asked; a word that is not known has zeros."""
    model = NaiveBayes(["a", "b"], features={"text": Words(Multinomial())})
    model.learn_many({"text": ["x y", "y"]}, ["a", "b"])
    assert model.word_counts(["y", "nowhere", "x"]).tolist() == [[1, 1], [0, 0], [1, 0]]
