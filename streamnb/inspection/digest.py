"""What a model has counted, by names instead of places, and the digest of that.

Two models that counted the same give the same, whatever the order in which words and classes came.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.features import statistics
from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.features.fields import FieldsState
from streamnb.features.protocol import Floats, GroupState
from streamnb.kernels.gaussian import Moments
from streamnb.state import ModelState
from streamnb.vocabulary import Vocabulary


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
