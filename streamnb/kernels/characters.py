"""What kinds of characters there are, and the options that text is read by."""

from __future__ import annotations

import numpy as np

from streamnb.kernels._jit import inner
from streamnb.kernels.layout import Int, Reader

(
    SEPARATOR,
    LETTER,
    DIGIT,
    IDEOGRAPH,
    EMOJI,
    CLAUSE,
    APOSTROPHE,
    AT,
    HASH,
    JOINER,
    FLAG,
    SPACE,
) = range(12)
# Places in the options array.
OPT_CASE, OPT_MENTIONS, OPT_LINKS, OPT_SQUEEZE, OPT_EMOTICONS, OPT_NEGATION = range(6)
OPT_NGRAM_MIN, OPT_NGRAM_MAX, OPT_OCCURRENCE = 6, 7, 8
N_OPTIONS = 9
WORD_BYTES_MAX = 64
BLANK = 32


@inner
def class_of(point: Int, reader: Reader) -> Int:
    """Return the character class of a code point."""
    return np.int64(reader.classes[np.int64(reader.blocks[point >> 7]) << 7 | point & 127])
