"""What is handed to the public constructors and functions by mistake is an error that says so."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamnb
from streamnb.errors import InputError

nb: Any = streamnb  # what a caller without a type checker may write
WORDS = nb.Multinomial()
BOARD = nb.SnapshotBoard()
ROW = {"t": ["x"]}
LIVES = "half_lives must be a sequence of numbers of examples, each 10 or above. Got "
SECONDS = "timeout_s must be a number of seconds. Got "
SQUARE = [[9, 1], [1, 9]]
clock = time.monotonic


def taught() -> Any:
    """Return a model of two classes that has seen two texts."""
    model = nb.NaiveBayes(["a", "b"], features={"t": nb.Words(WORDS)}, hash_key=1)
    model.learn_one({"t": "x y"}, "a")
    model.learn_one({"t": "y"}, "b")
    return model


def asked() -> Any:
    """Return a predictor with a snapshot to answer from; its threads are not started."""
    board = nb.SnapshotBoard()
    board.publish(nb.Snapshot(taught(), 1))
    return nb.Predictor(board)


def fresh(*classes: Any, **options: Any) -> Any:
    """Return an untrained model."""
    return nb.NaiveBayes(*classes, features={"t": nb.Words(WORDS)}, **options)


NGRAMS = r"ngrams must be \(shortest, longest\), whole numbers .*Got "
MISUSE: dict[str, tuple[Callable[[], Any], str]] = {
    # groups
    "ngrams-int": (lambda: nb.Words(WORDS, ngrams=2), NGRAMS + "2 instead"),
    "ngrams-float": (lambda: nb.Words(WORDS, ngrams=(1.0, 2.0)), NGRAMS + r"\(1.0, 2.0\)"),
    "ngrams-bool": (lambda: nb.Words(WORDS, ngrams=(True, 2)), NGRAMS + r"\(True, 2\)"),
    "ngrams-str": (lambda: nb.Words(WORDS, ngrams="12"), NGRAMS + "'12'"),
    "ngrams-three": (lambda: nb.Words(WORDS, ngrams=(1, 2, 3)), NGRAMS + r"\(1, 2, 3\)"),
    "ngrams-none": (lambda: nb.Words(WORDS, ngrams=None), NGRAMS + "None"),
    "ngrams-order": (lambda: nb.Words(WORDS, ngrams=(2, 1)), NGRAMS + r"\(2, 1\)"),
    "negation": (lambda: nb.Words(WORDS, negation="yes"), "negation must be True or.*'yes'"),
    "case_fold": (lambda: nb.Words(WORDS, case_fold=2), "case_fold must be True or.*2"),
    "gap": (lambda: nb.Words(WORDS, gap=5), "gap must be a whole number from 0 to 4.*5"),
    "characters": (lambda: nb.Words(WORDS, characters=(1, 3)), r"characters must.*\(1, 3\)"),
    "characters-int": (lambda: nb.Words(WORDS, characters=3), "characters must be None or.*3"),
    "punctuation": (lambda: nb.Words(WORDS, punctuation=1), "punctuation must be True.*1"),
    "ends": (lambda: nb.Words(WORDS, ends=True), r"ends=True speaks of n-grams.*\(1, 1\)"),
    "squeeze": (lambda: nb.Words(WORDS, squeeze=1), "squeeze must be True or False.*1"),
    "emoticons": (lambda: nb.Words(WORDS, emoticons=None), "emoticons must be True or.*None"),
    "counts-array": (lambda: nb.Words(WORDS, counts=np.zeros(2)), "counts must be 'presence'"),
    "counts": (lambda: nb.Words(WORDS, counts=[1]), r"counts must be 'presence'.*\[1\]"),
    "likelihood": (lambda: nb.Words(nb.Multinomial), "Words.likelihood must be a Multinomial"),
    "words-of-words": (lambda: nb.Words(nb.Words(WORDS)), "Words.likelihood must be.* Got Words"),
    "dictionary": (lambda: nb.Words(WORDS, dictionary=5), "dictionary must be a sequence.*5"),
    "bag-fields": (lambda: nb.Bag(WORDS, fields=[1]), r"must be a str .*Got 1"),
    "max_words": (lambda: nb.Bag(WORDS, max_words=0), "max_words must be a whole number.*0"),
    "flags": (lambda: nb.Flags("x"), "Flags.likelihood must be a Bernoulli.*'x'"),
    "numbers": (lambda: nb.Numbers("x"), "Numbers.likelihood must be a Gaussian.*'x'"),
    "categories": (lambda: nb.Categories(fields=5), "fields must be a sequence of names.*5"),
    "values": (lambda: nb.Categories(values=[1]), "values must be a mapping"),
    # likelihoods and priors
    "bernoulli": (lambda: nb.Bernoulli("x"), "'x'"),
    "multinomial": (lambda: nb.Multinomial(3), "Got 3"),
    "complement": (lambda: nb.Complement(normalise="yes"), "normalise.*'yes'"),
    "gaussian": (lambda: nb.Gaussian(variance="x"), "variance.*'x'"),
    "variance-array": (lambda: nb.Gaussian(variance=np.zeros(2)), "variance must be 'own'"),
    "floor": (lambda: nb.VarianceFloor("x"), "'x'"),
    "inverse-gamma": (lambda: nb.NormalInverseGamma(kappa="x"), "kappa.*'x'"),
    "beta": (lambda: nb.Beta("x"), "Beta.present must be a finite number.*'x'"),
    "dirichlet": (lambda: nb.Dirichlet(-1), "concentration must be a finite number.*-1"),
    "fixed": (lambda: nb.Fixed(5), "Fixed.probabilities must be a mapping.*5"),
    "half-life": (lambda: nb.HalfLife(0), "HalfLife.examples must be a finite number above 0"),
    "bins-ragged": (lambda: nb.Categories(fields=["a"], bins=[0.0, [1]]), r"bins.*\[1\]"),
    # models
    "classes-bytes": (lambda: fresh(b"ab"), "classes must be a sequence of labels. Got b'ab'"),
    "classes-array": (lambda: fresh(np.array("ab")), "classes must be a sequence of labels"),
    "classes-str": (lambda: fresh("ab"), "classes must be a sequence of labels. Got 'ab'"),
    "classes-int": (lambda: fresh(5), "classes must be an Iterable. Got 5"),
    "class_prior": (lambda: fresh(["a"], 5), "class_prior must be a Dirichlet or Fixed.*5"),
    "decay": (lambda: fresh(["a"], decay=5), "decay must be a HalfLife. Got 5"),
    "n_threads": (lambda: fresh(["a"], n_threads=True), "n_threads must be 1 or 2. Got True"),
    "new_classes": (lambda: fresh(["a"], new_classes=1), "new_classes must be True or False.*1"),
    "codes-int": (lambda: nb.Codes(np.zeros(1, np.int32), 5), "Codes.classes must be a seq.*5"),
    "codes-str": (lambda: nb.Codes(np.zeros(1, np.int32), "ab"), "Codes.classes must be.*'ab'"),
    "label": (lambda: taught().learn_one({"t": "x"}, None), "a label must be a str.*None"),
    "unlearn-label": (lambda: taught().unlearn_one({"t": "x"}, []), r"label must be.*\[\]"),
    "unlearn-part": (lambda: taught().unlearn_one({"t": "x"}, "a", part=[]), r"part \[\]: .*no s"),
    "labels": (lambda: taught().learn_many({"t": ["x"]}, 5), "labels must be a sequence"),
    "x": (lambda: taught().learn_one("x", "a"), "x must be a mapping of field names.*str"),
    "weight": (lambda: taught().learn_one({"t": "x"}, "a", weight="x"), "weight must be.*'x'"),
    "set_max_words": (lambda: taught().set_max_words("t", "x"), "max_words must be a whole.*'x'"),
    "predict_many": (lambda: fresh().predict_many({"t": ["x"]}), "no class yet: declare classes"),
    "judge_one": (lambda: fresh().judge_one({"t": "x"}), "no class yet: declare classes"),
    # asking
    "informative": (lambda: taught().most_informative("x"), "n must be a whole number.*'x'"),
    "informative-half": (lambda: taught().most_informative(1.5), "n must be a whole.*1.5"),
    "informative-true": (lambda: taught().most_informative(True), "n must be a whole.*True"),
    "informative-groups": (
        lambda: taught().most_informative(1, np.array(["t", "u"])),
        "group must be one of t. Got array",
    ),
    "informative-group": (lambda: taught().most_informative(1, []), r"group must be.*\[\]"),
    "top": (lambda: taught().top_words(-1), "n must be a whole number of at least 0. Got -1"),
    "telling": (lambda: taught().telling_words("x"), "n must be a whole number.*'x'"),
    "group": (lambda: taught().words([]), r"group must be one of t. Got \[\]"),
    "word": (lambda: taught().word_counts("x"), "words must be a sequence of str. Got 'x'"),
    "words-int": (lambda: taught().word_counts([5]), r"words must be a sequence of str.*\[5\]"),
    "theta": (lambda: taught().word_likelihoods(5), "words must be a sequence of str. Got 5"),
    "sample": (lambda: taught().sample("x"), "'x'"),
    "sample-array": (lambda: taught().sample(np.zeros(2)), "n must be a whole number.*array"),
    "sample-huge": (lambda: taught().sample(10**30), "n must be at most 2,147,483,647. Got 10"),
    "sample-words": (lambda: taught().sample(1, 1, length=2**62), "length must be at most 2,1"),
    "interval-draws": (
        lambda: taught().credible_interval_one({"t": "x"}, method="sampled", n=10**30),
        "n must be at most 2,147,483,647",
    ),
    "method": (lambda: taught().credible_interval_one({"t": "x"}, method=np.zeros(2)), "method"),
    "digest-part": (lambda: taught().digest([]), r"part must be a str. Got \[\]"),
    "digest-moments": (lambda: taught().digest(moments="no"), "moments must be True.*'no'"),
    "part-none": (lambda: taught().part(None), "name must be a str. Got None"),
    "coefficient": (
        lambda: taught().nll({"t": ["x"]}, ["a"], with_coefficient="no"),
        "with_coefficient must be True.*'no'",
    ),
    "seed": (lambda: taught().sample(1, "x"), "seed.*'x'"),
    "level": (lambda: taught().credible_interval_one({"t": "x"}, "x"), "level.*'x'"),
    "calibrator": (lambda: nb.Confidence(5), "calibrator must be a Calibrator.*Got 5"),
    "truth": (lambda: nb.Confidence().learn(np.zeros((1, 1)), 5), "truth must be 1 whole number"),
    "truth-beyond": (lambda: nb.Confidence().learn(np.zeros((1, 1)), [1]), "truth must.*Got 1"),
    "rule-curve": (lambda: nb.AnswerRule("x"), "a rule's curve must be that of a calibrator"),
    "rule-curve-short": (lambda: nb.AnswerRule(np.zeros(3)), "a rule's curve must be that of a"),
    "rule-threshold": (lambda: nb.AnswerRule(None, "x"), "threshold must be a number. Got 'x'"),
    "rule-threshold-nan": (lambda: nb.AnswerRule(None, math.nan), "threshold must be finite.*nan"),
    "rule-costs": (lambda: nb.AnswerRule(None, None, [1]), "costs must have a row for each"),
    "said": (lambda: nb.AnswerRule().labels(5), "log_posteriors must be numbers of shape"),
    "costs-huge": (lambda: nb.cheapest([[0.0]], 10**400), "costs must have a row"),
    # learner, board and predictor
    "interval": (lambda: nb.EveryInterval(-1, 0.5, clock), "interval_s must be.*-1"),
    "interval-nan": (lambda: nb.EveryInterval(float("nan"), 0.5, clock), "interval_s must.*nan"),
    "share-zero": (lambda: nb.EveryInterval(0.1, 0.0, clock), "share_max must be.*above 0.*0.0"),
    "share-two": (lambda: nb.EveryInterval(0.1, 2, clock), "share_max must be at most 1. Got 2"),
    "clock": (lambda: nb.EveryInterval(0.1, 0.5, 5), "clock must be callable. Got 5"),
    "examples": (lambda: nb.EveryExamples(0), "n must be a whole number of at least 1. Got 0"),
    "examples-half": (lambda: nb.EveryExamples(1.5), "n must be a whole number.*1.5"),
    "learner": (lambda: nb.Learner({}, BOARD, nb.EveryExamples(1), clock), "model must be a Naive"),
    "learner-board": (
        lambda: nb.Learner(taught(), 5, nb.EveryExamples(1), clock),
        "board must be an object with publish, current. Got 5",
    ),
    "learner-policy": (
        lambda: nb.Learner(taught(), BOARD, nb.EveryExamples, clock),
        "policy must be an object with is_due, published. Got <class",
    ),
    "learner-clock": (
        lambda: nb.Learner(taught(), BOARD, nb.EveryExamples(1), 5),
        "clock must be callable. Got 5",
    ),
    "learner-confidence": (
        lambda: nb.Learner(taught(), BOARD, nb.EveryExamples(1), clock, confidence=5),
        "confidence must be a Confidence. Got 5",
    ),
    "queue": (lambda: nb.Predictor(BOARD, -1), "queue_size_max must be a whole.*1. Got -1"),
    "queue-zero": (lambda: nb.Predictor(BOARD, 0), "queue_size_max must be a whole.*1. Got 0"),
    "predictor": (lambda: nb.Predictor(5), "board must be an object with current. Got 5"),
    "then": (lambda: asked().submit(ROW, then=5), "then must be callable. Got 5"),
    "question": (lambda: asked().ask("x"), "question must be callable. Got 'x'"),
    "run": (lambda: asked().call(None), "run must be callable. Got None"),
    "of-snapshot": (lambda: asked().submit(ROW, snapshot=5), "snapshot must be a Snapshot. Got 5"),
    "timeout": (lambda: asked().predict_one({"t": "x"}, None), SECONDS + "None"),
    "timeout-nan": (lambda: asked().predict_many(ROW, float("nan")), SECONDS + "nan"),
    "timeout-submit": (lambda: asked().submit(ROW, timeout_s="1"), SECONDS + "'1'"),
    "timeout-ask": (lambda: asked().ask(len, timeout_s=[]), SECONDS + r"\[\]"),
    "timeout-call": (lambda: asked().call(len, timeout_s=True), SECONDS + "True"),
    "timeout-drain": (lambda: asked().drain(None), SECONDS + "None"),
    "timeout-stop": (lambda: asked().stop("x"), SECONDS + "'x'"),
    "timeout-board": (lambda: nb.SnapshotBoard().wait(None), SECONDS + "None"),
    "snapshot": (lambda: nb.Snapshot({}, 1), "model must be a ModelReader. Got {}"),
    "version": (lambda: nb.Snapshot(taught(), "x"), "version must be a whole number.*'x'"),
    "rule": (lambda: nb.Snapshot(taught(), 1, 5), "rule must be an AnswerRule. Got 5"),
    "publish": (lambda: nb.SnapshotBoard().publish({}), "snapshot must be a Snapshot. Got {}"),
    # half-lives side by side
    "lives": (lambda: nb.HalfLives(["a"], nb.Words(WORDS), None), LIVES + "None"),
    "lives-texts": (lambda: nb.HalfLives(["a"], nb.Words(WORDS), ["20"]), LIVES + r"\['20'\]"),
    "lives-short": (lambda: nb.HalfLives(["a"], nb.Words(WORDS), [9]), LIVES + r"\[9\]"),
    "lives-nan": (lambda: nb.HalfLives(["a"], nb.Words(WORDS), [math.nan]), LIVES + r"\[nan\]"),
    "lives-ragged": (lambda: nb.HalfLives(["a"], nb.Words(WORDS), [20, [30]]), LIVES),
    "lives-none": (lambda: nb.HalfLives(None, nb.Words(WORDS)), "classes must be an Iterable"),
    "lives-str": (lambda: nb.HalfLives("ab", nb.Words(WORDS)), "classes must be a seq.*'ab'"),
    "lives-label": (lambda: nb.HalfLives([None], nb.Words(WORDS)), r"classes\[0\]: a label"),
    "lives-empty": (lambda: nb.HalfLives([], nb.Words(WORDS)), "classes must not be empty"),
    # files, sums and exports
    "load": (lambda: nb.load(5), "path must be a str or PathLike. Got 5"),
    "load-nothing": (lambda: nb.load(""), "path must name a file. Got ''"),
    "save-half": (lambda: nb.save(taught(), "\ud800.nb"), r"path must name a file. Got '\\ud800"),
    "load-half": (lambda: nb.load(Path("\ud800")), r"path must name a file. Got PosixPath\('\\ud"),
    "export-half": (lambda: nb.export_json(taught(), "\ud800"), "target must name a file. Got"),
    "arrow-half": (lambda: nb.export_arrow(taught(), "\ud800"), "folder must name a file. Got"),
    "save-nul": (lambda: nb.save(taught(), "a\0b"), "path must name a file. Got"),
    "export-nothing": (lambda: nb.export_json(taught(), ""), "target must name a file. Got ''"),
    "from_bytes": (lambda: nb.NaiveBayes.from_bytes("x"), "data must be a bytes.*'x'"),
    "merge": (lambda: nb.merge({}, taught()), "first must be a .*Got {}"),
    "merge-other": (lambda: nb.merge(taught(), {}), "a NaiveBayes is wanted. Got dict"),
    "subtract": (lambda: nb.subtract({}, taught()), "first must be a .*Got {}"),
    "export_dict": (lambda: nb.export_dict({}), "model must be a ModelReader. Got {}"),
    "export_arrow": (lambda: nb.export_arrow(taught(), 5), "folder must be a str or PathLike"),
    "export_mlflow": (lambda: nb.export_mlflow(taught(), 5), "folder must be a str or PathLike"),
    "export_json": (lambda: nb.export_json(taught(), 5), "target must be an object with write"),
    "to_arrow": (lambda: nb.to_arrow({}), "model must be a ModelReader. Got {}"),
    # shares
    "confusion": (lambda: nb.Quantifier("x"), "confusion must be an array of numbers. Got 'x'"),
    "confusion-rows": (lambda: nb.Quantifier([[1, 0], [0]]), "confusion must be an array of num"),
    "names": (lambda: nb.Quantifier(SQUARE, classes=5), "classes must be a Sequence. Got 5"),
    "examples_min": (lambda: nb.Quantifier(SQUARE, examples_min="x"), "examples_min must be a w"),
    "shares": (lambda: nb.adjusted_shares("x", SQUARE), "counts must be an array of numbers.*'x'"),
}

SAVES: list[tuple[Any, dict[str, Any], str]] = [
    ({}, {}, "model must be a NaiveBayes or ModelState. Got {}"),
    (taught(), {"keep": 0}, "keep must be a whole number of at least 1. Got 0"),
    (taught(), {"keep": "x"}, "keep must be a whole number of at least 1. Got 'x'"),
    (taught(), {"positions": 5}, "positions must be a Mapping. Got 5"),
    (taught(), {"positions": {7: 1}}, "positions: a part must be a str. Got 7"),
    (taught(), {"mode": "0o600"}, "mode must be a whole number of at least 0. Got '0o600'"),
    (taught(), {"mode": 1 << 40}, "mode must be permissions, at most 0o7777. Got 1099511627776"),
    (taught(), {"positions": {"t/0": "x"}}, r"positions\['t/0'\] must be a whole number.*'x'"),
    (taught(), {"notes": 5}, "notes must be a Mapping. Got 5"),
    (taught(), {"notes": {"a": object()}}, "notes must be values that JSON knows"),
]


@pytest.mark.parametrize(("misuse", "message"), [*MISUSE.values()], ids=[*MISUSE])
def test_misuse_is_named(misuse: Callable[[], Any], message: str) -> None:
    """The error says which argument, what came and what is wanted."""
    with pytest.raises(InputError, match=message):
        misuse()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    SAVES,
    ids=[
        "model",
        "keep",
        "keep-text",
        "positions",
        "part",
        "mode",
        "mode-huge",
        "position",
        "notes",
        "note",
    ],
)
def test_a_misused_save_leaves_the_file(
    model: Any, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    """What cannot be saved is refused before anything is written."""
    path = tmp_path / "model.nb"
    nb.save(taught(), path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=message):
        nb.save(model, path, **options)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["model.nb"]


def test_a_path_must_be_one(tmp_path: Path) -> None:
    """A number would be taken for an open file's."""
    with pytest.raises(InputError, match=r"path must be a str or PathLike. Got 5"):
        nb.save(taught(), 5)
    assert not [*tmp_path.iterdir()]
