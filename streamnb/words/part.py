"""One log's counts of a group of words: what a model in parts keeps beside their sum.

Words leave a part by its own bound and its own counts, whatever other parts hold.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb import statistics
from streamnb.groups import Arrays, Floats, GroupPart, Teaching
from streamnb.kernels import counting
from streamnb.kernels.layout import Counts
from streamnb.likelihoods.base import Batch


class CountedPart(GroupPart):
    """One log's counts, by the columns of the group's vocabulary.

    Parameters
    ----------
    counts : Counts
    n_dropped : int
        Words that have left.
    """

    def __init__(self, counts: Counts, n_dropped: int = 0) -> None:
        self.counts = counts
        self.n_dropped = n_dropped

    def learn(self, group: Any, batch: Batch, teaching: Teaching, out: Floats) -> None:
        """Learn the words here; the group's sum follows as far as this part has room.

        Words leave the sum behind the very row that found the part full, not at the end of the
        batch: so the rows after it are judged alike, wherever the batch was cut.
        """
        self.counts = statistics.with_capacity(self.counts, group.vocabulary.capacity)
        n_words_max = statistics.UNBOUNDED if group.n_declared else group.spec.max_words
        row = n_learned = 0
        n = len(teaching.labels)
        while True:
            row, why, n_new = statistics.learn(self.counts, batch, teaching, row, n_words_max)
            n_here = min(row + 1, n)
            group.run(batch, teaching.rows(0, n_here), out, learn=True, row=n_learned)
            n_learned = n_here
            if why != counting.FULL:
                return
            self._drop(group, statistics.kept(n_words_max, n_new))

    def _drop(self, group: Any, n_kept: int) -> None:
        """Let the part's least useful words leave, out of the sum as well."""
        columns = statistics.leaving(
            self.counts, group.vocabulary.table, group.vocabulary.n_words, n_kept
        )
        held = statistics.drop(self.counts, columns)
        statistics.subtract_rows(group.counts, columns, held)
        group.rebuild()
        self.n_dropped += len(columns)
        group.n_dropped += len(columns)

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew."""
        self.counts = statistics.with_classes(self.counts, n_classes)

    def frozen(self, group: Any) -> Self:
        """Return a copy over the same vocabulary that later learning does not touch."""
        counts = statistics.copy(self.counts, group.vocabulary.n_words)
        return type(self)(counts, self.n_dropped)

    def rescale(self, factor: float) -> None:
        """Multiply all counts by a power of two."""
        statistics.rescale(self.counts, factor)

    def move_columns(self, columns: NDArray[np.int64]) -> None:
        """Follow the group to a new table: column i is the old `columns[i]`."""
        self.counts = statistics.take_columns(self.counts, columns)

    def pack(self, prefix: str, shared: NDArray[np.int64]) -> Arrays:
        """Pack the words that this part knows, by their place among the chosen columns."""
        counts, chosen = self.counts, shared
        known = chosen[chosen < len(counts.by_word)]
        if len(known) == len(chosen) and (not len(chosen) or chosen[-1] == len(chosen) - 1):
            by_word = counts.by_word[: len(chosen)]
        else:
            by_word = counts.by_word[known]
        places = statistics.live_columns(counts._replace(by_word=by_word), len(by_word)).astype(
            np.int32
        )
        return {
            f"{prefix}/columns": places,
            f"{prefix}/by_word": by_word if len(places) == len(by_word) else by_word[places],
            f"{prefix}/examples": counts.examples,
            f"{prefix}/tokens": counts.tokens,
        }
