"""What a person deletes goes with the earlier messages of its id, as it is erased with them."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.corrections.model import Correction
from consumers.features import build_model
from consumers.kernels.learned_records import CREATED, ERASED, TAKEN_BACK, WAITING
from consumers.messages import part_name
from consumers.pipeline.learned_records import LearnedRecord
from consumers.pipeline.waiting_messages import living, pack_time, waiting_messages
from tests.consumers.pipeline import late_logs
from tests.consumers.pipeline.late_logs import LateRun
from tests.consumers.pipeline.revised_log import LOG, LOGS, SETTINGS, Run, Said
from tests.consumers.pipeline.test_late_labels import DEFAULTS
from tests.endtoend.expected_counts import Counts, counts

pytestmark = pytest.mark.usefixtures("short_segments")


def deletion(name: str, offset: int) -> Correction:
    """Return what a person says."""
    return Correction("delete", name, 5, {}, None, None, None, LOG, offset)


class Page:
    """What the messages of each id teach, by offset."""

    def __init__(self) -> None:
        self.alive: dict[str, dict[int, Said]] = defaultdict(dict)
        self.seen, self.early = set[str](), set[str]()
        self.nameless: list[Said] = []

    def read(self, at: int, each: Said) -> None:
        """Read the next message."""
        own = {} if each.label is None or each.operation == "tombstone" else {at: each}
        if each.id is None:
            self.nameless += own.values()
        elif each.operation == "create":
            if each.id in self.early:
                self.early.remove(each.id)
            elif own:
                self.alive[each.id] |= own
                self.seen.add(each.id)
        else:
            if each.id not in self.seen:
                self.early.add(each.id)
            self.alive[each.id] = own if each.operation == "update" else {}
            self.seen.add(each.id)

    def delete(self, name: str, at: int) -> int:
        """Delete the messages of an id up to one, or to an update of it; return that offset."""
        own = self.alive[name]
        later = [k for k, each in own.items() if k > at and each.operation == "update"]
        last = max([at, *later]) if at not in own else at
        self.alive[name] = {k: each for k, each in own.items() if k > last}
        return last

    @property
    def counts(self) -> Counts:
        """What a model counts that learned what is left."""
        model = build_model(SETTINGS.model)
        for each in (*self.nameless, *(e for own in self.alive.values() for e in own.values())):
            model.learn_one({"text": each.text}, str(each.label), part=part_name(LOG))
        return counts(model)


@given(LOGS, st.lists(st.tuples(st.integers(1, 5), st.integers(0, 39), st.booleans()), max_size=8))
def test_the_counts_do_not_depend_on_when_texts_are_erased(
    log: list[Said], steps: list[tuple[int, int, bool]]
) -> None:
    """Whatever people delete between two batches, and whether it is erased and read again."""
    with tempfile.TemporaryDirectory() as name:
        folder, page, deleted = Path(name), Page(), dict[str, int]()
        run = Run(folder)
        for size, number, is_erased in [*steps, (len(log), 0, True)]:
            until = min(len(log), run.position + size)
            for at in range(run.position, until):
                page.read(at, log[at])
            run.read(log, until)
            at = number % max(1, until)
            if until and log[at].id is not None and log[at].operation in {"create", "update"}:
                said = deletion(str(log[at].id), at)
                run.correct(said)
                last = page.delete(said.id, at)
                deleted[said.id] = max(last, deleted.get(said.id, last))
            if is_erased:
                run.save()
                run.memory.erase({LOG: deleted})
                run.memory.close()
                run = Run(folder)
            assert run.counts == page.counts
            assert not run.reviser.counts["refused"]
        run.memory.close()


@pytest.mark.parametrize("label", ["negative", None])
def test_what_was_deleted_with_a_later_message_is_gone(tmp_path: Path, label: str | None) -> None:
    """A label of it comes too late, and the stream's own delete finds nothing."""
    log = [
        Said("create", "a", "sun", "positive"),
        Said("create", "a", "rain", label),
        Said("create", "a", "snow", "positive"),
        Said("delete", "a"),
    ]
    run = Run(tmp_path)
    run.read(log, 2)
    said = deletion("a", 1)
    assert run.state(said) == "teaches"
    run.correct(said)
    assert run.learner.model.n_examples == 0
    for offset in (0, 1):
        label_of = Correction("label", "a", 5, {}, "positive", None, None, LOG, offset)
        assert run.state(label_of) == "gone"
    run.read(log, 3)
    assert run.learner.model.words() == ["snow"]
    run.save()
    run.memory.erase({LOG: {"a": 1}})
    run.memory.close()
    run = Run(tmp_path)
    run.read(log, 4)
    assert run.counts == Page().counts
    assert (run.reviser.counts["unlearned"], run.reviser.counts["refused"]) == (1, 0)
    run.memory.close()


@pytest.mark.parametrize(
    ("second", "at"),
    [
        (late_logs.Said("create", "a", 160, "rain", "positive"), 1),
        (late_logs.Said("create", "a", 160, "rain"), 1),
        (late_logs.Said("update", "a", 100, "snow"), 0),
    ],
)
def test_earlier_messages_that_wait_are_deleted(
    tmp_path: Path, second: late_logs.Said, at: int
) -> None:
    """Erased, they are learned by no label, nor as the default; nor is an update that waits."""
    log = [late_logs.Said("create", "a", 100, "sun"), second]
    log += [late_logs.Said("create", None, 400, "love")] * 2
    run = LateRun(tmp_path, DEFAULTS)
    run.read(log, 2)
    run.correct(deletion("a", at))
    assert run.learner.model.n_examples == 0
    run.save()
    run.memory.erase({LOG: {"a": 1}})
    run.memory.close()
    run = LateRun(tmp_path, DEFAULTS)
    run.read(log, 2)
    run.read_labels([late_logs.Label("a", 100, "positive")], 1)
    assert run.learner.model.n_examples == 0
    assert run.late.counts_now()["message_gone"] == 1
    run.memory.close()


def test_what_an_earlier_version_noted_means_what_it_meant() -> None:
    """It took back one message alone; and of an erased update nothing was known any more."""
    said = [(CREATED, 0), (CREATED, 1), (WAITING, 2), (ERASED, 3), (TAKEN_BACK, 3)]
    records = [
        LearnedRecord(number, kind, offset, 0, b"a", more=pack_time(100.0))
        for number, (kind, offset) in enumerate(said)
    ]
    assert living(records) == records[:2]
    ((waiting,),) = waiting_messages([records])
    assert waiting.state == "gone"


_UPDATE, _BARE, _DELETE = (
    Said("update", "a", "rain"),
    Said("create", "a", "sun"),
    Said("delete", "a"),
)
_TOLD = Said("create", "a", "sun", "positive")


@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.parametrize(
    "log",
    [
        [_TOLD, _UPDATE, _DELETE],
        [_BARE, _UPDATE, _DELETE],
        [_UPDATE, _DELETE],
        [_TOLD, _DELETE, _BARE, _DELETE],
        [_TOLD, _DELETE, _UPDATE, _DELETE],
        [_TOLD, _UPDATE, _DELETE, _UPDATE, _DELETE, Said("tombstone", "a")],
    ],
)
def test_a_label_behind_the_deletion_is_of_nothing(log: list[Said], size: int) -> None:
    """The memory knows of the deletion, though what was deleted last had no label."""
    run = Run(None)
    for at in range(0, len(log), size):
        run.read(log, min(at + size, len(log)))
    for at, each in enumerate(log):
        if each.operation in {"create", "update"}:
            said = Correction("label", "a", 5, {"text": each.text}, "positive", None, None, LOG, at)
            assert run.state(said) == "gone"
