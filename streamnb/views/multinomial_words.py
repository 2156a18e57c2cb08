"""What words under a multinomial tell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.likelihoods.multinomial import vocabulary_size
from streamnb.views.base import Floats, Linear, ParameterCount
from streamnb.views.draw import log_gammas
from streamnb.views.posterior_moments import digamma, trigamma
from streamnb.views.words import Row, WordsView


class MultinomialView(WordsView):
    """A view of words by how often they occur."""

    def parameters(self) -> ParameterCount:
        """Count k·V entries; each class's add up to 1."""
        k, v = len(self.tokens), len(self.live)
        return ParameterCount(k * v, k * max(v - 1, 0))

    def log_likelihood(self) -> float:
        """Return Σ_c Σ_j N_jc·log θ_jc; see `View`."""
        counts = self.counts_of(self.live)
        with np.errstate(invalid="ignore"):
            terms = np.where(counts > 0.0, counts * self.log_theta(self.live), 0.0)
        return float(terms.sum())

    def log_coefficients(self, fields: Any, n: int) -> Floats:
        """Return log m!/∏x_j! of `n` examples, shape (n,), in nats: over the words that count."""
        from scipy.special import gammaln  # noqa: PLC0415 -- seldom asked for

        rows = [self.row(fields, i) for i in range(n)]
        whole = np.array([row.times.sum() for row in rows])
        each = np.array([gammaln(row.times + 1.0).sum() for row in rows])
        out: Floats = gammaln(whole + 1.0) - each
        return out

    def linear(self) -> Linear:
        """Return log θ_jc as weights, with no constant."""
        return Linear(self.names, self.log_theta(self.live), np.zeros(len(self.tokens)))

    def contributions(self, fields: Any, row: int) -> list[tuple[str, Floats]]:
        """Return x_j·log θ_jc for each word of the example."""
        words = self.row(fields, row)
        values = words.times[:, None] * self.log_theta(words.columns)
        return list(zip(self.told(words), values, strict=True))

    # ---- the generative side -------------------------------------------------------------------

    def mean_length(self, c: int) -> float:
        """Return how many words an example of class `c` has on average; of all, where it has none.

        0 where nothing was learned.
        """
        if self.examples[c] > 0.0:
            return float(self.tokens[c] / self.examples[c])
        return float(self.tokens.sum() / self.examples.sum()) if self.examples.any() else 0.0

    def draw_words(self, c: int, n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Draw a length from Poisson(the class's mean length), then words from θ_c.

        Where a word counts once an example (``counts="presence"``), one drawn twice is read once.
        """
        sizes = rng.poisson(self.mean_length(c), n)
        ends = np.cumsum(np.exp(self.log_theta(self.live)[:, c]))
        if sizes.any() and not (len(ends) and ends[-1] > 0.0):
            raise InputError(
                f"group {self.state.name!r}: class {c} has no word, and its prior gives it none:"
                " there is nothing to draw from. Take a prior above 0."
            )
        total = int(sizes.sum())
        places = np.searchsorted(ends, rng.random(total) * ends[-1], side="right") if total else []
        return np.split(np.asarray(places, dtype=np.int64), np.cumsum(sizes)[:-1])

    # ---- the posterior of the parameters -------------------------------------------------------

    def _shapes(self, words: Row) -> tuple[Floats, Floats]:
        """Return the Dirichlet's parameters: of an example's words (n, k), and their sum (k,)."""
        alphas = self.state.spec.likelihood.prior.grid(self.state.n_declared, len(self.tokens))
        one_each = len(alphas) > 1
        sums = alphas.sum(axis=0) if one_each else alphas[0] * vocabulary_size(self.state.counts)
        own = alphas[words.columns] if one_each else alphas
        return self.counts_of(words.columns) + own, self.tokens + sums

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Return Σ x_j·log θ_jc under draws of θ_c from its Dirichlet; see `View`.

        All words that the example does not have enter as one.
        """
        words = self.row(fields, row)
        if not len(words.columns):
            return np.zeros((n, len(self.tokens)))
        shapes, whole = self._shapes(words)
        rest = np.maximum(whole - shapes.sum(axis=0), 0.0)
        parts, other = log_gammas(shapes, n, rng), log_gammas(rest, n, rng)
        sums = np.logaddexp(np.logaddexp.reduce(parts, axis=1), other)[:, None, :]
        log_theta = parts - np.where(sums == -np.inf, 0.0, sums)
        out: Floats = (words.times[:, None] * log_theta).sum(axis=1)
        return out

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:
        """Return mean and variance of what `draws` draws, each of shape (n_classes,)."""
        words = self.row(fields, row)
        if not len(words.columns):
            return np.zeros((2, len(self.tokens)))[0], np.zeros(len(self.tokens))
        shapes, whole = self._shapes(words)
        times = words.times[:, None]
        m = words.times.sum()
        possible = (shapes > 0.0).all(axis=0)
        shapes, whole = np.where(possible, shapes, 1.0), np.where(possible, whole, 1.0)
        mean = (times * digamma(shapes)).sum(axis=0) - m * digamma(whole)
        variance = (times**2 * trigamma(shapes)).sum(axis=0) - m**2 * trigamma(whole)
        return np.where(possible, mean, -np.inf), np.where(possible, np.maximum(variance, 0.0), 0.0)
