"""A few threads for what would hold the event loop up: searches, counts, and waiting for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from consumers.http.problems import ProblemError

T = TypeVar("T")

THREADS = 4
WAITING_MAX = 64


class TaskTimeoutError(ProblemError):
    """A task has not come to its end in time, and is still at it."""


class WorkerPool:
    """A small pool of threads with a bounded number of tasks.

    Parameters
    ----------
    timeout_s : float
        How long a task may take, its waiting included (`http.request_timeout_s`).
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(THREADS, "serve-worker")
        self._n_tasks = 0

    async def run(self, task: Callable[[], T], timeout_s: float | None = None) -> T:
        """Return what a task finds, or raise what it raises.

        Parameters
        ----------
        task : callable
            Called on one of the threads.
        timeout_s : float, optional
            Where it knows better how long it may take.

        Raises
        ------
        TaskTimeoutError
            Where it has begun and took too long: it may come to its end yet.
        ProblemError
            503 where too many are waiting, or it waited for too long itself: it never begins.
        """
        if self._n_tasks >= THREADS + WAITING_MAX:
            raise _busy("too much is being asked at once")
        self._n_tasks += 1
        future = self._pool.submit(task)
        waiting = asyncio.wrap_future(future)
        # It counts until it is really done, also where nobody waits for it any more.
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _tell(loop, self._done))
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            why = f"there was no answer within {timeout_s:g} s"
            raise (_busy if future.cancel() else _late)(why) from None

    def close(self) -> None:
        """Let the threads end once they have done what they are at."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self) -> None:
        self._n_tasks -= 1


def _tell(loop: asyncio.AbstractEventLoop, run: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(run)


def _busy(why: str) -> ProblemError:
    return ProblemError(503, f"{why}; ask again in a moment", headers={"Retry-After": "1"})


def _late(why: str) -> ProblemError:
    return TaskTimeoutError(503, f"{why}; ask again in a moment", headers={"Retry-After": "1"})
