"""`streamnb predict` of a source, as a run judges it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from consumers.cli import commands
from streamnb import Categorical, Categories, Dirichlet, HalfLives, Multinomial, NaiveBayes, Words
from streamnb.errors import StoreError
from streamnb.storage import save


def test_where_emoticons_label_texts_are_judged_without_them(tmp_path: Path) -> None:
    """As a run judges what it cannot label: with signs of two classes, which it takes out."""
    model = NaiveBayes(
        ("negative", "positive"), features={"text": Words(Multinomial(Dirichlet(1.0)))}
    )
    for text, label in (("good :)", "positive"), ("bad :(", "negative"), ("ill :(", "negative")):
        model.learn_one({"text": text}, label)
    save(model, tmp_path / "model.nb", keep=2)
    texts = {"good :( :) bad :(": "good   bad", "no sign": "no sign", "ill :(": "ill"}
    source, config = tmp_path / "in.jsonl", tmp_path / "config.yaml"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    config.write_text("labels: {kind: emoticons}")
    asked = ["predict", "--model", str(tmp_path / "model.nb"), "-c", str(config), str(source)]
    done = CliRunner().invoke(commands.app, asked, catch_exceptions=False)
    found = [json.loads(line)["probabilities"] for line in done.stdout.splitlines()]
    expected = [model.predict_proba_one({"text": text}) for text in texts.values()]
    assert found == [pytest.approx(each) for each in expected]
    assert found[0] != pytest.approx(model.predict_proba_one({"text": next(iter(texts))}))


def test_a_value_that_no_class_has_learned_is_unseen(tmp_path: Path) -> None:
    """It says so; if there is nothing else, nothing of what was asked is known."""
    fields = Categories(fields=["grade", "term"])
    model = NaiveBayes(("paid", "unpaid"), features={"loan": fields})
    model.learn_many({"grade": ["A", "B", "A"], "term": ["3", "5", "3"]}, ["paid"] * 2 + ["unpaid"])
    save(model, tmp_path / "model.nb", keep=2)
    asked = ["predict", "--model", str(tmp_path / "model.nb"), "--set", "grade=E"]

    def said(*more: str) -> str:
        return CliRunner().invoke(commands.app, [*asked, *more], catch_exceptions=False).stdout

    assert "nothing in it is known" in said()
    assert "grade=E" in (both := said("--set", "term=5"))
    assert "grade=E -" in both or "grade=E +" in both
    assert both.count("(unseen)") == 1
    (answer,) = map(json.loads, said("--set", "term=5", "--json").splitlines())
    unseen = {each["feature"]: each["unseen"] for each in answer["features"]}
    assert unseen == {"grade=E": True, "term=5": False}


def test_an_answer_by_the_class_prior_alone_says_so(tmp_path: Path) -> None:
    """With a prior of 0 a value may make every class impossible, whatever the words say."""
    groups: dict[str, Any] = {
        "text": Words(Multinomial()),
        "loan": Categories(Categorical(Dirichlet(0.0)), fields=["grade"]),
    }
    model = NaiveBayes(("paid", "unpaid"), features=groups)
    model.learn_many({"text": ["soon", "late"], "grade": ["A", "A"]}, ["paid", "unpaid"])
    save(model, tmp_path / "model.nb")
    asked = ["predict", "--model", str(tmp_path / "model.nb"), "--set", "text=late", "--set"]
    for grade, by_prior in (("E", True), ("A", False)):

        def said(*more: str, grade: str = grade) -> str:
            arguments = [*asked, f"grade={grade}", *more]
            return CliRunner().invoke(commands.app, arguments, catch_exceptions=False).stdout

        assert ("every class is impossible" in said()) is by_prior
        (answer,) = map(json.loads, said("--json").splitlines())
        assert answer["by_prior"] is by_prior


@pytest.mark.parametrize("asked", [["predict", "prize", "--model"], ["inspect"]], ids=" ".join)
def test_no_command_takes_half_lives_side_by_side_for_a_model(
    tmp_path: Path, asked: list[str]
) -> None:
    """Their classes are names such as "0:spam", which nobody has declared."""
    path = tmp_path / "lives.nb"
    HalfLives(["ham", "spam"], Words(Multinomial()), [50, 1_000]).save(path)
    with pytest.raises(StoreError, match=r"lives\.nb: half-lives side by side"):
        CliRunner().invoke(commands.app, [*asked, str(path)], catch_exceptions=False)
