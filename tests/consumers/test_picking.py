"""Some messages of a batch say what they said, and hold nothing of the others."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from consumers.config import FieldLabels, MessageSettings
from consumers.decode import Decoder
from consumers.labels import FieldLabeller
from consumers.messages import Messages, Partition, RawColumns
from consumers.picking import picked
from consumers.settings.groups import Kind
from streamnb import TextColumn
from tests.consumers.decoded import messages

CLASSES = ("negative", "positive")
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
ROW = st.fixed_dictionaries(
    {"text": WORDS},
    optional={"id": WORDS, "user": WORDS, "lang": WORDS, "label": st.sampled_from([0, 4])},
)


@given(rows=st.lists(ROW, min_size=1, max_size=12), chosen=st.sets(st.integers(0, 11)))
def test_they_say_what_they_said(rows: list[dict[str, Any]], chosen: set[int]) -> None:
    """Each message that is picked is the same, and nothing of the others is kept."""
    whole = messages(Partition("t", 3), [msgspec.json.encode(row) for row in rows], 7)
    at = np.array(sorted(k for k in chosen if k < len(whole)), np.int64)
    few = picked(whole, at)
    assert few.envelopes(np.arange(len(few))) == [whole.envelope(k) for k in at.tolist()]
    assert (few.offsets == whole.offsets[at]).all()
    assert (few.labels == whole.labels[at]).all()
    assert few.partition == whole.partition
    assert len(few.raw.buffer) == sum(len(whole.raw.value(int(k)) or b"") for k in whole.at[at])
    assert len(few.texts) == len(at)


def test_fields_keys_and_what_is_missing_come_along() -> None:
    """Numbers, categories and keys are picked too, and what is missing stays missing."""
    whole = _with_fields()
    few = picked(whole, np.array([0, 2]))
    age, city = few.fields["age"], few.fields["city"]
    assert isinstance(age, np.ndarray)
    assert isinstance(city, TextColumn)
    assert age[0] == 7
    assert np.isnan(age[1])
    data, starts, ends = city.texts
    assert data[starts[1] : ends[1]].tobytes() == b"Rome"
    assert ends[0] == -1
    assert [few.raw.key(i) for i in range(2)] == [b"k0", None]
    assert few.raw.key(1) is None
    assert few.rejects == []
    assert len(whole.rejects) == 1


def _with_fields() -> Messages:
    """Return three messages with two fields, and a reject."""
    values = [b'{"age":7}', b'{"city":"Oslo"}', b'{"city":"Rome"}', b"no JSON"]
    keys = [b"k0", b"k1", None, b"k3"]
    buffer, lies = bytearray(), []
    for piece in [*values, *keys]:
        start = len(buffer)
        buffer += piece or b""
        lies.append((start, -1 if piece is None else len(buffer)))
    starts, ends = (np.array(each, np.int64) for each in zip(*lies, strict=True))
    raw = RawColumns(
        Partition("t", 0), bytes(buffer), starts[:4], ends[:4], starts[4:], ends[4:],
        np.arange(4), np.zeros(4, np.int64), 4,
    )  # fmt: skip
    labeller = FieldLabeller(FieldLabels(), CLASSES)
    reads: dict[str, Kind] = {"age": "numbers", "city": "categories"}
    return Decoder(MessageSettings(), labeller, reads=reads).decode(raw)
