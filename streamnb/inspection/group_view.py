"""What a group's statistics say beyond a posterior: to people, and to other programs.

A view reads a group's state and changes nothing; `view_of` returns it. The views themselves stand
in `words.py`, `categorical.py` and `numeric.py`. All log-likelihoods are in nats.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.features.protocol import Floats, GroupState
from streamnb.state import ModelState

ExportTable = dict[str, list[str] | Floats]  # columns by name; arrays have a row for each feature


class ParameterCount(NamedTuple):
    """How many parameters a group has, in both countings of the lecture notes.

    Attributes
    ----------
    table : int
        Entries of its tables; Bernoulli's are k·s, categorical k·Σe_j, multinomial k·V,
        Gaussian 2·k·m.
    independent : int
        Those that can be chosen freely: each distribution's probabilities add up to 1.
    """

    table: int
    independent: int


class Linear(NamedTuple):
    """A log-likelihood that is linear in the features: Σ_j w_jc·x_j + b_c.

    Attributes
    ----------
    names : list of str
        The features, in the order of the weights.
    weights : ndarray of shape (n_features, n_classes), in nats
    constants : ndarray of shape (n_classes,), in nats
    """

    names: list[str]
    weights: Floats
    constants: Floats


class FeatureLogs(NamedTuple):
    """Log-likelihoods of a group's features, (n_features, n_classes) in nats.

    `names` returns the names of rows: of a million features, only those that are asked for.
    `are_ratios` says that the values are already ratios of a class to the others.
    """

    names: Callable[[NDArray[np.int64]], list[str]]
    values: Floats
    are_ratios: bool = False


class Effect(NamedTuple):
    """What one feature of an example adds to the log-likelihood, by class, in nats.

    See `explain.Contribution`, which has the same attributes with the classes' names.
    """

    feature: str
    by_class: Floats
    value: str
    counts: Floats | None = None
    likelihoods: Floats | None = None


def quantity(n: int, what: str) -> str:
    """Return a number with its unit in the right form, such as "1 word" or "2 words"."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def names_from(names: list[str]) -> Callable[[NDArray[np.int64]], list[str]]:
    """Return a function that looks up the names of rows in a list."""
    return lambda rows: [names[j] for j in rows.tolist()]


class GroupView(ABC):
    """The questions that a group answers beyond prediction.

    `scale` says how far decay has scaled the counts by now, and so multiplies priors; it is 1
    without decay. A subclass names what it is the view of (`of=`): a group's state, or a
    likelihood.
    """

    length_drawn: int | None = None  # words of each text sampled; None draws the length too

    def __init_subclass__(cls, *, of: type | None = None) -> None:
        super().__init_subclass__()
        if of is not None:
            _VIEWS[of] = cls

    def __init__(self, state: Any, scale: float) -> None:
        self.state = state
        self.scale = scale

    @property
    def n_features(self) -> int:
        """Number of features: words, values, flags or numbers."""
        return len(self.state.fields)

    @property
    def size(self) -> str:
        """How large the group is, such as "3 fields"."""
        # Of an open group only the fields that something is known of: not those unlearned.
        return quantity(len(self.state.state_to_dict()["fields"]), "field")

    def outcomes(self) -> Counter[int] | None:
        """Return how many features have how many values; None if they cannot be counted."""
        return None

    @abstractmethod
    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds of the group as a whole, and of its features."""

    @abstractmethod
    def parameters(self) -> ParameterCount:
        """Count the parameters as they stand."""

    @abstractmethod
    def log_likelihood(self) -> float:
        """Return Σ log p(x | y) of all that was learned, under the estimates as they stand.

        From the statistics alone; 0·log 0 is 0. Multinomial coefficients are left out.
        """

    def log_coefficients(self, fields: Any, n: int) -> Floats:  # noqa: ARG002
        """Return what `log_likelihood` leaves out of each of `n` examples, shape (n,)."""
        return np.zeros(n)

    @abstractmethod
    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw one example a label from the generative model; return the fields' values."""

    @abstractmethod
    def linear(self) -> Linear:
        """Return the linear form, or raise an InputError that says why there is none."""

    @abstractmethod
    def contributions(self, fields: Any, row: int) -> list[Effect]:
        """Return what each feature of one example adds to the log-likelihood.

        `fields` is what the state's `read` returned. Together the effects are what `run` adds; a
        feature without effect is left out.
        """

    @abstractmethod
    def log_odds(self) -> FeatureLogs:
        """Return the log-likelihood of each feature that is present.

        For words and flags log θ_jc, for categories one row a value; for numbers a row a field: the
        mean log-likelihood ratio of class c's own examples against the other classes'.
        """

    def log_odds_of_values(self) -> FeatureLogs:
        """Return the same with a row for each value that a feature had, such as false flags."""
        return self.log_odds()

    @abstractmethod
    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Return one example's log-likelihoods under `n` parameters drawn from their posterior.

        Shape (n, n_classes). What no feature of the example depends on is not drawn.
        """

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Return mean and variance of what `draws` draws, each of shape (n_classes,)."""
        raise InputError(
            f"group {self.state.name!r}: the delta method knows no variance here. Take"
            " method='sampled'."
        )


_VIEWS: dict[type, type[GroupView]] = {}


def view_of(state: GroupState, scale: float) -> GroupView:
    """Return the view of a group."""
    view = _VIEWS.get(type(state)) or _VIEWS[type(state.spec.likelihood)]
    return view(state, scale)


def views_of(state: ModelState) -> dict[str, GroupView]:
    """Return the view of each group, decayed up to now."""
    scale = state.clock.scale
    return {name: view_of(group, scale) for name, group in state.groups.items()}


def check_raw(state: ModelState, why: str) -> None:
    """Refuse a model with a hybrid, for what only counts can answer."""
    if state.is_hybrid:
        raise InputError(f"{why}, and this model answers by a hybrid. Ask `model.raw()` instead.")
