"""Transactions against a real broker: each record once, whatever happened to the one before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from consumers.config.addresses import KafkaSettings
from consumers.errors import SinkError, TransactionError
from consumers.kafka import client
from consumers.kafka import transactions as module
from consumers.kafka.transactions import KafkaTransactions, TransactionalSink
from consumers.messages import Partition, Reason, Reject
from consumers.sinks.records import PatientSink, Record, is_output, reject_record
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import PATIENCE_S, Reader, until_told

pytestmark = [
    pytest.mark.integration,
    # The client leaves the sockets of failed attempts to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
NewTopic = Callable[..., str]


class Daemon:
    """What a daemon does with its transactions: add a batch's records, and say that it is done."""

    def __init__(self, address: str, source: str, output: str, **settings: object) -> None:
        values = {"group_id": f"of-{source}", "transaction_interval_s": 60.0, **settings}
        self.place = Partition(source, 0)
        self.outcomes: list[str] = []
        self.transactions = KafkaTransactions(
            [address], source, KafkaSettings.model_validate(values), self.outcomes.append
        )
        self.sink = self.transactions.sink(output)
        self.transactions.start()

    def take(self, start: int, stop: int) -> None:
        """Add the records of messages, all of them."""
        self.sink.add([record(i, self.place) for i in range(start, stop)])
        self.transactions.done(self.place, stop)

    def commit(self) -> None:
        """Commit what was taken."""
        self.sink.flush(PATIENCE_S)

    def rest(self) -> None:
        """Wait until it is ready for the next transaction: from here on, who comes later wins."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self.transactions._producer is None:
            assert time.monotonic() < deadline_s, self.transactions.trouble()
            threading.Event().wait(0.01)

    def kill(self) -> None:
        """End without a word, as far as the broker hears."""
        self.transactions.close()


@pytest.fixture
def start() -> Iterator[Callable[..., Daemon]]:
    """Return a function that starts daemons, which end with the test."""
    daemons: list[Daemon] = []

    def make(*arguments: str, **settings: Any) -> Daemon:
        daemons.append(Daemon(*arguments, **settings))
        return daemons[-1]

    yield make
    for each in daemons:
        each.kill()


def record(i: int, place: Partition) -> Record:
    """Return the record of one message."""
    return Record(b"id-%d" % i, b'{"n":%d}' % i, None, (place, i))


def keys(address: str, topic: str) -> list[bytes | None]:
    """Return the keys of a topic's committed records."""
    with Reader(address, topic) as reader:
        reader.until(reader.source.at_end)
        return [each.key(i) for each in reader.batches for i in range(len(each))]


def ids(stop: int) -> list[bytes | None]:
    """Return the keys of the first messages."""
    return [b"id-%d" % i for i in range(stop)]


def committed(address: str, topic: str) -> int:
    """Return the offset that the group has committed."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": f"of-{topic}"})
    (found,) = consumer.committed([TopicPartition(topic, 0)], PATIENCE_S)
    consumer.close()
    return int(found.offset)


def test_records_and_offsets_appear_together(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """Committed are whole batches: neither their records nor their offsets come without the others.

    The records of a batch under way wait for the rest of it.
    """
    source, output = new_topic(), new_topic()
    daemon = start(broker.address, source, output)
    daemon.take(0, 100)
    daemon.sink.add([record(i, daemon.place) for i in range(100, 150)])
    daemon.commit()
    assert keys(broker.address, output) == ids(100)
    assert committed(broker.address, source) == 100
    assert daemon.transactions.n_pending == 50
    daemon.transactions.done(daemon.place, 150)
    daemon.commit()
    assert keys(broker.address, output) == ids(150)
    assert committed(broker.address, source) == 150
    assert daemon.outcomes == ["committed", "committed"]


def test_what_is_due_is_committed_by_itself(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """Without a checkpoint a transaction comes after its interval."""
    source, output = new_topic(), new_topic()
    daemon = start(broker.address, source, output, transaction_interval_s=0.05)
    daemon.take(0, 10)
    with Reader(broker.address, output) as reader:
        reader.until(lambda: reader.n_values == 10)


def test_a_restart_from_an_older_position_sends_nothing_twice(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """What comes again below the committed offset is left out; its batches may be cut anew."""
    source, output = new_topic(), new_topic()
    first = start(broker.address, source, output)
    first.take(0, 100)
    first.commit()
    first.rest()
    first.take(100, 200)  # not committed: it ends before
    first.kill()
    second = start(broker.address, source, output)
    second.take(30, 70)
    second.commit()
    assert committed(broker.address, source) == 100
    second.take(70, 130)
    second.take(130, 220)
    second.commit()
    assert keys(broker.address, output) == ids(220)
    assert committed(broker.address, source) == 220
    assert second.outcomes == ["committed"]  # the first of its flushes had nothing to send


def test_records_of_other_logs_wait_for_no_batch(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """What is refused of labels and corrections is safe by the next checkpoint, and never left out.

    Not even if the stream rests, or comes again below the committed offset.
    """
    source, output = new_topic(), new_topic()
    labels = Partition(f"labels-of-{source}", 0)
    daemon = start(broker.address, source, output)
    daemon.sink.add([Record(b"label-0", b"{}", None, (labels, 0))])
    daemon.commit()
    assert keys(broker.address, output) == [b"label-0"]
    daemon.take(0, 100)
    daemon.sink.add([Record(b"label-none", b"{}", None, (labels, -1))])
    daemon.commit()
    assert keys(broker.address, output) == [b"label-0", *ids(100), b"label-none"]
    daemon.rest()
    daemon.kill()
    again = start(broker.address, source, output)
    again.take(0, 50)
    again.sink.add([Record(b"label-1", b"{}", None, (labels, 1))])
    again.commit()
    assert keys(broker.address, output) == [b"label-0", *ids(100), b"label-none", b"label-1"]
    assert committed(broker.address, source) == 100


def test_records_of_other_logs_do_not_part_a_batch_from_its_offset() -> None:
    """Else the batch's records would be sent once more after a commit of unknown outcome."""
    transactions = KafkaTransactions(["127.0.0.1:1"], "tweets", KafkaSettings())
    sink, place = transactions.sink("out"), Partition("tweets", 0)
    label = Record(b"label", b"{}", None, (Partition("labels", 0), 3))
    sink.add([record(10, place)])
    sink.add([label])
    transactions._asked = True
    assert transactions._due() == ([], {})
    transactions.done(place, 11)
    transactions._asked = True
    assert transactions._due() == ([("out", record(10, place)), ("out", label)], {place: 11})


def test_an_error_of_its_own_ends_the_run(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """Who waits for the thread that sends is told what ended it."""
    daemon = start(broker.address, new_topic(), new_topic())

    def fail(_: object) -> None:
        raise ArithmeticError("planted")

    daemon.transactions._count = fail
    daemon.take(0, 10)
    with pytest.raises(ArithmeticError, match="planted"):
        daemon.commit()
    with pytest.raises(ArithmeticError, match="planted"):
        daemon.transactions.watch()


def test_the_largest_message_that_is_allowed_keeps_no_transaction_away(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """The client takes each size that the configuration allows."""
    output, sizes = new_topic(), {"fetch_max_bytes": (1 << 31) - 1}
    daemon = start(broker.address, new_topic(), output, message_max_bytes=1_000_000_000, **sizes)
    daemon.take(0, 10)
    daemon.commit()
    assert keys(broker.address, output) == ids(10)


def test_a_setting_that_the_client_refuses_is_not_put_down_to_the_broker(
    broker: Broker,
    new_topic: NewTopic,
    start: Callable[..., Daemon],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers that answer are not said to be silent: what is wrong stands in the configuration."""
    refused = {"socket.timeout.ms": 1}  # at least 10
    made = client.connection_settings
    monkeypatch.setattr(module, "connection_settings", lambda *own: made(*own) | refused)
    daemon = start(broker.address, new_topic(), new_topic(), retry_pause_max_s=0.1)
    daemon.take(0, 10)
    said = until_told(daemon.sink, "socket.timeout.ms")
    assert "Kafka's client refuses its settings: " in said
    assert "no answer" not in said


@pytest.mark.parametrize("other", ["topic", "owner"])
def test_an_offset_of_others_hides_nothing(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon], other: str
) -> None:
    """Only an offset behind which the records stand in this topic counts, whoever else committed.

    That is one of transactions into another topic, or of a tool that moved the group.
    """
    source, output = new_topic(), new_topic()
    if other == "topic":
        before = start(broker.address, source, new_topic())
        before.take(0, 50)
        before.commit()
        before.rest()
        before.kill()
    else:
        tool = Consumer({"bootstrap.servers": broker.address, "group.id": f"of-{source}"})
        tool.commit(offsets=[TopicPartition(source, 0, 50)], asynchronous=False)
        tool.close()
    daemon = start(broker.address, source, output)
    daemon.take(0, 60)
    daemon.commit()
    assert keys(broker.address, output) == ids(60)


class Faulty:
    """A producer whose commits fail, once each: after they were carried out, or before."""

    faults: tuple[str, ...] = ()

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._real = Producer(*arguments, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def commit_transaction(self, timeout_s: float) -> None:
        """Commit, unless this one's fault comes first."""
        fault, Faulty.faults = (Faulty.faults or ("",))[0], Faulty.faults[1:]
        if fault != "before":
            self._real.commit_transaction(timeout_s)
        if fault:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_commit_of_unknown_outcome_is_tried_again_exactly(
    broker: Broker,
    new_topic: NewTopic,
    start: Callable[..., Daemon],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If its answer is lost, a transaction that was committed is not sent again; another one is.

    Aborted records stand in the log all the same, and no reader of committed ones gets them.
    """
    source, output = new_topic(), new_topic()
    monkeypatch.setattr(module, "Producer", Faulty)
    monkeypatch.setattr(Faulty, "faults", ("after", "before", "before", "", "after"))
    daemon = start(broker.address, source, output, retry_pause_max_s=0.05)
    for n in range(0, 400, 100):
        daemon.take(n, n + 100)
        daemon.commit()
    assert keys(broker.address, output) == ids(400)
    assert committed(broker.address, source) == 400
    assert daemon.outcomes == ["aborted"] * 3 + ["committed", "aborted", "committed"]
    assert daemon.transactions.trouble() is None


def test_a_second_daemon_ends_the_first(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """Whoever begins later with the same group has the right to write; the other must end.

    What the first had not committed comes from the second alone.
    """
    source, output = new_topic(), new_topic()
    first = start(broker.address, source, output)
    first.take(0, 100)
    first.commit()
    first.rest()
    first.take(100, 200)
    second = start(broker.address, source, output)
    second.take(100, 150)
    second.commit()
    patient = PatientSink(first.sink, threading.Event())
    with pytest.raises(TransactionError, match="another daemon has taken over") as caught:
        patient.flush(PATIENCE_S)
    assert caught.value.exit_code == 78
    with pytest.raises(TransactionError):
        first.transactions.watch()
    second.take(150, 250)
    second.commit()
    assert keys(broker.address, output) == ids(250)


def test_a_record_that_the_topic_refuses_goes_in_its_short_form(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """Too large for the client or for the topic, a record stands there by its short form."""
    source, output = new_topic(), new_topic(**{"max.message.bytes": "100000"})
    own = {"message_max_bytes": 1_000_000, "retry_pause_max_s": 0.1}
    daemon = start(broker.address, source, output, **own)
    for i, size in enumerate((10, 200_000, 2_000_000)):
        short = Record(b"id-%d" % i, b"short")
        daemon.sink.add([Record(b"id-%d" % i, b"x" * size, short, (daemon.place, i))])
    daemon.transactions.done(daemon.place, 3)
    assert daemon.sink.n_pending_bytes == 2_200_010 + 3 * len(b"id-0")
    daemon.commit()
    assert daemon.sink.n_pending_bytes == 0
    with Reader(broker.address, output) as reader:
        reader.until(lambda: reader.n_values == 3)
        assert reader.values[0] == [b"x" * 10, b"short", b"short"]
    assert keys(broker.address, output) == ids(3)


def test_a_topic_that_takes_small_records_alone_gets_each_by_itself(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """Batches are refused as a whole; why a record is too large by itself is told."""
    source, output = new_topic(), new_topic(**{"max.message.bytes": "400"})
    daemon = start(broker.address, source, output, retry_pause_max_s=0.1)
    daemon.take(0, 50)
    daemon.commit()
    assert keys(broker.address, output) == ids(50)
    daemon.sink.add([Record(b"id-50", b"x" * 500, None, (daemon.place, 50))])
    daemon.transactions.done(daemon.place, 51)
    why = "the record b'id-50' of 500 bytes is too large; raise kafka.message_max_bytes"
    until_told(daemon.sink, why)


def test_a_reject_without_a_short_form_is_shortened_until_the_topic_takes_it(
    broker: Broker, new_topic: NewTopic, start: Callable[..., Daemon]
) -> None:
    """One below 64 KiB has no short form yet; the transaction does not wait for ever."""
    source, output = new_topic(), new_topic(**{"max.message.bytes": "2000"})
    daemon = start(broker.address, source, output, retry_pause_max_s=0.1)
    daemon.sink.add(
        [
            reject_record(
                Reject(Reason.WRONG_TYPE, "why", daemon.place, i, 5, b"k", b"word " * 2_000)
            )
            for i in range(20)
        ]
    )
    daemon.transactions.done(daemon.place, 20)
    daemon.commit()
    assert daemon.sink.n_pending_bytes == 0
    # What is as large as one that was refused is shortened with it.
    assert daemon.outcomes.count("aborted") <= 12
    with Reader(broker.address, output) as reader:
        reader.until(lambda: reader.n_values == 20)
        values = [value or b"" for part in reader.values.values() for value in part]
        assert all(is_output(value + b"\n") for value in values)


@pytest.mark.deep
def test_a_dead_broker_costs_nothing_but_time(
    own_broker: Broker, start: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no broker answers, records wait up to the bound; when it is back each comes once."""
    monkeypatch.setattr(module, "CALL_TIMEOUT_S", 5.0)
    monkeypatch.setattr(module, "FLUSH_TIMEOUT_S", 0.1)
    own_broker.start()
    for name in ("in", "out"):
        own_broker.create_topic(name)
    daemon = start(own_broker.address, "in", "out")
    daemon.take(0, 100)
    daemon.commit()
    own_broker.kill()
    daemon.take(100, 200)
    with pytest.raises(SinkError, match="100 records are not committed"):
        daemon.sink.flush(0.2)
    monkeypatch.setattr(module, "PENDING_RECORDS_MAX", 100)
    with pytest.raises(SinkError, match="101 records are not committed"):
        daemon.sink.add([record(200, daemon.place)])
    daemon.transactions.done(daemon.place, 201)
    own_broker.start()
    daemon.commit()
    assert keys(own_broker.address, "out") == ids(201)
    assert committed(own_broker.address, "in") == 201


@pytest.mark.deep
def test_brokers_without_the_defence_are_refused(
    own_broker: Broker, start: Callable[..., Daemon]
) -> None:
    """Where transactions are not safe, the daemon says why, and how to go on."""
    own_broker.format_options += ["--feature", "transaction.version=1"]
    own_broker.start()
    own_broker.create_topic("out")
    daemon = start(own_broker.address, "in", "out")
    daemon.take(0, 10)
    with pytest.raises(TransactionError, match=r"KIP-890 .* these have transaction.version 1\."):
        daemon.commit()
    assert keys(own_broker.address, "out") == []


def test_a_sink_of_transactions_closes_with_a_last_second(
    broker: Broker,
    new_topic: NewTopic,
    start: Callable[..., Daemon],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closing commits what is whole, if that takes no longer."""
    monkeypatch.setattr(module, "CLOSE_TIMEOUT_S", PATIENCE_S)  # a busy machine's second is short
    source, output = new_topic(), new_topic()
    daemon = start(broker.address, source, output)
    daemon.take(0, 10)
    daemon.commit()  # connected by now
    daemon.take(10, 20)
    assert isinstance(daemon.sink, TransactionalSink)
    daemon.sink.close()
    assert keys(broker.address, output) == ids(20)
