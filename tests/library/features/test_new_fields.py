"""Fields that come anew in single examples: an open group takes them up, whatever is missing."""

from __future__ import annotations

from typing import Any

from streamnb import Bag, Categories, Multinomial, NaiveBayes, Numbers, Words
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
