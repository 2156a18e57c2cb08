"""How likely data is under a model: the joint log-likelihood, and the conditional log-loss.

They are two questions. The joint one, Σ log p(x, y), asks how well the model describes examples;
the conditional one, −log p(y | x), how well it tells their class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb import predict
from streamnb.errors import InputError
from streamnb.features.protocol import Floats
from streamnb.inspection.views import views_of
from streamnb.inspection.words import MultinomialView
from streamnb.labels import UNLABELLED, Codes, Label, read_labels, to_indices
from streamnb.state import ModelState


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
    places = places_of(labels, n, state.classes)
    joint = chosen(predict.joint_and_prior(state, columns)[0], places).sum()
    if with_coefficient:
        for name, view in views_of(state).items():
            if isinstance(view, MultinomialView):
                joint += view.log_coefficients(fields[name], n).sum()
    loss = mean_loss(chosen(predict.log_posteriors(state, columns), places))
    return DataLikelihood(n, float(joint), with_coefficient, loss)


def training_log_likelihood(state: ModelState) -> float:
    """Return Σ log p(x, y) of what was learned; see `ModelReader.training_log_likelihood`."""
    held = state.class_counts / state.clock.scale
    with np.errstate(invalid="ignore"):
        terms = np.where(held > 0.0, held * predict.log_class_priors(state), 0.0)
    own = sum(view.log_likelihood() for view in views_of(state).values())
    return float(terms.sum()) + own


def places_of(labels: Any, n: int, classes: list[Label]) -> NDArray[np.int32]:
    """Return the place of each label among the classes.

    Raises
    ------
    InputError
        For a label that is none, or a class that the model does not know.
    """
    codes = read_labels(labels, n)
    places = to_indices(codes, classes)
    unknown = np.flatnonzero(places == UNLABELLED)
    if len(unknown):
        at = int(unknown[0])
        raise InputError(
            f"labels[{at}]: the model knows no class {codes.classes[codes.codes[at]]!r}. It has"
            f" {', '.join(map(repr, classes)) or 'none'}."
        )
    return places


def chosen(values: Floats, places: NDArray[np.int32]) -> Floats:
    """Return each row's value of its own class."""
    own: Floats = values[np.arange(len(places)), places]
    return own


def mean_loss(log_posteriors: Floats) -> float:
    """Return the mean of −log p.

    Raises
    ------
    InputError
        Without any example: nothing has no mean.
    """
    if not len(log_posteriors):
        raise InputError(
            "a log-loss is a mean over examples, and there is none. Give at least one."
        )
    return -float(log_posteriors.mean())
