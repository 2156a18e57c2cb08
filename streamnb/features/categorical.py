"""A group of categories: each of its fields has one of several values, and counts by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_kind
from streamnb.features import statistics
from streamnb.features.category_values import (
    Bins,
    LiveValues,
    ValueColumns,
    ValueTable,
    are_categories,
    bin_texts,
    binned_column,
    check_bins,
    pack_table,
    unpack_table,
    value_column,
    value_text,
)
from streamnb.features.fields import FieldTable, check_fields, check_max, check_saved, to_read
from streamnb.features.protocol import (
    ExampleScratch,
    Floats,
    GroupPart,
    GroupState,
    Places,
    count_within_bound,
    learn_within_bound,
    plain_values,
    values_fit,
)
from streamnb.features.statistics import (
    UNBOUNDED,
    Arrays,
    at_row,
    kept,
    left_of,
    not_learned,
    short_entries,
)
from streamnb.kernels import counting
from streamnb.kernels.categorical import MISSING, Alphas, ValueCounts, categorical
from streamnb.kernels.layout import RowUpdates, RunOptions
from streamnb.likelihoods.multinomial import Categorical


class CategoryBatch(NamedTuple):
    """Rows of categories as columns of the group's vocabulary."""

    # (n, n_fields): -1 where a value was never seen, -2 where there is none.
    columns: NDArray[np.int32]
    fields: FieldTable  # as they were when the rows were looked up
    source: ValueColumns | None = None  # what was read, to name a value in an error
    begin: int = 0  # the first row's place there

    def unknown(self) -> list[tuple[int, str]]:
        """Return row and field of each value in a field that the group does not know."""
        if self.source is None:
            return []
        names = [name for name in self.source.columns if name not in self.fields.places]
        return [
            (row, name)
            for name in names
            for row in range(len(self.columns))
            if self.source.text(name, self.begin + row) is not None
        ]

    def shown(self, name: str, row: int) -> str:
        """Return a row's value of a field, for an error."""
        value = self.source.text(name, self.begin + row) if self.source else None
        return "its value" if value is None else repr(value)


_LOOSE = 1024  # so many columns at zero are no reason for a new table


class CategoriesState(GroupState):
    """The state of `Categories`.

    `hash_key`: 128 bits. `table`: field and value → column. `alphas`: the prior, for the fields
    that the counts have room for. `n_values_max`: the bound that learning keeps to.
    """

    counts: ValueCounts  # N_jvc, N_jc and e_j
    one_may_lack_fields = True
    can_be_weighted = True

    def __init__(self, spec: Any, name: str, n_classes: int, hash_key: int) -> None:
        self.spec = spec
        self.name = name
        self.is_open = spec.fields is None
        self.n_values_max = spec.max_values
        names = [field for field, _ in spec.values] if self.is_open else spec.fields
        self.table = ValueTable(names, spec.values, hash_key)
        self.alphas = self._alphas(self.table.fields, n_classes)
        if self.is_open and len(self.alphas.by_value) > 1:
            raise InputError(
                f"group {name!r}: a prior with numbers for each value needs one field that is named"
                " and whose values are declared."
            )
        self.counts = statistics.empty(ValueCounts, classes=n_classes, columns=0, fields=0)
        self.counts = self.grow(self.counts)

    def _alphas(self, fields: FieldTable, n_classes: int) -> Alphas:
        alphas: Alphas = self.spec.likelihood.alphas(self.table.declared(fields), n_classes)
        return alphas

    # ---- fields --------------------------------------------------------------------------------

    @property
    def fields(self) -> Sequence[str]:
        """The fields, as far as they are known."""
        return self.table.fields.names

    def accepts(self, values: Any) -> bool:
        """Return whether these values are texts or truth values."""
        return self.is_open and are_categories(values)

    def read(self, columns: Mapping[str, Any], n: int) -> ValueColumns:
        """Return the group's fields; those of an open one are all the columns it is given."""
        names = to_read(columns, self.spec.fields, self.table.fields)
        bins = self.spec.bins
        if bins is not None:
            binned = {name: binned_column(name, columns[name], n, bins) for name in names}
            return ValueColumns(binned, n)
        return ValueColumns({name: value_column(name, columns[name], n) for name in names}, n)

    # ---- learning and predicting ----------------------------------------------------------------

    def encode(
        self, fields: ValueColumns, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> CategoryBatch:
        """Return rows `begin` to `end` as columns; to learn, new fields and values get places."""
        columns = self.table.encode(fields, begin, end, labels, learn=learn)
        return CategoryBatch(columns, self.table.fields, fields, begin)

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:
        """Return whether its known fields are plain and short; there may be others in it."""
        return self.spec.bins is None and values_fit(self.table.fields.names, x)

    def encode_one(
        self, x: Mapping[str, Any], scratch: ExampleScratch, *, learn: bool
    ) -> CategoryBatch:
        """Return one example's known fields as `encode` does."""
        columns = self.table.encode_one(x, scratch, learn=learn)
        return CategoryBatch(columns, self.table.fields)

    def grow(self, counts: ValueCounts) -> ValueCounts:
        """Return counts with room for all values and fields of the table."""
        capacity = self.table.vocabulary.capacity
        return statistics.grown(counts, columns=capacity, fields=len(self.table.fields))

    def _fit(self, fields: FieldTable) -> None:
        """Make room in counts and prior for these fields, and for all columns."""
        # Another thread may enter a field between the two, so that they have room for unlike many.
        n_fitted = min(len(self.alphas.declared), len(self.counts.seen))
        if n_fitted < len(fields) or len(self.counts.by_value) < self.table.vocabulary.n_words:
            self.counts = self.grow(self.counts)
        if n_fitted < len(fields):
            self.alphas = self._alphas(self.table.fields, self.counts.seen.shape[1])

    def run(
        self, batch: CategoryBatch, updates: RowUpdates, out: Floats, *, learn: bool, row: int = 0
    ) -> None:
        """Predict each row from `row` on, then learn it if it has a label.

        Values leave where they would pass their bound.
        """
        self._fit(batch.fields)
        options = RunOptions(row, row, learn, self.n_values_max)
        while True:
            row, why, n_new = self._run_kernel(self.counts, batch, updates, options, out)
            if why != counting.FULL:
                return
            options = options._replace(row=row, n_predicted=row + 1)
            self._drop(kept(self.n_values_max, n_new))

    def learn_part(
        self,
        part: GroupPart,
        batch: CategoryBatch,
        updates: RowUpdates,
        out: Floats,
        own: Floats | None = None,
    ) -> None:
        """Learn rows in a part and in the group's sum; see `learn_within_bound`."""
        self._fit(batch.fields)
        learn_within_bound(self, part, batch, updates, out, self.spec.max_values, own)

    def count(
        self, part: GroupPart, batch: CategoryBatch, updates: RowUpdates, own: Floats | None = None
    ) -> None:
        """Learn rows in a part alone; see `GroupState`."""
        self._fit(batch.fields)
        count_within_bound(self, part, batch, updates, self.spec.max_values, own)

    def learn_rows(
        self,
        counts: ValueCounts,
        batch: CategoryBatch,
        updates: RowUpdates,
        row: int,
        n_values_max: int,
        own: Floats | None = None,
        n_judged: int = 0,
    ) -> tuple[int, int, int]:
        """Add a batch's labelled rows from `row` on to some counts.

        `own` gets what these say of rows from `n_judged` on, each before it is learned.
        """
        if own is None:
            n_judged = len(updates.labels)
        options = RunOptions(row, n_judged, learn=True, n_max=n_values_max)
        out = np.empty((0, counts.seen.shape[1])) if own is None else own
        return self._run_kernel(counts, batch, updates, options, out)

    def _run_kernel(
        self,
        counts: ValueCounts,
        batch: CategoryBatch,
        updates: RowUpdates,
        options: RunOptions,
        out: Floats,
    ) -> tuple[int, int, int]:
        order, products = batch.fields.order, np.empty((counts.seen.shape[1], 2))
        return categorical(
            counts, self.alphas, order, batch.columns, updates, options, products, out
        )

    def drop_from_part(self, part: GroupPart, n_kept: int) -> int:
        """Drop a part's least useful values, from the sum as well; return how many."""
        columns, held = self._drop_values(part.counts, n_kept)
        left = left_of(self.counts.by_value[columns], held, decays=self.decays)
        self.counts.by_value[columns] = np.maximum(left, 0.0)
        self._settle(self.counts)
        return len(columns)

    def _drop(self, n_kept: int) -> None:
        columns, _ = self._drop_values(self.counts, n_kept)
        self.n_dropped += len(columns)

    def _drop_values(self, counts: ValueCounts, n_kept: int) -> tuple[NDArray[np.int64], Floats]:
        """Drop the least useful values that are not declared; return them and their counts."""
        vocabulary = self.table.vocabulary
        columns = statistics.must_leave(
            counts, vocabulary.table, vocabulary.n_words, n_kept, self.table.n_declared
        )
        held = counts.by_value[columns]
        counts.by_value[columns] = 0.0
        self._settle(counts)
        return columns, held

    def _settle(self, counts: ValueCounts) -> None:
        """Set N_jc to the sum of N_jvc, and recount, after counts of values were taken away.

        Whole numbers stay what they are; of others, no rest is left where all values have gone.
        """
        live = self._live_columns(counts)
        live = live[np.argsort(self.table.field_of[live], kind="stable")]
        ends = np.cumsum(np.bincount(self.table.field_of[live], minlength=len(counts.seen)))
        for j, (begin, end) in enumerate(pairwise([0, *ends.tolist()])):
            counts.seen[j] = statistics.total(counts.by_value[live[begin:end]])
        self.recount(counts)

    def recount(self, counts: ValueCounts) -> None:
        """Count the values of each field that are above zero."""
        n = len(counts.n_values)
        counts.n_values[:] = np.bincount(
            self.table.field_of[self._live_columns(counts)], minlength=n
        )
        is_open = self.table.declared(self.table.fields)[:n] == 0
        counts.state[0] = counts.n_values[: len(is_open)][is_open].sum()

    @staticmethod
    def _live_columns(counts: ValueCounts) -> NDArray[np.int64]:
        return statistics.live_columns(counts, len(counts.by_value))

    # ---- unlearning, merging and copies ---------------------------------------------------------

    def to_unlearn(
        self,
        batch: CategoryBatch,
        labels: NDArray[np.int32],
        weights: Floats,
        part: GroupPart | None,
    ) -> tuple[CategoryBatch, int]:
        """Return a batch without the values that have left; see `GroupState`."""
        counts = self.counts if part is None else part.counts
        n_dropped = self.n_dropped if part is None else part.n_dropped
        columns, unknown = batch.columns.copy(), batch.unknown()
        of_row, j = np.nonzero((columns != MISSING) & (labels >= 0)[:, None])
        short, held = short_entries(
            counts.by_value, columns[of_row, j], labels[of_row], weights[of_row], decays=self.decays
        )
        wrong = [
            *((int(of_row[k]), batch.fields.names[j[k]], held[k]) for k in np.flatnonzero(short)),
            *((row, name, 0.0) for row, name in unknown if labels[row] >= 0),
        ]
        if wrong and not n_dropped:
            row, name, before = min(wrong, key=itemgetter(0))
            where = f"{at_row(row, len(labels))}, field {name!r}: {batch.shown(name, row)}"
            raise not_learned(f"group {self.name!r}{where}", float(weights[row]), float(before))
        columns[of_row[short], j[short]] = MISSING
        return CategoryBatch(columns, batch.fields), len(wrong)

    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's counts, value by value, or take them away; see `GroupState`."""
        theirs = other.live_values()
        names = other.table.fields.names
        self.table.add_fields([names[j] for j in theirs.fields])
        fields = np.array([self.table.fields.places.get(name, -1) for name in names], np.int64)
        vocabulary = other.table.vocabulary
        ours = self.table.enter(
            vocabulary.table.fingerprints[theirs.columns],
            vocabulary.texts(theirs.columns),
            fields[other.table.field_of[theirs.columns]],
        )
        self._fit(self.table.fields)
        held = np.zeros((len(ours), self.counts.seen.shape[1]))
        held[:, places] = other.counts.by_value[theirs.columns] * factor
        seen = np.zeros((len(theirs.fields), held.shape[1]))
        seen[:, places] = other.counts.seen[theirs.fields] * factor
        if sign > 0:
            self.counts.by_value[ours] += held
            self.counts.seen[fields[theirs.fields]] += seen
        else:
            self._subtract(ours, held, self.n_dropped + other.n_dropped)
        self.recount(self.counts)
        self.n_dropped = max(0, self.n_dropped + sign * other.n_dropped)
        if int(self.counts.state[0]) > self.n_values_max:
            self._drop(kept(self.n_values_max, 0))

    def _subtract(self, columns: NDArray[np.int64], held: Floats, n_dropped: int) -> None:
        """Take counts away; refuse what is more than there is, unless values have left."""
        left = left_of(self.counts.by_value[columns], held, decays=self.decays)
        below = (left < 0.0).any(axis=1)
        if below.any() and not n_dropped:
            at = columns[below][:1]
            ((field, value),) = self.table.values(at)
            raise InputError(
                f"group {self.name!r}, field {field!r}: {value!r} would be counted"
                f" {left[below][0].min():g} times. Subtract only what was merged before."
            )
        self.n_skipped += int(below.sum())
        self.counts.by_value[columns] = np.maximum(left, 0.0)
        self._settle(self.counts)

    def rekey(self, hash_key: int) -> None:
        """Go on with another hash key; see `GroupState`."""
        cut = self.table.rekey(hash_key)
        if len(cut):
            ((field, value),) = self.table.values(cut[:1])
            raise InputError(
                f"group {self.name!r}, field {field!r}: the text of {value[:40]!r}... is not kept"
                " whole, so that it cannot be brought to another hash key. Make both models with"
                " the same hash_key."
            )

    def set_classes(self, n_classes: int) -> None:
        """Add room for new classes, or remove the last ones; see `GroupState`."""
        self.alphas = self._alphas(self.table.fields, n_classes)
        n_values = self.table.vocabulary.n_words
        self.counts = statistics.resized(self.counts, n_values, classes=n_classes)
        self._fit(self.table.fields)

    def frozen_table(self) -> Self:
        """Return a copy over the same table as it is now; see `GroupState`."""
        twin = super().frozen_table()
        twin.table = self.table.view()
        twin.alphas = self._alphas(twin.table.fields, self.counts.seen.shape[1])
        return twin

    def copy_counts(self, counts: ValueCounts) -> ValueCounts:
        """Copy with room for all that the table has: reading the copy then changes nothing."""
        n_values, n_fields = self.table.vocabulary.n_words, len(self.table.fields)
        grown = statistics.grown(counts, columns=n_values, fields=n_fields)
        return statistics.copy(grown, n_values)

    def needs_compaction(self) -> bool:
        """Return whether so many values are at zero that a new, smaller table is due."""
        n_used = int(self.counts.state[0]) + self.table.n_declared
        return self.table.vocabulary.n_words > 2 * n_used + _LOOSE

    def compact(self) -> NDArray[np.int64] | None:
        """Move to a new table if many values are at zero; return the columns that stay, or None."""
        if not self.needs_compaction():
            return None
        live = self._live_columns(self.counts)
        columns = np.union1d(np.arange(self.table.n_declared), live)
        self.table.keep(columns)
        self.counts = self.grow(statistics.take(self.counts, "columns", columns))
        return columns

    # ---- parts and files -----------------------------------------------------------------------

    def sum_parts(self, parts: Sequence[GroupPart]) -> None:
        """Set the counts to the sum of the parts'."""
        super().sum_parts(parts)
        self.alphas = self._alphas(self.table.fields, self.counts.seen.shape[1])

    def set_bounded(self, *, bounded: bool) -> None:
        """Bound the values here, or leave that to the parts."""
        self.n_values_max = self.spec.max_values if bounded else UNBOUNDED

    def live_values(self) -> LiveValues:
        """Return the values with a count above zero, and the fields that have one or are named."""
        columns = self._live_columns(self.counts)
        order = np.argsort(self.table.vocabulary.table.fingerprints[columns])
        named = self.spec.fields or [name for name, _ in self.spec.values]
        live = set(np.flatnonzero(self.counts.n_values).tolist())
        live.update(self.table.fields.places[name] for name in named)
        fields = [j for j in self.table.fields.order.tolist() if j in live]
        return LiveValues(columns[order], np.array(fields, dtype=np.int64))

    def state_to_dict(self) -> dict[str, Any]:
        """Return the fields, in the order in which the file has them."""
        names = self.table.fields.names
        fields = [names[j] for j in self.live_values().fields]
        return {"fields": fields, "n_skipped": self.n_skipped}

    def pack(self, prefix: str) -> tuple[Arrays, Places]:
        """Return the values with a count above zero, and what their parts are to pack."""
        live = self.live_values()
        return pack_table(prefix, self.table, live), live._asdict()

    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Take up fields and values that `pack` and `state_to_dict` gave."""
        names = check_saved(state["fields"], self.spec.fields)
        self._unpacked = unpack_table(prefix, arrays, names, self.table)._asdict()
        self.n_skipped = int(state["n_skipped"])
        self._fit(self.table.fields)


_Declared = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Categories:
    """Categories under a likelihood: each field has one of several values.

    Values are learned as they come: e_j is the number of values with a count above zero at that
    moment, and one that was never seen has the probability α/(N_jc + α·e_j).

    Parameters
    ----------
    likelihood : Categorical
        With its prior.
    fields : sequence of str, optional
        The fields. By default the group is open: it takes up any field that no other group names,
        when texts or truth values first come under its name.
    values : mapping of str to sequence, optional
        The values that some fields have. Others are ignored there as if they were missing, and e_j
        is the number of those declared.
    max_values : int
        Bound on the values of all other fields together. At the bound the least useful ones leave
        (`statistics.leaving` has the rule) until three quarters are kept.
    bins : float or sequence of float, optional
        The fields hold numbers, and each has the value of the bin that it lies in. Between m edges
        there are m + 1 bins, all declared; a number on an edge is in the one above. A single number
        is a step in arsinh of the numbers: bins are of one width around 0 and widen in proportion
        far from it. They are learned as they come.

    Examples
    --------
    >>> Categories(fields=["colour"], values={"colour": ["red", "green"]}).values
    (('colour', ('red', 'green')),)
    >>> Categories(fields=["age"], bins=[18, 65]).values
    (('age', ('below 18', '18 to 65', '65 and above')),)
    """

    likelihood: Categorical = field(default_factory=Categorical)
    fields: Any = None
    values: Any = None
    max_values: int = 1_000_000
    bins: Any = None

    def __post_init__(self) -> None:
        check_kind("Categories.likelihood", self.likelihood, Categorical)
        object.__setattr__(self, "fields", check_fields(self.fields))
        object.__setattr__(self, "bins", check_bins(self.bins))
        values = _declared(self.values, self.fields)
        if self.bins is not None:
            values = _declared_bins(values, self.fields, self.bins)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "max_values", check_max("max_values", self.max_values))

    def start(self, name: str, n_classes: int, hash_key: int) -> CategoriesState:
        """Return the state of a group that has learned nothing."""
        return CategoriesState(self, name, n_classes, hash_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        values = {name: list(given) for name, given in self.values}
        return {"kind": "categories"} | plain_values(self) | {"values": values}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        return cls(
            Categorical.from_dict(values["likelihood"]),
            values["fields"],
            values["values"],
            values["max_values"],
            values.get("bins"),
        )


def _declared(values: Any, fields: tuple[str, ...] | None) -> _Declared:
    """Return declared values as text by field, or say what is wrong with them."""
    if values is None:
        return ()
    if not isinstance(values, Mapping):
        raise InputError(f"values must be a mapping of fields to sequences. Got {values!r}.")
    check_fields(list(values) or None)
    unnamed = [name for name in values if fields is not None and name not in fields]
    if unnamed:
        raise InputError(f"values are declared of {unnamed[0]!r}, which is not among the fields.")
    return tuple((name, _texts(name, given)) for name, given in values.items())


def _declared_bins(values: _Declared, fields: tuple[str, ...] | None, bins: Bins) -> _Declared:
    """Return the bins between edges as declared values; those of a step come as they come."""
    if fields is None:
        raise InputError("a group with bins needs fields: name the numbers that it is to read.")
    texts = tuple(bin_texts(bins)) if isinstance(bins, tuple) else ()
    declared = tuple((name, texts) for name in fields) if texts else ()
    if values not in {(), declared}:
        raise InputError("values and bins exclude each other: the values of bins are their own.")
    return declared


def _texts(name: str, given: Any) -> tuple[str, ...]:
    if isinstance(given, np.ndarray):
        given = given.tolist()
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise InputError(f"values[{name!r}] must be a sequence of values. Got {given!r} instead.")
    texts = [value_text(name, i, value) for i, value in enumerate(given)]
    if None in texts or len(set(texts)) < len(texts):
        raise InputError(f"values[{name!r}] must differ, and none be missing. Got {given!r}.")
    return tuple(text for text in texts if text is not None)
