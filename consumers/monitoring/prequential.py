"""Prequential accuracy, log-loss and drift: each example is predicted just before it is learned.

The log-loss of an example is minus the log-posterior of its true class, in nats. A posterior below
1e-15 counts as 1e-15, so that one impossible word does not make the mean infinite: 1e-15 is the
bound of River's `LogLoss`, and was scikit-learn's until it took the machine epsilon (2.2e-16 for
float64) in its place.

In batches of a thousand, rings take about 25 ns an example, where River's metrics take 3.6 µs. Sums
over the window are taken afresh when asked for, so that no rounding creeps in.

**Threads.** One thread writes, others may read. A reader gets a copy of the window as it was
between two batches; both hold a lock while they copy, or a reader could meet half a judgement.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Self, TypeVar

import msgspec
import numpy as np
import structlog
from msgspec.structs import replace
from numpy.typing import NDArray

from consumers.config.sections import DriftSettings
from consumers.decode.labels import predicted_classes
from consumers.messages import CheckpointEntry
from streamnb import DriftMartingale, MovedWord, NaiveBayes, WordCounts, count_words, moved_words
from streamnb.inspection.words import word_groups

_Floats = NDArray[np.float64]
Scalar = TypeVar("Scalar", bound=np.generic)
LOG_POSTERIOR_MIN = math.log(1e-15)
log = structlog.get_logger(__name__)


def log_losses(
    log_posteriors: NDArray[np.float64], labels: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return the log-loss of each example, whose true class is at that place; see above."""
    # Flat places: what take_along_axis does, in a third of the time.
    starts = np.arange(len(labels)) * log_posteriors.shape[1]
    own = log_posteriors.reshape(-1).take(starts + labels)
    # Rounding can leave a posterior a hair above 1; a loss is never negative.
    losses: NDArray[np.float64] = -np.clip(own, LOG_POSTERIOR_MIN, 0.0)
    return losses


class Prequential:
    """Accuracy and log-loss, over the last `window` examples and since the beginning.

    Of the window it keeps the judgements too, for confusion and calibration: 17 bytes an example.
    For curves it also keeps the log-posteriors of three classes and more, up to `SCORED_MAX`, at
    two bytes each; with two classes they follow from the judgements.
    `n` examples were seen, `n_correct` of them predicted right; `log_loss_sum` is in nats.

    Examples
    --------
    >>> import numpy as np
    >>> prequential = Prequential(window=1000)
    >>> losses = prequential.update(np.log([[0.75, 0.25], [0.5, 0.5]]), np.array([0, 1]))
    >>> prequential.accuracy
    0.5
    """

    def __init__(self, window: int) -> None:
        self.n = 0
        self.n_correct = 0
        self.log_loss_sum = 0.0
        self._losses: NDArray[np.float64] = np.zeros(window)
        self._correct: NDArray[np.bool_] = np.zeros(window, dtype=np.bool_)
        self._judgements: NDArray[np.uint64] = np.zeros(window, dtype=np.uint64)
        # Of shape (window, n_classes), nan if it was not kept when the example came.
        self._scores: NDArray[np.float16] | None = None
        self._n_classes = 0
        self.n_held = 0  # how many of the window's places are taken
        self._next = 0  # the place that the next example takes
        self._lock = threading.RLock()  # of the rings, and of how far they are filled

    def update(
        self, log_posteriors: NDArray[np.float64], labels: NDArray[np.integer]
    ) -> NDArray[np.float64]:
        """Take in examples, in the order they were predicted; return their log-losses.

        `log_posteriors` has shape (n, n_classes) and is normalised, from before each example was
        learned; -inf is legal, and of classes that tie, the first one is taken as predicted.
        `labels` holds the index of each example's true class.
        """
        if not len(labels):
            return np.empty(0)
        n_classes = log_posteriors.shape[1]
        assert n_classes <= CLASSES_MAX, "a class is kept in two bytes"
        flat, starts = log_posteriors.reshape(-1), np.arange(len(labels)) * n_classes
        predicted = predicted_classes(log_posteriors)
        losses = log_losses(log_posteriors, labels)
        correct = predicted == labels
        judgements = np.empty(len(labels), dtype=JUDGEMENT)
        judgements["truth"], judgements["predicted"] = labels, predicted
        judgements["log_confidence"] = flat.take(starts + predicted)
        self.n += len(labels)
        self.n_correct += int(np.count_nonzero(correct))
        # In order, so that the sum does not depend on where batches are cut.
        self.log_loss_sum = float(np.cumsum(np.append(self.log_loss_sum, losses))[-1])
        self._make_room(n_classes)
        self._n_classes = n_classes
        scores = None
        if self._scores is not None:
            with np.errstate(over="ignore"):  # below -65504 it is as good as impossible
                scores = log_posteriors.astype(np.float16)
            # As those of a batch behind which the third class joins.
            of_two = np.isneginf(log_posteriors[:, 2:]).all(axis=1)
            scores[of_two, :2] = _two_scores(judgements[of_two])
        self._hold(losses, correct, judgements.view(np.uint64), scores)
        return losses

    def _make_room(self, n_classes: int) -> None:
        """Have a column of scores for each class: one that joins had no share of those before."""
        old = self._scores
        if not 2 < n_classes <= SCORED_MAX:
            self._scores = None
        elif old is None or old.shape[1] < n_classes:
            new = np.full((len(self._losses), n_classes), np.nan, np.float16)
            if old is not None:
                new[:, : old.shape[1]] = old
                new[~np.isnan(old[:, 0]), old.shape[1] :] = -np.inf
            elif self._n_classes <= 2:  # else they were not kept
                held = (self._next - self.n_held + np.arange(self.n_held)) % len(new)
                new[held] = -np.inf
                new[held, :2] = _two_scores(self._judgements[held].view(JUDGEMENT))
            with self._lock:
                self._scores = new

    def _hold(
        self,
        losses: NDArray[np.float64],
        correct: NDArray[np.bool_],
        judgements: NDArray[np.uint64],
        scores: NDArray[np.float16] | None,
    ) -> None:
        window = len(self._losses)
        kept = min(len(losses), window)
        # An example's place follows from its number alone, not from where batches are cut.
        start = (self._next + len(losses) - kept) % window
        behind = min(kept, window - start)  # how many fit before the ring begins again
        with self._lock:
            for ring, values in (
                (self._losses, losses),
                (self._correct, correct),
                (self._judgements, judgements),
                (self._scores, scores),
            ):
                if ring is None or values is None:
                    continue
                newest = values[len(values) - kept :]
                ring[start : start + behind] = newest[:behind]
                ring[: kept - behind] = newest[behind:]
            self._next = (start + kept) % window
            self.n_held = min(self.n_held + kept, window)

    def _newest(self, ring: NDArray[Scalar]) -> NDArray[Scalar]:
        """Return a copy of what a ring holds, the oldest first."""
        with self._lock:
            held, end = self.n_held, self._next
            if end >= held:
                return ring[end - held : end].copy()
            return np.concatenate((ring[end - held :], ring[:end]))

    def pack(self) -> CheckpointEntry:
        """Return the window and the sums."""
        arrays: dict[str, NDArray[Any]] = {
            "losses": self._newest(self._losses),
            "judgements": self._newest(self._judgements),
        }
        if self._scores is not None:
            arrays["scores"] = self._newest(self._scores).view(np.uint8)
        values = {
            "n": self.n, "n_correct": self.n_correct, "log_loss_sum": self.log_loss_sum,
            "n_classes": self._n_classes, "next": self._next,
        }  # fmt: skip
        return CheckpointEntry(values, arrays)

    def unpack(self, entry: CheckpointEntry, *, sums: bool) -> None:
        """Go on with a window, which may have had another size, and with the sums if asked for."""
        values, arrays = entry.values, entry.arrays
        losses, judgements = arrays["losses"], arrays["judgements"]
        known = judgements.view(JUDGEMENT)
        self._n_classes = values["n_classes"]
        self._next = (values["next"] - len(losses)) % len(self._losses)
        scores = arrays.get("scores")  # older files have none
        if scores is not None:
            scores = scores.view(np.float16)
            self._make_room(scores.shape[1])
        self._hold(losses, known["truth"] == known["predicted"], judgements, scores)
        if sums:
            self.n, self.n_correct = values["n"], values["n_correct"]
            self.log_loss_sum = values["log_loss_sum"]

    def judged(self) -> Judgements:
        """Return a copy of the window's judgements, the oldest first."""
        with self._lock:  # both as they were between the same two batches
            judgements = self._newest(self._judgements).view(JUDGEMENT)
            scores = None if self._scores is None else self._newest(self._scores)
        return Judgements(
            judgements["truth"], judgements["predicted"], judgements["log_confidence"],
            self._n_classes, scores,
        )  # fmt: skip

    @property
    def accuracy(self) -> float | None:
        """Share predicted right since the beginning; None before the first example."""
        return self.n_correct / self.n if self.n else None

    @property
    def log_loss(self) -> float | None:
        """Mean log-loss since the beginning, in nats; None before the first example."""
        return self.log_loss_sum / self.n if self.n else None

    @property
    def window_accuracy(self) -> float | None:
        """Share predicted right within the window; None before the first example."""
        newest = self._newest(self._correct)
        return float(np.count_nonzero(newest)) / len(newest) if len(newest) else None

    @property
    def window_log_loss(self) -> float | None:
        """Mean log-loss within the window, in nats; None before the first example."""
        newest = self._newest(self._losses)
        return float(newest.sum()) / len(newest) if len(newest) else None


BINS = 10
SCORED_MAX = 12  # classes whose log-posteriors are kept: their curves can still be told apart
CURVE_POINTS, CURVE_EXAMPLES = 200, 100_000  # of the newest so many, as a window may be large
Z = 1.96  # of 95%

# One judgement in 8 bytes.
JUDGEMENT = np.dtype(
    [("truth", np.uint16), ("predicted", np.uint16), ("log_confidence", np.float32)]
)
CLASSES_MAX = 1 << 16


def _all_others(sure: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(1 − p) of log p."""
    with np.errstate(divide="ignore"):
        return np.log(-np.expm1(np.minimum(sure, 0.0)))


def _two_scores(judgements: NDArray[np.void]) -> NDArray[np.float16]:
    """Return the log-posteriors of two classes as their judgements have them."""
    sure = judgements["log_confidence"].astype(np.float64)
    places, found = np.arange(len(sure)), np.empty((len(sure), 2), np.float16)
    found[places, judgements["predicted"]] = sure
    found[places, 1 - judgements["predicted"]] = _all_others(sure)
    return found


class Bin(msgspec.Struct, frozen=True):
    """The examples whose predicted class had a probability from `low` to `high`.

    Attributes
    ----------
    low, high : float
        A probability equal to `low` belongs here, one equal to `high` to the next bin, but for 1.
    n : int
        How many examples.
    mean_probability, accuracy : float or None
        Their mean probability, and the share predicted right; None where there are none.
    """

    low: float
    high: float
    n: int
    mean_probability: float | None
    accuracy: float | None


class Judgements(msgspec.Struct, frozen=True):
    """The judgements of some examples, as a value of its own; each array has shape (n,)."""

    truth: NDArray[np.integer]  # index of the class
    predicted: NDArray[np.integer]
    log_confidence: NDArray[np.float32]  # log-posterior of the predicted class, in nats
    n_classes: int  # 0 before the first example
    scores: NDArray[np.float16] | None = None  # log-posteriors by class, nan if unknown

    def confusion(self, n_classes: int = 0) -> NDArray[np.int64]:
        """Return how often each true class (row) was predicted as each class (column).

        At least `n_classes` of each: those without an example have zeros.
        """
        k = max(self.n_classes, n_classes)
        cells = self.truth.astype(np.int64) * k + self.predicted
        found: NDArray[np.int64] = np.bincount(cells, minlength=k * k).reshape(k, k)
        return found

    def curve(self, label: int) -> ScoreCurve | None:
        """Return how well a class is told from all others; None without examples of both.

        None, too, if the probabilities were not kept: of more than `SCORED_MAX` classes.
        """
        if self.n_classes == 2:
            sure = self.log_confidence[-CURVE_EXAMPLES:].astype(np.float64)
            odds = sure - _all_others(sure)  # infinite if the other is impossible
            scores = np.where(self.predicted[-CURVE_EXAMPLES:] == label, odds, -odds)
        elif self.scores is not None and label < self.scores.shape[1]:
            scores = self.scores[-CURVE_EXAMPLES:, label].astype(np.float64)
        else:
            return None
        known = ~np.isnan(scores)
        return score_curve(scores[known], self.truth[-CURVE_EXAMPLES:][known] == label)

    def calibration(self) -> tuple[Bin, ...]:
        """Return the calibration curve, the lowest bin first; empty without two classes."""
        if self.n_classes < 2:
            return ()
        least = 1.0 / self.n_classes
        edges = np.linspace(least, 1.0, BINS + 1)
        # Rounding can leave a posterior a hair beyond either end.
        probability = np.clip(np.exp(self.log_confidence.astype(np.float64)), least, 1.0)
        places = np.minimum(np.searchsorted(edges, probability, side="right") - 1, BINS - 1)
        counts = np.bincount(places, minlength=BINS)
        sums = np.bincount(places, probability, minlength=BINS)
        right = np.bincount(places, self.truth == self.predicted, minlength=BINS)
        return tuple(
            Bin(low, high, n, s / n if n else None, r / n if n else None)
            for low, high, n, s, r in zip(
                edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), sums.tolist(),
                right.tolist(), strict=True,
            )
        )  # fmt: skip


class ScoreCurve(msgspec.Struct, frozen=True):
    """How well a score tells examples of a class from others, at each threshold from the top down.

    Attributes
    ----------
    n, n_others : int
        Examples of the class, and others.
    auc, low, high : float
        Area below the ROC curve, with its 95% interval by DeLong's variance.
    average_precision : float
        Mean precision, weighted by how much of the recall each threshold adds.
    recall, false_positives, precision : arrays of shape (k,)
        Shares of the class's examples, of the others, and of the class among what is chosen.
    """

    n: int
    n_others: int
    auc: float
    low: float
    high: float
    average_precision: float
    recall: NDArray[np.float64]
    false_positives: NDArray[np.float64]
    precision: NDArray[np.float64]


def wilson(k: float, n: float) -> tuple[float, float]:
    """Return the 95% interval of a share, k of n, by Wilson's formula: it holds for few, too."""
    middle, z = (k + Z * Z / 2) / (n + Z * Z), Z / (n + Z * Z)
    half = z * math.sqrt(k * (n - k) / n + Z * Z / 4)
    return max(0.0, middle - half), min(1.0, middle + half)  # of none or all they round


def score_curve(scores: NDArray[np.float64], is_own: NDArray[np.bool_]) -> ScoreCurve | None:
    """Return the curve of scores, `CURVE_POINTS` at most; None without examples of either kind.

    Examples
    --------
    >>> found = score_curve(np.array([3.0, 2.0, 1.0, 1.0]), np.array([True, False, True, False]))
    >>> found.auc, found.recall.tolist(), found.precision.tolist()
    (0.625, [0.5, 0.5, 1.0], [1.0, 0.5, 0.5])
    """
    n, n_others = int(np.count_nonzero(is_own)), int(np.count_nonzero(~is_own))
    if not n or not n_others:
        return None
    own, others = np.sort(scores[is_own]), np.sort(scores[~is_own])
    # For each example, the share of the other kind that lies on its right side; ties count half.
    below = (np.searchsorted(others, own) + np.searchsorted(others, own, "right")) / (2 * n_others)
    above = 1 - (np.searchsorted(own, others) + np.searchsorted(own, others, "right")) / (2 * n)
    auc = float(below.mean())
    half = Z * math.sqrt(float(below.var()) / n + float(above.var()) / n_others)
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(is_own[order])
    ranked = scores[order]  # examples of one score are chosen together
    ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(scores) - 1)
    recall, precision = hits[ends] / n, hits[ends] / (ends + 1)
    average = float((np.diff(recall, prepend=0.0) * precision).sum())
    some = np.unique(np.linspace(0, len(ends) - 1, CURVE_POINTS).round().astype(np.int64))
    return ScoreCurve(
        n, n_others, auc, max(0.0, auc - half), min(1.0, auc + half), average,
        recall[some], ((ends + 1 - hits[ends]) / n_others)[some], precision[some],
    )  # fmt: skip


def calibration_error(bins: Sequence[Bin]) -> float | None:
    """Return the expected calibration error of a curve, from 0 to 1; None without an example.

    Examples
    --------
    >>> found = calibration_error([Bin(0.5, 0.75, 3, 0.6, 0.7), Bin(0.75, 1.0, 1, 0.9, 0.8)])
    >>> round(found, 6)
    0.1
    """
    n = sum(each.n for each in bins)
    if not n:
        return None
    known = ((b.n, b.accuracy, b.mean_probability) for b in bins)
    return sum(n_own * abs(a - p) for n_own, a, p in known if a is not None and p is not None) / n


# ---- drift ---------------------------------------------------------------------------------------

WARM_EXAMPLES = 1_000  # the first losses of a model that knows nothing are compared with nothing
WORDS_MAX = 5_000  # the most frequent ones, whose classes are compared
WORDS_NAMED = 10
PENDING_MAX = 8  # alarms that wait for their words; a further one waits with the last of them
LOOK_EXAMPLES = 500  # the words are looked at where so many more losses were taken in
RELEARN_Z = 5.5  # of 5,000 words of two classes, looked at eight times, chance takes none beyond


class DriftReport(msgspec.Struct, frozen=True):
    """What is known of drift.

    Attributes
    ----------
    n_alarms : int
        Since the checkpoint's beginning.
    capital : float
        What the martingale's capital of 1 has become; an alarm is raised at 1/`drift.alpha`.
    alarm_at : int or None
        The newest alarm, as the number of its labelled message; None before the first.
    words : tuple of MovedWord
        What moved after the newest alarm whose words were named, the strongest first.
    """

    n_alarms: int
    capital: float
    alarm_at: int | None
    words: tuple[MovedWord, ...]


class DriftWatch:
    """Raises alarms on the log-losses of labelled messages, and names the words that moved.

    Words are counted and named at multiples of `LOOK_EXAMPLES`, where calls that learn end: so they
    follow from the log, however it is cut. `learned` is called on the consuming thread; `report`
    may be asked on others. `model` returns the one whose words they are.
    """

    name = "drift"

    def __init__(self, settings: DriftSettings) -> None:
        self._settings = settings
        self.model: Callable[[], NaiveBayes | None] = lambda: None
        self.relearn: Callable[[], bool] = lambda: False  # these are done by `drift.reaction`
        self.compare: Callable[[], None] = lambda: None
        self._martingale = DriftMartingale(settings.alpha, settings.tolerance)
        self._n = 0  # losses taken in
        self._taught = (0.0, 0.0)  # messages that taught the model, and their weight together
        self._is_alarmed = False  # and the words of before are not counted yet
        self._pending: list[tuple[int, WordCounts]] = []  # named after so many losses, by alarm
        self._relearned = 0  # alarms whose words are named up to there had the model relearn
        self._report = DriftReport(0, 1.0, None, ())

    @classmethod
    def of(cls, settings: DriftSettings) -> Self | None:
        """Return a watch by its settings; None if they turn it off."""
        return cls(settings) if settings.enabled else None

    def report(self) -> DriftReport:
        """Return what is known of drift."""
        return self._report

    @property
    def n_until_look(self) -> int:
        """How many losses are left until the words are looked at: no call may learn more."""
        return LOOK_EXAMPLES - self._n % LOOK_EXAMPLES

    def learned(
        self, log_posteriors: _Floats, labels: NDArray[np.integer], weights: _Floats | None = None
    ) -> None:
        """Take in what was predicted of messages, in their order; look at words if it is time.

        A message that teaches nothing has weight 0. A model that forgets does not know weights.
        """
        if len(labels):
            given = np.ones(len(labels)) if weights is None else weights
            n, weight = self._taught  # summed up in order, as `log_loss_sum` is
            weight = float(np.cumsum(np.append(weight, given))[-1])
            self._taught = n + float(np.count_nonzero(given)), weight
            self.update(log_losses(log_posteriors, labels))
            model = self.model()
            if self._n % LOOK_EXAMPLES == 0 and model is not None:
                self._react(model)
                self._look_at_words(model)
                self._is_alarmed = False

    def _react(self, model: NaiveBayes) -> None:
        """Compare challengers behind an alarm, or relearn weights once words have moved."""
        reaction, groups = self._settings.reaction, word_groups(model.state)
        if reaction == "compare" and self._is_alarmed:
            self.compare()
        since = [w for at, w in self._pending if at > self._relearned and w.group in groups]
        find = partial(moved_words, model=model, n=1, least_z=RELEARN_Z, learned=self._taught)
        # The model that answers may be another, and no hybrid.
        if reaction == "relearn" and any(map(find, since)) and self.relearn():
            self._relearned = max(at for at, _ in self._pending)
            log.warning("drift_relearned", message=self._n, detail="words have moved since")

    def update(self, losses: NDArray[np.float64]) -> None:
        """Take in log-losses, in the order of their messages."""
        first = min(max(0, WARM_EXAMPLES - self._n), len(losses))
        alarms = self._martingale.update(losses[first:])
        before = self._n + first + 1
        self._n += len(losses)
        for at in alarms:
            self._is_alarmed = True
            self._report = replace(self._report, alarm_at=before + at)
            model, detail = self.model(), "log-losses have grown beyond chance"
            if model is not None and word_groups(model.state):
                detail += "; the words that moved are named later"
            log.warning("drift", message=before + at, detail=detail)
        now = self._martingale
        self._report = replace(self._report, n_alarms=now.n_alarms, capital=now.capital)

    def _look_at_words(self, model: NaiveBayes) -> None:
        """Count the words of before once an alarm was raised, and later name those that moved."""
        groups, learned = word_groups(model.state), self._taught
        if self._is_alarmed and groups:
            at, waiting = self._n + self._settings.words_after, self._pending
            last = waiting[-1][0] if len({each for each, _ in waiting}) == PENDING_MAX else 0
            if last > self._relearned:
                self._pending = [(at if each == last else each, then) for each, then in waiting]
            else:  # weights were learned afresh on the last one's words: they must not be so again
                then = [count_words(model, WORDS_MAX, each, learned=learned) for each in groups]
                self._pending = [w for w in waiting if w[0] != last] + [(at, w) for w in then]
        if not self._pending or self._n < (at := min(each for each, _ in self._pending)):
            return
        due = [then for each, then in self._pending if each == at and then.group in groups]
        self._pending = [each for each in self._pending if each[0] != at]
        words = [w for then in due for w in moved_words(then, model, WORDS_NAMED, learned=learned)]
        words = sorted(words, key=lambda each: -each.strength)[:WORDS_NAMED]
        self._report = replace(self._report, words=tuple(words))
        names = [f"{w.group}: {w.word}" if len(groups) > 1 else w.word for w in words]
        said = [f"{name} → {w.label} (z {w.z:.1f})" for name, w in zip(names, words, strict=True)]
        none = {} if words else {"detail": "no word moved beyond chance"}
        log.warning("drift_words", message=self._n, words=said, **none)

    def pack(self) -> CheckpointEntry:
        """Return the state, without words that the model counts no more: they were deleted."""
        arrays: dict[str, NDArray[Any]] = {}
        named = [w for w in self._report.words if self._are_counted([w.word], w.group).all()]
        values: dict[str, Any] = {
            "n": self._n, "taught": self._taught, "martingale": self._martingale.to_dict(),
            "is_alarmed": self._is_alarmed, "alarm_at": self._report.alarm_at,
            "words": [asdict(each) for each in named], "pending": [], "relearned": self._relearned,
        }  # fmt: skip
        for n, (at, earlier) in enumerate(self._pending):
            known = self._are_counted(earlier.words, earlier.group)
            held = asdict(earlier) | {"words": [earlier.words[k] for k in np.flatnonzero(known)]}
            arrays |= {f"counts{n or ''}": held.pop("counts")[known]}
            arrays |= {f"tokens{n or ''}": held.pop("tokens")}
            values["pending"].append(held | {"name_at": at})
        return CheckpointEntry(values, arrays)

    def _are_counted(self, words: Sequence[str], group: str | None) -> NDArray[np.bool_]:
        """Return which words the model counts; None is its first group of words."""
        model = self.model()
        if model is None:
            return np.ones(len(words), dtype=np.bool_)
        own = next(iter(word_groups(model.state))) if group is None else group
        known: NDArray[np.bool_] = model.word_counts(words, own).sum(axis=1) > 0.0
        return known

    def unpack(self, entry: CheckpointEntry) -> None:
        """Go on with an entry's martingale, under the settings of now."""
        values, settings = entry.values, self._settings
        now = {"alpha": settings.alpha, "tolerance": settings.tolerance}
        self._martingale = DriftMartingale.from_dict(values["martingale"] | now)
        self._n = values["n"]
        self._is_alarmed, self._relearned = values["is_alarmed"], values.get("relearned", 0)
        self._taught = tuple(values.get("taught", self._taught))  # older files have none
        words = tuple(MovedWord(**each) for each in values["words"])
        known = self._martingale
        self._report = DriftReport(known.n_alarms, known.capital, values["alarm_at"], words)
        # Older files have one alarm at most, and neither `examples` nor `weight`.
        old = [values["earlier"] | {"name_at": values["name_at"]}] if "earlier" in values else []
        for n, each in enumerate(values.get("pending", old)):
            own = {key: entry.arrays[f"{key}{n or ''}"] for key in ("counts", "tokens")}
            held = each | own | {"words": tuple(each["words"])}
            self._pending.append((held.pop("name_at"), WordCounts(**held)))
