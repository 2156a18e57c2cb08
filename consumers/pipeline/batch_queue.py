"""What the reading thread hands to the consuming one: a small bounded queue of decoded batches.

One thread gives and one takes. The queue is bounded twice, by batches and by their bytes, so that a
reader that is faster than the learner waits for it and memory stays where it is. It has an end,
which comes out behind everything that was put in before: either a reason or an error.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from consumers.messages import Messages, Partition

# Enough that neither thread waits for the other when one of them has a slow moment.
BATCHES_MAX = 4
BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """Decoded messages of one partition, in the order of its log.

    Attributes
    ----------
    partition : Partition
        The log they come from.
    next_offset : int
        Where reading goes on once they have been learned.
    n_raw : int
        Messages read, those that were rejected included.
    n_bytes : int
        Size of what was read.
    messages : Messages
        What the decoder made of them.
    """

    partition: Partition
    next_offset: int
    n_raw: int
    n_bytes: int
    messages: Messages


class Handover:
    """A bounded queue of batches with an end.

    Parameters
    ----------
    batches_max : int
        How many may wait.
    bytes_max : int
        How many bytes may wait; a larger batch passes alone.
    """

    def __init__(self, batches_max: int = BATCHES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._batches_max = batches_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._batches: deque[Batch] = deque()
        self._n_bytes = 0
        self._n_waiting: Counter[Partition] = Counter()
        self._reason: str | None = None
        self._error: BaseException | None = None

    @property
    def reason(self) -> str | None:
        """Why there will be no more; None as long as something may come or waits."""
        with self._changed:
            return None if self._batches else self._reason

    def waiting(self) -> Mapping[Partition, int]:
        """Return how many messages of each partition wait."""
        with self._changed:
            return dict(self._n_waiting)

    def put(self, batch: Batch, timeout_s: float) -> bool:
        """Put in a batch; return False where there was no room for it in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_room(batch.n_bytes), timeout_s):
                return False
            self._batches.append(batch)
            self._n_bytes += batch.n_bytes
            self._n_waiting[batch.partition] += batch.n_raw
            self._changed.notify_all()
            return True

    def end(self, reason: str) -> None:
        """Say that nothing more will come, and why."""
        with self._changed:
            self._reason = reason
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Let `take` raise an error, once all that is in has been taken."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def take(self, timeout_s: float) -> Batch | None:
        """Take the oldest batch; return None where none came in time, or none will come.

        Raises
        ------
        BaseException
            What `fail` was given, behind all batches before it.
        """
        with self._changed:
            self._changed.wait_for(self._has_news, timeout_s)
            if self._batches:
                batch = self._batches.popleft()
                self._n_bytes -= batch.n_bytes
                self._n_waiting[batch.partition] -= batch.n_raw
                self._changed.notify_all()
                return batch
            if self._error is not None:
                raise self._error
            return None

    def _has_room(self, n_bytes: int) -> bool:
        if not self._batches:
            return True
        fits = self._n_bytes + n_bytes <= self._bytes_max
        return fits and len(self._batches) < self._batches_max

    def _has_news(self) -> bool:
        return bool(self._batches) or self._reason is not None or self._error is not None
