"""`streamnb serve --follow`: replicas beside a daemon, killed and started again."""

from __future__ import annotations

import contextlib
import json
import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.endtoend.daemon_process import Daemon, command, write_config

TEXT = "what a lovely morning"


def predicted(daemon: Daemon) -> dict[str, Any]:
    """Return the answer to one question."""
    request = urllib.request.Request(
        f"{daemon.address}/v1/predict",
        json.dumps({"text": TEXT}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


@contextlib.contextmanager
def replica_of(config: Path, place: str) -> Iterator[Daemon]:
    """Run a replica until it is ready."""
    with Daemon(config, "--follow", place, "--port", "0", name="serve") as replica:
        replica.until_page("/readyz", 200)
        yield replica


@pytest.mark.deep
@pytest.mark.slow
def test_replicas_outlive_their_daemon(tmp_path: Path) -> None:
    """By URL and by folder they answer as the daemon does, also once that is gone."""
    lines = [json.dumps({"text": TEXT, "label": "positive"})] * 30
    lines += [json.dumps({"text": "an awful evening", "label": "negative"})] * 30
    (tmp_path / "tweets.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    config = write_config(
        tmp_path / "config.yaml",
        source=f"file:{tmp_path / 'tweets.jsonl'}",
        checkpoint={"folder": str(tmp_path / "state")},
        http={"port": 0, "snapshots": True},
        follow={"interval_s": 0.05},
    )
    with Daemon(config) as daemon:
        daemon.until_page("/v1/model", 200, '"n_examples":60,')
        with replica_of(config, daemon.address) as by_url:
            by_url.until(lambda: predicted(by_url) == predicted(daemon), "it has the version")
            last = predicted(daemon)
            assert daemon.stop() == 0
            by_url.until_metric("streamnb_follow_failures_total", 1)
            found = predicted(by_url)
            assert (found["predictions"], found["n_examples"]) == (last["predictions"], 60)
            assert by_url.stop() == 0
    with replica_of(config, str(tmp_path / "state")) as by_folder:
        found = predicted(by_folder)
        assert (found["predictions"], found["n_examples"]) == (last["predictions"], 60)
    numbers = {"features": {"size": {"kind": "numbers", "fields": ["amount"]}}}
    other = write_config(tmp_path / "other.yaml", model=numbers)
    done = command("serve", "-c", other, "--follow", "state", folder=tmp_path)
    assert done.returncode == 78
    assert b"reads text (words)" in done.stderr


@pytest.mark.deep
@pytest.mark.timeout(900)
def test_what_answers_is_whole_whoever_is_killed(tmp_path: Path) -> None:
    """While a daemon learns at full rate, one version gives one answer, at any replica."""
    config = write_config(
        tmp_path / "config.yaml",
        source="generator",
        generator={"rate_per_s": 0},
        checkpoint={"folder": str(tmp_path / "state"), "interval_s": 0.5},
        http={"port": 0, "snapshots": True},
        follow={"interval_s": 0.02},
    )
    chance = random.Random(16)
    for _ in range(2):
        answers: dict[int, dict[str, Any]] = {}
        with Daemon(config) as daemon:
            daemon.until_metric("streamnb_snapshot_version", 2)
            with replica_of(config, daemon.address) as one:
                for _ in range(2):
                    with replica_of(config, daemon.address) as two:
                        for _ in range(chance.randrange(10, 60)):
                            for each in (one, two, daemon):
                                found = predicted(each)
                                version = found["snapshot_version"]
                                assert answers.setdefault(version, found) == found
                        two.kill()
                one.until_metric("streamnb_follow_deltas_total", 1)
                before = predicted(one)
                daemon.kill()
                found = predicted(one)  # of a version, perhaps, that nobody was asked for yet
                version = found["snapshot_version"]
                assert version >= before["snapshot_version"]
                assert answers.setdefault(version, found) == found
        assert len(answers) > 2
