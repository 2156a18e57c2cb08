"""What a file holds of a group of categories: a function of the counts alone.

Values stand in the order of their fingerprints and fields in that of their names, whatever order
they came in: so two models that know the same are the same file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.categories import counts as category_counts
from streamnb.categories.table import ValueTable
from streamnb.errors import InputError
from streamnb.groups import Arrays
from streamnb.kernels import lookup
from streamnb.kernels.categorical import ValueCounts
from streamnb.kernels.layout import Texts


@dataclass(frozen=True, slots=True)
class Shared:
    """What the file holds, as places in memory.

    Attributes
    ----------
    columns : ndarray of shape (n_values,), int64
    fields : ndarray of shape (n_fields,), int64
    """

    columns: NDArray[np.int64]
    fields: NDArray[np.int64]


def shared(table: ValueTable, counts: ValueCounts, spec: Any) -> Shared:
    """Return the values with a count above zero, and the fields that have one or are named."""
    columns = category_counts.live_columns(counts)
    order = np.argsort(table.vocabulary.table.fingerprints[columns])
    named = spec.fields or [name for name, _ in spec.values]
    live = set(np.flatnonzero(counts.n_values).tolist())
    live.update(table.fields.places[name] for name in named)
    fields = [j for j in table.fields.order.tolist() if j in live]
    return Shared(columns[order], np.array(fields, dtype=np.int64))


def pack_table(prefix: str, table: ValueTable, chosen: Shared) -> Arrays:
    """Return fingerprints, texts and fields of the chosen values."""
    vocabulary = table.vocabulary.keep(chosen.columns)
    kept, n = vocabulary.table, vocabulary.n_words
    places = np.full(len(table.fields), -1, dtype=np.int32)
    places[chosen.fields] = np.arange(len(chosen.fields))
    return {
        f"{prefix}/fingerprints": kept.fingerprints[:n],
        f"{prefix}/values": kept.words[: kept.state[lookup.TEXT_BYTES]],
        f"{prefix}/value_ends": kept.word_ends[:n],
        f"{prefix}/field_of": places[table.field_of[chosen.columns]],
    }


def unpack_table(prefix: str, arrays: Arrays, names: list[str], table: ValueTable) -> Shared:
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
    return Shared(columns, fields)
