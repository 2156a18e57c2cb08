"""Word → column: an open-addressing table of fingerprints, and the kernel that reads texts by it.

A slot is one uint64: the upper half of the fingerprint (a tag), and column + 1 in the lower half; 0
is empty. Linear probing from the fingerprint's low bits, at most `PROBES_MAX` slots; the full
fingerprint is compared in `fingerprints[column]`, so two words share a column only if all 64 bits
agree (at 10⁷ words: one chance in 370,000). Nothing is ever taken out or moved inside one table,
and the writer fills a column's fingerprint before its slot: a reader with an older word count finds
every word that was there when it got its count, and a later one is beyond it, that is unseen.

`encode` reads texts one after another into a compressed sparse row batch: row i holds
columns[indptr[i]:indptr[i+1]] with their counts, each word once, in order of first occurrence.
Where the table has no room for the next example's new words it stops before that example and says
so; the caller makes room and goes on.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels.counting import NEAR_WORDS
from streamnb.kernels.hashing import join, negate, siphash
from streamnb.kernels.jit import inner, kernel, short_kernel
from streamnb.kernels.layout import (
    I32,
    I64,
    TAKEN_BACK,
    U8,
    U64,
    Int,
    Rows,
    Scratch,
    Table,
    Texts,
    TokenizerTables,
    prefetch,
    store_eight,
)
from streamnb.kernels.tokenize import (
    EDGES,
    OPT_CHARACTERS_MAX,
    OPT_CHARACTERS_MIN,
    OPT_ENDS,
    OPT_GAP,
    OPT_NGRAM_MAX,
    OPT_NGRAM_MIN,
    OPT_OCCURRENCE,
    put,
    tokenise,
)

PROBES_MAX = 128
DONE, NEEDS_COLUMNS, NEEDS_SLOTS, NEEDS_TEXT = range(4)
# Places in the vocabulary's state array.
N_WORDS, TEXT_BYTES = range(2)
_GRAM_WORDS = 5  # room for eight characters and a mark, in words of eight bytes
WORD_ROOM = 80  # bytes of text that one word may take: mark, space and what a copy writes too much
_SPACE = np.frombuffer(b" ", dtype=np.uint8)
_MARK = np.frombuffer("¬".encode(), dtype=np.uint8)
GAP = "…"  # what a pair has for the words between
_GAP = np.frombuffer(f" {GAP} ".encode(), dtype=np.uint8)
CHARACTERS = np.frombuffer(b"~", dtype=np.uint8)  # before n-grams of characters; no word has it
_OF_CHARACTERS = 1 << 8  # added to the size of such an n-gram, in bytes
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@inner
def find(fingerprint: np.uint64, slots: U64, fingerprints: U64, n_words: int) -> Int:
    """Return the column of a word, -1 where the table lacks it or has it beyond `n_words`."""
    mask = len(slots) - 1
    at = np.int64(fingerprint & np.uint64(mask))
    tag = fingerprint >> _HALF
    for _ in range(PROBES_MAX):
        slot = slots[at]
        if slot == np.uint64(0):
            return -1
        if slot >> _HALF == tag:
            column = np.int64(slot & _LOWER) - 1
            if column < n_words and fingerprints[column] == fingerprint:
                return column
        at = (at + 1) & mask
    return -1


@inner
def place(fingerprint: np.uint64, column: int, slots: U64) -> bool:
    """Put a new word into the table; False where the probes run out and the table must grow."""
    mask = len(slots) - 1
    at = np.int64(fingerprint & np.uint64(mask))
    for _ in range(PROBES_MAX):
        if slots[at] == np.uint64(0):
            slots[at] = (fingerprint >> _HALF) << _HALF | np.uint64(column + 1)
            return True
        at = (at + 1) & mask
    return False


@inner
def room_wanted(table: Table, n_new: Int, n_bytes: Int) -> tuple[int, int]:
    """Return what a table lacks to take up new words with so much text, and the room it wants."""
    n_words = table.state[N_WORDS] + n_new
    n_slots = len(table.slots)
    if n_words > len(table.word_ends):
        return NEEDS_COLUMNS, n_words
    if n_words > n_slots - (n_slots >> 2) - (n_slots >> 3):
        return NEEDS_SLOTS, 2 * n_slots
    if table.state[TEXT_BYTES] + n_bytes > len(table.words):
        return NEEDS_TEXT, table.state[TEXT_BYTES] + n_bytes
    return DONE, 0


@inner
def claim(fingerprint: np.uint64, table: Table) -> Int:
    """Return the next column, for a new word; -1 if its probes run out. `close_word` is due."""
    column = table.state[N_WORDS]
    table.fingerprints[column] = fingerprint
    return column if place(fingerprint, int(column), table.slots) else np.int64(-1)


@inner
def close_word(table: Table, column: Int, end: Int) -> None:
    """Count a new word in, whose text ends at `end`."""
    table.state[TEXT_BYTES] = end
    table.word_ends[column] = end
    table.state[N_WORDS] = column + 1


@kernel
def refill(fingerprints: U64, n_words: int, slots: U64) -> bool:
    """Enter all words into an empty table; False where one does not find a place."""
    for column in range(n_words):  # noqa: SIM110 -- numba compiles no generator here
        if not place(fingerprints[column], column, slots):
            return False
    return True


@kernel
def move_slots(old: U64, fingerprints: U64, slots: U64) -> bool:
    """Enter the words of one table into a larger, empty one; False where one finds no place.

    As `refill`, but in the order of the old slots: neighbours there are neighbours in the new one,
    so that memory is written in a few straight lines instead of all over the place.
    """
    for slot in old:
        if slot != np.uint64(0):
            column = np.int64(slot & _LOWER) - 1
            if not place(fingerprints[column], int(column), slots):
                return False
    return True


@kernel
def find_many(wanted: U64, slots: U64, fingerprints: U64, n_words: int, out: I32) -> None:
    """Look up many fingerprints; -1 where a word is not there."""
    for i in range(len(wanted)):
        out[i] = find(wanted[i], slots, fingerprints, n_words)


@short_kernel
def first_misplaced(texts: Texts) -> Int:
    """Return the first text that does not lie within its buffer; -1 if all do.

    There are as many starts as ends.
    """
    for i in range(len(texts.starts)):
        start, end = texts.starts[i], texts.ends[i]
        if start < 0 or max(start, end) > len(texts.data) or (end < start and end != -1):
            return np.int64(i)
    return np.int64(-1)


@kernel
def byte_bounds(data: U8, bounds: I64) -> None:
    """Turn bounds in characters into bounds in bytes of their UTF-8 form, in place."""
    at = np.int64(0)
    n_characters = np.int64(0)
    for i in range(len(bounds)):
        while n_characters < bounds[i]:
            at += 1
            while at < len(data) and data[at] & 0xC0 == 0x80:
                at += 1
            n_characters += 1
        bounds[i] = at


@kernel
def gather_text(words: U8, ends: I64, new_ends: I64, out: U8) -> None:
    """Copy words that end at `ends` so that they end at `new_ends`, one behind the other."""
    begin = np.int64(0)
    for i in range(len(ends)):
        size = new_ends[i] - begin
        for k in range(size):
            out[begin + k] = words[ends[i] - size + k]
        begin = new_ends[i]


@inner
def fingerprint_of(data: U8, start: int, end: int, key: U64, scratch: Scratch) -> np.uint64:
    """Return the fingerprint of one n-gram as it is shown: with spaces, and `¬` for negated."""
    whole = np.uint64(0)
    begin = start
    for at in range(start, end + 1):
        if at < end and data[at] != 32:
            continue
        marked = at - begin >= 2 and data[begin] == _MARK[0] and data[begin + 1] == _MARK[1]
        text_begin = begin + 2 if marked else begin
        for k in range(text_begin, at):
            scratch.text[k - text_begin] = data[k]
        word = siphash(scratch.text_words, 0, at - text_begin, key[0], key[1])
        if marked:
            word = negate(word)
        whole = word if begin == start else join(whole, word)
        begin = at + 1
    return whole


@kernel
def fingerprint_many(texts: Texts, key: U64, scratch: Scratch, out: U64) -> None:
    """Write the fingerprints of n-grams given by their text."""
    for i in range(len(out)):
        out[i] = fingerprint_of(texts.data, texts.starts[i], texts.ends[i], key, scratch)


@inner
def append_token(scratch: Scratch, t: int, words: U8, at: int) -> int:
    """Write a token behind `words[:at]`; return where it ends."""
    if scratch.marks[t]:
        for k in range(len(_MARK)):
            words[at + k] = _MARK[k]
        at += len(_MARK)
    size = scratch.ends[t] - scratch.begins[t]
    # Eight bytes at a time, which is more than the token: there is room, and what is too much
    # is written over by what follows.
    for k in range(0, size, 8):
        store_eight(words, at + k, scratch.text_words[(scratch.begins[t] + k) >> 3])
    return int(at + size)


@inner
def append_pair(scratch: Scratch, first: int, last: int, words: U8, at: int) -> int:
    """Write two tokens with a gap between them behind `words[:at]`; return where they end."""
    at = append_token(scratch, first, words, at)
    for k in range(len(_GAP)):
        words[at + k] = _GAP[k]
    return append_token(scratch, last, words, at + len(_GAP))


@inner
def append_text(scratch: Scratch, first: int, last: int, words: U8, at: int) -> int:
    """Write the n-gram of tokens `first` to `last` behind `words[:at]`; return where it ends."""
    for t in range(first, last + 1):
        if t > first:
            words[at] = 32
            at += 1
        at = append_token(scratch, t, words, at)
    return at


@inner
def append_characters(scratch: Scratch, first: int, size: int, words: U8, at: int) -> int:
    """Write an n-gram of characters behind `words[:at]`; return where it ends."""
    at = put(words, at, CHARACTERS)
    return put(words, at, scratch.inside[first : first + size])


@inner
def add_gram(
    gram: np.uint64, last: int, size: int, n: int, mask: Int, occurrence: Int, scratch: Scratch
) -> int:
    """Count an n-gram of a text that has `n` distinct ones so far; return how many it has then."""
    seen, grams = scratch.seen, scratch.grams
    at = np.int64(gram >> _HALF) & mask
    while seen[at] != 0 and grams[seen[at] - 1] != gram:
        at = (at + 1) & mask
    if seen[at] != 0:
        scratch.counts[seen[at] - 1] += occurrence
    elif n < len(grams):
        grams[n] = gram
        scratch.lasts[n] = last
        scratch.sizes[n] = size
        scratch.counts[n] = 1
        n += 1
        seen[at] = n
    return n


@inner
def character_bytes(first: np.uint8) -> int:
    """Return how many bytes a character has that begins with this one."""
    if first < 0x80:
        return 1
    if first < 0xE0:
        return 2
    return 3 if first < 0xF0 else 4


@inner
def collect_characters(n: int, mask: Int, reader: TokenizerTables, scratch: Scratch) -> int:
    """Count the n-grams of characters inside words behind the first `n`; return how many then.

    Where an n-gram's words are, they have its first byte in `scratch.inside`, and its length.
    """
    shortest, longest = reader.options[OPT_CHARACTERS_MIN], reader.options[OPT_CHARACTERS_MAX]
    occurrence = reader.options[OPT_OCCURRENCE]
    inside, end = scratch.inside, scratch.inside_end[0]
    # Behind the last token there is room for one n-gram.
    place = len(scratch.text_words) - _GRAM_WORDS
    begin = 8 * place
    scratch.text[begin] = CHARACTERS[0]
    first = np.int64(0)
    while first < end:
        at = first
        size = 0
        while at < end and size < longest and (size == 0 or inside[at] != EDGES[0]):
            for _ in range(character_bytes(inside[at])):
                scratch.text[begin + 1 + at - first] = inside[at]
                at += 1
            size += 1
            if size >= shortest:
                n_bytes = int(at - first)
                key = reader.key
                gram = siphash(scratch.text_words, place, n_bytes + 1, key[0], key[1])
                coded = n_bytes + _OF_CHARACTERS
                n = add_gram(gram, int(first), coded, n, mask, occurrence, scratch)
        first += character_bytes(inside[first])
    return n


@inner
def collect(n_tokens: int, reader: TokenizerTables, scratch: Scratch, extras: bool) -> int:
    """Count the distinct n-grams of a text, in order of first occurrence; return how many.

    A pair of words with others between them has a negative size: first and last are as far apart.
    N-grams of characters come last, with sizes from `_OF_CHARACTERS` on.
    `scratch.seen` is a table of positions + 1, all zero before and after. N-grams beyond the
    scratch's room are left out.
    """
    if n_tokens == 0:  # of a missing text, nothing in the scratch is its own
        return 0
    # What takes a literal is compiled for it, and for a number once more.
    n = int(np.int64(0))
    options = reader.options
    fps = scratch.fingerprints
    shortest, longest = options[OPT_NGRAM_MIN], options[OPT_NGRAM_MAX]
    gap = options[OPT_GAP] if extras else np.int64(0)
    n_edges = options[OPT_ENDS] if extras else np.int64(0)
    reads_characters = extras and options[OPT_CHARACTERS_MAX] > 0
    # No more of the scratch than the text needs, so that it stays in the nearest cache.
    n_slots = 64
    n_grams = n_tokens * (longest - shortest + 1 + gap)
    if reads_characters:
        n_sizes = options[OPT_CHARACTERS_MAX] - options[OPT_CHARACTERS_MIN] + 1
        n_grams += scratch.inside_end[0] * n_sizes
    while n_slots < 2 * n_grams and n_slots < len(scratch.seen):
        n_slots *= 2
    mask = np.int64(n_slots - 1)
    occurrence = options[OPT_OCCURRENCE]
    for first in range(n_tokens):
        gram = fps[first]
        is_word = n_edges <= first < n_tokens - n_edges
        for size in range(1, longest + 1):
            last = first + size - 1
            if last >= n_tokens:
                break
            if size > 1:
                gram = join(gram, fps[last])
            if size >= shortest and (size > 1 or is_word):
                n = add_gram(gram, int(last), size, n, mask, occurrence, scratch)
        if gap > 0 and is_word:
            begun = join(fps[first], reader.signs[2])
            for last in range(first + 2, min(first + gap + 2, n_tokens - n_edges)):
                n = add_gram(
                    join(begun, fps[last]), last, first - last, n, mask, occurrence, scratch
                )
    if reads_characters:
        n = collect_characters(n, mask, reader, scratch)
    scratch.seen[:n_slots] = 0
    return n


@inner
def prefetch_slots(n_grams: int, scratch: Scratch, table: Table) -> None:
    """Have the table's slots for a text's n-grams brought near.

    In a large table each look-up waits for memory. Asked for beforehand, they all come at once.
    """
    if table.state[N_WORDS] <= NEAR_WORDS:
        return
    mask = np.uint64(len(table.slots) - 1)
    for k in range(n_grams):
        prefetch(table.slots, np.int64(scratch.grams[k] & mask), 0)


@inner
def look_up(
    n_grams: int, scratch: Scratch, table: Table, known: int, stays: bool, rows: Rows, n: int
) -> tuple[int, int]:
    """Write a text's n-grams as columns behind `rows.columns[:n]`; return their end, and the new.

    A new word stands as -1 - k, k its place among the n-grams, or is left out unless it `stays`.
    """
    n_new = 0
    prefetch_slots(n_grams, scratch, table)
    for k in range(n_grams):
        column = int(find(scratch.grams[k], table.slots, table.fingerprints, known))
        if column < 0:
            if not stays:
                continue
            n_new += 1
            column = -1 - k
        rows.columns[n] = column
        rows.counts[n] = scratch.counts[k]
        n += 1
    return n, n_new


@inner
def enter(scratch: Scratch, k: int, table: Table, extras: bool) -> int:
    """Give n-gram `k` the next column; return it, or -1 if the table must grow first."""
    column = claim(scratch.grams[k], table)
    if column >= 0:
        last, size = scratch.lasts[k], scratch.sizes[k]
        at = table.state[TEXT_BYTES]
        if extras and size >= _OF_CHARACTERS:
            end = append_characters(scratch, last, size - _OF_CHARACTERS, table.words, at)
        elif extras and size < 0:
            end = append_pair(scratch, last + size, last, table.words, at)
        else:
            end = append_text(scratch, last - size + 1, last, table.words, at)
        close_word(table, column, end)
    return int(column)


@inner
def encode_rows(
    texts: Texts,
    labels: I32,
    row: int,
    learn: bool,
    keep: bool,
    n_known: int,
    reader: TokenizerTables,
    table: Table,
    scratch: Scratch,
    rows: Rows,
    extras: bool,
) -> tuple[int, int, int]:
    """Turn texts from `row` on into columns; return where it stopped, why, and the room it wants.

    Words enter the table only where `learn` and the row has a label. Without `learn` the table is
    only read: just its first `n_known` columns are seen, and other words are left out; to `keep`
    these, all columns are seen, and a word without one stands as -1, as it does in rows that are
    `TAKEN_BACK`.

    Without `extras` there are words and their n-grams alone: no punctuation, ends of a text, gaps,
    or n-grams of characters. It is a constant to the compiler, which then leaves out what reads
    them; looked at for each text and word, they take 5 % of the time, by those that have none too.
    """
    n = rows.indptr[row]
    state = table.state
    # A pair with a gap has two words.
    longest = max(reader.options[OPT_NGRAM_MAX], 2 * min(reader.options[OPT_GAP], 1))
    for i in range(row, len(texts.starts)):
        n_tokens = 0
        if texts.ends[i] >= 0:
            n_tokens = tokenise(texts.data, texts.starts[i], texts.ends[i], reader, scratch, extras)
        n_grams = collect(n_tokens, reader, scratch, extras)
        first = n
        known = state[N_WORDS] if learn or keep else n_known
        is_kept = keep or labels[i] == TAKEN_BACK
        stays = is_kept or (learn and labels[i] >= 0)
        n, n_new = look_up(n_grams, scratch, table, known, stays, rows, n)
        if n_new > 0 and is_kept:
            for at in range(first, n):
                rows.columns[at] = max(rows.columns[at], np.int32(-1))
        elif n_new > 0:
            n_bytes = n_new * WORD_ROOM * longest
            why, wanted = room_wanted(table, n_new, n_bytes)
            if why != DONE:
                return i, why, wanted
            for at in range(first, n):
                if rows.columns[at] < 0:
                    rows.columns[at] = enter(scratch, -1 - rows.columns[at], table, extras)
                    if rows.columns[at] < 0:
                        return i, NEEDS_SLOTS, 2 * len(table.slots)
        rows.indptr[i + 1] = n
    return len(texts.starts), DONE, 0


@kernel
def encode(
    texts: Texts,
    labels: I32,
    row: int,
    learn: bool,
    keep: bool,
    n_known: int,
    reader: TokenizerTables,
    table: Table,
    scratch: Scratch,
    rows: Rows,
) -> tuple[int, int, int]:
    """Encode texts as `encode_rows` does, by a reader without extras."""
    return encode_rows(
        texts, labels, row, learn, keep, n_known, reader, table, scratch, rows, extras=False
    )


@kernel
def encode_extras(
    texts: Texts,
    labels: I32,
    row: int,
    learn: bool,
    keep: bool,
    n_known: int,
    reader: TokenizerTables,
    table: Table,
    scratch: Scratch,
    rows: Rows,
) -> tuple[int, int, int]:
    """Encode texts as `encode_rows` does, by any reader."""
    return encode_rows(
        texts, labels, row, learn, keep, n_known, reader, table, scratch, rows, extras=True
    )


@kernel
def enter_many(
    fingerprints: U64, texts: Texts, at: int, table: Table, out: I32
) -> tuple[int, int, int]:
    """Write the columns of texts from `at` on, giving new ones to those that have none.

    Returns where it stopped, why, and the room it wants, as `word_table.encode` does.
    """
    state = table.state
    for i in range(at, len(fingerprints)):
        column = find(fingerprints[i], table.slots, table.fingerprints, state[N_WORDS])
        if column < 0:
            size = texts.ends[i] - texts.starts[i]
            why, wanted = room_wanted(table, 1, size)
            if why != DONE:
                return i, why, wanted
            column = claim(fingerprints[i], table)
            if column < 0:
                return i, NEEDS_SLOTS, 2 * len(table.slots)
            end = state[TEXT_BYTES]
            for k in range(size):
                table.words[end + k] = texts.data[texts.starts[i] + k]
            close_word(table, column, end + size)
        out[i] = np.int32(column)
    return len(fingerprints), DONE, 0


@inner
def kind_of(words: U8, word_ends: I64, column: int) -> int:
    """Return the kind of a word: by a mark at its start, and by the spaces in it."""
    first = word_ends[column - 1] if column > 0 else np.int64(0)
    last = word_ends[column]
    has_space = False
    for at in range(first, last):  # to count them all takes the compiler's vectors, and four times
        if words[at] == _SPACE[0]:
            if has_space:
                return 3
            has_space = True
    if has_space:
        return 2
    if last - first > 1 and words[first] == CHARACTERS[0]:
        return 3
    is_marked = last - first > 1 and words[first] == _MARK[0] and words[first + 1] == _MARK[1]
    return 1 if is_marked else 0


@kernel
def word_kinds(table: Table, begin: int, end: int, kinds: U8) -> None:
    """Write the kinds of columns `begin` to `end`."""
    for column in range(begin, end):
        kinds[column] = kind_of(table.words, table.word_ends, column)
