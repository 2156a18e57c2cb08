"""Counts of words by class: learning a row, adding rows of a batch, letting words leave.

`by_word` holds N_jc with the classes of one word side by side, so that an update and a look-up
touch one cache line.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels.hashing import plain_hash
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import (
    DECLARED,
    F64,
    I64,
    LIVE,
    U8,
    U64,
    Counts,
    F64Grid,
    Flags,
    Int,
    Rows,
    RowUpdates,
    prefetch,
)
from streamnb.kernels.posterior import add_weight, is_short

ADDED, FULL = range(2)
NEAR_WORDS = 1 << 14  # so many words' counts stay in the processor's cache by themselves
LINE_BYTES = 64
ALIGNED_BYTES = 16  # arrays begin at a multiple of it, so that two counts lie on one line


@inner
def is_new(by_word: F64Grid, column: int) -> bool:
    """Return whether a word stands at zero in every class."""
    if by_word.shape[1] == 2:  # no processor foresees which words are new: without a branch
        return bool((by_word[column, 0] == 0.0) & (by_word[column, 1] == 0.0))
    for c in range(by_word.shape[1]):  # noqa: SIM110 -- numba compiles no generator here
        if by_word[column, c] != 0.0:
            return False
    return True


@inner
def is_unknown(counts: Counts, column: int) -> bool:
    """Return whether a word says nothing: it stands at zero, and no dictionary declares it."""
    return counts.state[DECLARED] == 0 and is_new(counts.by_word, column)


@inner
def vocabulary_size(counts: Counts) -> Int:
    """Return V."""
    v: Int = counts.state[DECLARED] if counts.state[DECLARED] > 0 else counts.state[LIVE]
    return v


@inner
def write_shares(counts: Counts, n_classes: int, out: F64) -> None:
    """Write T_c / Σ T: the classes' shares of all words that were counted."""
    total = 0.0
    for c in range(n_classes):
        total += counts.tokens[c]
    for c in range(n_classes):
        out[c] = counts.tokens[c] / total if total > 0.0 else 0.0


@inner
def count_new(by_word: F64Grid, rows: Rows, i: int) -> int:
    """Return how many words of row `i` stand at zero in every class."""
    n_new = 0
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        n_new += is_new(by_word, rows.columns[at])
    return n_new


@inner
def leave_out_short(
    by_word: F64Grid, rows: Rows, i: int, y: int, weight: float, decays: bool
) -> None:
    """Set the columns to -1 of what row `i` would take back, and its class does not hold.

    These are words that have left: whether one has is known no sooner than here.
    """
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if column >= 0 and is_short(by_word[column, y], -weight * rows.counts[at], decays):
            rows.columns[at] = np.int32(-1)


@inner
def prefetch_row(counts: Counts, rows: Rows, i: int) -> None:
    """Have the counts of row `i`, if there is one, brought near; few words are near anyway."""
    if i + 1 < len(rows.indptr) and counts.state[0] > NEAR_WORDS:
        n_bytes = 8 * counts.by_word.shape[1]
        for at in range(rows.indptr[i], rows.indptr[i + 1]):
            column = np.int64(rows.columns[at])
            for byte in range(0, n_bytes, LINE_BYTES):
                prefetch(counts.by_word, column, byte)
            if n_bytes > ALIGNED_BYTES:  # its last counts may lie on a line of their own
                prefetch(counts.by_word, column, n_bytes - 1)


@inner
def has_no_room(counts: Counts, n_new: int, n_words_max: int) -> bool:
    """Return whether words must leave before a row with `n_new` new words is learned."""
    v = counts.state[LIVE]
    return n_new > 0 and v > 0 and v + n_new > n_words_max


@inner
def learn_row(
    counts: Counts, rows: Rows, i: int, y: int, weight: float, n_new: int, decays: bool
) -> None:
    """Add row `i`, `weight` times, to the counts of class `y`; below zero it is taken back.

    What the class does not hold is left out then; see `leave_out_short`.
    """
    n_tokens = 0.0
    if weight > 0.0:
        for at in range(rows.indptr[i], rows.indptr[i + 1]):
            n_tokens += rows.counts[at]
        counts.examples[y] += weight
        counts.tokens[y] += weight * n_tokens
        counts.state[LIVE] += n_new
        for at in range(rows.indptr[i], rows.indptr[i + 1]):
            counts.by_word[rows.columns[at], y] += weight * rows.counts[at]
        return
    leave_out_short(counts.by_word, rows, i, y, weight, decays)
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        column = rows.columns[at]
        if column < 0:
            continue
        n_tokens += rows.counts[at]
        taken = weight * rows.counts[at]
        counts.by_word[column, y] = add_weight(counts.by_word[column, y], taken, decays)
    counts.state[LIVE] -= count_gone(counts.by_word, rows, i)
    counts.examples[y] = add_weight(counts.examples[y], weight, decays)
    counts.tokens[y] = add_weight(counts.tokens[y], weight * n_tokens, decays)


@inner
def count_gone(by_word: F64Grid, rows: Rows, i: int) -> int:
    """Return how many words of row `i`, which was taken back, stand at zero."""
    n_gone = 0
    for at in range(rows.indptr[i], rows.indptr[i + 1]):
        n_gone += rows.columns[at] >= 0 and is_new(by_word, rows.columns[at])
    return n_gone


@kernel
def add_rows(
    counts: Counts, rows: Rows, present: Flags, updates: RowUpdates, row: int, n_words_max: int
) -> tuple[int, int, int]:
    """Add the labelled rows from `row` on; return where it stopped, why, and that row's new words.

    A row that would take V past `n_words_max` is left for the caller, who makes room first; with
    V = 0 it is taken whole.
    """
    labels, weights, _, _, _, decays = updates
    for i in range(row, len(labels)):
        prefetch_row(counts, rows, i + 1)
        y = labels[i]
        if y < 0 or not present[i]:
            continue
        n_new = count_new(counts.by_word, rows, i) if weights[i] > 0.0 else 0
        if has_no_room(counts, n_new, n_words_max):
            return i, FULL, n_new
        learn_row(counts, rows, i, y, weights[i], n_new, decays)
    return len(labels), ADDED, 0


@kernel
def sum_rows(by_word: F64Grid, n_words: int, out: F64) -> None:
    """Write each word's count over all classes."""
    for column in range(n_words):
        total = 0.0
        for c in range(by_word.shape[1]):
            total += by_word[column, c]
        out[column] = total


@kernel
def order_words(words: U8, word_ends: I64, columns: I64, out: U64) -> None:
    """Write a hash of each word's text, without a key: words of equal count leave in its order.

    It is the same in every model and on every machine.
    """
    for i in range(len(columns)):
        column = columns[i]
        begin = word_ends[column - 1] if column > 0 else np.int64(0)
        out[i] = plain_hash(words, begin, word_ends[column])
