"""Each call of the operating system fails in turn: what was safe stays, and the run goes on."""

from __future__ import annotations

import errno
import io
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from structlog.testing import capture_logs

from consumers import daemon
from consumers.config.sections import CheckpointSettings
from consumers.config.settings import Settings
from consumers.corrections import NotWritten
from consumers.corrections.journal import Journal
from consumers.errors import CheckpointError, GroupError, SinkError
from consumers.features import build_model
from consumers.kernels import learned_records as kernels
from consumers.pipeline import learned_memory, learned_records
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.erasure import FILE_NAME
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import Record
from consumers.terminal import make_view
from streamnb.storage import read
from tests.consumers.decoded_messages import messages
from tests.consumers.pipeline.erasure_folder import Folder
from tests.consumers.pipeline.revised_log import FIELDS
from tests.consumers.pipeline.test_loop import LABELLED, LOG, UNLABELLED, Run
from tests.consumers.pipeline.test_part_files import LOG as LOG_OF_GROUP
from tests.consumers.pipeline.test_part_files import files_in, learned, names
from tests.system_calls import Call, hooked

FAULTS = ["ENOSPC", "EIO", "EROFS", "EMFILE", "EDQUOT", "short"]


class OneFault:
    """Fails one call of those that are made while it is armed; `short` writes half of the data.

    Attributes
    ----------
    hit : Call or None
        The call that failed.
    """

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._left = 0
        self.hit: Call | None = None

    def arm(self, number: int) -> None:
        """Have the call of this number fail, from 1 on; 0: none."""
        self._left = number
        self.hit = None if number else self.hit

    def __call__(self, call: Call, act: Callable[..., Any]) -> Any:
        """Carry out a call, or fail it."""
        if self._fault == "short" and call.name not in {"write", "pwrite"}:
            return act()
        self._left -= 1
        if self._left:
            return act()
        self.hit = call
        if self._fault == "short":
            fd, data, *where = call.args
            return act(fd, bytes(data)[: (len(data) + 1) // 2], *where)
        number = getattr(errno, self._fault)
        raise OSError(number, os.strerror(number))


def n_remembered(state: Path, copy: Path) -> int:
    """Return how many records the newest checkpoint's memory has, read from a copy."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(state, copy)
    with capture_logs() as said, closing(LearnedMemory(copy, FIELDS, 1_000, 3)) as memory:
        checkpoint = Checkpoint(CheckpointSettings(folder=copy), {})
        checkpoint.restore(build_model(Settings().model))
        checkpoint.restore_entries([memory])
    assert not [line for line in said if line["log_level"] == "error"]
    return memory.sizes()[0]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_checkpoint_outlives_each_failing_call(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one stays whole, health and metrics tell, learning goes on, the next is written."""
    state = tmp_path / "state"
    state.mkdir()
    monkeypatch.setattr(learned_memory, "SEGMENT_RECORDS", 4)
    with (
        closing(JsonLinesSink(state / "predictions.jsonl")) as sink,
        closing(LearnedMemory(state, FIELDS, 1_000, 3)) as memory,
    ):
        run = Run(state, predictions=sink, memory=memory)
        one_fault = OneFault(fault)
        n_failed, number, at = 0, 0, 2
        run.pipeline._process(messages(LOG, [LABELLED, UNLABELLED]))
        run.look_around(11.0)
        with hooked(state, one_fault), capture_logs():
            while True:
                number += 1
                run.pipeline._process(messages(LOG, [LABELLED, UNLABELLED], at))
                at += 2
                before = run.value("checkpoint_failures_total")
                one_fault.arm(number)
                with suppress(CheckpointError):
                    run.look_around(11.0)
                one_fault.arm(0)
                is_told = run.value("checkpoint_failures_total") != before
                n_failed += is_told
                assert (run.pipeline.health.report().degraded is not None) == is_told
                stored = read(run.file)
                assert stored.path == run.file
                assert stored.positions["t/0"] in ({at - 2, at} if is_told else {at})
                assert stored.model.n_examples == stored.positions["t/0"] // 2
                assert n_remembered(state, tmp_path / "copy") == stored.model.n_examples
                if one_fault.hit is None:
                    break
                run.look_around(11.0)
                assert run.pipeline.health.report().degraded is None
                assert read(run.file).positions == {"t/0": at}
        run.end()
    assert n_remembered(state, tmp_path / "copy") == at // 2
    assert number > 2 if fault == "short" else n_failed > 8
    assert (state / "predictions.jsonl").read_bytes().count(b"\n") == at // 2


@pytest.mark.parametrize("fault", FAULTS)
def test_a_part_file_outlives_each_failing_call(tmp_path: Path, fault: str) -> None:
    """Other members find the furthest whole file, no damaged one, and then what is tried again."""
    own, one_fault = files_in(tmp_path, writer="a" * 16), OneFault(fault)
    number, n_failed, at = 0, 0, 1
    own.write(learned("a").state, LOG_OF_GROUP, at)
    while number == 0 or one_fault.hit is not None:
        number, at = number + 1, at + 1
        state, is_failed = learned(*["a"] * at).state, False
        with hooked(tmp_path, one_fault), capture_logs():
            one_fault.arm(number)
            try:
                own.write(state, LOG_OF_GROUP, at)
            except GroupError:
                is_failed = True
            one_fault.arm(0)
        n_failed += is_failed
        other = files_in(tmp_path)
        found = other.load(LOG_OF_GROUP)
        assert found is not None
        assert found.position in ({at - 1, at} if is_failed else {at})
        assert found.model.n_examples == found.position
        assert not other.damaged
        own.write(state, LOG_OF_GROUP, at)
        found = other.load(LOG_OF_GROUP)
        assert found is not None
        assert found.position == found.model.n_examples == at
    assert number > 1 if fault == "short" else n_failed > 4
    assert len(names(tmp_path)) == 3  # nothing half written is left, and old ones have gone


@pytest.mark.parametrize("fault", FAULTS)
def test_a_journal_refuses_what_it_could_not_make_safe(tmp_path: Path, fault: str) -> None:
    """A line whose writing fails is refused and leaves no byte; the next ones are taken."""
    path, kept, number = tmp_path / "corrections.jsonl", [], 0
    one_fault = OneFault(fault)
    with closing(Journal(path)) as journal, hooked(tmp_path, one_fault), capture_logs():
        while number == 0 or one_fault.hit is not None:
            number += 1
            one_fault.arm(number)
            line = b"line %d" % number
            try:
                journal.append(b"", line)
                kept.append(line)
            except NotWritten:
                assert fault != "short"
            one_fault.arm(0)
            kept.append(line + b" again")
            journal.append(b"", kept[-1])
            assert journal.read(0, 10_000).splitlines() == kept
    assert number > 2 or fault == "short"
    with closing(Journal(path)) as journal:
        assert journal.read(0, 10_000).splitlines() == kept


@pytest.mark.parametrize("fault", FAULTS)
def test_an_erasure_is_finished_whatever_failed(tmp_path: Path, fault: str) -> None:
    """A call that fails leaves each line whole or erased, and the next pass erases all."""
    one_fault, number = OneFault(fault), 0
    while number == 0 or one_fault.hit is not None:
        number += 1
        (tmp_path / str(number)).mkdir()
        folder = Folder(tmp_path / str(number))
        folder.recent.done.set()
        with capture_logs(), folder.opened() as erasure:
            erasure.add([("m1", LOG, 1)], from_stream=True)
            with hooked(folder.path, one_fault):
                one_fault.arm(number)
                with suppress(SinkError):
                    folder.erase(erasure)
                one_fault.arm(0)
            folder.check_places()
            folder.erase(erasure)
            assert erasure.n_pending == 0
            erasure.flush(1.0)
        assert folder.holders() == set()
        folder.check_places()
        assert not (folder.path / FILE_NAME).exists()
    assert number > 4


@pytest.mark.parametrize("fault", FAULTS)
def test_a_sink_has_each_record_once_whatever_failed(tmp_path: Path, fault: str) -> None:
    """Records of a failed flush are there after the next one, each once and whole."""
    path, lines, number, one_fault = tmp_path / "told.jsonl", [], 0, OneFault(fault)
    with closing(JsonLinesSink(path)) as sink, hooked(tmp_path, one_fault):
        while number == 0 or one_fault.hit is not None:
            number += 1
            one_fault.arm(number)
            with suppress(SinkError):
                lines.append(b"%d" % number)
                sink.add([Record(b"", lines[-1])])
                sink.flush(1.0)
            one_fault.arm(0)
            sink.flush(1.0)
            assert path.read_bytes().splitlines() == lines


def test_records_that_the_disk_lost_are_not_called_safe(tmp_path: Path) -> None:
    """If what a failed sync left cannot be read back, no flush succeeds until a restart."""
    path, one_fault = tmp_path / "told.jsonl", OneFault("EIO")
    with capture_logs(), closing(JsonLinesSink(path)) as sink, hooked(tmp_path, one_fault):
        sink.add([Record(b"", b"1")])
        sink.flush(1.0)
        sink.add([Record(b"", b"2")])
        one_fault.arm(2)
        with pytest.raises(SinkError, match="could not be made safe"):
            sink.flush(1.0)
        assert one_fault.hit is not None
        assert one_fault.hit.name == "fsync"
        path.write_bytes(b"1\n\0\0")
        for _ in range(2):
            with pytest.raises(SinkError, match="the disk lost records"):
                sink.flush(1.0)


def one_message_daemon(folder: Path) -> Callable[[], None]:
    """Return what runs a daemon over a stream of one labelled message, to its end."""
    (folder / "in.jsonl").write_bytes(b'{"id": "a", "text": "sun", "label": 4}\n')
    everything = {
        "source": f"file:{folder / 'in.jsonl'}",
        "checkpoint": {"folder": folder / "state"},
        "http": {"enabled": False},
    }
    settings = Settings.model_validate(everything)

    def run() -> None:
        view = make_view("log", Console(file=io.StringIO()), lambda: 0.0)
        daemon.run(settings, view, until_end=True)

    return run


def test_a_label_of_no_class_is_lost_at_the_start(tmp_path: Path) -> None:
    """The memory's own file may be damaged: its labels are held to the restored model's classes."""
    run = one_message_daemon(tmp_path)
    run()
    (path,) = (tmp_path / "state" / learned_memory.FOLDER_NAME).rglob("*.records")
    data = bytearray(path.read_bytes())
    n_fields = len(learned_records.parse(memoryview(data), 0).fields)
    _, at, _, _ = kernels.array_places(0, 1, n_fields)
    struct.pack_into("<i", data, int(at), 2)
    learned_records.add_checksums(memoryview(data))
    path.write_bytes(data)
    with capture_logs() as said:
        run()
    (told,) = [each for each in said if each["event"] == "learned_damaged"]
    assert "label 2 of 2 classes" in told["detail"]


def test_a_memory_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start ends with the folder's path and a way out; what is saved stays as it is."""
    run = one_message_daemon(tmp_path)
    run()
    before = read(tmp_path / "state" / "model.nb").positions
    listed = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder.name == learned_memory.FOLDER_NAME:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with pytest.raises(CheckpointError, match=r"/state: its learned/.*Permission denied.*its mode"):
        run()
    assert read(tmp_path / "state" / "model.nb").positions == before
