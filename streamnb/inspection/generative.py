"""The generative model: how likely data is under it, and examples drawn from it.

How likely data is are two questions. The joint log-likelihood, Σ log p(x, y), says how well the
model describes examples; the conditional log-loss, −log p(y | x), how well it predicts their class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb import predict
from streamnb.errors import InputError, check_whole
from streamnb.inspection.group_view import views_of
from streamnb.kernels import posterior
from streamnb.labels import UNLABELLED, Codes, Label, read_labels, to_indices
from streamnb.likelihoods import Multinomial
from streamnb.state import ModelState

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
        The conditional mean of −log p(y | x), in nats an example.
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
    check_whole("n", n, 0)
    predict.check_has_classes(state.classes)
    ends = np.cumsum(np.exp(predict.log_class_priors(state)))
    drawn_classes = np.searchsorted(ends, rng.random(n) * ends[-1], side="right").astype(np.int32)
    columns: dict[str, list[Any]] = {}
    views = views_of(state)
    if length is not None:
        check_whole("length", length, 0)
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
