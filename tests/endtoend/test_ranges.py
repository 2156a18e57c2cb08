"""A part of a stream, by time, from the command line: the same of a topic and of a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.broker.broker import Broker
from tests.consumers.kafka.topics import PATIENCE_S
from tests.endtoend.daemon_process import command, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, message

NewTopic = Callable[..., str]
BEGIN_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
N = 200  # messages, one a second


def timed() -> list[bytes]:
    """Return messages that say when they were written."""
    values = [json.loads(message(each, i)) for i, each in enumerate(examples(N))]
    return [
        json.dumps(value | {"created_at": BEGIN_MS + i * 1000}).encode()
        for i, value in enumerate(values)
    ]


def check_ranges(folder: Path, source: str, group: str) -> None:
    """Learn two parts of a stream that meet, and see that one behind a gap is refused."""
    config = write_config(
        folder / "config.yaml",
        source=source,
        kafka={"group_id": group, "session_timeout_s": 6.0},
        checkpoint={"folder": "state"},
        http={"enabled": False},
    )
    begin, middle, end = (
        "2023-11-14T22:14:10Z",
        str(BEGIN_MS + 100_000),
        "2023-11-14T23:15:50+01:00",
    )
    for bounds in (("--from", begin, "--to", middle), ("--from", middle, "--to", end)):
        done = command("run", "--config", config, "--json", *bounds, folder=folder)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["messages"] == 50
    assert counts_at(folder / "state") == counts_of(examples(100, 50))
    after_gap = ("--from", str(BEGIN_MS + 180_000), "--until-end")
    done = command("run", "--config", config, "--json", *after_gap, folder=folder)
    assert done.returncode == 69
    assert b"the messages between would be left out" in done.stderr
    assert counts_at(folder / "state") == counts_of(examples(100, 50))


def test_a_part_goes_on_with_an_older_message(tmp_path: Path) -> None:
    """The same command reads the rest after a stop, though the next message is an older one."""
    values = timed()
    mixed = [*values[50:80], *values[20:40], json.dumps({"text": "x"}).encode(), *values[80:100]]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(mixed) + b"\n")
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.jsonl",
        checkpoint={"folder": "state"},
        http={"enabled": False},
    )
    found = []
    for limit in (("--max-messages", "20"), ("--until-end",)):
        begin = ("--from", str(BEGIN_MS + 60_000), *limit)
        done = command("run", "--config", config, "--json", *begin, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout)["messages"])
    assert found == [20, 41]


def test_a_part_of_a_file(tmp_path: Path) -> None:
    """The times are those in its messages."""
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(timed()) + b"\n")
    check_ranges(tmp_path, "file:in.jsonl", "none")


@pytest.mark.integration
@pytest.mark.deep
def test_a_part_of_a_topic(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    """The times are the topic's, in each of its partitions."""
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": broker.address})
    for i, value in enumerate(timed()):
        producer.produce(topic, value, partition=i % 2, timestamp=BEGIN_MS + i * 1000)
    assert producer.flush(PATIENCE_S) == 0
    check_ranges(tmp_path, f"kafka://{broker.address}/{topic}", f"of-{topic}")
