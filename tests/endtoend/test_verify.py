"""A receipt from a real broker: a killed daemon's counts against a topic that took much back."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streamnb.storage import read
from tests.broker.broker import Broker
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, command, write_config

N = 800
PARTITIONS = 2
CORRECTED = range(100, 120)


def log_of(partition: int) -> Iterator[tuple[str, bytes | None]]:
    """Yield key and value of a partition's messages: one in six takes an earlier one back."""
    chance = random.Random(partition)
    for number in range(N):
        what = chance.random() if number not in CORRECTED else 1.0
        taken = chance.randrange(120, max(number + 5, 125))  # those that people correct stay
        if what < 0.08:
            yield f"{partition}-{taken}", None
            continue
        name = f"{partition}-{taken}" if what < 0.16 else f"{partition}-{number}"
        message = {"id": name, "text": f"w{chance.randrange(90)} w{chance.randrange(9)} o{number}"}
        message |= {"operation": "update"} if what < 0.16 else {}
        yield name, json.dumps(message | {"label": 4 * chance.randrange(2)}).encode()


@pytest.mark.deep
@pytest.mark.integration
def test_a_topic_is_the_receipt_of_a_daemon_that_was_killed(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Tombstones, updates, people and SIGKILLs: verified while it runs, until the head is gone."""
    topic = new_topic(PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.address})

    def write(partition: int, begin: int, end: int) -> None:
        for key, value in islice(log_of(partition), begin, end):
            producer.produce(topic, value, key=key, partition=partition)
        assert producer.flush(60) == 0

    write(0, 0, CORRECTED.start)
    write(1, 0, N)
    config = write_config(
        tmp_path / "config.yaml",
        source=f"kafka://{broker.address}/{topic}",
        kafka={"group_id": f"group-of-{topic}", "max_poll_messages": 100, "session_timeout_s": 6},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )
    ends = {f"{topic}/{partition}": N for partition in range(PARTITIONS)}

    def is_read() -> bool:
        return ends.items() <= read(tmp_path / "state" / "model.nb").positions.items()

    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", 200)
        daemon.until_metric("streamnb_checkpoints_total", 2)
        daemon.kill()
    with Daemon(config) as daemon:
        daemon.until_it_takes_corrections()
        write(0, CORRECTED.start, N)  # what a killed daemon had read may not be on the page
        for number in CORRECTED:
            daemon.until_page(f"/v1/messages/0-{number}", 200)
            if number % 2:
                body = {"id": f"0-{number}", "label": "positive"}
                assert ask(daemon.address, "POST", "/v1/labels", body)[0] == 202
            else:
                path = f"/v1/messages/0-{number}"
                assert ask(daemon.address, "DELETE", path)[0] == 202
        daemon.kill()
    with Daemon(config) as daemon:
        daemon.until_page("/readyz", 200)
        daemon.until(is_read, "all of the topic")
        told = command("verify", "-c", str(config), "--json", folder=tmp_path)
        assert told.returncode == 0, told.stderr
        assert daemon.stop() == 0
    told = command("verify", "-c", str(config), "--json", folder=tmp_path)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)
    assert found["digest"] == found["replayed_digest"]
    assert found["taken_back"] > 100
    said = (tmp_path / "state" / "corrections.jsonl").read_bytes().splitlines()
    assert (found["messages"], found["corrections"]) == (PARTITIONS * N, len(said))
    assert len(said) >= len(CORRECTED) // 2

    broker.delete_records(topic, 1, 30)
    told = command("verify", "-c", str(config), folder=tmp_path)
    assert told.returncode == 69
    assert b"30 messages from the beginning on are no longer there" in told.stderr
