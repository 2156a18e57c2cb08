"""A part: the statistics of one log alone. A model kept in parts is their sum.

A part shares the model's vocabularies and holds its own counts. It is a function of its log's
examples only: words leave it by its own bound and its own counts, whatever other parts hold, so
that it can be saved with its log's position, read again after a crash, or moved elsewhere, and any
complete copy of it is right.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamnb import statistics
from streamnb.kernels import counting
from streamnb.kernels.layout import Counts
from streamnb.likelihoods.base import Batch
from streamnb.words import WordsState, kept


class Part:
    """Counts of one log, by the columns of the model's vocabularies.

    Attributes
    ----------
    class_counts : ndarray of shape (n_classes,)
        N_c.
    counts : dict of str to Counts
        By group.
    n_dropped : dict of str to int
        Words that have left, by group.
    """

    def __init__(self, groups: dict[str, WordsState], n_classes: int) -> None:
        self.class_counts = np.zeros(n_classes)
        self.counts: dict[str, Counts] = {name: statistics.empty(n_classes) for name in groups}
        self.n_dropped = dict.fromkeys(groups, 0)

    @property
    def n_examples(self) -> int:
        """Number of examples learned from this log."""
        return int(self.class_counts.sum())

    def learn(
        self,
        groups: dict[str, WordsState],
        batches: dict[str, Batch],
        labels: NDArray[np.int32],
        out: NDArray[np.float64],
    ) -> None:
        """Have the groups judge rows to `out` and learn them; learn the labelled ones as well."""
        learned = labels[labels >= 0]
        self.class_counts += np.bincount(learned, minlength=len(self.class_counts))
        for name, group in groups.items():
            self.counts[name] = statistics.with_capacity(
                self.counts[name], group.vocabulary.capacity
            )
            self._learn_words(name, group, batches[name], labels, out)

    def _learn_words(
        self,
        name: str,
        group: WordsState,
        batch: Batch,
        labels: NDArray[np.int32],
        out: NDArray[np.float64],
    ) -> None:
        """Learn one group's words; the sum follows as far as the part has room.

        Words leave the sum behind the very row that found the part full, not at the end of the
        batch: so the rows after it are judged alike, wherever the batch was cut.
        """
        row = n_learned = 0
        while True:
            row, why, n_new = statistics.learn(
                self.counts[name], batch, labels, row, group.spec.max_words
            )
            n_here = min(row + 1, len(labels))
            group.run(batch, labels[:n_here], out, learn=True, row=n_learned)
            n_learned = n_here
            if why != counting.FULL:
                return
            self._drop(name, group, n_new)

    def _drop(self, name: str, group: WordsState, n_new: int) -> None:
        """Let the part's least useful words leave, out of the sum as well."""
        counts = self.counts[name]
        columns = statistics.leaving(
            counts,
            group.vocabulary.table,
            group.vocabulary.n_words,
            kept(group.spec.max_words, n_new),
        )
        held = statistics.drop(counts, columns)
        statistics.subtract_rows(group.counts, columns, held)
        group.rebuild()
        self.n_dropped[name] += len(columns)
        group.n_dropped += len(columns)

    def frozen(self, groups: dict[str, WordsState]) -> Self:
        """Return a copy over the same vocabularies that later learning does not touch."""
        twin = object.__new__(type(self))
        twin.class_counts = self.class_counts.copy()
        twin.counts = {
            name: statistics.copy(counts, groups[name].vocabulary.n_words)
            for name, counts in self.counts.items()
        }
        twin.n_dropped = dict(self.n_dropped)
        return twin

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew."""
        self.class_counts = np.append(
            self.class_counts, np.zeros(n_classes - len(self.class_counts))
        )
        self.counts = {
            name: statistics.with_classes(counts, n_classes) for name, counts in self.counts.items()
        }

    def move_columns(self, name: str, columns: NDArray[np.int64]) -> None:
        """Follow a group to a new table: column i is the old `columns[i]`."""
        self.counts[name] = statistics.take_columns(self.counts[name], columns)
