"""Fields that come anew in single examples: an open group takes them up, whatever is missing."""

from __future__ import annotations

from typing import Any

import pytest

from streamnb import Bag, Categories, Flags, Multinomial, NaiveBayes, Numbers, Words
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
