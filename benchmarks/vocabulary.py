"""Cost of a text by how many words the model knows: it should hardly rise.

Each model has learned a number of made-up words, once each and in random order, so that the ones
which the texts use lie scattered over the whole table. Then the same texts, their words drawn by
Zipf's law as in a language, are judged and learned again and again, in turns over the sizes. No
new word comes, and all else is equal. Texts of ten million words are drawn in two ways: from the
10,000 most frequent words, or from all that the model knows, so that memory is waited for more. The
clock is the processor's, as a small difference drowns in what neighbours take.

Bernoulli may even be cheaper with more: a model that has seen more examples has fewer words that
are frequent enough to be summed one by one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.alternate import alternate
from benchmarks.ours import BERNOULLI, MULTINOMIAL, Likelihood, new_model
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from streamnb import NaiveBayes, Words
from streamnb.kernels import word_table as lookup
from streamnb.kernels.layout import Table

SMALL = 10_000  # all words that the texts draw from: the smallest model knows just these
SIZES = (SMALL, 100_000, 1_000_000)
HUGE_SIZES = (100_000, 10_000_000)
HUGE_MIN = 1_000_000  # words, from which on bytes a word mean something
BYTES_MAX = 100.0
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


def ten_million_words(tweets: Tweets, show: Show) -> Result:  # noqa: ARG001 -- as above
    """Learn and predict texts with 10⁵ and 10⁷ words known; weigh what each word takes."""
    result = Result("ten_million_words", f"{TEXTS:,} texts of made-up words by Zipf's law")
    models = {size: knowing(size, MULTINOMIAL) for size in show.track(HUGE_SIZES)}
    frequent = dict.fromkeys(HUGE_SIZES, zipf_texts(TEXTS, SMALL))
    any_word = {size: zipf_texts(TEXTS, size) for size in HUGE_SIZES}
    labels = _labels(TEXTS)
    for words, texts in (("frequent words", frequent), ("any word", any_word)):
        learn = {size: _timed(model, texts[size], labels) for size, model in models.items()}
        predict = {size: _timed_predict(model, texts[size]) for size, model in models.items()}
        for what, timed in (("learn", learn), ("predict", predict)):
            _in_turns(result, f"{what} {words}", timed, show, at_most=1.6)
    largest = models[HUGE_SIZES[-1]]
    n_words = largest.vocabulary_size
    # Of few words the room for more is most of what there is: that says nothing.
    at_most = BYTES_MAX if n_words >= HUGE_MIN else None
    held, text = _bytes(largest) / n_words, _text_bytes(largest) / n_words
    result.add("in memory, with text and room", held, "bytes/word", at_most=at_most)
    result.add("of that text", text, "bytes/word")
    result.add("in a file", len(largest.to_bytes()) / n_words, "bytes/word")
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
    timed = {size: _timed(model, texts, labels) for size, model in models.items()}
    _in_turns(result, family, timed, show, at_most)


def _in_turns(
    result: Result, curve: str, timed: Mapping[int, Callable[[], float]], show: Show, at_most: float
) -> None:
    """Time what runs with each number of words known, and hold the most to the fewest."""
    fewest, most = min(timed), max(timed)
    named = {f"{size}": run for size, run in timed.items()}
    turns = alternate(named, TURNS, show, warm_up=f"{fewest}")
    for size in timed:
        microseconds = turns.median_s(f"{size}") / TEXTS * 1e6
        result.add(f"{curve}, {size:,} words", microseconds, "µs/text", at=size, curve=curve)
    ratio = turns.ratio(f"{most}", f"{fewest}")
    result.add(f"{curve}, time with {most:,} to {fewest:,}", ratio, "times", at_most=at_most)


def _table(model: NaiveBayes) -> Table:
    return model.state.groups["text"].vocabulary.table  # type: ignore[attr-defined, no-any-return]


def _bytes(model: NaiveBayes) -> int:
    """Return the bytes of all arrays that grow with the words, with the room that they keep."""
    counts = model.state.groups["text"].counts
    return sum(array.nbytes for array in (*_table(model), *counts))


def _text_bytes(model: NaiveBayes) -> int:
    return int(_table(model).state[lookup.TEXT_BYTES])


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
        began = time.process_time()
        model.prequential_many({"text": texts}, labels)
        return time.process_time() - began

    return timed


def _timed_predict(model: NaiveBayes, texts: list[str]) -> Callable[[], float]:
    def timed() -> float:
        began = time.process_time()
        model.predict_log_proba_many({"text": texts})
        return time.process_time() - began

    return timed
