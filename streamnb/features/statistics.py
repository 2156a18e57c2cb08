"""The sufficient statistics of a group of words: N_jc, N_c, N_·c and V, and what is done with them.

The counts are raw: no prior is in them. All are float64, whole numbers being exact up to 2⁵³. Their
columns are those of a vocabulary that stands elsewhere, so that several statistics (one a
partition, and their sum) can share it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamnb.kernels import counting
from streamnb.kernels.layout import LIVE, Counts, Table
from streamnb.kernels.posterior import DUST
from streamnb.labels import RowUpdates
from streamnb.likelihoods.base import Batch

_FIRST_CAPACITY = 1 << 10
# Of a bound, when words must leave: rare enough that the pass over the table costs nothing.
_KEPT_SHARE = 0.75
UNBOUNDED = 1 << 62
_EXACT = 2.0**53  # below, whole numbers are themselves


def empty(n_classes: int, capacity: int = _FIRST_CAPACITY) -> Counts:
    """Return counts of nothing, with room for `capacity` words."""
    return Counts(
        by_word=np.zeros((capacity, n_classes)),
        examples=np.zeros(n_classes),
        tokens=np.zeros(n_classes),
        state=np.zeros(2, dtype=np.int64),
    )


def with_capacity(counts: Counts, capacity: int) -> Counts:
    """Return counts with room for at least `capacity` words."""
    have, n_classes = counts.by_word.shape
    if have >= capacity:
        return counts
    longer = np.zeros((capacity, n_classes))
    longer[:have] = counts.by_word
    return counts._replace(by_word=longer)


def with_classes(counts: Counts, n_classes: int) -> Counts:
    """Return counts with room for more classes, the new ones at zero, or without the last ones."""
    have = min(n_classes, len(counts.examples))
    wider = empty(n_classes, len(counts.by_word))
    wider.by_word[:, :have] = counts.by_word[:, :have]
    wider.examples[:have] = counts.examples[:have]
    wider.tokens[:have] = counts.tokens[:have]
    wider.state[:] = counts.state
    return wider


def copy(counts: Counts, n_words: int) -> Counts:
    """Return an independent copy of the first `n_words` columns."""
    return Counts(
        counts.by_word[:n_words].copy(),
        counts.examples.copy(),
        counts.tokens.copy(),
        counts.state.copy(),
    )


def word_totals(counts: Counts, n_words: int) -> NDArray[np.float64]:
    """Return each word's count over all classes, ndarray of shape (n_words,)."""
    totals = np.empty(n_words)
    counting.sum_rows(counts.by_word, min(n_words, len(counts.by_word)), totals)
    totals[len(counts.by_word) :] = 0.0
    return totals


def live_columns(counts: Counts, n_words: int) -> NDArray[np.int64]:
    """Return the columns with a count above zero, ascending."""
    return np.flatnonzero(word_totals(counts, n_words))


def take_columns(counts: Counts, columns: NDArray[np.int64]) -> Counts:
    """Return counts in which column i is the old `columns[i]`; V stays what it is."""
    by_word = np.zeros((max(len(columns), _FIRST_CAPACITY), counts.by_word.shape[1]))
    there = columns < len(counts.by_word)
    by_word[: len(columns)][there] = counts.by_word[columns[there]]
    return counts._replace(by_word=by_word)


def add(counts: Counts, other: Counts) -> None:
    """Add other counts over the same vocabulary, in place.

    Whole numbers make this exact, so that any order of adding gives the same sum.
    """
    n = min(len(counts.by_word), len(other.by_word))
    counts.by_word[:n] += other.by_word[:n]
    counts.examples[:] += other.examples
    counts.tokens[:] += other.tokens
    recount(counts)


def recount(counts: Counts) -> None:
    """Count the words above zero anew, after counts were changed otherwise than row by row."""
    counts.state[LIVE] = len(live_columns(counts, len(counts.by_word)))


def rescale(counts: Counts, factor: float) -> None:
    """Multiply all counts by a power of two; what falls below the smallest number is gone."""
    counts.by_word[:] *= factor
    counts.examples[:] *= factor
    counts.tokens[:] *= factor
    recount(counts)


def learn(
    counts: Counts, batch: Batch, updates: RowUpdates, row: int, n_words_max: int
) -> tuple[int, int, int]:
    """Add a batch's labelled rows, as `kernels.counting.add_rows` does."""
    return counting.add_rows(
        counts, batch.rows, updates.labels, updates.weights, batch.there, row, n_words_max
    )


def leaving(counts: Counts, table: Table, n_words: int, n_kept: int) -> NDArray[np.int64]:
    """Return the columns of the least useful words: all but `n_kept` of those that count.

    The rule: the word with the smallest count over all classes leaves first; of words with the same
    count, the order is that of a hash of their text, the same in every model and on every machine.
    It is a function of the counts and the words alone, whatever the order they came in.
    """
    totals = word_totals(counts, n_words)
    live = np.flatnonzero(totals)
    n_leaving = len(live) - n_kept
    if n_leaving <= 0:
        return np.empty(0, dtype=np.int64)
    totals = totals[live]
    threshold = np.partition(totals, n_leaving - 1)[n_leaving - 1]
    below = live[totals < threshold]
    tied = live[totals == threshold]
    order = np.empty(len(tied), dtype=np.uint64)
    counting.order_words(table.words, table.word_ends, tied, order)
    tied = tied[np.argsort(order, kind="stable")][: n_leaving - len(below)]
    return np.sort(np.concatenate([below, tied]))


def drop(counts: Counts, columns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Set words to zero; return what they held, ndarray of shape (n, n_classes)."""
    held = counts.by_word[columns]
    subtract_rows(counts, columns, held)
    return held


def subtract_rows(counts: Counts, columns: NDArray[np.int64], held: NDArray[np.float64]) -> None:
    """Take counts of some words away; a word at zero leaves V."""
    was = counts.by_word[columns].any(axis=1)
    counts.by_word[columns] -= held
    counts.tokens[:] = np.maximum(counts.tokens - held.sum(axis=0), 0.0)
    counts.state[LIVE] -= int(was.sum() - counts.by_word[columns].any(axis=1).sum())


def left_of(counts: NDArray[np.float64], taken: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return counts without what is taken away; what rounding alone leaves of them is nothing.

    Whole numbers leave no such rest: of them the very last one is kept, or found to be missing.
    """
    left = counts - taken
    is_whole = (left == np.rint(left)) & (taken < _EXACT)
    return np.where((np.abs(left) < DUST * taken) & ~is_whole, 0.0, left)


def kept(n_words_max: int, n_new: int) -> int:
    """Return how many words stay when `n_new` new ones must fit under the bound."""
    return max(0, min(int(n_words_max * _KEPT_SHARE), n_words_max - n_new))
