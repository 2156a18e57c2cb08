"""Examples drawn from the model: what is learned from many of them is the model again."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from streamnb import Bag, Bernoulli, Beta, Dirichlet, Fixed, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from tests.library.inspection.mixed_models import CLASSES, learned, mixed_model

SIGMAS = 5.0


def assert_recovered(found: Any, wanted: Any, n: Any) -> None:
    """Hold a share of n draws to within five standard deviations of its probability."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    bound = SIGMAS * np.sqrt(wanted * (1 - wanted) / n) + 1e-12
    assert (np.abs(found - wanted) <= bound).all()


@pytest.mark.parametrize("name", ["multinomial", "bernoulli"])
def test_words_learned_from_a_sample_have_the_parameters_it_was_drawn_from(name: str) -> None:
    """Class priors and each θ_jc come back within sampling error, and no word is lost."""
    family: Any = {
        "multinomial": (Multinomial(), Multinomial(Dirichlet(0.0))),
        "bernoulli": (Bernoulli(), Bernoulli(Beta(0, 0))),
    }[name]
    source = learned(
        [({"text": "good sun sun lunch"}, "ham"), ({"text": "win prize"}, "spam"),
         ({"text": "rain"}, "eggs"), ({"text": "sun rain bad"}, "ham")],
        {"text": Words(family[0])},
    )  # fmt: skip
    columns, labels = source.sample_many(20_000, seed=11)
    again = learned(list(zip(({"text": t} for t in columns["text"]), labels, strict=True)),
                    {"text": Words(family[1])}, alpha=0.0)  # fmt: skip
    assert_recovered(again.class_priors(), source.class_priors(), 20_000)
    words = source.words("text")
    assert sorted(again.words("text")) == sorted(words)
    state: Any = again.state.groups["text"]
    n = state.counts.tokens if name == "multinomial" else state.counts.examples
    assert_recovered(again.word_likelihoods(words), source.word_likelihoods(words), n)


def test_texts_are_as_long_as_the_class_s_on_average() -> None:
    """Lengths are Poisson with the class's mean; a class without texts has that of all."""
    source = learned(
        [({"text": "good sun sun lunch"}, "ham"), ({"text": ""}, "spam")],
        {"text": Words(Multinomial())},
    )
    columns, labels = source.sample_many(6_000, seed=1)
    lengths = np.array([len(text.split()) for text in columns["text"]])
    for label, mean in [("ham", 4.0), ("spam", 0.0), ("eggs", 2.0)]:
        own = lengths[[y == label for y in labels]]
        assert abs(own.mean() - mean) <= SIGMAS * math.sqrt(mean / len(own))
        assert own.var() == pytest.approx(mean, rel=0.15)


def test_texts_of_a_given_length_are_multinomial() -> None:
    """Each text has that many words, and each bag comes as often as m!/∏x_j! · ∏θ_j^x_j says."""
    source = learned([({"text": "sun sun rain"}, "ham")], {"text": Words(Multinomial())})
    theta = dict(zip(source.words(), source.word_likelihoods(source.words())[:, 0], strict=True))
    columns, labels = source.sample_many(20_000, seed=2, length=4)
    own = [text for text, y in zip(columns["text"], labels, strict=True) if y == "ham"]
    for suns in range(5):
        share = np.mean([text.split().count("sun") == suns for text in own])
        p = math.comb(4, suns) * theta["sun"] ** suns * theta["rain"] ** (4 - suns)
        assert abs(share - p) <= SIGMAS * math.sqrt(p / len(own))
    assert {len(text.split()) for text in columns["text"]} == {4}
    assert [x["text"] for x, _ in source.sample(3, length=0)] == [""] * 3


def test_a_length_needs_a_text_that_has_one() -> None:
    """It is a whole number, and of a multinomial: flags and words by presence have no length."""
    with pytest.raises(InputError, match=r"length must be a whole number of at least 0. Got -1"):
        mixed_model(10).sample(1, length=-1)
    with pytest.raises(InputError, match="length is that of texts under a Multinomial"):
        learned([({"text": "good"}, "ham")], {"text": Words(Bernoulli())}).sample(1, length=2)


def test_a_sample_of_every_kind_of_group_is_learned_again() -> None:
    """Flags, categories, numbers and bags come with their own fields, as `learn_one` takes them."""
    source = mixed_model()
    drawn = source.sample(4_000, seed=5)
    assert set(drawn[0][0]) == {"text", "bag", "reply", "link", "income", "job", "age"}
    again = learned(drawn, {name: state.spec for name, state in source.state.groups.items()})
    assert again.n_examples == 4_000
    assert_recovered(again.class_counts / 4_000, source.class_priors(), 4_000)
    for label in CLASSES:
        x = {"reply": True, "income": "low", "job": "no"}
        alone = [model.joint_log_likelihood_one(x)[label] for model in (source, again)]
        assert alone[1] == pytest.approx(alone[0], abs=0.35)


def test_fields_that_are_words_are_drawn_as_counts() -> None:
    """A bag without a field has a column for each word."""
    model = NaiveBayes(CLASSES, features={"bag": Bag(Multinomial(), fields=("a", "b"))})
    model.learn_many({"a": [3, 0], "b": [1, 2]}, ["ham", "spam"])
    columns, labels = model.sample_many(50, seed=3)
    assert sorted(columns) == ["a", "b"]
    again = NaiveBayes(CLASSES, features={"bag": Bag(Multinomial(), fields=("a", "b"))})
    again.learn_many(columns, labels)
    assert again.n_examples == 50


def test_the_same_seed_draws_the_same_examples() -> None:
    """A seed, or a generator in the same state, fixes all; another seed draws others."""
    model = mixed_model()
    assert model.sample(20, seed=4) == model.sample(20, seed=4)
    assert model.sample(20, seed=4) == model.sample(20, seed=np.random.default_rng(4))
    assert model.sample(20, seed=4) != model.sample(20, seed=5)
    assert model.sample(0) == []


def test_classes_come_by_their_prior() -> None:
    """With probabilities that are fixed, no other class comes than those that have one."""
    model = NaiveBayes(
        [0, 1], Fixed({0: 0.0, 1: 1.0}), {"text": Words(Bernoulli(), dictionary=("a",))}
    )
    assert {y for _, y in model.sample(100, seed=1)} == {1}


def test_what_no_text_can_be_made_of_is_refused() -> None:
    """N-grams and negated words are not drawn one by one; the error says what to take."""
    for options in ({"ngrams": (1, 2)}, {"negation": True}):
        spec: Any = Words(Multinomial(), **options)
        model = learned([({"text": "not good sun"}, "ham")], {"text": spec})
        with pytest.raises(InputError, match=r"'text'.*ngrams=\(1, 1\)"):
            model.sample(1)


def test_a_class_with_nothing_to_draw_from_is_refused() -> None:
    """Under maximum likelihood a class without words has no distribution of them."""
    model = learned([({"text": "good"}, "ham")], {"text": Words(Multinomial(Dirichlet(0.0)))})
    with pytest.raises(InputError, match="nothing to draw from"):
        model.sample(200, seed=1)


def test_one_field_cannot_be_drawn_twice() -> None:
    """Two groups over one text would each draw their own."""
    both = {name: Words(Bernoulli(), field="text") for name in ("one", "two")}
    model = learned([({"text": "good"}, "ham")], dict(both))
    with pytest.raises(InputError, match="'text' is read by group 'two' and another"):
        model.sample(1)


@pytest.mark.parametrize(("n", "seed"), [(-1, 0), (1.5, 0), (True, 0), (1, -1), (1, "x")])
def test_bad_numbers_and_seeds_are_refused(n: Any, seed: Any) -> None:
    """Each is named, with what is allowed."""
    with pytest.raises(InputError, match="must be a whole number"):
        mixed_model(10).sample(n, seed)


def test_a_model_without_classes_draws_nothing() -> None:
    """It says so."""
    with pytest.raises(InputError, match="no class yet"):
        NaiveBayes(features={"text": Words(Bernoulli())}).sample(1)
