"""What the kernels read in texts, shown as words: the real side of comparisons with twins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamnb import Multinomial, TextColumn, Words
from streamnb.features.words import WordsState
from streamnb.kernels.layout import Texts

KEY = 0x0F0E0D0C_0B0A0908_07060504_03020100


def text_column(texts: Sequence[bytes | None]) -> TextColumn:
    """Return bytes as one buffer; None is a text that is missing."""
    ends = np.cumsum([len(t or b"") for t in texts], dtype=np.int64)
    starts = ends - np.array([len(t or b"") for t in texts], dtype=np.int64)
    missing = np.array([t is None for t in texts], dtype=np.bool_)
    data = np.frombuffer(bytearray(b"".join(t or b"" for t in texts)), dtype=np.uint8)
    return TextColumn(Texts(data, starts, np.where(missing, -1, ends)))


def state_of(group: Words | None = None, n_classes: int = 1, key: int = KEY) -> WordsState:
    """Return the living side of a group that knows nothing yet."""
    return (group or Words(Multinomial())).start("text", n_classes, key)


def read(
    texts: Sequence[str | bytes | None], group: Words | None = None, key: int = KEY
) -> list[dict[str, int]]:
    """Return each text's n-grams with their counts, in the kernel's order."""
    state = state_of(group, key=key)
    column = text_column([t.encode() if isinstance(t, str) else t for t in texts])
    labels = np.zeros(len(texts), dtype=np.int32)
    rows = state.encode(column, 0, len(texts), labels, learn=True).rows
    shown = state.vocabulary.words(np.arange(state.vocabulary.n_words))
    found = []
    for i in range(len(texts)):
        here = slice(rows.indptr[i], rows.indptr[i + 1])
        found.append(
            {
                shown[column]: int(count)
                for column, count in zip(rows.columns[here], rows.counts[here], strict=True)
            }
        )
    return found


def words_of(text: str | bytes, group: Words | None = None) -> list[str]:
    """Return a text's distinct words, in order of first occurrence."""
    return list(read([text], group)[0])
