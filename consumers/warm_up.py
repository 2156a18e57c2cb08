"""Compiles kernels ahead of the stream: `streamnb warm-up` all of them, the daemon those it needs.

The daemon compiles while its page is served. Other processes do it, so that this one's interpreter
stays free for the page and for Ctrl-C; they leave the machine code in the cache folder, from where
it is loaded here. Where that cannot be (no folder, no processes), the kernels are compiled in this
process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
import structlog

import consumers.kernels
import streamnb.kernels
from consumers.config.model import CategoriesSettings, FlagsSettings, NumbersSettings, holds_floats
from consumers.config.settings import Settings
from consumers.errors import ConsumerError
from consumers.kernels import json_numbers, json_scan, learned_records, record_batch
from streamnb.kernels import (
    bernoulli,
    categorical,
    complement,
    counting,
    drift,
    gaussian,
    hashing,
    hybrid,
    multinomial,
    posterior,
    tokenize,
)
from streamnb.kernels import word_table as table
from streamnb.kernels.jit import (
    DISABLED,
    EntryPoint,
    cache_folder,
    entry_points,
    is_warm,
    read_only,
)
from streamnb.kernels.jit import warm_up as load
from streamnb.tokenizer import Tokenizer

log = structlog.get_logger(__name__)

Kernel = EntryPoint[Any, Any]

_LIKELIHOODS = {
    "bernoulli": (bernoulli,),
    "complement": (complement,),
    "multinomial": (multinomial,),
}
PROCESSES_MAX: Final = 2  # each takes 0.2 GB; the longest kernel alone takes a third of the time
# What compiling a byte of bytecode takes, until it is known for this machine: a guess that counts
# as much as the first kernels do.
_GUESS_S, _GUESS_BYTES = 0.0003, 4000
_TURN_S = 0.2  # Ctrl-C is heeded between two turns
LOAD_AFTER_S: Final = 2.0  # the first messages load what they need; the rest can wait for them
_COMPILE = (
    "import sys; sys.modules['scipy.linalg'] = None; "  # as in `_import_without_blas`
    "from streamnb.kernels.jit import compile_as_told; compile_as_told()"
)


class Warmed(msgspec.Struct, frozen=True):
    """What warming up did; `compiled` is False where all of it was there already."""

    kernels: int
    folders: tuple[str, ...]
    seconds: float
    compiled: bool


def warm() -> Warmed:
    """Compile every kernel of both packages, or load it, whether or not a run would need it.

    Where machine code cannot be kept, every start would compile again: a `ConsumerError`.
    """
    if DISABLED:
        raise ConsumerError(
            "NUMBA_DISABLE_JIT is set, so nothing is compiled; unset it, then warm up again."
        )
    _import_all()
    folders = {cache_folder(each.sources) for each in entry_points}
    kept = tuple(sorted(str(read_only.get(each, each)) for each in folders if each is not None))
    was_warm = is_warm()
    if len(kept) < len(folders) or (folders & read_only.keys() and not was_warm):
        raise ConsumerError(
            "no folder for machine code can be written, so every start would compile again; let"
            " STREAMNB_CACHE_DIR name one that can."
        )
    began_s = time.perf_counter()
    everything = WarmUp(entry_points)
    everything.start()
    while not everything.wait(_TURN_S):
        pass
    everything.cancel()
    load(entry_points)
    return Warmed(len(entry_points), kept, time.perf_counter() - began_s, not was_warm)


def _import_all() -> None:
    for package in (streamnb.kernels, consumers.kernels):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


def needed(settings: Settings) -> list[Kernel]:
    """Return the kernels that a run needs, by what its model, its decoder and its source are.

    One that is missing here is compiled all the same, by its first call in mid-stream.
    """
    if DISABLED:
        return []
    modules = {posterior, json_scan, hashing}
    spare: set[Any] = {table.encode, table.encode_extras}  # each reader of texts takes one of them
    groups = [each for model in settings.models.values() for each in model.features.values()]
    for group in groups:
        modules |= {json_numbers} if holds_floats(group.holds) else set()
        if isinstance(group, CategoriesSettings):
            modules |= {categorical, counting, table}
        elif isinstance(group, FlagsSettings):
            modules.add(categorical)
        elif isinstance(group, NumbersSettings):
            modules.add(gaussian)
        else:
            modules |= {counting, table, *_LIKELIHOODS[group.likelihood]}
            modules |= {hybrid} if group.hybrid else set()
            reading = group.reading()
            tokenizer = Tokenizer(
                group.ngrams, gap=group.gap, characters=group.characters, **reading
            )
            modules |= {tokenize} if tokenizer.rewrites else set()
            spare.discard(table.encode_extras if tokenizer.has_extras else table.encode)
    if settings.learned.messages_max:
        modules.add(learned_records)
    kafka = settings.source_address.kind == "kafka" and settings.kafka.client == "kafka-python"
    labels = (settings.corrections.address, settings.late_labels.address)
    kafka = kafka or any(each.kind == "kafka" for each in labels)
    if kafka and settings.kafka.decode == "columns":
        modules.add(record_batch)
    wanted = {module.__name__ for module in modules}
    names = {f"{drift.__name__}.bet"} if settings.drift.enabled else set()
    return [
        each
        for each in entry_points
        if (each.name.rpartition(".")[0] in wanted and each not in spare) or each.name in names
    ]


class WarmUp:
    """Compiles kernels on a thread of its own, while others wait for it or end it.

    Of `n` that must be compiled, `n_done` are: the others are on disk. What is on disk is loaded by
    its first call, or `LOAD_AFTER_S` after the wait is over, so that no start waits for kernels
    that its first messages do not need and no message waits for a disk long afterwards. `clock`
    returns monotonic seconds.
    """

    def __init__(
        self, kernels: Iterable[Kernel], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._kernels = tuple(kernels)
        cold = [each for each in self._kernels if not (each.is_compiled or each.is_kept)]
        self._costs = {each.name: _cost(each) for each in cold}
        # The longest first: the last ones are then short, and no process waits long for another.
        self._left = sorted(cold, key=lambda each: self._costs[each.name])
        self.n, self.n_done = len(cold), 0
        self._cost_done = 0
        self._processes: list[subprocess.Popen[str]] = []
        self._clock = clock
        self._began_s = self._done_at_s = clock()
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._done = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="compile", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._began_s = self._done_at_s = self._clock()
        self._thread.start()

    def wait(self, timeout_s: float) -> bool:
        """Wait until none need be compiled; return whether that is so, or raise the failure."""
        done = self._done.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return done

    def cancel(self) -> None:
        """End it: processes at once, this one's thread after the kernel that it is at."""
        with self._lock:
            self._cancelled.set()
            for process in self._processes:
                process.kill()
        self._thread.join()

    @property
    def note(self) -> str | None:
        """How far it is, in a sentence; None where nothing must be compiled."""
        if self.n_done >= self.n:
            return None
        left_s = max(1.0, self._seconds_left())
        return (
            f"compiling kernels: {self.n_done + 1} of {self.n}, about {left_s:.0f} s left; later "
            "starts need not"
        )

    def _seconds_left(self) -> float:
        """Return how long the rest takes, at the pace of those that are done."""
        took_s = self._done_at_s - self._began_s
        a_byte_s = (took_s + _GUESS_BYTES * _GUESS_S) / (self._cost_done + _GUESS_BYTES)
        cost_left = sum(self._costs.values()) - self._cost_done
        return cost_left * a_byte_s - (self._clock() - self._done_at_s)

    def _run(self) -> None:
        try:
            if self.n and self._processes_help():
                threads = [
                    threading.Thread(target=self._drive, name=f"compile-{i}", daemon=True)
                    for i in range(min(PROCESSES_MAX, len(os.sched_getaffinity(0)), self.n))
                ]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            cold = [each for each in self._kernels if not each.is_kept]
            if cold:
                _import_without_blas()
            for each in cold:
                if self._cancelled.is_set():
                    return
                each.compile()
            self.n_done = self.n
        except BaseException as error:  # noqa: BLE001 -- it comes out of `wait`, on the thread that ends the run
            self._failure = error
        finally:
            self._done.set()
        if self._failure is None and not self._cancelled.wait(LOAD_AFTER_S):
            self._load_rest()

    def _load_rest(self) -> None:
        for each in self._kernels:
            if self._cancelled.is_set():
                return
            try:
                each.compile()
            except Exception:  # its first call raises it where it matters
                log.exception("kernel_not_loaded", kernel=each.name)

    def _processes_help(self) -> bool:
        """Return whether what another process compiles can be loaded by this one."""
        folders = {cache_folder(each.sources) for each in self._left}
        return None not in folders and not folders & read_only.keys()

    def _drive(self) -> None:
        """Have another process compile one kernel after the other, as long as there are some."""
        process = self._another_process()
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        # Where the process dies (of memory, or killed), what it has not done is compiled here.
        with contextlib.suppress(BrokenPipeError), process:
            while (kernel := self._next()) is not None:
                process.stdin.write(f"{kernel.name}\n")
                process.stdin.flush()
                if process.stdout.readline() != f"{kernel.name}\n":
                    break
                with self._lock:
                    self.n_done += 1
                    self._cost_done += self._costs[kernel.name]
                    self._done_at_s = self._clock()
            process.stdin.close()

    def _another_process(self) -> subprocess.Popen[str] | None:
        """Start a process that compiles what it is told to; None where there can be none."""
        path = os.pathsep.join(each for each in sys.path if each)
        with self._lock:
            if self._cancelled.is_set():
                return None
            try:
                process = subprocess.Popen(  # noqa: S603 -- our own interpreter and words
                    [sys.executable, "-P", "-c", _COMPILE],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=os.environ | {"PYTHONPATH": path},
                    text=True,
                    start_new_session=True,  # Ctrl-C is told to us, and we end it
                )
            except OSError:
                return None
            self._processes.append(process)
        return process

    def _next(self) -> Kernel | None:
        with self._lock:
            return self._left.pop() if self._left and not self._cancelled.is_set() else None


def _import_without_blas() -> None:
    """Keep numba from importing SciPy's linear algebra with its first kernel: a third of a second.

    It does so once, to know whether there is a BLAS, and none of our kernels asks for one. Others
    may import SciPy meanwhile: a calibrator needs it. A numba without these parts takes its time.
    """
    try:
        linalg: Any = importlib.import_module("numba.np.linalg")
        found = linalg.ensure_blas
    except (ImportError, AttributeError):
        return
    linalg.ensure_blas = _no_blas
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        linalg.ensure_blas = found


def _no_blas() -> None:
    raise ImportError


def _cost(kernel: Kernel) -> int:
    """Return how many bytes of bytecode a kernel has, with all inner functions that it calls."""
    seen: set[int] = set()
    left = [kernel.dispatcher.py_func]
    n_bytes = 0
    while left:
        function = left.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        code = function.__code__
        n_bytes += len(code.co_code)
        called = (function.__globals__.get(name) for name in code.co_names)
        left += [each.py_func for each in called if hasattr(each, "py_func")]
    return n_bytes
