"""A correction as a line: it comes back as it was, and what is none becomes a reject."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.corrections.model import Correction, decoded, encode, entries
from consumers.messages import Partition, Reason, Reject
from consumers.sinks.records import is_json
from tests.consumers.decoded_messages import raw

LOG = Partition("journal:corrections.jsonl", 0)
CLASSES = ("negative", "positive")
DEEP = b'{"kind":"delete","id":"m1","time_ms":5,"example":{"text":%s%s}}'
values = st.one_of(
    st.none(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)


@given(
    example=st.dictionaries(st.text(), values),
    id_=st.text(),
    label=st.sampled_from(CLASSES),
    offset=st.integers(0, 2**62 - 1),
)
def test_a_correction_comes_back_as_it_was(
    example: dict[str, object], id_: str, label: str, offset: int
) -> None:
    """Whatever a message holds, its correction is one line that says the same again."""
    said = Correction(
        "label", id_, 5, example, label, "negative", "tweets/3", ("tweets", 3), offset
    )
    line = encode(said)
    assert b"\n" not in line
    entry, *none = entries(raw(LOG, [line]), CLASSES)
    assert none == []
    assert entry.said == said
    assert said.place == Partition("tweets", 3)


def test_each_line_says_where_reading_goes_on() -> None:
    """A line's next offset is the next line's own, and the batch's at its end."""
    lines = [encode(Correction("delete", f"m{i}", i)) for i in range(3)]
    found = list(entries(raw(LOG, lines, 7), CLASSES))
    assert [(each.offset, each.next_offset) for each in found] == [(7, 8), (8, 9), (9, 10)]
    assert {each.part for each in found} == {"journal:corrections.jsonl/0"}


def test_a_batch_without_lines_says_where_reading_goes_on() -> None:
    """What stood before that place is lost: nothing is said, and the position moves."""
    (entry,) = entries(raw(LOG, [], 7), CLASSES)
    assert (entry.partition, entry.next_offset, entry.said) == (LOG, 7, None)


@pytest.mark.parametrize(
    ("line", "reason", "detail"),
    [
        (b"{", Reason.NOT_JSON, "it is no correction"),
        (b"\xff\xfe", Reason.NOT_JSON, "it is no correction"),
        (b'{"kind":"la\xff"}', Reason.NOT_JSON, "it is no correction"),
        pytest.param(DEEP % (b"[" * 300, b"]" * 300), Reason.NOT_JSON, "too deeply", id="deep"),
        pytest.param(
            DEEP % (b"[" * 9_000, b"]" * 9_000), Reason.NOT_JSON, "recursion", id="deeper"
        ),
        (b"[]", Reason.WRONG_TYPE, "it is no correction"),
        (b'{"text":"a tweet"}', Reason.WRONG_TYPE, "kind"),
        (b'{"kind":"praise","id":"m1","time_ms":5}', Reason.WRONG_TYPE, "praise"),
        (
            b'{"kind":"label","id":"m1","time_ms":5}',
            Reason.WRONG_TYPE,
            "a label has the label None",
        ),
        (
            b'{"kind":"delete","id":"m1","time_ms":5,"was":"positive"}',
            Reason.WRONG_TYPE,
            "belong together",
        ),
        (
            b'{"kind":"label","id":"m1","time_ms":5,"label":"sad"}',
            Reason.UNKNOWN_LABEL,
            "'sad' is none of negative, positive",
        ),
        (
            b'{"kind":"label","id":"m1","time_ms":5,"label":"positive","partition":["t"]}',
            Reason.WRONG_TYPE,
            "partition",
        ),
        (
            b'{"kind":"delete","id":"m1","time_ms":5,"partition":["t",0],"offset":%d}' % 2**63,
            Reason.WRONG_TYPE,
            "offset",
        ),
        (
            b'{"kind":"delete","id":"m1","time_ms":5,"partition":["t",0],"offset":%d}' % 2**62,
            Reason.WRONG_TYPE,
            "offset",
        ),
        (
            b'{"kind":"delete","id":"m1","time_ms":5,"partition":["t",-1]}',
            Reason.WRONG_TYPE,
            "partition",
        ),
        pytest.param(
            b'{"kind":"delete","id":"m1","time_ms":5,"partition":["t",%d]}' % 2**31,
            Reason.WRONG_TYPE,
            "partition",
            id="beyond",
        ),
    ],
)
def test_what_is_no_correction_is_a_reject(line: bytes, reason: Reason, detail: str) -> None:
    """A line that cannot be used is told by its reason, its place and its bytes."""
    (entry,) = entries(raw(LOG, [line], 9), CLASSES)
    assert isinstance(entry.said, Reject)
    assert (entry.said.reason, entry.said.offset, entry.said.value) == (reason, 9, line)
    assert detail in entry.said.detail


@pytest.mark.parametrize("line", [b"{", b"\xff\xfe", DEEP % (b"[" * 9_000, b"]" * 9_000)])
def test_what_cannot_be_read_is_none(line: bytes) -> None:
    """A journal's lines and rejects are looked at again, whatever they hold."""
    assert decoded(line) is None
    assert not is_json(line)


def test_a_line_from_elsewhere_may_know_more() -> None:
    """Keys that mean nothing here are passed over, so that newer writers can be read."""
    line = msgspec.json.encode({"kind": "delete", "id": "m1", "time_ms": 5, "why": "spam"})
    (entry,) = entries(raw(LOG, [line]), CLASSES)
    assert entry.said == Correction("delete", "m1", 5)
