"""Complement: each class is known by the words of all the others (Rennie and others 2003).

θ̃_cj = (N_j − N_jc + α) / (N_· − N_·c + α·V), and a text adds −Σ_j x_j·log θ̃_cj to class c. The
estimates of a small class then rest on much more text than its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.kernels import complement as kernel
from streamnb.kernels.layout import Counts, RowUpdates, RunOptions
from streamnb.likelihoods.base import Batch
from streamnb.likelihoods.multinomial import vocabulary_size
from streamnb.priors import Dirichlet, as_lists


class ComplementEstimator:
    """Answers from the counts, and from the sums that `kernels.complement` keeps of them.

    `alphas` (1, n_classes) or (n_declared, n_classes): α, for all words or for each declared one.
    `sums` (n_classes, 2): the sums as they stand; by default those of counts that are yet to be
    shown to `rebuild`.
    """

    def __init__(
        self, alphas: NDArray[np.float64], *, normalise: bool, sums: NDArray[np.int64] | None = None
    ) -> None:
        self._alphas = alphas
        self._alpha_sums = alphas.sum(axis=0)
        self._normalise = normalise
        self._sums = np.zeros((alphas.shape[1], 2), dtype=np.int64) if sums is None else sums

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
        return kernel.complement(
            counts,
            self._alphas,
            self._alpha_sums,
            self._normalise,
            self._sums,
            batch.rows,
            batch.present,
            updates,
            options,
            np.empty((len(counts.examples), 3)),
            out,
        )

    def rebuild(self, counts: Counts, n_words: int) -> None:
        """Rebuild the sums; see `base.Estimator.rebuild`."""
        if self._normalise:
            scratch = np.empty((len(counts.examples), 3))
            kernel.rebuild(counts, self._alphas, n_words, scratch, self._sums)

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(self._alphas, normalise=self._normalise, sums=self._sums.copy())


@dataclass(frozen=True, slots=True)
class Complement:
    """Likelihood of words by how often they occur in all other classes.

    It tells classes apart and does not generate text: −Σ_j x_j·log θ̃_cj is no log-probability. The
    class prior is added to it as to any other, unless weights are normalised. While there is one
    class alone, it says nothing.

    Parameters
    ----------
    prior : Dirichlet
        Dirichlet(α) on the words of each complement; above zero, as a word that no other class has
        would else be proof.
    normalise : bool
        Divide each class's weights by Σ_j |log θ̃_cj|, which tempers classes whose texts repeat
        themselves. Scores then differ by thousandths, and a class prior would decide alone: a model
        of such groups only leaves it out, as in the paper, unless it is `Fixed` or has a half-life.
        A class that was never learned counts as others do then, as in scikit-learn. Probabilities
        lie near 1/k: take labels alone, no threshold and no log-loss. Any other group keeps the
        class prior in, even one that never saw a field, and these scores then say next to nothing.
        Not together with decay: each passing moment would move the weight of every word.

    Raises
    ------
    InputError
        Where α is not above zero.

    Examples
    --------
    >>> Complement(Dirichlet(0.5), normalise=True).normalise
    True
    """

    name: ClassVar[str] = "complement"
    prior: Dirichlet = field(default_factory=Dirichlet)
    normalise: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.prior, Dirichlet):
            raise InputError(f"Complement.prior must be a Dirichlet. Got {self.prior!r} instead.")
        if not isinstance(self.normalise, bool):
            raise InputError(
                f"Complement.normalise must be True or False. Got {self.normalise!r} instead."
            )
        least = float(np.min(np.asarray(self.prior.concentration)))
        if least <= 0.0:
            raise InputError(
                f"Complement.prior must be above 0 for every word. Got {least:g}: a word that no"
                " other class has would count without limit. Take a small number, such as 0.01."
            )

    @property
    def counts_occurrences(self) -> bool:
        """True: repetitions count."""
        return True

    @property
    def leaves_prior_out(self) -> bool:
        """Whether a model of it alone answers without its class prior: with normalised weights."""
        return self.normalise

    @property
    def forgets(self) -> bool:
        """Whether it goes together with decay: not with normalised weights."""
        return not self.normalise

    def estimator(self, n_declared: int | None, n_classes: int) -> ComplementEstimator:
        """Return a new estimator; see `base.WordLikelihood.estimator`."""
        return ComplementEstimator(self.prior.grid(n_declared, n_classes), normalise=self.normalise)

    def log_theta(
        self, counts: Counts, columns: NDArray[np.int64], n_declared: int | None, scale: float
    ) -> NDArray[np.float64]:
        """Return what one occurrence of a word adds to each class: −log θ̃_cj, or its share.

        Its place is that of the other families' log θ_jc; ndarray of shape (n, n_classes).
        """
        n_classes = len(counts.examples)
        v = vocabulary_size(counts)
        if n_classes == 1 or not len(columns) or (self.normalise and v < 2):
            return np.zeros((len(columns), n_classes))
        alphas = self.prior.grid(n_declared, n_classes)
        one_each = len(alphas) > 1
        alpha_sums = alphas.sum(axis=0) if one_each else alphas[0] * v
        top = _others(counts.by_word[columns]) + (alphas[columns] if one_each else alphas) * scale
        log_bottom = np.log(_others(counts.tokens[None, :])[0] + alpha_sums * scale)
        weights: NDArray[np.float64] = log_bottom - np.log(top)
        if self.normalise:
            # By the kernel's own sums, so that no order of the words is seen in them.
            sums = np.empty((n_classes, 2), dtype=np.int64)
            kernel.rebuild(counts, alphas, len(counts.by_word), np.empty((n_classes, 3)), sums)
            weights /= v * log_bottom - sums @ kernel.UNITS
        return weights

    def to_dict(self) -> dict[str, Any]:
        """Return the prior and the weighting for the model's header."""
        alpha = as_lists(self.prior.concentration)
        return {"name": self.name, "alpha": alpha, "normalise": self.normalise}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the family that `to_dict` described."""
        return cls(Dirichlet(values["alpha"]), normalise=values["normalise"])


def _others(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each class's sum over the other classes, by rows, without a subtraction."""
    before = np.cumsum(values, axis=1)
    before = np.concatenate((np.zeros((len(values), 1)), before[:, :-1]), axis=1)
    after = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]
    after = np.concatenate((after[:, 1:], np.zeros((len(values), 1))), axis=1)
    both: NDArray[np.float64] = before + after
    return both
