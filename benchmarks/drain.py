"""A process that reads a topic to its end and does nothing else: as fast as a client can be.

`python -m benchmarks.drain CLIENT ADDRESS TOPIC N` prints messages a second. The clock starts when
the client has its partitions and knows where to begin, just before it asks for messages, and stops
with the last of them: so neither imports nor connecting nor joining a group is timed. Each client
runs in a process of its own: none pays for another's memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
_PATIENCE_S = 300.0  # for one drain
_AT_ONCE = 10_000  # messages that a client hands over at most
_STEP_S = 0.001  # how long our source is polled at a time until it has its partitions


def rate(client: str, address: str, topic: str, n: int) -> float:
    """Let a new process drain `n` messages; return messages a second.

    Parameters
    ----------
    client : str
        One of `CLIENTS`.
    address : str
        ``host:port`` of the broker.
    topic : str
    n : int
        How many messages the topic holds.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.drain", client, address, topic, str(n)],
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
    )
    if done.returncode:
        raise RuntimeError(f"{client} did not drain {topic}:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout)["messages_per_s"])


def kafka_python(address: str, topic: str) -> Iterator[int]:
    """Poll kafka-python, with its checksums compiled and its fetches as large as our own."""
    from kafka import KafkaConsumer, TopicPartition  # noqa: PLC0415 -- each process needs one

    consumer = KafkaConsumer(
        bootstrap_servers=address,
        max_poll_records=_AT_ONCE,
        fetch_max_bytes=50 << 20,
        max_partition_fetch_bytes=12 << 20,
        enable_auto_commit=False,
    )
    places = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic)]
    consumer.assign(places)
    consumer.seek_to_beginning(*places)
    for place in places:
        consumer.position(place)
    yield 0
    while True:
        yield sum(map(len, consumer.poll(timeout_ms=100).values()))


def confluent(address: str, topic: str) -> Iterator[int]:
    """Consume with confluent-kafka, tuned: its defaults stall at a fifth of this speed."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "drain",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 2,
            "queued.min.messages": 200_000,
        }
    )
    found = consumer.list_topics(topic, timeout=10.0).topics[topic].partitions
    yield 0
    consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in found])
    while True:
        yield len(consumer.consume(_AT_ONCE, timeout=0.01))


def columns(address: str, topic: str) -> Iterator[int]:
    """Poll our source, whose compiled kernel decodes whole responses."""
    return _source(address, topic, decode="columns")


def records(address: str, topic: str) -> Iterator[int]:
    """Poll our source over the client's plain record loop."""
    return _source(address, topic, decode="records")


def librdkafka(address: str, topic: str) -> Iterator[int]:
    """Poll our source over confluent-kafka."""
    return _source(address, topic, client="librdkafka")


def _source(address: str, topic: str, **kafka: str) -> Iterator[int]:
    from consumers.config.settings import Settings  # noqa: PLC0415
    from consumers.factories import build_source  # noqa: PLC0415
    from consumers.monitoring.logs import configure  # noqa: PLC0415
    from streamnb.kernels import warm_up  # noqa: PLC0415

    configure()  # to standard error: the rate stands alone in standard output
    warm_up()
    group = {"group_id": f"drain-{os.getpid()}"}
    settings = Settings.model_validate(
        {"source": f"kafka://{address}/{topic}", "kafka": group | kafka}
    )
    source = build_source(settings, until_end=True)
    source.open(lambda _: None)
    early = 0
    while not source.lag():  # it tells of partitions once it knows where to begin in them
        early += sum(map(len, source.poll(_STEP_S)))
    yield early
    while True:
        yield sum(map(len, source.poll(0.1)))


# Each yields once when it is about to ask for messages, then how many came, poll by poll.
CLIENTS: dict[str, Callable[[str, str], Iterator[int]]] = {
    each.__name__: each for each in (kafka_python, confluent, columns, records, librdkafka)
}


def main() -> None:
    """Drain as the command line says, and print the rate."""
    name, address, topic, n = sys.argv[1:]
    started = time.perf_counter()
    batches = CLIENTS[name](address, topic)
    early = read = next(batches)
    began = time.perf_counter()
    if early == int(n):  # a small topic may come whole at once: then connecting is in the time
        early, began = 0, started
    while read < int(n):
        read += next(batches)
    seconds = time.perf_counter() - began
    print(json.dumps({"messages_per_s": (read - early) / seconds}), flush=True)
    # Closing connections in order would only take time: nothing here is to be kept.
    os._exit(0)


if __name__ == "__main__":
    main()
