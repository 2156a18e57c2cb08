"""Examples that any program wrote into the log: what no message may hold teaches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from consumers.config.settings import Settings
from consumers.corrections.model import Correction, encode
from consumers.factories import CorrectionParts, build_corrections
from consumers.messages import WEIGHT, Partition, Reason, Reject
from consumers.monitoring.metrics import Metrics
from tests.consumers.pipeline.revised_log import LOG, Run, Said

FEATURES = {
    "text": {"kind": "words"},
    "kind": {"kind": "categories", "fields": ["colour", "user", "lang"]},
    "sure": {"kind": "flags", "fields": ["bold"]},
    "size": {"kind": "numbers", "fields": ["amount"]},
}
NUMBERS: list[Any] = ["abc", "7", [1, 2], [1], {}, True, 10**400, 1e61]
UNUSABLE: list[dict[str, Any]] = [
    *({"amount": value} for value in NUMBERS),
    *({"bold": value} for value in [2, *NUMBERS[:5]]),
    *({"colour": value} for value in NUMBERS[2:5]),
    *({"text": value} for value in [5, "a\0b", ["sun"], *NUMBERS[2:7]]),
    *({"user": value} for value in [{}, [], [True]]),
    *({WEIGHT: value} for value in [-1, 1e300, *NUMBERS[:7]]),
]


class Corrected:
    """A daemon's components that learned a message, and apply what stands in the journal."""

    def __init__(self, folder: Path, *, has_memory: bool) -> None:
        self.settings = Settings.model_validate(
            {
                "checkpoint": {"folder": folder},
                "model": {"features": FEATURES},
                "message": {"weight": "weight"},
            }
        )
        self.run = Run(None, settings=self.settings)
        texts = {"b": "rain", "c": "fog"}
        log = [Said("create", "a", "sun", "positive")]
        self.run.read([*log, *(Said("create", *each) for each in texts.items())], 3)
        built = build_corrections(self.settings, None, Metrics(CollectorRegistry()), lambda: 0.0)
        assert built is not None
        self.parts: CorrectionParts = built
        self.parts.applier._memory = self.run.reviser if has_memory else None
        self.parts.applier._reading._source.open(lambda _log: None)
        self.positions: dict[Partition, int] = {LOG: 3}

    def apply(self, *said: Correction) -> list[Reject]:
        """Write corrections into the journal and apply them."""
        for each in said:
            self.parts.log.append(b"", encode(each))
        reading = self.parts.applier._reading
        for raw in reading._source.poll(0.0):
            reading._take(raw)
        return self.parts.applier.apply(self.run.learner, self.positions, {LOG})

    def end(self) -> None:
        """Let the files go."""
        self.parts.log.close()
        self.run.memory.close()


def label(name: str, offset: int, label: str, **said: Any) -> Correction:
    """Return what is said of a message."""
    return Correction("label", name, 5, label=label, partition=LOG, offset=offset, **said)


@pytest.mark.parametrize("has_memory", [True, False])
def test_a_value_that_no_message_may_hold_is_refused(tmp_path: Path, has_memory: bool) -> None:
    """The run goes on, and what the message taught so far stays; the same with the memory."""
    daemon = Corrected(tmp_path, has_memory=has_memory)
    before, n_before = daemon.run.counts, daemon.run.learner.model.n_examples
    with capture_logs() as logged:
        rejects = daemon.apply(
            *(
                said
                for example in UNUSABLE
                for said in (
                    label("a", 0, "negative", example=example, was="positive", was_part="t/0"),
                    label("b", 1, "negative", example={"text": "rain"} | example),
                )
            )
        )
    assert [(each.reason, each.id) for each in rejects] == [
        (Reason.CORRECTION, name) for _ in UNUSABLE for name in "ab"
    ]
    for reject, (field,) in zip(rejects[::2], UNUSABLE, strict=True):
        assert field.rpartition(".")[2] in reject.detail
    assert [line["event"] for line in logged] == ["correction_refused"] * len(rejects)
    assert (daemon.run.counts, daemon.run.learner.model.n_examples) == (before, n_before)
    behind = label("b", 1, "negative", example={"text": "rain"})
    assert daemon.apply(behind) == []  # what stands behind them is applied
    assert daemon.run.learner.model.n_examples == n_before + 1
    daemon.end()


def test_an_example_is_learned_as_a_message_with_its_values(tmp_path: Path) -> None:
    """Also values that another program wrote otherwise: a category is named as in the stream."""
    found = []
    for has_memory in (True, False):
        folder = tmp_path / str(has_memory)
        folder.mkdir()
        daemon = Corrected(folder, has_memory=has_memory)
        example = {
            "text": "rain", "colour": True, "bold": 1, "amount": 3, "unread": [1],
            "user": "a\0b", "lang": ["en"],
        }  # fmt: skip
        assert daemon.apply(label("b", 1, "negative", example=example)) == []
        assert daemon.apply(label("c", 2, "negative", example={"text": "fog", "user": 17})) == []
        model, told = daemon.run.learner.model, example | {"colour": "true", "lang": "en"}
        assert model.n_examples == 3
        found.append(model.raw().predict_proba_one({k: told[k] for k in told if k != "unread"}))
        daemon.end()
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["delete", "withdraw"])
def test_what_is_taken_back_alone_needs_no_example(tmp_path: Path, kind: Any) -> None:
    """A deletion is by the memory; what is withdrawn is remembered with its example."""
    daemon = Corrected(tmp_path, has_memory=True)
    said = Correction(kind, "a", 5, {"amount": "abc"}, None, "positive", "t/0", LOG, 0)
    with capture_logs():
        rejects = daemon.apply(said)
    assert [each.id for each in rejects] == ([] if kind == "delete" else ["a"])
    assert daemon.run.learner.model.n_examples == (0 if kind == "delete" else 1)
    daemon.end()
