"""A real broker on loopback, and topics full of tweets as JSON.

The broker is the one of the tests (`tests/broker`). A message is a tweet as Twitter sent them, cut
down to about 300 bytes: what the daemon reads (id, created_at, user, lang, text, label) between
fields that it passes over. Where more messages are asked for than there are tweets, these come
again with new ids.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchmarks.peers import LeftOutError, require
from benchmarks.tweets import Tweets

if TYPE_CHECKING:
    from tests.broker.broker import Broker

PARTITIONS = 2
FLUSH_TIMEOUT_S = 120.0
_EPOCH_S = 1_239_000_000  # in April 2009, as the recorded tweets are
_TWEETS_A_SECOND = 50
_QUEUE_MAX = 100_000  # messages that the producer holds
_SOURCE = '<a href="https://example.org">web</a>'


@contextlib.contextmanager
def running_broker() -> Iterator[Broker]:
    """Start a broker for the length of a `with`.

    Raises
    ------
    LeftOutError
        Where Java, the broker's jars or the client that fills topics is missing.
    """
    require("confluent-kafka", "kafka-python")
    from tests.broker.broker import Broker, missing_parts  # noqa: PLC0415 -- needs a peer

    missing = missing_parts()
    if missing is not None:
        raise LeftOutError(f"no broker: {missing} (make setup does)")
    with tempfile.TemporaryDirectory(prefix="streamnb-broker-") as folder:
        broker = Broker(Path(folder))
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()


def messages(tweets: Tweets, n: int) -> Iterator[bytes]:
    """Yield `n` tweets as JSON, in order, from the first again where they are used up."""
    encode = msgspec.json.Encoder().encode
    dates: list[str] = []
    for i in range(n):
        if i % _TWEETS_A_SECOND == 0:
            moment = time.gmtime(_EPOCH_S + i // _TWEETS_A_SECOND)
            dates = [time.strftime("%a %b %d %H:%M:%S +0000 %Y", moment)]
        number = 1_467_810_369 + i
        yield encode(
            {
                "created_at": dates[0],
                "id": number,
                "id_str": str(number),
                "text": tweets.texts[i % len(tweets)],
                "source": _SOURCE,
                "truncated": False,
                "user": f"user{i % 99_991}",
                "retweet_count": 0,
                "favorited": False,
                "lang": "en",
                "label": tweets.labels[i % len(tweets)],
            }
        )


def fill(address: str, topic: str, values: Iterable[bytes], **settings: str | int) -> None:
    """Write messages to a topic, in turn to its partitions; the topic must be there.

    Parameters
    ----------
    address : str
        ``host:port`` of the broker.
    topic : str
    values : iterable of bytes
    **settings : str or int
        More of the producer's settings, with `_` for each `.` of their names; what is not set is
        librdkafka's default.
    """
    from confluent_kafka import Producer  # noqa: PLC0415 -- a peer

    own = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer(
        {"bootstrap.servers": address, "queue.buffering.max.messages": _QUEUE_MAX, **own}
    )
    for i, value in enumerate(values):
        while True:
            try:
                producer.produce(topic, value, partition=i % PARTITIONS)
            except BufferError:  # its queue is full
                producer.poll(0.1)
            else:
                break
        if i % 1_000 == 0:
            producer.poll(0)
    n_left = producer.flush(FLUSH_TIMEOUT_S)
    if n_left:
        raise RuntimeError(f"{n_left:,} messages did not reach {topic} within {FLUSH_TIMEOUT_S} s")
