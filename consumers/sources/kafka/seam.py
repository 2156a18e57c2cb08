"""Where columns enter the client: a private class of it is replaced, if that is found to be safe.

The client's fetcher makes a `PartitionRecords` of each response. Giving it our class instead is no
part of the client's interface, so two things must hold first: the client is of a version that this
was made for, and a few batches, written by the client itself, come out of both classes alike. Where
either fails, reading goes on with the client's own class: slower, and right.
"""

from __future__ import annotations

from typing import Any, Final

import kafka

from consumers.sources.kafka.response import ColumnRecords
from consumers.sources.kafka.self_check import difference

_FROM: Final = (3, 0, 12)
_BELOW: Final = (3, 1)


def is_known() -> bool:
    """Tell whether the client is of a version whose private parts were looked at."""
    parts = tuple(int(part) for part in kafka.__version__.split(".")[:3] if part.isdigit())
    return _FROM <= parts < _BELOW


def replace_decoder(consumer: Any) -> str | None:
    """Make a new consumer hand over columns, if both conditions hold.

    Parameters
    ----------
    consumer : kafka.KafkaConsumer
        It has not polled yet.

    Returns
    -------
    str or None
        Why it goes on handing over records; None where it hands over columns.
    """
    if not is_known():
        return f"kafka-python is {kafka.__version__}; columns were made for 3.0, from 3.0.12 on"
    why = difference(ColumnRecords)
    if why is None:
        consumer._fetcher.PartitionRecords = ColumnRecords  # noqa: SLF001
    return why
