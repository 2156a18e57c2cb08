"""What is asked of a model: texts, fields by name, whole messages; and what is answered."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from consumers.cli import model_report as answers
from consumers.cli.output import print_prediction
from consumers.config.message import MessageSettings
from consumers.config.model import ModelSettings
from consumers.config.settings import Settings
from consumers.decode import example_input as questions
from consumers.errors import QuestionError
from consumers.features import build_model
from streamnb import NaiveBayes, save

ROOT = Path(__file__).resolve().parents[3]
LOAN: dict[str, Any] = {
    "score": "high", "income": "mid", "missed_payments": False, "stable_job": True,
    "amount": 9000, "age": 45, "note": "for a new roof",
}  # fmt: skip
OTHER: dict[str, Any] = {
    "score": "low", "income": "low", "missed_payments": True, "stable_job": False,
    "amount": 20000.5, "age": 30, "note": "for a holiday",
}  # fmt: skip


@pytest.fixture(scope="module")
def model() -> NaiveBayes:
    """Return a model of the loan example that has learned four applications."""
    text = (ROOT / "docs" / "examples" / "loan.yaml").read_text(encoding="utf-8")
    made = build_model(Settings.model_validate(yaml.safe_load(text)).model)
    for amount in (0.0, 500.0):
        made.learn_one(LOAN | {"amount": 9000.0 + amount}, "approve")
        made.learn_one(OTHER | {"amount": 20000.0 + amount}, "reject")
    return made


def texts_model(*names: str) -> NaiveBayes:
    """Return an untrained model of words of some fields."""
    features = {name: {"fields": [name]} for name in names}
    return build_model(ModelSettings.model_validate({"features": features}))


def test_fields_are_read_by_their_kind(model: NaiveBayes) -> None:
    """Each value becomes what its group reads; an empty one is missing."""
    given = ["score=high", "amount=12.50", "age=41", "missed_payments=TRUE", "stable_job=0"]
    kinds = questions.kinds_in(model)
    assert questions.with_fields(kinds, [*given, "income=", "note=a=b"]) == {
        "score": "high", "amount": 12.5, "age": 41, "missed_payments": True, "stable_job": False,
        "income": None, "note": "a=b",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("score", "'score' is not NAME=VALUE"),
        ("scor=high", "did you mean 'score'?"),
        ("salary=1", "--set amount=NUMBER"),
        ("age=old", "the value at 'age' is 'old'; a number"),
        ("stable_job=2", "true, false, 1 or 0 is needed"),
    ],
)
def test_what_is_no_field_is_told(model: NaiveBayes, pair: str, said: str) -> None:
    """The error names the field, what was given and what there is."""
    with pytest.raises(QuestionError) as caught:
        questions.with_fields(questions.kinds_in(model), [pair])
    assert said in str(caught.value)


def test_a_field_has_one_value(model: NaiveBayes) -> None:
    """Of two values for one field neither wins in silence."""
    with pytest.raises(QuestionError, match="'age' is given twice"):
        questions.with_fields(questions.kinds_in(model), ["age=1", "score=low", "age=2"])


def test_an_outlier_does_not_fill_the_screen(model: NaiveBayes) -> None:
    """A number of sixty digits is shown by its size, and so is what it says."""
    example = questions.with_fields(questions.kinds_in(model), ["amount=1e60", "age=3"])
    assert [repr(value) for value in example.values()] == ["1e+60", "3"]
    shown = io.StringIO()
    print_prediction(Console(file=shown, width=80), answers.predict(model, example))
    assert max(map(len, shown.getvalue().splitlines())) < 80
    assert "amount=1e+60" in shown.getvalue()


def test_a_text_goes_where_words_are_read(model: NaiveBayes) -> None:
    """To the only field of words, or to the text; where that is not clear, the error says so."""
    for made, field in ((model, "note"), (texts_model("text", "title"), "text")):
        assert questions.with_text(questions.kinds_in(made), "hi") == {field: "hi"}
    with pytest.raises(QuestionError, match="several texts; name each: --set body=TEXT --set"):
        questions.with_text(questions.kinds_in(texts_model("body", "title")), "hi")
    with pytest.raises(QuestionError, match="reads no text; give its fields instead: --set n=NUM"):
        questions.with_text({"n": "numbers"}, "hi")


def test_a_message_is_read_as_the_daemon_reads_it(model: NaiveBayes) -> None:
    """By the configured paths, with its label left alone; what is rejected is an error here."""
    message = json.dumps(LOAN | {"decision": "anything", "id": 1})
    assert questions.of_message(model, MessageSettings(), message) == LOAN
    made = texts_model("text")
    found = questions.of_message(made, MessageSettings(text="a.b"), '{"a":{"b":"hi"}}')
    assert found == {"text": "hi"}
    for wrong, said in (
        ('{"age":"x"}', "wrong_type"),
        ("{", "not_json"),
        ("[]", "not_an_object"),
        ('{"operation":"delete","age":3}', "is a deletion"),
    ):
        with pytest.raises(QuestionError, match=said):
            questions.of_message(model, MessageSettings(), wrong)


def test_an_answer_says_why(model: NaiveBayes) -> None:
    """Label and probabilities, and each feature's score, which add up to the log-odds."""
    answer = answers.predict(model, LOAN)
    assert answer["label"] == "approve"
    assert answer["fields"] == LOAN
    features = {row["feature"]: row["score"] for row in answer["features"]}
    assert {"score=high", "missed_payments=false", "amount=9000", "age=45"} <= set(features)
    assert {row["word"] for row in answer["words"]} == {"for", "a", "new", "roof"}
    scores = [*features.values(), *(row["score"] for row in answer["words"])]
    p = answer["probabilities"]
    prior = model.class_priors()
    odds = math.log(p["approve"] / p["reject"]) - math.log(prior[0] / prior[1])
    assert sum(scores) == pytest.approx(odds)


def test_missing_fields_say_nothing(model: NaiveBayes) -> None:
    """What is not asked about is in neither the answer nor its reasons."""
    answer = answers.predict(model, {"score": "low", "age": None, "note": None})
    assert answer["fields"] == {"score": "low"}
    assert [row["feature"] for row in answer["features"]] == ["score=low"]
    assert answer["words"] == []


def test_an_inspection_shows_every_kind(model: NaiveBayes, tmp_path: Path) -> None:
    """Values, flags and numbers stand there with what was counted, by class."""
    save(model, tmp_path / "model.nb")
    stored, troubles = answers.read_model(tmp_path / "model.nb")
    assert troubles == []
    found = answers.inspect(stored, 1)
    assert found["n_features"] == found["vocabulary_size"] + 4 + 2 + 2
    assert [(row["field"], row["value"], row["counts"]) for row in found["values"]] == [
        ("income", "low", {"approve": 0.0, "reject": 2.0}),
        ("score", "high", {"approve": 2.0, "reject": 0.0}),
    ]
    flags = {row["field"]: (row["true"], row["false"]) for row in found["flags"]}
    assert flags["stable_job"] == ({"approve": 2.0, "reject": 0.0}, {"approve": 0.0, "reject": 2.0})
    numbers = {row["field"]: row for row in found["numbers"]}
    assert numbers["amount"]["mean"] == {"approve": 9250.0, "reject": 20250.0}
    assert numbers["amount"]["m2"] == {"approve": 125000.0, "reject": 125000.0}
    assert numbers["amount"]["deviation"] == {"approve": 250.0, "reject": 250.0}
