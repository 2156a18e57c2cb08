"""Texts of deleted messages are overwritten in place; whatever fails, the files stay right."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from consumers.corrections.journal import Journal
from consumers.errors import SinkError
from consumers.kernels.learned_records import CREATED
from consumers.messages import Envelope, Operation, Partition, Reason, Reject
from consumers.pipeline.erasure import FILE_NAME, Erasure, Output
from consumers.pipeline.learned_memory import LearnedMemory
from consumers.pipeline.waiting_messages import texts_of
from consumers.private_files import overwrite_lines
from consumers.sinks.records import (
    prediction_record,
    prediction_without_text,
    reject_record,
    reject_without_bytes,
)
from streamnb import TextColumn
from streamnb.kernels.layout import Texts
from tests.consumers.corrections.stepped_daemon import Life, Store, by_part, taught_anew
from tests.consumers.full_disk import disk_full_at
from tests.consumers.pipeline.erasure_folder import (
    LOG,
    SECRET,
    Folder,
    NotingMemory,
    correction,
    prediction,
)
from tests.endtoend.expected_counts import examples


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A state folder."""
    return Folder(tmp_path)


def test_what_a_journal_says_was_deleted_is_erased_everywhere(folder: Folder) -> None:
    """A journal of an older version is caught up with, and what it says beside the text stays."""
    with folder.opened() as erasure:
        folder.erase(erasure)
        assert erasure.n_pending == 0
    assert folder.holders() == set()
    folder.check_places()
    lines = [
        json.loads(line) for line in (folder.path / "corrections.jsonl").read_bytes().splitlines()
    ]
    assert [(line["kind"], line["id"], line.get("gone")) for line in lines] == [
        ("label", "m0", None), ("label", "m1", True), ("delete", "m1", True),
    ]  # fmt: skip
    told = [
        json.loads(line) for line in (folder.path / "predictions.jsonl").read_bytes().splitlines()
    ]
    assert told[1].keys() == told[0].keys() - {"text", "fields"}
    assert told[1]["log_posteriors"] == told[0]["log_posteriors"]


def test_a_line_that_a_kept_checkpoint_lacks_keeps_its_text(folder: Folder) -> None:
    """What may be applied once more is erased later; outputs are erased at once."""
    first, second, _ = folder.lines["corrections.jsonl"]
    folder.applied = len(first) + 1 + len(second) + 1
    with folder.opened() as erasure:
        folder.erase(erasure)
        assert erasure.n_pending == 1
        assert folder.holders() == {"corrections.jsonl"}
        erased, kept = (folder.path / "corrections.jsonl").read_bytes().split(b"\n")[1:3]
        assert (SECRET in erased, SECRET in kept) == (False, True)
        folder.applied = 1 << 40
        folder.erase(erasure)
        assert erasure.n_pending == 0
    assert folder.holders() == set()


def test_what_a_line_is_still_to_take_back_stays_in_the_memory(folder: Folder) -> None:
    """After a kill the log's deletions are known before they are applied anew."""
    memory = NotingMemory()
    folder.applied = 0
    with folder.opened(memory) as erasure:
        folder.erase(erasure)
        assert (memory.told, erasure.n_pending) == ([], 1)
        folder.applied = 1 << 40
        folder.erase(erasure)
        assert (memory.told, erasure.n_pending) == (["m1"], 0)


def test_what_the_stream_is_still_to_take_back_stays_in_the_memory(folder: Folder) -> None:
    """A deletion noted before a kill may be read again only after many checkpoints."""
    with folder.opened() as erasure:
        erasure.add([("m7", LOG, 7)], from_stream=True)
        erasure.flush(1.0)
    memory = NotingMemory()
    folder.recent.done.set()
    folder.applied = 7
    with folder.opened(memory) as erasure:
        folder.erase(erasure)
        assert (memory.told, erasure.n_pending) == ([], 2)
        folder.applied = 8
        folder.erase(erasure)
        assert (memory.told, erasure.n_pending) == (["m7"], 1)  # the journal's line is further on


@pytest.mark.parametrize("n_before", [0, 3])
def test_what_a_topic_is_still_to_take_back_stays_in_the_memory(
    tmp_path: Path, n_before: int
) -> None:
    """A person's deletion, noted before a kill, may be read again only after many checkpoints."""
    topic, memory, applied = Partition("corrections", 2), NotingMemory(), {LOG: 1 << 40}
    for is_again in (False, True):
        erasure = Erasure(
            tmp_path, lambda: applied, None, [], None, lambda: 0.0, learned=memory
        )  # fmt: skip
        if not is_again:
            erasure.add_said([(("m1", LOG, 1), (*topic, 5)), (("m2", LOG, 2), (*topic, 6))])
            erasure.flush(1.0)
        for _ in range(n_before):
            erasure.begin()
            erasure._wait()
        assert (memory.told, erasure.n_pending) == ([], 2)
        erasure.close()
    for at, told in ((5, []), (6, ["m1"]), (7, ["m1", "m2"])):
        applied[topic] = at
        erasure = Erasure(tmp_path, lambda: applied, None, [], None, learned=memory)
        erasure.begin()
        erasure.close()
        assert memory.told == told
    assert erasure.n_pending == 0


def test_messages_behind_a_deletion_keep_their_texts(folder: Folder) -> None:
    """A message that came again under the id, later in its log, is another one."""
    journal = folder.path / "corrections.jsonl"
    again = correction("m1", 9, "b", "again")
    journal.write_bytes(journal.read_bytes() + again + b"\n")
    with folder.opened() as erasure:
        folder.erase(erasure)
    assert again in journal.read_bytes()


@pytest.mark.parametrize("turn", [1, -1])
def test_an_id_that_two_logs_delete_is_erased_up_to_both_places(folder: Folder, turn: int) -> None:
    """In the journal too a newer message of either log keeps its text."""
    journal, other = folder.path / "corrections.jsonl", Partition("t", 1)
    lines = [
        correction("m2", 1, "a"), correction("m2", 9, "a", "kept in the first"),
        correction("m2", 2, "a", place=other), correction("m2", 9, "a", "kept in the other", other),
    ]  # fmt: skip
    journal.write_bytes(journal.read_bytes() + b"".join(line + b"\n" for line in lines))
    with folder.opened() as erasure:
        erasure.add([("m2", LOG, 4), ("m2", other, 4)][::turn], from_stream=False)
        folder.erase(erasure)
    assert folder.holders() == set()
    assert [line in journal.read_bytes() for line in lines] == [False, True, False, True]


def test_what_the_stream_deletes_is_told_to_the_store_until_that_has_it(folder: Folder) -> None:
    """The store forgets it; after a kill before it has, the next start tells it once more."""
    with folder.opened() as erasure:
        erasure.add([("m1", LOG, 1), ("m7", LOG, 7)], from_stream=True)
        folder.erase(erasure)
        assert erasure.n_pending == 2
    assert SECRET not in (folder.path / FILE_NAME).read_bytes()
    with folder.opened() as erasure:
        assert folder.recent.told == [(["m1", "m7"], [1, 7]), (["m1"], [1]), (["m7"], [7])]
        folder.recent.done.set()
        folder.erase(erasure)
        assert erasure.n_pending == 0
    assert not (folder.path / FILE_NAME).exists()


def test_outputs_elsewhere_are_left_alone(folder: Folder, tmp_path: Path) -> None:
    """What lies outside the state folder is its reader's; so is all where there is no folder."""
    state = tmp_path / "state"
    state.mkdir()
    output = Output(folder.path / "predictions.jsonl", prediction_without_text)
    for where in (state, None):
        erasure = Erasure(where, dict[Partition, int], None, [output], None, lambda: 0.0)
        erasure.add([("m1", LOG, 1)], from_stream=True)
        folder.erase(erasure)
        erasure.close()
    assert "predictions.jsonl" in folder.holders()


@pytest.mark.parametrize(
    ("name", "number"),
    [("corrections.jsonl", 1), ("corrections.jsonl", 2), ("predictions.jsonl", 1),
     ("rejects.jsonl", 1)],
)  # fmt: skip
def test_a_line_torn_at_any_byte_is_erased_by_the_next_pass(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    """A power cut may leave any part of a write undone: no text stays in the end."""
    path = folder.path / name
    states = [path.read_bytes()]
    with monkeypatch.context() as patched:
        sync = os.fdatasync

        def note(fd: int) -> None:
            sync(fd)
            states.append(path.read_bytes())

        patched.setattr(os, "fdatasync", note)
        with folder.opened() as erasure:
            folder.erase(erasure)
    begin = sum(len(line) + 1 for line in folder.lines[name][:number])
    end, first = begin + len(folder.lines[name][number]), len(folder.lines[name][0])
    changed = [state for k, state in enumerate(states) if k == 0 or state != states[k - 1]]
    assert len(changed) == 3  # as it was, blanked, and written
    for old, new in itertools.pairwise(changed):
        for cut in range(begin, end, 3):
            # From the front, and from the back, as sectors reach a disk in any order.
            for torn in (new[:cut] + old[cut:], old[:cut] + new[cut:]):
                path.write_bytes(torn)
                erase_file(path)
                found = path.read_bytes()
                assert SECRET not in found
                assert b"bG9waG9" not in found  # in base64
                assert (len(found), found[:first]) == (len(old), old[:first])
                json.loads(found[begin:end])


def test_a_reject_that_holds_a_marked_id_loses_its_bytes() -> None:
    """Ids of the stream may have a mark before them that the message's own bytes do not have."""
    reject = Reject(Reason.MISSING_TEXT, "no text", LOG, 3, 5, None, b'{"id": "log-0-1", "x": "y"}')
    line = reject_record(reject).value
    for name in (b'"log-0-1"', b'"~log-0-1"'):
        emptied = reject_without_bytes(line, {name: {}})
        assert emptied is not None
        assert json.loads(emptied)["value_base64"] is None
    assert reject_without_bytes(line, {b'"~~log-0-1"': {}, b'"log-0-2"': {}}) is None


def test_odd_files_in_the_folder_hold_up_no_erasure(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links, programs and unreadable files are passed over; the last are told once a folder."""
    (folder.path / "a-loop").symlink_to("a-loop")
    program = folder.path / "a-program"
    shutil.copy("/bin/sleep", program)
    secret, left = folder.path / "b-secret", folder.path / "left.jsonl"
    other = folder.path / "c-secret"
    secret.write_bytes(b"x")
    other.write_bytes(b"x")
    left.write_bytes(folder.lines["predictions.jsonl"][1] + b"\n")
    opened = Path.open

    def refusing(self: Path, mode: str = "r", *more: Any) -> Any:
        if self in {secret, other}:  # as files of another owner
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, mode, *more)

    with (
        subprocess.Popen([program, "2"]),
        capture_logs() as logs,
        folder.opened() as erasure,
        monkeypatch.context() as patched,
    ):
        patched.setattr(Path, "open", refusing)
        folder.erase(erasure)
        assert erasure.n_pending == 0
    assert folder.holders() == set()
    assert [(line["event"], line["places"]) for line in logs if "places" in line] == [
        ("texts_out_of_reach", [str(secret), str(other)])
    ]


def test_an_output_that_fails_keeps_no_other_file_from_erasure(folder: Folder) -> None:
    """An output that cannot be opened is tried again; the journal is erased all the same."""
    output = folder.path / "predictions.jsonl"
    data = output.read_bytes()
    output.unlink()
    output.symlink_to(output.name)  # nobody can open it
    with folder.opened() as erasure, capture_logs() as logs:
        folder.erase(erasure)
        assert erasure.n_pending > 0
        assert [line["event"] for line in logs] == ["texts_not_erased"]
        assert SECRET not in (folder.path / "corrections.jsonl").read_bytes()
        output.unlink()
        output.write_bytes(data)
        folder.erase(erasure)
        assert erasure.n_pending == 0
    assert folder.holders() == set()


def test_the_folder_of_another_daemon_is_left_alone(folder: Folder) -> None:
    """A folder with a checkpoint of its own stays as it is; in another one outputs are erased."""
    line = folder.lines["predictions.jsonl"][1]
    for name in ("theirs", "theirs/deeper", "ours"):
        (folder.path / name).mkdir()
        (folder.path / name / "out.jsonl").write_bytes(line + b"\n" + line[:-20])
    (folder.path / "theirs" / "model.nb").write_bytes(b"")
    with folder.opened() as erasure:
        folder.erase(erasure)
    for name in ("theirs", "theirs/deeper"):
        assert (folder.path / name / "out.jsonl").read_bytes() == line + b"\n" + line[:-20]
    found = (folder.path / "ours" / "out.jsonl").read_bytes()
    # A torn last line is overwritten where it is, and gets no end.
    assert (SECRET in found, len(found)) == (False, 2 * len(line) - 19)
    assert found.count(b"\n") == 1


def test_outputs_are_known_by_their_lines_whatever_their_names(folder: Folder) -> None:
    """Neither a name like one of ours, nor a first line of megabytes, nor both kinds hide it."""
    told = folder.lines["predictions.jsonl"][1] + b"\n"
    big = reject_record(Reject(Reason.TOO_LARGE, "big", LOG, 1, 5, None, b"x" * 3_500_000)).value
    (folder.path / "left.jsonl").write_bytes(big + b"\n" + told)
    for name in ("model.nb.predictions.jsonl", "recent.db-out.jsonl", "corrections.jsonl.old"):
        (folder.path / name).write_bytes(told)
    with (folder.path / "predictions.jsonl").open("ab") as file:  # it held rejects meanwhile
        file.write(folder.lines["rejects.jsonl"][1] + b"\n")
    with folder.opened() as erasure:
        folder.erase(erasure)
        assert erasure.n_pending == 0
    assert folder.holders() == set()
    assert (folder.path / "left.jsonl").read_bytes().startswith(big + b'\n{"id":"m1",')
    assert b"eyJpZCI6ICJtMS" not in (folder.path / "predictions.jsonl").read_bytes()


def test_a_line_torn_behind_its_id_loses_its_text() -> None:
    """An interrupted overwrite may leave a line with blanks where its time stood."""
    line = b'{"id":"m1"                ,"text":"' + SECRET + b'"}'
    for torn in (line, line[:-2]):
        assert prediction_without_text(torn, {b'"m1"': {}}) == b'{"id":"m1"}'
        assert prediction_without_text(torn, {b'"m2"': {}}) is None


def test_what_came_behind_a_deletion_under_its_id_keeps_its_text(folder: Folder) -> None:
    """The living message's lines stay whole, in any pass; a line without a place is erased."""
    kept = Envelope("m1", 5, None, None, "alive", None, Operation.CREATE, {})
    lines = [
        prediction_record(kept, ["a"], [0.0], 7, place=(log, at)).value
        for log, at in ((LOG, 3), (LOG, 9), (Partition("t", 1), 9))
    ]
    value = b'{"id":"m1","label":"unheard of"}'
    rejects = [
        reject_record(Reject(Reason.UNKNOWN_LABEL, "odd", LOG, at, 5, None, value, "m1")).value
        for at in (3, 9)
    ]
    for name, added in (("predictions.jsonl", lines), ("rejects.jsonl", rejects)):
        with (folder.path / name).open("ab") as file:
            file.writelines(line + b"\n" for line in added)
    with folder.opened() as erasure:
        erasure.add([("m1", LOG, 4)], from_stream=False)
        folder.erase(erasure)
        folder.erase(erasure)
    assert folder.holders() == set()
    told = (folder.path / "predictions.jsonl").read_bytes().splitlines()[2:]
    assert [json.loads(line).get("text") for line in told] == [None, "alive", None]
    assert json.loads(told[0])["offset"] == 3
    said = (folder.path / "rejects.jsonl").read_bytes().splitlines()[2:]
    assert [json.loads(line)["value_base64"] is None for line in said] == [True, False]
    assert (told[1], said[1]) == (lines[1], rejects[1])


def erase_file(path: Path) -> None:
    """Do a pass over one file."""
    if path.name == "corrections.jsonl":
        journal = Journal(path)
        assert journal.erase({"m1": {LOG: 1}}, 1 << 40, lambda: True) == set()
        journal.close()
        return
    taken = {"predictions.jsonl": prediction_without_text, "rejects.jsonl": reject_without_bytes}
    fd = os.open(path, os.O_RDWR)
    size = os.fstat(fd).st_size
    assert overwrite_lines(fd, size, lambda line, _: taken[path.name](line, {b'"m1"': {}}))
    os.close(fd)


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, name: str, at: int) -> Iterator[list[int]]:
    """Let the call number `at` of a function of `os` fail, and all behind it."""
    calls = [0]
    real = getattr(os, name)

    def fails(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] >= at:
            raise OSError(errno.EIO, "the disk is gone")
        return real(*given, **named)

    with monkeypatch.context() as patched:
        patched.setattr(os, name, fails)
        yield calls


@pytest.mark.parametrize("at", range(1, 5))
@pytest.mark.parametrize("call", ["pwrite", "pread", "fdatasync", "open"])
def test_a_disk_that_fails_at_any_call_leaves_it_to_the_next_pass(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, call: str, at: int
) -> None:
    """Whichever call fails, no line moves, nothing is forgotten, and the next pass erases."""
    with folder.opened() as erasure:
        erasure.flush(1.0)
        with failing(monkeypatch, call, at) as calls:
            folder.erase(erasure)
        assert (erasure.n_pending == 0) == (calls[0] < at)
        folder.check_places()
        folder.erase(erasure)
        assert erasure.n_pending == 0
    assert folder.holders() == set()
    folder.check_places()
    for name in folder.lines:
        for line in (folder.path / name).read_bytes().splitlines():
            json.loads(line)


@pytest.mark.parametrize("call", ["replace", "fsync", "open"])
def test_a_note_that_cannot_be_written_keeps_the_checkpoint_from_standing(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """What is to be erased is safe before the checkpoint; the note before it stays whole."""
    with folder.opened() as erasure:
        erasure.add([("m1", LOG, 1)], from_stream=True)
        erasure.flush(1.0)
        before = (folder.path / FILE_NAME).read_bytes()
        erasure.add([("m9", LOG, 9)], from_stream=True)
        with failing(monkeypatch, call, 1), pytest.raises(SinkError, match="cannot be noted"):
            erasure.flush(1.0)
        assert (folder.path / FILE_NAME).read_bytes() == before
        with disk_full_at(40), pytest.raises(SinkError, match="cannot be noted"):
            erasure.flush(1.0)
        assert (folder.path / FILE_NAME).read_bytes() == before
        erasure.flush(1.0)
        assert b'"m9"' in (folder.path / FILE_NAME).read_bytes()


def test_damaged_notes_are_kept_aside_and_the_others_are_erased(folder: Folder) -> None:
    """An offset that an earlier version took, deep JSON, a torn line: the log says so."""
    note, aside = folder.path / FILE_NAME, folder.path / f"{FILE_NAME}.damaged"
    (folder.path / "corrections.jsonl").write_bytes(b"")
    good = b'{"id":"m1","topic":"t","partition":0,"offset":1,"from_stream":false}\n'
    bad = [good.replace(b"1,", b"%d," % 2**62), b'{"a":%s\n' % (b"[" * 9_000), b'{"id":"m\xff']
    for data, n in ((bad[0] + good + bad[1] + bad[2], 1), (bad[2], 0)):
        note.write_bytes(data)
        with capture_logs() as said, folder.opened() as erasure:
            assert (erasure.n_pending, note.read_bytes()) == (n, data)
            folder.erase(erasure)
        assert [len(each["faults"]) for each in said if "faults" in each] == [1 + 2 * n]
        assert (aside.read_bytes(), note.exists()) == (bad[0] + good + bad[1] + bad[2], False)
    assert folder.holders() == set()
    aside.replace(note)
    aside.mkdir()  # the lines would be lost with the next that is noted
    with pytest.raises(SinkError, match="read or kept"), folder.opened():
        pass


def test_an_older_checkpoint_still_finds_the_texts_that_it_needs(tmp_path: Path) -> None:
    """With the newest file damaged, the one before it learns the same counts from the journal."""
    found = examples(12)
    life = Life(tmp_path, Store(), found)
    life.finish()
    for number in (1, 2, 3):
        life.corrections.correction_service.delete(f"m{number}")
        life.correct()
        life.save()  # which erases as far as it may
    path = tmp_path / "model.nb"
    path.write_bytes(path.read_bytes()[:-9])
    life = life.kill()
    assert life.positions[Partition("journal:corrections.jsonl", 0)] > 0
    life.correct()
    assert life.rejects == []
    parts: dict[str, list[Any]] = {"t/0": [], "t/1": []}
    for number, example in enumerate(found):
        if number not in {1, 2, 3}:
            parts[f"t/{number % 2}"].append(example)
    assert by_part(life.learner.model) == by_part(taught_anew(parts))
    life.end()


def test_a_line_without_its_text_is_not_applied_again(tmp_path: Path) -> None:
    """A journal without its checkpoint is refused line by line, and said, and teaches nothing."""
    found = examples(6)
    life = Life(tmp_path, Store(), found)
    life.finish()
    life.corrections.correction_service.delete("m1")
    life.correct()
    for _ in range(3):
        life.save()
    for path in tmp_path.glob("model.nb*"):
        path.unlink()
    life = life.kill()
    life.finish()
    assert [(each.reason, "belongs to its checkpoint" in each.detail) for each in life.rejects] == [
        (Reason.CORRECTION, True)
    ]
    life.end()


@pytest.mark.parametrize("name", ["ann/m1", 'a"\\ü/m1'])
def test_the_texts_of_an_account_are_erased(tmp_path: Path, name: str) -> None:
    """In journal and outputs, by what its ids begin with; also where the id could not be read."""
    folder, account = Folder(tmp_path, name), name.partition("/")[0]
    others = [prediction(each) for each in (account, f"{account}x/m1", f"{account}~1/m1")]
    with (tmp_path / "predictions.jsonl").open("ab") as file:
        file.writelines(line + b"\n" for line in others)
    unread = json.dumps({"user": account, "text": SECRET.decode()}).encode()
    rejected = reject_record(Reject(Reason.NOT_JSON, "no", LOG, 4, 5, None, unread)).value
    with (tmp_path / "rejects.jsonl").open("ab") as file:
        file.write(rejected + b"\n")
    folder.recent.done.set()
    (tmp_path / "corrections.jsonl").write_bytes(correction(name, 1, "a") + b"\n")
    with folder.opened() as erasure:
        erasure.add([(f"{account}/~", LOG, 9), ("m7", LOG, 9)], from_stream=True)
        assert folder.recent.accounts == [([f"{account}/~"], [9])]
        assert folder.recent.told == [(["m7"], [9])]
        folder.applied = 0  # the line of the journal is still to be applied in a kept checkpoint
        folder.erase(erasure)
        assert SECRET in (tmp_path / "corrections.jsonl").read_bytes()
        assert erasure.n_pending == 2
    folder.applied = 1 << 40
    with folder.opened() as erasure:  # after a kill
        assert erasure.n_pending == 2
        folder.erase(erasure)
        assert erasure.n_pending == 0
    predicted = (tmp_path / "predictions.jsonl").read_bytes().split(b"\n")
    assert [SECRET in line for line in predicted] == [False, False, True, True, True, False]
    for each in ("rejects.jsonl", "corrections.jsonl"):
        assert SECRET not in (tmp_path / each).read_bytes()
    assert b'"value_base64":null' in (tmp_path / "rejects.jsonl").read_bytes().splitlines()[-1]


def test_a_message_behind_the_deletion_of_its_account_keeps_its_text() -> None:
    """The account was active again; a deletion of the message itself stands for itself."""
    envelope = Envelope("ann/m1", 5, None, None, "so it goes", None, Operation.CREATE, {})
    line = prediction_record(envelope, ["a"], [0.0], 7, place=(LOG, 5)).value
    account, own = b'"ann/', b'"ann/m1"'
    assert prediction_without_text(line, {account: {LOG: 4}}) is None
    assert prediction_without_text(line, {account: {LOG: 5}}) is not None
    assert prediction_without_text(line, {account: {LOG: 4}, own: {LOG: 5}}) is not None
    assert prediction_without_text(line, {account: {LOG: 5}, own: {LOG: 4}}) is not None
    assert prediction_without_text(line, {b'"an/': {LOG: 5}, b'"ann"': {LOG: 5}}) is None


def test_an_id_that_looks_like_an_account_is_one_message(folder: Folder) -> None:
    """Without the setting nothing else is erased by it."""
    folder.recent.done.set()
    with folder.opened() as erasure:
        erasure.add([("m1/~", LOG, 9)], from_stream=True)
        assert folder.recent.told == [(["m1/~"], [9])]
        assert not folder.recent.accounts


@pytest.mark.parametrize("accounts", [True, False])
def test_the_texts_of_an_account_leave_the_memory(tmp_path: Path, accounts: bool) -> None:
    """Up to its deletion, in the log of that."""
    memory = LearnedMemory(tmp_path, {"text": "words"}, 100, keep=0, accounts=accounts)
    ids = texts_of([b"a/1", b"b/1", b"a/2", b"a~1/1", b"a/~", b"a/3", None])
    texts = texts_of([b"secret%d" % k for k in range(7)])
    kinds = np.full(7, CREATED, np.uint8)
    memory.log(LOG).append(np.arange(7), np.zeros(7, np.int32), kinds, ids, {"text": texts})
    memory.pack()
    memory.sync()
    memory.erase({LOG: {"a/~": 4}})
    memory.close()
    (data,) = (path.read_bytes() for path in tmp_path.rglob("*.records"))
    gone = {0, 2, 4} if accounts else {4}
    assert {k for k in range(7) if b"secret%d" % k not in data} == gone


def test_an_id_that_two_logs_delete_leaves_the_memory_of_both(tmp_path: Path) -> None:
    """Deletions of one id in several partitions are each dealt with in their own."""
    memory = LearnedMemory(tmp_path, {"text": "words"}, 100, keep=0)
    name = TextColumn(
        Texts(np.frombuffer(bytearray(b"a"), np.uint8), np.zeros(1, np.int64), np.full(1, 1))
    )
    text = TextColumn(
        Texts(np.frombuffer(bytearray(b"secret"), np.uint8), np.zeros(1, np.int64), np.full(1, 6))
    )
    logs = [Partition("t", 0), Partition("t", 1)]
    for log in logs:
        memory.log(log).append(
            np.array([3]), np.zeros(1, np.int32), np.array([CREATED], np.uint8), name,
            {"text": text},
        )  # fmt: skip
    memory.pack()
    memory.sync()
    erasure = Erasure(tmp_path, lambda: dict.fromkeys(logs, 5), None, [], None, learned=memory)
    erasure.add([("a", log, 4) for log in logs], from_stream=True)
    erasure.begin()
    erasure.close()
    memory.close()
    files = [path.read_bytes() for path in tmp_path.rglob("*.records")]
    assert [b"secret" in data for data in files] == [False, False]
    assert erasure.n_pending == 0
