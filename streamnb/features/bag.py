"""Counts in: columns of numbers, mappings, lists of words, or a sparse matrix, as sparse rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import (
    Strings,
    as_array,
    as_list,
    check_length,
    first_present,
    is_missing,
    is_time,
)
from streamnb.decay import AMOUNTS, WEIGHT_MAX, WEIGHT_MIN, are_amounts
from streamnb.errors import InputError, shown
from streamnb.features.counted_words import CountedState
from streamnb.features.fields import check_max
from streamnb.features.protocol import plain_values
from streamnb.features.words import check_dictionary, check_hybrid, check_words
from streamnb.kernels.layout import Rows
from streamnb.likelihoods import likelihood_from_dict
from streamnb.likelihoods.base import Batch, BatchToUnlearn, WordLikelihood
from streamnb.likelihoods.multinomial import Hybrid, hybrid_from_dict
from streamnb.tokenizer import fingerprints_of, hash_key_words


class SparseRows(NamedTuple):
    """Counts of examples: row i is entries indptr[i] to indptr[i + 1], none of them zero."""

    # The words that occur; a declared dictionary itself where a matrix has a column for each.
    names: Sequence[str]
    names_at: NDArray[np.int64]  # (n_entries,): each entry's place in `names`
    counts: NDArray[np.float64]  # (n_entries,)
    indptr: NDArray[np.int64]  # (n + 1,)
    present: NDArray[np.bool_]  # (n,): false where an example's counts are missing altogether


@dataclass(frozen=True, slots=True)
class CountTable:
    """A sparse matrix whose columns have words for names: for a dictionary that grows.

    Attributes
    ----------
    words : sequence of str, of length n_words
    matrix : SciPy's sparse matrix of shape (n, n_words)
    """

    words: Sequence[str]
    matrix: Any

    def __post_init__(self) -> None:
        if not is_sparse(self.matrix) or len(self.matrix.shape) != 2:
            raise InputError(
                "CountTable.matrix must be a sparse matrix of SciPy's with two dimensions. Got"
                f" {type(self.matrix).__name__} instead."
            )
        words: Any = self.words
        n_words = len(words) if isinstance(words, Sequence) else -1
        if n_words != self.matrix.shape[1] or not all(isinstance(word, str) for word in words):
            raise InputError(
                f"CountTable.words must be a str for each of the {self.matrix.shape[1]} columns of"
                f" its matrix. Got {self.words!r} instead."
            )

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def by_name(self, field: str) -> CountTable:
        """Return the same counts, with the words in order."""
        rows = _sound_rows(field, self.matrix)
        order = sorted(range(len(self.words)), key=self.words.__getitem__)
        words = [self.words[k] for k in order]
        return CountTable(words, rows[:, order]) if order else self


def from_columns(columns: Mapping[str, Any], n: int) -> SparseRows:
    """Read columns that are words themselves; what is missing is no count.

    Raises InputError for a value that is no number of at least 0: field, row, value.
    """
    # In the order of their names: in which one they came is not to be seen, not in the last digit.
    given = [(str(name), values) for name, values in columns.items() if values is not None]
    by_name = sorted(given, key=itemgetter(0))
    names = [name for name, _ in by_name]
    grid = np.empty((n, len(names)))
    present = np.zeros(n, dtype=np.bool_)
    for k, (name, values) in enumerate(by_name):
        grid[:, k] = _numbers(name, values, n)
    present |= ~np.isnan(grid).all(axis=1) if names else False
    rows, at = np.nonzero(np.nan_to_num(grid))
    indptr = np.searchsorted(rows, np.arange(n + 1)).astype(np.int64)
    return _by_form(SparseRows(names, at.astype(np.int64), grid[rows, at], indptr, present))


def from_mappings(field: str, values: Any, n: int) -> SparseRows:
    """Read a field of mappings of word to count, or of lists of words; None is missing.

    Raises InputError for a value that is neither, or a count that is no number of at least 0.
    """
    places: dict[str, int] = {}
    at: list[int] = []
    counts: list[float] = []
    indptr = np.zeros(n + 1, dtype=np.int64)
    present = np.zeros(n, dtype=np.bool_)
    given = [None] * n if values is None else as_list(field, values)
    check_length(field, given, n)
    for row, value in enumerate(given):
        if not is_missing(value):
            present[row] = True
            for word, count in sorted(_counted(field, row, value).items()):  # as above
                if count:
                    at.append(places.setdefault(word, len(places)))
                    counts.append(count)
        indptr[row + 1] = len(at)
    return _by_form(
        SparseRows(
            list(places),
            np.array(at, dtype=np.int64),
            np.array(counts, dtype=np.float64),
            indptr,
            present,
        )
    )


def have_form(words: Iterable[str]) -> bool:
    """Return whether all words have a UTF-8 form: a lone surrogate has none.

    Examples
    --------
    >>> have_form(["win", chr(0xD800)])
    False
    """
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        return False
    return True


def _by_form(rows: SparseRows) -> SparseRows:
    """Bring together what is one word: names of one text, or with "?" for a lone surrogate.

    A row then holds a word once, as all that counts words relies on.
    """
    if len(set(rows.names)) == len(rows.names) and have_form(rows.names):
        return rows
    forms = [name.encode("utf-8", "replace").decode() for name in rows.names]
    names = sorted(set(forms))
    places = {name: k for k, name in enumerate(names)}
    n = len(rows.indptr) - 1
    at = np.array([places[form] for form in forms], dtype=np.int64)[rows.names_at]
    keys = np.repeat(np.arange(n), np.diff(rows.indptr)) * len(names) + at
    different, inverse = np.unique(keys, return_inverse=True)
    counts = np.bincount(inverse, weights=rows.counts, minlength=len(different))
    indptr = np.searchsorted(different, np.arange(n + 1) * len(names)).astype(np.int64)
    return SparseRows(
        names, different % len(names), counts.astype(np.float64), indptr, rows.present
    )


def is_sparse(values: Any) -> bool:
    """Return whether a column is a SciPy sparse matrix, without importing SciPy."""
    return hasattr(values, "tocsr")


def from_sparse(field: str, matrix: Any, dictionary: Sequence[str] | None, n: int) -> SparseRows:
    """Read a SciPy sparse matrix with a row an example and a column a declared word.

    Raises InputError if it does not fit the dictionary, or holds a count that is negative or not
    finite.
    """
    rows = _sound_rows(field, matrix)
    if dictionary is None or rows.shape != (n, len(dictionary)):
        raise InputError(
            f"field {field!r}: a sparse matrix needs a column for each word of the dictionary"
            f" ({'none is declared' if dictionary is None else len(dictionary)}) and a row for each"
            f" of {n} examples. Got shape {rows.shape} instead."
        )
    counts = np.asarray(rows.data, dtype=np.float64)
    wrong = np.flatnonzero(~are_amounts(counts))
    if len(wrong):
        row = int(np.searchsorted(rows.indptr, wrong[0], side="right")) - 1
        word = dictionary[int(rows.indices[wrong[0]])]
        raise _wrong(field, row, float(counts[wrong[0]]), f" for {word!r}")
    at = rows.indices.astype(np.int64)
    nonzero = counts != 0
    ends = np.concatenate(([0], np.cumsum(nonzero)))[rows.indptr]
    return SparseRows(
        dictionary, at[nonzero], counts[nonzero], ends.astype(np.int64), np.ones(n, np.bool_)
    )


def _sound_rows(field: str, matrix: Any) -> Any:
    """Return a sparse matrix by rows, each word once a row.

    SciPy's own conversions, as our kernels, take a matrix's places on trust: they are checked
    before and after. What a matrix says of itself (`has_canonical_format`) is not relied on.

    Raises InputError if it is damaged, or holds no numbers.
    """
    if getattr(matrix.dtype, "kind", "?") not in "biuf":
        raise InputError(f"field {field!r}: counts must be numbers. Got {matrix.dtype} instead.")
    try:
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
        _check_places(matrix)
        rows = matrix.tocsr()
        rows.check_format(full_check=True)
        rows = type(rows)((rows.data, rows.indices, rows.indptr), shape=rows.shape)
        if not rows.has_canonical_format:
            rows = rows.copy()  # it may be the caller's own
            rows.sum_duplicates()
    except (TypeError, ValueError, IndexError) as error:
        raise InputError(f"field {field!r}: the sparse matrix is damaged: {error}.") from error
    return rows


def _check_places(matrix: Any) -> None:
    """Refuse places of a matrix in coordinates, which SciPy's conversion takes on trust."""
    for places, size in zip(getattr(matrix, "coords", ()), matrix.shape, strict=False):
        if len(places) != len(matrix.data):
            raise ValueError(f"{len(matrix.data)} counts have {len(places)} places")
        if len(places) and not 0 <= places.min() <= places.max() < size:
            raise ValueError(f"places must lie between 0 and {size - 1}")


def _counted(field: str, row: int, value: Any) -> Mapping[str, float]:
    """Return one example's words with their counts."""
    if isinstance(value, Mapping):
        for word in value:
            if not isinstance(word, str):
                raise InputError(f"field {field!r}, row {row}: a word must be a str. Got {word!r}.")
        return {
            word: _count(field, row, count, f" for {word!r}")
            for word, count in value.items()
            if not is_missing(count)
        }
    if isinstance(value, list | tuple | set | frozenset) and all(isinstance(w, str) for w in value):
        return {word: float(count) for word, count in Counter(value).items()}
    raise InputError(
        f"field {field!r}, row {row}: a mapping of word to count, or a list of str, is wanted. Got"
        f" {shown(value)} ({type(value).__name__}) instead."
    )


def _count(field: str, row: int, count: Any, where: str) -> float:
    is_number = isinstance(count, int | float | np.integer | np.floating) and not is_time(count)
    if not is_number or not (count == 0 or WEIGHT_MIN <= count <= WEIGHT_MAX):
        raise _wrong(field, row, count, where)
    return float(count)


def _numbers(field: str, values: Any, n: int) -> NDArray[np.float64]:
    """Return one column of counts, nan where missing."""
    array = as_array(values)  # what is masked in it is missing
    if array is not None and array.dtype.kind in "iufb":
        with np.errstate(over="ignore"):  # what is too wide for float64 is found below
            column = array.astype(np.float64)
    else:
        column = np.array(
            [
                np.nan if is_missing(v) else _count(field, row, v, "")
                for row, v in enumerate(as_list(field, values if array is None else array))
            ],
            dtype=np.float64,
        )
    if column.shape != (n,):
        raise InputError(f"field {field!r}: {n} counts are wanted. Got shape {column.shape}.")
    wrong = np.flatnonzero(~(are_amounts(column) | np.isnan(column)))
    if len(wrong):
        raise _wrong(field, int(wrong[0]), float(column[wrong[0]]), "")
    return column


def _wrong(field: str, row: int, value: Any, where: str) -> InputError:
    return InputError(
        f"field {field!r}, row {row}: a count{where} must be {AMOUNTS}. Got {shown(value)} instead."
    )


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
    hybrid : Hybrid, optional
        As for `Words`; names with spaces count as n-grams, a `¬` before one as negation.

    Examples
    --------
    >>> from streamnb.likelihoods.multinomial import Multinomial
    >>> Bag(Multinomial(), field="counts").field
    'counts'
    """

    likelihood: WordLikelihood
    field: str | None = None
    fields: tuple[str, ...] | None = None
    dictionary: tuple[str, ...] | None = None
    max_words: int = 1_000_000
    hybrid: Hybrid | None = None

    def __post_init__(self) -> None:
        check_words("Bag", self.likelihood, self.field)
        check_hybrid("Bag", self.hybrid, self.likelihood)
        if self.field is not None and self.fields is not None:
            raise InputError(
                f"Bag takes field or fields, not both. Got {self.field!r} and {self.fields!r}."
            )
        object.__setattr__(self, "max_words", check_max("max_words", self.max_words))
        object.__setattr__(self, "dictionary", check_dictionary(self.dictionary))
        named = check_dictionary(self.fields)
        object.__setattr__(self, "fields", named)

    def start(self, name: str, n_classes: int, hash_key: int) -> BagState:
        """Return the state of a group that has learned nothing."""
        return BagState(self, name, n_classes, hash_key)

    def to_dict(self) -> dict[str, Any]:
        """Return the specification for the model's header."""
        return plain_values(self) | {"kind": "bag"}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the specification that `to_dict` described."""
        read = {
            "likelihood": likelihood_from_dict(values["likelihood"]),
            "hybrid": hybrid_from_dict(values.get("hybrid")),
        }
        return cls(**{name: value for name, value in (values | read).items() if name != "kind"})


class BagState(CountedState):
    """The state of `Bag`: counts to columns; the rest is `CountedState`'s."""

    spec: Bag

    def __init__(self, spec: Bag, name: str, n_classes: int, hash_key: int) -> None:
        self.is_open = spec.field is None and spec.fields is None
        self.may_lack_fields = spec.fields is not None
        super().__init__(spec, name, n_classes, hash_key_words(hash_key), spec.dictionary)

    @property
    def fields(self) -> Sequence[str]:
        """The fields it names; none where every number is a count."""
        if self.spec.field is not None:
            return (self.spec.field,)
        return self.spec.fields or ()

    def accepts(self, values: Any) -> bool:
        """Return whether a new field holds counts: numbers, where they are not missing."""
        if isinstance(values, np.ndarray) and values.dtype.kind in "iuf":
            return True
        first = first_present(values)
        is_number = isinstance(first, int | float | np.number) and not is_time(first)
        return is_number and not isinstance(first, bool)

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
        return Batch(rows, np.ascontiguousarray(counted.present[begin:end]))

    def encode_to_unlearn(self, counted: SparseRows, labels: NDArray[np.int32]) -> BatchToUnlearn:
        """Return all rows with their unknown words; the vocabulary stays as it is."""
        n_rows = len(labels)
        ends = counted.indptr[: n_rows + 1]
        n = int(ends[-1])
        names, counts = counted.names_at[:n], counted.counts[:n]
        columns = self._columns(counted, names, 0, n_rows, labels, learn=False)
        if self.n_declared:  # other words are none
            known = columns >= 0
            ends = np.concatenate(([0], np.cumsum(known)))[ends]
            names, counts, columns = names[known], counts[known], columns[known]
        if not self.spec.likelihood.counts_occurrences:
            counts = np.ones(len(counts))
        rows = Rows(columns, counts, ends.astype(np.int64))
        return BatchToUnlearn(
            rows, counted.present[:n_rows].copy(), lambda at: counted.names[int(names[at])]
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
                texts = Strings(fresh, has_missing=False).piece(0, len(fresh))
                by_name[wanted] = self.vocabulary.enter(fingerprints_of(texts, self.key), texts)
                self.read_kinds()
        columns: NDArray[np.int32] = by_name[names]
        return columns

    def can_encode_one(self, x: Mapping[str, Any]) -> bool:
        """Return whether its field holds a plain mapping of words to counts above zero."""
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

    def encode_one(self, x: Mapping[str, Any], scratch: Any, *, learn: bool) -> Batch:  # noqa: ARG002
        """Return one example's counts as `encode` does."""
        assert self.spec.field is not None  # `can_encode_one` has said so
        counted = x[self.spec.field]
        words = sorted(counted)  # as a batch has them
        texts = Strings(words, has_missing=False).piece(0, len(words))
        fps = fingerprints_of(texts, self.key)
        if learn and not self.n_declared:
            columns = self.vocabulary.enter(fps, texts)
            self.read_kinds()
        else:
            columns = self.vocabulary.look_up(fps)
            columns[columns >= self._n_counted] = -1
        counts = np.ones(len(words))
        if self.spec.likelihood.counts_occurrences:
            counts[:] = [counted[word] for word in words]
        known = columns >= 0
        if not known.all():
            columns, counts = columns[known], counts[known]
        return Batch(Rows(columns, counts, np.array([0, len(columns)])), _PRESENT)


_WORDS = frozenset({str})
_COUNTS = frozenset({int, float})
_PRESENT: NDArray[np.bool_] = np.ones(1, dtype=np.bool_)
