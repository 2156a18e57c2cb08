"""The Kafka source when things break: brokers that die, damaged batches, a slow learner."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from kafka import KafkaConsumer
from kafka.cluster import ClusterMetadata
from kafka.consumer.fetcher import Fetcher
from kafka.errors import NodeNotReadyError
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.selector import NetworkSelector
from structlog.testing import capture_logs

from consumers.config.addresses import KafkaSettings
from consumers.errors import BrokenClientError
from consumers.kafka import client
from consumers.kafka.client import REPLACED_MAX, ClientFailedError
from consumers.kafka.group_source import ASK_INTERVAL_S
from consumers.kafka.kafka_python import KafkaPythonClient
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import PATIENCE_S, Reader, damage, fill, numbered

pytestmark = [
    pytest.mark.integration,
    # The client leaves the sockets of failed attempts to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
NewTopic = Callable[..., str]
Read = partial[Reader]


@pytest.fixture(autouse=True)
def _forgotten_sockets() -> Iterator[None]:
    yield
    gc.collect()  # within the mark above, and after pytest has let go of what ended a thread


@pytest.fixture(params=["kafka-python", pytest.param("librdkafka", marks=pytest.mark.deep)])
def read(request: pytest.FixtureRequest) -> Read:
    """Return what makes a reader with one of the clients, with both in turn."""
    return partial(Reader, client=request.param)


@pytest.mark.deep
def test_a_killed_broker_costs_nothing(own_broker: Broker, read: Read) -> None:
    """A broker that is away at the start, killed in mid-stream and back costs no message.

    Trouble is said once, and each message comes exactly once.
    """
    own_broker.reserve()
    with read(own_broker.address, "stream", max_poll_messages=100) as reader:
        with capture_logs() as said:
            reader.until(lambda: reader.source.trouble() is not None)
            for _ in range(5):
                reader.step()
        assert [each["event"] for each in said] == ["source_trouble"]
        assert "no answer from Kafka at" in (reader.source.trouble() or "")

        own_broker.start()
        own_broker.create_topic("stream", 2)
        for number in (0, 1):
            fill(own_broker.address, "stream", numbered(0, 1_000), number)
        reader.until(lambda: reader.n_values >= 300)
        own_broker.kill()
        reader.until(lambda: reader.source.trouble() is not None)
        reader.source.report_positions(reader.positions)  # goes wrong quietly

        own_broker.start()
        for number in (0, 1):
            fill(own_broker.address, "stream", numbered(1_000, 1_500), number)
        reader.until(lambda: reader.n_values >= 3_000)
        assert reader.values == {0: numbered(0, 1_500), 1: numbered(0, 1_500)}
        assert reader.offsets == {0: list(range(1_500)), 1: list(range(1_500))}
        reader.until(lambda: reader.source.trouble() is None)
        own_broker.kill()
        reader.until(lambda: reader.source.trouble() is not None)


@pytest.mark.slow
@pytest.mark.deep
def test_a_damaged_batch_neither_hangs_nor_vanishes(own_broker: Broker, read: Read) -> None:
    """A partition with a damaged batch waits before it and says so, while the others go on.

    Once the records up to its end are removed, reading goes on behind it and they count as lost.
    """
    own_broker.start()
    own_broker.create_topic("damaged", 2)
    for start in (0, 10, 20):
        fill(own_broker.address, "damaged", numbered(start, start + 10), 0)
    fill(own_broker.address, "damaged", numbered(0, 10), 1)
    damage(own_broker, "damaged", b"message 15")
    with read(own_broker.address, "damaged") as reader:
        why = "damaged[0]: the batch at offset 10 cannot be read"
        reader.until(lambda: reader.n_values >= 20 and why in (reader.source.trouble() or ""))
        fill(own_broker.address, "damaged", numbered(10, 20), 1)
        reader.until(lambda: len(reader.values[1]) >= 20)
        assert reader.values == {0: numbered(0, 10), 1: numbered(0, 20)}
        assert reader.source.lag() == {reader.place(0): 20, reader.place(1): 0}

        own_broker.delete_records("damaged", 0, 20)
        reader.until(lambda: len(reader.values[0]) >= 20)
        assert reader.values[0] == numbered(0, 10) + numbered(20, 30)
        assert reader.source.lost_messages == 10
        reader.until(lambda: reader.source.trouble() is None)


@pytest.mark.deep
def test_partitions_lost_while_away_come_back_exactly(
    broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    """A learner that was busy for too long loses its partitions, and then goes on where it stood.

    The committed offset, which is older, decides nothing.
    """
    is_librdkafka = read.keywords["client"] == "librdkafka"
    # 6 s is its least: the session time-out.
    monkeypatch.setattr(client, "MAX_POLL_INTERVAL_S", 6.0 if is_librdkafka else 0.5)
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    with read(broker.address, topic, max_poll_messages=40, session_timeout_s=6.0) as reader:
        reader.until(lambda: reader.n_values >= 40)
        reader.source.report_positions({reader.place(): 10})
        reader.until(lambda: reader.n_values >= 80)
        deadline_s = time.monotonic() + PATIENCE_S
        while broker.members(f"group-of-{topic}"):
            assert time.monotonic() < deadline_s, "the busy member never left its group"
        reader.until(lambda: reader.n_values >= 100)
        assert reader.offsets[0] == list(range(100))


PLACES = {
    "a connection's reader": (KafkaConnection, "data_received"),
    "the fetcher": (Fetcher, "_handle_fetch_response"),
    "the loop of all tasks": (NetworkSelector, "_schedule_tasks"),
    "the refresh of metadata": (ClusterMetadata, "update_metadata"),
}
SUBSCRIBING = {"the subscription": (KafkaConsumer, "subscribe")}


class Plant:
    """Makes a method of the client library raise an error that it does not expect, `left` times."""

    def __init__(self, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
        owner, name = (PLACES | SUBSCRIBING)[place]
        method = getattr(owner, name)
        self.left = 0

        def planted(*args: Any, **kwargs: Any) -> Any:
            if self.left > 0:
                self.left -= 1
                raise AttributeError("planted")
            return method(*args, **kwargs)

        monkeypatch.setattr(owner, name, planted)

    @staticmethod
    def is_named(reader: Reader) -> bool:
        """Return whether the source names the error as its trouble."""
        return "AttributeError('planted') (test_faults.py:" in (reader.source.trouble() or "")


@pytest.fixture
def quick() -> Read:
    """Return what makes a reader that notices soon what its client fails of."""
    return partial(Reader, session_timeout_s=6.0, bootstrap_timeout_s=1.0, metadata_interval_s=0.1)


# The loop's thread ends with the error, and its sockets are left to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    "place",
    [
        pytest.param(each, marks=() if each == "the fetcher" else pytest.mark.deep)
        for each in PLACES
    ],
)
def test_an_internal_error_of_the_client_is_named_and_survived(
    place: str, broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, quick: Read
) -> None:
    """A client that fails, and the two after it, are replaced, and each message comes once."""
    plant = Plant(place, monkeypatch)
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    with quick(broker.address, topic) as reader, capture_logs() as said:
        reader.until(reader.source.at_end)
        said.clear()  # of a first connection that took long
        # A client that is slow to join would pass for one that reads, and its failure for another.
        monkeypatch.setattr("consumers.kafka.group_source.ASK_INTERVAL_S", PATIENCE_S)
        plant.left = 3
        reader.until(lambda: plant.is_named(reader))
        fill(broker.address, topic, numbered(100, 200))
        reader.until(lambda: reader.n_values >= 200 and reader.source.trouble() is None)
    assert reader.values[0] == numbered(0, 200)
    assert reader.offsets[0] == list(range(200))
    events = [each["event"] for each in said]
    assert [events.count(each) for each in ("kafka_client_failed", "source_trouble")] == [1, 1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nothing_fails_by_reporting_positions_to_a_client_that_has_failed(
    broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, quick: Read
) -> None:
    """A loop that ended unnoticed is found by the report; the end of the source fails by none."""
    plant = Plant("the loop of all tasks", monkeypatch)
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))

    def end_loop() -> None:
        plant.left = 1
        for each in set(threading.enumerate()) - before:
            if each.name.startswith("kafka-io-"):
                each.join(PATIENCE_S)

    before = set(threading.enumerate())
    with capture_logs() as said, quick(broker.address, topic) as reader:
        reader.until(reader.source.at_end)
        end_loop()
        reader.source.report_positions(reader.positions)
        events = [each["event"] for each in said]
        assert events[-2:] == ["kafka_client_failed", "kafka_commit_failed"]
        reader.until(lambda: plant.is_named(reader))
        reader.until(lambda: reader.source.trouble() is None)
        end_loop()
    assert said[-1]["event"] == "kafka_close_failed"


def test_a_client_that_fails_as_it_subscribes_is_replaced(
    broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch, quick: Read
) -> None:
    """Its loop may end between the first answer and the subscription, which raises its error."""
    plant = Plant("the subscription", monkeypatch)
    plant.left = 2
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    with quick(broker.address, topic) as reader:
        reader.until(lambda: plant.is_named(reader))
        reader.until(lambda: reader.n_values >= 100 and reader.source.trouble() is None)


@pytest.mark.parametrize("has_read", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_a_client_that_can_read_no_answer_says_why(
    has_read: bool,
    broker: Broker,
    new_topic: NewTopic,
    monkeypatch: pytest.MonkeyPatch,
    quick: Read,
) -> None:
    """While no client gets as far as the group, the source is not at its end, and says why."""
    plant = Plant("a connection's reader", monkeypatch)
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    with quick(broker.address, topic) as reader:
        if has_read:
            reader.until(reader.source.at_end)
            reader.step(2 * ASK_INTERVAL_S)  # it asks whether the silent topic is there
        plant.left = 1 << 30
        reader.until(lambda: plant.is_named(reader))
        assert not reader.source.at_end()
        plant.left = 0
        reader.until(lambda: reader.source.at_end() and reader.source.trouble() is None)
    assert reader.offsets[0] == list(range(100))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("place", ["the fetcher", "a connection's reader"])
def test_a_client_that_is_replaced_in_vain_ends_the_source(
    place: str, broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last but one client that may be replaced goes on if it can; the row begins anew then."""
    plant = Plant(place, monkeypatch)
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 100))
    with Reader(broker.address, topic, bootstrap_timeout_s=0.5, retry_pause_max_s=0.1) as reader:
        replaced = reader.source.client
        plant.left = 1 << 30
        reader.until(lambda: replaced.n_replaced == REPLACED_MAX - 1)
        plant.left = 0
        reader.until(lambda: reader.n_values >= 100)
        assert replaced.n_replaced == 0
        plant.left = 1 << 30
        why = rf"topic '{topic}': .*AttributeError\('planted'\) \(test_faults.py:.* Start again"
        with pytest.raises(BrokenClientError, match=why):
            reader.until(lambda: replaced.n_replaced > REPLACED_MAX)
    assert reader.offsets[0] == list(range(100))


def test_outages_end_no_source() -> None:
    """However many clients end by an error of the network, none is replaced in vain."""
    ours = KafkaPythonClient(["127.0.0.1:1"], "topic", KafkaSettings())
    errors: list[Exception] = [AttributeError("planted")] * REPLACED_MAX
    errors += [NodeNotReadyError("away"), ConnectionResetError()] * REPLACED_MAX
    for error in errors:
        net = KafkaNetClient(bootstrap_servers=["127.0.0.1:1"])
        ours._prepare(net)
        ours._fail(net, error)
        assert isinstance(ours._replacing(repr(error)), ClientFailedError)
        net.close()
