"""Predictions for messages without a label: every one leaves, to a file or a topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from streamnb.storage import read
from tests.broker.broker import Broker
from tests.consumers.kafka.topics import Reader, fill
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import counts_at, counts_of, examples, message

NewTopic = Callable[..., str]
N = 2_000


def half_labelled(first: int, last: int) -> list[bytes]:
    """Return messages, each second of them without a label."""
    found = enumerate(examples(last - first, first), first)
    return [message(example, i, labelled=i % 2 == 0) for i, example in found]


def check(lines: Iterable[dict[str, Any]], last: int) -> None:
    """See that each unlabelled message has a prediction, and that all predictions are sound."""
    ids = set()
    for line in lines:
        ids.add(line["id"])
        assert set(line["probabilities"]) == {"negative", "positive"}
        assert sum(line["probabilities"].values()) == pytest.approx(1.0, abs=1e-9)
        assert line["label"] == max(line["probabilities"], key=line["probabilities"].get)
        assert line["snapshot_version"] >= 1
    assert ids == {f"m{i}" for i in range(1, last, 2)}


@pytest.mark.deep
def test_predictions_to_a_file(tmp_path: Path) -> None:
    """Each unlabelled message has one line in the file, as metrics and summary count them."""
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(half_labelled(0, N)) + b"\n")
    config = write_config(
        tmp_path / "config.yaml",
        source="file:in.jsonl",
        file={"batch_bytes": 4096},
        predictions={"to": "file:out/predictions.jsonl"},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )
    with Daemon(config) as daemon:
        daemon.until_metric("streamnb_messages_total", N)
        daemon.until_metric("streamnb_predictions_total", N / 2)
        assert daemon.metric("streamnb_predict_seconds_count") > 0
        assert daemon.stop() == 0
        assert daemon.summary["judged"] == N / 2
    lines = (tmp_path / "out" / "predictions.jsonl").read_bytes().splitlines()
    assert len(lines) == N / 2
    check(map(json.loads, lines), N)
    versions = [json.loads(line)["snapshot_version"] for line in lines]
    assert versions == sorted(versions)


@pytest.mark.integration
@pytest.mark.deep
def test_predictions_to_a_topic_survive_a_kill(
    broker: Broker, new_topic: NewTopic, tmp_path: Path
) -> None:
    """After a SIGKILL every unlabelled message is in the topic, under its own id as the key."""
    topic, predictions = new_topic(2), new_topic(3)
    values = half_labelled(0, 2 * N)

    def write(begin: int, end: int) -> None:
        for number in (0, 1):
            fill(broker.address, topic, values[number * N + begin : number * N + end], number)

    sections: dict[str, Any] = {
        "source": f"kafka://{broker.address}/{topic}",
        "predictions": {"to": f"kafka:{predictions}"},
        "checkpoint": {"folder": "state", "interval_s": 0.05},
    }
    path = tmp_path / "config.yaml"
    for attempt in (0, 1):  # each finds something new, however far the one before came
        write(attempt * N // 3, (attempt + 1) * N // 3)
        kafka = {"group_id": f"{topic}-{attempt}", "max_poll_messages": 100}
        with Daemon(write_config(path, kafka=kafka, **sections)) as daemon:
            daemon.until_metric("streamnb_messages_total", N / 3)
            daemon.until_metric("streamnb_checkpoints_total", 1)
            daemon.kill()
    write(2 * N // 3, N)
    kafka = {"group_id": f"{topic}-last"}
    with Daemon(write_config(path, kafka=kafka, **sections), "--until-end") as daemon:
        assert daemon.wait() == 0
    learned = [each for i, each in enumerate(examples(2 * N)) if i % 2 == 0]
    assert counts_at(tmp_path / "state") == counts_of(learned)
    with Reader(broker.address, predictions) as reader:
        reader.until(lambda: reader.source.at_end() and reader.n_values >= N)
        pairs = [(each.key(i), each.value(i)) for each in reader.batches for i in range(len(each))]
    lines = [json.loads(value or b"") for _, value in pairs]
    check(lines, 2 * N)
    assert all(
        (key or b"").decode() == line["id"] for (key, _), line in zip(pairs, lines, strict=True)
    )


@pytest.mark.deep
@pytest.mark.parametrize("output", ["predictions", "rejects"])
def test_an_output_without_room_holds_the_stream(tmp_path: Path, output: str) -> None:
    """While an output's disk is full the stream waits, healthy; stopped and mended, all is exact.

    The batch that waits is learned already, so no checkpoint may be written then.
    """
    found = examples(50)
    values = [message(example, i) for i, example in enumerate(found)]
    long = "word " * 20_000
    if output == "predictions":
        values += [json.dumps({"id": f"u{i}", "text": long}).encode() for i in range(40)]
    else:
        values += [json.dumps({"text": long, "label": "?"}).encode() for i in range(40)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(values) + b"\n")
    sections: dict[str, Any] = {
        "source": "file:in.jsonl",
        "file": {"batch_bytes": 16 << 20},
        "checkpoint": {"folder": "state", "interval_s": 0.1},
    }
    path = tmp_path / "config.yaml"
    with Daemon(write_config(path, **{output: {"to": "file:/dev/full"}}, **sections)) as daemon:
        assert "No space left on device" in daemon.until_line("sink_waits")["detail"]
        assert daemon.get("/healthz")[0] == 200
        assert daemon.metric("streamnb_output_pending_bytes") > 40 * len(long)
        assert daemon.stop() == 74
        assert daemon.count("sink_waits") == 1
    saved = tmp_path / "state" / "model.nb"
    if saved.exists():  # one of nothing may be due before the batch
        assert (read(saved).positions, read(saved).model.n_examples) == ({}, 0)
    mended = write_config(path, **{output: {"to": "file:out.jsonl"}}, **sections)
    with Daemon(mended, "--until-end") as daemon:
        assert daemon.wait() == 0
    assert counts_at(tmp_path / "state") == counts_of(found)
    assert len((tmp_path / "out.jsonl").read_bytes().splitlines()) == 40
