"""What to answer when a probability is not enough: prediction sets, and the cheapest decision.

`Confidence` learns what answers are worth beside a model that learns; its `rule` is what a snapshot
answers by. `FrameEvaluation` is what `streamnb.spark.evaluate` finds that they were worth.
"""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamnb.calibration import (
    SCALED_ODDS,
    Calibrator,
    Floats,
    calibrated_with_gaps,
    has_gaps,
    in_runs,
)
from streamnb.columns import floats_in, sealed
from streamnb.errors import InputError, check_kind
from streamnb.labels import Label, checked_log_posteriors, checked_places
from streamnb.priors import check

Sets = NDArray[np.bool_]


class ConformalSets:
    """Prediction sets that hold the true class as often as they promise, whatever the stream does.

    Adaptive conformal inference (Gibbs and Candès 2021, "Adaptive conformal inference under
    distribution shift"; here with the threshold itself as what adapts, as in Angelopoulos, Candès
    and Tibshirani 2023). A set holds each class with 1 − p ≤ q. After each example the threshold q
    moves up by `step`·`coverage` if its class was outside, else down by `step`·(1 − `coverage`).

    The promise is arithmetic and needs no assumption, not even that the model is any good: among
    any T examples in a row the share covered differs from `coverage` by at most (1 + `step`) /
    (`step`·T), because q stays within a range of 1 + `step`: it rises only below 1, and falls only
    from 0 on. With the default that is 1.62 points for any 5,000 examples. What a better model buys
    is smaller sets.

    A set may hold all classes (nothing is known), or none: the model usually knows better than it
    does here, and all classes are less credible than that.

    With late labels (`asked` of `prequential_many`) the promise is of the examples as they are
    learned, each by the threshold of that moment, and not of the sets that were answered, by the
    threshold of some labels before. If of T examples in a row m were covered by one of the two
    alone, the share covered by what was answered differs from `coverage` by at most (1 + `step`) /
    (`step`·T) + m/T. No delay, however short, bounds m. On a steady stream its two sides balance.

    Parameters
    ----------
    coverage : float
        The share of sets that are to hold the true class, between 0 and 1.
    step : float
        How fast the threshold follows. Larger ones bound shorter stretches, and widen sets.

    Attributes
    ----------
    threshold : float
        q as it stands.
    standing_threshold : float
        The mean of q over recent examples, about 2.5/`step` of them, by which snapshots answer: one
        that is to do for many examples. Any one q lies above or below by chance of its last steps.
    n, n_covered, n_in_sets : int
        How many examples were judged before their class was known, how many of their sets held it,
        and how many classes the sets held together; with late labels by the sets that they would
        have had as they were learned.

    Raises
    ------
    InputError
        If `coverage` is not between 0 and 1, or `step` not above 0.

    Examples
    --------
    >>> import numpy as np
    >>> sets = ConformalSets(coverage=0.5)
    >>> sets.sets(np.log([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]])).tolist()
    [[True, False], [True, True], [False, True]]
    >>> _ = sets.prequential_many(np.log([[0.9, 0.1], [0.8, 0.2]]), [0, 1])
    >>> sets.n, sets.n_covered, sets.mean_size
    (2, 1, 1.0)
    """

    def __init__(self, coverage: float = 0.9, step: float = 0.0125) -> None:
        self.coverage = check("coverage", coverage, above=0.0)
        if self.coverage >= 1.0:
            raise InputError(f"coverage must be below 1. Got {coverage!r} instead.")
        self.step = check("step", step, above=0.0)
        self.threshold = self.standing_threshold = self.coverage
        self.n = self.n_covered = self.n_in_sets = 0

    @property
    def covered(self) -> float | None:
        """Share of the sets that held the true class; None before the first."""
        return self.n_covered / self.n if self.n else None

    @property
    def mean_size(self) -> float | None:
        """Mean number of classes in a set; None before the first."""
        return self.n_in_sets / self.n if self.n else None

    def sets(self, log_posteriors: ArrayLike) -> Sets:
        """Return which classes each example's set holds, ndarray of shape (n, n_classes), bool.

        Parameters
        ----------
        log_posteriors : array_like of shape (n, n_classes)
            Normalised, in nats.

        Raises
        ------
        InputError
            If it is of another shape, or holds nan or a probability above 1.
        """
        return prediction_sets(self.threshold, checked_log_posteriors(log_posteriors))

    def prequential_many(
        self,
        log_posteriors: ArrayLike,
        truth: Sequence[int] | NDArray[np.integer[Any]],
        asked: ArrayLike | None = None,
    ) -> Sets:
        """Return each example's set, by the threshold before it, and learn from all in order.

        Parameters
        ----------
        log_posteriors : array_like of shape (n, n_classes)
            From before each example was learned, normalised, in nats. nan is a class that the model
            had not yet: it is in no set.
        truth : sequence of int, of length n
            The place of each one's true class. An example of a class that the model had not, nan or
            -1, gets its set and teaches nothing.
        asked : array_like of shape (n, n_classes), optional
            What gets the sets instead, where labels come late: log-posteriors of the examples that
            are judged as those of `log_posteriors` are learned. The promise is not of these sets.

        Returns
        -------
        ndarray of shape (n, n_classes), bool
            However the stream is cut into calls, the same.

        Raises
        ------
        InputError
            As for `sets`, or if a place is none of the classes; nothing was learned.
        """
        given = checked_log_posteriors(log_posteriors, gaps=True)
        places = checked_places(truth, given, least=-1)
        asked = given if asked is None else checked_log_posteriors(asked, gaps=True)
        if len(asked) != len(given):
            raise InputError(
                f"asked must have {len(given)} rows, as log_posteriors. Got {len(asked)}."
            )
        if has_gaps(given, places) or (asked is not given and np.isnan(asked).any()):
            held = in_runs(self.prequential_many, self.sets, given, places, asked)
            found: Sets = held == 1.0
            return found
        scores = 1.0 - np.exp(given)
        own = scores[np.arange(len(scores)), places]
        up, down = self.step * self.coverage, self.step * (1.0 - self.coverage)
        q, standing, thresholds = self.threshold, self.standing_threshold, []
        share = min(_STANDING * self.step, 1.0)
        for score in own.tolist():
            thresholds.append(q)
            q += up if score > q else -down
            standing += share * (q - standing)
        self.threshold, self.standing_threshold = q, standing
        before = np.array(thresholds, dtype=np.float64)
        found = scores <= before[:, np.newaxis]
        self.n += len(own)
        self.n_covered += int(np.count_nonzero(own <= before))
        self.n_in_sets += int(np.count_nonzero(found))
        if asked is not given:
            found = 1.0 - np.exp(asked) <= before[:, np.newaxis]
        return found

    def __add__(self, other: object) -> Self:
        """Return the sets of two streams together: counts add, the threshold is their mean by n.

        Nothing is taken back from a threshold: it has followed its stream in order, and forgets
        within some hundred examples whatever moved it.
        """
        if not isinstance(other, ConformalSets):
            return NotImplemented
        if (self.coverage, self.step) != (other.coverage, other.step):
            raise InputError(
                "sets must have the same coverage and step. Got"
                f" {self.coverage}, {self.step} and {other.coverage}, {other.step} instead."
            )
        found = type(self)(self.coverage, self.step)
        found.n = self.n + other.n
        found.n_covered = self.n_covered + other.n_covered
        found.n_in_sets = self.n_in_sets + other.n_in_sets
        if found.n:
            for name in _THRESHOLDS:
                both = self.n * getattr(self, name) + other.n * getattr(other, name)
                setattr(found, name, both / found.n)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return all of the state as JSON values."""
        return {name: getattr(self, name) for name in _STATE}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the sets that `to_dict` described.

        Raises
        ------
        InputError
            If the values describe none.
        """
        try:
            found = cls(values["coverage"], values["step"])
            found.threshold = float(values["threshold"])
            found.standing_threshold = float(values.get("standing_threshold", found.threshold))
            for name in _COUNTED:
                setattr(found, name, operator.index(values[name]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"these values describe no prediction sets ({error!r}). Give what `to_dict`"
                " returned."
            ) from error
        for name in _THRESHOLDS:
            if not -found.step <= (threshold := getattr(found, name)) <= 1.0 + found.step:
                raise InputError(
                    f"{name} must lie between -{found.step} and 1 + {found.step}. Got"
                    f" {threshold} instead."
                )
        if not 0 <= found.n_covered <= found.n or found.n_in_sets < 0:
            raise InputError(
                "n, n_covered and n_in_sets must be counts of examples. Got"
                f" {found.n}, {found.n_covered} and {found.n_in_sets} instead."
            )
        return found


_COUNTED = ("n", "n_covered", "n_in_sets")
_THRESHOLDS = ("threshold", "standing_threshold")
_STATE = ("coverage", "step", *_THRESHOLDS, *_COUNTED)
_STANDING = 0.4  # of a step: by so much the standing threshold moves to where q is


def prediction_sets(threshold: float, log_posteriors: Floats) -> Sets:
    """Return which classes are in each example's set by a threshold, ndarray (n, n_classes)."""
    found: Sets = 1.0 - np.exp(log_posteriors) <= threshold
    return found


def expected_costs(log_posteriors: ArrayLike, costs: ArrayLike) -> Floats:
    """Return what each decision costs on average, ndarray of shape (n, n_decisions).

    Parameters
    ----------
    log_posteriors : array_like of shape (n, n_classes)
        Normalised, in nats; calibrated ones, or the costs are not what will be paid.
    costs : array_like of shape (n_classes, n_decisions)
        What decision j costs if class i is the true one, from 0 on. Decisions are the classes in
        their order, and any others behind them, such as asking a person.

    Raises
    ------
    InputError
        If the costs are not a finite number from 0 on for each class and decision.

    Examples
    --------
    To lose a letter costs 10 times as much as to read one more advertisement, and to ask costs 1.5.

    >>> import numpy as np
    >>> expected_costs(np.log([[0.2, 0.8]]), [[0, 10, 1.5], [1, 0, 1.5]]).round(6).tolist()
    [[0.8, 2.0, 1.5]]
    """
    return _expected_costs(log_posteriors, _checked_costs(costs))


def _expected_costs(log_posteriors: ArrayLike, table: Floats) -> Floats:
    given = checked_log_posteriors(log_posteriors)
    if len(table) != given.shape[1]:
        raise InputError(
            f"costs must have a row for each of {given.shape[1]} classes. Got {len(table)} instead."
        )
    p, found = np.exp(given), np.zeros((len(given), table.shape[1]))
    # In the classes' order: a product of matrices sums rows of a batch in another one than one row.
    for c, row in enumerate(table):
        found += p[:, c, np.newaxis] * row
    return found


def cheapest(log_posteriors: ArrayLike, costs: ArrayLike) -> NDArray[np.intp]:
    """Return the decision of least expected cost for each example, the first of those that tie.

    Parameters
    ----------
    log_posteriors, costs
        See `expected_costs`.

    Returns
    -------
    ndarray of shape (n,), int
        Columns of `costs`.

    Raises
    ------
    InputError
        As for `expected_costs`.

    Examples
    --------
    80 % sure that it is spam is not enough to throw a letter away; 95 % is.

    >>> import numpy as np
    >>> cheapest(np.log([[0.2, 0.8], [0.05, 0.95]]), [[0, 10], [1, 0]]).tolist()
    [0, 1]
    """
    found: NDArray[np.intp] = expected_costs(log_posteriors, costs).argmin(axis=1)
    return found


def _checked_costs(costs: ArrayLike) -> Floats:
    """Return costs as an array, or refuse them."""
    table = floats_in(costs)
    if table.ndim != 2 or not table.size:
        raise InputError(
            "costs must have a row for each class, and a column for each decision. Got shape"
            f" {table.shape} instead."
        )
    if not np.isfinite(table).all() or table.min() < 0.0:
        raise InputError(f"costs must be finite, from 0 on. Got {table.tolist()} instead.")
    return table


# ---- beside a model that learns ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """What is made of a model's log-posteriors at one moment: a value, for any thread.

    Attributes
    ----------
    curve : ndarray or None
        A `Calibrator`'s; None: what is stated is answered.
    threshold : float or None
        A `ConformalSets`'; None: there are no prediction sets.
    costs : ndarray of shape (n_classes, n_classes) or None
        What it costs to say class j if i is the true one; None: the likeliest class is said.

    Examples
    --------
    >>> import numpy as np
    >>> rule = AnswerRule(threshold=0.9, costs=np.array([[0.0, 10.0], [1.0, 0.0]]))
    >>> log_posteriors = np.log([[0.2, 0.8], [0.02, 0.98]])
    >>> rule.sets(log_posteriors).tolist(), rule.labels(log_posteriors).tolist()
    ([[True, True], [False, True]], [0, 1])
    >>> AnswerRule(threshold=0.01).sets(log_posteriors).tolist()
    [[False, True], [False, True]]
    """

    curve: Floats | None = None
    threshold: float | None = None
    costs: Floats | None = None

    def __post_init__(self) -> None:
        if self.curve is not None:
            object.__setattr__(self, "curve", sealed(_checked_curve(self.curve)))
        if self.threshold is not None:
            object.__setattr__(self, "threshold", _checked_threshold(self.threshold))
        if self.costs is not None:
            object.__setattr__(self, "costs", sealed(_checked_costs(self.costs)))

    def calibrated(self, log_posteriors: ArrayLike) -> Floats:
        """Return what is answered for stated log-posteriors of shape (n, n_classes), in nats.

        nan is a class that the model has not, and stays.
        """
        given = checked_log_posteriors(log_posteriors, gaps=True)
        curve = self.curve
        return given.copy() if curve is None else calibrated_with_gaps(lambda _: curve, given)

    def sets(self, log_posteriors: ArrayLike) -> Sets | None:
        """Return which classes are in the sets of calibrated log-posteriors; None without sets.

        The likeliest class is in each: a threshold that stands for a while would otherwise leave
        nearly all sets empty now and then, where the model is right more often than is asked for.
        """
        given = checked_log_posteriors(log_posteriors, gaps=True)
        if self.threshold is None:
            return None
        found = prediction_sets(self.threshold, given)
        if given.shape[1]:
            # A class that the model has not is nan, and the likeliest of none.
            likeliest = np.nan_to_num(given, nan=-np.inf).argmax(axis=1)
            found[np.arange(len(found)), likeliest] = True
        return found

    def labels(self, log_posteriors: ArrayLike) -> NDArray[np.intp]:
        """Return the place of the class that is said for each row of calibrated log-posteriors."""
        if self.costs is not None:
            found: NDArray[np.intp] = _expected_costs(log_posteriors, self.costs).argmin(axis=1)
            return found
        given = checked_log_posteriors(log_posteriors)
        if not given.shape[1]:
            raise InputError("log_posteriors must have a class to say. Got none instead.")
        likeliest: NDArray[np.intp] = given.argmax(axis=1)
        return likeliest

    def to_dict(self) -> dict[str, Any]:
        """Return what was learned as JSON values: the costs are not."""
        return {
            "curve": None if self.curve is None else self.curve.tolist(),
            "threshold": self.threshold,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], costs: Floats | None = None) -> Self:
        """Return the rule that `to_dict` described, with these costs.

        Raises
        ------
        InputError
            If the values describe none.
        """
        try:
            curve, threshold = values["curve"], values["threshold"]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise InputError(
                f"these values describe no rule ({error!r}). Give what `to_dict` returned."
            ) from error
        return cls(curve, threshold, costs)


def _checked_curve(curve: Any) -> Floats:
    """Return a calibrator's curve as an array, or refuse what is none."""
    found = floats_in(curve)
    if not (
        found.shape == SCALED_ODDS.shape
        and np.isfinite(found).all()
        and (np.diff(found) > 0.0).all()
    ):
        raise InputError("a rule's curve must be that of a calibrator, which rises.")
    return found


def _checked_threshold(threshold: Any) -> float:
    """Return a threshold as a float, or refuse what is none."""
    if isinstance(threshold, bool) or not isinstance(threshold, numbers.Real):
        raise InputError(f"a rule's threshold must be a number. Got {threshold!r} instead.")
    try:
        found = float(threshold)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InputError(f"a rule's threshold must be finite. Got {threshold!r} instead.")
    return found


class Confidence:
    """Learns what answers are worth: a calibrator, prediction sets and costs, each if wanted.

    A `Learner` with it counts each example that it judges, and its snapshots answer by the rule
    that held when they were published.

    Parameters
    ----------
    calibrator : Calibrator, optional
    conformal : ConformalSets, optional
        Made of calibrated probabilities, if there is a calibrator.
    costs : array_like of shape (n_classes, n_classes), optional
        See `AnswerRule`.

    Raises
    ------
    InputError
        If the costs are not a square of finite numbers from 0 on.

    Examples
    --------
    >>> import numpy as np
    >>> confidence = Confidence(Calibrator(), ConformalSets(0.8))
    >>> answers = confidence.learn(np.log([[0.01, 0.99]] * 100), np.array([0, 1] * 50))
    >>> rule = confidence.rule()
    >>> np.exp(rule.calibrated(np.log([[0.01, 0.99]]))).round(1).tolist()
    [[0.5, 0.5]]
    """

    def __init__(
        self,
        calibrator: Calibrator | None = None,
        conformal: ConformalSets | None = None,
        costs: ArrayLike | None = None,
    ) -> None:
        check_kind("calibrator", calibrator, Calibrator, NoneType)
        check_kind("conformal", conformal, ConformalSets, NoneType)
        self.calibrator = calibrator
        self.conformal = conformal
        self.costs = None if costs is None else sealed(_checked_costs(costs))
        if self.costs is not None and self.costs.shape != self.costs.T.shape:
            raise InputError(
                "costs must have as many columns as rows, one for each class. Got shape"
                f" {self.costs.shape} instead."
            )

    def learn(
        self, log_posteriors: ArrayLike, truth: Sequence[int] | NDArray[np.integer[Any]]
    ) -> Floats:
        """Learn from stated log-posteriors in order; return what each was answered before that.

        nan is a class that the model had not yet when it judged, and stays. An example of such a
        class, or of none of them, with a truth of -1, is answered and not counted.
        """
        given = checked_log_posteriors(log_posteriors, gaps=True)
        places = checked_places(truth, given, least=-1)
        if self.calibrator is None:
            answers = given.copy()
        else:
            answers = self.calibrator.prequential_many(given, places)
        if self.conformal is not None:
            self.conformal.prequential_many(answers, places)
        return answers

    def rule(self, n_classes: int | None = None) -> AnswerRule:
        """Return what is answered by from now on.

        Parameters
        ----------
        n_classes : int, optional
            Of what is answered; see `Calibrator.curve_for`. None: as many as what was counted had,
            which is two before any.

        Raises
        ------
        InputError
            If `n_classes` is no whole number from 0 on.
        """
        curve = None
        if self.calibrator is not None:
            curve = (
                self.calibrator.curve if n_classes is None else self.calibrator.curve_for(n_classes)
            )
        return AnswerRule(
            curve, None if self.conformal is None else self.conformal.standing_threshold, self.costs
        )


@dataclass(frozen=True, slots=True)
class FrameEvaluation:
    """How a model judged the labelled rows of a data frame."""

    classes: tuple[Label, ...]
    confusion: NDArray[np.int64] = field(repr=False)  # by true class, then by predicted one
    log_loss: float  # −log p of the true class in nats, on average
    n_unknown: int  # rows whose label is none of the classes: left out of all figures

    @property
    def n(self) -> int:
        """How many rows were judged."""
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        """The share of rows judged right; nan without rows."""
        return float(np.trace(self.confusion) / self.n) if self.n else float("nan")
