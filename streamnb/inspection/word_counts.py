"""What a model knows of single words: their counts, likelihoods and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streamnb.errors import InputError, check_whole
from streamnb.features import statistics
from streamnb.features.counted_words import CountedState
from streamnb.features.protocol import Floats
from streamnb.inspection.rank import candidates, rank
from streamnb.inspection.views import view_of
from streamnb.labels import Label
from streamnb.likelihoods.multinomial import vocabulary_size
from streamnb.state import ModelState


def word_groups(state: ModelState) -> dict[str, CountedState]:
    """Return the groups of words, of text or counted already."""
    return {name: group for name, group in state.groups.items() if isinstance(group, CountedState)}


def size(state: ModelState) -> int:
    """Return V: words with a count above zero, over all groups."""
    return sum(vocabulary_size(group.counts) for group in word_groups(state).values())


def n_dropped(state: ModelState) -> int:
    """Return how many words have left because a vocabulary was full."""
    return sum(group.n_dropped for group in word_groups(state).values())


def words(state: ModelState, group: str | None) -> list[str]:
    """Return all words of a group with a count above zero."""
    own = word_group(state, group)
    return own.vocabulary.words(statistics.live_columns(own.counts, own.vocabulary.n_words))


def counts(state: ModelState, words: Sequence[str], group: str | None) -> Floats:
    """Return N_jc, ndarray of shape (n_words, n_classes); words not known have zeros."""
    own = word_group(state, group)
    columns = own.find(_checked_words(words))
    found = np.zeros((len(columns), len(state.classes)))
    found[columns >= 0] = own.counts.by_word[columns[columns >= 0]]
    return found / state.clock.scale


def likelihoods(state: ModelState, words: Sequence[str], group: str | None) -> Floats:
    """Return θ̂_jc, ndarray of shape (n_words, n_classes); words not known have zeros."""
    own = word_group(state, group)
    columns = own.find(_checked_words(words))
    theta = np.zeros((len(columns), len(state.classes)))
    theta[columns >= 0] = np.exp(own.log_theta(columns[columns >= 0], state.clock.scale))
    return theta


def most_frequent(state: ModelState, n: int, group: str | None) -> list[str]:
    """Return the `n` words with the largest count over all classes; ties by the alphabet."""
    check_whole("n", n, 0)
    own = word_group(state, group)
    totals = statistics.column_totals(own.counts, own.vocabulary.n_words)
    live = np.flatnonzero(totals > 0.0)
    live = live[candidates(totals[live], n)]
    counted = zip(totals[live].tolist(), own.vocabulary.words(live), strict=True)
    return [word for _, word in sorted(counted, key=lambda each: (-each[0], each[1]))[:n]]


def telling(state: ModelState, n: int, group: str | None) -> dict[Label, list[tuple[str, float]]]:
    """Return the `n` words of each class that contribute most, with their scores in nats."""
    check_whole("n", n, 0)
    own = word_group(state, group)
    view = view_of(own, state.clock.scale)
    ranked = rank({own.name: view}, state.classes, n, "contribution")
    return {
        label: [(each.feature, each.score) for each in found] for label, found in ranked.items()
    }


def word_group(state: ModelState, name: str | None) -> CountedState:
    """Return a group of words by its name; without one, the only group of words.

    Raises
    ------
    InputError
        If there is no such group.
    """
    groups = word_groups(state)
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
