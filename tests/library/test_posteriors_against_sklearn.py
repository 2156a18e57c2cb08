"""Posteriors against scikit-learn's, over our own words: random streams, and recorded tweets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import BernoulliNB, MultinomialNB

from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words
from tests import naive_text
from tests.tweets import some_tweets

RELATIVE = 1e-12
FAMILIES = ["bernoulli", "multinomial", "multinomial by presence"]


def ours(family: str, alpha: float, **options: object) -> Words:
    """Return one of our groups."""
    if family == "bernoulli":
        return Words(Bernoulli(Beta(alpha, alpha)), **options)  # type: ignore[arg-type]
    counts = "presence" if family.endswith("presence") else None
    return Words(Multinomial(Dirichlet(alpha)), counts=counts, **options)  # type: ignore[arg-type]


def theirs(
    group: Words, alpha: float, texts: Sequence[str], labels: Sequence[str], probes: Sequence[str]
) -> tuple[list[str], NDArray[np.float64], NDArray[np.float64]]:
    """Return scikit-learn's words, joint log-likelihoods and log-posteriors of the probes."""
    by_presence = not group.counts_occurrences

    def analyse(text: str) -> list[str]:
        return list(naive_text.grams(text, group.tokenizer).elements())

    vectorizer = CountVectorizer(analyzer=analyse, binary=by_presence)
    family = BernoulliNB if isinstance(group.likelihood, Bernoulli) else MultinomialNB
    judge = family(alpha=alpha, class_prior=smoothed_priors(labels))
    judge.fit(vectorizer.fit_transform(texts), labels)
    asked = vectorizer.transform(probes)
    joint = judge._joint_log_likelihood(asked)
    return list(vectorizer.vocabulary_), np.asarray(joint), judge.predict_log_proba(asked)


def smoothed_priors(labels: Sequence[str]) -> list[float]:
    """Return (N_c + 1)/(n + k), which is what our class prior of 1 means."""
    classes = sorted(set(labels))
    n = len(labels) + len(classes)
    return [(sum(label == c for label in labels) + 1) / n for c in classes]


def deviations(
    group: Words, alpha: float, texts: Sequence[str], labels: Sequence[str], probes: Sequence[str]
) -> tuple[float, float]:
    """Return how far joints and posteriors are from theirs, by max(1, the largest joint)."""
    model = NaiveBayes(classes=sorted(set(labels)), features={"text": group})
    model.learn_many({"text": list(texts)}, list(labels))
    words, joint, posterior = theirs(group, alpha, texts, labels, probes)
    assert set(words) == set(model.words())
    asked = {"text": list(probes)}
    scale = np.maximum(1.0, np.abs(joint).max(axis=1, keepdims=True))
    joints = np.abs(model.joint_log_likelihood_many(asked) - joint) / scale
    posteriors = np.abs(model.predict_log_proba_many(asked) - posterior) / scale
    return float(joints.max()), float(posteriors.max())


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_random_streams(family: str, seed: int) -> None:
    """On random texts, with Laplace's and with Lidstone's prior, both say the same."""
    generator = np.random.default_rng(seed)
    words = np.array([f"w{i}" for i in range(300)])
    chances = 1 / np.arange(1, 301)
    chances /= chances.sum()
    texts = [
        " ".join(generator.choice(words, size=generator.integers(0, 25), p=chances))
        for _ in range(400)
    ]
    labels = generator.choice(["a", "b", "c"], size=400, p=[0.6, 0.3, 0.1]).tolist()
    for alpha in (1.0, 0.25):
        group = ours(family, alpha, ngrams=(1, 2), negation=True)
        probes = [*texts[::7], "", "unseen words only", "w1 " * 50]
        assert max(deviations(group, alpha, texts, labels, probes)) < RELATIVE


@pytest.mark.deep
@pytest.mark.data
@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_tweets(family: str, data_folder: Path) -> None:
    """On 5,000 recorded tweets, judged and learned, both say the same."""
    tweets = some_tweets(data_folder, 6000)
    texts, labels = [t.text for t in tweets[:5000]], [t.label for t in tweets[:5000]]
    probes = [t.text for t in tweets[4500:]]
    assert max(deviations(ours(family, 1.0), 1.0, texts, labels, probes)) < RELATIVE
