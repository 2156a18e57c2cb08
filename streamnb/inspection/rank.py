"""Which features tell a class from the others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streamnb.features.numeric import NumbersState
from streamnb.features.protocol import Floats
from streamnb.inspection.views import View
from streamnb.labels import Label

_NOTHING = 1e-12  # so little is rounding


class TellingFeature(NamedTuple):
    """A feature that tells a class.

    Attributes
    ----------
    group : str
    feature : str
    score : float
        Its log-odds for the class against the mean of the others, in nats; inf where no other class
        gives it any probability.
    log_likelihood : float
        Its log-likelihood in the class itself, in nats.
    """

    group: str
    feature: str
    score: float
    log_likelihood: float


def against_others(log_likelihoods: Floats, c: int) -> Floats:
    """Return log θ_jc − log mean_o θ_jo over the other classes; -inf where θ_jc is zero.

    Parameters
    ----------
    log_likelihoods : ndarray of shape (n, n_classes), in nats
    c : int
    """
    own = log_likelihoods[:, c]
    others = np.delete(log_likelihoods, c, axis=1)
    if not others.shape[1]:
        return np.zeros(len(own))
    rest = np.logaddexp.reduce(others, axis=1) - np.log(others.shape[1])
    with np.errstate(invalid="ignore"):
        return np.where(own == -np.inf, -np.inf, own - rest)


def scored(name: str, view: View) -> tuple[str, list[str], Floats, Floats]:
    """Return a group's name and features, with their scores and log-likelihoods by class."""
    features, values = view.log_odds()
    if isinstance(view.state, NumbersState):
        return name, features, values, values  # they are ratios already
    scores = [against_others(values, c) for c in range(values.shape[1])]
    return name, features, np.reshape(scores, values.shape[::-1]).T, values


def most_telling(
    n: int,
    classes: list[Label],
    groups: list[tuple[str, list[str], Floats, Floats]],
) -> dict[Label, list[TellingFeature]]:
    """Return the `n` most telling features of each class.

    Parameters
    ----------
    n : int
    classes : list of str, int or bool
    groups : list of (str, list of str, ndarray, ndarray)
        Name, features, their scores by class, and their log-likelihoods, (n_features, n_classes).
    """
    owners = [name for name, features, _, _ in groups for _ in features]
    features = [feature for _, named, _, _ in groups for feature in named]
    none = np.empty((0, len(classes)))
    scores = np.concatenate([none, *(each for _, _, each, _ in groups)])
    values = np.concatenate([none, *(each for _, _, _, each in groups)])
    told = {}
    for c, label in enumerate(classes):
        candidates = np.flatnonzero(scores[:, c] > _NOTHING)
        if len(candidates) > n > 0:
            # Only those that can be among the first are put in order.
            least = -np.partition(-scores[candidates, c], n - 1)[n - 1]
            candidates = candidates[scores[candidates, c] >= least]
        order = sorted(
            candidates.tolist(),
            key=lambda j: (-scores[j, c], -values[j, c], owners[j], features[j]),
        )
        told[label] = [
            TellingFeature(owners[j], features[j], float(scores[j, c]), float(values[j, c]))
            for j in order[:n]
        ]
    return told
