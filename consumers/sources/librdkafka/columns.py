"""librdkafka's messages, which come one object each, as columns: one buffer, and arrays into it.

The buffer holds all keys, then all values. What runs once a message is `map` over the methods of
the C class, and `join`; only the sizes are taken by a loop of Python's.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from consumers.messages import Partition, RawColumns

_time_ms = itemgetter(1)  # of a pair: what kind of time, and the time


def columns_of(partition: Partition, messages: Sequence[Message], next_offset: int) -> RawColumns:
    """Return the columns of one partition's messages.

    Parameters
    ----------
    partition : Partition
        Where they come from.
    messages : sequence of confluent_kafka.Message, at least one
        In the order of their offsets, without errors among them.
    next_offset : int
        Where reading goes on after them.
    """
    keys = list(map(Message.key, messages))
    values = list(map(Message.value, messages))
    key_starts, key_ends, n_key_bytes = _spans(keys, 0)
    value_starts, value_ends, _ = _spans(values, n_key_bytes)
    n = len(messages)
    return RawColumns(
        partition=partition,
        # What is null or empty is left out: neither adds a byte.
        buffer=b"".join(filter(None, keys + values)),
        value_starts=value_starts,
        value_ends=value_ends,
        key_starts=key_starts,
        key_ends=key_ends,
        offsets=np.fromiter(map(Message.offset, messages), np.int64, n),
        times_ms=np.fromiter(map(_time_ms, map(Message.timestamp, messages)), np.int64, n),
        next_offset=next_offset,
    )


def _spans(
    parts: Sequence[bytes | None], begin: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return starts and ends of parts laid side by side from `begin`, and where the last one ends.

    A null takes no room, and its end is -1.
    """
    lengths = np.array([-1 if part is None else len(part) for part in parts], dtype=np.int64)
    is_null = lengths < 0
    lengths[is_null] = 0
    ends = np.cumsum(lengths) + begin
    starts = ends - lengths
    total = int(ends[-1])
    ends[is_null] = -1
    return starts, ends, total
