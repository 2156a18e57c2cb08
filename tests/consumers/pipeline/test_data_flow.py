"""The path of a batch from `poll` to the sink: the modules that docs/architecture.md lists.

There are two paths: of the pipeline alone, and of the daemon as it is by default.
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from prometheus_client import CollectorRegistry

from consumers.config.sections import CheckpointSettings
from consumers.config.settings import Settings
from consumers.daemon import run
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
DEFAULT_MODULES_MAX = 20  # what was measured; it may only be lowered, and 12 is what is wanted
# They make the batch, count it, or hold settings.
BESIDE = ("consumers.sources.", "consumers.monitoring.", "consumers.config.")
DOCUMENT = Path(__file__).parents[3] / "docs" / "architecture.md"


def module_of(frame: FrameType) -> set[str]:
    """Return the module of the application that a call enters, if it is one."""
    name = frame.f_globals.get("__name__", "")
    is_annotation = frame.f_code.co_name == "<module>"  # of a kernel that is compiled only now
    return {name} if name.startswith("consumers.") and not is_annotation else set()


@contextmanager
def profiling(note: Callable[[FrameType, str, Any], None]) -> Iterator[None]:
    """Tell of each call and return, on this thread and all that are started meanwhile."""
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@contextmanager
def modules_called() -> Iterator[set[str]]:
    """Collect the modules of the application that run, on all threads started meanwhile."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            found.update(module_of(frame))

    with profiling(note):
        yield found


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


# On their threads a daemon does more than pass on a batch: only what these call counts.
WAY = frozenset(
    method.__code__
    for method in (Pipeline._process, Pipeline._write_predictions, Pipeline._write_rejects)
)


@contextmanager
def modules_on_the_way() -> Iterator[set[str]]:
    """Collect the modules that run in a daemon on the way of a batch, from `poll` to the sinks."""
    found: set[str] = set()
    outermost: dict[int, FrameType] = {}  # by thread: the call that deals with a batch
    own = threading.get_ident()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        thread = threading.get_ident()
        name = threading.current_thread().name
        if thread != own and name not in {"read", "predict"}:
            sys.setprofile(None)  # a compiler among them would take long
            return
        if event == "call" and frame.f_code in WAY:
            outermost.setdefault(thread, frame)
        if event == "call" and (name == "read" or thread in outermost):
            found.update(module_of(frame))
        if event == "return" and outermost.get(thread) is frame:
            del outermost[thread]

    with profiling(note):
        yield found


class NoView:
    """Shows nothing."""

    def start(self) -> None:
        """Do nothing."""

    def update(self, status: object) -> None:
        """Do nothing."""

    def stop(self) -> None:
        """Do nothing."""


def passed_by_default(folder: Path) -> set[str]:
    """Return the modules that a batch passes in a daemon with a page, a store and a checkpoint.

    Most of its messages are labelled, some are not, and one is broken.
    """
    lines = [
        {"id": f"m{i}", "text": "good day"} | ({"label": 4} if i % 3 else {}) for i in range(9)
    ]
    path = folder / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n{\n")
    settings = Settings.model_validate(
        {
            "source": f"file:{path}",
            "http": {"port": 0},
            "checkpoint": {"folder": folder / "state"},
            "predictions": {"to": f"file:{folder / 'out.jsonl'}"},
            "rejects": {"to": f"file:{folder / 'rejects.jsonl'}"},
        }
    )
    with modules_on_the_way() as found:
        run(settings, NoView(), until_end=True)
    return {name for name in found if not name.startswith(BESIDE)}


def listed(mark: str) -> list[str]:
    """Return the modules that the document lists behind a mark, in its order."""
    section = DOCUMENT.read_text("utf-8").split("### The modules on the way")[1].split("\n## ")[0]
    names = re.findall(rf"^{mark} `(consumers/\S+)\.py`", section, flags=re.MULTILINE)
    return [name.replace("/", ".") for name in names]


def test_a_batch_passes_the_modules_that_the_document_lists(tmp_path: Path) -> None:
    """From `poll` to the sink a batch passes at most twelve modules, each of them listed."""
    assert len(listed(r"\d+\.")) <= MODULES_MAX
    assert sorted(listed(r"\d+\.")) == sorted(passed_modules(tmp_path))


def test_a_batch_of_the_daemon_as_it_is_by_default_passes_those_listed_too(tmp_path: Path) -> None:
    """The reviser, the memory of what was learned and the page's store lie on its way as well."""
    by_default = listed(r"\d+\.") + listed("-")
    assert len(by_default) <= DEFAULT_MODULES_MAX
    assert sorted(by_default) == sorted(passed_by_default(tmp_path))
