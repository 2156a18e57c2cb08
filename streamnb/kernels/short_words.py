"""Words of up to seven ASCII letters, eight bytes at a time: three of four words in English text.

`tokenise.read_word` reads every word, a byte after the other. This is the same for the plain case,
and says so only where it is sure: a word of one to seven letters that ends at the text's end or at
a sign that ends any word, and in which no letter stands three times in a row. Each step works on
the eight bytes of one register; a flag for a byte is its highest bit. Bytes are numbered from the
lowest up.
"""

from __future__ import annotations

import numpy as np

from streamnb.kernels._jit import inner
from streamnb.kernels.layout import U8, Int, Reader
from streamnb.kernels.memory import load_eight

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
    """Tell whether three of the first `n` bytes in a row are the same."""
    differing = word ^ (word >> _BYTE)
    same = ~(((differing & _LOWER_BITS) + _LOWER_BITS) | differing | _LOWER_BITS)
    pairs = same & ((_ONE << np.uint64(8 * (n - 1))) - _ONE)
    return bool((pairs & (pairs >> _BYTE)) != _ZERO)


@inner
def read_short(
    data: U8, at: int, end: int, folding: bool, squeezing: bool, reader: Reader
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
