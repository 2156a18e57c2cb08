"""Field and value → column: the fields of a group of categories, and the vocabulary behind them.

Declared values have the first columns, in the order they were declared, for good.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import (
    LARGEST,
    NUMBERS,
    Strings,
    TextColumn,
    TextPieces,
    as_array,
    as_list,
    check_length,
    is_missing,
    is_time,
    read_column,
    text_column,
)
from streamnb.errors import InputError, shown
from streamnb.features.fields import FieldTable
from streamnb.features.protocol import ExampleScratch
from streamnb.features.statistics import Arrays
from streamnb.kernels import categorical as kernel
from streamnb.kernels import word_table
from streamnb.kernels.layout import Texts
from streamnb.tokenizer import hash_key_words
from streamnb.vocabulary import Vocabulary

# A step in arsinh of the number, or edges that rise; None: values are no numbers in bins.
Bins = float | tuple[float, ...] | None
_SOME_LABEL = np.zeros(1, dtype=np.int32)


class ValueTable:
    """The columns of a group's values.

    `names`: the fields known from the start. `declared`: the values that some of them have.
    `hash_key`: 128 bits. `fields`: in the order they came. `field_of` (capacity,): the place of
    each column's field. `n_declared`: how many values are declared, over all fields.
    """

    def __init__(
        self, names: Sequence[str], declared: Sequence[tuple[str, Sequence[str]]], hash_key: int
    ) -> None:
        self.key = hash_key_words(hash_key)
        self.vocabulary = Vocabulary()
        self.field_of = np.zeros(self.vocabulary.capacity, dtype=np.int32)
        self._declared = {name: len(values) for name, values in declared}
        self.n_declared = sum(self._declared.values())
        self._set_fields(FieldTable.of(names))
        for name, values in declared:
            self.enter(
                self.fingerprints(name, values),
                texts_of([f"{name}\0{value}" for value in values]),
                np.full(len(values), self.fields.places[name]),
            )

    def declared(self, fields: FieldTable) -> NDArray[np.int64]:
        """Return how many values each field declares; 0 where they come as they please."""
        return np.array([self._declared.get(name, 0) for name in fields.names], dtype=np.int64)

    def add_fields(self, names: Sequence[str]) -> None:
        """Give places to fields that have none."""
        fields = self.fields.with_new(names)
        if fields is not self.fields:
            self._set_fields(fields)

    def _set_fields(self, fields: FieldTable) -> None:
        encoded = [name.encode() + b"\0" for name in fields.names]
        self._layout = kernel.Fields(
            _fingerprints(np.zeros(len(fields), dtype=np.uint64), fields.names, self.key),
            np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8),
            np.cumsum([len(name) for name in encoded], dtype=np.int64),
            np.array([name not in self._declared for name in fields.names], dtype=np.bool_),
        )
        self.fields = fields

    def fingerprints(self, field: str, values: Sequence[str]) -> NDArray[np.uint64]:
        """Return the fingerprints of values of a known field."""
        of_field = self._layout.fingerprints[self.fields.places[field]]
        return _fingerprints(np.full(len(values), of_field), values, self.key)

    def find(self, field: str, values: Sequence[str]) -> NDArray[np.int32]:
        """Return the columns of values of a known field, -1 where there is none."""
        table = self.vocabulary.table
        out = np.full(len(values), -1, dtype=np.int32)
        fps = self.fingerprints(field, values)
        word_table.find_many(fps, table.slots, table.fingerprints, self.vocabulary.n_words, out)
        return out

    def enter(
        self, fps: NDArray[np.uint64], texts: Texts, fields: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the columns of values (`field NUL value` as text); those that are new get one."""
        columns = self.vocabulary.enter(fps, texts).astype(np.int64)
        self._follow_vocabulary()
        self.field_of[columns] = fields
        return columns

    def _follow_vocabulary(self) -> None:
        if len(self.field_of) < self.vocabulary.capacity:
            longer = np.zeros(self.vocabulary.capacity, dtype=np.int32)
            longer[: len(self.field_of)] = self.field_of
            self.field_of = longer

    def encode(
        self, source: ValueColumns, begin: int, end: int, labels: NDArray[np.int32], *, learn: bool
    ) -> NDArray[np.int32]:
        """Return rows `begin` to `end` as columns, ndarray of shape (n, n_fields).

        To learn, fields and values of which something is to be learned get places.
        """
        pieces = {name: column.piece(begin, end) for name, column in source.columns.items()}
        if learn:
            taught = labels[: end - begin] >= 0
            self.add_fields(
                [name for name, texts in pieces.items() if ((texts.ends >= 0) & taught).any()]
            )
        out = np.full((end - begin, len(self.fields)), kernel.MISSING, dtype=np.int32)
        for name, texts in pieces.items():
            if name in self.fields.places:
                which = np.array([self.fields.places[name]])
                self._encode(texts, which, labels, _room_for(texts), out, learn=learn)
        return out

    def encode_one(
        self, x: Mapping[str, Any], scratch: ExampleScratch, *, learn: bool
    ) -> NDArray[np.int32]:
        """Return one example's known fields as `encode` does."""
        n = len(self.fields)
        out = np.empty((1, n), dtype=np.int32)
        texts = scratch.put_values(self.fields.names, x)
        # Whether there is something to learn, `learn` says; any label will do.
        labels = _SOME_LABEL
        self._encode(texts, scratch.places[n], labels, scratch.words, out, learn=learn)
        return out

    def _encode(
        self,
        texts: Texts,
        which: NDArray[np.int64],
        labels: NDArray[np.int32],
        words: NDArray[np.uint64],
        out: NDArray[np.int32],
        *,
        learn: bool,
    ) -> None:
        n_known = self.vocabulary.n_words
        row, why = 0, -1
        while why != word_table.DONE:
            row, why, wanted = kernel.encode(
                texts,
                which,
                labels[: len(out)],
                row,
                learn,
                n_known,
                self._layout,
                self.key,
                self.vocabulary.table,
                words,
                self.field_of,
                out,
            )
            if why != word_table.DONE:
                self.vocabulary.make_room(why, wanted)
                self._follow_vocabulary()

    def keep(self, columns: NDArray[np.int64]) -> None:
        """Move to a new vocabulary in which column i is the old `columns[i]`."""
        self.vocabulary = self.vocabulary.keep(columns)
        field_of = self.field_of[columns]
        self.field_of = np.zeros(self.vocabulary.capacity, dtype=np.int32)
        self.field_of[: len(columns)] = field_of

    def rekey(self, hash_key: int) -> NDArray[np.int64]:
        """Go on with another hash key, unless a value's text is cut short.

        Returns the columns whose text is cut short; where there are any, nothing has changed.
        """
        n = self.vocabulary.n_words
        fps = self.vocabulary.table.fingerprints[:n]
        cut = np.flatnonzero(self._fingerprints_of_all() != fps)
        if not len(cut):
            self.key = hash_key_words(hash_key)
            self._set_fields(self.fields)
            self.vocabulary = self.vocabulary.with_fingerprints(self._fingerprints_of_all())
            self._follow_vocabulary()
        return cut

    def _fingerprints_of_all(self) -> NDArray[np.uint64]:
        """Return the fingerprints of all columns by the texts kept, and the key as it stands."""
        n = self.vocabulary.n_words
        places = self.field_of[:n]
        data, starts, ends = self.vocabulary.texts(np.arange(n))
        names = np.diff(self._layout.name_ends, prepend=0)  # each with the NUL behind it
        # A text that was cut short, or forged, may end within its field's name.
        texts = Texts(data, np.minimum(starts + names[places], ends), ends)
        out = np.empty(n, dtype=np.uint64)
        of_fields = self._layout.fingerprints[places]
        kernel.fingerprint_many(texts, of_fields, self.key, _room_for(texts), out)
        return out

    def view(self) -> Self:
        """Return this table as it is now, over the same arrays: what comes later is beyond it."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.vocabulary = self.vocabulary.view()
        return twin

    def values(self, columns: NDArray[np.int64]) -> list[tuple[str, str]]:
        """Return field and value of columns; a long value as it is kept, cut short."""
        pairs = [text.partition("\0") for text in self.vocabulary.words(columns)]
        return [(field, value) for field, _, value in pairs]


def _fingerprints(
    of_fields: NDArray[np.uint64], texts: Sequence[str], key: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    out = np.empty(len(texts), dtype=np.uint64)
    given = texts_of(list(texts))
    kernel.fingerprint_many(given, of_fields, key, _room_for(given), out)
    return out


def _room_for(texts: Texts) -> NDArray[np.uint64]:
    """Return room for the longest of some texts, in words of eight bytes."""
    longest = int((texts.ends - texts.starts).max(initial=0))
    return np.empty(longest // 8 + 2, dtype=np.uint64)


_TRUTH = {False: "false", True: "true"}


@dataclass(frozen=True, slots=True)
class ValueColumns:
    """The fields of some examples as columns of text."""

    columns: Mapping[str, TextPieces]
    n: int  # how many examples there are

    def text(self, field: str, row: int) -> str | None:
        """Return one value's text, None where it is missing."""
        if field not in self.columns:
            return None
        data, starts, ends = self.columns[field].piece(row, row + 1)
        if ends[0] < 0:
            return None
        return data[starts[0] : ends[0]].tobytes().decode("utf-8", "replace")


def value_text(field: str, row: int, value: Any) -> str | None:
    """Return a value's text, None where it is missing.

    Raises InputError if it is no text, number or truth value; it names the field, the row and the
    value.
    """
    kind = type(value)
    if kind is str:
        return str(value)
    if kind is bool or kind is np.bool_:
        return _TRUTH[bool(value)]
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | np.integer) and not is_time(value):
        with contextlib.suppress(ValueError):  # Python prints no number of so many digits
            return str(int(value))
    if isinstance(value, float | np.floating):
        return _float_text(float(value))
    if _is_missing(value):
        return None
    raise InputError(
        f"field {field!r}, row {row}: a category must be a str, a number, or True or False; or None"
        f" where it is missing. Got {shown(value)} ({kind.__name__}) instead."
    )


def _float_text(value: float) -> str | None:
    if math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)


def value_column(field: str, values: Any, n: int) -> TextPieces:
    """Return a column of `n` values as text.

    Raises InputError if one is no category, or there are not `n` of them.
    """
    text = _column(field, values)
    check_length(field, text, n)
    return text


def _column(field: str, values: Any) -> TextPieces:
    if isinstance(values, TextColumn):
        return text_column(field, values)
    array = as_array(values)
    if array is not None and array.ndim == 1 and array.dtype.kind in "biuf":
        return _numbers(array)
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        return text_column(field, values)  # it says what is wrong
    plain = as_list(field, values if array is None else array)
    if set(map(type, plain)) <= {str}:
        return Strings(plain, has_missing=False)
    texts = [value_text(field, row, value) for row, value in enumerate(plain)]
    return Strings(texts, has_missing=None in texts)


def _numbers(values: NDArray[Any]) -> TextColumn:
    """Return an array of numbers as text: each different one is printed once."""
    different, inverse = np.unique(values, return_inverse=True)
    return _repeated([value_text("", 0, value) for value in different.tolist()], inverse)


def _repeated(texts: Sequence[str | None], inverse: NDArray[np.intp]) -> TextColumn:
    """Return a column of which each entry is one of some texts."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    sizes = np.array([len(text) for text in encoded], dtype=np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    ends[[text is None for text in texts]] = -1
    data = np.frombuffer(bytearray(b"".join(encoded)), dtype=np.uint8)
    return TextColumn(Texts(data, starts[inverse], ends[inverse]))


# ---- numbers in bins -----------------------------------------------------------------------------

_STEP_MIN, _STEP_MAX = 0.01, 10.0


def check_bins(bins: Any) -> Bins:
    """Return bins as a step or as edges; refuse others."""
    if bins is None:
        return None
    if isinstance(bins, int | float | np.integer | np.floating) and not isinstance(bins, bool):
        if not _STEP_MIN <= bins <= _STEP_MAX:
            raise InputError(
                f"bins, as a step, must be between {_STEP_MIN:g} and {_STEP_MAX:g}. Got {bins!r}"
                " instead."
            )
        return float(bins)
    is_list = isinstance(bins, Sequence | np.ndarray) and not isinstance(bins, str)
    if not is_list or getattr(bins, "ndim", 1) != 1:
        raise InputError(f"bins must be None, a step, or edges that rise. Got {bins!r} instead.")
    edges = read_column(NUMBERS, "bins", bins, len(bins))
    if not len(edges) or np.isnan(edges).any() or not (np.diff(edges) > 0.0).all():
        raise InputError(f"bins, as edges, must be numbers that rise. Got {bins!r} instead.")
    return tuple(edges.tolist())


@functools.lru_cache(maxsize=64)
def _edges(bins: Bins) -> NDArray[np.float64]:
    """Return the edges of bins, ascending: of a step those where arsinh is a multiple of it."""
    if isinstance(bins, tuple):
        return np.array(bins)
    assert bins is not None
    n = math.ceil(math.asinh(LARGEST) / bins)
    return np.array([math.sinh(k * bins) for k in range(-n, n + 1)])


def bin_texts(bins: Bins, places: Sequence[int] | None = None) -> list[str]:
    """Return what bins are called, from the lowest on: all of them, or those at some places."""
    edges = _edges(bins).tolist()
    last, shown = len(edges), _edge_text if isinstance(bins, tuple) else "{:.6g}".format
    found = []
    for k in range(last + 1) if places is None else places:
        low, high = map(shown, (edges[max(k, 1) - 1], edges[min(k, last - 1)]))
        name = f"below {high}" if k == 0 else f"{low} and above"
        found.append(f"{low} to {high}" if 0 < k < last else name)
    return found


def _edge_text(edge: float) -> str:
    """Return an edge as people write it, whole: two edges that differ have two names."""
    text = f"{edge:.15g}"
    return text if float(text) == edge else repr(edge)


def binned_column(field: str, values: Any, n: int, bins: Bins) -> TextColumn:
    """Return a column of `n` numbers as the texts of their bins.

    A number on an edge is in the bin above it. Raises InputError if a value is no number.
    """
    numbers = read_column(NUMBERS, field, values, n)
    places = np.searchsorted(_edges(bins), numbers, side="right")
    places[np.isnan(numbers)] = -1
    different, inverse = np.unique(places, return_inverse=True)
    is_missing_first = bool(len(different)) and int(different[0]) < 0
    texts: list[str | None] = [None] if is_missing_first else []
    return _repeated([*texts, *bin_texts(bins, different[len(texts) :].tolist())], inverse)


def texts_of(values: list[str]) -> Texts:
    """Return texts as one buffer."""
    return Strings(list(values), has_missing=False).piece(0, len(values))


def are_categories(values: Any) -> bool:
    """Return whether values that came under a new name are texts or truth values.

    The first that is there decides, as it does where examples come one at a time. Numbers are not
    taken for categories unless a group names their field.
    """
    if isinstance(values, TextColumn):
        return bool((values.texts.ends >= 0).any())
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        return False
    array = as_array(values)
    plain = values if array is None else array.tolist()
    first = next((value for value in plain if not _is_missing(value)), None)
    return isinstance(first, str | bool | np.bool_)


def _is_missing(value: Any) -> bool:
    return is_missing(value) or type(value).__name__ == "NaTType"


class LiveValues(NamedTuple):
    """The columns and fields that a file holds."""

    columns: NDArray[np.int64]  # (n_values,)
    fields: NDArray[np.int64]  # (n_fields,)


def pack_table(prefix: str, table: ValueTable, chosen: LiveValues) -> Arrays:
    """Return fingerprints, texts and fields of the chosen values."""
    fps, values, ends = table.vocabulary.arrays_of(chosen.columns)
    places = np.full(len(table.fields), -1, dtype=np.int32)
    places[chosen.fields] = np.arange(len(chosen.fields))
    return {
        f"{prefix}/fingerprints": fps,
        f"{prefix}/values": values,
        f"{prefix}/value_ends": ends,
        f"{prefix}/field_of": places[table.field_of[chosen.columns]],
    }


def unpack_table(prefix: str, arrays: Arrays, names: list[str], table: ValueTable) -> LiveValues:
    """Enter fields and values that were packed; return the places they have here."""
    table.add_fields(names)
    fields = np.array([table.fields.places[name] for name in names], dtype=np.int64)
    # Copies: a file's arrays cannot be written to, and to the kernels that is another type.
    ends = np.array(arrays[f"{prefix}/value_ends"])
    starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])[: len(ends)]
    field_of = fields[arrays[f"{prefix}/field_of"]]
    if len(field_of) != len(ends):
        raise InputError(f"there are {len(ends)} values, and fields of {len(field_of)}.")
    columns = table.enter(
        np.array(arrays[f"{prefix}/fingerprints"]),
        Texts(np.array(arrays[f"{prefix}/values"]), starts, ends),
        field_of,
    )
    is_open = table.declared(table.fields)[field_of] == 0
    if (columns[~is_open] >= table.n_declared).any():
        raise InputError(f"{prefix} has values that their field does not declare.")
    return LiveValues(columns, fields)
