"""What a text costs by the number of classes, the number of fields, its own length, and the hybrid.

No peer stands beside these: they show how the cost grows. Each model that learns is new in each
turn; those of classes, fields and lengths read unigrams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.alternate import alternate
from benchmarks.ours import DEFAULT, UNIGRAMS, new_model
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from consumers.config.settings import Settings
from consumers.features import build_model, plain_model
from streamnb import Dirichlet, Hybrid, NaiveBayes, Words
from streamnb.inspection.words import word_group

CLASSES = (2, 5, 10, 20, 50, 100)
FIELDS = (1, 2, 4, 8)
LENGTHS = (30, 100, 300, 1_000, 10_000)  # bytes
TWEETS = 10_000
BYTES = 1_000_000  # how much text is read at each length
TURNS = 7
HYBRID_TWEETS = 200_000
PIECE = 5_000  # texts a call, as the daemon learns them
LEARNING_MIN, JUDGING_MIN = 0.6, 0.7  # the hybrid's speed, of that of its counts alone


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


def hybrid(tweets: Tweets, show: Show) -> Result:
    """Judge and learn with the hybrid and without it, all else equal; the same judging only."""
    some = tweets.first(HYBRID_TWEETS)
    plain = word_group(build_model(plain_model(Settings().model)).state, "text").spec
    words = {
        "pairs": plain,
        "pairs and hybrid": replace(plain, hybrid=Hybrid()),
        "default model without its hybrid": replace(DEFAULT, hybrid=None),
        "default model": DEFAULT,
    }
    result = Result("hybrid", f"the first {len(some):,} of {tweets.origin}, by processor time")
    for what, at_least, timed in (
        ("learning", LEARNING_MIN, {name: _learned(each, some) for name, each in words.items()}),
        ("judging", JUDGING_MIN, {name: _judged(each, some) for name, each in words.items()}),
    ):
        turns = alternate(timed, TURNS, show, warm_up="default model")
        for name in timed:
            speed = len(some) / turns.median_s(name)
            result.add(f"{what}: {name}", speed, "tweets/s")
        for name, of, bound in (
            ("pairs and hybrid", "pairs", at_least),
            ("default model", "default model without its hybrid", at_least),
            ("default model", "pairs", None),  # its other options make more features to count
        ):
            ratio = turns.ratio(of, name)
            result.add(f"{what}: {name}, speed of {of}", ratio, "times", at_least=bound)
    return result


def _pieces(tweets: Tweets) -> list[Tweets]:
    cuts = [slice(first, first + PIECE) for first in range(0, len(tweets), PIECE)]
    return [Tweets(tweets.texts[cut], tweets.labels[cut], tweets.origin) for cut in cuts]


def _learned(words: Words, tweets: Tweets) -> Callable[[], float]:
    pieces = _pieces(tweets)

    def timed() -> float:
        model = new_model(words)
        began = time.process_time()
        for piece in pieces:
            model.prequential_many({"text": piece.texts}, piece.labels)
        return time.process_time() - began

    return timed


def _judged(words: Words, tweets: Tweets) -> Callable[[], float]:
    pieces, model = _pieces(tweets), new_model(words)
    for piece in pieces:
        model.learn_many({"text": piece.texts}, piece.labels)

    def timed() -> float:
        began = time.process_time()
        for piece in pieces:
            model.predict_log_proba_many({"text": piece.texts})
        return time.process_time() - began

    return timed


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
