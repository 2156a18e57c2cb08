"""What a group of words, and one of numbers, asks of its likelihood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import Kind
from streamnb.kernels.gaussian import Moments
from streamnb.kernels.layout import I64, Counts, Rows, RowUpdates, RunOptions


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples in sparse rows, for a likelihood of words."""

    rows: Rows  # columns and their counts, row by row
    # (n,): false where the text is missing: that row says nothing in this group.
    present: NDArray[np.bool_]


def of_others(values: NDArray[np.float64], combine: np.ufunc) -> NDArray[np.float64]:
    """Return for each class the values of all other classes, combined; both (n_classes, n).

    Those before a class and those behind it are combined, each once for all classes. Taking a
    class's own value out of the total would lose the others where it is almost all of it. Of one
    class there are no others, and nothing is returned.
    """
    before = combine.accumulate(values[:-1], axis=0)
    behind = combine.accumulate(values[:0:-1], axis=0)[::-1]
    between = combine(before[:-1], behind[1:])
    return np.concatenate([behind[:1], between, before[-1:]])


def take_rows(rows: Rows, chosen: NDArray[np.int64]) -> Rows:
    """Return some rows."""
    sizes = np.diff(rows.indptr)[chosen]
    ends = np.concatenate(([0], np.cumsum(sizes)))
    at = np.arange(ends[-1]) + np.repeat(rows.indptr[chosen] - ends[:-1], sizes)
    return Rows(rows.columns[at], rows.counts[at], ends)


@dataclass(frozen=True, slots=True)
class BatchToUnlearn(Batch):
    """Rows to be taken back, looked up in the vocabulary and never entered into it.

    The column of a word that the vocabulary lacks is -1.
    """

    word: Callable[[int], str]  # returns the text of an entry, for an error


class Estimator(Protocol):
    """Reads and teaches counts. Whatever it caches is a pure function of them."""

    def run(
        self,
        counts: Counts,
        batch: Batch,
        updates: RowUpdates,
        options: RunOptions,
        n_words: int,
        out: NDArray[np.float64],
    ) -> tuple[int, int, int]:
        """Add each row's log-likelihood to `out` (n, n_classes), then learn the row.

        `n_words` columns may have counts. Returns where it stopped, why (`kernels.counting.ADDED`,
        `FULL`) and how many new words that row has.
        """

    def rebuild(self, counts: Counts, n_words: int) -> None:
        """Rebuild the cache, after counts changed otherwise than by `run`."""

    def copy(self) -> Self:
        """Return an independent copy, for a snapshot."""


class WordLikelihood(Protocol):
    """A family for words, with its prior: a value."""

    name: ClassVar[str]

    @property
    def counts_occurrences(self) -> bool:
        """Whether a word's repetitions in a text count, unless the group says otherwise."""

    @property
    def leaves_prior_out(self) -> bool:
        """Whether a model of such groups alone answers without its class prior."""

    def estimator(self, n_declared: int | None, n_classes: int) -> Estimator:
        """Return a new estimator.

        Parameters
        ----------
        n_declared : int or None
            The size of the declared dictionary; None where words come as they please.
        n_classes : int

        Raises
        ------
        InputError
            Where the prior does not fit them.
        """

    def log_theta(
        self, counts: Counts, columns: NDArray[np.int64], n_declared: int | None, scale: float
    ) -> NDArray[np.float64]:
        """Return log θ_jc of columns, ndarray of shape (n, n_classes); priors times `scale`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the prior for the model's header."""


class NumberEstimator(Protocol):
    """Predicts from moments, and teaches them. Whatever it caches is a pure function of them."""

    def run(
        self,
        held: Moments,
        x: NDArray[np.float64],
        places: I64,
        updates: RowUpdates,
        out: NDArray[np.float64],
        *,
        learn: bool,
    ) -> None:
        """Add each row's log-likelihood to `out` (n, n_classes), then learn it if it has a label.

        `x` has shape (n, len(places)), nan where a number is missing; `places` are the fields'
        columns in `held`, -1 for one that is not there. `held` is the group's or a part's.
        """


class NumberLikelihood(Protocol):
    """A likelihood of numbers, with its prior: a value. What it keeps of a field are moments."""

    name: ClassVar[str]
    kind: ClassVar[Kind]  # which values a field may have

    def estimator(self, n_fields: int, n_classes: int, *, is_open: bool) -> NumberEstimator:
        """Return a new estimator; `is_open` says that fields come as they please.

        Raises
        ------
        InputError
            Where the prior does not fit them.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return the likelihood and its prior for the model's header."""
