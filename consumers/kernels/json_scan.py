"""JSON messages to positions: where the wanted fields of each lie in the bytes, and their kinds.

One pass over a message validates it as UTF-8 and as JSON, and notes the span of each field of a
fixed tree of names. No value is built: texts are copied out by `spans`, and whoever wants a number
reads it from its span.

The scan is **sound, not complete**. It answers for a message only where it is sure that msgspec
takes it and finds the same fields. Where it is not (broken JSON or UTF-8, a field that comes twice,
an escaped key, half a surrogate pair, a NUL, a number of unusual length, deep nesting, a plain
value where an object should lead on) it leaves the message to the reader that knows every case and
every sentence. So nothing here decides what is wrong with a message.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from consumers.kernels.json_values import (
    ABSENT,
    ARRAY,
    BROKEN,
    ESCAPED,
    NULL,
    OBJECT,
    PLAIN,
    RawWords,
    behind_blanks,
    string,
    value,
)
from consumers.kernels.names import NOBODY, Names, Raw, byte_at, find_name
from streamnb.kernels._jit import inner, kernel
from streamnb.kernels.layout import I64, Flags, I64Grid, Int, compiled_type

U8Grid = Annotated[NDArray[np.uint8], types.uint8[:, ::1]]

ROOT = 0

_DEPTH_MAX = 60  # one bit a level in a uint64, and far from where a recursive reader gives up
_COMMA, _COLON, _QUOTE, _CURLY_END, _SQUARE_END = b',:"}]'
_U1 = np.uint64(1)


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
def _key(
    buffer: Raw, words: RawWords, at: Int, end: Int, names: Names, inside: int
) -> tuple[Int, int]:
    """Return where the value behind a key begins, and the field that it is in an object's."""
    if at >= end or byte_at(buffer, at) != _QUOTE:
        return BROKEN, NOBODY
    start = at + 1
    at, kind = string(buffer, words, start, end)
    if at == BROKEN or (inside != NOBODY and kind != PLAIN):
        return BROKEN, NOBODY
    name = find_name(buffer, start, at, names, inside) if inside != NOBODY else NOBODY
    at = behind_blanks(buffer, at + 1, end)
    if at >= end or byte_at(buffer, at) != _COLON:
        return BROKEN, NOBODY
    return at + 1, int(name) + 1 if name != NOBODY else NOBODY


@inner
def _message(  # noqa: PLR0911 -- one each doubt
    buffer: Raw,
    words: RawWords,
    at: Int,
    end: Int,
    names: Names,
    tree: Tree,
    spans: Spans,
    i: Int,
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
        at, kind = value(buffer, words, at, end)
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
            objects = objects << _U1 | np.uint64(kind == OBJECT)
            depth += 1
        # What stands behind a value, or first in an object or array: up to the next value.
        while True:
            at = behind_blanks(buffer, at, end)
            if depth == 0:
                return at == end
            if at >= end:
                return False
            in_object = objects & _U1 != np.uint64(0)
            if byte_at(buffer, at) == (_CURLY_END if in_object else _SQUARE_END):
                at += 1
                is_first = False
                objects >>= _U1
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
                at, field = _key(buffer, words, at, end, names, inside)
                if at == BROKEN:
                    return False
            break


@kernel(
    types.void,
    types.Array(types.uint8, 1, "C", readonly=True),
    types.Array(types.uint64, 1, "C", readonly=True),
    types.int64[::1],
    types.int64[::1],
    compiled_type(Names),
    compiled_type(Tree),
    compiled_type(Spans),
    types.boolean[::1],
)
def scan(
    buffer: Raw,
    words: RawWords,
    starts: I64,
    ends: I64,
    names: Names,
    tree: Tree,
    spans: Spans,
    again: Flags,
) -> None:
    """Scan messages; those that must be looked at again are marked, and have no field at all.

    `words` is the buffer's memory by whole eight bytes. A message whose end is -1 is not there.
    """
    for i in range(len(starts)):
        again[i] = ends[i] < 0 or not _message(
            buffer, words, starts[i], ends[i], names, tree, spans, i
        )
        if again[i]:
            for field in range(len(spans.kinds)):
                spans.kinds[field, i] = ABSENT
