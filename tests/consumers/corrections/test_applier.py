"""Applying corrections: which wait, which are somebody else's, and which are refused."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from consumers.config.settings import Settings
from consumers.corrections.applier import AWAY_S, MISPLACED, CorrectionApplier, SharedStream
from consumers.corrections.journal import Journal
from consumers.corrections.model import Correction, LogReader, encode
from consumers.errors import ConfigError, GroupError, SourceError
from consumers.factories import build_corrections
from consumers.features import build_model
from consumers.messages import Partition, RawColumns, Reason
from consumers.monitoring.metrics import Metrics
from consumers.pipeline.learned_records import DamagedError
from consumers.sources.base import Source
from streamnb import EveryExamples, EveryInterval, Learner, SnapshotBoard
from streamnb.features.counted_words import CountedState
from streamnb.inspection.summary import n_features
from streamnb.serialization import pack
from tests.consumers import decoded_messages
from tests.consumers.corrections.stepped_daemon import JOURNAL_PART, STREAM, Life, Store, by_part
from tests.consumers.pipeline.revised_log import FIELDS, LOG, Run, Said
from tests.endtoend.expected_counts import examples

JOURNAL = Partition("journal:corrections.jsonl", 0)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """Return the daemon's components once the first partition's five messages are learned."""
    made = Life(tmp_path, Store(), examples(10))
    made.take(STREAM[0], 5)
    yield made
    made.end()


class Lines(Source):
    """A label topic of two partitions, which is read as it is."""

    name = "lines"
    n_partitions = 2

    def __init__(self) -> None:
        self.lines: dict[int, list[bytes]] = {}
        self._at: dict[Partition, int] = {}

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Take where partitions are to be read from."""
        self.position_of = position_of

    def rewind(self, partition: Partition) -> None:
        """Read on from where the position is by now."""
        self._at.pop(partition, None)

    def poll(self, timeout_s: float) -> list[RawColumns]:  # noqa: ARG002 -- nothing to wait for
        """Return what was not read yet."""
        found = []
        for number, lines in self.lines.items():
            log = Partition("labels", number)
            at = self._at.get(log, self.position_of(log) or 0)
            if at < len(lines):
                found.append(decoded_messages.raw(log, lines[at:], at))
                self._at[log] = len(lines)
        return found

    def at_end(self) -> bool:
        """Return whether nothing follows: lines are added by hand."""
        return False


def say(life: Life, **said: Any) -> None:
    """Write a correction as any program might."""
    given = {"kind": "delete", "id": "m", "time_ms": 5, **said}
    life.corrections.log.append(b"m", encode(Correction(**given)))


def test_in_a_group_only_what_is_said_of_own_partitions_is_applied() -> None:
    """From where its last reader applied it; what stands in a wrong partition is refused."""
    source = Lines()
    reading = LogReader(source, ("negative", "positive"), lambda _entry: None, is_shared=True)
    source.open(reading._positions.get)
    registry = CollectorRegistry()
    metrics = Metrics(registry, ("negative", "positive")).corrections
    shared = SharedStream("t", "labels")
    applier = CorrectionApplier(reading, FIELDS, metrics, lambda: 0.0, stream=shared)
    model = build_model(Settings().model)
    learner = Learner(model, SnapshotBoard(), EveryExamples(1 << 30), lambda: 0.0)
    positions = {Partition("t", 0): 9, Partition("t", 1): 9}

    def apply(own: set[Partition]) -> list[str]:
        reading._rewind()
        for raw in source.poll(0.0):
            reading._take(raw)
        return [reject.detail for reject in applier.apply(learner, positions, own)]

    first, second = STREAM
    said = [Correction("label", f"m{k}", 5, {"text": "a"}, "positive", None, None, first, k)
            for k in range(3)]  # fmt: skip
    misplaced = Correction("delete", "x", 5, {"text": "a"}, None, None, None, second, 1)
    source.lines[0] = [encode(each) for each in (*said, misplaced)]
    source.lines[1] = [encode(Correction("label", "made", 5, {"text": "b"}, "positive"))]
    assert apply(set()) == []
    assert learner.model.n_examples == 0
    applier.know(first, 1, positions, learner)  # its last reader had applied one
    applier.take_over(first, positions)
    assert [MISPLACED in detail for detail in apply({first})] == [True]
    assert learner.model.parts["t/0"].class_counts.sum() == 2.0
    assert positions[Partition("labels", 0)] == 4
    assert applier.take_deleted() == []
    source.lines[0].append(encode(Correction("delete", "m2", 5, {}, None, None, None, first, 2)))
    assert apply({first}) == []
    assert applier.take_deleted() == [(("m2", first, 2), ("labels", 0, 4))]
    applier.give_up(first)
    applier.take_over(second, positions)
    assert apply({second}) == []
    assert learner.model.parts["t/1"].class_counts.sum() == 1.0
    assert apply({second}) == []
    applier.know(first, 0, positions, learner)  # part of a member that had applied none
    assert Partition("labels", 0) not in positions


def test_more_can_be_applied_at_once_only_while_something_waits() -> None:
    """The last of a turn that its time ended is no reason to go on without a pause."""
    source = Lines()
    reading = LogReader(source, ("negative", "positive"), lambda _entry: None, is_shared=True)
    source.open(reading._positions.get)
    metrics = Metrics(CollectorRegistry(), ("negative", "positive")).corrections
    clock = itertools.count().__next__  # each turn has time for one
    applier = CorrectionApplier(
        reading, FIELDS, metrics, lambda: float(clock()), stream=SharedStream("t", "labels")
    )
    learner = Learner(
        build_model(Settings().model), SnapshotBoard(), EveryExamples(1 << 30), lambda: 0.0
    )
    first = STREAM[0]
    said = [Correction("delete", f"m{k}", 5, {}, None, None, None, first, k) for k in range(3)]
    source.lines[0] = [encode(each) for each in said]
    positions = {Partition("t", 0): 9}
    applier.take_over(first, positions)
    reading._rewind()
    for raw in source.poll(0.0):
        reading._take(raw)
    behind = []
    for n_partitions in (2, 3, 2):
        applier.are_partitions_known(n_partitions)
        if n_partitions == 2:
            applier.apply(learner, positions, {first})
        behind.append((applier.is_behind(), applier.has_backlog()))
    assert behind == [(True, True), (False, False), (True, True)]
    applier.apply(learner, positions, {first})
    assert not applier.is_behind()


def test_partitions_that_are_added_let_corrections_wait() -> None:
    """Each topic is heard of at a time of its own; before they agreed, others are an error."""
    source = Lines()
    reading = LogReader(source, ("negative", "positive"), lambda _entry: None, is_shared=True)
    metrics = Metrics(CollectorRegistry(), ("negative", "positive")).corrections
    stream = SharedStream("t", "labels")
    applier = CorrectionApplier(reading, FIELDS, metrics, lambda: 0.0, stream=stream)
    assert not applier.are_partitions_known(None)
    with pytest.raises(ConfigError, match=r"has 2 partitions, and that of source has 3"):
        applier.are_partitions_known(3)
    assert applier.are_partitions_known(2)
    assert not applier.are_partitions_known(3)
    assert "has 2 partitions, and that of source has 3" in (applier.trouble or "")
    source.n_partitions = 4
    assert not applier.are_partitions_known(3)
    assert "has 4 partitions, and that of source has 3" in (applier.trouble or "")
    assert applier.are_partitions_known(4)
    assert applier.trouble is None


def sharing(source: Lines, run: Run) -> tuple[LogReader, CorrectionApplier]:
    """Return what reads a shared log of corrections, and what applies them by a run's memory."""
    reading = LogReader(source, ("negative", "positive"), lambda _entry: None, is_shared=True)
    source.open(reading._positions.get)
    metrics = Metrics(CollectorRegistry(), ("negative", "positive")).corrections
    shared = SharedStream("t", "labels")
    applier = CorrectionApplier(reading, FIELDS, metrics, lambda: 0.0, stream=shared)
    applier._memory = run.reviser
    return reading, applier


def test_a_deletion_means_an_update_that_was_learned_before_it() -> None:
    """So it is erased up to the update, whose text would stay else."""
    source, run = Lines(), Run(None)
    reading, applier = sharing(source, run)
    log = [Said("create", "a", "sun", "positive"), Said("update", "a", "snow", "negative")]
    run.read(log, 2)
    said = Correction("delete", "a", 5, {"text": "sun"}, None, "positive", "t/0", LOG, 0)
    source.lines[0] = [encode(said)]
    positions = {LOG: 2}
    applier.take_over(LOG, positions)
    reading._rewind()
    for raw in source.poll(0.0):
        reading._take(raw)
    assert applier.apply(run.learner, positions, {LOG}) == []
    assert run.learner.model.n_examples == 0
    assert applier.take_deleted() == [(("a", LOG, 1), ("labels", 0, 0))]
    run.memory.close()


def test_a_lost_file_is_given_up_by_what_was_applied_alone() -> None:
    """A correction that is refused changes nothing: a file that is put back still says all."""
    source, run = Lines(), Run(None)
    reading, applier = sharing(source, run)
    run.read([Said("create", "a", "sun", "positive")], 1)
    memory = run.memory.log(LOG)
    memory.lose(0, DamagedError("torn"))
    lost, positions = dict(memory.lost), {LOG: 1}
    applier.take_over(LOG, positions)
    for text, is_refused in (("never seen", True), ("sun", False)):
        said = Correction("label", "a", 5, {"text": text}, "negative", "positive", "t/0", LOG, 0)
        source.lines.setdefault(0, []).append(encode(said))
        reading._rewind()
        for raw in source.poll(0.0):
            reading._take(raw)
        assert bool(applier.apply(run.learner, positions, {LOG})) == is_refused
        assert (memory.lost == lost) == is_refused
    run.memory.close()


def test_a_correction_waits_for_its_message(life: Life) -> None:
    """What the model has not learned yet is not taken back, nor is anything behind it."""
    text, label = life.found[1]  # the second partition's first, which has not come
    taught = {"was": label, "was_part": "t/1", "example": {"text": text}}
    say(life, **taught, partition=("t", 1), offset=0)
    life.corrections.correction_service.teach({"text": "behind it"}, "positive")
    life.assigned = dict.fromkeys(STREAM, 0)
    life.correct()
    assert JOURNAL not in life.positions
    assert (life.reading.n_waiting, life.applier.has_backlog()) == (2, False)
    life.take(STREAM[1], 1)
    life.correct()
    assert life.positions[JOURNAL] == life.corrections.log.append(b"", b"").offset  # type: ignore[attr-defined]
    assert (life.value("delete"), life.value("label")) == (1.0, 1.0)
    assert life.applier.take_deleted() == [
        (("m", STREAM[1], 0), None)
    ]  # the journal's line says it
    assert life.learner.model.parts["t/1"].class_counts.sum() == 0.0


def test_a_log_says_itself_whether_others_write_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever class it is of: of a shared one, where a deletion stands is handed on with it."""
    monkeypatch.setattr(Journal, "is_own", False)
    life = Life(tmp_path, Store(), examples(10))
    life.take(STREAM[0], 1)
    life.corrections.correction_service.delete("m0")
    life.correct()
    assert life.applier.take_deleted() == [(("m0", STREAM[0], 0), (*JOURNAL, 0))]
    life.end()


def test_corrections_of_partitions_that_others_read_are_skipped(life: Life) -> None:
    """Of a shared log each member applies what concerns the messages that it learned, no more."""
    life.applier._is_own = False  # as a label topic
    life.applier._clock = lambda: AWAY_S  # after the start: the group has decided
    life.assigned = {STREAM[0]: 0}
    say(life, partition=("t", 1), offset=0, was="positive", was_part="t/1", example={"text": "x"})
    say(life, kind="label", partition=("t", 1), offset=7, label="positive", example={"text": "x"})
    life.correct()
    assert (life.value("skipped"), life.value("refused")) == (2.0, 0.0)
    assert life.learner.model.parts[JOURNAL_PART].class_counts.sum() == 0.0
    assert life.positions[JOURNAL] > 0


def test_a_new_class_waits_until_the_group_says_whether_it_joins(tmp_path: Path) -> None:
    """With all behind it, and is applied once the folder is back; no run ends before that."""
    life = Life(tmp_path, Store(), examples(10), new_classes=True)
    is_away = [True]

    def takes_class(_label: object) -> bool:
        if is_away[0]:
            raise GroupError("away")
        return True

    life.applier._takes_class = takes_class
    life.corrections.correction_service.teach({"text": "sun"}, "odd")
    life.corrections.correction_service.teach({"text": "rain"}, "positive")
    life.correct()
    assert (life.reading.n_waiting, life.applier.has_backlog(), life.rejects) == (2, True, [])
    is_away[0] = False
    life.correct()
    assert (life.reading.n_waiting, life.value("label")) == (0, 2.0)
    life.reading.caught_up.set()
    assert not life.applier.has_backlog()
    assert "odd" in life.learner.model.classes
    life.end()


def test_another_streams_corrections_are_skipped(life: Life) -> None:
    """A source without assignments has one stream: what concerns another will not come."""
    say(life, partition=("elsewhere", 0), offset=0)
    life.correct()
    assert life.value("skipped") == 1.0


def test_before_anything_was_read_corrections_wait(tmp_path: Path) -> None:
    """A first start over an old journal holds what it says until the stream is known."""
    life = Life(tmp_path, Store(), examples(10))
    say(life, partition=("t", 0), offset=0)
    life.correct()
    assert life.reading.n_waiting == 1
    life.take(STREAM[0], 1)
    life.correct()
    assert life.reading.n_waiting == 0
    life.end()


def test_a_partition_that_left_may_come_back(life: Life) -> None:
    """While a group decides anew its partitions are waited for, but not for ever."""
    now_s = [0.0]
    life.applier._clock = lambda: now_s[0]
    life.assigned = {STREAM[1]: 0}
    say(life, partition=("t", 0), offset=99)
    for after_s, waiting in ((0.0, 1), (AWAY_S - 1, 1), (AWAY_S + 1, 0)):
        now_s[0] = after_s
        life.correct()
        assert life.reading.n_waiting == waiting
    assert life.value("skipped") == 1.0


@pytest.mark.parametrize("is_own", [True, False])
def test_a_partition_may_be_held_by_the_process_before(life: Life, is_own: bool) -> None:
    """What is corrected may have been read here, so it waits until its partition is given again.

    After a kill amid a rebalance the group may first give a partition to the dead process. A label
    topic may have corrections of other streams too, for which nobody waits.
    """
    life.applier._is_own = is_own
    if not is_own:
        say(life, partition=("elsewhere", 0), offset=0)
    text, label = life.found[1]
    taught = {"was": label, "was_part": "t/1", "example": {"text": text}}
    say(life, **taught, partition=("t", 1), offset=0)
    life.assigned = {STREAM[0]: 0}
    life.correct()
    assert (life.value("skipped"), life.reading.n_waiting) == (float(not is_own), 1)
    life.assigned = dict.fromkeys(STREAM, 0)
    life.take(STREAM[1], 1)
    life.correct()
    assert life.value("delete") == 1.0
    assert life.learner.model.parts["t/1"].class_counts.sum() == 0.0


@pytest.mark.parametrize(
    "said",
    [
        {"was": "positive", "was_part": "t/7", "example": {"text": "x"}},  # no such part
        {"was": "positive", "was_part": "t/0", "example": {"text": "never seen here"}},
        {"was": "positive", "was_part": "t/0", "example": {"text": 5}},
        {"was": "positive", "was_part": "t/0", "example": {"text": "x"}, "label": "negative"},
    ],
)
def test_what_does_not_fit_is_refused_whole(life: Life, said: dict[str, Any]) -> None:
    """A correction of what was never learned changes no count, is told, and stops nothing."""
    before = by_part(life.learner.model)
    kind = "label" if "label" in said else "delete"
    with capture_logs() as logged:
        say(life, kind=kind, partition=("t", 0), offset=0, **said)
        life.corrections.correction_service.teach({"text": "goes on"}, "positive")
        life.correct()
    (reject,) = life.rejects
    assert (reject.reason, reject.partition, reject.key) == (Reason.CORRECTION, JOURNAL, b"m")
    assert [line["event"] for line in logged] == ["correction_refused"]
    found = by_part(life.learner.model)
    assert found.pop(JOURNAL_PART)[0] == [0.0, 1.0]
    assert found == before
    assert (life.value("refused"), life.applier.n_refused) == (1.0, 1)


def test_a_label_that_cannot_be_learned_brings_back_what_it_replaced(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the new label is refused after the old one was taken back, nothing has changed."""
    before = by_part(life.learner.model)
    text, label = life.found[0]
    say(
        life,
        kind="label",
        label="negative",
        was=label,
        was_part="t/0",
        example={"text": text},
        partition=("t", 0),
        offset=0,
    )
    life.read_back()
    learn_one = life.learner.learn_one
    refused: list[str] = []

    def refuse_once(part: str, x: Any, y: Any, *, weight: float = 1.0) -> None:
        if not refused:
            refused.append(y)
            life.learner.model.learn_one(x, y, part="t/0", weight=-1.0)
        learn_one(part, x, y, weight=weight)

    monkeypatch.setattr(life.learner, "learn_one", refuse_once)
    with capture_logs():
        life.correct()
    assert refused == ["negative"]
    assert by_part(life.learner.model) == before
    assert life.value("refused") == 1.0


def test_taking_back_words_that_nobody_wrote_leaves_no_trace(life: Life) -> None:
    """A correction of a text that was never learned is refused, and gives no word a place."""
    model = life.learner.model
    before = by_part(model)
    (group,) = model.state.groups.values()
    assert isinstance(group, CountedState)
    n_words = group.vocabulary.n_words
    say(
        life,
        kind="label",
        label="negative",
        was=life.found[0][1],
        was_part="t/0",
        example={"text": "qwx qwy qwz"},
        partition=("t", 0),
        offset=0,
    )
    with capture_logs():
        life.correct()
    assert life.value("refused") == 1.0
    assert by_part(model) == before
    assert group.vocabulary.n_words == n_words


def test_lines_that_are_no_corrections_are_rejects(life: Life) -> None:
    """What stands in the log and is none is handed on with its bytes, and passed."""
    life.corrections.log.append(b"", b"what is this")
    with capture_logs():
        life.correct()
    assert [(each.reason, each.value) for each in life.rejects] == [
        (Reason.NOT_JSON, b"what is this")
    ]
    life.save()  # a position that nothing was taught by is saved all the same
    again = Life(life.folder, life.store, life.found)
    assert again.positions[JOURNAL] == life.positions[JOURNAL]
    again.end()


def test_a_label_is_seen_though_the_number_of_examples_is_the_same(life: Life) -> None:
    """A snapshot is published after a correction that leaves as many examples as before."""
    board = SnapshotBoard()
    learner = Learner(life.learner.model, board, EveryInterval(0.0, 0.5, lambda: 0.0), lambda: 0.0)
    life.learner = learner
    text, label = life.found[0]
    other = {"positive": "negative", "negative": "positive"}[label]
    life.corrections.correction_service.label("m0", other)
    life.correct()
    assert learner.publish_if_due()
    snapshot = board.current()
    assert snapshot is not None
    assert snapshot.version == 2
    assert snapshot.predict_one({"text": text}) is not None
    assert learner.publish_if_due()
    assert board.current() is snapshot


def test_a_log_that_cannot_be_read_ends_the_run(life: Life) -> None:
    """A journal of another checkpoint ends the consuming thread, and the service says why."""
    life.applier.start({JOURNAL: 999})
    life.reading._thread.join(60.0)
    with pytest.raises(SourceError, match="Put the journal back"):
        life.applier.is_due()
    assert "cannot be read back" in (life.corrections.correction_service.reason or "")
    life.applier.close()


def test_a_turn_is_bounded(life: Life) -> None:
    """However many wait, the stream has its turn after a fiftieth of a second."""
    times = iter(range(1000))
    life.applier._clock = lambda: float(next(times))
    for number in range(3):
        life.corrections.correction_service.teach({"text": f"number {number}"}, "positive")
    life.correct()
    assert (life.reading.n_waiting, life.applier.has_backlog()) == (2, True)
    assert life.applier.is_behind()  # so that the loop does not wait for the stream meanwhile
    life.applier._clock = lambda: 0.0
    life.correct()
    assert (life.reading.n_waiting, life.applier.is_behind()) == (0, False)


FEATURES = {
    "text": {"kind": "words"},
    "kind": {"kind": "categories", "fields": ["colour"]},
    "sure": {"kind": "flags", "fields": ["bold"]},
    "size": {"kind": "numbers", "fields": ["height"]},
}


def test_examples_of_every_kind_of_field_are_corrected(tmp_path: Path) -> None:
    """Words, categories, flags and numbers, missing ones too: a deletion leaves what was before."""
    settings = Settings.model_validate(
        {"checkpoint": {"folder": tmp_path}, "model": {"features": FEATURES}}
    )
    corrections = build_corrections(settings, None, Metrics(CollectorRegistry()), lambda: 0.0)
    assert corrections is not None
    model = build_model(settings.model)
    learner = Learner(model, SnapshotBoard(), EveryExamples(1 << 30), lambda: 0.0)
    reading = corrections.applier._reading
    reading._source.open(lambda _: None)
    reading.caught_up.set()
    positions: dict[Partition, int] = {}

    def correct() -> None:
        for raw in reading._source.poll(0.0):
            reading._take(raw)
        assert corrections.applier.apply(learner, positions, {}) == []

    given: list[dict[str, Any]] = [
        {"text": "so tall", "colour": 3, "bold": True, "height": 1.5},
        {"text": "so small", "colour": "blue", "bold": None},
        {"height": 2},
        {"colour": "blue", "bold": False},
    ]
    for example in given:
        corrections.correction_service.teach(example, "positive")
    correct()
    for example in given[1:]:
        learned = corrections.correction_service._examples.checked(example)
        corrections.log.append(
            b"",
            encode(Correction("delete", "m", 5, learned, was="positive", was_part=JOURNAL_PART)),
        )
    correct()
    twin = build_model(settings.model)
    learned = corrections.correction_service._examples.checked(given[0])
    assert learned == {"text": "so tall", "colour": "3", "bold": 1.0, "height": 1.5}
    twin.learn_one(learned, "positive", part=JOURNAL_PART)
    assert model.class_counts.tolist() == twin.class_counts.tolist()
    assert n_features(model.state) == n_features(twin.state)
    for asked in given:
        example = corrections.correction_service._examples.checked(asked)
        found, expected = (each.raw().predict_proba_one(example) for each in (model, twin))
        assert found == pytest.approx(expected)
    assert pack(model.state, {JOURNAL_PART: 5})[0]["sections"][0]["part"] == JOURNAL_PART
    corrections.log.close()


def test_the_room_is_off_where_nothing_is_kept() -> None:
    """Without a folder there is no journal, and without a log no corrections."""
    metrics = Metrics(CollectorRegistry())
    for sections in ({"checkpoint": {"folder": None}}, {"corrections": {"to": "none"}}):
        assert build_corrections(Settings.model_validate(sections), None, metrics) is None


def test_a_label_topic_has_a_name_of_its_own(tmp_path: Path) -> None:
    """Positions go by a topic's name: even on another cluster it must not be the stream's."""
    settings = Settings.model_validate(
        {
            "source": "kafka://127.0.0.1:1/tweets",
            "kafka": {"servers": ["127.0.0.1:2"]},
            "corrections": {"to": "kafka:tweets"},
            "checkpoint": {"folder": tmp_path},
        }
    )
    with pytest.raises(ConfigError, match="name another topic"):
        build_corrections(settings, None, Metrics(CollectorRegistry()))


def test_a_backlog_may_come_amid_the_question(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last entries may be read, and reading have caught up, between two looks."""

    class Reading:
        """Has an entry, and has caught up, as soon as it is asked how many wait."""

        trouble, caught_up, n = None, threading.Event(), 0

        @property
        def n_waiting(self) -> int:
            n_before, self.n = self.n, 1
            self.caught_up.set()
            return n_before

    monkeypatch.setattr(life.applier, "_reading", Reading())
    assert [life.applier.has_backlog() for _ in range(2)] == [True, True]
