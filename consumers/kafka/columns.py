"""What the client hands over as one `RawColumns`: its records, one object each, or columns already.

For records the buffer holds all keys, then all values; what runs once a message is `zip` and
`join`, in C. Columns are cut as views, and put together where a batch crosses from one piece of a
response into the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consumers.messages import Partition, RawColumns


def batch_of(partition: Partition, fetched: Sequence[Any]) -> RawColumns:
    """Return what one poll brought of a partition as one batch.

    Parameters
    ----------
    partition : Partition
        Where it comes from.
    fetched : sequence, not empty
        `RawColumns` where responses are decoded into columns, else the client's records.
    """
    if isinstance(fetched[0], RawColumns):
        return joined(fetched)
    return columns_of(partition, fetched, fetched[-1].offset + 1)


def columns_of(partition: Partition, records: Sequence[Any], next_offset: int) -> RawColumns:
    """Return the columns of one partition's records.

    Parameters
    ----------
    partition : Partition
        Where they come from.
    records : sequence of kafka.consumer.fetcher.ConsumerRecord, at least one
        In the order of their offsets, without deserialisers: keys and values are bytes or None.
    next_offset : int
        Where reading goes on after them.
    """
    _, _, _, offsets, times_ms, _, keys, values, _, _, key_sizes, value_sizes, _ = zip(
        *records, strict=True
    )
    if None in times_ms:  # messages of format 0 have no time
        times_ms = tuple(-1 if time_ms is None else time_ms for time_ms in times_ms)
    key_starts, key_ends, n_key_bytes = _spans(key_sizes, 0)
    value_starts, value_ends, _ = _spans(value_sizes, n_key_bytes)
    return RawColumns(
        partition=partition,
        buffer=b"".join(_present(keys)) + b"".join(_present(values)),
        value_starts=value_starts,
        value_ends=value_ends,
        key_starts=key_starts,
        key_ends=key_ends,
        offsets=np.array(offsets, dtype=np.int64),
        times_ms=np.array(times_ms, dtype=np.int64),
        next_offset=next_offset,
    )


def cut(columns: RawColumns, begin: int, end: int) -> RawColumns:
    """Return messages `begin` to `end` of a batch, as views into it."""
    if begin == 0 and end >= len(columns):
        return columns
    part = slice(begin, end)
    return replace(
        columns,
        value_starts=columns.value_starts[part],
        value_ends=columns.value_ends[part],
        key_starts=columns.key_starts[part],
        key_ends=columns.key_ends[part],
        offsets=columns.offsets[part],
        times_ms=columns.times_ms[part],
        next_offset=int(columns.offsets[end]) if end < len(columns) else columns.next_offset,
    )


def joined(parts: Sequence[RawColumns]) -> RawColumns:
    """Return consecutive batches of one partition, none of them empty, as one.

    Where their buffers differ, what they use of them is copied side by side.
    """
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    if all(part.buffer is first.buffer for part in parts):
        buffer, shifts = first.buffer, [0] * len(parts)
    else:
        buffer, shifts = _side_by_side(parts)
    pairs = list(zip(parts, shifts, strict=True))
    return RawColumns(
        partition=first.partition,
        buffer=buffer,
        value_starts=np.concatenate([part.value_starts + by for part, by in pairs]),
        value_ends=np.concatenate([_shifted_ends(part.value_ends, by) for part, by in pairs]),
        key_starts=np.concatenate([part.key_starts + by for part, by in pairs]),
        key_ends=np.concatenate([_shifted_ends(part.key_ends, by) for part, by in pairs]),
        offsets=np.concatenate([part.offsets for part in parts]),
        times_ms=np.concatenate([part.times_ms for part in parts]),
        next_offset=last.next_offset,
    )


def _side_by_side(parts: Sequence[RawColumns]) -> tuple[bytes, list[int]]:
    """Return what the parts use of their buffers, and how far each one's places move."""
    used, shifts, total = [], [], 0
    for part in parts:
        begin = int(min(part.key_starts.min(), part.value_starts.min()))
        end = int(max(part.key_ends.max(), part.value_ends.max(), begin))
        used.append(part.buffer[begin:end])
        shifts.append(total - begin)
        total += end - begin
    return b"".join(used), shifts


def _shifted_ends(ends: NDArray[np.int64], by: int) -> NDArray[np.int64]:
    return np.where(ends < 0, -1, ends + by)


def _present(parts: Iterable[bytes | None]) -> Iterable[bytes]:
    """Leave out what is null, and what is empty: neither adds a byte."""
    return filter(None, parts)


def _spans(sizes: Sequence[int], begin: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return starts and ends of parts laid side by side from `begin`, and where the last one ends.

    A size of -1 is a null: it takes no room, and its end is -1.
    """
    lengths = np.array(sizes, dtype=np.int64)
    is_null = lengths < 0
    lengths[is_null] = 0
    ends = np.cumsum(lengths) + begin
    starts = ends - lengths
    total = int(ends[-1])
    ends[is_null] = -1
    return starts, ends, total
