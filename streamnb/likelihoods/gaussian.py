"""The Gaussian likelihood: its priors, values saved with the model, and its estimator."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import LARGEST, NUMBERS, Kind
from streamnb.errors import InputError, check_choice
from streamnb.kernels import gaussian as kernel
from streamnb.kernels.gaussian import Estimates, GaussianOptions, Moments, Prior
from streamnb.kernels.layout import I64, RowUpdates
from streamnb.priors import PriorValues, as_lists, check, to_grid

Floats = NDArray[np.float64]
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


def _numbers(name: str, value: Any, least: float) -> PriorValues:
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


class Posterior(NamedTuple):
    """What is known of mean and variance; all arrays of shape (n_classes, n_fields)."""

    n: Floats  # the sum of weights, as decay has left it
    mean: Floats  # of the data, as decay has left it
    m2: Floats
    # What a value is compared with: the mean, or the posterior's m; by maximum likelihood that of
    # all classes together, and their variance, where n is 0
    location: Floats
    variance: Floats  # M2/n with the floor, or b/a
    shape: Floats  # a, half of Student's degrees of freedom; infinite without a prior
    kappa: Floats  # κ + n, how many examples the location is worth; n without a prior
    speaks: NDArray[np.bool_]  # whether the field says anything at all


class GaussianEstimator:
    """Answers from the moments alone; it caches nothing but room.

    `is_open`: whether fields come as they please: one that no class has seen says nothing then.
    """

    def __init__(
        self, likelihood: Gaussian, n_fields: int, n_classes: int, *, is_open: bool
    ) -> None:
        prior = likelihood.prior
        self._options = GaussianOptions(
            _grids(prior, n_fields, n_classes, is_open=is_open),
            likelihood.is_bayes,
            likelihood.is_shared,
            is_open,
            prior.share if isinstance(prior, VarianceFloor) else 0.0,
        )

    def run(
        self,
        held: Moments,
        x: Floats,
        places: I64,
        updates: RowUpdates,
        out: Floats,
        *,
        learn: bool,
    ) -> None:
        """Add each row's log-likelihood to `out`, then learn it if it has a label."""
        kernel.gaussian(held, self._options, x, places, updates, learn, _room(held.n.shape), out)

    def point_masses(self, held: Moments) -> NDArray[np.bool_]:
        """Return which fields have no variance in a class, ndarray of shape (n_classes, n_fields).

        Its density is then that of the floor, and says nothing of the numbers. A prior gives each
        field a variance.
        """
        room = _new_room(held.n.shape)
        if self._options.is_bayes:
            return np.zeros(room.spread.shape, np.bool_)
        kernel.read_estimates(held, self._options, 1.0, room)
        found: NDArray[np.bool_] = (held.n[:1] > 0.0) & (room.spread == 0.0)
        return found

    def posterior(self, held: Moments, scale: float) -> Posterior:
        """Return what is known of means and variances, from the kernel's own estimates."""
        room = _new_room(held.n.shape)
        floor = kernel.read_estimates(held, self._options, scale, room)
        n, location = held.n[1:] / scale, room.base + room.shift
        data = n, held.mean[1:], held.m2[1:] / scale, location
        if not self._options.is_bayes:
            speaks = (held.n[:1] > 0.0) & ((room.shape > 0.0) | (floor > 0.0))
            return Posterior(*data, room.spread + floor, np.full(n.shape, np.inf), n, speaks)
        kappa = self._options.prior.kappa + n
        variance = room.spread * kappa / (kappa + 1.0)
        return Posterior(*data, variance, room.shape, kappa, room.shape > 0.0)


def _grids(prior: NumberPrior, n_fields: int, n_classes: int, *, is_open: bool) -> Prior:
    """Return a prior's numbers by class and field; nothing where there is none."""
    if not isinstance(prior, NormalInverseGamma):
        return Prior(*(np.empty((n_classes, 0)) for _ in Prior._fields))
    grids = []
    for name in Prior._fields:
        grid = prior.grid(name, None if is_open else n_fields, n_classes)
        grids.append(np.array(np.broadcast_to(grid, (n_fields, n_classes)).T, order="C"))
    return Prior(*grids)


class _ThreadEstimates(threading.local):
    """Room that a thread uses again and again: making it would cost as much as the kernel."""

    shape: tuple[int, ...] = ()
    room: Estimates


_kept = _ThreadEstimates()


def _room(shape: tuple[int, ...]) -> Estimates:
    if _kept.shape != shape:
        _kept.room = _new_room(shape)
        _kept.shape = shape
    return _kept.room


def _new_room(shape: tuple[int, ...]) -> Estimates:
    n_rows, n_fields = shape
    return Estimates(*np.empty((len(Estimates._fields), n_rows - 1, n_fields)))


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Likelihood of numbers.

    Parameters
    ----------
    prior : VarianceFloor or NormalInverseGamma
        Maximum likelihood with a floor under the variances, or a prior whose predictive is
        Student's t.
    variance : {"own", "shared"}
        Whether each class has its own variance of a field, or all have one: that makes the
        log-odds linear in the numbers (not under `NormalInverseGamma`).

    Examples
    --------
    >>> Gaussian(variance="shared").is_shared
    True
    """

    name: ClassVar[str] = "gaussian"
    kind: ClassVar[Kind] = NUMBERS
    prior: NumberPrior = field(default_factory=VarianceFloor)
    variance: Literal["own", "shared"] = "own"

    def __post_init__(self) -> None:
        if not isinstance(self.prior, VarianceFloor | NormalInverseGamma):
            raise InputError(
                "Gaussian.prior must be a VarianceFloor or a NormalInverseGamma."
                f" Got {self.prior!r} instead."
            )
        check_choice("Gaussian.variance", self.variance, "own", "shared")
        if self.is_shared and isinstance(self.prior, NormalInverseGamma):
            for name in ("alpha", "beta"):
                grid = np.array(getattr(self.prior, name), dtype=np.float64, ndmin=1)
                if grid.ndim == 2 and np.ptp(grid, axis=1).any():
                    raise InputError(
                        f"NormalInverseGamma.{name} differs by class, and with variance='shared'"
                        " there is one variance for all. Give one number a field."
                    )

    @property
    def is_shared(self) -> bool:
        """Whether all classes have one variance a field."""
        return self.variance == "shared"

    @property
    def is_bayes(self) -> bool:
        """Whether there is a prior on mean and variance."""
        return isinstance(self.prior, NormalInverseGamma)

    def estimator(self, n_fields: int, n_classes: int, *, is_open: bool) -> GaussianEstimator:
        """Return a new estimator.

        Raises
        ------
        InputError
            Where the prior's numbers do not fit the fields or classes there are.
        """
        return GaussianEstimator(self, n_fields, n_classes, is_open=is_open)

    def to_dict(self) -> dict[str, Any]:
        """Return the family for the model's header."""
        return {"name": self.name, "prior": self.prior.to_dict(), "variance": self.variance}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the family that `to_dict` described."""
        return cls(number_prior_from_dict(values["prior"]), values["variance"])
