"""The learner: the single writer. It teaches the model and publishes snapshots on the board.

A snapshot is the model at one moment, as a sealed value. It answers as the model did, for ever.

A snapshot copies every count, so publishing follows a policy. A daemon publishes by time, less
often if copying a large vocabulary would take more than a set share of the learner's time; a
replay, whose runs must not differ, publishes by the number of examples.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from streamnb import predict
from streamnb.decay import read_weights
from streamnb.decisions import AnswerRule, Confidence
from streamnb.errors import (
    InputError,
    check_bool,
    check_has,
    check_kind,
    check_timeout,
    check_whole,
)
from streamnb.features.protocol import Floats
from streamnb.labels import UNLABELLED, Codes, Label, read_labels, to_indices
from streamnb.learn import LEARNED, EncodedRows, impossible, prequential, takes_in_place
from streamnb.model import NaiveBayes
from streamnb.priors import check
from streamnb.reader import ModelReader


class AnsweredBy(NamedTuple):
    """Which of several models answered an example, and why.

    Attributes
    ----------
    model : str or None
        Its name; None for the one that knows all examples.
    reason : str
        Why it was that one, as a clause.
    """

    model: str | None
    reason: str


class Snapshot(ModelReader):
    """What a model knew at one moment.

    It shares the vocabulary's table with the model, whose later words are beyond the snapshot's
    count and so unseen, and holds its own copy of every count. Any number of threads may read it.

    Attributes
    ----------
    version : int
        Rises by one with each snapshot published.
    rule : AnswerRule
        What is made of the posteriors: they are calibrated by it; see `AnswerRule.sets`. If none is
        given, that of the snapshot it was made of.
    n_examples : int
        How many examples it has seen.
    """

    version: int
    rule: AnswerRule

    def __init__(self, model: ModelReader, version: int, rule: AnswerRule | None = None) -> None:
        check_kind("model", model, ModelReader)
        check_whole("version", version, 0)
        if rule is None:
            curve = model.state.calibration
            rule = model.rule if isinstance(model, Snapshot) else AnswerRule(curve)
        check_kind("rule", rule, AnswerRule)
        state = model.state.frozen_copy(with_parts=False)
        if state.clock.half_life is not None:
            # What a likelihood keeps to answer from follows the clock at a question: at this one,
            # while one thread alone asks.
            predict.joint_and_prior(state.raw(), predict.to_columns(state, {}))
        state.calibration = rule.curve
        object.__setattr__(self, "version", version)
        object.__setattr__(self, "rule", rule)
        object.__setattr__(self, "state", state)

    def stated(self, columns: Any) -> Floats:
        """Return log p(c | x) as the model states it, before calibration; see its `rule`.

        Parameters
        ----------
        columns : mapping of str to sequence, or data frame
            As for `predict_log_proba_many`.

        Returns
        -------
        ndarray of shape (n, n_classes), in nats

        Raises
        ------
        InputError
            For a value that cannot be used.
        """
        return predict.log_posteriors(replace(self.state, calibration=None), columns)

    def answered_by(self, columns: Any) -> list[AnsweredBy] | None:  # noqa: ARG002 -- of one model
        """Return which of several models answers each example; None if there is one."""
        return None

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        """Refuse: a snapshot is a value."""
        raise AttributeError(
            f"a snapshot is sealed; {name} cannot be set. Teach the model instead."
        )


class SnapshotBoard:
    """Holds the newest snapshot.

    Examples
    --------
    >>> SnapshotBoard().current() is None
    True
    """

    def __init__(self) -> None:
        self._current: Snapshot | None = None
        self._posted = threading.Event()

    def publish(self, snapshot: Snapshot) -> None:
        """Replace the snapshot by a newer one. Only the learning thread calls this."""
        check_kind("snapshot", snapshot, Snapshot)
        self._current = snapshot
        self._posted.set()

    def current(self) -> Snapshot | None:
        """Return the newest snapshot, None before the first."""
        return self._current

    def wait(self, timeout_s: float) -> Snapshot | None:
        """Wait for the first snapshot; return the newest, or None when none came in time."""
        self._posted.wait(check_timeout(timeout_s))
        return self._current


class PublishPolicy(Protocol):
    """Decides when a snapshot is due."""

    def is_due(self, n_examples: int) -> bool:
        """Return whether to publish now."""

    def published(self, n_examples: int, seconds: float) -> None:
        """Note that a snapshot was published, and how long it took."""


_YOUNG, _NEWS = (100, 50_000), 1.5  # while it has so many examples, so many times them are news


class EveryInterval:
    """Publish each `interval_s`, but spend at most `share_max` of the time on it.

    A young model is published each time that it has learned half as much again too, from 100
    examples to 50,000: a stream that is read fast brings far more than that in an interval, and
    what has no label would be judged by next to nothing.

    Parameters
    ----------
    interval_s : float
    share_max : float
        Between 0 and 1.
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, interval_s: float, share_max: float, clock: Callable[[], float]) -> None:
        self._interval_s = check("interval_s", interval_s)
        if check("share_max", share_max, above=0.0) > 1.0:
            raise InputError(f"share_max must be at most 1. Got {share_max!r} instead.")
        check_has("clock", clock, "__call__")
        self._share_max = share_max
        self._clock = clock
        self._due_at = clock()
        self._n_published = 0

    def is_due(self, n_examples: int) -> bool:
        """Return whether the interval is over, or a young model has grown by half."""
        has_grown = n_examples >= max(_YOUNG[0], _NEWS * self._n_published)
        return (has_grown and n_examples <= _YOUNG[1]) or self._clock() >= self._due_at

    def published(self, n_examples: int, seconds: float) -> None:
        """Begin the next interval."""
        self._n_published = n_examples
        self._due_at = self._clock() + max(self._interval_s, seconds / self._share_max - seconds)


class EveryExamples:
    """Publish each time `n` more examples have been learned, so that replays publish alike.

    Parameters
    ----------
    n : int
        Examples, at least 1. A snapshot stands between two calls of the learner, so whoever replays
        ends a call where `Learner.n_until_due` says; snapshots then stand at multiples of `n`.
    """

    def __init__(self, n: int) -> None:
        check_whole("n", n, 1)
        self._n = n
        self._due_at = n

    def is_due(self, n_examples: int) -> bool:
        """Return whether enough examples have come."""
        return n_examples >= self._due_at

    def published(self, n_examples: int, seconds: float) -> None:  # noqa: ARG002
        """Begin to count the next `n`."""
        self._due_at = n_examples + self._n

    def n_until_due(self, n_examples: int) -> int:
        """Return how many of the `n` are left."""
        return max(0, self._due_at - n_examples)


class Learner:
    """Teaches a model and publishes snapshots of it. Used by one thread.

    Parameters
    ----------
    model : NaiveBayes
        Nobody else may teach it from now on.
    board : SnapshotBoard
        Gets a first snapshot at once, so that there is always one to answer from.
    policy : PublishPolicy
    clock : callable
        Monotonic seconds, to know what publishing costs.
    snapshot : Snapshot, optional
        The last one that an earlier learner published of this model: it is the first snapshot, and
        the policy goes on from it. Without it, the model as it is now is published.
    is_current : bool
        Whether the model has learned nothing since that `snapshot`.
    confidence : Confidence, optional
        Learns from each example that is judged; snapshots answer by its rule. Its costs must have a
        row for each of the model's classes, and no other class may join.
    """

    def __init__(
        self,
        model: NaiveBayes,
        board: SnapshotBoard,
        policy: PublishPolicy,
        clock: Callable[[], float],
        snapshot: Snapshot | None = None,
        *,
        is_current: bool = False,
        confidence: Confidence | None = None,
    ) -> None:
        check_kind("model", model, NaiveBayes)
        check_has("board", board, "publish", "current")
        check_has("policy", policy, "is_due", "published")
        check_has("clock", clock, "__call__")
        check_bool("is_current", is_current)
        if confidence is not None:
            check_kind("confidence", confidence, Confidence)
            _check_costs(confidence, model)
        self.model = model
        self.confidence = confidence
        self._board = board
        self._policy = policy
        self._clock = clock
        self._version = 0
        # Since the last snapshot: a correction may leave n_examples as it was.
        self._changed = False
        if snapshot is None:
            self._snapshot = self.publish()
            return
        check_kind("snapshot", snapshot, Snapshot)
        self._snapshot, self._version = snapshot, snapshot.version
        self._changed = not is_current
        board.publish(snapshot)
        policy.published(snapshot.n_examples, 0.0)

    @property
    def version(self) -> int:
        """Version of the newest snapshot."""
        return self._version

    @property
    def snapshot(self) -> Snapshot:
        """The newest snapshot."""
        return self._snapshot

    @property
    def is_current(self) -> bool:
        """Whether the newest snapshot knows all that the model knows."""
        return self._snapshot.n_examples == self.model.n_examples and not self._changed

    def n_until_due(self) -> int | None:
        """Return after how many more examples a snapshot is due; None if time decides."""
        if not isinstance(self._policy, EveryExamples):
            return None
        return self._policy.n_until_due(self.model.n_examples)

    @property
    def takes_in_place(self) -> bool:
        """Whether `learn` can take examples back among those that it learns."""
        return takes_in_place(self.model.state)

    def learn(
        self,
        part: str,
        columns: Any,
        labels: Sequence[Label] | Codes,
        *,
        weights: Sequence[float] | Floats | None = None,
        times_s: Sequence[float] | Floats | None = None,
        judged: bool = True,
        encoded: EncodedRows | None = None,
        taken: NDArray[np.int8] | None = None,
    ) -> Floats:
        """Judge, then learn examples of one part, and publish if the policy says so.

        See `NaiveBayes.prequential_many`. A snapshot stands between two calls: one call publishes
        once at most, however many examples it brings.

        Parameters
        ----------
        part : str
            The log they come from.
        columns : mapping of str to sequence, or data frame
            Fields by name, each of length n.
        labels : sequence of str, int or bool, or Codes, of length n
        weights : sequence of float, of length n, optional
            How many examples each counts as, 1 by default; 0 teaches nothing.
        times_s : sequence of float, of length n, optional
            When each was, in seconds: for a half-life in seconds.
        judged : bool
            Whether the `confidence` learns from them: not if they were judged at another time.
        encoded : EncodedRows, optional
            Keeps what was encoded, for models that learn the same examples after this one; not
            beside `taken`.
        taken : ndarray of shape (n,), int8, optional
            Which examples are taken back in their place instead, if `takes_in_place`: see
            `learn.LEARNED`, `EARLIER` and `OWN`.

        Returns
        -------
        ndarray of shape (n, n_classes), in nats
            Log-posteriors from before each was learned, calibrated if there is a calibrator; those
            of examples taken back mean nothing. There are fewer if the rest was left, as something
            of it cannot be taken back now.

        Raises
        ------
        InputError
            For a value, label or argument that cannot be used; the model is unchanged.
        """
        check_bool("judged", judged)
        if encoded is not None:
            check_kind("encoded", encoded, EncodedRows)
        n_classes = len(self.model.classes)
        found = self.teach(part, columns, labels, weights, times_s, encoded, taken, judged=judged)
        return impossible(found) if len(self.model.classes) > n_classes else found

    def teach(
        self,
        part: str,
        columns: Any,
        labels: Any,
        weights: Any,
        times_s: Any,
        encoded: EncodedRows | None,
        taken: NDArray[np.int8] | None,
        *,
        judged: bool,
    ) -> Floats:
        """Learn and publish as `learn` does, with nan for classes yet to join.

        A subclass may teach more models.
        """
        confidence = self.confidence if judged else None
        if confidence is not None:  # read once: they may be an iterator
            labels = codes = read_labels(labels, None, self.model.classes)
            weights = None if weights is None else read_weights(weights, len(codes.codes))
        posteriors = self.prequential(part, columns, labels, weights, times_s, encoded, taken)
        n = len(posteriors)
        self._changed |= taken is not None
        if confidence is not None:
            is_learned = slice(None) if taken is None else taken[:n] == LEARNED
            truth = to_indices(codes, self.model.classes)[:n]
            if weights is not None:  # one that teaches nothing is answered alone
                truth = np.where(weights[:n] == 0.0, UNLABELLED, truth)
            posteriors[is_learned] = confidence.learn(posteriors[is_learned], truth[is_learned])
        self.publish_if_due()
        return posteriors

    def prequential(
        self,
        part: str,
        columns: Any,
        labels: Any,
        weights: Any,
        times_s: Any,
        encoded: EncodedRows | None,
        taken: NDArray[np.int8] | None,
    ) -> Floats:
        """Learn examples; return what is stated of each before, without calibration, as `teach`.

        A subclass may answer by more models.
        """
        return prequential(
            self.model.state, columns, labels, weights=weights, times_s=times_s, part=part,
            encoded=encoded, taken=taken,
        )  # fmt: skip

    def frozen(self, rule: AnswerRule | None) -> Snapshot:
        """Return a snapshot of what is known now, calibrated by `rule`; see `prequential`."""
        return Snapshot(self.model, self._version, rule)

    def learn_one(
        self,
        part: str,
        x: Mapping[str, Any],
        y: Label,
        *,
        weight: float = 1.0,
        time_s: float | None = None,
    ) -> None:
        """Learn one example of a part unjudged: a correction, not one of the stream.

        It does not publish, so that no snapshot falls between taking back and learning again.

        Parameters
        ----------
        part : str
            The log it comes from.
        x : mapping of str to value
            Fields by name.
        y : str, int or bool
            Its class.
        weight : float
            How many examples it counts as.
        time_s : float, optional
            When it was, in seconds: for a half-life in seconds.

        Raises
        ------
        InputError
            For a value, label or weight that cannot be used; the model is unchanged.
        """
        self.model.learn_one(x, y, weight=weight, time_s=time_s, part=part)
        self._changed = True

    def unlearn_one(
        self,
        part: str,
        x: Mapping[str, Any],
        y: Label,
        *,
        weight: float = 1.0,
        time_s: float | None = None,
    ) -> None:
        """Take one example of a part back; see `NaiveBayes.unlearn_one`.

        Parameters
        ----------
        part, x, y, weight, time_s
            As they were learned.

        Raises
        ------
        InputError
            If more would be taken back than was learned, or a value cannot be used; the model is
            unchanged.
        """
        self.model.unlearn_one(x, y, weight=weight, time_s=time_s, part=part)
        self._changed = True

    def unlearn_many(
        self,
        part: str,
        columns: Any,
        labels: Sequence[Label] | Codes,
        *,
        weights: Sequence[float] | Floats | None = None,
        times_s: Sequence[float] | Floats | None = None,
    ) -> None:
        """Take examples of a part back; see `NaiveBayes.unlearn_many`. It does not publish.

        Parameters
        ----------
        part, columns, labels, weights, times_s
            As they were learned.

        Raises
        ------
        InputError
            If more would be taken back than was learned, or a value cannot be used; the model is
            unchanged.
        """
        self.model.unlearn_many(columns, labels, weights=weights, times_s=times_s, part=part)
        self._changed = True

    def set_part(self, part: str, model: NaiveBayes) -> None:
        """Put what another model has learned in the place of a part; see `NaiveBayes.set_part`.

        Parameters
        ----------
        part : str
            The log that it comes from.
        model : NaiveBayes
            Of the same kind.

        Raises
        ------
        InputError
            If the models do not count the same things, or the other has classes without costs;
            nothing has changed.
        """
        if self.confidence is not None:
            check_kind("model", model, NaiveBayes)
            _check_costs(self.confidence, self.model, model.classes)
        self.model.set_part(part, model)
        self._changed = True

    def forget_weights(self) -> bool:
        """Begin hybrids' weights afresh, and publish; return False if the model has none."""
        has_weights = self.model.forget_weights()
        if has_weights:
            self._changed = True
            self.publish()
        return has_weights

    def publish_if_due(self) -> bool:
        """Publish if the policy says so, and return whether it was due.

        `learn` calls it. Call it between batches if time passes without any, and after `learn_one`,
        `unlearn_one` and `unlearn_many`. If the model has not changed, its snapshot stays.
        """
        if not self._policy.is_due(self.model.n_examples):
            return False
        if self.is_current:
            self._policy.published(self.model.n_examples, 0.0)
        else:
            self.publish()
        return True

    def refresh(self) -> None:
        """Let questions be answered by all that the model knows, without publishing.

        For what others learned, which comes at places of their own: the board gets a snapshot of
        the newest version that knows it. `snapshot` and the policy stay, so what is judged by these
        does not depend on when, or how often, this is called.
        """
        if not self.is_current:
            self._board.publish(self._sealed())

    def publish(self) -> Snapshot:
        """Publish now."""
        began = self._clock()
        self._version += 1
        snapshot = self._snapshot = self._sealed()
        self._board.publish(snapshot)
        self._changed = False
        self._policy.published(self.model.n_examples, self._clock() - began)
        return snapshot

    def _sealed(self) -> Snapshot:
        """Return a snapshot of what is known now, with what calibrates answers."""
        n_classes = len(self.model.classes)
        return self.frozen(None if self.confidence is None else self.confidence.rule(n_classes))


def _check_costs(confidence: Confidence, model: NaiveBayes, new: Sequence[Label] = ()) -> None:
    """Refuse costs that some class of the model has not, or will not have with `new` ones."""
    costs = confidence.costs
    if costs is None:
        return
    if not model.state.is_closed:
        raise InputError(
            "costs need declared classes, as one that joins would have none. Declare them, without"
            " new_classes, or leave the costs out."
        )
    n_classes = len(dict.fromkeys([*model.classes, *new]))
    if len(costs) != n_classes:
        raise InputError(
            f"costs must have a row for each of {n_classes} classes. Got {len(costs)} instead."
        )
