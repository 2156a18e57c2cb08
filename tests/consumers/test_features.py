"""From settings to a model, and from messages to the columns that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.features import build_model, columns_of, extra_fields
from consumers.messages import Messages
from consumers.settings.model import ModelSettings, WordsSettings
from streamnb import Bernoulli, Beta, Dirichlet, Multinomial, Words
from tests.consumers import decoding
from tests.consumers.decoding import strings

NAMES = ("text", "user", "lang", "place", "n")


def messages() -> Messages:
    """Return three decoded messages."""
    return decoding.messages(
        [
            {"text": "one", "user": "ann", "lang": "en", "place": "here", "n": 3},
            {"text": "two", "user": None, "lang": "de", "label": 4},
            {"text": "three", "user": "cleo", "place": ["a"], "n": None},
        ],
        fields=NAMES,
    )


def columns(rows: list[int], names: Sequence[str]) -> dict[str, list[str | None]]:
    """Return columns of the three messages as strings."""
    found = columns_of(messages(), np.array(rows, np.int64), names)
    return {name: strings(column) for name, column in found.items()}


def test_a_column_is_what_the_messages_say() -> None:
    """Text, user and lang come from their columns, other names from a message's other fields."""
    assert columns([0, 1, 2], ["text", "user", "lang", "place"]) == {
        "text": ["one", "two", "three"],
        "user": ["ann", None, "cleo"],
        "lang": ["en", "de", None],
        "place": ["here", None, None],
    }


def test_what_is_no_text_is_missing() -> None:
    """A number, a list or null in a field says nothing, and an unknown field neither."""
    assert columns([0, 2], ["n", "place", "other"]) == {
        "n": [None, None],
        "place": ["here", None],
        "other": [None, None],
    }


@given(rows=st.lists(st.integers(0, 2), unique=True).map(sorted))
def test_a_column_has_the_chosen_rows(rows: list[int]) -> None:
    """Each column is as long as the rows that were asked for, and holds those."""
    found = columns(rows, ["text", "place"])
    assert found["text"] == [["one", "two", "three"][i] for i in rows]
    assert found["place"] == [["here", None, None][i] for i in rows]


def test_the_model_can_read_any_row() -> None:
    """What `columns_of` gives, the configured model takes, whatever stands in the fields."""
    settings = ModelSettings(features={name: WordsSettings() for name in ("text", "place", "n")})
    found = columns_of(messages(), np.arange(3), tuple(settings.features))
    model = build_model(settings)
    model.learn_many(found, ["positive", "negative", "positive"])
    assert model.words("place") == ["here"]
    assert model.words("n") == []


def test_the_model_is_what_the_settings_say() -> None:
    """Every setting of the model arrives in it, under the same name."""
    own: dict[str, Any] = {
        "ngrams": (2, 3), "negation": False, "counts": "presence", "max_words": 77,
        "case_fold": False, "fold_mentions": False, "fold_links": False, "squeeze": False,
        "emoticons": False,
    }  # fmt: skip
    settings = ModelSettings(
        classes=("a", "b", "c"),
        class_prior=0.25,
        features={
            "text": WordsSettings(likelihood="bernoulli", beta=(0.5, 2.0), alpha=9.0, **own),
            "user": WordsSettings(likelihood="multinomial", beta=(9.0, 9.0), alpha=0.125, **own),
        },
    )
    model = build_model(settings)
    assert model.classes == ("a", "b", "c")
    assert model._class_prior == Dirichlet(0.25)
    specs = {name: group.spec for name, group in model._groups.items()}
    assert specs == {
        "text": Words(Bernoulli(Beta(0.5, 2.0)), **own),
        "user": Words(Multinomial(Dirichlet(0.125)), **own),
    }


def test_every_setting_of_a_group_is_passed_on() -> None:
    """No key of a feature group is forgotten on the way to the library."""
    own = set(WordsSettings.model_fields) - {"kind", "likelihood", "beta", "alpha"}
    assert own == set(Words.__dataclass_fields__) - {"likelihood", "field"}


@pytest.mark.parametrize("likelihood", ["bernoulli", "multinomial"])
def test_default_settings_make_a_model(likelihood: str) -> None:
    """The defaults are a model that can learn at once."""
    group = WordsSettings.model_validate({"likelihood": likelihood})
    model = build_model(ModelSettings(features={"text": group}))
    model.learn_one({"text": "not good"}, "negative")
    assert model.predict_one({"text": "not good"}) == "negative"


def test_extra_fields_are_those_that_no_column_holds() -> None:
    """Only what a message does not carry as a column of its own must be kept for the model."""
    names = ("text", "user", "lang", "place", "topic")
    settings = ModelSettings(features={name: WordsSettings() for name in names})
    assert extra_fields(settings) == ("place", "topic")
    assert extra_fields(ModelSettings()) == ()
