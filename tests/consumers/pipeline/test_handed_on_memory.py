"""What a partition's messages taught moves with it to the member that reads it next."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from consumers.config.settings import Settings
from consumers.errors import GroupError
from consumers.features import build_model
from consumers.messages import Partition, part_name
from consumers.pipeline.erasure import Deletion
from consumers.pipeline.group_parts import GroupParts, take_over_records
from consumers.pipeline.part_files import LoadedPart, PartFiles
from consumers.sources.base import LogFacts
from tests.consumers.pipeline import test_part_files as parts
from tests.consumers.pipeline.revised_log import (
    ACCOUNT_LOGS,
    ACCOUNTS,
    LOG,
    LOGS,
    SETTINGS,
    Run,
    Said,
    expected,
)

pytestmark = pytest.mark.usefixtures("short_segments")

NEW_CLASSES = SETTINGS.model_copy(
    update={"model": SETTINGS.model.model_copy(update={"new_classes": True})}
)
N_MEMBERS = 2


class Member(Run):
    """A member of a group that has the log, or not."""

    def __init__(self, folder: Path, name: str, settings: Settings | None = None) -> None:
        super().__init__(folder / name, settings=settings)
        self.name = name
        like = build_model((settings or SETTINGS).model)
        files = PartFiles(folder / "shared", {}, like, 2)
        self.group = GroupParts(files, LOG.topic, 3600.0, memory=self.memory)
        self.has_read = LOG in self.checkpoint.restore(like)[1]
        self.own: set[Partition] = set()
        self.deletions: Sequence[Deletion] = []  # still to be erased

    def take_over(self) -> None:
        """Go on where the group stands, as reader and loop do."""
        part = self.group.take_over(LOG, self.position if self.has_read else None)
        self.own = {LOG}
        if part is not None:
            self._hold(part)
            theirs, ours = part.model.classes, self.learner.model.classes
            take_over_records(self.memory, LOG, part.records, theirs, ours)
            self.deletions = [] if part.records is None else part.records.deletions
        self.has_read = True

    def save(self) -> None:
        """Write a checkpoint, and then the part; of nothing there is none."""
        if part_name(LOG) not in self.learner.model.parts:
            return
        super().save()
        self.group.write(self.learner.model.state, {LOG: self.position}, self.deletions)
        assert self.group.status().trouble is None

    def give_up(self) -> None:
        """Know again of the log what the other member does."""
        self.group.keep_only(set())
        self.own = set()

    def look(self) -> None:
        """Put what the other member learned into the model."""
        self.put(self.news())

    def news(self) -> Mapping[Partition, tuple[LoadedPart, bool]]:
        """Return what the other member learned."""
        self.group.take_news(self.own, {LOG: self.position})
        self.group.look()
        return self.group.take_news(self.own, {LOG: self.position})

    def put(self, news: Mapping[Partition, tuple[LoadedPart, bool]]) -> None:
        """Put news into the model."""
        for partition, (part, is_as_far) in news.items():
            self._hold(part)
            if not is_as_far:
                self.memory.restart(partition)

    def _hold(self, part: LoadedPart) -> None:
        self.group.put(self.learner, LOG, part)
        self.position = part.position

    def answers(self) -> bytes:
        """Return what the member says of some texts, to the bit."""
        texts = ["", "sun", "rain love", "snow not sun sun", "word2 word3"]
        return self.learner.model.predict_log_proba_many({"text": texts}).tobytes()


STEPS = st.lists(
    st.sampled_from(["read", "read", "read", "save", "hand over", "look", "kill"]), max_size=30
)


@given(LOGS, STEPS)
def test_deletes_and_updates_reach_over_handovers(log: list[Said], steps: list[str]) -> None:
    """Whoever reads and dies when: the counts are those of one process."""
    reaches_over(log, steps, SETTINGS)


@given(ACCOUNT_LOGS, STEPS)
def test_deletions_of_accounts_reach_over_handovers(log: list[Said], steps: list[str]) -> None:
    """Who takes a log over finds the accounts in what the others have handed on."""
    reaches_over(log, steps, ACCOUNTS)


def reaches_over(log: list[Said], steps: list[str], settings: Settings) -> None:
    """Read a log by members that hand it over and die: the counts must be the page's."""
    with tempfile.TemporaryDirectory() as name:
        members = [Member(Path(name), f"{k}", settings) for k in range(N_MEMBERS)]
        reader = 0
        members[reader].take_over()
        for step in [*steps, "read all"]:
            member = members[reader]
            if step.startswith("read"):
                n = len(log) if step == "read all" else 3
                member.read(log, min(len(log), member.position + n))
            elif step == "save":
                member.save()
            elif step == "look":
                members[1 - reader].look()
            else:
                if step == "kill":
                    member.memory.close()
                    members[reader] = Member(Path(name), f"{reader}", settings)
                else:
                    member.give_up()
                reader = 1 - reader
                members[reader].take_over()
        assert members[reader].counts == expected(log, settings)[0]
        for member in members:
            assert not member.reviser.counts["refused"]
            member.memory.close()


class Pair:
    """Two members: one reads the log, the other may believe that it does, and reads on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.reader, self.other = (Member(folder, name) for name in ("one", "two"))
        self.reader.take_over()

    def read(self, log: Sequence[Said], n: int = 3) -> None:
        """Read a few messages more."""
        self.reader.read(log, min(len(log), self.reader.position + n))

    def read_asleep(self, log: Sequence[Said], n: int = 2) -> None:
        """Read on after the log was lost, and write that."""
        if self.other.own:
            self.other.read(log, min(len(log), self.other.position + n))
        self.other.save()

    def save(self, _: Sequence[Said]) -> None:
        """Write what the reader learned."""
        self.reader.save()

    def notice(self, _: Sequence[Said]) -> None:
        """Have the other know that the log is not its own."""
        self.other.give_up()

    def look(self, _: Sequence[Said]) -> None:
        """Have both look for what the other wrote."""
        for each in (self.reader, self.other):
            each.look()

    def hand_over(self, log: Sequence[Said]) -> None:
        """Give the log to the other, which the reader does not notice yet."""
        self.notice(log)
        self.reader, self.other = self.other, self.reader
        self.reader.take_over()

    def kill(self, log: Sequence[Said]) -> None:
        """Give the log to the other, as the reader has died; it starts again."""
        self.reader.memory.close()
        self.reader = Member(self._folder, self.reader.name)
        self.hand_over(log)


STEPS_OF_PAIRS = ["read", "read_asleep", "save", "notice", "look", "hand_over", "kill"]


@given(LOGS, st.lists(st.sampled_from(STEPS_OF_PAIRS), max_size=30))
def test_in_the_end_all_answer_alike(log: list[Said], steps: list[str]) -> None:
    """Whoever read which piece of the log in which batches, and wrote of it late or never.

    Each takes something back where its batch ended, so what its weights learned is its own.
    """
    with tempfile.TemporaryDirectory() as name:
        pair = Pair(Path(name))
        for step in steps:
            getattr(pair, step)(log)
        pair.hand_over(log)
        pair.read_asleep(log, len(log))
        while pair.reader.position < len(log):
            pair.read(log)
        for step in ("notice", "save", "look", "look"):
            getattr(pair, step)(log)
        assert pair.reader.answers() == pair.other.answers()
        assert pair.reader.counts == expected(log)[0]
        for member in (pair.reader, pair.other):
            member.memory.close()


def test_who_reads_a_log_takes_the_furthest_file_of_its_own_place(tmp_path: Path) -> None:
    """Another's file of where the log ends holds other weights: one of the two is everybody's."""
    # A class without words speaks for none, however many the other has: so both come early.
    log = [Said("create", "m8", "cloud", "negative"), *created(6), Said("delete", "m1")]
    log += [Said("create", "m7", "word2 word3", "negative")]
    first, second = (Member(tmp_path, name) for name in ("first", "second"))
    first.take_over()
    first.read(log, 3)
    first.save()
    first.read(log, len(log))  # it sleeps before it saves that
    second.take_over()
    for until in range(4, len(log) + 1):
        second.read(log, until)
    assert second.counts == first.counts
    assert second.answers() != first.answers()
    first.save()
    first.give_up()
    second.save()
    for member in (first, second):
        member.look()
    third = Member(tmp_path, "third")
    third.look()
    assert third.answers() == second.answers() == first.answers()
    second.read([*log, Said("delete", "m2")], len(log) + 1)  # it remembers all the same
    assert second.learner.model.n_examples == len(log) - 3
    for member in (first, second, third):
        member.memory.close()


def test_a_log_that_is_given_while_its_file_is_put_in_keeps_its_memory(tmp_path: Path) -> None:
    """The reading thread finds no file that is further, and its own memory as far; so it stays."""
    log = [*created(6), Said("delete", "m3")]
    first = Member(tmp_path, "first")
    first.take_over()
    first.read(log, 6)
    first.save()
    first.memory.close()
    again = Member(tmp_path, "first")
    news = again.news()
    assert news.keys() == {LOG}
    again.take_over()
    again.put(news)
    again.read(log, 7)
    assert again.learner.model.n_examples == 5
    again.memory.close()


def handed_over(folder: Path, log: Sequence[Said], at: int, settings: Settings) -> Member:
    """Return a member that knows other classes first and takes the log over at an offset."""
    first, second = Member(folder, "first", settings), Member(folder, "second", settings)
    second.learner.learn("other/0", {"text": ["snow"] * 2}, ["windy", "sunny"])
    first.take_over()
    first.read(log, at)
    first.save()
    first.memory.close()
    second.take_over()
    second.read(log, len(log))
    return second


Two: TypeAlias = tuple[Member, Member]


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Two]:
    """Two members of a group, of which the first has the log."""
    first, second = Member(tmp_path, "first"), Member(tmp_path, "second")
    first.take_over()
    yield first, second
    first.memory.close()
    second.memory.close()


def created(n: int) -> list[Said]:
    """Return messages that create, each with a word of its own."""
    return [Said("create", f"m{i}", f"word{i}", "positive") for i in range(n)]


def test_a_rebalance_that_leaves_a_log_here_takes_nothing_back(members: Two) -> None:
    """What was applied since the last file stays, unless another had the log meanwhile."""
    first, second = members
    first.group.labels = second.group.labels = "corrections"
    log = created(8)
    first.read(log, 5)
    first.save()
    first.learner.learn(part_name(LOG), {"text": ["corrected"]}, ["positive"])
    before = first.answers()
    for _ in range(2):
        first.give_up()
        first.take_over()
        assert first.answers() == before
    first.give_up()
    second.take_over()
    second.read(log, 8)
    second.save()
    second.give_up()
    first.take_over()
    assert first.answers() == second.answers() != before


def test_an_account_is_found_in_what_was_handed_on(tmp_path: Path) -> None:
    """In sealed segments and in the open one, by who takes over and by that one's next life."""
    log = [Said("create", f"{'ab'[i % 2]}/{i}", f"word{i}", "positive") for i in range(11)]
    log += [Said("gone", "a/"), Said("gone", "b/")]
    first, second = (Member(tmp_path, name, ACCOUNTS) for name in ("first", "second"))
    first.take_over()
    first.read(log, 11)
    first.save()
    first.memory.close()
    second.take_over()
    second.read(log, 12)
    assert second.reviser.counts == {"delete_account_matched": 1, "unlearned": 6}
    second.save()
    second.memory.close()
    again = Member(tmp_path, "second", ACCOUNTS)
    again.read(log, 13)
    assert again.reviser.counts == {"delete_account_matched": 1, "unlearned": 5}
    assert not again.learner.model.n_examples
    again.memory.close()


def test_classes_that_joined_in_another_order_are_taken_back(tmp_path: Path) -> None:
    """The records name classes by their place in the model of who wrote them."""
    labels = ["sunny", "rainy", "windy"] * 3
    log = [Said("create", f"m{i}", f"word{i}", label) for i, label in enumerate(labels)]
    log += [Said("delete", f"m{i}") for i in range(len(labels))]
    second = handed_over(tmp_path, log, len(labels), NEW_CLASSES)
    assert second.reviser.counts == {"delete_matched": 9, "unlearned": 9}
    assert second.learner.model.words() == ["snow"]
    assert second.learner.model.n_examples == 2
    second.save()
    third = Member(tmp_path, "third", NEW_CLASSES)
    third.take_over()
    third.read([*log, *log[:3], Said("delete", "m1")], len(log) + 4)
    assert third.learner.model.n_examples == 2
    second.memory.close()
    third.memory.close()


def test_a_sealed_segment_is_written_once(tmp_path: Path, members: Two) -> None:
    """Further part files name it again; it goes with the last one that does."""
    log = created(40)
    member, _ = members
    member.memory.records_max = 8
    seen: dict[str, int] = {}
    for until in range(2, 41, 2):
        member.read(log, until)
        member.save()
        now = {path.name: path.stat().st_ino for path in (tmp_path / "shared").rglob("*.records")}
        assert seen.items() & now.items() == {each for each in seen.items() if each[0] in now}
        seen = now
    assert sorted(int(name.split("-")[0]) for name in seen) == [7, 8, 9]


def test_a_damaged_part_file_keeps_no_other_in_the_folder(tmp_path: Path, members: Two) -> None:
    """Files that nobody needs go all the same, and it goes with them."""
    log = created(40)
    member, _ = members
    member.memory.records_max = 8
    for until in range(4, 41, 4):
        member.read(log, until)
        member.save()
        if until == 8:
            first = min((tmp_path / "shared").rglob("*.nb"))
            first.write_bytes(b"torn")
    names = [path.name for path in (tmp_path / "shared").rglob("*") if path.is_file()]
    assert len([name for name in names if name.endswith(".nb")]) == 2
    assert first.name not in names
    assert len(names) <= 2 + 4


def test_an_erased_text_leaves_the_folder_as_further_parts_come(
    tmp_path: Path, members: Two
) -> None:
    """The segment without it takes the place of the one with it."""
    log = created(4)
    log += [Said("delete", "m1"), *(Said("create", f"n{i}", "sun", "positive") for i in range(9))]
    member, _ = members
    member.read(log, 5)
    member.save()
    member.memory.erase({LOG: {"m1": 4}})
    for until in (7, 9, 11):
        member.read(log, until)
        member.save()
    shared = b"".join(
        path.read_bytes() for path in (tmp_path / "shared").rglob("*") if path.is_file()
    )
    assert b"word1" not in shared
    assert b"word2" in shared


def test_what_is_still_to_be_erased_is_handed_on(members: Two) -> None:
    """With the records that hold it, and by the next member too; not what is of another log."""
    first, second = members
    own = Deletion("m1", *LOG, 4, from_stream=True), Deletion("m2", *LOG, 0, False, ("c", 0, 7))
    first.read([*created(4), Said("delete", "m1")], 5)
    first.deletions = [*own, Deletion("m1", LOG.topic, LOG.partition + 1, 4, from_stream=True)]
    first.save()
    second.take_over()
    assert second.deletions == list(own)
    second.read([*created(5), *created(6)], 6)
    second.save()
    first.give_up()
    first.take_over()
    assert first.deletions == list(own)


def test_a_part_whose_deletions_are_wrong_is_set_aside(members: Two) -> None:
    """Its writer is not to be trusted; what stands before it is."""
    first, second = members
    for n, offset in (3, 2), (5, 1 << 62):
        first.read(created(5), n)
        first.deletions = [Deletion("m1", *LOG, offset, from_stream=True)]
        first.save()
    with capture_logs() as logs:
        second.take_over()
    assert [each["event"] for each in logs] == ["part_file_damaged"]
    assert (second.position, len(second.deletions)) == (3, 1)


@pytest.mark.parametrize("damage", ["gone", "torn", "flipped"])
def test_a_segment_that_is_lost_is_told_and_the_rest_goes_on(
    tmp_path: Path, members: Two, damage: str
) -> None:
    """What it held is not taken back; the others are."""
    log = [*created(8), Said("delete", "m1"), Said("delete", "m5")]
    first, second = members
    first.read(log, 8)
    first.save()
    (path,) = (tmp_path / "shared").rglob("0-*.records")
    if damage == "gone":
        path.unlink()
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-1] + (bytes([data[-1] ^ 1]) if damage == "flipped" else b""))
    with capture_logs() as logs:
        second.take_over()
    assert [each["event"] for each in logs] == ["learned_damaged"]
    second.read(log, 10)
    assert sorted(second.learner.model.words()) == sorted(f"word{i}" for i in range(8) if i != 5)


def test_a_segment_out_of_reach_is_read_after_a_restart(tmp_path: Path, members: Two) -> None:
    """It ends the run, whose last checkpoint must not pass for all that is remembered."""
    log = [*created(8), Said("delete", "m1"), Said("delete", "m5")]
    first, second = members
    first.read(log, 8)
    first.save()
    (path,) = (tmp_path / "shared").rglob("0-*.records")
    aside = path.rename(tmp_path / "aside")
    path.mkdir()
    with pytest.raises(GroupError, match="cannot be used"):
        second.take_over()
    Run.save(second)
    path.rmdir()
    aside.rename(path)
    again = Member(tmp_path, "second")
    again.take_over()
    again.read(log, 10)
    assert again.reviser.counts == {"delete_matched": 2, "unlearned": 2}
    again.memory.close()


def test_a_segment_that_others_followed_amid_is_handed_on(tmp_path: Path, members: Two) -> None:
    """It has fewer records than the others: the part says how many."""
    log = [*created(8), Said("delete", "m1"), Said("delete", "m5")]
    first, second = members
    first.read(log, 6)
    first.save()
    first.memory.close()
    (path,) = (tmp_path / "first").rglob("1.records")
    whole = path.read_bytes()
    path.write_bytes(b"damaged")
    Run.save(again := Run(tmp_path / "first"))
    again.memory.close()
    path.write_bytes(whole)
    first = Member(tmp_path, "first")
    first.take_over()
    first.read(log, 8)
    first.save()
    second.take_over()
    assert second.memory.sizes()[0] == 8
    second.read(log, 10)
    assert second.reviser.counts == {"delete_matched": 2, "unlearned": 2}
    first.memory.close()


def test_a_part_without_records_is_told(members: Two) -> None:
    """Its writer remembered nothing: deletes of what it learned are unmatched."""
    log = [Said("create", "a", "sun", "positive"), Said("delete", "a")]
    first, second = members
    first.group.memory = None
    first.read(log, 1)
    first.save()
    with capture_logs() as logs:
        second.take_over()
    assert [each["event"] for each in logs] == ["learned_not_handed_on"]
    second.read(log, 2)
    assert dict(second.reviser.counts) == {"delete_unmatched": 1}


def test_where_a_partition_begins_nothing_is_left_to_remember(tmp_path: Path) -> None:
    """Who takes it over knows of all that was learned that it was nothing."""
    first, second = Member(tmp_path, "first"), Member(tmp_path, "second")
    first.group.begin({LOG: LogFacts(7)})
    with capture_logs() as logs:
        second.take_over()
    assert (logs, second.position) == ([], 7)
    assert second.memory.log(LOG).is_whole
    first.memory.close()
    second.memory.close()


def test_what_others_remember_is_taken_over_after_a_restart(tmp_path: Path, members: Two) -> None:
    """The model was brought as far by their files, which alone say what it taught."""
    log = [Said("create", f"m{i}", "sun", "positive") for i in range(6)] + [Said("delete", "m3")]
    first, second = members
    first.read(log, 6)
    first.save()
    second.look()
    Run.save(second)
    again = Member(tmp_path, "second")
    assert again.position == 6
    again.take_over()
    again.read(log, 7)
    assert again.learner.model.n_examples == 5
    again.memory.close()


def test_the_oldest_part_of_others_has_an_age(tmp_path: Path) -> None:
    """By the file's time on the clock of the group; a part that is read here has none."""
    mine, theirs = parts.files_in(tmp_path), parts.files_in(tmp_path)
    now_s, ages_s = 1.7e9, {parts.LOG: 500.0, parts.OTHER: 30.0}
    for log, age_s in ages_s.items():
        before = set(tmp_path.rglob("*.nb"))
        theirs.write(parts.learned("a", log=log).state, log, 1)
        (path,) = set(tmp_path.rglob("*.nb")) - before
        os.utime(path, (now_s - age_s, now_s - age_s))
    group = GroupParts(mine, parts.LOG.topic, 3600.0, clock=lambda: now_s)
    group.look()
    group.take_news(set(), {})
    nobody: set[Partition] = set()
    for own, oldest_s in (nobody, 500.0), ({parts.LOG}, 30.0), ({parts.LOG, parts.OTHER}, None):
        group.take_news(own, {})
        said = group.status()
        assert (said.n_own, said.n_others, said.oldest_s) == (len(own), 2 - len(own), oldest_s)


def in_order(*names: str) -> Settings:
    """Return settings whose groups stand in an order."""
    groups: dict[str, dict[str, str]] = {"text": {}, "lang": {"kind": "categories"}}
    features = {name: groups[name] for name in names}
    return Settings.model_validate({"model": {"features": features, "hash_key": "ab" * 16}})


@pytest.mark.parametrize("names", [("one", "two", "three"), ("one", "one", "one")])
def test_groups_may_stand_in_another_order(tmp_path: Path, names: Sequence[str]) -> None:
    """For another member, or after a restart: what is taken back is what each field taught."""
    log = [Said("create", f"m{i}", f"word{i}", "positive", lang=f"l{i}") for i in range(9)]
    deleted = [[], ["m0", "m2"], ["m1", "m5", "m6"]]
    orders = [("text", "lang"), ("lang", "text"), ("text", "lang")]
    read: list[Said] = []
    for k, (name, order) in enumerate(zip(names, orders, strict=True)):
        read += [*(Said("delete", each) for each in deleted[k]), *log[3 * k : 3 * k + 3]]
        if k == 1:
            read += [Said("delete", "m4")]
        member = Member(tmp_path, name, in_order(*order))
        member.take_over()
        member.read(read, len(read))
        member.save()
        assert not member.reviser.counts["refused"]
        gone = {each.id for each in read if each.operation == "delete"}
        alone = Run(None, settings=in_order(*order))
        kept = [each for each in read if each.id not in gone]
        alone.read(kept, len(kept))
        assert member.learner.model.digest() == alone.learner.model.digest()
        for each in (member, alone):
            each.memory.close()
