"""Priors of the Gaussian family: values, frozen, comparable, saved with the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.matrix import LARGEST
from streamnb.priors import Values, as_lists, check, to_grid

# Concentrations and scales keep as far from zero as numbers do from infinity.
_LEAST = 1e-60


@dataclass(frozen=True, slots=True)
class VarianceFloor:
    """No prior: maximum likelihood, with something added to every variance.

    Parameters
    ----------
    share : float
        Of the largest variance that any field has over all classes together; scikit-learn calls it
        `var_smoothing`. With 0 a class that saw one value only is a point mass.

    Examples
    --------
    >>> VarianceFloor(0)
    VarianceFloor(share=0.0)
    """

    share: float = 1e-9

    def __post_init__(self) -> None:
        share = check("VarianceFloor.share", self.share)
        if share > LARGEST:
            raise InputError(f"VarianceFloor.share must be at most {LARGEST:g}. Got {share!r}.")
        object.__setattr__(self, "share", share)

    def to_dict(self) -> dict[str, Any]:
        """Return the prior for the model's header."""
        return {"name": "variance_floor", "share": self.share}


@dataclass(frozen=True, slots=True)
class NormalInverseGamma:
    """Normal–inverse-gamma prior on mean and variance; its predictive is Student's t.

    σ² ~ IG(α, β) and μ | σ² ~ N(mean, σ²/κ), each number one for all, one a field, or one a field
    and class.

    Parameters
    ----------
    mean : float, or one a field, or one a field and class, optional
        By default the mean of all classes together, as it stands.
    kappa : likewise
        κ > 0: how many examples the prior mean is worth.
    alpha : likewise
        α > 0: the prior variance is worth 2α examples.
    beta : likewise, optional
        β > 0; β/α is about the prior variance. By default α times the variance of all classes
        together, as it stands: so one example a class gives sensible answers at any scale.

    Examples
    --------
    >>> NormalInverseGamma(mean=0, kappa=1, alpha=2, beta=3).beta
    3.0
    """

    mean: Any = None
    kappa: Any = 0.1
    alpha: Any = 1.0
    beta: Any = None

    def __post_init__(self) -> None:
        for name in ("mean", "kappa", "alpha", "beta"):
            value = getattr(self, name)
            if value is None and name in {"mean", "beta"}:
                continue
            least = -LARGEST if name == "mean" else _LEAST
            checked = _numbers(f"NormalInverseGamma.{name}", value, least)
            object.__setattr__(self, name, checked)

    def grid(self, name: str, n_fields: int | None, n_classes: int) -> NDArray[Any]:
        """Return one of the numbers as a grid, nan where it is not given; see `to_grid`."""
        value = getattr(self, name)
        if value is None:
            return np.full((1, n_classes), np.nan)
        return to_grid(f"NormalInverseGamma.{name}", value, n_fields, n_classes)

    def to_dict(self) -> dict[str, Any]:
        """Return the prior for the model's header."""
        values = {name: getattr(self, name) for name in ("mean", "kappa", "alpha", "beta")}
        given = {name: None if v is None else as_lists(v) for name, v in values.items()}
        return {"name": "normal_inverse_gamma", **given}


NumberPrior = VarianceFloor | NormalInverseGamma
_NAMES: dict[str, Any] = {
    "variance_floor": VarianceFloor,
    "normal_inverse_gamma": NormalInverseGamma,
}


def number_prior_from_dict(values: Mapping[str, Any]) -> NumberPrior:
    """Return the prior that its `to_dict` described."""
    values = dict(values)
    prior: NumberPrior = _NAMES[values.pop("name")](**values)
    return prior


def _numbers(name: str, value: Any, least: float) -> Values:
    """Return a number, or numbers by field, or by field and class, as plain tuples."""
    plain = value.tolist() if isinstance(value, np.ndarray | np.generic) else value
    try:
        array = np.array(plain, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.array(np.nan)
    is_text_or_truth = np.array(plain, dtype=object).ravel().tolist()
    fits = array.ndim <= 2 and array.size > 0 and bool((np.abs(array) <= LARGEST).all())
    if not fits or (array < least).any() or any(map(_is_no_number, is_text_or_truth)):
        raise InputError(
            f"{name} must be a number between {least:g} and {LARGEST:g}, or one a field, or one a"
            f" field and class. Got {value!r} instead."
        )
    if array.ndim == 0:
        return float(array)
    rows = array.tolist()
    return tuple(tuple(row) for row in rows) if array.ndim == 2 else tuple(rows)


def _is_no_number(value: Any) -> bool:
    return isinstance(value, bool | str | bytes | np.bool_)
