"""The benchmarks of challengers still run: what four cost, and how one takes over."""

from __future__ import annotations

import pytest

from benchmarks import challengers, drift_daemon
from benchmarks.tweets import Tweets

BEFORE, AFTER = 6_000, 6_000


@pytest.mark.parametrize("hybrid", [False, True])
def test_one_and_five_take_turns(hybrid: bool) -> None:
    """A small version of `python -m benchmarks.challengers`, of both kinds of models."""
    tweets = Tweets(["a good day", "a bad one"], ["positive", "negative"], "made up")
    found = challengers.compare(tweets, 200, 2, hybrid=hybrid)
    assert {name: len(each) for name, each in found.seconds.items()} == {"one": 2, "five": 2}
    assert found.ratio("five", "one") > 0.0


def test_a_short_half_life_takes_over_and_keeps_up() -> None:
    """A small version of `python -m benchmarks.drift_daemon`."""
    found = drift_daemon.compare(1, BEFORE, AFTER)
    fresh, default, reacted = (found[name] for name in ("fresh", "default", "side by side"))
    assert (len(fresh.right), len(default.right), len(reacted.right)) == (
        AFTER, BEFORE + AFTER, BEFORE + AFTER,
    )  # fmt: skip
    assert (default.serving, reacted.serving) == (None, "short")
    for found_by in (default, reacted):  # an alarm changes no counts, so both raise the same ones
        assert [BEFORE < at < BEFORE + 500 for at in found_by.alarms] == [True]
        assert drift_daemon.n_named(found_by, 1) >= 8
    assert default.alarms == reacted.alarms
    ends = {name: float(each.right[-2_000:].mean()) for name, each in found.items()}
    assert ends["default"] < ends["side by side"]
    assert ends["fresh"] - 0.02 <= ends["side by side"] <= ends["fresh"] + 0.01


@pytest.mark.deep
def test_the_default_model_is_near_a_fresh_one_behind_a_change() -> None:
    """The published stream of seed 2: an alarm in time, eight words, less than a point behind."""
    before, after = 100_000, 40_000
    found = drift_daemon.compare(2, before, after, ("default",))
    gaps = drift_daemon.behind(found["default"], found["fresh"], after)
    assert [before < at <= before + 5_000 for at in found["default"].alarms] == [True]
    assert drift_daemon.n_named(found["default"], 2) >= 8
    assert gaps[drift_daemon.SETTLED // drift_daemon.BLOCK :].mean() <= 1.0
