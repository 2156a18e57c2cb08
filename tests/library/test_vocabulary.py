"""The vocabulary: columns in order of arrival, text that finds its word, tables that stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from streamnb import Multinomial, Words
from streamnb.features.words import WordsState
from streamnb.kernels import word_table as lookup
from streamnb.vocabulary import Vocabulary
from tests.encoding import state_of, text_column

spoken = st.lists(st.text(st.sampled_from("abcdé語"), min_size=1, max_size=4), max_size=30)


def having(words: list[str]) -> WordsState:
    """Return a group that has met the words, in order."""
    state = state_of(Words(Multinomial(), squeeze=False))
    labels = np.zeros(1, dtype=np.int32)
    state.encode(text_column([" ".join(words).encode()]), 0, 1, labels, learn=True)
    return state


def listed(vocabulary: Vocabulary) -> list[str]:
    """Return all words, by column."""
    return vocabulary.words(np.arange(vocabulary.n_words))


@given(spoken)
def test_columns_are_given_in_order_of_arrival(words: list[str]) -> None:
    """Each new word gets the next column, and is found there by its text."""
    state = having(words)
    known = listed(state.vocabulary)
    found = state.vocabulary.find(known, state.reader.key)
    assert found.tolist() == list(range(len(known)))
    assert state.vocabulary.find(["never met", "¬a"], state.reader.key).tolist() == [-1, -1]


@given(spoken, st.data())
def test_a_kept_choice_is_the_same_words(words: list[str], data: st.DataObject) -> None:
    """Moving some words to a new table keeps their text and order, and leaves the old one alone."""
    state = having(words)
    known = listed(state.vocabulary)
    flags = data.draw(st.lists(st.booleans(), min_size=len(known), max_size=len(known)))
    columns = np.flatnonzero(flags)
    smaller = state.vocabulary.keep(columns)
    chosen = [known[c] for c in columns]
    assert listed(smaller) == chosen
    assert smaller.find(chosen, state.reader.key).tolist() == list(range(len(chosen)))
    gone = [word for word in known if word not in chosen]
    assert smaller.find(gone, state.reader.key).tolist() == [-1] * len(gone)
    assert listed(state.vocabulary) == known


def test_a_view_stays_as_it_was() -> None:
    """A view sees the words of its moment, while the table it shares takes others and grows."""
    state = having(["a", "b"])
    view = state.vocabulary.view()
    labels = np.zeros(1, dtype=np.int32)
    for start in (0, 5000):
        text = " ".join(f"w{i}" for i in range(start, start + 3000))
        state.encode(text_column([text.encode()]), 0, 1, labels, learn=True)
    assert view.n_words == 2
    assert view.find(["a", "b", "w1", "w5001"], state.reader.key).tolist() == [0, 1, -1, -1]
    assert state.vocabulary.find(["a", "b", "w1"], state.reader.key).tolist() == [0, 1, 3]


@pytest.mark.parametrize("why", [lookup.NEEDS_COLUMNS, lookup.NEEDS_SLOTS, lookup.NEEDS_TEXT])
def test_growth_keeps_every_word(why: int) -> None:
    """Whatever had to grow, all words are where they were, and the old arrays are untouched."""
    state = having([f"x{i}y" for i in range(500)])
    before = state.vocabulary.table
    arrays: list[NDArray[Any]] = list(before)
    copies = [array.copy() for array in arrays]
    known = listed(state.vocabulary)
    state.vocabulary.make_room(why, 100_000)
    assert listed(state.vocabulary) == known
    assert state.vocabulary.find(known, state.reader.key).tolist() == list(range(500))
    assert all(np.array_equal(a, b) for a, b in zip(arrays, copies, strict=True))


def test_arrays_make_the_vocabulary_again() -> None:
    """Fingerprints, text and ends are all there is to it."""
    state = having(["語", "b", "cc"])
    table, n = state.vocabulary.table, state.vocabulary.n_words
    again = Vocabulary.from_arrays(
        table.fingerprints[:n], table.words[: table.state[lookup.TEXT_BYTES]], table.word_ends[:n]
    )
    assert listed(again) == ["語", "b", "cc"]
    assert again.find(["cc", "語"], state.reader.key).tolist() == [2, 0]
    assert listed(Vocabulary()) == []


def test_kinds_of_words_are_read_once_for_all_that_share_them() -> None:
    """Of new words alone, in one array for groups and snapshots of one vocabulary."""
    vocabulary = having(["a", "b"]).vocabulary
    vocabulary.read_kinds()
    view, kinds = vocabulary.view(), vocabulary.kinds
    assert view.kinds is kinds
    kinds[:2] = 9  # are not read again
    words = ["¬b", "a b", "a b c", "~ab", " ", "~"]
    buffer = text_column([word.encode() for word in words]).piece(0, len(words))
    vocabulary.enter(np.arange(77, 77 + len(words), dtype=np.uint64), buffer)
    view.read_kinds()
    vocabulary.read_kinds()
    assert vocabulary.kinds is kinds
    assert kinds[: vocabulary.n_words].tolist() == [9, 9, 1, 2, 3, 3, 2, 0]
