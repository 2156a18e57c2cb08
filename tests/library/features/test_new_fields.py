"""Fields that come anew in single examples: an open group takes them up, whatever is missing."""

from __future__ import annotations

from typing import Any

import pytest

from streamnb import Bag, Categories, Flags, HalfLife, Multinomial, NaiveBayes, Numbers, Words
from streamnb.features.fields import FIELDS_MAX
from streamnb.features.protocol import Group


def learned(groups: dict[str, Group], *xs: dict[str, Any]) -> NaiveBayes:
    """Return a model of one class that has learned examples one at a time."""
    model = NaiveBayes(["ham"], features=groups, hash_key=1)
    for x in xs:
        model.learn_one(x, "ham")
    return model


def test_a_new_field_in_the_place_of_a_known_one() -> None:
    """An example with as many fields as are known may still bring a new one."""
    model = learned({"kinds": Categories()}, {"job": "yes"}, {"colour": "red"})
    assert model.state.groups["kinds"].fields == ("job", "colour")


def test_a_field_that_two_groups_read_counts_once() -> None:
    """Where two groups read one text, a number that comes with it is a new field all the same."""
    texts: dict[str, Group] = {
        "words": Words(Multinomial(), field="text"),
        "pairs": Words(Multinomial(), field="text", ngrams=(2, 2)),
    }
    model = learned({**texts, "numbers": Numbers()}, {"text": "a b"}, {"text": "a b", "age": 7.0})
    assert model.state.groups["numbers"].fields == ("age",)


def test_counts_come_in_any_order_of_their_fields() -> None:
    """Words that are fields get their columns in the order of their names, however they come."""
    one = learned({"bag": Bag(Multinomial())}, {"b": 1, "a": 2})
    other = learned({"bag": Bag(Multinomial())}, {"a": 2, "b": 1})
    assert one.to_bytes() == other.to_bytes()


@pytest.mark.parametrize(
    ("group", "value"),
    [(Numbers(), 1.0), (Flags(), True), (Flags(absent_is_false=True), True)],
    ids=["numbers", "flags", "absent flags"],
)
def test_weight_0_leaves_no_field_behind(group: Group, value: Any) -> None:
    """After rows that teach nothing, a field is as new as before: another group may take it up."""
    model = NaiveBayes(["ham"], features={"first": group, "kinds": Categories()}, hash_key=1)
    model.learn_one({"a": value}, "ham", weight=0.0)
    model.learn_many({"a": [value, value]}, ["ham", "ham"], weights=[0.0, 0.0])
    assert not model.state.groups["first"].fields
    model.learn_one({"a": "text"}, "ham")
    assert model.state.groups["kinds"].fields == ("a",)


def test_a_weight_of_0_before_others_is_no_hindrance() -> None:
    """A row that counts gives its fields their places, whatever came before it in the batch."""
    model = NaiveBayes(["ham"], features={"numbers": Numbers()}, hash_key=1)
    columns = {"a": [1.0, 2.0, None], "b": [3.0, None, None]}
    model.learn_many(columns, ["ham"] * 3, weights=[0.0, 1.0, 1.0])
    assert model.state.groups["numbers"].fields == ("a",)


def test_a_flag_that_was_false_alone_is_not_known() -> None:
    """Where an absent flag is false, a field is known from its first true value on."""
    groups: dict[str, Group] = {"flags": Flags(absent_is_false=True), "kinds": Categories()}
    model = learned(groups, {"a": False, "b": True}, {"a": "text"})
    assert model.state.groups["flags"].fields == ("b",)
    assert model.state.groups["kinds"].fields == ("a",)


OPEN: dict[str, tuple[Group, Any]] = {
    "numbers": (Numbers(), 1.5),
    "flags": (Flags(), True),
    "categories": (Categories(), "x"),
}


def open_model(kind: str, **options: Any) -> tuple[NaiveBayes, Any, Any]:
    """Return a model of an open group before one that takes other values, and one of each's."""
    group, value = OPEN[kind]
    other, other_value = OPEN["categories" if kind != "categories" else "numbers"]
    groups = {"own": group, "other": other}
    return NaiveBayes(["ham"], features=groups, hash_key=1, **options), value, other_value


def fields_of(model: NaiveBayes) -> dict[str, list[str]]:
    """Return the fields that each group knows, in the order of their names."""
    return {name: sorted(group.fields) for name, group in model.state.groups.items()}


@pytest.mark.parametrize("part", [None, "p"])
@pytest.mark.parametrize("kind", OPEN)
def test_what_was_taken_back_leaves_no_field_behind(kind: str, part: str | None) -> None:
    """Then another group takes it up, as it does in a model that was saved and loaded."""
    model, value, other = open_model(kind)
    if part is not None:
        model.learn_one({"z": value}, "ham", part="q")
    for x in ({"b": value}, {"a": value, "c": value}):
        model.learn_one(x, "ham", part=part)
    model.unlearn_one({"a": value, "c": value}, "ham", part=part)
    kept = ["b"] if part is None else ["b", "z"]
    twin = NaiveBayes.from_bytes(model.to_bytes())
    assert fields_of(model) == fields_of(twin) == {"own": kept, "other": []}
    for each in (model, twin):
        each.learn_many({"a": [other, other], "b": [value, None]}, ["ham"] * 2, part=part)
        each.learn_one({"d": value, "b": value}, "ham", part=part)
        assert fields_of(each) == {"own": sorted([*kept, "d"]), "other": ["a"]}
    assert model.to_bytes() == twin.to_bytes()
    x = {"a": other, "b": value, "d": value}
    assert model.predict_log_proba_one(x) == twin.predict_log_proba_one(x)


@pytest.mark.parametrize("kind", OPEN)
def test_a_snapshot_keeps_the_fields_that_leave_later(kind: str) -> None:
    """What is frozen answers as before, and a value that comes again is counted anew."""
    model, value, _ = open_model(kind)
    model.learn_many({"a": [value], "b": [value]}, ["ham"])
    frozen = NaiveBayes.of(model.state.frozen_copy())
    before = frozen.to_bytes()
    model.unlearn_one({"a": value, "b": value}, "ham")
    model.learn_one({"b": value}, "ham")
    model.learn_one({"a": value}, "ham")
    assert frozen.to_bytes() == before
    alone, _, _ = open_model(kind)
    alone.learn_many({"b": [value, None], "a": [None, value]}, ["ham", "ham"])
    assert model.digest() == alone.digest()


@pytest.mark.parametrize("kind", OPEN)
def test_subtracting_and_dropping_a_part_leave_no_field_behind(kind: str) -> None:
    """A field of what is taken away may be another group's from then on."""
    model, value, other = open_model(kind)
    model.learn_one({"b": value}, "ham", part="p")
    model.learn_one({"a": value}, "ham", part="q")
    rest = model - model.part("q")
    replaced = model.clone()
    replaced.set_part("q", open_model(kind)[0])
    model.drop_part("q")
    for each in (rest, replaced, model):
        assert fields_of(each) == {"own": ["b"], "other": []}
        each.learn_one({"a": other}, "ham", part="p" if each.parts else None)
        assert fields_of(each) == {"own": ["b"], "other": ["a"]}


@pytest.mark.parametrize("kind", OPEN)
def test_a_forgotten_field_leaves(kind: str) -> None:
    """A field of which decay has left nothing is as new as before, as in a file."""
    model, value, other = open_model(kind, decay=HalfLife(seconds=1.0))
    model.learn_one({"a": value}, "ham", time_s=0.0)
    model.learn_one({"b": value}, "ham", time_s=5_000.0)
    twin = NaiveBayes.from_bytes(model.to_bytes())
    assert fields_of(model) == fields_of(twin) == {"own": ["b"], "other": []}
    model.learn_one({"a": other}, "ham", time_s=5_000.0)
    assert fields_of(model) == {"own": ["b"], "other": ["a"]}


@pytest.mark.parametrize("kind", OPEN)
def test_fields_that_left_do_not_count_towards_the_bound(kind: str) -> None:
    """However many fields come and leave, an open group holds as many as it may."""
    model, value, _ = open_model(kind)
    for begin in range(3):
        columns = {f"{begin}-{i}": [value] for i in range(FIELDS_MAX // 2)}
        model.learn_many(columns, ["ham"])
        model.unlearn_many(columns, ["ham"])
    assert fields_of(model) == {"own": [], "other": []}
