"""The credible interval of an example's posterior.

It stands apart from `intervals`, whose moments and draws the views are made of, and asks the views.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamnb.errors import InputError, check_whole
from streamnb.inspection.intervals import (
    check_level,
    delta_interval,
    prior_draws,
    prior_moments,
    sampled_interval,
)
from streamnb.inspection.sampling import Seed, to_rng
from streamnb.inspection.views import views_of
from streamnb.labels import Label
from streamnb.predict import check_has_classes, log_class_priors, read, to_columns
from streamnb.state import ModelState


def credible_interval_one(
    state: ModelState, x: Mapping[str, Any], level: float, method: str, n: int, seed: Seed
) -> dict[Label, tuple[float, float]]:
    """Return an interval for each p(c | x); see `ModelReader.credible_interval_one`."""
    level = check_level(level)
    if method not in ("sampled", "delta"):
        raise InputError(f"method must be 'sampled' or 'delta'. Got {method!r} instead.")
    check_has_classes(state.classes)
    fields, _ = read(state, to_columns(state, x))
    views = views_of(state)
    shapes = state.class_counts / state.clock.scale + state.pseudo_counts
    if method == "delta":
        prior = prior_moments(shapes)
        if state.is_prior_fixed:
            prior = log_class_priors(state), np.zeros(len(state.classes))
        moments = [view.moments(fields[name], 0) for name, view in views.items()]
        ends = delta_interval(prior, moments, level)
    else:
        rng = to_rng(seed)
        check_whole("n", n, 1)
        if state.is_prior_fixed:
            draws = np.tile(log_class_priors(state), (n, 1))
        else:
            draws = prior_draws(shapes, n, rng)
        drawn = [view.draws(fields[name], 0, n, rng) for name, view in views.items()]
        ends = sampled_interval(sum(drawn, draws), draws, level)
    return dict(zip(state.classes, map(tuple, ends.T.tolist()), strict=True))
