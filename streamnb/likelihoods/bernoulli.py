"""Bernoulli: each word is there or not, and a missing one speaks too.

θ_jc = (N_jc + β₁) / (N_c + β₁ + β₂)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.kernels import absence as absence_kernel
from streamnb.kernels import bernoulli as kernel
from streamnb.kernels.layout import Absence, Counts
from streamnb.likelihoods.base import Batch
from streamnb.priors import Beta

_FIRST_ROOM = 256


class BernoulliEstimator:
    """Answers from counts and from what `kernels.bernoulli` keeps of them."""

    def __init__(self, prior: Beta, absence: Absence | None = None) -> None:
        self._prior = prior
        self._absence = absence or _empty(0, _FIRST_ROOM)

    def run(
        self,
        counts: Counts,
        batch: Batch,
        labels: NDArray[np.int32],
        out: NDArray[np.float64],
        *,
        row: int,
        n_judged: int,
        learn: bool,
        n_words_max: int,
        n_words: int,
    ) -> tuple[int, int, int]:
        """Judge, then learn; see `base.Estimator.run`."""
        base, scratch = np.empty((2, len(counts.examples), 3))
        while True:
            row, why, n = kernel.bernoulli(
                counts,
                self._prior.present,
                self._prior.absent,
                self._absence,
                batch.rows,
                labels,
                batch.there,
                row,
                n_judged,
                learn,
                n_words_max,
                n_words,
                base,
                scratch,
                out,
            )
            if why != kernel.CROWDED:
                return row, why, n
            n_judged = row + 1
            self._absence = _longer(self._absence, n)

    def rebuild(self, counts: Counts, n_words: int) -> None:
        """Build the cache anew; see `base.Estimator.rebuild`."""
        room = self._absence.heavy.shape[1]
        while True:
            self._absence = _empty(len(counts.examples), room)
            if absence_kernel.rebuild(counts, self._prior.absent, self._absence, n_words):
                return
            room *= 2

    def copy(self) -> Self:
        """Return an independent copy."""
        copies: list[Any] = [array.copy() for array in self._absence]
        return type(self)(self._prior, Absence(*copies))


def _empty(n_classes: int, room: int) -> Absence:
    return Absence(
        sums=np.zeros((n_classes, absence_kernel.N_TERMS), dtype=np.int64),
        exponents=np.zeros(n_classes, dtype=np.int64),
        limits=np.zeros(n_classes),
        inverses=np.zeros(n_classes),
        heavy=np.zeros((n_classes, room), dtype=np.float64),
        n_heavy=np.zeros(n_classes, dtype=np.int64),
    )


def _longer(absence: Absence, wanted: int) -> Absence:
    n_classes, room = absence.heavy.shape
    larger = _empty(n_classes, 2 * room + wanted)
    larger.heavy[:, :room] = absence.heavy
    return absence._replace(heavy=larger.heavy)


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """Likelihood of flags and of words by presence.

    Parameters
    ----------
    prior : Beta
        Beta(β₁, β₂) on each θ_jc.

    Examples
    --------
    >>> Bernoulli(Beta(1, 1)).counts_occurrences
    False
    """

    name: ClassVar[str] = "bernoulli"
    prior: Beta = field(default_factory=Beta)

    @property
    def counts_occurrences(self) -> bool:
        """False: a word is there or not."""
        return False

    def estimator(self) -> BernoulliEstimator:
        """Return a new estimator."""
        return BernoulliEstimator(self.prior)

    def log_theta(self, counts: Counts, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return log θ_jc, ndarray of shape (n, n_classes); 0/0 of an empty class is -inf."""
        top = counts.by_word[columns] + self.prior.present
        bottom = counts.examples + self.prior.present + self.prior.absent
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(top > 0, np.log(top) - np.log(bottom), -np.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return the prior for the model's header."""
        return {"name": self.name, "beta": [self.prior.present, self.prior.absent]}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the family that `to_dict` described."""
        return cls(Beta(*values["beta"]))
