"""A model's parameters: how many there are, as weights of a linear form, and how sure they are.

A model predicts with its estimates as if they were known. They are not: each has a posterior (a
Dirichlet, Beta or normal–inverse-gamma), and so p(c | x) has one, of which the credible intervals
are. Few examples make it wide. A shape of 0 (maximum likelihood, and nothing counted) means a
probability of exactly 0.

At the end stands the generative model: how likely data is under it, and examples drawn from it. How
likely data is are two questions. The joint log-likelihood, Σ log p(x, y), says how well the model
describes examples; the conditional log-loss, −log p(y | x), how well it predicts their class.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb import predict
from streamnb.calibration import calibrated
from streamnb.errors import InputError, check_bool, check_choice, check_size
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import Linear, ParameterCount, check_raw, views_of
from streamnb.kernels import posterior
from streamnb.labels import UNLABELLED, Codes, Label, read_labels, to_indices
from streamnb.likelihoods.multinomial import Multinomial
from streamnb.predict import check_has_classes, log_class_priors, read, to_columns
from streamnb.state import ModelState

_EXACT_BITS_MAX = 4096  # a larger number is nothing to look at: its logarithm says as much


@dataclass(frozen=True, slots=True)
class Parameters:
    """How many parameters a model has as it stands.

    Attributes
    ----------
    class_prior : ParameterCount
        Table entries k; independent k − 1, or none if they are fixed.
    groups : dict of str to ParameterCount
    table : int
        Entries of all tables together.
    independent : int
        Those that can be chosen freely.
    without_naive_assumption : int or None
        Free parameters of the whole joint distribution of class and features. None if it is not
        countable (words that may come any number of times, numbers), or has more than 4096 bits.
    log2_without_naive_assumption : float or None
        Its logarithm to base 2, whatever its size.

    Examples
    --------
    >>> from streamnb import Bernoulli, NaiveBayes, Words
    >>> words = Words(Bernoulli(), dictionary=["a", "b", "c"])
    >>> counted = NaiveBayes(["no", "yes"], features={"text": words}).parameters()
    >>> counted.independent, counted.without_naive_assumption
    (7, 15)
    """

    class_prior: ParameterCount
    groups: dict[str, ParameterCount]
    without_naive_assumption: int | None
    log2_without_naive_assumption: float | None

    @property
    def table(self) -> int:
        """Entries of all tables together."""
        return self.class_prior.table + sum(each.table for each in self.groups.values())

    @property
    def independent(self) -> int:
        """Parameters that can be chosen freely."""
        return self.class_prior.independent + sum(g.independent for g in self.groups.values())


def count(state: ModelState) -> Parameters:
    """Count a model's parameters as they stand."""
    k = len(state.classes)
    class_prior = ParameterCount(k, 0 if state.is_prior_fixed else max(k - 1, 0))
    views = views_of(state)
    counts = {name: view.parameters() for name, view in views.items()}
    sizes: Counter[int] = Counter()
    for view in views.values():
        own = view.outcomes()
        if own is None:
            return Parameters(class_prior, counts, None, None)
        sizes += own
    bits = sum(times * math.log2(size) for size, times in sizes.items())
    if bits > _EXACT_BITS_MAX:
        return Parameters(class_prior, counts, None, bits + math.log2(max(k, 1)))
    outcomes = math.prod(size**times for size, times in sizes.items())
    exact = k * (outcomes - 1) + class_prior.independent
    return Parameters(class_prior, counts, exact, math.log2(exact) if exact else None)


# ---- the linear form: log p(x, c) = Σ_j w_jc·x_j + b_c ------------------------------------------


@dataclass(frozen=True, slots=True)
class LinearForm:
    """A joint log-likelihood that is linear in the features, for examples with every field there.

    x_j is how often a word occurs, 1 for a word or flag that is there and for the value that a
    category has, or a number itself.

    Attributes
    ----------
    classes : tuple of str, int or bool
    log_priors : ndarray of shape (n_classes,), in nats
    groups : dict of str to Linear
        Each group's own form.

    Examples
    --------
    >>> from streamnb import Multinomial, NaiveBayes, Words
    >>> model = NaiveBayes(["ham", "spam"], features={"text": Words(Multinomial())})
    >>> model.learn_many({"text": ["lunch", "a prize"]}, ["ham", "spam"])
    >>> form = model.weights()
    >>> dict(zip(form.names, form.w.round(3).tolist()))[("text", "prize")]
    0.47
    """

    classes: tuple[Label, ...]
    log_priors: Floats
    groups: dict[str, Linear]

    @property
    def names(self) -> list[tuple[str, str]]:
        """Group and feature of each weight."""
        return [(group, name) for group, form in self.groups.items() for name in form.names]

    @property
    def weights(self) -> Floats:
        """w_jc, ndarray of shape (n_features, n_classes), in nats."""
        none = np.empty((0, len(self.classes)))
        return np.concatenate([none, *(form.weights for form in self.groups.values())])

    @property
    def constants(self) -> Floats:
        """b_c with the class prior in it, ndarray of shape (n_classes,), in nats."""
        total = self.log_priors.copy()
        for form in self.groups.values():
            total += form.constants
        return total

    @property
    def w(self) -> Floats:
        """w⁺ − w⁻ of two classes, the second one +: ndarray of shape (n_features,), in nats.

        With it P(+ | x) = 1/(1 + exp(−(w·x + b))). 0 where both are -inf: such a feature makes both
        classes impossible, and does not distinguish them.

        Raises
        ------
        InputError
            If there are not two classes.
        """
        self._check_two()
        return difference(self.weights[:, 1], self.weights[:, 0])

    @property
    def b(self) -> float:
        """b⁺ − b⁻ of two classes, the second one +, in nats; log π⁺/π⁻ is in it."""
        self._check_two()
        return float(difference(self.constants[1], self.constants[0]))

    def _check_two(self) -> None:
        if len(self.classes) != 2:
            raise InputError(
                f"w and b are of two classes, and the model has {len(self.classes)}. Take weights"
                " and constants, which have one each."
            )


def difference(first: Floats, second: Floats) -> Floats:
    """Return first − second, 0 where both are infinite alike."""
    with np.errstate(invalid="ignore"):
        found: Floats = np.where(first == second, 0.0, first - second)
    return found


def linear_form(state: ModelState) -> LinearForm:
    """Return the linear form of the joint log-likelihood; see `ModelReader.weights`."""
    check_raw(state, "a hybrid's answer is not linear in the words, as it depends on their number")
    groups = {name: view.linear() for name, view in views_of(state).items()}
    return LinearForm(tuple(state.classes), log_class_priors(state), groups)


# ---- credible intervals of p(c | x), from the parameters' posteriors -----------------------------


def credible_interval_one(
    state: ModelState, x: Mapping[str, Any], level: float, method: str, n: int, seed: Seed
) -> dict[Label, tuple[float, float]]:
    """Return an interval for each p(c | x); see `ModelReader.credible_interval_one`."""
    level = check_level(level)
    check_choice("method", method, "sampled", "delta")
    check_has_classes(state.classes)
    check_raw(state, "a credible interval comes from the posteriors of the counts' parameters")
    fields, _ = read(state, to_columns(state, x))
    views = views_of(state)
    shapes = state.prior_examples + state.pseudo_counts
    if method == "delta":
        prior = prior_moments(shapes)
        if state.is_prior_fixed:
            prior = log_class_priors(state), np.zeros(len(state.classes))
        moments = [view.moments(fields[name], 0) for name, view in views.items()]
        ends = delta_interval(prior, moments, level)
    else:
        rng = to_rng(seed)
        check_size("n", n, 1)
        if state.is_prior_fixed:
            draws = np.tile(log_class_priors(state), (n, 1))
        else:
            draws = prior_draws(shapes, n, rng)
        drawn = [view.draws(fields[name], 0, n, rng) for name, view in views.items()]
        ends = sampled_interval(sum(drawn, draws), draws, level)
    return dict(zip(state.classes, map(tuple, ends.T.tolist()), strict=True))


def check_level(level: Any) -> float:
    """Return a level between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, float | np.floating) or not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, such as 0.95. Got {level!r} instead.")
    return float(level)


def prior_draws(shapes: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Return `n` draws of log π from Dirichlet(shapes), (n, n_classes); without any, uniform."""
    if not shapes.any():
        return np.full((n, len(shapes)), -np.log(len(shapes)))
    return normalised(log_gammas(shapes, n, rng))


def normalised(logs: Floats) -> Floats:
    """Return each row less its log-sum-exp, so that the exponentials add up to 1.

    Predictions go by `posterior.normalise` instead, which keeps the digits of a likely class; its
    last bits are others, and those of draws must not change.
    """
    found: Floats = logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)
    return found


def prior_moments(shapes: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of log π_c, up to what all classes share, each (n_classes,)."""
    if not shapes.any():
        return np.zeros(len(shapes)), np.zeros(len(shapes))
    possible = shapes > 0.0
    return digamma(shapes), np.where(possible, trigamma(np.where(possible, shapes, 1.0)), 0.0)


def sampled_interval(joint: Floats, prior: Floats, level: float) -> Floats:
    """Return quantiles of p(c | x) under draws, ndarray of shape (2, n_classes).

    `joint` has log p(x, c) and `prior` log π_c, which answers if every class is impossible, both of
    shape (n, n_classes).
    """
    joint = np.where((joint == -np.inf).all(axis=1, keepdims=True), prior, joint)
    found: Floats = np.quantile(
        np.exp(normalised(joint)), [(1 - level) / 2, (1 + level) / 2], axis=0
    )
    return found


def delta_interval(
    prior: tuple[Floats, Floats], groups: list[tuple[Floats, Floats]], level: float
) -> Floats:
    """Return an interval of p(c | x) by the delta method, ndarray of shape (2, n_classes).

    The log-odds of a class against all others, s_c − log Σ_o exp(s_o), is taken to be normal, with
    the moments of its first-order expansion around the means. Of two classes both are exact.
    `prior` and `groups` are means and variances by class, of log π_c and of each group's
    log-likelihood, independent of each other and of other classes'.
    """
    mean = sum((each for each, _ in groups), prior[0])
    variance = sum((each for _, each in groups), prior[1])
    if (mean == -np.inf).all():  # every class is impossible: the class prior answers
        mean, variance = prior
    z = -NormalDist().inv_cdf((1 - level) / 2)  # (1 + level) / 2 may round to 1
    out = np.empty((2, len(mean)))
    for c in range(len(mean)):
        others = np.delete(mean, c)
        rest = np.logaddexp.reduce(others, initial=-np.inf)
        if mean[c] == -np.inf or rest == -np.inf:
            out[:, c] = 0.0 if mean[c] == -np.inf else 1.0
            continue
        shares = np.exp(others - rest)
        spread = z * np.sqrt(variance[c] + shares**2 @ np.delete(variance, c))
        ends = mean[c] - rest + np.array([-spread, spread])
        out[:, c] = np.exp(-np.logaddexp(0.0, -ends))
    return out


# ---- logarithms of probabilities under their Dirichlet and Beta posteriors ----------------------


def digamma(x: Any) -> Floats:
    """Return ψ(x), -inf at 0."""
    from scipy import special  # noqa: PLC0415 -- a tenth of a second that most programs never need

    x = np.asarray(x, dtype=np.float64)
    with np.errstate(all="ignore"):
        found: Floats = np.where(x > 0.0, special.psi(np.where(x > 0.0, x, 1.0)), -np.inf)
    return found


def trigamma(x: Any) -> Floats:
    """Return ψ'(x), inf at 0."""
    from scipy import special  # noqa: PLC0415 -- as above

    x = np.asarray(x, dtype=np.float64)
    found: Floats = np.where(x > 0.0, special.zeta(2.0, np.where(x > 0.0, x, 1.0)), np.inf)
    return found


def log_beta_moments(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of log θ with θ from Beta(a, b); (-inf, 0) if a is 0.

    If b alone is 0, θ is 1 for certain: mean and variance are 0.
    """
    whole = a + b
    is_open = (a > 0.0) & (b > 0.0)
    safe_a, safe_whole = np.where(is_open, a, 1.0), np.where(is_open, whole, 1.0)
    mean = np.where(is_open, digamma(safe_a) - digamma(safe_whole), 0.0)
    variance = np.where(is_open, trigamma(safe_a) - trigamma(safe_whole), 0.0)
    return np.where(a > 0.0, mean, -np.inf), variance


def log_gammas(shape: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Draw log X with X ~ Gamma(shape), shape (n, *shape.shape); -inf if the shape is 0.

    A small shape's X may be below the smallest float64, but not its logarithm: X is drawn as that
    of shape + 1, times U^(1/shape).
    """
    larger = rng.standard_gamma(shape + 1.0, (n, *shape.shape))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(larger) - rng.standard_exponential(larger.shape) / shape)


def log_betas(
    present: Floats, absent: Floats, n: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Draw log θ and log(1 − θ) with θ ~ Beta(present, absent), each of shape (n, k).

    If both parameters are 0, nothing is known and both logarithms are -inf.
    """
    one, other = log_gammas(present, n, rng), log_gammas(absent, n, rng)
    total = np.logaddexp(one, other)
    total[np.isneginf(total)] = 0.0
    return one - total, other - total


# ---- the generative model ------------------------------------------------------------------------

Seed = int | np.random.Generator | None


@dataclass(frozen=True, slots=True)
class DataLikelihood:
    """How likely data is under a model.

    Attributes
    ----------
    n_examples : int
    log_likelihood : float
        The joint Σ log p(x, y), in nats.
    with_coefficient : bool
        Whether the multinomial coefficients, log m!/∏x_j! an example, are in it.
    log_loss : float
        The conditional mean of −log p(y | x), in nats an example: of what is answered, so of
        calibrated log-posteriors in a snapshot that has a calibrator.
    """

    n_examples: int
    log_likelihood: float
    with_coefficient: bool
    log_loss: float

    @property
    def nll(self) -> float:
        """−Σ log p(x, y), in nats."""
        return -self.log_likelihood

    def __str__(self) -> str:
        which = "with" if self.with_coefficient else "without"
        return (
            f"joint NLL, −Σ log p(x, y) {which} multinomial coefficients: {self.nll:.6f} nats\n"
            f"log-loss, mean of −log p(y | x): {self.log_loss:.6f} nats an example"
        )


def likelihood_of(
    state: ModelState,
    columns: Any,
    labels: Sequence[Label] | Codes,
    *,
    with_coefficient: bool = False,
) -> DataLikelihood:
    """Return how likely examples with their labels are; see `ModelReader.likelihood_of`."""
    check_bool("with_coefficient", with_coefficient)
    fields, n = predict.read(state, columns)
    own = np.arange(n), _class_indices(labels, n, state.classes)
    joint = predict.joint_and_prior(state.raw(), columns)[0][own].sum()
    log, prior = predict.joint_and_prior(state, columns)
    if with_coefficient:
        for name, view in views_of(state).items():
            joint += view.log_coefficients(fields[name], n).sum()
    if not n:
        raise InputError(
            "a log-loss is a mean over examples, and there is none. Give at least one."
        )
    posterior.normalise(log, prior)
    if state.calibration is not None:
        log = calibrated(state.calibration, log)
    return DataLikelihood(n, float(joint), with_coefficient, -float(log[own].mean()))


def _class_indices(labels: Any, n: int, classes: list[Label]) -> NDArray[np.int32]:
    """Return the place of each label among the classes; refuse one that is none of them."""
    codes = read_labels(labels, n, classes)
    indices = to_indices(codes, classes)
    unknown = np.flatnonzero(indices == UNLABELLED)
    if len(unknown):
        at = int(unknown[0])
        raise InputError(
            f"labels[{at}]: the model knows no class {codes.classes[codes.codes[at]]!r}. It has"
            f" {', '.join(map(repr, classes)) or 'none'}."
        )
    return indices


def training_log_likelihood(state: ModelState) -> float:
    """Return Σ log p(x, y) of what was learned; see `ModelReader.training_log_likelihood`."""
    held = state.class_counts / state.clock.scale
    with np.errstate(invalid="ignore"):
        terms = np.where(held > 0.0, held * predict.log_class_priors(state), 0.0)
    own = sum(view.log_likelihood() for view in views_of(state).values())
    return float(terms.sum()) + own


# ---- sampling -----------------------------------------------------------------------------------


def sample_many(
    state: ModelState, n: int, seed: Seed, length: int | None
) -> tuple[dict[str, list[Any]], list[Label]]:
    """Draw `n` examples: a class from π, then each group's fields; see `ModelReader.sample_many`.

    Two groups that read one field are refused: drawn independently, they would not agree on it.
    """
    rng = to_rng(seed)
    check_size("n", n, 0)
    predict.check_has_classes(state.classes)
    ends = np.cumsum(np.exp(predict.log_class_priors(state)))
    drawn_classes = np.searchsorted(ends, rng.random(n) * ends[-1], side="right").astype(np.int32)
    columns: dict[str, list[Any]] = {}
    views = views_of(state)
    if length is not None:
        check_size("length", length, 0)
        texts = [v for v in views.values() if isinstance(v.state.spec.likelihood, Multinomial)]
        if not texts:
            raise InputError(
                "length is that of texts under a Multinomial, and the model has none: under others"
                " it follows from the words that are there. Leave it out."
            )
        for view in texts:
            view.length_drawn = length
    for name, view in views.items():
        drawn = view.sample(drawn_classes, rng)
        twice = sorted(columns.keys() & drawn.keys())
        if twice:
            raise InputError(
                f"field {twice[0]!r} is read by group {name!r} and another one: each would draw its"
                " own value. Sample a model whose groups read different fields."
            )
        columns |= drawn
    return columns, [state.classes[c] for c in drawn_classes.tolist()]


def to_rng(seed: Any) -> np.random.Generator:
    """Return a generator of random numbers for a seed, or refuse it."""
    if isinstance(seed, np.random.Generator):
        return seed
    is_whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0
    if seed is not None and not is_whole:
        raise InputError(
            "seed must be a whole number of at least 0, a numpy Generator, or None. Got"
            f" {seed!r} instead."
        )
    return np.random.default_rng(seed)
