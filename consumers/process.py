"""What a run changes and reads of its process: signals, streams, pauses, memory, packages, caches.

A signal's number is written to a pipe by the interpreter's own handler, whatever the main thread
does, and a thread reads it. That thread never logs itself: a log that nobody reads would block it,
and with it the way to end the process.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import errno
import gc
import io
import os
import resource
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TextIO, TypeVar, cast

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Each package of the extra `daemon`, by what is imported of it.
DAEMON = {
    "httptools": "httptools",
    "kafka": "kafka-python",
    "msgspec": "msgspec",
    "prometheus_client": "prometheus-client",
    "pydantic": "pydantic",
    "rich": "rich",
    "starlette": "starlette",
    "structlog": "structlog",
    "typer": "typer",
    "uvicorn": "uvicorn",
    "uvloop": "uvloop",
    "yaml": "pyyaml",
    "zstandard": "zstandard",
}
# How long a thread may hold the interpreter's lock while others wait for it. A single prediction
# takes the lock about ten times (on its way to the predictor's thread and back, and after each
# kernel); with Python's default of 5 ms, one busy thread could delay it by 50 ms. With 0.5 ms that
# is 5 ms at worst, at no measurable cost in throughput; less than 0.5 ms gained nothing.
SWITCH_INTERVAL_S = 0.0005
EXIT_GAVE_UP = 75  # EX_TEMPFAIL of sysexits.h
EXIT_OUTPUT = 74  # EX_IOERR
READER_GONE = {errno.EPIPE, errno.EIO}  # of a pipe, of a terminal
# Of glibc's mallopt: number and value. It comes to these values by itself, the largest that it
# allows, once a block of that size was freed.
_TRIM_THRESHOLD = -1, 64 << 20
_MMAP_THRESHOLD = -3, 32 << 20
# By itself it gives each thread an arena, up to eight a core. A batch is made by one thread and
# freed by another, so every arena grew to hold what only one held at a time: of the memory of a
# run of 1,200,000 messages a third was free in the end, and it was growing still.
_ARENA_MAX = -8, 2
_GIVE_UP_AT = 3
_STILL = "what was taken in is being saved; a third signal gives that up"
_GAVE_UP = b"error: told to end three times; ended without saving; what was saved before stands\n"
_SCREEN_BACK = b"\x1b[?1049l\x1b[?25h"
# How outputs treat a character that their encoding lacks, as standard error does anyway. In Latin-1
# a dash in the summary of a run that had succeeded would be an error.
_ESCAPED = "backslashreplace"
_early: list[threading.Event] = []
_may_say = threading.Event()
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Where a cgroup of version 1 has no bound it says a number beyond any memory there is.
_NO_BOUND = 1 << 60


def missing_packages() -> list[str]:
    """Return which packages of the extra `daemon` are not installed."""
    return [package for module, package in DAEMON.items() if find_spec(module) is None]


def watch_signals() -> threading.Event:
    """Return an event that SIGTERM, SIGINT and SIGHUP set, for as long as the process lives.

    If `watch_early` was called before, it is the event that has been set since then.

    The second SIGTERM or SIGINT is logged, the third ends the process at once with
    `EXIT_GAVE_UP`. A terminal that hangs up may tell it twice, so SIGHUP does not count. Where
    SIGHUP is ignored, as after `nohup`, it stays so. Called on the main thread.
    """
    if _early:
        return _early.pop()
    stop = threading.Event()
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda _number, _frame: None)
    threading.Thread(target=_handle, args=(told, stop), name="signals", daemon=True).start()
    atexit.register(_ignore_signals)
    return stop


def watch_early() -> None:
    """Watch signals while the commands are still to be imported, which takes a second."""
    _early.append(watch_signals())


def logs_are_set_up() -> None:
    """Let signals that came be logged: before, their lines would go to standard output."""
    _may_say.set()


def _ignore_signals() -> None:
    """Ignore all signals: the interpreter's end would let them kill again what has succeeded."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def _handle(told: int, stop: threading.Event) -> None:
    """Read signals from a pipe, and do what they ask for."""
    n_asked = 0
    while True:
        for number in os.read(told, 64):
            n_asked += number != signal.SIGHUP
            if n_asked == _GIVE_UP_AT:
                _give_up()
            args = (signal.Signals(number).name, stop.is_set())
            stop.set()
            threading.Thread(target=_say, args=args, name="signals-log", daemon=True).start()


def _say(name: str, is_stopping: bool) -> None:
    _may_say.wait()
    import structlog  # noqa: PLC0415 -- commands that answer at once do not log

    log = structlog.get_logger(__name__)
    if is_stopping:
        log.info("still_stopping", signal=name, detail=_STILL)
    else:
        log.info("stopping", signal=name)


def _give_up() -> NoReturn:
    """End the process; nothing is saved any more, and the screen is given back."""
    for fd, text in ((1, b""), (2, _GAVE_UP)):
        with contextlib.suppress(OSError):
            if select.select([], [fd], [], 0)[1]:  # else it could block for ever
                os.write(fd, (_SCREEN_BACK if os.isatty(fd) else b"") + text)
    os._exit(EXIT_GAVE_UP)


class OutputError(OSError):
    """Standard output or standard error cannot be written, and is no pipe without a reader."""

    exit_code = EXIT_OUTPUT

    def __str__(self) -> str:
        """Return the place, the reason, and the way out."""
        return (
            f"{self.filename} cannot be written ({self.strerror}); what was printed is not whole: "
            "make room where it goes, or send it elsewhere"
        )


class _Output(io.FileIO):
    """The descriptor below an output: only here it is certain which file an error is of."""

    def __init__(self, fd: int, called: str) -> None:
        super().__init__(fd, "w", closefd=False)
        self._called = called

    def write(self, data: Any, /) -> int:
        """Write all bytes, or raise `OutputError`; Typer and Rich know a broken pipe themselves.

        Of what the disk has no room for a part is written first. With `python -u` nobody above asks
        how large it was.
        """
        left = memoryview(data).cast("B")
        try:
            while left:
                n: int | None = super().write(left)
                if n is None:  # it would have to wait, and was told never to
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                left = left[n:]
            return memoryview(data).nbytes
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(error.errno, error.strerror, self._called) from error


def open_standard_streams() -> None:
    r"""Let standard streams that were closed at the start go nowhere, and outputs name themselves.

    Otherwise the next file that is opened has the number of one, and receives what is printed. An
    output that cannot be written raises `OutputError`; a pipe without a reader `BrokenPipeError`.
    What an output's encoding lacks is written as its escape, such as `\u2013`.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # it takes the lowest number
        if getattr(sys, name) is None:
            mode = "w" if fd else "r"
            setattr(sys, name, open(fd, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 -- of a descriptor, for good
    sys.stdout = _told_apart(sys.stdout, 1, "standard output")
    sys.stderr = _told_apart(sys.stderr, 2, "standard error")


def drop_empty_sizes() -> None:
    """Forget a terminal's size of zero in the environment, as shells do; Rich would draw nothing.

    Some editors and containers set one where they do not know it.
    """
    for name in ("COLUMNS", "LINES"):
        if os.environ.get(name, "").strip("0") == "":
            os.environ.pop(name, None)


def _told_apart(stream: TextIO, fd: int, called: str) -> TextIO:
    """Return the same output, whose errors can be told from those of other files."""
    number = -1
    with contextlib.suppress(AttributeError, OSError, ValueError):
        number = stream.fileno()
    if number != fd or not isinstance(stream, io.TextIOWrapper):
        return stream  # somebody else's, who runs us in their process
    with contextlib.suppress(OSError):  # what was printed before comes first
        stream.flush()
    output = _Output(fd, called)
    return io.TextIOWrapper(
        output if stream.write_through else io.BufferedWriter(output),  # with `python -u`
        encoding=stream.encoding,
        errors=_ESCAPED if _may_raise(stream) else stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _may_raise(stream: io.TextIOWrapper) -> bool:
    """Return whether an output refuses a character, rather than write another in its place.

    In UTF-8 `surrogateescape` refuses none that can come: it gives names of files as they are.
    """
    is_utf_8 = codecs.lookup(stream.encoding).name == "utf-8"
    return stream.errors == "strict" or (stream.errors == "surrogateescape" and not is_utf_8)


def hush(stream: TextIO) -> bool:
    """Flush an output, and let it go nowhere if that fails; return whether its reader had gone.

    Otherwise Python's own last flush would fail, and with it the exit code. Any other failure is
    raised.
    """
    try:
        stream.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        if error.errno not in READER_GONE:
            raise
        return True
    return False


@contextlib.contextmanager
def short_pauses() -> Iterator[None]:
    """Let no thread, and no garbage collection, hold the others up for long."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    # Imported modules stay, so garbage collections skip them: with the compiler among them, a full
    # collection takes 100 ms, during which no request is answered.
    gc.freeze()
    gc.enable()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before_s)


def keep_freed_memory() -> None:
    """Have the C library keep what one batch frees for the next one, in few places, if it can.

    Memory that was given back comes again page by page, with a fault each: that took 0.2 µs a
    message.
    """
    if (mallopt := _of_library("mallopt")) is not None:
        mallopt(*_MMAP_THRESHOLD)
        mallopt(*_TRIM_THRESHOLD)
        mallopt(*_ARENA_MAX)


def return_freed_memory() -> None:
    """Give whole pages that are free back to the system, if the C library can.

    Between pieces that live on, freed ones fit worse and worse: without this a run of 1,200,000
    messages grew by a tenth. It takes milliseconds, so it is for now and then.
    """
    if (malloc_trim := _of_library("malloc_trim")) is not None:
        malloc_trim(0)


def _of_library(name: str) -> Callable[..., int] | None:
    import ctypes  # noqa: PLC0415 -- commands that answer at once do without

    return getattr(ctypes.CDLL(None), name, None)


@contextlib.contextmanager
def left_out(*modules: str) -> Iterator[None]:
    """Let imports in this block not find modules by full name, unless they are imported already."""
    hidden = [name for name in modules if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)


# ---- what the kernel says of the process ---------------------------------------------------------


def thread_seconds(native_id: int) -> float | None:
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


# ---- caches --------------------------------------------------------------------------------------

_caches: list[tuple[str, weakref.ref[Any], Callable[[Any], tuple[int, int]]]] = []


def watch_cache(name: str, fill: Callable[[], tuple[int, int]]) -> None:
    """Have the metrics show a cache or list for as long as the owner of a method lives.

    The method returns how many entries there are and may be; equal names are added up.
    """
    _watch(name, weakref.WeakMethod(fill), lambda method: method())


def cached(name: str, maxsize: int) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Return `functools.lru_cache(maxsize)`, watched under a name."""

    def wrap(function: Callable[_P, _T]) -> Callable[_P, _T]:
        made = lru_cache(maxsize)(function)
        _watch(name, weakref.ref(made), lambda each: (each.cache_info().currsize, maxsize))
        return cast("Callable[_P, _T]", made)

    return wrap


def _watch(name: str, owner: weakref.ref[Any], fill: Callable[[Any], tuple[int, int]]) -> None:
    _caches[:] = [each for each in _caches if each[1]() is not None]
    _caches.append((name, owner, fill))


def cache_fills() -> dict[str, tuple[int, int]]:
    """Return the entries of each cache, and its bound.

    Examples
    --------
    >>> halves = cached("halves", 100)(lambda x: x / 2)
    >>> halves(3), cache_fills()["halves"]
    (1.5, (1, 100))
    """
    fills: dict[str, tuple[int, int]] = {}
    for name, owner, fill in tuple(_caches):
        found = owner()
        if found is not None:
            (n, limit), (n_before, limit_before) = fill(found), fills.get(name, (0, 0))
            fills[name] = n_before + n, limit_before + limit
    return fills
