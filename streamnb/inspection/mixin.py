"""What can be asked of a model or a snapshot about itself; each answer has a file beside this one.

Asking never changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from streamnb.errors import InputError, check_whole
from streamnb.features.protocol import Floats
from streamnb.inspection import data_likelihood as likelihood
from streamnb.inspection import display as shown
from streamnb.inspection import explain as explaining
from streamnb.inspection import intervals as credible
from streamnb.inspection import parameters, sampling
from streamnb.inspection.data_likelihood import DataLikelihood
from streamnb.inspection.explain import Explanation
from streamnb.inspection.group_view import GroupView, ParameterCount
from streamnb.inspection.linear import LinearForm
from streamnb.inspection.parameters import Parameters
from streamnb.inspection.rank import RankedFeature, rank
from streamnb.inspection.views import view_of
from streamnb.inspection.words import MultinomialView
from streamnb.labels import Codes, Label, unlabelled_rows
from streamnb.predict import Judging
from streamnb.priors import Fixed

Seed = int | np.random.Generator | None


class Telling(Judging):
    """The telling side that models and snapshots share."""

    def parameters(self) -> Parameters:
        """Count the parameters as they stand: table entries, and those that are independent."""
        k = len(self._classes)
        is_fixed = isinstance(self._class_prior, Fixed)
        prior = ParameterCount(k, 0 if is_fixed else max(k - 1, 0))
        counts = {name: view.parameters() for name, view in self._views().items()}
        return parameters.count(prior, counts, self._groups)

    # ---- data ----------------------------------------------------------------------------------

    def likelihood_of(
        self,
        columns: Any,
        labels: Sequence[Label] | Codes,
        *,
        with_coefficient: bool = False,
    ) -> DataLikelihood:
        """Return how likely examples with their labels are: joint and conditional.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            Fields by name, each of length n.
        labels : sequence of str, int or bool, or Codes, of length n
        with_coefficient : bool
            Add log m!/∏x_j! for each example and multinomial group; it is the same for all classes,
            so that no posterior depends on it.

        Raises
        ------
        InputError
            For a value or label that cannot be used, a class that the model does not know, or no
            example at all.
        """
        fields, n = self._read(columns)
        places = likelihood.places_of(labels, n, self._classes)
        joint = likelihood.chosen(self.joint_log_likelihood_many(columns), places).sum()
        if with_coefficient:
            for name, view in self._views().items():
                if isinstance(view, MultinomialView):
                    joint += view.log_coefficients(fields[name], n).sum()
        log_posteriors = likelihood.chosen(self.predict_log_proba_many(columns), places)
        loss = likelihood.mean_loss(log_posteriors)
        return DataLikelihood(n, float(joint), with_coefficient, loss)

    def log_likelihood(
        self,
        columns: Any,
        labels: Sequence[Label] | Codes,
        *,
        with_coefficient: bool = False,
    ) -> float:
        """Return the joint Σ log p(x, y), in nats; see `likelihood_of`."""
        found = self.likelihood_of(columns, labels, with_coefficient=with_coefficient)
        return found.log_likelihood

    def nll(
        self,
        columns: Any,
        labels: Sequence[Label] | Codes,
        *,
        with_coefficient: bool = False,
    ) -> float:
        """Return the joint −Σ log p(x, y), in nats; see `likelihood_of`."""
        return -self.log_likelihood(columns, labels, with_coefficient=with_coefficient)

    def log_loss(self, columns: Any, labels: Sequence[Label] | Codes) -> float:
        """Return the conditional mean of −log p(y | x), in nats an example; see `likelihood_of`."""
        return self.likelihood_of(columns, labels).log_loss

    def training_log_likelihood(self) -> float:
        """Return the joint Σ log p(x, y) of all that was learned, under the present estimates.

        It is what `log_likelihood` gives for the same examples, from the statistics alone: without
        multinomial coefficients, weighted, and decayed up to now. What has left a full vocabulary
        is not in it.

        Raises
        ------
        InputError
            If a group has no likelihood, or one that does not follow from its statistics: numbers
            under `NormalInverseGamma`. Give the examples to `log_likelihood` then.
        """
        held = self._class_counts / self._clock.scale
        with np.errstate(invalid="ignore"):
            terms = np.where(held > 0.0, held * self._log_class_priors(), 0.0)
        own = sum(view.log_likelihood() for view in self._views().values())
        return float(terms.sum()) + own

    # ---- the generative model ------------------------------------------------------------------

    def sample(self, n: int, seed: Seed = None) -> list[tuple[dict[str, Any], Label]]:
        """Draw `n` examples with their classes; see `sample_many`.

        Returns
        -------
        list of (dict of str to value, class)
            What `learn_one` takes.
        """
        columns, labels = self.sample_many(n, seed)
        return [
            ({name: values[i] for name, values in columns.items()}, label)
            for i, label in enumerate(labels)
        ]

    def sample_many(self, n: int, seed: Seed = None) -> tuple[dict[str, list[Any]], list[Label]]:
        """Draw `n` examples from the generative model: a class from π, then each group's fields.

        Words under a multinomial: a length from a Poisson distribution with the class's mean
        length, then word after word from θ_c. Words under a Bernoulli, and flags: each is there or
        not. Categories and numbers: one draw a field.

        Parameters
        ----------
        n : int
        seed : int or numpy.random.Generator, optional
            The same seed draws the same examples.

        Returns
        -------
        columns : dict of str to list
            What `learn_many` takes.
        labels : list of str, int or bool

        Raises
        ------
        InputError
            Where the model generates nothing: it says why.
        """
        rng = sampling.to_rng(seed)
        places = sampling.draw_classes(self._classes, self._log_class_priors(), n, rng)
        columns = sampling.draw_fields(self._views(), places, rng)
        return columns, [self._classes[c] for c in places.tolist()]

    # ---- what speaks for what ------------------------------------------------------------------

    def weights(self) -> LinearForm:
        """Return the linear form of the joint log-likelihood.

        Raises
        ------
        InputError
            Where there is none, as with numbers whose variance each class has for itself.
        """
        groups = {name: view.linear() for name, view in self._views().items()}
        return LinearForm(tuple(self._classes), self._log_class_priors(), groups)

    def explain_one(self, x: Mapping[str, Any]) -> Explanation:
        """Return what the class prior and each feature add to the log-odds of the likeliest class.

        Raises
        ------
        InputError
            For a value that cannot be used, or fewer than two classes.
        """
        columns = self._as_columns(x)
        log_posteriors, by_prior = self._judge_many(columns)
        fields, _ = self._read(columns)
        effects = [
            (name, effect)
            for name, view in self._views().items()
            for effect in view.contributions(fields[name], 0)
        ]
        return explaining.explain(
            self._classes,
            log_posteriors[0],
            self._log_class_priors(),
            effects,
            by_prior=bool(by_prior[0]),
        )

    def most_informative(
        self, n: int, group: str | None = None
    ) -> dict[Label, list[RankedFeature]]:
        """Return the `n` features of each class that distinguish it best from the others.

        The score is log θ_jc − log mean_o θ_jo over the other classes o. Features seen in one class
        alone stay: without smoothing their score is inf, and they lead. Of equal scores the feature
        that the class has more often comes first, then the alphabet decides. Of numbers the score
        is their mean log-likelihood ratio over the class's own examples.

        Parameters
        ----------
        n : int
            How many at most; features that speak against a class are left out.
        group : str, optional
            One group's alone.

        Raises
        ------
        InputError
            Where there is no such group, or `n` is below 0.
        """
        check_whole("n", n, 0)
        views = self._views()
        if group is not None and group not in list(views):
            raise InputError(f"group must be one of {', '.join(views)}. Got {group!r} instead.")
        chosen = views if group is None else {group: views[group]}
        return rank(chosen, self._classes, n, "log_odds")

    # ---- how sure ------------------------------------------------------------------------------

    def credible_interval_one(
        self,
        x: Mapping[str, Any],
        level: float = 0.95,
        method: Literal["sampled", "delta"] = "sampled",
        n: int = 4000,
        seed: Seed = None,
    ) -> dict[Label, tuple[float, float]]:
        """Return an interval that p(c | x) lies in with probability `level`, by class.

        It comes from the posteriors of the parameters, those of the class prior among them.

        Parameters
        ----------
        x : mapping of str to value
        level : float
            Between 0 and 1.
        method : {"sampled", "delta"}
            Quantiles under parameters drawn from their posteriors; or a normal approximation of the
            log-odds, which is fast and draws nothing.
        n : int
            How many draws.
        seed : int or numpy.random.Generator, optional

        Raises
        ------
        InputError
            For an argument that cannot be used, or a group whose parameters have no posterior.
        """
        level = credible.check_level(level)
        if method not in ("sampled", "delta"):
            raise InputError(f"method must be 'sampled' or 'delta'. Got {method!r} instead.")
        sampling.check_classes(self._classes)
        fields, _ = self._read(self._as_columns(x))
        views = self._views()
        if method == "delta":
            moments = [view.moments(fields[name], 0) for name, view in views.items()]
            ends = credible.delta_interval(self._prior_moments(), moments, level)
        else:
            rng = sampling.to_rng(seed)
            check_whole("n", n, 1)
            prior = self._prior_draws(n, rng)
            drawn = [view.draws(fields[name], 0, n, rng) for name, view in views.items()]
            ends = credible.sampled_interval(sum(drawn, prior), prior, level)
        return dict(zip(self._classes, map(tuple, ends.T.tolist()), strict=True))

    # ---- shown ---------------------------------------------------------------------------------

    def __repr__(self) -> str:
        name = type(self).__name__
        return shown.one_line(name, self._classes, self._n_examples, self._groups)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return shown.as_html(
            type(self).__name__,
            self._classes,
            self._class_counts / self._clock.scale,
            self.class_priors(),
            self._n_examples,
            self._groups,
        )

    # ---- inside --------------------------------------------------------------------------------

    def _views(self) -> dict[str, GroupView]:
        scale = self._clock.scale
        return {name: view_of(state, scale) for name, state in self._groups.items()}

    def _log_class_priors(self) -> Floats:
        """Return log π_c, ndarray of shape (n_classes,), in nats."""
        joint = np.empty((1, len(self._classes)))
        self._begin(unlabelled_rows(1, self._clock.scale), joint, joint.copy(), learn=False)
        first: Floats = joint[0]
        return first

    def _prior_moments(self) -> tuple[Floats, Floats]:
        if isinstance(self._class_prior, Fixed):
            return self._log_class_priors(), np.zeros(len(self._classes))
        return credible.prior_moments(self._class_counts / self._clock.scale + self._pseudo)

    def _prior_draws(self, n: int, rng: np.random.Generator) -> Floats:
        if isinstance(self._class_prior, Fixed):
            return np.tile(self._log_class_priors(), (n, 1))
        shapes = self._class_counts / self._clock.scale + self._pseudo
        return credible.prior_draws(shapes, n, rng)
