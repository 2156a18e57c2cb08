"""The service: what is answered, what is written, and that each correction knows the one before."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from consumers.config.settings import Settings
from consumers.corrections import service as service_module
from consumers.corrections.journal import FILE_NAME
from consumers.corrections.model import (
    Correction,
    Entry,
    InDoubt,
    LogPosition,
    LogReader,
    NotReady,
    NotWritten,
    UnknownLabel,
    UnknownMessage,
    UnusableExample,
    entries,
)
from consumers.factories import build_corrections
from consumers.messages import CLASSES_MAX, Partition, RawColumns, Reason
from consumers.monitoring.metrics import Metrics
from consumers.search.store import RecentStoreError
from consumers.sources.base import Source
from tests.consumers.corrections.stepped_daemon import JOURNAL_PART, STREAM, Kept, Life, Store
from tests.consumers.full_disk import disk_full_at
from tests.consumers.pipeline.revised_log import LOG, Run, Said
from tests.endtoend.expected_counts import counts, examples

LONG_S = 60.0


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """Return the daemon's components once the first partition's five messages are learned."""
    made = Life(tmp_path, Store(), examples(10))
    made.take(STREAM[0], 5)
    yield made
    made.end()


def lines(life: Life) -> list[dict[str, Any]]:
    """Return what stands in the journal."""
    return [json.loads(line) for line in (life.folder / FILE_NAME).read_text().splitlines()]


def test_a_label_is_written_with_what_it_replaces(life: Life) -> None:
    """A correction stands on its own: example, labels, part, place; the receipt says where."""
    text, label = life.found[2]
    other = {"positive": "negative", "negative": "positive"}[label]
    receipt = life.corrections.correction_service.label("m2", other)
    assert receipt.position == "corrections.jsonl@0"
    assert (receipt.id, receipt.label, receipt.was) == ("m2", other, label)
    (line,) = lines(life)
    assert line.pop("time_ms") > 1_600_000_000_000
    assert line == {
        "kind": "label",
        "id": "m2",
        "example": {"text": text},
        "label": other,
        "was": label,
        "was_part": "t/0",
        "partition": ["t", 0],
        "offset": 1,
    }


def test_a_label_is_withdrawn_once(life: Life) -> None:
    """The line says what is taken back; of a message that teaches nothing that is nothing."""
    service = life.corrections.correction_service
    service.label("m2", "negative")
    service.label("m2", None)
    assert life.store.get("m2") is not None
    last = lines(life)[-1]
    assert (last["kind"], last["was"], "label" in last) == ("withdraw", "negative", False)
    assert service.label("m2", None).was is None
    assert service.label("m2", "positive").was is None
    taken_back = [each.get("was") for each in lines(life) if each["kind"] == "withdraw"]
    assert taken_back == ["negative", None]
    life.correct()
    assert (life.rejects, life.learner.model.n_examples) == ([], 5)


def test_classes_join_by_corrections_up_to_the_limit(tmp_path: Path) -> None:
    """A label over it is an unknown one; its message can be corrected and deleted all the same."""
    life = Life(tmp_path, Store(), examples(10), new_classes=True)
    life.take(STREAM[0], 5)
    service, taught = life.corrections.correction_service, life.found[4][1]
    for k in range(2, CLASSES_MAX - 1):
        service.teach({"text": "an example"}, f"class {k}")
    service.label("m2", "one more")
    service.label("m4", "too many")
    with pytest.raises(NotReady, match="has not taken"):
        service.delete("m4")
    life.correct()
    assert life.learner.model.classes[-1] == "one more"
    assert len(life.learner.model.classes) == CLASSES_MAX
    assert [reject.reason for reject in life.rejects] == [Reason.UNKNOWN_LABEL]
    assert "no more may join" in life.rejects[0].detail
    assert service.delete("m4").was == taught
    assert service.delete("m2").was == "one more"
    service.note_joined()
    assert not service._unnoted
    assert not service._not_applied
    life.end()


def test_a_second_class_that_does_not_join_is_forgotten_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model may refuse it just as the first of the same message is being forgotten."""
    life = Life(tmp_path, Store(), examples(10), new_classes=True)
    life.take(STREAM[0], 5)
    service = life.corrections.correction_service
    service.label("m2", "first")
    service.not_applied(service._unnoted["m2"][0])
    service.label("m2", "second")
    note = service._note

    def note_then_refuse(said: Correction, part: str) -> bool:
        is_taken = note(said, part)
        service.not_applied(said)
        return is_taken

    with monkeypatch.context() as refusing:
        refusing.setattr(service, "_note", note_then_refuse)
        service.note_joined()
    service.note_joined()
    assert not service._unnoted
    assert not service._not_applied
    assert service.delete("m2").was == life.found[2][1]
    life.end()


def test_a_correction_that_comes_back_as_a_reject_is_forgotten(tmp_path: Path) -> None:
    """The classes may have become full between writing and reading back."""
    life = Life(tmp_path, Store(), examples(10), new_classes=True)
    life.take(STREAM[0], 5)
    service = life.corrections.correction_service
    service.label("m2", "too late")
    life.classes.grow([*life.classes, *(f"class {k}" for k in range(CLASSES_MAX - 2))])
    life.correct()
    assert [reject.reason for reject in life.rejects] == [Reason.UNKNOWN_LABEL]
    assert not service._unnoted
    assert not service._written
    assert service.delete("m2").was == life.found[2][1]
    life.end()


def test_a_line_that_nests_too_deeply_is_one_reject(tmp_path: Path) -> None:
    """Neither reading it nor the next start ends by it, and what follows is applied."""
    life = Life(tmp_path, Store(), examples(10))
    life.take(STREAM[0], 5)
    deep = b'{"kind":"delete","id":"m0","time_ms":5,"example":{"text":%s%s}}'
    log = life.corrections.log
    log.append(b"m0", deep % (b"[" * 9_000, b"]" * 9_000)).outcome(LONG_S)
    life.corrections.correction_service.delete("m2")
    life.correct()
    assert [reject.reason for reject in life.rejects] == [Reason.NOT_JSON]
    assert life.value("delete") == 1.0
    later = life.kill()
    assert later.reading.n_waiting == 2
    later.end()


def test_corrections_that_are_not_read_back_are_bounded(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While reading them back takes long, no more than the bound are taken; then they are again."""
    monkeypatch.setattr(service_module, "UNREAD_MAX", 2)
    service = life.corrections.correction_service
    for name in ("m0", "m2"):
        service.delete(name)
    with pytest.raises(NotReady, match="2 corrections wait to be read back"):
        service.delete("m4")
    assert len(lines(life)) == 2
    life.correct()
    service.delete("m4")


def test_corrections_that_are_lost_are_not_waited_for(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention may remove them before they are read back: others would be refused for ever."""
    monkeypatch.setattr(service_module, "UNREAD_MAX", 2)
    service = life.corrections.correction_service
    service.delete("m0")
    service.delete("m2")
    with pytest.raises(NotReady, match="2 corrections wait"):
        service.delete("m4")
    (log,) = {each.partition for each in service._written.values()}
    behind = max(each.offset for each in service._written.values())
    service.read_back(Entry(log, behind, behind, None))
    assert service._written.keys() == {"m2"}
    assert service.delete("m4").was == life.found[4][1]


def test_each_correction_knows_the_one_before(life: Life) -> None:
    """Labelled twice and deleted, a message is taken back from where it was taught last."""
    correction_service = life.corrections.correction_service
    label = life.found[0][1]
    other = {"positive": "negative", "negative": "positive"}[label]
    receipts = [
        correction_service.label("m0", other),
        correction_service.label("m0", label),
        correction_service.delete("m0"),
    ]
    assert [each.was for each in receipts] == [label, other, label]
    assert [line.get("was_part") for line in lines(life)] == ["t/0", JOURNAL_PART, JOURNAL_PART]
    with pytest.raises(UnknownMessage):
        correction_service.delete("m0")
    with pytest.raises(UnknownMessage):
        correction_service.label("m0", label)
    assert len(lines(life)) == 3


def test_a_label_that_is_taught_already_changes_no_count(life: Life) -> None:
    """It is written, and moves what the message teaches into the log's part."""
    label, before = life.found[0][1], counts(life.learner.model)
    receipt = life.corrections.correction_service.label("m0", label)
    assert (receipt.label, receipt.was, receipt.position) == (label, label, f"{FILE_NAME}@0")
    life.correct()
    assert counts(life.learner.model) == before
    assert life.learner.model.parts[JOURNAL_PART].class_counts.sum() == 1.0


@pytest.mark.parametrize("n_read", [1, 2])
def test_a_label_that_is_taught_already_holds_for_an_update(tmp_path: Path, n_read: int) -> None:
    """One that is still to come, and one that is learned and that the store has not taken yet."""
    log = [Said("create", "a", "sun", "positive"), Said("update", "a", "snow", "negative")]
    run, store, positions = Run(None), Store(), {LOG: n_read}
    store.offer("a", Kept({"text": "sun"}, "positive", "t/0", LOG, 0))
    settings = Settings.model_validate({"checkpoint": {"folder": tmp_path}})
    built = build_corrections(settings, store, Metrics(CollectorRegistry()), lambda: 0.0)
    assert built is not None
    reading = built.applier._reading
    reading._source.open(positions.get)
    reading.caught_up.set()
    built.applier._memory = run.reviser
    run.read(log, n_read)
    assert built.correction_service.label("a", "positive").was == "positive"
    for raw in reading._source.poll(0.0):
        reading._take(raw)
    assert built.applier.apply(run.learner, positions, {LOG}) == []
    run.read(log, 2)
    assert counts(run.learner.model) == ([0.0, 1.0], {"snow": (0.0, 1.0)})
    run.memory.close()
    built.log.close()


def test_an_unknown_message_is_told_with_the_bound(life: Life) -> None:
    """Who asks for a message that is not kept hears how many are."""
    with pytest.raises(UnknownMessage, match=r"'m9' is kept.* newest 1000000 messages"):
        life.corrections.correction_service.label("m9", "positive")


def test_an_unknown_class_is_told_with_those_that_are(life: Life) -> None:
    """A label must be one of the classes, for messages and for examples."""
    said = "'sad' is none of negative, positive"
    with pytest.raises(UnknownLabel, match=said):
        life.corrections.correction_service.label("m0", "sad")
    with pytest.raises(UnknownLabel, match=said):
        life.corrections.correction_service.teach({"text": "x"}, "sad")


def test_an_example_gets_an_id_of_its_own(life: Life) -> None:
    """What comes with a request is taught under new ids, and belongs to no partition."""
    ids = {
        life.corrections.correction_service.teach({"text": "so sunny"}, "positive").id
        for _ in range(2)
    }
    assert len(ids) == 2
    assert [line.get("partition") for line in lines(life)] == [None, None]
    life.correct()
    assert life.learner.model.parts[JOURNAL_PART].class_counts.tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ({}, "no value"),
        ({"text": None}, "no value"),
        ({"text": 5}, "must be a string"),
        ({"words": "x"}, "no field 'words'; give text"),
    ],
)
def test_an_example_that_cannot_be_learned_is_refused(
    life: Life, example: dict[str, Any], said: str
) -> None:
    """What the model could not learn is not written either."""
    with pytest.raises(UnusableExample, match=said):
        life.corrections.correction_service.teach(example, "positive")
    assert lines(life) == []


def test_the_desk_opens_once_the_log_of_before_is_known(life: Life) -> None:
    """Until then nothing is written, and the reason says what it waits for."""
    correction_service = life.corrections.correction_service
    assert correction_service.ready
    life.reading.caught_up.clear()
    assert not correction_service.ready
    with pytest.raises(NotReady, match=r"still being read from corrections\.jsonl"):
        correction_service.label("m0", "positive")
    with pytest.raises(NotReady):
        correction_service.teach({"text": "x"}, "positive")
    assert lines(life) == []


def test_corrections_of_one_message_take_turns(life: Life) -> None:
    """Of many labels at once each replaces the one before, so the chain in the journal is whole."""
    wanted = ["positive", "negative"] * 10
    with ThreadPoolExecutor(8) as pool:
        receipts = [
            pool.submit(life.corrections.correction_service.label, "m0", each) for each in wanted
        ]
        assert all(each.result(LONG_S) for each in receipts)
    chain = [(line["was"], line["label"]) for line in lines(life)]
    assert [was for was, _ in chain] == [life.found[0][1], *(label for _, label in chain[:-1])]
    kept = life.store.get("m0")
    assert kept is not None
    assert kept.taught == chain[-1][1]


def test_what_is_read_back_late_overwrites_nothing_newer(life: Life) -> None:
    """While the reader is behind, the store keeps what the newest correction made of a message."""
    label = life.found[0][1]
    other = {"positive": "negative", "negative": "positive"}[label]
    correction_service = life.corrections.correction_service
    correction_service.label("m0", other)
    correction_service.label("m0", label)
    (raw,) = life.reading._source.poll(0.0)
    for entry in entries(raw, ("negative", "positive")):
        correction_service.read_back(entry)
        kept = life.store.get("m0")
        assert kept is not None
        assert (kept.taught, kept.taught_part) == (label, JOURNAL_PART)
    assert correction_service._written == {}  # and it is no longer kept in mind


def test_a_store_that_does_not_keep_up_is_waited_for(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A correction is answered for when it is safe; the next of its message waits for the store."""
    label = life.found[0][1]
    other = {"positive": "negative", "negative": "positive"}[label]
    correct = life.store.correct

    def fail(*_: str) -> None:
        raise RecentStoreError("busy")

    monkeypatch.setattr(life.store, "correct", fail)
    with capture_logs() as said:
        assert life.corrections.correction_service.label("m0", other).position is not None
        with pytest.raises(NotReady, match="has not taken the last correction of 'm0'"):
            life.corrections.correction_service.delete("m0")
        assert life.corrections.correction_service.delete("m2").was == life.found[2][1]
    assert {line["event"] for line in said} == {"correction_not_noted"}
    monkeypatch.setattr(life.store, "correct", correct)
    receipt = life.corrections.correction_service.delete("m0")
    assert receipt.was == other
    assert [line.get("was_part") for line in lines(life)] == ["t/0", "t/0", JOURNAL_PART]


def test_what_others_wrote_is_remembered(life: Life) -> None:
    """A correction in the log that this service did not write is told to the store as well."""
    writer = Life(life.folder, life.store, life.found)  # another's rooms over the same journal
    writer.corrections.correction_service.delete("m0")
    life.store.removed.clear()
    life.corrections.log._end = writer.corrections.log._end  # type: ignore[attr-defined]
    life.correct()
    assert life.store.get("m0") is None
    writer.end()


def test_what_could_not_be_written_is_not_remembered(life: Life) -> None:
    """An error leaves message, journal and store as they were, and a later try goes through."""
    correction_service = life.corrections.correction_service
    with capture_logs(), disk_full_at(10), pytest.raises(NotWritten):
        correction_service.delete("m0")
    assert life.store.get("m0") is not None
    assert lines(life) == []
    assert correction_service.delete("m0").was == life.found[0][1]


class Lost:
    """A log that takes a line and never says what became of it."""

    name = "labels"

    def __init__(self) -> None:
        self.is_over = False
        self.said: LogPosition | NotWritten | None = None

    def append(self, _key: bytes, _line: bytes) -> Lost:
        """Take a line."""
        return self

    def outcome(self, _timeout_s: float) -> LogPosition | None:
        """Return what is known by now."""
        if isinstance(self.said, NotWritten):
            raise self.said
        return self.said

    def is_given_up(self) -> bool:
        """Return whether nobody sends it any more."""
        return self.is_over


@pytest.mark.parametrize("end", ["given up", "refused", "safe"])
def test_a_correction_that_got_lost_is_settled_by_the_log(
    life: Life, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """Once nobody sends it any more, and the log was read to its end long enough after that."""
    service, lost, label = life.corrections.correction_service, Lost(), life.found[0][1]
    other = {"positive": "negative", "negative": "positive"}[label]
    with monkeypatch.context() as patched:
        patched.setattr(service, "_log", lost)
        with pytest.raises(InDoubt):
            service.label("m0", other)

    def settled(now_s: float, well_since_s: float) -> bool:
        service.settle_doubts(now_s, well_since_s)
        return not service._doubts

    assert not settled(100.0, 0.0)
    if end == "refused":
        lost.said = NotWritten("too large")
        assert settled(101.0, 0.0)
    elif end == "safe":
        lost.said, lost.is_over = LogPosition(Partition("labels", 0), 7), True
        assert not settled(200.0, 0.0)  # it is read back, or asked for
        return
    else:
        lost.is_over = True
        times = [(200.0, 0.0), (229.0, 0.0), (231.0, 210.0), (240.0, 210.0)]
        with capture_logs() as said:
            assert [settled(*each) for each in times] == [False, False, False, True]
        assert [(line["event"], line["id"]) for line in said] == [("correction_lost", "m0")]
    assert service.label("m0", other).was == label


def test_the_end_of_the_log_is_told_if_all_of_it_is_read_without_trouble() -> None:
    """Not while a partition is not assigned, lies behind, or cannot be read."""
    source, told = Ending(), list[tuple[float, float]]()
    clock = itertools.count(1).__next__
    reading = LogReader(source, ("negative", "positive"), lambda _: None, clock=clock)
    reading.ended = lambda now_s, since_s: told.append((now_s, since_s))
    for lag, trouble in (({0: 0}, None), ({0: 0, 1: 4}, None), ({0: 0, 1: 0}, None),
                         ({0: 0, 1: 0}, "away"), ({0: 0, 1: 0}, None)):  # fmt: skip
        source.lags, source.why = lag, trouble
        reading._turn()
    assert told == [(3, 1), (4, 4)]
    reading.close()


class Ending(Source):
    """A topic of two partitions in which nothing new stands."""

    name, n_partitions = "labels", 2

    def __init__(self) -> None:
        self.lags: dict[int, int] = {}
        self.why: str | None = None

    def open(self, position_of: Callable[[Partition], int | None]) -> None:
        """Have nothing to open."""

    def poll(self, _timeout_s: float) -> list[RawColumns]:
        """Return nothing."""
        return []

    def at_end(self) -> bool:
        """Return that it is."""
        return True

    def lag(self) -> dict[Partition, int]:
        """Return what is unread."""
        return {Partition("labels", number): n for number, n in self.lags.items()}

    def trouble(self) -> str | None:
        """Return what keeps it from being read."""
        return self.why
