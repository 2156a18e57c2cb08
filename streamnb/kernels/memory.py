"""What an array cannot say for itself: eight bytes in one step, and what will be wanted soon.

Numbers are little-endian, as the machines are that numba compiles for. In plain Python these do the
same, a byte at a time; a hint does nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from streamnb.kernels.jit import DISABLED
from streamnb.kernels.layout import U8, Int

if TYPE_CHECKING or DISABLED:

    def load_eight(data: U8, at: Int) -> np.uint64:
        """Return the eight bytes from `at` on; all must lie within `data`."""
        return np.uint64(data[at : at + 8].view("<u8")[0])  # it says so where eight are not there

    def store_eight(data: U8, at: Int, word: np.uint64) -> None:
        """Write eight bytes from `at` on; all must lie within `data`."""
        data[at : at + 8] = np.frombuffer(int(word).to_bytes(8, "little"), dtype=np.uint8)

    def prefetch(array: Any, row: Int) -> None:
        """Have an array's row brought near: it is about to be read or written."""

else:
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    _BYTE, _FLAG, _WORD = ir.IntType(8), ir.IntType(32), ir.IntType(64)

    def _place(context: Any, builder: Any, kind: Any, array: Any, at: Any) -> Any:
        """Return a pointer to byte `at` of an array of bytes, as one to a word."""
        data = context.make_array(kind)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [at]), _WORD.as_pointer())

    @intrinsic
    def load_eight(typing_context, data, at):  # noqa: ANN001, ANN201, ARG001 -- numba's protocol
        """Return the eight bytes from `at` on; all must lie within `data`."""

        def generate(context, builder, signature, arguments):  # noqa: ANN001, ANN202
            place = _place(context, builder, signature.args[0], *arguments)
            return builder.load(place, align=1)

        return types.uint64(data, types.int64), generate

    @intrinsic
    def store_eight(typing_context, data, at, word):  # noqa: ANN001, ANN201, ARG001
        """Write eight bytes from `at` on; all must lie within `data`."""

        def generate(context, builder, signature, arguments):  # noqa: ANN001, ANN202
            array, at, word = arguments
            builder.store(word, _place(context, builder, signature.args[0], array, at), align=1)
            return context.get_dummy_value()

        return types.void(data, types.int64, types.uint64), generate

    @intrinsic
    def prefetch(typing_context, array, row):  # noqa: ANN001, ANN201, ARG001
        """Have an array's row brought near: it is about to be read or written."""

        def generate(context, builder, signature, arguments):  # noqa: ANN001, ANN202
            array, row = arguments
            parts = context.make_array(signature.args[0])(context, builder, array)
            data = builder.bitcast(parts.data, _BYTE.as_pointer())
            offset = builder.mul(row, builder.extract_value(parts.strides, 0))
            kind = ir.FunctionType(ir.VoidType(), [data.type, _FLAG, _FLAG, _FLAG])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", [data.type], kind)
            # to read, as near as can be, of the data
            hints = [_FLAG(0), _FLAG(3), _FLAG(1)]
            builder.call(prefetch, [builder.gep(data, [offset]), *hints])
            return context.get_dummy_value()

        return types.void(array, types.int64), generate
