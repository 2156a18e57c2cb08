"""Examples whose answers are known exactly, and what is defined where lecture notes differ."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words

# Ten documents over the words a, abacus, abandon, amazing, free, as they came, with their class.
DOCUMENTS = [
    ("a", "c1"),
    ("a", "c1"),
    ("a abandon", "c3"),
    ("a", "c1"),
    ("a", "c2"),
    ("a", "c3"),
    ("a abacus", "c1"),
    ("a", "c2"),
    ("a", "c1"),
    ("a amazing", "c2"),
]


def ten_documents(alpha: float, beta: Beta) -> NaiveBayes:
    """Return a Bernoulli model that has learned the ten documents."""
    model = NaiveBayes(
        classes=["c1", "c2", "c3"],
        class_prior=Dirichlet(alpha),
        features={"text": Words(Bernoulli(beta))},
    )
    model.learn_many({"text": [text for text, _ in DOCUMENTS]}, [c for _, c in DOCUMENTS])
    return model


def untrained(likelihood: Bernoulli | Multinomial, alpha: float = 1.0) -> NaiveBayes:
    """Return a model of two classes that has learned nothing."""
    return NaiveBayes(
        classes=["ham", "spam"], class_prior=Dirichlet(alpha), features={"text": Words(likelihood)}
    )


def test_counts_of_the_ten_documents() -> None:
    """N_c is 5, 3, 2; 'a' is everywhere; V counts the four words that were seen."""
    model = ten_documents(0.0, Beta(0, 0))
    assert model.class_counts.tolist() == [5, 3, 2]
    assert model.word_counts(["a", "abacus", "abandon", "amazing", "free"]).tolist() == [
        [5, 3, 2],
        [1, 0, 0],
        [0, 0, 1],
        [0, 1, 0],
        [0, 0, 0],
    ]
    assert model.vocabulary_size == 4
    assert model.class_priors() == pytest.approx([0.5, 0.3, 0.2], rel=1e-15)


def test_maximum_likelihood_of_the_ten_documents() -> None:
    """One zero count outweighs all: 'abandon' was seen with c3 alone, so c3 is certain."""
    model = ten_documents(0.0, Beta(0, 0))
    assert model.predict_log_proba_one({"text": "a abandon"}) == {
        "c1": -math.inf,
        "c2": -math.inf,
        "c3": 0.0,
    }


def test_training_log_likelihood_of_the_ten_documents() -> None:
    """Under maximum likelihood the joint log-likelihood of all ten is −16.094379."""
    joint = ten_documents(0.0, Beta(0, 0)).joint_log_likelihood_many(
        {"text": [text for text, _ in DOCUMENTS]}
    )
    own = [joint[i, int(c[1]) - 1] for i, (_, c) in enumerate(DOCUMENTS)]
    assert math.fsum(own) == pytest.approx(-16.094379, abs=5e-7)


def test_laplace_mends_the_ten_documents() -> None:
    """With Beta(1, 1) no class is impossible any more, and the answer is the exact fractions'."""
    prior = [Fraction(5, 10), Fraction(3, 10), Fraction(2, 10)]
    n_c, a, abacus, abandon, amazing = [5, 3, 2], [5, 3, 2], [1, 0, 0], [0, 0, 1], [0, 1, 0]

    def theta(count: list[int], c: int) -> Fraction:
        return Fraction(count[c] + 1, n_c[c] + 2)

    joint = [
        prior[c]
        * theta(a, c)
        * (1 - theta(abacus, c))
        * theta(abandon, c)
        * (1 - theta(amazing, c))
        for c in range(3)
    ]
    expected = [float(p / sum(joint)) for p in joint]
    found = ten_documents(0.0, Beta(1, 1)).predict_proba_one({"text": "a abandon"})
    assert list(found.values()) == pytest.approx(expected, rel=1e-14)
    # A declared dictionary would count 'free', never seen, too; its factors are 6/7, 4/5, 3/4.
    joint = [p * (1 - Fraction(1, n + 2)) for p, n in zip(joint, n_c, strict=True)]
    with_free = [float(p / sum(joint)) for p in joint]
    assert with_free == pytest.approx([0.39086, 0.22423, 0.38491], abs=5e-6)


def test_zeros_and_each_priors_mending() -> None:
    """A word never seen with 'yes' makes it impossible; never with either, it is unknown."""
    for beta, impossible in ((Beta(0, 0), True), (Beta(1, 1), False), (Beta(0.1, 0.1), False)):
        model = untrained(Bernoulli(beta))
        model.learn_many({"text": ["a b", "a", "b c"]}, ["ham", "ham", "spam"])
        said = model.predict_log_proba_one({"text": "b c"})
        assert (said["ham"] == -math.inf) is impossible
        assert not any(math.isnan(p) for p in model.predict_proba_one({"text": "b new"}).values())


def test_counts_need_the_multinomial() -> None:
    """Said ten times or twenty, a telling word tells more to the multinomial, and no more else."""
    for family, grows in ((Multinomial(), True), (Bernoulli(), False)):
        model = untrained(family)
        model.learn_many({"text": ["win win win now", "now and then"]}, ["spam", "ham"])
        said = [model.predict_log_proba_one({"text": "win " * n})["ham"] for n in (1, 10, 20)]
        steps = [b < a for a, b in pairwise(said)]
        assert steps == [grows, grows]


def test_words_outside_are_ignored() -> None:
    """Of 'Omg the cat sat!' the words never learned say nothing."""
    for family in (Multinomial(), Bernoulli()):
        model = untrained(family)
        model.learn_many({"text": ["omg cat", "rat sat"]}, ["ham", "spam"])
        whole = model.joint_log_likelihood_one({"text": "Omg the cat sat!"})
        assert whole == model.joint_log_likelihood_one({"text": "omg cat sat"})


@pytest.mark.parametrize("family", [Bernoulli(), Multinomial()])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_an_untrained_model_answers_its_class_prior(
    family: Bernoulli | Multinomial, alpha: float
) -> None:
    """Before any example the answer is α/Σα, uniform without α, and the first class wins."""
    model = untrained(family, alpha)
    for text in ("anything", "", None):
        assert model.predict_proba_one({"text": text}) == {"ham": 0.5, "spam": 0.5}
        assert model.predict_one({"text": text}) == "ham"


@pytest.mark.parametrize("likelihood", [Bernoulli(Beta(0, 0)), Multinomial(Dirichlet(0))])
def test_where_all_is_impossible_the_class_prior_answers(
    likelihood: Bernoulli | Multinomial,
) -> None:
    """Words that shut out every class leave the class prior to answer, and no nan."""
    model = untrained(likelihood)
    model.learn_many({"text": ["a", "a", "b"]}, ["ham", "ham", "spam"])
    said = model.predict_proba_one({"text": "a b"})
    assert list(said.values()) == pytest.approx([3 / 5, 2 / 5], rel=1e-15)
    assert model.joint_log_likelihood_one({"text": "a b"}) == dict.fromkeys(said, -math.inf)


@pytest.mark.parametrize("likelihood", [Bernoulli(Beta(0, 0)), Multinomial(Dirichlet(0))])
def test_an_empty_class_is_impossible_under_maximum_likelihood(
    likelihood: Bernoulli | Multinomial,
) -> None:
    """A class without examples has −inf where nothing smooths it; with a prior it has a chance."""
    model = untrained(likelihood)
    model.learn_one({"text": "a"}, "spam")
    assert model.predict_log_proba_one({"text": "a"}) == {"ham": -math.inf, "spam": 0.0}
    smoothed = untrained(type(likelihood)())
    smoothed.learn_one({"text": "a"}, "spam")
    assert 0 < smoothed.predict_proba_one({"text": "a"})["ham"] < 0.5


def test_ties_go_to_the_class_declared_first() -> None:
    """Two classes that learned the same tie, whatever their names and order of learning."""
    for classes in (["ham", "spam"], ["spam", "ham"]):
        for family in (Bernoulli(), Multinomial()):
            model = NaiveBayes(classes=classes, features={"text": Words(family)})
            model.learn_many({"text": ["b a", "a b"]}, ["spam", "ham"])
            assert model.predict_one({"text": "a"}) == classes[0]


def test_estimates_are_the_formulas() -> None:
    """θ̂ and π̂ are the counts with the prior's pseudo-counts, exact fractions."""
    texts, labels = ["a a b", "a", "c"], ["ham", "ham", "spam"]
    bernoulli = untrained(Bernoulli(Beta(1, 2)), 0.5)
    bernoulli.learn_many({"text": texts}, labels)
    assert bernoulli.word_likelihoods(["a", "c", "z"]) == pytest.approx(
        np.array([[3 / 5, 1 / 4], [1 / 5, 2 / 4], [0, 0]]), rel=1e-14
    )
    assert bernoulli.class_priors() == pytest.approx([2.5 / 4, 1.5 / 4], rel=1e-15)
    multinomial = untrained(Multinomial(Dirichlet(0.5)))
    multinomial.learn_many({"text": texts}, labels)
    assert multinomial.word_likelihoods(["a", "c", "z"]) == pytest.approx(
        np.array([[3.5 / 5.5, 0.5 / 2.5], [0.5 / 5.5, 1.5 / 2.5], [0, 0]]), rel=1e-14
    )
    assert multinomial.word_likelihoods(["a", "b", "c"]).sum(axis=0) == pytest.approx([1, 1])


def test_a_missing_text_is_not_an_empty_one() -> None:
    """An empty text says that no word is there; a missing one says nothing, and counts for π."""
    model = untrained(Bernoulli())
    model.learn_many({"text": ["a", "a", None, ""]}, ["ham", "ham", "ham", "spam"])
    assert model.class_counts.tolist() == [3, 1]
    assert list(model.predict_proba_one({"text": None}).values()) == pytest.approx([4 / 6, 2 / 6])
    with_empty = model.predict_proba_one({"text": ""})
    # θ of 'a' is (2+1)/(2+2) under ham, whose third text is missing, and (0+1)/(1+2) under spam.
    odds = (4 / 6 * 1 / 4) / (2 / 6 * 2 / 3)
    assert with_empty["ham"] / with_empty["spam"] == pytest.approx(odds, rel=1e-14)


def test_groups_add_up() -> None:
    """The joint log-likelihood of two groups is the class prior plus each one's own."""
    groups = {"text": Words(Bernoulli()), "user": Words(Multinomial())}
    stream = {"text": ["a b", "c", None, "a"], "user": ["x", "y y", "x", None]}
    labels = ["ham", "spam", "ham", "spam"]
    asked = {"text": ["a", None, ""], "user": ["x y", "y", None]}

    def joint(names: list[str]) -> np.ndarray:
        model = NaiveBayes(classes=["ham", "spam"], features={name: groups[name] for name in names})
        model.learn_many({name: stream[name] for name in names}, labels)
        return model.joint_log_likelihood_many({name: asked[name] for name in names})

    prior = math.log(0.5)
    both = joint(["text", "user"])
    assert both == pytest.approx(joint(["text"]) + joint(["user"]) - prior, rel=1e-14)
