"""What a run has seen so far: the figures behind metrics, screens and the summary.

The consuming thread counts what it read and learned, the predictor thread what it judged; each
figure has one writing thread.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consumers.messages import KnownClasses, Messages
from consumers.monitoring.prequential import Prequential, predicted_classes
from consumers.monitoring.status import Judged
from streamnb import Answer

_NEWEST_KEPT = 40
_NEWEST_A_BATCH = 6
_SHARES_OVER = 2_000  # newest predictions
_RATE_OVER_S = 1.0


@dataclass(slots=True)
class _Rate:
    """Messages a second, over the last stretch of about a second."""

    n: int = 0
    at_s: float = 0.0
    per_s: float = 0.0

    def update(self, n: int, now_s: float) -> float:
        if now_s - self.at_s >= _RATE_OVER_S:
            self.per_s = (n - self.n) / (now_s - self.at_s)
            self.n, self.at_s = n, now_s
        return self.per_s


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
        self.n_messages = 0
        self.n_learned = 0
        self.n_judged = 0
        self.outcomes: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.learned_by_class: Counter[str] = Counter()
        self.predicted_by_class: Counter[str] = Counter()
        self.newest: deque[Judged] = deque(maxlen=_NEWEST_KEPT)
        self._predicted: deque[int] = deque(maxlen=_SHARES_OVER)
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
        return self.n_messages / seconds if seconds > 0 else 0.0

    def rate_per_s(self) -> float:
        """Return messages a second, lately."""
        return self._rate.update(self.n_messages, self._clock())

    def predicted_counts(self) -> tuple[int, ...]:
        """Return how many of the newest predictions are of each class."""
        predicted = np.array(list(self._predicted), dtype=np.intp)
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
        n_learned, n_without = len(messages.to_learn), len(messages.to_predict)
        # A rejected or deleted message may have been ambiguous too; each counts in one place only.
        n_ambiguous = min(messages.n_ambiguous, n_without)
        self.outcomes.update(
            learned=n_learned,
            unlabelled=n_without - n_ambiguous,
            ambiguous=n_ambiguous,
            rejected=len(messages.rejects),
            delete=len(messages) - n_learned - n_without,
        )

    def learned(
        self,
        messages: Messages,
        rows: NDArray[np.int64],
        posteriors: NDArray[np.float64],
        truth: NDArray[np.integer],
    ) -> None:
        """Count labelled messages that were predicted and then learned."""
        self.n_learned += len(rows)
        self.prequential.update(posteriors, truth)
        self._count_classes(self.learned_by_class, truth)
        self._remember(messages, rows, posteriors)

    def _count_classes(self, counter: Counter[str], places: NDArray[np.integer]) -> None:
        classes = tuple(self.classes)
        counts = np.bincount(places, minlength=len(classes)).tolist()
        counter.update(dict(zip(classes, counts, strict=True)))

    def judged(self, messages: Messages, rows: NDArray[np.int64], answer: Answer) -> None:
        """Count unlabelled messages that were predicted; on the predictor thread."""
        self.n_judged += len(rows)
        self.classes.grow(answer.classes)
        predicted = self._remember(messages, rows, answer.log_posteriors)
        self._count_classes(self.predicted_by_class, predicted)

    def _remember(
        self, messages: Messages, rows: NDArray[np.int64], posteriors: NDArray[np.float64]
    ) -> NDArray[np.intp]:
        """Keep the newest for the screen; return the predicted classes."""
        predicted = predicted_classes(posteriors)
        self._predicted.extend(predicted[-_SHARES_OVER:].tolist())
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
