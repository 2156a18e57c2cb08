"""How the process does: its memory's bound, wherever that is set, and each thread's time."""

from __future__ import annotations

import gc
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from consumers.monitoring.metrics import RECENT_COUNTERS, RECENT_GAUGES, watch_process
from consumers.process import cache_fills, cached, memory_limit_bytes, watch_cache
from consumers.search.rows import RecentState
from streamnb import __version__

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
MEBIBYTE = 1 << 20


class Kernel:
    """What a kernel would tell: the process's cgroups, and files below them."""

    def __init__(self, folder: Path, cgroup: str) -> None:
        self.process, self.cgroups = folder / "proc", folder / "cgroup"
        self.process.mkdir()
        (self.process / "cgroup").write_text(cgroup, encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        """Write a file below the cgroups."""
        file = self.cgroups / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")

    def limit(self) -> int:
        """Return the bound that is found here."""
        return memory_limit_bytes(self.process, self.cgroups)


def test_a_service_is_bound_by_its_own_cgroup(tmp_path: Path) -> None:
    """MemoryMax of a service stands in its cgroup of version 2; its parents say no less."""
    kernel = Kernel(tmp_path, "0::/system.slice/streamnb.service\n")
    kernel.write("system.slice/streamnb.service/memory.max", str(4 * MEBIBYTE))
    kernel.write("system.slice/memory.max", "max")
    assert kernel.limit() == 4 * MEBIBYTE


def test_a_group_above_may_allow_less(tmp_path: Path) -> None:
    """The least of all groups from one's own to the root is what holds."""
    kernel = Kernel(tmp_path, "0::/pods/one\n")
    kernel.write("pods/one/memory.max", str(8 * MEBIBYTE))
    kernel.write("pods/memory.max", str(6 * MEBIBYTE))
    assert kernel.limit() == 6 * MEBIBYTE


def test_a_container_sees_its_bound_at_the_root(tmp_path: Path) -> None:
    """From inside, the path may name places of the host; the root is the container's own."""
    kernel = Kernel(tmp_path, "4:cpu:/docker/abc\n3:memory:/docker/abc\n")
    kernel.write("memory/memory.limit_in_bytes", str(5 * MEBIBYTE))
    assert kernel.limit() == 5 * MEBIBYTE


@pytest.mark.parametrize("said", ["9223372036854771712", "max", ""])
def test_without_a_bound_it_is_the_machines_memory(tmp_path: Path, said: str) -> None:
    """Neither version 1's number for no bound nor version 2's word is taken for one."""
    kernel = Kernel(tmp_path, "1:name=systemd:/\n2:memory:/\n0::/\n")
    kernel.write("memory/memory.limit_in_bytes", said)
    kernel.write("memory.max", said)
    assert kernel.limit() <= MACHINE
    assert kernel.limit() > 8 * MEBIBYTE


def test_a_kernel_that_tells_nothing_bounds_nothing(tmp_path: Path) -> None:
    """Without files of cgroups the machine's memory is the answer."""
    assert memory_limit_bytes(tmp_path / "absent", tmp_path / "absent") <= MACHINE


def test_lasting_threads_have_their_time_and_others_do_not() -> None:
    """A thread is shown under its name in the guide, if it lasts as long as the daemon does."""
    registry = CollectorRegistry()
    watch_process(registry)
    done = threading.Event()
    names = ("predict", "transactions", "group", "read-labels", "passing")
    threads = [threading.Thread(target=done.wait, name=name) for name in names]
    pools = [ThreadPoolExecutor(1, name) for name in ("learned", "erase", "checkpoint")]
    for pool in pools:
        pool.submit(done.wait)
    for thread in threads:
        thread.start()
    shown = {
        sample.labels["thread"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "streamnb_thread_cpu_seconds_total"
    }
    done.set()
    for thread in threads:
        thread.join()
    assert shown["consume"] > 0
    for pool in pools:
        pool.shutdown()
    assert shown["predict"] >= 0
    assert {*names[:-1], "learned", "erase", "checkpoint"} <= set(shown)
    assert "passing" not in shown


def test_the_version_that_runs_is_shown() -> None:
    """One series says 1, with the version as its label."""
    registry = CollectorRegistry()
    watch_process(registry)
    assert registry.get_sample_value("streamnb_build_info", {"version": __version__}) == 1


def test_the_store_says_all_that_its_metrics_show() -> None:
    """Each metric of recent messages is a field of the store's state."""
    fields = {field.name for field in msgspec.structs.fields(RecentState)}
    assert {field for _, field, _ in (*RECENT_GAUGES, *RECENT_COUNTERS)} <= fields


class Shelf:
    """A list with a bound."""

    def __init__(self, name: str, n: int) -> None:
        self.n = n
        watch_cache(name, self.fill)

    def fill(self) -> tuple[int, int]:
        """Return its entries, and its bound."""
        return self.n, 10


def test_caches_are_shown_with_their_bounds_while_they_live() -> None:
    """Those of one name are added up; one that nobody holds any more has no sample."""
    registry = CollectorRegistry()
    watch_process(registry)

    def shown(kind: str, cache: str) -> float | None:
        return registry.get_sample_value(f"streamnb_{kind}", {"cache": cache})

    one, other = Shelf("shelves", 3), Shelf("shelves", 4)
    assert (shown("cache_entries", "shelves"), shown("cache_limit_entries", "shelves")) == (7, 20)
    other.n = 9
    assert shown("cache_entries", "shelves") == 12
    del one, other
    gc.collect()
    assert shown("cache_entries", "shelves") is None


def test_a_cached_function_is_shown() -> None:
    """It remembers its answers as `functools.lru_cache` does, and says how many."""
    asked = []

    @cached("answers", 2)
    def answer(x: int) -> int:
        asked.append(x)
        return x * x

    assert [answer(x) for x in (1, 2, 2, 3, 1)] == [1, 4, 4, 9, 1]
    assert asked == [1, 2, 3, 1]
    assert cache_fills()["answers"] == (2, 2)


def test_each_queue_and_cache_has_a_bound_and_a_metric() -> None:
    """In the table of the architecture no cell is empty, and each metric named is one."""
    docs = Path(__file__).resolve().parents[3] / "docs"
    guide, metrics = [
        (docs / name).read_text(encoding="utf-8") for name in ("architecture.md", "metrics.md")
    ]
    table = guide.partition("## Queues and caches")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line[:1] == "|"][2:]
    assert len(rows) >= 20
    for row in rows:
        assert len(row) == 4, row
        named = re.findall(r"`((?:streamnb|process)_\w+)", row[3])
        assert named or row[3] == "as above", row
        assert all(f"| `{name}`" in metrics for name in named), row
