"""librdkafka's messages, which come one object each, as columns: one buffer, and arrays into it.

The buffer holds all keys, then all values. What runs once a message is `map` over the methods of
the C class, and `join`; only the sizes are taken by a loop of Python's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
from confluent_kafka import KafkaError, Message
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


# The log does not hold what we asked for. (What begins with a line is a public name as well.)
OUT_OF_RANGE: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
        KafkaError._LOG_TRUNCATION,  # noqa: SLF001
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
# What came is damaged, or packed in a way that this build of the client cannot unpack.
BROKEN: Final = frozenset(
    {
        KafkaError._BAD_MSG,  # noqa: SLF001
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001
        KafkaError._UNDERFLOW,  # noqa: SLF001
        KafkaError._NOT_IMPLEMENTED,  # noqa: SLF001
    }
)


class Run(NamedTuple):
    """What came of one partition.

    Attributes
    ----------
    messages : list of confluent_kafka.Message
        Those that can be read, in order, up to the first fault.
    end : int
        Where the log ended, when its end was among them; else 0.
    fault : confluent_kafka.KafkaError or None
        Why what follows cannot be read.
    """

    messages: list[Message]
    end: int = 0
    fault: KafkaError | None = None


def by_partition(messages: Iterable[Message]) -> dict[int, list[Message]]:
    """Return messages by their partition's number; -1 is for what concerns none."""
    runs: dict[int, list[Message]] = {}
    for number, neighbours in groupby(messages, Message.partition):
        runs.setdefault(-1 if number is None else number, []).extend(neighbours)
    return runs


def sort_out(messages: list[Message]) -> Run:
    """Tell the messages of one partition from what the client says among them."""
    if not any(map(Message.error, messages)):
        return Run(messages)
    sound: list[Message] = []
    end = 0
    for message in messages:
        error = message.error()
        if error is None:
            sound.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            end = message.offset() or 0
        else:
            return Run(sound, end, error)
    return Run(sound, end)
