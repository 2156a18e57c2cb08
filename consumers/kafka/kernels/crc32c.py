"""CRC-32C (Castagnoli), the checksum of Kafka's record batches, eight bytes at a time.

Processors with SSE 4.2 have an instruction for it. Others go the way that is open to all, at a
fifth of that speed: slicing by eight (Kounavis and Berry, "Novel table lookup-based algorithms for
high-performance CRC generation", 2008). Table k gives what a byte does to the remainder when k more
bytes follow it, so eight bytes need eight look-ups that do not wait for one another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
import numpy as np
from numba import config, types
from numpy.typing import NDArray

from streamnb.kernels.jit import DISABLED, inner, kernel
from streamnb.kernels.layout import Bytes, Int
from streamnb.kernels.memory import load_eight

# What `np.frombuffer(bytes)` gives. To the compiler a read-only array is a type of its own.

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
def sliced(crc: np.uint32, data: Bytes, at: Int) -> np.uint32:
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
    """Tell whether kernels may use it: this processor has it, and they are compiled for such a one.

    NUMBA_CPU_NAME=generic asks for code that runs anywhere, as an image does that is built on one
    machine and runs on others.
    """
    anywhere = str(config.CPU_NAME).lower() == "generic"
    return not anywhere and bool(llvm.get_host_cpu_features().get("sse4.2", False))


if TYPE_CHECKING or DISABLED or not _has_instruction():
    after_eight = sliced
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
    def after_eight(crc: np.uint32, data: Bytes, at: Int) -> np.uint32:
        """Return the remainder after the eight bytes from `at` on, by one instruction."""
        return np.uint32(_crc_instruction(np.uint64(crc), load_eight(data, at)))


@inner
def crc32c(data: Bytes, begin: Int, end: Int) -> np.uint32:
    """Return the CRC-32C of data[begin:end]; the caller sees to it that they lie inside."""
    crc = _ONES
    at = begin
    whole = begin + ((end - begin) & ~7)
    while at < whole:
        crc = after_eight(crc, data, at)
        at += 8
    while at < end:
        crc = _T0[data[at] ^ (crc & _LOW)] ^ (crc >> _R8)
        at += 1
    return crc ^ _ONES


@kernel
def checksum(data: Bytes) -> np.uint32:
    """Return the CRC-32C of a whole buffer."""
    return crc32c(data, 0, len(data))


@kernel
def checksum_sliced(data: Bytes) -> np.uint32:
    """Return the CRC-32C of a buffer of whole eights, without the processor's instruction."""
    crc = _ONES
    for at in range(0, len(data), 8):
        crc = sliced(crc, data, at)
    return crc ^ _ONES
