"""Values of categories in: whatever names a category becomes text, and its text is its identity.

A `str` is itself; 1, 1.0 and "1" are one value, and so are True and "true"; other numbers are what
Python prints of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import Strings, TextColumn, TextPieces, text_column
from streamnb.errors import InputError
from streamnb.kernels.layout import Texts
from streamnb.matrix import as_array, is_missing

_TRUTH = {False: "false", True: "true"}


@dataclass(frozen=True, slots=True)
class ValueColumns:
    """The fields of some examples as columns of text.

    Attributes
    ----------
    columns : mapping of str to TextPieces
    n : int
        How many examples there are.
    """

    columns: Mapping[str, TextPieces]
    n: int

    def text(self, field: str, row: int) -> str | None:
        """Return one value's text, None where it is missing."""
        if field not in self.columns:
            return None
        data, starts, ends = self.columns[field].piece(row, row + 1)
        if ends[0] < 0:
            return None
        return data[starts[0] : ends[0]].tobytes().decode("utf-8", "replace")


def value_text(field: str, row: int, value: Any) -> str | None:
    """Return a value's text, None where it is missing.

    Raises
    ------
    InputError
        Where it is no text, number or truth value; it names the field, the row and the value.
    """
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool or kind is np.bool_:
        return _TRUTH[bool(value)]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, float | np.floating):
        return _float_text(float(value))
    if _is_missing(value):
        return None
    raise InputError(
        f"field {field!r}, row {row}: a category must be a str, a number, or True or False; or None"
        f" where it is missing. Got {value!r} ({kind.__name__}) instead."
    )


def _float_text(value: float) -> str | None:
    if math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)


def value_column(field: str, values: Any, n: int) -> TextPieces:
    """Return a column of `n` values as text.

    Raises
    ------
    InputError
        Where one is no category, or there are not `n` of them.
    """
    text = _column(field, values)
    if len(text) != n:  # kernels take this length on trust
        raise InputError(
            f"field {field!r}: its length is {n}, and it yielded {len(text)} values."
            " Give a list, and leave it alone until the call returns."
        )
    return text


def _column(field: str, values: Any) -> TextPieces:
    if isinstance(values, TextColumn):
        return text_column(field, values)
    array = as_array(values)
    if array is not None and array.ndim == 1 and array.dtype.kind in "biuf":
        return _numbers(array)
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        return text_column(field, values)  # it says what is wrong
    plain = list(values) if array is None else array.tolist()
    if set(map(type, plain)) <= {str}:
        return Strings(plain, has_missing=False)
    texts = [value_text(field, row, value) for row, value in enumerate(plain)]
    return Strings(texts, has_missing=None in texts)


def _numbers(values: NDArray[Any]) -> TextColumn:
    """Return an array of numbers as text: each different one is printed once."""
    different, inverse = np.unique(values, return_inverse=True)
    texts = [value_text("", 0, value) for value in different.tolist()]
    encoded = [b"" if text is None else text.encode() for text in texts]
    sizes = np.array([len(text) for text in encoded], dtype=np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    ends[[text is None for text in texts]] = -1
    data = np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8)
    return TextColumn(Texts(data, starts[inverse], ends[inverse]))


def texts_of(values: list[str]) -> Texts:
    """Return texts as one buffer."""
    return Strings(list(values), has_missing=False).piece(0, len(values))


def are_categories(values: Any) -> bool:
    """Tell whether values that came under a new name are texts or truth values.

    The first that is there decides, as it does where examples come one at a time. Numbers are not
    taken for categories unless a group names their field.
    """
    if isinstance(values, TextColumn):
        return bool((values.texts.ends >= 0).any())
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        return False
    array = as_array(values)
    plain = values if array is None else array.tolist()
    first = next((value for value in plain if not _is_missing(value)), None)
    return isinstance(first, str | bool | np.bool_)


def _is_missing(value: Any) -> bool:
    return is_missing(value) or type(value).__name__ == "NaTType"
