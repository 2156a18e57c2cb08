"""Declared classes are all there are, unless the model says that others may join."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from streamnb import (
    Categories,
    Dirichlet,
    Hybrid,
    Multinomial,
    NaiveBayes,
    Words,
    load,
    merge,
    save,
)
from streamnb.errors import InputError
from streamnb.features.protocol import Group
from streamnb.serialization import pack, unpack

REFUSED = "label 'span' .* is none of the declared classes: 'ham', 'spam'.*new_classes=True"


def model_of(classes: list[Any] | None = None, **options: Any) -> NaiveBayes:
    """Return an untrained model over one field of text."""
    declared = ["ham", "spam"] if classes is None else classes
    groups = {"text": Words(Multinomial())}
    return NaiveBayes(declared, Dirichlet(1.0), groups, hash_key=3, **options)


@pytest.mark.parametrize(
    "teach",
    [
        lambda model: model.learn_one({"text": "a"}, "span"),
        lambda model: model.prequential_one({"text": "a"}, "span"),
        lambda model: model.learn_many({"text": ["a", "b"]}, ["ham", "span"]),
        lambda model: model.prequential_many({"text": ["a", "b"]}, ["ham", "span"]),
        lambda model: model.learn_one({"text": "a"}, "span", part="t/0"),
    ],
    ids=["learn_one", "prequential_one", "learn_many", "prequential_many", "part"],
)
def test_a_label_outside_declared_classes_is_refused(teach: Any) -> None:
    """The error names label, classes and way out, and nothing of the batch was learned."""
    model = model_of()
    before = model.to_bytes()
    with pytest.raises(InputError, match=REFUSED):
        teach(model)
    assert model.to_bytes() == before
    assert model.classes == ("ham", "spam")


def test_a_batch_says_which_row_it_was() -> None:
    """The first label that is no class is named with its row."""
    with pytest.raises(InputError, match=r"label 'span' \(row 1\)"):
        model_of().learn_many({"text": ["a", "b", "c"]}, ["ham", "span", "eggs"])


def test_of_many_classes_some_are_shown() -> None:
    """An error does not print ten thousand classes."""
    with pytest.raises(InputError, match="19 and 80 more") as caught:
        model_of(list(range(100))).learn_one({"text": "a"}, "span")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("classes", "options"),
    [([], {}), (["ham"], {"new_classes": True}), ([], {"new_classes": True})],
)
def test_open_classes_join(classes: list[Any], options: Any) -> None:
    """Where none are declared, or the model says so, classes join as they come."""
    model = model_of(classes, **options)
    model.learn_one({"text": "a"}, "span")
    assert model.classes == (*classes, "span")
    again = model.clone()
    again.learn_one({"text": "a"}, "eggs")
    assert again.classes == (*classes, "span", "eggs")


def test_a_class_may_be_declared_later() -> None:
    """`add_class` declares one more class of a closed model."""
    model = model_of()
    model.add_class("span")
    model.learn_one({"text": "a"}, "span")
    assert model.class_counts.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("new_classes", [False, True])
def test_a_file_keeps_it(new_classes: bool, tmp_path: Path) -> None:
    """A closed model is closed when loaded, cloned or pickled, and an open one open."""
    model = model_of(new_classes=new_classes)
    save(model, tmp_path / "m.nb")
    for twin in (load(tmp_path / "m.nb"), model.clone(), NaiveBayes.from_bytes(model.to_bytes())):
        assert twin.new_classes is new_classes
        if new_classes:
            twin.learn_one({"text": "a"}, "span")
        else:
            with pytest.raises(InputError, match=REFUSED):
                twin.learn_one({"text": "a"}, "span")


@pytest.mark.parametrize("new_classes", [False, True])
def test_a_copy_without_declared_classes_keeps_it(new_classes: bool) -> None:
    """Any class joins either way, and the setting of a copy is that of the model."""
    model = model_of([], new_classes=new_classes)
    model.learn_one({"text": "a"}, "span")
    for twin in (NaiveBayes.from_bytes(model.to_bytes()), copy.copy(model), model.clone()):
        assert twin.new_classes is new_classes
        assert twin.to_bytes() == model.to_bytes()
        twin.learn_one({"text": "b"}, "eggs")
        assert twin.classes == ("span", "eggs")


def test_an_older_file_stays_open() -> None:
    """A file written before there was a choice behaves as it did: its classes are open."""
    header, arrays = pack(model_of().state, {})
    del header["new_classes"]
    model = NaiveBayes.of(unpack(header, arrays)[0])
    model.learn_one({"text": "a"}, "span")
    assert model.classes == ("ham", "spam", "span")


def test_a_closed_sum_takes_declared_classes_alone() -> None:
    """Merging takes what either declares; what the other merely learned needs an open first."""
    closed, declares, learned = model_of(), model_of(["ham", "eggs"]), model_of([])
    learned.learn_one({"text": "a"}, "span")
    assert merge(closed, declares).classes == ("ham", "spam", "eggs")
    with pytest.raises(InputError, match=r"class 'span' .*declared by neither.*'ham', 'spam'"):
        merge(closed, learned)
    assert merge(model_of(new_classes=True), learned).classes == ("ham", "spam", "span")
    assert merge(learned, closed).classes == ("span", "ham", "spam")


def test_what_either_declares_stays_declared() -> None:
    """A class that only the other model declared takes examples, and does not leave when empty."""
    total = merge(model_of(["x"]), model_of(["x", "y"]))
    total.learn_one({"text": "good"}, "x")
    total.unlearn_one({"text": "good"}, "x")
    assert total.classes == ("x", "y")
    total.learn_one({"text": "bad"}, "y")
    assert total.class_counts.tolist() == [0.0, 1.0]


def test_a_class_that_was_added_stays_declared() -> None:
    """Taking back another class's example leaves it, as a message of it may be next."""
    model = model_of()
    model.add_class("span")
    model.learn_one({"text": "good"}, "ham")
    model.unlearn_one({"text": "good"}, "ham")
    assert model.classes == ("ham", "spam", "span")
    model.learn_one({"text": "bad"}, "span")
    assert model.class_counts.tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("classes", "options"),
    [([], {}), ([], {"new_classes": True}), (["ham"], {"new_classes": True})],
)
def test_a_class_added_to_an_open_model_stays(classes: list[Any], options: Any) -> None:
    """Where classes join as they come, one that was added stays when another's example leaves."""
    model = model_of(classes, **options)
    model.add_class("span")
    for twin in (model, model.clone(), NaiveBayes.from_bytes(model.to_bytes())):
        twin.learn_one({"text": "good"}, "eggs")
        assert twin.classes == (*classes, "span", "eggs")
        twin.unlearn_one({"text": "good"}, "eggs")
        assert twin.classes == (*classes, "span")


def test_adding_a_class_that_had_joined_declares_it() -> None:
    """It stays from then on, and so do those before it; those behind it leave when empty."""
    model = model_of([])
    for label in ("ham", "span", "eggs"):
        model.learn_one({"text": "a"}, label)
    model.add_class("span")
    assert list(model.classes) == ["ham", "span", "eggs"]
    for label in ("eggs", "span", "ham"):
        model.unlearn_one({"text": "a"}, label)
    assert list(model.classes) == ["ham", "span"]


@pytest.mark.parametrize("options", [{}, {"new_classes": True}])
def test_what_was_added_to_an_open_model_leaves_it_whole(options: Any) -> None:
    """The other's declared classes join as learned ones do: the way back gives the same bytes."""
    declares = model_of(["spam"], new_classes=True)
    declares.learn_one({"text": "a"}, "spam")
    model = model_of([], **options)
    model.learn_one({"text": "b"}, "ham")
    before = model.to_bytes()
    assert (merge(model, declares) - declares).to_bytes() == before
    in_parts = model_of([], **options)
    in_parts.learn_one({"text": "b"}, "ham", part="p")
    before = in_parts.to_bytes()
    in_parts.set_part("q", declares)
    in_parts.drop_part("q")
    assert in_parts.to_bytes() == before


COUNTED: dict[str, tuple[Group, str]] = {
    "words": (Words(Multinomial()), "by_word"),
    "hybrid": (Words(Multinomial(), hybrid=Hybrid()), "by_word"),
    "categories": (Categories(fields=["text"]), "by_value"),
}


@pytest.mark.parametrize("kind", COUNTED)
def test_a_class_joins_without_a_copy_of_unused_room(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a table for thousands of words only those that came are copied, and once each time."""
    group, counted = COUNTED[kind]
    model = NaiveBayes(["ham"], features={"text": group}, hash_key=3, new_classes=True)
    model.learn_many({"text": ["a", "b"]}, ["ham", "ham"])
    own = model.state.groups["text"]
    getattr(own.counts, counted)[2:] = 7.0  # nothing has been counted there
    for copies in ("frozen_copy", "copy_counts"):
        monkeypatch.setattr(type(own), copies, None)
    model.learn_one({"text": "a"}, "eggs")
    counts = getattr(own.counts, counted)
    assert counts[:2].tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert len(counts) > 1_000
    assert not counts[2:].any()
