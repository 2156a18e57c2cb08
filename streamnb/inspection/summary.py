"""A summary of a model with any kinds of groups: its statistics by field, and its top features.

Statistics of values, flags and numbers are raw: without a prior, and decayed up to now. Words have
methods of the model (`words`, `word_counts`, …).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamnb.features.protocol import Floats
from streamnb.inspection.categorical import CategoriesView, FlagsView
from streamnb.inspection.numeric import NumbersView
from streamnb.inspection.rank import rank
from streamnb.inspection.views import views_of
from streamnb.inspection.words import WordsView
from streamnb.labels import Label
from streamnb.state import ModelState


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

    Each is an ndarray of shape (n_classes,); if `n` is 0, the others are 0 as well.
    """

    group: str
    field: str
    n: Floats
    mean: Floats
    m2: Floats

    @property
    def deviation(self) -> Floats:
        """√(M2/n), ndarray of shape (n_classes,); nan if n is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found: Floats = np.sqrt(self.m2 / self.n)
        return found


def value_rows(state: ModelState) -> list[ValueRow]:
    """Return all values of categories: fields by name, the most frequent value of each first.

    Examples
    --------
    >>> from streamnb import NaiveBayes
    >>> from streamnb.features.categorical import Categories
    >>> model = NaiveBayes(["yes", "no"], features={"colour": Categories(fields=["colour"])})
    >>> model.learn_one({"colour": "red"}, "no")
    >>> value_rows(model.state)[0].value, value_rows(model.state)[0].counts.tolist()
    ('red', [0.0, 1.0])
    """
    rows: list[ValueRow] = []
    for group, view in views_of(state).items():
        if isinstance(view, CategoriesView):
            columns = view.state.live_values().columns
            counts = view.state.counts.by_value[columns] / view.scale
            found = [
                ValueRow(group, field, value, row)
                for (field, value), row in zip(
                    view.state.table.values(columns), counts, strict=True
                )
            ]
            rows += sorted(found, key=lambda row: (row.field, -row.counts.sum(), row.value))
    return rows


def flag_rows(state: ModelState) -> list[FlagRow]:
    """Return all flags, by group in the order of their names."""
    rows: list[FlagRow] = []
    for group, view in views_of(state).items():
        if isinstance(view, FlagsView):
            counts, names = view.state.counts, view.state.table.names
            rows += [
                FlagRow(group, names[j], counts.true[j] / view.scale, counts.false[j] / view.scale)
                for j in view.state.live_fields().tolist()
                if j < len(counts.true)
            ]
    return rows


def number_rows(state: ModelState) -> list[NumberRow]:
    """Return all fields of numbers, by group in the order of their names."""
    rows: list[NumberRow] = []
    for group, view in views_of(state).items():
        if isinstance(view, NumbersView):
            p, fields = view.state.posterior(view.scale), view.state.fields
            rows += [
                NumberRow(group, fields[j], p.n[:, j], p.mean[:, j], p.m2[:, j])
                for j in view.state.table.order.tolist()
            ]
    return rows


def word_groups(state: ModelState) -> list[str]:
    """Return the names of the groups of words: of text, and of words that come counted."""
    return [name for name, view in views_of(state).items() if isinstance(view, WordsView)]


def field_kinds(state: ModelState) -> dict[str, str]:
    """Return the fields that the model reads, each with the kind of its group (`words`, …)."""
    return {
        field: view.state.spec.to_dict()["kind"]
        for view in views_of(state).values()
        for field in view.state.fields
    }


def n_features(state: ModelState) -> int:
    """Return how many features a model has: words, values, flags and numbers."""
    return sum(view.n_features for view in views_of(state).values())


def values_dropped(state: ModelState) -> int:
    """Return how many values of categories were dropped because their table was full."""
    views = views_of(state).values()
    return sum(view.state.n_dropped for view in views if isinstance(view, CategoriesView))


def top_features(state: ModelState, n: int) -> dict[Label, list[tuple[str, float]]]:
    """Return the `n` features that speak most for each class, with their scores, highest first.

    The score is what a feature adds on average to the log-odds of an example of the class, in nats;
    see `rank`. Numbers are shown with the class's mean.

    Examples
    --------
    >>> from streamnb import NaiveBayes
    >>> from streamnb.features.flags import Flags
    >>> model = NaiveBayes(["yes", "no"], features={"signs": Flags(fields=["seen"])})
    >>> model.learn_many({"seen": [True, False]}, ["yes", "no"])
    >>> [name for name, _ in top_features(model.state, 1)["no"]]
    ['seen=false']
    """
    means = {(row.group, row.field): row.mean for row in number_rows(state)}
    found = {}
    ranked = rank(views_of(state), state.classes, n, "contribution")
    for c, (label, features) in enumerate(ranked.items()):
        found[label] = [
            (
                f"{each.feature}≈{means[each[:2]][c]:.4g}" if each[:2] in means else each.feature,
                each.score,
            )
            for each in features
        ]
    return found
