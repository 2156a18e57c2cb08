"""Words on the move: found where their use changed, and not where chance moved them."""

from __future__ import annotations

import numpy as np
import pytest

from consumers.monitoring.quality import (
    EXAMPLES_MIN,
    MARK_INTERVAL_S,
    MARKS_MAX,
    SHOWN,
    WORDS_MAX,
    Trends,
)
from streamnb import Bag, Flags, Learner, Multinomial, NaiveBayes, Snapshot, SnapshotBoard, Words
from streamnb.features.protocol import Group
from streamnb.serving.publisher import EveryExamples

CLASSES = ("negative", "positive")
HOUR_S = 3_600.0


class Stream:
    """A learner that is taught texts, and trends that look at it after each lesson."""

    def __init__(self, group: Group | None = None, left_out: frozenset[str] = frozenset()) -> None:
        self.now_s = 100.0
        self.trends = Trends(left_out)
        self._board = SnapshotBoard()
        model = NaiveBayes(CLASSES, features={"text": group or Words(Multinomial(), ngrams=(1, 2))})
        self.learner = Learner(model, self._board, EveryExamples(1), lambda: self.now_s)

    def teach(self, texts: list[str]) -> None:
        """Learn texts, one class after the other in turn."""
        labels = [CLASSES[i % 2] for i in range(len(texts))]
        self.learner.learn("t/0", {"text": texts}, labels)

    def snapshot(self) -> Snapshot:
        """Return what has been learned."""
        self.learner.publish()
        found = self._board.current()
        assert found is not None
        return found

    def look(self, after_s: float) -> Trends:
        """Let time pass, and look."""
        self.now_s += after_s
        self.trends.update(self.snapshot(), self.now_s)
        return self.trends


def test_a_word_of_the_hour_rises_and_its_forerunner_falls() -> None:
    """Each with its rate an example before and now, and what the second is to the first."""
    stream = Stream()
    stream.teach(["rain today", "work today"] * 2_000)
    stream.look(0.0)
    stream.teach(["sun today", "work today"] * 1_000)
    trends = stream.look(HOUR_S)
    assert [each.word for each in trends.rising] == ["sun"]
    assert [each.word for each in trends.falling] == ["rain"]
    assert trends.span_s == HOUR_S
    sun, rain = trends.rising[0], trends.falling[0]
    assert (sun.before, sun.now) == (0.0, 0.5)
    assert (rain.before, rain.now) == (0.5, 0.0)
    assert sun.ratio > 10.0
    assert 0.0 < rain.ratio < 0.1


def test_words_that_are_left_out_neither_rise_nor_fall() -> None:
    """Function words, which are the model's as ever."""
    stream = Stream(left_out=frozenset({"the", "rain"}))
    stream.teach(["rain today", "work today"] * 2_000)
    stream.look(0.0)
    stream.teach(["the sun today", "work today"] * 1_000)
    trends = stream.look(HOUR_S)
    assert [each.word for each in trends.rising] == ["sun"]
    assert not trends.falling


def test_chance_moves_no_word() -> None:
    """Of thousands of words drawn alike before and after, rare ones too, hardly one is shown."""
    rng = np.random.default_rng(5)
    weights = 1.0 / np.arange(1, 4_001)
    weights /= weights.sum()

    def texts(n: int) -> list[str]:
        drawn = rng.choice(4_000, (n, 8), p=weights)
        return [" ".join(f"w{word}" for word in row) for row in drawn.tolist()]

    stream = Stream(Words(Multinomial()))
    stream.teach(texts(8_000))
    stream.look(0.0)
    stream.teach(texts(4_000) + ["news"] * 30)
    trends = stream.look(HOUR_S)
    shown = [each.word for each in trends.rising + trends.falling]
    assert "news" in shown
    assert len(shown) <= 3


def test_the_surest_change_leads_and_the_list_is_short() -> None:
    """A word that came often leads one whose rate grew as much on fewer occasions."""
    stream = Stream(Words(Multinomial()))
    stream.teach([f"often{i % 20} calm" for i in range(4_000)])
    stream.look(0.0)
    fresh = [f"new{i}" for i in range(30) for _ in range(20 + 20 * i)]
    stream.teach([f"{word} calm" for word in fresh])
    trends = stream.look(HOUR_S)
    assert len(trends.rising) == SHOWN
    assert trends.rising[0].word == "new29"
    assert len(trends.falling) == SHOWN


@pytest.mark.parametrize("n_after", [0, EXAMPLES_MIN - 1])
def test_little_since_the_mark_says_nothing(n_after: int) -> None:
    """Before there is anything to compare there are no words and no span."""
    stream = Stream()
    stream.look(0.0)
    stream.teach(["rain"] * 2_000)
    stream.look(0.0)
    stream.teach(["sun"] * n_after)
    trends = stream.look(HOUR_S)
    assert trends.rising == trends.falling == ()
    assert trends.span_s is None


def test_it_looks_back_an_hour_at_most() -> None:
    """Marks older than that leave: the span ends at an hour and the five minutes of a mark."""
    stream = Stream()
    spans = []
    for _ in range(3 * MARKS_MAX):
        stream.teach(["calm sea"] * EXAMPLES_MIN)
        spans.append(stream.look(MARK_INTERVAL_S).span_s)
    assert spans[1] == MARK_INTERVAL_S
    assert spans[-1] == HOUR_S
    assert max(span for span in spans if span is not None) <= HOUR_S + MARK_INTERVAL_S


def test_what_rose_long_ago_is_news_no_more() -> None:
    """A word that has been as frequent for more than an hour as it is now is not shown to rise."""
    stream = Stream()
    stream.teach(["rain"] * 1_000)
    stream.look(0.0)
    stream.teach(["sun"] * 50_000)
    assert [each.word for each in stream.look(MARK_INTERVAL_S).rising] == ["sun"]
    for _ in range(MARKS_MAX):
        stream.teach(["sun"] * 1_000)
        stream.look(MARK_INTERVAL_S)
    assert stream.trends.rising == ()


def test_a_word_too_rare_to_be_marked_counts_as_often_as_it_may_have_come() -> None:
    """A word that no mark has room for is not new for that; one that comes in masses is."""
    words = [f"w{i}" for i in range(2 * WORDS_MAX + 500)]
    stream = Stream(Words(Multinomial()))
    stream.teach([" ".join(words[i : i + 20]) for i in range(0, len(words), 20)] * 6)
    stream.look(0.0)
    stream.teach([f"{words[-1]} {words[0]}"] * 3 + ["storm"] * 1_000)
    rising = stream.look(HOUR_S).rising
    assert [each.word for each in rising] == ["storm"]
    assert rising[0].before > 0.0  # as often as the rarest word of the mark


def test_unlearning_counts_for_nothing() -> None:
    """A word taken back since the mark has come no times, not fewer."""
    stream = Stream(Words(Multinomial()))
    stream.teach(["rain calm", "sun calm"] * 2_000)
    stream.look(0.0)
    for _ in range(500):
        stream.learner.unlearn_one("t/0", {"text": "rain calm"}, "negative")
    stream.teach(["sun calm"] * 2_000)
    trends = stream.look(HOUR_S)
    falling = {each.word: each for each in trends.falling}
    assert falling["rain"].now == 0.0


def test_models_without_words_have_no_trends() -> None:
    """Flags alone, or words that were counted elsewhere under names of their own."""
    board = SnapshotBoard()
    learner = Learner(
        NaiveBayes(CLASSES, features={"signs": Flags(fields=["seen"])}),
        board, EveryExamples(1), lambda: 0.0,
    )  # fmt: skip
    learner.learn("t/0", {"seen": [True] * 2_000}, ["positive"] * 2_000)
    learner.publish()
    trends, snapshot = Trends(), board.current()
    assert snapshot is not None
    trends.update(snapshot, 0.0)
    trends.update(snapshot, HOUR_S)
    assert trends.rising == ()
    assert trends.span_s is None


def test_words_of_several_groups_are_added_up() -> None:
    """A word in the title and in the text has come as often as in both."""
    words = Multinomial()
    board = SnapshotBoard()
    learner = Learner(
        NaiveBayes(CLASSES, features={"title": Words(words), "tags": Bag(words, field="tags")}),
        board, EveryExamples(1), lambda: 0.0,
    )  # fmt: skip
    trends = Trends()
    for at_s, word in ((0.0, "rain"), (HOUR_S, "sun")):
        columns = {"title": [f"{word} calm"] * 2_000, "tags": [{word: 1}] * 2_000}
        learner.learn("t/0", columns, ["positive"] * 2_000)
        learner.publish()
        snapshot = board.current()
        assert snapshot is not None
        trends.update(snapshot, at_s)
    assert [(each.word, each.now) for each in trends.rising] == [("sun", 2.0)]
