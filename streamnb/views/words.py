"""What groups of words tell, whatever their likelihood: the common half of its views."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.labels import nobody
from streamnb.views.base import Floats, View
from streamnb.words.bag import BagState
from streamnb.words.counted import CountedState
from streamnb.words.text import WordsState


class Row(NamedTuple):
    """The known words of one example.

    Attributes
    ----------
    there : bool
        Whether the group says anything of it at all.
    columns : ndarray of shape (n,), int64
    times : ndarray of shape (n,), float64
        How often each is there.
    """

    there: bool
    columns: NDArray[np.int64]
    times: Floats


def column_sums(grid: Floats) -> Floats:
    """Return the sum of each column, ndarray of shape (n_classes,).

    By pairs, as numpy adds what lies side by side: down the rows of a million words it would add
    one after the other, and lose four digits.
    """
    out: Floats = np.ascontiguousarray(grid.T).sum(axis=1)
    return out


class WordsView(View):
    """A view of counted words.

    Attributes
    ----------
    live : ndarray of shape (V,), int64
        Columns of the words that there are.
    by_word, examples, tokens : ndarray, float64
        N_jc by all columns, N_c and N_·c, decayed up to now.
    """

    state: CountedState

    @cached_property
    def live(self) -> NDArray[np.int64]:
        """Columns of the words that there are, in the order of the vocabulary."""
        return self.state.live_columns()

    @cached_property
    def names(self) -> list[str]:
        """The words, in the order of `live`."""
        return self.state.vocabulary.words(self.live)

    @property
    def examples(self) -> Floats:
        """N_c, decayed up to now, shape (n_classes,)."""
        return self.state.counts.examples / self.scale

    @property
    def tokens(self) -> Floats:
        """N_·c, decayed up to now, shape (n_classes,)."""
        return self.state.counts.tokens / self.scale

    def counts_of(self, columns: NDArray[np.int64]) -> Floats:
        """Return N_jc of columns, decayed up to now, shape (n, n_classes)."""
        return self.state.counts.by_word[columns] / self.scale

    def log_theta(self, columns: NDArray[np.int64]) -> Floats:
        """Return log θ_jc of columns, shape (n, n_classes)."""
        return self.state.log_theta(columns, self.scale)

    def log_odds(self) -> tuple[list[str], Floats]:
        """Return each word and log θ_jc; see `View`."""
        return self.names, self.log_theta(self.live)

    def row(self, fields: Any, row: int) -> Row:
        """Return the known words of one example."""
        batch = self.state.encode(fields, row, row + 1, nobody(1), learn=False)
        n = int(batch.rows.indptr[1])
        columns = batch.rows.columns[:n].astype(np.int64)
        by_word = self.state.counts.by_word
        known = (columns >= 0) & (columns < len(by_word))
        if not self.state.n_declared:
            known[known] = by_word[columns[known]].any(axis=1)
        # A copy: the arrays of the batch may be a desk's, and used again.
        return Row(bool(batch.there[0]), columns[known], batch.rows.counts[:n][known].copy())

    def told(self, row: Row) -> list[str]:
        """Return how the words of an example are shown: ``word 'good' ×2``."""
        words = self.state.vocabulary.words(row.columns)
        return [
            f"word {word!r}" if times == 1.0 else f"word {word!r} ×{times:g}"
            for word, times in zip(words, row.times.tolist(), strict=True)
        ]

    # ---- sampling ------------------------------------------------------------------------------

    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw an example's words for each label; see `View`.

        Text is the words with a space between; that they would be read as these words again is sure
        for plain ones. Counts come as the group's fields have them.
        """
        spec = self.state.spec
        if isinstance(self.state, WordsState) and (spec.ngrams != (1, 1) or spec.negation):
            raise InputError(
                f"group {self.state.name!r}: a text cannot be sampled n-gram by n-gram, nor with"
                " words that negate others, for no text is made of them one by one. Sample a model"
                " with ngrams=(1, 1) and negation=False."
            )
        drawn: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)] * len(labels)
        for c in np.unique(labels).tolist():
            rows = np.flatnonzero(labels == c)
            for i, places in zip(rows.tolist(), self.draw_words(c, len(rows), rng), strict=True):
                drawn[i] = places
        return self._as_fields(drawn)

    @abstractmethod
    def draw_words(self, c: int, n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
        """Return `n` examples of class `c`, each as places in `live`, one for each occurrence."""

    def _as_fields(self, drawn: list[NDArray[np.int64]]) -> dict[str, list[Any]]:
        """Return drawn words as the group's own fields would hold them."""
        state, names = self.state, self.names
        if isinstance(state, WordsState):
            return {state.field: [" ".join(names[j] for j in each.tolist()) for each in drawn]}
        assert isinstance(state, BagState)
        if state.spec.field is not None:
            bags = [Counter(names[j] for j in each.tolist()) for each in drawn]
            return {state.spec.field: [dict(bag) for bag in bags]}
        grid = np.zeros((len(drawn), len(names)))
        for i, each in enumerate(drawn):
            np.add.at(grid[i], each, 1.0)
        return {name: grid[:, j].tolist() for j, name in enumerate(names)}
