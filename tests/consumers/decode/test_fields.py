"""Declared fields: what each kind takes, how it becomes a column, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.message import EmoticonLabels, FieldLabels, MessageSettings
from consumers.config.model import FieldKind
from consumers.decode.decoder import Decoder
from consumers.decode.labels import EmoticonLabeller, FieldLabeller
from consumers.decode.rows import RecordFormat
from consumers.messages import WEIGHT, Messages, Reason
from tests.consumers.raw_batches import CLASSES, raw, strings

CSV = RecordFormat("csv", ("label", "x"))


def decoded(kind: FieldKind, values: Sequence[Any], *, scanning: bool = True) -> Messages:
    """Decode messages with these values of the field x; `...` is one without the field."""
    decoder = Decoder(MessageSettings(), FieldLabeller(FieldLabels(), CLASSES), reads={"x": kind})
    if not scanning:
        decoder._scanner = None
    return decoder.decode(
        raw([json.dumps({} if value is ... else {"x": value}).encode() for value in values])
    )


def from_csv(kind: FieldKind, *cells: str) -> Messages:
    """Decode CSV records with these cells of the column x."""
    labeller = FieldLabeller(FieldLabels(), CLASSES)
    decoder = Decoder(MessageSettings(), labeller, CSV, reads={"x": kind})
    return decoder.decode(raw([f'4,"{cell}"'.encode() for cell in cells]))


def floats(found: Messages) -> list[float | None]:
    """Return the numbers or flags of the field x; None is one that is missing."""
    column = found.fields["x"]
    assert isinstance(column, np.ndarray)
    assert column.dtype == np.float64
    return [None if math.isnan(value) else value for value in column.tolist()]


@pytest.mark.parametrize("scanning", [True, False])
def test_numbers_are_floats(scanning: bool) -> None:
    """Integers and fractions of any size are the nearest floats; absent and null are missing."""
    values = [1, -2.5, 0.1, 10**18 + 1, 10**30, 1e60, 0.1234567890123456789, ..., None]
    found = floats(decoded("numbers", values, scanning=scanning))
    assert found == [1.0, -2.5, 0.1, 1e18, 1e30, 1e60, 0.1234567890123456789, None, None]


@pytest.mark.parametrize("scanning", [True, False])
def test_a_weight_is_a_multiple_of_its_least(scanning: bool) -> None:
    """What lies between the bounds is rounded; absent and null are missing; the rest rejected."""
    kept = {
        1: 1.0,
        2.5: 2.5,
        0.1: 102 / 1024,
        1e6: 1e6,
        1 / 1024: 1 / 1024,
        999.9994: 1023999 / 1024,
    }
    refused = [0, -1, 1_000_001, 0.0009, 10**30, "3", True, [1], {"a": 1}]
    values = [*kept, ..., None, *refused]
    message = MessageSettings(weight="x")
    labeller = FieldLabeller(FieldLabels(), CLASSES)
    decoder = Decoder(message, labeller, reads={WEIGHT: "numbers"})
    if not scanning:
        decoder._scanner = None
    lines = [json.dumps({} if value is ... else {"x": value}).encode() for value in values]
    found = decoder.decode(raw(lines))
    weights = found.fields[WEIGHT]
    assert isinstance(weights, np.ndarray)
    own = [None if math.isnan(weight) else weight for weight in weights.tolist()]
    assert own == [*kept.values(), None, None]
    assert [each.offset for each in found.rejects] == [
        100 + i for i in range(len(own), len(values))
    ]
    assert {each.reason for each in found.rejects} == {Reason.WRONG_TYPE}
    assert all(
        "a number between 1/1024 and 1,000,000" in each.detail and "message.weight" in each.detail
        for each in found.rejects
    )


@pytest.mark.parametrize("scanning", [True, False])
def test_flags_are_zero_and_one(scanning: bool) -> None:
    """True and 1 are 1, false and 0 are 0; absent and null are missing."""
    found = floats(decoded("flags", [True, False, 1, 0, 1.0, ..., None], scanning=scanning))
    assert found == [1.0, 0.0, 1.0, 0.0, 1.0, None, None]


@pytest.mark.parametrize("scanning", [True, False])
def test_a_category_is_its_json_text(scanning: bool) -> None:
    """3, 3.0 and "3" are one category, so are true and "true"; an empty text is one of its own."""
    values = ["hi", 'é"\n', 3, 3.0, "3", True, "true", False, -2.5, 1e22, -0.0, "", ..., None]
    found = decoded("categories", values, scanning=scanning).fields["x"]
    assert strings(found) == [
        "hi", 'é"\n', "3", "3", "3", "true", "true", "false", "-2.5", "1" + "0" * 22, "0", "",
        None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        ("numbers", "12", "a number between -1e+60 and 1e+60 is needed"),
        ("numbers", True, "a number between -1e+60 and 1e+60 is needed"),
        ("numbers", [1], "a number between -1e+60 and 1e+60 is needed"),
        ("numbers", -2e60, "a number between -1e+60 and 1e+60 is needed"),
        ("numbers", 10**350, "a number between -1e+60 and 1e+60 is needed"),
        ("flags", 2, "true, false, 1 or 0 is needed"),
        ("flags", 0.5, "true, false, 1 or 0 is needed"),
        ("flags", "true", "true, false, 1 or 0 is needed"),
        ("flags", {}, "true, false, 1 or 0 is needed"),
        ("categories", {"a": 1}, "a string, number, true or false is needed"),
        ("categories", ["a"], "a string, number, true or false is needed"),
    ],
)
def test_a_value_of_another_kind_rejects_the_message(
    kind: FieldKind, value: Any, wanted: str
) -> None:
    """The reject names the field, what was found and what is allowed; its neighbours go on."""
    good = {"numbers": 1, "flags": True, "categories": "a"}[kind]
    done = decoded(kind, [good, value, good])
    (found,) = done.rejects
    assert len(done) == 2
    assert found.reason is Reason.WRONG_TYPE
    shown = repr(value).lower() if isinstance(value, bool) else repr(value)
    assert f"the value at 'x' is {shown}"[:50] in found.detail
    assert wanted in found.detail


@pytest.mark.parametrize("literal", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_what_is_no_finite_number_is_rejected(literal: bytes) -> None:
    """Neither what JSON does not know nor what no float holds is learned."""
    decoder = Decoder(
        MessageSettings(), FieldLabeller(FieldLabels(), CLASSES), reads={"x": "numbers"}
    )
    done = decoder.decode(raw([b'{"x":' + literal + b"}"]))
    assert len(done.rejects) == 1


@pytest.mark.parametrize("literal", ["1e999", "-2.5e400", "9" * 5000])
def test_a_number_beyond_all_floats_is_named(literal: str) -> None:
    """The reject says where it stands and which it is; another one is not taken for it."""
    decoder = Decoder(
        MessageSettings(), FieldLabeller(FieldLabels(), CLASSES), reads={"a.x": "categories"}
    )
    text = f'{{"b":1e400,"id":1,"user":1.5,"a":{{"x":{literal}}}}}'
    (found,) = decoder.decode(raw([text.encode()])).rejects
    shown = literal if "e" in literal else "an integer of thousands of digits"
    assert found.reason is Reason.WRONG_TYPE
    assert f"the number at 'a.x' is {shown}; it must be between -1.8e+308 and 1.8e+308" in (
        found.detail
    )


def test_a_category_with_a_nul_is_rejected() -> None:
    """As a text with a NUL is."""
    assert decoded("categories", ["a\0"]).rejects[0].reason is Reason.NULL_BYTES


def test_a_model_of_fields_needs_no_text() -> None:
    """Where neither model nor labels read the text, it may be absent or anything at all."""
    values = [b'{"x":1}', b'{"x":2,"text":5}', b'{"x":3,"text":"a\\u0000"}', b'{"x":4,"text":"hi"}']
    labeller = FieldLabeller(FieldLabels(), CLASSES)
    done = Decoder(MessageSettings(), labeller, reads={"x": "numbers"}).decode(raw(values))
    assert floats(done) == [1.0, 2.0, 3.0, 4.0]
    assert done.shown_texts(np.arange(4)) == [None] * 4


def test_labels_by_emoticons_need_the_text() -> None:
    """The model may read no text; where labels are read off it, it must be there."""
    labeller = EmoticonLabeller(EmoticonLabels(), CLASSES)
    decoder = Decoder(MessageSettings(), labeller, reads={"x": "numbers"})
    done = decoder.decode(raw([b'{"x":1,"text":"so good :)"}', b'{"x":1}']))
    assert done.label(0) == "positive"
    assert done.rejects[0].reason is Reason.MISSING_TEXT


def test_of_a_deletion_nothing_is_looked_at() -> None:
    """A deletion with broken fields is a deletion, and its fields are missing."""
    values = [
        b'{"operation":"delete","x":"many"}',
        b'{"operation":"delete","x":7}',
        b'{"operation":"del\\u0065te","x":7}',
    ]
    labeller = FieldLabeller(FieldLabels(), CLASSES)
    done = Decoder(MessageSettings(), labeller, reads={"x": "numbers"}).decode(raw(values))
    assert done.rejects == []
    assert floats(done) == [None, None, None]


def test_plain_fields_are_decoded_by_the_scan() -> None:
    """Usual numbers, flags and categories are not looked at again; unusual ones are."""
    reads: dict[str, FieldKind] = {"n": "numbers", "f": "flags", "c": "categories"}
    usual: dict[str, Any] = {"n": 1234.5678, "f": True, "c": "high", "label": 4}
    values = [
        usual,
        usual | {"n": 0.1 + 0.2, "f": 0, "c": 'a "word"'},
        usual | {"n": None, "f": None, "c": None},
        usual | {"c": 17},
        usual | {"c": 17.5},
        usual | {"n": 1e30},
        usual | {"f": 1.0},
    ]
    decoder = Decoder(MessageSettings(), FieldLabeller(FieldLabels(), CLASSES), reads=reads)
    again = decoder._scanned(raw([json.dumps(value).encode() for value in values]), {}).undecided
    assert again.tolist() == [False] * 4 + [True] * 3


def test_user_and_language_can_be_categories() -> None:
    """They describe a message: a number is its digits, of a list the first counts, else missing."""
    labeller = FieldLabeller(FieldLabels(), CLASSES)
    decoder = Decoder(MessageSettings(), labeller, reads={"lang": "categories"})
    values = [b'{"lang":"en"}', b'{"lang":["de","en"]}', b'{"lang":7}', b'{"lang":{}}', b"{}"]
    done = decoder.decode(raw(values))
    assert done.rejects == []
    assert strings(done.fields["lang"]) == ["en", "de", "7", None, None]


def test_cells_of_csv_are_read_as_what_is_declared() -> None:
    """Numbers, flags and categories are parsed from a cell's text; an empty one is missing."""
    assert floats(from_csv("numbers", "1", " -2.5e3 ", "", "+.5", "1.")) == [
        1.0, -2500.0, None, 0.5, 1.0,
    ]  # fmt: skip
    flags = from_csv("flags", "true", "False", "1", "0", "", "1.0", "0.0")
    assert floats(flags) == [1.0, 0.0, 1.0, 0.0, None, 1.0, 0.0]
    assert strings(from_csv("categories", "high", "3.0", "").fields["x"]) == ["high", "3.0", None]


@pytest.mark.parametrize(
    ("kind", "cell"),
    [
        ("numbers", "many"), ("numbers", "nan"), ("numbers", "inf"), ("numbers", "1_000"),
        ("numbers", "1e999"), ("numbers", "1e61"), ("numbers", "１"),
        ("flags", "2"), ("flags", "maybe"),
    ],
)  # fmt: skip
def test_a_wrong_cell_rejects_its_record(kind: FieldKind, cell: str) -> None:
    """As a value of the wrong kind does in JSON."""
    (found,) = from_csv(kind, cell).rejects
    assert found.reason is Reason.WRONG_TYPE
    assert repr(cell) in found.detail


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_any_number_is_the_float_that_python_reads(value: float) -> None:
    """Whichever way a number takes, it is the nearest float, or a reject where it is too large."""
    done = decoded("numbers", [value])
    if abs(value) > 1e60:
        assert len(done.rejects) == 1
        return
    column = done.fields["x"]
    assert isinstance(column, np.ndarray)
    assert column.view(np.uint64).tolist() == np.array([float(value)]).view(np.uint64).tolist()


def test_classes_that_are_numbers_are_labels_of_their_own() -> None:
    """A class's own name is a label before any mapping: 4 means class 4, not a tweet's positive."""
    classes = tuple("1234567")
    labeller = FieldLabeller(FieldLabels(), classes)
    values = [b'{"label":4}', b'{"label":"2"}', b'{"label":7.0}', b'{"label":0}', b"{}"]
    done = Decoder(MessageSettings(), labeller, reads={"x": "numbers"}).decode(raw(values))
    assert [done.label(i) for i in range(len(done))] == ["4", "2", "7", None]
    assert [each.reason for each in done.rejects] == [Reason.UNKNOWN_LABEL]
