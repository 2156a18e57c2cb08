"""Prequential learning against River, on the same texts, one thread each.

Both judge each text with what they knew before it and then learn it. River gets its texts one by
one, as it takes them: `BagOfWords | MultinomialNB`. Our models read unigrams here, as River's do.
Making a model is not timed, growing it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from river import compose, feature_extraction, naive_bayes

from benchmarks.alternate import Turns, alternate
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words

MULTINOMIAL_TWEETS = 10_000
BERNOULLI_TWEETS = (
    600  # River walks through its whole vocabulary for each: few, or it takes all day
)
ONE_AT_A_TIME_TWEETS = 3_000
TURNS = 9


def multinomial(tweets: Tweets, show: Show) -> Result:
    """Judge and learn texts in one call, against River's MultinomialNB."""
    some = tweets.first(MULTINOMIAL_TWEETS)
    ours = _in_one_call(Multinomial(Dirichlet(1.0)), some)
    theirs = _river(naive_bayes.MultinomialNB, some)
    turns = alternate({"streamnb": ours, "River": theirs}, TURNS, show, warm_up="streamnb")
    return _compared("multinomial", some, turns, at_least=80.0)


def bernoulli(tweets: Tweets, show: Show) -> Result:
    """Judge and learn texts in one call, against River's BernoulliNB."""
    some = tweets.first(BERNOULLI_TWEETS)
    ours = _in_one_call(Bernoulli(Beta(1, 1)), some)
    theirs = _river(naive_bayes.BernoulliNB, some)
    turns = alternate({"streamnb": ours, "River": theirs}, TURNS, show, warm_up="streamnb")
    return _compared("bernoulli", some, turns, at_least=100.0)


def one_at_a_time(tweets: Tweets, show: Show) -> Result:
    """Judge and learn text by text, a call each, against River's MultinomialNB."""
    some = tweets.first(ONE_AT_A_TIME_TWEETS)
    examples = [{"text": text} for text in some.texts]

    def ours() -> float:
        model = _model(Multinomial(Dirichlet(1.0)))
        began = time.perf_counter()
        for example, label in zip(examples, some.labels, strict=True):
            model.predict_proba_one(example)
            model.learn_one(example, label)
        return time.perf_counter() - began

    theirs = _river(naive_bayes.MultinomialNB, some)
    turns = alternate({"streamnb": ours, "River": theirs}, TURNS, show, warm_up="streamnb")
    return _compared("one_at_a_time", some, turns)


def _model(likelihood: Bernoulli | Multinomial) -> NaiveBayes:
    return NaiveBayes(CLASSES, Dirichlet(1.0), {"text": Words(likelihood)})


def _in_one_call(likelihood: Bernoulli | Multinomial, tweets: Tweets) -> Callable[[], float]:
    def timed() -> float:
        model = _model(likelihood)
        began = time.perf_counter()
        model.prequential_many({"text": tweets.texts}, tweets.labels)
        return time.perf_counter() - began

    return timed


def _river(
    kind: type[naive_bayes.MultinomialNB | naive_bayes.BernoulliNB], tweets: Tweets
) -> Callable[[], float]:
    examples = [{"text": text} for text in tweets.texts]

    def timed() -> float:
        model = compose.Pipeline(feature_extraction.BagOfWords(on="text"), kind())
        began = time.perf_counter()
        for example, label in zip(examples, tweets.labels, strict=True):
            model.predict_proba_one(example)
            model.learn_one(example, label)
        return time.perf_counter() - began

    return timed


def _compared(case: str, tweets: Tweets, turns: Turns, at_least: float | None = None) -> Result:
    result = Result(case, f"the first {len(tweets):,} of {tweets.origin}")
    for name in turns.seconds:
        result.add(name, len(tweets) / turns.median_s(name), "tweets/s")
    result.add("faster", turns.ratio("River", "streamnb"), "times", at_least=at_least)
    return result
