"""Our side of the comparisons: a fresh model, and texts judged and learned in one call."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.tweets import CLASSES, Tweets
from consumers.config.settings import Settings
from consumers.features import build_model
from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words
from streamnb.columns import TextColumn
from streamnb.inspection.words import word_group
from streamnb.kernels.layout import Texts

Likelihood = Bernoulli | Multinomial

MULTINOMIAL = Multinomial(Dirichlet(1.0))
BERNOULLI = Bernoulli(Beta(1, 1))
UNIGRAMS = Words(MULTINOMIAL)
PAIRS = Words(MULTINOMIAL, ngrams=(1, 2), negation=True)
DEFAULT = word_group(build_model(Settings().model).state, "text").spec  # the daemon's own


def new_model(words: Words, n_threads: int = 1) -> NaiveBayes:
    """Return a model of the tweets' classes that knows nothing yet."""
    return NaiveBayes(CLASSES, Dirichlet(1.0), {"text": words}, n_threads=n_threads)


def in_one_call(words: Words, tweets: Tweets, n_threads: int = 1) -> Callable[[], float]:
    """Return what judges and learns the tweets in order with a new model, and tells its seconds.

    The texts are a list of `str`, so making one buffer of them is in the time.
    """
    return _timed(words, tweets.texts, tweets, n_threads)


def in_one_call_from_buffer(words: Words, tweets: Tweets) -> Callable[[], float]:
    """Return the same over texts that lie in one buffer already, as Kafka and files hand them."""
    encoded = [text.encode("utf-8", "replace") for text in tweets.texts]
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
    data = np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8)
    return _timed(words, TextColumn(Texts(data, starts, ends)), tweets, 1)


def _timed(
    words: Words, texts: list[str] | TextColumn, tweets: Tweets, n_threads: int
) -> Callable[[], float]:
    def timed() -> float:
        model = new_model(words, n_threads)
        began = time.perf_counter()
        model.prequential_many({"text": texts}, tweets.labels)
        return time.perf_counter() - began

    return timed
