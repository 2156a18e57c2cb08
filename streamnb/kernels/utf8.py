"""UTF-8, one character at a time: from bytes to a code point and back.

Bytes that are not UTF-8 (stray, cut short, overlong, surrogates) read as the code point 0, one byte
at a time, so that they separate words and nothing behind them is swallowed.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels._jit import inner
from streamnb.kernels.layout import U8, Int


@inner
def decode(data: U8, at: int, end: int) -> tuple[Int, int]:  # noqa: PLR0911 -- one each length
    """Return the code point at `at` and its length in bytes; a broken one is one empty byte."""
    first = np.int64(data[at])
    if first < 0x80:
        return first, 1
    if first < 0xC2 or at + 1 >= end or data[at + 1] & 0xC0 != 0x80:
        return 0, 1
    second = np.int64(data[at + 1]) & 0x3F
    if first < 0xE0:
        return (first & 0x1F) << 6 | second, 2
    if at + 2 >= end or data[at + 2] & 0xC0 != 0x80:
        return 0, 1
    third = np.int64(data[at + 2]) & 0x3F
    if first < 0xF0:
        point = (first & 0x0F) << 12 | second << 6 | third
        return (point, 3) if point >= 0x800 and point & 0xF800 != 0xD800 else (0, 1)
    if at + 3 >= end or data[at + 3] & 0xC0 != 0x80:
        return 0, 1
    point = (first & 0x07) << 18 | second << 12 | third << 6 | np.int64(data[at + 3]) & 0x3F
    return (point, 4) if first < 0xF5 and 0x10000 <= point < 0x110000 else (0, 1)


@inner
def encode_into(text: U8, at: int, point: Int) -> int:
    """Write a code point as UTF-8 at `at`; return where the next one goes."""
    if point < 0x80:
        text[at] = point
        return at + 1
    if point < 0x800:
        text[at] = 0xC0 | point >> 6
        text[at + 1] = 0x80 | point & 0x3F
        return at + 2
    if point < 0x10000:
        text[at] = 0xE0 | point >> 12
        text[at + 1] = 0x80 | point >> 6 & 0x3F
        text[at + 2] = 0x80 | point & 0x3F
        return at + 3
    text[at] = 0xF0 | point >> 18
    text[at + 1] = 0x80 | point >> 12 & 0x3F
    text[at + 2] = 0x80 | point >> 6 & 0x3F
    text[at + 3] = 0x80 | point & 0x3F
    return at + 4
