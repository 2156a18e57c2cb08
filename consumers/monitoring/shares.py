"""The share of each class in a set of messages: as counted, and corrected or why it is not.

Search results, live queries and metrics ask here, so that they say the same.

Error rates are those of the messages in question. For the stream as a whole they are measured over
the prequential window. Messages that were searched for have others, because the classifier reads
the very words that they were found by; for these the error rates are measured on those of them that
came with a label, and where there are too few, no corrected share is said.
`streamnb.prevalence` has the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from streamnb.prevalence import Quantifier

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Share:
    """A corrected share with the ends of its error bar, all from 0 to 1."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ShareReport:
    """The classes' shares in a set of messages.

    Attributes
    ----------
    n : int
        Messages counted.
    enough : bool
        Whether these are as many as `messages_min`.
    messages_min : int
    counts : mapping of str to int
        Predictions by class.
    raw : mapping of str to (float or None)
        Their shares; None where there are no messages.
    corrected : mapping of str to Share or None
        The shares with the classifier's own mistakes taken out.
    corrected_reason : str or None
        Why there are none, in a sentence.
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

    Parameters
    ----------
    classes : sequence of str
    confusion : array_like of shape (n_classes, n_classes)
        Of the stream: row the true class, column the predicted one, of the newest examples.
    messages_min : int
        Below so many messages a share would be mostly chance.

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

    def __init__(self, classes: Sequence[str], confusion: ArrayLike, messages_min: int) -> None:
        self.classes = tuple(classes)
        self.messages_min = messages_min
        self._quantifier = Quantifier(confusion, LEVEL, classes=self.classes)

    @classmethod
    def unknown(cls, classes: Sequence[str], messages_min: int) -> Shares:
        """Return the value before the first example: it corrects no share."""
        return cls(classes, np.zeros((len(classes), len(classes))), messages_min)

    def of_stream(self, counts: Sequence[int]) -> ShareReport:
        """Return the shares in all messages of the stream, or in an even sample of it.

        Parameters
        ----------
        counts : sequence of int, of length n_classes
            How many were predicted to be of each class.
        """
        return self._report(counts, self._quantifier)

    def of(self, counts: Sequence[int], confusion: ArrayLike | None = None) -> ShareReport:
        """Return the shares in messages selected by words, language or the like.

        Parameters
        ----------
        counts : sequence of int, of length n_classes
            How many were predicted to be of each class.
        confusion : array_like of shape (n_classes, n_classes), optional
            Of those among them that came with a label: row the label, column what was predicted.
            None where nobody counted that: then no share is corrected.
        """
        if confusion is None:
            confusion = np.zeros((len(self.classes), len(self.classes)))
        return self._report(counts, Quantifier(confusion, LEVEL, classes=self.classes))

    def _report(self, counts: Sequence[int], quantifier: Quantifier) -> ShareReport:
        n = sum(counts)
        reason, corrected = self._too_few(n), None
        if reason is None:
            corrected, reason = self._corrected(counts, quantifier)
        by_class = dict(zip(self.classes, counts, strict=True))
        return ShareReport(
            n=n,
            enough=n >= self.messages_min,
            messages_min=self.messages_min,
            counts=by_class,
            raw={label: count / n if n else None for label, count in by_class.items()},
            corrected=corrected,
            corrected_reason=reason,
        )

    def _too_few(self, n: int) -> str | None:
        if n >= self.messages_min:
            return None
        many = "is 1 message" if n == 1 else f"are {n} messages"
        return f"There {many}; a share is said from {self.messages_min} on."

    def _corrected(
        self, counts: Sequence[int], quantifier: Quantifier
    ) -> tuple[dict[str, Share] | None, str | None]:
        found = quantifier.adjust(counts)
        if found.shares is None or found.low is None or found.high is None:
            return None, found.reason
        ends = zip(found.shares.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
        return dict(zip(self.classes, (Share(*each) for each in ends), strict=True)), None
