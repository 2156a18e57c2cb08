"""Labels that come after their messages, or before them, leave the counts that the two logs say."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st
from msgspec.structs import replace
from structlog.testing import capture_logs

from consumers.config.message import LateLabelsSettings
from consumers.config.settings import Settings
from consumers.corrections.model import Correction
from consumers.decode import labels as label_classes
from consumers.decode.decoder import LabelDecoder
from consumers.errors import ConfigError
from consumers.features import build_model
from consumers.messages import Messages, Partition, Reason, part_name
from consumers.pipeline.group_parts import GroupParts, take_over_records
from consumers.pipeline.learned_memory import FOLDER_NAME
from consumers.pipeline.learned_records import FoundRecords, LearnedRecord
from consumers.pipeline.part_files import LoadedPart, PartFiles
from consumers.pipeline.reader import LabelReader, Limits, Reassignment
from consumers.pipeline.waiting_messages import DueTimes
from consumers.sources.base import LogFacts
from tests.consumers.decoded_messages import raw
from tests.consumers.pipeline.late_logs import LABEL_LOG, Label, LateRun, Said, expected, line
from tests.consumers.pipeline.revised_log import LOG

pytestmark = pytest.mark.usefixtures("short_segments")

SETTINGS = LateLabelsSettings(source="kafka:labels", id="id", window_s=50.0)
DEFAULTS = SETTINGS.model_copy(update={"default": "negative", "horizon_s": 30.0})
CLASSES = st.sampled_from(["negative", "positive"])
TEXTS = st.lists(st.sampled_from(["sun", "rain", "not", "love", "snow"]), max_size=3).map(" ".join)
IDS = st.sampled_from(["a", "b", "c", 'd"\\é'])
TIMES = st.none() | st.integers(0, 400)


def _entry(
    operation: str, name: str | None, time_s: int | None, text: str, label: str | None
) -> Said:
    if operation == "delete":
        return Said(operation, name or "a", time_s)
    return Said(operation, name, time_s, text, label)


OPERATIONS = st.sampled_from(["create"] * 6 + ["update", "delete"])
ENTRIES = st.builds(
    _entry, OPERATIONS, st.none() | IDS, TIMES, TEXTS, st.sampled_from([None, None, "positive"])
)
STEPS = st.tuples(st.sampled_from(["read", "labels", "save", "kill"]), st.integers(1, 9))


LOGS = (
    st.lists(ENTRIES, max_size=30),
    st.lists(st.builds(Label, IDS, TIMES, CLASSES), max_size=20),
    st.sampled_from([SETTINGS, DEFAULTS]),
)


@given(*LOGS, st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=30))
def test_the_counts_are_a_function_of_both_logs(
    log: list[Said],
    labels: list[Label],
    settings: LateLabelsSettings,
    steps: list[tuple[bool, int]],
) -> None:
    """However the two logs interleave, and however they are cut, the counts are the page's."""
    run = LateRun(None, settings)
    for is_label, n in steps:
        if is_label:
            run.read_labels(labels, n)
        else:
            run.read(log, n)
    _check_to_the_end(run, log, labels, settings)


@settings_of(max_examples=12)
@given(*LOGS, st.lists(st.sampled_from(["read", "labels", "save", "kill"]), max_size=20))
def test_a_kill_changes_no_count(
    log: list[Said], labels: list[Label], settings: LateLabelsSettings, steps: list[str]
) -> None:
    """Killed between any two batches, it goes on from the last checkpoint to the same counts."""
    with tempfile.TemporaryDirectory() as name:
        run = LateRun(Path(name), settings)
        for step in steps:
            if step == "read":
                run.read(log, 4)
            elif step == "labels":
                run.read_labels(labels, 3)
            elif step == "save":
                run.save()
            else:
                run.memory.close()
                run = LateRun(Path(name), settings)
        _check_to_the_end(run, log, labels, settings)


@pytest.mark.parametrize("sizes", [[6], [1] * 6, [2, 4], [3, 3]])
def test_which_class_joins_at_the_limit_is_said_by_the_order_of_the_labels(
    monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    """However that log is cut: not by labels that only wait, and one too many takes no message."""
    monkeypatch.setattr(label_classes, "CLASSES_MAX", 3)
    run = LateRun(None, SETTINGS)
    run.learner.model.new_classes = True
    known = ("negative", "positive", "a", "b", "c")
    run.label_decoder = LabelDecoder(SETTINGS, {}, known)
    log = [Said("create", name, 0, "sun") for name in ("m", "n", "later", "last")]
    labels = [
        Label("later", 1, "a"), Label("m", 1, "b"), Label("n", 1, "c"), Label("n", 1, "positive"),
        Label("last", 1, "a"), Label("last", 1, "negative"),
    ]  # fmt: skip
    run.read(log, 2)
    for size in sizes:
        run.read_labels(labels, size)
    assert run.learner.model.classes == ("negative", "positive", "b")
    run.read(log, 2)
    assert run.learner.model.n_examples == run.late.counts["learned"] == 3
    rejects = run.late.take_rejects()
    assert [(each.reason, each.offset) for each in rejects] == [
        (Reason.UNKNOWN_LABEL, at) for at in (2, 0, 4)
    ]
    assert run.late.counts["unusable"] == 3
    assert [each.value for each in rejects] == [line(labels[at]) for at in (2, 0, 4)]


class Member(LateRun):
    """A member of a group that reads both logs, or knows them by the other's files."""

    def __init__(self, folder: Path, name: str, settings: LateLabelsSettings) -> None:
        super().__init__(folder / name, settings)
        files = PartFiles(folder / "shared", {}, build_model(Settings().model), 2)
        self.group = GroupParts(
            files, LOG.topic, 3600.0, memory=self.memory, times=self.late, labels=LABEL_LOG.topic
        )
        self.has_read = LOG in self.checkpoint.restore(build_model(Settings().model))[1]

    def take_over(self) -> None:
        """Go on where the group stands, as reader and loop do."""
        part = self.group.take_over(LOG, self.at if self.has_read else None)
        if part is not None:
            self.learner.set_part(part_name(LOG), part.model)
            self.at, self.labels_at = part.position, part.labels
            classes = part.model.classes
            take_over_records(self.memory, LOG, part.records, classes, self.learner.model.classes)
            self.late.take_over(LOG, part.times, is_ours=True)
        self.has_read = True

    def save(self) -> None:
        """Write a checkpoint, and then the part."""
        super().save()
        self.group.write(self.learner.model.state, {LOG: self.at, LABEL_LOG: self.labels_at})
        assert self.group.status().trouble is None


@settings_of(max_examples=12)
@given(*LOGS, st.lists(st.sampled_from(["read", "labels", "save", "hand over", "kill"])))
def test_what_waits_moves_with_its_partition(
    log: list[Said], labels: list[Label], settings: LateLabelsSettings, steps: list[str]
) -> None:
    """Whoever reads and dies when: the counts are those of both logs."""
    with tempfile.TemporaryDirectory() as name:
        members = [Member(Path(name), f"{k}", settings) for k in range(2)]
        reader = 0
        members[reader].take_over()
        for step in steps:
            if step == "read":
                members[reader].read(log, 4)
            elif step == "labels":
                members[reader].read_labels(labels, 3)
            elif step == "save":
                members[reader].save()
            else:
                members[reader].group.keep_only(set())
                if step == "kill":
                    members[reader].memory.close()
                    members[reader] = Member(Path(name), f"{reader}", settings)
                reader = 1 - reader
                members[reader].take_over()
        _check_to_the_end(members[reader], log, labels, settings)
        members[1 - reader].memory.close()


def test_a_member_knows_what_waits_at_which_time(tmp_path: Path) -> None:
    """Times, labels that wait and defaults that are due are those of the member before."""
    one, two = (Member(tmp_path, name, DEFAULTS) for name in ("one", "two"))
    one.take_over()
    one.read([Said("create", f"m{i}", 100 + i, "sun") for i in range(3)], 3)
    one.read_labels([Label("later", 110, "positive")], 1)
    one.save()
    two.take_over()
    assert two.late.pack() == one.late.pack()
    assert two.late.counts_now()["waiting"] == 1
    log = [Said("create", f"m{i}", 100 + i // 3 * 40, "sun") for i in range(5)]
    two.read(log, 2)
    assert two.late.counts_now()["defaulted"] == 3
    for each in (one, two):
        each.memory.close()


def _check_to_the_end(
    run: LateRun, log: list[Said], labels: list[Label], settings: LateLabelsSettings
) -> None:
    run.read(log, len(log))
    run.read_labels(labels, len(labels))
    assert run.counts == expected(log, labels, settings)
    assert not run.reviser.counts["refused"]
    run.memory.close()


def test_what_small_batches_bring_is_looked_at_together() -> None:
    """Each is due once its time is over or its number is too low; many that wait are few pieces."""
    due, waiting, draw = DueTimes(), dict[int, float](), np.random.default_rng(1)
    for number in range(5000):
        time_ms = math.nan if number % 50 == 0 else number + float(draw.integers(-20, 20))
        due.add(np.array([time_ms]), np.array([number]), np.array([number], np.uint64))
        waiting[number] = time_ms
        assert len(due) == len(waiting)
        assert len(due._chunks) <= 24
        if number % 7 == 0:
            until_ms, floor = number - 1000.0, number - 2000
            numbers, hashes = due.take(until_ms, floor)
            assert hashes.tolist() == numbers.tolist()
            over = [n for n, at in waiting.items() if at < until_ms or n < floor]
            assert numbers.tolist() == over
            for each in over:
                del waiting[each]


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_label_that_waits_outlives_the_erasure_of_its_id(tmp_path: Path, is_killed: bool) -> None:
    """A later message of the id has it; but the bytes in which it came are gone."""
    log = [
        Said("create", "a", 100, "sun"),
        Said("delete", "a", 110),
        Said("create", "a", 300, "snow"),
    ]
    labels = [Label("a", 290, "positive")]
    run = LateRun(tmp_path, SETTINGS)
    run.read(log, 2)
    run.read_labels(labels, 1)
    run.save()
    run.memory.erase({LOG: {"a": 1}})
    files = b"".join(path.read_bytes() for path in (tmp_path / FOLDER_NAME).rglob("*.records"))
    assert b"created_at" not in files
    if is_killed:
        run.memory.close()
        run = LateRun(tmp_path, SETTINGS)
    _check_to_the_end(run, log, labels, SETTINGS)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_label_of_an_erased_message_waits_for_no_other(tmp_path: Path, is_killed: bool) -> None:
    """The text has gone; that a message of this id and time was there has not."""
    run = LateRun(tmp_path, SETTINGS)
    run.read([Said("create", "a", 100, "sun"), Said("delete", "a", 101)], 2)
    run.save()
    run.memory.erase({LOG: {"a": 1}})
    files = b"".join(path.read_bytes() for path in (tmp_path / FOLDER_NAME).rglob("*.records"))
    assert b"sun" not in files
    if is_killed:
        run.memory.close()
        run = LateRun(tmp_path, SETTINGS)
    run.read_labels([Label("a", 100, "positive")], 1)
    assert run.late.counts_now()["message_gone"] == 1
    assert run.late.counts_now()["waiting"] == 0
    run.memory.close()


@pytest.mark.parametrize("replaced_by", ["its own label", "a late label", "a person's label"])
def test_an_erased_update_still_replaces_what_waited(tmp_path: Path, replaced_by: str) -> None:
    """A person deletes the update: no label comes to the message before it, nor the default."""
    own = "positive" if replaced_by == "its own label" else None
    log = [
        Said("create", "a", 100, "sun"),
        Said("update", "a", 101, "snow", own),
        *(Said("create", name, 300, "rain") for name in "bc"),
    ]
    labels = [Label("a", 100, "positive")] * 2
    given = Correction("label", "a", 5, {"text": "sun"}, "positive", None, None, LOG, 0)
    run = LateRun(tmp_path, DEFAULTS)
    run.read(log, 1)
    if replaced_by == "a late label":
        run.read_labels(labels, 1)
    elif replaced_by == "a person's label":
        run.correct(given)
    run.read(log, 1)
    assert run.learner.model.n_examples == 1
    run.correct(replace(given, kind="delete", label=None, offset=1))
    run.save()
    run.memory.erase({LOG: {"a": 1}})
    run.memory.close()
    run = LateRun(tmp_path, DEFAULTS)
    run.read(log, 2)
    run.read_labels([*labels[: run.labels_at], labels[-1]], 1)
    assert run.learner.model.n_examples == 0
    assert run.late.counts_now()["message_gone"] == 1
    run.memory.close()


def test_what_became_of_each_label_is_counted() -> None:
    """Each outcome by itself, and the reject of what taught nothing."""
    run = LateRun(None, SETTINGS)
    log = [Said("create", name, 100, "sun") for name in "abc"]
    run.read([*log, Said("delete", "c", 100)], 4)
    labels = [("a", 100), ("a", 101), ("b", 160), ("c", 100), ("x", 100), ("y", 10)]
    run.read_labels([Label(name, at, "positive") for name, at in labels], len(labels))
    assert run.late.counts_now()["waiting"] == 3
    later = [Said("create", f"later{i}", 300, "rain") for i in range(2)]
    run.read([*log, Said("delete", "c", 100), *later], 2)
    found = dict(run.late.counts_now())
    assert found == {
        "learned": 1, "repeated": 1, "outside_window": 1, "message_gone": 1, "no_message": 1,
        "before_beginning": 1, "forgotten": 0, "unusable": 0, "messages_too_late": 0, "waiting": 0,
    }  # fmt: skip
    rejects = {(each.id, each.reason.value) for each in run.late.take_rejects()}
    assert rejects == {(name, "unmatched_label") for name in "bcxy"}
    run.memory.close()


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize(
    ("settings", "said", "outcome", "left"),
    [
        (SETTINGS, ["withdraw"], "message_gone", 0),
        (SETTINGS, ["delete"], "message_gone", 0),
        (SETTINGS, ["label", "withdraw"], "message_gone", 0),
        (DEFAULTS, ["withdraw"], "message_gone", 0),  # of what was learned as the default
        (SETTINGS, ["withdraw", "label"], "repeated", 1),
        (SETTINGS, ["withdraw", "update"], "learned", 1),  # it waits again
        (SETTINGS, ["withdraw", "delete"], "message_gone", 0),
    ],
)
def test_a_label_of_what_a_person_withdrew_is_no_repetition(
    tmp_path: Path, settings: LateLabelsSettings, said: list[str], outcome: str, left: int,
    *, is_killed: bool,
) -> None:  # fmt: skip
    """It is the first of its message: it is rejected, and counted as that of a deleted one."""
    run = LateRun(tmp_path, settings)
    log = [Said("create", "a", 100, "sun"), *(Said("create", None, 130, "rain"),) * 2]
    run.read(log, 3)
    for kind in said:
        if kind == "update":
            log.append(Said("update", "a", 130, "snow"))
            run.read(log, 1)
        else:
            label = "negative" if kind == "label" else None
            run.correct(Correction(kind, "a", 5, {}, label, None, None, LOG, 0))  # type: ignore[arg-type]
        if is_killed:
            run.save()
            run.memory.close()
            run = LateRun(tmp_path, settings)
    before = run.late.counts_now()
    run.read_labels([Label("a", 100, "positive")], 1)
    counts = run.late.counts_now()
    assert {each for each in counts if counts[each] > before.get(each, 0)} == {outcome}
    assert run.learner.model.n_examples == left
    rejects = run.late.take_rejects()
    assert [each.id for each in rejects] == ["a"] * (outcome == "message_gone")
    assert all(each.reason == "unmatched_label" for each in rejects)
    run.memory.close()


def test_a_forgotten_label_is_rejected_once(tmp_path: Path) -> None:
    """Its record is given up before it leaves: a restart in between finds it, and says no more."""
    run = LateRun(tmp_path, SETTINGS, 4)
    run.read_labels([Label("x", 100, "positive")], 1)
    log = [Said("create", f"m{i}", 100, "sun") for i in range(5)]
    run.read(log, 4)
    run.save()
    assert [each.id for each in run.late.take_rejects()] == ["x"]
    run.memory.close()
    run = LateRun(tmp_path, SETTINGS, 4)
    run.read(log, 1)
    assert run.late.take_rejects() == []
    assert run.late.counts_now()["waiting"] == 0
    run.memory.close()


@pytest.mark.parametrize(("n_wrong", "n_late"), [(1, 0), (2, 8)])
def test_a_clock_that_ends_all_waiting_is_told_once(n_wrong: int, n_late: int) -> None:
    """Two messages in a row from far ahead move the time; the log says so, and where it stands."""
    run = LateRun(None, SETTINGS)
    log = [Said("create", f"m{i}", 100 + i, "sun") for i in range(12)]
    log[2:4] = [Said("create", f"m{i}", 10**9, "sun") for i in range(2, 2 + n_wrong)]
    with capture_logs() as said:
        for _ in range(3):
            run.read(log, 4)
    run.memory.close()
    assert run.late.counts_now()["messages_too_late"] == n_late
    found = [each for each in said if each["event"] == "messages_too_late"]
    assert len(found) == (n_wrong > 1)
    for each in found:
        assert each["newest_ms"] == 2_000_000_000_000


def test_a_shorter_horizon_holds_for_what_waits_already(tmp_path: Path) -> None:
    """After a restart with it, too; what was learned before is not learned again."""
    log = [Said("create", f"m{i}", 100 * i, f"sun{i}") for i in range(10)]
    log[6] = Said("delete", "m2", 500)
    labels = [Label("m1", 100, "positive"), Label("m3", 300, "positive")]
    longer = DEFAULTS.model_copy(update={"horizon_s": 300.0})
    run = LateRun(tmp_path, longer)
    run.read(log, 7)
    run.read_labels(labels, 1)
    run.save()
    assert run.late.counts_now()["defaulted"] == 2
    run.memory.close()
    run = LateRun(tmp_path, DEFAULTS)
    run.read(log, 1)
    assert run.late.counts_now()["defaulted"] == 2
    _check_to_the_end(run, log, labels, DEFAULTS)


def test_a_label_waits_until_its_message_comes(tmp_path: Path) -> None:
    """It is counted as waiting so long, after a restart too, and is not given up later."""
    run = LateRun(tmp_path, SETTINGS)
    run.read_labels([Label(name, 100, "positive") for name in "aab"], 3)
    assert run.late.counts_now()["waiting"] == 3
    log = [Said("create", "a", 100, "sun")]
    run.read(log, 1)
    assert run.late.counts_now()["waiting"] == 1
    run.save()
    run.memory.close()
    run = LateRun(tmp_path, SETTINGS)
    assert run.late.counts_now()["waiting"] == 1
    run.read([*log, Said("create", "c", 300, "rain"), Said("create", "d", 300, "rain")], 2)
    found = run.late.counts_now()
    assert (found["no_message"], found["waiting"]) == (1, 0)
    assert [each.id for each in run.late.take_rejects()] == ["b"]
    run.memory.close()


def test_a_restart_makes_no_objects_of_messages_that_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be millions of them; those of labels that came early are as few as these."""
    made: list[int] = []

    def counted(self: FoundRecords, n_fields: int | None = None) -> list[LearnedRecord]:
        made.append(len(self))
        return records(self, n_fields)

    records = FoundRecords.records
    run = LateRun(tmp_path, DEFAULTS)
    log = [Said("create", f"m{i}", 100, "sun") for i in range(40)]
    run.read(log, 40)
    run.read_labels([Label(name, 100, "positive") for name in ("m7", "m9", "x")], 3)
    run.save()
    run.memory.close()
    monkeypatch.setattr(FoundRecords, "records", counted)
    run = LateRun(tmp_path, DEFAULTS)
    assert run.late.counts_now()["waiting"] == 1
    assert sum(made) == 1
    run.read([*log, *(Said("create", name, 200, "rain") for name in "yz")], 2)  # all are over
    assert run.late.counts_now()["defaulted"] == 38
    run.memory.close()


class Batches:
    """What a reader has read, batch by batch."""

    n_partitions, end_reason = 1, None
    may_end = False

    def __init__(self, batches: Sequence[Messages | Reassignment]) -> None:
        self.batches = list(batches)
        self.asked: list[tuple[Partition, int | None]] = []

    def take(self, _timeout_s: float) -> Messages | Reassignment | None:
        """Return the next batch."""
        return self.batches.pop(0) if self.batches else None

    def start(self, *_: object) -> None:
        """Begin."""

    def read_again(self, partition: Partition, position: int | None) -> None:
        """Note what is asked for."""
        self.asked.append((partition, position))


def test_a_member_takes_the_labels_of_its_own_partitions_alone() -> None:
    """From where they are read for it on: what came before, or is of others, is left out."""
    run = LateRun(None, SETTINGS)

    def batch(at: int, log: Partition = LABEL_LOG) -> Messages:
        return run.label_decoder.decode(raw(log, [line(Label(f"m{at}", 9, "positive"))], at))

    other = Partition(LABEL_LOG.topic, 1)
    source: Any = Batches([batch(7), batch(0, other)])
    positions = dict[Partition, int]()
    reader = LabelReader(source, run.late, source, ("text",), LABEL_LOG.topic)
    source.may_end = True
    reader.start(positions, Limits(until_end=True), {})
    assert not source.may_end  # as long as partitions may come
    model = run.learner.model.clone()
    model.learn_one({"text": "sun"}, "positive", part=part_name(LOG))
    part = LoadedPart(model, 5, 0.0, labels=3)
    positions[LABEL_LOG] = 8
    reader.know(LOG, part, positions, run.learner, is_ours=True)
    assert positions == {LABEL_LOG: 3}
    reader.take_over(LOG, positions)
    assert source.asked == [(LABEL_LOG, 3)]
    source.end_reason = "end of source"
    for then in ([], [Reassignment(LABEL_LOG, is_ours=True), batch(3), batch(1, other)]):
        source.batches += then
        reader.take(run.learner, positions, 0.0, is_idle=True)
        assert positions == {LABEL_LOG: 4 if then else 3}
        assert source.may_end is bool(then)
    reader.give_up(LOG)
    source.batches.append(batch(4))
    reader.take(run.learner, positions, 0.0, is_idle=True)
    assert (positions, run.late.counts_now()["waiting"]) == ({LABEL_LOG: 4}, 1)
    run.memory.close()


@pytest.mark.parametrize("knows", [True, False])
def test_labels_are_taken_while_only_one_topic_has_its_new_partitions(knows: bool) -> None:
    """As by a daemon that runs meanwhile; at the very first start it is an error."""
    run = LateRun(None, SETTINGS)
    batch = run.label_decoder.decode(raw(LABEL_LOG, [line(Label("a", 9, "positive"))]))
    source: Any = Batches([batch])
    stream: Any = Batches([])
    stream.n_partitions = 2
    reader, positions = LabelReader(source, run.late, stream, ("text",)), dict[Partition, int]()
    reader.start(positions, Limits(), {LABEL_LOG: LogFacts(agrees=knows)})
    with nullcontext() if knows else pytest.raises(ConfigError, match="has 1 partitions"):
        reader.take(run.learner, positions, 0.0, is_idle=True)
    assert positions == ({LABEL_LOG: 1} if knows else {})
    run.memory.close()


def test_labels_are_read_no_further_than_one_batch_beyond_the_messages() -> None:
    """As long as messages come; an idle stream holds no label up."""
    run = LateRun(None, SETTINGS)
    run.read([Said("create", name, 100, "sun") for name in "ab"], 2)
    batches = [
        run.label_decoder.decode(raw(LABEL_LOG, [line(Label("a", time_s, "positive"))], at))
        for at, time_s in enumerate([100, 101, 102, 103])
    ]
    source: Any = Batches(batches)
    reader, positions = LabelReader(source, run.late, source, ("text",)), dict[Partition, int]()
    reader.take(run.learner, positions, 0.0, is_idle=False)
    assert (positions, reader.is_behind) == ({LABEL_LOG: 2}, False)
    reader.take(run.learner, positions, 0.0, is_idle=True)
    assert (positions, reader.is_behind) == ({LABEL_LOG: 4}, True)
    run.memory.close()


def test_a_default_that_cannot_be_taken_back_is_counted_and_the_rest_goes_on() -> None:
    """Labels of other messages replace their defaults all the same."""
    run = LateRun(None, DEFAULTS)
    log = [Said("create", f"m{i}", 100, f"word{i}") for i in range(2)]
    log += [Said("create", f"later{i}", 140, "rain") for i in range(2)]
    run.read(log, 2)
    run.read(log, 2)
    assert run.late.counts_now()["defaulted"] == 2
    run.learner.unlearn_many(part_name(LOG), {"text": ["word0"]}, ["negative"])  # by another way
    run.read_labels([Label(f"m{i}", 100, "positive") for i in range(2)], 2)
    assert run.late.counts_now()["default_replaced"] == 1
    assert run.reviser.counts["refused"] == 1
    run.memory.close()
