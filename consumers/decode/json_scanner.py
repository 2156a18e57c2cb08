"""JSON messages to columns, a batch at a time: the fast path beside `json`.

Compiled kernels find the few fields that the daemon reads. The scan is sound, not complete: what it
reports is what `json` would say, and a message of which it is not sure is left to `json`.
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
class ScanResult:
    """Where the fields of a batch of n messages stand, by path.

    Attributes
    ----------
    undecided : ndarray of shape (n,), bool
        Messages that the scan could not decide.
    """

    buffer: NDArray[np.uint8]
    spans: Spans
    places: dict[str, int]
    undecided: NDArray[np.bool_]

    def kinds(self, path: str) -> NDArray[np.uint8]:
        """Return the kind of value at a path, shape (n,), uint8; see `kernels.json_scan`."""
        return self._field(path)[0]

    def is_any(self, path: str, kinds: Collection[int]) -> NDArray[np.bool_]:
        """Return whether the value at a path is of one of some kinds, shape (n,), bool."""
        is_one: NDArray[np.bool_] = np.zeros(256, np.bool_)
        is_one[list(kinds)] = True
        return is_one[self.kinds(path)]

    def texts(self, path: str, also: Collection[int] = ()) -> Texts:
        """Return the strings at a path in a buffer of their own; other values are missing.

        Values of the kinds `also` count as texts too, as they are spelled.
        """
        kinds, starts, ends = self._field(path)
        n_bytes = int(np.sum(ends - starts, where=self.is_any(path, (PLAIN, ESCAPED, *also))))
        n = len(kinds)
        texts = Texts(np.empty(n_bytes, np.uint8), np.empty(n, np.int64), np.empty(n, np.int64))
        is_text: NDArray[np.bool_] = np.zeros(N_KINDS, np.bool_)
        is_text[list(also)] = True
        copy_texts(self.buffer, kinds, starts, ends, is_text, texts)
        return texts

    def numbers(self, path: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the numbers at a path, nan if absent, and which are undecided."""
        return self._read(read_numbers, path)

    def flags(self, path: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the flags at a path as 0, 1 or nan if absent, and which are undecided."""
        return self._read(read_flags, path)

    def _read(
        self, read: Callable[..., None], path: str
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        kinds, starts, ends = self._field(path)
        values, unsure = np.empty(len(kinds)), np.empty(len(kinds), np.bool_)
        read(self.buffer, kinds, starts, ends, values, unsure)
        return values, unsure

    def _field(self, path: str) -> tuple[NDArray[np.uint8], Longs, Longs]:
        """Return kinds, starts and ends of the values at a path."""
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
        All paths that `json.JsonReader` reads: if something else stands in the place of an object
        on the way, that is an error, also on a path that is not scanned.
    paths : collection of str
        The paths to scan.
    """

    def __init__(self, root: Node, paths: Collection[str]) -> None:
        self._places: dict[str, int] = {}
        self._names: list[bytes] = []
        self._parents = [-1]
        self._is_read = [False]
        self._paths = paths
        self._add(root, ROOT, ())
        self._table = name_table(self._names, self._parents[1:])
        parents = np.array(self._parents, np.int64)
        leads_on = np.isin(np.arange(len(parents)), parents)
        self._tree = Tree(parents, np.array(self._is_read, np.bool_), leads_on)

    def _add(self, node: Node, field: int, path: tuple[str, ...]) -> None:
        """Give a number to each scanned field below one."""
        for name, child in node.children.items():
            here = (*path, name)
            if child.children or ".".join(here) in self._paths:
                self._parents.append(field)
                self._is_read.append(child.is_read)
                self._names.append(name.encode("utf-8", "surrogatepass"))
                self._places[".".join(here)] = place = len(self._names)
                self._add(child, place, here)

    def scan(self, buffer: bytes, starts: Longs, ends: Longs) -> ScanResult:
        """Scan the messages `buffer[start:end]`; one whose end is -1 is undecided."""
        n, n_fields = len(starts), len(self._parents)
        spans = Spans(
            np.full((n_fields, n), ABSENT, np.uint8),
            np.empty((n_fields, n), np.int64),
            np.empty((n_fields, n), np.int64),
        )
        data = np.frombuffer(buffer, np.uint8)
        words = np.frombuffer(buffer, np.uint64, count=len(buffer) // 8)
        undecided = np.empty(n, np.bool_)
        scan(
            data,
            words,
            np.ascontiguousarray(starts, np.int64),
            np.ascontiguousarray(ends, np.int64),
            self._table,
            self._tree,
            spans,
            undecided,
        )
        return ScanResult(data, spans, self._places, undecided)


def name_table_of(texts: Sequence[str]) -> Names:
    """Return a table of strings for `match`; one with a lone surrogate matches nothing."""
    return name_table([text.encode("utf-8", "surrogatepass") for text in texts])
