"""Tokens that are no words: emoticons, links, mentions, emoji, flags and ideographs."""

from __future__ import annotations

import numpy as np

from streamnb.kernels._jit import inner
from streamnb.kernels.characters import (
    DIGIT,
    EMOJI,
    FLAG,
    IDEOGRAPH,
    JOINER,
    LETTER,
    OPT_EMOTICONS,
    OPT_LINKS,
    SPACE,
    WORD_BYTES_MAX,
    class_of,
)
from streamnb.kernels.layout import U8, Int, Reader
from streamnb.kernels.utf8 import decode

ZERO_WIDTH_JOINER = 0x200D
LINK = np.frombuffer(b"<link>", dtype=np.uint8)
USER = np.frombuffer(b"<user>", dtype=np.uint8)


@inner
def match_emoticon(data: U8, at: int, end: int, reader: Reader) -> int:
    """Return the length in bytes of the longest emoticon at `at`, or 0 where it runs on as a word.

    A letter at its end may repeat (`xDDD`), a digit may not: `12:33` is a time.
    """
    node = np.int64(0)
    best = 0
    i = at
    while i < end and data[i] < 128:
        node = np.int64(reader.trie[node, data[i]])
        if node == 0:
            break
        i += 1
        if reader.accepts[node]:
            best = i - at
    if best == 0:
        return 0
    last = class_of(np.int64(data[at + best - 1]), reader)
    i = at + best
    while last == LETTER and i < end and data[i] == data[i - 1]:
        i += 1
    if (last in (LETTER, DIGIT)) and i < end:
        point, _ = decode(data, i, end)
        if class_of(point, reader) in (LETTER, DIGIT):
            return 0
    return best


@inner
def link_length(data: U8, at: int, end: int, reader: Reader) -> int:
    """Return the length in bytes of the link at `at`, or 0."""
    rest = end - at
    is_link = (
        rest > 4
        and data[at] | 32 == ord("w")
        and data[at + 1] | 32 == ord("w")
        and data[at + 2] | 32 == ord("w")
        and data[at + 3] == ord(".")
    )
    if (
        rest > 7
        and data[at] | 32 == ord("h")
        and data[at + 1] | 32 == ord("t")
        and data[at + 2] | 32 == ord("t")
        and data[at + 3] | 32 == ord("p")
    ):
        colon = at + 4 + (data[at + 4] | 32 == ord("s"))
        if (
            colon + 3 < end
            and data[colon] == ord(":")
            and data[colon + 1] == ord("/")
            and data[colon + 2] == ord("/")
        ):
            is_link = True
    if not is_link:
        return 0
    i = at
    while i < end:
        point, size = decode(data, i, end)
        if class_of(point, reader) == SPACE or point in (10, 0):
            break
        i += size
    return i - at


@inner
def pictograph_length(data: U8, at: int, end: int, kind: Int, size: int, reader: Reader) -> int:
    """Return the length in bytes of the emoji, flag or ideograph at `at`, joined parts included."""
    i = at + size
    if kind == IDEOGRAPH:
        return size
    if kind == FLAG:
        if i < end:
            point, more = decode(data, i, end)
            if class_of(point, reader) == FLAG:
                i += more
        return i - at
    joined = False
    while i < end:
        point, more = decode(data, i, end)
        part = class_of(point, reader)
        if i + more - at > WORD_BYTES_MAX or (part != JOINER and not (joined and part == EMOJI)):
            break
        joined = point == ZERO_WIDTH_JOINER
        i += more
    return i - at


@inner
def put(text: U8, at: int, literal: U8) -> int:
    """Copy a literal to `text[at:]`; return where it ends."""
    for k in range(len(literal)):
        text[at + k] = literal[k]
    return at + len(literal)


@inner
def read_mention(data: U8, at: int, end: int, text: U8, out: int) -> tuple[int, int]:
    """Read `@name` as `<user>`; a lone `@` is passed over."""
    i = at + 1
    while i < end and (48 <= data[i] <= 57 or 97 <= data[i] | 32 <= 122 or data[i] == 95):
        i += 1
    return i, put(text, out, USER) if i > at + 1 else out


@inner
def read_sign(
    data: U8, at: int, end: int, point: Int, kind: Int, text: U8, out: int, reader: Reader
) -> tuple[int, int]:
    """Read an emoticon, a link, an emoji, a flag or an ideograph at `at`, if there is one."""
    options = reader.options
    if options[OPT_EMOTICONS] and point < 128 and reader.trie[0, point] != 0:
        length = match_emoticon(data, at, end, reader)
        if length > 0:
            i = at + length
            while i < end and data[i] == data[i - 1]:
                i += 1
            return i, put(text, out, data[at : at + length])
    if options[OPT_LINKS] and (point | 32 == 104 or point | 32 == 119):
        length = link_length(data, at, end, reader)
        if length > 0:
            return at + length, put(text, out, LINK)
    if kind in (EMOJI, FLAG, IDEOGRAPH):
        length = pictograph_length(data, at, end, kind, decode(data, at, end)[1], reader)
        return at + length, put(text, out, data[at : at + length])
    return at, out
