"""Models over words and bags for the laws of what a state can do, and all that such a model says.

Streams of examples come with weights; `facts` says what two models must share to be the same, with
words in the order of their text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import (
    Bag,
    Bernoulli,
    Beta,
    Complement,
    Dirichlet,
    HalfLife,
    Multinomial,
    NaiveBayes,
    Words,
)
from streamnb.features.counted_words import CountedState
from streamnb.features.protocol import Group

CLASSES = ("ham", "spam", "eggs")
WORDS = tuple("abcdefghij")
PROBES: dict[str, list[Any]] = {
    "text": ["a b c", "a a a a j", "", None, "never seen", "c d e f g h i j"],
    "bag": [{"a": 1}, {"b": 2.5, "c": 9}, {}, None, {"zz": 3}, dict.fromkeys(WORDS, 1)],
}


@dataclass(frozen=True)
class Example:
    """One example: a text, a bag, and how it is to be learned."""

    text: str | None
    bag: dict[str, float] | None
    label: str
    weight: float = 1.0
    time_s: float | None = None

    @property
    def x(self) -> dict[str, Any]:
        """The fields."""
        return {"text": self.text, "bag": self.bag}


_alphas = st.sampled_from([1e-9, 0.3, 1.0, 2.5])
_zeros = st.just(0.0) | _alphas


def likelihoods(
    *, normalise: bool = True
) -> st.SearchStrategy[Bernoulli | Multinomial | Complement]:
    """Draw a family with its prior."""
    return st.one_of(
        st.builds(Bernoulli, st.builds(Beta, _zeros, _zeros)),
        st.builds(Multinomial, st.builds(Dirichlet, _zeros)),
        st.builds(
            Complement,
            st.builds(Dirichlet, _alphas),
            normalise=st.booleans() if normalise else st.just(False),
        ),
    )


@st.composite
def features(draw: st.DrawFn, *, normalise: bool = True, bound: int = 1000) -> dict[str, Group]:
    """Draw a group of words, a bag, or both; each with a dictionary or without."""
    dictionary = draw(st.none() | st.just(WORDS[:6]))
    kinds = likelihoods(normalise=normalise)
    text = Words(draw(kinds), dictionary=dictionary, max_words=bound)
    bag = Bag(draw(kinds), field="bag", dictionary=dictionary, max_words=bound)
    return draw(st.sampled_from([{"text": text}, {"bag": bag}, {"text": text, "bag": bag}]))


def model_of(
    groups: Mapping[str, Group],
    classes: Sequence[str] = CLASSES,
    decay: HalfLife | None = None,
    alpha: float = 1.0,
) -> NaiveBayes:
    """Return a model that knows nothing yet; all of them share a hash key."""
    return NaiveBayes(classes, Dirichlet(alpha), groups, decay=decay, hash_key=5, new_classes=True)


WHOLE = st.sampled_from([1.0, 1.0, 2.0, 3.0, 1000.0])
FRACTIONAL = st.sampled_from([0.1, 0.25, 1.0, 1 / 3, 2.7])


def examples(
    weights: st.SearchStrategy[float] = WHOLE,
    *,
    times: st.SearchStrategy[float] | None = None,
    min_size: int = 0,
    max_size: int = 12,
) -> st.SearchStrategy[list[Example]]:
    """Draw a stream; counts of bags are whole numbers, texts and bags are missing now and then."""
    texts = st.lists(st.sampled_from(WORDS), max_size=5).map(" ".join)
    bags = st.dictionaries(st.sampled_from(WORDS), st.integers(0, 12).map(float), max_size=4)
    example = st.builds(
        Example,
        text=st.none() | texts,
        bag=st.none() | bags,
        label=st.sampled_from(CLASSES),
        weight=weights,
        time_s=st.none() if times is None else times,
    )
    return st.lists(example, min_size=min_size, max_size=max_size)


def learn(model: NaiveBayes, stream: Sequence[Example]) -> NaiveBayes:
    """Teach a stream, one example at a time."""
    for each in stream:
        model.learn_one(each.x, each.label, weight=each.weight, time_s=each.time_s)
    return model


def unlearn(model: NaiveBayes, stream: Sequence[Example]) -> NaiveBayes:
    """Take a stream back, one example at a time."""
    for each in stream:
        model.unlearn_one(each.x, each.label, weight=each.weight, time_s=each.time_s)
    return model


def batch(stream: Sequence[Example]) -> dict[str, Any]:
    """Return what `learn_many` takes, by the names of its arguments."""
    timed = all(each.time_s is not None for each in stream)
    return {
        "columns": {"text": [e.text for e in stream], "bag": [e.bag for e in stream]},
        "labels": [e.label for e in stream],
        "weights": [e.weight for e in stream],
        "times_s": [e.time_s for e in stream] if timed else None,
    }


def states(model: NaiveBayes) -> dict[str, CountedState]:
    """Return the living sides of a model's groups, all of them of words."""
    return {name: g for name, g in model.state.groups.items() if isinstance(g, CountedState)}


def facts(model: NaiveBayes) -> dict[str, Any]:
    """Return all that a model knows and answers: equal means bit for bit."""
    said: dict[str, Any] = {
        "classes": model.classes,
        "class_counts": model.class_counts.tolist(),
        "class_priors": model.class_priors().tolist(),
        "joint": model.joint_log_likelihood_many(PROBES).tolist(),
        "answers": model.predict_log_proba_many(PROBES).tolist(),
        "vocabulary_size": model.vocabulary_size,
        "n_dropped": model.words_dropped,
        "n_skipped": model.n_skipped,
    }
    for name, group in states(model).items():
        words = sorted(model.words(name))
        said[name] = {
            "words": words,
            "counts": model.word_counts(words, name).tolist(),
            "likelihoods": model.word_likelihoods(words, name).tolist(),
            "examples": group.counts.examples.tolist(),
            "tokens": group.counts.tokens.tolist(),
        }
    return said


def by_class(model: NaiveBayes) -> dict[str, Any]:
    """Return the same with classes in the order of their labels, for models that met in any."""
    said = facts(model)
    order = sorted(range(len(model.classes)), key=lambda c: model.classes[c])

    def sort(values: Any) -> Any:
        if not isinstance(values, list):
            return values
        if values and len(values) == len(order) and isinstance(values[0], float):
            return [values[c] for c in order]
        return [sort(each) for each in values]

    sorted_facts = {
        name: {inner: v if inner == "words" else sort(v) for inner, v in value.items()}
        if isinstance(value, dict)
        else sort(value)
        for name, value in said.items()
        if name != "classes"
    }
    return sorted_facts | {"classes": [model.classes[c] for c in order]}


EPSILON = float(np.finfo(np.float64).eps)


def rounding_bounds(
    groups: dict[str, Group], learned: Sequence[Example], kept: Sequence[Example]
) -> NDArray[np.float64]:
    """Return how far rounding alone may move each answer to `PROBES`, by class.

    Only Bernoulli subtracts: log(N_c − N_jc + β₂). Each of n additions to N_c and to N_jc rounds by
    at most ε/2 of the largest sum S, in both models that are compared, so the difference is off by
    at most 2·n·ε·S, and its logarithm by that share of the difference. Inf means that the
    difference cannot be told from nothing.
    """
    n_added = 2 * len(learned) - len(kept)
    bounds = np.zeros((len(PROBES["text"]), len(CLASSES)))
    for name, group in groups.items():
        assert isinstance(group, Words | Bag)
        if not isinstance(group.likelihood, Bernoulli):
            continue
        vocabulary = group.dictionary or {w for e in kept for w in words_of(e.x[name]) or ()}
        for c, label in enumerate(CLASSES):
            ever = [(words_of(e.x[name]), e.weight) for e in learned if e.label == label]
            now = [(words_of(e.x[name]), e.weight) for e in kept if e.label == label]
            rounded = 2 * n_added * EPSILON * math.fsum(w for words, w in ever if words is not None)
            for word in vocabulary:
                if all(words is None or word in words for words, _ in ever):
                    continue  # N_jc is the same sum as N_c
                rest = group.likelihood.prior.absent + math.fsum(
                    weight for words, weight in now if words is not None and word not in words
                )
                bound = rounded / (rest - rounded) if rest > 2 * rounded else math.inf
                for i, probe in enumerate(PROBES[name]):
                    asked = words_of(probe)
                    if asked is not None and word not in asked:
                        bounds[i, c] += bound
    return bounds


def words_of(value: str | dict[str, float] | None) -> set[str] | None:
    """Return the words that a text or bag holds; None where it is missing."""
    if isinstance(value, dict):
        return {word for word, count in value.items() if count}
    return None if value is None else set(value.split())


def close(
    found: NDArray[np.float64],
    expected: NDArray[np.float64],
    within: float = 1e-9,
    bounds: NDArray[np.float64] | float = 0.0,
) -> None:
    """Hold answers together to rounding; infinities agree where rounding does not decide."""
    assert not np.isnan(found).any()
    decided = np.isfinite(np.broadcast_to(bounds, found.shape))
    assert np.array_equal(np.isneginf(found[decided]), np.isneginf(expected[decided]))
    finite = decided & np.isfinite(expected)
    allowed = bounds + within * np.maximum(1.0, np.abs(expected))
    assert (np.abs(found[finite] - expected[finite]) <= allowed[finite]).all()
