"""What comes in: which messages are taken, and the queue in which they wait for the writer.

More may come than is worth keeping. Then a sample is taken: about ten times a second a batch gives
as many as a bucket of tokens allows, drawn evenly over its rows. The bucket is full at first and
holds five seconds' worth, so that a short stream is kept whole however quickly it comes.

Rows of the table wait, not the batches they came in; the queue is bounded by their bytes.
While the stream is too fast, a burst is stored little by little, for the learning needs the
processor; and once it has been so for some seconds, what still waits is thinned, so that the page
does not lag behind. A thread makes the rows that are taken (see `making`); it never waits.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from consumers.messages import Messages, Partition
from consumers.search.row_builder import Columns, Maker, some

_PRESSED_S = 1.0  # how long after a message was left out the stream counts as too fast
# What a sample of a batch holds, as a time at the long run's rate: to begin with rows costs as much
# as dozens of them. At random, so that the batches of two partitions that take turns both have one.
_SAMPLE_S = (0.05, 0.15)
_PIECE_S = 0.25  # messages that are then taken at once, as a time at the long run's rate
_PATIENCE_S = 2.0  # how long a stream may be too fast before what waits is thinned
_BEHIND_S = 1.0  # to what, as a time at the long run's rate
BURST_S = 5.0
BYTES_MAX = 64 << 20
_ROW_BYTES = 1_000  # of a row without its text
_TOKEN_BYTES = 4096  # a message of more costs more tokens
_RATE_OVER_S = 60
_SEED = 20


@dataclass(frozen=True, slots=True)
class Offer:
    """Messages that wait to be stored.

    Attributes
    ----------
    partition : Partition
        Where they came from.
    columns : dict of str to list
        As `making.Maker.columns` made them.
    """

    partition: Partition
    columns: Columns

    def __len__(self) -> int:
        return len(self.columns["id"])

    @property
    def n_bytes(self) -> int:
        """What it holds in memory, about."""
        return _ROW_BYTES * len(self) + sum(map(len, self.columns["text"]))


@dataclass(frozen=True, slots=True)
class Forget:
    """Messages that the stream has deleted, by deletions `at` offsets of a partition."""

    ids: Sequence[str]
    at: tuple[Partition, Sequence[int]]
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Correct:
    """What a message now teaches.

    It is the one that stands `at` a place in the stream; None: the newest of its id.
    """

    id: str
    label: str | None
    part: str | None
    at: tuple[Partition, int] | None = None
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Remove:
    """A message that is to go for good, with all of its id but newer ones of its partition.

    `at` is its place in the stream; None: all of its id go.
    """

    id: str
    at: tuple[Partition, int] | None = None
    done: threading.Event = field(default_factory=threading.Event)


Item = Offer | Forget | Correct | Remove


class _LastMinute:
    """Counts over the last minute, a second at a time."""

    def __init__(self, now_s: float) -> None:
        self._began_s = now_s
        self._seconds: deque[list[float]] = deque()  # second, offered, taken

    def add(self, now_s: float, offered: int, taken: int) -> None:
        second = float(int(now_s))
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
            self._trim(now_s)
        self._seconds[-1][1] += offered
        self._seconds[-1][2] += taken

    def rates(self, now_s: float) -> tuple[float, float]:
        """Return messages offered and taken a second."""
        self._trim(now_s)
        over_s = min(max(now_s - self._began_s, 1.0), float(_RATE_OVER_S))
        offered, taken = (sum(second[i] for second in self._seconds) / over_s for i in (1, 2))
        return offered, taken

    def _trim(self, now_s: float) -> None:
        while self._seconds and self._seconds[0][0] <= now_s - _RATE_OVER_S - 1:
            self._seconds.popleft()


class Intake:
    """The queue before the writer.

    Parameters
    ----------
    rate_max_per_s : float
        Messages a second that are taken in the long run.
    maker : Maker
        Makes the rows.
    wall_clock, clock : callable
        Seconds since 1970; monotonic seconds.
    """

    def __init__(
        self,
        rate_max_per_s: float,
        maker: Maker,
        wall_clock: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        self._maker = maker
        self._rate_per_s = rate_max_per_s
        self._tokens_max = max(1.0, BURST_S * rate_max_per_s)
        self._tokens = self._tokens_max
        self._wall_clock = wall_clock
        self._clock = clock
        self._filled_s = clock()
        self._rng = np.random.default_rng(_SEED)
        self._lock = threading.Lock()
        self._items: deque[Item] = deque()
        self._n_bytes = 0
        self._sampled_s = -math.inf  # when something was last left out
        self._pressed_s = math.inf  # since when that has been so again and again
        self._sample_tokens = 0.0  # that the next sample waits for
        self._is_open = False
        self._minute = _LastMinute(self._filled_s)
        self.n_offered = 0
        self.n_overflowed = 0
        self.something = threading.Event()  # waits in the queue
        self.urgent = threading.Event()  # somebody waits for it
        self.closed = threading.Event()

    def open(self) -> None:
        """Begin to take what comes."""
        self._is_open = True

    def close(self) -> None:
        """Take nothing more; wake the writer."""
        with self._lock:
            self._is_open = False
        self.closed.set()
        self.urgent.set()
        self.something.set()

    @property
    def is_open(self) -> bool:
        """Whether what comes is taken."""
        return self._is_open

    def offer(
        self, messages: Messages, rows: NDArray[np.int64], log_posteriors: NDArray[np.float64]
    ) -> None:
        """Take what may be taken of some rows; see `Recent.offer`."""
        n_bytes = len(messages.raw.buffer)
        cost = max(1.0, n_bytes / (_TOKEN_BYTES * max(1, len(messages.raw))))
        with self._lock:
            if not self._is_open or not len(rows):
                return
            self.n_offered += len(rows)
            n = min(len(rows), int(self._refilled() / cost))
            if n < len(rows):
                self._leave_out()
                n = n if self._tokens >= self._sample_tokens else 0
            chosen = self._drawn(len(rows), n)
            self._tokens -= len(chosen) * cost
            if 0 < n < len(rows):
                self._sample_tokens = self._rate_per_s * self._rng.uniform(*_SAMPLE_S)
            if not n:
                self._minute.add(self._filled_s, len(rows), 0)
                return
        arrived_ms = int(self._wall_clock() * 1000)
        made = self._maker.columns(messages, rows[chosen], log_posteriors[chosen], arrived_ms)
        self._append(Offer(messages.partition, made), n_offered=len(rows))

    def _append(self, offer: Offer, n_offered: int) -> None:
        n, n_bytes = len(offer), offer.n_bytes
        with self._lock:
            if self._n_bytes and self._n_bytes + n_bytes > BYTES_MAX:
                self.n_overflowed += n
                n = 0
            self._minute.add(self._filled_s, n_offered, n)
            if not n or not self._is_open:
                return
            self._items.append(offer)
            self._n_bytes += n_bytes
        self.something.set()

    def put(self, item: Forget | Correct | Remove) -> bool:
        """Put in what is always taken; return False where the queue is closed."""
        with self._lock:
            if not self._is_open:
                return False
            self._items.append(item)
        if not isinstance(item, Forget):
            self.urgent.set()
        self.something.set()
        return True

    def put_back(self, items: Sequence[Item]) -> None:
        """Put what could not be done before all that waits."""
        with self._lock:
            self._items.extendleft(reversed(items))

    def take(self) -> list[Item]:
        """Take what waits, in the order in which it came.

        That is all of it, unless the stream is faster than what may be taken of it and nobody
        waits: then it is a part, and what waits too long is thinned.
        """
        with self._lock:
            now_s = self._clock()
            is_pressed = now_s - self._sampled_s < _PRESSED_S and self._is_open
            if is_pressed and now_s - self._pressed_s > _PATIENCE_S:
                self._thin()
            rows_max = _PIECE_S * self._rate_per_s
            items: list[Item] = []
            n_rows = 0
            while self._items:
                if is_pressed and n_rows >= rows_max and not self.urgent.is_set():
                    return items
                item = self._items.popleft()
                items.append(item)
                if isinstance(item, Offer):
                    n_rows += len(item)
                    self._n_bytes -= item.n_bytes
            self.something.clear()
            if self._is_open:
                self.urgent.clear()
            else:
                self.something.set()
        return items

    def rates(self) -> tuple[float, float]:
        """Return messages offered and taken a second, over the last minute at most."""
        with self._lock:
            return self._minute.rates(self._clock())

    def _leave_out(self) -> None:
        """Note that the stream is too fast just now."""
        if self._filled_s - self._sampled_s >= _PRESSED_S:
            self._pressed_s = self._filled_s
        self._sampled_s = self._filled_s

    def _thin(self) -> None:
        """Of more than may wait, leave out what is too much, of each batch as large a share."""
        n_waiting = sum(len(item) for item in self._items if isinstance(item, Offer))
        share = _BEHIND_S * self._rate_per_s / max(1, n_waiting)
        if share >= 1:
            return
        for i, item in enumerate(self._items):
            if isinstance(item, Offer):
                kept = self._drawn(len(item), round(share * len(item)))
                self._minute.add(self._filled_s, 0, len(kept) - len(item))
                self._n_bytes -= item.n_bytes
                fewer = replace(item, columns=some(item.columns, kept.tolist()))
                self._n_bytes += fewer.n_bytes
                self._items[i] = fewer

    def _refilled(self) -> float:
        """Return how many tokens there are now."""
        now_s = self._clock()
        grown = self._tokens + (now_s - self._filled_s) * self._rate_per_s
        self._tokens = min(self._tokens_max, grown)
        self._filled_s = now_s
        return self._tokens

    def _drawn(self, n: int, n_taken: int) -> NDArray[np.int64]:
        """Return about `n_taken` of `n` positions, ascending: one at random from each stretch."""
        if n_taken in {0, n}:
            return np.arange(n_taken)
        at = (np.arange(n_taken) + self._rng.random(n_taken)) * (n / n_taken)
        return np.unique(np.minimum(at.astype(np.int64), n - 1))
