"""One log's counts of a group of categories: what a model in parts keeps beside their sum.

Values leave a part by its own bound and its own counts, whatever other parts hold.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.categories import counts as category_counts
from streamnb.categories.file import Shared
from streamnb.categories.table import ValueTable
from streamnb.categories.values import ValueColumns
from streamnb.fields import FieldTable
from streamnb.groups import Arrays, Floats, GroupPart, Teaching
from streamnb.kernels import counting
from streamnb.kernels.categorical import Alphas, ValueCounts, categorical
from streamnb.kernels.values import MISSING
from streamnb.statistics import kept


class CategoryBatch(NamedTuple):
    """Rows of categories as columns of the group's vocabulary.

    Attributes
    ----------
    columns : ndarray of shape (n, n_fields), int32
        -1 where a value was never seen, -2 where there is none.
    fields : FieldTable
        As they were when the rows were looked up.
    source : ValueColumns, optional
        What was read, to name a value in an error.
    begin : int
        The first row's place there.
    """

    columns: NDArray[np.int32]
    fields: FieldTable
    source: ValueColumns | None = None
    begin: int = 0

    def there(self) -> list[str]:
        """Return the fields that the first row has a value of, also those that nobody knows."""
        known = [name for j, name in enumerate(self.fields.names) if self.columns[0, j] != MISSING]
        if self.source is None:
            return known
        unknown = [name for name in self.source.columns if name not in self.fields.places]
        return known + [name for name in unknown if self.source.text(name, self.begin) is not None]

    def shown(self, name: str) -> str:
        """Return the first row's value of a field, for an error."""
        value = self.source.text(name, self.begin) if self.source else None
        return "its value" if value is None else repr(value)


def teach(  # noqa: PLR0913 -- what is handed on to a kernel
    counts: ValueCounts,
    alphas: Alphas,
    batch: CategoryBatch,
    teaching: Teaching,
    out: Floats,
    *,
    row: int,
    n_judged: int,
    learn: bool,
    n_values_max: int,
) -> tuple[int, int, int]:
    """Judge the rows from `n_judged` on and learn those from `row` on; see the kernel."""
    return categorical(
        counts,
        alphas,
        batch.fields.order,
        batch.columns,
        *teaching,
        row,
        n_judged,
        learn,
        n_values_max,
        np.empty((counts.seen.shape[1], 2)),
        out,
    )


class CategoryPart(GroupPart):
    """One log's counts, by the columns of the group's vocabulary.

    Parameters
    ----------
    counts : ValueCounts
    table : ValueTable
        The group's.
    n_dropped : int
        Values that have left.
    """

    def __init__(self, counts: ValueCounts, table: ValueTable, n_dropped: int = 0) -> None:
        self.counts = counts
        self.table = table
        self.n_dropped = n_dropped

    def learn(self, group: Any, batch: CategoryBatch, teaching: Teaching, out: Floats) -> None:
        """Learn the values here; the group's sum follows as far as this part has room.

        Values leave the sum behind the very row that found the part full, not at the end of the
        batch: so the rows after it are judged alike, wherever the batch was cut.
        """
        group.fit(batch.fields)
        self.counts = category_counts.with_room(
            self.counts, group.table.vocabulary.capacity, len(batch.fields)
        )
        row = n_learned = 0
        n = len(teaching.labels)
        while True:
            row, why, n_new = teach(
                self.counts,
                group.alphas,
                batch,
                teaching,
                out,
                row=row,
                n_judged=n,
                learn=True,
                n_values_max=group.spec.max_values,
            )
            n_here = min(row + 1, n)
            group.run(batch, teaching.rows(0, n_here), out, learn=True, row=n_learned)
            n_learned = n_here
            if why != counting.FULL:
                return
            n_kept = kept(group.spec.max_values, n_new)
            columns, held = category_counts.drop(self.counts, self.table, n_kept)
            category_counts.take_away(group.counts, columns, held)
            category_counts.settle(group.counts, self.table)
            self.n_dropped += len(columns)
            group.n_dropped += len(columns)

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew, or forget the last ones."""
        self.counts = category_counts.with_classes(self.counts, n_classes)

    def frozen(self, group: Any) -> Self:
        """Return a copy over the same vocabulary that later learning does not touch."""
        counts = category_counts.copy(self.counts, group.table.vocabulary.n_words)
        return type(self)(counts, group.table, self.n_dropped)

    def rescale(self, factor: float) -> None:
        """Multiply all counts by a power of two."""
        category_counts.rescale(self.counts, self.table, factor)

    def move_columns(self, columns: NDArray[np.int64]) -> None:
        """Follow the group to a new table: column i is the old `columns[i]`."""
        self.counts = category_counts.take_columns(self.counts, columns, len(columns))

    def pack(self, prefix: str, shared: Shared) -> Arrays:
        """Pack the values that this part knows, by their place in the file."""
        counts = category_counts.with_room(
            self.counts,
            int(shared.columns.max(initial=-1)) + 1,
            int(shared.fields.max(initial=-1)) + 1,
        )
        by_value = counts.by_value[shared.columns]
        places = category_counts.live_columns(counts._replace(by_value=by_value))
        return {
            f"{prefix}/columns": places.astype(np.int32),
            f"{prefix}/by_value": by_value[places],
            f"{prefix}/seen": counts.seen[shared.fields],
        }
