"""A desk for one short text: arrays that a thread uses again and again.

One text at a time costs Python more than it costs the kernels; making its arrays anew in each call
would double that.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamnb.kernels.layout import Rows, Texts
from streamnb.labels import RowUpdates, ones
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
    updates : RowUpdates
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
        self.updates = RowUpdates(np.zeros(1, dtype=np.int32), ones(1), ones(1))
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


_FIELDS_MAX = 64
_CHARS_MAX = 64
_VALUE_BYTES = 4 * _FIELDS_MAX * _CHARS_MAX  # a character takes up to four bytes


class ValueDesk:
    """Room for the values of one example.

    Attributes
    ----------
    words : ndarray of uint64
        Room for the longest value that fits.
    labels : ndarray of shape (1,), int32
        Some label: whether there is something to learn, the call says.
    which : list of ndarray of int64
        The first n places, by n.
    """

    def __init__(self) -> None:
        buffer = bytearray(_VALUE_BYTES)
        self._bytes = memoryview(buffer)
        self._data = np.frombuffer(buffer, dtype=np.uint8)
        self._places = np.zeros((2, _FIELDS_MAX), dtype=np.int64)
        self._starts, self._ends = (memoryview(self._places[i]) for i in (0, 1))
        self._texts: dict[int, Texts] = {}
        self.words = np.empty(4 * _CHARS_MAX // 8 + 2, dtype=np.uint64)
        self.labels = np.zeros(1, dtype=np.int32)
        self.which = [np.arange(n) for n in range(_FIELDS_MAX + 1)]

    @staticmethod
    def fits(names: Sequence[str], x: Mapping[str, Any]) -> bool:
        """Tell whether an example's values are plain and short enough."""
        if len(names) > _FIELDS_MAX:
            return False
        for name in names:
            value: Any = x.get(name)
            kind = type(value)
            if kind is str:
                if len(value) > _CHARS_MAX:
                    return False
            elif kind is int:
                if not -(10**18) < value < 10**18:
                    return False
            elif kind is not bool and value is not None:
                return False
        return True

    def put(self, names: Sequence[str], x: Mapping[str, Any]) -> Texts:
        """Put values there that fit; return them as texts, in the order of the names."""
        parts = []
        at = 0
        for i, name in enumerate(names):
            value = x.get(name)
            if value is None:
                self._ends[i] = -1
                continue
            if type(value) is not str:
                value = str(value).lower()  # a number has no letters here, and True is "true"
            # A lone surrogate has no UTF-8 form; "?" is what a batch makes of it as well.
            encoded = value.encode("utf-8", "replace")
            parts.append(encoded)
            self._starts[i] = at
            at += len(encoded)
            self._ends[i] = at
        self._bytes[:at] = b"".join(parts)
        return self.texts(len(names))

    def texts(self, n: int) -> Texts:
        """Return the first `n` texts."""
        if n not in self._texts:
            self._texts[n] = Texts(self._data, self._places[0, :n], self._places[1, :n])
        return self._texts[n]


class _OfThread(threading.local):
    desk: ValueDesk | None = None


_of_thread = _OfThread()


def value_desk_of_this_thread() -> ValueDesk:
    """Return the calling thread's desk."""
    if _of_thread.desk is None:
        _of_thread.desk = ValueDesk()
    return _of_thread.desk
