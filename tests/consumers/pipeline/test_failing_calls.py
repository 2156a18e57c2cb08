"""Each call of the operating system fails in turn: what was safe stays, and the run goes on."""

from __future__ import annotations

import errno
import io
import mmap
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
from consumers.corrections.journal import Journal
from consumers.corrections.model import Correction, NotWritten
from consumers.errors import CheckpointError, GroupError, SinkError
from consumers.features import build_model
from consumers.kernels import learned_records as kernels
from consumers.pipeline import learned_memory, learned_records
from consumers.pipeline.checkpoint import Checkpoint
from consumers.pipeline.erasure import FILE_NAME
from consumers.pipeline.learned_memory import LearnedMemory, LogMemory
from consumers.sinks.jsonl import JsonLinesSink
from consumers.sinks.records import Record
from consumers.terminal import make_view
from streamnb.storage import read
from tests.consumers.decoded_messages import messages
from tests.consumers.pipeline.erasure_folder import Folder
from tests.consumers.pipeline.revised_log import FIELDS, Said
from tests.consumers.pipeline.revised_log import LOG as REVISED_LOG
from tests.consumers.pipeline.revised_log import Run as RevisedRun
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


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
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


OUT_OF_REACH = [errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.EIO]


def remembered(folder: Path, n: int = 8, **more: Any) -> tuple[list[Said], RevisedRun]:
    """Return a log of messages, and a run that has learned and saved it."""
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(n)]
    run = RevisedRun(folder, **more)
    run.read(log, n)
    run.save()
    return log, run


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("number", OUT_OF_REACH)
def test_a_start_gives_up_no_file_that_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It ends with the file's name and a way out; the next one takes back what that holds."""
    log, run = remembered(tmp_path)
    run.memory.close()
    read_bytes = Path.read_bytes

    def failing(path: Path) -> bytes:
        if path.name == "0.records":
            raise OSError(number, os.strerror(number))
        return read_bytes(path)

    said = rf"learned/t%2F0/0\.records.*{os.strerror(number)}.*Start again.*move the file away"
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing)
        with pytest.raises(CheckpointError, match=said):
            RevisedRun(tmp_path)
    again = RevisedRun(tmp_path)
    again.read([*log, Said("delete", "m1")], 9)
    assert sorted(again.learner.model.words()) == sorted({f"word{i}" for i in range(8)} - {"word1"})
    assert again.memory.trouble is None
    again.memory.close()


@pytest.mark.usefixtures("short_segments")
@pytest.mark.parametrize("number", OUT_OF_REACH)
def test_a_run_gives_up_no_file_that_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It ends before anything is counted; the last checkpoint names the file."""
    log, run = remembered(tmp_path)
    log.append(Said("delete", "m1"))
    run.memory.wrote(run.memory.log(REVISED_LOG), [])

    def failing(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", failing)
        with pytest.raises(CheckpointError, match=r"0\.records"):
            run.read(log, 9)
    run.memory.close()
    again = RevisedRun(tmp_path)
    again.read(log, 9)
    assert dict(again.reviser.counts) == {"delete_matched": 1, "unlearned": 1}
    again.memory.close()


@pytest.mark.usefixtures("short_segments")
def test_a_file_that_cannot_be_cut_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed run wrote behind the checkpoint goes at the next start that can."""
    log, run = remembered(tmp_path, 6)
    run.read([*log, Said("create", "m6", "word6", "positive")], 7)
    run.memory.pack()
    run.memory.sync()  # and killed before its checkpoint was there
    run.memory.close()

    def failing(*_args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "truncate", failing)
        cut = r"t%2F0/1\.records.* cannot be cut .*\(No space left on device, errno 28\)"
        with pytest.raises(CheckpointError, match=cut):
            RevisedRun(tmp_path)
    again = RevisedRun(tmp_path)
    assert again.memory.sizes()[0] == 6
    assert again.memory.trouble is None
    again.memory.close()


def restarted(run: RevisedRun, folder: Path, n_saves: int = 6) -> RevisedRun:
    """Return a run behind another one, which has written more checkpoints than are kept."""
    for _ in range(n_saves):
        run.save()
    run.memory.close()
    return RevisedRun(folder)


@pytest.mark.usefixtures("short_segments")
def test_a_damaged_file_stays_until_it_is_whole_again(tmp_path: Path) -> None:
    """It is told after each start too; one that was put back serves again."""
    log, run = remembered(tmp_path)
    path = tmp_path / learned_memory.FOLDER_NAME / "t%2F0" / "0.records"
    whole = path.read_bytes()
    run.memory.close()
    path.write_bytes(damaged := bytes([whole[0] ^ 1]) + whole[1:])
    with capture_logs() as said:
        run = RevisedRun(tmp_path)
        for _ in range(2):
            assert "1 files" in str(run.memory.trouble)
            run = restarted(run, tmp_path)
    assert [each["event"] for each in said if each["log_level"] == "error"] == [
        "learned_damaged"
    ] * 3
    assert path.read_bytes() == damaged
    path.write_bytes(whole)
    run = restarted(run, tmp_path)
    assert run.memory.trouble is None
    run.read([*log, Said("delete", "m1")], 9)
    assert len(run.learner.model.words()) == 7
    run.memory.close()


@pytest.mark.usefixtures("short_segments")
def test_an_open_file_that_is_put_back_later_serves_again(tmp_path: Path) -> None:
    """Others have followed its few records meanwhile: how many it had is known."""
    log, run = remembered(tmp_path, 6)
    path = tmp_path / learned_memory.FOLDER_NAME / "t%2F0" / "1.records"
    whole = path.read_bytes()
    run.memory.close()
    path.write_bytes(b"damaged")
    run = restarted(RevisedRun(tmp_path), tmp_path)
    log += [Said("create", f"n{i}", "sun", "positive") for i in range(3)]
    run.read(log, 9)
    assert "1 files" in str(run.memory.trouble)
    run = restarted(run, tmp_path)
    path.write_bytes(whole)
    for n, name in ((9, "m4"), (10, "m5")):
        run = restarted(run, tmp_path)
        assert run.memory.trouble is None
        assert run.memory.sizes()[0] == n
        log.append(Said("delete", name))
        run.read(log, len(log))
        assert dict(run.reviser.counts) == {"delete_matched": 1, "unlearned": 1}
    run.memory.close()


class Moving(list[str]):
    """Names of fields in whose midst another file is lost, as the consuming thread may lose it."""

    memory: LogMemory

    def __iter__(self) -> Iterator[str]:
        self.memory.lose(len(self.memory.lost), learned_records.DamagedError("torn"))
        return super().__iter__()


def test_trouble_is_told_while_files_are_lost() -> None:
    """Health asks for it on a thread of its own."""
    with closing(LearnedMemory(None, FIELDS, 100, 1)) as memory:
        own = memory.log(REVISED_LOG)
        names = Moving(FIELDS)
        names.memory = own
        own.lose(0, learned_records.DamagedError("torn"))
        own.lost[0] = own.lost[0]._replace(names=names)
        assert "1 files" in str(memory.trouble)
        assert len(own.lost) == 2


@pytest.mark.usefixtures("short_segments")
def test_a_lost_file_stays_lost_once_its_messages_were_corrected_by_the_log(tmp_path: Path) -> None:
    """Of the correction it knows nothing, and would have taken back what is not taught any more."""
    _, run = remembered(tmp_path)
    path = tmp_path / learned_memory.FOLDER_NAME / "t%2F0" / "0.records"
    whole = path.read_bytes()
    run.memory.close()
    path.unlink()
    run = RevisedRun(tmp_path)
    said = Correction(
        "label",
        "m1",
        0,
        label="negative",
        was="positive",
        partition=(REVISED_LOG.topic, REVISED_LOG.partition),
        offset=1,
    )
    assert run.state(said) is None
    run.reviser.give_up_lost(REVISED_LOG)
    path.write_bytes(whole)
    for _ in range(2):
        run = restarted(run, tmp_path)
        assert "1 files" in str(run.memory.trouble)
        assert run.state(said) is None
    run.memory.close()


@pytest.mark.usefixtures("short_segments")
def test_a_damaged_file_leaves_with_its_records_or_with_a_deletion(tmp_path: Path) -> None:
    """What it holds nobody knows, so it may hold what is to be erased."""
    log, run = remembered(tmp_path, 12, records_max=16)
    folder = tmp_path / learned_memory.FOLDER_NAME / "t%2F0"
    run.memory.close()
    for name in ("0.records", "1.records"):
        (folder / name).write_bytes(b"damaged")
    with capture_logs() as said:
        run = RevisedRun(tmp_path, records_max=16)
        run.memory.erase({REVISED_LOG: {"m11": 11}})
    assert {each.name for each in folder.iterdir()} == {"2.records"}
    for event in ("learned_damaged", "learned_damaged_deleted"):  # by the same names
        assert [each["file"] for each in said if each["event"] == event] == ["t/0/0", "t/0/1"]
    (folder / "1.records").write_bytes(b"damaged again")
    more = [Said("create", f"n{i}", "sun", "positive") for i in range(16)]
    run.read([*log, *more], 28)
    for _ in range(6):
        run.save()
    assert {each.name for each in folder.iterdir()} == {f"{k}.records" for k in range(3, 7)}
    run.memory.close()
