"""Messages to rows: here, on the writer's thread, each becomes an object."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.checkpoint import part_name
from consumers.messages import NO_LABEL, Messages, pairs
from consumers.recent.intake import Offer
from consumers.recent.matching import without_marks
from consumers.recent.rows import Row
from consumers.recent.signs import signs_of
from consumers.recent.tables import Values
from streamnb import TextColumn

TEXT_MAX = 4_000  # characters that are shown and searched
_TIME_MAX_MS = 1 << 53  # beyond it no browser knows a date, and JSON no exact number


def crc_of(id: str) -> int:  # noqa: A002 -- it is one
    """Return the checksum by which ids are looked up."""
    return zlib.crc32(id.encode("utf-8", "replace"))


def rows_of(
    offer: Offer,
    chosen: NDArray[np.int64],
    classes: Sequence[str],
    fields: Sequence[str],
    first_key: int,
) -> list[Row]:
    """Return some of the messages of an offer as rows.

    Parameters
    ----------
    offer : Offer
    chosen : ndarray of shape (n,), int64
        Positions in its `rows`, ascending.
    classes, fields : sequence of str
        The model's.
    first_key : int
        The first row's key; the others count up.
    """
    messages, partition = offer.messages, offer.messages.partition
    part = part_name(partition)
    at = offer.rows[chosen]
    probabilities = np.exp(offer.log_posteriors[chosen])
    likeliest = probabilities.argmax(axis=1)
    offsets = messages.offsets[at].tolist()
    truths = messages.labels[at].tolist()
    made = []
    for k, (i, shares, c) in enumerate(
        zip(at.tolist(), probabilities.tolist(), likeliest.tolist(), strict=True)
    ):
        about = messages.about(messages.raw, int(messages.at[i]))
        text = messages.text(i)
        truth = None if truths[k] == NO_LABEL else messages.classes[truths[k]]
        made.append(
            Row(
                key=first_key + k,
                id=about.id,
                partition=partition,
                offset=offsets[k],
                time_ms=-1 if offer.times_made_up else _bounded(about.time_ms),
                arrived_ms=offer.arrived_ms,
                user=about.user,
                lang=about.lang,
                text=without_marks((text or pairs(about.fields))[:TEXT_MAX]),
                example=_example(messages, i, text, fields),
                label=classes[c],
                probability=shares[c],
                probabilities=tuple(shares),
                truth=truth,
                taught=truth,
                taught_part=None if truth is None else part,
                corrected=None,
            )
        )
    return made


def _bounded(time_ms: int) -> int:
    return max(-_TIME_MAX_MS, min(time_ms, _TIME_MAX_MS))


def _example(messages: Messages, i: int, text: str, fields: Sequence[str]) -> dict[str, Any]:
    """Return the fields of message `i` that the model reads, as they were decoded."""
    example: dict[str, Any] = {}
    for name in fields:
        if name == "text":
            example[name] = text
        elif (column := messages.fields.get(name)) is None:
            continue
        elif isinstance(column, TextColumn):
            data, starts, ends = column.texts
            if ends[i] >= 0:
                example[name] = data[starts[i] : ends[i]].tobytes().decode("utf-8", "replace")
        elif not np.isnan(column[i]):
            example[name] = float(column[i])
    return example


def values_of(
    row: Row, place: int, lang_code: int, codes: Mapping[str | None, int | None]
) -> Values:
    """Return a row as it goes into its table; see `tables.COLUMNS`."""
    example = None
    if row.example != {"text": row.text}:
        example = msgspec.json.encode(row.example).decode()
    return (
        row.key,
        row.id,
        crc_of(row.id),
        place,
        row.offset,
        row.time_ms,
        row.arrived_ms,
        row.user,
        row.lang,
        lang_code,
        row.text,
        signs_of(row.text, lang_code),
        example,
        codes.get(row.label),
        row.probability,
        msgspec.json.encode(row.probabilities).decode(),
        codes.get(row.truth),
        codes.get(row.taught),
        row.taught_part,
        codes.get(row.corrected),
    )
