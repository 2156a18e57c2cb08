"""The families of `StreamNBClassifier`: what each takes of X, and the group of features it means.

Three shapes of X: counts (a sparse matrix over a declared dictionary, one word a column), numbers,
and a table whose columns may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from streamnb.categories.spec import Categories
from streamnb.errors import InputError
from streamnb.groups import Group
from streamnb.likelihoods import Bernoulli, Complement, Multinomial
from streamnb.likelihoods.categorical import Categorical
from streamnb.likelihoods.gaussian import Gaussian
from streamnb.likelihoods.gaussian_priors import VarianceFloor
from streamnb.numbers.spec import Numbers
from streamnb.priors import Beta, Dirichlet
from streamnb.words.bag import Bag

COUNTS = "counts"  # the one field of a group that reads a sparse matrix


@dataclass(frozen=True, slots=True)
class Intake:
    """What an estimator takes for X.

    Attributes
    ----------
    is_counted : bool
        X becomes a sparse matrix of counts, and one may be given. Otherwise it is a table.
    positive_only, allow_nan, categorical : bool
        Of scikit-learn's tags.
    dtype : type or None
        What X is converted to; None leaves it as it is, and text may come.
    """

    is_counted: bool = False
    positive_only: bool = False
    allow_nan: bool = False
    categorical: bool = False
    dtype: type | None = np.float64


@dataclass(frozen=True, slots=True)
class Family:
    """A family: what it takes, and what it makes of an estimator's parameters.

    Attributes
    ----------
    intake : Intake
    group : callable
        (estimator, names of the columns) → the group that reads them.
    """

    intake: Intake
    group: Callable[[Any, Sequence[str]], Group]


def _gaussian(asked: Any, names: Sequence[str]) -> Group:
    return Numbers(Gaussian(VarianceFloor(asked.var_smoothing), asked.variance), tuple(names))


def _categorical(asked: Any, names: Sequence[str]) -> Group:
    likelihood = Categorical(Dirichlet(asked.alpha))
    if asked.min_categories is None:
        return Categories(likelihood, tuple(names))
    sizes = np.broadcast_to(np.asarray(asked.min_categories, dtype=np.int64), len(names))
    values = {name: range(size) for name, size in zip(names, sizes.tolist(), strict=True)}
    return Categories(likelihood, tuple(names), values)


def _multinomial(asked: Any, names: Sequence[str]) -> Group:
    return Bag(Multinomial(Dirichlet(asked.alpha)), COUNTS, dictionary=tuple(names))


def _complement(asked: Any, names: Sequence[str]) -> Group:
    likelihood = Complement(Dirichlet(asked.alpha), normalise=asked.norm)
    return Bag(likelihood, COUNTS, dictionary=tuple(names))


def _bernoulli(asked: Any, names: Sequence[str]) -> Group:
    likelihood = Bernoulli(Beta(asked.alpha, asked.alpha))
    return Bag(likelihood, COUNTS, dictionary=tuple(names))


_COUNTS = Intake(is_counted=True, positive_only=True)
FAMILIES: Mapping[str, Family] = {
    "gaussian": Family(Intake(allow_nan=True), _gaussian),
    "multinomial": Family(_COUNTS, _multinomial),
    "complement": Family(_COUNTS, _complement),
    "bernoulli": Family(Intake(is_counted=True), _bernoulli),
    "categorical": Family(Intake(allow_nan=True, categorical=True, dtype=None), _categorical),
}


def family_of(name: Any) -> Family:
    """Return a family by its name.

    Raises
    ------
    InputError
        Where there is none of that name.
    """
    if name not in FAMILIES:
        raise InputError(f"family must be one of {', '.join(FAMILIES)}. Got {name!r} instead.")
    return FAMILIES[name]


def as_counts(X: Any, binarize: float | None) -> sparse.csr_array:
    """Return a matrix as sparse counts; above a threshold they are presence.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, n_features)
    binarize : float, optional
        What is above it becomes 1, all else 0. With None values are counts themselves.
    """
    if binarize is None:
        return sparse.csr_array(X)
    if sparse.issparse(X) and binarize >= 0:
        return sparse.csr_array(X > binarize, dtype=np.float64)  # noqa: SIM300 -- X has this operator
    dense = X.toarray() if sparse.issparse(X) else X
    return sparse.csr_array((dense > binarize).astype(np.float64))


def intake_of(family: Any, features: Mapping[str, Group] | None) -> Intake:
    """Return what an estimator takes: what its family does, or its groups of features."""
    if features is None:
        return family_of(family).intake
    counts_alone = all(isinstance(group, Bag) for group in features.values())
    return Intake(positive_only=counts_alone, allow_nan=True, dtype=None)
