"""What leaves a replay is a function of the log, if snapshots are published by examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consumers.config.settings import Settings
from consumers.daemon import run
from consumers.errors import MismatchError
from consumers.monitoring.status import Summary
from tests.endtoend.expected_counts import examples, message
from tests.endtoend.test_restart_laws import NoView

N = 3_000
KEY = "00c0ffee"


def stream(folder: Path) -> Path:
    """Write a file of messages, a third of them without a label."""
    found = enumerate(examples(N))
    lines = [message(example, i, labelled=i % 3 != 0) for i, example in found]
    path = folder / "in.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def replay(folder: Path, source: Path, *, n: int | None = None, **sections: Any) -> Summary:
    """Run the daemon on a file, for `n` messages or to its end."""
    given: dict[str, Any] = {
        "source": f"file:{source}",
        "http": {"enabled": False},
        "model": {"hash_key": KEY},
        "learning": {"publish": "examples", "publish_examples": 70},
        "predictions": {"to": f"file:{folder / 'out.jsonl'}"},
        "checkpoint": {"folder": folder, "interval_s": 0.01},
    }
    made = Settings.model_validate(given | sections)
    return run(made, NoView(), until_end=n is None, max_messages=n)


def test_batches_and_stops_change_no_byte(tmp_path: Path) -> None:
    """Model and predictions are the same however a file is cut, by batches or by ends of runs."""
    source, found = stream(tmp_path), []
    for name, batch_bytes, stops in (
        ("whole", 1 << 22, ()),
        ("small", 1_024, ()),
        ("stopped", 5_000, (1, 333, 70, 1_200)),
    ):
        folder = tmp_path / name
        for n in stops:
            replay(folder, source, n=n, file={"batch_bytes": batch_bytes})
        replay(folder, source, file={"batch_bytes": batch_bytes})
        found.append(((folder / "model.nb").read_bytes(), (folder / "out.jsonl").read_bytes()))
    assert found[0][1] == found[1][1] == found[2][1]
    assert found[0][0] == found[1][0] == found[2][0]
    records = [json.loads(line) for line in found[0][1].splitlines()]
    # Message i has i - i//3 - 1 labelled ones before it, and every 70th of them is a cut.
    learned = [i - (i + 2) // 3 for i in range(0, N, 3)]
    assert [each["snapshot_version"] for each in records] == [1 + n // 70 for n in learned]


def test_no_message_is_judged_by_labels_behind_it(tmp_path: Path) -> None:
    """By time too, a snapshot that knows a batch's labels judges no message of the batch."""
    lines = [message(example, i, labelled=i > 77) for i, example in enumerate(examples(400))]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    by_time = {"publish_interval_s": 1e-9, "publish_share_max": 1.0}
    replay(tmp_path, tmp_path / "in.jsonl", learning=by_time)
    records = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert len(records) == 78
    assert {each["probabilities"]["positive"] for each in records} == {0.5}


def test_a_checkpoint_with_another_hash_key_is_refused(tmp_path: Path) -> None:
    """The key cannot change under a model; no error shows it."""
    source = stream(tmp_path)
    replay(tmp_path / "state", source, n=10)
    with pytest.raises(MismatchError, match=r"another key than model\.hash_key") as caught:
        replay(tmp_path / "state", source, model={"hash_key": "ab"})
    assert "ab" not in str(caught.value).replace("checkpoint", "").split()
    assert KEY not in str(caught.value)
    assert replay(tmp_path / "state", source, model={"hash_key": None}).messages == N - 10
