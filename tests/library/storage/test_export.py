"""The export: another program judges from it alone, and Arrow tables hold the same."""

from __future__ import annotations

import importlib
import io
import json
import subprocess
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from streamnb import (
    AnswerRule,
    Bag,
    Bernoulli,
    Calibrator,
    Categorical,
    Categories,
    Dirichlet,
    Flags,
    Gaussian,
    HalfLife,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Numbers,
    Predictor,
    Snapshot,
    SnapshotBoard,
    VarianceFloor,
    Words,
)
from streamnb.errors import InputError, StoreError
from streamnb.export import (
    PyfuncModel,
    export_arrow,
    export_dict,
    export_json,
    export_mlflow,
    log_mlflow,
    to_arrow,
)
from streamnb.features.protocol import Group
from streamnb.likelihoods.multinomial import Complement
from streamnb.reader import ModelReader
from tests.library.inspection.mixed_models import (
    CLASSES,
    Stream,
    columns_of,
    examples,
    groups,
    learned,
    mixed_model,
    scale_of,
    streams,
)
from tests.naive_text import grams
from tests.tweets import some_tweets

READER = Path(__file__).with_name("foreign_reader.pl")


def as_text(model: NaiveBayes | Snapshot) -> str:
    """Return the JSON export."""
    file = io.StringIO()
    export_json(model, file)
    return file.getvalue()


def judged_elsewhere(model: ModelReader, *examples: dict[str, Any]) -> list[list[list[float]]]:
    """Return log p(x, c) and log p(c | x) of examples, as the foreign reader says them."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".json") as file:
        export_json(model, file.name)
        said = subprocess.run(
            ["perl", READER, file.name],
            input="\n".join(map(json.dumps, examples)),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (said.returncode, said.stderr) == (0, "")
    answers = [json.loads(line) for line in said.stdout.splitlines()]
    return [[[-np.inf if v is None else v for v in row] for row in pair] for pair in answers]


def assert_judged_alike(model: ModelReader, *examples: dict[str, Any]) -> None:
    """Hold the foreign reader's answers to the model's, to 1e-12."""
    for x, (joint, posterior) in zip(examples, judged_elsewhere(model, *examples), strict=True):
        wanted = list(model.joint_log_likelihood_one(x).values())
        bound = 1e-12 * scale_of(wanted)
        said = [(posterior, list(model.predict_log_proba_one(x).values()))]
        if not model.state.is_hybrid:
            said.append((joint, wanted))
        for one, other in (pair for row in said for pair in zip(*row, strict=True)):
            assert one == other or abs(one - other) <= bound, (x, said)


@given(streams(), examples(), groups(0.0, 0.3, 1.0))
def test_another_program_judges_as_the_model_does(
    stream: Stream, x: dict[str, Any], mixed: dict[str, Group]
) -> None:
    """From the JSON alone, with a reader that shares no line with the library."""
    assert_judged_alike(learned(stream, mixed), x)


def test_the_other_program_is_short() -> None:
    """A reader of the export has at most 60 lines, none wider than 120 characters."""
    lines = READER.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 120


def test_another_program_judges_student_s_t_and_complement() -> None:
    """The families that the law above does not draw."""
    x = {"text": "good sun", "bag": {"rain": 1}, "reply": True, "income": "never", "age": 28.5}
    assert_judged_alike(mixed_model(), x)
    stream: Stream = [({"text": "good sun"}, "ham"), ({"text": "bad rain rain"}, "spam")]
    for normalise in (False, True):
        model = learned(stream, {"text": Words(Complement(normalise=normalise))})
        assert_judged_alike(model, {"text": "sun rain rain"})
    bag = Bag(Multinomial(), fields=("good", "sun"))
    model = learned([({"good": 2, "sun": 0}, "ham"), ({"sun": 1}, "spam")], {"bag": bag})
    assert_judged_alike(model, {"good": 1, "sun": 3})
    by_presence = learned(stream, {"text": Words(Multinomial(), counts="presence")})
    assert_judged_alike(by_presence, {"text": "sun rain rain"})


@given(streams(min_size=1), st.lists(examples(), min_size=1, max_size=3), st.booleans())
def test_another_program_judges_as_a_hybrid_does(
    stream: Stream, probes: list[dict[str, Any]], is_alone: bool
) -> None:
    """By the words' weights, those of the groups beside them, and a calibration."""
    mixed: dict[str, Group] = {
        "text": Words(Multinomial(), counts="presence", hybrid=Hybrid()),
        "bag": Bag(Multinomial(), field="bag", hybrid=Hybrid()),
    }
    others: dict[str, Group] = {
        "flags": Flags(fields=["reply", "link"]),
        "kinds": Categories(Categorical(Dirichlet(0.0)), fields=["income", "job"]),
        "numbers": Numbers(fields=["age"]),
    }
    model = learned(stream, mixed if is_alone else others | mixed)
    assert_judged_alike(model, *probes)
    calibrator = Calibrator()
    stated = model.predict_log_proba_many(columns_of(stream))
    calibrator.prequential_many(stated, [CLASSES.index(label) for _, label in stream])
    assert_judged_alike(Snapshot(model, 1, AnswerRule(calibrator.curve)), *probes)


@pytest.mark.deep
@pytest.mark.data
def test_another_program_judges_as_a_model_of_tweets_does(data_folder: Path) -> None:
    """Of words, pairs and negations as the daemon reads by default, learned in parts."""
    reading: dict[str, Any] = dict.fromkeys(("punctuation", "ends", "entities", "compose"), True)
    words = Words(
        Multinomial(), (1, 2), negation=True, counts="presence", hybrid=Hybrid(), **reading
    )
    model = NaiveBayes(
        ("negative", "positive"), features={"text": words}, hash_key=7, prior_half_life=700.0
    )
    tweets = some_tweets(data_folder, 3_000)
    for k in range(3):
        texts, labels = zip(*((t.text, t.label) for t in tweets[k:2_700:3]), strict=True)
        model.learn_many({"text": texts}, labels, part=f"{k}")
    probes = [tweet.text for tweet in tweets[2_700:2_740]]
    read = [{"text": grams(text, words.tokenizer, occurrence=False)} for text in probes]
    wanted = model.predict_log_proba_many({"text": probes})
    found = np.array([posterior for _, posterior in judged_elsewhere(model, *read)])
    assert np.abs(found - wanted).max() < 1e-12
    assert np.abs(model.raw().predict_log_proba_many({"text": probes}) - wanted).max() > 0.1


def test_arrow_has_the_weights_of_a_hybrid(told: Snapshot) -> None:
    """In the tables and their metadata stands what the JSON has."""
    exported, tables = export_dict(told), to_arrow(told)
    assert exported["version"] == 2
    header = json.loads(tables["classes"].schema.metadata[b"streamnb"])
    assert header["calibration"] == exported["calibration"]
    words, size = exported["groups"]
    assert tables["group:text"].column("score").to_pylist() == words["table"]["score"]
    assert json.loads(tables["group:size"].schema.metadata[b"streamnb"])["weight"] == size["weight"]


def test_a_model_that_forgets_is_exported_as_it_stands() -> None:
    """Counts are decayed up to now, and estimates are those it judges by."""
    model = NaiveBayes(CLASSES, features={"text": Words(Bernoulli())}, decay=HalfLife(examples=2))
    for text, label in [("good", "ham"), ("bad good", "spam"), ("sun", "ham"), ("bad", "eggs")]:
        model.learn_one({"text": text}, label)
    assert_judged_alike(model, {"text": "good"})
    counts = export_dict(model)["class_prior"]["count"]
    assert counts == pytest.approx([2**-1.5 + 2**-0.5, 0.5, 1.0])


def test_a_snapshot_is_exported_as_its_model_was() -> None:
    """The text is the same, to the letter."""
    model = mixed_model(30)
    assert as_text(Snapshot(model, 1)) == as_text(model)


def test_the_file_is_plain_json_in_utf_8(tmp_path: Path) -> None:
    """No NaN, no Infinity; words are readable; what stood there before is replaced whole."""
    path = tmp_path / "model.json"
    path.write_text("old", encoding="utf-8")
    export_json(learned([({"text": "grün"}, "ham")], {"text": Words(Multinomial())}), path)
    text = path.read_text(encoding="utf-8")

    def refuse(name: str) -> None:
        raise AssertionError(name)

    assert json.loads(text, parse_constant=refuse)["groups"][0]["table"]["word"] == ["grün"]
    assert "grün" in text
    assert [each.name for each in tmp_path.iterdir()] == ["model.json"]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As an error of the store's, with the way out."""
    with pytest.raises(StoreError, match=r"nowhere.*cannot be written"):
        export_json(mixed_model(5), tmp_path / "nowhere" / "model.json")
    (tmp_path / "nowhere").touch()
    with pytest.raises(StoreError, match=r"nowhere.*Not a directory"):
        export_json(mixed_model(5), tmp_path / "nowhere" / "model.json")


def test_arrow_tables_hold_what_the_json_holds() -> None:
    """A table of classes and one a group: the same columns and numbers, the rest as metadata."""
    model = mixed_model(40)
    exported, tables = export_dict(model), to_arrow(model)
    assert list(tables) == ["classes", *(f"group:{each['name']}" for each in exported["groups"])]
    assert tables["classes"].column("class").to_pylist() == CLASSES
    assert tables["classes"].column("log_prior").to_pylist() == exported["class_prior"]["log_prior"]
    for group in exported["groups"]:
        table = tables[f"group:{group['name']}"]
        header = json.loads(table.schema.metadata[b"streamnb"])
        assert header == {key: value for key, value in group.items() if key != "table"}
        assert table.to_pydict() == group["table"]


def test_arrow_knows_minus_infinity() -> None:
    """Where JSON has null, Arrow has the number."""
    model = learned([({"text": "good"}, "ham")], {"text": Words(Bernoulli())}, alpha=0.0)
    assert to_arrow(model)["classes"].column("log_prior").to_pylist() == [0.0, -np.inf, -np.inf]
    assert export_dict(model)["class_prior"]["log_prior"] == [0.0, None, None]


def test_a_model_that_knows_nothing_has_tables_all_the_same() -> None:
    """Without a class, a word or both: columns of the right types, and no row."""
    for classes in ((), ("ham", "spam")):
        tables = to_arrow(NaiveBayes(classes, features={"text": Words(Multinomial())}))
        assert tables["classes"].num_rows == len(classes)
        assert tables["group:text"].num_rows == 0
        assert tables["group:text"].schema.field("word").type == pa.string()


def test_arrow_files_are_read_by_any_reader_of_arrow(tmp_path: Path) -> None:
    """One file for the classes and one a group, in their order."""
    model = mixed_model(40)
    paths = export_arrow(model, tmp_path)
    assert [path.name for path in paths] == [
        "classes.arrow",
        *(f"group_{i}.arrow" for i in range(len(model.state.groups))),
    ]
    for path, table in zip(paths, to_arrow(model).values(), strict=True):
        with pa.memory_map(str(path)) as source:
            assert ipc.open_file(source).read_all().equals(table)


def test_without_pyarrow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says what to install, and what goes without."""
    plain = importlib.import_module

    def absent(name: str, package: str | None = None) -> Any:
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return plain(name, package)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(InputError, match=r"streamnb\[arrow\]"):
        to_arrow(mixed_model(5))


@pytest.fixture
def mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return MLflow, which keeps its runs in files here and tells nobody what it does."""
    pytest.importorskip("mlflow", reason="no MLflow: run scripts/setup.sh test")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its own classes
        found = importlib.import_module("mlflow")
        importlib.import_module("mlflow.pyfunc")
    found.set_tracking_uri((tmp_path / "runs").as_uri())
    return found


@pytest.fixture
def asked() -> pd.DataFrame:
    """Return rows of the fields that `told` reads, some of them missing."""
    fields = {"text": ["a prize", None, "hello"], "size": [2.5, 3.0, None]}
    return pd.DataFrame(fields, index=[7, 5, 6])


@pytest.fixture
def told() -> Snapshot:
    """Return a snapshot whose answers are calibrated, with sets and costs."""
    features: dict[str, Group] = {
        "text": Words(Multinomial(), hybrid=Hybrid()),
        "size": Numbers(fields=["size"]),
    }
    model = NaiveBayes(("ham", "spam"), features=features)
    texts = ["a prize", "hello you", "what a day", "the prize"]
    labels = ["spam", "ham", "ham", "spam"]
    model.learn_many({"text": texts, "size": [1.0, 2.0, 4.0, 8.0]}, labels)
    costs = np.array([[0.0, 10.0], [1.0, 0.0]])
    return Snapshot(model, 3, AnswerRule(Calibrator().curve * 0.5, 0.9, costs))


@pytest.mark.deep
def test_mlflow_answers_as_the_predictor_does(
    mlflow: Any, told: Snapshot, asked: pd.DataFrame, tmp_path: Path
) -> None:
    """A folder, or what a run logged, answers bit for bit as the snapshot, sets and costs too."""
    board = SnapshotBoard()
    board.publish(told)
    predictor = Predictor(board)
    predictor.start()
    logs = predictor.predict_many(asked).log_posteriors
    predictor.stop()
    export_mlflow(told, tmp_path / "folder")
    with mlflow.start_run():
        logged = log_mlflow(told, "tweets")
    for place in (str(tmp_path / "folder"), logged.model_uri):
        found = mlflow.pyfunc.load_model(place).predict(asked)
        assert found.index.tolist() == [7, 5, 6]
        assert np.array(found["probabilities"].tolist()).tobytes() == np.exp(logs).tobytes()
        assert found["prediction"].tolist() == [told.classes[i] for i in told.rule.labels(logs)]
        sets = told.rule.sets(logs)
        assert sets is not None
        within = [[c in each for c in told.classes] for each in found["prediction_set"]]
        assert within == sets.tolist()
    plain = tmp_path / "plain"
    export_mlflow(NaiveBayes.of(told.state), plain, metadata={"made": "here"})
    assert "prediction_set" not in mlflow.pyfunc.load_model(str(plain)).predict(asked)
    assert "made: here" in (plain / "MLmodel").read_text()


def test_mlflow_s_model_takes_columns_without_an_index(told: Snapshot, asked: pd.DataFrame) -> None:
    """Columns by name and other libraries' frames are answered, numbered from 0."""
    model = PyfuncModel(told)
    wanted = model.predict(asked)
    assert wanted.index.tolist() == [7, 5, 6]
    columns: dict[str, list[Any]] = {"text": ["a prize", None, "hello"], "size": [2.5, 3.0, None]}
    for rows in (columns, pl.DataFrame(columns), pa.table(columns)):
        found = model.predict(rows)
        assert found.index.tolist() == [0, 1, 2]
        assert found.to_dict("list") == wanted.to_dict("list")


@pytest.mark.deep
def test_mlflow_installs_what_is_asked_for_beside_streamnb(
    mlflow: Any,
    told: Snapshot,
    asked: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More requirements come beside streamnb itself; one's own list or environment is the whole."""
    monkeypatch.chdir(tmp_path)
    own = f"streamnb[mlflow]=={version('streamnb')}"
    Path("more.txt").write_text("numpy\n")
    environment = {"name": "x", "dependencies": ["python", {"pip": ["numpy"]}]}
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"extra_pip_requirements": ["numpy"]}, {own, "numpy"}),
        ({"extra_pip_requirements": "more.txt", "conda_env": None}, {own, "numpy"}),
        ({"pip_requirements": ["numpy"]}, {"numpy"}),
        ({"conda_env": environment}, {"numpy"}),
        ({"pip_requirements": None}, {own}),
    ]
    for place, (options, wanted) in enumerate(cases):
        folder = tmp_path / str(place)
        export_mlflow(told, folder, **options)
        needed = (folder / "requirements.txt").read_text().splitlines()
        assert {each for each in needed if not each.startswith("mlflow")} == wanted
        assert len(mlflow.pyfunc.load_model(str(folder)).predict(asked)) == 3
    with pytest.raises(ValueError, match="Only one of"):
        export_mlflow(told, tmp_path / "x", conda_env=environment, pip_requirements=["numpy"])


def test_mlflow_is_asked_for_if_it_is_missing(
    told: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without MLflow the error says what to install."""
    monkeypatch.setitem(sys.modules, "mlflow.pyfunc", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r"streamnb\[mlflow\]"):
        export_mlflow(told, tmp_path / "folder")


@pytest.mark.parametrize("share", [0.0, 1e-9])
def test_another_program_judges_numbers_that_classes_lack(share: float) -> None:
    """A class without a value, one without an example, and a field that never varied."""
    numbers = Numbers(Gaussian(VarianceFloor(share)), fields=["age", "size", "version"])
    for last in ("text", "size"):
        stream: Stream = [
            ({"age": 3.0 + k, "version": 5.0, "text": "sun"}, "ham") for k in range(3)
        ]
        stream += [({"age": 7.0, "size": 1.0}, "ham"), ({last: 2.0}, "spam")]
        if last == "text":
            stream[-1] = ({"text": "rain"}, "spam")
        model = learned(stream, {"numbers": numbers, "text": Words(Multinomial())})
        for x in ({"age": 4.5}, {"size": 1.5}, {"version": 6.0}, {"age": 9.0, "version": 5.0}):
            assert_judged_alike(model, x)
        fields = export_dict(model)["groups"][0]["table"]["field"]
        assert ("version" in fields) == (share > 0.0)
