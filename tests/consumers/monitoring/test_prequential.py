"""Prequential accuracy and log-loss, against a plain mean, River and scikit-learn."""

from __future__ import annotations

import math
import threading
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from river import metrics
from sklearn.metrics import accuracy_score, log_loss

from consumers.decode.labels import predicted_classes
from consumers.monitoring.prequential import LOG_POSTERIOR_MIN, Prequential

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def stream(seed: int, n: int, n_classes: int = 3) -> tuple[Floats, Ints]:
    """Return log-posteriors and labels, a few posteriors being 0."""
    rng = np.random.default_rng(seed)
    posteriors = rng.dirichlet(np.full(n_classes, 0.3), n)
    posteriors[rng.random(n) < 0.1] = np.eye(n_classes)[0]
    with np.errstate(divide="ignore"):
        return np.log(posteriors), rng.integers(0, n_classes, n)


def naive(log_posteriors: Floats, labels: Ints) -> tuple[float, float]:
    """Return accuracy and log-loss, example by example."""
    right, losses = 0, []
    for row, label in zip(log_posteriors.tolist(), labels.tolist(), strict=True):
        right += row.index(max(row)) == label
        losses.append(-max(row[label], math.log(1e-15)))
    return right / len(labels), math.fsum(losses) / len(labels)


@given(
    seed=st.integers(0, 1000),
    n=st.integers(1, 60),
    window=st.integers(1, 80),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_it_is_the_plain_mean_however_the_stream_is_cut(
    seed: int, n: int, window: int, cuts: list[int]
) -> None:
    """Overall and window figures are those of the naive twin, for any batches."""
    log_posteriors, labels = stream(seed, n)
    prequential = Prequential(window)
    edges = sorted({0, n, *(cut for cut in cuts if cut < n)})
    for begin, end in pairwise(edges):
        prequential.update(log_posteriors[begin:end], labels[begin:end])
    assert (prequential.accuracy, prequential.log_loss) == pytest.approx(
        naive(log_posteriors, labels)
    )
    assert (prequential.window_accuracy, prequential.window_log_loss) == pytest.approx(
        naive(log_posteriors[-window:], labels[-window:])
    )


@given(seed=st.integers(0, 1000), n=st.integers(1, 60), window=st.integers(1, 80))
def test_the_cut_into_batches_does_not_matter(seed: int, n: int, window: int) -> None:
    """Taken in one by one, a stream leaves the window that one batch leaves, bit for bit."""
    log_posteriors, labels = stream(seed, n)
    singly, at_once = Prequential(window), Prequential(window)
    at_once.update(log_posteriors, labels)
    for i in range(n):
        singly.update(log_posteriors[i : i + 1], labels[i : i + 1])
    assert (singly.n, singly.n_correct) == (at_once.n, at_once.n_correct)
    held = min(n, window)
    for name in ("_losses", "_correct", "_judgements"):
        one, other = getattr(singly, name)[:held], getattr(at_once, name)[:held]
        np.testing.assert_array_equal(np.sort(one), np.sort(other))
    # The sum alone is added up in another order.
    assert singly.log_loss_sum == pytest.approx(at_once.log_loss_sum, rel=1e-12)


def test_before_the_first_example_there_is_nothing_to_tell() -> None:
    """No figure is made up, and an empty batch changes nothing."""
    prequential = Prequential(5)
    prequential.update(np.empty((0, 2)), np.empty(0, dtype=np.int64))
    assert prequential.accuracy is None
    assert prequential.log_loss is None
    assert prequential.window_accuracy is None
    assert prequential.window_log_loss is None


def test_an_impossible_truth_costs_what_river_says() -> None:
    """A true class of posterior 0 counts as 1e-15, the bound of River's LogLoss."""
    prequential = Prequential(5)
    prequential.update(np.array([[0.0, -np.inf]]), np.array([1]))
    assert prequential.log_loss == -LOG_POSTERIOR_MIN
    log_loss_of_river: Any = metrics.LogLoss
    river = log_loss_of_river()
    river.update(True, 0.0)
    assert prequential.log_loss == pytest.approx(river.get())


@pytest.mark.parametrize("window", [37, 500])
def test_it_agrees_with_scikit_learn(window: int) -> None:
    """Where no posterior is near 0, both figures are scikit-learn's, overall and in the window."""
    rng = np.random.default_rng(3)
    posteriors = rng.dirichlet(np.full(4, 5.0), 500)
    labels = rng.integers(0, 4, 500)
    prequential = Prequential(window)
    prequential.update(np.log(posteriors), labels)
    predicted = posteriors.argmax(axis=1)
    assert prequential.accuracy == accuracy_score(labels, predicted)
    assert prequential.window_accuracy == accuracy_score(labels[-window:], predicted[-window:])
    for found, n in ((prequential.log_loss, 500), (prequential.window_log_loss, window)):
        expected = log_loss(labels[-n:], posteriors[-n:], labels=[0, 1, 2, 3])
        assert found == pytest.approx(expected, rel=1e-12)


def test_a_tie_goes_to_the_first_class() -> None:
    """Of classes with equal posteriors the first one counts as predicted, as the model has it."""
    prequential = Prequential(2)
    prequential.update(np.log([[0.5, 0.5], [0.5, 0.5]]), np.array([0, 1]))
    assert prequential.accuracy == 0.5
    assert prequential.n_correct == 1


def test_rounding_never_gives_a_gain() -> None:
    """A posterior that rounding left above 1 has a loss of 0, not a negative one."""
    prequential = Prequential(2)
    prequential.update(np.array([[1e-16, -40.0]]), np.array([0]))
    assert prequential.log_loss == 0.0


@pytest.mark.parametrize("n_classes", [2, 3])
def test_of_classes_that_tie_the_first_is_predicted(n_classes: int) -> None:
    """The likeliest class is that of an argmax, ties and impossible classes included."""
    rng = np.random.default_rng(5)
    posteriors = np.log(rng.integers(0, 3, (300, n_classes)) / 2 + np.array([1e-300]))
    posteriors[::7] = -np.inf
    assert predicted_classes(posteriors).tolist() == posteriors.argmax(axis=1).tolist()


@given(
    seed=st.integers(0, 1000),
    n=st.integers(0, 60),
    window=st.integers(1, 80),
    other=st.integers(1, 80),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    saved=st.integers(0, 60),
)
def test_it_goes_on_from_a_checkpoint_bit_for_bit(
    seed: int, n: int, window: int, other: int, cuts: list[int], saved: int
) -> None:
    """Neither batches nor a restart change a bit; a window of another size takes the newest."""
    log_posteriors, labels = stream(seed, n)
    whole = Prequential(window)
    whole.update(log_posteriors, labels)
    prequential = Prequential(window)
    edges = sorted({0, n, min(saved, n), *(cut for cut in cuts if cut < n)})
    for begin, end in pairwise(edges):
        if begin == saved:
            entry, prequential = prequential.pack(), Prequential(window)
            prequential.unpack(entry, sums=True)
        prequential.update(log_posteriors[begin:end], labels[begin:end])
    one, two = whole.pack(), prequential.pack()
    assert one.values == two.values
    for name, array in one.arrays.items():
        assert array.tobytes() == two.arrays[name].tobytes()
    assert (whole.window_log_loss, whole.window_accuracy) == (
        prequential.window_log_loss,
        prequential.window_accuracy,
    )
    resized = Prequential(other)
    resized.unpack(one, sums=False)
    newest = one.arrays["losses"][-other:]
    assert resized.n == 0
    assert resized.n_held == len(newest)
    assert resized.window_log_loss == (float(newest.sum()) / len(newest) if n else None)
    assert resized.pack().arrays["losses"].tobytes() == newest.tobytes()


def test_judgements_and_scores_are_of_the_same_examples() -> None:
    """Who asks while examples are learned gets both as they were between two batches."""
    log_posteriors, labels = stream(3, 60)
    prequential, twin = Prequential(40), Prequential(40)
    for each in (prequential, twin):
        each.update(log_posteriors[:30], labels[:30])
    learners: list[threading.Thread] = []
    newest = prequential._newest

    def newest_then_learn(ring: NDArray[Any]) -> NDArray[Any]:
        found = newest(ring)
        if not learners:
            learn = partial(prequential.update, log_posteriors[30:], labels[30:])
            learners.append(threading.Thread(target=learn))
            learners[0].start()
            learners[0].join(0.1)  # where nothing keeps it, it learns now
        return found

    prequential._newest = newest_then_learn  # type: ignore[method-assign]
    judged, expected = prequential.judged(), twin.judged()
    learners[0].join()
    assert judged.scores is not None
    assert expected.scores is not None
    assert judged.truth.tolist() == expected.truth.tolist()
    np.testing.assert_array_equal(judged.scores, expected.scores)
