"""Whole texts into a vocabulary's table: each is one feature, whatever it is made of."""

from __future__ import annotations

import numpy as np
from numba import types

from streamnb.kernels._jit import kernel
from streamnb.kernels.layout import I32, U64, Table, Texts, compiled_type
from streamnb.kernels.lookup import (
    DONE,
    N_WORDS,
    NEEDS_COLUMNS,
    NEEDS_SLOTS,
    NEEDS_TEXT,
    TEXT_BYTES,
    find,
    place,
)


@kernel(
    types.UniTuple(types.int64, 3),
    types.uint64[::1],
    compiled_type(Texts),
    types.int64,
    compiled_type(Table),
    types.int32[::1],
)
def enter_many(
    fingerprints: U64, texts: Texts, at: int, table: Table, out: I32
) -> tuple[int, int, int]:
    """Write the columns of texts from `at` on, giving new ones to those that have none.

    Returns where it stopped, why, and the room it wants, as `lookup.encode` does.
    """
    state = table.state
    n_slots = len(table.slots)
    n_words_max = n_slots - (n_slots >> 2) - (n_slots >> 3)
    for i in range(at, len(fingerprints)):
        column = find(fingerprints[i], table.slots, table.fingerprints, state[N_WORDS])
        if column < 0:
            size = texts.ends[i] - texts.starts[i]
            column = state[N_WORDS]
            if column + 1 > len(table.word_ends):
                return i, NEEDS_COLUMNS, column + 1
            if column + 1 > n_words_max:
                return i, NEEDS_SLOTS, 2 * n_slots
            if state[TEXT_BYTES] + size > len(table.words):
                return i, NEEDS_TEXT, state[TEXT_BYTES] + size
            table.fingerprints[column] = fingerprints[i]
            if not place(fingerprints[i], int(column), table.slots):
                return i, NEEDS_SLOTS, 2 * n_slots
            for k in range(size):
                table.words[state[TEXT_BYTES] + k] = texts.data[texts.starts[i] + k]
            state[TEXT_BYTES] += size
            table.word_ends[column] = state[TEXT_BYTES]
            state[N_WORDS] = column + 1
        out[i] = np.int32(column)
    return len(fingerprints), DONE, 0
