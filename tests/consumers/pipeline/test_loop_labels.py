"""The loop between two batches of late labels, and what it saves of their log."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from consumers.config.message import LateLabelsSettings
from consumers.errors import CheckpointError, SourceError
from consumers.messages import Messages, Partition
from consumers.monitoring.metrics import STATUS_METRICS
from consumers.monitoring.status import Health
from consumers.pipeline.reader import BatchQueue, LabelReader, Limits, Reader
from consumers.reporter import build_status
from consumers.sinks.records import Record
from consumers.sources.base import LogFacts
from consumers.sources.records import no_messages
from streamnb.storage import read
from tests.consumers.decoded_messages import raw
from tests.consumers.pipeline.late_logs import LABEL_LOG, Label, LateRun, Said, line
from tests.consumers.pipeline.test_loop import LABELLED, LOG, LONG_S, Run
from tests.consumers.scripted_source import ScriptedSource


@pytest.mark.parametrize("is_mid_batch", [False, True])
def test_what_ends_the_reading_of_late_labels_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mid_batch: bool
) -> None:
    """Between two batches counts and positions agree; amid one there is no last checkpoint."""
    run, rejects = Run(tmp_path, [raw(LOG, [LABELLED] * 3)]), list[Record]()
    late = LateRun(None, LateLabelsSettings(source="kafka:labels", id="id", window_s=50.0))
    said = b'{"id":"m","label":"positive","created_at":1000000000}'
    other = b'{"id":"m","label":"unheard","created_at":1000000000}'
    source = ScriptedSource([raw(LABEL_LOG, [said, other])], SourceError("it was made anew"))
    labels = Reader(source, late.label_decoder, Health(run.clock, 30.0), run.stop)
    pipeline = run.pipeline
    pipeline.labels = LabelReader(labels, late.late, pipeline.reader, ("text",))
    monkeypatch.setattr(pipeline.rejects, "add", rejects.extend, raising=False)
    for each in (pipeline.reader, labels):
        each.start({}, Limits(until_end=True))
    batch = pipeline.reader.take(LONG_S)
    assert isinstance(batch, Messages)
    pipeline._process(batch)

    def broken(*_: object) -> NoReturn:
        raise ZeroDivisionError

    def take_all() -> NoReturn:
        while True:
            pipeline._take_labels(is_idle=True)

    if is_mid_batch:
        monkeypatch.setattr(late.late, "take", broken)
    with pytest.raises(ZeroDivisionError if is_mid_batch else SourceError):
        take_all()
    if is_mid_batch:
        with pytest.raises(CheckpointError, match="amid a batch"):
            run.end()
        assert not run.file.exists()
    else:
        run.end()
        assert read(run.file).positions == {"t/0": 3, "labels/0": 2}
        assert [json.loads(each.value)["reason"] for each in rejects] == ["unknown_label"]
    run.predictor.stop()
    late.memory.close()


def test_late_labels_that_are_lost_move_the_position(tmp_path: Path) -> None:
    """Where all that was unread of their log is gone, the checkpoint says where reading went on."""
    run = Run(tmp_path, [raw(LOG, [LABELLED] * 3)])
    late = LateRun(None, LateLabelsSettings(source="kafka:labels", id="id", window_s=50.0))
    source = ScriptedSource([no_messages(LABEL_LOG, 80)])
    labels = Reader(source, late.label_decoder, Health(run.clock, 30.0), run.stop)
    run.pipeline.labels = LabelReader(labels, late.late, run.pipeline.reader, ("text",))
    assert run.pipeline.run(Limits(until_end=True)) == "end of source"
    run.end()
    assert read(run.file).positions == {"t/0": 3, "labels/0": 80}
    late.memory.close()


def test_rejects_of_labels_come_behind_the_offset_of_the_batch_that_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amid the batch they would part its records from its offset, in two transactions."""
    run, told = Run(tmp_path), list[str]()
    late = LateRun(None, LateLabelsSettings(source="kafka:labels", id="id", window_s=50.0))
    pipeline = run.pipeline
    pipeline.reviser = late.reviser
    labels = Reader(ScriptedSource(), late.label_decoder, Health(run.clock, 30.0), run.stop)
    pipeline.labels = LabelReader(labels, late.late, pipeline.reader, ("text",))
    pipeline.handled = lambda _, next_offset: told.append(f"handled up to {next_offset}")

    def add(records: Sequence[Record]) -> None:
        told.extend(json.loads(each.value)["reason"] for each in records)

    monkeypatch.setattr(pipeline.rejects, "add", add, raising=False)
    late.read_labels([Label("other", 0, "positive")], 1)
    said = [line(Said("create", f"{i}", 200 * i, "good day")) for i in range(4)]
    pipeline._process(late.decoder.decode(raw(LOG, [*said, b"{"])))
    run.end()
    assert told == ["not_json", "handled up to 5", "unmatched_label"]
    late.memory.close()


def test_what_ends_the_reading_of_late_labels_is_raised_before_partitions_agree(
    tmp_path: Path,
) -> None:
    """Their number may never be known then, and a run that ends by itself would wait for ever."""
    run = Run(tmp_path)
    late = LateRun(None, LateLabelsSettings(source="kafka:labels", id="id", window_s=50.0))
    source, queue = ScriptedSource(SourceError("it cannot be read")), BatchQueue()
    source.n_partitions = None
    labels = Reader(source, late.label_decoder, Health(run.clock, 30.0), run.stop, queue)
    run.pipeline.labels = LabelReader(labels, late.late, run.pipeline.reader, ("text",))
    run.pipeline.labels.start({}, Limits(until_end=True), {})
    with queue._changed:
        assert queue._changed.wait_for(lambda: queue._error is not None, LONG_S)
    with pytest.raises(SourceError, match="it cannot be read"):
        run.pipeline._take_labels(is_idle=True)
    run.end()
    late.memory.close()


@pytest.mark.parametrize(("n_partitions", "n_beyond"), [(1, 2), (2, 0), (None, 0)])
def test_labels_of_partitions_that_the_stream_lacks_are_counted(
    tmp_path: Path, n_partitions: int | None, n_beyond: int
) -> None:
    """Their topic got more first: no message is read that they could be of; a metric says so."""
    run = Run(tmp_path)
    late = LateRun(None, LateLabelsSettings(source="kafka:labels", id="id", window_s=50.0))
    said = b'{"id":"%d","label":"positive","created_at":1000000000}'
    batches = [
        [raw(Partition("labels", number), [said % i for i in range(n)])]
        for number, n in ((0, 3), (1, 2))
    ]
    labels = Reader(ScriptedSource(*batches), late.label_decoder, Health(run.clock, 30.0), run.stop)
    run.source.n_partitions = n_partitions
    run.pipeline.labels = LabelReader(labels, late.late, run.pipeline.reader, ("text",))
    own, limits = {Partition("labels", number): 0 for number in (0, 1)}, Limits(until_end=True)
    run.pipeline.labels.start(own, limits, {})  # a checkpoint knows that they had as many
    while run.pipeline._take_labels(is_idle=True):
        pass
    status = build_status("s", run.pipeline.statistics)
    shown = {name: of(status) for _, name, _, of in STATUS_METRICS}
    assert (shown["late_labels_waiting"], shown["late_labels_without_partition_waiting"]) == (
        5,
        n_beyond,
    )
    run.end()
    late.memory.close()


def test_a_log_of_labels_that_is_found_later_is_known_at_once(tmp_path: Path) -> None:
    """Else nobody would know, after a kill, which topic it was and where reading began."""
    run, labels = Run(tmp_path, [raw(LOG, [LABELLED] * 3, 5)], begins=5), Partition("labels", 0)
    begun: dict[Partition, LogFacts] = {}
    logs = run.pipeline.logs
    assert logs is not None
    logs._others, logs._others_begun = lambda _: begun, lambda: [begun]
    n_turns = 0

    def watch() -> None:
        nonlocal begun, n_turns
        n_turns += 1
        if n_turns == 2:
            begun = {labels: LogFacts(3, "an id")}
        if n_turns == 4:  # nothing else has made a checkpoint due
            run.stop.set()

    run.pipeline.watch = watch
    assert run.pipeline.run(Limits()) == "told to stop"
    known = read(run.file).header["notes"]["entries"]["logs"]
    assert known == {"t/0": {"begin": 5}, "labels/0": {"begin": 3, "topic_id": "an id"}}
    assert run.value("checkpoints_total") == 2.0
    run.end()
