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
from benchmarks.ours import BERNOULLI, UNIGRAMS, in_one_call, new_model
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from streamnb import Words

MULTINOMIAL_TWEETS = 10_000
BERNOULLI_TWEETS = 5_000
ONE_AT_A_TIME_TWEETS = 3_000
TURNS = 9
# River walks through its whole vocabulary for each text: twenty seconds a turn, so there are few.
SLOW_TURNS = 3


def multinomial(tweets: Tweets, show: Show) -> Result:
    """Judge and learn texts in one call, against River's MultinomialNB."""
    some = tweets.first(MULTINOMIAL_TWEETS)
    theirs = _river(naive_bayes.MultinomialNB, some)
    both = {"streamnb": in_one_call(UNIGRAMS, some), "River": theirs}
    turns = alternate(both, TURNS, show, warm_up="streamnb")
    return _compared("multinomial", some, turns, at_least=120.0)


def bernoulli(tweets: Tweets, show: Show) -> Result:
    """Judge and learn texts in one call, against River's BernoulliNB and our multinomial."""
    some = tweets.first(BERNOULLI_TWEETS)
    ours = in_one_call(Words(BERNOULLI), some)
    theirs = _river(naive_bayes.BernoulliNB, some)
    turns = alternate({"streamnb": ours, "River": theirs}, SLOW_TURNS, show, warm_up="streamnb")
    result = _compared("bernoulli", some, turns, at_least=300.0)
    families = {"bernoulli": ours, "multinomial": in_one_call(UNIGRAMS, some)}
    own = alternate(families, TURNS, show, warm_up="multinomial")
    ratio = own.ratio("multinomial", "bernoulli")
    result.add("speed of our multinomial", ratio, "times", at_least=0.5)
    return result


def one_at_a_time(tweets: Tweets, show: Show) -> Result:
    """Judge and learn text by text, a call each, against River's MultinomialNB."""
    some = tweets.first(ONE_AT_A_TIME_TWEETS)
    examples = [{"text": text} for text in some.texts]

    def ours() -> float:
        model = new_model(UNIGRAMS)
        began = time.perf_counter()
        for example, label in zip(examples, some.labels, strict=True):
            model.predict_proba_one(example)
            model.learn_one(example, label)
        return time.perf_counter() - began

    theirs = _river(naive_bayes.MultinomialNB, some)
    turns = alternate({"streamnb": ours, "River": theirs}, TURNS, show, warm_up="streamnb")
    return _compared("one_at_a_time", some, turns, at_least=8.0)


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


def _compared(case: str, tweets: Tweets, turns: Turns, at_least: float) -> Result:
    result = Result(case, f"the first {len(tweets):,} of {tweets.origin}")
    for name in turns.seconds:
        result.add(name, len(tweets) / turns.median_s(name), "tweets/s")
    result.add("faster than River", turns.ratio("River", "streamnb"), "times", at_least=at_least)
    return result
