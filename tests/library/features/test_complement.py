"""Complement naive Bayes is scikit-learn's, whatever its state goes through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import ComplementNB

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Categories,
    Complement,
    Dirichlet,
    Fixed,
    Flags,
    Multinomial,
    NaiveBayes,
    Numbers,
    Words,
)
from streamnb.errors import InputError
from tests.library.features.count_models import (
    PROBES,
    Example,
    examples,
    facts,
    learn,
    model_of,
    states,
)

WORDS = tuple(f"w{j}" for j in range(25))


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("alpha", [1.0, 0.01, "by word"])
@pytest.mark.parametrize("seed", range(3))
def test_scikit_learn_says_the_same(normalise: bool, n_classes: int, alpha: Any, seed: int) -> None:
    """Beside a uniform class prior, joints are scikit-learn's to 1e-12 of the largest."""
    rng = np.random.default_rng(seed)
    alphas = rng.random(len(WORDS)) + 0.05 if alpha == "by word" else alpha
    X = rng.poisson(rng.gamma(0.4, 2.0, len(WORDS)), (120, len(WORDS))).astype(float)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, 120 - n_classes))
    prior = Fixed(dict.fromkeys(range(n_classes), 1 / n_classes))
    kind = Complement(Dirichlet(alphas), normalise=normalise)
    model = NaiveBayes(range(n_classes), prior, {"b": Bag(kind, fields=WORDS, dictionary=WORDS)})
    columns = {word: X[:, j] for j, word in enumerate(WORDS)}
    model.learn_many(columns, y.tolist())
    theirs = ComplementNB(alpha=alphas, norm=normalise).fit(X, y)
    expected = theirs._joint_log_likelihood(X) - np.log(n_classes)
    found = model.joint_log_likelihood_many(columns)
    assert np.abs(found - expected).max() <= 1e-12 * np.abs(expected).max()
    assert model.predict_log_proba_many(columns) == pytest.approx(
        theirs.predict_log_proba(X), rel=1e-12, abs=1e-12 * np.abs(expected).max()
    )


def test_the_class_prior_stays_in() -> None:
    """As in the paper's rule, a class's prior is added to what the words say."""
    model = model_of({"text": Words(Complement())}, classes=("ham", "spam"))
    learn(model, [Example("a", None, "ham")] * 3 + [Example("b", None, "spam")])
    joint = model.joint_log_likelihood_one({"text": "a"})
    # ham's complement holds b once, spam's a three times; α = 1, V = 2.
    assert joint["ham"] == pytest.approx(np.log(4 / 6) - np.log(1 / 3))
    assert joint["spam"] == pytest.approx(np.log(2 / 6) - np.log(4 / 5))


@given(examples(), st.booleans())
def test_one_class_alone_says_nothing(stream: list[Example], normalise: bool) -> None:
    """Without another class there is no complement: the class prior answers."""
    model = model_of({"text": Words(Complement(normalise=normalise))}, classes=("ham",))
    for each in stream:
        model.learn_one(each.x, "ham")
    assert model.joint_log_likelihood_many(PROBES).tolist() == [[0.0]] * 6
    assert model.predict_proba_one({"text": "a b"}) == {"ham": 1.0}
    model.learn_one({"text": "a b"}, "ham")
    model.learn_one({"text": "a c"}, "spam")  # from now on there is
    assert model.joint_log_likelihood_one({"text": "a"}) != model.joint_log_likelihood_one({})


@pytest.mark.parametrize("normalise", [False, True])
def test_one_word_alone_tells_nothing(normalise: bool) -> None:
    """Where the vocabulary is one word, each class's θ̃ is 1 and its weight is 0, not nan."""
    model = model_of({"text": Words(Complement(normalise=normalise))}, classes=("ham", "spam"))
    learn(model, [Example("a a", None, "ham"), Example("a", None, "spam")])
    joint = model.joint_log_likelihood_one({"text": "a a a"})
    assert joint == pytest.approx(model.joint_log_likelihood_one({}))
    assert model.word_likelihoods(["a"]).tolist() == [[1.0, 1.0]]


@given(examples(max_size=20), st.sampled_from([3, 1000]), st.data())
def test_the_sums_follow_all_that_a_state_goes_through(
    stream: list[Example], bound: int, data: st.DataObject
) -> None:
    """Dropping, new classes, parts, merging, saving: the sums are those of the counts alone."""
    groups = {"bag": Bag(Complement(normalise=True), field="bag", max_words=bound)}
    model = model_of(groups, classes=())
    in_parts = data.draw(st.booleans())
    for i, each in enumerate(stream):
        part = f"p/{i % 2}" if in_parts else None
        model.learn_one(each.x, each.label, weight=each.weight, part=part)
    if data.draw(st.booleans()):
        model = model + model
    restored = NaiveBayes.from_bytes(model.to_bytes())
    ours, theirs = (vars(states(m)["bag"].estimator)["_sums"] for m in (model, restored))
    assert ours.tolist() == theirs.tolist()
    assert facts(model) == facts(restored)
    assert facts(model.clone()) == facts(model)


@pytest.mark.parametrize("normalise", [False, True])
def test_a_word_adds_what_its_likelihood_says(normalise: bool) -> None:
    """What the model tells of a word is, in nats, what one occurrence adds to the joint."""
    model = model_of({"text": Words(Complement(normalise=normalise))})
    learn(
        model,
        [Example("a b b c", None, "ham"), Example("c d", None, "spam"), Example("a", None, "eggs")],
    )
    nothing = np.array(list(model.joint_log_likelihood_one({"text": ""}).values()))
    for word in "abcd":
        told = np.array(list(model.joint_log_likelihood_one({"text": word}).values())) - nothing
        assert np.log(model.word_likelihoods([word])[0]) == pytest.approx(told, rel=1e-12)


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (Dirichlet(0.0), {}, "above 0 .*Got 0"),
    (Dirichlet([1.0, 0.0]), {}, "above 0"),
    (Dirichlet([[1.0, 0.0]]), {}, "above 0"),
    (Beta(1, 1), {}, "must be a Dirichlet"),
    (1.0, {}, "must be a Dirichlet"),
    (Dirichlet(1.0), {"normalise": 1}, "True or False"),
]


@pytest.mark.parametrize(("prior", "options", "message"), WRONG, ids=range(len(WRONG)))
def test_what_it_is_made_of_is_checked(prior: Any, options: dict[str, Any], message: str) -> None:
    """α must be above zero, a Dirichlet's, and the option a truth value."""
    with pytest.raises(InputError, match=message):
        Complement(prior, **options)


def test_a_prior_by_word_needs_a_dictionary() -> None:
    """Numbers for each word fit a dictionary of as many words, and no other group."""
    kind = Complement(Dirichlet([1.0, 2.0]))
    with pytest.raises(InputError, match="2 features"):
        model_of({"text": Words(kind)})
    with pytest.raises(InputError, match="2 features"):
        model_of({"text": Words(kind, dictionary=("a", "b", "c"))})
    model = model_of({"text": Words(kind, dictionary=("a", "b"))})
    assert facts(NaiveBayes.from_bytes(model.to_bytes())) == facts(model)


def topics(n: int, rng: np.random.Generator) -> tuple[dict[str, list[str]], list[str]]:
    """Return texts of two topics that share half of their words, a fifth of them of the second."""
    labels = ["b" if k % 5 == 0 else "a" for k in range(n)]
    texts = [
        " ".join(f"{label}{k}" if k < 20 else f"w{k}" for k in rng.integers(0, 40, 12))
        for label in labels
    ]
    return {"text": texts}, labels


def test_normalised_weights_leave_the_class_prior_out() -> None:
    """Scores that differ by thousandths decide, and not how often a class came."""
    rng = np.random.default_rng(2)
    features = {"text": Words(Complement(normalise=True), field="text")}
    model = NaiveBayes(features=features, hash_key=1)
    model.learn_many(*topics(400, rng))
    columns, labels = topics(200, rng)
    said = model.predict_many(columns)
    assert said == model.without_prior().predict_many(columns)
    assert np.mean([one == other for one, other in zip(said, labels, strict=True)]) > 0.95
    assert model.class_priors().tolist() == [0.5, 0.5]
    model.learn_one({"text": "news"}, "c")  # a class that joins has an equal share
    assert model.class_priors() == pytest.approx([1 / 3] * 3)
    loaded = NaiveBayes.from_bytes(model.to_bytes())
    assert loaded.predict_log_proba_one({"text": "w20 a1"}) == model.predict_log_proba_one(
        {"text": "w20 a1"}
    )
    found = model.explain_one({"text": "w20 a1"})
    assert sum(each.weight for each in found.contributions) == pytest.approx(found.log_odds)


@pytest.mark.parametrize(
    "options", [{"class_prior": Fixed({"a": 0.9, "b": 0.1})}, {"prior_half_life": 50.0}]
)
def test_a_class_prior_that_was_asked_for_stays_in(options: dict[str, Any]) -> None:
    """One that is fixed, or has a half-life; and any beside groups of log-probabilities."""
    features: dict[str, Any] = {"text": Words(Complement(normalise=True), field="text")}
    data = topics(40, np.random.default_rng(2))
    for groups, more in ((features, options), (features | {"x": Numbers()}, {})):
        model = NaiveBayes(["a", "b"], features=groups, hash_key=1, **more)
        model.learn_many(*data)
        assert model.class_priors()[0] > 0.75


@pytest.mark.parametrize("likelihood", [Complement(), Multinomial(), Bernoulli()])
def test_a_group_says_whether_it_leaves_the_class_prior_out(likelihood: Any) -> None:
    """A model leaves it out if all of its groups do."""
    normalised = Complement(normalise=True)
    both: list[Any] = [Words(normalised, field="text"), Bag(normalised, field="bag")]
    for other, wanted in (
        (both[1], True),
        (Words(likelihood, field="other"), False),
        (Bag(likelihood, field="other"), False),
        (Categories(fields=["other"]), False),
        (Flags(fields=["other"]), False),
        (Numbers(fields=["other"]), False),
    ):
        state = NaiveBayes(["a", "b"], features={"text": both[0], "more": other}).state
        assert [each.leaves_prior_out for each in state.groups.values()] == [True, wanted]
        assert state.leaves_prior_out == wanted
