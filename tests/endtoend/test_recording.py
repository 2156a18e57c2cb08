"""`streamnb record` on a real broker: killed amid its work, and replayed to the same model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from consumers.config.addresses import FileSettings
from consumers.messages import Partition
from consumers.sources.recording import RecordingSource
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import fill
from tests.endtoend.daemon_process import Daemon, command, environment, write_config
from tests.endtoend.expected_counts import examples, messages, state_at

PARTITIONS = 2
N = 15_000  # in each


def _kill_once_it_has(path: Path, n_bytes: int, *arguments: str | Path) -> None:
    """Record until the file has so many bytes more, and kill the recorder with SIGKILL."""
    enough = n_bytes + (path.stat().st_size if path.exists() else 0)
    with subprocess.Popen(
        [sys.executable, "-m", "consumers", "record", *arguments],
        cwd=path.parent,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while process.poll() is None and (not path.exists() or path.stat().st_size < enough):
            os.sched_yield()
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def _offsets(path: Path) -> dict[Partition, list[int]]:
    source = RecordingSource(path, FileSettings(), wait=lambda _: None)
    source.open(lambda _: None)
    found: dict[Partition, list[int]] = {}
    while not source.at_end():
        for raw in source.poll(0.0):
            found.setdefault(raw.partition, []).extend(raw.offsets.tolist())
    source.close()
    return found


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.deep
def test_a_recorder_that_is_killed_doubles_and_loses_nothing(
    broker: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """A SIGKILL; each message stands once. The model of the recording is that of the topic.

    A state folder that learned from the recording learns the rest from the topic itself.
    """
    topic = new_topic(PARTITIONS)
    logs = [messages(examples(N + 500, first=number * 2 * N)) for number in range(PARTITIONS)]
    for number, log in enumerate(logs):
        fill(broker.address, topic, log[: N // 2], number)
    address, path = f"kafka://{broker.address}/{topic}", tmp_path / "r.jsonl.gz"
    # Small polls: a frame is never far from its end.
    write_config(tmp_path / "config.yaml", kafka={"max_poll_messages": 500})
    _kill_once_it_has(path, 50_000, address, path)
    for number, log in enumerate(logs):
        fill(broker.address, topic, log[N // 2 : N], number)
    ended = command("record", address, path, "--until-end", "--json", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    whole = {Partition(topic, number): list(range(N)) for number in range(PARTITIONS)}
    assert _offsets(path) == whole
    assert 0 < json.loads(ended.stdout)["messages"] < PARTITIONS * N

    assert _learned(tmp_path, f"recording:{path}", "of-recording") == PARTITIONS * N
    assert _learned(tmp_path, address, "of-topic") == PARTITIONS * N
    assert state_at(tmp_path / "of-recording") == state_at(tmp_path / "of-topic")
    for number, log in enumerate(logs):
        fill(broker.address, topic, log[N:], number)
    assert _learned(tmp_path, address, "of-recording") == PARTITIONS * 500


def _learned(folder: Path, source: str, state: str) -> int:
    """Let a daemon learn a source up to its end; return how many messages it learned."""
    kafka = {"group_id": f"group-of-{state}"}
    config = write_config(
        folder / f"{state}.yaml", source=source, kafka=kafka, checkpoint={"folder": state}
    )
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, (source, daemon.lines[-3:])
        return int(daemon.summary["learned"])


def test_sigterm_ends_a_recording_in_order(tmp_path: Path) -> None:
    """Exit code 0, all that was read is in the file, and it says how much."""
    path = tmp_path / "r.jsonl.gz"
    with subprocess.Popen(
        [sys.executable, "-m", "consumers", "record", "generator", path],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
    ) as process:
        while process.poll() is None and (not path.exists() or path.stat().st_size < 20_000):
            os.sched_yield()
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    (offsets,) = _offsets(path).values()
    assert offsets == list(range(len(offsets)))
    assert said.startswith(f"{len(offsets):,} messages recorded (told to stop)".encode())
