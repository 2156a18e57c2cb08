"""Who waits for too long, and who opens pages without end: the others hear nothing of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from consumers.http.requests import ProblemError
from consumers.http.threads import THREADS, TaskTimeoutError, WorkerPool
from consumers.search.live_query import WatchRequest
from consumers.search.live_updater import LiveUpdater
from tests.consumers.search.live_stream import PATIENCE_S, Page, Said, Stream, events, make_hub


@pytest.fixture
def live_updater() -> Iterator[LiveUpdater]:
    """Yield a hub over a store with one message."""
    stream = Stream()
    stream.recent.start()
    try:
        stream.say([Said("1", "good coffee")])
        stream.settle()
        yield make_hub(stream)
    finally:
        stream.recent.stop()


def names(page: Page) -> list[str]:
    """Return the names of the events that a page was sent."""
    return [name for name, _ in events(page.mail.take())]


def test_pages_that_come_and_go_tell_the_others_nothing(live_updater: LiveUpdater) -> None:
    """Each new page is told all at once; one that is open hears of the status at a tick alone."""
    first = Page(live_updater, [WatchRequest("good", None)])
    live_updater.welcome()
    assert sorted(names(first)) == ["messages", "status", "summary"]
    for _ in range(3):
        other = Page(live_updater, [WatchRequest("good", None), WatchRequest("bad", None)])
        live_updater.welcome()
        assert sorted(names(other)) == ["messages"] * 2 + ["status"] + ["summary"] * 2
        other.close()
        assert names(first) == []
    live_updater.tick()
    assert "status" in names(first)
    first.close()


def test_a_status_does_not_outlive_the_pages(live_updater: LiveUpdater) -> None:
    """Who comes after all have gone is not told what was true for them, but what is true now."""
    page = Page(live_updater, [WatchRequest("good", None)])
    live_updater.welcome()
    page.close()
    page = Page(live_updater, [WatchRequest("good", None)])
    assert names(page) == []
    live_updater.welcome()
    assert "status" in names(page)
    page.close()


def later_than(clock: Callable[[], float]) -> Callable[[], float]:
    """Return a clock that has gone on for longer than anybody waits."""
    return lambda: clock() + 2 * PATIENCE_S


def test_what_has_begun_is_told_from_what_never_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is given up while it runs may still be done; one that was waiting never is."""
    workers, go_on, begun = WorkerPool(PATIENCE_S), threading.Event(), threading.Semaphore(0)
    done: list[int] = []

    def task(i: int) -> None:
        begun.release()
        assert go_on.wait(PATIENCE_S)
        done.append(i)

    async def ask() -> list[object]:
        tasks = [asyncio.create_task(workers.run(partial(task, i))) for i in range(THREADS + 2)]
        for _ in range(THREADS):
            while not begun.acquire(blocking=False):
                await asyncio.wait(tasks, timeout=0)  # a turn of the loop
        monkeypatch.setattr(loop := asyncio.get_running_loop(), "time", later_than(loop.time))
        found: list[object] = list(await asyncio.gather(*tasks, return_exceptions=True))
        go_on.set()
        # Behind all of them, where one that was given up would have been done before.
        await workers.run(lambda: None, PATIENCE_S)
        return found

    found = asyncio.run(ask())
    workers.close()
    assert [type(each) for each in found] == [TaskTimeoutError] * THREADS + [ProblemError] * 2
    assert set(done) <= set(range(THREADS))
