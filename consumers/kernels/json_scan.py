"""JSON messages scanned for a few fields, and the fields' values copied out or looked up.

`scan` notes where the wanted fields of each message lie; `copy_texts` and `match` read the strings
and names there. `lay_out` and `gather` bring some strings together that were copied out;
`find_byte` finds where lines end.
Names (the keys below one object, the values that mean a label) are found by their
bytes: they stand in groups, each with a row of slots, and names of one slot are a chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streamnb.kernels.jit import inner, kernel, short_kernel
from streamnb.kernels.layout import I32, I64, U8, Flags, I64Grid, Int, Texts, load_eight
from streamnb.kernels.tokenize import decode, encode_into

# Bytes as they came: nobody may write into them, which is another type to the compiler.
Raw = Annotated[NDArray[np.uint8], types.Array(types.uint8, 1, "C", readonly=True)]

_SLOTS = 64
_NAME_QUOTE = ord('"')
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
        slot = _slot(_NAME_QUOTE, _NAME_QUOTE, 0)
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
    """Return the table of names, which are distinct within their group; all in group 0 by default.

    A name's place here is what `find_name` returns.
    """
    groups = [0] * len(names) if groups is None else groups
    heads = np.full((max(groups, default=0) + 1) * _SLOTS, NOBODY, np.int64)
    nexts = np.full(len(names), NOBODY, np.int64)
    for place, (name, group) in enumerate(zip(names, groups, strict=True)):
        first, last = (name[0], name[-1]) if name else (_NAME_QUOTE, _NAME_QUOTE)
        at = group * _SLOTS + ((first + 3 * last + 5 * len(name)) & (_SLOTS - 1))
        nexts[place], heads[at] = heads[at], place
    texts = np.frombuffer(bytearray(b"".join(names)), np.uint8)
    return Names(texts, np.cumsum([len(name) for name in names], dtype=np.int64), heads, nexts)


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
_U1, _U56 = np.uint64(1), np.uint64(56)

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
def _skip_plain(buffer: Raw, at: Int) -> Int:
    """Return the first place from `at` on that may not be passed over in a string.

    That is a quote, a backslash, a control character, a byte above ASCII, or one of the buffer's
    last seven, which are not read with their neighbours.
    """
    while at + 8 <= len(buffer):
        word = load_eight(buffer, at)
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
def string(buffer: Raw, at: Int, end: Int) -> tuple[Int, Int]:
    """Return where the string that begins at `at` has its closing quote, and its kind."""
    kind = PLAIN
    while True:
        at = _skip_plain(buffer, at)
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
def value(buffer: Raw, at: Int, end: Int) -> tuple[Int, Int]:  # noqa: PLR0911 -- one each kind
    """Return where a value ends, and its kind; of an object or array only the bracket is passed."""
    byte = byte_at(buffer, at)
    if byte == _QUOTE:
        at, kind = string(buffer, at + 1, end)
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


U8Grid = Annotated[NDArray[np.uint8], types.uint8[:, ::1]]

ROOT = 0

_DEPTH_MAX = 60  # one bit a level in a uint64, and far from where a recursive reader gives up
_COMMA, _COLON, _QUOTE_BYTE, _CURLY_END, _SQUARE_END = b',:"}]'
_U1_TYPE = np.uint64(1)


class Tree(NamedTuple):
    """The wanted fields. Field 0 is the message; each other one is a name below its parent.

    Their names are a table in groups by parent, where field 1 is the first name.
    """

    parents: I64  # by field; the message has none, -1
    wanted: Flags  # by field: its value is wanted. Otherwise it only leads on, as an object
    leads_on: Flags  # by field: it has fields below it


class Spans(NamedTuple):
    """What was found, by field and message: the message itself is field 0.

    A string's span lies within its quotes; any other value's has all its bytes.
    """

    kinds: U8Grid  # ABSENT where the caller begins
    starts: I64Grid
    ends: I64Grid


@inner
def _note(spans: Spans, tree: Tree, field: Int, i: Int, kind: Int, start: Int, end: Int) -> bool:
    """Note a field's value; False where it came before, or cannot lead on to its fields."""
    if spans.kinds[field, i] != ABSENT:
        return False
    if not tree.wanted[field] and kind != OBJECT and (kind != NULL or field == ROOT):
        return False
    quote = 1 if kind in (PLAIN, ESCAPED) else 0
    spans.kinds[field, i] = kind
    spans.starts[field, i] = start + quote
    spans.ends[field, i] = end - quote
    return True


@inner
def _key(buffer: Raw, at: Int, end: Int, names: Names, inside: int) -> tuple[Int, int]:
    """Return where the value behind a key begins, and the field that it is in an object's."""
    if at >= end or byte_at(buffer, at) != _QUOTE_BYTE:
        return BROKEN, NOBODY
    start = at + 1
    at, kind = string(buffer, start, end)
    if at == BROKEN or (inside != NOBODY and kind != PLAIN):
        return BROKEN, NOBODY
    name = find_name(buffer, start, at, names, inside) if inside != NOBODY else NOBODY
    at = behind_blanks(buffer, at + 1, end)
    if at >= end or byte_at(buffer, at) != _COLON:
        return BROKEN, NOBODY
    return at + 1, int(name) + 1 if name != NOBODY else NOBODY


@inner
def _message(  # noqa: PLR0911 -- one each doubt
    buffer: Raw, at: Int, end: Int, names: Names, tree: Tree, spans: Spans, i: Int
) -> bool:
    """Scan one message; False where it must be looked at again."""
    depth = 0
    objects = np.uint64(0)  # the containers we are in, innermost lowest: 1 for an object
    field = ROOT  # whose value comes next; -1: nobody's
    inside = NOBODY  # the field whose object we are directly in; -1 in what is passed over
    # What is passed over: the object it stands in, that one's depth, and whose value it is.
    around, around_depth, passed = NOBODY, -1, NOBODY
    while True:
        at = behind_blanks(buffer, at, end)
        if at >= end:
            return False
        start = at
        at, kind = value(buffer, at, end)
        if at == BROKEN:
            return False
        if field != NOBODY and not _note(spans, tree, field, i, kind, start, at):
            return False
        is_first = kind in (OBJECT, ARRAY)
        if is_first:
            if depth == _DEPTH_MAX:
                return False
            if kind == OBJECT and field != NOBODY and tree.leads_on[field]:
                inside = field
            elif inside != NOBODY:
                around, around_depth, passed = inside, depth, field
                inside = NOBODY
            objects = objects << _U1_TYPE | np.uint64(kind == OBJECT)
            depth += 1
        # What stands behind a value, or first in an object or array: up to the next value.
        while True:
            at = behind_blanks(buffer, at, end)
            if depth == 0:
                return at == end
            if at >= end:
                return False
            in_object = objects & _U1_TYPE != np.uint64(0)
            if byte_at(buffer, at) == (_CURLY_END if in_object else _SQUARE_END):
                at += 1
                is_first = False
                objects >>= _U1_TYPE
                depth -= 1
                if inside != NOBODY:
                    spans.ends[inside, i] = at
                    inside = int(tree.parents[inside])
                elif depth == around_depth:
                    if passed != NOBODY:
                        spans.ends[passed, i] = at
                    inside = around
                continue
            if not is_first:
                if byte_at(buffer, at) != _COMMA:
                    return False
                at = behind_blanks(buffer, at + 1, end)
            field = NOBODY
            if in_object:
                at, field = _key(buffer, at, end, names, inside)
                if at == BROKEN:
                    return False
            break


@kernel
def scan(
    buffer: Raw, starts: I64, ends: I64, names: Names, tree: Tree, spans: Spans, again: Flags
) -> None:
    """Scan messages; those that must be looked at again are marked, and have no field at all.

    A message whose end is -1 is not there.
    """
    for i in range(len(starts)):
        again[i] = ends[i] < 0 or not _message(buffer, starts[i], ends[i], names, tree, spans, i)
        if again[i]:
            for field in range(len(spans.kinds)):
                spans.kinds[field, i] = ABSENT


# -- what is done with what was found ----------------------------------------------------------

# What `match` answers where nothing stands, and where what stands is none of the names.
NOTHING, OTHER = -1, -2


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


@short_kernel
def lay_out(texts: Texts, is_kept: Flags, ends: I64) -> int:
    """Note where each text ends if they stand one behind the other; return the end of the last.

    One that is missing or not to be kept is noted as −1 − the end before it.
    """
    at = 0
    for i in range(len(ends)):
        if is_kept[i] and texts.ends[i] >= 0:
            at += int(texts.ends[i] - texts.starts[i])
            ends[i] = at
        else:
            ends[i] = -1 - at
    return at


@short_kernel
def gather(texts: Texts, ends: I64, out: U8) -> None:
    """Copy texts to where `lay_out` has noted them; those that are neighbours in one go."""
    at = begin = end = 0
    for i in range(len(ends) + 1):
        is_last = i == len(ends)
        if not is_last and ends[i] < 0:
            continue
        start = -1 if is_last else int(texts.starts[i])
        if start != end:
            for k in range(end - begin):
                out[np.uint64(at + k)] = texts.data[np.uint64(begin + k)]
            at += end - begin
            begin = start
        if not is_last:
            end = int(texts.ends[i])


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


@kernel
def find_byte(buffer: Raw, byte: int, out: I64) -> int:
    """Write the first places of a byte into `out`, ascending; return how many there are in all."""
    n, at, wanted = 0, 0, _ONES * np.uint64(byte)
    while at < len(buffer):
        if at + 8 <= len(buffer):
            word = load_eight(buffer, at) ^ wanted
            if (word - _ONES) & ~word & _HIGH == np.uint64(0):
                at += 8
                continue
        for k in range(at, min(at + 8, len(buffer))):
            if byte_at(buffer, k) == byte:
                if n < len(out):
                    out[np.uint64(n)] = k
                n += 1
        at += 8
    return n
