"""What page, store and API cost while nobody looks: the daemon with them and without.

Without: nothing is served, neither page nor API nor metrics; no recent messages are kept; nothing
can be corrected. The ratios are of pairs of runs, one just after the other; processor time a
message, which is hardly moved by what else the machine is doing, has the start and end of both.
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
from benchmarks.daemon_run import MODELS, Run, run_daemon
from benchmarks.file_daemon import write_lines
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

MESSAGES = 3_000_000  # some seconds a run: of a shorter one the machine's moods are the most
TURNS = 7
DEFAULT_MESSAGES = 1_000_000  # of the default model, which is slower
OFF: Final = {
    "http": {"enabled": False},
    "recent": {"enabled": False},
    "corrections": {"to": "none"},
}


def page_cost(tweets: Tweets, show: Show) -> Result:
    """Learn a file with three models, with page, store and API and without."""
    sizes = dict.fromkeys(MODELS, MESSAGES) | {"default model": DEFAULT_MESSAGES}
    return _compared("page_cost", tweets, sizes, show, at_least=0.95)


def page_cost_busy(tweets: Tweets, show: Show) -> Result:
    """Do the same with two models while another process keeps one of the cores busy."""
    sizes = dict.fromkeys(("pairs and negation", "unigrams"), MESSAGES)
    with _busy_core():
        return _compared("page_cost_busy", tweets, sizes, show, at_least=0.9)


def _compared(
    case: str, tweets: Tweets, sizes: Mapping[str, int], show: Show, at_least: float
) -> Result:
    """Compare the models of `MODELS` that `sizes` gives a number of messages."""
    result = Result(case, f"{MESSAGES:,} JSON lines of {tweets.origin}")
    with tempfile.TemporaryDirectory(prefix="streamnb-page-cost-") as folder:
        for name, n in sizes.items():
            source = write_lines(Path(folder), tweets, n)
            runs: dict[str, list[Run]] = {"on": [], "off": []}
            timed = {
                "on": _learned(source, n, MODELS[name], {}, runs["on"]),
                "off": _learned(source, n, MODELS[name], OFF, runs["off"]),
            }
            turns = alternate(timed, TURNS, show)
            for each in timed:
                result.add(f"{name}, {each}", n / turns.median_s(each), "messages/s")
            for each in timed:
                spent_us = statistics.median(run.whole_us for run in runs[each])
                result.add(f"{name}, {each}, processor time", spent_us, "µs/message")
            ratio = turns.ratio("off", "on")
            result.add(f"{name}, on to off", ratio, "times", at_least=at_least)
    return result


def _learned(
    source: str, n: int, words: Mapping[str, Any], settings: Mapping[str, Any], runs: list[Run]
) -> Callable[[], float]:
    def timed() -> float:
        run = run_daemon(source, n, words, settings=settings)
        runs.append(run)
        return n / run.messages_per_s

    return timed


@contextlib.contextmanager
def _busy_core() -> Iterator[None]:
    """Keep a core busy for the length of a `with`."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        try:
            yield
        finally:
            process.kill()
