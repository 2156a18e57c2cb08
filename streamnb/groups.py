"""What the model asks of a group of features: a likelihood over some fields.

The model's joint log-likelihood is the class prior's plus each group's. A group is given as a
frozen specification (`Words(...)`) and lives as a `GroupState`. A new kind of group is one new file
behind these two protocols.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.likelihoods.base import Batch


class GroupState(Protocol):
    """The living side of a group: statistics, and what is needed to teach and read them."""

    spec: Any

    def read(self, columns: Mapping[str, Any], n: int) -> Any:
        """Return this group's fields of a batch of `n` examples, ready to be cut into pieces."""

    def encode(
        self, fields: Any, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> Batch:
        """Return rows `begin` to `end` as columns and counts; to learn, new words get columns."""

    def run(
        self, batch: Batch, labels: NDArray[np.int32], out: NDArray[np.float64], *, learn: bool
    ) -> None:
        """Add each row's log-likelihood to `out`, then learn it where it has a label."""

    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew."""

    def frozen(self) -> Self:
        """Return a copy that later learning does not touch, for a snapshot."""


class Group(Protocol):
    """A specification of a group: a value that is saved with the model."""

    def start(self, name: str, n_classes: int, hash_key: int) -> GroupState:
        """Return the living side, knowing nothing yet."""

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
