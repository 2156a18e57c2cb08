"""Eight bytes at a time: each step against its plain twin."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streamnb.kernels import tokenize as short_words
from streamnb.kernels.jit import DISABLED

EIGHT = st.binary(min_size=8, max_size=8) | st.text("aaabzAZ@[`{ m", min_size=8, max_size=8).map(
    str.encode
)


def plain(function: object) -> object:
    """Return a kernel's inner function as it is written."""
    return function if DISABLED else function.py_func  # type: ignore[attr-defined]


def word_of(data: bytes) -> np.uint64:
    """Return eight bytes as one number, the first byte lowest."""
    return np.uint64(int.from_bytes(data, "little"))


def is_letter(byte: int) -> bool:
    """Return whether a byte is an ASCII letter."""
    return chr(byte).isascii() and chr(byte).isalpha()


@given(EIGHT)
def test_letters_are_flagged_and_counted(data: bytes) -> None:
    """A byte has its flag exactly where it is a letter, and the leading ones are counted."""
    with np.errstate(over="ignore"):
        flags = plain(short_words.letter_flags)(word_of(data))  # type: ignore[operator]
        count = plain(short_words.count_leading)(flags)  # type: ignore[operator]
    assert int(flags).to_bytes(8, "little") == bytes(128 * is_letter(byte) for byte in data)
    assert count == next((i for i, byte in enumerate(data) if not is_letter(byte)), 8)


@given(st.lists(st.sampled_from(b"ab\0\xff"), min_size=8, max_size=8).map(bytes), st.integers(1, 7))
def test_triples_are_found(data: bytes, n: int) -> None:
    """Three equal bytes in a row are found among the first n, and none beyond."""
    with np.errstate(over="ignore"):
        found = plain(short_words.has_triple)(word_of(data), n)  # type: ignore[operator]
    assert found == any(data[i] == data[i + 1] == data[i + 2] for i in range(n - 2))
