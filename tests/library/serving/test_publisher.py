"""The learner: when it publishes, what a snapshot is, and what stays what it was."""

from __future__ import annotations

import copy
import gc
import itertools
import math
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamnb import (
    Bernoulli,
    Calibrator,
    Confidence,
    ConformalSets,
    EveryExamples,
    EveryInterval,
    HalfLife,
    Learner,
    NaiveBayes,
    Snapshot,
    SnapshotBoard,
    Words,
)
from streamnb.errors import InputError
from tests.endtoend.daemon_process import ROOT, environment
from tests.library.streams import Example, examples, facts, models


class Clock:
    """Time that passes only when it is told to; looking at it may take time too."""

    def __init__(self) -> None:
        self.now_s = 50.0
        self.step_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        self.now_s += self.step_s
        return self.now_s


class Watched:
    """A policy that is always due, and keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, float]] = []

    def is_due(self, n_examples: int) -> bool:
        """Tell that it is due."""
        return n_examples >= 0

    def published(self, n_examples: int, seconds: float) -> None:
        """Keep what was said."""
        self.told.append((n_examples, seconds))


def model() -> NaiveBayes:
    """Return an untrained model."""
    return NaiveBayes(["neg", "pos"], features={"text": Words(Bernoulli())})


def teach(learner: Learner, n: int = 1) -> None:
    """Let the learner learn some examples."""
    learner.learn("t/0", {"text": ["good day"] * n}, ["pos"] * n)


def test_there_is_a_snapshot_from_the_start() -> None:
    """A learner publishes what it begins with, so there is always something to answer from."""
    board = SnapshotBoard()
    assert board.current() is None
    assert board.wait(0.0) is None
    learner = Learner(model(), board, Watched(), Clock())
    first = board.wait(0.0)
    assert first is board.current()
    assert first is not None
    assert (first.version, first.n_examples, learner.version) == (1, 0, 1)


def test_versions_rise_by_one() -> None:
    """Each snapshot has the next number, and the board shows the newest."""
    board = SnapshotBoard()
    learner = Learner(model(), board, Watched(), Clock())
    for version in range(2, 6):
        teach(learner)
        assert learner.publish_if_due()
        current = board.current()
        assert current is not None
        assert (current.version, current.n_examples) == (version, version - 1)
    assert learner.publish() is board.current()
    assert learner.version == 6


def test_nothing_new_keeps_the_snapshot() -> None:
    """Where nothing was learned, the same snapshot stays and costs nothing."""
    board, policy = SnapshotBoard(), Watched()
    learner = Learner(model(), board, policy, Clock())
    teach(learner, 3)
    learner.publish_if_due()
    before = board.current()
    teach(learner, 0)
    with pytest.raises(InputError):
        learner.learn("t/0", {"text": [3]}, ["pos"])
    assert learner.publish_if_due()
    assert board.current() is before
    assert learner.version == 2
    # At the start, by learning, and three times that nothing was new.
    assert policy.told == [(0, 0.0), *[(3, 0.0)] * 4]


def test_learning_answers_with_what_stood_before() -> None:
    """The learner's posteriors are those of the model just before each example."""
    learner = Learner(model(), SnapshotBoard(), Watched(), Clock())
    twin = model()
    texts, labels = ["good day", "bad day", "good"], ["pos", "neg", "pos"]
    said = learner.learn("t/0", {"text": texts}, labels)
    for row, text, label in zip(said, texts, labels, strict=True):
        assert row.tobytes() == twin.predict_log_proba_many({"text": [text]}).tobytes()
        twin.learn_one({"text": text}, label, part="t/0")
    assert facts(learner.model)["answers"] == facts(twin)["answers"]


def test_publishing_is_timed_by_the_clock() -> None:
    """The policy is told how long publishing took, by the learner's own clock."""
    policy, clock = Watched(), Clock()
    clock.step_s = 0.25
    Learner(model(), SnapshotBoard(), policy, clock)
    assert policy.told == [(0, 0.25)]


def test_an_interval_is_kept() -> None:
    """A policy by time is due at the start, and again when the interval is over."""
    clock = Clock()
    policy = EveryInterval(2.0, 0.5, clock)
    assert policy.is_due(0)
    policy.published(0, 0.01)
    assert not policy.is_due(9)
    clock.now_s += 1.9
    assert not policy.is_due(99)
    clock.now_s += 0.2
    assert policy.is_due(99)


def test_a_young_model_is_published_as_it_grows() -> None:
    """A stream that is read fast brings much within an interval, which nothing else would know."""
    policy = EveryInterval(2.0, 0.1, Clock())
    due = []
    for n_examples in range(60_000):
        if policy.is_due(n_examples):
            due.append(n_examples)
            policy.published(n_examples, 5.0)
    assert due[:6] == [0, 100, 150, 225, 338, 507]
    assert all(later == math.ceil(1.5 * n) for n, later in itertools.pairwise(due[1:]))
    assert due[-1] * 1.5 > 50_000 >= due[-1]


@given(
    share_max=st.floats(0.01, 1.0),
    interval_s=st.floats(0.001, 1.0),
    costs_s=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=20),
    turn_s=st.floats(0.001, 0.1),
)
def test_publishing_takes_at_most_its_share(
    share_max: float, interval_s: float, costs_s: Sequence[float], turn_s: float
) -> None:
    """However dear a snapshot is, all of them together take at most the share of the time."""
    clock = Clock()
    policy = EveryInterval(interval_s, share_max, clock)
    began_s, spent_s = clock.now_s, 0.0
    for cost_s in costs_s:
        while not policy.is_due(0):
            clock.now_s += turn_s + cost_s / 100
        # What was published up to here has been paid for by now.
        assert spent_s <= share_max * (clock.now_s - began_s) + 1e-9
        clock.now_s += cost_s
        spent_s += cost_s
        policy.published(0, cost_s)
        due_in_s = max(interval_s, cost_s / share_max - cost_s)
        clock.now_s += due_in_s * 0.999
        assert not policy.is_due(0)


def run(start: NaiveBayes, stream: Sequence[Example], every: int) -> list[object]:
    """Return each snapshot of a run: its version, its age and all it says."""
    board = SnapshotBoard()
    learner = Learner(start, board, EveryExamples(every), Clock())
    seen: list[object] = []
    for example in stream:
        before = _last(board)
        columns = {"text": [example.text], "user": [example.user]}
        learner.learn(example.part or "t/0", columns, [example.label])
        due = learner.model.n_examples >= before.n_examples + every
        assert (_last(board) is not before) == due
        assert not learner.publish_if_due()  # learning has published what was due
        if due:
            seen.append((_last(board).version, _last(board).n_examples, facts(_last(board))))
    return seen


def _last(board: SnapshotBoard) -> Snapshot:
    current = board.current()
    assert current is not None
    return current


@given(start=models(), stream=examples(in_parts=True), every=st.integers(1, 9))
def test_by_examples_every_run_publishes_alike(
    start: NaiveBayes, stream: list[Example], every: int
) -> None:
    """Two runs over a recorded stream publish the same snapshots, bit for bit."""
    twin = NaiveBayes(
        start.classes,
        start.state.class_prior,
        {name: group.spec for name, group in start.state.groups.items()},
        new_classes=True,
    )
    assert run(start, stream, every) == run(twin, stream, every)


def test_learning_publishes_by_its_policy() -> None:
    """Every 500 examples there is a snapshot, and nobody but `learn` has to ask for it."""
    board, seen = SnapshotBoard(), []
    learner = Learner(model(), board, EveryExamples(500), Clock())
    for _ in range(40_086 // 100):
        teach(learner, 100)
        seen.append(_last(board).n_examples)
    teach(learner, 86)
    assert seen == [500 * (n // 500) for n in range(100, 40_001, 100)]
    assert (learner.version, _last(board).n_examples) == (81, 40_000)


def test_calls_that_end_where_it_is_due_publish_at_multiples() -> None:
    """However a stream is cut beside that, snapshots stand at the same examples."""
    for size in (1, 7, 30, 1_000):
        board, seen, left = SnapshotBoard(), [], 1_000
        learner = Learner(model(), board, EveryExamples(30), Clock())
        while left:
            due = learner.n_until_due()
            assert due is not None
            n = min(size, left, due)
            teach(learner, n)
            left -= n
            if n == due:
                seen.append((_last(board).version, _last(board).n_examples))
        assert seen == [(k + 1, 30 * k) for k in range(1, 34)]
        assert not learner.is_current
    by_time = Learner(model(), SnapshotBoard(), EveryInterval(1.0, 1.0, Clock()), Clock())
    assert by_time.n_until_due() is None


@given(st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=20))
def test_refreshing_moves_no_publication(steps: list[tuple[int, bool]]) -> None:
    """Questions are answered by all that the model knows; what judges the stream is as without."""
    board, other = SnapshotBoard(), SnapshotBoard()
    learner = Learner(model(), board, EveryExamples(10), Clock())
    plain = Learner(copy.deepcopy(learner.model), other, EveryExamples(10), Clock())
    for n, is_refreshed in steps:
        for each in (learner, plain):
            teach(each, n)
        if is_refreshed:
            learner.refresh()
            assert _last(board).n_examples == learner.model.n_examples
            assert _last(board).version == learner.version
        assert facts(learner.snapshot) == facts(plain.snapshot)
        assert (learner.snapshot.n_examples, learner.version, learner.n_until_due()) == (
            plain.snapshot.n_examples, plain.version, plain.n_until_due()
        )  # fmt: skip
        assert learner.is_current == plain.is_current
    published = learner.publish()
    learner.refresh()
    assert _last(board) is published  # it knows all


def test_a_learner_goes_on_from_the_snapshot_of_another() -> None:
    """It publishes where the first would have: version, place and all that is answered."""
    board, other = SnapshotBoard(), SnapshotBoard()
    learner = Learner(model(), board, EveryExamples(10), Clock())
    teach(learner, 10)
    teach(learner, 4)
    again = Learner(
        copy.deepcopy(learner.model), other, EveryExamples(10), Clock(), learner.snapshot
    )
    assert other.current() is learner.snapshot is again.snapshot
    assert (again.n_until_due(), again.is_current, again.version) == (6, False, 2)
    for each in (learner, again):
        teach(each, 6)
    assert (_last(other).version, _last(other).n_examples) == (3, 20)
    assert facts(_last(other)) == facts(_last(board))
    same = Learner(again.model, other, EveryExamples(10), Clock(), again.snapshot, is_current=True)
    assert same.is_current
    assert same.n_until_due() == 10


def test_a_correction_is_published_whole() -> None:
    """Between taking an example back and learning it anew no snapshot comes, however often due."""
    board = SnapshotBoard()
    learner = Learner(model(), board, Watched(), Clock())
    teach(learner)
    before = _last(board)
    learner.unlearn_one("t/0", {"text": "good day"}, "pos")
    learner.learn_one("t/0", {"text": "good day"}, "neg")
    assert _last(board) is before
    assert learner.publish_if_due()
    assert _last(board).class_counts.tolist() == [1.0, 0.0]


@given(start=models(), stream=examples(in_parts=False), more=examples(in_parts=False))
def test_a_snapshot_never_changes(
    start: NaiveBayes, stream: list[Example], more: list[Example]
) -> None:
    """What a snapshot says stays, whatever the model learns, drops or grows into afterwards."""
    for part in (stream, more):
        for example in part:
            start.learn_one({"text": example.text, "user": example.user}, example.label)
        if part is stream:
            snapshot = Snapshot(start, 5)
            before = facts(start), facts(snapshot)
            assert {k: v for k, v in before[0].items() if k not in {"kind", "parts"}} == before[1]
    assert facts(snapshot) == before[1]


def test_a_snapshot_is_sealed() -> None:
    """Nothing of a snapshot can be set, and the message says what to do instead."""
    snapshot = Snapshot(model(), 1)
    for name in ("version", "n_examples", "_class_counts", "other"):
        with pytest.raises(AttributeError, match=f"{name} cannot be set. Teach the model"):
            setattr(snapshot, name, 3)


def test_an_old_snapshot_is_let_go() -> None:
    """The board holds the newest snapshot alone: those before are freed."""
    board = SnapshotBoard()
    learner = Learner(model(), board, Watched(), Clock())
    known = []
    for _ in range(4):
        teach(learner)
        known.append(weakref.ref(learner.publish()))
    gc.collect()
    assert [ref() is not None for ref in known] == [False, False, False, True]


def judging(confidence: Confidence) -> Learner:
    """Return a learner that publishes at each call and learns what its answers are worth."""
    return Learner(
        model(), SnapshotBoard(), EveryExamples(1), time.monotonic, confidence=confidence
    )


def test_the_log_loss_of_a_snapshot_is_that_of_its_answers() -> None:
    """Calibrated as they are; what is joint stays the model's."""
    learner = judging(Confidence(Calibrator()))
    learner.learn("p", {"text": ["x", "y"] * 200}, ["neg", "pos"] * 150 + ["pos", "neg"] * 50)
    snapshot, columns, labels = learner.snapshot, {"text": ["x", "y"]}, ["neg", "pos"]
    answered = snapshot.predict_log_proba_many(columns)[[0, 1], [0, 1]]
    assert snapshot.log_loss(columns, labels) == pytest.approx(-answered.mean())
    assert snapshot.log_loss(columns, labels) != pytest.approx(
        learner.model.log_loss(columns, labels)
    )
    assert snapshot.nll(columns, labels) == learner.model.nll(columns, labels)


def test_an_example_of_weight_0_teaches_no_confidence() -> None:
    """It is answered as the next one would be, and nothing of it is counted."""
    taught, spared = (Confidence(Calibrator(), ConformalSets()) for _ in range(2))
    texts, labels = ["x", "y", "x z"] * 20, ["neg", "pos", "pos"] * 20
    weights = [1.0, 0.0, 2.0] * 20
    answers = judging(taught).learn("p", {"text": texts}, labels, weights=weights)
    kept = [i for i, weight in enumerate(weights) if weight]
    own = judging(spared).learn(
        "p",
        {"text": [texts[i] for i in kept]},
        [labels[i] for i in kept],
        weights=[weights[i] for i in kept],
    )
    assert answers[kept].tobytes() == own.tobytes()
    assert taught.calibrator is not None
    assert spared.calibrator is not None
    assert taught.calibrator.counts.tobytes() == spared.calibrator.counts.tobytes()
    assert taught.rule().to_dict() == spared.rule().to_dict()
    assert not np.isnan(answers).any()


def test_a_correction_says_when_its_example_was() -> None:
    """With a half-life in seconds an example is taken back and learned again by its own time."""
    decayed = [
        NaiveBayes(
            ["neg", "pos"],
            features={"text": Words(Bernoulli())},
            decay=HalfLife(seconds=10.0),
            hash_key=1,
        )
        for _ in range(2)
    ]
    learner = Learner(decayed[0], SnapshotBoard(), EveryExamples(100), Clock())
    texts, labels = ["good day", "bad day", "late"], ["pos", "pos", "pos"]
    learner.learn("t/0", {"text": texts}, labels, times_s=[0.0, 5.0, 3.0])
    learner.unlearn_one("t/0", {"text": "bad day"}, "pos", time_s=5.0)
    learner.learn_one("t/0", {"text": "bad day"}, "neg", time_s=5.0)
    learner.unlearn_many("t/0", {"text": ["late"]}, ["pos"], times_s=[3.0])
    assert not learner.is_current
    decayed[1].learn_many({"text": texts[:2]}, ["pos", "neg"], times_s=[0.0, 5.0], part="t/0")
    found, expected = (each.predict_log_proba_many({"text": texts}) for each in decayed)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    with pytest.raises(InputError, match="time_s must say when"):
        learner.unlearn_one("t/0", {"text": "good day"}, "pos")


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        (NaiveBayes(features={"text": Words(Bernoulli())}), "declared classes"),
        (
            NaiveBayes(["neg", "pos"], features={"text": Words(Bernoulli())}, new_classes=True),
            "declared classes",
        ),
        (NaiveBayes(["a", "b", "c"], features={"text": Words(Bernoulli())}), "3 classes. Got 2"),
    ],
    ids=["open", "may join", "three"],
)
def test_costs_that_do_not_fit_are_refused_before_anything_is_learned(
    refused: NaiveBayes, said: str
) -> None:
    """A class without costs would fail each question from then on."""
    board, confidence = SnapshotBoard(), Confidence(costs=[[0.0, 10.0], [1.0, 0.0]])
    with pytest.raises(InputError, match=said):
        Learner(refused, board, Watched(), Clock(), confidence=confidence)
    assert board.current() is None
    learner = Learner(model(), board, Watched(), Clock(), confidence=confidence)
    teach(learner)
    other = NaiveBayes([*learner.model.classes, "third"], features={"text": Words(Bernoulli())})
    with pytest.raises(InputError, match="a row for each of 3 classes"):
        learner.set_part("q", other)
    answers = learner.snapshot.predict_log_proba_many({"text": ["good day"]})
    assert len(learner.snapshot.rule.labels(answers)) == 1


_CALIBRATED_IN_A_NEW_PROCESS = """
import sys, time
import streamnb as nb
model = nb.NaiveBayes(["a", "b"], features={"text": nb.Words(nb.Multinomial())})
confidence = nb.Confidence(nb.Calibrator(), nb.ConformalSets(0.9))
before = set(sys.modules)
board = nb.SnapshotBoard()
learner = nb.Learner(model, board, nb.EveryExamples(1), time.monotonic, confidence=confidence)
for label in "abba":
    learner.learn("t/0", {"text": [label]}, [label])
assert learner.snapshot.version == 5
print(*(name for name in sys.modules if name.startswith("scipy") and name not in before))
"""


def test_the_first_curve_of_a_calibrator_imports_nothing() -> None:
    """What is paid once is paid before the stream: a policy by time would wait for ten times it."""
    done = subprocess.run(
        [sys.executable, "-c", _CALIBRATED_IN_A_NEW_PROCESS],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert done.stdout.split() == []
