"""Sampling from the generative model: a class, then each group's fields given the class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError, check_whole
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import GroupView
from streamnb.inspection.views import views_of
from streamnb.labels import Label
from streamnb.predict import check_has_classes, log_class_priors
from streamnb.state import ModelState

Seed = int | np.random.Generator | None


def sample_many(state: ModelState, n: int, seed: Seed) -> tuple[dict[str, list[Any]], list[Label]]:
    """Draw `n` examples: a class from π, then each group's fields.

    Raises
    ------
    InputError
        If the model generates nothing: it says why.
    """
    rng = to_rng(seed)
    indices = draw_classes(state.classes, log_class_priors(state), n, rng)
    columns = draw_fields(views_of(state), indices, rng)
    return columns, [state.classes[c] for c in indices.tolist()]


def to_rng(seed: Any) -> np.random.Generator:
    """Return a generator of random numbers for a seed.

    Raises
    ------
    InputError
    """
    if isinstance(seed, np.random.Generator):
        return seed
    is_whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0
    if seed is not None and not is_whole:
        raise InputError(
            "seed must be a whole number of at least 0, a numpy Generator, or None. Got"
            f" {seed!r} instead."
        )
    return np.random.default_rng(seed)


def draw_classes(
    classes: Sequence[Label], log_priors: Floats, n: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """Draw the indices of `n` classes from the class prior, ndarray of shape (n,), int32.

    Raises
    ------
    InputError
        If the model has no class, or `n` is not a whole number.
    """
    check_whole("n", n, 0)
    check_has_classes(classes)
    ends = np.cumsum(np.exp(log_priors))
    drawn = np.searchsorted(ends, rng.random(n) * ends[-1], side="right")
    places: NDArray[np.int32] = drawn.astype(np.int32)
    return places


def draw_fields(
    views: Mapping[str, GroupView], places: NDArray[np.int32], rng: np.random.Generator
) -> dict[str, list[Any]]:
    """Draw each group's fields, one example for each class that was drawn.

    Raises
    ------
    InputError
        If two groups read one field: drawn independently, they would not agree on its value.
    """
    columns: dict[str, list[Any]] = {}
    for name, view in views.items():
        drawn = view.sample(places, rng)
        twice = sorted(columns.keys() & drawn.keys())
        if twice:
            raise InputError(
                f"field {twice[0]!r} is read by group {name!r} and another one: each would draw its"
                " own value. Sample a model whose groups read different fields."
            )
        columns |= drawn
    return columns
