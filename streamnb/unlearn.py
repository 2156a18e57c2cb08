"""Taking examples back: the inverse of learning them.

Everything is read and checked first, as if one example after the other were taken back; only then
is anything taken away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamnb.decay import read_times, read_weights
from streamnb.errors import InputError
from streamnb.features.protocol import Floats, check_examples
from streamnb.kernels.layout import RowUpdates
from streamnb.labels import (
    UNLABELLED,
    Codes,
    Label,
    check_label,
    new_labels,
    read_labels,
    to_indices,
)
from streamnb.learn import known_part, learn_batches
from streamnb.predict import read, to_columns
from streamnb.priors import check
from streamnb.state import ModelState


def unlearn_one(
    state: ModelState,
    x: Mapping[str, Any],
    y: Label,
    *,
    weight: float = 1.0,
    time_s: float | None = None,
    part: str | None = None,
) -> None:
    """Take one example back; see `NaiveBayes.unlearn_one`."""
    label = check_label("y", 0, y)
    weight = check("weight", weight)
    if weight:  # else it taught nothing, so that not even its class or part need be known
        times_s = None if time_s is None else [time_s]
        unlearn(state, to_columns(state, x), [label], weights=[weight], times_s=times_s, part=part)


def unlearn(
    state: ModelState,
    columns: Any,
    labels: Sequence[Label] | Codes,
    *,
    weights: Sequence[float] | Floats | None = None,
    times_s: Sequence[float] | Floats | None = None,
    part: str | None = None,
) -> None:
    """Take examples back, one after the other; see `NaiveBayes.unlearn_many`."""
    fields, n = read(state, columns)
    codes = read_labels(labels, n)
    given, times = read_weights(weights, n), read_times(times_s, n)
    if not n or (given is not None and not given.any()):
        return
    for _, label in new_labels(codes, state.class_index, None if given is None else given > 0):
        raise InputError(f"class {label!r} was never learned: there is nothing to take back.")
    target = known_part(state, part)
    amounts = state.clock.weights_at(times, n)
    if given is not None:
        amounts = given * amounts
    # So long ago that nothing of it was learned, or is left.
    indices = np.where(amounts > 0.0, to_indices(codes, state.classes), np.int32(UNLABELLED))
    held = state.class_counts if target is None else target.class_counts
    check_examples("the class prior", indices, amounts, held)
    batches, n_skipped = [], []
    for name, group in state.groups.items():
        batch = group.encode_to_unlearn(fields[name], indices)
        own_part = None if target is None else target.groups[name]
        taken, skipped = group.to_unlearn(batch, indices, amounts, own_part)
        batches.append(taken)
        n_skipped.append(skipped)
    updates = RowUpdates(indices, -amounts, np.full(n, state.clock.scale))
    learn_batches(state, batches, updates, target)
    for group, skipped in zip(state.groups.values(), n_skipped, strict=True):
        group.n_skipped += skipped
    state.n_examples -= int((indices >= 0).sum())
    state.sum_parts()
    state.compact()
    state.drop_empty_classes()
