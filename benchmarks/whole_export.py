"""One CSV of a million stored rows, to its end, beside a daemon that learns as fast as it can.

The daemon learns the made-up stream, whose words come again and again, so that neither its speed
nor its memory changes by itself: what it learns a second and the most memory that it holds while
the file is downloaded are compared with those of spans right before and right after.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.daemon_run import client
from benchmarks.result import Result
from benchmarks.show import Show
from consumers.search.store import FILE_NAME
from tests.endtoend.daemon_process import Daemon, write_config

SETTLED = 2_000_000  # messages learned before anything is measured: its memory of them is full
SPAN_S = 15.0  # has a checkpoint or two
_MB: Final = 1e6
_LEARNED: Final = "streamnb_messages_total"
_PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class _Span:
    """What the daemon did in a span of time.

    Attributes
    ----------
    per_s : float
        Messages learned.
    peak_bytes : int
        Its highest resident memory.
    seconds : float
    """

    per_s: float
    peak_bytes: int
    seconds: float


def add_whole_export(result: Result, file: Path, rows: int, show: Show) -> None:
    """Download all of a store of so many rows once; add what came and what it cost."""
    with tempfile.TemporaryDirectory(prefix="streamnb-export-") as name:
        folder = Path(name)
        (folder / "state").mkdir(mode=0o700)
        shutil.copyfile(file, folder / "state" / FILE_NAME)
        (folder / "state" / FILE_NAME).chmod(0o600)
        config = write_config(
            folder / "config.yaml",
            generator={"seed": 7, "rate_per_s": 0.0, "labelled_share": 1.0},
            checkpoint={"folder": str(folder / "state")},
            recent={"messages_max": 2 * rows},  # no row leaves to make room for newer ones
        )
        said: list[dict[str, Any]] = []
        with Daemon(config) as daemon:
            daemon.until_page("/v1/summary?q=", 200)
            daemon.until_metric(_LEARNED, SETTLED)
            port = int(daemon.address.rpartition(":")[2])
            acts: list[Callable[[], None]] = [
                lambda: time.sleep(SPAN_S),
                lambda: said.append(_downloaded(port, rows)),
                lambda: time.sleep(SPAN_S),
            ]
            before, during, after = (_measured(daemon, act) for act in show.track(acts))
            if daemon.stop():
                raise RuntimeError(f"the daemon failed: {daemon.lines[-5:]}")
    (found,) = said
    if found["downloads"] != 1 or found["rows"] != rows:
        raise RuntimeError(f"{rows:,} rows are stored, and the file has {found}")
    name = f"a whole CSV of {rows:,} rows"
    result.add(f"{name}, with its header", found["rows"] + 1, "lines", at_least=rows + 1)
    result.add(f"{name} beside a learner", during.seconds, "s")
    grown_bytes = during.peak_bytes - max(before.peak_bytes, after.peak_bytes)
    result.add(f"{name}: memory more of the daemon", grown_bytes / _MB, "MB", at_most=20.0)
    ratio = during.per_s / ((before.per_s + after.per_s) / 2)
    result.add(f"{name}: speed beside it to alone", ratio, "times", at_least=0.9)


def _measured(daemon: Daemon, act: Callable[[], None]) -> _Span:
    """Do something beside a daemon, and measure it meanwhile."""
    daemon.peak_bytes()  # begins again
    began_s, n_before = time.monotonic(), daemon.metric(_LEARNED)
    act()
    n, seconds = daemon.metric(_LEARNED) - n_before, time.monotonic() - began_s
    return _Span(n / seconds, daemon.peak_bytes(), seconds)


def _downloaded(port: int, rows: int) -> dict[str, Any]:
    """Download so many rows once; return what its client says of it."""
    with client("export_client", port, rows) as process:
        out, _ = process.communicate(timeout=_PATIENCE_S)
    found: dict[str, Any] = json.loads(out)
    return found
