"""The made-up streams: tweets or loan applications without end, for a first look and for tests.

Message number n is a pure function of the seed and n, and n is its offset; so any position can be
entered, and a run that starts again sees exactly what it would have seen. The tweets have real
drift in them: the new phone is loved until message `turn_after`, and then it is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from consumers.config import GeneratorSettings
from consumers.messages import Partition, RawColumns
from consumers.sources._loans import LoanMaker
from consumers.sources._records import Records, raw_columns
from consumers.sources._tweets import START_MS, TweetMaker

BATCH_MESSAGES_MAX = 500
_GATHER_S = 0.01  # messages are gathered this long, so that a slow stream is not polled one by one
_BACKLOG_S_MAX = 1.0  # what a caller that was away for longer finds; the rest was never sent


class GeneratorSource:
    """Makes up tweets, or loan applications (see `_loans`), at a steady rate.

    Each tweet is JSON with `id`, `created_at`, `user`, `lang`, `text` and, in the labelled share of
    them, `label`: 0 for negative and 4 for positive. Some contradict their words and some say
    nothing, so that a good classifier is right 85 to 90 times in a hundred.

    Parameters
    ----------
    settings : GeneratorSettings
        Which stream, seed, rate, share of labelled messages, and the tweet at which sentiment on
        the new phone turns. A rate of 0 is as fast as it goes.
    clock, wait : callable
        Tells a time in seconds, and passes a number of seconds.
    """

    def __init__(
        self,
        settings: GeneratorSettings,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self.name = "generator"
        self.partition = Partition(self.name, 0)
        self._rate_per_s = settings.rate_per_s
        is_tweets = settings.stream == "tweets"
        self._maker = TweetMaker(settings) if is_tweets else LoanMaker(settings)
        self._clock = clock
        self._wait = wait
        self._position = 0
        self._sent_until_s = 0.0  # by the clock: messages due up to here were handed over

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Begin at the partition's position, or at message 0."""
        self._position = position_of(self.partition) or 0
        self._sent_until_s = self._clock()

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Return the messages that are due, at most 500, waiting up to `timeout_s` for them."""
        n = BATCH_MESSAGES_MAX if self._rate_per_s == 0 else self._due(timeout_s)
        if n == 0:
            return []
        first = self._position
        self._position += n
        return [self._batch(first, n)]

    def lag(self) -> Mapping[Partition, int]:
        """Return nothing: a stream without end is never caught up with."""
        return {}

    def at_end(self) -> bool:
        """Return False: the stream has no end."""
        return False

    def trouble(self) -> str | None:
        """Return None: nothing can keep it from making things up."""
        return None

    def commit(self, positions: Mapping[Partition, int]) -> None:
        """Do nothing: the generator keeps no positions."""

    def close(self) -> None:
        """Do nothing: it holds nothing."""

    def _due(self, timeout_s: float) -> int:
        """Return how many messages are due, once a few are or the time is up."""
        wanted_s = max(_GATHER_S, 1 / self._rate_per_s)
        pause_s = self._sent_until_s + wanted_s - self._clock()
        if pause_s > 0:
            self._wait(min(pause_s, timeout_s))
        now_s = self._clock()
        self._sent_until_s = max(self._sent_until_s, now_s - _BACKLOG_S_MAX - wanted_s)
        # A hair is added, or rounding would make a message that is just due wait for another turn.
        due = int((now_s - self._sent_until_s) * self._rate_per_s + 1e-6)
        n = min(due, BATCH_MESSAGES_MAX)
        self._sent_until_s += n / self._rate_per_s
        return n

    def _batch(self, first: int, n: int) -> RawColumns:
        """Return messages `first` … `first + n - 1` as columns."""
        values = self._maker.make(first, n)
        ends = np.cumsum([len(value) for value in values], dtype=np.int64)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        offsets = np.arange(first, first + n, dtype=np.int64)
        records = Records(starts, ends, int(ends[-1]))
        return raw_columns(
            self.partition, b"".join(values), records, offsets, first + n, START_MS + offsets
        )
