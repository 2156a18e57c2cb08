"""Counting: N_jc, N_c, N_·c and V against plain sums, and where a batch stops for want of room."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Bernoulli, Multinomial
from streamnb.features import statistics
from streamnb.kernels import counting
from streamnb.kernels.layout import Counts, RunOptions
from tests.kernels.likelihood_runs import run
from tests.kernels.rows import (
    Row,
    batch_of,
    counted_rows,
    counts_of,
    learn_rows,
    presence_rows,
    teaching_of,
)

N_WORDS = 12


def plainly(rows: list[tuple[Row | None, int]]) -> Counts:
    """Return the statistics of rows by plain sums."""
    by_word = np.zeros((N_WORDS, 3))
    examples = [0.0, 0.0, 0.0]
    for row, y in rows:
        if row is not None and y >= 0:
            examples[y] += 1
            for column, count in row.items():
                by_word[column, y] += count
    return counts_of(by_word.tolist(), examples)


def equal(one: Counts, other: Counts) -> bool:
    """Return whether two statistics are the same."""
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@given(counted_rows())
def test_counts_are_sums(rows: list[tuple[Row | None, int]]) -> None:
    """Learning counts what stands there: missing texts and rows without a label add nothing."""
    counts = statistics.empty(Counts, classes=3, columns=N_WORDS)
    batch = batch_of([row for row, _ in rows])
    teaching = teaching_of([y for _, y in rows])
    ended = learn_rows(counts, batch, teaching, 0, 1 << 62)
    assert ended == (len(rows), counting.ADDED, 0)
    assert equal(counts, plainly(rows))


@given(counted_rows(), st.integers(1, 15))
def test_v_never_passes_its_bound(rows: list[tuple[Row | None, int]], n_words_max: int) -> None:
    """A batch stops before the row that would take V past the bound, and says what it brings."""
    counts = statistics.empty(Counts, classes=3, columns=N_WORDS)
    batch = batch_of([row for row, _ in rows])
    teaching = teaching_of([y for _, y in rows])
    at, why, n_new = learn_rows(counts, batch, teaching, 0, n_words_max)
    assert equal(counts, plainly(rows[:at]))
    if why == counting.FULL:
        known = {j for row, y in rows[:at] if row is not None and y >= 0 for j in row}
        assert n_new == len((rows[at][0] or {}).keys() - known)
        assert len(known) + n_new > n_words_max
    else:
        assert at == len(rows)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Multinomial()])
@given(presence_rows(), st.integers(1, 15))
def test_both_families_stop_where_counting_does(
    likelihood: Bernoulli | Multinomial, rows: list[tuple[Row | None, int]], n_words_max: int
) -> None:
    """A kernel stops at the row at which counting alone would, and can go on from there."""
    batch, teaching = batch_of([row for row, _ in rows]), teaching_of([y for _, y in rows])
    counts, alone, whole = (statistics.empty(Counts, classes=3, columns=N_WORDS) for _ in range(3))
    estimator, other = (likelihood.estimator(None, 3) for _ in range(2))
    estimator.rebuild(counts, N_WORDS)
    other.rebuild(whole, N_WORDS)
    expected = run(other, whole, [row for row, _ in rows], [y for _, y in rows])
    out = np.zeros((len(rows), 3))

    def go_on(row: int, n_predicted: int, bound: int) -> tuple[int, int, int]:
        return estimator.run(
            counts, batch, teaching, RunOptions(row, n_predicted, True, bound), N_WORDS, out
        )

    stopped = go_on(0, 0, n_words_max)
    assert stopped == learn_rows(alone, batch, teaching, 0, n_words_max)
    assert equal(counts, alone)
    if stopped[1] == counting.FULL:
        go_on(stopped[0], stopped[0] + 1, 1 << 62)
    assert np.array_equal(out, expected)
    assert equal(counts, whole)


def test_a_row_too_large_for_an_empty_table_is_taken_whole() -> None:
    """With no word known there is nothing to drop, so one row may pass the bound."""
    counts = statistics.empty(Counts, classes=1, columns=N_WORDS)
    batch = batch_of([dict.fromkeys(range(5), 1)])
    assert learn_rows(counts, batch, teaching_of([0]), 0, 2)[1] == counting.ADDED
    assert counts.state[0] == 5


@given(counted_rows(), counted_rows())
def test_statistics_add(
    one: list[tuple[Row | None, int]], other: list[tuple[Row | None, int]]
) -> None:
    """The counts of two streams add to those of both."""
    both = plainly(one)
    statistics.add(both, plainly(other))
    statistics.recount(both)
    assert equal(both, plainly([*one, *other]))


@given(counted_rows())
def test_totals_are_sums_over_classes(rows: list[tuple[Row | None, int]]) -> None:
    """A word's total is its count over all classes, and live words are those above zero."""
    counts = plainly(rows)
    expected = counts.by_word.sum(axis=1)
    assert np.array_equal(statistics.column_totals(counts, N_WORDS), expected)
    assert statistics.live_columns(counts, N_WORDS).tolist() == np.flatnonzero(expected).tolist()
    beyond = statistics.column_totals(counts, N_WORDS + 4)
    assert beyond.tolist() == [*expected, 0, 0, 0, 0]
