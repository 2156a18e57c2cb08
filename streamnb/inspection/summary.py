"""A model of any kinds of groups at a look: what it holds of each field, what tells, and why.

Rows of values, flags and numbers are raw: without a prior, and decayed up to now. Words have
readers of their own (`Readable.words` and its neighbours). Scores are in nats.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.features.flags import FlagsState
from streamnb.features.numeric import NumbersState
from streamnb.features.protocol import Floats
from streamnb.inspection.rank import rank
from streamnb.inspection.views import view_of
from streamnb.labels import Label
from streamnb.reading import Readable


class ValueRow(NamedTuple):
    """One value of a category.

    `counts` is N_jvc, ndarray of shape (n_classes,).
    """

    group: str
    field: str
    value: str
    counts: Floats


class FlagRow(NamedTuple):
    """One flag: how often it was true and false, each an ndarray of shape (n_classes,)."""

    group: str
    field: str
    true: Floats
    false: Floats


class NumberRow(NamedTuple):
    """One field of numbers: how many there were, their mean, and M2 = Σ(x − mean)².

    Each is an ndarray of shape (n_classes,); where `n` is 0, the others are.
    """

    group: str
    field: str
    n: Floats
    mean: Floats
    m2: Floats

    @property
    def deviation(self) -> Floats:
        """√(M2/n), ndarray of shape (n_classes,); nan where n is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.sqrt(self.m2 / self.n)
        return found


def value_rows(known: Readable) -> list[ValueRow]:
    """Return all values of categories: fields by name, each one's most frequent value first.

    Examples
    --------
    >>> from streamnb import NaiveBayes
    >>> from streamnb.features.categorical import Categories
    >>> model = NaiveBayes(["yes", "no"], features={"colour": Categories(fields=["colour"])})
    >>> model.learn_one({"colour": "red"}, "no")
    >>> value_rows(model)[0].value, value_rows(model)[0].counts.tolist()
    ('red', [0.0, 1.0])
    """
    rows: list[ValueRow] = []
    for name, state in known._groups.items():  # noqa: SLF001 -- this is the model's own reading side
        if not isinstance(state, CategoriesState):
            continue
        columns = state.live_values().columns
        counts = state.counts.by_value[columns] / known._clock.scale  # noqa: SLF001
        found = [
            ValueRow(name, field, value, row)
            for (field, value), row in zip(state.table.values(columns), counts, strict=True)
        ]
        rows += sorted(found, key=lambda row: (row.field, -row.counts.sum(), row.value))
    return rows


def flag_rows(known: Readable) -> list[FlagRow]:
    """Return all flags, by group in the order of their names."""
    rows: list[FlagRow] = []
    scale = known._clock.scale  # noqa: SLF001
    for name, state in known._groups.items():  # noqa: SLF001
        if isinstance(state, FlagsState):
            counts = state.counts
            rows += [
                FlagRow(name, state.table.names[j], counts.true[j] / scale, counts.false[j] / scale)
                for j in state.live_fields().tolist()
                if j < len(counts.true)
            ]
    return rows


def number_rows(known: Readable) -> list[NumberRow]:
    """Return all fields of numbers, by group in the order of their names."""
    rows: list[NumberRow] = []
    for name, state in known._groups.items():  # noqa: SLF001
        if isinstance(state, NumbersState):
            p = state.posterior(known._clock.scale)  # noqa: SLF001
            order = state.table.order.tolist()
            rows += [
                NumberRow(name, state.fields[j], p.n[:, j], p.mean[:, j], p.m2[:, j]) for j in order
            ]
    return rows


def word_groups(known: Readable) -> list[str]:
    """Return the names of the groups of words, of text or counted already."""
    groups = known._groups.items()  # noqa: SLF001
    return [name for name, state in groups if isinstance(state, CountedState)]


def field_kinds(known: Readable) -> dict[str, str]:
    """Return the fields that are read, each with its group's kind (`words`, `numbers`, …)."""
    return {
        field: state.spec.to_dict()["kind"]
        for state in known._groups.values()  # noqa: SLF001
        for field in state.fields
    }


def n_features(known: Readable) -> int:
    """Return how many features a model knows: words, values, flags and numbers; a quick look."""
    views = (view_of(state, 1.0) for state in known._groups.values())  # noqa: SLF001
    return sum(view.n_features for view in views)


def values_dropped(known: Readable) -> int:
    """Return how many values of categories have left because their table was full."""
    states = known._groups.values()  # noqa: SLF001
    return sum(state.n_dropped for state in states if isinstance(state, CategoriesState))


def telling(known: Readable, n: int) -> dict[Label, list[tuple[str, float]]]:
    """Return the `n` most telling features of each class, the strongest first.

    The score is what a feature adds to a class's log-odds in an average example of that class, as
    in `Readable.telling_words`: θ_c·log(θ_c/θ_o) for words, values and flags, o the other classes'
    mean; for numbers, which are told with the class's mean, the mean log-likelihood ratio.

    Examples
    --------
    >>> from streamnb import NaiveBayes
    >>> from streamnb.features.flags import Flags
    >>> model = NaiveBayes(["yes", "no"], features={"signs": Flags(fields=["seen"])})
    >>> model.learn_many({"seen": [True, False]}, ["yes", "no"])
    >>> [name for name, _ in telling(model, 1)["no"]]
    ['seen=false']
    """
    views = {
        name: view_of(state, known._clock.scale)  # noqa: SLF001
        for name, state in known._groups.items()  # noqa: SLF001
    }
    means = {(row.group, row.field): row.mean for row in number_rows(known)}
    found = {}
    for c, (label, ranked) in enumerate(rank(views, known.classes, n, "contribution").items()):
        found[label] = [
            (
                f"{each.feature}≈{means[each[:2]][c]:.4g}" if each[:2] in means else each.feature,
                each.score,
            )
            for each in ranked
        ]
    return found
