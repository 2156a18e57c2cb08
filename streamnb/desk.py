"""A desk for one short text: arrays that a thread uses again and again.

One text at a time costs Python more than it costs the kernels; making its arrays anew in each call
would double that.
"""

from __future__ import annotations

import threading

import numpy as np

from streamnb.groups import ONES, Teaching
from streamnb.kernels.layout import Rows, Texts
from streamnb.likelihoods.base import Batch
from streamnb.tokenizer import NGRAM_MAX, tokens_max

SHORT_CHARS_MAX = 256
_BYTES = 4 * SHORT_CHARS_MAX  # a character takes up to four bytes
_GRAMS = tokens_max(_BYTES) * NGRAM_MAX


class Desk:
    """Room for one text of up to `SHORT_CHARS_MAX` characters.

    Attributes
    ----------
    texts : Texts
        The text that was put there last, as a batch of one.
    batch : Batch
        Where its columns and counts go.
    teaching : Teaching
        What is to be learned of it: its label, once, without decay.
    """

    def __init__(self) -> None:
        bytes_ = bytearray(_BYTES)
        self._bytes = memoryview(bytes_)
        self.texts = Texts(
            np.frombuffer(bytes_, dtype=np.uint8),
            np.zeros(1, dtype=np.int64),
            np.zeros(1, dtype=np.int64),
        )
        rows = Rows(
            np.empty(_GRAMS, dtype=np.int32),
            np.empty(_GRAMS),
            np.zeros(2, dtype=np.int64),
        )
        self.teaching = Teaching(np.zeros(1, dtype=np.int32), ONES[:1], ONES[:1])
        self.batch = Batch(rows, np.ones(1, dtype=np.bool_))

    def put(self, text: str) -> int:
        """Put a text there; return its size in bytes."""
        # A lone surrogate has no UTF-8 form; "?" is what a batch makes of it as well.
        encoded = text.encode("utf-8", "replace")
        size = len(encoded)
        self._bytes[:size] = encoded
        self.texts.ends[0] = size
        return size


class _Kept(threading.local):
    def __init__(self) -> None:
        self.desks: list[Desk] = []


_kept = _Kept()


def desks_of_this_thread(n: int) -> list[Desk]:
    """Return at least `n` desks of the calling thread: one for each group that reads text."""
    desks = _kept.desks
    while len(desks) < n:
        desks.append(Desk())
    return desks
