"""Categorical likelihood: Σ_j log θ_jvc with θ_jvc = (N_jvc + α) / (N_jc + α·e_j).

v is the row's value of field j, N_jc the weight of class c's examples with that field, and e_j the
number of its values: those with a count above zero, or those declared. A value never seen has
N_jvc = 0. A field says nothing where no class has learned any of it and nothing is known of it
beforehand; otherwise a class that has learned nothing of it, and has no prior, is impossible.
Cost: one division a field and class.

A flag is a category of two values: Σ_j x_j·log θ_jc + (1−x_j)·log(1−θ_jc) with θ_jc = (N_jc + β₁) /
(n_jc + β₁ + β₂), N_jc being the weight of class c's examples in which flag j was true, and n_jc of
those in which it was there. A missing flag says nothing; or, if the group says so, it counts as
false, and n_jc is N_c.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamnb.kernels.counting import ADDED, FULL, is_new
from streamnb.kernels.hashing import join, plain_hash, siphash
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import (
    F64,
    I32,
    I64,
    U8,
    U64,
    F64Grid,
    Flags,
    I32Grid,
    Int,
    RowUpdates,
    RunOptions,
    Table,
    Texts,
    load_eight,
)
from streamnb.kernels.posterior import (
    add_log_products,
    add_weight,
    multiply_probability,
    start_products,
)
from streamnb.kernels.word_table import (
    DONE,
    N_WORDS,
    NEEDS_SLOTS,
    TEXT_BYTES,
    claim,
    close_word,
    find,
    room_wanted,
)


class ValueCounts(NamedTuple):
    """Sufficient statistics of a group of categories."""

    by_value: F64Grid  # (capacity, n_classes): N_jvc by the value's column
    seen: F64Grid  # (n_fields, n_classes): N_jc
    n_values: I64  # (n_fields,): values of a field with a count above zero
    state: I64  # how many there are in all open fields


class Alphas(NamedTuple):
    """The prior, and the sizes it is spread over."""

    by_value: F64Grid  # (1, n_classes), or a row for each declared value, by column
    sums: F64  # (n_classes,): over the declared values, where they have a row each
    declared: I64  # (n_fields,): e_j where it is declared, else 0


@inner
def bottom_of(counts: ValueCounts, alphas: Alphas, j: Int, c: Int, scale: float) -> float:
    """Return N_jc + α·e_j."""
    if len(alphas.by_value) > 1:
        total = alphas.sums[c]
    else:
        e = alphas.declared[j] if alphas.declared[j] > 0 else counts.n_values[j]
        total = alphas.by_value[0, c] * e
    return float(counts.seen[j, c] + total * scale)


@inner
def is_silent(counts: ValueCounts, alphas: Alphas, j: Int) -> bool:
    """Return whether nothing is known of a field, by counts or prior."""
    has_empty = alphas.declared[j] == 0
    for c in range(counts.seen.shape[1]):
        if counts.seen[j, c] != 0.0:
            return False
        has_empty |= bottom_of(counts, alphas, j, c, 1.0) == 0.0
    return bool(has_empty)


@inner
def add_log_likelihood(
    counts: ValueCounts,
    alphas: Alphas,
    order: I64,
    columns: I32Grid,
    i: Int,
    scale: float,
    products: F64Grid,
    out: F64Grid,
) -> None:
    """Add Σ_j log θ_jvc of row `i` to `out[i]`, field after field in `order`."""
    start_products(products)
    has_rows = len(alphas.by_value) > 1
    for o in range(len(order)):
        j = order[o]
        column = columns[i, j]
        if column == MISSING or is_silent(counts, alphas, j):
            continue
        for c in range(len(products)):
            top = alphas.by_value[column if has_rows else 0, c] * scale
            if column >= 0:
                top += counts.by_value[column, c]
            bottom = bottom_of(counts, alphas, j, c, scale)
            multiply_probability(products, c, top / bottom if bottom > 0.0 else 0.0)
    add_log_products(products, out, i)


@inner
def count_new(counts: ValueCounts, alphas: Alphas, columns: I32Grid, i: Int) -> int:
    """Return how many values of row `i`, those of declared fields aside, stand at zero."""
    n_new = 0
    for j in range(columns.shape[1]):
        if columns[i, j] >= 0 and alphas.declared[j] == 0:
            n_new += is_new(counts.by_value, columns[i, j])
    return n_new


@inner
def learn_row(
    counts: ValueCounts,
    alphas: Alphas,
    columns: I32Grid,
    i: Int,
    y: Int,
    weight: float,
    decays: bool,
) -> None:
    """Add row `i` to the counts of class `y`, or take it away where the weight is below zero."""
    for j in range(columns.shape[1]):
        column = columns[i, j]
        if column < 0:
            continue
        was_new = is_new(counts.by_value, column)
        counts.by_value[column, y] = add_weight(counts.by_value[column, y], weight, decays)
        counts.seen[j, y] = add_weight(counts.seen[j, y], weight, decays)
        change = int(was_new) - int(is_new(counts.by_value, column))
        counts.n_values[j] += change
        if alphas.declared[j] == 0:
            counts.state[0] += change


@kernel
def categorical(
    counts: ValueCounts,
    alphas: Alphas,
    order: I64,
    columns: I32Grid,
    updates: RowUpdates,
    options: RunOptions,
    products: F64Grid,
    out: F64Grid,
) -> tuple[int, int, int]:
    """Add each row's log-likelihood to `out`, then learn the row where it has a label.

    `columns` (n, n_fields) has each value's column, -1 where it was never seen and -2 where it is
    missing. `products` has a row of two for each class. Rows before `n_predicted` have their
    log-likelihood already. Returns where it stopped, why (`counting.ADDED` or `FULL`), and how many
    new values that row has; the row it stops at has been predicted and not learned.
    """
    labels, weights, scales, _, _, decays = updates
    for i in range(options.row, len(labels)):
        if i >= options.n_predicted:
            add_log_likelihood(counts, alphas, order, columns, i, scales[i], products, out)
        if options.learn and labels[i] >= 0:
            if weights[i] > 0.0:
                n_new = count_new(counts, alphas, columns, i)
                v = counts.state[0]
                if n_new > 0 and v > 0 and v + n_new > options.n_max:
                    return i, FULL, n_new
            learn_row(counts, alphas, columns, i, labels[i], weights[i], decays)
    return len(labels), ADDED, 0


UNSEEN, MISSING = -1, -2
KEPT_BYTES = 200  # of a longer value's text
_ELLIPSIS = np.frombuffer("…".encode(), dtype=np.uint8)
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_N_DIGITS = 16
_TEXT_ROOM = KEPT_BYTES + len(_ELLIPSIS) + _N_DIGITS


class Fields(NamedTuple):
    """The fields whose values are looked up."""

    fingerprints: U64
    names: U8  # each name and a NUL, one behind the other
    name_ends: I64
    is_open: Flags  # False: its values are declared, and no other is ever entered


@inner
def _hash(data: U8, start: Int, end: Int, key: U64, words: U64) -> np.uint64:
    """Return SipHash of some bytes; `words` has room for them and one word more."""
    size = end - start
    n_whole = size >> 3
    for k in range(n_whole):
        words[k] = load_eight(data, start + 8 * k)
    last = np.uint64(0)
    for k in range(8 * n_whole, size):
        last |= np.uint64(data[start + k]) << np.uint64(8 * (k & 7))
    words[n_whole] = last
    return siphash(words, 0, int(size), key[0], key[1])


@kernel
def fingerprint_many(texts: Texts, of_fields: U64, key: U64, words: U64, out: U64) -> None:
    """Write the fingerprints of values of the fields with fingerprints `of_fields`."""
    for i in range(len(out)):
        out[i] = join(of_fields[i], _hash(texts.data, texts.starts[i], texts.ends[i], key, words))


@inner
def _append(fields: Fields, j: Int, data: U8, start: Int, end: Int, text: U8, at: Int) -> Int:
    """Write field and value behind `text[:at]`; return where they end."""
    begin = fields.name_ends[j - 1] if j > 0 else np.int64(0)
    for k in range(begin, fields.name_ends[j]):
        text[at] = fields.names[k]
        at += 1
    stop = end
    if end - start > KEPT_BYTES:
        stop = start + KEPT_BYTES
        while stop > start and data[stop] & 0xC0 == 0x80:
            stop -= 1  # no character is cut in two
    for k in range(start, stop):
        text[at] = data[k]
        at += 1
    if stop < end:
        whole = plain_hash(data, start, end)
        for k in range(len(_ELLIPSIS)):
            text[at] = _ELLIPSIS[k]
            at += 1
        for k in range(_N_DIGITS):
            digit = whole >> np.uint64(4 * (_N_DIGITS - 1 - k)) & np.uint64(15)
            text[at] = _DIGITS[np.int64(digit)]
            at += 1
    return at


@kernel
def encode(
    texts: Texts,
    which: I64,
    labels: I32,
    row: int,
    learn: bool,
    n_known: int,
    fields: Fields,
    key: U64,
    table: Table,
    words: U64,
    field_of: I32,
    out: I32Grid,
) -> tuple[int, int, int]:
    """Write the columns of values from `row` on; return where it stopped, why, the room it wants.

    Row i's value of field `which[f]` is text i·len(which) + f. New values enter the table only
    where `learn` and the row has a label; `field_of` is as long as the table has columns. Without
    `learn` the table is only read, and just its first `n_known` columns are seen.
    """
    state = table.state
    n_which = len(which)
    for i in range(row, len(labels)):
        for f in range(n_which):
            j = which[f]
            start, end = texts.starts[i * n_which + f], texts.ends[i * n_which + f]
            if end < 0:
                out[i, j] = MISSING
                continue
            known = state[N_WORDS] if learn else n_known
            print_ = join(fields.fingerprints[j], _hash(texts.data, start, end, key, words))
            column = np.int64(find(print_, table.slots, table.fingerprints, known))
            if column < 0 and fields.is_open[j] and learn and labels[i] >= 0:
                begin = fields.name_ends[j - 1] if j > 0 else np.int64(0)
                why, wanted = room_wanted(table, 1, fields.name_ends[j] - begin + _TEXT_ROOM)
                if why != DONE:
                    return i, why, wanted
                column = np.int64(claim(print_, table))
                if column < 0:
                    return i, NEEDS_SLOTS, 2 * len(table.slots)
                text_end = state[TEXT_BYTES]
                text_end = _append(fields, j, texts.data, start, end, table.words, text_end)
                field_of[column] = j
                close_word(table, column, text_end)
            if column < 0 and not fields.is_open[j]:
                out[i, j] = MISSING
            else:
                out[i, j] = column
    return len(labels), DONE, 0


# ---- flags: categories of two values ------------------------------------------------------------


class FlagCounts(NamedTuple):
    """Sufficient statistics of a group of flags."""

    true: F64Grid  # (n_fields, n_classes): N_jc
    false: F64Grid  # (n_fields, n_classes): n_jc − N_jc; zero where absence means false
    examples: F64  # (n_classes,): N_c


class Betas(NamedTuple):
    """The prior, and what is known of the fields."""

    present: F64Grid  # β₁: (1, n_classes), or a row a field
    absent: F64Grid  # β₂
    is_open: Flags  # (1,): fields come as they please
    absent_is_false: Flags  # (1,)


@inner
def false_of(counts: FlagCounts, betas: Betas, j: Int, c: Int) -> float:
    """Return n_jc − N_jc."""
    if betas.absent_is_false[0]:
        return float(max(counts.examples[c] - counts.true[j, c], 0.0))
    return float(counts.false[j, c])


@inner
def is_flag_silent(counts: FlagCounts, betas: Betas, j: Int) -> bool:
    """Return whether nothing is known of a flag, by counts or prior.

    An open group that takes absence for false knows a flag by the examples where it was true.
    """
    row = j if len(betas.present) > 1 else 0
    has_empty = betas.is_open[0]
    for c in range(counts.true.shape[1]):
        if counts.true[j, c] != 0.0:
            return False
        if not (betas.is_open[0] and betas.absent_is_false[0]):
            if false_of(counts, betas, j, c) != 0.0:
                return False
            has_empty |= betas.present[row, c] + betas.absent[row, c] == 0.0
    return bool(has_empty)


@inner
def add_flag_log_likelihood(
    counts: FlagCounts,
    betas: Betas,
    x: F64Grid,
    places: I64,
    i: Int,
    scale: float,
    products: F64Grid,
    out: F64Grid,
) -> None:
    """Add the log-likelihood of row `i` to `out[i]`, flag after flag."""
    start_products(products)
    for t in range(len(places)):
        j, value = places[t], x[i, t]
        if j < 0 or (np.isnan(value) and not betas.absent_is_false[0]):
            continue
        if is_flag_silent(counts, betas, j):
            continue
        row = j if len(betas.present) > 1 else 0
        for c in range(len(products)):
            true = counts.true[j, c] + betas.present[row, c] * scale
            false = false_of(counts, betas, j, c) + betas.absent[row, c] * scale
            bottom = true + false
            top = true if value == 1.0 else false
            multiply_probability(products, c, top / bottom if bottom > 0.0 else 0.0)
    add_log_products(products, out, i)


@inner
def learn_flag_row(
    counts: FlagCounts,
    betas: Betas,
    x: F64Grid,
    places: I64,
    i: Int,
    y: Int,
    weight: float,
    decays: bool,
) -> None:
    """Add row `i` to the counts of class `y`, or take it away if the weight is below zero."""
    counts.examples[y] = add_weight(counts.examples[y], weight, decays)
    for t in range(len(places)):
        j = places[t]
        if j >= 0 and x[i, t] == 1.0:
            counts.true[j, y] = add_weight(counts.true[j, y], weight, decays)
        elif j >= 0 and x[i, t] == 0.0 and not betas.absent_is_false[0]:
            counts.false[j, y] = add_weight(counts.false[j, y], weight, decays)


@kernel
def learn_flags(
    counts: FlagCounts, betas: Betas, x: F64Grid, places: I64, updates: RowUpdates
) -> None:
    """Learn the rows that have a label."""
    labels, weights, _, _, _, decays = updates
    for i in range(len(labels)):
        if labels[i] >= 0:
            learn_flag_row(counts, betas, x, places, i, labels[i], weights[i], decays)


@kernel
def flags(
    counts: FlagCounts,
    betas: Betas,
    x: F64Grid,
    places: I64,
    updates: RowUpdates,
    learn: bool,
    products: F64Grid,
    out: F64Grid,
) -> None:
    """Add each row's log-likelihood to `out`, then learn the row if it has a label.

    `x` (n, n_columns) has 1, 0, or nan where a flag is missing; column t is the flag at
    `places[t]`, and is ignored where that is -1. `products` has a row of two for each class.
    """
    labels, weights, scales, _, _, decays = updates
    for i in range(len(labels)):
        add_flag_log_likelihood(counts, betas, x, places, i, scales[i], products, out)
        if learn and labels[i] >= 0:
            learn_flag_row(counts, betas, x, places, i, labels[i], weights[i], decays)
