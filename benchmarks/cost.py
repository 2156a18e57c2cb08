"""What a text costs by the number of classes, the number of fields, and its own length.

No peer stands beside these: they show how the cost grows. Each model is new in each turn, and reads
unigrams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from benchmarks.alternate import alternate
from benchmarks.ours import UNIGRAMS
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from streamnb import Dirichlet, NaiveBayes

CLASSES = (2, 5, 10, 20, 50, 100)
FIELDS = (1, 2, 4, 8)
LENGTHS = (30, 100, 300, 1_000, 10_000)  # bytes
TWEETS = 10_000
BYTES = 1_000_000  # how much text is read at each length
TURNS = 7


def classes(tweets: Tweets, show: Show) -> Result:
    """Judge and learn the same texts among more and more classes, all of them in use."""
    some = tweets.first(TWEETS)
    timed = {f"{n}": _timed(n, {"text": some.texts}) for n in CLASSES}
    result = Result("classes", f"the first {len(some):,} of {tweets.origin}")
    turns = alternate(timed, TURNS, show, warm_up=f"{CLASSES[0]}")
    for n in CLASSES:
        result.add(f"{n} classes", turns.median_s(f"{n}") / len(some) * 1e6, "µs/tweet", at=n)
    return result


def fields(tweets: Tweets, show: Show) -> Result:
    """Judge and learn messages of more and more texts, each with its own group of words."""
    some = tweets.first(TWEETS)
    timed = {f"{n}": _timed(2, {f"field_{k}": some.texts for k in range(n)}) for n in FIELDS}
    result = Result("fields", f"the first {len(some):,} of {tweets.origin}, in each field")
    turns = alternate(timed, TURNS, show, warm_up=f"{FIELDS[0]}")
    for n in FIELDS:
        name = f"{n} field" if n == 1 else f"{n} fields"
        result.add(name, turns.median_s(f"{n}") / len(some) * 1e6, "µs/message", at=n)
    return result


def lengths(tweets: Tweets, show: Show) -> Result:
    """Judge and learn the same megabyte of text, cut into longer and longer messages."""
    whole = " ".join(tweets.first(BYTES // 10).texts)[:BYTES]
    result = Result("lengths", f"the first {len(whole) / 1e6:.1f} MB of {tweets.origin}")
    cut = {n: [whole[first : first + n] for first in range(0, len(whole), n)] for n in LENGTHS}
    timed = {f"{n}": _timed(2, {"text": texts}) for n, texts in cut.items()}
    turns = alternate(timed, TURNS, show, warm_up=f"{LENGTHS[0]}")
    for n, texts in cut.items():
        seconds = turns.median_s(f"{n}")
        result.add(f"{n:,} characters", seconds / len(texts) * 1e6, "µs/message")
        result.add(f"{n:,} characters, speed", len(whole) / seconds / 1e6, "MB/s", at=n)
    return result


def _timed(n_classes: int, columns: Mapping[str, list[str]]) -> Callable[[], float]:
    names = [f"class {c}" for c in range(n_classes)]
    n_rows = len(next(iter(columns.values())))
    labels = [names[row % n_classes] for row in range(n_rows)]

    def timed() -> float:
        model = NaiveBayes(names, Dirichlet(1.0), dict.fromkeys(columns, UNIGRAMS))
        began = time.perf_counter()
        model.prequential_many(columns, labels)
        return time.perf_counter() - began

    return timed
