"""The figures of `streamnb evaluate`, against scikit-learn, River, and arithmetic by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec.structs
import numpy as np
import pytest
import river.metrics
from scipy.stats import gmean
from sklearn import metrics
from typer.testing import CliRunner

import streamnb as nb
from consumers.cli import commands
from consumers.cli import figures as figures_module
from consumers.cli.evaluation import Method, judge
from consumers.cli.figures import Blocks, JudgedExamples, figures, replicates_of_confusion
from consumers.cli.model_report import saved_model
from consumers.features import SavedConfidence, build_model
from streamnb import Codes, HalfLife, Multinomial, NaiveBayes, Words
from streamnb.learn import prequential
from tests.consumers.cli.test_evaluate import (
    WORDS,
    N,
    labels,
    settings_of,
    stream,
    texts,
    words,
    write,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw few replicates, which are enough where their spread is not the point."""
    monkeypatch.setattr(figures_module, "REPLICATES", 20)


def made_up(n: int, n_classes: int, seed: int = 3) -> JudgedExamples:
    """Return examples of random truth and posteriors that know something of it."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, n_classes, n)
    scores = generator.normal(size=(n, n_classes)) + 1.2 * np.eye(n_classes)[y]
    posteriors = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    names = tuple(f"class {c}" for c in range(n_classes))
    joint = posteriors[np.arange(n), y] - generator.gamma(9.0, size=n)
    return JudgedExamples(names, y, posteriors.astype(np.float32), joint, messages=n)


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
        "joint_nll": -np.mean(np.asarray(judged.joint), dtype=np.float64),
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
        "confusion_matrix_at_thresholds", "auc", "average_precision_score",
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
            "g_mean": gmean(scores[1][scores[3] > 0]),
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
        ("g_mean", river.metrics.GeometricMean, 3),
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


def test_an_even_answer_is_in_the_bin_that_begins_at_one_half() -> None:
    """Though 0.5, as a logarithm of 32 bits, comes back a little smaller."""
    even = np.log(np.full((4, 2), 0.5)).astype(np.float32)
    (row,) = figures(JudgedExamples(("a", "b"), np.array([0, 1, 0, 0]), even))["reliability"]
    assert (row["from"], row["to"], row["accuracy"]) == (0.5, 0.55, 0.75)


def test_coverage_falls_by_tenths() -> None:
    """Of answers that differ exactly the share that is said is given."""
    sure = np.linspace(0.55, 0.95, 100)
    posteriors = np.log(np.stack((sure, 1 - sure), axis=1)).astype(np.float32)
    found = figures(JudgedExamples(("a", "b"), np.zeros(100, np.int64), posteriors))["coverage"]
    assert [row["coverage"] for row in found] == [each / 10 for each in range(10, 0, -1)]


def test_examples_without_a_probability_are_in_no_log_loss() -> None:
    """Neither in that of all, nor in that of a window; where there is no other, there is none."""
    posteriors = np.array([[0.0, -np.inf], [0.0, -np.inf], [-0.5, -0.93], [0.0, -np.inf]])
    judged = JudgedExamples(("a", "b"), np.array([1, 1, 0, 1]), posteriors.astype(np.float32))
    for fading in (None, 0.9):
        found = figures(judged, window=2, fading=fading)
        assert found["impossible"] == 3
        assert found["figures"]["log_loss"]["value"] == pytest.approx(0.5)
        losses = [row["log_loss"] for row in found["curve"]]
        assert np.isnan(losses[0])
        assert losses[1] == pytest.approx(0.5)
    none = JudgedExamples(("a", "b"), judged.labels[:2], judged.log_posteriors[:2])
    assert np.isnan(figures(none)["figures"]["log_loss"]["value"])


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


def test_the_interval_of_an_area_ends_at_1() -> None:
    """Replicates know groups of scores, and are moved to the exact area: not beyond the largest."""
    generator = np.random.default_rng(1)
    y = generator.integers(0, 2, 3_000)
    z = np.where(y == 1, 1.0, -1.0) * (0.2 + generator.gamma(4.0, size=len(y)))
    z[generator.choice(len(y), 2, replace=False)] *= -0.1
    posteriors = -np.logaddexp(0.0, np.stack((z, -z), axis=1)).astype(np.float32)
    found = figures(JudgedExamples(("a", "b"), y, posteriors))
    areas = [found["figures"][f"{name}_macro"] for name in ("roc_auc", "pr_auc")]
    areas += [row[name] for row in found["by_class"].values() for name in ("roc_auc", "pr_auc")]
    for area in areas:
        assert 0.99 < area["low"] <= area["value"]
        assert area["value"] <= area["high"] <= 1.0


def test_areas_of_rare_classes_have_intervals() -> None:
    """A replicate averages over the classes that came in it, of which there are never all."""
    n, n_rare = 400, 40
    judged = made_up(n, 2 + n_rare)
    y = np.arange(n) % 2
    y[:: n // n_rare] = np.arange(2, 2 + n_rare)
    posteriors = made_up(n, 2 + n_rare).log_posteriors
    posteriors[np.arange(n), y] += 2.0
    judged = msgspec.structs.replace(judged, labels=y, log_posteriors=posteriors)
    found = figures(judged)["figures"]
    for name in ("roc_auc_macro", "pr_auc_macro"):
        area = found[name]
        assert 0.0 < area["low"] < area["high"] <= 1.0
        assert area["high"] - area["low"] < 0.5


def test_what_has_no_interval_is_shown_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no replicate has the one message of a class, a dash stands for the interval."""
    monkeypatch.setattr(figures_module, "REPLICATES", 1)
    rows = [{"text": "sun" if i % 2 else "rain", "label": "positive"} for i in range(20)]
    rows[10]["label"] = "negative"
    source, report = write(tmp_path / "some.jsonl", rows), tmp_path / "report.html"
    arguments = ["evaluate", source, "--seed", "6"]
    done = CliRunner().invoke(commands.app, [*arguments, "--json"], catch_exceptions=False)
    area = json.loads(done.stdout)["figures"]["roc_auc_macro"]
    assert (area["low"], area["high"]) == (None, None)
    value = f"{area['value']:.4f}"
    arguments += ["--report", str(report)]
    done = CliRunner().invoke(commands.app, arguments, catch_exceptions=False)
    assert [line.split() for line in done.stdout.splitlines() if "roc auc macro" in line] == [
        ["roc", "auc", "macro", value, "–"]
    ]
    assert "nan" not in done.stdout
    assert f"{value}<small>–</small>" in report.read_text(encoding="utf-8")


def test_the_calibration_error_lies_within_its_interval() -> None:
    """Also of a model that is nearly calibrated, whose replicates all err more."""
    for n in (200, 3_000):
        generator = np.random.default_rng(n)
        said = generator.random(n)
        posteriors = np.log(np.stack((1 - said, said), axis=1)).astype(np.float32)
        y = (generator.random(n) < said).astype(np.int64)
        found = figures(JudgedExamples(("a", "b"), y, posteriors))["figures"]["ece"]
        assert 0.0 <= found["low"] < found["value"] < found["high"] < 3 * found["value"]


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


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_joint_nll_is_of_models_that_had_not_learned_the_example(
    tmp_path: Path, hybrid: bool
) -> None:
    """It is the library's joint of the counts, by each method; of a hybrid only if asked for."""
    examples, half = stream(), N // 2
    settings = settings_of(tmp_path, examples, features=words(hybrid=hybrid))
    plain = settings.model.model_copy(update={"features": words(hybrid=False)})
    y = [settings.model.classes.index(label) for label in labels(examples)]

    def joint(n_learned: int, i: int) -> float:
        """Return log p(x, y) of example `i` by a model of so many."""
        model = build_model(plain)
        model.learn_many(texts(examples[:n_learned]), labels(examples[:n_learned]))
        return float(model.joint_log_likelihood_many(texts([examples[i]]))[0, y[i]])

    for method, n_learned in (
        (Method(), range(N)),
        (Method(delay=5), [max(0, i - 5) for i in range(N)]),
        (Method(hold_out=0.5), [half] * half),
    ):
        found = judge(settings, msgspec.structs.replace(method, joint=hybrid))
        expected = [joint(n, N - len(n_learned) + i) for i, n in enumerate(n_learned)]
        assert np.array_equal(np.asarray(found.joint), expected)
        told = figures(found)["figures"]["joint_nll"]
        assert told["value"] == pytest.approx(-np.mean(expected))
        assert told["low"] < told["value"] < told["high"]
        assert (judge(settings, method).joint is None) == hybrid
    folds = judge(settings, Method(folds=3, joint=hybrid))
    assert np.isfinite(np.asarray(folds.joint)).all()


def test_a_joint_is_that_of_the_posteriors() -> None:
    """Normalised they are the same, where a class joins and where what was known is forgotten."""
    rng = np.random.default_rng(5)
    times_s = np.cumsum(rng.random(40) * np.where(np.arange(40) == 25, 1e5, 9.0))
    codes = Codes(
        np.minimum(rng.integers(3, size=40), np.arange(40) // 9).astype(np.int32), (*"abc",)
    )
    columns = {"text": [" ".join(rng.choice(WORDS, 3)) for _ in range(40)]}
    decay, features = HalfLife(seconds=20.0), {"text": Words(Multinomial())}
    models = [NaiveBayes(features=features, decay=decay) for _ in range(2)]
    kept: list[Any] = []
    stated = prequential(models[0].state, columns, codes, times_s=times_s, joint=kept)
    expected = models[1].prequential_many(columns, codes, times_s=times_s)
    assert np.array_equal(np.where(np.isnan(stated), -np.inf, stated), expected)
    [[joint, _]] = kept
    known = np.where(np.isnan(joint), -np.inf, joint)
    normalised = known[1:] - np.logaddexp.reduce(known[1:], axis=1, keepdims=True)
    np.testing.assert_allclose(normalised, expected[1:], rtol=1e-9, atol=1e-12)


def test_an_example_that_was_impossible_is_shown_as_one(tmp_path: Path) -> None:
    """The first of a class that joins is in no log-loss, and the terminal says so."""
    source = write(tmp_path / "in.jsonl", [*stream(9), {"id": "n", "text": "sun", "label": "new"}])
    (tmp_path / "config.yaml").write_text("model: {new_classes: true}", encoding="utf-8")
    asked = ["evaluate", source, "-c", str(tmp_path / "config.yaml")]
    shown = CliRunner().invoke(commands.app, asked, catch_exceptions=False).stdout
    assert "and so not in the log-loss: 1" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "(prequential)"),
        (["--delay", "3"], "(prequential, each label 3 messages late)"),
        (["--hold-out", "0.25"], "(the last 25 %)"),
        (["--folds", "3"], "(3 folds)"),
    ],
)
def test_the_first_line_says_how_it_was_judged(
    tmp_path: Path, arguments: list[str], told: str
) -> None:
    """Each number that was asked for stands there; without it the figures say little."""
    source = write(tmp_path / "stream.jsonl", stream(20))
    done = CliRunner().invoke(
        commands.app, ["evaluate", source, *arguments], catch_exceptions=False
    )
    assert f"20 messages judged {told}; " in done.stdout.splitlines()[0]


def test_folds_of_a_hybrid_say_what_its_weights_are(tmp_path: Path) -> None:
    """In the terminal, the JSON and the report; counts alone are exact, and need no note."""
    source, path = write(tmp_path / "stream.jsonl", stream(40)), tmp_path / "report.html"
    asked = ["evaluate", source, "--folds", "4"]
    done = CliRunner().invoke(commands.app, [*asked, "--json"], catch_exceptions=False)
    (note,) = json.loads(done.stdout)["notes"]
    assert "those of a training in 3 parts" in note
    done = CliRunner().invoke(commands.app, [*asked, "--report", str(path)], catch_exceptions=False)
    assert note in done.stdout
    assert f"<p>{note}</p>" in path.read_text(encoding="utf-8")
    settings = settings_of(tmp_path, stream(40), features=words(hybrid=False))
    assert not figures(judge(settings, Method(folds=4)))["notes"]


# ---- prediction sets and costs -------------------------------------------------------------------

COSTS = {"negative": {"positive": 5.0}}
SETS = ("covered", "set_size", "sure", "empty_sets", "covered_as_answered")


def values_of(found: dict[str, Any]) -> dict[str, float]:
    """Return the figures without their intervals."""
    return {name: each["value"] for name, each in found["figures"].items()}


def of_sets(sets: Any, truth: Any, best: Any) -> list[float]:
    """Return the figures of sets by hand, in the order of `SETS`."""
    rows, sizes = np.arange(len(truth)), sets.sum(axis=1)
    answered = sets.copy()
    answered[rows, best] = True
    return [
        sets[rows, truth].mean(), sizes.mean(), (sizes == 1).mean(), (sizes == 0).mean(),
        answered[rows, truth].mean(),
    ]  # fmt: skip


@pytest.mark.parametrize("calibration", [False, True])
@pytest.mark.parametrize("method", [Method(), Method(delay=9), Method(hold_out=0.4)])
def test_sets_are_those_of_the_library(
    tmp_path: Path, method: Method, *, calibration: bool
) -> None:
    """Each by the threshold that the labels before it have moved, of the answers of then."""
    examples = stream()
    settings = settings_of(tmp_path, examples, coverage=0.7, calibration=calibration)
    judged = judge(settings, method)
    n_known = N - len(judged.labels)
    model, calibrator, sets = build_model(settings.model), nb.Calibrator(), nb.ConformalSets(0.7)
    truth = np.array([settings.model.classes.index(label) for label in labels(examples)])

    def learn(stated: Any, own: slice) -> None:
        answers = calibrator.prequential_many(stated, truth[own]) if calibration else stated
        sets.prequential_many(answers, truth[own])

    before = model.prequential_many(texts(examples[:n_known]), labels(examples[:n_known]))
    learn(before, slice(0, n_known))
    sets.threshold = sets.threshold if method.hold_out is None else sets.standing_threshold
    plain = judge(settings, msgspec.structs.replace(method, calibrated=False)).log_posteriors
    held = []
    for i, stated in enumerate(plain[:, np.newaxis].astype(np.float64)):
        late = i - 1 - method.delay
        if late >= 0 and method.hold_out is None:
            learn(plain[late : late + 1].astype(np.float64), slice(late, late + 1))
        held.append(sets.sets(calibrator.calibrate(stated) if calibration else stated)[0])
    found = figures(judged)["figures"]
    expected = of_sets(np.array(held), truth[n_known:], judged.log_posteriors.argmax(axis=1))
    assert [found[name]["value"] for name in SETS] == pytest.approx(expected)
    assert found["covered"]["low"] < found["covered"]["value"] < found["covered"]["high"]
    assert found["coverage_target"]["value"] == 0.7
    told = ["are by the threshold of 9 labels before"] * (method.delay > 0)
    told += ["are by one threshold"] * (method.hold_out is not None)
    assert [each[len("prediction sets ") :][: len(told[0])] for each in judged.notes] == told


def test_a_class_that_joins_is_in_no_set_before(tmp_path: Path) -> None:
    """The message that brings it is not covered, and its set is one of the classes of then."""
    examples = stream(30)
    examples[20]["label"] = "new"
    settings = settings_of(tmp_path, examples, coverage=0.7, new_classes=True)
    judged = judge(settings, Method())
    assert judged.covered is not None
    assert judged.set_sizes is not None
    assert not judged.covered[20]
    assert (judged.set_sizes[:21] <= 2).all()


def test_a_saved_model_has_the_sets_of_its_file(tmp_path: Path) -> None:
    """By the threshold that it was saved with, and the share that it was learned for."""
    settings, examples = settings_of(tmp_path, stream(), coverage=0.9), stream()
    model = build_model(settings.model)
    known = SavedConfidence(settings.model.model_copy(update={"coverage": 0.6}))
    truth = np.array([model.classes.index(each) for each in labels(examples)])
    known.learned.learn(model.prequential_many(texts(examples), labels(examples)), truth)
    stated, path = model.predict_log_proba_many(texts(examples)), tmp_path / "model.nb"
    nb.save(model, path, notes={"entries": {"confidence": dict(known.pack().values)}})
    found = figures(judge(settings, Method(**saved_model(path, settings)._asdict())))
    standing = known.pack().values["conformal"]["standing_threshold"]
    expected = of_sets(nb.decisions.prediction_sets(standing, stated), truth, stated.argmax(axis=1))
    assert [values_of(found)[name] for name in SETS] == pytest.approx(expected)
    assert values_of(found)["coverage_target"] == 0.6
    nb.save(model, path)
    found = figures(judge(settings, Method(**saved_model(path, settings)._asdict())))
    assert "covered" not in found["figures"]
    assert found["notes"] == ["no prediction sets are judged: the saved model has none"]


@pytest.mark.parametrize(
    "method", [Method(), Method(delay=9), Method(hold_out=0.4), Method(folds=3)]
)
def test_decisions_cost_what_the_library_s_cost(tmp_path: Path, method: Method) -> None:
    """The cheapest class of each answer, beside the likeliest, by the costs of the settings."""
    settings = settings_of(tmp_path, stream(), costs=COSTS, calibration=True, coverage=0.8)
    judged = judge(settings, method)
    table, y = np.array([[0.0, 5.0], [1.0, 0.0]]), judged.labels
    answers = judged.log_posteriors.astype(np.float64)
    best, decided = answers.argmax(axis=1), nb.cheapest(answers, table)
    found = figures(judged)
    assert values_of(found)["mean_cost"] == pytest.approx(table[y, decided].mean())
    assert values_of(found)["mean_cost_of_likeliest"] == pytest.approx(table[y, best].mean())
    assert (decided != best).any()
    is_told = "no prediction sets are judged: folds have no order" in found["notes"]
    assert is_told == ("covered" not in found["figures"]) == (method.folds is not None)


def test_sets_and_costs_are_shown(tmp_path: Path) -> None:
    """In the table, the JSON and the report; of a comparison only for the model that has them."""
    source = write(tmp_path / "stream.jsonl", stream())
    (tmp_path / "with.yaml").write_text(
        "model: {coverage: 0.75, costs: {negative: {positive: 5}}}", encoding="utf-8"
    )
    (tmp_path / "plain.yaml").write_text("{}", encoding="utf-8")
    path = tmp_path / "report.html"
    names = ["coverage target", "mean cost", "mean cost of likeliest"]
    names += [name.replace("_", " ") for name in SETS]
    for arguments in (
        ["evaluate", source, "-c", str(tmp_path / "with.yaml")],
        ["compare", source, str(tmp_path / "plain.yaml"), str(tmp_path / "with.yaml")],
    ):
        asked = [*arguments, "--report", str(path)]
        shown = CliRunner().invoke(commands.app, asked, catch_exceptions=False).stdout
        done = CliRunner().invoke(commands.app, [*arguments, "--json"], catch_exceptions=False)
        told = json.loads(done.stdout)
        own = told.get("models", {"with": told})["with"]["figures"]
        report = path.read_text(encoding="utf-8")
        for name in names:
            value = f"{own[name.replace(' ', '_')]['value']:.4f}"
            assert any(line.startswith(name) and value in line for line in shown.splitlines())
            assert f'<th scope="row">{name}</th>' in report
            assert value in report
    assert "covered" not in told["models"]["plain"]["figures"]
