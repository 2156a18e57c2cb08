"""What page, store and API cost while nobody looks: the daemon with them and without.

Without: no recent messages are kept, so nothing can be searched and no page be told what is new;
nothing can be corrected. Metrics are served both ways.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.alternate import alternate
from benchmarks.daemon_run import PAIRS, UNIGRAMS, run_daemon
from benchmarks.file_daemon import write_lines
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

MESSAGES = 3_000_000
TURNS = 3
OFF: Final = {"recent": {"enabled": False}, "corrections": {"to": "none"}}


def page_cost(tweets: Tweets, show: Show) -> Result:
    """Learn a file with two models, with page, store and API and without."""
    result = Result("page_cost", f"{MESSAGES:,} JSON lines of {tweets.origin}")
    with tempfile.TemporaryDirectory(prefix="streamnb-page-cost-") as folder:
        source = write_lines(Path(folder), tweets, MESSAGES)
        for name, words in {"pairs and negation": PAIRS, "unigrams": UNIGRAMS}.items():
            timed = {"on": _learned(source, words, {}), "off": _learned(source, words, OFF)}
            turns = alternate(timed, TURNS, show)
            for each in timed:
                speed = MESSAGES / turns.median_s(each)
                result.add(f"{name}, {each}", speed, "messages/s")
            result.add(f"{name}, on to off", turns.ratio("off", "on"), "times", at_least=0.9)
    return result


def _learned(
    source: str, words: Mapping[str, Any], settings: Mapping[str, Any]
) -> Callable[[], float]:
    return lambda: MESSAGES / run_daemon(source, MESSAGES, words, settings=settings).messages_per_s
