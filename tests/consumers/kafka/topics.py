"""Short ways to fill a topic, and to read one until something is true, for the Kafka tests."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Self

import pytest
from confluent_kafka import Producer

from consumers.config.addresses import KafkaSettings
from consumers.errors import SinkError
from consumers.kafka.group_source import GroupSource
from consumers.kafka.kafka_python import KafkaPythonClient
from consumers.kafka.librdkafka import LibrdkafkaClient
from consumers.messages import Partition, RawColumns
from consumers.sinks.records import Sink
from consumers.sources.base import LogFacts
from tests.broker.broker import Broker

PATIENCE_S = 60.0


class Refused(list[str]):
    """Why a broker took no message, as a producer is told: `flush` counts these as delivered."""

    def __call__(self, error: object, _message: object) -> None:
        """Note the error of a delivery, if it is one."""
        if error is not None:
            self.append(str(error))


def fill(
    address: str,
    topic: str,
    values: Iterable[bytes | None],
    partition: int = 0,
    compression: str = "none",
    key: Callable[[int], str] = str,
) -> None:
    """Write values, in order, to one partition; the key of value i is `key(i)`."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "message.max.bytes": 16 << 20,
            "compression.type": compression,
            "queue.buffering.max.messages": 1_000_000,
            "enable.idempotence": True,  # a retry neither doubles nor reorders anything
        }
    )
    refused = Refused()
    for i, value in enumerate(values):
        key_i = key(i).encode()
        producer.produce(topic, value, key=key_i, partition=partition, on_delivery=refused)
        producer.poll(0)
    assert (producer.flush(PATIENCE_S), refused) == (0, [])


def numbered(start: int, stop: int) -> list[bytes]:
    """Return one value a number."""
    return [b"message %d" % i for i in range(start, stop)]


# Compressions that are left to the long run; none and zstd are tried at every change.
DEEP_CODECS = [pytest.param(each, marks=pytest.mark.deep) for each in ("gzip", "snappy", "lz4")]
# One for each value of `kafka.client`.
CLIENTS: Mapping[str, type[KafkaPythonClient | LibrdkafkaClient]] = {
    "kafka-python": KafkaPythonClient,
    "librdkafka": LibrdkafkaClient,
}


class Reader:
    """Reads a source as the pipeline does, keeping all it got and where it stands."""

    def __init__(
        self,
        address: str,
        topic: str,
        group: str | None = None,
        positions: Mapping[Partition, int] | None = None,
        logs: Mapping[Partition, LogFacts] | None = None,
        *,
        is_shared: bool = False,
        **settings: object,
    ) -> None:
        self.topic = topic
        self.positions = dict(positions or {})
        self.values: defaultdict[int, list[bytes | None]] = defaultdict(list)
        self.offsets: defaultdict[int, list[int]] = defaultdict(list)
        self.batches: list[RawColumns] = []
        values = {"group_id": group or f"group-of-{topic}", **settings}
        checked = KafkaSettings.model_validate(values)
        client = CLIENTS[checked.client]([address], topic, checked)
        self.source = GroupSource(client, checked, is_shared=is_shared)
        self.source.resume(logs or {})
        self.source.open(self._position_of)

    def _position_of(self, partition: Partition) -> int | None:
        return self.positions.get(partition)  # looked up late: a test may put others in its place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.close()

    def step(self, timeout_s: float = 0.2) -> None:
        """Poll once, and take in what came."""
        for batch in self.source.poll(timeout_s):
            self.batches.append(batch)
            number = batch.partition.partition
            self.values[number] += [batch.value(i) for i in range(len(batch))]
            self.offsets[number] += batch.offsets.tolist()
            self.positions[batch.partition] = batch.next_offset

    def until(self, condition: Callable[[], bool]) -> None:
        """Poll until the condition holds; fail when it does not within a minute."""
        until_all([self], condition)

    @property
    def n_values(self) -> int:
        """Return how many values came."""
        return sum(map(len, self.values.values()))

    def place(self, number: int = 0) -> Partition:
        """Return one of the topic's partitions."""
        return Partition(self.topic, number)


def until_all(readers: Iterable[Reader], condition: Callable[[], bool]) -> None:
    """Poll all readers until the condition holds; fail when it does not in a minute.

    They are polled at the same time, as daemons are: while one joins a group, the others must
    answer its broker, or each breaks off the other's joining.
    """
    readers = list(readers)
    deadline_s = time.monotonic() + PATIENCE_S
    with ThreadPoolExecutor(len(readers)) as threads:
        while not condition():
            troubles = [each.source.trouble() for each in readers]
            got = [(each.n_values, each.source.lag()) for each in readers]
            assert time.monotonic() < deadline_s, f"still not so: {got}, troubles {troubles}"
            list(threads.map(Reader.step, readers))


def until_told(sink: Sink, why: str) -> str:
    """Flush until the refusal says why, and return it; fail when it does not in a minute."""
    deadline_s = time.monotonic() + PATIENCE_S
    said = ""
    while not re.search(why, said, re.DOTALL):
        assert time.monotonic() < deadline_s, f"it says {said!r}, not {why!r}"
        with pytest.raises(SinkError) as caught:
            sink.flush(0.1)
        said = str(caught.value)
    return said


def damage(broker: Broker, topic: str, message: bytes) -> None:
    """Change one message in the stopped broker's file, so that its batch's checksum is wrong."""
    broker.stop()
    (segment,) = (broker.folder / "data" / f"{topic}-0").glob("*.log")
    content = segment.read_bytes()
    assert message in content
    segment.write_bytes(content.replace(message, b"massage" + message[len(b"message") :]))
    broker.start()
