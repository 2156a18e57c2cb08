"""Calibration of many classes: what is believed before anything was counted is of as many."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

import streamnb as nb
from streamnb.errors import InputError

Floats = NDArray[np.float64]
MANY = [2, 3, 10, 100, 1000]


def sure(k: int, p: float = 0.9999, n: int = 1) -> Floats:
    """Return what is stated of the first of k classes with probability p, the rest alike."""
    stated = np.full((n, k), (1.0 - p) / (k - 1))
    stated[:, 0] = p
    found: Floats = np.log(stated)
    return found


def calibrated_streams(k: int, n: int) -> tuple[Floats, NDArray[np.intp]]:
    """Return answers that are worth what they state, and true classes drawn by them."""
    random = np.random.default_rng(k)
    scores = 3.0 * random.normal(size=(n, k))
    stated = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    drawn = random.random((n, 1)) < np.exp(stated).cumsum(axis=1)
    return stated, drawn.argmax(axis=1)


@pytest.mark.parametrize("k", MANY)
def test_before_anything_is_counted_a_sure_answer_stays_sure(k: int) -> None:
    """98 % of any number of classes: 99.99 % of a hundred came out as 35 %."""
    answers = (
        nb.Calibrator().calibrate(sure(k)),
        nb.Calibrator().prequential_many(sure(k), [0]),
        nb.Confidence(nb.Calibrator()).rule(k).calibrated(sure(k)),
        nb.AnswerRule(nb.Calibrator().curve_for(k)).calibrated(sure(k)),
    )
    for found in answers:
        assert np.exp(found[0, 0]) == pytest.approx(0.982, abs=5e-4)


@pytest.mark.parametrize("k", MANY)
@pytest.mark.parametrize("p", [0.3, 0.6, 0.9])
def test_before_anything_is_counted_an_answer_is_believed(k: int, p: float) -> None:
    """What is stated less surely comes out nearly as it was stated."""
    found = np.exp(nb.Calibrator().calibrate(sure(k, p)))
    np.testing.assert_allclose(found[0, 0], p, atol=0.02)  # a curve is straight between bins


@pytest.mark.parametrize("n", [0, 1, 3, 10])
def test_few_examples_move_the_answers_of_many_classes_as_those_of_two(n: int) -> None:
    """An example makes a statement of each class, so the prior has as many of each of its two."""
    found = []
    for k in MANY:
        calibrator, truth = nb.Calibrator(None), [0] * n
        calibrator.prequential_many(sure(k, n=n), truth)
        found.append(np.exp(calibrator.calibrate(sure(k))[0, 0]))
    np.testing.assert_allclose(found, found[0], atol=3e-3)


@pytest.mark.parametrize("k", MANY[:4])
def test_calibrating_what_needs_none_costs_little(k: int) -> None:
    """Of answers that are right, the log-loss after 0 and 10 examples stays near what it was."""
    stated, truth = calibrated_streams(k, 2_000)
    rows, asked = np.arange(1_000), slice(1_000, None)
    raw = -stated[asked][rows, truth[asked]].mean()
    for n in (0, 10):
        calibrator = nb.Calibrator(None)
        calibrator.prequential_many(stated[:n], truth[:n])
        found = -calibrator.calibrate(stated[asked])[rows, truth[asked]].mean()
        assert found < raw + 0.05


def test_classes_that_join_are_of_the_prior_of_those_that_are_asked() -> None:
    """Counts are of all rows; a row of fewer classes is answered by a prior of fewer."""
    gaps = np.full((1, 100), np.nan)
    gaps[:, :2] = sure(2)
    calibrator = nb.Calibrator(None)
    found = calibrator.prequential_many(np.concatenate((gaps, sure(100))), [0, 0])
    assert np.exp(found[:, 0]) == pytest.approx([0.982, 0.982], abs=1e-3)
    rows = np.concatenate((gaps, sure(100)))
    together = calibrator.calibrate(rows)
    assert together[0, :2].tobytes() == calibrator.calibrate(sure(2)).tobytes()
    assert together[1:].tobytes() == calibrator.calibrate(sure(100)).tobytes()


def test_curves_of_any_number_of_classes_are_saved_between_two_that_are_drawn() -> None:
    """Each is of the counts of the last drawing, whenever it is first asked for."""
    stated, truth = calibrated_streams(10, 100)
    calibrator = nb.Calibrator(None)
    calibrator.prequential_many(stated, truth)
    assert calibrator.renewed_at < calibrator.n
    read = nb.Calibrator.from_dict(json.loads(json.dumps(calibrator.to_dict())))
    for k in MANY:
        assert read.curve_for(k).tobytes() == calibrator.curve_for(k).tobytes()
    assert read.curve.tobytes() == calibrator.curve_for(10).tobytes()
    assert read.to_dict() == calibrator.to_dict()


def test_a_file_of_before_goes_on_by_its_curve_until_the_next_is_drawn() -> None:
    """It has no counts of the last drawing: what was not drawn then is drawn by those it has."""
    stated, truth = calibrated_streams(2, 100)
    calibrator = nb.Calibrator(None)
    calibrator.prequential_many(stated, truth)
    values = calibrator.to_dict()
    del values["drawn"]
    read = nb.Calibrator.from_dict(values)
    assert read.calibrate(stated).tobytes() == calibrator.calibrate(stated).tobytes()
    more = read.prequential_many(stated, truth)
    assert more.tobytes() == calibrator.prequential_many(stated, truth).tobytes()
    assert read.to_dict() == calibrator.to_dict()
    fresh = nb.Calibrator(None).to_dict()
    del fresh["drawn"]
    assert nb.Calibrator.from_dict(fresh).calibrate(sure(100))[0, 0] > np.log(0.98)


def test_counts_that_no_drawing_had_and_no_number_of_classes_are_refused() -> None:
    """Else a changed file would answer nan."""
    values = nb.Calibrator().to_dict()
    wrong = np.zeros((2, 50), dtype=int)
    wrong[1, 0] = 1
    for drawn in ([[0]], wrong.tolist(), (-wrong).tolist(), "x"):
        with pytest.raises(InputError):
            nb.Calibrator.from_dict(values | {"drawn": drawn})
    for n_classes in (-1, 2.0, "x"):
        with pytest.raises(InputError, match="n_classes"):
            nb.Calibrator().curve_for(n_classes)  # type: ignore[arg-type]


def test_the_snapshots_of_a_learner_answer_by_the_prior_of_their_classes() -> None:
    """The first ones come before anything was counted."""
    classes = [f"c{i}" for i in range(100)]
    model = nb.NaiveBayes(classes, features={"text": nb.Words(nb.Multinomial())})
    model.learn_many({"text": ["a a a", *["b b b"] * 99]}, classes)
    learner = nb.Learner(
        model, nb.SnapshotBoard(), nb.EveryExamples(1), lambda: 0.0,
        confidence=nb.Confidence(nb.Calibrator()),
    )  # fmt: skip
    asked = {"text": ["a a a a a a a a a a a a"]}
    stated = np.exp(learner.snapshot.stated(asked))[0, 0]
    answered = np.exp(learner.snapshot.predict_log_proba_many(asked))[0, 0]
    assert stated > 0.99
    assert answered == pytest.approx(0.98, abs=0.01)


@pytest.mark.parametrize(("n", "is_exact"), [(140, True), (147, False), (400, False)])
def test_what_is_left_of_the_oldest_examples_stays_when_they_are_taken_back(
    n: int, *, is_exact: bool
) -> None:
    """Up to 20 half-lives nothing stays; beyond, less than a millionth of each example."""
    stated, half_life = sure(20, n=n), 7
    truth, calibrator = [0] * n, nb.Calibrator(half_life)
    calibrator.prequential_many(stated, truth)
    calibrator.unlearn_many(stated, truth, np.arange(n))
    left = calibrator.counts.sum(axis=1) / calibrator.unit
    assert (left == 0.0).all() == is_exact
    # Of each of 20 statements an example left a half-life's share behind, less than 2⁻²⁰.
    assert left[0] < 20 * half_life * 2.0**-20
