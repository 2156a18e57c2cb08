"""The keys of the newest matches of one standing query: what its figures are counted from.

It keeps somewhat more than are counted. So some of them may be removed before the ones behind them
are missed, and the store has to be asked again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.int64]

SPARE = 2_000  # matches kept beyond those that are counted


class Window:
    """The newest matches of a query, ascending.

    Parameters
    ----------
    keys : ndarray of shape (n,), int64
        The newest matches that the store has, ascending; all there are, or `n_max` + `SPARE`.
    n_max : int
        How many are counted.

    Attributes
    ----------
    keys : ndarray of shape (n,), int64
        What is held: at most `n_max` + 2 `SPARE`.
    """

    def __init__(self, keys: Keys, n_max: int) -> None:
        self.keys = keys
        self._n_max = n_max
        # No match above this key has been let go of but those that the store let go of as well.
        self._left_key = int(keys[0]) - 1 if len(keys) >= n_max + SPARE else -1
        self._last_key = int(keys[-1]) if len(keys) else -1

    @property
    def counted(self) -> Keys:
        """Those that are counted."""
        return self.keys[-self._n_max :]

    @property
    def newest_only(self) -> bool:
        """Whether there are older ones, which are not counted."""
        return len(self.keys) > self._n_max

    def add(self, keys: Keys) -> None:
        """Take in new matches, ascending; those that the store has told of already are known."""
        keys = keys[keys > self._last_key]
        if not len(keys):
            return
        self._last_key = int(keys[-1])
        held = np.concatenate((self.keys, keys))
        if len(held) > self._n_max + 2 * SPARE:
            n_left = len(held) - self._n_max - SPARE
            self._left_key = int(held[n_left - 1])
            held = held[n_left:]
        self.keys = held

    def keep(self, held: Keys) -> None:
        """Let go of all but those that the store still holds."""
        self.keys = held

    def lacks_some(self, oldest_key: int) -> bool:
        """Tell whether the store has to be asked again, for it may hold matches that are missed.

        Parameters
        ----------
        oldest_key : int
            No message of the store has a key below it.
        """
        return len(self.keys) <= self._n_max and self._left_key >= oldest_key
