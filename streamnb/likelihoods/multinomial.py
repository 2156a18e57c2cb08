"""Multinomial: a text is drawn word by word, θ_jc = (N_jc + α) / (N_·c + α·V)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import check_kind
from streamnb.kernels import multinomial as kernel
from streamnb.kernels.layout import DECLARED, LIVE, Counts, RowUpdates, RunOptions
from streamnb.likelihoods.base import Batch
from streamnb.priors import Dirichlet, as_lists


class MultinomialEstimator:
    """Answers from the counts alone; it caches nothing.

    `alphas` (1, n_classes) or (n_declared, n_classes): α, for all words or for each declared one.
    """

    def __init__(self, alphas: NDArray[np.float64]) -> None:
        self._alphas = alphas
        self._alpha_sums = alphas.sum(axis=0)

    def run(
        self,
        counts: Counts,
        batch: Batch,
        updates: RowUpdates,
        options: RunOptions,
        n_words: int,  # noqa: ARG002 -- part of the protocol
        out: NDArray[np.float64],
    ) -> tuple[int, int, int]:
        """Predict, then learn; see `base.Estimator.run`."""
        return kernel.multinomial(
            counts,
            self._alphas,
            self._alpha_sums,
            batch.rows,
            batch.present,
            updates,
            options,
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

    def __post_init__(self) -> None:
        check_kind("Multinomial.prior", self.prior, Dirichlet)

    @property
    def counts_occurrences(self) -> bool:
        """True: repetitions count."""
        return True

    def estimator(self, n_declared: int | None, n_classes: int) -> MultinomialEstimator:
        """Return a new estimator; see `base.WordLikelihood.estimator`."""
        return MultinomialEstimator(self.prior.grid(n_declared, n_classes))

    def log_theta(
        self, counts: Counts, columns: NDArray[np.int64], n_declared: int | None, scale: float
    ) -> NDArray[np.float64]:
        """Return log θ_jc, ndarray of shape (n, n_classes); 0/0 of an empty class is -inf."""
        alphas = self.prior.grid(n_declared, len(counts.examples))
        one_each = len(alphas) > 1
        alpha_sums = alphas.sum(axis=0) if one_each else alphas[0] * vocabulary_size(counts)
        top = counts.by_word[columns] + (alphas[columns] if one_each else alphas) * scale
        bottom = counts.tokens + alpha_sums * scale
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(top > 0, np.log(top) - np.log(bottom), -np.inf)

    def to_dict(self) -> dict[str, Any]:
        """Return the prior for the model's header."""
        return {"name": self.name, "alpha": as_lists(self.prior.concentration)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the family that `to_dict` described."""
        return cls(Dirichlet(values["alpha"]))


def vocabulary_size(counts: Counts) -> int:
    """Return V: of the declared dictionary, else of the words with a count above zero."""
    return int(counts.state[DECLARED] or counts.state[LIVE])
