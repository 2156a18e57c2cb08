"""The whole daemon as a process of its own, run to the end of its source, and its speed.

The speed is what its summary says: messages by the time from when the first came until the last was
dealt with. So neither the start (imports, connecting, joining the group) nor the end is in it; what
happens meanwhile is: snapshots, checkpoints, metrics. Processor time and snapshots come from a few
looks at its own metrics.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from consumers.config.model import READING

ROOT: Final = Path(__file__).resolve().parents[1]
LOOK_INTERVAL_S: Final = 0.4
CHECKPOINT_INTERVAL_S: Final = 5.0
_NEVER_S: Final = 1e6
_PATIENCE_S: Final = 600.0

# Of a group of words: as 0.1.0 read and learned, and as the library does that is compared with.
PLAIN: Final[dict[str, Any]] = dict.fromkeys(("hybrid", *READING), False)
UNIGRAMS: Final[dict[str, Any]] = {"ngrams": [1, 1], "negation": False} | PLAIN
# The daemon's own default else: words and pairs, negations marked.
PAIRS: Final[dict[str, Any]] = PLAIN
# Nothing is said of the words: the hybrid of pairs that the daemon has by default.
DEFAULT: Final[dict[str, Any]] = {}
# The model of each row, by the name that the row has for it.
MODELS: Final[Mapping[str, Mapping[str, Any]]] = {
    "unigrams": UNIGRAMS,
    "pairs and negation": PAIRS,
    "default model": DEFAULT,
}


@dataclass(frozen=True, slots=True)
class Run:
    """What a run was like.

    Attributes
    ----------
    messages_per_s : float
        By its summary: without start and end.
    overall_per_s : float
        From its start to its end.
    snapshots_per_s : float
        How many it published a second, between the first look amid the run and the last.
    checkpoints : int
        How many had been written at the last look; 0 where it serves no metrics.
    processor_us : float
        Processor time a message, all threads together, between the same two looks; 0 where the run
        is over within them, or it serves no metrics. What else the machine does hardly moves it.
    whole_us : float
        The same of the whole process, its start and end among it; known without metrics, too.
    """

    messages_per_s: float
    overall_per_s: float
    snapshots_per_s: float
    checkpoints: int
    processor_us: float
    whole_us: float


def run_daemon(
    source: str,
    n: int,
    words: Mapping[str, Any],
    *,
    checkpoints: bool = True,
    settings: Mapping[str, Any] | None = None,
    until: Sequence[str] = ("--until-end",),
    beside: Callable[[int], contextlib.AbstractContextManager[None]] | None = None,
    prepare: Callable[[Path], None] | None = None,
) -> Run:
    """Let the daemon learn all of a source.

    Parameters
    ----------
    source : str
        As in `config.yaml`.
    n : int
        How many messages it holds, all of them with a label.
    words : mapping
        Settings of the model's group of words.
    checkpoints : bool
        Write one each five seconds, or only at the end.
    settings : mapping, optional
        Further sections of its configuration; of a section that is set here already, further
        settings.
    until : sequence of str, optional
        The options that say where it ends.
    beside : callable, optional
        Takes the port at which it will listen, and returns what is to run around it.
    prepare : callable, optional
        Takes the folder of its state, still empty, and puts there what it is to find.

    Raises
    ------
    RuntimeError
        Where it failed, or did not learn them all.
    """
    with tempfile.TemporaryDirectory(prefix="streamnb-daemon-") as name:
        folder = Path(name)
        port = free_port()
        config: dict[str, Any] = {
            "source": source,
            "kafka": {"group_id": folder.name},
            "model": {"features": {"text": dict(words)}},
            "checkpoint": {
                "folder": "state",
                "interval_s": CHECKPOINT_INTERVAL_S if checkpoints else _NEVER_S,
            },
            "http": {"port": port},
            "view": "log",
        }
        for section, values in (settings or {}).items():
            own = config.get(section)
            config[section] = own | values if isinstance(own, dict) else values
        (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")  # it is YAML too
        if prepare is not None:
            (folder / "state").mkdir(mode=0o700)
            prepare(folder / "state")
        with beside(port) if beside else contextlib.nullcontext():
            before_s = ended_processor_s()
            looks, summary = _run(folder, until, f"http://127.0.0.1:{port}/metrics")
            spent_s = ended_processor_s() - before_s
    if summary["learned"] != n:
        raise RuntimeError(f"the daemon should have learned {n:,} messages, and says: {summary}")
    return _result(looks, summary, spent_s)


@contextlib.contextmanager
def client(module: str, *arguments: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of the benchmarks beside the daemon; whatever happens, it ends."""
    with subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True, slots=True)
class _Look:
    """The counters at one moment."""

    at_s: float
    n_messages: int
    n_checkpoints: int
    n_snapshots: int
    processor_s: float


def _run(folder: Path, until: Sequence[str], page: str) -> tuple[list[_Look], dict[str, Any]]:
    """Run it in a folder with its configuration; look at its metrics until it ends."""
    looks: list[_Look] = []
    give_up_s = time.monotonic() + _PATIENCE_S
    with (folder / "log").open("wb") as log, (folder / "summary").open("wb") as summary:
        process = subprocess.Popen(
            [sys.executable, "-m", "consumers", "run", *until, "--json"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=summary,
            stderr=log,
        )
        try:
            while process.poll() is None and time.monotonic() < give_up_s:
                # It does not serve yet, or no more.
                with contextlib.suppress(OSError, psutil.NoSuchProcess):
                    looks.append(_look(page, psutil.Process(process.pid)))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_INTERVAL_S)
        finally:
            process.kill()
            process.wait()
    if process.returncode:
        tail = (folder / "log").read_text(encoding="utf-8")[-2000:]
        raise RuntimeError(f"the daemon ended with {process.returncode}:\n{tail}")
    return looks, json.loads((folder / "summary").read_bytes())


def _look(page: str, process: psutil.Process) -> _Look:
    with urllib.request.urlopen(page, timeout=10) as answer:
        at_s = time.monotonic()
        times = process.cpu_times()
        lines = answer.read().decode().splitlines()

    def total(metric: str) -> int:
        found = (line for line in lines if line.startswith((f"{metric} ", f"{metric}{{")))
        return round(sum(float(line.rpartition(" ")[2]) for line in found))

    return _Look(
        at_s,
        total("streamnb_messages_total"),
        total("streamnb_checkpoints_total"),
        total("streamnb_snapshot_version"),
        times.user + times.system,
    )


def ended_processor_s() -> float:
    """Return the processor time of all processes that this one has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _result(looks: list[_Look], summary: dict[str, Any], spent_s: float) -> Run:
    amid = [look for look in looks if 0 < look.n_messages < summary["messages"]]
    rate = summary["messages_per_s"]
    overall = summary["messages"] / summary["seconds"]
    n_checkpoints = looks[-1].n_checkpoints if looks else 0
    whole_us = spent_s / summary["messages"] * 1e6
    if len(amid) < 2 or amid[0].n_messages == amid[-1].n_messages:
        snapshots = summary["snapshot_version"] / summary["seconds"]
        return Run(rate, overall, snapshots, n_checkpoints, 0.0, whole_us)
    first, last = amid[0], amid[-1]
    n, seconds = last.n_messages - first.n_messages, last.at_s - first.at_s
    return Run(
        messages_per_s=rate,
        overall_per_s=overall,
        snapshots_per_s=(last.n_snapshots - first.n_snapshots) / seconds,
        checkpoints=n_checkpoints,
        processor_us=(last.processor_s - first.processor_s) / n * 1e6,
        whole_us=whole_us,
    )
