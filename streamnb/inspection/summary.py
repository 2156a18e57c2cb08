"""A model at a glance: statistics by field, top features, how it shows itself.

Statistics of values, flags and numbers are raw: without a prior, and decayed up to now. Words have
methods of the model (`words`, `word_counts`, …).
"""

from __future__ import annotations

from html import escape
from typing import NamedTuple

import numpy as np

from streamnb.features.protocol import Floats
from streamnb.inspection.categorical import CategoriesView, FlagsView
from streamnb.inspection.explain import rank
from streamnb.inspection.group_view import quantity, view_of, views_of
from streamnb.inspection.numeric import NumbersView
from streamnb.labels import Label
from streamnb.predict import log_class_priors
from streamnb.state import ModelState

_CLASSES_MAX = 20  # shown; of more, how many there are
_STYLE = (
    "border-collapse:collapse;margin:.3em 0;color:inherit;background:transparent;"
    "font-family:inherit"
)
_CELL = "border:1px solid color-mix(in srgb,currentColor 30%,transparent);padding:.2em .6em"


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


def field_kinds(state: ModelState) -> dict[str, str]:
    """Return the fields that the model reads, each with the kind of its group (`words`, …).

    Those of categories in bins are `numbers`.
    """
    found: dict[str, str] = {}
    for view in views_of(state).values():
        spec = view.state.spec.to_dict()
        kind = "numbers" if spec.get("bins") is not None else spec["kind"]
        found |= dict.fromkeys(view.state.fields, kind)
    return found


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


# ---- for a prompt and a notebook ----------------------------------------------------------------


def one_line(name: str, state: ModelState) -> str:
    """Return a line: what it is, its classes, how much it has learned, its groups."""
    shown = ", ".join(map(repr, state.classes[:_CLASSES_MAX]))
    if len(state.classes) > _CLASSES_MAX:
        shown += f", … {len(state.classes):,} in all"
    groups = "; ".join(
        f"{group}: {kind}({likelihood}), {size}" for group, kind, likelihood, size in _groups(state)
    )
    return f"<{name} of [{shown}], {quantity(state.n_examples, 'example')} learned; {groups}>"


def _groups(state: ModelState) -> list[list[str]]:
    """Return each group's name, kind, likelihood and size."""
    return [
        [name, type(group.spec).__name__, repr(group.spec.likelihood), view_of(group, 1.0).size]
        for name, group in state.groups.items()
    ]


def as_html(name: str, state: ModelState) -> str:
    """Return two small tables: classes with counts and priors, and groups with likelihoods.

    All colours are the notebook's own, so that it reads in light and dark alike.
    """
    counts = (state.class_counts / state.clock.scale).tolist()
    priors = np.exp(log_class_priors(state)).tolist()
    rows = [
        [repr(label), f"{count:g}", f"{prior:.4g}"]
        for label, count, prior in zip(state.classes, counts, priors, strict=True)
    ]
    more = len(rows) - _CLASSES_MAX
    if more > 0:
        rows = [*rows[:_CLASSES_MAX], [f"… and {more:,} more", "", ""]]
    learned = quantity(state.n_examples, "example")
    return (
        f'<div class="streamnb"><b>{escape(name)}</b>, {learned} learned'
        + _table(["class", "examples", "prior"], rows)
        + _table(["group", "kind", "likelihood", "size"], _groups(state))
        + "</div>"
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    heads = "".join(f'<th style="{_CELL}">{escape(each)}</th>' for each in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(each)}</td>' for each in row) + "</tr>"
        for row in rows
    )
    return f'<table style="{_STYLE}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
