"""Taking an example back: the inverse of learning it.

Everything is read and checked first; only then is anything taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamnb.errors import InputError
from streamnb.kernels.layout import RowUpdates
from streamnb.kernels.posterior import DUST
from streamnb.labels import Label, check_label
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
    check_label("y", 0, y)
    weight = check("weight", weight)
    if not weight:  # it taught nothing, so that not even its class or part need be known
        return
    if y not in state.class_index:
        raise InputError(f"class {y!r} was never learned: there is nothing to take back.")
    target = known_part(state, part)
    label = state.class_index[y]
    fields, _ = read(state, to_columns(state, x))
    amount = weight * state.clock.weight_at(time_s)
    if not amount:  # so long ago that nothing of it was learned, or is left
        return
    held = float((state.class_counts if target is None else target.class_counts)[label])
    if held < amount * (1.0 - DUST):
        raise InputError(
            f"an example of weight {amount:g} cannot be unlearned: class {y!r} holds {held:g}."
            " Unlearn what was learned, once."
        )
    labels = np.full(1, label, dtype=np.int32)
    batches, n_skipped = [], []
    for name, group in state.groups.items():
        batch = group.encode_to_unlearn(fields[name], labels)
        own_part = None if target is None else target.groups[name]
        taken, skipped = group.to_unlearn(batch, label, amount, own_part)
        batches.append(taken)
        n_skipped.append(skipped)
    updates = RowUpdates(labels, np.array([-amount]), np.array([state.clock.scale]))
    learn_batches(state, batches, updates, target)
    for group, skipped in zip(state.groups.values(), n_skipped, strict=True):
        group.n_skipped += skipped
    state.n_examples -= 1
    state.sum_parts()
    state.compact()
    state.drop_empty_classes()
