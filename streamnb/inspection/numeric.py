"""The view of numbers, and of their Gaussian.

If an answer needs one Gaussian for each class, it is the one with the location and variance of
`Posterior`: maximum likelihood itself, or m and b/a of a normal–inverse-gamma posterior, whose
predictive is Student's t.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.features.fields import FieldRows
from streamnb.features.numeric import NumbersState
from streamnb.features.protocol import Floats
from streamnb.inspection.group_view import (
    Effect,
    ExportTable,
    FeatureLogs,
    GroupView,
    Linear,
    ParameterCount,
    names_from,
)
from streamnb.labels import unlabelled_rows
from streamnb.likelihoods.gaussian import Gaussian, GaussianEstimator, Posterior


class NumbersView(GroupView):
    """What a group of numbers answers under any likelihood; see `GroupView`."""

    state: NumbersState

    def contributions(self, fields: FieldRows, row: int) -> list[Effect]:
        """Return what each number of one example adds; see `GroupView`."""
        values = fields.matrix[row]
        there = np.flatnonzero(~np.isnan(values))
        alone = np.full((len(there), len(values)), np.nan)
        alone[np.arange(len(there)), there] = values[there]
        updates = unlabelled_rows(len(there), self.scale)
        rows = FieldRows(fields.names, alone)
        batch = self.state.encode(rows, 0, len(there), updates.labels, learn=False)
        out = np.zeros((len(there), len(self.state.counts.n) - 1))
        self.state.run(batch, updates, out, learn=False)
        return [
            self._effect(fields.names[t], float(values[t]), out[i])
            for i, t in enumerate(there)
            if out[i].any()
        ]

    def _effect(self, name: str, value: float, by_class: Floats) -> Effect:
        held, j = self.state.fitted(), self.state.table.places[name]
        n = held.n[1:, j] / self.scale
        with np.errstate(divide="ignore", invalid="ignore"):
            deviations = np.sqrt(held.m2[1:, j] / held.n[1:, j])
        means = np.where(n > 0.0, held.mean[1:, j], np.nan)
        shown = f"{name}={value:g}"
        return Effect(name, by_class, shown, n, None, "number", means, deviations)


class GaussianView(NumbersView, of=Gaussian):
    """The view of a group of numbers under a Gaussian."""

    def parameters(self) -> ParameterCount:
        """Count means and variances, with one variance a class or one for all; all are free."""
        m, k = len(self.state.live_fields()), len(self.state.counts.n) - 1
        count = k * m + (m if self._is_shared else k * m)
        return ParameterCount(count, count)

    def log_likelihood(self) -> float:
        """Return Σ log p(x | y) of all that was learned, from n, mean and M2 alone.

        A point mass adds nothing. Under a prior it is refused: Student's t depends on more.
        """
        if self._is_bayes:
            raise InputError(
                f"group {self.state.name!r}: under NormalInverseGamma the predictive is Student's"
                " t, and the likelihood of what was learned does not follow from n, mean and M2."
                " Give the examples themselves to log_likelihood."
            )
        p = self.posterior
        there = (p.n > 0.0) & (p.variance > 0.0)
        n, v = p.n[there], p.variance[there]
        squares = p.m2[there] + n * (p.mean[there] - p.location[there]) ** 2
        return float(-0.5 * np.sum(n * np.log(2.0 * np.pi * v) + squares / v))

    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw from each class's predictive; None if the class knows nothing of a field.

        By maximum likelihood it has no value of it then: all classes' density stands in for its own
        where an example is judged, but is no sample of it.
        """
        p = self.posterior
        known = p.speaks if self._is_bayes else p.n > 0.0
        drawn: dict[str, list[Any]] = {}
        for j, name in enumerate(self.state.fields):
            there = known[labels, j]
            c = labels[there]
            if self._is_bayes:
                noise = rng.standard_t(2.0 * p.shape[c, j])
                spread = p.variance[c, j] * (1.0 + 1.0 / p.kappa[c, j])
            else:
                noise, spread = rng.standard_normal(len(c)), p.variance[c, j]
            values = np.full(len(labels), None, dtype=object)
            values[there] = p.location[c, j] + np.sqrt(spread) * noise
            drawn[name] = values.tolist()
        return drawn

    def linear(self) -> Linear:
        """Return w = μ/σ² and b = −Σ μ²/(2σ²); −x²/(2σ²) is the same for all classes: omitted."""
        where = f"group {self.state.name!r}"
        if self._is_bayes:
            raise InputError(
                f"{where}: under NormalInverseGamma the predictive is Student's t, and its"
                " logarithm is not linear in the numbers. Take variance='shared' with a"
                " VarianceFloor."
            )
        if not self._is_shared:
            raise InputError(
                f"{where}: with a variance for each class the log-odds are quadratic in the"
                " numbers. Take variance='shared' for a linear form."
            )
        p = self.posterior
        known = np.flatnonzero(p.speaks.any(axis=0))
        v, location = p.variance[:, known], p.location[:, known]
        if (v == 0.0).any():
            raise InputError(
                f"{where}: a field has no variance within any class, so that its weight is"
                " infinite. Take a VarianceFloor above 0."
            )
        constants = -0.5 * np.sum(location * location / v, axis=1)
        names = [self.state.fields[j] for j in known.tolist()]
        return Linear(names, (location / v).T.copy(), constants)

    def log_odds(self) -> FeatureLogs:
        """Return each field's mean log-likelihood ratio, class c's own examples against the others.

        By location and variance: the mean over c's own examples of log p(x | c), less the mean of
        log p(x | k) over the other classes that have seen the field. 0 if there is none.
        """
        p = self.posterior
        known = np.flatnonzero(p.speaks.any(axis=0)).tolist()
        ratios = np.array([self._ratios(p, j) for j in known]).reshape(len(known), len(p.n))
        names = [self.state.fields[j] for j in known]
        return FeatureLogs(names_from(names), ratios, are_ratios=True)

    def draws(self, fields: FieldRows, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Return log-likelihoods under drawn means and variances, shape (n, n_classes).

        σ² ~ IG(a, b), μ ~ N(m, σ²/κ'). Without a prior from the reference posterior, σ² ~
        M2/χ²(n − 1) and μ ~ N(mean, σ²/n), which needs two examples a class. A class without a
        value of a field takes the density of all classes as it stands.
        """
        p = self.posterior
        total = np.zeros((n, len(p.n)))
        for name, value in zip(fields.names, fields.matrix[row], strict=True):
            j = self.state.table.places.get(name, -1)
            if 0 <= j < p.n.shape[1] and not np.isnan(value) and p.speaks[:, j].any():
                seen = p.kappa[:, j] > 0.0
                variance = self._drawn_variances(p, j, seen, n, rng)
                noise = rng.standard_normal(variance.shape) / np.sqrt(p.kappa[seen, j])
                d = value - (p.location[seen, j] + np.sqrt(variance) * noise)
                total[:, seen] += log_normal(d, variance + self._floor(p, j))
                total[:, ~seen] += log_normal(value - p.location[~seen, j], p.variance[~seen, j])
        return total

    def export(self) -> tuple[dict[str, Any], ExportTable]:
        """Return what the export holds: n, mean and M2, and the density's parameters."""
        p = self.posterior
        known = np.flatnonzero(p.speaks.any(axis=0))
        table: ExportTable = {"field": [self.state.fields[j] for j in known.tolist()]}
        table |= {
            "n": p.n[:, known].T,
            "mean": p.mean[:, known].T,
            "m2": p.m2[:, known].T,
            "location": p.location[:, known].T,
        }
        if not self._is_bayes:
            return {"density": "normal"}, table | {"variance": p.variance[:, known].T}
        kappa = p.kappa[:, known]
        spread = p.variance[:, known] * (kappa + 1.0) / kappa
        freedom = 2.0 * p.shape[:, known]
        return {"density": "student_t"}, table | {"df": freedom.T, "scale_squared": spread.T}

    # ---- inside --------------------------------------------------------------------------------

    @property
    def posterior(self) -> Posterior:
        """What is known of all fields' means and variances."""
        estimator = cast("GaussianEstimator", self.state.estimator)
        return estimator.posterior(self.state.fitted(), self.scale)

    @property
    def _is_bayes(self) -> bool:
        return bool(self.state.spec.likelihood.is_bayes)

    @property
    def _is_shared(self) -> bool:
        return bool(self.state.spec.likelihood.is_shared)

    def _ratios(self, p: Posterior, j: int) -> Floats:
        ratios = np.zeros(len(p.n))
        seen = np.flatnonzero(p.n[:, j] > 0.0)
        v, location = p.variance[seen, j], p.location[seen, j]
        for at, c in enumerate(seen):
            # E[(x − m)²] is the variance about c's mean and the square of the means' distance.
            square = p.m2[c, j] / p.n[c, j] + (p.mean[c, j] - location) ** 2
            mean_logs = log_normal(np.sqrt(square), v)
            others = np.delete(mean_logs, at)
            if len(others):
                ratios[c] = mean_logs[at] - others.mean()
        return ratios

    def _floor(self, p: Posterior, j: int) -> Floats:
        """Return what the floor adds to drawn variances; 0 under a prior."""
        seen = p.kappa[:, j] > 0.0
        if self._is_bayes:
            return np.zeros(int(seen.sum()))
        n, m2 = p.n[seen, j], p.m2[seen, j]
        plain = np.full(len(n), m2.sum() / n.sum()) if self._is_shared else m2 / n
        floor: Floats = np.maximum(p.variance[seen, j] - plain, 0.0)
        return floor

    def _drawn_variances(
        self, p: Posterior, j: int, seen: NDArray[np.bool_], n: int, rng: np.random.Generator
    ) -> Floats:
        """Return σ² drawn for one field, shape (n, classes that have seen it)."""
        n_seen = int(seen.sum())
        size = (n, 1 if self._is_shared else n_seen)
        if self._is_bayes:
            shape = p.shape[seen, j]
            scale = p.variance[seen, j] * shape
            drawn = scale / rng.gamma(shape[:1] if self._is_shared else shape, size=size)
            return np.array(np.broadcast_to(drawn, (n, n_seen)))
        counts, m2 = p.n[seen, j], p.m2[seen, j]
        free = np.array([counts.sum() - n_seen]) if self._is_shared else counts - 1.0
        if (free < 1.0).any():
            raise InputError(
                f"group {self.state.name!r}, field {self.state.fields[j]!r}: without a prior a"
                " variance can be drawn only where a class has two examples, and one has"
                f" {counts.min():g}. Learn more, or take a NormalInverseGamma."
            )
        squares = np.array([m2.sum()]) if self._is_shared else m2
        return np.array(np.broadcast_to(squares / rng.chisquare(free, size=size), (n, n_seen)))


def log_normal(d: Floats, variance: Floats) -> Floats:
    """Return the log-density at a distance from the mean; of a point mass 0 there, -inf elsewhere.

    Examples
    --------
    >>> log_normal(np.array([0.0, 1.0]), np.array([0.0, 0.0]))
    array([  0., -inf])
    """
    d, variance = np.broadcast_arrays(d, variance)
    point = np.where(d == 0.0, 0.0, -np.inf)
    v = np.where(variance > 0.0, variance, 1.0)
    found: Floats = np.where(variance > 0.0, -0.5 * (np.log(2.0 * np.pi * v) + d * d / v), point)
    return found
