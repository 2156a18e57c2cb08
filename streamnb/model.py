"""`NaiveBayes`: a class prior and named groups of features, each with its likelihood.

The joint log-likelihood of an example is the log class prior plus each group's log-likelihood; that
is all that "mixed" means. Examples are learned one at a time, in order, each judged before it is
learned. A batch is for speed only: it gives, bit for bit, what single examples give, however the
stream is cut. Predicting is the same run without labels.

A model may be kept in parts, one for each log that it learns from (`learn_many(..., part=...)`):
then it is their sum, each part's counts are a function of its own log, and `max_words` bounds each
part. So are a hybrid's weights if classes are declared; else a part learns them among the classes
that the model knew by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeVar

from streamnb import learn, merging, predict
from streamnb.decay import HalfLife
from streamnb.errors import InputError, StoreError, check_bool, check_kind
from streamnb.features.protocol import Floats, Group
from streamnb.inspection.words import word_group, word_groups
from streamnb.labels import Codes, Label
from streamnb.likelihoods.multinomial import Hybrid
from streamnb.priors import ClassPrior
from streamnb.reader import ModelReader
from streamnb.serialization import (
    EXTRAS,
    UNREADABLE,
    from_bytes,
    pack,
    refuse_half_lives,
    to_blocks,
    unpack,
)
from streamnb.state import ModelState, PartState, new_state

Model = TypeVar("Model", bound="NaiveBayes")


class NaiveBayes(ModelReader):
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
        it. With a given one a saved model's bytes are a function of its counts, in whatever order
        words came and left. It is a secret where texts come from strangers, who could make words
        collide by it, so no error or description shows it. Models that share it are merged faster.
    n_threads : {1, 2}
        With 2, the texts of a large batch are read in a second thread, ahead of being learned. The
        answers are the same.
    new_classes : bool
        Whether other classes may join those declared when an example brings them. It is saved with
        the model, and may be set on it later.
    prior_half_life : float, optional
        Half-life of the class prior alone, in examples of one log: for a stream whose mix of
        classes comes and goes. π_c = (R_c + α_c) / (ΣR + Σα), where each example multiplies all R
        by 2^(−1/half-life) and then adds its weight to its class. The likelihoods keep all their
        counts. None, 0 or infinity: π_c is estimated from all examples. `without_prior` leaves it
        out as any class prior.

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
        prior_half_life: float | None = None,
    ) -> None:
        self.state = new_state(
            classes,
            class_prior,
            features,
            decay=decay,
            hash_key=hash_key,
            n_threads=n_threads,
            new_classes=new_classes,
            prior_half_life=prior_half_life,
        )

    is_sealed = False

    @classmethod
    def of(cls, state: ModelState) -> Self:
        """Return a model over a state; the library's own modules make models so."""
        model = cls.__new__(cls)
        model.state = state
        return model

    @property
    def new_classes(self) -> bool:
        """Whether other classes may join those declared; it may be set."""
        return self.state.new_classes

    @new_classes.setter
    def new_classes(self, value: bool) -> None:
        check_bool("new_classes", value)
        self.state.new_classes = value

    @property
    def n_threads(self) -> int:
        """How many threads read texts: 1 or 2."""
        return self.state.n_threads

    @property
    def parts(self) -> Mapping[str, PartState]:
        """The parts this model is the sum of; empty if it is kept whole."""
        return dict(self.state.parts)

    @property
    def n_skipped(self) -> int:
        """How many features were not unlearned because they had left before."""
        return sum(group.n_skipped for group in self.state.groups.values())

    def describe(self) -> dict[str, Any]:
        """Return what makes two models the same kind: classes, priors, groups; not the hash key.

        Nor whether classes may join: it says what a model takes, not what it has counted.
        """
        return self.state.describe()

    # ---- learning ------------------------------------------------------------------------------

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
            The log it comes from, if the model is kept in parts.

        Raises
        ------
        InputError
            For a value, label or weight that cannot be used; the model is unchanged.
        """
        learn.prequential_one(self.state, x, y, weight=weight, time_s=time_s, part=part)

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
        found = learn.prequential_one(self.state, x, y, weight=weight, time_s=time_s, part=part)
        return predict.by_class(self.state, found)

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
        learn.prequential(self.state, columns, labels, weights=weights, times_s=times_s, part=part)

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
            Or one-hot rows, a 1 for the class and 0 for the others, whose columns are the classes
            in the model's order; columns that have names are the classes they name.
        weights : sequence of float, of length n, optional
            How many examples each counts as, 1 by default; 0 teaches nothing.
        times_s : sequence of float, of length n, optional
            When each was, in seconds on any clock: for a half-life in seconds.
        part : str, optional
            The log they come from, if the model is kept in parts.

        Returns
        -------
        ndarray of shape (n, n_classes), in nats
            A class that had not come yet when an example was judged has -inf there.

        Raises
        ------
        InputError
            For a value, label or weight that cannot be used; the model is unchanged.
        """
        n_classes = len(self.state.classes)
        found = learn.prequential(
            self.state, columns, labels, weights=weights, times_s=times_s, part=part
        )
        return learn.impossible(found) if len(self.state.classes) > n_classes else found

    def unlearn_one(
        self,
        x: Mapping[str, Any],
        y: Label,
        *,
        weight: float = 1.0,
        time_s: float | None = None,
        part: str | None = None,
    ) -> None:
        """Take one example back: the inverse of `learn_one` with the same arguments.

        Whole-number weights bring back every count and V bit for bit, and so the answers that
        follow from counts; means and variances come back to rounding. A word at zero leaves, and so
        does the newest class, if it was not declared. A word that had left a full vocabulary before
        is skipped, and counted in `n_skipped`.

        Two things follow the order of the stream and do not come back, so that answers differ from
        those before: with a `prior_half_life` a class keeps the share of its examples that is
        recent, and the weights of a `Hybrid` stay.

        Parameters
        ----------
        x, y, weight, time_s, part
            As they were learned.

        Raises
        ------
        InputError
            If more would be taken back than was learned, or a value cannot be used; the model is
            unchanged. Of a number the weight is checked, not the value: mean and variance do not
            say which values they are of.
        """
        learn.unlearn_one(self.state, x, y, weight=weight, time_s=time_s, part=part)

    def unlearn_many(
        self,
        columns: Any,
        labels: Sequence[Label] | Codes,
        *,
        weights: Sequence[float] | Floats | None = None,
        times_s: Sequence[float] | Floats | None = None,
        part: str | None = None,
    ) -> None:
        """Take examples back, bit for bit as `unlearn_one` would one after the other.

        All of them are read and checked before one is taken, so memory grows with their number.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            Fields by name, each of length n; as they were learned.
        labels : sequence of str, int or bool, or Codes, of length n
        weights : sequence of float, of length n, optional
            The weights they were learned with, 1 by default; 0 takes nothing back.
        times_s : sequence of float, of length n, optional
            The times they were learned with, in seconds: for a half-life in seconds.
        part : str, optional
            The log they came from, if the model is kept in parts.

        Raises
        ------
        InputError
            If more would be taken back than was learned, or a value cannot be used; it names the
            row, and the model is unchanged: no example was taken back.

        Examples
        --------
        >>> import streamnb as nb
        >>> model = nb.NaiveBayes(features={"text": nb.Words(nb.Multinomial())})
        >>> model.learn_many({"text": ["a b", "b c", "c"]}, ["x", "y", "y"])
        >>> model.unlearn_many({"text": ["c", "a b"]}, ["y", "x"])
        >>> model.words(), model.class_counts.tolist()
        (['b', 'c'], [0.0, 1.0])
        """
        learn.unlearn(self.state, columns, labels, weights=weights, times_s=times_s, part=part)

    # ---- settings ------------------------------------------------------------------------------

    def add_class(self, label: Label) -> None:
        """Let a class join, of which nothing is learned yet.

        Declared classes are no hindrance: to call this is to declare one more, which stays whatever
        is taken back. In a model that takes any label, `new_classes` is True from then on, and
        classes that had joined before it stay as well.

        Raises
        ------
        InputError
            If it is no label, or a prior has no number for it.
        """
        learn.add_class(self.state, label)

    def set_max_words(self, group: str, max_words: int) -> None:
        """Move the bound on a group's words; it is kept from the next example learned on."""
        own = word_group(self.state, group)
        own.spec = replace(own.spec, max_words=max_words)
        own.set_bounded(bounded=len(self.state.parts) < 2)

    def set_hybrid(self, group: str, hybrid: Hybrid | None) -> None:
        """Have a group learn weights beside its counts, from nothing on, or drop them.

        The counts stay as they are.

        Raises
        ------
        InputError
            If there is no such group of words, or its likelihood is no `Multinomial`.

        Examples
        --------
        >>> import streamnb as nb
        >>> model = nb.NaiveBayes(features={"text": nb.Words(nb.Multinomial())})
        >>> model.learn_many({"text": ["a prize", "lunch"]}, ["spam", "ham"])
        >>> before = model.digest()
        >>> model.set_hybrid("text", nb.Hybrid())
        >>> model.digest() == before
        True
        """
        own = word_group(self.state, group)
        had_order = self.state.learns_in_order
        own.set_hybrid(hybrid)
        self.state.find_weighing()
        for part in self.state.summands():
            part.groups[own.name].weights = own.new_part().weights
            if not had_order:
                part.now = self.state.clock.now
        self.state.hold_only_part()

    def forget_weights(self) -> bool:
        """Have hybrids learn their weights from nothing on; return whether there is one.

        Counts and recent classes stay. After a sudden change old weights are worse than none, and
        slow to follow. Without one this costs a point of accuracy or two for some 10,000 examples.

        Examples
        --------
        >>> import streamnb as nb
        >>> words = nb.Words(nb.Multinomial(), hybrid=nb.Hybrid())
        >>> model = nb.NaiveBayes(["ham", "spam"], features={"text": words})
        >>> model.learn_many({"text": ["a prize", "lunch"] * 50}, ["spam", "ham"] * 50)
        >>> counts, sure = model.digest(), model.predict_proba_one({"text": "lunch"})["ham"]
        >>> model.forget_weights(), model.digest() == counts
        (True, True)
        >>> model.predict_proba_one({"text": "lunch"})["ham"] < sure
        True
        """
        for name, group in word_groups(self.state).items():
            parts = [part.groups[name].weights for part in self.state.summands()]
            for each in (group.weights, *parts):
                if each is not None:
                    for sums in (each.groups, each.words, each.others):
                        sums[:] = 0.0
        return self.state.is_hybrid

    def forget_parts(self) -> None:
        """Keep this model whole from now on: of its parts only their sum stays.

        Words leave from now on by the sum's own bound.
        """
        self.state.forget_parts()

    def part(self, name: str) -> Self:
        """Return a model of what one part has learned, and nothing else.

        It is kept in that one part, and independent of this model. Saved with its log's position,
        it is all that another process needs to go on with that log (`set_part`); subtracted or
        dropped, it is a slice of the stream that is forgotten.

        Parameters
        ----------
        name : str
            The part, one of `parts`.

        Raises
        ------
        InputError
            If there is no such part.

        Examples
        --------
        >>> from streamnb import Multinomial, NaiveBayes, Words
        >>> model = NaiveBayes(features={"text": Words(Multinomial())})
        >>> model.learn_many({"text": ["a prize", "lunch"]}, ["spam", "ham"], part="monday")
        >>> model.learn_many({"text": ["a meeting"]}, ["ham"], part="tuesday")
        >>> monday = model.part("monday")
        >>> monday.n_examples, (model - monday).n_examples
        (2, 1)
        """
        return self.of(merging.part_of(self.state, name))

    def set_part(self, name: str, model: NaiveBayes) -> None:
        """Put what another model has learned in the place of a part, or add it as a new one.

        The part then has, bit for bit, the other model's counts, whatever it had before. Models of
        different hash keys meet by the texts of their words and values.

        Parameters
        ----------
        name : str
            The part; this model must be kept in parts, or have learned nothing yet.
        model : NaiveBayes
            Of the same kind, as `part` or a file gives it. If it is kept in parts, it enters whole.

        Raises
        ------
        InputError
            If the models do not count the same things, if a class of the other is none here and may
            not join, or if this model has learned as a whole; nothing has changed.

        Examples
        --------
        >>> from streamnb import Multinomial, NaiveBayes, Words
        >>> def empty():
        ...     return NaiveBayes(classes=["ham", "spam"], features={"text": Words(Multinomial())})
        >>> first, second = empty(), empty()
        >>> first.learn_one({"text": "win a prize"}, "spam", part="tweets/0")
        >>> second.set_part("tweets/0", first.part("tweets/0"))
        >>> second.class_counts.tolist()
        [0.0, 1.0]
        """
        merging.set_part(self.state, name, _state_of(model))

    def drop_part(self, name: str) -> None:
        """Forget a part: the model is then the sum of the others.

        With a half-life in seconds the time stays that of the newest example there was: what is
        left has aged since, and weighs less beside the prior than in a model that never had the
        part. Only with a hybrid or a `prior_half_life`, which learn by each part's own time, does
        the model go back to the newest time of the parts that are left.

        Raises
        ------
        InputError
            If there is no such part.
        """
        merging.drop_part(self.state, name)

    # ---- as a value ----------------------------------------------------------------------------

    def __add__(self, other: object) -> Self:
        """Return what both models have learned together; see `merge`."""
        return merge(self, other) if isinstance(other, NaiveBayes) else NotImplemented

    def __sub__(self, other: object) -> Self:
        """Return this model without what another has learned; see `subtract`."""
        return subtract(self, other) if isinstance(other, NaiveBayes) else NotImplemented

    def clone(self) -> Self:
        """Return an independent copy that knows the same."""
        return self.of(merging.clone(self.state))

    def to_bytes(self) -> bytes:
        """Return all of this model as bytes: what `save` puts into a file, without positions."""
        return b"".join(to_blocks(*pack(self.state, {})))

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the model that `to_bytes` gave.

        Raises
        ------
        StoreError
            If the bytes are damaged, foreign, or of another version.
        """
        check_kind("data", data, bytes, bytearray, memoryview)
        try:
            header, arrays = from_bytes(data)
            names = [name.removeprefix(EXTRAS) for name in arrays]
            refuse_half_lives("these bytes", header, names)
            return cls.of(unpack(header, arrays)[0])
        except UNREADABLE as error:
            raise StoreError(
                f"these bytes are whole, but they do not describe a model ({error!r}). Another"
                " program made them, perhaps. Give what `to_bytes` returned."
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy by way of `to_bytes`, which does not hold `n_threads`.

        A subclass's own attributes go with it.
        """
        own = {name: value for name, value in vars(self).items() if name != "state"}
        return _restored, (type(self), self.to_bytes(), self.state.n_threads), own or None


def _restored(kind: type[Model], data: bytes, n_threads: int) -> Model:
    """Return the model that was pickled or copied."""
    model = kind.from_bytes(data)
    model.state.n_threads = n_threads
    return model


def merge(first: Model, *others: NaiveBayes) -> Model:
    """Return a new model that has learned what all of them have.

    Counts add exactly, whatever the order; means and variances to rounding. Models of different
    hash keys meet by the texts of their words and values.

    Raises
    ------
    InputError
        If they are not of one kind: it says what differs.

    Examples
    --------
    >>> from streamnb import Multinomial, NaiveBayes, Words
    >>> def made(text, label):
    ...     model = NaiveBayes(features={"text": Words(Multinomial())})
    ...     model.learn_one({"text": text}, label)
    ...     return model
    >>> merged = merge(made("win a prize", "spam"), made("lunch", "ham"))
    >>> merged.classes, merged.class_counts.tolist(), merged.vocabulary_size
    (('spam', 'ham'), [1.0, 1.0], 4)
    """
    check_kind("first", first, NaiveBayes)
    return first.of(merging.merge(first.state, *map(_state_of, others)))


def subtract(first: Model, other: NaiveBayes) -> Model:
    """Return a new model that has learned what the first has and the other has not.

    Raises
    ------
    InputError
        If they are not of one kind, or the other holds what the first does not.
    """
    check_kind("first", first, NaiveBayes)
    return first.of(merging.subtract(first.state, _state_of(other)))


def _state_of(other: Any) -> ModelState:
    if not isinstance(other, NaiveBayes):
        raise InputError(f"a NaiveBayes is wanted. Got {type(other).__name__} instead.")
    return other.state
