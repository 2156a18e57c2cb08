"""What the daemon changes in the interpreter so that nobody waits long for an answer."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from consumers.process import SWITCH_INTERVAL_S, short_pauses


def test_the_interpreter_is_given_back_as_it_was() -> None:
    """While the daemon runs threads take turns often; once it has ended, all is as before."""
    before_s, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    with short_pauses():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S)
        assert gc.get_freeze_count() > frozen
    assert sys.getswitchinterval() == before_s
    assert gc.get_freeze_count() == 0


_END = """
import atexit
import gc
import sys
from consumers.__main__ import main
# What is registered first is called last.
atexit.register(lambda: print(gc.get_freeze_count() > 0, len(gc.get_objects()), flush=True))
sys.argv = ["streamnb", "--version"]
main()
"""


def test_the_end_collects_no_garbage() -> None:
    """The system takes all memory back; to look through it took most of a second."""
    said = subprocess.check_output([sys.executable, "-c", _END], text=True).split()
    is_frozen, n_left = said[-2:]
    assert is_frozen == "True"
    assert int(n_left) < 100


_BATCHES = """
import resource
import sys
from consumers.process import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for _ in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [bytearray(1 << 20) for _ in range(24)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_the_memory_of_a_batch_serves_the_next_one() -> None:
    """Given back, it would come again by a fault each page: 6,144 of these here."""
    faults = {
        how: int(subprocess.check_output([sys.executable, "-c", _BATCHES, how]))
        for how in ("keep", "give back")
    }
    assert faults["keep"] < 600
    assert faults["give back"] > 3_000


_THREADS = """
import ctypes
import sys
import threading
from consumers.process import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
libc, held, all_there = ctypes.CDLL(None), [], threading.Barrier(8)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
def hold():
    held.append(libc.malloc(10_000))
    all_there.wait()
threads = [threading.Thread(target=hold) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
out = ctypes.c_void_p(libc.fopen(b"/proc/self/fd/1", b"w"))
libc.malloc_info(0, out)
libc.fclose(out)
"""


def test_what_threads_free_is_kept_in_few_places() -> None:
    """Otherwise each of them keeps what only one of them holds at a time."""
    arenas = {
        how: subprocess.check_output([sys.executable, "-c", _THREADS, how]).count(b"<heap nr=")
        for how in ("keep", "by itself")
    }
    assert arenas["keep"] <= 2
    assert arenas["by itself"] > 4


_PIECES = """
import os
from consumers.process import keep_freed_memory, return_freed_memory
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20
keep_freed_memory()
pieces = [bytearray(64 << 10) for _ in range(1_000)]
for i in range(len(pieces)):
    if i % 10:
        pieces[i] = None
before = resident()
return_freed_memory()
print(before - resident())
"""


def test_what_is_free_between_pieces_that_live_on_is_given_back() -> None:
    """Of 62 MB nine tenths are free; they would stay, however little of them is used again."""
    assert 50 <= int(subprocess.check_output([sys.executable, "-c", _PIECES])) <= 58
