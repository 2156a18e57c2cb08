"""Counts, series and languages of the recent store."""

from __future__ import annotations

import contextlib
import sqlite3
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr, replace
from structlog.testing import capture_logs

from consumers.config.sections import AlertSettings
from consumers.messages import Partition
from consumers.monitoring.prequential import wilson
from consumers.monitoring.quality import Share
from consumers.monitoring.stats import ProcessorBudget
from consumers.search.chunks import Chunk
from consumers.search.comparison import ComparedSide, _distinctive, compare, moves, share_move
from consumers.search.live_updater import ALERT_ERRORS_MIN, ShareAlerts, risen, shown_moves
from consumers.search.query_syntax import parse
from consumers.search.rows import (
    POINTS_MAX,
    Counted,
    Picked,
    counted,
    note_offered,
    picked,
    weights_of,
)
from consumers.search.store import RecentStore
from tests.consumers.search.stores import (
    CLASSES,
    Clock,
    clock_of,
    ids,
    offer,
    running,
    settle,
    stream_shares,
    tell,
    tweets,
    wall_of,
)

PACE_PER_S, BATCH_S = 2_000, 0.25  # of a fast stream
FAST = {"rate_max_per_s": 200.0}  # of which the first 1,000 messages are stored whole


def test_only_the_newest_matches_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more matches than are counted the newest are, and the answer says that there are more."""
    monkeypatch.setattr("consumers.search.store.COUNTED_MAX", 5)
    with running(None) as store:
        force_setattr(store._bounds, "messages_max", 16 * 3)
        tell(store, ["good"] * 5)
        assert not store.counted(parse("good")).newest_only
        tell(store, ["good"] * 3, first=5)
        counts = store.counted(parse("good"))
        assert (counts.n, counts.n_max, counts.newest_only) == (5, 5, True)
        assert counts.counts == (2, 3)
        assert store.counted(parse("")).n == 8


def test_of_a_span_its_own_newest_matches_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many newer ones there are; what is left out is of the span too."""
    monkeypatch.setattr("consumers.search.store.COUNTED_MAX", 5)
    begin_s = 1_600_000_000
    with running(None) as store:
        tell(store, [{"text": "good", "created_at": begin_s + i} for i in range(20)])
        for n, wanted in ((4, (4, False)), (5, (5, False)), (8, (5, True))):
            counts = store.counted(parse("good"), None, (begin_s * 1000, (begin_s + n) * 1000))
            assert (counts.n, counts.newest_only) == wanted
            assert counts.times_ms[-1] == (begin_s + n - 1) * 1000


def test_the_unsure_are_counted() -> None:
    """A message is unsure when its most likely class is less likely than was set."""
    with running(None) as store:
        offer(store, tweets(["good"] * 3), probability=0.6)
        offer(store, tweets(["good"] * 2, first=3), probability=0.7)
        settle(store)
        assert store.counted(parse("good")).n_unsure == 3


def test_the_series_counts_every_message_once() -> None:
    """The series has a bounded number of steps of a round length, and loses nobody near others."""
    with running(None) as store:
        times_s = [1_600_000_000 + 37 * i for i in range(100)]
        tell(store, [{"text": "good", "created_at": time_s} for time_s in times_s])
        counts = store.counted(parse("good"))
        assert counts.step_s == 120
        assert counts.times_ms[0] == 1_600_000_000_000 // 120_000 * 120_000
        assert len(counts.times_ms) <= POINTS_MAX
        assert all(time_ms % 120_000 == 0 for time_ms in counts.times_ms)
        assert [sum(column) for column in zip(*counts.series, strict=True)] == [50, 50]
        assert store.counted(parse("")).series == counts.series


def test_the_labels_say_how_often_the_model_errs() -> None:
    """Of the counted messages those with a label are told by label and by what was predicted."""
    labels, judged = [None, 0, 4, 4, None, 0], [1, 1, 1, 0, 0, 0]
    with running(None) as store:
        told = tweets([{"text": "good", "label": label} for label in labels])
        shares = np.full((6, 2), 0.25)
        shares[np.arange(6), judged] = 0.75
        store.offer(told, np.arange(6), np.log(shares))
        settle(store)
        counts = store.counted(parse("good"))
        assert counts.counts == (3, 3)
        assert counts.confusion == ((1, 1), (1, 1))


def test_times_that_are_made_up_are_those_of_arrival() -> None:
    """Where what messages say of their time means nothing, they are of the time when they came."""
    with running(None, times_made_up=True) as store:
        tell(store, [{"text": "good", "created_at": 1_600_000_000}])
        (found,) = store.search(parse("good")).rows
        assert found.row.time_ms == -1
        assert store.counted(parse("good")).times_ms == (1_700_000_000_000,)


def test_a_wrong_clock_does_not_spoil_the_series() -> None:
    """A time far from all others is left out of the series, and still counts."""
    with running(None) as store:
        times_s = [1_600_000_000 + i for i in range(300)]
        times_s[7], times_s[8] = 4, 4_000_000_000
        tell(store, [{"text": "good", "created_at": time_s} for time_s in times_s])
        counts = store.counted(parse("good"))
        assert counts.n == 300
        assert sum(map(sum, counts.series)) == 298
        assert counts.step_s <= 30


@given(
    times_ms=st.lists(st.integers(-1, 1 << 53), max_size=30)
    | st.lists(st.integers(10**12, 10**12 + 10**6), max_size=30)
)
def test_a_series_of_any_times_is_short(times_ms: list[int]) -> None:
    """Whatever times messages have, the series has few steps, in order, on round seconds."""
    n = len(times_ms)
    labels, shares = np.zeros(n, np.int16), np.ones(n, np.float32)
    cuts = [slice(0, 9), slice(9, n)]
    parts = [Picked(labels[c], labels[c], shares[c], np.array(times_ms[c])) for c in cuts]
    counts = counted(parts, 2, 0.65, n_max=50, newest_only=False)
    assert counts.n == n
    assert len(counts.times_ms) <= POINTS_MAX
    assert list(counts.times_ms) == sorted(set(counts.times_ms))
    assert all(time_ms % (1000 * counts.step_s) == 0 for time_ms in counts.times_ms)
    assert sum(map(sum, counts.series)) <= n


def test_a_span_is_counted_by_whole_steps() -> None:
    """Messages of a span alone are counted, in steps as fine as its length allows."""
    with running(None) as store:
        times_s = [1_600_000_020 + i for i in range(300)]
        tell(store, [{"text": "good", "created_at": time_s} for time_s in times_s])
        begin_ms = 1_600_000_100_500
        for query in ("", "good"):
            found = store.counted(parse(query), None, (begin_ms, begin_ms + 40_000))
            assert (found.n, found.step_s, found.times_ms[0]) == (41, 1, 1_600_000_100_000)
            assert sum(map(sum, found.series)) == found.n
            found = store.counted(parse(query), None, (begin_ms, begin_ms + 7_200_000))
            assert (found.step_s, found.times_ms[0]) == (
                300,
                1_600_000_100_000 // 300_000 * 300_000,
            )
            assert found.n == sum(time_s >= found.times_ms[0] / 1000 for time_s in times_s)
        assert store.counted(parse("good"), None, (0, 1000)).times_ms == ()
        assert not store.counted(parse("good"), None, (0, 1000)).newest_only


def test_languages_are_listed_by_how_frequent_they_are() -> None:
    """Languages of held messages are named, most frequent first, and searched for alone."""
    with running(None) as store:
        langs = ["de", "en", None, "en", "fr"]
        tell(store, [{"text": "good", "lang": lang} for lang in langs])
        assert store.languages() == ["en", "de", "fr"]
        assert ids(store, "good", lang="en") == ["m3", "m1"]
        assert ids(store, "", lang="de") == ["m0"]
        assert ids(store, "", lang="xx") == []
        assert store.counted(parse(""), "en").counts == (0, 2)
        assert store.counted(parse("good"), "xx").n == 0
        store.remove("m4")
        assert store.languages() == ["en", "de"]


def test_keys_can_be_counted_again() -> None:
    """What a query found is counted by its keys as the query is, without those that have gone."""
    with running(None) as store:
        tell(store, ["good", "bad", "good", "good"])
        keys = store.keys(parse("good"), None, 10)
        assert keys.tolist() == [1, 3, 4]
        assert store.keys(parse("good"), None, 2).tolist() == [3, 4]
        assert store.oldest_key == 1
        assert store.counted_keys(keys, newest_only=False) == store.counted(parse("good"))
        store.remove("m2")
        assert store.held(keys).tolist() == [1, 4]
        assert store.counted_keys(keys, newest_only=False) == store.counted(parse("good"))


# ---- how shares moved ----------------------------------------------------------------------------


def test_each_class_may_raise_an_alert() -> None:
    """Of three classes the one that rose most may have done so by chance; another is told."""
    before, after = (100, 2, 98), (124, 24, 52)
    found = {each.label: each for each in moves(before, after, ("a", "b", "c"))}
    assert found["a"].after - found["a"].before > found["b"].after - found["b"].before
    assert found["a"].standard_errors < ALERT_ERRORS_MIN < found["b"].standard_errors
    told = risen(list(found.values()), messages_min=30, rise_min=0.1)
    assert told is not None
    assert told.label == "b"
    assert risen(list(found.values()), messages_min=30, rise_min=0.12) is None
    assert moves((0, 0, 0), after, ("a", "b", "c")) == []


BEGIN_S = 1_700_000_000
NOTHING = counted([], 2, 0.65, n_max=0, newest_only=False)


def judged(store: RecentStore, at_s: int, right: int, n: int, label: int, *, known: bool) -> None:
    """Store messages of one second whose label is known or not, so many judged as they are."""
    row = {"text": "phone", "label": 4 * label if known else None, "created_at": at_s}
    told = tweets([row] * n, 1_000 * (at_s - BEGIN_S))
    shares = np.full((n, 2), 0.2)
    shares[np.arange(n), np.where(np.arange(n) < right, label, 1 - label)] = 0.8
    store.offer(told, np.arange(n), np.log(shares))
    settle(store)


@pytest.mark.parametrize("known", [True, False])
def test_a_move_is_told_in_the_shares_that_the_page_shows(*, known: bool) -> None:
    """These are corrected where both times have labels; else it is said that they are not.

    First 100 of 400 are negative, of which 40 are found, then 240, and 40 others are held for such.
    """
    with running(None) as store, capture_logs() as logged:
        judged(store, BEGIN_S, 40, 100, 0, known=known)
        judged(store, BEGIN_S + 1, 300, 300, 1, known=known)
        judged(store, BEGIN_S + 60, 240, 240, 0, known=known)
        judged(store, BEGIN_S + 61, 120, 160, 1, known=known)
        own = AlertSettings(queries=("phone",), window_s=30, before_s=60)
        alerts = ShareAlerts(store, own, stream_shares, wall_clock=Clock(BEGIN_S + 80))
        (alert,) = alerts.look()
    moved, wanted = alert.moved, (0.25, 0.6) if known else (0.1, 0.7)
    assert (moved.label, moved.corrected) == ("negative", known)
    assert (moved.before, moved.after) == pytest.approx(wanted)
    (line,) = [each for each in logged if each["event"] == "share_moved"]
    assert (line["before"], line["after"], line["corrected"]) == (*wanted, known)


def test_what_the_error_bars_leave_open_is_no_rise() -> None:
    """Corrected shares rose by as many standard errors as their bars allow."""
    counts = replace(NOTHING, n=400, counts=(200, 200)), replace(NOTHING, n=400, counts=(280, 120))
    bars = [
        {"negative": Share(share, share - own, share + own), "positive": Share(1 - share, 0, 1)}
        for share, own in ((0.5, 0.08), (0.7, 0.06))
    ]
    (found, _) = shown_moves(counts, bars, CLASSES)
    assert found.standard_errors == pytest.approx(0.2 / (0.1 / 1.959964))
    plain = moves((200, 200), (280, 120), CLASSES)
    assert shown_moves(counts, [None, bars[1]], CLASSES) == plain
    assert risen(plain, messages_min=30, rise_min=0.1) == plain[0]
    assert risen([found], messages_min=30, rise_min=0.1) is None


# ---- samples whose rate changes ------------------------------------------------------------------


def rush(
    store: RecentStore,
    seconds: int,
    share_of: dict[int, float],
    texts: tuple[str, str] = ("bad day", "good day"),
) -> tuple[int, int]:
    """Let a fast stream come, half of it good; return how many good ones came, and were positive.

    `share_of` says from which second on which share of them is positive.
    """
    rng = np.random.default_rng(5)
    n_batch = int(PACE_PER_S * BATCH_S)
    n_good, n_positive, first = 0, 0, 0
    for k in range(int(seconds / BATCH_S)):
        for clock in (clock_of(store), wall_of(store)):
            clock.now_s += BATCH_S
        share = [own for since_s, own in share_of.items() if k * BATCH_S >= since_s][-1]
        is_good, is_positive = rng.random(n_batch) < 0.5, rng.random(n_batch) < share
        rows = [
            {"text": texts[int(good)], "label": 4 * int(positive)}
            for good, positive in zip(is_good, is_positive, strict=True)
        ]
        tell(store, rows, first)
        first += n_batch
        n_good, n_positive = n_good + sum(is_good), n_positive + sum(is_good & is_positive)
    return int(n_good), int(n_positive)


def holds(counts: tuple[float, ...], truth: float) -> bool:
    """Return whether the interval of the second class's share holds the true one."""
    low, high = wilson(counts[1], sum(counts))
    return low <= truth <= high


@pytest.fixture
def _slow_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 40 messages a second be stored of a fast stream."""
    monkeypatch.setattr(ProcessorBudget, "rate_per_s", property(lambda _: 40.0))


@pytest.mark.usefixtures("_slow_processor")
def test_a_share_does_not_lean_to_what_was_stored_whole() -> None:
    """What was stored whole, before a sample began, counts for no more than what came then."""
    with running(None, **FAST) as store:
        n_good, n_positive = rush(store, 60, {0: 0.1, 20: 0.4})
        found = store.counted(parse("good"))
        assert found.weighed is not None
        assert sum(found.weighed.counts) < found.n == sum(found.counts)
        assert holds(found.weighed.counts, n_positive / n_good)
        assert not holds(found.counts, n_positive / n_good)
        # A bar is what came, and does not fall to a fiftieth where the sample begins; a sample is
        # about a third of it.
        assert sum(found.n_came) == pytest.approx(n_good, rel=0.05)
        of_everything = store.counted(parse(""), None, None)
        n_step = PACE_PER_S * of_everything.step_s
        assert of_everything.n_came[1:-1] == pytest.approx(
            [n_step] * len(of_everything.n_came[1:-1]), rel=0.5
        )
        assert sum(of_everything.n_came) == pytest.approx(60 * PACE_PER_S, rel=0.02)


@pytest.mark.usefixtures("_slow_processor")
def test_a_slow_stream_behind_a_fast_one_stands_for_itself() -> None:
    """What comes once nothing is left out any more is weighed as one message each."""
    with running(None, **FAST) as store:
        rush(store, 6, {0: 0.5})
        for k in range(40):
            for clock in (clock_of(store), wall_of(store)):
                clock.now_s += 1.0
            tell(store, ["rain"] * 2, 100_000 + 2 * k)
        (chunk,) = store.chunks()
        weights = weights_of(chunk)
        assert weights is not None
        assert weights[0] == 1.0
        assert weights.max() > 20.0
        assert set(weights[-70:].tolist()) == {1.0}


@pytest.mark.usefixtures("_slow_processor")
def test_a_move_is_that_of_what_came() -> None:
    """Two times are compared by weights, where a sample begins within the first of them."""
    with running(None, **FAST) as store:
        begin_ms = int(wall_of(store).now_s * 1000)
        rush(store, 20, {0: 0.1, 1: 0.6})
        middle_ms = begin_ms + 10_000
        spans = (begin_ms, middle_ms), (middle_ms, begin_ms + 30_000)
        found = compare(store, [ComparedSide(parse("good"), None, span_ms) for span_ms in spans])
        assert found[0].counted.counts[1] < 0.4 * found[0].counted.n
        moved = share_move(found[0], found[1], CLASSES, "positive")
        assert moved is not None
        assert (moved.before, moved.after) == pytest.approx((0.56, 0.6), abs=0.06)
        assert abs(moved.standard_errors) < 3.0
        assert moved.n_before < found[0].counted.n


@pytest.mark.usefixtures("_slow_processor")
def test_words_are_those_of_what_came() -> None:
    """A word that all messages of a side have has its shares, and effects make up the difference.

    What was stored whole is of the first side alone, so words of both lie as far apart.
    """
    with running(None, **FAST) as store:
        begin_ms = int(wall_of(store).now_s * 1000)
        rush(store, 10, {0: 0.1, 1: 0.6}, ("good old", "good old"))
        rush(store, 10, {0: 0.8}, ("good new", "good new"))
        middle_ms = begin_ms + 10_001
        spans = (begin_ms, middle_ms), (middle_ms, begin_ms + 30_000)
        found = compare(store, [ComparedSide(parse("good"), None, span_ms) for span_ms in spans])
        shares = [np.array(each.counted.for_shares[0]) for each in found]
        shares = [own / own.sum() for own in shares]
        assert abs(shares[0] - np.array(found[0].counted.counts) / found[0].n_read).max() > 0.2
        for each, share, word in zip(found, shares, ("old", "new"), strict=True):
            assert [own.word for own in each.words] == [word]
            assert sum(each.words[0].counts) == pytest.approx(each.n_read, abs=1)
            assert each.words[0].counts == pytest.approx(each.n_read * share, abs=1)
        old, new = (np.array(each.words[0].effects) for each in found)
        assert new - old == pytest.approx(shares[1] - shares[0])


def test_a_word_that_hardly_came_has_a_message() -> None:
    """Of messages that were stored whole, beside some that stand for far more: a share is 0/0."""
    rain, sun = {"rain"}, {"sun"}
    found = [[rain] * 40 + [sun] * 10, [sun] * 50]
    weights = [np.array([0.0001] * 40 + [1.0] * 10), np.ones(50)]
    labels = [np.array([1] * 40 + [0] * 10), np.zeros(50, np.int64)]
    first, _ = _distinctive(labels, weights, found, 2, lambda _, word: word == "sun")
    assert [(each.word, each.counts) for each in first] == [("rain", (0, 1))]


@pytest.mark.usefixtures("_slow_processor")
def test_weights_are_the_same_after_a_start(tmp_path: Path) -> None:
    """The file holds what each row stands for; one of an older version, the mean of its chunk."""
    path = tmp_path / "recent.db"
    with running(path, **FAST) as store:
        rush(store, 10, {0: 0.1, 5: 0.6})
        before = [store.counted(parse(query)) for query in ("", "good")]
        assert None not in {found.weighed for found in before}
    with running(path, **FAST) as store:
        assert [store.counted(parse(query)) for query in ("", "good")] == before
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE stratum")
    with running(path, **FAST) as store:
        found = store.counted(parse(""))
        assert (found.weighed, found.counts) == (None, before[0].counts)
        assert sum(found.n_came) == pytest.approx(10 * PACE_PER_S, rel=0.05)


@pytest.mark.usefixtures("_slow_processor")
def test_a_burst_beside_a_steady_stream_stands_for_itself() -> None:
    """What is drawn of it by another share weighs as many as came for it."""
    rng, firsts = np.random.default_rng(4), [0, 0]
    with running(None, **FAST) as store:
        for k in range(800):
            for clock in (clock_of(store), wall_of(store)):
                clock.now_s += 0.05
            for i, (n, share) in enumerate([(100, 0.2), (10_000 * (k % 100 == 40), 0.9)]):
                told = tweets(["good day"] * n, first=firsts[i])
                firsts[i] += n
                raw = replace(told.raw, partition=Partition("t", i))
                is_positive = rng.random((n, 1)) < share
                posteriors = np.log(np.where(is_positive, [0.1, 0.9], [0.9, 0.1]))
                told = replace(told, raw=raw)
                store.offer(told, np.arange(n), posteriors)
            if k % 10 == 9:
                settle(store)
        found = store.counted(parse(""), None, None)
        assert found.weighed is not None
        assert holds(found.weighed.counts, (firsts[0] * 0.2 + firsts[1] * 0.9) / sum(firsts))
        assert not holds(found.counts, (firsts[0] * 0.2 + firsts[1] * 0.9) / sum(firsts))


@pytest.mark.usefixtures("_slow_processor")
def test_what_comes_soon_after_a_start_has_a_weight_of_its_own(tmp_path: Path) -> None:
    """It is stored whole, and no part of what was sampled a second ago."""
    path = tmp_path / "recent.db"
    with running(path, **FAST) as store:
        rush(store, 10, {0: 0.5})
        now_s = wall_of(store).now_s
    with running(path, **FAST) as store:
        wall_of(store).now_s = now_s + 1.0
        tell(store, ["rain"] * 5, 100_000)
        (chunk,) = store.chunks()
        weights = weights_of(chunk)
        assert weights is not None
        assert weights[-5:].tolist() == [1.0] * 5
        assert weights[-6] > 20.0


def test_rows_of_one_rate_are_counted_as_ever() -> None:
    """Where all rows stand for as many, shares are those of the rows, to the bit."""
    rng = np.random.default_rng(3)
    n = 1_000
    part = Picked(
        rng.integers(0, 3, n).astype(np.int16),
        rng.integers(-1, 3, n).astype(np.int16),
        rng.random(n, np.float32),
        10**12 + rng.integers(0, 10**6, n),
    )
    plain = counted([part], 3, 0.5, n_max=n, newest_only=False)
    alike = replace(part, weights=np.full(n, 29.25))
    found = counted([alike], 3, 0.5, n_max=n, newest_only=False)
    assert found.weighed is None
    assert found.for_shares == (plain.counts, plain.confusion)
    assert (found.series, found.times_ms) == (plain.series, plain.times_ms)
    assert found.n_came == tuple(round(sum(own) * 29.25) for own in plain.series)


def test_a_sample_behind_a_whole_beginning_is_in_the_series() -> None:
    """Few rows of large weight, of a long time, are not far from what came: they are most of it."""
    n = 10_000
    weights = np.where(np.arange(n) < 9_950, 1.0, 20_000.0)
    times_ms = 10**12 + np.cumsum(weights * 10).astype(np.int64)
    labels, shares = np.zeros(n, np.int16), np.ones(n, np.float32)
    part = Picked(labels, labels, shares, times_ms, weights)
    found = counted([part], 2, 0.5, n_max=n, newest_only=False)
    assert sum(found.n_came) == weights.sum()


Offers = list[tuple[int, int, int]]  # rows, messages left out before them, and ms since the last


@given(
    offers=st.lists(
        st.tuples(
            st.integers(0, 30),
            st.just(0) | st.integers(0, 500),
            st.integers(0, 500) | st.integers(-3_000, 10_000),
        ),
        min_size=1,
        max_size=40,
    ),
    data=st.data(),
)
def test_weights_are_what_came_for_each_row(offers: Offers, data: st.DataObject) -> None:
    """Weights add up to all that came, but for what no row stands for, and are counted right."""
    chunk = Chunk(1, 1, 2_000)
    now_ms = 10**12
    for n, n_left_out, since_ms in offers:
        now_ms += since_ms
        chunk.n += n
        note_offered(chunk, n, n_left_out, now_ms)
    came = sum(n + n_left_out for n, n_left_out, _ in offers)
    assert chunk.n_offered == came
    firsts = [each.first for each in chunk.strata]
    assert firsts == sorted(set(firsts))
    weights = weights_of(chunk)
    if all(n_left_out == 0 for _, n_left_out, _ in offers):
        assert weights is None
        assert len(chunk.strata) == 1
    plain = [1.0] * chunk.n if weights is None else weights.tolist()
    assert sum(plain) <= came * (1 + 1e-6)
    assert min(plain, default=1.0) >= 1.0
    if all(n for n, _, _ in offers):
        assert sum(plain) == pytest.approx(came, rel=1e-6)
    classes = st.integers(0, 2)
    own = [(data.draw(classes), data.draw(classes) - 1) for _ in plain]
    check_recount(chunk, own, plain)


def check_recount(chunk: Chunk, own: list[tuple[int, int]], plain: list[float]) -> None:
    """Hold counts of rows, given by label and truth, against a plain recount by their weights."""
    n = chunk.n_committed = chunk.n
    chunk.columns["label"][:n] = [label for label, _ in own]
    chunk.columns["truth"][:n] = [truth for _, truth in own]
    chunk.columns["time_ms"][:n] = 10**12
    found: Counted = counted([picked(chunk, slice(0, n))], 3, 0.5, n_max=n, newest_only=False)
    if len(set(plain)) < 2:
        assert found.weighed is None
        return
    assert found.weighed is not None
    exact = [Fraction(weight) for weight in plain]
    rows = list(zip(own, exact, strict=True))

    def even(some: list[tuple[tuple[int, int], Fraction]]) -> list[float]:
        total, squares = sum(w for _, w in some), sum(w * w for _, w in some)
        sums = [sum(w for (label, _), w in some if label == k) for k in range(3)]
        return [float(each * total / squares) if some else 0.0 for each in sums]

    assert found.weighed.counts == pytest.approx(even(rows), rel=1e-9)
    for truth in range(3):
        labelled = [row for row in rows if row[0][1] == truth]
        assert found.weighed.confusion[truth] == pytest.approx(even(labelled), rel=1e-9)
    assert found.n_came == (round(sum(exact)),)
    assert found.series == (tuple(map(round, found.weighed.counts)),)
