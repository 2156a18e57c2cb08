"""Both ways of decoding say the same of a message, whatever its bytes are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.message import EmoticonLabels, FieldLabels, MessageSettings
from consumers.config.model import FieldKind
from consumers.decode.decoder import Decoder
from consumers.decode.labels import EmoticonLabeller, FieldLabeller, Labeller
from consumers.messages import WEIGHT, Messages, Reason, Reject
from streamnb import TextColumn
from tests.broken_json import broken_json
from tests.consumers.raw_batches import CLASSES, raw, strings

PATHS = MessageSettings(
    id="commit.rkey",
    user="user.name",
    lang="commit.langs",
    text="commit.text",
    operation="commit.operation",
    fields=("user", "user.age", "user.age.x", "other"),
)
MAPPING = {"4": "positive", "true": "positive", "-1": "negative", "2": "neutral", "é": "negative"}
SHAPED = {
    "id": {"first_of": ["commit.rkey", "id"]},
    "deleted": "gone.id",
    "lang": "commit.langs",
    "text": {"first_of": ["commit.text", "text"]},
    "operations": {"create": "create", "update": "update", "delete": "delete", "upsert": "update"},
    "markup": "entities",
    "nfc": True,
    "retweet": "commit",
    "reply": "note",
}
Reads = dict[str, FieldKind]


def shaped(**given: Any) -> MessageSettings:
    """Return settings that use what presets are made of."""
    return MessageSettings.model_validate(SHAPED | given)


DECODERS: dict[str, tuple[MessageSettings, Labeller, Reads]] = {
    "plain": (
        MessageSettings(fields=("other", "name")),
        FieldLabeller(FieldLabels(), CLASSES),
        dict.fromkeys(("text", "user", "lang", "other"), "words"),
    ),
    "emoticons": (
        MessageSettings(),
        EmoticonLabeller(EmoticonLabels(), CLASSES),
        {"text": "words"},
    ),
    "paths": (
        PATHS,
        FieldLabeller(FieldLabels(mapping=MAPPING), CLASSES),
        dict.fromkeys(("text", "lang", "other", "user.age"), "words"),
    ),
    "an id of several parts": (
        PATHS.model_copy(update={"id": ("id", "commit.rkey", "other")}),
        FieldLabeller(FieldLabels(), CLASSES),
        {"text": "words"},
    ),
    "conditions": (
        shaped(
            keep={"lang": ["en"], "other": ["4", "hi", "true"], "label": "any"},
            ignore={"user.name": ["hi"], "flag": ["true", "1"]},
            replies="drop",
            retweets="drop",
            sample=0.9,
        ),
        EmoticonLabeller(EmoticonLabels(), CLASSES),
        dict.fromkeys(("text", "lang", "user"), "words"),
    ),
    "retweets folded": (
        shaped(retweets="fold", text="text", id="id", operation="note", markup="html"),
        FieldLabeller(FieldLabels(), CLASSES),
        {"text": "words", "lang": "words"},
    ),
    "whole and in part": (
        MessageSettings(user="user.name", fields=("user", "user.age")),
        FieldLabeller(FieldLabels(field="user.age"), CLASSES),
        dict.fromkeys(("text", "user"), "words"),
    ),
    "fields": (
        MessageSettings(fields=("amount",)),
        FieldLabeller(FieldLabels(), CLASSES),
        {
            "amount": "numbers",
            "user.age": "numbers",
            "flag": "flags",
            "other": "categories",
            "commit.text": "categories",
            "lang": "categories",
            "note": "words",
        },
    ),
    "fields beside a text": (
        MessageSettings(user="user.name"),
        EmoticonLabeller(EmoticonLabels(), CLASSES),
        {"text": "words", "user": "categories", "amount": "numbers", "flag": "flags"},
    ),
    "a weight": (
        MessageSettings(weight="amount"),
        FieldLabeller(FieldLabels(), CLASSES),
        {"text": "words", WEIGHT: "numbers"},
    ),
}

words = st.sampled_from(
    [
        "",
        "hi",
        "RT @hi",
        "a &lt;3 <b>",
        "e\u0301",
        "héllo :)",
        "😀 :(",
        'a"b\\',
        "x\ny",
        "4",
        "delete",
        "a\0",
        "\x7f",
    ]
)
labels = st.sampled_from(["retweeted", 0, 4, 2, -1, "4", "positive", "é", True, None, 4.0, 7, [4]])
anything = st.recursive(
    words | labels | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "age", "x", "text", "type"]), inner, max_size=3)
    ),
    max_leaves=4,
)
numbers = (
    st.integers(-(10**23), 10**23)
    | st.floats()
    | st.decimals(-1000, 1000, allow_nan=False, places=3).map(float)
)
operations = st.sampled_from([None, "create", "update", "delete", "upsert", 1])


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw what is usual, and now and then anything."""
    return st.one_of(usual, usual, usual, anything)


messages = st.fixed_dictionaries(
    {"text": mostly(words)},
    optional={
        "amount": mostly(numbers),
        "flag": mostly(st.booleans() | st.sampled_from([0, 1, 1.0, None, 2, "true"])),
        "note": mostly(words),
        "gone": mostly(st.fixed_dictionaries({}, optional={"id": words | st.none()})),
        "id": mostly(st.integers() | words),
        "created_at": mostly(st.just("2009-04-06T22:19:45Z")),
        "lang": mostly(st.sampled_from(["en", "en-US", "de", ["de", "EN"]])),
        "label": mostly(labels),
        "operation": mostly(operations),
        "other": anything,
        "user": mostly(words | st.fixed_dictionaries({"name": words, "age": anything})),
        "commit": mostly(
            st.fixed_dictionaries(
                {"text": words, "langs": anything},
                optional={"operation": mostly(operations), "rkey": mostly(words)},
            )
        ),
    },
)


def both(name: str, values: Sequence[bytes | None]) -> tuple[Messages, Messages]:
    """Decode values by scan and one by one, and the other way one by one alone."""
    settings, labeller, reads = DECODERS[name]
    scanning, plain = (Decoder(settings, labeller, reads=reads) for _ in range(2))
    plain._scanner = None
    return scanning.decode(raw(values)), plain.decode(raw(values))


def shown(found: Messages) -> dict[str, Any]:
    """Return all that decoded messages say."""
    columns = {
        name: strings(column) if isinstance(column, TextColumn) else column.tobytes()
        for name, column in found.fields.items()
    }
    rejects: list[Reject] = found.rejects
    return {
        "envelopes": [repr(found.envelope(i)) for i in range(len(found))],
        "at": found.at.tolist(),
        "rejects": rejects,
        "ignored": found.ignored,
        "n_ambiguous": found.n_ambiguous,
        "labels": found.labels.tolist(),
        "operations": found.operations.tolist(),
        **columns,
    }


@pytest.mark.parametrize("name", DECODERS)
@given(values=st.lists(broken_json(messages), max_size=6))
def test_both_ways_say_the_same(name: str, values: list[bytes]) -> None:
    """Rows, rejects and their sentences do not depend on whether the scan was sure."""
    scanned, plain = both(name, values)
    assert shown(scanned) == shown(plain)
    n_ignored = sum(scanned.ignored.values())
    assert len(scanned) + len(scanned.rejects) + n_ignored == len(values)
    assert Reason.DECODER_FAILED not in {found.reason for found in plain.rejects}


@pytest.mark.parametrize("name", DECODERS)
@given(values=st.lists(st.none() | st.binary(max_size=50), max_size=5))
def test_both_ways_say_the_same_of_any_bytes(name: str, values: list[bytes | None]) -> None:
    """The same holds of bytes that mean nothing, and of values that are not there."""
    scanned, plain = both(name, values)
    assert shown(scanned) == shown(plain)


def test_plain_messages_are_decoded_by_the_scan() -> None:
    """A message of the usual kind is not looked at again; an unusual one beside it is."""
    usual: dict[str, Any] = {
        "id": 1, "created_at": "2009-04-06T22:19:45Z", "user": "mia", "lang": "en",
        "text": "one \\ \u20ac", "label": 4, "other": [{"a": 1.5, "b": None}],
    }  # fmt: skip
    values = [
        usual,
        usual | {"label": "negative", "operation": "update", "id": "x"},
        usual | {"label": None, "user": 5, "id": None},
        {"operation": "delete", "id": 9},
        usual | {"label": 4.0},
        usual | {"lang": ["en"]},
    ]
    settings, labeller, reads = DECODERS["plain"]
    batch = raw([json.dumps(value).encode() for value in values])
    again = Decoder(settings, labeller, reads=reads)._scanned(batch, {}).undecided
    assert again.tolist() == [False, False, False, False, True, True]
