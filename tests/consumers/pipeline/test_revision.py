"""Deletes and updates of the stream leave the counts of the log without what they take back."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumers.corrections.model import Correction
from consumers.errors import CheckpointError
from consumers.features import build_model
from consumers.messages import place_name
from consumers.pipeline import learned_memory
from consumers.pipeline.learned_memory import FOLDER_NAME
from consumers.pipeline.learned_records import Hashes
from streamnb.kernels.layout import Texts
from tests.consumers.pipeline.revised_log import (
    KEEP,
    LOG,
    LOGS,
    SETTINGS,
    SIZES,
    Run,
    Said,
    expected,
    leaves_the_rest,
)
from tests.consumers.pipeline.test_learned_records import held_open
from tests.endtoend.expected_counts import counts as counts_of
from tests.system_calls import Call, hooked

pytestmark = pytest.mark.usefixtures("short_segments")


@given(LOGS, SIZES, st.data())
def test_a_log_leaves_what_it_does_not_take_back(
    log: list[Said], sizes: list[int], data: st.DataObject
) -> None:
    """Whatever the batches, and killed between any two of them, the counts are the page's."""
    leaves_the_rest(log, sizes, data, SETTINGS)


@given(LOGS, st.integers(0, 40))
def test_in_place_each_delete_has_its_effect_where_it_stands(log: list[Said], first: int) -> None:
    """At each cut the counts are those of a run that reads one message at a time up to there."""
    run, alone = Run(None), Run(None)
    run.read(log, min(first, len(log)))

    def compare(offset: int) -> None:
        while alone.position < offset:
            alone.read(log, alone.position + 1)
        assert run.counts == alone.counts

    run.read(log, len(log), compare)
    compare(len(log))
    assert run.reviser.counts == alone.reviser.counts
    for each in (run, alone):
        each.memory.close()


CREATE, AGAIN = Said("create", "a", "sun sun", "positive"), Said("create", "b", "rain", "negative")
DELETE, UPDATE = Said("delete", "a"), Said("update", "a", "snow", "negative")


@pytest.mark.parametrize(
    ("log", "n_left", "counts"),
    [
        ([CREATE, DELETE], 0, {"delete_matched": 1, "unlearned": 1}),
        ([CREATE, Said("tombstone", "a")], 0, {"delete_matched": 1, "unlearned": 1}),
        ([CREATE, CREATE, DELETE], 0, {"delete_matched": 1, "unlearned": 2}),
        ([CREATE, DELETE, DELETE], 0, {"delete_matched": 1, "delete_repeated": 1, "unlearned": 1}),
        ([CREATE, DELETE, CREATE], 1, {"delete_matched": 1, "unlearned": 1}),
        ([DELETE, CREATE], 0, {"delete_unmatched": 1}),
        ([DELETE, CREATE, CREATE], 1, {"delete_unmatched": 1}),
        ([UPDATE, CREATE], 1, {"update_unmatched": 1}),
        ([CREATE, UPDATE, UPDATE], 1, {"update_matched": 2, "unlearned": 2}),
        ([CREATE, Said("update", "a", "snow")], 0, {"update_matched": 1, "unlearned": 1}),
        ([Said("create", None, "sun", "positive"), Said("delete", None)], 1, {}),
    ],
)
@pytest.mark.parametrize("batch", [1, 100])
def test_the_rules(log: list[Said], n_left: int, counts: dict[str, int], batch: int) -> None:
    """Each rule by itself: what is left, and what is counted."""
    run = Run(None)
    while run.position < len(log):
        run.read(log, min(len(log), run.position + batch))
    assert run.counts == expected(log)[0]
    assert run.learner.model.n_examples == n_left
    assert dict(run.reviser.counts) == counts
    run.memory.close()


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_what_is_older_than_the_memory_is_not_taken_back(tmp_path: Path, batch: int) -> None:
    """The bound is a function of the log: it falls on the same message however that is cut."""
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(20)]
    log += [Said("delete", f"m{i}") for i in range(20)]
    run = Run(tmp_path, records_max=18)
    while run.position < len(log):
        run.read(log, min(len(log), run.position + batch))
        run.save()
    # A delete is record 20 + i, and its segment's first 4 · (5 + i // 4): 18 before that are known.
    known = [i for i in range(20) if i >= 4 * (5 + i // 4) - 18]
    assert sorted(run.learner.model.words()) == sorted(
        {f"word{i}" for i in range(20) if i not in known}
    )
    assert run.reviser.counts["delete_unmatched"] == 20 - len(known) == 10
    for _ in range(KEEP + 1):
        run.save()
    files = {path.name for path in (tmp_path / FOLDER_NAME / "t%2F0").iterdir()}
    assert files == {f"{number}.records" for number in range(5, 10)}
    run.memory.close()


def test_files_are_cut_to_what_the_checkpoint_names(tmp_path: Path) -> None:
    """What was written after the checkpoint is gone at the start, whole segments as well."""
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(12)]
    run = Run(tmp_path)
    run.read(log, 5)
    run.save()
    before = {path: path.read_bytes() for path in (tmp_path / FOLDER_NAME).rglob("*.records")}
    run.read(log, 12)
    run.memory.pack()
    run.memory.sync()
    run.memory.close()
    assert len(list((tmp_path / FOLDER_NAME).rglob("*.records"))) == 3
    again = Run(tmp_path)
    assert again.memory.sizes()[0] == 5
    assert {path: path.read_bytes() for path in before} == before
    again.read([*log[:5], *(Said("delete", f"m{i}") for i in range(5))], 10)
    assert again.learner.model.n_examples == 0
    again.memory.close()


@pytest.mark.parametrize("at", [0, 5, 40, -1])
def test_a_damaged_file_is_told_and_the_rest_goes_on(tmp_path: Path, at: int) -> None:
    """Its messages are not taken back any more; those of other files are."""
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(8)]
    run = Run(tmp_path)
    run.read(log, 8)
    run.save()
    run.memory.close()
    path = tmp_path / FOLDER_NAME / "t%2F0" / "0.records"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with capture_logs() as logs:
        again = Run(tmp_path)
    assert [each["event"] for each in logs if each["log_level"] == "error"] == ["learned_damaged"]
    again.read([*log, *(Said("delete", f"m{i}") for i in range(8))], 16)
    assert sorted(again.learner.model.words()) == [f"word{i}" for i in range(4)]
    again.memory.close()


def test_a_segment_that_is_gone_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    """A search looks into files that were written long ago."""
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(9)]
    run = Run(tmp_path)
    run.read(log, 9)
    run.save()
    run.memory.wrote(run.memory.log(LOG), [])  # what is written leaves the process's own memory
    (tmp_path / FOLDER_NAME / "t%2F0" / "0.records").unlink()
    (tmp_path / FOLDER_NAME / "t%2F0" / "1.records").write_bytes(b"short")
    with capture_logs() as logs:
        run.read([*log, *(Said("delete", f"m{i}") for i in range(9))], 18)
    told = [each["file"] for each in logs if each["event"] == "learned_damaged"]
    assert told == ["t/0/0", "t/0/1"]
    assert sorted(run.learner.model.words()) == [f"word{i}" for i in range(8)]
    run.save()
    run.memory.close()
    assert Run(tmp_path).memory.sizes()[0] == 10


def test_a_file_that_is_cut_while_it_is_read_ends_nothing(tmp_path: Path) -> None:
    """What is mapped and was cut cannot be touched: that would end the process by a signal."""
    log = [Said("create", f"m{i}", f"word{i}" + "s" * 9_000, "positive") for i in range(8)]
    run = Run(tmp_path)
    run.read(log, 8)
    run.save()
    run.memory.wrote(run.memory.log(LOG), [])
    log.append(Said("delete", "m3"))
    run.read(log, 9)
    assert not run.memory.trouble
    os.truncate(tmp_path / FOLDER_NAME / "t%2F0" / "0.records", 0)
    log += [Said("delete", f"m{i}") for i in range(8)]
    with capture_logs() as logs:
        run.read(log, len(log))
    assert [each["event"] for each in logs if each["log_level"] == "error"] == ["learned_damaged"]
    assert len(run.learner.model.words()) == 3
    run.memory.close()


class Unreadable(mmap.mmap):
    """A file that is mapped from a disk that fails later: to touch it would be a SIGBUS."""

    def madvise(self, option: int, start: int = 0, length: int | None = None) -> None:
        """Fail as the system does, asked to have all pages there."""
        assert (option, start, length) == (22, 0, None)
        raise OSError(errno.EFAULT, "Bad address")


def test_a_disk_that_does_not_read_a_mapped_file_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked first, and may read again: nothing of the file is given up."""
    log = [*(Said("create", f"m{i}", f"w{i}", "positive") for i in range(8)), Said("delete", "m3")]
    run = Run(tmp_path)
    run.read(log, 8)
    run.save()
    run.memory.wrote(run.memory.log(LOG), [])
    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", Unreadable)
        with pytest.raises(CheckpointError, match="does not read it"):
            run.read(log, 9)
    again = Run(tmp_path)
    again.read(log, len(log))
    assert again.memory.trouble is None
    assert len(again.learner.model.words()) == 7
    again.memory.close()


def test_few_files_are_held_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files deletes name messages of, they are closed again."""
    monkeypatch.setattr(learned_memory, "MAPPED_MAX", 2)
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(40)]
    run = Run(tmp_path)
    run.read(log, 40)
    run.save()
    run.memory.wrote(run.memory.log(LOG), [])
    log += [Said("delete", f"m{i}") for i in range(40)]
    run.read(log, len(log))
    assert not run.learner.model.words()
    assert 0 < held_open(tmp_path) <= 2
    run.memory.close()


def test_of_a_lost_segment_it_is_not_known_what_it_taught(tmp_path: Path) -> None:
    """Nor of what is older; health tells of it until its records would have left."""
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(12)]
    run = Run(tmp_path, records_max=16)
    run.read(log, 12)
    run.save()
    run.memory.close()
    (tmp_path / FOLDER_NAME / "t%2F0" / "1.records").write_bytes(b"short")
    with capture_logs():
        run = Run(tmp_path, records_max=16)
    said = [Correction("delete", f"m{i}", i, {}, None, None, "j/0", LOG, i) for i in range(12)]
    assert [run.state(each) for each in said[2:10]] == ["teaches"] * 2 + [None] * 4 + [
        "teaches"
    ] * 2
    assert run.state(replace(said[5], id=place_name(LOG, 5))) is None
    assert "1 files" in str(run.memory.trouble)
    run.read([*log, *(Said("create", f"n{i}", "sun", "positive") for i in range(16))], 28)
    assert run.memory.trouble is None
    run.memory.close()


@pytest.mark.parametrize("is_named", [True, False])
def test_a_correction_outlives_a_segment_that_is_gone(tmp_path: Path, is_named: bool) -> None:
    """A place is looked up in all files, and one of them cannot be opened."""
    log = [Said("create", f"m{i}" if is_named else None, "sun", "positive") for i in range(9)]
    run = Run(tmp_path)
    run.read(log, 9)
    run.save()
    run.memory.wrote(run.memory.log(LOG), [])
    (tmp_path / FOLDER_NAME / "t%2F0" / "0.records").unlink()
    name = "m1" if is_named else place_name(LOG, 1)
    with capture_logs() as logs:
        assert run.state(Correction("delete", name, 1, {}, None, None, "j/0", LOG, 1)) is None
    assert [each["event"] for each in logs] == ["learned_damaged"]
    run.memory.close()


def test_ids_that_never_come_are_forgotten() -> None:
    """Deletes of messages that do not come stay no longer than other records."""
    run = Run(None, records_max=8)
    log = [
        Said("delete", "early"),
        *(Said("create", f"m{i}", "sun", "positive") for i in range(16)),
    ]
    run.read(log, 9)
    assert run.memory.log(LOG).has_pending
    run.read(log, 17)
    assert not run.memory.log(LOG).has_pending


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize("batch", [1, 100])
def test_records_go_on_behind_a_damaged_segment(tmp_path: Path, n: int, batch: int) -> None:
    """A batch that takes back what it brings itself finds that, and so does the next start."""
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(n)]
    run = Run(tmp_path)
    run.read(log, n)
    run.save()
    run.memory.close()
    path = max((tmp_path / FOLDER_NAME).rglob("*.records"))
    path.write_bytes(path.read_bytes()[:-1])
    log += [AGAIN, CREATE, DELETE, Said("create", "c", "snow", "positive"), Said("delete", "b")]
    run = Run(tmp_path)
    while run.position < len(log):
        run.read(log, min(len(log), run.position + batch))
    run.save()
    run.memory.close()
    run = Run(tmp_path)
    run.read([*log, Said("delete", "c")], len(log) + 1)
    assert sorted(run.learner.model.words()) == [f"word{i}" for i in range(n)]
    run.memory.close()


def test_a_folder_that_cannot_be_listed_ends_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another partition's folder it is only asked what may leave."""
    run = Run(tmp_path)
    run.read([Said("create", "a", "sun", "positive")], 1)
    run.save()
    run.memory.close()
    other = tmp_path / FOLDER_NAME / "t%2F1"
    other.mkdir()
    listed = Path.iterdir

    def iterdir(folder: Path) -> Iterator[Path]:
        if folder == other:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    with capture_logs() as logs:
        again = Run(tmp_path)
    assert ("learned_not_removed", "learned/t%2F1") in [(e["event"], e.get("path")) for e in logs]
    assert again.memory.sizes()[0] == 1
    again.memory.close()


def test_files_are_private(tmp_path: Path) -> None:
    """They hold people's texts: only their owner may read them."""
    run = Run(tmp_path)
    run.read([CREATE], 1)
    run.save()
    run.memory.close()
    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in tmp_path.rglob("learned/**/*")}
    assert modes == {True: 0o700, False: 0o600}


def test_a_checkpoint_fails_if_the_memory_cannot_be_written(tmp_path: Path) -> None:
    """Then the one before stands, learning goes on, and the next try writes everything."""
    run = Run(tmp_path)
    (tmp_path / FOLDER_NAME).write_text("in the way")
    run.read([CREATE], 1)
    run.memory.pack()
    with pytest.raises(CheckpointError, match="cannot be written"):
        run.memory.sync()
    (tmp_path / FOLDER_NAME).unlink()
    run.read([CREATE, AGAIN], 2)
    run.save()
    run.memory.close()
    again = Run(tmp_path)
    again.read([CREATE, AGAIN, DELETE], 3)
    assert again.learner.model.n_examples == 1
    again.memory.close()


def test_what_the_disk_refuses_is_held_and_told(tmp_path: Path) -> None:
    """More than may wait stays in memory, as nothing learned may be lost; health says so."""
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(28)]
    run = Run(tmp_path)
    (tmp_path / FOLDER_NAME).write_text("in the way")
    run.read(log, 28)
    assert "7 files of what was learned are held in memory" in str(run.memory.trouble)
    (tmp_path / FOLDER_NAME).unlink()
    run.save()
    assert run.memory.trouble is None
    run.memory.close()
    again = Run(tmp_path)
    again.read([*log, *(Said("delete", f"m{i}") for i in range(28))], 56)
    assert not again.learner.model.words()
    again.memory.close()


def test_a_folder_whose_sync_failed_is_synced_again(tmp_path: Path) -> None:
    """Otherwise the next checkpoint would name a file that a power cut may take away."""
    run = Run(tmp_path)
    run.read([CREATE], 1)
    n_syncs = 0

    def fail_once(call: Call, act: Callable[..., Any]) -> Any:
        nonlocal n_syncs
        if call.name == "fsync" and call.path.name == "t%2F0":
            n_syncs += 1
            if n_syncs == 1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        return act()

    with hooked(tmp_path, fail_once):
        run.memory.pack()
        with pytest.raises(CheckpointError, match="cannot be written"):
            run.memory.sync()
        run.save()
    assert n_syncs == 2
    run.memory.close()


def test_an_erased_text_leaves_the_files(tmp_path: Path) -> None:
    """The deleted message's bytes are overwritten; the other records still stand and load."""
    run = Run(tmp_path)
    run.read([CREATE, AGAIN, DELETE], 3)
    run.save()
    run.memory.erase({LOG: {"a": 2}})
    run.memory.close()
    files = b"".join(path.read_bytes() for path in (tmp_path / FOLDER_NAME).rglob("*.records"))
    assert b"sun" not in files
    assert b"rain" in files
    again = Run(tmp_path)
    again.read([CREATE, AGAIN, DELETE, Said("delete", "b")], 4)
    assert again.learner.model.n_examples == 0
    again.memory.close()


def test_a_file_that_leaves_amid_an_erasure_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consuming thread removes files that no checkpoint names; the others are erased."""
    run = Run(tmp_path)
    log = [Said("create", f"m{i}", f"word{i}", "positive") for i in range(12)]
    log.append(Said("delete", "m9"))
    run.read(log, len(log))
    run.save()
    folder = tmp_path / FOLDER_NAME / "t%2F0"
    hashed = run.memory.hashed

    def remove_and_hash(texts: Texts) -> Hashes:
        (folder / "1.records").unlink(missing_ok=True)
        return hashed(texts)

    monkeypatch.setattr(run.memory, "hashed", remove_and_hash)
    run.memory.erase({LOG: {"m9": 12}})
    run.memory.close()
    assert b"word8" in (folder / "2.records").read_bytes()
    assert b"word9" not in (folder / "2.records").read_bytes()


@pytest.mark.parametrize(
    "log",
    [
        [DELETE, CREATE],
        [UPDATE, DELETE, CREATE],
        [CREATE, DELETE, DELETE, CREATE],
        [CREATE, DELETE, UPDATE, CREATE],
    ],
)
@pytest.mark.parametrize("is_killed", [True, False])
def test_an_erased_deletion_is_still_known(
    tmp_path: Path, log: list[Said], is_killed: bool
) -> None:
    """What the log means does not depend on when texts are erased, nor on a start behind that."""
    at = log.index(DELETE)
    run = Run(tmp_path)
    run.read(log, at + 1)
    run.save()
    run.memory.erase({LOG: {"a": at}})
    if is_killed:
        run.memory.close()
        run = Run(tmp_path)
    run.read(log, len(log))
    assert (run.counts, run.n_superseded) == expected(log)
    run.memory.close()


RELABEL = Correction(
    "label", "a", 5, {"text": "sun sun"}, "negative", "positive", "t/0", ("t", 0), offset=0
)
TAKE_BACK = replace(RELABEL, kind="delete", label=None)
WITHDRAW = replace(TAKE_BACK, kind="withdraw")


@pytest.mark.parametrize(
    ("said", "message", "left"),
    [
        (RELABEL, UPDATE, [("snow", "negative")]),
        (RELABEL, Said("update", "a", "snow", "positive"), [("snow", "negative")]),
        (RELABEL, DELETE, []),
        (TAKE_BACK, DELETE, []),
        (WITHDRAW, DELETE, []),
        (RELABEL, CREATE, [("sun sun", "negative"), ("sun sun", "positive")]),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_person_and_the_stream_agree_in_any_order(
    tmp_path: Path,
    said: Correction,
    message: Said,
    left: list[tuple[str, str]],
    is_first: bool,
    is_killed: bool,
) -> None:
    """The label of a person and the text of the stream hold, and a delete takes back all."""
    log = [CREATE, message]
    run = Run(tmp_path)
    run.read(log, 1)
    for is_said in (is_first, not is_first):
        if is_said:
            run.correct(said)
        else:
            run.read(log, 2)
        if is_killed:
            run.save()
            run.memory.close()
            run = Run(tmp_path)
    model = build_model(SETTINGS.model)
    for text, label in left:
        model.learn_one({"text": text}, label)
    assert run.counts == counts_of(model)
    run.memory.close()


@pytest.mark.parametrize("is_killed", [True, False])
def test_what_was_withdrawn_may_be_labelled_again_until_it_is_deleted(
    tmp_path: Path, *, is_killed: bool
) -> None:
    """Withdrawn twice it is taken back once; a deletion by the stream is the end of it."""
    run = Run(tmp_path)
    run.read([CREATE], 1)
    for said, left in (
        (WITHDRAW, [0, 0]),
        (WITHDRAW, [0, 0]),
        (RELABEL, [1, 0]),
        (replace(WITHDRAW, was="negative", was_part="journal/0"), [0, 0]),
    ):
        run.correct(said)
        assert run.learner.model.class_counts.tolist() == left
        if is_killed:
            run.save()
            run.memory.close()
            run = Run(tmp_path)
    assert run.state(RELABEL) == "never"
    run.read([CREATE, DELETE], 2)
    assert run.reviser.counts["delete_matched"] == 1
    assert run.state(RELABEL) == "gone"
    run.memory.close()


def test_what_was_never_learned_here_is_not_taken_back() -> None:
    """Nor is what was taken back before, nor what stands before the beginning of the memory."""
    run = Run(None)
    run.position = 7
    log = [CREATE] * 7 + [AGAIN, Said("create", "c", "snow")]
    run.read(log, 9)
    before = replace(RELABEL, offset=3)
    assert run.state(before) == "before"
    assert run.state(replace(RELABEL, id="b", offset=7)) == "teaches"
    assert run.state(replace(RELABEL, id="c", offset=8)) == "never"
    run.correct(replace(TAKE_BACK, id="b", offset=7))
    assert run.state(replace(RELABEL, id="b", offset=7)) == "gone"
    assert run.learner.model.n_examples == 0
    run.memory.close()


def test_an_update_without_a_label_has_that_of_a_person() -> None:
    """It is learned with the label that the version before was given."""
    run = Run(None)
    run.read([CREATE], 1)
    run.correct(RELABEL)
    run.read([CREATE, Said("update", "a", "snow")], 2)
    assert run.learner.model.class_counts.tolist() == [1.0, 0.0]
    assert run.learner.model.words() == ["snow"]
    run.memory.close()


@pytest.mark.parametrize("second", [TAKE_BACK, RELABEL])
def test_a_second_correction_finds_what_the_first_one_taught(second: Correction) -> None:
    """Both were sent before the stream's update was known, so both name the version before."""
    run = Run(None)
    run.read([CREATE, UPDATE], 2)
    run.correct(replace(RELABEL, label="positive"))
    assert run.learner.model.class_counts.tolist() == [0.0, 1.0]
    run.correct(second)
    n_left = 0.0 if second.label is None else 1.0
    assert run.learner.model.class_counts.tolist() == [n_left, 0.0]
    run.memory.close()


def test_a_message_without_an_id_is_known_by_its_place() -> None:
    """People name it so; what it taught is taken back."""
    run = Run(None)
    run.read([Said("create", None, "sun", "positive"), AGAIN], 2)
    run.correct(replace(RELABEL, id="t-0-0"))
    assert run.learner.model.class_counts.tolist() == [2.0, 0.0]
    run.correct(replace(TAKE_BACK, id="t-0-0"))
    assert run.learner.model.class_counts.tolist() == [1.0, 0.0]
    run.memory.close()
