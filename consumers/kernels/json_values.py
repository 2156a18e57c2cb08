"""The parts of JSON, one by one: blanks, strings, numbers, words; where each ends and its kind.

What is broken, and what is written so oddly that readers may differ on it, is `BROKEN` alike.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numba import types
from numpy.typing import NDArray

from consumers.kernels.names import Raw, byte_at
from streamnb.kernels._jit import inner
from streamnb.kernels.layout import Int
from streamnb.kernels.utf8 import decode

RawWords = Annotated[NDArray[np.uint64], types.Array(types.uint64, 1, "C", readonly=True)]

# What stands at a field. A plain string has no escape: its bytes are its text.
ABSENT, NULL, PLAIN, ESCAPED, INTEGER, NUMBER, TRUE, FALSE, OBJECT, ARRAY = range(10)
N_KINDS = 10
BROKEN = -1

_INTEGER_DIGITS_MAX = 18  # fits an int64 with its sign; nineteen without one fit a uint64
_FRACTION_DIGITS_MAX = 40
_EXPONENT_DIGITS_MAX = 2  # so that no number is out of a float's range

_TAB, _NEWLINE, _RETURN, _BLANK, _QUOTE, _BACKSLASH = b'\t\n\r "\\'
_CURLY, _SQUARE = b"{["
_MINUS, _PLUS, _POINT, _ZERO, _NINE, _E, _U = b"-+.09eu"
_LOWER_CASE = 0x20
_NULL, _TRUE, _FALSE = (np.frombuffer(word, np.uint8) for word in (b"null", b"true", b"false"))

# Eight bytes at a time: a byte's high bit is set where it stops a string.
_ONES = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_QUOTES = _ONES * np.uint64(_QUOTE)
_BACKSLASHES = _ONES * np.uint64(_BACKSLASH)
_BLANKS = _ONES * np.uint64(_BLANK)
_U1, _U56, _U63 = np.uint64(1), np.uint64(56), np.uint64(63)

_digits = np.full(256, 16, np.uint8)
_digits[list(b"0123456789abcdef")] = range(16)
_digits[list(b"ABCDEF")] = range(10, 16)
HEX_DIGITS = _digits  # byte → its value as a hexadecimal digit; 16: it is none
_escapes = np.zeros(256, np.uint8)
_escapes[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
ESCAPES = _escapes  # the byte behind a backslash → what both mean; 0: no such escape


@inner
def behind_blanks(buffer: Raw, at: Int, end: Int) -> Int:
    """Return the first place from `at` on that is no white space."""
    while at < end and byte_at(buffer, at) <= _BLANK:
        byte = byte_at(buffer, at)
        if byte not in (_BLANK, _NEWLINE, _RETURN, _TAB):
            return at
        at += 1
    return at


@inner
def hex_unit(buffer: Raw, at: Int) -> Int:
    """Return the number that four hexadecimal digits spell; above 0xFFFF where one is none."""
    value = np.int64(0)
    for k in range(4):
        digit = np.int64(HEX_DIGITS[byte_at(buffer, at + k)])
        value = value << 4 | digit | (digit & 16) << 16
    return value


@inner
def _behind_escape(buffer: Raw, at: Int, end: Int) -> Int:  # noqa: PLR0911 -- one each doubt
    """Return where the escape at `at` ends; broken, or half a pair, or NUL: `BROKEN`."""
    if at + 1 >= end:
        return BROKEN
    if byte_at(buffer, at + 1) != _U:
        return at + 2 if ESCAPES[byte_at(buffer, at + 1)] != 0 else BROKEN
    if at + 6 > end:
        return BROKEN
    unit = hex_unit(buffer, at + 2)
    if unit == 0 or unit > 0xFFFF:
        return BROKEN
    if unit & 0xF800 != 0xD800:
        return at + 6
    if unit >= 0xDC00 or at + 12 > end:
        return BROKEN
    if byte_at(buffer, at + 6) != _BACKSLASH or byte_at(buffer, at + 7) != _U:
        return BROKEN
    return at + 12 if hex_unit(buffer, at + 8) & ~0x3FF == 0xDC00 else BROKEN


@inner
def _skip_plain(words: RawWords, at: Int) -> Int:
    """Return the first place from `at` on that may not be passed over in a string.

    That is a quote, a backslash, a control character, a byte above ASCII, or one that is too near
    to the buffer's end to be read with its neighbours.
    """
    while (at >> 3) + 1 < len(words):
        place = np.uint64(at >> 3)
        shift = np.uint64((at & 7) << 3)
        # Eight bytes from any place on, of two whole words. Each shift stays below 64.
        word = words[place] >> shift | (words[place + _U1] << (_U63 - shift)) << _U1
        # A byte below what is subtracted borrows into its high bit. What it borrows from the byte
        # above may mark that one wrongly, but only the lowest mark is used.
        marks = (
            ((word ^ _QUOTES) - _ONES) | ((word ^ _BACKSLASHES) - _ONES) | (word - _BLANKS) | word
        ) & _HIGH
        if marks:
            # One for each byte up to the lowest mark, counted by a multiplication.
            below = (marks - _U1) & ~marks & _ONES
            return at + np.int64((below * _ONES) >> _U56) - 1
        at += 8
    return at


@inner
def string(buffer: Raw, words: RawWords, at: Int, end: Int) -> tuple[Int, Int]:
    """Return where the string that begins at `at` has its closing quote, and its kind."""
    kind = PLAIN
    while True:
        at = _skip_plain(words, at)
        if at >= end:
            return BROKEN, kind
        byte = byte_at(buffer, at)
        if byte == _QUOTE:
            return at, kind
        if byte == _BACKSLASH:
            kind = ESCAPED
            at = _behind_escape(buffer, at, end)
            if at == BROKEN:
                return BROKEN, kind
        elif byte < _BLANK:
            return BROKEN, kind
        elif byte < 0x80:
            at += 1
        else:
            # Texts in other scripts come in runs.
            while at < end and byte_at(buffer, at) >= 0x80:
                point, size = decode(buffer, int(at), int(end))
                if point == 0:
                    return BROKEN, kind
                at += size


@inner
def _behind_digits(buffer: Raw, at: Int, end: Int) -> Int:
    while at < end and _ZERO <= byte_at(buffer, at) <= _NINE:
        at += 1
    return at


@inner
def _number(buffer: Raw, at: Int, end: Int) -> tuple[Int, Int]:
    """Return where a number ends, and its kind; `BROKEN` for one that is not as most are."""
    negative = byte_at(buffer, at) == _MINUS
    first = at + 1 if negative else at
    at = _behind_digits(buffer, first, end)
    n_digits = at - first
    if n_digits == 0 or n_digits > _INTEGER_DIGITS_MAX + (not negative):
        return BROKEN, NUMBER
    is_zero = byte_at(buffer, first) == _ZERO
    if is_zero and n_digits > 1:
        return BROKEN, NUMBER
    kind = INTEGER
    if at < end and byte_at(buffer, at) == _POINT:
        kind = NUMBER
        first = at + 1
        at = _behind_digits(buffer, first, end)
        if at == first or at - first > _FRACTION_DIGITS_MAX:
            return BROKEN, NUMBER
    if at < end and byte_at(buffer, at) | _LOWER_CASE == _E:
        kind = NUMBER
        first = at + 1
        if first < end and (byte_at(buffer, first) == _MINUS or byte_at(buffer, first) == _PLUS):
            first += 1
        at = _behind_digits(buffer, first, end)
        if at == first or at - first > _EXPONENT_DIGITS_MAX:
            return BROKEN, NUMBER
    if kind == INTEGER and is_zero and negative:
        return BROKEN, NUMBER
    return at, kind


@inner
def _behind_word(buffer: Raw, at: Int, end: Int, word: Raw) -> Int:
    if at + len(word) > end:
        return BROKEN
    for k in range(len(word)):
        if byte_at(buffer, at + k) != word[k]:
            return BROKEN
    return at + len(word)


@inner
def value(  # noqa: PLR0911 -- one each kind
    buffer: Raw, words: RawWords, at: Int, end: Int
) -> tuple[Int, Int]:
    """Return where a value ends, and its kind; of an object or array only the bracket is passed."""
    byte = byte_at(buffer, at)
    if byte == _QUOTE:
        at, kind = string(buffer, words, at + 1, end)
        return (at + 1, kind) if at != BROKEN else (BROKEN, kind)
    if byte == _CURLY:
        return at + 1, OBJECT
    if byte == _SQUARE:
        return at + 1, ARRAY
    if byte == _TRUE[0]:
        return _behind_word(buffer, at, end, _TRUE), TRUE
    if byte == _FALSE[0]:
        return _behind_word(buffer, at, end, _FALSE), FALSE
    if byte == _NULL[0]:
        return _behind_word(buffer, at, end, _NULL), NULL
    if byte == _MINUS or _ZERO <= byte <= _NINE:
        return _number(buffer, at, end)
    return BROKEN, ABSENT
