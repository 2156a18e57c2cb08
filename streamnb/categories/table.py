"""Field and value → column: the fields of a group of categories, and the vocabulary behind them.

Declared values have the first columns, in the order they were declared, for good.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.categories.desk import ValueDesk
from streamnb.categories.values import ValueColumns, texts_of
from streamnb.fields import FieldTable
from streamnb.kernels import lookup
from streamnb.kernels import values as kernel
from streamnb.kernels.layout import Texts
from streamnb.tokenizer import hash_key_words
from streamnb.vocabulary import Vocabulary


class ValueTable:
    """The columns of a group's values.

    Parameters
    ----------
    names : sequence of str
        The fields known from the start.
    declared : sequence of (str, sequence of str)
        The values that some of them have.
    hash_key : int
        128 bits.

    Attributes
    ----------
    fields : FieldTable
        In the order they came.
    vocabulary : Vocabulary
    field_of : ndarray of shape (capacity,), int32
        The place of each column's field.
    n_declared : int
        How many values are declared, over all fields.
    """

    def __init__(
        self,
        names: Sequence[str],
        declared: Sequence[tuple[str, Sequence[str]]],
        hash_key: int,
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
        lookup.find_many(fps, table.slots, table.fingerprints, self.vocabulary.n_words, out)
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
        self, x: Mapping[str, Any], desk: ValueDesk, *, learn: bool
    ) -> NDArray[np.int32]:
        """Return one example's known fields as `encode` does."""
        n = len(self.fields)
        out = np.empty((1, n), dtype=np.int32)
        texts = desk.put(self.fields.names, x)
        self._encode(texts, desk.which[n], desk.labels, desk.words, out, learn=learn)
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
        while why != lookup.DONE:
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
            if why != lookup.DONE:
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

        Returns
        -------
        ndarray of int64
            The columns whose text is cut short; where there are any, nothing has changed.
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
        texts = Texts(data, starts + names[places], ends)
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
