"""Kafka's records, which come one object each, as columns: one buffer, and arrays pointing into it.

The buffer holds all keys, then all values. What runs once a message is `zip` and `join`, in C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consumers.messages import Partition, RawColumns


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
