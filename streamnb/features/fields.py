"""The fields of a group, by name: which there are, and the one order in which they are read.

Fields of an open group come as they please, and models that saw them in another order must answer
alike, to the last bit: whatever is added up over fields is added up in the order of their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError

FIELDS_MAX = 4096  # a batch has a place for each field of each row


@dataclass(frozen=True, slots=True)
class FieldTable:
    """Field ↔ place; a value, so that whoever holds an older one goes on with it undisturbed.

    Examples
    --------
    >>> FieldTable.of(["b", "a"]).order.tolist()
    [1, 0]
    """

    names: tuple[str, ...]  # by place
    places: Mapping[str, int]
    order: NDArray[np.int64]  # (n_fields,): the places in the order of the names

    @classmethod
    def of(cls, names: Sequence[str]) -> FieldTable:
        """Return the table of these fields."""
        order = sorted(range(len(names)), key=names.__getitem__)
        return cls(
            tuple(names),
            {name: j for j, name in enumerate(names)},
            np.array(order, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.names)

    def with_new(self, names: Sequence[str]) -> FieldTable:
        """Return this table, or a longer one where some of the fields are new."""
        new = [name for name in names if name not in self.places]
        return FieldTable.of([*self.names, *new]) if new else self


def check_fields(fields: Any) -> tuple[str, ...] | None:
    """Return the names of a group's fields; None where they come as they please.

    Raises InputError if they are no sequence of different texts.
    """
    if fields is None:
        return None
    if isinstance(fields, str) or not isinstance(fields, Sequence) or not fields:
        raise InputError(f"fields must be a sequence of names. Got {fields!r} instead.")
    for i, name in enumerate(fields):
        if not is_name(name):
            raise InputError(f"fields[{i}] must be a str without NUL. Got {name!r} instead.")
    if len(set(fields)) < len(fields):
        raise InputError(f"fields must differ. Got {fields!r} instead.")
    return tuple(fields)


def check_max(name: str, value: Any) -> None:
    """Refuse a bound that is no whole number, or that no table could hold."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (is_whole and 1 <= value < 1 << 31):
        raise InputError(
            f"{name} must be a whole number between 1 and 2,147,483,647. Got {value!r} instead."
        )


def is_name(name: Any) -> bool:
    """Tell whether something can name a field: text that has a UTF-8 form, without NUL."""
    if not isinstance(name, str) or "\0" in name:
        return False
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def to_read(
    columns: Mapping[str, Any], named: Sequence[str] | None, table: FieldTable
) -> list[str]:
    """Return the columns that a group reads: those it names, or if it is open all there are.

    Raises InputError if a new field's name is none, or there would be more fields than can be kept.
    """
    if named is not None:
        return [name for name in named if columns.get(name) is not None]
    present = [name for name in columns if columns[name] is not None]
    new = [name for name in present if name not in table.places]
    for name in new:
        if not is_name(name):
            raise InputError(
                f"field {name!r}: a field's name must be a str without NUL that has a UTF-8 form."
            )
    if new and len(table) + len(new) > FIELDS_MAX:
        raise InputError(
            f"field {new[-1]!r}: an open group holds at most {FIELDS_MAX:,} fields, and has"
            f" {len(table):,}. Name the fields that it is to read."
        )
    return present
