"""A checkpoint made beside the learning: what is in it, what has to be safe before it stands."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from consumers.config.sections import CheckpointSettings
from consumers.errors import CheckpointError, SinkError
from consumers.messages import CheckpointEntry, Partition, part_name
from consumers.pipeline import checkpoint_writer
from consumers.pipeline.checkpoint import FILE_NAME, Checkpoint, SavedCheckpoint
from consumers.pipeline.checkpoint_writer import CheckpointWriter
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import NoSink, Record, Sink
from streamnb import (
    EveryExamples,
    Learner,
    Multinomial,
    NaiveBayes,
    Predictor,
    SnapshotBoard,
    Words,
)
from streamnb.storage import read

PART = Partition("t", 0)
LONG_S = 60.0  # longer than anything here takes; a test that waits so long has failed


class FullSink:
    """A sink whose disk is full until it is told to have room."""

    n_pending_bytes = 0
    n_refused = 0

    def __init__(self) -> None:
        self.tried = threading.Event()
        self.has_room = threading.Event()

    def add(self, records: Sequence[Record]) -> None:
        """Take records."""

    def flush(self, timeout_s: float) -> None:
        """Refuse once the time is up."""
        self.tried.set()
        if not self.has_room.wait(timeout_s):
            raise SinkError("no room")

    def close(self) -> None:
        """Let go of nothing."""


class Run:
    """A model that is saved beside its learning, with a predictor and sinks."""

    def __init__(
        self, folder: Path, *sinks: Sink, queue_size_max: int = 64, stop_timeout_s: float = 5.0
    ) -> None:
        self.model = NaiveBayes(["a", "b"], features={"text": Words(Multinomial())})
        board = SnapshotBoard()
        self.learner = Learner(self.model, board, EveryExamples(1), lambda: 0.0)
        self.predictor = Predictor(board, queue_size_max)
        self.predictor.start()
        self.file = folder / FILE_NAME
        self.stop = threading.Event()
        self.checkpoint = Checkpoint(CheckpointSettings(folder=folder), {})
        self.writer = CheckpointWriter(
            self.checkpoint,
            self.predictor,
            sinks or (NoSink(),),
            self.stop,
            stop_timeout_s=stop_timeout_s,
        )

    def teach(self, n: int) -> None:
        """Teach some examples."""
        self.learner.learn(part_name(PART), {"text": ["x y"] * n}, ["a"] * n)

    def begin(self) -> None:
        """Begin a checkpoint of what was learned."""
        positions = {PART: self.model.n_examples}
        self.writer.begin(self.model, positions, lambda: None)

    def outcome(self) -> SavedCheckpoint:
        """Wait for what comes of it."""
        saved = self.writer.outcome(LONG_S)
        assert saved is not None
        return saved

    def hold(self) -> Callable[[], None]:
        """Hold the predictor's thread; return what lets it go on."""
        came, goes_on = threading.Event(), threading.Event()

        def wait() -> None:
            came.set()
            assert goes_on.wait(LONG_S)

        self.predictor.call(wait, timeout_s=LONG_S)
        assert came.wait(LONG_S)
        return goes_on.set

    def close(self) -> None:
        """End the threads."""
        self.writer.close()
        self.predictor.stop(LONG_S)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Return a model with a predictor, and no sinks."""
    run = Run(tmp_path)
    run.teach(3)
    yield run
    run.close()


def test_what_was_frozen_is_what_stands(run: Run) -> None:
    """Counts and positions are those of the moment it began, whatever was learned meanwhile."""
    go_on = run.hold()
    run.begin()
    run.teach(40)
    assert run.writer.is_busy
    assert run.writer.outcome() is None
    go_on()
    saved = run.outcome()
    assert not run.writer.is_busy
    assert saved.positions == {PART: 3}
    assert saved.n_bytes == run.file.stat().st_size
    stored = read(run.file)
    assert (stored.model.n_examples, stored.positions) == (3, {"t/0": 3})
    run.begin()
    assert run.outcome().positions == {PART: 43}
    assert read(run.file).model.n_examples == 43


def test_what_is_handed_on_alone_counts_as_no_checkpoint(tmp_path: Path) -> None:
    """Part files may be written again for the group, and no kept checkpoint is newer by that."""
    run, told = Run(tmp_path), list[object]()
    run.teach(3)
    run.writer = CheckpointWriter(
        run.checkpoint, run.predictor, (), run.stop,
        share=lambda state, at: told.append((state.n_examples, at)),
        after=lambda: told.append("checkpoint"),
    )  # fmt: skip
    run.begin()
    run.outcome()
    shared = (3, {PART: 3})
    assert told == [shared, "checkpoint"]
    run.writer.hand_on(run.model, {PART: 3})
    assert run.writer.outcome(LONG_S) is None
    assert told == [shared, "checkpoint", shared]
    run.close()


def test_nothing_in_the_making_has_no_outcome(run: Run) -> None:
    """Where none was begun there is nothing to tell."""
    assert not run.writer.is_busy
    assert run.writer.outcome(LONG_S) is None


def test_judgements_are_safe_before_the_file_stands(tmp_path: Path) -> None:
    """What was judged before the mark is on disk once the checkpoint is; what waits behind, not."""
    sink = JsonLinesSink(tmp_path / "out.jsonl")
    run = Run(tmp_path / "state", sink)
    run.teach(1)
    (tmp_path / "state").mkdir()
    seen: list[bytes] = []
    write = run.checkpoint.write

    def look_and_write(*what: object) -> object:
        seen.append((tmp_path / "out.jsonl").read_bytes())
        return write(*what)  # type: ignore[arg-type]

    run.checkpoint.write = look_and_write  # type: ignore[assignment]
    for i in range(20):
        run.predictor.submit(
            {"text": ["x"]},
            then=lambda _, i=i: sink.add([Record(b"", b"%d" % i)]),  # type: ignore[misc]
        )
    run.begin()
    run.outcome()
    assert seen == [b"".join(b"%d\n" % i for i in range(20))]
    run.close()
    sink.close()


def test_a_sink_that_is_full_is_waited_for(tmp_path: Path) -> None:
    """While a sink cannot make safe what it took no file is written, and then it is."""
    sink = FullSink()
    run = Run(tmp_path, sink)
    run.teach(1)
    run.begin()
    assert sink.tried.wait(LONG_S)
    assert run.writer.outcome() is None
    assert not run.file.exists()
    sink.has_room.set()
    assert run.outcome().positions == {PART: 1}
    run.close()


@pytest.mark.parametrize("told_to_stop", [False, True])
def test_patience_has_an_end(
    tmp_path: Path, told_to_stop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink that stays full costs this checkpoint, sooner when the daemon is to end."""
    monkeypatch.setattr(checkpoint_writer, "_SLICE_S", 0.01)
    if not told_to_stop:
        monkeypatch.setattr(checkpoint_writer, "_SAFE_TIMEOUT_S", 0.02)
    sink = FullSink()
    run = Run(tmp_path, sink, stop_timeout_s=0.02)
    run.teach(1)
    if told_to_stop:
        run.stop.set()
    run.begin()
    with pytest.raises(CheckpointError, match="no checkpoint was written: "):
        run.outcome()
    assert not run.writer.is_busy
    assert not run.file.exists()
    run.close()


def test_a_predictor_that_is_held_costs_the_checkpoint(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the mark does not come out in time no file is written, and the next one may be."""
    monkeypatch.setattr(checkpoint_writer, "_SLICE_S", 0.01)
    monkeypatch.setattr(checkpoint_writer, "_SAFE_TIMEOUT_S", 0.02)
    go_on = run.hold()
    run.begin()
    with pytest.raises(CheckpointError, match="wait to be judged"):
        run.outcome()
    go_on()
    monkeypatch.undo()
    run.begin()
    assert run.outcome().positions == {PART: 3}


def test_a_full_queue_costs_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the mark finds no place in time, that is an error, and who waits is told meanwhile."""
    monkeypatch.setattr(checkpoint_writer, "_SLICE_S", 0.01)
    monkeypatch.setattr(checkpoint_writer, "_SAFE_TIMEOUT_S", 0.02)
    run = Run(tmp_path, queue_size_max=1)
    go_on = run.hold()
    run.predictor.call(lambda: None)
    told: list[None] = []
    with pytest.raises(CheckpointError, match="no checkpoint was written: 1 requests are waiting"):
        run.writer.begin(run.model, {}, lambda: told.append(None))
    assert told
    assert not run.writer.is_busy
    go_on()
    run.close()


def test_no_checkpoint_passes_over_what_was_lost(run: Run) -> None:
    """Once a judgement could not be handed on, no later checkpoint is written."""

    def fail() -> None:
        raise ZeroDivisionError("a bug")

    run.predictor.call(fail)
    for _ in range(2):
        run.begin()
        with pytest.raises(CheckpointError, match="could not be handed on: a bug"):
            run.outcome()
    assert not run.file.exists()


class BrokenSink(FullSink):
    """A sink with a mistake in it."""

    def flush(self, timeout_s: float) -> None:  # noqa: ARG002 -- as the protocol has it
        """Raise what no caller reckons with."""
        raise ZeroDivisionError("a bug")


def test_a_broken_sink_costs_the_checkpoint_at_once(tmp_path: Path) -> None:
    """What a sink raises by mistake ends the wait, and stays the predictor's failure."""
    run = Run(tmp_path, BrokenSink())
    run.teach(3)
    run.begin()
    with pytest.raises(CheckpointError, match="a sink failed: ZeroDivisionError"):
        run.outcome()
    run.close()
    assert isinstance(run.predictor.failure, ZeroDivisionError)


def test_what_cannot_be_written_is_told(run: Run) -> None:
    """A disk's refusal comes out as the outcome, and the next one may stand."""
    run.file.parent.joinpath(f".{FILE_NAME}.new").mkdir()
    run.begin()
    with pytest.raises(CheckpointError, match=r"no checkpoint was written: checkpoint\.folder"):
        run.outcome()
    run.file.parent.joinpath(f".{FILE_NAME}.new").rmdir()
    run.begin()
    assert run.outcome().positions == {PART: 3}


def test_after_the_predictor_has_ended_none_is_begun(run: Run) -> None:
    """Without a predictor nobody could say what is safe."""
    run.predictor.stop(LONG_S)
    with pytest.raises(CheckpointError, match="has been stopped"):
        run.begin()


class Seen:
    """A component that counts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.n = 0

    def pack(self) -> CheckpointEntry:
        """Return the count."""
        return CheckpointEntry({"n": self.n})

    def unpack(self, entry: CheckpointEntry) -> None:
        """Take the count back."""
        self.n = entry.values["n"]


def test_entries_are_of_the_moment_of_their_thread(tmp_path: Path) -> None:
    """The learner's is taken as it begins, the predictor's behind all that was asked before."""
    run = Run(tmp_path)
    learned, judged = Seen("learned"), Seen("judged")
    run.writer = CheckpointWriter(
        run.checkpoint, run.predictor, (), run.stop, consumed=[learned], predicted=[judged]
    )
    run.teach(3)
    learned.n = 3
    go_on = run.hold()

    def judge() -> None:
        judged.n += 1

    run.predictor.call(judge)
    run.begin()
    learned.n = 9
    run.predictor.call(judge)
    go_on()
    run.outcome()
    run.predictor.drain(LONG_S)
    assert (learned.n, judged.n) == (9, 2)
    fresh = Checkpoint(CheckpointSettings(folder=tmp_path), {})
    fresh.restore(NaiveBayes(["a", "b"], features={"text": Words(Multinomial())}))
    again = [Seen("learned"), Seen("judged")]
    fresh.restore_entries(again)
    assert [each.n for each in again] == [3, 1]
    run.close()
