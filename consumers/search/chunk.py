"""What is known of a chunk's rows without asking SQLite: arrays side by side, one entry a row.

The writer fills them before it commits, so whoever finds a key in the file finds its row here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_UNSORTED_MAX = 4_096
_TYPES: dict[str, Any] = {
    "id_crc": np.uint32,
    "place": np.int32,
    "offset": np.int64,
    "time_ms": np.int64,
    "arrived_ms": np.int64,
    "lang_code": np.int16,
    "label": np.int16,
    "truth": np.int16,
    "probability": np.float32,
}


@dataclass(slots=True)
class Chunk:
    """One chunk.

    Attributes
    ----------
    number : int
        It names the tables.
    first_key : int
        The key of the row at index 0; the row of key k is at index k − first_key.
    capacity : int
        How many rows it can hold.
    n : int
        Rows filled in, those since removed included.
    n_committed : int
        Of these, the ones that are safe in the file.
    n_gone : int
        Rows that were removed.
    n_offered : int
        Messages that came while it was filled, those that were not taken included.
    n_bytes : int
        Size of its texts.
    dirty_since_s : float or None
        Since when words of removed rows stand in its index, in monotonic seconds.
    columns : dict of str to ndarray of shape (capacity,)
        By the names of `tables.COLUMNS`; a `truth` of -1 is that of a row without a label.
    alive : ndarray of shape (capacity,), bool
        False where there is no row, or no longer.
    """

    number: int
    first_key: int
    capacity: int
    n: int = 0
    n_committed: int = 0
    n_gone: int = 0
    n_offered: int = 0
    n_bytes: int = 0
    dirty_since_s: float | None = None
    columns: dict[str, NDArray[Any]] = field(init=False)
    alive: NDArray[np.bool_] = field(init=False)
    _order: NDArray[np.int64] = field(init=False)
    _sorted: NDArray[np.uint32] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = {name: np.zeros(self.capacity, t) for name, t in _TYPES.items()}
        self.alive = np.zeros(self.capacity, np.bool_)
        self._order = np.zeros(0, np.int64)
        self._sorted = np.zeros(0, np.uint32)

    @property
    def n_alive(self) -> int:
        """How many rows there are."""
        return self.n_committed - self.n_gone

    @property
    def next_key(self) -> int:
        """The key of the next row."""
        return self.first_key + self.n

    @property
    def oldest_ms(self) -> int:
        """When the first row arrived, in Unix milliseconds; 0 without any."""
        return int(self.columns["arrived_ms"][0])

    @property
    def newest_ms(self) -> int:
        """When the last row arrived, in Unix milliseconds; 0 without any."""
        return int(self.columns["arrived_ms"][max(0, self.n - 1)])

    def add(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Fill in rows, given by columns as `row_builder` makes them; `n` is raised last."""
        count = len(values["offset"])
        part = slice(self.n, self.n + count)
        for name in _TYPES:
            if name != "truth":
                self.columns[name][part] = values[name]
        self.columns["truth"][part] = [-1 if truth is None else truth for truth in values["truth"]]
        # A clock that was put back must not break the order.
        arrived = self.columns["arrived_ms"][max(0, self.n - 1) : part.stop]
        np.maximum.accumulate(arrived, out=arrived)
        self.alive[part] = True
        self.n_bytes += sum(map(len, values["text"]))
        self.n += count

    def figures(self) -> tuple[int, int, float | None]:
        """Return what `go_back` needs to come back to now."""
        return self.n_offered, self.n_bytes, self.dirty_since_s

    def go_back(self, figures: tuple[int, int, float | None]) -> None:
        """Take back what could not be written: rows, and what was told of them."""
        self.alive[self.n_committed : self.n] = False
        self.n = self.n_committed
        self._order, self._sorted = self._order[:0], self._sorted[:0]
        self.n_offered, self.n_bytes, self.dirty_since_s = figures

    def is_alive(self, key: int) -> bool:
        """Tell whether a row is there."""
        return bool(self.alive[key - self.first_key])

    def kill(self, keys: Sequence[int]) -> None:
        """Note that rows are gone."""
        at = np.asarray(keys, np.int64) - self.first_key
        at = at[self.alive[at]]
        self.alive[at] = False
        self.n_gone += len(at)

    def first_since(self, cutoff_ms: int) -> int:
        """Return the key of the oldest row that arrived at `cutoff_ms` or later."""
        arrived = self.columns["arrived_ms"][: self.n]
        return self.first_key + int(np.searchsorted(arrived, cutoff_ms))

    def with_crcs(self, crcs: NDArray[np.uint32]) -> list[int]:
        """Return the keys of rows, gone ones too, whose ids may have one of these checksums.

        Rows are sorted by their checksums for it, but for the last thousands, which are looked
        through: else each question to a growing chunk would sort it anew.
        """
        own = self.columns["id_crc"][: self.n]
        if self.n - len(self._sorted) > _UNSORTED_MAX:
            self._order = np.argsort(own, kind="stable")
            self._sorted = own[self._order]
        begins = np.searchsorted(self._sorted, crcs, side="left")
        ends = np.searchsorted(self._sorted, crcs, side="right")
        hit = np.flatnonzero(ends > begins)
        at = [self._order[begins[k] : ends[k]] for k in hit.tolist()]
        n_sorted = len(self._sorted)
        at.append(np.flatnonzero(np.isin(own[n_sorted:], crcs)) + n_sorted)
        keys: list[int] = (np.sort(np.concatenate(at)) + self.first_key).tolist()
        return keys

    def at_offsets(self, place: int, offsets: NDArray[np.int64]) -> dict[int, int]:
        """Return the keys of rows, gone ones too, that came from some places: offset → key."""
        own = self.columns["offset"][: self.n]
        near = (own >= offsets.min()) & (own <= offsets.max())
        at = np.flatnonzero(near & (self.columns["place"][: self.n] == place))
        at = at[np.isin(own[at], offsets)]
        keys = (at + self.first_key).tolist()
        return dict(zip(own[at].tolist(), keys, strict=True))


def restored(
    number: int, keys: tuple[int, int], capacity: int, rings: dict[str, NDArray[Any]]
) -> Chunk:
    """Return the chunk whose columns were read from the file.

    Parameters
    ----------
    number : int
    keys : tuple of int
        The first row's key, and the one that the next row will have.
    capacity : int
    rings : dict of str to ndarray
        See `tables.rings_of`.
    """
    first_key, n = keys[0], keys[1] - keys[0]
    at = rings["key"] - first_key
    chunk = Chunk(number, first_key, max(capacity, n), n=n, n_committed=n, n_gone=n - len(at))
    chunk.columns["place"][:] = -1  # rows that are gone came from nowhere
    for name in _TYPES:
        chunk.columns[name][at] = rings[name]
    chunk.alive[at] = True
    # When rows came that are gone is not known; it must not break the order.
    arrived = chunk.columns["arrived_ms"][:n]
    np.maximum.accumulate(arrived, out=arrived)
    return chunk
