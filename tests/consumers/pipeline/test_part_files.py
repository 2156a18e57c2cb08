"""Part files: any whole one is right, the furthest wins, and what is wrong is said."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumers.config.model import READING, ModelSettings
from consumers.config.settings import Settings
from consumers.errors import ConfigError, GroupError, GroupMismatchError
from consumers.features import DecayTimes, build_model
from consumers.messages import CLASSES_MAX, CheckpointEntry, Partition, part_name
from consumers.pipeline.group_parts import GroupParts
from consumers.pipeline.part_files import PartFile, PartFiles, SharedRecords, as_stored
from consumers.sources.base import LogFacts
from streamnb import EveryExamples, Learner, NaiveBayes, SnapshotBoard, save
from tests.consumers.test_private_files import mode, umask

LOG, OTHER = Partition("tweets/of today", 0), Partition("tweets/of today", 11)
SETTINGS = ModelSettings.model_validate({"features": {"text": dict.fromkeys(READING, False)}})
STREAM = {"source": "kafka", "topic": LOG.topic}
KEPT = {"records": 0, "is_whole": True, "first_offset": None, "files": [0]}


def learned(*texts: str, log: Partition = LOG) -> NaiveBayes:
    """Return a model that learned texts from a log, and one of another log."""
    model = build_model(SETTINGS)
    model.learn_many({"text": list(texts)}, ["positive"] * len(texts), part=part_name(log))
    model.learn_one({"text": "elsewhere"}, "negative", part="elsewhere/0")
    return model


def files_in(folder: Path, keep: int = 3, writer: str | None = None) -> PartFiles:
    """Return the files of a member."""
    return PartFiles(folder, STREAM, build_model(SETTINGS), keep, writer)


def names(folder: Path) -> list[str]:
    """Return the names of all files, in order."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_the_furthest_file_of_a_partition_wins(tmp_path: Path) -> None:
    """Whoever wrote it and whenever: what is loaded holds that partition alone."""
    one, two = files_in(tmp_path), files_in(tmp_path)
    two.write(learned("a b c").state, LOG, 3)
    one.write(learned("a").state, LOG, 1)  # a process that woke up late
    two.write(learned("x", log=OTHER).state, OTHER, 7)
    assert one.partitions() == [LOG, OTHER]
    found = one.load(LOG)
    assert found is not None
    assert found.position == 3
    assert sorted(found.model.words()) == ["a", "a b", "b", "b c", "c"]
    assert found.model.parts.keys() == {part_name(LOG)}
    assert one.load(LOG, (4,)) is None
    assert one.load(Partition(LOG.topic, 5)) is None


def test_no_file_is_written_behind_another_or_over_it(tmp_path: Path) -> None:
    """What has been handed on already, or is behind, adds nothing."""
    one, two = files_in(tmp_path), files_in(tmp_path)
    assert one.write(learned("a", "b").state, LOG, 2) > 0
    before = {path: path.stat().st_ino for path in tmp_path.rglob("*.nb")}
    assert two.write(learned("a", "b").state, LOG, 2) == 0
    assert two.write(learned("a").state, LOG, 1) == 0
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*.nb")} == before


def test_the_furthest_few_are_kept(tmp_path: Path) -> None:
    """A file goes once `keep` further ones are there, whoever wrote it."""
    one, two = files_in(tmp_path, 2, "a" * 16), files_in(tmp_path, 2, "b" * 16)
    for position, files in enumerate((one, two, two, one), 1):
        files.write(learned("a").state, LOG, position)
    assert names(tmp_path) == [f"{3:020d}-{'b' * 16}.nb", f"{4:020d}-{'a' * 16}.nb"]


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """They hold the words that people wrote: parts, segments, classes, and all folders of these."""
    (segment := tmp_path / "0.records").write_bytes(b"what was learned")
    with umask(0):
        files = files_in(tmp_path / "shared")
        files.write(learned("a").state, LOG, 1, SharedRecords(KEPT, {0: segment}, b""))
        assert files.take_class(LOG.topic, "a class")
    found = [tmp_path / "shared", *(tmp_path / "shared").rglob("*")]
    assert {each.suffix for each in found if each.is_file()} == {".nb", ".records", ""}
    assert {(p.is_dir(), mode(p)) for p in found} == {(False, 0o600), (True, 0o700)}


def test_a_damaged_file_is_set_aside(tmp_path: Path) -> None:
    """The one before it serves, and it stops nobody from writing; foreign names are not ours."""
    files = files_in(tmp_path)
    files.write(learned("a").state, LOG, 1)
    files.write(learned("a b").state, LOG, 2)
    folder = next(tmp_path.rglob("*.nb")).parent
    (folder / f"{9:020d}-{'0' * 16}.nb").write_bytes(b"\0" * 99)
    (folder / f".{8:020d}-{'0' * 16}.nb.new").write_bytes(b"torn")
    (folder / "notes.txt").write_text("hello", encoding="utf-8")
    with capture_logs() as logs:
        found = files.load(LOG)
    assert found is not None
    assert found.position == 2
    assert [each["event"] for each in logs] == ["part_file_damaged"]
    assert (folder / f"{9:020d}-{'0' * 16}.nb.damaged").exists()
    assert files.write(learned("a b c").state, LOG, 3) > 0
    assert GroupParts(files, LOG.topic, 1.0).status().n_damaged == 1


def test_a_file_of_another_version_is_refused_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that was brought to a newer version needs it: one of before says so, and ends."""
    old, new = files_in(tmp_path), files_in(tmp_path)
    old.write(learned("a").state, LOG, 1)
    with monkeypatch.context() as newer:
        newer.setattr("streamnb.serialization.VERSION", 99)
        new.write(learned("a b").state, LOG, 2)
    with pytest.raises(GroupMismatchError, match=r"format version '99'.* bring this one there too"):
        old.load(LOG)
    assert not old.damaged
    assert f"{2:020d}-{new.writer}.nb" in names(tmp_path)


def test_a_damaged_file_that_stays_is_counted_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it cannot be set aside it is met again each time."""

    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    files = files_in(tmp_path)
    files.write(learned("a").state, LOG, 1)
    folder = next(tmp_path.rglob("*.nb")).parent
    (folder / f"{9:020d}-{'0' * 16}.nb").write_bytes(b"\0" * 99)
    monkeypatch.setattr(Path, "rename", refused)
    with capture_logs() as logs:
        for _ in range(3):
            found = files.load(LOG)
            assert found is not None
    assert [each["path"] for each in logs] == [str(folder / f"{9:020d}-{'0' * 16}.nb")]
    assert GroupParts(files, LOG.topic, 1.0).status().n_damaged == 1


def test_another_model_or_stream_is_refused(tmp_path: Path) -> None:
    """A member with another configuration must not add what counts something else."""
    files_in(tmp_path).write(learned("a").state, LOG, 1)
    other = build_model(ModelSettings.model_validate({"class_prior": 2.0}))
    differs = r"model.class_prior: .* has 1.0, the configuration 2.0"
    with pytest.raises(GroupMismatchError, match=differs) as raised:
        PartFiles(tmp_path, STREAM, other, 3).load(LOG)
    assert raised.value.exit_code == ConfigError.exit_code
    with pytest.raises(GroupMismatchError, match=r"\n  source: .*tweets/of today"):
        PartFiles(tmp_path, {"topic": "t"}, build_model(SETTINGS), 3).load(LOG)


@pytest.mark.parametrize(
    "notes",
    [
        {"records": 7},
        {"records": {"values": KEPT, "sealed": {"0": "../../../secret"}}},
        {"records": {"values": KEPT | {"records": 1 << 70}, "sealed": {}}},
        {"records": {"values": KEPT, "sealed": {}}},  # and no bytes of them
        {"times": [float("nan"), 1.0]},
        {"times": "soon"},
        {"topic_id": ["a"]},
    ],
)
def test_a_part_file_with_other_notes_is_set_aside(tmp_path: Path, notes: dict[str, Any]) -> None:
    """Its digest is right, as whoever made it can have it; no file elsewhere is ever opened."""
    files = files_in(tmp_path)
    files.write(learned("a").state, LOG, 1)
    path = next(tmp_path.rglob("*.nb")).with_name(PartFile(2, 0, "0" * 16).name)
    part = learned("a", "b").part(part_name(LOG))
    save(part, path, positions={part_name(LOG): 2}, notes=STREAM | notes)
    with capture_logs() as logs:
        found = files.load(LOG)
    assert found is not None
    assert found.position == 1
    assert [each["event"] for each in logs] == ["part_file_damaged"]
    path.with_name(f"{path.name}.damaged").rename(path)
    assert files.write(learned("a", "b", "c").state, LOG, 3) > 0  # what it names is not looked for


def test_a_part_that_does_not_enter_the_model_is_set_aside(tmp_path: Path) -> None:
    """The fingerprint of one of its words is not that of the text: the one before serves."""
    files = files_in(tmp_path)
    files.write(learned("a").state, LOG, 1)
    forged = learned("a", "b")
    forged.state.groups["text"].vocabulary.table.fingerprints[:] += 1  # type: ignore[attr-defined]
    files.write(forged.state, LOG, 2)
    group = GroupParts(files_in(tmp_path), LOG.topic, 1.0)
    learner = Learner(build_model(SETTINGS), SnapshotBoard(), EveryExamples(1), lambda: 0.0)
    with capture_logs() as logs:
        part = group.take_over(LOG, None)
        assert part is not None
        with pytest.raises(GroupError, match=r"was set aside, start again: .*not kept whole"):
            group.put(learner, LOG, part)
        part = group.take_over(LOG, None)
    assert [each["event"] for each in logs] == ["part_file_damaged"]
    assert part is not None
    group.put(learner, LOG, part)
    assert learner.model.words() == ["a"]


@pytest.mark.parametrize("new", [True, False])
def test_members_meet_parts_with_and_without_a_hybrid(tmp_path: Path, new: bool) -> None:
    """A file of the other setting brings its counts, and the log says so once."""
    old, own = (
        build_model(ModelSettings.model_validate({"features": {"text": {"hybrid": each}}}))
        for each in (not new, new)
    )
    old.learn_many({"text": ["a b", "a"]}, ["positive", "negative"], part=part_name(LOG))
    PartFiles(tmp_path, STREAM, old, 3).write(old.state, LOG, 2)
    files = PartFiles(tmp_path, STREAM, own, 3)
    with capture_logs() as logs:
        found = [files.load(LOG) for _ in range(2)][-1]
    assert [each["event"] for each in logs] == ["hybrid_changed"]
    assert found is not None
    own.set_part(part_name(LOG), found.model)
    assert own.digest() == old.digest()
    assert own.state.is_hybrid is new


def test_a_member_reads_as_the_parts_that_it_finds(tmp_path: Path) -> None:
    """So all members read alike; a file that cannot be read says nothing, nor another topic's."""
    log, plain = Partition("tweets", 0), {"text": dict.fromkeys(READING, False)}
    old = build_model(ModelSettings.model_validate({"features": plain}))
    old.learn_many({"text": ["a! b"]}, ["positive"], part=part_name(log))
    own: dict[str, Any] = {"source": "kafka://h:1/tweets", "group": {"folder": tmp_path}}
    own |= {"corrections": {"to": "none"}, "checkpoint": {"folder": tmp_path / "state"}}
    settings = Settings.model_validate(own)
    assert as_stored(settings) == settings
    PartFiles(tmp_path, STREAM, old, 3).write(old.state, log, 2)
    folder = tmp_path / "tweets" / "0"
    (folder / PartFile(0, 0, "0" * 16).name).write_bytes(b"damaged")
    with capture_logs() as logs:
        found = as_stored(settings)
    assert [each["event"] for each in logs] == ["words_read_as_stored"]
    loaded = PartFiles(tmp_path, STREAM, build_model(found.model), 3).load(log)
    assert loaded is not None
    assert loaded.model.words("text") == old.words("text")
    with pytest.raises(GroupMismatchError, match=r"features\.text\.ends"):
        PartFiles(tmp_path, STREAM, build_model(settings.model), 3).load(log)
    named = {"features": {"text": dict.fromkeys(READING, True)}}
    again = Settings.model_validate(own | {"model": named})
    assert as_stored(again).model == again.model
    other = Settings.model_validate(own | {"source": "kafka://h:1/other"})
    assert as_stored(other) == other


def test_what_people_say_brings_a_part_further_too(tmp_path: Path) -> None:
    """Of files of one place in the stream the one with more corrections wins."""
    files, labels = files_in(tmp_path), Partition("labels", LOG.partition)
    state = learned("a").state
    one = GroupParts(files, LOG.topic, 3600.0, labels=labels.topic)
    two = GroupParts(files_in(tmp_path), LOG.topic, 3600.0, labels=labels.topic)
    one.write(state, {LOG: 2})
    one.write(learned("b").state, {LOG: 2, labels: 7})
    one.write(state, {LOG: 2, labels: 5})  # of one that woke up late
    assert one.is_behind({LOG: 2, labels: 8})
    assert not one.is_behind({LOG: 2, labels: 7})
    assert names(tmp_path) == sorted([
        f"{2:020d}-{files.writer}.nb", f"{2:020d}-{7:020d}-{files.writer}.nb",
    ])  # fmt: skip
    two.look()
    assert two.take_news(set(), {LOG: 2, labels: 8}) == {}
    two.keep_only(set())
    taken = two.take_over(LOG, 2)  # what was applied in between is in the file alone
    assert taken is not None
    assert (taken.position, taken.labels, sorted(taken.model.words())) == (2, 7, ["b"])
    assert two.take_over(LOG, 3) is None
    two.keep_only(set())
    two.look()
    assert two.take_news(set(), {LOG: 2, labels: 5}).keys() == {LOG}


def test_what_was_frozen_before_an_older_part_came_back_is_news(tmp_path: Path) -> None:
    """Labels are learned again behind the older part, as they come: the file is another part."""
    labels = Partition("labels", LOG.partition)
    files_in(tmp_path).write(learned("a").state, LOG, 2, None, 1)
    group = GroupParts(files_in(tmp_path), LOG.topic, 3600.0, labels=labels.topic)
    learner = Learner(build_model(SETTINGS), SnapshotBoard(), EveryExamples(1), lambda: 0.0)
    here = {LOG: 2, labels: 5}
    for position in (None, 2):
        older = group.take_over(LOG, position)
        assert older is not None
        group.put(learner, LOG, older)
        if position is None:
            group.freeze()
    group.write(learned("a", "b").state, here)
    assert group.take_news({LOG}, here) == {}
    group.look()
    assert group.take_news({LOG}, here)[LOG][0].file[:2] == (2, 5)


def test_the_classes_of_all_members_together_have_a_limit(tmp_path: Path) -> None:
    """However many each of them finds: whoever comes first has the place, after a restart too."""
    with capture_logs() as logs:
        members = [GroupParts(files_in(tmp_path), LOG.topic, 1.0) for _ in range(2)]
        taken = [
            [f"of {k}, {i}" for i in range(60) if members[k].takes_class(f"of {k}, {i}")]
            for k in (0, 1)
        ]
        declared = len(ModelSettings().classes)
        assert (len(taken[0]), len(taken[1])) == (60, CLASSES_MAX - declared - 60)
        assert members[0].takes_class(taken[1][-1])
        assert not members[0].takes_class("one more")
        again = GroupParts(files_in(tmp_path), LOG.topic, 1.0)
        assert [each for k in (1, 0) for each in taken[k] if not again.takes_class(each)] == []
        assert not again.takes_class("one more")
        assert again.files.partitions() == []
    assert [each["event"] for each in logs] == ["group_classes_full"] * 3


def test_classes_are_asked_again_once_the_folder_is_back(tmp_path: Path) -> None:
    """Until then the status says why, and nothing is decided."""
    folder = tmp_path / "shared"
    folder.write_bytes(b"")  # in the place of the folder that is to be mounted there
    group = GroupParts(files_in(folder), LOG.topic, 1.0)
    for _ in range(2):
        with pytest.raises(GroupError, match=r"group\.folder: .* cannot be used"):
            group.takes_class("new")
        assert "cannot be used" in (group.status().trouble or "")
    folder.unlink()
    assert group.takes_class("new")
    assert group.status().trouble is None


def test_the_refused_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that all of them are in."""
    files = files_in(tmp_path)  # before: kernels may have to be found in a folder

    def refused(path: Path) -> list[Path]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path / "0"))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(GroupError, match=f"{re.escape(str(tmp_path / '0'))} cannot be used"):
        files.partitions()


@pytest.mark.parametrize("with_links", [True, False])
def test_a_class_that_another_member_was_faster_to_take_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_links: bool
) -> None:
    """Both write the same name: one of them has it, the other one takes the next.

    Without hard links a folder stands for each, which no other member replaces either.
    """
    one, two, three = (files_in(tmp_path) for _ in range(3))
    link = os.link

    def refused(_fresh: Path, path: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    def slowly(fresh: Path, path: Path) -> None:
        own = link if with_links else refused
        monkeypatch.setattr(os, "link", own)
        assert two.take_class(LOG.topic, "theirs")
        own(fresh, path)

    monkeypatch.setattr(os, "link", slowly)
    assert one.take_class(LOG.topic, "ours")
    assert one.take_class(LOG.topic, "third")
    folder = tmp_path / "tweets%2Fof%20today" / "classes"
    assert sorted(path.name for path in folder.iterdir()) == ["00", "01", "02"]
    monkeypatch.setattr(os, "link", link)  # where they are known, the same names hold
    assert [three.take_class(LOG.topic, name) for name in ("theirs", "last")] == [True, True]
    assert three._classes == ["theirs", "ours", "third", "last"]


def test_what_a_kill_left_of_a_class_goes_with_the_next_one(tmp_path: Path) -> None:
    """Of files and folders beside the classes those stay that a member may still be at."""
    folder = tmp_path / "tweets%2Fof%20today" / "classes"
    for name in (f".00-{'a' * 16}.new", f".01-{'b' * 16}.new"):
        around = folder / name.replace(".new", ".folder")
        around.mkdir(parents=True)
        for path in (folder / name, around / "label"):
            path.write_bytes(b"new")
        if ".00" in name:
            for path in (folder / name, around):
                os.utime(path, (0, 0))
    assert files_in(tmp_path).take_class(LOG.topic, "new")
    assert sorted(path.name for path in folder.iterdir()) == [
        f".01-{'b' * 16}.folder", f".01-{'b' * 16}.new", "00",
    ]  # fmt: skip


def test_a_topic_made_anew_is_not_the_one_before(tmp_path: Path) -> None:
    """Its positions mean other messages; while the id is not known, nothing is refused."""
    files = files_in(tmp_path)
    files.topic_id = "one"
    files.write(learned("a").state, LOG, 1)
    files.topic_id = None
    assert files.load(LOG) is not None
    files.topic_id = "two"
    with pytest.raises(GroupMismatchError, match="the id one, which was deleted and created again"):
        files.load(LOG)


def test_a_file_that_cannot_be_read_now_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    """It may be whole: it stays as it is, and nobody goes on without it."""
    files = files_in(tmp_path)
    files.write(learned("a").state, LOG, 1)
    folder = next(tmp_path.rglob("*.nb")).parent
    (folder / f"{9:020d}-{'0' * 16}.nb").mkdir()  # even root cannot read that as a file
    before = names(tmp_path)
    with pytest.raises(GroupError, match=r"group\.folder: .*cannot be read"):
        files.load(LOG)
    assert names(tmp_path) == before


def test_no_news_are_given_of_what_is_taken_over(tmp_path: Path) -> None:
    """Its last owner may bring it further until then: here it goes on where it was told to."""
    theirs, group = files_in(tmp_path), GroupParts(files_in(tmp_path), LOG.topic, 3600.0)
    theirs.write(learned("a", "b").state, LOG, 2)
    assert group.take_over(LOG, 2) is None
    theirs.write(learned("a", "b", "c").state, LOG, 3)
    group.look()
    assert group.take_news(set(), {LOG: 2}) == {}
    group.keep_only(set())  # it was given to others again
    group.look()
    assert group.take_news({LOG}, {LOG: 2}) == {}  # before its last batches came
    assert group.take_news(set(), {LOG: 2}) == {}  # it is looked for again
    group.look()
    assert group.take_news(set(), {LOG: 2}).keys() == {LOG}


def test_a_folder_that_vanished_is_never_taken_for_an_empty_one(tmp_path: Path) -> None:
    """The model knows more than the next batch begins at: it would learn messages twice."""
    shared = tmp_path / "shared"
    group = GroupParts(files_in(shared), LOG.topic, 3600.0)
    files_in(shared).write(learned("a", "b").state, LOG, 2)
    group.look()
    assert group.take_news(set(), {LOG: 1}).keys() == {LOG}
    shared.rename(tmp_path / "elsewhere")
    with pytest.raises(GroupError, match="up to 2, which was loaded before, is gone"):
        group.take_over(LOG, 1)
    (tmp_path / "elsewhere").rename(shared)
    assert group.take_over(LOG, 1) is not None
    assert group.take_over(LOG, 4) is None  # further than any file


@pytest.mark.parametrize("labels", [None, "corrections"])
def test_a_file_that_is_gone_leaves_its_part_to_no_earlier_one(
    tmp_path: Path, labels: str | None
) -> None:
    """Our own is the furthest then, but the model has got beyond it: messages would come twice."""
    files = files_in(tmp_path)
    group = GroupParts(files, LOG.topic, 3600.0, labels=labels)
    group.write(learned("a").state, {LOG: 1})
    files_in(tmp_path).write(learned("a", "b").state, LOG, 2)
    group.look()
    assert group.take_news(set(), {LOG: 1}).keys() == {LOG}
    max(tmp_path.rglob("*.nb")).unlink()
    if labels is None:
        with pytest.raises(GroupError, match="up to 2, which was loaded before, is gone"):
            group.take_over(LOG, 1)
        return
    taken = group.take_over(LOG, 1)
    assert taken is not None
    assert (taken.position, taken.writer) == (1, files.writer)


def test_where_a_partition_begins_is_written_once(tmp_path: Path) -> None:
    """The first member to see the topic decides; a part that is there already is not touched."""
    one, two = GroupParts(files_in(tmp_path), LOG.topic, 1.0), files_in(tmp_path)
    one.begin({LOG: LogFacts(100), OTHER: LogFacts(0)})
    two.begin(LOG, 140)
    found = two.load(LOG)
    assert found is not None
    assert (found.position, found.model.n_examples, *found.model.parts) == (100, 0, part_name(LOG))
    assert two.furthest(OTHER) is None


def test_the_times_of_a_part_that_decays_go_with_it(tmp_path: Path) -> None:
    """Who takes the partition over goes on with them; other parts have none."""
    times = DecayTimes(60.0)
    times.unpack(CheckpointEntry({"untaught": 0, "times": {part_name(LOG): [9.0, None]}}))
    times.pack()
    one = GroupParts(files_in(tmp_path), LOG.topic, 3600.0, times=times)
    one.write(learned("a", "b").state, {LOG: 2})
    found = GroupParts(files_in(tmp_path), LOG.topic, 3600.0).take_over(LOG, None)
    assert found is not None
    assert found.times == [9.0, None]
    files_in(tmp_path).write(learned("x", log=OTHER).state, OTHER, 7)
    other = files_in(tmp_path).load(OTHER)
    assert other is not None
    assert other.times is None


def test_with_latest_an_empty_partition_begins_once_too(tmp_path: Path) -> None:
    """Who comes later would begin behind what was written since; what fails is tried again."""
    shared = tmp_path / "shared"
    shared.write_text("", encoding="utf-8")
    group = GroupParts(files_in(shared), LOG.topic, 1.0, is_late=True)
    group.begin({LOG: LogFacts(0)})
    assert "group.folder" in (group.status().trouble or "")
    assert group.is_behind({})
    shared.unlink()
    group.write(build_model(SETTINGS).state, {})
    assert group.status().trouble is None
    assert not group.is_behind({})
    found = files_in(shared).load(LOG)
    assert found is not None
    assert (found.position, found.model.n_examples) == (0, 0)


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    """It is never taken for an empty one: messages would be learned again."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    files = files_in(tmp_path / "file")
    with pytest.raises(GroupError, match=r"group\.folder"):
        files.write(learned("a").state, LOG, 1)
    with pytest.raises(GroupError, match=r"group\.folder"):
        files.load(LOG)


def test_what_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """It is told as trouble until it works, and the parts stay behind meanwhile."""
    shared = tmp_path / "shared"
    shared.write_text("", encoding="utf-8")
    group = GroupParts(files_in(shared), LOG.topic, 1.0, lambda: 100.0)
    state, positions = learned("a").state, {LOG: 1, Partition("elsewhere", 0): 1}
    group.write(state, positions)
    assert "group.folder" in (group.status().trouble or "")
    assert group.is_behind(positions)
    shared.unlink()
    group.write(state, positions)
    assert group.status().trouble is None
    assert not group.is_behind(positions)
    assert group.files.partitions() == [LOG]  # other logs are none of the group's


def test_news_are_what_others_brought_further(tmp_path: Path) -> None:
    """Partitions that are read here, and parts that are known further, are left alone."""
    mine, theirs = files_in(tmp_path), files_in(tmp_path)
    theirs.write(learned("a").state, LOG, 1)
    theirs.write(learned("x", log=OTHER).state, OTHER, 4)
    group = GroupParts(mine, LOG.topic, 3600.0)
    group.look()
    assert group.take_news({LOG}, {OTHER: 5}) == {}
    theirs.write(learned("a b").state, LOG, 2)
    group = GroupParts(mine, LOG.topic, 3600.0)
    group.look()
    news = group.take_news(set(), {LOG: 1, OTHER: 5})
    assert {each: part.position for each, (part, _) in news.items()} == {LOG: 2}
    assert group.take_news(set(), {}) == {}
    status = group.status()
    assert (status.n_own, status.n_others) == (0, 2)
    assert status.oldest_s is not None
    assert group.take_over(OTHER, 4) is None
    taken = group.take_over(OTHER, None)
    assert taken is not None
    assert taken.position == 4


def test_what_a_kill_left_goes_as_old_files_do(tmp_path: Path) -> None:
    """Unfinished and damaged files hold words too: they go, unless somebody may be at them."""
    files = files_in(tmp_path, keep=2)
    files.write(learned("a").state, LOG, 5)
    (folder,) = {path.parent for path in tmp_path.rglob("*.nb")}
    old = [f".{1:020d}-{'a' * 16}.nb.new", f"{2:020d}-{'b' * 16}.nb.damaged"]
    kept = [f".{3:020d}-{'c' * 16}.nb.new", f".{9:020d}-{'d' * 16}.nb.new", "notes.txt"]
    for name in (*old, *kept):
        (folder / name).write_bytes(b"some")
        if name != kept[0]:  # that one is being written
            os.utime(folder / name, (0, 0))
    files.write(learned("a", "b").state, LOG, 6)
    assert not set(old) & set(names(tmp_path))
    assert set(kept) <= set(names(tmp_path))


def test_members_that_share_a_segment_at_once_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One finishes the segment that the other one has half written; both parts name it."""
    segment, folder = tmp_path / "0.records", tmp_path / "shared"
    segment.write_bytes(b"what was learned")
    records = SharedRecords(KEPT, {0: segment}, b"")
    one, two = files_in(folder), files_in(folder)
    fsync = os.fsync

    def slowly(fd: int) -> None:
        if ".records" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            monkeypatch.setattr(os, "fsync", fsync)
            assert two.write(learned("a").state, LOG, 1, records) > 0
        fsync(fd)

    monkeypatch.setattr(os, "fsync", slowly)
    assert one.write(learned("a b").state, LOG, 2, records) > 0
    loaded = files_in(folder).load(LOG)
    assert loaded is not None
    assert loaded.records is not None
    assert loaded.records.read(0) == b"what was learned"
