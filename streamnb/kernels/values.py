"""Values of categories → columns: the table of words, keyed by a field and a whole value of it.

A value's fingerprint is its field's, joined with SipHash of the value's bytes: equal values of two
fields are two. The table keeps `field NUL value` as text. Of a long value it keeps the beginning
and a hash of the whole, which needs no key, so that values leave a full table in the same order in
every model; the fingerprint is always that of all its bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types

from streamnb.kernels._jit import inner, kernel
from streamnb.kernels.hashing import join, plain_hash, siphash
from streamnb.kernels.layout import (
    I32,
    I64,
    U8,
    U64,
    Flags,
    I32Grid,
    Int,
    Table,
    Texts,
    compiled_type,
)
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
from streamnb.kernels.memory import load_eight

UNSEEN, MISSING = -1, -2
KEPT_BYTES = 200  # of a longer value's text
_ELLIPSIS = np.frombuffer("…".encode(), dtype=np.uint8)
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_N_DIGITS = 16
_TEXT_ROOM = KEPT_BYTES + len(_ELLIPSIS) + _N_DIGITS


class Fields(NamedTuple):
    """The fields whose values are looked up."""

    fingerprints: U64
    names: U8  # each name and a NUL, one behind the other
    name_ends: I64
    is_open: Flags  # False: its values are declared, and no other is ever entered


@inner
def _hash(data: U8, start: Int, end: Int, key: U64, words: U64) -> np.uint64:
    """Return SipHash of some bytes; `words` has room for them and one word more."""
    size = end - start
    n_whole = size >> 3
    for k in range(n_whole):
        words[k] = load_eight(data, start + 8 * k)
    last = np.uint64(0)
    for k in range(8 * n_whole, size):
        last |= np.uint64(data[start + k]) << np.uint64(8 * (k & 7))
    words[n_whole] = last
    return siphash(words, 0, int(size), key[0], key[1])


@kernel(
    types.void,
    compiled_type(Texts),
    types.uint64[::1],
    types.uint64[::1],
    types.uint64[::1],
    types.uint64[::1],
)
def fingerprint_many(texts: Texts, of_fields: U64, key: U64, words: U64, out: U64) -> None:
    """Write the fingerprints of values of the fields with fingerprints `of_fields`."""
    for i in range(len(out)):
        out[i] = join(of_fields[i], _hash(texts.data, texts.starts[i], texts.ends[i], key, words))


@inner
def _append(fields: Fields, j: Int, data: U8, start: Int, end: Int, text: U8, at: Int) -> Int:
    """Write field and value behind `text[:at]`; return where they end."""
    begin = fields.name_ends[j - 1] if j > 0 else np.int64(0)
    for k in range(begin, fields.name_ends[j]):
        text[at] = fields.names[k]
        at += 1
    stop = end
    if end - start > KEPT_BYTES:
        stop = start + KEPT_BYTES
        while stop > start and data[stop] & 0xC0 == 0x80:
            stop -= 1  # no character is cut in two
    for k in range(start, stop):
        text[at] = data[k]
        at += 1
    if stop < end:
        whole = plain_hash(data, start, end)
        for k in range(len(_ELLIPSIS)):
            text[at] = _ELLIPSIS[k]
            at += 1
        for k in range(_N_DIGITS):
            digit = whole >> np.uint64(4 * (_N_DIGITS - 1 - k)) & np.uint64(15)
            text[at] = _DIGITS[np.int64(digit)]
            at += 1
    return at


@inner
def _lacks(table: Table, n_bytes: Int) -> tuple[int, int]:
    """Return what the table lacks to take up one more value, and the room it wants."""
    n_words = table.state[N_WORDS] + 1
    n_slots = len(table.slots)
    if n_words > len(table.word_ends):
        return NEEDS_COLUMNS, n_words
    if n_words > n_slots - (n_slots >> 2) - (n_slots >> 3):
        return NEEDS_SLOTS, 2 * n_slots
    if table.state[TEXT_BYTES] + n_bytes > len(table.words):
        return NEEDS_TEXT, table.state[TEXT_BYTES] + n_bytes
    return DONE, 0


@kernel(
    types.UniTuple(types.int64, 3),
    compiled_type(Texts),
    types.int64[::1],
    types.int32[::1],
    types.int64,
    types.boolean,
    types.int64,
    compiled_type(Fields),
    types.uint64[::1],
    compiled_type(Table),
    types.uint64[::1],
    types.int32[::1],
    types.int32[:, ::1],
)
def encode(
    texts: Texts,
    which: I64,
    labels: I32,
    row: int,
    learn: bool,
    n_known: int,
    fields: Fields,
    key: U64,
    table: Table,
    words: U64,
    field_of: I32,
    out: I32Grid,
) -> tuple[int, int, int]:
    """Write the columns of values from `row` on; return where it stopped, why, the room it wants.

    Row i's value of field `which[f]` is text i·len(which) + f. New values enter the table only
    where `learn` and the row has a label; `field_of` is as long as the table has columns. Without
    `learn` the table is only read, and just its first `n_known` columns are seen.
    """
    state = table.state
    n_which = len(which)
    for i in range(row, len(labels)):
        for f in range(n_which):
            j = which[f]
            start, end = texts.starts[i * n_which + f], texts.ends[i * n_which + f]
            if end < 0:
                out[i, j] = MISSING
                continue
            known = state[N_WORDS] if learn else n_known
            print_ = join(fields.fingerprints[j], _hash(texts.data, start, end, key, words))
            column = np.int64(find(print_, table.slots, table.fingerprints, known))
            if column < 0 and fields.is_open[j] and learn and labels[i] >= 0:
                begin = fields.name_ends[j - 1] if j > 0 else np.int64(0)
                why, wanted = _lacks(table, fields.name_ends[j] - begin + _TEXT_ROOM)
                if why != DONE:
                    return i, why, wanted
                column = state[N_WORDS]
                table.fingerprints[column] = print_
                if not place(print_, column, table.slots):
                    return i, NEEDS_SLOTS, 2 * len(table.slots)
                state[TEXT_BYTES] = _append(
                    fields, j, texts.data, start, end, table.words, state[TEXT_BYTES]
                )
                table.word_ends[column] = state[TEXT_BYTES]
                field_of[column] = j
                state[N_WORDS] = column + 1
            if column < 0 and not fields.is_open[j]:
                out[i, j] = MISSING
            else:
                out[i, j] = column
    return len(labels), DONE, 0
