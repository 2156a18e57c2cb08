"""Rows of the table as objects: those that a search found, and new ones where somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, overload

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.search.chunk import Chunk
from consumers.search.file import partition_at
from consumers.search.rows import MessageRow
from consumers.search.tables import COLUMNS, SHOWN, Values

_shown = itemgetter(*(COLUMNS.index(name) for name in SHOWN))
_probabilities = msgspec.json.Decoder(tuple[float, ...]).decode


@dataclass(frozen=True, slots=True)
class RowMapper:
    """What the numbers of a table stand for.

    Attributes
    ----------
    classes : tuple of str
    places : list of str
        Partitions, as `file.place_name` writes them.
    """

    classes: tuple[str, ...]
    places: list[str]

    def row(self, values: Sequence[Any]) -> MessageRow:
        """Return the row whose columns `tables.SHOWN` these are."""
        (
            key, id_, place, offset, time_ms, arrived_ms, user, lang, text, example, label,
            probability, probabilities, truth, taught, taught_part, corrected,
        ) = values  # fmt: skip
        return MessageRow(
            key=key,
            id=id_,
            partition=partition_at(self.places[place]),
            offset=offset,
            time_ms=time_ms,
            arrived_ms=arrived_ms,
            user=user,
            lang=lang,
            text=text,
            example={"text": text} if example is None else msgspec.json.decode(example),
            label=self.classes[label],
            probability=probability,
            probabilities=_probabilities(probabilities),
            truth=self._name(truth),
            taught=self._name(taught),
            taught_part=taught_part,
            corrected=self._name(corrected),
        )

    def _name(self, code: int | None) -> str | None:
        return None if code is None else self.classes[code]


class NewRows(Sequence[MessageRow]):
    """Rows as they went into the table; each becomes an object when it is asked for.

    Parameters
    ----------
    values : list of tuple
        In the order of `tables.COLUMNS`.
    reading : RowMapper
    """

    def __init__(self, values: list[Values], reading: RowMapper) -> None:
        self._values = values
        self._reading = reading

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, i: int) -> MessageRow: ...

    @overload
    def __getitem__(self, i: slice) -> NewRows: ...

    def __getitem__(self, i: int | slice) -> MessageRow | NewRows:
        if isinstance(i, slice):
            return NewRows(self._values[i], self._reading)
        return self._reading.row(_shown(self._values[i]))


Keys = NDArray[np.int64]
Parts = Sequence[tuple[Chunk, NDArray[np.int64]]]


def located(chunks: Sequence[Chunk], cutoff_ms: int, keys: Keys) -> Parts:
    """Return where the rows of some keys lie, of those that are held.

    Parameters
    ----------
    chunks : sequence of Chunk
        Oldest first.
    cutoff_ms : int
        Rows that came before are not held any more, in Unix milliseconds.
    keys : ndarray of shape (n,), int64
        Ascending.

    Returns
    -------
    sequence of (Chunk, ndarray)
        Positions in the chunks, ascending as the keys are.
    """
    parts = []
    for chunk in chunks:
        lowest = chunk.first_since(cutoff_ms)
        begin, end = np.searchsorted(keys, (lowest, chunk.first_key + chunk.n_committed))
        if begin < end:
            at = keys[begin:end] - chunk.first_key
            parts.append((chunk, at[chunk.alive[at]]))
    return parts


def keys_of(parts: Parts) -> Keys:
    """Return the keys of rows, ascending, given by their positions in chunks, oldest first."""
    found = [at + chunk.first_key for chunk, at in parts]
    return np.concatenate(found) if found else np.zeros(0, np.int64)
