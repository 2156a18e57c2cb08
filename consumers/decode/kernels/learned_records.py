"""Where the values of records lie in chunks of them; see `consumers/pipeline/learned_records.py`.

A batch's deletes name records all over the memory, so a chunk is rarely asked for two of them: each
is looked up by itself, from the head of its chunk on.
"""

from __future__ import annotations

import numpy as np

from consumers.decode.kernels.json_scan import Raw
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import I64, U8, I64Grid, Int
from streamnb.kernels.memory import load_eight

MAGIC = int.from_bytes(b"SNL1", "little")
HEAD_BYTES, FIELD_BYTES = 32, 16
_RECORDS_AT, _FIELDS_AT, _STRUCTURE_AT = 4, 8, 20
# What `locate` finds of a record, each a column; then where each field begins and ends.
KIND, OFFSET, LABEL, ID, FIELDS = 0, 1, 2, 3, 5


@inner
def _long(data: Raw, at: Int) -> Int:
    return np.int64(load_eight(data, at))


@inner
def _short(data: Raw, at: Int) -> Int:
    return np.int64(load_eight(data, at) & np.uint64(0xFFFFFFFF))


@inner
def _ids_at(data: Raw, at: Int, row: Int) -> Int:
    """Return where the ids of a chunk begin; −1 if there is no chunk with such a row."""
    if at + HEAD_BYTES > len(data) or _short(data, at) != MAGIC:
        return -1
    n, n_fields = _short(data, at + _RECORDS_AT), _short(data, at + _FIELDS_AT)
    heads, body = at + HEAD_BYTES, at + HEAD_BYTES + _short(data, at + _STRUCTURE_AT)
    ids = heads + FIELD_BYTES * n_fields + 20 * n
    if row >= n or ids > body or body + n > len(data):
        return -1
    for k in range(n_fields):
        ids += 0 if _long(data, heads + FIELD_BYTES * k) else 8 * n
    return ids if ids <= body else -1


@inner
def _find_text(
    data: Raw, begin: Int, ends_at: Int, row: Int, found: I64Grid, i: Int, to: Int
) -> Int:
    """Note where a text begins and ends, −1 if it is missing; return how far it reaches."""
    first = _long(data, ends_at + 8 * (row - 1)) if row > 0 else 0
    last = _long(data, ends_at + 8 * row)
    first = -1 - first if first < 0 else first
    found[i, to] = begin + first
    found[i, to + 1] = -1 if last < 0 else begin + last
    return len(data) + 1 if 0 <= last < first else begin + last


@kernel
def locate(data: Raw, firsts: I64, places: I64, wanted: I64, found: I64Grid) -> Int:
    """Find records, ascending; return how many are sound.

    The chunks begin with the records `firsts`, at the bytes `places`. `found` has a row for each
    record, and −1 for an end of what is missing.
    """
    chunk = 0
    for i in range(len(wanted)):
        while chunk + 1 < len(firsts) and firsts[chunk + 1] <= wanted[i]:
            chunk += 1
        at, row = places[chunk], wanted[i] - firsts[chunk]
        ids = _ids_at(data, at, row)
        if ids < 0:
            return i
        n, n_fields = _short(data, at + _RECORDS_AT), _short(data, at + _FIELDS_AT)
        heads, body = at + HEAD_BYTES, at + HEAD_BYTES + _short(data, at + _STRUCTURE_AT)
        offsets = heads + FIELD_BYTES * n_fields
        found[i, KIND] = data[body + row]
        found[i, OFFSET] = _long(data, offsets + 8 * row)
        label = _short(data, offsets + 8 * n + 4 * row)
        found[i, LABEL] = label - (1 << 32) if label >> 31 else label
        ends, content = offsets + 12 * n, body + n
        reach = _find_text(data, ids, ends, row, found, i, ID)
        for k in range(min(n_fields, (found.shape[1] - FIELDS) // 2)):
            to = FIELDS + 2 * k
            if _long(data, heads + FIELD_BYTES * k):
                found[i, to] = content + 8 * row
                found[i, to + 1] = content + 8 * row + 8
                reach = max(reach, found[i, to + 1])
            else:
                ends += 8 * n
                reach = max(reach, _find_text(data, content, ends, row, found, i, to))
            content += _long(data, heads + FIELD_BYTES * k + 8)
        if reach > len(data):
            return i
    return len(wanted)


@kernel
def copy(data: Raw, begins: I64, ends: I64, to: I64, out: U8) -> None:
    """Copy pieces of bytes, each to its place; one that ends at −1 is missing."""
    for i in range(len(begins)):
        for k in range(ends[i] - begins[i] if ends[i] >= 0 else 0):
            out[to[i] + k] = data[begins[i] + k]
