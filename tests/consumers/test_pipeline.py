"""What the loop does between polls: when it writes a checkpoint, and when it must not go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from consumers.building import build_decoder, build_source
from consumers.checkpoint import Checkpoint
from consumers.config import Settings
from consumers.errors import CheckpointError, SinkError
from consumers.features import build_model
from consumers.health import Health
from consumers.metrics import Metrics
from consumers.pipeline import Limits, Pipeline
from consumers.settings.running import CheckpointSettings
from consumers.settings.sources import GeneratorSettings
from consumers.sinks.base import Record, Sink
from consumers.sinks.none import NoSink
from consumers.tally import Tally
from streamnb import EveryExamples, Learner, Predictor, SnapshotBoard


class Clock:
    """Time that passes when it is told to."""

    now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


class BrokenSink:
    """A sink with a fault of its own, not one of the outside."""

    def flush(self, timeout_s: float) -> None:
        """Have nothing to make safe."""

    def close(self) -> None:
        """Let go of nothing."""

    def add(self, records: Sequence[Record]) -> None:
        """Fail as a bug would."""
        raise ZeroDivisionError(f"{len(records)} records")


class Run:
    """A pipeline over the generator, with time in the test's hand."""

    def __init__(self, folder: Path, predictions: Sink) -> None:
        settings = Settings(generator=GeneratorSettings(rate_per_s=0))
        self.clock = Clock()
        self.file = folder / "state" / "model.nb"
        source = build_source(settings, until_end=False)
        metrics = Metrics(CollectorRegistry(), settings.model.classes, self.clock)
        board = SnapshotBoard()
        self.predictor = Predictor(board)
        self.predictor.start()
        checkpoint = Checkpoint(
            CheckpointSettings(folder=folder / "state", interval_s=10.0), {}, self.clock
        )
        model, positions = checkpoint.restore(build_model(settings.model))
        self.pipeline = Pipeline(
            source=source,
            decoder=build_decoder(settings, source),
            learner=Learner(model, board, EveryExamples(1000), self.clock),
            predictor=self.predictor,
            predictions=predictions,
            rejects=NoSink(),
            checkpoint=checkpoint,
            metrics=metrics,
            health=Health(self.clock, 30.0),
            tally=Tally(settings.model.classes, ("text",), 1000, metrics, self.clock),
            show=lambda: None,
            positions=positions,
        )


def test_an_idle_daemon_keeps_its_checkpoints(tmp_path: Path) -> None:
    """Where nothing was read since, no new file pushes the older ones out."""
    run = Run(tmp_path, NoSink())
    assert run.pipeline.run(Limits(messages_max=500)) == "max messages"
    run.clock.now_s = 11.0
    run.pipeline._look_around(0)
    written = run.file.stat()
    run.clock.now_s = 22.0
    run.pipeline._look_around(0)
    assert run.file.stat().st_ino == written.st_ino
    run.pipeline.run(Limits(messages_max=1000))
    run.clock.now_s = 33.0
    run.pipeline._look_around(0)
    assert run.file.stat().st_ino != written.st_ino
    run.predictor.stop()


def test_a_judgement_that_is_lost_ends_the_run(tmp_path: Path) -> None:
    """A fault while handing on ends the daemon before a checkpoint passes over what was lost."""
    run = Run(tmp_path, BrokenSink())
    with pytest.raises(SinkError, match="handed on"):
        run.pipeline.run(Limits())
    with pytest.raises(CheckpointError):
        run.pipeline.finish()
    assert not run.file.exists()
    run.predictor.stop()
