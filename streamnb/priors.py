"""Priors, named as the field names them: values, frozen, comparable, saved with the model.

The raw counts never hold a prior; it enters when an estimate is read:

* Beta(β₁, β₂) on a Bernoulli feature: θ_jc = (N_jc + β₁) / (N_c + β₁ + β₂)
* Dirichlet(α) on classes: π_c = (N_c + α) / (n + k·α); on words: θ_jc = (N_jc + α) / (N_·c + α·V)

A concentration of 0 is maximum likelihood, 1 is Laplace's rule, and anything between is Lidstone's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from streamnb.errors import InputError


def _check(name: str, value: Any) -> float:
    if not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
        raise InputError(f"{name} must be a finite number of at least 0. Got {value!r} instead.")
    return float(value)


@dataclass(frozen=True, slots=True)
class Beta:
    """Beta prior on the probability of a word or flag being there.

    Parameters
    ----------
    present, absent : float
        β₁ and β₂: how many examples with and without the feature were seen before the first one.

    Examples
    --------
    >>> Beta(1, 1)
    Beta(present=1.0, absent=1.0)
    """

    present: float = 1.0
    absent: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "present", _check("Beta.present", self.present))
        object.__setattr__(self, "absent", _check("Beta.absent", self.absent))


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Symmetric Dirichlet prior on classes, categories or words.

    Parameters
    ----------
    concentration : float
        α: how many examples of each kind were seen before the first one.

    Examples
    --------
    >>> Dirichlet(1.0)
    Dirichlet(concentration=1.0)
    """

    concentration: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "concentration", _check("Dirichlet.concentration", self.concentration)
        )
