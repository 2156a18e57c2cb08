"""Statistics as arrays: taking places of an axis, against a plain twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamnb.features import statistics
from streamnb.kernels.layout import Counts

N_COLUMNS, N_CLASSES = 6, 3


def counts() -> Counts:
    """Return counts in which no two numbers are equal."""
    numbers = np.arange(1.0, N_COLUMNS * N_CLASSES + 1).reshape(N_COLUMNS, N_CLASSES)
    return Counts(
        numbers, np.array([0.5, 1.5, 2.5]), np.array([10.5, 11.5, 12.5]), np.zeros(2, np.int64)
    )


@given(
    st.lists(st.integers(-1, N_COLUMNS + 1), max_size=8)
    | st.lists(st.integers(0, N_COLUMNS - 1), max_size=8)
)
def test_rows_are_taken_and_unknown_places_are_zero(places: list[int]) -> None:
    """Row i is the old row of its place; a place that is not there gives zeros."""
    given_counts = counts()
    taken = statistics.take(given_counts, "columns", np.array(places, np.int64))
    nothing = [0.0] * N_CLASSES
    rows = given_counts.by_word.tolist()
    expected = [rows[at] if 0 <= at < N_COLUMNS else nothing for at in places]
    assert taken.by_word.tolist() == expected
    assert taken.by_word.flags.c_contiguous
    assert taken.examples is given_counts.examples


@given(
    st.lists(st.integers(-1, N_CLASSES), max_size=4)
    | st.lists(st.integers(0, N_CLASSES - 1), max_size=4)
)
def test_classes_are_taken_from_every_array_that_has_them(places: list[int]) -> None:
    """Each array with an axis of classes has the old class of each place, or zeros."""
    given_counts = counts()
    taken = statistics.take(given_counts, "classes", np.array(places, np.int64))
    for name in ("by_word", "examples", "tokens"):
        columns = getattr(given_counts, name).T.tolist()
        own = getattr(taken, name)
        none = 0.0 if own.ndim == 1 else [0.0] * N_COLUMNS
        assert own.T.tolist() == [columns[at] if 0 <= at < N_CLASSES else none for at in places]
        assert own.flags.c_contiguous
