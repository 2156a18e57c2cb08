"""Calibration: counts that add up and come off exactly, order that stays, and no peeking."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

import streamnb as nb
from streamnb.errors import InputError
from streamnb.storage import read

Floats = NDArray[np.float64]
Stream = tuple[Floats, NDArray[np.intp]]


def normalised(joint: Any) -> Floats:
    """Return log-posteriors of log-likelihoods."""
    given = np.asarray(joint, dtype=np.float64)
    found: Floats = given - np.logaddexp.reduce(given, axis=1, keepdims=True)
    return found


@st.composite
def streams(draw: st.DrawFn, n_max: int = 60) -> Stream:
    """Draw log-posteriors of a model that is surer or less sure, and true classes."""
    n, k = draw(st.integers(1, n_max)), draw(st.integers(2, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.1, 2.0, 300.0]))
    joint = random.normal(size=(n, k)) * scale
    if draw(st.booleans()):
        joint[random.integers(n), 0] = -np.inf
    return normalised(joint), random.integers(k, size=n)


def overconfident(n: int, factor: float = 3.0, seed: int = 5) -> Stream:
    """Return judgements whose log-odds are `factor` times what they should be."""
    random = np.random.default_rng(seed)
    odds = random.normal(size=n) * 2.0
    truth = (random.random(n) < 1.0 / (1.0 + np.exp(-odds))).astype(np.intp)
    zeros = np.zeros(n)
    return normalised(np.stack((zeros, odds * factor), axis=1)), truth


def state(calibrator: nb.Calibrator) -> str:
    """Return all of its state as text."""
    return json.dumps(calibrator.to_dict())


class PlainCalibrator:
    """The slow twin: every judgement in a list, counted anew whenever a curve is drawn."""

    def __init__(self, half_life: int | None) -> None:
        self.half_life = half_life
        self.seen: list[tuple[int, list[float], int]] = []
        self.n = self.drawn_at = 0
        self.drawn: list[tuple[float, float]] = self.counts()

    @staticmethod
    def scaled(posteriors: list[float], c: int) -> float:
        """Return arsinh of a class's log-odds."""
        others = [p for j, p in enumerate(posteriors) if j != c]
        top = max(others)
        if top == -math.inf:
            return math.asinh(1000.0)
        rest = top + math.log(sum(math.exp(p - top) for p in others))
        return math.asinh(min(max(posteriors[c] - rest, -1000.0), 1000.0))

    @staticmethod
    def bin_of(scaled: float) -> int:
        """Return its bin."""
        return min(max(math.floor((scaled + 6.25) / 0.25), 0), 49)

    def counts(self) -> list[tuple[float, float]]:
        """Return how often each bin was stated, and how often it was true."""
        found = [[0.0, 0.0] for _ in range(50)]
        for number, posteriors, truth in self.seen:
            halvings = 0
            if self.half_life is not None:
                halvings = self.n // self.half_life - number // self.half_life
            for c in range(len(posteriors)):
                own = found[self.bin_of(self.scaled(posteriors, c))]
                own[0] += 0.5**halvings
                own[1] += 0.5**halvings * (c == truth)
        return [(n, true) for n, true in found]

    def knots(self, k: int) -> list[tuple[float, float]]:
        """Return the curve's knots for k classes: pool neighbours until no share falls."""
        middles = [-6.125 + 0.25 * i for i in range(50)]
        floor, counts = -4.0 - math.log(k - 1), self.drawn
        believed = [min(max(math.sinh(x), floor), 4.0) for x in middles]
        known = [i for i in range(50) if counts[i][0]] or list(range(50))
        pools: list[list[Any]] = []
        for i in known:
            n, true = counts[i]
            prior = 1.0 / (1.0 + math.exp(-believed[i]))
            prior_n = 2.0 * min(max(math.exp(-math.sinh(middles[i])), 1.0), k - 1.0)
            pools.append([(true + prior_n * prior), n + prior_n, [i]])
            while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
                last = pools.pop()
                pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
        drawn = {i: math.log(true / (n - true)) for true, n, members in pools for i in members}
        below = [drawn[known[0]] + believed[i] - believed[known[0]] for i in range(known[0])]
        above = [drawn[known[-1]] + b - believed[known[-1]] for b in believed[known[-1] + 1 :]]
        ends = (middles[: known[0]], middles[known[-1] + 1 :])
        inside = [(middles[i], drawn[i]) for i in known]
        return [*zip(ends[0], below, strict=True), *inside, *zip(ends[1], above, strict=True)]

    def judge(self, posteriors: list[float], truth: int) -> list[float]:
        """Return what one example is answered, then count it."""
        odds, knots = [], self.knots(len(posteriors))
        for c in range(len(posteriors)):
            scaled = self.scaled(posteriors, c)
            inside = min(max(scaled, -6.125), 6.125)
            at = np.interp(scaled, [x for x, _ in knots], [y for _, y in knots])
            odds.append(float(at) + 1e-3 * inside)
        shares = [1.0 / (1.0 + math.exp(-each)) for each in odds]
        self.seen.append((self.n, posteriors, truth))
        self.n += 1
        if self.n >= self.drawn_at + min(max(1, self.drawn_at // 16), 1024):
            self.drawn_at, self.drawn = self.n, self.counts()
        return [math.log(share / sum(shares)) for share in shares]


@given(streams(30), st.sampled_from([None, 3, 7]))
def test_the_plain_twin_answers_alike(stream: Stream, half_life: int | None) -> None:
    """The counts and answers are those of a list of judgements that is counted anew."""
    calibrator, twin = nb.Calibrator(half_life), PlainCalibrator(half_life)
    found = calibrator.prequential_many(*stream)
    expected = [
        twin.judge(posteriors, truth)
        for posteriors, truth in zip(*map(np.ndarray.tolist, stream), strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    kept = (calibrator.counts[:2] / 2**30).T
    np.testing.assert_allclose(kept, twin.counts(), atol=60 * 2.0**-20)


@given(streams(), st.sampled_from([None, 1, 7, 100]), st.data())
def test_however_the_stream_is_cut_the_bits_are_the_same(
    stream: Stream, half_life: int | None, data: st.DataObject
) -> None:
    """Neither calls nor a save in between change a bit."""
    log_posteriors, truth = stream
    cut = data.draw(st.integers(0, len(truth)))
    whole, pieces = nb.Calibrator(half_life), nb.Calibrator(half_life)
    once = whole.prequential_many(log_posteriors, truth)
    first = pieces.prequential_many(log_posteriors[:cut], truth[:cut])
    pieces = nb.Calibrator.from_dict(json.loads(state(pieces)))  # and saved between
    second = pieces.prequential_many(log_posteriors[cut:], truth[cut:])
    assert once.tobytes() == np.concatenate((first, second)).tobytes()
    assert state(whole) == state(pieces)


@given(streams(), st.integers(0, 60))
def test_of_late_labels_each_answer_knows_those_that_have_come(stream: Stream, late: int) -> None:
    """One is counted as each further example is asked about: as if it were done one by one."""
    given, truth = stream
    at_once, one_by_one = nb.Calibrator(20), nb.Calibrator(20)
    n = max(0, len(truth) - late)
    found = at_once.prequential_many(given[:n], truth[:n], given[late:])
    for i in range(n):
        asked = slice(late + i, late + i + 1)
        assert np.array_equal(found[i : i + 1], one_by_one.calibrate(given[asked]))
        one_by_one.prequential_many(given[i : i + 1], truth[i : i + 1])
    assert state(at_once) == state(one_by_one)
    with pytest.raises(InputError, match="asked must have"):
        at_once.prequential_many(given, truth, given[1:])


@given(streams(), st.data())
def test_no_answer_knows_its_own_label_or_a_later_one(stream: Stream, data: st.DataObject) -> None:
    """An answer depends on the labels before it alone."""
    log_posteriors, truth = stream
    k, at = log_posteriors.shape[1], data.draw(st.integers(0, len(truth) - 1))
    others = truth.copy()
    others[at:] = (others[at:] + 1) % k
    one = nb.Calibrator(7).prequential_many(log_posteriors, truth)
    other = nb.Calibrator(7).prequential_many(log_posteriors, others)
    assert one[: at + 1].tobytes() == other[: at + 1].tobytes()


@given(streams(), st.sampled_from([None, 1, 7]), st.data())
def test_what_is_taken_back_was_never_counted(
    stream: Stream, half_life: int | None, data: st.DataObject
) -> None:
    """The counts are those of a calibrator that the examples told nothing, decayed or not."""
    log_posteriors, truth = stream
    n = min(len(truth), 20)  # half-lives
    log_posteriors, truth = log_posteriors[:n], truth[:n]
    gone = np.array(data.draw(st.lists(st.integers(0, n - 1), unique=True)), dtype=np.intp)
    calibrator, never = nb.Calibrator(half_life), nb.Calibrator(half_life)
    calibrator.prequential_many(log_posteriors, truth)
    calibrator.unlearn_many(log_posteriors[gone], truth[gone], gone)
    without = log_posteriors.copy()
    without[gone] = -np.inf  # nothing is stated, so nothing is counted
    never.prequential_many(without, truth)
    assert calibrator.counts.tolist() == never.counts.tolist()
    assert calibrator.n == never.n == n


@given(streams(), streams(), streams())
def test_counts_add_up_in_any_order_and_come_off(a: Stream, b: Stream, c: Stream) -> None:
    """Merging is exact, has no order, and is undone by subtracting."""
    parts = []
    for stream in (a, b, c):
        part = nb.Calibrator(None)
        part.prequential_many(*stream)
        parts.append(part)
    x, y, z = parts
    assert state((x + y) + z) == state(z + (y + x))
    left = (x + y + z) - y
    assert state(left) == state(x + z)
    whole = nb.Calibrator(None)
    for stream in (a, b, c):
        whole.prequential_many(*stream)
    assert (x + y + z).counts.tolist() == whole.counts.tolist()


@given(streams(), streams())
def test_the_order_of_the_classes_stays(known: Stream, asked: Stream) -> None:
    """The likeliest class stays the likeliest, whatever was counted."""
    calibrator = nb.Calibrator()
    calibrator.prequential_many(*known)
    found = calibrator.calibrate(asked[0])
    best = asked[0].argmax(axis=1)
    rows = np.arange(len(best))
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0)
    assert (found[rows, best] >= found.max(axis=1) - 1e-12).all()


@pytest.mark.parametrize("k", [3, 4, 8])
def test_classes_that_tie_stay_tied(k: int) -> None:
    """The first of the likeliest is answered, calibrated or not; without any, all are alike."""
    p = np.random.default_rng(k).dirichlet([1.0] * k, 2000)
    p[:, -1] = p[:, 0]
    stated = np.log(p / p.sum(axis=1, keepdims=True))
    found = nb.Calibrator().calibrate(stated)
    assert found.argmax(axis=1).tolist() == stated.argmax(axis=1).tolist()
    tied = stated.argmax(axis=1) == 0
    assert tied.any()
    assert (found[tied, 0] == found[tied, -1]).all()
    nothing = nb.Calibrator().calibrate([[-math.inf] * k])
    np.testing.assert_allclose(np.exp(nothing), 1.0 / k)


def test_the_curve_is_the_isotonic_regression_of_scikit_learn() -> None:
    """The prior is as many more examples; the rest is pooling of neighbours."""
    log_posteriors, truth = overconfident(5000)
    calibrator = nb.Calibrator(None)
    calibrator.prequential_many(log_posteriors, truth)
    calibrator.unlearn_many(log_posteriors[:0], truth[:0])  # draws the curve anew
    odds = np.arcsinh((log_posteriors - log_posteriors[:, ::-1]).reshape(-1))
    bins = np.clip(np.floor((odds + 6.25) / 0.25), 0, 49)
    middles = -6.125 + 0.25 * np.unique(bins)
    prior = 1.0 / (1.0 + np.exp(-np.clip(np.sinh(middles), -4.0, 4.0)))
    x = np.concatenate((bins, np.unique(bins), np.unique(bins)))
    y = np.concatenate(
        ((truth[:, np.newaxis] == [0, 1]).reshape(-1), np.ones(len(prior)), np.zeros(len(prior)))
    )
    weights = np.concatenate((np.ones(len(bins)), 2.0 * prior, 2.0 * (1.0 - prior)))
    expected = IsotonicRegression().fit(x, y, sample_weight=weights).predict(np.unique(bins))
    curve = calibrator.curve[np.unique(bins).astype(int)] - 1e-3 * middles
    np.testing.assert_allclose(1.0 / (1.0 + np.exp(-curve)), expected, rtol=1e-9)


def test_a_model_that_is_three_times_too_sure_is_found_out() -> None:
    """The curve comes to the odds that the labels were drawn by."""
    log_posteriors, truth = overconfident(200_000)
    calibrator = nb.Calibrator(None)
    found = calibrator.prequential_many(log_posteriors, truth)
    rows = np.arange(len(truth))
    best = normalised(log_posteriors / 3.0)  # what the odds were made from
    losses = [-each[rows, truth].mean() for each in (log_posteriors, found, best)]
    assert losses[0] > 1.4 * losses[2]
    assert losses[1] == pytest.approx(losses[2], abs=0.002)
    asked = normalised([[0.0, z] for z in (-9.0, -3.0, 0.0, 3.0, 9.0)])
    odds = np.diff(calibrator.calibrate(asked))[:, 0]
    np.testing.assert_allclose(odds, [-3.0, -1.0, 0.0, 1.0, 3.0], atol=0.1)
    error = calibrator.calibration_error()
    assert error is not None
    assert error > 0.1
    said = nb.Calibrator(None)
    said.prequential_many(found, truth)
    error = said.calibration_error()
    assert error is not None
    assert error < 0.005


def dependent(n: int, kind: str) -> tuple[dict[str, list[Any]], list[str]]:
    """Return four facts of each example, every one five times over, and its class."""
    random = np.random.default_rng(3)
    truth = random.integers(2, size=n)
    facts = (2.0 * truth[:, np.newaxis] - 1.0) * 0.5 + random.normal(size=(n, 4))
    labels = np.array(["no", "yes"])[truth].tolist()
    if kind == "numbers":
        told = facts[:, :, np.newaxis] + 0.1 * random.normal(size=(n, 4, 5))
        return {f"x{i}{k}": told[:, i, k].tolist() for i in range(4) for k in range(5)}, labels
    words = [
        [f"{'up' if fact > 0 else 'down'}{i}{k}" for i, fact in enumerate(row) for k in "abcde"]
        for row in facts
    ]
    return {"text": [" ".join(each) for each in words]}, labels


@pytest.mark.parametrize(
    ("kind", "group"),
    [
        ("words", nb.Words(nb.Bernoulli())),
        ("words", nb.Words(nb.Complement())),
        ("numbers", nb.Numbers(nb.Gaussian())),
    ],
    ids=["bernoulli", "complement", "gaussian"],
)
def test_models_that_count_the_same_thing_often_are_mended(kind: str, group: Any) -> None:
    """Of dependent features each family is too sure; its log-loss and calibration error fall."""
    columns, labels = dependent(4000, kind)
    model = nb.NaiveBayes(["no", "yes"], features={"text": group}, hash_key=1)
    stated = model.prequential_many(columns, labels)
    truth = np.array(labels) == "yes"
    calibrator = nb.Calibrator(None)
    found = calibrator.prequential_many(stated, truth.astype(np.intp))
    rows = slice(1000, None)  # of both: before that the model and the curve know little
    errors, losses = [], []
    for judged in (stated[rows], found[rows]):
        own = nb.Calibrator(None)
        own.prequential_many(judged, truth[rows].astype(np.intp))
        errors.append(own.calibration_error() or 0.0)
        losses.append(-judged[np.arange(3000), truth[rows].astype(int)].mean())
    assert errors[0] > 0.08
    assert errors[1] < 0.03
    assert losses[1] < 0.8 * losses[0]


def test_a_bin_is_two_examples_of_what_was_stated_and_its_own() -> None:
    """The curve of one bin by hand."""
    stated = np.log([[0.25, 0.75]])
    calibrator = nb.Calibrator(None)
    calibrator.prequential_many(np.repeat(stated, 4, axis=0), [1, 1, 0, 1])
    # Odds of log 3 lie in the bin around sinh 0.875; it came true 3 times of 4.
    prior = 1.0 / (1.0 + math.exp(-math.sinh(0.875)))
    share = (3.0 + 2.0 * prior) / 6.0
    odds = math.log(share / (1.0 - share)) + 1e-3 * 0.875
    assert calibrator.curve[28] == pytest.approx(odds, rel=1e-12)
    upper = calibrator.reliability()[-1]
    assert (upper.n, upper.stated, upper.came_true) == (4.0, 0.75, 0.75)
    assert upper.low < 0.75 < upper.high
    assert calibrator.calibration_error() == 0.0


def test_what_was_stated_lies_within_its_bin() -> None:
    """A statement is counted to 1/1024: one of 3e-4 is not told as if it had been 0."""
    stated = np.log([[3e-4, 1.0 - 3e-4]])
    calibrator = nb.Calibrator(None)
    calibrator.prequential_many(np.repeat(stated, 20_000, axis=0), [0] * 6 + [1] * 19_994)
    for each in calibrator.reliability():
        assert each.low <= each.stated <= each.high
        assert 0.0 < each.stated < 1.0


def test_many_classes_and_one() -> None:
    """Seven classes are calibrated together; with one there is nothing to do."""
    random = np.random.default_rng(2)
    log_posteriors = normalised(random.normal(size=(500, 7)) * 20.0)
    calibrator = nb.Calibrator()
    found = calibrator.prequential_many(log_posteriors, random.integers(7, size=500))
    assert np.exp(found[-100:]).max() < 0.5  # labels by chance: nothing is sure any more
    assert nb.Calibrator().prequential_many([[0.0], [0.0]], [0, 0]).tolist() == [[0.0], [0.0]]


def test_it_is_saved_in_the_file_of_its_model(tmp_path: Path) -> None:
    """The state is JSON, so that a note of the file holds it."""
    model = nb.NaiveBayes(features={"text": nb.Words(nb.Multinomial())})
    columns: dict[str, list[str]] = {"text": ["a b", "b c", "a c"]}
    labels = ["x", "y", "x"]
    calibrator = nb.Calibrator()
    model.learn_many(columns, labels)
    truth = [model.classes.index(label) for label in labels]
    calibrator.prequential_many(model.predict_log_proba_many(columns), truth)
    nb.save(model, tmp_path / "model.nb", notes={"calibrator": calibrator.to_dict()})
    kept = nb.Calibrator.from_dict(read(tmp_path / "model.nb").header["notes"]["calibrator"])
    assert state(kept) == state(calibrator)


def test_what_no_label_has_come_for_is_believed() -> None:
    """Labels that come late are of answers of a model that knew nothing: later ones may be sure."""
    calibrator, unsure = nb.Calibrator(), normalised([[0.0, 0.0]] * 1_000)
    calibrator.prequential_many(unsure, [0, 1] * 500)
    answered = np.exp(calibrator.calibrate(normalised([[0.0, 1.0], [0.0, 3.0], [0.0, 9.0]])))
    np.testing.assert_allclose(answered[:, 1], [0.73, 0.95, 0.98], atol=0.02)
    surer = np.array([1] * 700 + [0] * 300)  # of 88 % sure, 70 % are right
    calibrator.prequential_many(normalised([[0.0, 2.0]] * 1_000), surer)
    answered = np.exp(calibrator.calibrate(normalised([[0.0, 0.0], [0.0, 2.0], [0.0, 3.0]])))
    np.testing.assert_allclose(answered[:, 1], [0.5, 0.7, 0.85], atol=0.04)


def test_a_class_that_was_not_there_is_in_no_answer_and_no_count() -> None:
    """nan, in any column, is left out: what is left is as if the model had never had it."""
    two, three = normalised([[0.0, 3.0], [1.0, 0.5]]), normalised([[0.0, 1.0, 3.0]])
    plain, other = nb.Calibrator(), nb.Calibrator()
    expected = plain.prequential_many(two, [1, 0])
    gaps = np.insert(two, 1, math.nan, axis=1)
    found = other.prequential_many(np.concatenate((gaps, gaps)), [2, 0, 1, -1])
    assert found[:2, [0, 2]].tobytes() == expected.tobytes()
    assert found[2:, [0, 2]].tobytes() == other.calibrate(two).tobytes()
    assert np.isnan(found[:, 1]).all()
    assert state(other) == state(plain)
    late = other.prequential_many(three, [0], asked=gaps[:1])
    assert late[:, [0, 2]].tobytes() == plain.prequential_many(three, [0], two[:1]).tobytes()
    assert state(other) == state(plain)


@pytest.mark.parametrize("half_life", [None, 2])
def test_rows_of_fewer_classes_are_taken_back_as_they_were_counted(half_life: int | None) -> None:
    """Rows with nan, in any order; one whose class the model had not takes nothing back."""
    two = normalised([[0.0, 3.0], [1.0, 0.5], [2.0, 0.0], [0.0, 0.1]])
    stated = np.insert(two, 1, math.nan, axis=1)
    whole = normalised([[0.0, 1.0, 3.0]])
    rows, truth = np.concatenate((stated, whole, stated)), np.array([2, 0, 1, -1, 1, 0, 2, -1, 1])
    calibrator, n_before = nb.Calibrator(half_life), list[int]()
    for row, place in zip(rows, truth, strict=True):
        n_before.append(calibrator.n)
        calibrator.prequential_many(row[None], [place])
    order = np.array([8, 0, 7, 4, 2, 5, 1, 3, 6])
    calibrator.unlearn_many(rows[order], truth[order], np.array(n_before)[order])
    assert not calibrator.counts.any()


@pytest.mark.parametrize(
    ("log_posteriors", "truth", "said"),
    [
        ([[0.0, 1.0]], [0], "at most 0"),
        ([[math.nan, 1.0]], [0], "at most 0"),
        ([0.0], [0], "shape"),
        ("no", [0], "shape"),
        ([[0.0, -math.inf]], [2], "from 0 to 1"),
        ([[0.0, -math.inf]], [-2], "from 0 to 1"),
        ([[0.0, -math.inf]], [0.5], "whole numbers"),
        ([[0.0, -math.inf]], [0, 1], "1 whole numbers"),
    ],
)
def test_what_cannot_be_counted_is_refused(log_posteriors: Any, truth: Any, said: str) -> None:
    """A wrong argument is named, and nothing has changed."""
    calibrator = nb.Calibrator()
    before = state(calibrator)
    with pytest.raises(InputError, match=said):
        calibrator.prequential_many(log_posteriors, truth)
    assert state(calibrator) == before


def test_what_cannot_be_taken_back_is_refused() -> None:
    """What was not counted cannot come off, and nothing has changed."""
    stated = normalised([[0.0, 1.0]])
    calibrator = nb.Calibrator(5)
    calibrator.prequential_many(stated, [0])
    before = state(calibrator)
    numbers: Any
    for truth, numbers, said in (
        ([0], None, "numbers must say"),
        ([0], [7], "below n"),
        ([0], [1], "below n"),
        ([0], [-5], "below n"),
        ([0], 0, "numbers must say"),
        ([0], [0.0], "numbers must say"),
        ([0], ["0"], "numbers must say"),
        ([0], [[0]], "numbers must say"),
        ([1], [0], "not counted"),
    ):
        with pytest.raises(InputError, match=said):
            calibrator.unlearn_many(stated, truth, numbers)
    with pytest.raises(InputError, match="half-life cannot be subtracted"):
        _ = calibrator - calibrator
    with pytest.raises(InputError, match="same half_life"):
        _ = calibrator + nb.Calibrator(6)
    other = nb.Calibrator(None)
    other.prequential_many(stated, [0])
    with pytest.raises(InputError, match="less than nothing"):
        _ = nb.Calibrator(None) - other
    with pytest.raises(InputError, match="half_life must be"):
        nb.Calibrator(0)
    with pytest.raises(TypeError):
        _ = calibrator + 1
    both = nb.Calibrator(None)
    both.prequential_many(normalised([[0.0, 1.0]] * 2), [0, 1])
    with pytest.raises(InputError, match="not counted"):  # one of them was another class
        both.unlearn_many(normalised([[0.0, 1.0]] * 2), [0, 0])
    assert state(calibrator) == before


def test_values_that_no_calibrator_gave_are_refused() -> None:
    """Else a changed file would answer nan, or count no more."""
    values = nb.Calibrator().to_dict()
    curve, counts = values["curve"], np.array(values["counts"])
    counts[1, 0] = 1
    assert nb.Calibrator.from_dict(values).curve.flags.writeable is False
    for changed in (
        {"counts": [[1]]}, {"counts": counts.tolist()}, {"counts": (-counts).tolist()},
        {"n": "x"}, {"n": 1000}, {"n": -1}, {"n": -1, "renewed_at": -1}, {"renewed_at": 1},
        {"curve": [math.nan] * len(curve)}, {"curve": curve[::-1]}, {"curve": [0.0] * len(curve)},
        {"curve": [*curve[:-1], math.inf]},
    ):  # fmt: skip
        with pytest.raises(InputError):
            nb.Calibrator.from_dict(values | changed)
    with pytest.raises(InputError):
        nb.Calibrator.from_dict({})


def test_a_half_life_of_numpy_is_json() -> None:
    """What `to_dict` returns can be written as JSON, whatever the half-life was counted by."""
    made = nb.Calibrator(np.int64(10))  # type: ignore[arg-type]
    assert json.loads(json.dumps(made.to_dict()))["half_life"] == 10


def nearly_full(n_free: int, half_life: int | None = None) -> nb.Calibrator:
    """Return a calibrator whose lowest bin has room for `n_free` more statements in 64 bits."""
    values = nb.Calibrator(half_life).to_dict()
    counts = np.zeros((3, 50), dtype=np.int64)
    counts[0, 0] = ((1 << 33) - n_free) << 30
    return nb.Calibrator.from_dict(values | {"counts": counts.tolist()})


def surely_first(n: int, k: int) -> Stream:
    """Return judgements that rule all classes out but the first, which is the true one."""
    return normalised(np.append(300.0, np.zeros(k - 1))[np.newaxis].repeat(n, axis=0)), np.zeros(
        n, dtype=np.intp
    )


@pytest.mark.parametrize("half_life", [None, 100_000])
def test_many_classes_do_not_fill_the_counts(half_life: int | None) -> None:
    """Each example makes a statement for each class: of 50,000 classes 64 bits are soon full."""
    stated, truth = surely_first(40, 2_000)
    calibrator = nearly_full(50_000, half_life)
    calibrator.prequential_many(stated, truth)
    lowest, highest = calibrator.reliability()
    assert (lowest.n, highest.n) == (2**33 - 50_000 + 40 * 1_999, 40.0)
    assert (lowest.came_true, highest.came_true) == (0.0, 1.0)
    assert json.loads(state(calibrator))["unit"] == calibrator.unit < 2**30


def test_counts_in_a_larger_unit_merge_save_and_come_off_exactly() -> None:
    """What 64 bits would not hold is counted more coarsely, and nothing is rounded by it."""
    stated, truth = surely_first(40, 2_000)
    some, others = stated[:17], truth[:17]
    whole, pieces = nearly_full(50_000), nearly_full(50_000)
    once = whole.prequential_many(stated, truth)
    first = pieces.prequential_many(some, others)
    pieces = nb.Calibrator.from_dict(json.loads(state(pieces)))
    assert np.concatenate((first, pieces.prequential_many(stated[17:], truth[17:]))).tobytes() == (
        once.tobytes()
    )
    assert state(whole) == state(pieces)
    part = nb.Calibrator(None)
    part.prequential_many(some, others)
    both = whole + part
    assert state(both) == state(part + whole)
    assert (both - part).counts.tolist() == whole.counts.tolist()
    doubled = whole + whole
    assert doubled.reliability()[0].n == 2.0 * whole.reliability()[0].n
    both.unlearn_many(some, others)
    assert both.counts.tolist() == whole.counts.tolist()
    with pytest.raises(InputError, match="unit must be"):
        nb.Calibrator.from_dict(whole.to_dict() | {"unit": 3})


def test_a_decayed_example_comes_off_a_larger_unit() -> None:
    """How often the unit was halved is one with the half-lives since it was counted."""
    stated, truth = surely_first(40, 2_000)
    calibrator, never = nearly_full(50_000, 30), nearly_full(50_000, 30)
    calibrator.prequential_many(stated, truth)
    gone = np.array([3, 35])
    calibrator.unlearn_many(stated[gone], truth[gone], gone)
    without = stated.copy()
    without[gone] = -np.inf
    never.prequential_many(without, truth)
    assert calibrator.unit == never.unit < 2**30
    assert calibrator.counts.tolist() == never.counts.tolist()
