"""Decoding: each message ends in exactly one place, whatever its bytes are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.message import EmoticonLabels, FieldLabels, MessageSettings
from consumers.decode.decoder import Decoder
from consumers.decode.labels import EmoticonLabeller, FieldLabeller
from consumers.decode.rows import SENTIMENT140_COLUMNS, RecordFormat
from consumers.errors import ConfigError
from consumers.messages import (
    CLASSES_MAX,
    Envelope,
    KnownClasses,
    Messages,
    Operation,
    Reason,
    Reject,
)
from tests.consumers.raw_batches import CLASSES, SOURCE_TIME_MS, raw, strings

CSV = RecordFormat("csv", ("row", "polarity", "id", "date", "user", "text"))
JETSTREAM = MessageSettings(
    id="commit.rkey",
    time="time_us",
    user="did",
    lang="commit.record.langs",
    text="commit.record.text",
    operation="commit.operation",
    fields=("kind", "commit.record.reply.root.cid"),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)
FIELDS = ("id", "created_at", "user", "lang", "text", "operation", "label", "other")


def decoded(
    values: Sequence[bytes | None],
    settings: MessageSettings | None = None,
    form: RecordFormat | None = None,
) -> Messages:
    """Decode values with labels from the field `label`."""
    labeller = FieldLabeller(FieldLabels(), CLASSES)
    done = Decoder(settings or MessageSettings(), labeller, form).decode(raw(values))
    assert Reason.DECODER_FAILED not in {found.reason for found in done.rejects}
    return done


def row(value: dict[str, Any] | bytes, settings: MessageSettings | None = None) -> Envelope:
    """Decode one message that is right."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    done = decoded([data], settings)
    assert done.rejects == []
    return done.envelope(0)


def reject(
    value: bytes | None, settings: MessageSettings | None = None, form: RecordFormat | None = None
) -> Reject:
    """Decode one message that is wrong."""
    done = decoded([value], settings, form)
    assert len(done) == 0
    assert done.rejects[0].value == value
    assert done.rejects[0].key == b"\xff\x00"
    return done.rejects[0]


def test_a_whole_message() -> None:
    """Every part of a message arrives where it belongs."""
    message = {
        "id": 17, "created_at": "2009-04-06T22:19:45.120Z", "user": "mia", "lang": "en",
        "text": "héllo 😀", "label": 4, "operation": "update", "retweets": 3, "unknown": [1, 2],
    }  # fmt: skip
    assert row(message, MessageSettings(fields=("retweets", "absent"))) == Envelope(
        id="17", time_ms=1_239_056_385_120, user="mia", lang="en", text="héllo 😀",
        label="positive", operation=Operation.UPDATE, fields={"retweets": 3},
    )  # fmt: skip


def test_a_message_of_text_alone() -> None:
    """Where a message has only its text, its place names it and the source's clock dates it."""
    assert row(b'{"text":""}') == Envelope(
        id="t-0-100", time_ms=SOURCE_TIME_MS, user=None, lang=None, text="", label=None,
        operation=Operation.CREATE, fields={},
    )  # fmt: skip


def test_paths_reach_into_a_message() -> None:
    """Parts that lie deep in a message are found by their paths."""
    commit = {
        "operation": "create", "rkey": "3k",
        "record": {"text": "hi", "langs": ["en", "de"], "reply": {"root": {"cid": "b"}}},
    }  # fmt: skip
    message = {"did": "did:x", "time_us": 1_779_719_009_132_431, "kind": "commit", "commit": commit}
    assert row(message, JETSTREAM) == Envelope(
        id="3k", time_ms=1_779_719_009_132, user="did:x", lang="en", text="hi", label=None,
        operation=Operation.CREATE,
        fields={"kind": "commit", "commit.record.reply.root.cid": "b"},
    )  # fmt: skip


@pytest.mark.parametrize("value", [b'{"kind":"identity"}', b'{"commit":null}', b"{}"])
def test_a_missing_object_on_the_way_is_a_missing_text(value: bytes) -> None:
    """Where an object of the text's path is absent or null, the text is missing."""
    assert reject(value, JETSTREAM).reason is Reason.MISSING_TEXT


def test_a_field_can_be_wanted_whole_and_in_part() -> None:
    """One setting may name an object and another a field inside it."""
    settings = MessageSettings(user="user.name", fields=("user", "user.age", "user.name.x"))
    envelope = row({"text": "a", "user": {"name": "mia", "age": 7}}, settings)
    assert envelope.user == "mia"
    assert envelope.fields == {"user": {"name": "mia", "age": 7}, "user.age": 7}


def test_a_deletion_needs_no_text_and_no_label() -> None:
    """A message that deletes is taken without text, and its label is not read."""
    envelope = row(b'{"id":"9","operation":"delete","label":"nonsense"}')
    assert (envelope.operation, envelope.text, envelope.label) == (Operation.DELETE, "", None)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, Reason.TOMBSTONE),
        (b"", Reason.NOT_JSON),
        (b"{", Reason.NOT_JSON),
        (b'{"text":"a"} x', Reason.NOT_JSON),
        ('{"text":"\\ud8éé"}'.encode(), Reason.NOT_JSON),
        ('{"text":"\\ud83d\\udcé1"}'.encode(), Reason.NOT_JSON),
        (b"\xef\xbb\xbf{}", Reason.NOT_JSON),
        pytest.param(b'{"text":"a","x":' + b"[" * 100_000, Reason.NOT_JSON, id="deep"),
        (b"[1]", Reason.NOT_AN_OBJECT),
        (b"null", Reason.NOT_AN_OBJECT),
        (b'"text"', Reason.NOT_AN_OBJECT),
        (b'{"text":"\xff"}', Reason.NOT_UTF8),
        (b'{"text":"a","other":"\xed\xa0\x80"}', Reason.NOT_UTF8),
        (b'{"id":1}', Reason.MISSING_TEXT),
        (b'{"text":null}', Reason.MISSING_TEXT),
        (b'{"text":5}', Reason.WRONG_TYPE),
        (b'{"text":["a"]}', Reason.WRONG_TYPE),
        (b'{"text":"a","id":1.5}', Reason.WRONG_TYPE),
        (b'{"text":"a","id":true}', Reason.WRONG_TYPE),
        pytest.param(b'{"id":' + b"9" * 5_000 + b"}", Reason.WRONG_TYPE, id="big number"),
        (b'{"text":"a","operation":"upsert"}', Reason.WRONG_TYPE),
        (b'{"text":"a","operation":{}}', Reason.WRONG_TYPE),
        (b'{"text":"a","label":[4]}', Reason.WRONG_TYPE),
        (b'{"text":"a","label":7}', Reason.UNKNOWN_LABEL),
        (b'{"text":"a\\u0000b"}', Reason.NULL_BYTES),
        (b'{"text":"a\x00b"}', Reason.NULL_BYTES),
        (b'{"text":"a"}\x00', Reason.NULL_BYTES),
    ],
)
def test_what_cannot_be_used_is_rejected_with_its_reason(
    value: bytes | None, reason: Reason
) -> None:
    """Each kind of bad message has its reason, and keeps its key, its bytes and its place."""
    found = reject(value)
    assert found.reason is reason
    assert (found.partition, found.offset, found.time_ms) == (("t", 0), 100, SOURCE_TIME_MS)
    assert len(found.detail) < 400


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_does_not_have_are_named(number: str) -> None:
    """Python's json writes them by default: the reject says what to write instead."""
    found = reject(f'{{"text": "NaN", "size": [1, {number}]}}'.encode())
    named = number.removeprefix("-")
    assert found.reason is Reason.NOT_JSON
    assert found.detail.endswith(f"; JSON has no {named}, write null for a number that is missing")
    assert "JSON has no" not in reject(b'{"text": "NaN", x}').detail


@pytest.mark.parametrize(
    ("line", "way_out"),
    [
        (b"[", "is one JSON object, not a list: `jq -c '.[]'` writes each on a line"),
        (b" {\r", "; a message is one line: `jq -c .` writes it so"),
        (b'[{"text":"a"}]', "is one JSON object, not a list: `jq -c '.[]'` writes each on a line"),
    ],
)
def test_a_document_that_is_no_lines_of_json_is_told_from_a_broken_one(
    line: bytes, way_out: str
) -> None:
    """What many programs write as JSON is one list, or goes over several lines."""
    assert reject(line).detail.endswith(way_out)
    assert "jq" not in reject(b'{"text"').detail + reject(b"7").detail


def test_a_truth_value_is_quoted_as_json_has_it() -> None:
    """The reader of a reject has JSON before him."""
    assert "the id at 'id' is true;" in reject(b'{"text":"a","id":true}').detail


def test_a_message_may_be_as_large_as_the_limit_and_no_larger() -> None:
    """A message of exactly the limit is taken, and one byte more is rejected, bytes and all."""
    message = b'{"text":"' + b"a" * 89 + b'"}'
    settings = MessageSettings(max_bytes=len(message))
    assert len(decoded([message], settings)) == 1
    found = reject(message + b" ", settings)
    assert found.reason is Reason.TOO_LARGE
    assert "message.max_bytes" in found.detail


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (rb"a\ud83db", "a\ufffdb"),
        (rb"\udc00", "\ufffd"),
        (rb"\ud83d\ud83d\ude00", "\ufffd😀"),
        (rb"\\ud83d \ude00", "\\ud83d \ufffd"),
        (rb"\ud83d\ude00", "😀"),
    ],
)
def test_halves_of_emoji_are_mended(written: bytes, text: str) -> None:
    """A lone surrogate in JSON becomes the replacement character and costs nothing else."""
    assert row(b'{"text":"' + written + b'"}').text == text


@pytest.mark.parametrize("user", [{"screen_name": "mia"}, [], True, 1.5])
def test_a_strange_user_costs_no_message(user: Any) -> None:
    """What only describes a message is left out where it is of another kind."""
    assert row({"text": "a", "user": user, "lang": user}).user is None


def test_good_and_bad_messages_keep_their_order() -> None:
    """In a batch of all sorts the rows and the rejects each keep the order of their offsets."""
    values = [b'{"text":"a"}', b"x", None, b'{"text":"b","label":9}', b'{"text":"c"}', b'{"id":1}']
    done = decoded(values)
    assert (done.offsets.tolist(), strings(done.texts)) == ([100, 104], ["a", "c"])
    assert [found.offset for found in done.rejects] == [101, 102, 103, 105]
    assert done.next_offset == 106


def test_labels_of_rejected_messages_take_no_place() -> None:
    """Only good messages bring classes, and a class that the model has is always a label."""
    known = KnownClasses(CLASSES, open=True)
    decoder = Decoder(MessageSettings(), FieldLabeller(FieldLabels(), known))
    wrong = [json.dumps({"text": 7, "label": f"class {k}"}).encode() for k in range(CLASSES_MAX)]
    found = decoder.decode(raw([*wrong, b'{"text":"goal","label":"sport"}']))
    assert found.label(0) == "sport"
    assert found.classes == (*CLASSES, "sport")
    good = [json.dumps({"text": "x", "label": f"class {k}"}).encode() for k in range(CLASSES_MAX)]
    assert len(decoder.decode(raw(good)).classes) == CLASSES_MAX
    known.grow([*CLASSES, "weather"])
    found = decoder.decode(raw([b'{"text":"x","label":"weather"}']))
    assert found.label(0) == "weather"


def test_an_empty_batch_is_an_empty_result() -> None:
    """Nothing in, nothing out, and the position goes on."""
    done = decoded([])
    assert (len(done), done.rejects, done.next_offset) == (0, [], 100)


def test_emoticons_label_and_leave_the_text() -> None:
    """With labels from emoticons the texts come without them, and ambiguous ones are counted."""
    decoder = Decoder(MessageSettings(), EmoticonLabeller(EmoticonLabels(), CLASSES))
    done = decoder.decode(raw([b'{"text":"ok :)"}', b'{"text":":) :("}', b'{"text":1}']))
    assert (strings(done.texts), done.n_ambiguous) == (["ok", ""], 1)
    assert [done.label(0), done.label(1)] == ["positive", None]
    assert len(done.rejects) == 1


def test_a_path_that_no_json_name_can_have_is_refused() -> None:
    """A quote in a configured path is named when the decoder is built."""
    with pytest.raises(ConfigError, match="cannot be used"):
        Decoder(MessageSettings(text='te"xt'), FieldLabeller(FieldLabels(), CLASSES))


def test_csv_records_are_decoded_by_their_columns() -> None:
    """Sentiment140's columns are found under the default names; empty cells are absent."""
    done = decoded([b'0,4,77,2009-04-07T05:19:45Z,mia,"a ""b"",\nc"', b"1,0,,,,b"], form=CSV)
    assert done.envelope(0) == Envelope(
        id="77", time_ms=1_239_081_585_000, user="mia", lang=None, text='a "b",\nc',
        label="positive", operation=Operation.CREATE, fields={},
    )  # fmt: skip
    second = done.envelope(1)
    assert (second.id, second.text, second.label) == ("t-0-101", "b", "negative")


def test_a_file_without_the_column_of_texts_names_those_that_it_has() -> None:
    """So a name in other letters, or a first row that was taken for the header, is seen."""
    found = reject(b"1,a", form=RecordFormat("csv", ("ID", "Text")))
    assert found.reason is Reason.MISSING_TEXT
    assert found.detail == "no text at 'text' (setting message.text; the columns are ID, Text)"


@pytest.mark.parametrize("value", [b"1,0,,,,", b'1,0,,,,""', b"0,4,1,,mia,"])
def test_an_empty_cell_is_no_text(value: bytes) -> None:
    """Nothing says that it is an empty text, so it is a reject as JSON without a text is one."""
    found = reject(value, form=CSV)
    assert (found.reason, found.detail) == (reject(b"{}").reason, reject(b"{}").detail)
    assert found.reason is Reason.MISSING_TEXT


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'0,4,1,,mia,"open', Reason.NOT_CSV),
        (b'0,4,1,,mia,"a"b', Reason.NOT_CSV),
        (b"0,4,1", Reason.NOT_CSV),
        (b"0,4,1,,mia,a,b", Reason.NOT_CSV),
        (b"", Reason.NOT_CSV),
        (b"0,4,1,,mia,\xff", Reason.NOT_UTF8),
        (b"0,4,1,,mi\x00a,b", Reason.NULL_BYTES),
        (b"0,3,1,,mia,a", Reason.UNKNOWN_LABEL),
        (None, Reason.TOMBSTONE),
    ],
)
def test_bad_csv_is_rejected_alone(value: bytes | None, reason: Reason) -> None:
    """A bad record is rejected with its reason, and its neighbours are not touched."""
    assert reject(value, form=CSV).reason is reason
    good = b"0,4,1,,mia,fine"
    done = decoded([good, value, good], form=CSV)
    assert done.offsets.tolist() == [100, 102]
    assert [found.reason for found in done.rejects] == [reason]


def test_latin_1_is_read_where_it_is_said_to_be() -> None:
    """The same bytes are rejected as UTF-8 and are text in Latin-1."""
    line = b'"4","9","Mon Apr 06 22:19:45 PDT 2009","NO_QUERY","mia","caf\xe9"'
    form = RecordFormat("csv", SENTIMENT140_COLUMNS, "latin-1")
    done = decoded([line], form=form)
    assert strings(done.texts) == ["café"]
    assert done.envelope(0).time_ms == 1_239_081_585_000
    json_form = RecordFormat("jsonl", (), "latin-1")
    assert decoded([b'{"text":"caf\xe9"}'], form=json_form).envelope(0).text == "café"


@given(st.lists(st.none() | st.binary(max_size=60), max_size=6), st.sampled_from([None, CSV]))
def test_any_bytes_end_in_exactly_one_place(
    values: list[bytes | None], form: RecordFormat | None
) -> None:
    """Whatever the bytes, each message is a row or a reject, and offsets keep their order."""
    done = decoded(values, form=form)
    assert len(done) + len(done.rejects) == len(values)
    rejected, offsets = [found.offset for found in done.rejects], done.offsets.tolist()
    assert (offsets, rejected) == (sorted(offsets), sorted(rejected))
    assert sorted(offsets + rejected) == list(range(100, 100 + len(values)))


@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), json_values), max_size=5))
def test_any_json_ends_in_exactly_one_place(messages: list[dict[str, Any]]) -> None:
    """Whatever stands in the known fields, each message is a row or a reject, never an error."""
    values = [json.dumps(message).encode() for message in messages]
    done = decoded(values, MessageSettings(fields=("other",)))
    assert len(done) + len(done.rejects) == len(values)
    columns = (done.at, done.offsets, done.labels, done.operations, done.texts)
    assert {len(column) for column in columns} == {len(done)}
    for i in range(len(done)):
        envelope = done.envelope(i)
        for text in (envelope.id, envelope.text, envelope.user or "", envelope.lang or ""):
            text.encode()


@given(st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_texts_arrive_as_they_were_sent(texts: list[str]) -> None:
    """A text without NUL comes out as it went in, in whichever way JSON escapes it."""
    texts = [text.replace("\0", "") for text in texts]
    for ascii_only in (True, False):
        values = [json.dumps({"text": text}, ensure_ascii=ascii_only).encode() for text in texts]
        assert strings(decoded(values).texts) == texts
