"""Messages to rows of the table, column by column.

Python that runs for each message holds the interpreter's lock. A thread of its own for it would
take the lock from the learning at the worst of moments, and cost many times what it does. So where
a stream is so fast that a sample is taken of it, the thread that has just judged a message makes
its row, while the batch is still in the processor's cache; the store's thread is left with what
SQLite does, which needs no lock. What a slower stream brings the store's thread makes as well: then
nobody waits for the lock.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.messages import NO_LABEL, Messages, pairs, part_name
from consumers.search.fts import without_marks
from consumers.search.index_tokens import signs_of, with_lang
from consumers.search.tables import COLUMNS, Values
from streamnb import TextColumn

TEXT_MAX = 4_000  # characters that are shown and searched
_TIME_MAX_MS = 1 << 53  # beyond it no browser knows a date, and JSON no exact number

Columns = dict[str, list[Any]]
_json = msgspec.json.Encoder().encode


def crc_of(id: str) -> int:  # noqa: A002 -- it is one
    """Return the checksum by which ids are looked up."""
    return zlib.crc32(id.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class RowBuilder:
    """Makes rows; any thread may use it.

    Attributes
    ----------
    codes : mapping of str to int
        The number of each of the model's classes.
    fields : tuple of str
        The model's.
    times_made_up : bool
        Whether what messages say of their own time means nothing.
    """

    codes: Mapping[str, int]
    fields: tuple[str, ...]
    times_made_up: bool = False

    def columns(
        self,
        messages: Messages,
        rows: NDArray[np.int64],
        log_posteriors: NDArray[np.float64],
        arrived_ms: int,
    ) -> Columns:
        """Return some messages as columns of the table.

        Parameters
        ----------
        messages : Messages
        rows : ndarray of shape (n,), int64
            Which of them, ascending.
        log_posteriors : ndarray of shape (n, n_classes), in nats
        arrived_ms : int
            When they came, in Unix milliseconds.

        Returns
        -------
        dict of str to list of length n
            All of `tables.COLUMNS` but those that only the file can give; see `placed`.
        """
        n = len(rows)
        about = messages.metadata(messages.raw, messages.at[rows])
        texts = messages.shown_texts(rows)
        shown = [
            without_marks((text or pairs(own))[:TEXT_MAX])
            for text, own in zip(texts, about.fields, strict=True)
        ]
        shares = np.exp(log_posteriors)
        likeliest = shares.argmax(axis=1)
        truths = self._truths(messages, rows)
        part = part_name(messages.partition)
        return {
            "id": about.ids,
            "id_crc": list(map(crc_of, about.ids)),
            "offset": messages.offsets[rows].tolist(),
            "time_ms": [-1] * n if self.times_made_up else _bounded(about.times_ms),
            "arrived_ms": [arrived_ms] * n,
            "user": about.users,
            "lang": about.langs,
            "text": shown,
            "signs": list(map(signs_of, shown)),
            "example": self._examples(messages, rows, texts, shown),
            "label": likeliest.tolist(),
            "probability": shares[np.arange(n), likeliest].tolist(),
            "probabilities": [_json(row).decode() for row in shares.tolist()],
            "truth": truths,
            "taught": list(truths),
            "taught_part": [None if truth is None else part for truth in truths],
            "corrected": [None] * n,
        }

    def _truths(self, messages: Messages, rows: NDArray[np.int64]) -> list[int | None]:
        codes = [self.codes.get(name) for name in messages.classes]
        return [None if k == NO_LABEL else codes[k] for k in messages.labels[rows].tolist()]

    def _examples(
        self, messages: Messages, rows: NDArray[np.int64], texts: list[str], shown: list[str]
    ) -> list[str | None]:
        """Return the fields that the model reads, as they were decoded, as JSON.

        That is None where they are just the text that is shown.
        """
        names = [name for name in self.fields if name != "text"]
        has_text = len(names) < len(self.fields)
        others: list[dict[str, Any]] = [{}] * len(texts)
        if names:
            columns = [_values(messages, rows, name) for name in names]
            others = [
                {name: v for name, v in zip(names, values, strict=True) if v is not None}
                for values in zip(*columns, strict=True)
            ]
        return [
            None
            if has_text and not other and text == kept
            else _json({"text": text} | other if has_text else other).decode()
            for text, kept, other in zip(texts, shown, others, strict=True)
        ]


def some(columns: Columns, chosen: Sequence[int]) -> Columns:
    """Return some rows, given by their positions, ascending."""
    if len(chosen) == len(columns["id"]):
        return columns
    return {name: [column[k] for k in chosen] for name, column in columns.items()}


def placed(
    columns: Columns, first_key: int, place: int, lang_code: Callable[[str | None], int]
) -> Columns:
    """Return rows with what the file knows of them.

    Parameters
    ----------
    columns : dict of str to list of length n
        As `RowBuilder.columns` made them.
    first_key : int
        The first row's key; the others count up.
    place : int
        The number of their partition.
    lang_code : callable
        Returns the number of a language, of None too.

    Returns
    -------
    dict of str to list of length n
        By the names of `tables.COLUMNS`, in their order.
    """
    n = len(columns["id"])
    langs = list(map(lang_code, columns["lang"]))
    whole = columns | {
        "key": list(range(first_key, first_key + n)),
        "place": [place] * n,
        "lang_code": langs,
        "signs": list(map(with_lang, columns["signs"], langs)),
    }
    return {name: whole[name] for name in COLUMNS}


def values_of(columns: Columns) -> list[Values]:
    """Return all columns as rows."""
    return list(zip(*columns.values(), strict=True))


def _bounded(times_ms: list[int]) -> list[int]:
    bounded: list[int] = np.clip(times_ms, -_TIME_MAX_MS, _TIME_MAX_MS).tolist()
    return bounded


def _values(messages: Messages, rows: NDArray[np.int64], name: str) -> list[Any]:
    """Return one field of some messages, None where it is missing."""
    column = messages.fields.get(name)
    if column is None:
        return [None] * len(rows)
    if not isinstance(column, TextColumn):
        return [None if np.isnan(value) else value for value in column[rows].tolist()]
    data, starts, ends = column.texts
    lies = zip(starts[rows].tolist(), ends[rows].tolist(), strict=True)
    return [None if e < 0 else data[s:e].tobytes().decode("utf-8", "replace") for s, e in lies]
