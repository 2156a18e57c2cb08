"""The check at the start: a few batches, written by the client itself, read by its class and ours.

They hold what a log can hold without further packages: nulls and empty parts, headers, the log's
own times, a compressed batch, an aborted transaction with its marker, and damage at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from crc32c import crc32c
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import KafkaError
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from consumers.kafka.columns import batch_of
from consumers.messages import Partition

Pairs = Sequence[tuple[bytes | None, bytes | None]]

_PLACE: Final = TopicPartition("self-check", 0)
_TIME_MS: Final = 1_700_000_000_000
_ABORTED, _COMMITTED = 7, 8  # producers
_ABORT: Final = ((b"\0\0\0\0", b"\0" * 6),)  # a marker's key: version 0, type 0
_COMMIT: Final = ((b"\0\0\0\1", b"\0" * 6),)
_PAIRS: Final = ((b"key", b"value"), (None, b"no key"), (b"", b""), (b"gone", None))
_HEADERS: Final = (("name", b"value"), ("null", None))


class _Aborted(NamedTuple):
    producer_id: int
    first_offset: int


def difference(records_class: Any) -> str | None:
    """Return where a class reads the sample otherwise than the client's own does.

    Parameters
    ----------
    records_class : type
        What is to stand in for the client's `PartitionRecords`.

    Returns
    -------
    str or None
        None where there is no difference.
    """
    try:
        sample = _sample()
        for fetch_offset in (0, 2, 15, 40):
            ours = _read(records_class, sample, fetch_offset)
            if ours != _read(Fetcher.PartitionRecords, sample, fetch_offset):
                return f"a sample read from offset {fetch_offset} does not come out the same"
    except Exception as error:  # noqa: BLE001 - a private class may have become anything
        return f"a sample could not be read: {error!r}"
    return None


def _read(records_class: Any, sample: bytes, fetch_offset: int) -> list[Any]:
    """Return all that a class makes of the sample, and how it ends, as values to compare."""
    records = records_class(
        fetch_offset,
        _PLACE,
        MemoryRecords(sample),
        key_deserializer=None,
        value_deserializer=None,
        check_crcs=True,
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=[_Aborted(_ABORTED, 30)],
        metric_aggregator=None,
        on_drain=lambda _: None,
    )
    seen: list[Any] = []
    while records:
        try:
            taken = records.take(3)
        except KafkaError as error:
            seen.append(type(error))
            break
        if len(taken) == 0:
            break
        columns = batch_of(Partition(*_PLACE), list(taken))
        seen += zip(columns.offsets.tolist(), columns.times_ms.tolist(), strict=True)
        seen += [(columns.key(i), columns.value(i)) for i in range(len(columns))]
    return [*seen, records.next_fetch_offset, records.leader_epoch, bool(records)]


def _sample() -> bytes:
    """Return the batches; the last one is damaged."""
    flags = DefaultRecordBatch
    damaged = bytearray(_batch(60, _PAIRS))
    damaged[-1] ^= 1
    return b"".join(
        (
            _batch(0, _PAIRS, headers=_HEADERS),
            _batch(4, [(None, b"x" * 200)], flags=flags.TIMESTAMP_TYPE_MASK),
            _batch(10, _PAIRS * 5, flags=flags.CODEC_GZIP),
            _batch(30, _PAIRS, producer=_ABORTED),
            _batch(34, _PAIRS, producer=_COMMITTED),
            _batch(38, _ABORT, producer=_ABORTED, flags=flags.CONTROL_MASK),
            _batch(39, _COMMIT, producer=_COMMITTED, flags=flags.CONTROL_MASK),
            _batch(40, _PAIRS, producer=_ABORTED),
            damaged,
        )
    )


def _batch(
    first_offset: int,
    pairs: Pairs,
    *,
    flags: int = 0,
    producer: int = -1,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    """Return one batch as a broker would send it, transactional where it has a producer."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=flags & DefaultRecordBatch.CODEC_MASK,
        is_transactional=producer >= 0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 20,
    )
    for delta, (key, value) in enumerate(pairs):
        builder.append(delta, _TIME_MS + delta, key, value, headers)
    batch = builder.build()
    struct.pack_into(">q", batch, 0, first_offset)
    at = DefaultRecordBatch.ATTRIBUTES_OFFSET
    batch[at + 1] |= flags
    struct.pack_into(">I", batch, DefaultRecordBatch.CRC_OFFSET, crc32c(memoryview(batch)[at:]))
    return bytes(batch)
