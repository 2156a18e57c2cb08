"""Feed one daemon a stream whose words never come again, and watch its memory."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path

import psutil

from tests.campaigns.campaign import Run
from tests.endtoend.daemon_process import Daemon, write_config

N_MESSAGES = 20_000
WORDS = ("sun", "rain", "monday", "coffee", "good", "bad")
LONG = 1_000  # steps
GROWTH_MAX, SHORT_GROWTH_MAX = 1.05, 1.15


def soak(run: Run) -> None:
    """Memory stays within 5 % after the first tenth, page on; short runs have 15 %.

    All words are new ones. A run is short below 20 million messages: as freed memory is kept, each
    peak of a queue stays, and a short run has not seen its highest ones. Its first third counts.
    """
    read, write = os.pipe()
    with (
        os.fdopen(read, "rb") as stdin,
        os.fdopen(write, "wb") as stream,
        tempfile.TemporaryDirectory(prefix="soak-") as folder,
    ):
        config = write_config(
            Path(folder) / "config.yaml",
            source="stdin",
            # So small that all is full after the first tenth of a short run too.
            model={"features": {"text": {"kind": "words", "max_words": 50_000}}},
            recent={"messages_max": 2_000},
            learned={"messages_max": 10_000},
            checkpoint={"folder": "state", "interval_s": 1},
        )
        with Daemon(config, stdin=stdin) as daemon:
            process = psutil.Process(daemon._process.pid)
            sizes: list[int] = []
            for chance, _ in run.steps():
                stream.write(_lines(chance))
                stream.flush()
                n_messages = (len(sizes) + 1) * N_MESSAGES
                daemon.until_metric("streamnb_messages_total", n_messages)
                daemon.until_page("/v1/page", 200)
                daemon.until_page("/v1/search?q=coffee", 200)
                sizes.append(process.memory_info().rss)
                run.figures["messages"] += N_MESSAGES
            assert daemon.stop() == 0
    n_first = max(1, run.n // (10 if run.n >= LONG else 3))
    run.figures["MB at the beginning"] = max(sizes[:n_first]) >> 20
    run.figures["MB at most"] = max(sizes) >> 20
    growth_max = GROWTH_MAX if run.n >= LONG else SHORT_GROWTH_MAX
    assert max(sizes) <= growth_max * max(sizes[:n_first]), [size >> 20 for size in sizes]


def _lines(chance: random.Random) -> bytes:
    lines = []
    for _ in range(N_MESSAGES):
        new = " ".join(f"w{chance.randrange(1 << 40):x}" for _ in range(6))
        text = f"{chance.choice(WORDS)} {new}"
        lines.append(json.dumps({"id": new, "text": text, "label": chance.choice((0, 4))}))
    return "\n".join([*lines, ""]).encode()
