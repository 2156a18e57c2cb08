"""The linear form of a model: log p(x, c) = Σ_j w_jc·x_j + b_c, where there is one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamnb.errors import InputError
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import Linear
from streamnb.inspection.views import views_of
from streamnb.labels import Label
from streamnb.predict import log_class_priors
from streamnb.state import ModelState


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
        classes impossible, and tells them apart no more.

        Raises
        ------
        InputError
            Where there are not two classes.
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
    """Return the linear form of the joint log-likelihood.

    Raises
    ------
    InputError
        If there is none, as with numbers whose variance each class has for itself.
    """
    groups = {name: view.linear() for name, view in views_of(state).items()}
    return LinearForm(tuple(state.classes), log_class_priors(state), groups)
