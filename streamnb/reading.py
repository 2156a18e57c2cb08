"""What models and snapshots tell of themselves: the statistics by the field's names.

Reading never changes anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamnb.errors import InputError, check_whole
from streamnb.features import statistics
from streamnb.features.counted_words import CountedState
from streamnb.features.protocol import Floats
from streamnb.inspection import Telling
from streamnb.inspection.rank import candidates, rank
from streamnb.labels import Label
from streamnb.likelihoods.multinomial import vocabulary_size


class Readable(Telling):
    """The reading side that models and snapshots share."""

    @property
    def classes(self) -> tuple[Label, ...]:
        """Classes, in the order of all arrays."""
        return tuple(self._classes)

    @property
    def class_counts(self) -> Floats:
        """N_c, ndarray of shape (n_classes,): weighted, and decayed up to now."""
        return self._class_counts / self._clock.scale

    @property
    def n_examples(self) -> int:
        """Number of examples learned, each counting one whatever its weight."""
        return self._n_examples

    @property
    def vocabulary_size(self) -> int:
        """V: words with a count above zero, over all groups."""
        return sum(vocabulary_size(group.counts) for group in self._counted.values())

    @property
    def words_dropped(self) -> int:
        """How many words have left because a vocabulary was full."""
        return sum(group.n_dropped for group in self._counted.values())

    def words(self, group: str | None = None) -> list[str]:
        """Return all words with a count above zero: n-grams with spaces, `¬` if negated."""
        state = self._group(group)
        return state.vocabulary.words(
            statistics.live_columns(state.counts, state.vocabulary.n_words)
        )

    def word_counts(self, words: Sequence[str], group: str | None = None) -> Floats:
        """Return N_jc, ndarray of shape (n_words, n_classes); words not known have zeros.

        Weighted, and decayed up to now.
        """
        state = self._group(group)
        columns = state.find(_checked_words(words))
        counts = np.zeros((len(columns), len(self._classes)))
        counts[columns >= 0] = state.counts.by_word[columns[columns >= 0]]
        return counts / self._clock.scale

    def word_likelihoods(self, words: Sequence[str], group: str | None = None) -> Floats:
        """Return θ̂_jc, ndarray of shape (n_words, n_classes); words not known have zeros."""
        state = self._group(group)
        columns = state.find(_checked_words(words))
        known = columns[columns >= 0]
        theta = np.zeros((len(columns), len(self._classes)))
        theta[columns >= 0] = np.exp(state.log_theta(known, self._clock.scale))
        return theta

    def top_words(self, n: int, group: str | None = None) -> list[str]:
        """Return the `n` words with the largest count over all classes; ties by the alphabet."""
        check_whole("n", n, 0)
        state = self._group(group)
        totals = statistics.column_totals(state.counts, state.vocabulary.n_words)
        live = np.flatnonzero(totals > 0.0)
        live = live[candidates(totals[live], n)]
        counted = zip(totals[live].tolist(), state.vocabulary.words(live), strict=True)
        return [word for _, word in sorted(counted, key=lambda each: (-each[0], each[1]))[:n]]

    def telling_words(
        self, n: int, group: str | None = None
    ) -> dict[Label, list[tuple[str, float]]]:
        """Return the `n` most telling words of each class, with their scores.

        The score is θ_jc·(log θ_jc − log θ_jo), o the other classes' mean: what the word adds on
        average, in nats, to the log-odds of a text of that class. Frequent and one-sided words
        lead; words seen once do not.
        """
        check_whole("n", n, 0)
        state = self._group(group)
        ranked = rank({state.name: self._views()[state.name]}, self._classes, n, "contribution")
        return {
            label: [(each.feature, each.score) for each in features]
            for label, features in ranked.items()
        }

    # ---- inside --------------------------------------------------------------------------------

    @property
    def _counted(self) -> dict[str, CountedState]:
        """The groups of words."""
        return {
            name: group for name, group in self._groups.items() if isinstance(group, CountedState)
        }

    def _group(self, name: str | None) -> CountedState:
        groups = self._counted
        if name is None and len(groups) == 1:
            return next(iter(groups.values()))
        if isinstance(name, str) and name in groups:
            return groups[name]
        raise InputError(
            f"group must be one of {', '.join(groups) or 'none: this model has no words'}."
            f" Got {name!r} instead."
        )


def _checked_words(words: Any) -> Sequence[str]:
    """Refuse what is no sequence of texts: a single word would be read letter by letter."""
    if hasattr(words, "tolist"):
        words = words.tolist()
    is_many = isinstance(words, Sequence) and not isinstance(words, str | bytes)
    if not is_many or not all(isinstance(word, str) for word in words):
        raise InputError(f"words must be a sequence of str. Got {words!r} instead.")
    found: Sequence[str] = words
    return found
