"""Kafka's record batches for tests: built by the client, drawn by Hypothesis, and a plain reader.

The reader is the twin of the two kernels in `consumers/kernels/record_batch.py`: it does one
byte after another what they do, and shares nothing with them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crc32c import crc32c
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

Pair = tuple[bytes | None, bytes | None]

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
HEADER = struct.Struct(">qiibIhiqqqhii")
CRC_AT, ATTRIBUTES_AT = 17, 21
TIME_MS = 1_700_000_000_000
ABORT, COMMIT = ((b"\0\0\0\0", b"\0" * 6),), ((b"\0\0\0\1", b"\0" * 6),)


class Record(NamedTuple):
    """One record as the plain reader sees it."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


def batch(
    first_offset: int,
    pairs: Sequence[Pair],
    *,
    flags: int = 0,
    codec: int = 0,
    producer: int = -1,
    gaps: Sequence[int] = (),
    times_ms: Sequence[int] = (),
    headers: Sequence[tuple[str, bytes | None]] = (),
    epoch: int = 0,
) -> bytes:
    """Return one batch as a broker would send it; `gaps` are offsets left out before each pair."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=producer >= 0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        batch_size=1 << 24,
    )
    delta = -1
    for i, (key, value) in enumerate(pairs):
        delta += 1 + (gaps[i] if i < len(gaps) else 0)
        time_ms = times_ms[i] if i < len(times_ms) else TIME_MS + i
        builder.append(delta, time_ms, key, value, headers)
    data = builder.build()
    struct.pack_into(">q", data, 0, first_offset)
    struct.pack_into(">i", data, 12, epoch)
    data[ATTRIBUTES_AT + 1] |= flags
    return with_checksum(bytes(data))


def with_checksum(data: bytes) -> bytes:
    """Return a batch with the checksum that its bytes call for."""
    return data[:CRC_AT] + crc32c(data[ATTRIBUTES_AT:]).to_bytes(4, "big") + data[ATTRIBUTES_AT:]


def next_offset(data: bytes) -> int:
    """Return the offset behind a batch's last."""
    fields = HEADER.unpack_from(data)
    return int(fields[0] + fields[6] + 1)


_parts = st.none() | st.binary(max_size=20) | st.binary(min_size=120, max_size=140)
_pairs = st.lists(st.tuples(_parts, _parts), min_size=1, max_size=6)
_headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2)


@st.composite
def runs(draw: st.DrawFn, codecs: Sequence[int] = (0,)) -> list[bytes]:
    """Draw the batches of a log, one behind the other, with gaps as compaction leaves them."""
    at = draw(st.integers(0, 3))
    batches = []
    for _ in range(draw(st.integers(0, 5))):
        pairs = draw(_pairs)
        n = len(pairs)
        made = batch(
            at,
            pairs,
            flags=draw(st.sampled_from([0, 0, LOG_APPEND_TIME])),
            codec=draw(st.sampled_from(codecs)),
            gaps=draw(st.lists(st.integers(0, 200), max_size=n)),
            times_ms=draw(st.lists(st.integers(-(2**40), 2**40), max_size=n)),
            headers=draw(_headers),
            epoch=draw(st.integers(0, 1)),
        )
        batches.append(made)
        at = next_offset(made) + draw(st.integers(0, 3))
    return batches


class Malformed(Exception):  # noqa: N818 -- it is no error of the test
    """What the plain reader meets where a batch is not what it should be."""


def read(data: bytes, from_offset: int) -> tuple[list[Record], str]:
    """Return what uncompressed batches hold up to the first that is malformed, and how it ended."""
    records: list[Record] = []
    after = -1
    while len(data) >= 12:
        length = int.from_bytes(data[8:12], "big", signed=True)
        if length < 14:
            return records, "malformed"
        if len(data) < 12 + length:
            break
        if data[16] < 2:
            return records, "old"
        try:
            after = _read_batch(data[: 12 + length], after, from_offset, records)
        except Malformed:
            return records, "malformed"
        data = data[12 + length :]
    return records, "end"


def _read_batch(data: bytes, after: int, from_offset: int, into: list[Record]) -> int:
    if len(data) < HEADER.size or data[16] != 2 or with_checksum(data) != data:
        raise Malformed
    first, _, _, _, _, flags, last_delta, first_ms, last_ms, _, _, _, n = HEADER.unpack_from(data)
    if not after < first < 2**62 or first < 0 or last_delta < 0 or n < 0:
        raise Malformed
    if not flags & CONTROL:
        reader = _Bytes(data[HEADER.size :])
        found = list(_read_records(reader, n, last_delta, first_ms))
        if reader.left():
            raise Malformed
        for delta, time_ms, key, value in found:
            if first + delta >= from_offset:
                said_ms = last_ms if flags & LOG_APPEND_TIME else time_ms
                into.append(Record(first + delta, said_ms, key, value))
    return int(first + last_delta)


def _read_records(
    reader: _Bytes, n: int, last_delta: int, first_ms: int
) -> Iterator[tuple[int, int, bytes | None, bytes | None]]:
    before = -1
    for _ in range(n):
        record = _Bytes(reader.take(reader.number()))
        if record.take(1)[0] >= 0x80:
            raise Malformed
        time_ms, delta = first_ms + record.number(), record.number()
        if not before < delta <= last_delta or not -(2**63) <= time_ms < 2**63:
            raise Malformed
        key, value = record.part(), record.part()
        n_headers = record.number()
        if n_headers < 0:
            raise Malformed
        for _ in range(n_headers):
            if record.part() is None:
                raise Malformed
            record.part()
        if record.left():
            raise Malformed
        before = delta
        yield delta, time_ms, key, value


class _Bytes:
    """Bytes that are taken from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def left(self) -> int:
        return len(self._data)

    def take(self, n: int) -> bytes:
        if not 0 <= n <= len(self._data):
            raise Malformed
        taken, self._data = self._data[:n], self._data[n:]
        return taken

    def part(self) -> bytes | None:
        size = self.number()
        return None if size < 0 else self.take(size)

    def number(self) -> int:
        value = 0
        for i in range(10):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                if value >= 2**64:
                    break
                return value >> 1 ^ -(value & 1)
        raise Malformed
