"""Compressed batches: what was packed comes back, and nothing takes memory or time without end."""

from __future__ import annotations

import contextlib
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec
from kafka.errors import CorruptRecordError, KafkaError

from consumers.kafka import fetch_columns

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("name", CODECS)
@given(st.binary(max_size=300), st.integers(1, 40), st.data())
def test_unpacking(name: str, piece: bytes, times: int, data: st.DataObject) -> None:
    """What was packed comes back whole; damage is an error or other bytes, never more than that."""
    packed = bytearray(getattr(codec, f"{name}_encode")(piece * times))
    assert fetch_columns.decompress(CODECS[name], bytes(packed)) == piece * times
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptRecordError):
        fetch_columns.decompress(
            CODECS[name], bytes(packed[: data.draw(st.integers(0, len(packed)))])
        )


@pytest.mark.parametrize("name", CODECS)
def test_unpacking_has_a_bound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that would grow beyond the bound is refused before the memory is taken."""
    monkeypatch.setattr(fetch_columns, "BATCH_BYTES_MAX", 3 << 20)
    packed = getattr(codec, f"{name}_encode")(bytes(4 << 20))
    with pytest.raises(CorruptRecordError, match=rf"{name}: unpacked it has more than 3145728"):
        fetch_columns.decompress(CODECS[name], packed)


@given(st.lists(st.binary(max_size=60) | st.just(b"")), st.integers(1, 40), st.integers(0, 3))
def test_members_of_a_gzip_stream(parts: list[bytes], fed_bytes: int, n_zeros: int) -> None:
    """Any number of members come out one behind the other, however they are cut when they are fed.

    A stream that is cut off in a member is refused.
    """
    packed = b"".join(gzip.compress(part) + bytes(n_zeros) for part in parts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fetch_columns, "_INPUT_BYTES", fed_bytes)
        assert fetch_columns.decompress(CODECS["gzip"], packed) == b"".join(parts)
        with pytest.raises(CorruptRecordError, match="cut off"):
            fetch_columns.decompress(CODECS["gzip"], packed + gzip.compress(b"more")[:-1])


def test_many_tiny_members_take_no_long_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands behind a member, a piece of it at most is copied when the member ends."""
    unused: list[int] = []

    class Member:
        """The real thing, of which the rest is weighed."""

        def __init__(self, window: int) -> None:
            self._member = decompressobj(window)

        def __getattr__(self, name: str) -> object:
            value: object = getattr(self._member, name)
            if name == "unused_data":
                unused.append(len(self._member.unused_data))
            return value

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Member)
    assert fetch_columns.decompress(CODECS["gzip"], gzip.compress(b"x") * 5_000) == b"x" * 5_000
    assert len(unused) == 5_000
    assert max(unused) <= 1 << 15


def test_blocks_that_lie_about_their_size() -> None:
    """A block that claims four gigabytes gets no memory, and sizes below zero are no way back."""
    claim = b"\xff\xff\xff\xff\x0f" + b"abc"
    with pytest.raises(CorruptRecordError, match="more than"):
        fetch_columns.decompress(CODECS["snappy"], claim)
    with pytest.raises(CorruptRecordError, match="8 bytes cannot hold 65535"):
        fetch_columns.decompress(CODECS["snappy"], b"\xff\xff\x03" + b"abcde")
    mark = b"\x82SNAPPY\x00" + bytes(8)
    with pytest.raises(CorruptRecordError, match="cut off"):
        fetch_columns.decompress(CODECS["snappy"], mark + b"\xff\xff\xff\xfc" + bytes(20))


def test_a_compression_that_is_not_known() -> None:
    """Numbers that Kafka has not given away are no codec of ours."""
    with pytest.raises(KafkaError, match="Unrecognized compression type: 6"):
        fetch_columns.decompress(6, b"abc")
