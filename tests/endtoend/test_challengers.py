"""Challengers learn what the serving model learns, are judged alike, and may take its place."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from structlog.testing import capture_logs

from consumers.cli.model_report import read_newest
from consumers.cli.verify import verify
from consumers.config.model import ModelSettings, PromotionSettings, WordsSettings
from consumers.config.sections import CheckpointSettings
from consumers.errors import MismatchError
from consumers.features import SavedConfidence, build_model
from consumers.messages import CheckpointEntry
from consumers.monitoring.prequential import Prequential
from consumers.pipeline.challengers import Candidate, ChallengedLearner, Challengers, revert
from streamnb import EveryExamples, NaiveBayes, SnapshotBoard, serialization
from streamnb.features.words import WordsState
from streamnb.storage import Stored, read
from tests.consumers.cli.test_commands import Command, command
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import examples
from tests.endtoend.test_late_labels import label, message
from tests.endtoend.test_late_labels import replay as replay_late
from tests.endtoend.test_reproducible import KEY, replay, same_however_cut, stream

__all__ = ["command"]
PLAIN: dict[str, Any] = {"text": {"likelihood": "bernoulli", "ngrams": [1, 1]}}
PAIRS: dict[str, Any] = {"text": {"likelihood": "multinomial", "ngrams": [1, 2]}}
WORDS: dict[str, Any] = {"text": {"likelihood": "multinomial", "ngrams": [1, 1], "hybrid": False}}
MODEL: dict[str, Any] = {"hash_key": KEY, "features": PLAIN}
CHALLENGERS: dict[str, Any] = {
    "pairs": {"features": PAIRS},
    "words": {"features": WORDS, "calibration": True},
}
PROMOTION = {"action": "promote", "examples": 300, "margin_nats": 0.05}
SECTIONS: dict[str, Any] = {"model": MODEL, "challengers": CHALLENGERS, "promotion": PROMOTION}


def stored_at(folder: Path) -> Stored:
    """Return the newest checkpoint of a folder."""
    return read(folder / "model.nb")


def entry(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint says of its challengers."""
    found: dict[str, Any] = stored_at(folder).header["notes"]["entries"]["challengers"]
    return found


def model_of(folder: Path, name: str) -> NaiveBayes:
    """Return a model of a checkpoint by its name."""
    stored, said = stored_at(folder), entry(folder)
    if said["serving"] == name:
        return stored.model
    prefix = f"challengers/{name}/model/"
    arrays = {k.removeprefix(prefix): v for k, v in stored.extras.items() if k.startswith(prefix)}
    return NaiveBayes.of(serialization.unpack(said["models"][name]["model"], arrays)[0])


def write_log(folder: Path, log: Iterable[dict[str, Any]]) -> Path:
    """Write messages to a file."""
    path = folder / "in.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in log), encoding="utf-8")
    return path


def revised(n: int) -> list[dict[str, Any]]:
    """Return a log in which the stream deletes and updates some of what it said before."""
    log: list[dict[str, Any]] = []
    for i, (text, truth) in enumerate(examples(n)):
        log.append({"id": f"m{i}", "text": text, "label": truth, "times": 1 + i % 3})
        if i % 5 == 4:
            log.append({"id": f"m{i // 2}", "operation": "delete"})
        if i % 7 == 6:
            fresh = {"id": f"m{i - 3}", "text": f"new {text}", "label": truth, "times": 2}
            log.append(fresh | {"operation": "update"})
    return log


@pytest.mark.deep
def test_batches_and_stops_change_no_byte(tmp_path: Path) -> None:
    """Models, figures, the promotion and what leaves are functions of the log."""
    learning = {"publish": "examples", "publish_examples": 100}
    predictions = same_however_cut(tmp_path, stream(tmp_path), learning=learning, **SECTIONS)
    said = entry(tmp_path / "stopped")
    assert (said["serving"], said["replaced"], said["n_promotions"]) == ("pairs", ["model"], 1)
    assert said["n"] == stored_at(tmp_path / "whole").model.n_examples
    blocks = said["blocks"]
    assert [at for at, _, _ in blocks] == [300 * (k + 1) for k in range(len(blocks))]
    assert blocks[0][1]["model"] - blocks[0][1]["pairs"] >= 0.05  # so it was at once
    # Up to the promotion the answers are those of the model, behind it those of the challenger.
    records = [json.loads(line) for line in predictions.splitlines()]
    alone = {}
    for name, features in (("model", PLAIN), ("pairs", PAIRS)):
        folder = tmp_path / name
        model = {"hash_key": KEY, "features": features}
        replay(folder, tmp_path / "in.jsonl", model=model, learning=learning)
        lines = (folder / "out.jsonl").read_bytes().splitlines()
        alone[name] = [json.loads(line)["probabilities"] for line in lines]
    answers = [each["probabilities"] for each in records]
    n = next(k for k, each in enumerate(answers) if each != alone["model"][k])
    assert 100 < n < 200  # a third of the messages has no label
    assert answers[:n] == alone["model"][:n]
    assert answers[n:] == alone["pairs"][n:]


@pytest.mark.deep
def test_each_model_is_what_it_would_be_alone(tmp_path: Path) -> None:
    """Deletes, updates, weights and a promotion leave what a run of that model alone leaves."""
    source, times = write_log(tmp_path, revised(1_200)), {"weight": "times"}
    replay(tmp_path / "state", source, message=times, **SECTIONS)
    said = entry(tmp_path / "state")
    assert said["serving"] == "pairs"
    for name, section in {"model": {}, **CHALLENGERS}.items():
        replay(tmp_path / name, source, message=times, model=MODEL | section)
        alone = stored_at(tmp_path / name)
        assert model_of(tmp_path / "state", name).digest() == alone.model.digest(), name
        figures = alone.header["notes"]["entries"]["prequential"]
        assert said["models"][name]["figures"]["log_loss_sum"] == figures["log_loss_sum"], name
        assert said["models"][name]["figures"]["n_correct"] == figures["n_correct"], name


FORGETFUL: dict[str, Any] = {"hash_key": KEY, "features": WORDS, "half_life_s": 1e9}
HOUR = {"half_life_s": 3_600}
NOT_TAKEN_BACK: dict[str, Any] = {"corrections": {"to": "none"}, "learned": {"messages_max": 0}}


def turned(folder: Path, turn: int, n: int) -> Path:
    """Write a message a minute, of which the labels change sides at the turn."""
    texts, names = ("sun tea lake", "rain work bad"), ("positive", "negative")
    return write_log(
        folder,
        [
            {"id": f"m{i}", "text": texts[i % 2], "created_at": int(1.7e12 + 60_000 * i)}
            | {"label": names[(i % 2) ^ (i >= turn)]}
            for i in range(n)
        ],
    )


def test_half_lives_stand_side_by_side(tmp_path: Path) -> None:
    """Each forgets as it would alone; behind a turn the shorter one leads, and takes the place."""
    source, plain, short, own = turned(tmp_path, 900, 1_600), FORGETFUL, HOUR, NOT_TAKEN_BACK
    found = []
    for name, batch_bytes, ends in (("whole", 1 << 22, (None,)), ("cut", 2_048, (951, 70, None))):
        for n in ends:
            replay(
                tmp_path / name, source, n=n, file={"batch_bytes": batch_bytes}, model=plain,
                challengers={"hour": short}, promotion=PROMOTION | {"examples": 100}, **own,
            )  # fmt: skip
        found.append((tmp_path / name / "model.nb").read_bytes())
    assert found[0] == found[1]
    said = entry(tmp_path / "whole")
    assert (said["serving"], said["n_promotions"]) == ("hour", 1)
    leads = [min(losses, key=losses.__getitem__) for at, losses, _ in said["blocks"] if at > 1_000]
    assert leads == ["hour"] * 6
    for name, section in (("model", {}), ("hour", short)):
        replay(tmp_path / name, source, model=plain | section, **own)
        alone = stored_at(tmp_path / name).model
        assert model_of(tmp_path / "whole", name).digest() == alone.digest(), name
    with pytest.raises(
        ValueError, match=r"challengers\.hour\.half_life_s needs model\.half_life_s"
    ):
        replay(tmp_path / "no", source, model=MODEL, challengers={"hour": short}, **own)


def test_an_alarm_of_drift_has_them_compared_soon(tmp_path: Path) -> None:
    """A short block behind it is judged, far from the end of the long one, however logs are cut."""
    source, found = turned(tmp_path, 1_300, 2_100), []
    own = NOT_TAKEN_BACK | {"drift": {"enabled": True, "reaction": "compare"}}
    stops: dict[str, tuple[int | None, ...]] = {"whole": (None,), "cut": (1_410, 201, None)}
    for name, ends in stops.items():
        for n in ends:
            replay(
                tmp_path / name, source, n=n, model=FORGETFUL, challengers={"hour": HOUR},
                file={"batch_bytes": 1 << 22 if name == "whole" else 2_048},
                promotion=PROMOTION | {"examples": 10_000}, **own,
            )  # fmt: skip
        found.append((tmp_path / name / "model.nb").read_bytes())
    assert found[0] == found[1]
    said = entry(tmp_path / "whole")
    assert [at for at, _, _ in said["blocks"]] == [2_000]
    assert said["serving"] == "hour"
    with pytest.raises(ValueError, match=r"drift\.reaction needs challengers"):
        replay(tmp_path / "no", source, model=FORGETFUL, **own)


def test_words_that_moved_are_of_one_model(tmp_path: Path) -> None:
    """A promotion between an alarm and its words does not take away from another model's counts."""
    source, found = turned(tmp_path, 1_300, 2_600), []
    beside: dict[str, Any] = {"challengers": {"hour": HOUR}, "promotion": PROMOTION}
    for name, reaction, own in (("alone", "none", {}), ("beside", "compare", beside)):
        drift = {"enabled": True, "reaction": reaction, "words_after": 1_000}
        replay(tmp_path / name, source, model=FORGETFUL, drift=drift, **NOT_TAKEN_BACK, **own)
        found.append(stored_at(tmp_path / name).header["notes"]["entries"]["drift"]["words"])
    assert entry(tmp_path / "beside")["serving"] == "hour"
    assert found[0] == found[1]
    assert {each["word"] for each in found[0]} >= {"sun", "tea", "lake", "rain", "work", "bad"}


def test_those_that_read_alike_share_their_words() -> None:
    """One vocabulary does for half-lives side by side, after a promotion and a restart too."""
    plain = {"features": {"text": WordsSettings(hybrid=False)}}
    settings = ModelSettings(half_life_s=1e6)
    named = {
        "model": settings,
        "hour": settings.model_copy(update={"half_life_s": 3600.0} | plain),
        "day": settings.model_copy(update={"half_life_s": 86400.0}),
    }
    challengers = Challengers(named, PromotionSettings(), 10)
    model, saved = build_model(settings), SavedConfidence(settings)
    challengers.begin(model, saved, {})
    for text in ("a b", "c d", "e f"):
        learner = ChallengedLearner(
            challengers, model, SnapshotBoard(), EveryExamples(10), time.monotonic
        )
        learner.learn("p", {"text": [text]}, ["positive"], times_s=[1e9])
        models = [each.model for each in challengers.models.values()]
        groups = [each.state.groups["text"] for each in models]
        assert all(isinstance(group, WordsState) for group in groups)
        assert len({id(cast("WordsState", group).vocabulary) for group in groups}) == 1
        assert len({each.state.hash_key for each in models}) == 1
        assert all(each.words() == model.words() for each in models)
        if text == "a b":
            model = challengers.serve("hour").model
        if text == "c d":
            restored = Challengers(named, PromotionSettings(), 10, "hour")
            restored.unpack(challengers.pack())
            model = NaiveBayes.from_bytes(model.to_bytes())
            restored.begin(model, SavedConfidence(named["hour"]), {})
            challengers = restored
    assert len(model.words()) == 15


def test_late_labels_teach_all_of_them(tmp_path: Path) -> None:
    """A label that comes in its own log is learned and judged by each model."""
    n = 900
    for name, own in (("state", SECTIONS), ("alone", {"model": MODEL | CHALLENGERS["words"]})):
        (tmp_path / name).mkdir()
        lines = [message(i) for i in range(n)], [label(i) for i in range(n)]
        replay_late(tmp_path / name, *lines, **own)
    folder = tmp_path / "state" / "state"
    alone = stored_at(tmp_path / "alone" / "state").model
    assert model_of(folder, "words").digest() == alone.digest()
    assert entry(folder)["n"] == alone.n_examples == n
    assert entry(folder)["serving"] == "pairs"


def test_late_labels_promote_wherever_logs_are_cut(tmp_path: Path) -> None:
    """Of many labels that are learned at once, the one that ends a block promotes."""
    rule = {"promotion": PROMOTION | {"examples": 7, "margin_nats": 0}}
    own = SECTIONS | rule
    lines, found = ([message(i) for i in range(200)], [label(i) for i in range(200)]), []
    for name, batch_bytes in (("whole", 1 << 22), ("small", 1_024)):
        (tmp_path / name).mkdir()
        replay_late(tmp_path / name, *lines, file={"batch_bytes": batch_bytes}, **own)
        said = entry(tmp_path / name / "state")
        found.append([said[key] for key in ("n", "n_promotions", "serving", "blocks")])
    assert found[0] == found[1]
    assert found[0][:2] == [200, 2]


def test_a_late_label_that_promotes_counts_once(tmp_path: Path) -> None:
    """It is an answer of the model that served before, and a judgement of the one that does now."""
    challengers = {"words": CHALLENGERS["words"]}
    rule = {"promotion": PROMOTION | {"examples": 35, "margin_nats": 0}}
    lines = [message(i) for i in range(200)], [label(i) for i in range(200)]
    replay_late(tmp_path, *lines, **SECTIONS | rule | {"challengers": challengers})
    assert entry(tmp_path / "state")["serving"] == "words"
    assert entry(tmp_path / "state")["n_promotions"] == 1
    notes = stored_at(tmp_path / "state").header["notes"]
    assert notes["entries"]["confidence"]["calibrator"]["n"] == 200


def test_by_default_a_better_one_is_said_to_be_better(tmp_path: Path) -> None:
    """The log says so at each block's end, and `model` goes on answering."""
    rule = {name: value for name, value in PROMOTION.items() if name != "action"}
    with capture_logs() as lines:
        replay(tmp_path, stream(tmp_path), **SECTIONS | {"promotion": rule})
    said = [each for each in lines if each["event"].startswith("challenger_")]
    happened = {(each["event"], each["in_place_of"]) for each in said}
    assert happened == {("challenger_is_better", "model")}
    assert (said[0]["name"], said[0]["example"]) == ("pairs", 300)
    found = entry(tmp_path)
    assert (found["serving"], found["replaced"], found["n_promotions"]) == ("model", [], 0)


def test_one_that_is_as_good_takes_no_place(tmp_path: Path) -> None:
    """Without a margin too, only a lower loss promotes."""
    rule = PROMOTION | {"examples": 100, "margin_nats": 0}
    replay(tmp_path, stream(tmp_path), model=MODEL, challengers={"same": {}}, promotion=rule)
    assert len(entry(tmp_path)["blocks"]) > 10
    assert entry(tmp_path)["n_promotions"] == 0


@pytest.mark.deep
def test_one_that_is_added_later_begins_there(tmp_path: Path) -> None:
    """It learns what follows, takes back nothing that came before, and may be promoted."""
    log = revised(1_500)
    source, begin = write_log(tmp_path, log), 700
    replay(tmp_path / "state", source, n=begin, model=MODEL)
    with capture_logs() as lines:
        replay(tmp_path / "state", source, n=100, **SECTIONS)
    assert [each["name"] for each in lines if each["event"] == "challenger_begins"] == [
        "pairs", "words",
    ]  # fmt: skip
    replay(tmp_path / "state", source, **SECTIONS)
    living: dict[str, tuple[int, str, str]] = {}
    for at, each in enumerate(log):
        if each.get("operation") == "delete":
            living.pop(each["id"], None)
        else:
            living[each["id"]] = (at, each["text"], each["label"])
    kept = [(text, truth) for at, text, truth in living.values() if at >= begin]
    plain = model_of(tmp_path / "state", "pairs")
    texts, labels = zip(*kept, strict=True)
    fresh = NaiveBayes.of(plain.state.frozen_copy())
    fresh.unlearn_many({"text": list(texts)}, list(labels), part=next(iter(fresh.parts)))
    assert fresh.n_examples == 0
    assert np.count_nonzero(fresh.word_counts(fresh.words())) == 0
    assert entry(tmp_path / "state")["serving"] == "pairs"
    assert entry(tmp_path / "state")["models"]["pairs"]["begins"] is not None
    # It goes on once it serves, from a checkpoint of its own counts.
    replay(tmp_path / "state", source, **SECTIONS)
    assert model_of(tmp_path / "state", "pairs").digest() == plain.digest()


def test_a_correction_of_what_was_let_go_stays_out_of_later_ones() -> None:
    """It cannot be taken back from them by the next correction, so it is not taught either."""
    settings = ModelSettings(new_classes=True)
    challengers = Challengers({"model": settings, "later": settings}, PromotionSettings(), 10)
    model, board = build_model(settings), SnapshotBoard()
    model.prequential_many({"text": ["a"]}, ["positive"], part="p")
    challengers.begin(model, SavedConfidence(settings), {"p": 1})
    policy = EveryExamples(10)
    learner = ChallengedLearner(challengers, model, board, policy, time.monotonic)
    for was, now in (("positive", "new"), ("new", "negative")):
        learner.unlearn_one("p", {"text": "a"}, was)
        learner.learn_one("p", {"text": "a"}, now)
    later = challengers.models["later"].model
    assert (model.n_examples, later.n_examples) == (1, 0)
    assert later.classes == model.classes


def test_an_example_of_weight_0_calibrates_none_of_them() -> None:
    """It teaches nothing: a challenger is compared, and may serve, by what the others teach it."""
    settings = ModelSettings(calibration=True)
    found = []
    for weights in ([1.0, 0.0, 1.0, 0.0], [1.0, 1.0]):
        challengers = Challengers({"model": settings, "later": settings}, PromotionSettings(), 10)
        model, saved = build_model(settings), SavedConfidence(settings)
        challengers.begin(model, saved, {})
        learner = ChallengedLearner(
            challengers, model, SnapshotBoard(), EveryExamples(10), time.monotonic,
            confidence=saved.learned,
        )  # fmt: skip
        texts, labels = ["a", "b", "a b", "c"], ["positive", "negative", "negative", "positive"]
        every = 4 // len(weights)
        learner.learn("p", {"text": texts[::every]}, labels[::every], weights=weights)
        calibrators = [each.saved.learned.calibrator for each in challengers.models.values()]
        assert all(each is not None for each in calibrators)
        found += [each.counts.tobytes() for each in calibrators if each is not None]
    assert len(found) == 4
    assert len(set(found)) == 1


def test_one_that_is_added_later_reads_as_from_the_beginning(tmp_path: Path) -> None:
    """What its configuration leaves out of how words are read does not hang on when it came."""
    source, plain = stream(tmp_path), {"text": {"likelihood": "bernoulli"}}
    own: dict[str, Any] = {
        "model": {"hash_key": KEY},
        "challengers": {"plain": {"features": plain}},
    }
    replay(tmp_path / "later", source, n=10, model=own["model"])
    for name in ("later", "together", "later"):
        replay(tmp_path / name, source, n=10, **own)
    found = [model_of(tmp_path / name, "plain").describe() for name in ("later", "together")]
    assert found[0] == found[1]
    assert not found[0]["groups"]["text"].get("punctuation", False)


def test_one_that_changed_reads_as_a_new_one(tmp_path: Path) -> None:
    """What its configuration leaves out does not hang on what stood under its name before."""
    source, own = stream(tmp_path), {"model": {"hash_key": KEY}}
    off = {"text": {"punctuation": False, "ends": False}}
    for name, before in (("changed", {"rival": {"features": off}}), ("new", {})):
        replay(tmp_path / name, source, n=10, **own, challengers=before)
        changed = {"rival": {"features": {"text": {"negation": False}}}}
        replay(tmp_path / name, source, n=10, **own, challengers=changed)
    found = [model_of(tmp_path / name, "rival").describe() for name in ("changed", "new")]
    assert found[0] == found[1]
    assert found[0]["groups"]["text"]["ends"]


def test_the_settings_may_change(tmp_path: Path) -> None:
    """What is removed is dropped, what changed begins anew, and what serves must be named."""
    source, folder = stream(tmp_path), tmp_path / "state"
    replay(folder, source, n=300, **SECTIONS)
    changed = {"words": {"features": {"text": WORDS["text"] | {"negation": False}}}}
    with capture_logs() as lines:
        replay(folder, source, n=1_000, **SECTIONS | {"challengers": CHALLENGERS | changed})
    said = [(each["event"], each["name"]) for each in lines if "challenger_" in each["event"]]
    assert said[:2] == [("challenger_changed", "words"), ("challenger_begins", "words")]
    assert ("challenger_promoted", "pairs") in said
    removed = SECTIONS | {"challengers": {"words": changed["words"]}}
    with pytest.raises(MismatchError, match=r"no such challenger[\s\S]*streamnb model revert"):
        replay(folder, source, n=100, **removed)
    before = stored_at(folder).model.digest()
    with capture_logs() as lines:  # written as model, it is what the configuration says
        replay(folder, source, n=1, **removed | {"model": MODEL | {"features": PAIRS}})
    said = [(each["event"], each.get("name")) for each in lines]
    assert ("challenger_dropped", "model") in said
    assert ("challenger_serves", "pairs") not in said
    assert entry(folder)["serving"] == "model"
    assert entry(folder)["models"]["words"]["figures"]["n"] > 0
    assert stored_at(folder).model.n_examples > 0
    assert before


def test_weights_alone_are_another_model_too(tmp_path: Path) -> None:
    """Who served before is not lost with its weights because a challenger is left out."""
    counts = {"features": {"text": PAIRS["text"] | {"hybrid": False}}}
    both: dict[str, Any] = {"model": MODEL | {"features": PAIRS}, "challengers": {"counts": counts}}
    both |= {"promotion": PROMOTION | {"margin_nats": 0}}
    source = stream(tmp_path)
    replay(tmp_path, source, n=600, **both)
    before = entry(tmp_path)
    assert before["serving"] == "counts"
    with pytest.raises(MismatchError, match=r"hybrid[\s\S]*streamnb model revert"):
        replay(tmp_path, source, n=1, **both | {"challengers": {}})
    assert entry(tmp_path) == before


def test_one_command_goes_back(tmp_path: Path, command: Command) -> None:
    """The model answers again as it would have, and what it replaced is not promoted any more."""
    source, folder = stream(tmp_path), tmp_path / "state"
    config = write_config(
        tmp_path / "config.yaml", source=f"file:{source}", checkpoint={"folder": str(folder)},
        **SECTIONS,
    )  # fmt: skip
    replay(folder, source, n=2_000, **SECTIONS)
    digests = {name: model_of(folder, name).digest() for name in ("model", "pairs", "words")}
    assert entry(folder)["serving"] == "pairs"
    stored_settings, stored, _ = read_newest(config, None)
    assert verify(stored_settings, stored).is_equal  # against the log, as the one that serves
    found = command("model", "revert", "-c", str(config), "--json")
    assert (found.code, json.loads(found.out.splitlines()[-1])) == (
        0,
        {"before": "pairs", "now": "model"},
    )
    assert stored_at(folder).model.digest() == digests["model"]
    assert {name: model_of(folder, name).digest() for name in digests} == digests
    with capture_logs() as lines:
        replay(folder, source, **SECTIONS)
    assert entry(folder)["serving"] == "model"
    assert "challenger_is_better" in [each["event"] for each in lines]
    for name, section in {"model": {}, **CHALLENGERS}.items():
        replay(tmp_path / name, source, model=MODEL | section)
        assert model_of(folder, name).digest() == stored_at(tmp_path / name).model.digest()
    before = (folder / "model.nb").read_bytes()
    found = command("model", "revert", "-c", str(config))
    assert (found.code, found.out) == (1, "")
    assert "went back already: 'model' answers" in found.err
    assert "(challengers: pairs, words)" in found.err
    assert "set `promotion.action: promote`" in found.err
    assert (folder / "model.nb").read_bytes() == before


def test_each_promotion_can_be_gone_back_from(tmp_path: Path, command: Command) -> None:
    """One command after the other leads to the model of the configuration, with its counts."""
    source, folder = stream(tmp_path), tmp_path / "state"
    rule = PROMOTION | {"margin_nats": 0}
    config = write_config(
        tmp_path / "config.yaml", source=f"file:{source}", checkpoint={"folder": str(folder)},
        **SECTIONS,
    )  # fmt: skip
    plain = {"words": CHALLENGERS["words"]}
    replay(folder, source, n=900, **SECTIONS | {"challengers": plain, "promotion": rule})
    assert entry(folder)["serving"] == "words"
    replay(folder, source, n=2_000, **SECTIONS | {"promotion": rule})
    said = entry(folder)
    assert (said["serving"], said["replaced"]) == ("pairs", ["model", "words"])
    assert said["n_promotions"] == 2
    digests = {name: model_of(folder, name).digest() for name in ("model", "pairs", "words")}
    for before, now in (("pairs", "words"), ("words", "model")):
        found = command("model", "revert", "-c", str(config), "--json")
        assert json.loads(found.out.splitlines()[-1]) == {"before": before, "now": now}
        assert stored_at(folder).model.digest() == digests[now]
        with capture_logs() as lines:  # what the start says holds
            replay(folder, source, n=1, **SECTIONS)
        says = [each["name"] for each in lines if each["event"] == "challenger_serves"]
        assert says == ([] if now == "model" else [now])
        digests = {name: model_of(folder, name).digest() for name in digests}
    found = command("model", "revert", "-c", str(config))
    assert (found.code, found.out) == (1, "")
    assert "'model' answers" in found.err


def test_files_that_know_one_promotion_alone_can_be_gone_back_from() -> None:
    """Earlier versions noted whose place was taken last, and nothing once somebody went back."""
    models = {name: ModelSettings(**MODEL) for name in ("model", "words", "pairs")}
    for previous, expected in (("words", ("words",)), (None, ("model",))):
        old = Challengers(models, PromotionSettings(), 100, serving="pairs")
        for name, settings in models.items():
            own = build_model(settings)
            old.models[name] = Candidate(own, SavedConfidence(settings), Prequential(100))
        packed = old.pack()
        values = {key: each for key, each in packed.values.items() if key != "replaced"}
        read_again = Challengers(models, PromotionSettings(), 100, serving="pairs")
        read_again.unpack(CheckpointEntry(values | {"previous": previous}, packed.arrays))
        assert read_again.replaced == expected


def test_where_nothing_was_saved_nothing_goes_back(tmp_path: Path, command: Command) -> None:
    """It says what is missing, with the code of the other commands, and makes no folder."""
    folder = tmp_path / "state"
    config = write_config(tmp_path / "config.yaml", checkpoint={"folder": str(folder)})
    found = command("model", "revert", "-c", str(config))
    assert (found.code, found.out) == (74, "")
    assert f"{folder}/model.nb: there is no checkpoint yet" in found.err
    assert not folder.exists()
    config = write_config(tmp_path / "config.yaml", checkpoint={"folder": None})
    found = command("model", "revert", "-c", str(config))
    assert (found.code, found.out) == (78, "")
    assert "checkpoint.folder is null" in found.err


def test_one_that_changed_may_be_promoted_again(tmp_path: Path) -> None:
    """That somebody went back from a challenger says nothing of another one of its name."""
    source = stream(tmp_path)
    replay(tmp_path, source, n=600, **SECTIONS)
    assert revert(CheckpointSettings(folder=tmp_path)) == ("pairs", "model")
    other = {"pairs": {"features": {"text": PAIRS["text"] | {"negation": False}}}}
    replay(tmp_path, source, n=1_500, **SECTIONS | {"challengers": other})
    assert entry(tmp_path)["serving"] == "pairs"


def start(folder: Path) -> Daemon:
    """Start a daemon that follows a file, with challengers."""
    return Daemon(
        write_config(
            folder / "config.yaml",
            source="file:in.jsonl",
            file={"batch_bytes": 2_048},
            checkpoint={"folder": "state", "interval_s": 0.01},
            **SECTIONS,
        )
    )


def has_judged(folder: Path, n: int) -> bool:
    """Return whether the checkpoint of a daemon has so many judged messages."""
    return (folder / "model.nb").exists() and int(entry(folder)["n"]) >= n


@pytest.mark.deep
def test_a_kill_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """After two kills, one behind the promotion, models and figures are an undisturbed run's."""
    lines = write_log(tmp_path, revised(1_000)).read_bytes().splitlines(keepends=True)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    (whole / "in.jsonl").write_bytes(b"".join(lines))
    replay(whole / "state", whole / "in.jsonl", **SECTIONS)
    for end, n_judged, n_promotions in ((250, 100, 0), (900, 400, 1)):
        (killed / "in.jsonl").write_bytes(b"".join(lines[:end]))
        with start(killed) as daemon:
            daemon.until_page("/readyz", 200)
            daemon.until(partial(has_judged, killed / "state", n_judged), "a checkpoint")
            daemon.kill()
        assert entry(killed / "state")["n_promotions"] == n_promotions
    (killed / "in.jsonl").write_bytes(b"".join(lines))
    with start(killed) as daemon:
        daemon.until_page("/readyz", 200)
        daemon.until(lambda: entry(killed / "state")["n"] == entry(whole / "state")["n"], "the end")
        answer = daemon.until_page("/v1/model", 200)["challengers"]
        assert answer["serving"] == "pairs"
        assert [each["name"] for each in answer["models"]] == ["model", "pairs", "words"]
        assert daemon.metric("streamnb_model_serving_info") == 1
        assert daemon.metric("streamnb_promotions_total") == 1
        assert ask(daemon.address, "GET", "/v1/model")[1]["challengers"]["blocks"]
        assert daemon.stop() == 0
    one, other = entry(whole / "state"), entry(killed / "state")
    for said in (one, other):
        for each in said["models"].values():
            each.pop("model", None)  # its words are in an order of the run's own
    assert one == other
    for name in ("model", "pairs", "words"):
        models = [model_of(each / "state", name) for each in (whole, killed)]
        assert models[0].digest() == models[1].digest()
