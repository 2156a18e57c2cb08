"""The Kafka sink against a real broker: what is flushed is there, what is not there is owed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import msgspec
import pytest
from kafka.errors import MessageSizeTooLargeError
from kafka.future import Future
from kafka.producer.sender import Sender
from structlog.testing import capture_logs

from consumers.config.addresses import KafkaSettings
from consumers.errors import SinkError
from consumers.kafka import producers
from consumers.kafka.producers import KafkaLog, KafkaSink, TopicProducer
from consumers.messages import Envelope, Operation, Partition, Reason, Reject
from consumers.sinks.records import PatientSink, Record, is_output, prediction_record, reject_record
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import PATIENCE_S, Reader

pytestmark = [
    pytest.mark.integration,
    # The client leaves the sockets of failed attempts to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
NewTopic = Callable[..., str]


def records(start: int, stop: int) -> list[Record]:
    """Return one record a number."""
    return [Record(b"id-%d" % i, b'{"n":%d}' % i) for i in range(start, stop)]


def flush_all(sink: KafkaSink) -> None:
    """Flush, as the daemon does, again and again until nothing is owed."""
    deadline_s = time.monotonic() + PATIENCE_S
    while sink.n_pending_bytes:
        assert time.monotonic() < deadline_s
        with suppress(SinkError):
            sink.flush(1.0)


def pairs(reader: Reader) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values in the order in which they came."""
    return [(each.key(i), each.value(i)) for each in reader.batches for i in range(len(each))]


def test_what_is_flushed_is_there_in_order(broker: Broker, new_topic: NewTopic) -> None:
    """After a flush every record stands in the topic, with its key, in the order it was added."""
    topic = new_topic()
    sink = KafkaSink([broker.address], topic, KafkaSettings())
    sink.add(records(0, 1_000))
    sink.add(records(1_000, 2_000))
    sink.flush(PATIENCE_S)
    sink.flush(0.0)  # nothing is owed any more
    sink.close()
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 2_000)
        assert pairs(reader) == [(each.key, each.value) for each in records(0, 2_000)]


def test_a_key_decides_its_partition(broker: Broker, new_topic: NewTopic) -> None:
    """The same keys go to the same partitions, whoever writes them."""
    topic = new_topic(3)
    for _ in range(2):
        sink = KafkaSink([broker.address], topic, KafkaSettings())
        assert sink.partitions(PATIENCE_S) == 3
        sink.add(records(0, 60))
        sink.flush(PATIENCE_S)
        sink.close()
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.n_values >= 120)
        for values in reader.values.values():
            half = len(values) // 2
            assert values[:half] == values[half:]
        assert len(reader.values) == 3


@pytest.mark.deep
def test_what_a_dead_broker_owes_is_sent_when_it_is_back(own_broker: Broker) -> None:
    """A flush that cannot be kept is refused; the records wait, and a later flush writes them."""
    own_broker.reserve()
    sink = KafkaSink([own_broker.address], "late", KafkaSettings(bootstrap_timeout_s=1.0))
    sink.add(records(0, 10))
    with pytest.raises(SinkError, match=r"'late': 10 records are not safe: no answer from Kafka"):
        sink.flush(0.2)
    own_broker.start()
    own_broker.create_topic("late")
    sink.flush(PATIENCE_S)
    own_broker.kill()
    sink.add(records(10, 20))
    with pytest.raises(SinkError, match="10 records are not safe"):
        sink.flush(0.2)
    own_broker.start()
    sink.flush(PATIENCE_S)
    sink.close()
    with Reader(own_broker.address, "late") as reader:
        reader.until(lambda: reader.source.at_end() and reader.n_values >= 20)
        assert set(pairs(reader)) == {(each.key, each.value) for each in records(0, 20)}


def test_what_is_owed_is_bounded(own_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody answers, `add` refuses more than the bound after a while."""
    monkeypatch.setattr(producers, "PENDING_RECORDS_MAX", 10)
    monkeypatch.setattr(producers, "ADD_TIMEOUT_S", 0.2)
    sink = KafkaSink([own_broker.reserve()], "nowhere", KafkaSettings(bootstrap_timeout_s=0.3))
    with pytest.raises(SinkError, match="11 records are not safe"):
        sink.add(records(0, 11))
    sink.close()


def test_a_record_that_is_too_large_is_named(broker: Broker, new_topic: NewTopic) -> None:
    """A record above the limit is refused by name, not dropped."""
    settings = KafkaSettings(message_max_bytes=2_000)
    sink = KafkaSink([broker.address], new_topic(), settings)
    sink.partitions(PATIENCE_S)
    with pytest.raises(SinkError, match="b'large' cannot be sent") as refused:
        sink.add([Record(b"large", b"x" * 5_000)])
    sink.close()
    assert "too large; raise max.message.bytes of the topic" in str(refused.value)
    assert "no answer" not in str(refused.value)


class Refusing:
    """A producer that refuses the second record that it is given, and takes all others."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.n_calls = 0

    def send(self, _: str, *, value: bytes, **more: object) -> Any:  # noqa: ARG002 -- as the library has it
        """Take a record, or refuse it."""
        self.n_calls += 1
        if self.n_calls == 2:
            raise MessageSizeTooLargeError("planted")
        self.sent.append(value)
        return Future().success(None)

    def flush(self, _: float) -> None:
        """Have nothing to wait for."""


def test_keys_and_headers_count_among_what_waits(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a bridge of tombstones or of large headers would hold more than its bound."""
    sink = KafkaSink([own_broker.reserve()], "nowhere", KafkaSettings(bootstrap_timeout_s=0.3))
    monkeypatch.setattr(producers, "ADD_TIMEOUT_S", 0.0)
    sink.write(b"k" * 1000, None, 0, [("name", b"h" * 100), ("none", None)])
    assert sink.n_pending_bytes == 1000 + 4 + 100 + 4
    monkeypatch.setattr(producers, "PENDING_BYTES_MAX", 1500)
    with pytest.raises(SinkError, match="2 records are not safe"):
        sink.write(b"k" * 1000, None, 0)
    monkeypatch.setattr(producers, "CLOSE_TIMEOUT_S", 0.0)
    sink.close()


def test_records_behind_one_that_cannot_be_sent_are_taken(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint waits for them: they were lost, and it passed over them."""
    settings = KafkaSettings(bootstrap_timeout_s=0.3)
    sink, refusing = KafkaSink([own_broker.reserve()], "nowhere", settings), Refusing()
    monkeypatch.setattr(sink._producer, "get", lambda _: refusing)
    with pytest.raises(SinkError, match="b'id-1' cannot be sent"):
        sink.add(records(0, 5))
    assert sink.n_pending_bytes == sum(each.n_bytes for each in records(0, 5))
    sink.flush(PATIENCE_S)
    assert refusing.sent == [each.value for each in records(0, 5)]
    monkeypatch.undo()
    sink.close()


def test_a_broker_that_refuses_a_size_is_not_taken_for_one_that_is_away(
    broker: Broker, new_topic: NewTopic
) -> None:
    """What is not safe is told with the topic's bound, and not with what to check of a broker."""
    sink = KafkaSink([broker.address], new_topic(max_message_bytes="2000"), KafkaSettings())
    sink.partitions(PATIENCE_S)
    sink.add([Record(b"large", b"x" * 5_000)])
    told = None
    deadline_s = time.monotonic() + PATIENCE_S
    while told is None or "MessageSizeTooLargeError" not in told:
        assert time.monotonic() < deadline_s, told
        with pytest.raises(SinkError, match="1 records are not safe") as refused:
            sink.flush(0.2)
        told = str(refused.value)
    sink.close()
    assert "too large; raise max.message.bytes of the topic" in told
    assert "no answer" not in told


def test_a_record_that_is_too_large_leaves_the_others_in_batches(
    broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fills a batch was refused itself: it alone is shortened, and no other producer made."""
    made_again: list[object] = []
    monkeypatch.setattr(TopicProducer, "replace", lambda *_, **given: made_again.append(given))
    topic, classes = new_topic(max_message_bytes="90000"), [f"class {i}" for i in range(9_000)]
    log = Partition("t", 0)
    envelopes = [
        Envelope(f"m{i}", 5, None, None, "short", None, Operation.CREATE, {}) for i in range(3)
    ]
    wanted = [prediction_record(each, ["a", "b"], [-0.1, -2.35], 7) for each in envelopes]
    large = msgspec.structs.replace(envelopes[0], id="large", text="word " * 70_000)
    many = msgspec.structs.replace(envelopes[0], id="many")  # it has no text to leave out
    wanted.insert(1, prediction_record(large, ["a", "b"], [-0.1, -2.35], 7))
    medium = msgspec.structs.replace(envelopes[0], id="medium", text="word " * 20_000)
    wanted.append(prediction_record(medium, ["a", "b"], [-0.1, -2.35], 7))
    wanted.insert(2, prediction_record(many, classes, [-9.1] * len(classes), 7))
    wanted.insert(3, reject_record(Reject(Reason.WRONG_TYPE, "w", log, 1, 5, b"k", b"x" * 300_000)))
    with closing(KafkaSink([broker.address], topic, KafkaSettings())) as sink:
        sink.add(wanted)
        flush_all(sink)
    assert made_again == []
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: {key for key, _ in pairs(reader)} == {each.key for each in wanted})


@pytest.mark.parametrize("setting", ["topic", "client"])
def test_what_a_small_topic_refuses_is_shortened_until_it_fits(
    broker: Broker, new_topic: NewTopic, setting: str
) -> None:
    """No record waits for ever where the bound is below 64 KiB, and a small one stays as it is."""
    topic = new_topic(max_message_bytes="1500" if setting == "topic" else "2000000")
    settings = KafkaSettings(message_max_bytes=1_024 if setting == "client" else 12_582_912)
    log, text = Partition("t", 0), "word " * 4_000
    envelopes = [
        Envelope(f"m{i}", 5, None, None, text if i % 2 else "short", None, Operation.CREATE, {})
        for i in range(6)
    ]
    wanted = [prediction_record(each, ["a", "b"], [-0.1, -2.35], 7) for each in envelopes]
    classes = [f"class {i}" for i in range(500)]
    many = msgspec.structs.replace(envelopes[1], id="many")
    wanted.append(prediction_record(many, classes, [-6.2] * 500, 7))
    wanted += [
        reject_record(Reject(Reason.WRONG_TYPE, "why", log, i, 5, b"k", value))
        for i, value in enumerate((b"{}", text.encode()))
    ]
    assert all(record.short is None for record in wanted)
    with capture_logs() as said, closing(KafkaSink([broker.address], topic, settings)) as sink:
        sink.add(wanted)
        flush_all(sink)
    events = {each["event"] for each in said}
    assert "record_shortened" in events
    assert "record_refused" not in events
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: {key for key, _ in pairs(reader)} == {each.key for each in wanted})
        found = dict(pairs(reader))
    for record in wanted:
        value = found[record.key]
        assert value is not None
        assert is_output(value + b"\n")
        assert value == record.value or (len(value) < 1_500 and len(record.value) > 15_000)


def test_what_no_step_makes_fit_is_left_out_and_counted(
    broker: Broker, new_topic: NewTopic
) -> None:
    """The stream does not wait for it, and the daemon's metric has it."""
    said = Envelope("m", 5, None, None, "short", None, Operation.CREATE, {})
    record = prediction_record(said, ["a", "b"], [-0.1, -2.35], 7)
    topic = new_topic(max_message_bytes="100")
    with closing(KafkaSink([broker.address], topic, KafkaSettings())) as sink:
        patient = PatientSink(sink, threading.Event())
        with capture_logs() as events:
            patient.add([record])
            flush_all(sink)
        assert patient.n_refused == sink.n_refused == 1
    assert [each["event"] for each in events].count("record_refused") == 1


def test_what_others_wrote_is_left_out_whole_and_not_shortened(
    broker: Broker, new_topic: NewTopic
) -> None:
    """A bridge takes a reject of another daemon as it is, or not at all."""
    topic, log = new_topic(max_message_bytes="250000"), Partition("t", 0)
    sizes = {"fits": 140_000, "does not": 260_000, "too": 140_000, "small": 10}
    wanted = {
        name.encode(): reject_record(
            Reject(Reason.WRONG_TYPE, "w", log, i, 5, None, b"\xff" * (n * 3 // 4))
        ).value
        for i, (name, n) in enumerate(sizes.items())
    }
    with closing(KafkaSink([broker.address], topic, KafkaSettings(), is_idempotent=True)) as sink:
        for key, value in wanted.items():
            sink.write(key, value)
        flush_all(sink)
        assert sink.n_refused == 1
    del wanted[b"does not"]
    with Reader(broker.address, topic) as reader:
        reader.until(lambda: reader.source.at_end() and reader.n_values >= len(wanted))
        assert dict(pairs(reader)) == wanted


def test_a_producer_that_loses_track_of_a_record_is_replaced(
    broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink sends its record again; a correction stays in doubt, and the next one is taken."""
    topic, settings, errors = new_topic(), KafkaSettings(), [AttributeError("planted")]
    handle = Sender._handle_produce_response

    def planted(*args: Any) -> None:
        if errors:
            raise errors.pop()
        handle(*args)

    monkeypatch.setattr(Sender, "_handle_produce_response", planted)
    deadline_s = time.monotonic() + PATIENCE_S
    with capture_logs() as said:
        with closing(KafkaSink([broker.address], topic, settings, is_idempotent=True)) as sink:
            sink.add(records(0, 1))
            while sink.n_pending_bytes:
                assert time.monotonic() < deadline_s
                with suppress(SinkError):
                    sink.flush(1.0)
        errors.append(AttributeError("planted"))
        with closing(KafkaLog([broker.address], topic, settings)) as entries:
            in_doubt = entries.append(b"id-1", b"in doubt")
            while errors or said[-1]["event"] != "kafka_client_failed":
                assert time.monotonic() < deadline_s
                assert in_doubt.outcome(0.1) is None
            taken = entries.append(b"id-2", b"taken")
            assert taken.outcome(PATIENCE_S) is not None
            assert in_doubt.outcome(0.0) is None
            assert (in_doubt.is_given_up(), taken.is_given_up()) == (True, False)
    events = [each["event"] for each in said]
    assert events == ["kafka_client_failed", "kafka_close_failed"] * 2
    assert all("AttributeError('planted') (test_sink.py:" in each["why"] for each in said[::2])
