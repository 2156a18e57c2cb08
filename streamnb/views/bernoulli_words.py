"""What words under a Bernoulli tell: those that are there, and those that are missing."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.views.base import Floats, Linear, ParameterCount
from streamnb.views.draw import log_betas
from streamnb.views.posterior_moments import log_beta_moments
from streamnb.views.words import Row, WordsView, column_sums

MISSING = "(words that are missing)"
_HEAVY = 512  # missing words drawn one by one; the others' sum is drawn at once


class BernoulliView(WordsView):
    """A view of words by presence."""

    @cached_property
    def betas(self) -> tuple[Floats, Floats]:
        """β₁ and β₂, each of shape (n_classes,)."""
        prior = self.state.spec.likelihood.prior
        present, absent = prior.grids(self.state.n_declared, len(self.examples))
        return present[0], absent[0]

    def shapes(self, columns: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the posterior Beta's parameters N_jc + β₁ and N_c − N_jc + β₂, (n, k) each."""
        held = self.counts_of(columns)
        present, absent = self.betas
        return held + present, (self.examples - held) + absent

    def log_absent(self, columns: NDArray[np.int64]) -> Floats:
        """Return log(1 − θ_jc), shape (n, n_classes); -inf where the class is empty, without β₂."""
        there, missing = self.shapes(columns)
        whole = there + missing
        with np.errstate(divide="ignore", invalid="ignore"):
            theta = there / whole
            # The first keeps the digits of a small θ, the second those of one near 1.
            found = np.log1p(-theta)
            near = ~(theta < 0.5)
            found[near] = np.log(missing[near] / whole[near])
        return np.where(self.is_void, -np.inf, found)

    @property
    def is_void(self) -> NDArray[np.bool_]:
        """Tell of each class whether it gives nothing any probability: no example, and no β₂."""
        void: NDArray[np.bool_] = self.examples + self.betas[1] == 0.0
        return void

    def parameters(self) -> ParameterCount:
        """Count k·V, all free."""
        n = len(self.examples) * len(self.live)
        return ParameterCount(n, n)

    def log_likelihood(self) -> float:
        """Return Σ_c Σ_j N_jc·log θ_jc + (N_c − N_jc)·log(1 − θ_jc); see `View`."""
        held = self.counts_of(self.live)
        others = self.examples - held
        with np.errstate(invalid="ignore"):
            there = np.where(held > 0.0, held * self.log_theta(self.live), 0.0)
            missing = np.where(others > 0.0, others * self.log_absent(self.live), 0.0)
        return float(there.sum() + missing.sum())

    def linear(self) -> Linear:
        """Return log θ_jc/(1 − θ_jc) as weights, and Σ_j log(1 − θ_jc) as constants."""
        there, missing = self.log_theta(self.live), self.log_absent(self.live)
        certain = (missing == -np.inf) & ~self.is_void
        if certain.any():
            word = self.names[int(np.flatnonzero(certain.any(axis=1))[0])]
            raise InputError(
                f"group {self.state.name!r}: {word!r} has probability 1 in a class, so that its"
                " weight would be infinite both ways. Take a prior with β₂ above 0."
            )
        weights = np.where(self.is_void, 0.0, there - np.where(self.is_void, 0.0, missing))
        constants = np.where(self.is_void, -np.inf, column_sums(missing))
        return Linear(self.names, weights, constants)

    def contributions(self, fields: Any, row: int) -> list[tuple[str, Floats]]:
        """Return log θ_jc for each word of the example, and one sum for all that are missing."""
        words = self.row(fields, row)
        if not words.there:
            return []
        told = list(zip(self.told(words), self.log_theta(words.columns), strict=True))
        missing = column_sums(self.log_absent(self._missing(words)))
        return [*told, (MISSING, np.where(self.is_void, -np.inf, missing))]

    def _missing(self, words: Row) -> NDArray[np.int64]:
        """Return the columns of the words that an example does not have."""
        return np.delete(self.live, np.searchsorted(self.live, words.columns))

    # ---- the generative side -------------------------------------------------------------------

    def draw_words(self, c: int, n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Draw each word to be there, or not, by θ_jc."""
        theta = np.exp(self.log_theta(self.live)[:, c])
        return [np.flatnonzero(rng.random(len(theta)) < theta) for _ in range(n)]

    # ---- the posterior of the parameters -------------------------------------------------------

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Return one example's log-likelihoods under draws of each θ_jc; see `View`.

        The most frequent of the missing words are drawn one by one. The sum of the others is drawn
        from a Gamma of the same mean and variance: −log(1 − θ) is all but Gamma-distributed where
        θ is small, and so is a sum of many.
        """
        words = self.row(fields, row)
        if not words.there:
            return np.zeros((n, len(self.examples)))
        out = log_betas(*self.shapes(words.columns), n, rng)[0].sum(axis=1)
        missing = self._missing(words)
        order = np.argsort(-self.counts_of(missing).max(axis=1, initial=0.0), kind="stable")
        a, b = self.shapes(missing[order[:_HEAVY]])
        out += log_betas(a, b, n, rng)[1].sum(axis=1)
        mean, variance = self._missing_moments(missing[order[_HEAVY:]])
        with np.errstate(divide="ignore", invalid="ignore"):
            shape = np.where(variance > 0.0, mean**2 / variance, 0.0)
            unit = np.where(variance > 0.0, -variance / mean, 0.0)
        gammas = rng.standard_gamma(shape, (n, len(shape)))
        light = np.where(variance > 0.0, -gammas * unit, mean)
        return np.where(self.is_void, -np.inf, out + light)

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:
        """Return mean and variance of what `draws` draws, each of shape (n_classes,)."""
        words = self.row(fields, row)
        k = len(self.examples)
        if not words.there:
            return np.zeros(k), np.zeros(k)
        mean, variance = log_beta_moments(*self.shapes(words.columns))
        rest_mean, rest_variance = self._missing_moments(self._missing(words))
        total = mean.sum(axis=0) + rest_mean
        return np.where(self.is_void, -np.inf, total), variance.sum(axis=0) + rest_variance

    def _missing_moments(self, columns: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return mean and variance of Σ log(1 − θ_jc) over words, each of shape (n_classes,)."""
        held = self.counts_of(columns)
        present, absent = self.betas
        mean, variance = np.zeros((2, len(self.examples)))
        for c in range(len(mean)):
            # Most words share their count with many: as few values as there are different counts.
            counts, times = np.unique(held[:, c], return_counts=True)
            a, b = counts + present[c], (self.examples[c] - counts) + absent[c]
            each_mean, each_variance = log_beta_moments(b, a)
            mean[c] = (times * each_mean).sum()
            variance[c] = (times * each_variance).sum()
        return mean, variance
