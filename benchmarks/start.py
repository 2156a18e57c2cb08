"""How long the daemon takes from its start until it has learned its first message.

It is started as a person starts it, and timed from outside until its log says that one message is
learned, which is all that it is told to learn. Cold is the first start on a machine: no kernel is
compiled yet. Warm is every later one.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

WARM_STARTS = 3
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # few people set it, and it makes each start a cold one
_ROOT = Path(__file__).resolve().parents[1]
_CONFIG = """\
generator: {rate_per_s: 0, labelled_share: 1.0}
checkpoint: {folder: null}
http: {port: 0}
"""
_COMMAND = ["-m", "consumers", "run", "--max-messages", "1", "--json", "--view", "log"]


def start(tweets: Tweets, show: Show) -> Result:  # noqa: ARG001 -- a case is called with texts
    """Start the daemon without compiled kernels, then with them."""
    with tempfile.TemporaryDirectory(prefix="streamnb-start-") as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
        cold, *warm = [_timed(folder) for _ in show.track(range(1 + WARM_STARTS))]
    result = Result("start", "the made-up stream")
    result.add("cold", cold.learned_s, "s", at_most=40.0)
    result.add("warm", statistics.median(each.learned_s for each in warm), "s", at_most=3.0)
    result.add("cold, until the page answers", cold.page_s, "s", at_most=3.0)
    page_s = statistics.median(each.page_s for each in warm)
    result.add("warm, until the page answers", page_s, "s", at_most=3.0)
    return result


class _Start(NamedTuple):
    """Seconds from the start until the page answered, and until a message was learned."""

    page_s: float
    learned_s: float


def _timed(folder: Path) -> _Start:
    """Time one run, from `folder` and with a cache of kernels in it."""
    environ = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE} | {
        "PYTHONPATH": str(_ROOT),
        "STREAMNB_CACHE_DIR": str(folder / "cache"),
    }
    began = time.perf_counter()
    page_s = learned_s = math.nan
    with subprocess.Popen(
        [sys.executable, *_COMMAND], cwd=folder, env=environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as daemon:  # fmt: skip
        assert daemon.stderr is not None
        for line in map(json.loads, daemon.stderr):
            if line["event"] == "serving":
                with urllib.request.urlopen(line["address"]) as answer:
                    answer.read()
                page_s = time.perf_counter() - began
            if line.get("learned") == 1 and math.isnan(learned_s):
                learned_s = time.perf_counter() - began
    if daemon.returncode or math.isnan(page_s + learned_s):
        raise RuntimeError(f"the daemon ended by {daemon.returncode}, and should have learned")
    return _Start(page_s, learned_s)
