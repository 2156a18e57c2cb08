"""Comparisons have an end: so many characters are read; rare words are left out."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from consumers.search import comparison
from consumers.search.comparison import (
    STANDARD_ERRORS_MIN,
    ComparedMessages,
    ComparedSide,
    compare,
    ranked,
)
from consumers.search.store import RecentStore
from tests.consumers.search.stores import clock_of, running, tell
from tests.consumers.search.test_comparison import plain_rank


def compared(store: RecentStore, *queries: str) -> list[ComparedMessages]:
    """Compare queries."""
    return compare(store, [ComparedSide(store.parse(text)) for text in queries])


@pytest.mark.parametrize("at_once", [1, 2, 500])
def test_so_many_characters_are_read(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Of long messages the newest that are no more together; `n_read` says how many they are."""
    monkeypatch.setattr(comparison, "WORD_CHARS_MAX", 100)
    monkeypatch.setattr(comparison, "_TEXTS_AT_ONCE", at_once)
    read: list[str] = []
    words_of = comparison.words_of

    def noted(text: str) -> set[str]:
        read.append(text)
        return words_of(text)

    monkeypatch.setattr(comparison, "words_of", noted)
    with running(None) as store:
        tell(store, [f"{'long ' * 5}{k}" for k in range(10)] + ["short"] * 3)  # 26 characters each
        long, short = compared(store, "long ", "short ")
    assert (long.n_read, long.counted.n) == (3, 10)
    assert (short.n_read, short.counted.n) == (3, 3)
    assert sorted(read)[:3] == [f"{'long ' * 5}{k}" for k in (7, 8, 9)]


def test_a_busy_machine_takes_no_words_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading words is bounded by their number, and not by a time: an alert is told with them."""
    words_of = comparison.words_of

    def slow(text: str) -> set[str]:
        clock_of(store).now_s += 0.3
        return words_of(text)

    monkeypatch.setattr(comparison, "words_of", slow)
    with running(None) as store:
        tell(store, ["good day"] * 20)
        good, everything = compared(store, "good ", "")
    assert (good.n_read, everything.n_read) == (20, 20)


def test_a_word_of_three_messages_is_never_far_enough() -> None:
    """So what is left out before the ranking would not be listed, however unlike the sides are."""
    common = {f"word{i}": 1_000 for i in range(50)}
    for n, n_rest in ((3, 0), (2, 1), (2, 0), (1, 0)):
        for own, rest in ((common, {"a": 1}), ({"a": 1}, common), (common, common)):
            sides = [Counter(own) + Counter({"x": n}), Counter(rest) + Counter({"x": n_rest})]
            for scores, rank in zip(plain_rank(sides), ranked(sides), strict=True):
                assert scores.get("x", (0.0, 0.0))[1] < STANDARD_ERRORS_MIN
                assert "x" not in [word for word, *_ in rank]


def test_chance_sets_no_words_apart() -> None:
    """Of two halves of one stream, cut by chance, hardly a word is listed."""
    chance = random.Random(5)
    vocabulary = [f"w{i}" for i in range(2_000)]
    weights = [1 / (i + 1) for i in range(2_000)]
    halves = [
        Counter(
            word
            for _ in range(2_000)
            for word in set(chance.choices(vocabulary, weights, k=12))  # a message
        )
        for _ in range(2)
    ]
    assert sum(map(len, ranked(halves))) <= 2
