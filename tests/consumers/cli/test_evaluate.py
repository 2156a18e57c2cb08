"""`streamnb evaluate`: what it judges and how, against the library itself."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec.structs
import numpy as np
import pytest
from typer.testing import CliRunner

from consumers.cli import commands, conventions, evaluation
from consumers.cli import figures as figures_module
from consumers.cli.evaluation import Method, judge
from consumers.cli.figures import JudgedExamples, figures, require_scikit_learn
from consumers.cli.model_report import saved_model
from consumers.config.model import NumbersSettings, WordsSettings
from consumers.config.settings import Settings, load
from consumers.errors import ConfigError, MismatchError, QuestionError, SourceError
from consumers.features import SavedConfidence, build_model
from streamnb import Calibrator, NaiveBayes, Numbers, save
from streamnb.features.words import WordsState

N = 120
WORDS = ["sun", "rain", "not", "good", "bad", "tea", "lake", "work"]
Example = dict[str, Any]


def stream(n: int = N, classes: tuple[str, ...] = ("negative", "positive")) -> list[Example]:
    """Return labelled messages, whose words say something of their label."""
    generator = np.random.default_rng(11)
    found = []
    for i in range(n):
        c = int(generator.integers(len(classes)))
        words = generator.choice(WORDS, 4).tolist() + ["sun" if c else "rain"] * (i % 3 > 0)
        found.append({"id": str(i), "text": " ".join(words), "label": classes[c]})
    return found


def write(path: Path, messages: list[Any]) -> str:
    """Write messages as JSON lines; return the source's address."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in messages]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"file:{path}"


def settings_of(folder: Path, messages: list[Any], **model: Any) -> Settings:
    """Return settings whose source has these messages."""
    settings = load(None, {}, {"source": write(folder / "stream.jsonl", messages)})
    return settings.model_copy(update={"model": settings.model.model_copy(update=model)})


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the stream into pieces of seven messages, so that what waits goes beyond one."""
    monkeypatch.setattr(conventions, "PIECE_MESSAGES", 7)
    monkeypatch.setattr(figures_module, "REPLICATES", 20)  # as their spread is not the point


def words(*, hybrid: bool) -> dict[str, WordsSettings]:
    """Return a group of words with a hybrid or without."""
    return {"text": WordsSettings(hybrid=hybrid)}


def texts(examples: list[Example]) -> dict[str, list[str]]:
    """Return the column of texts."""
    return {"text": [each["text"] for each in examples]}


def labels(examples: list[Example]) -> list[str]:
    """Return the labels."""
    return [each["label"] for each in examples]


def assert_judged(judged: JudgedExamples, expected: Any, examples: list[Example]) -> None:
    """Check labels and log-posteriors, bit for bit."""
    assert [judged.classes[c] for c in judged.labels] == labels(examples)
    assert np.array_equal(judged.log_posteriors, np.asarray(expected, np.float32))


def test_each_message_is_judged_before_it_is_learned(tmp_path: Path) -> None:
    """By default the posteriors are those of the library's prequential run."""
    settings, examples = settings_of(tmp_path, stream()), stream()
    judged = judge(settings, Method())
    model = build_model(settings.model)
    assert_judged(judged, model.prequential_many(texts(examples), labels(examples)), examples)
    assert (judged.messages, judged.unlabelled, judged.deletions) == (N, 0, 0)


def test_what_was_learned_has_a_likelihood_where_counts_say_it(tmp_path: Path) -> None:
    """It is the library's for the same examples, however few of them were learned."""
    settings, examples = settings_of(tmp_path, stream()), stream()
    model = build_model(settings.model)
    model.learn_many(texts(examples), labels(examples))
    total = model.log_likelihood(texts(examples), labels(examples), with_coefficient=False)
    found = figures(judge(settings, Method()))["training"]
    expected = {"examples": N, "log_likelihood": total, "joint_nll": -total / N}
    assert found == pytest.approx(expected)
    assert figures(judge(settings, Method(folds=3)))["training"] == pytest.approx(expected)
    half = figures(judge(settings, Method(hold_out=0.5)))["training"]
    assert 0 < half["examples"] < N
    examples = [{"reading": float(i % 7), "label": "ab"[i % 2]} for i in range(20)]
    numbers = {"reading": NumbersSettings(prior="normal-inverse-gamma")}
    settings = settings_of(tmp_path, examples, features=numbers, classes=("a", "b"))
    assert figures(judge(settings, Method()))["training"] is None


@pytest.mark.parametrize("delay", [1, 6, 7, 20, N - 1, N, 5 * N])
def test_a_late_label_is_learned_once_so_many_more_were_judged(tmp_path: Path, delay: int) -> None:
    """Message i is judged by a model that has learned those before i − delay, and no other."""
    settings, examples = settings_of(tmp_path, stream()), stream()
    model, expected = build_model(settings.model), []
    for i, each in enumerate(examples):
        expected.append(model.predict_log_proba_many(texts([each]))[0])
        if i >= delay:
            model.learn_one({"text": examples[i - delay]["text"]}, examples[i - delay]["label"])
    assert_judged(judge(settings, Method(delay=delay)), expected, examples)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.9, 0.99])
def test_the_last_share_is_judged_by_a_model_of_the_rest(tmp_path: Path, share: float) -> None:
    """What is held out is never learned, and all before it is."""
    settings, examples = settings_of(tmp_path, stream()), stream()
    n = round((1.0 - share) * N - 0.3)  # 0.9 of 120 are 108, and no 109
    model = build_model(settings.model)
    model.learn_many(texts(examples[:n]), labels(examples[:n]))
    expected = model.predict_log_proba_many(texts(examples[n:]))
    assert_judged(judge(settings, Method(hold_out=share)), expected, examples[n:])


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_fold_is_judged_by_a_model_that_never_saw_it(tmp_path: Path, hybrid: bool) -> None:
    """For each message there is a training without its fold that gives its posteriors.

    Weights of a hybrid are learned fold by fold, as in a model of parts.
    """
    settings, examples = settings_of(tmp_path, stream(), features=words(hybrid=hybrid)), stream()
    judged = judge(settings, Method(folds=3, seed=5))
    assert [judged.classes[c] for c in judged.labels] == labels(examples)
    fold_of = np.full(N, -1)
    rows = np.random.default_rng(5)
    left = np.empty(0, np.int64)
    for begin in range(0, N, 7):  # as pieces come: the draws of the library that it states
        n = min(7, N - begin)
        drawn = rows.permuted(np.tile(np.arange(3), (n // 3 + 1, 1)), axis=1).ravel()
        every = np.concatenate((left, drawn))
        fold_of[begin : begin + n], left = every[:n], every[n:]
    assert np.ptp(np.bincount(fold_of)) <= 1
    for fold in range(3):
        own = [each for each, own in zip(examples, fold_of, strict=True) if own == fold]
        model = build_model(settings.model)
        for other in {0, 1, 2} - {fold} if hybrid else [None]:
            rows_of = fold_of != fold if other is None else fold_of == other
            some = [each for each, is_in in zip(examples, rows_of, strict=True) if is_in]
            part = None if other is None else str(other)
            model.learn_many(texts(some), labels(some), part=part)
        expected = model.predict_log_proba_many(texts(own)).astype(np.float32)
        assert np.array_equal(judged.log_posteriors[fold_of == fold], expected)


def test_folds_of_a_full_vocabulary_say_that_they_are_no_trainings(tmp_path: Path) -> None:
    """With how many words they hold and a training may; within the bound nothing is said."""
    source = write(tmp_path / "stream.jsonl", stream())
    config, report = tmp_path / "config.yaml", tmp_path / "report.html"
    notes = []
    for max_words in (5, 1_000):
        group = {"hybrid": False, "max_words": max_words}
        config.write_text(json.dumps({"model": {"features": {"text": group}}}), encoding="utf-8")
        arguments = ["evaluate", source, "-c", str(config), "--folds", "3"]
        done = CliRunner().invoke(
            commands.app, [*arguments, "--json", "--report", str(report)], catch_exceptions=False
        )
        notes.append(json.loads(done.stdout)["notes"])
        shown = CliRunner().invoke(commands.app, arguments, catch_exceptions=False).stdout
        for note in notes[-1]:
            assert note in shown
            assert note in report.read_text(encoding="utf-8")
    wanted = (
        r"text: the folds together hold \d+ words or values, [\d,]+ have left a fold that was full,"
        r" and one training holds 5 at most: .*, and not bit for bit those of trainings"
    )
    assert re.fullmatch(wanted, notes[0][0])
    assert [len(each) for each in notes] == [1, 0]


def test_a_saved_model_judges_and_learns_nothing(tmp_path: Path) -> None:
    """A file's model answers as it is; the file stays, and another model's fields are refused."""
    settings, examples = settings_of(tmp_path, stream()), stream()
    model = build_model(settings.model)
    model.learn_many(texts(examples[:50]), labels(examples[:50]))
    path = tmp_path / "model.nb"
    save(model, path)
    before = path.read_bytes()
    saved = saved_model(path, settings).model
    judged = judge(settings, Method(model=saved))
    assert_judged(judged, model.predict_log_proba_many(texts(examples)), examples)
    assert path.read_bytes() == before
    assert saved.digest() == model.digest()
    save(NaiveBayes(features={"n": Numbers(fields=["age"])}), path)
    with pytest.raises(MismatchError, match=r"reads age \(numbers\), and .* text \(words\)"):
        saved_model(path, settings)


def test_a_saved_model_answers_by_the_calibrator_of_its_file(tmp_path: Path) -> None:
    """One that a checkpoint or the library's notes have is used, unless told not to."""
    settings, examples = settings_of(tmp_path, stream()), stream()
    model = build_model(settings.model)
    saved = SavedConfidence(settings.model.model_copy(update={"calibration": True}))
    truth = np.array([model.classes.index(each) for each in labels(examples)])
    saved.learned.learn(model.prequential_many(texts(examples), labels(examples)), truth)
    entries = {"confidence": dict(saved.pack().values)}
    assert saved.learned.calibrator is not None
    stated = model.predict_log_proba_many(texts(examples))
    for notes in ({"entries": entries}, {"calibrator": saved.learned.calibrator.to_dict()}):
        save(model, path := tmp_path / "model.nb", notes=notes)
        for calibrated, expected in (
            (True, saved.learned.calibrator.calibrate(stated)),
            (False, stated),
        ):
            known = saved_model(path, settings, calibrated=calibrated).model
            assert_judged(judge(settings, Method(model=known)), expected, examples)
    arguments = ["evaluate", f"file:{tmp_path}/stream.jsonl", "--model", f"{tmp_path}/model.nb"]
    shown = CliRunner().invoke(commands.app, arguments, catch_exceptions=False).stdout
    assert "(model, calibrated)" in shown
    done = CliRunner().invoke(commands.app, [*arguments, "--uncalibrated", "--json"])
    assert json.loads(done.stdout)["calibrated"] is False


@pytest.mark.parametrize(
    "method", [Method(), Method(delay=1), Method(delay=9), Method(hold_out=0.4)]
)
def test_answers_are_calibrated_as_the_daemon_calibrates_them(
    tmp_path: Path, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `model.calibration` each by what came true of the messages that were learned before."""
    examples = stream()
    settings = settings_of(tmp_path, examples, calibration=True)
    plain = judge(settings, msgspec.structs.replace(method, calibrated=False))
    n_known = N - len(plain.labels)
    model, calibrator = build_model(settings.model), Calibrator()
    before = model.prequential_many(texts(examples[:n_known]), labels(examples[:n_known]))
    truth = [settings.model.classes.index(label) for label in labels(examples)]
    calibrator.prequential_many(before, truth[:n_known])
    expected = []
    for i, stated in enumerate(plain.log_posteriors):
        late = i - 1 - method.delay
        if late >= 0 and method.hold_out is None:
            own = slice(late, late + 1)
            calibrator.prequential_many(plain.log_posteriors[own], truth[own])
        expected.append(calibrator.calibrate(stated[np.newaxis])[0])
    # A calibrator imports from SciPy: no other thread may be doing so meanwhile.
    monkeypatch.setattr(evaluation, "importing_scikit_learn", None)
    found = judge(settings, method)
    assert (found.calibrated, plain.calibrated) == (True, False)
    assert np.abs(found.log_posteriors - plain.log_posteriors).max() > 0.1
    np.testing.assert_allclose(found.log_posteriors, expected, atol=1e-5)
    assert not judge(settings, Method(folds=3)).calibrated


def test_a_comparison_calibrates_the_models_that_ask_for_it(tmp_path: Path) -> None:
    """So that two configurations that differ by `model.calibration` differ."""
    source = write(tmp_path / "stream.jsonl", stream())
    for name in ("true", "false"):
        (tmp_path / f"{name}.yaml").write_text(f"model: {{calibration: {name}}}", encoding="utf-8")
    arguments = ["compare", source, f"{tmp_path}/true.yaml", f"{tmp_path}/false.yaml"]
    done = CliRunner().invoke(commands.app, [*arguments, "--json"], catch_exceptions=False)
    models = json.loads(done.stdout)["models"]
    assert [models[name]["calibrated"] for name in ("true", "false")] == [True, False]
    assert models["true"]["figures"]["log_loss"] != models["false"]["figures"]["log_loss"]
    shown = CliRunner().invoke(commands.app, arguments, catch_exceptions=False).stdout
    assert "true, its answers are calibrated" in shown
    assert "false, its answers are calibrated" not in shown


def test_what_cannot_be_judged_is_counted(tmp_path: Path) -> None:
    """Messages without a label, of another class, deletions and broken ones are told apart."""
    odd = [
        {"id": "a", "text": "no label"},
        {"id": "b", "text": "sun", "label": "purple"},
        {"id": "c", "operation": "delete"},
        "{broken",
    ]
    judged = judge(settings_of(tmp_path, stream(9) + odd), Method())
    assert (judged.messages, len(judged.labels)) == (13, 9)
    assert (judged.unlabelled, judged.deletions) == (1, 1)
    assert judged.rejected == {"unknown_label": 1, "not_json": 1}
    source = write(tmp_path / "shown.jsonl", stream(9) + odd)
    shown = CliRunner().invoke(commands.app, ["evaluate", source], catch_exceptions=False).stdout
    assert "2 rejected (not_json 1, unknown_label 1)" in shown
    wanted = r"no labelled message to judge, of 4 read, 1 without.* 1 not_json, 1 unknown_label rej"
    first = r'.*; the first reject: file:stream.jsonl\[0\]@32: the label "purple" at'
    with pytest.raises(QuestionError, match=wanted + first):
        judge(settings_of(tmp_path, odd), Method())


def test_classes_that_join_have_no_probability_before(tmp_path: Path) -> None:
    """A message that brings its class is impossible to its model, and is not in the log-loss."""
    examples = stream(60, ("negative", "positive", "neutral", "odd"))
    for method in (Method(), Method(delay=3), Method(hold_out=0.3), Method(folds=3)):
        judged = judge(settings_of(tmp_path, examples, new_classes=True), method)
        found = figures(judged)
        assert set(found["classes"]) == {"negative", "positive", "neutral", "odd"}
        assert np.isfinite(found["figures"]["log_loss"]["value"])
        assert np.isclose(np.exp(judged.log_posteriors).sum(axis=1), 1.0).all()
        if method == Method():
            assert found["impossible"] == 2


@pytest.mark.parametrize("method", [Method(), Method(delay=3), Method(hold_out=0.3)])
def test_a_calibrated_answer_knows_no_class_that_joins_later(
    tmp_path: Path, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is the same bytes, however the stream is cut into pieces."""
    examples, found = stream(100, ("negative", "positive", "new")) + stream(9, ("odd",)), set()
    settings = settings_of(tmp_path, examples, new_classes=True, calibration=True)
    for n in (1, 7, 1_000):
        monkeypatch.setattr(conventions, "PIECE_MESSAGES", n)
        found.add(judge(settings, method).log_posteriors.tobytes())
    assert len(found) == 1


def test_a_far_number_is_unlikely_and_not_impossible(tmp_path: Path) -> None:
    """What is beyond 32 bits counts in the log-loss, with as much as an example can."""
    groups = {"numbers": NumbersSettings(kind="numbers", fields=("x",))}
    classes = ("negative", "positive")
    examples: list[Any] = [{"x": x, "label": each} for x in (1.0, 2.0) for each in classes]
    far = [{"x": 1e50, "label": "negative"}, {"x": 2.0, "label": "negative"}]
    examples += [{"x": 1e-9, "label": "negative"}] * 9 + far
    judged = judge(settings_of(tmp_path, examples, features=groups), Method(hold_out=2 / 15))
    assert np.isfinite(judged.log_posteriors).all()
    assert figures(judged)["impossible"] == 0


@pytest.mark.parametrize("variance", ["own", "shared"])
@pytest.mark.parametrize(
    "method", [Method(), Method(delay=4), Method(hold_out=0.8), Method(folds=3, seed=5)]
)
def test_a_point_mass_is_left_out_of_the_joint_and_counted(
    tmp_path: Path, method: Method, variance: Any
) -> None:
    """Where a class had one value only of a number, its density is that of the variance floor."""
    generator = np.random.default_rng(7)
    examples: list[Any] = []
    for i in range(N):
        label = ("a", "b", "constant", "rare")[3 if i in {50, 90} else i % 3]
        x = {"age": 5.0 if label == "constant" else float(generator.normal(40.0, 10.0))}
        x["stars"] = float(generator.integers(1, 6))
        for name in [each for each in x if generator.random() < 0.2]:
            del x[name]
        examples.append(x | {"label": label})
    groups = {"numbers": NumbersSettings(fields=("age", "stars"), variance=variance)}
    settings = settings_of(
        tmp_path, examples, features=groups, classes=("a", "b", "constant"), new_classes=True
    )
    judged = judge(settings, method)

    def is_point(i: int, others: list[Any]) -> bool:
        for name in {"age", "stars"} & {*examples[i]}:
            own: dict[str, set[float]] = {}
            for each in others:
                if name in each:
                    own.setdefault(each["label"], set()).add(each[name])
            of = [own.get(examples[i]["label"], set().union(*own.values()))]
            if own and max(map(len, own.values() if variance == "shared" else of)) < 2:
                return True
        return False

    rows = np.arange(N - len(judged.labels), N)
    if method.folds is None:
        expected = [
            is_point(i, examples[: rows[0] if method.hold_out else max(0, i - method.delay)])
            for i in rows.tolist()
        ]
        assert np.isnan(np.asarray(judged.joint)).tolist() == expected
    found = figures(judged)
    n = int(np.isnan(np.asarray(judged.joint)).sum())
    assert found["joint_left_out"] == n > (-1 if variance == "shared" else 5)
    assert [each.split(":")[0] for each in found["notes"]] == [
        f"joint NLL leaves out {n} of {len(rows)} examples"
    ] * (n > 0)
    assert method != Method() or 3 < found["figures"]["joint_nll"]["value"] < 300
    prior = NumbersSettings(fields=("age", "stars"), prior="normal-inverse-gamma")
    settings = settings_of(tmp_path, examples, features={"numbers": prior}, new_classes=True)
    assert figures(judge(settings, method))["joint_left_out"] == 0


def test_decayed_models_are_judged_as_the_daemon_learns(tmp_path: Path) -> None:
    """A half-life weighs examples by their messages' times; folds of it are refused."""
    examples = [
        each | {"created_at": f"2026-11-0{1 + i // 20}T00:00:00Z"}
        for i, each in enumerate(stream())
    ]
    plain = settings_of(tmp_path, examples)
    decayed = settings_of(tmp_path, examples, half_life_s=3600.0)
    for method in (Method(), Method(delay=4), Method(hold_out=0.5)):
        first, second = judge(plain, method), judge(decayed, method)
        assert np.array_equal(first.labels, second.labels)
        assert not np.array_equal(first.log_posteriors, second.log_posteriors)
    with pytest.raises(ConfigError, match=r"--folds: .*half_life_s"):
        judge(decayed, Method(folds=2))


# ---- the command ---------------------------------------------------------------------------------


def test_the_command_prints_the_same_json_again(tmp_path: Path) -> None:
    """Two runs agree to the byte, for each method; the table shows the same figures."""
    source = write(tmp_path / "stream.jsonl", stream())
    config = tmp_path / "config.yaml"
    config.write_text("model: {classes: [negative, positive]}\n", encoding="utf-8")
    for more in ([], ["--folds", "4", "--seed", "2"]):
        arguments = ["evaluate", source, "-c", str(config), *more]
        first, second = (
            CliRunner().invoke(commands.app, [*arguments, "--json"], catch_exceptions=False)
            for _ in range(2)
        )
        assert first.stdout == second.stdout
        found = json.loads(first.stdout)
        assert found["messages"] == N
        assert found["method"] == (more[0].lstrip("-") if more else "prequential")
        shown = CliRunner().invoke(commands.app, arguments, catch_exceptions=False).stdout
        assert f"{found['figures']['accuracy']['value']:.4f}" in shown
        assert "log loss" in shown
        assert "without multinomial coefficients" in shown
        parts = re.split(r"\s+", shown)
        for row in (*found["coverage"], *(row["f1"] for row in found["by_class"].values())):
            assert {f"{row[end]:.4f}" for end in ("value", "low", "high")} <= {*parts}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--delay", "3", "--folds", "2"], "exclude each other"),
        (["--hold-out", "1.5"], "between 0 and 1"),
        (["--fading", "0"], "between 0 and 1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], told: str) -> None:
    """The command line is wrong: exit code 2, before anything is read."""
    done = CliRunner().invoke(commands.app, ["evaluate", "file:nothing.jsonl", *arguments])
    assert done.exit_code == 2
    assert told in " ".join(done.output.replace("│", " ").split())


def test_the_made_up_stream_needs_an_end() -> None:
    """It is judged up to --max-messages, and refused without."""
    done = CliRunner().invoke(commands.app, ["evaluate", "generator"])
    assert done.exit_code == 2
    done = CliRunner().invoke(
        commands.app, ["evaluate", "generator", "--max-messages", "50", "--json"]
    )
    assert json.loads(done.stdout)["messages"] == 50


def test_without_scikit_learn_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'streamnb\[evaluation\]'"):
        require_scikit_learn()


def test_the_command_runs_as_a_process_on_a_pipe(tmp_path: Path) -> None:
    """Standard output is one JSON object, that of the file, and nothing is told beside it."""
    source = write(tmp_path / "stream.jsonl", stream())
    done = subprocess.run(
        [sys.executable, "-m", "consumers", "evaluate", "stdin", "--json"], cwd=tmp_path,
        input=(tmp_path / "stream.jsonl").read_bytes(), capture_output=True, check=True,
    )  # fmt: skip
    assert not done.stderr
    read = CliRunner().invoke(commands.app, ["evaluate", source, "--json"], catch_exceptions=False)
    piped, plain = json.loads(done.stdout), json.loads(read.stdout)
    for name in ("messages", "confusion", "curve", "roc"):
        assert piped[name] == plain[name], name


def test_what_is_no_file_names_the_way_that_there_is(tmp_path: Path) -> None:
    """`file:` of a pipe is refused with the address that reads one."""
    os.mkfifo(tmp_path / "pipe")
    settings = load(None, {}, {"source": f"file:{tmp_path / 'pipe'}"})
    with pytest.raises(SourceError, match="name `stdin` as the source"):
        judge(settings, Method())


# ---- threads -----------------------------------------------------------------------------------


def test_texts_are_read_beside_learning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large batch is judged by two threads, to the same bits as by one."""
    monkeypatch.setattr(conventions, "PIECE_MESSAGES", 50_000)
    examples = stream(5_000)  # two pieces of what is read ahead
    real, threads = WordsState.encode, set()

    def encode(state: WordsState, *given: Any, **options: Any) -> Any:
        threads.add(threading.current_thread().name)
        return real(state, *given, **options)

    monkeypatch.setattr(WordsState, "encode", encode)
    settings = settings_of(tmp_path, examples)
    judged = judge(settings, Method())
    assert len(threads) == 2
    alone = build_model(settings.model)
    expected = alone.prequential_many(texts(examples), labels(examples))
    assert_judged(judged, expected, examples)


@pytest.mark.deep
@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_scikit_learn_is_imported_while_the_source_is_read(tmp_path: Path, command: str) -> None:
    """On a thread of its own, done when the last batch was taken, and without pandas."""
    source, config = write(tmp_path / "stream.jsonl", stream()), tmp_path / "words.yaml"
    config.write_text("{}", encoding="utf-8")
    code = (
        "import sys, threading\n"
        "from pathlib import Path\n"
        "from consumers.cli import compare, evaluation, figures\n"
        "from consumers.cli.conventions import load_settings\n"
        "real = figures.import_scikit_learn\n"
        "threads = []\n"
        "def told():\n"
        "    threads.append(threading.current_thread() is threading.main_thread())\n"
        "    return real()\n"
        "figures.import_scikit_learn = told\n"
        "settings = load_settings(Path(sys.argv[2]), sys.argv[3])\n"
        "assert 'sklearn' not in sys.modules\n"
        "if sys.argv[1] == 'evaluate':\n"
        "    evaluation.judge(settings, evaluation.Method())\n"
        "else:\n"
        "    both = {'a': settings, 'b': settings}\n"
        "    compare.compare(both, evaluation.Method(), 1)\n"
        "assert 'sklearn.metrics' in sys.modules and 'pandas' not in sys.modules\n"
        "assert threads == [False], threads\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, command, str(config), source],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(conventions.__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr


def test_reading_goes_on_while_a_batch_is_taken() -> None:
    """Each next item is made on another thread, one ahead, in order."""
    made, let_go = [threading.Event() for _ in range(3)], threading.Event()

    def read() -> Generator[tuple[int, int]]:
        for i, event in enumerate(made):
            event.set()
            yield i, threading.get_ident()
        let_go.set()

    items = conventions.ahead(read())
    first, thread = next(items)
    assert made[1].wait(60)  # the second one, while the first is held
    assert not made[2].is_set()
    assert (first, [i for i, _ in items], let_go.is_set()) == (0, [1, 2], True)
    assert thread != threading.get_ident()


@pytest.mark.parametrize("fails", ["reading", "taking", "nothing"])
def test_what_reads_ahead_is_closed(fails: str) -> None:
    """However it ends; an error of reading comes behind what was read before."""
    closed, taken = [], []

    def read() -> Generator[int]:
        try:
            yield 1
            if fails == "reading":
                raise SourceError("is away")
            yield 2
            yield 3
        finally:
            closed.append(True)

    def take_all() -> None:
        with closing(conventions.ahead(read())) as items:
            for item in items:
                if fails == "taking":
                    raise QuestionError("cannot be taken")
                taken.append(item)

    wanted = {"reading": SourceError, "taking": QuestionError}
    if fails in wanted:
        with pytest.raises(wanted[fails]):
            take_all()
    else:
        take_all()
    assert closed == [True]
    assert taken == {"reading": [1], "taking": [], "nothing": [1, 2, 3]}[fails]
