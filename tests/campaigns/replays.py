"""Kill replays of one file at random instants, and compare all that they wrote, byte for byte."""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamnb.storage import notes_of
from tests.campaigns.campaign import Run
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import examples, message

N = 20_000
KILLS = 4
FILES = ("out.jsonl", "rejects.jsonl", "state/model.nb")
OF_THE_CLOCK = ("seconds", "messages_per_s")
MODEL: dict[str, Any] = {"hash_key": "5eed"}
# What learns of the answers beside the model, each with its entry in the checkpoint.
WATCHED: dict[str, Any] = {
    "model": MODEL
    | {"calibration": True, "coverage": 0.9, "features": {"text": {"hybrid": False}}},
    "drift": {"enabled": True, "alpha": 0.9, "words_after": 700},
    "challengers": {"hybrid": {"features": {"text": {"hybrid": True}}, "calibration": True}},
    "promotion": {"action": "promote", "examples": 900, "margin_nats": 0.0},
}


def replays(run: Run) -> None:
    """A replay that was killed or stopped at any instant writes the bytes of one that was not."""
    for chance, folder in run.steps():
        lines = _stream(chance)
        # Snapshots and batches differ from step to step, not between the two replays.
        publish = {"publish": "examples", "publish_examples": chance.choice((1, 70, 999, 30_000))}
        judging = WATCHED if run.step % 2 == 0 else {"model": MODEL}
        learning = {"learning": publish, **judging}
        run.figures["replays with all that watches"] += judging is WATCHED
        whole, killed = folder / "whole", folder / "killed"
        one = _to_the_end(_config(whole, lines, learning, 1 << 20), whole)
        expected = (whole / "out.jsonl").stat().st_size
        for _ in range(KILLS):
            config = _config(killed, lines, learning, chance.choice((1_024, 4_096, 1 << 20)))
            with Daemon(config) as daemon:
                before = _size(killed / "out.jsonl")
                daemon.until(_instant(chance, killed, before, expected), "the end of a life")
                run.figures["lives ended amid the file"] += (
                    before < _size(killed / "out.jsonl") < expected
                )
                if chance.random() < 0.75:
                    daemon.kill()
                    run.figures["kills"] += 1
                else:
                    # Before it runs a line of ours, Python ends by the signal.
                    code = daemon.stop(chance.choice((signal.SIGTERM, signal.SIGINT)))
                    assert code == 0 or not daemon.lines, (code, daemon.lines[-3:])
                    run.figures["stops"] += 1
        other = _to_the_end(_config(killed, lines, learning, 4_096), killed)
        assert one == other
        for name in FILES:
            assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
        if judging is WATCHED:
            entries = notes_of(whole / "state" / "model.nb")["entries"]
            run.figures["promotions"] += entries["challengers"]["n_promotions"]
            run.figures["alarms of drift"] += int(entries["drift"]["alarm_at"] is not None)
        run.figures["messages"] += N


def _stream(chance: random.Random) -> bytes:
    """Return messages with and without a label, deletions, and what is none."""
    lines = []
    for i, example in enumerate(examples(N)):
        kind = chance.random()
        if kind < 0.01:
            lines.append(b"{broken %d" % i)
        elif kind < 0.02 and i:
            lines.append(b'{"id":"m%d","operation":"delete"}' % chance.randrange(i))
        else:
            lines.append(message(example, i, labelled=kind < 0.6))
    return b"\n".join(lines) + b"\n"


def _config(folder: Path, lines: bytes, learning: dict[str, Any], batch_bytes: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "in.jsonl").write_bytes(lines)
    return write_config(
        folder / "config.yaml",
        source="file:in.jsonl",
        file={"batch_bytes": batch_bytes},
        http={"enabled": False},
        **learning,
        predictions={"to": "file:out.jsonl"},
        rejects={"to": "file:rejects.jsonl"},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )


def _to_the_end(config: Path, folder: Path) -> dict[str, Any]:
    """Run to the file's end; return the summary without what the clock says."""
    with Daemon(config, "--until-end") as daemon:
        assert daemon.wait() == 0, daemon.lines[-3:]
        summary = json.loads(daemon.output)
    assert (folder / "state" / "model.nb").is_file()
    return {key: value for key, value in summary.items() if key not in OF_THE_CLOCK}


def _instant(chance: random.Random, folder: Path, begin: int, end: int) -> Callable[[], bool]:
    """Return a condition that some instant of a life fulfils: by output, by checkpoint, by time."""
    fresh = folder / "state" / ".model.nb.new"
    kind = chance.choice(("time", "output", "output", "checkpoint"))
    last_s = time.monotonic() + chance.uniform(0.0, 3.0 if kind == "time" else 30.0)
    wanted = begin + chance.random() * (end - begin) / 2

    def has_come() -> bool:
        if kind == "output" and _size(folder / "out.jsonl") > wanted:
            return True
        return (kind == "checkpoint" and fresh.exists()) or time.monotonic() > last_s

    return has_come


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
