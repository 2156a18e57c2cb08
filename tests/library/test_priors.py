"""Priors on classes: by one number, by class, or known; and priors by word and class."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import BernoulliNB, MultinomialNB

from streamnb import (
    LAPLACE,
    MAXIMUM_LIKELIHOOD,
    Bag,
    Bernoulli,
    Beta,
    Dirichlet,
    Fixed,
    Multinomial,
    NaiveBayes,
    Words,
)
from streamnb.errors import InputError
from tests.library.features.count_models import WORDS, facts

CLASSES = ["ham", "spam", "eggs"]
TEXT = {"text": Words(Multinomial())}


def model_of(prior: Any, classes: list[str] | None = None, features: Any = None) -> NaiveBayes:
    """Return a model with a class prior."""
    declared = CLASSES if classes is None else classes
    return NaiveBayes(declared, prior, features or TEXT, hash_key=2, new_classes=True)


counts = st.tuples(*(st.integers(0, 20) for _ in CLASSES))
alphas = st.tuples(*(st.sampled_from([0.0, 0.5, 1.0, 10.0]) for _ in CLASSES))


@given(counts, alphas)
def test_a_prior_by_class_is_its_formula(
    n_by_class: tuple[int, ...], by_class: tuple[float, ...]
) -> None:
    """π_c = (N_c + α_c)/(n + Σα), by class; uniform where there is neither data nor α."""
    model = model_of(Dirichlet(by_class))
    for label, n in zip(CLASSES, n_by_class, strict=True):
        model.learn_many({"text": [None] * n}, [label] * n)
    total = sum(n_by_class) + sum(by_class)
    expected = [
        (n + a) / total if total else 1 / 3 for n, a in zip(n_by_class, by_class, strict=True)
    ]
    assert model.class_priors() == pytest.approx(expected, rel=1e-14)
    assert facts(NaiveBayes.from_bytes(model.to_bytes())) == facts(model)


@given(counts)
def test_a_known_prior_is_not_moved(n_by_class: tuple[int, ...]) -> None:
    """Class probabilities that are fixed stay what they are, whatever is learned."""
    known = {"ham": 0.2, "spam": 0.7, "eggs": 0.1}
    model = model_of(Fixed(known))
    for label, n in zip(CLASSES, n_by_class, strict=True):
        model.learn_many({"text": ["a"] * n}, [label] * n)
    assert model.class_priors() == pytest.approx(list(known.values()), rel=1e-15)
    assert model.class_counts.tolist() == list(map(float, n_by_class))
    restored = NaiveBayes.from_bytes(model.to_bytes())
    assert facts(restored) == facts(model)
    assert restored.describe() == model.describe()


def test_an_impossible_class_stays_so() -> None:
    """A class of probability zero has -inf, and no nan comes of it."""
    model = model_of(Fixed({"ham": 0.0, "spam": 1.0, "eggs": 0.0}))
    model.learn_one({"text": "a"}, "ham")
    assert model.predict_proba_one({"text": "a"}) == {"ham": 0.0, "spam": 1.0, "eggs": 0.0}


@pytest.mark.parametrize("prior", [Fixed({"ham": 0.5, "spam": 0.5}), Dirichlet([1.0, 2.0])])
def test_a_class_without_a_number_is_refused(prior: Any) -> None:
    """A class that the prior has no number for is named, when declared or when it comes."""
    with pytest.raises(InputError, match="'eggs'"):
        model_of(prior)
    model = model_of(prior, ["ham", "spam"])
    model.learn_one({"text": "a"}, "ham")
    before = model.to_bytes()
    with pytest.raises(InputError, match="'eggs'"):
        model.learn_one({"text": "x y"}, "eggs")
    with pytest.raises(InputError, match="'eggs'"):
        model.learn_many({"text": ["x", "y"]}, ["ham", "eggs"])
    with pytest.raises(InputError, match="'eggs'"):
        model.add_class("eggs")
    assert model.to_bytes() == before
    model.learn_one({"text": "x y"}, "eggs", weight=0)  # of which nothing is learned
    assert model.to_bytes() == before


def test_known_classes_may_come_one_by_one() -> None:
    """Under a fixed prior a class may come when it comes, as long as it has a probability."""
    model = model_of(Fixed({"ham": 0.25, "spam": 0.75}), [])
    model.learn_one({"text": "a"}, "spam")
    assert model.classes == ("spam",)
    assert model.predict_one({"text": "a"}) == "spam"
    model.learn_one({"text": "b"}, "ham")
    assert model.class_priors() == pytest.approx([0.75, 0.25])


WRONG: list[Any] = [
    lambda: Fixed({"a": 0.5, "b": 0.4}),
    lambda: Fixed({"a": 1.5, "b": -0.5}),
    lambda: Fixed({}),
    lambda: Fixed({"a": float("nan")}),
    lambda: Fixed({"a": "1"}),
    lambda: Fixed("ab"),
    lambda: Fixed(0.5),
    lambda: Fixed([("a", 0.5), ("a", 0.5)]),
    lambda: Dirichlet(-1),
    lambda: Dirichlet(float("inf")),
    lambda: Dirichlet(None),
    lambda: Dirichlet("1"),
    lambda: Dirichlet(True),
    lambda: Dirichlet([]),
    lambda: Dirichlet([1.0, "2"]),
    lambda: Dirichlet([[1.0], [1.0, 2.0]]),
    lambda: Dirichlet([[[1.0]]]),
    lambda: Beta(1.0, -1e-9),
    lambda: Beta(1e-61, 1.0),
    lambda: Dirichlet(1e61),
    lambda: Dirichlet([[1.0, 1e61]]),
    lambda: model_of(Beta(1, 1)),
    lambda: model_of(0.5),
    lambda: model_of(Dirichlet([[1.0, 2.0, 3.0]])),
]


@pytest.mark.parametrize("make", WRONG, ids=range(len(WRONG)))
def test_priors_are_checked_when_they_are_made(make: Any) -> None:
    """Numbers are 0 or of a bearable size, probabilities add up to 1, a class is named once."""
    with pytest.raises(InputError):
        make()


@pytest.mark.parametrize("shape", [(), (len(WORDS),), (len(WORDS), 3), (1, 3)])
def test_priors_by_word_and_class_are_scikit_learns(shape: tuple[int, ...]) -> None:
    """Multinomial priors over a declared dictionary: by word as scikit-learn, by class likewise."""
    rng = np.random.default_rng(5)
    X = rng.poisson(0.8, (90, len(WORDS))).astype(float)
    y = rng.choice(CLASSES, 90)
    alpha = np.asarray(rng.gamma(1.0, 1.0, shape) + 0.01)
    fixed = Fixed(dict.fromkeys(CLASSES, 1 / 3))
    bag = Bag(Multinomial(Dirichlet(alpha)), fields=WORDS, dictionary=WORDS)
    model = model_of(fixed, features={"b": bag})
    columns = {word: X[:, j] for j, word in enumerate(WORDS)}
    model.learn_many(columns, y.tolist())
    found = model.joint_log_likelihood_many(columns)
    grid = np.broadcast_to(alpha.reshape((-1, 1)) if alpha.ndim < 2 else alpha, (len(WORDS), 3))
    for c, label in enumerate(CLASSES):  # scikit-learn knows no prior by class: one fit for each
        theirs = MultinomialNB(alpha=grid[:, c], class_prior=[1 / 3] * 3).fit(X, y)
        at = theirs.classes_.tolist().index(label)
        expected = theirs._joint_log_likelihood(X)[:, at]
        assert np.abs(found[:, c] - expected).max() <= 1e-12 * np.abs(expected).max()
    assert facts_of(NaiveBayes.from_bytes(model.to_bytes()), columns) == facts_of(model, columns)
    theta = model.word_likelihoods(WORDS)
    assert theta.sum(axis=0) == pytest.approx(np.ones(3), rel=1e-12)


def facts_of(model: NaiveBayes, columns: Any) -> list[Any]:
    """Return the answers of a model."""
    answers: list[Any] = model.predict_log_proba_many(columns).tolist()
    return answers


def test_beta_by_class_is_scikit_learns() -> None:
    """Bernoulli words take a Beta by class; one by word they refuse, and say where it belongs."""
    rng = np.random.default_rng(6)
    X = (rng.random((90, len(WORDS))) < 0.3).astype(float)
    y = rng.choice(CLASSES, 90)
    by_class = [0.1, 1.0, 4.0]
    bag = Bag(Bernoulli(Beta([by_class], [by_class])), fields=WORDS, dictionary=WORDS)
    model = model_of(Fixed(dict.fromkeys(CLASSES, 1 / 3)), features={"b": bag})
    columns = {word: X[:, j] for j, word in enumerate(WORDS)}
    model.learn_many(columns, y.tolist())
    found = model.joint_log_likelihood_many(columns)
    for c, label in enumerate(CLASSES):
        theirs = BernoulliNB(alpha=by_class[c], class_prior=[1 / 3] * 3).fit(X, y)
        expected = theirs._joint_log_likelihood(X)[:, theirs.classes_.tolist().index(label)]
        assert np.abs(found[:, c] - expected).max() <= 1e-12 * np.abs(expected).max()
    with pytest.raises(InputError, match="Flags"):
        model_of(None, features={"b": Bag(Bernoulli(Beta([1.0] * 10, 1.0)), dictionary=WORDS)})


def test_a_prior_by_class_names_its_classes() -> None:
    """A words' prior of one row a class fits as many classes, and no new one may come."""
    features = {"text": Words(Multinomial(Dirichlet([[1.0, 2.0]])))}
    with pytest.raises(InputError, match="2 classes"):
        model_of(None, features=features)
    model = model_of(None, ["ham", "spam"], features)
    model.learn_one({"text": "a"}, "ham")
    before = model.to_bytes()
    with pytest.raises(InputError, match="2 classes"):
        model.learn_one({"text": "b"}, "eggs")
    assert model.to_bytes() == before


def test_the_named_priors() -> None:
    """Laplace's rule is c = 1 and maximum likelihood c = 0."""
    assert Dirichlet(1.0) == LAPLACE
    assert Dirichlet(0.0) == MAXIMUM_LIKELIHOOD
    model = model_of(MAXIMUM_LIKELIHOOD, features={"text": Words(Multinomial(MAXIMUM_LIKELIHOOD))})
    assert model.class_priors() == pytest.approx([1 / 3] * 3)
    model.learn_one({"text": "a"}, "ham")
    assert model.class_priors().tolist() == [1.0, 0.0, 0.0]
    judged = model.judge_one({"text": "b"})
    assert judged.label == "ham"
    assert not judged.by_prior
