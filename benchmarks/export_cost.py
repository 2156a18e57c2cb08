"""What an export costs the learner: the daemon at full rate, with and without a million-row CSV.

Then one download comes to its end, see `whole_export`; those of the runs may be cut by their ends.

Both runs of a pair begin with the same store of a million tweets and learn the same file with the
default settings. In one a client downloads all stored rows as CSV, again and again until the daemon
ends, so that the whole run is beside an export. The client is a process of its own on the same
cores. Processor time a message is that of all the daemon's threads, the export's among them.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.alternate import alternate
from benchmarks.daemon_run import DEFAULT, Run, client, run_daemon
from benchmarks.file_daemon import write_lines
from benchmarks.recent import write_file
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets
from benchmarks.whole_export import add_whole_export
from consumers.search.store import FILE_NAME

MESSAGES = 3_000_000  # learned in a run
ROWS = 1_000_000  # stored before it
TURNS = 5
_PATIENCE_S: Final = 10.0


def add_export_cost(result: Result, tweets: Tweets, show: Show) -> None:
    """Learn a file with the daemon's default settings, with a CSV export under way and without."""
    runs: dict[str, list[Run]] = {"beside an export": [], "alone": []}
    said: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="streamnb-export-") as name:
        folder = Path(name)
        source = write_lines(folder, tweets, MESSAGES)
        write_file(folder / FILE_NAME, tweets, ROWS, show)

        @contextlib.contextmanager
        def exporting(port: int) -> Iterator[None]:
            with client("export_client", port) as process:
                yield
                said.append(_said(process))

        def learned(kind: str) -> Callable[[], float]:
            def timed() -> float:
                run = run_daemon(
                    source,
                    MESSAGES,
                    DEFAULT,
                    beside=exporting if kind == "beside an export" else None,
                    prepare=lambda state: _put_store(folder, state),
                )
                runs[kind].append(run)
                return MESSAGES / run.messages_per_s

            return timed

        turns = alternate({kind: learned(kind) for kind in runs}, TURNS, show)
        whole = Result(result.case, result.texts)
        add_whole_export(whole, folder / FILE_NAME, ROWS, show)
    for kind, found in runs.items():
        result.add(kind, MESSAGES / turns.median_s(kind), "messages/s")
        spent_us = statistics.median(run.processor_us for run in found)
        result.add(f"{kind}, processor time", spent_us, "µs/message")
    ratio = turns.ratio("alone", "beside an export")
    result.add("speed beside an export to alone", ratio, "times", at_least=0.9)
    for name, unit in (("rows", "rows"), ("rows_per_s", "rows/s")):
        value = statistics.median(each[name] for each in said)
        result.add({"rows": "rows read a run"}.get(name, "rows read a second"), value, unit)
    result.figures += whole.figures


def _put_store(folder: Path, state: Path) -> None:
    shutil.copyfile(folder / FILE_NAME, state / FILE_NAME)
    (state / FILE_NAME).chmod(0o600)


def _said(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return what the client says of a daemon that has ended."""
    out, _ = process.communicate(timeout=_PATIENCE_S)
    found: dict[str, Any] = json.loads(out)
    return found
