"""What both client libraries return, as one `RawColumns` a partition and poll.

Messages that come as one object each are copied into one buffer, all keys before all values; what
runs once a message is `map`, `zip` and `join`, in C. Columns are joined where a batch
crosses from one piece of a response into the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consumers.messages import Partition, RawColumns


def from_parts(
    partition: Partition,
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    offsets: Iterable[int],
    times_ms: Iterable[int],
    next_offset: int,
) -> RawColumns:
    """Return the columns of one partition's messages, given part by part; there is at least one."""
    key_starts, key_ends, n_key_bytes = _spans(keys, 0)
    value_starts, value_ends, _ = _spans(values, n_key_bytes)
    return RawColumns(
        partition=partition,
        # What is null or empty is left out: neither adds a byte.
        buffer=b"".join(filter(None, (*keys, *values))),
        value_starts=value_starts,
        value_ends=value_ends,
        key_starts=key_starts,
        key_ends=key_ends,
        offsets=np.fromiter(offsets, np.int64, len(keys)),
        times_ms=np.fromiter(times_ms, np.int64, len(keys)),
        next_offset=next_offset,
    )


def from_kafka_python(
    partition: Partition, fetched: Sequence[Any], next_offset: int | None = None
) -> RawColumns:
    """Return what one poll of kafka-python brought of a partition; at least one message.

    `fetched` holds `RawColumns` if responses are decoded into columns, else the library's records,
    without deserializers. Without `next_offset`, reading goes on behind the last one.
    """
    if isinstance(fetched[0], RawColumns):
        return joined(fetched)
    _, _, _, offsets, times_ms, _, keys, values, *_ = zip(*fetched, strict=True)
    if None in times_ms:  # messages of format 0 have no time
        times_ms = tuple(-1 if time_ms is None else time_ms for time_ms in times_ms)
    behind = offsets[-1] + 1 if next_offset is None else next_offset
    return from_parts(partition, keys, values, offsets, times_ms, behind)


def joined(parts: Sequence[RawColumns]) -> RawColumns:
    """Return consecutive batches of one partition, none of them empty, as one.

    If their buffers differ, the bytes that they use are copied side by side.
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
    """Return the bytes that the parts use, and how far the positions of each one move."""
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


def _spans(
    parts: Sequence[bytes | None], begin: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return starts and ends of parts laid side by side from `begin`, and where the last one ends.

    A null takes no bytes, and its end is -1.
    """
    lengths = np.array([-1 if part is None else len(part) for part in parts], dtype=np.int64)
    is_null = lengths < 0
    lengths[is_null] = 0
    ends = np.cumsum(lengths) + begin
    starts = ends - lengths
    total = int(ends[-1])
    ends[is_null] = -1
    return starts, ends, total
