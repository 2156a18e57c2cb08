"""Stopping, ending and going on: exit codes, checkpoints, and what is refused to go on from."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.monitoring.status import Health, State
from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, messages

NewTopic = Callable[..., str]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(tmp_path: Path, by: signal.Signals) -> None:
    """Each ends it with code 0, a checkpoint of all that was read, and one JSON object."""
    config = write_config(
        tmp_path / "config.yaml", checkpoint={"folder": "state", "interval_s": 3600}
    )
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", 100)
        assert daemon.stop(by) == 0
        assert len(daemon.output.splitlines()) == 1
        summary = daemon.summary
        assert daemon.until_line("stopping")["signal"] == by.name
    assert summary["exit_reason"] == "told to stop"
    stored = read(tmp_path / "state" / "model.nb")
    assert stored.positions == {"generator/0": summary["messages"]}
    assert stored.model.class_counts.tolist() == summary["class_counts"]
    assert stored.model.n_examples == summary["learned"]


def test_the_models_history_goes_on(tmp_path: Path) -> None:
    """The next run has the figures of the one before, and says where it began."""
    config = write_config(tmp_path / "config.yaml", checkpoint={"folder": "state"})
    histories = []
    for _ in range(3):
        with Daemon(config) as daemon:
            daemon.until_metric("streamnb_messages_total", 100)
            histories.append(json.loads(daemon.get("/v1/model")[1])["history"])
            assert daemon.stop() == 0
    first, *later = histories
    assert [event for point in first for event in point["events"]] == []
    for n, history in enumerate(later, 1):
        times = [point["time_ms"] for point in history]
        assert times == sorted(times)
        assert times[0] == first[0]["time_ms"]
        assert [event for point in history for event in point["events"]] == ["restart"] * n


@pytest.mark.deep
def test_standard_input_ends_it(tmp_path: Path) -> None:
    """With --until-end a pipe is read to its end and learned; its records are numbered on."""
    config = write_config(tmp_path / "config.yaml", checkpoint={"folder": "state"})
    for attempt in (1, 2):
        found = examples(300, 300 * (attempt - 1))
        done = command(
            "run", "--config", config, "--source", "stdin", "--until-end", "--json",
            folder=tmp_path, stdin=b"\n".join(messages(found)),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        summary = json.loads(done.stdout)
        assert (summary["messages"], summary["positions"]) == (300, {"stdin[0]": 300 * attempt})
        assert summary["exit_reason"] == "end of source"
    assert counts_at(tmp_path / "state") == counts_of(examples(600))


@pytest.mark.integration
@pytest.mark.deep
def test_silent_partitions_and_topics_end_too(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """--until-end ends where one of two partitions, or all of a topic, never had a message."""
    half, empty = new_topic(2), new_topic(3)
    fill(broker.address, half, messages(examples(100)), 1)
    for topic, positions in ((half, [0, 100]), (empty, [0, 0, 0])):
        config = write_config(
            tmp_path / "config.yaml",
            source=f"kafka://{broker.address}/{topic}",
            kafka={"group_id": f"group-of-{topic}"},
            checkpoint={"folder": f"state-{topic}"},
        )
        with Daemon(config, "--until-end") as daemon:
            assert daemon.wait() == 0
            assert daemon.summary["messages"] == sum(positions)
            found = daemon.summary["positions"]
        assert all(found.get(f"{topic}[{n}]", 0) == at for n, at in enumerate(positions))


@pytest.mark.deep
@pytest.mark.integration
def test_an_idle_topic_is_healthy_and_what_is_removed_is_told(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Silence is healthy; records removed below our position cost nothing, above it are lost."""
    topic = new_topic()
    fill(broker.address, topic, messages(examples(300)))
    sections = {
        "source": f"kafka://{broker.address}/{topic}",
        "checkpoint": {"folder": "state", "interval_s": 0.2},
        "http": {"port": 0, "stuck_after_s": 2.0},
    }
    path = tmp_path / "config.yaml"
    with Daemon(write_config(path, kafka={"group_id": f"{topic}-1"}, **sections)) as daemon:
        daemon.until_metric("streamnb_messages_total", 300)
        # Silent for longer than READING_WITHIN_S, and than a stuck loop may be.
        page = daemon.until_page("/healthz", 200, '"idle"')
        assert page["reason"] is None
        assert page["last_message_age_s"] >= 2.0
        daemon.until(lambda: daemon.metric("streamnb_snapshot_age_seconds") > 3.0, "3 s are over")
        assert daemon.until_page("/readyz", 200)["state"] == "idle"
        broker.delete_records(topic, 0, 200)
        fill(broker.address, topic, messages(examples(100, 300)))
        daemon.until_metric("streamnb_messages_total", 400)
        assert daemon.metric("streamnb_messages_lost_total") == 0
        assert daemon.stop() == 0
    fill(broker.address, topic, messages(examples(100, 400)))
    broker.delete_records(topic, 0, 450)
    with Daemon(write_config(path, kafka={"group_id": f"{topic}-2"}, **sections)) as daemon:
        daemon.until_metric("streamnb_messages_total", 50)
        daemon.until_metric("streamnb_messages_lost_total", 50)
        said = daemon.until_line("messages_lost")
        assert (said["lost"], said["went_on_at"], said["level"]) == (50, 450, "error")
        assert daemon.stop() == 0
    assert counts_at(tmp_path / "state") == counts_of([*examples(400), *examples(50, 450)])


@pytest.mark.integration
def test_a_topic_made_anew_is_refused(broker: Broker, new_topic: NewTopic, tmp_path: Path) -> None:
    """A log of another id is another of that name, here a shorter one: 78 says what to do."""
    topic = new_topic()
    fill(broker.address, topic, messages(examples(100)))
    path = tmp_path / "config.yaml"
    source = f"kafka://{broker.address}/{topic}"
    checkpoint = {"folder": "state"}
    write_config(path, source=source, kafka={"group_id": f"{topic}-1"}, checkpoint=checkpoint)
    with Daemon(path, "--until-end") as daemon:
        assert daemon.wait() == 0
    before = counts_at(tmp_path / "state")
    broker.delete_topic(topic)
    broker.create_topic(topic)
    write_config(path, source=source, kafka={"group_id": f"{topic}-2"}, checkpoint=checkpoint)
    done = command("run", "--config", path, folder=tmp_path)
    assert done.returncode == 78
    assert b"was deleted and created again: it has the id" in done.stderr
    assert b"give the daemon another checkpoint.folder" in done.stderr
    assert counts_at(tmp_path / "state") == before


@pytest.mark.integration
def test_a_label_topic_made_anew_is_refused(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """Its positions mean nothing in another log either."""
    labels = new_topic()
    fill(broker.address, labels, [b"no correction"] * 3)
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(messages(examples(10))) + b"\n")
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.jsonl",
        kafka={"servers": [broker.address]},
        corrections={"to": f"kafka:{labels}"},
        checkpoint={"folder": "state"},
    )
    done = command("run", "--config", config, "--until-end", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    stored = read(tmp_path / "state" / "model.nb")
    assert stored.positions[f"{labels}/0"] == 3
    broker.delete_topic(labels)
    broker.create_topic(labels)
    fill(broker.address, labels, [b"no correction"] * 9)
    done = command("run", "--config", config, "--until-end", folder=tmp_path)
    assert done.returncode == 78
    assert f"topic '{labels}' was deleted and created again".encode() in done.stderr


@pytest.mark.parametrize("limit", [[], ["--max-messages", "70"]])
def test_a_longer_file_of_that_name_is_refused(tmp_path: Path, limit: list[str]) -> None:
    """Another file under the old name: 78 says what to do, and the checkpoint stays as it is."""
    recorded = tmp_path / "in.jsonl"
    recorded.write_bytes(b"\n".join(messages(examples(100))) + b"\n")
    config = write_config(
        tmp_path / "config.yaml", source="file:in.jsonl", checkpoint={"folder": "state"}
    )
    done = command("run", "--config", config, "--until-end", *limit, folder=tmp_path)
    assert done.returncode == 0
    before = counts_at(tmp_path / "state")
    recorded.write_bytes(b"\n".join(messages(examples(300, 1_000))) + b"\n")
    done = command("run", "--config", config, "--until-end", folder=tmp_path)
    assert done.returncode == 78
    assert b"in.jsonl: its bytes 0 to " in done.stderr
    assert b"begin with an empty checkpoint.folder" in done.stderr
    assert counts_at(tmp_path / "state") == before


def test_another_configuration_is_refused(tmp_path: Path) -> None:
    """A checkpoint of another model or stream is refused with 78, each difference named."""
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(messages(examples(50))))
    sections = {"source": "file:in.jsonl", "checkpoint": {"folder": "state"}}
    path = tmp_path / "config.yaml"
    write_config(path, **sections)
    with Daemon(path, "--until-end") as daemon:
        assert daemon.wait() == 0
    kept = (tmp_path / "state" / "model.nb").read_bytes()
    text = {"likelihood": "bernoulli", "ngrams": [1, 3], "max_words": 100}
    model = {"classes": ["negative", "neutral", "positive"], "features": {"text": text}}
    others = {
        "model.": {**sections, "model": model},
        '"file:in.jsonl", the configuration "generator"': {
            "source": "generator",
            "checkpoint": {"folder": "state"},
        },
    }
    for named, other in others.items():
        write_config(path, **other)
        done = command("run", "--config", path, "--max-messages", "1", folder=tmp_path)
        said = done.stderr.decode()
        assert done.returncode == 78, said
        assert named in said
        assert "name another checkpoint.folder" in said
        if named == "model.":
            assert "neutral" in said
            assert "ngrams" in said
            assert "max_words" not in said  # that may be moved at any time
    assert (tmp_path / "state" / "model.nb").read_bytes() == kept


def test_a_damaged_checkpoint_falls_back(tmp_path: Path) -> None:
    """Where the newest file is damaged the one before serves, loudly; the counts end the same."""
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(messages(examples(1_000))) + b"\n")
    config = write_config(
        tmp_path / "config.yaml", source="file:in.jsonl", checkpoint={"folder": "state"}
    )
    state = tmp_path / "state"
    for _ in (1, 2):
        done = command("run", "--config", config, "--max-messages", "300", folder=tmp_path)
        assert done.returncode == 0
    data = bytearray((state / "model.nb").read_bytes())
    assert read(state / "model.nb.1").model.n_examples == 300
    data[-100] ^= 0x10
    (state / "model.nb").write_bytes(data)
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0
        assert daemon.until_line("checkpoint_damaged")["level"] == "error"
        assert daemon.summary["messages"] == 700
    assert counts_at(state) == counts_of(examples(1_000))


def test_a_checkpoint_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    """A full disk is counted and told; the stream goes on, the next checkpoint holds all."""
    state = tmp_path / "state"
    state.mkdir()
    (state / ".model.nb.new").symlink_to("/dev/full")
    config = write_config(
        tmp_path / "config.yaml", checkpoint={"folder": "state", "interval_s": 0.3}
    )
    with Daemon(config) as daemon:
        said = daemon.until_line("checkpoint_failed")
        assert "No space left on device" in said["detail"]
        assert said["level"] == "error"
        assert daemon.metric("streamnb_checkpoint_failures_total") >= 1
        daemon.until_metric("streamnb_checkpoints_total", 1)  # there is room again

        def is_told() -> bool:
            with contextlib.suppress(FileExistsError):  # as full as before, at each checkpoint
                (state / ".model.nb.new").symlink_to("/dev/full")
            status, page = daemon.get("/readyz")
            return status == 200 and "No space left on device" in page

        daemon.until(is_told, "/readyz says that the disk is full")
        daemon.until_page("/readyz", 200, '"degraded":null')  # there is room again

        # Now the folder itself is lost.
        def is_gone() -> bool:
            with contextlib.suppress(OSError):  # a checkpoint is written there meanwhile
                shutil.rmtree(state)
            return not state.exists()

        daemon.until(is_gone, "the folder is gone")
        failures = daemon.metric("streamnb_checkpoint_failures_total")
        daemon.until_metric("streamnb_checkpoint_failures_total", failures + 2)
        read_so_far = daemon.metric("streamnb_messages_total")
        daemon.until_metric("streamnb_messages_total", read_so_far + 1_000)
        assert daemon.get("/healthz")[0] == 200
        assert daemon.stop() == 74
    assert not state.exists()


def test_two_daemons_do_not_share_a_folder(tmp_path: Path) -> None:
    """A second daemon on the same checkpoint is refused; once the first is killed it may go on."""
    config = write_config(tmp_path / "config.yaml", checkpoint={"folder": "state"})
    with Daemon(config) as first:
        first.until_metric("streamnb_messages_total", 1)
        second = command("run", "--config", config, "--max-messages", "1", folder=tmp_path)
        assert second.returncode == 74
        assert b"another streamnb uses it" in second.stderr
        first.kill()
    third = command("run", "--config", config, "--max-messages", "1", folder=tmp_path)
    assert third.returncode == 0


def test_a_loop_that_no_longer_turns_is_stuck() -> None:
    """Idle for an hour is healthy while the loop turns; silent for longer than allowed is not."""
    now_s = 0.0
    health = Health(lambda: now_s, stuck_after_s=30.0)
    health.set_ready(1)
    health.beat(1)
    for _ in range(360):
        now_s += 10.0
        health.beat()
    report = health.report()
    assert (report.state, report.alive, report.ready) == (State.IDLE, True, True)
    now_s += 30.5
    report = health.report()
    assert (report.state, report.alive, report.ready) == (State.STUCK, False, False)
    assert "30.5 s" in (report.reason or "")
    health.beat()
    assert health.report().alive
