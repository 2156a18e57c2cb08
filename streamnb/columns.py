"""Columns in: mappings of sequences, data frames, or text that is already one buffer.

A column of strings becomes one UTF-8 buffer and two arrays of positions, at the cost of one `str`
visit a text. `TextColumn` can also be built over a buffer that came from the network, without a
`str` in between.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import narwhals as nw
import numpy as np
from narwhals.exceptions import DuplicateError
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.kernels.layout import Texts
from streamnb.kernels.lookup import byte_bounds


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
        if len(starts) != len(ends) or starts.min(initial=0) < 0 or ends.max(initial=0) > len(data):
            raise InputError(
                f"a TextColumn needs as many starts as ends, within its {len(data)} bytes. Got"
                f" {len(starts)} starts from {starts.min(initial=0)} on and {len(ends)} ends up to"
                f" {ends.max(initial=0)} instead."
            )
        backwards = np.flatnonzero((ends < starts) & (ends != -1))
        if len(backwards):
            row = int(backwards[0])
            raise InputError(
                f"TextColumn, row {row}: a text must end where it starts or behind, or at -1 if it"
                f" is missing. Got start {starts[row]} and end {ends[row]} instead."
            )
        if starts.max(initial=0) > len(data):
            raise InputError(
                f"TextColumn.starts must lie within its {len(data)} bytes. Got"
                f" {starts.max(initial=0)} instead."
            )

    def __len__(self) -> int:
        return len(self.texts.starts)

    def piece(self, begin: int, end: int) -> Texts:
        """Return rows `begin` to `end`, over the same buffer."""
        data, starts, ends = self.texts
        return Texts(data, starts[begin:end], ends[begin:end])


def _is_plain_array(array: Any, dtype: np.dtype[Any]) -> bool:
    """Tell whether something is an array of one dimension as kernels take it on trust."""
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
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

    Raises
    ------
    InputError
        Where a value is neither text nor missing; it names the field, the row and the value.
    """
    if isinstance(values, TextColumn):
        values.check()  # its arrays are the caller's, and may have changed since it was made
        return values
    _length(field, values)
    plain = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if set(map(type, plain)) <= {str}:
        return Strings(plain, has_missing=False)
    texts = [_text_or_none(field, row, value) for row, value in enumerate(plain)]
    return Strings(texts, has_missing=None in texts)


def _length(field: str, values: Any) -> int:
    if hasattr(values, "tocsr"):  # SciPy's sparse matrices have rows, and no length
        return int(values.shape[0])
    if not isinstance(values, str | bytes | Mapping):
        with contextlib.suppress(TypeError):
            return len(values)
    raise InputError(
        f"field {field!r}: a sequence of str is wanted. Got {type(values).__name__} instead;"
        " wrap a single text in a list."
    )


def _text_or_none(field: str, row: int, value: Any) -> str | None:
    """Return a value's text as a `str` itself: a subclass may lie about its length."""
    if issubclass(type(value), str):
        return str.__str__(value)
    is_nan = isinstance(value, float | np.floating) and np.isnan(value)
    # pandas' own mark for what is missing is known by its type's name, without importing pandas.
    if value is None or is_nan or type(value).__name__ == "NAType":
        return None
    raise InputError(
        f"field {field!r}, row {row}: text must be a str, or None where it is missing."
        f" Got {value!r} ({type(value).__name__}) instead."
    )


def to_mapping(columns: Any) -> Mapping[str, Any]:
    """Return columns by name.

    Parameters
    ----------
    columns : mapping of names to sequences, data frame, or structured array
        Any data frame that narwhals understands: pandas, Polars, Arrow, ….

    Raises
    ------
    InputError
        Where it is none of these, or two of its columns have one name.
    """
    if isinstance(columns, Mapping):
        return columns
    if isinstance(columns, np.ndarray) and columns.dtype.names is not None:
        return {name: columns[name] for name in columns.dtype.names}
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
    """Tell whether something is a data frame that narwhals understands."""
    return isinstance(nw.from_native(columns, eager_only=True, pass_through=True), nw.DataFrame)


def _plain(series: Any) -> Any:
    """Return a data frame's column: numbers and truth values as an array, where one holds them.

    What is missing becomes nan. Integers of which some are missing stay a list: as floats large
    ones would lose digits, which matters where they name a category.
    """
    dtype = series.dtype
    is_array = dtype.is_float() or (
        (dtype.is_integer() or dtype == nw.Boolean) and not series.null_count()
    )
    return series.to_numpy() if is_array else series.to_list()


def count_rows(columns: Mapping[str, Any], fields: Sequence[str]) -> int:
    """Return the length that all columns of `fields` share.

    Raises
    ------
    InputError
        Where none of the fields is there, one is no sequence, or lengths differ.
    """
    lengths = {f: _length(f, columns[f]) for f in fields if columns.get(f) is not None}
    if not lengths:
        raise InputError(
            f"none of the model's fields ({', '.join(map(str, fields))}) is among the columns:"
            f" {', '.join(map(str, columns)) or 'none'}."
        )
    if len(set(lengths.values())) > 1:
        raise InputError(f"columns differ in length: {lengths}.")
    return next(iter(lengths.values()))


def chunks(n: int, size: int) -> list[tuple[int, int]]:
    """Return (begin, end) of successive pieces of at most `size` rows."""
    bounds = [*range(0, n, size), n]
    return list(itertools.pairwise(bounds))


def missing_text(n: int) -> TextColumn:
    """Return `n` texts that are not there."""
    nothing: NDArray[np.int64] = np.zeros(n, dtype=np.int64)
    return TextColumn(Texts(np.zeros(0, dtype=np.uint8), nothing, nothing - 1))
