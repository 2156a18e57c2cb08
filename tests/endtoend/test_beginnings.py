"""Where a partition begins is kept from the first moment, whatever kills the daemon."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, messages

# The second client has its turn in the long run.
EACH = ["kafka-python", pytest.param("librdkafka", marks=pytest.mark.deep)]
pytestmark = [pytest.mark.integration, pytest.mark.parametrize("client", EACH)]
NewTopic = Callable[..., str]


def configured(
    folder: Path, broker: Broker, topic: str, run: int, client: str, interval_s: float = 3600.0
) -> Path:
    """Write a configuration that begins at the log's end; each run is a member of its own group."""
    return write_config(
        folder / "config.yaml",
        source=f"kafka://{broker.address}/{topic}",
        kafka={
            "client": client,
            "group_id": f"{topic}-{run}",
            "start_from": "latest",
            "metadata_interval_s": 0.5,
        },
        checkpoint={"folder": "state", "interval_s": interval_s},
    )


def notes(folder: Path) -> dict[str, Any]:
    """Return what the checkpoint knows of the logs."""
    found: dict[str, Any] = read(folder / "state" / "model.nb").header["notes"]["entries"]["logs"]
    return found


@pytest.mark.deep
def test_what_came_while_it_was_away_is_learned(
    broker: Broker, new_topic: NewTopic, tmp_path: Path, client: str
) -> None:
    """Quiet partitions keep their beginning over SIGTERM, and over SIGKILL before any message."""
    topic = new_topic(2)
    fill(broker.address, topic, messages(examples(40)))
    config = configured(tmp_path, broker, topic, 1, client)
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_checkpoints_total", 1)
        assert daemon.stop() == 0
    begins = {name: facts.get("begin", 0) for name, facts in notes(tmp_path).items()}
    assert begins == {f"{topic}/0": 40, f"{topic}/1": 0}
    fill(broker.address, topic, messages(examples(100, 40)))
    config = configured(tmp_path, broker, topic, 2, client)
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", 100)
        daemon.kill()  # before the interval's first checkpoint
    fill(broker.address, topic, messages(examples(50, 140)), 1)
    config = configured(tmp_path, broker, topic, 3, client)
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
    assert counts_at(tmp_path / "state") == counts_of(examples(150, 40))


def test_a_kill_before_the_first_message_loses_nothing(
    broker: Broker, new_topic: NewTopic, tmp_path: Path, client: str
) -> None:
    """The first checkpoint is there before anything is learned; what a kill takes comes again."""
    topic = new_topic()
    fill(broker.address, topic, messages(examples(30)))
    with Daemon(configured(tmp_path, broker, topic, 1, client)) as daemon:
        daemon.until_metric("streamnb_checkpoints_total", 1)
        fill(broker.address, topic, messages(examples(300, 30)))
        daemon.until_metric("streamnb_messages_total", 1)
        daemon.kill()
    assert not read(tmp_path / "state" / "model.nb").positions
    with Daemon(configured(tmp_path, broker, topic, 2, client), "--until-end") as daemon:
        assert daemon.wait() == 0
        assert daemon.summary["learned"] == 300
    assert counts_at(tmp_path / "state") == counts_of(examples(300, 30))


def test_partitions_that_are_added_are_read_whole(
    broker: Broker, new_topic: NewTopic, tmp_path: Path, client: str
) -> None:
    """One that comes while it runs, and one that comes while it is away, from their starts."""
    topic = new_topic()
    fill(broker.address, topic, messages(examples(30)))
    with Daemon(configured(tmp_path, broker, topic, 1, client)) as daemon:
        daemon.until_metric("streamnb_checkpoints_total", 1)
        broker.add_partitions(topic, 2)
        fill(broker.address, topic, messages(examples(200, 30)), 1)
        daemon.until_metric("streamnb_messages_total", 200)
        began = [line["positions"] for line in daemon.lines if line["event"] == "reading_begins"]
        assert {f"{topic}[1]": 0} in began
        daemon.kill()
    assert notes(tmp_path)[f"{topic}/1"].get("begin", 0) == 0
    broker.add_partitions(topic, 3)
    fill(broker.address, topic, messages(examples(70, 230)), 2)
    with Daemon(configured(tmp_path, broker, topic, 2, client), "--until-end") as daemon:
        assert daemon.wait() == 0
    assert counts_at(tmp_path / "state") == counts_of(examples(270, 30))


@pytest.mark.parametrize("part", [(), ("--from", "offset:0")], ids=["whole", "part"])
def test_nothing_of_a_topic_made_anew_is_saved(
    broker: Broker, new_topic: NewTopic, tmp_path: Path, client: str, part: tuple[str, ...]
) -> None:
    """While it runs: exit code 78, and a checkpoint that holds the old topic's messages alone.

    librdkafka reads on in the new one before it is noticed, so what came since the last checkpoint
    is not saved.
    """
    topic = new_topic()
    config = configured(tmp_path, broker, topic, 1, client)
    with Daemon(config, *part) as daemon:
        daemon.until_metric("streamnb_checkpoints_total", 1)
        fill(broker.address, topic, messages(examples(100)))
        daemon.until_metric("streamnb_messages_total", 100)
        broker.delete_topic(topic)
        broker.create_topic(topic)
        fill(broker.address, topic, messages(examples(300, 1_000)))
        assert daemon.wait() == 78
        assert daemon.count("checkpoint_failed") == (client == "librdkafka")
    saved = read(tmp_path / "state" / "model.nb")
    if client == "librdkafka":
        assert (saved.model.n_examples, saved.positions) == (0, {})
    else:
        assert counts_at(tmp_path / "state") == counts_of(examples(100))


@pytest.mark.deep
def test_a_topic_made_anew_and_longer_is_refused(
    broker: Broker, new_topic: NewTopic, tmp_path: Path, client: str
) -> None:
    """Exit code 78 names both ids; the checkpoint stays as it was."""
    topic = new_topic()
    with Daemon(configured(tmp_path, broker, topic, 1, client)) as daemon:
        daemon.until_metric("streamnb_checkpoints_total", 1)
        fill(broker.address, topic, messages(examples(100)))
        daemon.until_metric("streamnb_messages_total", 100)
        assert daemon.stop() == 0
    old = notes(tmp_path)[f"{topic}/0"]["topic_id"]
    for made in (1, 2):
        broker.delete_topic(topic)
        broker.create_topic(topic)
        fill(broker.address, topic, messages(examples(300, 1_000 * made)))
        config = configured(tmp_path, broker, topic, 1 + made, client)
        done = command("run", "--config", config, folder=tmp_path)
        assert done.returncode == 78, done.stderr
        assert f"is of the one with the id {old}".encode() in done.stderr
        assert b"checkpoint.folder" in done.stderr
    assert counts_at(tmp_path / "state") == counts_of(examples(100))
