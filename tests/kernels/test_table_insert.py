"""Whole texts enter a table, each once, and the table asks for room where it has none."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamnb.kernels.layout import Texts
from streamnb.tokenizer import fingerprints, hash_key_words
from streamnb.vocabulary import Vocabulary

KEY = hash_key_words(9)


def entered(vocabulary: Vocabulary, names: list[str]) -> list[int]:
    """Enter names; return their columns."""
    encoded = [name.encode() for name in names]
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1])) if names else ends
    data = np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8)
    columns = vocabulary.enter(fingerprints(names, KEY), Texts(data, starts, ends))
    return [int(column) for column in columns]


names = st.lists(st.text(st.characters(codec="utf-8", exclude_characters=" ¬"), min_size=1))


@given(names, names)
def test_columns_are_given_in_the_order_of_coming(first: list[str], second: list[str]) -> None:
    """A name keeps its column; a new one takes the next; texts are kept as they are."""
    vocabulary = Vocabulary()
    order = list(dict.fromkeys([*first, *second]))
    assert entered(vocabulary, first) == [order.index(name) for name in first]
    assert entered(vocabulary, second) == [order.index(name) for name in second]
    assert vocabulary.n_words == len(order)
    assert vocabulary.words(np.arange(len(order))) == order


def test_a_table_grows_while_names_enter() -> None:
    """Far more names than the first table has room for enter in one call, the long ones too."""
    wanted = [f"{'n' * (i % 97)}{i}" for i in range(20_000)]
    vocabulary = Vocabulary()
    assert entered(vocabulary, wanted) == list(range(len(wanted)))
    assert entered(vocabulary, wanted[::-1]) == list(range(len(wanted)))[::-1]
    assert vocabulary.words(np.array([0, 19_999])) == [wanted[0], wanted[-1]]
