"""A few messages of a batch with bytes of their own.

A batch is megabytes, which its reader and the learner use again and again while they are in the
processor's cache. Whoever keeps some of its messages for a while must not keep all of that.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from consumers.messages import Messages, RawColumns
from streamnb import TextColumn
from streamnb.kernels.layout import Texts

Array = NDArray[np.int64]


def picked(messages: Messages, rows: Array) -> Messages:
    """Return some messages of a batch, which is not needed for them any more.

    Parameters
    ----------
    messages : Messages
    rows : ndarray of shape (n,), int64
        Which of them, ascending.

    Returns
    -------
    Messages
        Without the batch's rejects; its partition and the offset behind it stay.
    """
    return replace(
        messages,
        raw=_raw(messages.raw, messages.at[rows]),
        at=np.arange(len(rows)),
        labels=messages.labels[rows],
        operations=messages.operations[rows],
        texts=_column(messages.texts, rows),
        fields={
            name: _column(column, rows) if isinstance(column, TextColumn) else column[rows]
            for name, column in messages.fields.items()
        },
        rejects=[],
        n_ambiguous=0,
    )


def _raw(raw: RawColumns, places: Array) -> RawColumns:
    starts = np.concatenate([raw.value_starts[places], raw.key_starts[places]])
    ends = np.concatenate([raw.value_ends[places], raw.key_ends[places]])
    buffer, starts, ends = _packed(memoryview(raw.buffer), starts, ends)
    n = len(places)
    return replace(
        raw,
        buffer=buffer,
        value_starts=starts[:n],
        value_ends=ends[:n],
        key_starts=starts[n:],
        key_ends=ends[n:],
        offsets=raw.offsets[places],
        times_ms=raw.times_ms[places],
    )


def _column(column: TextColumn, rows: Array) -> TextColumn:
    data, starts, ends = column.texts
    buffer, starts, ends = _packed(data.data, starts[rows], ends[rows])
    return TextColumn(Texts(np.frombuffer(bytearray(buffer), np.uint8), starts, ends))


def _packed(data: memoryview, starts: Array, ends: Array) -> tuple[bytes, Array, Array]:
    """Return pieces of a buffer side by side, and where each lies then; -1 marks a missing one."""
    lies = zip(starts.tolist(), ends.tolist(), strict=True)
    buffer = b"".join([data[start:end] for start, end in lies if end > start])
    lengths = np.maximum(ends - starts, 0)
    behind = np.cumsum(lengths)
    return buffer, behind - lengths, np.where(ends < 0, ends, behind)
