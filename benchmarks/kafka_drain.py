"""Draining a topic, nothing learned: our source beside kafka-python's own loop, codec by codec.

The batches are as librdkafka's producer makes them by default, but for `single`, where each message
is a batch of its own, as from a producer that sends them one by one.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.alternate import alternate
from benchmarks.drain import rate
from benchmarks.kafka_topics import PARTITIONS, fill, messages, running_broker
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

MESSAGES = 300_000
SINGLE_MESSAGES = 100_000  # kafka-python needs many seconds for these already
TURNS = 3
CODECS = ("none", "lz4", "zstd", "snappy", "gzip")


def kafka_codecs(tweets: Tweets, show: Show) -> Result:
    """Drain topics of each codec, and one of batches of one message."""
    result = Result("kafka_codecs", f"JSON of {tweets.origin}")
    with running_broker() as broker:
        for codec in CODECS:
            broker.create_topic(codec, PARTITIONS)
            fill(broker.address, codec, messages(tweets, MESSAGES), compression_type=codec)
            _compare(result, broker.address, codec, MESSAGES, show)
        broker.create_topic("single", PARTITIONS)
        values = messages(tweets, SINGLE_MESSAGES)
        fill(broker.address, "single", values, batch_num_messages=1)
        _compare(result, broker.address, "single", SINGLE_MESSAGES, show)
    return result


def _compare(result: Result, address: str, topic: str, n: int, show: Show) -> None:
    timed = {name: drained(name, address, topic, n) for name in ("columns", "kafka_python")}
    turns = alternate(timed, TURNS, show)
    result.add(f"{topic}: our source", n / turns.median_s("columns"), "messages/s")
    result.add(f"{topic}: kafka-python", n / turns.median_s("kafka_python"), "messages/s")
    ratio = turns.ratio("kafka_python", "columns")
    result.add(f"{topic}: faster than kafka-python", ratio, "times", at_least=3.0)


def drained(client: str, address: str, topic: str, n: int) -> Callable[[], float]:
    """Return what drains a topic of `n` messages, and tells the seconds for all at its speed."""
    return lambda: n / rate(client, address, topic, n)
