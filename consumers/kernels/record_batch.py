"""Kafka's record batches, format 2, as columns: two walks over one buffer.

`scan` walks the batches: it checks lengths, checksums and order, and writes one row of numbers a
batch. `decode` walks the records of those rows and writes where each key and value lies. Between
the two the caller allocates memory, decompresses batches, and marks those to be skipped.

Nothing in the bytes is trusted, not even under a right checksum: a number is used only after it was
checked to lie inside its batch, so no input leads out of the buffer or into a long loop.
The layout is that of Kafka's protocol guide, "Record Batch" and "Record".

A batch's checksum is CRC-32C (Castagnoli), taken eight bytes at a time. Processors with SSE 4.2
have an instruction for it. Others go the way that is open to all, at a fifth of that speed: slicing
by eight (Kounavis and Berry, "Novel table lookup-based algorithms for high-performance CRC
generation", 2008). No package serves here: a call from Python for each batch would cost more than
all else does where a batch holds one message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
import numpy as np
from numba import config, types
from numpy.typing import NDArray

from streamnb.kernels.jit import DISABLED, inner, kernel
from streamnb.kernels.layout import I64, Bytes, I64Grid, Int, load_eight

# The columns of a row.
BEGIN = 0  # where the batch begins in the response
BODY = 1  # where its records begin, and end, in the buffer given to `decode`
END = 2
FIRST_OFFSET = 3
LAST_OFFSET = 4  # of the batch as it was written: compaction may have removed that record
EPOCH = 5
ATTRIBUTES = 6
FIRST_MS = 7
LAST_MS = 8
PRODUCER = 9
N_RECORDS = 10
SKIPPED = 11  # 1 if the batch holds no messages for us
N_COLUMNS = 12

# The fields of a record, one row of the grid each; an end of -1 is a null.
OFFSET = 0
TIME_MS = 1
KEY_START = 2
KEY_END = 3
VALUE_START = 4
VALUE_END = 5
N_FIELDS = 6

# Why `scan` stopped.
AT_END = 0  # no complete batch follows
NEXT_RUN = 1  # a batch follows that belongs to another run, or `rows` is full
OLD_FORMAT = 2  # a message set of a format before 2 follows
BAD_HEADER = 3
BAD_CHECKSUM = 4
_BATCH = 5  # it does not stop: a batch follows

CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

HEADER_BYTES = 61
RECORD_BYTES_MIN = 7  # one byte each: length, attributes, two deltas, two sizes, headers
_LENGTH_AT, _EPOCH_AT, _MAGIC_AT, _CRC_AT, _ATTRIBUTES_AT = 8, 12, 16, 17, 21
_LAST_DELTA_AT, _FIRST_MS_AT, _LAST_MS_AT, _PRODUCER_AT, _COUNT_AT = 23, 27, 35, 43, 57
_LENGTH_FROM = 12  # the length counts what stands behind it
_OLD_BYTES_MIN = 14  # what the shortest old message has behind its length
_OFFSET_MAX = 1 << 62


# -- the checksum ----------------------------------------------------------------------------

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits reversed
_ONES = np.uint32(0xFFFFFFFF)
_LOW = np.uint32(0xFF)
_R8, _R16, _R24 = np.uint32(8), np.uint32(16), np.uint32(24)


def _make_tables() -> NDArray[np.uint32]:
    """Return the eight tables, shape (8, 256).

    Table k gives what a byte does to the remainder when k more bytes follow it, so eight bytes need
    eight look-ups that do not wait for one another.
    """
    tables = np.zeros((8, 256), dtype=np.uint32)
    for byte in range(256):
        remainder = byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (_POLYNOMIAL if remainder & 1 else 0)
        tables[0, byte] = remainder
    for k in range(1, 8):
        before = tables[k - 1]
        tables[k] = before >> _R8 ^ tables[0][before & _LOW]
    return tables


_T0, _T1, _T2, _T3, _T4, _T5, _T6, _T7 = _make_tables()


@inner
def _sliced(crc: np.uint32, data: Bytes, at: Int) -> np.uint32:
    """Return the remainder after the eight bytes from `at` on, on any processor."""
    return np.uint32(
        _T7[data[at] ^ (crc & _LOW)]
        ^ _T6[data[at + 1] ^ ((crc >> _R8) & _LOW)]
        ^ _T5[data[at + 2] ^ ((crc >> _R16) & _LOW)]
        ^ _T4[data[at + 3] ^ (crc >> _R24)]
        ^ _T3[data[at + 4]]
        ^ _T2[data[at + 5]]
        ^ _T1[data[at + 6]]
        ^ _T0[data[at + 7]]
    )


def _has_instruction() -> bool:
    """Return whether kernels may use it: the processor has it, and is the one compiled for.

    NUMBA_CPU_NAME=generic asks for code that runs anywhere, as an image does that is built on one
    machine and runs on others.
    """
    anywhere = str(config.CPU_NAME).lower() == "generic"
    return not anywhere and bool(llvm.get_host_cpu_features().get("sse4.2", False))


if TYPE_CHECKING or DISABLED or not _has_instruction():
    _after_eight = _sliced
else:
    from llvmlite import ir
    from numba.extending import intrinsic

    @intrinsic
    def _crc_instruction(typing_context, crc, word):  # noqa: ANN001, ANN202, ARG001 -- numba's protocol
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ARG001
            word = ir.IntType(64)
            crc32 = builder.module.declare_intrinsic(
                "llvm.x86.sse42.crc32.64.64", (), ir.FunctionType(word, [word, word])
            )
            return builder.call(crc32, arguments)

        return types.uint64(types.uint64, types.uint64), generate

    @inner
    def _after_eight(crc: np.uint32, data: Bytes, at: Int) -> np.uint32:
        """Return the remainder after the eight bytes from `at` on, by one instruction."""
        return np.uint32(_crc_instruction(np.uint64(crc), load_eight(data, at)))


@inner
def _crc32c(data: Bytes, begin: Int, end: Int) -> np.uint32:
    """Return the CRC-32C of data[begin:end]; the caller sees to it that they lie inside."""
    crc = _ONES
    at = begin
    whole = begin + ((end - begin) & ~7)
    while at < whole:
        crc = _after_eight(crc, data, at)
        at += 8
    while at < end:
        crc = _T0[data[at] ^ (crc & _LOW)] ^ (crc >> _R8)
        at += 1
    return crc ^ _ONES


@kernel
def checksum(data: Bytes) -> np.uint32:
    """Return the CRC-32C of a whole buffer."""
    return _crc32c(data, 0, len(data))


@kernel
def checksum_sliced(data: Bytes) -> np.uint32:
    """Return the CRC-32C of a buffer of whole eights, without the processor's instruction."""
    crc = _ONES
    for at in range(0, len(data), 8):
        crc = _sliced(crc, data, at)
    return crc ^ _ONES


# -- batches ----------------------------------------------------------------------------------


@inner
def _be16(data: Bytes, at: Int) -> Int:
    """Return a big-endian int16."""
    value = np.int64(data[at]) << 8 | np.int64(data[at + 1])
    return value - ((value & 0x8000) << 1)


@inner
def _be32(data: Bytes, at: Int) -> Int:
    """Return a big-endian int32."""
    value = np.int64(0)
    for i in range(4):
        value = value << 8 | np.int64(data[at + i])
    return value - ((value & 0x80000000) << 1)


@inner
def _be64(data: Bytes, at: Int) -> Int:
    """Return a big-endian int64."""
    value = np.int64(0)
    for i in range(8):
        value = value << 8 | np.int64(data[at + i])
    return value


@inner
def _varint(data: Bytes, at: Int, end: Int) -> tuple[Int, Int]:
    """Return a zigzag number and where it ends: -1 if it is cut off or above 64 bits.

    An `at` of -1, from whatever was read before, stays -1, so the caller checks it once at the end.
    """
    if at < 0 or at >= end:
        return np.int64(0), -1
    if data[at] < 0x80:
        first = np.int64(data[at])
        return (first >> 1) ^ -(first & 1), at + 1
    value = np.uint64(0)
    for i in range(10):
        if at + i >= end:
            break
        byte = np.uint64(data[at + i])
        value |= (byte & np.uint64(0x7F)) << np.uint64(7 * i)
        if byte < 0x80:
            if i == 9 and byte > 1:
                break
            half = np.int64(value >> np.uint64(1))
            return half ^ -np.int64(value & np.uint64(1)), at + i + 1
    return np.int64(0), -1


@inner
def _part(data: Bytes, at: Int, end: Int) -> tuple[Int, Int, Int]:
    """Return start and end of a sized part, and where to go on: all -1 if it is malformed.

    The end of a null is -1.
    """
    size, start = _varint(data, at, end)
    if start < 0 or size > end - start:
        return -1, -1, -1
    if size < 0:
        return start, -1, start
    return start, start + size, start + size


@inner
def _headers_end(data: Bytes, at: Int, end: Int) -> Int:
    """Return where a record's headers end; -1 if they are malformed."""
    count, at = _varint(data, at, end)
    if at < 0 or count < 0:
        return -1
    for _ in range(min(count, end - at)):  # a header has two bytes at least
        key, key_end, at = _part(data, at, end)
        if key_end < 0:
            return -1
        count -= 1
        value, _, at = _part(data, at, end)
        if value < 0 or key < 0:
            return -1
    return at if count == 0 else -1


@inner
def _read_header(data: Bytes, at: Int, end: Int, row: I64) -> bool:
    """Write a batch's numbers into its row; return whether they are possible."""
    first = _be64(data, at)
    last_delta = _be32(data, at + _LAST_DELTA_AT)
    row[BEGIN] = at
    row[BODY] = at + HEADER_BYTES
    row[END] = end
    row[FIRST_OFFSET] = first
    row[LAST_OFFSET] = first + last_delta
    row[EPOCH] = _be32(data, at + _EPOCH_AT)
    row[ATTRIBUTES] = _be16(data, at + _ATTRIBUTES_AT) & 0xFFFF
    row[FIRST_MS] = _be64(data, at + _FIRST_MS_AT)
    row[LAST_MS] = _be64(data, at + _LAST_MS_AT)
    row[PRODUCER] = _be64(data, at + _PRODUCER_AT)
    row[N_RECORDS] = _be32(data, at + _COUNT_AT)
    row[SKIPPED] = 1 if row[ATTRIBUTES] & CONTROL else 0
    return bool(0 <= first < _OFFSET_MAX and last_delta >= 0 and row[N_RECORDS] >= 0)


@inner
def _what_follows(data: Bytes, at: Int) -> int:
    """Return _BATCH, AT_END, OLD_FORMAT or BAD_HEADER, by length and format alone."""
    if len(data) - at < _LENGTH_FROM:
        return AT_END
    length = _be32(data, at + _LENGTH_AT)
    if length < _OLD_BYTES_MIN:
        return BAD_HEADER
    if length > len(data) - at - _LENGTH_FROM:
        return AT_END  # the response was cut here: what is cut off comes again
    magic = data[at + _MAGIC_AT]
    if magic < 2:
        return OLD_FORMAT
    return _BATCH if magic == 2 and length + _LENGTH_FROM >= HEADER_BYTES else BAD_HEADER


@kernel
def scan(
    data: Bytes, at: int, after: int, packed_max_bytes: int, rows: I64Grid
) -> tuple[int, Int, int]:
    """Check the batches of a partition's response from `at` on and write a row for each.

    A run ends where the compression or the leader's epoch changes: it is decoded as one. `after` is
    the last offset of the batch before, or -1; a run of compressed batches ends at
    `packed_max_bytes`. Returns how many of the `rows`, shape (n_max, N_COLUMNS), were written, the
    byte behind the last of their batches, and why it stopped there.
    """
    n = 0
    begin: Int = at
    why = _what_follows(data, begin)
    while why == _BATCH:
        end = begin + _LENGTH_FROM + _be32(data, begin + _LENGTH_AT)
        if n == len(rows):
            return n, begin, NEXT_RUN
        row = rows[n]
        sane = _read_header(data, begin, end, row)
        packed = row[ATTRIBUTES] & CODEC_MASK
        if n and (
            row[EPOCH] != rows[0, EPOCH]
            or packed != rows[0, ATTRIBUTES] & CODEC_MASK
            or (packed and end - at > packed_max_bytes)
        ):
            return n, begin, NEXT_RUN
        checksum = np.int64(_crc32c(data, begin + _ATTRIBUTES_AT, end))
        if _be32(data, begin + _CRC_AT) & 0xFFFFFFFF != checksum:
            return n, begin, BAD_CHECKSUM
        if not sane or row[FIRST_OFFSET] <= after:
            return n, begin, BAD_HEADER
        after = row[LAST_OFFSET]
        n += 1
        begin = end
        why = _what_follows(data, begin)
    return n, begin, why


@inner
def _read_record(
    data: Bytes, at: Int, end: Int, row: I64, before: Int, records: I64Grid, n: Int
) -> tuple[Int, Int]:
    """Write where record `n` lies; return its end, -1 if it is malformed, and its delta."""
    length, at = _varint(data, at, end)
    if at < 0 or length < RECORD_BYTES_MIN - 1 or length > end - at:
        return -1, 0
    end = at + length
    in_use = data[at] >= 0x80  # no attribute of a record means anything yet
    delta_ms, at = _varint(data, at + 1, end)
    delta, at = _varint(data, at, end)
    key_start, key_end, at = _part(data, at, end)
    value_start, value_end, at = _part(data, at, end)
    at = _headers_end(data, at, end)
    time_ms = row[FIRST_MS] + delta_ms
    beyond_int64 = (row[FIRST_MS] ^ time_ms) & (delta_ms ^ time_ms) < 0
    out_of_order = delta <= before or delta > row[LAST_OFFSET] - row[FIRST_OFFSET]
    if at != end or in_use or beyond_int64 or out_of_order:
        return -1, 0
    records[OFFSET, n] = row[FIRST_OFFSET] + delta
    records[TIME_MS, n] = row[LAST_MS] if row[ATTRIBUTES] & _LOG_APPEND_TIME else time_ms
    records[KEY_START, n] = key_start
    records[KEY_END, n] = key_end
    records[VALUE_START, n] = value_start
    records[VALUE_END, n] = value_end
    return at, delta


@kernel
def decode(data: Bytes, rows: I64Grid, from_offset: int, records: I64Grid) -> tuple[int, int]:
    """Write where each record of the rows' batches lies; those before `from_offset` are left out.

    The rows' BODY and END point into `data`. `records` has shape (N_FIELDS, n_max), as wide as the
    rows that are not skipped have records together. Returns the records written, and the batches
    read whole. If these are fewer than the rows, the batch behind them is malformed, and none of
    its records counts.
    """
    n = 0
    for b in range(len(rows)):
        row = rows[b]
        if row[SKIPPED]:
            continue
        at, n_before = row[BODY], n
        delta: Int = -1
        for _ in range(row[N_RECORDS]):
            at, delta = _read_record(data, at, row[END], row, delta, records, n)
            if at < 0:
                break
            n += row[FIRST_OFFSET] + delta >= from_offset
        if at != row[END]:
            return n_before, b
    return n, len(rows)
