"""Cost of a text by how many words the model knows: it should hardly rise.

Each model has learned a number of made-up words, once each and in random order, so that the ones
which the texts use lie scattered over the whole table. Then the same texts, their words drawn by
Zipf's law as in a language, are judged and learned again and again, in turns over the sizes. No
new word comes, and all else is equal.

Bernoulli may even be cheaper with more: a model that has seen more examples has fewer words that
are frequent enough to be summed one by one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.alternate import alternate
from benchmarks.ours import BERNOULLI, MULTINOMIAL, Likelihood, new_model
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from streamnb import NaiveBayes, Words

SMALL = 10_000  # all words that the texts draw from: the smallest model knows just these
SIZES = (SMALL, 100_000, 1_000_000)
HUGE_SIZES = (100_000, 10_000_000)
TEXTS = 5_000
TURNS = 15
_WORDS_A_TEXT = 12
_EXPONENT = 1.0
_TEXTS_AT_ONCE = 20_000  # how many are taught at a time, so that ten million words stay columns


def vocabulary(tweets: Tweets, show: Show) -> Result:  # noqa: ARG001 -- a case is called with texts
    """Judge and learn texts with 10⁴, 10⁵ and 10⁶ words known, with both families."""
    result = Result("vocabulary", f"{TEXTS:,} texts of made-up words by Zipf's law")
    _compare(result, "multinomial", MULTINOMIAL, SIZES, show, at_most=1.3)
    _compare(result, "Bernoulli", BERNOULLI, SIZES, show, at_most=1.3)
    return result


def vocabulary_huge(tweets: Tweets, show: Show) -> Result:  # noqa: ARG001 -- as above
    """Judge and learn texts with 10⁵ and 10⁷ words known."""
    result = Result("vocabulary_huge", f"{TEXTS:,} texts of made-up words by Zipf's law")
    _compare(result, "multinomial", MULTINOMIAL, HUGE_SIZES, show, at_most=1.6)
    return result


def _compare(
    result: Result,
    family: str,
    likelihood: Likelihood,
    sizes: Sequence[int],
    show: Show,
    at_most: float,
) -> None:
    texts = zipf_texts(TEXTS, SMALL)
    labels = _labels(len(texts))
    models = {size: knowing(size, likelihood) for size in show.track(sizes)}
    timed = {f"{size}": _timed(model, texts, labels) for size, model in models.items()}
    turns = alternate(timed, TURNS, show, warm_up=f"{sizes[0]}")
    for size, model in models.items():
        microseconds = turns.median_s(f"{size}") / len(texts) * 1e6
        result.add(
            f"{family}, {model.vocabulary_size:,} words",
            microseconds,
            "µs/text",
            at=model.vocabulary_size,
            curve=family,
        )
    ratio = turns.ratio(f"{sizes[-1]}", f"{sizes[0]}")
    result.add(
        f"{family}, time with {sizes[-1]:,} to {sizes[0]:,}", ratio, "times", at_most=at_most
    )


def zipf_texts(n: int, n_words: int) -> list[str]:
    """Return texts whose words are drawn from the first `n_words`, by Zipf's law."""
    rng = np.random.default_rng(7)
    share = 1.0 / np.arange(1, n_words + 1) ** _EXPONENT
    drawn = rng.choice(n_words, size=(n, _WORDS_A_TEXT), p=share / share.sum())
    return [_text(row) for row in drawn.tolist()]


def knowing(n_words: int, likelihood: Likelihood) -> NaiveBayes:
    """Return a model that has learned the first `n_words` words, once each, in random order."""
    model = new_model(Words(likelihood, max_words=2 * n_words))
    order = np.random.default_rng(n_words).permutation(n_words)
    step = _TEXTS_AT_ONCE * _WORDS_A_TEXT
    for first in range(0, n_words, step):
        some = order[first : first + step].tolist()
        rows = (some[i : i + _WORDS_A_TEXT] for i in range(0, len(some), _WORDS_A_TEXT))
        texts = [_text(row) for row in rows]
        model.learn_many({"text": texts}, _labels(len(texts)))
    return model


def _text(numbers: Sequence[int]) -> str:
    return " ".join([f"word{number}" for number in numbers])


def _labels(n: int) -> list[str]:
    """Return labels in turn: what they are does not change the cost."""
    return list(itertools.islice(itertools.cycle(CLASSES), n))


def _timed(model: NaiveBayes, texts: list[str], labels: list[str]) -> Callable[[], float]:
    def timed() -> float:
        began = time.perf_counter()
        model.prequential_many({"text": texts}, labels)
        return time.perf_counter() - began

    return timed
