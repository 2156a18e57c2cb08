"""Which messages the recent store takes when more come than it keeps, and that it never waits."""

from __future__ import annotations

import math
from collections import Counter, deque

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from consumers.messages import NO_LABEL, OPERATIONS, Messages, Operation, Partition
from consumers.monitoring.stats import ProcessorBudget
from consumers.search.chunks import Chunk
from consumers.search.query_syntax import parse
from consumers.search.rows import RowBuilder, note_offered, weights_of
from consumers.search.sampler import BURST_S, Forget, Offer, QueuedItem, RawBatch, Sampler
from tests.consumers.search.stores import (
    CLASSES,
    LOG,
    Clock,
    clock_of,
    made,
    offer,
    running,
    settle,
    tell,
    tweets,
)

BATCH = 500
TOLD = tweets(["good day"] * BATCH)
BATCH_BYTES = 1_000 * BATCH + len(TOLD.raw.buffer)
POSTERIORS = np.log(np.full((BATCH, 2), 0.5))


_DELETE = OPERATIONS.index(Operation.DELETE)


def intake_of(rate_max_per_s: float, wall: Clock | None = None) -> tuple[Sampler, Clock]:
    """Return an open intake and its clock, which is the wall's, too, if that is given."""
    clock = wall or Clock(0.0)
    sampler = Sampler(
        rate_max_per_s,
        ProcessorBudget(1.0),
        RowBuilder(CLASSES, ("text",)),
        wall or Clock(1.0),
        clock,
        thread_time=Clock(0.0),
    )
    sampler.open()
    return sampler, clock


def give(sampler: Sampler, told: Messages = TOLD) -> None:
    """Offer a whole batch."""
    sampler.offer(told, np.arange(len(told)), POSTERIORS[: len(told)])


def n_taken(sampler: Sampler) -> int:
    """Take all that waits, however many turns it takes, and count its messages."""
    n = 0
    while items := sampler.made(sampler.take()):
        n += sum(len(item) for item in items if isinstance(item, Offer))
    return n


def check_posteriors(item: QueuedItem, posteriors: NDArray[np.float64]) -> None:
    """Hold each row against the log-posteriors that were offered, but for rounding."""
    assert isinstance(item, Offer)
    expected = np.exp(posteriors[item.columns["offset"]])
    found = [msgspec.json.decode(row) for row in item.columns["probabilities"]]
    np.testing.assert_allclose(found, expected, rtol=1e-15)
    assert item.columns["probability"] == [max(row) for row in found]
    assert item.columns["label"] == expected.argmax(axis=1).tolist()


def test_a_short_stream_is_taken_whole() -> None:
    """A stream of no more than five seconds' worth is taken whole, however quickly it comes."""
    sampler, _ = intake_of(4_000.0)
    for _ in range(40):
        give(sampler)
    assert n_taken(sampler) == 20_000
    give(sampler)
    assert n_taken(sampler) == 0
    assert sampler.n_offered == 20_500


@given(
    rate_max_per_s=st.integers(1, 5_000),
    pauses_ms=st.lists(st.integers(0, 1_000), min_size=1, max_size=60),
)
def test_the_rate_is_kept_in_the_long_run(rate_max_per_s: int, pauses_ms: list[int]) -> None:
    """No more is taken than burst and rate allow, and of what the burst allows at least most."""
    sampler, clock = intake_of(float(rate_max_per_s))
    taken = n_taken(sampler)
    for pause_ms in pauses_ms:
        clock.now_s += pause_ms / 1000
        give(sampler)
        taken += n_taken(sampler)
    assert taken <= rate_max_per_s * (BURST_S + clock.now_s) + 1
    # Where two draws fell on one row, the tokens of the second are kept for the next batch.
    assert taken >= min(BATCH, rate_max_per_s * BURST_S) * 0.6
    assert taken <= sampler.n_offered


def test_a_burst_is_stored_little_by_little_while_more_comes() -> None:
    """A stream that is too fast leaves the processor to the learning, until it pauses."""
    sampler, clock = intake_of(4_000.0)
    for _ in range(41):
        give(sampler)  # the last batch finds no token
    assert (
        sum(len(item) for item in sampler.made(sampler.take()) if isinstance(item, Offer)) == 1_000
    )
    assert sampler.something.is_set()
    clock.now_s += 1.0
    assert (
        sum(len(item) for item in sampler.made(sampler.take()) if isinstance(item, Offer)) == 19_000
    )
    assert not sampler.something.is_set()


def test_what_waits_is_thinned_where_a_stream_stays_too_fast() -> None:
    """Behind two seconds of a stream that is too fast, no more than a second's worth waits."""
    sampler, clock = intake_of(1_000.0)
    posteriors = np.log(np.linspace([0.1, 0.9], [0.9, 0.1], BATCH))
    for _ in range(11):
        sampler.offer(TOLD, np.arange(BATCH), posteriors)
    for _ in range(5):  # half a second each, in which 500 may be taken
        clock.now_s += 0.5
        sampler.offer(TOLD, np.arange(BATCH), posteriors)
        sampler.offer(TOLD, np.arange(BATCH), posteriors)
    assert n_taken(sampler) == pytest.approx(1_000, abs=20)
    assert sampler.rates()[1] * 2.5 == pytest.approx(1_000, abs=20)
    clock.now_s += 0.5
    sampler.offer(TOLD, np.arange(BATCH), posteriors)
    for _ in range(2):  # the last one finds no token
        sampler.offer(TOLD, np.arange(BATCH), posteriors)
    items = sampler.made(sampler.take())
    assert items
    for item in items:
        check_posteriors(item, posteriors)


def test_what_is_thinned_is_as_much_of_every_second() -> None:
    """The whole batches of before the sample began leave room for the seconds behind them."""
    sampler, clock = intake_of(1_000.0, Clock(10.0))
    for _ in range(11):
        give(sampler)
    for _ in range(6):
        clock.now_s += 0.5
        for _ in range(2):
            give(sampler)
    by_second = Counter[int]()
    while items := sampler.made(sampler.take()):
        for item in items:
            assert isinstance(item, Offer)
            by_second[int(item.columns["arrived_ms"][0]) // 1000] += len(item)
    assert sum(by_second.values()) == pytest.approx(1_000, abs=20)
    assert sorted(by_second) == [10, 11, 12, 13]
    assert min(by_second.values()) > 200


def test_a_sample_is_spread_over_the_batch() -> None:
    """Of a batch of which a tenth is taken, every stretch gives its share, and none gives twice."""
    sampler, clock = intake_of(500.0)
    for _ in range(5):
        give(sampler)
    n_taken(sampler)
    shares = np.zeros(10)
    odd = total = 0
    for _ in range(200):
        clock.now_s += 0.1
        give(sampler)
        for item in sampler.made(sampler.take()):
            assert isinstance(item, Offer)
            rows = np.array(item.columns["offset"])
            assert (np.diff(rows) > 0).all()
            shares += np.bincount(rows * 10 // BATCH, minlength=10)
            odd += int((rows % 2).sum())
            total += len(rows)
    assert total / (200 * BATCH) == pytest.approx(0.1, rel=0.02)
    assert shares / shares.sum() == pytest.approx(0.1, rel=0.05)
    assert odd / total == pytest.approx(0.5, abs=0.05)  # labels in turns make no difference


@pytest.mark.parametrize("sizes", [(350, 150), (20, 480), (5, 1, 2), (90, 4_000)])
def test_a_sample_prefers_no_offer_to_another(sizes: tuple[int, ...]) -> None:
    """Labelled and other rows of a batch come one after the other, partitions in turns.

    Whatever share of the rows an offer brings, it has of what is taken, and so also within every
    ten seconds. What comes at once and what comes a while later makes no difference.
    """
    sampler, clock = intake_of(200.0)
    offers = [tweets(["good day"] * n) for n in sizes]
    posteriors = [np.log(np.full((n, 2), 0.5)) for n in sizes]
    turn_s = sum(sizes) / 2_000.0

    def turns(n: int) -> NDArray[np.int64]:
        taken = np.zeros(len(sizes), dtype=np.int64)
        for _ in range(n):
            clock.now_s += turn_s  # all of it before the first offer
            for i, (told, each) in enumerate(zip(offers, posteriors, strict=True)):
                sampler.offer(told, np.arange(len(told)), each)
                taken[i] += n_taken(sampler)
        return taken

    turns(math.ceil(20 / turn_s))  # until the bucket is empty
    blocks = np.array([turns(math.ceil(10 / turn_s)) for _ in range(30)])
    wanted = np.array(sizes) / sum(sizes)
    assert blocks.sum() == pytest.approx(30 * 10 * 200, rel=0.1)
    # 60,000 rows, in some six hundred samples.
    np.testing.assert_allclose(blocks.sum(axis=0) / blocks.sum(), wanted, atol=0.03)
    assert np.median(blocks[:, 0] / blocks.sum(axis=1)) == pytest.approx(wanted[0], abs=0.05)


def batches_of(sizes: tuple[int, ...]) -> list[Messages]:
    """Return batches, in turns with labels and without."""
    made_ones = [tweets(["good day"] * n, first=10_000 * i) for i, n in enumerate(sizes)]
    return [
        msgspec.structs.replace(one, labels=np.full(len(one), NO_LABEL if i % 2 else 0, np.int32))
        for i, one in enumerate(made_ones)
    ]


def blocks_of(
    told: list[Messages], rate_per_s: float, turn_s: float, block_s: float, *, is_spread: bool
) -> NDArray[np.int64]:
    """Return how many rows of each batch are taken, in blocks, where all come again each turn."""
    sampler, clock = intake_of(rate_per_s)
    taken = []
    for k in range(math.ceil((40 + 20 * block_s) / turn_s)):
        row = []
        for i, batch in enumerate(told):
            clock.now_s += turn_s / len(told) if is_spread else 0.0 if i else turn_s
            sampler.offer(batch, np.arange(len(batch)), np.log(np.full((len(batch), 2), 0.5)))
            row.append(n_taken(sampler))
        if k * turn_s >= 40:  # the bucket is empty, and the stream known
            taken.append((int((k * turn_s - 40) // block_s), *row))
    by_block = np.array(taken)
    sums = [by_block[by_block[:, 0] == b][:, 1:].sum(axis=0) for b in range(20)]
    return np.array(sums)


@pytest.mark.parametrize("every_s", [1.5, 3.0, 10.0])
@pytest.mark.parametrize(
    "sizes", [(2_500, 2_500), (3_500, 1_500), (1_500, 3_500), (6_000,) * 5, (40, 2_000, 300)]
)
def test_of_a_burst_each_offer_gives_its_share(sizes: tuple[int, ...], every_s: float) -> None:
    """What comes first in a burst is not taken before what comes last, by kind or partition."""
    told = batches_of(sizes)
    taken = blocks_of(told, 1_000.0, every_s, 3 * every_s, is_spread=False).sum(axis=0)
    np.testing.assert_allclose(taken / taken.sum(), np.array(sizes) / sum(sizes), atol=0.01)


@pytest.mark.parametrize(
    ("sizes", "turn_s"),
    [((3_000, 3_000), 0.02), ((20_000, 20_000), 0.13), ((1_500, 500), 0.02), ((50, 50), 0.01)],
)
def test_of_a_steady_stream_the_kinds_have_their_shares(
    sizes: tuple[int, int], turn_s: float
) -> None:
    """A minute's sample has labelled messages and others as the stream has, by chance and better.

    Samples lie in few offers, each of one kind: drawn without regard to that, the share would
    swing five times as far as the interval that is told of it.
    """
    blocks = blocks_of(batches_of(sizes), 250.0, turn_s, 20.0, is_spread=True)
    shares, wanted = blocks[:, 0] / blocks.sum(axis=1), sizes[0] / sum(sizes)
    by_chance = math.sqrt(wanted * (1.0 - wanted) / blocks.sum(axis=1).mean())
    assert blocks.sum() == pytest.approx(20 * 20 * 250, rel=0.05)
    assert abs(shares.mean() - wanted) < 0.01
    assert shares.std() < 1.5 * by_chance


@pytest.mark.parametrize("n_labelled", [0, 250])
@pytest.mark.parametrize(
    ("n_partitions", "n", "turn_s"), [(2, 3_000, 0.04), (5, 20_000, 0.65), (40, 500, 0.4)]
)
def test_of_a_steady_stream_partitions_have_their_shares(
    n_partitions: int, n: int, turn_s: float, n_labelled: int
) -> None:
    """Partitions may differ in what they say, and a sample lies in one or two of their batches."""
    rng, (sampler, clock) = np.random.default_rng(5), intake_of(400.0, Clock(0.0))
    labels = np.where(np.arange(n) < n_labelled, 0, NO_LABEL).astype(np.int32)
    one = msgspec.structs.replace(tweets(["good day"] * n), labels=labels)
    posteriors, taken = np.log(np.full((n, 2), 0.5)), np.zeros((12, n_partitions))
    for k in range(int(13 * 60 / turn_s * n_partitions)):
        clock.now_s += turn_s / n_partitions * rng.uniform(0.8, 1.2)
        log = Partition("t", k % n_partitions)
        raw = msgspec.structs.replace(one.raw, partition=log, offsets=one.raw.offsets + k * n)
        batch = msgspec.structs.replace(one, raw=raw)
        for rows in np.split(np.arange(n), [n_labelled]):
            sampler.offer(batch, rows, posteriors[rows])
        for item in sampler.made(sampler.take()):
            assert isinstance(item, Offer)
            if 0 <= (block := int(item.arrived_ms - 40_000) // 60_000) < 12:
                taken[block, item.partition.partition] += len(item)
    wanted = (n_partitions // 2) / n_partitions
    shares = taken[:, : n_partitions // 2].sum(axis=1) / taken.sum(axis=1)
    by_chance = math.sqrt(wanted * (1.0 - wanted) / taken.sum(axis=1).mean())
    assert taken.sum() == pytest.approx(12 * 60 * 400, rel=0.01)
    assert shares.mean() == pytest.approx(wanted, abs=0.003)
    assert shares.std() < 1.5 * by_chance


@pytest.mark.parametrize("late_s", [0.0, 0.02])
@pytest.mark.parametrize("every_s", [0.1, 0.3, 0.5, 0.75, 0.9, 1.0, 2.0])
@pytest.mark.parametrize("sizes", [(3_500, 1_500), (1_500, 3_500), (4_500, 500)])
def test_both_kinds_of_a_batch_have_their_shares_at_any_pace(
    sizes: tuple[int, int], every_s: float, late_s: float
) -> None:
    """Rows that are stored, and what they weigh, say how much of a stream has labels."""
    rng, (sampler, clock) = np.random.default_rng(7), intake_of(400.0)
    n = sum(sizes)
    labels = np.where(np.arange(n) < sizes[0], 0, NO_LABEL).astype(np.int32)
    batch = msgspec.structs.replace(tweets(["good day"] * n), labels=labels)
    posteriors, chunk, kinds = np.log(np.full((n, 2), 0.5)), Chunk(1, 1, 1 << 20), list[bool]()
    for _ in range(int(240 / every_s)):
        clock.now_s += every_s * rng.uniform(0.9, 1.1) - late_s
        for rows in (np.arange(sizes[0]), np.arange(sizes[0], n)):
            sampler.offer(batch, rows, posteriors[rows])
            clock.now_s += late_s / 2
        for item in sampler.made(sampler.take()):
            assert isinstance(item, Offer)
            kinds += [offset < sizes[0] for offset in item.columns["offset"]]
            chunk.n += len(item)
            at_ms = int(clock.now_s * 1000)
            note_offered(chunk, len(item), item.n_left_out, at_ms, item.share)
        note_offered(chunk, 0, sampler.take_left_out()[0], int(clock.now_s * 1000))
    weights, wanted = weights_of(chunk), sizes[0] / n
    assert weights is not None
    behind = slice(4_000, None)  # what came first is stored whole
    assert np.mean(kinds[behind]) == pytest.approx(wanted, abs=0.012)
    of_kind = np.bincount(np.array(kinds[behind], int), weights[: len(kinds)][behind])
    assert of_kind[1] / of_kind.sum() == pytest.approx(wanted, abs=0.012)


@pytest.mark.parametrize("lag", [0, 3, 15])
@pytest.mark.parametrize(("n", "every_s"), [(100, 0.02), (50, 0.017), (20, 0.004)])
def test_no_more_is_paid_than_there_is(
    monkeypatch: pytest.MonkeyPatch, n: int, every_s: float, lag: int
) -> None:
    """Small batches whose rest waits for the predictor leave the tokens that are kept for it."""
    monkeypatch.setattr(ProcessorBudget, "rate_per_s", property(lambda _: 400.0))
    sampler, clock = intake_of(5_000.0)
    half, rows, waiting = n // 2, np.arange(n), deque[Messages]()
    labels = np.where(rows < half, 0, NO_LABEL).astype(np.int32)
    posteriors, one = np.log(np.full((n, 2), 0.5)), tweets(["good day"] * n)
    for k in range(int(12 / every_s)):
        clock.now_s += every_s
        raw = msgspec.structs.replace(one.raw, offsets=one.raw.offsets + k * n)
        waiting.append(msgspec.structs.replace(one, labels=labels, raw=raw))
        sampler.offer(waiting[-1], rows[:half], posteriors[:half])
        if len(waiting) > lag:
            sampler.offer(waiting.popleft(), rows[half:], posteriors[half:])
        assert sampler._tokens >= 0.0
    assert sampler.rates()[1] > 0.9 * 400


def test_what_is_never_offered_keeps_no_tokens() -> None:
    """Deletions stand in a batch beside what is stored, which is slow enough to be kept whole."""
    sampler, clock = intake_of(200.0)
    operations = np.where(np.arange(BATCH) < 450, 0, _DELETE).astype(np.int8)  # 350 taken back
    for k in range(100):
        clock.now_s += 1.0
        batch = msgspec.structs.replace(
            tweets(["good day"] * BATCH, first=k * BATCH), operations=operations, n_added=350
        )
        sampler.offer(batch, np.arange(100), POSTERIORS[:100])
        assert n_taken(sampler) == 100


def test_no_row_of_a_batch_is_taken_before_another() -> None:
    """A sample that reaches over the end of a batch goes on in the next one."""
    sampler, clock = intake_of(3.0)
    taken = np.zeros(10)
    last = 0
    for _ in range(20_000):
        clock.now_s += 0.1
        give(sampler)
        for item in sampler.made(sampler.take()):
            assert isinstance(item, Offer)
            taken += np.bincount(np.array(item.columns["offset"]) * 10 // BATCH, minlength=10)
            last += item.columns["offset"][-1] == BATCH - 1
    assert taken / taken.sum() == pytest.approx(0.1, rel=0.15)
    assert last < 4 * taken.sum() / BATCH


def test_the_rest_of_a_batch_has_the_share_of_its_beginning() -> None:
    """Its labelled messages are offered before the others, which are judged later."""
    sampler, clock = intake_of(200.0)
    taken = np.zeros(2, np.int64)
    rows = np.arange(BATCH)
    labels = np.where(rows < 350, 0, NO_LABEL).astype(np.int32)
    waiting: deque[Messages] = deque()
    for k in range(400):
        clock.now_s += 0.5 + (k % 3)
        batch = msgspec.structs.replace(
            tweets(["good day"] * BATCH, first=k * BATCH), labels=labels
        )
        waiting.append(batch)
        sampler.offer(batch, rows[:350], POSTERIORS[:350])
        taken[0] += n_taken(sampler)
        if len(waiting) > 1:
            sampler.offer(waiting.popleft(), rows[350:], POSTERIORS[350:])
            taken[1] += n_taken(sampler)
    assert taken[0] / taken.sum() == pytest.approx(0.7, abs=0.01)


def test_what_is_taken_keeps_its_posterior() -> None:
    """Each row of a sample has the posterior that it was offered with."""
    sampler, _ = intake_of(20.0)
    posteriors = np.log(np.linspace([0.1, 0.9], [0.9, 0.1], BATCH))
    sampler.offer(TOLD, np.arange(BATCH), posteriors)
    (item,) = sampler.made(sampler.take())
    check_posteriors(item, posteriors)


def test_long_messages_cost_more() -> None:
    """Messages of many kilobytes count as several, so that they do not take all the time."""
    sampler, _ = intake_of(10.0)
    long = tweets([{"text": "good", "more": "x" * 40_000}] * 50)
    give(sampler, long)
    assert 3 <= n_taken(sampler) <= 5


def test_pieces_of_one_poll_count_for_themselves() -> None:
    """The buffer that they share is that of all of them: a short stream is taken whole."""
    sampler, _ = intake_of(4_000.0)
    polled = msgspec.structs.replace(TOLD.raw, buffer=TOLD.raw.buffer + bytes(4 << 20))
    for _ in range(40):
        give(sampler, msgspec.structs.replace(TOLD, raw=polled))
    assert sampler.n_overflowed == 0
    assert n_taken(sampler) == 20_000


def test_a_full_queue_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that wait are bounded by their bytes; what finds no room is counted; no one waits."""
    monkeypatch.setattr("consumers.search.sampler.BYTES_MAX", 3 * BATCH_BYTES)
    sampler, _ = intake_of(1e6)
    for _ in range(5):
        give(sampler)
    assert sampler.n_overflowed == 2 * BATCH
    assert sampler.put(Forget(["m0"], (LOG, [0])))  # deletions are always taken
    assert n_taken(sampler) == 3 * BATCH
    give(sampler)
    assert n_taken(sampler) == BATCH


def test_long_messages_fill_the_queue() -> None:
    """Rows that are made count with all that the model reads of them, not just what is shown."""
    long = tweets(["x" * 50_000] * 4)
    made_ones = RawBatch(long, np.arange(4), POSTERIORS[:4], 0, 1.0).made(
        RowBuilder(CLASSES, ("text",))
    )
    assert 4 * 50_000 < made_ones.n_bytes < 4 * 60_000


def test_shares_are_told() -> None:
    """The state tells which share of what came is held, and how much comes and is taken."""
    with running(None, rate_max_per_s=20.0) as store:
        for k in range(4):
            offer(store, tweets(["good day"] * 250, first=250 * k))
        settle(store)
        state = store.state()
        n = state.n_messages
        assert 90 <= n <= 100
        assert (state.n_offered, state.n_stored) == (1_000, n)
        assert state.share == n / 1_000
        assert (state.offered_per_s, state.stored_per_s) == (1_000.0, n)
        clock_of(store).now_s += 10
        assert store.state().offered_per_s == pytest.approx(100.0)
        clock_of(store).now_s += 60
        assert (store.state().offered_per_s, store.state().stored_per_s) == (0.0, 0.0)
        assert store.state().share == n / 1_000
        assert store.counted(parse("good")).n == n


def test_a_small_store_of_all_messages_has_a_share_of_one() -> None:
    """Its chunks are smaller than a batch, and each takes along what came with its own rows."""
    with running(None, messages_max=1_000) as store:
        for k in range(20):
            tell(store, ["good day"] * 300, first=300 * k)
            assert store.state().share == 1.0
        assert store.state().n_messages <= 1_000


def test_the_share_is_that_of_the_messages_held() -> None:
    """What came with messages that have left the store counts no more, and nothing else leaves."""
    with running(None, messages_max=1_000, rate_max_per_s=400.0) as store:
        for k in range(20):  # the first of them are taken whole
            clock_of(store).now_s += 1
            offer(store, tweets(["good day"] * 1_000, first=1_000 * k))
            settle(store)
            if k >= 8:
                assert store.state().share == pytest.approx(0.4, rel=0.05)


def test_what_is_left_out_counts_once() -> None:
    """A sample keeps what was left out beside its own rows, in pieces and thinned alike."""
    sampler, clock = intake_of(1_000.0)
    found: list[Offer] = []
    n_behind = 0
    for _ in range(30):
        clock.now_s += 0.25
        for _ in range(4):
            give(sampler)
        found += [item for item in sampler.made(sampler.take()) if isinstance(item, Offer)]
        n_behind += sampler.take_left_out()[0]
    while items := sampler.made(sampler.take()):
        found += [item for item in items if isinstance(item, Offer)]
    n_behind += sampler.take_left_out()[0]
    n_taken = sum(map(len, found))
    assert n_taken + sum(item.n_left_out for item in found) + n_behind == sampler.n_offered


def test_nothing_is_taken_before_the_start() -> None:
    """What is offered before the start is not taken, and a batch without rows changes nothing."""
    store = made(None)
    offer(store, tweets(["good"]))
    store.start()
    tell(store, [])
    assert store.state().n_messages == 0
    assert store.state().share == 1.0
    store.stop()
