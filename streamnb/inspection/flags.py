"""What a group of flags tells of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamnb.errors import InputError
from streamnb.features.flags import FlagsState
from streamnb.inspection.categorical import log_ratio, value_effect
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


class FlagsView(View):
    """What is asked of a group of flags beyond judging; see `View`."""

    state: FlagsState

    def _tops(self) -> tuple[list[int], Floats, Floats]:
        """Return the fields that say something, and N_jc + β₁ and n_jc − N_jc + β₂ of each."""
        counts, betas = self.state.counts, self.state.betas
        places = [int(j) for j in self.state.live_fields() if j < len(counts.true)]
        false = counts.false
        if self.state.spec.absent_is_false:
            false = np.maximum(counts.examples - counts.true, 0.0)
        rows = places if len(betas.present) > 1 else [0] * len(places)
        one = counts.true[places] + betas.present[rows] * self.scale
        other = false[places] + betas.absent[rows] * self.scale
        speaks = np.array(
            [
                bool((counts.true[j] + false[j]).any() or (one[i] + other[i]).all())
                for i, j in enumerate(places)
            ],
            dtype=np.bool_,
        )
        places = [j for i, j in enumerate(places) if speaks[i]]
        return places, one[speaks], other[speaks]

    def _names(self, places: list[int]) -> list[str]:
        return [self.state.table.names[j] for j in places]

    def parameters(self) -> ParameterCount:
        """Count k·s: each flag has one parameter a class, and it is free."""
        n = self.state.counts.true.shape[1] * len(self._tops()[0])
        return ParameterCount(n, n)

    def log_likelihood(self) -> float:
        """Return Σ_c Σ_j N_jc·log θ_jc + (n_jc − N_jc)·log(1 − θ_jc)."""
        places, one, other = self._tops()
        counts, total = self.state.counts, 0.0
        false = counts.false
        if self.state.spec.absent_is_false:
            false = np.maximum(counts.examples - counts.true, 0.0)
        for n, tops in ((counts.true[places], one), (false[places], other)):
            logs = log_ratio(tops, one + other)
            total += float((n / self.scale * np.where(n > 0.0, logs, 0.0)).sum())
        return total

    def sample(self, labels: NDArray[np.int32], rng: np.random.Generator) -> dict[str, list[Any]]:
        """Draw each flag; None where a class knows nothing of it."""
        places, one, other = self._tops()
        out: dict[str, list[Any]] = {}
        for i, name in enumerate(self._names(places)):
            total = (one[i] + other[i])[labels]
            is_true = rng.random(len(labels)) * total < one[i][labels]
            out[name] = [
                bool(flag) if known else None
                for flag, known in zip(is_true, total > 0.0, strict=True)
            ]
        return out

    def linear(self) -> Linear:
        """Return w_jc = log θ_jc/(1 − θ_jc) and b_c = Σ_j log(1 − θ_jc), of flags that are there.

        Raises
        ------
        InputError
            Where a flag is certain: log(1 − θ) is infinite, and no weight could take it back.
        """
        places, one, other = self._tops()
        certain = np.flatnonzero((other <= 0.0).any(axis=1))
        if len(certain):
            name = self._names(places)[certain[0]]
            raise InputError(
                f"flag {name!r} is certain in one class, so that there is no linear form. Give a"
                " prior above 0."
            )
        with np.errstate(divide="ignore"):
            weights = np.log(one) - np.log(other)
        return Linear(self._names(places), weights, log_ratio(other, one + other).sum(axis=0))

    def log_odds(self) -> FeatureLogs:
        """Return log θ_jc of each flag."""
        places, one, other = self._tops()
        return FeatureLogs(names_from(self._names(places)), log_ratio(one, one + other))

    def log_odds_of_values(self) -> FeatureLogs:
        """Return log θ_jc of each true flag, then log(1 − θ_jc) of each false one."""
        places, one, other = self._tops()
        names = [f"{name}={value}" for value in ("true", "false") for name in self._names(places)]
        return FeatureLogs(
            names_from(names), log_ratio(np.concatenate((one, other)), np.tile(one + other, (2, 1)))
        )

    def _asked(self, fields: Any, row: int) -> list[tuple[int, float]]:
        """Return the flags that speak of an example, as rows of `_tops`, and their values."""
        out = []
        for i, name in enumerate(self._names(self._tops()[0])):
            value = np.nan
            if name in fields.names:
                value = float(fields.values[row, fields.names.index(name)])
            if self.state.spec.absent_is_false and np.isnan(value):
                value = 0.0
            if not np.isnan(value):
                out.append((i, value))
        return out

    def contributions(self, fields: Any, row: int) -> list[Effect]:
        """Return log θ of each flag that is true, log(1 − θ) of each that is false."""
        places, one, other = self._tops()
        names = self._names(places)
        return [
            value_effect(
                names[i],
                "true" if value else "false",
                log_ratio(one[i] if value else other[i], one[i] + other[i]),
            )
            for i, value in self._asked(fields, row)
        ]

    def draws(self, fields: Any, row: int, n: int, rng: np.random.Generator) -> Floats:
        """Draw log-likelihoods: each θ_jc from its Beta posterior."""
        _, one, other = self._tops()
        out = np.zeros((n, self.state.counts.true.shape[1]))
        for i, value in self._asked(fields, row):
            true, false = log_betas(one[i] / self.scale, other[i] / self.scale, n, rng)
            out += true if value else false
        return out

    def moments(self, fields: Any, row: int) -> tuple[Floats, Floats]:
        """Return mean and variance of what `draws` draws, each of shape (n_classes,)."""
        _, one, other = self._tops()
        mean, variance = np.zeros((2, self.state.counts.true.shape[1]))
        for i, value in self._asked(fields, row):
            shapes = (one[i], other[i]) if value else (other[i], one[i])
            own = log_beta_moments(shapes[0] / self.scale, shapes[1] / self.scale)
            mean, variance = mean + own[0], variance + own[1]
        return mean, variance
