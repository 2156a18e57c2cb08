"""How well judged examples were judged, and how sure that is.

Intervals are of a bootstrap over blocks: the examples, in the stream's order, are cut into at most
1,000 runs of equal length, and each replicate draws as many of them with replacement. Neighbours in
a stream are alike, so examples drawn one by one would make the intervals too narrow. What a figure
needs is counted by block first; then one product of matrices has the counts of all replicates, and
every formula here takes all of them at once. The tests hold each one to scikit-learn's and River's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Figure = dict[str, float]
BLOCKS_MAX = 1000
REPLICATES = 200
BINS = 20  # of the calibration error
_SCORE_GROUPS = 1000  # of a replicate's ROC and PR curves
_CURVE_POINTS = 50  # of ROC and PR curves: so many steps along each of the two kinds of examples
_COVERAGES = tuple(range(100, 0, -10))  # per cent
_POINTS = 50  # of the curve over the stream, without a window
_LOW, _HIGH = 2.5, 97.5  # per cent of the replicates


@dataclass(slots=True)
class JudgedExamples:
    """Examples in the stream's order, and what a model said that had not learned them."""

    classes: tuple[str, ...] = ()
    labels: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # (n,): places in classes
    log_posteriors: NDArray[np.float32] = field(
        default_factory=lambda: np.empty((0, 0), np.float32)
    )  # (n, n_classes), in nats
    messages: int = 0
    unlabelled: int = 0
    deletions: int = 0
    rejected: Counter[str] = field(default_factory=Counter)


def figures(
    judged: JudgedExamples, *, seed: int = 0, window: int | None = None, fading: float | None = None
) -> dict[str, Any]:
    """Return all figures as plain values, each with the interval of its bootstrap."""
    blocks = Blocks(len(judged.labels), seed)
    y, lp = judged.labels, judged.log_posteriors
    best = lp.argmax(axis=1)
    confidence = np.exp(lp.max(axis=1, initial=-np.inf).astype(np.float64))
    right = (best == y).astype(np.float64)
    losses = -lp[np.arange(len(y)), y].astype(np.float64)
    is_possible = np.isfinite(losses)
    losses[~is_possible] = 0.0
    n_classes = len(judged.classes)
    cells = blocks.sums(y * n_classes + best, n_classes**2).reshape(-1, n_classes, n_classes)
    by_name, by_class = _of_confusion(cells, judged.classes)
    by_name["log_loss"] = blocks.ratio(losses, is_possible)
    by_name["brier"] = blocks.ratio(_brier(y, lp), np.ones(len(y)))
    by_name["ece"], reliability = _calibration(confidence, best == y, blocks)
    curves = _add_areas(judged, blocks, by_name, by_class)
    return {
        "examples": len(y),
        "impossible": int((~is_possible).sum()),
        "classes": list(judged.classes),
        "bootstrap": {
            "replicates": REPLICATES, "blocks": blocks.n, "interval": (_HIGH - _LOW) / 100,
            "seed": seed,
        },
        "figures": by_name,
        "by_class": by_class,
        "confusion": cells[0].astype(np.int64).tolist(),
        "reliability": reliability,
        "coverage": _coverage(confidence, best == y, blocks),
        "curve": _curve(right, losses, window, fading),
        "roc": {label: each[0] for label, each in curves.items()},
        "precision_recall": {label: each[1] for label, each in curves.items()},
    }  # fmt: skip


class Blocks:
    """Runs of examples, and how often each replicate draws them; the first draws each once."""

    def __init__(self, n: int, seed: int) -> None:
        self.n = min(n, BLOCKS_MAX)
        self._begins = -(-np.arange(self.n) * n // self.n)
        self._of_example = np.repeat(np.arange(self.n), np.diff(self._begins, append=n))
        drawn = np.random.default_rng(seed).multinomial(
            self.n, np.full(self.n, 1.0 / self.n), REPLICATES
        )
        self._weights: Floats = np.concatenate((np.ones((1, self.n)), drawn.astype(np.float64)))

    def sums(self, cells: Ints, n_cells: int, amounts: Floats | None = None) -> Floats:
        """Return the sum of each cell, ndarray of shape (1 + replicates, n_cells)."""
        at = self._of_example * n_cells + cells
        by_block = np.bincount(at, amounts, self.n * n_cells).reshape(self.n, n_cells)
        sums: Floats = self._weights @ by_block.astype(np.float64)
        return sums

    def ratio(self, numerator: Floats, denominator: NDArray[Any]) -> Figure:
        """Return the ratio of two sums."""
        above, below = (
            self._weights @ np.add.reduceat(each.astype(np.float64), self._begins)
            for each in (numerator, denominator)
        )
        return figure(_divided(above, below))


def figure(values: Floats, exact: float | None = None) -> Figure:
    """Return a figure and its interval: the first value is of all examples, the others replicates.

    `exact` is the figure itself if the values are of grouped scores: they are moved by as much.
    """
    value = float(values[0]) if exact is None else exact
    drawn = values[1:][np.isfinite(values[1:])]
    if not len(drawn):
        return {"value": value, "low": np.nan, "high": np.nan}
    low, high = np.percentile(drawn, [_LOW, _HIGH]) + (value - float(values[0]))
    return {"value": value, "low": float(low), "high": float(high)}


def _divided(above: Floats, below: Floats, otherwise: float = np.nan) -> Floats:
    found = np.full(np.broadcast(above, below).shape, otherwise)
    quotient: Floats = np.divide(above, below, out=found, where=below > 0)
    return quotient


def _of_confusion(
    cells: Floats, classes: tuple[str, ...]
) -> tuple[dict[str, Figure], dict[str, dict[str, Any]]]:
    """Return the figures of the confusion matrices, by replicate, and those of each class."""
    truth, said = cells.sum(axis=2), cells.sum(axis=1)
    hits = np.diagonal(cells, axis1=1, axis2=2)
    n, n_right, by_chance = truth.sum(axis=1), hits.sum(axis=1), (truth * said).sum(axis=1)
    spreads = (n**2 - (each**2).sum(axis=1) for each in (truth, said))
    recall = _divided(hits, truth, 0.0)
    of_classes = {
        "precision": _divided(hits, said, 0.0),
        "recall": recall,
        "f1": _divided(2 * hits, truth + said, 0.0),
    }
    found = {
        "accuracy": n_right / n,
        "balanced_accuracy": recall.sum(axis=1) / (truth > 0).sum(axis=1),
        "kappa": _divided(n * n_right - by_chance, n**2 - by_chance),
        "mcc": _divided(n * n_right - by_chance, np.sqrt(next(spreads) * next(spreads)), 0.0),
    }
    for name, each in of_classes.items():
        found[f"{name}_macro"] = each.mean(axis=1)
        found[f"{name}_weighted"] = (each * truth).sum(axis=1) / n
    by_class = {
        label: {"support": int(truth[0, c])}
        | {name: figure(each[:, c]) for name, each in of_classes.items()}
        for c, label in enumerate(classes)
    }
    return {name: figure(values) for name, values in found.items()}, by_class


def _add_areas(
    judged: JudgedExamples,
    blocks: Blocks,
    by_name: dict[str, Figure],
    by_class: dict[str, dict[str, Any]],
) -> dict[str, tuple[list[list[float]], list[list[float]]]]:
    """Add the areas under the ROC and precision-recall curves, each class against the others.

    Returns points of both curves. The scores of a class are sorted once, for curves, areas and the
    groups of the replicates; equal scores stay together.
    """
    names = ("roc_auc", "pr_auc")
    exact: list[tuple[float, float]] = []
    drawn: list[tuple[Floats, Floats]] = []
    curves = {}
    for c, label in enumerate(judged.classes):
        truth = judged.labels == c
        if not truth.any() or truth.all():
            by_class[label] |= dict.fromkeys(names, figure(np.full(1, np.nan)))
            continue
        order = np.argsort(-judged.log_posteriors[:, c])
        scores, hits = judged.log_posteriors[order, c], truth[order]
        ends = np.append(np.flatnonzero(scores[1:] != scores[:-1]), len(scores) - 1)
        true = np.cumsum(hits)[ends].astype(np.float64)
        false = ends + 1.0 - true
        exact.append(_areas(true, false))
        curves[label] = _points(true, false)
        sizes = np.diff(ends, prepend=-1)
        group = np.empty(len(truth), np.int64)
        group[order] = np.repeat((ends + 1 - sizes) * _SCORE_GROUPS // len(truth), sizes)
        cells = blocks.sums(2 * group + truth, 2 * _SCORE_GROUPS)
        drawn.append(_areas(np.cumsum(cells[:, 1::2], axis=1), np.cumsum(cells[:, ::2], axis=1)))
        for name, values, value in zip(names, drawn[-1], exact[-1], strict=True):
            by_class[label][name] = figure(values, float(value))
    for i, name in enumerate(names if exact else ()):
        mean = np.mean([each[i] for each in drawn], axis=0)
        by_name[f"{name}_macro"] = figure(mean, float(np.mean([each[i] for each in exact])))
    return curves


def _areas(true: Floats, false: Floats) -> Any:
    """Return the areas under the ROC and precision-recall curves, along the last axis.

    `true` and `false` are how many examples of the class and of the others have at least a score.
    """
    all_true, all_false = true[..., -1], false[..., -1]
    wider, higher = (np.diff(each, prepend=0.0, axis=-1) for each in (false, true))
    roc = _divided((wider * (true - higher / 2)).sum(axis=-1), all_true * all_false)
    precision = _divided(true, true + false, 0.0)
    area = _divided((higher * precision).sum(axis=-1), all_true)
    return roc, np.where(all_false > 0, area, np.nan)


def _points(true: Floats, false: Floats) -> tuple[list[list[float]], list[list[float]]]:
    """Return points on the exact ROC and precision-recall curves, evenly along both axes."""
    some = [
        np.searchsorted(each, np.linspace(each[0], each[-1], _CURVE_POINTS + 1))
        for each in (true, false)
    ]
    at = np.unique(np.concatenate([*some, [len(true) - 1]]))
    hits, misses = true[at], false[at]
    roc = np.stack((misses / false[-1], hits / true[-1]), axis=1)
    precision_recall = np.stack((hits / true[-1], hits / (hits + misses)), axis=1)
    return [[0.0, 0.0], *roc.tolist()], precision_recall.tolist()


def _brier(y: Ints, log_posteriors: NDArray[np.float32]) -> Floats:
    """Return each example's squared error, as scikit-learn scales it: halved for two classes."""
    off = np.exp(log_posteriors.astype(np.float64))
    off[np.arange(len(y)), y] -= 1.0
    squared: Floats = np.einsum("ij,ij->i", off, off)
    return squared / 2 if off.shape[1] == 2 else squared


def _calibration(
    confidence: Floats, right: NDArray[np.bool_], blocks: Blocks
) -> tuple[Figure, list[dict[str, float]]]:
    """Return the expected calibration error of the answers given, and its bins of equal width."""
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    said = blocks.sums(bins, BINS, confidence)
    counts = blocks.sums(2 * bins + right, 2 * BINS).reshape(-1, BINS, 2)
    n, were = counts.sum(axis=2), counts[:, :, 1]
    error = figure(np.abs(said - were).sum(axis=1) / n.sum(axis=1))
    rows = [
        {
            "from": b / BINS, "to": (b + 1) / BINS, "examples": int(n[0, b]),
            "confidence": said[0, b] / n[0, b], "accuracy": were[0, b] / n[0, b],
        }
        for b in np.flatnonzero(n[0]).tolist()
    ]  # fmt: skip
    return error, rows


def _coverage(confidence: Floats, right: NDArray[np.bool_], blocks: Blocks) -> list[dict[str, Any]]:
    """Return the accuracy if only the surest answers are given; ties are given together."""
    n = len(confidence)
    ascending = np.sort(confidence)
    leasts = ascending[[int((1 - share / 100) * (n - 1)) for share in _COVERAGES]]
    # Each answer is counted in the last share that it belongs to, and summed up from there.
    last = np.searchsorted(leasts, confidence, side="right") - 1
    cells = blocks.sums(2 * last + right, 2 * len(leasts)).reshape(-1, len(leasts), 2)
    counts = np.cumsum(cells[:, ::-1], axis=1)[:, ::-1]
    given = counts.sum(axis=2)
    accuracy = _divided(counts[:, :, 1], given)
    return [
        {"coverage": float(given[0, i] / n), "confidence": float(least)} | figure(accuracy[:, i])
        for i, least in enumerate(leasts)
    ]


def _curve(
    right: Floats, losses: Floats, window: int | None, fading: float | None
) -> list[dict[str, float]]:
    """Return accuracy and log-loss over the stream, window after window or faded."""
    n = len(right)
    size = window or -(-n // _POINTS)
    ends = np.append(np.arange(size, n, size), n)
    if fading is None:
        begins = ends - np.diff(ends, prepend=0)
        columns = [np.add.reduceat(each, begins) / (ends - begins) for each in (right, losses)]
    else:
        from scipy.signal import lfilter  # noqa: PLC0415 -- a tenth of a second

        weight = lfilter([1.0], [1.0, -fading], np.ones(n))
        columns = [
            (lfilter([1.0], [1.0, -fading], each) / weight)[ends - 1] for each in (right, losses)
        ]
    points = zip(ends.tolist(), *(each.tolist() for each in columns), strict=True)
    return [{"example": at, "accuracy": hit, "log_loss": loss} for at, hit, loss in points]
