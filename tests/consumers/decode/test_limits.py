"""The limits of decoding: how deep a message may be nested, and what a mistake of ours costs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from consumers.config.message import FieldLabels, MessageSettings
from consumers.config.model import FieldKind
from consumers.decode import rows as decode_rows
from consumers.decode.decoder import Decoder
from consumers.decode.json import NESTING_MAX
from consumers.decode.labels import FieldLabeller, LabelledBatch
from consumers.messages import Envelope, Reason
from consumers.sinks.records import prediction_record
from tests.consumers.raw_batches import CLASSES, messages, raw, strings


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
    reads: dict[str, FieldKind] = {
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


class Failing(FieldLabeller):
    """A labeller with a mistake: at one text it divides by zero."""

    def label(self, values: Sequence[Any], texts: list[str]) -> LabelledBatch:
        """Label a batch."""
        for text in texts:
            assert 1 / (text != "poison")
        return super().label(values, texts)


@pytest.mark.parametrize("reads_text", [False, True])
def test_a_mistake_of_ours_costs_one_message(reads_text: bool) -> None:
    """It is rejected with the exception's name, the others are read, and the log has it once."""
    labeller = Failing(FieldLabels(), CLASSES)
    labeller.reads_text = reads_text  # then the scan of the whole batch fails as well
    decoder = Decoder(MessageSettings(), labeller)
    values = [
        b'{"text":"good","label":4.0}', b'{"text":"poison","label":4.0}', b"{",
        b'{"text":"bad","label":0.0}', b'{"text":"poison","label":4.0}',
    ]  # fmt: skip
    with capture_logs() as lines:
        done = [decoder.decode(raw(values)) for _ in range(2)]
    for found in done:
        assert strings(found.texts) == ["good", "bad"]
        assert found.labels.tolist() == [1, 0]
        assert [(each.reason, each.offset) for each in found.rejects] == [
            (Reason.DECODER_FAILED, 101), (Reason.NOT_JSON, 102), (Reason.DECODER_FAILED, 104)
        ]  # fmt: skip
        assert "ZeroDivisionError: division by zero" in found.rejects[0].detail
    assert [line["event"] for line in lines] == ["decoder_failed"]
    assert isinstance(lines[0]["exc_info"], ZeroDivisionError)


def test_a_mistake_of_ours_in_what_a_message_says_of_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has been learned by then: it is known by its place, and the others by what they say."""
    done = messages([b'{"text":"a","id":1}', b'{"text":"b","id":2,"created_at":"x"}'])

    def failing(value: Any) -> int | None:
        return 1 // (value is None)

    monkeypatch.setattr(decode_rows, "to_unix_ms", failing)
    with capture_logs() as lines:
        assert [row.id for row in done.envelopes(np.arange(2))] == ["1", "t-0-1"]
    assert [line["event"] for line in lines] == ["decoder_failed"]


def test_short_memory_is_no_message_s_fault() -> None:
    """An error that says nothing of the message goes on, so that the message is not lost."""

    class Hungry(FieldLabeller):
        def label(self, *_: object) -> LabelledBatch:
            raise MemoryError

    decoder = Decoder(MessageSettings(), Hungry(FieldLabels(), CLASSES))
    with pytest.raises(MemoryError):
        decoder.decode(raw([b'{"text":"a","label":4.0}']))
