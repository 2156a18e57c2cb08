"""CRC-32C (Castagnoli), the checksum of Kafka's record batches, eight bytes at a time.

Slicing by eight (Kounavis and Berry, "Novel table lookup-based algorithms for high-performance CRC
generation", 2008): table k gives what a byte does to the remainder when k more bytes follow it, so
eight bytes need eight look-ups that do not wait for one another. It is the same on every processor.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numba import types
from numpy.typing import NDArray

from streamnb.kernels._jit import inner, kernel
from streamnb.kernels.layout import Int

# What `np.frombuffer(bytes)` gives. To the compiler a read-only array is a type of its own.
Bytes = Annotated[NDArray[np.uint8], types.Array(types.uint8, 1, "C", readonly=True)]

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits reversed
_ONES = np.uint32(0xFFFFFFFF)
_LOW = np.uint32(0xFF)
_R8, _R16, _R24 = np.uint32(8), np.uint32(16), np.uint32(24)


def _make_tables() -> NDArray[np.uint32]:
    """Return the eight tables, of shape (8, 256)."""
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
def crc32c(data: Bytes, begin: Int, end: Int) -> np.uint32:
    """Return the CRC-32C of data[begin:end]; the caller sees to it that they lie inside."""
    crc = _ONES
    at = begin
    whole = begin + ((end - begin) & ~7)
    while at < whole:
        crc = (
            _T7[data[at] ^ (crc & _LOW)]
            ^ _T6[data[at + 1] ^ ((crc >> _R8) & _LOW)]
            ^ _T5[data[at + 2] ^ ((crc >> _R16) & _LOW)]
            ^ _T4[data[at + 3] ^ (crc >> _R24)]
            ^ _T3[data[at + 4]]
            ^ _T2[data[at + 5]]
            ^ _T1[data[at + 6]]
            ^ _T0[data[at + 7]]
        )
        at += 8
    while at < end:
        crc = _T0[data[at] ^ (crc & _LOW)] ^ (crc >> _R8)
        at += 1
    return crc ^ _ONES


@kernel(types.uint32, types.Array(types.uint8, 1, "C", readonly=True))
def checksum(data: Bytes) -> np.uint32:
    """Return the CRC-32C of a whole buffer."""
    return crc32c(data, 0, len(data))
