"""The daemon started again on a store of a million messages: when it answers, and how rightly.

From its start on it is asked for the figures of everything and of a word, and for the first page of
the list. Until its store is open it may say that it is loading (503, with the time after which to
ask again). Any other answer than that and the right one fails the case. It stops in an orderly way
between starts.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.daemon_run import ROOT, free_port
from benchmarks.result import Result
from benchmarks.show import Show
from consumers.search.store import FILE_NAME, RecentStore

STARTS = 5
_WORD: Final = "obama "
_LISTED: Final = 50
_EVERYTHING: Final = "/v1/summary?q="
_OF_A_WORD: Final = "/v1/summary?q=obama+"
_LIST: Final = f"/v1/search?q=&limit={_LISTED}"
_LOADING: Final = 503
_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.01

Figures = list[Any]


def right_answers(store: RecentStore) -> dict[str, Figures]:
    """Return what is right for each address, as the open store that has the messages says it."""
    everything, of_a_word = (store.counted(store.parse(text)) for text in ("", _WORD))
    rows = store.search(store.parse(""), limit=_LISTED).rows
    return {
        _EVERYTHING: [everything.n, list(everything.counts)],
        _OF_A_WORD: [of_a_word.n, list(of_a_word.counts)],
        _LIST: [each.row.id for each in rows],
    }


def add_restarts(
    result: Result, file: Path, n: int, right: Mapping[str, Figures], show: Show
) -> None:
    """Start a daemon on a copy of a store, several times; add how long right figures took."""
    with tempfile.TemporaryDirectory(prefix="streamnb-restart-") as name:
        folder = Path(name)
        (folder / "state").mkdir(mode=0o700)
        shutil.copyfile(file, folder / "state" / FILE_NAME)
        (folder / "state" / FILE_NAME).chmod(0o600)
        (folder / "in.jsonl").touch()
        slowest_s = max(_restarted_s(folder, right) for _ in show.track(range(STARTS)))
    what = f"restart with {n:,} stored: right figures, slowest of {STARTS}"
    result.add(what, slowest_s, "s", at_most=3.0)


def _restarted_s(folder: Path, right: Mapping[str, Figures]) -> float:
    """Return the seconds from a start until every address has answered rightly."""
    port = free_port()
    config = {
        "source": f"file:{folder / 'in.jsonl'}",
        "checkpoint": {"folder": str(folder / "state")},
        "http": {"port": port},
        "view": "log",
    }
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")  # it is YAML too
    began_s = time.monotonic()
    with _running(folder) as is_running:
        until_right(f"http://127.0.0.1:{port}", right, is_running)
        return time.monotonic() - began_s


def until_right(
    address: str, right: Mapping[str, Figures], is_running: Callable[[], bool] = lambda: True
) -> None:
    """Ask for all figures again and again until each has been the right one.

    Raises
    ------
    RuntimeError
        If wrong figures are shown before or after that, or the daemon ends, or takes too long.
    """
    waiting, until_s = set(right), time.monotonic() + _PATIENCE_S
    while waiting:
        if not is_running() or time.monotonic() > until_s:
            raise RuntimeError(f"{address} does not answer for {', '.join(sorted(waiting))}")
        for path, figures in right.items():
            found = _asked(address + path)
            if found == figures:
                waiting.discard(path)
            elif found is not None:
                raise RuntimeError(f"{path}: {found} is shown, and {figures} is right")
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _running(folder: Path) -> Iterator[Callable[[], bool]]:
    """Run the daemon of a folder; yield what tells whether it still runs; stop it in order."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "consumers", "run", "--json"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        try:
            yield lambda: process.poll() is None
            process.terminate()
            process.wait(_PATIENCE_S)
        finally:
            process.kill()
            process.wait()


def _asked(address: str) -> Figures | None:
    """Return the figures that an address shows; None while nobody listens, or it is loading."""
    try:
        with urllib.request.urlopen(address, timeout=_PATIENCE_S) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == _LOADING and error.headers["Retry-After"] is not None:
                return None
            raise
    except OSError:
        return None
    if "messages" in found:
        return [each["id"] for each in found["messages"]]
    return [found["n"], list(found["counts"].values())]
