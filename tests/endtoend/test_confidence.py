"""Calibrated probabilities, prediction sets and costs, from the log to every way out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from consumers.cli.model_report import answering, predict, read_model
from consumers.config.settings import Settings
from consumers.features import build_model
from consumers.sinks.records import is_output, prediction_without_text
from streamnb import (
    AnswerRule,
    Calibrator,
    Confidence,
    ConformalSets,
    EveryExamples,
    Learner,
    SnapshotBoard,
)
from streamnb.storage import read
from tests.endtoend.expected_counts import examples
from tests.endtoend.test_late_labels import label, message, said
from tests.endtoend.test_late_labels import replay as replay_late
from tests.endtoend.test_reproducible import KEY, N, replay, same_however_cut, stream

COSTS = {"negative": {"positive": 20.0}}
MODEL: dict[str, Any] = {"hash_key": KEY, "calibration": True, "coverage": 0.8, "costs": COSTS}


def learned_at(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint knows of the answers' worth."""
    found: dict[str, Any] = read(folder / "model.nb").header["notes"]["entries"]["confidence"]
    return found


def test_batches_and_stops_change_no_byte(tmp_path: Path) -> None:
    """Counts, threshold, model and predictions are a function of the log, restored or not."""
    same_however_cut(tmp_path, stream(tmp_path), model=MODEL)


JOINING: dict[str, Any] = {
    "hash_key": KEY, "new_classes": True, "calibration": True, "coverage": 0.8
}  # fmt: skip
BESIDE = {"words": {"features": {"text": {"ngrams": [1, 1], "hybrid": False}}}}


@pytest.mark.parametrize("challengers", [{}, BESIDE], ids=["alone", "challenged"])
def test_a_class_that_joins_changes_no_byte_wherever_the_log_is_cut(
    tmp_path: Path, challengers: dict[str, Any]
) -> None:
    """Losses of those before it, and so calibrations and figures, do not know the class yet."""
    source, found = tmp_path / "in.jsonl", []
    lines = [
        {"id": f"m{i}", "text": text} | ({"label": f"{truth}{i // 400 or ''}"} if i % 3 else {})
        for i, (text, truth) in enumerate(examples(1_000))
    ]
    source.write_text("".join(json.dumps(each) + "\n" for each in lines), encoding="utf-8")
    own: dict[str, Any] = {"model": JOINING, "challengers": challengers}
    for name, batch_bytes in (("whole", 1 << 22), ("small", 1_024)):
        replay(tmp_path / name, source, file={"batch_bytes": batch_bytes}, **own)
        folder = tmp_path / name
        found.append(((folder / "model.nb").read_bytes(), (folder / "out.jsonl").read_bytes()))
    assert found[0][1] == found[1][1]
    assert found[0][0] == found[1][0]


@pytest.mark.parametrize("challengers", [{}, BESIDE], ids=["alone", "challenged"])
def test_a_class_that_joins_late_changes_no_figure_wherever_labels_are_cut(
    tmp_path: Path, challengers: dict[str, Any]
) -> None:
    """What was said of a message before its label came did not know the class, in any cut."""
    n = 600
    told = [f"{truth}{i // 200 or ''}" for i, (_, truth) in enumerate(examples(n))]
    texts = [{"text": text} for text, _ in examples(n)]
    messages = [said(i, 0, **texts[i], label=told[i]) for i in range(100)]
    messages += [said(i, 0, **texts[i]) for i in range(100, n)]
    labels = [said(i, 300, label=told[i]) for i in range(100, n)]
    learning = {"publish": "examples", "publish_examples": 100}
    own: dict[str, Any] = {"model": JOINING, "challengers": challengers, "learning": learning}
    found = []
    for name, batch_bytes in (("whole", 1 << 22), ("small", 1_024)):
        (tmp_path / name).mkdir()
        for some in ([], labels):
            replay_late(tmp_path / name, messages, some, file={"batch_bytes": batch_bytes}, **own)
        stored = read(tmp_path / name / "state" / "model.nb")
        names = ("prequential", "confidence", "challengers")
        entries = stored.header["notes"]["entries"]
        arrays = {
            key: array.tobytes()
            for key, array in stored.extras.items()
            if key.startswith(("prequential/", "challengers/"))
        }
        found.append(([entries.get(each) for each in names], arrays))
    assert found[0][0] == found[1][0]
    assert found[0][1] == found[1][1]
    assert found[0][0][0]["n"] == n


def test_by_time_too_a_restart_goes_on_with_what_was_counted(tmp_path: Path) -> None:
    """The counts are of the same place in the log as the model."""
    source, learning = stream(tmp_path), {"publish": "interval"}
    for n in (500, 1, 700):
        replay(tmp_path / "stopped", source, n=n, model=MODEL, learning=learning)
    replay(tmp_path / "stopped", source, model=MODEL, learning=learning)
    replay(tmp_path / "whole", source, model=MODEL, learning=learning)
    assert learned_at(tmp_path / "stopped") == learned_at(tmp_path / "whole")


def test_predictions_are_those_of_the_library(tmp_path: Path) -> None:
    """Each record has the probabilities, the set and the decision of its place in the log."""
    source = stream(tmp_path)
    replay(tmp_path / "out", source, model=MODEL)
    lines = (tmp_path / "out" / "out.jsonl").read_bytes().splitlines()
    records = {each["id"]: each for each in map(json.loads, lines)}
    model = build_model(Settings.model_validate({"model": MODEL}).model)
    confidence = Confidence(Calibrator(), ConformalSets(0.8), [[0.0, 20.0], [1.0, 0.0]])
    learner = Learner(model, SnapshotBoard(), EveryExamples(70), lambda: 0.0, confidence=confidence)
    decided, sizes = set(), set()
    for i, (text, truth) in enumerate(examples(N)):
        if i % 97 == 0:
            continue
        if i % 3:
            learner.learn("in.jsonl[0]", {"text": [text]}, [truth])
            continue
        logs = learner.snapshot.predict_log_proba_many({"text": [text]})
        record, rule = records[f"m{i}"], learner.snapshot.rule
        assert [*record["log_posteriors"].values()] == logs[0].tolist()
        sets = rule.sets(logs)
        assert sets is not None
        expected = [name for name, is_in in zip(model.classes, sets[0], strict=True) if is_in]
        assert record["prediction_set"] == expected
        assert record["decision"] == model.classes[rule.labels(logs)[0]]
        assert record["label"] == model.classes[int(logs[0].argmax())]
        decided.add((record["label"], record["decision"]))
        sizes.add(len(expected))
    assert ("positive", "negative") in decided  # the costs have made a difference
    assert len(sizes) > 1
    assert is_output(lines[0] + b"\n")
    erased = prediction_without_text(lines[0], {b'"m3"': {}})
    assert erased is not None
    assert json.loads(erased)["prediction_set"] == json.loads(lines[0])["prediction_set"]


def test_the_command_answers_by_the_checkpoint(tmp_path: Path) -> None:
    """`streamnb predict` is calibrated, with a set, and with the costs of its configuration."""
    replay(tmp_path / "out", stream(tmp_path), model=MODEL)
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"model": MODEL}))
    stored, _ = read_model(tmp_path / "out" / "model.nb")
    known = learned_at(tmp_path / "out")
    calibrator = Calibrator.from_dict(known["calibrator"])
    threshold = ConformalSets.from_dict(known["conformal"]).standing_threshold
    rule = AnswerRule(calibrator.curve, threshold, np.array([[0.0, 20.0], [1.0, 0.0]]))
    example = {"text": "sun rain coffee"}
    stated = stored.model.predict_log_proba_many({"text": [example["text"]]})
    logs = rule.calibrated(stated)
    answer = predict(answering(stored, config), example)
    np.testing.assert_allclose([*answer["probabilities"].values()], np.exp(logs[0]))
    sets = rule.sets(logs)
    assert sets is not None
    assert len(answer["prediction_set"]) == sets.sum()
    assert answer["decision"] == stored.model.classes[rule.labels(logs)[0]]
    plain = predict(stored.model, example)
    assert "decision" not in plain
    assert plain["label"] == answer["label"]


def test_a_setting_that_changes_begins_anew_and_the_others_go_on(tmp_path: Path) -> None:
    """Sets of another coverage begin anew; what is turned off is left out of the checkpoint."""
    source, folder = stream(tmp_path), tmp_path / "state"
    replay(folder, source, n=900, model=MODEL)
    before = learned_at(folder)
    replay(folder, source, n=90, model=MODEL | {"coverage": 0.9})
    after = learned_at(folder)
    assert after["conformal"]["coverage"] == 0.9
    assert 0 < after["conformal"]["n"] < 90
    assert after["calibrator"]["n"] == before["calibrator"]["n"] + after["conformal"]["n"]
    replay(folder, source, n=90, model={"hash_key": KEY})
    assert "confidence" not in read(folder / "model.nb").header["notes"]["entries"]


def test_a_setting_that_changes_holds_before_the_next_snapshot(tmp_path: Path) -> None:
    """What is turned off is in no answer after the restart, and sets are of the new coverage."""
    source = stream(tmp_path)
    replay(tmp_path / "state", source, n=900, model=MODEL)
    entries = read(tmp_path / "state" / "model.nb").header["notes"]["entries"]
    version = entries["snapshot"]["version"]
    first = {}
    for name, change in (
        ("sets", {"coverage": None}),
        ("curve", {"calibration": False}),
        ("coverage", {"coverage": 0.999}),
        ("both", {"coverage": None, "calibration": False}),
    ):
        folder = tmp_path / name
        shutil.copytree(tmp_path / "state", folder)
        begin = (folder / "out.jsonl").stat().st_size
        replay(folder, source, n=3, model=MODEL | change)
        first[name] = json.loads((folder / "out.jsonl").read_bytes()[begin:].splitlines()[0])
        assert first[name]["snapshot_version"] == version
    assert "prediction_set" not in first["sets"]
    assert "prediction_set" not in first["both"]
    assert first["both"]["probabilities"] == first["curve"]["probabilities"]
    assert first["both"]["probabilities"] != first["sets"]["probabilities"]
    fresh = ConformalSets(0.999).threshold
    expected = [name for name, p in first["coverage"]["probabilities"].items() if 1 - p <= fresh]
    assert first["coverage"]["prediction_set"] == expected


def test_a_late_label_counts_by_what_was_stated_first(tmp_path: Path) -> None:
    """The counts are those of the plain model's first predictions, not of calibrated ones."""
    n = 1_000
    messages, labels = [message(i) for i in range(n)], [label(i) for i in range(n)]
    learning = {"publish": "examples", "publish_examples": 100}
    for name, model in (("plain", {"hash_key": KEY}), ("calibrated", MODEL)):
        folder = tmp_path / name
        folder.mkdir()
        replay_late(folder, messages, labels, learning=learning, model=model)
    texts, truths = zip(*examples(n), strict=True)
    records = [
        [json.loads(line) for line in (tmp_path / name / "out.jsonl").read_bytes().splitlines()]
        for name in ("plain", "calibrated")
    ]
    learned = read(tmp_path / "calibrated" / "state" / "model.nb")
    assert learned.model.n_examples == n == len(texts)
    known = learned.header["notes"]["entries"]["confidence"]
    calibrator = Calibrator.from_dict(known["calibrator"])
    classes = list(learned.model.classes)
    versions = [[each["snapshot_version"] for each in own] for own in records]
    assert versions[0] == versions[1]
    expected = Calibrator()
    expected.prequential_many(
        [[each["log_posteriors"][name] for name in classes] for each in records[0]],
        [classes.index(truths[int(each["id"][1:])]) for each in records[0]],
    )
    assert calibrator.n == n
    assert calibrator.counts.tolist() == expected.counts.tolist()
