"""How long `/v1/predict` takes, and how much it answers, while the daemon learns at full rate.

Daemon and client are two processes on the same machine; the stream is made up, as fast as it is
learned. So what is measured here has to share its cores with everything. At the end two replicas
follow the daemon, and are asked in turns.
"""

from __future__ import annotations

import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import psutil

from benchmarks.http_client import WARM_UP_S, Outcome, Plan
from benchmarks.result import Result
from benchmarks.show import Show
from benchmarks.tweets import Tweets

PER_S: Final = 200.0
SECONDS: Final = 5.0
ROUNDS: Final = 3
CONNECTIONS: Final = 16
BATCH: Final = 1_000
BATCH_CONNECTIONS: Final = 4
_TEXTS: Final = 20_000
_ROOT: Final = Path(__file__).resolve().parents[1]
_PATIENCE_S: Final = 120.0
SETTLED: Final = 200_000  # messages; by then the vocabulary hardly grows
_CONFIG: Final = """\
generator: {rate_per_s: 0}
http: {port: 0, snapshots: true}
model:
  features:
    text: {hybrid: false, punctuation: false, ends: false, entities: false, compose: false}
view: log
"""


class Asked(NamedTuple):
    """What came of asking, and how many messages the daemon read a second meanwhile."""

    found: Outcome
    learned_per_s: float


class Replica(NamedTuple):
    """A replica's port and its process."""

    port: int
    process: psutil.Process


def predict_http(tweets: Tweets, show: Show) -> Result:
    """Ask evenly, then as fast as it goes, then for many texts at a time."""
    texts = tweets.texts[:_TEXTS]
    result = Result("predict_http", f"{tweets.origin}; learning made-up tweets")
    with live_daemon() as port:
        evenly, fast, many = [], [], []
        for _ in show.track(range(ROUNDS)):
            evenly.append(ask(Plan(port, texts, 1, CONNECTIONS, PER_S, SECONDS)))
            fast.append(ask(Plan(port, texts, 1, CONNECTIONS, 0.0, SECONDS)))
            many.append(ask(Plan(port, texts, BATCH, BATCH_CONNECTIONS, 0.0, SECONDS)))
        _ask_replicas(port, texts, result)
    result.add("p50 at 200/s", median(each.found.p50_ms for each in evenly), "ms")
    result.add("p99 at 200/s", median(each.found.p99_ms for each in evenly), "ms", at_most=25.0)
    result.add("longest at 200/s", max(each.found.longest_ms for each in evenly), "ms")
    result.add("learned at 200/s", median(each.learned_per_s for each in evenly), "messages/s")
    per_s = median(each.found.per_s for each in fast)
    result.add("one text, saturated", per_s, "requests/s", at_least=1e3)
    result.add("p99 saturated", median(each.found.p99_ms for each in fast), "ms")
    result.add("learned, saturated", median(each.learned_per_s for each in fast), "messages/s")
    texts_per_s = median(each.found.per_s * BATCH for each in many)
    result.add("1,000 texts a request", texts_per_s, "texts/s", at_least=1e5)
    result.add("learned, 1,000 texts", median(each.learned_per_s for each in many), "messages/s")
    return result


def _ask_replicas(port: int, texts: list[str], result: Result) -> None:
    """Ask two replicas in turns, while both follow the daemon."""
    asked: list[Asked] = []
    per_core: list[float] = []
    with replica_of(port) as one, replica_of(port) as other:
        for replica in (one, other) * ROUNDS:
            before_s = _processor_s(replica.process)
            plan = Plan(replica.port, texts, 1, CONNECTIONS, 0.0, SECONDS)
            asked.append(ask(plan, learner=port))
            spent_s = _processor_s(replica.process) - before_s
            per_core.append(asked[-1].found.per_s * (SECONDS + WARM_UP_S) / spent_s)
    per_s = median(each.found.per_s for each in asked)
    result.add("replica, saturated", per_s, "requests/s", at_least=1.5e3)
    result.add("replica, of one core", median(iter(per_core)), "requests/s")
    age_s = max(each.found.age_p99_s for each in asked)
    result.add("replica, p99 of age, highest of the runs", age_s, "s", at_most=1.0)
    result.add("learned, replica asked", median(each.learned_per_s for each in asked), "messages/s")


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def median(values: Iterator[float]) -> float:
    """Return the median of the rounds: one that other work disturbed should not decide."""
    return statistics.median(values)


def ask(plan: Plan, learner: int | None = None) -> Asked:
    """Have a client of its own process ask; `learner` is the daemon's port, if it is another.

    Raises
    ------
    RuntimeError
        Where a request failed.
    """
    page = f"http://127.0.0.1:{learner or plan.port}/metrics"
    began_s, n_before = time.perf_counter(), _n_messages(page)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.http_client"],
        cwd=_ROOT,
        input=msgspec.json.encode(plan),
        capture_output=True,
        check=True,
    )
    learned_per_s = (_n_messages(page) - n_before) / (time.perf_counter() - began_s)
    found = msgspec.json.decode(done.stdout, type=Outcome)
    if found.n_failed:
        raise RuntimeError(f"{found.n_failed} requests were not answered as they should be")
    return Asked(found, learned_per_s)


@contextlib.contextmanager
def live_daemon(config: str = _CONFIG) -> Iterator[int]:
    """Run the daemon on the made-up stream; yield its port once it has learned a good deal."""
    with _running(config, "run") as (process, log):
        yield _port_of(process, log, lambda at: _n_messages(f"{at}/metrics") > SETTLED)


@contextlib.contextmanager
def replica_of(port: int) -> Iterator[Replica]:
    """Run a replica of the daemon at a port; yield it once it answers."""
    follow = ("serve", "--follow", f"http://127.0.0.1:{port}")
    with _running(_CONFIG, *follow) as (process, log):
        yield Replica(_port_of(process, log, _is_ready), psutil.Process(process.pid))


@contextlib.contextmanager
def _running(config: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run `streamnb` in a folder of its own; yield its process and its log."""
    with tempfile.TemporaryDirectory(prefix="streamnb-http-") as name:
        folder = Path(name)
        (folder / "config.yaml").write_text(config, encoding="utf-8")
        log = folder / "log"
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "consumers", *arguments],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        try:
            yield process, log
        finally:
            process.terminate()
            process.wait()


def _port_of(process: subprocess.Popen[bytes], log: Path, is_there: Callable[[str], bool]) -> int:
    """Wait until what listens at an address is there; return its port."""
    give_up_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < give_up_s and process.poll() is None:
        told = re.search(r'"address": "(http://[0-9.]+:([0-9]+))', log.read_text(encoding="utf-8"))
        with contextlib.suppress(OSError):
            if told and is_there(told[1]):
                return int(told[2])
        time.sleep(0.2)
    raise RuntimeError(f"it did not begin:\n{log.read_text(encoding='utf-8')[-2000:]}")


def _is_ready(address: str) -> bool:
    with urllib.request.urlopen(f"{address}/readyz", timeout=10):  # else it is an error
        return True


def _n_messages(page: str) -> float:
    with urllib.request.urlopen(page, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = (line for line in lines if line.startswith("streamnb_messages_total{"))
    return sum(float(line.rpartition(" ")[2]) for line in found)
