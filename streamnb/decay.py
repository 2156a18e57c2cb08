"""Forgetting: an example's weight halves with each half-life, at no cost per feature.

This is forward decay (Cormode, Shkapenyuk, Srivastava and Xu 2009): nothing that was counted is
ever touched. Instead an example at time t enters with weight g(t) = 2^((t − L)/h), L a landmark and
h the half-life, and an estimate at time t is read from N/g(t). As all counts share that factor, it
moves to the prior: (N/g + α)/(N_·/g + α·V) = (N + α·g)/(N_· + α·V·g). So all that a row needs is
its *scale* g.

Before g grows large, the landmark moves on by a multiple of `_SPAN` half-lives and every count is
multiplied by that power of two, which is exact; once in `_SPAN` half-lives at most.
Landmarks are whole multiples of `_SPAN` half-lives, so two models' counts differ by a power of two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamnb.columns import is_masked_array
from streamnb.errors import InputError
from streamnb.kernels.layout import RowUpdates
from streamnb.labels import UNLABELLED, ones
from streamnb.priors import check

_SPAN = 32.0  # half-lives
_FAR = 64.0  # half-lives beyond the landmark, where it moves: more would cost digits
_LEAP = 256.0  # where it must move: 2^256 times the largest weight and count is in float64
_BACK_MAX = 960.0  # half-lives that a landmark can move back: the power of two is in float64
_LIVES_MAX = 1e15  # beyond, two half-lives in a row are the same number in float64
# Decay makes counts larger: up to this weight and count, no sum of them overflows float64.
WEIGHT_MAX = 1e50
# From this weight and count on, no product of the two underflows to zero.
WEIGHT_MIN = 1e-100
_NOTHING = 1e-200
AMOUNTS = f"0, or a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}"


@dataclass(frozen=True, slots=True)
class HalfLife:
    """How fast a model forgets: after this long, an example counts half.

    Parameters
    ----------
    examples : float, optional
        Measured in examples learned.
    seconds : float, optional
        Measured in the examples' own time (`time_s`, on any clock of seconds). Examples may come
        out of order. One of the two is given.

    Examples
    --------
    >>> HalfLife(examples=1000)
    HalfLife(examples=1000.0, seconds=None)
    """

    examples: float | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if (self.examples is None) == (self.seconds is None):
            raise InputError(
                f"HalfLife takes examples or seconds, one of them. Got {self.examples!r} and"
                f" {self.seconds!r} instead."
            )
        for name in ("examples", "seconds"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, check(f"HalfLife.{name}", value, above=0.0))

    @property
    def length(self) -> float:
        """The half-life, in examples or seconds."""
        return self.examples if self.examples is not None else float(self.seconds or 0.0)


def check_prior_half_life(value: Any) -> float | None:
    """Return the half-life of a class prior in examples; None for none, 0 and infinity."""
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if value is None or (is_number and not isinstance(value, bool) and value in (0, math.inf)):
        return None
    return check("prior_half_life", value, above=0.0)


def check_forgets(half_life: HalfLife | None, specs: Mapping[str, Any]) -> None:
    """Refuse decay for a group that could not follow it at a flat cost."""
    if half_life is None:
        return
    for name, spec in specs.items():
        likelihood = getattr(spec, "likelihood", None)
        if not getattr(likelihood, "forgets", True):
            raise InputError(
                f"group {name!r}: {likelihood!r} and decay do not go together, as each passing"
                " moment would move the weight of every word. Leave out normalise, or decay."
            )


class Move(NamedTuple):
    """A landmark that moves on: before `row`, every count is multiplied by `factor`, 2 to a power.

    `scale` is g before the row, at the old landmark: the row is predicted by what was known then.
    """

    row: int
    factor: float
    scale: float

    @property
    def was_due(self) -> bool:
        """Whether the clock had come that far before the row, which need not leap for it."""
        return self.scale >= math.pow(2.0, _FAR)


class DecaySchedule(NamedTuple):
    """A batch's weights and scales, the moves of its landmark in order, and the clock after it."""

    updates: RowUpdates
    moves: list[Move]
    clock: Clock
    own_now: float | None  # the newest time of the part that learns


@dataclass(frozen=True, slots=True)
class Clock:
    """How far decay has come; a value."""

    half_life: HalfLife | None = None  # None: nothing is forgotten, and all scales are 1
    now: float | None = None  # examples learned, or the latest time; None before the first
    landmark: float = 0.0  # L, in half-lives

    @property
    def scale(self) -> float:
        """How far decay has scaled all counts by now: g."""
        if self.half_life is None or self.now is None:
            return 1.0
        return float(_growth(np.float64(self.now / self.half_life.length), self.landmark))

    def schedule(
        self,
        labels: NDArray[np.int32],
        weights: NDArray[np.float64] | None,
        times_s: NDArray[np.float64] | None,
        own_now: float | None = None,
    ) -> DecaySchedule:
        """Return how rows with these labels are learned, one after the other.

        `own_now` is the newest time of the part that learns, nan if it has none; None if that part
        is all there is.
        """
        n = len(labels)
        every_one = ones(n)
        given = every_one if weights is None else weights
        if self.half_life is None:
            updates = RowUpdates(labels, given, every_one, every_one, every_one)
            return DecaySchedule(updates, [], self, None)
        if self.half_life.seconds is not None and times_s is None:
            raise InputError(
                "this model's half-life is in seconds: time_s (or times_s) must say when each"
                " example was."
            )
        own, before, after = self._times(labels, times_s)
        length = self.half_life.length
        own_lives, before_lives = own / length, np.append(before, after) / length
        self._check_lives(own_lives)
        landmark, moves = self.landmark, list[Move]()
        if self.now is None and (labels != UNLABELLED).any():
            landmark = _landmark(own_lives[np.argmax(labels != UNLABELLED)])
        landmarks: float | NDArray[np.float64] = landmark
        if _latest(before_lives) >= landmark + _FAR or _latest(own_lives) >= landmark + _LEAP:
            landmarks, moves = _moves(own_lives, before_lives, landmark)
            landmark = float(landmarks[-1])
            landmarks = landmarks[:-1]
        with np.errstate(under="ignore"):
            scales = _growth(before_lives[:n], landmarks)
            if math.isnan(before_lives[0]):
                # Nothing is learned yet: no count to compare a prior to.
                scales[np.isnan(scales)] = 1.0
            growths = _growth(own_lives, landmarks)
            grown = given * growths
        if own_now is None and not math.isnan(before_lives[0]):
            own_scales, own_now = np.fmax(scales, _NOTHING), after  # no scale is 0
        else:
            counted = np.where(labels != UNLABELLED, own, math.nan)
            own_scales, own_now = _own_scales(own, counted, own_now, length, landmarks)
        if not (taught := self.teaches(grown)).all():
            labels = np.where(taught, labels, np.int32(UNLABELLED))
        now = None if n and math.isnan(after) else (after if n else self.now)
        clock = Clock(self.half_life, now, landmark)
        own_after = np.fmax(own_scales, growths)
        updates = RowUpdates(labels, grown, scales, own_scales, own_after, decays=True)
        return DecaySchedule(updates, moves, clock, None if math.isnan(own_now) else own_now)

    def _times(
        self, labels: NDArray[np.int32], times_s: NDArray[np.float64] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Return each row's own time, the clock's before it (nan: none yet), and the last."""
        n = len(labels)
        learned = labels != UNLABELLED
        start = math.nan if self.now is None else self.now
        if times_s is None:
            start = 0.0 if self.now is None else self.now
            own = start + np.cumsum(learned)
            before = own - learned
            return own.astype(np.float64), before.astype(np.float64), float(own[-1] if n else start)
        counted = np.where(learned, times_s, math.nan)
        after = np.fmax.accumulate(np.concatenate(([start], counted)))
        own = np.where(learned, times_s, after[:-1])
        return own, after[:-1], float(after[-1])

    def turned_back(self, now: float | None) -> tuple[Clock, float]:
        """Return this clock at an earlier time, and the power of two to multiply its counts by.

        What remains of a part so far behind that float64 cannot hold its weight is nothing, and
        says no time.
        """
        if now is None or self.half_life is None:
            return Clock(self.half_life), 1.0
        landmark = min(self.landmark, _landmark(now / self.half_life.length))
        if self.landmark - landmark > _BACK_MAX:
            return self, 1.0
        return Clock(self.half_life, now, landmark), _power(self.landmark - landmark)

    def check_part(self, now: Any) -> None:
        """Refuse the newest time of a part if it is none, or later than the model's."""
        is_number = isinstance(now, int | float) and not isinstance(now, bool)
        if now is None or (is_number and self.now is not None and now <= self.now):
            return
        raise InputError(f"a part's now must be a time up to {self.now!r}. Got {now!r} instead.")

    def moved_to(self, landmark: float) -> tuple[Clock, float]:
        """Return this clock at another landmark, and the power of two to multiply its counts by."""
        return Clock(self.half_life, self.now, landmark), _power(self.landmark - landmark)

    def teaches(self, weights: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which weights teach anything: none so old that float64 cannot hold it."""
        least = 0.0 if self.half_life is None else _NOTHING
        found: NDArray[np.bool_] = (weights != 0.0) & ~(weights < least)
        return found

    def weights_at(self, times_s: NDArray[np.float64] | None, n: int) -> NDArray[np.float64]:
        """Return the weights in today's counts of `n` examples learned at some times.

        It is refused if the half-life is in examples: which one it was is not known any more.
        """
        if self.half_life is None:
            return ones(n)
        if self.half_life.seconds is None:
            raise InputError(
                "a model whose half-life is in examples cannot unlearn: how much of the example is"
                " left depends on how long ago it came. Take a half-life in seconds, and time_s."
            )
        if times_s is None:
            raise InputError("time_s must say when the example was, as it did when it was learned.")
        lives = times_s / self.half_life.length
        self._check_lives(lives)
        with np.errstate(under="ignore", over="ignore"):
            weights: NDArray[np.float64] = _growth(lives, self.landmark)
        return weights

    def _check_lives(self, lives: NDArray[np.float64]) -> None:
        if _latest(np.abs(lives)) > _LIVES_MAX:
            far = np.flatnonzero(np.abs(lives) > _LIVES_MAX)
            if self.half_life is not None and self.half_life.seconds is None:
                raise InputError(
                    f"a half-life of {self.half_life.length:g} examples is too short: no clock of"
                    f" more than {_LIVES_MAX:g} half-lives is exact. Take a longer half-life."
                )
            raise InputError(
                f"time_s must be within {_LIVES_MAX:g} half-lives of zero. Got"
                f" {lives[far[0]]:g} of them instead: take a longer half-life, or a later zero."
            )

    def to_dict(self) -> dict[str, Any] | None:
        """Return the clock as the file's header has it."""
        if self.half_life is None:
            return None
        return {"now": self.now, "landmark": self.landmark}

    @classmethod
    def from_dict(cls, half_life: HalfLife | None, values: Mapping[str, Any]) -> Clock:
        """Return the clock that `to_dict` described; refuse one that no learning leaves."""
        now, landmark = values["now"], float(values["landmark"])
        if half_life is None:
            raise InputError("a model without a half-life has no clock.")
        if now is not None:
            now = float(now)
        lives = landmark if now is None else now / half_life.length
        # nan fails each comparison.
        if not (
            abs(lives) <= _LIVES_MAX
            and landmark % _SPAN == 0.0
            and 0.0 <= lives - landmark <= _LEAP
        ):
            raise InputError(
                f"a clock's landmark must be a multiple of {_SPAN:g} half-lives, at most"
                f" {_LEAP:g} before now. Got {landmark!r} and now {now!r} instead."
            )
        return cls(half_life, now, landmark)


def _own_scales(
    own: NDArray[np.float64],
    counted: NDArray[np.float64],
    now: float | None,
    length: float,
    landmarks: float | NDArray[np.float64],
) -> tuple[NDArray[np.float64], float]:
    """Return the scales of rows by the newest time before them in their part, and the last time.

    `own` are the rows' times, `counted` those of the ones that are learned; `now` is the part's, or
    none. The first of a part is as new as it can be. No scale is 0, however far the part is behind.
    """
    start = math.nan if now is None else now
    after = np.fmax.accumulate(np.concatenate(([start], counted)))
    before = np.where(np.isnan(after[:-1]), own, after[:-1])
    with np.errstate(under="ignore"):
        scales = _growth(before / length, landmarks)
    return np.fmax(scales, _NOTHING), float(after[-1])


def _latest(lives: NDArray[np.float64]) -> float:
    """Return the latest of some times; minus infinity if none is known."""
    return float(np.fmax.reduce(lives, initial=-math.inf))


def _moves(
    own_lives: NDArray[np.float64], before_lives: NDArray[np.float64], landmark: float
) -> tuple[NDArray[np.float64], list[Move]]:
    """Return the landmark of each row and the one behind the last, and how it moves there.

    Once the clock is far beyond the landmark, the landmark moves after the example that brought the
    clock there. An example that leaps too far moves it before it is learned.
    """
    n, begin, moves = len(own_lives), 0, list[Move]()
    landmarks = np.empty(n + 1)
    while begin <= n:
        is_far = before_lives[begin:] >= landmark + _FAR
        far = np.flatnonzero(is_far[:-1] | (own_lives[begin:] >= landmark + _LEAP))
        end = begin + int(far[0]) if len(far) else n
        landmarks[begin:end] = landmark
        if end == n and not is_far[-1]:
            break
        latest = before_lives[end] if is_far[end - begin] else own_lives[end]
        scale = _growth(before_lives[end], landmark)
        factor = _power(landmark - _landmark(latest))
        moves.append(Move(end, factor, 1.0 if np.isnan(scale) else float(scale)))
        landmark = _landmark(latest)
        begin = end
    landmarks[n] = landmark
    return landmarks, moves


def _growth(lives: Any, landmark: Any) -> Any:
    """Return g = 2^(lives − landmark), so that another landmark changes it by exactly 2^whole."""
    whole = np.floor(lives)
    # Unlike `clip` these let no nan through, which the mantissa keeps.
    exponent = np.fmax(np.fmin(whole - landmark, 5000.0), -5000.0).astype(np.int32)
    return np.ldexp(np.exp2(lives - whole), exponent)


def _landmark(lives: float) -> float:
    """Return the last landmark at or before a time, in half-lives."""
    return math.floor(lives / _SPAN) * _SPAN


def _power(exponent: float) -> float:
    """Return 2 to a whole exponent; 0 if the result is too small for float64."""
    return math.ldexp(1.0, max(int(exponent), -2000)) if exponent <= 1000 else math.inf


def read_times(times_s: Any, n: int) -> NDArray[np.float64] | None:
    """Return times of `n` examples as float64, or say what is wrong with them."""
    return None if times_s is None else _read("times_s", times_s, n, low=-math.inf)


def read_weights(weights: Any, n: int) -> NDArray[np.float64] | None:
    """Return weights of `n` examples as float64, or say what is wrong with them."""
    return None if weights is None else _read("weights", weights, n, low=0.0)


def are_amounts(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return for each value whether it is a weight or count: 0, or between the bounds."""
    fits: NDArray[np.bool_] = (values == 0) | ((values >= WEIGHT_MIN) & (values <= WEIGHT_MAX))
    return fits


def _read(name: str, values: Any, n: int, low: float) -> NDArray[np.float64]:
    if is_masked_array(values) and np.ma.is_masked(values):
        raise InputError(f"{name} must be numbers. Got an array with masked entries instead.")
    if hasattr(values, "__array__"):
        values = np.asarray(values)  # a series of a data frame is no Sequence
    if isinstance(values, str | bytes) or not isinstance(values, Sequence | np.ndarray):
        raise InputError(f"{name} must be a sequence of numbers. Got {values!r} instead.")
    # NumPy would read numbers out of texts, and truth values as 0 and 1.
    if isinstance(values, np.ndarray):
        wrong = [] if values.dtype.kind in "iuf" else [values.dtype]
    else:
        numbers = (int, float, np.integer, np.floating)
        wrong = [v for v in values if isinstance(v, bool) or not isinstance(v, numbers)]
    try:
        array = np.array([] if wrong else values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        wrong = [values]
    if wrong:
        raise InputError(f"{name} must be numbers. Got {wrong[0]!r} instead.")
    if array.shape != (n,):
        raise InputError(f"there are {n} examples, and {name} has shape {array.shape}.")
    is_fit = np.isfinite(array) if low < 0 else are_amounts(array)
    unfit = np.flatnonzero(~is_fit)
    if len(unfit):
        at = int(unfit[0])
        wanted = "finite" if low < 0 else AMOUNTS
        raise InputError(f"{name}[{at}] must be {wanted}. Got {values[at]!r} instead.")
    return array
