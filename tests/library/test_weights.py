"""Weights: what an example counts as, and which weights are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import BernoulliNB, ComplementNB, MultinomialNB

from streamnb import Bag, Bernoulli, Complement, Fixed, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from tests.library.features.count_models import (
    CLASSES,
    FRACTIONAL,
    PROBES,
    WHOLE,
    WORDS,
    Example,
    batch,
    examples,
    facts,
    features,
    learn,
    model_of,
)


@given(features(), examples(st.integers(1, 6).map(float)))
def test_a_whole_weight_is_so_many_examples(
    groups: dict[str, Group], stream: list[Example]
) -> None:
    """An example of weight w leaves what the same example learned w times leaves, bit for bit."""
    repeated = [Example(e.text, e.bag, e.label) for e in stream for _ in range(int(e.weight))]
    assert facts(learn(model_of(groups), stream)) == facts(learn(model_of(groups), repeated))


@given(features(), examples(), examples(min_size=1), st.booleans())
def test_weight_zero_teaches_nothing(
    groups: dict[str, Group], known: list[Example], idle: list[Example], one_by_one: bool
) -> None:
    """Of an example of weight 0 nothing is kept: no word, no class, not a byte."""
    model = learn(model_of(groups, classes=()), known)
    before = model.to_bytes()
    if one_by_one:
        for each in idle:
            model.learn_one(each.x, "new", weight=0)
    else:
        told = batch(idle) | {"labels": ["new"] * len(idle), "weights": np.zeros(len(idle))}
        model.learn_many(**told)
    assert model.to_bytes() == before


@given(features(), examples(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=30))
def test_a_batch_is_its_weighted_examples(groups: dict[str, Group], stream: list[Example]) -> None:
    """With weights, zeros among them, a batch leaves and says what single examples do."""
    model, single = model_of(groups, classes=()), model_of(groups, classes=())
    said = model.prequential_many(**batch(stream))
    for example, row in zip(stream, said, strict=True):
        expected = list(single.predict_log_proba_one(example.x).values())
        assert row[: len(expected)].tolist() == expected
        single.learn_one(example.x, example.label, weight=example.weight)
    assert facts(model) == facts(single)
    assert model.to_bytes() == single.to_bytes()


@given(features(), examples(FRACTIONAL))
def test_fractional_weights_add_up(groups: dict[str, Group], stream: list[Example]) -> None:
    """Fractional weights add up in the order they come, as plain float64 sums do."""
    model = learn(model_of(groups), stream)
    counts = dict.fromkeys(CLASSES, 0.0)
    for each in stream:
        counts[each.label] += each.weight
    assert model.class_counts.tolist() == list(counts.values())
    assert not np.isnan(model.joint_log_likelihood_many(PROBES)).any()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Multinomial(), MultinomialNB()),
        (Bernoulli(), BernoulliNB()),
        (Complement(), ComplementNB()),
        (Complement(normalise=True), ComplementNB(norm=True)),
    ],
)
def test_weights_are_scikit_learns(ours: Any, theirs: Any) -> None:
    """With `sample_weight`, scikit-learn says the same to 1e-12 of the joint."""
    rng = np.random.default_rng(4)
    X = rng.poisson(0.8, (150, len(WORDS))).astype(float)
    y = rng.choice(CLASSES, 150)
    weights = rng.gamma(1.0, 2.0, 150)
    same = dict.fromkeys(CLASSES, 1 / 3)
    model = NaiveBayes(
        sorted(CLASSES), Fixed(same), {"b": Bag(ours, dictionary=WORDS, fields=WORDS)}
    )
    columns = {word: X[:, j] for j, word in enumerate(WORDS)}
    model.learn_many(columns, y.tolist(), weights=weights)
    theirs.set_params(**({} if isinstance(theirs, ComplementNB) else {"class_prior": [1 / 3] * 3}))
    theirs.fit(X, y, sample_weight=weights)
    asked = (X > 0).astype(float) if isinstance(theirs, BernoulliNB) else X
    expected = theirs._joint_log_likelihood(asked)
    if isinstance(theirs, ComplementNB):
        expected = expected + np.log(1 / 3)  # it leaves the class prior out
    found = model.joint_log_likelihood_many(columns)
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()


BAD = [-1, -1e-300, float("nan"), float("inf"), -float("inf"), "1", None, [1], True, 1j]


@pytest.mark.parametrize("weight", BAD)
@given(groups=features(), stream=examples(WHOLE))
def test_bad_weights_are_refused(
    weight: Any, groups: dict[str, Group], stream: list[Example]
) -> None:
    """A weight that is no finite number of at least 0 is named, and not a byte changes."""
    model = learn(model_of(groups, classes=()), stream)
    before = model.to_bytes()
    with pytest.raises(InputError, match="weight"):
        model.learn_one(PROBES_X, "new", weight=weight)
    with pytest.raises(InputError, match="weights"):
        model.learn_many(
            {"text": ["x", "y"], "bag": [{"x": 1}, {}]}, ["new", "ham"], weights=[1, weight]
        )
    with pytest.raises(InputError, match=r"weight|never learned"):
        model.unlearn_one(PROBES_X, "ham", weight=weight)
    assert model.to_bytes() == before


PROBES_X = {"text": "x y new", "bag": {"x": 1}}


@pytest.mark.parametrize(
    "weights", ["12", b"34", 1.0, [1.0], [[1.0, 2.0]], np.ones((2, 1)), {1: 2}]
)
def test_weights_must_fit_the_rows(weights: Any) -> None:
    """There is one weight a row, in a sequence."""
    model = model_of({"text": Words(Multinomial())})
    before = model.to_bytes()
    with pytest.raises(InputError, match="weights"):
        model.learn_many({"text": ["a", "b"]}, ["ham", "spam"], weights=weights)
    assert model.to_bytes() == before


@pytest.mark.parametrize("likelihood", [Multinomial(), Bernoulli(), Complement(normalise=True)])
def test_words_of_next_to_no_weight_are_words(likelihood: Any) -> None:
    """The least count, learned with the least weight, is one; what is less is refused."""
    model = model_of({"bag": Bag(likelihood, field="bag")})
    for x, weight in (({"a": 1e-101}, 1.0), ({"a": 1.0}, 1e-101)):
        with pytest.raises(InputError, match="must be 0, or a number from 1e-100 to 1e"):
            model.learn_one({"bag": x}, "ham", weight=weight)
    model.learn_one({"bag": {"a": 1e-100}}, "ham", weight=1e-100)
    assert model.words() == ["a"]
    assert model.vocabulary_size == 1
    assert not np.isnan(model.joint_log_likelihood_many(PROBES)).any()


@pytest.mark.parametrize("likelihood", [Multinomial(), Bernoulli(), Complement()])
def test_the_largest_weight_leaves_the_least_whole(likelihood: Any) -> None:
    """Weights in multiples of 1/1024 are taken back to the last bit: no rest is for rounding."""
    model, part = (model_of({"text": Words(likelihood)}, ["a", "b"]) for _ in range(2))
    model.learn_one({"text": "sun rain"}, "a", weight=1 / 1024)
    before = facts(model)
    for each in (model, part):
        each.learn_one({"text": "sun sun sun"}, "a", weight=1e6)
    merged = model - part
    model.unlearn_one({"text": "sun sun sun"}, "a", weight=1e6)
    assert facts(model) == facts(merged) == before


@pytest.mark.parametrize("weight", [2.0**20, 2.0**33 - 1, 2.0**33, 2.0**40, 2.0**51])
@pytest.mark.parametrize("likelihood", [Multinomial(), Bernoulli()])
def test_the_very_last_one_of_a_great_weight(likelihood: Any, weight: float) -> None:
    """Whole weights are exact: one that was there stays, and one too many is refused."""

    def learned(weights: list[float]) -> NaiveBayes:
        model = NaiveBayes(["x", "y"], features={"t": Words(likelihood)}, hash_key=1)
        for each in weights:
            model.learn_one({"t": "a b"}, "x", weight=each)
        return model

    model = learned([1.0, weight])
    model.unlearn_one({"t": "a b"}, "x", weight=weight)
    assert model.digest() == learned([1.0]).digest()
    model = learned([weight - 1.0])
    with pytest.raises(InputError, match="cannot be unlearned"):
        model.unlearn_one({"t": "a b"}, "x", weight=weight)
    assert model.digest() == learned([weight - 1.0]).digest()
