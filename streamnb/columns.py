"""Columns in: mappings of sequences, data frames, or text that is already one buffer.

A column of strings becomes one UTF-8 buffer and two arrays of positions, at the cost of one `str`
visit a text. `TextColumn` can also be built over a buffer that came from the network, without a
`str` in between.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from numbers import Real
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamnb.errors import InputError, shown
from streamnb.kernels.layout import Texts
from streamnb.kernels.word_table import byte_bounds, first_misplaced


class TextPieces(Protocol):
    """A column of text of which pieces can be had as one buffer."""

    def __len__(self) -> int: ...

    def piece(self, begin: int, end: int) -> Texts:
        """Return rows `begin` to `end`."""


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Texts as positions in one UTF-8 buffer, as they come from a network or a file.

    Attributes
    ----------
    texts : Texts
        `data` (uint8), `starts` and `ends` (int64, shape (n,)); an end of -1 marks a text that is
        missing. All three are writable and contiguous; bytes that are not UTF-8 separate words.
    """

    texts: Texts

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse arrays that no kernel could read safely; done again whenever a column is read.

        Raises
        ------
        InputError
        """
        if not isinstance(self.texts, Texts):
            raise InputError(
                "TextColumn takes Texts(data, starts, ends). Got"
                f" {type(self.texts).__name__} instead."
            )
        for array, name in zip(self.texts, Texts._fields, strict=True):
            wanted = np.dtype(np.uint8 if name == "data" else np.int64)
            if not _is_plain_array(array, wanted):
                flags = getattr(array, "flags", None)
                raise InputError(
                    f"TextColumn.{name} must be a writable, contiguous array of {wanted}. Got"
                    f" {getattr(array, 'dtype', type(array).__name__)} of"
                    f" {getattr(array, 'ndim', 'no')} dimensions,"
                    f" writable: {getattr(flags, 'writeable', False)}, instead."
                )
        data, starts, ends = self.texts
        if len(starts) == len(ends) and first_misplaced(self.texts) < 0:
            return
        last = max(starts.max(initial=0), ends.max(initial=0))
        if len(starts) != len(ends) or starts.min(initial=0) < 0 or last > len(data):
            where = ""
            if len(starts) == len(ends):
                is_out = (starts < 0) | (np.maximum(starts, ends) > len(data))
                where = f" The first beyond is row {int(np.argmax(is_out))}."
            raise InputError(
                f"a TextColumn needs as many starts as ends, within its {len(data)} bytes. Got"
                f" {len(starts)} starts from {starts.min(initial=0)} on and {len(ends)} ends, up to"
                f" {last}, instead.{where}"
            )
        backwards = np.flatnonzero(ends < starts)  # or missing
        backwards = backwards[ends[backwards] != -1]
        if len(backwards):
            row = int(backwards[0])
            raise InputError(
                f"TextColumn, row {row}: a text must end where it starts or behind, or at -1 if it"
                f" is missing. Got start {starts[row]} and end {ends[row]} instead."
            )

    def __len__(self) -> int:
        return len(self.texts.starts)

    def piece(self, begin: int, end: int) -> Texts:
        """Return rows `begin` to `end`, over the same buffer."""
        data, starts, ends = self.texts
        return Texts(data, starts[begin:end], ends[begin:end])


def is_masked_array(value: Any) -> bool:
    """Return whether something is an array with a mask.

    To name NumPy's class of them imports it, a hundredth of a start: only what may be one is asked.
    """
    is_array = isinstance(value, np.ndarray)
    return is_array and type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray)


def _is_plain_array(array: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether something is an array of one dimension as kernels take it on trust."""
    if not isinstance(array, np.ndarray) or is_masked_array(array):
        return False
    flags = array.flags
    return (
        array.dtype == dtype
        and array.ndim == 1
        and bool(flags.c_contiguous and flags.writeable and flags.aligned)
    )


@dataclass(frozen=True, slots=True)
class Strings:
    """A list of `str`, made a buffer piece by piece, each small enough for the cache."""

    values: list[str | None]
    has_missing: bool

    def __len__(self) -> int:
        return len(self.values)

    def piece(self, begin: int, end: int) -> Texts:
        """Return rows `begin` to `end`."""
        values = self.values[begin:end]
        strings = ["" if v is None else v for v in values] if self.has_missing else values
        joined = "".join(strings)  # type: ignore[arg-type]  # checked when the column was made
        # A lone surrogate has no UTF-8 form; "?" is one character too, so positions stay right.
        data = np.frombuffer(bytearray(joined.encode("utf-8", "replace")), dtype=np.uint8)
        bounds = np.zeros(len(values) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, strings), np.int64, len(values)), out=bounds[1:])  # type: ignore[arg-type]
        if len(data) != len(joined):
            byte_bounds(data, bounds)
        starts, ends = bounds[:-1].copy(), bounds[1:].copy()
        if self.has_missing:
            ends[[v is None for v in values]] = -1
        return Texts(data, starts, ends)


def text_column(field: str, values: Any) -> TextPieces:
    """Return a column of text from whatever holds strings; `None` and `nan` are missing.

    Raises an InputError if a value is neither text nor missing; it names the field, the row and the
    value.
    """
    if isinstance(values, TextColumn):
        values.check()  # its arrays are the caller's, and may have changed since it was made
        return values
    plain = as_list(field, values)
    if set(map(type, plain)) <= {str}:
        return Strings(plain, has_missing=False)
    texts = [_text_or_none(field, row, value) for row, value in enumerate(plain)]
    return Strings(texts, has_missing=None in texts)


def as_list(field: str, values: Any) -> list[Any]:
    """Return a column's values, or refuse what is one value, or has a length and no values."""
    if not isinstance(values, str | bytes | Mapping):
        with contextlib.suppress(TypeError):
            if hasattr(values, "to_pylist"):  # Arrow's arrays would yield scalars of their own
                return list(values.to_pylist())
            return values_of_array(values) if isinstance(values, np.ndarray) else list(values)
    raise _no_sequence(field, values)


def values_of_array(array: NDArray[Any]) -> list[Any]:
    """Return an array's values; dates and times as NumPy's own, None where one is missing.

    In nanoseconds NumPy would make plain numbers of them.
    """
    if array.dtype.kind not in "mM" or array.ndim != 1:
        return array.tolist()  # type: ignore[no-any-return]
    return [None if np.isnat(each) else each for each in array]


def _length(field: str, values: Any) -> int:
    if hasattr(values, "tocsr"):  # SciPy's sparse matrices have rows, and no length
        return int(values.shape[0])
    if not isinstance(values, str | bytes | Mapping):
        with contextlib.suppress(TypeError):
            return len(values)
    raise _no_sequence(field, values)


def _no_sequence(field: str, values: Any) -> InputError:
    return InputError(
        f"field {field!r}: a sequence of values is wanted. Got {type(values).__name__} instead;"
        " wrap a single value in a list."
    )


def _text_or_none(field: str, row: int, value: Any) -> str | None:
    """Return a value's text as a `str` itself: a subclass may lie about its length."""
    if issubclass(type(value), str):
        return str.__str__(value)
    if is_missing(value):
        return None
    raise InputError(
        f"field {field!r}, row {row}: text must be a str, or None where it is missing."
        f" Got {shown(value)} ({type(value).__name__}) instead."
    )


def to_mapping(columns: Any) -> Mapping[str, Any]:
    """Return columns by name, of a mapping, structured array, or frame that narwhals understands.

    Raises an InputError if it is none of these, or two of its columns have one name.
    """
    if isinstance(columns, Mapping):
        return columns
    if isinstance(columns, np.ndarray) and columns.dtype.names is not None:
        return {name: columns[name] for name in columns.dtype.names}
    import narwhals as nw  # noqa: PLC0415 -- for data frames alone, which many programs never have
    from narwhals.exceptions import DuplicateError  # noqa: PLC0415 -- as above

    try:
        frame = nw.from_native(columns, eager_only=True)
        names = frame.columns
    except TypeError as error:
        raise InputError(
            "columns must be a mapping of names to sequences, or a data frame (pandas, Polars,"
            f" Arrow, ...). Got {type(columns).__name__} instead."
        ) from error
    except DuplicateError as error:
        raise InputError(f"columns must differ in name. {error}") from error
    # By position: pandas' names may be numbers, which would be read as rows.
    return {name: _plain(series) for name, series in zip(names, frame.iter_columns(), strict=True)}


def is_frame(columns: Any) -> bool:
    """Return whether something is a data frame that narwhals understands."""
    import narwhals as nw  # noqa: PLC0415 -- as above

    return isinstance(nw.from_native(columns, eager_only=True, pass_through=True), nw.DataFrame)


def _plain(series: Any) -> Any:
    """Return a data frame's column: numbers and truth values as an array, where one holds them.

    Missing values become nan. Integers of which some are missing stay a list: as floats large ones
    would lose digits, which matters if they name a category.
    """
    import narwhals as nw  # noqa: PLC0415 -- as above

    dtype = series.dtype
    is_whole = dtype.is_integer() or dtype == nw.Boolean
    is_array = dtype.is_float() or (is_whole and not series.null_count())
    return series.to_numpy() if is_array else series.to_list()


def count_rows(columns: Mapping[str, Any], fields: Sequence[str]) -> int:
    """Return the length that all columns of `fields` share.

    Raises an InputError if none of the fields is there, one is no sequence, or lengths differ.
    """
    lengths: dict[str, int] = {}
    for field in fields:
        values = columns.get(field)
        if values is not None:
            lengths[field] = _length(field, values)
    if not lengths:
        raise InputError(
            f"none of the model's fields ({', '.join(map(str, fields))}) is among the columns:"
            f" {', '.join(map(str, columns)) or 'none'}."
        )
    if len(set(lengths.values())) > 1:
        raise InputError(f"columns differ in length: {lengths}.")
    return next(iter(lengths.values()))


def numbers_in(values: Any) -> NDArray[Any]:
    """Return numbers as an array of whatever kind and shape they are; of what is none, a nan."""
    if type(values) is np.ndarray and values.dtype.kind in "biuf":
        return values
    try:
        found = np.asarray(values)
        if found.dtype.kind == "O" and all(isinstance(each, Real) for each in found.flat):
            found = found.astype(np.float64)  # whole numbers beyond 64 bits
    except (TypeError, ValueError, OverflowError):  # rows of different length
        return np.array(np.nan)
    # NumPy would read numbers out of texts, and behind a mask.
    if found.dtype.kind not in "biuf" or (is_masked_array(values) and np.ma.is_masked(values)):
        return np.array(np.nan)
    return found


def floats_in(values: Any) -> NDArray[np.float64]:
    """Return numbers as an array of float64; of what is none, a nan. See `numbers_in`."""
    found = numbers_in(values)
    if found.dtype == np.float64:
        return found
    with np.errstate(over="ignore"):
        return found.astype(np.float64)


def sealed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a copy that cannot be written to, for a value that keeps it."""
    found = values.copy()
    found.setflags(write=False)
    return found


_COUNTED_MAX = 1e300  # in all; far beyond what weights and decay can come to


def read_counts(name: str, values: Any, scale: float = 1.0) -> NDArray[np.float64]:
    """Return counts that decay has scaled as an array, or refuse them: from 0 on, and all finite.

    So is what is computed from them, also without the scale.
    """
    found = floats_in(values)
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = found.sum() / min(scale, 1.0) <= _COUNTED_MAX
    if not is_finite or found.min(initial=0.0) < 0.0:
        raise InputError(f"{name} must be finite, from 0 on. Got {values!r} instead.")
    return found


def read_losses(losses: ArrayLike) -> NDArray[np.float64]:
    """Return losses as an array, or refuse them."""
    found = np.ascontiguousarray(floats_in(losses))
    if found.ndim != 1 or not (found >= 0.0).all():
        raise InputError(f"losses must be a row of numbers of 0 or above. Got {losses!r}.")
    return found


def read_half_lives(half_lives: Any) -> tuple[float, ...]:
    """Return half-lives, or refuse what is none."""
    found = floats_in(half_lives)
    if found.ndim != 1 or not len(found) or not (found >= 10).all():
        raise InputError(
            "half_lives must be a sequence of numbers of examples, each 10 or above. Got"
            f" {half_lives!r} instead."
        )
    return tuple(found.tolist())


def chunks(n: int, size: int) -> list[tuple[int, int]]:
    """Return (begin, end) of successive pieces of at most `size` rows."""
    bounds = [*range(0, n, size), n]
    return list(itertools.pairwise(bounds))


def missing_text(n: int) -> TextColumn:
    """Return `n` texts that are not there."""
    nothing: NDArray[np.int64] = np.zeros(n, dtype=np.int64)
    return TextColumn(Texts(np.zeros(0, dtype=np.uint8), nothing, nothing - 1))


Floats = NDArray[np.float64]
# The square of a number, summed over a stream and scaled up by decay (up to 2⁵¹²), stays finite.
LARGEST = 1e60


@dataclass(frozen=True, slots=True)
class Kind:
    """What the values of a field may be."""

    allowed: str  # in words, for the error
    types: frozenset[type]  # plain Python types
    dtypes: str  # the kinds of numpy arrays that hold such types, by numpy's letters
    unfit: Callable[[Floats], NDArray[np.bool_]]  # marks what may not be; never nan
    suits: Callable[[Sequence[Any]], bool]  # whether plain values, all of `types`, are fit for sure


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
    """Return whether a value stands for a missing one: None, nan, pandas' NA.

    Examples
    --------
    >>> is_missing(float("nan")), is_missing(0)
    (True, False)
    """
    if isinstance(value, float | np.floating):
        return math.isnan(value)
    # pandas' own mark is known by its type's name, without importing pandas.
    return value is None or type(value).__name__ == "NAType"


def is_time(value: Any) -> bool:
    """Return whether a value is one of NumPy's dates or times, of which it says they are whole."""
    return isinstance(value, np.datetime64 | np.timedelta64)


def accepts(kind: Kind, values: Any) -> bool:
    """Return whether the first value that is there is of a kind: what a new field is known by.

    Examples
    --------
    >>> accepts(NUMBERS, [None, 2.5]), accepts(NUMBERS, [True]), accepts(NUMBERS, [None])
    (True, False, False)
    """
    array = as_array(values)
    if array is not None and array.dtype.kind in "biuf":
        is_there = array.dtype.kind != "f" or not np.isnan(array).all()
        return array.dtype.kind in kind.dtypes and is_there
    return _is_plain(kind, first_present(values))


def first_present(values: Any) -> Any:
    """Return the first of some values that is not missing; None if there is none.

    A column of text that is one buffer holds no values to look at.
    """
    array = as_array(values)
    plain = values if array is None else values_of_array(array)
    if not isinstance(plain, Iterable):
        return None
    return next((value for value in plain if not is_missing(value)), None)


def read_matrix(kind: Kind, columns: Mapping[str, Any], names: Sequence[str], n: int) -> Floats:
    """Return columns side by side, a new array of shape (n, n_names) with nan for missing values.

    A column that is not there, or None, is missing throughout. Raises an InputError if a value is
    not of the kind, or a column has another length.

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

    Raises an InputError if a value is not of the kind, or there are not `n` of them.
    """
    array = as_array(values)
    if array is not None and array.ndim == 1 and array.dtype.kind in kind.dtypes:
        plain: Any = array
        with np.errstate(over="ignore"):  # what is too wide for float64 is found below
            column = array.astype(np.float64, copy=False)
    else:
        plain = as_list(field, values if array is None else array)
        column = _column(kind, field, plain)
    check_length(field, column, n)
    unfit = np.flatnonzero(kind.unfit(column))
    if len(unfit):
        raise _refusal(kind, field, int(unfit[0]), plain[unfit[0]])
    return column


def check_length(field: str, column: Sized, n: int) -> None:
    """Refuse a column that was read to another length than `n`, which kernels take on trust."""
    if len(column) != n:
        raise InputError(
            f"field {field!r}: its length is {n}, and it yielded {len(column)} values."
            " Give a list, and leave it alone until the call returns."
        )


def as_array(values: Any) -> NDArray[Any] | None:
    """Return an array, or a data frame's series as one; None where values are anything else.

    A masked array comes as objects, with None for what is masked; so do whole numbers of which some
    are missing.
    """
    if is_masked_array(values):
        if values.dtype.kind in "mM":
            return values.filled(np.array("NaT", dtype=values.dtype))  # type: ignore[no-any-return]
        return np.array(values.tolist(), dtype=object)
    if isinstance(values, np.ndarray):
        return values
    if not hasattr(values, "__array__"):
        return None
    array = np.asarray(values)
    if array.dtype.kind == "f" and _is_whole(values):  # large ones have lost digits
        lists = ("to_pylist", "to_list", "tolist")  # of Arrow, of Polars and pandas, of its arrays
        named = next((each for each in lists if hasattr(values, each)), None)
        if named is not None:
            array = np.array(getattr(values, named)(), dtype=object)
    return array


def _is_whole(values: Any) -> bool:
    """Return whether a column of another library is one of whole numbers, by its type's name.

    Arrow calls them `uint8`, Polars `UInt8`, pandas `UInt8` or `uint8[pyarrow]`.
    """
    name = str(getattr(values, "dtype", getattr(values, "type", "")))
    return name.lower().startswith(("int", "uint"))


def _column(kind: Kind, field: str, plain: list[Any]) -> Floats:
    if set(map(type, plain)) <= kind.types | {type(None)}:
        with contextlib.suppress(OverflowError):  # an int beyond float64 is refused below
            return np.array(plain, dtype=np.float64)
    column = np.empty(len(plain))
    for row, value in enumerate(plain):
        column[row] = _value(kind, field, row, value)
    return column


def _is_plain(kind: Kind, value: Any) -> bool:
    if is_time(value):
        return False
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
        f" Got {shown(value)} ({type(value).__name__}) instead."
    )


class OneRow:
    """Reads one example's fields out of a `dict`, if all of them are there and plain."""

    def __init__(self, kind: Kind, names: Sequence[str]) -> None:
        self._types = kind.types
        self._suits = kind.suits
        self._is_one = len(names) == 1
        self.values_of: Callable[[Mapping[str, Any]], Any] = (
            itemgetter(*names) if names else lambda _: ()
        )

    def has(self, x: Mapping[str, Any]) -> bool:
        """Return whether `put` can take an example; otherwise it goes as a batch of one."""
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
