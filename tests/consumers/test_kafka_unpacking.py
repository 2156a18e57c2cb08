"""Compressed batches: what was packed comes back, and nothing takes memory or time without end."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec
from kafka.errors import CorruptRecordError, KafkaError

from consumers.sources.kafka import unpacking

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("name", CODECS)
@given(st.binary(max_size=300), st.integers(1, 40), st.data())
def test_unpacking(name: str, piece: bytes, times: int, data: st.DataObject) -> None:
    """What was packed comes back whole; damage is an error or other bytes, never more than that."""
    packed = bytearray(getattr(codec, f"{name}_encode")(piece * times))
    assert unpacking.unpack(CODECS[name], bytes(packed)) == piece * times
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecordError):
        unpacking.unpack(CODECS[name], bytes(packed[: data.draw(st.integers(0, len(packed)))]))


@pytest.mark.parametrize("name", CODECS)
def test_unpacking_has_a_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that would grow beyond the bound is refused before the memory is taken."""
    monkeypatch.setattr(unpacking, "BATCH_BYTES_MAX", 3 << 20)
    packed = getattr(codec, f"{name}_encode")(bytes(4 << 20))
    with pytest.raises(CorruptRecordError, match=rf"{name}: unpacked it has more than 3145728"):
        unpacking.unpack(CODECS[name], packed)


def test_blocks_that_lie_about_their_size() -> None:
    """A block that claims four gigabytes gets no memory, and sizes below zero are no way back."""
    claim = b"\xff\xff\xff\xff\x0f" + b"abc"
    with pytest.raises(CorruptRecordError, match="more than"):
        unpacking.unpack(CODECS["snappy"], claim)
    with pytest.raises(CorruptRecordError, match="8 bytes cannot hold 65535"):
        unpacking.unpack(CODECS["snappy"], b"\xff\xff\x03" + b"abcde")
    mark = b"\x82SNAPPY\x00" + bytes(8)
    with pytest.raises(CorruptRecordError, match="cut off"):
        unpacking.unpack(CODECS["snappy"], mark + b"\xff\xff\xff\xfc" + bytes(20))


def test_a_compression_that_is_not_known() -> None:
    """Numbers that Kafka has not given away are no codec of ours."""
    with pytest.raises(KafkaError, match="Unrecognized compression type: 6"):
        unpacking.unpack(6, b"abc")
