"""Categorical: a field has one of several values, θ_jvc = (N_jvc + α) / (N_jc + α·e_j)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from streamnb.errors import InputError, check_kind
from streamnb.kernels.categorical import Alphas
from streamnb.priors import Dirichlet, as_lists


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
