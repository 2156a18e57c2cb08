"""Cost of a text by how many words the model knows: it should hardly rise.

Each model has learned the same texts, shuffled among made-up texts of words that never come again,
until it knows 10⁴, 10⁵ or 10⁶ words; so the texts' own words lie scattered over the whole table.
Then the texts are judged and learned again and again, in turns over the sizes; no new word comes.

Bernoulli may even be cheaper with more: a model that has seen more examples has fewer words that
are frequent enough to be summed one by one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from benchmarks.alternate import alternate
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import CLASSES, Tweets
from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, NaiveBayes, Words

SIZES = (10_000, 100_000, 1_000_000)
TWEETS = 1_500  # they bring about half of the smallest vocabulary
TURNS = 15
_WORDS_A_TEXT = 12


def vocabulary(tweets: Tweets, show: Show) -> Result:
    """Judge and learn texts at three sizes of vocabulary, with both families."""
    some = tweets.first(TWEETS)
    result = Result("vocabulary", f"the first {len(some):,} of {tweets.origin}")
    families: dict[str, Bernoulli | Multinomial] = {
        "multinomial": Multinomial(Dirichlet(1.0)),
        "Bernoulli": Bernoulli(Beta(1, 1)),
    }
    for family, likelihood in families.items():
        models = {size: _knowing(size, likelihood, some) for size in SIZES}
        timed = {f"{size}": _timed(model, some) for size, model in models.items()}
        turns = alternate(timed, TURNS, show, warm_up=f"{SIZES[0]}")
        for size, model in models.items():
            microseconds = turns.median_s(f"{size}") / len(some) * 1e6
            result.add(f"{family}, {model.vocabulary_size:,} words", microseconds, "µs/tweet")
        ratio = turns.ratio(f"{SIZES[-1]}", f"{SIZES[0]}")
        result.add(f"{family}, largest against smallest", ratio, "times")
    return result


def _knowing(n_words: int, likelihood: Bernoulli | Multinomial, tweets: Tweets) -> NaiveBayes:
    """Return a model that knows the tweets, and made-up words up to about `n_words`."""
    model = NaiveBayes(CLASSES, Dirichlet(1.0), {"text": Words(likelihood, max_words=10 * n_words)})
    model.learn_many({"text": tweets.texts}, tweets.labels)
    n_more = max(0, n_words - model.vocabulary_size)
    rng = random.Random(n_words)
    examples = list(zip(tweets.texts, tweets.labels, strict=True))
    for first in range(0, n_more, _WORDS_A_TEXT):
        words = (f"word{i}" for i in range(first, min(first + _WORDS_A_TEXT, n_more)))
        examples.append((" ".join(words), rng.choice(CLASSES)))
    rng.shuffle(examples)
    scattered = NaiveBayes(
        CLASSES, Dirichlet(1.0), {"text": Words(likelihood, max_words=10 * n_words)}
    )
    scattered.learn_many({"text": [text for text, _ in examples]}, [label for _, label in examples])
    return scattered


def _timed(model: NaiveBayes, tweets: Tweets) -> Callable[[], float]:
    def timed() -> float:
        began = time.perf_counter()
        model.prequential_many({"text": tweets.texts}, tweets.labels)
        return time.perf_counter() - began

    return timed
