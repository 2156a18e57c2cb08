"""An example none of whose fields any group reads is refused, and no legitimate one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streamnb import (
    Bag,
    Categories,
    Flags,
    Multinomial,
    NaiveBayes,
    Numbers,
    Predictor,
    Snapshot,
    SnapshotBoard,
    Words,
)
from streamnb.errors import InputError

REFUSED = r"none of the model's fields \(text\) is among .*: txt, lang\. Correct the names"
X = {"txt": "win a prize", "lang": "en"}
COLUMNS = {name: [value] for name, value in X.items()}

ONE: dict[str, Callable[[Any, Any], Any]] = {
    "learn_one": lambda model, x: model.learn_one(x, "spam"),
    "prequential_one": lambda model, x: model.prequential_one(x, "spam"),
    "unlearn_one": lambda model, x: model.unlearn_one(x, "spam"),
    "predict_one": lambda model, x: model.predict_one(x),
    "predict_proba_one": lambda model, x: model.predict_proba_one(x),
    "judge_one": lambda model, x: model.joint_log_likelihood_one(x),
    "explain_one": lambda model, x: model.explain_one(x),
    "credible_interval_one": lambda model, x: model.credible_interval_one(x, n=2),
}
MANY: dict[str, Callable[[Any, Any], Any]] = {
    "learn_many": lambda model, columns: model.learn_many(columns, ["spam"]),
    "prequential_many": lambda model, columns: model.prequential_many(columns, ["spam"]),
    "predict_many": lambda model, columns: model.predict_many(columns),
    "log_likelihood": lambda model, columns: model.log_likelihood(columns, ["spam"]),
}


def taught(**features: Any) -> NaiveBayes:
    """Return a model that has seen one text of each class."""
    groups = features or {"text": Words(Multinomial())}
    model = NaiveBayes(["ham", "spam"], features=groups, hash_key=1)
    if not features:
        model.learn_one({"text": "win a prize"}, "spam")
        model.learn_one({"text": "lunch"}, "ham")
    return model


@pytest.mark.parametrize("ask", [*ONE.values()], ids=[*ONE])
def test_a_misspelt_field_is_refused(ask: Callable[[Any, Any], Any]) -> None:
    """Each way in names the field, what the groups read and the way out; nothing has changed."""
    model = taught()
    before = model.to_bytes()
    with pytest.raises(InputError, match=REFUSED):
        ask(model, X)
    assert model.to_bytes() == before


@pytest.mark.parametrize("ask", [*MANY.values()], ids=[*MANY])
def test_a_misspelt_column_is_refused(ask: Callable[[Any, Any], Any]) -> None:
    """A batch is refused as a single example is."""
    model = taught()
    before = model.to_bytes()
    with pytest.raises(InputError, match=REFUSED):
        ask(model, COLUMNS)
    assert model.to_bytes() == before


def test_the_predictor_refuses_it_too() -> None:
    """Whoever asks a snapshot on another thread gets the same error."""
    board = SnapshotBoard()
    board.publish(Snapshot(taught(), 1))
    predictor = Predictor(board)
    predictor.start()
    with pytest.raises(InputError, match=REFUSED):
        predictor.predict_one(X)
    predictor.stop()


@pytest.mark.parametrize(
    "x",
    [{}, {"text": None}, {"text": "win", "lang": "en"}, {"text": None, "lang": "en"}],
    ids=["empty", "missing", "more", "missing-and-more"],
)
def test_other_fields_are_passed_over(x: dict[str, Any]) -> None:
    """Fields beside the known ones, and known ones that are missing, are no mistake."""
    model, twin = taught(), taught()
    model.learn_one(x, "spam")
    twin.learn_one({"text": x.get("text")}, "spam")
    assert model.to_bytes() == twin.to_bytes()
    assert model.predict_proba_one(x) == twin.predict_proba_one({"text": x.get("text")})
    if x:
        columns = {name: [value] for name, value in x.items()}
        assert model.predict_many(columns) == [model.predict_one(x)]


def test_a_batch_may_lack_what_an_example_may() -> None:
    """A known field that is None throughout leaves the number of rows to the other columns."""
    model = taught()
    assert model.predict_many({"text": None, "lang": ["en", "de"]}) == ["ham", "ham"]


@pytest.mark.parametrize("group", [Categories(fields=["job"]), Numbers(fields=["job"])])
def test_named_fields_are_looked_for(group: Any) -> None:
    """Categories and numbers with named fields refuse an example that has none of them."""
    model = taught(g=group)
    with pytest.raises(InputError, match=r"\(job\) is among those of the example: jop"):
        model.learn_one({"jop": 1}, "ham")
    model.learn_one({"job": None, "jop": 1}, "ham")
    assert model.class_counts.tolist() == [1.0, 0.0]


def test_a_category_missing_beside_a_text_is_no_mistake() -> None:
    """Of several groups one that reads something is enough."""
    model = taught(text=Words(Multinomial()), job=Categories(fields=["job"]))
    model.learn_one({"text": "a", "id": 7}, "ham")
    model.learn_one({"job": "b", "id": 7}, "ham")
    assert model.class_counts.tolist() == [2.0, 0.0]


def test_an_open_group_takes_any_name() -> None:
    """An open group reads whatever is of its kind; what is of no group's kind is refused."""
    model = taught(numbers=Numbers())
    model.learn_one({"anything": 1.0}, "ham")
    model.learn_one({"other": 2.0, "word": "x"}, "ham")
    model.learn_one({"missing": None}, "ham")
    wanted = r"\(anything, other\).*: word\. Its open groups \(numbers\) take up no such values"
    with pytest.raises(InputError, match=wanted):
        model.learn_one({"word": "x"}, "ham")
    with pytest.raises(InputError, match=wanted):
        model.learn_many({"word": ["x", "y"]}, ["ham", "ham"])
    assert model.predict_one({"new": 3.0}) == "ham"


@pytest.mark.parametrize(
    "group",
    [Bag(Multinomial(), fields=("win", "prize")), Flags(fields=["a"], absent_is_false=True)],
    ids=["bag", "flags"],
)
def test_where_absence_is_usual_nothing_is_refused(group: Any) -> None:
    """A text without any of the words, or without a flag that is true, is an example."""
    model = taught(g=group)
    model.learn_one({"lunch": 1}, "ham")
    model.learn_many({"lunch": [1, 1]}, ["ham", "ham"])
    assert model.class_counts.tolist() == [3.0, 0.0]
    assert model.predict_many({"lunch": [1]}) == [model.predict_one({"lunch": 1})]
