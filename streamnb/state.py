"""A part: the statistics of one log alone. A model kept in parts is their sum.

A part shares what the model's groups share (their vocabularies) and holds its own statistics. It is
a function of its log's examples only: what leaves it leaves by its own bound and its own counts,
whatever other parts hold, so that it can be saved with its log's position, read again after a
crash, or moved elsewhere, and any complete copy of it is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.features.protocol import GroupPart, GroupState
from streamnb.kernels import posterior
from streamnb.labels import RowUpdates


class Part:
    """Statistics of one log.

    Attributes
    ----------
    class_counts : ndarray of shape (n_classes,)
        N_c.
    groups : dict of str to GroupPart
        By group.
    n_examples : int
        Number of examples learned from this log.
    """

    def __init__(
        self, class_counts: NDArray[np.float64], groups: dict[str, GroupPart], n_examples: int = 0
    ) -> None:
        self.class_counts = class_counts
        self.groups = groups
        self.n_examples = n_examples

    @classmethod
    def empty(cls, groups: Mapping[str, GroupState], n_classes: int) -> Self:
        """Return a part that knows nothing yet."""
        return cls(np.zeros(n_classes), {name: each.new_part() for name, each in groups.items()})

    @property
    def n_dropped(self) -> dict[str, int]:
        """How many features have left, by group."""
        return {name: part.n_dropped for name, part in self.groups.items()}

    def learn(
        self,
        groups: Mapping[str, GroupState],
        batches: Mapping[str, Any],
        updates: RowUpdates,
        out: NDArray[np.float64],
    ) -> None:
        """Have the groups judge rows to `out` and learn them; learn the labelled ones as well."""
        posterior.count_classes(self.class_counts, updates.labels, updates.weights)
        self.n_examples += count_learned(updates)
        for name, group in groups.items():
            group.learn_part(self.groups[name], batches[name], updates, out)

    def frozen_copy(self, groups: Mapping[str, GroupState]) -> Self:
        """Return a copy over the same vocabularies that later learning does not touch."""
        copies = {name: groups[name].frozen_part(part) for name, part in self.groups.items()}
        return type(self)(self.class_counts.copy(), copies, self.n_examples)

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew, or forget the last ones."""
        counts = np.zeros(n_classes)
        have = min(n_classes, len(self.class_counts))
        counts[:have] = self.class_counts[:have]
        self.class_counts = counts
        for part in self.groups.values():
            part.set_classes(n_classes)

    def rescale(self, groups: Mapping[str, GroupState], factor: float) -> None:
        """Multiply all counts by a power of two."""
        self.class_counts *= factor
        for name, part in self.groups.items():
            groups[name].rescale_counts(part.counts, factor)


def count_learned(updates: RowUpdates) -> int:
    """Return how many examples a batch adds; those that are taken back count below zero."""
    signs = np.sign(updates.weights[updates.labels >= 0])
    return int(signs.sum())
