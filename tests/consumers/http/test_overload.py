"""More is asked than can be answered: who cannot be served hears so, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator

import pytest

from consumers.http.requests import ProblemError
from consumers.http.schemas import PredictAnswer
from consumers.http.threads import (
    THREADS,
    TOGETHER_MAX,
    WAITING_MAX,
    Batcher,
    WorkerPool,
    predict_columns,
)
from streamnb import EveryExamples, Learner, Predictor, Snapshot, SnapshotBoard
from tests.consumers.http.loopback_server import PATIENCE_S, settings, taught


@pytest.fixture
def predictor() -> Iterator[Predictor]:
    """Yield a predictor with room for one, which has not begun to answer."""
    board = SnapshotBoard()
    Learner(taught(settings()), board, EveryExamples(1_000_000), lambda: 0.0).publish()
    made = Predictor(board, queue_size_max=1)
    yield made
    made.stop()


def status_of(answer: object) -> int:
    """Return 200, or the status of the problem."""
    return answer.problem.status if isinstance(answer, ProblemError) else 200


def test_texts_that_wait_go_together(predictor: Predictor) -> None:
    """However many wait, they take one place in the queue, and each gets his own answer."""
    batcher = Batcher(predictor, "text", PATIENCE_S)
    n = TOGETHER_MAX + 5

    async def ask() -> list[PredictAnswer]:
        tasks = [
            asyncio.create_task(batcher.predict_text(f"{('good', 'bad')[i % 2]}")) for i in range(n)
        ]
        asyncio.get_running_loop().call_soon(predictor.start)
        return await asyncio.gather(*tasks)

    answers = asyncio.run(ask())
    labels = [answer.predictions[0].label for answer in answers]
    assert labels == [("positive", "negative")[i % 2] for i in range(n)]


def test_a_full_queue_is_told_at_once(predictor: Predictor) -> None:
    """Where there is no place in the queue the answer is 503; those who have one wait on."""
    batcher = Batcher(predictor, "text", PATIENCE_S)

    async def ask() -> tuple[list[object], int]:
        first = asyncio.create_task(batcher.ask(lambda snapshot: snapshot.version))
        await asyncio.wait([first], timeout=0)
        later: list[object] = list(
            await asyncio.gather(
                batcher.ask(lambda snapshot: snapshot.version),
                batcher.predict_text("a"),
                batcher.predict_text("b"),
                return_exceptions=True,
            )
        )
        predictor.start()
        return later, await first

    later, first = asyncio.run(ask())
    assert [status_of(answer) for answer in later] == [503] * 3
    assert all("as many requests wait for an answer as may" in str(answer) for answer in later)
    assert first >= 1


def test_an_answer_that_does_not_come_is_given_up(predictor: Predictor) -> None:
    """After the time that a request has, the answer is 503 with a way out."""
    batcher = Batcher(predictor, "text", 0.01)
    with pytest.raises(ProblemError, match=r"no answer within 0\.01 s") as caught:
        asyncio.run(batcher.predict_text("a"))
    assert caught.value.headers["Retry-After"] == "1"


def test_what_was_given_up_is_never_worked_off(predictor: Predictor) -> None:
    """A question that nobody waits for any more costs the predictor nothing."""
    worked_off: list[Snapshot] = []
    batcher = Batcher(predictor, "text", 0.01)
    with pytest.raises(ProblemError, match=r"no answer within 0\.01 s"):
        asyncio.run(batcher.ask(worked_off.append))
    predictor.start()
    predictor.predict_one({"text": "a"}, PATIENCE_S)  # behind it
    assert worked_off == []


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the batches of single texts that are predicted from now on."""
    found: list[list[str]] = []

    def predict(snapshot: Snapshot, columns: dict[str, list[str]]) -> PredictAnswer:
        found.append(columns["text"])
        return predict_columns(snapshot, columns)

    monkeypatch.setattr("consumers.http.threads.predict_columns", predict)
    return found


def test_a_batch_that_was_given_up_is_never_worked_off(
    predictor: Predictor, batches: list[list[str]]
) -> None:
    """Neither are single texts; those behind them that somebody waits for are answered."""
    batcher = Batcher(predictor, "text", PATIENCE_S)

    async def ask() -> PredictAnswer:
        first = asyncio.create_task(batcher.predict_text("bad"))
        await asyncio.wait([first], timeout=0)
        later = [asyncio.create_task(batcher.predict_text(text)) for text in ("bad", "good")]
        await asyncio.wait(later, timeout=0)
        for task in (first, later[0]):
            task.cancel()
        await asyncio.wait([first, later[0]])
        predictor.start()
        return await later[1]

    assert asyncio.run(ask()).predictions[0].label == "positive"
    assert batches == [["good"]]


def test_texts_that_wait_have_a_size_together(
    predictor: Predictor, batches: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond it the answer is 503; what was given up counts no longer and is not kept."""
    monkeypatch.setattr("consumers.http.threads.HELD_BYTES_MAX", 25_000)
    batcher, text = Batcher(predictor, "text", PATIENCE_S), "good " * 2_000

    async def ask() -> list[object]:
        under_way = asyncio.create_task(batcher.predict_text("good"))
        await asyncio.wait([under_way], timeout=0)
        for _ in range(5):
            tasks = [asyncio.create_task(batcher.predict_text(text)) for _ in range(3)]
            (refused,), _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert "as many requests wait for an answer as may" in str(refused.exception())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        last = asyncio.create_task(batcher.predict_text(text))
        asyncio.get_running_loop().call_soon(predictor.start)
        return list(await asyncio.gather(under_way, last))

    assert [status_of(answer) for answer in asyncio.run(ask())] == [200, 200]
    assert batches == [["good"], [text]]


def test_a_start_says_what_it_is_at() -> None:
    """Without a snapshot the answer is 503 with the start's note, and no advice to programmers."""
    predictor = Predictor(SnapshotBoard())
    predictor.start()
    notes: list[str | None] = ["compiling kernels, 12 of 40", None]
    batcher = Batcher(predictor, "text", PATIENCE_S, lambda: notes[0])

    def refusal() -> str:
        said = []
        for ask in (
            lambda: batcher.predict_text("a"),
            lambda: batcher.ask(lambda snapshot: snapshot.version),
        ):
            with pytest.raises(ProblemError) as caught:
                asyncio.run(ask())
            assert (caught.value.problem.status, caught.value.headers["Retry-After"]) == (503, "1")
            said.append(str(caught.value))
        assert said[0] == said[1]
        return said[0]

    note = "the daemon is starting, and answers once it is done: compiling kernels, 12 of 40"
    assert refusal() == note
    notes.pop(0)
    assert refusal() == "there is no model to answer from yet; ask again in a moment"
    predictor.stop()
    assert refusal() == "the daemon is stopping; ask again once it is back"


def test_tasks_that_wait_have_a_number() -> None:
    """One task more than may wait is refused; those before it are done in the end."""
    workers, go = WorkerPool(PATIENCE_S), threading.Event()
    n_max = THREADS + WAITING_MAX

    async def ask() -> list[object]:
        tasks = [asyncio.create_task(workers.run(go.wait)) for _ in range(n_max + 1)]
        (refused,), _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        go.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert refused.exception() is not None
        return list(done)

    answers = asyncio.run(ask())
    workers.close()
    assert [status_of(answer) for answer in answers] == [200] * n_max + [503]


def test_threads_that_give_way_never_ask_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the process gives way further than they should, they stay as they are and run."""
    asked = []

    def set_nice(_kind: int, _who: int, nice: int) -> None:
        asked.append(nice)
        if nice < 19:  # nobody but root may take back what was given up
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("consumers.http.threads.os.getpriority", lambda *_: 19)
    monkeypatch.setattr("consumers.http.threads.os.setpriority", set_nice)
    workers = WorkerPool(PATIENCE_S, n_threads=1, nice=15)
    try:
        assert asyncio.run(workers.run(lambda: "done")) == "done"
    finally:
        workers.close()
    assert asked == [19]


def test_what_was_never_submitted_does_not_count() -> None:
    """A pool that is closed refuses each task by its error; it does not fill up with them."""
    workers = WorkerPool(PATIENCE_S)
    workers.close()
    for _ in range(THREADS + WAITING_MAX + 1):
        with pytest.raises(RuntimeError, match="cannot schedule new futures"):
            asyncio.run(workers.run(lambda: None))


def test_a_task_that_takes_too_long_is_not_waited_for() -> None:
    """The answer is 503 while the task goes on; it counts until it is done."""
    workers, go = WorkerPool(0.01), threading.Event()
    with pytest.raises(ProblemError, match=r"no answer within 0\.01 s; ask again in a moment"):
        asyncio.run(workers.run(go.wait))
    go.set()
    workers.close()
