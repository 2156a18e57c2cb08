"""Responses decoded into columns: the same as by the client's own class, without a broker."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from consumers.kafka import fetch_columns
from consumers.kafka.client import from_kafka_python
from consumers.kafka.fetch_columns import ColumnRecords
from consumers.kernels import record_batch as rb
from consumers.messages import Partition
from streamnb.kernels import warm_up
from tests.kernels.record_batches import (
    ABORT,
    COMMIT,
    CONTROL,
    TIME_MS,
    Pair,
    Record,
    batch,
    next_offset,
    runs,
    with_checksum,
)

PLACE = TopicPartition("topic", 3)
STOCK = Fetcher.PartitionRecords
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Compile the kernels, as a connection does."""
    warm_up()


class Aborted(NamedTuple):
    """What a response says of an aborted transaction."""

    producer_id: int
    first_offset: int


def opened(cls: Any, data: bytes, fetch_offset: int = 0, aborted: Sequence[Aborted] = ()) -> Any:
    """Return a class's reader of a response, as the client's fetcher makes it."""
    return cls(
        fetch_offset,
        PLACE,
        MemoryRecords(data),
        key_deserializer=None,
        value_deserializer=None,
        check_crcs=True,
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=list(aborted),
        metric_aggregator=None,
        on_drain=lambda _: None,
    )


def drained(records: Any, n: int | None = None) -> tuple[list[Record], Exception | None]:
    """Return all that a reader hands over, `n` at a time, and what it raised."""
    seen: list[Record] = []
    while records:
        try:
            taken = records.take(n)
        except KafkaError as error:
            return seen, error
        if len(taken) == 0:
            break
        assert n is None or len(taken) <= n
        columns = from_kafka_python(Partition(*PLACE), list(taken))
        assert len(columns) == len(taken)
        seen += [
            Record(int(offset), int(time_ms), columns.key(i), columns.value(i))
            for i, (offset, time_ms) in enumerate(
                zip(columns.offsets, columns.times_ms, strict=True)
            )
        ]
        if isinstance(records, ColumnRecords):
            assert columns.next_offset == records.next_fetch_offset
    return seen, None


def agree(
    data: bytes, fetch_offset: int = 0, n: int | None = None, aborted: Sequence[Aborted] = ()
) -> list[Record]:
    """Return the records of a response on which both classes agree."""
    stock = opened(STOCK, data, fetch_offset, aborted)
    ours = opened(ColumnRecords, data, fetch_offset, aborted)
    expected, found = drained(stock, n), drained(ours, n)
    assert found[0] == expected[0]
    assert type(found[1]) is type(expected[1])
    assert ours.next_fetch_offset == stock.next_fetch_offset
    assert ours.leader_epoch == stock.leader_epoch
    assert bool(ours) == bool(stock)
    return found[0]


@given(runs(list(CODECS.values())), st.integers(0, 1), st.sampled_from([None, 1, 2, 3, 7]))
def test_any_response(batches: list[bytes], skipped: int, n: int | None) -> None:
    """Batches of every compression, in any order and from a middle offset, come out alike."""
    end = next_offset(batches[-1]) if batches else 1
    agree(b"".join(batches), min(skipped, end - 1), n)  # an answer reaches what was asked for


@given(runs(list(CODECS.values())), st.data())
def test_damaged_or_cut(batches: list[bytes], data: st.DataObject) -> None:
    """With a bit flipped or the end cut off, both agree, or ours says that it is malformed.

    Ours is stricter where a header contradicts the one before it, or a format is unknown.
    """
    whole = bytearray(b"".join(batches))
    if whole and data.draw(st.booleans()):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    found, error = drained(opened(ColumnRecords, cut), 3)
    try:
        expected, stock_error = drained(opened(STOCK, cut), 3)
    except (struct.error, AssertionError):  # the client stumbles over its own header
        assert error is not None
        return
    assert found == expected[: len(found)]
    if error is None:
        assert (len(found), stock_error) == (len(expected), None)


@st.composite
def transactions(draw: st.DrawFn) -> tuple[bytes, list[Aborted]]:
    """Draw interleaved transactions of two producers, their markers, and who aborted."""
    at, parts, aborted = 0, [], []
    begun: dict[int, int] = {}
    for producer in draw(st.lists(st.sampled_from([-1, 5, 6]), max_size=12)):
        ends = producer in begun and draw(st.booleans())
        aborts = ends and draw(st.booleans())
        if ends:
            first = begun.pop(producer)
            aborted += [Aborted(producer, first)] if aborts else []
            pairs: Sequence[Pair] = ABORT if aborts else COMMIT
        else:
            if producer >= 0:
                begun.setdefault(producer, at)
            pairs = [(b"%d" % producer, b"at %d" % at)] * draw(st.integers(1, 3))
        made = batch(at, pairs, producer=producer, flags=CONTROL if ends else 0)
        parts.append(made)
        at = next_offset(made)
    return b"".join(parts), aborted


@given(transactions(), st.sampled_from([None, 1, 4]))
def test_transactions(drawn: tuple[bytes, list[Aborted]], n: int | None) -> None:
    """What was aborted is left out, committed and plain messages are not, and markers never come.

    Only where a marker follows the last message handed over does ours stand behind it at once.
    """
    data, aborted = drawn
    ours, stock = opened(ColumnRecords, data, 0, aborted), opened(STOCK, data, 0, aborted)
    assert drained(ours, n) == drained(stock, n)
    assert ours.next_fetch_offset == stock.next_fetch_offset


def test_more_batches_than_fit_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many runs in one response, compressed ones among them, join to what was asked for."""
    monkeypatch.setattr(fetch_columns, "_RUN_BATCHES", 3)
    monkeypatch.setattr(fetch_columns, "_RUN_PACKED_BYTES", 300)
    monkeypatch.setattr(fetch_columns, "_RUN_UNPACKED_BYTES", 200)
    parts, at = [], 0
    for i in range(60):
        pairs = [(b"k" if i % 3 else None, b"%d " % (i + j) * 30) for j in range(1 + i % 4)]
        parts.append(batch(at, pairs, codec=(i // 7) % 5, epoch=i // 20))
        at = next_offset(parts[-1])
    for n in (None, 1, 10):
        assert len(agree(b"".join(parts), 2, n)) == at - 2


def test_aborted_messages_stay_away_where_a_run_is_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run that ends early, as unpacking made too much of it, judges no transaction too soon."""
    monkeypatch.setattr(fetch_columns, "_RUN_UNPACKED_BYTES", 1)
    pairs = [(None, b"x" * 100)] * 3
    data = b"".join(
        (
            batch(0, pairs, codec=1),
            batch(3, pairs, codec=1, producer=5),
            batch(6, pairs, codec=1, producer=6),
            batch(9, ABORT, flags=CONTROL, producer=5),
            batch(10, pairs, codec=1, producer=5),
        )
    )
    records = agree(data, 0, None, [Aborted(5, 3)])
    assert [each.offset for each in records] == [0, 1, 2, 6, 7, 8, 10, 11, 12]


def test_old_formats_are_read_by_the_client() -> None:
    """Message sets of formats 0 and 1, even between new batches, come as the client reads them."""

    def old(magic: int, first: int) -> bytes:
        builder = LegacyRecordBatchBuilder(magic, 0, 1 << 20)
        for i in range(3):
            builder.append(first + i, TIME_MS if magic else None, b"key", b"%d" % i)
        return bytes(builder.build())

    data = batch(0, [(None, b"new")] * 2) + old(1, 2) + batch(5, [(None, b"newer")])
    for n in (None, 2):
        assert [each.offset for each in agree(data, 1, n)] == [1, 2, 3, 4, 5]
    assert [each.value for each in agree(old(0, 7), 8)] == [b"1", b"2"]


def test_all_before_a_bad_batch_is_handed_over() -> None:
    """Damage to the third batch is an error that names it, after two whole batches."""
    good = batch(0, [(None, b"a")] * 2) + batch(2, [(None, b"b")])
    bad = bytearray(batch(3, [(None, b"c"), (None, b"d")]))
    bad[-2] ^= 4
    records, error = drained(opened(ColumnRecords, good + bytes(bad)))
    assert [each.offset for each in records] == [0, 1, 2]
    assert "topic[3]: the batch at offset 3 cannot be read: its checksum is wrong" in str(error)


@pytest.mark.parametrize("n_good", [0, 1])
def test_a_bad_batch_stays_an_error_until_it_is_dropped(n_good: int) -> None:
    """Asking again raises again, so no poll waits for what never comes; dropping it ends that."""
    good = [batch(i, [(None, b"a")]) for i in range(n_good)]
    for bad in (
        batch(n_good, [(None, b"b")])[:-1] + b"\x55",
        with_checksum(batch(n_good, [(None, b"b")])[:-1] + b"\x55"),
        batch(n_good, [(None, b"no marker")], flags=CONTROL, producer=5),
        with_checksum(batch(n_good, [(None, b"b" * 99)], codec=1)[:-1] + b"\x55"),
    ):
        records = opened(ColumnRecords, b"".join(good) + bad, 0, [Aborted(5, 0)])
        assert len(drained(records)[0]) == n_good
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match=f"the batch at offset {n_good}"):
                records.take(5)
        assert records.next_fetch_offset == n_good
        records.drain()
        assert not records
        assert len(records.take(5)) == 0


@pytest.mark.parametrize("codec_name", CODECS)
def test_malformed_under_a_right_checksum(codec_name: str) -> None:
    """Nonsense with a right checksum hands over nothing of its batch, and names it."""
    good = batch(0, [(None, b"a" * 200)], codec=CODECS[codec_name])
    bad = bytearray(batch(1, [(None, b"b" * 200)] * 3, codec=CODECS[codec_name]))
    bad[-1] ^= 0xFF
    bad[-4:] = bad[-4:][::-1]
    data = good + with_checksum(bytes(bad))[:-1] + b"\x55"
    bad_at = len(good)
    data = data[:bad_at] + with_checksum(data[bad_at:])
    records, error = drained(opened(ColumnRecords, data))
    assert [each.offset for each in records] == [0]
    assert isinstance(error, CorruptRecordError)
    assert "topic[3]: the batch at offset 1 cannot be read" in str(error)


def test_a_control_batch_that_compaction_emptied() -> None:
    """A marker's batch without its marker says nothing, and ends nothing."""
    empty = bytearray(batch(1, ABORT, flags=CONTROL, producer=5)[: rb.HEADER_BYTES])
    empty[8:12] = (rb.HEADER_BYTES - 12).to_bytes(4, "big")
    empty[57:61] = bytes(4)
    data = batch(0, [(None, b"a")]) + with_checksum(bytes(empty)) + batch(2, [(None, b"b")])
    records, error = drained(opened(ColumnRecords, data, 0, [Aborted(5, 0)]))
    assert ([each.offset for each in records], error) == ([0, 2], None)


def test_a_marker_that_is_none() -> None:
    """A control batch without a marker's key is an error, and names itself."""
    data = batch(0, [(None, b"a")]) + batch(1, [(None, b"?")], flags=CONTROL, producer=5)
    records, error = drained(opened(ColumnRecords, data, 0, [Aborted(5, 0)]))
    assert [each.offset for each in records] == [0]
    assert "the batch at offset 1 cannot be read: no control record" in str(error)


def test_an_answer_that_ends_before_the_question() -> None:
    """Where all batches lie before what was asked for, that is told: asking again would not end."""
    records, error = drained(opened(ColumnRecords, batch(0, [(None, b"a")] * 3), 7))
    assert records == []
    assert "the broker's answer to offset 7 ends before it" in str(error)
