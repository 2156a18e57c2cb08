"""What the client says in the place of messages: the log's end, and why it cannot read on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message

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
