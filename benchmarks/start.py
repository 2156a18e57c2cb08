"""How long the daemon takes from its start until it has learned its first message.

It is started as a person starts it, and timed from outside until its log says that one message is
learned, which is all that it is told to learn. Cold is the first start on a machine: no kernel is
compiled yet. Warm is every later one. In turns with it version 0.1.0 is started, out of the
repository's history, where there is one that goes so far back.
"""

from __future__ import annotations

import io
import json
import math
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

from benchmarks.daemon_run import ROOT, ended_processor_s
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

WARM_STARTS = 5
FIRST_VERSION = "8d87e2c1195a"  # the last commit of version 0.1.0
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"  # few people set it, and it makes each start a cold one
_CONFIG = """\
generator: {rate_per_s: 0, labelled_share: 1.0}
checkpoint: {folder: null}
http: {port: 0}
"""
_COMMAND = ["-m", "consumers", "run", "--max-messages", "1", "--json", "--view", "log"]


def start(tweets: Tweets, show: Show) -> Result:  # noqa: ARG001 -- a case is called with texts
    """Start the daemon without compiled kernels, then with them."""
    with tempfile.TemporaryDirectory(prefix="streamnb-start-") as name:
        trees = {"": ROOT}
        first = Path(name) / "first"
        if take_out(first):
            trees["first"] = first
        else:
            show.say("version 0.1.0 is not in the history: bounds in seconds alone")
        found: dict[str, list[Start]] = {which: [] for which in trees}
        for turn in show.track(range(1 + WARM_STARTS)):
            for which in list(trees)[:: -1 if turn % 2 else 1]:
                found[which].append(_timed(Path(name) / f"of {which}", trees[which]))
    result = Result("start", "the made-up stream")
    add_seconds(result, found[""])
    if "first" in found:
        add_ratios(result, found[""], found["first"])
    return result


class Start(NamedTuple):
    """Seconds from the start until the page answered, and until a message was learned.

    And the processor time of the whole run, in seconds.
    """

    page_s: float
    learned_s: float
    processor_s: float


def add_seconds(result: Result, own: list[Start]) -> None:
    """Add what this tree's starts take, the first of them cold."""
    cold, *warm = own
    result.add("cold", cold.learned_s, "s", at_most=27.0)
    result.add("warm", statistics.median(each.learned_s for each in warm), "s", at_most=2.0)
    result.add("cold, until the page answers", cold.page_s, "s", at_most=3.0)
    page_s = statistics.median(each.page_s for each in warm)
    result.add("warm, until the page answers", page_s, "s", at_most=3.0)


def add_ratios(result: Result, own: list[Start], first: list[Start]) -> None:
    """Add what this tree's starts take beside those of the first version."""
    pairs = list(zip(own, first, strict=True))
    (cold, first_cold), *warm = pairs
    result.add("0.1.0: cold", first_cold.learned_s, "s")
    result.add("0.1.0: warm", statistics.median(old.learned_s for _, old in warm), "s")
    ratio = cold.learned_s / first_cold.learned_s
    result.add("cold: time that 0.1.0 takes", ratio, "times", at_most=0.5)
    ratio = statistics.median(new.learned_s / old.learned_s for new, old in warm)
    result.add("warm: time that 0.1.0 takes", ratio, "times", at_most=0.7)
    ratio = statistics.median(new.processor_s / old.processor_s for new, old in warm)
    result.add("warm: processor time that 0.1.0 takes", ratio, "times", at_most=0.7)


def take_out(folder: Path) -> bool:
    """Write version 0.1.0 into a folder; return whether the history has it."""
    words = ["git", "archive", FIRST_VERSION, "streamnb", "consumers"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        return False
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return True


def _timed(folder: Path, tree: Path) -> Start:
    """Time one run of a tree, from `folder` and with a cache of kernels in it.

    Only this tree's page is asked for: version 0.1.0 may end before it answers.
    """
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(_CONFIG, encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if name != _NO_BYTECODE} | {
        "PYTHONPATH": str(tree),
        "STREAMNB_CACHE_DIR": str(folder / "cache"),
    }
    before_s = ended_processor_s()
    began = time.perf_counter()
    page_s, learned_s = math.nan if tree == ROOT else 0.0, math.nan
    with subprocess.Popen(
        [sys.executable, "-P", *_COMMAND], cwd=folder, env=environ,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    ) as daemon:  # fmt: skip
        assert daemon.stderr is not None
        for line in map(json.loads, daemon.stderr):
            if line["event"] == "serving" and tree == ROOT:
                with urllib.request.urlopen(line["address"]) as answer:
                    answer.read()
                page_s = time.perf_counter() - began
            if line.get("learned") == 1 and math.isnan(learned_s):
                learned_s = time.perf_counter() - began
    if daemon.returncode or math.isnan(page_s + learned_s):
        raise RuntimeError(f"the daemon ended by {daemon.returncode}, and should have learned")
    return Start(page_s, learned_s, ended_processor_s() - before_s)
