"""A group of numbers: fields with running moments by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import accepts
from streamnb.errors import InputError
from streamnb.features import statistics
from streamnb.features.fields import FieldBatch, FieldsState, check_fields
from streamnb.features.protocol import Floats, GroupPart, plain_values
from streamnb.features.statistics import at_row, not_learned
from streamnb.kernels import gaussian as kernel
from streamnb.kernels.gaussian import Moments
from streamnb.kernels.layout import RowUpdates
from streamnb.likelihoods import NUMBER_FAMILIES, number_likelihood_from_dict
from streamnb.likelihoods.base import NumberEstimator, NumberLikelihood
from streamnb.likelihoods.gaussian import Gaussian, GaussianEstimator

# Once decay has brought a sum of weights down to this, it is set to nothing: before the squares
# beside it leave the range of float64.
_FORGOTTEN = 1e-200


class NumbersState(FieldsState):
    """The state of `Numbers`."""

    counts: Moments  # n, mean and M2 by class and field
    sums_exactly = False  # Chan's sums round; how depends on the order

    def __init__(self, spec: Numbers, name: str, n_classes: int) -> None:
        self.kind = spec.likelihood.kind
        super().__init__(spec, name)
        nothing = statistics.empty(Moments, classes=n_classes, fields=len(self.table))
        self._fit(n_classes, nothing)

    @property
    def _n_classes(self) -> int:
        return len(self.counts.n) - 1

    def _fit(self, n_classes: int, held: Moments) -> None:
        """Keep moments of all fields there are, and an estimator beside them."""
        # Made first: the prior may not fit, and nothing has changed then.
        estimator = self._estimator(n_classes)
        self.counts = statistics.resized(held, classes=n_classes, fields=len(self.table))
        self.estimator = estimator

    def _estimator(self, n_classes: int) -> NumberEstimator:
        likelihood: NumberLikelihood = self.spec.likelihood
        return likelihood.estimator(len(self.table), n_classes, is_open=self.is_open)

    def fit_to_table(self) -> None:
        """Make room in the moments, and make an estimator, for all fields of the table."""
        if self.counts.n.shape[1] < len(self.table):
            self._fit(self._n_classes, self.counts)

    def accepts(self, values: Any) -> bool:
        """Return whether these values are ints or floats."""
        return self.is_open and accepts(self.kind, values)

    def run(self, batch: FieldBatch, updates: RowUpdates, out: Floats, *, learn: bool) -> None:
        """Predict each row, then learn it if it has a label; see `kernels.gaussian`."""
        self.fit_to_table()
        self.estimator.run(self.counts, batch.x, batch.places, updates, out, learn=learn)

    def mark_point_masses(
        self, batch: FieldBatch, updates: RowUpdates, is_point: NDArray[np.bool_]
    ) -> None:
        """Mark the rows that have a number without a variance; see `GroupState`.

        A copy of the moments learns the rows. Whether a variance is zero changes a few times at
        most: rows among which it does not are marked at once.
        """
        held, estimator = statistics.take(self.fitted(), "fields", batch.places), self.estimator
        some = np.flatnonzero((batch.places >= 0) & np.any(held.m2 == 0.0, axis=0))
        if not len(some) or not isinstance(estimator, GaussianEstimator):
            return
        held = statistics.take(held, "fields", some)
        held = statistics.resized(held, classes=is_point.shape[1])  # the last ones have no value
        x, columns = np.ascontiguousarray(batch.x[:, some]), np.arange(len(some))
        begin, n = 0, len(x)
        size = n
        while begin < n:
            end = min(begin + size, n)
            after = statistics.copy(held)
            kernel.learn(after, x[begin:end], columns, updates.rows(begin, end))
            if size > 1 and not _vary_alike(held, after):
                size //= 2
                continue
            points = estimator.point_masses(held)
            is_point[begin:end] |= ~np.isnan(x[begin:end]) @ points.T
            held, begin, size = after, end, 2 * size

    def run_counts(
        self, counts: Moments, batch: FieldBatch, updates: RowUpdates, out: Floats, *, learn: bool
    ) -> None:
        """Predict rows by some moments, and learn those with a label into them."""
        self.estimator.run(counts, batch.x, batch.places, updates, out, learn=learn)

    def learn_counts(self, counts: Moments, batch: FieldBatch, updates: RowUpdates) -> None:
        """Learn the rows with a label into some moments."""
        kernel.learn(counts, batch.x, batch.places, updates)

    # ---- unlearning, merging and copies ---------------------------------------------------------

    def moments(self) -> dict[str, Floats]:
        """Return n, mean and M2 by field and class.

        Shape (n_fields, n_classes): under `n`, `mean` and `M2`; n is the sum of weights. Zeros
        where n is 0.
        """
        n, mean, _, m2, _ = (array[1:].T.copy() for array in self.fitted())
        return {"n": n, "mean": mean, "M2": m2}

    def fitted(self) -> Moments:
        """Return the moments of all fields of the table, for the estimator."""
        self.fit_to_table()
        return self.counts

    def to_unlearn(
        self, batch: FieldBatch, labels: NDArray[np.int32], weights: Floats, part: GroupPart | None
    ) -> tuple[FieldBatch, int]:
        """Return the batch itself if its numbers can have been learned; see `GroupState`."""
        held = self.grow(self.counts if part is None else part.counts)
        columns = np.arange(len(batch.names))
        tried = statistics.take(held, "fields", batch.places)
        ones = np.ones(len(labels))
        updates = RowUpdates(labels, -weights, ones, ones, ones, self.decays)
        if kernel.learn(tried, batch.x, columns, updates) < 0:
            return batch, 0
        tried = statistics.take(held, "fields", batch.places)
        for row in range(len(labels)):  # once more, to know of which row it is
            c = 1 + labels[row]
            before = tried.n[c].copy()
            misfit = kernel.learn(
                tried, batch.x[row : row + 1], columns, updates.rows(row, row + 1)
            )
            if misfit >= 0:
                break
        where = f"{at_row(row, len(labels))}, field {batch.names[misfit]!r}"
        what = f"group {self.name!r}{where}: {float(batch.x[row, misfit])!r}"
        n = float(before[misfit]) if batch.places[misfit] >= 0 else 0.0
        raise not_learned(what, float(weights[row]), n, " numbers of it")

    def merge_counts(
        self, theirs: Moments, names: list[str], places: NDArray[np.int64], factor: float, sign: int
    ) -> None:
        """Add moments of the fields `names`, or take them away; see `FieldsState.merge`."""
        rows = np.concatenate(([0], 1 + places)).astype(np.int64)
        columns = self._places_of(names)
        misfit = kernel.add_moments(self.counts, theirs, rows, columns, sign * factor, self.decays)
        if misfit >= 0:
            raise InputError(
                f"group {self.name!r}, field {names[misfit]!r}: more numbers would be taken away"
                " than there are. Subtract only what was merged before."
            )

    def set_classes(self, n_classes: int) -> None:
        """Add room for new classes, or remove the last ones; see `GroupState`."""
        self._fit(n_classes, self.counts)

    def frozen_table(self) -> Self:
        """Return a copy over the same table as it is now; see `GroupState`."""
        twin = super().frozen_table()
        twin.estimator = self._estimator(self._n_classes)
        return twin

    def rescale_counts(self, counts: Moments, factor: float) -> None:
        """Multiply all weights by a power of two, and forget what has none left; means stay."""
        rescale(counts, factor)

    def add_counts(self, counts: Moments, other: Moments) -> None:
        """Add a part's moments by Chan's rule; the first is taken bit for bit."""
        rows, columns = (np.arange(n) for n in other.n.shape)
        kernel.add_moments(counts, other, rows, columns, 1.0, self.decays)

    # ---- parts and files -----------------------------------------------------------------------

    def sum_parts(self, parts: Sequence[GroupPart]) -> None:
        """Set the moments to the sum of the parts', by Chan's rule in their order."""
        super().sum_parts(parts)
        self._fit(self._n_classes, self.counts)

    def live_fields(self) -> NDArray[np.int64]:
        """Return the places of the fields to be saved; see `FieldsState`."""
        if not self.is_open:
            return np.arange(len(self.table))
        seen = self.grow(self.counts).n[0] > 0.0
        live: NDArray[np.int64] = self.table.order[seen[self.table.order]]
        return live


def _vary_alike(held: Moments, other: Moments) -> bool:
    """Return whether the same classes and fields have a value, and the same ones more than one."""
    return all(
        np.array_equal(a > 0.0, b > 0.0) for a, b in ((held.n, other.n), (held.m2, other.m2))
    )


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
    likelihood : NumberLikelihood
        With its prior; so far `Gaussian` is the only one.
    fields : sequence of str, optional
        The fields. By default the group is open: it takes up any field that no other group names,
        when an int or float first comes under its name.

    Examples
    --------
    >>> Numbers(fields=["age", "height"]).fields
    ('age', 'height')
    """

    likelihood: NumberLikelihood = field(default_factory=Gaussian)
    fields: Any = None

    def __post_init__(self) -> None:
        if type(self.likelihood) not in NUMBER_FAMILIES.values():
            names = " or ".join(f"a {family.__name__}" for family in NUMBER_FAMILIES.values())
            raise InputError(
                f"Numbers.likelihood must be {names}. Got {self.likelihood!r} instead."
            )
        object.__setattr__(self, "fields", check_fields(self.fields))

    def start(self, name: str, n_classes: int, hash_key: int) -> NumbersState:  # noqa: ARG002
        """Return the state of a group that has learned nothing."""
        return NumbersState(self, name, n_classes)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        return {"kind": "numbers"} | plain_values(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        return cls(number_likelihood_from_dict(values["likelihood"]), values["fields"])
