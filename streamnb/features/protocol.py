"""The protocol of a group of features: a likelihood over some fields.

The model's joint log-likelihood is the log class prior plus the log-likelihood of each group. A
group is given as a frozen specification (`Words(...)`, `Numbers(...)`), and its `GroupState` holds
its statistics. A model in parts keeps a `GroupPart` for each of its logs; the group's statistics
are then the sum of its parts. To add a kind of group, write a specification (`Group`), a state,
and the axes of its statistics (`statistics`).

One example at a time goes through buffers that its thread keeps: an `ExampleScratch` a group.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.features import statistics
from streamnb.features.statistics import Arrays
from streamnb.kernels import counting
from streamnb.kernels.hybrid import Weights
from streamnb.kernels.layout import Rows, RowUpdates, Texts
from streamnb.labels import UNLABELLED, ones
from streamnb.likelihoods.base import Batch
from streamnb.likelihoods.multinomial import Hybrid
from streamnb.tokenizer import GRAMS_PER_TOKEN_MAX, scratch_for

Floats = NDArray[np.float64]
Places = dict[str, NDArray[np.int64]]


@dataclass
class GroupPart:
    """One log's own statistics of a group, over whatever the group shares (its vocabulary)."""

    # Its columns and fields are the group's, as far as there were any when it last learned.
    counts: Any
    # Features that have left it because it was full: by its own bound and its own counts, whatever
    # other parts hold.
    n_dropped: int = 0
    weights: Weights | None = None  # of a group of words with a hybrid

    def set_classes(self, n_classes: int) -> None:
        """Add room for new classes, or remove the last ones, which are empty."""
        self.counts = statistics.resized(self.counts, classes=n_classes)
        if self.weights is not None:
            self.weights = statistics.resized(self.weights, classes=n_classes)

    def set_n_others(self, n_others: int) -> None:
        """Weight so many other groups, too: with new weights, if there were others."""
        if self.weights is not None and len(self.weights.others) != n_others:
            self.weights = self.weights._replace(others=np.zeros((n_others, 2)))

    def take_columns(self, columns: NDArray[np.int64]) -> None:
        """Follow the group to a new table, in which column i is the old `columns[i]`."""
        self.counts = statistics.take(self.counts, "columns", columns)
        if self.weights is not None:
            self.weights = statistics.take(self.weights, "columns", columns)


class GroupState(ABC):
    """The state of a group: its statistics, and the operations that learn and read them."""

    spec: Any  # the specification
    name: str
    counts: Any  # the sufficient statistics
    _unpacked: Places
    n_dropped: int = 0  # features that have left because the group was full
    n_skipped: int = 0  # features that were not unlearned because they had left before
    in_order: bool = False  # whether files have words by their fingerprints, not as they came
    hybrid: Hybrid | None = None  # of a group of words: weights that it learns beside the counts
    weights: Any = None  # those weights, if there are any
    # Whether a hybrid can weight it: `learn_part` and `count` then write what a part says.
    can_be_weighted: bool = False
    decays: bool = False  # whether its model forgets, so that no count is exact
    is_open: bool = False  # whether it adopts new fields that no other group names
    # Whether a model of such groups alone answers without its class prior.
    leaves_prior_out: bool = False
    # Whether an example without any of its fields is normal: its fields are words, or flags that
    # are false when absent.
    may_lack_fields: bool = False
    # Whether `can_encode_one` takes an example without any of its fields.
    one_may_lack_fields: bool = False
    # Whether rows can be taken back among others that are learned; see `learn.prequential`.
    takes_in_place: bool = False
    # Whether parts add up to the same sum in any order, so that rows can be added to the sum too.
    sums_exactly: bool = True

    # ---- fields --------------------------------------------------------------------------------

    @property
    @abstractmethod
    def fields(self) -> Sequence[str]:
        """The fields that it reads, as far as they are known."""

    def accepts(self, values: Any) -> bool:  # noqa: ARG002 -- the open ones look at them
        """Return whether an open group adopts a new field with these values (a sequence)."""
        return False

    # ---- learning and predicting -----------------------------------------------------------------

    @abstractmethod
    def read(self, columns: Mapping[str, Any], n: int) -> Any:
        """Return this group's fields of `n` examples, ready to be cut into pieces.

        Raises InputError if a value cannot be used: field, row, value, and what is allowed. Nothing
        has changed.
        """

    @abstractmethod
    def encode(
        self, fields: Any, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> Any:
        """Return rows `begin` to `end` as a batch; to learn, new features get columns."""

    @abstractmethod
    def run(self, batch: Any, updates: RowUpdates, out: Floats, *, learn: bool) -> None:
        """Add each row's log-likelihood to `out` (n, n_classes), then learn it if it has a label.

        Rows go in order, and each is predicted before it is learned.
        """

    def mark_point_masses(  # noqa: B027 -- of numbers alone
        self, batch: Any, updates: RowUpdates, is_point: NDArray[np.bool_]
    ) -> None:
        """Mark rows and classes by a density that is a point mass; see `predict.Joint`.

        A row is judged by what was known before it, as `run` learns; nothing is learned here, and
        no row may be taken back.
        """

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Return whether an example is one that `encode_one` can take."""
        return False

    def encode_one(self, x: Mapping[str, Any], scratch: Any, *, learn: bool) -> Any:  # noqa: ARG002
        """Return one example as `encode` does, in the thread's own buffers (`ExampleScratch`)."""
        columns = {field: [x.get(field)] for field in self.fields}
        labels = np.full(1, 0 if learn else UNLABELLED, dtype=np.int32)
        return self.encode(self.read(columns, 1), 0, 1, labels, learn=learn)

    def encode_to_unlearn(self, fields: Any, labels: NDArray[np.int32]) -> Any:
        """Return all rows as a batch for `to_unlearn`, without changing the group."""
        return self.encode(fields, 0, len(labels), labels, learn=False)

    # ---- unlearning and merging ------------------------------------------------------------------

    @abstractmethod
    def to_unlearn(
        self, batch: Any, labels: NDArray[np.int32], weights: Floats, part: GroupPart | None
    ) -> tuple[Any, int]:
        """Return what of a batch can be unlearned, row after row, and how many features it skips.

        A row without a label takes nothing back. Raises InputError if more would be unlearned than
        was learned.
        """

    def holds(
        self,
        batch: Any,  # noqa: ARG002 -- of a group that takes nothing back in its place
        labels: NDArray[np.int32],  # noqa: ARG002
        weights: Floats,  # noqa: ARG002
        part: GroupPart | None,  # noqa: ARG002
    ) -> bool:
        """Return whether the rows with a label can be taken back, whatever is learned meanwhile."""
        return False

    @abstractmethod
    def merge(self, other: Any, places: NDArray[np.int64], factor: float, sign: int) -> None:
        """Add another group's statistics (`sign` 1) or take them away (-1).

        `other`: of an equal specification. `places` (n_classes of other,): the index here of each
        of its classes. `factor`: a power of two that its counts are multiplied by first. Raises
        InputError if more would be subtracted than there is; the caller discards this group then.
        """

    def rekey(self, hash_key: int) -> None:  # noqa: B027 -- most hash nothing
        """Change the hash key, with new fingerprints of the stored texts; nothing else changes.

        Raises InputError if a text is not stored whole.
        """

    @abstractmethod
    def set_classes(self, n_classes: int) -> None:
        """Add room for new classes, or remove the last ones, which are empty.

        Raises InputError if a prior lists its classes one by one; nothing has changed.
        """

    def without_hybrid(self) -> Self:
        """Return a group over the same counts that answers by them alone."""
        return self

    def set_n_others(self, n_others: int) -> None:  # noqa: B027 -- for a hybrid
        """Weight so many other groups, too."""

    def frozen_table(self) -> Self:
        """Return a copy over the same table as it is now, to be given other statistics."""
        return copy.copy(self)

    def frozen_copy(self) -> Self:
        """Return a copy over the same table that later learning does not touch, for a snapshot."""
        twin = self.frozen_table()
        twin.counts = self.copy_counts(self.counts)
        return twin

    def needs_compaction(self) -> bool:
        """Return whether so many features are at zero that a new, smaller table is due."""
        return False

    def compact(self) -> NDArray[np.int64] | None:
        """Move to a smaller table if one is due; return the columns that stay, or None."""
        return None

    # ---- counts, the group's own or a part's ---------------------------------------------------

    def empty_counts(self) -> Any:
        """Return counts of nothing, for the classes there are."""
        n_classes = statistics.size(self.counts, "classes")
        return statistics.empty(type(self.counts), classes=n_classes, columns=0, fields=0)

    @abstractmethod
    def grow(self, counts: Any) -> Any:
        """Return counts with room for all columns and fields there are."""

    def recount(self, counts: Any) -> None:  # noqa: B027 -- most derive nothing
        """Derive once more what follows from the counts, after a change other than by `run`."""

    def rescale_counts(self, counts: Any, factor: float) -> None:
        """Multiply counts by a power of two."""
        statistics.rescale(counts, factor)
        self.recount(counts)

    def add_counts(self, counts: Any, other: Any) -> None:
        """Add a part's counts, in place; `recount` is due."""
        statistics.add(counts, other)

    def rescale_part(self, part: GroupPart, factor: float) -> None:
        """Multiply a part's counts by a power of two."""
        self.rescale_counts(part.counts, factor)

    def rescale(self, factor: float) -> None:
        """Multiply all counts of the group by a power of two; of its parts first."""
        self.rescale_counts(self.counts, factor)

    def copy_counts(self, counts: Any) -> Any:
        """Copy counts, with room for all columns and fields there are."""
        return statistics.copy(self.grow(counts))

    # ---- parts ---------------------------------------------------------------------------------

    @abstractmethod
    def learn_part(self, part: GroupPart, batch: Any, updates: RowUpdates, out: Floats) -> None:
        """Predict rows into `out` and learn them, in the group's sum and in a part."""

    @abstractmethod
    def count(self, part: GroupPart, batch: Any, updates: RowUpdates) -> None:
        """Learn rows in a part alone, and predict none; `sum_parts` is due afterwards."""

    def new_part(self) -> GroupPart:
        """Return a part that has learned nothing."""
        return GroupPart(self.empty_counts())

    def as_part(self) -> GroupPart:
        """Return this group's own statistics as a part: the same arrays."""
        return GroupPart(self.counts, self.n_dropped, self.weights)

    def frozen_part(self, part: GroupPart) -> GroupPart:
        """Return a copy of a part that later learning does not touch."""
        return GroupPart(self.copy_counts(part.counts), part.n_dropped)

    def hold(self, parts: Sequence[GroupPart]) -> None:
        """Hold the sum of frozen parts, to be saved: a single part's own arrays, uncopied.

        What is cached to predict by is not made, nor is the sum of weights, which no file has.
        """
        self.weights = parts[0].weights if len(parts) == 1 else None
        if len(parts) == 1:
            self.counts, self.n_dropped = parts[0].counts, parts[0].n_dropped
        else:
            self._add_up(parts)

    def sum_parts(self, parts: Sequence[GroupPart]) -> None:
        """Set the statistics to the sum of the parts', in the order given.

        They are a function of the parts alone: what was there before is gone.
        """
        self._add_up(parts)

    def _add_up(self, parts: Sequence[GroupPart]) -> None:
        self.counts = self.grow(self.empty_counts())
        for part in parts:
            self.add_counts(self.counts, part.counts)
        self.recount(self.counts)
        self.n_dropped = sum(part.n_dropped for part in parts)

    def leave_out(self, part: GroupPart, others: Sequence[GroupPart]) -> None:
        """Set the statistics to the sum of the `others`: all parts but one, in their order."""
        if not self.sums_exactly:
            self.sum_parts(others)
            return
        statistics.subtract(self.counts, part.counts, decays=self.decays)
        self.recount(self.counts)
        self.n_dropped -= part.n_dropped

    def set_bounded(self, *, bounded: bool) -> None:  # noqa: B027 -- for groups with a bound
        """Bound what the group itself holds, or leave that to its parts."""

    # ---- files ---------------------------------------------------------------------------------

    def state_to_dict(self) -> dict[str, Any]:
        """Return what the file's header says of it beyond the specification."""
        return {}

    @abstractmethod
    def pack(self, prefix: str) -> tuple[Arrays, Places]:
        """Return what a file holds of all that parts share, under names that begin with `prefix`.

        Beside it stand the columns and fields that the file has, which `pack_part` takes.
        """

    @abstractmethod
    def unpack(self, prefix: str, arrays: Arrays, state: Mapping[str, Any]) -> None:
        """Take up what `pack` and `state_to_dict` gave, in a group that has learned nothing."""

    def pack_part(self, prefix: str, part: GroupPart, places: Places) -> Arrays:
        """Return what a file holds of a part, under names that begin with `prefix`."""
        return statistics.pack(prefix, part.counts, places)

    def unpack_part(self, prefix: str, arrays: Arrays) -> GroupPart:
        """Return the part that `pack_part` gave, after `unpack`."""
        counts = self.grow(self.empty_counts())
        statistics.unpack(prefix, arrays, counts, self._unpacked)
        self.recount(counts)
        return GroupPart(counts)


def learn_within_bound(
    group: Any,
    part: GroupPart,
    batch: Any,
    updates: RowUpdates,
    out: Floats,
    n_max: int,
    own: Floats | None = None,
) -> None:
    """Learn rows in a part with a bound; the group's sum follows as far as the part has room.

    Features leave the sum right after the row that filled the part, not at the end of the batch, so
    that later rows are predicted alike however the batch was cut.

    `group`: it learns rows into counts (`learn_rows`), and drops features from a part and from its
    sum (`drop_from_part`). `n_max`: the bound on the part's features. `own`: where the part's own
    log-likelihoods go, if they are wanted and the group writes them.
    """
    part.counts = group.grow(part.counts)
    row = n_learned = 0
    n = len(updates.labels)
    judged: tuple[Any, ...] = () if own is None else (own, 0)
    of_part = updates.of_part()
    while True:
        row, why, n_new = group.learn_rows(part.counts, batch, of_part, row, n_max, *judged)
        n_here = min(row + 1, n)
        group.run(batch, updates.rows(0, n_here), out, learn=True, row=n_learned)
        n_learned = n_here
        if why != counting.FULL:
            return
        judged = judged and (own, row + 1)
        n_dropped = group.drop_from_part(part, statistics.kept(n_max, n_new))
        part.n_dropped += n_dropped
        group.n_dropped += n_dropped


def count_within_bound(
    group: Any,
    part: GroupPart,
    batch: Any,
    updates: RowUpdates,
    n_max: int,
    own: Floats | None = None,
) -> None:
    """Learn rows in a part with a bound, and in nothing else; see `learn_within_bound`."""
    part.counts = group.grow(part.counts)
    judged: tuple[Any, ...] = () if own is None else (own, 0)
    updates = updates.of_part()
    row, why, n_new = group.learn_rows(part.counts, batch, updates, 0, n_max, *judged)
    while why == counting.FULL:
        part.n_dropped += group.drop_from_part(part, statistics.kept(n_max, n_new))
        judged = judged and (own, row + 1)
        row, why, n_new = group.learn_rows(part.counts, batch, updates, row, n_max, *judged)


# Options that 0.1.0 did not have: a file without them is one of its files.
_LATER = {
    "hybrid": None,
    "punctuation": False,
    "ends": False,
    "gap": 0,
    "entities": False,
    "compose": False,
    "characters": None,
    "bins": None,
}


def plain_values(spec: Any) -> dict[str, Any]:
    """Return a specification's values in their order, as a model's header holds them."""
    values = {each.name: getattr(spec, each.name) for each in fields(spec)}
    plain = {
        name: list(v) if isinstance(v, tuple) else v
        for name, v in values.items()
        if name not in _LATER or v != _LATER[name]
    }
    hybrid: Any = plain.get("hybrid")
    if hybrid is not None:
        plain["hybrid"] = asdict(hybrid)
    return plain | {"likelihood": spec.likelihood.to_dict()}


class Group(Protocol):
    """A specification of a group: a value that is saved with the model."""

    def start(self, name: str, n_classes: int, hash_key: int) -> GroupState:
        """Return the state of a group that has learned nothing."""

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header; `kind` names its class."""


def check_features(features: Any) -> Mapping[str, Group]:
    """Refuse what is no mapping of names to groups."""
    if not isinstance(features, Mapping) or not features:
        raise InputError(
            "features must hold at least one group, such as {'text': Words(...)}."
            f" Got {features!r} instead."
        )
    for name, group in features.items():
        if not isinstance(name, str):
            raise InputError(f"features: a group's name must be a str. Got {name!r} instead.")
        if isinstance(group, type) or not hasattr(group, "start"):
            raise InputError(
                f"features[{name!r}] must be a group, such as Words(...), Bag(...), Categories(),"
                f" Flags() or Numbers(). Got {group!r} instead."
            )
    return features


# ---- buffers for one short example, which a thread uses again and again --------------------------

# One example at a time costs Python more than it costs the kernels; allocating new arrays in
# each call would double that.
SHORT_CHARS_MAX = 256  # of a text
_CHAR_BYTES = 4  # the most that a character takes
SHORT_BYTES_MAX = _CHAR_BYTES * SHORT_CHARS_MAX
# Of n-grams that one text may have: each byte may be a token, with the text's two ends beside them.
_GRAMS = (SHORT_BYTES_MAX + 2) * GRAMS_PER_TOKEN_MAX
_VALUES_MAX, _VALUE_CHARS_MAX = 64, 64


class ExampleScratch:
    """Buffers for one group's part of an example: a text, or the values of its fields.

    `text`: the text that was put there last, as a batch of one. `batch`: where its columns and
    counts go. `tokens`: room for its tokens, the thread's own. `updates`: the updates of one row:
    its label, weight 1, without decay. `words`: room for the longest value that fits. `places`: the
    first n places, by n.
    """

    def __init__(self) -> None:
        buffer = bytearray(_CHAR_BYTES * max(SHORT_CHARS_MAX, _VALUES_MAX * _VALUE_CHARS_MAX))
        self._bytes = memoryview(buffer)
        self._data = np.frombuffer(buffer, dtype=np.uint8)
        self._bounds = np.zeros((2, _VALUES_MAX), dtype=np.int64)
        self._starts, self._ends = (memoryview(self._bounds[i]) for i in (0, 1))
        self._values: dict[int, Texts] = {}
        self.text = Texts(self._data, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        rows = Rows(np.empty(_GRAMS, dtype=np.int32), np.empty(_GRAMS), np.zeros(2, dtype=np.int64))
        self.batch = Batch(rows, np.ones(1, dtype=np.bool_))
        self.tokens = scratch_for(SHORT_BYTES_MAX, GRAMS_PER_TOKEN_MAX)
        self.updates = RowUpdates(np.zeros(1, dtype=np.int32), *(ones(1),) * 4)
        self.words = np.empty(_CHAR_BYTES * _VALUE_CHARS_MAX // 8 + 2, dtype=np.uint64)
        self.places = [np.arange(n) for n in range(_VALUES_MAX + 1)]

    def put_text(self, text: str) -> None:
        """Write a text of up to `SHORT_CHARS_MAX` characters into `text`."""
        # A lone surrogate has no UTF-8 form; "?" is what a batch makes of it as well.
        encoded = text.encode("utf-8", "replace")
        size = len(encoded)
        self._bytes[:size] = encoded
        self.text.ends[0] = size

    def put_values(self, names: Sequence[str], x: Mapping[str, Any]) -> Texts:
        """Write values that fit (`values_fit`); return them as texts, in the order of the names."""
        parts = []
        at = 0
        for i, name in enumerate(names):
            value = x.get(name)
            if value is None:
                self._ends[i] = -1
                continue
            if type(value) is not str:
                value = str(value).lower()  # a number has no letters here, and True is "true"
            encoded = value.encode("utf-8", "replace")  # as above
            parts.append(encoded)
            self._starts[i] = at
            at += len(encoded)
            self._ends[i] = at
        self._bytes[:at] = b"".join(parts)
        n = len(names)
        if n not in self._values:
            self._values[n] = Texts(self._data, self._bounds[0, :n], self._bounds[1, :n])
        return self._values[n]


def values_fit(names: Sequence[str], x: Mapping[str, Any]) -> bool:
    """Return whether an example's values of some fields are plain and short enough."""
    if len(names) > _VALUES_MAX:
        return False
    for name in names:
        value: Any = x.get(name)
        kind = type(value)
        if kind is str:
            if len(value) > _VALUE_CHARS_MAX:
                return False
        elif kind is int:
            if not -(10**18) < value < 10**18:
                return False
        elif kind is not bool and value is not None:
            return False
    return True


class _ThreadScratch(threading.local):
    def __init__(self) -> None:
        self.by_group: list[ExampleScratch] = []


_of_thread = _ThreadScratch()


def scratch_of_this_thread(n: int) -> list[ExampleScratch]:
    """Return buffers for at least `n` groups, kept by the calling thread."""
    by_group = _of_thread.by_group
    while len(by_group) < n:
        by_group.append(ExampleScratch())
    return by_group
