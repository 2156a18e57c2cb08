"""What kinds of characters there are, and the options that text is read by."""

from __future__ import annotations

import numpy as np

from streamnb.kernels.hashing import negate, siphash, siphash_short
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import U8, U64, Flags, Int, Scratch, Texts, TokenizerTables, load_eight

(SEPARATOR, LETTER, DIGIT, IDEOGRAPH, EMOJI, CLAUSE, APOSTROPHE, AT, HASH, JOINER, FLAG, SPACE) = (
    range(12)
)
# Places in the options array.
OPT_CASE, OPT_MENTIONS, OPT_LINKS, OPT_SQUEEZE, OPT_EMOTICONS, OPT_NEGATION = range(6)
OPT_NGRAM_MIN, OPT_NGRAM_MAX, OPT_OCCURRENCE, OPT_PUNCTUATION, OPT_ENDS, OPT_GAP = range(6, 12)
OPT_CHARACTERS_MIN, OPT_CHARACTERS_MAX = range(12, 14)
N_OPTIONS = 14
WORD_BYTES_MAX = 64
BLANK = 32
_AMPERSAND = 38
_FIRST_COMBINING = 0x300  # no text of characters below it is other than composed
_LEAD_COMBINING = 0xCC  # the first byte of its UTF-8, and none of a lower character's is as high


@inner
def class_of(point: Int, reader: TokenizerTables) -> Int:
    """Return the character class of a code point."""
    return np.int64(reader.classes[np.int64(reader.blocks[point >> 7]) << 7 | point & 127])


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


SHORT_BYTES_MAX = 7
_ONES = np.uint64(0x0101010101010101)
_FLAGS = np.uint64(0x8080808080808080)
_LOWER_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_CASE = np.uint64(0x2020202020202020)
_FROM_A = _ONES * np.uint64(128 - ord("a"))
_FROM_AFTER_Z = _ONES * np.uint64(128 - ord("z") - 1)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_BYTE = np.uint64(8)
_TOP_BYTE = np.uint64(56)


@inner
def count_leading(flags: np.uint64) -> Int:
    """Return how many bytes from the lowest on have their flag set."""
    first_unset = ~flags & _FLAGS
    below = (first_unset & (~first_unset + _ONE)) - _ONE
    return np.int64(((below & _ONES) * _ONES) >> _TOP_BYTE) - 1 if first_unset != _ZERO else 8


@inner
def letter_flags(word: np.uint64) -> np.uint64:
    """Flag the bytes that are ASCII letters."""
    low = (word | _CASE) & _LOWER_BITS
    return (low + _FROM_A) & ~(low + _FROM_AFTER_Z) & ~word & _FLAGS


@inner
def has_triple(word: np.uint64, n: Int) -> bool:
    """Return whether three of the first `n` bytes in a row are the same."""
    differing = word ^ (word >> _BYTE)
    same = ~(((differing & _LOWER_BITS) + _LOWER_BITS) | differing | _LOWER_BITS)
    pairs = same & ((_ONE << np.uint64(8 * (n - 1))) - _ONE)
    return bool((pairs & (pairs >> _BYTE)) != _ZERO)


@inner
def read_short(
    data: U8, at: int, end: int, folding: bool, squeezing: bool, reader: TokenizerTables
) -> tuple[int, np.uint64]:
    """Return length and folded bytes of the word at `at`; a length of 0 where it is no plain one.

    Eight bytes from `at` on must lie within `data`.
    """
    word = load_eight(data, at)
    n = min(int(count_leading(letter_flags(word))), end - at)
    if n == 0 or n > SHORT_BYTES_MAX or (at + n < end and not reader.stops[data[at + n]]):
        return 0, _ZERO
    if folding:
        word |= _CASE
    word &= (_ONE << np.uint64(8 * n)) - _ONE
    if squeezing and has_triple(word, n):
        return 0, _ZERO
    return n, word


ZERO_WIDTH_JOINER = 0x200D
LINK = np.frombuffer(b"<link>", dtype=np.uint8)
USER = np.frombuffer(b"<user>", dtype=np.uint8)
# What stands in n-grams for the beginning and the end of a text; no word looks like them.
EDGES = np.frombuffer(b"^$", dtype=np.uint8)
_STOP, _WIDE_STOP, _DOTS, _EXCLAMATION, _WIDE_EXCLAMATION, _QUESTION, _WIDE_QUESTION = map(
    ord, ".。…!！?？"
)
_COMMA, _WIDE_COMMA, _LIST_COMMA = map(ord, ",，、")


@inner
def match_emoticon(data: U8, at: int, end: int, reader: TokenizerTables) -> int:
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
def link_length(data: U8, at: int, end: int, reader: TokenizerTables) -> int:
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
def pictograph_length(
    data: U8, at: int, end: int, kind: Int, size: int, reader: TokenizerTables
) -> int:
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
def read_punctuation(data: U8, at: int, end: int, text: U8, out: int) -> tuple[int, int]:
    """Read a comma, a run of dots, or of `!` and `?`, as a word; other signs are passed over.

    A run is written as one sign or as two (`!`, `!!`), dots as three, and a mixed run as `?!`.
    """
    i = at
    n_dots, n_exclamations, n_questions = 0, 0, 0
    while i < end:
        point, size = decode(data, i, end)
        if i == at and point in (_COMMA, _WIDE_COMMA, _LIST_COMMA):
            text[out] = _COMMA
            return at + size, out + 1
        if n_exclamations + n_questions == 0 and point in (_STOP, _WIDE_STOP, _DOTS):
            n_dots += 2 if point == _DOTS else 1
        elif n_dots == 0 and point in (_EXCLAMATION, _WIDE_EXCLAMATION):
            n_exclamations += 1
        elif n_dots == 0 and point in (_QUESTION, _WIDE_QUESTION):
            n_questions += 1
        else:
            break
        i += size
    n_written = 0
    first = last = 0
    if n_dots > 0:
        first = last = _STOP
        n_written = 1 if n_dots == 1 else 3
    elif i > at:
        first = _QUESTION if n_questions > 0 else _EXCLAMATION
        last = _EXCLAMATION if n_exclamations > 0 else _QUESTION
        n_written = 1 if n_exclamations + n_questions == 1 else 2
    for k in range(n_written):
        text[out + k] = first if k == 0 else last
    return max(i, at + decode(data, at, end)[1]), out + n_written


@inner
def read_sign(
    data: U8, at: int, end: int, point: Int, kind: Int, text: U8, out: int, reader: TokenizerTables
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


# On 500,000 tweets, unigrams: 79.2 % right with two words, 78.2 % without negation, 77.7 % up to
# the end of the clause.
NEGATION_REACH = 2
EXPANDS = 0x200000
# In the table of openers: from how many letters on it is a word, and whether it may be a link.
LETTERS, MAY_OPEN_LINK = 3, 4
_HTTP, _WWW, _LOWER_CASE = (
    np.uint64(int.from_bytes(sign, "little")) for sign in (b"http", b"www", b"    ")
)
_THREE_BYTES, _FOUR_BYTES = np.uint64(0xFFFFFF), np.uint64(0xFFFFFFFF)
_NOTHING = np.uint64(0)


@inner
def read_word(
    data: U8, at: int, end: int, text: U8, begin: int, reader: TokenizerTables
) -> tuple[int, int]:
    """Copy the word at `at` to `text[begin:]`, folded and squeezed; return where both end."""
    folding = reader.options[OPT_CASE] != 0
    run_max = 2 if reader.options[OPT_SQUEEZE] != 0 else end - at
    i = at
    out = begin
    limit = begin + WORD_BYTES_MAX - 12  # a character takes up to twelve bytes once folded
    previous = np.int64(-1)
    run = 0
    while i < end:
        letter = np.int64(reader.letters[data[i]])
        if letter != 0:
            i += 1
            run = run + 1 if letter == previous else 1
            previous = letter
            if run <= run_max:
                if out > limit:
                    limit = begin - 1
                else:
                    text[out] = letter
                    out += 1
            continue
        point, size = decode(data, i, end)
        cell = np.int64(reader.blocks[point >> 7]) << 7 | point & 127
        kind = np.int64(reader.classes[cell])
        if kind == APOSTROPHE:
            after = i + size
            if i == at or after >= end:
                break
            following, _ = decode(data, after, end)
            if class_of(following, reader) != LETTER:
                break
            point = np.int64(39)
        elif kind == HASH:
            if i != at:
                break
        elif kind not in (LETTER, DIGIT):
            break
        i += size
        shift = np.int64(reader.folds[cell]) if folding and kind == LETTER else np.int64(0)
        expands = shift >= EXPANDS
        folded = point if expands else point + shift
        run = run + 1 if point + shift == previous else 1
        previous = point + shift
        if kind == LETTER and run > run_max:
            continue
        if out > limit:
            limit = begin - 1  # cut: the rest of the word is read and left out
            continue
        if expands:
            for k in range(3):
                part = np.int64(reader.expansions[shift - EXPANDS, k])
                if part != 0:
                    out = encode_into(text, out, part)
        else:
            out = encode_into(text, out, folded)
    return i, out


@inner
def is_negator(text: U8, begin: int, end: int, fingerprint: np.uint64, negators: U64) -> bool:
    """Return whether a word negates what follows: in the list, or ending in `n't`."""
    if negators[np.int64(fingerprint & np.uint64(len(negators) - 1))] == fingerprint:
        return True
    return (
        end - begin > 3
        and text[end - 3] == ord("n")
        and text[end - 2] == ord("'")
        and text[end - 1] == ord("t")
    )


@inner
def may_be_link(word: np.uint64) -> bool:
    """Return whether a short word begins as a link does."""
    return bool(word & _FOUR_BYTES == _HTTP or word & _THREE_BYTES == _WWW)


@inner
def read_plain(
    data: U8, at: int, end: int, text_words: U64, place: int, reader: TokenizerTables
) -> tuple[int, np.uint64]:
    """Read the word at `at` to `text_words[place]` where it is short and sure to be a word.

    Returns its length in bytes and its fingerprint; a length of 0 where it has to be looked at
    closely.
    """
    options = reader.options
    opener = reader.openers[data[at]]
    if opener == 0 or at + 8 > len(data):
        return 0, _NOTHING
    n, word = read_short(data, at, end, options[OPT_CASE] != 0, options[OPT_SQUEEZE] != 0, reader)
    if n < opener & LETTERS or (opener & MAY_OPEN_LINK and may_be_link(word | _LOWER_CASE)):
        return 0, _NOTHING
    text_words[place] = word
    return n, siphash_short(word, n, reader.key[0], reader.key[1])


@inner
def read_closely(
    data: U8,
    at: int,
    end: int,
    glued: bool,
    text: U8,
    out: int,
    reader: TokenizerTables,
    extras: bool,
) -> tuple[int, int, Int]:
    """Read what stands at `at`, character by character: a token, or a sign that separates.

    Returns where it ends, where its text ends (`out` where it is no token), and its kind.
    """
    point, size = decode(data, at, end)
    kind = class_of(point, reader)
    if kind == SPACE:
        return at + size, out, kind
    i, last = read_sign(data, at, end, point, kind, text, out, reader)
    if last > out:
        return i, last, kind if kind == IDEOGRAPH else EMOJI
    if kind in (LETTER, DIGIT, HASH):
        i, last = read_word(data, at, end, text, out, reader)
        if kind == HASH and last == out + 1:  # a lone sign says nothing
            last = out
        return i, last, LETTER
    if kind == AT and reader.options[OPT_MENTIONS] and not glued:
        i, last = read_mention(data, at, end, text, out)
        return i, last, AT
    if extras and kind == CLAUSE and reader.options[OPT_PUNCTUATION]:
        i, last = read_punctuation(data, at, end, text, out)
        return i, last, kind
    return at + size, out, kind


@inner
def put_edge(scratch: Scratch, n: int, out: int, which: int, reader: TokenizerTables) -> int:
    """Write the beginning or the end of a text as token `n`; return where its text ends."""
    begin = (out + 7) & ~7
    scratch.text[begin] = EDGES[which]
    scratch.begins[n] = begin
    scratch.ends[n] = begin + 1
    scratch.fingerprints[n] = reader.signs[which]
    scratch.marks[n] = False
    return begin + 1


@inner
def put_inside(scratch: Scratch, begin: int, end: int, goes_on: bool) -> None:
    """Write a word between two ends behind those of its text; one that `goes_on` joins the last."""
    at = scratch.inside_end[0]
    if goes_on:
        at -= 1
    else:
        scratch.inside[at] = EDGES[0]
        at += 1
    at = put(scratch.inside, at, scratch.text[begin:end])
    scratch.inside[at] = EDGES[1]
    scratch.inside_end[0] = at + 1


@inner
def tokenise(
    data: U8, at: int, end: int, reader: TokenizerTables, scratch: Scratch, extras: bool
) -> int:
    """Read the tokens of `data[at:end]` into the scratch arrays; return how many there are.

    Tokens beyond the scratch's room are left out. With `OPT_ENDS` the first and the last token
    stand for the text's beginning and end, if there is one between them. For n-grams of characters
    `scratch.inside` has the words; a run of ideographs is one there.
    """
    reads_inside = extras and reader.options[OPT_CHARACTERS_MAX] != 0
    if extras:
        scratch.inside_end[0] = 0
    run_end = np.int64(-1)  # where the last ideograph ended
    negating = reader.options[OPT_NEGATION] != 0
    n_edges = np.int64(1) if extras and reader.options[OPT_ENDS] != 0 else np.int64(0)
    text = scratch.text
    n = n_edges
    out = put_edge(scratch, 0, 0, 0, reader) if n_edges > 0 else 0
    i = at
    reach = np.int64(0)  # how many words the last negation still governs
    word_end = at - 1
    while i < end and n < len(scratch.begins) - n_edges:
        if data[i] == BLANK:
            i += 1
            continue
        begin = (out + 7) & ~7
        first = i
        length, fingerprint = read_plain(data, i, end, scratch.text_words, begin >> 3, reader)
        if length > 0:
            kind: Int = np.int64(LETTER)
            i += length
            out = begin + length
        else:
            i, out, kind = read_closely(data, i, end, word_end == i, text, begin, reader, extras)
            if out > begin:
                fingerprint = siphash(
                    scratch.text_words, begin >> 3, out - begin, reader.key[0], reader.key[1]
                )
        if kind == LETTER:
            word_end = i
        elif kind == CLAUSE:
            reach = np.int64(0)
        if out == begin:
            continue
        if reads_inside and kind in (LETTER, IDEOGRAPH):
            put_inside(scratch, begin, out, kind == IDEOGRAPH and run_end == first)
            run_end = np.int64(i) if kind == IDEOGRAPH else np.int64(-1)
        marked = False
        if negating and kind in (LETTER, IDEOGRAPH):
            if is_negator(text, begin, out, fingerprint, reader.negators):
                reach = np.int64(NEGATION_REACH)
            elif reach > 0:
                reach -= 1
                marked = True
                fingerprint = negate(fingerprint)
        scratch.begins[n] = begin
        scratch.ends[n] = out
        scratch.fingerprints[n] = fingerprint
        scratch.marks[n] = marked
        n += 1
    if n_edges > 0:
        if n == 1:
            return 0
        put_edge(scratch, int(n), out, 1, reader)
        n += 1
    return int(n)


@kernel
def may_change(
    texts: Texts, entities: bool, compose: bool, mark_index: U8, marks: U8, out: Flags
) -> None:
    """Mark texts that may hold an HTML entity, or a character that a text in NFC may not hold."""
    for i in range(len(out)):
        at, end = texts.starts[i], texts.ends[i]
        out[i] = False
        while at < end and not out[i]:
            byte = texts.data[at]
            size = 1
            if byte < _LEAD_COMBINING:
                out[i] = entities and byte == _AMPERSAND
            elif compose:
                point, size = decode(texts.data, at, end)
                if point >= _FIRST_COMBINING:
                    out[i] = marks[np.int64(mark_index[point >> 7]) << 7 | point & 127] != 0
            at += size
