"""Which features distinguish a class from the others: one ranking, with two scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_whole
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import FeatureLogs, GroupView
from streamnb.inspection.views import views_of
from streamnb.labels import Label
from streamnb.state import ModelState

Score = Literal["log_odds", "contribution"]


class RankedFeature(NamedTuple):
    """A feature that speaks for a class.

    Attributes
    ----------
    group : str
    feature : str
    score : float
        In nats; by default the log-odds for the class against the mean of the others, inf if no
        other class gives the feature any probability.
    log_likelihood : float
        Its log-likelihood in the class itself, in nats.
    """

    group: str
    feature: str
    score: float
    log_likelihood: float


def most_informative(
    state: ModelState, n: int, group: str | None
) -> dict[Label, list[RankedFeature]]:
    """Return the `n` features of each class that distinguish it best from the others.

    Raises
    ------
    InputError
        If there is no such group, or `n` is below 0.
    """
    check_whole("n", n, 0)
    views = views_of(state)
    if group is not None and group not in list(views):
        raise InputError(f"group must be one of {', '.join(views)}. Got {group!r} instead.")
    chosen = views if group is None else {group: views[group]}
    return rank(chosen, state.classes, n, "log_odds")


def rank(
    views: Mapping[str, GroupView], classes: Sequence[Label], n: int, score: Score
) -> dict[Label, list[RankedFeature]]:
    """Return the `n` features with the highest scores of each class, the highest first.

    Ties are broken by the log-likelihood in the class, then by the names of group and feature.

    Parameters
    ----------
    views : mapping of str to GroupView
        The groups to rank.
    classes : sequence of str, int or bool
    n : int
    score : {"log_odds", "contribution"}
        log θ_jc − log mean_o θ_jo over the other classes o; or that times θ_jc, which is what the
        feature adds on average to the log-odds of an example of the class. For numbers both are
        the mean log-likelihood ratio over the class's own examples.
    """
    ranked: dict[Label, list[RankedFeature]] = {label: [] for label in classes}
    for group, view in views.items():
        logs = view.log_odds() if score == "log_odds" else view.log_odds_of_values()
        for c, label in enumerate(classes):
            ranked[label] += _best(group, logs, c, n, score)
    return {label: sorted(features, key=_order)[:n] for label, features in ranked.items()}


def against_others(log_likelihoods: Floats, c: int) -> Floats:
    """Return log θ_jc − log mean_o θ_jo over the other classes; -inf if θ_jc is zero.

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


def mean_contributions(log_likelihoods: Floats, c: int) -> Floats:
    """Return θ_jc·log(θ_jc / mean_o θ_jo) over the other classes; 0 if θ_jc is zero.

    Parameters
    ----------
    log_likelihoods : ndarray of shape (n, n_classes), in nats
    c : int
    """
    theta = np.exp(log_likelihoods)
    own, others = theta[:, c], np.delete(theta, c, axis=1)
    rest = others.mean(axis=1) if others.shape[1] else own
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(own > 0, own * np.log(own / rest), 0.0)


# How each score is computed, and up to which value it is rounding.
_SCORES: dict[Score, tuple[Callable[[Floats, int], Floats], float]] = {
    "log_odds": (against_others, 1e-12),
    "contribution": (mean_contributions, 0.0),
}


def _best(group: str, logs: FeatureLogs, c: int, n: int, score: Score) -> list[RankedFeature]:
    """Return the first `n` features of a group for a class, and those that tie with the last."""
    compute, rounding = _SCORES[score]
    scores = logs.values[:, c] if logs.are_ratios else compute(logs.values, c)
    rows = np.flatnonzero(scores > rounding)
    rows = rows[candidates(scores[rows], n)]
    values = logs.values[rows, c].tolist()
    return [
        RankedFeature(group, *each)
        for each in zip(logs.names(rows), scores[rows].tolist(), values, strict=True)
    ]


def candidates(values: Floats, n: int) -> NDArray[np.int64]:
    """Return the places of the `n` largest values, and of those that tie with the last of them.

    The names that break the ties are then looked up for these alone.
    """
    if len(values) <= n:
        return np.arange(len(values))
    return np.flatnonzero(values >= -np.partition(-values, n - 1)[n - 1]) if n else np.arange(0)


def _order(each: RankedFeature) -> tuple[float, float, str, str]:
    return -each.score, -each.log_likelihood, each.group, each.feature
