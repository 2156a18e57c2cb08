"""Columns of numbers or flags in: checked, and side by side in one matrix of float64.

What is missing (`None`, nan, pandas' NA, a column that is not there) becomes nan. A `Kind` says
what else a value may be; the first one that may not is named by field, row and value. A list whose
types are all plain, or an array, is converted and checked as a whole; anything else goes value by
value, to the same result.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError

Floats = NDArray[np.float64]
# The square of a number, summed over a stream and scaled up by decay (up to 2⁵¹²), stays finite.
LARGEST = 1e60


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of a field may be.

    Attributes
    ----------
    allowed : str
        In words, for the error.
    types : frozenset of type
        The plain Python types that may come: of int, float and bool.
    dtypes : str
        The kinds of numpy arrays that hold such types, by numpy's letters.
    unfit : callable
        Marks, in an array of float64, what may not be; never nan.
    suits : callable
        Tells whether plain values, all of `types`, are fit for sure.
    """

    allowed: str
    types: frozenset[type]
    dtypes: str
    unfit: Callable[[Floats], NDArray[np.bool_]]
    suits: Callable[[Sequence[Any]], bool]


NUMBERS = Kind(
    f"a number between {-LARGEST:g} and {LARGEST:g}, or None where it is missing",
    frozenset({int, float}),
    "iuf",
    lambda values: np.abs(values) > LARGEST,
    lambda values: math.hypot(*values) <= LARGEST,  # then each of them is
)
FLAGS = Kind(
    "True, False, 1 or 0, or None where it is missing",
    frozenset({bool, int, float}),
    "biuf",
    lambda values: (values != 0.0) & (values != 1.0) & ~np.isnan(values),
    {0, 1}.issuperset,
)


def is_missing(value: Any) -> bool:
    """Tell whether a value stands for one that is not there: None, nan, pandas' NA.

    Examples
    --------
    >>> is_missing(float("nan")), is_missing(0)
    (True, False)
    """
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    # pandas' own mark is known by its type's name, without importing pandas.
    return value is None or type(value).__name__ == "NAType"


def takes(kind: Kind, values: Any) -> bool:
    """Tell whether the first value that is there is of a kind: what a new field is known by.

    Parameters
    ----------
    kind : Kind
    values : sequence

    Examples
    --------
    >>> takes(NUMBERS, [None, 2.5]), takes(NUMBERS, [True]), takes(NUMBERS, [None])
    (True, False, False)
    """
    array = as_array(values)
    if array is not None and array.dtype.kind in "biuf":
        is_there = array.dtype.kind != "f" or not np.isnan(array).all()
        return array.dtype.kind in kind.dtypes and is_there
    return _is_plain(kind, first_there(values))


def first_there(values: Any) -> Any:
    """Return the first of some values that is not missing; None where there is none.

    A column of text that is one buffer holds no values to look at.
    """
    array = as_array(values)
    plain = values if array is None else array.tolist()
    if not isinstance(plain, Iterable):
        return None
    return next((value for value in plain if not is_missing(value)), None)


def read_matrix(kind: Kind, columns: Mapping[str, Any], names: Sequence[str], n: int) -> Floats:
    """Return columns side by side.

    Parameters
    ----------
    kind : Kind
    columns : mapping of str to sequence
        Lists, arrays of any numeric type, series of a data frame. One that is not there, or None,
        is missing throughout.
    names : sequence of str
        The fields wanted, in the order of the matrix's columns.
    n : int
        Rows.

    Returns
    -------
    ndarray of shape (n, n_names), float64, C-contiguous, writable
        nan where a value is missing. A new array.

    Raises
    ------
    InputError
        Where a value is not of the kind, or a column has another length.

    Examples
    --------
    >>> read_matrix(NUMBERS, {"age": [31, None], "height": [1.7, 1.8]}, ["age", "height"], 2)
    array([[31. ,  1.7],
           [ nan,  1.8]])
    """
    matrix = np.empty((n, len(names)))
    for j, name in enumerate(names):
        values = columns.get(name)
        matrix[:, j] = np.nan if values is None else read_column(kind, name, values, n)
    return matrix


def read_column(kind: Kind, field: str, values: Any, n: int) -> Floats:
    """Return one column, of shape (n,), float64; it may be the caller's own memory.

    Raises
    ------
    InputError
        Where a value is not of the kind, or there are not `n` of them.
    """
    array = as_array(values)
    if array is not None and array.ndim == 1 and array.dtype.kind in kind.dtypes:
        plain: Any = array
        with np.errstate(over="ignore"):  # what is too wide for float64 is found below
            column = array.astype(np.float64, copy=False)
    else:
        plain = list(values) if array is None else array.tolist()
        column = _column(kind, field, plain)
    if len(column) != n:  # kernels take this length on trust
        raise InputError(
            f"field {field!r}: its length is {n}, and it yielded {len(column)} values."
            " Give a list, and leave it alone until the call returns."
        )
    unfit = np.flatnonzero(kind.unfit(column))
    if len(unfit):
        raise _refusal(kind, field, int(unfit[0]), plain[unfit[0]])
    return column


def as_array(values: Any) -> NDArray[Any] | None:
    """Return an array, or a data frame's series as one; None where values are anything else.

    A masked array comes as objects, with None for what is masked.
    """
    if isinstance(values, np.ma.MaskedArray):
        return np.array(values.tolist(), dtype=object)
    if isinstance(values, np.ndarray):
        return values
    return np.asarray(values) if hasattr(values, "__array__") else None


def _column(kind: Kind, field: str, plain: list[Any]) -> Floats:
    if set(map(type, plain)) <= kind.types | {type(None)}:
        with contextlib.suppress(OverflowError):  # an int beyond float64 is refused below
            return np.array(plain, dtype=np.float64)
    column = np.empty(len(plain))
    for row, value in enumerate(plain):
        column[row] = _value(kind, field, row, value)
    return column


def _is_plain(kind: Kind, value: Any) -> bool:
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, bool):
        return bool in kind.types
    return isinstance(plain, int | float)


def _value(kind: Kind, field: str, row: int, value: Any) -> float:
    if is_missing(value):
        return math.nan
    if _is_plain(kind, value):
        with contextlib.suppress(OverflowError):
            return float(value)
    raise _refusal(kind, field, row, value)


def _refusal(kind: Kind, field: str, row: int, value: Any) -> InputError:
    return InputError(
        f"field {field!r}, row {row}: the value must be {kind.allowed}."
        f" Got {value!r} ({type(value).__name__}) instead."
    )


class OneRow:
    """Reads one example's fields out of a `dict`, where all of them are there and plain.

    Parameters
    ----------
    kind : Kind
    names : sequence of str
    """

    def __init__(self, kind: Kind, names: Sequence[str]) -> None:
        self._types = kind.types
        self._suits = kind.suits
        self._is_one = len(names) == 1
        self.values_of: Callable[[Mapping[str, Any]], Any] = (
            itemgetter(*names) if names else lambda _: ()
        )

    def has(self, x: Mapping[str, Any]) -> bool:
        """Tell whether `put` can take an example; one that it cannot goes as a batch of one."""
        try:
            values = self.values_of(x)
            if self._is_one:
                values = (values,)
            return not values or (self._types.issuperset(map(type, values)) and self._suits(values))
        except (KeyError, OverflowError):  # a field that is not there; an int beyond float64
            return False

    def put(self, x: Mapping[str, Any]) -> Floats:
        """Return the fields as an array of shape (1, n_names); `has` has said that it can.

        Examples
        --------
        >>> OneRow(NUMBERS, ["age", "height"]).put({"height": 1.7, "age": 31})
        array([[31. ,  1.7]])
        """
        values = self.values_of(x)
        row: Floats = np.array(((values,) if self._is_one else values,), dtype=np.float64)
        return row
