"""What the export holds of each kind of group: a table with a row a feature, and what it rests on.

A column of the table holds a text, or a number for each class; counts are raw, without the prior,
and decayed up to now. Estimates (all that begins with ``log_``, and what a density needs) are those
the model judges by as it stands.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.groups import GroupState
from streamnb.views import (
    BernoulliView,
    CategoriesView,
    ComplementView,
    FlagsView,
    MultinomialView,
    NumbersView,
    View,
    view_of,
)
from streamnb.views.categories import log_ratio
from streamnb.views.words import WordsView

Table = dict[str, list[str] | NDArray[np.float64]]


class GroupExport(NamedTuple):
    """One group as it is handed on.

    Attributes
    ----------
    header : dict
        Name, specification, and what concerns the group as a whole.
    table : dict of str to list of str or ndarray of shape (n_features, n_classes)
    """

    header: dict[str, Any]
    table: Table


def export_group(state: GroupState, scale: float) -> GroupExport:
    """Return what the export holds of a group."""
    view = view_of(state, scale)
    spec = state.spec.to_dict()
    header = {"name": state.name, "kind": spec["kind"], "specification": spec}
    more, table = _PARTS[type(view)](view)
    return GroupExport(header | more, table)


Parts = tuple[dict[str, Any], Table]


def _words(view: WordsView) -> tuple[dict[str, Any], Table]:
    header = {"examples": view.examples, "tokens": view.tokens}
    return header, {"word": view.names, "count": view.counts_of(view.live)}


def _multinomial(view: MultinomialView) -> Parts:
    header, table = _words(view)
    return header, table | {"log_theta": view.log_theta(view.live)}


def _bernoulli(view: BernoulliView) -> Parts:
    header, table = _words(view)
    logs = {"log_theta": view.log_theta(view.live), "log_absent": view.log_absent(view.live)}
    return header | {"is_void": view.is_void.tolist()}, table | logs


def _complement(view: ComplementView) -> Parts:
    header, table = _words(view)
    return header, table | {"score": view.log_theta(view.live)}


def _flags(view: FlagsView) -> Parts:
    places, one, other = view._tops()  # noqa: SLF001 -- a view's other half
    counts = view.state.counts
    return {}, {
        "field": [view.state.table.names[j] for j in places],
        "true": counts.true[places] / view.scale,
        "false": counts.false[places] / view.scale,
        "log_true": log_ratio(one, one + other),
        "log_false": log_ratio(other, one + other),
    }


def _categories(view: CategoriesView) -> Parts:
    fields = view._fields()
    table = view.state.table
    declared = table.declared(table.fields)
    k = view.state.counts.seen.shape[1]
    unseen = {
        field.name: log_ratio(field.unseen, field.bottoms)
        for field in fields
        if not declared[table.fields.places[field.name]]
    }
    counts = [view.state.counts.by_value[field.columns] / view.scale for field in fields]
    return {"log_unseen": unseen}, {
        "field": [field.name for field in fields for _ in field.values],
        "value": [value for field in fields for value in field.values],
        "count": np.concatenate([np.empty((0, k)), *counts]),
        "log_theta": np.concatenate([np.empty((0, k)), *(field.log_theta for field in fields)]),
    }


def _numbers(view: NumbersView) -> Parts:
    posterior = view.state.posterior(view.scale)
    is_bayes = bool(view.state.spec.likelihood.is_bayes)
    told = np.flatnonzero(posterior.speaks.any(axis=0))
    table: Table = {"field": [view.state.fields[j] for j in told.tolist()]}
    table |= {
        "n": posterior.n[:, told].T,
        "mean": posterior.mean[:, told].T,
        "m2": posterior.m2[:, told].T,
        "location": posterior.location[:, told].T,
    }
    if not is_bayes:
        return {"density": "normal"}, table | {"variance": posterior.variance[:, told].T}
    kappa = posterior.kappa[:, told]
    spread = posterior.variance[:, told] * (kappa + 1.0) / kappa
    freedom = 2.0 * posterior.shape[:, told]
    return {"density": "student_t"}, table | {"df": freedom.T, "scale_squared": spread.T}


_PARTS: dict[type[View], Any] = {
    BernoulliView: _bernoulli,
    CategoriesView: _categories,
    ComplementView: _complement,
    FlagsView: _flags,
    MultinomialView: _multinomial,
    NumbersView: _numbers,
}
