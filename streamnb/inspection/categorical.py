"""What a group of categories tells of itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.features.categorical import CategoriesState
from streamnb.inspection.posterior_moments import log_beta_moments, log_betas
from streamnb.inspection.view_protocol import (
    Effect,
    FeatureLogs,
    Floats,
    Linear,
    ParameterCount,
    View,
    names_from,
)


class Field(NamedTuple):
    """One field's probabilities as they stand.

    The numerators N_jvc + α of `values`, shape (n_values, n_classes), what they are of a value
    never seen, and the denominators N_jc + α·e_j, both of shape (n_classes,).
    """

    name: str
    columns: NDArray[np.int64]
    values: list[str]
    tops: Floats
    unseen: Floats
    bottoms: Floats

    @property
    def log_theta(self) -> Floats:
        """Log θ_jvc, shape (n_values, n_classes), in nats."""
        return log_ratio(self.tops, self.bottoms)


def log_ratio(tops: Floats, bottoms: Floats) -> Floats:
    """Return the logarithm of a quotient; -inf where nothing is known."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(tops > 0.0, np.log(tops / bottoms), -np.inf)


def value_effect(field: str, value: str, log_theta: Floats) -> Effect:
    """Return the effect of a field's value."""
    feature = f"{field}={value}"
    return Effect(feature, log_theta, feature, likelihoods=np.exp(log_theta))


class CategoriesView(View):
    """What is asked of a group of categories beyond judging; see `View`."""

    state: CategoriesState

    def _fields(self) -> list[Field]:
        """Return the fields that say something, in the order of their names."""
        shared = self.state.live_values()
        table, counts = self.state.table, self.state.counts
        declared = np.arange(table.n_declared)
        columns = np.union1d(declared, shared.columns).astype(np.int64)
        of_column = table.field_of[columns]
        fields = [
            self._field(j, columns[of_column == j]) for j in shared.fields if j < len(counts.seen)
        ]
        return [field for field in fields if field is not None]

    def _field(self, j: int, columns: NDArray[np.int64]) -> Field | None:
        table, counts, alphas = self.state.table, self.state.counts, self.state.alphas
        values = table.values(columns)
        order = sorted(range(len(values)), key=values.__getitem__)
        columns = columns[order]
        by_column = len(alphas.by_value) > 1
        alpha = alphas.by_value[columns if by_column else np.zeros(len(columns), int)] * self.scale
        tops = counts.by_value[columns] + alpha
        bottoms = (
            counts.seen[j]
            + (alphas.sums if by_column else alphas.by_value[0] * len(columns)) * self.scale
        )
        if not len(columns) or (not counts.seen[j].any() and not bottoms.all()):
            return None
        names = [values[i][1] for i in order]
        unseen = alphas.by_value[0] * self.scale
        return Field(table.fields.names[j], columns, names, tops, unseen, bottoms)

    def parameters(self) -> ParameterCount:
        """Count k·Σe_j entries, and k·Σ(e_j − 1) that are free."""
        sizes = [len(field.values) for field in self._fields()]
        k = self.state.counts.seen.shape[1]
        return ParameterCount(k * sum(sizes), k * (sum(sizes) - len(sizes)))

    def log_likelihood(self) -> float:
        """Return Σ_c Σ_j Σ_v N_jvc·log θ_jvc; see `View.log_likelihood`."""
        total = 0.0
        for field in self._fields():
            n = self.state.counts.by_value[field.columns] / self.scale
            total += float((n * np.where(n > 0.0, field.log_theta, 0.0)).sum())
        return total

    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw each field's value, as text; None where a class knows nothing of the field."""
        out: dict[str, list[Any]] = {}
        for field in self._fields():
            drawn: list[Any] = [None] * len(labels)
            for c in np.unique(labels):
                rows = np.flatnonzero(labels == c)
                if field.bottoms[c] > 0.0:
                    p = field.tops[:, c] / field.tops[:, c].sum()
                    for row, v in zip(rows, rng.choice(len(p), len(rows), p=p), strict=True):
                        drawn[row] = field.values[v]
            out[field.name] = drawn
        return out

    def linear(self) -> Linear:
        """Return one indicator a value, named `field=value`; its weight is log θ_jvc.

        A field that is missing has all its indicators at 0.
        """
        names, weights = self._log_theta()
        return Linear(names, weights, np.zeros(weights.shape[1]))

    def log_odds(self) -> FeatureLogs:
        """Return log θ_jvc of each value, named `field=value`."""
        names, values = self._log_theta()
        return FeatureLogs(names_from(names), values)

    def _log_theta(self) -> tuple[list[str], Floats]:
        """Return `field=value` and log θ_jvc, a row a value."""
        fields = self._fields()
        names = [f"{field.name}={value}" for field in fields for value in field.values]
        k = self.state.counts.seen.shape[1]
        rows = [np.empty((0, k)), *(field.log_theta for field in fields)]
        return names, np.concatenate(rows)

    def _asked(self, fields: Any, row: int) -> list[tuple[Field, str, Floats]]:
        """Return each field that speaks, the example's value, and its numerators."""
        out = []
        for field in self._fields():
            value = fields.text(field.name, row)
            if value is None:
                continue
            column = int(self.state.table.find(field.name, [value])[0])
            (at,) = np.nonzero(field.columns == column)
            declared = self.state.table.declared(self.state.table.fields)
            if len(at):
                out.append((field, value, field.tops[at[0]]))
            elif not declared[self.state.table.fields.places[field.name]]:
                out.append((field, value, field.unseen))
        return out

    def contributions(self, fields: Any, row: int) -> list[Effect]:
        """Return log θ of each value of an example, named `field=value`."""
        return [
            value_effect(field.name, value, log_ratio(tops, field.bottoms))
            for field, value, tops in self._asked(fields, row)
        ]

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Draw log-likelihoods: each θ_jv is Beta(N_jv + α, rest) under its Dirichlet posterior."""
        out = np.zeros((n, self.state.counts.seen.shape[1]))
        for field, _, tops in self._asked(fields, row):
            rest = np.maximum(field.bottoms - tops, 0.0)
            out += log_betas(tops / self.scale, rest / self.scale, n, rng)[0]
        return out

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:
        """Return mean and variance of what `draws` draws, each of shape (n_classes,)."""
        mean, variance = np.zeros((2, self.state.counts.seen.shape[1]))
        for field, _, tops in self._asked(fields, row):
            rest = np.maximum(field.bottoms - tops, 0.0)
            own = log_beta_moments(tops / self.scale, rest / self.scale)
            mean, variance = mean + own[0], variance + own[1]
        return mean, variance
