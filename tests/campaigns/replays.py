"""Kill replays of one file on a slower machine, and compare all that they wrote, byte for byte."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streamnb.storage import notes_of
from tests.campaigns.campaign import Run
from tests.endtoend.busy_core import busy_core
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import examples, message
from tests.endtoend.test_reproducible import ended, figures

N = 20_000
KILLS = 4
FILES = ("out.jsonl", "rejects.jsonl", "state/model.nb")
SPINNERS = 2  # beside a daemon on one core, which so has a third of it
EACH = 5  # steps, of which one has a control
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
    """A replay that was killed at any instant, on a core kept busy, writes the bytes of another.

    The other has the machine to itself. A control shows that this is worth comparing: with
    snapshots by time, the two write different bytes.
    """
    for chance, folder in run.steps():
        lines = _stream(chance)
        # Snapshots and batches differ from step to step, not between the two replays.
        publish = {"publish": "examples", "publish_examples": chance.choice((1, 70, 999, 30_000))}
        judging = WATCHED if run.step % 2 == 0 else {"model": MODEL}
        learning = {"learning": publish, **judging}
        run.figures["replays with all that watches"] += judging is WATCHED
        whole, killed = folder / "whole", folder / "killed"
        with Daemon(_config(whole, lines, learning, 1 << 20)) as one:
            one.until_metric("streamnb_messages_total", N)
            expected = _size(whole / "out.jsonl")
            with busy_core(SPINNERS) as core:
                for _ in range(KILLS):
                    batch_bytes = chance.choice((1_024, 4_096, 1 << 20))
                    config = _config(killed, lines, learning, batch_bytes)
                    _one_life(chance, config, expected, core, run)
                with Daemon(_config(killed, lines, learning, 4_096)) as other:
                    other.confine(core)
                    other.until_metric("streamnb_messages_total", N)
                    other.until(lambda: figures(one) == figures(other), "the same metrics")
                    assert ended(one) == ended(other)
        for name in FILES:
            assert (whole / name).read_bytes() == (killed / name).read_bytes(), name
        if judging is WATCHED:
            entries = notes_of(whole / "state" / "model.nb")["entries"]
            run.figures["promotions"] += entries["challengers"]["n_promotions"]
            run.figures["alarms of drift"] += int(entries["drift"]["alarm_at"] is not None)
        run.figures["messages"] += N
        if run.step % EACH == 0:
            run.figures["controls"] += 1
            run.figures["controls that differed"] += _differs_by_time(folder, lines)


def _one_life(chance: random.Random, config: Path, expected: int, core: int, run: Run) -> None:
    """Let a replay go on beside a busy core until some instant, and end it there."""
    folder = config.parent
    with Daemon(config) as daemon:
        daemon.confine(core)
        before = _size(folder / "out.jsonl")
        daemon.until(_instant(chance, folder, before, expected), "the end of a life")
        run.figures["lives ended amid the file"] += before < _size(folder / "out.jsonl") < expected
        if chance.random() < 0.75:
            daemon.kill()
            run.figures["kills"] += 1
        else:
            # Before it runs a line of ours, Python ends by the signal.
            code = daemon.stop(chance.choice((signal.SIGTERM, signal.SIGINT)))
            assert code == 0 or not daemon.lines, (code, daemon.lines[-3:])
            run.figures["stops"] += 1


def _differs_by_time(folder: Path, lines: bytes) -> bool:
    """Return whether an idle and a busy machine write other predictions by snapshots of a clock."""
    by_time = {"learning": {"publish_interval_s": 1e-3, "publish_share_max": 1.0}, "model": MODEL}
    written = []
    for name in ("idle", "busy"):
        with contextlib.ExitStack() as stack:
            core = stack.enter_context(busy_core(SPINNERS)) if name == "busy" else None
            daemon = stack.enter_context(Daemon(_config(folder / name, lines, by_time, 4_096)))
            if core is not None:
                daemon.confine(core)
            daemon.until_metric("streamnb_messages_total", N)
            ended(daemon)
        written.append((folder / name / "out.jsonl").read_bytes())
    assert written[0].count(b"\n") == written[1].count(b"\n")
    return written[0] != written[1]


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
        **learning,
        predictions={"to": "file:out.jsonl"},
        rejects={"to": "file:rejects.jsonl"},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )


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
