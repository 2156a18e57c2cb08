"""Counts and rows made by hand, for kernels that know no text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from streamnb.features import statistics
from streamnb.kernels import counting
from streamnb.kernels.layout import Counts, Rows, RowUpdates
from streamnb.likelihoods.base import Batch

Row = Mapping[int, int]  # column → count


def batch_of(rows: Sequence[Row | None]) -> Batch:
    """Return rows as a batch; None is a text that is missing."""
    there = np.array([row is not None for row in rows], dtype=np.bool_)
    given = [dict(row or {}) for row in rows]
    return Batch(
        Rows(
            np.array([column for row in given for column in row], dtype=np.int32),
            np.array([count for row in given for count in row.values()], dtype=np.float64),
            np.cumsum([0, *map(len, given)], dtype=np.int64),
        ),
        there,
    )


def counts_of(by_word: Sequence[Sequence[float]], examples: Sequence[float]) -> Counts:
    """Return statistics from N_jc, one line a word, and N_c."""
    counts = statistics.empty(Counts, classes=len(examples), columns=max(len(by_word), 1))
    if by_word:
        counts.by_word[: len(by_word)] = by_word
    counts.examples[:] = examples
    counts.tokens[:] = counts.by_word.sum(axis=0)
    counts.state[0] = int(counts.by_word.any(axis=1).sum())
    return counts


def learn_rows(
    counts: Counts, batch: Batch, updates: RowUpdates, row: int, n_words_max: int
) -> tuple[int, int, int]:
    """Add a batch's labelled rows to some counts, as a part does."""
    return counting.add_rows(counts, batch.rows, batch.present, updates, row, n_words_max)


def labels_of(labels: Sequence[int]) -> np.ndarray:
    """Return labels as the kernels take them."""
    return np.array(labels, dtype=np.int32)


def teaching_of(labels: Sequence[int], weights: Sequence[float] = ()) -> RowUpdates:
    """Return what is to be learned of rows with these labels: each once, without decay."""
    ones = np.ones(len(labels))
    given = np.array(weights, dtype=np.float64) if len(weights) else ones
    return RowUpdates(labels_of(labels), given, ones, ones, ones)


def presence_rows(n_words: int = 12) -> st.SearchStrategy[list[tuple[Row | None, int]]]:
    """Draw rows of words that are there, each with a label, -1 for none."""
    row = st.none() | st.sets(st.integers(0, n_words - 1), max_size=6).map(
        lambda columns: dict.fromkeys(sorted(columns), 1)
    )
    return st.lists(st.tuples(row, st.integers(-1, 2)), max_size=60)


def counted_rows(n_words: int = 12) -> st.SearchStrategy[list[tuple[Row | None, int]]]:
    """Draw rows of words with how often they stand there, each with a label, -1 for none."""
    row = st.none() | st.dictionaries(st.integers(0, n_words - 1), st.integers(1, 20), max_size=6)
    return st.lists(st.tuples(row, st.integers(-1, 2)), max_size=40)
