"""Multinomial: a text is drawn word by word, θ_jc = (N_jc + α) / (N_·c + α·V)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.kernels import multinomial as kernel
from streamnb.kernels.layout import Counts
from streamnb.likelihoods.base import Batch
from streamnb.priors import Dirichlet


class MultinomialEstimator:
    """Answers from the counts alone; it caches nothing."""

    def __init__(self, prior: Dirichlet) -> None:
        self._prior = prior

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
        n_words: int,  # noqa: ARG002 -- part of the protocol
    ) -> tuple[int, int, int]:
        """Judge, then learn; see `base.Estimator.run`."""
        return kernel.multinomial(
            counts,
            self._prior.concentration,
            batch.rows,
            labels,
            batch.there,
            row,
            n_judged,
            learn,
            n_words_max,
            np.empty((len(counts.examples), 2)),
            out,
        )

    def rebuild(self, counts: Counts, n_words: int) -> None:
        """Do nothing: there is no cache."""

    def copy(self) -> Self:
        """Return this object: it has no state."""
        return self


@dataclass(frozen=True, slots=True)
class Multinomial:
    """Likelihood of words by how often they occur.

    Parameters
    ----------
    prior : Dirichlet
        Dirichlet(α) on the words of each class.

    Examples
    --------
    >>> Multinomial(Dirichlet(0.5)).counts_occurrences
    True
    """

    name: ClassVar[str] = "multinomial"
    prior: Dirichlet = field(default_factory=Dirichlet)

    @property
    def counts_occurrences(self) -> bool:
        """True: repetitions count."""
        return True

    def estimator(self) -> MultinomialEstimator:
        """Return a new estimator."""
        return MultinomialEstimator(self.prior)

    def log_theta(self, counts: Counts, columns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return log θ_jc, ndarray of shape (n, n_classes)."""
        alpha = self.prior.concentration
        top = counts.by_word[columns] + alpha
        bottom = counts.tokens + alpha * counts.state[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(top > 0, np.log(top) - np.log(bottom), -np.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return the prior for the model's header."""
        return {"name": self.name, "alpha": self.prior.concentration}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the family that `to_dict` described."""
        return cls(Dirichlet(values["alpha"]))
