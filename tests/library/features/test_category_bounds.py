"""A group of categories: bounds of its values, and what a frozen copy keeps."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamnb.features.categorical import Categories, CategoriesState
from tests.library.features.group_states import KEY, Example, packed, predict, teach

N_CLASSES = 3
VALUES = [None, "", "a", "b", "c", "é", "a much longer value " * 20]


def started(spec: Categories, n_classes: int = N_CLASSES) -> CategoriesState:
    """Return a group that knows nothing."""
    return spec.start("things", n_classes, KEY)


def xs() -> st.SearchStrategy[dict[str, str | None]]:
    """Draw an example."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys("pqr", st.sampled_from(VALUES)))


def streams(max_size: int) -> st.SearchStrategy[list[Example]]:
    """Draw labelled examples."""
    return st.lists(st.tuples(xs(), st.integers(0, N_CLASSES - 1)), max_size=max_size)


@given(streams(40), st.integers(1, 6), st.lists(st.integers(0, 40), max_size=4).map(sorted))
def test_values_stay_bounded(stream: list[Example], bound: int, cuts: list[int]) -> None:
    """Values never pass their bound but by one row's own; which leave does not hang on the cut."""
    spec = Categories(max_values=bound)
    whole, cut = started(spec), started(spec)
    teach(whole, stream)
    bounds = [0, *(min(c, len(stream)) for c in cuts), len(stream)]
    for a, b in itertools.pairwise(bounds):
        teach(cut, stream[a:b])
        assert cut.counts.state[0] <= max(bound, 3)
    assert packed(whole) == packed(cut)
    assert whole.n_dropped == cut.n_dropped
    by_field = whole.counts.by_value.sum(axis=0)
    assert np.array_equal(whole.counts.seen.sum(axis=0), by_field)


def test_declared_values_never_leave() -> None:
    """At the bound the values of open fields leave, and declared ones keep their counts."""
    state = started(Categories(values={"q": ["a", "b"]}, max_values=2))
    teach(state, [({"q": "a", "p": str(i)}, 0) for i in range(20)])
    assert state.counts.by_value[:2].sum() == 20
    assert state.n_dropped > 0


def test_a_crowded_table_is_made_anew() -> None:
    """After many values have left, a smaller table answers the same."""
    state = started(Categories(max_values=300))
    teach(state, [({"p": str(i % 2000), "q": str(i % 7)}, i % 3) for i in range(6000)])
    x = {"p": "1999", "q": "3"}
    before, was = predict(state, [x]), packed(state)
    columns = state.compact()
    assert columns is not None
    assert state.table.vocabulary.n_words == len(columns) <= 300
    assert packed(state) == was
    assert np.array_equal(predict(state, [x]), before)


def test_a_frozen_state_stays() -> None:
    """Later learning, of new fields and values too, does not reach a frozen copy."""
    state = started(Categories())
    teach(state, [({"p": "a"}, 0), ({"p": "b"}, 1)])
    frozen = state.frozen_copy()
    before, was = predict(frozen, [{"p": "a", "z": "q"}]), packed(frozen)
    teach(state, [({"z": "q", "p": str(i)}, 2) for i in range(3000)])
    assert np.array_equal(predict(frozen, [{"p": "a", "z": "q"}]), before)
    assert packed(frozen) == was
