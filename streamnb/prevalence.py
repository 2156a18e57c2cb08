"""Prevalence estimation: the share of each class in a stream, corrected for misclassification.

The shares of predictions are biased: a classifier that takes one positive text in five for
negative shows too few positive ones, and the bias grows with their number. Known error rates
correct it. With M_jk = P(predicted j | true k), the shares p of the classes and q of the
predictions satisfy q = M·p. Solved for p this is the *adjusted count* of Forman (2008,
"Quantifying counts and costs via classification", Data Mining and Knowledge Discovery 17), known
earlier in epidemiology for two classes (Rogan and Gladen 1978, American Journal of Epidemiology
107).

**Assumption**: texts of a class are misclassified as often among those counted as among those that
M was measured on; only the shares of the classes differ. This holds for another day of the same
stream. It does not hold for texts selected by a word that the classifier reads: for 275 frequent
words in 50,000 recorded tweets, the error rates of the whole stream gave shares off by 0.12 on
average, against 0.05 for the plain counts, and intervals that held a quarter of the true shares.
Error rates measured among the texts with the same word gave intervals that held 87 to 98 %. So
measure M among texts selected the same way. If counts and M contradict each other, there is no
estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from streamnb.columns import is_masked_array
from streamnb.errors import InputError, check_kind, check_whole
from streamnb.features.protocol import Floats
from streamnb.inspection.parameters import check_level
from streamnb.labels import Label

EXAMPLES_MIN = 50  # of each class: with fewer, its error rates are too uncertain to correct by
_SINGULAR_ERRORS_MIN = 5.0  # standard errors by which M's smallest singular value must exceed zero
_PSEUDO_EXAMPLES = 2.0  # per class; with them, intervals keep their level from 100 examples on
_MISFIT_PROBABILITY = 0.001  # of counts this far from what the error rates allow


@dataclass(frozen=True, slots=True)
class AdjustedShares:
    """Shares of the classes with intervals, or the reason why there are none.

    Attributes
    ----------
    shares : ndarray of shape (n_classes,) or None
        Each from 0 to 1; they add up to 1. None if they cannot be estimated.
    low, high : ndarray of shape (n_classes,) or None
        The ends of each share's interval, from 0 to 1, around the share.
    level : float
        The probability with which an interval holds the true share.
    reason : str or None
        Why there are no shares, in a sentence; None if there are.
    """

    shares: Floats | None
    low: Floats | None
    high: Floats | None
    level: float
    reason: str | None = None


class Quantifier:
    """Corrects any number of counts by the same confusion matrix.

    What depends on the matrix alone is computed once; `adjust` then takes about 50 µs. A quantifier
    never changes, so any number of threads may use it.

    Parameters
    ----------
    confusion : array_like of shape (n_classes, n_classes)
        How often each true class (row) was predicted as each class (column), on examples that were
        predicted before they were learned.
    level : float
        Level of the intervals, between 0 and 1.
    classes : sequence of label, optional
        The names of the classes, used in the reasons.
    examples_min : int
        The number of examples of each class that error rates need.
    n_examples : array_like of shape (n_classes,), optional
        How many examples of each class there are, where they weigh differently and `confusion`
        says of how many that weigh the same these tell as much. It is used in the reasons.

    Raises
    ------
    InputError
        If the matrix is not square, or holds anything but counts.

    Examples
    --------
    10 of 100 negative examples were predicted positive, and 30 of 100 positive ones negative.

    >>> quantifier = Quantifier([[90, 10], [30, 70]])
    >>> found = quantifier.adjust([600, 400])
    >>> found.shares.round(6).tolist()  # (0.4 − 0.1)/(0.7 − 0.1) are positive
    [0.5, 0.5]
    >>> [found.low.round(2).tolist(), found.high.round(2).tolist()]
    [[0.39, 0.4], [0.6, 0.61]]
    """

    def __init__(
        self,
        confusion: ArrayLike,
        level: float = 0.95,
        *,
        classes: Sequence[Label] | None = None,
        examples_min: int = EXAMPLES_MIN,
        n_examples: ArrayLike | None = None,
    ) -> None:
        self.level = check_level(level)
        self.confusion = _checked_confusion(confusion)
        check_whole("examples_min", examples_min, 0)
        if classes is not None:
            check_kind("classes", classes, Sequence)
        self.classes = tuple(range(len(self.confusion))) if classes is None else tuple(classes)
        if len(self.classes) != len(self.confusion):
            raise InputError(
                f"classes must name the {len(self.confusion)} rows of the confusion matrix."
                f" Got {len(self.classes)} names instead."
            )
        self._z = NormalDist().inv_cdf((1.0 + self.level) / 2.0)
        self._n = self.confusion.sum(axis=1)  # examples of each true class
        n_examples = self._n if n_examples is None else _checked_counts(n_examples, self.n_classes)
        self.reason = self._too_few(max(1, examples_min), n_examples)
        if self.reason is None:
            self._rates = (self.confusion / self._n[:, np.newaxis]).T  # M
            self._prepare()

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.confusion)

    def adjust(self, counts: ArrayLike) -> AdjustedShares:
        """Return the shares of the classes among messages, from their predicted classes.

        The shares are those on the simplex whose M·p is nearest to the predicted shares.

        The interval of a share holds the values t that the counts do not contradict: (t − p̂_c)² ≤
        z²·V_c(t). V_c(t) is the variance that p̂_c would have if the share were t and the other
        classes kept their proportions; it comes from sampling both the counted messages and the
        examples behind M (delta method). Both ends are the roots of one quadratic equation:
        Fieller's interval, and Wilson's for a perfect classifier.

        Parameters
        ----------
        counts : array_like of shape (n_classes,)
            How many messages were predicted as each class.

        Raises
        ------
        InputError
            If the number of counts is not that of the classes, or one is negative or not finite.
        """
        observed = _checked_counts(counts, self.n_classes)
        n = float(observed.sum())
        reason = "There are no messages to count." if n == 0.0 else self.reason
        if reason is not None:
            return AdjustedShares(None, None, None, self.level, reason)
        q = observed / n
        p = _nearest(self._rates, q)
        reason = self._misfit(q, p, n)
        if reason is not None:
            return AdjustedShares(None, None, None, self.level, reason)
        low, high = self._interval(p, n)
        return AdjustedShares(p, low, high, self.level)

    # ---- inside --------------------------------------------------------------------------------

    def _too_few(self, examples_min: int, n_examples: Floats) -> str | None:
        """Return which class has too few examples for its error rates, None if none has."""
        if self.n_classes < 2:
            return "There is one class only, and nothing to mistake it for."
        rarest = int(self._n.argmin())
        if self._n[rarest] >= examples_min:
            return None
        many = f"{int(n_examples[rarest])}"
        if n_examples[rarest] >= examples_min:
            many += f" of unequal weight, which say as much as {int(self._n[rarest])}"
        return (
            f"Error rates need {examples_min} labelled examples of each class;"
            f" {self.classes[rarest]!r} has {many}."
        )

    def _prepare(self) -> None:
        """Compute what depends on M alone: its squared inverse, and whether M has an inverse."""
        k = self.n_classes
        # A rate of 0 out of n examples need not be 0. Two more examples, spread evenly, give it an
        # error, as Lang and Reiczigel (2014) do for two classes, after Agresti and Coull.
        self._n_smooth = self._n + _PSEUDO_EXAMPLES
        self._smooth = ((self.confusion + _PSEUDO_EXAMPLES / k) / self._n_smooth[:, np.newaxis]).T
        u, sizes, v = np.linalg.svd(self._smooth)
        left, right = u[:, -1], v[-1]
        spread = (left**2) @ self._smooth - (left @ self._smooth) ** 2
        error = float(np.sqrt((right**2 * spread / self._n_smooth).sum()))
        if sizes[-1] <= _SINGULAR_ERRORS_MIN * error:
            self.reason = (
                "The classifier hardly tells the classes apart: such counts could come from almost"
                " any mixture of them."
            )
            return
        inverse = np.linalg.inv(self._smooth)
        self._squares = (inverse**2) @ self._smooth  # S_ck = Σ_j (M⁻¹)_cj²·M_jk
        # What one example of class k behind M adds to the variance of p_c if p_k is 1.
        self._of_rates = np.maximum(self._squares - np.eye(k), 0.0) / self._n_smooth

    def _misfit(self, q: Floats, p: Floats, n: float) -> str | None:
        """Return why no mixture of the classes explains the predictions, None if one does."""
        residual = q - self._rates @ p
        if not residual.any():
            return None
        expected = self._smooth @ p
        variance = (np.diag(expected) - np.outer(expected, expected)) / n
        for k in np.flatnonzero(p).tolist():
            m = self._smooth[:, k]
            variance += p[k] ** 2 * (np.diag(m) - np.outer(m, m)) / self._n_smooth[k]
        # The residuals add up to 0, so the last one follows from the others.
        distance = residual[:-1] @ np.linalg.solve(variance[:-1, :-1], residual[:-1])
        if distance <= _largest_distance(self.n_classes - 1):
            return None
        j = int(residual.argmax())
        return (
            f"Of these messages {q[j]:.0%} are predicted to be {self.classes[j]!r}, more than any"
            " mixture of the classes would bring about: their error rates must be others."
        )

    def _interval(self, p: Floats, n: float) -> tuple[Floats, Floats]:
        """Return both ends for each class; see `adjust`."""
        k = self.n_classes
        # rest[c]: the proportions of the other classes; the shares are rest·(1 − t), and t itself.
        rest = np.where(np.eye(k, dtype=np.bool_), 0.0, p + 1e-9)
        rest /= rest.sum(axis=1, keepdims=True)
        own = np.eye(k) - rest
        # V(t) = v0 + v1·t + v2·t²
        of_rates = self._of_rates
        v0 = (self._squares * rest).sum(axis=1) / n + (of_rates * rest**2).sum(axis=1)
        v1 = (self._squares * own).sum(axis=1) / n + 2.0 * (of_rates * rest * own).sum(axis=1)
        v2 = (of_rates * own**2).sum(axis=1) - 1.0 / n
        z2 = self._z**2
        a, b, c = 1.0 - z2 * v2, 2.0 * p + z2 * v1, p**2 - z2 * v0
        root = np.sqrt(np.maximum(b**2 - 4.0 * a * c, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            low = np.where(a > 0.0, (b - root) / (2.0 * a), 0.0)
            high = np.where(a > 0.0, (b + root) / (2.0 * a), 1.0)
        return np.clip(np.minimum(low, p), 0.0, 1.0), np.clip(np.maximum(high, p), 0.0, 1.0)


def adjusted_shares(counts: ArrayLike, confusion: ArrayLike, level: float = 0.95) -> AdjustedShares:
    """Return the shares of the classes among messages, from their predicted classes.

    For many counts with one confusion matrix, create a `Quantifier` once.

    Parameters
    ----------
    counts : array_like of shape (n_classes,)
        How many messages were predicted as each class.
    confusion : array_like of shape (n_classes, n_classes)
        How often each true class (row) was predicted as each class (column).
    level : float
        Level of the intervals, between 0 and 1.

    Raises
    ------
    InputError
        If an argument cannot be used; see `Quantifier`.

    Examples
    --------
    >>> adjusted_shares([30, 70], [[1000, 0], [0, 1000]]).shares.tolist()
    [0.3, 0.7]
    >>> adjusted_shares([30, 70], [[50, 50], [50, 50]]).reason[:51]
    'The classifier hardly tells the classes apart: such'
    """
    return Quantifier(confusion, level).adjust(counts)


def _nearest(rates: Floats, q: Floats) -> Floats:
    """Return the p of the simplex with M·p nearest to q, by non-negative least squares.

    As Σp = 1, M·p − q is (M − q·1ᵀ)·p, whose smallest length over the simplex is sought. With a row
    of ones set equal to 1 below, the solution that is free in scale points the same way. Two
    classes need no solver: p₁ is where q₁ lies between the two rates.
    """
    if len(q) == 2 and rates[0, 0] != rates[0, 1]:
        first = (q[0] - rates[0, 1]) / (rates[0, 0] - rates[0, 1])
        first = min(max(float(first), 0.0), 1.0)
        return np.array([first, 1.0 - first])
    from scipy.optimize import nnls  # noqa: PLC0415 -- slow to import, and rarely needed

    p, _ = nnls(np.vstack((rates - q[:, np.newaxis], np.ones(len(q)))), np.append(0.0 * q, 1.0))
    found: Floats = p / p.sum()
    return found


def _numbers(name: str, values: Any) -> Floats:
    """Return a copy of counts as an array of floats."""
    try:
        found = np.array(values)
    except (TypeError, ValueError):  # rows of different length
        found = np.array(None)
    if found.dtype.kind not in "biuf" or (is_masked_array(values) and np.ma.is_masked(values)):
        raise InputError(f"{name} must be an array of numbers. Got {values!r} instead.")
    return found.astype(np.float64)


def _largest_distance(freedom: int) -> float:
    """Return the chi-squared distance that chance exceeds with `_MISFIT_PROBABILITY`."""
    if freedom == 1:  # the square of a normal variable
        return NormalDist().inv_cdf(_MISFIT_PROBABILITY / 2.0) ** 2
    from scipy.special import chdtri  # noqa: PLC0415 -- as for `_nearest`

    return float(chdtri(freedom, _MISFIT_PROBABILITY))


def _checked_confusion(confusion: Any) -> Floats:
    found = _numbers("confusion", confusion)
    if found.ndim != 2 or found.shape[0] != found.shape[1] or not len(found):
        raise InputError(
            "confusion must be square, a row and a column for each class. Got shape"
            f" {found.shape} instead."
        )
    if not np.isfinite(found).all() or found.min() < 0.0:
        raise InputError(f"confusion must hold counts, from 0 on. Got {found.tolist()} instead.")
    found.setflags(write=False)
    return found


def _checked_counts(counts: Any, n_classes: int) -> Floats:
    found = _numbers("counts", counts)
    if found.shape != (n_classes,):
        raise InputError(
            f"counts must be one for each of {n_classes} classes. Got shape {found.shape} instead."
        )
    if not np.isfinite(found).all() or found.min() < 0.0:
        raise InputError(f"counts must be 0 or above. Got {found.tolist()} instead.")
    return found
