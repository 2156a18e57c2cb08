"""Classes that join a running daemon, by its stream and by people, if the settings let them."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from consumers.config.model import ModelSettings, PromotionSettings
from consumers.features import SavedConfidence, build_model
from consumers.pipeline.challengers import ChallengedLearner, Challengers
from streamnb import EveryExamples, SnapshotBoard
from streamnb.storage import read
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config

LABELS = ("negative", "positive", "sport", 7, "sport", None, "positive")
WORDS = ("awful", "lovely", "goal", "seven", "match", "goal match", "bright")


def stream_of(tmp_path: Path) -> Path:
    """Write a stream whose labels are not all declared."""
    lines: list[dict[str, Any]] = [
        {"id": f"m{i}", "text": f"{word} day"} | ({} if label is None else {"label": label})
        for i, (word, label) in enumerate(zip(WORDS, LABELS, strict=True))
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def config_of(tmp_path: Path, *, new_classes: bool) -> Path:
    """Return a configuration of two declared classes."""
    return write_config(
        tmp_path / "config.yaml",
        source=f"file:{tmp_path}/in.jsonl",
        model={"new_classes": new_classes},
        checkpoint={"folder": "state", "interval_s": 0.05},
    )


def classes_of(daemon: Daemon) -> dict[str, float]:
    """Return the classes of /v1/model with their counts."""
    model = json.loads(daemon.get("/v1/model")[1])
    return {row["label"]: row["count"] for row in model.get("classes", [])}


def samples(daemon: Daemon, name: str) -> dict[str, float]:
    """Return the samples of a metric by their label `label`."""
    found = {}
    for line in daemon.get("/metrics")[1].splitlines():
        if line.startswith(name + '{label="'):
            label, _, value = line.removeprefix(name + '{label="').partition('"} ')
            found[label] = float(value)
    return found


def until_page_has(daemon: Daemon, names: list[str]) -> None:
    """Wait until the page's classes are these: those of the model are known a moment earlier."""
    daemon.until(lambda: json.loads(daemon.get("/v1/page")[1])["classes"] == names, "the page's")


def check_everywhere(daemon: Daemon, counts: dict[str, int]) -> None:
    """Compare the classes of model, page, search and summary with those that were learned."""
    names = list(counts)
    daemon.until(lambda: classes_of(daemon) == counts, f"the classes {counts}")
    until_page_has(daemon, names)
    daemon.until(lambda: json.loads(daemon.get("/v1/summary")[1])["n"] == len(LABELS), "all stored")
    assert json.loads(daemon.get("/v1/summary")[1])["classes"] == names
    found = json.loads(daemon.get("/v1/search?q=day")[1])["messages"]
    assert len(found) == len(LABELS)
    assert all(list(message["probabilities"]) == names for message in found)
    daemon.until(lambda: list(samples(daemon, "streamnb_share_ratio")) == names, "the shares")


def test_labels_of_stream_and_api_add_classes(tmp_path: Path) -> None:
    """They are learned and shown everywhere, also after a restart from the checkpoint."""
    stream_of(tmp_path)
    config = config_of(tmp_path, new_classes=True)
    counts = {"negative": 1, "positive": 2, "sport": 2, "7": 1}
    with Daemon(config) as daemon:
        check_everywhere(daemon, counts)
        learned = samples(daemon, "streamnb_examples_learned_total")
        assert learned == counts
        said = json.loads(daemon.get("/v1/search?q=match")[1])["messages"]
        assert {message["truth"] for message in said} == {"sport", None}
        # One message teaches a class that nobody has named before, then another in its place.
        daemon.until_it_takes_corrections()
        for label in ("weather", "climate"):
            status, _ = ask(daemon.address, "POST", "/v1/labels", {"id": "m6", "label": label})
            assert status == 202
            daemon.until_page("/v1/messages/m6", 200, f'"corrected":"{label}"')
        assert ask(daemon.address, "POST", "/v1/labels", {"text": "x", "label": ""})[0] == 422
        counts |= {"positive": 1, "weather": 0, "climate": 1}
        check_everywhere(daemon, counts)
        answer = ask(daemon.address, "POST", "/v1/predict", {"text": "goal match"})[1]
        assert answer["predictions"][0]["label"] == "sport"
        assert daemon.metric("streamnb_rejects_total") == 0
        assert daemon.stop() == 0
    assert read(tmp_path / "state" / "model.nb").model.classes == tuple(counts)
    with Daemon(config) as daemon:
        daemon.until_line("restored")
        check_everywhere(daemon, counts)
        assert daemon.count("recent_store_moved_aside") == 0
        with (tmp_path / "in.jsonl").open("a") as file:
            file.write(json.dumps({"id": "n", "text": "rain day", "label": "climate"}) + "\n")
        daemon.until(lambda: classes_of(daemon)["climate"] == 2, "one more")
        assert daemon.stop() == 0


@pytest.mark.deep
def test_an_older_checkpoint_brings_its_own_classes(tmp_path: Path) -> None:
    """Those of a damaged newest file are not known: another class may take their place."""
    stream, state = tmp_path / "in.jsonl", tmp_path / "state"
    first = json.dumps({"id": "a", "text": "lovely day", "label": "positive"}) + "\n"
    stream.write_text(first)
    config = config_of(tmp_path, new_classes=True)
    with Daemon(config) as daemon:
        daemon.until(lambda: classes_of(daemon).get("positive") == 1, "the first")
        assert daemon.stop() == 0
    older = (state / "model.nb").read_bytes()
    joins = {"id": "b", "text": "goal day", "label": "sport"}
    stream.write_text(first + json.dumps(joins) + "\n")
    with Daemon(config) as daemon:
        daemon.until(lambda: "sport" in classes_of(daemon), "the class that joins")
        assert daemon.stop() == 0
    newest = (state / "model.nb").read_bytes()
    (state / "model.nb").write_bytes(newest[:-1] + bytes([newest[-1] ^ 1]))
    for each in state.glob("model.nb.*"):
        each.unlink()
    (state / "model.nb.1").write_bytes(older)
    stream.write_text(first + json.dumps(joins | {"label": "weather"}) + "\n")
    with Daemon(config) as daemon:
        daemon.until(lambda: "weather" in classes_of(daemon), "the class that joins instead")
        names = ["negative", "positive", "weather"]
        assert list(classes_of(daemon)) == names
        until_page_has(daemon, names)
        daemon.until(lambda: list(samples(daemon, "streamnb_share_ratio")) == names, "metrics")
        assert daemon.stop() == 0


@pytest.mark.deep
def test_a_kill_between_a_class_and_its_checkpoint_keeps_the_store(tmp_path: Path) -> None:
    """The store lists a class that the checkpoint lacks; the replay brings it again."""
    stream = tmp_path / "in.jsonl"
    lines = [
        {"id": "a", "text": "lovely day", "label": "positive"},
        {"id": "b", "text": "goal day", "label": "sport"},
    ]
    stream.write_text(json.dumps(lines[0]) + "\n")
    config = config_of(tmp_path, new_classes=True)

    def label_of(daemon: Daemon, name: str) -> str | None:
        status, body = daemon.get(f"/v1/messages/{name}")
        return json.loads(body)["truth"] if status == 200 else None

    with Daemon(config) as daemon:
        daemon.until(lambda: label_of(daemon, "a") == "positive", "the first")
        assert daemon.stop() == 0
    older = (tmp_path / "state" / "model.nb").read_bytes()
    with stream.open("a") as file:
        file.write(json.dumps(lines[1]) + "\n")
    with Daemon(config) as daemon:
        daemon.until(lambda: label_of(daemon, "b") == "sport", "the class that joins")
        assert daemon.stop() == 0
    (tmp_path / "state" / "model.nb").write_bytes(older)
    with Daemon(config) as daemon:
        daemon.until(lambda: "sport" in classes_of(daemon), "the class that joins again")
        assert label_of(daemon, "a") == "positive"
        daemon.until(lambda: label_of(daemon, "b") == "sport", "its message")
        assert json.loads(daemon.get("/v1/summary")[1])["n"] == len(lines)
        assert daemon.count("recent_store_moved_aside") == 0
        assert daemon.stop() == 0


def test_declared_classes_are_closed_otherwise(tmp_path: Path) -> None:
    """Labels that are not declared are rejected, and people are told."""
    stream_of(tmp_path)
    with Daemon(config_of(tmp_path, new_classes=False)) as daemon:
        daemon.until(
            lambda: classes_of(daemon) == {"negative": 1, "positive": 2}, "what is declared"
        )
        daemon.until_metric("streamnb_rejects_total", 3)
        status, problem = ask(daemon.address, "POST", "/v1/labels", {"text": "x", "label": "sport"})
        assert (status, "sport" in problem["detail"]) == (422, True)
        assert daemon.stop() == 0


@pytest.mark.parametrize("serving", ["model", "later"])
def test_what_a_person_brings_joins_each_challenger(serving: str) -> None:
    """In one order, also where a model began too late to learn what is corrected."""
    settings = ModelSettings(new_classes=True)
    challengers = Challengers({"model": settings, "later": settings}, PromotionSettings(), 10)
    model, saved = build_model(settings), SavedConfidence(settings)
    model.prequential_many({"text": ["a", "b"]}, ["positive", "negative"], part="p")
    challengers.begin(model, saved, {"p": 2})
    if serving == "later":
        model = challengers.serve("later").model
    learner = ChallengedLearner(
        challengers, model, SnapshotBoard(), EveryExamples(10), time.monotonic,
        confidence=saved.learned,
    )  # fmt: skip
    classes = model.classes
    learner.learn_one("p", {"text": "z"}, "brought")
    learner.learn("p", {"text": ["z"]}, ["streamed"])
    for each in challengers.models.values():
        assert each.model.classes == (*classes, "brought", "streamed")
