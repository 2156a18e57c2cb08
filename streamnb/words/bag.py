"""A group of words that somebody has counted already: a bag of words, or any counts.

An example gives its counts in one of three ways: fields that are words themselves (each a column of
numbers, as `River` and data frames have it); one field that holds a mapping of word to count, or a
list of words; or one field that holds a row of a SciPy sparse matrix over a declared dictionary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import Strings
from streamnb.decay import WEIGHT_MAX, WEIGHT_MIN
from streamnb.errors import InputError
from streamnb.kernels.layout import Rows, Texts
from streamnb.likelihoods import WordLikelihood, likelihood_from_dict
from streamnb.likelihoods.base import Batch, BatchToUnlearn
from streamnb.matrix import first_there
from streamnb.tokenizer import fingerprints, fingerprints_of, hash_key_words
from streamnb.words.bag_rows import (
    CountTable,
    SparseRows,
    from_columns,
    from_mappings,
    from_sparse,
    have_form,
    is_sparse,
)
from streamnb.words.counted import CountedState
from streamnb.words.text import check_dictionary, check_max, check_words


@dataclass(frozen=True, slots=True)
class Bag:
    """Counted words, under a likelihood.

    Parameters
    ----------
    likelihood : Multinomial, Bernoulli or Complement
        With Bernoulli a count above zero is presence.
    field : str, optional
        The one field that holds a mapping of word to count, a list of words, or a row of a sparse
        matrix or `CountTable`. Without it, fields are words themselves.
    fields : sequence of str, optional
        The fields that are words. By default every field that no other group names, and whose
        values are numbers.
    dictionary : sequence of str, optional
        The words that there are; others are ignored then. A sparse matrix has a column for each.
    max_words : int
        Bound on V, as for `Words`.

    Examples
    --------
    >>> from streamnb.likelihoods import Multinomial
    >>> Bag(Multinomial(), field="counts").field
    'counts'
    """

    likelihood: WordLikelihood
    field: str | None = None
    fields: tuple[str, ...] | None = None
    dictionary: tuple[str, ...] | None = None
    max_words: int = 1_000_000

    def __post_init__(self) -> None:
        check_words("Bag", self.likelihood, self.field)
        if self.field is not None and self.fields is not None:
            raise InputError(
                f"Bag takes field or fields, not both. Got {self.field!r} and {self.fields!r}."
            )
        check_max("max_words", self.max_words)
        object.__setattr__(self, "dictionary", check_dictionary(self.dictionary))
        named = check_dictionary(self.fields)
        object.__setattr__(self, "fields", named)

    def start(self, name: str, n_classes: int, hash_key: int) -> BagState:
        """Return the living side of this group, knowing nothing yet."""
        return BagState(self, name, n_classes, hash_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        lists = {
            name: None if values[name] is None else list(values[name])
            for name in ("fields", "dictionary")
        }
        return values | lists | {"kind": "bag", "likelihood": self.likelihood.to_dict()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        values = {name: value for name, value in values.items() if name != "kind"}
        return cls(**values | {"likelihood": likelihood_from_dict(values["likelihood"])})


class BagState(CountedState):
    """The living side of `Bag`: counts to columns; the rest is `CountedState`'s."""

    spec: Bag

    def __init__(self, spec: Bag, name: str, n_classes: int, hash_key: int) -> None:
        self.is_open = spec.field is None and spec.fields is None
        self.reads_absence = spec.fields is not None
        super().__init__(spec, name, n_classes, hash_key_words(hash_key), spec.dictionary)

    @property
    def fields(self) -> Sequence[str]:
        """The fields it names; none where every number is a count."""
        if self.spec.field is not None:
            return (self.spec.field,)
        return self.spec.fields or ()

    def takes(self, values: Any) -> bool:
        """Tell whether a new field holds counts: numbers, where they are not missing."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
            return True
        first = first_there(values)
        return isinstance(first, int | float | np.number) and not isinstance(first, bool)

    def read(self, columns: Mapping[str, Any], n: int) -> SparseRows:
        """Return the counts of `n` examples in sparse rows over the names that they have."""
        if self.spec.field is None:
            own = columns if self.is_open else {f: columns.get(f) for f in self.fields}
            return from_columns(own, n)
        values = columns.get(self.spec.field)
        if isinstance(values, CountTable):
            table = values.by_name(self.spec.field)
            words = check_dictionary(table.words) if table.words else ()
            return from_sparse(self.spec.field, table.matrix, words, n)
        if is_sparse(values):
            return from_sparse(self.spec.field, values, self.spec.dictionary, n)
        return from_mappings(self.spec.field, values, n)

    def encode(
        self, counted: SparseRows, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> Batch:
        """Return rows `begin` to `end` as columns and counts; to learn, new words get columns."""
        first, last = int(counted.indptr[begin]), int(counted.indptr[end])
        names = counted.names_at[first:last]
        counts = counted.counts[first:last]
        columns = self._columns(counted, names, begin, end, labels, learn=learn)
        known = (columns >= 0) if learn else (columns >= 0) & (columns < self._n_counted)
        ends = np.concatenate(([0], np.cumsum(known)))[counted.indptr[begin : end + 1] - first]
        if self.spec.likelihood.counts_occurrences:
            kept_counts = np.ascontiguousarray(counts[known])
        else:
            kept_counts = np.ones(int(known.sum()))
        rows = Rows(np.ascontiguousarray(columns[known]), kept_counts, ends.astype(np.int64))
        return Batch(rows, np.ascontiguousarray(counted.there[begin:end]))

    def encode_to_unlearn(self, counted: SparseRows, labels: NDArray[np.int32]) -> BatchToUnlearn:
        """Return one row with its unknown words; the vocabulary stays as it is."""
        n = int(counted.indptr[1])
        names, counts = counted.names_at[:n], counted.counts[:n]
        columns = self._columns(counted, names, 0, 1, labels, learn=False)
        if self.n_declared:  # other words are none
            known = columns >= 0
            names, counts, columns = names[known], counts[known], columns[known]
        if not self.spec.likelihood.counts_occurrences:
            counts = np.ones(len(counts))
        rows = Rows(columns, counts, np.array([0, len(columns)]))
        return BatchToUnlearn(
            rows, counted.there[:1].copy(), lambda at: counted.names[int(names[at])]
        )

    def _columns(
        self,
        counted: SparseRows,
        names: NDArray[np.int64],
        begin: int,
        end: int,
        labels: NDArray[np.int32],
        *,
        learn: bool,
    ) -> NDArray[np.int32]:
        """Return the column of each entry, -1 for words not known; learned rows bring new ones."""
        if counted.names is self.spec.dictionary:  # its words have the columns of their order
            return names.astype(np.int32)
        by_name = self.vocabulary.find(counted.names, self.key)
        if learn and not self.n_declared:
            sizes = np.diff(counted.indptr[begin : end + 1])
            learned = np.repeat(labels >= 0, sizes)
            # In the order of first occurrence, as one example after the other would bring them.
            new = names[learned & (by_name[names] < 0)]
            order = np.sort(np.unique(new, return_index=True)[1])
            wanted = new[order]
            if len(wanted):
                fresh = [counted.names[k] for k in wanted.tolist()]
                by_name[wanted] = self.vocabulary.enter(*_texts(fresh, self.key))
        columns: NDArray[np.int32] = by_name[names]
        return columns

    def has_short(self, x: Mapping[str, Any]) -> bool:
        """Tell whether its field holds a plain mapping of words to counts above zero."""
        counted = x.get(self.spec.field) if self.spec.field is not None else None
        if type(counted) is not dict or not _WORDS.issuperset(map(type, counted)):
            return False
        if not have_form(counted):
            return False
        counts = counted.values()
        # Not one is nan or infinite where their sum is neither.
        return _COUNTS.issuperset(map(type, counts)) and (
            not counts or (min(counts) >= WEIGHT_MIN and sum(counts) <= WEIGHT_MAX)
        )

    def encode_one(self, x: Mapping[str, Any], desk: Any, *, learn: bool) -> Batch:  # noqa: ARG002
        """Return one example's counts as `encode` does."""
        assert self.spec.field is not None  # `has_short` has said so
        counted = x[self.spec.field]
        words = sorted(counted)  # as a batch has them
        texts = Strings(words, has_missing=False).piece(0, len(words))
        fps = fingerprints_of(texts, self.key)
        if learn and not self.n_declared:
            columns = self.vocabulary.enter(fps, texts)
        else:
            columns = self.vocabulary.look_up(fps)
            columns[columns >= self._n_counted] = -1
        counts = np.ones(len(words))
        if self.spec.likelihood.counts_occurrences:
            counts[:] = [counted[word] for word in words]
        known = columns >= 0
        if not known.all():
            columns, counts = columns[known], counts[known]
        return Batch(Rows(columns, counts, np.array([0, len(columns)])), _THERE)


_WORDS = frozenset({str})
_COUNTS = frozenset({int, float})
_THERE: NDArray[np.bool_] = np.ones(1, dtype=np.bool_)


def _texts(names: list[str], key: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Texts]:
    """Return the fingerprints of names, and their text."""
    encoded = [name.encode("utf-8", "replace") for name in names]
    ends = np.cumsum([len(each) for each in encoded], dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    data = np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8)
    return fingerprints(names, key), Texts(data, starts, ends)
