"""Declared dictionaries, and the worked examples whose answers are known, by words and bags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from streamnb import Bag, Bernoulli, Beta, Complement, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.errors import InputError
from tests.library.features.count_models import WORDS, Example, examples, facts, learn, model_of

FAMILIES = [Multinomial(), Bernoulli(), Complement(), Complement(normalise=True)]


@pytest.mark.parametrize("likelihood", FAMILIES)
@given(stream=examples())
def test_words_outside_are_ignored(likelihood: Any, stream: list[Example]) -> None:
    """What is not in the dictionary leaves no trace, learned or asked; V is its size."""
    declared = WORDS[:5]
    model = model_of({"text": Words(likelihood, dictionary=declared)})
    filtered = model_of({"text": Words(likelihood, dictionary=declared)})
    for each in stream:
        inside = " ".join(w for w in (each.text or "").split() if w in declared)
        model.learn_one({"text": each.text}, each.label)
        filtered.learn_one({"text": None if each.text is None else inside}, each.label)
    assert facts(model) == facts(filtered)
    assert model.vocabulary_size == 5
    if not isinstance(likelihood, Bernoulli):
        told = model.joint_log_likelihood_many({"text": ["j i h g f", ""]})
        assert told[0].tolist() == told[1].tolist()


@pytest.mark.parametrize("likelihood", FAMILIES)
def test_a_declared_word_that_never_came_has_its_probability(likelihood: Any) -> None:
    """It is predicted by the prior from the first example on, and is never dropped."""
    model = model_of({"text": Words(likelihood, dictionary=WORDS, max_words=2)})
    learn(model, [Example(" ".join(WORDS[:8]), None, "ham"), Example("a a", None, "spam")])
    assert model.words_dropped == 0
    assert model.vocabulary_size == len(WORDS)
    known = model.joint_log_likelihood_one({"text": "j"})
    assert known != model.joint_log_likelihood_one({"text": "never"})
    assert facts(NaiveBayes.from_bytes(model.to_bytes())) == facts(model)


def test_a_dictionary_of_pairs_and_negated_words() -> None:
    """Words are declared as the model shows them: pairs by a space, negated ones by their sign."""
    declared = ("good", "¬good", "so good", "not ¬good")
    model = model_of(
        {"text": Words(Multinomial(), ngrams=(1, 2), negation=True, dictionary=declared)}
    )
    learn(model, [Example("so good, not good", None, "ham")])
    assert model.word_counts(declared)[:, 0].tolist() == [1.0, 1.0, 1.0, 1.0]
    assert model.words() == list(declared)


def test_omg_the_cat_sat() -> None:
    """Example 8: over {cat, rat, sat, omg} the word 'the' is outside and ignored."""
    model = model_of({"text": Words(Multinomial(), dictionary=("cat", "rat", "sat", "omg"))})
    model.learn_one({"text": "Omg the cat sat!"}, "ham")
    assert model.word_counts(["cat", "rat", "sat", "omg", "the"])[:, 0].tolist() == [1, 0, 1, 1, 0]
    said = model.joint_log_likelihood_one({"text": "Omg the cat sat!"})
    assert said == model.joint_log_likelihood_one({"text": "omg cat sat"})


TEN = [
    ("a", "c1"), ("a", "c1"), ("a abandon", "c3"), ("a", "c1"), ("a", "c2"), ("a", "c3"),
    ("a abacus", "c1"), ("a", "c2"), ("a", "c1"), ("a amazing", "c2"),
]  # fmt: skip
FIVE = ("a", "abacus", "abandon", "amazing", "free")


def ten_documents(beta: float, dictionary: tuple[str, ...] | None = FIVE) -> NaiveBayes:
    """Return a model that learned the ten documents of example 4, one at a time."""
    words = Words(Bernoulli(Beta(beta, beta)), dictionary=dictionary)
    model = NaiveBayes(["c1", "c2", "c3"], Dirichlet(0.0), {"text": words})
    for text, label in TEN:
        model.learn_one({"text": text}, label)
    return model


def test_ten_documents_three_classes_five_words() -> None:
    """Example 4: its counts, its training log-likelihood, and the zero-count lesson."""
    model = ten_documents(0.0)
    assert model.class_counts.tolist() == [5.0, 3.0, 2.0]
    assert model.word_counts(FIVE).tolist() == [
        [5, 3, 2], [1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 0],
    ]  # fmt: skip
    joint = model.joint_log_likelihood_many({"text": [text for text, _ in TEN]})
    own = [joint[i, int(label[1]) - 1] for i, (_, label) in enumerate(TEN)]
    assert sum(own) == pytest.approx(-16.094379, abs=5e-7)
    query = {"text": "a abandon"}
    assert model.predict_proba_one(query) == {"c1": 0.0, "c2": 0.0, "c3": 1.0}
    mended = ten_documents(1.0)
    expected = {"c1": 0.39086, "c2": 0.22423, "c3": 0.38491}
    assert mended.predict_proba_one(query) == pytest.approx(expected, abs=5e-6)
    assert mended.predict_one(query) == "c1"


def test_zeros_of_a_thousand_flags() -> None:
    """Example 5: a flag never seen with 'yes' rules it out, until a prior mends it.

    One never seen with either class leaves nothing, and the class prior answers.
    """
    flags = tuple(f"f{j}" for j in range(1000))
    everything, nothing = dict.fromkeys(flags[:998], 1), dict.fromkeys(flags[:998], 0)

    def made(beta: float) -> NaiveBayes:
        bag = Bag(Bernoulli(Beta(beta, beta)), field="x", dictionary=flags)
        model = NaiveBayes(["yes", "no"], Dirichlet(0.0), {"x": bag})
        rows = [everything, everything, nothing, nothing | {"f998": 1}]
        model.learn_many({"x": rows}, ["yes", "yes", "no", "no"])
        return model

    asked = [everything | {"f998": 1}, nothing | {"f998": 1}, everything | {"f999": 1}]
    model = made(0.0)
    joint = model.joint_log_likelihood_many({"x": asked})
    assert np.isneginf(joint[:, 0]).all()
    assert np.isneginf(joint[2]).all()
    assert model.answered_by_prior({"x": asked}).tolist() == [True, False, True]
    assert model.predict_proba_one({"x": asked[2]}) == {"yes": 0.5, "no": 0.5}
    for beta in (1e-3, 0.5, 1.0):
        mended = made(beta)
        assert mended.predict_many({"x": asked}) == ["yes", "no", "yes"]
        assert np.isfinite(mended.joint_log_likelihood_many({"x": asked})).all()


def test_a_telling_word_ten_times_and_twenty() -> None:
    """Example 7: to a multinomial, twenty times is twice as telling as ten times, seen or not."""
    model = model_of({"text": Words(Multinomial())}, classes=("ham", "spam"))
    learn(model, [Example("win " * 10, None, "spam"), Example("lunch " * 10, None, "ham")])
    by_times = []
    for n in (0, 10, 20):
        joint = model.joint_log_likelihood_one({"text": "win " * n})
        by_times.append(joint["spam"] - joint["ham"])
    assert by_times[0] == 0.0
    assert by_times[1] == pytest.approx(10 * np.log(11), rel=1e-14)
    assert by_times[2] == pytest.approx(20 * np.log(11), rel=1e-14)


@pytest.mark.parametrize("dictionary", [[], ["a", "a"], ["a", ""], ["a", 1], "abc", 3, {"a": 1}])
def test_a_dictionary_is_words_that_differ(dictionary: Any) -> None:
    """It holds at least one word, texts all of them, each once."""
    with pytest.raises(InputError, match="dictionary"):
        Words(Multinomial(), dictionary=dictionary)


def test_a_dictionary_has_no_bound() -> None:
    """Declared words stay, whatever `max_words` says: none leaves for another."""
    group = Words(Multinomial(), dictionary=("a", "b", "c", "d", "e"), max_words=2)
    model = NaiveBayes(features={"text": group})
    model.learn_many({"text": ["a b c", "d e", "a"]}, ["x", "y", "x"])
    assert model.word_counts(["a", "b", "c", "d", "e"]).sum(axis=1).tolist() == [2, 1, 1, 1, 1]
    assert model.words_dropped == 0
