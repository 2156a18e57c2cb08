"""`StreamNB`: naive Bayes as a River classifier, for single examples and mini-batches.

River is imported here and nowhere else in the library. Unlike in River's own naive Bayes,
`learn_many` and `predict_many` give exactly what `learn_one` and `predict_one` give.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
from scipy import sparse

from streamnb.columns import read_losses, to_mapping
from streamnb.decay import HalfLife
from streamnb.errors import InputError
from streamnb.features.bag import Bag, CountTable, from_columns
from streamnb.features.categorical import Categories
from streamnb.features.flags import Flags
from streamnb.features.numeric import Numbers
from streamnb.features.protocol import Floats, Group
from streamnb.labels import Label, check_label
from streamnb.likelihoods.gaussian import Gaussian, NormalInverseGamma
from streamnb.likelihoods.multinomial import Multinomial
from streamnb.model import NaiveBayes
from streamnb.priors import ClassPrior, check

try:
    from river import base
    from river import drift as river_drift
except ImportError as error:  # pragma: no cover -- a test asks a process without it
    raise ImportError("streamnb.river needs River: pip install 'streamnb[river]'") from error


class StreamNB(base.MiniBatchClassifier):
    """Naive Bayes over any fields of a River stream.

    Parameters
    ----------
    features : mapping of str to group, or a group, optional
        As for `NaiveBayes`; a single group needs no name. By default the first value of a field
        decides its group: `Numbers` for numbers, with a prior that is useful from the first example
        on (`NormalInverseGamma`), `Flags` for truth values, `Categories` for text. After
        `BagOfWords` or `TFIDF`, whose fields are words, use ``Bag(Multinomial())``: a single bag
        without declared fields reads all fields.
    classes : iterable of str, int or bool, optional
        Classes known from the start; others join as they come.
    class_prior : Dirichlet or Fixed, optional
    decay : HalfLife, optional
        How fast old examples lose their weight, with a half-life in examples.
    hash_key : int, optional
        As for `NaiveBayes`.

    Attributes
    ----------
    model : NaiveBayes
        The model that has learned, with all its methods.

    Notes
    -----
    A field is identified by the text of its name: `1` and `"1"` are one field. Labels are str, int
    or bool; True and 1 are one class, as they are one key of a `dict`.

    Examples
    --------
    >>> from river import compose, feature_extraction
    >>> import streamnb as nb
    >>> model = compose.Pipeline(
    ...     feature_extraction.BagOfWords(),
    ...     StreamNB(nb.Bag(nb.Multinomial())),
    ... )
    >>> model.learn_one("win a prize", "spam")
    >>> model.learn_one("lunch at noon", "ham")
    >>> model.predict_one("a prize for you")
    'spam'
    """

    def __init__(
        self,
        features: Mapping[str, Group] | Group | None = None,
        classes: Iterable[Label] | None = None,
        class_prior: ClassPrior | None = None,
        decay: HalfLife | None = None,
        hash_key: int | None = None,
        prior_half_life: float | None = None,
    ) -> None:
        self.features = features
        # None if there are none: River cannot inspect an empty tuple.
        self.classes = tuple(() if classes is None else classes) or None
        self.class_prior = class_prior
        self.decay = decay
        self.prior_half_life = prior_half_life
        self.hash_key = _Hidden(hash_key) if type(hash_key) is int else hash_key
        groups = _groups(features)
        bag = _bag_of_all(groups)
        self._is_bag = bag is not None
        if bag is not None:
            groups = dict.fromkeys(groups, replace(bag, field=_WORDS))
        self.model = NaiveBayes(
            self.classes or (),
            class_prior,
            groups,
            decay=decay,
            hash_key=int(hash_key) if isinstance(hash_key, _Hidden) else hash_key,
            new_classes=True,  # a River model accepts any label of its stream
            prior_half_life=prior_half_life,
        )

    # ---- one at a time -------------------------------------------------------------------------

    def learn_one(self, x: Mapping[Any, Any], y: Label, w: float = 1.0) -> None:
        """Learn one example.

        Parameters
        ----------
        x : mapping of hashable to value
            Fields by name; one that is missing or None says nothing.
        y : str, int or bool
        w : float
            How many examples it counts as; 0 teaches nothing.

        Raises
        ------
        InputError
            For a value, label or weight that cannot be used; the model is unchanged.
        """
        label = y if type(y) in _PLAIN_LABELS else check_label("y", 0, y)
        self.model.learn_one(self._fields(x), label, weight=w)

    def predict_one(self, x: Mapping[Any, Any], **_: Any) -> Label | None:
        """Return the most probable class; None before any is known."""
        return self.model.predict_one(self._fields(x))

    def predict_proba_one(self, x: Mapping[Any, Any], **_: Any) -> dict[Label, float]:
        """Return p(c | x) by class; nothing before any is known."""
        return self.model.predict_proba_one(self._fields(x))

    def joint_log_likelihood(self, x: Mapping[Any, Any]) -> dict[Label, float]:
        """Return log p(x, c) by class, in nats."""
        return self.model.joint_log_likelihood_one(self._fields(x))

    # ---- mini-batches --------------------------------------------------------------------------

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a frame in their order, exactly as `learn_one` would.

        Parameters
        ----------
        X : data frame of shape (n, n_fields)
            Of pandas, Polars, Arrow or another library that narwhals supports.
        y : series, array or sequence, of length n

        Raises
        ------
        InputError
            For a value or label that cannot be used; the model is unchanged.
        """
        if self._is_bag or not isinstance(X, Mapping):
            _frame(X)
        if len(X):
            labels = nw.from_native(y, series_only=True, pass_through=True)
            is_row = isinstance(labels, Iterable) and not isinstance(labels, str)
            if is_row and not hasattr(labels, "to_pylist"):  # Arrow's arrays yield its own scalars
                labels = list(labels)
            self.model.learn_many(self._columns(X), labels)

    def predict_many(self, X: Any) -> Any:
        """Return the most probable class of each row.

        Returns
        -------
        series of length n
            Of the frame's own library, with its index; None before any class is known.

        Raises
        ------
        InputError
            If classes are of more than one kind, as 1 and "a", and the library is not pandas.
        """
        frame = _frame(X)
        classes = self.model.classes
        kinds = {next(k for k in (bool, int, str) if isinstance(c, k)) for c in classes}
        if len(kinds) > 1 and not frame.implementation.is_pandas_like():
            raise InputError(
                f"a series of {frame.implementation.value} holds no labels of more than one kind,"
                f" among {', '.join(map(repr, classes))}. Pass a frame of pandas, or ask for"
                " predict_proba_many."
            )
        labels: list[Any] = [None] * len(frame)
        if len(frame) and classes:
            labels = self.model.predict_many(self._columns(X))
        found = nw.new_series(None, labels, backend=frame.implementation)  # type: ignore[arg-type]
        return _with_index_of(frame, found.to_native())

    def predict_proba_many(self, X: Any) -> Any:
        """Return p(c | x) of each row.

        Returns
        -------
        data frame of shape (n, n_classes)
            Of the frame's own library, with its index; a column a class. Libraries whose columns
            need text for a name have the class's text there.

        Raises
        ------
        InputError
            If such a library's frame is asked of classes of one text, as 1 and "1".
        """
        return self._answer(X, lambda columns: np.exp(self.model.predict_log_proba_many(columns)))

    def joint_log_likelihood_many(self, X: Any) -> Any:
        """Return log p(x, c) of each row, in nats; shaped as `predict_proba_many`."""
        return self._answer(X, self.model.joint_log_likelihood_many)

    @staticmethod
    def default_features() -> dict[str, Group]:
        """Return open groups of numbers, flags and categories, for fields of any of these."""
        # A prior mean of little weight does not pull the classes towards each other.
        numbers = Numbers(Gaussian(NormalInverseGamma(kappa=0.01)))
        return {"numbers": numbers, "flags": Flags(), "categories": Categories()}

    # ---- River's hooks -------------------------------------------------------------------------

    @property
    def _multiclass(self) -> bool:
        return True

    def _more_tags(self) -> set[str]:
        counts = any(isinstance(group, Bag) for group in _groups(self.features).values())
        return {base.tags.POSITIVE_INPUT} if counts else set()

    @classmethod
    def _unit_test_params(cls) -> Iterator[dict[str, Any]]:
        yield {}
        yield {"features": Bag(Multinomial())}
        yield {"decay": HalfLife(examples=100.0)}
        yield {"prior_half_life": 100.0}

    # ---- inside --------------------------------------------------------------------------------

    def _fields(self, x: Any) -> dict[str, Any]:
        """Return an example as the model's fields."""
        fields = _by_text(x)
        return {_WORDS: fields} if self._is_bag else fields

    def _columns(self, X: Any) -> dict[str, Any]:
        """Return a frame as the model's fields."""
        if not self._is_bag:
            return _texts_as_names(to_mapping(X))
        return {_WORDS: _count_table(X)}

    def _answer(self, X: Any, ask: Callable[[Mapping[str, Any]], Floats]) -> Any:
        frame = _frame(X)
        classes = self.model.classes
        answers = ask(self._columns(X)) if len(frame) and classes else np.empty((len(frame), 0))
        any_name = frame.implementation.is_pandas_like()
        named: dict[Any, Floats] = {
            label if any_name else str(label): answers[:, c]
            for c, label in enumerate(classes[: answers.shape[1]])
        }
        if len(named) < answers.shape[1]:
            raise InputError(
                f"two classes have one text, among {', '.join(map(repr, classes))}, and columns of"
                f" {frame.implementation.value} are named by it. Pass a frame of pandas instead."
            )
        found = nw.from_dict(named, backend=frame.implementation)
        return _with_index_of(frame, found.to_native())


class AdwinAlarm:
    """River's ADWIN on losses, asked as `DriftMartingale` is: alarms when their mean has grown.

    ADWIN (Bifet and Gavaldà 2007) compares the means of two stretches of an adaptive window. Its
    bound on false alarms holds for each comparison, not for the whole stream; a fall of the mean
    drops the old stretch too, and is no alarm.

    Parameters
    ----------
    delta : float
        Between 0 and 1: how readily it drops a stretch.
    largest : float
        Losses above count as this one. ADWIN gets their share of it, as its bound is one of values
        from 0 to 1: the larger it is, the larger a change has to be to be seen soon.

    Examples
    --------
    >>> alarm = AdwinAlarm()
    >>> alarm.update([0.2, 0.3] * 500)
    []
    >>> [at < 500 for at in alarm.update([0.9, 1.0] * 500)]
    [True]
    """

    def __init__(self, delta: float = 0.002, largest: float = 5.0) -> None:
        check("delta", delta, above=0.0)
        if delta >= 1.0:
            raise InputError(f"delta must be below 1. Got {delta!r} instead.")
        self.largest = check("largest", largest, above=0.0)
        self.adwin: Any = river_drift.ADWIN(delta=delta)  # type: ignore[no-untyped-call]  # compiled
        self.n_alarms = 0

    def update(self, losses: Iterable[float]) -> list[int]:
        """Take in losses, in order; return the positions at which an alarm was raised.

        A loss that is negative or not a number is refused, and nothing was taken in.
        """
        alarms = []
        for i, loss in enumerate(read_losses([*losses]).tolist()):
            before = self.adwin.estimation
            self.adwin.update(min(loss, self.largest) / self.largest)
            if self.adwin.drift_detected and self.adwin.estimation > before:
                alarms.append(i)
        self.n_alarms += len(alarms)
        return alarms


class _Hidden(int):
    """A number that River does not print among the parameters of a model."""

    def __repr__(self) -> str:
        return "<hidden>"


_WORDS = "words"  # the only field of the model if the stream's fields are words
_PLAIN_LABELS = frozenset({str, int, bool})
_PLAIN_NAMES = frozenset({str})


def _groups(features: Mapping[str, Group] | Group | None) -> Mapping[str, Group]:
    """Return named groups."""
    if features is None:
        return StreamNB.default_features()
    return features if isinstance(features, Mapping) else {"features": features}


def _bag_of_all(groups: Mapping[str, Group]) -> Bag | None:
    """Return the only group if it is a bag that reads every field as a word."""
    if len(groups) != 1:
        return None
    (group,) = groups.values()
    if isinstance(group, Bag) and group.field is None and group.fields is None:
        return group
    return None


def _by_text(x: Any) -> dict[str, Any]:
    """Return an example as a `dict` whose keys are the texts of its field names."""
    if type(x) is dict and _PLAIN_NAMES.issuperset(map(type, x)):
        return x
    if not isinstance(x, Mapping):
        raise InputError(
            f"x must be a mapping of field names to values. Got {type(x).__name__} instead."
        )
    return _texts_as_names(x)


def _texts_as_names(fields: Mapping[Any, Any]) -> dict[str, Any]:
    named = {str(name): value for name, value in fields.items()}
    if len(named) < len(fields):
        raise InputError(
            f"two fields have names of one text, among {', '.join(map(repr, fields))}."
            " Rename one of them."
        )
    return named


def _count_table(X: Any) -> CountTable:
    """Return a frame whose columns are words as a sparse matrix of counts."""
    if len(X.columns) and hasattr(X, "sparse"):  # an all-sparse pandas frame, as `BagOfWords` makes
        return CountTable([str(name) for name in X.columns], X.sparse.to_coo())
    columns = _texts_as_names(to_mapping(X))
    rows = from_columns(columns, len(X))
    entries = (rows.counts, rows.names_at, rows.indptr)
    return CountTable(rows.names, sparse.csr_array(entries, (len(X), len(rows.names))))


def _frame(X: Any) -> nw.DataFrame[Any]:
    """Return a frame as narwhals has it, or refuse what is none."""
    try:
        return nw.from_native(X, eager_only=True)
    except TypeError as error:
        raise InputError(
            f"X must be a data frame (pandas, Polars, Arrow, ...). Got {type(X).__name__} instead."
        ) from error


def _with_index_of(frame: nw.DataFrame[Any], native: Any) -> Any:
    """Return a native frame or series with the index of the frame, if it has one."""
    index = nw.maybe_get_index(frame)
    if index is not None:
        native.index = index
    return native
