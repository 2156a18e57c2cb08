"""JSON numbers and flags to floats, from the spans of a scan: correctly rounded, or not at all.

A number is read here only where the nearest float is certain; Python's own reader has the others.
Up to 18 digits fit an integer m exactly, and 10ᵏ is a float exactly as long as k ≤ 22. So m·10ᵏ is
one rounded operation where m ≤ 2⁵³ too (Clinger, "How to read floating point numbers accurately",
1990). Where m has more bits, as in most floats that a program wrote out in full, the operation is
done in two floats (Dekker's product, 1971), and counts only where its small error cannot move the
rounding.
"""

from __future__ import annotations

import numpy as np

from consumers.kernels.json_scan import ABSENT, FALSE, INTEGER, NULL, NUMBER, TRUE, Raw, byte_at
from streamnb.kernels.jit import inner, kernel
from streamnb.kernels.layout import F64, I64, U8, Flags, Int

_DIGITS_MAX = 18
_POWER_MAX = 22
_POWERS = np.array([float(10**k) for k in range(_POWER_MAX + 1)])
_EXACT_MAX = 1 << 53
_SPLITTER = 134217729.0  # 2²⁷ + 1 cuts a float into halves whose products are exact
_MARGIN = 2.0**-48  # of the small part: several times what rounding can have done to it

_MINUS, _POINT, _ZERO, _NINE, _E = b"-.09e"
_LOWER_CASE = 0x20


@inner
def _rest(a: float, b: float, product: float) -> float:
    """Return a·b − product exactly, where `product` is a·b rounded."""
    half = _SPLITTER * a
    a_high = half - (half - a)
    a_low = a - a_high
    half = _SPLITTER * b
    b_high = half - (half - b)
    b_low = b - b_high
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@inner
def _scaled(mantissa: Int, power: Int) -> tuple[float, bool]:
    """Return mantissa·10^power, and whether it is surely the nearest float."""
    high = np.float64(mantissa)
    if power == 0 or mantissa == 0:
        return high, True
    if power < -_POWER_MAX or power > _POWER_MAX:
        return 0.0, False
    ten: float = _POWERS[np.int64(-power if power < 0 else power)]
    if mantissa <= _EXACT_MAX:
        return (high * ten if power > 0 else high / ten), True
    low = np.float64(mantissa - np.int64(high))
    if power > 0:
        first = high * ten
        one, two = _rest(high, ten, first), low * ten
    else:
        first = high / ten
        product = first * ten
        one, two = ((high - product) - _rest(first, ten, product)) / ten, low / ten
    margin = (abs(one) + abs(two)) * _MARGIN
    small = one + two
    nearest = first + (small - margin)
    return nearest, nearest == first + (small + margin)


@inner
def _number(buffer: Raw, at: Int, end: Int) -> tuple[float, bool]:
    """Return the number that a span spells, and whether it is surely the nearest float."""
    negative = byte_at(buffer, at) == _MINUS
    if negative:
        at += 1
    mantissa: Int = np.int64(0)
    power: Int = np.int64(0)
    is_fraction = False
    while at < end and byte_at(buffer, at) | _LOWER_CASE != _E:
        byte = byte_at(buffer, at)
        if byte == _POINT:
            is_fraction = True
        else:
            if mantissa >= 10 ** (_DIGITS_MAX - 1):
                return 0.0, False
            mantissa = mantissa * 10 + np.int64(byte - _ZERO)
            if is_fraction:
                power -= 1
        at += 1
    if at < end:
        written: Int = np.int64(0)
        for k in range(at + 1, end):
            byte = byte_at(buffer, k)
            if _ZERO <= byte <= _NINE:
                written = written * 10 + np.int64(byte - _ZERO)
        power += -written if byte_at(buffer, at + 1) == _MINUS else written
    number, is_sure = _scaled(mantissa, power)
    return (-number if negative else number), is_sure


@kernel
def read_numbers(buffer: Raw, kinds: U8, starts: I64, ends: I64, out: F64, unsure: Flags) -> None:
    """Read the numbers of one field; what is absent or null is nan.

    What is no number, and what may not be the nearest float, is marked as unsure.
    """
    for i in range(len(kinds)):
        out[i] = np.nan
        unsure[i] = False
        if kinds[i] in (INTEGER, NUMBER):
            number, is_sure = _number(buffer, starts[i], ends[i])
            out[i] = number
            unsure[i] = not is_sure
        elif kinds[i] not in (ABSENT, NULL):
            unsure[i] = True


@kernel
def read_flags(buffer: Raw, kinds: U8, starts: I64, ends: I64, out: F64, unsure: Flags) -> None:
    """Read the flags of one field: true, false, 1 and 0; what is absent or null is nan.

    Anything else is marked as unsure.
    """
    for i in range(len(kinds)):
        out[i] = np.nan
        unsure[i] = False
        if kinds[i] in (TRUE, FALSE):
            out[i] = 1.0 if kinds[i] == TRUE else 0.0
        elif kinds[i] == INTEGER and ends[i] - starts[i] == 1:
            digit = np.int64(byte_at(buffer, starts[i])) - _ZERO
            out[i] = np.float64(digit)
            unsure[i] = digit > 1
        elif kinds[i] not in (ABSENT, NULL):
            unsure[i] = True
