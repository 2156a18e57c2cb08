"""Predictions, rejects and offsets in one transaction, by whole daemons that are killed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.broker import Broker
from tests.consumers.kafka.topics import PATIENCE_S, Reader, fill
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, message

pytestmark = [pytest.mark.integration, pytest.mark.deep]
NewTopic = Callable[..., str]
N = 3_000  # messages a partition


def stream(first: int) -> list[bytes]:
    """Return messages, of which every second has a label and every tenth is none."""
    found = list(enumerate(examples(N, first), first))
    values = [message(example, i, labelled=i % 2 == 0) for i, example in found]
    return [b"{broken %d" % i if i % 10 == 5 else each for i, each in enumerate(values)]


def sections(broker: Broker, topic: str, predictions: str, rejects: str) -> dict[str, Any]:
    """Return the configuration of a daemon with transactions."""
    return {
        "source": f"kafka://{broker.address}/{topic}",
        "predictions": {"to": f"kafka:{predictions}"},
        "rejects": {"to": f"kafka:{rejects}"},
        "checkpoint": {"folder": "state", "interval_s": 0.7},
    }


def test_each_prediction_and_reject_is_committed_once_across_kills(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """After SIGKILLs amid, readers of committed records see each message's record exactly once.

    The checkpoints stand behind the transactions or before them, so some messages are learned
    again; the counts are those of a run without a kill, and the group stands at the end.
    """
    topic, predictions, rejects = new_topic(2), new_topic(3), new_topic()
    path = tmp_path / "config.yaml"
    kafka = {
        "transactions": True,
        "transaction_interval_s": 0.05,
        "max_poll_messages": 20,
        "group_id": f"of-{topic}",
        "session_timeout_s": 6.0,
    }
    config = write_config(path, kafka=kafka, **sections(broker, topic, predictions, rejects))
    for n, n_messages in enumerate((400, 900, 1_500)):
        for number in (0, 1):
            values = stream(number * N)[n * N // 3 : (n + 1) * N // 3]
            fill(broker.address, topic, values, number)
        with Daemon(config) as daemon:
            daemon.until_metric("streamnb_messages_total", n_messages)
            daemon.kill()
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    learned = [each for i, each in enumerate(examples(2 * N)) if i % 2 == 0]
    assert counts_at(tmp_path / "state") == counts_of(learned)

    with Reader(broker.address, predictions) as reader:
        reader.until(reader.source.at_end)
        ids = Counter(b.key(i) for b in reader.batches for i in range(len(b)))
    unlabelled = [i for i in range(2 * N) if i % 2 == 1 and i % 10 != 5]
    assert ids == Counter({b"m%d" % i: 1 for i in unlabelled})
    with Reader(broker.address, rejects) as reader:
        reader.until(reader.source.at_end)
        offsets = Counter(json.loads(v or b"")["offset"] for v in reader.values[0])
    assert offsets == Counter(dict.fromkeys(range(5, N, 10), 2))  # once in each partition

    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": f"of-{topic}"})
    both = [TopicPartition(topic, number) for number in (0, 1)]
    assert [each.offset for each in consumer.committed(both, PATIENCE_S)] == [N, N]
    consumer.close()


def test_of_two_daemons_one_ends(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    """A daemon whose transactions another one has taken over ends by itself, and says why.

    It notices as soon as it has something to write: of two partitions it keeps at least one. Most
    often it is the first of the two; it is the second if the first began a transaction behind it.
    """
    topic, predictions, rejects = new_topic(2), new_topic(), new_topic()
    kafka = {"transactions": True, "group_id": f"of-{topic}", "session_timeout_s": 6.0}
    folders = [tmp_path / name for name in ("first", "second")]
    configs = []
    for folder in folders:
        folder.mkdir()
        own = sections(broker, topic, predictions, rejects)
        configs.append(write_config(folder / "config.yaml", kafka=kafka, **own))

    def go_on(begin: int, end: int) -> None:
        for number in (0, 1):
            fill(broker.address, topic, stream(number * N)[begin:end], number)

    go_on(0, 500)
    with Daemon(configs[0]) as first:
        first.until_metric("streamnb_messages_total", 1_000)
        first.until_metric("streamnb_transactions_total", 1)
        with Daemon(configs[1]) as second:
            n_written = 500
            while first.listen(0.2) and second.listen(0.2):
                assert n_written < 1_500, (first.lines[-5:], second.lines[-5:])
                go_on(n_written, n_written + 1)
                n_written += 1
            # Their group stands still until the one has left it, or is known to be gone.
            ended, other = (second, first) if first.listen(0.0) else (first, second)
            assert ended.wait() == 78
            assert "another daemon has taken over" in str(ended.lines[-1])
            go_on(n_written, 1_500)
            other.until_metric("streamnb_messages_total", 3_000)
            assert other.stop() == 0
    with Reader(broker.address, predictions) as reader:
        reader.until(reader.source.at_end)
        ids = Counter(b.key(i) for b in reader.batches for i in range(len(b)))
    written = [*range(1_500), *range(N, N + 1_500)]
    assert ids == Counter({b"m%d" % i: 1 for i in written if i % 2 == 1 and i % 10 != 5})
