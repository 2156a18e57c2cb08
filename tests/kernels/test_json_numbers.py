"""Numbers and flags from JSON: what the kernels are sure of is what Python reads."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.json_spans import scanned

digits = st.text("0123456789", min_size=1, max_size=20)
literals = st.builds(
    "{}{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.integers(0, 10**18).map(str) | st.integers(0, 99).map(str),
    st.just("") | digits.map(".{}".format),
    st.just("") | st.builds("{}{}".format, st.sampled_from(["e", "E+", "e-"]), st.integers(0, 30)),
)


def numbers(values: Sequence[str]) -> tuple[list[float], list[bool]]:
    """Return what is read at the field of messages with these literals, and what is not sure."""
    scan = scanned([f'{{"x":{v}}}'.encode() for v in values], ("x",))
    found, unsure = scan.numbers("x")
    return found.tolist(), (unsure | scan.undecided).tolist()


def bits(number: float) -> int:
    """Return a float's bits, which tell 0.0 from -0.0."""
    return int(np.float64(number).view(np.uint64))


@given(st.lists(literals, max_size=20))
def test_a_number_that_is_sure_is_the_nearest_float(values: list[str]) -> None:
    """Whatever the digits, a number that is sure has the bits that Python's reader gives it."""
    for value, number, unsure in zip(values, *numbers(values), strict=True):
        if not unsure:
            assert bits(number) == bits(float(value)), value


@given(st.lists(st.floats(1e-3, 1e15) | st.floats(-1e15, -1e-3), min_size=1, max_size=20))
def test_floats_written_out_in_full_are_sure(values: list[float]) -> None:
    """A float as a program writes it is read by the kernel alone, to the bit."""
    found, unsure = numbers([repr(value) for value in values])
    assert not any(unsure)
    assert found == values


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_integers_are_sure(value: int) -> None:
    """An integer of up to eighteen digits becomes the float nearest to it."""
    if value != 0:
        assert numbers([str(value)]) == ([float(value)], [False])


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("0", 0.0), ("0.0", 0.0), ("-0.0", -0.0), ("1e22", 1e22), ("1e-22", 1e-22),
        ("1.5E+3", 1.5e3), ("0.1", 0.1), ("-12.25", -12.25),
        ("123456789012345678", 123456789012345678.0),
        ("0.30000000000000004", 0.30000000000000004), ("9007199254740993", 9007199254740992.0),
        ("0.00000000000000000001", 1e-20),
    ],
)  # fmt: skip
def test_these_are_sure(value: str, wanted: float) -> None:
    """Numbers of the usual forms are read at once."""
    found, unsure = numbers([value])
    assert not unsure[0]
    assert bits(found[0]) == bits(wanted)


@pytest.mark.parametrize(
    "value",
    [
        "1e23", "1e-23", "1234567890123456789", "9007199254740993.0", "1e99", '"1"', "true", "{}",
        "[1]", "0.1234567890123456789",
    ],
)  # fmt: skip
def test_these_are_left_to_another_look(value: str) -> None:
    """Too many digits, a power beyond 22, half-way between two floats, or no number at all."""
    assert numbers([value])[1] == [True]


def test_what_is_absent_or_null_is_nan() -> None:
    """A field that is not there is missing, and that is sure, for numbers and flags alike."""
    scan = scanned([b"{}", b'{"x":null}'], ("x",))
    for found, unsure in (scan.numbers("x"), scan.flags("x")):
        assert all(map(math.isnan, found.tolist()))
        assert unsure.tolist() == [False, False]


@given(
    st.lists(
        st.booleans()
        | st.integers(-3, 12)
        | st.sampled_from([None, 0.0, 1.0, "true", "1", [], {}, 0.5]),
        max_size=12,
    )
)
def test_flags_are_true_false_one_and_zero(values: list[Any]) -> None:
    """These four are flags at once, null is none, and all else is left to another look."""
    scan = scanned([json.dumps({"x": value}).encode() for value in values], ("x",))
    for value, flag, unsure in zip(values, *(a.tolist() for a in scan.flags("x")), strict=True):
        plain = isinstance(value, bool) or (isinstance(value, int) and value in {0, 1})
        assert unsure == (not plain and value is not None)
        if plain:
            assert flag == float(value)
