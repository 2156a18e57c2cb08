"""What a run has seen so far: the figures behind metrics, screens and the summary.

The consuming thread counts what it read and learned, the predictor thread what it judged. Each
figure has one writing thread; both append to `newest`, a deque, for the screen alone. At the end
stands what the recent store measures: what comes and is taken in a minute, and what that costs.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.decode.labels import predicted_classes
from consumers.messages import CheckpointEntry, KnownClasses, Messages
from consumers.monitoring.prequential import DriftWatch, Prequential, wilson
from consumers.monitoring.status import Judged
from streamnb import Answer, Confidence, ConformalSets, ReliabilityBin
from streamnb.labels import Label
from streamnb.learn import impossible

_NEWEST_KEPT = 40
_NEWEST_A_BATCH = 6
_SHARES_OVER = 2_000  # newest predictions
_RATE_OVER_S = 1.0
WINDOW_MARKS = 64
_CLASS_BITS = 8  # there are at most `CLASSES_MAX`
_CLASS_MASK = (1 << _CLASS_BITS) - 1
_MINUTE_S = 60
_PACE_OVER_S = 3
# Of the processor budget: what a message costs before anything is measured, about what a machine of
# today takes, and how many messages this guess stands for.
_MAKING_S = 5e-6
_WRITING_S = 20e-6
_WEIGHT = 500
# Sums forget by this share with each measurement. Samples are made four times a second and written
# twice a second while they are rationed: half is forgotten within three seconds.
_MAKING_KEPT = 0.94
_WRITING_KEPT = 0.89
RATE_MIN_PER_S = 20.0  # a page without any message would be of no use


class _Rate(msgspec.Struct):
    """Messages a second, over the last stretch of about a second."""

    n: int = 0
    at_s: float = 0.0
    per_s: float = 0.0

    def update(self, n: int, now_s: float) -> float:
        if now_s - self.at_s >= _RATE_OVER_S:
            self.per_s = (n - self.n) / (now_s - self.at_s)
            self.n, self.at_s = n, now_s
        return self.per_s


class StatisticsEntry(msgspec.Struct):
    """The figures of one thread, as an entry of the checkpoint."""

    name: str
    pack: Callable[[], CheckpointEntry]
    unpack: Callable[[CheckpointEntry], None]


class SetCounts(NamedTuple):
    """How many prediction sets were judged, how many held the true class, and all their classes."""

    n: int
    n_covered: int
    n_in_sets: int


class CoveredWindow:
    """How often the newest prediction sets held the true class, and their mean size.

    A set's own outcome is not kept. Of the running totals there are about `WINDOW_MARKS` marks, and
    what the newest one has above the last mark before the window is the window's. So this holds
    somewhat more than `size` examples: up to a `WINDOW_MARKS`th, or one call that learns. Where the
    marks stand follows from how the log was cut into batches, so no checkpoint has them: after a
    restart all examples count until `size` new ones have come. The consuming thread writes, any
    thread may read.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.marks: tuple[SetCounts, ...] = ()
        self._of: ConformalSets | None = None  # whose totals these are

    def update(self, sets: ConformalSets | None) -> None:
        """Take in the totals of now; of sets other than before, all that they have counted."""
        if sets is None:
            self.marks = ()
            return
        now = SetCounts(sets.n, sets.n_covered, sets.n_in_sets)
        marks, is_other = self.marks, self._of not in (None, sets)
        self._of = sets
        if is_other or not marks or now.n < marks[-1].n:
            self.marks = SetCounts(0, 0, 0), now
            return
        # The last mark is that of now; it stays where it stands once it is far enough.
        is_far = marks[-1].n - marks[-2].n >= self._size / WINDOW_MARKS
        marks = (*marks, now) if is_far else (*marks[:-1], now)
        while len(marks) > 2 and marks[1].n <= now.n - self._size:
            marks = marks[1:]
        self.marks = marks

    def figures(self) -> tuple[float | None, float | None]:
        """Return the share of sets that held the true class, and their mean size."""
        n, n_covered, n_in_sets = self._counts()
        return (n_covered / n, n_in_sets / n) if n else (None, None)

    def interval(self) -> tuple[float | None, float | None]:
        """Return the ends of the 95% interval of the share of sets that held the true class."""
        n, n_covered, _ = self._counts()
        return wilson(n_covered, n) if n else (None, None)

    def _counts(self) -> SetCounts:
        """Return what the window counts; the marks are read once, as they may be replaced."""
        marks = self.marks or (SetCounts(0, 0, 0),)
        return SetCounts(*(last - first for first, last in zip(marks[0], marks[-1], strict=True)))


class RunStatistics:
    """Counts what a run reads, learns and judges.

    `fields` are those that the model's groups read, `window` is the number of examples in the
    prequential window, `clock` returns monotonic seconds. `outcomes` counts messages by what became
    of them, `newest` holds the newest ones, oldest first.
    """

    def __init__(
        self,
        classes: Sequence[str],
        fields: Sequence[str],
        window: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.classes = KnownClasses.of(classes)
        self.fields = tuple(fields)
        self.prequential = Prequential(window)
        self.drift: DriftWatch | None = None
        self.n_messages = 0
        self.n_learned = 0
        self.n_learned_late = 0  # those learned after they were judged, when their label came
        self.n_judged = 0
        self.outcomes: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.ignored: Counter[str] = Counter()  # by the condition that left them out
        self.revisions: Mapping[str, int] = {}
        self.remembered = 0, 0
        self.n_untaught = 0
        self.confidence: Confidence | None = None  # the learner's, if it has any
        self.covered = CoveredWindow(window)
        self.labels: Mapping[str, int] = {}  # that came later, by what became of them
        self.learned_by_class: Counter[str] = Counter()
        self.predicted_by_class: Counter[str] = Counter()
        self.newest: deque[Judged] = deque(maxlen=_NEWEST_KEPT)
        # Of the newest by each thread: the message's number in the run, and in the low byte the
        # class. Together they are in the log's order, however the threads take turns.
        self._predicted: deque[int] = deque(maxlen=_SHARES_OVER)
        self._predicted_unlabelled: deque[int] = deque(maxlen=_SHARES_OVER)
        self._n_restored = 0
        self._clock = clock
        self._began_s = clock()
        self._first_s: float | None = None
        self._last_s = self._began_s
        self._rate = _Rate(at_s=self._began_s)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began_s

    def mean_rate_per_s(self) -> float:
        """Return messages a second, from the first that came to the last processed."""
        seconds = 0.0 if self._first_s is None else self._last_s - self._first_s
        return (self.n_messages - self._n_restored) / seconds if seconds > 0 else 0.0

    def rate_per_s(self) -> float:
        """Return messages a second, lately."""
        return self._rate.update(self.n_messages, self._clock())

    def predicted_counts(self) -> tuple[int, ...]:
        """Return how many of the newest predictions are of each class."""
        newest = sorted([*self._predicted, *self._predicted_unlabelled])[-_SHARES_OVER:]
        predicted = np.array(newest, dtype=np.intp) & _CLASS_MASK
        return tuple(np.bincount(predicted, minlength=len(self.classes)).tolist())

    def shares(self) -> tuple[float, ...]:
        """Return each class's share of the newest predictions; empty before the first."""
        counts = self.predicted_counts()
        n = sum(counts)
        return tuple(count / n for count in counts) if n else ()

    def begin(self) -> None:
        """Record that a batch came; the run's mean rate starts with the first."""
        if self._first_s is None:
            self._first_s = self._clock()

    def count(self, n: int, messages: Messages) -> None:
        """Count a processed batch of `n` messages."""
        self.n_messages += n
        self._last_s = self._clock()
        self.rejected.update(reject.reason.value for reject in messages.rejects)
        self.ignored.update(messages.ignored)
        n_learned, n_without = len(messages.to_learn), len(messages.to_predict)
        # A rejected or deleted message may have been ambiguous too; each counts in one place only.
        n_ambiguous = min(messages.n_ambiguous, n_without)
        self.outcomes.update(
            learned=n_learned,
            unlabelled=n_without - n_ambiguous,
            ambiguous=n_ambiguous,
            rejected=len(messages.rejects),
            delete=len(messages) - n_learned - n_without,
            superseded=messages.n_superseded,
            ignored=sum(messages.ignored.values()),
        )

    def revised(self, counts: Mapping[str, int], sizes: tuple[int, int]) -> None:
        """Take in what came of deletes and updates, and the memory's records and bytes."""
        self.revisions = dict(counts)
        self.remembered = sizes

    def learned(
        self,
        messages: Messages,
        rows: NDArray[np.int64],
        posteriors: NDArray[np.float64],
        truth: NDArray[np.integer],
    ) -> None:
        """Count labelled messages that were predicted and then learned."""
        self._take_losses(posteriors, truth)
        self._count_classes(self.learned_by_class, truth)
        self._remember(messages, rows, posteriors, self._predicted, self.n_messages)

    def stated_error(self) -> float | None:
        """Return how far the model's own probabilities are off; None without a calibrator."""
        calibrator = None if self.confidence is None else self.confidence.calibrator
        return None if calibrator is None else calibrator.calibration_error()

    def stated_reliability(self) -> tuple[ReliabilityBin, ...] | None:
        """Return what became of the model's own probabilities; None without a calibrator."""
        calibrator = None if self.confidence is None else self.confidence.calibrator
        return None if calibrator is None else tuple(calibrator.reliability())

    def prediction_sets(self) -> tuple[float | None, float | None]:
        """Return the share of sets that held the true class and their mean size, if there are."""
        sets = self._sets()
        return (None, None) if sets is None else (sets.covered, sets.mean_size)

    def coverage(self) -> float | None:
        """Return the share of prediction sets that is promised to hold the true class, if any."""
        sets = self._sets()
        return None if sets is None else sets.coverage

    def _sets(self) -> ConformalSets | None:
        return None if self.confidence is None else self.confidence.conformal

    def learned_late(
        self,
        posteriors: NDArray[np.float64],
        truth: NDArray[np.integer],
        confidence: Confidence | None,
        classes: Sequence[Label],
    ) -> None:
        """Count examples whose label came later, by what the model first stated of them.

        `confidence` is that of the model that answered before they were learned; `classes` are
        those that it has now.
        """
        self.classes.grow(classes)
        if confidence is not None:
            posteriors = confidence.learn(posteriors, truth)
        posteriors = impossible(posteriors)
        self._take_losses(posteriors, truth)
        self.n_learned_late += len(truth)
        self._count_classes(self.learned_by_class, truth)
        if self.drift is not None:
            self.drift.learned(posteriors, truth)

    def n_until_look(self) -> int | None:
        """Return after how many examples a call that learns must end; None if nothing asks it."""
        return None if self.drift is None else self.drift.n_until_look

    def _take_losses(self, posteriors: NDArray[np.float64], truth: NDArray[np.integer]) -> None:
        self.n_learned += len(truth)
        self.prequential.update(posteriors, truth)
        self.covered.update(self._sets())

    def _count_classes(self, counter: Counter[str], places: NDArray[np.integer]) -> None:
        classes = tuple(self.classes)
        counts = np.bincount(places, minlength=len(classes)).tolist()
        counter.update(dict(zip(classes, counts, strict=True)))

    def judged(
        self, messages: Messages, rows: NDArray[np.int64], answer: Answer, n_before: int = 0
    ) -> None:
        """Count unlabelled messages that were predicted; on the predictor thread.

        `n_before` is how many messages stand before their batch.
        """
        self.n_judged += len(rows)
        self.classes.grow(answer.classes)
        predicted = self._remember(
            messages, rows, answer.log_posteriors, self._predicted_unlabelled, n_before
        )
        self._count_classes(self.predicted_by_class, predicted)

    def _remember(
        self,
        messages: Messages,
        rows: NDArray[np.int64],
        posteriors: NDArray[np.float64],
        newest: deque[int],
        n_before: int,
    ) -> NDArray[np.intp]:
        """Keep the newest for the screen; return the predicted classes."""
        predicted = predicted_classes(posteriors)
        numbers = messages.at[rows[-_SHARES_OVER:]] + n_before
        newest.extend((numbers << _CLASS_BITS | predicted[-_SHARES_OVER:]).tolist())
        first = max(0, len(rows) - _NEWEST_A_BATCH)
        for k, envelope in enumerate(messages.envelopes(rows[first:]), first):
            c = int(predicted[k])
            self.newest.append(
                Judged(
                    time_ms=envelope.time_ms,
                    user=envelope.user,
                    text=envelope.shown,
                    label=self.classes[c],
                    probability=float(np.exp(posteriors[k, c])),
                    truth=envelope.label,
                )
            )
        return predicted

    # ---- checkpoints ---------------------------------------------------------------------------

    def learned_entry(self, *, sums: bool) -> StatisticsEntry:
        """Return the entry of the consuming thread: the prequential window, and `sums` if asked.

        A sum goes on over restarts only where all figures are to be those of the log. Else it is of
        this run: to Prometheus a counter that a kill threw back a little is one that began again.
        """

        def unpack(entry: CheckpointEntry) -> None:
            self.prequential.unpack(entry, sums=sums)
            if sums:
                values = entry.values
                self.n_messages = self._n_restored = self._rate.n = values["n_messages"]
                self.n_learned = values["n_learned"]
                self.n_learned_late = values.get("n_learned_late", 0)  # older files have none
                self.outcomes.update(values["outcomes"])
                self.rejected.update(values["rejected"])
                self.ignored.update(values.get("ignored", {}))  # 0.1.0 had none
                self.learned_by_class.update(values["learned_by_class"])
                self._predicted.extend(entry.arrays["predicted"].tolist())

        return StatisticsEntry("prequential", self._pack_learned, unpack)

    def judged_entry(self) -> StatisticsEntry:
        """Return the entry of the predictor's thread: its sums."""
        return StatisticsEntry("judged", self._pack_judged, self._unpack_judged)

    def _pack_learned(self) -> CheckpointEntry:
        window = self.prequential.pack()
        return CheckpointEntry(
            {
                **window.values,
                "n_messages": self.n_messages,
                "n_learned": self.n_learned,
                "n_learned_late": self.n_learned_late,
                "outcomes": dict(sorted(self.outcomes.items())),
                "rejected": dict(sorted(self.rejected.items())),
                "ignored": dict(sorted(self.ignored.items())),
                "learned_by_class": dict(sorted(self.learned_by_class.items())),
            },
            {**window.arrays, "predicted": np.array(self._predicted, dtype=np.int64)},
        )

    def _pack_judged(self) -> CheckpointEntry:
        by_class = dict(sorted(self.predicted_by_class.items()))
        return CheckpointEntry(
            {"n_judged": self.n_judged, "predicted_by_class": by_class},
            {"predicted": np.array(self._predicted_unlabelled, dtype=np.int64)},
        )

    def _unpack_judged(self, entry: CheckpointEntry) -> None:
        self.n_judged = entry.values["n_judged"]
        self.predicted_by_class.update(entry.values["predicted_by_class"])
        self._predicted_unlabelled.extend(entry.arrays["predicted"].tolist())


class LastMinute:
    """Counts over the last minute, a second at a time."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._seconds: deque[list[float]] = deque()  # second, offered, taken

    def add(self, now_s: float, offered: int, taken: int) -> None:
        """Count messages that were offered, and those of them that were taken."""
        second = float(int(now_s))
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
            self._trim(now_s)
        self._seconds[-1][1] += offered
        self._seconds[-1][2] += taken

    def rates(self, now_s: float) -> tuple[float, float]:
        """Return messages offered and taken a second."""
        self._trim(now_s)
        over_s = min(max(now_s - self._began_s, 1.0), float(_MINUTE_S))
        offered, taken = (sum(second[i] for second in self._seconds) / over_s for i in (1, 2))
        return offered, taken

    def pace_per_s(self, now_s: float) -> float:
        """Return messages offered a second, over the newest three, the last of which has begun."""
        first_s = int(now_s) - _PACE_OVER_S
        newest = itertools.takewhile(lambda second: second[0] > first_s, reversed(self._seconds))
        return sum(second[1] for second in newest) / _PACE_OVER_S

    def _trim(self, now_s: float) -> None:
        while self._seconds and self._seconds[0][0] <= now_s - _MINUTE_S - 1:
            self._seconds.popleft()


class _Cost(msgspec.Struct):
    """Seconds a message, over the newest measurements."""

    n: float
    seconds: float
    kept: float

    @property
    def per_message_s(self) -> float:
        return self.seconds / self.n

    def add(self, n: float, seconds: float) -> None:
        self.n = self.kept * self.n + n
        self.seconds = self.kept * self.seconds + seconds


class ProcessorBudget:
    """Turns a share of a core into messages a second; not safe for threads by itself."""

    def __init__(self, share_max: float) -> None:
        self._share_max = share_max
        self._making = _Cost(_WEIGHT, _WEIGHT * _MAKING_S, _MAKING_KEPT)
        self._writing = _Cost(_WEIGHT, _WEIGHT * _WRITING_S, _WRITING_KEPT)

    @property
    def rate_per_s(self) -> float:
        """Messages a second that may be stored."""
        cost_s = self._making.per_message_s + self._writing.per_message_s
        return max(RATE_MIN_PER_S, self._share_max / cost_s) if cost_s > 0 else math.inf

    def made(self, n: float, seconds: float) -> None:
        """Take note of the processor time that making `n` rows took."""
        self._making.add(n, seconds)

    def written(self, n: float, seconds: float, *, has_changes: bool = False) -> None:
        """Take note of the processor time of a transaction.

        Deletions and corrections are never rationed, and what they took is not told apart: with
        such changes a message is charged no more than before.
        """
        if has_changes:
            seconds = min(seconds, n * self._writing.per_message_s)
        if n:
            self._writing.add(n, seconds)


def level(counts: Sequence[int], total: float) -> float:
    """Return up to how much of each count may stay, for a total; infinite if all may.

    >>> level([5, 1000, 20], 95.0), level([5, 20], 25.0)
    (70.0, inf)
    """
    left = total
    for k, count in enumerate(sorted(counts)):
        if count * (len(counts) - k) > left:
            return left / (len(counts) - k)
        left -= count
    return math.inf
