"""What a model and a snapshot both answer: each method is one question to their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from streamnb import predict
from streamnb.errors import check_whole
from streamnb.features.protocol import Floats
from streamnb.inspection import explain, parameters, summary
from streamnb.inspection.explain import Explanation, RankedFeature
from streamnb.inspection.parameters import DataLikelihood, LinearForm, Parameters, Seed
from streamnb.inspection.words import word_groups, word_view
from streamnb.labels import UNLABELLED, Codes, Label
from streamnb.likelihoods.multinomial import vocabulary_size
from streamnb.predict import Judgement
from streamnb.state import ModelState


class ModelReader:
    """The questions that models and snapshots answer alike. Asking never changes anything.

    Attributes
    ----------
    state : ModelState
        All that is known. The library's own modules read it; treat it as read-only.
    """

    state: ModelState
    is_sealed: ClassVar[bool] = True  # whether nothing can change what it knows

    # ---- other answers from the same counts ----------------------------------------------------

    def raw(self) -> ModelReader:
        """Return what answers by the counts alone, without the weights of a `Hybrid`.

        It stands as this model does now: what is learned later is not in it.

        Examples
        --------
        >>> import streamnb as nb
        >>> words = nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())
        >>> model = nb.NaiveBayes(["ham", "spam"], features={"text": words})
        >>> model.learn_many({"text": ["a prize", "lunch"]}, ["spam", "ham"])
        >>> round(model.raw().predict_proba_one({"text": "a prize"})["spam"], 3)
        0.719
        """
        return _Answers(self._settled().raw())

    def without_prior(self) -> ModelReader:
        """Return what answers as if all classes were equally probable beforehand.

        For a question that does not come from the stream that was learned, whose mix of classes
        says nothing about it. It stands as this model does now. With a `Hybrid` a rare class is
        less probable than the others: of three examples among thousands too little is known
        (docs/accuracy.md).

        Examples
        --------
        >>> import streamnb as nb
        >>> model = nb.NaiveBayes(features={"text": nb.Words(nb.Multinomial())})
        >>> model.learn_many({"text": ["a", "a", "a"]}, ["x", "x", "y"])
        >>> model.without_prior().predict_proba_one({"text": "a"})
        {'x': 0.5, 'y': 0.5}
        """
        return _Answers(self._settled().without_prior())

    def _settled(self) -> ModelState:
        """Return the state, or a copy that later learning does not touch."""
        return self.state if self.is_sealed else self.state.frozen_copy(with_parts=False)

    # ---- counts --------------------------------------------------------------------------------

    @property
    def classes(self) -> tuple[Label, ...]:
        """Classes, in the order of all arrays."""
        return tuple(self.state.classes)

    @property
    def class_counts(self) -> Floats:
        """N_c, ndarray of shape (n_classes,): weighted, and decayed up to now."""
        return self.state.class_counts / self.state.clock.scale

    @property
    def n_examples(self) -> int:
        """Number of examples learned, each counting one whatever its weight."""
        return self.state.n_examples

    @property
    def vocabulary_size(self) -> int:
        """V: words with a count above zero, over all groups."""
        return sum(vocabulary_size(group.counts) for group in word_groups(self.state).values())

    @property
    def words_dropped(self) -> int:
        """How many words have left because a vocabulary was full."""
        return sum(group.n_dropped for group in word_groups(self.state).values())

    def digest(self, part: str | None = None, *, moments: bool = True) -> str:
        """Return the SHA-256 of all that was counted, in hexadecimal.

        It covers the counts by class and word, value or flag, each with its name, and of numbers
        the bytes of n, mean and M2. It depends on nothing else: not on the hash key, the order in
        which words and classes came, priors, or what is at zero again; nor on parts, as it is of
        their sum. So a model that learned an example and unlearned it has the digest of one that
        never did, as long as no word has left a full vocabulary, weights are whole numbers, and
        nothing decays; with numbers only without `moments`, as means come back to rounding. Decayed
        counts enter as they are kept, with the landmark that they are relative to.

        Parameters
        ----------
        part : str, optional
            The digest of one part alone.
        moments : bool
            Whether means and variances of numbers count too.

        Raises
        ------
        InputError
            If there is no such part.

        Examples
        --------
        >>> import streamnb as nb
        >>> model = nb.NaiveBayes(features={"text": nb.Words(nb.Multinomial())})
        >>> model.learn_one({"text": "a prize"}, "spam")
        >>> before = model.digest()
        >>> model.learn_one({"text": "lunch"}, "ham")
        >>> model.digest() == before
        False
        >>> model.unlearn_one({"text": "lunch"}, "ham")
        >>> model.digest() == before
        True
        """
        return summary.digest(self.state, part, moments=moments)

    def words(self, group: str | None = None) -> list[str]:
        """Return all words with a count above zero: n-grams with spaces, `¬` if negated."""
        view = word_view(self.state, group)
        return view.state.vocabulary.words(view.counted())

    def word_counts(self, words: Sequence[str], group: str | None = None) -> Floats:
        """Return N_jc, ndarray of shape (n_words, n_classes); words not known have zeros.

        Weighted, and decayed up to now.
        """
        view = word_view(self.state, group)
        return view.by_text(words, view.counts_of)

    def word_likelihoods(self, words: Sequence[str], group: str | None = None) -> Floats:
        """Return θ̂_jc, ndarray of shape (n_words, n_classes); words not known have zeros."""
        view = word_view(self.state, group)
        return view.by_text(words, view.theta)

    def top_words(self, n: int, group: str | None = None) -> list[str]:
        """Return the `n` words with the largest count over all classes; ties by the alphabet."""
        return word_view(self.state, group).most_frequent(n)

    def telling_words(
        self, n: int, group: str | None = None
    ) -> dict[Label, list[tuple[str, float]]]:
        """Return the `n` most telling words of each class, with their scores.

        The score is θ_jc·(log θ_jc − log θ_jo), o the other classes' mean: what the word adds on
        average, in nats, to the log-odds of a text of that class. Frequent and one-sided words
        lead; words seen once do not.
        """
        check_whole("n", n, 0)
        view = word_view(self.state, group)
        ranked = explain.rank({view.state.name: view}, self.state.classes, n, "contribution")
        return {label: [each[1:3] for each in found] for label, found in ranked.items()}

    # ---- posteriors ----------------------------------------------------------------------------

    def predict_one(self, x: Mapping[str, Any]) -> Label | None:
        """Return the most probable class, the one declared first on a tie; None without classes."""
        posteriors = predict.run_one(self.state, x, UNLABELLED)
        if posteriors is None:
            posteriors = predict.log_posteriors(self.state, predict.to_columns(self.state, x))[0]
        return self.state.classes[int(posteriors.argmax())] if len(posteriors) else None

    def predict_proba_one(self, x: Mapping[str, Any]) -> dict[Label, float]:
        """Return p(c | x) by class."""
        return predict.by_class(self.state, np.exp(predict.log_posteriors_one(self.state, x)))

    def predict_log_proba_one(self, x: Mapping[str, Any]) -> dict[Label, float]:
        """Return log p(c | x) by class, in nats."""
        return predict.by_class(self.state, predict.log_posteriors_one(self.state, x))

    def judge_one(self, x: Mapping[str, Any]) -> Judgement:
        """Return the posterior of one example, and whether the class prior alone answered.

        Raises
        ------
        InputError
            For a value that cannot be used, or a model without classes.
        """
        return predict.judge_one(self.state, x)

    def joint_log_likelihood_one(self, x: Mapping[str, Any]) -> dict[Label, float]:
        """Return log p(x, c) by class, in nats.

        The multinomial coefficient, the same for all classes, is left out.
        """
        columns = predict.to_columns(self.state, x)
        joint, _ = predict.joint_and_prior(self.state.raw(), columns)
        return predict.by_class(self.state, joint[0])

    def predict_many(self, columns: Any) -> list[Label]:
        """Return the most probable class of each example; see `predict_log_proba_many`.

        Raises
        ------
        InputError
            For a value that cannot be used, or a model without classes.
        """
        return predict.best_classes(self.state, columns)

    def predict_log_proba_many(self, columns: Any) -> Floats:
        """Return log p(c | x).

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            Fields by name, each of length n; any data frame that narwhals understands.

        Returns
        -------
        ndarray of shape (n, n_classes), in nats
            Never `nan`: if every class has likelihood zero, the class prior answers.
        """
        return predict.log_posteriors(self.state, columns)

    def answered_by_prior(self, columns: Any) -> NDArray[np.bool_]:
        """Return for each example whether every class is impossible, so that the prior answers.

        Returns
        -------
        ndarray of shape (n,), bool
        """
        return predict.judge(self.state, columns)[1]

    def joint_log_likelihood_many(self, columns: Any) -> Floats:
        """Return log p(x, c), ndarray of shape (n, n_classes), in nats."""
        return predict.joint_and_prior(self.state.raw(), columns)[0]

    def class_priors(self) -> Floats:
        """Return π̂_c = (N_c + α_c)/(n + Σα), ndarray of shape (n_classes,).

        By the recent examples if the class prior has a half-life; as given if it is `Fixed`. All
        are equal where it is left out: in a model of `Complement(normalise=True)` alone.
        """
        priors: Floats = np.exp(predict.log_class_priors(self.state))
        return priors

    # ---- likelihood of data --------------------------------------------------------------------

    def likelihood_of(
        self, columns: Any, labels: Sequence[Label] | Codes, *, with_coefficient: bool = False
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
        return parameters.likelihood_of(
            self.state, columns, labels, with_coefficient=with_coefficient
        )

    def log_likelihood(
        self, columns: Any, labels: Sequence[Label] | Codes, *, with_coefficient: bool = False
    ) -> float:
        """Return the joint Σ log p(x, y), in nats; see `likelihood_of`."""
        found = self.likelihood_of(columns, labels, with_coefficient=with_coefficient)
        return found.log_likelihood

    def nll(
        self, columns: Any, labels: Sequence[Label] | Codes, *, with_coefficient: bool = False
    ) -> float:
        """Return the joint −Σ log p(x, y), in nats; see `likelihood_of`."""
        return -self.log_likelihood(columns, labels, with_coefficient=with_coefficient)

    def log_loss(self, columns: Any, labels: Sequence[Label] | Codes) -> float:
        """Return the mean of −log p(y | x) as it is answered, in nats; see `likelihood_of`."""
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
        return parameters.training_log_likelihood(self.state)

    # ---- the generative model ------------------------------------------------------------------

    def sample(
        self, n: int, seed: Seed = None, *, length: int | None = None
    ) -> list[tuple[dict[str, Any], Label]]:
        """Draw `n` examples with their classes; see `sample_many`.

        Returns
        -------
        list of (dict of str to value, class)
            What `learn_one` takes.
        """
        columns, labels = self.sample_many(n, seed, length=length)
        return [
            ({name: values[i] for name, values in columns.items()}, label)
            for i, label in enumerate(labels)
        ]

    def sample_many(
        self, n: int, seed: Seed = None, *, length: int | None = None
    ) -> tuple[dict[str, list[Any]], list[Label]]:
        """Draw `n` examples from the generative model: a class from π, then each group's fields.

        Words under a multinomial: a length from a Poisson distribution with the class's mean
        length, then word after word from θ_c. Words under a Bernoulli, and flags: each is there or
        not. Categories and numbers: one draw a field.

        Parameters
        ----------
        n : int
        seed : int or numpy.random.Generator, optional
            The same seed draws the same examples.
        length : int, optional
            How many words each text under a multinomial has, instead of a drawn length.

        Returns
        -------
        columns : dict of str to list
            What `learn_many` takes.
        labels : list of str, int or bool

        Raises
        ------
        InputError
            If the model generates nothing: it says why.
        """
        return parameters.sample_many(self.state, n, seed, length)

    # ---- what speaks for what ------------------------------------------------------------------

    def weights(self) -> LinearForm:
        """Return the linear form of the joint log-likelihood.

        Raises
        ------
        InputError
            If there is none, as with numbers whose variance each class has for itself.
        """
        return parameters.linear_form(self.state)

    def explain_one(self, x: Mapping[str, Any]) -> Explanation:
        """Return what the class prior and each feature add to the winner's log-odds.

        Raises
        ------
        InputError
            For a value that cannot be used, or fewer than two classes.
        """
        return explain.explain_one(self.state, x)

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
            If there is no such group, or `n` is below 0.
        """
        return explain.most_informative(self.state, n, group)

    def parameters(self) -> Parameters:
        """Count the parameters as they stand: table entries, and those that are independent."""
        return parameters.count(self.state)

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
        return parameters.credible_interval_one(self.state, x, level, method, n, seed)

    # ---- display -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return summary.one_line(type(self).__name__, self.state)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return summary.as_html(type(self).__name__, self.state)


class _Answers(ModelReader):
    """Answers of a state that is not learned any more."""

    def __init__(self, state: ModelState) -> None:
        self.state = state
