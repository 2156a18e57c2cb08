"""How models and snapshots show themselves: one line for a prompt, a table for a notebook."""

from __future__ import annotations

from html import escape

import numpy as np

from streamnb.inspection.group_view import quantity
from streamnb.inspection.views import view_of
from streamnb.predict import log_class_priors
from streamnb.state import ModelState

_CLASSES_MAX = 20  # shown; of more, how many there are
_STYLE = (
    "border-collapse:collapse;margin:.3em 0;color:inherit;background:transparent;"
    "font-family:inherit"
)
_CELL = "border:1px solid color-mix(in srgb,currentColor 30%,transparent);padding:.2em .6em"


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
