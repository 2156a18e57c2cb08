"""Entry points are compiled for the types that their annotations say."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from numba import types

from streamnb.kernels.jit import compiled_type, signature_of
from streamnb.kernels.layout import F64, I32, F64Grid, Int


class Pair(NamedTuple):
    """Two arrays that travel together."""

    places: I32
    values: F64Grid


def example(pair: Pair, n: Int, out: F64, flag: bool) -> tuple[int, float]:
    """Return a count and a sum."""
    out[0] = 1.0 if flag else 0.0
    return int(n), float(pair.values.sum())


def test_a_signature_is_that_of_the_annotations() -> None:
    """Arrays, named tuples of arrays, numbers and truth values each have one compiled type."""
    pair = types.BaseTuple.from_types([types.int32[::1], types.float64[:, ::1]], Pair)
    returned = types.Tuple([types.int64, types.float64])
    wanted = returned(pair, types.int64, types.float64[::1], types.boolean)
    assert signature_of(example) == wanted


def test_what_kernels_have_no_type_for_is_refused() -> None:
    """A text, for instance: the error names it."""
    with pytest.raises(TypeError, match=r"kernels have no type for <class 'str'>"):
        compiled_type(str)
