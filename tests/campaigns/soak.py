"""Feed one daemon a stream whose words never come again, and watch its memory."""

from __future__ import annotations

import json
import os
import random
import tempfile
from pathlib import Path

from tests.campaigns.campaign import Run
from tests.endtoend.daemon_process import Daemon, write_config

N_MESSAGES = 20_000
WORDS = ("sun", "rain", "monday", "coffee", "good", "bad")
LONG = 1_000  # steps
GROWTH_MAX, SHORT_GROWTH_MAX = 1.05, 1.1


def soak(run: Run) -> None:
    """Memory stays within 5 % after the first tenth, page on; short runs have 10 %.

    All words are new ones. Of each step its highest resident memory counts. A run is short below 20
    million messages: not all that fills once is full by then, 10 MB of 230 came at the eighth step.
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
            sizes: list[int] = []
            for chance, _ in run.steps():
                stream.write(_lines(chance))
                stream.flush()
                n_messages = (len(sizes) + 1) * N_MESSAGES
                daemon.until_metric("streamnb_messages_total", n_messages)
                daemon.until_page("/v1/page", 200)
                daemon.until_page("/v1/search?q=coffee", 200)
                sizes.append(daemon.peak_bytes())
                run.figures["messages"] += N_MESSAGES
            assert daemon.stop() == 0
    beginning = max(sizes[: max(1, run.n // 10)])
    run.figures["MB at the beginning"] = beginning >> 20
    run.figures["MB at most"] = max(sizes) >> 20
    growth_max = GROWTH_MAX if run.n >= LONG else SHORT_GROWTH_MAX
    assert max(sizes) <= growth_max * beginning, [size >> 20 for size in sizes]


def _lines(chance: random.Random) -> bytes:
    lines = []
    for _ in range(N_MESSAGES):
        new = " ".join(f"w{chance.randrange(1 << 40):x}" for _ in range(6))
        text = f"{chance.choice(WORDS)} {new}"
        lines.append(json.dumps({"id": new, "text": text, "label": chance.choice((0, 4))}))
    return "\n".join([*lines, ""]).encode()
