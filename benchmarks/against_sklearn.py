"""Prequential learning against scikit-learn's `partial_fit`, in batches as it takes them.

`HashingVectorizer` (without signs, which naive Bayes cannot use) makes rows of counts, the fitted
`MultinomialNB` judges a batch, then learns it. So it judges from counts up to a batch old, while we
judge each text by all before it. Its cost a batch holds a pass over all 2²⁰ hashed features: large
batches are kinder to its speed, and unkinder to its judgements.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.alternate import alternate
from benchmarks.ours import UNIGRAMS, in_one_call
from benchmarks.peers import require
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets

TWEETS = 20_000
BATCHES = (10_000, 1_000, 100)
DEMANDED = 1_000
TURNS = 5


def sklearn(tweets: Tweets, show: Show) -> Result:
    """Judge and learn texts in one call, against batches of three sizes."""
    require("scikit-learn")
    some = tweets.first(TWEETS)
    timed = {"streamnb": in_one_call(UNIGRAMS, some)}
    timed |= {f"scikit-learn, batches of {size:,}": _batches(some, size) for size in BATCHES}
    turns = alternate(timed, TURNS, show, warm_up="streamnb")
    result = Result("sklearn", f"the first {len(some):,} of {tweets.origin}")
    for name in timed:
        result.add(name, len(some) / turns.median_s(name), "tweets/s")
    for size in BATCHES:
        ratio = turns.ratio(f"scikit-learn, batches of {size:,}", "streamnb")
        at_least = 8.0 if size == DEMANDED else None
        result.add(f"faster than batches of {size:,}", ratio, "times", at_least=at_least)
    return result


def _batches(tweets: Tweets, size: int) -> Callable[[], float]:
    from sklearn.feature_extraction.text import HashingVectorizer  # noqa: PLC0415 -- a peer
    from sklearn.naive_bayes import MultinomialNB  # noqa: PLC0415

    def timed() -> float:
        vectorizer = HashingVectorizer(alternate_sign=False, norm=None)
        model = MultinomialNB()
        began = time.perf_counter()
        for first in range(0, len(tweets), size):
            rows = vectorizer.transform(tweets.texts[first : first + size])
            if first:  # it cannot judge before it has learned something
                model.predict_log_proba(rows)
            model.partial_fit(rows, tweets.labels[first : first + size], classes=CLASSES)
        return time.perf_counter() - began

    return timed
