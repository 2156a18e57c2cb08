"""Priors, named as the field names them: values, frozen, comparable, saved with the model.

The raw counts never hold a prior; it enters when an estimate is read:

* Beta(β₁, β₂) on a Bernoulli feature: θ_jc = (N_jc + β₁) / (N_c + β₁ + β₂)
* Dirichlet(α) on classes: π_c = (N_c + α) / (n + k·α); on words: θ_jc = (N_jc + α) / (N_·c + α·V)

A concentration of 0 is maximum likelihood (`MAXIMUM_LIKELIHOOD`), 1 is Laplace's rule (`LAPLACE`),
and anything between is Lidstone's: `Dirichlet(0.5)`.

A prior may differ by feature and by class. It is then given as numbers that broadcast to
(n_features, n_classes): a vector has one entry a feature, a matrix of one row one a class. Such a
prior fixes how many features, or classes, there can be.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_kind

# A number, one a feature, or one a feature and class.
PriorValues = float | tuple[float, ...] | tuple[tuple[float, ...], ...]
# Beyond these bounds products of pseudo-counts leave what a float can hold, and nan comes of it.
_LEAST, _LARGEST = 1e-60, 1e60


def check(name: str, value: Any, *, above: float | None = None) -> float:
    """Return a finite number of at least 0 (or above `above`), or say what is wrong with it."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(
        value, bool
    )
    if isinstance(value, np.floating):
        value = float(value)  # numpy would turn the bound below into a float32
    low = is_number and (value >= 0 if above is None else value > above)
    is_fit = low and value <= sys.float_info.max  # nan is neither, and an int may be beyond
    if not is_fit:
        wanted = "of at least 0" if above is None else f"above {above:g}"
        raise InputError(f"{name} must be a finite number {wanted}. Got {value!r} instead.")
    return float(value)


def _pseudo_count(name: str, value: Any) -> float:
    """Return a number of a prior: 0, or of a size that sums and products of it stay finite."""
    number = check(name, value)
    if number and not _LEAST <= number <= _LARGEST:
        raise InputError(
            f"{name} must be 0, or between {_LEAST:g} and {_LARGEST:g}. Got {value!r} instead."
        )
    return number


def check_values(name: str, value: Any) -> PriorValues:
    """Return a number, or numbers by feature, or by feature and class, as plain tuples.

    Each must be 0 or between 1e-60 and 1e60, and rows of one length.
    """
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, list | tuple):
        return _pseudo_count(name, value)
    rows: Any = [row.tolist() if isinstance(row, np.ndarray) else row for row in value]
    if not rows:
        raise InputError(f"{name} must hold at least one number. Got {value!r} instead.")
    if not any(isinstance(row, list | tuple) for row in rows):
        return tuple(_pseudo_count(f"{name}[{i}]", each) for i, each in enumerate(rows))
    if not all(isinstance(row, list | tuple) and len(row) == len(rows[0]) > 0 for row in rows):
        raise InputError(f"{name} must have rows of one length. Got {value!r} instead.")
    return tuple(
        tuple(_pseudo_count(f"{name}[{i}][{c}]", each) for c, each in enumerate(row))
        for i, row in enumerate(rows)
    )


def to_grid(name: str, values: PriorValues, n_features: int | None, n_classes: int) -> NDArray[Any]:
    """Return what `check_values` returned as a new grid, with one row or `n_features`.

    Its shape is (1, n_classes) or (n_features, n_classes). `n_features` is None if features are not
    declared; then one row has to do for all. Raises an InputError if the numbers do not fit.
    """
    grid = np.asarray(values, dtype=np.float64)
    grid = grid.reshape((-1, 1)) if grid.ndim < 2 else grid
    n_rows, n_columns = grid.shape
    if n_rows not in (1, n_features):
        there = "features that come as they please" if n_features is None else f"{n_features}"
        raise InputError(
            f"{name} has numbers for {n_rows} features, and the group has {there}."
            " Give one number for all, or declare as many features as there are numbers."
        )
    if n_columns not in (1, n_classes):
        raise InputError(
            f"{name} has numbers for {n_columns} classes, and the model has {n_classes}."
            " Give one number for all classes, or one for each that will ever come."
        )
    return np.array(np.broadcast_to(grid, (n_rows, n_classes)))


@dataclass(frozen=True, slots=True)
class Beta:
    """Beta prior on the probability of a word or flag being there.

    Parameters
    ----------
    present, absent : float, or one a feature, or one a feature and class
        β₁ and β₂: how many examples with and without the feature were seen before the first one.

    Examples
    --------
    >>> Beta(1, 1)
    Beta(present=1.0, absent=1.0)
    """

    present: Any = 1.0
    absent: Any = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "present", check_values("Beta.present", self.present))
        object.__setattr__(self, "absent", check_values("Beta.absent", self.absent))

    def grids(self, n_features: int | None, n_classes: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return β₁ and β₂ as grids; see `to_grid`."""
        return (
            to_grid("Beta.present", self.present, n_features, n_classes),
            to_grid("Beta.absent", self.absent, n_features, n_classes),
        )


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Dirichlet prior on classes, categories or words.

    Parameters
    ----------
    concentration : float, or one a feature, or one a feature and class
        α: how many examples of each kind were seen before the first one. On classes, a number or
        one for each class.

    Examples
    --------
    >>> Dirichlet(1.0)
    Dirichlet(concentration=1.0)
    >>> Dirichlet([1, 2]).grid(2, 3)
    array([[1., 1., 1.],
           [2., 2., 2.]])
    """

    concentration: Any = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "concentration", check_values("Dirichlet.concentration", self.concentration)
        )

    def grid(self, n_features: int | None, n_classes: int) -> NDArray[Any]:
        """Return α as a grid; see `to_grid`."""
        return to_grid("Dirichlet.concentration", self.concentration, n_features, n_classes)


MAXIMUM_LIKELIHOOD = Dirichlet(0.0)
LAPLACE = Dirichlet(1.0)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Class probabilities that are known, and that no data moves.

    Parameters
    ----------
    probabilities : mapping of class to float
        Above or equal to zero, adding up to 1. No other class can come.

    Examples
    --------
    >>> Fixed({"approve": 0.3, "reject": 0.7}).probabilities
    (('approve', 0.3), ('reject', 0.7))
    """

    probabilities: Any

    def __post_init__(self) -> None:
        given = self.probabilities
        listed = list(given.items()) if isinstance(given, Mapping) else given
        is_listed = isinstance(listed, list | tuple)
        if not is_listed or any(not isinstance(p, list | tuple) or len(p) != 2 for p in listed):
            raise InputError(
                f"Fixed.probabilities must be a mapping of class to number. Got {given!r} instead."
            )
        pairs = tuple((label, check(f"Fixed[{label!r}]", p)) for label, p in listed)
        for label, _ in pairs:
            check_kind("Fixed: a class", label, str, int, np.integer, np.bool_)
        if len({label for label, _ in pairs}) < len(pairs):
            raise InputError(f"Fixed.probabilities must name a class once. Got {given!r} instead.")
        if not pairs or abs(math.fsum(p for _, p in pairs) - 1.0) > 1e-9:
            raise InputError(f"Fixed.probabilities must add up to 1. Got {given!r} instead.")
        object.__setattr__(self, "probabilities", pairs)


ClassPrior = Dirichlet | Fixed


def pseudo_counts(prior: ClassPrior, classes: Sequence[Any]) -> NDArray[Any]:
    """Return each class's α, or its probability if the prior is fixed, shape (n_classes,)."""
    if isinstance(prior, Fixed):
        known = dict(prior.probabilities)
        unknown = [label for label in classes if label not in known]
        if unknown:
            raise InputError(
                f"class_prior is fixed for {', '.join(map(repr, known))}, and class {unknown[0]!r}"
                " has no probability. Name it there, or take a Dirichlet."
            )
        return np.array([known[label] for label in classes], dtype=np.float64)
    if not isinstance(prior, Dirichlet):
        raise InputError(f"class_prior must be a Dirichlet or Fixed. Got {prior!r} instead.")
    alphas = np.asarray(prior.concentration, dtype=np.float64)
    if alphas.ndim == 0:
        return np.full(len(classes), float(alphas))
    if alphas.shape != (len(classes),):
        raise InputError(
            f"class_prior has numbers for {alphas.shape[0]} classes, and the model has"
            f" {len(classes)}: {', '.join(map(repr, classes))}. Give one for each, or one for all."
        )
    return alphas


def class_prior_to_dict(prior: ClassPrior) -> Any:
    """Return a class prior for the model's header: a number, numbers, or pairs under `fixed`."""
    if isinstance(prior, Fixed):
        return {"fixed": [list(pair) for pair in prior.probabilities]}
    return as_lists(prior.concentration)


def class_prior_from_dict(value: Any) -> ClassPrior:
    """Return the class prior that `class_prior_to_dict` described."""
    if isinstance(value, dict):
        return Fixed([tuple(pair) for pair in value["fixed"]])
    return Dirichlet(value)


def as_lists(values: PriorValues) -> Any:
    """Return a prior's numbers as JSON knows them."""
    if isinstance(values, float):
        return values
    return [list(row) if isinstance(row, tuple) else row for row in values]
