"""How many messages a second may be stored, by the processor time that storing one takes.

Storing a message costs time on two threads: the one that judged it makes its row, the store's
thread writes it. Both are measured by their own processor time, not by the clock: a thread that
waits, for the disk or on a busy machine, costs nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Before anything is measured; about what a machine of today takes.
_MAKING_S = 5e-6
_WRITING_S = 20e-6
_WEIGHT = 500  # messages that this guess stands for
# Sums forget by this share with each measurement. Samples are made ten times a second and written
# twice a second while they are rationed: half is forgotten within three seconds.
_MAKING_KEPT = 0.975
_WRITING_KEPT = 0.89
RATE_MIN_PER_S = 20.0  # a page without any message would be of no use


@dataclass(slots=True)
class _Cost:
    """Seconds a message, over the newest measurements."""

    n: float
    seconds: float
    kept: float

    @property
    def per_message_s(self) -> float:
        return self.seconds / self.n

    def add(self, n: float, seconds: float) -> None:
        self.n = self.kept * self.n + n
        self.seconds = self.kept * self.seconds + seconds


class ProcessorBudget:
    """Turns a share of a core into messages a second; not safe for threads by itself.

    Parameters
    ----------
    share_max : float
        Processor time for storing, in cores: 0.02 are 20 ms each second.
    """

    def __init__(self, share_max: float) -> None:
        self._share_max = share_max
        self._making = _Cost(_WEIGHT, _WEIGHT * _MAKING_S, _MAKING_KEPT)
        self._writing = _Cost(_WEIGHT, _WEIGHT * _WRITING_S, _WRITING_KEPT)

    @property
    def rate_per_s(self) -> float:
        """Messages a second that may be stored."""
        cost_s = self._making.per_message_s + self._writing.per_message_s
        return max(RATE_MIN_PER_S, self._share_max / cost_s) if cost_s > 0 else math.inf

    def made(self, n: float, seconds: float) -> None:
        """Take note of the processor time that making `n` rows took."""
        self._making.add(n, seconds)

    def written(self, n: float, seconds: float, *, has_changes: bool = False) -> None:
        """Take note of the processor time of a transaction.

        Parameters
        ----------
        n : float
            Messages written.
        seconds : float
        has_changes : bool
            Whether deletions or corrections were done with them. These are never rationed, and
            what they took is not told apart: then a message is charged no more than before.
        """
        if has_changes:
            seconds = min(seconds, n * self._writing.per_message_s)
        if n:
            self._writing.add(n, seconds)
