"""Bernoulli: each word is there or not, and a missing one speaks too.

θ_jc = (N_jc + β₁) / (N_c + β₁ + β₂)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_kind
from streamnb.kernels import bernoulli as kernel
from streamnb.kernels.layout import Absence, Counts, RowUpdates, RunOptions
from streamnb.likelihoods.base import Batch
from streamnb.priors import Beta, Dirichlet, as_lists

_FIRST_ROOM = 256
Floats = NDArray[np.float64]


class BernoulliEstimator:
    """Answers from counts and from what `kernels.bernoulli` keeps of them.

    `present`, `absent` (n_classes,): β₁ and β₂.
    """

    def __init__(self, present: Floats, absent: Floats, absence: Absence | None = None) -> None:
        self._present = present
        self._absent = absent
        self._absence = absence or _empty(0, _FIRST_ROOM)

    def run(
        self,
        counts: Counts,
        batch: Batch,
        updates: RowUpdates,
        options: RunOptions,
        n_words: int,
        out: Floats,
    ) -> tuple[int, int, int]:
        """Predict, then learn; see `base.Estimator.run`."""
        base, scratch = np.empty((2, len(counts.examples), 3))
        while True:
            row, why, n = kernel.bernoulli(
                counts, self._present, self._absent, self._absence, batch.rows, batch.present,
                updates, options, n_words, base, scratch, out,
            )  # fmt: skip
            if why == kernel.CROWDED:
                options = options._replace(row=row, n_predicted=max(options.n_predicted, row + 1))
                self._absence = _longer(self._absence, n)
            elif why == kernel.STALE:
                options = options._replace(row=row, n_predicted=max(options.n_predicted, row))
                self._rebuild(counts, n_words, float(updates.scales[min(row, len(out) - 1)]))
            else:
                return row, why, n

    def rebuild(self, counts: Counts, n_words: int) -> None:
        """Rebuild the cache; see `base.Estimator.rebuild`."""
        self._rebuild(counts, n_words, 1.0)

    def _rebuild(self, counts: Counts, n_words: int, scale: float) -> None:
        # The kernel follows any other scale by itself; here it is a question of room alone.
        room = self._absence.heavy.shape[1]
        while True:
            self._absence = _empty(len(counts.examples), room)
            if kernel.rebuild(counts, self._absent, scale, self._absence, n_words):
                return
            room *= 2

    def copy(self) -> Self:
        """Return an independent copy."""
        copies: list[Any] = [array.copy() for array in self._absence]
        return type(self)(self._present, self._absent, Absence(*copies))


def _empty(n_classes: int, room: int) -> Absence:
    return Absence(
        sums=np.zeros((n_classes, kernel.N_TERMS), dtype=np.int64),
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
    prior : Beta or Dirichlet
        Beta(β₁, β₂) on each θ_jc; Dirichlet(c) is Beta(c, c). Over words it may differ by class,
        over flags by feature too.

    Examples
    --------
    >>> Bernoulli(Beta(1, 1)).counts_occurrences
    False
    """

    name: ClassVar[str] = "bernoulli"
    prior: Beta = field(default_factory=Beta)

    def __post_init__(self) -> None:
        prior: Any = self.prior
        check_kind("Bernoulli.prior", prior, Beta, Dirichlet)
        if isinstance(prior, Dirichlet):
            object.__setattr__(self, "prior", Beta(prior.concentration, prior.concentration))

    @property
    def counts_occurrences(self) -> bool:
        """False: a word is there or not."""
        return False

    @property
    def leaves_prior_out(self) -> bool:
        """False: the class prior counts."""
        return False

    def estimator(self, n_declared: int | None, n_classes: int) -> BernoulliEstimator:
        """Return a new estimator; see `base.WordLikelihood.estimator`."""
        present, absent = self._by_class(n_declared, n_classes)
        return BernoulliEstimator(present, absent)

    def _by_class(self, n_declared: int | None, n_classes: int) -> tuple[Floats, Floats]:
        present, absent = self.prior.grids(n_declared, n_classes)
        if len(present) > 1 or len(absent) > 1:
            raise InputError(
                f"Beta gives a prior for each of {max(len(present), len(absent))} words: words that"
                " are missing are summed up by counts, which needs one prior for all words of a"
                " class. Read them as Flags, or give one prior a class."
            )
        return present[0], absent[0]

    def log_theta(
        self, counts: Counts, columns: NDArray[np.int64], n_declared: int | None, scale: float
    ) -> Floats:
        """Return log θ_jc, ndarray of shape (n, n_classes); 0/0 of an empty class is -inf."""
        present, absent = self._by_class(n_declared, len(counts.examples))
        top = counts.by_word[columns] + present * scale
        bottom = counts.examples + (present + absent) * scale
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(top > 0, np.log(top) - np.log(bottom), -np.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return the prior for the model's header."""
        beta = [as_lists(self.prior.present), as_lists(self.prior.absent)]
        return {"name": self.name, "beta": beta}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the family that `to_dict` described."""
        return cls(Beta(*values["beta"]))
