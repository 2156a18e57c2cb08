"""Folds: without one of them a model is, bit for bit, the one that never learned it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamnb as nb
from streamnb.errors import InputError

CLASSES = ("ham", "spam", "eggs")
GROUPS: dict[str, Any] = {
    "text": nb.Words(nb.Multinomial(), ngrams=(1, 2)),
    "title": nb.Words(nb.Bernoulli()),
    "summary": nb.Words(nb.Complement()),
    "choice": nb.Categories(nb.Categorical(), fields=["colour"]),
    "flags": nb.Flags(nb.Bernoulli(), fields=["is_new"]),
}
NUMBERS: dict[str, Any] = {"sizes": nb.Numbers(nb.Gaussian(), fields=["size"])}
FIELDS = ("text", "title", "summary", "colour", "is_new", "size")
K = 3
_FIFTY = tuple(f"w{n}" for n in range(50))


def model_of(features: dict[str, Any], classes: tuple[str, ...] = CLASSES) -> nb.NaiveBayes:
    """Return a model that has learned nothing."""
    return nb.NaiveBayes(classes=classes, features=features, hash_key=7)


@st.composite
def examples(draw: st.DrawFn) -> tuple[dict[str, Any], str, int]:
    """Draw an example of every kind of field, its label and its fold."""
    text = st.lists(st.sampled_from("abcdefgh"), max_size=5).map(" ".join)
    x = {
        "text": draw(text),
        "title": draw(text),
        "summary": draw(text),
        "colour": draw(st.sampled_from(["red", "blue", None])),
        "is_new": draw(st.sampled_from([True, False, None])),
        "size": draw(st.one_of(st.none(), st.floats(-1e6, 1e6))),
    }
    return x, draw(st.sampled_from(CLASSES)), draw(st.integers(0, K - 1))


def columns_of(stream: list[Any]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return examples as columns and labels."""
    return {name: [x[name] for x, _, _ in stream] for name in FIELDS}, [y for _, y, _ in stream]


def learned_in_folds(features: dict[str, Any], stream: list[Any], cut: int = 10**6) -> nb.Folds:
    """Return folds that learned a stream in its order, each call at most `cut` examples."""
    folds = nb.Folds(model_of(features), K)
    for begin in range(0, len(stream), cut):
        for fold in range(K):
            own = [each for each in stream[begin : begin + cut] if each[2] == fold]
            folds.learn_many(*columns_of(own), fold)
    return folds


@given(st.lists(examples(), min_size=1, max_size=40), st.integers(1, 20))
def test_without_a_fold_a_model_is_one_that_never_learned_it(stream: list[Any], cut: int) -> None:
    """Digests and posteriors of every fold's examples are those of a training without the fold."""
    folds = learned_in_folds(GROUPS, stream, cut)
    for fold in range(K):
        trained = model_of(GROUPS)
        trained.learn_many(*columns_of([each for each in stream if each[2] != fold]))
        rest = folds.without(fold)
        assert rest.digest() == trained.digest()
        assert rest.n_examples == trained.n_examples
        assert rest.vocabulary_size == trained.vocabulary_size
        judged, _ = columns_of([each for each in stream if each[2] == fold])
        found = rest.predict_log_proba_many(judged)
        assert np.array_equal(found, trained.predict_log_proba_many(judged))
    whole = model_of(GROUPS)
    whole.learn_many(*columns_of(stream))
    assert folds.total().digest() == whole.digest()


@given(st.lists(examples(), min_size=1, max_size=30))
def test_means_are_those_of_the_other_parts(stream: list[Any]) -> None:
    """Moments are, bit for bit, those of a model that learned the other folds as parts."""
    folds = learned_in_folds(GROUPS | NUMBERS, stream)
    for fold in range(K):
        trained = model_of(GROUPS | NUMBERS)
        for other in range(K):
            own = [each for each in stream if each[2] == other != fold]
            if own:
                trained.learn_many(*columns_of(own), part=f"fold {other}")
        rest = folds.without(fold)
        assert rest.digest() == trained.digest()
        judged, _ = columns_of(stream)
        found = rest.predict_log_proba_many(judged)
        assert np.array_equal(found, trained.predict_log_proba_many(judged))


def test_words_that_left_a_fold_are_those_that_leave_a_part() -> None:
    """A full vocabulary is bounded fold by fold, as parts are; the total is their sum."""
    features = {"text": nb.Words(nb.Multinomial(), max_words=40)}
    generator = np.random.default_rng(3)
    texts = [" ".join(f"w{n}" for n in row) for row in generator.zipf(1.4, (600, 6)) % 500]
    labels = [CLASSES[c] for c in generator.integers(0, 2, 600)]
    folds, parts = nb.Folds(model_of(features), K), model_of(features)
    for fold in range(K):
        own = {"text": texts[fold::K]}
        folds.learn_many(own, labels[fold::K], fold)
        if fold != 1:
            parts.learn_many(own, labels[fold::K], part=str(fold))
    rest = folds.without(1)
    assert rest.words_dropped == parts.words_dropped > 0
    assert rest.digest() == parts.digest()
    found = rest.predict_log_proba_many({"text": texts})
    assert np.array_equal(found, parts.predict_log_proba_many({"text": texts}))


@pytest.mark.parametrize("max_words", [3, 20, 60, 100, 1_000])
def test_folds_say_when_they_are_no_trainings(max_words: int) -> None:
    """Beyond a bound they say how much all hold; within it every digest is a training's."""
    features = {
        "text": nb.Words(nb.Multinomial(), max_words=max_words),
        "title": nb.Words(nb.Bernoulli(), dictionary=_FIFTY, max_words=3),
        "choice": nb.Categories(nb.Categorical(), fields=["colour"], max_values=max_words),
    }
    generator = np.random.default_rng(3)
    texts = [" ".join(f"w{n}" for n in row) for row in generator.integers(0, 90, (300, 3))]
    columns = {"text": texts, "title": texts, "colour": [each[:3] for each in texts]}
    labels = [CLASSES[c] for c in generator.integers(0, 2, len(texts))]
    folds = nb.Folds(model_of(features), K)
    for fold in range(K):
        folds.learn_many({k: v[fold::K] for k, v in columns.items()}, labels[fold::K], fold)
    equal = []
    for fold in range(K):
        trained = model_of(features)
        for other in range(len(texts)):
            if other % K != fold:
                row = {name: column[other] for name, column in columns.items()}
                trained.learn_one(row, labels[other])
        equal.append(folds.without(fold).digest() == trained.digest())
    found, total = folds.overfull(), folds.total()
    assert equal == [not found] * K
    assert sorted(found) == (["choice", "text"] if max_words < 90 else [])
    if found:
        n_held, n_max, n_left = found["text"]
        assert (n_max, n_left) == (max_words, total.words_dropped)
        assert n_held > max_words or n_left > 0
        assert n_held == total.vocabulary_size - len(set(" ".join(texts).split()) & {*_FIFTY})


def test_fractions_that_a_fold_brought_leave_with_it() -> None:
    """Of amounts that are no whole numbers nothing is left by rounding, and V is right."""
    model = nb.NaiveBayes(classes=CLASSES, features={"bag": nb.Bag(nb.Multinomial())})
    folds = nb.Folds(model, 2)
    folds.learn_many({"a": [0.1, 0.2]}, ["ham", "ham"], 0)
    folds.learn_many({"a": [0.7], "b": [0.3]}, ["ham"], 1)
    trained = model.clone()
    trained.learn_many({"a": [0.1, 0.2]}, ["ham", "ham"])
    rest = folds.without(1)
    assert rest.vocabulary_size == 1
    np.testing.assert_allclose(
        rest.word_counts(["a"]), trained.word_counts(["a"]), rtol=1e-15, atol=0
    )


def test_learning_goes_on_beside_a_model_without_a_fold() -> None:
    """What was returned stays as it was; later models know more, new classes too."""
    model = nb.NaiveBayes(features={"text": nb.Words(nb.Multinomial())})
    folds = nb.Folds(model, 2)
    folds.learn_many({"text": ["a b"]}, ["x"], 0)
    before = folds.without(1)
    digest, asked = before.digest(), {"text": ["a c"]}
    answers = before.predict_log_proba_many(asked)
    folds.learn_many({"text": ["c d"] * 3}, ["y"] * 3, 1)
    assert before.digest() == digest
    assert np.array_equal(before.predict_log_proba_many(asked), answers)
    assert folds.classes == folds.without(0).classes == ("x", "y")
    assert folds.without(0).class_counts.tolist() == [0.0, 3.0]
    assert model.n_examples == 0


def test_what_cannot_be_folded_is_refused_and_changes_nothing() -> None:
    """Trained models, half-lives, unknown folds and labels are told by name."""
    trained = model_of(GROUPS)
    trained.learn_one({"text": "a"}, "ham")
    decaying = nb.NaiveBayes(features=GROUPS, decay=nb.HalfLife(seconds=1.0))
    for model, n_folds, told in (
        (trained, 2, "untrained"),
        (decaying, 2, "half-life"),
        (model_of(GROUPS), 1, "n_folds"),
        (model_of(GROUPS), 10_001, "at most 10,000"),
    ):
        with pytest.raises(InputError, match=told):
            nb.Folds(model, n_folds)
    folds = nb.Folds(model_of(GROUPS), 2)
    before = folds.total().digest()
    with pytest.raises(InputError, match="fold must be below n_folds, 2"):
        folds.learn_many({"text": ["a"]}, ["ham"], 2)
    with pytest.raises(InputError, match="declared classes"):
        folds.learn_many({"text": ["a", "b"]}, ["ham", "other"], 0)
    assert folds.total().digest() == before


@pytest.mark.parametrize("hybrid", [None, nb.Hybrid()], ids=["plain", "hybrid"])
@pytest.mark.parametrize("max_words", [3_000, 1_000_000])
def test_folds_of_many_words_are_those_of_parts(hybrid: nb.Hybrid | None, max_words: int) -> None:
    """Folds with room for a large vocabulary, full ones too, hold what parts hold, bit for bit."""
    features = {"text": nb.Words(nb.Multinomial(), max_words=max_words, hybrid=hybrid)}
    generator = np.random.default_rng(5)
    texts = [" ".join(f"w{n}" for n in row) for row in generator.integers(0, 90_000, (2_400, 100))]
    labels = [CLASSES[c] for c in generator.integers(0, 2, len(texts))]
    folds, parts = nb.Folds(model_of(features), 2), model_of(features)
    for begin in range(0, len(texts), 800):
        for fold in range(2):
            rows = slice(begin + fold, begin + 800, 2)
            folds.learn_many({"text": texts[rows]}, labels[rows], fold)
    parts.learn_many({"text": texts[1::2]}, labels[1::2], part="1")
    rest = folds.without(0)
    assert (rest.words_dropped > 0) == (max_words == 3_000)
    assert rest.vocabulary_size > (2_000 if max_words == 3_000 else 1 << 16)
    assert rest.digest() == parts.digest()
    asked = {"text": texts[:100]}
    found = rest.predict_log_proba_many(asked)
    assert np.array_equal(found, parts.predict_log_proba_many(asked))
