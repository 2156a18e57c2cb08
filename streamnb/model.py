"""`NaiveBayes`: a class prior and named groups of features, each with its likelihood.

The joint log-likelihood of an example is the log class prior plus each group's log-likelihood; that
is all that "mixed" means. Examples are learned one at a time, in order, each judged before it is
learned. A batch is for speed only: it gives, bit for bit, what single examples give, however the
stream is cut. Predicting is the same run without labels.

A model may be kept in parts, one for each log that it learns from (`learn_many(..., part=...)`):
then it is their sum, each part is a function of its own log, and `max_words` bounds each part.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from streamnb.decay import Clock, HalfLife, check_forgets, read_times, read_weights
from streamnb.errors import InputError, StoreError, check_bool, check_kind
from streamnb.features.protocol import Floats, Group
from streamnb.labels import (
    UNLABELLED,
    Codes,
    Label,
    check_label,
    new_labels,
    read_labels,
    shown_classes,
    to_indices,
)
from streamnb.merging import clone, merge, subtract
from streamnb.priors import ClassPrior, Dirichlet, Fixed, check, pseudo_counts
from streamnb.serialization import from_bytes, pack, to_blocks, unpack
from streamnb.state import Part, count_learned
from streamnb.unlearn import Unlearning

Model = TypeVar("Model", bound="NaiveBayes")
_LABELS = frozenset((str, int, bool))
_NUMBERS = frozenset((float, int))


class NaiveBayes(Unlearning):
    """Naive Bayes that learns one example at a time and never stops.

    Parameters
    ----------
    classes : iterable of str, int or bool
        The classes there are. A label outside them is refused, as it is a typing mistake more
        often than news; see `new_classes`. Without any, classes join as they come. Ties go to the
        class declared first.
    class_prior : Dirichlet or Fixed
        π_c = (N_c + α_c) / (n + Σα), or probabilities that no data moves.
    features : mapping of str to group
        Each group a likelihood over some fields, such as ``Words(Bernoulli(Beta(1, 1)))``.
    decay : HalfLife, optional
        How fast old examples lose their weight; by default they never do.
    hash_key : int, optional
        128 bits that key the words' fingerprints; drawn at random by default. No answer depends on
        it. It is a secret where texts come from strangers, who could make words collide by it, so
        no error or description shows it. Models that share it are merged faster.
    n_threads : {1, 2}
        With 2, the texts of a large batch are read in a second thread, ahead of being learned. The
        answers are the same.
    new_classes : bool
        Whether other classes may join those declared when an example brings them. It is saved with
        the model, and may be set on it later.

    Examples
    --------
    >>> import streamnb as nb
    >>> model = nb.NaiveBayes(
    ...     classes=["ham", "spam"],
    ...     class_prior=nb.Dirichlet(1.0),
    ...     features={"text": nb.Words(nb.Multinomial(nb.Dirichlet(1.0)))},
    ... )
    >>> model.learn_one({"text": "win a prize"}, "spam")
    >>> model.learn_one({"text": "lunch at noon"}, "ham")
    >>> model.predict_one({"text": "a prize for you"})
    'spam'
    >>> round(model.predict_proba_one({"text": "a prize for you"})["spam"], 12)
    0.8
    """

    def __init__(
        self,
        classes: Iterable[Label] = (),
        class_prior: ClassPrior | None = None,
        features: Mapping[str, Group] | None = None,
        *,
        decay: HalfLife | None = None,
        hash_key: int | None = None,
        n_threads: int = 1,
        new_classes: bool = False,
    ) -> None:
        if type(n_threads) is not int or n_threads not in (1, 2):
            raise InputError(f"n_threads must be 1 or 2. Got {n_threads!r} instead.")
        self.n_threads = n_threads
        check_bool("new_classes", new_classes)
        self.new_classes = new_classes
        check_kind("classes", classes, Iterable)
        if isinstance(classes, str):  # it would be a class for each letter
            raise InputError(f"classes must be a sequence of labels. Got {classes!r} instead.")
        self._classes = [check_label("classes", i, label) for i, label in enumerate(classes)]
        if len(set(self._classes)) < len(self._classes):
            raise InputError(f"classes must differ. Got {self._classes!r} instead.")
        self._n_declared_classes = len(self._classes)
        self._places = {label: c for c, label in enumerate(self._classes)}
        _check_features(features)
        assert features is not None
        if decay is not None:
            check_kind("decay", decay, HalfLife)
        self._class_prior = Dirichlet() if class_prior is None else class_prior
        self._pseudo = pseudo_counts(self._class_prior, self._classes)
        self._is_fixed = isinstance(self._class_prior, Fixed)
        self._hash_key = secrets.randbits(128) if hash_key is None else hash_key
        if type(self._hash_key) is not int or not 0 <= self._hash_key < 1 << 128:
            kind = type(hash_key).__name__  # no more than that: it may be a secret, mistyped
            raise InputError(
                f"hash_key must be an integer of 128 bits. Got another {kind} instead."
            )
        check_forgets(decay, features)
        self._clock = Clock(decay)
        self._n_examples = 0
        self._class_counts = np.zeros(len(self._classes))
        self._groups = {
            name: group.start(name, len(self._classes), self._hash_key)
            for name, group in features.items()
        }
        self._parts: dict[str, Part] = {}

    def learn_one(
        self,
        x: Mapping[str, Any],
        y: Label,
        *,
        weight: float = 1.0,
        time_s: float | None = None,
        part: str | None = None,
    ) -> None:
        """Learn one example.

        Parameters
        ----------
        x : mapping of str to value
            Fields by name. One that is missing or None says nothing, and neither does one that no
            group reads: streams bring along what a model has no use for. An example that has
            fields, and none that a group reads, is refused all the same: its names are misspelt,
            nearly always, and it would teach the class prior alone. The same holds for a batch,
            and for being asked or unlearned.
        y : str, int or bool
            Its class. A new one joins the model's classes, where none were declared or
            `new_classes` is set; otherwise it is refused.
        weight : float
            How many examples it counts as; 0 teaches nothing.
        time_s : float, optional
            When it was, in seconds on any clock: for a half-life in seconds.
        part : str, optional
            The log it comes from, where the model is kept in parts.

        Raises
        ------
        InputError
            For a value, label or weight that cannot be used; the model is unchanged.
        """
        self._prequential_one(x, y, weight, time_s, part)

    def prequential_one(
        self,
        x: Mapping[str, Any],
        y: Label,
        *,
        weight: float = 1.0,
        time_s: float | None = None,
        part: str | None = None,
    ) -> dict[Label, float]:
        """Judge one example, then learn it; see `learn_one`.

        Returns
        -------
        dict of class to float
            log p(c | x) as it stood before, in nats; a class that comes with it has -inf.
        """
        return self._by_class(self._prequential_one(x, y, weight, time_s, part))

    def _prequential_one(
        self, x: Mapping[str, Any], y: Label, weight: float, time_s: float | None, part: str | None
    ) -> Floats:
        place = self._places.get(y) if type(y) in _LABELS else None
        is_plain = type(weight) in _NUMBERS and weight == 1.0
        is_plain = is_plain and time_s is None and part is None and not self._parts
        if place is None or not is_plain or not self._is_short(x):
            weights = None if type(weight) is float and weight == 1.0 else [check("weight", weight)]
            times_s = None if time_s is None else [time_s]
            columns = self._as_columns(x)
            found: Floats = self.prequential_many(
                columns, [y], weights=weights, times_s=times_s, part=part
            )[0]
            return found
        found = self._one(x, place)
        self._n_examples += 1
        self._compact()
        return found

    def learn_many(
        self,
        columns: Any,
        labels: Sequence[Label] | Codes,
        *,
        weights: Sequence[float] | Floats | None = None,
        times_s: Sequence[float] | Floats | None = None,
        part: str | None = None,
    ) -> None:
        """Learn examples in their order; see `prequential_many`."""
        self.prequential_many(columns, labels, weights=weights, times_s=times_s, part=part)

    def prequential_many(
        self,
        columns: Any,
        labels: Sequence[Label] | Codes,
        *,
        weights: Sequence[float] | Floats | None = None,
        times_s: Sequence[float] | Floats | None = None,
        part: str | None = None,
    ) -> Floats:
        """Learn examples in order; return the log-posteriors that stood before each was learned.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            Fields by name, each of length n; any data frame that narwhals understands.
        labels : sequence of str, int or bool, or Codes, of length n
        weights : sequence of float, of length n, optional
            How many examples each counts as, 1 by default; 0 teaches nothing.
        times_s : sequence of float, of length n, optional
            When each was, in seconds on any clock: for a half-life in seconds.
        part : str, optional
            The log they come from, where the model is kept in parts.

        Returns
        -------
        ndarray of shape (n, n_classes), in nats
            A class that had not come yet when an example was judged has -inf there.

        Raises
        ------
        InputError
            For a value, label or weight that cannot be used; the model is unchanged.
        """
        fields, n = self._read(columns)
        codes = read_labels(labels, n)
        given = read_weights(weights, n)
        times = read_times(times_s, n)
        nothing = given is not None and not given.all()
        new = new_labels(codes, self._places, None if given is None else given > 0)
        if new and self._is_closed:
            raise InputError(_stranger(*new[0], self._classes))
        classes = [*self._classes, *(label for _, label in new)]
        indices = to_indices(codes, classes)
        if nothing:
            assert given is not None
            indices = np.where(given > 0, indices, np.int32(UNLABELLED))
        self._check_classes(classes)
        schedule = self._clock.schedule(indices, given, times)
        target = self._target(part)
        out = np.full((n, len(classes)), -np.inf)
        at = 0
        for first, label in new:
            # An example of a new class is judged by the classes known before it, and learned with
            # its own.
            self._learn(fields, at, first, schedule, out, target)
            said = self._judge_and_move(schedule, fields, first)
            if self._classes and said is None:
                said = self._posterior(fields, first, float(schedule.updates.scales[first]))
            if said is not None:
                out[first, : len(self._classes)] = said
            self._add_class(label)
            scratch = np.empty((first + 1, len(classes)))
            self._learn(fields, first, first + 1, schedule, scratch, target)
            at = first + 1
        self._learn(fields, at, n, schedule, out, target)
        self._move(schedule, n)
        self._learned(schedule.clock, count_learned(schedule.updates))
        return out

    # ---- as a value ----------------------------------------------------------------------------

    def __add__(self, other: object) -> Self:
        """Return what both models have learned together; see `merge`."""
        return merge(self, other) if isinstance(other, NaiveBayes) else NotImplemented

    def __sub__(self, other: object) -> Self:
        """Return this model without what another has learned; see `subtract`."""
        return subtract(self, other) if isinstance(other, NaiveBayes) else NotImplemented

    def clone(self) -> Self:
        """Return an independent copy that knows the same."""
        return clone(self)

    def to_bytes(self) -> bytes:
        """Return all of this model as bytes: what `save` puts into a file, without positions."""
        return b"".join(to_blocks(*pack(self, {})))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the model that `to_bytes` gave.

        Raises
        ------
        StoreError
            Where the bytes are damaged, foreign, or of another version.
        """
        check_kind("data", data, bytes, bytearray, memoryview)
        header, arrays = from_bytes(data)
        try:
            return unpack(header, arrays, cls)[0]
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"these bytes are whole, but they do not describe a model ({error!r}). Another"
                " program made them, perhaps. Give what `to_bytes` returned."
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by way of `to_bytes`, which does not hold `n_threads`."""
        return _restored, (type(self), self.to_bytes(), self.n_threads)


def _restored(kind: type[Model], data: bytes, n_threads: int) -> Model:
    """Return the model that was pickled or copied."""
    model = kind.from_bytes(data)
    model.n_threads = n_threads
    return model


def _stranger(row: int, label: Label, classes: Sequence[Label]) -> str:
    """Return what to say of a label that is none of the declared classes."""
    return (
        f"label {label!r} (row {row}) is none of the declared classes: {shown_classes(classes)}."
        " Correct the label, declare it in classes, or set new_classes=True to let classes join."
    )


def _check_features(features: Any) -> None:
    """Refuse what is no mapping of names to groups.

    Raises
    ------
    InputError
    """
    if not isinstance(features, Mapping) or not features:
        raise InputError(
            "features must hold at least one group, such as {'text': Words(...)}."
            f" Got {features!r} instead."
        )
    for name, group in features.items():
        if not isinstance(name, str):
            raise InputError(f"features: a group's name must be a str. Got {name!r} instead.")
        if isinstance(group, type) or not hasattr(group, "start"):
            raise InputError(
                f"features[{name!r}] must be a group, such as Words(...), Bag(...), Categories(),"
                f" Flags() or Numbers(). Got {group!r} instead."
            )
