"""A model's parameters: how many there are, and as weights of a linear form where there is one."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from streamnb.errors import InputError
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import Linear, ParameterCount, check_raw, views_of
from streamnb.labels import Label
from streamnb.predict import log_class_priors
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
