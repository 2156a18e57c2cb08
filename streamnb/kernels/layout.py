"""The arrays that travel together into kernels, as named tuples; annotations are numba's types.

Every array is C-contiguous and writable, except `Bytes`: a read-only array is another type. At the
end is what an array cannot say for itself: eight bytes in one step, and what will be wanted soon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from streamnb.kernels.jit import DISABLED

Bytes = Annotated[NDArray[np.uint8], types.Array(types.uint8, 1, "C", readonly=True)]
U8 = Annotated[NDArray[np.uint8], types.uint8[::1]]
U16 = Annotated[NDArray[np.uint16], types.uint16[::1]]
I32 = Annotated[NDArray[np.int32], types.int32[::1]]
I64 = Annotated[NDArray[np.int64], types.int64[::1]]
U64 = Annotated[NDArray[np.uint64], types.uint64[::1]]
F64 = Annotated[NDArray[np.float64], types.float64[::1]]
Flags = Annotated[NDArray[np.bool_], types.boolean[::1]]
I16Grid = Annotated[NDArray[np.int16], types.int16[:, ::1]]
I32Grid = Annotated[NDArray[np.int32], types.int32[:, ::1]]
I64Grid = Annotated[NDArray[np.int64], types.int64[:, ::1]]
F64Grid = Annotated[NDArray[np.float64], types.float64[:, ::1]]
TAKEN_BACK = -2  # in the place of a label: of this row, words that the table lacks stand as -1
LIVE, DECLARED = range(2)  # places in `Counts.state`
Int = int | np.int64  # one type to the compiler, two to Python


class TokenizerTables(NamedTuple):
    """How text is read: options, hash key, and the tables behind them."""

    options: I64  # by the OPT_ constants of `tokenise`
    key: U64  # two words, SipHash's key
    negators: U64  # fingerprints of negating words, each in the slot of its low bits
    letters: U8  # byte → the letter that an ASCII letter folds to, 0 for any other byte
    openers: U8  # byte → how short a word may be that it opens for sure; 0 where no word is sure
    stops: U8  # byte → 1 for an ASCII sign that ends any word
    blocks: U16  # code point >> 7 → block
    classes: U8  # block, code point & 127 → character class
    folds: I32  # the same → distance to the folded character
    expansions: I32Grid  # characters that fold to several
    trie: I16Grid  # emoticons: node, byte → node
    accepts: U8  # nodes at which an emoticon ends
    signs: U64  # fingerprints of a text's beginning and end, and of a gap between words


class Texts(NamedTuple):
    """Texts of a batch as positions in one buffer; an end of -1 is a text that is not there."""

    data: U8
    starts: I64
    ends: I64


class Table(NamedTuple):
    """Word → column, and the words' text."""

    slots: U64  # tag and column + 1; a power of two of them, 0 is empty
    fingerprints: U64  # by column
    words: U8  # UTF-8 of all words, one behind the other
    word_ends: I64  # by column
    state: I64  # words in the table, bytes of text


class Scratch(NamedTuple):
    """Room for the tokens and n-grams of one text."""

    text: U8
    text_words: U64  # the same memory, eight bytes at a time; tokens begin at whole ones
    begins: I64
    ends: I64
    fingerprints: U64
    marks: U8
    seen: I32
    grams: U64
    lasts: I32
    sizes: I32
    counts: I32
    inside: U8  # words with their ends, one behind the other, for n-grams of characters
    inside_end: I64  # (1,): how many bytes of it this text has


class Rows(NamedTuple):
    """A batch in compressed sparse rows: row i is columns[indptr[i]:indptr[i+1]], each once."""

    columns: I32
    counts: F64
    indptr: I64


class RowUpdates(NamedTuple):
    """What a batch's rows add to the counts."""

    labels: I32  # (n,): the index of each row's class; -1: it is predicted and not learned
    weights: F64  # (n,): what a row adds to its counts, never zero; a negative one unlearns it
    scales: F64  # (n,): how far decay has scaled the counts by then, so priors too; 1 without decay
    own_scales: F64  # (n,): the same by the newest time of the part that learns, not of the model
    own_after: F64  # (n,): that once the row is learned
    decays: bool = False  # whether weights are powers of two to any fraction, as under a half-life

    def rows(self, begin: int, end: int) -> RowUpdates:
        """Return the updates of rows `begin` to `end`."""
        labels, weights, scales, own, after, decays = self
        if begin == 0 and end == len(labels):
            return self
        rows = slice(begin, end)
        return RowUpdates(labels[rows], weights[rows], scales[rows], own[rows], after[rows], decays)

    def of_part(self) -> RowUpdates:
        """Return the updates by which the part that learns judges the rows itself."""
        return self._replace(scales=self.own_scales)


class RunOptions(NamedTuple):
    """From where on a kernel takes a batch's rows, and what it does with them.

    It stops before it learns a row with too many new words or values; once some have left it is
    called again for the rest.
    """

    row: int  # the first row
    n_predicted: int  # rows before it have their log-likelihood already
    learn: bool  # whether rows with a label are learned
    n_max: int  # the bound on words or values


class Counts(NamedTuple):
    """Sufficient statistics of one group of words.

    N_jc by word and class, N_c (examples with this group) and N_·c (tokens) by class, and in
    `state` the number of words with a count above zero, and the size of a declared dictionary, 0
    where words come as they please. V is the second where there is one.
    """

    by_word: F64Grid  # (capacity, n_classes)
    examples: F64  # (n_classes,)
    tokens: F64  # (n_classes,)
    state: I64  # LIVE, DECLARED


class Absence(NamedTuple):
    """What Bernoulli keeps of the counts, by class, as a pure function of them: see its kernel."""

    sums: I64Grid  # (n_classes, N_TERMS): S_p of the light words, fixed point
    exponents: I64  # (n_classes,): k of the scale 2ᵏ
    limits: F64  # (n_classes,): the largest light count, 2ᵏ/128
    inverses: F64  # (n_classes,): 2⁻ᵏ
    heavy: F64Grid  # (n_classes, room): counts of the heavy words, ascending
    n_heavy: I64  # (n_classes,): how many there are


# ---- memory --------------------------------------------------------------------------------------

# Numbers are little-endian, as the machines are that numba compiles for. In plain Python these do
# the same, a byte at a time; a hint does nothing.

if TYPE_CHECKING or DISABLED:

    def load_eight(data: U8, at: Int) -> np.uint64:
        """Return the eight bytes from `at` on; all must lie within `data`."""
        return np.uint64(data[at : at + 8].view("<u8")[0])  # it says so where eight are not there

    def store_eight(data: U8, at: Int, word: np.uint64) -> None:
        """Write eight bytes from `at` on; all must lie within `data`."""
        data[at : at + 8] = np.frombuffer(int(word).to_bytes(8, "little"), dtype=np.uint8)

    def prefetch(array: Any, row: Int, byte: int) -> None:
        """Have a byte of an array's row, and those about it, brought near: they are needed soon."""

else:
    from llvmlite import ir
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
    def prefetch(typing_context, array, row, byte):  # noqa: ANN001, ANN201, ARG001
        """Have a byte of an array's row, and those about it, brought near: they are needed soon."""

        def generate(context, builder, signature, arguments):  # noqa: ANN001, ANN202
            array, row, byte = arguments
            parts = context.make_array(signature.args[0])(context, builder, array)
            data = builder.bitcast(parts.data, _BYTE.as_pointer())
            offset = builder.add(byte, builder.mul(row, builder.extract_value(parts.strides, 0)))
            kind = ir.FunctionType(ir.VoidType(), [data.type, _FLAG, _FLAG, _FLAG])
            prefetch = builder.module.declare_intrinsic("llvm.prefetch", [data.type], kind)
            # to read, as near as can be, of the data
            hints = [_FLAG(0), _FLAG(3), _FLAG(1)]
            builder.call(prefetch, [builder.gep(data, [offset]), *hints])
            return context.get_dummy_value()

        return types.void(array, types.int64, types.int64), generate
