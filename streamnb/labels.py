"""Labels: what may name a class, labels as indices, and what each row adds to the counts.

Beside them the columns of judged rows: what was stated of each class, and the true one.
"""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamnb.columns import (
    floats_in,
    is_masked_array,
    is_time,
    numbers_in,
    to_mapping,
    values_of_array,
)
from streamnb.errors import InputError, check_kind
from streamnb.kernels.layout import RowUpdates

Label = str | int | bool
UNLABELLED = -1
_ALWAYS_LABELS = frozenset({str, bool})  # any value of them is a label
_CLASSES_SHOWN_MAX = 20
_LARGEST = 10**1000  # Python reads no numbers of more than a few thousand digits from a file


@dataclass(frozen=True, slots=True)
class Codes:
    """Labels as places in a list of classes: no Python object for each.

    Attributes
    ----------
    codes : ndarray of shape (n,), int32
        Each label's place in `classes`; none below zero.
    classes : tuple of str, int or bool
        They need not be the model's, nor in its order.

    Examples
    --------
    >>> list(Codes(np.array([1, 0], dtype=np.int32), ("ham", "spam")))
    ['spam', 'ham']
    """

    codes: NDArray[np.int32]
    classes: tuple[Label, ...]

    def __post_init__(self) -> None:
        given: Any = self.classes
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise InputError(f"Codes.classes must be a sequence. Got {given!r} instead.")
        classes = tuple(given)
        if not _ALWAYS_LABELS.issuperset(map(type, classes)):
            classes = tuple(check_label("Codes.classes", i, c) for i, c in enumerate(classes))
        if len(set(classes)) < len(classes):
            raise InputError(f"Codes.classes must differ. Got {self.classes!r} instead.")
        object.__setattr__(self, "classes", classes)
        codes: Any = self.codes
        k = len(classes)
        is_array = type(codes) is np.ndarray or (
            isinstance(codes, np.ndarray) and not is_masked_array(codes)
        )
        if not is_array or codes.dtype != np.int32 or codes.ndim != 1:
            raise InputError(
                "Codes.codes must be an array of int32 with one dimension. Got"
                f" {type(codes).__name__} of {getattr(codes, 'dtype', 'no dtype')} with"
                f" {getattr(codes, 'ndim', 'no')} instead."
            )
        if len(codes) and not 0 <= codes.min() <= codes.max() < k:
            raise InputError(
                f"Codes.codes must lie between 0 and {k - 1}, as there are {k} classes."
                f" Got {codes.min()} to {codes.max()} instead."
            )

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Label]:
        return (self.classes[code] for code in self.codes.tolist())


def check_label(where: str, i: int, label: Any) -> Label:
    """Return a label as plain Python; refuse what is no str, int or bool."""
    if isinstance(label, np.generic) and not is_time(label):
        label = label.item()
    if isinstance(label, str | int):
        if not isinstance(label, str) and abs(label) > _LARGEST:
            raise InputError(f"{where}[{i}]: a number of more than 1,000 digits cannot be a label.")
        return label
    raise InputError(
        f"{where}[{i}]: a label must be a str, int or bool."
        f" Got {label!r} ({type(label).__name__}) instead."
    )


def check_classes(classes: Any) -> list[Label]:
    """Return declared classes as plain Python; refuse what are no labels, or the same ones."""
    check_kind("classes", classes, Iterable)
    # A text would be a class for each letter.
    if isinstance(classes, str | bytes | bytearray) or getattr(classes, "ndim", 1) != 1:
        raise InputError(f"classes must be a sequence of labels. Got {classes!r} instead.")
    declared = [check_label("classes", i, label) for i, label in enumerate(classes)]
    if len(set(declared)) < len(declared):
        raise InputError(f"classes must differ. Got {declared!r} instead.")
    return declared


def shown_classes(classes: Sequence[Label]) -> str:
    """Return classes as an error names them: the first twenty of many.

    Examples
    --------
    >>> shown_classes(["ham", 1])
    "'ham', 1"
    """
    rest = len(classes) - _CLASSES_SHOWN_MAX
    more = f" and {rest:,} more" if rest > 0 else ""
    return ", ".join(map(repr, classes[:_CLASSES_SHOWN_MAX])) + more


def read_labels(labels: Any, n: int | None, classes: Sequence[Label] = ()) -> Codes:
    """Return `n` labels, checked, as codes; columns of one-hot rows stand for `classes`.

    Without `n` there may be any number.
    """
    if isinstance(labels, Codes):
        _check_length(len(labels), n)
        return Codes(labels.codes, labels.classes)  # checked again: their owner may change them
    if len(getattr(labels, "shape", ())) == 2 or isinstance(labels, Mapping):
        return _read_one_hot(labels, n, classes)
    plain = values_of_array(labels) if isinstance(labels, np.ndarray) else labels
    if hasattr(plain, "to_pylist"):  # Arrow's arrays would yield scalars of their own
        plain = plain.to_pylist()
    if isinstance(plain, str | bytes) or not isinstance(plain, Iterable):
        raise InputError(f"labels must be a sequence. Got {type(labels).__name__} instead.")
    plain = list(plain)
    if plain and isinstance(plain[0], list | tuple | np.ndarray):
        return _read_one_hot(plain, n, classes)
    _check_length(len(plain), n)
    if not set(map(type, plain)) <= {str, int, bool}:
        plain = [check_label("labels", i, label) for i, label in enumerate(plain)]
    places = dict(zip(dict.fromkeys(plain), itertools.count(), strict=False))
    codes = np.fromiter(map(places.__getitem__, plain), np.int32, len(plain))
    return Codes(codes, tuple(places))


def _read_one_hot(rows: Any, n: int | None, classes: Sequence[Label]) -> Codes:
    """Return the labels of rows with a single 1; columns with names are the classes they name."""
    by_column = not isinstance(rows, list | np.ndarray) and not hasattr(rows, "toarray")
    if by_column:
        named = to_mapping(rows)
        classes, rows = tuple(named), list(named.values())
    elif hasattr(rows, "toarray"):  # a sparse matrix of SciPy's
        rows = rows.toarray()
    try:
        given = np.array(rows).T if by_column else np.array(rows)
    except ValueError:  # its rows differ in length
        given = np.empty(0)
    if given.ndim != 2 or given.shape[1] != len(classes):
        found = f"shape {given.shape}" if given.ndim == 2 else "rows that differ in length"
        raise InputError(
            "labels: one-hot rows need a column for each class of the model, in its order. It has"
            f" {len(classes)} ({shown_classes(classes) or 'declare some'}). Got {found} instead."
        )
    _check_length(len(given), n)
    if given.dtype.kind == "V":  # records, with which NumPy compares no number
        given = given.astype(object)
    is_one = given == 1
    wrong = np.flatnonzero(~((is_one | (given == 0)).all(axis=1) & (is_one.sum(axis=1) == 1)))
    if len(wrong):
        raise InputError(
            f"labels[{wrong[0]}]: a one-hot row has a single 1, and 0 elsewhere. Got"
            f" {reprlib.repr(given[wrong[0]].tolist())} instead."
        )
    return Codes(is_one.argmax(axis=1).astype(np.int32), tuple(classes))


def _check_length(n_labels: int, n: int | None) -> None:
    if n is not None and n_labels != n:
        raise InputError(f"there are {n} examples and {n_labels} labels.")


def new_labels(
    codes: Codes, known: Collection[Label], counted: NDArray[np.bool_] | None = None
) -> list[tuple[int, Label]]:
    """Return the labels that are not among the classes `known`, and where each comes first.

    Rows that are not `counted` bring no class.
    """
    found: list[tuple[int, Label]] = []
    for code, label in enumerate(codes.classes):
        if label not in known:
            is_new = codes.codes == code
            rows = np.flatnonzero(is_new if counted is None else counted & is_new)
            if len(rows):
                found.append((int(rows[0]), label))
    return sorted(found, key=itemgetter(0))


def to_indices(codes: Codes, classes: Sequence[Label]) -> NDArray[np.int32]:
    """Return the place of each label among `classes`, ndarray of shape (n,), int32."""
    places = dict(zip(classes, range(len(classes)), strict=True))
    every = map(places.get, codes.classes, itertools.repeat(UNLABELLED))
    by_code = np.fromiter(every, np.int32, len(codes.classes))
    return by_code[codes.codes] if len(by_code) else np.empty(0, dtype=np.int32)


def unlabelled(n: int) -> NDArray[np.int32]:
    """Return `n` labels that mean "unlabelled"."""
    return np.full(n, UNLABELLED, dtype=np.int32)


_ONES: NDArray[np.float64] = np.ones(1 << 14)


def ones(n: int) -> NDArray[np.float64]:
    """Return `n` times 1.0, in an array that is shared and never written to."""
    return _ONES[:n] if n <= len(_ONES) else np.ones(n)


def unlabelled_rows(n: int, scale: float = 1.0) -> RowUpdates:
    """Return the updates of `n` rows that are predicted and not learned.

    Examples
    --------
    >>> unlabelled_rows(2).labels.tolist()
    [-1, -1]
    """
    scales = ones(n) if scale == 1.0 else np.full(n, scale)
    return RowUpdates(unlabelled(n), ones(n), scales, scales, scales)


def checked_log_posteriors(log_posteriors: ArrayLike, *, gaps: bool = False) -> NDArray[np.float64]:
    """Return log-posteriors as an array, or refuse them; nan as well, unless `gaps` may be."""
    found = floats_in(log_posteriors)
    if found.ndim != 2:
        raise InputError(
            "log_posteriors must be numbers of shape (n, n_classes). Got shape"
            f" {found.shape} instead."
        )
    most = (np.fmax.reduce if gaps else np.max)(found, axis=None, initial=-np.inf)
    if not most <= 1e-6:  # nan is no smaller than anything
        raise InputError(
            f"log_posteriors must be logarithms of probabilities, at most 0. Got {most} instead."
        )
    return found


def checked_places(
    truth: Any, log_posteriors: NDArray[np.float64], least: int = 0
) -> NDArray[np.intp]:
    """Return the places of true classes as an array, or refuse them."""
    found = numbers_in(truth)
    n, k = log_posteriors.shape
    is_whole = found.dtype.kind in "iu" or not found.size
    if found.shape != (n,) or not is_whole:
        raise InputError(
            f"truth must be {n} whole numbers, the place of each example's class. Got"
            f" {found.dtype} of shape {found.shape} instead."
        )
    if n and not least <= found.min() <= found.max() < k:
        wrong = found[(found < least) | (found >= k)][0]
        none = ", or -1" if least < 0 else ""
        raise InputError(f"truth must be places from 0 to {k - 1}{none}. Got {wrong} instead.")
    return found.astype(np.intp)
