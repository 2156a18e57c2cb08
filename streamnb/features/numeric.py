"""A group of numbers: fields with running moments by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb import columns as matrix
from streamnb.columns import NUMBERS, OneRow
from streamnb.errors import InputError
from streamnb.features import statistics
from streamnb.features.fields import FieldTable, check_fields, to_read
from streamnb.features.protocol import (
    Arrays,
    Floats,
    GroupPart,
    GroupState,
    Places,
    not_learned,
)
from streamnb.kernels import gaussian as kernel
from streamnb.kernels.gaussian import Moments
from streamnb.labels import RowUpdates
from streamnb.likelihoods.gaussian import Gaussian, GaussianEstimator, Posterior


class NumberRows(NamedTuple):
    """Numbers of a call, read and checked."""

    # The fields, in alphabetical order: the one in which all sums over fields are formed.
    names: list[str]
    matrix: Floats  # (n, n_names): nan where a value is missing


class NumberBatch(NamedTuple):
    """Some rows of numbers."""

    x: Floats  # (n, n_columns): nan where a value is missing
    # (n_columns,): the place of each column's field; -1: not known, ignored.
    places: NDArray[np.int64]
    table: FieldTable  # as it was when the rows were read
    names: Any  # the fields of the columns


# Once decay has brought a sum of weights down to this, it is set to nothing: before the squares
# beside it leave the range of float64.
_FORGOTTEN = 1e-200


class NumbersState(GroupState):
    """The state of `Numbers`.

    `table`: field ↔ place.
    """

    counts: Moments  # n, mean and M2 by class and field
    sums_exactly = False  # Chan's sums round; how depends on the order

    def __init__(self, spec: Any, name: str, n_classes: int) -> None:
        self.spec = spec
        self.name = name
        self.is_open = spec.fields is None
        self.table = FieldTable.of(spec.fields or ())
        nothing = statistics.empty(Moments, classes=n_classes, fields=len(self.table))
        self._fit(n_classes, nothing)
        self._set_table(self.table)

    @property
    def _n_classes(self) -> int:
        return len(self.counts.n) - 1

    def _fit(self, n_classes: int, held: Moments) -> None:
        """Keep moments of all fields there are, and an estimator beside them."""
        # Made first: the prior may not fit, and nothing has changed then.
        estimator = self._estimator(n_classes)
        self.counts = statistics.resized(held, classes=n_classes, fields=len(self.table))
        self.estimator = estimator

    def _estimator(self, n_classes: int) -> GaussianEstimator:
        likelihood: Gaussian = self.spec.likelihood
        return likelihood.estimator(len(self.table), n_classes, is_open=self.is_open)

    def _grow_to_table(self) -> None:
        """See to it that there are moments of all fields: reading may be ahead of learning."""
        if self.counts.n.shape[1] < len(self.table):
            self._fit(self._n_classes, self.counts)

    def _set_table(self, table: FieldTable) -> None:
        """Go on with another table of fields; the moments follow when they are next used."""
        self.table = table
        self._names = sorted(table.names)
        self._places = self._places_of(self._names)
        self._one_row = OneRow(NUMBERS, self._names)

    def _places_of(self, names: Sequence[str]) -> NDArray[np.int64]:
        return np.array([self.table.places.get(name, -1) for name in names], dtype=np.int64)

    # ---- fields --------------------------------------------------------------------------------

    @property
    def fields(self) -> Sequence[str]:
        """The fields, as far as they are known."""
        return self.table.names

    def accepts(self, values: Any) -> bool:
        """Tell whether these values are ints or floats."""
        return self.is_open and matrix.accepts(NUMBERS, values)

    def read(self, columns: Mapping[str, Any], n: int) -> NumberRows:
        """Return the group's fields; those of an open one are all the columns it is given."""
        names = sorted(to_read(columns, self.spec.fields, self.table))
        return NumberRows(names, matrix.read_matrix(NUMBERS, columns, names, n))

    # ---- learning and predicting ----------------------------------------------------------------

    def encode(
        self,
        fields: NumberRows,
        begin: int,
        end: int,
        labels: NDArray[np.int32],  # noqa: ARG002 -- what is not learned finds no moments
        *,
        learn: bool,
    ) -> NumberBatch:
        """Return rows `begin` to `end`; to learn, new fields get their places."""
        x = fields.matrix[begin:end]
        if learn and self.is_open:
            table = self.table.with_new(fields.names)
            if table is not self.table:
                self._set_table(table)
        places = self._places if fields.names == self._names else self._places_of(fields.names)
        return NumberBatch(x, places, self.table, fields.names)

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:
        """Tell whether its known fields are all there, plain ints and floats."""
        return self._one_row.has(x)

    def encode_one(self, x: Mapping[str, Any], scratch: Any, *, learn: bool) -> NumberBatch:  # noqa: ARG002
        """Return one example's known fields as `encode` does."""
        return NumberBatch(self._one_row.put(x), self._places, self.table, self._names)

    def run(self, batch: NumberBatch, updates: RowUpdates, out: Floats, *, learn: bool) -> None:
        """Predict each row, then learn it where it says so; see `kernels.gaussian`."""
        self._grow_to_table()
        self.estimator.run(self.counts, batch.x, batch.places, updates, out, learn=learn)

    def learn_part(
        self, part: GroupPart, batch: NumberBatch, updates: RowUpdates, out: Floats
    ) -> None:
        """Predict rows and learn them, in the group's sum and in a part."""
        self.run(batch, updates, out, learn=True)
        part.counts = self.grow(part.counts)
        kernel.learn(part.counts, batch.x, batch.places, updates.labels, updates.weights)

    # ---- unlearning, merging and copies ---------------------------------------------------------

    def moments(self) -> dict[str, Floats]:
        """Return n, mean and M2 by field and class.

        Shape (n_fields, n_classes): under `n`, `mean` and `M2`; n is the sum of weights. Zeros
        where n is 0.
        """
        self._grow_to_table()
        n, mean, _, m2, _ = (array[1:].T.copy() for array in self.counts)
        return {"n": n, "mean": mean, "M2": m2}

    def posterior(self, scale: float) -> Posterior:
        """Return what is known of all fields' means and variances."""
        self._grow_to_table()
        return self.estimator.posterior(self.counts, scale)

    def to_unlearn(
        self, batch: NumberBatch, label: int, weight: float, part: GroupPart | None
    ) -> tuple[NumberBatch, int]:
        """Return the batch itself if its numbers can have been learned; see `GroupState`."""
        held = self.counts if part is None else part.counts
        columns = np.arange(len(batch.names))
        of_class = Moments(*(array[[0, 1 + label]] for array in held))
        tried = statistics.take(of_class, "fields", batch.places)
        labels, weights = np.zeros(1, dtype=np.int32), np.array([-weight])
        misfit = kernel.learn(tried, batch.x, columns, labels, weights)
        if misfit >= 0:
            field, row = batch.names[misfit], batch.places[misfit]
            n = held.n[1 + label, row] if 0 <= row < held.n.shape[1] else 0.0
            what = f"group {self.name!r}, field {field!r}: {float(batch.x[0, misfit])!r}"
            raise not_learned(what, weight, n, " numbers of it")
        return batch, 0

    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's moments by Chan's rule, or take them away; see `GroupState`."""
        columns = other.live_fields()  # after this its moments have all fields
        theirs = statistics.take(other.counts, "fields", columns)
        names = [other.table.names[j] for j in columns]
        self._set_table(self.table.with_new(names))
        self._fit(self._n_classes, self.counts)
        misfit = kernel.add_moments(
            self.counts,
            theirs,
            np.concatenate(([0], 1 + places)).astype(np.int64),
            self._places_of(names),
            sign * factor,
        )
        if misfit >= 0:
            raise InputError(
                f"group {self.name!r}, field {names[misfit]!r}: more numbers would be taken away"
                " than there are. Subtract only what was merged before."
            )

    def set_classes(self, n_classes: int) -> None:
        """Add room for new classes, or remove the last ones; see `GroupState`."""
        self._fit(n_classes, self.counts)

    def frozen_copy(self) -> Self:
        """Return a copy that later learning does not touch."""
        twin = super().frozen_copy()
        twin.estimator = self._estimator(self._n_classes)
        return twin

    def grow(self, counts: Moments) -> Moments:
        """Return moments with room for all fields."""
        return statistics.grown(counts, fields=len(self.table))

    def rescale_counts(self, counts: Moments, factor: float) -> None:
        """Multiply all weights by a power of two, and forget what has none left; means stay."""
        rescale(counts, factor)

    def add_counts(self, counts: Moments, other: Moments) -> None:
        """Add a part's moments by Chan's rule; the first is taken bit for bit."""
        rows, columns = (np.arange(n) for n in other.n.shape)
        kernel.add_moments(counts, other, rows, columns, 1.0)

    # ---- parts and files -----------------------------------------------------------------------

    def sum_parts(self, parts: Sequence[GroupPart]) -> None:
        """Set the moments to the sum of the parts', by Chan's rule in their order."""
        super().sum_parts(parts)
        self._fit(self._n_classes, self.counts)

    def live_fields(self) -> NDArray[np.int64]:
        """Return the places of the fields to be saved.

        Of an open group those that numbers were learned of, in the order of their names: a model
        that learned the same in another order, or unlearned a field, is the same in its file.
        """
        if not self.is_open:
            return np.arange(len(self.table))
        self._grow_to_table()
        seen = self.counts.n[0] > 0.0
        return np.array([j for j in self.table.order if seen[j]], dtype=np.int64)

    def state_to_dict(self) -> dict[str, Any]:
        """Return the fields, in the order in which the file has them."""
        return {"fields": [self.table.names[j] for j in self.live_fields()]}

    def pack(self, prefix: str) -> tuple[Arrays, Places]:  # noqa: ARG002
        """Return no arrays, as the fields are in the header, and the fields to be saved."""
        return {}, {"fields": self.live_fields()}

    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Take up the fields."""
        self._set_table(FieldTable.of(state["fields"]))
        self._fit(self._n_classes, self.counts)
        self._unpacked = {"fields": np.arange(len(self.table))}


def rescale(moments: Moments, factor: float) -> None:
    """Multiply all weights by a power of two; means stay. What is left of nothing is nothing."""
    for scaled in (moments.n, moments.m2, moments.m2_low):
        np.multiply(scaled, factor, out=scaled)
    gone = moments.n < _FORGOTTEN
    for array in moments:
        array[gone] = 0.0


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers under a likelihood.

    Parameters
    ----------
    likelihood : Gaussian
        With its prior.
    fields : sequence of str, optional
        The fields. By default the group is open: it takes up any field that no other group names,
        when an int or float first comes under its name.

    Examples
    --------
    >>> Numbers(fields=["age", "height"]).fields
    ('age', 'height')
    """

    likelihood: Gaussian = field(default_factory=Gaussian)
    fields: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.likelihood, Gaussian):
            raise InputError(
                f"Numbers.likelihood must be a Gaussian. Got {self.likelihood!r} instead."
            )
        object.__setattr__(self, "fields", check_fields(self.fields))

    def start(self, name: str, n_classes: int, hash_key: int) -> NumbersState:  # noqa: ARG002
        """Return the state of a group that has learned nothing."""
        return NumbersState(self, name, n_classes)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        return {
            "kind": "numbers",
            "likelihood": self.likelihood.to_dict(),
            "fields": None if self.fields is None else list(self.fields),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        return cls(Gaussian.from_dict(values["likelihood"]), values["fields"])
