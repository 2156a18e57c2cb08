"""Messages to rows of the table, here on the writer's thread: column by column.

Python that runs for each message holds the interpreter's lock, which the learning needs. So a
message is a handful of entries in lists here, and becomes an object only where somebody looks.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.messages import NO_LABEL, Messages, pairs
from consumers.recent.intake import Offer
from consumers.recent.matching import without_marks
from consumers.recent.signs import signs_of
from consumers.recent.tables import Values
from streamnb import TextColumn

TEXT_MAX = 4_000  # characters that are shown and searched
_TIME_MAX_MS = 1 << 53  # beyond it no browser knows a date, and JSON no exact number

Columns = dict[str, list[Any]]
_json = msgspec.json.Encoder().encode


def crc_of(id: str) -> int:  # noqa: A002 -- it is one
    """Return the checksum by which ids are looked up."""
    return zlib.crc32(id.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes rows.

    Attributes
    ----------
    codes : mapping of str to int
        The number of each of the model's classes.
    fields : tuple of str
        The model's.
    lang_code : callable
        Returns the number of a language, of None too.
    """

    codes: Mapping[str, int]
    fields: tuple[str, ...]
    lang_code: Callable[[str | None], int]

    def columns(
        self, offer: Offer, chosen: NDArray[np.int64], first_key: int, place: int, part: str
    ) -> Columns:
        """Return some of the messages of an offer as columns of the table.

        Parameters
        ----------
        offer : Offer
        chosen : ndarray of shape (n,), int64
            Positions in its `rows`, ascending.
        first_key : int
            The first row's key; the others count up.
        place : int
            The number of its partition.
        part : str
            The model's part that labelled messages of it teach.

        Returns
        -------
        dict of str to list of length n
            By the names of `tables.COLUMNS`, in their order.
        """
        messages, n = offer.messages, len(chosen)
        at = offer.rows[chosen]
        about = messages.about(messages.raw, messages.at[at])
        texts = messages.shown_texts(at)
        shown = [
            without_marks((text or pairs(own))[:TEXT_MAX])
            for text, own in zip(texts, about.fields, strict=True)
        ]
        langs = [self.lang_code(lang) for lang in about.langs]
        shares = np.exp(offer.log_posteriors[chosen])
        likeliest = shares.argmax(axis=1)
        truths = self._truths(messages, at)
        made: Columns = {
            "key": list(range(first_key, first_key + n)),
            "id": about.ids,
            "id_crc": [crc_of(name) for name in about.ids],
            "place": [place] * n,
            "offset": messages.offsets[at].tolist(),
            "time_ms": [-1] * n if offer.times_made_up else _bounded(about.times_ms),
            "arrived_ms": [offer.arrived_ms] * n,
            "user": about.users,
            "lang": about.langs,
            "lang_code": langs,
            "text": shown,
            "signs": list(map(signs_of, shown, langs)),
            "example": self._examples(messages, at, texts, shown),
            "label": likeliest.tolist(),
            "probability": shares[np.arange(n), likeliest].tolist(),
            "probabilities": [_json(row).decode() for row in shares.tolist()],
            "truth": truths,
            "taught": list(truths),
            "taught_part": [None if truth is None else part for truth in truths],
            "corrected": [None] * n,
        }
        return made

    def _truths(self, messages: Messages, at: NDArray[np.int64]) -> list[int | None]:
        codes = [self.codes.get(name) for name in messages.classes]
        return [None if k == NO_LABEL else codes[k] for k in messages.labels[at].tolist()]

    def _examples(
        self, messages: Messages, at: NDArray[np.int64], texts: list[str], shown: list[str]
    ) -> list[str | None]:
        """Return the fields that the model reads, as they were decoded, as JSON.

        That is None where they are just the text that is shown.
        """
        fields = {name: _values(messages, at, texts, name) for name in self.fields}
        made: list[str | None] = []
        for text, values in zip(shown, zip(*fields.values(), strict=True), strict=True):
            own = {name: v for name, v in zip(fields, values, strict=True) if v is not None}
            made.append(None if own == {"text": text} else _json(own).decode())
        return made


def _bounded(times_ms: Sequence[int]) -> list[int]:
    return [max(-_TIME_MAX_MS, min(time_ms, _TIME_MAX_MS)) for time_ms in times_ms]


def _values(
    messages: Messages, at: NDArray[np.int64], texts: list[str], name: str
) -> Sequence[Any]:
    """Return one field of some messages, None where it is missing."""
    if name == "text":
        return texts
    column = messages.fields.get(name)
    if column is None:
        return [None] * len(at)
    if not isinstance(column, TextColumn):
        return [None if value != value else value for value in column[at].tolist()]  # noqa: PLR0124 -- nan
    data, starts, ends = column.texts
    lies = zip(starts[at].tolist(), ends[at].tolist(), strict=True)
    return [None if e < 0 else data[s:e].tobytes().decode("utf-8", "replace") for s, e in lies]


def values_of(columns: Columns) -> list[Values]:
    """Return columns as rows."""
    return list(zip(*columns.values(), strict=True))
