"""Kernels over a batch of JSON messages: the few fields that the daemon reads of every message.

What is not sure is left to the reader of single messages, see `kernels.json_scan`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consumers.decode.json import Node
from consumers.decode.kernels.json_numbers import read_flags, read_numbers
from consumers.decode.kernels.json_scan import (
    ABSENT,
    ESCAPED,
    N_KINDS,
    PLAIN,
    ROOT,
    Names,
    Spans,
    Tree,
    name_table,
    scan,
)
from consumers.decode.kernels.spans import copy_texts, match
from streamnb.kernels.layout import Texts

Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Scan:
    """Where the fields of a batch of n messages lie, by path.

    Attributes
    ----------
    again : ndarray of shape (n,), bool
        Messages of which nothing is known but that they must be looked at again.
    """

    buffer: NDArray[np.uint8]
    spans: Spans
    places: dict[str, int]
    again: NDArray[np.bool_]

    def kinds(self, path: str) -> NDArray[np.uint8]:
        """Return what stands at a path, shape (n,), uint8: the kinds of `json_values`."""
        return self._field(path)[0]

    def is_any(self, path: str, kinds: Collection[int]) -> NDArray[np.bool_]:
        """Tell of each message, shape (n,), whether one of some kinds stands at a path."""
        wanted: NDArray[np.bool_] = np.zeros(256, np.bool_)
        wanted[list(kinds)] = True
        return wanted[self.kinds(path)]

    def texts(self, path: str, also: Collection[int] = ()) -> Texts:
        """Return the strings at a path in one buffer of their own; what is none is missing.

        Of values of the kinds `also`, the bytes as they stand are a text too.
        """
        kinds, starts, ends = self._field(path)
        room = int(np.sum(ends - starts, where=self.is_any(path, (PLAIN, ESCAPED, *also))))
        n = len(kinds)
        texts = Texts(np.empty(room, np.uint8), np.empty(n, np.int64), np.empty(n, np.int64))
        is_text: NDArray[np.bool_] = np.zeros(N_KINDS, np.bool_)
        is_text[list(also)] = True
        copy_texts(self.buffer, kinds, starts, ends, is_text, texts)
        return texts

    def numbers(self, path: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the numbers at a path, nan where none stands, and which are not sure."""
        return self._read(read_numbers, path)

    def flags(self, path: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the flags at a path as 0, 1, or nan where none stands, and which are not sure."""
        return self._read(read_flags, path)

    def _read(
        self, read: Callable[..., None], path: str
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        kinds, starts, ends = self._field(path)
        values, unsure = np.empty(len(kinds)), np.empty(len(kinds), np.bool_)
        read(self.buffer, kinds, starts, ends, values, unsure)
        return values, unsure

    def _field(self, path: str) -> tuple[NDArray[np.uint8], Longs, Longs]:
        """Return kinds, starts and ends of what stands at a path."""
        field = self.places[path]
        return self.spans.kinds[field], self.spans.starts[field], self.spans.ends[field]

    def match(self, path: str, names: Names) -> NDArray[np.int32]:
        """Return the place of each value among names, shape (n,), int32; see `spans.match`."""
        kinds, starts, ends = self._field(path)
        found = np.empty(len(kinds), np.int32)
        match(self.buffer, kinds, starts, ends, names, found)
        return found


class JsonScanner:
    """Finds fields in JSON messages.

    Parameters
    ----------
    root : Node
        All paths that the reader of single messages knows: where one of its objects is none, that
        is a fault, wanted here or not.
    paths : collection of str
        Those that will be asked for.
    """

    def __init__(self, root: Node, paths: Collection[str]) -> None:
        self._places: dict[str, int] = {}
        self._names: list[bytes] = []
        self._parents = [-1]
        self._wanted = [False]
        self._paths = paths
        self._add(root, ROOT, ())
        self._table = name_table(self._names, self._parents[1:])
        parents = np.array(self._parents, np.int64)
        leads_on = np.isin(np.arange(len(parents)), parents)
        self._tree = Tree(parents, np.array(self._wanted, np.bool_), leads_on)

    def _add(self, node: Node, field: int, path: tuple[str, ...]) -> None:
        """Give a place to each field below one; who only describes a message needs none."""
        for name, child in node.children.items():
            here = (*path, name)
            if child.children or ".".join(here) in self._paths:
                self._parents.append(field)
                self._wanted.append(child.wanted)
                self._names.append(name.encode("utf-8", "surrogatepass"))
                self._places[".".join(here)] = place = len(self._names)
                self._add(child, place, here)

    def scan(self, buffer: bytes, starts: Longs, ends: Longs) -> Scan:
        """Scan the messages `buffer[start:end]`; one whose end is -1 is to be looked at again."""
        n, n_fields = len(starts), len(self._parents)
        spans = Spans(
            np.full((n_fields, n), ABSENT, np.uint8),
            np.empty((n_fields, n), np.int64),
            np.empty((n_fields, n), np.int64),
        )
        data = np.frombuffer(buffer, np.uint8)
        words = np.frombuffer(buffer, np.uint64, count=len(buffer) // 8)
        again = np.empty(n, np.bool_)
        scan(
            data,
            words,
            np.ascontiguousarray(starts, np.int64),
            np.ascontiguousarray(ends, np.int64),
            self._table,
            self._tree,
            spans,
            again,
        )
        return Scan(data, spans, self._places, again)


def names_of(texts: Sequence[str]) -> Names:
    """Return a table of the JSON texts of values; half a surrogate pair in one is met by none."""
    return name_table([text.encode("utf-8", "surrogatepass") for text in texts])
