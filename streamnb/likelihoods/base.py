"""What a group of words asks of its likelihood."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.kernels.layout import Counts, Rows, RowUpdates, RunOptions


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples in sparse rows, for a likelihood of words."""

    rows: Rows  # columns and their counts, row by row
    # (n,): false where the text is missing: that row says nothing in this group.
    present: NDArray[np.bool_]


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
        """Build the cache anew, after counts changed otherwise than by `run`."""

    def copy(self) -> Self:
        """Return an independent copy, for a snapshot."""


class WordLikelihood(Protocol):
    """A family for words, with its prior: a value."""

    name: ClassVar[str]

    @property
    def counts_occurrences(self) -> bool:
        """Whether a word's repetitions in a text count, unless the group says otherwise."""

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
