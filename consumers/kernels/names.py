"""A few names, found by their bytes: the keys of a JSON object, the values that mean a label.

Names stand in groups (the keys below one object are a group). Each group has a row of slots, and
names that fall into one slot are a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streamnb.kernels._jit import inner
from streamnb.kernels.layout import I64, U8, Int

# Bytes as they came: nobody may write into them, which is another type to the compiler.
Raw = Annotated[NDArray[np.uint8], types.Array(types.uint8, 1, "C", readonly=True)]

_SLOTS = 64
_QUOTE = ord('"')
NOBODY = -1


class Names(NamedTuple):
    """Names in groups. `NOBODY` stands for an empty slot and for the end of a chain."""

    texts: U8  # all names, one behind the other
    ends: I64  # where each ends in `texts`; the one before begins it
    heads: I64  # group * _SLOTS + slot → the first name there
    nexts: I64  # by name: the next one in its slot


@inner
def byte_at(buffer: Raw, at: Int) -> np.uint8:
    """Return a byte; an unsigned place spares the compiled code the look for one from the end."""
    byte: np.uint8 = buffer[np.uint64(at)]
    return byte


@inner
def _slot(first: Int, last: Int, n_bytes: Int) -> Int:
    return (first + 3 * last + 5 * n_bytes) & (_SLOTS - 1)


@inner
def find_name(buffer: Raw, start: Int, end: Int, names: Names, group: Int) -> Int:
    """Return the place of the name `buffer[start:end]` in a group, `NOBODY` where it is none."""
    n_bytes = end - start
    if n_bytes == 0:
        slot = _slot(_QUOTE, _QUOTE, 0)
    else:
        slot = _slot(np.int64(byte_at(buffer, start)), np.int64(byte_at(buffer, end - 1)), n_bytes)
    name: Int = names.heads[group * _SLOTS + slot]
    while name != NOBODY:
        begin = names.ends[name - 1] if name > 0 else 0
        if names.ends[name] - begin == n_bytes:
            k = 0
            while k < n_bytes and names.texts[begin + k] == byte_at(buffer, start + k):
                k += 1
            if k == n_bytes:
                return name
        name = names.nexts[name]
    return NOBODY


def name_table(names: Sequence[bytes], groups: Sequence[int] | None = None) -> Names:
    """Return the table of names, which are distinct within a group.

    Parameters
    ----------
    names : sequence of bytes
        A name's place here is what `find_name` answers.
    groups : sequence of int, optional
        Each name's group; all are in group 0 when left out.
    """
    groups = [0] * len(names) if groups is None else groups
    heads = np.full((max(groups, default=0) + 1) * _SLOTS, NOBODY, np.int64)
    nexts = np.full(len(names), NOBODY, np.int64)
    for place, (name, group) in enumerate(zip(names, groups, strict=True)):
        first, last = (name[0], name[-1]) if name else (_QUOTE, _QUOTE)
        at = group * _SLOTS + ((first + 3 * last + 5 * len(name)) & (_SLOTS - 1))
        nexts[place], heads[at] = heads[at], place
    texts = np.frombuffer(bytearray(b"".join(names)), np.uint8)
    return Names(texts, np.cumsum([len(name) for name in names], dtype=np.int64), heads, nexts)
