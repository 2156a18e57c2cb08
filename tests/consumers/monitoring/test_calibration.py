"""Confusion and calibration of the prequential window, against scikit-learn and plain loops."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.calibration import calibration_curve
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score

from consumers.monitoring.prequential import (
    BINS,
    CURVE_EXAMPLES,
    CURVE_POINTS,
    SCORED_MAX,
    Bin,
    Prequential,
    calibration_error,
    score_curve,
    wilson,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def stream(seed: int, n: int, n_classes: int) -> tuple[Floats, Ints]:
    """Return log-posteriors and labels that often agree with them."""
    rng = np.random.default_rng(seed)
    posteriors = rng.dirichlet(np.full(n_classes, 0.4), n)
    labels = np.array([rng.choice(n_classes, p=row) for row in posteriors], dtype=np.int64)
    with np.errstate(divide="ignore"):
        return np.log(posteriors), labels


@given(
    seed=st.integers(0, 500),
    n=st.integers(1, 60),
    window=st.integers(1, 80),
    n_classes=st.integers(2, 5),
    cut=st.integers(0, 60),
)
def test_the_confusion_is_that_of_the_window(
    seed: int, n: int, window: int, n_classes: int, cut: int
) -> None:
    """Row the truth, column the prediction, over the newest examples, as scikit-learn counts."""
    log_posteriors, labels = stream(seed, n, n_classes)
    prequential = Prequential(window)
    for rows in (slice(0, cut), slice(cut, n)):
        prequential.update(log_posteriors[rows], labels[rows])
    judged = prequential.judged()
    wanted = confusion_matrix(
        labels[-window:], log_posteriors.argmax(axis=1)[-window:], labels=range(n_classes)
    )
    np.testing.assert_array_equal(judged.confusion(), wanted)
    assert np.trace(judged.confusion()) / prequential.n_held == prequential.window_accuracy


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_each_class_is_told_from_the_others_as_scikit_learn_says(n_classes: int) -> None:
    """Over the newest examples alone, cut anywhere, saved amid them and taken up again."""
    log_posteriors, labels = stream(4, 2_000, n_classes)
    prequential, later = Prequential(1_500), Prequential(1_500)
    for begin in range(0, 1_600, 320):
        prequential.update(log_posteriors[begin : begin + 320], labels[begin : begin + 320])
    later.unpack(prequential.pack(), sums=True)
    later.update(log_posteriors[1_600:], labels[1_600:])
    judged = later.judged()
    for k in range(n_classes):
        found = judged.curve(k)
        assert found is not None
        truth, score = labels[500:] == k, log_posteriors[500:, k]
        if n_classes == 2:
            score = score - log_posteriors[500:, 1 - k]
        score = np.maximum(score, -1e300)
        assert (found.n, found.n + found.n_others) == (truth.sum(), 1_500)
        assert found.auc == pytest.approx(roc_auc_score(truth, score), abs=1e-4)
        assert found.average_precision == pytest.approx(
            average_precision_score(truth, score), abs=1e-3
        )
        assert found.low < found.auc < found.high
        assert found.recall[-1] == found.false_positives[-1] == 1.0
        assert len(found.recall) <= CURVE_POINTS
        np.testing.assert_array_equal(np.sort(found.recall), found.recall)


def test_the_area_has_its_own_interval() -> None:
    """In 95 of 100 samples, about, it holds the area that all examples together have."""
    n_held = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        is_own = rng.random(300) < 0.3
        found = score_curve(rng.normal(is_own * 1.0), is_own)
        assert found is not None
        n_held += found.low <= 0.7602 <= found.high  # Φ(1/√2)
    assert 90 <= n_held <= 99


def test_a_class_that_joins_had_no_share_before() -> None:
    """Its curve has the examples from before, too; one kind of example has no curve."""
    prequential = Prequential(100)
    prequential.update(*stream(1, 50, 2))
    prequential.update(*stream(2, 20, 3))
    prequential.update(*stream(3, 10, 4))
    found = prequential.judged().curve(0)
    assert found is not None
    assert found.n + found.n_others == 80
    joined = prequential.judged().curve(3)
    assert joined is not None
    assert joined.n + joined.n_others == 80
    assert Prequential(5).judged().curve(0) is None
    assert score_curve(np.array([1.0, 2.0]), np.array([True, True])) is None
    large = Prequential(2 * CURVE_EXAMPLES)
    large.update(*stream(1, CURVE_EXAMPLES + 50, 2))
    newest = large.judged().curve(0)
    assert newest is not None
    assert newest.n + newest.n_others == CURVE_EXAMPLES
    many = Prequential(50)
    many.update(*stream(1, 50, SCORED_MAX + 1))
    assert many.judged().curve(0) is None


@pytest.mark.parametrize("window", [7, 100])
def test_a_class_that_joins_leaves_the_same_window_wherever_batches_are_cut(window: int) -> None:
    """Also where it joins amid a batch: the log-posteriors of two classes follow from answers."""
    (one, labels), (two, more) = stream(1, 20, 2), stream(2, 9, 3)
    whole, cut = Prequential(window), Prequential(window)
    padded = np.pad(one, ((0, 0), (0, 1)), constant_values=-np.inf)
    whole.update(np.concatenate((padded, two)), np.concatenate((labels, more)))
    cut.update(one[:11], labels[:11])
    cut.update(np.concatenate((padded[11:], two[:4])), np.concatenate((labels[11:], more[:4])))
    cut.update(two[4:], more[4:])
    found = [each.pack() for each in (whole, cut)]
    assert found[0].values == found[1].values
    assert found[0].arrays.keys() == found[1].arrays.keys()
    for name, array in found[0].arrays.items():
        assert array.tobytes() == found[1].arrays[name].tobytes(), name


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_the_curve_is_the_plain_one(n_classes: int) -> None:
    """Each bin has the mean probability and the accuracy of its own examples, found by a loop."""
    log_posteriors, labels = stream(1, 2_000, n_classes)
    prequential = Prequential(2_000)
    prequential.update(log_posteriors, labels)
    bins = prequential.judged().calibration()
    best = np.exp(log_posteriors.max(axis=1))
    right = log_posteriors.argmax(axis=1) == labels
    assert len(bins) == BINS
    assert bins[0].low == pytest.approx(1 / n_classes)
    assert bins[-1].high == 1.0
    assert sum(each.n for each in bins) == 2_000
    off = 0.0
    for each in bins:
        inside = (best >= each.low) & ((best < each.high) | (each.high == 1.0))
        assert each.n == inside.sum()
        assert each.mean_probability == pytest.approx(best[inside].mean(), abs=1e-6)
        assert each.accuracy == pytest.approx(right[inside].mean())
        off += abs(right[inside].sum() - best[inside].sum())
    assert calibration_error(bins) == pytest.approx(off / 2_000, abs=1e-6)


def test_two_classes_agree_with_scikit_learn() -> None:
    """Predicted for class 1 alone, the filled bins are those of scikit-learn's curve."""
    rng = np.random.default_rng(4)
    p = rng.uniform(0.5, 1.0, 5_000)
    labels = (rng.random(5_000) < p**2).astype(np.int64)
    prequential = Prequential(5_000)
    prequential.update(np.log(np.column_stack((1 - p, p))), labels)
    bins = prequential.judged().calibration()
    accuracy, mean = calibration_curve(labels, p, n_bins=20)
    assert [each.accuracy for each in bins] == pytest.approx(accuracy.tolist())
    assert [each.mean_probability for each in bins] == pytest.approx(mean.tolist(), abs=1e-6)


def test_a_model_that_knows_its_doubt_is_calibrated() -> None:
    """Labels drawn from the posteriors give an error near 0; a boaster's error is its misses."""
    log_posteriors, labels = stream(7, 20_000, 3)
    honest, boastful = Prequential(20_000), Prequential(20_000)
    honest.update(log_posteriors, labels)
    best = log_posteriors.argmax(axis=1)
    with np.errstate(divide="ignore"):
        boastful.update(np.log(np.eye(3)[best]), labels)
    error = calibration_error(honest.judged().calibration())
    assert error is not None
    assert error < 0.02
    assert boastful.window_accuracy is not None
    assert calibration_error(boastful.judged().calibration()) == pytest.approx(
        1 - boastful.window_accuracy
    )


def test_before_the_first_example_nothing_is_made_up() -> None:
    """No curve, no error, and a confusion without classes."""
    judged = Prequential(5).judged()
    assert judged.calibration() == ()
    assert calibration_error(judged.calibration()) is None
    assert judged.confusion().shape == (0, 0)
    assert calibration_error([Bin(0.5, 1.0, 0, None, None)]) is None


def test_one_class_has_no_curve() -> None:
    """What is certain from the start has no calibration."""
    prequential = Prequential(3)
    prequential.update(np.zeros((2, 1)), np.zeros(2, dtype=np.int64))
    assert prequential.judged().calibration() == ()
    assert prequential.judged().confusion().tolist() == [[2]]


@given(seed=st.integers(0, 500), window=st.integers(1, 80))
def test_the_newest_judgements_are_held(seed: int, window: int) -> None:
    """A window holds what one of just the newest examples holds."""
    log_posteriors, labels = stream(seed, 60, 3)
    prequential = Prequential(window)
    prequential.update(log_posteriors, labels)
    held = min(window, 60)
    fresh = Prequential(held)
    fresh.update(log_posteriors[-held:], labels[-held:])
    np.testing.assert_array_equal(prequential.judged().confusion(), fresh.judged().confusion())
    assert prequential.judged().calibration() == fresh.judged().calibration()


def test_what_was_read_stays_as_it_was() -> None:
    """A window that was handed out is a copy: the stream goes on without it."""
    log_posteriors, labels = stream(5, 30, 3)
    prequential = Prequential(8)
    prequential.update(log_posteriors[:10], labels[:10])
    judged = prequential.judged()
    before = judged.confusion()
    prequential.update(log_posteriors[10:], labels[10:])
    np.testing.assert_array_equal(judged.confusion(), before)


def test_a_reader_beside_the_writer_sees_whole_judgements() -> None:
    """While one thread writes, another finds truth, prediction and confidence as they belong."""
    n = 3_000
    prequential = Prequential(n)
    batches = []
    for c in range(3):  # class c is always true and predicted, with a confidence of its own
        posteriors = np.full((n - 7, 3), (1 - (0.5 + 0.1 * c)) / 2)
        posteriors[:, c] = 0.5 + 0.1 * c
        batches.append((np.log(posteriors), np.full(n - 7, c)))
    over, torn = threading.Event(), list[str]()

    def read() -> None:
        while not over.is_set():
            judged = prequential.judged()
            expected = np.log(0.5 + 0.1 * judged.truth)
            if (judged.truth != judged.predicted).any():
                torn.append("truth and prediction")
            if (np.abs(judged.log_confidence - expected) > 1e-6).any():
                torn.append("truth and confidence")

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(600):
        prequential.update(*batches[i % 3])
    over.set()
    reader.join()
    assert not torn


def test_an_interval_ends_where_shares_do() -> None:
    """Of none and of all no end lies below 0 or above 1, whatever the number of examples."""
    for n in range(1, 2_000):
        low, high = wilson(0, n)
        assert 0.0 <= low < high < 1.0, n
        low, high = wilson(n, n)
        assert 0.0 < low < high <= 1.0, n
