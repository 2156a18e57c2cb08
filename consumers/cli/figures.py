"""How well judged examples were judged, and how sure that is.

Intervals are of a bootstrap over blocks: the examples, in the stream's order, are cut into at most
1,000 runs of equal length, and each replicate draws as many of them with replacement. Neighbours in
a stream are alike, so examples drawn one by one would make the intervals too narrow.

The figures themselves are scikit-learn's. A replicate by scikit-learn's would take milliseconds for
each of twenty figures, 200 times: what a figure needs is counted by block instead, one product of
matrices has the counts of all replicates, and a formula takes all of them at once. The tests hold
these formulas to scikit-learn's and River's.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgspec
import numpy as np
from msgspec import field
from numpy.typing import NDArray

from consumers.cli.output import joint_note, one_class_note, ruled_out_note
from consumers.errors import ConfigError
from consumers.process import left_out

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
_PIECE_VALUES = 1 << 17  # probabilities that scikit-learn is given at a time
_ROUNDED = 1e-7  # how far a probability of 32 bits lies from its own: 0.5 must not fall below 0.5
_LOSS_MAX = -float(np.log(np.finfo(np.float64).eps))  # where scikit-learn's log-loss is bounded


class JudgedExamples(msgspec.Struct):
    """Examples in the stream's order, and what a model said that had not learned them."""

    classes: tuple[str, ...] = ()
    labels: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # (n,): places in classes
    log_posteriors: NDArray[np.float32] = field(
        default_factory=lambda: np.empty((0, 0), np.float32)
    )  # (n, n_classes), in nats
    joint: Floats | None = None  # (n,): log p(x, y), in nats; nan for a point mass, None if unknown
    messages: int = 0
    unlabelled: int = 0
    deletions: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)  # left out by `message`, by condition
    training: Figure | None = None  # of what the model has learned, from its counts
    calibrated: bool = False  # whether the answers are, or what the model itself states
    coverage: float | None = None  # the share of prediction sets that is to hold the true class
    set_sizes: NDArray[np.int32] | None = None  # (n,): how many classes each set holds
    covered: NDArray[np.bool_] | None = None  # (n,): whether it holds the true one
    costs: Floats | None = None  # what a class answered (column) costs where one (row) is true
    decided: NDArray[np.int32] | None = None  # (n,): the cheapest classes, as places
    notes: list[str] = field(default_factory=list)  # what is to be known of the figures

    def losses(self) -> tuple[Floats, NDArray[np.bool_]]:
        """Return each example's log-loss, and which had one: it is 0 where p of the truth was 0."""
        losses = -self.log_posteriors[np.arange(len(self.labels)), self.labels].astype(np.float64)
        is_possible = np.isfinite(losses)
        return np.where(is_possible, np.clip(losses, 0.0, _LOSS_MAX), 0.0), is_possible


def require_scikit_learn() -> None:
    """Refuse to go on without the package that the figures are made by."""
    if importlib.util.find_spec("sklearn") is None:
        raise ConfigError(
            "evaluate and compare need the package 'scikit-learn', and it is not installed. Install"
            " the extra: pip install 'streamnb[evaluation]'"
        )


@cache
def import_scikit_learn() -> Any:
    """Return scikit-learn's metrics.

    scikit-learn imports pandas if it finds it, half as much again, and no figure is of a frame.
    Nothing is hidden once it is imported: on other threads it looks for pandas meanwhile.
    """
    with left_out("pandas"):
        from sklearn import metrics  # noqa: PLC0415 -- an extra, and a second
    return metrics


@contextmanager
def importing_scikit_learn() -> Iterator[None]:
    """Have scikit-learn imported by another thread in this block; wait for it at the block's end.

    Nothing in the block may import from SciPy: of modules that import each other, two threads may
    see unfinished ones.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="import") as thread:
        imported = thread.submit(import_scikit_learn)
        yield
    imported.result()


def figures(
    judged: JudgedExamples, *, seed: int = 0, window: int | None = None, fading: float | None = None
) -> dict[str, Any]:
    """Return all figures as plain values, each with the interval of its bootstrap.

    What takes longest is made by two further threads: sorting and arithmetic on large arrays
    release the interpreter's lock.
    """
    import_scikit_learn()  # before there are other threads
    with warnings.catch_warnings():  # of classes that are missing: their figures say so
        warnings.simplefilter("ignore")
        blocks = Blocks(len(judged.labels), seed)
        with ThreadPoolExecutor(2, thread_name_prefix="figures") as threads:
            return _figures(judged, blocks, seed, window, fading, threads)


def _figures(
    judged: JudgedExamples,
    blocks: Blocks,
    seed: int,
    window: int | None,
    fading: float | None,
    threads: ThreadPoolExecutor,
) -> dict[str, Any]:
    y, lp = judged.labels, judged.log_posteriors
    losses, is_possible = judged.losses()
    of_probabilities = threads.submit(_of_probabilities, y, lp, is_possible)
    of_class = threads.map(lambda c: _curves(judged, blocks, c), range(len(judged.classes)))
    best = lp.argmax(axis=1)
    confidence = np.exp(lp.max(axis=1, initial=-np.inf).astype(np.float64))
    right = (best == y).astype(np.float64)
    n_classes = len(judged.classes)
    cells = blocks.sums(y * n_classes + best, n_classes**2).reshape(-1, n_classes, n_classes)
    by_name, by_class = _of_confusion(cells, judged.classes)
    coverage = _coverage(confidence, best == y, blocks)
    squared_errors = _squared_errors(y, lp)
    log_loss, brier = of_probabilities.result()
    by_name["log_loss"] = blocks.ratio(losses, is_possible, log_loss)
    by_name["joint_nll"] = _joint_nll(judged.joint, blocks)
    joint = np.zeros(len(y)) if judged.joint is None else judged.joint
    n_left_out, is_ruled_out = int(np.isnan(joint).sum()), np.isneginf(joint)
    notes = judged.notes + [joint_note(n_left_out, len(y))] * (n_left_out > 0)
    # Where a class came for the first time, its answer was impossible too, and is counted there.
    if n_zero := int((is_ruled_out & is_possible).sum()):
        notes.append(ruled_out_note(n_zero, len(y)))
    if len(came := np.unique(y)) == 1 and n_classes > 1:
        notes.append(one_class_note(judged.classes[came[0]]))
    by_name["brier"] = blocks.ratio(squared_errors, np.ones(len(y)), brier)
    by_name["ece"], reliability = _calibration(confidence, best == y, blocks)
    by_name |= _of_sets(judged, best == y, blocks) | _of_costs(judged, best, blocks)
    curves = _add_areas(dict(zip(judged.classes, of_class, strict=True)), by_name, by_class)
    return {
        "examples": len(y),
        "impossible": int((~is_possible).sum()),
        "joint_left_out": n_left_out,
        "joint_impossible": int(is_ruled_out.sum()),
        "training": judged.training,
        "calibrated": judged.calibrated,
        "notes": notes,
        "classes": list(judged.classes),
        "bootstrap": {
            "replicates": REPLICATES, "blocks": blocks.n, "interval": (_HIGH - _LOW) / 100,
            "seed": seed,
        },
        "figures": by_name,
        "by_class": by_class,
        "confusion": cells[0].astype(np.int64).tolist(),
        "reliability": reliability,
        "coverage": coverage,
        "curve": _curve(right, losses, is_possible, window, fading),
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

    def ratio(
        self, numerator: Floats, denominator: NDArray[Any], exact: float | None = None
    ) -> Figure:
        """Return the ratio of two sums."""
        above, below = (
            self._weights @ np.add.reduceat(each.astype(np.float64), self._begins)
            for each in (numerator, denominator)
        )
        return figure(_divided(above, below), exact)


def figure(values: Floats, exact: float | None = None, most: float = np.inf) -> Figure:
    """Return a figure and its interval: the first value is of all examples, the others replicates.

    `exact` is the figure itself, where it is made otherwise: the replicates are moved by as much,
    but not beyond `most`, above which there is no such figure.
    """
    value = float(values[0]) if exact is None else exact
    drawn = values[1:][np.isfinite(values[1:])]
    if not len(drawn):
        return {"value": value, "low": np.nan, "high": np.nan}
    low, high = np.percentile(drawn, [_LOW, _HIGH]) + (value - float(values[0]))
    return {"value": value, "low": float(min(low, most)), "high": float(min(high, most))}


def _divided(above: Floats, below: Floats, otherwise: float = np.nan) -> Floats:
    found = np.full(np.broadcast(above, below).shape, otherwise)
    quotient: Floats = np.divide(above, below, out=found, where=below > 0)
    return quotient


def _of_confusion(
    cells: Floats, classes: tuple[str, ...]
) -> tuple[dict[str, Figure], dict[str, dict[str, Any]]]:
    """Return the figures of the confusion matrices, by replicate, and those of each class.

    scikit-learn takes the cells of the whole as examples of as much weight, which is the same as
    all examples and costs the same for any number of them.
    """
    metrics = import_scikit_learn()
    replicates, of_classes = replicates_of_confusion(cells)
    places = np.arange(len(classes))
    pairs = np.repeat(places, len(classes)), np.tile(places, len(classes))
    weights = {"sample_weight": cells[0].ravel()}
    exact = {
        "accuracy": metrics.accuracy_score(*pairs, **weights),
        "zero_one_loss": metrics.zero_one_loss(*pairs, **weights),
        "balanced_accuracy": metrics.balanced_accuracy_score(*pairs, **weights),
        "g_mean": replicates["g_mean"][0],  # scikit-learn has none
        "kappa": metrics.cohen_kappa_score(*pairs, **weights),
        "mcc": metrics.matthews_corrcoef(*pairs, **weights),
    }
    others = metrics.multilabel_confusion_matrix(*pairs, labels=places, **weights)[:, 0]
    specificity = _divided(others[:, 0], others.sum(axis=1), 0.0)
    means = {
        None: specificity,
        "macro": specificity.mean(),
        "weighted": np.average(specificity, weights=cells[0].sum(axis=1)),
    }
    scores = {
        average: (
            *metrics.precision_recall_fscore_support(
                *pairs, labels=places, average=average, zero_division=0.0, **weights
            )[:3],
            mean,
        )
        for average, mean in means.items()
    }
    for average in ("macro", "weighted"):
        for name, value in zip(of_classes, scores[average], strict=True):
            exact[f"{name}_{average}"] = value
    by_class = {
        label: {"support": int(cells[0, c].sum())}
        | {
            name: figure(values[:, c], float(own[c]))
            for (name, values), own in zip(of_classes.items(), scores[None], strict=True)
        }
        for c, label in enumerate(classes)
    }
    return {name: figure(replicates[name], float(exact[name])) for name in exact}, by_class


def replicates_of_confusion(cells: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Return the figures of confusion matrices, and those of each class, ndarrays by matrix."""
    truth, said = cells.sum(axis=2), cells.sum(axis=1)
    hits = np.diagonal(cells, axis1=1, axis2=2)
    n, n_right, by_chance = truth.sum(axis=1), hits.sum(axis=1), (truth * said).sum(axis=1)
    spreads = (n**2 - (each**2).sum(axis=1) for each in (truth, said))
    recall = _divided(hits, truth, 0.0)
    of_classes = {
        "precision": _divided(hits, said, 0.0),
        "recall": recall,
        "f1": _divided(2 * hits, truth + said, 0.0),
        "specificity": _divided(n[:, None] - truth - said + hits, n[:, None] - truth, 0.0),
    }
    found = {
        "accuracy": n_right / n,
        "zero_one_loss": 1.0 - n_right / n,
        "balanced_accuracy": recall.sum(axis=1) / (truth > 0).sum(axis=1),
        "g_mean": _geometric_mean(recall, truth > 0),
        "kappa": _divided(n * n_right - by_chance, n**2 - by_chance),
        "mcc": _divided(n * n_right - by_chance, np.sqrt(next(spreads) * next(spreads)), 0.0),
    }
    for name, each in of_classes.items():
        found[f"{name}_macro"] = each.mean(axis=1)
        found[f"{name}_weighted"] = (each * truth).sum(axis=1) / n
    return found, of_classes


def _geometric_mean(values: Floats, counts: NDArray[np.bool_]) -> Floats:
    """Return the geometric mean of the values that count in each row; 0 if one of them is 0."""
    with np.errstate(divide="ignore"):  # by logarithms, as a product of many classes underflows
        logarithms = np.log(np.where(counts, values, 1.0))
    mean: Floats = np.exp(logarithms.sum(axis=1) / counts.sum(axis=1))
    return mean


class _ClassCurves(msgspec.Struct, frozen=True):
    """Areas under a class's ROC and precision-recall curves, exact and drawn; points of both."""

    exact: tuple[float, float]
    drawn: tuple[Floats, Floats]
    points: tuple[list[list[float]], list[list[float]]]


def _add_areas(
    found: dict[str, _ClassCurves | None],
    by_name: dict[str, Figure],
    by_class: dict[str, dict[str, Any]],
) -> dict[str, tuple[list[list[float]], list[list[float]]]]:
    """Add the areas under the curves, each class against the others; return the curves' points."""
    names = ("roc_auc", "pr_auc")
    known = {label: each for label, each in found.items() if each is not None}
    for label in found:
        if label not in known:
            by_class[label] |= dict.fromkeys(names, figure(np.full(1, np.nan)))
            continue
        for name, values, value in zip(names, known[label].drawn, known[label].exact, strict=True):
            by_class[label][name] = figure(values, float(value), most=1.0)
    for i, name in enumerate(names if known else ()):
        drawn = np.array([each.drawn[i] for each in known.values()])
        came = np.isfinite(drawn)  # of the others a replicate has no curve
        mean = _divided(np.where(came, drawn, 0.0).sum(axis=0), came.sum(axis=0))
        exact = float(np.mean([each.exact[i] for each in known.values()]))
        by_name[f"{name}_macro"] = figure(mean, exact, most=1.0)
    return {label: each.points for label, each in known.items()}


def _curves(judged: JudgedExamples, blocks: Blocks, c: int) -> _ClassCurves | None:
    """Return a class's curves; None if all examples are of it, or none is.

    The scores are sorted once, for the groups of the replicates and as scikit-learn's sorting is
    quick on sorted ones; equal scores stay together.
    """
    metrics = import_scikit_learn()
    truth = judged.labels == c
    if not truth.any() or truth.all():
        return None
    order = np.argsort(-judged.log_posteriors[:, c])
    # scikit-learn takes no infinity.
    scores = np.maximum(judged.log_posteriors[order, c], np.finfo(np.float32).min)
    hits = truth[order].view(np.int8)  # whose values are found in a third of the time
    _, false, _, true, _ = metrics.confusion_matrix_at_thresholds(hits, scores)
    ends = np.append(np.flatnonzero(scores[1:] != scores[:-1]), len(scores) - 1)
    sizes = np.diff(ends, prepend=-1)
    group = np.empty(len(truth), np.int64)
    group[order] = np.repeat((ends + 1 - sizes) * _SCORE_GROUPS // len(truth), sizes)
    cells = blocks.sums(2 * group + truth, 2 * _SCORE_GROUPS)
    # The curve begins where no answer is given.
    roc = metrics.auc(*(np.insert(each / each[-1], 0, 0.0) for each in (false, true)))
    return _ClassCurves(
        (roc, metrics.average_precision_score(hits, scores)),
        _areas(np.cumsum(cells[:, 1::2], axis=1), np.cumsum(cells[:, ::2], axis=1)),
        _points(true, false),
    )


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
    """Return points of the ROC and precision-recall curves, evenly along both rates.

    The first point is that of no answer: of a ROC curve, as a precision-recall curve has none.
    """
    recall, false_rate = true / true[-1], false / false[-1]
    some = [
        np.searchsorted(each, np.linspace(each[0], each[-1], _CURVE_POINTS + 1))
        for each in (recall, false_rate)
    ]
    at = np.unique(np.concatenate([*some, [len(true) - 1]]))
    precision = true[at] / (true[at] + false[at])
    roc, precision_recall = (
        np.stack(both, axis=1).tolist()
        for both in ((false_rate[at], recall[at]), (recall[at], precision))
    )
    return [[0.0, 0.0], *roc], precision_recall


def _of_probabilities(
    y: Ints, log_posteriors: NDArray[np.float32], is_possible: NDArray[np.bool_]
) -> tuple[float, float]:
    """Return the log-loss of the possible examples, and the Brier score of all.

    scikit-learn makes some arrays of the size of what it is given: it is given pieces.
    """
    metrics = import_scikit_learn()
    n, n_classes = log_posteriors.shape
    loss = squared = 0.0
    size = max(1, _PIECE_VALUES // n_classes)
    for rows in (slice(i, i + size) for i in range(0, n, size)):
        truth, possible = y[rows].astype(np.int16), is_possible[rows]
        p = np.exp(np.minimum(log_posteriors[rows], 0.0).astype(np.float64))
        if n_classes == 1:  # scikit-learn asks for another one
            p = np.pad(p, ((0, 0), (0, 1)))
        places = range(p.shape[1])
        squared += len(p) * metrics.brier_score_loss(truth, p, labels=places)
        if possible.any():
            loss += metrics.log_loss(truth[possible], p[possible], labels=places, normalize=False)
    n_possible = int(is_possible.sum())
    return loss / n_possible if n_possible else np.nan, squared / n


def _joint_nll(joint: Floats | None, blocks: Blocks) -> Figure:
    """Return the mean of -log p(x, y) over the examples that were possible."""
    if joint is None:
        return figure(np.full(1, np.nan))
    is_possible = np.isfinite(joint)
    return blocks.ratio(np.where(is_possible, -joint, 0.0), is_possible)


def _squared_errors(y: Ints, log_posteriors: NDArray[np.float32]) -> Floats:
    """Return each example's squared error, as scikit-learn scales it: halved for two classes."""
    off = np.exp(log_posteriors.astype(np.float64))
    off[np.arange(len(y)), y] -= 1.0
    squared: Floats = np.einsum("ij,ij->i", off, off)
    return squared / 2 if off.shape[1] == 2 else squared


def _calibration(
    confidence: Floats, right: NDArray[np.bool_], blocks: Blocks
) -> tuple[Figure, list[dict[str, float]]]:
    """Return the expected calibration error of the answers given, and its bins of equal width."""
    bins = np.minimum(((confidence + _ROUNDED) * BINS).astype(np.int64), BINS - 1)
    said = blocks.sums(bins, BINS, confidence)
    counts = blocks.sums(2 * bins + right, 2 * BINS).reshape(-1, BINS, 2)
    n, were = counts.sum(axis=2), counts[:, :, 1]
    errors = np.abs(said - were).sum(axis=1) / n.sum(axis=1)
    # Chance moves bins away from what they say, so replicates err more than all examples do.
    errors[1:] = np.maximum(errors[1:] - errors[1:].mean() + errors[0], 0.0)
    error = figure(errors)
    rows = [
        {
            "from": b / BINS, "to": (b + 1) / BINS, "examples": int(n[0, b]),
            "confidence": said[0, b] / n[0, b], "accuracy": were[0, b] / n[0, b],
        }
        for b in np.flatnonzero(n[0]).tolist()
    ]  # fmt: skip
    return error, rows


def _of_sets(judged: JudgedExamples, right: NDArray[np.bool_], blocks: Blocks) -> dict[str, Figure]:
    """Return how often prediction sets hold the true class, and how large they are; {} without."""
    sizes, covered = judged.set_sizes, judged.covered
    if judged.coverage is None or sizes is None or covered is None:
        return {}
    every = np.ones(len(sizes))
    found = {
        "covered": covered,
        # Whoever asks is answered the likeliest class in any case: in an empty set it is the one.
        "covered_as_answered": covered | ((sizes == 0) & right),
        "set_size": sizes,
        "sure": sizes == 1,
        "empty_sets": sizes == 0,
    }
    target = {"coverage_target": figure(np.full(1, judged.coverage))}
    return target | {
        name: blocks.ratio(each.astype(np.float64), every) for name, each in found.items()
    }


def _of_costs(judged: JudgedExamples, best: NDArray[np.intp], blocks: Blocks) -> dict[str, Figure]:
    """Return what decisions cost in the mean, and what the likeliest classes would; {} without."""
    y, costs = judged.labels, judged.costs
    if costs is None or judged.decided is None:
        return {}
    every = np.ones(len(y))
    return {
        "mean_cost": blocks.ratio(costs[y, judged.decided], every),
        "mean_cost_of_likeliest": blocks.ratio(costs[y, best], every),
    }


def _coverage(confidence: Floats, right: NDArray[np.bool_], blocks: Blocks) -> list[dict[str, Any]]:
    """Return the accuracy if only the surest answers are given; ties are given together."""
    n = len(confidence)
    ascending = np.sort(confidence)
    leasts = ascending[[n * (100 - share) // 100 for share in _COVERAGES]]
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
    right: Floats,
    losses: Floats,
    is_possible: NDArray[np.bool_],
    window: int | None,
    fading: float | None,
) -> list[dict[str, float]]:
    """Return accuracy and log-loss over the stream, window after window or faded."""
    n = len(right)
    parts = ((right, np.ones(n)), (losses, is_possible.astype(np.float64)))
    size = window or -(-n // _POINTS)
    ends = np.append(np.arange(size, n, size), n)
    if fading is None:
        begins = ends - np.diff(ends, prepend=0)
        sums = [[np.add.reduceat(x, begins) for x in both] for both in parts]
    else:
        from scipy.signal import lfilter  # noqa: PLC0415 -- a tenth of a second

        sums = [[lfilter([1.0], [1.0, -fading], x)[ends - 1] for x in both] for both in parts]
    columns = [_divided(above, below) for above, below in sums]
    points = zip(ends.tolist(), *(each.tolist() for each in columns), strict=True)
    return [{"example": at, "accuracy": hit, "log_loss": loss} for at, hit, loss in points]
