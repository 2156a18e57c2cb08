"""Labels: what a field's value means, and what emoticons give away."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from consumers.config.message import EmoticonLabels, FieldLabels
from consumers.decode.labels import EmoticonLabeller, FieldLabeller
from consumers.errors import ConfigError
from consumers.messages import CLASSES_MAX, KnownClasses, Reason

CLASSES = ("negative", "positive")
SIGNS = [sign for signs in EmoticonLabels().signs.values() for sign in signs]


def label_of(value: Any, settings: FieldLabels | None = None) -> tuple[str | None, Reason | None]:
    """Label one value; return its label and the reason of its fault."""
    done = FieldLabeller(settings or FieldLabels(), CLASSES).label([value], ["text"])
    fault = done.errors.get(0)
    return done.labels[0], fault and fault.reason


def read(text: str) -> tuple[str | None, str]:
    """Return the label and the rest of one text."""
    done = EmoticonLabeller(EmoticonLabels(), CLASSES).label([None], [text])
    return done.labels[0], done.texts[0]


@pytest.mark.parametrize("value", [4, "4", 4.0, "positive"], ids=repr)
def test_every_form_of_a_label_means_the_same(value: Any) -> None:
    """A number, its text, the same as a float and the class's own name are one label."""
    assert label_of(value) == ("positive", None)


def test_zero_is_a_label_and_null_is_none() -> None:
    """0 is the negative class, while null and an absent field say that there is no label."""
    assert label_of(0) == ("negative", None)
    assert label_of(None) == (None, None)


@pytest.mark.parametrize(
    "value", [3, "", "4.0", 4.5, 10**25, 1e300, True, False, "Positive"], ids=repr
)
def test_a_value_outside_the_mapping_is_unknown(value: Any) -> None:
    """A value that no key of the mapping stands for is an unknown label; true is not 1."""
    assert label_of(value, FieldLabels(mapping={"0": "negative", "1": "positive"})) == (
        None,
        Reason.UNKNOWN_LABEL,
    )


def test_an_unknown_label_becomes_a_class_where_classes_may_join() -> None:
    """By the text it has in JSON, or the class that the mapping makes of it; the model's stay."""
    known = KnownClasses(CLASSES, open=True)
    labeller = FieldLabeller(FieldLabels(), known)
    labels = ["sport", 2, 7, 7.0, True, "sport", 4, None]
    found = labeller.label(labels, [""] * len(labels))
    assert found.labels == ["sport", "neutral", "7", "7", "true", "sport", "positive", None]
    assert found.errors == {}
    assert labeller.classes == (*CLASSES, "sport", "neutral", "7", "true")
    assert labeller.known["sport"] == "sport"
    assert tuple(known) == CLASSES  # they join once the model has learned one


def test_classes_keep_their_places() -> None:
    """Only further ones may follow; other names in the same places are refused."""
    known = KnownClasses(CLASSES, open=True)
    for names in ((*CLASSES, "sport"), CLASSES, (*CLASSES, "sport", "weather")):
        known.grow(names)
    assert list(known) == [*CLASSES, "sport", "weather"]
    for others in ([*CLASSES, "weather"], ["positive"]):
        with pytest.raises(ValueError, match="do not go on"):
            known.grow(others)


def test_no_more_classes_join_than_fit() -> None:
    """Nor any whose name could not be shown; the others are rejected as unknown."""
    labeller = FieldLabeller(FieldLabels(), KnownClasses(CLASSES, open=True))
    unfit = ["", "x" * 201, "a\nb"]
    found = labeller.label(unfit, [""] * len(unfit))
    assert {error.reason for error in found.errors.values()} == {Reason.UNKNOWN_LABEL}
    assert len(found.errors) == len(unfit)
    found = labeller.label(list(range(10, 10 + CLASSES_MAX)), [""] * CLASSES_MAX)
    assert len(labeller.classes) == CLASSES_MAX
    assert sorted(found.errors) == [CLASSES_MAX - 2, CLASSES_MAX - 1]


def test_an_unknown_label_names_only_a_few_classes() -> None:
    """A reject of a small message stays small, however many classes and keys there are."""
    names = tuple(f"{i:03}{'x' * 190}" for i in range(CLASSES_MAX))
    settings = FieldLabels(mapping=dict.fromkeys((f"{'k' * 300}{i}" for i in range(200)), "gone"))
    for value in ("new", "k" * 300 + "7"):
        detail = FieldLabeller(settings, names).label([value], [""]).errors[0].detail
        assert len(detail) <= 500
        assert "and 95 more" in detail


def test_booleans_are_mapped_by_their_json_text() -> None:
    """True and false are labels where the mapping has their JSON texts."""
    settings = FieldLabels(mapping={"true": "positive", "false": "negative"})
    assert label_of(True, settings) == ("positive", None)
    assert label_of(False, settings) == ("negative", None)
    assert label_of(1, settings) == (None, Reason.UNKNOWN_LABEL)


@pytest.mark.parametrize("value", [[4], {"label": 4}, []], ids=repr)
def test_a_structure_is_no_label(value: Any) -> None:
    """A list or an object in the label's place is of the wrong type."""
    assert label_of(value) == (None, Reason.WRONG_TYPE)


def test_a_mapped_class_that_the_model_lacks_names_the_settings() -> None:
    """A label whose class the model lacks is a fault that says what to change."""
    settings = FieldLabels(mapping={"2": "neutral", "4": "positive"})
    done = FieldLabeller(settings, CLASSES).label([2, 4], ["a", "b"])
    assert done.labels[1] == "positive"
    assert done.errors[0].reason is Reason.UNKNOWN_LABEL
    for word in ("neutral", "labels.mapping", "model.classes"):
        assert word in done.errors[0].detail


def test_a_third_class_is_a_class_like_the_others() -> None:
    """With a neutral class in the model, polarity 2 can be mapped to it."""
    settings = FieldLabels(mapping={"2": "neutral"})
    done = FieldLabeller(settings, ("negative", "neutral", "positive")).label([2.0], [""])
    assert done.labels == ["neutral"]


@pytest.mark.parametrize(
    ("text", "label", "rest"),
    [
        ("what a day :)", "positive", "what a day"),
        ("what :( a day", "negative", "what a day"),
        ("nice:-) one", "positive", "nice one"),
        ("yes : ) yes", "positive", "yes yes"),
        ("great :)))) :D", "positive", "great"),
        ("why :'(", "negative", "why"),
        (":(\nnext line", "negative", "next line"),
        ("mixed :) and :(", None, "mixed and"),
        ("nothing to see", None, "nothing to see"),
        ("  blanks stay  ", None, "  blanks stay  "),
    ],
)
def test_emoticons_give_the_label_and_leave(text: str, label: str | None, rest: str) -> None:
    """A sign is a label and is taken out of the text; a text without a sign is left as it is."""
    assert read(text) == (label, rest)


@pytest.mark.parametrize(
    "text",
    ["http://x.org/a:)", "see www.x.org/:( now", "ratio x=Dog", "from:Dublin", "a:DE b", "10:30)"],
)
def test_emoticons_are_no_parts_of_words_or_links(text: str) -> None:
    """What looks like a sign inside a link or at the head of a word is none."""
    assert read(text) == (None, text)


def test_signs_that_begin_like_words_stand_alone() -> None:
    """A sign that begins with a letter or a digit is none at the end of a word or a number."""
    labeller = EmoticonLabeller(EmoticonLabels(signs={"positive": ("8)", "XD", ":/")}), CLASSES)
    done = labeller.label([None] * 5, ["at (18)", "cool 8)", "lmaXD", "ha XD ha", "http://x.org"])
    assert done.labels == [None, "positive", None, "positive", None]
    assert done.texts == ["at (18)", "cool", "lmaXD", "ha ha", "http://x.org"]


EMOJI = {"positive": ("😀", "❤️", "👍", "🇩🇪", "🏳️‍🌈"), "negative": ("😡", "👎🏿", "💔")}


@pytest.mark.parametrize(
    ("text", "label", "rest"),
    [
        ("what a day 😀", "positive", "what a day"),
        ("😀😀😀", "positive", ""),
        ("love😀you", "positive", "love you"),
        ("yes \u2764", "positive", "yes"),
        ("yes \u2764\ufe0f!", "positive", "yes !"),
        ("yes \u2764\ufe0e now", "positive", "yes now"),
        ("good 👍🏽 job", "positive", "good job"),
        ("good 👍🏽👍", "positive", "good"),
        ("bad 👎🏿", "negative", "bad"),
        ("bad 👎🏻", None, "bad 👎🏻"),
        ("on fire \u2764\ufe0f\u200d🔥", None, "on fire \u2764\ufe0f\u200d🔥"),
        ("two 👩\u200d\u2764\ufe0f\u200d👨", None, "two 👩\u200d\u2764\ufe0f\u200d👨"),
        ("proud 🏳️‍🌈", "positive", "proud"),
        ("proud 🏳‍🌈 and so", "positive", "proud and so"),
        ("flag 🇩🇪!", "positive", "flag !"),
        ("😀 or 😡", None, "or"),
    ],
)
def test_emoji_give_the_label_and_leave(text: str, label: str | None, rest: str) -> None:
    """In any skin and with any selector, but not as a part of another emoji."""
    labeller = EmoticonLabeller(EmoticonLabels(signs=EMOJI), CLASSES)
    done = labeller.label([None], [text])
    assert (done.labels, done.texts) == ([label], [rest])


def test_an_emoji_cannot_stand_for_two_classes() -> None:
    """With and without a selector it is the same one."""
    with pytest.raises(ValidationError, match="must be distinct"):
        EmoticonLabels(signs={"positive": ("\u2764\ufe0f",), "negative": ("\u2764",)})
    with pytest.raises(ValidationError, match="empty sign"):
        EmoticonLabels(signs={"positive": ("\ufe0f",), "negative": (":(",)})


def test_both_kinds_of_sign_are_counted_and_not_learned() -> None:
    """A text with signs of two classes has no label and is counted as ambiguous."""
    done = EmoticonLabeller(EmoticonLabels(), CLASSES).label([None] * 3, [":) :(", ":)", "no"])
    assert done.labels == [None, "positive", None]
    assert done.n_ambiguous == 1


@given(st.lists(st.sampled_from([*SIGNS, "day", "8", "http://x.org", "é", "  "]), max_size=8))
def test_no_whole_sign_is_left(parts: list[str]) -> None:
    """Whatever stands around them, signs set off by blanks are gone from the text."""
    _, rest = read(" | ".join(parts))
    assert not set(SIGNS) & set(rest.split(" | "))


@given(st.text(max_size=200))
def test_any_text_can_be_labelled(text: str) -> None:
    """No text breaks the labeller, and one without a sign comes back as it was."""
    label, rest = read(text)
    assert label in (None, *CLASSES)
    assert rest == text or any(sign in text for sign in SIGNS)


@pytest.mark.parametrize(
    "text",
    [" " * 200_000, "a" * 200_000, ":" * 200_000, ":)" * 100_000, "://" * 70_000],
    ids=["blanks", "letters", "colons", "smiles", "links"],
)
def test_long_texts_take_one_pass(text: str) -> None:
    """A text made to keep a regular expression busy is done with at once."""
    assert read(text)[0] in {None, "positive"}


def test_signs_of_a_class_that_the_model_lacks_are_named() -> None:
    """Signs that could never be learned from are refused by their place in the configuration."""
    with pytest.raises(ConfigError, match=r"labels\.signs\.joyful.*model\.classes"):
        EmoticonLabeller(EmoticonLabels(signs={"joyful": (":)",)}), CLASSES)
