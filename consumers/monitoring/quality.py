"""The model's quality: figures, confusion, calibration, history, features, trends and shares.

`Quality` gathers them within a bounded share of the reporter thread's time and hands out a frozen
`QualityReport`. A figure that does not exist yet is None.

Search results, live queries and metrics ask `Shares` for the share of each class in a set of
messages, so they say the same. Error rates are those of the messages in question. For the stream as
a whole they are measured over the prequential window. Messages that were searched for have others,
because the classifier reads the very words by which they were found: theirs are measured on those
of them that came with a label, and if there are too few, no corrected share is said.
`streamnb.prevalence` has the figures.

Rising and falling words: each five minutes the counts of the most frequent words are marked. A
word's rate since the oldest mark (an hour ago; less after a start) is held against its rate up to
there, both as occurrences an example.
Rare words change by chance, so only what chance does not explain is shown: words whose likelihood
ratio of two rates against one, 2·Σ k·log(k/expected), is beyond `SURE`² (Dunning 1993, "Accurate
methods for the statistics of surprise and coincidence", Computational Linguistics 19). Frequent
words change surely but little: the ratio of their rates must pass `RATIO_MIN` too. The order is by
rate·log(ratio) with the larger of both rates, as that of the most telling words of a class.

By such an order function words come first: of the most frequent words few separate classes well,
but each does so often. They are left out where words are ranked for people; the model has them.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from msgspec import field
from msgspec.structs import replace
from numpy.typing import ArrayLike, NDArray

from consumers.monitoring.prequential import Bin, Judgements, Prequential, calibration_error
from streamnb import Snapshot
from streamnb.inspection.words import word_groups
from streamnb.prevalence import Quantifier

MARK_INTERVAL_S = 300.0
MARKS_MAX = 13  # 12 intervals: the oldest is an hour old, and up to five minutes more
WORDS_MAX = 5_000  # with 13 marks about 6 MB
EXAMPLES_MIN = 1_000  # before a mark and since: fewer say little of any word
SHOWN = 12
SURE = 4.0  # standard errors: of 5,000 words that do not change, one in three looks shows one
RATIO_MIN = 1.25
_NO_NAMES: Mapping[str, str] = MappingProxyType({})
_TINY = 1e-300  # a word that has left and was not marked came no times: 0/0 is no change
_TEXT_ENDS = ("^", "$")  # how n-grams of the model name them
_PRIOR_EXAMPLES = 100.0  # of no change, in both rates: no ratio is infinite

Floats = NDArray[np.float64]


class Trend(msgspec.Struct, frozen=True):
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


class Mark(msgspec.Struct, frozen=True):
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

    def __init__(self, left_out: frozenset[str] = frozenset()) -> None:
        self._left_out = left_out
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
            if words[i] not in self._left_out
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


def function_words(listed: Sequence[str] | None) -> frozenset[str]:
    """Return the words that rankings leave out: those that are listed, or if None, the built-in.

    >>> "the" in function_words(None), function_words(["Rt"])
    (True, frozenset({'rt'}))
    """
    if listed is not None:
        return frozenset(map(str.lower, listed))
    text = files("consumers.monitoring").joinpath("function_words.txt").read_text("utf-8")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return frozenset(word for _, *words in lines for word in words)


# ---- quality -------------------------------------------------------------------------------------

LEVEL = 0.95  # of the shares' error bars
WINDOW_INTERVAL_S = 1.0
TRENDS_INTERVAL_S = 10.0
SHARE_MAX = 0.01  # of the time, for the window and for the words each
PAUSE_MAX = 20  # intervals


class WindowFigures(msgspec.Struct, frozen=True):
    """Of the newest examples: how many, and how well they were predicted before they were learned.

    `log_loss` is in nats; `calibration_error` is that of `monitoring.prequential`, from 0 to 1.
    """

    n: int = 0
    accuracy: float | None = None
    log_loss: float | None = None
    calibration_error: float | None = None


class PrequentialFigures(msgspec.Struct, frozen=True):
    """The same since the beginning, and within the window."""

    n: int = 0
    accuracy: float | None = None
    log_loss: float | None = None
    window: WindowFigures = field(default_factory=WindowFigures)


class Confusion(msgspec.Struct, frozen=True):
    """The window's confusion matrix: row the true class, column the predicted one."""

    classes: tuple[str, ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()


class Point(msgspec.Struct, frozen=True):
    """How things stood at one time.

    Attributes
    ----------
    time_ms : int
        Unix milliseconds.
    accuracy, log_loss, calibration_error : float or None
        Of the prequential window.
    rate_per_s : float
        Messages a second.
    lag, n_alarms : int or None
        Messages unread, and alarms of drift so far; None where nobody can know.
    n : int
        Examples in the window, so that an interval of the accuracy can be said.
    covered, set_size : float or None
        Of the newest prediction sets, as many as the window holds: the share that held the true
        class, and how many classes they have on average; None without `model.coverage`.
    events : tuple of str
        What happened since the point before: "drift" was noticed, the daemon began again
        ("restart"), or another model answers ("promotion of NAME").
    covered_low, covered_high : float or None
        The ends of the 95% interval of `covered`, by Wilson's formula.
    """

    time_ms: int
    accuracy: float | None
    log_loss: float | None
    calibration_error: float | None
    rate_per_s: float
    lag: int | None
    n: int
    n_alarms: int | None
    covered: float | None = None
    set_size: float | None = None
    events: tuple[str, ...] = ()
    covered_low: float | None = None
    covered_high: float | None = None


class Telling(msgspec.Struct, frozen=True):
    """A feature that speaks for a class; `score` is what it adds to the log-odds, in nats."""

    feature: str
    score: float


class QualityReport(msgspec.Struct, frozen=True):
    """What is known of the model's quality at one moment; fields are named as in the API.

    `history` begins with the oldest, `calibration` with the lowest probabilities. `telling` has for
    each class the features that speak for it most, the strongest first. `rising` and `falling` are
    words used more and less than `trend_s` seconds ago, those that changed most surely first.
    """

    prequential: PrequentialFigures = field(default_factory=PrequentialFigures)
    confusion: Confusion = field(default_factory=Confusion)
    calibration: tuple[Bin, ...] = ()
    history: tuple[Point, ...] = ()
    telling: Mapping[str, tuple[Telling, ...]] = field(default_factory=dict)
    rising: tuple[Trend, ...] = ()
    falling: tuple[Trend, ...] = ()
    trend_s: float | None = None


class Share(msgspec.Struct, frozen=True):
    """A corrected share with the ends of its error bar, all from 0 to 1."""

    share: float
    low: float
    high: float


class ShareReport(msgspec.Struct, frozen=True):
    """The classes' shares in a set of messages.

    `enough` says whether it has at least `messages_min`. `raw` are the shares of the predictions
    counted, None without any; `corrected` has the classifier's own mistakes taken out, or is None
    for the reason given, a sentence.
    """

    n: int
    enough: bool
    messages_min: int
    counts: Mapping[str, int]
    raw: Mapping[str, float | None]
    corrected: Mapping[str, Share] | None
    corrected_reason: str | None


class Shares:
    """Computes shares from counts; immutable, so any thread may use it.

    `confusion` is the stream's: row the true class, column the predicted one, of the newest
    examples. Below `messages_min` messages a share would be mostly chance. `names` are what people
    are told that classes are called, of those that have another name.

    Examples
    --------
    >>> shares = Shares(["negative", "positive"], [[900, 100], [300, 700]], messages_min=30)
    >>> said = shares.of_stream([60, 40])
    >>> said.raw["positive"], round(said.corrected["positive"].share, 6)
    (0.4, 0.5)
    >>> shares.of([60, 40], [[50, 0], [10, 40]]).corrected["positive"].share
    0.5
    >>> shares.of([6, 4], [[5, 0], [1, 4]]).corrected_reason
    'There are 10 messages; a share is said from 30 on.'
    """

    def __init__(
        self,
        classes: Sequence[str],
        confusion: ArrayLike,
        messages_min: int,
        names: Mapping[str, str] = _NO_NAMES,
        n_examples: ArrayLike | None = None,  # see `Quantifier`
    ) -> None:
        self.classes, self.names = tuple(classes), names
        self.messages_min = messages_min
        self._quantifier = self._by(confusion, n_examples)

    @classmethod
    def unknown(
        cls, classes: Sequence[str], messages_min: int, names: Mapping[str, str] = _NO_NAMES
    ) -> Shares:
        """Return the value before the first example: it corrects no share."""
        return cls(classes, np.zeros((len(classes), len(classes))), messages_min, names)

    def _by(self, confusion: ArrayLike, n_examples: ArrayLike | None = None) -> Quantifier:
        """Return what corrects by a confusion matrix; its reasons have the classes' names."""
        named = [self.names.get(label, label) for label in self.classes]
        return Quantifier(confusion, LEVEL, classes=named, n_examples=n_examples)

    def of_stream(
        self, counts: Sequence[int], weighed: Sequence[float] | None = None
    ) -> ShareReport:
        """Return the shares in all messages of the stream, or in a sample of it.

        `counts` holds for each class how many were predicted to be of it. Of an uneven sample
        `weighed` are those of an even one that would say as much: shares are made of these.
        """
        return self._report(counts, self._quantifier, weighed)

    def of_matches(
        self, classes: Sequence[str], counts: Sequence[int], weighed: Sequence[float],
        confusion: ArrayLike, n_examples: ArrayLike, *, is_everything: bool,
    ) -> ShareReport:  # fmt: skip
        """Return the shares in stored messages, by the error rates of those with a label.

        Where all are asked for, and too few have one, the stream's serve.
        """
        own = Shares(classes, confusion, self.messages_min, self.names, n_examples)
        found, has_all = own.of_stream(counts, weighed), len(self.classes) == len(classes)
        is_by_stream = is_everything and has_all and found.corrected is None
        return self.of_stream(counts, weighed) if is_by_stream else found

    def of(self, counts: Sequence[int], confusion: ArrayLike | None = None) -> ShareReport:
        """Return the shares in messages selected by words, language or the like.

        `counts` is as above. `confusion` is that of those among them that came with a label;
        without it, no share is corrected.
        """
        if confusion is None:
            confusion = np.zeros((len(self.classes), len(self.classes)))
        return self._report(counts, self._by(confusion))

    def _report(
        self, counts: Sequence[int], quantifier: Quantifier, weighed: Sequence[float] | None = None
    ) -> ShareReport:
        n, of_shares = sum(counts), counts if weighed is None else weighed
        n_even = sum(of_shares)
        if n_even < self.messages_min:
            many = "is 1 message" if n == 1 else f"are {n} messages"
            if n >= self.messages_min:
                many += f" of unequal weight, which say as much as {n_even:.0f}"
            reason: str | None = f"There {many}; a share is said from {self.messages_min} on."
            corrected = None
        else:
            corrected, reason = self._corrected(of_shares, quantifier)
        shares = [count / n_even if n else None for count in of_shares]
        return ShareReport(
            n=n,
            enough=n_even >= self.messages_min,
            messages_min=self.messages_min,
            counts=dict(zip(self.classes, counts, strict=True)),
            raw=dict(zip(self.classes, shares, strict=True)),
            corrected=corrected,
            corrected_reason=reason,
        )

    def _corrected(
        self, counts: Sequence[float], quantifier: Quantifier
    ) -> tuple[dict[str, Share] | None, str | None]:
        found = quantifier.adjust(counts)
        if found.shares is None or found.low is None or found.high is None:
            return None, found.reason
        ends = zip(found.shares.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
        return dict(zip(self.classes, (Share(*each) for each in ends), strict=True)), None


class Budget:
    """Spaces out a task so that it takes at most `share_max` of one thread's time.

    Turns begin at least `interval_s` apart. After a turn that cost t, the next is t/share_max
    later, but never later than `PAUSE_MAX` intervals.
    """

    def __init__(self, interval_s: float, share_max: float) -> None:
        self._interval_s = interval_s
        self._share_max = share_max
        self._due_at_s: float | None = None
        self._took_s = 0.0  # the turn before

    def is_due(self, now_s: float) -> bool:
        """Return whether the next turn may begin."""
        return self._due_at_s is None or now_s >= self._due_at_s

    def spent(self, began_s: float, ended_s: float) -> None:
        """Take note of a turn, by the same clock that `is_due` is asked with.

        A turn costs what the quicker of the last two took: the other may have paid what is paid
        once, such as imports, or have waited for the interpreter.
        """
        took_s = ended_s - began_s
        costs_s, self._took_s = min(took_s, self._took_s), took_s
        pause_s = min(costs_s / self._share_max, PAUSE_MAX * self._interval_s)
        self._due_at_s = began_s + max(self._interval_s, pause_s)


class Quality:
    """Measures how good the model is, for people who must decide whether to trust it.

    `prequential` is written by the consuming thread, and only read here. Below `messages_min`
    messages no share is said (`page.share_messages_min`), and `names` are the page's for classes.
    `clock` returns monotonic seconds.
    """

    def __init__(
        self,
        classes: Sequence[str],
        prequential: Prequential,
        messages_min: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        left_out: frozenset[str] = frozenset(),
        names: Mapping[str, str] = _NO_NAMES,
    ) -> None:
        self.classes = classes
        self._names = names
        self._left_out = left_out
        self._prequential = prequential
        self._messages_min = messages_min
        self._clock = clock
        self._window_budget = Budget(WINDOW_INTERVAL_S, SHARE_MAX)
        self._words_budget = Budget(TRENDS_INTERVAL_S, SHARE_MAX)
        self._trends = Trends(left_out)
        self._shares = Shares.unknown(tuple(classes), messages_min, names)
        self._stream_shares: ShareReport | None = None
        self._report = QualityReport()

    def report(self) -> QualityReport:
        """Return the newest report; any thread may ask."""
        return self._report

    def shares(self) -> Shares:
        """Return the shares' corrector with the newest error rates; any thread may ask."""
        return self._shares

    def judged(self) -> Judgements:
        """Return the window's judgements; any thread may ask."""
        return self._prequential.judged()

    def stream_shares(self) -> ShareReport | None:
        """Return the shares of the stream's newest messages; any thread may ask."""
        return self._stream_shares

    def set_history(self, points: tuple[Point, ...]) -> None:
        """Take in how things stood until now, the oldest point first."""
        self._report = replace(self._report, history=points)

    def set_top_features(self, top: Mapping[Any, Sequence[tuple[str, float]]]) -> None:
        """Take in the most telling features, as `inspection.summary.top_features` gives them.

        The first that are not of function words are told.
        """
        telling: dict[str, tuple[Telling, ...]] = {}
        for label, features in top.items():
            told = [Telling(*each) for each in features if not self._is_left_out(each[0])]
            telling[str(label)] = tuple(told[:SHOWN])
        self._report = replace(self._report, telling=telling)

    def _is_left_out(self, feature: str) -> bool:
        """Return whether a feature is of function words alone, negated or at a text's end too."""
        words = [word.lstrip("¬") for word in feature.split(" ") if word not in _TEXT_ENDS]
        return bool(words) and self._left_out.issuperset(words)

    def update(
        self, snapshot: Snapshot | None, now_s: float, predicted: Sequence[int] = ()
    ) -> None:
        """Gather again what is due, at `now_s` by the clock that was passed in.

        The words are those of the `snapshot`; `predicted` is how many of the newest messages were
        predicted to be of each class.
        """
        if self._window_budget.is_due(now_s):
            began_s = self._clock()
            self._measure_window(predicted)
            self._window_budget.spent(now_s, now_s + self._clock() - began_s)
        if snapshot is not None and self._words_budget.is_due(now_s):
            began_s = self._clock()
            self._trends.update(snapshot, now_s)
            self._words_budget.spent(now_s, now_s + self._clock() - began_s)
        self._report = replace(
            self._report,
            prequential=self._figures(),
            rising=self._trends.rising,
            falling=self._trends.falling,
            trend_s=self._trends.span_s,
        )

    def _measure_window(self, predicted: Sequence[int]) -> None:
        """Compute confusion, calibration and error rates from the prequential window."""
        judged, classes = self._prequential.judged(), tuple(self.classes)
        if len(judged.truth):
            counts = judged.confusion(len(classes))
            confusion = Confusion(classes, tuple(map(tuple, counts.tolist())))
            self._report = replace(
                self._report, confusion=confusion, calibration=judged.calibration()
            )
            self._shares = Shares(classes, counts, self._messages_min, self._names)
        elif len(classes) > len(self._shares.classes):
            self._shares = Shares.unknown(classes, self._messages_min, self._names)
        self._stream_shares = self._shares.of_stream(
            [*predicted, *[0] * (len(classes) - len(predicted))]
        )

    def _figures(self) -> PrequentialFigures:
        known = self._prequential
        return PrequentialFigures(
            n=known.n,
            accuracy=known.accuracy,
            log_loss=known.log_loss,
            window=WindowFigures(
                n=known.n_held,
                accuracy=known.window_accuracy,
                log_loss=known.window_log_loss,
                calibration_error=calibration_error(self._report.calibration),
            ),
        )
