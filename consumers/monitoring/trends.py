"""Rising and falling words: their rate in the last hour against their rate before it.

Each five minutes the counts of the most frequent words are marked. A word's rate since the oldest
mark (an hour ago; less after a start) is held against its rate up to there, both as occurrences an
example.

Rare words change by chance, so only what chance does not explain is shown: words whose likelihood
ratio of two rates against one, 2·Σ k·log(k/expected), is beyond `SURE`² (Dunning 1993, "Accurate
methods for the statistics of surprise and coincidence", Computational Linguistics 19). Frequent
words change surely but little: the ratio of their rates must pass `RATIO_MIN` too. The order is by
rate·log(ratio) with the larger of both rates, as that of the most telling words of a class.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamnb import Snapshot
from streamnb.inspection.words import word_groups

MARK_INTERVAL_S = 300.0
MARKS_MAX = 13  # 12 intervals: the oldest is an hour old, and up to five minutes more
WORDS_MAX = 5_000  # with 13 marks about 6 MB
EXAMPLES_MIN = 1_000  # before a mark and since: fewer say little of any word
SHOWN = 12
SURE = 4.0  # standard errors: of 5,000 words that do not change, one in three looks shows one
RATIO_MIN = 1.25
_TINY = 1e-300  # a word that has left and was not marked came no times: 0/0 is no change
_PRIOR_EXAMPLES = 100.0  # of no change, in both rates: no ratio is infinite

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Trend:
    """A word whose use has changed.

    Attributes
    ----------
    word : str
    before, now : float
        How often it stood in an example on average, before the stretch looked at and in it.
    ratio : float
        The second to the first, smoothed: never 0 or infinite.
    """

    word: str
    before: float
    now: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Mark:
    """The most frequent words at one time."""

    at_s: float  # monotonic
    n: float  # examples learned up to then
    words: tuple[str, ...]
    counts: Floats  # of shape (n_words,): how often each had come, over all classes
    unseen_max: float  # a word that is not among them had come at most so often


class Trends:
    """Marks counts of words and compares them; used by one thread.

    `span_s` is how far back the compared mark lies, None if nothing could be compared yet.
    """

    def __init__(self) -> None:
        self.rising: tuple[Trend, ...] = ()
        self.falling: tuple[Trend, ...] = ()
        self.span_s: float | None = None
        self._marks: deque[Mark] = deque(maxlen=MARKS_MAX)

    def update(self, snapshot: Snapshot, now_s: float) -> None:
        """Mark the counts if it is time, and compare them with the oldest; `now_s` is monotonic."""
        now = _mark(snapshot, now_s)
        if now is None or now.n < EXAMPLES_MIN:
            return
        if not self._marks or now_s - self._marks[-1].at_s >= MARK_INTERVAL_S:
            self._marks.append(now)
        self._compare(snapshot, self._marks[0], now)

    def _compare(self, snapshot: Snapshot, before: Mark, now: Mark) -> None:
        n_since = now.n - before.n
        if n_since < EXAMPLES_MIN:
            return
        words, counts_before, counts_now = _side_by_side(snapshot, before, now)
        since = np.maximum(counts_now - counts_before, 0.0)  # words can be unlearned, or leave
        both = (counts_before + since) / now.n  # the rate, if it has not changed
        surprise = 2.0 * (
            since * np.log((since + _TINY) / (both * n_since + _TINY))
            + counts_before * np.log((counts_before + _TINY) / (both * before.n + _TINY))
        )
        prior = _PRIOR_EXAMPLES * both
        rate_since = (since + prior) / (n_since + _PRIOR_EXAMPLES)
        rate_before = (counts_before + prior) / (before.n + _PRIOR_EXAMPLES)
        log_ratio = np.log((rate_since + _TINY) / (rate_before + _TINY))
        shown = np.flatnonzero((surprise > SURE**2) & (np.abs(log_ratio) > np.log(RATIO_MIN)))
        weight = np.maximum(rate_since, rate_before)[shown] * np.abs(log_ratio[shown])
        shown = shown[np.argsort(-weight, kind="stable")]
        told = [
            Trend(words[i], b / before.n, s / n_since, r)
            for i, b, s, r in zip(
                shown.tolist(), counts_before[shown].tolist(), since[shown].tolist(),
                np.exp(log_ratio[shown]).tolist(), strict=True,
            )
        ]  # fmt: skip
        self.rising = tuple(each for each in told if each.ratio > 1.0)[:SHOWN]
        self.falling = tuple(each for each in told if each.ratio < 1.0)[:SHOWN]
        self.span_s = now.at_s - before.at_s


def _mark(snapshot: Snapshot, now_s: float) -> Mark | None:
    """Return the counts of the most frequent words; None if the model has no words.

    N-grams and negated words are left out: their words are there themselves.
    """
    found: Counter[str] = Counter()
    unseen_max = 0.0
    for group in word_groups(snapshot.state):
        top = snapshot.top_words(2 * WORDS_MAX, group)
        counts = snapshot.word_counts(top, group).sum(axis=1).tolist()
        plain = [
            (word, count)
            for word, count in zip(top, counts, strict=True)
            if " " not in word and not word.startswith("¬")
        ]
        found.update(dict(plain[:WORDS_MAX]))
        if len(plain) > WORDS_MAX:
            unseen_max += plain[WORDS_MAX][1]
        elif len(top) == 2 * WORDS_MAX:
            unseen_max += counts[-1]
    if not found:
        return None
    return Mark(
        now_s,
        float(snapshot.class_counts.sum()),
        tuple(found),
        np.fromiter(found.values(), dtype=np.float64, count=len(found)),
        unseen_max,
    )


def _side_by_side(snapshot: Snapshot, before: Mark, now: Mark) -> tuple[list[str], Floats, Floats]:
    """Return the words of either mark, with their counts then and now.

    A word that was not frequent enough to be marked is taken to have come as often as it can have,
    so that it is not shown to rise if it may not have risen.
    """
    places = {word: i for i, word in enumerate(before.words)}
    at = np.array([places.get(word, -1) for word in now.words], dtype=np.int64)
    then = np.where(at >= 0, before.counts[at], np.minimum(before.unseen_max, now.counts))
    here = set(now.words)
    gone = [word for word in before.words if word not in here]
    counts_gone = sum(
        (snapshot.word_counts(gone, group).sum(axis=1) for group in word_groups(snapshot.state)),
        np.zeros(len(gone)),
    )
    then_gone = before.counts[[places[word] for word in gone]]
    return (
        [*now.words, *gone],
        np.concatenate((then, then_gone)),
        np.concatenate((now.counts, counts_gone)),
    )
