"""A model at a glance: statistics by field, top features, how it shows itself, and its digest.

Statistics of values, flags and numbers are raw: without a prior, and decayed up to now. Words have
methods of the model (`words`, `word_counts`, …). The digest is of all counts by names instead of
places: two models that counted the same have the same, whatever the order in which words and
classes came.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_bool, check_kind
from streamnb.features import statistics
from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.features.fields import FieldsState
from streamnb.features.numeric import NumbersState
from streamnb.features.protocol import Floats, GroupState
from streamnb.inspection.categorical import CategoriesView, FlagsView
from streamnb.inspection.explain import rank
from streamnb.inspection.group_view import quantity, view_of, views_of
from streamnb.kernels.gaussian import Moments
from streamnb.labels import Label
from streamnb.predict import log_class_priors
from streamnb.state import ModelState
from streamnb.vocabulary import Vocabulary

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


class CategoryRow(NamedTuple):
    """One field of categories: in how many examples it was, and its most frequent values.

    `seen` is N_jc, ndarray of shape (n_classes,); `n_values` counts all values, listed or not.
    """

    group: str
    field: str
    n_values: int
    seen: Floats
    values: list[ValueRow]


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


def category_rows(state: ModelState, n_max: int) -> list[CategoryRow]:
    """Return the fields of categories, each with its `n_max` most frequent values at most.

    Only these are read as text, so that a field of a million values takes milliseconds.

    Examples
    --------
    >>> from streamnb import NaiveBayes
    >>> from streamnb.features.categorical import Categories
    >>> model = NaiveBayes(["yes", "no"], features={"colour": Categories(fields=["colour"])})
    >>> model.learn_many({"colour": ["red", "blue", "red"]}, ["no", "yes", "no"])
    >>> (row,) = category_rows(model.state, 1)
    >>> row.n_values, row.seen.tolist(), [(each.value, each.counts.tolist()) for each in row.values]
    (2, [1.0, 2.0], [('red', [0.0, 2.0])])
    """
    rows: list[CategoryRow] = []
    for group, view in views_of(state).items():
        if not isinstance(view, CategoriesView):
            continue
        table, counts = view.state.table, view.state.counts
        live = view.state.live_values()
        of_column = table.field_of[live.columns]
        for j in live.fields.tolist():
            if j >= len(counts.seen):
                continue
            columns = live.columns[of_column == j]
            by_value = counts.by_value[columns] / view.scale
            order = np.argsort(-by_value.sum(axis=1), kind="stable")[:n_max]
            names = table.values(columns[order])
            values = [
                ValueRow(group, field, value, row)
                for (field, value), row in zip(names, by_value[order], strict=True)
            ]
            name = table.fields.names[j]
            seen = counts.seen[j] / view.scale
            rows.append(CategoryRow(group, name, len(columns), seen, values))
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
        if isinstance(view.state, NumbersState):
            held, fields = view.state.moments(), view.state.fields
            n, mean, m2 = held["n"] / view.scale, held["mean"], held["M2"] / view.scale
            rows += [
                NumberRow(group, fields[j], n[j], mean[j], m2[j])
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
                f"{each.feature}≈{float(f'{means[each[:2]][c]:.4g}'):.15g}"
                if each[:2] in means
                else each.feature,
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


# ---- counts by name, and their digest ------------------------------------------------------------


class CountsByName(NamedTuple):
    """One statistic of a group with names for its rows and columns, in the order of the names.

    Rows and columns of nothing are left out, so it does not matter in which order words and classes
    came, nor which have been at zero.

    Attributes
    ----------
    group, statistic : str
        Such as `"text"` and `"by_word"`; the group of the class counts is empty.
    names : list of bytes
        What each row counts: a word, a field, or a field and a value with a NUL between them. Of a
        value of more than 200 bytes, which is not kept whole, what is kept of it.
    classes : list of str
        The classes as JSON; `null` where the column is of all classes together.
    values : ndarray of shape (n_names, n_classes)
    """

    group: str
    statistic: str
    names: list[bytes]
    classes: list[str]
    values: Floats


class CountDifference(NamedTuple):
    """A count in which two models differ; `statistic` and `name` as in `CountsByName`."""

    group: str
    statistic: str
    name: str
    label: str
    first: float
    second: float


def digest(state: ModelState, part: str | None = None, *, moments: bool = True) -> str:
    """Return the SHA-256 of what was counted, in hexadecimal; see `ModelReader.digest`."""
    check_bool("moments", moments)
    clock = state.clock
    head = {"streamnb counts": 1, "landmark": clock.landmark if clock.half_life else None}
    found = hashlib.sha256(json.dumps(head).encode())
    for each in counts_by_name(state, part, moments=moments):
        shape = [each.group, each.statistic, each.classes, len(each.names)]
        found.update(json.dumps(shape, ensure_ascii=False).encode("utf-8", "replace"))
        found.update(np.array([len(name) for name in each.names], "<u8").tobytes())
        found.update(b"".join(each.names))
        found.update(np.ascontiguousarray(each.values, "<f8").data)
    return found.hexdigest()


def counts_by_name(
    state: ModelState, part: str | None = None, *, moments: bool = True
) -> Iterator[CountsByName]:
    """Yield all statistics of a model, or of one of its parts, group by group by name.

    Of numbers n, mean and M2 are yielded as they are kept, in two floats each; without `moments` n
    alone, which is counted.
    """
    if part is not None:
        check_kind("part", part, str)
    if part is not None and part not in state.parts:
        raise InputError(
            f"part {part!r}: this model has no such part. It has"
            f" {', '.join(state.parts) or 'none'}."
        )
    own = None if part is None else state.parts[part]
    labels = [json.dumps(label, ensure_ascii=False) for label in state.classes]
    order = np.array(sorted(range(len(labels)), key=labels.__getitem__), np.int64)
    class_counts = (state if own is None else own).class_counts.reshape(1, -1)
    yield _by_name("", "classes", [b""], labels, class_counts, order)
    for name, group in sorted(state.groups.items()):
        counts = group.grow(group.counts if own is None else own.groups[name].counts)
        names = {}
        vocabulary = _vocabulary(group)
        if vocabulary is not None:
            columns = statistics.live_columns(counts, vocabulary.n_words)
            names["columns"] = _named(vocabulary, columns)
            counts = statistics.take(counts, "columns", columns)
        if isinstance(group, CategoriesState | FieldsState):
            fields = (
                group.table.fields.names if isinstance(group, CategoriesState) else group.fields
            )
            names["fields"] = [field.encode("utf-8", "replace") for field in fields]
        for statistic, axes, values in statistics.by_axes(counts):
            if statistic != "n" and isinstance(counts, Moments) and not moments:
                continue
            if axes == ("all_and_classes", "fields"):
                every = np.concatenate(([0], 1 + order))
                rows = names["fields"]
                yield _by_name(name, statistic, rows, ["null", *labels], values.T, every)
            else:
                rows = names[axes[0]] if len(axes) > 1 else [b""]
                table = values.reshape(len(rows), len(labels))
                yield _by_name(name, statistic, rows, labels, table, order)


def differences(first: ModelState, second: ModelState) -> Iterator[CountDifference]:
    """Yield the counts in which two models differ, means and variances aside.

    The order is that of groups, statistics and names; what one model does not have is 0 there.
    """
    of_both = [
        {(each.group, each.statistic): each for each in counts_by_name(state, moments=False)}
        for state in (first, second)
    ]
    for key in sorted(of_both[0].keys() | of_both[1].keys()):
        rows: dict[bytes, list[dict[str, float]]] = {}
        for place, tables in enumerate(of_both):
            table = tables.get(key, CountsByName(*key, [], [], np.zeros((0, 0))))
            for name, values in zip(table.names, table.values.tolist(), strict=True):
                own = rows.setdefault(name, [{}, {}])[place]
                for label, value in zip(table.classes, values, strict=True):
                    own[label] = own.get(label, 0.0) + value  # of values cut short, several
        for name, (ours, theirs) in sorted(rows.items()):
            shown = name.decode("utf-8", "replace").replace("\0", "=")
            for label in sorted(ours.keys() | theirs.keys()):
                held, other = ours.get(label, 0.0), theirs.get(label, 0.0)
                if held != other:
                    yield CountDifference(*key, shown, label, held, other)


def _by_name(
    group: str,
    statistic: str,
    names: list[bytes],
    classes: list[str],
    values: Floats,
    order: NDArray[np.int64],
) -> CountsByName:
    """Return a statistic without rows and columns of nothing, in the order of their names."""
    order = order[np.flatnonzero(values[:, order].any(axis=0))]
    kept: list[int] = np.flatnonzero(values.any(axis=1)).tolist()
    kept.sort(key=names.__getitem__)
    if len(set(names)) < len(names):  # cut short: of one name those of the lower counts come first
        kept.sort(key=lambda row: (names[row], values[row, order].tolist()))
    of_classes = [classes[c] for c in order.tolist()]
    sorted_values = values[np.array(kept, np.int64)][:, order] + 0.0  # no zero has a sign
    return CountsByName(group, statistic, [names[row] for row in kept], of_classes, sorted_values)


def _vocabulary(group: GroupState) -> Vocabulary | None:
    if isinstance(group, CategoriesState):
        return group.table.vocabulary
    return group.vocabulary if isinstance(group, CountedState) else None


def _named(vocabulary: Vocabulary, columns: NDArray[np.int64]) -> list[bytes]:
    data, starts, ends = vocabulary.texts(columns)
    plain = data.tobytes()
    return [plain[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
