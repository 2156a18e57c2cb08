"""Prediction sets cover what they promise whatever comes; the cheapest decision is the cheapest."""

from __future__ import annotations

import json
import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import streamnb as nb
from streamnb import decisions
from streamnb.errors import InputError

Floats = NDArray[np.float64]


def normalised(joint: Any) -> Floats:
    """Return log-posteriors of log-likelihoods."""
    given = np.asarray(joint, dtype=np.float64)
    found: Floats = given - np.logaddexp.reduce(given, axis=1, keepdims=True)
    return found


@st.composite
def streams(draw: st.DrawFn, n_max: int = 60) -> tuple[Floats, NDArray[np.intp]]:
    """Draw log-posteriors and true classes that may have nothing to do with them."""
    n, k = draw(st.integers(1, n_max)), draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    log_posteriors = normalised(random.normal(size=(n, k)) * draw(st.sampled_from([0.1, 5.0, 900])))
    kind = draw(st.sampled_from(["chance", "best", "worst", "best, then worst"]))
    truth = random.integers(k, size=n)
    best, worst = log_posteriors.argmax(axis=1), log_posteriors.argmin(axis=1)
    if kind != "chance":
        truth = worst if kind == "worst" else best.copy()
    if kind == "best, then worst":
        truth[n // 2 :] = worst[n // 2 :]
    return log_posteriors, truth


@given(streams(400), st.sampled_from([0.5, 0.9, 0.99]), st.sampled_from([0.0125, 0.1, 1.0]))
def test_any_stretch_of_any_stream_is_covered_as_promised(
    stream: tuple[Floats, NDArray[np.intp]], coverage: float, step: float
) -> None:
    """The bound holds for adversaries too, for any coverage and step."""
    sets = nb.ConformalSets(coverage, step)
    found = sets.prequential_many(*stream)
    covered = found[np.arange(len(found)), stream[1]]
    sums = np.concatenate(([0.0], np.cumsum(covered - coverage)))
    # Of all stretches, the one that is furthest off; the start may take a `step` beyond the range.
    assert sums.max() - sums.min() <= (1.0 + step) / step + 1e-6
    assert (sets.n, sets.n_covered) == (len(covered), covered.sum())
    assert sets.n_in_sets == found.sum()


@given(streams(), st.data())
def test_the_plain_twin_and_any_cut_give_the_same(
    stream: tuple[Floats, NDArray[np.intp]], data: st.DataObject
) -> None:
    """The threshold follows one example after the other, saved in between or not."""
    log_posteriors, truth = stream
    whole, pieces = nb.ConformalSets(0.8, 0.05), nb.ConformalSets(0.8, 0.05)
    once = whole.prequential_many(log_posteriors, truth)
    cut = data.draw(st.integers(0, len(truth)))
    first = pieces.prequential_many(log_posteriors[:cut], truth[:cut])
    pieces = nb.ConformalSets.from_dict(json.loads(json.dumps(pieces.to_dict())))
    second = pieces.prequential_many(log_posteriors[cut:], truth[cut:])
    assert once.tolist() == [*first.tolist(), *second.tolist()]
    assert whole.to_dict() == pieces.to_dict()
    threshold, expected = 0.8, []
    for row, y in zip(np.exp(log_posteriors).tolist(), truth.tolist(), strict=True):
        expected.append([1.0 - p <= threshold for p in row])
        threshold += 0.05 * 0.8 if 1.0 - row[y] > threshold else -0.05 * (1.0 - 0.8)
    assert once.tolist() == expected
    assert whole.threshold == pytest.approx(threshold, abs=1e-12)


@given(streams())
def test_asking_changes_nothing_and_says_what_comes_next(
    stream: tuple[Floats, NDArray[np.intp]],
) -> None:
    """`sets` is what `prequential_many` says of the next example."""
    sets = nb.ConformalSets(0.7)
    sets.prequential_many(*stream)
    before = sets.to_dict()
    asked = sets.sets(stream[0][:1])
    assert sets.to_dict() == before
    assert asked.tolist() == sets.prequential_many(stream[0][:1], stream[1][:1]).tolist()


def test_sets_of_what_is_asked_are_by_the_labels_that_have_come() -> None:
    """As if one by one an example were asked about, and a late one learned."""
    generator = np.random.default_rng(4)
    given = normalised(generator.normal(size=(40, 3)))
    given[:5, 2], given[12, 1] = np.nan, np.nan
    truth, late = generator.integers(0, 3, 40), 7
    one_by_one, at_once = nb.ConformalSets(0.8, 0.05), nb.ConformalSets(0.8, 0.05)
    found = at_once.prequential_many(given[:-late], truth[:-late], given[late:])
    for i, asked in enumerate(given[late:]):
        known = ~np.isnan(asked)
        expected = one_by_one.sets(asked[known][np.newaxis])[0]
        assert np.array_equal(found[i, known], expected)
        assert not found[i, ~known].any()
        one_by_one.prequential_many(given[i : i + 1], truth[i : i + 1])
    assert at_once.to_dict() == one_by_one.to_dict()
    with pytest.raises(InputError, match="asked must have 2 rows"):
        at_once.prequential_many(given[5:7], truth[5:7], given[5:8])


@given(
    streams(400), st.sampled_from([0.5, 0.9]), st.sampled_from([0.0125, 0.1]), st.integers(1, 90)
)
def test_late_labels_cost_what_the_two_thresholds_judge_differently(
    stream: tuple[Floats, NDArray[np.intp]], coverage: float, step: float, delay: int
) -> None:
    """Of any stretch the answered share is as far off as the bound and that, whatever comes."""
    given_, truth = stream
    sets, n = nb.ConformalSets(coverage, step), max(0, len(truth) - delay)
    every = np.arange(len(truth))
    first = sets.sets(given_[:delay])
    late = sets.prequential_many(given_[:n], truth[:n], given_[delay:])
    answered = np.concatenate((first, late))[every, truth]
    learned = nb.ConformalSets(coverage, step).prequential_many(given_, truth)[every, truth]
    sums, differ = (
        np.concatenate(([0.0], np.cumsum(each)))
        for each in (answered - coverage, answered != learned)
    )
    off = np.abs(sums[np.newaxis] - sums[:, np.newaxis])
    m = np.abs(differ[np.newaxis] - differ[:, np.newaxis])
    assert (off <= (1.0 + step) / step + m + 1e-6).all()


@pytest.mark.parametrize("delay", [9, 999])
def test_late_labels_have_no_promise_of_their_own(delay: int) -> None:
    """A stream can be made of which no answered set holds the true class, and nine in ten do late.

    Its scores lie between the threshold that answers and the one that learns.
    """
    q, thresholds, scores, sets = 0.9, [], [], nb.ConformalSets(0.9)
    for t in range(20_000):
        thresholds.append(q)
        answered = thresholds[max(0, t - delay)]
        scores.append(q if q > answered else answered + 1e-6)
        q += sets.step * (0.9 if scores[-1] > q else 0.9 - 1.0)
    p = 1.0 - np.array(scores)
    stated, truth = np.log(np.stack((p, 1.0 - p), axis=1)), np.zeros(len(p), np.intp)
    n = len(p) - delay
    found = sets.prequential_many(stated[:n], truth[:n], stated[delay:])
    assert found[:, 0].mean() < 0.001
    assert sets.covered == pytest.approx(0.9, abs=0.001)


def test_thresholds_that_stand_for_a_thousand_examples_cover_alike() -> None:
    """What sets may be expected to cover strays less than by each q alone, and they are no larger.

    What they happen to cover has the chance of 5,000 true classes in it, too.
    """
    n, held, names = 100_000, 1_000, ("threshold", "standing_threshold")
    covered, sizes = list[Any](), list[Any]()
    for seed in range(6):
        random, sets = np.random.default_rng(seed), nb.ConformalSets()
        p = 1.0 / (1.0 + np.exp(-random.normal(0.0, 2.0, n)))
        log_p, truth = np.log(np.column_stack([1.0 - p, p])), (random.random(n) < p).astype(int)
        some = log_p[:10_000]
        for own in (slice(begin, begin + held) for begin in range(0, n, held)):
            rules = [nb.AnswerRule(threshold=getattr(sets, name)) for name in names]
            found = [cast("Any", rule.sets(some)) for rule in rules]
            if own.start >= 5 * held:  # it begins from a threshold of its own
                covered.append([(np.exp(some) * each).sum(axis=1).mean() for each in found])
                sizes.append([each.sum(axis=1).mean() for each in found])
            sets.prequential_many(log_p[own], truth[own])
    alone, standing = np.array(covered).T
    size_alone, size_standing = np.array(sizes).mean(axis=0)
    assert standing.std() < 0.8 * alone.std()
    assert abs(standing.reshape(-1, 5).mean(axis=1) - 0.9).max() < 0.02  # blocks of 5,000
    assert size_standing < size_alone + 0.005


def test_a_certain_class_is_in_the_set_and_the_threshold_finds_the_quantile() -> None:
    """Where probabilities are right, threshold and size are those of a closed form."""
    random = np.random.default_rng(4)
    p = random.random(200_000)
    truth = (random.random(len(p)) >= p).astype(np.intp)  # class 0 has probability p
    sets = nb.ConformalSets(0.9, 0.0125)
    found = sets.prequential_many(np.log(np.stack((p, 1.0 - p), axis=1)), truth)
    # The true class has 1 − p of density 2·(1 − x), whose 90 % quantile is 1 − √0.1.
    assert sets.threshold == pytest.approx(1.0 - math.sqrt(0.1), abs=0.1)
    assert sets.covered == pytest.approx(0.9, abs=1e-3)
    # A class is in if its p is at least √0.1: so of both together 2·(1 − √0.1).
    assert sets.mean_size == pytest.approx(2.0 * (1.0 - math.sqrt(0.1)), abs=0.02)
    blocks = found[np.arange(len(p)), truth].reshape(-1, 5000).mean(axis=1)
    assert 0.8838 <= blocks.min() <= blocks.max() <= 0.9162


@pytest.mark.parametrize(("coverage", "n"), [(0.9, 100), (0.9, 1000), (0.995, 100)])
def test_snapshots_cover_what_was_asked_where_the_model_is_right_more_often(
    coverage: float, n: int
) -> None:
    """One in 500 is a fraud, mostly found: the sets of each snapshot hold one class."""
    random = np.random.default_rng(8)
    truth = (random.random(20_000) < 0.002).astype(np.intp)
    x = random.normal(size=(3, len(truth))) + 2.0 * truth
    model = nb.NaiveBayes([0, 1], features={"x": nb.Numbers(nb.Gaussian(), fields=[*"abc"])})
    confidence = nb.Confidence(conformal=nb.ConformalSets(coverage))
    learner = nb.Learner(
        model, nb.SnapshotBoard(), nb.EveryExamples(n), lambda: 0.0, confidence=confidence
    )
    held, sizes = [], []
    for i in range(0, len(truth), n):
        columns = {name: x[j, i : i + n] for j, name in enumerate("abc")}
        answers = learner.snapshot.predict_log_proba_many(columns)
        sets = learner.snapshot.rule.sets(answers)
        assert sets is not None
        held.append(sets[np.arange(n), truth[i : i + n]])
        sizes.append(sets.sum(axis=1))
        learner.learn("log", columns, truth[i : i + n].tolist())
    blocks = np.concatenate(held).reshape(-1, 5_000).mean(axis=1)
    assert coverage - 0.02 <= blocks.min()
    settled = np.concatenate(sizes)[5_000:]
    assert settled.min() == 1
    assert settled.mean() < 1.01


def test_a_class_that_the_model_has_not_is_in_no_set() -> None:
    """Also where it stands first, or is all that there is between."""
    rule = nb.AnswerRule(threshold=0.1)
    found = rule.sets(np.log([[np.nan, 0.6, 0.4], [0.05, np.nan, 0.95]]))
    assert found is not None
    assert found.tolist() == [[False, True, False], [False, False, True]]


def test_a_rule_answers_as_its_calibrator_where_the_model_has_not_all_classes() -> None:
    """They stay nan, and have no share; no class at all is in no set, and cannot be said."""
    calibrator = nb.Calibrator()
    calibrator.prequential_many(np.log([[0.1, 0.9]] * 200), [0, 1] * 100)
    stated = np.log([[np.nan, 0.6, 0.4], [0.05, np.nan, 0.95], [0.1, 0.2, 0.7]])
    found = calibrator.calibrate(stated)
    for n_classes, rows in ((2, slice(2)), (3, slice(2, 3))):  # as many as a row has
        rule = nb.AnswerRule(calibrator.curve_for(n_classes))
        assert rule.calibrated(stated[rows]).tobytes() == found[rows].tobytes()
    assert (np.isnan(found) == np.isnan(stated)).all()
    np.testing.assert_allclose(np.nansum(np.exp(found), axis=1), 1.0)
    nothing = np.empty((2, 0))
    sets = nb.AnswerRule(threshold=0.1).sets(nothing)
    assert sets is not None
    assert sets.shape == (2, 0)
    with pytest.raises(InputError, match="a class to say"):
        nb.AnswerRule().labels(nothing)


@given(streams(), streams())
def test_sets_of_two_streams_add_up(a: Any, b: Any) -> None:
    """Counts add; the threshold lies between both."""
    one, other = nb.ConformalSets(), nb.ConformalSets()
    one.prequential_many(*a)
    other.prequential_many(*b)
    both, turned = one + other, other + one
    assert both.to_dict() == turned.to_dict()
    assert (both.n, both.n_covered) == (one.n + other.n, one.n_covered + other.n_covered)
    low, high = sorted((one.threshold, other.threshold))
    assert low - 1e-12 <= both.threshold <= high + 1e-12
    assert (nb.ConformalSets() + nb.ConformalSets()).covered is None


@given(streams(), st.integers(0, 2**32), st.integers(1, 6))
def test_the_cheapest_decision_costs_least_in_the_mean(
    stream: tuple[Floats, NDArray[np.intp]], seed: int, n_decisions: int
) -> None:
    """Every mean is summed up by hand."""
    log_posteriors = stream[0]
    k = log_posteriors.shape[1]
    costs = np.random.default_rng(seed).integers(0, 9, size=(k, n_decisions)).astype(float)
    found = nb.cheapest(log_posteriors, costs)
    table = nb.expected_costs(log_posteriors, costs)
    for row, said, means in zip(np.exp(log_posteriors), found, table, strict=True):
        expected = [sum(p * c for p, c in zip(row, own, strict=True)) for own in costs.T]
        np.testing.assert_allclose(means, expected, rtol=1e-9, atol=1e-12)
        assert expected[said] <= min(expected) + 1e-9
        assert not (means[:said] <= means[said]).any()  # the first of those that tie


def test_a_batch_is_decided_as_single_examples_are() -> None:
    """Bit for bit, also where several of nine classes are equally probable."""
    scores = np.random.default_rng(1).choice([-0.1, -0.5, -2.0], size=(500, 9))
    log_posteriors = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    costs = 1.0 - np.eye(9)
    alone = [nb.expected_costs(row[np.newaxis], costs)[0] for row in log_posteriors]
    assert np.array_equal(nb.expected_costs(log_posteriors, costs), alone)


def test_two_classes_are_cut_where_both_mistakes_cost_the_same() -> None:
    """To say 1 costs 10·(1 − p) and to say 0 costs p: 1 is cheaper from p = 10/11 on."""
    p = np.array([0.5, 0.9, 10.0 / 11.0 - 1e-9, 10.0 / 11.0 + 1e-9, 0.99])
    found = nb.cheapest(np.log(np.stack((1.0 - p, p), axis=1)), [[0, 10], [1, 0]])
    assert found.tolist() == [0, 0, 0, 1, 1]
    plain = nb.cheapest(np.log(np.stack((1.0 - p, p), axis=1)), [[0, 1], [1, 0]])
    assert plain.tolist() == [0, 1, 1, 1, 1]  # mistakes that cost alike: the likeliest class


def test_a_rule_s_costs_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is made: what it says of a row then is what `cheapest` does, without their check."""
    costs = np.array([[0.0, 10.0], [1.0, 0.0]])
    logs = np.log([[0.2, 0.8], [0.05, 0.95]])
    rule, expected = nb.AnswerRule(costs=costs), nb.cheapest(logs, costs)
    monkeypatch.setattr(decisions, "_checked_costs", lambda _: pytest.fail("checked again"))
    assert rule.labels(logs).tolist() == expected.tolist() == [0, 1]


def changed_sets(**values: float) -> nb.ConformalSets:
    """Return the sets of a file that somebody changed."""
    return nb.ConformalSets.from_dict(nb.ConformalSets().to_dict() | values)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nb.ConformalSets(1.0), "coverage must be below 1"),
        (lambda: nb.ConformalSets(0.0), "coverage must be a finite number above 0"),
        (lambda: nb.ConformalSets(0.9, 0.0), "step must be a finite number above 0"),
        (lambda: nb.ConformalSets.from_dict({}), "no prediction sets"),
        (lambda: changed_sets(threshold=math.nan), "threshold .* Got nan"),
        (lambda: changed_sets(threshold=1.1), "threshold .* Got 1.1"),
        (lambda: changed_sets(n=1.5), "no prediction sets.*float"),
        (lambda: changed_sets(n=-1), "counts of examples. Got -1"),
        (lambda: changed_sets(n_covered=1), "counts of examples. Got 0, 1"),
        (lambda: nb.ConformalSets().sets([0.5]), "shape"),
        (lambda: nb.ConformalSets().prequential_many([[0.0]], [1]), "from 0 to 0"),
        (lambda: nb.ConformalSets() + nb.ConformalSets(0.8), "same coverage"),
        (lambda: nb.cheapest([[0.0, -1.0]], [[1, 2]]), "a row for each of 2 classes"),
        (lambda: nb.cheapest([[0.0]], [[-1]]), "finite, from 0 on"),
        (lambda: nb.cheapest([[0.0]], [[math.inf]]), "Got .*inf"),
        (lambda: nb.cheapest([[0.0]], "no"), "a row for each"),
    ],
)
def test_what_cannot_be_used_is_refused(make: Any, said: str) -> None:
    """A wrong argument is named."""
    with pytest.raises(InputError, match=said):
        make()
    with pytest.raises(TypeError):
        _ = nb.ConformalSets() + 1


# ---- beside a model that learns ------------------------------------------------------------------


def learner_of(confidence: nb.Confidence | None) -> nb.Learner:
    """Return a learner of a model of numbers, which publishes each 10 examples."""
    model = nb.NaiveBayes(["a", "b"], features={"x": nb.Numbers(nb.Gaussian(), fields=["x"])})
    policy = nb.EveryExamples(10)
    return nb.Learner(model, nb.SnapshotBoard(), policy, lambda: 0.0, confidence=confidence)


def numbers(n: int) -> tuple[dict[str, list[float]], list[str]]:
    """Return numbers that are copied thirty times, as it were: a model of them is too sure."""
    random = np.random.default_rng(3)
    truth = random.integers(2, size=n)
    x = random.normal(size=n) + 0.5 * truth
    return {"x": (x * 100).tolist()}, ["ab"[each] for each in truth]


@pytest.mark.parametrize("weights", [None, [1.0] * 14 + [0.0, 2.0] + [1.0] * 14])
def test_no_answer_knows_a_class_before_it_joins(weights: list[float] | None) -> None:
    """Also of a batch in whose middle it joins: answers and counts are those of one by one."""
    columns, labels = numbers(30)
    labels[14] = labels[15] = labels[22] = "new"
    found = []
    for size in (1, 30):
        confidence = nb.Confidence(nb.Calibrator(), nb.ConformalSets(0.8))
        learner = learner_of(confidence)
        learner.model.new_classes = True
        answers = np.full((30, 3), -np.inf)
        for i in range(0, 30, size):
            rows = slice(i, i + size)
            own = None if weights is None else weights[rows]
            some = learner.learn("log", {"x": columns["x"][rows]}, labels[rows], weights=own)
            answers[rows, : some.shape[1]] = some
        assert confidence.calibrator is not None
        assert confidence.conformal is not None
        states = confidence.calibrator.to_dict(), confidence.conformal.to_dict()
        found.append((answers.tolist(), states))
    assert found[0] == found[1]


def test_a_snapshot_answers_by_the_rule_that_held_when_it_was_published() -> None:
    """Answers are those of the calibrator as it stood; the model's own are there beside them."""
    columns, labels = numbers(200)
    confidence = nb.Confidence(nb.Calibrator(), nb.ConformalSets(0.8), [[0, 5], [1, 0]])
    learner, plain = learner_of(confidence), learner_of(None)
    twin, sets = nb.Calibrator(), nb.ConformalSets(0.8)
    kept = None
    for first in range(0, 200, 10):
        own = {"x": columns["x"][first : first + 10]}, labels[first : first + 10]
        truth = ["ab".index(label) for label in own[1]]
        expected = twin.prequential_many(plain.learn("p", *own), truth)
        sets.prequential_many(expected, truth)
        assert learner.learn("p", *own).tobytes() == expected.tobytes()
        snapshot = learner.snapshot
        asked = snapshot.predict_log_proba_many(columns)
        stated = plain.snapshot.predict_log_proba_many(columns)
        assert asked.tobytes() == twin.calibrate(stated).tobytes()
        assert snapshot.stated(columns).tobytes() == stated.tobytes()
        assert snapshot.raw().predict_log_proba_many(columns).tobytes() == stated.tobytes()
        one = snapshot.predict_log_proba_one({"x": columns["x"][7]})
        np.testing.assert_allclose([*one.values()], asked[7], rtol=1e-12)
        judged = snapshot.judge_one({"x": columns["x"][7]})
        assert [*judged.log_posteriors.values()] == asked[7].tolist()
        assert snapshot.predict_many(columns) == plain.snapshot.predict_many(columns)
        found = snapshot.rule.sets(asked)
        assert found is not None
        likeliest = asked.argmax(axis=1)[:, np.newaxis] == [0, 1]
        standing = decisions.prediction_sets(sets.standing_threshold, asked)
        assert found.tolist() == (standing | likeliest).tolist()
        cheap = nb.cheapest(asked, [[0, 5], [1, 0]])
        assert snapshot.rule.labels(asked).tolist() == cheap.tolist()
        if first == 50:
            kept = snapshot, asked
    assert kept is not None
    assert kept[0].predict_log_proba_many(columns).tobytes() == kept[1].tobytes()
    assert kept[1].tobytes() != learner.snapshot.predict_log_proba_many(columns).tobytes()


def test_what_was_judged_at_another_time_is_learned_and_not_counted() -> None:
    """A label that comes late is no judgement of now."""
    confidence = nb.Confidence(nb.Calibrator())
    learner = learner_of(confidence)
    columns, labels = numbers(20)
    learner.learn("p", columns, labels, judged=False)
    assert confidence.calibrator is not None
    assert (learner.model.n_examples, confidence.calibrator.n) == (20, 0)


@pytest.mark.parametrize("form", [np.asarray, iter])
def test_labels_of_any_form_are_learned_and_counted(form: Any) -> None:
    """One-hot rows count too, and labels that can be read only once."""
    columns, labels = numbers(20)
    plain, other = nb.Confidence(nb.Calibrator()), nb.Confidence(nb.Calibrator())
    expected = learner_of(plain).learn("p", columns, labels)
    given = [[label == "a", label == "b"] for label in labels] if form is np.asarray else labels
    found = learner_of(other).learn("p", columns, form(given))
    assert found.tolist() == expected.tolist()
    assert plain.calibrator is not None
    assert other.calibrator is not None
    assert other.calibrator.to_dict() == plain.calibrator.to_dict()


def test_a_class_that_the_model_has_not_is_answered_and_not_counted() -> None:
    """A label that teaches nothing may be of any class; no set can hold it."""
    confidence = nb.Confidence(nb.Calibrator(), nb.ConformalSets(), [[0, 1], [1, 0]])
    learner = learner_of(confidence)
    columns, labels = numbers(20)
    weights = [float(i % 5 > 0) for i in range(20)]
    found = learner.learn(
        "p", columns, [labels[i] if i % 5 else "?" for i in range(20)], weights=weights
    )
    twin = nb.Confidence(nb.Calibrator(), nb.ConformalSets())
    other = learner_of(twin)
    rows = [i for i in range(20) if i % 5]
    expected = other.learn("p", {"x": [columns["x"][i] for i in rows]}, [labels[i] for i in rows])
    assert found[rows].tolist() == expected.tolist()
    np.testing.assert_allclose(np.exp(found).sum(axis=1), 1.0)
    for one, two in (
        (confidence.calibrator, twin.calibrator),
        (confidence.conformal, twin.conformal),
    ):
        assert one is not None
        assert two is not None
        assert one.to_dict() == two.to_dict()


def test_a_rule_is_kept_as_json_and_a_predictor_hands_it_on() -> None:
    """What a snapshot answered by can be restored with it."""
    confidence = nb.Confidence(nb.Calibrator(), nb.ConformalSets())
    learner = learner_of(confidence)
    columns, labels = numbers(50)
    learner.learn("p", columns, labels)
    rule = nb.AnswerRule.from_dict(json.loads(json.dumps(learner.snapshot.rule.to_dict())))
    again = nb.Snapshot(learner.model, 9, rule)
    expected = learner.snapshot.predict_log_proba_many(columns)
    assert again.predict_log_proba_many(columns).tobytes() == expected.tobytes()
    board = nb.SnapshotBoard()
    board.publish(again)
    predictor = nb.Predictor(board)
    predictor.start()
    try:
        answer = predictor.predict_many(columns)
    finally:
        predictor.stop()
    assert answer.rule is rule
    assert answer.log_posteriors.tobytes() == expected.tobytes()


def test_without_anything_to_learn_answers_are_the_models_own() -> None:
    """An empty rule changes nothing, and says no sets."""
    rule = nb.Confidence().rule()
    log_posteriors = normalised([[1.0, 2.0], [2.0, 1.0]])
    assert rule.calibrated(log_posteriors).tobytes() == log_posteriors.tobytes()
    assert rule.sets(log_posteriors) is None
    assert rule.labels(log_posteriors).tolist() == [1, 0]
    with pytest.raises(InputError, match="as many columns as rows"):
        nb.Confidence(costs=[[0, 1, 2], [1, 0, 2]])


@pytest.mark.parametrize(
    "wrong",
    [
        {"curve": [0.0, 1.0]},
        {"curve": "rising"},
        {"curve": [[1.0]]},
        {"threshold": "high"},
        {"threshold": float("nan")},
        {"threshold": [0.9]},
    ],
)
def test_a_rule_of_other_values_is_refused(wrong: dict[str, object]) -> None:
    """What a damaged file holds is named; a curve that falls would answer with the other class."""
    rule = nb.AnswerRule(nb.Calibrator().curve, 0.9).to_dict()
    with pytest.raises(InputError, match="rule"):
        nb.AnswerRule.from_dict(rule | wrong)
    with pytest.raises(InputError, match="rule"):
        nb.AnswerRule.from_dict({"curve": rule["curve"][::-1], "threshold": 0.9})
    with pytest.raises(InputError, match="rule"):
        nb.AnswerRule.from_dict({})


def test_a_rule_is_json_whatever_it_was_made_of() -> None:
    """Lists and NumPy's numbers are taken as what they stand for."""
    curve = nb.Calibrator().curve
    rule = nb.AnswerRule(curve.tolist(), np.float32(0.5))  # type: ignore[arg-type]
    assert json.loads(json.dumps(rule.to_dict())) == {"curve": curve.tolist(), "threshold": 0.5}
    read = nb.AnswerRule.from_dict(rule.to_dict())
    assert read.to_dict() == rule.to_dict()


def test_a_rule_stays_what_it_was_whatever_becomes_of_its_arrays() -> None:
    """Published decisions do not follow an array of the caller's, nor can they be written to."""
    costs, curve = np.array([[0.0, 10.0], [1.0, 0.0]]), nb.Calibrator().curve * 0.5
    rule, confidence = nb.AnswerRule(curve, 0.9, costs), nb.Confidence(costs=costs)
    wanted, kept = rule.to_dict(), costs.tolist()
    costs[:], curve[:] = -1.0, 0.0
    for each in (rule.costs, confidence.costs, confidence.rule().costs):
        assert each is not None
        assert each.tolist() == kept
        with pytest.raises(ValueError, match="read-only"):
            each[:] = 0.0
    assert rule.to_dict() == wanted
    assert rule.curve is not None
    with pytest.raises(ValueError, match="read-only"):
        rule.curve[:] = 0.0


def test_answers_are_arrays_of_their_own() -> None:
    """To write to what is answered changes nothing of what was stated."""
    stated = normalised([[1.0, 2.0], [2.0, 1.0]])
    before = stated.copy()
    for answers in (
        nb.AnswerRule().calibrated(stated),
        nb.Confidence().learn(stated, [0, 1]),
        nb.Confidence(conformal=nb.ConformalSets()).learn(stated, [0, 1]),
    ):
        assert answers.tobytes() == before.tobytes()
        answers[:] = 0.0
        assert stated.tobytes() == before.tobytes()
