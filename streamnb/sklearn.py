"""The families of `StreamNBClassifier`: what each takes of X, and the group of features it means.

Three shapes of X: counts (a sparse matrix over a declared dictionary, one word a column), numbers,
and a table whose columns may hold anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from streamnb.columns import is_frame, to_mapping
from streamnb.decay import HalfLife
from streamnb.errors import InputError
from streamnb.features.bag import Bag
from streamnb.features.categorical import Categories
from streamnb.features.numeric import Numbers
from streamnb.features.protocol import Floats, Group
from streamnb.labels import Codes, Label
from streamnb.likelihoods.bernoulli import Bernoulli
from streamnb.likelihoods.gaussian import Gaussian, VarianceFloor
from streamnb.likelihoods.multinomial import Categorical, Complement, Multinomial
from streamnb.model import NaiveBayes
from streamnb.priors import Beta, ClassPrior, Dirichlet, Fixed

COUNTS = "counts"  # the only field of a group that reads a sparse matrix


@dataclass(frozen=True, slots=True)
class Intake:
    """Which X an estimator accepts; the three flags in the middle are scikit-learn's tags."""

    is_counted: bool = False  # X is converted to a sparse matrix of counts; otherwise it is a table
    positive_only: bool = False
    allow_nan: bool = False
    categorical: bool = False
    dtype: type | None = np.float64  # None leaves X unchanged, so that it may hold text


@dataclass(frozen=True, slots=True)
class Family:
    """Which X a family accepts, and the group it makes of an estimator and its columns' names."""

    intake: Intake
    group: Callable[[Any, Sequence[str]], Group]


_OF_COLUMNS = ("n_features_in_", "feature_names_in_")  # what scikit-learn notes of X


def _gaussian(estimator: Any, names: Sequence[str]) -> Group:
    return Numbers(
        Gaussian(VarianceFloor(estimator.var_smoothing), estimator.variance), tuple(names)
    )


def _categorical(estimator: Any, names: Sequence[str]) -> Group:
    likelihood = Categorical(Dirichlet(_one_alpha(estimator)))
    if estimator.min_categories is None:
        return Categories(likelihood, tuple(names))
    sizes = np.broadcast_to(np.asarray(estimator.min_categories, dtype=np.int64), len(names))
    values = {name: range(size) for name, size in zip(names, sizes.tolist(), strict=True)}
    return Categories(likelihood, tuple(names), values)


def _multinomial(estimator: Any, names: Sequence[str]) -> Group:
    return Bag(Multinomial(Dirichlet(estimator.alpha)), COUNTS, dictionary=tuple(names))


def _complement(estimator: Any, names: Sequence[str]) -> Group:
    likelihood = Complement(Dirichlet(estimator.alpha), normalise=estimator.norm)
    return Bag(likelihood, COUNTS, dictionary=tuple(names))


def _bernoulli(estimator: Any, names: Sequence[str]) -> Group:
    alpha = _one_alpha(estimator)
    likelihood = Bernoulli(Beta(alpha, alpha))
    return Bag(likelihood, COUNTS, dictionary=tuple(names))


def _one_alpha(estimator: Any) -> Any:
    """Return alpha for a family that has one for all features, or refuse one a feature."""
    shape = np.shape(estimator.alpha)
    if shape and shape[0] > 1:
        raise InputError(
            f"alpha must be one number for {estimator.family!r}; one a feature is for 'multinomial'"
            f" and 'complement'. Got an array of shape {shape} instead."
        )
    return estimator.alpha


_COUNTS = Intake(is_counted=True, positive_only=True)
FAMILIES: Mapping[str, Family] = {
    "gaussian": Family(Intake(allow_nan=True), _gaussian),
    "multinomial": Family(_COUNTS, _multinomial),
    "complement": Family(_COUNTS, _complement),
    "bernoulli": Family(Intake(is_counted=True), _bernoulli),
    "categorical": Family(Intake(allow_nan=True, categorical=True, dtype=None), _categorical),
}


def family_of(name: Any) -> Family:
    """Return a family by its name."""
    if name not in FAMILIES:
        raise InputError(f"family must be one of {', '.join(FAMILIES)}. Got {name!r} instead.")
    return FAMILIES[name]


def as_counts(X: Any, binarize: float | None) -> sparse.csr_array:
    """Return a matrix as sparse counts; with `binarize`, 1 for values above it and 0 for others."""
    if binarize is None:
        return sparse.csr_array(X)
    if sparse.issparse(X) and binarize >= 0:
        return sparse.csr_array(X > binarize, dtype=np.float64)  # noqa: SIM300 -- X has this operator
    dense = X.toarray() if sparse.issparse(X) else X
    return sparse.csr_array((dense > binarize).astype(np.float64))


def intake_of(family: Any, features: Mapping[str, Group] | None) -> Intake:
    """Return which X an estimator accepts, by its family or its groups of features."""
    if features is None:
        return family_of(family).intake
    counts_alone = all(isinstance(group, Bag) for group in features.values())
    return Intake(positive_only=counts_alone, allow_nan=True, dtype=None)


try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import assert_all_finite, check_array, check_consistent_length, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:  # pragma: no cover -- a test asks a process without it
    raise ImportError(
        "streamnb.sklearn needs scikit-learn 1.7 or later: pip install 'streamnb[sklearn]'"
    ) from error


class StreamNBClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # no types there
    """Naive Bayes with one family for all columns, or several for named columns.

    Parameters
    ----------
    family : {"gaussian", "multinomial", "complement", "bernoulli", "categorical"}
        Which of scikit-learn's five naive Bayes classes it corresponds to.
    features : mapping of str to group, optional
        As for `NaiveBayes`; `family` and its parameters are then ignored. The fields are the
        columns of a data frame; those of an array are `x0`, `x1` and so on.
    alpha : float or array-like of shape (n_features,)
        Pseudo-counts of each word, value, or presence and absence; above 0 for "complement". One a
        feature is for "multinomial" and "complement" alone.
    var_smoothing : float
        For "gaussian": the share of the largest variance that is added to all variances.
    variance : {"own", "shared"}
        For "gaussian": a variance for each class, or one for all.
    norm : bool
        For "complement": normalise the weights.
    binarize : float, optional
        For "bernoulli": values above it are present. With None, every count above zero is.
    min_categories : int or array-like of shape (n_features,), optional
        For "categorical": columns hold 0 to min_categories − 1, and other values are ignored. By
        default values are learned as they come, and may be text.
    class_prior : array-like of shape (n_classes,), Dirichlet or Fixed, optional
        Probabilities in the order of `classes_`. "complement" leaves them out, as scikit-learn's
        does, unless they are a Dirichlet or Fixed.
    fit_prior : bool
        Without `class_prior`: class frequencies, or uniform. "complement" is always uniform.
    decay : HalfLife, optional
        How fast old examples lose their weight, with a half-life in examples.
    prior_half_life : float, optional
        Half-life of the class prior alone, in examples; see `NaiveBayes`.

    Attributes
    ----------
    model_ : NaiveBayes
        The model that has learned, with all its methods.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if X had names.

    Examples
    --------
    >>> X, y = [[-1.0, 0.1], [-2.0, 0.3], [1.0, 0.2], [2.0, 0.4]], ["a", "a", "b", "b"]
    >>> StreamNBClassifier().fit(X, y).predict([[-1.5, 0.2]]).tolist()
    ['a']
    """

    def __init__(  # noqa: PLR0913 -- scikit-learn wants every parameter here
        self,
        family: str = "gaussian",
        *,
        features: Mapping[str, Group] | None = None,
        alpha: Any = 1.0,
        var_smoothing: float = 1e-9,
        variance: str = "own",
        norm: bool = False,
        binarize: float | None = 0.0,
        min_categories: Any = None,
        class_prior: Any = None,
        fit_prior: bool = True,
        decay: HalfLife | None = None,
        prior_half_life: float | None = None,
    ) -> None:
        self.family = family
        self.features = features
        self.alpha = alpha
        self.var_smoothing = var_smoothing
        self.variance = variance
        self.norm = norm
        self.binarize = binarize
        self.min_categories = min_categories
        self.class_prior = class_prior
        self.fit_prior = fit_prior
        self.decay = decay
        self.prior_half_life = prior_half_life

    # ---- learning ------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn rows in their order, after forgetting all that was learned.

        Parameters
        ----------
        X : array, sparse matrix (of counts) or data frame, of shape (n, n_features)
            Missing values (nan, None) are skipped, except in families of counts.
        y : array-like of shape (n,)
        sample_weight : array-like of shape (n,), optional
            How many examples each row counts as; 0 teaches nothing.

        Returns
        -------
        StreamNBClassifier
            Itself.

        Raises
        ------
        ValueError
            For an X, y or weight that cannot be used.
        """
        return self._learn(X, y, None, sample_weight, forget=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn more rows, exactly as if they had been passed with the earlier ones.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        classes : array-like of shape (n_classes,), optional
            All classes; required in the first call.

        Returns
        -------
        StreamNBClassifier
            Itself.

        Raises
        ------
        ValueError
            For an X, y or weight that cannot be used; what was learned before is unchanged.
        """
        is_first = not hasattr(self, "model_")
        if is_first and classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if not is_first and classes is not None:
            _check_same(self.classes_, np.unique(column_or_1d(classes)))
        return self._learn(X, y, classes, sample_weight, forget=is_first)

    # ---- prediction ----------------------------------------------------------------------------

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, ndarray of shape (n,)."""
        best = self.predict_log_proba(X).argmax(axis=1)
        found: NDArray[Any] = self.classes_[best]
        return found

    def predict_proba(self, X: Any) -> Floats:
        """Return p(c | x), ndarray of shape (n, n_classes), in the order of `classes_`."""
        proba: Floats = np.exp(self.predict_log_proba(X))
        return proba

    def predict_log_proba(self, X: Any) -> Floats:
        """Return log p(c | x), ndarray of shape (n, n_classes), in nats; never nan."""
        check_is_fitted(self)
        return self.model_.predict_log_proba_many(self._columns(X, reset=False))

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """Return log p(x, c), ndarray of shape (n, n_classes), in nats."""
        check_is_fitted(self)
        return self.model_.joint_log_likelihood_many(self._columns(X, reset=False))

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: which input the estimator accepts."""
        tags = super().__sklearn_tags__()
        intake = intake_of(self.family, self.features)
        tags.input_tags.sparse = intake.is_counted
        tags.input_tags.positive_only = intake.positive_only
        tags.input_tags.allow_nan = intake.allow_nan
        tags.input_tags.categorical = intake.categorical
        tags.input_tags.string = intake.dtype is None
        # scikit-learn's checks separate clusters by location, which counts cannot.
        tags.classifier_tags.poor_score = intake.positive_only
        return tags

    # ---- inside --------------------------------------------------------------------------------

    def _learn(self, X: Any, y: Any, classes: Any, weights: Any, *, forget: bool) -> Self:
        """Learn rows; what is refused leaves the shape and names of X as they were, too."""
        own = self.__dict__
        before = {name: own[name] for name in _OF_COLUMNS if name in own}
        try:
            return self._learned(X, y, classes, weights, forget=forget)
        except BaseException:
            for name in _OF_COLUMNS:
                own.pop(name, None)
            own.update(before)
            raise

    def _learned(self, X: Any, y: Any, classes: Any, weights: Any, *, forget: bool) -> Self:
        columns = self._columns(X, reset=forget)
        labels = _targets(X, y)
        given = _weights(X, weights, at_least_one=forget and classes is None)
        if forget:
            known = np.unique(labels if classes is None else column_or_1d(classes))
        else:
            known = self.classes_
        _check_known(labels, known)
        model = self.model_ if not forget else NaiveBayes(
            _class_labels(known), self._class_prior(known), self._groups(), decay=self.decay,
            prior_half_life=self.prior_half_life,
        )  # fmt: skip
        codes = np.searchsorted(known, labels).astype(np.int32)
        model.learn_many(columns, Codes(codes, _class_labels(known)), weights=given)
        self.classes_: NDArray[Any] = known  # here, where nothing is refused any more
        self.model_: NaiveBayes = model
        return self

    def _columns(self, X: Any, *, reset: bool) -> Mapping[str, Any]:
        """Return X as the model's fields; `reset` stores its shape and names for later calls."""
        if self.features is not None and is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return {str(name): values for name, values in to_mapping(X).items()}
        intake = intake_of(self.family, self.features)
        checked = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr" if intake.is_counted else False,
            dtype=intake.dtype,
            ensure_all_finite="allow-nan" if intake.allow_nan else True,
            ensure_non_negative=intake.positive_only,
        )
        if not intake.is_counted:
            return dict(zip(self._names(), checked.T, strict=True))
        return {COUNTS: as_counts(checked, self.binarize if self.family == "bernoulli" else None)}

    def _names(self) -> list[str]:
        """Return the columns' names."""
        named = getattr(self, "feature_names_in_", None)
        if named is None or len(set(named)) < len(named):
            return [f"x{j}" for j in range(self.n_features_in_)]
        return [str(name) for name in named]

    def _groups(self) -> Mapping[str, Group]:
        if self.features is not None:
            return self.features
        return {self.family: family_of(self.family).group(self, self._names())}

    def _class_prior(self, classes: NDArray[Any]) -> ClassPrior:
        given = self.class_prior
        if isinstance(given, Dirichlet | Fixed):
            return given
        is_complement = self.features is None and self.family == "complement"
        if given is None and self.fit_prior and not is_complement:
            return Dirichlet(0.0)
        k = len(classes)
        uniform = np.full(k, 1.0 / k)
        probabilities = uniform if given is None else column_or_1d(given)
        if len(probabilities) != k:
            raise ValueError(
                f"class_prior has {len(probabilities)} probabilities, and there are {k} classes."
            )
        used = uniform if is_complement else probabilities
        return Fixed(dict(zip(_class_labels(classes), used.tolist(), strict=True)))


def _class_labels(classes: NDArray[Any]) -> tuple[Label, ...]:
    """Return the model's labels of classes: the classes, or their text if they are floats."""
    plain = classes.tolist()
    return tuple(label if isinstance(label, str | int) else str(label) for label in plain)


def _targets(X: Any, y: Any) -> NDArray[Any]:
    """Return y as an array of classes, one a row of X."""
    if y is None:
        raise ValueError("StreamNBClassifier requires y to be passed, but the target y is None.")
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    check_consistent_length(X, labels)
    return labels


def _weights(X: Any, weights: Any, *, at_least_one: bool) -> Floats | None:
    """Return weights, one a row of X."""
    if weights is None:
        return None
    if isinstance(weights, Real):
        return np.full(X.shape[0] if hasattr(X, "shape") else len(X), float(weights))
    given: Floats = check_array(
        weights, ensure_2d=False, dtype=np.float64, input_name="sample_weight"
    )
    if given.ndim != 1:
        raise ValueError(f"sample_weight must have one dimension. Got {given.ndim} instead.")
    check_consistent_length(X, given)
    if at_least_one and not given.any():
        raise ValueError("sample_weight is zero for all rows: there is nothing to learn.")
    return given


def _check_known(labels: NDArray[Any], classes: NDArray[Any]) -> None:
    unknown = np.setdiff1d(labels, classes).tolist()
    if unknown:
        raise ValueError(
            f"y holds {unknown[0]!r}, which is not among the classes {classes.tolist()}."
        )


def _check_same(classes: NDArray[Any], given: NDArray[Any]) -> None:
    if not np.array_equal(classes, given):
        raise ValueError(
            f"classes must be those of the first call, {classes.tolist()}. Got {given.tolist()}."
        )
