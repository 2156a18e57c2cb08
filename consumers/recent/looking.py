"""Rows of the table as objects: those that a search found, and new ones where somebody looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, overload

import msgspec

from consumers.recent.file import partition_at
from consumers.recent.rows import Row
from consumers.recent.tables import COLUMNS, SHOWN, Values

_shown = itemgetter(*(COLUMNS.index(name) for name in SHOWN))
_probabilities = msgspec.json.Decoder(tuple[float, ...]).decode


@dataclass(frozen=True, slots=True)
class Reading:
    """What the numbers of a table stand for.

    Attributes
    ----------
    classes : tuple of str
    places : list of str
        Partitions, as `file.place_name` writes them.
    """

    classes: tuple[str, ...]
    places: list[str]

    def row(self, values: Sequence[Any]) -> Row:
        """Return the row whose columns `tables.SHOWN` these are."""
        (
            key, id_, place, offset, time_ms, arrived_ms, user, lang, text, example, label,
            probability, probabilities, truth, taught, taught_part, corrected,
        ) = values  # fmt: skip
        return Row(
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


class NewRows(Sequence[Row]):
    """Rows as they went into the table; each becomes an object when it is asked for.

    Parameters
    ----------
    values : list of tuple
        In the order of `tables.COLUMNS`.
    reading : Reading
    """

    def __init__(self, values: list[Values], reading: Reading) -> None:
        self._values = values
        self._reading = reading

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, i: int) -> Row: ...

    @overload
    def __getitem__(self, i: slice) -> NewRows: ...

    def __getitem__(self, i: int | slice) -> Row | NewRows:
        if isinstance(i, slice):
            return NewRows(self._values[i], self._reading)
        return self._reading.row(_shown(self._values[i]))
