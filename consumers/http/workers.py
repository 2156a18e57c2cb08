"""A few threads for what would hold the event loop up: searches, counts, and waiting for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from consumers.http.responses import RETRY_SOON, ProblemError

T = TypeVar("T")

THREADS = 4
WAITING_MAX = 64


class TaskTimeoutError(ProblemError):
    """A task has not ended in time, and still runs."""


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
        """Return what a task returns, or raise what it raises; it runs on one of the threads.

        Raises
        ------
        TaskTimeoutError
            If it has begun and takes too long: it may still be done.
        ProblemError
            503 if too many tasks are waiting, or it waited for too long itself: it never begins.
        """
        if self._n_tasks >= THREADS + WAITING_MAX:
            detail = "too much is being asked at once; ask again in a moment"
            raise ProblemError(503, detail, headers=RETRY_SOON)
        self._n_tasks += 1
        future = self._pool.submit(task)
        waiting = asyncio.wrap_future(future)
        # A task counts until it is done, also if nobody waits for it any more.
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: call_soon(loop, self._done))
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting
        except TimeoutError:
            problem = ProblemError if future.cancel() else TaskTimeoutError
            detail = f"there was no answer within {timeout_s:g} s; ask again in a moment"
            raise problem(503, detail, headers=RETRY_SOON) from None

    def close(self) -> None:
        """Let the threads end after the tasks that they run; the others never begin."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self) -> None:
        self._n_tasks -= 1


def call_soon(loop: asyncio.AbstractEventLoop, run: Callable[..., object], *args: Any) -> None:
    """Have the event loop call a function, unless it has ended; from any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(run, *args)
