"""The run's statistics: what it has seen, in its own figures and in the metrics alike."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from consumers.config.message import EmoticonLabels, MessageSettings
from consumers.decode.decoder import Decoder
from consumers.decode.labels import EmoticonLabeller
from consumers.messages import OPERATIONS, Messages, Operation, Partition, Reason, Reject, pairs
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.prequential import wilson
from consumers.monitoring.stats import WINDOW_MARKS, CoveredWindow, RunStatistics
from consumers.reporter import build_status
from streamnb import Answer, Calibrator, Confidence, ConformalSets
from streamnb.testing import ManualClock
from tests.consumers import raw_batches as decoding
from tests.consumers.test_reporter import Run

CLASSES = ("negative", "positive")
PLACE = Partition("t", 0)


class Figures:
    """Statistics with the metrics behind it."""

    def __init__(self) -> None:
        self.clock = ManualClock(10.0)
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry, CLASSES, self.clock)
        self.statistics = RunStatistics(CLASSES, ("text",), 100, self.clock)
        metrics.watch(lambda: build_status("test", self.statistics))

    def value(self, name: str, **labels: str) -> float:
        """Return a metric's value."""
        value = self.registry.get_sample_value(f"streamnb_{name}", labels)
        assert value is not None, name
        return value

    def outcomes(self) -> dict[str, float]:
        """Return the messages by outcome."""
        outcomes = ("learned", "unlabelled", "ambiguous", "rejected", "delete")
        return {outcome: self.value("messages_total", outcome=outcome) for outcome in outcomes}


@pytest.fixture
def figures() -> Figures:
    """Return statistics with the metrics behind it."""
    return Figures()


def messages(*labels: str | None, text: str = "text") -> Messages:
    """Return decoded messages with such labels."""
    return decoding.messages(
        [
            {
                "created_at": 1_000_000_000_000 + i,
                "user": f"user {i}",
                "text": f"{text} {i}",
                "label": label,
            }
            for i, label in enumerate(labels)
        ],
        partition=PLACE,
    )


def rows(*places: int) -> NDArray[np.int64]:
    """Return places in a batch."""
    return np.array(places, np.int64)


def posteriors(*of_positive: float) -> NDArray[np.float64]:
    """Return log-posteriors by the probability of "positive"."""
    p = np.array(of_positive)
    logs: NDArray[np.float64] = np.log(np.stack([1 - p, p], axis=1))
    return logs


def answer(*of_positive: float) -> Answer:
    """Return what the predictor says, by the probability of "positive"."""
    return Answer(posteriors(*of_positive), CLASSES, 3, 0)


def reject(reason: Reason) -> Reject:
    """Return a rejected message."""
    return Reject(reason, "why", PLACE, 0, -1, None, b"")


def test_what_answers_are_worth_is_measured_where_it_is_learned(figures: Figures) -> None:
    """A late label counts by what was stated, and its figures are of what is answered."""
    for name in ("stated_calibration_error_ratio", "prediction_set_classes"):
        assert np.isnan(figures.value(name))
    assert build_status("s", figures.statistics).stated is None
    confidence = figures.statistics.confidence = Confidence(Calibrator(), ConformalSets(0.9))
    stated, truth = posteriors(*[0.99] * 200), np.array([1, 0] * 100)
    figures.statistics.learned_late(stated, truth, confidence, CLASSES)
    assert confidence.calibrator is not None
    assert confidence.calibrator.n == 200
    assert figures.value("stated_calibration_error_ratio") == pytest.approx(0.49, abs=0.001)
    told = build_status("s", figures.statistics).stated
    assert told is not None
    assert [(round(each.stated, 2), each.came_true, each.n) for each in told] == [
        (0.01, 0.5, 200.0), (0.99, 0.5, 200.0),
    ]  # fmt: skip
    log_loss = figures.value("prequential_log_loss_nats_total") / 200
    assert log_loss < 1.0  # of 99 % sure and wrong each second time it would be 2.3
    assert confidence.conformal is not None
    assert figures.value("prediction_sets_covered_ratio") == confidence.conformal.covered
    assert figures.value("prediction_set_classes") == confidence.conformal.mean_size


def test_a_message_without_text_is_remembered_by_its_fields() -> None:
    """Where the model reads no text, the newest messages show what they hold instead."""
    figures = Figures()
    found = decoding.messages(
        [{"income": "high", "age": 41, "job": True, "label": 4, "text": "unread"}],
        fields={"income": "categories", "age": "numbers", "job": "flags"},
    )
    figures.statistics.learned(found, rows(0), posteriors(0.9), np.array([1]))
    assert [judged.text for judged in figures.statistics.newest] == [
        "income high · age 41 · job true"
    ]


def test_a_field_without_a_value_is_not_named() -> None:
    """Neither one that a message lacks, nor one with an empty text."""
    assert pairs({"memo": "", "age": 0, "job": False, "note": None}) == "age 0 · job false"
    assert pairs({"memo": ""}) == ""


def test_each_message_has_one_outcome(figures: Figures) -> None:
    """Learned, unlabelled, ambiguous, deleted or rejected: together they are all that was read."""
    batch = messages("positive", None, None, "negative", None, "positive")
    batch.operations[3] = batch.operations[4] = OPERATIONS.index(Operation.DELETE)
    batch.operations[5] = OPERATIONS.index(Operation.UPDATE)
    batch.n_ambiguous = 1
    batch.rejects = [reject(Reason.NOT_JSON), reject(Reason.NOT_JSON), reject(Reason.TOMBSTONE)]
    figures.statistics.count(9, batch)
    assert figures.outcomes() == {
        "learned": 2.0,
        "unlabelled": 1.0,
        "ambiguous": 1.0,
        "rejected": 3.0,
        "delete": 2.0,
    }
    assert figures.value("rejects_total", reason="not_json") == 2.0
    assert figures.statistics.n_messages == 9
    assert figures.statistics.outcomes["ambiguous"] == 1
    assert figures.statistics.rejected == Counter(not_json=2, tombstone=1)


_texts = st.sampled_from(["so :)", "so :(", "both :) and :(", "plain"])
_messages = st.fixed_dictionaries(
    {"text": _texts},
    optional={
        "operation": st.sampled_from(["delete", "update", "nonsense"]),
        "id": st.sampled_from([1, "a", 2.5]),
    },
)


@given(batch=st.lists(_messages, max_size=8))
def test_whatever_comes_is_counted_once(batch: list[dict[str, object]]) -> None:
    """However labels, deletions and rejects meet in a message, its outcome is one."""
    figures = Figures()
    values = [msgspec.json.encode(message) for message in batch]
    decoder = Decoder(MessageSettings(), EmoticonLabeller(EmoticonLabels(), CLASSES))
    figures.statistics.count(len(batch), decoder.decode(decoding.raw(values)))
    assert sum(figures.outcomes().values()) == len(batch) == figures.statistics.n_messages
    assert min(figures.outcomes().values()) >= 0


def test_learned_messages_are_judged_first(figures: Figures) -> None:
    """What was learned enters the prequential figures, the learned examples and the newest."""
    batch = messages("positive", None, "negative", "negative")
    figures.statistics.learned(
        batch, rows(0, 2, 3), posteriors(0.9, 0.75, 0.2), np.array([1, 0, 0])
    )
    assert figures.statistics.n_learned == 3
    assert figures.statistics.prequential.n_correct == 2
    assert figures.value("prequential_examples_total") == 3.0
    assert figures.value("prequential_correct_total") == 2.0
    assert figures.value("examples_learned_total", label="negative") == 2.0
    assert figures.value("examples_learned_total", label="positive") == 1.0
    assert figures.value("predictions_total", label="positive") == 0.0
    assert [judged.text for judged in figures.statistics.newest] == ["text 0", "text 2", "text 3"]
    first = figures.statistics.newest[0]
    assert first._replace(probability=0.0) == (
        1_000_000_000_000,
        "user 0",
        "text 0",
        "positive",
        0.0,
        "positive",
    )
    assert first.probability == pytest.approx(0.9)
    assert [judged.label for judged in figures.statistics.newest] == [
        "positive",
        "positive",
        "negative",
    ]


def test_judged_messages_are_counted_by_prediction(figures: Figures) -> None:
    """What was judged enters the predictions and the newest, without a truth."""
    figures.statistics.judged(messages(None, "positive", None), rows(0, 2), answer(0.6, 0.1))
    assert figures.statistics.n_judged == 2
    assert figures.statistics.n_learned == 0
    assert figures.value("predictions_total", label="positive") == 1.0
    assert figures.value("predictions_total", label="negative") == 1.0
    assert [(j.text, j.label, j.truth) for j in figures.statistics.newest] == [
        ("text 0", "positive", None),
        ("text 2", "negative", None),
    ]


def test_shares_are_of_the_newest_predictions(figures: Figures) -> None:
    """Shares add up to one, forget what is long past, and are empty before the first."""
    assert figures.statistics.shares() == ()
    figures.statistics.judged(messages(None), rows(0), answer(0.6))
    assert figures.statistics.shares() == (0.0, 1.0)
    n = 5_000
    figures.statistics.judged(messages(*[None] * n), np.arange(n), answer(*[0.1] * n))
    assert figures.statistics.shares() == (1.0, 0.0)
    figures.statistics.judged(messages(*[None] * 500), np.arange(500), answer(*[0.9] * 500))
    assert figures.statistics.shares() == (0.75, 0.25)


def test_only_some_of_a_batch_are_shown(figures: Figures) -> None:
    """A batch gives its last few messages to the screen, and the screen keeps a few dozen."""
    figures.statistics.judged(messages(*[None] * 100), np.arange(100), answer(*[0.5] * 100))
    newest = [judged.text for judged in figures.statistics.newest]
    assert newest[-1] == "text 99"
    assert len(newest) < 20
    for _ in range(50):
        figures.statistics.judged(messages(None, text="later"), rows(0), answer(0.5))
    assert {judged.text for judged in figures.statistics.newest} == {"later 0"}


def test_the_rate_is_of_the_last_second(figures: Figures) -> None:
    """The rate is taken anew each second, and falls to zero when nothing comes."""
    assert figures.statistics.rate_per_s() == 0.0
    for n in (600, 400):
        figures.statistics.count(n, messages())
        figures.clock.now_s += 0.4
        assert figures.statistics.rate_per_s() == 0.0
    figures.clock.now_s += 0.2
    assert figures.statistics.rate_per_s() == pytest.approx(1_000.0)
    figures.clock.now_s += 0.9
    assert figures.statistics.rate_per_s() == pytest.approx(1_000.0)
    figures.clock.now_s += 0.1
    assert figures.statistics.rate_per_s() == 0.0
    assert figures.statistics.elapsed_s == pytest.approx(2.0)


def test_an_empty_batch_changes_nothing(figures: Figures) -> None:
    """Nothing learned, judged or read leaves every figure where it was."""
    figures.statistics.count(0, messages())
    figures.statistics.learned(messages(), rows(), posteriors(), np.array([], dtype=np.int64))
    figures.statistics.judged(messages(), rows(), answer())
    assert (
        figures.statistics.n_messages,
        figures.statistics.n_learned,
        figures.statistics.n_judged,
    ) == (0, 0, 0)
    assert figures.statistics.shares() == ()


def test_two_threads_may_tell_at_once(figures: Figures) -> None:
    """Learned and judged messages come from two threads while a third one looks; none is lost."""
    n, over = 300, threading.Event()
    failures: list[BaseException] = []

    def look() -> None:
        try:
            while not over.is_set():
                assert figures.statistics.shares() == () or sum(
                    figures.statistics.shares()
                ) == pytest.approx(1.0)
                tuple(figures.statistics.newest)
        except BaseException as error:  # noqa: BLE001 -- the main thread tells it
            failures.append(error)

    def judge() -> None:
        for _ in range(n):
            figures.statistics.judged(messages(None, None), rows(0, 1), answer(0.2, 0.7))

    threads = [threading.Thread(target=look), threading.Thread(target=judge)]
    for thread in threads:
        thread.start()
    for _ in range(n):
        figures.statistics.learned(messages("positive"), rows(0), posteriors(0.9), np.array([1]))
    threads[1].join()
    over.set()
    threads[0].join()
    assert not failures
    assert (figures.statistics.n_learned, figures.statistics.n_judged) == (n, 2 * n)
    assert figures.value("predictions_total", label="positive") == n


def test_shares_are_of_the_newest_in_the_logs_order(figures: Figures) -> None:
    """Which thread counts first makes no difference: a message's number decides."""
    other = Figures()
    batches = [messages("positive", None, "negative"), messages(*[None] * 1_999)]
    for of, learned_first in ((figures.statistics, True), (other.statistics, False)):
        if learned_first:
            of.learned(batches[0], rows(0, 2), posteriors(0.8, 0.7), np.array([1, 0]))
        of.judged(batches[0], rows(1), answer(0.9), 0)
        of.judged(batches[1], np.arange(1_999), answer(*[0.1] * 1_999), 3)
        if not learned_first:
            of.learned(batches[0], rows(0, 2), posteriors(0.8, 0.7), np.array([1, 0]))
    assert (
        figures.statistics.predicted_counts() == other.statistics.predicted_counts() == (1_999, 1)
    )


@pytest.mark.parametrize("sums", [True, False])
def test_figures_go_on_from_a_checkpoint(figures: Figures, sums: bool) -> None:
    """The window goes on; with the sums all figures are those of a run that was never ended."""
    again, batch = Figures(), messages("positive", None, "negative")
    for of in (figures, again):
        learned, judged = of.statistics.learned_entry(sums=sums), of.statistics.judged_entry()
        if of is again:
            before = figures.statistics
            learned.unpack(before.learned_entry(sums=sums).pack())
            if sums:
                judged.unpack(before.judged_entry().pack())
        of.clock.now_s += 5.0
        of.statistics.begin()
        of.statistics.learned(batch, rows(0, 2), posteriors(0.8, 0.7), np.array([1, 0]))
        of.statistics.judged(batch, rows(1), answer(0.6), of.statistics.n_messages)
        of.statistics.count(3, batch)
        of.clock.now_s += 2.0
    twice = Figures()
    for _ in range(2):
        n_before = twice.statistics.n_messages
        twice.statistics.learned(batch, rows(0, 2), posteriors(0.8, 0.7), np.array([1, 0]))
        twice.statistics.judged(batch, rows(1), answer(0.6), n_before)
        twice.statistics.count(3, batch)
    packed, wanted = (each.statistics.learned_entry(sums=True).pack() for each in (again, twice))
    for name in ("losses", "judgements"):
        assert packed.arrays[name].tobytes() == wanted.arrays[name].tobytes()
    assert again.statistics.mean_rate_per_s() == 0.0  # all of the run came at one time
    if sums:
        assert packed.values == wanted.values
        counts = [each.statistics.judged_entry().pack().values for each in (again, twice)]
        assert counts[0] == counts[1]
        assert again.statistics.predicted_counts() == twice.statistics.predicted_counts()
    else:
        assert (again.statistics.n_messages, again.statistics.prequential.n) == (3, 2)


# ---- prediction sets over time -------------------------------------------------------------------

CALLS = st.lists(st.lists(st.booleans(), min_size=1, max_size=30), min_size=1, max_size=60)


@given(calls=CALLS, size=st.integers(1, 100))
def test_the_window_of_sets_is_that_of_a_list(calls: list[list[bool]], size: int) -> None:
    """It holds the newest sets, as many as the window and up to a mark or call more."""
    window, sets = CoveredWindow(size), ConformalSets()
    outcomes: list[bool] = []
    for call in calls:
        outcomes += call
        sets.n, sets.n_covered, sets.n_in_sets = len(outcomes), sum(outcomes), 2 * len(outcomes)
        window.update(sets)
        covered, set_size = window.figures()
        n = window.marks[-1].n - window.marks[0].n
        newest = outcomes[-n:]
        assert covered == sum(newest) / len(newest)
        assert window.interval() == wilson(sum(newest), len(newest))
        assert set_size == 2.0
        least = min(size, len(outcomes))
        assert least <= n <= max(least, size + size / WINDOW_MARKS + 2 * max(map(len, calls)))
        assert len(window.marks) <= WINDOW_MARKS + 3


def test_other_sets_begin_their_own_window() -> None:
    """Those of a challenger that is promoted have other totals; without sets there are none."""
    window, sets, others = CoveredWindow(10), ConformalSets(), ConformalSets()
    assert window.figures() == window.interval() == (None, None)
    sets.n, sets.n_covered, sets.n_in_sets = 100, 90, 150
    window.update(sets)
    others.n, others.n_covered, others.n_in_sets = 200, 100, 200
    window.update(others)
    assert window.figures() == (0.5, 1.0)
    window.update(None)
    assert window.figures() == (None, None)


def test_a_window_after_a_restart() -> None:
    """All sets count, by the totals of the model, until the window is full of new ones."""
    window, sets = CoveredWindow(10), ConformalSets()
    sets.n, sets.n_covered, sets.n_in_sets = 100, 90, 150
    window.update(sets)
    assert window.figures() == (0.9, 1.5)
    for n in range(101, 121):
        sets.n = n
        window.update(sets)
    assert window.figures() == (0.0, 0.0)


def test_coverage_stands_in_the_history(tmp_path: Path) -> None:
    """Each point has the share of the window; the checkpoint has no marks, which batches set."""
    run = Run(tmp_path)
    statistics = run.statistics
    truth = np.array([0, 1, 1, 0], np.int64)
    statistics.confidence = Confidence(conformal=ConformalSets(0.9))
    stated = posteriors(0.1, 0.9, 0.2, 0.4)
    statistics.confidence.learn(stated, truth)
    statistics.learned(messages(*"0440"), rows(0, 1, 2, 3), stated, truth)
    figures = statistics.covered.figures()
    assert figures == statistics.prediction_sets() != (None, None)
    assert statistics.coverage() == 0.9
    assert "covered" not in statistics.learned_entry(sums=False).pack().values
    run.update()
    (point,) = run.reporter.status().quality.history
    assert (point.covered, point.set_size) == figures
    assert (point.covered_low, point.covered_high) == wilson(4 * (figures[0] or 0), 4)
