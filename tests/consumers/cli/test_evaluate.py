"""`streamnb evaluate`: what it judges and how, against the library, scikit-learn and River."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from typer.testing import CliRunner

from consumers.cli import commands, conventions, evaluation
from consumers.cli import figures as figures_module
from consumers.cli.evaluation import Method, judge
from consumers.cli.figures import (
    JudgedExamples,
    figures,
    require_scikit_learn,
)
from consumers.cli.report import check_report
from consumers.config.model import NumbersSettings
from consumers.config.settings import Settings, WordsSettings, load
from consumers.errors import ConfigError, MismatchError, QuestionError, SourceError
from consumers.features import SavedConfidence, build_model
from streamnb import NaiveBayes, Numbers, save

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
    monkeypatch.setattr(
        figures_module, "REPLICATES", 20
    )  # enough where their spread is not the point


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


def test_a_saved_model_judges_and_learns_nothing(tmp_path: Path) -> None:
    """A file's model answers as it is; the file stays, and another model's fields are refused."""
    settings, examples = settings_of(tmp_path, stream()), stream()
    model = build_model(settings.model)
    model.learn_many(texts(examples[:50]), labels(examples[:50]))
    path = tmp_path / "model.nb"
    save(model, path)
    before = path.read_bytes()
    saved = evaluation.saved_model(path, settings)
    judged = judge(settings, Method(model=saved))
    assert_judged(judged, model.predict_log_proba_many(texts(examples)), examples)
    assert path.read_bytes() == before
    assert saved.digest() == model.digest()
    save(NaiveBayes(features={"n": Numbers(fields=["age"])}), path)
    with pytest.raises(MismatchError, match=r"reads age \(numbers\), and .* text \(words\)"):
        evaluation.saved_model(path, settings)


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
    wanted = r"no labelled message to judge, of 4 read, 1 without.* 1 not_json, 1 unknown_label rej"
    with pytest.raises(QuestionError, match=wanted):
        judge(settings_of(tmp_path, odd), Method())


def test_classes_that_join_have_no_probability_before(tmp_path: Path) -> None:
    """A message that brings its class is impossible to its model, and is not in the log-loss."""
    examples = stream(60, ("negative", "positive", "neutral", "odd"))
    mapped = [each | {"label": each["label"]} for each in examples]
    for method in (Method(), Method(delay=3), Method(hold_out=0.3), Method(folds=3)):
        judged = judge(settings_of(tmp_path, mapped, new_classes=True), method)
        found = figures(judged)
        assert set(found["classes"]) == {"negative", "positive", "neutral", "odd"}
        assert np.isfinite(found["figures"]["log_loss"]["value"])
        assert np.isclose(np.exp(judged.log_posteriors).sum(axis=1), 1.0).all()
        if method == Method():
            assert found["impossible"] == 2


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


# ---- figures -------------------------------------------------------------------------------------


def made_up(n: int, n_classes: int, seed: int = 3) -> JudgedExamples:
    """Return examples of random truth and posteriors that know something of it."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, n_classes, n)
    scores = generator.normal(size=(n, n_classes)) + 1.2 * np.eye(n_classes)[y]
    posteriors = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    names = tuple(f"class {c}" for c in range(n_classes))
    return JudgedExamples(names, y, posteriors.astype(np.float32), messages=n)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_figures_are_those_of_scikit_learn(n_classes: int) -> None:
    """Each figure is its function of scikit-learn on the arrays as they are."""
    judged = made_up(3000, n_classes)
    y, p = judged.labels, np.exp(judged.log_posteriors.astype(np.float64))
    p /= p.sum(axis=1, keepdims=True)
    best = p.argmax(axis=1)
    found = figures(judged)
    expected = {
        "accuracy": metrics.accuracy_score(y, best),
        "zero_one_loss": metrics.zero_one_loss(y, best),
        "balanced_accuracy": metrics.balanced_accuracy_score(y, best),
        "kappa": metrics.cohen_kappa_score(y, best),
        "mcc": metrics.matthews_corrcoef(y, best),
        "precision_macro": metrics.precision_score(y, best, average="macro"),
        "recall_weighted": metrics.recall_score(y, best, average="weighted"),
        "f1_macro": metrics.f1_score(y, best, average="macro"),
        "log_loss": metrics.log_loss(y, p),
        "brier": metrics.brier_score_loss(y, p if n_classes > 2 else p[:, 1]),
        "roc_auc_macro": np.mean(
            [metrics.roc_auc_score(y == c, p[:, c]) for c in range(n_classes)]
        ),
        "pr_auc_macro": metrics.average_precision_score(np.eye(n_classes)[y], p),
    }
    for name, value in expected.items():
        assert found["figures"][name]["value"] == pytest.approx(value, rel=1e-5), name
    by_class = metrics.precision_recall_fscore_support(y, best)
    for c, label in enumerate(judged.classes):
        row = found["by_class"][label]
        for i, name in enumerate(("precision", "recall", "f1")):
            assert row[name]["value"] == pytest.approx(by_class[i][c])
        specificity = metrics.recall_score(y != c, best != c)
        assert row["specificity"]["value"] == pytest.approx(specificity)
        assert row["support"] == by_class[3][c]
    assert found["confusion"] == metrics.confusion_matrix(y, best).tolist()
    for each in found["figures"].values():
        assert each["low"] <= each["value"] <= each["high"]


def test_figures_are_made_by_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure that it has is asked of it, and not only worked out alike."""
    asked: dict[str, Any] = {}
    names = (
        "accuracy_score", "zero_one_loss", "balanced_accuracy_score", "cohen_kappa_score",
        "matthews_corrcoef", "precision_recall_fscore_support", "log_loss", "brier_score_loss",
        "roc_curve", "precision_recall_curve", "auc", "average_precision_score",
        "multilabel_confusion_matrix",
    )  # fmt: skip
    for name in names:
        real = getattr(metrics, name)

        def told(*given: Any, name: str = name, real: Any = real, **options: Any) -> Any:
            asked[name] = real(*given, **options)
            return asked[name]

        monkeypatch.setattr(metrics, name, told)
    found = figures(made_up(300, 3))
    assert set(asked) == set(names)
    for name, function in (("accuracy", "accuracy_score"), ("mcc", "matthews_corrcoef")):
        assert found["figures"][name]["value"] == asked[function]


def test_a_log_loss_is_bounded_as_by_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer that is sure and wrong counts 36 nats; one of no probability is left out."""
    monkeypatch.setattr(figures_module, "_PIECE_VALUES", 50)  # so that there are many pieces
    judged = made_up(200, 2)
    judged.log_posteriors = judged.log_posteriors.astype(np.float64)  # rows sum up to one
    judged.log_posteriors -= np.logaddexp.reduce(judged.log_posteriors, axis=1, keepdims=True)
    judged.log_posteriors[3, judged.labels[3]] = -80.0
    judged.log_posteriors[3, 1 - judged.labels[3]] = 0.0
    p = np.exp(judged.log_posteriors)
    expected = metrics.log_loss(judged.labels, p)
    found = figures(judged)
    assert found["figures"]["log_loss"]["value"] == pytest.approx(expected, rel=1e-12)
    brier = metrics.brier_score_loss(judged.labels, p, labels=[0, 1])
    assert found["figures"]["brier"]["value"] == pytest.approx(brier, rel=1e-12)
    judged.log_posteriors[3, judged.labels[3]] = -np.inf
    found = figures(judged)
    assert found["impossible"] == 1
    rest = np.arange(200) != 3
    expected = metrics.log_loss(judged.labels[rest], p[rest])
    assert found["figures"]["log_loss"]["value"] == pytest.approx(expected, rel=1e-12)


def test_every_replicate_is_what_scikit_learn_says_of_it() -> None:
    """Formulas take all replicates at once: each is scikit-learn's on its own weights.

    One replicate lacks a class, and one class is never said.
    """
    weights = np.random.default_rng(8).integers(1, 40, (6, 3, 3)).astype(np.float64)
    weights[1, 2], weights[2, :, 0] = 0.0, 0.0
    truth, said = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    for cells in weights:
        own = {"sample_weight": cells.ravel()}
        scores = metrics.precision_recall_fscore_support(
            truth, said, labels=range(3), zero_division=0.0, **own
        )
        expected = {
            "accuracy": metrics.accuracy_score(truth, said, **own),
            "zero_one_loss": metrics.zero_one_loss(truth, said, **own),
            "balanced_accuracy": scores[1][scores[3] > 0].mean(),
            "kappa": metrics.cohen_kappa_score(truth, said, **own),
            "mcc": metrics.matthews_corrcoef(truth, said, **own),
            "precision_weighted": np.average(scores[0], weights=scores[3]),
            "f1_macro": scores[2].mean(),
        }
        found, of_classes = replicates_of_confusion(cells[None])
        for name, value in expected.items():
            assert found[name][0] == pytest.approx(value, rel=1e-12), name
        of_others = [
            metrics.recall_score(truth != c, said != c, zero_division=0.0, **own) for c in range(3)
        ]
        for values, each in zip(of_classes.values(), (*scores[:3], of_others), strict=True):
            assert values[0] == pytest.approx(each, rel=1e-12)
    groups = np.random.default_rng(9).integers(0, 5, (4, 50, 2)).astype(np.float64)
    counts = np.cumsum(groups, axis=1)
    roc, precision_recall = figures_module._areas(counts[:, :, 1], counts[:, :, 0])
    for i, each in enumerate(groups):
        scored = (np.tile([0, 1], 50), -np.repeat(np.arange(50), 2))
        drawn = {"sample_weight": each.ravel()}
        assert roc[i] == pytest.approx(metrics.roc_auc_score(*scored, **drawn), rel=1e-12)
        average = metrics.average_precision_score(*scored, **drawn)
        assert precision_recall[i] == pytest.approx(average, rel=1e-12)


def test_points_of_curves_lie_on_the_exact_ones() -> None:
    """Of the ROC and precision-recall curves those points are kept that scikit-learn has too."""
    judged = made_up(5000, 2)
    judged.log_posteriors = np.round(judged.log_posteriors, 2)  # with ties
    truth, scores = judged.labels == 1, judged.log_posteriors[:, 1]
    found = figures(judged)
    exact = metrics.roc_curve(truth, scores, drop_intermediate=False)[:2]
    assert {tuple(point) for point in found["roc"]["class 1"]} <= set(zip(*exact, strict=True))
    precision, recall, _ = metrics.precision_recall_curve(truth, scores)
    points = {tuple(point) for point in found["precision_recall"]["class 1"]}
    assert points <= set(zip(recall, precision, strict=True))
    assert 50 < len(points) < 110
    row = found["by_class"]["class 1"]
    assert row["roc_auc"]["value"] == pytest.approx(metrics.roc_auc_score(truth, scores), rel=1e-12)
    average = metrics.average_precision_score(truth, scores)
    assert row["pr_auc"]["value"] == pytest.approx(average, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "kind", "n_classes"),
    [
        ("accuracy", river.metrics.Accuracy, 3),
        ("kappa", river.metrics.CohenKappa, 3),
        ("f1_macro", river.metrics.MacroF1, 3),
        ("mcc", river.metrics.MCC, 2),
    ],
)
def test_figures_are_those_of_river(name: str, kind: Any, n_classes: int) -> None:
    """River's running metrics come to the same."""
    judged, metric = made_up(400, n_classes), kind()
    for truth, row in zip(judged.labels.tolist(), judged.log_posteriors, strict=True):
        metric.update(truth, int(row.argmax()))
    assert figures(judged)["figures"][name]["value"] == pytest.approx(metric.get())


def test_calibration_coverage_and_curve_by_hand() -> None:
    """Ten answers, whose bins, surest share and windows can be counted."""
    sure = np.array([0.52, 0.58, 0.63, 0.72, 0.78, 0.83, 0.88, 0.93, 0.97, 0.99])
    right = np.array([1, 0, 1, 0, 1, 1, 0, 1, 1, 1])
    y = np.where(right, 0, 1)
    judged = JudgedExamples(
        ("a", "b"), y, np.log(np.stack((sure, 1 - sure), axis=1)).astype(np.float32)
    )
    found = figures(judged, window=4)
    bins: dict[int, list[int]] = {}
    for i, value in enumerate(sure):
        bins.setdefault(int(value * 20), []).append(i)
    ece = sum(abs(sure[rows].sum() - right[rows].sum()) for rows in bins.values()) / 10
    assert found["figures"]["ece"]["value"] == pytest.approx(ece, rel=1e-6)
    assert [row["examples"] for row in found["reliability"]] == [len(bins[b]) for b in sorted(bins)]
    half = next(row for row in found["coverage"] if row["coverage"] == pytest.approx(0.5, abs=0.11))
    kept = sure >= half["confidence"] - 1e-6
    assert half["value"] == pytest.approx(right[kept].mean())
    assert [row["example"] for row in found["curve"]] == [4, 8, 10]
    assert [row["accuracy"] for row in found["curve"]] == [0.5, 0.75, 1.0]
    faded = figures(judged, window=4, fading=0.9)["curve"]
    weights = 0.9 ** np.arange(3, -1, -1)
    assert faded[0]["accuracy"] == pytest.approx((weights * right[:4]).sum() / weights.sum())


def test_an_interval_is_as_wide_as_theory_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of independent answers it is 1.96 standard errors to each side; of answers in runs, more."""
    monkeypatch.setattr(figures_module, "REPLICATES", 1000)
    n, p = 20_000, 0.7
    blocks = Blocks(n, seed=0)
    independent = np.random.default_rng(4).random(n) < p
    in_runs = np.repeat(np.random.default_rng(4).random(n // 20) < p, 20)
    alone = 2 * 1.96 * np.sqrt(p * (1 - p) / n)
    for right, times in ((independent, 1.0), (in_runs, np.sqrt(20))):
        found = blocks.ratio(right.astype(np.float64), np.ones(n))
        assert found["value"] == right.mean()
        assert found["low"] < found["value"] < found["high"]
        assert (found["high"] - found["low"]) / alone == pytest.approx(times, rel=0.1)


def test_a_single_example_and_a_single_class_have_figures() -> None:
    """Nothing divides by nothing: what there is no curve of has no area."""
    one = JudgedExamples(
        ("a", "b"), np.zeros(1, np.int64), np.log(np.array([[0.75, 0.25]], np.float32))
    )
    found = figures(one)
    assert found["figures"]["accuracy"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert "roc_auc_macro" not in found["figures"]
    assert np.isnan(found["by_class"]["a"]["roc_auc"]["value"])
    alone = figures(JudgedExamples(("a",), np.zeros(3, np.int64), np.zeros((3, 1), np.float32)))
    for name, value in (("accuracy", 1.0), ("log_loss", 0.0), ("brier", 0.0)):
        assert alone["figures"][name]["value"] == pytest.approx(value, abs=1e-12)


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


# ---- the report ----------------------------------------------------------------------------------


def test_the_report_is_the_same_again_and_shows_what_the_json_has(tmp_path: Path) -> None:
    """Two runs write the same bytes; names in it are text, and nothing in it is fetched."""
    classes = ("<b>bad</b> & $x^2$", "good", "odd")
    source = write(tmp_path / "stream.jsonl", stream(90, classes))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"model": {"classes": classes}}), encoding="utf-8")
    path = tmp_path / "report.html"
    arguments = ["evaluate", source, "-c", str(config), "--report", str(path), "--json"]
    written = []
    for _ in range(2):
        done = CliRunner().invoke(commands.app, arguments, catch_exceptions=False)
        written.append(path.read_bytes())
    assert written[0] == written[1]
    text = written[0].decode()
    assert "<b>" not in text
    assert "&lt;b&gt;bad&lt;/b&gt; &amp; $x^2$" in text
    for each in json.loads(done.stdout)["figures"].values():
        assert f"{each['value']:.4f}<small>{each['low']:.4f} – {each['high']:.4f}" in text
    assert not re.search(r"(src|href)=\"[^#]|url\((?!#)|@import|<script", text)
    assert str(tmp_path) not in text.replace(source, "")


def test_plots_show_names_that_would_be_left_out_or_break_them(tmp_path: Path) -> None:
    """Also names that look like parts of a drawing, and characters that no font here has."""
    classes = ("_hidden", "日本", "font-family: a", 'id="a_1"', "#0a0b00")
    source = write(tmp_path / "stream.jsonl", stream(200, classes))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"model": {"classes": classes}}), encoding="utf-8")
    path = tmp_path / "report.html"
    arguments = ["evaluate", source, "-c", str(config), "--report", str(path)]
    CliRunner().invoke(commands.app, arguments, catch_exceptions=False)
    drawings = re.findall(r"<svg.*?</svg>", path.read_text(encoding="utf-8"), re.DOTALL)
    assert len(drawings) == 6
    shown = [[each.text or "" for each in ET.fromstring(svg).iter()] for svg in drawings]
    for name in classes:
        for own in shown[-2:]:
            assert sum(each.strip().startswith(f"{name}, area") for each in own) == 1


def test_a_report_that_cannot_be_written_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the source is read: a missing folder, and a missing package with its extra."""
    with pytest.raises(ConfigError, match=r"there is no folder .*nowhere; make it first"):
        check_report(tmp_path / "nowhere" / "report.html")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'streamnb\[plots\]'"):
        check_report(tmp_path / "report.html")
