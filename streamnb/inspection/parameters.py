"""How many parameters a model has, in both countings, and what the naive assumption saves."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from streamnb.inspection.group_view import ParameterCount
from streamnb.inspection.views import views_of
from streamnb.state import ModelState

_EXACT_BITS_MAX = 4096  # a larger number is nothing to look at: its logarithm says as much


@dataclass(frozen=True, slots=True)
class Parameters:
    """How many parameters a model has as it stands.

    Attributes
    ----------
    class_prior : ParameterCount
        Table entries k; independent k − 1, or none where they are fixed.
    groups : dict of str to ParameterCount
    table : int
        Entries of all tables together.
    independent : int
        Those that can be chosen freely.
    without_naive_assumption : int or None
        Free parameters of the whole joint distribution of class and features. None where it is not
        countable (words that may come any number of times, numbers), or has more than 4096 bits.
    log2_without_naive_assumption : float or None
        Its logarithm to base 2, whatever its size.

    Examples
    --------
    >>> from streamnb import Bernoulli, NaiveBayes, Words
    >>> words = Words(Bernoulli(), dictionary=["a", "b", "c"])
    >>> counted = NaiveBayes(["no", "yes"], features={"text": words}).parameters()
    >>> counted.independent, counted.without_naive_assumption
    (7, 15)
    """

    class_prior: ParameterCount
    groups: dict[str, ParameterCount]
    without_naive_assumption: int | None
    log2_without_naive_assumption: float | None

    @property
    def table(self) -> int:
        """Entries of all tables together."""
        return self.class_prior.table + sum(each.table for each in self.groups.values())

    @property
    def independent(self) -> int:
        """Parameters that can be chosen freely."""
        return self.class_prior.independent + sum(g.independent for g in self.groups.values())


def count(state: ModelState) -> Parameters:
    """Count a model's parameters as they stand."""
    k = len(state.classes)
    class_prior = ParameterCount(k, 0 if state.is_prior_fixed else max(k - 1, 0))
    views = views_of(state)
    counts = {name: view.parameters() for name, view in views.items()}
    sizes: Counter[int] = Counter()
    for view in views.values():
        own = view.outcomes()
        if own is None:
            return Parameters(class_prior, counts, None, None)
        sizes += own
    bits = sum(times * math.log2(size) for size, times in sizes.items())
    if bits > _EXACT_BITS_MAX:
        return Parameters(class_prior, counts, None, bits + math.log2(max(k, 1)))
    outcomes = math.prod(size**times for size, times in sizes.items())
    exact = k * (outcomes - 1) + class_prior.independent
    return Parameters(class_prior, counts, exact, math.log2(exact) if exact else None)
