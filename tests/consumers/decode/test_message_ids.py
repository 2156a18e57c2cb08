"""Ids of messages: of one field or of several, in every way of decoding, and never two the same."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from consumers.cli.replay import reading
from consumers.config.addresses import FileSettings
from consumers.config.message import FieldLabels, MessageSettings
from consumers.decode.decoder import Decoder
from consumers.decode.fields import id_of
from consumers.decode.labels import FieldLabeller
from consumers.decode.rows import RecordFormat
from consumers.messages import Messages, Reason, names_of
from consumers.sources.file import FileSource
from tests.consumers.raw_batches import CLASSES, raw

JETSTREAM_ID = ["did", "commit.collection", "commit.rkey"]
SEVERAL = MessageSettings.model_validate({"id": ["user", "kind", "n"]})
parts = st.text(alphabet="a/~01", max_size=4)


def decoded(
    values: Sequence[Any], settings: MessageSettings = SEVERAL, form: RecordFormat | None = None
) -> Messages:
    """Decode values, which stand for JSON unless they are bytes."""
    data = [value if isinstance(value, bytes) else msgspec.json.encode(value) for value in values]
    decoder = Decoder(settings, FieldLabeller(FieldLabels(), CLASSES), form)
    return decoder.decode(raw(data))


def ids(done: Messages) -> list[str]:
    """Return the ids of all messages that are right, by their metadata and by the ids alone."""
    rows = np.arange(len(done))
    found = [row.id for row in done.envelopes(rows)]
    assert names_of(done, rows) == found
    assert names_of(done, rows[1::2]) == found[1::2]
    return found


@given(st.lists(st.tuples(parts, parts, parts), max_size=20, unique=True))
def test_no_two_ids_of_several_parts_are_the_same(values: list[tuple[str, ...]]) -> None:
    """Separators and their escapes may stand in the parts, and empty parts beside each other."""
    assert len({id_of(value) for value in values}) == len(values)


def test_an_id_of_several_parts() -> None:
    """Texts and integers are joined, of a deletion too; so does a message that the scan leaves."""
    message: dict[str, Any] = {"text": "a", "user": "ann/b", "kind": "post~", "n": 7}
    done = decoded(
        [message, message | {"operation": "delete"}, message | {"label": 4.0}, message | {"n": ""}]
    )
    assert done.rejects == []
    assert ids(done) == ["ann~1b/post~0/7"] * 3 + ["ann~1b/post~0/"]


@pytest.mark.parametrize("operation", [None, "delete"])
@pytest.mark.parametrize("change", [{"n": None}, {"user": None}, {"user": None, "n": None}])
def test_an_id_without_a_part_is_none(operation: str | None, change: dict[str, Any]) -> None:
    """The message is known by its place in the stream, so a deletion takes nothing of another."""
    message = {"text": "a", "user": "ann", "kind": "post", "n": 7, "operation": operation} | change
    assert ids(decoded([message])) == ["t-0-100"]


@given(
    st.lists(st.text(alphabet="~t-01", max_size=8) | st.just("t-0-101"), max_size=9, unique=True)
)
def test_no_id_is_the_name_of_a_message_without_one(own: list[str]) -> None:
    """Otherwise who knows a topic could delete, or replace, messages that have no id."""
    messages = [{"text": "a", "id": name} for name in own] + [{"text": "b"}] * 3
    names = ids(decoded(messages, MessageSettings()))
    assert len(set(names)) == len(names)
    assert names[len(own) :] == [f"t-0-{100 + len(own) + i}" for i in range(3)]


def test_an_id_that_spells_a_name_is_marked() -> None:
    """In all partitions of the topic; every other id stays as it is, that of a deletion too."""
    own = ["t-1-5", "~t-0-7", "t-0-x", "u-0-5", "t-0", "1-2-3", "t-0-7/a"]
    messages: list[Any] = [{"text": "a", "id": name} for name in own]
    messages.append({"id": "t-0-100", "operation": "delete"})
    expected = ["~t-1-5", "~~t-0-7", *own[2:], "~t-0-100"]
    assert ids(decoded(messages, MessageSettings())) == expected


def test_a_tombstone_deletes_what_its_key_spells() -> None:
    """An id that spells a name is marked there too."""
    keyed = replace(raw([None]), buffer=b"t-0-100", key_ends=np.array([7]))
    decoder = Decoder(MessageSettings(), FieldLabeller(FieldLabels(), CLASSES))
    assert ids(decoder.decode(keyed)) == ["~t-0-100"]


@pytest.mark.parametrize("name", ["user", "kind", "n"])
def test_each_part_is_a_string_or_an_integer(name: str) -> None:
    """A part of another kind makes the message a reject, which names the part."""
    (found,) = decoded([{"text": "a", "user": "ann", "kind": "post", "n": 7} | {name: [1]}]).rejects
    assert found.reason is Reason.WRONG_TYPE
    assert f"the id at '{name}' is [1]" in found.detail
    assert "setting message.id" in found.detail


def test_an_id_of_several_cells() -> None:
    """Columns of CSV make an id as fields of JSON do; an empty cell is a missing part."""
    form = RecordFormat("csv", ("n", "text", "user", "kind"))
    done = decoded([b"7,hello,ann/b,post", b"8,hello,,post"], form=form)
    assert ids(done) == ["ann~1b/post/7", "t-0-101"]


def test_a_list_of_one_is_that_field() -> None:
    """Nothing is escaped in it, as in the field alone."""
    settings = MessageSettings.model_validate({"id": ["user"]})
    assert settings == MessageSettings(id="user")
    assert ids(decoded([{"text": "a", "user": "a/~b"}], settings)) == ["a/~b"]


def test_replayed_messages_are_keyed_by_the_same_ids() -> None:
    """So a deletion goes to the partition of what it deletes; without an id there is no key."""
    message: dict[str, Any] = {"text": "a", "user": "ann/b", "kind": "post", "n": 7}
    values = [message, message | {"operation": "delete"}, message | {"n": None}, {"n": 1.5}]
    batch = raw([msgspec.json.encode(value) for value in values])
    keys = [item.key for item in reading(RecordFormat(), SEVERAL)(batch)]
    assert keys == [b"ann~1b/post/7", b"ann~1b/post/7", None, None]


@pytest.mark.data
def test_ids_of_a_recorded_stream_name_one_record_each(data_folder: Path) -> None:
    """Of several parts an id is the record's address, that of a deletion too, in both recordings.

    The scan and the reader of single messages say the same of all of them.
    """
    settings = MessageSettings.model_validate(
        {"text": "commit.rkey", "operation": "commit.operation", "id": JETSTREAM_ID}
    )
    operations = []
    for name in ("jetstream_corpus_expected_v1.jsonl", "jetstream_golden_v1.jsonl"):
        path = data_folder / "streams" / name
        commits = [json.loads(line) for line in path.read_bytes().splitlines()]
        commits = [each for each in commits if each["kind"] == "commit"]
        expected = [
            "/".join((each["did"], each["commit"]["collection"], each["commit"]["rkey"]))
            for each in commits
        ]
        operations += [each["commit"]["operation"] for each in commits]
        source = FileSource(path, FileSettings())
        source.open(lambda _: None)
        labeller = FieldLabeller(FieldLabels(), CLASSES)
        scanning, plain = (Decoder(settings, labeller) for _ in range(2))
        plain._scanner = None
        found: list[list[str]] = [[], []]
        while not source.at_end():
            for batch in source.poll(0.0):
                for told, decoder in zip(found, (scanning, plain), strict=True):
                    told.extend(ids(decoder.decode(batch)))
        source.close()
        assert found == [expected, expected]
        assert len(set(expected)) == len(expected)
    assert "delete" in operations
