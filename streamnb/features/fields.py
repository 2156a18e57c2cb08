"""The fields of a group, by name, and the state of a group that reads them as a matrix.

Fields of an open group come as they please, and models that saw them in another order must answer
alike, to the last bit: whatever is added up over fields is added up in the order of their names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import Kind, OneRow, read_matrix
from streamnb.errors import InputError, check_kind
from streamnb.features import statistics
from streamnb.features.protocol import Floats, GroupPart, GroupState, Places
from streamnb.features.statistics import Arrays
from streamnb.kernels.layout import RowUpdates

I32 = NDArray[np.int32]

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
            tuple(names), {name: j for j, name in enumerate(names)}, np.array(order, dtype=np.int64)
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


def check_saved(names: Any, named: Sequence[str] | None) -> list[str]:
    """Return a file's fields; refuse what no group can have saved.

    `named`: the fields of the specification, beyond which prior and kernel have no room; None if
    the group is open. Merged groups may hold more than `FIELDS_MAX`.
    """
    check_kind("fields", names, list)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise InputError("a group's fields must be texts that differ.")
    if named is not None and not set(named).issuperset(names):
        raise InputError("a group that names its fields has others in the file.")
    return list(names)


def check_max(name: str, value: Any) -> int:
    """Return a bound as an `int`; refuse what is no whole number, or more than a table holds."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (is_whole and 1 <= value < 1 << 31):
        raise InputError(
            f"{name} must be a whole number between 1 and 2,147,483,647. Got {value!r} instead."
        )
    return int(value)


def is_name(name: Any) -> bool:
    """Return whether something can name a field: text that has a UTF-8 form, without NUL."""
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


class FieldRows(NamedTuple):
    """Fields of a call, read and checked."""

    names: list[str]  # in alphabetical order: the one in which all sums over fields are formed
    matrix: Floats  # (n, n_names): nan where a value is missing


class FieldBatch(NamedTuple):
    """Some rows of fields."""

    x: Floats  # (n, n_columns): nan where a value is missing
    places: NDArray[np.int64]  # (n_columns,): the place of each column's field; -1: not known
    table: FieldTable  # as it was when the rows were read
    names: Sequence[str]  # the fields of the columns


class FieldsState(GroupState):
    """The state of a group that reads its fields as a matrix: numbers, and flags as 1 and 0.

    `table`: field ↔ place; the counts may lag behind it, as reading may be ahead of learning.
    """

    can_be_weighted = True
    kind: Kind  # what the values of a field may be

    def __init__(self, spec: Any, name: str) -> None:
        self.spec = spec
        self.name = name
        self.is_open = spec.fields is None
        self._set_table(FieldTable.of(spec.fields or ()))

    def _set_table(self, table: FieldTable) -> None:
        """Go on with another table of fields; the counts follow when they are next used."""
        self.table = table
        self._names = sorted(table.names)
        self._places = self._places_of(self._names)
        self._one_row = OneRow(self.kind, self._names)

    def _places_of(self, names: Sequence[str]) -> NDArray[np.int64]:
        return np.array([self.table.places.get(name, -1) for name in names], dtype=np.int64)

    @abstractmethod
    def fit_to_table(self) -> None:
        """Make room in the counts, and what goes with them, for all fields of the table."""

    @property
    def fields(self) -> Sequence[str]:
        """The fields, as far as they are known."""
        return self.table.names

    def read(self, columns: Mapping[str, Any], n: int) -> FieldRows:
        """Return the group's fields; those of an open one are all the columns it is given."""
        names = sorted(to_read(columns, self.spec.fields, self.table))
        return FieldRows(names, read_matrix(self.kind, columns, names, n))

    def says(self, x: Floats) -> NDArray[np.bool_]:
        """Return which values there is something to learn of."""
        says: NDArray[np.bool_] = ~np.isnan(x)
        return says

    def encode(
        self, fields: FieldRows, begin: int, end: int, labels: I32, *, learn: bool
    ) -> FieldBatch:
        """Return rows `begin` to `end`; to learn, new fields get places if a row teaches them."""
        x = fields.matrix[begin:end]
        if learn and self.is_open and not self.table.places.keys() >= set(fields.names):
            taught = np.flatnonzero(self.says(x[labels[: len(x)] >= 0]).any(axis=0))
            table = self.table.with_new([fields.names[t] for t in taught])
            if table is not self.table:
                self._set_table(table)
        places = self._places if fields.names == self._names else self._places_of(fields.names)
        return FieldBatch(x, places, self.table, fields.names)

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:
        """Return whether all its known fields are there, and plain; there may be others in it."""
        return self._one_row.has(x)

    def encode_one(self, x: Mapping[str, Any], scratch: Any, *, learn: bool) -> FieldBatch:  # noqa: ARG002
        """Return one example's known fields as `encode` does."""
        return FieldBatch(self._one_row.put(x), self._places, self.table, self._names)

    def grow(self, counts: Any) -> Any:
        """Return counts with room for all fields."""
        return statistics.grown(counts, fields=len(self.table))

    def learn_part(
        self,
        part: GroupPart,
        batch: FieldBatch,
        updates: RowUpdates,
        out: Floats,
        own: Floats | None = None,
    ) -> None:
        """Predict rows and learn them, in the group's sum and in a part; see `count`."""
        self.run(batch, updates, out, learn=True)
        self.count(part, batch, updates, own)

    def count(
        self, part: GroupPart, batch: FieldBatch, updates: RowUpdates, own: Floats | None = None
    ) -> None:
        """Learn rows in a part alone; `own` gets what the part says of each before it learns it."""
        part.counts = self.grow(part.counts)
        if own is None:
            self.learn_counts(part.counts, batch, updates)
            return
        self.fit_to_table()
        self.run_counts(part.counts, batch, updates.of_part(), own, learn=True)

    @abstractmethod
    def run_counts(
        self, counts: Any, batch: FieldBatch, updates: RowUpdates, out: Floats, *, learn: bool
    ) -> None:
        """Predict rows by some counts, and learn those with a label into them."""

    @abstractmethod
    def learn_counts(self, counts: Any, batch: FieldBatch, updates: RowUpdates) -> None:
        """Learn the rows with a label into some counts."""

    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's counts, field by field, or take them away; see `GroupState`."""
        chosen = other.live_fields()
        names = [other.table.names[j] for j in chosen]
        self._set_table(self.table.with_new(names))
        self.fit_to_table()
        theirs = statistics.take(other.grow(other.counts), "fields", chosen)
        self.merge_counts(theirs, names, places, factor, sign)

    @abstractmethod
    def merge_counts(
        self, theirs: Any, names: list[str], places: NDArray[np.int64], factor: float, sign: int
    ) -> None:
        """Add counts of the fields `names`, or take them away; see `merge`."""

    @abstractmethod
    def live_fields(self) -> NDArray[np.int64]:
        """Return the places of the fields to be saved.

        Of an open group those that something was learned of, in the order of their names: a model
        that learned the same in another order, or unlearned a field, is the same in its file.
        """

    def state_to_dict(self) -> dict[str, Any]:
        """Return the fields, in the order in which the file has them."""
        return {"fields": [self.table.names[j] for j in self.live_fields()]}

    def pack(self, prefix: str) -> tuple[Arrays, Places]:  # noqa: ARG002
        """Return no arrays, as the fields are in the header, and the fields to be saved."""
        return {}, {"fields": self.live_fields()}

    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Take up the fields that `state_to_dict` gave."""
        names = check_saved(state["fields"], self.spec.fields)
        self._set_table(self.table.with_new(names))
        self.fit_to_table()
        self._unpacked = {"fields": self._places_of(names)}
