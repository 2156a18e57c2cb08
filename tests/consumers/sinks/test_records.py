"""Records: a reject keeps every byte of its message, and loses them by the id that it has."""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.config.settings import Settings
from consumers.factories import build_decoder, build_source
from consumers.messages import Envelope, Messages, Operation, Partition, Reason, Reject
from consumers.sinks.records import (
    Record,
    is_output,
    key_of,
    prediction_record,
    prediction_without_text,
    reject_record,
    reject_without_bytes,
    shortened,
)
from tests.consumers.decoded_messages import raw

LOG = Partition("t", 0)
SECRET = "xylophonist"
CUT = "; cut, for more was not taken here"


def test_a_short_form_fits_where_little_is_taken() -> None:
    """Records from half of what is taken on have one, and it has less than half of that."""
    most, half = 1_024, 512
    envelope = Envelope(
        id="i" * 300, time_ms=5, user=None, lang="en", text="word " * 20, label=None,
        operation=Operation.CREATE, fields={},
    )  # fmt: skip
    record = prediction_record(envelope, ("a", "b"), [-0.5, -1.0], 1, short_from_bytes=half)
    assert record.short is not None
    assert len(record.value) > half > len(record.short.value)
    for value in (b"x" * 400, b"y" * 5_000):
        reject = Reject(Reason.NOT_JSON, "odd", LOG, 1, 2, b"k" * 300, value, "i" * 300)
        record = reject_record(reject, half)
        assert record.short is not None
        assert len(record.value) > half
        assert len(record.short.key) + len(record.short.value) < most - 100
        assert "value" not in json.loads(record.short.value)
    assert prediction_record(envelope, ("a", "b"), [-0.5, -1.0], 1).short is None


def test_a_line_of_an_older_version_is_a_record() -> None:
    """Its log-posteriors have the name of then: it is known, shortened and erased as it is."""
    envelope = Envelope(
        id="m7", time_ms=5, user=None, lang="en", text=SECRET, label=None,
        operation=Operation.CREATE, fields={},
    )  # fmt: skip
    record = prediction_record(envelope, ("a", "b"), [-0.5, -1.0], 1, place=(LOG, 7))
    assert b'"log_posteriors":{"a":-0.5,"b":-1.0}' in record.value
    old = record.value.replace(b'"log_posteriors"', b'"log_posterior"')
    assert is_output(old + b"\n")
    assert not is_output(old.replace(b'"log_posterior"', b'"log_posterio"') + b"\n")
    erased = prediction_without_text(old, {b'"m7"': {LOG: 7}})
    assert erased == old.replace(b'"text":"%b",' % SECRET.encode(), b"")
    assert prediction_without_text(erased, {b'"m7"': {LOG: 7}}) is None
    forms, shorter = [], shortened(Record(record.key, old))
    while shorter is not None:
        forms.append(json.loads(shorter.value))
        shorter = shortened(shorter)
    assert forms[-1]["log_posterior"] == {"a": -0.5}
    assert forms[-1]["probabilities"].keys() == {"a"}


@pytest.mark.parametrize("n", [0, 700, 100_000])
def test_a_reject_says_that_its_bytes_are_cut(n: int) -> None:
    """Each shorter form but that without the text alone, once; one that has none cuts none."""
    reject = Reject(Reason.NOT_JSON, "odd", LOG, 1, 2, b"k" * 30, b"\xff" * n, "i" * 300)
    record = reject_record(reject)
    shorter, forms = shortened(record.short or record), []
    while shorter is not None:
        forms.append(json.loads(shorter.value))
        shorter = shortened(shorter)
    assert forms
    for form in forms:
        kept = base64.b64decode(form["value_base64"] or "")
        assert form["detail"] == ("odd" if len(kept) == n else f"odd{CUT}")
    assert forms[-1]["value_base64"] == ("" if n == 0 else None)


def decoded(paths: str | list[str], lines: list[bytes]) -> Messages:
    """Return lines as they come out of a decoder of these `message.id` paths."""
    settings = Settings.model_validate({"message": {"id": paths}})
    decoder = build_decoder(settings, build_source(settings, until_end=False))
    return decoder.decode(raw(LOG, lines))


@pytest.mark.parametrize(
    ("paths", "message", "deletion"),
    [
        ("id", r'{"id":"h\u00e9","text":["xylophonist"]}', '{"id":"hé","operation":"delete"}'),
        ("id", '{"id":"t-0-9","text":[]}', '{"id":"t-0-9","operation":"delete"}'),
        ("id", '{"id":17,"text":["xylophonist"]}', '{"id":"17","operation":"delete"}'),
        (
            ["did", "rkey"],
            r'{"did":"did:x","rkey":"3k\/~","text":["xylophonist"]}',
            '{"did":"did:x","rkey":"3k/~","operation":"delete"}',
        ),
    ],
)
def test_a_deletion_erases_the_reject_of_its_id(
    paths: str | list[str], message: str, deletion: str
) -> None:
    """However the id is written, and of however many fields: what deletes it names it."""
    messages = decoded(paths, [message.encode(), deletion.encode()])
    [reject] = messages.rejects
    [deleted] = messages.metadata(messages.raw, messages.at).ids
    line = reject_record(reject).value
    erased = reject_without_bytes(line, {msgspec.json.encode(deleted): {}})
    assert erased is not None
    assert len(erased) <= len(line)
    found = json.loads(erased)
    assert (found["id"], found["value_base64"], found["detail"]) == (deleted, None, "")
    assert "value" not in found
    assert reject_without_bytes(erased, {msgspec.json.encode(deleted): {}}) is None


@pytest.mark.parametrize(
    ("time_ms", "written"), [(-1, None), (-2, -2), (0, 0), (1_700_000_000_000,) * 2]
)
def test_a_time_that_is_not_known_is_null(time_ms: int, written: int | None) -> None:
    """A file has no times: its messages' records say null, and are erased as others are."""
    envelope = Envelope("m1", time_ms, None, None, SECRET, None, Operation.CREATE, {})
    prediction = prediction_record(envelope, ["a", "b"], [0.0, -1.0], 1).value
    reject = reject_record(
        Reject(Reason.NOT_JSON, SECRET, LOG, 7, time_ms, None, SECRET.encode(), "m1")
    ).value
    for value, erase in ((prediction, prediction_without_text), (reject, reject_without_bytes)):
        assert json.loads(value)["time_ms"] == written
        assert is_output(value[: value.index(SECRET.encode())])  # torn amid the text
        erased = erase(value, {b'"m1"': {}})
        assert erased is not None
        assert SECRET.encode() not in erased


def test_an_empty_text_is_written_beside_fields_and_a_missing_one_is_not() -> None:
    """Only a message whose text was not read is told by its fields alone."""
    for has_text in (True, False):
        envelope = Envelope(
            "m1", 5, None, None, "", None, Operation.CREATE, {"place": "here"}, has_text
        )
        record = prediction_record(envelope, ("a", "b"), [-0.5, -1.0], 1)
        assert ("text" in json.loads(record.value)) is has_text


def test_a_reject_that_names_a_deleted_message_stays() -> None:
    """The id of a decoded message is certain, so an answer to a deleted message is not erased."""
    [reject] = decoded("id", [b'{"id":"m2","text":7,"reply_to":"m1"}']).rejects
    line = reject_record(reject).value
    assert reject_without_bytes(line, {b'"m1"': {}}) is None


def test_a_message_without_an_id_is_no_other_by_its_words() -> None:
    """A deletion of `txt` takes no reject that holds the word; one of its place takes it."""
    rejects = decoded("id", [b'{"txt":"nobody","user":"bob"}', b'{"txt":']).rejects
    line, broken = [reject_record(reject).value for reject in rejects]
    assert json.loads(line)["id"] == "t-0-0"
    assert reject_without_bytes(line, {b'"txt"': {}}) is None
    assert reject_without_bytes(line, {b'"t-0-0"': {}}) is not None
    assert "id" not in json.loads(broken)
    assert reject_without_bytes(broken, {b'"txt"': {}}) is not None


def test_an_id_of_a_wrong_type_is_compared_by_its_words() -> None:
    """What it was meant to be is not known, so its place does not name it."""
    [reject] = decoded("id", [b'{"id":["m1"],"text":"one"}']).rejects
    assert reject.id is None
    assert reject_without_bytes(reject_record(reject).value, {b'"m1"': {}}) is not None


def test_a_line_that_nests_too_deeply_is_emptied() -> None:
    """It is none of ours, and what it holds is not known."""
    deep = b'"fields":{"a":%s%s}}' % (b"[" * 9_000, b"]" * 9_000)
    prediction = b'{"id":"m1","time_ms":5,%s' % deep
    assert prediction_without_text(prediction, {b'"m1"': {LOG: 7}}) == b'{"id":"m1"}'
    assert reject_without_bytes(b'{"reason":"not_json",%s' % deep, {b'"m1"': {LOG: 7}}) == b"{}"


@pytest.mark.parametrize(
    "value",
    [
        rb'{"id":"h\u00e9","text":',
        '{"id":"hé","text":'.encode(),
        '{"id":"hé","text":'.encode("latin-1"),
        b"4,h\xe9,two many,",
    ],
)
def test_a_reject_without_an_id_is_compared_word_by_word(value: bytes) -> None:
    """One that could not be decoded, or that an older version wrote, is erased by its strings."""
    record = reject_record(Reject(Reason.NOT_JSON, "odd", LOG, 1, 2, None, value + SECRET.encode()))
    old: dict[str, Any] = json.loads(record.value)
    assert "id" not in old
    erased = reject_without_bytes(record.value, {'"hé"'.encode(): {}})
    assert erased is not None
    assert json.loads(erased) == {
        name: old[name] for name in old if name not in {"value", "detail"}
    } | {"detail": "", "value_base64": None}
    assert reject_without_bytes(record.value, {b'"he"': {}}) is None


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b"my id,one,two,three", "my id"),
        (b'one,"an ""id"", quoted",', 'an "id", quoted'),
        (b'"left open,my id,', "my id"),
        ("grün é,one,".encode("latin-1"), "grün é"),
        ('{"id":"grün é","text":'.encode("latin-1"), "grün é"),
        (b'{"id":"\\ud800 a","text":', "id"),  # half a character harms nothing
    ],
)
def test_an_id_in_broken_csv_or_latin_1_is_found(value: bytes, name: str) -> None:
    """A cell is an id whatever blanks, quotes and letters it holds."""
    record = reject_record(Reject(Reason.NOT_CSV, "odd", LOG, 1, 2, None, value))
    assert reject_without_bytes(record.value, {msgspec.json.encode(name): {}}) is not None


@given(st.none() | st.binary(max_size=5000), st.none() | st.binary())
def test_a_reject_keeps_every_byte(value: bytes | None, key: bytes | None) -> None:
    """From a reject's line its bytes can be had again, whatever they are."""
    place = Partition("tweets", 3)
    record = reject_record(Reject(Reason.NOT_JSON, "odd", place, 17, 99, key, value))
    line = json.loads(record.value)
    assert b"\n" not in record.value
    assert record.key == b"tweets-3-17"
    for name, data in (("value_base64", value), ("key_base64", key)):
        assert (line[name] and base64.b64decode(line[name])) == (
            data if data is None or data else ""
        )
    named = (line["reason"], line["topic"], line["partition"], line["offset"], line["time_ms"])
    assert named == ("not_json", "tweets", 3, 17, 99)


def test_short_text_is_readable_in_a_reject() -> None:
    """Where the bytes are short and UTF-8 they stand there as text too, else not."""
    place = Partition("t", 0)
    values = (b"h\xc3\xa9", b"\xff", b"a" * 5000)
    lines = [
        json.loads(reject_record(Reject(Reason.NOT_JSON, "", place, 0, 0, None, value)).value)
        for value in values
    ]
    assert [line.get("value") for line in lines] == ["hé", None, None]


def test_rejects_are_known_by_their_place() -> None:
    """A reject is found again by its place in the log, also if its text was erased."""
    log = Partition("t", 3)
    found = [
        reject_record(Reject(Reason.NOT_JSON, "it is not", log, at, 5, None, b"{%d" % at))
        for at in (7, 9)
    ]
    assert [key_of(each.value) for each in found] == [each.key for each in found]
    erased = reject_without_bytes(found[0].value, {b'"7"': {}}) or b""
    assert key_of(erased + b"  ") == found[0].key == b"t-3-7"
    assert [key_of(line) for line in (b"", b"{}", b"[1]", b"\xff", b'{"id":3}')] == [None] * 5
