"""What a model knows, in a form that two models can be compared by.

Counts stand by the names of what was counted, classes by their labels: neither the order in which
words came nor that of classes is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamnb.categories.state import CategoriesState
from streamnb.flags.state import FlagsState
from streamnb.groups import Floats, GroupState
from streamnb.labels import Label
from streamnb.numbers.state import NumbersState
from streamnb.reading import Readable
from streamnb.words.counted import CountedState

Key = tuple[str, ...]
Table = dict[Key, dict[Label, float]]


class Knowledge(NamedTuple):
    """A model's statistics: by group and feature, then by class.

    Attributes
    ----------
    counts : dict
        N of classes, words, values, flags; how many numbers a field had. Zeros are left out.
    means, squares : dict
        Of numbers; M2 is Σ(x − mean)².
    """

    counts: Table
    means: Table
    squares: Table


def known(model: Readable) -> Knowledge:
    """Return what a model or snapshot knows, decayed up to now."""
    scale = model._clock.scale  # noqa: SLF001 -- a law may look inside
    found = Knowledge({}, {}, {})
    _put(found.counts, ("classes",), model, model.class_counts)
    for name, state in model._groups.items():  # noqa: SLF001
        counts, means, squares = _of(state)
        for kind, table, by in zip(
            found, (counts, means, squares), (scale, 1.0, scale), strict=True
        ):
            for key, row in table.items():
                _put(kind, (name, *key), model, row / by)
    return found


def _put(table: Table, key: Key, model: Readable, row: Floats) -> None:
    by_label = {c: float(v) for c, v in zip(model.classes, row, strict=True) if v}
    if by_label:
        table[key] = by_label


Rows = dict[Key, Floats]


def _of(state: GroupState) -> tuple[Rows, Rows, Rows]:
    """Return a group's counts, means and M2, by feature."""
    if isinstance(state, CountedState):
        return _of_words(state), {}, {}
    if isinstance(state, FlagsState):
        return _of_flags(state), {}, {}
    if isinstance(state, CategoriesState):
        return _of_categories(state), {}, {}
    if isinstance(state, NumbersState):
        held = state.moments()
        n, means, squares = (_named("", state.fields, held[part]) for part in ("n", "mean", "M2"))
        return n, means, squares
    return {}, {}, {}  # a kind that is not ours: its answers are compared, and they have to do


def _named(what: str, names: Sequence[str], rows: Floats) -> Rows:
    """Return rows by name; rows there are not yet, of fields that came just now, are left out."""
    return {(what, name): row for name, row in zip(names, rows, strict=False)}


def _of_words(state: CountedState) -> Rows:
    columns = state.live_columns()
    rows = _named("word", state.vocabulary.words(columns), state.counts.by_word[columns])
    return rows | {("examples",): state.counts.examples, ("tokens",): state.counts.tokens}


def _of_flags(state: FlagsState) -> Rows:
    names, counts = state.table.names, state.counts
    rows = _named("true", names, counts.true) | _named("false", names, counts.false)
    return rows | {("examples",): counts.examples}


def _of_categories(state: CategoriesState) -> Rows:
    columns = np.flatnonzero(state.counts.by_value.any(axis=1))
    rows: Rows = {
        (field, value): row
        for (field, value), row in zip(
            state.table.values(columns), state.counts.by_value[columns], strict=True
        )
    }
    return rows | _named("seen", state.table.fields.names, state.counts.seen)
