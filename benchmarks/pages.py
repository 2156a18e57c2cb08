"""What open pages and exports cost: the daemon at full rate with 100 pages, a file, and neither.

The pages are a process of their own that reads the server-sent events of 30 different queries. It
shares the machine's cores with the daemon, as browsers on it would.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.alternate import alternate
from benchmarks.daemon_run import PAIRS, client, run_daemon
from benchmarks.export_cost import add_export_cost
from benchmarks.file_daemon import write_lines
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

MESSAGES = 3_000_000  # so that a run lasts for several ticks
PAGES = 100
TURNS = 3
_PATIENCE_S: Final = 10.0


def pages(tweets: Tweets, show: Show) -> Result:
    """Learn a file with the daemon's plain model, with pages open and without."""
    said: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="streamnb-pages-") as folder:
        source = write_lines(Path(folder), tweets, MESSAGES)

        @contextlib.contextmanager
        def watched(port: int) -> Iterator[None]:
            with client("page_client", port, PAGES) as process:
                yield
                said.append(_said(process))

        timed = {
            "100 pages open": lambda: (
                MESSAGES / run_daemon(source, MESSAGES, PAIRS, beside=watched).messages_per_s
            ),
            "none open": lambda: MESSAGES / run_daemon(source, MESSAGES, PAIRS).messages_per_s,
        }
        turns = alternate(timed, TURNS, show)
    result = Result("pages", f"{MESSAGES:,} JSON lines of {tweets.origin}")
    for name in timed:
        result.add(name, MESSAGES / turns.median_s(name), "messages/s")
    ratio = turns.ratio("none open", "100 pages open")
    result.add("speed with 100 pages open to none", ratio, "times", at_least=0.85)
    n_told = min(each["pages"] for each in said)
    result.add("pages that were told", n_told, "pages", at_least=PAGES)
    longest_s = max(each["gap_s"] for each in said)
    result.add("longest time between figures of a page", longest_s, "s", at_most=2.0)
    add_export_cost(result, tweets, show)
    return result


def _said(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Return what the pages say of a daemon that has ended; nothing where they never found it."""
    try:
        out, _ = process.communicate(timeout=_PATIENCE_S)
    except subprocess.TimeoutExpired:
        return {"pages": 0, "gap_s": 0.0}
    found: dict[str, float] = json.loads(out)
    return found
