"""Small models and streams for the tests of what a model is kept in, and what two models share.

`same` compares two models bit for bit: answers, statistics and parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.inspection.words import word_group, word_groups
from streamnb.kernels.layout import Counts
from streamnb.labels import Label
from streamnb.reader import ModelReader
from streamnb.state import PartState

PROBES = {
    "text": ["good day", "not good", "bad bad news :(", "ÄRGER im büro", "", None, "w1 w2 never"],
    "user": ["ann", None, "bob", "ann bob", "nobody", "", "ann"],
}
_WORDS = ["good", "bad", "day", "news", "not", ":)", "Ärger", "日本", *(f"w{i}" for i in range(30))]


@dataclass(frozen=True)
class Example:
    """One example of a stream."""

    text: str | None
    user: str | None
    label: Label
    part: str | None


_priors = st.sampled_from([0.0, 0.25, 1.0, 3.0])
_likelihoods = st.one_of(
    st.builds(Bernoulli, st.builds(Beta, _priors, _priors)),
    st.builds(Multinomial, st.builds(Dirichlet, _priors)),
)


@st.composite
def _groups(draw: st.DrawFn) -> dict[str, Words]:
    likelihood = draw(_likelihoods)
    text = Words(
        likelihood,
        ngrams=draw(st.sampled_from([(1, 1), (1, 2), (2, 3)])),
        negation=draw(st.booleans()),
        counts=draw(st.sampled_from([None, "presence"])),
        max_words=draw(st.sampled_from([1, 4, 12, 1_000])),
        case_fold=draw(st.booleans()),
    )
    if draw(st.booleans()):
        return {"text": text}
    return {"text": text, "who": Words(draw(_likelihoods), field="user", max_words=2)}


@st.composite
def models(draw: st.DrawFn) -> NaiveBayes:
    """Draw an untrained model of either family or both, with labels of any kind."""
    return NaiveBayes(
        classes=draw(st.sampled_from([(), ("a", "b"), (0, 1, 7), (True, False), ("a", 3, False)])),
        class_prior=Dirichlet(draw(_priors)),
        features=draw(_groups()),
        hash_key=draw(st.integers(0, (1 << 128) - 1)),
        new_classes=True,
    )


@st.composite
def examples(draw: st.DrawFn, *, in_parts: bool, max_size: int = 40) -> list[Example]:
    """Draw a stream, of one log or of several, whose labels may be new to the model."""
    texts = st.lists(st.sampled_from(_WORDS), max_size=6).map(" ".join)
    parts = st.sampled_from(["t/0", "t/1", "other/7"]) if in_parts else st.none()
    example = st.builds(
        Example,
        text=st.none() | texts,
        user=st.sampled_from([None, "ann", "bob", "cleo", "dan eve"]),
        label=st.sampled_from(["a", "b", "é", 0, 7, False]),
        part=parts,
    )
    return draw(st.lists(example, max_size=max_size))


def learn(model: NaiveBayes, stream: Sequence[Example]) -> list[bytes]:
    """Teach a stream; return the log-posteriors from before each example, as bytes."""
    said = []
    for example in stream:
        columns = {"text": [example.text], "user": [example.user]}
        posteriors = model.prequential_many(columns, [example.label], part=example.part)
        said.append(posteriors.tobytes())
    return said


def facts(model: ModelReader) -> dict[str, Any]:
    """Return all that a model or snapshot says of itself, so that equal means bit for bit."""
    said: dict[str, Any] = {
        "classes": [(type(label), label) for label in model.classes],
        "class_counts": model.class_counts.tobytes(),
        "class_priors": model.class_priors().tobytes(),
        "n_examples": model.n_examples,
        "vocabulary_size": model.vocabulary_size,
        "words_dropped": model.words_dropped,
        "answers": model.predict_log_proba_many(PROBES).tobytes(),
        "joint": model.joint_log_likelihood_many(PROBES).tobytes(),
    }
    for name, group in word_groups(model.state).items():
        words = sorted(model.words(name))
        said[name] = {
            "words": words,
            "counts": model.word_counts(words, name).tobytes(),
            "likelihoods": model.word_likelihoods(words, name).tobytes(),
            "examples": group.counts.examples.tobytes(),
            "tokens": group.counts.tokens.tobytes(),
            "dropped": group.n_dropped,
        }
    if isinstance(model, NaiveBayes):
        said["kind"] = model.describe()
        said["parts"] = {name: dict(_part_facts(model, name)) for name in model.parts}
    return said


def part_counts(part: PartState, group: str) -> Counts:
    """Return a part's counts of a group of words."""
    held = part.groups[group]
    assert isinstance(held.counts, Counts)
    return held.counts


def _part_facts(model: NaiveBayes, part_name: str) -> Iterator[tuple[str, Any]]:
    part = model.parts[part_name]
    yield "class_counts", part.class_counts.tobytes()
    yield "dropped", part.n_dropped
    for name, group in word_groups(model.state).items():
        counts = part_counts(part, name)
        columns = live(model, name)
        held = {
            word: counts.by_word[column].tobytes()
            for word, column in zip(group.vocabulary.words(columns), columns, strict=True)
            if column < len(counts.by_word) and counts.by_word[column].any()
        }
        yield name, (held, counts.examples.tobytes(), counts.tokens.tobytes(), counts.state[0])


def live(model: NaiveBayes, name: str) -> NDArray[np.int64]:
    """Return the columns of a group that hold a count."""
    group = word_group(model.state, name)
    n_words = group.vocabulary.n_words
    return np.flatnonzero(group.counts.by_word[:n_words].any(axis=1)).astype(np.int64)
