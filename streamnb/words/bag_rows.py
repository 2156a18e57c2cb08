"""Counts in: columns of numbers, mappings, lists of words, or a sparse matrix, as sparse rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.decay import AMOUNTS, WEIGHT_MAX, WEIGHT_MIN, are_amounts
from streamnb.errors import InputError
from streamnb.matrix import as_array, is_missing


class SparseRows(NamedTuple):
    """Counts of examples: row i is entries indptr[i] to indptr[i + 1], none of them zero.

    Attributes
    ----------
    names : sequence of str
        The words that occur; a declared dictionary itself where a matrix has a column for each.
    names_at : ndarray of shape (n_entries,), int64
        Each entry's place in `names`.
    counts : ndarray of shape (n_entries,), float64
    indptr : ndarray of shape (n + 1,), int64
    there : ndarray of shape (n,), bool
        False where an example's counts are missing altogether.
    """

    names: Sequence[str]
    names_at: NDArray[np.int64]
    counts: NDArray[np.float64]
    indptr: NDArray[np.int64]
    there: NDArray[np.bool_]


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

    Raises
    ------
    InputError
        For a value that is no number of at least 0: field, row, value.
    """
    # In the order of their names: in which one they came is not to be seen, not in the last digit.
    there_are = [(str(name), values) for name, values in columns.items() if values is not None]
    by_name = sorted(there_are, key=itemgetter(0))
    names = [name for name, _ in by_name]
    grid = np.empty((n, len(names)))
    there = np.zeros(n, dtype=np.bool_)
    for k, (name, values) in enumerate(by_name):
        grid[:, k] = _numbers(name, values, n)
    there |= ~np.isnan(grid).all(axis=1) if names else False
    rows, at = np.nonzero(np.nan_to_num(grid))
    indptr = np.searchsorted(rows, np.arange(n + 1)).astype(np.int64)
    return _by_form(SparseRows(names, at.astype(np.int64), grid[rows, at], indptr, there))


def from_mappings(field: str, values: Any, n: int) -> SparseRows:
    """Read a field of mappings of word to count, or of lists of words; None is missing.

    Raises
    ------
    InputError
        For a value that is neither, or a count that is no number of at least 0.
    """
    places: dict[str, int] = {}
    at: list[int] = []
    counts: list[float] = []
    indptr = np.zeros(n + 1, dtype=np.int64)
    there = np.zeros(n, dtype=np.bool_)
    for row, value in enumerate([None] * n if values is None else list(values)):
        if not is_missing(value):
            there[row] = True
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
            there,
        )
    )


def have_form(words: Iterable[str]) -> bool:
    """Tell whether all words have a UTF-8 form: a lone surrogate has none.

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
    return SparseRows(names, different % len(names), counts.astype(np.float64), indptr, rows.there)


def is_sparse(values: Any) -> bool:
    """Tell whether a column is a SciPy sparse matrix, without importing SciPy."""
    return hasattr(values, "tocsr")


def from_sparse(field: str, matrix: Any, dictionary: Sequence[str] | None, n: int) -> SparseRows:
    """Read a SciPy sparse matrix with a row an example and a column a declared word.

    Raises
    ------
    InputError
        Where it does not fit the dictionary, or holds a count that is negative or not finite.
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

    Raises
    ------
    InputError
        Where it is damaged, or holds no numbers.
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
        f" {value!r} ({type(value).__name__}) instead."
    )


def _count(field: str, row: int, count: Any, where: str) -> float:
    is_number = isinstance(count, int | float | np.integer | np.floating)
    if not is_number or not (count == 0 or WEIGHT_MIN <= count <= WEIGHT_MAX):
        raise _wrong(field, row, count, where)
    return float(count)


def _numbers(field: str, values: Any, n: int) -> NDArray[np.float64]:
    """Return one column of counts, nan where missing."""
    array = as_array(values)  # what is masked in it is missing
    if array is not None and array.dtype.kind in "iufb":
        column = array.astype(np.float64)
    else:
        column = np.array(
            [
                np.nan if is_missing(v) else _count(field, row, v, "")
                for row, v in enumerate(values if array is None else array.tolist())
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
        f"field {field!r}, row {row}: a count{where} must be {AMOUNTS}. Got {value!r} instead."
    )
