"""The predictor: answers with their version, a bounded queue, and an end in good order."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait

import numpy as np
import pytest

from streamnb import Answer, Bernoulli, NaiveBayes, Predictor, Snapshot, SnapshotBoard, Words
from streamnb.errors import InputError, PredictorError, PredictorStopped, QueueFullError

LONG_S = 60.0  # longer than anything here takes; a test that waits so long has failed
TEXT = {"text": ["good day"]}


@pytest.fixture
def model() -> NaiveBayes:
    """Return a model that has learned a little."""
    words = {"text": Words(Bernoulli())}
    model = NaiveBayes(["neg", "pos"], features=words, new_classes=True)
    model.learn_many({"text": ["good day", "bad day"]}, ["pos", "neg"])
    return model


@pytest.fixture
def board(model: NaiveBayes) -> SnapshotBoard:
    """Return a board with a snapshot of version 7."""
    board = SnapshotBoard()
    board.publish(Snapshot(model, 7))
    return board


@pytest.fixture
def predictor(board: SnapshotBoard) -> Iterator[Predictor]:
    """Return a running predictor with room for two."""
    predictor = Predictor(board, queue_size_max=2)
    predictor.start()
    yield predictor
    predictor.stop(LONG_S)
    assert not predictor._stream.thread.is_alive()
    assert not predictor._urgent.thread.is_alive()


class Gate:
    """A `then` that holds one of the predictor's threads until the gate is opened."""

    def __init__(self, predictor: Predictor, *, urgent: bool = False) -> None:
        self._came = threading.Event()
        self._open = threading.Event()
        self.asked = predictor.submit(TEXT, then=self._hold, timeout_s=LONG_S, urgent=urgent)
        assert self._came.wait(LONG_S)

    def _hold(self, _answer: Answer) -> None:
        self._came.set()
        assert self._open.wait(LONG_S)

    def open(self) -> None:
        """Let the thread go on."""
        self._open.set()


def test_answers_are_the_snapshots(predictor: Predictor, model: NaiveBayes) -> None:
    """One example or a batch, the answer is the snapshot's own, and says which snapshot."""
    one = predictor.predict_one({"text": "good day", "unused": 3})
    assert one.log_posteriors.tobytes() == model.predict_log_proba_many(TEXT).tobytes()
    assert (one.classes, one.version, one.n_examples) == (("neg", "pos"), 7, 2)
    texts = {"text": ["good", None, "", "day day"] * 1_500}
    many = predictor.predict_many(texts)
    assert many.log_posteriors.tobytes() == model.predict_log_proba_many(texts).tobytes()
    assert predictor.predict_many({"text": []}).log_posteriors.shape == (0, 2)
    nothing = predictor.predict_one({})  # an example all the same
    assert nothing.log_posteriors.tolist() == [list(model.predict_log_proba_one({}).values())]


def test_a_newer_snapshot_answers_from_then_on(
    predictor: Predictor, board: SnapshotBoard, model: NaiveBayes
) -> None:
    """The next request after a publication is answered from the new snapshot."""
    assert predictor.predict_many(TEXT).version == 7
    model.learn_one({"text": "new class"}, "mixed")
    assert predictor.predict_many(TEXT).n_examples == 2
    board.publish(Snapshot(model, 8))
    answer = predictor.predict_many(TEXT)
    assert (answer.version, answer.n_examples) == (8, 3)
    assert answer.classes == ("neg", "pos", "mixed")
    assert answer.log_posteriors.shape == (1, 3)


def test_a_request_may_bring_its_snapshot(
    predictor: Predictor, board: SnapshotBoard, model: NaiveBayes
) -> None:
    """It answers whatever was published meanwhile; requests without one get the newest."""
    bound = board.current()
    gate = Gate(predictor)
    asked = predictor.submit(TEXT, timeout_s=LONG_S, snapshot=bound)
    other = predictor.submit(TEXT, timeout_s=LONG_S)
    model.learn_one({"text": "good day"}, "neg")
    board.publish(Snapshot(model, 8))
    gate.open()
    assert (asked.result(LONG_S).version, asked.result(LONG_S).n_examples) == (7, 2)
    assert (other.result(LONG_S).version, other.result(LONG_S).n_examples) == (8, 3)


def test_without_a_snapshot_the_asker_is_told() -> None:
    """Before the first publication a request fails with the way out, and the thread lives on."""
    board = SnapshotBoard()
    predictor = Predictor(board)
    predictor.start()
    with pytest.raises(PredictorError, match="no snapshot yet; publish one before asking"):
        predictor.predict_many(TEXT)
    board.publish(Snapshot(NaiveBayes(["a"], features={"text": Words(Bernoulli())}), 1))
    assert np.exp(predictor.predict_many(TEXT).log_posteriors).tolist() == [[1.0]]
    predictor.stop()


@pytest.mark.parametrize("wrong", [{"text": [3]}, {"other": ["a"]}, {"text": "a"}, 5, None])
def test_wrong_input_goes_to_the_asker(predictor: Predictor, wrong: object) -> None:
    """What cannot be read fails the request alone; the thread answers the next one."""
    with pytest.raises(InputError):
        predictor.predict_many(wrong)
    assert predictor.predict_many(TEXT).version == 7
    predictor.drain(LONG_S)


@pytest.mark.parametrize("urgent", [False, True])
def test_the_queue_is_bounded(predictor: Predictor, urgent: bool) -> None:
    """Where all places of a class are taken, asking without patience is refused with a way out."""
    gate = Gate(predictor, urgent=urgent)
    waiting = [predictor.submit(TEXT, urgent=urgent) for _ in range(2)]
    assert predictor.n_waiting == 2
    with pytest.raises(QueueFullError, match="2 requests are waiting already; ask again later"):
        predictor.submit(TEXT, urgent=urgent)
    with pytest.raises(QueueFullError):
        predictor.submit(TEXT, timeout_s=0.01, urgent=urgent)
    if urgent:
        with pytest.raises(QueueFullError):
            predictor.predict_many(TEXT, timeout_s=0.01)
    else:
        with pytest.raises(QueueFullError):
            predictor.call(lambda: None, timeout_s=0.01)
    gate.open()
    assert [future.result(LONG_S).version for future in waiting] == [7, 7]
    predictor.drain(LONG_S)


def test_asking_with_patience_waits_for_a_place(predictor: Predictor) -> None:
    """A full queue holds an asker back until there is a place, and then takes the request."""
    gate = Gate(predictor)
    futures = [predictor.submit(TEXT) for _ in range(2)]
    late: list[Future[Answer]] = []
    asker = threading.Thread(target=lambda: late.append(predictor.submit(TEXT, timeout_s=LONG_S)))
    asker.start()
    assert not late
    gate.open()
    asker.join(LONG_S)
    assert {future.result(LONG_S).version for future in [*futures, *late]} == {7}


def test_requests_are_answered_in_their_order(predictor: Predictor) -> None:
    """What is handed on comes in the order in which it was asked."""
    came: list[int] = []
    for i in range(200):
        predictor.submit(
            {"text": ["a"] * i}, then=lambda a: came.append(len(a.log_posteriors)), timeout_s=LONG_S
        )
    predictor.drain(LONG_S)
    assert came == list(range(200))


def test_urgent_requests_overtake_the_stream(predictor: Predictor) -> None:
    """However the stream's thread is held and its queue filled, who waits is answered at once."""
    gate = Gate(predictor)
    waiting = [predictor.submit(TEXT) for _ in range(2)]
    assert predictor.predict_one({"text": "good day"}, LONG_S).version == 7
    assert predictor.predict_many(TEXT, LONG_S).version == 7
    assert predictor.submit(TEXT, urgent=True).result(LONG_S).version == 7
    assert not any(future.done() for future in waiting)
    gate.open()
    predictor.drain(LONG_S)
    assert all(future.done() for future in waiting)


def test_an_errand_runs_behind_what_was_asked_before_it(predictor: Predictor) -> None:
    """What `call` is given runs in its turn, on the thread that hands the stream's answers on."""
    came: list[tuple[int, int]] = []

    def note(number: int) -> None:
        came.append((number, threading.get_ident()))

    for number in range(0, 100, 2):
        predictor.submit(TEXT, then=lambda _, n=number: note(n), timeout_s=LONG_S)  # type: ignore[misc]
        predictor.call(lambda n=number + 1: note(n), timeout_s=LONG_S)  # type: ignore[misc]
    predictor.drain(LONG_S)
    assert [number for number, _ in came] == list(range(100))
    assert len({thread for _, thread in came}) == 1


def test_a_failed_errand_comes_out_of_every_drain(predictor: Predictor) -> None:
    """What an errand raises is told as a failed `then` is; and so is one that never ran."""

    def fail() -> None:
        raise OSError("the sink is gone")

    predictor.call(fail)
    with pytest.raises(PredictorError, match="the sink is gone"):
        predictor.drain(LONG_S)
    never_started = Predictor(SnapshotBoard())
    never_started.call(lambda: None)
    never_started.stop()
    assert isinstance(never_started.failure, PredictorStopped)
    with pytest.raises(PredictorStopped):
        never_started.call(lambda: None)


def test_draining_waits_until_all_is_handed_on(predictor: Predictor) -> None:
    """After `drain`, every `then` has run to its end; what takes too long is an error."""
    gate = Gate(predictor)
    handed_on = threading.Event()
    predictor.submit(TEXT, then=lambda _: handed_on.set())
    with pytest.raises(PredictorError, match=r"2 requests were not answered within 0\.01 s"):
        predictor.drain(0.01)
    assert not handed_on.is_set()
    gate.open()
    predictor.drain(LONG_S)
    assert handed_on.is_set()


@pytest.mark.parametrize("kind", [OSError, SystemExit, KeyboardInterrupt])
def test_a_failed_then_comes_out_of_drain(predictor: Predictor, kind: type[BaseException]) -> None:
    """A lost answer is told by every later drain; whatever was raised, the thread lives on."""

    def fail(_answer: Answer) -> None:
        raise kind("the sink is gone")

    future = predictor.submit(TEXT, then=fail)
    for _ in range(3):
        with pytest.raises(PredictorError, match=r"the sink is gone.*last checkpoint") as caught:
            predictor.drain(LONG_S)
        assert isinstance(caught.value.__cause__, kind)
        predictor.submit(TEXT, then=lambda _: None, timeout_s=LONG_S)
    assert future.result(LONG_S).version == 7


def test_an_answer_that_cannot_be_made_is_lost_to_its_then(predictor: Predictor) -> None:
    """What was to be handed on and could not be answered comes out of `drain` as well."""
    handed_on: list[Answer] = []
    future = predictor.submit({"text": [3]}, then=handed_on.append)
    with pytest.raises(PredictorError, match="text must be a str"):
        predictor.drain(LONG_S)
    assert isinstance(future.exception(LONG_S), InputError)
    assert not handed_on


def test_who_gives_up_does_no_harm(predictor: Predictor) -> None:
    """A request that its asker cancelled is passed over; the thread answers the next one."""
    gate = Gate(predictor)
    handed_on: list[Answer] = []
    future = predictor.submit(TEXT, then=handed_on.append)
    assert future.cancel()
    gate.open()
    predictor.drain(LONG_S)
    assert predictor.predict_many(TEXT).version == 7
    assert not handed_on


def test_an_answer_that_takes_too_long_is_an_error(predictor: Predictor) -> None:
    """Who waits for an answer only so long is told so, with what waits before it."""
    gate = Gate(predictor, urgent=True)
    with pytest.raises(PredictorError, match=r"no answer within 0\.01 s.*allow more time"):
        predictor.predict_many(TEXT, timeout_s=0.01)
    gate.open()
    predictor.drain(LONG_S)


@pytest.mark.parametrize("timeout_s", [math.inf, 10**400, np.float32("inf"), 1e300])
def test_a_caller_may_wait_for_ever(predictor: Predictor, timeout_s: float) -> None:
    """A time that no clock can hold is as long as it takes, in every call that waits."""
    assert len(predictor.predict_many(TEXT, timeout_s).log_posteriors) == 1
    assert predictor.ask(lambda snapshot: snapshot.version, timeout_s=timeout_s).result(LONG_S) == 7
    predictor.call(lambda: None, timeout_s=timeout_s)
    predictor.drain(timeout_s)
    predictor.stop(timeout_s)


def test_stopping_answers_what_waits(predictor: Predictor) -> None:
    """Requests that came before the stop are answered, and their `then` runs."""
    gate = Gate(predictor)
    handed_on: list[Answer] = []
    futures = [predictor.submit(TEXT, then=handed_on.append) for _ in range(2)]
    stopper = threading.Thread(target=predictor.stop, args=(LONG_S,))
    stopper.start()
    gate.open()
    stopper.join(LONG_S)
    assert [future.result(0).version for future in futures] == [7, 7]
    assert len(handed_on) == 2
    predictor.drain(0.0)


def test_asking_after_the_stop_is_refused(predictor: Predictor) -> None:
    """A stopped predictor says so, however often it is stopped."""
    predictor.stop(LONG_S)
    predictor.stop(LONG_S)
    with pytest.raises(PredictorStopped, match="has been stopped; start another one"):
        predictor.submit(TEXT)
    for ask in (predictor.start, lambda: predictor.predict_many(TEXT)):
        with pytest.raises(PredictorStopped):
            ask()


def test_a_stop_does_not_wait_for_ever(predictor: Predictor) -> None:
    """With a thread that is held and a full queue, stopping ends after its time all the same."""
    gate = Gate(predictor)
    waiting = [predictor.submit(TEXT) for _ in range(2)]
    predictor.stop(0.01)
    with pytest.raises(PredictorStopped):
        predictor.submit(TEXT)
    gate.open()
    assert [future.result(LONG_S).version for future in waiting] == [7, 7]


def test_no_request_is_left_without_an_end(board: SnapshotBoard) -> None:
    """Whoever asks while the predictor stops gets an answer or a refusal, never nothing."""
    for _ in range(20):
        predictor = Predictor(board, queue_size_max=64)
        predictor.start()
        asked: list[Future[Answer]] = []
        began = threading.Barrier(4)

        def ask(predictor: Predictor = predictor, began: threading.Barrier = began) -> None:
            began.wait(LONG_S)
            for _ in range(50):
                try:
                    asked.append(predictor.submit(TEXT, timeout_s=LONG_S))  # noqa: B023
                except PredictorStopped:
                    return

        askers = [threading.Thread(target=ask) for _ in range(3)]
        for asker in askers:
            asker.start()
        began.wait(LONG_S)
        predictor.stop(LONG_S)
        for asker in askers:
            asker.join(LONG_S)
        assert not wait(asked, LONG_S).not_done
        for future in asked:
            error = future.exception(0)
            assert error is None or isinstance(error, PredictorStopped)


def test_who_asks_just_as_the_thread_ends_is_refused(
    predictor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that comes into the queue behind the end is refused, not forgotten."""

    def put_late(work: object, **patience: object) -> None:
        monkeypatch.undo()
        predictor.stop(LONG_S)
        predictor._stream._queue.put(work, **patience)  # type: ignore[arg-type]

    monkeypatch.setattr(predictor._stream._queue, "put", put_late)
    future = predictor.submit(TEXT)
    assert isinstance(future.exception(LONG_S), PredictorStopped)
    predictor.drain(0.0)


def test_a_predictor_that_never_ran_refuses_what_waits(board: SnapshotBoard) -> None:
    """Stopping one that was not started refuses its requests, and draining says they are lost."""
    predictor = Predictor(board)
    future = predictor.submit(TEXT, then=lambda _: None)
    with pytest.raises(PredictorError, match="1 requests were not answered"):
        predictor.drain(LONG_S)
    predictor.stop()
    assert isinstance(future.exception(0), PredictorStopped)
    with pytest.raises(PredictorError, match="has been stopped"):
        predictor.drain(LONG_S)


def test_a_question_is_asked_of_the_current_snapshot() -> None:
    """Whatever a snapshot can tell can be asked for, and what goes wrong comes to who asked."""
    board = SnapshotBoard()
    board.publish(Snapshot(NaiveBayes(["a", "b"], features={"text": Words(Bernoulli())}), 7))
    predictor = Predictor(board)
    predictor.start()
    assert predictor.ask(lambda snapshot: snapshot.version).result(LONG_S) == 7
    asked = predictor.ask(lambda snapshot: snapshot.word_counts([], "no such group"))
    with pytest.raises(InputError, match="no such group"):
        asked.result(LONG_S)
    assert predictor.failure is None
    predictor.stop(LONG_S)


def test_a_question_before_the_first_snapshot_is_refused() -> None:
    """Who asks too early is told so, and the predictor lives on."""
    predictor = Predictor(SnapshotBoard())
    predictor.start()
    with pytest.raises(PredictorError, match="no snapshot yet"):
        predictor.ask(lambda snapshot: snapshot.version).result(LONG_S)
    predictor.stop(LONG_S)


def test_a_predictor_that_runs_is_not_started_again(predictor: Predictor) -> None:
    """Who starts it twice is told so, and it goes on answering."""
    with pytest.raises(PredictorError, match="runs already"):
        predictor.start()
    assert predictor.predict_many(TEXT, LONG_S).version == 7
