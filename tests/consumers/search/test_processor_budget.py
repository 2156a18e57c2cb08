"""The recent store's processor budget: what is kept of a stream by what storing it costs.

Clock and processor time are made up: a row takes as long as a test says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from consumers.messages import Messages
from consumers.monitoring.stats import RATE_MIN_PER_S, ProcessorBudget
from consumers.search.rows import Columns, RowBuilder
from consumers.search.sampler import SLOW_PER_S, Forget, Offer, QueuedItem, Sampler
from consumers.search.transactions import Transactions
from tests.consumers.search.stores import CLASSES, LOG, Clock, running, tell, tweets

BATCH = 500
SHARE = 0.02
TOLD = tweets(["good day"] * BATCH)
POSTERIORS = np.log(np.full((BATCH, 2), 0.5))


class CostlyMaker(RowBuilder, frozen=True):
    """Makes rows, each of which takes the processor some time."""

    meter = Clock(0.0)
    cost_s = 0.0
    n_made = 0

    def columns(self, messages: Messages, rows: Any, *rest: Any) -> Columns:
        """Make them."""
        type(self).meter.now_s += len(rows) * self.cost_s
        type(self).n_made += 1
        return super().columns(messages, rows, *rest)


@dataclass
class Stream:
    """An intake, a stream that comes to it, and a store's thread that takes from it.

    `share` of the stream was kept and `spent` of a core was spent in the newest `run`.
    """

    make_s: float
    write_s: float
    rate_max_per_s: float = 1e6
    change_s: float = 0.0
    n_changes: int = 0
    turn_s: float = 0.001
    share: float = 0.0
    spent: float = 0.0
    clock: Clock = field(default_factory=lambda: Clock(0.0))
    sampler: Sampler = field(init=False)
    rows: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Open the sampler, its burst used up."""
        CostlyMaker.meter, CostlyMaker.cost_s = Clock(0.0), self.make_s
        row_builder = CostlyMaker(CLASSES, ("text",))
        budget = ProcessorBudget(SHARE)
        self.sampler = Sampler(
            self.rate_max_per_s, budget, row_builder, Clock(1.0), self.clock, CostlyMaker.meter
        )
        self.sampler.open()
        self.sampler._tokens = 0.0

    def settle(self, per_s: float) -> None:
        """Let messages come for as long as it takes to know what they cost, and then to look."""
        for _ in range(2):
            self.run(per_s, 20)

    def run(self, per_s: float, seconds: float, turn_s: float = 0.5) -> None:
        """Let messages come, batch by batch; the store's thread has a turn now and then."""
        meter = CostlyMaker.meter
        CostlyMaker.cost_s = self.make_s
        began_s, written_s = meter.now_s, 0.0
        due_s = self.clock.now_s + turn_s
        n = n_kept = 0
        self.rows = []
        for _ in range(round(seconds * per_s / BATCH)):
            self.clock.now_s += BATCH / per_s
            self.sampler.offer(TOLD, np.arange(BATCH), POSTERIORS)
            n += BATCH
            for _ in range(self.n_changes):
                self.sampler.put(Forget(["nobody"], (LOG, [0])))
            if self.clock.now_s >= due_s:
                due_s += turn_s
                before_s = meter.now_s
                items = self.sampler.made(self.sampler.take())
                kept = [row for item in items if isinstance(item, Offer) for row in _rows(item)]
                n_changes = sum(isinstance(item, Forget) for item in items)
                cost_s = self.turn_s + self.write_s * len(kept) + self.change_s * n_changes
                self.sampler.written(items, meter.now_s - before_s + cost_s)
                written_s += cost_s - self.change_s * n_changes
                n_kept += len(kept)
                self.rows += kept
        self.share = n_kept / n
        self.spent = (meter.now_s - began_s + written_s) / seconds


def _n_rows(items: Sequence[QueuedItem]) -> int:
    return sum(len(item) for item in items if isinstance(item, Offer))


def _rows(item: Offer) -> list[int]:
    return list(item.columns["offset"])


@pytest.mark.parametrize(("make_s", "write_s"), [(5e-6, 15e-6), (20e-6, 60e-6), (4e-5, 1e-5)])
def test_a_fast_stream_takes_its_share_of_a_core(make_s: float, write_s: float) -> None:
    """Whatever a message costs, storing a stream that is too fast takes the share that is set."""
    stream = Stream(make_s, write_s)
    stream.settle(100_000)
    assert stream.spent == pytest.approx(SHARE, rel=0.1)
    expected = (SHARE - 2 * stream.turn_s) / (make_s + write_s)
    assert stream.share * 100_000 == pytest.approx(expected, rel=0.15)


def test_a_sample_is_made_a_few_times_a_second() -> None:
    """Rows are made dozens at a time, however small the batches are: to begin with them costs."""
    stream = Stream(5e-6, 15e-6)
    stream.settle(100_000)
    made_before = CostlyMaker.n_made
    stream.run(100_000, 20)
    assert 60 < CostlyMaker.n_made - made_before < 110


def test_a_whole_turn_of_the_stores_thread_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is let go of, purged and told to listeners counts as what is written."""
    meter, charged = Clock(0.0), list[tuple[int, float]]()
    monkeypatch.setattr("consumers.search.writer.time", SimpleNamespace(thread_time=meter))

    def costly(*_arguments: object) -> None:
        meter.now_s += 1.0

    monkeypatch.setattr(Transactions, "purge", costly)
    monkeypatch.setattr(Transactions, "let_go", costly)
    monkeypatch.setattr(
        Sampler, "written", lambda _, items, seconds: charged.append((_n_rows(items), seconds))
    )
    with running(tmp_path / "recent.db") as store:
        store.listeners.append(costly)
        tell(store, ["good day"] * 3)
    assert sum(seconds for n, seconds in charged if n) == 3.0


def test_less_is_kept_while_it_costs_more() -> None:
    """Where a message begins to cost four times as much a quarter is kept; later, all as before."""
    stream = Stream(10e-6, 20e-6, turn_s=0.0)
    stream.settle(50_000)
    before = stream.share
    stream.make_s, stream.write_s = 40e-6, 80e-6
    stream.settle(50_000)
    assert stream.share == pytest.approx(before / 4, rel=0.1)
    assert stream.spent == pytest.approx(SHARE, rel=0.1)
    stream.make_s, stream.write_s = 10e-6, 20e-6
    stream.settle(50_000)
    assert stream.share == pytest.approx(before, rel=0.1)


def test_what_the_budget_affords_is_kept_whole() -> None:
    """A stream that is fast, but costs no more than the budget, is kept whole."""
    stream = Stream(1e-6, 2e-6, turn_s=0.0)
    stream.settle(4_000)
    assert stream.share == pytest.approx(1.0, abs=0.02)
    assert stream.spent == pytest.approx(4_000 * 3e-6, rel=0.05)


def test_a_slow_stream_is_kept_whole_whatever_it_costs() -> None:
    """Of a thousand messages a second all are kept, also where a message takes a millisecond."""
    stream = Stream(2e-4, 8e-4, rate_max_per_s=5_000.0)
    stream.run(1_000, 60)
    assert stream.share == pytest.approx(1.0, abs=0.02)


def test_all_is_kept_again_once_a_stream_has_become_slow() -> None:
    """A stream that slows down from far too fast to a thousand a second is kept whole soon."""
    stream = Stream(2e-4, 8e-4, rate_max_per_s=5_000.0)
    stream.settle(50_000)
    assert stream.share * 50_000 == pytest.approx(RATE_MIN_PER_S, rel=0.2)
    stream.run(1_000, 5)
    stream.run(1_000, 20)
    assert stream.share == pytest.approx(1.0, abs=0.05)


def test_the_highest_rate_still_binds() -> None:
    """Of a stream that costs next to nothing no more than `recent.rate_max_per_s` is kept."""
    stream = Stream(1e-9, 1e-9, rate_max_per_s=2_000.0, turn_s=0.0)
    stream.settle(50_000)
    assert stream.share * 50_000 == pytest.approx(2_000, rel=0.05)


def test_deletions_leave_the_messages_their_share() -> None:
    """Deletions that cost many times the budget are all done, and no fewer messages are kept."""
    stream = Stream(5e-6, 15e-6, turn_s=0.0)
    stream.settle(50_000)
    before = stream.share
    stream.change_s, stream.n_changes = 1e-2, 3
    stream.settle(50_000)
    assert stream.share == pytest.approx(before, rel=0.1)


def test_a_sample_within_the_budget_is_spread_evenly() -> None:
    """Each tenth of a batch gives its share of a sample that the budget bounds, and odd rows do."""
    stream = Stream(5e-6, 20e-6)
    stream.run(50_000, 60)
    rows = np.array(stream.rows)
    shares = np.bincount(rows * 10 // BATCH, minlength=10) / len(rows)
    assert len(rows) > 10_000
    assert shares == pytest.approx(0.1, rel=0.1)
    assert (rows % 2).mean() == pytest.approx(0.5, abs=0.02)


def test_a_burst_costs_no_more_than_the_budget_while_the_stream_is_fast() -> None:
    """What a full bucket takes at once is neither made nor written ahead of the budget."""
    stream = Stream(10e-6, 15e-6, rate_max_per_s=5_000.0, turn_s=0.0)
    stream.sampler._tokens = stream.sampler._tokens_max
    stream.run(200_000, 5)
    assert stream.spent <= 1.5 * SHARE


def test_a_burst_is_stored_whole_where_the_stream_ends() -> None:
    """A short stream is kept whole, however quickly it comes and whatever it costs."""
    stream = Stream(10e-6, 15e-6, rate_max_per_s=5_000.0)
    stream.sampler._tokens = stream.sampler._tokens_max
    for _ in range(50):
        stream.sampler.offer(TOLD, np.arange(BATCH), POSTERIORS)
    assert CostlyMaker.meter.now_s == 0.0  # no row is made by the thread that judges
    stream.clock.now_s += 1.5
    items = stream.sampler.made(stream.sampler.take())
    assert _n_rows(items) == 50 * BATCH


def test_the_beginning_of_a_fast_stream_is_not_written_whole() -> None:
    """Before anything is left out, a turn writes what the highest rate allows, no whole burst."""
    stream = Stream(10e-6, 15e-6, rate_max_per_s=4_000.0)
    stream.sampler._tokens = stream.sampler._tokens_max
    for _ in range(20):
        stream.clock.now_s += 0.01
        stream.sampler.offer(TOLD, np.arange(BATCH), POSTERIORS)
    assert _n_rows(stream.sampler.made(stream.sampler.take())) == 1_000
    stream.clock.now_s += 1.5  # it has paused
    assert _n_rows(stream.sampler.made(stream.sampler.take())) == 9_000


def test_the_least_is_kept_of_what_costs_too_much() -> None:
    """Where a message costs a tenth of a second, twenty a second are kept all the same."""
    budget = ProcessorBudget(SHARE)
    for _ in range(100):
        budget.made(10, 1.0)
        budget.written(10, 1.0)
    assert budget.rate_per_s == RATE_MIN_PER_S
    assert SLOW_PER_S > RATE_MIN_PER_S
