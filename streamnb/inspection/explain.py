"""Which features speak for which class: in one example, and in the whole model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb import predict
from streamnb.errors import InputError, check_whole
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import (
    Effect,
    FeatureKind,
    FeatureLogs,
    GroupView,
    candidates,
    views_of,
)
from streamnb.inspection.parameters import difference
from streamnb.kernels.hybrid import OTHER_START, SAID_MAX
from streamnb.labels import Label
from streamnb.likelihoods.base import of_others
from streamnb.likelihoods.multinomial import mean_weights
from streamnb.state import ModelState, Weighing

CLASS_PRIOR = "class prior"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one feature adds.

    Attributes
    ----------
    group : str or None
        None for the class prior.
    feature : str
        Such as ``word 'good' ×2``, ``income=high`` or ``age``.
    weight : float
        What it adds to the log-odds of the likeliest class against the runner-up, in nats: above 0
        it speaks for the likeliest. Never `nan`: 0 if it makes both impossible.
    by_class : dict of class to float
        What it adds to log p(x, c), in nats.
    value : str
        The feature with its value, without a phrase: ``good``, ``income=high`` or ``age=31``.
    counts : dict of class to float, or None
        How often each class learned it, decayed up to now: the word, the value of a category or
        flag, or any value of a number. None for the class prior and for words that are missing.
    likelihoods : dict of class to float, or None
        θ_jc, the probability of what was seen; None for numbers, which have a density.
    kind : str or None
        ``word``, ``absent_words`` (those that are missing, together), ``category``, ``flag`` or
        ``number``; None for the class prior.
    means, deviations : dict of class to float, or None
        Mean and standard deviation √(M2/n) of a number, of the classes that have learned any.
    unseen : bool
        Whether no class has learned it. What it adds is then the prior's alone: with smoothing it
        follows from how much each class has learned, and says nothing of the feature itself.
    """

    group: str | None
    feature: str
    weight: float
    by_class: dict[Label, float]
    value: str
    counts: dict[Label, float] | None = None
    likelihoods: dict[Label, float] | None = None
    kind: FeatureKind | None = None
    means: dict[Label, float] | None = None
    deviations: dict[Label, float] | None = None
    unseen: bool = False

    def against_others(self, label: Label) -> float:
        """Return the log-likelihood in a class, less the log of the mean likelihood in the others.

        In nats: above 0 the feature speaks for the class. 0 if it makes all classes impossible.
        """
        own = self.by_class[label]
        if own == max(self.by_class.values()) == -np.inf:
            return 0.0
        c = list(self.by_class).index(label)
        return float(against_others(np.array([*self.by_class.values()])[:, None])[c, 0])


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a model answers as it does for one example.

    Attributes
    ----------
    label : str, int or bool
        The most probable class.
    runner_up : str, int or bool
        The second most probable one.
    log_odds : float
        log p(label | x) − log p(runner_up | x), in nats: the sum of the contributions' weights.
    by_prior : bool
        Whether every class was impossible, so that the class prior alone answered; the log-odds are
        the prior's then.
    contributions : tuple of Contribution
        The weightiest first, whichever way they speak.

    Examples
    --------
    >>> from streamnb import Multinomial, NaiveBayes, Words
    >>> model = NaiveBayes(["ham", "spam"], features={"text": Words(Multinomial())})
    >>> model.learn_many({"text": ["lunch today", "a prize"]}, ["ham", "spam"])
    >>> print(model.explain_one({"text": "the prize"}))
    spam rather than ham: log-odds +0.6931
      +0.6931  text  word 'prize'
      +0.0000        class prior
    """

    label: Label
    runner_up: Label
    log_odds: float
    by_prior: bool
    contributions: tuple[Contribution, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values; infinities stay floats."""
        return {
            "label": self.label,
            "runner_up": self.runner_up,
            "log_odds": self.log_odds,
            "by_prior": self.by_prior,
            "contributions": [
                {
                    "group": each.group,
                    "feature": each.feature,
                    "weight": each.weight,
                    "by_class": dict(each.by_class),
                    "unseen": each.unseen,
                }
                for each in self.contributions
            ],
        }

    def __str__(self) -> str:
        why = ", by the class prior alone: every class is impossible" if self.by_prior else ""
        lines = [f"{self.label} rather than {self.runner_up}: log-odds {self.log_odds:+.4f}{why}"]
        weights = [f"{each.weight:+.4f}" for each in self.contributions]
        width = max(map(len, weights))
        group_width = max(len(each.group or "") for each in self.contributions)
        lines += [
            f"  {weight:>{width}}  {each.group or '':<{group_width}}  {each.feature}"
            f"{' (unseen)' if each.unseen else ''}"
            for weight, each in zip(weights, self.contributions, strict=True)
        ]
        return "\n".join(lines)


def explain_one(state: ModelState, x: Mapping[str, Any]) -> Explanation:
    """Return what the class prior and each feature add; see `ModelReader.explain_one`."""
    classes = state.classes
    if len(classes) < 2:
        raise InputError(
            f"explaining needs two classes to tell apart, and the model has {len(classes)}."
        )
    columns = predict.to_columns(state, x)
    log_posteriors, answered_by_prior = predict.judge(state, columns)
    fields, _ = predict.read(state, columns)
    log_priors, by_prior = predict.log_class_priors(state), bool(answered_by_prior[0])
    effects = [
        (name, effect)
        for name, view in views_of(state).items()
        for effect in view.contributions(fields[name], 0)
    ]
    if state.weighing is not None:
        effects = _weighted(state, state.weighing, effects)
    best, second = np.argsort(-log_posteriors[0], kind="stable")[:2].tolist()

    def named(values: Floats | None) -> dict[Label, float] | None:
        if values is None:
            return None
        pairs = predict.by_class(state, values).items()
        return {label: value for label, value in pairs if not math.isnan(value)}

    prior = Effect(CLASS_PRIOR, log_priors, CLASS_PRIOR)
    rows: list[tuple[str | None, Effect]] = [(None, prior), *effects]
    contributions = [
        Contribution(
            group,
            effect.feature,
            float(difference(effect.by_class[best], effect.by_class[second])),
            predict.by_class(state, effect.by_class),
            effect.value,
            named(effect.counts),
            named(effect.likelihoods),
            effect.kind,
            named(effect.means),
            named(effect.deviations),
            effect.unseen,
        )
        for group, effect in rows
    ]
    contributions.sort(key=lambda each: (-abs(each.weight), each.group or "", each.feature))
    total = log_priors
    if not by_prior:
        total = sum((effect.by_class for _, effect in effects), log_priors)
    log_odds = float(difference(total[best], total[second]))
    return Explanation(classes[best], classes[second], log_odds, by_prior, tuple(contributions))


def _weighted(
    state: ModelState, weighing: Weighing, effects: list[tuple[str, Effect]]
) -> list[tuple[str, Effect]]:
    """Return effects with those of each group that a hybrid weights times what they count."""
    said = np.zeros((len(weighing.others), len(state.classes)))
    for name, effect in effects:
        if name in weighing.others:
            said[weighing.others.index(name)] += effect.by_class
    weights = mean_weights(state.groups[weighing.host].weights.others, OTHER_START)
    own = dict(zip(weighing.others, zip(weights, said, strict=True), strict=True))
    return [
        (name, effect._replace(by_class=_times(*own[name], effect.by_class)))
        if name in own
        else (name, effect)
        for name, effect in effects
    ]


def _times(weight: float, said: Floats, by_class: Floats) -> Floats:
    """Return a feature's log-likelihoods times what its group counts, of which it is a part.

    Where the group puts a class further than `SAID_MAX` from its best, they are those beside the
    best class's, and that class's are as much less. What is impossible stays so.
    """
    best, is_possible = int(said.argmax()), by_class > -np.inf
    apart = (
        said[best] - np.where(said > -np.inf, said, said[best]) if said[best] > -np.inf else said
    )
    factors: Floats = np.full(len(said), weight)
    if apart.max() > SAID_MAX:
        by_class = by_class - by_class[best]
        factors *= np.minimum(1.0, SAID_MAX / np.maximum(apart, SAID_MAX))
    return np.where(is_possible, factors * np.where(is_possible, by_class, 0.0), -np.inf)


# ---- the ranking of all features ----------------------------------------------------------------

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
    """Return the `n` most distinctive features by class; see `ModelReader.most_informative`."""
    check_whole("n", n, 0)
    views = views_of(state)
    named: Any = group  # whatever a caller gives
    if named is not None and not (isinstance(named, str) and named in views):
        raise InputError(f"group must be one of {', '.join(views)}. Got {group!r} instead.")
    chosen = views if group is None else {group: views[group]}
    return rank(chosen, state.classes, n, "log_odds")


def rank(
    views: Mapping[str, GroupView], classes: Sequence[Label], n: int, score: Score
) -> dict[Label, list[RankedFeature]]:
    """Return the `n` features with the highest scores of each class, the highest first.

    Ties are broken by the log-likelihood in the class, then by the names of group and feature.

    "log_odds" is log θ_jc − log mean_o θ_jo over the other classes o; "contribution" is that times
    θ_jc, which the feature adds on average to the log-odds of an example of the class. For numbers
    both are the mean log-likelihood ratio over the class's own examples.
    """
    ranked: dict[Label, list[RankedFeature]] = {label: [] for label in classes}
    for group, view in views.items():
        logs = view.log_odds() if score == "log_odds" else view.log_odds_of_values()
        for label, features in zip(classes, _best(group, logs, n, score), strict=True):
            ranked[label] += features
    return {label: sorted(features, key=_order)[:n] for label, features in ranked.items()}


def against_others(log_likelihoods: Floats) -> Floats:
    """Return log θ_jc − log mean_o θ_jo over the other classes, (n_classes, n); -inf if θ_jc is 0.

    `log_likelihoods` has a row for each class.
    """
    if len(log_likelihoods) == 1:
        return np.zeros_like(log_likelihoods)
    rest = of_others(log_likelihoods, np.logaddexp) - np.log(len(log_likelihoods) - 1)
    with np.errstate(invalid="ignore"):
        return np.where(log_likelihoods == -np.inf, -np.inf, log_likelihoods - rest)


def mean_contributions(log_likelihoods: Floats) -> Floats:
    """Return θ_jc·log(θ_jc / mean_o θ_jo) over the other classes, (n_classes, n); 0 if θ_jc is 0.

    `log_likelihoods` has a row for each class.
    """
    if len(log_likelihoods) == 1:
        return np.zeros_like(log_likelihoods)
    theta = np.exp(log_likelihoods)
    rest = of_others(theta, np.add) / (len(theta) - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(theta > 0, theta * np.log(theta / rest), 0.0)


# How each score is computed, and up to which value it is rounding.
_SCORES: dict[Score, tuple[Callable[[Floats], Floats], float]] = {
    "log_odds": (against_others, 1e-12),
    "contribution": (mean_contributions, 0.0),
}
SLICE_VALUES = 1 << 20  # scored at a time: a matrix of all words and classes takes gigabytes


def _best(group: str, logs: FeatureLogs, n: int, score: Score) -> Iterator[list[RankedFeature]]:
    """Yield the first `n` features of a group for each class, and those that tie with the last."""
    compute, rounding = _SCORES[score]
    n_rows, k = logs.values.shape
    step = max(SLICE_VALUES // max(k, 1), 1)
    found: list[list[tuple[NDArray[np.int64], Floats]]] = [[] for _ in range(k)]
    for start in range(0, max(n_rows, 1), step):
        part = np.ascontiguousarray(logs.values[start : start + step].T)
        for c, scores in enumerate(part if logs.are_ratios else compute(part)):
            rows = np.flatnonzero(scores > rounding)
            rows = rows[candidates(scores[rows], n)]
            found[c].append((rows + start, scores[rows]))
    for c, parts in enumerate(found):
        rows, scores = map(np.concatenate, zip(*parts, strict=True))
        first = candidates(scores, n)
        rows, scores = rows[first], scores[first]
        values = logs.values[rows, c].tolist()
        yield [
            RankedFeature(group, *each)
            for each in zip(logs.names(rows), scores.tolist(), values, strict=True)
        ]


def _order(each: RankedFeature) -> tuple[float, float, str, str]:
    return -each.score, -each.log_likelihood, each.group, each.feature
