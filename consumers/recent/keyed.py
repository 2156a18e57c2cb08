"""Rows that are known by their keys: which of them are still held, and where they lie.

It is what standing queries live on: they remember the keys of what they found, and have these
counted again when something has changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from consumers.recent.chunk import Chunk

Keys = NDArray[np.int64]
Parts = Sequence[tuple[Chunk, NDArray[np.int64]]]


def located(chunks: Sequence[Chunk], cutoff_ms: int, keys: Keys) -> Parts:
    """Return where the rows of some keys lie, of those that are held.

    Parameters
    ----------
    chunks : sequence of Chunk
        Oldest first.
    cutoff_ms : int
        Rows that came before are not held any more, in Unix milliseconds.
    keys : ndarray of shape (n,), int64
        Ascending.

    Returns
    -------
    sequence of (Chunk, ndarray)
        Positions in the chunks, ascending as the keys are.
    """
    parts = []
    for chunk in chunks:
        lowest = chunk.first_since(cutoff_ms)
        begin, end = np.searchsorted(keys, (lowest, chunk.first_key + chunk.n_committed))
        if begin < end:
            at = keys[begin:end] - chunk.first_key
            parts.append((chunk, at[chunk.alive[at]]))
    return parts


def keys_of(parts: Parts) -> Keys:
    """Return the keys of rows, ascending, given by their positions in chunks, oldest first."""
    found = [at + chunk.first_key for chunk, at in parts]
    return np.concatenate(found) if found else np.zeros(0, np.int64)
