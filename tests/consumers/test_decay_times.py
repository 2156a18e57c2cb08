"""When messages count where what they teach decays: a function of their partition's log alone."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumers.config.model import ModelSettings
from consumers.features import DecayTimes, build_model, columns_of
from consumers.messages import Messages, Partition, part_name
from streamnb import Codes, NaiveBayes
from tests.consumers.decoded_messages import decoder, raw

HALF_LIFE_S = 60.0
BEGIN_S = 1_700_000_000
YEAR_S = 365 * 86_400
ONE, OTHER = Partition("t", 0), Partition("t", 1)
# Seconds after the begin, or none: in order, late, far too late, and of clocks that are years off.
usual_times = st.lists(st.none() | st.integers(0, 600) | st.just(-9_000), max_size=12)
times = st.lists(
    st.none() | st.integers(0, 600) | st.sampled_from([-9_000, 9_000, 74 * YEAR_S, -50 * YEAR_S]),
    max_size=20,
)


def batch(
    after_s: Sequence[int | None],
    first: int = 0,
    partition: Partition = ONE,
    written_s: int | None = None,
) -> Messages:
    """Return labelled messages of these times, each with a word of its own, written at a time."""
    lines = [
        {"text": f"w{first + i}", "label": 4}
        | ({} if after is None else {"created_at": 1000 * (BEGIN_S + after)})
        for i, after in enumerate(after_s)
    ]
    found = raw(partition, [json.dumps(line).encode() for line in lines], first)
    if written_s is not None:
        at_ms = np.full(len(found), 1000 * (BEGIN_S + written_s))
        found = replace(found, times_ms=at_ms)
    return decoder().decode(found)


def plain(after_s: Sequence[int | None]) -> list[float | None]:
    """Return when each message counts, in seconds after the begin: the rules once more."""
    found: list[float | None] = []
    now, last = -math.inf, -math.inf
    for after in after_s:
        own = -math.inf if after is None else float(after)
        reached = max(now, min(own, last))
        now = reached if now == -math.inf else min(reached, now + HALF_LIFE_S)
        last = own
        at = now if after is None else min(own, now)
        counts = now > -math.inf and at >= now - 64 * HALF_LIFE_S
        found.append(at if counts else None)
    return found


def taken(times_of: DecayTimes, found: Messages) -> list[float | None]:
    """Return when the messages of a batch count, in seconds after the begin."""
    moments = times_of.take(found)
    assert moments.times_s is not None
    assert moments.weights is not None
    return [
        at - BEGIN_S if weight else None
        for at, weight in zip(moments.times_s.tolist(), moments.weights.tolist(), strict=True)
    ]


@settings(max_examples=60)
@given(times, st.lists(st.integers(0, 25), max_size=4))
def test_cuts_and_checkpoints_change_nothing(after_s: list[int | None], cuts: list[int]) -> None:
    """However a log is cut into batches and runs, its messages count as the rules say."""
    decay, found = DecayTimes(HALF_LIFE_S), list[float | None]()
    edges = sorted({0, len(after_s), *(min(cut, len(after_s)) for cut in cuts)})
    for begin, end in itertools.pairwise(edges):
        found += taken(decay, batch(after_s[begin:end], begin))
        entry, decay = decay.pack(), DecayTimes(HALF_LIFE_S)
        decay.unpack(entry)
    assert found == pytest.approx(plain(after_s), abs=1e-6)
    assert decay.n_untaught == found.count(None)


def test_another_member_goes_on_with_the_times_of_a_part() -> None:
    """The times that go with a part say as much as the checkpoint's."""
    one, two = DecayTimes(HALF_LIFE_S), DecayTimes(HALF_LIFE_S)
    one.take(batch([0, 10, 20, 5]))
    assert one.of_part(ONE) is None  # not packed yet
    one.pack()
    one.take(batch([900, 900], 4))
    two.know(ONE, one.of_part(ONE))
    assert taken(two, batch([15, 30, 31], 4)) == plain([0, 10, 20, 5, 15, 30, 31])[4:]
    two.know(ONE, None)  # its member knew none
    assert taken(two, batch([15, 30], 7)) == [None, 15]


def learned(*batches: Messages, half_life_s: float = HALF_LIFE_S) -> tuple[NaiveBayes, DecayTimes]:
    """Return what the daemon learns of batches, in their order."""
    model = build_model(ModelSettings(half_life_s=half_life_s))
    decay = DecayTimes(half_life_s)
    for each in batches:
        own = decay.take(each)
        labels = Codes(each.labels, each.classes)
        columns = columns_of(each, np.arange(len(each)), ["text"])
        part = part_name(each.partition)
        model.learn_many(columns, labels, weights=own.weights, times_s=own.times_s, part=part)
    return model, decay


def word(model: NaiveBayes, number: int) -> float:
    """Return how often a message's word counts by now."""
    return float(model.word_counts([f"w{number}"]).sum())


def test_a_wrong_clock_costs_a_half_life_a_message_at_most() -> None:
    """One message of years ahead moves nothing; of five, four half-lives are lost, not the model.

    What comes back to the right time goes on being learned.
    """
    usual = [0] * 10
    alone, _ = learned(batch([*usual, 74 * YEAR_S, 0]))
    assert word(alone, 5) == 1.0
    assert word(alone, 10) == 1.0
    wrong, _ = learned(batch([*usual, *[74 * YEAR_S] * 5, *usual]))
    assert [word(wrong, number) for number in (5, 15, 24)] == [2.0**-4] * 3
    assert wrong.n_examples == 24


def test_a_log_that_begins_with_a_wrong_clock_is_learned() -> None:
    """No message is believed to be newer than its record, so what comes behind it counts."""
    wrong = [74 * YEAR_S] * 2
    found = taken(DecayTimes(HALF_LIFE_S), batch([*wrong, 0, 10, None], written_s=20))
    assert found == plain([20, 20, 0, 10, 20])
    unknown = taken(DecayTimes(HALF_LIFE_S), batch([*wrong, 0, 10], written_s=-BEGIN_S))
    assert unknown == plain([*wrong, 0, 10])  # such a record has no time


def test_messages_out_of_order_revive_nothing() -> None:
    """A late message counts as old as it is, and makes none younger; one too late teaches none."""
    model, decay = learned(batch([0, 60, 120, 180, 180, 60, 60, -9_000, 180]))
    assert word(model, 3) == 0.5  # as of when its partition had come to 120 s
    assert word(model, 5) == word(model, 6) == 0.25
    assert word(model, 7) == 0.0
    assert decay.n_untaught == 2  # the first, and the one too late


def test_messages_without_times_are_told_and_counted() -> None:
    """They teach nothing as long as no time is known; one line of the log says so."""
    with capture_logs() as logs:
        model, decay = learned(batch([None] * 3), batch([None], 3), batch([7, 7, None], 4))
    assert [each["event"] for each in logs] == ["messages_without_weight"]
    assert (model.n_examples, decay.n_untaught) == (2, 5)


@settings(max_examples=30)
@given(usual_times, usual_times, st.randoms())
def test_a_part_is_a_function_of_its_own_log(
    one: list[int | None], other: list[int | None], order: Random
) -> None:
    """In whichever order partitions are read, each part has the same counts, bit for bit."""
    of_one = [batch(one[k : k + 4], k) for k in range(0, len(one), 4)]
    of_other = [batch(other[k : k + 3], 100 + k, OTHER) for k in range(0, len(other), 3)]
    mixed, left = [], [list(of_one), list(of_other)]
    while any(left):
        own = order.choice([each for each in left if each])
        mixed.append(own.pop(0))
    whole, _ = learned(*of_one, *of_other)
    turned, _ = learned(*mixed)
    for name in whole.parts:
        first, second = whole.part(name), turned.part(name)
        words = sorted(first.words())
        assert sorted(second.words()) == words
        assert first.word_counts(words).tolist() == second.word_counts(words).tolist()
        assert first.class_counts.tolist() == second.class_counts.tolist()
        assert first.n_examples == second.n_examples
