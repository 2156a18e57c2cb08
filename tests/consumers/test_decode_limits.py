"""The limits of decoding: how deep a message may be nested, and what is told of one that is too deep."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

import pytest

from consumers.config import FieldLabels, MessageSettings
from consumers.decode import Decoder
from consumers.decode_json import NESTING_MAX
from consumers.labels import FieldLabeller
from consumers.messages import Envelope, Reason
from consumers.settings.groups import Kind
from consumers.sinks.records import prediction_record
from tests.consumers.decoding import CLASSES, messages, raw


def nested(levels: int) -> bytes:
    """Return arrays and objects within each other, with brackets in a string amid them."""
    half = levels // 2
    inner = b'"a[[[\\"{{"'
    return b'{"a":[' * half + b"[" * (levels % 2) + inner + b"]" * (levels % 2) + b"]}" * half


@pytest.mark.parametrize("name", ["x", "other", "user", "created_at"])
def test_a_message_is_nested_as_deep_as_is_said_wherever_it_is_read(name: str) -> None:
    """What one thread has just read, another reads too, whatever its stack: the limit is ours."""

    def at_depth(levels: int, call: Callable[[], Envelope]) -> Envelope:
        return at_depth(levels - 1, call) if levels else call()

    def message(levels: int) -> bytes:
        return b'{"text":"a","%s":%s}' % (name.encode(), nested(levels))

    done = messages([message(NESTING_MAX - 1), message(NESTING_MAX)], first=100, fields=("other",))
    assert [(found.reason, found.offset) for found in done.rejects] == [(Reason.NOT_JSON, 101)]
    assert "nested too deeply: 200 levels" in done.rejects[0].detail
    used = len(inspect.stack(0))
    row = at_depth(sys.getrecursionlimit() - used - 3 * NESTING_MAX // 2, lambda: done.envelope(0))
    assert row.text == "a"
    assert len(prediction_record(row, CLASSES, [-1.0, -1.0], 1).value) > 100


@pytest.mark.parametrize("name", ["text", "id", "label", "operation", "amount", "flag", "kind"])
def test_what_is_nested_deep_and_of_the_wrong_kind_is_told(name: str) -> None:
    """Its beginning is shown in the reason."""
    reads: dict[str, Kind] = {
        "text": "words", "amount": "numbers", "flag": "flags", "kind": "categories"
    }  # fmt: skip
    decoder = Decoder(MessageSettings(), FieldLabeller(FieldLabels(), CLASSES), reads=reads)
    value = b'{"text":"a","%s":%s}' % (name.encode(), nested(NESTING_MAX - 1))
    if name == "text":
        value = b'{"text":%s}' % nested(NESTING_MAX - 1)
    (found,) = decoder.decode(raw([value])).rejects
    assert found.reason is Reason.WRONG_TYPE
    assert f"at '{name}' is {{" in found.detail
    assert "a[[[" not in found.detail


def test_a_number_out_of_range_before_what_is_too_deep_is_told() -> None:
    """One message may have two faults; the first is named."""
    (found,) = messages([b'{"id":1e400,"text":"a","x":' + b"[" * 100_000]).rejects
    assert found.reason is Reason.WRONG_TYPE
    assert "'id' is 1e400" in found.detail
