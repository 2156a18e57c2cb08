"""What only the source on librdkafka has: its settings, its silence, and all codecs by itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumers.config.addresses import KafkaSettings
from consumers.errors import ConfigError
from consumers.kafka.client import ClientError
from consumers.kafka.librdkafka import LibrdkafkaClient, consumer_settings, from_messages
from consumers.messages import Partition
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import Reader, fill, numbered, until_all

NewTopic = Callable[..., str]
NOBODY = "127.0.0.1:9"  # the port of discarded messages: no broker is there


def test_sizes_and_times_reach_the_client() -> None:
    """Our settings arrive under the client's names, in its units."""
    ours = KafkaSettings(
        group_id="readers",
        session_timeout_s=20.0,
        retry_pause_max_s=0.5,
        fetch_max_bytes=8 << 20,
        message_max_bytes=2 << 20,
    )
    made = consumer_settings(["a:1", "b:2"], ours)
    wanted = {
        "bootstrap.servers": "a:1,b:2",
        "group.id": "readers",
        "session.timeout.ms": 20_000,
        "heartbeat.interval.ms": 5_000,
        "reconnect.backoff.max.ms": 500,
        "fetch.max.bytes": 8 << 20,
        "message.max.bytes": 2 << 20,
        "fetch.message.max.bytes": 2 << 20,
        "queued.max.messages.kbytes": 8 << 10,
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        "isolation.level": "read_committed",
        "check.crcs": True,
    }
    assert {key: made[key] for key in wanted} == wanted


def test_a_login_reaches_the_client(tmp_path: Path) -> None:
    """Protocol, mechanism, name, password and certificates arrive; what is not set is not said."""
    authority = tmp_path / "ca.pem"
    authority.touch()
    ours = KafkaSettings.model_validate(
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_username": "alice",
            "sasl_password": "secret",
            "ssl_cafile": authority,
        }
    )
    made = consumer_settings([NOBODY], ours)
    assert {
        key: value for key, value in made.items() if key.startswith(("sasl", "ssl", "sec"))
    } == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "ssl.ca.location": str(authority),
    }
    plain = consumer_settings([NOBODY], KafkaSettings())
    assert not [key for key in plain if key.startswith(("sasl", "ssl"))]


@pytest.mark.parametrize("size", [1024, 50 << 20, (1 << 31) - 1])
def test_the_client_takes_every_size_that_we_allow(size: int) -> None:
    """Sizes outside the client's own bounds are brought inside, so that it starts."""
    ours = KafkaSettings(
        fetch_max_bytes=size,
        message_max_bytes=min(size, 1_000_000_000),
        max_poll_messages=1_000_000,
        bootstrap_timeout_s=86_400.0,
    )
    Consumer(consumer_settings([NOBODY], ours)).close()


def test_settings_that_the_client_refuses_are_told(tmp_path: Path) -> None:
    """A file that holds no certificates ends the start, with the client's reason."""
    authority = tmp_path / "ca.pem"
    authority.write_text("no certificate", encoding="utf-8")
    client = LibrdkafkaClient(
        [NOBODY], "nowhere", KafkaSettings(security_protocol="SSL", ssl_cafile=authority)
    )
    with pytest.raises(ConfigError, match=r"refuses its settings: .*ssl\.ca\.location.*kafka\."):
        client.open()


def test_nothing_is_printed_where_nobody_is(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a broker there is one trouble with the client's reason, and not a line beside it."""
    with capture_logs() as said, Reader(NOBODY, "nowhere", client="librdkafka") as reader:
        reader.until(lambda: "refused" in (reader.source.trouble() or ""))
        assert "no answer from Kafka at 127.0.0.1:9" in (reader.source.trouble() or "")
        assert not reader.source.at_end()
    assert [each["event"] for each in said] == ["source_trouble"]
    assert capfd.readouterr() == ("", "")


PARTS = st.none() | st.binary(max_size=20)


@given(rows=st.lists(st.tuples(PARTS, PARTS, st.integers(-1, 2**40)), min_size=1, max_size=30))
def test_columns_hold_what_the_messages_hold(
    rows: list[tuple[bytes | None, bytes | None, int]],
) -> None:
    """Every key, value, offset and time comes out of the columns as it was in its message."""
    messages = [
        Message("t", 3, 10 * i, key=key, value=value, timestamp=(1, time_ms))
        for i, (key, value, time_ms) in enumerate(rows)
    ]
    batch = from_messages(Partition("t", 3), messages, 10 * len(rows))
    assert [(batch.key(i), batch.value(i)) for i in range(len(batch))] == [
        (key, value) for key, value, _ in rows
    ]
    assert batch.offsets.tolist() == [10 * i for i in range(len(rows))]
    assert batch.times_ms.tolist() == [time_ms for *_, time_ms in rows]
    assert (batch.partition, batch.next_offset) == (Partition("t", 3), 10 * len(rows))


@pytest.mark.integration
@pytest.mark.parametrize("codec", ["lz4", "snappy"])
def test_no_codec_needs_a_package(broker: Broker, new_topic: NewTopic, codec: str) -> None:
    """Batches compressed by lz4 or snappy are read without the extra that kafka-python needs."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 500), compression=codec)
    with Reader(broker.address, topic, client="librdkafka") as reader:
        reader.until(lambda: reader.n_values >= 500)
        assert reader.values[0] == numbered(0, 500)


class _Silent:
    """An administrator whose connection brings no answers any more, or an error each time."""

    def __init__(self, code: int | None = None) -> None:
        self.code = code

    def describe_topics(self, topics: TopicCollection, **_: object) -> dict[str, Future[object]]:
        """Take a question, and answer none."""
        asked: dict[str, Future[object]] = {name: Future() for name in topics.topic_names}
        if self.code is not None:
            for each in asked.values():
                each.set_exception(KafkaException(KafkaError(self.code)))
        return asked


@pytest.mark.integration
def test_an_administrator_without_answers_is_replaced(
    broker: Broker, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the topic is like is heard of again, whatever became of the first connection."""
    client = LibrdkafkaClient([broker.address], new_topic(), KafkaSettings())
    client.open()
    try:
        found = client.topic(60)
        client._admin = _Silent()
        with pytest.raises(ClientError, match="does not say what the topic is like"):
            client.topic(0)
        assert client.topic(60) == found
        for code, is_replaced in [
            (KafkaError._TIMED_OUT, True),
            (KafkaError.TOPIC_AUTHORIZATION_FAILED, False),
        ]:
            client._admin = silent = _Silent(code)
            client._asked = client._describe(60)
            assert client.topic_id() == found.id
            assert (client._admin is not silent) is is_replaced
        # Its settings may name a file that is being replaced just now.
        monkeypatch.setitem(client._admin_made_with, "ssl.ca.location", "/nowhere")
        monkeypatch.setitem(client._admin_made_with, "security.protocol", "ssl")
        client._admin = _Silent(KafkaError._TIMED_OUT)
        client._asked = client._describe(60)
        assert client.topic_id() == found.id
        with pytest.raises(ClientError, match="no answer from Kafka"):
            client.topic(0)
    finally:
        client.close(finish_commit=False)


@pytest.mark.integration
def test_a_member_too_many_is_at_its_end(broker: Broker, new_topic: NewTopic) -> None:
    """Where a group has more members than partitions, the one without any has nothing to read."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 10))
    with (
        Reader(broker.address, topic, "crowd", client="librdkafka", session_timeout_s=6) as first,
        Reader(broker.address, topic, "crowd", client="librdkafka", session_timeout_s=6) as second,
    ):
        readers = (first, second)
        until_all(  # while the group shares anew neither has it
            readers,
            lambda: (
                all(each.source.at_end() for each in readers)
                and sorted(len(each.source.lag()) for each in readers) == [0, 1]
            ),
        )


@pytest.mark.integration
def test_an_open_transaction_is_not_the_end_of_the_log(broker: Broker, new_topic: NewTopic) -> None:
    """What a transaction that goes on has written is neither read nor waited for."""
    topic = new_topic()
    fill(broker.address, topic, numbered(0, 10))
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"not yet")
    producer.flush()
    with Reader(broker.address, topic, client="librdkafka") as reader:
        reader.until(reader.source.at_end)
        assert reader.values[0] == numbered(0, 10)
        producer.commit_transaction()
        reader.until(lambda: reader.n_values >= 11)
        assert reader.values[0][-1] == b"not yet"
