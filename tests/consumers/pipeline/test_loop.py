"""What the loop does between batches: when it writes a checkpoint, and when it must not go on."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from consumers.config.message import LateLabelsSettings
from consumers.config.model import ModelSettings
from consumers.config.sections import CheckpointSettings
from consumers.config.settings import Settings
from consumers.corrections.applier import CorrectionApplier
from consumers.corrections.model import LogReader
from consumers.decode.labels import within_limit
from consumers.errors import CheckpointError, GroupError, SinkError, SourceError
from consumers.features import DecayTimes, build_model
from consumers.messages import Messages, Partition, RawColumns
from consumers.monitoring.metrics import CorrectionMetrics, Metrics
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Health
from consumers.pipeline import loop
from consumers.pipeline.checkpoint import FILE_NAME, Checkpoint
from consumers.pipeline.checkpoint_writer import CheckpointWriter, KnownLogs
from consumers.pipeline.group_parts import GroupParts
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.loop import Pipeline
from consumers.pipeline.part_files import PartFiles
from consumers.pipeline.reader import BatchQueue, LabelReader, Limits, Reader
from consumers.pipeline.revision import Reviser
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import NoSink, Record, Sink, is_output
from consumers.sources.base import LogFacts
from consumers.sources.records import no_messages
from streamnb import EveryExamples, Learner, Predictor, SnapshotBoard
from streamnb.storage import read
from tests.consumers.decoded_messages import decoder, raw
from tests.consumers.pipeline.late_logs import LateRun
from tests.consumers.pipeline.revised_log import FIELDS
from tests.consumers.scripted_source import PositionOf, ScriptedSource, Step

LOG = Partition("t", 0)
LABELLED, UNLABELLED = b'{"text":"good day","label":4}', b'{"text":"good day"}'
LONG_S = 60.0


class Clock:
    """Time that passes when it is told to."""

    now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


class BrokenSink:
    """A sink with a fault of its own, not one of the outside."""

    n_pending_bytes = 0
    n_refused = 0

    def flush(self, timeout_s: float) -> None:
        """Have nothing to make safe."""

    def close(self) -> None:
        """Let go of nothing."""

    def add(self, records: Sequence[Record]) -> None:
        """Fail as a bug would."""
        raise ZeroDivisionError(f"{len(records)} records")


class Run:
    """A pipeline over a scripted source, with time in the test's hand."""

    def __init__(
        self,
        folder: Path,
        *steps: Step,
        predictions: Sink | None = None,
        rejects: Sink | None = None,
        queue: BatchQueue | None = None,
        watch: Callable[[], None] = lambda: None,
        memory: LearnedMemory | None = None,
        half_life_s: float | None = None,
        begins: int | None = None,
    ) -> None:
        settings = Settings()
        if half_life_s is not None:
            own = settings.model.model_copy(update={"half_life_s": half_life_s})
            settings = settings.model_copy(update={"model": own})
        self.clock = Clock()
        self.file = folder / FILE_NAME
        self.registry = CollectorRegistry()
        self.source = ScriptedSource(*steps)
        self.stop = threading.Event()
        metrics = Metrics(self.registry, settings.model.classes, self.clock)
        health = Health(self.clock, 30.0)
        board = SnapshotBoard()
        self.predictor = Predictor(board)
        self.predictor.start()
        checkpoint = Checkpoint(CheckpointSettings(folder=folder, interval_s=10.0), {}, self.clock)
        model, positions = checkpoint.restore(build_model(settings.model))
        sinks = predictions or NoSink(), rejects or NoSink()
        writer = CheckpointWriter(checkpoint, self.predictor, sinks, self.stop)
        if memory is not None:
            checkpoint.restore_entries([memory])
            writer = CheckpointWriter(
                checkpoint, self.predictor, sinks, self.stop, before=memory.sync, consumed=[memory]
            )
        reader, logs = Reader(self.source, decoder(), health, self.stop, queue), None
        if begins is not None:
            self.source.beginnings = {LOG: LogFacts(begins)}
            logs = KnownLogs(reader, positions)
            writer = CheckpointWriter(
                checkpoint, self.predictor, sinks, self.stop, before=reader.confirm, consumed=[logs]
            )
        self.pipeline = Pipeline(
            reader=reader,
            logs=logs,
            learner=Learner(model, board, EveryExamples(1000), self.clock),
            predictor=self.predictor,
            predictions=sinks[0],
            rejects=sinks[1],
            checkpoint=checkpoint,
            checkpoint_writer=writer,
            metrics=metrics,
            health=health,
            statistics=RunStatistics(settings.model.classes, ("text",), 1000, self.clock),
            stop=self.stop,
            watch=watch,
            positions=positions,
            reviser=None if memory is None else Reviser(memory),
            decay=None if half_life_s is None else DecayTimes(half_life_s),
        )

    def look_around(self, after_s: float) -> None:
        """Let time pass, then look around as the loop does, up to the checkpoint's end."""
        self.clock.now_s += after_s
        self.pipeline._do_due(0)
        self.pipeline._await_checkpoint()

    def value(self, name: str) -> float | None:
        """Return a metric's value."""
        return self.registry.get_sample_value(f"streamnb_{name}")

    def end(self) -> None:
        """End as the daemon does."""
        self.pipeline.finish()
        self.predictor.stop()


def test_a_run_learns_what_is_read_and_saves_it(tmp_path: Path) -> None:
    """Labelled messages are learned, the end is told, and the last checkpoint holds all of it."""
    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3)], [raw(LOG, [LABELLED, UNLABELLED, b"{"], 3)])
    assert run.pipeline.run(Limits(until_end=True)) == "end of source"
    run.end()
    stored = read(run.file)
    assert (stored.model.n_examples, stored.positions) == (4, {"t/0": 6})
    assert run.source.reported == [{LOG: 6}]
    assert run.value("checkpoints_total") == 1.0


def test_a_batch_without_messages_moves_the_position(tmp_path: Path) -> None:
    """Where all that was unread is lost, the checkpoint says where reading went on."""
    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3)], [no_messages(LOG, 80)])
    assert run.pipeline.run(Limits(until_end=True)) == "end of source"
    run.end()
    stored = read(run.file)
    assert (stored.model.n_examples, stored.positions) == (3, {"t/0": 80})


def test_all_threads_end_though_the_source_does_not_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What closing it raises is raised, once the others have been closed."""

    def close() -> None:
        raise SourceError("it does not close")

    run = Run(tmp_path)
    pipeline = run.pipeline
    labels = LateRun(None, LateLabelsSettings(source="kafka:labels", id="id", window_s=50.0))
    monkeypatch.setattr(run.source, "close", close)
    health = Health(run.clock, 30.0)
    late = Reader(ScriptedSource(), decoder(), health, run.stop, thread_name="read-labels")
    pipeline.labels = LabelReader(late, labels.late, pipeline.reader, ("text",))
    reading = LogReader(ScriptedSource(), ("negative", "positive"), lambda _: None)
    metrics = CorrectionMetrics(CollectorRegistry())
    pipeline.corrections = CorrectionApplier(reading, FIELDS, metrics, run.clock)
    files = PartFiles(tmp_path / "shared", {}, build_model(Settings().model), 3)
    pipeline.group = GroupParts(files, LOG.topic, 3600.0)
    pipeline.reader.start({}, Limits())
    late.start({}, Limits())
    reading.start({})
    pipeline.group.start()
    with pytest.raises(SourceError, match="it does not close"):
        pipeline.finish()
    run.predictor.stop()
    labels.memory.close()
    left = {each.name for each in threading.enumerate()}
    assert not left & {"read", "read-labels", "read-corrections", "group"}
    assert read(run.file).positions == {}


def test_a_partition_hundreds_of_half_lives_behind_another_is_told(tmp_path: Path) -> None:
    """What it teaches has no weight left: each message is counted, and the log says so once."""

    def made(partition: Partition, n: int, first: int, *, half_lives_ago: int) -> RawColumns:
        at_ms = 1_700_000_000_000 - half_lives_ago * 60_000
        found = [json.dumps({"text": "good day", "label": 4, "created_at": at_ms})] * n
        return raw(partition, [each.encode() for each in found], first)

    for half_lives, n_learned in (500, 8), (900, 0):
        behind = Partition("t", 1)
        steps = [
            [made(LOG, 5, 0, half_lives_ago=0)],
            [made(behind, 4, 0, half_lives_ago=half_lives)],
            [made(behind, 5, 4, half_lives_ago=half_lives)],
        ]
        run = Run(tmp_path / str(half_lives), *steps, half_life_s=60.0)
        with capture_logs() as logs:
            run.pipeline.run(Limits(until_end=True))
            run.end()
        told = [each["partition"] for each in logs if each["event"] == "messages_without_weight"]
        # The first message of each log is before its time is known.
        assert run.pipeline.learner.model.n_examples == 4 + n_learned
        assert run.pipeline.statistics.n_untaught == 2 + 8 - n_learned
        assert told == ([] if n_learned else ["t[1]"])


def test_a_model_that_takes_over_changes_no_count_of_what_was_taught(tmp_path: Path) -> None:
    """What a batch taught is read from the model that was taught it, not from the next one."""
    made = [
        json.dumps({"text": "good day", "label": 4, "created_at": 1_700_000_000_000}).encode()
    ] * 5
    run = Run(tmp_path, [raw(LOG, made)], [raw(LOG, made, 5)], half_life_s=60.0)
    learner = run.pipeline.learner
    learn = learner.learn

    def promote(*args: Any, **options: Any) -> Any:
        found = learn(*args, **options)
        learner.model = build_model(ModelSettings(half_life_s=60.0))
        other = {"text": ["bad day"]}, ["negative"]
        learner.model.learn_many(*other, times_s=[1_700_000_000.0], part="t/0")
        return found

    with pytest.MonkeyPatch.context() as patch, capture_logs() as logs:
        patch.setattr(learner, "learn", promote)
        run.pipeline.run(Limits(until_end=True))
        run.end()
    # The first message is before its time is known.
    assert run.pipeline.statistics.n_untaught == 1
    assert [each for each in logs if each["event"] == "messages_without_weight"] == []


def test_predictions_of_labelled_messages_are_as_if_they_had_no_label(tmp_path: Path) -> None:
    """They come from a snapshot of before, have the label as truth, and change no figure."""
    taught = [b'{"text":"good day","label":4}', b'{"text":"bad day","label":0}'] * 500
    log = [*taught, LABELLED, UNLABELLED, b'{"text":"bad day","label":4}', b'{"text":"bad day"}']
    found, counted = {}, {}
    for is_on in (True, False):
        path = tmp_path / f"predictions-{is_on}.jsonl"
        sink = JsonLinesSink(path, "predictions")
        run = Run(tmp_path / str(is_on), [raw(LOG, log)], predictions=sink)
        run.pipeline.writes_labelled = is_on
        run.pipeline.run(Limits(until_end=True))
        run.end()
        sink.close()
        found[is_on] = [json.loads(line) for line in path.read_bytes().splitlines()]
        assert is_output(path.read_bytes())
        statistics = run.pipeline.statistics
        counted[is_on] = (statistics.n_messages, statistics.n_learned, statistics.n_judged)
    assert counted[True] == counted[False] == (1004, 1002, 2)
    by_place = {int(each["id"].rpartition("-")[2]): each for each in found[True]}
    assert sorted(by_place) == list(range(1004))
    assert [each["id"] for each in found[False]] == [by_place[i]["id"] for i in (1001, 1003)]
    assert {by_place[i]["probabilities"]["positive"] for i in range(1000)} == {0.5}
    for labelled, unlabelled in ((1000, 1001), (1002, 1003)):
        own, other = by_place[labelled], by_place[unlabelled]
        assert own["probabilities"] == other["probabilities"] != {"negative": 0.5, "positive": 0.5}
        assert own["snapshot_version"] == other["snapshot_version"]
        assert (own["truth"], other.get("truth")) == ("positive", None)


def test_an_idle_daemon_keeps_its_checkpoints(tmp_path: Path) -> None:
    """Where nothing was read since, no new file pushes the older ones out."""
    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3)], [raw(LOG, [LABELLED], 3)])
    reader, first = run.pipeline.reader, []
    reader.start({}, Limits(until_end=True))
    for number in range(2):
        batch = reader.take(LONG_S)
        assert isinstance(batch, Messages)
        run.pipeline._process(batch)
        run.look_around(11.0)
        first.append(run.file.stat().st_ino)
        run.clock.now_s += 5.0
        assert run.pipeline.checkpoint.age_s() == run.value("checkpoint_age_seconds") == 5.0
        run.look_around(6.0)
        assert run.file.stat().st_ino == first[number]
        run.clock.now_s += 1.0  # the file is of now: nothing was read since
        assert run.pipeline.checkpoint.age_s() == run.value("checkpoint_age_seconds") == 1.0
    assert first[0] != first[1]
    run.end()
    assert run.file.stat().st_ino == first[1]
    assert run.value("checkpoints_total") == 2.0


def test_an_idle_member_whose_part_cannot_be_written_keeps_its_checkpoints(tmp_path: Path) -> None:
    """The part alone is tried again, each time and at the end, until the group has it."""
    shared = tmp_path / "shared"
    run = Run(tmp_path / "own", [raw(LOG, [LABELLED] * 3)])
    files = PartFiles(shared, {}, build_model(Settings().model), 3)
    group = run.pipeline.group = GroupParts(files, LOG.topic, 3600.0)
    run.pipeline.checkpoint_writer._share = group.write
    shared.write_bytes(b"")  # in the place of the folder that is to be mounted there
    run.pipeline.reader.start({}, Limits(until_end=True))
    batch = run.pipeline.reader.take(LONG_S)
    assert isinstance(batch, Messages)
    run.pipeline._process(batch)
    run.look_around(11.0)
    first = run.file.stat().st_ino
    for _ in range(3):
        run.look_around(11.0)
        assert "group.folder" in (group.status().trouble or "")
    shared.unlink()
    run.look_around(11.0)
    assert group.status().trouble is None
    assert [each.position for each in files._files(shared / "t" / "0")] == [3]
    group._known[LOG].place = (-1, 0)  # as if the file had gone
    next((shared / "t" / "0").iterdir()).unlink()
    run.end()
    assert [each.position for each in files._files(shared / "t" / "0")] == [3]
    assert run.file.stat().st_ino == first
    assert run.value("checkpoints_total") == 1.0
    assert run.value("checkpoint_age_seconds") == 0.0


def test_a_batch_that_was_not_begun_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the group cannot say which classes join, what was learned before is saved all the same."""

    def fail(*_: object) -> NoReturn:
        raise GroupError("planted")

    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3)], [raw(LOG, [LABELLED], 3)])
    run.pipeline.reader.start({}, Limits(until_end=True))
    batches = [run.pipeline.reader.take(LONG_S) for _ in range(2)]
    assert isinstance(batches[0], Messages)
    assert isinstance(batches[1], Messages)
    run.pipeline._process(batches[0])
    monkeypatch.setattr(loop, "within_limit", fail)
    with pytest.raises(GroupError, match="planted"):
        run.pipeline._process(batches[1])
    run.end()
    stored = read(run.file)
    assert (stored.model.n_examples, stored.positions) == (3, {"t/0": 3})


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_batch_waits_until_the_group_says_which_classes_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_stopped: bool
) -> None:
    """It is tried again, and nothing comes before it; a stop saves what was learned before it."""
    run = Run(tmp_path, *([raw(LOG, [LABELLED] * 3, at)] for at in (0, 3, 6)))
    asked = list[int]()

    def fail(messages: Messages, *more: Any) -> Messages:
        asked.append(messages.next_offset)
        if 2 <= len(asked) <= 4:
            run.clock.now_s += 11.0  # a checkpoint is due
            if is_stopped and len(asked) == 4:
                run.stop.set()
            raise GroupError("away")
        return within_limit(messages, *more)

    monkeypatch.setattr(loop, "within_limit", fail)
    reason = run.pipeline.run(Limits(until_end=True))
    assert reason == ("told to stop" if is_stopped else "end of source")
    assert asked == [3, 6, 6, 6] + ([] if is_stopped else [6, 9])
    run.pipeline._await_checkpoint()  # a stop does not: the end does
    assert run.value("checkpoints_total") == 1.0
    run.end()
    stored, n = read(run.file), 3 if is_stopped else 9
    assert (stored.model.n_examples, stored.positions) == (n, {"t/0": n})


def test_learning_goes_on_while_a_checkpoint_is_made(tmp_path: Path) -> None:
    """Messages are learned while its sinks are not safe yet, and it holds none of them."""
    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3)], [raw(LOG, [LABELLED], 3)])
    goes_on = threading.Event()
    run.pipeline.reader.start({}, Limits())
    for _ in range(2):
        batch = run.pipeline.reader.take(LONG_S)
        assert isinstance(batch, Messages)
        run.pipeline._process(batch)
        if batch.next_offset == 3:
            run.predictor.call(lambda: assert_set(goes_on))
            run.clock.now_s = 11.0
        run.pipeline._do_due(0)
    assert run.pipeline.checkpoint_writer.is_busy
    assert not run.file.exists()
    goes_on.set()
    run.pipeline._await_checkpoint()
    assert read(run.file).positions == {"t/0": 3}
    run.end()
    assert read(run.file).positions == {"t/0": 4}
    assert [each[LOG] for each in run.source.reported][-1] == 4


def assert_set(event: threading.Event) -> None:
    """Wait for an event."""
    assert event.wait(LONG_S)


def test_a_checkpoint_that_fails_is_told_and_the_run_goes_on(tmp_path: Path) -> None:
    """What cannot be written is a line in the log and counted; only the last one is an error."""
    (tmp_path / f".{FILE_NAME}.new").mkdir()
    run = Run(tmp_path, [raw(LOG, [LABELLED])])
    assert run.pipeline.run(Limits(until_end=True)) == "end of source"
    with capture_logs() as said:
        run.clock.now_s = 11.0
        run.pipeline._do_due(0)
        with pytest.raises(CheckpointError, match="no checkpoint was written"):
            run.pipeline._await_checkpoint()
        run.clock.now_s = 22.0
        run.pipeline._do_due(0)
        with pytest.raises(CheckpointError, match="no checkpoint was written"):
            run.end()
    assert run.value("checkpoint_failures_total") == 3.0
    assert [line["event"] for line in said] == ["checkpoint_failed"]
    assert run.source.calls[-1] == "close"
    run.predictor.stop()


@pytest.mark.parametrize("has_outputs", [False, True])
def test_nothing_is_learned_before_a_checkpoint_knows_where_reading_began(
    tmp_path: Path, has_outputs: bool
) -> None:
    """A kill before would have the next start begin elsewhere; the batch waits for the disk."""
    fault = tmp_path / f".{FILE_NAME}.new"
    fault.mkdir()
    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3, 5)], begins=None if has_outputs else 5)
    run.pipeline.has_outputs = has_outputs
    n_held = 0

    def watch() -> None:
        nonlocal n_held
        if run.pipeline.learner.model.n_examples:
            run.stop.set()
            return
        n_held += run.pipeline._held is not None
        run.clock.now_s += 6.0  # a checkpoint is due each second turn
        if n_held == 3 and fault.exists():
            fault.rmdir()

    run.pipeline.watch = watch
    with capture_logs() as said:
        assert run.pipeline.run(Limits()) == "told to stop"
    assert n_held >= 3
    assert {line["event"] for line in said} == {"checkpoint_failed"}
    stored = read(run.file)
    assert (stored.model.n_examples, stored.positions) == (0, {})
    if not has_outputs:
        assert stored.header["notes"]["entries"]["logs"]["t/0"]["begin"] == 5
    assert run.value("checkpoints_total") == 1.0
    run.end()
    assert read(run.file).positions == {"t/0": 8}


@pytest.mark.parametrize("why", ["it ends by itself", "another log"])
def test_a_run_ends_that_need_not_wait_for_the_first_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    """Who started it is told; and what is read of a log that was made anew is not waited for."""

    def refuse() -> None:
        raise SourceError(why)

    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3, 5)], begins=5)
    if why == "another log":
        monkeypatch.setattr(run.source, "confirm", refuse)
    else:
        (tmp_path / f".{FILE_NAME}.new").mkdir()
    run.pipeline.watch = lambda: run.stop.set() if run.pipeline.positions else None
    with pytest.raises(CheckpointError, match="no checkpoint was written"):
        run.pipeline.run(Limits(until_end=why != "another log"))
    with pytest.raises(CheckpointError):
        run.end()
    run.predictor.stop()
    assert not run.file.exists()
    assert run.pipeline.learner.model.n_examples == 0


def test_a_group_hears_of_a_beginning_that_a_checkpoint_has_already(tmp_path: Path) -> None:
    """One that is written for an output may hold it before the loop has heard of it."""
    run = Run(tmp_path / "state", [raw(LOG, [LABELLED] * 3, 5)], begins=5)
    files = PartFiles(tmp_path / "shared", {}, build_model(Settings().model), 3)
    group = run.pipeline.group = GroupParts(files, LOG.topic, 3600.0)
    run.pipeline.has_outputs = True
    run.pipeline.watch = lambda: run.stop.set() if run.pipeline.positions else None
    run.pipeline.run(Limits())
    group.write(run.pipeline.learner.model.state, {})
    assert [each.position for each in files._files(tmp_path / "shared/t/0")] == [5]
    run.end()


def test_what_was_read_before_an_error_is_learned(tmp_path: Path) -> None:
    """A source that fails ends the run with its error, behind all that it gave before."""
    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3)], SourceError("the disk is gone"))
    with pytest.raises(SourceError, match="the disk is gone"):
        run.pipeline.run(Limits())
    run.end()
    assert read(run.file).positions == {"t/0": 3}


def test_what_was_read_and_not_learned_is_read_again(tmp_path: Path) -> None:
    """Told to stop, the run leaves what waits; the next one begins behind what was learned."""
    batches = [raw(LOG, [LABELLED] * 3, at) for at in (0, 3, 6, 9)]
    run = Run(tmp_path, batches, queue=BatchQueue(batches_max=2))

    def stop_once_learned() -> None:
        if run.pipeline.learner.model.n_examples:  # a turn of a busy machine may find no batch
            run.stop.set()

    run.pipeline.watch = stop_once_learned
    assert run.pipeline.run(Limits()) == "told to stop"
    run.end()
    stored = read(run.file)
    assert (stored.model.n_examples, stored.positions) == (3, {"t/0": 3})
    asked: list[int | None] = []

    def assign(position_of: PositionOf) -> Sequence[RawColumns]:
        asked.append(position_of(LOG))
        return batches[1:]

    again = Run(tmp_path, assign)
    assert again.pipeline.run(Limits(until_end=True)) == "end of source"
    again.end()
    assert asked == [3]
    stored = read(run.file)
    assert (stored.model.n_examples, stored.positions) == (12, {"t/0": 12})


def test_what_ends_a_thread_beside_ends_the_run(tmp_path: Path) -> None:
    """What `watch` raises comes out of the run, and the last checkpoint is written all the same."""

    def fail() -> None:
        raise BrokenPipeError("nobody looks")

    run = Run(tmp_path, [raw(LOG, [LABELLED])], watch=fail)
    with pytest.raises(BrokenPipeError):
        run.pipeline.run(Limits())
    run.end()
    assert run.file.exists()


@pytest.mark.parametrize("output", ["predictions", "rejects"])
def test_an_output_that_is_lost_ends_the_run(tmp_path: Path, output: str) -> None:
    """A fault while handing on ends the daemon before a checkpoint passes over what was lost."""
    line = {"predictions": UNLABELLED, "rejects": b"{"}[output]
    run = Run(tmp_path, [raw(LOG, [line])], **{output: BrokenSink()})  # type: ignore[arg-type]
    with pytest.raises(SinkError, match="handed on"):
        run.pipeline.run(Limits())
    with pytest.raises(CheckpointError):
        run.pipeline.finish()
    assert not run.file.exists()
    run.predictor.stop()
