"""What page, store and API cost while nobody looks: the daemon with them and without.

Without: no recent messages are kept, so nothing can be searched and no page be told what is new;
nothing can be corrected. Metrics are served both ways. The ratios are of pairs of runs, one just
after the other; processor time a message is hardly moved by what else the machine is doing.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.alternate import alternate
from benchmarks.daemon_run import PAIRS, UNIGRAMS, Run, run_daemon
from benchmarks.file_daemon import write_lines
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

MESSAGES = 3_000_000  # some seconds a run: of a shorter one the machine's moods are the most
TURNS = 7
OFF: Final = {"recent": {"enabled": False}, "corrections": {"to": "none"}}


def page_cost(tweets: Tweets, show: Show) -> Result:
    """Learn a file with two models, with page, store and API and without."""
    return _compared("page_cost", tweets, show, at_least=0.95)


def page_cost_busy(tweets: Tweets, show: Show) -> Result:
    """Do the same while another process keeps one of the cores busy."""
    with _busy_core():
        return _compared("page_cost_busy", tweets, show, at_least=0.9)


def _compared(case: str, tweets: Tweets, show: Show, at_least: float) -> Result:
    result = Result(case, f"{MESSAGES:,} JSON lines of {tweets.origin}")
    with tempfile.TemporaryDirectory(prefix="streamnb-page-cost-") as folder:
        source = write_lines(Path(folder), tweets, MESSAGES)
        for name, words in {"pairs and negation": PAIRS, "unigrams": UNIGRAMS}.items():
            runs: dict[str, list[Run]] = {"on": [], "off": []}
            timed = {
                "on": _learned(source, words, {}, runs["on"]),
                "off": _learned(source, words, OFF, runs["off"]),
            }
            turns = alternate(timed, TURNS, show)
            for each in timed:
                speed = MESSAGES / turns.median_s(each)
                result.add(f"{name}, {each}", speed, "messages/s")
            for each in timed:
                spent_us = statistics.median(run.processor_us for run in runs[each])
                result.add(f"{name}, {each}, processor time", spent_us, "µs/message")
            ratio = turns.ratio("off", "on")
            result.add(f"{name}, on to off", ratio, "times", at_least=at_least)
    return result


def _learned(
    source: str, words: Mapping[str, Any], settings: Mapping[str, Any], runs: list[Run]
) -> Callable[[], float]:
    def timed() -> float:
        run = run_daemon(source, MESSAGES, words, settings=settings)
        runs.append(run)
        return MESSAGES / run.messages_per_s

    return timed


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    """Keep a core busy for the length of a `with`."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()
