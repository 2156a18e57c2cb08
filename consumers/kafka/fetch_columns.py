"""Decodes a broker's response for one partition into columns instead of record by record.

`ColumnRecords` takes the place of kafka-python's own `PartitionRecords`; `patch` puts it there. It
inherits all that it does not replace: the attributes that the library reads, the list of aborted
transactions, and message formats before 2. Two calls of the kernels decode a run of batches, mostly
the whole response. A response is decompressed only as far as `take` has asked, to save memory.

A batch that cannot be read is an error in `take`, again and again until the source seeks. All
messages before it have been returned by then, and none of its own.

Compressed batches are unpacked by the packages that kafka-python uses itself, but within bounds:
the size that a stream declares is not trusted, and memory grows with what really comes out, up to
`BATCH_BYTES_MAX`. A producer's batches are some megabytes at most, since its limits hold before
compression.
"""

from __future__ import annotations

import itertools
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
from kafka import codec
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch

from consumers.kafka.client import from_kafka_python
from consumers.kernels import record_batch as rb
from consumers.messages import Partition, RawColumns
from consumers.sources.records import joined

# How many batches are decoded at once: 0.4 MB of rows.
_RUN_BATCHES: Final = 4096
# The size at which a run of compressed batches ends, compressed and decompressed.
_RUN_PACKED_BYTES: Final = 1 << 20
_RUN_UNPACKED_BYTES: Final = 4 << 20

_DAMAGE: Final = {
    rb.BAD_CHECKSUM: "its checksum is wrong",
    rb.BAD_HEADER: "its header is malformed, or it stands out of order",
}


class Taken:
    """What the library gets from `take`: its length counts messages, its one item is columns."""

    def __init__(self, columns: RawColumns | None) -> None:
        self._columns = columns

    def __len__(self) -> int:
        return 0 if self._columns is None else len(self._columns)

    def __iter__(self) -> Iterator[RawColumns]:
        return iter(() if self._columns is None else (self._columns,))


class ColumnRecords(Fetcher.PartitionRecords):  # type: ignore[misc]  # the client has no types
    """Decodes one partition's response; made and called by the library's fetcher.

    It is made as the class that it replaces: with the offset that was asked for (the first batch
    may begin before it), the partition and the response. Deserializers are not called, and
    checksums are always checked.
    """

    def __init__(self, fetch_offset: int, tp: Any, records: Any, **settings: Any) -> None:
        super().__init__(fetch_offset, tp, records, **settings)
        self._partition = Partition(*tp)
        self._buffer = bytes(records._buffer)  # noqa: SLF001 -- no copy where it is bytes
        self._data = np.frombuffer(self._buffer, dtype=np.uint8)
        n_batches_max = min(_RUN_BATCHES, len(self._buffer) // rb.HEADER_BYTES + 1)
        self._rows = np.empty((n_batches_max, rb.N_COLUMNS), dtype=np.int64)
        self._at = 0  # the byte at which the next batch begins
        self._last_offset = -1  # the last offset of the batch before it
        self._stopped = rb.NEXT_RUN  # why the kernel stopped there
        self._run: RawColumns | None = None
        self._n_taken = 0  # messages of the run
        self._broken: str | None = None
        self._old_format = False

    @property
    def _has_more(self) -> bool:
        """Return what the library reads as our truth value: False once we are drained."""
        return self.record_iterator is not None

    def drain(self) -> None:
        """Release the response: it has been read, or is not wanted any more."""
        super().drain()
        self._run = None
        self._buffer, self._data = b"", np.empty(0, dtype=np.uint8)

    def take(self, n: int | None = None) -> Taken:
        """Return the next `n` messages, or as many as there are.

        If the next batch is damaged it raises `CorruptRecordError`; if the package for its
        compression is not installed, `UnsupportedCodecError`.
        """
        left = sys.maxsize if n is None else n
        chunks: list[RawColumns] = []
        while left > 0 and self._has_more and not self._old_format:
            try:
                chunk = self._next_chunk(left)
            except KafkaError:
                if not chunks:
                    raise
                break  # the next call meets it again
            if len(chunk):
                chunks.append(chunk)
                left -= len(chunk)
        if chunks:
            return Taken(joined(chunks))
        if self._has_more and self._old_format:
            return self._take_old_format(n)
        return Taken(None)

    def _next_chunk(self, n_max: int) -> RawColumns:
        """Return the next messages of the run, or of the run behind it; drain at the end."""
        if self._run is None:
            self._run, self._n_taken = self._next_run(), 0
        run, begin = self._run, self._n_taken
        chunk = run.tail(begin).head(n_max)
        self._n_taken += len(chunk)
        self.next_fetch_offset = chunk.next_offset
        if self._n_taken >= len(run):
            self._run = None
            if self._stopped == rb.AT_END and self._broken is None:
                self._end()
        return chunk

    def _end(self) -> None:
        """Note that no complete batch follows."""
        if self._at and self.next_fetch_offset == self.fetch_offset:
            raise CorruptRecordError(
                f"{self._partition}: the broker's answer to offset {self.fetch_offset} ends before"
                " it"
            )
        self.drain()

    def _next_run(self) -> RawColumns:
        """Return the next run of batches, decoded; empty if it holds no messages for us."""
        if self._broken is not None:
            raise CorruptRecordError(self._broken)
        n, end_at, self._stopped = rb.scan(
            self._data, self._at, self._last_offset, _RUN_PACKED_BYTES, self._rows
        )
        if n == 0:
            return self._no_run()
        rows, end = self._rows[:n], int(end_at)
        buffer, n = self._decompressed(rows)
        if n < len(rows):
            end, self._stopped = int(rows[n, rb.BEGIN]), rb.NEXT_RUN
        n = self._skip_aborted(rows[:n])
        records, n = self._decoded(buffer, rows[:n])
        if n == 0:
            raise CorruptRecordError(self._broken)
        last = int(rows[n - 1, rb.LAST_OFFSET])
        self.leader_epoch = int(rows[0, rb.EPOCH])
        self.bytes_read += end - self._at
        self.records_read += records.shape[1]
        self._at, self._last_offset = end, last
        return RawColumns(
            partition=self._partition,
            buffer=buffer,
            value_starts=records[rb.VALUE_START],
            value_ends=records[rb.VALUE_END],
            key_starts=records[rb.KEY_START],
            key_ends=records[rb.KEY_END],
            offsets=records[rb.OFFSET],
            times_ms=records[rb.TIME_MS],
            next_offset=max(self.fetch_offset, last + 1),
        )

    def _no_run(self) -> RawColumns:
        """Return empty columns at the end or before an old format; raise if a batch is damaged."""
        if self._stopped in _DAMAGE:
            raise CorruptRecordError(self._batch_at(self._at) + _DAMAGE[self._stopped])
        self._old_format = self._stopped == rb.OLD_FORMAT
        if self._old_format:
            rest = MemoryRecords(memoryview(self._buffer)[self._at :])
            self.record_iterator = itertools.dropwhile(
                self._maybe_skip_record,
                self._unpack_records(self.topic_partition, rest, None, None),
            )
        none = np.empty(0, dtype=np.int64)
        return RawColumns(
            self._partition, b"", none, none, none, none, none, none, self.next_fetch_offset
        )

    def _take_old_format(self, n: int | None) -> Taken:
        """Return messages as the library decodes them; only old formats follow an old format."""
        records = super().take(n)
        if not records:
            return Taken(None)
        return Taken(from_kafka_python(self._partition, records, self.next_fetch_offset))

    def _decompressed(self, rows: Any) -> tuple[bytes, int]:
        """Return the buffer that the rows' records lie in, and how many batches it holds."""
        codec = int(rows[0, rb.ATTRIBUTES]) & rb.CODEC_MASK
        if codec == 0:
            return self._buffer, len(rows)
        parts: list[bytes] = []
        total = 0
        for row in rows:
            if total >= _RUN_UNPACKED_BYTES:
                break
            try:
                part = decompress(codec, self._buffer[row[rb.BODY] : row[rb.END]])
            except CorruptRecordError as error:
                if parts:
                    break  # it is the first of the next run
                raise CorruptRecordError(self._batch_at(row[rb.BEGIN]) + str(error)) from error
            parts.append(part)
            row[rb.BODY], row[rb.END] = total, total + len(part)
            total += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts), len(parts)

    def _skip_aborted(self, rows: Any) -> int:
        """Mark batches of aborted transactions; return how many batches could be checked."""
        if self.isolation_level != IsolationLevel.READ_COMMITTED:
            return len(rows)
        if not self.aborted_transactions and not self.aborted_producer_ids:
            return len(rows)
        for b in np.flatnonzero(rows[:, rb.PRODUCER] >= 0).tolist():
            row = rows[b]
            producer = int(row[rb.PRODUCER])
            self._consume_aborted_transactions_up_to(int(row[rb.LAST_OFFSET]))
            if row[rb.ATTRIBUTES] & rb.CONTROL:
                try:
                    aborts = self._is_abort_marker(row)
                except (KafkaError, struct.error, TypeError) as error:
                    self._broken = f"{self._batch_at(row[rb.BEGIN])}no control record: {error!r}"
                    return b
                if aborts:
                    self.aborted_producer_ids.discard(producer)
            elif row[rb.ATTRIBUTES] & rb.TRANSACTIONAL and producer in self.aborted_producer_ids:
                row[rb.SKIPPED] = 1
        return len(rows)

    def _is_abort_marker(self, row: Any) -> bool:
        """Return whether a control batch aborts; compaction may have emptied it."""
        if row[rb.N_RECORDS] == 0:
            return False
        begin = int(row[rb.BEGIN])
        length = int.from_bytes(self._buffer[begin + 8 : begin + 12], "big")
        batch = memoryview(self._buffer)[begin : begin + 12 + length]
        return bool(next(DefaultRecordBatch(batch)).abort)

    def _decoded(self, buffer: bytes, rows: Any) -> tuple[Any, int]:
        """Return the fields of the rows' records, and how many batches could be read."""
        wanted = rows[:, rb.SKIPPED] == 0
        n_possible = (rows[:, rb.END] - rows[:, rb.BODY]) // rb.RECORD_BYTES_MIN
        impossible = np.flatnonzero(wanted & (rows[:, rb.N_RECORDS] > n_possible))
        n = int(impossible[0]) if len(impossible) else len(rows)
        n_max = int(rows[:n, rb.N_RECORDS][wanted[:n]].sum())
        records = np.empty((rb.N_FIELDS, n_max), dtype=np.int64)
        data = np.frombuffer(buffer, dtype=np.uint8)
        n_records, n_read = rb.decode(data, rows[:n], self.fetch_offset, records)
        if n_read < len(rows) and self._broken is None:
            self._broken = self._batch_at(rows[n_read, rb.BEGIN]) + "its records are malformed"
        return records[:, :n_records], n_read

    def _batch_at(self, at: int) -> str:
        """Return the beginning of a sentence about the batch that begins at a byte."""
        offset = int.from_bytes(self._buffer[at : at + 8], "big", signed=True)
        return f"{self._partition}: the batch at offset {offset} cannot be read: "


# ---- compressed batches --------------------------------------------------------------------------

BATCH_BYTES_MAX: Final = 256 << 20
_PIECE_BYTES: Final = 1 << 20
_GZIP_WINDOW: Final = 31  # zlib's way to ask for gzip's frame
# zlib copies what it leaves unused, so it gets small pieces: a stream of a great many tiny gzip
# members would otherwise take quadratic time.
_INPUT_BYTES: Final = 1 << 15
_ZEROS: Final = re.compile(rb"\0*")  # a writer may pad with them behind a member

# The framing that Java's snappy library puts around its blocks: this mark and two versions, then
# blocks with their sizes before them.
_SNAPPY_MARK: Final = b"\x82SNAPPY\x00"
_SNAPPY_MARK_BYTES: Final = 16
_SNAPPY_RATIO_MAX: Final = 64  # three bytes can stand for 64, never for more


def decompress(number: int, packed: bytes) -> bytes:
    """Return the records of a compressed batch.

    `number` is Kafka's number of the compression, 1 to 7; `packed` is the batch behind its header.
    A compression that is unknown or not installed is an `UnsupportedCodecError`; a damaged stream,
    or one of more than `BATCH_BYTES_MAX` bytes, is a `CorruptRecordError`.
    """
    if not packed:
        return b""  # compaction left nothing but the header
    if number not in _CODECS:
        raise UnsupportedCodecError(f"Unrecognized compression type: {number}")
    name, installed, pieces = _CODECS[number]
    if not installed():
        raise UnsupportedCodecError(f"Libraries for {name} compression codec not found")
    try:
        return _joined(pieces(packed))
    except CorruptRecordError as error:
        raise CorruptRecordError(f"{name}: {error.args[0]}") from error
    except Exception as error:  # each package raises classes of its own
        raise CorruptRecordError(f"{name} cannot unpack it: {error!r}") from error


def _joined(pieces: Iterable[bytes]) -> bytes:
    parts, total = [], 0
    for part in pieces:
        total += len(part)
        _check_size(total)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_size(n_bytes: int) -> None:
    if n_bytes > BATCH_BYTES_MAX:
        raise CorruptRecordError(
            f"unpacked it has more than {BATCH_BYTES_MAX} bytes; if it is meant so, kafka.decode: "
            "records reads it, given the memory"
        )


def _gzip(packed: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(packed):
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            given = member.unconsumed_tail
            if not given:
                given = packed[at : at + _INPUT_BYTES]
                at += len(given)
            part = member.decompress(given, _PIECE_BYTES)
            if not part and not given and not member.eof:
                raise CorruptRecordError("the stream is cut off")
            yield part
        at -= len(member.unused_data)
        at = _ZEROS.match(packed, at).end()  # type: ignore[union-attr]  # it may match nothing


def _lz4(packed: bytes) -> Iterator[bytes]:
    frame = codec.lz4.LZ4FrameDecompressor()
    yield frame.decompress(packed, max_length=_PIECE_BYTES)
    while not frame.eof:
        part = frame.decompress(b"", max_length=_PIECE_BYTES)
        if not part and not frame.eof:
            raise CorruptRecordError("the stream is cut off")
        yield part
    if frame.unused_data:
        raise CorruptRecordError("bytes follow the frame's end")


def _zstd(packed: bytes) -> Iterator[bytes]:
    with codec.zstd.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
        while part := reader.read(_PIECE_BYTES):
            yield part


def _snappy(packed: bytes) -> Iterator[bytes]:
    total = 0
    for block in _snappy_blocks(packed):
        declared = _snappy_size(block)
        total += declared
        _check_size(total)
        if declared > _SNAPPY_RATIO_MAX * len(block):
            raise CorruptRecordError(f"a block of {len(block)} bytes cannot hold {declared}")
        yield codec.snappy.decompress(block)


def _snappy_blocks(packed: bytes) -> Iterator[bytes]:
    if not packed.startswith(_SNAPPY_MARK):
        yield packed
        return
    at = _SNAPPY_MARK_BYTES
    while at < len(packed):
        end = at + 4 + int.from_bytes(packed[at : at + 4], "big")
        if end > len(packed):
            raise CorruptRecordError("a block is cut off")
        yield packed[at + 4 : end]
        at = end


def _snappy_size(block: bytes) -> int:
    """Return the size that a block declares, a varint at its beginning."""
    size = 0
    for i, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return size
    raise CorruptRecordError("a block does not say how large it is")


_CODECS: Final[dict[int, tuple[str, Callable[[], bool], Callable[[bytes], Iterator[bytes]]]]] = {
    1: ("gzip", codec.has_gzip, _gzip),
    2: ("snappy", codec.has_snappy, _snappy),
    3: ("lz4", lambda: codec.lz4 is not None, _lz4),
    4: ("zstd", codec.has_zstd, _zstd),
}
