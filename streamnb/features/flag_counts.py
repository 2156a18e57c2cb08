"""The sufficient statistics of a group of flags, and one log's own of them.

The counts are raw: no prior is in them. Flags are kept side by side, each with its counts by class;
all statistics of a group share its field table.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.features.fields import FieldTable
from streamnb.features.protocol import Arrays, Floats, GroupPart
from streamnb.kernels.flags import Betas, FlagCounts, flags
from streamnb.kernels.posterior import DUST
from streamnb.labels import RowUpdates


class FlagBatch(NamedTuple):
    """Rows of flags.

    Attributes
    ----------
    values : ndarray of shape (n, n_fields), float64
        1, 0, or nan where a flag is missing.
    fields : FieldTable
        As they were when the rows were read.
    unknown : dict of str to float
        Flags of the first row that are there and that nobody knows.
    """

    values: Floats
    fields: FieldTable
    unknown: dict[str, float]


def empty(n_classes: int, n_fields: int) -> FlagCounts:
    """Return counts of nothing."""
    return FlagCounts(
        true=np.zeros((n_fields, n_classes)),
        false=np.zeros((n_fields, n_classes)),
        examples=np.zeros(n_classes),
    )


def sized(counts: FlagCounts, n_fields: int, n_classes: int) -> FlagCounts:
    """Return counts of at least so many fields and just so many classes; new ones are at zero."""
    n_fields = max(n_fields, len(counts.true))
    if counts.true.shape == (n_fields, n_classes):
        return counts
    other = empty(n_classes, n_fields)
    have = min(n_classes, len(counts.examples))
    other.true[: len(counts.true), :have] = counts.true[:, :have]
    other.false[: len(counts.false), :have] = counts.false[:, :have]
    other.examples[:have] = counts.examples[:have]
    return other


def copy(counts: FlagCounts) -> FlagCounts:
    """Return an independent copy."""
    return FlagCounts(*(array.copy() for array in counts))


def add(counts: FlagCounts, other: FlagCounts) -> None:
    """Add other counts of the same fields, or of the first of them, in place."""
    for array, theirs in zip(counts, other, strict=True):
        array[: len(theirs)] += theirs


def level(counts: FlagCounts, taken: FlagCounts) -> NDArray[np.bool_]:
    """Set to zero what rounding left of counts that were taken away; tell which fields went below.

    Returns
    -------
    ndarray of shape (n_fields,), bool
    """
    for array, held in zip(counts, taken, strict=True):
        array[np.abs(array) < DUST * held] = 0.0
    lowest = np.minimum(counts.true, counts.false).min(axis=1, initial=0.0)
    return np.asarray(np.minimum(lowest, counts.examples.min(initial=0.0)) < 0.0)


def rescale(counts: FlagCounts, factor: float) -> None:
    """Multiply all counts by a power of two."""
    for array in counts:
        np.multiply(array, factor, out=array)


def teach(
    counts: FlagCounts,
    betas: Betas,
    batch: FlagBatch,
    updates: RowUpdates,
    out: Floats,
    *,
    judge: bool,
    learn: bool,
) -> None:
    """Judge and learn rows; see the kernel."""
    products = np.empty((counts.true.shape[1], 2))
    flags(counts, betas, batch.fields.order, batch.values, *updates, judge, learn, products, out)


class FlagPart(GroupPart):
    """One log's counts of a group of flags."""

    def __init__(self, counts: FlagCounts) -> None:
        self.counts = counts

    def learn(self, group: Any, batch: FlagBatch, updates: RowUpdates, out: Floats) -> None:
        """Learn the flags here and in the group's sum."""
        group.run(batch, updates, out, learn=True)
        n_classes = self.counts.true.shape[1]
        self.counts = sized(self.counts, len(batch.fields), n_classes)
        teach(self.counts, group.betas, batch, updates, out, judge=False, learn=True)

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew, or forget the last ones."""
        self.counts = sized(self.counts, 0, n_classes)

    def frozen_copy(self, group: Any) -> Self:  # noqa: ARG002 -- the protocol's
        """Return a copy that later learning does not touch."""
        return type(self)(copy(self.counts))

    def rescale(self, factor: float) -> None:
        """Multiply all counts by a power of two."""
        rescale(self.counts, factor)

    def pack(self, prefix: str, shared: NDArray[np.int64]) -> Arrays:
        """Pack the counts of the fields that are in the file, in its order."""
        n_fields = int(shared.max(initial=-1)) + 1
        counts = sized(self.counts, n_fields, self.counts.true.shape[1])
        return {
            f"{prefix}/true": counts.true[shared],
            f"{prefix}/false": counts.false[shared],
            f"{prefix}/examples": counts.examples,
        }
