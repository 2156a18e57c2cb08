"""Parts of a group: one that fails keeps no other back, and all come to have the same files."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from consumers.errors import GroupError, GroupMismatchError
from consumers.features import build_model
from consumers.messages import Partition, part_name
from consumers.pipeline.group_parts import GroupParts
from consumers.sources.base import LogFacts
from streamnb import EveryExamples, Learner, NaiveBayes, SnapshotBoard
from streamnb.state import ModelState
from tests.consumers.pipeline.test_part_files import LOG, OTHER, SETTINGS, files_in, learned


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the topic."""
    folder = tmp_path / quote(LOG.topic, safe="")
    folder.mkdir()
    return folder


def both() -> ModelState:
    """Return a model that learned one message of each of two partitions."""
    model = learned("a")
    model.learn_one({"text": "b"}, "positive", part=part_name(OTHER))
    return model.state


def test_a_part_that_cannot_be_written_keeps_no_other_back(tmp_path: Path, folder: Path) -> None:
    """What is wrong is told until it is mended, and only that part stays behind."""
    (folder / "0").write_bytes(b"")  # in the place of its folder
    group = GroupParts(files_in(tmp_path), LOG.topic, 3600.0)
    for position in (1, 2):
        group.write(both(), {LOG: position, OTHER: position})
        found = group.files.furthest(OTHER)
        assert found is not None
        assert found.position == position
        assert f"{folder / '0'} cannot be used" in (group.status().trouble or "")
    assert group.is_behind({LOG: 2})
    assert not group.is_behind({OTHER: 2})
    (folder / "0").unlink()
    group.write(both(), {LOG: 2, OTHER: 2})
    assert group.status().trouble is None
    assert not group.is_behind({LOG: 2, OTHER: 2})


def test_who_sees_a_topic_first_says_where_the_group_begins(tmp_path: Path) -> None:
    """What another member finds later is not among it: that was added meanwhile."""
    first, later = files_in(tmp_path), files_in(tmp_path)
    assert first.beginnings(LOG.topic, "one", {LOG: 7}) == {LOG: 7}
    assert later.beginnings(LOG.topic, "one", {LOG: 9, OTHER: 5}) == {LOG: 7}
    with pytest.raises(GroupMismatchError, match="deleted and created again"):
        later.beginnings(LOG.topic, "two", {LOG: 9})


def test_beginnings_that_cannot_be_read_are_not_made_anew(tmp_path: Path, folder: Path) -> None:
    """Other members have begun by them; who has to read them is told what to do."""
    (folder / "beginnings").mkdir()
    (folder / "beginnings" / "00").write_bytes(b'{"ends":{"0":')
    with pytest.raises(GroupError, match=r"beginnings/00 is damaged .* Move it away"):
        files_in(tmp_path).beginnings(LOG.topic, "one", {LOG: 9})


def test_a_beginning_that_cannot_be_written_keeps_no_other_back(
    tmp_path: Path, folder: Path
) -> None:
    """Other partitions begin, and have their parts; that one gets its part behind its beginning."""
    (folder / "0").write_bytes(b"")
    group = GroupParts(files_in(tmp_path), LOG.topic, 3600.0)
    group.begin({LOG: LogFacts(5), OTHER: LogFacts(7)})
    assert f"{folder / '0'} cannot be used" in (group.status().trouble or "")
    assert [each.position for each in group.files._files(folder / "11")] == [7]
    group.write(both(), {LOG: 6, OTHER: 8})
    assert sorted(each.position for each in group.files._files(folder / "11")) == [7, 8]
    assert group.status().trouble is not None
    (folder / "0").unlink()
    group.write(both(), {LOG: 6, OTHER: 8})
    assert sorted(each.position for each in group.files._files(folder / "0")) == [5, 6]
    assert group.status().trouble is None


def test_one_thread_at_a_time_writes_beginnings(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint's thread may, while the consuming thread learns of new partitions."""
    group = GroupParts(files_in(tmp_path), LOG.topic, 3600.0)
    begin, asked, threads = group.files.begin, list[Partition](), list[threading.Thread]()

    def begin_beside_another(partition: Partition, at: int) -> None:
        asked.append(partition)
        if not threads:
            threads.append(threading.Thread(target=group.begin, args=[{LOG: LogFacts(5)}]))
            threads[0].start()
            threads[0].join(0.2)  # it must not get on
            assert asked == [LOG]
        begin(partition, at)

    monkeypatch.setattr(group.files, "begin", begin_beside_another)
    group.begin({LOG: LogFacts(5)})
    threads[0].join(60)
    assert group.status().trouble is None
    assert [each.position for each in group.files._files(folder / "0")] == [5]


@pytest.mark.parametrize("is_file", [True, False])
def test_a_part_that_cannot_be_read_keeps_no_other_back(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, is_file: bool
) -> None:
    """Neither a file nor a folder does: what is wrong with it is an error behind the others."""
    theirs, group = files_in(tmp_path), GroupParts(files_in(tmp_path), LOG.topic, 3600.0)
    theirs.write(learned("a").state, LOG, 1)
    theirs.write(learned("x", log=OTHER).state, OTHER, 4)
    if is_file:
        (folder / "0" / f"{9:020d}-{'0' * 16}.nb").mkdir()  # even root cannot read that as a file
    else:
        listed = Path.iterdir

        def refused(path: Path) -> Iterator[Path]:
            if path == folder / "0":
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return listed(path)

        monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(GroupError, match=r"/0(/.*)? cannot be |/0/.*: cannot be read"):
        group.look()
    assert group.take_news(set(), {}).keys() == {OTHER}


def test_what_is_taken_over_as_far_as_it_is_known_becomes_everybodys(tmp_path: Path) -> None:
    """Two read a partition to the same place: who has it again takes the file that others took.

    The counts are the same; the weights of words are not, and all members answer alike.
    """
    theirs = files_in(tmp_path, writer="f" * 16)
    group = GroupParts(files_in(tmp_path, writer="0" * 16), LOG.topic, 3600.0)
    here = {LOG: 2}
    assert group.take_news({LOG}, here) == {}  # it has read so far, and written nothing yet
    theirs.write(learned("a", "b").state, LOG, 2)
    group.look()  # as far as we are: news, which wait for the consuming thread
    assert group.take_over(LOG, 2) is None
    group.keep_only({LOG})
    group.look()
    news, is_as_far = group.take_news({LOG}, here)[LOG]
    assert is_as_far
    assert news.writer == theirs.writer


class Member:
    """A member that reads one partition, and publishes by examples: not once more in a test."""

    def __init__(self, folder: Path, log: Partition, model: NaiveBayes, n: int = 1_000) -> None:
        self.log, self.positions = log, {log: 1}
        self.group, self.board = GroupParts(files_in(folder), LOG.topic, 3600.0), SnapshotBoard()
        self.learner = Learner(model, self.board, EveryExamples(n), lambda: 0.0)
        self.group.take_news({log}, self.positions)

    def learn(self, text: str) -> None:
        """Learn the next message, and write a checkpoint."""
        self.learner.learn(part_name(self.log), {"text": [text]}, ["positive"])
        self.positions[self.log] += 1
        self.group.freeze()
        self.group.write(self.learner.model.state, self.positions)

    def look(self) -> None:
        """Take in what others wrote, as is done between two batches."""
        self.group.look()
        news = self.group.take_news({self.log}, self.positions)
        for partition, (part, _) in news.items():
            self.group.put(self.learner, partition, part)
            self.positions[partition] = part.position
        self.group.answer(self.learner)
        self.learner.publish_if_due()

    def answers(self) -> bytes:
        """Return what it answers, to the bit."""
        snapshot = self.board.current()
        assert snapshot is not None
        return snapshot.predict_log_proba_many({"text": ["a", "b", "a b"]}).tobytes()


def test_members_that_publish_by_examples_answer_alike(tmp_path: Path) -> None:
    """Once they have each other's parts, though no snapshot is due; none judges by them before."""
    members = [Member(tmp_path, log, build_model(SETTINGS)) for log in (LOG, OTHER)]
    before = [each.learner.snapshot for each in members]
    for number, each in enumerate(members):
        each.learn("ab"[number])
    for each in members:
        each.look()
    assert len({each.answers() for each in members}) == 1
    assert [each.learner.model.n_examples for each in members] == [2, 2]
    assert [each.learner.snapshot for each in members] == before
    assert {(each.learner.version, each.learner.n_until_due()) for each in members} == {(1, 998)}


@pytest.mark.parametrize("killed_after", range(5))
def test_a_group_of_one_judges_by_the_same_snapshots_after_a_restart(
    tmp_path: Path, killed_after: int
) -> None:
    """It finds its own files before it has its partition again; they are no reason to publish."""
    judged: list[list[tuple[int, int]]] = []
    for folder, at in ((tmp_path / "killed", killed_after), (tmp_path / "whole", -1)):
        member, own = Member(folder, LOG, build_model(SETTINGS), 3), list[tuple[int, int]]()
        for number, text in enumerate("abcab"):
            if number == at:
                learner, positions = member.learner, member.positions
                member = Member(folder, LOG, learner.model, 3)
                member.positions = positions
                member.learner = Learner(
                    learner.model, member.board, EveryExamples(3), lambda: 0.0, learner.snapshot
                )
                member.group.look()
                for partition, (part, is_as_far) in member.group.take_news(
                    set(), positions
                ).items():
                    assert is_as_far
                    member.group.put(member.learner, partition, part)
                member.group.freeze()
                member.group.answer(member.learner)
            own.append((member.learner.snapshot.version, member.learner.snapshot.n_examples))
            member.learn(text)
            member.look()
        judged.append(own)
    assert judged[0] == judged[1] == [(1, 0), (1, 0), (1, 0), (2, 3), (2, 3)]
