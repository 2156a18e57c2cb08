"""Views of words, one class for each likelihood; all are a `WordsView`, see `group_view.py`."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.features.counted_words import CountedState
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import (
    Effect,
    ExportTable,
    KnownWords,
    Linear,
    ParameterCount,
    WordsView,
    view_of,
)
from streamnb.inspection.parameters import (
    digamma,
    log_beta_moments,
    log_betas,
    log_gammas,
    trigamma,
)
from streamnb.kernels.hybrid import KINDS, N_BANDS, WEIGHT_START
from streamnb.likelihoods.bernoulli import Bernoulli
from streamnb.likelihoods.multinomial import Complement, Multinomial, mean_weights, vocabulary_size
from streamnb.priors import check
from streamnb.state import ModelState

Taught = tuple[float, float] | None  # how many examples, and their weight together
_PSEUDO = 0.5  # of an occurrence, in each class: no log-odds are infinite


def column_sums(grid: Floats) -> Floats:
    """Return the sum of each column, ndarray of shape (n_classes,).

    numpy adds contiguous values pairwise; down the rows of a million words it would add one after
    the other, and lose four digits.
    """
    out: Floats = np.ascontiguousarray(grid.T).sum(axis=1)
    return out


class MultinomialView(WordsView, of=Multinomial):
    """A view of words by how often they occur."""

    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds, with the score of each word if there is a hybrid."""
        header, table = super().export()
        weights = self.state.weights
        if weights is None:
            return header, table
        word_weights = mean_weights(weights.groups, WEIGHT_START).reshape(KINDS, N_BANDS)
        header |= {"word_weights": word_weights}
        # An example of no word has a length of 1.
        scores = self.state.weighted_log_odds(self.live, np.ones(len(self.live)), 0.0, self.scale)
        return header, table | {"score": scores}

    def log_likelihood(self) -> float:
        """Return Σ_c Σ_j N_jc·log θ_jc; see `GroupView`."""
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

    def contributions(self, fields: Any, row: int) -> list[Effect]:
        """Return what each word of the example adds, with a hybrid's weights if there is one."""
        if self.state.weights is None:
            return super().contributions(fields, row)
        words = self.row(fields, row)
        n_tokens = float(words.times[self.state.counts.by_word[words.columns].any(axis=1)].sum())
        by_class = self.state.weighted_log_odds(words.columns, words.times, n_tokens, self.scale)
        return self.effects(words, self.log_theta(words.columns), by_class)

    # ---- the generative side -------------------------------------------------------------------

    def mean_length(self, c: int) -> float:
        """Return the mean number of words of an example of class `c`, or of all if it has none.

        0 if nothing was learned.
        """
        if self.examples[c] > 0.0:
            return float(self.tokens[c] / self.examples[c])
        return float(self.tokens.sum() / self.examples.sum()) if self.examples.any() else 0.0

    def draw_words(self, c: int, n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Draw words from θ_c, as many as asked for, or as Poisson(the class's mean length) says.

        With ``counts="presence"`` a word that is drawn twice is read once.
        """
        length = self.length_drawn
        sizes = rng.poisson(self.mean_length(c), n) if length is None else np.full(n, length)
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

    def _shapes(self, words: KnownWords) -> tuple[Floats, Floats]:
        """Return the Dirichlet's parameters: of an example's words (n, k), and their sum (k,)."""
        alphas = self.state.spec.likelihood.prior.grid(self.state.n_declared, len(self.tokens))
        one_each = len(alphas) > 1
        sums = alphas.sum(axis=0) if one_each else alphas[0] * vocabulary_size(self.state.counts)
        own = alphas[words.columns] if one_each else alphas
        return self.counts_of(words.columns) + own, self.tokens + sums

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Return Σ x_j·log θ_jc under draws of θ_c from its Dirichlet; see `GroupView`.

        All words that the example does not have are drawn as one.
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


MISSING = "(words that are missing)"
_HEAVY = 512  # missing words drawn one by one; the others' sum is drawn at once


class BernoulliView(WordsView, of=Bernoulli):
    """A view of words by presence."""

    def outcomes(self) -> Counter[int]:
        """Return how many words there are, each present or absent."""
        return Counter({2: self.n_features})

    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds, with log(1 − θ) of each word."""
        header, table = super().export()
        header |= {"is_void": self.is_void.tolist()}
        return header, table | {"log_absent": self.log_absent(self.live)}

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
        # Rounding of fractional weights may leave N_jc above N_c; nothing is less than none.
        return held + present, np.maximum(self.examples - held, 0.0) + absent

    def log_absent(self, columns: NDArray[np.int64]) -> Floats:
        """Return log(1 − θ_jc), shape (n, n_classes); -inf if the class is empty, without β₂."""
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
        """Whether a class gives no text any probability: it has no example, and β₂ is 0."""
        void: NDArray[np.bool_] = self.examples + self.betas[1] == 0.0
        return void

    def parameters(self) -> ParameterCount:
        """Count k·V, all free."""
        n = len(self.examples) * len(self.live)
        return ParameterCount(n, n)

    def log_likelihood(self) -> float:
        """Return Σ_c Σ_j N_jc·log θ_jc + (N_c − N_jc)·log(1 − θ_jc); see `GroupView`."""
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

    def contributions(self, fields: Any, row: int) -> list[Effect]:
        """Return log θ_jc for each word of the example, and one sum for all missing words."""
        words = self.row(fields, row)
        if not words.there:
            return []
        log_theta = self.log_theta(words.columns)
        missing = column_sums(self.log_absent(self._missing(words)))
        missing = np.where(self.is_void, -np.inf, missing)
        return [
            *self.effects(words, log_theta, log_theta),
            Effect(MISSING, missing, MISSING, None, np.exp(missing), "absent_words"),
        ]

    def _missing(self, words: KnownWords) -> NDArray[np.int64]:
        """Return the columns of the words that an example does not have."""
        return np.delete(self.live, np.searchsorted(self.live, words.columns))

    # ---- the generative side -------------------------------------------------------------------

    def draw_words(self, c: int, n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Draw whether each word is present, by θ_jc."""
        theta = np.exp(self.log_theta(self.live)[:, c])
        return [np.flatnonzero(rng.random(len(theta)) < theta) for _ in range(n)]

    # ---- the posterior of the parameters -------------------------------------------------------

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Return one example's log-likelihoods under draws of each θ_jc; see `GroupView`.

        The most frequent missing words are drawn one by one. The sum of the others is drawn from a
        Gamma distribution of the same mean and variance: −log(1 − θ) is nearly Gamma-distributed if
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
            # Most words share their count with many others, so the distinct counts are few.
            counts, times = np.unique(held[:, c], return_counts=True)
            rest = np.maximum(self.examples[c] - counts, 0.0)
            a, b = counts + present[c], rest + absent[c]
            each_mean, each_variance = log_beta_moments(b, a)
            mean[c] = (times * each_mean).sum()
            variance[c] = (times * each_variance).sum()
        return mean, variance


class ComplementView(WordsView, of=Complement):
    """A view of words by how often they occur in all other classes."""

    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds, with a score in the place of log θ."""
        header, table = super().export()
        table["score"] = table.pop("log_theta")
        return header, table

    def log_likelihood(self) -> float:
        """Refuse: a score is no log-probability."""
        self._refuse("it has no log-likelihood of data")

    def draw_words(self, c: int, n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:  # noqa: ARG002
        """Refuse: it does not describe texts."""
        self._refuse("there are no texts to draw from it")

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """Refuse: its scores have no posterior."""
        self._refuse("its scores have no posterior distribution")

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Refuse: its scores have no posterior."""
        self._refuse("its scores have no posterior distribution")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"group {self.state.name!r}: Complement tells classes apart and generates nothing, so"
            f" {what}. Take a Multinomial for that."
        )


def word_groups(state: ModelState) -> dict[str, CountedState]:
    """Return the groups of words, of text or counted already."""
    return {name: group for name, group in state.groups.items() if isinstance(group, CountedState)}


def word_group(state: ModelState, name: str | None) -> CountedState:
    """Return a group of words by its name; without one, the only group of words."""
    groups = word_groups(state)
    if name is None and len(groups) == 1:
        return next(iter(groups.values()))
    if isinstance(name, str) and name in groups:
        return groups[name]
    raise InputError(
        f"group must be one of {', '.join(groups) or 'none: this model has no words'}."
        f" Got {name!r} instead."
    )


def word_view(state: ModelState, name: str | None) -> WordsView:
    """Return the view of the group that `word_group` returns, decayed up to now."""
    view = view_of(word_group(state, name), state.clock.scale)
    assert isinstance(view, WordsView)
    return view


class Changes(NamedTuple):
    """How words' log-odds of each class changed between two windows, (n_words, n_classes) each."""

    z: Floats  # in standard errors: how sure it is
    strength: Floats  # how much it says about the later window, with less of chance in it than |z|


def change_of_log_odds(
    before: Floats, after: Floats, tokens_before: Floats, tokens_after: Floats
) -> Changes:
    """Return the change of each word's log-odds of each class, beyond that of the classes' shares.

    Each window gets one occurrence more, with the class that the other window, and the change of
    the classes' own shares, would have it: a word that lacks a class which nothing has any more
    did not move.

    z² is about n·p·(1 − p) of the later window times the square of the change, and chance makes
    words strong that came often there, or evenly. So strength takes p·(1 − p) as the geometric mean
    of both windows, and n by how often the word came in both together, as far as that is within two
    standard errors of its own n: one that has become rare keeps that.
    """
    n_before, n_after = (each.sum(axis=1, keepdims=True) for each in (before, after))
    base = [
        np.log((tokens + _PSEUDO) / (tokens.sum() - tokens + _PSEUDO))
        for tokens in (tokens_before, tokens_after)
    ]
    moved = base[1] - base[0]
    change, variance, spread = np.zeros_like(before) - moved, 0.0, 1.0
    for counts, n, other, n_other, sign in (
        (before, n_before, after, n_after, -1.0),
        (after, n_after, before, n_before, 1.0),
    ):
        odds = (other + _PSEUDO) / (n_other - other + _PSEUDO) * np.exp(sign * moved)
        own, others = counts + odds / (1.0 + odds), n - counts + 1.0 / (1.0 + odds)
        change += sign * np.log(own / others)
        variance += 1.0 / own + 1.0 / others
        spread *= np.sqrt(own * others) / (n + 1.0)
    n_tokens = tokens_after.sum()
    expected = (n_before + n_after) * (n_tokens / max(n_tokens + tokens_before.sum(), 1.0))
    chance = 2.0 * np.sqrt(n_after)
    n = np.maximum(np.clip(expected, n_after - chance, n_after + chance), 0.0)
    return Changes(change / np.sqrt(variance), np.abs(change) * np.sqrt(n * spread))


def weighed_examples(state: ModelState, learned: Taught) -> tuple[float, float]:
    """Return how many examples a state is of, and their weight; where decay hides it, `learned`."""
    if state.clock.half_life is not None:
        n, weight = learned or (0.0, 0.0)
        return check("learned[0]", n), check("learned[1]", weight)
    return max(0.0, float(state.n_examples)), max(0.0, float(state.class_counts.sum()))


def window_weights(then: tuple[float, float], now: tuple[float, float]) -> tuple[float, float]:
    """Return the mean weight of the examples up to then, and of those since.

    Each is given by how many examples there were, and their weight. Of a window without any it is
    the mean of all; 1 where there are none.
    """
    (n_then, weight_then), (n, weight) = then, now
    found = weight / n if n > 0.0 and weight > 0.0 else 1.0
    before = weight_then / n_then if n_then > 0.0 and weight_then > 0.0 else found
    n, weight = n - n_then, weight - weight_then
    return before, weight / n if n > 0.0 and weight > 0.0 else found


def n_new_classes(n_before: int, n: int) -> int:
    """Return how many of `n` classes came since; refuse counts of more than there are."""
    if n_before > n:
        raise InputError(
            f"earlier must be of the same model: it counts {n_before} classes, and the model has"
            f" {n}."
        )
    return n - n_before
