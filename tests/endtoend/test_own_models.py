"""A model for each language: each learns and answers for its own, or the answer says why not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from structlog.testing import capture_logs

from consumers.cli.model_report import read_newest
from consumers.cli.verify import verify
from consumers.config.model import ModelSettings, WordsSettings
from consumers.config.sections import PerSettings
from consumers.config.settings import Settings
from consumers.features import build_model
from consumers.pipeline.own_models import OwnReader, read_values
from streamnb import NaiveBayes, TextColumn, serialization
from streamnb.kernels.layout import Texts
from streamnb.storage import read
from tests.endtoend.correction_clients import ask
from tests.endtoend.daemon_process import Daemon, write_config
from tests.endtoend.expected_counts import examples
from tests.endtoend.test_late_labels import replay as replay_late
from tests.endtoend.test_reproducible import KEY, replay, same_however_cut

LANGUAGES = ("en", "de", "ja", None)
MODEL: dict[str, Any] = {"hash_key": KEY}
PER: dict[str, Any] = {"field": "lang", "examples_min": 20}
OPPOSITE = {"positive": "negative", "negative": "positive"}


def model_of(folder: Path, value: str) -> NaiveBayes:
    """Return the model of a value in a checkpoint."""
    stored = read(folder / "model.nb")
    models = entry(folder)["models"]
    k = [each["name"] for each in models].index(value)
    prefix = f"per/{k}/model/"
    arrays = {n.removeprefix(prefix): a for n, a in stored.extras.items() if n.startswith(prefix)}
    return NaiveBayes.of(serialization.unpack(models[k]["model"], arrays)[0])


def entry(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint says of its models by value."""
    found: dict[str, Any] = read(folder / "model.nb").header["notes"]["entries"]["per"]
    return found


def write_log(folder: Path, log: Iterable[dict[str, Any]], name: str = "in.jsonl") -> Path:
    """Write messages to a file."""
    path = folder / name
    path.write_text("".join(json.dumps(each) + "\n" for each in log), encoding="utf-8")
    return path


def languages(n: int, *, revised: bool = True) -> list[dict[str, Any]]:
    """Return a log in which German gives each text the other label.

    If it is `revised`, messages are deleted and updated; else a third of them has no label.
    """
    log: list[dict[str, Any]] = []
    for i, (text, label) in enumerate(examples(n)):
        lang = LANGUAGES[i * i % 7 % 4]
        truth = OPPOSITE[label] if lang == "de" else label
        said = {"id": f"m{i}", "text": text, "times": 1 + i % 3}
        said |= {} if lang is None else {"lang": lang if i % 2 else f"{lang}-XY"}
        log.append(said if not revised and i % 3 == 0 else said | {"label": truth})
        if revised and i % 5 == 4:
            log.append({"id": f"m{i // 2}", "operation": "delete"})
        if revised and i % 7 == 6:
            old = next(each for each in log if each["id"] == f"m{i - 3}")
            log.append(old | {"text": f"new {text}", "operation": "update", "label": label})
    return log


def answers(folder: Path) -> list[dict[str, Any]]:
    """Return the predictions that a replay wrote."""
    return [json.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]


def gifts(n: int) -> list[dict[str, Any]]:
    """Return messages in which Gift is a present in English and poison in German."""
    sides = {"en": "positive", "de": "negative"}
    log = [
        {"id": f"{lang}{i}", "text": f"a gift {i}", "lang": lang, "label": side}
        for i in range(n)
        for lang, side in sides.items()
    ]
    log += [{"id": f"x{i}", "text": f"a rope {i}", "lang": lang, "label": OPPOSITE[side]}
            for i in range(n) for lang, side in sides.items()]  # fmt: skip
    return log


def test_each_answers_its_own_way(tmp_path: Path) -> None:
    """One word has opposite labels in two languages; each judges it by its own messages."""
    few = [{"id": f"j{i}", "text": "gift", "lang": "ja", "label": "positive"} for i in range(12)]
    asked = [
        {"id": f"?{lang}", "text": "gift"} | ({"lang": lang} if lang else {})
        for lang in ("en", "de-AT", "ja", "fr", "")
    ]
    source = write_log(tmp_path, [*gifts(60), *few, *asked])
    learning = {"publish": "examples", "publish_examples": 1}
    replay(tmp_path, source, model=MODEL, per=PER, learning=learning)
    en, de, ja, fr, none = answers(tmp_path)
    assert (en["label"], en["model"]) == ("positive", "en")
    assert (de["label"], de["model"]) == ("negative", "de")
    assert en["probabilities"]["positive"] > 0.9
    assert de["probabilities"]["negative"] > 0.9
    assert [each["model"] for each in (ja, fr, none)] == [None] * 3
    assert ja["probabilities"] == fr["probabilities"] == none["probabilities"]
    replay(tmp_path / "one", source, model=MODEL, learning=learning)
    assert [each["probabilities"] for each in answers(tmp_path / "one")[2:]] == [
        ja["probabilities"]
    ] * 3
    assert "model" not in answers(tmp_path / "one")[0]


def test_authors_answer_by_models_of_their_own(tmp_path: Path) -> None:
    """With `per.field: user` that is whom `message.user` names; a stranger gets the shared one."""
    log = [each | {"by": f"of {each['lang']}"} for each in gifts(60)]
    log += [{"id": f"?{by}", "text": "gift", "by": by} for by in ("of en", "of de", "nobody")]
    replay(
        tmp_path, write_log(tmp_path, log), model=MODEL, message={"user": "by"},
        per=PER | {"field": "user"}, learning={"publish": "examples", "publish_examples": 1},
    )  # fmt: skip
    said = [(each["label"], each["model"]) for each in answers(tmp_path)]
    assert said[:2] == [("positive", "of en"), ("negative", "of de")]
    assert said[2][1] is None


def test_a_value_that_is_no_text_names_the_setting(tmp_path: Path) -> None:
    """The message is rejected, and the reason names the field and `per.field`; others go on."""
    tenants: tuple[Any, ...] = ("a", ["a"], "a")
    log = [{"text": "a gift", "tenant": each, "label": "positive"} for each in tenants]
    rejects = tmp_path / "rejects.jsonl"
    summary = replay(
        tmp_path,
        write_log(tmp_path, log),
        model=MODEL,
        per={"field": "tenant"},
        rejects={"to": f"file:{rejects}"},
    )
    assert (summary.learned, dict(summary.rejected)) == (2, {"wrong_type": 1})
    (found,) = map(json.loads, rejects.read_bytes().splitlines())
    assert "the value at 'tenant' is ['a']" in found["detail"]
    assert "per.field" in found["detail"]


def test_each_model_is_what_it_would_be_alone(tmp_path: Path) -> None:
    """Deletes, updates and weights leave what a run over the messages of its value leaves."""
    log, times = languages(1_500), {"weight": "times"}
    source = write_log(tmp_path, log)
    replay(tmp_path / "state", source, model=MODEL, per=PER, message=times)
    replay(tmp_path / "shared", source, model=MODEL, message=times)
    stored = [read(tmp_path / each / "model.nb").model.digest() for each in ("state", "shared")]
    assert stored[0] == stored[1]
    config = write_config(
        tmp_path / "config.yaml", source=f"file:{source}", model=MODEL, per=PER, message=times,
        checkpoint={"folder": str(tmp_path / "state")},
    )  # fmt: skip
    assert verify(*read_newest(config, None)[:2]).is_equal
    of: dict[str, str | None] = {}
    for each in log:
        if "text" in each:
            of[each["id"]] = each["lang"].split("-")[0] if "lang" in each else None
    for lang in ("en", "de", "ja"):
        own = write_log(tmp_path, (each for each in log if of[each["id"]] == lang), "own.jsonl")
        replay(tmp_path / lang, own, model=MODEL, message=times)
        alone = read(tmp_path / lang / "model.nb")
        assert model_of(tmp_path / "state", lang).digest() == alone.model.digest(), lang
        figures = alone.header["notes"]["entries"]["prequential"]
        said = {each["name"]: each for each in entry(tmp_path / "state")["models"]}
        for figure in ("n", "n_correct", "log_loss_sum"):
            assert said[lang]["figures"][figure] == figures[figure], (lang, figure)


@pytest.mark.deep
def test_batches_and_stops_change_no_byte(tmp_path: Path) -> None:
    """Models, figures and what leaves are functions of the log, with the shared one as prior."""
    source = write_log(tmp_path, languages(1_700, revised=False))
    model = MODEL | {"calibration": True, "coverage": 0.9}
    for prior in (0, 50):
        (tmp_path / str(prior)).mkdir()
        same_however_cut(
            tmp_path / str(prior), source, model=model, per=PER | {"prior_examples": prior}
        )


def test_the_shared_model_counts_as_so_many_examples(tmp_path: Path) -> None:
    """Each answer is the plain formula of what the two models say alone."""
    prior = 30.0
    log = [each for each in languages(400, revised=False) if "label" in each]
    probe = {"id": "?", "text": "love monday", "lang": "de"}
    source = write_log(tmp_path, [*log, probe])
    learning = {"publish": "examples", "publish_examples": 1}
    per = PER | {"prior_examples": prior}
    replay(tmp_path / "both", source, model=MODEL, per=per, learning=learning)
    own = model_of(tmp_path / "both", "de")
    shared = read(tmp_path / "both" / "model.nb").model
    said = [each.predict_proba_one({"text": probe["text"]}) for each in (own, shared)]
    n = own.n_examples
    found = answers(tmp_path / "both")[-1]["probabilities"]
    for label, share in found.items():
        plain = (n * said[0][label] + prior * said[1][label]) / (n + prior)
        assert share == pytest.approx(plain, rel=1e-12)
    assert said[0]["positive"] != pytest.approx(said[1]["positive"], abs=0.05)


def test_each_question_is_asked_of_the_model_that_answers() -> None:
    """Explanation, interval, counts alone and a uniform prior are those of one of the two."""
    words = WordsSettings(hybrid=False)
    shared, own = (build_model(ModelSettings(features={"text": words})) for _ in range(2))
    texts = ["a gift", "a gift", "rope", "a rope"]
    shared.learn_many({"text": texts}, ["positive", "positive", "negative", "negative"])
    own.learn_many({"text": texts[1:]}, ["negative", "positive", "positive"])
    per = PerSettings(field="lang", examples_min=3)
    reader = OwnReader(shared.state, {"de": own.state}, per)
    for lang, alone in (("de", own), ("en", shared), (None, shared)):
        x = {"text": "a gift", "lang": lang}
        assert reader.explain_one(x) == alone.explain_one(x)
        assert reader.credible_interval_one(x, 0.9, "delta") == alone.credible_interval_one(
            x, 0.9, "delta"
        )
        for one, other in (
            (reader, alone),
            (reader.raw(), alone.raw()),
            (reader.without_prior(), alone.without_prior()),
        ):
            assert one.predict_proba_one(x) == pytest.approx(other.predict_proba_one(x), rel=1e-15)
    assert reader.without_prior().predict_proba_one(x) != reader.predict_proba_one(
        x | {"lang": "de"}
    )


@pytest.mark.parametrize("field", ["lang", "user", "tenant", "meta.tenant"])
def test_an_update_may_change_the_value(field: str, tmp_path: Path) -> None:
    """What the message taught one model is taken back there, and learned by the other."""

    def of(value: str) -> dict[str, Any]:
        section, _, name = field.rpartition(".")
        return {section: {name: value}} if section else {name: value}

    first = {"id": "m", "text": "gift", "label": "positive"}
    log = [first | of("en"), first | of("de") | {"label": "negative", "operation": "update"}]
    replay(tmp_path, write_log(tmp_path, log), model=MODEL, per={"field": field})
    counts = {lang: model_of(tmp_path, lang).class_counts.tolist() for lang in ("en", "de")}
    assert counts == {"en": [0.0, 0.0], "de": [1.0, 0.0]}


def test_late_labels_teach_the_model_of_their_message(tmp_path: Path) -> None:
    """What waited for its label is learned by its language, and judged by it before."""
    log = [each for each in languages(600) if "operation" not in each]
    for i, each in enumerate(log):
        each |= {"created_at": 1_000_000_000 + i}
    labels = [
        {"id": each["id"], "label": each.pop("label"), "created_at": each["created_at"] + 60}
        for each in log
    ]
    lines = [[json.dumps(one).encode() for one in part] for part in (log, labels)]
    own: dict[str, Any] = {"model": MODEL}
    replay_late(tmp_path, *lines, per=PER, **own)
    of = dict(zip((each["id"] for each in log), labels, strict=True))
    for lang in ("en", "de", "ja"):
        (tmp_path / lang).mkdir()
        mine = [each for each in log if str(each.get("lang")).startswith(lang)]
        theirs = [
            [json.dumps(one).encode() for one in part]
            for part in (mine, [of[each["id"]] for each in mine])
        ]
        replay_late(tmp_path / lang, *theirs, **own)
        alone = read(tmp_path / lang / "state" / "model.nb").model
        assert model_of(tmp_path / "state", lang).digest() == alone.digest()


def test_values_beyond_the_bound_are_answered_by_the_shared_model(tmp_path: Path) -> None:
    """The first so many have a model, or those that are named; a model comes and goes by name."""
    source = write_log(tmp_path, languages(600))
    folder = tmp_path / "state"

    def names() -> list[str]:
        return [each["name"] for each in entry(folder)["models"]]

    replay(folder, source, n=200, model=MODEL, per=PER | {"most": 2})
    first = names()
    assert len(first) == 2
    replay(folder, source, n=200, model=MODEL, per=PER | {"most": 2})
    assert names() == first
    with capture_logs() as lines:
        replay(folder, source, n=100, model=MODEL, per=PER | {"values": ["de"]})
    assert names() == ["de"]
    dropped = {each["name"] for each in lines if each["event"] == "own_model_dropped"}
    assert dropped == {*first} - {"de"}
    kept = [each["kept"] for each in lines if each["event"] == "own_models_begin"]
    assert kept == [[name for name in first if name == "de"]]
    for per in ({"field": "user"}, {}):  # records of another field are not read by its name
        with capture_logs() as lines:
            replay(folder, source, n=50, model=MODEL, per=per)
        said = [each["detail"] for each in lines if each["event"] == "learned_damaged"]
        assert said[0].startswith(f"it was written with per.field {'user' if not per else 'lang'};")
        found = read(folder / "model.nb").header["notes"]["entries"].get("per")
        assert (found or {}).get("models", []) == []
    assert found is None


def test_one_that_comes_later_takes_back_what_it_learned_alone(tmp_path: Path) -> None:
    """It learns from its beginning on, and deletes of earlier messages leave it as it is."""
    features = {"text": {}, "lang": {"kind": "categories"}}  # so that the memory knows it before
    model = MODEL | {"features": features}
    log = languages(1_200)
    source, begin = write_log(tmp_path, log), 500
    replay(tmp_path / "state", source, n=begin, model=model)
    with capture_logs() as lines:
        replay(tmp_path / "state", source, n=100, model=model, per=PER)
    assert "own_models_begin" in [each["event"] for each in lines]
    with capture_logs() as lines:
        replay(tmp_path / "state", source, model=model, per=PER)
    assert {"own_models_begin", "not_taken_back"} & {each["event"] for each in lines} == set()
    living: dict[str, tuple[int, dict[str, Any]]] = {}
    for at, each in enumerate(log):
        if each.get("operation") == "delete":
            living.pop(each["id"], None)
        else:
            living[each["id"]] = (at, each)
    for lang in ("en", "de", "ja"):
        kept = [
            each
            for at, each in living.values()
            if at >= begin and str(each.get("lang")).startswith(lang)
        ]
        rest = NaiveBayes.of(model_of(tmp_path / "state", lang).state.frozen_copy())
        assert rest.n_examples == len(kept)
        columns = {name: [each[name] for each in kept] for name in ("text", "lang")}
        labels = [each["label"] for each in kept]
        rest.unlearn_many(columns, labels, part=next(iter(rest.parts)))
        assert np.count_nonzero(rest.word_counts(rest.words())) == 0


def start(folder: Path) -> Daemon:
    """Start a daemon that follows a file, with a model for each language."""
    return Daemon(
        write_config(
            folder / "config.yaml",
            source="file:in.jsonl",
            file={"batch_bytes": 2_048},
            checkpoint={"folder": "state", "interval_s": 0.01},
            model=MODEL,
            per=PER,
        )
    )


def n_learned(folder: Path) -> int:
    """Return how many examples the checkpoint of a daemon has learned."""
    path = folder / "model.nb"
    return read(path).model.n_examples if path.exists() else 0


def is_at_end(folder: Path) -> bool:
    """Return whether the checkpoint of a daemon holds all of its file."""
    positions = read(folder / "state" / "model.nb").positions
    return positions == {"file:in.jsonl/0": (folder / "in.jsonl").stat().st_size}


def has_learned(folder: Path, n: int) -> bool:
    """Return whether the checkpoint of a daemon has learned so many examples."""
    return n_learned(folder) >= n


@pytest.mark.deep
def test_a_kill_loses_nothing_and_the_answer_names_its_model(tmp_path: Path) -> None:
    """After two kills counts are an undisturbed run's; a delete moves one language alone."""
    lines = write_log(tmp_path, languages(900)).read_bytes().splitlines(keepends=True)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    (whole / "in.jsonl").write_bytes(b"".join(lines))
    replay(whole / "state", whole / "in.jsonl", model=MODEL, per=PER)
    for end, least in ((300, 60), (800, 260)):
        (killed / "in.jsonl").write_bytes(b"".join(lines[:end]))
        with start(killed) as daemon:
            daemon.until_page("/readyz", 200)
            daemon.until(partial(has_learned, killed / "state", least), "a checkpoint")
            daemon.kill()
    (killed / "in.jsonl").write_bytes(b"".join(lines))
    with start(killed) as daemon:
        daemon.until_page("/readyz", 200)
        daemon.until(partial(is_at_end, killed), "the end")
        models = [model_of(each / "state", "de").digest() for each in (whole, killed)]
        assert models[0] == models[1]
        asked = {"text": "love monday"}
        messages = [asked | {"lang": "de"}, asked | {"lang": "fr"}, asked]
        n = model_of(killed / "state", "de").n_examples
        own = f"answered by the model of de: {n} labelled messages in lang de"
        wanted = {"messages": messages, "explain": True}
        told: list[tuple[int, dict[str, Any]]] = []

        def is_published() -> bool:
            """Return whether what was saved answers too: a snapshot is published by the clock."""
            told[:] = [ask(daemon.address, "POST", "/v1/predict", wanted)]
            return bool(told[0][1]["predictions"][0]["answered_by"] == own)

        daemon.until(is_published, "the snapshot of the end")
        status, answer = told[0]
        assert status == 200
        de, fr, none = answer["predictions"]
        assert (de["model"], fr["model"], none["model"]) == ("de", None, None)
        assert fr["answered_by"] == (
            "answered by the shared model: only 0 labelled messages in lang fr, of per.examples_min"
            " 20"
        )
        assert none["answered_by"] == "answered by the shared model: no lang is given"
        assert de["probabilities"] != none["probabilities"] == fr["probabilities"]
        assert de["explanation"]["features"] != none["explanation"]["features"]
        alone = ask(daemon.address, "POST", "/v1/predict", asked)[1]["predictions"][0]
        assert alone["probabilities"] == none["probabilities"]
        assert alone["answered_by"] == none["answered_by"]
        said = ask(daemon.address, "GET", "/v1/model")[1]["per"]
        assert {each["value"] for each in said["models"]} == {"en", "de", "ja"}
        assert f'streamnb_value_learned_messages{{value="de"}} {n}.0\n' in daemon.get("/metrics")[1]
        other = model_of(killed / "state", "en").digest()
        gone = next(each for each in languages(900)[::-1] if each.get("lang") == "de")["id"]
        with (killed / "in.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"id": gone, "operation": "delete"}) + "\n")
        daemon.until(lambda: model_of(killed / "state", "de").n_examples == n - 1, "the delete")
        assert model_of(killed / "state", "en").digest() == other
        assert daemon.stop() == 0


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ({"challengers": {"a": {}}}, "does not go with challengers"),
        ({"group": {"folder": "s"}}, "does not go with a group.folder, whose parts hold one"),
        ({"model": {"half_life_s": 60}}, "does not go with model.half_life_s"),
        ({"model": {"new_classes": True}}, "needs model.new_classes: false"),
        ({"http": {"snapshots": True}}, "needs http.snapshots: false"),
        ({"learned": {"messages_max": 0}}, "needs learned.messages_max above 0"),
        ({"per": {"field": "text"}}, "must be lang, user or a path to a text"),
        ({"per": {"field": "label"}}, "reads 'label', where labels stand"),
        (
            {"per": {"field": "n"}, "model": {"features": {"n": {"kind": "numbers"}}}},
            "must be lang, user or a path to a text",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(other: dict[str, Any], expected: str) -> None:
    """The message says why, and what to do."""
    with pytest.raises(ValidationError, match=rf"per\.field {expected}"):
        Settings.model_validate({"per": {"field": "lang"}} | other)


def test_values_are_read_as_one_by_one() -> None:
    """A column in one buffer has the values of its texts, of languages the first part."""
    given: Sequence[str | None] = (
        "en", None, "de", "", "en-US", "EN_gb", "日本", "und", "x" * 64, "x" * 65, "de", "é" * 32,
        "de\0", "de\0\0", "\0", "de\1",
    )  # fmt: skip
    encoded = [b"" if each is None else each.encode() for each in given]
    ends = np.cumsum([len(each) for each in encoded])
    starts = ends - [len(each) for each in encoded]
    data = np.frombuffer(bytearray(b"".join(encoded)), np.uint8)
    ends = np.where([each is None for each in given], -1, ends)
    column = TextColumn(Texts(data, starts.astype(np.int64), ends.astype(np.int64)))
    for field in ("lang", "tenant"):
        found = [read_values(field, {field: each}) for each in (column, list(given))]
        assert found[0].names == found[1].names
        assert found[0].codes.tolist() == found[1].codes.tolist()
        named = [None if k < 0 else found[0].names[k] for k in found[0].codes.tolist()]
        first = {"EN_gb": "en", "en-US": "en", "und": None} if field == "lang" else {}
        assert named == [
            None if not each or len(each.encode()) > 64 else first.get(each, each) for each in given
        ]
    assert read_values("lang", {"text": ["a", "b"]}).codes.tolist() == [-1, -1]
    assert PerSettings().field is None
