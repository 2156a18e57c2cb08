"""Multinomial: a text is drawn word by word, θ_jc = (N_jc + α) / (N_·c + α·V).

Complement: each class is known by the words of all the others (Rennie and others 2003).
θ̃_cj = (N_j − N_jc + α) / (N_· − N_·c + α·V), and a text adds −Σ_j x_j·log θ̃_cj to class c. The
estimates of a small class then rest on much more text than its own.

Beside them the hybrid: weights learned beside the counts, for sharper answers. And categorical: a
field has one of several values, θ_jvc = (N_jvc + α) / (N_jc + α·e_j).
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_kind
from streamnb.kernels import complement as complement_kernel
from streamnb.kernels import multinomial as kernel
from streamnb.kernels.categorical import Alphas
from streamnb.kernels.hybrid import BANDS, N_WORD_GROUPS, WEIGHT_PRECISION, HybridScratch, Weights
from streamnb.kernels.layout import DECLARED, LIVE, Counts, RowUpdates, RunOptions
from streamnb.likelihoods.base import Batch, of_others
from streamnb.priors import Dirichlet, as_lists, check

_SUM_MAX = 1e60  # of a hybrid's gradients and precisions; one count is at most 1e50
_GROWN_MAX = 1e140  # the same of words, which decay scales up, by 2^256 at most
_N_SMALL = 1024  # of small counts, which most words have
_LEAST = 1e-6  # less would be no prior, and let a quotient overflow


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

    @property
    def leaves_prior_out(self) -> bool:
        """False: the class prior counts."""
        return False

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


# ---- the complement -----------------------------------------------------------------------------


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
        return complement_kernel.complement(
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
            complement_kernel.rebuild(counts, self._alphas, n_words, scratch, self._sums)

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
        by_word = of_others(counts.by_word[columns].T, np.add).T
        top = by_word + (alphas[columns] if one_each else alphas) * scale
        tokens = of_others(counts.tokens[:, None], np.add)[:, 0]
        log_bottom = np.log(tokens + alpha_sums * scale)
        weights: NDArray[np.float64] = log_bottom - np.log(top)
        if self.normalise:
            # By the kernel's own sums, so that no order of the words is seen in them.
            sums = np.empty((n_classes, 2), dtype=np.int64)
            complement_kernel.rebuild(
                counts, alphas, len(counts.by_word), np.empty((n_classes, 3)), sums
            )
            weights /= v * log_bottom - sums @ complement_kernel.UNITS
        return weights

    def to_dict(self) -> dict[str, Any]:
        """Return the prior and the weighting for the model's header."""
        alpha = as_lists(self.prior.concentration)
        return {"name": self.name, "alpha": alpha, "normalise": self.normalise}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the family that `to_dict` described."""
        return cls(Dirichlet(values["alpha"]), normalise=values["normalise"])


# ---- the hybrid ---------------------------------------------------------------------------------


@cache
def small_bands() -> NDArray[np.int64]:
    """Return the bands of the small counts i."""
    return np.searchsorted(BANDS, np.arange(_N_SMALL), side="right")


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Weights of words, learned online by logistic regression beside the counts.

    Naive Bayes takes words as independent, so it is far too sure of itself. The hybrid weights the
    words' log-odds by kind (word, negated word, n-gram) and by how often they were counted, and
    adds one residual weight a word and class. Both are learned by the gradient of the log-loss,
    each example before the counts take it in. The counts stay what they are without it, bit for
    bit; so do all questions about them, and `ModelReader.raw` answers by them alone.

    Groups of numbers, flags and categories beside it get a weight each, learned with the words': of
    several groups with a hybrid, the first by name learns it.

    What is unlearned leaves the counts exactly. The weights stay, as a step back along the gradient
    is no inverse; a word of which nothing is left takes its own with it. Models and parts add up:
    each weight is the mean of theirs by precision. The prior's precision of a residual weight
    counts as often as the cube root of the number of logs: so a sum of many is calibrated, too.
    Without declared classes a part learns weights among the classes that the model knew by then,
    so that they depend on the order between logs; counts never do.

    Ancestors: Raina et al. 2003, *Classification with hybrid generative/discriminative models*;
    Wang & Manning 2012, *Baselines and bigrams*.

    Parameters
    ----------
    smoothing : float
        What is added to each count in the words' log-odds of two classes; of k classes 2/k of it,
        as so much less of a word is to be expected in each.
    shrinkage : float
        Precision of the normal prior around 0 of a word's residual weight: more keeps it smaller.
    half_life : float
        Of the class prior that the weights are learned beside, in examples. It follows runs of one
        class, so that no weight has to.

    Examples
    --------
    >>> from streamnb import Multinomial, NaiveBayes, Words
    >>> words = Words(Multinomial(), hybrid=Hybrid())
    >>> model = NaiveBayes(["ham", "spam"], features={"text": words})
    >>> model.learn_many({"text": ["a prize", "lunch", "prize"]}, ["spam", "ham", "spam"])
    >>> round(model.predict_proba_one({"text": "a prize"})["spam"], 3)
    0.801
    >>> round(model.raw().predict_proba_one({"text": "a prize"})["spam"], 3)
    0.8
    """

    smoothing: float = 2.5
    shrinkage: float = 0.1
    half_life: float = 700.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            object.__setattr__(self, name, check(f"Hybrid.{name}", value, above=_LEAST))


def hybrid_scratch(hybrid: Hybrid, n_classes: int, n_others: int) -> HybridScratch:
    """Return room for one run of the kernel."""
    smoothing = 2.0 * hybrid.smoothing / max(n_classes, 1)
    return HybridScratch(
        np.empty((N_WORD_GROUPS, n_classes)),
        np.empty((N_WORD_GROUPS, n_classes)),
        np.empty(N_WORD_GROUPS),
        np.empty(N_WORD_GROUPS),
        np.empty(N_WORD_GROUPS, dtype=np.int64),
        np.empty(n_classes),
        np.empty(n_classes),
        small_bands(),
        np.array([smoothing, hybrid.shrinkage, 0.5 ** (1.0 / hybrid.half_life)]),
        np.empty((n_others, n_classes)),
    )


class ThreadScratch(threading.local):
    """The scratch that a thread's last run had, and what `hybrid_scratch` made it for."""

    made_for: Any = None
    scratch: Any = None


def hybrid_from_dict(values: dict[str, float] | None) -> Hybrid | None:
    """Return the hybrid that a file's header describes, if it has one."""
    return None if values is None else Hybrid(**values)


def mean_weights(rows: NDArray[np.float64], start: float) -> NDArray[np.float64]:
    """Return the weights of rows of precision and gradients, shape (n,): w_g or u_o."""
    weights: NDArray[np.float64] = start + rows[:, 1] / (WEIGHT_PRECISION + rows[:, 0])
    return weights


def check_weights(prefix: str, weights: Weights, *, decays: bool) -> None:
    """Refuse weights that learning cannot have left, and that would be no number when divided."""
    least = min(rows[:, 0].min(initial=0.0) for rows in weights[1:])
    for array in weights:
        most = _GROWN_MAX if decays and array is weights.words else _SUM_MAX
        largest = np.abs(array).max(initial=0.0)
        if least < 0.0 or largest > most:
            raise InputError(
                f"{prefix}: a hybrid's precisions must be at least 0, and its sums at most"
                f" {most:g}. Got {least:g} and {largest:g} instead."
            )


def merge_weights(
    own: Weights,
    other: Weights,
    columns: tuple[Any, Any],
    places: NDArray[np.int64],
    sign: int,
    factor: float,
) -> None:
    """Add another group's weights, word by word, or take them away.

    `columns`: those of the words here, and there. `places`: the index here of each class there.
    `factor`: what decay multiplies theirs by.
    Taken from what was not merged from it, a precision may come out below zero: then nothing is
    left of the weight.
    """
    ours, theirs = columns
    words = _of_classes(other.words[theirs], places, own.words.shape[1])
    own.words[ours] += sign * factor * words
    own.groups[...] += sign * other.groups
    own.others[...] += sign * other.others
    own.recent[places] = np.maximum(own.recent[places] + sign * other.recent, 0.0)
    for rows in own[1:]:
        rows[rows[:, 0] < 0.0] = 0.0


def _of_classes(
    words: NDArray[np.float64], places: NDArray[np.int64], n_classes: int
) -> NDArray[np.float64]:
    """Return precisions and gradients as a model of other classes keeps them.

    `places`: where it has each class. The gradients of all classes add up to zero.
    """
    own, gradients = words[:, 1:], np.zeros((len(words), n_classes))
    gradients[:, places] = np.column_stack((-own.sum(axis=1), own))[:, : len(places)]
    return np.column_stack((words[:, 0], gradients[:, 1:]))


@dataclass(frozen=True, slots=True)
class Categorical:
    """Likelihood of categories.

    Parameters
    ----------
    prior : Dirichlet
        Dirichlet(α) on the values of each field, by class. With numbers for each value, the group
        must have one field whose values are declared.

    Examples
    --------
    >>> Categorical(Dirichlet(0.5)).to_dict()
    {'name': 'categorical', 'alpha': 0.5}
    """

    name: ClassVar[str] = "categorical"
    prior: Dirichlet = field(default_factory=Dirichlet)

    def __post_init__(self) -> None:
        check_kind("Categorical.prior", self.prior, Dirichlet)

    def alphas(self, declared: Any, n_classes: int) -> Alphas:
        """Return the prior as the kernel reads it.

        Parameters
        ----------
        declared : ndarray of shape (n_fields,), int64
            How many values each field declares, 0 where they come as they please.
        n_classes : int

        Raises
        ------
        InputError
            Where the prior does not fit the values or the classes.
        """
        is_one = len(declared) == 1 and declared[0] > 0
        grid = self.prior.grid(int(declared[0]) if is_one else None, n_classes)
        if len(grid) > 1 and not is_one:
            raise InputError(
                "a prior with numbers for each value needs one field with declared values."
            )
        return Alphas(grid, grid.sum(axis=0), np.asarray(declared, dtype=np.int64))

    def to_dict(self) -> dict[str, Any]:
        """Return the prior for the model's header."""
        return {"name": self.name, "alpha": as_lists(self.prior.concentration)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the family that `to_dict` described."""
        return cls(Dirichlet(values["alpha"]))
