"""Composes made-up loan applications: message number n as a pure function of a seed and n.

The decision on each is drawn first, three in ten are approved; all else is drawn given the
decision, each field by itself, by the tables below. So the stream is just what naive Bayes takes a
stream to be, and what is learned of it can be held against these numbers.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np

from consumers.config import GeneratorSettings
from consumers.sources._tweets import START_MS, draws

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
    """Makes the messages of one seed.

    Parameters
    ----------
    settings : GeneratorSettings
        Seed, and share of labelled messages.
    """

    def __init__(self, settings: GeneratorSettings) -> None:
        self._seed = settings.seed
        self._labelled = round(settings.labelled_share * _RANGE)
        self._encode = msgspec.json.Encoder().encode

    def make(self, first: int, n: int) -> list[bytes]:
        """Return messages `first` … `first + n - 1` as JSON."""
        stamps = np.datetime_as_string(
            np.arange(START_MS + first, START_MS + first + n).astype("datetime64[ms]")
        ).tolist()
        choices = draws(self._seed, first, n).tolist()
        return [
            self._encode(self._loan(first + i, f"{stamps[i]}Z", choice))
            for i, choice in enumerate(choices)
        ]

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
    """Return the normal number that a choice falls on."""
    mean, deviation = of
    return mean + deviation * _NORMAL[choice >> 4]
