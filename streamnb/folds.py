"""Exact k-fold cross-validation by subtraction: each fold is a part, the total is their sum.

The model without a fold is the total less that fold's counts, so all k models cost one pass over
the examples. A fold's examples are counted and not predicted: that is left to the model without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamnb import merging
from streamnb.decay import read_weights
from streamnb.errors import InputError, check_kind, check_whole
from streamnb.features.categorical import CategoriesState
from streamnb.features.counted_words import CountedState
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import views_of
from streamnb.kernels.layout import RowUpdates
from streamnb.labels import UNLABELLED, Codes, Label, ones, read_labels, to_indices
from streamnb.learn import classes_to_join
from streamnb.model import NaiveBayes
from streamnb.predict import BATCH_ROWS, encode, read
from streamnb.reader import ModelReader
from streamnb.state import PartState

_FOLDS_MAX = 10_000  # their parts' names have so many digits


class Folds:
    """A model learned in folds: each fold is judged by what the others taught.

    What `without` returns has, bit for bit, the counts and answers of a model that learned the
    other folds alone, one part a fold, and knows the same classes. A model that learned their
    examples whole and in any order has the same, as long as no word has left a fold and all folds
    together hold no more than `max_words` (of categories `max_values`), see `overfull`: each fold
    keeps to that bound by itself and their sum has none, so beyond it a model without a fold holds
    more words than a training. Means and variances of numbers agree to rounding, and so do all
    counts if weights are fractions.

    Each fold holds its counts over the words of all, so memory is about that of `n_folds` + 2
    models.

    Parameters
    ----------
    model : NaiveBayes
        An untrained model, as which all are made; it stays as it is. One with a half-life is
        refused: a fold out of the middle of a stream says nothing of how well it forgets.
    n_folds : int
        How many folds, at least 2.

    Raises
    ------
    InputError
        If the model has learned, is kept in parts, or has a half-life.

    Examples
    --------
    >>> import streamnb as nb
    >>> model = nb.NaiveBayes(features={"text": nb.Words(nb.Multinomial())})
    >>> folds = nb.Folds(model, 2)
    >>> folds.learn_many({"text": ["win a prize", "lunch"]}, ["spam", "ham"], 0)
    >>> folds.learn_many({"text": ["a prize", "lunch at noon"]}, ["spam", "ham"], 1)
    >>> folds.without(0).predict_many({"text": ["win a prize", "lunch"]})
    ['spam', 'ham']
    >>> folds.total().n_examples, folds.without(0).n_examples
    (4, 2)
    """

    def __init__(self, model: NaiveBayes, n_folds: int) -> None:
        check_kind("model", model, NaiveBayes)
        check_whole("n_folds", n_folds, 2)
        if n_folds > _FOLDS_MAX:
            raise InputError(f"n_folds must be at most {_FOLDS_MAX:,}. Got {n_folds:,} instead.")
        if model.n_examples or model.parts or model.state.class_counts.any():
            raise InputError(
                "folds need a model that has learned nothing yet. Give an untrained one."
            )
        if model.state.clock.half_life is not None:
            raise InputError(
                "a model with a half-life cannot be learned in folds: what it has forgotten depends"
                " on the order of all examples. Judge it as it learns, by prequential_many."
            )
        self.n_folds = n_folds
        self._state = merging.clone(model.state)
        groups, n_classes = self._state.groups, len(self._state.classes)
        self._state.set_parts(
            {_name(fold): PartState.empty(groups, n_classes) for fold in range(n_folds)}
        )
        self._is_summed = True

    @property
    def classes(self) -> tuple[Label, ...]:
        """Classes of all folds, in the order of all arrays."""
        return tuple(self._state.classes)

    def learn_many(
        self,
        columns: Any,
        labels: Sequence[Label] | Codes,
        fold: int,
        *,
        weights: Sequence[float] | Floats | None = None,
    ) -> None:
        """Learn examples of one fold.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            Fields by name, each of length n; see `NaiveBayes.prequential_many`.
        labels : sequence of str, int or bool, or Codes, of length n
        fold : int
            Between 0 and `n_folds` − 1.
        weights : sequence of float, of length n, optional
            How many examples each counts as, 1 by default; 0 teaches nothing.

        Raises
        ------
        InputError
            For a value, label, weight or fold that cannot be used; nothing has changed.
        """
        state, part = self._state, self._part(fold)
        fields, n = read(state, columns)
        codes = read_labels(labels, n, state.classes)
        given = read_weights(weights, n)
        counted = None if given is None else given > 0
        for _, label in classes_to_join(state, codes, counted):
            state.add_class(label)
        indices, amounts = to_indices(codes, state.classes), ones(n)
        if given is not None:
            indices, amounts = np.where(given > 0, indices, np.int32(UNLABELLED)), given
        self._is_summed = False
        for begin in range(0, n, BATCH_ROWS):
            end = min(begin + BATCH_ROWS, n)
            rows = slice(begin, end)
            every_one = ones(end - begin)
            updates = RowUpdates(indices[rows], amounts[rows], *(every_one,) * 3)
            batches = encode(state, fields, begin, end, updates.labels, learn=True)
            part.count(state.groups, batches, updates, state.prior_decay, state.weighing)

    def total(self) -> ModelReader:
        """Return a model of all folds, to be read as a snapshot is."""
        return self._model_without(None)

    def without(self, fold: int) -> ModelReader:
        """Return a model of all folds but one, to be read as a snapshot is.

        It shares the vocabulary and holds its own counts; learning on does not touch it.

        Raises
        ------
        InputError
            If there is no such fold.
        """
        return self._model_without(self._part(fold))

    def overfull(self) -> dict[str, tuple[int, int, int]]:
        """Return the groups of which a training would hold other features, mostly fewer.

        Returns
        -------
        dict of str to (int, int, int)
            By name: how many words or values all folds hold together, how many a model holds at
            most, and how many have left a fold. Empty: models without a fold are those of trainings
            as far as that goes.
        """
        found = {}
        for name, view in views_of(self.total().state).items():
            group = view.state
            if isinstance(group, CountedState):
                n_max = group.n_part_words_max
            elif isinstance(group, CategoriesState):
                n_max = group.spec.max_values
            else:
                continue
            if group.n_dropped or view.n_features > n_max:
                found[name] = view.n_features, n_max, group.n_dropped
        return found

    def _part(self, fold: int) -> PartState:
        check_whole("fold", fold, 0)
        if fold >= self.n_folds:
            raise InputError(f"fold must be below n_folds, {self.n_folds}. Got {fold} instead.")
        return self._state.parts[_name(fold)]

    def _model_without(self, left_out: PartState | None) -> ModelReader:
        if not self._is_summed:
            self._state.set_parts(self._state.parts)
            self._is_summed = True
        found = ModelReader()
        found.state = self._state.frozen_copy(with_parts=False)
        if left_out is not None:
            others = [part for part in self._state.parts.values() if part is not left_out]
            found.state.class_counts -= left_out.class_counts
            found.state.recent -= left_out.recent
            found.state.n_examples -= left_out.n_examples
            for name, group in found.state.groups.items():
                group.leave_out(left_out.groups[name], [part.groups[name] for part in others])
        return found


def _name(fold: int) -> str:
    """Return the name of a fold's part; names are in the folds' order."""
    return f"fold-{fold:04d}"
