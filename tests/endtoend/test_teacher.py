"""Labels by a call: learned once, whatever is killed, and by a service that may be away."""

from __future__ import annotations

import json
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.consumers.corrections.stepped_daemon import JOURNAL_PART
from tests.consumers.corrections.test_teacher import TOKEN, answering
from tests.consumers.sources.live_server import LiveServer
from tests.endtoend.correction_clients import check_model
from tests.endtoend.daemon_process import Daemon, command, write_config
from tests.endtoend.expected_counts import examples, message

N = 100
LABELLED = 'streamnb_teacher_messages_total{outcome="labelled"}'


def label_of(text: str) -> str:
    """Return what the teacher says of a text."""
    return ("negative", "positive")[len(text) % 2]


def judge(texts: list[str]) -> dict[str, Any]:
    """Answer for some texts."""
    return {"predictions": [{"label": label_of(text), "probability": 0.99} for text in texts]}


def unlabelled(numbers: range) -> bytes:
    """Return lines of messages without a label."""
    texts = [f"rain sun {'x' * (i % 7)} w{i}" for i in numbers]
    lines = [{"id": f"u{i}", "text": text} for i, text in zip(numbers, texts, strict=True)]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def has_labelled(daemon: Daemon, n: int) -> bool:
    """Return whether so many labels were handed in."""
    lines = dict(line.rsplit(" ", 1) for line in daemon.get("/metrics")[1].splitlines())
    return float(lines[LABELLED]) >= n


@pytest.mark.deep
def test_labels_by_a_call_are_learned_once(tmp_path: Path) -> None:
    """Killed while it is taught, and again behind that: the counts are those of the stream and of
    the journal, in which each message stands once. While the service is away the daemon is
    degraded, and learns on. The token is seen by the service alone.
    """
    path, folder = tmp_path / "in.jsonl", tmp_path / "state"
    lines = [message(each, i) for i, each in enumerate(examples(N))]
    path.write_bytes(b"\n".join(lines) + b"\n" + unlabelled(range(40)))
    with LiveServer(answering(judge)) as server:
        teacher = {"url": f"http://{server.host}/v1/predict", "token": "${TEACHER_TOKEN}"}
        config = write_config(
            tmp_path / "config.yaml",
            source=f"file:{path}",
            labels={"teacher": teacher | {"budget_per_s": 20.0, "timeout_s": 30.0}},
            checkpoint={"folder": str(folder), "interval_s": 0.05},
        )
        env = {"TEACHER_TOKEN": TOKEN}
        for begin, n in ((40, 10), (60, 1)):
            with Daemon(config, env=env) as daemon:
                daemon.until_page("/readyz", 200)
                daemon.until(partial(has_labelled, daemon, n), "labels")
                daemon.kill()
            with path.open("ab") as file:
                file.write(unlabelled(range(begin, begin + 20)))
        logins = {peer.header("Authorization") for peer in server.peers}
        assert logins == {f"Bearer {TOKEN}"}
    with socket.socket() as kept:  # nobody listens there, and no other test gets the port
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", int(server.host.rpartition(":")[2])))
        with Daemon(config, env=env) as daemon:
            daemon.until_page("/readyz", 200)
            with path.open("ab") as file:
                file.write(unlabelled(range(80, 90)))
            ready = daemon.until_page("/readyz", 200, "labels.teacher")
            assert "Connection refused" in ready["degraded"]
            assert daemon.stop() == 0
            log = json.dumps(daemon.lines)
            assert "teacher_trouble" in log
            assert TOKEN not in log
        # A stop leaves what it has not read yet.
        with Daemon(config, "--until-end", env=env) as daemon:
            assert daemon.wait() == 0
    journal = [json.loads(line) for line in (folder / "corrections.jsonl").read_text().splitlines()]
    assert {line["by"] for line in journal} == {"teacher"}
    names = [line["id"] for line in journal]
    assert len(set(names)) == len(names) >= 11
    taught = [(line["example"]["text"], line["label"]) for line in journal]
    assert all(label == label_of(text) for text, label in taught)
    check_model(folder, {f"file:{path.name}/0": examples(N), JOURNAL_PART: taught})
    assert command("verify", "--config", str(config), folder=tmp_path, env=env).returncode == 0
