"""Counts, series and languages of the recent store."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from consumers.search import parse
from consumers.search.rows import POINTS_MAX, Picked, counted
from tests.consumers.search.stores import ids, offer, running, settle, tell, tweets


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
