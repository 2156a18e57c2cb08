"""Batches for tests: values as raw columns, decoded messages, texts as plain strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from consumers.config.message import FieldLabels, MessageSettings
from consumers.config.model import FieldKind
from consumers.decode.decoder import Decoder
from consumers.decode.labels import FieldLabeller
from consumers.messages import Messages, Partition, RawColumns
from streamnb import TextColumn

CLASSES = ("negative", "positive")
SOURCE_TIME_MS = 1_700_000_000_000
BETWEEN = b"\xff\x00{"


def raw(
    values: Sequence[bytes | None], first: int = 100, partition: Partition | None = None
) -> RawColumns:
    """Return values as a batch, of partition t[0], with three bytes of something between them."""
    buffer, starts, ends = b"", [], []
    for value in values:
        buffer += BETWEEN
        starts.append(len(buffer))
        buffer += value or b""
        ends.append(-1 if value is None else len(buffer))
    n = len(values)
    return RawColumns(
        partition=partition or Partition("t", 0),
        buffer=buffer,
        value_starts=np.array(starts, np.int64),
        value_ends=np.array(ends, np.int64),
        key_starts=np.zeros(n, np.int64),
        key_ends=np.full(n, 2, np.int64),
        offsets=np.arange(first, first + n, dtype=np.int64),
        times_ms=np.full(n, SOURCE_TIME_MS, np.int64),
        next_offset=first + n,
    )


def messages(
    values: Sequence[dict[str, Any] | bytes],
    *,
    first: int = 0,
    partition: Partition | None = None,
    fields: Sequence[str] | Mapping[str, FieldKind] = (),
) -> Messages:
    """Decode values, whose labels stand in the field `label`, for a model that reads `fields`.

    They are fields of words beside the text unless their kinds are given.
    """
    extra = [name for name in fields if name not in {"text", "user", "lang"}]
    decoder = Decoder(
        MessageSettings(fields=tuple(extra)),
        FieldLabeller(FieldLabels(), CLASSES),
        reads=fields if isinstance(fields, Mapping) else dict.fromkeys(("text", *fields), "words"),
    )
    data = [value if isinstance(value, bytes) else msgspec.json.encode(value) for value in values]
    return decoder.decode(raw(data, first, partition))


def strings(column: TextColumn | NDArray[np.float64]) -> list[str | None]:
    """Return the texts of a column; None is one that is missing."""
    assert isinstance(column, TextColumn)
    data, starts, ends = column.texts
    return [
        None if end < 0 else data[start:end].tobytes().decode()
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
    ]
