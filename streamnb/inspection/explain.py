"""Why a model answers as it does: what the class prior and each feature add to the log-odds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamnb import predict
from streamnb.errors import InputError
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import Effect
from streamnb.inspection.linear import difference
from streamnb.inspection.rank import against_others
from streamnb.inspection.views import views_of
from streamnb.labels import Label
from streamnb.state import ModelState

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
        How often a word was learned in each class, decayed up to now; None for other features.
    likelihoods : dict of class to float, or None
        θ_jc, the probability of what was seen; None for numbers, which have a density.
    """

    group: str | None
    feature: str
    weight: float
    by_class: dict[Label, float]
    value: str
    counts: dict[Label, float] | None = None
    likelihoods: dict[Label, float] | None = None

    def against_others(self, label: Label) -> float:
        """Return the log-likelihood in a class, less the log of the mean likelihood in the others.

        In nats: above 0 the feature speaks for the class. 0 if it makes all classes impossible.
        """
        own = self.by_class[label]
        if own == max(self.by_class.values()) == -np.inf:
            return 0.0
        c = list(self.by_class).index(label)
        return float(against_others(np.array([[*self.by_class.values()]]), c)[0])


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
            for weight, each in zip(weights, self.contributions, strict=True)
        ]
        return "\n".join(lines)


def explain_one(state: ModelState, x: Mapping[str, Any]) -> Explanation:
    """Return what the class prior and each feature add to the log-odds of the likeliest class.

    Raises
    ------
    InputError
        For a value that cannot be used, or fewer than two classes: there is nothing to tell apart.
    """
    columns = predict.to_columns(state, x)
    log_posteriors, answered_by_prior = predict.judge(state, columns)
    fields, _ = predict.read(state, columns)
    log_priors, by_prior = predict.log_class_priors(state), bool(answered_by_prior[0])
    effects = [
        (name, effect)
        for name, view in views_of(state).items()
        for effect in view.contributions(fields[name], 0)
    ]
    classes = state.classes
    if len(classes) < 2:
        raise InputError(
            f"explaining needs two classes to tell apart, and the model has {len(classes)}."
        )
    best, second = np.argsort(-log_posteriors[0], kind="stable")[:2].tolist()

    def named(values: Floats | None) -> dict[Label, float] | None:
        return None if values is None else dict(zip(classes, values.tolist(), strict=True))

    prior = Effect(CLASS_PRIOR, log_priors, CLASS_PRIOR)
    rows: list[tuple[str | None, Effect]] = [(None, prior), *effects]
    contributions = [
        Contribution(
            group,
            effect.feature,
            float(difference(effect.by_class[best], effect.by_class[second])),
            dict(zip(classes, effect.by_class.tolist(), strict=True)),
            effect.value,
            named(effect.counts),
            named(effect.likelihoods),
        )
        for group, effect in rows
    ]
    contributions.sort(key=lambda each: (-abs(each.weight), each.group or "", each.feature))
    total = log_priors
    if not by_prior:
        total = sum((effect.by_class for _, effect in effects), log_priors)
    log_odds = float(difference(total[best], total[second]))
    return Explanation(classes[best], classes[second], log_odds, by_prior, tuple(contributions))
