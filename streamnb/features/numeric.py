"""One log's moments of a group of numbers, and what a batch of numbers is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb import columns as matrix
from streamnb.columns import NUMBERS, OneRow
from streamnb.errors import InputError
from streamnb.features import moments
from streamnb.features.fields import FieldTable, check_fields, to_read
from streamnb.features.protocol import Arrays, Floats, GroupPart, GroupState
from streamnb.kernels import gaussian as kernel
from streamnb.kernels.gaussian import Moments
from streamnb.labels import RowUpdates
from streamnb.likelihoods.gaussian import Gaussian, GaussianEstimator, Posterior


class NumberRows(NamedTuple):
    """Numbers of a call, read and checked.

    Attributes
    ----------
    names : list of str
        The fields, in alphabetical order: the one in which all sums over fields are formed.
    matrix : ndarray of shape (n, n_names), float64
        nan where a value is missing.
    """

    names: list[str]
    matrix: Floats


class NumberBatch(NamedTuple):
    """Some rows of numbers.

    Attributes
    ----------
    x : ndarray of shape (n, n_columns), float64
        nan where a value is missing.
    places : ndarray of shape (n_columns,), int64
        The place of each column's field; -1: not known, ignored.
    table : FieldTable
        As it was when the rows were read.
    names : sequence of str
        The fields of the columns.
    """

    x: Floats
    places: NDArray[np.int64]
    table: FieldTable
    names: Any


class NumbersPart(GroupPart):
    """One log's own moments.

    Attributes
    ----------
    moments : Moments
        By the group's fields, as far as there were any when it last learned.
    """

    def __init__(self, held: Moments) -> None:
        self.moments = held

    def learn(self, group: Any, batch: NumberBatch, updates: RowUpdates, out: Floats) -> None:
        """Have the group judge rows to `out` and learn them; learn them here as well."""
        group.run(batch, updates, out, learn=True)
        self.moments = moments.fitted(self.moments, self._n_classes, len(batch.table))
        kernel.learn(self.moments, batch.x, batch.places, updates.labels, updates.weights)

    @property
    def _n_classes(self) -> int:
        return len(self.moments.n) - 1

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew, or forget the last ones."""
        self.moments = moments.fitted(self.moments, n_classes, self.moments.n.shape[1])

    def frozen_copy(self, group: Any) -> Self:  # noqa: ARG002 -- others share a vocabulary with it
        """Return a copy that later learning does not touch."""
        return type(self)(moments.copy(self.moments))

    def rescale(self, factor: float) -> None:
        """Multiply all weights by a power of two."""
        moments.rescale(self.moments, factor)

    def pack(self, prefix: str, shared: NDArray[np.int64]) -> Arrays:
        """Return the moments of the columns `shared`, which the group has something to tell of."""
        return moments.pack(prefix, self.moments, shared)


class NumbersState(GroupState):
    """The living side of `Numbers`.

    Parameters
    ----------
    spec : Numbers
    name : str
    n_classes : int

    Attributes
    ----------
    table : FieldTable
        Field ↔ place.
    held : Moments
        n, mean and M2 by class and field.
    """

    sums_exactly = False  # Chan's sums round; how depends on the order

    def __init__(self, spec: Any, name: str, n_classes: int) -> None:
        self.spec = spec
        self.name = name
        self.is_open = spec.fields is None
        self.table = FieldTable.of(spec.fields or ())
        self._fit(n_classes, moments.empty(n_classes, len(self.table)))
        self._take_up(self.table)

    @property
    def _n_classes(self) -> int:
        return len(self.held.n) - 1

    def _fit(self, n_classes: int, held: Moments) -> None:
        """Keep moments of all fields there are, and an estimator beside them."""
        n_fields = len(self.table)
        # Made first: the prior may not fit, and nothing has changed then.
        estimator = self.spec.likelihood.estimator(n_fields, n_classes, is_open=self.is_open)
        self.held = moments.fitted(held, n_classes, n_fields)
        self.estimator: GaussianEstimator = estimator

    def _follow(self) -> None:
        """See to it that there are moments of all fields: reading may be ahead of learning."""
        if self.held.n.shape[1] < len(self.table):
            self._fit(self._n_classes, self.held)

    def _take_up(self, table: FieldTable) -> None:
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

    def takes(self, values: Any) -> bool:
        """Tell whether these values are ints or floats."""
        return self.is_open and matrix.takes(NUMBERS, values)

    def read(self, columns: Mapping[str, Any], n: int) -> NumberRows:
        """Return the group's fields; those of an open one are all the columns it is given."""
        names = sorted(to_read(columns, self.spec.fields, self.table))
        return NumberRows(names, matrix.read_matrix(NUMBERS, columns, names, n))

    # ---- learning and judging ------------------------------------------------------------------

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
                self._take_up(table)
        places = self._places if fields.names == self._names else self._places_of(fields.names)
        return NumberBatch(x, places, self.table, fields.names)

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:
        """Tell whether its known fields are all there, plain ints and floats."""
        return self._one_row.has(x)

    def encode_one(self, x: Mapping[str, Any], desk: Any, *, learn: bool) -> NumberBatch:  # noqa: ARG002
        """Return one example's known fields as `encode` does."""
        return NumberBatch(self._one_row.put(x), self._places, self.table, self._names)

    def run(self, batch: NumberBatch, updates: RowUpdates, out: Floats, *, learn: bool) -> None:
        """Judge each row, then learn it where it says so; see `kernels.gaussian`."""
        self._follow()
        self.estimator.run(self.held, batch.x, batch.places, updates, out, learn=learn)

    # ---- what the state can do -----------------------------------------------------------------

    def moments(self) -> dict[str, Floats]:
        """Return n, mean and M2 by field and class.

        Returns
        -------
        dict of str to ndarray of shape (n_fields, n_classes), float64
            Under `n`, `mean` and `M2`; n is the sum of weights. Zeros where n is 0.
        """
        self._follow()
        n, mean, _, m2, _ = (array[1:].T.copy() for array in self.held)
        return {"n": n, "mean": mean, "M2": m2}

    def posterior(self, scale: float) -> Posterior:
        """Return what is known of all fields' means and variances."""
        self._follow()
        return self.estimator.posterior(self.held, scale)

    def to_unlearn(
        self, batch: NumberBatch, label: int, weight: float, part: GroupPart | None
    ) -> tuple[NumberBatch, int]:
        """Return the batch itself if its numbers can have been learned; see `GroupState`."""
        held = part.moments if isinstance(part, NumbersPart) else self.held
        columns = np.arange(len(batch.names))
        tried = moments.take(held, np.array([0, 1 + label]), batch.places)
        labels, weights = np.zeros(1, dtype=np.int32), np.array([-weight])
        misfit = kernel.learn(tried, batch.x, columns, labels, weights)
        if misfit >= 0:
            field, row = batch.names[misfit], batch.places[misfit]
            n = held.n[1 + label, row] if 0 <= row < held.n.shape[1] else 0.0
            raise InputError(
                f"group {self.name!r}, field {field!r}: {float(batch.x[0, misfit])!r} cannot be"
                f" unlearned {weight:g} times, as its class holds {n:g} numbers of it. Unlearn what"
                " was learned, once, with its own class."
            )
        return batch, 0

    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's moments by Chan's rule, or take them away; see `GroupState`."""
        columns = other.live_fields()  # after this its moments have all fields
        theirs = moments.take(other.held, np.arange(len(other.held.n)), columns)
        names = [other.table.names[j] for j in columns]
        self._take_up(self.table.with_new(names))
        self._fit(self._n_classes, self.held)
        misfit = kernel.add_moments(
            self.held,
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

    def rescale(self, factor: float) -> None:
        """Multiply all weights by a power of two."""
        moments.rescale(self.held, factor)

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew; see `GroupState`."""
        self._fit(n_classes, self.held)

    def frozen_copy(self) -> Self:
        """Return a copy that later learning does not touch."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._fit(self._n_classes, moments.copy(self.held))
        return twin

    # ---- parts and files -----------------------------------------------------------------------

    def new_part(self) -> NumbersPart:
        """Return a part that knows nothing yet."""
        return NumbersPart(moments.empty(self._n_classes, len(self.table)))

    def as_part(self) -> NumbersPart:
        """Return this group's own moments as a part: the same arrays."""
        return NumbersPart(self.held)

    def sum_parts(self, parts: Sequence[GroupPart]) -> None:
        """Make the moments the sum of the parts', by Chan's rule in their order.

        One part alone is taken bit for bit.
        """
        self._fit(self._n_classes, moments.empty(self._n_classes, len(self.table)))
        for part in parts:
            assert isinstance(part, NumbersPart)
            rows, columns = (np.arange(n) for n in part.moments.n.shape)
            kernel.add_moments(self.held, part.moments, rows, columns, 1.0)

    def live_fields(self) -> NDArray[np.int64]:
        """Return the places of the fields to be saved.

        Of an open group those that numbers were learned of, in the order of their names: a model
        that learned the same in another order, or unlearned a field, is the same in its file.
        """
        if not self.is_open:
            return np.arange(len(self.table))
        self._follow()
        seen = self.held.n[0] > 0.0
        return np.array([j for j in self.table.order if seen[j]], dtype=np.int64)

    def state_to_dict(self) -> dict[str, Any]:
        """Return the fields, in the order in which the file has them."""
        return {"fields": [self.table.names[j] for j in self.live_fields()]}

    def pack(self, prefix: str) -> tuple[Arrays, NDArray[np.int64]]:  # noqa: ARG002
        """Return no arrays, as all of them are the parts', and the fields these are to pack."""
        return {}, self.live_fields()

    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Take up the fields."""
        self._take_up(FieldTable.of(state["fields"]))
        self._fit(self._n_classes, self.held)

    def unpack_part(self, prefix: str, arrays: Arrays) -> NumbersPart:
        """Return the part that `NumbersPart.pack` gave."""
        shape = len(self.held.n), len(self.table)
        return NumbersPart(moments.unpack(prefix, arrays, shape))


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
        """Return the living side of this group, knowing nothing yet."""
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
