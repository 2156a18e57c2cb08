"""What is done with the spans of a scan: texts copied out, values told apart by their bytes."""

from __future__ import annotations

import numpy as np

from consumers.decode.kernels.json_scan import (
    ABSENT,
    ESCAPED,
    ESCAPES,
    FALSE,
    INTEGER,
    NULL,
    PLAIN,
    TRUE,
    Names,
    Raw,
    byte_at,
    find_name,
    hex_unit,
)
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import I32, I64, U8, Flags, Int, Texts
from streamnb.kernels.tokenize import encode_into

# What `match` answers where nothing stands, and where what stands is none of the names.
NOTHING, OTHER = -1, -2
_BACKSLASH, _U = b"\\u"


@inner
def _unescape(buffer: Raw, start: Int, end: Int, data: U8, at: int) -> int:
    """Write what a string with escapes means at `at`; return where the next text goes."""
    i = start
    while i < end:
        byte = byte_at(buffer, i)
        if byte != _BACKSLASH:
            data[at] = byte
            at += 1
            i += 1
        elif byte_at(buffer, i + 1) != _U:
            data[at] = ESCAPES[byte_at(buffer, i + 1)]
            at += 1
            i += 2
        else:
            point = hex_unit(buffer, i + 2)
            i += 6
            if point & 0xFC00 == 0xD800:
                # The scan has seen to it that the other half follows.
                point = 0x10000 + ((point & 0x3FF) << 10 | hex_unit(buffer, i + 2) & 0x3FF)
                i += 6
            at = encode_into(data, at, point)
    return at


@kernel
def copy_texts(
    buffer: Raw, kinds: U8, starts: I64, ends: I64, is_text: Flags, texts: Texts
) -> None:
    """Copy the strings of one field, unescaped, one behind the other; any other value is missing.

    Their room is that of their spans together, as no escape is shorter than what it means. Of the
    kinds that `is_text` names, such as integers, the bytes as they stand are a text too.
    """
    at = 0
    for i in range(len(kinds)):
        texts.starts[i] = at
        if kinds[i] == PLAIN or is_text[kinds[i]]:
            start = starts[i]
            for k in range(ends[i] - start):
                texts.data[np.uint64(at + k)] = byte_at(buffer, start + k)
            at += int(ends[i] - start)
            texts.ends[i] = at
        elif kinds[i] == ESCAPED:
            at = _unescape(buffer, starts[i], ends[i], texts.data, at)
            texts.ends[i] = at
        else:
            texts.ends[i] = -1


@kernel
def match(buffer: Raw, kinds: U8, starts: I64, ends: I64, names: Names, out: I32) -> None:
    """Find the values of one field among names, by their JSON texts (`spam`, `4`, `true`).

    Each is answered by its name's place, `NOTHING` where it is absent or null, and `OTHER` where it
    is no such name or not to be told by its bytes: an escaped string, a fraction, an object.
    """
    for i in range(len(kinds)):
        kind = kinds[i]
        if kind in (ABSENT, NULL):
            out[i] = NOTHING
        elif kind in (PLAIN, INTEGER, TRUE, FALSE):
            name = find_name(buffer, starts[i], ends[i], names, 0)
            out[i] = name if name >= 0 else OTHER
        else:
            out[i] = OTHER
