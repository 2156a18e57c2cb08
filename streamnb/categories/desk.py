"""A desk for one example's categories: arrays that a thread uses again and again."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamnb.kernels.layout import Texts

_FIELDS_MAX = 64
_CHARS_MAX = 64
_BYTES = 4 * _FIELDS_MAX * _CHARS_MAX  # a character takes up to four bytes


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
        buffer = bytearray(_BYTES)
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


class _Kept(threading.local):
    desk: ValueDesk | None = None


_kept = _Kept()


def value_desk_of_this_thread() -> ValueDesk:
    """Return the calling thread's desk."""
    if _kept.desk is None:
        _kept.desk = ValueDesk()
    return _kept.desk
