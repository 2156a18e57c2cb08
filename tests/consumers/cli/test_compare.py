"""`streamnb compare`: each model is judged as by itself, and pairs are told apart by the book."""

from __future__ import annotations

import html
import importlib.util
import json
import multiprocessing
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from consumers.cli import commands, conventions, evaluation
from consumers.cli import compare as comparing
from consumers.cli import figures as figures_module
from consumers.cli.compare import compare, mcnemar, names_of, pairs
from consumers.cli.evaluation import Evaluation, Method, judge
from consumers.cli.figures import JudgedExamples, figures
from consumers.config.settings import Settings, load
from consumers.errors import ConfigError, SourceError
from consumers.messages import Messages, Partition, RawColumns
from consumers.sources.records import from_parts
from tests.consumers.scripted_source import ScriptedSource

N = 150
WAITS_MAX: Final = 6_000
# Vowpal Wabbit is in the dependencies of the benchmarks alone.
INSTALLED = ["river", "sklearn", *["vw"] * (importlib.util.find_spec("vowpalwabbit") is not None)]
WORDS = ["sun", "rain", "not", "good", "bad", "tea", "lake", "work"]
MODELS: dict[str, Any] = {
    "words": {"features": {"text": {"kind": "words", "ngrams": [1, 1]}}},
    "pairs": {"features": {"text": {"kind": "words", "ngrams": [1, 2]}}},
    "langs": {"features": {"lang": {"kind": "categories"}, "age": {"kind": "numbers"}}},
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the stream into pieces of seven messages."""
    monkeypatch.setattr(conventions, "PIECE_MESSAGES", 7)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, list[Path]]:
    """Return a source of labelled messages, and a configuration for each model."""
    generator = np.random.default_rng(12)
    lines = []
    for i in range(N):
        c = int(generator.integers(2))
        words = generator.choice(WORDS, 4).tolist() + ["<sun>" if c else "rain"] * (i % 3 > 0)
        message = {"id": str(i), "text": " ".join(words), "lang": "en" if c else "de", "age": i % 9}
        lines.append(json.dumps(message | {"label": ("negative", "positive")[c]}))
    path = tmp_path / "stream.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    configs = []
    for name, model in MODELS.items():
        configs.append(tmp_path / f"{name}.yaml")
        configs[-1].write_text(json.dumps({"model": model}), encoding="utf-8")
    return f"file:{path}", configs


def settings_of(files: tuple[str, list[Path]]) -> dict[str, Settings]:
    """Return the settings of each model."""
    source, configs = files
    return {each.stem: load(each, {}, {"source": source}) for each in configs}


def test_the_likelihood_of_an_example_is_by_its_weight(tmp_path: Path) -> None:
    """A message of weight 2 is the message twice; with a half-life, what is left is divided by."""
    texts = [["good sun", "bad rain"][i % 2] for i in range(40)]
    lines: list[dict[str, Any]] = [
        {"text": text, "label": ["positive", "negative"][i % 2], "n": 1 + i % 2, "created_at": i}
        for i, text in enumerate(texts)
    ]
    (tmp_path / "weighted.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    twice = [line for line in lines for _ in range(line["n"])]
    (tmp_path / "twice.jsonl").write_text("\n".join(map(json.dumps, twice)), encoding="utf-8")
    fading = {"model": {"half_life_s": 5}, "learned": {"messages_max": 0}}
    configs: dict[str, dict[str, Any]] = {
        "weighted": {"message": {"weight": "n"}}, "twice": {},
        "fading": fading | {"corrections": {"to": "none"}},
    }  # fmt: skip
    found = {}
    for name, config in configs.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(config), encoding="utf-8")
        read = "weighted" if name == "weighted" else "twice"
        settings = load(path, {}, {"source": f"file:{tmp_path / read}.jsonl"})
        found[name] = figures(judge(settings, Method()))["training"]
    assert found["weighted"]["log_likelihood"] == pytest.approx(found["twice"]["log_likelihood"])
    assert found["weighted"]["joint_nll"] == pytest.approx(found["twice"]["joint_nll"])
    # The words stay the same, so an example is about as probable however few are left.
    assert found["fading"]["joint_nll"] == pytest.approx(found["twice"]["joint_nll"], rel=0.3)


def test_a_pipe_is_read_once_for_all_models(files: tuple[str, list[Path]]) -> None:
    """What can be read once alone is compared as a file is."""
    source, configs = files
    more = [*map(str, configs), "--json"]
    piped = subprocess.run(
        [sys.executable, "-m", "consumers", "compare", "stdin", *more], check=True,
        input=Path(source.removeprefix("file:")).read_bytes(), capture_output=True,
    )  # fmt: skip
    read = CliRunner().invoke(commands.app, ["compare", source, *more], catch_exceptions=False)
    found = [json.loads(each)["models"] for each in (piped.stdout, read.stdout)]
    one, other = ({name: each["confusion"] for name, each in of.items()} for of in found)
    assert one == other
    assert set(one) == set(MODELS)


@pytest.mark.parametrize("delay", [0, 10])
def test_each_model_is_judged_as_alone(files: tuple[str, list[Path]], delay: int) -> None:
    """One pass gives, bit for bit, what an evaluation of each model gives."""
    settings, method = settings_of(files), Method(delay=delay)
    done = compare(settings, method, 5)
    assert list(done.judged) == ["words", "pairs", "langs"]
    best = []
    for name, each in settings.items():
        alone, found = judge(each, method), done.judged[name]
        assert np.array_equal(alone.log_posteriors, found.log_posteriors)
        assert np.array_equal(alone.labels, found.labels)
        assert (found.messages, found.classes) == (N, ("negative", "positive"))
        best.append(found.log_posteriors.argmax(axis=1))
    differ = np.ptp(best, axis=0) > 0
    assert done.n_disagreements == differ.sum() > 5


def test_late_labels_leave_prediction_sets_no_promise(
    files: tuple[str, list[Path]], tmp_path: Path
) -> None:
    """The model that has sets says so; nothing is said of one without, or without a delay."""
    source, (words, *_) = files
    config, report = tmp_path / "sets.yaml", tmp_path / "report.html"
    config.write_text("model: {coverage: 0.9}", encoding="utf-8")
    arguments = ["compare", source, str(config), str(words), "--report", str(report)]
    note = "sets, prediction sets are by the threshold of 5 labels before: the promise of"
    for more, n in (("--delay=5", 1), ("--delay=0", 0)):
        done = CliRunner().invoke(commands.app, [*arguments, more], catch_exceptions=False)
        text = report.read_text(encoding="utf-8")
        assert (done.stdout.count(note), text.count(note)) == (n, n)
        assert done.stdout.count("labels before: the promise") == n


def test_models_learn_beside_each_other(
    files: tuple[str, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All models are at the same batch at a time, each on a thread of its own."""
    real, together = Evaluation.take, threading.Barrier(len(MODELS))

    def take(evaluation: Evaluation, messages: Messages) -> int:
        together.wait(60)  # until all of them are here
        return real(evaluation, messages)

    monkeypatch.setattr(Evaluation, "take", take)
    done = compare(settings_of(files), Method(), 5)
    assert {each.messages for each in done.judged.values()} == {N}


def test_the_strongest_disagreements_are_shown_with_their_reasons(
    files: tuple[str, list[Path]],
) -> None:
    """They are those whose true class had the most unlike probabilities, in that order."""
    done = compare(settings_of(files), Method(), 4)
    of_truth = np.array(
        [
            np.exp(each.log_posteriors[np.arange(N), each.labels.astype(int)])
            for each in done.judged.values()
        ]
    )
    best = np.array([each.log_posteriors.argmax(axis=1) for each in done.judged.values()])
    spread = np.where(np.ptp(best, axis=0) > 0, np.ptp(of_truth, axis=0), -1.0)
    assert [int(row["id"]) for row in done.disagreements] == np.argsort(-spread)[:4].tolist()
    for row in done.disagreements:
        i = int(row["id"])
        for m, (name, each) in enumerate(row["models"].items()):
            assert each["said"] == ("negative", "positive")[best[m, i]]
            assert each["probability_of_truth"] == pytest.approx(of_truth[m, i])
            features = {score["feature"] for score in each["scores"]}
            assert features
            if name == "words":
                known = {word.strip("<>") for word in row["message"].split()}
                assert {feature.strip("¬") for feature in features} <= known
    assert compare(settings_of(files), Method(), 0).disagreements == []


def test_pairs_are_tested_by_the_book() -> None:
    """McNemar's exact test is SciPy's of a coin; differences are of the same messages."""
    for first, second in ((0, 0), (1, 9), (30, 31), (400, 300), (1, 0)):
        n = first + second
        expected = stats.binomtest(first, n).pvalue if n else 1.0
        assert mcnemar(first, second) == pytest.approx(expected)
    assert 0 < mcnemar(150_000, 152_000) < 0.001
    y = np.array([0, 1, 1, 0, 1])
    said = {"a": [0.9, 0.9, 0.1, 0.8, 0.2], "b": [0.4, 0.3, 0.2, 0.9, 0.3]}
    judged = {
        name: JudgedExamples(
            ("no", "yes"), y, np.log(np.stack((p, 1 - np.array(p)), axis=1)).astype(np.float32)
        )
        for name, p in said.items()
    }
    (found,) = pairs(judged)
    assert (found["only_first_right"], found["only_second_right"]) == (1, 1)
    assert found["accuracy"]["value"] == 0.0
    losses = {
        name: -np.log([q if c == 0 else 1 - q for q, c in zip(p, y, strict=True)]).mean()
        for name, p in said.items()
    }
    assert found["log_loss"]["value"] == pytest.approx(losses["b"] - losses["a"], rel=1e-6)


def test_models_that_cannot_be_compared_are_refused(
    files: tuple[str, list[Path]], tmp_path: Path
) -> None:
    """They need the same classes, and read each field in one way."""
    source, (first, *_) = files
    for model, told in (
        ({"classes": ["negative", "positive", "odd"]}, r"other: model.classes is .* same"),
        (
            {"classes": ["positive", "negative"]},
            r"is \[positive, negative\], and in words \[negative, positive\]\..* in the same order",
        ),
        ({"features": {"text": {"kind": "categories"}}}, "other: reads 'text' as categories, and"),
    ):
        (tmp_path / "other.yaml").write_text(json.dumps({"model": model}), encoding="utf-8")
        with pytest.raises(ConfigError, match=told):
            compare(settings_of((source, [first, tmp_path / "other.yaml"])), Method(), 1)
    (tmp_path / "link.yaml").symlink_to(first)
    for configs in ([first], [first, first], [first, tmp_path / "link.yaml"]):
        arguments = ["compare", source, *map(str, configs)]
        done = CliRunner().invoke(commands.app, arguments)
        assert done.exit_code == 2
        assert ("same" in done.output) == (len(configs) > 1)
    assert names_of([Path("a/x.yaml"), Path("b/x.yaml")]) == ["a/x.yaml", "b/x.yaml"]


@pytest.mark.deep
def test_the_command_writes_the_same_again(files: tuple[str, list[Path]], tmp_path: Path) -> None:
    """JSON and report agree to the byte; the table shows the same figures."""
    source, configs = files
    report = tmp_path / "report.html"
    arguments = ["compare", source, *map(str, configs), "--report", str(report)]
    written = []
    for _ in range(2):
        done = CliRunner().invoke(commands.app, [*arguments, "--json"], catch_exceptions=False)
        written.append((done.stdout, report.read_bytes()))
    assert written[0] == written[1]
    found = json.loads(done.stdout)
    assert [(row["first"], row["second"]) for row in found["pairs"]] == [
        ("words", "pairs"), ("words", "langs"), ("pairs", "langs"),
    ]  # fmt: skip
    text = report.read_text(encoding="utf-8")
    assert "<sun>" not in text
    shown = CliRunner().invoke(commands.app, arguments, catch_exceptions=False).stdout
    for each in found["models"].values():
        value = f"{each['figures']['accuracy']['value']:.4f}"
        assert value in shown
        assert value in text
        assert f"joint NLL {each['training']['joint_nll']:,.4g}" in shown
        assert f"joint NLL {each['training']['joint_nll']:,.4g}" in text
    assert "messages judged (prequential); " in shown
    assert f"disagree on {found['disagreements']} messages" in shown
    assert found["shown"][0]["message"] in shown
    late = CliRunner().invoke(commands.app, [*arguments, "--delay", "7"], catch_exceptions=False)
    assert "judged (prequential, each label 7 messages late); " in late.stdout
    assert "(prequential, each label 7 messages late)" in report.read_text(encoding="utf-8")


@pytest.mark.deep
@pytest.mark.parametrize("peer", INSTALLED)
def test_a_peer_stands_beside_ours(
    files: tuple[str, list[Path]], tmp_path: Path, peer: str
) -> None:
    """It judges the same messages, before it learns them; the same again to the byte."""
    source, (words, *_) = files
    report = tmp_path / "report.html"
    arguments = ["compare", source, str(words), "--peer", peer, "--report", str(report), "--json"]
    written = []
    for _ in range(2):
        done = CliRunner().invoke(commands.app, arguments, catch_exceptions=False)
        written.append((done.stdout, report.read_bytes()))
    assert written[0] == written[1]
    found = json.loads(done.stdout)
    assert list(found["models"]) == ["words", peer]
    ours, theirs = found["models"].values()
    assert ours["examples"] == theirs["examples"] == N
    assert [(row["first"], row["second"]) for row in found["pairs"]] == [("words", peer)]
    assert html.escape(found["peers"][peer]) in report.read_text(encoding="utf-8")
    assert all(row["models"][peer]["scores"] == [] for row in found["shown"])
    alone = judge(settings_of(files)["words"], Method())
    beside = compare({"words": settings_of(files)["words"]}, Method(), 0, [peer]).judged
    assert np.array_equal(alone.log_posteriors, beside["words"].log_posteriors)


@pytest.mark.parametrize("peer", INSTALLED)
def test_how_the_stream_is_cut_changes_no_peer(
    files: tuple[str, list[Path]], monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    """Pieces of seven messages or of all give the same; and it does learn."""
    monkeypatch.setattr(comparing, "_STEP", 20)
    settings = {"words": settings_of(files)["words"]}
    said = []
    for size in (7, 1_000):
        monkeypatch.setattr(conventions, "PIECE_MESSAGES", size)
        judged = compare(settings, Method(), 0, [peer]).judged[peer]
        said.append(judged.log_posteriors)
        right = judged.log_posteriors.argmax(axis=1) == judged.labels
        assert right[N // 2 :].mean() > 0.6
    assert np.array_equal(said[0], said[1])
    late = compare(settings, Method(delay=10_000), 0, [peer]).judged[peer].log_posteriors
    assert np.allclose(late, np.log(0.5))  # nothing was learned yet


@pytest.mark.deep
@pytest.mark.parametrize("peer", INSTALLED)
def test_a_class_that_never_comes_costs_a_peer_little(
    files: tuple[str, list[Path]], peer: str
) -> None:
    """Each learns that it does not come: its share does not stay beside those of the others."""
    source, (config, *_) = files
    path = Path(source.removeprefix("file:"))
    path.write_text(path.read_text(encoding="utf-8") * 10, encoding="utf-8")
    classes = {"classes": ["negative", "positive", "neither"], "new_classes": False}
    config.write_text(json.dumps({"model": MODELS["words"] | classes}), encoding="utf-8")
    settings = {"words": load(config, {}, {"source": source})}
    judged = compare(settings, Method(), 0, [peer]).judged[peer]
    shares = np.exp(judged.log_posteriors.astype(np.float64))
    assert np.allclose(shares[0], 1 / 3)
    assert shares[-N:, 2].mean() < 0.05


def test_a_class_that_comes_late_costs_river_no_more_than_others(
    files: tuple[str, list[Path]],
) -> None:
    """It is told of all classes at first, as the other libraries are: none is impossible."""
    source, (config, *_) = files
    judged = compare({"words": load(config, {}, {"source": source})}, Method(), 0, ["river"])
    y, said = judged.judged["river"].labels, judged.judged["river"].log_posteriors
    first = int(np.flatnonzero(y != y[0])[0])
    assert -3.0 < said[first, y[first]] < 0.0


def test_a_step_is_of_learned_messages(
    files: tuple[str, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With late labels too, scikit-learn's model learns once a step's labels have come."""
    monkeypatch.setattr(comparing, "_STEP", 20)
    settings = {"words": settings_of(files)["words"]}
    found = compare(settings, Method(delay=11), 0, ["sklearn"]).judged["sklearn"].log_posteriors
    assert np.allclose(found[:31], np.log(0.5))
    assert not np.isclose(found[31:], np.log(0.5)).any()


@pytest.mark.parametrize("peer", INSTALLED)
@pytest.mark.parametrize("delay", [0, 11])
def test_our_half_life_takes_no_message_from_a_peer(
    files: tuple[str, list[Path]], monkeypatch: pytest.MonkeyPatch, peer: str, delay: int
) -> None:
    """Messages that come too late to teach our model teach the others', once each."""
    monkeypatch.setattr(comparing, "_STEP", 20)
    source, (config, *_) = files
    path = Path(source.removeprefix("file:"))
    lines = []
    for i, line in enumerate(path.read_text(encoding="utf-8").splitlines()):
        at = 1_700_000_000 + i - 70_000 * (i % 2)
        lines.append(json.dumps(json.loads(line) | {"created_at": at}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    said = []
    for more in ({}, {"half_life_s": 1_000}):
        sections = {"model": MODELS["words"] | more, "learned": {"messages_max": 0}}
        config.write_text(json.dumps(sections | {"corrections": {"to": "none"}}), encoding="utf-8")
        settings = {"words": load(config, {}, {"source": source})}
        judged = compare(settings, Method(delay=delay), 0, [peer]).judged
        said.append({name: each.log_posteriors for name, each in judged.items()})
    plain, decayed = said
    assert not np.array_equal(plain["words"], decayed["words"])
    assert np.array_equal(plain[peer], decayed[peer])


def test_a_peer_that_is_missing_says_so(
    files: tuple[str, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the package and the way out; a name that is none is refused."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    settings = {"words": settings_of(files)["words"]}
    with pytest.raises(ConfigError, match="--peer vw needs the package 'vowpalwabbit'"):
        compare(settings, Method(), 0, ["vw"])
    arguments = ["compare", files[0], str(files[1][0]), "--peer", "weka"]
    done = CliRunner().invoke(commands.app, arguments)
    assert (done.exit_code, "none of vw, river, sklearn" in done.output) == (2, True)


class _Silent(ScriptedSource):
    """A source that has one message; once that is taken, the poll for more is interrupted."""

    n_waits = 0

    def poll(self, timeout_s: float) -> list[RawColumns]:
        """Take the next step; then wait in vain, as a source does that has nothing."""
        found = super().poll(timeout_s)
        if self.idle.is_set():
            self.n_waits += 1
            if self.n_waits == WAITS_MAX:
                raise SourceError("is polled for ever")
            threading.Event().wait(timeout_s)
        return found

    def at_end(self) -> bool:
        """Return that more may come."""
        return False


def interrupted() -> None:
    """Interrupt a command while its source has nothing, and check that it ends."""
    taken = threading.Event()

    def interrupt(_: object) -> list[RawColumns]:
        assert taken.wait(60)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return []

    message = from_parts(Partition("x", 0), [None], [b"{}"], range(1), [-1], 1)
    source, decoder = _Silent([message], interrupt), SimpleNamespace(decode=lambda piece: piece)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conventions, "_POLL_TIMEOUT_S", 0.01)
        patched.setattr(evaluation, "source_apart", lambda *_: source)
        with pytest.raises(KeyboardInterrupt):
            evaluation.read_messages(
                Settings(), "compare", lambda _: taken.set(), None,
                lambda _: cast("Any", decoder), show=False,
            )  # fmt: skip
    assert source.n_waits < WAITS_MAX
    assert source.calls[-1] == "close"


def test_an_interrupt_ends_a_command_whose_source_has_nothing() -> None:
    """Nobody waits for the thread that reads ahead to find a message."""
    # A process of its own: where the signal goes astray, it must not end the tests.
    process = multiprocessing.get_context("spawn").Process(target=interrupted)
    process.start()
    process.join(200)
    process.kill()  # if it has not ended
    assert process.exitcode == 0


@pytest.mark.parametrize("source", ["generator", "jetstream", "wss://127.0.0.1:1/stream"])
def test_figures_of_a_source_without_an_end_need_a_number_of_messages(source: str) -> None:
    """They are of all that was read; what stops the reading alone would lose them."""
    for arguments in (["evaluate", source], ["compare", source, "a.yaml", "b.yaml"]):
        done = CliRunner().invoke(commands.app, arguments)
        assert done.exit_code == 2
        assert "has no end: give --max-messages" in " ".join(done.output.replace("│", "").split())


def test_the_made_up_stream_is_not_judged_without_end() -> None:
    """`predict` has no number of messages to stop at."""
    done = CliRunner().invoke(commands.app, ["predict", "--source", "generator"])
    assert done.exit_code == 2
    assert "has no end" in done.output


def test_no_package_is_hidden_while_figures_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their threads look for pandas, and would find None in its place."""
    figures_module.import_scikit_learn()
    monkeypatch.setattr(figures_module, "left_out", None)
    y = np.arange(40) % 2
    found = figures(JudgedExamples(("a", "b"), y, np.log(np.full((40, 2), 0.5, np.float32))))
    assert found["figures"]["accuracy"]["value"] == 0.5


def test_two_threads_judge_a_fold(
    files: tuple[str, list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pieces of it at a time, and the figures are those of one after the other."""
    source, paths = files
    settings = load(paths[0], {}, {"source": source})
    expected, both, own = judge(settings, Method(folds=2)), threading.Barrier(2), Evaluation._judge
    met = threading.Event()

    def judged(*args: Any, **options: Any) -> Any:
        if not met.is_set():  # the first two
            both.wait(20.0)
            met.set()
        return own(*args, **options)

    monkeypatch.setattr(Evaluation, "_judge", judged)
    found = judge(settings, Method(folds=2))
    assert np.array_equal(found.log_posteriors, expected.log_posteriors)
    assert np.array_equal(found.labels, expected.labels)
