"""The word table: growth keeps everything, crowding makes it grow, reading leaves it alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import Multinomial, Words
from streamnb.kernels import word_table as lookup
from streamnb.kernels.layout import Table
from streamnb.vocabulary import Vocabulary, _filled
from tests import naive, naive_text
from tests.encoding import KEY, read, state_of, text_column
from tests.strategies import groups, texts


def vocabulary_of(fingerprints: list[int], n_slots: int) -> Vocabulary:
    """Return a vocabulary of the given fingerprints, each word showing its own column's number."""
    n = len(fingerprints)
    names = [str(column).encode() for column in range(n)]
    table = Table(
        slots=np.zeros(0, dtype=np.uint64),
        fingerprints=np.array(fingerprints, dtype=np.uint64),
        words=np.frombuffer(bytearray(b"".join(names)), dtype=np.uint8),
        word_ends=np.cumsum([len(name) for name in names], dtype=np.int64),
        state=np.array([n, sum(map(len, names))], dtype=np.int64),
    )
    slots = _filled(n_slots, lambda slots: lookup.refill(table.fingerprints, n, slots))
    return Vocabulary(table._replace(slots=slots))


def columns_of(vocabulary: Vocabulary, fingerprints: list[int]) -> list[int]:
    """Return the columns of fingerprints."""
    table = vocabulary.table
    wanted = np.array(fingerprints, dtype=np.uint64)
    out = np.empty(len(wanted), dtype=np.int32)
    lookup.find_many(wanted, table.slots, table.fingerprints, vocabulary.n_words, out)
    return out.tolist()


@pytest.mark.parametrize("n", [1, 127, 128, 129, 400])
def test_words_that_crowd_one_slot_only_grow_the_table(n: int) -> None:
    """Fingerprints made to fall into one slot make the table grow, and none is lost."""
    crowd = [(i + 1) << 11 for i in range(n)]
    vocabulary = vocabulary_of(crowd, 1 << 11)
    assert columns_of(vocabulary, crowd) == list(range(n))
    assert columns_of(vocabulary, [(n + 1) << 11, 1, 0]) == [-1, -1, -1]
    table_grew = len(vocabulary.table.slots) > 1 << 11
    assert table_grew == (n > lookup.PROBES_MAX)


def test_words_of_one_tag_are_told_apart() -> None:
    """Words that agree in slot and tag still differ by their whole fingerprint."""
    alike = [(7 << 32) | (i << 12) | 5 for i in range(100)]
    vocabulary = vocabulary_of(alike, 1 << 12)
    assert columns_of(vocabulary, alike) == list(range(100))
    assert columns_of(vocabulary, [(7 << 32) | (100 << 12) | 5]) == [-1]


def test_a_text_that_meets_a_crowd_is_read() -> None:
    """A new word whose probes are all taken makes the table grow, and its text is read once."""
    state = state_of()
    n_slots = 1 << 11
    home = naive.fingerprint("hello", KEY) & n_slots - 1
    crowd = [(i + 1) << 11 | home for i in range(lookup.PROBES_MAX)]
    state.vocabulary = vocabulary_of(crowd, n_slots)
    assert len(state.vocabulary.table.slots) == n_slots
    column = text_column([b"well hello there", b"hello"])
    rows = state.encode(column, 0, 2, np.zeros(2, dtype=np.int32), learn=True).rows
    assert len(state.vocabulary.table.slots) > n_slots
    assert columns_of(state.vocabulary, crowd) == list(range(len(crowd)))
    shown = state.vocabulary.words(rows.columns[: rows.indptr[-1]].astype(np.int64))
    assert shown == ["well", "hello", "there", "hello"]


def test_chosen_words_move_with_their_text() -> None:
    """A new table of some words holds their fingerprints and their text, and no others."""
    crowd = list(range(1, 60))
    chosen = vocabulary_of(crowd, 1 << 11).keep(np.arange(0, 59, 7))
    assert chosen.words(np.arange(chosen.n_words)) == [str(i) for i in range(0, 59, 7)]
    assert columns_of(chosen, [1, 8, 9, 57]) == [0, 1, -1, 8]


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=200, unique=True))
def test_any_fingerprints_are_found(fingerprints: list[int]) -> None:
    """Whatever the fingerprints are, each is found at its column, and others are not."""
    half = fingerprints[: len(fingerprints) // 2 + 1]
    vocabulary = vocabulary_of(half, 64)
    assert columns_of(vocabulary, fingerprints) == [
        i if i < len(half) else -1 for i in range(len(fingerprints))
    ]


@given(st.lists(texts(), max_size=8), groups())
def test_batches_hold_what_the_twin_counts(some: list[str], group: Words) -> None:
    """Each text of a batch becomes the twin's n-grams and counts, whatever stands beside it."""
    occurrence = group.counts_occurrences
    expected = [
        dict(naive_text.grams(text, group.tokenizer, occurrence=occurrence)) for text in some
    ]
    assert read(some, group) == expected


def test_the_table_grows_in_mid_batch() -> None:
    """A batch that outgrows columns, slots and text in turn is read to its end, every word once."""
    n = 3000
    some = [f"w{i} {'long' * 8}{i} w{i // 2}" for i in range(n)]
    state = state_of(Words(Multinomial(), ngrams=(1, 2)))
    column = text_column([t.encode() for t in some])
    first = state.encode(column, 0, n, np.zeros(n, dtype=np.int32), learn=True).rows
    n_words = state.vocabulary.n_words
    shown = state.vocabulary.words(np.arange(n_words))
    options = state.spec.tokenizer
    twin = dict.fromkeys(word for t in some for word in naive_text.grams(t, options))
    assert shown == list(twin)
    again = state.encode(column, 0, n, np.zeros(n, dtype=np.int32), learn=True).rows
    used = first.indptr[-1]
    assert state.vocabulary.n_words == n_words
    assert np.array_equal(first.columns[:used], again.columns[:used])


@pytest.mark.parametrize("room", range(3, 90))
def test_text_stays_within_its_room(room: int) -> None:
    """However little room is left, a long negated word, copied by eight bytes, never passes it."""
    state = state_of(Words(Multinomial(), negation=True))
    one = np.zeros(1, dtype=np.int32)
    state.encode(text_column([b"not"]), 0, 1, one, learn=True)
    small = np.zeros(room, dtype=np.uint8)
    small[:3] = state.vocabulary.table.words[:3]
    state.vocabulary.table = state.vocabulary.table._replace(words=small)
    long = "ab" * 26 + "ΐ"  # which folds to six bytes
    state.encode(text_column([f"not {long}".encode()]), 0, 1, one, learn=True)
    table = state.vocabulary.table
    assert table.state[lookup.TEXT_BYTES] == 3 + 60 <= len(table.words)
    assert state.vocabulary.words(np.arange(2)) == ["not", "¬" + long.casefold()]


def test_predicting_never_enters_words() -> None:
    """Texts to predict, and texts without a label among learned ones, leave the table alone."""
    state = state_of()
    column = text_column([b"old", b"new words", None])
    nobody = np.array([0, -1, 0], dtype=np.int32)
    rows = state.encode(column, 0, 3, nobody, learn=True).rows
    assert rows.indptr.tolist() == [0, 1, 1, 1]
    state.encode(column, 0, 3, np.zeros(3, dtype=np.int32), learn=False)
    assert state.vocabulary.words(np.arange(state.vocabulary.n_words)) == ["old"]


def test_a_missing_text_is_not_an_empty_one() -> None:
    """Only a text that is there, be it empty, speaks in its group."""
    state = state_of()
    column = text_column([b"", None, b"a"])
    batch = state.encode(column, 0, 3, np.zeros(3, dtype=np.int32), learn=True)
    assert batch.present.tolist() == [True, False, True]
    assert batch.rows.indptr.tolist() == [0, 0, 0, 1]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), max_size=8))
def test_bounds_in_characters_become_bounds_in_bytes(some: list[str]) -> None:
    """Where texts end in characters tells where they end in bytes of the joined text."""
    data = np.frombuffer(bytearray("".join(some).encode()), dtype=np.uint8)
    bounds = np.cumsum([0, *map(len, some)], dtype=np.int64)
    lookup.byte_bounds(data, bounds)
    assert bounds.tolist() == np.cumsum([0, *(len(t.encode()) for t in some)]).tolist()
