"""Calibration: what stated probabilities have been worth, counted on the stream itself.

A class's log-odds z = log p/(1−p) fall into one of 50 bins, evenly spaced in arsinh z. Each bin
counts how often some class was stated with such odds, and how often it was the true one, whichever
class it was. The calibrated probability is the share that came true: isotonic over the bins
(Zadrozny and Elkan 2002, "Transforming classifier scores into accurate multiclass probability
estimates"), linear between their middles in log-odds, and normalised over the classes.

All classes share the bins, for two reasons. The order of the classes stays, so no answer changes
its label. And the counts do not learn how frequent each class is: one curve a class would learn the
last mix of a stream, and answer by it whatever is asked.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamnb.columns import numbers_in
from streamnb.errors import InputError, check_whole
from streamnb.labels import checked_log_posteriors, checked_places

_STEP, _REACH = 0.25, 6.0  # of the bins, in arsinh of log-odds: the last ones begin at ±202 nats
_EDGES = np.arange(-_REACH, _REACH + _STEP / 2, _STEP)
SCALED_ODDS = np.append(_EDGES, _REACH + _STEP) - _STEP / 2  # in the middle of each bin
with np.errstate(over="ignore"):  # of the bins, as probabilities
    _ENDS = 1.0 / (1.0 + np.exp(-np.sinh(np.concatenate(([-np.inf], _EDGES, [np.inf])))))
_ODDS_MAX = 1_000.0  # in nats; a class that is ruled out has infinite ones
# Before anything is counted, what is stated is believed, but no surer than 98 %, which leaves odds
# of −4 to all other classes together. That counts as two examples.
_PRIOR_ODDS, _PRIOR_EXAMPLES = 4.0, 2.0
_CURVES_MAX = 64  # kept, each for another number of classes
_TILT = 1e-3  # keeps the order of classes whose bins came true equally often
_UNIT = 1 << 30  # of a count: an example is halved up to 20 times without rounding
_STATED_UNIT = _UNIT >> 10  # of a sum of probabilities, each rounded to 1/1024
_HALVINGS_MAX = 20
# Above it, the unit of all counts is made twice as large where a curve is drawn. Until the next
# curve 1,024 examples of 2²¹ classes fit in, and into 64 bits the sum of two calibrators.
_FULL = 1 << 61
_UNITS = [_UNIT >> halved for halved in range(_HALVINGS_MAX + 1)]  # then a rounded 1/1024 is 1
_RENEWED_SHARE, _RENEWED_MAX = 16, 1024  # a curve lasts a sixteenth of the examples, and at most so

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """What became of the probabilities within one bin.

    Attributes
    ----------
    low, high : float
        The bin's ends, as probabilities.
    n : float
        How often some class was stated with such a probability; decayed.
    stated, came_true : float
        Mean stated probability, each counted to 1/1024, and the share that was the true class.
    calibrated : float
        What a probability in the middle of the bin is answered as, before the classes' are
        normalised.
    """

    low: float
    high: float
    n: float
    stated: float
    came_true: float
    calibrated: float


class Calibrator:
    """Learns from judged examples what stated probabilities are worth.

    It works with any model's log-posteriors and any number of classes. Everything counted is a
    whole number, so calibrators add up, and take back, bit for bit. The curves, one for each number
    of classes asked about, are drawn again at certain numbers of examples, so that a stream gives
    the same answers however it is cut.

    Reading may go on in other threads while one counts.

    Parameters
    ----------
    half_life : int or None
        After so many examples all counts are halved; None: nothing is forgotten.

    Attributes
    ----------
    n : int
        How many examples were counted; taking back leaves it as it is.
    counts : ndarray of shape (3, n_bins), int64
        By bin: how often some class was stated so, how often it was true, and the sum of what was
        stated; each in examples times `unit`.
    unit : int
        What one example counts as: 2³⁰, and half of it, again and again, where a bin was stated so
        often that 64 bits would not hold it. Up to 2⁵³ statements nothing is rounded by that.
    curves : object
        The counts that `curve_for` draws by; replaced, and never changed.
    renewed_at : int
        The `n` at which that was.

    Raises
    ------
    InputError
        If `half_life` is not a whole number of at least 1.

    Examples
    --------
    Of 1,000 texts that were called spam for 99 % sure, 700 were.

    >>> import numpy as np
    >>> stated = np.log(np.tile([0.01, 0.99], (1000, 1)))
    >>> calibrator = Calibrator()
    >>> _ = calibrator.prequential_many(stated, [1, 1, 1, 1, 1, 1, 1, 0, 0, 0] * 100)
    >>> np.exp(calibrator.calibrate(stated[:1])).round(2).tolist()
    [[0.3, 0.7]]
    >>> round(calibrator.calibration_error(), 2)
    0.29
    """

    def __init__(self, half_life: int | None = 100_000) -> None:
        if half_life is not None:
            check_whole("half_life", half_life, 1)
        import scipy.optimize  # noqa: F401, PLC0415 -- half a second: here, not with the first curve

        self.half_life = None if half_life is None else int(half_life)  # `to_dict` is JSON
        self.n = 0
        self.counts: Whole = np.zeros((3, len(SCALED_ODDS)), dtype=np.int64)
        self.unit = _UNIT
        self.renewed_at = 0
        self.curves = _Curves(self.counts[:2], self.unit)

    @property
    def curve(self) -> Floats:
        """The curve for as many classes as the examples had on average; two before any."""
        return self.curves.of(self.curves.n_classes)

    def curve_for(self, n_classes: int) -> Floats:
        """Return the calibrated log-odds in the middle of each bin, for answers of so many classes.

        What was counted is the same for all; what is believed beside it depends on the classes.
        The array is never changed.
        """
        check_whole("n_classes", n_classes, 0)
        return self.curves.of(n_classes)

    def calibrate(self, log_posteriors: ArrayLike) -> Floats:
        """Return calibrated log-posteriors, ndarray of shape (n, n_classes), in nats.

        Parameters
        ----------
        log_posteriors : array_like of shape (n, n_classes)
            Normalised, in nats; -inf is allowed. A row of -inf alone becomes uniform. nan is a
            class that the model had not yet: it has no share of the answer, and stays nan.

        Raises
        ------
        InputError
            If it is of another shape, or holds a probability above 1.
        """
        given = checked_log_posteriors(log_posteriors, gaps=True)
        return calibrated_with_gaps(self.curves.of, given)

    def prequential_many(
        self,
        log_posteriors: ArrayLike,
        truth: Sequence[int] | NDArray[np.integer[Any]],
        asked: ArrayLike | None = None,
    ) -> Floats:
        """Calibrate examples, each by what was counted before it, and count them in order.

        Parameters
        ----------
        log_posteriors : array_like of shape (n, n_classes)
            From before each example was learned, normalised, in nats; nan as for `calibrate`.
        truth : sequence of int, of length n
            The place of each one's true class. An example of a class that the model had not, nan or
            -1, is answered and not counted.
        asked : array_like of shape (n, n_classes), optional
            What is calibrated instead, where labels come late: log-posteriors of the examples that
            are judged as those of `log_posteriors` are counted.

        Returns
        -------
        ndarray of shape (n, n_classes), in nats
            However the stream is cut into calls, the same bits.

        Raises
        ------
        InputError
            As for `calibrate`, or if a place is none of the classes; nothing was counted.
        """
        given = checked_log_posteriors(log_posteriors, gaps=True)
        places = checked_places(truth, given, least=-1)
        asked = given if asked is None else checked_log_posteriors(asked, gaps=True)
        if len(asked) != len(given):
            raise InputError(
                f"asked must have {len(given)} rows, as log_posteriors. Got {len(asked)}."
            )
        if has_gaps(given, places) or (asked is not given and np.isnan(asked).any()):
            return in_runs(self.prequential_many, self.calibrate, given, places, asked)
        odds = scaled_odds(given)
        asked_odds = odds if asked is given else scaled_odds(asked)
        out = np.empty_like(asked)
        begin = 0
        while begin < len(given):
            end = min(len(given), begin + self._n_unchanged())
            curve = self.curves.of(asked.shape[1])
            out[begin:end] = _on_curve(curve, asked_odds[begin:end], asked[begin:end])
            added = _counted(odds[begin:end], given[begin:end], places[begin:end])
            self.counts += added >> _n_coarser(self.unit)
            self.n += end - begin
            if self.half_life is not None and self.n % self.half_life == 0:
                self.counts >>= 1
            if self.n >= self.renewed_at + self._lasts():
                self._renew()
            begin = end
        return out

    def unlearn_many(
        self,
        log_posteriors: ArrayLike,
        truth: Sequence[int] | NDArray[np.integer[Any]],
        numbers: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Take examples back, bit for bit; of those of more than 20 half-lives, what is left stays.

        Parameters
        ----------
        log_posteriors, truth
            As they were counted: what the model had said then. Rows that were not counted take
            nothing back.
        numbers : sequence of int, of length n, optional
            The `n` that stood before each, needed with a half-life: it says how often the example
            has been halved. After more than 20 times less than a millionth of it is left, and
            stays; after as many fewer as `unit` was halved, twice as much for each. A sum of two
            calibrators has lost these numbers: take back before adding.

        Raises
        ------
        InputError
            For arguments that cannot be used, or if more is taken back than was counted; nothing
            has changed.
        """
        given = checked_log_posteriors(log_posteriors, gaps=True)
        places = checked_places(truth, given, least=-1)
        ages = np.zeros(len(given), dtype=np.int64)
        stood = places if numbers is None else numbers_in(numbers)
        lacks = numbers is None and self.half_life is not None
        if lacks or stood.shape != places.shape or (len(stood) and stood.dtype.kind not in "iu"):
            raise InputError(
                "numbers must say the n that stood before each example: with a half-life, what"
                f" is left of it depends on that. Got {numbers!r} instead."
            )
        has, counted = _rows_with_truth(given, places)
        if self.half_life is not None:
            own = stood[counted]
            if len(own) and not 0 <= own.min() <= own.max() < self.n:
                raise InputError(f"numbers must be below n, {self.n}. Got {numbers!r} instead.")
            ages = self.n // self.half_life - stood.astype(np.int64) // self.half_life
        coarser = _n_coarser(self.unit)
        is_left = counted & (ages <= _HALVINGS_MAX - coarser)
        left, rows = self.counts.copy(), np.flatnonzero(is_left)
        # Taken back together: rows of the same classes, counted between the same halvings.
        kinds = np.column_stack((has[rows].astype(np.int64), ages[rows]))
        for (*_, age), at in zip(*_alike(kinds), strict=True):
            stated, own = _without_gaps(given[rows[at]], places[rows[at]], has[rows[at[0]]])
            left -= _counted(scaled_odds(stated), stated, own) >> (age + coarser)
        self.counts = _possible(left, "take back what was not counted")
        self._renew()

    def calibration_error(self) -> float | None:
        """Return the mean distance between stated probability and share; None without counts.

        It is the expected calibration error of the model itself, before calibration, over all
        classes and bins.
        """
        n, came_true, stated = self._in_examples()
        total = float(n.sum())
        return float(np.abs(came_true - stated).sum()) / total if total else None

    def reliability(self) -> list[ReliabilityBin]:
        """Return the reliability curve: the bins that hold anything, the lowest first."""
        ends, (n, came_true, stated) = _ENDS, self._in_examples()
        calibrated_p = 1.0 / (1.0 + np.exp(-self.curve))
        return [
            ReliabilityBin(
                float(ends[i]), float(ends[i + 1]), float(n[i]), float(stated[i] / n[i]),
                float(came_true[i] / n[i]), float(calibrated_p[i]),
            )
            for i in np.flatnonzero(n).tolist()
        ]  # fmt: skip

    def __add__(self, other: object) -> Self:
        """Return what both have counted together, exactly; each enters as decayed as it is."""
        if not isinstance(other, Calibrator):
            return NotImplemented
        return self._combined(other, 1)

    def __sub__(self, other: object) -> Self:
        """Return what this has counted and the other has not; for counts that do not decay."""
        if not isinstance(other, Calibrator):
            return NotImplemented
        if self.half_life is not None:
            raise InputError(
                "calibrators with a half-life cannot be subtracted: how much of the other is left"
                " is not known. Take examples back with unlearn_many and their numbers."
            )
        return self._combined(other, -1)

    def to_dict(self) -> dict[str, Any]:
        """Return all of the state as JSON values; `unit` is among them if it was halved."""
        return {
            "half_life": self.half_life,
            "n": self.n,
            "renewed_at": self.renewed_at,
            "counts": self.counts.tolist(),
            "drawn": self.curves.counts.tolist(),
            "curve": self.curve.tolist(),
        } | ({} if self.unit == _UNIT else {"unit": self.unit})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the calibrator that `to_dict` described.

        Raises
        ------
        InputError
            If the values describe none.
        """
        try:
            found = cls(values["half_life"])
            found.n, found.renewed_at = map(operator.index, (values["n"], values["renewed_at"]))
            counts = np.array(values["counts"], dtype=np.int64)
            drawn = np.array(values.get("drawn", values["counts"][:2]), dtype=np.int64)
            curve = np.array(values["curve"], dtype=np.float64)
            unit = operator.index(values.get("unit", _UNIT))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"these values describe no calibrator ({error!r}). Give what `to_dict` returned."
            ) from error
        shapes, n_bins = (counts.shape, drawn.shape, curve.shape), len(SCALED_ODDS)
        if shapes != ((3, n_bins), (2, n_bins), (n_bins,)):
            raise InputError(
                "counts must be three rows of whole numbers, drawn two, and curve one of numbers,"
                f" each with one for each bin. Got shapes {shapes} instead."
            )
        if unit not in _UNITS:
            raise InputError(f"unit must be a power of two from 2¹⁰ to 2³⁰. Got {unit} instead.")
        since = found.n - found.renewed_at
        rises = (np.diff(curve) > 0.0).all() and np.isfinite(curve).all()
        if not (_can_be(counts) and _can_be(drawn) and rises):
            raise InputError("counts must be those of a calibrator, and its curve must rise.")
        if not 0 <= since < found._lasts() or found.renewed_at < 0:
            raise InputError(
                "renewed_at must be the n at which the curve was drawn. Got"
                f" {found.renewed_at} and n {found.n} instead."
            )
        both, found.unit = _with_room(np.concatenate((counts, drawn)), unit, 2 * _FULL - 1)
        found.counts = both[:3].copy()
        found.curves = _Curves(both[3:], found.unit, curve)
        return found

    # ---- inside --------------------------------------------------------------------------------

    def _in_examples(self) -> Floats:
        """Return the counts in examples; what was stated as far as its bin allows it.

        Each statement was rounded to 1/1024, so that those below half of that came to 0.
        """
        n, came_true, stated = self.counts.astype(np.float64) / self.unit
        return np.stack((n, came_true, np.clip(stated, n * _ENDS[:-1], n * _ENDS[1:])))

    def _lasts(self) -> int:
        """Return for how many examples the present curves hold."""
        return min(max(1, self.renewed_at // _RENEWED_SHARE), _RENEWED_MAX)

    def _n_unchanged(self) -> int:
        """Return how many examples come before the next halving or the next curve."""
        left = self.renewed_at + self._lasts() - self.n
        return (
            left if self.half_life is None else min(left, self.half_life - self.n % self.half_life)
        )

    def _renew(self) -> None:
        self.counts, self.unit = _with_room(self.counts, self.unit)
        self.renewed_at = self.n
        self.curves = _Curves(self.counts[:2], self.unit)

    def _combined(self, other: Calibrator, sign: int) -> Self:
        if self.half_life != other.half_life:
            raise InputError(
                "calibrators must have the same half_life. Got"
                f" {self.half_life} and {other.half_life} instead."
            )
        found = type(self)(self.half_life)
        found.n = max(0, self.n + sign * other.n)
        unit = min(self.unit, other.unit)
        own, others = (
            each.counts >> (_n_coarser(unit) - _n_coarser(each.unit)) for each in (self, other)
        )
        counts = _possible(own + sign * others, "hold less than nothing")
        found.counts, found.unit = _with_room(counts, unit)
        found.renewed_at, found.curves = found.n, _Curves(found.counts[:2], found.unit)
        return found


class _Curves:
    """The curves of one moment, drawn when asked for, for any thread; `drawn` is a file's."""

    def __init__(self, counts: Whole, unit: int, drawn: Floats | None = None) -> None:
        self.counts, self._unit = counts.copy(), unit
        n, n_examples = counts.sum(axis=1, dtype=np.float64)
        self.n_classes = max(2, round(n / n_examples)) if n_examples else 2
        self._by_classes: dict[int, Floats] = {}
        if drawn is not None:
            drawn.setflags(write=False)
            self._by_classes[self.n_classes] = drawn

    def of(self, n_classes: int) -> Floats:
        """Return the curve for answers of so many classes."""
        k = max(2, n_classes)  # of one nothing is calibrated
        found = self._by_classes.get(k)
        if found is None:
            if len(self._by_classes) >= _CURVES_MAX:
                self._by_classes = {}
            found = self._by_classes[k] = _curve_of(self.counts, self._unit, k)
        return found


def _n_coarser(unit: int) -> int:
    """Return how often a unit was made twice as large."""
    return _UNITS.index(unit)


def _with_room(counts: Whole, unit: int, most: int = _FULL) -> tuple[Whole, int]:
    """Return counts, none above `most`, and the unit that is so large, where it has to be."""
    while counts.max() > most and unit > _UNITS[-1]:
        counts, unit = counts >> 1, unit >> 1
    return counts, unit


def _can_be(counts: Whole) -> bool:
    """Return whether no count is below 0, and neither of the other two above how many came."""
    return bool(counts.min() >= 0 and (counts[1:] <= counts[0]).all())


def _possible(counts: Whole, what: str) -> Whole:
    """Return counts; refuse those that nothing can have given."""
    if not _can_be(counts):
        raise InputError(f"a calibrator cannot {what}. Give what was counted, as it was.")
    return counts


def calibrated(curve: Floats, log_posteriors: Floats) -> Floats:
    """Return log-posteriors as a calibrator's `curve` answers them, ndarray (n, n_classes)."""
    return _on_curve(curve, scaled_odds(log_posteriors), log_posteriors)


def calibrated_with_gaps(curve_for: Callable[[int], Floats], log_posteriors: Floats) -> Floats:
    """Return what `calibrated` does; nan is a class that has no share of the answer, and stays."""
    if not np.isnan(log_posteriors).any():
        return calibrated(curve_for(log_posteriors.shape[1]), log_posteriors)
    unknown = np.full(len(log_posteriors), -1)

    def answer(own: Floats, *_: Any) -> Floats:
        return calibrated(curve_for(own.shape[1]), own)

    return in_runs(answer, answer, log_posteriors, unknown, log_posteriors)


def scaled_odds(log_posteriors: Floats) -> Floats:
    """Return arsinh of each class's log-odds against all others; nan if no class is possible."""
    k = log_posteriors.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        if k == 2:  # exact: one is the other's negative
            odds = log_posteriors - log_posteriors[:, ::-1]
        else:
            rest = np.log(-np.expm1(np.minimum(log_posteriors, 0.0)))
            if k > 2:  # of the likeliest class 1 − p is lost in rounding
                rows, best = np.arange(len(rest)), log_posteriors.argmax(axis=1)
                others = log_posteriors.copy()
                others[rows, best] = -np.inf
                rest[rows, best] = np.logaddexp.reduce(others, axis=1)
            odds = log_posteriors - rest
            if k > 2:  # classes that tie stay so, though their odds were reckoned in two ways
                best_p, best_odds = log_posteriors[rows, best, None], odds[rows, best, None]
                odds = np.where(log_posteriors == best_p, best_odds, np.minimum(odds, best_odds))
    return np.arcsinh(np.clip(odds, -_ODDS_MAX, _ODDS_MAX))


def _on_curve(curve: Floats, odds: Floats, log_posteriors: Floats) -> Floats:
    if log_posteriors.shape[1] < 2:  # nothing to mistake it for
        return log_posteriors.copy()
    with np.errstate(over="ignore"):
        found = -np.log1p(np.exp(-np.interp(np.nan_to_num(odds), SCALED_ODDS, curve)))
    found -= np.log(np.exp(found).sum(axis=1, keepdims=True))
    return found


def _counted(odds: Floats, log_posteriors: Floats, truth: NDArray[np.intp]) -> Whole:
    """Return what examples add to the counts."""
    k = log_posteriors.shape[1]
    is_stated = ~np.isnan(odds[:, 0]) if k > 1 else np.zeros(len(odds), dtype=np.bool_)
    if not is_stated.all():  # nothing was said of them
        odds, log_posteriors, truth = odds[is_stated], log_posteriors[is_stated], truth[is_stated]
    bins = np.floor((odds + (_REACH + _STEP)) / _STEP).astype(np.intp)
    np.clip(bins, 0, len(SCALED_ODDS) - 1, out=bins)
    flat, n_bins = bins.reshape(-1), len(SCALED_ODDS)
    stated = np.rint(np.exp(log_posteriors.reshape(-1)) * (_UNIT // _STATED_UNIT))
    found = np.empty((3, n_bins), dtype=np.int64)
    found[0] = np.bincount(flat, minlength=n_bins) * _UNIT
    found[1] = np.bincount(flat.take(np.arange(len(truth)) * k + truth), minlength=n_bins) * _UNIT
    found[2] = np.bincount(flat, stated, n_bins).astype(np.int64) * _STATED_UNIT
    return found


def _curve_of(counts: Whole, unit: int, n_classes: int) -> Floats:
    """Return the calibrated log-odds in the middle of each bin, for answers of so many classes."""
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 -- slow, rarely needed

    known = np.flatnonzero(counts[0]) if counts[0].any() else np.arange(len(SCALED_ODDS))
    # The prior is of examples with so many classes. What the winner leaves is all the others', so
    # the floor of each is lower by log(k − 1); and one example makes up to e^−z statements of odds
    # e^z, of k − 1 at most. Two classes have one each.
    n_others, odds = n_classes - 1.0, np.sinh(SCALED_ODDS)
    believed = np.clip(odds, -(_PRIOR_ODDS + math.log(n_others)), _PRIOR_ODDS)
    prior = (1.0 / (1.0 + np.exp(-believed)))[known]
    prior_n = _PRIOR_EXAMPLES * np.clip(np.exp(-odds[known]), 1.0, n_others)
    n, came_true = counts[:2, known].astype(np.float64) / unit
    weights = n + prior_n
    share = (came_true + prior_n * prior) / weights
    rising = isotonic_regression(share, weights=weights).x
    # An empty bin says nothing: there the curve goes straight from neighbour to neighbour. Beyond
    # the last one it goes on as it began: answers that no label has come for are not all alike.
    drawn = np.interp(SCALED_ODDS, SCALED_ODDS[known], np.log(rising / (1.0 - rising)))
    drawn += believed - np.clip(believed, believed[known[0]], believed[known[-1]])
    found: Floats = drawn + _TILT * SCALED_ODDS
    found.setflags(write=False)
    return found


def has_gaps(log_posteriors: Floats, truth: NDArray[np.intp]) -> bool:
    """Return whether a model lacked classes when it judged: nan, or a truth of -1."""
    return bool(np.isnan(log_posteriors).any() or (truth < 0).any())


def in_runs(
    learn: Callable[[Floats, NDArray[np.intp], Floats], NDArray[Any]],
    answer: Callable[[Floats], NDArray[Any]],
    log_posteriors: Floats,
    truth: NDArray[np.intp],
    asked: Floats,
) -> Floats:
    """Return what is answered to `asked`, run by run of rows that have the same classes.

    A run whose true classes the model had is one to `learn` from; `answer` is for the others.
    """
    shown, (has, counted) = ~np.isnan(asked), _rows_with_truth(log_posteriors, truth)
    alike = np.column_stack((has, shown, counted))
    changes = np.flatnonzero((alike[1:] != alike[:-1]).any(axis=1)) + 1
    out = np.full(asked.shape, np.nan)
    for begin, end in itertools.pairwise((0, *changes.tolist(), len(out))):
        theirs = shown[begin]
        some = np.ascontiguousarray(asked[begin:end, theirs])
        if counted[begin]:
            stated, places = _without_gaps(log_posteriors[begin:end], truth[begin:end], has[begin])
            out[begin:end, theirs] = learn(stated, places, some)
        else:
            out[begin:end, theirs] = answer(some)
    return out


def _rows_with_truth(
    log_posteriors: Floats, truth: NDArray[np.intp]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which classes the model had at each row, and whether the true one was among them."""
    has, counted = ~np.isnan(log_posteriors), truth >= 0
    counted[counted] = has[counted, truth[counted]]
    return has, counted


def _alike(keys: NDArray[np.int64]) -> tuple[list[list[int]], list[NDArray[np.intp]]]:
    """Return the different rows, and where each of them stands."""
    kinds, place = np.unique(keys, axis=0, return_inverse=True)
    return kinds.tolist(), [np.flatnonzero(place == k) for k in range(len(kinds))]


def _without_gaps(
    log_posteriors: Floats, truth: NDArray[np.intp], has: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.intp]]:
    """Return the columns of the classes that the model had, and where the true ones are there."""
    return np.ascontiguousarray(log_posteriors[:, has]), (np.cumsum(has) - 1)[truth]
