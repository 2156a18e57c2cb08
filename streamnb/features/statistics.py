"""Sufficient statistics: tuples of arrays with declared axes, and the operations on all of them.

Words have `Counts`, categories `ValueCounts`, flags `FlagCounts` and numbers `Moments`. They are
raw: no prior is in them. All floats are float64, in which whole numbers are exact up to 2⁵³. Their
columns and fields are those of a vocabulary or field table that stands elsewhere, so that several
statistics (one a part, and their sum) share it. To resize, copy, rescale, add, select or pack them
is the same for all four, by their axes; what words and values alone need (which of them leave, and
what is left of them) stands below, and at the end what of them can be taken back.
"""

from __future__ import annotations

import math
import mmap
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, StreamnbError
from streamnb.kernels import counting
from streamnb.kernels.categorical import FlagCounts, ValueCounts
from streamnb.kernels.gaussian import Moments
from streamnb.kernels.hybrid import N_WORD_GROUPS, Weights
from streamnb.kernels.layout import LIVE, Counts, Rows, Table
from streamnb.kernels.posterior import DUST, EXACT_BELOW, EXACT_PARTS, WHOLE_BELOW, find_short

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
_Ints = NDArray[np.int32]
S = TypeVar("S", Counts, ValueCounts, FlagCounts, Moments, Weights)

# The axes of each array. "all_and_classes" has one row for all classes together before theirs,
# "precision_and_later_classes" a precision in the place of the first class.
_AXES: dict[type, dict[str, tuple[str, ...]]] = {
    Counts: {
        "by_word": ("columns", "classes"),
        "examples": ("classes",),
        "tokens": ("classes",),
        "state": ("live_and_declared",),
    },
    ValueCounts: {
        "by_value": ("columns", "classes"),
        "seen": ("fields", "classes"),
        "n_values": ("fields",),
        "state": ("live",),
    },
    FlagCounts: {
        "true": ("fields", "classes"),
        "false": ("fields", "classes"),
        "examples": ("classes",),
    },
    Moments: dict.fromkeys(Moments._fields, ("all_and_classes", "fields")),
    Weights: {
        "recent": ("classes",),
        "groups": ("word_groups", "precision_and_gradients"),
        "words": ("columns", "precision_and_later_classes"),
        "others": ("other_groups", "precision_and_gradients"),
    },
}
_FIXED = {
    "live": 1,
    "live_and_declared": 2,
    "word_groups": N_WORD_GROUPS,
    "precision_and_gradients": 2,
}
_SIZED = ("columns", "fields", "classes", "other_groups")
_DERIVED = ("state", "n_values")  # whole numbers that follow from the counts, and are not saved
# Of a bound, when words must leave: rare enough that the pass over the table costs nothing.
_KEPT_SHARE = 0.75
UNBOUNDED = 1 << 62
_RESERVE = 4  # times the columns that are wanted
_LARGE = 1 << 16  # columns: what has fewer is soon copied
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_CHUNK_ROWS = 1 << 14  # temporary arrays of so many rows stay in the processor's cache


# ---- all statistics ------------------------------------------------------------------------------


def empty(kind: type[S], **sizes: int) -> S:
    """Return statistics of nothing.

    `kind`: `Counts`, `ValueCounts`, `FlagCounts` or `Moments`. `**sizes`: the length of each axis:
    `classes`, and `columns` or `fields` as the kind has them.

    Examples
    --------
    >>> empty(Moments, classes=2, fields=4).n.shape
    (3, 4)
    """
    arrays: list[Any] = [
        np.zeros(_shape(axes, sizes), dtype=np.int64 if name in _DERIVED else np.float64)
        for name, axes in _AXES[kind].items()
    ]
    return kind(*arrays)


def size(statistics: S, axis: str) -> int:
    """Return the length of an axis; 0 where these statistics do not have it."""
    for array, axes in _arrays(statistics):
        if axis in axes:
            return int(array.shape[axes.index(axis)])
        if axis == "classes" and "all_and_classes" in axes:
            return len(array) - 1
    return 0


def resized(statistics: S, n_columns: int | None = None, **sizes: int) -> S:
    """Return statistics with axes of other lengths: what is new is zero, what is beyond is gone.

    Arrays that stay as they are, are the same ones. `n_columns`: of so many columns something was
    counted, and no more are copied; memory of others is not even touched.
    """
    have = {axis: size(statistics, axis) for axis in _SIZED}
    arrays: list[Any] = []
    for array, axes in _arrays(statistics):
        shape = _shape(axes, have | sizes)
        if array.shape != shape:
            lengths = [min(a, b) for a, b in zip(array.shape, shape, strict=True)]
            if n_columns is not None and axes[0] == "columns":
                lengths[0] = min(lengths[0], n_columns)
            kept_part = tuple(slice(length) for length in lengths)
            other = np.zeros(shape, dtype=array.dtype)
            other[kept_part] = array[kept_part]
            arrays.append(other)
        else:
            arrays.append(array)
    return type(statistics)(*arrays)


def grown(statistics: S, **sizes: int) -> S:
    """Return statistics whose axes have at least these lengths; see `resized`."""
    wanted = {axis: n for axis, n in sizes.items() if n > size(statistics, axis)}
    return resized(statistics, **wanted) if wanted else statistics


def reserved(statistics: S, *, columns: int) -> S:
    """Return statistics with room for more columns, for one of many parts that learn alone.

    There is room for four times as many, so that less is copied as they grow. Memory is mapped in
    small pages, each as it is written to first: where memory is fragmented, the huge ones that
    numpy asks for cost six times as much to get, 0.31 s for 100 MB. Few columns are as in `grown`.
    """
    if columns < _LARGE:
        return grown(statistics, columns=columns)
    arrays: list[Any] = []
    held: NDArray[Any]
    for held, axes in _arrays(statistics):
        if axes[0] != "columns":
            arrays.append(held)
            continue
        shape = (_RESERVE * columns, *held.shape[1:])
        memory = mmap.mmap(-1, math.prod(shape) * held.itemsize, flags=_ANONYMOUS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):  # Linux
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        room: NDArray[Any] = np.frombuffer(memory, dtype=held.dtype).reshape(shape)
        room[: len(held)] = held
        arrays.append(room)
    return type(statistics)(*arrays)


def copy(statistics: S, n_columns: int | None = None) -> S:
    """Return an independent copy, of the first `n_columns` columns only where that is given."""
    arrays: list[Any] = [
        (array[:n_columns] if "columns" in axes else array).copy()
        for array, axes in _arrays(statistics)
    ]
    return type(statistics)(*arrays)


def take(statistics: S, axis: str, places: Longs) -> S:
    """Return statistics in which place i of an axis is the old `places[i]`.

    A place of -1, or beyond the last, is nothing. Arrays without the axis are the same ones.
    """
    n = size(statistics, axis)
    known = (places >= 0) & (places < n)
    is_prefix = len(places) <= n and _are_first(places)
    arrays: list[Any] = []
    for array, axes in _arrays(statistics):
        if axis not in axes:
            arrays.append(array)
        elif is_prefix and axes[0] == axis:
            arrays.append(array[: len(places)])
        elif known.all():  # of two million rows: 4 ms, in place of 90
            arrays.append(array.take(places, axis=axes.index(axis)))
        else:
            first, at = axes[0] == axis, axes.index(axis)
            lengths = [len(places) if k == at else n for k, n in enumerate(array.shape)]
            taken = np.zeros(lengths, dtype=array.dtype)
            old, new = (array, taken) if first else (array.T, taken.T)
            new[known] = old[places[known]]
            arrays.append(taken)
    return type(statistics)(*arrays)


def add(statistics: S, other: S) -> None:
    """Add other statistics of the same axes, or of the first places of them, in place.

    Whole numbers make this exact, so that any order of adding gives the same sum.
    """
    for array, theirs in zip(floats(statistics), floats(other), strict=True):
        n = min(len(array), len(theirs))
        array[:n] += theirs[:n]


def subtract(statistics: S, other: S, *, decays: bool) -> None:
    """Take away other statistics that are part of the sum, in place; the inverse of `add`."""
    for array, theirs in zip(floats(statistics), floats(other), strict=True):
        for begin in range(0, min(len(array), len(theirs)), _CHUNK_ROWS):
            rows = slice(begin, min(begin + _CHUNK_ROWS, len(array), len(theirs)))
            array[rows] = left_of(array[rows], theirs[rows], decays=decays)


def rescale(statistics: S, factor: float) -> None:
    """Multiply all counts by a power of two; what falls below the smallest number is gone."""
    for array in floats(statistics):
        np.multiply(array, factor, out=array)


def pack(prefix: str, statistics: S, places: dict[str, Longs]) -> Arrays:
    """Return what a file holds, under names that begin with `prefix`.

    `places`: the columns and fields that the file has, in its order. Of columns only those that are
    not zero are packed, behind an array that says which.
    """
    for axis, at in places.items():
        statistics = take(statistics, axis, at)
    arrays: Arrays = {}
    if "columns" in places and isinstance(statistics, Counts | ValueCounts):
        live = live_columns(statistics, len(places["columns"]))
        statistics = take(statistics, "columns", live)
        arrays[f"{prefix}/columns"] = live.astype(np.int32)
    names = [name for name in statistics._fields if name not in _DERIVED]
    return arrays | {f"{prefix}/{name}": getattr(statistics, name) for name in names}


def unpack(prefix: str, arrays: Arrays, statistics: S, places: dict[str, Longs]) -> None:
    """Write what `pack` gave into statistics that are at zero, and have room for it.

    Raises InputError if an array has another shape.
    """
    if "columns" in places:
        places = places | {"columns": places["columns"][arrays[f"{prefix}/columns"]]}
    for name, axes in _AXES[type(statistics)].items():
        if name not in _DERIVED:
            array = getattr(statistics, name)
            lengths = [
                len(places[axis]) if axis in places else length
                for axis, length in zip(axes, array.shape, strict=True)
            ]
            # A slice copies whole rows, three times as fast as places do.
            at = tuple(
                slice(n) if axis not in places or _are_first(places[axis]) else places[axis]
                for axis, n in zip(axes, lengths, strict=True)
            )
            array[at] = of_shape(arrays, f"{prefix}/{name}", *lengths)


def pack_weights(prefix: str, weights: Weights, columns: NDArray[np.int64]) -> Arrays:
    """Return what a file holds of a hybrid's weights, of the words at `columns`."""
    arrays = take(weights, "columns", columns)._asdict()
    if not len(weights.others):  # then a file is as it was before there were any
        del arrays["others"]
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def unpack_weights(
    prefix: str, arrays: Arrays, weights: Weights, columns: NDArray[np.int64]
) -> None:
    """Write what `pack_weights` gave into weights that are at zero.

    Weights of other groups, which a file from before them does not have, stay there.
    """
    for name, array in weights._asdict().items():
        if name == "words":
            array[columns] = of_shape(arrays, f"{prefix}{name}", len(columns), *array.shape[1:])
        elif name != "others" or f"{prefix}{name}" in arrays:
            array[...] = of_shape(arrays, f"{prefix}{name}", *array.shape)


def of_shape(arrays: Arrays, name: str, *shape: int) -> NDArray[Any]:
    """Return an array of a file, which numpy would otherwise stretch to fit, or kernels overrun.

    Raises InputError if it has another shape.
    """
    found = arrays[name]
    if found.shape != shape:
        raise InputError(f"{name}: shape {shape} is wanted. Got {found.shape} instead.")
    return found


def _are_first(places: Longs) -> bool:
    """Say if places are 0, 1, 2 and so on."""
    n = len(places)
    # The last place tells of nearly all that are not, and to compare millions takes milliseconds.
    return n == 0 or (int(places[-1]) == n - 1 and np.array_equal(places, np.arange(n)))


def left_of(counts: Floats, taken: Floats, *, decays: bool) -> Floats:
    """Return counts without what is taken away; what rounding alone leaves of them is nothing.

    Multiples of 1/1024 leave no such rest, nor do larger whole numbers: of them the very last one
    is kept, or found to be missing. Counts that decay are neither but by accident.
    """
    left = counts - taken
    # What follows takes three times as long, and hardly ever finds anything.
    is_small = (left != 0.0) & (np.abs(left) < DUST * taken)
    if not is_small.any():
        return left
    if decays:
        return np.where(is_small, 0.0, left)
    parts = EXACT_PARTS * left
    are_whole = (taken == np.rint(taken)) & (counts == np.rint(counts))
    is_exact = np.where(
        taken < EXACT_BELOW, parts == np.rint(parts), are_whole & (taken < WHOLE_BELOW)
    )
    return np.where(is_small & ~is_exact, 0.0, left)


def total(held: Floats) -> Floats:
    """Return the sums of columns, to the last bit the same in any order of the rows.

    Words stand in the order in which batches brought them, and in another one after a restart: a
    sum of fractions, as decay leaves them, would round by it.
    """
    sums: Floats = held.sum(axis=0)
    parts = EXACT_PARTS * held
    if (sums < EXACT_BELOW).all() and (parts == np.rint(parts)).all():
        return sums
    return np.sort(held, axis=0).sum(axis=0)  # type: ignore[no-any-return]  # numpy's sums have no type


def floats(statistics: S) -> list[Floats]:
    """Return the arrays of counts, without the whole numbers that follow from them."""
    return [getattr(statistics, name) for name in statistics._fields if name not in _DERIVED]


def by_axes(statistics: S) -> list[tuple[str, tuple[str, ...], Floats]]:
    """Return each array of counts with its name and the names of its axes."""
    axes = _AXES[type(statistics)]
    return [
        (name, axes[name], getattr(statistics, name))
        for name in statistics._fields
        if name not in _DERIVED
    ]


def _arrays(statistics: Any) -> list[tuple[NDArray[Any], tuple[str, ...]]]:
    """Return each array with the names of its axes."""
    return list(zip(statistics, _AXES[type(statistics)].values(), strict=True))


def _shape(axes: tuple[str, ...], sizes: dict[str, int]) -> tuple[int, ...]:
    n = sizes["classes"]
    derived = {"all_and_classes": 1 + n, "precision_and_later_classes": max(1, n)}
    return tuple((sizes | _FIXED | derived)[axis] for axis in axes)


# ---- words and values: statistics with columns ---------------------------------------------------


def column_totals(counts: Counts | ValueCounts, n: int) -> Floats:
    """Return each column's count over all classes, ndarray of shape (n,)."""
    by_column = counts[0]
    totals = np.empty(n)
    counting.sum_rows(by_column, min(n, len(by_column)), totals)
    totals[len(by_column) :] = 0.0
    return totals


def live_columns(counts: Counts | ValueCounts, n: int) -> Longs:
    """Return the columns, of the first `n`, with a count above zero, ascending."""
    return np.flatnonzero(column_totals(counts, n) != 0.0)  # ten times faster than of floats


def leaving(
    counts: Counts | ValueCounts,
    table: Table,
    n_columns: int,
    n_kept: int,
    n_declared: int = 0,
    ranked_by: slice | None = None,
) -> Longs:
    """Return the columns of the least useful words: all but `n_kept` of those that count.

    The rule: the word with the smallest count over all classes leaves first; of words with the same
    count, the order is that of a hash of their text, the same in every model and on every machine.
    It is a function of the counts and the words alone, whatever the order they came in. The first
    `n_declared` columns stay. `ranked_by` are the classes whose counts are compared: all, if none
    are given.
    """
    totals = column_totals(counts, n_columns)
    live = np.flatnonzero(totals != 0.0)
    live = live[live >= n_declared]
    n_leaving = len(live) - n_kept
    if n_leaving <= 0:
        return np.empty(0, dtype=np.int64)
    totals = totals[live] if ranked_by is None else counts[0][live, ranked_by].sum(axis=1)
    threshold = np.partition(totals, n_leaving - 1)[n_leaving - 1]
    below = live[totals < threshold]
    tied = live[totals == threshold]
    order = np.empty(len(tied), dtype=np.uint64)
    counting.order_words(table.words, table.word_ends, tied, order)
    last = n_leaving - len(below) - 1
    tied = tied[order <= np.partition(order, last)[last]]
    return np.sort(np.concatenate([below, tied]))


def must_leave(counts: Counts | ValueCounts, table: Table, *args: Any, **options: Any) -> Longs:
    """Return the columns that are `leaving`, where a row found no room: some."""
    columns = leaving(counts, table, *args, **options)
    if not len(columns):  # whoever asks would find none for ever
        raise StreamnbError(
            "there is no room for a row, yet no word or value is one too many. These counts are"
            " damaged: load the model from its file."
        )
    return columns


def kept(n_words_max: int, n_new: int) -> int:
    """Return how many words stay when `n_new` new ones must fit under the bound."""
    return max(0, min(int(n_words_max * _KEPT_SHARE), n_words_max - n_new))


# ---- words ---------------------------------------------------------------------------------------


def recount(counts: Counts) -> None:
    """Recount the words above zero, after counts were changed otherwise than row by row."""
    counts.state[LIVE] = len(live_columns(counts, len(counts.by_word)))


def drop(counts: Counts, columns: Longs, *, decays: bool) -> Floats:
    """Set words to zero; return what they held, ndarray of shape (n, n_classes)."""
    held = counts.by_word[columns]
    subtract_rows(counts, columns, held, decays=decays)
    return held


def subtract_rows(counts: Counts, columns: Longs, held: Floats, *, decays: bool) -> None:
    """Take counts of some words away; a word at zero leaves V.

    What a sum of parts held may differ from the parts' own counts by rounding: no rest is kept.
    """
    was = counts.by_word[columns].any(axis=1)
    left = left_of(counts.by_word[columns], held, decays=decays)
    counts.by_word[columns] = np.maximum(left, 0.0)
    left = left_of(counts.tokens, total(held), decays=decays)
    counts.tokens[:] = np.maximum(left, 0.0)
    counts.state[LIVE] -= int(was.sum() - counts.by_word[columns].any(axis=1).sum())


# ---- what can be taken back ----------------------------------------------------------------------


def not_learned(what: str, weight: float, held: float, unit: str = "") -> InputError:
    """Return the error that a feature cannot be unlearned, as its class holds too little of it."""
    return InputError(
        f"{what} cannot be unlearned {weight:g} times, as its class holds {held:g}{unit}."
        " Unlearn what was learned, once, with its own class."
    )


def short_entries(
    held: Floats, columns: _Ints, labels: _Ints, wanted: Floats, *, decays: bool
) -> tuple[NDArray[np.bool_], Floats]:
    """Return which entries find less than they want back, and what each finds, in their order."""
    short, before = np.empty(len(columns), np.bool_), np.empty(len(columns))
    find_short(held, columns, labels, wanted, decays, before, short)
    return short, before


def short_words(
    counts: Any, rows: Rows, labels: NDArray[np.int32], weights: Floats, *, decays: bool
) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Return which entries find less than they want back, what each wants, and what it finds."""
    n, sizes = int(rows.indptr[-1]), np.diff(rows.indptr)
    wanted = np.repeat(weights, sizes) * rows.counts[:n]
    entry_labels = np.repeat(labels, sizes)
    short, held = short_entries(
        counts.by_word, rows.columns[:n], entry_labels, wanted, decays=decays
    )
    return short, wanted, held


def check_examples(
    what: str, labels: NDArray[np.int32], weights: Floats, held: Floats, *, decays: bool
) -> None:
    """Refuse to unlearn examples from a class that holds less than their weight; shape (n,)."""
    nowhere = np.zeros(len(labels), np.int32)
    short, before = short_entries(held.reshape(1, -1), nowhere, labels, weights, decays=decays)
    for row in np.flatnonzero(short)[:1].tolist():
        raise InputError(
            f"{what}{at_row(row, len(labels))}: an example of weight {weights[row]:g} cannot be"
            f" unlearned, as its class holds {before[row]:g}. Unlearn what was learned, once."
        )


def has_short(held: Floats, labels: NDArray[np.int32], weights: Floats) -> bool:
    """Return whether a class holds less than the weight of its examples; see `check_examples`."""
    nowhere = np.zeros(len(labels), np.int32)
    return bool(short_entries(held.reshape(1, -1), nowhere, labels, weights, decays=False)[0].any())


def at_row(row: int, n: int) -> str:
    """Return which of several rows an error is of; nothing if there is only one."""
    return f", row {row}" if n > 1 else ""


# ---- rows of one version of a model, at the places of another ------------------------------------


def moved(rows: NDArray[Any], came: NDArray[np.bool_], stayed: NDArray[np.bool_]) -> NDArray[Any]:
    """Return rows that stayed at their new places, and zeros at those of rows that came."""
    moved = np.empty((len(came), *rows.shape[1:]), rows.dtype)
    moved[places(~came)] = rows[places(stayed)]
    moved[places(came)] = 0
    return moved


def places(mask: NDArray[np.bool_]) -> NDArray[np.int64] | slice:
    """Return where a mask is true: as a slice if that is one run, as it nearly always is."""
    places = np.flatnonzero(mask)
    is_run = len(places) and places[-1] - places[0] == len(places) - 1
    return slice(places[0], places[-1] + 1) if is_run else places


def are_among(columns: NDArray[np.int64], others: NDArray[np.int64], n: int) -> NDArray[np.bool_]:
    """Return which of some columns, of `n` in all, are among others."""
    is_other = np.zeros(n, np.bool_)
    is_other[others] = True
    return is_other[columns]


def bits(changes: Arrays, name: str, n: int) -> NDArray[np.bool_]:
    """Return a mask of `n` places that `numpy.packbits` has packed."""
    return np.unpackbits(of_shape(changes, name, -(-n // 8)), count=n).view(np.bool_)


def narrow(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers in the smallest type that holds them all; others as they are."""
    low, high = numbers.min(initial=0), numbers.max(initial=0)
    for kind in (np.int8, np.uint8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            narrow = numbers.astype(kind)
            return narrow if np.array_equal(narrow, numbers) else numbers
    return numbers
