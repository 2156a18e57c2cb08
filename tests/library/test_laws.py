"""Laws of the model, for any stream: batches are for speed only, and answers follow the counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamnb.learn
import streamnb.predict
from streamnb import Bernoulli, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.labels import Label
from tests import naive, naive_text
from tests.strategies import Example, cuts, groups, streams

PROBES = ["a b c", "not d :)", "", None, "z", "a a a e f g h"]


def fresh(group: Words, classes: Sequence[Label] = ("ham",), key: int = 7) -> NaiveBayes:
    """Return a model that knows nothing but its first class."""
    return NaiveBayes(classes, features={"text": group}, hash_key=key, new_classes=True)


def columns(stream: Sequence[Example]) -> tuple[dict[str, list[str | None]], list[str]]:
    """Return a stream as columns and labels."""
    return {"text": [e.text for e in stream]}, [e.label for e in stream]


def learned(model: NaiveBayes, stream: Sequence[Example]) -> NaiveBayes:
    """Return the model, taught one example at a time."""
    for example in stream:
        model.learn_one({"text": example.text}, example.label)
    return model


def state(model: NaiveBayes) -> tuple[object, ...]:
    """Return all that a model knows and answers, words by their text."""
    words = sorted(model.words())
    return (
        model.classes,
        model.class_counts.tolist(),
        words,
        model.word_counts(words).tolist(),
        model.vocabulary_size,
        model.words_dropped,
        model.predict_log_proba_many({"text": PROBES}).tolist(),
        model.joint_log_likelihood_many({"text": PROBES}).tolist(),
    )


@given(groups(), streams(), cuts())
def test_a_batch_is_what_single_examples_are(
    group: Words, stream: list[Example], where: list[int]
) -> None:
    """However a stream is cut into batches, the model is the one that single examples make."""
    model = fresh(group)
    bounds = [0, *(min(at, len(stream)) for at in where), len(stream)]
    for begin, end in pairwise(bounds):
        model.learn_many(*columns(stream[begin:end]))
    assert state(model) == state(learned(fresh(group), stream))


@given(groups(), streams())
def test_each_example_is_judged_before_it_is_learned(group: Words, stream: list[Example]) -> None:
    """What `prequential_many` returns is, to the bit, what the model said before each example."""
    returned = fresh(group).prequential_many(*columns(stream))
    model = fresh(group)
    for example, row in zip(stream, returned, strict=True):
        said = model.predict_log_proba_one({"text": example.text})
        assert list(said.values()) == row[: len(said)].tolist()
        assert np.isneginf(row[len(said) :]).all()
        model.learn_one({"text": example.text}, example.label)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Multinomial(), Multinomial(Dirichlet(0.01))])
@pytest.mark.parametrize("max_words", [20, 300])
def test_long_batches_judge_as_single_examples_do(
    likelihood: Bernoulli | Multinomial, max_words: int
) -> None:
    """Over thousands of texts, while words leave all the time, each is judged once and alike."""
    generator = np.random.default_rng(9)
    stream = [
        Example(" ".join(f"w{r}" for r in row), ["ham", "spam", "eggs"][i % 7 % 3])
        for i, row in enumerate(generator.zipf(1.3, (1200, 7)) % 3000)
    ]
    group = Words(likelihood, max_words=max_words)
    returned = fresh(group, ["ham", "spam", "eggs"]).prequential_many(*columns(stream))
    model = fresh(group, ["ham", "spam", "eggs"])
    for example, row in zip(stream, returned, strict=True):
        said = model.predict_log_proba_one({"text": example.text})
        assert list(said.values()) == row.tolist()
        model.learn_one({"text": example.text}, example.label)
    assert model.words_dropped > 1000


@given(groups(), streams(), st.integers(1, 5))
def test_pieces_leave_no_trace(group: Words, stream: list[Example], piece: int) -> None:
    """A batch is worked off in pieces; how large they are is not to be seen."""
    whole = fresh(group)
    expected = whole.prequential_many(*columns(stream))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(streamnb.learn, "BATCH_ROWS", piece)
        patched.setattr(streamnb.predict, "BATCH_ROWS", piece)
        cut = fresh(group)
        found = cut.prequential_many(*columns(stream))
        assert state(cut) == state(whole)
    assert np.array_equal(found, expected)


@given(groups(), streams(), st.integers(0, (1 << 128) - 1))
def test_no_answer_depends_on_the_hash_key(group: Words, stream: list[Example], key: int) -> None:
    """Under any key, a model learns and answers the same to the bit, also when words leave."""
    one = learned(fresh(group), stream)
    assert state(one) == state(learned(fresh(group, key=key), stream))


@given(groups(), streams())
@hypothesis.example(Words(Multinomial(Dirichlet(0.0)), max_words=1), [Example("a", "spam")])
def test_the_model_is_its_plain_twin(group: Words, stream: list[Example]) -> None:
    """Counts are the twin's, word by word; joints and posteriors are, to 1e-12 of their size."""
    model, twin = fresh(group), naive.NaiveModel(group, classes=["ham"])
    for example in stream:
        model.learn_one({"text": example.text}, example.label)
        twin.learn(example.text, example.label)
    assert list(model.classes) == twin.classes
    assert set(model.words()) == set(twin.counts)
    words = list(twin.counts)
    assert model.word_counts(words).tolist() == [
        [twin.counts[word][c] for c in twin.classes] for word in words
    ]
    assert (model.vocabulary_size, model.words_dropped) == (len(words), twin.n_dropped)
    joints = model.joint_log_likelihood_many({"text": PROBES})
    posteriors = model.predict_log_proba_many({"text": PROBES})
    prior = twin.joint(None)
    for text, joint, posterior in zip(PROBES, joints, posteriors, strict=True):
        expected = twin.joint(text)
        finite = [abs(score) for score in expected if np.isfinite(score)]
        within = 1e-12 * max(1.0, *finite, 0.0)
        assert joint.tolist() == pytest.approx(expected, rel=0, abs=within)
        doubtful = naive.posterior(expected, prior)
        assert posterior.tolist() == pytest.approx(doubtful, rel=0, abs=4 * within)


@given(groups(), streams())
def test_reading_changes_nothing(group: Words, stream: list[Example]) -> None:
    """Asking leaves the model, and the caller's own columns, as they were."""
    model = learned(fresh(group), stream)
    before = state(model)
    asked, _ = columns(stream)
    copied = {"text": list(asked["text"])}
    model.predict_log_proba_many(asked)
    model.top_words(3)
    model.telling_words(3)
    model.class_priors()
    assert asked == copied
    assert state(model) == before


@given(groups(max_words=(1000,)), streams(), st.randoms(use_true_random=False))
def test_the_order_of_examples_is_nothing_to_the_counts(
    group: Words, stream: list[Example], random: Random
) -> None:
    """Where no word leaves, any order of the same examples gives the same answers to the bit."""
    shuffled = list(stream)
    random.shuffle(shuffled)
    classes = ["ham", "spam", "eggs"]
    one, other = learned(fresh(group, classes), stream), learned(fresh(group, classes), shuffled)
    assert state(one) == state(other)


@given(groups(), streams())
def test_posteriors_are_probabilities(group: Words, stream: list[Example]) -> None:
    """Posteriors add up to one and none is nan, whatever zeros the counts hold."""
    said = learned(fresh(group), stream).predict_log_proba_many({"text": PROBES})
    assert not np.isnan(said).any()
    assert np.allclose(np.exp(said).sum(axis=1), 1.0, rtol=0, atol=1e-13)


@given(groups(), streams())
def test_the_bound_holds(group: Words, stream: list[Example]) -> None:
    """V never passes `max_words`, unless one text alone brought more words than that."""
    model = fresh(group)
    widest = group.max_words
    for example in stream:
        model.learn_one({"text": example.text}, example.label)
        widest = max(widest, len(naive_text.grams(example.text, group.tokenizer)))
        assert model.vocabulary_size == len(model.words()) <= widest


@given(groups(), streams(), st.integers(0, 24))
def test_a_bad_example_changes_nothing(group: Words, stream: list[Example], at: int) -> None:
    """Where one value of a batch cannot be used, nothing of that batch is learned."""
    model = learned(fresh(group), stream)
    before = state(model)
    texts, labels = columns(stream)
    spoilt = {"text": [*texts["text"][:at], b"bytes", *texts["text"][at:]]}
    with pytest.raises(ValueError, match="text must be a str"):
        model.learn_many(spoilt, [*labels, "ham"])
    with pytest.raises(ValueError, match="a label must be"):
        model.learn_many(texts, [*labels[:-1], 1.5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="labels"):
        model.learn_many(texts, [*labels, "new class"])
    assert state(model) == before
