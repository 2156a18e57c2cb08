"""Why the model says what it says of one example, in the form of the API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from consumers.web.judging import by_class
from consumers.web.wire import Explanation, Feature, Interval
from streamnb import Snapshot
from streamnb.errors import InputError
from streamnb.overview import pushes

FEATURES_MAX = 200  # of a page of text the weightiest; the others hardly push


def explained(snapshot: Snapshot, example: Mapping[str, Any]) -> Explanation:
    """Return why a snapshot judges an example as it does.

    Raises
    ------
    InputError
        With fewer than two classes.
    """
    whole = snapshot.explain_one(example)
    classes = snapshot.classes
    prior = next(each for each in whole.contributions if each.group is None)
    return Explanation(
        str(whole.label),
        str(whole.runner_up),
        prior.weight,
        [
            Feature(
                push.group,
                push.feature,
                push.score,
                {} if push.counts is None else by_class(classes, push.counts),
                {} if push.likelihoods is None else by_class(classes, push.likelihoods),
            )
            for push in pushes(snapshot, example, whole.label, whole.runner_up)[:FEATURES_MAX]
        ],
    )


def interval(snapshot: Snapshot, example: Mapping[str, Any], level: float) -> Interval:
    """Return the credible interval of an example's most probable class.

    By the delta method where it is known, which draws nothing; else by draws that are always the
    same.

    Raises
    ------
    InputError
        Where the model's parameters have no posterior.
    """
    label = snapshot.classes[int(np.argmax(list(snapshot.predict_proba_one(example).values())))]
    try:
        found = snapshot.credible_interval_one(example, level, "delta")
    except InputError:
        found = snapshot.credible_interval_one(example, level, seed=0)
    low, high = found[label]
    return Interval(level, low, high)
