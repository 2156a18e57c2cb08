"""The sufficient statistics of a group of categories: N_jvc, N_jc and e_j, and their uses.

The counts are raw: no prior is in them. Their columns and fields are those of a vocabulary and a
field table that stand elsewhere, so that several statistics (one a part, and their sum) share them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.features import statistics
from streamnb.features.category_values import ValueTable
from streamnb.kernels import counting
from streamnb.kernels.categorical import ValueCounts
from streamnb.kernels.layout import Counts
from streamnb.kernels.posterior import DUST

Floats = NDArray[np.float64]


def empty(n_classes: int, capacity: int = 0, n_fields: int = 0) -> ValueCounts:
    """Return counts of nothing, with room for so many values and fields."""
    return ValueCounts(
        by_value=np.zeros((capacity, n_classes)),
        seen=np.zeros((n_fields, n_classes)),
        n_values=np.zeros(n_fields, dtype=np.int64),
        state=np.zeros(1, dtype=np.int64),
    )


def with_room(counts: ValueCounts, capacity: int, n_fields: int) -> ValueCounts:
    """Return counts with room for at least so many values and fields."""
    return counts._replace(
        by_value=_longer(counts.by_value, capacity),
        seen=_longer(counts.seen, n_fields),
        n_values=_longer(counts.n_values, n_fields),
    )


def _longer(array: NDArray[Any], size: int) -> NDArray[Any]:
    if len(array) >= size:
        return array
    longer = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def with_classes(counts: ValueCounts, n_classes: int) -> ValueCounts:
    """Return counts of more classes, the new ones at zero, or without the last ones."""
    wider = empty(n_classes, len(counts.by_value), len(counts.seen))
    have = min(n_classes, counts.seen.shape[1])
    wider.by_value[:, :have] = counts.by_value[:, :have]
    wider.seen[:, :have] = counts.seen[:, :have]
    return wider._replace(n_values=counts.n_values, state=counts.state)


def copy(counts: ValueCounts, n_columns: int) -> ValueCounts:
    """Return an independent copy of the first `n_columns` values."""
    return ValueCounts(
        counts.by_value[:n_columns].copy(),
        counts.seen.copy(),
        counts.n_values.copy(),
        counts.state.copy(),
    )


def live_columns(counts: ValueCounts) -> NDArray[np.int64]:
    """Return the columns with a count above zero, ascending."""
    totals = np.empty(len(counts.by_value))
    counting.sum_rows(counts.by_value, len(totals), totals)
    return np.flatnonzero(totals)


def recount(counts: ValueCounts, table: ValueTable) -> None:
    """Count the values of each field anew, after counts changed otherwise than row by row."""
    n = len(counts.n_values)
    counts.n_values[:] = np.bincount(table.field_of[live_columns(counts)], minlength=n)
    is_open = table.declared(table.fields)[:n] == 0
    counts.state[0] = counts.n_values[: len(is_open)][is_open].sum()


def settle(counts: ValueCounts, table: ValueTable) -> None:
    """Make N_jc the sum of N_jvc again, and recount, after counts of values were taken away.

    Whole numbers stay what they are; of others, no rest is left where all values have gone.
    """
    live = live_columns(counts)
    field_of = table.field_of
    for c in range(counts.seen.shape[1]):
        counts.seen[:, c] = np.bincount(
            field_of[live], weights=counts.by_value[live, c], minlength=len(counts.seen)
        )
    recount(counts, table)


def add(counts: ValueCounts, other: ValueCounts) -> None:
    """Add other counts over the same columns, in place; `recount` is due afterwards."""
    counts.by_value[: len(other.by_value)] += other.by_value
    counts.seen[: len(other.seen)] += other.seen


def rescale(counts: ValueCounts, table: ValueTable, factor: float) -> None:
    """Multiply all counts by a power of two; what falls below the smallest number is gone."""
    counts.by_value[:] *= factor
    counts.seen[:] *= factor
    recount(counts, table)


def take_columns(counts: ValueCounts, columns: NDArray[np.int64], capacity: int) -> ValueCounts:
    """Return counts in which column i is the old `columns[i]`."""
    by_value = np.zeros((capacity, counts.by_value.shape[1]))
    there = columns < len(counts.by_value)
    by_value[: len(columns)][there] = counts.by_value[columns[there]]
    return counts._replace(by_value=by_value)


def drop(counts: ValueCounts, table: ValueTable, n_kept: int) -> tuple[NDArray[np.int64], Floats]:
    """Let the least useful values leave, down to `n_kept`; return which, and what they held.

    The rule is the words' (`statistics.leaving`). Declared values, the first columns, stay.
    """
    n_declared = table.n_declared
    texts = table.vocabulary.table
    nothing = np.zeros(0)
    none = np.zeros(0, dtype=np.int64)
    begin = int(texts.word_ends[n_declared - 1]) if n_declared else 0
    texts = texts._replace(
        words=texts.words[begin:], word_ends=texts.word_ends[n_declared:] - begin
    )
    undeclared = Counts(counts.by_value[n_declared:], nothing, nothing, none)
    n_columns = table.vocabulary.n_words - n_declared
    columns = statistics.leaving(undeclared, texts, n_columns, n_kept) + n_declared
    held = counts.by_value[columns]
    counts.by_value[columns] = 0.0
    settle(counts, table)
    return columns, held


def take_away(counts: ValueCounts, columns: NDArray[np.int64], held: Floats) -> None:
    """Take counts of some values away; `settle` is due."""
    left = counts.by_value[columns] - held
    left[np.abs(left) < DUST * np.abs(held)] = 0.0  # what rounding left of fractional weights
    counts.by_value[columns] = left
