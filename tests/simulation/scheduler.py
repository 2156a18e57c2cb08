"""Greenlets in the place of threads and a clock that leaps: who takes the next step is drawn.

Whoever takes, or waits for, a lock, and whoever changes a file, may have to let others go first. So
a seed decides every order in which threads can meet, and the same seed decides it the same way
again. If all wait, time goes on to the next deadline.

`install` replaces the primitives of `threading`, `queue` and `time` for good: it is for a process
of its own, before anything of the daemon is imported.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import random
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from greenlet import greenlet

STEPS_MAX = 400_000  # a run that takes more does not end
BEGIN_S = 1_000.0
_KILLS_MAX = 50  # how often a thread may catch its end


class KilledError(BaseException):
    """The process of this thread is no more."""


class StuckError(Exception):
    """The run does not end: all threads wait for ever, or turn in a circle."""


@dataclass(eq=False)
class Process:
    """A simulated process; what it does is numbered, so that it can be killed amid anything."""

    name: str
    is_dead: bool = False
    paused_until_s: float = 0.0
    n_actions: int = 0
    dies_in: int | None = None  # actions
    tasks: list[Task] = field(default_factory=list)


class Task:
    """A simulated thread."""

    def __init__(self, process: Process, run: Callable[[], object], name: str) -> None:
        self.process, self.name = process, name
        self.greenlet = greenlet(run)
        self.waits = 0  # a deadline is of one wait
        self.is_waiting = False
        self.is_timed_out = False
        self.is_done = False


class Scheduler:
    """Runs tasks one step at a time, in an order that the seed decides."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.now_s = BEGIN_S
        self.n_steps = 0
        self.trace = 0  # a checksum of who took each step
        self.current: Task | None = None
        self.failures: list[BaseException] = []
        self.on_death: Callable[[Process], None] = lambda _process: None
        # How often others go first, and how long a step takes: a run has a character of its own.
        self._share = chance.choice((0.02, 0.1, 0.4))
        self._step_s = chance.choice((1e-6, 1e-5, 1e-4))
        self._ready: list[Task] = []
        self._timers: list[tuple[float, int, Task | None, int, Callable[[], object] | None]] = []
        self._numbers = itertools.count()
        self._dying: list[Process] = []
        self._hub: greenlet = greenlet.getcurrent()

    # ---- for tasks -----------------------------------------------------------------------------

    def act(self) -> None:
        """Count an action of the running process; it may end here, or others may go first."""
        task = self.current
        if task is None:
            return
        process = task.process
        if process.is_dead:
            raise KilledError
        process.n_actions += 1
        if process.dies_in is not None:
            process.dies_in -= 1
            if process.dies_in <= 0:
                self.kill(process)
                raise KilledError
        if self.chance.random() < self._share:
            self._ready.append(task)
            self._switch(task)

    def wait(self, waiting: list[Task], timeout_s: float | None) -> bool:
        """Let others go until one wakes `waiting`, or time is over; return whether it is not."""
        task = self.current
        assert task is not None
        if task.process.is_dead:
            raise KilledError
        waiting.append(task)
        task.is_waiting, task.is_timed_out = True, False
        task.waits += 1
        if timeout_s is not None:
            self._at(self.now_s + timeout_s, task, task.waits, None)
        try:
            self._switch(task)
        finally:
            if task in waiting:
                waiting.remove(task)
        return not task.is_timed_out

    def wake(self, waiting: list[Task]) -> None:
        """Let all that wait go on."""
        for task in waiting:
            self._go_on(task)
        waiting.clear()

    def start(self, process: Process, run: Callable[[], object], name: str) -> Task:
        """Start a thread of a process."""

        def body() -> None:
            try:
                run()
            except KilledError:
                pass
            except BaseException as error:  # noqa: BLE001 -- it fails the run
                if not process.is_dead:
                    self.failures.append(error)
            finally:
                task.is_done = True

        task = Task(process, body, name)
        task.greenlet.parent = self._hub
        process.tasks.append(task)
        self._ready.append(task)
        return task

    # ---- for the world -------------------------------------------------------------------------

    def call_at(self, at_s: float, run: Callable[[], object]) -> None:
        """Run something between two steps, once it is that late."""
        self._at(at_s, None, 0, run)

    def kill(self, process: Process) -> None:
        """End a process at once: none of its threads does anything from here on."""
        if not process.is_dead:
            process.is_dead = True
            self._dying.append(process)

    def pause(self, process: Process, seconds: float) -> None:
        """Stop a process for a while, as SIGSTOP does."""
        process.paused_until_s = max(process.paused_until_s, self.now_s + seconds)

    def run(self, until: Callable[[], bool], limit_s: float) -> None:
        """Take steps until it is so; `StuckError` if that takes longer than `limit_s`."""
        end_s = self.now_s + limit_s
        while not until():
            if self.failures:
                raise self.failures[0]
            self._step()
            if self.n_steps > STEPS_MAX or self.now_s > end_s:
                raise StuckError(f"not done after {limit_s:g} s and {self.n_steps} steps")

    def _step(self) -> None:
        self.n_steps += 1
        self.bury()
        while self._timers and self._timers[0][0] <= self.now_s:
            self._ring()
        if not self._ready:
            if not self._timers:
                raise StuckError("all threads wait for ever")
            self.now_s = max(self.now_s, self._timers[0][0])
            return
        ready = self._ready
        at = int(self.chance.random() * len(ready))
        task, ready[at] = ready[at], ready[-1]
        ready.pop()
        if task.is_done or task.process.is_dead:
            return
        if task.process.paused_until_s > self.now_s:
            self.call_at(task.process.paused_until_s, lambda: ready.append(task))
            return
        self.now_s += self._step_s
        self.trace = zlib.crc32(task.name.encode(), self.trace)
        self._resume(task)

    def _resume(self, task: Task) -> None:
        self.current = task
        try:
            task.greenlet.switch()
        finally:
            self.current = None

    def _switch(self, task: Task) -> None:
        self._hub.switch()
        if task.process.is_dead:
            raise KilledError

    def _at(
        self, at_s: float, task: Task | None, wait: int, run: Callable[[], object] | None
    ) -> None:
        heapq.heappush(self._timers, (at_s, next(self._numbers), task, wait, run))

    def _ring(self) -> None:
        _, _, task, wait, run = heapq.heappop(self._timers)
        if run is not None:
            run()
        elif task is not None and task.is_waiting and task.waits == wait:
            task.is_timed_out = True
            self._go_on(task)

    def _go_on(self, task: Task) -> None:
        if task.is_waiting:
            task.is_waiting = False
            self._ready.append(task)

    def bury(self) -> None:
        """Let go of the processes that were killed."""
        while self._dying:
            self._bury(self._dying.pop())

    def _bury(self, process: Process) -> None:
        """Unwind all threads of a dead process; whatever they try on their way out fails."""
        for task in process.tasks:
            for _ in range(_KILLS_MAX):
                if task.is_done or task.greenlet.dead:
                    break
                self.current = task
                try:
                    if task.greenlet:
                        task.greenlet.throw(KilledError)
                    else:
                        task.is_done = True  # it never began
                except KilledError:
                    pass
                finally:
                    self.current = None
            else:
                raise StuckError(f"{process.name}: thread {task.name} does not end when killed")
        process.tasks.clear()
        self.on_death(process)


_active: list[Scheduler] = []


def activate(scheduler: Scheduler | None) -> None:
    """Let primitives belong to this run, or to none."""
    _active[:] = [] if scheduler is None else [scheduler]


def active() -> Scheduler:
    """Return the run under way."""
    return _active[0]


def _running() -> tuple[Scheduler, Task] | None:
    """Return the run and its running task; None outside of tasks."""
    if _active and _active[0].current is not None:
        return _active[0], _active[0].current
    return None


class Lock:
    """A lock of simulated threads; `is_reentrant` makes it that of `threading.RLock`."""

    is_reentrant = False

    def __init__(self) -> None:
        self._owner: Any = None
        self._n = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, as `threading.Lock` does."""
        running = _running()
        if running is None:
            if self._n and not self.is_reentrant:
                raise StuckError("a lock is wanted outside of the simulated threads")
            self._n += 1  # whoever has it keeps it: the world looks in between two steps
            return True
        scheduler, task = running
        scheduler.act()
        if self.is_reentrant and self._n and self._owner is task:
            self._n += 1
            return True
        until_s = None if timeout < 0 else scheduler.now_s + timeout
        while self._n:
            left_s = None if until_s is None else until_s - scheduler.now_s
            if not blocking or (left_s is not None and left_s <= 0):
                return False
            scheduler.wait(self._waiting, left_s)
        self._owner, self._n = task, 1
        return True

    def release(self) -> None:
        """Give it back."""
        running = _running()
        if running is not None and running[1].process.is_dead and self._owner is not running[1]:
            return  # it was never taken: whoever unwinds must see its own end only
        if not self._n:
            raise RuntimeError("release unlocked lock")
        self._n -= 1
        if not self._n:
            self._owner = None
            if self._waiting:
                active().wake(self._waiting)

    def locked(self) -> bool:
        """Return whether somebody has it."""
        return self._n > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _is_owned(self) -> bool:
        running = _running()
        return self._n > 0 and (
            not self.is_reentrant or running is None or self._owner is running[1]
        )


class ReentrantLock(Lock):
    """As `threading.RLock`."""

    is_reentrant = True

    def _release_save(self) -> int:
        n, self._n = self._n, 1
        self.release()
        return n

    def _acquire_restore(self, n: int) -> None:
        self.acquire()
        self._n = n


class Thread:
    """A simulated thread of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        assert group is None
        assert target is not None
        self._run: Callable[[], object] = lambda: target(*args, **(kwargs or {}))
        self.name, self.daemon = name or "thread", bool(daemon)
        self.ident: int | None = None
        self._task: Task | None = None
        self._waiting: list[Task] = []

    def start(self) -> None:
        """Begin, some time from now on."""
        running = _running()
        assert running is not None
        scheduler, task = running
        scheduler.act()
        self.ident = id(self)
        self._task = scheduler.start(task.process, self._body, self.name)

    def _body(self) -> None:
        try:
            self._run()
        finally:
            active().wake(self._waiting)

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        running = _running()
        if running is None or self._task is None:
            return
        scheduler, _ = running
        scheduler.act()
        if not self._task.is_done:
            scheduler.wait(self._waiting, timeout)

    def is_alive(self) -> bool:
        """Return whether it has begun and not ended."""
        return self._task is not None and not self._task.is_done


def _clock(real: Callable[[], float], base_s: float = 0.0) -> Callable[[], float]:
    def now() -> float:
        return base_s + _active[0].now_s if _active else real()

    return now


def _standstill(real: Callable[[], float]) -> Callable[[], float]:
    """Return a clock of processor time, which costs nothing here."""
    return lambda: 0.0 if _active else real()


def _pass_time(seconds: float) -> None:
    active().wait([], seconds)


def install() -> None:
    """Let all that is imported from here on use simulated primitives."""
    base_s = 1_700_000_000.0
    replaced: list[tuple[Any, dict[str, Any]]] = [
        (
            threading,
            {
                "Lock": Lock,
                "RLock": ReentrantLock,
                "_allocate_lock": Lock,
                "_time": _clock(time.monotonic),
                "Thread": Thread,
            },
        ),
        (queue, {"time": _clock(time.monotonic), "SimpleQueue": queue._PySimpleQueue}),  # type: ignore[attr-defined]  # the one in C blocks
        (
            time,
            {
                "monotonic": _clock(time.monotonic),
                "perf_counter": _clock(time.perf_counter),
                "time": _clock(time.time, base_s),
                "time_ns": lambda real=time.time_ns: (
                    int((base_s + _active[0].now_s) * 1e9) if _active else real()
                ),
                "thread_time": _standstill(time.thread_time),
                "sleep": _pass_time,
            },
        ),
    ]
    for module, values in replaced:
        for name, value in values.items():
            setattr(module, name, value)
