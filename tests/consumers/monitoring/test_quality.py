"""The quality report: shares that admit what they cannot say, and figures over time."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from consumers.monitoring.metrics import Metrics
from consumers.monitoring.quality import Budget, Point, Quality, Shares, function_words
from consumers.monitoring.stats import RunStatistics
from consumers.reporter import build_status
from streamnb import Learner, Multinomial, NaiveBayes, SnapshotBoard, Words, adjusted_shares
from streamnb.inspection.summary import top_features
from streamnb.serving.publisher import EveryExamples
from streamnb.testing import ManualClock

CLASSES = ("negative", "positive")
CONFUSION = [[900, 100], [300, 700]]


class QualitySetup:
    """A quality report with its metrics, over a prequential window that the test fills."""

    def __init__(self, left_out: frozenset[str] = frozenset()) -> None:
        self.clock, self.registry = ManualClock(10.0), CollectorRegistry()
        statistics = RunStatistics(CLASSES, ("text",), 4_000, self.clock)
        self.prequential = statistics.prequential
        self.quality = Quality(CLASSES, self.prequential, 30, clock=self.clock, left_out=left_out)
        metrics = Metrics(self.registry, CLASSES)
        metrics.watch(lambda: build_status("test", statistics, self.quality))

    def see(self, confusion: list[list[int]], probability: float = 0.8) -> None:
        """Let so many examples of each true class (row) be predicted as each class (column)."""
        log = np.log([[probability, 1 - probability], [1 - probability, probability]])
        for truth, row in enumerate(confusion):
            for predicted, n in enumerate(row):
                self.prequential.update(np.tile(log[predicted], (n, 1)), np.full(n, truth))

    def update(self, predicted: tuple[int, ...] = ()) -> None:
        """Update after a second."""
        self.clock.now_s += 1.0
        self.quality.update(None, self.clock.now_s, predicted)

    def value(self, name: str, **labels: str) -> float:
        """Return a metric's value."""
        value = self.registry.get_sample_value(f"streamnb_{name}", labels)
        assert value is not None, name
        return value


# Shares ---------------------------------------------------------------------------------------


def test_the_stream_is_corrected_by_its_own_error_rates() -> None:
    """Raw shares are the counts', corrected ones the library's, each with its bar."""
    said = Shares(CLASSES, CONFUSION, 30).of_stream([60, 40])
    assert said.raw == {"negative": 0.6, "positive": 0.4}
    assert said.counts == {"negative": 60, "positive": 40}
    assert (said.n, said.enough, said.corrected_reason) == (100, True, None)
    wanted = adjusted_shares([60, 40], CONFUSION)
    assert said.corrected is not None
    assert wanted.low is not None
    assert wanted.high is not None
    positive = said.corrected["positive"]
    assert positive.share == pytest.approx(0.5)
    assert (positive.low, positive.high) == (wanted.low[1], wanted.high[1])


def test_messages_that_were_searched_for_have_error_rates_of_their_own() -> None:
    """They are corrected by the labelled ones among them, never by the stream's error rates."""
    shares = Shares(CLASSES, CONFUSION, 30)
    said = shares.of([60, 40], [[100, 0], [20, 80]])
    assert said.corrected is not None
    assert said.corrected["positive"].share == pytest.approx(0.5)
    assert said.corrected["negative"].share == pytest.approx(0.5)
    few = shares.of([60, 40], [[100, 0], [2, 8]])
    assert few.raw["positive"] == 0.4
    assert few.corrected is None
    assert few.corrected_reason is not None
    assert "'positive' has 10" in few.corrected_reason
    assert shares.of([60, 40]).raw == said.raw
    assert shares.of([60, 40]).corrected is None


def test_a_reason_calls_classes_by_their_names() -> None:
    """Whatever signs these have, as no sentence is searched for them."""
    odd = 'it\'s "so"'
    shares = Shares([odd, "no"], [[5, 0], [1, 60]], 30, {odd: "calm", "no": odd})
    told = (shares.of_stream([60, 40]), shares.of([60, 40], [[60, 0], [1, 5]]))
    for said, wanted in zip(told, ("calm", odd), strict=True):
        assert str(said.corrected_reason).endswith(f"; {wanted!r} has {5 + (wanted == odd)}.")
        assert said.counts == {odd: 60, "no": 40}
    window = RunStatistics([odd, "no"], ("text",), 9).prequential
    quality = Quality([odd, "no"], window, 30, clock=lambda: 10.0, names={odd: "calm"})
    quality.update(None, 10.0, [60, 40])
    report = quality.stream_shares()
    assert report is not None
    assert "'calm' has 0" in str(report.corrected_reason)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([0, 0], "There are 0 messages; a share is said from 30 on."),
        ([1, 0], "There is 1 message; a share is said from 30 on."),
        ([20, 9], "There are 29 messages; a share is said from 30 on."),
        ([20, 10], None),
    ],
)
def test_few_messages_are_said_to_be_few(counts: list[int], reason: str | None) -> None:
    """Below the set number there is no corrected share, and `enough` tells to draw nothing."""
    said = Shares(CLASSES, CONFUSION, 30).of_stream(counts)
    assert said.enough == (reason is None)
    assert said.corrected_reason == reason
    assert (said.corrected is None) == (reason is not None)


def test_an_uneven_sample_says_as_much_as_a_smaller_even_one() -> None:
    """Shares are the weighed ones, intervals those of as many messages; counts stay counts."""
    shares = Shares(CLASSES, CONFUSION, 30)
    said, even = shares.of_stream([600, 40], [60.0, 40.0]), shares.of_stream([60, 40])
    assert (said.n, said.counts) == (640, {"negative": 600, "positive": 40})
    assert (said.raw, said.corrected) == (even.raw, even.corrected)
    few = shares.of_stream([600, 40], [6.0, 14.0])
    assert (few.enough, few.corrected) == (False, None)
    assert few.corrected_reason == (
        "There are 640 messages of unequal weight, which say as much as 20; a share is said from"
        " 30 on."
    )


def test_no_messages_have_no_share() -> None:
    """Neither 0 nor nan: none."""
    assert Shares.unknown(CLASSES, 30).of_stream([0, 0]).raw == {"negative": None, "positive": None}


@given(counts=st.lists(st.integers(0, 10_000), min_size=2, max_size=2))
def test_what_is_said_is_whole(counts: list[int]) -> None:
    """Shares and bars are between 0 and 1, or there is a reason; and all of it becomes JSON."""
    said = Shares(CLASSES, CONFUSION, 30).of_stream(counts)
    assert (said.corrected is None) == (said.corrected_reason is not None)
    for each in (said.corrected or {}).values():
        assert 0.0 <= each.low <= each.share <= each.high <= 1.0
    read = msgspec.json.decode(msgspec.json.encode(said))
    assert set(read) == {
        "n", "enough", "messages_min", "counts", "raw", "corrected", "corrected_reason",
    }  # fmt: skip


# Budget ---------------------------------------------------------------------------------------


def test_what_takes_long_is_done_seldom() -> None:
    """Turns of a second under a bound of 1 % have 100 s from one to the next."""
    budget = Budget(10.0, 0.01)
    assert budget.is_due(5.0)
    budget.spent(5.0, 5.01)
    assert not budget.is_due(14.9)
    assert budget.is_due(15.0)
    budget.spent(15.0, 16.0)
    budget.spent(25.0, 26.0)
    assert not budget.is_due(124.0)
    assert budget.is_due(125.0)


def test_one_slow_turn_does_not_end_the_looking() -> None:
    """However long turns take, the next comes within twenty intervals."""
    budget = Budget(1.0, 0.01)
    budget.spent(0.0, 3.0)
    budget.spent(3.0, 6.0)
    assert not budget.is_due(22.9)
    assert budget.is_due(23.0)


def test_what_is_paid_once_puts_nothing_off() -> None:
    """A single slow turn, such as one that has to import, does not put off the next."""
    budget = Budget(1.0, 0.01)
    for began_s in (0.0, 1.0, 5.0):
        took_s = 3.0 if began_s == 1.0 else 0.01
        budget.spent(began_s, began_s + took_s)
        assert not budget.is_due(began_s + 0.9)
        assert budget.is_due(began_s + 1.0)


# The report -----------------------------------------------------------------------------------


def test_before_the_first_example_everything_is_empty() -> None:
    """No figure, no curve; metrics are nan, and there from the start."""
    setup = QualitySetup()
    setup.update()
    report = setup.quality.report()
    assert report.prequential.n == 0
    assert report.prequential.window.calibration_error is None
    assert not report.calibration
    assert not report.rising
    assert not report.falling
    assert report.trend_s is None
    assert report.history == ()
    for label in CLASSES:
        assert math.isnan(setup.value("share_ratio", label=label))
        assert math.isnan(setup.value("share_adjusted_ratio", label=label))
    assert math.isnan(setup.value("prequential_window_calibration_error_ratio"))


def test_the_report_is_of_the_window() -> None:
    """Confusion, curve, error and figures are those of the newest examples."""
    setup = QualitySetup()
    setup.see(CONFUSION)
    setup.update()
    report = setup.quality.report()
    assert report.confusion.classes == CLASSES
    assert report.confusion.counts == ((900, 100), (300, 700))
    assert report.prequential.window.n == 2_000
    assert report.prequential.window.accuracy == 0.8
    assert report.prequential.accuracy == 0.8
    assert report.prequential.window.log_loss == pytest.approx(
        -0.8 * math.log(0.8) - 0.2 * math.log(0.2)
    )
    assert report.prequential.window.calibration_error == pytest.approx(0.0, abs=1e-6)
    assert sum(each.n for each in report.calibration) == 2_000
    setup.see([[0, 4_000], [0, 0]])
    setup.update()
    assert setup.quality.report().confusion.counts == ((0, 4_000), (0, 0))
    assert setup.value("prequential_window_calibration_error_ratio") == pytest.approx(0.8)


def test_what_was_handed_out_does_not_change() -> None:
    """A report and who says shares are values: later examples make new ones."""
    setup = QualitySetup()
    setup.see(CONFUSION)
    setup.update()
    report, shares = setup.quality.report(), setup.quality.shares()
    said = shares.of_stream([60, 40])
    setup.see([[500, 0], [0, 500]])
    setup.update()
    assert report.confusion.counts == ((900, 100), (300, 700))
    assert shares.of_stream([60, 40]) == said
    assert setup.quality.shares().of_stream([60, 40]) != said


def test_dashboards_see_both_shares() -> None:
    """Of the newest predictions: as they are, and corrected; nan where that cannot be said."""
    setup = QualitySetup()
    setup.see(CONFUSION)
    setup.update((600, 400))
    assert setup.value("share_ratio", label="positive") == 0.4
    assert setup.value("share_adjusted_ratio", label="positive") == pytest.approx(0.5)
    assert setup.value("share_adjusted_ratio", label="negative") == pytest.approx(0.5)
    setup.update((6, 4))
    assert setup.value("share_ratio", label="positive") == 0.4
    assert math.isnan(setup.value("share_adjusted_ratio", label="positive"))


def test_telling_features_come_with_their_scores() -> None:
    """As the library ranks them, under the classes' names."""
    model = NaiveBayes(CLASSES, features={"text": Words(Multinomial())})
    model.learn_many({"text": ["sad rain", "good sun", "good"]}, [*CLASSES, "positive"])
    told = top_features(model.state, 2)
    setup = QualitySetup()
    setup.quality.set_top_features(told)
    setup.update()
    found = setup.quality.report().telling
    assert [(each.feature, each.score) for each in found["positive"]] == told["positive"]
    assert set(found) == set(CLASSES)


def test_function_words_are_in_no_ranking() -> None:
    """Alone, negated, in pairs and at a text's end; beside another word they stay."""
    names = ["the", "¬was", "^ the", "to the", "good $", "the best", "not", "^ $", "for", "rain"]
    setup = QualitySetup(left_out=function_words(None))
    setup.quality.set_top_features({"positive": [(name, 1.0) for name in names]})
    told = setup.quality.report().telling["positive"]
    assert [each.feature for each in told] == ["good $", "the best", "not", "^ $", "rain"]


def test_function_words_are_those_that_are_listed() -> None:
    """The configuration replaces the built-in ones of all languages, or empties them."""
    assert {"the", "und", "les", "para"} <= function_words(None)
    assert not {"not", "no", "nicht", "die", "war", "new"} & function_words(None)
    assert function_words(["RT", "via"]) == {"rt", "via"}
    assert function_words([]) == frozenset()


def test_the_report_becomes_json_under_the_names_of_the_api() -> None:
    """Every part of it, from a setup that has seen words and examples."""
    setup, board = QualitySetup(), SnapshotBoard()
    learner = Learner(
        NaiveBayes(CLASSES, features={"text": Words(Multinomial())}),
        board,
        EveryExamples(1),
        setup.clock,
    )
    setup.see(CONFUSION)
    for text in ("calm sea", "calm storm"):
        for _ in range(2):
            learner.learn("t/0", {"text": [text, "sea"] * 1_000}, [*CLASSES] * 1_000)
            learner.publish()
            setup.clock.now_s += 400.0
            setup.quality.update(board.current(), setup.clock.now_s)
    setup.quality.set_history((Point(0, 0.5, 0.7, 0.1, 10.0, None, 40, None),))
    report = setup.quality.report()
    read = msgspec.json.decode(msgspec.json.encode(report))
    assert set(read) == {
        "prequential", "confusion", "calibration", "history", "telling", "rising", "falling",
        "trend_s",
    }  # fmt: skip
    assert set(read["prequential"]) == {"n", "accuracy", "log_loss", "window"}
    assert set(read["calibration"][0]) == {"low", "high", "n", "mean_probability", "accuracy"}
    assert set(read["history"][0]) == {
        "time_ms", "accuracy", "log_loss", "calibration_error", "rate_per_s", "lag", "n",
        "n_alarms", "covered", "set_size", "events", "covered_low", "covered_high",
    }  # fmt: skip
    assert [each["word"] for each in read["rising"]] == ["storm"]
    assert set(read["rising"][0]) == {"word", "before", "now", "ratio"}
    assert read["trend_s"] == 1_200.0
