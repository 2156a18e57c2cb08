"""The bytes of a rejected message leave its record by the id that the message has."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from consumers.config.settings import Settings
from consumers.factories import build_decoder, build_source
from consumers.messages import Messages, Partition, Reason, Reject
from consumers.sinks.records import reject_record, reject_without_bytes
from tests.consumers.decoded_messages import raw

LOG = Partition("t", 0)
SECRET = "xylophonist"


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
    erased = reject_without_bytes(line, {msgspec.json.encode(deleted)})
    assert erased is not None
    assert len(erased) <= len(line)
    found = json.loads(erased)
    assert (found["id"], found["value_base64"], found["detail"]) == (deleted, None, "")
    assert "value" not in found
    assert reject_without_bytes(erased, {msgspec.json.encode(deleted)}) is None


def test_a_reject_that_names_a_deleted_message_stays() -> None:
    """The id of a decoded message is certain, so an answer to a deleted message is not erased."""
    [reject] = decoded("id", [b'{"id":"m2","text":7,"reply_to":"m1"}']).rejects
    line = reject_record(reject).value
    assert reject_without_bytes(line, {b'"m1"'}) is None


@pytest.mark.parametrize("value", [rb'{"id":"h\u00e9","text":', '{"id":"hé","text":'.encode()])
def test_a_reject_without_an_id_is_compared_word_by_word(value: bytes) -> None:
    """One that could not be decoded, or that an older version wrote, is erased by its strings."""
    record = reject_record(Reject(Reason.NOT_JSON, "odd", LOG, 1, 2, None, value + SECRET.encode()))
    old: dict[str, Any] = json.loads(record.value)
    assert "id" not in old
    erased = reject_without_bytes(record.value, {'"hé"'.encode()})
    assert erased is not None
    assert json.loads(erased) == {
        name: old[name] for name in old if name not in {"value", "detail"}
    } | {"detail": "", "value_base64": None}
    assert reject_without_bytes(record.value, {b'"he"'}) is None
