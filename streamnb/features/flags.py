"""A group of flags: fields that are true or false, counted by class.

A flag is a category of two fixed values, false and true, so it needs no table of values, no bound
and no text: it is read as a number, 1 or 0, by the code that numbers share (`FieldsState`). Kernel
and counts are its own: an absent flag may count as false, which is N_c − N_jc and not counted, and
Beta(β₁, β₂) may differ between true and false. As categories the same counts would be divided by
other sums, and answers would change in their last digit.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import FLAGS, first_present
from streamnb.errors import InputError, check_kind
from streamnb.features import statistics
from streamnb.features.fields import FieldBatch, FieldRows, FieldsState, check_fields
from streamnb.features.protocol import Floats, GroupPart, plain_values
from streamnb.features.statistics import at_row, check_examples, left_of, not_learned, short_entries
from streamnb.kernels import categorical as kernel
from streamnb.kernels.categorical import Betas, FlagCounts
from streamnb.kernels.layout import RowUpdates
from streamnb.likelihoods.bernoulli import Bernoulli


class FlagsState(FieldsState):
    """The state of `Flags`; `betas` is the prior."""

    counts: FlagCounts  # N_jc, n_jc − N_jc and N_c, by the table's places
    kind = FLAGS

    def __init__(self, spec: Any, name: str, n_classes: int) -> None:
        super().__init__(spec, name)
        self.may_lack_fields = spec.absent_is_false
        self.betas = self._betas(n_classes)
        self.counts = statistics.empty(FlagCounts, classes=n_classes, fields=len(self.table))

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

    def fit_to_table(self) -> None:
        """Make room in the counts for all flags of the table."""
        self.counts = self.grow(self.counts)

    def accepts(self, values: Any) -> bool:
        """Return whether the first of these values that is there is a truth value."""
        if not self.is_open or isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            return False
        return isinstance(first_present(values), bool | np.bool_)

    # ---- learning and predicting ----------------------------------------------------------------

    def encode(
        self, fields: FieldRows, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> FieldBatch:
        """Return rows `begin` to `end`; see `FieldsState`."""
        batch = super().encode(fields, begin, end, labels, learn=learn)
        return self._with_absent(batch) if self.spec.absent_is_false else batch

    def _with_absent(self, batch: FieldBatch) -> FieldBatch:
        """Return a batch with a column for each known flag: one without was false.

        Done batch by batch: for all rows of a call at once, such a matrix might fill the memory.
        """
        is_known = bool((batch.places >= 0).all())
        names = self._names if is_known else sorted({*batch.names, *self._names})
        if len(names) == len(batch.names):
            return batch
        columns = {name: t for t, name in enumerate(names)}
        x = np.full((len(batch.x), len(names)), np.nan)
        x[:, [columns[name] for name in batch.names]] = batch.x
        places = self._places if is_known else self._places_of(names)
        return FieldBatch(x, places, batch.table, names)

    def says(self, x: Floats) -> NDArray[np.bool_]:
        """Return which flags there is something to learn of.

        A false one is what an absent one is, too, if the group says so: the examples count it.
        """
        return x == 1.0 if self.spec.absent_is_false else super().says(x)

    def run(self, batch: FieldBatch, updates: RowUpdates, out: Floats, *, learn: bool) -> None:
        """Predict each row, then learn it if it has a label."""
        self.fit_to_table()
        self.run_counts(self.counts, batch, updates, out, learn=learn)

    def run_counts(
        self,
        counts: FlagCounts,
        batch: FieldBatch,
        updates: RowUpdates,
        out: Floats,
        *,
        learn: bool,
    ) -> None:
        """Predict rows by some counts, and learn those with a label into them."""
        products = np.empty((counts.true.shape[1], 2))
        kernel.flags(counts, self.betas, batch.x, batch.places, updates, learn, products, out)

    def learn_counts(self, counts: FlagCounts, batch: FieldBatch, updates: RowUpdates) -> None:
        """Learn the rows with a label into some counts."""
        kernel.learn_flags(counts, self.betas, batch.x, batch.places, updates)

    # ---- unlearning, merging and copies ---------------------------------------------------------

    def to_unlearn(
        self, batch: FieldBatch, labels: NDArray[np.int32], weights: Floats, part: GroupPart | None
    ) -> tuple[FieldBatch, int]:
        """Return the batch: flags never leave, so that all of it can be taken back or nothing."""
        counts = self.grow(self.counts if part is None else part.counts)
        says = ~np.isnan(batch.x) & ((batch.x != 0.0) | (not self.spec.absent_is_false))
        of_row, t = np.nonzero(says)
        values, places = batch.x[of_row, t], batch.places[t]
        # The false ones of all fields stand below the true ones.
        columns = np.where(places < 0, -1, places + len(counts.true) * (values == 0.0))
        held = np.concatenate((counts.true, counts.false))
        short, before = short_entries(
            held, columns.astype(np.int32), labels[of_row], weights[of_row], decays=self.decays
        )
        for at in np.flatnonzero(short)[:1].tolist():
            row = int(of_row[at])
            where = f"{at_row(row, len(labels))}, field {batch.names[t[at]]!r}"
            what = f"group {self.name!r}{where}: {bool(values[at])}"
            raise not_learned(what, float(weights[row]), float(before[at]))
        what, decays = f"group {self.name!r}", self.decays
        check_examples(what, labels, weights, counts.examples, decays=decays)
        return batch, 0

    def merge_counts(
        self,
        theirs: FlagCounts,
        names: list[str],
        places: NDArray[np.int64],
        factor: float,
        sign: int,
    ) -> None:
        """Add counts of the fields `names`, or take them away; see `FieldsState.merge`."""
        entries = np.ix_(self._places_of(names), places)
        change = statistics.empty(
            FlagCounts, classes=self.counts.true.shape[1], fields=len(self.table)
        )
        change.true[entries] = theirs.true * factor
        change.false[entries] = theirs.false * factor
        change.examples[places] = theirs.examples * factor
        if sign > 0:
            statistics.add(self.counts, change)
            return
        left = (
            left_of(*both, decays=self.decays) for both in zip(self.counts, change, strict=True)
        )
        self.counts = FlagCounts(*left)
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

    def live_fields(self) -> NDArray[np.int64]:
        """Return the places of the fields to be saved, those named as well; see `FieldsState`."""
        counts = self.grow(self.counts)
        is_live = counts.true.any(axis=1) | counts.false.any(axis=1) | (not self.is_open)
        live: NDArray[np.int64] = self.table.order[is_live[self.table.order]]
        return live


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
        return {"kind": "flags"} | plain_values(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        likelihood = Bernoulli.from_dict(values["likelihood"])
        return cls(likelihood, values["fields"], values["absent_is_false"])
