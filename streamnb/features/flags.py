"""The living side of a group of flags: fields, counts, and what can be done with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import FLAGS, OneRow, first_there, read_matrix
from streamnb.errors import InputError, check_kind
from streamnb.features import flag_counts
from streamnb.features.fields import FieldTable, check_fields, to_read
from streamnb.features.flag_counts import FlagBatch, FlagPart
from streamnb.features.protocol import Arrays, Floats, GroupPart, GroupState, of_shape
from streamnb.kernels.flags import Betas
from streamnb.kernels.posterior import DUST
from streamnb.labels import RowUpdates
from streamnb.likelihoods.bernoulli import Bernoulli


@dataclass(frozen=True, slots=True)
class FlagColumns:
    """The flags of some examples.

    Attributes
    ----------
    names : list of str
    values : ndarray of shape (n, n_names), float64
        1, 0, or nan where a flag is missing.
    """

    names: list[str]
    values: Floats


class FlagsState(GroupState):
    """The living side of `Flags`.

    Parameters
    ----------
    spec : Flags
    name : str
    n_classes : int

    Attributes
    ----------
    table : FieldTable
    counts : FlagCounts
        N_jc, n_jc − N_jc and N_c, by the table's places.
    betas : Betas
        The prior.
    """

    def __init__(self, spec: Any, name: str, n_classes: int) -> None:
        self.spec = spec
        self.name = name
        self.is_open = spec.fields is None
        self.may_lack_fields = spec.absent_is_false
        self._set_table(FieldTable.of(spec.fields or ()))
        self.betas = self._betas(n_classes)
        self.counts = flag_counts.empty(n_classes, len(self.table))

    def _set_table(self, table: FieldTable) -> None:
        self.table = table
        self._one_row = OneRow(FLAGS, table.names)

    def _betas(self, n_classes: int) -> Betas:
        n_fields = None if self.is_open else len(self.table)
        present, absent = self.spec.likelihood.prior.grids(n_fields, n_classes)
        shape = (max(len(present), len(absent)), n_classes)
        return Betas(
            np.array(np.broadcast_to(present, shape)),
            np.array(np.broadcast_to(absent, shape)),
            np.array([self.is_open]),
            np.array([self.spec.absent_is_false]),
        )

    # ---- fields --------------------------------------------------------------------------------

    @property
    def fields(self) -> Sequence[str]:
        """The fields, as far as they are known."""
        return self.table.names

    def takes(self, values: Any) -> bool:
        """Tell whether the first of these values that is there is a truth value."""
        if not self.is_open or isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            return False
        return isinstance(first_there(values), bool | np.bool_)

    def read(self, columns: Mapping[str, Any], n: int) -> FlagColumns:
        """Return the group's fields; those of an open one are all the columns it is given."""
        names = to_read(columns, self.spec.fields, self.table)
        return FlagColumns(names, read_matrix(FLAGS, columns, names, n))

    # ---- learning and judging ------------------------------------------------------------------

    def encode(
        self,
        fields: FlagColumns,
        begin: int,
        end: int,
        labels: NDArray[np.int32],
        *,
        learn: bool,
    ) -> FlagBatch:
        """Return rows `begin` to `end`; to learn, new fields get places."""
        values = fields.values[begin:end]
        if learn and self.is_open:
            taught = ~np.isnan(values[labels[: end - begin] >= 0])
            new = [name for j, name in enumerate(fields.names) if taught[:, j].any()]
            table = self.table.with_new(new)
            if table is not self.table:
                self._set_table(table)
        table = self.table
        if list(table.names) == fields.names:
            return FlagBatch(np.ascontiguousarray(values), table, {})
        out = np.full((end - begin, len(table)), np.nan)
        unknown: dict[str, float] = {}
        for j, name in enumerate(fields.names):
            if name in table.places:
                out[:, table.places[name]] = values[:, j]
            elif len(values) and not np.isnan(values[0, j]):
                unknown[name] = float(values[0, j])
        return FlagBatch(out, table, unknown)

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:
        """Tell whether all its known fields are there, and plain; there may be others in it."""
        return self._one_row.has(x)

    def encode_one(self, x: Mapping[str, Any], desk: Any, *, learn: bool) -> FlagBatch:  # noqa: ARG002
        """Return one example's known fields as `encode` does."""
        return FlagBatch(self._one_row.put(x), self.table, {})

    def fit(self, table: FieldTable) -> None:
        """See to it that the counts have room for these fields."""
        self.counts = flag_counts.sized(self.counts, len(table), self.counts.true.shape[1])

    def run(self, batch: FlagBatch, updates: RowUpdates, out: Floats, *, learn: bool) -> None:
        """Judge each row, then learn it where it says so."""
        self.fit(batch.fields)
        flag_counts.teach(self.counts, self.betas, batch, updates, out, judge=True, learn=learn)

    # ---- what the state can do -----------------------------------------------------------------

    def to_unlearn(
        self, batch: FlagBatch, label: int, weight: float, part: GroupPart | None
    ) -> tuple[FlagBatch, int]:
        """Return the batch: flags never leave, so that all of it can be taken back or nothing."""
        counts = part.counts if isinstance(part, FlagPart) else self.counts
        for j, name in enumerate(batch.fields.names):
            value = batch.values[0, j]
            if np.isnan(value) or (value == 0.0 and self.spec.absent_is_false):
                continue
            array = counts.true if value else counts.false
            self._check(name, value, array[j, label] if j < len(array) else 0.0, weight)
        for name, value in batch.unknown.items():
            if value or not self.spec.absent_is_false:
                self._check(name, value, 0.0, weight)
        if counts.examples[label] < weight * (1.0 - DUST):
            raise InputError(
                f"group {self.name!r}: an example of weight {weight:g} cannot be unlearned, as its"
                f" class holds {counts.examples[label]:g}. Unlearn what was learned, once."
            )
        return batch, 0

    def _check(self, field: str, value: float, held: float, weight: float) -> None:
        if held < weight * (1.0 - DUST):
            raise InputError(
                f"group {self.name!r}, field {field!r}: {bool(value)} cannot be unlearned"
                f" {weight:g} times, as its class holds {held:g}. Unlearn what was learned, once,"
                " with its own class."
            )

    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's counts, flag by flag, or take them away; see `GroupState`."""
        chosen = other.live_fields()
        names = [other.table.names[j] for j in chosen]
        self._set_table(self.table.with_new(names))
        self.fit(self.table)
        ours = np.array([self.table.places[name] for name in names], dtype=np.int64)
        moved = flag_counts.empty(self.counts.true.shape[1], len(self.table))
        theirs = flag_counts.sized(other.counts, len(other.table), other.counts.true.shape[1])
        for c, place in enumerate(places):
            moved.true[ours, place] = theirs.true[chosen, c] * factor
            moved.false[ours, place] = theirs.false[chosen, c] * factor
            moved.examples[place] = theirs.examples[c] * factor
        if sign > 0:
            flag_counts.add(self.counts, moved)
            return
        for array, held in zip(self.counts, moved, strict=True):
            np.subtract(array, held, out=array)
        below = np.flatnonzero(flag_counts.level(self.counts, moved))
        if len(below):
            raise InputError(
                f"group {self.name!r}, field {self.table.names[below[0]]!r}: more would be taken"
                " than there is. Subtract only what was merged before."
            )

    def rescale(self, factor: float) -> None:
        """Multiply all counts by a power of two."""
        flag_counts.rescale(self.counts, factor)

    def set_classes(self, n_classes: int) -> None:
        """Make room for new classes, or forget the last ones; see `GroupState`."""
        self.betas = self._betas(n_classes)
        self.counts = flag_counts.sized(self.counts, 0, n_classes)

    def frozen_copy(self) -> Self:
        """Return a copy that later learning does not touch."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        # Room for all fields of the table: reading a snapshot then changes nothing of it.
        n_classes = self.counts.true.shape[1]
        twin.counts = flag_counts.copy(flag_counts.sized(self.counts, len(self.table), n_classes))
        return twin

    # ---- parts and files -----------------------------------------------------------------------

    def new_part(self) -> FlagPart:
        """Return a part that knows nothing yet."""
        return FlagPart(flag_counts.empty(self.counts.true.shape[1], len(self.table)))

    def as_part(self) -> FlagPart:
        """Return this group's own counts as a part: the same arrays."""
        return FlagPart(self.counts)

    def sum_parts(self, parts: Sequence[GroupPart]) -> None:
        """Make the counts the sum of the parts'."""
        self.counts = flag_counts.empty(self.counts.true.shape[1], len(self.table))
        for part in parts:
            assert isinstance(part, FlagPart)
            flag_counts.add(self.counts, part.counts)

    def live_fields(self) -> NDArray[np.int64]:
        """Return the fields there is something to tell of, in the order of their names."""
        counts = flag_counts.sized(self.counts, len(self.table), self.counts.true.shape[1])
        total = counts.true.sum(axis=1) + counts.false.sum(axis=1)
        is_live = [not self.is_open or total[j] > 0.0 for j in self.table.order]
        return self.table.order[np.array(is_live, dtype=np.bool_)]

    def state_to_dict(self) -> dict[str, Any]:
        """Return the fields, in the order in which the file has them."""
        return {"fields": [self.table.names[j] for j in self.live_fields()]}

    def pack(self, prefix: str) -> tuple[Arrays, NDArray[np.int64]]:  # noqa: ARG002
        """Return no arrays: the fields stand in the header."""
        return {}, self.live_fields()

    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Take up the fields that `state_to_dict` gave."""
        self._set_table(self.table.with_new(state["fields"]))
        self._unpacked = np.array([self.table.places[name] for name in state["fields"]], np.int64)
        self.fit(self.table)

    def unpack_part(self, prefix: str, arrays: Arrays) -> FlagPart:
        """Return the part that `FlagPart.pack` gave."""
        part = self.new_part()
        shape = len(self._unpacked), self.counts.true.shape[1]
        part.counts.true[self._unpacked] = of_shape(arrays, f"{prefix}/true", *shape)
        part.counts.false[self._unpacked] = of_shape(arrays, f"{prefix}/false", *shape)
        part.counts.examples[:] = of_shape(arrays, f"{prefix}/examples", shape[1])
        return part


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags under a Bernoulli likelihood: a true one speaks, and a false one too.

    Parameters
    ----------
    likelihood : Bernoulli
        With its prior: Beta(β₁, β₂), with numbers for each field where fields are named.
    fields : sequence of str, optional
        The fields. By default the group is open: it takes up any field that no other group names,
        when truth values first come under its name.
    absent_is_false : bool
        Read a flag that is missing as false; otherwise it says nothing. An open group knows a flag
        then from the first example where it was true.

    Examples
    --------
    >>> Flags(fields=["has_link", "is_reply"]).absent_is_false
    False
    """

    likelihood: Bernoulli = field(default_factory=Bernoulli)
    fields: Any = None
    absent_is_false: bool = False

    def __post_init__(self) -> None:
        check_kind("Flags.likelihood", self.likelihood, Bernoulli)
        object.__setattr__(self, "fields", check_fields(self.fields))
        if not isinstance(self.absent_is_false, bool):
            raise InputError(
                f"absent_is_false must be True or False. Got {self.absent_is_false!r} instead."
            )

    def start(self, name: str, n_classes: int, hash_key: int) -> FlagsState:  # noqa: ARG002
        """Return the living side of this group, knowing nothing yet; it hashes nothing."""
        return FlagsState(self, name, n_classes)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        return {
            "kind": "flags",
            "likelihood": self.likelihood.to_dict(),
            "fields": None if self.fields is None else list(self.fields),
            "absent_is_false": self.absent_is_false,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        likelihood = Bernoulli.from_dict(values["likelihood"])
        return cls(likelihood, values["fields"], values["absent_is_false"])
