"""Views of categories and flags: of what each value of a field says."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.features.categorical import CategoriesState
from streamnb.features.flags import FlagsState
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import (
    Effect,
    ExportTable,
    FeatureKind,
    FeatureLogs,
    GroupView,
    Linear,
    ParameterCount,
    names_from,
    quantity,
)
from streamnb.inspection.parameters import log_beta_moments, log_betas


def log_ratio(tops: Floats, bottoms: Floats) -> Floats:
    """Return the logarithm of a quotient; -inf if the numerator is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(tops > 0.0, np.log(tops / bottoms), -np.inf)


class ObservedValue(NamedTuple):
    """One value of an example, such as `income=high`, with θ = top / bottom by class.

    Its posterior is Beta(top, rest), scaled by decay; `counts` are decayed up to now. The
    probability of a false flag is drawn as 1 − θ of the true one.
    """

    feature: str
    counts: Floats
    top: Floats
    rest: Floats
    bottom: Floats
    is_false: bool = False


class _ValuesView(GroupView):
    """What categories and flags share: each value of an example has a probability of its own."""

    kind: FeatureKind

    @abstractmethod
    def observed(self, fields: Any, row: int) -> list[ObservedValue]:
        """Return the values of one example that say something."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.state.counts[0].shape[1])

    def contributions(self, fields: Any, row: int) -> list[Effect]:
        """Return log θ of each value of an example, named `field=value`."""
        effects = []
        for value in self.observed(fields, row):
            log_theta = log_ratio(value.top, value.bottom)
            name, theta = value.feature, np.exp(log_theta)
            effects.append(Effect(name, log_theta, name, value.counts, theta, self.kind))
        return effects

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Draw log-likelihoods, each θ from its Beta posterior; see `GroupView`."""
        out = np.zeros((n, self.n_classes))
        for value in self.observed(fields, row):
            own, rest = value.top / self.scale, value.rest / self.scale
            # A flag's θ is that of the true value, so a draw does not depend on which was seen.
            out += (
                log_betas(rest, own, n, rng)[1]
                if value.is_false
                else log_betas(own, rest, n, rng)[0]
            )
        return out

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:
        """Return mean and variance of what `draws` draws, each of shape (n_classes,)."""
        mean, variance = np.zeros((2, self.n_classes))
        for value in self.observed(fields, row):
            own = log_beta_moments(value.top / self.scale, value.rest / self.scale)
            mean, variance = mean + own[0], variance + own[1]
        return mean, variance


class FieldProbabilities(NamedTuple):
    """The probabilities of a field's values, as numerators and denominators."""

    name: str
    columns: NDArray[np.int64]  # (n_values,)
    values: list[str]
    tops: Floats  # (n_values, n_classes): N_jvc + α
    unseen: Floats  # (n_classes,): that of a value never seen
    bottoms: Floats  # (n_classes,): N_jc + α·e_j

    @property
    def log_theta(self) -> Floats:
        """Log θ_jvc, shape (n_values, n_classes), in nats."""
        return log_ratio(self.tops, self.bottoms)


class CategoriesView(_ValuesView, of=CategoriesState):
    """The view of a group of categories; see `GroupView`."""

    kind = "category"
    state: CategoriesState

    @property
    def size(self) -> str:
        """Its fields and values, such as "2 fields, 5 values"."""
        return f"{super().size}, {quantity(self.n_features, 'value')}"

    @property
    def n_features(self) -> int:
        """Number of values."""
        return int(self.state.counts.n_values.sum())

    def outcomes(self) -> Counter[int]:
        """Return how many fields have how many values."""
        declared = self.state.table.declared(self.state.table.fields).tolist()
        seen = self.state.counts.n_values.tolist()
        return Counter(max(d or e, 1) for d, e in zip(declared, seen, strict=False))

    def _fields(self) -> list[FieldProbabilities]:
        """Return the fields of which something is known, in the order of their names."""
        shared = self.state.live_values()
        table, counts = self.state.table, self.state.counts
        declared = np.arange(table.n_declared)
        columns = np.union1d(declared, shared.columns).astype(np.int64)
        of_column = table.field_of[columns]
        fields = [
            self._field(j, columns[of_column == j]) for j in shared.fields if j < len(counts.seen)
        ]
        return [field for field in fields if field is not None]

    def _field(self, j: int, columns: NDArray[np.int64]) -> FieldProbabilities | None:
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
        return FieldProbabilities(table.fields.names[j], columns, names, tops, unseen, bottoms)

    def parameters(self) -> ParameterCount:
        """Count k·Σe_j entries, and k·Σ(e_j − 1) that are free."""
        sizes = [len(field.values) for field in self._fields()]
        k = self.n_classes
        return ParameterCount(k * sum(sizes), k * (sum(sizes) - len(sizes)))

    def log_likelihood(self) -> float:
        """Return Σ_c Σ_j Σ_v N_jvc·log θ_jvc; see `GroupView.log_likelihood`."""
        total = 0.0
        for field in self._fields():
            n = self.state.counts.by_value[field.columns] / self.scale
            total += float((n * np.where(n > 0.0, field.log_theta, 0.0)).sum())
        return total

    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw each field's value, as text; None if the class knows nothing of the field."""
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
        rows = [np.empty((0, self.n_classes)), *(field.log_theta for field in fields)]
        return names, np.concatenate(rows)

    def observed(self, fields: Any, row: int) -> list[ObservedValue]:
        """Return the values of an example; one never seen counts if its field is open."""
        table, found = self.state.table, []
        declared = table.declared(table.fields)
        for field in self._fields():
            value = fields.text(field.name, row)
            if value is None:
                continue
            (at,) = np.nonzero(field.columns == int(table.find(field.name, [value])[0]))
            if not len(at) and declared[table.fields.places[field.name]]:
                continue
            top, counts = field.unseen, np.zeros(self.n_classes)
            if len(at):
                top = field.tops[at[0]]
                counts = self.state.counts.by_value[field.columns[at[0]]] / self.scale
            rest = np.maximum(field.bottoms - top, 0.0)
            found.append(ObservedValue(f"{field.name}={value}", counts, top, rest, field.bottoms))
        return found

    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds: log θ of values, and of unseen values by field."""
        fields = self._fields()
        table = self.state.table
        declared = table.declared(table.fields)
        unseen = {
            field.name: log_ratio(field.unseen, field.bottoms)
            for field in fields
            if not declared[table.fields.places[field.name]]
        }
        counts = [self.state.counts.by_value[field.columns] / self.scale for field in fields]
        return {"log_unseen": unseen}, {
            "field": [field.name for field in fields for _ in field.values],
            "value": [value for field in fields for value in field.values],
            "count": np.concatenate([np.empty((0, self.n_classes)), *counts]),
            "log_theta": self._log_theta()[1],
        }


class FlagProbabilities(NamedTuple):
    """The probabilities of flags; all arrays have the shape (n_flags, n_classes)."""

    places: list[int]  # where the flags are among the group's counts
    names: list[str]
    true: Floats  # N_jc
    false: Floats  # n_jc − N_jc; if absent flags count as false, those are in it
    true_top: Floats  # N_jc + β₁
    false_top: Floats  # n_jc − N_jc + β₂

    @property
    def bottoms(self) -> Floats:
        """n_jc + β₁ + β₂."""
        return self.true_top + self.false_top

    @property
    def log_true(self) -> Floats:
        """Log θ_jc, in nats."""
        return log_ratio(self.true_top, self.bottoms)

    @property
    def log_false(self) -> Floats:
        """log(1 − θ_jc), in nats."""
        return log_ratio(self.false_top, self.bottoms)


class FlagsView(_ValuesView, of=FlagsState):
    """The view of a group of flags; see `GroupView`."""

    kind = "flag"
    state: FlagsState

    def outcomes(self) -> Counter[int]:
        """Return how many flags there are, each with two values."""
        return Counter({2: len(self.state.live_fields())})

    def _flags(self) -> FlagProbabilities:
        """Return the flags of which something is known."""
        counts, betas = self.state.counts, self.state.betas
        places = np.array([j for j in self.state.live_fields() if j < len(counts.true)], np.int64)
        true, false = counts.true[places], counts.false[places]
        if self.state.spec.absent_is_false:
            false = np.maximum(counts.examples - true, 0.0)
        rows = places if len(betas.present) > 1 else np.zeros(len(places), np.int64)
        true_top = true + betas.present[rows] * self.scale
        false_top = false + betas.absent[rows] * self.scale
        known = (true + false).any(axis=1) | (true_top + false_top).all(axis=1)
        places = places[known].tolist()
        names = [self.state.table.names[j] for j in places]
        return FlagProbabilities(
            places, names, true[known], false[known], true_top[known], false_top[known]
        )

    def parameters(self) -> ParameterCount:
        """Count k·s: each flag has one parameter a class, and it is free."""
        n = self.n_classes * len(self._flags().places)
        return ParameterCount(n, n)

    def log_likelihood(self) -> float:
        """Return Σ_c Σ_j N_jc·log θ_jc + (n_jc − N_jc)·log(1 − θ_jc)."""
        flags, total = self._flags(), 0.0
        for n, logs in ((flags.true, flags.log_true), (flags.false, flags.log_false)):
            total += float((n / self.scale * np.where(n > 0.0, logs, 0.0)).sum())
        return total

    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw each flag; None if the class knows nothing of it."""
        flags = self._flags()
        out: dict[str, list[Any]] = {}
        for i, name in enumerate(flags.names):
            total = flags.bottoms[i][labels]
            is_true = rng.random(len(labels)) * total < flags.true_top[i][labels]
            out[name] = [
                bool(flag) if known else None
                for flag, known in zip(is_true, total > 0.0, strict=True)
            ]
        return out

    def linear(self) -> Linear:
        """Return w_jc = log θ_jc/(1 − θ_jc) and b_c = Σ_j log(1 − θ_jc), if no flag is missing.

        A flag that is certain is refused: log(1 − θ) is infinite, and no weight could take it back.
        """
        flags = self._flags()
        certain = np.flatnonzero((flags.false_top <= 0.0).any(axis=1))
        if len(certain):
            raise InputError(
                f"flag {flags.names[certain[0]]!r} is certain in one class, so that there is no"
                " linear form. Give a prior above 0."
            )
        with np.errstate(divide="ignore"):
            weights = np.log(flags.true_top) - np.log(flags.false_top)
        return Linear(flags.names, weights, flags.log_false.sum(axis=0))

    def log_odds(self) -> FeatureLogs:
        """Return log θ_jc of each flag."""
        flags = self._flags()
        return FeatureLogs(names_from(flags.names), flags.log_true)

    def log_odds_of_values(self) -> FeatureLogs:
        """Return log θ_jc of each true flag, then log(1 − θ_jc) of each false one."""
        flags = self._flags()
        names = [f"{name}={value}" for value in ("true", "false") for name in flags.names]
        return FeatureLogs(names_from(names), np.concatenate((flags.log_true, flags.log_false)))

    def observed(self, fields: Any, row: int) -> list[ObservedValue]:
        """Return the flags of an example; a missing one may count as false."""
        flags, found = self._flags(), []
        bottoms = flags.bottoms
        for i, name in enumerate(flags.names):
            value = np.nan
            if name in fields.names:
                value = float(fields.matrix[row, fields.names.index(name)])
            if np.isnan(value) and not self.state.spec.absent_is_false:
                continue
            tops = flags.true_top[i], flags.false_top[i]
            if value == 1.0:
                counts = flags.true[i] / self.scale
                found.append(ObservedValue(f"{name}=true", counts, *tops, bottoms[i]))
            else:
                counts, own = flags.false[i] / self.scale, f"{name}=false"
                found.append(ObservedValue(own, counts, *tops[::-1], bottoms[i], is_false=True))
        return found

    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds: counts, log θ and log(1 − θ) of each flag."""
        flags = self._flags()
        return {}, {
            "field": flags.names,
            "true": self.state.counts.true[flags.places] / self.scale,
            "false": self.state.counts.false[flags.places] / self.scale,
            "log_true": flags.log_true,
            "log_false": flags.log_false,
        }
