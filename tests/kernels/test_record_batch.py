"""The decoder of record batches: the same as its plain twin, on whole, cut and damaged bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.kernels import record_batch as rb
from tests.kernels.record_batches import (
    CONTROL,
    HEADER,
    LOG_APPEND_TIME,
    Record,
    batch,
    next_offset,
    read,
    runs,
    with_checksum,
)

ENDS = {rb.AT_END: "end", rb.OLD_FORMAT: "old"}


def decoded(data: bytes, from_offset: int = 0, room: int = 3) -> tuple[list[Record], str]:
    """Return what the kernels make of uncompressed batches, and how they ended."""
    buffer = np.frombuffer(data, dtype=np.uint8)
    records: list[Record] = []
    at, after, why = 0, -1, rb.NEXT_RUN
    while why == rb.NEXT_RUN:
        rows = np.full((room, rb.N_COLUMNS), -7, dtype=np.int64)
        n, behind, why = rb.scan(buffer, at, after, 1 << 20, rows)
        rows, at = rows[:n], int(behind)
        n_max = min(int(rows[:, rb.N_RECORDS].sum()), len(data))
        told = np.full((rb.N_FIELDS, n_max), -9, dtype=np.int64)
        fits = rows[:, rb.N_RECORDS] * rb.RECORD_BYTES_MIN <= rows[:, rb.END] - rows[:, rb.BODY]
        n_fit = n if fits.all() else int(np.argmin(fits))
        n_records, n_read = rb.decode(buffer, rows[:n_fit], from_offset, told)
        records += [record(data, told[:, i].tolist()) for i in range(n_records)]
        if n_read < n:
            return records, "malformed"
        after = int(rows[-1, rb.LAST_OFFSET]) if n else after
    return records, ENDS.get(why, "malformed")


def record(data: bytes, told: list[int]) -> Record:
    """Return the record that is told of."""

    def part(start: int, end: int) -> bytes | None:
        assert end == -1 or 0 <= start <= end <= len(data)
        return None if end < 0 else data[start:end]

    return Record(
        told[rb.OFFSET],
        told[rb.TIME_MS],
        part(told[rb.KEY_START], told[rb.KEY_END]),
        part(told[rb.VALUE_START], told[rb.VALUE_END]),
    )


@given(runs(), st.integers(0, 30), st.integers(1, 4))
def test_whole_batches(batches: list[bytes], from_offset: int, room: int) -> None:
    """Keys, values, nulls, times and offsets come out, from the wanted offset on."""
    data = b"".join(batches)
    expected, end = read(data, from_offset)
    assert (expected, end) == (decoded(data, from_offset, room))
    assert end == "end"


@given(runs(), st.data())
def test_a_response_that_is_cut(batches: list[bytes], data: st.DataObject) -> None:
    """Batches that are there whole come out; what is cut off at the end is not looked at."""
    whole = b"".join(batches)
    cut = whole[: data.draw(st.integers(0, len(whole)))]
    assert decoded(cut) == read(cut, 0)


@given(runs(), st.data())
def test_damage_under_a_wrong_checksum(batches: list[bytes], data: st.DataObject) -> None:
    """A bit that flipped anywhere leads nowhere else than it leads the plain reader."""
    whole = bytearray(b"".join(batches))
    if whole:
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert decoded(bytes(whole)) == read(bytes(whole), 0)


@given(runs(), st.data())
def test_damage_under_a_right_checksum(batches: list[bytes], data: st.DataObject) -> None:
    """Neither does nonsense that somebody gave a right checksum."""
    damaged = []
    for each in batches:
        body = bytearray(each)
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(23, len(body) - 1))
            body[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 2]))
        damaged.append(with_checksum(bytes(body)))
    whole = b"".join(damaged)
    assert decoded(whole) == read(whole, 0)


@given(st.binary(max_size=60), st.integers(0, 3))
def test_any_bytes_as_records(body: bytes, n_records: int) -> None:
    """Any bytes at all may stand where records should."""
    header = HEADER.pack(5, HEADER.size - 12 + len(body), 0, 2, 0, 0, 9, 1, 2, -1, 0, 0, n_records)
    data = with_checksum(header + body)
    assert decoded(data) == read(data, 0)


@pytest.mark.parametrize(
    ("length", "end"), [(-(2**31), "malformed"), (-1, "malformed"), (13, "malformed"),
                        (14, "malformed"), (48, "malformed"), (2**31 - 1, "end")],
)  # fmt: skip
def test_lengths_that_lie(length: int, end: str) -> None:
    """A length below a batch's least is malformed, one beyond the response is its end."""
    data = bytearray(batch(0, [(b"k", b"v")]))
    data[8:12] = length.to_bytes(4, "big", signed=True)
    assert decoded(bytes(data)) == ([], end)


@pytest.mark.parametrize("count", [-1, 2, 1_000_000, 2**31 - 1])
def test_counts_that_lie(count: int) -> None:
    """A number of records that the batch cannot have is malformed, and costs no memory."""
    data = bytearray(batch(0, [(b"k", b"v")]))
    data[57:61] = count.to_bytes(4, "big", signed=True)
    assert decoded(with_checksum(bytes(data))) == ([], "malformed")


def test_times_by_the_log() -> None:
    """Where the log sets the time, all records of a batch have its last time."""
    data = batch(0, [(None, b"a"), (None, b"b")], flags=LOG_APPEND_TIME, times_ms=[5, 9])
    assert [each.time_ms for each in decoded(data)[0]] == [9, 9]


def test_control_batches_hold_no_messages() -> None:
    """A marker is passed, whatever its record looks like."""
    marker = batch(1, [(None, b"no marker at all")], flags=CONTROL)
    data = batch(0, [(None, b"a")]) + marker + batch(2, [(None, b"b")])
    assert [each.value for each in decoded(data)[0]] == [b"a", b"b"]


def test_batches_out_of_order_are_malformed() -> None:
    """A batch whose offsets were there before is not handed over."""
    first = batch(5, [(None, b"a")] * 3)
    for again in (5, 7, 0, -1):
        records, end = decoded(first + batch(again, [(None, b"b")]))
        assert (len(records), end) == (3, "malformed")
    assert next_offset(first) == 8
