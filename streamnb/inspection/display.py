"""How models and snapshots show themselves: one line for a prompt, a table for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import quantity
from streamnb.inspection.views import view_of
from streamnb.labels import Label

_CLASSES_MAX = 20  # shown; of more, how many there are
_STYLE = (
    "border-collapse:collapse;margin:.3em 0;color:inherit;background:transparent;"
    "font-family:inherit"
)
_CELL = "border:1px solid color-mix(in srgb,currentColor 30%,transparent);padding:.2em .6em"


def one_line(name: str, classes: Sequence[Label], n_examples: int, groups: Any) -> str:
    """Return a line: what it is, its classes, how much it has learned, its groups."""
    shown = ", ".join(map(repr, classes[:_CLASSES_MAX]))
    if len(classes) > _CLASSES_MAX:
        shown += f", … {len(classes):,} in all"
    parts = [
        f"{group}: {type(state.spec).__name__}({state.spec.likelihood!r}),"
        f" {view_of(state, 1.0).size}"
        for group, state in groups.items()
    ]
    return f"<{name} of [{shown}], {quantity(n_examples, 'example')} learned; {'; '.join(parts)}>"


def as_html(
    name: str,
    classes: Sequence[Label],
    counts: Floats,
    priors: Floats,
    n_examples: int,
    groups: Any,
) -> str:
    """Return two small tables: classes with counts and priors, and groups with likelihoods.

    All colours are the notebook's own, so that it reads in light and dark alike.
    """
    rows = [
        [repr(label), f"{count:g}", f"{prior:.4g}"]
        for label, count, prior in zip(classes, counts.tolist(), priors.tolist(), strict=True)
    ]
    more = len(rows) - _CLASSES_MAX
    if more > 0:
        rows = [*rows[:_CLASSES_MAX], [f"… and {more:,} more", "", ""]]
    own = [
        [group, type(state.spec).__name__, repr(state.spec.likelihood), view_of(state, 1.0).size]
        for group, state in groups.items()
    ]
    return (
        f'<div class="streamnb"><b>{escape(name)}</b>, {quantity(n_examples, "example")} learned'
        + _table(["class", "examples", "prior"], rows)
        + _table(["group", "kind", "likelihood", "size"], own)
        + "</div>"
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    heads = "".join(f'<th style="{_CELL}">{escape(each)}</th>' for each in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(each)}</td>' for each in row) + "</tr>"
        for row in rows
    )
    return f'<table style="{_STYLE}"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
