"""Taking an example back: the inverse of learning it.

Everything is read and checked first; only then is anything taken away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamnb.errors import InputError
from streamnb.kernels.posterior import DUST
from streamnb.labels import Label, RowUpdates, check_label
from streamnb.learn import Learning
from streamnb.priors import check


class Unlearning(Learning):
    """The forgetting side of a model, where somebody says what is to be forgotten."""

    def unlearn_one(
        self,
        x: Mapping[str, Any],
        y: Label,
        *,
        weight: float = 1.0,
        time_s: float | None = None,
        part: str | None = None,
    ) -> None:
        """Take one example back: the exact inverse of `learn_one` with the same arguments.

        Whole-number weights bring back every count, V and all answers bit for bit; means and
        variances come back to rounding. A word at zero leaves, and so does the newest class, where
        it was not declared. A word that had left a full vocabulary before is skipped, and counted
        in `n_skipped`.

        Parameters
        ----------
        x, y, weight, time_s, part
            As they were learned.

        Raises
        ------
        InputError
            Where more would be taken back than was learned, or a value cannot be used; the model is
            unchanged.
        """
        check_label("y", 0, y)
        weight = check("weight", weight)
        if not weight:  # it taught nothing, so that not even its class or part need be known
            return
        if y not in self._places:
            raise InputError(f"class {y!r} was never learned: there is nothing to take back.")
        target = self._known_target(part)
        place = self._places[y]
        fields, _ = self._read(self._as_columns(x))
        amount = weight * self._clock.weight_at(time_s)
        if not amount:  # so long ago that nothing of it was learned, or is left
            return
        held = float((self._class_counts if target is None else target.class_counts)[place])
        if held < amount * (1.0 - DUST):
            raise InputError(
                f"an example of weight {amount:g} cannot be unlearned: class {y!r} holds {held:g}."
                " Unlearn what was learned, once."
            )
        labels = np.full(1, place, dtype=np.int32)
        batches: dict[str, Any] = {}
        n_skipped = {}
        for name, group in self._groups.items():
            batch = group.encode_to_unlearn(fields[name], labels)
            part_group = None if target is None else target.groups[name]
            batches[name], n_skipped[name] = group.to_unlearn(batch, place, amount, part_group)
        updates = RowUpdates(labels, np.array([-amount]), np.array([self._clock.scale]))
        self._teach(batches, updates, target)
        for name, group in self._groups.items():
            group.n_skipped += n_skipped[name]
        self._learned(self._clock, -1)
        self._compact()
        self._drop_empty_class()
