"""A real broker's log, decoded into columns and record by record: both yield the same messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Producer

from consumers.messages import Partition
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import (
    DEEP_CODECS,
    PATIENCE_S,
    Reader,
    damage,
    fill,
    numbered,
    until_all,
)

pytestmark = pytest.mark.integration
NewTopic = Callable[..., str]
Row = tuple[int, int, bytes | None, bytes | None]

MODES = ("columns", "records")


def rows(reader: Reader, number: int = 0) -> list[Row]:
    """Return all that a reader got of a partition: offset, time, key, value."""
    return [
        (int(batch.offsets[i]), int(batch.times_ms[i]), batch.key(i), batch.value(i))
        for batch in reader.batches
        if batch.partition.partition == number
        for i in range(len(batch))
    ]


def is_read_whole(reader: Reader) -> bool:
    """Return whether a topic's only partition is read; a rebalance may take it for a moment."""
    return reader.source.at_end() and reader.source.lag() == {reader.place(): 0}


def agreed(
    address: str, topic: str, positions: Mapping[Partition, int] | None = None, **settings: Any
) -> list[Row]:
    """Return what both decoders make of a topic's first partition, up to its end."""
    found = {}
    for mode in MODES:
        group = f"{topic}-{mode}-{positions}"
        with Reader(address, topic, group, positions, decode=mode, **settings) as reader:
            reader.until(partial(is_read_whole, reader))
            assert reader.source.decoder == mode
            assert all(a.next_offset <= b.offsets[0] for a, b in pairwise(reader.batches))
            found[mode] = rows(reader)
    assert found["columns"] == found["records"]
    return found["columns"]


@pytest.mark.parametrize("codec", ["none", "zstd", *DEEP_CODECS])
def test_every_compression(broker: Broker, new_topic: NewTopic, codec: str) -> None:
    """Compressed or not, all messages come, from the start and from the middle of a batch."""
    topic = new_topic()
    values = [b"%d " % i * (i % 97) for i in range(6_000)]
    for start in (0, 2_000, 4_000):
        fill(broker.address, topic, values[start : start + 2_000], compression=codec)
    found = agreed(broker.address, topic, max_poll_messages=700)
    assert [row[3] for row in found] == values
    middle = agreed(broker.address, topic, {Partition(topic, 0): 2_345})
    assert middle == found[2_345:]


def test_batches_of_one_message(broker: Broker, new_topic: NewTopic) -> None:
    """Ten thousand batches of one message, more than one run holds, come whole and in order."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker.address, "batch.num.messages": 1})
    for i in range(10_000):
        producer.produce(topic, b"%d" % i, key=b"k" if i % 2 else None)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    found = agreed(broker.address, topic)
    assert [(row[0], row[3]) for row in found] == [(i, b"%d" % i) for i in range(10_000)]
    assert agreed(broker.address, topic, {Partition(topic, 0): 7_777}) == found[7_777:]


def test_times_headers_and_nulls(broker: Broker, new_topic: NewTopic) -> None:
    """Times by the producer and by the log, headers, null and empty parts are read alike."""
    pairs = [(b"k", b"v"), (None, b"no key"), (b"gone", None), (b"", b""), (None, None)]
    said_ms = [1_700_000_000_000 - 1_000 * i for i in range(len(pairs))]
    for kind in ("CreateTime", "LogAppendTime"):
        topic = new_topic(message_timestamp_type=kind)
        producer = Producer({"bootstrap.servers": broker.address, "compression.type": "lz4"})
        for (key, value), time_ms in zip(pairs, said_ms, strict=True):
            headers: list[tuple[str, str | bytes | None]] = [("name", b"x" * 200), ("null", None)]
            producer.produce(topic, value, key=key, timestamp=time_ms, headers=headers)
        producer.flush(PATIENCE_S)
        found = agreed(broker.address, topic)
        assert [row[2:] for row in found] == pairs
        times_ms = [row[1] for row in found]
        assert (times_ms == said_ms) == (kind == "CreateTime")


@pytest.mark.parametrize("codec", ["none", pytest.param("zstd", marks=pytest.mark.deep)])
def test_transactions(broker: Broker, new_topic: NewTopic, codec: str) -> None:
    """Aborted messages of interleaved transactions stay away, from wherever reading begins."""
    topic = new_topic()
    producers = [
        Producer(
            {
                "bootstrap.servers": broker.address,
                "transactional.id": f"{topic}-{i}",
                "compression.type": codec,
                "batch.num.messages": 7,
            }
        )
        for i in range(2)
    ]
    for each in producers:
        each.init_transactions()
    for turn in range(12):
        for i, each in enumerate(producers):
            each.begin_transaction()
            for n in range(20):
                each.produce(topic, b"%d of %d in turn %d" % (n, i, turn), partition=0)
            each.flush(PATIENCE_S)
        fill(broker.address, topic, [b"beside turn %d" % turn], compression=codec)
        for i, each in enumerate(producers):
            each.abort_transaction() if (turn + i) % 3 == 0 else each.commit_transaction()
    found = agreed(broker.address, topic, max_poll_messages=50)
    assert len(found) == 12 + 16 * 20
    assert not any(b"of 0 in turn 0" in (row[3] or b"") for row in found)
    for start in (1, 30, 100, 333):
        part = agreed(broker.address, topic, {Partition(topic, 0): start})
        assert part == [row for row in found if row[0] >= start]


def test_a_log_of_markers(broker: Broker, new_topic: NewTopic) -> None:
    """A position passes the markers at the end, and what is behind them goes on from there."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions()
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(topic, b"never")
        producer.flush(PATIENCE_S)
        producer.abort_transaction()
    assert agreed(broker.address, topic) == []
    fill(broker.address, topic, [b"after"])
    assert [row[0] for row in agreed(broker.address, topic)] == [6]


@pytest.mark.deep
@pytest.mark.parametrize("mode", MODES)
def test_in_a_group_with_rebalances(broker: Broker, new_topic: NewTopic, mode: str) -> None:
    """A member comes and goes while messages do: each is read exactly once, with no other."""
    topic = new_topic(2)
    shared: dict[Partition, int] = {}
    readers = [
        Reader(broker.address, topic, f"{topic}-pair", decode=mode, max_poll_messages=70)
        for _ in range(2)
    ]
    first, second = readers
    for reader in readers:
        reader.positions = shared  # as the parts of a checkpoint move with their partitions

    def write(start: int, stop: int) -> None:
        for number, codec in ((0, "none"), (1, "lz4")):
            fill(broker.address, topic, numbered(start, stop), number, codec)

    write(0, 1_000)
    first.until(lambda: first.n_values >= 300)
    until_all(readers, lambda: len(second.source.lag()) == 1)
    write(1_000, 2_000)
    until_all(readers, lambda: first.n_values + second.n_values >= 4_000)
    second.source.close()
    first.until(lambda: len(first.source.lag()) == 2)
    write(2_000, 2_100)
    first.until(lambda: first.n_values + second.n_values >= 4_200)
    first.source.close()
    for number in (0, 1):
        read = sorted(rows(first, number) + rows(second, number))
        assert [(row[0], row[3]) for row in read] == [(i, b"message %d" % i) for i in range(2_100)]


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_damaged_batch(own_broker: Broker) -> None:
    """Both hand over what stands before a damaged batch, wait before it, and go on behind it."""
    own_broker.start()
    own_broker.create_topic("damaged", 2)
    for start in range(0, 40, 10):
        fill(own_broker.address, "damaged", numbered(start, start + 10), 0)
    fill(own_broker.address, "damaged", numbered(0, 10), 1)
    damage(own_broker, "damaged", b"message 25")
    readers = {mode: Reader(own_broker.address, "damaged", mode, decode=mode) for mode in MODES}
    for reader in readers.values():
        reader.until(lambda r=reader: r.n_values >= 30 and r.source.trouble() is not None)  # type: ignore[misc]
        said = reader.source.trouble() or ""
        assert "damaged[0]: the batch at offset 20 cannot be read" in said
        assert reader.positions[reader.place(0)] == 20
    fill(own_broker.address, "damaged", numbered(10, 20), 1)
    own_broker.delete_records("damaged", 0, 30)
    for reader in readers.values():
        reader.until(lambda r=reader: r.n_values >= 50)  # type: ignore[misc]
        assert reader.values == {0: numbered(0, 20) + numbered(30, 40), 1: numbered(0, 20)}
        assert reader.source.lost_messages == 10
        assert reader.source.trouble() is None
        reader.source.close()
