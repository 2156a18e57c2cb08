"""How the process itself does: memory and its bound, processor time by thread, open files.

`watch_process` adds these metrics to a registry. They are taken when Prometheus asks, in well under
a millisecond, and cost nothing in between.
"""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from streamnb import __version__

# Threads that live as long as the daemon, and what docs/architecture.md calls them. Others, such as
# a client's while it connects, are left out: a counter that vanishes would look like a restart.
THREADS = {
    "MainThread": "consume",
    "read": "read",
    "predict": "predict",
    "predict-urgent": "predict-urgent",
    "recent": "recent",
    "live": "live",
    "read-corrections": "read-corrections",
    "report": "report",
    "serve": "serve",
}
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Where a cgroup of version 1 has no bound it says a number beyond any memory there is.
_NO_BOUND = 1 << 60


def watch_process(registry: CollectorRegistry) -> None:
    """Add the metrics of the process to a registry.

    They are prometheus_client's own (`process_…`), processor time by thread, the bound of the
    memory, and the version that runs.
    """
    ProcessCollector(registry=registry)
    registry.register(ThreadTimes())
    gauge = partial(Gauge, namespace="streamnb", registry=registry)
    limit = gauge(
        "memory_limit_bytes",
        "Memory that the process may use: the least of what its container, its limits and the "
        "machine allow.",
    )
    limit.set_function(lambda: float(memory_limit_bytes()))
    info = gauge("build_info", "1, with the version that runs.", ["version"])
    info.labels(__version__).set(1)


class ThreadTimes(Collector):
    """Processor time of each lasting thread, as the kernel counts it."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the one metric, with a sample for each thread that runs now."""
        family = CounterMetricFamily(
            "streamnb_thread_cpu_seconds",
            "Processor time of each lasting thread.",
            labels=["thread"],
        )
        for thread in threading.enumerate():
            name = THREADS.get(thread.name)
            if name is not None and thread.native_id is not None:
                seconds = _thread_seconds(thread.native_id)
                if seconds is not None:
                    family.add_metric([name], seconds)
        yield family


def _thread_seconds(native_id: int) -> float | None:
    """Return the seconds that a thread has run; None if it has just ended."""
    try:
        text = Path(f"/proc/self/task/{native_id}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    # The second field is the thread's name in brackets, and may hold anything.
    user, system = text.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def memory_limit_bytes(
    process: Path = Path("/proc/self"), cgroups: Path = Path("/sys/fs/cgroup")
) -> int:
    """Return how much memory this process may use, in bytes.

    It is the least of the machine's memory, the process's own limit of address space (RLIMIT_AS),
    and what each cgroup from its own to the root allows: a service's MemoryMax, a container's
    limit. Both versions of cgroups are read, below `cgroups`; below `process` the kernel says what
    the process is in.
    """
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        bounds.append(address_space)
    for file in _limit_files(process, cgroups):
        try:
            bound = int(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue  # there is no such file, or it says "max"
        if bound < _NO_BOUND:
            bounds.append(bound)
    return min(bounds)


def _limit_files(process: Path, cgroups: Path) -> Iterator[Path]:
    """Yield the files that may bound the memory, from the process's own cgroup to the root."""
    try:
        lines = (process / "cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, place = line.split(":", 2)
        if controllers == "":  # version 2 has one hierarchy for all controllers
            root, name = cgroups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = cgroups / "memory", "memory.limit_in_bytes"
        else:
            continue
        own = root / place.lstrip("/")
        # Seen from inside a container the path may lead elsewhere; its root is the container's own.
        for folder in (own, *own.parents):
            yield folder / name
            if folder == root:
                break
