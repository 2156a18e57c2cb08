"""The path of a batch from `poll` to the sink: the modules that docs/architecture.md lists."""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from prometheus_client import CollectorRegistry

from consumers.config.sections import CheckpointSettings
from consumers.config.settings import Settings
from consumers.factories import build_decoder
from consumers.features import build_model
from consumers.messages import Messages
from consumers.monitoring.metrics import Metrics
from consumers.monitoring.stats import RunStatistics
from consumers.monitoring.status import Health
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.checkpoint_writer import CheckpointWriter
from consumers.pipeline.loop import Pipeline
from consumers.pipeline.reader import Limits, Reader
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sources.file import FileSource
from streamnb import EveryExamples, Learner, Predictor, SnapshotBoard

MODULES_MAX = 12
# They make the batch, count it, or hold settings.
BESIDE = ("consumers.sources.", "consumers.monitoring.", "consumers.config.")
DOCUMENT = Path(__file__).parents[3] / "docs" / "architecture.md"


@contextmanager
def modules_called() -> Iterator[set[str]]:
    """Collect the modules of the application that run, on all threads started meanwhile."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        is_annotation = frame.f_code.co_name == "<module>"  # of a kernel that is compiled only now
        if event == "call" and name.startswith("consumers.") and not is_annotation:
            found.add(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def passed_modules(folder: Path) -> set[str]:
    """Return the modules that a batch passes: a message with a label, one without, one broken."""
    lines = [{"text": "good day", "label": 4}, {"text": "good"}]
    path = folder / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{\n")
    settings = Settings()
    metrics = Metrics(CollectorRegistry(), settings.model.classes)
    health, stop, board = Health(lambda: 0.0, 30.0), threading.Event(), SnapshotBoard()
    source = FileSource(path, settings.file)
    decoder = build_decoder(settings, source)
    predictor = Predictor(board)
    predictions, rejects = (JsonLinesSink(folder / name) for name in ("out.jsonl", "rejects.jsonl"))
    checkpoint = Checkpoint(CheckpointSettings(folder=None), {})
    pipeline = Pipeline(
        reader=Reader(source, decoder, health, stop),
        learner=Learner(build_model(settings.model), board, EveryExamples(1), lambda: 0.0),
        predictor=predictor,
        predictions=predictions,
        rejects=rejects,
        checkpoint=checkpoint,
        checkpoint_writer=CheckpointWriter(checkpoint, predictor, (predictions, rejects), stop),
        metrics=metrics,
        health=health,
        statistics=RunStatistics(settings.model.classes, ("text",), 1000),
        stop=stop,
        watch=lambda: None,
    )
    with modules_called() as found:
        predictor.start()
        pipeline.reader.start({}, Limits(until_end=True))
        while pipeline.reader.end_reason is None:
            messages = pipeline.reader.take(1.0)
            if isinstance(messages, Messages):
                pipeline._process(messages)
        pipeline.learner.publish()
        predictor.drain(60.0)
        predictions.flush(1.0)
        passed = {name for name in found if not name.startswith(BESIDE)}
    pipeline.finish()
    predictor.stop()
    predictions.close()
    return passed


def test_a_batch_passes_the_modules_that_the_document_lists(tmp_path: Path) -> None:
    """From `poll` to the sink a batch passes at most twelve modules, each of them listed."""
    section = DOCUMENT.read_text("utf-8").split("### The modules on the way")[1].split("\n## ")[0]
    listed = re.findall(r"^\d+\. `(consumers/\S+)\.py`", section, flags=re.MULTILINE)
    assert len(listed) <= MODULES_MAX
    assert sorted(name.replace("/", ".") for name in listed) == sorted(passed_modules(tmp_path))
