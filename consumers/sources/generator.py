"""Composes made-up loan applications: message number n as a pure function of a seed and n.

The decision on each is drawn first, three in ten are approved; all else is drawn given the
decision, each field by itself, by the tables below. So the stream is just what naive Bayes takes a
stream to be, and what is learned of it can be held against these numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np

from consumers.config.settings import GeneratorSettings
from consumers.messages import Partition, RawColumns
from consumers.sources.base import Source
from consumers.sources.generated_tweets import START_MS, TweetMaker, compose
from consumers.sources.records import Records, raw_columns

DECISIONS = ("approve", "reject")
APPROVED_SHARE = 0.3

# Each table has a row for those approved and one for those rejected.
SCORES = {"low": (0.2, 0.9), "high": (0.8, 0.1)}
INCOMES = {"low": (0.2, 0.4), "mid": (0.3, 0.4), "high": (0.5, 0.2)}
MISSED_PAYMENTS = (0.25, 0.8)
STABLE_JOB = (0.9, 0.8)
AMOUNT = ((9_000.0, 3_000.0), (14_000.0, 5_000.0))  # mean and standard deviation, in euros
AGE = ((45.0, 10.0), (38.0, 12.0))  # in years
PURPOSES = {
    "a new roof": (0.24, 0.08), "a family car": (0.26, 0.16), "my own studio": (0.14, 0.08),
    "dental work": (0.14, 0.1), "a holiday": (0.08, 0.2), "a big wedding": (0.08, 0.14),
    "my old debts": (0.06, 0.24),
}  # fmt: skip
MANNERS = {
    "savings cover a third": (0.3, 0.06), "as discussed with your branch": (0.3, 0.14),
    "thank you": (0.25, 0.25), "please decide soon": (0.1, 0.3), "it is urgent": (0.05, 0.25),
}  # fmt: skip

_WITHOUT_AGE = 0.05  # of the applications leave the field out
_WITHOUT_AMOUNT = 0.03  # of them hold null in it
_RANGE = 1 << 16  # each choice is drawn from 0 … 65535
_AMOUNT_MIN, _AGE_MIN = 500.0, 18
_NORMAL = [NormalDist().inv_cdf((i + 0.5) / 4096) for i in range(4096)]


class Loan(msgspec.Struct, gc=False):
    """A message of the stream as it is written to JSON."""

    id: str
    created_at: str
    score: str
    income: str
    amount: float | None
    missed_payments: bool
    stable_job: bool
    note: str
    age: int | msgspec.UnsetType = msgspec.UNSET
    decision: str | msgspec.UnsetType = msgspec.UNSET


class _Draw(NamedTuple):
    """A table as the values and where each one's share of the range ends, by decision."""

    values: tuple[str, ...]
    ends: tuple[tuple[float, ...], ...]

    def value(self, decision: int, choice: int) -> str:
        """Return the value that a choice falls on."""
        for value, end in zip(self.values, self.ends[decision], strict=True):
            if choice < end:
                return value
        return self.values[-1]


def _draw(table: dict[str, tuple[float, float]]) -> _Draw:
    shares = np.cumsum(list(table.values()), axis=0) * _RANGE
    return _Draw(tuple(table), tuple(map(tuple, shares.T.tolist())))


_SCORES, _INCOMES, _PURPOSES, _MANNERS = map(_draw, (SCORES, INCOMES, PURPOSES, MANNERS))


class LoanMaker:
    """Makes the loan applications of one seed."""

    def __init__(self, settings: GeneratorSettings) -> None:
        self._seed = settings.seed
        self._labelled = round(settings.labelled_share * _RANGE)

    def make(self, first: int, n: int) -> list[bytes]:
        """Return messages `first` … `first + n - 1` as JSON."""
        return compose(self._loan, self._seed, first, n)

    def _loan(self, number: int, created_at: str, c: list[int]) -> Loan:
        """Compose message `number` from its choices."""
        decision = int(c[0] >= APPROVED_SHARE * _RANGE)
        loan = Loan(
            id=f"{self._seed}-{number}",
            created_at=created_at,
            score=_SCORES.value(decision, c[1]),
            income=_INCOMES.value(decision, c[2]),
            amount=None,
            missed_payments=c[3] < MISSED_PAYMENTS[decision] * _RANGE,
            stable_job=c[4] < STABLE_JOB[decision] * _RANGE,
            note=f"for {_PURPOSES.value(decision, c[5])}, {_MANNERS.value(decision, c[6])}",
        )
        if c[7] >= _WITHOUT_AMOUNT * _RANGE:
            loan.amount = round(max(_AMOUNT_MIN, _normal(AMOUNT[decision], c[8])), 2)
        if c[9] >= _WITHOUT_AGE * _RANGE:
            loan.age = max(_AGE_MIN, round(_normal(AGE[decision], c[10])))
        if c[11] < self._labelled:
            loan.decision = DECISIONS[decision]
        return loan


def _normal(of: tuple[float, float], choice: int) -> float:
    """Return the number of a normal distribution that a choice falls on."""
    mean, deviation = of
    return mean + deviation * _NORMAL[choice >> 4]


BATCH_MESSAGES_MAX = 500
_GATHER_S = 0.01  # messages are gathered this long, so that a slow stream is not polled one by one
_BACKLOG_S_MAX = 1.0  # what a caller that was away for longer finds; the rest was never sent


class GeneratorSource(Source):
    """Generates tweets, or loan applications (`LoanMaker`), at a steady rate.

    Each tweet is JSON with `id`, `created_at`, `user`, `lang`, `text` and, in the labelled share of
    them, `label`: 0 for negative and 4 for positive. Some contradict their words and some say
    nothing, so that a good classifier is right 85 to 90 times in a hundred.

    A rate of 0 is as fast as it goes. `clock` and `wait` count in seconds.
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
        self._row_builder = TweetMaker(settings) if is_tweets else LoanMaker(settings)
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

    def at_end(self) -> bool:
        """Return False: the stream has no end."""
        return False

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
        values = self._row_builder.make(first, n)
        ends = np.cumsum([len(value) for value in values], dtype=np.int64)
        starts = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
        offsets = np.arange(first, first + n, dtype=np.int64)
        records = Records(starts, ends, int(ends[-1]))
        return raw_columns(
            self.partition, b"".join(values), records, offsets, first + n, START_MS + offsets
        )
