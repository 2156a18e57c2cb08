"""What words under Complement tell: a linear score of classes, and no model of texts."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.views.base import Floats, Linear, ParameterCount
from streamnb.views.words import WordsView


class ComplementView(WordsView):
    """A view of words by how often they occur in all other classes."""

    def parameters(self) -> ParameterCount:
        """Count k·V entries; each complement's probabilities add up to 1."""
        k, v = len(self.tokens), len(self.live)
        return ParameterCount(k * v, k * max(v - 1, 0))

    def linear(self) -> Linear:
        """Return each word's score by class, with no constant."""
        return Linear(self.names, self.log_theta(self.live), np.zeros(len(self.tokens)))

    def contributions(self, fields: Any, row: int) -> list[tuple[str, Floats]]:
        """Return what each word of the example adds to the classes' scores."""
        words = self.row(fields, row)
        values = words.times[:, None] * self.log_theta(words.columns)
        return list(zip(self.told(words), values, strict=True))

    def log_likelihood(self) -> float:
        """Refuse: a score is no log-probability."""
        self._refuse("it has no log-likelihood of data")

    def draw_words(self, c: int, n: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:  # noqa: ARG002
        """Refuse: it describes no texts to be drawn."""
        self._refuse("there are no texts to draw from it")

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """Refuse: its scores have no posterior."""
        self._refuse("its scores have no posterior distribution")

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Refuse: its scores have no posterior."""
        self._refuse("its scores have no posterior distribution")

    def _refuse(self, what: str) -> NoReturn:
        raise InputError(
            f"group {self.state.name!r}: Complement tells classes apart and generates nothing, so"
            f" {what}. Take a Multinomial for that."
        )
