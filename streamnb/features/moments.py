"""Running moments as arrays: made, copied, grown, rescaled, put into a file.

What learns and merges them stands in `kernels/moments.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamnb.features.protocol import Arrays, of_shape
from streamnb.kernels.gaussian import Moments

# A sum of weights that decay has brought down to this is nothing: before the squares beside it
# leave the range of float64.
_FORGOTTEN = 1e-200


def empty(n_classes: int, n_fields: int) -> Moments:
    """Return moments of nothing.

    Examples
    --------
    >>> empty(2, 4).n.shape
    (3, 4)
    """
    return Moments(*(np.zeros((1 + n_classes, n_fields)) for _ in Moments._fields))


def copy(moments: Moments) -> Moments:
    """Return an independent copy."""
    return Moments(*(array.copy() for array in moments))


def fitted(moments: Moments, n_classes: int, n_fields: int) -> Moments:
    """Return moments with room for more classes and fields, or without the last classes.

    The same arrays where nothing changes.
    """
    rows, columns = moments.n.shape
    if (rows, columns) == (1 + n_classes, n_fields):
        return moments
    other = empty(n_classes, n_fields)
    rows, columns = min(rows, 1 + n_classes), min(columns, n_fields)
    for old, new in zip(moments, other, strict=True):
        new[:rows, :columns] = old[:rows, :columns]
    return other


def rescale(moments: Moments, factor: float) -> None:
    """Multiply all weights by a power of two; means stay. What is left of nothing is nothing."""
    for scaled in (moments.n, moments.m2, moments.m2_low):
        np.multiply(scaled, factor, out=scaled)
    gone = moments.n < _FORGOTTEN
    for array in moments:
        array[gone] = 0.0


def take(moments: Moments, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Moments:
    """Return a copy of some rows and columns; a column of -1 or beyond the last is nothing."""
    known = (columns >= 0) & (columns < moments.n.shape[1])
    taken = empty(len(rows) - 1, len(columns))
    for old, new in zip(moments, taken, strict=True):
        new[:, known] = old[np.ix_(rows, columns[known])]
    return taken


def pack(prefix: str, moments: Moments, columns: NDArray[np.int64]) -> Arrays:
    """Return some fields' moments for a file, under names that begin with `prefix`."""
    taken = take(moments, np.arange(len(moments.n)), columns)
    return {f"{prefix}/{name}": array for name, array in taken._asdict().items()}


def unpack(prefix: str, arrays: Arrays, shape: tuple[int, int]) -> Moments:
    """Return the moments that `pack` gave, in arrays of their own, of 1 + n_classes and fields."""
    packed = (of_shape(arrays, f"{prefix}/{name}", *shape) for name in Moments._fields)
    return Moments(*(np.array(array, order="C") for array in packed))
