"""A group of flags: fields that are true or false, counted by class.

Flags share fields, statistics, parts and files with categories of two values. What stays apart is
the kernel with its prior and its two counts a field: an absent flag may count as false, which is
N_c − N_jc and not counted, and Beta(β₁, β₂) may differ between true and false. As categories the
same counts would be divided by other sums, and answers would change in their last digit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import FLAGS, OneRow, first_present, read_matrix
from streamnb.errors import InputError, check_kind
from streamnb.features import statistics
from streamnb.features.fields import FieldTable, check_fields, to_read
from streamnb.features.protocol import (
    Arrays,
    Floats,
    GroupPart,
    GroupState,
    Places,
    check_examples,
    not_learned,
)
from streamnb.features.statistics import left_of
from streamnb.kernels.flags import Betas, FlagCounts, flags
from streamnb.kernels.posterior import DUST
from streamnb.labels import RowUpdates
from streamnb.likelihoods.bernoulli import Bernoulli


@dataclass(frozen=True, slots=True)
class FlagColumns:
    """The flags of some examples."""

    names: list[str]
    values: Floats  # (n, n_names): 1, 0, or nan where a flag is missing


class FlagBatch(NamedTuple):
    """Rows of flags."""

    values: Floats  # (n, n_fields): 1, 0, or nan where a flag is missing
    fields: FieldTable  # as they were when the rows were read
    unknown: dict[str, float]  # flags of the first row that are there and that nobody knows


class FlagsState(GroupState):
    """The state of `Flags`.

    `betas`: the prior.
    """

    counts: FlagCounts  # N_jc, n_jc − N_jc and N_c, by the table's places

    def __init__(self, spec: Any, name: str, n_classes: int) -> None:
        self.spec = spec
        self.name = name
        self.is_open = spec.fields is None
        self.may_lack_fields = spec.absent_is_false
        self._set_table(FieldTable.of(spec.fields or ()))
        self.betas = self._betas(n_classes)
        self.counts = statistics.empty(FlagCounts, classes=n_classes, fields=len(self.table))

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

    def accepts(self, values: Any) -> bool:
        """Tell whether the first of these values that is there is a truth value."""
        if not self.is_open or isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            return False
        return isinstance(first_present(values), bool | np.bool_)

    def read(self, columns: Mapping[str, Any], n: int) -> FlagColumns:
        """Return the group's fields; those of an open one are all the columns it is given."""
        names = to_read(columns, self.spec.fields, self.table)
        return FlagColumns(names, read_matrix(FLAGS, columns, names, n))

    # ---- learning and predicting ----------------------------------------------------------------

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

    def encode_one(self, x: Mapping[str, Any], scratch: Any, *, learn: bool) -> FlagBatch:  # noqa: ARG002
        """Return one example's known fields as `encode` does."""
        return FlagBatch(self._one_row.put(x), self.table, {})

    def grow(self, counts: FlagCounts) -> FlagCounts:
        """Return counts with room for all fields."""
        return statistics.grown(counts, fields=len(self.table))

    def run(self, batch: FlagBatch, updates: RowUpdates, out: Floats, *, learn: bool) -> None:
        """Predict each row, then learn it if it has a label."""
        if len(self.counts.true) < len(batch.fields):
            self.counts = self.grow(self.counts)
        self._run_kernel(self.counts, batch, updates, out, predict=True, learn=learn)

    def learn_part(
        self, part: GroupPart, batch: FlagBatch, updates: RowUpdates, out: Floats
    ) -> None:
        """Predict rows and learn them, in the group's sum and in a part."""
        self.run(batch, updates, out, learn=True)
        part.counts = self.grow(part.counts)
        self._run_kernel(part.counts, batch, updates, out, predict=False, learn=True)

    def _run_kernel(
        self,
        counts: FlagCounts,
        batch: FlagBatch,
        updates: RowUpdates,
        out: Floats,
        *,
        predict: bool,
        learn: bool,
    ) -> None:
        order, products = batch.fields.order, np.empty((counts.true.shape[1], 2))
        flags(counts, self.betas, order, batch.values, *updates, predict, learn, products, out)

    # ---- unlearning, merging and copies ---------------------------------------------------------

    def to_unlearn(
        self, batch: FlagBatch, label: int, weight: float, part: GroupPart | None
    ) -> tuple[FlagBatch, int]:
        """Return the batch: flags never leave, so that all of it can be taken back or nothing."""
        counts = self.counts if part is None else part.counts
        for j, name in enumerate(batch.fields.names):
            value = batch.values[0, j]
            if np.isnan(value) or (value == 0.0 and self.spec.absent_is_false):
                continue
            array = counts.true if value else counts.false
            self._check(name, value, array[j, label] if j < len(array) else 0.0, weight)
        for name, value in batch.unknown.items():
            if value or not self.spec.absent_is_false:
                self._check(name, value, 0.0, weight)
        check_examples(self.name, weight, float(counts.examples[label]))
        return batch, 0

    def _check(self, field: str, value: float, held: float, weight: float) -> None:
        if held < weight * (1.0 - DUST):
            what = f"group {self.name!r}, field {field!r}: {bool(value)}"
            raise not_learned(what, weight, held)

    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's counts, flag by flag, or take them away; see `GroupState`."""
        chosen = other.live_fields()
        names = [other.table.names[j] for j in chosen]
        self._set_table(self.table.with_new(names))
        self.counts = self.grow(self.counts)
        ours = np.array([self.table.places[name] for name in names], dtype=np.int64)
        n_classes = self.counts.true.shape[1]
        moved = statistics.empty(FlagCounts, classes=n_classes, fields=len(self.table))
        theirs = other.grow(other.counts)
        moved.true[np.ix_(ours, places)] = theirs.true[chosen] * factor
        moved.false[np.ix_(ours, places)] = theirs.false[chosen] * factor
        moved.examples[places] = theirs.examples * factor
        if sign > 0:
            statistics.add(self.counts, moved)
            return
        self.counts = FlagCounts(*map(left_of, self.counts, moved))
        lowest = np.minimum(self.counts.true, self.counts.false).min(axis=1, initial=0.0)
        below = np.flatnonzero(np.minimum(lowest, self.counts.examples.min(initial=0.0)) < 0.0)
        if len(below):
            raise InputError(
                f"group {self.name!r}, field {self.table.names[below[0]]!r}: more would be taken"
                " than there is. Subtract only what was merged before."
            )

    def set_classes(self, n_classes: int) -> None:
        """Add room for new classes, or remove the last ones; see `GroupState`."""
        self.betas = self._betas(n_classes)
        self.counts = statistics.resized(self.counts, classes=n_classes)

    # ---- parts and files -----------------------------------------------------------------------

    def live_fields(self) -> NDArray[np.int64]:
        """Return the fields to be saved, in the order of their names: named, or with a count."""
        counts = self.grow(self.counts)
        total = counts.true.sum(axis=1) + counts.false.sum(axis=1)
        is_live = [not self.is_open or total[j] > 0.0 for j in self.table.order]
        return self.table.order[np.array(is_live, dtype=np.bool_)]

    def state_to_dict(self) -> dict[str, Any]:
        """Return the fields, in the order in which the file has them."""
        return {"fields": [self.table.names[j] for j in self.live_fields()]}

    def pack(self, prefix: str) -> tuple[Arrays, Places]:  # noqa: ARG002
        """Return no arrays, as the fields are in the header, and the fields to be saved."""
        return {}, {"fields": self.live_fields()}

    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Take up the fields that `state_to_dict` gave."""
        names = state["fields"]
        self._set_table(self.table.with_new(names))
        self._unpacked = {"fields": np.array([self.table.places[j] for j in names], np.int64)}
        self.counts = self.grow(self.counts)


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
        """Return the state of a group that has learned nothing; it hashes nothing."""
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
