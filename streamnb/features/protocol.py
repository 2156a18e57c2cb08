"""What the model asks of a group of features: a likelihood over some fields.

The model's joint log-likelihood is the class prior's plus each group's. A group is given as a
frozen specification (`Words(...)`, `Numbers(...)`) and lives as a `GroupState`. A model in parts
keeps a `GroupPart` for each of its logs; the group's own statistics are then the parts' sum. A new
kind of group is one new file that fills these three.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.labels import UNLABELLED, RowUpdates

Arrays = dict[str, NDArray[Any]]
Floats = NDArray[np.float64]


def of_shape(arrays: Arrays, name: str, *shape: int) -> NDArray[Any]:
    """Return an array of a file, which numpy would otherwise stretch to fit, or kernels overrun.

    Raises
    ------
    InputError
        Where it has another shape.
    """
    found = arrays[name]
    if found.shape != shape:
        raise InputError(f"{name}: shape {shape} is wanted. Got {found.shape} instead.")
    return found


class GroupPart(ABC):
    """One log's own statistics of a group, over whatever the group shares (its vocabulary).

    Attributes
    ----------
    n_dropped : int
        Features that have left it because it was full.
    """

    n_dropped: int = 0

    @abstractmethod
    def learn(self, group: Any, batch: Any, updates: RowUpdates, out: Floats) -> None:
        """Have the group judge rows to `out` and learn them; learn them here as well."""

    @abstractmethod
    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew, or forget the last ones, which are empty."""

    @abstractmethod
    def frozen_copy(self, group: Any) -> Self:
        """Return a copy that later learning does not touch."""

    @abstractmethod
    def rescale(self, factor: float) -> None:
        """Multiply all counts by a power of two."""

    @abstractmethod
    def pack(self, prefix: str, shared: Any) -> Arrays:
        """Return what a file holds of it, under names that begin with `prefix`.

        `shared` is what the group's own `pack` gave beside its arrays.
        """

    def take_columns(self, columns: NDArray[np.int64]) -> None:  # noqa: B027 -- most have no columns
        """Follow the group to a new table: column i is the old `columns[i]`."""


class GroupState(ABC):
    """The living side of a group: statistics, and what is needed to teach and read them.

    Attributes
    ----------
    spec : Group
        What it was made from.
    name : str
    n_dropped : int
        Features that have left because the group was full.
    n_skipped : int
        Features that were not unlearned because they had left before.
    is_open : bool
        Whether it takes up fields that come anew and that no other group names.
    may_lack_fields : bool
        Whether an example without any of its fields is one of the usual kind: fields that are
        words, or flags that are false where they are absent.
    one_may_lack_fields : bool
        Whether `can_encode_one` takes an example without any of its fields.
    sums_exactly : bool
        Whether parts add up to the same sum in any order, so that the sum can follow row by row.
    """

    spec: Any
    name: str
    n_dropped: int = 0
    n_skipped: int = 0
    is_open: bool = False
    may_lack_fields: bool = False
    one_may_lack_fields: bool = False
    sums_exactly: bool = True

    # ---- fields --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def fields(self) -> Sequence[str]:
        """The fields that it reads, as far as they are known."""

    def takes(self, values: Any) -> bool:  # noqa: ARG002 -- the open ones look at them
        """Tell whether an open group takes up a new field with these values (a sequence)."""
        return False

    # ---- learning and judging ------------------------------------------------------------------

    @abstractmethod
    def read(self, columns: Mapping[str, Any], n: int) -> Any:
        """Return this group's fields of `n` examples, ready to be cut into pieces.

        Raises
        ------
        InputError
            Where a value cannot be used: field, row, value, and what is allowed. Nothing changed.
        """

    @abstractmethod
    def encode(
        self, fields: Any, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> Any:
        """Return rows `begin` to `end` as a batch; to learn, what is new gets its place."""

    @abstractmethod
    def run(self, batch: Any, updates: RowUpdates, out: Floats, *, learn: bool) -> None:
        """Add each row's log-likelihood to `out` (n, n_classes), then learn it where it says so.

        Row by row, in order: each is judged before it is learned.
        """

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Tell whether an example is one that `encode_one` can take."""
        return False

    def encode_one(self, x: Mapping[str, Any], desk: Any, *, learn: bool) -> Any:  # noqa: ARG002
        """Return one example as `encode` does, at the thread's own desk."""
        columns = {field: [x.get(field)] for field in self.fields}
        labels = np.full(1, 0 if learn else UNLABELLED, dtype=np.int32)
        return self.encode(self.read(columns, 1), 0, 1, labels, learn=learn)

    def encode_to_unlearn(self, fields: Any, labels: NDArray[np.int32]) -> Any:
        """Return one row as a batch for `to_unlearn`; the group stays as it is."""
        return self.encode(fields, 0, 1, labels, learn=False)

    # ---- what the state can do -----------------------------------------------------------------

    @abstractmethod
    def to_unlearn(
        self, batch: Any, label: int, weight: float, part: GroupPart | None
    ) -> tuple[Any, int]:
        """Return a batch of one row as it can be taken back, and how many features were skipped.

        Raises
        ------
        InputError
            Where more would be taken than was learned.
        """

    @abstractmethod
    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's statistics (`sign` 1) or take them away (-1).

        Parameters
        ----------
        other : GroupState
            Of an equal specification.
        places : ndarray of shape (n_classes of other,), int64
            The place here of each of its classes.
        factor : float
            A power of two that its counts are multiplied by first.
        sign : {1, -1}

        Raises
        ------
        InputError
            Where more would be taken than there is; the caller throws this group away then.
        """

    def rekey(self, hash_key: int) -> None:  # noqa: B027 -- most hash nothing
        """Go on with another hash key, by the texts that are kept; nothing else changes.

        Raises
        ------
        InputError
            Where a text is not kept whole.
        """

    @abstractmethod
    def rescale(self, factor: float) -> None:
        """Multiply all counts by a power of two."""

    @abstractmethod
    def set_classes(self, n_classes: int) -> None:
        """Make room for classes that came anew, or forget the last ones, which are empty.

        Raises
        ------
        InputError
            Where a prior names its classes one by one; nothing changed.
        """

    @abstractmethod
    def frozen_copy(self) -> Self:
        """Return a copy that later learning does not touch, for a snapshot."""

    def needs_compaction(self) -> bool:
        """Tell whether a new, smaller table is due."""
        return False

    def compact(self) -> NDArray[np.int64] | None:
        """Move to a smaller table where one is due; return the columns that stay, or None."""
        return None

    # ---- parts and files -----------------------------------------------------------------------

    @abstractmethod
    def new_part(self) -> GroupPart:
        """Return a part that knows nothing yet."""

    @abstractmethod
    def as_part(self) -> GroupPart:
        """Return this group's own statistics as a part: the same arrays."""

    @abstractmethod
    def sum_parts(self, parts: Sequence[GroupPart]) -> None:
        """Make the statistics the sum of the parts', in the order given.

        A function of the parts alone: whatever was there before is gone.
        """

    def set_bounded(self, *, bounded: bool) -> None:  # noqa: B027 -- for groups with a bound
        """Bound what the group itself holds (`whole`), or leave that to its parts."""

    def state_to_dict(self) -> dict[str, Any]:
        """Return what the file's header says of it beyond the specification."""
        return {}

    @abstractmethod
    def pack(self, prefix: str) -> tuple[Arrays, Any]:
        """Return what a file holds of all that parts share, under names that begin with `prefix`.

        Beside it stands whatever the parts' own `pack` wants to know.
        """

    @abstractmethod
    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Take up what `pack` and `state_to_dict` gave; the group knows nothing yet."""

    @abstractmethod
    def unpack_part(self, prefix: str, arrays: Arrays) -> GroupPart:
        """Return the part that `GroupPart.pack` gave."""


class Group(Protocol):
    """A specification of a group: a value that is saved with the model."""

    def start(self, name: str, n_classes: int, hash_key: int) -> GroupState:
        """Return the living side, knowing nothing yet."""

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header; `kind` names its class."""
