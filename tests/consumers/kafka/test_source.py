"""The Kafka source against a real broker: order, positions, groups, odd messages and the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NoReturn

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.transport import KafkaTCPTransport

from consumers.config.addresses import KafkaSettings
from consumers.errors import ReplacedError, SourceError
from consumers.kafka import kafka_python, librdkafka
from consumers.kafka.client import ClientError
from consumers.kafka.group_source import GroupSource
from consumers.kafka.kafka_python import KafkaPythonClient
from consumers.kafka.patch import LargePieces
from consumers.messages import Partition
from consumers.sources.base import LogFacts
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import (
    CLIENTS,
    DEEP_CODECS,
    PATIENCE_S,
    Reader,
    fill,
    numbered,
    until_all,
)

pytestmark = pytest.mark.integration
NewTopic = Callable[..., str]
Read = Callable[..., Reader]


@pytest.fixture(params=["kafka-python", pytest.param("librdkafka", marks=pytest.mark.deep)])
def read(request: pytest.FixtureRequest) -> Read:
    """Return what makes a reader with one of the clients, with both in turn."""
    return partial(Reader, client=request.param)


def test_every_partition_comes_whole_and_in_order(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """Two partitions come complete and in order, in batches of at most the size that was set."""
    topic = new_topic(2)
    fill(broker.address, topic, numbered(0, 3_000), 0)
    fill(broker.address, topic, numbered(5_000, 7_000), 1)
    with read(broker.address, topic, max_poll_messages=700) as reader:
        reader.until(lambda: reader.n_values >= 5_000)
        assert reader.values == {0: numbered(0, 3_000), 1: numbered(5_000, 7_000)}
        assert reader.offsets == {0: list(range(3_000)), 1: list(range(2_000))}
        assert max(map(len, reader.batches)) <= 700
        assert reader.source.lag() == {reader.place(0): 0, reader.place(1): 0}
        assert reader.source.trouble() is None


def test_a_producer_beside_the_source_keeps_its_own_connections(
    broker: Broker, new_topic: NewTopic
) -> None:
    """The source's connections read in large pieces; those of a producer are as the client's."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 10))
    with Reader(broker.address, topic, client="kafka-python") as reader:
        reader.until(lambda: reader.n_values >= 10)
        producer = KafkaProducer(bootstrap_servers=[broker.address])
        try:
            producer.send(topic, b"one more").get(30)
            reader.until(lambda: reader.n_values >= 11)
            theirs = transports(producer)
        finally:
            producer.close()
        assert isinstance(reader.source.client, KafkaPythonClient)
        ours = transports(reader.source.client._consumer)
        assert theirs
        assert ours
        assert {type(each) for each in theirs} == {KafkaTCPTransport}
        assert {type(each) for each in ours} == {LargePieces}


def transports(client: Any) -> list[Any]:
    """Return the open connections of a client of kafka-python's."""
    manager = (client if hasattr(client, "_manager") else client._sender._client)._manager
    return [each.transport for each in list(manager._conns.values()) if each.transport is not None]


def test_columns_hold_keys_values_times_and_nulls(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """Null keys, tombstones and empty values are told apart, and times are the messages' own."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker.address})
    pairs = [(b"k", b"v"), (None, b"no key"), (b"gone", None), (b"", b""), (None, None)]
    for i, (key, value) in enumerate(pairs):
        producer.produce(topic, value, key=key, timestamp=1_700_000_000_000 + i)
    producer.flush()
    with read(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= len(pairs))
        found = [(b.key(i), b.value(i)) for b in reader.batches for i in range(len(b))]
        assert found == pairs
        times_ms = [time_ms for batch in reader.batches for time_ms in batch.times_ms.tolist()]
        assert times_ms == [1_700_000_000_000 + i for i in range(len(pairs))]
        assert reader.positions == {Partition(topic, 0): len(pairs)}


def test_a_partition_is_read_again_from_elsewhere(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """From where the position is by then; the others go on."""
    topic = new_topic(2)
    fill(broker.address, topic, numbered(0, 30), 0)
    fill(broker.address, topic, numbered(50, 70), 1)
    with read(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 50)
        assert reader.source.n_partitions == 2
        reader.positions[reader.place(0)] = 12
        reader.source.rewind(reader.place(0))
        reader.until(lambda: reader.n_values >= 68)
        assert reader.offsets == {0: [*range(30), *range(12, 30)], 1: list(range(20))}


def test_a_broker_that_is_away_forgets_no_new_position(
    broker: Broker, new_topic: NewTopic, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition that is to be read from elsewhere is, once somebody answers again."""

    def away(*_: object) -> NoReturn:
        raise ClientError("planted")

    topic = new_topic()
    fill(broker.address, topic, numbered(0, 30), 0)
    with read(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values == 30)
        reader.positions[reader.place(0)] = 12
        reader.source.rewind(reader.place(0))
        with monkeypatch.context() as patch:
            for call in ("topic", "poll"):
                patch.setattr(reader.source.client, call, away)
            assert reader.source.poll(0.0) == []
        fill(broker.address, topic, numbered(30, 31), 0)
        reader.until(lambda: 30 in reader.offsets[0])
        assert reader.offsets == {0: [*range(30), *range(12, 31)]}


def test_times_may_jump_by_years(broker: Broker, new_topic: NewTopic, read: Read) -> None:
    """A producer's clock that was set back or ahead changes neither the order nor what comes."""
    topic = new_topic(message_timestamp_after_max_ms=str(2**62))
    times_ms = [1_700_000_000_000, 1, 4_102_444_800_000, 2, 1_700_000_000_001]
    producer = Producer({"bootstrap.servers": broker.address})
    for turn in (0, 1):  # in one batch, and in another behind it
        for time_ms in times_ms:
            producer.produce(topic, b"%d" % turn, timestamp=time_ms)
        producer.flush()
    with read(broker.address, topic, positions={Partition(topic, 0): 1}) as reader:
        reader.until(lambda: reader.n_values >= 9)
        assert reader.offsets[0] == list(range(1, 10))
        found = [int(time_ms) for batch in reader.batches for time_ms in batch.times_ms]
        assert found == [*times_ms, *times_ms][1:]
        assert reader.source.lag() == {reader.place(): 0}


def test_large_messages_come_through(broker: Broker, new_topic: NewTopic, read: Read) -> None:
    """A message of ten megabytes arrives, and those around it."""
    topic = new_topic(max_message_bytes=str(16 << 20))
    values = [b"before", b"x" * 10_000_000, b"after"]
    fill(broker.address, topic, values)
    with read(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 3)
        assert reader.values[0] == values


def test_the_largest_sizes_that_are_allowed_are_asked_for(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """Sizes are numbers of 32 bits with a sign in the protocol; a larger one cannot be sent."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 10))
    sizes = {"fetch_max_bytes": (1 << 31) - 1, "message_max_bytes": 1_000_000_000}
    with read(broker.address, topic, **sizes, max_poll_messages=1_000_000) as reader:
        reader.until(lambda: reader.n_values >= 10)
        assert reader.values == {0: numbered(0, 10)}


def test_reading_goes_on_where_it_stopped(broker: Broker, new_topic: NewTopic, read: Read) -> None:
    """A second source that is given the first one's positions gets exactly the rest."""
    topic = new_topic(2)
    for number in (0, 1):
        fill(broker.address, topic, numbered(0, 1_000), number)
    with read(broker.address, topic, max_poll_messages=300) as first:
        first.until(lambda: first.n_values >= 900)
    with read(broker.address, topic, positions=first.positions) as second:
        second.until(lambda: first.n_values + second.n_values >= 2_000)
        for number in (0, 1):
            assert first.values[number] + second.values[number] == numbered(0, 1_000)


def test_our_positions_win_over_committed_ones(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """What was committed is visible to lag tools, and does not decide where reading goes on."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    with read(broker.address, topic) as first:
        first.until(lambda: first.n_values >= 100)
        first.source.report_positions({first.place(): 90})
        first.until(lambda: broker.committed(f"group-of-{topic}") == {(topic, 0): 90})
    with read(broker.address, topic, positions={Partition(topic, 0): 40}) as second:
        second.until(lambda: second.n_values >= 60)
        assert second.offsets[0] == list(range(40, 100))
    with read(broker.address, topic) as third:
        third.until(lambda: third.n_values >= 100)
        assert third.offsets[0] == list(range(100))


def test_a_commit_just_before_closing_arrives(
    broker: Broker, new_topic: NewTopic, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint's positions are committed even when closing follows at once."""
    for client in (kafka_python, librdkafka):  # a busy machine's second is short
        monkeypatch.setattr(client, "CLOSE_TIMEOUT_S", PATIENCE_S)
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 10))
    with read(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 10)
        reader.source.report_positions({reader.place(): 7})
    assert broker.committed(f"group-of-{topic}") == {(topic, 0): 7}


def test_latest_begins_at_the_end(broker: Broker, new_topic: NewTopic, read: Read) -> None:
    """With `start_from: latest` only what comes after the start is read."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 50))
    with read(broker.address, topic, start_from="latest") as reader:
        reader.until(reader.source.at_end)
        fill(broker.address, topic, numbered(50, 60))
        reader.until(lambda: reader.n_values >= 10)
        assert reader.values[0] == numbered(50, 60)


def test_members_share_and_take_over_exactly(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """A second member takes a partition and gives it back: each message is read exactly once."""
    topic = new_topic(2)
    shared: dict[Partition, int] = {}
    readers: list[Reader] = []

    def join() -> Reader:
        reader = read(broker.address, topic, "pair", max_poll_messages=100)
        reader.positions = shared  # as the parts of a checkpoint move with their partitions
        readers.append(reader)
        return reader

    def total() -> int:
        return sum(each.n_values for each in readers)

    def write(start: int, stop: int) -> None:
        for number in (0, 1):
            fill(broker.address, topic, numbered(start, stop), number)

    write(0, 500)
    first = join()
    first.until(lambda: first.n_values >= 300)
    second = join()  # not before: a member that nobody polls holds the whole group up
    until_all(readers, lambda: [len(r.source.lag()) for r in readers] == [1, 1])
    until_all(readers, lambda: total() == 1_000)
    write(500, 1_000)
    until_all(readers, lambda: total() == 2_000)
    assert second.n_values >= 500
    second.source.close()
    first.until(lambda: len(first.source.lag()) == 2)
    write(1_000, 1_200)
    first.until(lambda: total() >= 2_400)
    first.source.close()
    for number in (0, 1):
        offsets = first.offsets[number] + second.offsets[number]
        assert sorted(offsets) == list(range(1_200))


MEMBER = """
import sys
from confluent_kafka import Consumer
address, topic, group = sys.argv[1:]
of_the_group = {"group.id": group, "session.timeout.ms": 6000, "max.poll.interval.ms": 6000}
member = Consumer({"bootstrap.servers": address} | of_the_group)
member.subscribe([topic], on_assign=lambda _, assigned: print(len(assigned), flush=True))
while True:
    member.poll(0.1)
"""


@pytest.mark.deep
def test_what_a_killed_member_held_is_read_before_the_end(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """A group shares with a dead member until its session times out: that is not the end."""
    topic, group = new_topic(2), "one-is-killed"
    for number in (0, 1):
        fill(broker.address, topic, numbered(0, 10), number)
    command = [sys.executable, "-c", MEMBER, broker.address, topic, group]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
        assert member.stdout is not None
        assert member.stdout.readline() == "2\n"  # alone at first
        with read(broker.address, topic, group, session_timeout_s=6) as reader:
            reader.until(lambda: len(reader.source.lag()) == 1)
            member.kill()
            reader.until(reader.source.at_end)
            assert reader.values == {0: numbered(0, 10), 1: numbered(0, 10)}


def test_until_end_stops_where_the_log_ended(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """The end is the one of the start: what is written later does not move it."""
    topic = new_topic(2)
    fill(broker.address, topic, numbered(0, 300), 0)
    with read(broker.address, topic, max_poll_messages=100) as reader:
        assert not reader.source.at_end()
        reader.until(lambda: reader.n_values >= 100)
        fill(broker.address, topic, numbered(0, 10), 1)
        assert not reader.source.at_end()
        reader.until(reader.source.at_end)
        assert reader.n_values >= 300


def test_transaction_markers_do_not_hide_the_end(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """Committed transactions are read, aborted ones are not, and markers at the tail are passed."""
    topic = new_topic()
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions()
    for kept in (True, False):
        producer.begin_transaction()
        for i in range(5):
            producer.produce(topic, b"%s %d" % (b"kept" if kept else b"dropped", i))
        producer.commit_transaction() if kept else producer.abort_transaction()
    with read(broker.address, topic) as reader:
        reader.until(reader.source.at_end)
        assert reader.values[0] == [b"kept %d" % i for i in range(5)]
        assert reader.source.lag() == {reader.place(): 0}


def test_removed_messages_are_counted_as_lost(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """A position before the log's start goes on at the start, and the gap is counted."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    broker.delete_records(topic, 0, 70)
    with read(broker.address, topic, positions={Partition(topic, 0): 20}) as reader:
        reader.until(lambda: reader.n_values >= 30)
        assert reader.offsets[0] == list(range(70, 100))
        assert reader.source.lost_messages == 50
    with read(broker.address, topic) as fresh:
        fresh.until(lambda: fresh.n_values >= 30)
        assert fresh.source.lost_messages == 0


def test_the_loss_of_a_quiet_partition_is_told_once(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """A batch without messages moves the position to the log's start: the next start knows it."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    broker.delete_records(topic, 0, 100)
    place = Partition(topic, 0)
    with read(broker.address, topic, positions={place: 20}) as reader:
        reader.until(reader.source.at_end)
        assert (reader.source.lost_messages, reader.n_values) == (80, 0)
        assert reader.positions == {place: 100}
    with read(broker.address, topic, positions=reader.positions) as later:
        later.until(later.source.at_end)
        assert later.source.lost_messages == 0
        fill(broker.address, topic, numbered(100, 105))
        later.until(lambda: later.n_values >= 5)
        assert later.offsets[0] == list(range(100, 105))


def test_what_others_read_before_it_was_removed_is_not_lost(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """In a group a log's old position is none: it counts from where its partition is taken over."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    broker.delete_records(topic, 0, 70)
    place = Partition(topic, 0)
    with read(broker.address, topic, positions={place: 20}, is_shared=True) as reader:
        reader.until(lambda: reader.n_values >= 30)
        assert reader.source.lost_messages == 0
        reader.positions[place] = 60  # as far as the last owner got
        reader.source.rewind(place)
        reader.until(lambda: reader.n_values >= 60)
        assert reader.offsets[0] == [*range(70, 100), *range(70, 100)]
        assert reader.source.lost_messages == 10


def test_messages_removed_under_our_eyes_are_counted(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """Where retention overtakes a source that reads, it goes on from the log's new start."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 400_000))
    with read(broker.address, topic, fetch_max_bytes=1024, message_max_bytes=1024) as reader:
        reader.until(lambda: reader.n_values >= 1)
        broker.delete_records(topic, 0, 399_000)
        reader.until(lambda: reader.positions[reader.place()] == 400_000)
        assert reader.n_values + reader.source.lost_messages == 400_000
        assert reader.source.lost_messages > 0


def test_a_partition_added_while_reading_is_read_from_its_start(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """With `latest` too, and soon: what it holds was written after reading began."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 50))
    with read(broker.address, topic, start_from="latest", metadata_interval_s=0.5) as reader:
        reader.until(reader.source.at_end)
        broker.add_partitions(topic, 2)
        fill(broker.address, topic, numbered(0, 500), 1)
        reader.until(lambda: reader.n_values >= 500)
        assert reader.values == {1: numbered(0, 500)}
    begun = reader.source.beginnings
    assert [begun[reader.place(n)].begin for n in (0, 1)] == [50, 0]


def test_a_member_without_partitions_hears_how_many_there_are(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """Whoever leads the group hears of new ones first, and what the others get says nothing."""
    topic = new_topic()
    with ExitStack() as stack:
        readers = [
            stack.enter_context(read(broker.address, topic, metadata_interval_s=0.5))
            for _ in range(3)
        ]
        sources = [each.source for each in readers]
        until_all(readers, lambda: [each.n_partitions for each in sources] == [1, 1, 1])
        broker.add_partitions(topic, 2)
        until_all(readers, lambda: [each.n_partitions for each in sources] == [2, 2, 2])
        until_all(readers, lambda: sorted(len(each.assignment()) for each in sources) == [0, 1, 1])
        until_all(readers, lambda: sorted(each.n_elsewhere for each in sources) == [1, 1, 2])
        begun = {readers[0].place(): LogFacts()}  # as a checkpoint knows it
        readers.append(stack.enter_context(read(broker.address, topic, logs=begun)))
        sources.append(readers[-1].source)
        until_all(readers, lambda: sorted(each.n_elsewhere for each in sources) == [1, 1, 2, 2])


def test_a_topic_made_anew_while_reading_ends_the_run(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """The new topic is longer than what was read of the old one, and nothing hides that."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    with read(broker.address, topic, metadata_interval_s=0.2) as reader:
        reader.until(lambda: reader.n_values >= 100)
        old = reader.source.beginnings[reader.place()].topic_id
        broker.delete_topic(topic)
        broker.create_topic(topic)
        fill(broker.address, topic, numbered(0, 300))
        with pytest.raises(ReplacedError, match=rf"created again.* is of .* the id {old}"):
            reader.until(lambda: False)


def test_a_topic_made_anew_is_refused_at_the_start(
    broker: Broker, new_topic: NewTopic, read: Read
) -> None:
    """The id in the checkpoint decides, and both clients write it alike."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    found = []
    for client in CLIENTS:
        with Reader(broker.address, topic, client=client) as first:
            first.until(lambda: first.n_values >= 100)
        found.append(first.source.beginnings)
    assert found[0] == found[1]
    broker.delete_topic(topic)
    broker.create_topic(topic)
    fill(broker.address, topic, numbered(0, 300))
    with (
        read(broker.address, topic, positions=first.positions, logs=found[0]) as reader,
        pytest.raises(ReplacedError, match="deleted and created again"),
    ):
        reader.until(lambda: reader.n_values > 0)


def test_a_topic_made_anew_is_refused(broker: Broker, new_topic: NewTopic, read: Read) -> None:
    """A position behind the log's end belongs to another log, and the error says what to do."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 10))
    with (
        read(broker.address, topic, positions={Partition(topic, 0): 1_000}) as reader,
        pytest.raises(SourceError, match=rf"{topic}\[0\].* is 1000, but the log ends at 10.*again"),
    ):
        reader.until(lambda: False)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_topic_may_come_later(broker: Broker, client: str) -> None:
    """A topic that is not there yet is a trouble, not an end; once made, it is read."""
    topic = f"comes-later-to-{client}"
    with Reader(broker.address, topic, client=client) as reader:
        reader.until(lambda: f"no topic '{topic}'" in (reader.source.trouble() or ""))
        assert not reader.source.at_end()
        broker.create_topic(topic)
        fill(broker.address, topic, numbered(0, 10))
        reader.until(lambda: reader.n_values >= 10)
        assert reader.source.trouble() is None


@pytest.mark.parametrize("codec", ["zstd", *DEEP_CODECS])
def test_compressed_topics_are_read(
    broker: Broker, new_topic: NewTopic, codec: str, read: Read
) -> None:
    """Batches of every compression come as they were, with both clients."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 500), compression=codec)
    with read(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 500)
        assert reader.values[0] == numbered(0, 500)


def test_a_missing_codec_is_named(
    broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the package for a compression is missing, the error names the extra to install."""
    monkeypatch.setattr("kafka.codec.lz4", None)
    monkeypatch.setattr("kafka.codec.lz4f", None)
    monkeypatch.setattr("kafka.codec.lz4framed", None)
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 50), compression="lz4")
    with (
        Reader(broker.address, topic) as reader,
        pytest.raises(SourceError, match=r"lz4.*streamnb\[codecs\]"),
    ):
        reader.until(lambda: False)


@pytest.mark.parametrize("client", CLIENTS)
def test_nothing_blocks_before_opening(client: str) -> None:
    """Making a source and closing it talks to nobody."""
    settings = KafkaSettings()
    source = GroupSource(CLIENTS[client](["127.0.0.1:1"], "nowhere", settings), settings)
    assert source.lag() == {}
    assert not source.at_end()
    source.report_positions({Partition("nowhere", 0): 1})
    source.close()
