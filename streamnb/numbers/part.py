"""One log's moments of a group of numbers, and what a batch of numbers is."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.fields import FieldTable
from streamnb.groups import Arrays, Floats, GroupPart, Teaching
from streamnb.kernels import moments as kernel
from streamnb.kernels.moments import Moments
from streamnb.numbers import moments


class NumberRows(NamedTuple):
    """Numbers of a call, read and checked.

    Attributes
    ----------
    names : list of str
        The fields, in alphabetical order: the one in which all sums over fields are formed.
    matrix : ndarray of shape (n, n_names), float64
        nan where a value is missing.
    """

    names: list[str]
    matrix: Floats


class NumberBatch(NamedTuple):
    """Some rows of numbers.

    Attributes
    ----------
    x : ndarray of shape (n, n_columns), float64
        nan where a value is missing.
    places : ndarray of shape (n_columns,), int64
        The place of each column's field; -1: not known, ignored.
    table : FieldTable
        As it was when the rows were read.
    names : sequence of str
        The fields of the columns.
    """

    x: Floats
    places: NDArray[np.int64]
    table: FieldTable
    names: Any


class NumbersPart(GroupPart):
    """One log's own moments.

    Attributes
    ----------
    moments : Moments
        By the group's fields, as far as there were any when it last learned.
    """

    def __init__(self, held: Moments) -> None:
        self.moments = held

    def learn(self, group: Any, batch: NumberBatch, teaching: Teaching, out: Floats) -> None:
        """Have the group judge rows to `out` and learn them; learn them here as well."""
        group.run(batch, teaching, out, learn=True)
        self.moments = moments.fitted(self.moments, self._n_classes, len(batch.table))
        kernel.learn(self.moments, batch.x, batch.places, teaching.labels, teaching.weights)

    @property
    def _n_classes(self) -> int:
        return len(self.moments.n) - 1

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew, or forget the last ones."""
        self.moments = moments.fitted(self.moments, n_classes, self.moments.n.shape[1])

    def frozen(self, group: Any) -> Self:  # noqa: ARG002 -- others share a vocabulary with it
        """Return a copy that later learning does not touch."""
        return type(self)(moments.copy(self.moments))

    def rescale(self, factor: float) -> None:
        """Multiply all weights by a power of two."""
        moments.rescale(self.moments, factor)

    def pack(self, prefix: str, shared: NDArray[np.int64]) -> Arrays:
        """Return the moments of the columns `shared`, which the group has something to tell of."""
        return moments.pack(prefix, self.moments, shared)
