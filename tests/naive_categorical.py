"""Slow, plain twins of the kernels for categories and flags: dicts, and sums by `math.fsum`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.naive import fsum, log


@dataclass
class NaiveCategories:
    """Categories under Dirichlet(α), kept in dicts.

    `declared` has the values of the fields that declare them; `named` the fields known anyway.
    """

    n_classes: int
    alpha: float = 1.0
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    counts: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def learn(self, x: Mapping[str, str | None], label: int, weight: float = 1.0) -> None:
        """Learn one example, or with a weight below zero take it back."""
        for name, value in x.items():
            if value is None or (name in self.declared and value not in self.declared[name]):
                continue
            by_class = self.counts.setdefault((name, value), [0.0] * self.n_classes)
            by_class[label] += weight
            if abs(by_class[label]) < 1e-9 * abs(weight):
                by_class[label] = 0.0
            if not any(by_class):
                del self.counts[name, value]

    def theta(self, name: str, value: str, c: int) -> tuple[float, float] | None:
        """Return θ as a numerator and a denominator; None where the field says nothing."""
        values = {v: by_class for (f, v), by_class in self.counts.items() if f == name}
        e = len(self.declared.get(name, values))
        bottoms = [
            math.fsum(by_class[k] for by_class in values.values()) + self.alpha * e
            for k in range(self.n_classes)
        ]
        if not any(bottoms):
            return None
        return values.get(value, [0.0] * self.n_classes)[c] + self.alpha, bottoms[c]

    def joint(self, x: Mapping[str, str | None]) -> list[float]:
        """Return Σ_j log θ of each class."""
        out = []
        for c in range(self.n_classes):
            terms = []
            for name, value in x.items():
                if value is None or (name in self.declared and value not in self.declared[name]):
                    continue
                theta = self.theta(name, value, c)
                if theta is not None:
                    terms.append(log(theta[0]) - log(theta[1]) if theta[0] else -math.inf)
            out.append(fsum(terms))
        return out


@dataclass
class NaiveFlags:
    """Flags under Beta(β₁, β₂), kept in dicts of [true, false] by class."""

    n_classes: int
    present: float = 1.0
    absent: float = 1.0
    absent_is_false: bool = False
    named: tuple[str, ...] | None = None
    counts: dict[str, list[list[float]]] = field(default_factory=dict)
    examples: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.examples = self.examples or [0.0] * self.n_classes

    def learn(self, x: Mapping[str, bool | None], label: int, weight: float = 1.0) -> None:
        """Learn one example, or with a weight below zero take it back."""
        self.examples[label] += weight
        for name, value in x.items():
            if value is not None:
                by_class = self.counts.setdefault(name, [[0.0, 0.0] for _ in self.examples])
                by_class[label][0 if value else 1] += weight

    def joint(self, x: Mapping[str, bool | None]) -> list[float]:
        """Return Σ_j x_j·log θ_j + (1−x_j)·log(1−θ_j) of each class."""
        out = []
        names = sorted({*self.counts, *(self.named or ())})
        for c in range(self.n_classes):
            terms = []
            for name in names:
                value = x.get(name)
                if value is None and not self.absent_is_false:
                    continue
                terms += self._term(name, bool(value), c)
            out.append(fsum(terms))
        return out

    def _term(self, name: str, value: bool, c: int) -> list[float]:
        none = [[0.0, 0.0] for _ in self.examples]
        pairs = self.counts.get(name, none)
        if self.absent_is_false:
            pairs = [[t, n - t] for (t, _), n in zip(pairs, self.examples, strict=True)]
            if self.named is None and not any(t for t, _ in pairs):
                return []
        elif self.named is None and not any(t + f for t, f in pairs):
            return []
        if not any(t + f + self.present + self.absent for t, f in pairs):
            return []
        true, false = pairs[c][0] + self.present, pairs[c][1] + self.absent
        if true + false == 0.0:
            return [-math.inf]
        return [log(true if value else false) - log(true + false)]
