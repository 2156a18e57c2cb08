"""The benchmark of challengers still runs: on a few messages, for the shape of what it finds."""

from __future__ import annotations

from benchmarks import challengers
from benchmarks.tweets import Tweets


def test_one_and_five_take_turns() -> None:
    """A small version of `python -m benchmarks.challengers`."""
    tweets = Tweets(["a good day", "a bad one"], ["positive", "negative"], "made up")
    found = challengers.compare(tweets, 200, 2)
    assert {name: len(each) for name, each in found.seconds.items()} == {"one": 2, "five": 2}
    assert found.ratio("five", "one") > 0.0
