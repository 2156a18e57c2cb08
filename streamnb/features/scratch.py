"""Buffers for one short example, which a thread uses again and again.

One example at a time costs Python more than it costs the kernels; allocating its arrays anew in
each call would double that.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamnb.kernels.layout import Rows, RowUpdates, Texts
from streamnb.labels import ones
from streamnb.likelihoods.base import Batch
from streamnb.tokenizer import GRAMS_PER_TOKEN_MAX

SHORT_CHARS_MAX = 256  # of a text
_CHAR_BYTES = 4  # the most that a character takes
# Of n-grams that one text may have: each byte may be a token, with the text's two ends beside them.
_GRAMS = (_CHAR_BYTES * SHORT_CHARS_MAX + 2) * GRAMS_PER_TOKEN_MAX
_VALUES_MAX, _VALUE_CHARS_MAX = 64, 64


class ExampleScratch:
    """Buffers for one group's part of an example: a text, or the values of its fields.

    `text`: the text that was put there last, as a batch of one. `batch`: where its columns and
    counts go. `updates`: the updates of one row: its label, weight 1, without decay. `words`: room
    for the longest value that fits. `places`: the first n places, by n.
    """

    def __init__(self) -> None:
        buffer = bytearray(_CHAR_BYTES * max(SHORT_CHARS_MAX, _VALUES_MAX * _VALUE_CHARS_MAX))
        self._bytes = memoryview(buffer)
        self._data = np.frombuffer(buffer, dtype=np.uint8)
        self._bounds = np.zeros((2, _VALUES_MAX), dtype=np.int64)
        self._starts, self._ends = (memoryview(self._bounds[i]) for i in (0, 1))
        self._values: dict[int, Texts] = {}
        self.text = Texts(self._data, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        rows = Rows(np.empty(_GRAMS, dtype=np.int32), np.empty(_GRAMS), np.zeros(2, dtype=np.int64))
        self.batch = Batch(rows, np.ones(1, dtype=np.bool_))
        self.updates = RowUpdates(np.zeros(1, dtype=np.int32), ones(1), ones(1))
        self.words = np.empty(_CHAR_BYTES * _VALUE_CHARS_MAX // 8 + 2, dtype=np.uint64)
        self.places = [np.arange(n) for n in range(_VALUES_MAX + 1)]

    def put_text(self, text: str) -> int:
        """Write a text of up to `SHORT_CHARS_MAX` characters; return its size in bytes."""
        # A lone surrogate has no UTF-8 form; "?" is what a batch makes of it as well.
        encoded = text.encode("utf-8", "replace")
        size = len(encoded)
        self._bytes[:size] = encoded
        self.text.ends[0] = size
        return size

    def put_values(self, names: Sequence[str], x: Mapping[str, Any]) -> Texts:
        """Write values that fit (`values_fit`); return them as texts, in the order of the names."""
        parts = []
        at = 0
        for i, name in enumerate(names):
            value = x.get(name)
            if value is None:
                self._ends[i] = -1
                continue
            if type(value) is not str:
                value = str(value).lower()  # a number has no letters here, and True is "true"
            encoded = value.encode("utf-8", "replace")  # as above
            parts.append(encoded)
            self._starts[i] = at
            at += len(encoded)
            self._ends[i] = at
        self._bytes[:at] = b"".join(parts)
        n = len(names)
        if n not in self._values:
            self._values[n] = Texts(self._data, self._bounds[0, :n], self._bounds[1, :n])
        return self._values[n]


def values_fit(names: Sequence[str], x: Mapping[str, Any]) -> bool:
    """Tell whether an example's values of some fields are plain and short enough."""
    if len(names) > _VALUES_MAX:
        return False
    for name in names:
        value: Any = x.get(name)
        kind = type(value)
        if kind is str:
            if len(value) > _VALUE_CHARS_MAX:
                return False
        elif kind is int:
            if not -(10**18) < value < 10**18:
                return False
        elif kind is not bool and value is not None:
            return False
    return True


class _ThreadScratch(threading.local):
    def __init__(self) -> None:
        self.by_group: list[ExampleScratch] = []


_of_thread = _ThreadScratch()


def scratch_of_this_thread(n: int) -> list[ExampleScratch]:
    """Return buffers for at least `n` groups, kept by the calling thread."""
    by_group = _of_thread.by_group
    while len(by_group) < n:
        by_group.append(ExampleScratch())
    return by_group
