"""Labels equal to the one that a message has: they teach nothing again, and cost no more each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from consumers.corrections.model import Correction, encode
from consumers.messages import WEIGHT
from consumers.pipeline import learned_memory
from consumers.pipeline.learned_memory import LogMemory
from consumers.pipeline.learned_records import FoundRecords, Longs
from streamnb import Learner
from tests.consumers.corrections.test_applier import Lines, sharing
from tests.consumers.pipeline.revised_log import LOG, WEIGHTED, Run, Said

N = 50  # labels
CREATE, OTHER = Said("create", "a", "sun", "positive"), Said("create", "b", "rain", "positive")
LABEL = Correction("label", "a", 5, {"text": "sun"}, "negative", "positive", "t/0", LOG, 0)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the model learns and takes back, and each record that is read, as it happens."""
    done: list[str] = []
    learn, unlearn, read = Learner.learn, Learner.unlearn_many, LogMemory.read

    def learned(self: Learner, part: str, columns: Any, labels: Any, **how: Any) -> Any:
        done.extend(["learn"] * (len(labels) if isinstance(labels, list) else 0))
        return learn(self, part, columns, labels, **how)

    def unlearned(self: Learner, part: str, columns: Any, labels: Any, **how: Any) -> None:
        done.append("unlearn")
        unlearn(self, part, columns, labels, **how)

    def found(self: LogMemory, numbers: Longs) -> FoundRecords:
        done.extend(["read"] * len(numbers))
        return read(self, numbers)

    monkeypatch.setattr(Learner, "learn", learned)
    monkeypatch.setattr(Learner, "unlearn_many", unlearned)
    monkeypatch.setattr(LogMemory, "read", found)
    return done


def test_equal_labels_of_one_message_cost_the_same_each(steps: list[str]) -> None:
    """The last one reads no more records than the second; the first alone teaches."""
    source, run = Lines(), Run(None)
    reading, applier = sharing(source, run)
    run.read([CREATE, OTHER], 2)
    positions = {LOG: 2}
    applier.take_over(LOG, positions)
    source.lines[0] = []
    read = []
    for n in range(1, N + 1):
        source.lines[0].append(encode(LABEL))
        reading._rewind()
        for raw in source.poll(0.0):
            reading._take(raw)
        steps.clear()
        assert applier.apply(run.learner, positions, {LOG}) == []
        assert positions[applier._stream.log_of(LOG)] == n  # type: ignore[union-attr]
        assert ("learn" in steps, "unlearn" in steps) == (n == 1, n == 1)
        read.append(steps.count("read"))
    assert len(set(read[1:])) == 1
    assert run.memory.log(LOG).n == 3
    assert run.learner.model.class_counts.tolist() == [1.0, 1.0]
    # The label holds for an update, and goes with the message.
    run.read([CREATE, OTHER, Said("update", "a", "snow")], 3)
    assert run.learner.model.class_counts.tolist() == [1.0, 1.0]
    run.read([CREATE, OTHER, Said("update", "a", "snow"), Said("delete", "a")], 4)
    assert run.learner.model.words() == ["rain"]
    run.memory.close()


@pytest.mark.parametrize(
    ("second", "part", "left"),
    [
        (replace(LABEL, label="positive"), "journal/0", ("positive", "sun", 1.0)),
        (replace(LABEL, example={"text": "snow"}), "journal/0", ("negative", "snow", 1.0)),
        (replace(LABEL, example={}), "journal/0", ("negative", None, 1.0)),
        (replace(LABEL, example={"text": "sun", WEIGHT: 2.0}), "journal/0",
         ("negative", "sun", 2.0)),
        (LABEL, "journal/1", ("negative", "sun", 1.0)),
    ],
)  # fmt: skip
def test_a_label_that_differs_is_learned_in_its_place(
    second: Correction, part: str, left: tuple[str, str | None, float]
) -> None:
    """By its class, its contents, its weight or its part."""
    run = Run(None, settings=WEIGHTED)
    run.read([CREATE], 1)
    run.correct(LABEL)
    message = run.reviser.corrected_message(second)
    assert message is not None
    run.reviser.correct(second, message, part, run.learner)
    model, (label, word, weight) = run.learner.model, left
    assert run.memory.log(LOG).n == 3
    assert dict(zip(model.classes, model.class_counts.tolist(), strict=True))[label] == weight
    assert model.words() == ([] if word is None else [word])
    assert {name for name, own in model.parts.items() if own.class_counts.any()} == {part}
    run.memory.close()


@pytest.mark.parametrize("is_killed", [True, False])
def test_an_equal_label_is_remembered_as_long_as_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """It holds for an update that comes when the first one has left the memory."""
    monkeypatch.setattr(learned_memory, "SEGMENT_RECORDS", 4)
    log = [CREATE] + [Said("create", f"m{i}", "rain", "positive") for i in range(11)]
    log.append(Said("update", "a", "snow"))
    run = Run(tmp_path, records_max=4)
    run.read(log, 2)
    run.correct(LABEL)
    run.read(log, 3)
    assert run.memory.log(LOG).n == 4
    run.correct(LABEL)  # in the second segment
    run.correct(LABEL)
    assert run.memory.log(LOG).n == 5
    run.read(log, 6)
    if is_killed:
        run.save()
        run.memory.close()
        run = Run(tmp_path, records_max=4)
    assert sorted(run.memory.log(LOG).segments) == [1]
    run.read(log[:6] + log[-1:], 7)
    assert run.reviser.counts["update_matched"] == 1
    assert run.learner.model.class_counts.tolist() == [1.0, 5.0]
    run.memory.close()
