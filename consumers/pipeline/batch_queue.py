"""The bounded queue of decoded batches between the reading and the consuming thread.

One thread puts and one takes. The queue is bounded by its batches and by their bytes, so a reader
that is faster than the learner waits, and memory stays bounded. Its end, a reason or an error,
comes out behind everything that was put in before. So does word of a partition that was taken over
or lost: it holds for the batches behind it.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass

from consumers.messages import Messages, Partition
from consumers.pipeline.part_files import LoadedPart

# Enough that neither thread waits for the other when one of them has a slow moment.
BATCHES_MAX = 4
BYTES_MAX = 32 << 20


@dataclass(frozen=True, slots=True)
class Handover:
    """A partition that is read here from now on, or (`is_ours` is False) no more.

    If another member got further, `part` is what the model goes on from.
    """

    partition: Partition
    is_ours: bool
    part: LoadedPart | None = None


class BatchQueue:
    """A bounded queue of batches with an end; a batch of more than `bytes_max` passes alone."""

    def __init__(self, batches_max: int = BATCHES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._batches_max = batches_max
        self._bytes_max = bytes_max
        self._changed = threading.Condition()
        self._batches: deque[tuple[Messages | Handover, int]] = deque()
        self._n_bytes = 0
        self._n_waiting: Counter[Partition] = Counter()
        self._reason: str | None = None
        self._error: BaseException | None = None

    @property
    def end_reason(self) -> str | None:
        """Why no batch will follow; None while one waits or may come."""
        with self._changed:
            return None if self._batches else self._reason

    def waiting(self) -> Mapping[Partition, int]:
        """Return how many messages of each partition wait."""
        with self._changed:
            return dict(self._n_waiting)

    def put(self, messages: Messages, n_bytes: int, timeout_s: float) -> bool:
        """Add a batch that was read as `n_bytes`; return False if the queue stayed full."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._has_space(n_bytes), timeout_s):
                return False
            self._batches.append((messages, n_bytes))
            self._n_bytes += n_bytes
            self._n_waiting[messages.partition] += len(messages.raw)
            self._changed.notify_all()
            return True

    def put_handover(self, handover: Handover) -> None:
        """Add word of a partition; there are few of them, so it never waits."""
        with self._changed:
            self._batches.append((handover, 0))
            self._changed.notify_all()

    def end(self, reason: str) -> None:
        """Say that no batch will follow, and why."""
        with self._changed:
            self._reason = reason
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Let `take` raise an error once every batch has been taken."""
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def take(self, timeout_s: float) -> Messages | Handover | None:
        """Remove and return what came first; None if nothing came in time or nothing will come.

        What `fail` was given is raised once every batch before it has been taken.
        """
        with self._changed:
            self._changed.wait_for(self._can_take, timeout_s)
            if self._batches:
                item, n_bytes = self._batches.popleft()
                self._n_bytes -= n_bytes
                if isinstance(item, Messages):
                    self._n_waiting[item.partition] -= len(item.raw)
                self._changed.notify_all()
                return item
            if self._error is not None:
                raise self._error
            return None

    def _has_space(self, n_bytes: int) -> bool:
        if not self._batches:
            return True
        fits = self._n_bytes + n_bytes <= self._bytes_max
        return fits and len(self._batches) < self._batches_max

    def _can_take(self) -> bool:
        return bool(self._batches) or self._reason is not None or self._error is not None
