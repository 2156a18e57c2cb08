"""What both client libraries return, as one `RawColumns` a partition and poll.

Columns are joined where a batch crosses from one piece of a response into the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consumers.messages import Partition, RawColumns
from consumers.sources.records import from_parts


def from_kafka_python(
    partition: Partition, fetched: Sequence[Any], next_offset: int | None = None
) -> RawColumns:
    """Return what one poll of kafka-python brought of a partition; at least one message.

    `fetched` holds `RawColumns` if responses are decoded into columns, else the library's records,
    without deserializers. Without `next_offset`, reading goes on behind the last one.
    """
    if isinstance(fetched[0], RawColumns):
        return joined(fetched)
    _, _, _, offsets, times_ms, _, keys, values, headers, *_ = zip(*fetched, strict=True)
    if None in times_ms:  # messages of format 0 have no time
        times_ms = tuple(-1 if time_ms is None else time_ms for time_ms in times_ms)
    behind = offsets[-1] + 1 if next_offset is None else next_offset
    return from_parts(partition, keys, values, offsets, times_ms, behind, headers)


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
